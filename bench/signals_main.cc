// bench_signals: what random signals to daemons and pods change in the accounts of the other pods.
// scripts/bench signals builds and starts it.
#include <fmt/format.h>
#include <signal.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "bench/cluster.h"
#include "bench/denied_time.h"
#include "sim/record.h"

namespace baton::bench {
namespace {

using std::chrono::milliseconds;

constexpr int kExitUsage = 2;
constexpr uint64_t kRecords = 1 << 21;
constexpr double kWithin = 0.02;

// Of the pods; signals go to those from the third on.
constexpr const char* kShares[] = {"40", "20", "10", "10"};

constexpr char kExamples[] = R"(Examples:
  scripts/bench signals                    300 signals, by unix socket and central: 13 minutes
  scripts/bench signals --signals 50 --seed 7

Four pods with limits of 40, 20, 10 and 10 % always have work on one simulated GPU. In one half of the
time nobody is disturbed. In the other half every 0.2 to 1 s a signal goes to one of: a process of
the third or fourth pod, batond, and baton-frontend where there is one. It is SIGKILL (and what ended
is started again) or SIGSTOP, for 1 to 50 ms. The halves alternate in ten parts each. Printed is what
the first two pods, which nobody signals, were charged in each half, in percent of the time.

Exit status: 0 when both are within 2 % of each other and no kernels of two pods overlapped, 1, 2
for a wrong command line.)";

struct Options {
  int signals = 300;
  uint32_t seed = 0;  // 0: a fresh one
  std::string only;
  std::string programs;
};

void Sleep(Duration span) {
  const timespec pause{Nanos(span) / 1'000'000'000, Nanos(span) % 1'000'000'000};
  nanosleep(&pause, nullptr);
}

struct Half {
  double seconds = 0;
  std::map<std::string, double> held;  // by pod, seconds
};

class Bench {
 public:
  Bench(Cluster& cluster, Transport transport, uint32_t seed)
      : cluster_(cluster), central_(transport == Transport::kCentral), random_(seed) {}

  Result<bool> Start();
  // The first two pods' accounts grow by what passes.
  Result<bool> Pass(Half& half, Duration span, int signals);
  uint64_t Overlaps();

 private:
  Result<bool> StartPod(size_t index);
  Result<std::map<std::string, double>> Held();
  Result<bool> Disturb();
  Result<bool> DisturbDaemon(bool frontend, bool kills, Duration stopped);

  Cluster& cluster_;
  const bool central_;
  std::mt19937 random_;
  std::unique_ptr<Pod> pods_[std::size(kShares)];
  PodPids pids_;
  int64_t groups_ = 0;
  int started_ = 0;
};

Result<bool> Bench::StartPod(size_t index) {
  PodOptions options;
  options.name = fmt::format("pod-{}-{}", index, started_++);
  options.request = options.limit = kShares[index];
  options.command = {cluster_.Program("baton-burn"), "--kernel", "500us", "--seconds", "3600"};
  auto pod = cluster_.Run(options);
  if (!pod) return tl::unexpected(pod.error());
  pods_[index] = std::make_unique<Pod>(std::move(*pod));
  return true;
}

Result<bool> Bench::Start() {
  for (size_t i = 0; i < std::size(kShares); ++i) {
    if (auto started = StartPod(i); !started) return started;
  }
  for (const auto& pod : pods_) {
    auto ran = cluster_.WaitForKernels(cluster_.device(0, 0), *pod);
    if (!ran) return ran;
  }
  return true;
}

Result<std::map<std::string, double>> Bench::Held() {
  auto status = cluster_.Status();
  for (int i = 0; !status && i < 100; ++i) {  // it may just have been started
    Sleep(milliseconds(20));
    status = cluster_.Status();
  }
  if (!status) return tl::unexpected(status.error());
  std::map<std::string, double> held;
  for (const auto& pod : status->at("pods")) {
    for (size_t i = 0; i < 2; ++i) {
      if (pod.at("name") == pods_[i]->name()) {
        held[kShares[i]] = pod.at("held_ns").get<double>() / 1e9;
      }
    }
  }
  return held;
}

Result<bool> Bench::DisturbDaemon(bool frontend, bool kills, Duration stopped) {
  Process& daemon = frontend ? cluster_.frontend(0) : cluster_.batond();
  if (!kills) {
    daemon.Signal(SIGSTOP);
    Sleep(stopped);
    daemon.Signal(SIGCONT);
    return true;
  }
  daemon.Signal(SIGKILL);
  daemon.Wait(std::chrono::seconds(5));
  return frontend ? cluster_.StartFrontend(0) : cluster_.StartBatond();
}

Result<bool> Bench::Disturb() {
  const bool kills = random_() % 2 == 0;
  const Duration stopped = milliseconds(1 + random_() % 50);
  const uint32_t who = random_() % (central_ ? 4 : 3);
  if (who >= 2) return DisturbDaemon(who == 3, kills, stopped);
  const size_t victim = 2 + who;
  const std::vector<pid_t> pids = pods_[victim]->Pids();
  for (const pid_t pid : pids) kill(pid, kills ? SIGKILL : SIGSTOP);
  if (kills) {
    pids_.Note(groups_++, *pods_[victim]);
    if (!pods_[victim]->Wait(std::chrono::seconds(10))) pods_[victim]->Stop();
    return StartPod(victim);
  }
  Sleep(stopped);
  for (const pid_t pid : pids) kill(pid, SIGCONT);
  return true;
}

Result<bool> Bench::Pass(Half& half, Duration span, int signals) {
  const auto before = Held();
  if (!before) return tl::unexpected(before.error());
  const Instant from = MonotonicNow();
  for (int i = 0; i < signals; ++i) {
    Sleep(milliseconds(200 + random_() % 800));
    if (auto done = Disturb(); !done) return done;
  }
  while (MonotonicNow() < from + span) Sleep(milliseconds(10));
  const auto after = Held();
  if (!after) return tl::unexpected(after.error());
  half.seconds += static_cast<double>(Nanos(MonotonicNow() - from)) / 1e9;
  for (const auto& [share, held] : *after) half.held[share] += held - before->at(share);
  return true;
}

uint64_t Bench::Overlaps() {
  for (const auto& pod : pods_) pids_.Note(groups_++, *pod);
  const auto records = sim::ReadRecords(cluster_.device(0, 0).path);
  return records ? sim::CountOverlaps(*records, pids_) : 0;
}

Result<bool> Measure(const Options& options, Transport transport) {
  constexpr int kParts = 10;
  ClusterOptions what;
  what.transport = transport;
  what.records = kRecords;
  what.programs = options.programs;
  auto cluster = Cluster::Start(what);
  if (!cluster) return tl::unexpected(cluster.error());
  const uint32_t seed = options.seed != 0 ? options.seed : std::random_device{}();
  Bench bench(**cluster, transport, seed);
  if (auto started = bench.Start(); !started) return started;
  Sleep(std::chrono::seconds(1));
  Half calm, disturbed;
  const DeniedTime denied;
  for (int part = 0; part < kParts; ++part) {
    const int signals = (options.signals + part) / kParts;
    const double before = disturbed.seconds;
    if (auto passed = bench.Pass(disturbed, Duration(0), signals); !passed) return passed;
    const auto span = Duration(static_cast<int64_t>((disturbed.seconds - before) * 1e9));
    if (auto passed = bench.Pass(calm, span, 0); !passed) return passed;
  }
  const uint64_t overlaps = bench.Overlaps();
  bool met = overlaps == 0;
  for (size_t i = 0; i < 2; ++i) {
    const double without = 100 * calm.held[kShares[i]] / calm.seconds;
    const double with = 100 * disturbed.held[kShares[i]] / disturbed.seconds;
    const double off = with / without - 1;
    const bool within = std::abs(off) <= kWithin;
    met = met && within;
    fmt::print("{:8} {:>6} {:9.2f} {:9.2f} {:+8.2f} %{}\n",
               transport == Transport::kUnix ? "unix" : "central", kShares[i], without, with,
               100 * off, within ? "" : "  !");
  }
  fmt::print("{:8} {} signals in {:.0f} s, seed {}; {} overlaps; {:.1f} % denied\n", "",
             options.signals, disturbed.seconds, seed, overlaps, denied.Percent());
  fflush(stdout);
  return met;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Accounts of pods beside daemons and pods that get random signals.",
               "scripts/bench signals"};
  app.footer(kExamples);
  app.add_option("--signals", options.signals, "How many signals, for each transport [300]")
      ->check(CLI::Range(1, 100'000))
      ->option_text("N");
  app.add_option("--seed", options.seed, "Of whom they go to; printed [a fresh one]")
      ->option_text("N");
  app.add_option("--only", options.only, "unix or central")
      ->check(CLI::IsMember({"unix", "central"}))
      ->option_text("TRANSPORT");
  app.add_option("--programs", options.programs, "Folder with Baton's programs [this one's]")
      ->option_text("DIR");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "bench signals: {} (see scripts/bench signals --help)\n", error.what());
    return kExitUsage;
  }
  fmt::print("{:8} {:>6} {:>9} {:>9} {:>8}\n", "", "share", "without", "with", "off");
  AdoptOrphans();
  bool all = true;
  for (const Transport transport : {Transport::kUnix, Transport::kCentral}) {
    if (!options.only.empty() && (options.only == "unix") != (transport == Transport::kUnix)) {
      continue;
    }
    const auto met = Measure(options, transport);
    if (!met) {
      fmt::print(stderr, "bench signals: {}\n", met.error().message);
      KillDescendants();
      return 1;
    }
    all = all && *met;
  }
  KillDescendants();
  return all ? 0 : 1;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
