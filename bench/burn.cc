// baton-burn: keeps a GPU busy in a known way and says what it got. It speaks the driver API and
// runs on a real GPU and on the simulated one alike.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/help_formatter.h"
#include "base/parse.h"
#include "base/standard_files.h"
#include "bench/workload.h"

namespace baton::bench {
namespace {

using nlohmann::json;

constexpr int kExitUsage = 64;        // EX_USAGE
constexpr int kExitUnavailable = 69;  // EX_UNAVAILABLE: no driver

constexpr char kFooter[] = R"(Examples:
  baton-burn --seconds 5                         saturate device 0 with kernels of 1 ms
  baton-burn --burst 5 --sync burst --period 200ms
                                                 an interactive program: 5 ms of work, 5 times a second
  baton-burn --kernel 2ms --spread 0.3 --seed 7  kernels of 1.4 to 2.6 ms
  baton-burn --graph 20 --sync burst             graphs of 20 kernels
  baton-burn --processes 4 --verify              four processes, results checked
  baton-burn --devices 0,1 --collective 10       two devices that wait for each other, as in NCCL
  baton-burn --devices 0,1 --processes 2 --collective 10
                                                 the same, with a process for each device
  baton-burn --collective 10 --meet /dev/shm/job --rank 0 --ranks 2
                                                 the same, with a program for each rank
  baton run --request 30 -- baton-burn           as a pod of Baton

Prints one JSON object: "gpu_seconds" is the sum of the lengths of the kernels completed in the
window of "elapsed" seconds, "share" their quotient in percent, "devices" has the same for each
device, and "wait_ms" is per burst the time from its submission to its completion minus its kernels'
lengths (with --sync burst or launch; null otherwise). "collectives" were completed by all devices,
the warm-up's included; what is spent waiting in them is in no other figure. Exit status: 0, 1 after
a CUDA error, a wrong result or a collective that does not end, 64 usage, 69 no driver.)";

struct Options {
  std::string meet;  // where the ranks of several programs meet; empty: it is one program
  int ranks = 0;
  Workload workload;
  int processes = 1;
  bool json_lines = false;
};

std::atomic<bool> g_stop{false};

void OnSignal(int) { g_stop.store(true, std::memory_order_relaxed); }

json Quantiles(std::vector<int64_t> waits_ns) {
  if (waits_ns.empty()) return nullptr;
  std::sort(waits_ns.begin(), waits_ns.end());
  const auto at = [&](double q) {
    const auto i = static_cast<size_t>(q * static_cast<double>(waits_ns.size()));
    return static_cast<double>(waits_ns[std::min(i, waits_ns.size() - 1)]) / 1e6;
  };
  return {{"p50", at(0.5)}, {"p99", at(0.99)}, {"max", at(1.0)}};
}

json ReportOf(const Options& options, const Tally& tally) {
  const Workload& workload = options.workload;
  const double elapsed = static_cast<double>(tally.elapsed_ns) / 1e9;
  double gpu_seconds = 0;
  json devices = json::array();
  const auto share = [&](double seconds) { return elapsed > 0 ? 100 * seconds / elapsed : 0.0; };
  for (const auto& [device, work_ns] : tally.work_ns) {
    const double seconds = static_cast<double>(work_ns) / 1e9;
    gpu_seconds += seconds;
    devices.push_back({{"device", device}, {"gpu_seconds", seconds}, {"share", share(seconds)}});
  }
  return {
      {"pid", getpid()},
      {"devices", devices},
      {"processes", options.processes},
      {"launches", tally.launches},
      {"bursts", tally.bursts},
      {"collectives", workload.collective > 0 ? json(workload.ranks->Completed()) : json(nullptr)},
      {"gpu_seconds", gpu_seconds},
      {"elapsed", elapsed},
      {"share", share(gpu_seconds)},
      {"wait_ms", Quantiles(tally.waits_ns)},
      {"verified", workload.verify ? json(tally.verified) : json(nullptr)},
      {"error", tally.error.empty() ? json(nullptr) : json(tally.error)},
  };
}

void PrintLine(FILE* file, const json& object) {
  const std::string line = object.dump() + "\n";
  fwrite(line.data(), 1, line.size(), file);
  fflush(file);
}

// Prints a line per second until it is destroyed.
class ProgressPrinter {
 public:
  ProgressPrinter(bool enabled, FILE* out, const Progress& progress) {
    if (!enabled) return;
    thread_ = std::thread([this, out, &progress] {
      const Instant start = MonotonicNow();
      std::unique_lock lock(mutex_);
      while (!wake_.wait_for(lock, std::chrono::seconds(1), [this] { return done_; })) {
        PrintLine(out, {{"pid", getpid()},
                        {"progress", static_cast<double>(Nanos(MonotonicNow() - start)) / 1e9},
                        {"launches", progress.launches.load()},
                        {"gpu_seconds", static_cast<double>(progress.work_ns.load()) / 1e9}});
      }
    });
  }
  ~ProgressPrinter() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

// Runs the workload in this process. Progress goes to `out`.
Result<Tally> RunHere(const Options& options, FILE* out) {
  Progress progress;
  const ProgressPrinter printer(options.json_lines, out, progress);
  return RunWorkload(options.workload, g_stop, &progress);
}

int ExitCodeOf(const tl::unexpected<Error>& failure) {
  switch (failure.value().code) {
    case ErrorCode::kNotFound:
      return kExitUnavailable;
    case ErrorCode::kInvalid:
      return kExitUsage;
    default:
      return 1;
  }
}

int RunOne(Options options) {
  options.workload.stalled = [&](const std::string& reason) {
    Tally stalled;
    stalled.error = reason;
    PrintLine(stdout, ReportOf(options, stalled));
    _exit(1);
  };
  auto tally = RunHere(options, stdout);
  if (!tally) {
    fprintf(stderr, "baton-burn: %s\n", tally.error().message.c_str());
    return ExitCodeOf(tl::unexpected(tally.error()));
  }
  PrintLine(stdout, ReportOf(options, *tally));
  return tally->error.empty() ? 0 : 1;
}

// A child's last line to its parent: the tally, with every wait, so that quantiles can be merged.
json Encode(const Tally& tally) {
  return {{"tally", true},
          {"launches", tally.launches},
          {"bursts", tally.bursts},
          {"work_ns", tally.work_ns},
          {"elapsed_ns", tally.elapsed_ns},
          {"waits_ns", tally.waits_ns},
          {"verified", tally.verified},
          {"error", tally.error}};
}

void Merge(const json& child, Tally* total) {
  total->launches += child["launches"].get<uint64_t>();
  total->bursts += child["bursts"].get<uint64_t>();
  for (const auto& [device, work_ns] : child["work_ns"].get<std::map<int, int64_t>>()) {
    total->work_ns[device] += work_ns;
  }
  total->elapsed_ns = std::max(total->elapsed_ns, child["elapsed_ns"].get<int64_t>());
  const auto waits = child["waits_ns"].get<std::vector<int64_t>>();
  total->waits_ns.insert(total->waits_ns.end(), waits.begin(), waits.end());
  total->verified = total->verified && child["verified"].get<bool>();
  if (total->error.empty()) total->error = child["error"].get<std::string>();
}

struct Child {
  pid_t pid = -1;
  int pipe = -1;
  std::string buffer;
};

[[noreturn]] void RunChild(Options options, int index, int out_fd, pid_t parent) {
  // The parent's death must not leave children behind that nobody can name.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  FILE* out = fdopen(out_fd, "w");
  Workload& workload = options.workload;
  workload.seed += static_cast<uint64_t>(index) * 7919;
  workload.devices = {workload.devices[static_cast<size_t>(index) % workload.devices.size()]};
  workload.rank = index;
  workload.stalled = [&](const std::string& reason) {
    Tally stalled;
    stalled.error = reason;
    PrintLine(out, Encode(stalled));
    _exit(1);
  };
  auto tally = RunHere(options, out);
  if (!tally) {
    if (index == 0) fprintf(stderr, "baton-burn: %s\n", tally.error().message.c_str());
    fflush(stderr);
    exit(ExitCodeOf(tl::unexpected(tally.error())));
  }
  PrintLine(out, Encode(*tally));
  exit(tally->error.empty() ? 0 : 1);
}

// Waits for a child that has closed its pipe. Returns its exit status; 1 where a signal ended it.
int Reap(const Child& child, Tally* total) {
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) total->verified = false;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  if (total->error.empty()) {
    total->error = "process " + std::to_string(child.pid) + " was ended by signal " +
                   std::to_string(WTERMSIG(status));
  }
  return 1;
}

// Forks before any CUDA call, as a data loader does, and adds up what the children did.
int RunMany(const Options& options) {
  std::vector<Child> children(static_cast<size_t>(options.processes));
  const pid_t self = getpid();
  for (size_t i = 0; i < children.size(); ++i) {
    int ends[2];
    if (pipe(ends) != 0) {
      fprintf(stderr, "baton-burn: pipe: %s\n", strerror(errno));
      return 1;
    }
    const pid_t pid = fork();
    if (pid < 0) {
      fprintf(stderr, "baton-burn: fork: %s\n", strerror(errno));
      return 1;
    }
    if (pid == 0) {
      close(ends[0]);
      for (const Child& earlier : children) {
        if (earlier.pipe >= 0) close(earlier.pipe);
      }
      RunChild(options, static_cast<int>(i), ends[1], self);
    }
    close(ends[1]);
    children[i].pid = pid;
    children[i].pipe = ends[0];
  }

  Tally total;
  total.verified = options.workload.verify;
  bool forwarded = false;
  int code = 0;
  size_t open = children.size();
  while (open > 0) {
    if (g_stop.load() && !forwarded) {
      forwarded = true;
      for (const Child& child : children) {
        if (child.pipe >= 0) kill(child.pid, SIGTERM);
      }
    }
    std::vector<pollfd> polls;
    for (const Child& child : children) polls.push_back({child.pipe, POLLIN, 0});
    if (poll(polls.data(), polls.size(), 200) <= 0) continue;
    for (size_t i = 0; i < children.size(); ++i) {
      if (polls[i].revents == 0) continue;
      Child& child = children[i];
      char chunk[65536];
      const ssize_t n = read(child.pipe, chunk, sizeof chunk);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        close(child.pipe);
        child.pipe = -1;  // poll() skips it
        --open;
        const int status = Reap(child, &total);
        code = std::max(code, status);
        if (status == 0 || options.workload.collective == 0) continue;
        // The others would wait for it in vain: like any launcher of such jobs, end them all.
        for (const Child& other : children) {
          if (other.pipe >= 0) kill(other.pid, SIGKILL);
        }
        continue;
      }
      child.buffer.append(chunk, static_cast<size_t>(n));
      size_t end;
      while ((end = child.buffer.find('\n')) != std::string::npos) {
        const json line = json::parse(child.buffer.substr(0, end), nullptr, false);
        child.buffer.erase(0, end + 1);
        if (line.is_discarded()) continue;
        if (line.contains("tally")) {
          Merge(line, &total);
        } else {
          PrintLine(stdout, line);
        }
      }
    }
  }
  if (code == kExitUnavailable || code == kExitUsage) return code;
  PrintLine(stdout, ReportOf(options, total));
  return code;
}

// Adds an option whose text a parser of base/ understands; its error becomes CLI11's.
template <class T, class Parse>
CLI::Option* AddParsed(CLI::App& app, const std::string& flag, T* target, Parse parse,
                       const std::string& description, const std::string& type) {
  return app
      .add_option_function<std::string>(
          flag,
          [target, parse, flag](const std::string& text) {
            auto value = parse(text);
            if (!value) throw CLI::ValidationError(flag, value.error().message);
            *target = *value;
          },
          description)
      ->type_name(type);
}

// The device of each rank. One process drives all devices; of several each drives one.
std::vector<int> RankDevices(const Options& options) {
  std::vector<int> devices = options.workload.devices;
  const size_t given = devices.size();
  for (size_t i = given; i < static_cast<size_t>(options.processes); ++i) {
    devices.push_back(devices[i % given]);
  }
  return devices;
}

void CheckRanks(const Options& options) {
  const Workload& w = options.workload;
  const int devices = static_cast<int>(w.devices.size());
  if (std::set<int>(w.devices.begin(), w.devices.end()).size() != w.devices.size()) {
    throw CLI::ValidationError("--devices", "each at most once");
  }
  if (options.processes != 1 && options.processes % devices != 0) {
    throw CLI::ValidationError("--processes", "accepts 1, or a multiple of the number of devices");
  }
  if (!options.meet.empty()) {
    if (w.collective == 0 || options.processes != 1 || devices != 1) {
      throw CLI::ValidationError("--meet", "needs --collective, and one process with one device");
    }
    if (w.rank >= options.ranks) {
      throw CLI::ValidationError("--rank", "accepts 0 to one less than --ranks");
    }
  }
  if (w.collective == 0) return;
  const size_t ranks = options.meet.empty() ? RankDevices(options).size() : options.ranks;
  if (ranks < 2 || ranks > Collective::kRanksMax) {
    throw CLI::ValidationError(
        "--collective",
        "needs 2 to " + std::to_string(Collective::kRanksMax) + " devices or processes");
  }
  if (w.threads > 1 || w.streams > 1) {
    throw CLI::ValidationError("--collective", "needs one thread, with one stream");
  }
  const auto seconds = [](Duration d) { return static_cast<double>(Nanos(d)) / 1e9; };
  const double work = seconds(w.kernel) * w.collective * std::max(1, w.graph);
  if (2 * std::max({work, seconds(w.pause), seconds(w.period)}) > seconds(w.patience)) {
    throw CLI::ValidationError("--patience",
                               "accepts no less than twice the time from one "
                               "collective to the next");
  }
}

int Main(int argc, char** argv) {
  Options options;
  Workload& w = options.workload;
  CLI::App app{"Keeps a GPU busy in a known way, and says what it got.", "baton-burn"};
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(kFooter);

  AddParsed(app, "--kernel", &w.kernel, ParseDuration, "Mean length of a kernel [1ms]", "TIME");
  app.add_option("--spread", w.spread,
                 "Kernels differ by ± this part of the length, or the sigma of a lognormal [0]")
      ->check(CLI::Range(0.0, 4.0))
      ->option_text("FRACTION");
  app.add_option("--spread-shape", w.spread_shape, "Distribution of the lengths [uniform]")
      ->transform(CLI::CheckedTransformer(std::map<std::string, Spread>{
          {"uniform", Spread::kUniform}, {"lognormal", Spread::kLognormal}}))
      ->option_text("uniform|lognormal");
  app.add_option("--seed", w.seed, "Seed of the lengths [1]");
  app.add_option("--burst", w.burst, "Launches per burst [10]")
      ->check(CLI::Range(1, 1000000))
      ->option_text("N");
  AddParsed(app, "--pause", &w.pause, ParseDuration, "Sleep between two bursts [0]", "TIME");
  AddParsed(app, "--period", &w.period, ParseDuration,
            "Start a burst this often [as soon as possible]", "TIME");
  std::string sync = "8";
  app.add_option("--sync", sync,
                 "Wait after each `burst`, each `launch`, `none`, or N: for the launch N launches "
                 "ago, so that N are always in flight [8]");
  app.add_option("--sync-by", w.sync_by, "Wait with cu{Stream,Event,Ctx}Synchronize [stream]")
      ->transform(CLI::CheckedTransformer(std::map<std::string, SyncBy>{
          {"stream", SyncBy::kStream}, {"event", SyncBy::kEvent}, {"ctx", SyncBy::kContext}}))
      ->option_text("stream|event|ctx");
  app.add_flag("--spin", w.spin, "The driver's waits spin instead of sleeping");
  app.add_option("--streams", w.streams, "Streams per thread; 0: the default stream [1]")
      ->check(CLI::Range(0, 1024))
      ->option_text("N");
  app.add_flag("--per-thread", w.per_thread, "Use the per-thread default stream's functions");
  app.add_option("--threads", w.threads, "Launching threads per device and process [1]")
      ->check(CLI::Range(1, 256))
      ->option_text("N");
  app.add_option("--processes", options.processes, "Processes, forked before cuInit [1]")
      ->check(CLI::Range(1, 256))
      ->option_text("N");
  app.add_option("--graph", w.graph, "Launch graphs of this many kernels [0: single kernels]")
      ->check(CLI::Range(0, 100000))
      ->option_text("N");
  AddParsed(app, "--memory", &w.memory_bytes, ParseBytes, "Device memory to hold [0]", "BYTES");
  AddParsed(app, "--copy", &w.copy_bytes, ParseBytes, "Copy this much to the device per burst [0]",
            "BYTES");
  app.add_option("--resolve", w.resolve, "How functions are found [dlsym]")
      ->transform(CLI::CheckedTransformer(std::map<std::string, Resolve>{
          {"dlsym", Resolve::kDlsym}, {"procaddress", Resolve::kProcAddress}}))
      ->option_text("dlsym|procaddress");
  app.add_option("--device,--devices", w.devices,
                 "Indices of the devices, with commas; processes take turns at them [0]")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0, 1024))
      ->option_text("N");
  app.add_option("--collective", w.collective,
                 "After each N launches devices (or processes) wait for each other [0: never]")
      ->check(CLI::Range(0, 1000000))
      ->option_text("N");
  AddParsed(app, "--patience", &w.patience, ParseDuration,
            "A collective that takes this long is an error [20s]", "TIME");
  CLI::Option* meet = app.add_option("--meet", options.meet,
                                     "The ranks are programs of their own that share this file; a "
                                     "new one for each run")
                          ->option_text("FILE");
  CLI::Option* rank = app.add_option("--rank", w.rank, "Which of them this one is, from 0")
                          ->check(CLI::Range(0, Collective::kRanksMax - 1))
                          ->option_text("N")
                          ->needs(meet);
  CLI::Option* ranks = app.add_option("--ranks", options.ranks, "How many they are")
                           ->check(CLI::Range(2, Collective::kRanksMax))
                           ->option_text("N")
                           ->needs(meet);
  meet->needs(rank)->needs(ranks);
  double seconds = 10, warmup = 0, fault_after = 0;
  app.add_option("--seconds", seconds, "Length of the measured window [10]")
      ->check(CLI::Range(0.0, 1e6))
      ->option_text("SECONDS");
  app.add_option("--bursts", w.bursts_max, "End after this many bursts per thread");
  app.add_option("--warmup", warmup, "Seconds before the measured window [0]")
      ->check(CLI::Range(0.0, 1e6))
      ->option_text("SECONDS");
  int64_t start_at = 0;
  app.add_option("--start-at", start_at,
                 "Start the measured window at this CLOCK_MONOTONIC time; work before it warms up")
      ->type_name("NANOSECONDS");
  app.add_option("--fault-after", fault_after,
                 "Store to an illegal address this many seconds into the window")
      ->check(CLI::Range(0.0, 1e6))
      ->option_text("SECONDS");
  app.add_flag("--verify", w.verify, "Count on the device with each burst, and check at the end");
  bool die_with_parent = false;
  app.add_flag("--die-with-parent", die_with_parent,
               "Be killed when the parent process ends, however it ends");
  app.add_flag("--json-lines", options.json_lines, "Also print a line of progress every second");

  try {
    app.parse(argc, argv);
    if (sync == "none") {
      w.sync = Sync::kNone;
    } else if (sync == "launch") {
      w.sync = Sync::kLaunch;
    } else if (sync == "burst") {
      w.sync = Sync::kBurst;
    } else {
      char* end = nullptr;
      const long n = strtol(sync.c_str(), &end, 10);
      if (*end != '\0' || n < 1 || n > 4096) {
        throw CLI::ValidationError("--sync", "\"" + sync +
                                                 "\" is not burst, launch, none, or a number from "
                                                 "1 to 4096");
      }
      w.sync = Sync::kInFlight;
      w.in_flight = static_cast<int>(n);
    }
    if (w.kernel < std::chrono::microseconds(1) || w.kernel > std::chrono::hours(1)) {
      throw CLI::ValidationError("--kernel", "accepts 1us to 1h");
    }
    if (w.spread_shape == Spread::kUniform && w.spread > 1) {
      throw CLI::ValidationError("--spread", "a uniform spread is at most 1");
    }
    CheckRanks(options);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    fprintf(stderr, "baton-burn: %s (see baton-burn --help)\n", error.what());
    return kExitUsage;
  }
  const auto to_duration = [](double s) { return Duration(static_cast<int64_t>(s * 1e9)); };
  w.length = to_duration(seconds);
  w.warmup = to_duration(warmup);
  w.fault_after = to_duration(fault_after);
  if (start_at > 0) w.start_at = InstantFromNanos(start_at);
  if (w.collective > 0) {
    auto shared = options.meet.empty()
                      ? Collective::Create(RankDevices(options))
                      : Collective::Open(options.meet, w.rank, options.ranks, w.devices.front());
    if (!shared) {
      fprintf(stderr, "baton-burn: %s\n", shared.error().message.c_str());
      return 1;
    }
    w.ranks = *shared;
  }

  if (die_with_parent) prctl(PR_SET_PDEATHSIG, SIGKILL);
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  const Instant met_by = MonotonicNow() + w.patience;
  while (w.collective > 0 && !w.ranks->all_there()) {
    if (g_stop.load()) return 0;
    if (MonotonicNow() > met_by) {
      fprintf(stderr, "baton-burn: not all ranks have come to %s within %s\n", options.meet.c_str(),
              FormatDuration(w.patience).c_str());
      return 1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return options.processes == 1 ? RunOne(options) : RunMany(options);
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  baton::OpenStandardFiles();
  return baton::AfterOutput("baton-burn", baton::bench::Main(argc, argv));
}
