// The node's batond, or a baton-frontend that speaks for it, by its control socket
// (docs/protocol.md): one line of JSON out, one in.
#ifndef BATON_K8S_DEVICE_PLUGIN_BATOND_H_
#define BATON_K8S_DEVICE_PLUGIN_BATOND_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "k8s/api/object.h"

namespace baton::k8s {

// Thread safe: no state but names.
class Batond {
 public:
  // `socket_dir`: the folder of control.sock.
  explicit Batond(std::string socket_dir, Duration timeout = std::chrono::seconds(5))
      : path_(std::move(socket_dir) + "/control.sock"), timeout_(timeout) {}

  // Blocks for twice `timeout` at most. An answer {"ok": false} is an Error with batond's code and
  // sentence; where nobody answers it is kUnavailable. `answered`, where given: whether an answer
  // has come, for batond says kUnavailable too.
  Result<Json> Ask(const Json& request, bool* answered = nullptr) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Duration timeout_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_DEVICE_PLUGIN_BATOND_H_
