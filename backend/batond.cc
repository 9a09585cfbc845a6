// batond: hands out the tokens. See backend/daemon.h.
#include <CLI/CLI.hpp>
#include <string>

#include "backend/daemon.h"
#include "backend/daemon_main.h"

namespace {

constexpr const char* kExamples = R"(Examples:
  batond                                     with defaults: this machine's GPUs, /run/baton
  batond --config /etc/baton/batond.toml
  batond --check-config /etc/baton/batond.toml
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
configuration again.)";

}  // namespace

int main(int argc, char** argv) {
  std::string socket_dir;
  std::string state_dir;
  std::string node;
  baton::backend::DaemonProgram program;
  program.name = "batond";
  program.about = "batond hands the right to use a GPU from pod to pod.";
  program.examples = kExamples;
  program.add_options = [&](CLI::App& app) {
    app.add_option("--socket-dir", socket_dir, "Instead of server.socket_dir")->type_name("DIR");
    app.add_option("--state-dir", state_dir, "Instead of server.state_dir")->type_name("DIR");
    app.add_option("--node", node, "Instead of node.name")->type_name("NAME");
  };
  program.adjust = [&](baton::backend::Options& options) {
    if (!socket_dir.empty()) options.server.socket_dir = socket_dir;
    if (!state_dir.empty()) options.server.state_dir = state_dir;
    if (!node.empty()) options.node.name = node;
  };
  program.serve = [](baton::backend::Options options,
                     const std::string& config) -> baton::Result<void> {
    baton::backend::Daemon daemon(std::move(options), config);
    if (auto started = daemon.Start(); !started) return started;
    daemon.Run();
    return {};
  };
  return baton::backend::DaemonMain(program, argc, argv);
}
