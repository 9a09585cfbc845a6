#include "policy/guarantee.h"

#include <gtest/gtest.h>

namespace baton::policy {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kBound = milliseconds(100);
constexpr Duration kHold = milliseconds(10);

class GuaranteeTest : public testing::Test {
 protected:
  // A pod that waits, of a request in percent.
  Guarantee::Slot Add(double percent) {
    const Guarantee::Slot slot = next_++;
    guarantee_.Add(slot, PodId{slot + 1}, ShareOf(percent / 100));
    guarantee_.SetWaiting(slot, true, kHold);
    return slot;
  }
  void Hold(Guarantee::Slot slot, Duration held = kHold) {
    guarantee_.SetWaiting(slot, false, kHold);
    for (; held > Duration(0); held -= kHold) guarantee_.Charge(slot, kHold);
    guarantee_.SetWaiting(slot, true, kHold);
  }
  // Its token is renewed again and again.
  void HoldOn(Guarantee::Slot slot, Duration held) {
    for (; held > Duration(0); held -= kHold) Hold(slot);
  }
  Guarantee guarantee_{kBound};
  Guarantee::Slot next_ = 0;
};

TEST_F(GuaranteeTest, APodIsOwedItsRequestOfWhatTheGpuServed) {
  const auto a = Add(50), b = Add(10);
  Hold(b, milliseconds(100));
  EXPECT_EQ(guarantee_.Owed(a), milliseconds(50));
  EXPECT_EQ(guarantee_.Owed(b), milliseconds(-90));
  EXPECT_FALSE(guarantee_.Behind());
  Hold(b, milliseconds(150));
  EXPECT_EQ(guarantee_.Owed(a), milliseconds(125));
  EXPECT_EQ(guarantee_.Behind(), a);
  Hold(a);
  EXPECT_EQ(guarantee_.Owed(a), milliseconds(120));
}

TEST_F(GuaranteeTest, WhatAPodHadOfTheSlackIsNoDebt) {
  const auto a = Add(10), b = Add(10);
  HoldOn(a, seconds(10));
  EXPECT_EQ(guarantee_.Owed(a), -kBound);
  Hold(b, seconds(3));
  EXPECT_EQ(guarantee_.Owed(a), milliseconds(200)) << "after the 10 s it is behind again";
}

TEST_F(GuaranteeTest, WhatAChargeTakesBackMakesNoClaim) {
  const auto a = Add(50), b = Add(10);
  guarantee_.SetWaiting(a, false, kHold);
  guarantee_.Charge(a, seconds(2));
  guarantee_.Charge(a, -milliseconds(1'900));
  guarantee_.SetWaiting(a, true, kHold);
  EXPECT_EQ(guarantee_.Owed(a), -milliseconds(50));
  EXPECT_EQ(guarantee_.Owed(b), milliseconds(10));
}

TEST_F(GuaranteeTest, WhoIsNoLongerBehindByAChargeThatWasTakenBackWaits) {
  const auto a = Add(50), b = Add(10);
  Hold(b, milliseconds(230));
  ASSERT_EQ(guarantee_.Behind(), a);
  guarantee_.Charge(b, -milliseconds(100));
  EXPECT_EQ(guarantee_.Owed(a), milliseconds(65));
  EXPECT_FALSE(guarantee_.Behind());
}

TEST_F(GuaranteeTest, OfThoseBehindTheEarliestDeadlineGoesFirst) {
  const auto small = Add(10), large = Add(40), other = Add(10);
  Hold(other, seconds(2));
  ASSERT_GT(guarantee_.Owed(small), kBound);
  // Beyond the limit the one is owed 80 ms of 10 %, the other 680 ms of 40 %: a hold of it would
  // have ended at that rate 1 675 ms ago, one of the first 700 ms ago.
  EXPECT_EQ(guarantee_.Behind(), large);
  Hold(large, milliseconds(690));
  EXPECT_EQ(guarantee_.Behind(), small);
}

TEST_F(GuaranteeTest, WithoutWorkNothingIsOwedAndNoClaimIsSavedUp) {
  const auto a = Add(50), b = Add(50);
  guarantee_.SetWaiting(a, false, kHold);
  Hold(b, seconds(10));
  EXPECT_EQ(guarantee_.Owed(a), Duration(0));
  guarantee_.SetWaiting(a, true, kHold);
  Hold(b, seconds(1));
  ASSERT_EQ(guarantee_.Owed(a), milliseconds(500));
  guarantee_.SetWaiting(a, false, kHold);
  guarantee_.SetWaiting(a, true, kHold);
  EXPECT_EQ(guarantee_.Owed(a), kBound) << "whoever comes back waits its turn";
}

TEST_F(GuaranteeTest, WhoHadNoWorkKeepsAsMuchOfItsClaimAsItMay) {
  const auto a = Add(50), b = Add(10);
  Hold(b, milliseconds(160));
  ASSERT_EQ(guarantee_.Owed(a), milliseconds(80));
  guarantee_.CapClaim(a, milliseconds(90));
  EXPECT_EQ(guarantee_.Owed(a), milliseconds(80));
  guarantee_.CapClaim(a, milliseconds(30));
  EXPECT_EQ(guarantee_.Owed(a), milliseconds(30));
  Hold(b, seconds(1));
  guarantee_.CapClaim(a, seconds(1));
  EXPECT_EQ(guarantee_.Owed(a), kBound);
}

TEST_F(GuaranteeTest, MoreThanTheWholeIsScaledDown) {
  const auto a = Add(50), b = Add(50), c = Add(100);
  Hold(c, milliseconds(100));
  EXPECT_EQ(guarantee_.Owed(a), milliseconds(25));
  Debts debts;
  guarantee_.Remove(c, debts);
  Hold(b, milliseconds(100));
  EXPECT_EQ(guarantee_.Owed(a), milliseconds(75));
  guarantee_.SetRequest(b, Share(100'000));
  guarantee_.SetRequest(a, Share(100'000));
  Hold(b, milliseconds(100));
  EXPECT_EQ(guarantee_.Owed(a), milliseconds(85));
}

TEST_F(GuaranteeTest, APodAtItsLimitHasNoClaim) {
  const auto a = Add(50), b = Add(10);
  Hold(b, seconds(1));
  ASSERT_EQ(guarantee_.Behind(), a);
  guarantee_.Throttle(a);
  EXPECT_FALSE(guarantee_.Behind());
  Hold(b, seconds(1));
  EXPECT_EQ(guarantee_.Owed(a), Duration(0));
}

TEST_F(GuaranteeTest, LongHoldsMoveTheLimitAndAreForgotten) {
  const auto a = Add(50), b = Add(10);
  guarantee_.SetWaiting(b, false, kHold);
  guarantee_.Charge(b, seconds(1));
  ASSERT_EQ(guarantee_.Owed(a), milliseconds(500));
  EXPECT_FALSE(guarantee_.MustGo(a)) << "one hold of the other";
  for (int i = 0; i < 2'000; ++i) guarantee_.Charge(b, Duration(1'000));
  EXPECT_TRUE(guarantee_.MustGo(a));
  EXPECT_EQ(guarantee_.Behind(), a);
}

TEST_F(GuaranteeTest, DeadlinesFollowTheLimitThatALongHoldMoves) {
  const auto small = Add(10), large = Add(40), other = Add(10);
  Hold(other, milliseconds(3'200));
  Hold(large, milliseconds(400));
  ASSERT_EQ(guarantee_.Owed(small), milliseconds(360));
  ASSERT_EQ(guarantee_.Owed(large), milliseconds(1'040));
  EXPECT_EQ(guarantee_.Behind(), small) << "by 260 ms of 10 %, the other by 940 ms of 40 %";
  guarantee_.SetWaiting(other, true, milliseconds(150));
  EXPECT_EQ(guarantee_.Behind(), large) << "by 740 ms of 40 %, the other by 60 ms of 10 %";
}

// A request of 20 % serves 10 ms and a hand-off of 1 ms in 55 ms.
TEST_F(GuaranteeTest, WhoComesFromAPauseIsDueWhenItMustBegin) {
  const auto a = Add(50), b = Add(20);
  EXPECT_EQ(guarantee_.NextDue(), Duration::max());
  guarantee_.SetWaiting(b, false, kHold);
  guarantee_.SetWaiting(b, true, kHold, {kHold, milliseconds(1)});
  EXPECT_EQ(guarantee_.NextDue(), milliseconds(44));
  Hold(a, milliseconds(30));
  EXPECT_EQ(guarantee_.NextDue(), milliseconds(14));
  EXPECT_FALSE(guarantee_.Behind());
  EXPECT_FALSE(guarantee_.MustGo(b));
  Hold(a, milliseconds(10));
  EXPECT_EQ(guarantee_.NextDue(), milliseconds(4)) << "another token would not be worth it";
  EXPECT_EQ(guarantee_.Behind(), b);
  EXPECT_TRUE(guarantee_.MustGo(b));
  guarantee_.SetWaiting(b, false, kHold);
  EXPECT_EQ(guarantee_.NextDue(), Duration::max());
  EXPECT_FALSE(guarantee_.Behind());
}

TEST_F(GuaranteeTest, WhoIsOwedTimeIsDueEarlierAndWhoHadMoreLater) {
  const auto b = Add(20), c = Add(20), d = Add(20);
  Hold(c);
  HoldOn(d, milliseconds(50));
  for (const auto slot : {b, c, d}) guarantee_.SetWaiting(slot, false, kHold);
  ASSERT_EQ(guarantee_.Owed(b), milliseconds(12));
  ASSERT_EQ(guarantee_.Owed(c), milliseconds(2));
  ASSERT_EQ(guarantee_.Owed(d), -milliseconds(38));
  guarantee_.SetWaiting(d, true, kHold, {kHold, milliseconds(1)});
  EXPECT_EQ(guarantee_.NextDue(), milliseconds(94)) << "of 38 ms one hold of 10";
  guarantee_.SetWaiting(c, true, kHold, {kHold, milliseconds(1)});
  EXPECT_EQ(guarantee_.NextDue(), milliseconds(34));
  guarantee_.SetWaiting(b, true, kHold, {kHold, milliseconds(1)});
  EXPECT_EQ(guarantee_.NextDue(), -milliseconds(16));
}

// A kernel of 8 s, charged as it goes on. Or who comes with little, and then holds for long, would
// begin again as soon as its request had served the little.
TEST_F(GuaranteeTest, AHoldLongerThanAnyOfLateIsPaidBackInFull) {
  const auto a = Add(50), b = Add(10);
  guarantee_.SetWaiting(b, false, kHold);
  for (int i = 0; i < 200; ++i) guarantee_.Charge(b, milliseconds(40));
  const FromPause pause{milliseconds(1), milliseconds(1)};
  guarantee_.SetWaiting(b, true, kHold, pause);
  EXPECT_EQ(guarantee_.Owed(b), -milliseconds(7'200));
  EXPECT_EQ(guarantee_.NextDue(), milliseconds(72'018));
  // Nor does a short hold, or another request for a moment, make up for it.
  guarantee_.SetWaiting(b, false, kHold);
  guarantee_.Charge(b, milliseconds(1));
  guarantee_.SetWaiting(b, true, kHold, pause);
  Hold(a, seconds(20));
  guarantee_.SetRequest(b, ShareOf(0.5));
  guarantee_.SetRequest(b, ShareOf(0.1));
  guarantee_.SetWaiting(b, false, kHold);
  guarantee_.SetWaiting(b, true, kHold, pause);
  EXPECT_NEAR(static_cast<double>(Nanos(guarantee_.Owed(b))), -5.2e9, 2e6);
  // Nor does another pod in its place.
  Debts debts;
  guarantee_.Remove(b, debts);
  Hold(a, seconds(10));
  guarantee_.Add(b, PodId{9}, ShareOf(0.1), true, debts);
  guarantee_.SetWaiting(b, true, kHold, pause);
  EXPECT_NEAR(static_cast<double>(Nanos(guarantee_.Owed(b))), -4.2e9, 2e6);
  Hold(a, seconds(50));
  EXPECT_EQ(guarantee_.Behind(), b);
}

// Its token is extended, alone perhaps, without that anybody here is told.
TEST_F(GuaranteeTest, AGangPaysBackNoLongHold) {
  guarantee_.Add(0, PodId{1}, ShareOf(0.1), false);
  guarantee_.SetWaiting(0, true, kHold);
  for (int i = 0; i < 200; ++i) guarantee_.Charge(0, milliseconds(40));
  guarantee_.SetWaiting(0, false, kHold);
  EXPECT_EQ(guarantee_.Owed(0), -kBound);
}

TEST_F(GuaranteeTest, AHandOffForWhoIsDueIsItsOwn) {
  const auto a = Add(50), b = Add(20);
  for (const int waits : {10, 40}) {
    guarantee_.SetWaiting(b, false, kHold);
    guarantee_.CapClaim(b, Duration(0));
    const Duration before = guarantee_.Owed(b);
    guarantee_.SetWaiting(b, true, kHold, {kHold, milliseconds(1)});
    Hold(a, milliseconds(waits));
    guarantee_.SetWaiting(b, false, kHold);
    const Duration fee = waits == 40 ? milliseconds(1) : milliseconds(0);
    EXPECT_EQ(guarantee_.Owed(b) - before, milliseconds(waits) / 5 - fee);
  }
}

TEST_F(GuaranteeTest, WhoIsFarBehindGoesBeforeWhoIsDue) {
  const auto a = Add(30), b = Add(20), c = Add(10);
  guarantee_.SetWaiting(b, false, kHold);
  Hold(c, milliseconds(330));
  guarantee_.SetWaiting(b, true, kHold, {kHold, milliseconds(1)});
  Hold(c, milliseconds(50));
  ASSERT_TRUE(guarantee_.MustGo(a));
  ASSERT_TRUE(guarantee_.MustGo(b));
  EXPECT_EQ(guarantee_.Behind(), a);
  Hold(a, milliseconds(40));
  EXPECT_EQ(guarantee_.Behind(), b);
}

}  // namespace
}  // namespace baton::policy
