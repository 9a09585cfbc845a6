// What a program is told of the pod that it runs in: for `baton run` and `baton lease`.
#ifndef BATON_CLI_POD_ENVIRONMENT_H_
#define BATON_CLI_POD_ENVIRONMENT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
}

namespace baton::cli {

// Declares --away; `away` has its default and must outlive `command`.
void AddAway(CLI::App& command, std::string& away);
// kInvalid: it is neither wait nor open.
Result<void> CheckAway(const std::string& away);

// What the program needs to be in the pod that batond has described (`create_pod`, `create_lease`).
// `hook`: the path of libbaton.so. May throw nlohmann::json::exception.
std::vector<std::pair<std::string, std::string>> EnvironmentOf(const nlohmann::json& pod,
                                                               const std::string& hook,
                                                               const std::string& away,
                                                               const std::string& socket_dir);

// "pod train on GPU-a, GPU-b: request 30 %, limit 60 %", of what batond said, and was asked for.
std::string PodLine(const nlohmann::json& pod, const nlohmann::json& request);

}  // namespace baton::cli

#endif  // BATON_CLI_POD_ENVIRONMENT_H_
