// baton keygen: a CURVE key pair for the link between a node and batond.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "net/keys.h"

namespace baton::cli {

void AddKeygen(CLI::App& baton, Invocation& invocation) {
  CLI::App* command =
      baton.add_subcommand("keygen", "Create a key pair for the link between node and batond");
  auto path = std::make_shared<std::string>();
  command->add_option("FILE", *path, "File for both keys, mode 0600; FILE.pub gets the public key")
      ->required()
      ->type_name("");
  auto keep = std::make_shared<bool>(false);
  command->add_flag("--keep", *keep,
                    "If FILE exists keep its key pair; one that is damaged is moved aside");
  command->footer(R"(Examples:
  baton keygen /etc/baton/batond.key                   on batond's machine
  baton keygen /etc/baton/node.key                     on each node
  baton keygen --keep /etc/baton/node.key              at each start of a node

Then list each node's node.key.pub in batond's configuration, and batond.key.pub in the nodes'.
An existing file is never overwritten.)");
  command->callback([path, keep, &invocation] {
    invocation.action = [path, keep] {
      if (*keep) {
        const Result<bool> made = net::KeepKeyPair(*path);
        if (!made) return Complain(made.error());
        if (!*made) {
          std::printf("%s: kept\n", path->c_str());
          return 0;
        }
      } else if (const Result<void> made = net::GenerateKeyPair(*path); !made) {
        return Complain(made.error());
      }
      std::printf("%s: both keys; keep it secret\n%s.pub: the public key, for the other side\n",
                  path->c_str(), path->c_str());
      return 0;
    };
  });
}

}  // namespace baton::cli
