#include "teams/what_if.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

namespace baton::teams {
namespace {

WhatIfPod Asking(double request, double limit = 100, const char* team = "") {
  const auto spec = policy::Validated(
      {.request = policy::ShareOf(request / 100), .limit = policy::ShareOf(limit / 100)});
  return {team, spec.value()};
}

WhatIfPod Idle(double limit = 100) {
  return {"", policy::Validated({.request = policy::Share(0),
                                 .limit = policy::ShareOf(limit / 100),
                                 .priority = policy::Priority::kIdle})
                  .value()};
}

std::vector<double> Divided(std::vector<WhatIfPod> pods, std::vector<double> alone) {
  return WhatIf(std::move(pods), nullptr, {}).Divide(alone);
}

void ExpectParts(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5) << i;
}

TEST(WhatIf, WhoWantsAllGetsItsRequestAndItsPartOfTheRest) {
  ExpectParts(Divided({Asking(40), Asking(20)}, {1, 1}), {2.0 / 3, 1.0 / 3});
}

// It works for 1 and pauses for 1 alone; beside one that always works, 2 and 1.
TEST(WhatIf, WhoPausesIsSlowedDownAndPausesAsBefore) {
  ExpectParts(Divided({Asking(50), Asking(50)}, {0.5, 1}), {1.0 / 3, 2.0 / 3});
  ExpectParts(Divided({Asking(10), Asking(90)}, {0.5, 1}), {1.0 / 11, 10.0 / 11});
}

TEST(WhatIf, WhoIsAloneHasWhatItWouldUse) {
  ExpectParts(Divided({Asking(10)}, {0.3}), {0.3});
  ExpectParts(Divided({Asking(10), Asking(90)}, {0.3, 0}), {0.3, 0});
}

// Both work for 1 and pause for 1; together they have work for x of the time, at a rate of 1 - x/2.
TEST(WhatIf, PodsThatPauseMeetByChance) {
  const std::vector<double> got = Divided({Asking(50), Asking(50)}, {0.5, 0.5});
  EXPECT_NEAR(got[0], got[1], 1e-6);
  // x = g / (1 - x / 2) and x + g = 1.
  const double x = 1 - got[0];
  EXPECT_NEAR(got[0], x * (1 - x / 2), 1e-4);
}

TEST(WhatIf, NobodyGetsMoreThanItsLimit) {
  ExpectParts(Divided({Asking(10, 20), Asking(10)}, {1, 1}), {0.2, 0.8});
  ExpectParts(Divided({Asking(10, 20)}, {1}), {0.2});
}

TEST(WhatIf, IdlePodsShareWhatTheOthersLeaveEqually) {
  ExpectParts(Divided({Idle(), Asking(40, 40), Idle(10), Idle()}, {1, 1, 1, 1}),
              {0.25, 0.4, 0.1, 0.25});
  ExpectParts(Divided({Idle(), Asking(1)}, {1, 1}), {0, 1});
  ExpectParts(Divided({Idle(), Asking(1)}, {1, 0.25}), {0.75, 0.25});
}

TEST(WhatIf, WhoWantsNothingIsNotThere) {
  ExpectParts(Divided({Asking(50), Asking(50)}, {0, 1}), {0, 1});
  ExpectParts(Divided({}, {}), {});
}

TEST(WhatIf, WhatAPodWouldUseAloneIsItsWorkAndItsPauses) {
  EXPECT_NEAR(Alone({.held = 0.3, .busy = 0.3, .waited = 0.7}, 0.7), 1, 1e-9) << "it always works";
  EXPECT_NEAR(Alone({.held = 0.2, .busy = 0.2, .waited = 0.4}, 0.5), 1.0 / 3, 1e-9);
  EXPECT_NEAR(Alone({.held = 0, .busy = 0, .waited = 0.6}, 1), 0.6, 1e-9) << "it had no turn";
  EXPECT_NEAR(Alone({.held = 0, .busy = 1, .waited = 0}, 1), 1, 1e-9) << "without tokens";
  // 1 of work and 3 of pause; the work took 3 beside two others.
  EXPECT_NEAR(Alone({.held = 0, .busy = 0.5, .waited = 0}, 2), 0.25, 1e-9);
  EXPECT_EQ(Alone({}, 1), 0);
}

TEST(WhatIf, WhatRequestsLeaveGoesToTeamsByTheirWeights) {
  const Teams teams = ParseTeams(
                          "[[team]]\nname = \"research\"\nweight = 3\n"
                          "[[team]]\nname = \"ops\"\nweight = 1\n",
                          "teams.toml")
                          .value();
  const WhatIf what_if({Asking(10, 100, "research"), Asking(10, 100, "ops")}, &teams, {});
  const std::vector<double> all = {1, 1};
  ExpectParts(what_if.Divide(all), {0.7, 0.3});
}

// Whatever pods do: who has work has its request's rate at least, or all of it where the requests
// exceed the GPU; limits hold, nobody gets more than alone, and all together no more than the GPU.
RC_GTEST_PROP(WhatIfLaw, MeetsRequestsAndKeepsLimits, ()) {
  const auto count = *rc::gen::inRange<size_t>(1, 20);
  std::vector<WhatIfPod> pods;
  std::vector<double> alone;
  double requests = 0;
  for (size_t i = 0; i < count; ++i) {
    const double request = *rc::gen::inRange(1, 400) / 10.0;
    const double limit = std::max(request, *rc::gen::inRange(1, 1'001) / 10.0);
    pods.push_back(*rc::gen::inRange(0, 5) == 0 ? Idle(limit) : Asking(request, limit));
    alone.push_back(*rc::gen::inRange(0, 3) == 0 ? 1 : *rc::gen::inRange(0, 1'001) / 1000.0);
    if (pods.back().spec.priority != policy::Priority::kIdle) requests += request / 100;
  }
  const std::vector<double> got = Divided(pods, alone);
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += got[i];
    RC_ASSERT(got[i] >= 0 && got[i] <= alone[i] + 1e-6);
    RC_ASSERT(got[i] <= policy::Ratio(pods[i].spec.limit) + 1e-5);
    const double rate = policy::Ratio(pods[i].spec.request) / std::max(1.0, requests);
    if (alone[i] == 0 || rate == 0) continue;
    RC_ASSERT(got[i] >= 1 / (1 / rate + (1 - alone[i]) / alone[i]) - 1e-4);
  }
  // Of 64 moments some are fuller than the mean.
  RC_ASSERT(sum <= 1.05);
}

}  // namespace
}  // namespace baton::teams
