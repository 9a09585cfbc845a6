// bench_shapes: programs of many shapes, each without Baton, alone under it, and beside a second
// one of its kind at half of the GPU. scripts/bench shapes builds and starts it.
#include <fmt/format.h>
#include <signal.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "bench/cluster.h"
#include "bench/denied_time.h"
#include "bench/shapes.h"
#include "bench/turns.h"

namespace baton::bench {
namespace {

using nlohmann::json;

constexpr int kExitUsage = 2;
constexpr int kExitInterrupted = 130;
// A window of the shortest kernels fits into the record: 80 bytes each.
constexpr uint64_t kRecords = 1 << 21;
constexpr Duration kStartTimeout = std::chrono::seconds(30);
// Before each window, in parts of it.
constexpr double kWarmup = 0.25;
// The pair's window is so many times as long as the others': it is of tokens of up to 40 ms, not of
// kernels.
constexpr double kPairLonger = 3;

// What each shape is to reach.
constexpr double kAloneOfBare = 0.98;
constexpr double kAloneOfBareInStep = 0.97;
constexpr double kHeldOfHalf = 0.96;
constexpr double kRateOfBare = 0.46;
constexpr double kBusyOfBare = 0.95;
// Two runs without Baton that differ by more, in parts of their mean, say that the machine changed.
constexpr double kSteady = 0.05;

constexpr char kExamples[] = R"(Examples:
  scripts/bench shapes                        all shapes; about twelve minutes
  scripts/bench shapes --only graphs          those with "graphs" in their names or flags
  scripts/bench shapes --list                 the shapes, and what baton-burn is told
  scripts/bench shapes --seconds 4 --only "8 streams"
                                              longer windows, for exact figures
  scripts/bench shapes --json | tail -1       the figures for a program

Each shape is run four times in a row on one simulated GPU: without Baton, alone under it, beside a
second one of the same shape with 50 % each, and without Baton again. All figures are by the
device's own record, the pair's over whole rounds of turns:
  bare    the GPU's time that the program used without Baton, the mean of both runs, in percent
  alone   what it used alone under Baton, in percent of that; 98 % is the bound, 97 % for programs
          that wait after each launch
  held    from a turn's first kernel to its last one's end: each of the two, in percent of the time;
          the bound is 48 %. For programs with pauses it is 96 % of what each of two has of an
          ideal GPU when their bursts fall together, bare / (1 + bare)
  rate    what each of the two used, in percent of `bare`; the bound is 46 %
  busy    what the two used together, in percent of `bare`; the bound is 95 %
  denied  processor time that other work on this machine took, in percent of the time

A shape that misses a bound is measured again, twice; then the median of each figure counts. What
other work took is never added to a figure: a bound that is missed by less than that is said to be
missed for want of processor time.

Exit status: 0 when all was measured and no kernels of two pods overlapped, 1, 2 for a wrong command
line, 130 interrupted.)";

struct Options {
  double seconds = 0.75;
  int again = 2;
  std::string only;
  std::string programs;
  bool list = false;
  bool json = false;
};

// In percent; see kExamples.
struct Figures {
  double bare_before = 0, bare_after = 0;
  double alone = 0, alone_denied = 0;
  double held_least = 0, held_most = 0;
  double rate_least = 0, rate_most = 0;
  double busy = 0, pair_denied = 0;
  double denied = 0;  // of all four
  double overlaps = 0;

  double bare() const { return (bare_before + bare_after) / 2; }
};
constexpr double Figures::*kFigures[] = {
    &Figures::bare_before, &Figures::bare_after,  &Figures::alone,      &Figures::alone_denied,
    &Figures::held_least,  &Figures::held_most,   &Figures::rate_least, &Figures::rate_most,
    &Figures::busy,        &Figures::pair_denied, &Figures::denied};

enum class Verdict { kMet, kDenied, kMissed };

struct Bound {
  const char* name;
  double value, least;  // percent
  Verdict verdict;
};

std::atomic<bool> g_interrupted{false};

void OnSignal(int) { g_interrupted.store(true); }

Duration Seconds(double s) { return Duration(static_cast<int64_t>(s * 1e9)); }

void SleepUntil(Instant at) {
  while (MonotonicNow() < at && !g_interrupted.load()) {
    const int64_t left = Nanos(at - MonotonicNow());
    const timespec pause{0, std::clamp<int64_t>(left, 1, 50'000'000)};
    nanosleep(&pause, nullptr);
  }
}

std::vector<std::string> Words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// A value of `least` or more is good; `denied` percent of the time were not Baton's to give.
Bound Judge(const char* name, double value, double least, double denied) {
  const Verdict verdict = value >= least            ? Verdict::kMet
                          : value >= least - denied ? Verdict::kDenied
                                                    : Verdict::kMissed;
  return {name, value, least, verdict};
}

std::vector<Bound> BoundsOf(const Shape& shape, const Figures& f) {
  const double alone = shape.pace == Pace::kInStep ? kAloneOfBareInStep : kAloneOfBare;
  const double part = f.bare() / 100;
  const double due = shape.pace == Pace::kPauses ? 100 * part / (1 + part) : 50;
  return {Judge("alone", f.alone, 100 * alone, f.alone_denied),
          Judge("held", f.held_least, kHeldOfHalf * due, f.pair_denied),
          Judge("rate", f.rate_least, 100 * kRateOfBare, f.pair_denied),
          Judge("busy", f.busy, 100 * kBusyOfBare, f.pair_denied)};
}

bool AllMet(const std::vector<Bound>& bounds) {
  return std::all_of(bounds.begin(), bounds.end(),
                     [](const Bound& bound) { return bound.verdict == Verdict::kMet; });
}

Figures Median(const std::vector<Figures>& all) {
  Figures median;
  for (double Figures::*const figure : kFigures) {
    std::vector<double> values;
    for (const Figures& one : all) values.push_back(one.*figure);
    std::sort(values.begin(), values.end());
    median.*figure = values[values.size() / 2];
  }
  for (const Figures& one : all) median.overlaps += one.overlaps;
  return median;
}

// One window of one or two programs.
struct Window {
  Turns turns;
  double denied = 0;
  uint64_t overlaps = 0;

  double Busy() const {
    double sum = 0;
    for (const auto& [group, busy] : turns.busy) sum += busy;
    return sum;
  }
};

class Bench {
 public:
  Bench(const Options& options, Cluster& cluster) : options_(options), cluster_(cluster) {}

  Result<Figures> Measure(const Shape& shape);
  double denied() const { return watched_ > 0 ? denied_ / watched_ : 0; }

 private:
  Result<Window> Run(const Shape& shape, int pods, bool bare);

  const Options& options_;
  Cluster& cluster_;
  double denied_ = 0, watched_ = 0;
};

Result<Window> Bench::Run(const Shape& shape, int count, bool bare) {
  const Device& device = cluster_.device(0, 0);
  const auto first = sim::CountRecords(device.path);
  if (!first) return tl::unexpected(first.error());
  const double seconds = options_.seconds * shape.longer * (count > 1 ? kPairLonger : 1);
  std::vector<Pod> pods;
  PodPids pids;
  for (int i = 0; i < count; ++i) {
    PodOptions pod;
    pod.name = i == 0 ? "a" : "b";
    pod.request = "50";
    pod.command = {cluster_.Program("baton-burn"),
                   "--die-with-parent",
                   "--seconds",
                   std::to_string(2 * seconds + 60),
                   "--seed",
                   std::to_string(i + 1)};
    const std::vector<std::string> flags = Words(shape.flags);
    pod.command.insert(pod.command.end(), flags.begin(), flags.end());
    auto started = bare ? cluster_.RunBare(pod) : cluster_.Run(pod);
    if (!started) return tl::unexpected(started.error());
    pods.push_back(std::move(*started));
  }
  for (const Pod& pod : pods) {
    auto ran = cluster_.WaitForKernels(device, pod, *first, kStartTimeout);
    if (!ran) return tl::unexpected(ran.error());
  }
  const Instant from = MonotonicNow() + Seconds(kWarmup * seconds);
  SleepUntil(from);
  const auto begin = sim::CountRecords(device.path);
  if (!begin) return tl::unexpected(begin.error());
  const DeniedTime denied;
  const Instant to = from + Seconds(seconds);
  SleepUntil(to);
  Window window;
  window.denied = denied.Percent();
  denied_ += window.denied * seconds;
  watched_ += seconds;
  for (int i = 0; i < count; ++i) pids.Note(i, pods[static_cast<size_t>(i)]);
  for (Pod& pod : pods) pod.run().Signal(SIGTERM);
  for (Pod& pod : pods) {
    if (!pod.Wait(std::chrono::seconds(5))) pod.Stop();
  }
  // What ran at the window's end is in the record by now.
  const auto records = sim::ReadRecords(device.path, *begin);
  if (!records) return tl::unexpected(records.error());
  if (!records->empty() && records->front().index > *begin &&
      records->front().end_ns > Nanos(from)) {
    return Fail(ErrorCode::kExhausted,
                fmt::format("{}: the device's record no longer reaches back to the start of the "
                            "window; use a shorter --seconds",
                            shape.name));
  }
  window.turns = TurnsIn(*records, pids, Nanos(from), Nanos(to));
  if (!bare) window.overlaps = sim::CountOverlaps(*records, pids);
  return window;
}

Result<Figures> Bench::Measure(const Shape& shape) {
  Window windows[4];
  for (int i = 0; i < 4; ++i) {
    if (g_interrupted.load()) return Fail(ErrorCode::kUnavailable, "interrupted");
    const bool bare = i == 0 || i == 3;
    auto window = Run(shape, i == 2 ? 2 : 1, bare);
    if (!window) return tl::unexpected(window.error());
    windows[i] = std::move(*window);
  }
  const Window &alone = windows[1], &pair = windows[2];
  Figures f;
  f.bare_before = windows[0].Busy();
  f.bare_after = windows[3].Busy();
  if (f.bare() <= 0) return Fail(ErrorCode::kInternal, std::string(shape.name) + ": no kernels");
  f.alone = 100 * alone.Busy() / f.bare();
  f.alone_denied = alone.denied;
  const auto of = [](const std::map<int64_t, double>& values, int64_t pod) {
    const auto found = values.find(pod);
    return found == values.end() ? 0.0 : found->second;
  };
  std::tie(f.held_least, f.held_most) =
      std::minmax({of(pair.turns.held, 0), of(pair.turns.held, 1)});
  std::tie(f.rate_least, f.rate_most) = std::minmax(
      {100 * of(pair.turns.busy, 0) / f.bare(), 100 * of(pair.turns.busy, 1) / f.bare()});
  f.busy = 100 * pair.Busy() / f.bare();
  f.pair_denied = pair.denied;
  f.overlaps = static_cast<double>(alone.overlaps + pair.overlaps);
  for (const Window& window : windows) f.denied += window.denied / 4;
  return f;
}

json JsonOf(const Shape& shape, const Figures& f, const std::vector<Bound>& bounds, int runs) {
  const auto round = [](double x) { return std::round(x * 100) / 100; };
  json judged = json::object();
  for (const Bound& bound : bounds) {
    judged[bound.name] = {{"least", round(bound.least)},
                          {"met", bound.verdict == Verdict::kMet},
                          {"missed_by_no_more_than_denied", bound.verdict == Verdict::kDenied}};
  }
  return {{"name", shape.name},
          {"flags", shape.flags},
          {"bare", {round(f.bare_before), round(f.bare_after)}},
          {"alone", round(f.alone)},
          {"held", {round(f.held_least), round(f.held_most)}},
          {"rate", {round(f.rate_least), round(f.rate_most)}},
          {"busy", round(f.busy)},
          {"denied", round(f.denied)},
          {"overlaps", f.overlaps},
          {"runs", runs},
          {"bounds", judged}};
}

class Report {
 public:
  explicit Report(FILE* out) : out_(out) {}

  void Begin(size_t shapes) {
    shapes_ = shapes;
    fmt::print(out_, "{:7} {:43} {:>5} {:>6} {:>11} {:>11} {:>6} {:>6}\n", "", "shape", "bare",
               "alone", "held", "rate", "busy", "denied");
    fflush(out_);
  }

  void Row(const Shape& shape, const Figures& f, const std::vector<Bound>& bounds, int runs) {
    std::string missed;
    bool held_all = true;
    for (size_t i = 0; i < bounds.size(); ++i) {
      const Verdict verdict = bounds[i].verdict;
      Count& count = counts_[i];
      count.name = bounds[i].name;
      ++(verdict == Verdict::kMet      ? count.met
         : verdict == Verdict::kDenied ? count.denied
                                       : count.missed);
      held_all = held_all && verdict == Verdict::kMet;
      if (verdict == Verdict::kMet) continue;
      missed += fmt::format("  {}{}", bounds[i].name, verdict == Verdict::kDenied ? "~" : "!");
      missed_.push_back(
          fmt::format("  {}: {} {:.1f} %, the bound is {:.1f} %{}\n", shape.name, bounds[i].name,
                      bounds[i].value, bounds[i].least,
                      verdict == Verdict::kDenied ? "; no more than was denied" : ""));
    }
    all_met_ += held_all;
    again_ += runs > 1;
    overlaps_ += f.overlaps;
    unsteady_ += std::abs(f.bare_before - f.bare_after) > kSteady * f.bare();
    const std::string number = fmt::format("{}/{}", ++row_, shapes_);
    fmt::print(out_,
               "{:>7} {:43} {:5.1f} {:6.1f} {:5.1f} {:5.1f} {:5.1f} {:5.1f} {:6.1f} {:6.1f}{}\n",
               number, shape.name, f.bare(), f.alone, f.held_least, f.held_most, f.rate_least,
               f.rate_most, f.busy, f.denied, missed);
    fflush(out_);
    rows_.push_back(JsonOf(shape, f, bounds, runs));
  }

  void End(double denied) {
    fmt::print(out_, "\n{} of {} shapes meet every bound; {} were measured three times\n", all_met_,
               row_, again_);
    for (const Count& count : counts_) {
      fmt::print(out_, "  {:6} {:3} met, {} missed by no more than was denied (~), {} missed (!)\n",
                 count.name, count.met, count.denied, count.missed);
    }
    for (const std::string& line : missed_) fmt::print(out_, "{}", line);
    fmt::print(out_,
               "overlaps: {} kernels of different pods\nthe two runs without Baton differ by more "
               "than {} % in {} shapes\nother work on this machine denied {:.1f} % of the time\n",
               overlaps_, 100 * kSteady, unsteady_, denied);
    fflush(out_);
  }

  json Json(double seconds, double denied) const {
    json bounds = json::object();
    for (const Count& count : counts_) {
      bounds[count.name] = {{"met", count.met},
                            {"missed_by_no_more_than_denied", count.denied},
                            {"missed", count.missed}};
    }
    return {{"seconds", seconds}, {"shapes", rows_},       {"met_all", all_met_},
            {"bounds", bounds},   {"overlaps", overlaps_}, {"denied", denied}};
  }
  double overlaps() const { return overlaps_; }

 private:
  struct Count {
    const char* name = "";
    int met = 0, denied = 0, missed = 0;
  };
  FILE* const out_;
  size_t shapes_ = 0, row_ = 0;
  Count counts_[4];
  int all_met_ = 0, again_ = 0, unsteady_ = 0;
  double overlaps_ = 0;
  std::vector<std::string> missed_;
  json rows_ = json::array();
};

// The exit status, or an error.
Result<int> MeasureAll(const Options& options, const std::vector<Shape>& shapes) {
  ClusterOptions what;
  what.transport = Transport::kUnix;
  what.records = kRecords;
  what.programs = options.programs;
  auto cluster = Cluster::Start(what);
  if (!cluster) return tl::unexpected(cluster.error());
  Bench bench(options, **cluster);
  Report report(options.json ? stderr : stdout);
  report.Begin(shapes.size());
  for (const Shape& shape : shapes) {
    std::vector<Figures> runs;
    Figures median;
    std::vector<Bound> bounds;
    // One run that misses a bound says little about it.
    for (int i = 0; i <= options.again && (i != 1 || !AllMet(bounds)); ++i) {
      auto figures = bench.Measure(shape);
      if (g_interrupted.load()) return kExitInterrupted;
      if (!figures) return tl::unexpected(figures.error());
      runs.push_back(*figures);
      median = Median(runs);
      bounds = BoundsOf(shape, median);
    }
    report.Row(shape, median, bounds, static_cast<int>(runs.size()));
  }
  report.End(bench.denied());
  if (options.json) {
    fmt::print("{}\n", report.Json(options.seconds, bench.denied()).dump());
    fflush(stdout);
  }
  return report.overlaps() > 0 ? 1 : 0;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Programs of many shapes without Baton, alone under it, and at half of the GPU.",
               "scripts/bench shapes"};
  app.footer(kExamples);
  app.add_option("--only", options.only, "Only shapes with this in their names or flags")
      ->option_text("TEXT");
  app.add_option("--seconds", options.seconds,
                 "Length of a window; the pair's is three times as long [0.75]")
      ->check(CLI::Range(0.1, 60.0))
      ->option_text("SECONDS");
  app.add_option("--again", options.again,
                 "How many more times a shape that misses a bound is measured [2]")
      ->check(CLI::Range(0, 20))
      ->option_text("N");
  app.add_flag("--list", options.list, "Print the shapes, and measure nothing");
  app.add_flag("--json", options.json, "Print the figures as JSON, on the last line of stdout");
  app.add_option("--programs", options.programs, "Folder with Baton's programs [this one's]")
      ->option_text("DIR");
  std::vector<Shape> shapes;
  try {
    app.parse(argc, argv);
    for (const Shape& shape : kShapes) {
      const std::string text = std::string(shape.name) + " " + shape.flags;
      if (text.find(options.only) != std::string::npos) shapes.push_back(shape);
    }
    if (shapes.empty()) {
      throw CLI::ValidationError("--only", "no shape has \"" + options.only + "\"; see --list");
    }
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "bench shapes: {} (see scripts/bench shapes --help)\n", error.what());
    return kExitUsage;
  }
  if (options.list) {
    for (const Shape& shape : shapes) fmt::print("{:43} {}\n", shape.name, shape.flags);
    return 0;
  }
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
  AdoptOrphans();
  const Result<int> status = MeasureAll(options, shapes);
  KillDescendants();
  if (!status) {
    fmt::print(stderr, "bench shapes: {}\n", status.error().message);
    return 1;
  }
  return *status;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
