#include "policy/share.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <vector>

namespace baton::policy {
namespace {

std::vector<Share> Fluid(std::vector<Entitlement> pods) {
  FluidShares(pods);
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

RC_GTEST_PROP(FluidSharesLaw, NobodyGetsLessThanItsRequestOrMoreThanItsLimitAndNothingIsLost, ()) {
  const auto n = *rc::gen::inRange<size_t>(1, 60);
  std::vector<Entitlement> pods;
  int64_t requested = 0;
  int64_t limits = 0;
  for (size_t i = 0; i < n; ++i) {
    const auto request = *rc::gen::inRange<Share>(kShareMin, kWhole / static_cast<Share>(n) + 1001);
    const auto limit = *rc::gen::inRange<Share>(request, kWhole + 1);
    pods.push_back({request, limit, *rc::gen::inRange<uint32_t>(1, kWhole)});
    requested += request;
    limits += limit;
  }
  const std::vector<Share> fluid = Fluid(pods);
  int64_t sum = 0;
  for (size_t i = 0; i < n; ++i) {
    if (requested <= kWhole) RC_ASSERT(fluid[i] >= pods[i].request);
    RC_ASSERT(fluid[i] <= pods[i].limit);
    sum += fluid[i];
  }
  const int64_t whole = std::min<int64_t>(limits, kWhole);
  RC_ASSERT(sum <= kWhole);
  RC_ASSERT(sum >= whole - static_cast<int64_t>(2 * n));
}

}  // namespace
}  // namespace baton::policy
