// baton simulate: what would these pods get on one GPU? Runs the real token scheduler and hook
// logic on virtual time.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/parse.h"
#include "cli/command.h"
#include "cli/simulate_cluster.h"
#include "cli/timeline.h"
#include "cli/workload.h"
#include "config/options.h"
#include "world/engine.h"
#include "world/fluid.h"
#include "world/rule.h"

namespace baton::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kShareSteps = 120;
constexpr size_t kFileMax = 1 << 20;

struct Flags {
  std::string workload;
  std::string length = "60s";
  double hours = 0;
  bool json = false;
  std::string svg;
  std::string window;
  std::string rule = "earliest-finish";
  uint64_t seed = 1;
};

struct Row {
  std::string pod;
  policy::ShareSpec spec;
  Duration target{0};
  world::PodFigures got;
};

struct Simulation {
  Workload workload;
  world::Verdict verdict;
  std::vector<Row> rows;
  Timeline timeline;
  world::Rule rule{};
};

double Percent(Duration part, Duration whole) {
  return 100 * static_cast<double>(Nanos(part)) / static_cast<double>(Nanos(whole));
}
double PerSecond(uint64_t count, Duration length) {
  return static_cast<double>(count) * 1e9 / static_cast<double>(Nanos(length));
}
double Milliseconds(Duration d) { return static_cast<double>(Nanos(d)) / 1e6; }

// "8h" rather than "2.88e+04s".
std::string FormatLength(Duration length) {
  const double s = static_cast<double>(Nanos(length)) / 1e9;
  return s >= 3600 ? fmt::format("{:.4g}h", s / 3600) : fmt::format("{:.4g}s", s);
}

// "A:B", as in 0s:2s.
Result<std::pair<Duration, Duration>> ParseWindow(const std::string& text, Duration length) {
  const size_t colon = text.find(':');
  if (colon != std::string::npos) {
    const auto from = ParseDuration(text.substr(0, colon));
    const auto to = ParseDuration(text.substr(colon + 1));
    if (from && to && *from < *to && *to <= length) return std::pair(*from, *to);
  }
  return Fail(ErrorCode::kInvalid, "--window: '" + text + "' is no part of the " +
                                       FormatLength(length) +
                                       " simulated; write two times, such as 0s:2s");
}

Result<Simulation> Simulate(const Flags& flags) {
  const auto text = ReadFile(flags.workload, kFileMax);
  if (!text) return tl::unexpected(text.error());
  auto workload = ParseWorkload(*text, flags.workload);
  if (!workload) return tl::unexpected(workload.error());
  const auto length = ParseDuration(flags.length);
  if (!length) return Fail(ErrorCode::kInvalid, "--length: " + length.error().message);

  Simulation result;
  result.workload = std::move(*workload);
  world::Plan& plan = result.workload.plan;
  plan.seed = flags.seed;
  plan.length = flags.hours > 0 ? Duration(static_cast<int64_t>(flags.hours * 3600e9)) : *length;
  plan.calm_from = plan.length;
  if (auto checked = world::CheckPlan(plan); !checked) {
    const std::string& what = checked.error().message;
    return Fail(ErrorCode::kInvalid, plan.length < world::kLengthMin
                                         ? "at least 1s must be simulated"
                                         : flags.workload + ": " + what);
  }
  const auto rule = world::ParseRule(flags.rule);
  if (!rule) return Fail(ErrorCode::kInvalid, "--rule: " + rule.error().message);
  result.rule = *rule;
  result.workload.scheduler.fairness.order = world::OrderOf(*rule);
  world::RunOptions options;
  options.scheduler = result.workload.scheduler;
  options.idle = result.workload.idle;
  options.bounds = false;  // the user's options may well exceed them
  Timeline& timeline = result.timeline;
  timeline.to = std::min<Duration>(seconds(2), plan.length);
  if (!flags.window.empty()) {
    const auto window = ParseWindow(flags.window, plan.length);
    if (!window) return tl::unexpected(window.error());
    std::tie(timeline.from, timeline.to) = *window;
  }
  if (!flags.svg.empty()) {
    timeline.step = std::max<Duration>(plan.length / kShareSteps, milliseconds(100));
    options.series_step = timeline.step;
    options.on_hold = [&timeline](const world::Hold& hold) {
      if (hold.from < timeline.to && hold.to > timeline.from) {
        timeline.holds.push_back({hold.pod - 1, hold.from, hold.to});
      }
    };
  }

  result.verdict = world::Run(plan, options);
  if (!result.verdict.ok) {
    return Fail(ErrorCode::kInternal,
                "internal error, the simulation failed: " + result.verdict.violation);
  }
  const std::vector<Duration> targets = world::FluidService(plan, 0);
  for (size_t i = 0; i < plan.pods.size(); ++i) {
    result.rows.push_back(
        {plan.pods[i].name, plan.pods[i].spec, targets[i], result.verdict.pods[i]});
  }
  return result;
}

const char* Mark(policy::Priority priority) {
  return priority == policy::Priority::kHigh   ? " ^"
         : priority == policy::Priority::kIdle ? " ~"
                                               : "";
}

struct PriorityRow {
  policy::Priority priority;
  size_t pods = 0;
  Duration target{0};
  Duration held{0};
  world::Histogram waits;
};

std::vector<PriorityRow> ByPriority(const Simulation& s) {
  std::vector<PriorityRow> rows;
  for (const auto priority :
       {policy::Priority::kHigh, policy::Priority::kNormal, policy::Priority::kIdle}) {
    PriorityRow row{.priority = priority, .waits = {}};
    for (const Row& pod : s.rows) {
      if (pod.spec.priority != priority) continue;
      ++row.pods;
      row.target += pod.target;
      row.held += pod.got.held;
      row.waits.Add(pod.got.waits);
    }
    if (row.pods != 0) rows.push_back(std::move(row));
  }
  return rows;
}

// The first column stands left, the others right.
void PrintTable(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  for (const auto& line : lines) {
    std::string text = fmt::format("{:<{}}", line[0], widths[0]);
    for (size_t i = 1; i < line.size(); ++i) text += fmt::format("  {:>{}}", line[i], widths[i]);
    std::puts(text.c_str());
  }
}

std::vector<std::string> Waits(const world::Histogram& waits) {
  if (waits.count() == 0) return {"-", "-", "-"};
  return {FormatDuration(waits.Quantile(0.5)), FormatDuration(waits.Quantile(0.99)),
          FormatDuration(waits.max())};
}

void PrintText(const Simulation& s) {
  const Duration length = s.workload.plan.length;
  std::vector<std::vector<std::string>> lines{{"pod", "request", "limit", "target", "achieved",
                                               "busy", "wait p50", "p99", "max", "hand-offs/s"}};
  for (const Row& row : s.rows) {
    const auto waits = Waits(row.got.waits);
    lines.push_back({row.pod + Mark(row.spec.priority),
                     fmt::format("{:.4g}%", policy::Percent(row.spec.request)),
                     fmt::format("{:.4g}%", policy::Percent(row.spec.limit)),
                     fmt::format("{:.2f}%", Percent(row.target, length)),
                     fmt::format("{:.2f}%", Percent(row.got.held, length)),
                     fmt::format("{:.2f}%", Percent(row.got.used, length)), waits[0], waits[1],
                     waits[2], fmt::format("{:.2f}", PerSecond(row.got.grants, length))});
  }
  PrintTable(lines);
  std::puts("");
  lines = {{"priority", "pods", "target", "achieved", "wait p50", "p99", "max"}};
  for (const PriorityRow& row : ByPriority(s)) {
    const auto waits = Waits(row.waits);
    lines.push_back({spec::PriorityWord(row.priority), std::to_string(row.pods),
                     fmt::format("{:.2f}%", Percent(row.target, length)),
                     fmt::format("{:.2f}%", Percent(row.held, length)), waits[0], waits[1],
                     waits[2]});
  }
  PrintTable(lines);
  std::printf("\nGPU busy %.2f%%, %.1f hand-offs/s over %s of virtual time, rule %s\n",
              100 * s.verdict.busy, PerSecond(s.verdict.grants, length),
              FormatLength(length).c_str(), std::string(world::FormatRule(s.rule)).c_str());
}

nlohmann::ordered_json WaitsJson(const world::Histogram& waits) {
  return {{"count", waits.count()},
          {"p50_ms", Milliseconds(waits.Quantile(0.5))},
          {"p99_ms", Milliseconds(waits.Quantile(0.99))},
          {"max_ms", Milliseconds(waits.max())}};
}

void PrintJson(const Simulation& s) {
  const Duration length = s.workload.plan.length;
  nlohmann::ordered_json pods = nlohmann::ordered_json::array();
  for (const Row& row : s.rows) {
    pods.push_back({{"name", row.pod},
                    {"request", policy::Percent(row.spec.request)},
                    {"limit", policy::Percent(row.spec.limit)},
                    {"priority", spec::PriorityName(row.spec.priority)},
                    {"target", Percent(row.target, length)},
                    {"achieved", Percent(row.got.held, length)},
                    {"busy", Percent(row.got.used, length)},
                    {"wait", WaitsJson(row.got.waits)},
                    {"handoffs_per_s", PerSecond(row.got.grants, length)}});
    if (row.spec.latency == Duration(0)) continue;
    const scheduler::LatencyMet& met = row.got.met;
    pods.back()["latency"] = {{"asked_ms", Milliseconds(row.spec.latency)},
                              {"waits", met.waits},
                              {"late", met.late},
                              {"ahead", met.ahead}};
  }
  nlohmann::ordered_json priorities = nlohmann::ordered_json::array();
  for (const PriorityRow& row : ByPriority(s)) {
    priorities.push_back({{"priority", spec::PriorityName(row.priority)},
                          {"pods", row.pods},
                          {"target", Percent(row.target, length)},
                          {"achieved", Percent(row.held, length)},
                          {"wait", WaitsJson(row.waits)}});
  }
  const nlohmann::ordered_json all{{"length_s", static_cast<double>(Nanos(length)) / 1e9},
                                   {"seed", s.workload.plan.seed},
                                   {"rule", world::FormatRule(s.rule)},
                                   {"gpu_busy", 100 * s.verdict.busy},
                                   {"handoffs_per_s", PerSecond(s.verdict.grants, length)},
                                   {"pods", pods},
                                   {"priorities", priorities}};
  std::puts(all.dump(2).c_str());
}

Result<void> WriteSvg(Simulation& s, const Flags& flags) {
  Timeline& timeline = s.timeline;
  timeline.title = flags.workload + ", " + FormatLength(s.workload.plan.length);
  for (const Row& row : s.rows) {
    Timeline::Pod pod{row.pod, fmt::format("{:.4g} %", policy::Percent(row.spec.request)), {}};
    for (const Duration used : row.got.series) {
      pod.shares.push_back(Percent(used, timeline.step) / 100);
    }
    timeline.pods.push_back(std::move(pod));
  }
  std::ofstream file(flags.svg);
  file << DrawTimeline(timeline) << std::flush;
  if (!file) return Fail(ErrorCode::kDenied, flags.svg + " cannot be written");
  return {};
}

int Act(const Flags& flags) {
  if (flags.workload.empty()) {
    return Complain(
        {ErrorCode::kInvalid,
         "WORKLOAD is required: a file of pods and their work; 'baton simulate cluster' "
         "needs none"});
  }
  auto simulation = Simulate(flags);
  if (!simulation) return Complain(simulation.error());
  if (flags.json) {
    PrintJson(*simulation);
  } else {
    PrintText(*simulation);
  }
  if (!flags.svg.empty()) {
    if (auto written = WriteSvg(*simulation, flags); !written) return Complain(written.error());
  }
  return 0;
}

}  // namespace

void AddSimulate(CLI::App& baton, Invocation& invocation) {
  CLI::App* command = baton.add_subcommand(
      "simulate", "Show what pods would get: those of a file on one GPU, or a cluster's");
  auto flags = std::make_shared<Flags>();
  command->add_option("WORKLOAD", flags->workload, "TOML file of pods and their work")
      ->type_name("");
  command->add_option("--length", flags->length, "Virtual time; default: 60s")->type_name("TIME");
  command->add_option("--hours", flags->hours, "Virtual time in hours, 0.0003 to 10000")
      ->check(CLI::Range(0.0003, 10'000.0).description(""))
      ->check(RefuseNan)
      ->type_name("H")
      ->excludes("--length");
  command->add_flag("--json", flags->json, "Print JSON instead of tables");
  command->add_option("--svg", flags->svg, "Also draw who held the token, and shares over time")
      ->type_name("FILE");
  command->add_option("--window", flags->window, "Part of the time to draw; default: 0s:2s")
      ->type_name("A:B")
      ->needs("--svg");
  command
      ->add_option("--rule", flags->rule,
                   "earliest-finish (default); for comparison: largest-lag, start-time, window")
      ->type_name("RULE");
  command->add_option("--seed", flags->seed, "Seed of the small variations; default: 1")
      ->type_name("N");
  command->footer(R"(Examples:
  baton simulate workload.toml                         a minute of it
  baton simulate workload.toml --hours 8               a working day, in a few seconds
  baton simulate workload.toml --svg gpu.svg --window 10s:12s
  baton simulate workload.toml --rule window           by another scheduler's rule
  baton simulate workload.toml --json | jq '.pods[] | {name, achieved}'
  baton simulate cluster --last 7d --add-gpus 2        a cluster's pods, by the books

A workload:
  [[pod]]
  name = "train"             # always has work: no burst
  request = 60               # percent; as for 'baton run': request, limit, priority
  kernel = "2ms"             # mean length of its kernels ...
  long_kernel = "40ms"       # ... and of the long ones,
  long_every = 10            # of which every tenth of a process is one; optional

  [[pod]]
  name = "web"
  count = 3                  # web-1, web-2, web-3
  request = 10
  priority = "high"
  latency = "20ms"           # begins so soon within its request; optional
  kernel = "500us"
  burst = "5ms"              # GPU time of work that comes together ...
  period = "200ms"           # ... every 200ms; or pause: from its end to the next
  jitter = 30                # percent by which kernels and pauses vary
  processes = 2              # each with these bursts
  start = "10s"              # comes late
  stop = "40s"               # and leaves

  [scheduler]                # optional, as in batond's configuration
  quota_max = "20ms"

target is what a perfectly fair GPU without hand-offs would give, achieved the time for which the
pod held the GPU, busy the part of it in which its kernels ran. ^ marks high priority, ~ idle priority.)");
  AddSimulateCluster(*command, invocation);
  command->callback([flags, command, &invocation] {
    if (const auto inner = command->get_subcommands(); !inner.empty()) {
      // That is what was asked for, and its own options are.
      for (const CLI::Option* option : command->get_options()) {
        if (option->count() == 0) continue;
        throw CLI::ValidationError(option->get_name(),
                                   "write it after '" + inner.front()->get_name() + "'");
      }
      return;
    }
    invocation.action = [flags] { return Act(*flags); };
  });
}

}  // namespace baton::cli
