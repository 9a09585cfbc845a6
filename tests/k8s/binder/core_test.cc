// The binder's core: where pods are placed and bound, and what a waiting pod says.
#include "k8s/binder/core.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "k8s/cluster/node_filter.h"
#include "k8s/cluster/objects.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/share_pod.h"
#include "tests/k8s/binder/core_fixture.h"
#include "tests/k8s/binder/objects.h"
#include "tests/k8s/binder/world.h"

namespace baton::k8s::testing {
namespace {

// A node whose device plugin has registered `units` of shares.
Json Plugin(int64_t units) {
  return {{"status", {{"allocatable", {{"baton.dev/gpu-share", std::to_string(units)}}}}}};
}

TEST(CorePlacement, AGpuNodeThatTellsOnlyItsKeyTellsNothingOfGpus) {
  FedByHand cluster(Options());
  const Json whole{{"status", {{"allocatable", {{"nvidia.com/gpu", "1"}}}}}};
  cluster.core.Changed(Watched::kNode, cluster.Stamp(NodeOf("n2", whole), "n2"));
  Json gpu_node = CardsOn("n2", 1);
  Json key = gpu_node;
  key.erase("status");
  cluster.core.Changed(Watched::kGpuNode, cluster.Stamp(key, "gpus"));
  cluster.Step();
  EXPECT_NE(cluster.core.cluster().FindCard("n2/0"), nullptr) << "guessed";
  cluster.core.Changed(Watched::kGpuNode, cluster.Stamp(gpu_node, "gpus"));
  cluster.Step();
  EXPECT_EQ(cluster.core.cluster().FindCard("n2/0"), nullptr);
  EXPECT_NE(cluster.core.cluster().FindCard("GPU-n2-0"), nullptr);
}

TEST(CorePlacement, WhatANodeExpectsOfItsPodsReachesTheModel) {
  FedByHand cluster(Options());
  cluster.core.Changed(Watched::kNode, cluster.Stamp(NodeOf("n2"), "n2"));
  Json gpu_node = CardsOn("n2", 2);
  gpu_node["status"]["cards"][0]["useBeyondRequests"] = 70;
  cluster.core.Changed(Watched::kGpuNode, cluster.Stamp(gpu_node, "gpus"));
  cluster.Step();
  const devmgr::Cluster& model = cluster.core.cluster();
  EXPECT_EQ(model.ExpectedUse("GPU-n2-0"), 700'000);
  EXPECT_EQ(model.ExpectedUse("GPU-n2-1"), 0);
  EXPECT_EQ(model.UseOf("GPU-n2-0")->share, policy::Share(0)) << "nobody is promised it";
  cluster.core.Changed(Watched::kGpuNode, cluster.Stamp(CardsOn("n2", 2), "gpus"));
  cluster.Step();
  EXPECT_EQ(model.ExpectedUse("GPU-n2-0"), 0);
}

TEST(CorePlacement, SharePodGetsPlacementChildAndBinding) {
  World world(1, Options());
  world.AddNode("n1", 2);
  world.AddShare("notebook", {{"request", "30"}, {"limit", "60"}, {"memory", "4Gi"}},
                 {{"restartPolicy", "Never"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.wrong(), "");
  const auto pod = world.Get(resources::kPods, "notebook");
  ASSERT_TRUE(pod);
  EXPECT_EQ(TextAt(*pod, "spec/nodeName"), "n1");
  EXPECT_EQ(TextAt(*pod, "spec/schedulerName"), "baton");
  const auto owner = world.Get(resources::kSharePods, "notebook");
  EXPECT_EQ(TextAt((*pod)["metadata"]["ownerReferences"][0], "uid"), UidOf(*owner));
  const auto placement = ReadPlacement(*pod);
  ASSERT_TRUE(placement && placement->has_value());
  ASSERT_EQ((*placement)->vgpus.size(), 1u);
  EXPECT_EQ((*placement)->vgpus[0].fit.share, policy::Share(300'000));
  EXPECT_EQ((*placement)->vgpus[0].fit.memory_mib, 4'096u);
  EXPECT_EQ(StatusText(world, "notebook", "phase"), "Bound");
  EXPECT_EQ(StatusText(world, "notebook", "node"), "n1");
  EXPECT_EQ(StatusText(world, "notebook", "request"), "30");
  EXPECT_EQ(TextAt(ConditionOf(world, "notebook", "Bound"), "status"), "True");
  EXPECT_EQ(TextAt(ConditionOf(world, "notebook", "Running"), "status"), "False");
  world.SetPhase("notebook", "Running");
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(StatusText(world, "notebook", "phase"), "Running");
  EXPECT_EQ(TextAt(ConditionOf(world, "notebook", "Running"), "status"), "True");
  // Nothing more is written once all is said.
  const uint64_t writes = world.writes();
  world.Restart();
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.writes(), writes);
  // It ends: its room is free, and it is not made again.
  world.SetPhase("notebook", "Succeeded");
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(StatusText(world, "notebook", "phase"), "Succeeded");
  EXPECT_EQ(world.core().counts().placed, 0u);
  world.Delete(resources::kPods, "notebook");
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.Get(resources::kPods, "notebook"));
}

TEST(CorePlacement, PodsAreBoundWithAndWithoutGpus) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddPod("shares", {{"baton.dev/gpu-share", "40"}, {"baton.dev/gpu-memory", "4"}});
  world.AddPod("none", {{"cpu", "1"}});
  world.AddPod("whole", {{"nvidia.com/gpu", "1"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("shares"));
  EXPECT_TRUE(world.IsBound("none"));
  // The only GPU is shared.
  EXPECT_FALSE(world.IsBound("whole"));
  world.Delete(resources::kPods, "shares");
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("whole"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(CorePlacement, WaitingPodExplainsEachNodeAndGpu) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddNode("n2", 1, 80'000,
                {{"spec", {{"taints", {{{"key", "special"}, {"effect", "NoSchedule"}}}}}}});
  world.AddShare("a", {{"request", "80"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("b", {{"request", "30"}});
  ASSERT_TRUE(world.Settle());
  Json placed = ConditionOf(world, "b", "Placed");
  EXPECT_EQ(TextAt(placed, "status"), "False");
  EXPECT_EQ(TextAt(placed, "reason"), "Unschedulable");
  EXPECT_EQ(TextAt(placed, "message"),
            "0/2 nodes available: 1 untolerated taint, 1 insufficient GPU share or memory\n"
            "n1: GPU 0: 20 % of it are free, 30 % wanted\n"
            "n2: untolerated taint special:NoSchedule");
  // The same for a pod, as kube-scheduler would say it; and one Event.
  world.AddPod("c", {{"baton.dev/gpu-share", "30"}});
  ASSERT_TRUE(world.Settle());
  const auto pod = world.Get(resources::kPods, "c");
  const Json* conditions = Find(*pod, "status/conditions");
  ASSERT_NE(conditions, nullptr);
  EXPECT_EQ(TextAt(conditions->at(0), "type"), "PodScheduled");
  EXPECT_EQ(TextAt(conditions->at(0), "reason"), "Unschedulable");
  const auto said = [&](const std::string& name, const std::string& reason) {
    return std::count_if(world.notes().begin(), world.notes().end(), [&](const Note& note) {
      return note.reason == reason && TextAt(note.about, "metadata/name") == name;
    });
  };
  EXPECT_EQ(said("c", "FailedScheduling"), 1);
  // One that tolerates it goes there.
  world.AddShare("d", {{"request", "30"}},
                 {{"tolerations", {{{"key", "special"}, {"operator", "Exists"}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(StatusText(world, "d", "node"), "n2");
  // What cannot be honoured is refused.
  world.AddShare("e", {{"request", "10"}},
                 {{"affinity",
                   {{"podAntiAffinity",
                     {{"requiredDuringSchedulingIgnoredDuringExecution",
                       {{{"topologyKey", "kubernetes.io/hostname"}}}}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(ConditionOf(world, "e", "Placed"), "reason"), "Invalid");
}

TEST(CorePlacement, NoneOfAGangIsPlacedBeforeAllOfThemCanBe) {
  World world(1, Options());
  world.AddNode("n1", 4);
  const Json gang{{"baton.dev/gang", "g"}, {"baton.dev/gang-size", "2"}};
  world.AddPod("a", {{"baton.dev/gpu-share", "30"}}, gang);
  world.AddPod("b", {{"baton.dev/gpu-share", "30"}}, gang,
               {{"schedulingGates", {{{"name", "later"}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.IsBound("a"));
  world.Patch(resources::kPods, "b", {{"spec", {{"schedulingGates", nullptr}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("a"));
  EXPECT_TRUE(world.IsBound("b"));
  // A pod of it goes slowly: the one that went at once waits for its return.
  world.AddShare("c", {{"request", "30"}, {"gang", {{"name", "h"}, {"size", 2}}}});
  world.AddShare("d", {{"request", "30"}, {"gang", {{"name", "h"}, {"size", 2}}}});
  ASSERT_TRUE(world.Settle());
  ASSERT_TRUE(world.IsBound("d"));
  world.Delete(resources::kPods, "d");
  world.Fail("c", "Evicted", true);
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.IsBound("c"));
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("c"));
  EXPECT_TRUE(world.IsBound("d"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(CorePlacement, GangIsPlacedOnceTheMemberForWhichItWaitedIsGone) {
  World world(1, Options());
  world.AddNode("n1", 2);
  const Json gang = {{"baton.dev/gang", "g"}, {"baton.dev/gang-size", "2"}};
  world.AddPod("gated", {{"baton.dev/gpu-share", "30"}}, gang,
               {{"schedulingGates", {{{"name", "later"}}}}});
  world.AddPod("a", {{"baton.dev/gpu-share", "30"}}, gang);
  world.AddPod("b", {{"baton.dev/gpu-share", "30"}}, gang);
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.IsBound("a"));
  world.Delete(resources::kPods, "gated");
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("a"));
  EXPECT_TRUE(world.IsBound("b"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(CorePlacement, FreedRoomIsReusedAndGangStartsTogether) {
  World world(1, Options());
  world.AddNode("n1", 2);
  const auto member = [](int size) {
    return Json{{"request", "100"}, {"gang", {{"name", "g"}, {"size", size}}}};
  };
  world.AddShare("g0", member(2));
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.IsBound("g0"));
  EXPECT_EQ(TextAt(ConditionOf(world, "g0", "Placed"), "reason"), "WaitingForGang");
  world.AddShare("x", {{"request", "10"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("g1", member(2));
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.IsBound("g0"));
  EXPECT_FALSE(world.IsBound("g1"));
  world.Delete(resources::kSharePods, "x");
  ASSERT_TRUE(world.Settle());
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("g0"));
  EXPECT_TRUE(world.IsBound("g1"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(CorePlacement, SharePodIsResizedInPlaceIfThereIsRoom) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("a", {{"request", "30"}});
  world.AddShare("b", {{"request", "50"}});
  ASSERT_TRUE(world.Settle());
  const auto share = [&](const std::string& name) {
    const auto placement = ReadPlacement(*world.Get(resources::kPods, name));
    return (*placement)->vgpus.at(0).fit.share;
  };
  const std::string uid = UidOf(*world.Get(resources::kPods, "a"));
  world.Patch(resources::kSharePods, "a", {{"spec", {{"gpu", {{"request", "45"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(share("a"), policy::Share(450'000));
  EXPECT_EQ(StatusText(world, "a", "request"), "45");
  world.Patch(resources::kSharePods, "a", {{"spec", {{"gpu", {{"request", "60"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(share("a"), policy::Share(450'000));
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Resized"), "status"), "False");
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Resized"), "reason"), "NoRoom");
  EXPECT_EQ(StatusText(world, "a", "request"), "45");  // as it holds
  // The other gives way.
  world.Patch(resources::kSharePods, "b", {{"spec", {{"gpu", {{"request", "40"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(share("b"), policy::Share(400'000));
  EXPECT_EQ(share("a"), policy::Share(600'000));
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Resized"), "status"), "True");
  EXPECT_EQ(UidOf(*world.Get(resources::kPods, "a")), uid);
  EXPECT_EQ(world.wrong(), "");
}

// Its agent is away for a while, the binder starts anew meanwhile, and the pod asks for another
// size.
TEST(CorePlacement, PodIsResizedOnceItsNodesGpusAreKnownAgain) {
  for (const bool shrinks : {false, true}) {
    World world(1, Options());
    world.AddNode("n1", 1);
    world.AddShare("a", {{"request", "30"}});
    ASSERT_TRUE(world.Settle());
    const Json known = *world.Get(resources::kGpuNodes, "n1");
    Json unknown = known;
    unknown.erase("status");
    world.Put(resources::kGpuNodes, unknown);
    ASSERT_TRUE(world.Settle());
    world.Restart();
    world.Patch(resources::kSharePods, "a",
                {{"spec", {{"gpu", {{"request", shrinks ? "20" : "70"}}}}}});
    ASSERT_TRUE(world.Settle());
    world.Put(resources::kGpuNodes, known);
    ASSERT_TRUE(world.Settle());
    const auto placement = ReadPlacement(*world.Get(resources::kPods, "a"));
    EXPECT_EQ((*placement)->vgpus.at(0).fit.share, policy::Share(shrinks ? 200'000 : 700'000));
    EXPECT_EQ(world.wrong(), "");
  }
}

TEST(CorePlacement, NewSharePodOfANameDoesNotSayThePlaceOfTheOldOnesPod) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("s", {{"request", "60"}});
  ASSERT_TRUE(world.Settle());
  ASSERT_TRUE(world.IsBound("s"));
  world.Delete(resources::kSharePods, "s");
  world.AddShare("s", {{"request", "20"}});
  // The old one's pod ends slowly.
  static_cast<void>(world.Settle(std::chrono::seconds(20)));
  EXPECT_EQ(StatusText(world, "s", "phase"), "Pending");
  EXPECT_EQ(StatusText(world, "s", "placement"), "");
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("s"));
}

// Who follows the leader knew the pod at its size before, and a pod that ends asks for nothing
// more.
TEST(CorePlacement, StandbyBooksPodsAtTheSizesThatTheLeaderGaveThem) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("a", {{"request", "20"}});
  world.AddShare("b", {{"request", "50"}});
  ASSERT_TRUE(world.Settle());
  world.AddStandby();
  world.Patch(resources::kSharePods, "a", {{"spec", {{"gpu", {{"request", "50"}}}}}});
  ASSERT_TRUE(world.Settle());
  world.Delete(resources::kSharePods, "a");
  ASSERT_TRUE(world.Settle());
  ASSERT_TRUE(world.Get(resources::kPods, "a"));  // it is ending
  world.TakeOver();
  world.AddShare("c", {{"request", "30"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.IsBound("c"));
  EXPECT_EQ(world.wrong(), "");
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("c"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(CorePlacement, ShrunkRoomIsFreeDespiteAnInvalidRequest) {
  for (const bool lost : {false, true}) {
    FedByHand told(Options());
    Json pod = told.Stamp(PodOf("p", {{"baton.dev/gpu-share", "80"}}), "p");
    told.core.Changed(Watched::kPod, pod);
    auto write = told.Next("p");
    ASSERT_TRUE(write && write->kind == WriteKind::kBind);
    pod["spec"]["nodeName"] = "n1";
    pod["metadata"]["annotations"] = write->body["metadata"]["annotations"];
    told.core.Done({write->id, true, {}, {}});
    const auto with = [&](const char* request) {
      pod["metadata"]["annotations"]["baton.dev/request"] = request;
      pod = told.Stamp(pod, "p");
      return pod;
    };
    told.core.Changed(Watched::kPod, with("60"));
    write = told.Next("p");
    ASSERT_TRUE(write && write->kind == WriteKind::kPatchPod);
    const auto share = [&] {
      return told.core.cluster().pods().at("team/p").placement.vgpus.at(0).fit.share;
    };
    EXPECT_EQ(share(), policy::Share(800'000));
    // It is carried out; and then the user asks for what makes no sense.
    pod["metadata"]["annotations"].merge_patch(write->body["metadata"]["annotations"]);
    if (lost) {
      told.core.Done({write->id, false, {}, {0, "", "connection reset", {}}});
      told.core.Changed(Watched::kPod, with("130"));
      write = told.Next("p");
      // A patch of nothing: until it is answered the first may still be under way.
      ASSERT_TRUE(write && write->kind == WriteKind::kPatchPod);
      EXPECT_EQ(write->body, Json({{"metadata", {{"uid", "p"}}}}));
      EXPECT_EQ(share(), policy::Share(800'000));
    }
    told.core.Done({write->id, true, with("130"), {}});
    told.Step();
    EXPECT_EQ(share(), policy::Share(600'000));
  }
}

TEST(CorePlacement, DeletedPodKeepsItsRoomUntilItHasEnded) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("a", {{"request", "100"}});
  ASSERT_TRUE(world.Settle());
  world.Delete(resources::kSharePods, "a");
  world.AddShare("b", {{"request", "100"}});
  ASSERT_TRUE(world.Settle());
  ASSERT_TRUE(world.Get(resources::kPods, "a"));  // it is ending
  EXPECT_FALSE(world.IsBound("b"));
  // One of the same name waits for the old pod to end.
  world.AddShare("a", {{"request", "100"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Placed"), "reason"), "NameTaken");
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_NE(world.IsBound("a"), world.IsBound("b"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(CorePlacement, ForeignPodOfTheSameNameIsLeftAlone) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddPod("a", {{"cpu", "1"}}, {}, {{"schedulerName", "default-scheduler"}});
  world.AddShare("a", {{"request", "10"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Placed"), "reason"), "NameTaken");
  EXPECT_EQ(world.deleted(), 0u);
  world.Delete(resources::kPods, "a");
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("a"));
}

TEST(CorePlacement, NothingIsBoundToAVanishedNode) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("a", {{"request", "100"}});
  // Decided, and the status is on its way, when the node goes.
  world.Pass(std::chrono::milliseconds(30));
  world.RemoveNode("n1");
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.IsBound("a"));
  world.AddNode("n2", 1);
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(StatusText(world, "a", "node"), "n2");
}

TEST(CorePlacement, PodsOfOtherSchedulersUseUpTheirNode) {
  World world(1, Options());
  world.AddNode("n1", 4, 80'000, {{"status", {{"allocatable", {{"cpu", "4"}, {"pods", "110"}}}}}});
  world.AddPod("other", {{"cpu", "3"}}, {},
               {{"schedulerName", "default-scheduler"}, {"nodeName", "n1"}});
  world.AddShare("a", {{"request", "10"}});
  world.AddShare("b", {{"request", "10"}});
  world.AddShare("c", {{"request", "10"}});
  ASSERT_TRUE(world.Settle());
  // 1 CPU is left for two of 500 m each.
  EXPECT_EQ(world.IsBound("a") + world.IsBound("b") + world.IsBound("c"), 2);
  world.Delete(resources::kPods, "other");
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.IsBound("a") + world.IsBound("b") + world.IsBound("c"), 3);
}

TEST(CorePlacement, NoPodIsBoundThatTheKubeletWouldRefuse) {
  World world(1, Options());
  world.AddNode("n1", 1, 80'000, Plugin(100));
  world.AddShare("a", {{"request", "60"}});
  ASSERT_TRUE(world.Settle());
  world.Patch(resources::kSharePods, "a", {{"spec", {{"gpu", {{"request", "20"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(StatusText(world, "a", "request"), "20");
  // 80 % of the GPU are free; the kubelet has 40.
  world.AddShare("b", {{"request", "44"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(ConditionOf(world, "b", "Placed"), "message"),
            "0/1 nodes available: 1 insufficient other resources\n"
            "n1: the kubelet counts 104 of 100 baton.dev/gpu-share: limits do not shrink with a "
            "running pod");
  world.AddShare("c", {{"request", "40"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("c"));
  world.Delete(resources::kSharePods, "a");
  ASSERT_TRUE(world.Settle());
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("b"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(CorePlacement, EightEighthsFitInTheKubeletsCount) {
  World world(1, Options());
  world.AddNode("n1", 1, 80'000, Plugin(100));
  for (int i = 0; i < 8; ++i) world.AddShare(fmt::format("s{}", i), {{"request", "12.5"}});
  ASSERT_TRUE(world.Settle());
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(world.IsBound(fmt::format("s{}", i))) << i;
  EXPECT_EQ(world.wrong(), "");
}

TEST(CorePlacement, NodeWithoutDevicePluginGetsNoPods) {
  World world(1, Options());
  world.AddNode("n1", 1, 80'000, Plugin(0));
  world.AddShare("a", {{"request", "10"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(
      TextAt(ConditionOf(world, "a", "Placed"), "message"),
      "0/1 nodes available: 1 insufficient other resources\n"
      "n1: the kubelet has no baton.dev/gpu-share: no GPU there is healthy, or Baton's agent or "
      "batond on the node does not answer");
  world.AddNode("n1", 1, 80'000, Plugin(100));
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("a"));
}

TEST(CorePlacement, NodesWithoutGpusAreCountedButNotListed) {
  World world(1, Options());
  for (int i = 0; i < 60; ++i) world.AddNode(fmt::format("cpu-{:02}", i), 0);
  world.AddNode("gpu-1", 1);
  world.AddShare("a", {{"request", "80"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("b", {{"request", "30"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(ConditionOf(world, "b", "Placed"), "message"),
            "0/61 nodes available: 1 insufficient GPU share or memory, 60 no GPUs\n"
            "gpu-1: GPU 0: 20 % of it are free, 30 % wanted");
  EXPECT_EQ(TextAt(ConditionOf(world, "b", "Placed"), "reason"), "Unschedulable");
}

TEST(CorePlacement, AllWaitingPodsAreExplainedAFewPerStep) {
  CoreOptions options = Options();
  options.explain_per_step = 1;
  World world(1, options);
  world.AddNode("n1", 1);
  world.AddNode("n2", 1);
  const auto on = [](const char* node) {
    return Json{{"nodeSelector", {{"kubernetes.io/hostname", node}}}};
  };
  for (const char* node : {"n1", "n2"}) {
    world.AddPod(fmt::format("on-{}", node), {{"baton.dev/gpu-share", "50"}}, {}, on(node));
  }
  ASSERT_TRUE(world.Settle());
  const std::vector<std::string> pods{"b", "c", "d"};
  for (const char* pod : {"a0", "a1", "a2"}) {
    world.AddPod(pod, {{"baton.dev/gpu-share", "60"}}, {}, on("n2"));
  }
  for (const auto& pod : pods) world.AddPod(pod, {{"baton.dev/gpu-share", "60"}}, {}, on("n1"));
  ASSERT_TRUE(world.Settle());
  for (const auto& pod : pods) {
    EXPECT_NE(MessageOf(world, pod).find("50 % of it are free"), std::string::npos) << pod;
  }
  world.AddPod("y", {{"baton.dev/gpu-share", "10"}}, {}, on("n1"));
  EXPECT_FALSE(world.Settle(std::chrono::seconds(1)));
  // All may say it again now. The first have nothing new to say, so no answer wakes it.
  world.Pass(std::chrono::seconds(11));
  ASSERT_TRUE(world.Settle());
  for (const auto& pod : pods) {
    EXPECT_NE(MessageOf(world, pod).find("40 % of it are free"), std::string::npos) << pod;
  }
}

TEST(CorePlacement, ManyWaitingPodsDoNotDelayAnExplanation) {
  CoreOptions options = Options();
  options.explain_per_step = 1;
  options.say_again = std::chrono::milliseconds(50);
  FedByHand told(options);
  for (const char* name : {"a", "b", "c", "d", "e", "z"}) {
    Json pod = PodOf(name, {{"baton.dev/gpu-share", "80"}});
    pod["metadata"]["annotations"]["baton.dev/model"] = "a100";
    told.core.Changed(Watched::kPod, told.Stamp(std::move(pod), name));
  }
  std::set<std::string> said;
  for (int i = 0; i < 50; ++i) {
    // A round in every step: the node changes.
    Json node = NodeOf("n1", {{"status", {{"allocatable", {{"cpu", std::to_string(50 + i)}}}}}});
    told.core.Changed(Watched::kNode, told.Stamp(std::move(node), "node"));
    for (const Write& write : told.Step()) {
      if (write.kind == WriteKind::kPodCondition) said.insert(write.name.name);
      told.core.Done({write.id, true, Json::object(), {}});
    }
  }
  EXPECT_EQ(said.size(), 6u);
}

TEST(CorePlacement, DecisionIsNotReusedForANewPodOfTheName) {
  const auto on = [](const char* node) {
    return Json{{"nodeSelector", {{"kubernetes.io/hostname", node}}}};
  };
  const ApiError away{500, "InternalError", "etcd is away", {}};
  World world(1, Options());
  for (const char* node : {"n1", "n2"}) world.AddNode(node, 2);
  // Decided, but not written: then another takes the name at once.
  world.Refuse(WriteKind::kBind, away);
  world.Refuse(WriteKind::kCreateChild, away);
  world.AddPod("p", {{"baton.dev/gpu-share", "30"}}, {}, on("n1"));
  world.AddShare("s", {{"request", "30"}}, on("n1"));
  EXPECT_FALSE(world.Settle(std::chrono::seconds(5)));
  EXPECT_EQ(world.core().cluster().PodsOn("n1").size(), 2u);
  world.Delete(resources::kPods, "p");
  world.Reap();
  world.Delete(resources::kSharePods, "s");
  world.AddPod("p", {{"baton.dev/gpu-share", "30"}}, {}, on("n2"));
  world.AddShare("s", {{"request", "30"}}, on("n2"));
  world.Refuse(WriteKind::kBind, {});
  world.Refuse(WriteKind::kCreateChild, {});
  ASSERT_TRUE(world.Settle());
  for (const char* name : {"p", "s"}) {
    const auto pod = world.Get(resources::kPods, name);
    ASSERT_TRUE(pod) << name;
    EXPECT_EQ(TextAt(*pod, "spec/nodeName"), "n2") << name;
  }
  EXPECT_TRUE(world.core().cluster().PodsOn("n1").empty());
  EXPECT_EQ(world.wrong(), "");
}

TEST(CorePlacement, ChangedPodIsTriedAtOnce) {
  World world(1, Options());
  world.AddNode("n1", 2, 80'000,
                {{"spec", {{"taints", {{{"key", "special"}, {"effect", "NoSchedule"}}}}}}});
  world.AddPod("a", {{"baton.dev/gpu-share", "30"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.IsBound("a"));
  const Json tolerates{{"tolerations", {{{"key", "special"}, {"operator", "Exists"}}}}};
  world.Patch(resources::kPods, "a", {{"spec", tolerates}});
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("a"));
  // A gang that gets smaller is complete.
  for (const char* name : {"g0", "g1"}) {
    world.AddPod(name, {{"baton.dev/gpu-share", "30"}},
                 {{"baton.dev/gang", "g"}, {"baton.dev/gang-size", "3"}}, tolerates);
  }
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.IsBound("g0"));
  for (const char* name : {"g0", "g1"}) {
    world.Patch(resources::kPods, name,
                {{"metadata", {{"annotations", {{"baton.dev/gang-size", "2"}}}}}});
  }
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("g0"));
  EXPECT_TRUE(world.IsBound("g1"));
  const auto card_of = [&](const char* name) {
    return world.core().cluster().Find(name)->placement.vgpus[0].card;
  };
  EXPECT_NE(card_of("team/g0"), card_of("team/g1")) << "their tokens come together";
}

// Each is all that changes: nothing else starts a round.
TEST(CorePlacement, ExcludedPodIsBoundOnceTheNodeAllowsIt) {
  struct Change {
    const char* what;
    Json before;  // of the node
    Json after;   // a patch of it
    Json needs;   // of the pod
  };
  const auto tainted = [](const char* key, const char* effect) {
    return Json{{"spec", {{"taints", {{{"key", key}, {"effect", effect}}}}}}};
  };
  const Json untainted{{"spec", {{"taints", nullptr}}}};
  const Json labelled{{"metadata", {{"labels", {{"zone", "a"}}}}}};
  const Json affinity{
      {"affinity",
       {{"nodeAffinity",
         {{"requiredDuringSchedulingIgnoredDuringExecution",
           {{"nodeSelectorTerms",
             {{{"matchExpressions",
                {{{"key", "zone"}, {"operator", "In"}, {"values", {"a"}}}}}}}}}}}}}}};
  const Change changes[] = {
      {"taint", tainted("special", "NoSchedule"), untainted, {}},
      {"taint that evicts", tainted("special", "NoExecute"), untainted, {}},
      {"taint's effect",
       tainted("special", "NoSchedule"),
       tainted("special", "PreferNoSchedule"),
       {}},
      {"cordon", {{"spec", {{"unschedulable", true}}}}, {{"spec", {{"unschedulable", false}}}}, {}},
      {"label of a selector", {}, labelled, {{"nodeSelector", {{"zone", "a"}}}}},
      {"label of an affinity", {}, labelled, affinity},
  };
  for (const Change& change : changes) {
    SCOPED_TRACE(change.what);
    World world(1, Options());
    world.AddNode("n1", 1, 80'000, change.before);
    world.AddShare("s", {{"request", "30"}}, change.needs);
    world.AddPod("p", {{"baton.dev/gpu-share", "30"}}, {}, change.needs);
    ASSERT_TRUE(world.Settle());
    EXPECT_FALSE(world.IsBound("s"));
    EXPECT_FALSE(world.IsBound("p"));
    world.Patch(resources::kNodes, "n1", change.after);
    ASSERT_TRUE(world.Settle());
    EXPECT_TRUE(world.IsBound("s"));
    EXPECT_TRUE(world.IsBound("p"));
    EXPECT_EQ(world.wrong(), "");
  }
  // As the API server ends a cordon: first it allows pods, then its taint goes.
  World world(1, Options());
  Json cordoned = tainted("node.kubernetes.io/unschedulable", "NoSchedule");
  cordoned["spec"]["unschedulable"] = true;
  world.AddNode("n1", 1, 80'000, cordoned);
  world.AddShare("s", {{"request", "30"}});
  ASSERT_TRUE(world.Settle());
  world.Patch(resources::kNodes, "n1", {{"spec", {{"unschedulable", false}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.IsBound("s"));
  world.Patch(resources::kNodes, "n1", untainted);
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("s"));
}

}  // namespace
}  // namespace baton::k8s::testing
