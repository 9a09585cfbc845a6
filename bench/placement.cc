// What it costs to find a place for a pod: in a cluster that is four fifths full, and on one node
// where the pieces only just fit.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/time.h"
#include "devmgr/modes/modes.h"
#include "devmgr/placement/cluster.h"
#include "devmgr/placement/defrag.h"
#include "devmgr/placement/replay.h"

namespace baton::bench {
namespace {

using namespace devmgr;  // NOLINT: all of it is about that

constexpr size_t kCards = 8;

Node MakeNode(size_t index) {
  Node node;
  node.name = "node-" + std::to_string(100'000 + index);
  node.cpu_milli = 96'000;
  node.memory_mib = 786'432;
  for (size_t c = 0; c < kCards; ++c) {
    Card card;
    card.uuid = node.name + "/" + std::to_string(c);
    card.model = index % 3 == 0 ? "NVIDIA A100-SXM4-80GB" : "NVIDIA H100 80GB HBM3";
    card.memory_mib = 81'559;
    card.numa = static_cast<int32_t>(c / 4);
    card.island = 0;
    node.cards.push_back(card);
  }
  return node;
}

// Fractions mostly, some whole GPUs, some of several; some of several containers.
PodRequest MakePod(Random& random, uint64_t number) {
  PodRequest pod;
  pod.name = "pod-" + std::to_string(number);
  pod.cpu_milli = static_cast<uint32_t>(random.Between(1, 12)) * 1'000;
  pod.memory_mib = static_cast<uint64_t>(random.Between(1, 64)) * 1'024;
  VgpuRequest vgpu;
  if (random.OneIn(3)) {
    vgpu.count = random.OneIn(3) ? static_cast<uint32_t>(random.Between(2, 8)) : 1;
  } else {
    vgpu.share = policy::Share(random.Between(1, 99) * 10'000);
  }
  vgpu.memory_part = vgpu.share;
  pod.containers.push_back({"main", {vgpu}});
  // Some of several containers, each with its own part.
  const int64_t more = random.OneIn(8) ? random.Between(1, 3) : 0;
  for (int64_t c = 0; c < more; ++c) {
    VgpuRequest other;
    other.share = policy::Share(random.Between(1, 30) * 10'000);
    other.memory_part = other.share;
    pod.containers.push_back({std::to_string(c), {other}});
  }
  return pod;
}

double Percentile(std::vector<double>& values, double part) {
  const auto at = static_cast<std::ptrdiff_t>(static_cast<double>(values.size() - 1) * part);
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

// Nodes of eight GPUs, each four fifths full.
struct FullCluster {
  explicit FullCluster(benchmark::State& of, size_t nodes) : state(of) {
    for (size_t i = 0; i < nodes; ++i) {
      if (!cluster.SetNode(MakeNode(i))) state.SkipWithError("a node was refused");
    }
    for (const Node* node : cluster.Nodes()) {
      policy::ShareSum on_node;
      for (int tries = 0;
           tries < 200 && on_node < policy::ShareSum(policy::kWhole) * kCards * 4 / 5; ++tries) {
        const PodRequest pod = MakePod(random, number++);
        if (number < 10'000) cluster.Learn(pod);
        const auto placement = cluster.DecideOn(node->name, pod);
        if (!placement) continue;
        Put(pod, *placement);
        on_node += DemandOf(pod);
      }
    }
  }
  void Put(const PodRequest& pod, const Placement& placement) {
    if (!cluster.Commit(pod, placement)) state.SkipWithError("a decision could not be carried out");
    taken += DemandOf(pod);
    there.emplace_back(pod.name, DemandOf(pod));
  }

  benchmark::State& state;
  Random random{1};
  Cluster cluster{TokenModes()};
  uint64_t number = 0;
  policy::ShareSum taken;
  std::vector<std::pair<std::string, policy::ShareSum>> there;
};

// range(0) nodes. Each decision is about a pod that was not seen before; it is carried out, and
// others leave, so that the cluster stays as full.
void Decisions(benchmark::State& state) {
  const auto nodes = static_cast<size_t>(state.range(0));
  FullCluster full_cluster(state, nodes);
  auto& [of, random, cluster, number, taken, there] = full_cluster;
  const policy::ShareSum capacity = CapacityOf(cluster);
  const double full = policy::Ratio(taken) / policy::Ratio(capacity);
  std::vector<double> decision_us;
  uint64_t refused = 0;
  for (auto _ : state) {
    const PodRequest pod = MakePod(random, number++);
    cluster.Learn(pod);
    const Instant start = MonotonicNow();
    const auto placement = cluster.Decide(pod);
    const Duration took = MonotonicNow() - start;
    decision_us.push_back(static_cast<double>(Nanos(took)) / 1e3);
    state.SetIterationTime(static_cast<double>(Nanos(took)) / 1e9);
    refused += placement ? 0 : 1;
    if (placement) full_cluster.Put(pod, *placement);
    while (taken > capacity / 5 * 4) {
      std::swap(
          there[static_cast<size_t>(random.Between(0, static_cast<int64_t>(there.size()) - 1))],
          there.back());
      if (!cluster.Delete(there.back().first)) state.SkipWithError("a pod was lost");
      taken -= there.back().second;
      there.pop_back();
    }
  }
  // The least that any exact decision must do: look at what is free on every GPU.
  std::vector<double> walk_us;
  std::vector<uint32_t> free(nodes * kCards * 2, 1);
  for (int i = 0; i < 100; ++i) {
    const Instant start = MonotonicNow();
    uint32_t sum = 0;
    for (const uint32_t f : free) sum += f;
    benchmark::DoNotOptimize(sum);
    walk_us.push_back(static_cast<double>(Nanos(MonotonicNow() - start)) / 1e3);
  }
  state.counters["p50_us"] = Percentile(decision_us, 0.5);
  state.counters["p99_us"] = Percentile(decision_us, 0.99);
  state.counters["max_us"] = *std::max_element(decision_us.begin(), decision_us.end());
  state.counters["walk_us"] = Percentile(walk_us, 0.5);
  state.counters["full"] = full;
  state.counters["refused"] = static_cast<double>(refused);
  state.counters["pods"] = static_cast<double>(cluster.pods().size());
  state.counters["memory_mib"] = static_cast<double>(cluster.MemoryBytes()) / 1048576;
}
BENCHMARK(Decisions)
    ->Name("placement/nodes")
    ->Arg(1'200)
    ->Arg(10'000)
    ->Iterations(3'000)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// range(0) nodes. Which pods would have to move for one that fits nowhere, looked for as the binder
// does (k8s/binder/moves.h).
void Moves(benchmark::State& state) {
  FullCluster full(state, static_cast<size_t>(state.range(0)));
  const DefragOptions options{.moves = 2, .steps = 1'000, .nodes = 64};
  std::vector<double> search_us;
  uint64_t found = 0;
  for (auto _ : state) {
    PodRequest pod = MakePod(full.random, full.number++);
    while (auto fits = full.cluster.Decide(pod)) {
      full.Put(pod, *fits);
      pod = MakePod(full.random, full.number++);
    }
    const Instant start = MonotonicNow();
    const auto plan = Defrag(
        full.cluster, TokenModes(), pod, [](const PlacedPod& placed) { return placed.request; },
        options);
    const Duration took = MonotonicNow() - start;
    search_us.push_back(static_cast<double>(Nanos(took)) / 1e3);
    state.SetIterationTime(static_cast<double>(Nanos(took)) / 1e9);
    found += plan ? 1 : 0;
  }
  state.counters["p50_us"] = Percentile(search_us, 0.5);
  state.counters["p99_us"] = Percentile(search_us, 0.99);
  state.counters["max_us"] = *std::max_element(search_us.begin(), search_us.end());
  state.counters["found"] = static_cast<double>(found) / static_cast<double>(search_us.size());
}
BENCHMARK(Moves)
    ->Name("placement/moves")
    ->Arg(64)
    ->Arg(1'200)
    ->Arg(10'000)
    ->Iterations(200)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// Eight containers on the eight GPUs of one empty node, cut so that they fill it to the last tenth
// of a percent: each GPU in range(0) pieces, which go to as many different containers.
void Adversarial(benchmark::State& state) {
  Random random(2);
  Cluster cluster(TokenModes(), {.nodes = Rule::kBinpack, .cards = Rule::kBinpack});
  if (!cluster.SetNode(MakeNode(0))) state.SkipWithError("the node was refused");
  std::vector<double> search_us;
  uint64_t found = 0;
  uint64_t number = 0;
  for (auto _ : state) {
    PodRequest pod;
    pod.name = "pod-" + std::to_string(number++);
    for (size_t c = 0; c < kCards; ++c) pod.containers.push_back({std::to_string(c), {}});
    for (size_t card = 0; card < kCards; ++card) {
      int64_t left = 1'000;
      const auto first = static_cast<size_t>(random.Between(0, 7));
      for (int64_t piece = state.range(0); piece > 0; --piece) {
        VgpuRequest vgpu;
        const int64_t share = piece == 1 ? left : random.Between(1, 2 * left / piece - 1);
        vgpu.share = static_cast<policy::Share>(share * 1'000);
        left -= share;
        pod.containers[(first + static_cast<size_t>(piece)) % kCards].vgpus.push_back(vgpu);
      }
    }
    const Instant start = MonotonicNow();
    const auto placement = cluster.Decide(pod);
    const Duration took = MonotonicNow() - start;
    search_us.push_back(static_cast<double>(Nanos(took)) / 1e3);
    state.SetIterationTime(static_cast<double>(Nanos(took)) / 1e9);
    found += placement ? 1 : 0;
  }
  state.counters["p50_us"] = Percentile(search_us, 0.5);
  state.counters["p99_us"] = Percentile(search_us, 0.99);
  state.counters["max_us"] = *std::max_element(search_us.begin(), search_us.end());
  state.counters["found"] = static_cast<double>(found) / static_cast<double>(search_us.size());
}
BENCHMARK(Adversarial)
    ->Name("placement/adversarial")
    ->Arg(3)
    ->Arg(8)
    ->Iterations(300)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace baton::bench

BENCHMARK_MAIN();
