// baton ping: whether the daemon lives. For probes.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "wire/control_client.h"

namespace baton::cli {

void AddPing(CLI::App& baton, Invocation& invocation) {
  CLI::App* command = baton.add_subcommand("ping", "Check that batond answers");
  AddSocketDir(*command, invocation);
  command->footer(R"(Examples:
  baton ping
  baton ping && echo it lives

Prints batond's version and whether it enforces shares, only observes, or stands by to take over
from another daemon (--standby). The exit status is 0 then, and 1 where nobody answers.)");
  command->callback([&invocation] {
    invocation.action = [&invocation] {
      const Result<nlohmann::json> answer = wire::Ask(invocation.socket_dir, {{"command", "ping"}});
      if (!answer) return Complain(answer.error());
      std::printf("batond %s: %s\n", answer->value("version", "?").c_str(),
                  answer->value("mode", "?").c_str());
      return 0;
    };
  });
}

}  // namespace baton::cli
