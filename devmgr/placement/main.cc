// baton-place: what a placement policy makes of a cluster's trace.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/help_command.h"
#include "base/random.h"
#include "base/standard_files.h"
#include "base/time.h"
#include "devmgr/modes/time_slice.h"
#include "devmgr/placement/churn.h"
#include "devmgr/placement/cluster.h"
#include "devmgr/placement/replay.h"

namespace baton::devmgr {
namespace {

constexpr size_t kTraceMax = 1u << 30;  // bytes

struct Flags {
  std::string nodes;
  std::string pods;
  std::string policy = "default";
  std::string cards;
  uint64_t seed = 0;
  double demand = 1.3;
  bool whole = false;
  bool learn = false;
  bool json = false;
  uint64_t seeds = 10;
  std::string mix_from;
  uint32_t islands = 0;
  bool memory_scarce = false;
  double load = 1;
  std::string lifetimes = "exponential";
  double warm_up = 1;
  double measured = 2;
  uint32_t distance = PlacementPolicy().use_distance;  // thousandths
};

int Complain(const std::string& what) {
  std::fprintf(stderr, "baton-place: %s\n", what.c_str());
  return 2;
}

Result<PlacementPolicy> PolicyOf(const Flags& flags) {
  PlacementPolicy policy;
  policy.seed = flags.seed;
  policy.use_distance = flags.distance;
  if (flags.policy != "default") {
    const auto rule = ParseRule(flags.policy);
    if (!rule) {
      return Fail(ErrorCode::kInvalid, "--policy: " + rule.error().message + ", default");
    }
    policy.nodes = policy.cards = *rule;
    // Which GPU is a matter of its own; the first that comes is no rule that anybody would want.
    if (*rule == Rule::kFirstFit) policy.cards = Rule::kBinpack;
  }
  if (!flags.cards.empty()) {
    const auto cards = ParseRule(flags.cards);
    if (!cards) return Fail(ErrorCode::kInvalid, "--cards: " + cards.error().message);
    policy.cards = *cards;
  }
  return policy;
}

double Percent(policy::ShareSum part, policy::ShareSum whole) {
  return whole == policy::Share(0) ? 0 : policy::Percent(part) / policy::Ratio(whole);
}

struct Trace {
  std::vector<Node> nodes;
  std::vector<PodRequest> pods;
  std::vector<PodRequest> mix;  // what is usual, as far as it is known beforehand
  std::vector<double> lifetimes;
};

Result<std::vector<PodRequest>> ReadPods(const std::string& path, std::string* text) {
  auto read = ReadFile(path, kTraceMax);
  if (!read) return tl::unexpected(read.error());
  auto pods = ReadTracePods(*read);
  if (!pods) return Fail(pods.error().code, path + ": " + pods.error().message);
  *text = std::move(*read);
  return pods;
}

// Nodes of at least two GPUs for each island have so many.
void Divide(std::vector<Node>& nodes, uint32_t islands) {
  if (islands == 0) return;
  for (Node& node : nodes) {
    const size_t parts = node.cards.size() >= 2 * size_t{islands} ? islands : 1;
    for (size_t c = 0; c < node.cards.size(); ++c) {
      node.cards[c].island = static_cast<int32_t>(c * parts / node.cards.size());
    }
  }
}

// Memory is as often scarce as time: pods ask for half, once, one and a half times or three times
// as large a part of it.
void MakeMemoryScarce(std::vector<PodRequest>& pods) {
  constexpr uint32_t kHalves[] = {1, 2, 3, 6};
  for (size_t i = 0; i < pods.size(); ++i) {
    Random random(i);
    const uint32_t halves = kHalves[random.Between(0, 3)];
    for (ContainerRequest& container : pods[i].containers) {
      for (VgpuRequest& vgpu : container.vgpus) {
        vgpu.memory_part = std::min(policy::kWhole, vgpu.share * halves / 2);
      }
    }
  }
}

Result<Trace> ReadTrace(const Flags& flags) {
  Trace trace;
  const auto node_text = ReadFile(flags.nodes, kTraceMax);
  if (!node_text) return tl::unexpected(node_text.error());
  auto nodes = ReadTraceNodes(*node_text);
  if (!nodes) return Fail(nodes.error().code, flags.nodes + ": " + nodes.error().message);
  std::string text;
  auto pods = ReadPods(flags.pods, &text);
  if (!pods) return tl::unexpected(pods.error());
  trace.nodes = std::move(*nodes);
  trace.pods = std::move(*pods);
  Divide(trace.nodes, flags.islands);
  if (flags.memory_scarce) MakeMemoryScarce(trace.pods);
  if (flags.lifetimes == "trace") {
    auto lifetimes = ReadTraceLifetimes(text);
    if (!lifetimes) {
      return Fail(lifetimes.error().code, flags.pods + ": " + lifetimes.error().message);
    }
    trace.lifetimes = std::move(*lifetimes);
  }
  if (!flags.mix_from.empty()) {
    auto mix = ReadPods(flags.mix_from, &text);
    if (!mix) return tl::unexpected(mix.error());
    trace.mix = std::move(*mix);
    if (flags.memory_scarce) MakeMemoryScarce(trace.mix);
  } else if (!flags.learn) {
    trace.mix = trace.pods;
  }
  const auto no_gpus = [](const Node& node) { return node.cards.empty(); };
  if (std::all_of(trace.nodes.begin(), trace.nodes.end(), no_gpus)) {
    return Fail(ErrorCode::kInvalid, flags.nodes + ": there are no GPUs");
  }
  return trace;
}

struct Outcome {
  policy::ShareSum capacity;
  double at_100 = 0;  // percent of that
  double at_130 = 0;
  double fragmentation = 0;
  uint64_t placed_100 = 0;
  uint64_t on_gpus_100 = 0;  // of these, the pods that have GPUs
  uint64_t placed = 0;
  uint64_t failed = 0;
  double p99_us = 0;
  // At 100 %, in percent of all GPUs.
  double wanted = 0;
  double executed = 0;
};

Result<void> Fill(Cluster& cluster, const Trace& trace, const Flags& flags) {
  for (const Node& node : trace.nodes) {
    if (const auto set = cluster.SetNode(node); !set) {
      return Fail(set.error().code, flags.nodes + ": " + set.error().message);
    }
  }
  return {};
}

Result<Outcome> Measure(const Trace& trace, const PlacementPolicy& policy, const Flags& flags,
                        UseKnown known = UseKnown::kAll) {
  const TimeSlice time_slice;
  const SharingMode* const modes[] = {&time_slice};
  Cluster cluster(modes, policy);
  if (const auto filled = Fill(cluster, trace, flags); !filled) {
    return tl::unexpected(filled.error());
  }
  Outcome o;
  o.capacity = CapacityOf(cluster);
  const std::vector<PodRequest> arrivals =
      Arrivals(trace.pods, o.capacity, flags.demand, policy.seed);
  Replay replay(cluster, {.whole = flags.whole, .learn = flags.learn, .known = known});
  replay.Know(trace.mix);
  std::vector<double> decisions_us;
  decisions_us.reserve(arrivals.size());
  uint64_t on_gpus = 0;
  for (const PodRequest& pod : arrivals) {
    const Instant start = MonotonicNow();
    const bool placed = replay.Arrive(pod);
    if (placed && DemandOf(pod) > policy::Share(0)) ++on_gpus;
    decisions_us.push_back(static_cast<double>(Nanos(MonotonicNow() - start)) / 1e3);
    if (replay.arrived() <= o.capacity) {
      o.at_100 = Percent(replay.allocated(), o.capacity);
      o.placed_100 = replay.placed();
      o.on_gpus_100 = on_gpus;
      o.wanted = Percent(replay.contention().wanted(), o.capacity);
      o.executed = Percent(replay.contention().executed(), o.capacity);
    }
    if (flags.json || !isatty(STDERR_FILENO) || decisions_us.size() % 512 != 0) continue;
    std::fprintf(stderr, "\r%zu of %zu pods, %.2f %% allocated \r", decisions_us.size(),
                 arrivals.size(), Percent(replay.allocated(), o.capacity));
  }
  if (!decisions_us.empty()) {
    const auto at = static_cast<std::ptrdiff_t>(decisions_us.size() * 99 / 100);
    std::nth_element(decisions_us.begin(), decisions_us.begin() + at, decisions_us.end());
    o.p99_us = decisions_us[static_cast<size_t>(at)];
  }
  o.at_130 = Percent(replay.allocated(), o.capacity);
  o.fragmentation = cluster.Fragmentation() * 100;
  o.placed = replay.placed();
  o.failed = replay.failed();
  return o;
}

using Count = unsigned long long;

int Run(const Flags& flags) {
  const auto policy = PolicyOf(flags);
  if (!policy) return Complain(policy.error().message);
  const auto trace = ReadTrace(flags);
  if (!trace) return Complain(trace.error().message);
  const auto o = Measure(*trace, *policy, flags);
  if (!o) return Complain(o.error().message);
  if (flags.json) {
    const nlohmann::ordered_json result = {{"policy", flags.policy},
                                           {"seed", flags.seed},
                                           {"allocation_at_100", o->at_100},
                                           {"allocation_at_130", o->at_130},
                                           {"fragmentation", o->fragmentation},
                                           {"pods_on_gpus_at_100", o->on_gpus_100},
                                           {"placed", o->placed},
                                           {"failed", o->failed},
                                           {"decision_p99_us", o->p99_us}};
    std::printf("%s\n", result.dump().c_str());
    return 0;
  }
  std::printf("policy               %s, seed %llu%s\n", flags.policy.c_str(), Count{flags.seed},
              flags.whole ? ", whole GPUs only" : "");
  std::printf("cluster              %zu nodes, %llu GPUs\n", trace->nodes.size(),
              Count{o->capacity / policy::kWhole});
  std::printf("allocation at 100 %%  %.2f %%, %llu pods placed\n", o->at_100, Count{o->placed_100});
  std::printf("allocation at %.0f %%  %.2f %%, %llu pods placed, %llu dropped\n",
              flags.demand * 100, o->at_130, Count{o->placed}, Count{o->failed});
  std::printf("pods per GPU         %.2f at 100 %%, of those that ask for some\n",
              static_cast<double>(o->on_gpus_100) / policy::Ratio(o->capacity));
  std::printf("fragmentation        %.2f %% of all GPUs: free, and of no use to the usual pod\n",
              o->fragmentation);
  std::printf("a decision, p99      %.0f us\n", o->p99_us);
  return 0;
}

// A table of all policies, each the mean of the seeds.
int Compare(const Flags& flags) {
  if (const auto policy = PolicyOf(flags); !policy) return Complain(policy.error().message);
  const auto trace = ReadTrace(flags);
  if (!trace) return Complain(trace.error().message);
  struct Row {
    Rule rule;
    const char* how;
    bool learn;
    bool whole;
  };
  const Rule standard = PlacementPolicy().nodes;
  const Row rows[] = {
      {Rule::kScarcity, "", false, false},
      {Rule::kScarcity, ", mix learned on the way", true, false},
      {Rule::kFragmentation, "", false, false},
      {Rule::kFragmentation, ", mix learned on the way", true, false},
      {Rule::kRemainder, "", false, false},
      {Rule::kRemainder, ", mix learned on the way", true, false},
      {Rule::kBinpack, "", false, false},
      {Rule::kFirstFit, "", false, false},
      {Rule::kRandom, "", false, false},
      {Rule::kSpread, "", false, false},
      {standard, ", whole GPUs only", false, true},
  };
  std::printf(
      "| policy | at 100 %% | least to most | at %.0f %% | fragmentation | pods placed at "
      "100 %% | decision p99 |\n| --- | --- | --- | --- | --- | --- | --- |\n",
      flags.demand * 100);
  const Trace unknown{trace->nodes, trace->pods, {}, {}};
  for (const Row& row : rows) {
    if (flags.policy != "default" && flags.policy != RuleName(row.rule)) continue;
    Outcome mean;
    double least = 100;
    double most = 0;
    for (uint64_t seed = 0; seed < flags.seeds; ++seed) {
      Flags one = flags;
      one.policy = RuleName(row.rule);
      one.seed = seed;
      one.learn = row.learn;
      one.whole = row.whole;
      const bool known = !row.learn || !flags.mix_from.empty();
      const auto o = Measure(known ? *trace : unknown, *PolicyOf(one), one);
      if (!o) return Complain(o.error().message);
      mean.at_100 += o->at_100;
      mean.at_130 += o->at_130;
      mean.fragmentation += o->fragmentation;
      mean.placed_100 += o->placed_100;
      mean.p99_us += o->p99_us;
      least = std::min(least, o->at_100);
      most = std::max(most, o->at_100);
    }
    const auto n = static_cast<double>(flags.seeds);
    std::string name(RuleName(row.rule));
    if (row.rule == standard && *row.how == 0) name += " (default)";
    name += row.how;
    std::printf("| %s | **%.2f** | %.2f to %.2f | %.2f | %.2f | %llu | %.0f us |\n", name.c_str(),
                mean.at_100 / n, least, most, mean.at_130 / n, mean.fragmentation / n,
                Count{mean.placed_100 / flags.seeds}, mean.p99_us / n);
    std::fflush(stdout);
  }
  return 0;
}

// A table of all policies, or of one, under churn; each the mean of the seeds.
int Steady(const Flags& flags) {
  const auto trace = ReadTrace(flags);
  if (!trace) return Complain(trace.error().message);
  if (const auto policy = PolicyOf(flags); !policy) return Complain(policy.error().message);
  constexpr Rule kRules[] = {Rule::kScarcity, Rule::kFragmentation, Rule::kRemainder,
                             Rule::kBinpack, Rule::kFirstFit};
  std::printf(
      "| policy | allocated | least to most | refused: part of a GPU | one GPU | several GPUs |\n"
      "| --- | --- | --- | --- | --- | --- |\n");
  const TimeSlice time_slice;
  const SharingMode* const modes[] = {&time_slice};
  for (const Rule rule : kRules) {
    Flags one = flags;
    if (flags.policy == "default") {
      one.policy = RuleName(rule);
    } else if (rule != kRules[0]) {
      break;
    }
    double sum = 0;
    double least = 100;
    double most = 0;
    ChurnOutcome all;
    for (one.seed = 0; one.seed < flags.seeds; ++one.seed) {
      Cluster cluster(modes, *PolicyOf(one));
      if (const auto filled = Fill(cluster, *trace, flags); !filled) {
        return Complain(filled.error().message);
      }
      for (const PodRequest& pod : trace->mix) cluster.Learn(pod);
      const ChurnOutcome o =
          Churn(cluster, trace->pods, trace->lifetimes,
                {flags.load, one.seed, flags.warm_up, flags.measured, flags.learn, UseKnown::kAll});
      const double allocated = o.allocated * 100;
      sum += allocated;
      least = std::min(least, allocated);
      most = std::max(most, allocated);
      for (size_t kind = 0; kind < ChurnOutcome::kKinds; ++kind) {
        all.arrived[kind] += o.arrived[kind];
        all.refused[kind] += o.refused[kind];
      }
    }
    const auto refused = [&](ChurnOutcome::Kind kind) {
      const auto arrived = static_cast<double>(all.arrived[kind]);
      return arrived > 0 ? 100 * static_cast<double>(all.refused[kind]) / arrived : 0;
    };
    std::printf("| %s | **%.2f** | %.2f to %.2f | %.1f %% | %.1f %% | %.1f %% |\n",
                one.policy.c_str(), sum / static_cast<double>(flags.seeds), least, most,
                refused(ChurnOutcome::kFraction), refused(ChurnOutcome::kOne),
                refused(ChurnOutcome::kSeveral));
    std::fflush(stdout);
  }
  return 0;
}

// What pods execute, by how much placement knows of it: a table, each row the mean of the seeds.
int Use(const Flags& flags) {
  auto trace = ReadTrace(flags);
  if (!trace) return Complain(trace.error().message);
  const auto policy = PolicyOf(flags);
  if (!policy) return Complain(policy.error().message);
  ImagineUse(trace->pods);
  std::printf(
      "| use is known of | arriving: allocated | fragmentation | executed | waits | coming and "
      "going: allocated | executed | waits | decision p99 |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  const TimeSlice time_slice;
  const SharingMode* const modes[] = {&time_slice};
  const auto waits = [](double wanted, double executed) {
    return wanted > 0 ? 100 * (1 - executed / wanted) : 0;
  };
  for (const auto& [known, name] : {std::pair{UseKnown::kNone, "no pod"},
                                    {UseKnown::kPlaced, "pods that run"},
                                    {UseKnown::kAll, "all pods"}}) {
    Outcome fill;
    ChurnOutcome steady;
    Flags one = flags;
    for (one.seed = 0; one.seed < flags.seeds; ++one.seed) {
      const auto o = Measure(*trace, *PolicyOf(one), one, known);
      if (!o) return Complain(o.error().message);
      fill.at_100 += o->at_100;
      fill.fragmentation += o->fragmentation;
      fill.wanted += o->wanted;
      fill.executed += o->executed;
      fill.p99_us += o->p99_us;
      Cluster cluster(modes, *PolicyOf(one));
      if (const auto filled = Fill(cluster, *trace, flags); !filled) {
        return Complain(filled.error().message);
      }
      for (const PodRequest& pod : trace->mix) cluster.Learn(pod);
      const ChurnOutcome c =
          Churn(cluster, trace->pods, trace->lifetimes,
                {flags.load, one.seed, flags.warm_up, flags.measured, flags.learn, known});
      steady.allocated += c.allocated * 100;
      steady.wanted += c.wanted * 100;
      steady.executed += c.executed * 100;
    }
    const auto n = static_cast<double>(flags.seeds);
    std::printf("| %s | %.2f | %.2f | **%.2f** | %.1f %% | %.2f | **%.2f** | %.1f %% | %.0f us |\n",
                name, fill.at_100 / n, fill.fragmentation / n, fill.executed / n,
                waits(fill.wanted, fill.executed), steady.allocated / n, steady.executed / n,
                waits(steady.wanted, steady.executed), fill.p99_us / n);
    std::fflush(stdout);
  }
  return 0;
}

// What says how a trace is read.
void AddTrace(CLI::App& command, Flags& flags) {
  command.add_option("NODES", flags.nodes, "CSV: sn,cpu_milli,memory_mib,gpu,model")->required();
  command
      .add_option("PODS", flags.pods,
                  "CSV: name,cpu_milli,memory_mib,num_gpu,gpu_milli and, if any, gpu_spec")
      ->required();
  command
      .add_option("--mix-from", flags.mix_from,
                  "The usual mix of pods is that of this file, not that of PODS")
      ->type_name("FILE");
  command
      .add_option("--islands", flags.islands,
                  "NVLink islands of each node that has two GPUs for each; 0: no NVLink")
      ->type_name("N")
      ->check(CLI::Range(0, 8).description(""))
      ->capture_default_str();
  command.add_flag(
      "--memory-scarce", flags.memory_scarce,
      "Pods ask for 0.5, 1, 1.5 or 3 times as large a part of a GPU's memory as of its "
      "time, by chance");
}

int Main(int argc, char** argv) {
  CLI::App app("What a placement policy makes of a cluster", "baton-place");
  app.require_subcommand(1);
  Flags flags;
  CLI::App* replay = app.add_subcommand(
      "replay", "Pods of a trace arrive one by one and stay; how much of the GPUs is given away?");
  AddTrace(*replay, flags);
  replay
      ->add_option(
          "--policy", flags.policy,
          "For nodes and GPUs: scarcity, fgd, remainder, binpack, spread, first-fit, random or "
          "default, which is " +
              std::string(RuleName(PlacementPolicy().nodes)))
      ->type_name("RULE")
      ->capture_default_str();
  replay->add_option("--cards", flags.cards, "Another rule for the GPUs of a node")
      ->type_name("RULE");
  replay->add_option("--seed", flags.seed, "Of the order of arrival")
      ->type_name("N")
      ->capture_default_str();
  replay->add_option("--demand", flags.demand, "GPUs asked for at the end, as a multiple of all")
      ->type_name("X")
      ->check(CLI::Range(0.01, 10.0).description(""))
      ->capture_default_str();
  replay->add_flag("--whole", flags.whole, "Without sharing: each virtual GPU takes a whole GPU");
  replay->add_flag("--learn", flags.learn,
                   "The usual mix of pods is learned as they come; default: it is the trace's");
  replay->add_flag("--json", flags.json, "One JSON object, and nothing else");
  replay->footer(
      R"(Pods come in an order shuffled by the seed, then drawn again at random, until they ask for 1.3 times
the GPUs there are; none leaves, and one that does not fit is dropped. GPU memory, which such traces
do not tell, is taken to be the same part of the card as the share.

Examples:
  baton-place replay nodes.csv pods.csv
  baton-place replay nodes.csv pods.csv --policy binpack --seed 3 --json
  baton-place replay nodes.csv pods.csv --whole)");
  CLI::App* compare = app.add_subcommand(
      "compare",
      "All policies on one trace, each the mean of several orders of arrival, as a table");
  AddTrace(*compare, flags);
  compare->add_option("--policy", flags.policy, "Only this rule")->type_name("RULE");
  compare->add_option("--seeds", flags.seeds, "Orders of arrival: seeds 0, 1, ...")
      ->type_name("N")
      ->check(CLI::Range(1, 1000).description(""))
      ->capture_default_str();
  compare->add_option("--demand", flags.demand, "As for replay")
      ->type_name("X")
      ->check(CLI::Range(0.01, 10.0).description(""))
      ->capture_default_str();
  CLI::App* churn = app.add_subcommand(
      "churn", "Pods come and go at a steady load: how much is given away, and who is refused?");
  AddTrace(*churn, flags);
  churn->add_option("--policy", flags.policy, "Only this rule; default: all but random and spread")
      ->type_name("RULE");
  churn->add_option("--load", flags.load, "GPU time asked for, as a multiple of the cluster's")
      ->type_name("X")
      ->check(CLI::Range(0.01, 10.0).description(""))
      ->capture_default_str();
  churn
      ->add_option(
          "--lifetimes", flags.lifetimes,
          "exponential, the same mean for all pods; or trace: deletion_time - creation_time")
      ->check(CLI::IsMember({"exponential", "trace"}))
      ->capture_default_str();
  churn->add_option("--warm-up", flags.warm_up, "Mean lifetimes before it counts")
      ->type_name("X")
      ->check(CLI::Range(0.0, 1'000.0).description(""))
      ->capture_default_str();
  churn->add_option("--for", flags.measured, "Mean lifetimes that count")
      ->type_name("X")
      ->check(CLI::Range(0.01, 1'000.0).description(""))
      ->capture_default_str();
  churn->add_flag("--learn", flags.learn, "As for replay");
  churn->add_option("--seeds", flags.seeds, "As for compare")
      ->type_name("N")
      ->check(CLI::Range(1, 1000).description(""))
      ->capture_default_str();
  churn->footer(
      R"(Pods are drawn by chance from PODS and arrive by a Poisson process; one that does not fit is refused.
What is allocated is the mean over time. It begins with the pods that would be there after a long time.

Examples:
  baton-place churn nodes.csv pods.csv --load 1.1
  baton-place churn nodes.csv pods.csv --policy binpack --lifetimes trace --seeds 3)");
  CLI::App* use = app.add_subcommand(
      "use", "How much pods execute, with and without placement knowing what they would use");
  AddTrace(*use, flags);
  use->add_option("--distance", flags.distance,
                  "Places that cost so many thousandths of a GPU more are nearly as good")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000).description(""))
      ->capture_default_str();
  use->add_option("--load", flags.load, "As for churn")
      ->type_name("X")
      ->check(CLI::Range(0.01, 10.0).description(""))
      ->capture_default_str();
  use->add_option("--seeds", flags.seeds, "As for compare")
      ->type_name("N")
      ->check(CLI::Range(1, 1000).description(""))
      ->capture_default_str();
  use->footer(
      R"(Traces do not say what pods use: here half of the pods would use all of each of their GPUs, the others
a tenth, by chance. A GPU executes what its pods would, at most all of its time. Figures are percents of
all GPUs, pods arriving as for compare (up to 100 %), or coming and going as for churn. "waits" is the
part of what pods would execute that they do not get.

Examples:
  baton-place use nodes.csv pods.csv
  baton-place use nodes.csv pods.csv --distance 0 --seeds 3)");
  AddHelpCommand(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  // CLI::Range lets it through.
  if (std::isnan(flags.demand)) return Complain("--demand: nan is not a number");
  for (const double number : {flags.load, flags.warm_up, flags.measured}) {
    if (std::isnan(number)) return Complain("--load, --warm-up, --for: nan is not a number");
  }
  if (churn->parsed()) return Steady(flags);
  if (use->parsed()) return Use(flags);
  return compare->parsed() ? Compare(flags) : Run(flags);
}

}  // namespace
}  // namespace baton::devmgr

int main(int argc, char** argv) {
  baton::OpenStandardFiles();
  return baton::AfterOutput("baton-place", baton::devmgr::Main(argc, argv));
}
