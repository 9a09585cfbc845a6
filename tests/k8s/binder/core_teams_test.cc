// The binder's core and the teams of the cluster: guarantees, ceilings, who is next.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "k8s/binder/core.h"
#include "tests/k8s/binder/core_fixture.h"
#include "tests/k8s/binder/objects.h"
#include "tests/k8s/binder/world.h"

namespace baton::k8s::testing {
namespace {

Json TeamOf(const std::string& name, const std::string& path, const Json& rest = {}) {
  Json spec{{"team", path}};
  if (rest.is_object()) spec.merge_patch(rest);
  return {{"metadata", {{"name", name}, {"generation", 1}}}, {"spec", std::move(spec)}};
}

Json InForce(World& world, const std::string& name) {
  const auto team = world.Get(resources::kTeams, name);
  if (!team) return {};
  const Json* list = Find(*team, "status/conditions");
  return list == nullptr || list->empty() ? Json() : list->at(0);
}

std::string PlacedReason(World& world, const std::string& name) {
  return TextAt(ConditionOf(world, name, "Placed"), "reason");
}

bool HasNote(World& world, const std::string& reason, const std::string& part) {
  return std::any_of(world.notes().begin(), world.notes().end(), [&](const Note& note) {
    return note.reason == reason && note.text.find(part) != std::string::npos;
  });
}

TEST(CoreTeams, GuaranteeIsTakenBackFromThoseThatBorrowedIt) {
  World world(1, Options());
  world.AddNode("n1", 4);
  world.Put(resources::kTeams, TeamOf("a", "a", {{"guarantee", {{"gpus", 3}}}}));
  world.Put(resources::kTeams, TeamOf("b", "b", {{"guarantee", {{"gpus", 1}}}}));
  for (int i = 0; i < 4; ++i) {
    world.AddShare(fmt::format("b{}", i), {{"request", "100"}, {"team", "b"}});
  }
  ASSERT_TRUE(world.Settle());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(world.IsBound(fmt::format("b{}", i)));
  EXPECT_EQ(TextAt(InForce(world, "a"), "status"), "True");
  // Its owner comes: first for one, then for all of it, and no further.
  for (int i = 0; i < 4; ++i) {
    world.AddShare(fmt::format("a{}", i), {{"request", "100"}, {"team", "a"}});
    for (int turn = 0; turn < 3; ++turn) {
      ASSERT_TRUE(world.Settle());
      world.Reap();
    }
    ASSERT_TRUE(world.Settle());
    EXPECT_EQ(world.deleted(), static_cast<size_t>(std::min(i + 1, 3)));
    EXPECT_EQ(world.IsBound(fmt::format("a{}", i)), i < 3);
  }
  int left = 0;
  for (int i = 0; i < 4; ++i) left += world.IsBound(fmt::format("b{}", i)) ? 1 : 0;
  EXPECT_EQ(left, 1) << "what b is guaranteed is not taken from it";
  EXPECT_TRUE(HasNote(world, "Preempting", "that borrowed what its team is guaranteed"));
  EXPECT_TRUE(HasNote(world, "Preempted", "whose team is guaranteed what this pod borrowed"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(CoreTeams, PodOverItsTeamsCeilingWaitsAndSaysWhy) {
  World world(1, Options());
  world.AddNode("n1", 4);
  world.Put(resources::kTeams, TeamOf("research", "research", {{"ceiling", {{"gpus", "1.5"}}}}));
  world.AddShare("first", {{"request", "100"}, {"team", "research/vision"}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("second", {{"request", "80"}, {"team", "research/speech"}});
  world.AddShare("other", {{"request", "80"}, {"team", "ops"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("first"));
  EXPECT_TRUE(world.IsBound("other"));
  EXPECT_FALSE(world.IsBound("second"));
  EXPECT_EQ(PlacedReason(world, "second"), "TeamCeiling");
  EXPECT_EQ(TextAt(ConditionOf(world, "second", "Placed"), "message"),
            "team research may use 1.5 GPUs at most; it uses 1.0, and team/second asks for 0.8 "
            "more");
  EXPECT_TRUE(HasNote(world, "FailedScheduling", "team research may use 1.5 GPUs at most"));
  // No autoscaler adds a node for it.
  EXPECT_FALSE(world.Get(resources::kPods, "second"));
  world.AddPod("plain", {{"baton.dev/gpu-share", "80"}}, {{"baton.dev/team", "research"}});
  ASSERT_TRUE(world.Settle());
  const Json plain = *world.Get(resources::kPods, "plain");
  EXPECT_EQ(TextAt(plain, "status/conditions/0/reason"), "TeamCeiling");
  world.Delete(resources::kPods, "plain");
  world.Reap();
  // A pod that runs does not grow beyond it either, and may shrink.
  world.Patch(resources::kSharePods, "second", {{"spec", {{"gpu", {{"request", "50"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("second"));
  world.Patch(resources::kSharePods, "second", {{"spec", {{"gpu", {{"request", "60"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(ConditionOf(world, "second", "Resized"), "reason"), "NoRoom");
  EXPECT_NE(TextAt(ConditionOf(world, "second", "Resized"), "message").find("team research may"),
            std::string::npos);
  world.Patch(resources::kSharePods, "first", {{"spec", {{"gpu", {{"request", "30"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(ConditionOf(world, "second", "Resized"), "status"), "True");
  // The ceiling is raised: whoever waits goes on.
  world.AddShare("third", {{"request", "100"}, {"team", "research"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(PlacedReason(world, "third"), "TeamCeiling");
  world.Patch(resources::kTeams, "research", {{"spec", {{"ceiling", {{"gpus", 3}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound("third"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(CoreTeams, WhatWasDecidedBeforeARestartDoesNotBreakACeiling) {
  World world(1, Options());
  world.AddNode("n1", 2);
  world.AddShare("s", {{"request", "60"}, {"team", "a"}});
  // Decided and written, and not bound.
  world.Refuse(WriteKind::kCreateChild, {0, "", "connection refused", {}});
  for (int i = 0; i < 200 && StatusText(world, "s", "phase") != "Placed"; ++i) world.Tick();
  ASSERT_EQ(StatusText(world, "s", "phase"), "Placed");
  world.Put(resources::kTeams, TeamOf("a", "a", {{"ceiling", {{"gpus", "500m"}}}}));
  world.Refuse(WriteKind::kCreateChild, {});
  world.Restart();
  ASSERT_TRUE(world.Settle());
  EXPECT_FALSE(world.IsBound("s"));
  EXPECT_EQ(PlacedReason(world, "s"), "TeamCeiling");
}

TEST(CoreTeams, PodThatNamesAnotherTeamCountsThere) {
  World world(1, Options());
  world.AddNode("n1", 2);
  world.Put(resources::kTeams, TeamOf("a", "a", {{"ceiling", {{"gpus", 1}}}}));
  world.AddShare("moves", {{"request", "60"}, {"team", "a"}});
  world.AddShare("waits", {{"request", "60"}, {"team", "a"}});
  ASSERT_TRUE(world.Settle());
  ASSERT_NE(world.IsBound("moves"), world.IsBound("waits"));
  const std::string first = world.IsBound("moves") ? "moves" : "waits";
  const std::string second = first == "moves" ? "waits" : "moves";
  world.Patch(resources::kSharePods, first, {{"spec", {{"gpu", {{"team", "b"}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound(second));
  // Back it is over the ceiling, and stays where it is; nobody else comes.
  world.Patch(resources::kSharePods, first, {{"spec", {{"gpu", {{"team", "a"}}}}}});
  ASSERT_TRUE(world.Settle());
  world.AddShare("third", {{"request", "10"}, {"team", "a"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_TRUE(world.IsBound(first));
  EXPECT_FALSE(world.IsBound("third"));
  EXPECT_EQ(world.wrong(), "");
}

TEST(CoreTeams, GrowthThatComesWithAnotherTeamIsNoneOfTheOldOnes) {
  World world(1, Options());
  world.AddNode("n1", 2);
  world.Put(resources::kTeams, TeamOf("a", "a", {{"ceiling", {{"gpus", "600m"}}}}));
  world.AddShare("s", {{"request", "50"}, {"team", "a"}});
  ASSERT_TRUE(world.Settle());
  ASSERT_TRUE(world.IsBound("s"));
  world.after_step = [&](const Effects&) {
    for (const auto& [name, pod] : world.core().cluster().pods()) {
      if (pod.request.team != "a") continue;
      EXPECT_LE(pod.placement.vgpus.at(0).fit.share.millionths(), 600'000u);
    }
  };
  world.Patch(resources::kSharePods, "s",
              {{"spec", {{"gpu", {{"team", "b"}, {"request", "80"}}}}}});
  ASSERT_TRUE(world.Settle());
  const devmgr::PlacedPod& pod = *world.core().cluster().Find("team/s");
  EXPECT_EQ(pod.request.team, "b");
  EXPECT_EQ(pod.placement.vgpus.at(0).fit.share, policy::Share(800'000));
}

TEST(CoreTeams, TeamThatIsGoneStaysGoneThoughItsStatusWasBeingWritten) {
  World world(1, Options());
  world.AddNode("n1", 1);
  ASSERT_TRUE(world.Settle());
  // The answer to the write of its status comes after it has gone.
  for (int turn = 0; turn < 60; ++turn) {
    world.Put(resources::kTeams, TeamOf("a", "a", {{"ceiling", {{"gpus", "100m"}}}}));
    for (int i = 0; i < turn; ++i) world.Tick();
    world.Delete(resources::kTeams, "a");
    ASSERT_TRUE(world.Settle());
    const std::string name = fmt::format("s{}", turn);
    world.AddShare(name, {{"request", "50"}, {"team", "a"}});
    ASSERT_TRUE(world.Settle());
    ASSERT_TRUE(world.IsBound(name)) << turn;
    world.Delete(resources::kSharePods, name);
    ASSERT_TRUE(world.Settle());
    world.Reap();
  }
}

TEST(CoreTeams, TeamThatDoesNotAgreeWithTheOthersIsNotInForce) {
  World world(1, Options());
  world.AddNode("n1", 2);
  world.Put(resources::kTeams, TeamOf("top", "top", {{"ceiling", {{"gpus", 1}}}}));
  ASSERT_TRUE(world.Settle());
  world.Put(resources::kTeams, TeamOf("below", "top/below", {{"guarantee", {{"gpus", 2}}}}));
  world.Put(resources::kTeams, TeamOf("typo", "a//b", {{"ceiling", {{"gpus", 2}}}}));
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(InForce(world, "top"), "status"), "True");
  EXPECT_EQ(TextAt(InForce(world, "below"), "status"), "False");
  EXPECT_EQ(TextAt(InForce(world, "below"), "message"),
            "quota: team top/below is guaranteed 2.0 GPUs, and team top may use 1.0 at most");
  EXPECT_EQ(TextAt(InForce(world, "typo"), "message"),
            "spec.team: 'a//b' is not a path such as research/vision, of 1 to 16 parts");
  // What was in force stays: for the one that changes too.
  world.Patch(resources::kTeams, "top",
              {{"spec", {{"guarantee", {{"gpus", 5}}}, {"ceiling", {{"gpus", 2}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(InForce(world, "top"), "status"), "False");
  EXPECT_NE(TextAt(InForce(world, "top"), "message")
                .find("what was in force before for team top still is"),
            std::string::npos);
  world.AddShare("a", {{"request", "100"}, {"team", "top"}});
  world.AddShare("b", {{"request", "100"}, {"team", "top"}});
  ASSERT_TRUE(world.Settle());
  EXPECT_NE(world.IsBound("a"), world.IsBound("b")) << "of one GPU at most";
  // It is put right, and so is the one that waited for it.
  world.Patch(resources::kTeams, "top", {{"spec", {{"guarantee", {{"gpus", 2}}}}}});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(InForce(world, "top"), "status"), "True");
  EXPECT_EQ(TextAt(InForce(world, "below"), "status"), "True");
  EXPECT_TRUE(world.IsBound("a") && world.IsBound("b"));
  // Nothing is written where nothing changes; what fails is written again.
  const uint64_t writes = world.writes();
  world.Restart();
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.writes(), writes);
  world.Refuse(WriteKind::kTeamStatus, {500, "InternalError", "etcd is away", {}});
  world.Put(resources::kTeams, TeamOf("late", "late"));
  EXPECT_FALSE(world.Settle(std::chrono::seconds(10)));
  world.Refuse(WriteKind::kTeamStatus, {});
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(TextAt(InForce(world, "late"), "status"), "True");
}

// The API server lists them by name.
TEST(CoreTeams, AfterARestartOlderTeamsComeFirst) {
  World world(1, Options());
  const auto at = [](Json team, const char* time) {
    team["metadata"]["creationTimestamp"] = time;
    return team;
  };
  world.Put(resources::kTeams,
            at(TeamOf("b", "top", {{"ceiling", {{"gpus", 1}}}}), "2026-11-01T00:00:00Z"));
  ASSERT_TRUE(world.Settle());
  world.Put(resources::kTeams,
            at(TeamOf("a", "top/below", {{"guarantee", {{"gpus", 2}}}}), "2026-11-02T00:00:00Z"));
  for (const char* when : {"at first", "after a restart"}) {
    SCOPED_TRACE(when);
    ASSERT_TRUE(world.Settle());
    EXPECT_EQ(TextAt(InForce(world, "b"), "status"), "True");
    EXPECT_EQ(TextAt(InForce(world, "a"), "status"), "False");
    world.Restart();
  }
}

TEST(CoreTeams, TeamThatHasLeastOfItsDueIsNext) {
  for (const bool history : {false, true}) {
    SCOPED_TRACE(history);
    World world(1, Options());
    world.AddNode("n1", 1);
    world.Put(resources::kTeams, TeamOf("a", "a", {{"weight", 2}}));
    world.AddShare("full", {{"request", "100"}, {"team", "c"}});
    ASSERT_TRUE(world.Settle());
    for (int i = 0; i < 4; ++i) {
      world.AddShare(fmt::format("b{}", i), {{"request", "30"}, {"team", "b"}});
    }
    for (int i = 0; i < 4; ++i) {
      world.AddShare(fmt::format("a{}", i), {{"request", "30"}, {"team", "a"}});
    }
    // Far more than its due, though it weighs twice as much.
    if (history) world.core().SetStandings({{"a", {1, 1'000}}, {"b", {1, 10}}});
    ASSERT_TRUE(world.Settle());
    world.Delete(resources::kSharePods, "full");
    ASSERT_TRUE(world.Settle());
    world.Reap();
    ASSERT_TRUE(world.Settle());
    int a = 0;
    for (int i = 0; i < 4; ++i) a += world.IsBound(fmt::format("a{}", i)) ? 1 : 0;
    EXPECT_EQ(a, history ? 0 : 2);
    EXPECT_EQ(world.All(resources::kPods).size(), 8u);
  }
}

}  // namespace
}  // namespace baton::k8s::testing
