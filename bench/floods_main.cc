// bench_floods: two pods of 60/40 beside a third that floods the daemon, beside one that only uses
// processor time, and beside one that sleeps, in turns. scripts/bench floods builds and starts it.
#include <fmt/format.h>
#include <signal.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bench/cluster.h"
#include "bench/denied_time.h"
#include "bench/flooder.h"
#include "bench/turns.h"

namespace baton::bench {
namespace {

constexpr int kExitUsage = 2;
constexpr uint64_t kRecords = 1 << 20;
constexpr Duration kWarmup = std::chrono::seconds(1);

// What is to hold: shares in points, hand-offs in parts of those beside who does not flood.
constexpr double kSharesMove = 1;
constexpr double kHandOffsGrow = 0.2;
constexpr const char* kBeside[] = {"none", "spin"};  // and the flood

constexpr char kExamples[] = R"(Examples:
  scripts/bench floods                   all, by unix socket and central: about 15 minutes
  scripts/bench floods --only central    those with "central" in their names
  scripts/bench floods --only attaches --rounds 9

Two pods of 60 and 40 % saturate one simulated GPU. Beside them a third pod without a request
sleeps, then the same number of its processes spin, and then they flood its node's daemon; and
again. Medians of all rounds:
  share    what the pod of 60 % has of what both hold, in percent: beside who sleeps, who
           spins, who floods
  hand-off from one pod's last kernel to the other's first, the median, in us: beside who sleeps, who
           spins, who floods; and the last as a ratio to the larger of the others (processors that
           one process keeps awake wake others sooner, so a spinning one may be better than none)
  denied   processor time that the pods wanted and did not get, in percent: the same three

Exit status: 0 when shares move by less than 1 point and hand-offs grow by less than 20 % in every
row, 1, 2 for a wrong command line.)";

struct Options {
  double seconds = 4;
  int rounds = 3;
  std::string only;
  std::string programs;
  bool list = false;
  // Of the adversary that this program is started as.
  std::string flood;
  int connections = 1;
  std::string gpu;
};

struct Row {
  Transport transport;
  const char* flood;
  int processes;
  int connections;  // of each

  std::string name() const {
    return fmt::format("{}, {} by {} x {}", transport == Transport::kUnix ? "unix" : "central",
                       flood, processes, connections);
  }
};

constexpr struct {
  const char* flood;
  int processes, connections;
} kFloods[] = {{"attaches", 1, 2}, {"attaches", 1, 64}, {"states", 1, 2},   {"states", 1, 64},
               {"connects", 1, 1}, {"attaches", 4, 16}, {"connects", 4, 1}, {"connects", 64, 1}};

std::vector<Row> Rows(const std::string& only) {
  std::vector<Row> rows;
  for (const Transport transport : {Transport::kUnix, Transport::kCentral}) {
    for (const auto& flood : kFloods) {
      const Row row{transport, flood.flood, flood.processes, flood.connections};
      if (row.name().find(only) != std::string::npos) rows.push_back(row);
    }
  }
  return rows;
}

Duration Seconds(double s) { return Duration(static_cast<int64_t>(s * 1e9)); }

void Sleep(Duration span) {
  const Instant until = MonotonicNow() + span;
  for (Instant now = MonotonicNow(); now < until; now = MonotonicNow()) {
    const int64_t left = std::min<int64_t>(Nanos(until - now), 100'000'000);
    const timespec pause{0, left};
    nanosleep(&pause, nullptr);
  }
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Of one window.
struct Figures {
  double share = 0;    // of the first pod in what both hold, percent
  double handoff = 0;  // median, us
  double denied = 0;   // percent
};

Figures Median(const std::vector<Figures>& all) {
  const auto of = [&all](double Figures::*figure) {
    std::vector<double> values;
    values.reserve(all.size());
    for (const Figures& one : all) values.push_back(one.*figure);
    return Median(std::move(values));
  };
  return {of(&Figures::share), of(&Figures::handoff), of(&Figures::denied)};
}

class Bench {
 public:
  Bench(const Options& options, Cluster& cluster, const std::vector<Pod>& pods)
      : options_(options), cluster_(cluster), device_(cluster.device(0, 0)) {
    for (size_t i = 0; i < pods.size(); ++i) pids_.Note(static_cast<int64_t>(i), pods[i]);
  }

  Result<Figures> Window(const Row& row, const char* flood);

 private:
  const Options& options_;
  Cluster& cluster_;
  const Device& device_;
  PodPids pids_;
};

Result<Figures> Bench::Window(const Row& row, const char* flood) {
  PodOptions options;
  options.name = "adversary";
  options.request = "";
  options.run_flags = {"--priority", "idle"};
  const std::string self =
      fmt::format("{} --as {} --connections {} --gpu {}", cluster_.Program("bench_floods"), flood,
                  row.connections, device_.uuid);
  options.command = {"/bin/sh", "-c",
                     fmt::format("for i in $(seq {}); do {} & done; wait", row.processes, self)};
  auto adversary = cluster_.Run(options);
  if (!adversary) return tl::unexpected(adversary.error());
  Sleep(kWarmup);
  const auto first = sim::CountRecords(device_.path);
  if (!first) return tl::unexpected(first.error());
  const DeniedTime denied;
  const Instant from = MonotonicNow();
  Sleep(Seconds(options_.seconds));
  const Instant to = MonotonicNow();
  Figures figures;
  figures.denied = denied.Percent();
  const std::vector<pid_t> pids = adversary->Pids();
  const bool flooded = pids.size() >= static_cast<size_t>(row.processes);
  for (const pid_t pid : pids) kill(pid, SIGKILL);
  adversary->Stop();
  if (!flooded) {
    return Fail(ErrorCode::kInternal, row.name() + ": the adversary ended: " + adversary->Stderr());
  }
  const auto records = sim::ReadRecords(device_.path, *first);
  if (!records) return tl::unexpected(records.error());
  Turns turns = TurnsIn(*records, pids_, Nanos(from), Nanos(to));
  figures.share = 100 * turns.held[0] / (turns.held[0] + turns.held[1]);
  std::vector<double> gaps;
  for (const Duration gap : HandOffGaps(*records))
    gaps.push_back(static_cast<double>(Nanos(gap)) / 1e3);
  figures.handoff = Median(std::move(gaps));
  return figures;
}

// True: every bound holds.
Result<bool> Measure(const Options& options, const Row& row) {
  ClusterOptions what;
  what.transport = row.transport;
  what.records = kRecords;
  what.programs = options.programs;
  auto cluster = Cluster::Start(what);
  if (!cluster) return tl::unexpected(cluster.error());
  std::vector<Pod> pods;
  for (const char* request : {"60", "40"}) {
    PodOptions pod;
    pod.name = std::string("pod-") + request;
    pod.request = request;
    pod.command = {(*cluster)->Program("baton-burn"), "--kernel", "500us", "--seconds", "3600"};
    auto started = (*cluster)->Run(pod);
    if (!started) return tl::unexpected(started.error());
    pods.push_back(std::move(*started));
  }
  for (const Pod& pod : pods) {
    const auto ran = (*cluster)->WaitForKernels((*cluster)->device(0, 0), pod);
    if (!ran) return tl::unexpected(ran.error());
  }
  Bench bench(options, **cluster, pods);
  std::vector<Figures> beside[3];
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < 3; ++i) {
      auto figures = bench.Window(row, i == 2 ? row.flood : kBeside[i]);
      if (!figures) return tl::unexpected(figures.error());
      beside[i].push_back(*figures);
    }
  }
  const Figures none = Median(beside[0]), spin = Median(beside[1]), flood = Median(beside[2]);
  const double grown = flood.handoff / std::max(none.handoff, spin.handoff);
  const bool shares = std::min(std::abs(flood.share - none.share),
                               std::abs(flood.share - spin.share)) < kSharesMove;
  const bool handoffs = grown < 1 + kHandOffsGrow;
  fmt::print(
      "{:28} {:6.2f} {:6.2f} {:6.2f} {:7.0f} {:7.0f} {:7.0f} {:6.2f} {:7.1f} {:6.1f} {:6.1f}{}{}\n",
      row.name(), none.share, spin.share, flood.share, none.handoff, spin.handoff, flood.handoff,
      grown, none.denied, spin.denied, flood.denied, shares ? "" : "  share!",
      handoffs ? "" : "  hand-off!");
  fflush(stdout);
  return shares && handoffs;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Two pods beside a third that floods the daemon.", "scripts/bench floods"};
  app.footer(kExamples);
  app.add_option("--only", options.only, "Only rows with this in their names")->option_text("TEXT");
  app.add_option("--seconds", options.seconds, "Length of a window [4]")
      ->check(CLI::Range(0.5, 60.0))
      ->option_text("SECONDS");
  app.add_option("--rounds", options.rounds, "How often each of the three is measured [3]")
      ->check(CLI::Range(1, 99))
      ->option_text("N");
  app.add_flag("--list", options.list, "Print the rows, and measure nothing");
  app.add_option("--programs", options.programs, "Folder with Baton's programs [this one's]")
      ->option_text("DIR");
  app.add_option("--as", options.flood)->group("");
  app.add_option("--connections", options.connections)->check(CLI::Range(1, 512))->group("");
  app.add_option("--gpu", options.gpu)->group("");
  std::vector<Row> rows;
  try {
    app.parse(argc, argv);
    rows = Rows(options.only);
    if (rows.empty()) {
      throw CLI::ValidationError("--only", "no row has \"" + options.only + "\"; see --list");
    }
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "bench floods: {} (see scripts/bench floods --help)\n", error.what());
    return kExitUsage;
  }
  if (options.list) {
    for (const Row& row : rows) fmt::print("{}\n", row.name());
    return 0;
  }
  Result<void> ran;
  bool all = true;
  if (!options.flood.empty()) {
    const auto flood = ParseFlood(options.flood);
    ran =
        flood ? RunFlood(*flood, options.connections, options.gpu) : tl::unexpected(flood.error());
  } else {
    fmt::print("{:28} {:>20} {:>30} {:>21}\n", "", "share", "hand-off", "denied");
    fmt::print("{:28} {:>6} {:>6} {:>6} {:>7} {:>7} {:>7} {:>6} {:>7} {:>6} {:>6}\n",
               "flood by processes x sockets", "none", "spin", "flood", "none", "spin", "flood",
               "ratio", "none", "spin", "flood");
    fflush(stdout);
    AdoptOrphans();
    for (size_t i = 0; i < rows.size() && ran; ++i) {
      const auto met = Measure(options, rows[i]);
      if (!met) {
        ran = tl::unexpected(met.error());
      } else {
        all = all && *met;
      }
    }
    KillDescendants();
  }
  if (!ran) {
    fmt::print(stderr, "bench floods: {}\n", ran.error().message);
    return 1;
  }
  return all ? 0 : 1;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
