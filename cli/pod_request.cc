#include "cli/pod_request.h"

#include <pwd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace baton::cli {
namespace {

// Who the books say used the GPU, where nobody else is named.
std::string LoginName() {
  const passwd* entry = getpwuid(getuid());
  return entry != nullptr ? entry->pw_name : std::to_string(getuid());
}

}  // namespace

void AddPodRequestOptions(CLI::App& command, PodRequestOptions& options) {
  AddShareOptions(command, options.share);
  command.add_option("--user", options.user, "Whose work it is, for the books; default: yours")
      ->type_name("NAME");
  command.add_option("--namespace", options.name_space, "For the books")->type_name("NAME");
  AddCardOptions(command, options.cards);
  command.add_flag("--independent", options.independent,
                   "Its processes never wait for each other across GPUs: each GPU's token by "
                   "itself; default: all of its GPUs' or none");
}

Result<nlohmann::json> PodRequestFields(const PodRequestOptions& options) {
  Result<nlohmann::json> fields = NewShareFields(options.share);
  if (!fields) return fields;
  AddCardFields(options.cards, *fields);
  (*fields)["independent"] = options.independent;
  (*fields)["user"] = options.user.empty() ? LoginName() : options.user;
  (*fields)["namespace"] = options.name_space;
  return fields;
}

}  // namespace baton::cli
