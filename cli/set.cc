// baton set: changes a pod's share in place.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/pod_request.h"
#include "wire/control_client.h"

namespace baton::cli {
namespace {

struct SetOptions {
  std::string pod;
  PodFlags share;
};

int Set(const SetOptions& options, const Invocation& invocation) {
  Result<nlohmann::json> request = ChangeFields(options.share);
  if (!request) return Complain(request.error());
  if (request->empty()) {
    return Complain({ErrorCode::kInvalid,
                     "nothing to change; give one of --flavor, --request, --limit, --memory, "
                     "--priority, --latency, --team"});
  }
  (*request)["command"] = "set_pod";
  (*request)["name"] = options.pod;
  const Result<nlohmann::json> pod = wire::Ask(invocation.socket_dir, *request);
  return pod ? 0 : Complain(pod.error());
}

}  // namespace

void AddSet(CLI::App& baton, Invocation& invocation) { AddSetAs(baton, "set", invocation); }

void AddSetAs(CLI::App& parent, const std::string& name, Invocation& invocation) {
  CLI::App* command = parent.add_subcommand(name, "Change a pod's share, at once and in place");
  auto options = std::make_shared<SetOptions>();
  command->add_option("POD", options->pod, "The pod's name, as 'baton top' shows it")
      ->required()
      ->type_name("");
  AddPodFlags(*command, options->share, /*changes_only=*/true);
  AddSocketDir(*command, invocation);
  const std::string path = "  baton " + (name == "set" ? "" : parent.get_name() + " ") + name;
  command->footer("Examples:\n" + path + " trainer --request 40\n" + path +
                  " trainer --request 40 --limit 40       strict: never more than its request\n" +
                  path + " trainer --flavor medium                what 'baton flavors' offers\n" +
                  path + " notebook --priority high --memory 8GiB\n" + path +
                  " server --latency 20ms                  none: whenever its share comes\n" + R"(
What is not named stays as it is. The program goes on; the next grant follows the new share.)");
  command->callback([options, &invocation] {
    invocation.action = [=, &invocation] { return Set(*options, invocation); };
  });
}

}  // namespace baton::cli
