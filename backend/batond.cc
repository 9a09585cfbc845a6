// batond: hands out the tokens. See backend/daemon.h.
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "backend/config.h"
#include "backend/daemon.h"

namespace {

constexpr const char* kExamples = R"(Examples:
  batond                                     with defaults: this machine's GPUs, /run/baton
  batond --config /etc/baton/batond.toml
  batond --check-config /etc/baton/batond.toml
  batond --print-config > batond.toml        every option with its default, commented

A configuration for three pods on this machine's first GPU:
  [server]
  socket_dir = "/run/baton"
  [[pod]]
  name = "train"
  request = 60
  gpus = [0]

SIGTERM stops it cleanly: pods keep running and reconnect to the next one. SIGHUP reads the
configuration again.)";

int Complain(const baton::Error& error) {
  std::fprintf(stderr, "batond: %s\n", error.message.c_str());
  return error.code == baton::ErrorCode::kInvalid ? 2 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("batond hands the right to use a GPU from pod to pod.", "batond");
  app.footer(kExamples);
  std::string config;
  std::string check;
  std::string socket_dir;
  std::string state_dir;
  bool print = false;
  app.add_option("--config", config, "Configuration file (TOML)")->type_name("FILE");
  app.add_option("--check-config", check, "Check a configuration file and exit")->type_name("FILE");
  app.add_flag("--print-config", print, "Print the effective configuration, commented, and exit");
  app.add_option("--socket-dir", socket_dir, "Instead of server.socket_dir")->type_name("DIR");
  app.add_option("--state-dir", state_dir, "Instead of server.state_dir")->type_name("DIR");
  app.set_version_flag("--version", std::string("batond ") + BATON_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "batond: %s; see batond --help\n", error.what());
    return 2;
  }

  // Nothing may be left writable for others by an open umask; sockets set their own modes.
  umask(022);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error to report, not the end
  spdlog::set_default_logger(spdlog::stderr_logger_st("batond"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");

  if (!check.empty()) {
    auto options = baton::backend::LoadOptions(check);
    if (!options) return Complain(options.error());
    std::printf("%s is fine\n", check.c_str());
    return 0;
  }
  baton::backend::Options options;
  if (!config.empty()) {
    auto loaded = baton::backend::LoadOptions(config);
    if (!loaded) return Complain(loaded.error());
    options = std::move(*loaded);
  }
  if (!socket_dir.empty()) options.server.socket_dir = socket_dir;
  if (!state_dir.empty()) options.server.state_dir = state_dir;
  if (print) {
    std::fputs(baton::backend::PrintOptions(options).c_str(), stdout);
    return 0;
  }
  baton::backend::SetLogLevel(options.server.log_level);
  baton::backend::Daemon daemon(std::move(options), config);
  if (auto started = daemon.Start(); !started) return Complain(started.error());
  daemon.Run();
  return 0;
}
