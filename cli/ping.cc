// baton ping: whether the daemon lives. For probes.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "wire/control_client.h"

namespace baton::cli {

void AddPing(CLI::App& baton, Invocation& invocation) {
  CLI::App* command = baton.add_subcommand("ping", "Check that batond answers");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON object");
  AddSocketDir(*command, invocation);
  command->footer(R"(Examples:
  baton ping
  baton ping && echo it lives

Prints batond's version and whether it enforces shares, only observes, or stands by to take over
from another daemon (--standby). The exit status is 0 then, and 1 where nobody answers.)");
  command->callback([json, &invocation] {
    invocation.action = [json, &invocation] {
      Result<nlohmann::json> answer = wire::Ask(invocation.socket_dir, {{"command", "ping"}});
      if (!answer) return Complain(answer.error());
      if (*json) {
        answer->erase("ok");
        std::puts(answer->dump().c_str());
        return 0;
      }
      std::printf("batond %s: %s\n", answer->value("version", "?").c_str(),
                  answer->value("mode", "?").c_str());
      return 0;
    };
  });
}

}  // namespace baton::cli
