#include "policy/share.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

namespace baton::policy {
namespace {

std::vector<Share> Fluid(std::vector<Entitlement> pods, std::vector<uint32_t> team_weights = {}) {
  FluidShares(pods, team_weights);
  std::vector<Share> fluid;
  for (const Entitlement& p : pods) fluid.push_back(p.fluid);
  return fluid;
}

TEST(FluidShares, RequestsThatFillTheGpuAreGivenAsTheyAre) {
  EXPECT_EQ(Fluid({{600'000, kWhole, 6}, {300'000, kWhole, 3}, {100'000, kWhole, 1}}),
            (std::vector<Share>{600'000, 300'000, 100'000}));
}

TEST(FluidShares, SlackGoesByWeightAndStopsAtLimits) {
  EXPECT_EQ(Fluid({{300'000, kWhole, 3}, {100'000, kWhole, 1}}),
            (std::vector<Share>{750'000, 250'000}));
  EXPECT_EQ(Fluid({{300'000, 400'000, 3}, {100'000, kWhole, 1}}),
            (std::vector<Share>{400'000, 600'000}));
  EXPECT_EQ(Fluid({{300'000, 300'000, 3}}), (std::vector<Share>{300'000}));
}

TEST(FluidShares, WeightsThatAreAllZeroCountAsEqual) {
  EXPECT_EQ(Fluid({{300'000, kWhole, 0}, {100'000, kWhole, 0}}),
            (std::vector<Share>{600'000, 400'000}));
}

TEST(FluidShares, RequestsBeyondTheGpuScaleDownInProportion) {
  EXPECT_EQ(Fluid({{kWhole, kWhole, 1}, {kWhole, kWhole, 1}}),
            (std::vector<Share>{500'000, 500'000}));
}

TEST(ShareSpec, BadSharesAreRefusedWithASentence) {
  EXPECT_FALSE(Validated({.request = 0, .limit = kWhole}));
  EXPECT_FALSE(Validated({.request = 500'000, .limit = 400'000}));
  EXPECT_FALSE(Validated({.request = 500'000, .limit = kWhole + 1}));
  EXPECT_EQ(Validated({.request = 500'000, .limit = kWhole})->slack_weight, 500'000u);
}

TEST(FluidShares, WhoWeighsNothingGetsWhatTheOthersCannotTake) {
  EXPECT_EQ(Fluid({{100'000, kWhole, 1}, {100'000, kWhole, 0}}),
            (std::vector<Share>{900'000, 100'000}));
  EXPECT_EQ(Fluid({{100'000, 300'000, 1}, {100'000, 200'000, 0}, {100'000, kWhole, 0}}),
            (std::vector<Share>{300'000, 200'000, 500'000}));
}

TEST(FluidShares, SlackGoesToTeamsFirstAndThenToTheirPods) {
  const Entitlement a1{100'000, kWhole, 1, 1};
  const Entitlement a2{100'000, kWhole, 3, 1};
  const Entitlement b{400'000, kWhole, 4, 2};
  EXPECT_EQ(Fluid({a1, b, a2}, {0, 1, 1}), (std::vector<Share>{150'000, 600'000, 250'000}));
  EXPECT_EQ(Fluid({a1, b, a2}, {0, 3, 1}), (std::vector<Share>{175'000, 500'000, 325'000}));
  EXPECT_EQ(Fluid({a1, b, a2}), (std::vector<Share>{150'000, 600'000, 250'000}));
}

TEST(FluidShares, WhatATeamCannotTakeGoesToTheOthers) {
  EXPECT_EQ(Fluid({{100'000, 150'000, 1, 0}, {100'000, kWhole, 1, 1}, {100'000, kWhole, 1, 2}},
                  {2, 1, 1}),
            (std::vector<Share>{150'000, 425'000, 425'000}));
}

TEST(FluidShares, ATeamWithoutWeightGetsItsRequestsAndWhatNobodyElseTakes) {
  EXPECT_EQ(Fluid({{300'000, kWhole, 1, 0}, {100'000, kWhole, 1, 1}}, {0, 5}),
            (std::vector<Share>{300'000, 700'000}));
  EXPECT_EQ(Fluid({{300'000, kWhole, 1, 7}, {100'000, 200'000, 1, 1}}, {0, 5}),
            (std::vector<Share>{800'000, 200'000}));
  EXPECT_EQ(Fluid({{300'000, kWhole, 1, 7}, {100'000, kWhole, 1, 1}}, {0, 0}),
            (std::vector<Share>{600'000, 400'000}))
      << "all zero means equal";
}

TEST(HistoryWeight, IsTheWeightPlusWhatTheTeamDidNotUseOfIt) {
  EXPECT_EQ(HistoryWeight(300'000, 300'000), 300'000u);
  EXPECT_EQ(HistoryWeight(300'000, 100'000), 500'000u);
  EXPECT_EQ(HistoryWeight(300'000, 0), 600'000u);
  EXPECT_EQ(HistoryWeight(300'000, 500'000), 100'000u);
  EXPECT_EQ(HistoryWeight(300'000, 600'000), 0u);
  EXPECT_EQ(HistoryWeight(300'000, kWhole), 0u);
  EXPECT_EQ(HistoryWeight(300'000, kWhole, 0), 300'000u) << "history does not count";
  EXPECT_EQ(HistoryWeight(300'000, 350'000, 2 * kWhole), 200'000u);
  EXPECT_EQ(HistoryWeight(kWhole, 0, 4'000 * kWhole), 4'001u * kWhole);
}

RC_GTEST_PROP(HistoryWeightLaw, WhatSomeUsedTooMuchOthersGainAndNobodyElse, ()) {
  // Two teams and the rest: weights and usage each sum up to one.
  const Share w1 = *rc::gen::inRange<Share>(0, kWhole + 1);
  const Share w2 = *rc::gen::inRange<Share>(0, kWhole - w1 + 1);
  const Share u1 = *rc::gen::inRange<Share>(0, kWhole + 1);
  const Share u2 = *rc::gen::inRange<Share>(0, kWhole - u1 + 1);
  const uint32_t k = *rc::gen::inRange<uint32_t>(0, 4 * kWhole);
  int64_t sum = 0;
  bool clamped = false;
  for (const auto& [w, u] :
       {std::pair{w1, u1}, std::pair{w2, u2}, std::pair{kWhole - w1 - w2, kWhole - u1 - u2}}) {
    const uint32_t e = HistoryWeight(w, u, k);
    sum += e;
    clamped |= e == 0;
    RC_ASSERT((e > w) <= (u < w));
    RC_ASSERT((e < w) <= (u > w));
    if (u > 0) RC_ASSERT(HistoryWeight(w, u - 1, k) >= e);
  }
  RC_ASSERT(sum >= kWhole - 3);
  if (!clamped) RC_ASSERT(sum <= kWhole);
}

struct Teams {
  std::vector<Entitlement> pods;
  std::vector<uint32_t> weights;
};

// Up to 512 pods of up to six teams, which may weigh nothing or be unknown, as may pods.
Teams AnyTeams(bool limits, bool overcommit) {
  Teams teams;
  const auto weight = [] {
    return *rc::gen::inRange(0, 4) == 0 ? 0 : *rc::gen::inRange<uint32_t>(1, 4 * kWhole);
  };
  const auto n = *rc::gen::weightedOneOf<uint32_t>(
      {{9, rc::gen::inRange<uint32_t>(1, 40)}, {1, rc::gen::inRange<uint32_t>(300, 513)}});
  const Share most = overcommit ? kWhole + 1 : std::max(kShareMin + 1, kWhole / n + 1);
  for (uint32_t i = 0; i < n; ++i) {
    const auto request = *rc::gen::inRange<Share>(kShareMin, most);
    const auto limit = limits ? *rc::gen::inRange<Share>(request, kWhole + 1) : kWhole;
    teams.pods.push_back({request, limit, weight(), *rc::gen::inRange<uint32_t>(0, 6)});
  }
  for (int t = *rc::gen::inRange(0, 7); t > 0; --t) teams.weights.push_back(weight());
  return teams;
}

struct Poured {
  int64_t weight;
  int64_t room;
  int64_t part = 0;
};

// Water-filling, by its definition: who is not full has no less, for its weight, than anybody else;
// and who weighs nothing has something only if all that weigh something are full. To within
// `rounding`.
void CheckWaterFill(const std::vector<Poured>& all, int64_t rounding) {
  for (const Poured& dry : all) {
    RC_ASSERT(dry.part >= 0);
    RC_ASSERT(dry.part <= dry.room);
    if (dry.part + rounding >= dry.room) continue;
    for (const Poured& other : all) {
      if (dry.weight > 0) {
        RC_ASSERT((other.part - rounding) * dry.weight <= (dry.part + rounding) * other.weight);
      } else if (other.weight == 0) {
        RC_ASSERT(other.part <= dry.part + rounding);
      }
    }
  }
}

RC_GTEST_PROP(FluidSharesLaw, RequestsAreMetLimitsKeptAndNothingIsLost, ()) {
  const auto [pods, weights] = AnyTeams(true, *rc::gen::arbitrary<bool>());
  const std::vector<Share> fluid = Fluid(pods, weights);
  int64_t requested = 0;
  int64_t limits = 0;
  int64_t sum = 0;
  const auto n = static_cast<int64_t>(pods.size());
  for (const Entitlement& p : pods) {
    requested += p.request;
    limits += p.limit;
  }
  for (size_t i = 0; i < pods.size(); ++i) {
    if (requested <= kWhole) {
      RC_ASSERT(fluid[i] >= pods[i].request);
    } else {
      RC_ASSERT(std::abs(int64_t{fluid[i]} - pods[i].request * int64_t{kWhole} / requested) <= 1);
    }
    RC_ASSERT(fluid[i] > 0);
    RC_ASSERT(fluid[i] <= pods[i].limit);
    sum += fluid[i];
  }
  RC_ASSERT(sum <= (requested <= kWhole ? kWhole : kWhole + n));
  RC_ASSERT(sum >= std::min<int64_t>(limits, kWhole) - 2 * n);
}

RC_GTEST_PROP(FluidSharesLaw, WhatIsLeftOverIsWaterFilledByPodWhereTeamsDoNotMatter, ()) {
  const auto [pods, weights] = AnyTeams(true, false);
  const std::vector<Share> fluid = Fluid(pods);
  std::vector<Poured> poured;
  for (size_t i = 0; i < pods.size(); ++i) {
    poured.push_back({pods[i].slack_weight, pods[i].limit - pods[i].request,
                      int64_t{fluid[i]} - pods[i].request});
  }
  CheckWaterFill(poured, static_cast<int64_t>(pods.size()));
}

RC_GTEST_PROP(FluidSharesLaw, WhatIsLeftOverIsWaterFilledByTeamAndThenWithinEach, ()) {
  auto [pods, weights] = AnyTeams(true, false);
  if (weights.empty()) weights = {1, 2, 3};
  const std::vector<Share> fluid = Fluid(pods, weights);
  std::map<uint32_t, Poured> teams;
  std::map<uint32_t, std::vector<Poured>> members;
  for (size_t i = 0; i < pods.size(); ++i) {
    const Entitlement& p = pods[i];
    const Poured pod{p.slack_weight, p.limit - p.request, int64_t{fluid[i]} - p.request};
    members[p.team].push_back(pod);
    Poured& team = teams[p.team];
    team.weight = p.team < weights.size() ? weights[p.team] : 0;
    team.room += pod.room;
    team.part += pod.part;
  }
  const auto rounding = static_cast<int64_t>(pods.size());
  std::vector<Poured> all;
  for (const auto& [id, team] : teams) all.push_back(team);
  CheckWaterFill(all, rounding);
  for (const auto& [id, pods_of] : members) CheckWaterFill(pods_of, rounding);
}

int64_t SlackOf(uint32_t team, const std::vector<Entitlement>& pods,
                const std::vector<Share>& fluid) {
  int64_t slack = 0;
  for (size_t i = 0; i < pods.size(); ++i) {
    if (pods[i].team == team) slack += int64_t{fluid[i]} - pods[i].request;
  }
  return slack;
}

RC_GTEST_PROP(FluidSharesLaw, APodMoreInATeamTakesNothingOfTheOtherTeamsPartOfTheSlack, ()) {
  auto [pods, weights] = AnyTeams(false, false);
  if (weights.empty()) weights = {1, 2, 3};
  int64_t slack = kWhole;
  for (const Entitlement& p : pods) slack -= p.request;
  RC_PRE(slack > 2 * kShareMin);
  const std::vector<Share> before = Fluid(pods, weights);
  std::vector<Entitlement> more = pods;
  more.push_back({*rc::gen::inRange<Share>(kShareMin, static_cast<Share>(slack)), kWhole,
                  *rc::gen::inRange<uint32_t>(0, 4 * kWhole), pods[0].team});
  const std::vector<Share> after = Fluid(more, weights);
  const int64_t left = slack - more.back().request;  // the request comes first, as always
  const auto rounding = static_cast<int64_t>(more.size());
  for (uint32_t team = 0; team < 6; ++team) {
    const int64_t expected = SlackOf(team, pods, before) * left / slack;
    RC_ASSERT(std::abs(SlackOf(team, more, after) - expected) <= rounding);
  }
}

RC_GTEST_PROP(FluidSharesLaw, MoreWeightIsNeverLess, ()) {
  auto [pods, weights] = AnyTeams(true, false);
  if (weights.empty()) weights = {1, 2, 3};
  const std::vector<Share> before = Fluid(pods, weights);
  const auto rounding = static_cast<int64_t>(2 * pods.size());
  const auto more = *rc::gen::inRange<uint32_t>(1, kWhole);
  const auto raised = *rc::gen::inRange<uint32_t>(0, static_cast<uint32_t>(weights.size()));
  std::vector<uint32_t> heavier = weights;
  heavier[raised] += more;
  const std::vector<Share> by_team = Fluid(pods, heavier);
  const auto one = *rc::gen::inRange<size_t>(0, pods.size());
  std::vector<Entitlement> changed = pods;
  changed[one].slack_weight += more;
  const std::vector<Share> by_pod = Fluid(changed, weights);
  for (size_t i = 0; i < pods.size(); ++i) {
    const int64_t team_gain = int64_t{by_team[i]} - before[i];
    RC_ASSERT((pods[i].team == raised ? -team_gain : team_gain) <= rounding);
    const int64_t pod_gain = int64_t{by_pod[i]} - before[i];
    RC_ASSERT((i == one ? -pod_gain : pod_gain) <= rounding);
  }
}

}  // namespace
}  // namespace baton::policy
