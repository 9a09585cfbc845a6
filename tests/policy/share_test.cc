#include "policy/share.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "policy/rational.h"

namespace baton::policy {
namespace {

std::vector<Share> Fluid(std::vector<Entitlement> pods, std::vector<uint32_t> team_weights = {}) {
  FluidShares(pods, team_weights);
  std::vector<Share> fluid;
  for (const Entitlement& p : pods) fluid.push_back(p.fluid);
  return fluid;
}

TEST(FluidShares, RequestsThatFillTheGpuAreGivenAsTheyAre) {
  EXPECT_EQ(
      Fluid(
          {{Share(600'000), kWhole, 6}, {Share(300'000), kWhole, 3}, {Share(100'000), kWhole, 1}}),
      (std::vector<Share>{Share(600'000), Share(300'000), Share(100'000)}));
}

TEST(FluidShares, SlackGoesByWeightAndStopsAtLimits) {
  EXPECT_EQ(Fluid({{Share(300'000), kWhole, 3}, {Share(100'000), kWhole, 1}}),
            (std::vector<Share>{Share(750'000), Share(250'000)}));
  EXPECT_EQ(Fluid({{Share(300'000), Share(400'000), 3}, {Share(100'000), kWhole, 1}}),
            (std::vector<Share>{Share(400'000), Share(600'000)}));
  EXPECT_EQ(Fluid({{Share(300'000), Share(300'000), 3}}), (std::vector<Share>{Share(300'000)}));
}

TEST(FluidShares, WeightsThatAreAllZeroCountAsEqual) {
  EXPECT_EQ(Fluid({{Share(300'000), kWhole, 0}, {Share(100'000), kWhole, 0}}),
            (std::vector<Share>{Share(600'000), Share(400'000)}));
}

TEST(FluidShares, RequestsBeyondTheGpuScaleDownInProportion) {
  EXPECT_EQ(Fluid({{kWhole, kWhole, 1}, {kWhole, kWhole, 1}}),
            (std::vector<Share>{Share(500'000), Share(500'000)}));
}

TEST(ShareSpec, BadSharesAreRefusedWithASentence) {
  EXPECT_FALSE(Validated({.request = Share(0), .limit = kWhole}));
  EXPECT_FALSE(Validated({.request = Share(500'000), .limit = Share(400'000)}));
  EXPECT_FALSE(Validated({.request = Share(500'000), .limit = kWhole + Share(1)}));
  EXPECT_EQ(Validated({.request = Share(500'000), .limit = kWhole})->slack_weight, 500'000u);
}

TEST(Share, IsReadAndPrintedInPercent) {
  EXPECT_EQ(ParsePercent("30").value(), Share(300'000));
  EXPECT_EQ(ParsePercent("0.1%").value(), kShareMin);
  EXPECT_EQ(ParsePercent("100").value(), kWhole);
  EXPECT_EQ(PercentText(Share(125'000)), "12.5");
  EXPECT_EQ(PercentText(Share(300'000)), "30");
  EXPECT_EQ(GpusText(ShareSum(3'500'000)), "3.5");
  EXPECT_EQ(GpusText(kWhole), "1.0");
  for (const char* bad : {"0", "101", "abc", "", "0.05", "-5", "30%%", "nan"}) {
    const auto share = ParsePercent(bad);
    ASSERT_FALSE(share) << bad;
    EXPECT_NE(share.error().message.find("from 0.1 to 100"), std::string::npos);
  }
}

TEST(FluidShares, WhoWeighsNothingGetsWhatTheOthersCannotTake) {
  EXPECT_EQ(Fluid({{Share(100'000), kWhole, 1}, {Share(100'000), kWhole, 0}}),
            (std::vector<Share>{Share(900'000), Share(100'000)}));
  EXPECT_EQ(Fluid({{Share(100'000), Share(300'000), 1},
                   {Share(100'000), Share(200'000), 0},
                   {Share(100'000), kWhole, 0}}),
            (std::vector<Share>{Share(300'000), Share(200'000), Share(500'000)}));
}

TEST(FluidShares, SlackGoesToTeamsFirstAndThenToTheirPods) {
  const Entitlement a1{Share(100'000), kWhole, 1, 1};
  const Entitlement a2{Share(100'000), kWhole, 3, 1};
  const Entitlement b{Share(400'000), kWhole, 4, 2};
  EXPECT_EQ(Fluid({a1, b, a2}, {0, 1, 1}),
            (std::vector<Share>{Share(150'000), Share(600'000), Share(250'000)}));
  EXPECT_EQ(Fluid({a1, b, a2}, {0, 3, 1}),
            (std::vector<Share>{Share(175'000), Share(500'000), Share(325'000)}));
  EXPECT_EQ(Fluid({a1, b, a2}),
            (std::vector<Share>{Share(150'000), Share(600'000), Share(250'000)}));
}

TEST(FluidShares, WhatATeamCannotTakeGoesToTheOthers) {
  EXPECT_EQ(Fluid({{Share(100'000), Share(150'000), 1, 0},
                   {Share(100'000), kWhole, 1, 1},
                   {Share(100'000), kWhole, 1, 2}},
                  {2, 1, 1}),
            (std::vector<Share>{Share(150'000), Share(425'000), Share(425'000)}));
}

TEST(FluidShares, ATeamWithoutWeightGetsItsRequestsAndWhatNobodyElseTakes) {
  EXPECT_EQ(Fluid({{Share(300'000), kWhole, 1, 0}, {Share(100'000), kWhole, 1, 1}}, {0, 5}),
            (std::vector<Share>{Share(300'000), Share(700'000)}));
  EXPECT_EQ(Fluid({{Share(300'000), kWhole, 1, 7}, {Share(100'000), Share(200'000), 1, 1}}, {0, 5}),
            (std::vector<Share>{Share(800'000), Share(200'000)}));
  EXPECT_EQ(Fluid({{Share(300'000), kWhole, 1, 7}, {Share(100'000), kWhole, 1, 1}}, {0, 0}),
            (std::vector<Share>{Share(600'000), Share(400'000)}))
      << "all zero means equal";
}

TEST(HistoryWeight, IsTheWeightPlusWhatTheTeamDidNotUseOfIt) {
  EXPECT_EQ(HistoryWeight(300'000, 300'000), 300'000u);
  EXPECT_EQ(HistoryWeight(300'000, 100'000), 500'000u);
  EXPECT_EQ(HistoryWeight(300'000, 0), 600'000u);
  EXPECT_EQ(HistoryWeight(300'000, 500'000), 100'000u);
  EXPECT_EQ(HistoryWeight(300'000, 600'000), 0u);
  EXPECT_EQ(HistoryWeight(300'000, kMillion), 0u);
  EXPECT_EQ(HistoryWeight(300'000, kMillion, 0), 300'000u) << "history does not count";
  EXPECT_EQ(HistoryWeight(300'000, 350'000, 2 * kMillion), 200'000u);
  EXPECT_EQ(HistoryWeight(kMillion, 0, 4'000 * kMillion), 4'001u * kMillion);
}

RC_GTEST_PROP(HistoryWeightLaw, WhatSomeUsedTooMuchOthersGainAndNobodyElse, ()) {
  // Two teams and the rest: weights and usage each sum up to one.
  const uint32_t w1 = *rc::gen::inRange<uint32_t>(0, kMillion + 1);
  const uint32_t w2 = *rc::gen::inRange<uint32_t>(0, kMillion - w1 + 1);
  const uint32_t u1 = *rc::gen::inRange<uint32_t>(0, kMillion + 1);
  const uint32_t u2 = *rc::gen::inRange<uint32_t>(0, kMillion - u1 + 1);
  const uint32_t k = *rc::gen::inRange<uint32_t>(0, 4 * kMillion);
  int64_t sum = 0;
  bool clamped = false;
  for (const auto& [w, u] :
       {std::pair{w1, u1}, std::pair{w2, u2}, std::pair{kMillion - w1 - w2, kMillion - u1 - u2}}) {
    const uint32_t e = HistoryWeight(w, u, k);
    sum += e;
    clamped |= e == 0;
    RC_ASSERT((e > w) <= (u < w));
    RC_ASSERT((e < w) <= (u > w));
    if (u > 0) RC_ASSERT(HistoryWeight(w, u - 1, k) >= e);
  }
  RC_ASSERT(sum >= kMillion - 3);
  if (!clamped) RC_ASSERT(sum <= kMillion);
}

// Both included.
Share AnyShare(Share least, Share most) {
  return Share(*rc::gen::inRange<uint32_t>(least.millionths(), most.millionths() + 1));
}

int64_t Beyond(Share share, Share other) {
  return int64_t{share.millionths()} - other.millionths();
}

struct Teams {
  std::vector<Entitlement> pods;
  std::vector<uint32_t> weights;
};

// Up to 512 pods of up to six teams, which may weigh nothing or be unknown, as may pods.
Teams AnyTeams(bool limits, bool overcommit) {
  Teams teams;
  const auto weight = [] {
    return *rc::gen::inRange(0, 4) == 0 ? 0 : *rc::gen::inRange<uint32_t>(1, 4 * kMillion);
  };
  const auto n = *rc::gen::weightedOneOf<uint32_t>(
      {{9, rc::gen::inRange<uint32_t>(1, 40)}, {1, rc::gen::inRange<uint32_t>(300, 513)}});
  const Share most = overcommit ? kWhole : std::max(kShareMin, kWhole / n);
  for (uint32_t i = 0; i < n; ++i) {
    const Share request = AnyShare(kShareMin, most);
    const Share limit = limits ? AnyShare(request, kWhole) : kWhole;
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
  ShareSum requested;
  ShareSum limits;
  ShareSum sum;
  const auto n = static_cast<uint32_t>(pods.size());
  for (const Entitlement& p : pods) {
    requested += p.request;
    limits += p.limit;
  }
  for (size_t i = 0; i < pods.size(); ++i) {
    if (requested <= kWhole) {
      RC_ASSERT(fluid[i] >= pods[i].request);
    } else {
      RC_ASSERT(std::abs(Beyond(fluid[i], ScaledDown(pods[i].request, requested))) <= 1);
    }
    RC_ASSERT(fluid[i] > Share(0));
    RC_ASSERT(fluid[i] <= pods[i].limit);
    sum += fluid[i];
  }
  RC_ASSERT(sum <= (requested <= kWhole ? kWhole : kWhole + Share(n)));
  RC_ASSERT(sum + Share(2 * n) >= std::min<ShareSum>(limits, kWhole));
}

RC_GTEST_PROP(FluidSharesLaw, WhatIsLeftOverIsWaterFilledByPodWhereTeamsDoNotMatter, ()) {
  const auto [pods, weights] = AnyTeams(true, false);
  const std::vector<Share> fluid = Fluid(pods);
  std::vector<Poured> poured;
  for (size_t i = 0; i < pods.size(); ++i) {
    poured.push_back({pods[i].slack_weight, Beyond(pods[i].limit, pods[i].request),
                      Beyond(fluid[i], pods[i].request)});
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
    const Poured pod{p.slack_weight, Beyond(p.limit, p.request), Beyond(fluid[i], p.request)};
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
    if (pods[i].team == team) slack += Beyond(fluid[i], pods[i].request);
  }
  return slack;
}

RC_GTEST_PROP(FluidSharesLaw, APodMoreInATeamTakesNothingOfTheOtherTeamsPartOfTheSlack, ()) {
  auto [pods, weights] = AnyTeams(false, false);
  if (weights.empty()) weights = {1, 2, 3};
  Share slack = kWhole;
  for (const Entitlement& p : pods) slack -= p.request;
  RC_PRE(slack > kShareMin * 2);
  const std::vector<Share> before = Fluid(pods, weights);
  std::vector<Entitlement> more = pods;
  more.push_back({AnyShare(kShareMin, slack - Share(1)), kWhole,
                  *rc::gen::inRange<uint32_t>(0, 4 * kMillion), pods[0].team});
  const std::vector<Share> after = Fluid(more, weights);
  const Share left = slack - more.back().request;  // the request comes first, as always
  const auto rounding = static_cast<int64_t>(more.size());
  for (uint32_t team = 0; team < 6; ++team) {
    const int64_t expected = SlackOf(team, pods, before) * left.millionths() / slack.millionths();
    RC_ASSERT(std::abs(SlackOf(team, more, after) - expected) <= rounding);
  }
}

RC_GTEST_PROP(FluidSharesLaw, MoreWeightIsNeverLess, ()) {
  auto [pods, weights] = AnyTeams(true, false);
  if (weights.empty()) weights = {1, 2, 3};
  const std::vector<Share> before = Fluid(pods, weights);
  const auto rounding = static_cast<int64_t>(2 * pods.size());
  const auto more = *rc::gen::inRange<uint32_t>(1, kMillion);
  const auto raised = *rc::gen::inRange<uint32_t>(0, static_cast<uint32_t>(weights.size()));
  std::vector<uint32_t> heavier = weights;
  heavier[raised] += more;
  const std::vector<Share> by_team = Fluid(pods, heavier);
  const auto one = *rc::gen::inRange<size_t>(0, pods.size());
  std::vector<Entitlement> changed = pods;
  changed[one].slack_weight += more;
  const std::vector<Share> by_pod = Fluid(changed, weights);
  for (size_t i = 0; i < pods.size(); ++i) {
    const int64_t team_gain = Beyond(by_team[i], before[i]);
    RC_ASSERT((pods[i].team == raised ? -team_gain : team_gain) <= rounding);
    const int64_t pod_gain = Beyond(by_pod[i], before[i]);
    RC_ASSERT((i == one ? -pod_gain : pod_gain) <= rounding);
  }
}

}  // namespace
}  // namespace baton::policy
