// The binder's core: children that are not what their SharePod's template says, for admission has
// added to them, and pods that change after.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "k8s/binder/core.h"
#include "tests/k8s/binder/core_fixture.h"
#include "tests/k8s/binder/objects.h"
#include "tests/k8s/binder/world.h"

namespace baton::k8s::testing {
namespace {

Json CpuOf(const char* cpu) { return {{"status", {{"allocatable", {{"cpu", cpu}}}}}}; }

Json Zone(const char* zone) { return {{"metadata", {{"labels", {{"zone", zone}}}}}}; }

std::string Node(World& world, const std::string& pod) {
  const auto found = world.Get(resources::kPods, pod);
  return found ? TextAt(*found, "spec/nodeName") : "gone";
}

uint32_t BookedCpu(World& world, const std::string& pod) {
  const devmgr::PlacedPod* placed = world.core().cluster().Find("team/" + pod);
  return placed == nullptr ? 0 : placed->request.cpu_milli;
}

// A LimitRange's default, a container that a webhook adds, a RuntimeClass's overhead.
TEST(CoreAdmission, ChildGoesWhereThatOfItIsFreeWhichItAsksFor) {
  const std::vector<Json> additions = {
      {{"containers",
        Json::array({{{"name", "main"}, {"resources", {{"requests", {{"cpu", "8"}}}}}}})}},
      {{"containers",
        Json::array({{{"name", "main"}},
                     {{"name", "proxy"}, {"resources", {{"requests", {{"cpu", "8"}}}}}}})}},
      {{"overhead", {{"cpu", "7500m"}}}}};
  for (const Json& addition : additions) {
    SCOPED_TRACE(addition.dump());
    World world(1, Options());
    world.admit = [&](Json& pod) {
      // What is there already stays.
      const Json before = pod["spec"]["containers"][0];
      pod["spec"].merge_patch(addition);
      Json& main = pod["spec"]["containers"][0];
      Json merged = before;
      merged.merge_patch(main);
      main = merged;
    };
    world.AddNode("n1", 1, 80'000, CpuOf("2"));
    world.AddShare("a", {{"request", "60"}});
    ASSERT_TRUE(world.Settle());
    ASSERT_TRUE(world.Get(resources::kPods, "a"));
    EXPECT_EQ(Node(world, "a"), "");
    EXPECT_TRUE(world.core().cluster().pods().empty()) << "it holds room where it cannot go";
    EXPECT_EQ(TextAt(ConditionOf(world, "a", "Placed"), "reason"), "Unschedulable");
    world.AddNode("n2", 1, 80'000, CpuOf("16"));
    ASSERT_TRUE(world.Settle());
    EXPECT_EQ(Node(world, "a"), "n2");
    EXPECT_GE(BookedCpu(world, "a"), 8'000u);
    EXPECT_EQ(StatusText(world, "a", "node"), "n2");
    // The same after a restart.
    world.Restart();
    ASSERT_TRUE(world.Settle());
    EXPECT_GE(BookedCpu(world, "a"), 8'000u);
    EXPECT_EQ(world.wrong(), "");
  }
}

TEST(CoreAdmission, ChildGoesWhereItsOwnSelectorSays) {
  World world(1, Options());
  world.admit = [](Json& pod) { pod["spec"]["nodeSelector"]["zone"] = "b"; };
  world.AddNode("n1", 1, 80'000, Zone("a"));
  world.AddShare("a", {{"request", "60"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(Node(world, "a"), "");
  EXPECT_TRUE(world.core().cluster().pods().empty());
  world.AddNode("n2", 1, 80'000, Zone("b"));
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(Node(world, "a"), "n2");
  // Another pod of it is made as the first one was.
  world.Delete(resources::kPods, "a");
  ASSERT_TRUE(world.Settle());
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(Node(world, "a"), "n2");
  EXPECT_EQ(world.wrong(), "");
}

TEST(CoreAdmission, ChildWithNeedsThatCannotBeHonouredHoldsNoRoom) {
  World world(1, Options());
  world.admit = [](Json& pod) {
    if (TextAt(pod, "metadata/name") != "a") return;
    pod["spec"]["topologySpreadConstraints"] = {{{"whenUnsatisfiable", "DoNotSchedule"}}};
  };
  world.AddNode("n1", 1);
  world.AddShare("a", {{"request", "60"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(Node(world, "a"), "");
  const Json placed = ConditionOf(world, "a", "Placed");
  EXPECT_EQ(TextAt(placed, "reason"), "Invalid");
  EXPECT_NE(TextAt(placed, "message").find("topologySpreadConstraints"), std::string::npos);
  EXPECT_NE(MessageOf(world, "a").find("topologySpreadConstraints"), std::string::npos);
  world.AddShare("b", {{"request", "60"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(Node(world, "b"), "n1");
}

TEST(CoreAdmission, PodThatIsResizedOnItsNodeTakesWhatItAsksForNow) {
  World world(1, Options());
  world.AddNode("n1", 1, 80'000, CpuOf("4"));
  const auto spec = [](const char* cpu, const char* share) {
    return Json{{"containers", Json::array({{{"name", "main"},
                                             {"resources",
                                              {{"requests", {{"cpu", cpu}}},
                                               {"limits", {{"baton.dev/gpu-share", share}}}}}}})}};
  };
  world.AddPod("p", {}, {}, spec("1", "30"));
  ASSERT_TRUE(world.Settle());
  ASSERT_EQ(Node(world, "p"), "n1");
  world.Patch(resources::kPods, "p", {{"spec", spec("3500m", "30")}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(BookedCpu(world, "p"), 3'500u);
  world.AddPod("q", {}, {}, spec("1", "20"));
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(Node(world, "q"), "");
  world.Patch(resources::kPods, "p", {{"spec", spec("2", "30")}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(Node(world, "q"), "n1");
  EXPECT_EQ(BookedCpu(world, "p"), 2'000u);
}

TEST(CoreAdmission, SharePodWithGatesHasItsPodAndNoRoom) {
  World world(1, Options());
  world.AddClass("high", 1'000);
  world.AddNode("n1", 1);
  world.AddShare("low", {{"request", "100"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare(
      "a", {{"request", "100"}},
      {{"priorityClassName", "high"}, {"schedulingGates", {{{"name", "example.com/later"}}}}});
  ASSERT_TRUE(world.Settle());
  ASSERT_TRUE(world.Get(resources::kPods, "a"));
  EXPECT_EQ(world.deleted(), 0u) << "nobody goes for it";
  const Json placed = ConditionOf(world, "a", "Placed");
  EXPECT_EQ(TextAt(placed, "status"), "False");
  EXPECT_EQ(TextAt(placed, "reason"), "SchedulingGated");
  EXPECT_NE(TextAt(placed, "message").find("example.com/later"), std::string::npos);
  EXPECT_EQ(MessageOf(world, "a"), "") << "the API server says why it waits";
  for (const Note& note : world.notes()) EXPECT_NE(note.reason, "FailedScheduling");
  world.Patch(resources::kPods, "a", {{"spec", {{"schedulingGates", nullptr}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.deleted(), 1u);
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(Node(world, "a"), "n1");
  EXPECT_EQ(world.wrong(), "");
}

// As Kueue does.
TEST(CoreAdmission, ChildThatGetsAGateWhenItIsMadeGivesItsRoomToOthers) {
  World world(1, Options());
  world.admit = [](Json& pod) {
    if (TextAt(pod, "metadata/name") != "a") return;
    pod["spec"]["schedulingGates"] = {{{"name", "kueue.x-k8s.io/admission"}}};
  };
  world.AddNode("n1", 1);
  world.AddShare("a", {{"request", "60"}});
  ASSERT_TRUE(world.Settle());
  ASSERT_TRUE(world.Get(resources::kPods, "a"));
  EXPECT_EQ(Node(world, "a"), "") << "a gated pod cannot be bound";
  EXPECT_TRUE(world.core().cluster().pods().empty());
  EXPECT_EQ(StatusText(world, "a", "phase"), "Pending");
  EXPECT_EQ(StatusText(world, "a", "node"), "");
  EXPECT_EQ(TextAt(ConditionOf(world, "a", "Placed"), "reason"), "SchedulingGated");
  world.Restart();
  world.AddPod("b", {{"baton.dev/gpu-share", "100"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(Node(world, "b"), "n1");
  world.Delete(resources::kPods, "b");
  ASSERT_TRUE(world.Settle());
  world.Reap();
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(Node(world, "a"), "");
  world.Patch(resources::kPods, "a", {{"spec", {{"schedulingGates", nullptr}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(Node(world, "a"), "n1");
  EXPECT_EQ(world.wrong(), "");
}

TEST(CoreAdmission, GatedPodThatTheApiServerRefusesSaysSoAndIsTriedAgain) {
  for (const Json& waits :
       {Json{{"schedulingGates", {{{"name", "later"}}}}}, Json{{"schedulerName", "other"}}}) {
    SCOPED_TRACE(waits.dump());
    World world(1, Options());
    world.AddNode("n1", 1);
    world.Refuse(WriteKind::kCreateChild, {403, "Forbidden", "exceeded quota: gpus", {}});
    world.AddShare("a", {{"request", "60"}}, waits);
    static_cast<void>(world.Settle(std::chrono::minutes(5)));
    EXPECT_EQ(TextAt(ConditionOf(world, "a", "Placed"), "reason"), "ChildRefused");
    world.Refuse(WriteKind::kCreateChild, {});
    ASSERT_TRUE(world.Settle());
    EXPECT_TRUE(world.Get(resources::kPods, "a"));
    EXPECT_NE(TextAt(ConditionOf(world, "a", "Placed"), "reason"), "ChildRefused");
  }
}

}  // namespace
}  // namespace baton::k8s::testing
