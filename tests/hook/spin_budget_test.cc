#include "hook/spin_budget.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <utility>
#include <vector>

namespace baton::hook {
namespace {

using std::chrono::microseconds;

// Whoever spends no more than is left spends, over any window, no more than its part of the window,
// the burst, and what one look may take too long.
RC_GTEST_PROP(SpinBudget, OverAnyWindowNoMoreThanAPartAndABurstIsSpent, ()) {
  SpinBudget budget;
  Instant now = InstantFromNanos(*rc::gen::inRange<int64_t>(0, 1'000'000'000'000));
  std::vector<std::pair<Instant, Duration>> spent;  // until when, and how much
  const auto steps = *rc::gen::container<std::vector<std::pair<uint32_t, uint32_t>>>(rc::gen::pair(
      rc::gen::inRange<uint32_t>(0, 20'000'000), rc::gen::inRange<uint32_t>(0, 400'000)));
  for (const auto& [pause_ns, want_ns] : steps) {
    now += Duration(pause_ns);
    const Duration left = budget.Left(now);
    const Duration spin = std::min(Duration(want_ns), left);
    if (spin <= Duration(0)) continue;
    now += spin;
    budget.Spend(now, spin);
    spent.emplace_back(now, spin);
  }
  for (size_t from = 0; from < spent.size(); ++from) {
    Duration sum{0};
    for (size_t to = from; to < spent.size(); ++to) {
      sum += spent[to].second;
      const Duration window = spent[to].first - (spent[from].first - spent[from].second);
      RC_ASSERT(sum <= window / SpinBudget::kPart + SpinBudget::kBurst + microseconds(1));
    }
  }
}

TEST(SpinBudget, WhatWasSpentComesBackInTime) {
  SpinBudget budget;
  Instant now = InstantFromNanos(1'000'000'000);
  EXPECT_EQ(budget.Left(now), SpinBudget::kBurst);
  budget.Spend(now, SpinBudget::kBurst);
  EXPECT_EQ(budget.Left(now), Duration(0));
  now += microseconds(5'000);
  EXPECT_EQ(budget.Left(now), microseconds(100));
  budget.Spend(now, microseconds(300));
  EXPECT_EQ(budget.Left(now), microseconds(-200)) << "a look that took too long is paid back";
  // However often it is asked.
  for (int i = 0; i < 10'000; ++i) budget.Left(now += Duration(1'001));
  EXPECT_GE(budget.Left(now), microseconds(0));
  EXPECT_EQ(budget.Left(now + std::chrono::hours(24)), SpinBudget::kBurst);
}

}  // namespace
}  // namespace baton::hook
