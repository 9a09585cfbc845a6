// The binder's core: SharePods whose pods end, are deleted, or are refused by their node.
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

std::string UidOfPod(World& world, const std::string& name) {
  const auto pod = world.Get(resources::kPods, name);
  return pod ? UidOf(*pod) : "";
}

TEST(CoreReplacement, DeletedChildIsMadeAgain) {
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

TEST(CoreReplacement, PodHasFinishedOnlyIfNobodyEndedIt) {
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

TEST(CoreReplacement, SharePodSurvivesDeletionOfItsPod) {
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

TEST(CoreReplacement, SharePodSurvivesRefusalOrEvictionOfItsPod) {
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

TEST(CoreReplacement, RefusingNodeIsTriedEverMoreSeldom) {
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
            "the pod has ended on node n1: UnexpectedAdmissionError: the kubelet says so; Baton "
            "will create another one");
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

TEST(CoreReplacement, SharePodFinishesWithItsPod) {
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

TEST(CoreReplacement, SharePodThatRestartsAlwaysNeverFinishes) {
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

TEST(CoreReplacement, DeletedSharePodGetsNoNewPod) {
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

TEST(CoreReplacement, PodWithoutSharePodIsNotReplaced) {
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

TEST(CoreReplacement, NodeReportsGoWithTheirPod) {
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
  SetCondition(status, {"Paused", true, "OthersHaveWork", ""}, std::nullopt,
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
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Paused"), "status"), "") << "nothing waits";
  EXPECT_EQ(StatusText(world, "a", "gpuSeconds"), "12") << "it has used them";
}

// The watch broke between the child's creation and its end, so it never tells of it.
TEST(CoreReplacement, ChildThatTheWatchNeverSawIsMadeAgain) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.Cordon("n1", true);
  ASSERT_TRUE(world.Settle());
  world.AddShare("s", {{"request", "60"}});
  for (int i = 0; i < 2'000 && !world.Get(resources::kPods, "s"); ++i) world.Tick();
  ASSERT_TRUE(world.Get(resources::kPods, "s"));
  world.Delete(resources::kPods, "s");
  world.Relist(Watched::kPod);
  world.Cordon("n1", false);
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("s"));
}

// A watch of SharePods that lags behind that of pods costs no pod its life.
TEST(CoreReplacement, ChildIsNotDeletedBecauseItsSharePodIsSeenLater) {
  FedByHand feed(Options());
  Json share = feed.Stamp(ShareOf("s", {{"request", "30"}}), "share");
  feed.core.Changed(Watched::kSharePod, share);
  const auto status = feed.Next("s");
  ASSERT_TRUE(status);
  feed.core.Done({status->id, true, status->body, {}});
  const auto create = feed.Next("s");
  ASSERT_TRUE(create);
  ASSERT_EQ(create->kind, WriteKind::kCreateChild);
  // Another core, which has seen the child first.
  FedByHand other(Options());
  other.core.Changed(Watched::kPod, other.Stamp(create->body, "child"));
  EXPECT_FALSE(other.Next("s"));
  other.core.Changed(Watched::kSharePod, share);
  const auto next = other.Next("s");
  ASSERT_TRUE(next);
  EXPECT_NE(next->kind, WriteKind::kDeletePod);
  // One that has gone leaves no child.
  other.core.Done({next->id, true, share, {}});
  other.core.Gone(Watched::kSharePod, share);
  for (auto write = other.Next("s"); write; write = other.Next("s")) {
    if (write->kind == WriteKind::kDeletePod) return;
    other.core.Done({write->id, true, share, {}});
  }
  FAIL() << "the child is not deleted";
}

// As Kubernetes' collector does after `kubectl delete sharepod NAME --cascade=orphan`.
void LeaveChild(World& world, const std::string& name) {
  world.Patch(resources::kPods, name, {{"metadata", {{"ownerReferences", nullptr}}}});
  world.Patch(resources::kSharePods, name, {{"metadata", {{"finalizers", nullptr}}}});
}

TEST(CoreReplacement, SharePodDeletedWithoutItsPodLeavesIt) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.AddShare("s", {{"request", "60"}});
  world.AddShare("waits", {{"request", "60"}});
  ASSERT_TRUE(world.Settle());
  const std::string bound = world.IsBound("s") ? "s" : "waits";
  const std::string pending = world.IsBound("s") ? "waits" : "s";
  for (const std::string& name : {bound, pending}) {
    world.Patch(resources::kSharePods, name, {{"metadata", {{"finalizers", {"orphan"}}}}});
    world.Delete(resources::kSharePods, name);
  }
  ASSERT_TRUE(world.Settle());
  ASSERT_TRUE(world.Get(resources::kSharePods, bound));
  for (const std::string& name : {bound, pending}) LeaveChild(world, name);
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.Get(resources::kSharePods, bound));
  EXPECT_EQ(world.deleted(), 0u);
  ASSERT_TRUE(world.IsBound(bound));
  EXPECT_FALSE(world.IsBound(pending));
  const devmgr::PlacedPod* placed = world.core().cluster().Find("team/" + bound);
  ASSERT_NE(placed, nullptr);
  EXPECT_EQ(placed->placement.vgpus.at(0).fit.share, policy::Share(600'000));
  // They are pods like others: changed in place, and bound.
  world.Patch(resources::kPods, bound,
              {{"metadata", {{"annotations", {{"main.container.baton.dev/request", "40"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound(pending));
  EXPECT_EQ(ReadPlacement(*world.Get(resources::kPods, bound)).value()->vgpus[0].fit.share,
            policy::Share(400'000));
  EXPECT_EQ(world.deleted(), 0u);
  EXPECT_EQ(world.wrong(), "");
}

// The watch of SharePods may be before that of pods, which shows that they are nobody's now.
TEST(CoreReplacement, PodThatItsSharePodLeavesIsNotDeletedBecauseItIsSeenLater) {
  FedByHand feed(Options());
  Json share = feed.Stamp(ShareOf("s", {{"request", "30"}}), "share");
  Json child = feed.Stamp(PodOf("s", {{"baton.dev/gpu-share", "30"}}), "child");
  child["metadata"]["ownerReferences"] = Json::array({{{"apiVersion", "baton.dev/v1alpha1"},
                                                       {"kind", "SharePod"},
                                                       {"name", "s"},
                                                       {"uid", "share"},
                                                       {"controller", true}}});
  feed.core.Changed(Watched::kPod, child);
  share["metadata"]["deletionTimestamp"] = "2026-11-28T00:00:00Z";
  share["metadata"]["finalizers"] = {"orphan", "example.com/mine"};
  feed.core.Changed(Watched::kSharePod, share);
  EXPECT_FALSE(feed.Next("s"));
  share = feed.Stamp(share, "share");
  share["metadata"]["finalizers"] = {"example.com/mine"};
  feed.core.Changed(Watched::kSharePod, share);
  EXPECT_FALSE(feed.Next("s"));
  feed.core.Gone(Watched::kSharePod, share);
  EXPECT_FALSE(feed.Next("s"));
}

TEST(CoreReplacement, ChildOfASharePodThatHasGoneIsDeletedAsItWasSeenOnly) {
  FedByHand feed(Options());
  Json child = feed.Stamp(PodOf("s", {{"baton.dev/gpu-share", "30"}}), "child");
  child["metadata"]["ownerReferences"] = Json::array({{{"apiVersion", "baton.dev/v1alpha1"},
                                                       {"kind", "SharePod"},
                                                       {"name", "s"},
                                                       {"uid", "share"},
                                                       {"controller", true}}});
  const Json share = feed.Stamp(ShareOf("s", {{"request", "30"}}), "share");
  feed.core.Changed(Watched::kPod, child);
  feed.core.Changed(Watched::kSharePod, share);
  feed.core.Gone(Watched::kSharePod, share);
  const auto write = feed.Next("s");
  ASSERT_TRUE(write);
  ASSERT_EQ(write->kind, WriteKind::kDeletePod);
  EXPECT_EQ(TextAt(write->body, "resourceVersion"), TextAt(child, "metadata/resourceVersion"));
}

}  // namespace
}  // namespace baton::k8s::testing
