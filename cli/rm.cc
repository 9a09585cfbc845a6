// baton rm: removes a pod.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/pod_request.h"
#include "wire/control_client.h"

namespace baton::cli {

void AddRm(CLI::App& baton, Invocation& invocation) {
  CLI::App* command =
      baton.add_subcommand("rm", "Delete pods; their programs can launch nothing more");
  auto pods = std::make_shared<std::vector<std::string>>();
  command->add_option("POD", *pods, "Names, as 'baton top' shows them")->required()->type_name("");
  AddSocketDir(*command, invocation);
  command->footer(R"(Examples:
  baton rm trainer
  baton rm trainer-1 trainer-2

The programs are not killed: their launches wait from now on. What 'baton run' started it
removes by itself when the program ends.)");
  command->callback([pods, &invocation] {
    invocation.action = [pods, &invocation] {
      int status = 0;
      for (const std::string& pod : *pods) {
        const Result<nlohmann::json> answer = wire::Ask(
            invocation.socket_dir, {{"command", "delete_pod"}, {"name", pod}}, kDevicePatience);
        if (!answer) status = Complain(answer.error());
      }
      return status;
    };
  });
}

}  // namespace baton::cli
