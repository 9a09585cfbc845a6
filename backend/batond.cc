// batond: hands out the tokens. See backend/daemon.h.
#include <CLI/CLI.hpp>
#include <string>

#include "backend/daemon.h"
#include "backend/start_check.h"
#include "node/daemon_main.h"
#include "node/standby.h"

namespace {

constexpr const char* kExamples = R"(Examples:
  batond                                     with defaults: this machine's GPUs, /run/baton
  batond --config /etc/baton/batond.toml
  batond --check-config /etc/baton/batond.toml                what would keep it from starting here
  batond --check-config batond.toml --file-only               of a file for another machine
  batond --print-config > batond.toml        every option with its default, commented

A configuration for a pod on this machine's first GPU, apart from those of 'baton run':
  [server]
  socket_dir = "/run/baton"
  [[pod]]
  name = "train"
  request = 60
  limit = 80
  gpus = [0]

SIGTERM stops it cleanly: pods keep running and reconnect to the next one. SIGHUP reads the
configuration again. With --supervise the configuration is read again after each crash too.)";

}  // namespace

int main(int argc, char** argv) {
  std::string socket_dir;
  std::string state_dir;
  std::string node;
  baton::node::DaemonProgram program;
  program.name = "batond";
  program.about = "batond shares GPUs among pods by time.";
  program.examples = kExamples;
  program.add_options = [&](CLI::App& app) {
    app.add_option("--socket-dir", socket_dir, "Overrides server.socket_dir")->type_name("DIR");
    app.add_option("--state-dir", state_dir, "Overrides server.state_dir")->type_name("DIR");
    app.add_option("--node", node, "Overrides node.name")->type_name("NAME");
  };
  program.adjust = [&](baton::config::Options& options) {
    if (!socket_dir.empty()) options.server.socket_dir = socket_dir;
    if (!state_dir.empty()) options.server.state_dir = state_dir;
    if (!node.empty()) options.node.name = node;
  };
  program.check = baton::backend::CheckStart;
  program.serve = [](baton::config::Options options,
                     const baton::node::DaemonCall& call) -> baton::Result<void> {
    const std::string control_dir = baton::config::ControlDir(options);
    baton::backend::Daemon daemon(std::move(options), call.config);
    if (call.standby) {
      const auto turn =
          baton::node::AwaitTurn(control_dir, [&daemon] { return daemon.TakeLocks(); });
      if (!turn) return tl::unexpected(turn.error());
      if (!*turn) return {};
    }
    if (auto started = daemon.Start(); !started) return started;
    daemon.Run();
    return {};
  };
  return baton::node::DaemonMain(program, argc, argv);
}
