#include "devmgr/placement/defrag.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <optional>
#include <set>

#include "tests/devmgr/small_cluster.h"
#include "tests/scale.h"

namespace baton::devmgr {
namespace {

std::optional<PodRequest> Anyone(const PlacedPod& pod) { return pod.request; }
MoveRequest Only(const std::function<bool(const PlacedPod&)>& may) {
  return [may](const PlacedPod& pod) { return may(pod) ? Anyone(pod) : std::nullopt; };
}

void PutOnCard(Cluster& cluster, const std::string& card, const PodRequest& request) {
  PodRequest held = request;
  held.uuids = {card};
  const auto placement = cluster.Decide(held);
  ASSERT_TRUE(placement) << placement.error().message;
  ASSERT_TRUE(cluster.Commit(request, *placement));
}

// Carries the plan out on the cluster itself.
bool Holds(Cluster& cluster, const DefragPlan& plan, const PodRequest& request) {
  for (const PodMove& move : plan.moves) {
    const PlacedPod* pod = cluster.Find(move.pod);
    if (pod == nullptr || !(pod->placement == move.from)) return false;
    if (!cluster.Move(move.pod, move.to) || !Sound(cluster)) return false;
  }
  return cluster.Commit(request, plan.placement).has_value() && Sound(cluster);
}

// By trying all moves of all pods to all GPUs, each pod once: whether `left` are enough.
bool Enough(Cluster& cluster, const PodRequest& request, uint32_t left,
            std::set<std::string>& moved) {
  if (cluster.Decide(request)) return true;
  if (left == 0) return false;
  std::vector<std::string> names;
  for (const auto& [name, pod] : cluster.pods()) names.push_back(name);
  for (const std::string& name : names) {
    if (moved.contains(name)) continue;
    const PlacedPod pod = *cluster.Find(name);
    for (const Node* node : cluster.Nodes()) {
      for (const Card& card : node->cards) {
        if (!cluster.Delete(name)) return false;
        PodRequest held = pod.request;
        held.uuids = {card.uuid};
        bool found = false;
        if (const auto there = cluster.DecideOn(node->name, held);
            there && cluster.Commit(pod.request, *there)) {
          moved.insert(name);
          found = Enough(cluster, request, left - 1, moved);
          moved.erase(name);
          EXPECT_TRUE(cluster.Delete(name));
        }
        EXPECT_TRUE(cluster.Commit(pod.request, pod.placement));
        if (found) return true;
      }
    }
  }
  return false;
}

TEST(Defrag, OneMoveEmptiesAGpu) {
  Cluster cluster(SmallModes());
  ASSERT_TRUE(cluster.SetNode(NodeOf("a", 2)));
  PutOnCard(cluster, "a-0", PodOf("one", 500'000));
  PutOnCard(cluster, "a-1", PodOf("two", 400'000));
  const PodRequest whole = PodOf("whole", 1'000'000);
  const auto plan = Defrag(cluster, SmallModes(), whole, Anyone);
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->moves.size(), 1u);
  EXPECT_TRUE(plan->exact);
  EXPECT_TRUE(Holds(cluster, *plan, whole));
}

TEST(Defrag, OneThatMakesRoomMayNeedRoomItself) {
  Cluster cluster(SmallModes());
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(cluster.SetNode(NodeOf(name, 1)));
  // 0.7 can only go where 0.4 was, and that only beside the 0.6.
  PutOnCard(cluster, "a-0", PodOf("p7", 700'000));
  PutOnCard(cluster, "b-0", PodOf("p4", 400'000));
  PutOnCard(cluster, "c-0", PodOf("p6", 600'000));
  const PodRequest whole = PodOf("whole", 1'000'000);
  const auto one = Defrag(cluster, SmallModes(), whole, Anyone);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->moves.size(), 1u);  // p4 to c frees b
  const auto plan = Defrag(cluster, SmallModes(), whole,
                           Only([](const PlacedPod& pod) { return pod.request.name != "p6"; }));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->moves.size(), 1u);
  // Held to a's GPU, the one there must go first, and for that the one on b.
  PodRequest here = whole;
  here.uuids = {"a-0"};
  const auto chain = Defrag(cluster, SmallModes(), here, Anyone);
  ASSERT_TRUE(chain) << chain.error().message;
  ASSERT_EQ(chain->moves.size(), 2u);
  EXPECT_EQ(chain->moves[0].pod, "p4");
  EXPECT_EQ(chain->moves[1].pod, "p7");
  EXPECT_TRUE(chain->exact);
  EXPECT_TRUE(Holds(cluster, *chain, here));
}

TEST(Defrag, SaysWhyNot) {
  Cluster cluster(SmallModes());
  ASSERT_TRUE(cluster.SetNode(NodeOf("a", 1)));
  PutOnCard(cluster, "a-0", PodOf("one", 500'000));
  const PodRequest whole = PodOf("whole", 1'000'000);
  EXPECT_EQ(Defrag(cluster, SmallModes(), whole, Anyone).error().message,
            "no 4 moves of pods that may be moved make room for whole");
  DefragOptions hasty;
  hasty.steps = 1;
  EXPECT_EQ(Defrag(cluster, SmallModes(), whole, Anyone, hasty).error().message,
            "no moves were found that make room for whole; the search was given up after 1 looks "
            "at a node");
  EXPECT_TRUE(Defrag(cluster, SmallModes(), PodOf("half", 500'000), Anyone)->moves.empty());
  PodRequest other = whole;
  other.models = {"TPU"};
  EXPECT_EQ(Defrag(cluster, SmallModes(), other, Anyone).error().code, ErrorCode::kNotFound);
}

RC_GTEST_PROP(DefragLaw, HasTheFewestMovesOfAllThatThereAre, ()) {
  Random random(*rc::gen::arbitrary<uint64_t>());
  for (int i = 0; i < (kSanitized ? 2 : 6); ++i) {
    Cluster cluster(SmallModes());
    const auto nodes = random.Between(1, 3);
    for (int64_t n = 0; n < nodes; ++n) {
      Node node = NodeOf("n" + std::to_string(n), nodes == 3 ? 1 : 2);
      if (random.OneIn(4)) node.cpu_milli = 4'000;
      RC_ASSERT(cluster.SetNode(node).has_value());
    }
    PlacementPolicy policy;
    policy.nodes = policy.cards = random.OneIn(2) ? Rule::kSpread : Rule::kRandom;
    cluster.SetPolicy(policy);
    for (int p = 0; p < 5; ++p) {
      PodRequest pod =
          PodOf("p" + std::to_string(p), static_cast<uint32_t>(random.Between(1, 7)) * 100'000);
      if (random.OneIn(3)) pod.cpu_milli = 1'500;
      if (random.OneIn(8)) pod.exclusion = "x";
      if (const auto place = cluster.Decide(pod)) {
        RC_ASSERT(cluster.Commit(pod, *place).has_value());
      }
    }
    PodRequest request = PodOf("new", static_cast<uint32_t>(random.Between(3, 10)) * 100'000);
    if (nodes < 3 && random.OneIn(3)) request.containers[0].vgpus[0].count = 2;
    if (random.OneIn(3)) request.cpu_milli = 1'500;
    if (cluster.Decide(request)) continue;

    DefragOptions options;
    options.moves = 3;
    const Print before = PrintOf(cluster);
    const auto plan = Defrag(cluster, SmallModes(), request, Anyone, options);
    RC_ASSERT(PrintOf(cluster) == before);
    std::optional<uint32_t> fewest;
    for (uint32_t moves = 1; moves <= options.moves && !fewest; ++moves) {
      std::set<std::string> moved;
      if (Enough(cluster, request, moves, moved)) fewest = moves;
    }
    RC_ASSERT(PrintOf(cluster) == before);
    RC_ASSERT(plan.has_value() == fewest.has_value());
    RC_CLASSIFY(fewest.value_or(0) > 1, "several moves");
    if (!plan) continue;
    RC_ASSERT(plan->exact);
    RC_ASSERT(plan->moves.size() == *fewest);
    RC_ASSERT(*Defrag(cluster, SmallModes(), request, Anyone, options) == *plan);
    RC_ASSERT(Holds(cluster, *plan, request));
  }
}

RC_GTEST_PROP(DefragLaw, PlansCanBeCarriedOutAndTouchOnlyWhatMayBeMoved, ()) {
  Random random(*rc::gen::arbitrary<uint64_t>());
  Cluster cluster = RandomCluster(random, 4, 4, 24);
  PodRequest request = RandomPod(random, "new");
  const uint64_t salt = random.Next();
  const PodTest movable = [&](const PlacedPod& pod) {
    return (pod.request.name.back() + salt) % 3 != 0;
  };
  // Some may not go to every node, though the cluster does not know it of them.
  const auto known = cluster.Nodes();
  const auto off = std::make_shared<const std::vector<ExcludedNode>>(
      1, ExcludedNode{known[random.Next() % known.size()]->name, ""});
  const auto kept_off = [&](const PlacedPod& pod) {
    return (pod.request.name.back() + salt) % 3 == 1;
  };
  const MoveRequest moved_as = [&](const PlacedPod& pod) {
    std::optional<PodRequest> its;
    if (movable(pod)) its = pod.request;
    if (its && kept_off(pod)) its->off_nodes = off;
    return its;
  };
  DefragOptions options;
  options.steps = 20'000;
  if (random.OneIn(4)) options.nodes = static_cast<size_t>(random.Between(1, 3));
  if (random.OneIn(4)) options.off = {cluster.Nodes().back()->name};
  const auto plan = Defrag(cluster, SmallModes(), request, moved_as, options);
  RC_CLASSIFY(plan && plan->moves.size() > 1, "several moves");
  RC_CLASSIFY(plan && plan->moves.size() == 1, "one move");
  if (!plan) return;
  RC_ASSERT(plan->moves.size() <= options.moves);
  std::set<std::string> moved, nodes;
  for (const PodMove& move : plan->moves) {
    const PlacedPod& pod = *cluster.Find(move.pod);
    RC_ASSERT(movable(pod));
    RC_ASSERT(!kept_off(pod) || move.to.node != off->front().node);
    RC_ASSERT(moved.insert(move.pod).second);
    nodes.insert({move.from.node, move.to.node});
  }
  if (!plan->moves.empty()) nodes.insert(plan->placement.node);
  RC_ASSERT(nodes.size() <= options.nodes);
  for (const std::string& name : options.off) RC_ASSERT(!nodes.contains(name));
  RC_ASSERT(Holds(cluster, *plan, request));
}

}  // namespace
}  // namespace baton::devmgr
