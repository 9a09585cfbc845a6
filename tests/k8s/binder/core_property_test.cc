// The binder's core in random cluster worlds (tests/k8s/worlds): whatever is lost, rejected, late
// or restarted, every law holds. `baton-cluster-world` runs more of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/k8s/worlds/run.h"
#include "tests/scale.h"

namespace baton::k8s::testing {
namespace {

TEST(CoreProperty, EveryLawHoldsInEveryWorld) {
  const uint64_t worlds = kSanitized ? 2 : 120;
  uint64_t displaced = 0;
  for (uint64_t seed = 1; seed <= worlds; ++seed) {
    const Verdict verdict = RunWorld(Plan::Of(seed));
    displaced += verdict.displaced;
    ASSERT_TRUE(verdict.ok()) << verdict.broken.law << ": " << verdict.broken.text
                              << "; to see it: baton-cluster-world --seed " << seed;
  }
  EXPECT_GT(displaced, worlds / 4) << "the worlds are too easy";
}

// Worlds that broke a law once. In most of them pods did not name GPUs by uuid yet.
TEST(CoreProperty, WhatOnceBrokeALawDoesSoNoMore) {
#ifdef BATON_SANITIZED
  constexpr uint64_t kWithoutUuids[] = {7194};
  constexpr uint64_t kWithUuids[] = {868};
#else
  constexpr uint64_t kWithoutUuids[] = {303,  305,  915,  1253, 1456,  1948,  2797,
                                        3035, 3646, 5190, 7194, 20088, 20090, 20124};
  constexpr uint64_t kWithUuids[] = {346, 868, 1300, 1449, 1987, 3045, 3912, 4950, 28571, 30558};
#endif
  const auto run = [](uint64_t seed, bool uuids) {
    Plan plan = Plan::Of(seed);
    plan.uuids = uuids;
    const Verdict verdict = RunWorld(plan);
    EXPECT_TRUE(verdict.ok()) << verdict.broken.law << ": " << verdict.broken.text << "; seed "
                              << seed;
  };
  for (const uint64_t seed : kWithoutUuids) run(seed, false);
  for (const uint64_t seed : kWithUuids) run(seed, true);
}

TEST(ClusterWorld, SameSeedIsTheSameWorld) {
  const Verdict one = RunWorld(Plan::Of(7));
  const Verdict two = RunWorld(Plan::Of(7));
  EXPECT_EQ(one.story, two.story);
  EXPECT_EQ(one.writes, two.writes);
  EXPECT_EQ(one.rounds, two.rounds);
}

TEST(ClusterWorld, DeedsAreReadAsTheyAreWritten) {
  for (const char* text : {"0", "0-4", "0-2,5,7-9"}) {
    const auto deeds = ParseDeeds(text);
    ASSERT_TRUE(deeds) << text;
    EXPECT_EQ(DeedsText(*deeds), text);
  }
  for (const char* text : {"x", "1-", "1,,2", "1 2", "99999"})
    EXPECT_FALSE(ParseDeeds(text)) << text;
}

}  // namespace
}  // namespace baton::k8s::testing
