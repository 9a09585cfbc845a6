// Expected use decides among places that are nearly as good, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "devmgr/modes/time_slice.h"
#include "devmgr/placement/contention.h"
#include "tests/devmgr/small_cluster.h"

namespace baton::devmgr {
namespace {

const TimeSlice kUseTimeSlice;
const SharingMode* const kUseModes[] = {&kUseTimeSlice};
constexpr uint32_t kPercent = kGpu / 100;

PodRequest Using(PodRequest pod, std::optional<uint32_t> percent) {
  if (percent) pod.expected_use = policy::Share(*percent * kPercent);
  return pod;
}
PodRequest Using(const std::string& name, uint32_t request, std::optional<uint32_t> percent) {
  return Using(PodOf(name, request * kPercent), percent);
}

std::string Arrive(Cluster& cluster, const PodRequest& pod) {
  const auto placement = cluster.Decide(pod);
  if (!placement || !cluster.Commit(pod, *placement)) return "nowhere";
  std::string cards;
  for (const Vgpu& vgpu : placement->vgpus) cards += (cards.empty() ? "" : " ") + vgpu.card;
  return cards;
}
// On that GPU, whatever is decided otherwise.
void ArriveOn(Cluster& cluster, PodRequest pod, const std::string& uuid) {
  pod.uuids = {uuid};
  ASSERT_EQ(Arrive(cluster, pod), uuid);
}

Cluster OneNode(size_t cards, uint32_t distance = PlacementPolicy().use_distance) {
  PlacementPolicy policy;
  policy.use_distance = distance;
  Cluster cluster(kUseModes, policy);
  EXPECT_TRUE(cluster.SetNode(NodeOf("n", cards)));
  return cluster;
}

TEST(ExpectedUse, ABurstyPodGoesBesideTheSaturatingOneAndNotASecondSaturatingOne) {
  for (const bool informed : {true, false}) {
    Cluster cluster = OneNode(2, informed ? 10 : 0);
    ArriveOn(cluster, Using("saturating", 30, 100), "n-0");
    ArriveOn(cluster, Using("bursty", 30, 5), "n-1");
    UseChoice use;
    const PodRequest second = Using("saturating too", 30, 100);
    ASSERT_TRUE(cluster.Decide(second, &use));
    EXPECT_EQ(use.instead_of, informed ? "n-0" : "");
    EXPECT_EQ(use.there, informed ? 2'000'000 : 0);
    EXPECT_EQ(use.here, informed ? 1'050'000 : 2'000'000);
    EXPECT_EQ(Arrive(cluster, second), informed ? "n-1" : "n-0") << "by requests they are equal";
  }
}

TEST(ExpectedUse, WhoFitsWithoutExcessGoesWhereTheRuleSays) {
  Cluster cluster = OneNode(2);
  ArriveOn(cluster, Using("a", 50, 80), "n-0");
  ArriveOn(cluster, Using("b", 30, 5), "n-1");
  EXPECT_EQ(Arrive(cluster, Using("c", 30, 20)), "n-0") << "the fuller one, which has time for it";
}

TEST(ExpectedUse, OfPodsThatNothingIsKnownOfTheRequestIsExpected) {
  Cluster cluster = OneNode(3);
  ArriveOn(cluster, Using("a", 40, {}), "n-0");
  EXPECT_EQ(cluster.ExpectedUse("n-0"), 400'000);
  EXPECT_EQ(cluster.ExpectedUse("n-1"), 0);
  EXPECT_EQ(cluster.ExpectedUse("none"), 0);
  ASSERT_TRUE(cluster.SetExpectedUse("a", policy::kWhole));
  EXPECT_EQ(cluster.ExpectedUse("n-0"), 1'000'000);
  EXPECT_EQ(cluster.SetExpectedUse("none", policy::kWhole).error().code, ErrorCode::kNotFound);
  // It requests no more than before.
  EXPECT_EQ(cluster.UseOf("n-0")->share, policy::Share(400'000));
  ASSERT_TRUE(cluster.Resize("a", 0, 0, policy::Share(500'000), 0));
  EXPECT_EQ(cluster.ExpectedUse("n-0"), 1'000'000);
  ASSERT_TRUE(cluster.SetExpectedUse("a", {}));
  EXPECT_EQ(cluster.ExpectedUse("n-0"), 500'000);
}

TEST(ExpectedUse, ANodeSaysItOfItsGpus) {
  Cluster cluster = OneNode(2);
  ArriveOn(cluster, Using("a", 30, {}), "n-0");
  ArriveOn(cluster, Using("b", 30, {}), "n-1");
  Node node = NodeOf("n", 2);
  node.cards[0].beyond = 700'000;
  node.cards[1].beyond = -250'000;
  ASSERT_TRUE(cluster.SetNode(node));
  EXPECT_EQ(cluster.ExpectedUse("n-0"), 1'000'000);
  EXPECT_EQ(cluster.ExpectedUse("n-1"), 50'000);
  EXPECT_EQ(Arrive(cluster, Using("c", 30, {})), "n-1");
  // Who has come since is not in what the node says.
  EXPECT_EQ(cluster.ExpectedUse("n-1"), 350'000);
  ASSERT_TRUE(cluster.Delete("b"));
  ASSERT_TRUE(cluster.Delete("c"));
  EXPECT_EQ(cluster.ExpectedUse("n-1"), 0) << "not less than nothing";
  node.cards[1].beyond = 0;
  ASSERT_TRUE(cluster.SetNode(node));
  ASSERT_TRUE(cluster.SetNode(node));
  EXPECT_EQ(cluster.ExpectedUse("n-0"), 1'000'000);
  EXPECT_EQ(cluster.ExpectedUse("n-1"), 0);
}

TEST(ExpectedUse, APodOfSeveralGpusKeepsAwayFromThoseThatAreUsed) {
  Cluster cluster = OneNode(4);
  for (int c = 0; c < 4; ++c) {
    ArriveOn(cluster, Using("p" + std::to_string(c), 30, c % 2 == 0 ? 100 : 5),
             "n-" + std::to_string(c));
  }
  PodRequest pod = PodOf("pod", 30 * kPercent, 2);
  EXPECT_EQ(Arrive(cluster, Using(pod, 60)), "n-1 n-3");
}

// Whatever is known of whom.
class RandomUse : public testing::TestWithParam<uint64_t> {
 protected:
  Random random_{GetParam()};

  std::optional<uint32_t> SomeUse() {
    if (random_.OneIn(3)) return {};
    return random_.OneIn(2) ? 100u : static_cast<uint32_t>(random_.Between(0, 30));
  }
  // Pods come and some leave; two clusters that differ in nothing but what is known.
  void Fill(Cluster& a, Cluster& b, size_t pods, bool known) {
    for (size_t p = 0; p < pods; ++p) {
      PodRequest pod = RandomPod(random_, "p" + std::to_string(p));
      pod.mode = "time-slice";
      if (known) pod = Using(pod, SomeUse());
      a.Learn(pod);
      b.Learn(pod);
      const auto placement = a.Decide(pod);
      if (!placement) continue;
      ASSERT_TRUE(a.Commit(pod, *placement));
      ASSERT_TRUE(b.Commit(pod, *placement));
      if (random_.OneIn(4)) {
        const std::string gone = "p" + std::to_string(random_.Between(0, static_cast<int64_t>(p)));
        ASSERT_EQ(a.Delete(gone).has_value(), b.Delete(gone).has_value());
      }
    }
  }
  std::pair<Cluster, Cluster> Two(Rule rule) {
    PlacementPolicy with;
    with.nodes = with.cards = rule;
    PlacementPolicy without = with;
    without.use_distance = 0;
    std::pair<Cluster, Cluster> two{Cluster(SmallModes(), with), Cluster(SmallModes(), without)};
    const auto nodes = static_cast<size_t>(random_.Between(1, 6));
    for (size_t n = 0; n < nodes; ++n) {
      Node node = NodeOf("n" + std::to_string(n), 1 + random_.Next() % 4);
      if (random_.OneIn(3)) node.cpu_milli = 8'000;
      for (Card& card : node.cards) card.island = static_cast<int32_t>(random_.Between(-1, 1));
      EXPECT_TRUE(two.first.SetNode(node));
      EXPECT_TRUE(two.second.SetNode(node));
    }
    return two;
  }
};

constexpr Rule kAllRules[] = {Rule::kScarcity, Rule::kFragmentation, Rule::kRemainder,
                              Rule::kBinpack,  Rule::kSpread,        Rule::kFirstFit,
                              Rule::kRandom};

TEST_P(RandomUse, WithoutKnowledgeEachDecisionIsTheRules) {
  for (const Rule rule : kAllRules) {
    auto [with, without] = Two(rule);
    for (int turn = 0; turn < 4; ++turn) {
      Fill(with, without, 12, false);
      for (int i = 0; i < 10; ++i) {
        const PodRequest pod = RandomPod(random_, "asked");
        UseChoice use;
        const auto a = with.Decide(pod, &use);
        const auto b = without.Decide(pod);
        ASSERT_EQ(a.has_value(), b.has_value());
        if (!a) continue;
        EXPECT_EQ(*a, *b) << RuleName(rule);
        EXPECT_EQ(use.instead_of, "");
      }
      for (const auto& [name, pod] : std::map(with.pods())) {
        ASSERT_TRUE(with.Delete(name));
        ASSERT_TRUE(without.Delete(name));
      }
    }
  }
}

// Of the GPUs that the placement is on, in millionths.
int64_t ExcessWith(const Cluster& cluster, const PodRequest& pod, const Placement& placement) {
  std::map<std::string, int64_t> with;
  for (const Vgpu& vgpu : placement.vgpus) {
    int64_t& card = with.emplace(vgpu.card, cluster.ExpectedUse(vgpu.card)).first->second;
    card += pod.expected_use.value_or(vgpu.fit.share).millionths();
  }
  int64_t excess = 0;
  for (const auto& [uuid, use] : with) excess += std::max<int64_t>(0, use - kGpu);
  return excess;
}

TEST_P(RandomUse, NoConstraintIsTradedAndTheExcessIsNoMoreThanTheRules) {
  int changed = 0;
  for (const Rule rule : kAllRules) {
    auto [with, without] = Two(rule);
    Fill(with, without, 30, true);
    for (int i = 0; i < 40; ++i) {
      PodRequest pod = RandomPod(random_, "asked");
      pod = Using(pod, SomeUse());
      UseChoice use;
      const auto a = with.Decide(pod, &use);
      const auto b = without.Decide(pod);
      ASSERT_EQ(a.has_value(), b.has_value()) << "a place is found where there is one";
      if (!a) continue;
      EXPECT_LE(ExcessWith(with, pod, *a), ExcessWith(with, pod, *b) + 25'000) << RuleName(rule);
      EXPECT_EQ(use.instead_of != "", *a != *b);
      if (*a == *b) continue;
      ++changed;
      EXPECT_TRUE(ByLoss(rule)) << RuleName(rule) << " says exactly where";
      // All else holds there: the pod could have asked for just these GPUs.
      PodRequest there = pod;
      there.uuids.clear();
      for (const Vgpu& vgpu : a->vgpus) there.uuids.push_back(vgpu.card);
      EXPECT_TRUE(without.DecideOn(a->node, there));
      ASSERT_TRUE(with.Commit(pod, *a));
      EXPECT_TRUE(Sound(with));
      ASSERT_TRUE(with.Delete(pod.name));
    }
  }
  RecordProperty("changed", changed);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomUse, testing::Range<uint64_t>(0, 24));

TEST(Contention, AGpuExecutesNoMoreThanItsTime) {
  Cluster cluster = OneNode(2, 0);
  Contention contention;
  std::vector<std::pair<PodRequest, Placement>> pods;
  for (const auto& [name, use] : {std::pair{"a", 100u}, std::pair{"b", 80u}, std::pair{"c", 10u}}) {
    PodRequest pod = Using(name, 30, use);
    const auto placement = PlaceKnowing(cluster, pod, UseKnown::kNone);
    ASSERT_TRUE(placement);
    contention.Add(pod, *placement);
    pods.emplace_back(pod, *placement);
  }
  EXPECT_EQ(contention.wanted(), policy::Share(1'900'000));
  EXPECT_EQ(contention.executed(), policy::kWhole) << "all on one GPU";
  contention.Remove(pods[0].first, pods[0].second);
  EXPECT_EQ(contention.executed(), policy::Share(900'000));
  contention.Remove(pods[1].first, pods[1].second);
  contention.Remove(pods[2].first, pods[2].second);
  EXPECT_EQ(contention.wanted(), policy::ShareSum());
  EXPECT_EQ(contention.executed(), policy::ShareSum());
}

}  // namespace
}  // namespace baton::devmgr
