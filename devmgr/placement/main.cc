// baton-place: what a placement policy makes of a cluster's trace.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/help_command.h"
#include "base/time.h"
#include "devmgr/modes/time_slice.h"
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
};

int Complain(const std::string& what) {
  std::fprintf(stderr, "baton-place: %s\n", what.c_str());
  return 2;
}

Result<PlacementPolicy> PolicyOf(const Flags& flags) {
  PlacementPolicy policy;
  policy.seed = flags.seed;
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
};

Result<Trace> ReadTrace(const Flags& flags) {
  Trace trace;
  const auto node_text = ReadFile(flags.nodes, kTraceMax);
  if (!node_text) return tl::unexpected(node_text.error());
  const auto pod_text = ReadFile(flags.pods, kTraceMax);
  if (!pod_text) return tl::unexpected(pod_text.error());
  auto nodes = ReadTraceNodes(*node_text);
  if (!nodes) return Fail(nodes.error().code, flags.nodes + ": " + nodes.error().message);
  auto pods = ReadTracePods(*pod_text);
  if (!pods) return Fail(pods.error().code, flags.pods + ": " + pods.error().message);
  trace.nodes = std::move(*nodes);
  trace.pods = std::move(*pods);
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
  uint64_t placed = 0;
  uint64_t failed = 0;
  double p99_us = 0;
};

Result<Outcome> Measure(const Trace& trace, const PlacementPolicy& policy, const Flags& flags) {
  const TimeSlice time_slice;
  const SharingMode* const modes[] = {&time_slice};
  Cluster cluster(modes, policy);
  for (const Node& node : trace.nodes) {
    if (const auto set = cluster.SetNode(node); !set) {
      return Fail(set.error().code, flags.nodes + ": " + set.error().message);
    }
  }
  Outcome o;
  o.capacity = CapacityOf(cluster);
  const std::vector<PodRequest> arrivals =
      Arrivals(trace.pods, o.capacity, flags.demand, policy.seed);
  Replay replay(cluster, {.whole = flags.whole, .learn = flags.learn});
  if (!flags.learn) replay.Know(trace.pods);
  std::vector<double> decisions_us;
  decisions_us.reserve(arrivals.size());
  for (const PodRequest& pod : arrivals) {
    const Instant start = MonotonicNow();
    replay.Arrive(pod);
    decisions_us.push_back(static_cast<double>(Nanos(MonotonicNow() - start)) / 1e3);
    if (replay.arrived() <= o.capacity) {
      o.at_100 = Percent(replay.allocated(), o.capacity);
      o.placed_100 = replay.placed();
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
  std::printf("fragmentation        %.2f %% of all GPUs: free, and of no use to the usual pod\n",
              o->fragmentation);
  std::printf("a decision, p99      %.0f us\n", o->p99_us);
  return 0;
}

// A table of all policies, each the mean of the seeds.
int Compare(const Flags& flags) {
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
  for (const Row& row : rows) {
    Outcome mean;
    double least = 100;
    double most = 0;
    for (uint64_t seed = 0; seed < flags.seeds; ++seed) {
      Flags one = flags;
      one.policy = RuleName(row.rule);
      one.seed = seed;
      one.learn = row.learn;
      one.whole = row.whole;
      const auto o = Measure(*trace, *PolicyOf(one), one);
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

int Main(int argc, char** argv) {
  CLI::App app("What a placement policy makes of a cluster", "baton-place");
  app.require_subcommand(1);
  Flags flags;
  CLI::App* replay = app.add_subcommand(
      "replay", "Pods of a trace arrive one by one and stay; how much of the GPUs is given away?");
  replay->add_option("NODES", flags.nodes, "CSV: sn,cpu_milli,memory_mib,gpu,model")->required();
  replay
      ->add_option("PODS", flags.pods,
                   "CSV: name,cpu_milli,memory_mib,num_gpu,gpu_milli and, if any, gpu_spec")
      ->required();
  replay
      ->add_option("--policy", flags.policy,
                   "For nodes and GPUs: fgd, remainder, binpack, spread, first-fit, random or "
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
  compare->add_option("NODES", flags.nodes, "As for replay")->required();
  compare->add_option("PODS", flags.pods, "As for replay")->required();
  compare->add_option("--seeds", flags.seeds, "Orders of arrival: seeds 0, 1, ...")
      ->type_name("N")
      ->check(CLI::Range(1, 1000).description(""))
      ->capture_default_str();
  compare->add_option("--demand", flags.demand, "As for replay")
      ->type_name("X")
      ->check(CLI::Range(0.01, 10.0).description(""))
      ->capture_default_str();
  AddHelpCommand(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  // CLI::Range lets it through.
  if (std::isnan(flags.demand)) return Complain("--demand: nan is not a number");
  return compare->parsed() ? Compare(flags) : Run(flags);
}

}  // namespace
}  // namespace baton::devmgr

int main(int argc, char** argv) { return baton::devmgr::Main(argc, argv); }
