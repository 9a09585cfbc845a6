// What a pod itself says of how its node and its GPUs are chosen.
#include <gtest/gtest.h>

#include <random>

#include "tests/devmgr/small_cluster.h"

namespace baton::devmgr {
namespace {

// As if the cluster's rules were those of the pod, for this pod alone.
TEST(RulesOfAPod, PlaceItAsTheSameRulesOfTheClusterWould) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  Random random(seed);
  int elsewhere = 0;
  for (int round = 0; round < 400; ++round) {
    Cluster cluster = RandomCluster(random, 5, 4, 14);
    const PlacementPolicy usual;
    cluster.SetPolicy(usual);
    PodRequest pod = RandomPod(random, "asked");
    const auto without = cluster.Decide(pod);
    PlacementPolicy wanted = usual;
    if (random.OneIn(2)) pod.node_rule = wanted.nodes = Rule::kSpread;
    if (random.OneIn(2)) pod.card_rule = wanted.cards = Rule::kBinpack;
    if (random.OneIn(3)) pod.node_rule = wanted.nodes = Rule::kBinpack;
    if (random.OneIn(3)) pod.card_rule = wanted.cards = Rule::kSpread;
    const auto with = cluster.Decide(pod);
    PodRequest plain = pod;
    plain.node_rule = plain.card_rule = std::nullopt;
    cluster.SetPolicy(wanted);
    const auto as_cluster = cluster.Decide(plain);
    ASSERT_EQ(with.has_value(), as_cluster.has_value());
    if (!with) continue;
    EXPECT_EQ(*with, *as_cluster);
    elsewhere += *with != *without;
  }
  EXPECT_GT(elsewhere, 20) << "the rules change something";
}

TEST(RulesOfAPod, SpreadAndBinpackAreOfNodesAndGpusByThemselves) {
  Cluster cluster(SmallModes());
  for (const char* name : {"n0", "n1"}) ASSERT_TRUE(cluster.SetNode(NodeOf(name, 2)));
  const PodRequest first = PodOf("first", 300'000);
  ASSERT_TRUE(cluster.Commit(first, *cluster.DecideOn("n0", first)));
  const std::string taken = cluster.Find("first")->placement.vgpus[0].card;
  const auto where = [&](Rule nodes, Rule cards) {
    PodRequest pod = PodOf("second", 200'000);
    pod.node_rule = nodes;
    pod.card_rule = cards;
    return cluster.Decide(pod).value();
  };
  EXPECT_EQ(where(Rule::kBinpack, Rule::kBinpack).vgpus[0].card, taken);
  EXPECT_EQ(where(Rule::kBinpack, Rule::kSpread).node, "n0");
  EXPECT_NE(where(Rule::kBinpack, Rule::kSpread).vgpus[0].card, taken);
  EXPECT_EQ(where(Rule::kSpread, Rule::kBinpack).node, "n1");
}

}  // namespace
}  // namespace baton::devmgr
