// Small clusters by chance, on which everything can be tried.
#ifndef BATON_TESTS_DEVMGR_SMALL_CLUSTER_H_
#define BATON_TESTS_DEVMGR_SMALL_CLUSTER_H_

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "devmgr/modes/modes.h"
#include "devmgr/placement/cluster.h"
#include "devmgr/placement/what_if.h"

namespace baton::devmgr {

inline constexpr uint32_t kCardMib = 10'000;
inline constexpr uint32_t kGpu = policy::kMillion;

inline Modes SmallModes() { return TokenModes(); }

inline Node NodeOf(const std::string& name, size_t cards) {
  Node node;
  node.name = name;
  for (size_t c = 0; c < cards; ++c) {
    Card card;
    card.uuid = name + "-" + std::to_string(c);
    card.model = "NVIDIA H200";
    card.memory_mib = kCardMib;
    node.cards.push_back(card);
  }
  return node;
}

inline PodRequest PodOf(const std::string& name, uint32_t share, uint32_t count = 1,
                        int32_t priority = 0, const std::string& team = "") {
  PodRequest pod;
  pod.name = name;
  pod.team = team;
  pod.priority = priority;
  pod.mode = "time-slice";
  pod.containers.push_back({"main", {{policy::Share(share), 0, {}, count}}});
  return pod;
}

inline PodRequest RandomPod(Random& random, const std::string& name) {
  PodRequest pod = PodOf(name, static_cast<uint32_t>(random.Between(1, 10)) * 100'000);
  pod.priority = static_cast<int32_t>(random.Between(0, 3));
  VgpuRequest& vgpu = pod.containers[0].vgpus[0];
  if (random.OneIn(2)) vgpu.memory_mib = static_cast<uint32_t>(random.Between(1, 10)) * 1'000;
  if (random.OneIn(6)) vgpu.count = 2;
  if (random.OneIn(8)) pod.mode = "exclusive";
  if (random.OneIn(4)) pod.cpu_milli = static_cast<uint32_t>(random.Between(1, 4)) * 1'000;
  if (random.OneIn(10)) pod.exclusion = "x";
  if (random.OneIn(12)) pod.affinity = "near";
  if (random.OneIn(12)) pod.anti_affinity = "away";
  return pod;
}

// `fill` pods are tried, each where chance has it.
inline Cluster RandomCluster(Random& random, size_t nodes, size_t cards, size_t fill) {
  PlacementPolicy policy;
  policy.nodes = policy.cards = Rule::kRandom;
  policy.seed = random.Next();
  Cluster cluster(SmallModes(), policy);
  for (size_t n = 0; n < nodes; ++n) {
    Node node = NodeOf("n" + std::to_string(n), 1 + random.Next() % cards);
    if (random.OneIn(3)) node.cpu_milli = 8'000;
    if (random.OneIn(12)) node.cordoned = true;
    if (random.OneIn(12)) node.cards[0].cordoned = true;
    (void)cluster.SetNode(node);
  }
  for (size_t p = 0; p < fill; ++p) {
    const PodRequest pod = RandomPod(random, "p" + std::to_string(p));
    if (const auto placement = cluster.Decide(pod)) (void)cluster.Commit(pod, *placement);
  }
  return cluster;
}

// Everything that a change would show in.
struct Print {
  std::map<std::string, PlacedPod, std::less<>> pods;
  std::vector<CardUse> uses;
  std::vector<std::pair<uint64_t, uint64_t>> hosts;

  friend bool operator==(const Print&, const Print&) = default;
};

inline Print PrintOf(const Cluster& cluster) {
  Print print{cluster.pods(), {}, {}};
  for (const Node* node : cluster.Nodes()) {
    for (const Card& card : node->cards) print.uses.push_back(*cluster.UseOf(card.uuid));
    const Cluster::Capacity free = cluster.FreeOn(node->name);
    print.hosts.emplace_back(free.cpu_milli, free.memory_mib);
  }
  return print;
}

// Card by GPU from the pods alone: nothing is given twice, and the account is right.
inline bool Sound(const Cluster& cluster) {
  std::map<std::string, CardUse> sums;
  for (const auto& [name, pod] : cluster.pods()) {
    for (const Vgpu& vgpu : pod.placement.vgpus) {
      CardUse& sum = sums[vgpu.card];
      sum.share += vgpu.fit.share;
      sum.memory_mib += vgpu.fit.memory_mib;
      ++sum.vgpus;
    }
  }
  for (const Node* node : cluster.Nodes()) {
    for (const Card& card : node->cards) {
      const CardUse& use = *cluster.UseOf(card.uuid);
      const CardUse& sum = sums[card.uuid];
      if (sum.share > policy::kWhole || sum.memory_mib > card.memory_mib) return false;
      if (use.share != sum.share || use.memory_mib != sum.memory_mib || use.vgpus != sum.vgpus) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace baton::devmgr

#endif  // BATON_TESTS_DEVMGR_SMALL_CLUSTER_H_
