// The binder's core in worlds that go wrong: whatever is lost, refused, late or restarted, no card
// is given twice, and in the end everything that fits is bound.
#include "k8s/binder/core.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "k8s/binder/node_filter.h"
#include "k8s/binder/objects.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/share_pod.h"
#include "tests/k8s/binder/books.h"
#include "tests/k8s/binder/world.h"

namespace baton::k8s::testing {
namespace {

CoreOptions Options() {
  CoreOptions options;
  // Rooms are not kept for those that starve: then whatever fits is placed.
  options.round.patience = 1'000'000;
  return options;
}

std::string StatusText(World& world, const std::string& name, const char* pointer) {
  const auto share = world.Get(resources::kSharePods, name);
  return share ? TextAt(*share, std::string("status/") + pointer) : "gone";
}

Json ConditionOf(World& world, const std::string& name, const std::string& type) {
  const auto share = world.Get(resources::kSharePods, name);
  if (!share) return {};
  const Json* list = Find(*share, "status/conditions");
  if (list == nullptr) return {};
  for (const Json& condition : *list) {
    if (TextAt(condition, "type") == type) return condition;
  }
  return {};
}

TEST(Core, ASharePodIsPlacedMadeAndBound) {
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
  EXPECT_EQ((*placement)->vgpus[0].fit.share, 300'000u);
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

TEST(Core, APodWithLimitsIsBoundWithItsCardsAndOneWithoutGpusToo) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddPod("shares", {{"baton.dev/gpu-share", "40"}, {"baton.dev/gpu-memory", "4"}});
  world.AddPod("none", {{"cpu", "1"}});
  world.AddPod("whole", {{"nvidia.com/gpu", "1"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("shares"));
  EXPECT_TRUE(world.IsBound("none"));
  // The only card is shared.
  EXPECT_FALSE(world.IsBound("whole"));
  world.Delete(resources::kPods, "shares");
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("whole"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(Core, WhatWaitsSaysWhyByNodeAndCard) {
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
            "team/b fits on none of 2 nodes: 1 not for it, 1 without room on their cards\n"
            "n1: card 0 20 % of it are free, 30 % wanted\n"
            "n2: has the taint special:NoSchedule, which is not tolerated");
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

TEST(Core, RoomThatComesFreeIsUsedAndAGangComesTogether) {
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

TEST(Core, ASharePodIsResizedInPlaceWhereThereIsRoom) {
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
  EXPECT_EQ(share("a"), 450'000u);
  EXPECT_EQ(StatusText(world, "a", "request"), "45");
  world.Patch(resources::kSharePods, "a", {{"spec", {{"gpu", {{"request", "60"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(share("a"), 450'000u);
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Resized"), "status"), "False");
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Resized"), "reason"), "NoRoom");
  EXPECT_EQ(StatusText(world, "a", "request"), "45");  // as it holds
  // The other gives way.
  world.Patch(resources::kSharePods, "b", {{"spec", {{"gpu", {{"request", "40"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(share("b"), 400'000u);
  EXPECT_EQ(share("a"), 600'000u);
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Resized"), "status"), "True");
  EXPECT_EQ(UidOf(*world.Get(resources::kPods, "a")), uid);
  EXPECT_EQ(world.wrong(), "");
}

TEST(Core, WhatIsDeletedFreesItsRoomOnlyWhenItHasEnded) {
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

TEST(Core, AForeignPodOfTheNameIsLeftAlone) {
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

TEST(Core, AChildThatGoesIsMadeAgain) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("a", {{"request", "100"}});
  ASSERT_TRUE(world.Settle());
  const std::string uid = UidOf(*world.Get(resources::kPods, "a"));
  world.Delete(resources::kPods, "a");
  ASSERT_TRUE(world.Settle());
  world.Reap();
  ASSERT_TRUE(world.Settle());
  ASSERT_TRUE(world.IsBound("a"));
  EXPECT_NE(UidOf(*world.Get(resources::kPods, "a")), uid);
}

// ----------------------------------------------------------------------------- how pods end

Json PodThatEnded(const std::string& phase, const Json& metadata, const Json& status,
                  const Json& spec) {
  Json pod{{"metadata", {{"name", "p"}, {"namespace", kSpace}}},
           {"spec", {{"nodeName", "n1"}, {"restartPolicy", "Never"}}},
           {"status", {{"phase", phase}}}};
  if (metadata.is_object()) pod["metadata"].merge_patch(metadata);
  if (status.is_object()) pod["status"].merge_patch(status);
  if (spec.is_object()) pod["spec"].merge_patch(spec);
  return pod;
}

TEST(EndOf, APodEndsByItselfOnlyWhereNobodyEndedIt) {
  const Json deleted{{"deletionTimestamp", "2026-11-22T10:00:00Z"}};
  const auto disrupted = [](const char* is) {
    return Json{
        {"conditions",
         {{{"type", "Ready"}, {"status", "False"}},
          {{"type", "DisruptionTarget"}, {"status", is}, {"reason", "TerminationByKubelet"}}}}};
  };
  // Not ended, whatever else is said.
  for (const char* phase : {"", "Pending", "Running", "Unknown"}) {
    EXPECT_EQ(EndOf(PodThatEnded(phase, {}, {}, {})), PodEnd::kNone) << phase;
    EXPECT_EQ(EndOf(PodThatEnded(phase, deleted, {{"reason", "Evicted"}}, {})), PodEnd::kNone);
    EXPECT_EQ(EndOf(PodThatEnded(phase, {}, disrupted("True"), {})), PodEnd::kNone) << phase;
  }
  for (const char* phase : {"Succeeded", "Failed"}) {
    SCOPED_TRACE(phase);
    for (const char* restart : {"Never", "OnFailure"}) {
      const Json spec{{"restartPolicy", restart}};
      EXPECT_EQ(EndOf(PodThatEnded(phase, {}, {}, spec)), PodEnd::kFinished) << restart;
      EXPECT_EQ(EndOf(PodThatEnded(phase, deleted, {}, spec)), PodEnd::kGone) << restart;
      EXPECT_EQ(EndOf(PodThatEnded(phase, {}, disrupted("True"), spec)), PodEnd::kGone) << restart;
      EXPECT_EQ(EndOf(PodThatEnded(phase, {}, disrupted("False"), spec)), PodEnd::kFinished);
    }
    EXPECT_EQ(EndOf(PodThatEnded(phase, {}, {}, {{"restartPolicy", "Always"}})), PodEnd::kGone);
    EXPECT_EQ(EndOf(PodThatEnded(phase, {}, {}, {{"restartPolicy", nullptr}})), PodEnd::kGone);
  }
  // Refused or ended by its kubelet.
  for (const char* reason :
       {"UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory", "OutOfephemeral-storage",
        "OutOfpods", "OutOfnvidia.com/gpu", "OutOfbaton.dev/gpu-share", "NodeAffinity", "NodePorts",
        "TopologyAffinityError", "NodeShutdown", "Terminated", "Shutdown", "Evicted", "Preempting",
        "NodeLost"}) {
    EXPECT_EQ(EndOf(PodThatEnded("Failed", {}, {{"reason", reason}}, {})), PodEnd::kGone) << reason;
  }
  // By the deadline of its own spec; and its containers' reasons are not the pod's.
  EXPECT_EQ(EndOf(PodThatEnded("Failed", {}, {{"reason", "DeadlineExceeded"}}, {})),
            PodEnd::kFinished);
  const Json crashed{
      {"containerStatuses",
       {{{"name", "main"}, {"state", {{"terminated", {{"exitCode", 1}, {"reason", "Error"}}}}}}}}};
  EXPECT_EQ(EndOf(PodThatEnded("Failed", {}, crashed, {})), PodEnd::kFinished);
  EXPECT_EQ(EndOf(Json::object()), PodEnd::kNone);
}

std::string UidOfPod(World& world, const std::string& name) {
  const auto pod = world.Get(resources::kPods, name);
  return pod ? UidOf(*pod) : "";
}

TEST(Core, ASharePodSurvivesThatItsPodIsDeletedWhateverItsRestartPolicy) {
  for (const char* restart : {"Always", "OnFailure", "Never"}) {
    SCOPED_TRACE(restart);
    World world(1, Options());
    world.AddNode("n1", 1);
    world.AddNode("n2", 1);
    world.AddShare("a", {{"request", "100"}}, {{"restartPolicy", restart}});
    ASSERT_TRUE(world.Settle());
    world.SetPhase("a", "Running");
    ASSERT_TRUE(world.Settle());
    const std::string node = StatusText(world, "a", "node");
    const std::string uid = UidOfPod(world, "a");
    // A drain: the node takes no more pods, and this one is told to end.
    world.Cordon(node, true);
    world.Delete(resources::kPods, "a");
    ASSERT_TRUE(world.Settle());
    EXPECT_EQ(TextAt(ConditionOf(world, "a", "Running"), "reason"), "Terminating");
    // As long as it runs, it has its room.
    EXPECT_EQ(world.core().counts().placed, 1u);
    // Its kubelet reports the end; the object is still there.
    world.Stop();
    ASSERT_TRUE(world.Settle());
    EXPECT_EQ(UidOfPod(world, "a"), uid);
    EXPECT_EQ(StatusText(world, "a", "phase"), "Pending");
    EXPECT_EQ(StatusText(world, "a", "node"), "");
    EXPECT_EQ(TextAt(ConditionOf(world, "a", "Bound"), "status"), "False");
    EXPECT_EQ(TextAt(ConditionOf(world, "a", "Placed"), "reason"), "PodGone");
    EXPECT_EQ(world.core().counts().placed, 0u);
    EXPECT_EQ(world.deleted(), 0u) << "that is for the kubelet to do";
    world.Reap();
    ASSERT_TRUE(world.Settle());
    EXPECT_EQ(StatusText(world, "a", "phase"), "Bound");
    EXPECT_EQ(StatusText(world, "a", "node"), node == "n1" ? "n2" : "n1");
    EXPECT_NE(UidOfPod(world, "a"), uid);
    EXPECT_TRUE(world.IsBound("a"));
    EXPECT_EQ(world.wrong(), "");
  }
}

TEST(Core, ASharePodSurvivesThatItsNodeRefusesOrEndsItsPod) {
  const std::pair<const char*, bool> ends[] = {{"UnexpectedAdmissionError", false},
                                               {"OutOfbaton.dev/gpu-share", false},
                                               {"NodeAffinity", false},
                                               {"NodeShutdown", false},
                                               {"Evicted", false},
                                               {"Evicted", true},
                                               {"Preempting", true},
                                               {"", false}};  // the last: the node shuts down
  for (const char* restart : {"Always", "OnFailure", "Never"}) {
    for (const auto& [reason, disrupted] : ends) {
      SCOPED_TRACE(fmt::format("{} {} {}", restart, reason, disrupted));
      World world(1, Options());
      world.AddNode("n1", 1);
      world.AddShare("a", {{"request", "60"}}, {{"restartPolicy", restart}});
      ASSERT_TRUE(world.Settle());
      const std::string uid = UidOfPod(world, "a");
      if (*reason == 0) {
        world.ShutDown("a");
      } else {
        world.Fail("a", reason, disrupted);
      }
      ASSERT_TRUE(world.Settle());
      EXPECT_EQ(world.deleted(), 1u);
      EXPECT_TRUE(world.IsBound("a"));
      EXPECT_NE(UidOfPod(world, "a"), uid);
      EXPECT_EQ(StatusText(world, "a", "phase"), "Bound");
      EXPECT_EQ(world.core().counts().placed, 1u);
      EXPECT_EQ(world.wrong(), "");
    }
  }
}

TEST(Core, ANodeThatRefusesForEverIsTriedSeldomAndTheSharePodSaysWhy) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.RefuseOn("n1", "UnexpectedAdmissionError");
  world.AddShare("a", {{"request", "60"}}, {{"restartPolicy", "Never"}});
  EXPECT_FALSE(world.Settle(std::chrono::minutes(10)));  // it is tried for ever
  // 0.2 s, 0.4 s and so on, then once a minute.
  EXPECT_GT(world.deleted(), 10u);
  EXPECT_LT(world.deleted(), 20u);
  const size_t before = world.deleted();
  EXPECT_FALSE(world.Settle(std::chrono::minutes(10)));
  EXPECT_GE(world.deleted(), before + 8);
  EXPECT_LE(world.deleted(), before + 10);
  EXPECT_EQ(StatusText(world, "a", "phase"), "Pending");
  const Json placed = ConditionOf(world, "a", "Placed");
  EXPECT_EQ(TextAt(placed, "reason"), "PodGone");
  EXPECT_EQ(TextAt(placed, "message"),
            "its pod has ended on node n1: UnexpectedAdmissionError: the kubelet says so; another "
            "is made soon");
  // Its room is for others meanwhile.
  EXPECT_EQ(world.core().counts().placed, 0u);
  // Another binder, which knows nothing of that, goes on.
  world.Restart();
  EXPECT_FALSE(world.Settle(std::chrono::seconds(10)));
  world.RefuseOn("n1", "");
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("a"));
  EXPECT_EQ(StatusText(world, "a", "phase"), "Bound");
  // One that lasted is replaced at once.
  const std::string uid = UidOfPod(world, "a");
  world.Pass(std::chrono::minutes(5));
  world.Fail("a", "Evicted");
  world.Settle(std::chrono::seconds(1));
  EXPECT_TRUE(world.IsBound("a"));
  EXPECT_NE(UidOfPod(world, "a"), uid);
  EXPECT_EQ(world.wrong(), "");
}

TEST(Core, ASharePodEndsAsItsPodDoesByItself) {
  for (const char* restart : {"OnFailure", "Never"}) {
    for (const char* phase : {"Succeeded", "Failed"}) {
      SCOPED_TRACE(fmt::format("{} {}", restart, phase));
      World world(1, Options());
      world.AddNode("n1", 1);
      world.AddShare("a", {{"request", "60"}}, {{"restartPolicy", restart}});
      ASSERT_TRUE(world.Settle());
      world.SetPhase("a", phase);
      ASSERT_TRUE(world.Settle());
      EXPECT_EQ(StatusText(world, "a", "phase"), phase);
      EXPECT_EQ(world.core().counts().placed, 0u);
      EXPECT_EQ(world.deleted(), 0u) << "its log is there to be read";
      // What comes after does not bring it back.
      world.Restart();
      world.Delete(resources::kPods, "a");
      ASSERT_TRUE(world.Settle());
      EXPECT_FALSE(world.Get(resources::kPods, "a"));
      EXPECT_EQ(StatusText(world, "a", "phase"), phase);
      EXPECT_EQ(world.wrong(), "");
    }
  }
  // Nor that something holds the object of one that has ended, and is deleted.
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("a", {{"request", "60"}}, {{"restartPolicy", "Never"}});
  ASSERT_TRUE(world.Settle());
  world.Patch(resources::kPods, "a", {{"metadata", {{"finalizers", {"example.com/log"}}}}});
  world.SetPhase("a", "Succeeded");
  ASSERT_TRUE(world.Settle());
  world.Delete(resources::kPods, "a");
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(StatusText(world, "a", "phase"), "Succeeded");
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.Get(resources::kPods, "a"));
  EXPECT_EQ(StatusText(world, "a", "phase"), "Succeeded");
}

TEST(Core, ASharePodThatRestartsAlwaysNeverEnds) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("a", {{"request", "60"}});
  ASSERT_TRUE(world.Settle());
  const std::string first = UidOfPod(world, "a");
  world.SetPhase("a", "Succeeded");
  ASSERT_TRUE(world.Settle());
  EXPECT_NE(UidOfPod(world, "a"), first);
  EXPECT_TRUE(world.IsBound("a"));
  EXPECT_EQ(StatusText(world, "a", "phase"), "Bound");
  // Not even where its status says so.
  Json share = *world.Get(resources::kSharePods, "a");
  share["status"]["phase"] = "Failed";
  world.store().Put(*world.store().Find("baton.dev", "sharepods"), share);
  world.Delete(resources::kPods, "a");
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("a"));
  EXPECT_EQ(StatusText(world, "a", "phase"), "Bound");
  EXPECT_EQ(world.wrong(), "");
}

TEST(Core, OfADeletedSharePodNoPodIsMadeAgain) {
  for (const bool stopped : {false, true}) {
    World world(1, Options());
    world.AddNode("n1", 1);
    world.AddShare("a", {{"request", "60"}});
    ASSERT_TRUE(world.Settle());
    if (stopped) world.Fail("a", "Evicted");
    // It stays until its pod has gone, as `kubectl delete --cascade=foreground` has it.
    world.Patch(resources::kSharePods, "a",
                {{"metadata", {{"finalizers", {"foregroundDeletion"}}}}});
    world.Delete(resources::kSharePods, "a");
    ASSERT_TRUE(world.Settle());
    world.Stop();
    ASSERT_TRUE(world.Settle());
    world.Reap();
    ASSERT_TRUE(world.Settle());
    EXPECT_FALSE(world.Get(resources::kPods, "a"));
    world.Patch(resources::kSharePods, "a", {{"metadata", {{"finalizers", nullptr}}}});
    ASSERT_TRUE(world.Settle());
    EXPECT_FALSE(world.Get(resources::kSharePods, "a"));
    EXPECT_FALSE(world.Get(resources::kPods, "a"));
    EXPECT_EQ(world.core().counts().placed, 0u);
  }
}

TEST(Core, APodWithoutASharePodIsNotMadeAgainAndItsRoomIsFree) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddPod("p", {{"baton.dev/gpu-share", "60"}});
  ASSERT_TRUE(world.Settle());
  world.Fail("p", "UnexpectedAdmissionError");
  world.AddPod("q", {{"baton.dev/gpu-share", "60"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 0u);
  EXPECT_TRUE(world.Get(resources::kPods, "p"));
  EXPECT_TRUE(world.IsBound("q"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(Core, NobodyIsDeletedForAnotherWhoHasEndedMeanwhile) {
  World world(1, Options());
  world.AddClass("high", 1'000);
  world.AddNode("n1", 1);
  world.AddShare("low", {{"request", "100"}}, {{"restartPolicy", "Never"}});
  ASSERT_TRUE(world.Settle());
  // It is not told yet that it has to go, when it ends.
  world.Refuse(WriteKind::kMarkVictim, {500, "InternalError", "etcd is away", {}});
  world.AddPod("urgent", {{"baton.dev/gpu-share", "100"}}, {}, {{"priorityClassName", "high"}});
  EXPECT_FALSE(world.Settle(std::chrono::seconds(5)));
  world.SetPhase("low", "Succeeded");
  world.Refuse(WriteKind::kMarkVictim, {});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 0u);
  EXPECT_EQ(StatusText(world, "low", "phase"), "Succeeded");
  EXPECT_TRUE(world.IsBound("urgent"));
}

TEST(Core, WhatANodeSaidOfAPodThatHasGoneGoesWithIt) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("a", {{"request", "100"}});
  ASSERT_TRUE(world.Settle());
  ASSERT_TRUE(world.IsBound("a"));
  Json share = *world.Get(resources::kSharePods, "a");
  Json& status = share["status"];
  status["achieved"] = "99.5";
  status["gpuSeconds"] = "12";
  SetCondition(status, {"Attached", true, "ProcessesAttached", ""}, std::nullopt,
               "2026-01-01T00:00:00Z");
  world.store().Put(*world.store().Find("baton.dev", "sharepods"), share);
  world.Cordon("n1", true);
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(StatusText(world, "a", "achieved"), "99.5");
  world.Delete(resources::kPods, "a");
  ASSERT_TRUE(world.Settle());
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(StatusText(world, "a", "phase"), "Pending");
  EXPECT_EQ(StatusText(world, "a", "achieved"), "");
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Attached"), "status"), "False");
  EXPECT_EQ(StatusText(world, "a", "gpuSeconds"), "12") << "it has used them";
}

TEST(Core, TheFewestOfLowerPriorityGoForOneThatFitsNowhere) {
  World world(1, Options());
  world.AddNode("n1", 2);
  world.AddClass("high", 1'000);
  for (int i = 0; i < 2; ++i) world.AddShare(fmt::format("half{}", i), {{"request", "50"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("full", {{"request", "100"}});
  ASSERT_TRUE(world.Settle());
  ASSERT_TRUE(world.IsBound("full"));
  // One victim is enough: the whole card, or two halves; it is the one pod.
  world.AddShare("urgent", {{"request", "100"}}, {{"priorityClassName", "high"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 1u);
  EXPECT_FALSE(world.IsBound("urgent"));  // the victim has its grace period
  const Json victim = *world.Get(resources::kPods, "full");
  ASSERT_NE(Find(victim, "status/conditions"), nullptr);
  const Json target = victim["status"]["conditions"].back();
  EXPECT_EQ(TextAt(target, "type"), "DisruptionTarget");
  EXPECT_EQ(TextAt(target, "status"), "True");
  EXPECT_EQ(TextAt(target, "reason"), "PreemptionByScheduler");
  EXPECT_NE(TextAt(target, "message").find("team/urgent"), std::string::npos);
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 1u);
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("urgent"));
  EXPECT_FALSE(world.IsBound("full"));
  EXPECT_TRUE(world.IsBound("half0"));
  EXPECT_TRUE(world.IsBound("half1"));
  EXPECT_EQ(StatusText(world, "full", "phase"), "Pending");
  const auto preempted = std::count_if(world.notes().begin(), world.notes().end(),
                                       [](const Note& note) { return note.reason == "Preempted"; });
  EXPECT_EQ(preempted, 2);  // on the pod and its SharePod
  EXPECT_EQ(world.wrong(), "");
}

TEST(Core, ATokenOfHighPriorityTakesNobodysRoom) {
  World world(1, Options());
  world.AddClass("low", -10);
  world.AddNode("n1", 1);
  world.AddShare("there", {{"request", "100"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("share", {{"request", "60"}, {"priority", "high"}});
  world.AddPod("pod", {{"baton.dev/gpu-share", "60"}}, {{"baton.dev/priority", "high"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 0u);
  EXPECT_TRUE(world.IsBound("there"));
  EXPECT_FALSE(world.IsBound("share"));
  EXPECT_FALSE(world.IsBound("pod"));
  // Nor is it before others in the queue: who came first is, or who has the higher class.
  world.AddShare("behind", {{"request", "100"}, {"priority", "high"}},
                 {{"priorityClassName", "low"}});
  ASSERT_TRUE(world.Settle());
  world.Delete(resources::kSharePods, "there");
  ASSERT_TRUE(world.Settle());
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_NE(world.IsBound("share"), world.IsBound("pod"));
  EXPECT_FALSE(world.IsBound("behind"));
  // What it has by its token says nothing of its room.
  world.AddShare("in-it", {{"request", "40"}, {"priority", "high"}},
                 {{"priorityClassName", "low"}});
  ASSERT_TRUE(world.Settle());
  ASSERT_TRUE(world.IsBound("in-it"));
  world.AddShare("above", {{"request", "40"}});
  ASSERT_TRUE(world.Settle());
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("above"));
  EXPECT_FALSE(world.IsBound("in-it"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(Core, PodsOfOneClassDoNotDisplaceEachOther) {
  World world(1, Options());
  world.AddClass("high", 1'000);
  world.AddNode("n1", 1);
  world.AddShare("low", {{"request", "100"}, {"priority", "high"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("high", {{"request", "60"}}, {{"priorityClassName", "high"}});
  world.AddShare("other", {{"request", "60"}, {"priority", "high"}},
                 {{"priorityClassName", "high"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 1u);
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_NE(world.IsBound("high"), world.IsBound("other")) << "equals do not displace each other";
  EXPECT_FALSE(world.IsBound("low"));
  EXPECT_EQ(world.deleted(), 1u);
  EXPECT_EQ(world.wrong(), "");
}

TEST(Core, WhoseClassNeverPreemptsDisplacesNobody) {
  // Of a SharePod's pod only the class says so before it is made.
  for (const bool share : {true, false}) {
    SCOPED_TRACE(share);
    World world(1, Options());
    world.AddClass("polite", 1'000, false);
    world.AddNode("n1", 1);
    world.AddShare("low", {{"request", "100"}});
    ASSERT_TRUE(world.Settle());
    const Json polite{{"priorityClassName", "polite"}};
    share ? world.AddShare("waits", {{"request", "60"}}, polite)
          : world.AddPod("waits", {{"baton.dev/gpu-share", "60"}}, {}, polite);
    ASSERT_TRUE(world.Settle());
    EXPECT_EQ(world.deleted(), 0u);
    EXPECT_TRUE(world.IsBound("low"));
    // It is before others in the queue all the same.
    world.AddPod("first", {{"baton.dev/gpu-share", "100"}});
    world.Delete(resources::kSharePods, "low");
    ASSERT_TRUE(world.Settle());
    world.Reap();
    ASSERT_TRUE(world.Settle());
    EXPECT_TRUE(world.IsBound("waits"));
    EXPECT_FALSE(world.IsBound("first"));
    EXPECT_EQ(world.wrong(), "");
  }
}

TEST(Core, NobodyGoesForAPodThatTheApiServerDoesNotTake) {
  World world(1, Options());
  world.AddClass("high", 1'000);
  world.AddNode("n1", 1);
  world.AddShare("low", {{"request", "100"}});
  ASSERT_TRUE(world.Settle());
  // A quota keeps this namespace from pods of that class.
  const std::string words = "pods \"urgent\" is forbidden: exceeded quota: no-high-priority";
  world.Refuse(WriteKind::kCreateChild, {403, "Forbidden", words, {}});
  world.AddShare("urgent", {{"request", "60"}}, {{"priorityClassName", "high"}});
  EXPECT_FALSE(world.Settle(std::chrono::minutes(10)));  // it is tried for ever
  EXPECT_EQ(world.deleted(), 0u);
  EXPECT_TRUE(world.IsBound("low"));
  EXPECT_EQ(TextAt(ConditionOf(world, "urgent", "Placed"), "reason"), "ChildRefused");
  EXPECT_EQ(TextAt(ConditionOf(world, "urgent", "Placed"), "message"), words);
  world.Refuse(WriteKind::kCreateChild, {});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 1u);
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("urgent"));
  EXPECT_EQ(StatusText(world, "urgent", "phase"), "Bound");
  EXPECT_EQ(world.wrong(), "");
}

TEST(Core, WhoMayNotPreemptIsNotInTheWayOfOneWhoMay) {
  World world(1, Options());
  world.AddClass("polite", 1'000, false);
  world.AddClass("urgent", 500);
  world.AddNode("n1", 1);
  world.AddShare("low", {{"request", "100"}});
  ASSERT_TRUE(world.Settle());
  for (int i = 0; i < 10; ++i) {
    world.AddShare(fmt::format("polite{}", i), {{"request", "60"}},
                   {{"priorityClassName", "polite"}});
  }
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 0u);
  world.AddShare("urgent", {{"request", "100"}}, {{"priorityClassName", "urgent"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 1u);
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.IsBound("low"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(Core, ATemplateThatSaysAPriorityInNumbersTakesNobodysRoom) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("low", {{"request", "100"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("numbers", {{"request", "60"}}, {{"priority", 2'000'000'000}});
  // A class that nobody knows: the API server would refuse its pod.
  world.AddShare("unknown", {{"request", "60"}}, {{"priorityClassName", "no-such-class"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 0u);
  EXPECT_TRUE(world.IsBound("low"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(Core, ANodeThatVanishesIsNotBoundTo) {
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

TEST(Core, PodsOfOthersCountInWhatANodeHas) {
  World world(1, Options());
  world.AddNode("n1", 4, 80'000, {{"status", {{"allocatable", {{"cpu", "4"}, {"pods", "3"}}}}}});
  world.AddPod("other", {{"cpu", "3"}}, {},
               {{"schedulerName", "default-scheduler"}, {"nodeName", "n1"}});
  world.AddShare("a", {{"request", "10"}});
  world.AddShare("b", {{"request", "10"}});
  world.AddShare("c", {{"request", "10"}});
  ASSERT_TRUE(world.Settle());
  // 1 CPU is left for two of 500 m each, and two pods.
  EXPECT_EQ(world.IsBound("a") + world.IsBound("b") + world.IsBound("c"), 2);
  world.Delete(resources::kPods, "other");
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.IsBound("a") + world.IsBound("b") + world.IsBound("c"), 3);
}

// ---------------------------------------------------------------------------------- by chance

std::string RandomPercent(Random& random) {
  return std::to_string(random.Between(1, random.OneIn(3) ? 100 : 50));
}

// A node whose device plugin has registered `units` of shares.
Json Plugin(int64_t units) {
  return {{"status", {{"allocatable", {{"baton.dev/gpu-share", std::to_string(units)}}}}}};
}

// By which no cards are guessed before its GpuNode is known.
Json MemoryPlugin(int64_t units) {
  return {{"status", {{"allocatable", {{"baton.dev/gpu-memory", std::to_string(units)}}}}}};
}

TEST(Core, NoPodIsBoundThatTheKubeletWouldRefuse) {
  World world(1, Options());
  world.AddNode("n1", 1, 80'000, Plugin(100));
  world.AddShare("a", {{"request", "60"}});
  ASSERT_TRUE(world.Settle());
  world.Patch(resources::kSharePods, "a", {{"spec", {{"gpu", {{"request", "20"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(StatusText(world, "a", "request"), "20");
  // 80 % of the card are free; the kubelet has 40.
  world.AddShare("b", {{"request", "44"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(ConditionOf(world, "b", "Placed"), "message"),
            "team/b fits on none of 1 nodes: 1 without other things that it needs\n"
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

TEST(Core, EightPodsOfAnEighthFitInTheKubeletsAccount) {
  World world(1, Options());
  world.AddNode("n1", 1, 80'000, Plugin(100));
  for (int i = 0; i < 8; ++i) world.AddShare(fmt::format("s{}", i), {{"request", "12.5"}});
  ASSERT_TRUE(world.Settle());
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(world.IsBound(fmt::format("s{}", i))) << i;
  EXPECT_EQ(world.wrong(), "");
}

TEST(Core, ANodeWhosePluginHasGoneGetsNoPods) {
  World world(1, Options());
  world.AddNode("n1", 1, 80'000, Plugin(0));
  world.AddShare("a", {{"request", "10"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(
      TextAt(ConditionOf(world, "a", "Placed"), "message"),
      "team/a fits on none of 1 nodes: 1 without other things that it needs\n"
      "n1: the kubelet has no baton.dev/gpu-share: no GPU there is healthy, or Baton's agent or "
      "batond on the node does not answer");
  world.AddNode("n1", 1, 80'000, Plugin(100));
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("a"));
}

TEST(Core, NodesWithoutGpusAreCountedAndDoNotCrowdOutTheOthers) {
  World world(1, Options());
  for (int i = 0; i < 60; ++i) world.AddNode(fmt::format("cpu-{:02}", i), 0);
  world.AddNode("gpu-1", 1);
  world.AddShare("a", {{"request", "80"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("b", {{"request", "30"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(ConditionOf(world, "b", "Placed"), "message"),
            "team/b fits on none of 61 nodes: 1 without room on their cards, 60 without GPUs\n"
            "gpu-1: card 0 20 % of it are free, 30 % wanted");
  EXPECT_EQ(TextAt(ConditionOf(world, "b", "Placed"), "reason"), "Unschedulable");
}

size_t Told(World& world, const std::string& kind, const std::string& reason) {
  return static_cast<size_t>(
      std::count_if(world.notes().begin(), world.notes().end(), [&](const Note& note) {
        return note.reason == reason && TextAt(note.about, "kind") == kind && note.warning;
      }));
}

TEST(Core, AChildThatTheApiServerRefusesSaysSoAndIsTriedAgain) {
  World world(1, Options());
  world.AddNode("n1", 1);
  const std::string words = "pods \"a\" is forbidden: exceeded quota: gpus";
  world.Refuse(WriteKind::kCreateChild, {403, "Forbidden", words, {}});
  world.AddShare("a", {{"request", "60"}});
  EXPECT_FALSE(world.Settle(std::chrono::minutes(10)));  // it is tried for ever
  const auto says = [&] {
    const Json placed = ConditionOf(world, "a", "Placed");
    return TextAt(placed, "status") == "False" && TextAt(placed, "reason") == "ChildRefused" &&
           TextAt(placed, "message") == words && StatusText(world, "a", "phase") == "Pending" &&
           StatusText(world, "a", "placement").empty();
  };
  EXPECT_TRUE(says());
  const std::string since = TextAt(ConditionOf(world, "a", "Placed"), "lastTransitionTime");
  EXPECT_EQ(Told(world, "SharePod", "ChildRefused"), 1u);
  // At every moment, also while it is tried; seldom; and others get the room meanwhile.
  const uint64_t writes = world.writes();
  for (int i = 0; i < 3'000; ++i) {
    world.Tick();
    ASSERT_TRUE(says()) << i;
  }
  EXPECT_GT(world.writes(), writes);
  EXPECT_LT(world.writes(), writes + 20);
  EXPECT_EQ(Told(world, "SharePod", "ChildRefused"), 1u);
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Placed"), "lastTransitionTime"), since);
  world.AddPod("b", {{"baton.dev/gpu-share", "60"}});
  world.Settle(std::chrono::minutes(10));
  EXPECT_TRUE(world.IsBound("b"));
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Placed"), "reason"), "Unschedulable");
  world.Delete(resources::kPods, "b");
  world.Reap();
  world.Settle(std::chrono::minutes(10));
  EXPECT_TRUE(says());
  // Another binder, which knows nothing, comes to the same.
  world.Restart();
  world.Settle(std::chrono::minutes(10));
  EXPECT_TRUE(says());
  world.Refuse(WriteKind::kCreateChild, {});
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("a"));
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Placed"), "status"), "True");
  EXPECT_EQ(StatusText(world, "a", "node"), "n1");
  EXPECT_NE(StatusText(world, "a", "placement"), "");
  EXPECT_EQ(world.wrong(), "");
}

TEST(Core, ABindingThatTheApiServerRefusesSaysSo) {
  World world(1, Options());
  world.AddNode("n1", 1);
  const std::string words = "admission webhook \"policy\" denied the request";
  world.Refuse(WriteKind::kBind, {403, "Forbidden", words, {}});
  world.AddPod("p", {{"baton.dev/gpu-share", "30"}});
  world.AddShare("a", {{"request", "30"}});
  EXPECT_FALSE(world.Settle(std::chrono::minutes(10)));
  const auto pod = world.Get(resources::kPods, "p");
  ASSERT_NE(Find(*pod, "status/conditions"), nullptr);
  EXPECT_EQ(TextAt((*pod)["status"]["conditions"][0], "type"), "PodScheduled");
  EXPECT_EQ(TextAt((*pod)["status"]["conditions"][0], "message"), "BindingRefused: " + words);
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Placed"), "reason"), "BindingRefused");
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Placed"), "message"), words);
  EXPECT_EQ(Told(world, "SharePod", "BindingRefused"), 1u);
  EXPECT_EQ(Told(world, "Pod", "BindingRefused"), 2u);  // p, and the child
  EXPECT_TRUE(world.core().cluster().pods().empty());
  world.Refuse(WriteKind::kBind, {});
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("p"));
  EXPECT_TRUE(world.IsBound("a"));
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Bound"), "status"), "True");
  EXPECT_EQ(world.wrong(), "");
}

TEST(Core, NobodyGoesForOneThatFoundRoomMeanwhileOrHasGone) {
  for (const bool deleted : {false, true}) {
    World world(1, Options());
    world.AddClass("high", 1'000);
    world.AddNode("n1", 1);
    world.AddPod("low", {{"baton.dev/gpu-share", "100"}});
    ASSERT_TRUE(world.Settle());
    // It is not told yet that it has to go.
    world.Refuse(WriteKind::kMarkVictim, {500, "InternalError", "etcd is away", {}});
    world.AddPod("urgent", {{"baton.dev/gpu-share", "100"}}, {}, {{"priorityClassName", "high"}});
    EXPECT_FALSE(world.Settle(std::chrono::seconds(5)));
    if (deleted) {
      world.Delete(resources::kPods, "urgent");
      world.Reap();
    } else {
      world.AddNode("n2", 1);
    }
    EXPECT_FALSE(world.Settle(std::chrono::milliseconds(100)));
    EXPECT_EQ(world.IsBound("urgent"), !deleted);
    world.Refuse(WriteKind::kMarkVictim, {});
    ASSERT_TRUE(world.Settle());
    EXPECT_EQ(world.deleted(), 0u);
    EXPECT_TRUE(world.IsBound("low"));
  }
}

TEST(Core, OneThatIsBoundLaterGoesForOneOfHigherPriority) {
  World world(1, Options());
  world.AddClass("high", 1'000);
  world.AddNode("n1", 1);
  world.Refuse(WriteKind::kBind, {500, "InternalError", "etcd is away", {}});
  world.AddPod("low", {{"baton.dev/gpu-share", "100"}});
  EXPECT_FALSE(world.Settle(std::chrono::seconds(1)));
  world.AddPod("urgent", {{"baton.dev/gpu-share", "100"}}, {}, {{"priorityClassName", "high"}});
  EXPECT_FALSE(world.Settle(std::chrono::seconds(1)));
  EXPECT_EQ(world.deleted(), 0u);
  world.Refuse(WriteKind::kBind, {});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 1u);
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("urgent"));
}

TEST(Core, NoNodeIsKeptForOneThatDoesNotFitAfterOthersHaveGone) {
  World world(1, Options());
  world.AddClass("high", 1'000);
  world.AddNode("n1", 1);
  world.AddShare("high", {{"request", "30"}}, {{"priorityClassName", "high"}});
  world.AddPod("low", {{"baton.dev/gpu-share", "60"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("urgent", {{"request", "70"}}, {{"priorityClassName", "high"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 1u);
  world.Patch(resources::kSharePods, "urgent", {{"spec", {{"gpu", {{"request", "80"}}}}}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("other", {{"request", "50"}}, {{"priorityClassName", "high"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.IsBound("other"));
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("other"));
}

std::string MessageOf(World& world, const std::string& pod) {
  const auto found = world.Get(resources::kPods, pod);
  const Json* list = found ? Find(*found, "status/conditions") : nullptr;
  return list != nullptr && !list->empty() ? TextAt(list->back(), "message") : "";
}

TEST(Core, AllThatWaitSayWhatHasChangedThoughOnlySomeAreExplainedInAStep) {
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

// A core that is told of objects by the test itself.
class FedByHand {
 public:
  explicit FedByHand(CoreOptions options) : core(std::move(options)) {
    core.Changed(Watched::kNode, Stamp(NodeOf("n1"), "node"));
    core.Changed(Watched::kGpuNode, Stamp(CardsOn("n1", 1), "cards"));
    core.Synced();
  }

  Json Stamp(Json object, const std::string& uid) {
    object["metadata"].merge_patch(
        {{"uid", uid}, {"generation", 1}, {"resourceVersion", std::to_string(++version_)}});
    return object;
  }
  std::vector<Write> Step() {
    now_.at += std::chrono::milliseconds(20);
    return core.Step(now_).writes;
  }
  // The next write of that name within a second.
  std::optional<Write> Next(const std::string& name) {
    for (int i = 0; i < 50; ++i) {
      for (Write& write : Step()) {
        if (write.name.name == name) return std::move(write);
      }
    }
    return std::nullopt;
  }

  Core core;

 private:
  uint64_t version_ = 0;
  CoreNow now_{Instant(std::chrono::seconds(1'000)), 1'800'000'000};
};

TEST(Core, ManyThatWaitDoNotKeepOneFromSayingWhy) {
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

TEST(Core, WhatWasDecidedForOneIsNotForAnotherOfItsName) {
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

TEST(Core, WhatAPodSaysAnewIsTriedAtOnce) {
  World world(1, Options());
  world.AddNode("n1", 1, 80'000,
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
}

// Each is all that changes: nothing else starts a round.
TEST(Core, APodThatANodeKeptOutIsBoundOnceTheNodeAllowsIt) {
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

TEST(Core, APriorityClassThatComesLaterCounts) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("low", {{"request", "100"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("urgent", {{"request", "100"}}, {{"priorityClassName", "high"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 0u);
  world.AddClass("high", 1'000);
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 1u);
}

TEST(Core, AChildThatMayNotBeChangedSaysSoAndLeavesItsRoomToOthers) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.Refuse(WriteKind::kBind, {403, "Forbidden", "a policy is against it", {}});
  world.AddShare("a", {{"request", "60"}});
  EXPECT_FALSE(world.Settle(std::chrono::minutes(1)));
  ASSERT_TRUE(world.Get(resources::kPods, "a"));
  world.Refuse(WriteKind::kBind, {});
  world.Refuse(WriteKind::kPatchPod, {403, "Forbidden", "annotations are frozen", {}});
  world.Patch(resources::kSharePods, "a", {{"spec", {{"gpu", {{"request", "50"}}}}}});
  EXPECT_FALSE(world.Settle(std::chrono::minutes(1)));
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Placed"), "reason"), "ChildRefused");
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Placed"), "message"), "annotations are frozen");
  world.AddPod("b", {{"baton.dev/gpu-share", "60"}});
  world.Settle(std::chrono::minutes(5));
  EXPECT_TRUE(world.IsBound("b"));
  world.Refuse(WriteKind::kPatchPod, {});
  world.Delete(resources::kPods, "b");
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("a"));
  EXPECT_EQ(StatusText(world, "a", "request"), "50");
  EXPECT_EQ(world.wrong(), "");
}

// The API server's event of a deletion may come before its answer.
TEST(Core, AnAnswerAfterThePodHasGoneDelaysNobodyOfItsName) {
  FedByHand told(Options());
  Json orphan = told.Stamp(PodOf("s", {{"baton.dev/gpu-share", "30"}}), "orphan");
  orphan["metadata"]["ownerReferences"] = Json::array({{{"apiVersion", "baton.dev/v1alpha1"},
                                                        {"kind", "SharePod"},
                                                        {"name", "s"},
                                                        {"uid", "before"},
                                                        {"controller", true}}});
  told.core.Changed(Watched::kPod, orphan);
  const std::vector<Write> writes = told.Step();
  ASSERT_EQ(writes.size(), 1u);
  ASSERT_EQ(writes[0].kind, WriteKind::kDeletePod);
  told.core.Gone(Watched::kPod, orphan);
  told.core.Changed(Watched::kSharePod, told.Stamp(ShareOf("s", {{"request", "30"}}), "after"));
  told.core.Done({writes[0].id, true, Json::object(), {}});
  bool placed = false;
  for (int i = 0; i < 50 && !placed; ++i) placed = !told.Step().empty();
  EXPECT_TRUE(placed);
}

TEST(Core, RoomIsGivenBackOnlyOnceItIsCertainThatNoBindingWasCarriedOut) {
  for (const bool bound : {false, true}) {
    FedByHand told(Options());
    Json pod = told.Stamp(PodOf("p", {{"baton.dev/gpu-share", "60"}}), "p");
    told.core.Changed(Watched::kPod, pod);
    auto write = told.Next("p");
    ASSERT_TRUE(write && write->kind == WriteKind::kBind);
    const Json annotations = write->body["metadata"]["annotations"];
    told.core.Done({write->id, false, {}, {0, "", "connection reset", {}}});
    write = told.Next("p");
    ASSERT_TRUE(write && write->kind == WriteKind::kBind);
    // This one is refused; what became of the first is not known.
    told.core.Done({write->id, false, {}, {403, "Forbidden", "a policy is against it", {}}});
    write = told.Next("p");
    ASSERT_TRUE(write && write->kind == WriteKind::kPatchPod);
    EXPECT_EQ(write->body, Json({{"metadata", {{"uid", "p"}}}}));
    EXPECT_TRUE(told.core.cluster().pods().contains("team/p"));
    if (bound) {
      pod["spec"]["nodeName"] = "n1";
      pod["metadata"]["annotations"] = annotations;
      pod = told.Stamp(std::move(pod), "p");
    }
    told.core.Done({write->id, true, pod, {}});
    told.core.Changed(Watched::kPod, told.Stamp(PodOf("q", {{"baton.dev/gpu-share", "60"}}), "q"));
    write = told.Next("q");
    ASSERT_TRUE(write);
    EXPECT_EQ(write->kind, bound ? WriteKind::kPodCondition : WriteKind::kBind);
    EXPECT_EQ(told.core.cluster().pods().contains("team/p"), bound);
  }
}

TEST(Core, WhatAPodGaveBackIsFreeThoughItAsksForWhatItCannotHave) {
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
    EXPECT_EQ(share(), 800'000u);
    // It is carried out; and then the user asks for what makes no sense.
    pod["metadata"]["annotations"].merge_patch(write->body["metadata"]["annotations"]);
    if (lost) {
      told.core.Done({write->id, false, {}, {0, "", "connection reset", {}}});
      told.core.Changed(Watched::kPod, with("130"));
      write = told.Next("p");
      // A patch of nothing: until it is answered the first may still be under way.
      ASSERT_TRUE(write && write->kind == WriteKind::kPatchPod);
      EXPECT_EQ(write->body, Json({{"metadata", {{"uid", "p"}}}}));
      EXPECT_EQ(share(), 800'000u);
    }
    told.core.Done({write->id, true, with("130"), {}});
    told.Step();
    EXPECT_EQ(share(), 600'000u);
  }
}

// What the SharePod's child asks for.
devmgr::PodRequest ChildPodOf(const Json& share) {
  const auto child = ChildPod(share, kMemoryUnitMib);
  if (!child) return {};
  const auto gpu = ReadGpuPod(*child, kMemoryUnitMib);
  if (!gpu) return {};
  devmgr::PodRequest request = gpu->request;
  request.node_labels.clear();
  request.resources = OtherResources(*child);
  return request;
}

void DoSomething(World& world, int* number) {
  Random& random = world.random();
  const auto some = [&](const Resource& resource) -> std::string {
    const auto all = world.All(resource);
    if (all.empty()) return "";
    return TextAt(all[random.Next() % all.size()], "metadata/name");
  };
  switch (random.Between(0, 15)) {
    case 0:
    case 1:
    case 2: {
      Json gpu{{"request", RandomPercent(random)}};
      if (random.OneIn(3)) gpu["memory"] = fmt::format("{}Gi", random.Between(1, 40));
      if (random.OneIn(5)) gpu["count"] = 2;
      if (random.OneIn(10)) gpu = {{"mode", "exclusive"}};
      if (random.OneIn(4)) gpu["priority"] = "high";
      Json spec;
      if (random.OneIn(2)) spec["restartPolicy"] = random.OneIn(2) ? "Never" : "OnFailure";
      if (random.OneIn(4)) spec["priorityClassName"] = random.OneIn(2) ? "high" : "polite";
      world.AddShare(fmt::format("s{}", ++*number), gpu, spec);
      break;
    }
    case 3:
    case 4:
      world.AddPod(fmt::format("p{}", ++*number), {{"baton.dev/gpu-share", RandomPercent(random)}});
      break;
    case 5:
      world.Delete(resources::kSharePods, some(resources::kSharePods));
      break;
    case 6:
      world.Delete(resources::kPods, some(resources::kPods));
      break;
    case 7:
      random.OneIn(2) ? world.Stop() : world.Reap();
      break;
    case 8:
      world.SetPhase(some(resources::kPods), random.OneIn(3) ? "Succeeded" : "Running");
      break;
    case 9:
      world.Patch(resources::kSharePods, some(resources::kSharePods),
                  {{"spec", {{"gpu", {{"request", RandomPercent(random)}}}}}});
      if (random.OneIn(2)) {
        world.Patch(
            resources::kSharePods, some(resources::kSharePods),
            {{"spec", {{"gpu", {{"memory", fmt::format("{}Mi", random.Between(1, 60'000))}}}}}});
      }
      break;
    case 10:
      world.Cordon(some(resources::kNodes), random.OneIn(2));
      break;
    case 11: {
      const std::string name = some(resources::kNodes);
      if (!name.empty()) world.RemoveNode(name);
      break;
    }
    case 12: {
      // A kubelet refuses or ends a pod.
      const char* reasons[] = {"UnexpectedAdmissionError", "OutOfcpu", "NodeShutdown", "Evicted"};
      world.Fail(some(resources::kPods), reasons[random.Between(0, 3)], random.OneIn(2));
      if (random.OneIn(3)) world.ShutDown(some(resources::kPods));
      break;
    }
    case 13: {
      // Or all that come to a node, for a while.
      const std::string node = some(resources::kNodes);
      world.RefuseOn(node, random.OneIn(3) ? "UnexpectedAdmissionError" : "");
      break;
    }
    case 14: {
      const std::string gang = fmt::format("g{}", ++*number);
      const int64_t size = random.Between(1, 3);
      for (int64_t i = 0; i < size; ++i) {
        world.AddShare(fmt::format("{}-{}", gang, i), {{"request", RandomPercent(random)},
                                                       {"gang", {{"name", gang}, {"size", size}}}});
      }
      break;
    }
    default: {
      // A name is used again at once.
      const std::string pod = some(resources::kPods);
      if (pod.starts_with("p")) {
        world.Delete(resources::kPods, pod);
        world.AddPod(pod, {{"baton.dev/gpu-share", RandomPercent(random)}});
      }
      const std::string name = some(resources::kSharePods);
      if (name.empty()) break;
      world.Delete(resources::kSharePods, name);
      world.AddShare(name, {{"request", RandomPercent(random)}});
      break;
    }
  }
}

TEST(CoreProperty, WhateverHappensNoCardIsGivenTwiceAndAllThatFitsIsBound) {
  const uint64_t first = 20'261'121;
#ifdef BATON_SANITIZED
  const int worlds = 40;
#else
  const int worlds = 150;
#endif
  for (int w = 0; w < worlds; ++w) {
    const uint64_t seed = first + static_cast<uint64_t>(w);
    SCOPED_TRACE(fmt::format("seed {}", seed));
    CoreOptions options = Options();
    options.retry_max = std::chrono::seconds(5);
    World world(seed, options);
    Random& random = world.random();
    const auto one_in = [&] { return static_cast<uint64_t>(random.Between(3, 20)); };
    const WorldFaults faults{one_in(), one_in(), one_in(), one_in(), one_in()};
    world.faults = faults;
    world.AddClass("high", 1'000);
    world.AddClass("polite", 1'000, false);
    const int64_t nodes = random.Between(1, 3);
    for (int64_t n = 0; n < nodes; ++n) {
      const int64_t cards = random.Between(1, 3);
      world.AddNode(fmt::format("n{}", n), static_cast<size_t>(cards), 80'000,
                    random.OneIn(2) ? Json() : MemoryPlugin(cards * 80'000 / kMemoryUnitMib));
    }
    int number = 0;
    const int64_t deeds = random.Between(10, 40);
    for (int64_t d = 0; d < deeds; ++d) {
      DoSomething(world, &number);
      const int64_t ticks = random.Spread(1, 60);
      for (int64_t t = 0; t < ticks; ++t) world.Tick();
      if (random.OneIn(12)) world.Restart();
    }
    world.faults = {};
    for (const Json& node : world.All(resources::kGpuNodes)) {
      const std::string name = TextAt(node, "metadata/name");
      const size_t cards = node["status"]["cards"].size();
      if (!world.Get(resources::kNodes, name)) world.AddNode(name, cards);
      world.Cordon(name, false);
      world.RefuseOn(name, "");
    }
    ASSERT_TRUE(world.Settle()) << "it never rests";
    // Who goes for others ends, and then is made again where there is room.
    const auto ending = [&] {
      const std::vector<Json> pods = world.All(resources::kPods);
      return std::any_of(pods.begin(), pods.end(), [](const Json& pod) {
        return Find(pod, "metadata/deletionTimestamp") != nullptr;
      });
    };
    for (int turn = 0; ending(); ++turn) {
      ASSERT_LT(turn, 100) << "they displace each other for ever";
      world.Reap();
      ASSERT_TRUE(world.Settle()) << "it never rests";
    }
    ASSERT_EQ(world.wrong(), "");
    ASSERT_EQ(world.Wrong(), "");
    ASSERT_EQ(world.core().counts().unbooked, 0u);
    // What it has booked is what is bound, and no more.
    const auto booked = [&] {
      std::map<std::string, devmgr::Placement> all;
      for (const auto& [name, pod] : world.core().cluster().pods()) all[name] = pod.placement;
      return all;
    };
    std::map<std::string, devmgr::Placement> bound;
    size_t waiting = 0;
    size_t gangs = 0;  // SharePods of a gang that wait
    for (const Json& pod : world.All(resources::kPods)) {
      if (!TakesRoom(pod)) continue;
      const auto placement = ReadPlacement(pod);
      ASSERT_TRUE(placement);
      if (*placement) {
        bound[NameOf(pod).Text()] = **placement;
      } else if (Find(pod, "metadata/ownerReferences") == nullptr) {
        ++waiting;
        // It fits nowhere.
        const auto gpu = ReadGpuPod(pod, kMemoryUnitMib);
        ASSERT_TRUE(gpu) << gpu.error().message;
        devmgr::PodRequest request = gpu->request;
        request.node_labels.clear();
        request.resources = OtherResources(pod);
        EXPECT_FALSE(world.core().cluster().Decide(request)) << NameOf(pod).Text();
      }
    }
    EXPECT_EQ(booked(), bound);
    for (const Json& share : world.All(resources::kSharePods)) {
      const std::string name = TextAt(share, "metadata/name");
      const auto pod = world.Get(resources::kPods, name);
      const std::string phase = TextAt(share, "status/phase");
      if (phase == "Pending") {
        ASSERT_FALSE(pod && world.IsBound(name)) << name;
        const std::string reason = TextAt(ConditionOf(world, name, "Placed"), "reason");
        if (reason == "Invalid") continue;  // exclusive, with a request
        EXPECT_TRUE(reason == "Unschedulable" || reason == "WaitingForGang") << share;
        ++waiting;
        if (reason == "WaitingForGang" || Find(share, "spec/gpu/gang") != nullptr) {
          ++gangs;
          continue;
        }
        auto child = ChildPodOf(share);
        if (pod) child.resources = OtherResources(*pod);
        EXPECT_FALSE(world.core().cluster().Decide(child)) << name;
      } else if (phase == "Bound" || phase == "Running") {
        ASSERT_TRUE(pod) << name;
        EXPECT_EQ(TextAt(*pod, "spec/nodeName"), TextAt(share, "status/node"));
        EXPECT_EQ(EndOf(*pod), PodEnd::kNone) << name << " is not made again";
      } else {
        EXPECT_TRUE(phase == "Succeeded" || phase == "Failed") << name << " is " << phase;
        // Only what ended by itself has.
        EXPECT_TRUE(world.Completed(UidOf(share))) << *pod;
        EXPECT_NE(TextAt(share, "spec/template/spec/restartPolicy", "Always"), "Always") << name;
      }
    }
    EXPECT_EQ(world.core().counts().waiting, waiting);
    // One that knows only what stands there decides the same, and writes nothing.
    const auto before = booked();
    const uint64_t writes = world.writes();
    world.Restart();
    ASSERT_TRUE(world.Settle());
    EXPECT_EQ(booked(), before);
    // But which of a gang it names: that depends on the usual mix, and it on pods which are gone.
    EXPECT_LE(world.writes() - writes, gangs);
    // All goes, and all is free.
    for (const Json& share : world.All(resources::kSharePods)) {
      world.Delete(resources::kSharePods, TextAt(share, "metadata/name"));
    }
    ASSERT_TRUE(world.Settle());
    for (const Json& pod : world.All(resources::kPods)) {
      world.Delete(resources::kPods, TextAt(pod, "metadata/name"));
    }
    world.Reap();
    ASSERT_TRUE(world.Settle());
    EXPECT_TRUE(booked().empty());
    EXPECT_EQ(world.All(resources::kPods).size(), 0u);
    EXPECT_EQ(world.core().counts().waiting, 0u);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace baton::k8s::testing
