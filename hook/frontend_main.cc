// baton-frontend: the node's relay. See hook/frontend.h.
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "backend/config.h"
#include "backend/daemon.h"
#include "hook/frontend.h"

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

int Complain(const baton::Error& error) {
  std::fprintf(stderr, "baton-frontend: %s\n", error.message.c_str());
  return error.code == baton::ErrorCode::kInvalid ? 2 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("baton-frontend connects a node's pods to a central batond.", "baton-frontend");
  app.footer(kExamples);
  std::string config;
  std::string check;
  bool print = false;
  app.add_option("--config", config, "Configuration file (TOML)")->type_name("FILE");
  app.add_option("--check-config", check, "Check a configuration file and exit")->type_name("FILE");
  app.add_flag("--print-config", print, "Print the effective configuration, commented, and exit");
  app.set_version_flag("--version", std::string("baton-frontend ") + BATON_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "baton-frontend: %s; see baton-frontend --help\n", error.what());
    return 2;
  }
  umask(022);
  signal(SIGPIPE, SIG_IGN);
  spdlog::set_default_logger(spdlog::stderr_logger_st("baton-frontend"));
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
  if (print) {
    std::fputs(baton::backend::PrintOptions(options).c_str(), stdout);
    return 0;
  }
  baton::backend::SetLogLevel(options.server.log_level);
  baton::hook::Frontend frontend(std::move(options));
  if (auto started = frontend.Start(); !started) return Complain(started.error());
  return frontend.Run() ? 0 : 1;
}
