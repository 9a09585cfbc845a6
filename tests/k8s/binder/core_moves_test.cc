// Moves that are proposed for a pod that waits: they could be made, only of pods that may be moved,
// and then the pod has its room.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "devmgr/modes/modes.h"
#include "devmgr/placement/what_if.h"
#include "k8s/cluster/cluster_view.h"
#include "k8s/types/gpu_pod.h"
#include "tests/k8s/binder/core_fixture.h"

namespace baton::k8s::testing {
namespace {

struct Move {
  std::string pod;
  std::string from_node, from_gpu;
  std::string to_node, to_gpu;
};

std::vector<Move> ProposedIn(const std::string& message) {
  static const std::regex moved(
      R"re((?:if|and) (\S+) moved from (?:GPU (\S+) of (\S+) to GPU (\d+)|(\S+) \(GPU (\S+)\) to (\S+) \(GPU (\S+)\)))re");
  std::vector<Move> moves;
  for (std::sregex_iterator it(message.begin(), message.end(), moved), end; it != end; ++it) {
    const std::smatch& m = *it;
    if (m[2].matched) {
      moves.push_back({m[1], m[3], m[2], m[3], m[4]});
    } else {
      moves.push_back({m[1], m[5], m[6], m[7], m[8]});
    }
  }
  return moves;
}

const Json kHasController{{"apiVersion", "apps/v1"},
                          {"kind", "ReplicaSet"},
                          {"name", "web"},
                          {"uid", "1"},
                          {"controller", true}};

// A pod that a controller makes, unless `owner` is null.
void AddPod(World& world, const std::string& name, int share, const Json& owner = kHasController,
            const Json& annotations = {}, const Json& spec = {}) {
  world.AddPod(name, {{"baton.dev/gpu-share", std::to_string(share)}}, annotations, spec);
  if (!owner.is_null()) {
    world.Patch(resources::kPods, name,
                {{"metadata", {{"ownerReferences", Json::array({owner})}}}});
  }
}

Json OnNode(const char* node) { return {{"nodeSelector", {{"kubernetes.io/hostname", node}}}}; }

// Two nodes of one GPU, each with 40 % taken by `a` and `b`, which were made with these.
class Halves {
 public:
  Halves(const Json& owner, const Json& annotations = {}, const Json& spec = {})
      : world(1, Options()) {
    for (const char* node : {"n1", "n2"}) world.AddNode(node, 1);
    AddPod(world, "filler", 60, kHasController, {}, OnNode("n1"));
    EXPECT_TRUE(world.Settle());
    AddPod(world, "b", 50, owner, annotations, spec);
    EXPECT_TRUE(world.Settle());
    world.Delete(resources::kPods, "filler");
    world.Reap();
    AddPod(world, "a", 45, Json(), {}, OnNode("n1"));
    EXPECT_TRUE(world.Settle());
    EXPECT_TRUE(world.IsBound("a") && world.IsBound("b"));
    AddPod(world, "whole", 100);
    EXPECT_TRUE(world.Settle());
  }
  std::string Said() { return MessageOf(world, "whole"); }

  World world;
};

TEST(CoreMoves, AreProposedInTheConditionOfThePodThatWaits) {
  Halves halves(kHasController);
  EXPECT_EQ(
      halves.Said(),
      "Unschedulable: 0/2 nodes available: 2 insufficient GPU share or memory; it would fit if "
      "team/b moved from n2 (GPU 0) to n1 (GPU 0)\n"
      "n1: GPU 0: 55 % of it are free, 100 % wanted\n"
      "n2: GPU 0: 50 % of it are free, 100 % wanted");
  // The controller makes another as soon as this one is told to end.
  halves.world.Delete(resources::kPods, "b");
  AddPod(halves.world, "b2", 50);
  ASSERT_TRUE(halves.world.Settle());
  EXPECT_TRUE(halves.world.IsBound("b2"));
  EXPECT_FALSE(halves.world.IsBound("whole"));
  halves.world.Reap();
  ASSERT_TRUE(halves.world.Settle());
  EXPECT_TRUE(halves.world.IsBound("whole"));
  EXPECT_EQ(halves.world.wrong(), "");
}

TEST(CoreMoves, NoPodIsMovedThatMustStay) {
  Json daemon = kHasController;
  daemon["kind"] = "DaemonSet";
  const std::map<std::string, std::unique_ptr<Halves>> stay = [&] {
    std::map<std::string, std::unique_ptr<Halves>> made;
    made["without a controller"] = std::make_unique<Halves>(Json());
    made["of a DaemonSet"] = std::make_unique<Halves>(daemon);
    made["not safe to evict"] = std::make_unique<Halves>(
        kHasController, Json{{"cluster-autoscaler.kubernetes.io/safe-to-evict", "false"}});
    made["not to be disrupted"] =
        std::make_unique<Halves>(kHasController, Json{{"karpenter.sh/do-not-disrupt", "true"}});
    made["selects its node"] = std::make_unique<Halves>(kHasController, Json(), OnNode("n2"));
    made["affinity to its node"] =
        std::make_unique<Halves>(kHasController, Json(),
                                 Json{{"affinity",
                                       {{"nodeAffinity",
                                         {{"requiredDuringSchedulingIgnoredDuringExecution",
                                           {{"nodeSelectorTerms",
                                             {{{"matchExpressions",
                                                {{{"key", "kubernetes.io/hostname"},
                                                  {"operator", "In"},
                                                  {"values", {"n2"}}}}}}}}}}}}}}});
    made["names its GPU"] =
        std::make_unique<Halves>(kHasController, Json{{"baton.dev/gpu-uuid", "GPU-n2-0"}});
    return made;
  }();
  for (const auto& [how, halves] : stay) {
    EXPECT_NE(halves->Said().find("2 insufficient GPU share"), std::string::npos) << how;
    EXPECT_TRUE(ProposedIn(halves->Said()).empty()) << how << ": " << halves->Said();
  }
}

TEST(CoreMoves, TaintsKeepTheMovedPodOff) {
  const Json special{{"tolerations", {{{"key", "special"}, {"operator", "Exists"}}}}};
  for (const bool tolerates : {false, true}) {
    World world(1, Options());
    world.AddNode("n1", 1);
    AddPod(world, "stays", 10, Json());
    AddPod(world, "b", 50, kHasController, {}, tolerates ? special : Json());
    ASSERT_TRUE(world.Settle());
    world.AddNode("n2", 1, 80'000,
                  {{"spec", {{"taints", {{{"key", "special"}, {"effect", "NoSchedule"}}}}}}});
    AddPod(world, "waits", 60);
    ASSERT_TRUE(world.Settle());
    EXPECT_EQ(ProposedIn(MessageOf(world, "waits")).size(), tolerates ? 1u : 0u)
        << MessageOf(world, "waits");
  }
}

TEST(CoreMoves, OnlyOfPodsOfNoHigherPriorityAndOfNoGang) {
  Halves halves(kHasController);
  halves.world.AddClass("low", -10);
  AddPod(halves.world, "lower", 100, kHasController, {}, {{"priorityClassName", "low"}});
  halves.world.Delete(resources::kPods, "whole");
  ASSERT_TRUE(halves.world.Settle());
  EXPECT_NE(MessageOf(halves.world, "lower"), "");
  EXPECT_TRUE(ProposedIn(MessageOf(halves.world, "lower")).empty());
  Halves gang(kHasController, {{"baton.dev/gang", "g"}, {"baton.dev/gang-size", "1"}});
  EXPECT_TRUE(ProposedIn(gang.Said()).empty());
}

// A random cluster that is half empty, and one pod that waits there.
class RandomMoves {
 public:
  explicit RandomMoves(uint64_t seed) : world_(seed, Options()), random_(seed) {
    const size_t nodes = static_cast<size_t>(random_.Between(2, 4));
    for (size_t n = 0; n < nodes; ++n) {
      Json rest = {{"metadata", {{"labels", {{"zone", random_.OneIn(2) ? "a" : "b"}}}}}};
      if (random_.OneIn(4)) {
        rest["spec"]["taints"] = Json::array({{{"key", "special"}, {"effect", "NoSchedule"}}});
      }
      world_.AddNode(fmt::format("n{}", n), static_cast<size_t>(random_.Between(1, 3)), 80'000,
                     rest);
    }
    for (size_t p = 0; p < 24; ++p) Add(fmt::format("p{}", p));
    EXPECT_TRUE(world_.Settle());
    for (const auto& [name, allowed] : allowed_) {
      if (world_.IsBound(name) && !random_.OneIn(3)) continue;
      world_.Delete(shares_.contains(name) ? resources::kSharePods : resources::kPods, name);
      world_.Delete(resources::kPods, name);
    }
    world_.Reap();
    EXPECT_TRUE(world_.Settle());
    world_.Reap();
    EXPECT_TRUE(world_.Settle());
    world_.AddPod("waits", {{"baton.dev/gpu-share", std::to_string(random_.Between(40, 100))}});
    EXPECT_TRUE(world_.Settle());
  }

  std::vector<Move> Proposed() { return ProposedIn(MessageOf(world_, "waits")); }

  // What is wrong with them: a sentence.
  std::string WrongWith(const std::vector<Move>& moves) {
    const devmgr::Cluster& cluster = world_.core().cluster();
    devmgr::Cluster copy(devmgr::TokenModes(), cluster.policy());
    for (const devmgr::Node* node : cluster.Nodes()) {
      if (!devmgr::CopyNode(*node, cluster.PodsOn(node->name), &copy)) return "no copy";
    }
    for (const Move& move : moves) {
      const std::string name = move.pod.substr(std::string(kSpace).size() + 1);
      const devmgr::PlacedPod* pod = cluster.Find(move.pod);
      if (pod == nullptr || pod->placement.node != move.from_node) return name + " is not there";
      if (!controlled_.contains(name)) return name + " has no controller";
      if (!allowed_.at(name).contains(move.to_node)) return name + " may not go there";
      devmgr::PodRequest request = pod->request;
      request.uuids = {fmt::format("GPU-{}-{}", move.to_node, move.to_gpu)};
      if (!copy.Delete(move.pod)) return name + " is moved twice";
      const auto there = copy.DecideOn(move.to_node, request);
      if (!there) return name + " has no room there: " + there.error().message;
      if (!copy.Commit(pod->request, *there)) return name + " cannot be booked there";
    }
    devmgr::PodRequest waits = ReadGpuPod(*world_.Get(resources::kPods, "waits"), 1'024)->request;
    for (const devmgr::Node* node : cluster.Nodes()) {
      if (!tainted(node->name) && copy.DecideOn(node->name, waits)) return "";
    }
    return "there is no room after them";
  }

  // Ends those pods. A ReplicaSet makes another at once, a SharePod once the pod has gone.
  void Make(const std::vector<Move>& moves) {
    for (const Move& move : moves) {
      const std::string name = move.pod.substr(std::string(kSpace).size() + 1);
      Json pod = *world_.Get(resources::kPods, name);
      world_.Delete(resources::kPods, name);
      if (shares_.contains(name)) continue;
      pod["metadata"] = {{"name", name + "-again"},
                         {"namespace", kSpace},
                         {"ownerReferences", Json::array({kHasController})}};
      pod["spec"].erase("nodeName");
      pod.erase("status");
      world_.Put(resources::kPods, std::move(pod));
    }
    EXPECT_TRUE(world_.Settle());
    world_.Reap();
    EXPECT_TRUE(world_.Settle());
  }
  World& world() { return world_; }

 private:
  bool tainted(const std::string& node) {
    return Find(*world_.Get(resources::kNodes, node), "spec/taints") != nullptr;
  }

  void Add(const std::string& name) {
    Json spec = Json::object();
    std::string zone;
    if (random_.OneIn(4)) {
      zone = random_.OneIn(2) ? "a" : "b";
      spec["affinity"] = {
          {"nodeAffinity",
           {{"requiredDuringSchedulingIgnoredDuringExecution",
             {{"nodeSelectorTerms",
               {{{"matchExpressions",
                  {{{"key", "zone"}, {"operator", "In"}, {"values", {zone}}}}}}}}}}}}};
    }
    const bool tolerates = random_.OneIn(3);
    if (tolerates) spec["tolerations"] = {{{"key", "special"}, {"operator", "Exists"}}};
    std::set<std::string>& allowed = allowed_[name];
    for (const Json& node : world_.All(resources::kNodes)) {
      const std::string at = TextAt(node, "metadata/name");
      const bool fits = zone.empty() || TextAt(node, "metadata/labels/zone") == zone;
      if (fits && (tolerates || !tainted(at))) allowed.insert(at);
    }
    const int share = 10 * static_cast<int>(random_.Between(1, 6));
    const int64_t kind = random_.Between(0, 3);
    if (kind == 0) {
      shares_.insert(name);
      controlled_.insert(name);
      world_.AddShare(name, {{"request", std::to_string(share)}}, spec);
    } else {
      AddPod(world_, name, share, kind == 1 ? Json() : kHasController, {}, spec);
      if (kind != 1) controlled_.insert(name);
    }
  }

  World world_;
  Random random_;
  std::map<std::string, std::set<std::string>> allowed_;  // nodes, by pod
  std::set<std::string> controlled_;
  std::set<std::string> shares_;
};

TEST(CoreMoves, InRandomClustersTheyCanBeMadeAndMakeTheRoom) {
#ifdef BATON_SANITIZED
  const std::vector<uint64_t> seeds = {4, 12, 17, 18, 25, 59};
#else
  std::vector<uint64_t> seeds(60);
  std::iota(seeds.begin(), seeds.end(), 1);
#endif
  uint64_t proposed = 0, several = 0;
  for (const uint64_t seed : seeds) {
    RandomMoves cluster(seed);
    const std::vector<Move> moves = cluster.Proposed();
    if (moves.empty()) continue;
    ++proposed;
    several += moves.size() > 1;
    const std::string said = MessageOf(cluster.world(), "waits");
    ASSERT_EQ(cluster.WrongWith(moves), "") << "seed " << seed << ": " << said;
    cluster.Make(moves);
    EXPECT_TRUE(cluster.world().IsBound("waits")) << "seed " << seed << ": " << said;
    EXPECT_EQ(cluster.world().wrong(), "");
  }
  EXPECT_GT(proposed, seeds.size() / 10);
  EXPECT_GT(several, 0u);
}

}  // namespace
}  // namespace baton::k8s::testing
