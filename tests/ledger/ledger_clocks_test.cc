// What becomes of use that was booked by a wrong clock.
#include <gtest/gtest.h>

#include "ledger/columns.h"
#include "ledger/ledger.h"
#include "tests/ledger/books.h"

namespace baton::ledger {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

// A clock that is a year ahead for a while: what was booked meanwhile would be in no report, and
// undecayed, for a year.
TEST_P(LedgerTest, UseBookedByAClockThatWasAheadIsTakenBackWhenItStepsBack) {
  const auto ledger = Open();
  const std::string source = NewSource();
  const std::string other = NewSource();
  constexpr int64_t kYear = 365 * 86400;
  const auto batch_at = [&](const std::string& of, uint64_t seq, int64_t second, int64_t held_s) {
    Batch batch = MakeBatch(of, seq, At(second));
    AddSample(
        batch, 1, "GPU-a", held_s * kSecond,
        of == source ? Owner{"train", "", "research", "user-a"} : Owner{"web", "", "ops", "u"});
    AddGpu(batch, "GPU-a", seconds(1));
    Apply(*ledger, batch);
  };
  Begin(*ledger, source, At(0));
  Begin(*ledger, other, At(kYear));  // a source that is right, a year later
  batch_at(other, 2, kYear + 10, 5);
  batch_at(source, 2, 10, 7);
  batch_at(source, 3, kYear, 15);  // ahead
  batch_at(source, 4, kYear + 10, 22);
  batch_at(source, 5, 60, 28);  // and back
  const auto held_s = [&](int64_t from, int64_t to) {
    return Narrow(*ledger->HeldBy("research", {At(from), At(to)})) / kSecond;
  };
  EXPECT_EQ(held_s(0, 60), 28);
  EXPECT_EQ(held_s(60, 2 * kYear), 0);
  EXPECT_EQ(*ledger->HeldBy("ops", {At(kYear), At(kYear + 10)}), 5 * kSecond);
  for (const char* level : {"fine", "minutes", "hours", "days"}) {
    int64_t held_ns = 0;
    for (const BucketRow& row : BucketsOf(*Inside(), level, source)) {
      EXPECT_LT(row.t, kMonday_s + 60) << level;
      held_ns += row.use.held_ns;
    }
    EXPECT_EQ(held_ns, 28 * kSecond) << level;
    int64_t idle_ns = 0;
    for (const PresenceRow& row : PresenceOf(*Inside(), level, source)) {
      EXPECT_LT(row.t, kMonday_s + 60) << level;
      EXPECT_LE(row.idle_ns, row.present_ns) << level;
      idle_ns += row.idle_ns;
    }
    EXPECT_NEAR(static_cast<double>(idle_ns), 4.0 * kSecond, 1000) << level;  // rounded by parts
  }
  // It decays from then on: a day is the smallest of its buckets.
  const auto decayed = ledger->Decayed(At(43'200 + 14 * 86400), hours(7 * 24));
  ASSERT_EQ(decayed->back().team, "research");
  EXPECT_NEAR(decayed->back().decayed_ns, 7.0 * kSecond, 1e-3 * kSecond);
  batch_at(source, 6, 70, 33);
  EXPECT_EQ(held_s(60, 70), 5) << "and goes on as if nothing had been";
}

// A clock that is wrong now, years back, must not pile up all that is booked.
TEST_P(LedgerTest, AClockThatStepsBackWithoutAJumpAheadMovesNothing) {
  const auto ledger = Open();
  const std::string source = NewSource();
  Begin(*ledger, source, At(0));
  const auto batch_at = [&](uint64_t seq, int64_t second, int64_t held_s) {
    Batch batch = MakeBatch(source, seq, At(second));
    AddSample(batch, 1, "GPU-a", held_s * kSecond);
    Apply(*ledger, batch);
  };
  batch_at(2, 10, 5);
  batch_at(3, 3 * 86400, 10);  // stopped for days
  batch_at(4, 3 * 86400 + 10, 12);
  batch_at(5, -700 * 86400, 13);
  EXPECT_EQ(*ledger->HeldBy("", {At(0), At(4 * 86400)}), 12 * kSecond);
  batch_at(6, 3 * 86400 + 20, 14);
  EXPECT_EQ(*ledger->HeldBy("", {At(0), At(10)}), 5 * kSecond);
}

// An empty battery: each start of the machine is years back, until the network says what time it
// is.
TEST_P(LedgerTest, AClockThatBeginsAnewWithEachStartMovesNothing) {
  const auto ledger = Open();
  const std::string source = NewSource();
  constexpr int64_t kStart = -700 * 86400;
  Begin(*ledger, source, At(kStart));
  uint64_t seq = 1;
  const auto batch_at = [&](int64_t second) {
    ++seq;
    Batch batch = MakeBatch(source, seq, At(second));
    AddSample(batch, 1, "GPU-a", static_cast<int64_t>(seq) * kSecond);
    Apply(*ledger, batch);
  };
  batch_at(kStart + 10);
  for (int64_t hour = 0; hour < 72; hour += 12) batch_at(hour * 3600 + 10);
  const Int128 before = *ledger->HeldBy("", {At(20), At(4 * 86400)});
  EXPECT_EQ(before, 5 * kSecond);
  batch_at(kStart + 60);
  EXPECT_EQ(*ledger->HeldBy("", {At(20), At(4 * 86400)}), before);
}

// A clock that is wrong for long is believed, and drops what is not old.
TEST_P(LedgerTest, WhatAClockThatWasAheadDroppedIsKeptAgainOnceItIsRight) {
  Retention retention;
  retention.days = std::chrono::hours(24 * 500);
  const auto ledger = Open(retention);
  const std::string source = NewSource();
  Begin(*ledger, source, At(0));
  uint64_t seq = 1;
  int64_t held_ns = 0;
  const auto pass = [&](int64_t at) {
    Batch batch = MakeBatch(source, ++seq, At(at));
    AddSample(batch, 1, "GPU-a", held_ns += 6 * kSecond);
    AddGpu(batch, "GPU-a");
    Apply(*ledger, batch);
  };
  for (int64_t at = 10; at <= 600; at += 10) pass(at);
  constexpr int64_t kAhead = 2 * 365 * 86400;
  for (int64_t at = 610; at <= 700; at += 10) pass(kAhead + at);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(ledger->Trim(At(kAhead + 700)));
  constexpr int64_t kDay = 86400;
  for (int64_t at = kDay + 10; at <= kDay + 600; at += 10) pass(at);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(ledger->Trim(At(kDay + 600)));
  // In what follows, once the stretches in which something was dropped are over.
  for (int64_t at = 2 * kDay + 10; at <= 2 * kDay + 600; at += 10) pass(at);
  const Window window{At(2 * kDay + 100), At(2 * kDay + 160)};
  const auto uses = ledger->Query(window, By::kTotal);
  ASSERT_TRUE(uses) << uses.error().message;
  EXPECT_EQ(uses->window.from, window.from);
  EXPECT_EQ(uses->window.to, window.to);
  ASSERT_EQ(uses->rows.size(), 1u);
  EXPECT_EQ(Narrow(uses->rows[0].use.held_ns), 36 * kSecond);
  // All that is left is in reports; also of the day on which the clock was set right.
  const auto all = ledger->Query({At(-kDay), At(3 * kDay)}, By::kTotal);
  ASSERT_TRUE(all && all->rows.size() == 1);
  int64_t left_ns = 0;
  for (const BucketRow& row : BucketsOf(*Inside(), "days", source)) left_ns += row.use.held_ns;
  EXPECT_GT(left_ns, 120 * 6 * kSecond);
  EXPECT_EQ(Narrow(all->rows[0].use.held_ns), left_ns);
}

// The longest interval of batches that there is: each comes a moment after it has passed.
TEST_P(LedgerTest, AGpuIsThereBetweenBatchesOfEachHour) {
  const auto ledger = Open();
  const std::string source = NewSource();
  Begin(*ledger, source, At(0));
  const int64_t step_ms = 3'600'004;
  for (int64_t n = 1; n <= 3; ++n) {
    Batch batch = MakeBatch(source, static_cast<uint64_t>(n) + 1, AtMs(n * step_ms));
    AddSample(batch, 1, "GPU-a", n * 600 * kSecond);
    AddGpu(batch, "GPU-a", std::chrono::minutes(20));
    Apply(*ledger, batch);
  }
  const auto uses = ledger->Query({{At(0), At(4 * 3'600)}, {By::kTotal}});
  ASSERT_TRUE(uses);
  EXPECT_EQ(Narrow(uses->capacity.at(0).present_ns), 3 * step_ms * 1'000'000);
  EXPECT_EQ(Narrow(uses->capacity.at(0).idle_ns), 3 * 1'200 * kSecond);
}

}  // namespace
}  // namespace baton::ledger
