#include "devmgr/placement/preemption.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "tests/devmgr/small_cluster.h"

namespace baton::devmgr {
namespace {

using Loss =
    std::tuple<size_t, std::vector<int32_t>, uint64_t, std::string, std::vector<std::string>>;

Loss LossOf(const Cluster& cluster, const std::string& node, std::vector<std::string> pods) {
  std::vector<int32_t> priorities;
  uint64_t share = 0;
  for (const std::string& name : pods) {
    const PlacedPod* pod = cluster.Find(name);
    priorities.push_back(pod->request.priority);
    for (const Vgpu& vgpu : pod->placement.vgpus) share += vgpu.fit.share.millionths();
  }
  std::sort(priorities.begin(), priorities.end(), std::greater<>());
  std::sort(pods.begin(), pods.end());
  return {pods.size(), priorities, share, node, pods};
}

// Whether the pod fits on the node without these. The cluster is as it was afterwards.
bool FitsWithout(Cluster& cluster, const std::string& node, const std::vector<std::string>& pods,
                 const PodRequest& request) {
  std::vector<PlacedPod> gone;
  for (const std::string& name : pods) {
    gone.push_back(*cluster.Find(name));
    EXPECT_TRUE(cluster.Delete(name));
  }
  const bool fits = cluster.DecideOn(node, request).has_value();
  for (size_t i = gone.size(); i-- > 0;) {
    EXPECT_TRUE(cluster.Commit(gone[i].request, gone[i].placement));
  }
  return fits;
}

// By trying all sets of pods on all nodes.
std::optional<Loss> LeastLoss(Cluster& cluster, const PodRequest& request) {
  std::optional<Loss> least;
  for (const Node* node : cluster.Nodes()) {
    std::vector<std::string> lower;
    for (const PlacedPod* pod : cluster.PodsOn(node->name)) {
      if (pod->request.priority < request.priority) lower.push_back(pod->request.name);
    }
    for (uint32_t mask = 1; mask < 1u << lower.size(); ++mask) {
      std::vector<std::string> pods;
      for (size_t i = 0; i < lower.size(); ++i) {
        if ((mask >> i & 1) != 0) pods.push_back(lower[i]);
      }
      const Loss loss = LossOf(cluster, node->name, pods);
      if (least && !(loss < *least)) continue;
      if (FitsWithout(cluster, node->name, pods, request)) least = loss;
    }
  }
  return least;
}

Cluster TwoNodes() {
  Cluster cluster(SmallModes());
  EXPECT_TRUE(cluster.SetNode(NodeOf("a", 1)));
  EXPECT_TRUE(cluster.SetNode(NodeOf("b", 1)));
  return cluster;
}

void PutOn(Cluster& cluster, const std::string& node, const PodRequest& request) {
  const auto placement = cluster.DecideOn(node, request);
  ASSERT_TRUE(placement) << placement.error().message;
  ASSERT_TRUE(cluster.Commit(request, *placement));
}

TEST(Preemption, OnePodGoesRatherThanTwoOfLowerPriority) {
  Cluster cluster = TwoNodes();
  PutOn(cluster, "a", PodOf("a1", 500'000, 1, 0));
  PutOn(cluster, "a", PodOf("a2", 500'000, 1, 0));
  PutOn(cluster, "b", PodOf("b1", 1'000'000, 1, 4));
  const auto found = Preempt(cluster, SmallModes(), PodOf("new", 1'000'000, 1, 5));
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->node, "b");
  EXPECT_EQ(found->pods, std::vector<std::string>{"b1"});
  EXPECT_TRUE(found->exact);
  EXPECT_EQ(found->placement.vgpus.at(0).card, "b-0");
}

TEST(Preemption, OfAsManyTheLowerPriorityGoesThenTheSmallerShare) {
  Cluster cluster = TwoNodes();
  PutOn(cluster, "a", PodOf("big", 900'000, 1, 1));
  PutOn(cluster, "b", PodOf("low", 950'000, 1, 0));
  EXPECT_EQ(Preempt(cluster, SmallModes(), PodOf("new", 600'000, 1, 5))->pods,
            std::vector<std::string>{"low"});
  ASSERT_TRUE(cluster.Delete("low"));
  PutOn(cluster, "b", PodOf("even", 950'000, 1, 1));
  EXPECT_EQ(Preempt(cluster, SmallModes(), PodOf("new", 600'000, 1, 5))->pods,
            std::vector<std::string>{"big"});
}

TEST(Preemption, NobodyGoesForOneThatFitsOrForOneOfTheSamePriority) {
  Cluster cluster = TwoNodes();
  PutOn(cluster, "a", PodOf("a1", 1'000'000, 1, 5));
  const auto fits = Preempt(cluster, SmallModes(), PodOf("new", 1'000'000, 1, 9));
  ASSERT_FALSE(fits);
  EXPECT_EQ(fits.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(fits.error().message, "new fits on node b as it is; nobody has to go");
  PutOn(cluster, "b", PodOf("b1", 1'000'000, 1, 5));
  const auto none = Preempt(cluster, SmallModes(), PodOf("new", 1'000'000, 1, 5));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(none.error().message,
            "new: of 2 nodes there is none on which it fits even without the pods that may go");
}

TEST(Preemption, SparedPodsAndAvoidedNodesAreLeftAlone) {
  Cluster cluster = TwoNodes();
  PutOn(cluster, "a", PodOf("a1", 1'000'000));
  PutOn(cluster, "b", PodOf("b1", 1'000'000));
  const Names spared = {"a1"};
  const Names avoided = {"b"};
  DisplacementOptions options;
  options.spared = &spared;
  EXPECT_EQ(Preempt(cluster, SmallModes(), PodOf("new", 500'000, 1, 1), options)->node, "b");
  options.avoided = &avoided;
  EXPECT_FALSE(Preempt(cluster, SmallModes(), PodOf("new", 500'000, 1, 1), options));
}

TEST(Preemption, CompanyThatIsNeededDoesNotGo) {
  Cluster cluster = TwoNodes();
  PodRequest friend_a = PodOf("a1", 600'000);
  friend_a.affinity = "w";
  PodRequest friend_b = friend_a;
  PutOn(cluster, "a", friend_a);
  PutOn(cluster, "b", PodOf("b1", 900'000));
  PodRequest request = PodOf("new", 500'000, 1, 1);
  request.affinity = "w";
  // Without a1 there is no such pod anywhere, so any GPU would do.
  EXPECT_EQ(Preempt(cluster, SmallModes(), request)->pods, std::vector<std::string>{"a1"});
  PutOn(cluster, "a", PodOf("a2", 300'000, 1, 0));
  // With a1 where it is, a2 makes room on its GPU.
  request.containers[0].vgpus[0].share = policy::Share(400'000);
  EXPECT_EQ(Preempt(cluster, SmallModes(), request)->pods, std::vector<std::string>{"a2"});
}

// With all gone that may, it would fit nowhere.
TEST(Preemption, CompanyIsKeptWhereTheOtherOneHasNoRoomBesideIt) {
  Cluster cluster(SmallModes());
  ASSERT_TRUE(cluster.SetNode(NodeOf("a", 2)));
  const auto put = [&](const char* name, const char* card, uint32_t share, int32_t priority,
                       const char* affinity) {
    PodRequest pod = PodOf(name, share, 1, priority);
    pod.uuids = {card};
    pod.affinity = affinity;
    PutOn(cluster, "a", pod);
  };
  put("friend", "a-0", 100'000, 0, "w");
  put("big", "a-0", 600'000, 0, "");
  PodRequest high = PodOf("high", 100'000, 1, 3);
  high.uuids = {"a-1"};
  PutOn(cluster, "a", high);
  PodRequest far = PodOf("far", 900'000, 1, 3);
  far.affinity = "w";
  ASSERT_TRUE(
      cluster.Commit(far, {"a", {{0, 0, "a-1", "time-slice", {policy::Share(900'000), 0}, ""}}}));
  PodRequest request = PodOf("new", 500'000, 1, 1);
  request.affinity = "w";
  const auto found = Preempt(cluster, SmallModes(), request);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->pods, std::vector<std::string>{"big"});
  EXPECT_EQ(found->placement.vgpus.at(0).card, "a-0");
}

RC_GTEST_PROP(PreemptionLaw, IsTheLeastOfAllSetsOnAllNodes, ()) {
  Random random(*rc::gen::arbitrary<uint64_t>());
  for (int i = 0; i < 10; ++i) {
    Cluster cluster = RandomCluster(random, 1 + random.Next() % 3, 3, 12);
    PodRequest request = RandomPod(random, "new");
    request.priority = static_cast<int32_t>(random.Between(1, 4));
    if (cluster.Decide(request)) continue;
    const Print before = PrintOf(cluster);
    const auto found = Preempt(cluster, SmallModes(), request);
    RC_ASSERT(PrintOf(cluster) == before);
    const std::optional<Loss> least = LeastLoss(cluster, request);
    RC_ASSERT(found.has_value() == least.has_value());
    RC_CLASSIFY(found && found->pods.size() > 1, "several go");
    if (!found) continue;
    RC_ASSERT(found->exact);
    RC_ASSERT(LossOf(cluster, found->node, found->pods) == *least);
    RC_ASSERT(*Preempt(cluster, SmallModes(), request) == *found);
    for (const std::string& pod : found->pods) RC_ASSERT(cluster.Delete(pod).has_value());
    RC_ASSERT(cluster.Commit(request, found->placement).has_value());
    RC_ASSERT(Sound(cluster));
  }
}

RC_GTEST_PROP(PreemptionLaw, WithoutTimeToSearchItIsStillNoMoreThanItTakes, ()) {
  Random random(*rc::gen::arbitrary<uint64_t>());
  Cluster cluster = RandomCluster(random, 2, 4, 20);
  PodRequest request = RandomPod(random, "new");
  request.affinity = "";
  request.priority = 4;
  DisplacementOptions options;
  options.decisions = 1;
  const auto found = Preempt(cluster, SmallModes(), request, options);
  RC_CLASSIFY(found && found->pods.size() > 1, "several go");
  if (!found) return;
  RC_ASSERT(FitsWithout(cluster, found->node, found->pods, request));
  for (const std::string& pod : found->pods) {
    std::vector<std::string> fewer = found->pods;
    std::erase(fewer, pod);
    RC_ASSERT(!FitsWithout(cluster, found->node, fewer, request));
  }
}

}  // namespace
}  // namespace baton::devmgr
