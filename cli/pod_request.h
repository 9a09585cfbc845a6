// The flags that say what a pod asks for, from the table of its fields (spec/pod_request.h): the
// same for `baton run`, `set`, `vgpu create`, `explain placement` and `defrag`.
#ifndef BATON_CLI_POD_REQUEST_H_
#define BATON_CLI_POD_REQUEST_H_

#include <chrono>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace CLI {
class App;
}

namespace baton::cli {

// How long a driver may take to make MIG instances or start MPS, before batond's answer.
inline constexpr Duration kDevicePatience = std::chrono::seconds(120);

// What the user wrote, by the field's key; empty where nothing. A flag without a value is "true".
struct PodFlags {
  std::map<std::string_view, std::string> texts;
  std::map<std::string_view, std::vector<std::string>> lists;  // of those that can be repeated
  bool empty() const;
};

// `flags` must outlive `command`. `changes_only`: those that can change in place.
void AddPodFlags(CLI::App& command, PodFlags& flags, bool changes_only = false);

// Both check; an error names the flag and says what is accepted.
// The fields of set_pod that were given.
Result<nlohmann::json> ChangeFields(const PodFlags& flags);
// The fields of create_pod but for command, name and uid.
Result<nlohmann::json> PodRequestFields(const PodFlags& flags);

}  // namespace baton::cli

#endif  // BATON_CLI_POD_REQUEST_H_
