// The binder's core: who is preempted for whom, and who is not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "k8s/binder/core.h"
#include "k8s/cluster/node_filter.h"
#include "k8s/cluster/objects.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/share_pod.h"
#include "tests/k8s/binder/core_fixture.h"
#include "tests/k8s/binder/objects.h"
#include "tests/k8s/binder/world.h"

namespace baton::k8s::testing {
namespace {

TEST(CorePreemption, FewestPodsOfLowerPriorityArePreempted) {
  World world(1, Options());
  world.AddNode("n1", 2);
  world.AddClass("high", 1'000);
  for (int i = 0; i < 2; ++i) world.AddShare(fmt::format("half{}", i), {{"request", "50"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("full", {{"request", "100"}});
  ASSERT_TRUE(world.Settle());
  ASSERT_TRUE(world.IsBound("full"));
  // One victim is enough: the whole GPU, or two halves; it is the one pod.
  world.AddShare("urgent", {{"request", "100"}}, {{"priorityClassName", "high"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 1u);
  EXPECT_FALSE(world.IsBound("urgent"));  // the victim has its grace period
  const Json victim = *world.Get(resources::kPods, "full");
  ASSERT_NE(Find(victim, "status/conditions"), nullptr);
  const Json target = victim["status"]["conditions"].back();
  EXPECT_EQ(TextAt(target, "type"), "DisruptionTarget");
  EXPECT_EQ(TextAt(target, "status"), "True");
  EXPECT_EQ(TextAt(target, "reason"), "EvictionByEvictionAPI");
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

// Victims may take long to end: nobody else waits for that once the room is not needed.
TEST(CorePreemption, NodeKeptForOneThatIsPlacedElsewhereIsFreeAtOnce) {
  World world(1, Options());
  world.AddClass("high", 1'000);
  world.AddClass("polite", 1'000, false);
  world.AddNode("n1", 2, 80'000, {{"metadata", {{"labels", {{"zone", "a"}}}}}});
  world.AddShare("low", {{"request", "100"}});
  world.AddShare("shrinks", {{"request", "100"}}, {{"priorityClassName", "high"}});
  ASSERT_TRUE(world.Settle());
  world.AddPod("first", {{"baton.dev/gpu-share", "50"}}, {},
               {{"priorityClassName", "polite"}, {"nodeSelector", {{"zone", "a"}}}});
  ASSERT_TRUE(world.Settle());
  world.AddPod("urgent", {{"baton.dev/gpu-share", "100"}}, {}, {{"priorityClassName", "high"}});
  ASSERT_TRUE(world.Settle());
  ASSERT_EQ(world.deleted(), 1u);
  world.Patch(resources::kSharePods, "shrinks", {{"spec", {{"gpu", {{"request", "50"}}}}}});
  ASSERT_TRUE(world.Settle());
  ASSERT_FALSE(world.IsBound("first"));  // n1 is kept for the other
  world.AddNode("n2", 1, 80'000, {{"metadata", {{"labels", {{"zone", "b"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("urgent"));
  EXPECT_TRUE(world.IsBound("first"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(CorePreemption, NobodyGrowsIntoRoomThatOthersMakeForAPodOfNoLowerPriority) {
  World world(1, Options());
  world.AddClass("high", 1'000);
  world.AddNode("n1", 1);
  world.AddShare("low", {{"request", "60"}});
  world.AddShare("grows", {{"request", "30"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("urgent", {{"request", "70"}}, {{"priorityClassName", "high"}});
  ASSERT_TRUE(world.Settle());
  ASSERT_EQ(world.deleted(), 1u);
  world.Patch(resources::kSharePods, "grows", {{"spec", {{"gpu", {{"request", "40"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(ConditionOf(world, "grows", "Resized"), "status"), "False");
  EXPECT_NE(TextAt(ConditionOf(world, "grows", "Resized"), "message").find("kept for team/urgent"),
            std::string::npos)
      << ConditionOf(world, "grows", "Resized");
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("urgent"));
  EXPECT_EQ(world.deleted(), 1u);
  // It may shrink, and grow once there is room.
  world.Patch(resources::kSharePods, "urgent", {{"spec", {{"gpu", {{"request", "50"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(ConditionOf(world, "grows", "Resized"), "status"), "True");
  EXPECT_EQ(world.wrong(), "");
}

TEST(CorePreemption, FinishedPodIsNotPreempted) {
  World world(1, Options());
  world.AddClass("high", 1'000);
  world.AddNode("n1", 1);
  world.AddShare("low", {{"request", "100"}}, {{"restartPolicy", "Never"}});
  ASSERT_TRUE(world.Settle());
  // It is not told yet that it has to go, when it ends.
  world.Refuse(WriteKind::kEvict, {500, "InternalError", "etcd is away", {}});
  world.AddPod("urgent", {{"baton.dev/gpu-share", "100"}}, {}, {{"priorityClassName", "high"}});
  EXPECT_FALSE(world.Settle(std::chrono::seconds(5)));
  world.SetPhase("low", "Succeeded");
  world.Refuse(WriteKind::kEvict, {});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 0u);
  EXPECT_EQ(StatusText(world, "low", "phase"), "Succeeded");
  EXPECT_TRUE(world.IsBound("urgent"));
}

TEST(CorePreemption, HighTokenPriorityPreemptsNobody) {
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

TEST(CorePreemption, PodsOfOneClassDoNotPreemptEachOther) {
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

TEST(CorePreemption, ClassThatNeverPreemptsPreemptsNobody) {
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

TEST(CorePreemption, NobodyIsPreemptedForARejectedPod) {
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

TEST(CorePreemption, NonPreemptingPodDoesNotBlockAPreemptor) {
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

TEST(CorePreemption, PriorityNumberInATemplateIsIgnored) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("low", {{"request", "100"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("numbers", {{"request", "60"}}, {{"priority", 2'000'000'000}});
  // A class that nobody knows: the API server would refuse its pod.
  world.AddShare("unknown", {{"request", "60"}}, {{"priorityClassName", "no-such-class"}});
  EXPECT_FALSE(world.Settle(std::chrono::minutes(5)));  // the API server refuses both pods
  EXPECT_EQ(TextAt(ConditionOf(world, "unknown", "Placed"), "reason"), "ChildRefused");
  EXPECT_EQ(world.deleted(), 0u);
  EXPECT_TRUE(world.IsBound("low"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(CorePreemption, PreemptionStopsOnceItIsNotNeeded) {
  for (const bool deleted : {false, true}) {
    World world(1, Options());
    world.AddClass("high", 1'000);
    world.AddNode("n1", 1);
    world.AddPod("low", {{"baton.dev/gpu-share", "100"}});
    ASSERT_TRUE(world.Settle());
    // It is not told yet that it has to go.
    world.Refuse(WriteKind::kEvict, {500, "InternalError", "etcd is away", {}});
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
    world.Refuse(WriteKind::kEvict, {});
    ASSERT_TRUE(world.Settle());
    EXPECT_EQ(world.deleted(), 0u);
    EXPECT_TRUE(world.IsBound("low"));
  }
}

TEST(CorePreemption, PodBoundLaterCanBePreempted) {
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

TEST(CorePreemption, FailedPreemptionKeepsNoNode) {
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

TEST(CorePreemption, NodeStaysKeptWhileThePreemptorsPodIsReplaced) {
  World world(1, Options());
  world.AddClass("high", 1'000);
  world.AddNode("n1", 1);
  world.AddPod("low", {{"baton.dev/gpu-share", "60"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("urgent", {{"request", "70"}}, {{"priorityClassName", "high"}});
  ASSERT_TRUE(world.Settle());
  ASSERT_EQ(world.deleted(), 1u);
  world.AddPod("small", {{"baton.dev/gpu-share", "30"}});
  ASSERT_TRUE(world.Settle());
  ASSERT_FALSE(world.IsBound("small"));
  world.Pass(std::chrono::seconds(1));  // so a round can begin at once
  // Its pod has the limits of before, and has to be created again.
  world.Patch(resources::kSharePods, "urgent", {{"spec", {{"gpu", {{"request", "80"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.IsBound("small"));
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("urgent"));
  EXPECT_FALSE(world.IsBound("small"));
  EXPECT_EQ(world.deleted(), 2u);  // with the pod that was replaced
  EXPECT_EQ(world.wrong(), "");
}

TEST(CorePreemption, NobodyOfAGangGoesForAnotherOfIt) {
  World world(1, Options());
  world.AddClass("high", 1'000);
  world.AddNode("n1", 2);
  world.AddShare("low", {{"request", "40"}, {"gang", {{"name", "g"}, {"size", 2}}}});
  world.AddShare("high", {{"request", "60"}, {"gang", {{"name", "g"}, {"size", 2}}}},
                 {{"priorityClassName", "high"}});
  ASSERT_TRUE(world.Settle());
  ASSERT_TRUE(world.IsBound("low"));
  ASSERT_TRUE(world.IsBound("high"));
  // The GPU of the one fails: it could only come back where the other is.
  const auto at = ReadPlacement(*world.Get(resources::kPods, "high"));
  Json gpus = *world.Get(resources::kGpuNodes, "n1");
  for (Json& card : gpus["status"]["cards"]) {
    if (card["uuid"] == (*at)->vgpus.at(0).card) card["health"] = "Failed";
  }
  world.Put(resources::kGpuNodes, gpus);
  world.Delete(resources::kPods, "high");
  for (int i = 0; i < 4; ++i) {
    static_cast<void>(world.Settle(std::chrono::seconds(30)));
    world.Reap();
  }
  EXPECT_FALSE(world.IsBound("high"));
  EXPECT_TRUE(world.IsBound("low"));
  EXPECT_EQ(world.wrong(), "");
}

// By two budgets, by a policy, by a webhook that does not answer.
const ApiError kRefusals[] = {
    {500,
     "InternalError",
     "This pod has more than one PodDisruptionBudget, which the eviction "
     "subresource does not support.",
     {}},
    {500, "InternalError", "failed calling webhook \"policy\": no endpoints available", {}},
    {403, "Forbidden", "ValidatingAdmissionPolicy 'stays' denied request", {}},
    {422, "Invalid", "a policy is against it", {}}};

TEST(CorePreemption, OthersGoWhereTheApiServerRefusesToEvictOne) {
  for (const ApiError& refusal : kRefusals) {
    SCOPED_TRACE(refusal.message);
    World world(1, Options());
    world.AddClass("high", 1'000);
    world.AddNode("n1", 1);
    world.AddNode("n2", 1);
    world.AddShare("a", {{"request", "100"}});
    world.AddShare("b", {{"request", "100"}});
    ASSERT_TRUE(world.Settle());
    world.Refuse(WriteKind::kEvict, refusal, "a");
    world.AddShare("urgent", {{"request", "100"}}, {{"priorityClassName", "high"}});
    for (int i = 0; i < 3; ++i) {
      (void)world.Settle(std::chrono::seconds(15));
      world.Reap();
    }
    EXPECT_TRUE(world.IsBound("urgent"));
    EXPECT_TRUE(world.IsBound("a"));
    EXPECT_FALSE(world.IsBound("b"));
    EXPECT_EQ(world.wrong(), "");
  }
}

TEST(CorePreemption, WhoWaitsSaysWhoseEvictionWasRefusedAndWhy) {
  for (const ApiError& refusal : kRefusals) {
    SCOPED_TRACE(refusal.message);
    World world(1, Options());
    world.AddClass("high", 1'000);
    world.AddNode("n1", 1);
    world.AddPod("low", {{"baton.dev/gpu-share", "100"}});
    ASSERT_TRUE(world.Settle());
    world.Refuse(WriteKind::kEvict, refusal);
    world.AddPod("urgent", {{"baton.dev/gpu-share", "100"}}, {}, {{"priorityClassName", "high"}});
    // Others may have what is free meanwhile.
    (void)world.Settle(std::chrono::seconds(25));
    EXPECT_NE(MessageOf(world, "urgent").find("team/low stays"), std::string::npos)
        << MessageOf(world, "urgent");
    EXPECT_NE(MessageOf(world, "urgent").find(refusal.message), std::string::npos);
    const auto told =
        std::count_if(world.notes().begin(), world.notes().end(), [&](const Note& note) {
          return note.reason == "EvictionRefused" && note.warning &&
                 TextAt(note.about, "metadata/name") == "urgent" &&
                 note.text.find(refusal.message) != std::string::npos;
        });
    EXPECT_EQ(told, 1);
    const std::vector<std::string> troubles = world.core().TakeTroubles();
    EXPECT_TRUE(std::any_of(troubles.begin(), troubles.end(), [&](const std::string& trouble) {
      return trouble.find(refusal.message) != std::string::npos;
    }));
    // Once it may go it goes.
    world.Refuse(WriteKind::kEvict, {});
    (void)world.Settle(std::chrono::minutes(1));
    world.Reap();
    ASSERT_TRUE(world.Settle());
    EXPECT_TRUE(world.IsBound("urgent"));
    EXPECT_EQ(world.wrong(), "");
  }
}

TEST(CorePreemption, PriorityClassCreatedLaterCounts) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("low", {{"request", "100"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("urgent", {{"request", "100"}}, {{"priorityClassName", "high"}});
  EXPECT_FALSE(world.Settle(std::chrono::minutes(1)));
  EXPECT_EQ(world.deleted(), 0u);
  world.AddClass("high", 1'000);
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 1u);
}

}  // namespace
}  // namespace baton::k8s::testing
