// The binder's core: what becomes of pods that wait, change and end, and what users see of it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "k8s/binder/core.h"
#include "k8s/cluster/volumes.h"
#include "k8s/types/flavors.h"
#include "k8s/types/gpu_pod.h"
#include "tests/k8s/binder/core_fixture.h"
#include "tests/k8s/binder/objects.h"
#include "tests/k8s/binder/world.h"

namespace baton::k8s::testing {
namespace {

size_t Notes(World& world, const std::string& name, const std::string& reason,
             const char* kind = "Pod") {
  return static_cast<size_t>(
      std::count_if(world.notes().begin(), world.notes().end(), [&](const Note& note) {
        return note.reason == reason && TextAt(note.about, "metadata/name") == name &&
               TextAt(note.about, "kind") == kind;
      }));
}

Json PodConditionOf(World& world, const std::string& pod, const std::string& type) {
  const auto found = world.Get(resources::kPods, pod);
  const Json* list = found ? Find(*found, "status/conditions") : nullptr;
  if (list == nullptr) return {};
  for (const Json& condition : *list) {
    if (TextAt(condition, "type") == type) return condition;
  }
  return {};
}

std::string LimitOf(World& world, const std::string& pod) {
  const auto found = world.Get(resources::kPods, pod);
  return found ? TextAt(*found, "spec/containers/0/resources/limits/baton.dev~1gpu-share") : "";
}

Json Quota(const std::string& name, int share) {
  return {{"metadata", {{"name", name}}},
          {"spec", {{"hard", {{"requests.baton.dev/gpu-share", std::to_string(share)}}}}}};
}

// The watch shows most pods on their nodes before the Binding's answer comes.
TEST(CoreEvents, EveryBoundPodGetsOneScheduledEvent) {
  FedByHand feed(Options());
  for (const bool watch_first : {true, false}) {
    const std::string name = watch_first ? "seen" : "answered";
    Json pod = feed.Stamp(PodOf(name, {{"baton.dev/gpu-share", "10"}}), name);
    feed.core.Changed(Watched::kPod, pod);
    const auto bind = feed.Next(name);
    ASSERT_TRUE(bind && bind->kind == WriteKind::kBind);
    if (watch_first) {
      pod["spec"]["nodeName"] = "n1";
      pod["metadata"]["annotations"] = bind->body["metadata"]["annotations"];
      feed.core.Changed(Watched::kPod, feed.Stamp(pod, name));
    }
    std::vector<Note> notes = feed.StepNotes();
    feed.core.Done({bind->id, true, Json::object(), {}});
    for (Note& note : feed.StepNotes()) notes.push_back(std::move(note));
    EXPECT_EQ(std::count_if(notes.begin(), notes.end(),
                            [](const Note& note) { return note.reason == "Scheduled"; }),
              1)
        << name;
  }
}

TEST(CoreEvents, GrowthAndShrinkingAreBothTold) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("s", {{"request", "20"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(ConditionOf(world, "s", "Resized").is_null());
  world.Patch(resources::kSharePods, "s", {{"spec", {{"gpu", {{"request", "50"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(StatusText(world, "s", "request"), "50");
  EXPECT_EQ(Notes(world, "s", "Resized"), 1u);
  EXPECT_EQ(TextAt(ConditionOf(world, "s", "Resized"), "status"), "True");
  world.Patch(resources::kSharePods, "s", {{"spec", {{"gpu", {{"request", "10"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(Notes(world, "s", "Resized"), 2u);
  EXPECT_EQ(world.wrong(), "");
}

TEST(CoreEvents, ReadyFollowsThePod) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("s", {{"request", "20"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(ConditionOf(world, "s", "Ready"), "status"), "False");
  world.SetPhase("s", "Running");
  world.SetReady("s", true);
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(ConditionOf(world, "s", "Ready"), "status"), "True");
  world.SetReady("s", false);
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(ConditionOf(world, "s", "Ready"), "status"), "False");
}

// Cluster Autoscaler and Karpenter go by pods that say PodScheduled=False, Unschedulable.
TEST(CorePending, WaitingSharePodHasAnUnschedulablePod) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("a", {{"request", "80"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("b", {{"request", "30"}, {"memory", "1Gi"}});
  ASSERT_TRUE(world.Settle());
  const auto pod = world.Get(resources::kPods, "b");
  ASSERT_TRUE(pod);
  EXPECT_EQ(TextAt(*pod, "spec/nodeName"), "");
  const Json scheduled = PodConditionOf(world, "b", "PodScheduled");
  EXPECT_EQ(TextAt(scheduled, "status"), "False");
  EXPECT_EQ(TextAt(scheduled, "reason"), "Unschedulable");
  EXPECT_EQ(StatusText(world, "b", "phase"), "Pending");
  EXPECT_EQ(LimitOf(world, "b"), "30");
  // It comes at rest, and a restart makes nothing again.
  const uint64_t writes = world.writes();
  world.Restart();
  ASSERT_TRUE(world.Settle());
  EXPECT_LE(world.writes(), writes + 2);  // what it says, with the time of day
  // A node comes: the same pod is bound.
  world.AddNode("n2", 1);
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(UidOf(*world.Get(resources::kPods, "b")), UidOf(*pod));
  EXPECT_EQ(StatusText(world, "b", "node"), "n2");
  EXPECT_EQ(world.wrong(), "");
}

TEST(CorePending, WaitingSharePodThatAsksForLessGetsAPodWithLessLimits) {
  World world(1, Options());
  world.AddNode("n1", 1, 80'000, {{"status", {{"allocatable", {{"baton.dev/gpu-share", "100"}}}}}});
  world.AddShare("a", {{"request", "60"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("b", {{"request", "90"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(LimitOf(world, "b"), "90");
  world.Patch(resources::kSharePods, "b", {{"spec", {{"gpu", {{"request", "40"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(LimitOf(world, "b"), "40");
  EXPECT_TRUE(world.IsBound("b"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(CorePending, PodThatTheApiServerRefusesIsTriedLessAndLessOften) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("a", {{"request", "80"}});
  ASSERT_TRUE(world.Settle());
  world.Refuse(WriteKind::kCreateChild, {403, "Forbidden", "exceeded quota", {}});
  world.AddShare("b", {{"request", "30"}});
  const uint64_t writes = world.writes();
  EXPECT_FALSE(world.Settle(std::chrono::minutes(10)));
  EXPECT_EQ(TextAt(ConditionOf(world, "b", "Placed"), "reason"), "ChildRefused");
  // 0.2 s doubled up to a minute, and a status or two.
  EXPECT_LE(world.writes() - writes, 30u);
  EXPECT_GE(world.writes() - writes, 10u);
  world.Refuse(WriteKind::kCreateChild, {});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(ConditionOf(world, "b", "Placed"), "reason"), "Unschedulable");
  EXPECT_TRUE(world.Get(resources::kPods, "b"));
}

TEST(CorePending, GpusAreTheReasonWhereTheyHaveNoRoom) {
  World world(1, Options());
  world.AddNode("n1", 2, 80'000, {{"status", {{"allocatable", {{"baton.dev/gpu-share", "200"}}}}}});
  world.AddShare("a", {{"request", "90"}});
  world.AddShare("b", {{"request", "50"}});
  ASSERT_TRUE(world.Settle());
  // The GPUs have 110 % free, and the kubelet 60.
  world.Patch(resources::kSharePods, "a", {{"spec", {{"gpu", {{"request", "40"}}}}}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("big", {{"request", "95"}});
  ASSERT_TRUE(world.Settle());
  const std::string why = TextAt(ConditionOf(world, "big", "Placed"), "message");
  EXPECT_NE(why.find("1 insufficient GPU share or memory"), std::string::npos) << why;
  EXPECT_NE(why.find("50 % of it are free, 95 % wanted"), std::string::npos) << why;
  EXPECT_NE(why.find("60 % of it are free, 95 % wanted"), std::string::npos) << why;
  EXPECT_EQ(why.find("kubelet"), std::string::npos) << why;
}

// Where another scheduler places the child (one that knows pod affinity, with Baton's extender),
// the binder makes it and never binds it.
TEST(CorePending, AnotherSchedulersSharePodIsMadeAndNotBound) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("s", {{"request", "30"}},
                 {{"schedulerName", "gpus"},
                  {"affinity",
                   {{"podAntiAffinity",
                     {{"requiredDuringSchedulingIgnoredDuringExecution",
                       {{{"topologyKey", "kubernetes.io/hostname"}}}}}}}}});
  ASSERT_TRUE(world.Settle());
  const auto pod = world.Get(resources::kPods, "s");
  ASSERT_TRUE(pod);
  EXPECT_EQ(TextAt(*pod, "spec/schedulerName"), "gpus");
  EXPECT_FALSE(world.IsBound("s"));
  EXPECT_EQ(TextAt(ConditionOf(world, "s", "Placed"), "reason"), "WaitingForScheduler");
  // The other scheduler binds it, with the GPUs that the extender has chosen.
  GpuPod gpu = *ReadGpuPod(*pod, kMemoryUnitMib);
  const devmgr::Placement there{
      "n1", {{0, 0, "GPU-n1-0", "time-slice", {policy::Share(300'000), 0, 0, 0}, ""}}};
  Json annotations = Json::object();
  for (auto& [key, value] : PlacementAnnotations(gpu, there, gpu)) annotations[key] = value;
  world.Bind("s", "n1", annotations);
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(StatusText(world, "s", "phase"), "Bound");
  EXPECT_EQ(StatusText(world, "s", "gpu"), "0");
  // It counts, and changes in place as others do.
  world.Patch(resources::kSharePods, "s", {{"spec", {{"gpu", {{"request", "50"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(ReadPlacement(*world.Get(resources::kPods, "s")).value()->vgpus[0].fit.share,
            policy::Share(500'000));
}

TEST(CoreTemplate, NewTemplateMeansANewPod) {
  for (const bool bound : {true, false}) {
    World world(1, Options());
    world.AddNode("n1", 1);
    if (!bound) world.AddShare("other", {{"request", "100"}});
    ASSERT_TRUE(world.Settle());
    world.AddShare("s", {{"request", "30"}});
    ASSERT_TRUE(world.Settle());
    ASSERT_EQ(world.IsBound("s"), bound);
    const std::string uid = UidOf(*world.Get(resources::kPods, "s"));
    Json share = *world.Get(resources::kSharePods, "s");
    share["spec"]["template"]["spec"]["containers"][0]["image"] = "y";
    world.Patch(resources::kSharePods, "s", {{"spec", share["spec"]}});
    ASSERT_TRUE(world.Settle());
    world.Reap();
    ASSERT_TRUE(world.Settle());
    const auto pod = world.Get(resources::kPods, "s");
    ASSERT_TRUE(pod);
    EXPECT_NE(UidOf(*pod), uid);
    EXPECT_EQ(TextAt(*pod, "spec/containers/0/image"), "y");
    EXPECT_EQ(world.IsBound("s"), bound);
    EXPECT_EQ(Notes(world, "s", "TemplateChanged", "SharePod"), 1u);
    // No more than once, also after a restart.
    world.Restart();
    ASSERT_TRUE(world.Settle());
    EXPECT_EQ(UidOf(*world.Get(resources::kPods, "s")), UidOf(*pod));
    EXPECT_EQ(world.wrong(), "");
  }
}

TEST(CoreTemplate, PodOfAVersionThatDidNotSayItsTemplateStays) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("s", {{"request", "30"}});
  ASSERT_TRUE(world.Settle());
  const Json before = *world.Get(resources::kPods, "s");
  world.Patch(resources::kPods, "s",
              {{"metadata", {{"annotations", {{"baton.dev/template-hash", nullptr}}}}}});
  ASSERT_TRUE(world.Settle());
  world.Restart();
  ASSERT_TRUE(world.Settle());
  const Json after = *world.Get(resources::kPods, "s");
  EXPECT_EQ(UidOf(after), UidOf(before));
  EXPECT_EQ(after["metadata"]["annotations"]["baton.dev/template-hash"],
            before["metadata"]["annotations"]["baton.dev/template-hash"]);
}

// Without the webhook the binder reads what a flavor is.
TEST(CoreFlavors, PlacedSharePodKeepsItsSizeWhenItsFlavorChanges) {
  const auto offering = [](const std::vector<std::string>& flavors) {
    CoreOptions options = Options();
    options.inject.flavors = *ParseFlavors(flavors);
    return options;
  };
  World world(1, offering({"small=request=20,memory=4Gi", "large=request=50"}));
  world.AddNode("n1", 2);
  world.AddShare("a", {{"flavor", "small"}});
  world.AddShare("b", {{"flavor", "small"}, {"memory", "1Gi"}});
  ASSERT_TRUE(world.Settle());
  const auto size = [&](const std::string& name) {
    const auto placement = ReadPlacement(*world.Get(resources::kPods, name));
    const devmgr::Fit& fit = (*placement)->vgpus.at(0).fit;
    return std::pair(fit.share.millionths() / 10'000, fit.memory_mib);
  };
  EXPECT_EQ(size("a"), std::pair(20u, 4'096u));
  const std::string uid = UidOf(*world.Get(resources::kPods, "a"));

  world.Restart(offering({"small=request=40,memory=8Gi", "large=request=25"}));
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(size("a"), std::pair(20u, 4'096u));
  EXPECT_EQ(size("b"), std::pair(20u, 1'024u));
  EXPECT_EQ(Notes(world, "a", "Resized"), 0u);
  world.AddShare("new", {{"flavor", "small"}});
  // What it says itself no more is the flavor's as it was.
  world.Patch(resources::kSharePods, "b", {{"spec", {{"gpu", {{"memory", nullptr}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(size("new"), std::pair(40u, 8'192u));
  EXPECT_EQ(size("b"), std::pair(20u, 4'096u));

  // It is offered no more.
  world.Restart(offering({"large=request=25"}));
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(size("a"), std::pair(20u, 4'096u));
  EXPECT_EQ(StatusText(world, "a", "phase"), "Bound");

  // Another flavor counts as it is now.
  world.Patch(resources::kSharePods, "a", {{"spec", {{"gpu", {{"flavor", "large"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(size("a").first, 25u);
  world.Restart(offering({"large=request=30"}));
  world.Relist(Watched::kSharePod);
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(size("a").first, 25u);
  // So do sizes of its own, with which nothing is left to fill in.
  world.Patch(resources::kSharePods, "a",
              {{"spec", {{"gpu", {{"request", "10"}, {"limit", "20"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(size("a").first, 10u);
  EXPECT_EQ(UidOf(*world.Get(resources::kPods, "a")), uid);
  EXPECT_EQ(world.wrong(), "");
}

TEST(CoreEnds, InitContainerThatHasEndedGivesItsShareBack) {
  World world(1, Options());
  world.AddNode("n1", 1);
  Json share = ShareOf("s", nullptr, {{"initContainers", {{{"name", "first"}, {"image", "x"}}}}});
  share["spec"].erase("gpu");
  share["spec"]["containers"] = {
      {{"name", "first"}, {"gpu", {{"request", "60"}, {"memory", "8Gi"}}}},
      {{"name", "main"}, {"gpu", {{"request", "20"}}}}};
  world.Put(resources::kSharePods, share);
  ASSERT_TRUE(world.Settle());
  ASSERT_TRUE(world.IsBound("s"));
  world.AddShare("next", {{"request", "70"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.IsBound("next"));
  const auto ended = [&](int code) {
    world.SetStatus("s",
                    {{"phase", "Running"},
                     {"initContainerStatuses",
                      {{{"name", "first"}, {"state", {{"terminated", {{"exitCode", code}}}}}}}}});
  };
  // One that failed is started again.
  ended(1);
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.IsBound("next"));
  ended(0);
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("next"));
  const auto placement = ReadPlacement(*world.Get(resources::kPods, "s"));
  ASSERT_TRUE(placement && *placement);
  EXPECT_EQ((*placement)->vgpus[0].fit.share, policy::Share(0));
  EXPECT_EQ((*placement)->vgpus[0].fit.memory_mib, 0u);
  EXPECT_EQ((*placement)->vgpus[1].fit.share, policy::Share(200'000));
  // So it is after a restart.
  world.Restart();
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.core().counts().unbooked, 0u);
  EXPECT_EQ(world.core().counts().placed, 2u);
  EXPECT_EQ(world.wrong(), "");
}

TEST(CoreBudgets, PreemptionTakesPodsThatNoBudgetKeeps) {
  World world(1, Options());
  world.AddClass("high", 1'000);
  world.AddNode("n1", 1);
  world.AddNode("n2", 1);
  world.AddShare("a", {{"request", "100"}});
  world.AddShare("b", {{"request", "100"}});
  ASSERT_TRUE(world.Settle());
  world.store().budgeted = {{kSpace, "a"}};
  world.AddShare("urgent", {{"request", "100"}}, {{"priorityClassName", "high"}});
  (void)world.Settle(std::chrono::seconds(20));
  world.Reap();
  (void)world.Settle(std::chrono::seconds(20));
  EXPECT_TRUE(world.IsBound("urgent"));
  EXPECT_TRUE(world.IsBound("a"));
  EXPECT_FALSE(world.IsBound("b"));
  EXPECT_TRUE(PodConditionOf(world, "a", "DisruptionTarget").is_null());
  EXPECT_EQ(world.wrong(), "");
}

TEST(CoreBudgets, PreemptionComesOnceTheBudgetAllowsIt) {
  World world(1, Options());
  world.AddClass("high", 1'000);
  world.AddNode("n1", 1);
  world.AddShare("a", {{"request", "100"}});
  ASSERT_TRUE(world.Settle());
  world.store().budgeted = {{kSpace, "a"}};
  world.AddShare("urgent", {{"request", "100"}}, {{"priorityClassName", "high"}});
  EXPECT_FALSE(world.Settle(std::chrono::minutes(5)));
  EXPECT_TRUE(world.IsBound("a"));
  EXPECT_EQ(TextAt(PodConditionOf(world, "a", "DisruptionTarget"), "status"), "");
  EXPECT_LE(world.deleted(), 12u);  // asked every half minute, not more
  world.store().budgeted.clear();
  (void)world.Settle(std::chrono::minutes(1));
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("urgent"));
}

TEST(CoreQuota, GrowthBeyondTheNamespacesQuotaIsNotInForce) {
  World world(1, Options());
  world.AddNode("n1", 2);
  world.Put(resources::kResourceQuotas, Quota("team", 50));
  world.AddShare("s", {{"request", "40"}});
  ASSERT_TRUE(world.Settle());
  ASSERT_TRUE(world.IsBound("s"));
  world.Patch(resources::kSharePods, "s", {{"spec", {{"gpu", {{"request", "95"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(ReadPlacement(*world.Get(resources::kPods, "s")).value()->vgpus[0].fit.share,
            policy::Share(400'000));
  const Json resized = ConditionOf(world, "s", "Resized");
  EXPECT_EQ(TextAt(resized, "status"), "False");
  EXPECT_NE(TextAt(resized, "message").find("exceeded quota: team"), std::string::npos) << resized;
  world.Put(resources::kResourceQuotas, Quota("team", 95));
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(ReadPlacement(*world.Get(resources::kPods, "s")).value()->vgpus[0].fit.share,
            policy::Share(950'000));
}

// Pods were created with small limits, which is all that the API server counts, and have grown.
TEST(CoreQuota, WhatHasGrownKeepsOthersOut) {
  World world(1, Options());
  world.AddNode("n1", 4);
  world.Put(resources::kResourceQuotas, Quota("team", 100));
  for (const char* name : {"a", "b"}) world.AddShare(name, {{"request", "10"}});
  ASSERT_TRUE(world.Settle());
  for (const char* name : {"a", "b"}) {
    world.Patch(resources::kSharePods, name, {{"spec", {{"gpu", {{"request", "45"}}}}}});
  }
  ASSERT_TRUE(world.Settle());
  for (int i = 0; i < 3; ++i) world.AddPod(fmt::format("p{}", i), {{"baton.dev/gpu-share", "6"}});
  ASSERT_TRUE(world.Settle());
  int bound = 0;
  for (int i = 0; i < 3; ++i) bound += world.IsBound(fmt::format("p{}", i)) ? 1 : 0;
  EXPECT_EQ(bound, 1);
  std::string waits;
  for (int i = 0; i < 3; ++i) {
    waits += TextAt(PodConditionOf(world, fmt::format("p{}", i), "PodScheduled"), "message");
  }
  EXPECT_NE(waits.find("QuotaExceeded: exceeded quota: team, requested: "
                       "requests.baton.dev/gpu-share=6, used: requests.baton.dev/gpu-share=96"),
            std::string::npos)
      << waits;
  world.Patch(resources::kSharePods, "a", {{"spec", {{"gpu", {{"request", "10"}}}}}});
  ASSERT_TRUE(world.Settle());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(world.IsBound(fmt::format("p{}", i)));
}

// Each of them alone would be within the quota.
TEST(CoreQuota, GangBeyondTheQuotaTogetherWaitsAndTakesNoRoom) {
  World world(1, Options());
  world.AddNode("n1", 2);
  world.Put(resources::kResourceQuotas, Quota("team", 50));
  const Json member{{"request", "30"}, {"gang", {{"name", "g"}, {"size", 2}}}};
  for (const char* name : {"a", "b"}) world.AddShare(name, member);
  ASSERT_TRUE(world.Settle());
  const uint64_t rounds = world.core().counts().rounds;
  EXPECT_LT(rounds, 10u);
  std::string why;
  for (const char* name : {"a", "b"}) {
    EXPECT_FALSE(world.IsBound(name));
    why += TextAt(ConditionOf(world, name, "Placed"), "message") + "; ";
  }
  EXPECT_NE(why.find("exceeded quota: team, requested: requests.baton.dev/gpu-share=30, used: "
                     "requests.baton.dev/gpu-share=30"),
            std::string::npos)
      << why;
  // It is charged nothing while it waits.
  world.AddShare("c", {{"request", "45"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("c"));
  world.Put(resources::kResourceQuotas, Quota("team", 105));
  world.AddNode("n2", 1);
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("a"));
  EXPECT_TRUE(world.IsBound("b"));
}

class CoreVolumes : public ::testing::Test {
 protected:
  CoreVolumes() : world_(1, Options()) {
    world_.AddNode("n1", 1, 80'000, {{"metadata", {{"labels", {{"zone", "a"}}}}}});
    world_.AddNode("n2", 1, 80'000, {{"metadata", {{"labels", {{"zone", "b"}}}}}});
  }
  void Class(const std::string& name, const std::string& provisioner, const Json& rest = {}) {
    Json object{{"metadata", {{"name", name}}},
                {"provisioner", provisioner},
                {"volumeBindingMode", "WaitForFirstConsumer"}};
    if (rest.is_object()) object.merge_patch(rest);
    world_.Put(kStorageClassesOfWorld, object);
  }
  void Claim(const std::string& name, const std::string& storage_class) {
    world_.Put(kClaimsOfWorld, {{"metadata", {{"name", name}}},
                                {"spec", {{"storageClassName", storage_class}}},
                                {"status", {{"phase", "Pending"}}}});
  }
  static Json With(const std::string& claim) {
    return {{"volumes", {{{"name", "data"}, {"persistentVolumeClaim", {{"claimName", claim}}}}}}};
  }
  std::string Selected(const std::string& claim) {
    const auto found = world_.Get(kClaimsOfWorld, claim);
    return found ? TextAt(*found, "metadata/annotations/volume.kubernetes.io~1selected-node") : "";
  }
  void Provision(const std::string& claim) {
    world_.Put(kVolumesOfWorld, {{"metadata", {{"name", "pv-" + claim}}}});
    Json bound = *world_.Get(kClaimsOfWorld, claim);
    bound["spec"]["volumeName"] = "pv-" + claim;
    bound["status"]["phase"] = "Bound";
    world_.Put(kClaimsOfWorld, bound);
  }
  // As provisioners do where there is no capacity.
  void GiveUp(const std::string& claim) {
    world_.Patch(
        kClaimsOfWorld, claim,
        {{"metadata", {{"annotations", {{"volume.kubernetes.io/selected-node", nullptr}}}}}});
  }
  World world_;
};

TEST_F(CoreVolumes, VolumeThatWaitsForItsFirstConsumerIsMadeWhereThePodGoes) {
  Class("standard", "ebs.csi.aws.com",
        {{"allowedTopologies",
          {{{"matchLabelExpressions", {{{"key", "zone"}, {"values", {"b"}}}}}}}}});
  Claim("data", "standard");
  world_.AddShare("s", {{"request", "30"}}, With("data"));
  ASSERT_TRUE(world_.Settle());
  EXPECT_EQ(Selected("data"), "n2");
  EXPECT_FALSE(world_.IsBound("s"));
  EXPECT_EQ(StatusText(world_, "s", "phase"), "Placed");
  // A restart goes on with the same node.
  world_.Restart();
  ASSERT_TRUE(world_.Settle());
  EXPECT_EQ(Selected("data"), "n2");
  Provision("data");
  ASSERT_TRUE(world_.Settle());
  EXPECT_TRUE(world_.IsBound("s"));
  EXPECT_EQ(StatusText(world_, "s", "node"), "n2");
  EXPECT_EQ(world_.wrong(), "");
}

TEST_F(CoreVolumes, ProvisionerThatGivesUpOnANodeGetsAnother) {
  Class("standard", "ebs.csi.aws.com");
  Claim("data", "standard");
  world_.AddPod("p", {{"baton.dev/gpu-share", "30"}}, {}, With("data"));
  ASSERT_TRUE(world_.Settle());
  const std::string first = Selected("data");
  ASSERT_NE(first, "");
  GiveUp("data");
  ASSERT_TRUE(world_.Settle());
  EXPECT_NE(Selected("data"), first);
  EXPECT_NE(Selected("data"), "");
  Provision("data");
  ASSERT_TRUE(world_.Settle());
  EXPECT_TRUE(world_.IsBound("p"));
}

TEST_F(CoreVolumes, NodeThatAProvisionerGaveUpIsTriedAgainWhereThereIsNoOther) {
  Class("standard", "ebs.csi.aws.com");
  Claim("data", "standard");
  world_.AddPod("p", {{"baton.dev/gpu-share", "30"}}, {}, With("data"));
  ASSERT_TRUE(world_.Settle());
  const std::string first = Selected("data");
  world_.Cordon(first == "n1" ? "n2" : "n1", true);
  ASSERT_TRUE(world_.Settle());
  const Instant given_up = world_.now().at;
  GiveUp("data");
  EXPECT_TRUE(world_.Settle(std::chrono::seconds(50)) || Selected("data").empty());
  ASSERT_TRUE(world_.Settle());
  EXPECT_EQ(Selected("data"), first);
  EXPECT_GE(world_.now().at - given_up, std::chrono::seconds(59));
  Provision("data");
  ASSERT_TRUE(world_.Settle());
  EXPECT_TRUE(world_.IsBound("p"));
}

TEST_F(CoreVolumes, NothingGoesToAGpuOfWhichItsNodeTellsNoMore) {
  Class("standard", "ebs.csi.aws.com");
  Claim("data", "standard");
  world_.Cordon("n1", true);
  world_.AddShare("there", {{"request", "30"}});
  // It has a place, and waits there for its volume.
  world_.AddShare("s", {{"request", "30"}}, With("data"));
  ASSERT_TRUE(world_.Settle());
  ASSERT_EQ(Selected("data"), "n2");
  ASSERT_FALSE(world_.IsBound("s"));
  const Json known = *world_.Get(resources::kGpuNodes, "n2");
  Json unknown = known;
  unknown.erase("status");
  world_.Put(resources::kGpuNodes, unknown);
  ASSERT_TRUE(world_.Settle());
  // Its pod is made anew, and where it goes is decided anew.
  world_.Patch(resources::kSharePods, "s",
               {{"spec", {{"template", {{"spec", {{"hostname", "other"}}}}}}}});
  ASSERT_TRUE(world_.Settle());
  world_.Reap();
  Provision("data");
  ASSERT_TRUE(world_.Settle());
  EXPECT_FALSE(world_.IsBound("s"));
  world_.Put(resources::kGpuNodes, known);
  ASSERT_TRUE(world_.Settle());
  EXPECT_TRUE(world_.IsBound("s"));
}

// The watch may still have to show what was before the answer to the binder's own write.
TEST(Volumes, EventFromBeforeTheAnswerToAWriteTakesNothingBack) {
  const auto claim = [](const char* version, const char* node) {
    Json object{
        {"metadata", {{"namespace", "team"}, {"name", "data"}, {"resourceVersion", version}}},
        {"spec", {{"storageClassName", "standard"}}},
        {"status", {{"phase", "Pending"}}}};
    if (*node != 0) object["metadata"]["annotations"][std::string(kSelectedNode)] = node;
    return object;
  };
  Volumes volumes;
  volumes.SetClass({{"metadata", {{"name", "standard"}}},
                    {"provisioner", "ebs.csi.aws.com"},
                    {"volumeBindingMode", "WaitForFirstConsumer"}});
  PodNeeds needs;
  needs.claims = {"data"};
  const Instant now(std::chrono::seconds(1'000));
  volumes.SetClaim(claim("7", ""), now);
  volumes.SetClaim(claim("9", "n1"), now);
  volumes.SetClaim(claim("8", ""), now);
  EXPECT_EQ(volumes.MissingOn("n1", "team", needs).claim, "data");
  EXPECT_FALSE(volumes.MissingOn("n1", "team", needs).tell);
  EXPECT_EQ(volumes.next_retry(), kNever);
  volumes.SetClaim(claim("10", ""), now);
  EXPECT_TRUE(volumes.MissingOn("n1", "team", needs).tell) << "its provisioner has given up";
  EXPECT_EQ(volumes.Resolve("team", needs)->terms.size(), 1u) << "not there";
  EXPECT_EQ(volumes.next_retry(), now + std::chrono::minutes(1));
  EXPECT_FALSE(volumes.Retry(now + std::chrono::seconds(59)));
  EXPECT_TRUE(volumes.Retry(now + std::chrono::minutes(1)));
  EXPECT_TRUE(volumes.Resolve("team", needs)->terms.empty()) << "there again";
}

TEST_F(CoreVolumes, ClassWithoutAProvisionerSaysWhatToDo) {
  Class("local", "kubernetes.io/no-provisioner");
  Claim("data", "local");
  world_.AddShare("s", {{"request", "30"}}, With("data"));
  ASSERT_TRUE(world_.Settle());
  const Json placed = ConditionOf(world_, "s", "Placed");
  EXPECT_EQ(TextAt(placed, "reason"), "VolumeUnbound");
  EXPECT_NE(TextAt(placed, "message").find("has no provisioner"), std::string::npos) << placed;
  EXPECT_EQ(Selected("data"), "");
  EXPECT_FALSE(world_.IsBound("s"));
}

// The claim of an ephemeral volume is made by a controller, for a pod that is there.
TEST_F(CoreVolumes, EphemeralVolumesClaimIsMadeForTheWaitingPod) {
  Class("standard", "ebs.csi.aws.com");
  world_.AddShare("s", {{"request", "30"}},
                  {{"volumes", {{{"name", "scratch"}, {"ephemeral", Json::object()}}}}});
  ASSERT_TRUE(world_.Settle());
  EXPECT_TRUE(world_.Get(resources::kPods, "s"));
  Claim("s-scratch", "standard");
  ASSERT_TRUE(world_.Settle());
  EXPECT_NE(Selected("s-scratch"), "");
  Provision("s-scratch");
  ASSERT_TRUE(world_.Settle());
  EXPECT_TRUE(world_.IsBound("s"));
}

}  // namespace
}  // namespace baton::k8s::testing
