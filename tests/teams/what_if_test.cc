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

std::vector<double> Divided(std::vector<WhatIfPod> pods, std::vector<double> wanted) {
  return WhatIf(std::move(pods), nullptr, {}).Divide(wanted);
}

void ExpectParts(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5) << i;
}

TEST(WhatIf, WhoWantsAllGetsItsRequestAndItsPartOfTheRest) {
  ExpectParts(Divided({Asking(40), Asking(20)}, {1, 1}), {2.0 / 3, 1.0 / 3});
}

TEST(WhatIf, WhatAPodDoesNotWantOfItsRequestOthersHave) {
  ExpectParts(Divided({Asking(60), Asking(30), Asking(10)}, {0.05, 1, 1}), {0.05, 0.7125, 0.2375});
}

TEST(WhatIf, NobodyGetsMoreThanItWantsOrMay) {
  ExpectParts(Divided({Asking(10, 20), Asking(10)}, {1, 0.3}), {0.2, 0.3});
}

TEST(WhatIf, IdlePodsShareWhatTheOthersLeaveEqually) {
  ExpectParts(Divided({Idle(), Asking(10), Idle(10), Idle()}, {1, 0.4, 1, 1}),
              {0.25, 0.4, 0.1, 0.25});
  ExpectParts(Divided({Idle(), Asking(1)}, {1, 1}), {0, 1});
}

TEST(WhatIf, WhoWantsNothingIsNotThere) {
  ExpectParts(Divided({Asking(50), Asking(50)}, {0, 1}), {0, 1});
  ExpectParts(Divided({}, {}), {});
}

TEST(WhatIf, WhatRequestsLeaveGoesToTeamsByTheirWeights) {
  const Teams teams = ParseTeams("[[team]]\nname = \"research\"\nweight = 3\n"
                                 "[[team]]\nname = \"ops\"\nweight = 1\n",
                                 "teams.toml")
                          .value();
  const WhatIf what_if({Asking(10, 100, "research"), Asking(10, 100, "ops")}, &teams, {});
  const std::vector<double> all = {1, 1};
  ExpectParts(what_if.Divide(all), {0.7, 0.3});
}

// Whatever is wanted: requests are met as far as they are wanted and fit, limits hold, and nothing
// is left while somebody wants it.
RC_GTEST_PROP(WhatIfLaw, MeetsRequestsKeepsLimitsAndLeavesNothing, ()) {
  const auto count = *rc::gen::inRange<size_t>(1, 20);
  std::vector<WhatIfPod> pods;
  std::vector<double> wanted;
  double requests = 0;
  for (size_t i = 0; i < count; ++i) {
    const double request = *rc::gen::inRange(1, 400) / 10.0;
    const double limit = std::max(request, *rc::gen::inRange(1, 1'001) / 10.0);
    pods.push_back(*rc::gen::inRange(0, 5) == 0 ? Idle(limit) : Asking(request, limit));
    wanted.push_back(*rc::gen::inRange(0, 1'001) / 1000.0);
    if (pods.back().spec.priority != policy::Priority::kIdle) requests += request / 100;
  }
  const std::vector<double> got = Divided(pods, wanted);
  double could = 0;
  for (size_t i = 0; i < count; ++i) {
    const double most = std::min(wanted[i], policy::Ratio(pods[i].spec.limit));
    could += most;
    RC_ASSERT(got[i] >= 0 && got[i] <= most + 1e-5);
    const double due = policy::Ratio(pods[i].spec.request) / std::max(1.0, requests);
    if (pods[i].spec.priority != policy::Priority::kIdle) {
      RC_ASSERT(got[i] >= std::min(most, due) - 1e-4);
    }
  }
  const double sum = std::accumulate(got.begin(), got.end(), 0.0);
  RC_ASSERT(sum <= 1 + 1e-4);
  RC_ASSERT(sum >= std::min(1.0, could) - 1e-3);
}

}  // namespace
}  // namespace baton::teams
