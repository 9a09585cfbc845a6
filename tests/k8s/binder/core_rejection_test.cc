// The binder's core: writes that the API server rejects, or of which nobody knows how they ended.
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

size_t Told(World& world, const std::string& kind, const std::string& reason) {
  return static_cast<size_t>(
      std::count_if(world.notes().begin(), world.notes().end(), [&](const Note& note) {
        return note.reason == reason && TextAt(note.about, "kind") == kind && note.warning;
      }));
}

TEST(CoreRejection, RejectedChildIsReportedAndRetried) {
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
  // Its pod is tried without room too, so that autoscalers can see it.
  EXPECT_TRUE(says());
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

TEST(CoreRejection, RejectedBindingIsReported) {
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

TEST(CoreRejection, UnpatchableChildGivesItsRoomToOthers) {
  World world(1, Options());
  world.AddNode("n1", 1);
  world.Refuse(WriteKind::kBind, {403, "Forbidden", "a policy is against it", {}});
  world.AddShare("a", {{"request", "60"}});
  EXPECT_FALSE(world.Settle(std::chrono::minutes(1)));
  ASSERT_TRUE(world.Get(resources::kPods, "a"));
  world.Refuse(WriteKind::kBind, {});
  world.Refuse(WriteKind::kPatchPod, {403, "Forbidden", "annotations are frozen", {}});
  world.Patch(resources::kSharePods, "a", {{"spec", {{"gpu", {{"limit", "90"}}}}}});
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
  EXPECT_EQ(StatusText(world, "a", "limit"), "90");
  EXPECT_EQ(world.wrong(), "");
}

// The API server's event of a deletion may come before its answer.
TEST(CoreRejection, LateDeleteAnswerDelaysNoNewPod) {
  FedByHand told(Options());
  Json orphan = told.Stamp(PodOf("s", {{"baton.dev/gpu-share", "30"}}), "orphan");
  orphan["metadata"]["ownerReferences"] = Json::array({{{"apiVersion", "baton.dev/v1alpha1"},
                                                        {"kind", "SharePod"},
                                                        {"name", "s"},
                                                        {"uid", "before"},
                                                        {"controller", true}}});
  const Json before = told.Stamp(ShareOf("s", {{"request", "30"}}), "before");
  told.core.Changed(Watched::kPod, orphan);
  told.core.Changed(Watched::kSharePod, before);
  told.core.Gone(Watched::kSharePod, before);
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

// A namespace, a webhook or a path of the API may be what is not found.
TEST(CoreRejection, NotFoundForgetsAPodOnlyWhereItIsMissing) {
  for (const bool doubt : {false, true}) {
    FedByHand told(Options());
    told.core.Changed(Watched::kPod, told.Stamp(PodOf("p", {{"baton.dev/gpu-share", "60"}}), "p"));
    auto write = told.Next("p");
    ASSERT_TRUE(write && write->kind == WriteKind::kBind);
    if (doubt) {
      told.core.Done({write->id, false, {}, {0, "", "connection reset", {}}});
      write = told.Next("p");
      ASSERT_TRUE(write && write->kind == WriteKind::kBind);
    }
    const ApiError error{404, "NotFound", "the server could not find the requested resource", {}};
    told.core.Done({write->id, false, {}, error});
    write = told.Next("p");
    ASSERT_TRUE(write && write->kind == WriteKind::kBind);
    EXPECT_TRUE(told.core.cluster().pods().contains("team/p"));
    told.core.Done({write->id, false, {}, error, true});
    EXPECT_FALSE(told.Next("p"));
    EXPECT_FALSE(told.core.cluster().pods().contains("team/p"));
  }
}

TEST(CoreRejection, RoomIsKeptWhileABindingIsInDoubt) {
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

}  // namespace
}  // namespace baton::k8s::testing
