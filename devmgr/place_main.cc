// baton-place: what a placement policy makes of a cluster's trace.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/time.h"
#include "devmgr/cluster.h"
#include "devmgr/replay.h"
#include "devmgr/time_slice.h"

namespace baton::devmgr {
namespace {

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
};

int Complain(const std::string& what) {
  std::fprintf(stderr, "baton-place: %s\n", what.c_str());
  return 2;
}

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return Fail(ErrorCode::kNotFound, path + ": cannot be read");
  return std::move(text).str();
}

Result<PlacementPolicy> PolicyOf(const Flags& flags) {
  PlacementPolicy policy;
  policy.seed = flags.seed;
  if (flags.policy == "default") return policy;
  const auto rule = ParseRule(flags.policy);
  if (!rule) {
    return Fail(ErrorCode::kInvalid, "--policy: " + rule.error().message + ", default");
  }
  policy.nodes = policy.cards = *rule;
  // Which card is a matter of its own; the first that comes is no rule that anybody would want.
  if (*rule == Rule::kFirstFit) policy.cards = Rule::kBinpack;
  if (!flags.cards.empty()) {
    const auto cards = ParseRule(flags.cards);
    if (!cards) return Fail(ErrorCode::kInvalid, "--cards: " + cards.error().message);
    policy.cards = *cards;
  }
  return policy;
}

double Percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) * 100 / static_cast<double>(whole);
}

int Run(const Flags& flags) {
  const auto policy = PolicyOf(flags);
  if (!policy) return Complain(policy.error().message);
  const auto node_text = ReadFile(flags.nodes);
  if (!node_text) return Complain(node_text.error().message);
  const auto pod_text = ReadFile(flags.pods);
  if (!pod_text) return Complain(pod_text.error().message);
  const auto nodes = ReadTraceNodes(*node_text);
  if (!nodes) return Complain(flags.nodes + ": " + nodes.error().message);
  const auto pods = ReadTracePods(*pod_text);
  if (!pods) return Complain(flags.pods + ": " + pods.error().message);

  const TimeSlice time_slice;
  const SharingMode* const modes[] = {&time_slice};
  Cluster cluster(modes, *policy);
  for (const Node& node : *nodes) {
    if (const auto set = cluster.SetNode(node); !set) {
      return Complain(flags.nodes + ": " + set.error().message);
    }
  }
  const uint64_t capacity = CapacityOf(cluster);
  if (capacity == 0) return Complain(flags.nodes + ": there are no GPUs");
  const std::vector<PodRequest> arrivals = Arrivals(*pods, capacity, flags.demand, flags.seed);
  Replay replay(cluster, {.whole = flags.whole, .learn = flags.learn});
  if (!flags.learn) replay.Know(*pods);
  std::vector<double> decisions_us;
  decisions_us.reserve(arrivals.size());
  double at_100 = 0;
  uint64_t placed_100 = 0;
  for (size_t i = 0; i < arrivals.size(); ++i) {
    const Instant start = MonotonicNow();
    replay.Arrive(arrivals[i]);
    decisions_us.push_back(static_cast<double>(Nanos(MonotonicNow() - start)) / 1e3);
    if (replay.arrived() <= capacity || i == 0) {
      at_100 = Percent(replay.allocated(), capacity);
      placed_100 = replay.placed();
    }
    if (!flags.json && (i % 512 == 511 || i + 1 == arrivals.size())) {
      std::fprintf(stderr, "\r%zu of %zu pods, %.2f %% allocated", i + 1, arrivals.size(),
                   Percent(replay.allocated(), capacity));
    }
  }
  if (!flags.json) std::fprintf(stderr, "\n");
  const auto at = static_cast<std::ptrdiff_t>(decisions_us.size() * 99 / 100);
  if (!decisions_us.empty()) {
    std::nth_element(decisions_us.begin(), decisions_us.begin() + at, decisions_us.end());
  }
  const double p99_us = decisions_us.empty() ? 0 : decisions_us[static_cast<size_t>(at)];
  const double at_130 = Percent(replay.allocated(), capacity);
  const double fragmentation = cluster.Fragmentation() * 100;
  if (flags.json) {
    const nlohmann::ordered_json result = {
        {"policy", flags.policy},         {"seed", flags.seed},
        {"allocation_at_100", at_100},    {"allocation_at_130", at_130},
        {"fragmentation", fragmentation}, {"placed", replay.placed()},
        {"failed", replay.failed()},      {"decision_p99_us", p99_us}};
    std::printf("%s\n", result.dump().c_str());
    return 0;
  }
  std::printf("policy              %s, seed %llu%s\n", flags.policy.c_str(),
              static_cast<unsigned long long>(flags.seed), flags.whole ? ", whole cards only" : "");
  std::printf("cluster             %zu nodes, %llu GPUs\n", nodes->size(),
              static_cast<unsigned long long>(capacity / policy::kWhole));
  std::printf("allocation at 100 %%  %.2f %%, %llu pods placed\n", at_100,
              static_cast<unsigned long long>(placed_100));
  std::printf("allocation at %.0f %%  %.2f %%, %llu pods placed, %llu dropped\n",
              flags.demand * 100, at_130, static_cast<unsigned long long>(replay.placed()),
              static_cast<unsigned long long>(replay.failed()));
  std::printf("fragmentation       %.2f %% of all GPUs: free, and of no use to the usual pod\n",
              fragmentation);
  std::printf("a decision, p99     %.0f us\n", p99_us);
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
      ->add_option("PODS", flags.pods, "CSV: name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec")
      ->required();
  replay
      ->add_option("--policy", flags.policy,
                   "For nodes and cards: fgd, binpack, spread, first-fit, random, remainder or "
                   "default, which is remainder")
      ->type_name("RULE")
      ->capture_default_str();
  replay->add_option("--cards", flags.cards, "Another rule for the cards of a node")
      ->type_name("RULE");
  replay->add_option("--seed", flags.seed, "Of the order of arrival")
      ->type_name("N")
      ->capture_default_str();
  replay->add_option("--demand", flags.demand, "GPUs asked for at the end, as a multiple of all")
      ->type_name("X")
      ->check(CLI::Range(0.01, 10.0).description(""))
      ->capture_default_str();
  replay->add_flag("--whole", flags.whole, "Without sharing: each virtual GPU takes a whole card");
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return Run(flags);
}

}  // namespace
}  // namespace baton::devmgr

int main(int argc, char** argv) { return baton::devmgr::Main(argc, argv); }
