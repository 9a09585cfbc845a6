// What the default rule keeps free, where the other rules lose.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "devmgr/placement/churn.h"
#include "devmgr/placement/cluster.h"
#include "tests/devmgr/small_cluster.h"

namespace baton::devmgr {
namespace {

const Rule kScarcityRules[] = {Rule::kScarcity, Rule::kFragmentation, Rule::kRemainder,
                               Rule::kBinpack, Rule::kFirstFit};

PlacementPolicy By(Rule rule) {
  return {.nodes = rule, .cards = rule == Rule::kFirstFit ? Rule::kBinpack : rule};
}

Node ModelNode(const std::string& name, size_t cards, const std::string& model) {
  Node node = NodeOf(name, cards);
  for (Card& card : node.cards) card.model = model;
  return node;
}

PodRequest OfModel(const std::string& name, uint32_t share, const std::string& model) {
  PodRequest pod = PodOf(name, share);
  pod.models = {model};
  return pod;
}

std::string NodeFor(const Cluster& cluster, const PodRequest& pod) {
  const auto placement = cluster.Decide(pod);
  return placement ? placement->node : placement.error().message;
}

// Eight old GPUs on small nodes, first by name; 64 new ones. As many pods name the old model as it
// has room for, and they come last.
TEST(Scarcity, AModelThatFewNodesHaveIsKeptForPodsThatNameIt) {
  const auto refused = [](Rule rule) {
    Cluster cluster(SmallModes(), By(rule));
    for (int n = 0; n < 4; ++n) {
      EXPECT_TRUE(cluster.SetNode(ModelNode("a" + std::to_string(n), 2, "Tesla T4")));
    }
    for (int n = 0; n < 8; ++n) {
      EXPECT_TRUE(cluster.SetNode(ModelNode("b" + std::to_string(n), 8, "NVIDIA H200")));
    }
    std::vector<PodRequest> pods;
    pods.reserve(80);
    for (int p = 0; p < 64; ++p) pods.push_back(PodOf("any" + std::to_string(p), kGpu));
    for (int p = 0; p < 16; ++p) {
      pods.push_back(OfModel("t4-" + std::to_string(p), kGpu / 2, "T4"));
    }
    for (int times = 0; times < 10; ++times) {
      for (const PodRequest& pod : pods) cluster.Learn(pod);
    }
    int failed = 0;
    for (const PodRequest& pod : pods) {
      const auto placement = cluster.Decide(pod);
      if (!placement || !cluster.Commit(pod, *placement)) ++failed;
    }
    return failed;
  };
  EXPECT_EQ(refused(Rule::kScarcity), 0);
  for (const Rule rule : {Rule::kRemainder, Rule::kBinpack, Rule::kFirstFit}) {
    EXPECT_GT(refused(rule), 4) << RuleName(rule);
  }
}

// Small pods come and go, now and then one that wants all GPUs of a node.
TEST(Scarcity, NodesAreKeptWholeWhilePodsComeAndGo) {
  std::vector<PodRequest> pods;
  for (int p = 0; p < 80; ++p) {
    pods.push_back(PodOf("one" + std::to_string(p), kGpu));
    pods.push_back(PodOf("part" + std::to_string(p), kGpu / 2));
  }
  for (int p = 0; p < 10; ++p) pods.push_back(PodOf("whole" + std::to_string(p), kGpu, 8));
  struct Figures {
    double allocated = 0;
    double refused = 0;  // of those that want several GPUs
  };
  constexpr uint64_t kSeeds = 3;
  const auto under = [&](Rule rule) {
    Figures mean;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      Cluster cluster(SmallModes(), By(rule));
      for (int n = 0; n < 30; ++n) {
        EXPECT_TRUE(cluster.SetNode(NodeOf("n" + std::to_string(100 + n), 8)));
      }
      for (const PodRequest& pod : pods) cluster.Learn(pod);
      const ChurnOutcome o =
          Churn(cluster, pods, {}, {.load = 1, .seed = seed, .warm_up = 2, .measured = 20});
      EXPECT_TRUE(Sound(cluster));
      mean.allocated += o.allocated / kSeeds;
      mean.refused += static_cast<double>(o.refused[ChurnOutcome::kSeveral]) /
                      static_cast<double>(o.arrived[ChurnOutcome::kSeveral]) / kSeeds;
    }
    return mean;
  };
  const Figures scarcity = under(Rule::kScarcity);
  for (const Rule rule : kScarcityRules) {
    const Figures other = under(rule);
    SCOPED_TRACE(std::string(RuleName(rule)));
    std::printf("%-10s allocated %.4f, refused %.4f\n", std::string(RuleName(rule)).c_str(),
                other.allocated, other.refused);
    EXPECT_GT(scarcity.allocated, other.allocated - 0.01);
    EXPECT_LT(scarcity.refused, other.refused + 0.03);
    if (rule == Rule::kFragmentation || rule == Rule::kRemainder) {
      EXPECT_GT(scarcity.allocated, other.allocated + 0.01);
      EXPECT_LT(scarcity.refused, other.refused - 0.02);
    }
  }
}

TEST(Scarcity, OfEqualNodesTheOneWithTheLeastLeftIsTaken) {
  Cluster cluster(SmallModes());
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(cluster.SetNode(NodeOf(name, 4)));
  for (const auto& [node, count] : {std::pair("a", 1u), std::pair("b", 3u), std::pair("c", 2u)}) {
    const PodRequest pod = PodOf(std::string("on ") + node, kGpu, count);
    const auto placement = cluster.DecideOn(node, pod);
    ASSERT_TRUE(placement);
    ASSERT_TRUE(cluster.Commit(pod, *placement));
  }
  EXPECT_EQ(NodeFor(cluster, PodOf("p", kGpu)), "b");
}

// What a decision leaves out, because it cannot be better than the best so far, depends on the
// order in which it looks at nodes. What it says does not.
TEST(Scarcity, TheOrderInWhichNodesAreLookedAtDoesNotMatter) {
  Random random(11);
  int decisions = 0, equals = 0;
  for (int round = 0; round < 150; ++round) {
    Cluster forth(SmallModes()), back(SmallModes());
    const auto number = [](size_t n) { return std::to_string(100 + n); };
    constexpr size_t kNodes = 14;
    for (size_t n = 0; n < kNodes; ++n) {
      Node node = ModelNode(number(n), static_cast<size_t>(random.Between(1, 8)),
                            random.Between(0, 3) == 0 ? "Tesla T4" : "NVIDIA H200");
      ASSERT_TRUE(forth.SetNode(node));
      node.name = number(kNodes - 1 - n);
      for (Card& card : node.cards) card.uuid += " back";
      ASSERT_TRUE(back.SetNode(node));
    }
    for (int p = 0; p < 60; ++p) {
      PodRequest pod = PodOf(
          "p" + std::to_string(p),
          random.Between(0, 2) == 0 ? kGpu : static_cast<uint32_t>(random.Between(1, 970)) * 1'000,
          random.Between(0, 4) == 0 ? 2 : 1);
      if (random.Between(0, 9) == 0) pod.models = {"T4"};
      forth.Learn(pod);
      back.Learn(pod);
      const auto one = forth.Decide(pod), other = back.Decide(pod);
      ASSERT_EQ(one.has_value(), other.has_value());
      if (!one) continue;
      ++decisions;
      const std::string same = number(kNodes - 1 - (std::stoul(one->node) - 100));
      if (other->node != same) {
        // By name, where all else is equal.
        ++equals;
        const auto left = [&](const std::string& name) {
          policy::ShareSum free;
          for (const Card& card : forth.FindNode(name)->cards) {
            free += policy::kWhole;
            free -= forth.UseOf(card.uuid)->share;
          }
          return free;
        };
        const std::string its = number(kNodes - 1 - (std::stoul(other->node) - 100));
        EXPECT_EQ(left(one->node), left(its));
      }
      ASSERT_TRUE(forth.Commit(pod, *one));
      const auto there = back.DecideOn(same, pod);
      ASSERT_TRUE(there);
      ASSERT_TRUE(back.Commit(pod, *there));
    }
  }
  EXPECT_GT(decisions, 5'000);
  EXPECT_LT(equals, decisions / 4);
}

TEST(Scarcity, WhatIsScarceFollowsTheNodesThatThereAre) {
  Cluster cluster(SmallModes());
  ASSERT_TRUE(cluster.SetNode(ModelNode("a", 2, "Tesla T4")));
  for (int n = 0; n < 8; ++n) {
    ASSERT_TRUE(cluster.SetNode(ModelNode("b" + std::to_string(n), 2, "NVIDIA H200")));
  }
  for (int p = 0; p < 100; ++p) {
    cluster.Learn(PodOf("p", kGpu));
    cluster.Learn(OfModel("p", kGpu, p % 2 == 0 ? "T4" : "H200"));
  }
  EXPECT_EQ(NodeFor(cluster, PodOf("p", kGpu)), "b0");
  for (int n = 0; n < 80; ++n) {
    ASSERT_TRUE(cluster.SetNode(ModelNode("c" + std::to_string(n), 2, "Tesla T4")));
  }
  EXPECT_EQ(NodeFor(cluster, PodOf("p", kGpu)), "a") << "now the others are scarce";
  for (int n = 0; n < 80; ++n) ASSERT_TRUE(cluster.RemoveNode("c" + std::to_string(n)));
  EXPECT_EQ(NodeFor(cluster, PodOf("p", kGpu)), "b0");
}

TEST(Scarcity, AnOldMixIsForgotten) {
  Cluster cluster(SmallModes());
  ASSERT_TRUE(cluster.SetNode(ModelNode("a", 2, "Tesla T4")));
  ASSERT_TRUE(cluster.SetNode(ModelNode("b", 2, "NVIDIA H200")));
  // Many more than the mix remembers.
  for (uint64_t p = 0; p < 8 * Mix::kMemory; ++p) cluster.Learn(OfModel("p", kGpu, "H200"));
  EXPECT_EQ(NodeFor(cluster, PodOf("p", kGpu)), "a");
  for (uint64_t p = 0; p < 3 * Mix::kMemory; ++p) cluster.Learn(OfModel("p", kGpu, "T4"));
  EXPECT_EQ(NodeFor(cluster, PodOf("p", kGpu)), "b");
}

// Eight thousand pods told what is usual, and then others come.
TEST(Scarcity, AMixThatIsWrongIsForgottenAfterSomeHundredPods) {
  Cluster cluster(SmallModes());
  ASSERT_TRUE(cluster.SetNode(ModelNode("a", 2, "Tesla T4")));
  ASSERT_TRUE(cluster.SetNode(ModelNode("b", 2, "NVIDIA H200")));
  Random random(5);
  const auto learn = [&](const std::string& often, int percent) {
    const bool it = random.Between(0, 99) < percent;
    cluster.Learn(OfModel("p", kGpu, it ? often : often == "H200" ? "T4" : "H200"));
  };
  for (int p = 0; p < 8'000; ++p) learn("H200", 60);
  EXPECT_EQ(NodeFor(cluster, PodOf("p", kGpu)), "a");
  for (int p = 0; p < 800; ++p) learn("T4", 90);
  EXPECT_EQ(NodeFor(cluster, PodOf("p", kGpu)), "b");
  // By chance nothing is forgotten: the same pods go on coming.
  for (int p = 0; p < 8'000; ++p) learn("T4", 60);
  for (int times = 0; times < 500; ++times) {
    for (int p = 0; p < 32; ++p) learn("T4", 60);
    ASSERT_EQ(NodeFor(cluster, PodOf("p", kGpu)), "b") << times;
  }
}

TEST(Churn, AtALowLoadAllIsGivenAndAtAHighOneSomeAreRefused) {
  std::vector<PodRequest> pods;
  pods.reserve(22);
  for (int p = 0; p < 20; ++p) pods.push_back(PodOf("p" + std::to_string(p), kGpu / 4));
  pods.push_back(PodOf("two", kGpu, 2));
  pods.push_back(PodOf("none", kGpu));
  pods.back().containers.clear();
  const auto at = [&](double load, std::vector<double> lifetimes = {}) {
    Cluster cluster(SmallModes());
    for (int n = 0; n < 20; ++n) {
      EXPECT_TRUE(cluster.SetNode(NodeOf("n" + std::to_string(n), 4)));
    }
    const ChurnOutcome o =
        Churn(cluster, pods, lifetimes, {.load = load, .seed = 5, .warm_up = 2, .measured = 40});
    EXPECT_TRUE(Sound(cluster));
    return o;
  };
  const ChurnOutcome low = at(0.3);
  EXPECT_NEAR(low.allocated, 0.3, 0.03);
  EXPECT_EQ(low.refused, decltype(low.refused){});
  EXPECT_GT(low.arrived[ChurnOutcome::kNone], 0u);
  EXPECT_GT(low.arrived[ChurnOutcome::kFraction], 10 * low.arrived[ChurnOutcome::kSeveral]);
  EXPECT_EQ(low.arrived[ChurnOutcome::kOne], 0u);
  const ChurnOutcome high = at(3);
  EXPECT_GT(high.allocated, 0.9);
  EXPECT_LE(high.allocated, 1);
  EXPECT_GT(high.refused[ChurnOutcome::kFraction], high.arrived[ChurnOutcome::kFraction] / 2);
  EXPECT_EQ(high.refused[ChurnOutcome::kNone], 0u);
  EXPECT_EQ(at(3).refused, high.refused) << "a seed is one course of events";
  // Pods of two GPUs stay a hundred times as long as the others.
  std::vector<double> lifetimes(pods.size(), 1);
  lifetimes[20] = 100;
  EXPECT_NEAR(at(0.3, lifetimes).allocated, 0.3, 0.05);
}

}  // namespace
}  // namespace baton::devmgr
