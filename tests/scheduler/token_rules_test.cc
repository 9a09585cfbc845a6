// What a token scheduler decides, one rule at a time: how long tokens are, who counts as active,
// and what it remembers of a pod.
#include <gtest/gtest.h>

#include "tests/scheduler/scripted.h"

namespace baton::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

class TokenRules : public Scripted {
 protected:
  using Scripted::Scripted;
  // It asks, is granted, and has no more work after this.
  void Work(uint64_t pod, Duration time) {
    Say(pod, Phase::kWaiting);
    ASSERT_EQ(Holder(), pod);
    Say(pod, Phase::kHolding);
    Pass(time);
    Say(pod, Phase::kIdle);
    ASSERT_EQ(Holder(), 0u);
  }
};

TEST_F(TokenRules, WhoStopsAskingSharesUntilItsGraceIsOver) {
  Add(1, Spec(50));
  Add(2, Spec(50));
  Hold(1);
  Say(2, Phase::kWaiting);
  Say(2, Phase::kIdle);
  Pass(options_.active_grace - milliseconds(1));
  EXPECT_EQ(StatusOf(1).fluid, policy::kWhole / 2);
  Pass(milliseconds(1));
  EXPECT_EQ(StatusOf(1).fluid, policy::kWhole);
  EXPECT_EQ(StatusOf(2).fluid, policy::Share(0));
}

TEST_F(TokenRules, WhoRestsWhileItsPriorityChangesRestsNoLongerForIt) {
  Add(1, Spec(50));
  Add(2, Spec(0, 100, policy::Priority::kIdle));
  Work(2, milliseconds(5));
  Step(PodSet{PodId{2}, Spec(50)});
  Say(1, Phase::kWaiting);
  EXPECT_EQ(StatusOf(1).fluid, policy::kWhole / 2);
  Pass(options_.active_grace);
  EXPECT_EQ(StatusOf(1).fluid, policy::kWhole);
}

TEST_F(TokenRules, WhoIsFoundHoldingRestsNoMore) {
  Add(1, Spec(50));
  Work(1, milliseconds(5));
  Step(ClientDisconnected{ClientId{1}});
  Step(ClientAttached{ClientId{1}, PodId{1}});
  Say(1, Phase::kHolding);
  ASSERT_EQ(Holder(), 1u);
  Pass(2 * options_.active_grace);
  EXPECT_EQ(StatusOf(1).fluid, policy::kWhole);
}

TEST_F(TokenRules, ShortPausesAddUpToNoMoreThanASleep) {
  Add(1, Spec(50));
  Add(2, Spec(50));
  Hold(1);
  for (int i = 0; i < 200; ++i) {
    Say(2, Phase::kWaiting);
    Say(2, Phase::kIdle);
    Pass(options_.active_grace - milliseconds(1));
    Say(1, Phase::kHolding);
  }
  ASSERT_EQ(Holder(), 1u);
  EXPECT_LE(StatusOf(2).lag, options_.fairness.sleep_credit / 2 + options_.active_grace);
}

TEST_F(TokenRules, AStrictPodIsGrantedNoMoreThanItsLimitAllowsAndLetsItDrawInAdvance) {
  Add(1, Spec(1, 1));
  Say(1, Phase::kWaiting);
  EXPECT_LE(told_[1].quota, (options_.fairness.limit_window + milliseconds(750)) / 100);
}

// Its limit pays for an idle token that it keeps.
TEST_F(TokenRules, APodWithALimitIsToldToGiveBackAsIfOthersWaited) {
  Add(1, Spec(10, 10));
  Say(1, Phase::kWaiting);
  EXPECT_TRUE(told_[1].contended);
  Say(1, Phase::kIdle);
  Step(PodSet{PodId{1}, Spec(10)});
  Pass(milliseconds(500));
  Say(1, Phase::kWaiting);
  EXPECT_FALSE(told_[1].contended);
}

TEST_F(TokenRules, ALongBurstGetsTheLongestTokenAndNoLongerOne) {
  Add(1, Spec(50));
  Work(1, milliseconds(200));
  Say(1, Phase::kWaiting);
  EXPECT_EQ(told_[1].quota, options_.quota_max);
}

// Pod 1 is granted the free GPU 200 times, and confirms each grant 1 ms later.
class FreeGpu : public TokenRules {
 protected:
  void TakeTurns() {
    for (int i = 0; i < 200; ++i) {
      Say(1, Phase::kWaiting);
      Pass(milliseconds(1));
      Say(1, Phase::kHolding);
      Say(1, Phase::kIdle);
      Pass(milliseconds(1));
    }
  }
};

// 250 us until the first ones have been measured.
class ManyHandOffs : public TokenRules {
 protected:
  static SchedulerOptions Options() {
    SchedulerOptions options;
    options.handoff_fraction = policy::Share(100'000);
    return options;
  }
  ManyHandOffs() : TokenRules(Options()) {}
};

TEST_F(ManyHandOffs, NoTokenIsShorterThanTheLeast) {
  Add(1, Spec(50));
  Say(1, Phase::kWaiting);
  EXPECT_EQ(told_[1].quota, options_.quota_min);
}

TEST_F(TokenRules, WhatAHandOffCostsIsMeasuredByTheConfirmations) {
  Add(1, Spec(50));
  Add(2, Spec(50));
  Say(1, Phase::kWaiting);
  Say(2, Phase::kWaiting);
  Say(1, Phase::kHolding);
  for (int i = 0; i < 200; ++i) {
    Say(Holder(), Phase::kWaiting);
    ASSERT_NE(Holder(), 0u);
    Pass(milliseconds(1));
    Say(Holder(), Phase::kHolding);
  }
  EXPECT_GT(scheduler_.handoff(), microseconds(1'900));
  EXPECT_LT(scheduler_.handoff(), microseconds(2'100));
  EXPECT_EQ(scheduler_.handoff_total(), 200 * milliseconds(2));
}

// Of many pods at small limits some would have two turns before others had one.
TEST_F(ManyHandOffs, ATokenAtALimitIsNoShorterThanTwiceTheLeastWhereOthersWait) {
  policy::ShareSpec limited = Spec(20);
  limited.limit = policy::ShareOf(0.5);
  Add(1, limited);
  Add(2, Spec(20));
  for (const uint64_t pod : {1, 2}) {  // so that both are known
    Say(pod, Phase::kWaiting);
    Say(pod, Phase::kHolding);
    Pass(milliseconds(1));
    Say(pod, Phase::kIdle);
  }
  Pass(milliseconds(100));
  std::map<uint64_t, Duration> longest;
  Say(1, Phase::kWaiting);
  Say(2, Phase::kWaiting);
  for (int i = 0; i < 10; ++i) {
    const uint64_t holder = Holder();
    ASSERT_NE(holder, 0u);
    if (i > 1) longest[holder] = std::max(longest[holder], told_[holder].quota);
    Say(holder, Phase::kHolding);
    Pass(milliseconds(1));
    Say(holder, Phase::kWaiting);
  }
  EXPECT_EQ(longest[1], 2 * options_.quota_min);
  EXPECT_EQ(longest[2], options_.quota_min);
}

TEST_F(FreeGpu, AnExtensionIsDecidedByHowLongTheWayTakes) {
  Add(1, Spec(50));
  TakeTurns();
  Say(1, Phase::kWaiting);
  const Instant ends = now_ + told_[1].quota;
  Say(1, Phase::kHolding);
  while (told_[1].rev == 1 && now_ < ends) Pass(std::chrono::microseconds(100));
  EXPECT_NEAR(Nanos(ends - now_), Nanos(options_.backlog + 2 * milliseconds(1)), 600'000);
}

TEST_F(FreeGpu, ItsGrantIsNoHandOff) {
  Add(1, Spec(50));
  TakeTurns();
  EXPECT_EQ(scheduler_.handoff(), microseconds(250));
  EXPECT_EQ(scheduler_.handoff_total(), Duration(0));
}

TEST_F(TokenRules, WhoHoldsIsToldOfARivalThatBeginsToWait) {
  Add(1, Spec(50));
  Add(2, Spec(50));
  Say(1, Phase::kWaiting);
  ASSERT_FALSE(told_[1].contended);
  Say(2, Phase::kWaiting);
  EXPECT_TRUE(told_[1].contended);
}

// Nothing is known of a new pod. It is taken for one with little work, so that the first answer of
// a service does not wait for a long token ...
TEST_F(TokenRules, ANewPodIsTakenForOneWithLittleWork) {
  Add(1, Spec(50));
  Hold(1);
  Pass(2 * options_.quota_min);
  Add(2, Spec(20));
  Say(2, Phase::kWaiting);
  EXPECT_TRUE(Ends(1));
  Say(1, Phase::kWaiting);
  ASSERT_EQ(Holder(), 2u);
  EXPECT_EQ(told_[2].quota, options_.quota_min);
}

// ... and that costs the others no more than one least token: one that turns out to want more waits
// its turn from then on, for a token like everybody's.
TEST_F(TokenRules, ANewPodThatWantsMoreIsKnownAfterItsFirstToken) {
  Add(1, Spec(50));
  Hold(1);
  Pass(2 * options_.quota_min);
  Add(2, Spec(20));
  Say(2, Phase::kWaiting);
  Say(1, Phase::kWaiting);
  Say(2, Phase::kHolding);
  Pass(options_.quota_min);
  Say(2, Phase::kWaiting);
  ASSERT_EQ(Holder(), 1u);
  Say(1, Phase::kHolding);
  EXPECT_FALSE(Ends(1));
  EXPECT_GT(told_[1].quota, options_.quota_min);
  Pass(told_[1].quota);
  Say(1, Phase::kWaiting);
  ASSERT_EQ(Holder(), 2u);
  EXPECT_GT(told_[2].quota, options_.quota_min);
}

// With the token of a new pod that is alone nobody is in a hurry.
TEST_F(TokenRules, ANewPodThatIsAloneHasATokenLikeEverybodys) {
  Add(1, Spec(20));
  Say(1, Phase::kWaiting);
  EXPECT_GT(told_[1].quota, options_.quota_min);
}

// What one holds that was found holding, after a restart, is known when it is back.
TEST_F(TokenRules, WhoWasFoundHoldingIsNotNew) {
  Add(1, Spec(50));
  Add(2, Spec(20));
  Say(2, Phase::kHolding);
  ASSERT_EQ(Holder(), 2u);
  Pass(milliseconds(30));
  Say(2, Phase::kIdle);
  Hold(1);
  Pass(milliseconds(60));  // until it has paid for that
  Say(2, Phase::kWaiting);
  EXPECT_FALSE(Ends(1));
}

TEST_F(TokenRules, HighPriorityDoesNotWaitForTheLeastToken) {
  Add(1, Spec(50));
  Add(2, Spec(20, 100, policy::Priority::kHigh));
  Hold(1);
  Pass(milliseconds(1));
  Say(2, Phase::kWaiting);
  EXPECT_TRUE(Ends(1));
}

TEST_F(TokenRules, NoTokenIsCutForAPodThatIsAtItsLimit) {
  Add(1, Spec(50));
  Add(2, Spec(10, 10, policy::Priority::kHigh));
  Exhaust(2);
  Say(2, Phase::kIdle);
  Hold(1);
  Pass(milliseconds(1));
  Say(2, Phase::kWaiting);
  ASSERT_TRUE(StatusOf(2).throttled);
  EXPECT_FALSE(Ends(1));
}

TEST_F(TokenRules, WhoIsAwayIsNotExtended) {
  Add(1, Spec(50));
  Hold(1);
  Step(ClientDisconnected{ClientId{1}});
  Pass(milliseconds(200));
  EXPECT_EQ(Holder(), 1u);
  EXPECT_EQ(told_[1].rev, 1u);
}

// Its bucket is empty after 50 ms.
TEST_F(TokenRules, AStrictPodIsExtendedNoFurtherThanItsLimitAllows) {
  Add(1, Spec(20, 20));
  Hold(1);
  const Instant granted = now_;
  while (told_[1].rev == 1) Pass(microseconds(100));
  EXPECT_LE(now_ + told_[1].quota, granted + milliseconds(51));
}

TEST_F(TokenRules, WhatWasStoredOfATokenIsClearedWhenItIsBack) {
  Add(1, Spec(50));
  Work(1, milliseconds(1));
  EXPECT_EQ(cleared_, scheduler_.epoch());
}

// It would launch once, whatever is left.
TEST_F(TokenRules, WhoJoinsATokenAtItsVeryEndIsGivenNothing) {
  Add(1, Spec(50));
  Add(2, Spec(50));
  Step(ClientAttached{ClientId{10}, PodId{1}});
  Hold(1);
  Say(2, Phase::kWaiting);
  Pass(told_[1].quota - microseconds(30));
  Say(10, Phase::kWaiting);
  ASSERT_TRUE(scheduler_.Holds(ClientId{10}));
  EXPECT_EQ(told_[10].quota, Duration(0));
}

TEST_F(TokenRules, WhileTheLinkIsCutNobodyIsGrantedAnything) {
  Add(1, Spec(50));
  Step(LinkCut{true});
  Say(1, Phase::kWaiting);
  Pass(seconds(1));
  EXPECT_EQ(Holder(), 0u);
  Step(LinkCut{false});
  EXPECT_EQ(Holder(), 1u);
}

TEST_F(TokenRules, ADrainGoesOnAfterACutWhereItWas) {
  Add(1, Spec(50));
  Hold(1);
  Add(2, Spec(50));
  Say(2, Phase::kWaiting);
  Pass(seconds(1));
  Step(LinkCut{true});
  Pass(seconds(20));
  Step(LinkCut{false});
  Pass(options_.drain_timeout - seconds(2));
  EXPECT_TRUE(notices_.empty());
  Pass(seconds(2));
  EXPECT_EQ(notices_.size(), 1u) << "it hangs";
}

TEST_F(TokenRules, TheTimeOfACutIsNoneInWhichWhoWasToldToStopCouldDrain) {
  Add(1, Spec(50));
  Add(2, Spec(50));
  Claim(1);
  Pass(seconds(1));
  Step(LinkCut{true});
  Pass(2 * options_.drain_timeout);
  Step(LinkCut{false});
  Say(2, Phase::kWaiting);
  Pass(options_.drain_timeout - seconds(2));
  EXPECT_EQ(Holder(), 0u);
  Pass(seconds(2));
  EXPECT_EQ(Holder(), 2u);
}

TEST_F(TokenRules, WhoMayClaimNoMoreIsNotSaidToHang) {
  Add(1, Spec(50));
  Add(2, Spec(50));
  Claim(1);
  Pass(options_.drain_timeout - seconds(2));
  Claim(1);
  Say(2, Phase::kWaiting);
  Pass(seconds(1));
  EXPECT_EQ(Holder(), 0u);
  Pass(seconds(2));
  EXPECT_EQ(Holder(), 2u);
  EXPECT_TRUE(notices_.empty());
}

// It could hold up the GPU for 2 s yet; it was watched for 1 s of them.
TEST_F(TokenRules, TheTimeOfACutDoesNotMakeAHangOfWhoWasToldToStop) {
  Add(1, Spec(50));
  Claim(1);
  Pass(options_.drain_timeout - seconds(2));
  Claim(1);
  Pass(seconds(1));
  Step(LinkCut{true});
  Pass(2 * options_.drain_timeout);
  Step(LinkCut{false});
  Pass(seconds(2));
  EXPECT_TRUE(notices_.empty()) << "where drain_kill is set it is killed";
}

TEST_F(TokenRules, TheTimeOfACutUsesUpNoneOfTheTimeThatClaimsMayTake) {
  Add(1, Spec(50));
  Add(2, Spec(50));
  Claim(1);
  Step(LinkCut{true});
  Pass(2 * options_.drain_timeout);
  Step(LinkCut{false});
  Claim(1);
  Say(2, Phase::kWaiting);
  EXPECT_EQ(Holder(), 0u) << "for it may be true";
}

TEST_F(TokenRules, AStrictPodDrawsNothingInAdvanceWhereNobodyElseWaits) {
  Add(1, Spec(1, 1));
  Say(1, Phase::kWaiting);
  EXPECT_LE(told_[1].quota, options_.fairness.limit_window / 100);
}

// Pod 1 is a gang, whose other GPUs the test plays; 2 and 3 have half of the GPU each.
class BesideAGang : public TokenRules {
 protected:
  BesideAGang() {
    Step(PodSet{PodId{1}, Spec(50), true});
    Step(ClientAttached{ClientId{1}, PodId{1}});
    Add(2, Spec(25));
    Add(3, Spec(25));
  }
  void Do(GangStep::Do act, Duration span = Duration(0)) { Step(GangStep{PodId{1}, act, span}); }
  // 2 holds while 3 waits: its token is not extended.
  void HoldBesideAWaitingOne() {
    Say(2, Phase::kWaiting);
    ASSERT_EQ(Holder(), 2u);
    Say(2, Phase::kHolding);
    Say(3, Phase::kWaiting);
  }
  bool Overdue() const { return scheduler_.Gang(PodId{1}).overdue; }
};

TEST_F(BesideAGang, AHangIsNotWaitedForAsLongAsTheLastOneTook) {
  HoldBesideAWaitingOne();
  Pass(seconds(100));
  Say(2, Phase::kIdle);
  ASSERT_EQ(Holder(), 3u);
  Say(3, Phase::kIdle);
  HoldBesideAWaitingOne();
  Pass(milliseconds(500));
  EXPECT_FALSE(Overdue()) << "a kernel may take as long as one did before";
  Pass(seconds(1));
  EXPECT_TRUE(Overdue());
}

// A daemon that is started anew every second would otherwise raise the limit by a bucket a second.
TEST_F(TokenRules, ARestartGivesAPodAtItsLimitNothing) {
  constexpr bool kSingle = false;
  Step(PodSet{PodId{8}, Spec(10, 10), kSingle, now_ + milliseconds(200)});
  Step(PodSet{PodId{9}, Spec(10, 10)});
  for (const uint64_t pod : {8, 9}) Step(ClientAttached{ClientId{pod}, PodId{pod}});
  Say(8, Phase::kWaiting);
  EXPECT_EQ(Holder(), 0u);
  Say(9, Phase::kWaiting);
  EXPECT_EQ(Holder(), 9u) << "a new one may have all that its limit ever allows at once";
  Say(9, Phase::kIdle);
  EXPECT_EQ(Holder(), 0u);
  Pass(milliseconds(200));
  EXPECT_EQ(Holder(), 8u);
}

TEST_F(BesideAGang, ADrainIsNotWaitedForAsLongAsATokenWasExtended) {
  Work(2, seconds(100));
  HoldBesideAWaitingOne();
  Pass(milliseconds(200));
  EXPECT_TRUE(Overdue());
}

TEST_F(BesideAGang, ItMakesNoTokenLongerThanItIs) {
  Step(PodSet{PodId{2}, Spec(0.1, 0.1)});
  Say(2, Phase::kWaiting);
  ASSERT_LT(told_[2].quota, milliseconds(1));
  Do(GangStep::Do::kWait);
  Do(GangStep::Do::kReserve);
  EXPECT_LT(told_[2].quota, milliseconds(1));
}

TEST_F(BesideAGang, ItIsChargedForAllOfItsTokenWhetherItHasWorkHereOrNot) {
  Say(1, Phase::kWaiting);
  Do(GangStep::Do::kWait);
  Do(GangStep::Do::kReserve);
  Do(GangStep::Do::kGrant, milliseconds(20));
  Say(1, Phase::kHolding);
  Pass(milliseconds(1));
  Say(1, Phase::kIdle);
  Pass(milliseconds(9));
  Do(GangStep::Do::kRelease);
  EXPECT_EQ(StatusOf(1).held, milliseconds(10));
}

TEST_F(BesideAGang, ItIsChargedForTheTimeThatTheGpuIsKeptForIt) {
  Say(1, Phase::kWaiting);
  Do(GangStep::Do::kWait);
  Do(GangStep::Do::kReserve);
  Say(2, Phase::kWaiting);
  Pass(milliseconds(10));
  EXPECT_EQ(Holder(), 0u) << "nobody else is granted";
  Do(GangStep::Do::kRelease);
  EXPECT_EQ(StatusOf(1).held, milliseconds(10));
  EXPECT_EQ(Holder(), 2u);
}

// A gap between two kernels is not long enough for a gang.
TEST_F(BesideAGang, ItDoesNotComeBeforeWhoRestsForAMomentAndIsOwedTime) {
  Hold(3);
  Say(2, Phase::kWaiting);
  Pass(milliseconds(4));
  Say(3, Phase::kIdle);
  ASSERT_EQ(Holder(), 2u);
  Say(2, Phase::kHolding);
  Pass(milliseconds(1));
  Say(2, Phase::kIdle);
  Say(1, Phase::kWaiting);
  Do(GangStep::Do::kWait);
  EXPECT_EQ(scheduler_.Gang(PodId{1}).rank, GangView::kUnranked);
  Pass(options_.active_grace);
  Do(GangStep::Do::kWait);
  EXPECT_EQ(scheduler_.Gang(PodId{1}).rank, 0u);
}

TEST_F(BesideAGang, WhatItIsOwedBeyondWhatItMayKeepIsCutWhereItsCoordinatorSaysSo) {
  Say(1, Phase::kWaiting);
  Do(GangStep::Do::kWait);
  Hold(2);
  EXPECT_FALSE(scheduler_.Gang(PodId{1}).owed_much);
  Pass(seconds(2));
  EXPECT_TRUE(scheduler_.Gang(PodId{1}).owed_much);
  const Duration before = StatusOf(1).lag;
  Do(GangStep::Do::kCap);
  EXPECT_LT(StatusOf(1).lag, before - milliseconds(100));
}

TEST_F(BesideAGang, AGpuThatIsKeptForOneIsNotKeptForAnother) {
  Step(PodSet{PodId{4}, Spec(10), true});
  Do(GangStep::Do::kReserve);
  Step(GangStep{PodId{4}, GangStep::Do::kReserve});
  EXPECT_TRUE(scheduler_.Gang(PodId{1}).reserved);
  EXPECT_TRUE(scheduler_.Gang(PodId{4}).taken);
}

}  // namespace
}  // namespace baton::scheduler
