// Latencies: who is within its request, and by when it is to begin.
#include "policy/deadlines.h"

#include <gtest/gtest.h>

#include "policy/fair_queue.h"

namespace baton::policy {
namespace {

using std::chrono::milliseconds;

constexpr Share kTenth{100'000};
const Instant kStart{milliseconds(1'000)};

TEST(Deadlines, AreALatencyAfterTheWaitBeganOrWhatWasHadIsPaidFor) {
  Deadlines deadlines;
  deadlines.Set(3, PodId{1}, milliseconds(10));
  deadlines.Wait(3, {kStart}, kTenth);
  EXPECT_EQ(deadlines.Deadline(3), kStart + milliseconds(10));
  EXPECT_FALSE(deadlines.WasAhead(3));
  deadlines.Leave(3);
  EXPECT_TRUE(deadlines.waiting().empty());
  // 2 ms until 2 ms after the start: paid for 20 ms after it.
  deadlines.Charge(3, milliseconds(2), kStart + milliseconds(2), kTenth, milliseconds(40));
  deadlines.Wait(3, {kStart + milliseconds(5)}, kTenth);
  EXPECT_TRUE(deadlines.WasAhead(3));
  EXPECT_EQ(deadlines.Deadline(3), kStart + milliseconds(30));
  EXPECT_FALSE(deadlines.Within(3, kStart + milliseconds(19)));
  EXPECT_TRUE(deadlines.Within(3, kStart + milliseconds(20)));
}

TEST(Deadlines, AHandOffIsPaidForToo) {
  Deadlines deadlines;
  deadlines.Set(0, PodId{1}, milliseconds(10));
  deadlines.Wait(0, {kStart, milliseconds(1)}, kTenth);
  deadlines.Leave(0);
  deadlines.Wait(0, {kStart + milliseconds(1), milliseconds(1)}, kTenth);
  EXPECT_EQ(deadlines.Deadline(0), kStart + milliseconds(20));
}

TEST(Deadlines, WhatWasHadOfTheSlackCountsForOneLongestHold) {
  Deadlines deadlines;
  deadlines.Set(0, PodId{1}, milliseconds(10));
  Instant now = kStart;
  for (int i = 0; i < 100; ++i) {
    now += milliseconds(10);
    deadlines.Charge(0, milliseconds(10), now, kTenth, milliseconds(10));
    deadlines.Wait(0, {}, kTenth);  // its token is renewed
  }
  deadlines.Wait(0, {now}, kTenth);
  EXPECT_EQ(deadlines.Deadline(0), now + milliseconds(110));
}

// Charged as it goes on, while nobody has seen so long a hold yet: or a pod would have a long
// kernel first again and again, whatever its request.
TEST(Deadlines, AHoldLongerThanAnyOfLateIsPaidForInFull) {
  Deadlines deadlines;
  deadlines.Set(0, PodId{1}, milliseconds(10));
  deadlines.Wait(0, {kStart}, kTenth);
  deadlines.Leave(0);
  Instant now = kStart;
  for (int i = 0; i < 50; ++i) {
    now += milliseconds(40);
    deadlines.Charge(0, milliseconds(40), now, kTenth, milliseconds(40));
  }
  deadlines.Wait(0, {now}, kTenth);
  EXPECT_EQ(deadlines.Deadline(0), kStart + milliseconds(20'010)) << "2 s at a tenth";
  deadlines.Leave(0);
  // A short one pays for nothing of that.
  now += milliseconds(1);
  deadlines.Charge(0, milliseconds(1), now, kTenth, milliseconds(40));
  deadlines.Wait(0, {now}, kTenth);
  EXPECT_EQ(deadlines.Deadline(0), kStart + milliseconds(20'010));
}

TEST(Deadlines, WhatIsTakenBackIsNotPaidFor) {
  Deadlines deadlines;
  deadlines.Set(0, PodId{1}, milliseconds(10));
  deadlines.Charge(0, milliseconds(5), kStart, kTenth, milliseconds(40));
  deadlines.Charge(0, milliseconds(-5), kStart, kTenth, milliseconds(40));
  deadlines.Wait(0, {kStart}, kTenth);
  EXPECT_FALSE(deadlines.WasAhead(0));
}

TEST(Deadlines, APodWithoutOneHasNone) {
  Deadlines deadlines;
  deadlines.Wait(7, {kStart}, kTenth);
  deadlines.Charge(7, milliseconds(5), kStart, kTenth, milliseconds(5));
  EXPECT_EQ(deadlines.Deadline(7), kNever);
  EXPECT_TRUE(deadlines.waiting().empty());
  deadlines.Set(7, PodId{1}, milliseconds(10));
  deadlines.Wait(7, {kStart}, kTenth);
  deadlines.Remove(7);
  EXPECT_EQ(deadlines.Deadline(7), kNever);
  EXPECT_TRUE(deadlines.waiting().empty());
}

// Or who takes its latency away and sets it again would go first each time.
TEST(Deadlines, WhatWasHadIsPaidForAlsoWithoutOneMeanwhile) {
  Deadlines deadlines;
  const auto toggle = [&] {
    deadlines.Set(0, PodId{1}, Duration(0));
    EXPECT_EQ(deadlines.Deadline(0), kNever);
    deadlines.Set(0, PodId{1}, milliseconds(10));
    EXPECT_FALSE(deadlines.WasAhead(0));
  };
  deadlines.Set(0, PodId{1}, milliseconds(10));
  deadlines.Charge(0, milliseconds(2), kStart, kTenth, milliseconds(40));
  toggle();
  deadlines.Wait(0, {kStart}, kTenth);
  EXPECT_EQ(deadlines.Deadline(0), kStart + milliseconds(28)) << "2 ms at a tenth, from 2 ms ago";
  deadlines.Leave(0);
  // It holds without a latency.
  deadlines.Set(0, PodId{1}, Duration(0));
  deadlines.Charge(0, milliseconds(1), kStart, kTenth, milliseconds(40));
  toggle();
  deadlines.Wait(0, {kStart}, kTenth);
  EXPECT_EQ(deadlines.Deadline(0), kStart + milliseconds(38));
  // Another pod in its place has had nothing.
  deadlines.Remove(0);
  deadlines.Set(0, PodId{2}, milliseconds(10));
  deadlines.Wait(0, {kStart}, kTenth);
  EXPECT_EQ(deadlines.Deadline(0), kStart + milliseconds(10));
}

class LatencyQueue : public testing::Test {
 protected:
  Slot Add(uint64_t id, uint32_t percent, Duration latency, Priority priority = Priority::kNormal) {
    ShareSpec spec{.request = Share(percent * 10'000), .priority = priority};
    spec.latency = latency;
    const Slot slot = queue_.Add(PodId{id}, Validated(spec).value(), now_);
    queue_.SetActive(slot, true);
    queue_.SetWaiting(slot, true, milliseconds(1), {}, {now_});
    return slot;
  }
  Instant now_ = kStart;
  FairQueue queue_{{}};
};

TEST_F(LatencyQueue, TheEarliestDeadlineGoesBeforeHighPriorityAndShares) {
  Add(1, 50, Duration(0), Priority::kHigh);
  Add(2, 10, milliseconds(20));
  const Slot sooner = Add(3, 10, milliseconds(10));
  EXPECT_EQ(queue_.Pick(now_), sooner);
  queue_.SetWaiting(sooner, false, milliseconds(1));
  EXPECT_EQ(queue_.Pick(now_), Slot{1});
}

TEST_F(LatencyQueue, WhoIsAheadOfItsRequestGoesByItsShare) {
  const Slot other = Add(1, 50, Duration(0));
  const Slot pod = Add(2, 10, milliseconds(10));
  queue_.SetWaiting(pod, false, milliseconds(1));
  now_ += milliseconds(5);
  queue_.Charge(pod, milliseconds(5), now_);
  queue_.SetWaiting(pod, true, milliseconds(1), {}, {now_});
  EXPECT_EQ(queue_.Pick(now_), other);
  const auto next = queue_.deadlines().Next(milliseconds(20));
  EXPECT_EQ(next.deadline, kStart + milliseconds(60));
  EXPECT_EQ(next.ends, kStart + milliseconds(50)) << "not before it is within its request";
  EXPECT_EQ(queue_.Pick(kStart + milliseconds(50)), pod);
}

TEST_F(LatencyQueue, AGangHasNone) {
  const Slot gang = queue_.Add(
      PodId{1}, ShareSpec{.request = kTenth, .slack_weight = 1, .latency = milliseconds(10)}, now_,
      Claims::kWhenRanked);
  queue_.SetActive(gang, true);
  queue_.SetWaiting(gang, true, milliseconds(1), {}, {now_});
  EXPECT_EQ(queue_.deadlines().Next(Duration(0)).ends, kNever);
}

TEST(Latency, OfOneMillisecondToAMinuteAndWithARequest) {
  ShareSpec spec{.request = kTenth};
  for (const Duration good : {Duration(0), kLatencyMin, kLatencyMax}) {
    spec.latency = good;
    EXPECT_TRUE(Validated(spec));
  }
  for (const Duration bad : {kLatencyMin - Duration(1), kLatencyMax + Duration(1), Duration(-1)}) {
    spec.latency = bad;
    EXPECT_FALSE(Validated(spec));
  }
  const ShareSpec idle{
      .request = Share(0), .priority = Priority::kIdle, .latency = milliseconds(10)};
  EXPECT_FALSE(Validated(idle));
}

}  // namespace
}  // namespace baton::policy
