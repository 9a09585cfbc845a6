// baton-frontend: the node's relay. See node/frontend.h.
#include <CLI/CLI.hpp>
#include <string>

#include "node/daemon_main.h"
#include "node/frontend.h"
#include "node/standby.h"
#include "node/start_check.h"

namespace {

constexpr const char* kExamples = R"text(Examples:
  baton-frontend --config /etc/baton/frontend.toml
  baton-frontend --check-config /etc/baton/frontend.toml

Its configuration, on a node called gpu7:
  [node]
  name = "gpu7"
  socket_dir = "/run/baton"
  [zmq]
  connect = "tcp://batond.example:7411"
  server_public_key = "(of batond: the .pub file of its key pair)"
  secret_key_file = "/etc/baton/gpu7.key"      # made by: baton keygen

batond lists the node's public key under [zmq.nodes].)text";

}  // namespace

int main(int argc, char** argv) {
  std::string node;
  baton::node::DaemonProgram program;
  program.name = "baton-frontend";
  program.about = "baton-frontend connects a node's pods to a central batond.";
  program.examples = kExamples;
  program.add_options = [&](CLI::App& app) {
    app.add_option("--node", node, "Overrides node.name")->type_name("NAME");
  };
  program.adjust = [&](baton::config::Options& options) {
    if (!node.empty()) options.node.name = node;
  };
  program.check = baton::node::CheckFrontend;
  program.serve = [](baton::config::Options options,
                     const baton::node::DaemonCall& call) -> baton::Result<void> {
    if (!options.node.socket_dir.empty()) options.server.socket_dir = options.node.socket_dir;
    const std::string control_dir = baton::config::ControlDir(options);
    baton::node::Frontend frontend(std::move(options));
    if (call.standby) {
      const auto turn =
          baton::node::AwaitTurn(control_dir, [&frontend] { return frontend.TakeLocks(); });
      if (!turn) return tl::unexpected(turn.error());
      if (!*turn) return {};
    }
    if (auto started = frontend.Start(); !started) return started;
    return frontend.Run();
  };
  return baton::node::DaemonMain(program, argc, argv);
}
