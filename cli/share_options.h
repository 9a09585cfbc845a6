// The options that say what a pod may have: the same for `baton run` and `baton set`.
#ifndef BATON_CLI_SHARE_OPTIONS_H_
#define BATON_CLI_SHARE_OPTIONS_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace CLI {
class App;
}

namespace baton::cli {

// As written by the user; empty when not given.
struct ShareOptions {
  std::string request;
  std::string limit;
  std::string memory;
  std::string priority;
  std::string team;
};

void AddShareOptions(CLI::App& command, ShareOptions& options);

// The fields of create_pod and set_pod that were given, checked: percentages as numbers, memory in
// bytes. An error names the flag, and says what is accepted.
Result<nlohmann::json> ShareFields(const ShareOptions& options);

// For a new pod: a request alone is elastic (limit 100), a limit alone is strict (request = limit),
// and one of the two is needed.
Result<nlohmann::json> NewShareFields(const ShareOptions& options);

}  // namespace baton::cli

#endif  // BATON_CLI_SHARE_OPTIONS_H_
