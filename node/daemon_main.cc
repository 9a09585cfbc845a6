#include "node/daemon_main.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "base/async_log.h"
#include "base/short_slice.h"
#include "base/standard_files.h"
#include "base/utf8.h"
#include "config/options.h"
#include "node/event_log.h"
#include "node/supervise.h"
#include "node/wake_latency.h"

namespace baton::node {
namespace {

// As many open files as the system lets this process have: each client takes two.
void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int SayWhyNot(LogFormat format, const std::string& name, const Error& error) {
  const std::string line = ComplaintLine(format, name, ToPrintable(error.message));
  WriteBefore(STDERR_FILENO, line.data(), line.size(), MonotonicNow() + AsyncLog::kPatience);
  return error.code == ErrorCode::kInvalid ? 2 : 1;
}

// `format` becomes that of complaints.
int RunDaemon(const DaemonProgram& program, int argc, char** argv, LogFormat& format) {
  const std::string& name = program.name;
  const auto complain = [&](const Error& error) { return SayWhyNot(format, name, error); };
  CLI::App app(program.about, name);
  app.footer(program.examples);
  DaemonCall call;
  std::string check;
  std::string log_format;
  bool file_only = false;
  bool print = false;
  bool supervise = false;
  // As of a variable that is not set: neither defaults nor another task than what was asked for.
  const CLI::Validator named(
      [](const std::string& path) { return path.empty() ? "the path is empty" : std::string(); },
      "");
  app.add_option("--config", call.config, "Configuration file (TOML)")
      ->type_name("FILE")
      ->check(named);
  app.add_option("--check-config", check,
                 "Check a configuration file, and what it names on this machine, and exit")
      ->type_name("FILE")
      ->check(named);
  app.add_flag("--file-only", file_only,
               "With --check-config: the file alone, which may be for another machine")
      ->needs("--check-config");
  app.add_flag("--print-config", print, "Print the effective configuration, commented, and exit");
  app.add_flag("--supervise", supervise,
               "Run as a child process, and start it again at once when it crashes or "
               "is killed");
  app.add_flag("--standby", call.standby,
               "Wait while another daemon uses the same state or GPUs, and take over when it ends; "
               "without it that is an error");
  app.add_option("--log-format", log_format, "Overrides log.format: text or json")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"text", "json"}).description(""));
  if (program.add_options) program.add_options(app);
  app.set_version_flag("--version", name + " " + BATON_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "%s: %s; see %s --help\n", name.c_str(), error.what(), name.c_str());
    return 2;
  }

  format = ParseLogFormat(log_format);

  // Nothing may be left writable for others by an open umask; sockets set their own modes.
  umask(022);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);  // ignored by who started this, it would tell of no child's end
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error to report, not the end
  RaiseFileLimit();

  if (!check.empty()) {
    auto options = config::LoadOptions(check);
    if (!options) return complain(options.error());
    if (program.adjust) program.adjust(*options);
    int status = 0;
    if (program.check) {
      for (const Error& error : program.check(*options, !file_only)) {
        status = std::max(status, complain({error.code, check + ": " + error.message}));
      }
    }
    if (status != 0) return status;
    std::printf("%s is valid\n", check.c_str());
    return 0;
  }
  const auto serve = [&] {
    config::Options options;
    if (!call.config.empty()) {
      auto loaded = config::LoadOptions(call.config);
      if (!loaded) return complain(loaded.error());
      options = std::move(*loaded);
    }
    if (program.adjust) program.adjust(options);
    if (log_format.empty()) format = options.log.format;
    if (print) {
      options.log.format = format;
      std::fputs(config::PrintOptions(options).c_str(), stdout);
      return 0;
    }
    Result<void> served;
    {
      const AsyncLog log(STDERR_FILENO, name, format);
      UseShortSlice();
      SetLogLevel(options.server.log_level);
      UniqueFd awake;
      if (const Duration most = options.server.cpu_dma_latency; most > Duration(0)) {
        if (auto limited = LimitWakeLatency(most)) {
          awake = std::move(*limited);
        } else {
          spdlog::warn("daemon: {}", limited.error().message);
        }
      }
      served = program.serve(std::move(options), call);
    }
    return served ? 0 : complain(served.error());
  };
  if (!supervise || print) return serve();
  if (log_format.empty() && !call.config.empty()) {
    // What is wrong with the file the child says.
    if (const auto options = config::LoadOptions(call.config)) format = options->log.format;
  }
  return Supervise(name, {argv, static_cast<size_t>(argc)}, serve, format);
}

}  // namespace

int DaemonMain(const DaemonProgram& program, int argc, char** argv) {
  OpenStandardFiles();
  LogFormat format = LogFormat::kText;
  const int status = RunDaemon(program, argc, argv, format);
  const auto taken = OutputTaken();
  if (taken) return status;
  const int failed = SayWhyNot(format, program.name, taken.error());
  return status == 0 ? failed : status;
}

}  // namespace baton::node
