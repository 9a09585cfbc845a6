// baton-demo: pods share simulated GPUs under a real batond, and the devices' own records say who
// got how much. scripts/demo builds and starts it.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/parse.h"
#include "bench/cluster.h"
#include "bench/denied_time.h"
#include "bench/mix.h"
#include "bench/sandbox.h"

namespace baton::bench {
namespace {

using nlohmann::json;

constexpr int kExitUsage = 64;
// Where batond serves its page, unless somebody else is there already.
constexpr uint16_t kHttpPort = 7412;
constexpr Duration kStartTimeout = std::chrono::seconds(30);
// With a real driver the window's start is fixed beforehand: room for three contexts to come up.
constexpr Duration kRealStart = std::chrono::seconds(10);

constexpr char kFooter[] = R"(Examples:
  baton-demo                                     60/30/10 on one simulated GPU, through a frontend
  baton-demo --transport unix --seconds 5        straight to batond, shorter
  baton-demo --nodes 2 --gpus 2                  the same pods on each of four GPUs
  baton-demo --pods train:50:100,serve:20:40     another mix, as name:request:limit
  baton-demo --json | tail -1                    the figures for a program
  baton-demo --real                              on this machine's GPU
  baton-demo --shell                             a shell beside three pods that stay, to try `baton` in

Exit status: 0, 1 when kernels of two pods overlapped or a share is further from its target than
--tolerance and what other work on this machine took, 64 usage, 130 interrupted.)";

struct Options {
  double seconds = 20;
  double warmup = 2;
  double contrast_seconds = 3;
  Transport transport = Transport::kCentral;
  int nodes = 1;
  int gpus = 1;
  std::string pods = "a:60:100,b:30:100,c:10:100";
  std::string kernel = "1ms";
  double spread = 0.2;
  double tolerance = 1.0;
  bool json = false;
  bool contrast = true;
  bool real = false;
  bool keep = false;
  bool shell = false;
  std::optional<std::string> http;  // nothing: kHttpPort where it is free
  std::string programs;
};

std::atomic<bool> g_interrupted{false};

void OnSignal(int) { g_interrupted.store(true); }

// False: interrupted.
bool SleepUntil(Instant at) {
  while (MonotonicNow() < at) {
    if (g_interrupted.load()) return false;
    const int64_t ns =
        Nanos(std::min<Duration>(at - MonotonicNow(), std::chrono::milliseconds(50)));
    if (ns <= 0) break;
    const timespec pause{0, ns};
    nanosleep(&pause, nullptr);
  }
  return !g_interrupted.load();
}

// Whether batond could listen there.
bool LoopbackPortIsFree(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool free = fd >= 0 &&
                    bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                    listen(fd, 1) == 0;
  if (fd >= 0) close(fd);
  return free;
}

Duration Seconds(double s) { return Duration(static_cast<int64_t>(s * 1e9)); }

// One pod on one GPU, and what it got.
struct Running {
  PodShare share;
  const Device* device;
  int64_t group;  // its number, the group of its processes' kernels
  Pod pod;
  double achieved = 0;  // percent of the window
};

struct Figures {
  uint64_t overlaps = 0;
  double gpu_busy = 100;  // percent; of the least busy GPU
  double max_error = 0;   // percentage points
  double denied = 0;      // percentage points, by other work on this machine
  std::optional<uint64_t> overlaps_without;
};

class Demo {
 public:
  Demo(const Options& options, std::vector<PodShare> mix)
      : options_(options), mix_(std::move(mix)), out_(options.json ? stderr : stdout) {}

  // The exit status, or an error.
  Result<int> Run();

 private:
  Result<bool> StartPods(const std::vector<std::string>& burn_flags, bool disabled);
  void StopPods();
  void NotePids();
  // Lets the pods run for the window, and prints how it goes. False: interrupted.
  bool Watch(Instant from, Instant to);
  Result<bool> MeasureSimulated(Instant from, Instant to);
  Result<bool> MeasureReal();
  Result<uint64_t> MeasureContrast();
  // Whether the shares are as close to their targets as --tolerance says; what other work on this
  // machine took is allowed for, and said.
  bool SharesHeld() const;
  void PrintTable() const;
  void PrintJson() const;
  std::string BurnProgram() const { return cluster_->Program("baton-burn"); }
  size_t gpus() const { return cluster_->devices().size(); }

  const Options& options_;
  const std::vector<PodShare> mix_;
  FILE* const out_;  // for people
  std::unique_ptr<Cluster> cluster_;
  std::vector<Running> pods_;
  PodPids pids_;
  Figures figures_;
};

Result<bool> Demo::StartPods(const std::vector<std::string>& burn_flags, bool disabled) {
  pods_.clear();
  pids_ = {};
  for (const Device& device : cluster_->devices()) {
    for (const PodShare& share : mix_) {
      PodOptions pod;
      pod.name = share.name;
      if (gpus() > 1) {
        pod.name += "-" + std::to_string(device.node) + "." + std::to_string(device.gpu);
      }
      pod.request = policy::PercentText(share.request);
      pod.limit = policy::PercentText(share.limit);
      pod.node = device.node;
      pod.gpu = device.gpu;
      pod.command = {BurnProgram(), "--die-with-parent",
                     "--kernel",    options_.kernel,
                     "--spread",    std::to_string(options_.spread),
                     "--seed",      std::to_string(pods_.size() + 1)};
      pod.command.insert(pod.command.end(), burn_flags.begin(), burn_flags.end());
      if (disabled) pod.environment = {{"BATON_DISABLE", "1"}};
      auto started = cluster_->Run(pod);
      if (!started) return tl::unexpected(started.error());
      pods_.push_back({share, &device, static_cast<int64_t>(pods_.size()), std::move(*started)});
    }
  }
  if (options_.real) return true;
  for (const Running& running : pods_) {
    auto ran = cluster_->WaitForKernels(*running.device, running.pod, 0, kStartTimeout);
    if (!ran) return ran;
  }
  NotePids();
  return true;
}

void Demo::StopPods() {
  NotePids();
  for (Running& running : pods_) running.pod.run().Signal(SIGTERM);
  for (Running& running : pods_) {
    if (!running.pod.Wait(std::chrono::seconds(5))) running.pod.Stop();
  }
}

void Demo::NotePids() {
  for (const Running& running : pods_) pids_.Note(running.group, running.pod);
}

bool Demo::Watch(Instant from, Instant to) {
  std::map<const Device*, uint64_t> seen;
  for (Instant at = from; at < to;) {
    const Instant next = std::min(at + Duration(std::chrono::seconds(1)), to);
    if (!SleepUntil(next)) return false;
    std::string line = fmt::format("{:5.0f} s  ", std::ceil(Nanos(next - from) / 1e9));
    for (const Device& device : cluster_->devices()) {
      auto records = sim::ReadRecords(device.path, seen[&device]);
      if (!records) continue;
      // The next second's records overlap this one's end: start from this second's first kernel.
      auto first = std::find_if(records->begin(), records->end(),
                                [&](const auto& record) { return record.end_ns > Nanos(at); });
      if (first != records->end()) seen[&device] = first->index;
      const auto busy = sim::BusyByGroup(*records, pids_, Nanos(at), Nanos(next));
      for (const Running& running : pods_) {
        if (running.device != &device) continue;
        const auto found = busy.find(running.group);
        const double ns = found == busy.end() ? 0 : static_cast<double>(found->second);
        line += fmt::format(" {} {:4.1f}", running.pod.name(), 100 * ns / Nanos(next - at));
      }
    }
    fmt::print(out_, "{}\n", line);
    fflush(out_);
    at = next;
  }
  return true;
}

Result<bool> Demo::MeasureSimulated(Instant from, Instant to) {
  const auto window = static_cast<double>(Nanos(to - from));
  for (const Device& device : cluster_->devices()) {
    auto records = sim::ReadRecords(device.path);
    if (!records) return tl::unexpected(records.error());
    if (!records->empty() && records->front().index > 0 && records->front().end_ns > Nanos(from)) {
      return Fail(ErrorCode::kExhausted,
                  "the device's record no longer reaches back to the start of the window; use a "
                  "shorter --seconds or a longer --kernel");
    }
    figures_.overlaps += sim::CountOverlaps(*records, pids_);
    figures_.gpu_busy =
        std::min(figures_.gpu_busy, 100 * sim::BusyFraction(*records, Nanos(from), Nanos(to)));
    const auto busy = sim::BusyByGroup(*records, pids_, Nanos(from), Nanos(to));
    for (Running& running : pods_) {
      if (running.device != &device) continue;
      const auto found = busy.find(running.group);
      if (found != busy.end()) running.achieved = 100 * static_cast<double>(found->second) / window;
    }
  }
  return true;
}

Result<bool> Demo::MeasureReal() {
  double busy = 0;
  for (Running& running : pods_) {
    const auto status = running.pod.Wait(kRealStart + Seconds(options_.seconds + 30));
    const json report = running.pod.Report();
    if (status != 0 || !report.is_object()) {
      return Fail(ErrorCode::kInternal,
                  "pod " + running.pod.name() +
                      " failed: " + (report.is_object() ? report.dump() : running.pod.Stderr()));
    }
    running.achieved = report.at("share");
  }
  for (const Device& device : cluster_->devices()) {
    double sum = 0;
    for (const Running& running : pods_) {
      if (running.device == &device) sum += running.achieved;
    }
    busy = busy == 0 ? sum : std::min(busy, sum);
  }
  figures_.gpu_busy = busy;
  return true;
}

Result<uint64_t> Demo::MeasureContrast() {
  std::map<const Device*, uint64_t> first;
  for (const Device& device : cluster_->devices()) {
    auto count = sim::CountRecords(device.path);
    if (!count) return tl::unexpected(count.error());
    first[&device] = *count;
  }
  auto started = StartPods({"--seconds", "120"}, true);
  if (!started) return tl::unexpected(started.error());
  SleepUntil(MonotonicNow() + Seconds(options_.contrast_seconds));
  StopPods();
  uint64_t overlaps = 0;
  for (const Device& device : cluster_->devices()) {
    auto records = sim::ReadRecords(device.path, first[&device]);
    if (!records) return tl::unexpected(records.error());
    overlaps += sim::CountOverlaps(*records, pids_);
  }
  return overlaps;
}

Result<int> Demo::Run() {
  ClusterOptions shape;
  shape.transport = options_.transport;
  shape.nodes = options_.nodes;
  shape.gpus = options_.gpus;
  shape.real = options_.real;
  shape.keep = options_.keep;
  shape.programs = options_.programs;
  if (options_.http) {
    shape.http = *options_.http;
  } else if (LoopbackPortIsFree(kHttpPort)) {
    shape.http = fmt::format("127.0.0.1:{}", kHttpPort);
  }
  if (options_.shell) {
    // A daemon that has the pods' books itself, and a second GPU for what is tried.
    shape.transport = Transport::kUnix;
    shape.gpus = std::max(shape.gpus, 2);
    shape.tables = "\n[ledger]\nevery = \"1s\"\n";  // a report of what was tried just now
    auto cluster = Cluster::Start(shape);
    if (!cluster) return tl::unexpected(cluster.error());
    return RunSandbox(**cluster, shape.http);
  }
  fmt::print(
      out_, "{} pods on each of {} {} GPU{}, {}\n", mix_.size(), options_.nodes * options_.gpus,
      options_.real ? "real" : "simulated", options_.nodes * options_.gpus > 1 ? "s" : "",
      options_.transport == Transport::kCentral ? "tokens granted by a central batond over ZeroMQ"
                                                : "tokens granted by the node's own batond");
  auto cluster = Cluster::Start(shape);
  if (!cluster) return tl::unexpected(cluster.error());
  cluster_ = std::move(*cluster);

  if (options_.real) {
    if (!shape.http.empty()) fmt::print(out_, "watch it on http://{}/\n", shape.http);
    fflush(out_);
    const Instant start = MonotonicNow() + kRealStart + Seconds(options_.warmup);
    auto started = StartPods(
        {"--seconds", std::to_string(options_.seconds), "--start-at", std::to_string(Nanos(start))},
        false);
    if (!started) return tl::unexpected(started.error());
    if (!SleepUntil(start + Seconds(options_.seconds))) return 130;
    if (auto measured = MeasureReal(); !measured) return tl::unexpected(measured.error());
  } else {
    const double longest = options_.warmup + options_.seconds + 60;
    auto started = StartPods({"--seconds", std::to_string(longest)}, false);
    if (!started) return tl::unexpected(started.error());
    const Instant from = MonotonicNow() + Seconds(options_.warmup);
    const Instant to = from + Seconds(options_.seconds);
    fmt::print(out_, "all pods run; warming up for {} s, then measuring for {} s\n",
               options_.warmup, options_.seconds);
    if (!shape.http.empty()) fmt::print(out_, "watch it on http://{}/\n", shape.http);
    fflush(out_);
    if (!SleepUntil(from)) return 130;
    const DeniedTime denied;
    if (!Watch(from, to)) return 130;
    figures_.denied = denied.Percent();
    StopPods();
    if (auto measured = MeasureSimulated(from, to); !measured) {
      return tl::unexpected(measured.error());
    }
  }
  for (const Running& running : pods_) {
    figures_.max_error =
        std::max(figures_.max_error, std::abs(running.achieved - running.share.target));
  }
  // The table is of this run; the pods of the contrast replace it.
  std::vector<Running> measured;
  std::swap(measured, pods_);
  if (options_.contrast && !options_.real) {
    fmt::print(out_, "the same pods with BATON_DISABLE=1, for {} s\n", options_.contrast_seconds);
    fflush(out_);
    auto overlaps = MeasureContrast();
    if (!overlaps) return tl::unexpected(overlaps.error());
    figures_.overlaps_without = *overlaps;
  }
  pods_ = std::move(measured);
  if (g_interrupted.load()) return 130;

  PrintTable();
  if (options_.json) PrintJson();
  const bool blind = figures_.overlaps_without == 0 && mix_.size() > 1;
  if (blind) fmt::print(stderr, "baton-demo: without Baton the pods should have overlapped\n");
  return figures_.overlaps > 0 || !SharesHeld() || blind ? 1 : 0;
}

bool Demo::SharesHeld() const {
  if (figures_.max_error <= options_.tolerance) return true;
  const double excused = ExcusedPoints(100 - figures_.gpu_busy, figures_.denied);
  fmt::print(stderr,
             "baton-demo: other work on this machine denied the pods {:.1f} points of processor "
             "time; {}\n",
             figures_.denied,
             excused > kDisturbedPoints
                 ? "that is too much to tell what Baton does"
                 : fmt::format("{:.1f} points more than --tolerance are allowed for it", excused));
  return excused <= kDisturbedPoints && figures_.max_error <= options_.tolerance + excused;
}

void Demo::PrintTable() const {
  size_t width = 4;
  for (const Running& running : pods_) width = std::max(width, running.pod.name().size());
  fmt::print(out_, "\n{:{}}  {:>7}  {:>7}  {:>7}  {:>8}  {:>6}\n", "pod", width, "request", "limit",
             "target", "achieved", "error");
  for (const Running& running : pods_) {
    fmt::print(out_, "{:{}}  {:>6}%  {:>6}%  {:>6.2f}%  {:>7.2f}%  {:>+6.2f}\n", running.pod.name(),
               width, policy::PercentText(running.share.request),
               policy::PercentText(running.share.limit), running.share.target, running.achieved,
               running.achieved - running.share.target);
  }
  fmt::print(out_, "\nlargest error    {:.2f} percentage points\nGPU busy         {:.2f}%\n",
             figures_.max_error, figures_.gpu_busy);
  if (options_.real) {
    fmt::print(out_, "shares are the programs' own accounts: a GPU keeps no record\n");
  } else {
    fmt::print(out_, "overlaps         {} kernels of different pods\n", figures_.overlaps);
  }
  if (figures_.overlaps_without) {
    fmt::print(out_, "without Baton    {} overlapping kernels in {} s\n",
               *figures_.overlaps_without, options_.contrast_seconds);
  }
  fflush(out_);
}

void Demo::PrintJson() const {
  const auto round = [](double x) { return std::round(x * 1000) / 1000; };
  json pods = json::array();
  for (const Running& running : pods_) {
    pods.push_back({{"name", running.pod.name()},
                    {"node", running.device->node},
                    {"gpu", running.device->gpu},
                    {"request", policy::Percent(running.share.request)},
                    {"limit", policy::Percent(running.share.limit)},
                    {"achieved", round(running.achieved)},
                    {"target", round(running.share.target)}});
  }
  const json result = {
      {"seconds", options_.seconds},
      {"transport", options_.transport == Transport::kCentral ? "central" : "unix"},
      {"overlaps", options_.real ? json(nullptr) : json(figures_.overlaps)},
      {"gpu_busy", round(figures_.gpu_busy)},
      {"pods", pods},
      {"max_error", round(figures_.max_error)},
      {"denied", options_.real ? json(nullptr) : json(round(figures_.denied))},
      {"overlaps_without_baton",
       figures_.overlaps_without ? json(*figures_.overlaps_without) : json(nullptr)}};
  fmt::print("{}\n", result.dump());
  fflush(stdout);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Pods share GPUs under Baton, and the devices' own records say who got how much.",
               "baton-demo"};
  app.footer(kFooter);
  app.add_option("--seconds", options.seconds, "Length of the measurement [20]")
      ->check(CLI::Range(0.5, 3600.0))
      ->option_text("SECONDS");
  app.add_option("--warmup", options.warmup, "Time before it [2]")
      ->check(CLI::Range(0.0, 600.0))
      ->option_text("SECONDS");
  app.add_option("--transport", options.transport,
                 "central: a batond, and a frontend per node over ZeroMQ; unix: a batond per node "
                 "[central]")
      ->transform(CLI::CheckedTransformer(std::map<std::string, Transport>{
          {"central", Transport::kCentral}, {"unix", Transport::kUnix}}))
      ->option_text("central|unix");
  app.add_option("--nodes", options.nodes, "Nodes, all on this machine [1]")
      ->check(CLI::Range(1, 16))
      ->option_text("N");
  app.add_option("--gpus", options.gpus, "GPUs per node [1]")
      ->check(CLI::Range(1, 16))
      ->option_text("N");
  app.add_option("--pods", options.pods, "What runs on each GPU [a:60:100,b:30:100,c:10:100]")
      ->option_text("NAME:REQUEST:LIMIT,...");
  app.add_option("--kernel", options.kernel, "Mean length of the pods' kernels [1ms]")
      ->option_text("TIME");
  app.add_option("--spread", options.spread, "They differ by ± this part [0.2]")
      ->check(CLI::Range(0.0, 1.0))
      ->option_text("FRACTION");
  app.add_option("--tolerance", options.tolerance,
                 "Percentage points that a share may be off its target [1.0]")
      ->check(CLI::Range(0.0, 100.0))
      ->option_text("POINTS");
  app.add_flag("!--no-contrast", options.contrast, "Leave out the run with BATON_DISABLE=1");
  app.add_flag("--real", options.real, "Use this machine's GPUs instead of simulated ones");
  app.add_flag("--json", options.json, "Print the figures as JSON, on the last line of stdout");
  app.add_flag(
      "--shell", options.shell,
      "Instead of measuring: a shell to try Baton's commands in, beside pods that stay; it "
      "runs what it reads from a standard input that is no terminal");
  app.add_flag("--keep", options.keep, "Keep the temporary folder with all logs");
  app.add_option("--http", options.http,
                 "Where batond serves its page; \"\": nowhere [127.0.0.1:7412 where that is free]")
      ->option_text("ADDRESS");
  app.add_option("--programs", options.programs, "Folder with Baton's programs [this one's]")
      ->option_text("DIR");
  std::vector<PodShare> mix;
  try {
    app.parse(argc, argv);
    auto parsed = ParseMix(options.pods);
    if (!parsed) throw CLI::ValidationError("--pods", parsed.error().message);
    mix = std::move(*parsed);
    if (auto kernel = ParseDuration(options.kernel); !kernel) {
      throw CLI::ValidationError("--kernel", kernel.error().message);
    }
    if (options.real && options.shell) {
      throw CLI::ValidationError("--shell", "it is for simulated GPUs; leave out --real");
    }
    if (options.real && options.nodes > 1) {
      throw CLI::ValidationError("--nodes", "this machine is one node; leave it out with --real");
    }
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "baton-demo: {} (see baton-demo --help)\n", error.what());
    return kExitUsage;
  }

  struct sigaction action = {};
  action.sa_handler = OnSignal;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
  AdoptOrphans();
  Result<int> status = 1;
  {
    Demo demo(options, std::move(mix));
    status = demo.Run();
  }
  KillDescendants();
  if (!status) {
    fmt::print(stderr, "baton-demo: {}\n", status.error().message);
    return 1;
  }
  return *status;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
