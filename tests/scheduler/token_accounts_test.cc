// What the token scheduler believes, and what it charges: holders of before a restart, links that
// were cut, and clients that claim what is not so. It is told events one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "scheduler/token_scheduler.h"
#include "tests/scheduler/driven.h"
#include "tests/scheduler/share_spec.h"

namespace baton::scheduler {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using wire::Phase;

TEST(TokenScheduler, AfterARestartNobodyIsGrantedUntilTheLastHolderDrained) {
  Driven step(41);
  TokenScheduler& scheduler = step.scheduler;
  step(PodSet{PodId{1}, Spec(50)});
  step(PodSet{PodId{2}, Spec(50)});
  step(HolderRestored{ClientId{10}, PodId{1}, 41, {}, {}, {}});
  step(ClientAttached{ClientId{20}, PodId{2}});
  step(ClientReport{ClientId{20}, 5, Phase::kWaiting, 40, 1, Duration(0)});
  EXPECT_EQ(scheduler.holder(), PodId{1});
  step(ClientAttached{ClientId{10}, PodId{1}});
  step(ClientReport{ClientId{10}, 9, Phase::kDraining, 41, 3, Duration(0)});
  EXPECT_EQ(scheduler.holder(), PodId{1});
  step(ClientReport{ClientId{10}, 10, Phase::kIdle, 41, 3, milliseconds(3)});
  EXPECT_EQ(scheduler.holder(), PodId{2});
  EXPECT_EQ(scheduler.epoch(), 42u) << "epochs go on above the stored one";
}

TEST(TokenScheduler, ARestoredHolderThatDiedFreesTheGpu) {
  Driven step(41);
  TokenScheduler& scheduler = step.scheduler;
  step(PodSet{PodId{1}, Spec(50)});
  step(HolderRestored{ClientId{10}, PodId{1}, 41, {}, {}, {}});
  step(ClientGone{ClientId{10}});
  EXPECT_FALSE(scheduler.holder());
}

// A holder at 50 % that was granted its token at 1 s and charged 10 ms before its daemon ended; it
// comes back 2 s later.
class RestoredHold : public ::testing::Test {
 protected:
  static constexpr uint64_t kEpoch = 41;
  RestoredHold() {
    step(PodSet{PodId{1}, Spec(50)});
    step(HolderRestored{ClientId{10}, PodId{1}, kEpoch, Instant(seconds(1)), Instant(seconds(1)),
                        milliseconds(10)});
    step.now += milliseconds(50);
    step(ClientAttached{ClientId{10}, PodId{1}});
  }
  void Report(Phase phase, Duration claimed, Duration measured = Duration(0)) {
    step(ClientReport{ClientId{10}, ++seq, phase, kEpoch, 2, measured, claimed});
  }
  Duration Charged() const {
    Duration sum{0};
    for (const Effect& effect : step.effects) {
      if (const auto* charged = std::get_if<scheduler::Charged>(&effect)) sum += charged->held;
    }
    return sum;
  }

  bool Told() const { return Any<SendToken>(); }
  bool Returned() const { return Any<ClearHolders>(); }
  template <class E>
  bool Any() const {
    return std::any_of(step.effects.begin(), step.effects.end(),
                       [](const Effect& effect) { return std::holds_alternative<E>(effect); });
  }

  Driven step{kEpoch};
  uint64_t seq = 0;
};

TEST_F(RestoredHold, ThatEndedMeanwhileIsChargedAsItsClientSays) {
  Report(Phase::kWaiting, milliseconds(37));
  EXPECT_EQ(Charged(), milliseconds(27)) << "10 ms were charged before";
}

TEST_F(RestoredHold, IsChargedAsItsNodeMeasuredWhereThatWasThere) {
  Report(Phase::kWaiting, milliseconds(37), milliseconds(36));
  EXPECT_EQ(Charged(), milliseconds(26));
}

TEST_F(RestoredHold, OfWhomNothingIsHeardIsChargedForWhatIsWatched) {
  for (int i = 0; i < 100; ++i) {
    step.now += milliseconds(10);
    step(Tick{});
  }
  EXPECT_GE(Charged(), milliseconds(1000 + 50) - SchedulerOptions().quota_max - milliseconds(10));
  EXPECT_LE(Charged(), milliseconds(1000 + 50));
  Report(Phase::kDraining, milliseconds(3050));
  step.now += milliseconds(100);
  step(Tick{});
  EXPECT_GE(Charged(), milliseconds(3150 - 10) - SchedulerOptions().quota_max)
      << "it has held all along";
}

TEST_F(RestoredHold, AClaimCannotTakeBackWhatWasSeen) {
  Report(Phase::kWaiting, Duration(0));
  EXPECT_EQ(Charged(), Duration(0));
}

TEST_F(RestoredHold, AClaimCannotGoBeyondTheTimeThatPassed) {
  Report(Phase::kWaiting, Duration::max());
  EXPECT_EQ(Charged(), milliseconds(2050 - 10));
}

TEST_F(RestoredHold, ThatGoesOnIsChargedInFull) {
  Report(Phase::kDraining, milliseconds(2050));
  step.now += milliseconds(5);
  Report(Phase::kWaiting, Duration(0));
  EXPECT_EQ(Charged(), milliseconds(2055 - 10));
}

// Its relay says again what it said last. Another word to it before would make that an old one.
TEST_F(RestoredHold, WhoIsBackIsHeardBeforeItIsToldAnything) {
  EXPECT_FALSE(Told());
  step.now += milliseconds(600);
  step(Tick{});
  EXPECT_FALSE(Told()) << "its first report says what it knows";
  step(ClientReport{ClientId{10}, ++seq, Phase::kWaiting, kEpoch, 1, milliseconds(40)});
  EXPECT_EQ(Charged(), milliseconds(40 - 10));
  EXPECT_TRUE(Returned());
}

TEST_F(RestoredHold, WhoDiesAfterAllIsChargedInFullEvenIfItHasNotHeardWhatWasSaidSince) {
  step(PodRemoved{PodId{1}});
  ASSERT_TRUE(Told()) << "to drain";
  step.now += milliseconds(600);
  step(ClientReport{ClientId{10}, ++seq, Phase::kDraining, kEpoch, 1, Duration(0), seconds(2)});
  step.now += milliseconds(5);
  step(ClientGone{ClientId{10}});
  EXPECT_EQ(Charged(), milliseconds(2655 - 10));
}

TEST_F(RestoredHold, WhoDiesBeforeItAnswersIsChargedForWhatItWasSeenToHoldAndForTheWait) {
  step(PodRemoved{PodId{1}});
  ASSERT_TRUE(Told()) << "to drain";
  for (int i = 0; i < 2; ++i) {
    step(ClientReport{ClientId{10}, ++seq, Phase::kWaiting, kEpoch, 1, milliseconds(40)});
    EXPECT_FALSE(Returned()) << "what it was told may have crossed with this";
  }
  step.now += milliseconds(5);
  step(ClientGone{ClientId{10}});
  EXPECT_EQ(Charged(), milliseconds(40 + 50 + 5 - 10));
}

TEST_F(RestoredHold, WhoDiedIsChargedForTheTimeThatWasWatched) {
  step(ClientDisconnected{ClientId{10}});
  step.now += milliseconds(5);
  step(ClientGone{ClientId{10}});
  EXPECT_EQ(Charged(), milliseconds(55));
}

TEST(TokenScheduler, WhileItsLinkWasCutAClientsOwnMeasureCounts) {
  Driven step(0);
  step({}, PodSet{PodId{1}, Spec(50)});
  step({}, ClientAttached{ClientId{1}, PodId{1}});
  step({}, ClientReport{ClientId{1}, 1, Phase::kWaiting, 0, 0});
  step(milliseconds(1), ClientReport{ClientId{1}, 2, Phase::kHolding, 1, 1});
  step(milliseconds(3), ClientDisconnected{ClientId{1}, step.now + milliseconds(3)});
  step(milliseconds(500), ClientAttached{ClientId{1}, PodId{1}});
  // Two closing tokens may be on their way; it has seen them.
  step({}, ClientReport{ClientId{1}, 3, Phase::kIdle, 1, 9, Duration(0), milliseconds(6)});
  EXPECT_FALSE(step.scheduler.holder());
  EXPECT_EQ(step.scheduler.Status(step.now)[0].held, milliseconds(6));
}

TEST(TokenScheduler, WhoClosesItsOwnSocketHoldsUntilItIsSeenToDrain) {
  Driven step(0);
  step({}, PodSet{PodId{1}, Spec(20)});
  step({}, ClientAttached{ClientId{1}, PodId{1}});
  step({}, ClientReport{ClientId{1}, 1, Phase::kWaiting, 0, 0});
  step(milliseconds(1), ClientDisconnected{ClientId{1}});
  step(milliseconds(1'000), ClientAttached{ClientId{1}, PodId{1}});
  step({}, ClientReport{ClientId{1}, 2, Phase::kIdle, 1, 9, Duration(0), Duration(0)});
  EXPECT_FALSE(step.scheduler.holder());
  EXPECT_EQ(step.scheduler.Status(step.now)[0].held, milliseconds(1'001));
}

TEST(TokenScheduler, AClaimCountsOnlyUntilSomebodyWatchesAgain) {
  Driven step(0);
  step({}, PodSet{PodId{1}, Spec(20)});
  step({}, ClientAttached{ClientId{1}, PodId{1}});
  step({}, ClientReport{ClientId{1}, 1, Phase::kWaiting, 0, 0});
  const Instant lost = step.now;
  step(milliseconds(500), ClientDisconnected{ClientId{1}, lost});
  // Its node is back; it takes its time to come back itself.
  step(seconds(10), ClientAttached{ClientId{1}, PodId{1}});
  step({}, ClientReport{ClientId{1}, 2, Phase::kIdle, 1, 9, Duration(0), Duration(0)});
  EXPECT_FALSE(step.scheduler.holder());
  EXPECT_EQ(step.scheduler.Status(step.now)[0].held, seconds(9));
}

TEST(TokenScheduler, WhatWasLostWithItsRelayItHoldsFromWhenItIsSentAgain) {
  Driven step(0);
  step({}, PodSet{PodId{1}, Spec(50)});
  step({}, ClientAttached{ClientId{1}, PodId{1}});
  step({}, ClientReport{ClientId{1}, 1, Phase::kWaiting, 0, 0});  // the grant is sent, and lost
  step(milliseconds(30), ClientDisconnected{ClientId{1}, step.now});
  step(milliseconds(20), ClientAttached{ClientId{1}, PodId{1}});
  step({}, ClientReport{ClientId{1}, 2, Phase::kWaiting, 0, 0});
  EXPECT_EQ(step.scheduler.holder(), PodId{1});
  step(milliseconds(1), ClientReport{ClientId{1}, 3, Phase::kHolding, 1, step.Rev(1)});
  step(milliseconds(4), ClientReport{ClientId{1}, 4, Phase::kIdle, 1, step.Rev(1)});
  EXPECT_FALSE(step.scheduler.holder());
  EXPECT_EQ(step.scheduler.Status(step.now)[0].held, milliseconds(5));
}

// One of its two processes has drained and asks again. The other one may have, too.
TEST(TokenScheduler, NothingIsReopenedBeforeAllOfItsProcessesAreHeardOf) {
  Driven step(0);
  step({}, PodSet{PodId{1}, Spec(50)});
  for (const uint64_t c : {1, 2}) step({}, ClientAttached{ClientId{c}, PodId{1}});
  for (const uint64_t c : {1, 2}) step({}, ClientReport{ClientId{c}, 1, Phase::kWaiting, 0, 0});
  const Instant lost = step.now + milliseconds(1);
  step(milliseconds(1), ClientReport{ClientId{1}, 2, Phase::kHolding, 1, 1});
  step({}, ClientReport{ClientId{2}, 2, Phase::kHolding, 1, 1});
  for (const uint64_t c : {1, 2}) step({}, ClientDisconnected{ClientId{c}, lost});
  step(milliseconds(800), Tick{});
  for (const uint64_t c : {1, 2}) step({}, ClientAttached{ClientId{c}, PodId{1}});
  const uint64_t rev = step.Rev(1);
  step({}, ClientReport{ClientId{1}, 3, Phase::kWaiting, 1, rev, Duration(0), milliseconds(3)});
  step(milliseconds(20), Tick{});
  step({},
       ClientReport{ClientId{2}, 3, Phase::kIdle, 1, step.Rev(2), Duration(0), milliseconds(3)});
  EXPECT_LE(step.scheduler.Status(step.now)[0].held, milliseconds(5));
}

TEST(TokenScheduler, WhoNamesATokenThatNobodyWasSentHasNotDrained) {
  Driven step(0);
  step({}, PodSet{PodId{1}, Spec(20)});
  step({}, ClientAttached{ClientId{1}, PodId{1}});
  step({}, ClientReport{ClientId{1}, 1, Phase::kWaiting, 0, 0});
  step(milliseconds(800), ClientDisconnected{ClientId{1}, step.now});
  step({}, ClientAttached{ClientId{1}, PodId{1}});
  step({}, ClientReport{ClientId{1}, 2, Phase::kIdle, 2, 1, Duration(0), Duration(0)});
  EXPECT_EQ(step.scheduler.holder(), PodId{1});
  step({}, ClientReport{ClientId{1}, 3, Phase::kIdle, 1, step.Rev(1) + 1});
  EXPECT_EQ(step.scheduler.holder(), PodId{1}) << "nor was it sent this word about it";
  step({}, ClientReport{ClientId{1}, 4, Phase::kIdle, 1, step.Rev(1)});
  EXPECT_FALSE(step.scheduler.holder());
}

TEST(TokenScheduler, WorkThatRanWithoutATokenDrainsBeforeAnybodyIsGranted) {
  Driven step(0);
  TokenScheduler& scheduler = step.scheduler;
  step(PodSet{PodId{1}, Spec(50)});
  step(PodSet{PodId{2}, Spec(50)});
  step(ClientAttached{ClientId{10}, PodId{1}});
  step(ClientReport{ClientId{10}, 1, Phase::kDraining, 0, 0, Duration(0)});
  step(ClientAttached{ClientId{20}, PodId{2}});
  step(ClientReport{ClientId{20}, 1, Phase::kWaiting, 0, 0, Duration(0)});
  EXPECT_EQ(scheduler.holder(), PodId{1});
  step(ClientReport{ClientId{10}, 2, Phase::kIdle, 0, 0, Duration(0)});
  EXPECT_EQ(scheduler.holder(), PodId{2});
}

TEST(TokenScheduler, ATenantThatClaimsToHoldWhatItWasNotGrantedStopsNobody) {
  Driven step(0);
  TokenScheduler& scheduler = step.scheduler;
  step(PodSet{PodId{1}, Spec(50)});
  step(PodSet{PodId{2}, Spec(50)});
  step(ClientAttached{ClientId{10}, PodId{1}});
  step(ClientAttached{ClientId{20}, PodId{2}});
  step(ClientReport{ClientId{10}, 1, Phase::kIdle, 0, 0, Duration(0)});
  step(ClientReport{ClientId{10}, 2, Phase::kHolding, 7, 1, Duration(0)});
  step(ClientReport{ClientId{20}, 1, Phase::kWaiting, 0, 0, Duration(0)});
  EXPECT_FALSE(scheduler.holder()) << "for it may be true";
  step(SchedulerOptions{}.drain_timeout, Tick{});
  EXPECT_EQ(scheduler.holder(), PodId{2}) << "but not for ever";
  EXPECT_LT(scheduler.epoch(), 10u);
}

TEST(TokenScheduler, FalseClaimsCostTheOthersAHundredthOfTheTime) {
  Driven step(0);
  step(PodSet{PodId{1}, Spec(50)});
  step(PodSet{PodId{2}, Spec(50)});
  step(ClientAttached{ClientId{10}, PodId{1}});
  step(ClientAttached{ClientId{20}, PodId{2}});
  step(ClientReport{ClientId{20}, 1, Phase::kWaiting, 0, 0});
  step(ClientReport{ClientId{10}, 1, Phase::kIdle, 0, 0});
  const Instant start = step.now;
  Duration blocked{0};
  for (uint64_t seq = 2; step.now < start + seconds(1000); seq += 2) {
    step({}, ClientReport{ClientId{10}, seq, Phase::kHolding, 1000, 1});
    // The other drains, and wants more.
    step({},
         ClientReport{ClientId{20}, seq, Phase::kWaiting, step.scheduler.epoch(), step.Rev(20)});
    if (!step.scheduler.holder()) blocked += milliseconds(100);
    step(milliseconds(100), Tick{});
    step({}, ClientReport{ClientId{10}, seq + 1, Phase::kIdle, 1000, 1});
  }
  EXPECT_GT(blocked, seconds(10)) << "for they may be true";
  EXPECT_LT(blocked, seconds(21));
}

TEST(TokenScheduler, NoClaimMovesTheEpochsByMoreThanATokenOfItsOwn) {
  for (const uint64_t claimed : {uint64_t{7}, (uint64_t{1} << 62) - 1, ~uint64_t{0}}) {
    Driven step(5);
    TokenScheduler& scheduler = step.scheduler;
    step(PodSet{PodId{1}, Spec(50)});
    step(PodSet{PodId{2}, Spec(50)});
    step(ClientAttached{ClientId{10}, PodId{1}});
    step(ClientAttached{ClientId{20}, PodId{2}});
    step(ClientReport{ClientId{10}, 1, Phase::kHolding, claimed, 1, Duration(0)});
    EXPECT_EQ(scheduler.epoch(), 6u) << "this is stored, and outlives the daemon";
    step(ClientReport{ClientId{10}, 2, Phase::kIdle, claimed, 1, Duration(0)});
    step(ClientReport{ClientId{20}, 1, Phase::kWaiting, 0, 0, Duration(0)});
    EXPECT_EQ(scheduler.holder(), PodId{2});
    EXPECT_EQ(scheduler.epoch(), 7u);
  }
}

TEST(TokenScheduler, EpochsGoOnAboveAVeryHighOneAndBeginWhereTheyAreToldTo) {
  for (const auto& [last, first, granted] :
       {std::tuple{(uint64_t{1} << 62) - 1, uint64_t{1'000}, uint64_t{1} << 62},
        std::tuple{uint64_t{41}, uint64_t{1'000}, uint64_t{1'000}}}) {
    TokenScheduler scheduler(SchedulerOptions(), last, first);
    Effects effects;
    const Instant now{seconds(1)};
    scheduler.Step(now, PodSet{PodId{1}, Spec(50)}, effects);
    scheduler.Step(now, ClientAttached{ClientId{10}, PodId{1}}, effects);
    EXPECT_EQ(scheduler.epoch(), last) << "a hold of before is still known by it";
    scheduler.Step(now, ClientReport{ClientId{10}, 1, Phase::kWaiting, 0, 0}, effects);
    EXPECT_EQ(scheduler.epoch(), granted);
  }
}

TEST(TokenScheduler, ProcessesThatTakeTurnsUnderOneTokenAreChargedForAllOfIt) {
  Driven step(0);
  const auto rev_of = [&](uint64_t client, uint64_t fallback) {
    for (const Effect& e : step.effects) {
      const auto* send = std::get_if<SendToken>(&e);
      if (send != nullptr && send->client.value == client) return send->rev;
    }
    return fallback;
  };
  step({}, PodSet{PodId{1}, Spec(50)});
  for (uint64_t c = 1; c <= 2; ++c) step({}, ClientAttached{ClientId{c}, PodId{1}});
  step({}, ClientReport{ClientId{1}, 1, Phase::kWaiting, 0, 0, Duration(0)});
  uint64_t rev = rev_of(1, 1);
  step(milliseconds(1), ClientReport{ClientId{2}, 1, Phase::kWaiting, 0, 0, Duration(0)});
  const uint64_t rev2 = rev_of(2, 1);
  step(milliseconds(3), ClientReport{ClientId{1}, 2, Phase::kIdle, 1, rev, milliseconds(4)});
  step(milliseconds(2), ClientReport{ClientId{2}, 2, Phase::kIdle, 1, rev2, milliseconds(5)});
  EXPECT_FALSE(step.scheduler.holder());
  EXPECT_EQ(step.scheduler.Status(step.now)[0].held, milliseconds(6));
}

// Two processes of a pod. The second is granted its part 1 ms after the first, and its Token takes
// `later` longer to where they are measured; it drains 10 ms after that.
Duration ChargedForTwo(Duration later, bool pod_is_measured) {
  Driven step(0);
  step({}, PodSet{PodId{1}, Spec(50)});
  for (uint64_t c = 1; c <= 2; ++c) step({}, ClientAttached{ClientId{c}, PodId{1}});
  step({}, ClientReport{ClientId{1}, 1, Phase::kWaiting, 0, 0});
  step(milliseconds(1), ClientReport{ClientId{2}, 1, Phase::kWaiting, 0, 0});
  ClientReport drained{ClientId{1}, 2, Phase::kIdle, 1, step.Rev(1), milliseconds(3)};
  if (pod_is_measured) drained.pod_held = milliseconds(3);
  step(milliseconds(2), drained);
  drained = {ClientId{2}, 2, Phase::kIdle, 1, step.Rev(2), milliseconds(10)};
  if (pod_is_measured) drained.pod_held = milliseconds(11) + later;
  step(milliseconds(9) + later, drained);
  EXPECT_FALSE(step.scheduler.holder());
  return step.scheduler.Status(step.now)[0].held;
}

TEST(TokenScheduler, APodIsChargedForTheTimeOneOfItsTokensIsOnItsWayWhileAnotherProcessHolds) {
  EXPECT_EQ(ChargedForTwo(milliseconds(0), true), milliseconds(11));
  EXPECT_EQ(ChargedForTwo(milliseconds(5), true), milliseconds(16));
  EXPECT_EQ(ChargedForTwo(milliseconds(5), false), milliseconds(11)) << "its relay is of before";
}

TEST(TokenScheduler, NoMeasureOfAPodIsLongerThanItsToken) {
  Driven step(0);
  step({}, PodSet{PodId{1}, Spec(50)});
  step({}, ClientAttached{ClientId{1}, PodId{1}});
  step({}, ClientReport{ClientId{1}, 1, Phase::kWaiting, 0, 0});
  ClientReport drained{ClientId{1}, 2, Phase::kIdle, 1, 1, milliseconds(4)};
  drained.pod_held = seconds(9);
  step(milliseconds(5), drained);
  EXPECT_EQ(step.scheduler.Status(step.now)[0].held, milliseconds(5));
}

// Beside the process of RestoredHold a second one of its pod held, from 20 ms to 70 ms after the
// grant. The first held for 20 ms, was let on by the same token at 60 ms, and drained at 90 ms: so
// one of them held all the time.
class TwoRestoredHolds : public RestoredHold {
 protected:
  TwoRestoredHolds() {
    step(HolderRestored{ClientId{11}, PodId{1}, kEpoch, Instant(seconds(1)),
                        Instant(milliseconds(1020)), milliseconds(10)});
    step(ClientAttached{ClientId{11}, PodId{1}});
  }
  // Both say what they added up, and perhaps when they drained.
  void Drain(bool tell) {
    ClientReport first{ClientId{10}, ++seq, Phase::kIdle, kEpoch, 2, {}, milliseconds(50)};
    if (tell) first.drained_ago = step.now - Instant(milliseconds(1090));
    step(first);
    ClientReport second{ClientId{11}, 1, Phase::kIdle, kEpoch, 2, {}, milliseconds(50)};
    if (tell) second.drained_ago = step.now - Instant(milliseconds(1070));
    step(second);
    EXPECT_TRUE(Returned());
  }
};

TEST_F(TwoRestoredHolds, AreChargedForAGapInOneInWhichTheOtherHeld) {
  Drain(true);
  EXPECT_EQ(Charged(), milliseconds(90 - 10));
}

TEST_F(TwoRestoredHolds, AreChargedAsTheyAddItUpWhereTheirHooksAreOfBefore) {
  Drain(false);
  EXPECT_EQ(Charged(), milliseconds(70 - 10));
}

TEST_F(RestoredHold, IsChargedUntilItDrainedAsItsClientSays) {
  step(ClientReport{ClientId{10},
                    ++seq,
                    Phase::kWaiting,
                    kEpoch,
                    2,
                    {},
                    milliseconds(20),
                    {},
                    {},
                    step.now - Instant(milliseconds(1037))});
  EXPECT_EQ(Charged(), milliseconds(37 - 10)) << "with the gaps in what it held, once";
}

TEST_F(RestoredHold, NobodySaysThatItDrainedBeforeItWasSeenToHold) {
  step(ClientReport{ClientId{10}, ++seq, Phase::kWaiting, kEpoch, 2, {}, {}, {}, {}, seconds(9)});
  EXPECT_EQ(Charged(), Duration(0));
}

TEST(TokenScheduler, WhatASaidAgainStateTellsIsOlderByItsAge) {
  wire::State state;
  state.held_ns = 50;
  EXPECT_EQ(ReportOf(ClientId{1}, state, {}, seconds(1), 20).age, seconds(1));
  EXPECT_EQ(ReportOf(ClientId{1}, state, {}, seconds(1), 20).drained_ago, Duration(0));
  EXPECT_EQ(ReportOf(ClientId{1}, state, {}, seconds(1), 20).claimed, Duration(30));
  EXPECT_EQ(ReportOf(ClientId{1}, state, {}, seconds(1), 90).claimed, Duration(0));
  state.drained_ns = 5;
  EXPECT_EQ(ReportOf(ClientId{1}, state, {}, seconds(1), 20).drained_ago, Duration(5));
  state.drained_ns = ~uint64_t{0};
  EXPECT_GT(ReportOf(ClientId{1}, state, {}, Duration(0), 0).drained_ago, seconds(1));
}

}  // namespace
}  // namespace baton::scheduler
