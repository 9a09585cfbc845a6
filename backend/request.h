// The fields of a request to the control socket, each read and checked once.
// Not thread safe.
#ifndef BATON_BACKEND_REQUEST_H_
#define BATON_BACKEND_REQUEST_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/pods.h"
#include "base/result.h"

namespace baton::backend {

// Reads the fields of a request, and refuses those it was not asked for. `object` must outlive it.
// Errors are kInvalid and name the field.
class Request {
 public:
  explicit Request(const nlohmann::json& object) : object_(object) {}

  Result<std::string> Text(const char* key, const std::string& absent);
  Result<bool> Flag(const char* key, bool absent);
  Result<int64_t> Whole(const char* key, int64_t absent, int64_t min, int64_t max);
  // Names of GPUs: uuids or indexes.
  Result<std::vector<std::string>> Texts(const char* key);
  // Those that say what a pod asks for.
  Result<spec::PodRequest> Pod();
  // The same, and that is all there is.
  Result<backend::Pod> WholePod();
  // What is left after the fields that were read, and the command.
  nlohmann::json Rest() const;
  bool Has(std::string_view key) const;
  // After every field was read: one that is left over is a mistake of the caller's.
  Result<void> Finish() const;

 private:
  const nlohmann::json* Get(std::string_view key);

  const nlohmann::json& object_;
  std::set<std::string> known_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_REQUEST_H_
