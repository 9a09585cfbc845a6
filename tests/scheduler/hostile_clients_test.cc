// What a node measures of a client and lets through to it, and what a pod's clients gain by saying
// what is not so.
#include <gtest/gtest.h>

#include <string>

#include "scheduler/hold_meter.h"
#include "scheduler/relay_guard.h"
#include "scheduler/token_scheduler.h"
#include "tests/scheduler/driven.h"
#include "tests/scheduler/share_spec.h"

namespace baton::scheduler {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using wire::Phase;

wire::Token TokenOf(uint64_t epoch, uint64_t rev, Duration quota) {
  wire::Token token;
  token.epoch = epoch;
  token.rev = rev;
  token.quota_ns = static_cast<uint64_t>(Nanos(quota));
  return token;
}

wire::State StateOf(uint64_t seq, Phase phase, uint64_t epoch, uint64_t rev) {
  wire::State state;
  state.seq = seq;
  state.phase = phase;
  state.epoch = epoch;
  state.rev = rev;
  return state;
}

constexpr Duration kQuota = milliseconds(40);
Instant At(Duration d) { return Instant{} + d; }

TEST(HoldMeter, MeasuresFromTheGrantToTheWordThatItDrained) {
  HoldMeter meter;
  meter.Sent(At(milliseconds(100)), TokenOf(7, 1, kQuota));
  EXPECT_EQ(meter.Said(At(milliseconds(110)), StateOf(1, Phase::kHolding, 7, 1)), Duration(0));
  EXPECT_EQ(meter.Said(At(milliseconds(130)), StateOf(2, Phase::kWaiting, 7, 1)), milliseconds(30));
  EXPECT_EQ(meter.Said(At(milliseconds(150)), StateOf(3, Phase::kWaiting, 7, 1)), milliseconds(30))
      << "it has held nothing since";
}

TEST(HoldMeter, OnlyANewWordAboutExactlyTheNewestTokenEndsAHold) {
  HoldMeter meter;
  meter.Sent(At(milliseconds(0)), TokenOf(7, 1, kQuota));
  meter.Sent(At(milliseconds(20)), TokenOf(7, 2, kQuota));
  EXPECT_EQ(meter.Said(At(milliseconds(30)), StateOf(5, Phase::kIdle, 7, 1)), Duration(0));
  EXPECT_EQ(meter.Said(At(milliseconds(30)), StateOf(6, Phase::kIdle, 9, 9)), Duration(0));
  EXPECT_EQ(meter.Said(At(milliseconds(30)), StateOf(4, Phase::kIdle, 7, 2)), Duration(0)) << "old";
  EXPECT_EQ(meter.Said(At(milliseconds(90)), StateOf(7, Phase::kIdle, 7, 2)), milliseconds(90));
}

// What was sent ahead may have drained before it is known to have begun.
TEST(HoldMeter, WhatIsOverBeforeItIsPassedOnHasDrained) {
  HoldMeter meter;
  EXPECT_EQ(meter.Said(At(milliseconds(9)), StateOf(1, Phase::kIdle, 7, 1)), Duration(0));
  meter.Sent(At(milliseconds(10)), TokenOf(7, 1, kQuota));
  meter.Over(6, milliseconds(1));
  EXPECT_FALSE(meter.HasDrained(7, 1)) << "another's";
  meter.Over(7, milliseconds(1));
  EXPECT_TRUE(meter.HasDrained(7, 1));
  EXPECT_EQ(meter.Said(At(milliseconds(50)), StateOf(2, Phase::kIdle, 7, 1)), milliseconds(1));
}

TEST(HoldMeter, WhoTakesTooLongToAnswerAClosingWordHeldUntilThen) {
  HoldMeter meter;
  meter.Sent(At(seconds(0)), TokenOf(7, 1, kQuota));
  EXPECT_EQ(meter.Said(At(milliseconds(10)), StateOf(1, Phase::kIdle, 7, 1)), milliseconds(10));
  meter.Sent(At(milliseconds(20)), TokenOf(7, 2, Duration(0)));
  EXPECT_EQ(meter.Said(At(seconds(3)), StateOf(2, Phase::kIdle, 7, 2)), seconds(3));
}

// A daemon that was stopped may extend a token first, and then read that it had drained long
// before.
TEST(HoldMeter, WhatWasReadLateIsNotHeldUntilTheWordThatWasSentMeanwhile) {
  HoldMeter meter;
  PodMeter pod;
  const auto send = [&](Duration at, const wire::Token& token) {
    meter.Sent(At(at), token);
    pod.Sent(At(at), token);
  };
  send(milliseconds(0), TokenOf(7, 1, kQuota));
  send(milliseconds(1'000), TokenOf(7, 2, kQuota));
  EXPECT_EQ(pod.Said(At(milliseconds(10)), StateOf(1, Phase::kIdle, 7, 1), meter).held, Duration(0))
      << "it may launch again by the later word";
  const Measured measured =
      pod.Said(At(milliseconds(1'005)), StateOf(2, Phase::kIdle, 7, 2), meter);
  EXPECT_EQ(measured.held, milliseconds(15));
  EXPECT_EQ(measured.pod_held, milliseconds(15));
  // Nothing of it is left for the next token.
  send(milliseconds(2'000), TokenOf(8, 1, kQuota));
  EXPECT_EQ(meter.Said(At(milliseconds(2'030)), StateOf(3, Phase::kIdle, 8, 1)), milliseconds(30));

  // It had launched again by the same word, before the later one.
  HoldMeter busy;
  busy.Sent(At(milliseconds(0)), TokenOf(7, 1, kQuota));
  busy.Sent(At(milliseconds(1'000)), TokenOf(7, 2, kQuota));
  busy.Said(At(milliseconds(10)), StateOf(1, Phase::kIdle, 7, 1));
  busy.Said(At(milliseconds(20)), StateOf(2, Phase::kHolding, 7, 1));
  EXPECT_EQ(busy.Said(At(milliseconds(1'005)), StateOf(3, Phase::kIdle, 7, 2)),
            milliseconds(1'005));
  // What is said after the word is about it.
  HoldMeter late;
  late.Sent(At(milliseconds(0)), TokenOf(7, 1, kQuota));
  late.Sent(At(milliseconds(1'000)), TokenOf(7, 2, kQuota));
  late.Said(At(milliseconds(1'000)), StateOf(1, Phase::kIdle, 7, 1));
  EXPECT_EQ(late.Said(At(milliseconds(1'005)), StateOf(2, Phase::kIdle, 7, 2)),
            milliseconds(1'005));
}

TEST(HoldMeter, AGrantThatWasKeptFromAClientIsNoHold) {
  HoldMeter meter;
  meter.Kept(TokenOf(7, 1, kQuota));
  meter.Sent(At(milliseconds(900)), TokenOf(7, 2, Duration(0)));
  EXPECT_EQ(meter.Said(At(milliseconds(901)), StateOf(1, Phase::kWaiting, 7, 2)), milliseconds(1))
      << "0 would mean that nobody knows, and all of the token would be charged";
  // One of before the node's time is not known.
  HoldMeter other;
  other.Sent(At(milliseconds(900)), TokenOf(7, 2, Duration(0)));
  EXPECT_EQ(other.Said(At(milliseconds(901)), StateOf(1, Phase::kWaiting, 7, 2)), Duration(0));
}

// On a link that was cut. A relay that had passed the grant of an earlier token on knows that it
// did not pass this one's; one that was started meanwhile does not, nor where it was passed ahead.
TEST(HoldMeter, AGrantThatWasLostOnItsWayIsNoHold) {
  PodMeter gpu;
  gpu.Sent(At(milliseconds(0)), TokenOf(6, 2, kQuota));
  EXPECT_FALSE(gpu.watches(7)) << "7 may have been sent before that word about 6";
  gpu.Sent(At(milliseconds(0)), TokenOf(7, 1, kQuota));
  EXPECT_TRUE(gpu.watches(8));
  EXPECT_FALSE(gpu.watches(7));
  for (const Duration quota : {Duration(0), Duration(kQuota)}) {
    HoldMeter meter;
    meter.Sent(At(milliseconds(900)), TokenOf(8, 3, quota), true);
    EXPECT_EQ(meter.Said(At(milliseconds(901)), StateOf(1, Phase::kWaiting, 8, 3)),
              milliseconds(1));
    HoldMeter ahead;
    ahead.SentAhead(TokenOf(8, 1, kQuota));
    ahead.Sent(At(milliseconds(900)), TokenOf(8, 3, quota), true);
    EXPECT_EQ(ahead.Said(At(milliseconds(901)), StateOf(1, Phase::kWaiting, 8, 3)), Duration(0));
  }
  HoldMeter claims;
  claims.Sent(At(milliseconds(900)), TokenOf(1'000, kRevOfStops, Duration(0)), true);
  claims.Sent(At(milliseconds(910)), TokenOf(8, 1, kQuota), true);
  EXPECT_EQ(claims.Said(At(milliseconds(915)), StateOf(1, Phase::kIdle, 8, 1)), milliseconds(5))
      << "a number that a client made up stands in no later token's way";
}

TEST(PodMeter, MeasuresFromTheFirstTokenThatAClientOfThePodWasPassed) {
  PodMeter pod;
  HoldMeter first, second;
  const auto send = [&](HoldMeter& client, Duration at, const wire::Token& token) {
    client.Sent(At(at), token);
    pod.Sent(At(at), token);
  };
  send(first, milliseconds(100), TokenOf(7, 1, kQuota));
  send(second, milliseconds(103), TokenOf(7, 1, kQuota));
  send(second, milliseconds(104), TokenOf(7, 2, kQuota));
  Measured measured = pod.Said(At(milliseconds(110)), StateOf(1, Phase::kIdle, 7, 1), first);
  EXPECT_EQ(measured.held, milliseconds(10));
  EXPECT_EQ(measured.pod_held, milliseconds(10));
  measured = pod.Said(At(milliseconds(130)), StateOf(1, Phase::kHolding, 7, 2), second);
  EXPECT_EQ(measured.held, Duration(0)) << "it ends no hold";
  EXPECT_EQ(measured.pod_held, milliseconds(30)) << "so far";
  for (const uint64_t seq : {2, 3}) {
    measured = pod.Said(At(milliseconds(130 + seq)), StateOf(seq, Phase::kIdle, 7, 2), second);
    EXPECT_EQ(measured.held, milliseconds(29));
    EXPECT_EQ(measured.pod_held, milliseconds(32));
  }
  send(second, milliseconds(200), TokenOf(8, 1, kQuota));
  measured = pod.Said(At(milliseconds(201)), StateOf(2, Phase::kIdle, 7, 1), first);
  EXPECT_EQ(measured.pod_held, Duration(0)) << "the token of before is nobody's any more";
  measured = pod.Said(At(milliseconds(205)), StateOf(4, Phase::kIdle, 8, 1), second);
  EXPECT_EQ(measured.pod_held, milliseconds(5));
}

TEST(PodMeter, AClientWhoseGrantWasKeptFromItDoesNotMakeItsPodsHoldLonger) {
  PodMeter pod;
  HoldMeter first, second;
  first.Sent(At(milliseconds(100)), TokenOf(7, 1, kQuota));
  pod.Sent(At(milliseconds(100)), TokenOf(7, 1, kQuota));
  second.Kept(TokenOf(7, 1, kQuota));
  second.Sent(At(milliseconds(900)), TokenOf(7, 2, Duration(0)));
  pod.Sent(At(milliseconds(900)), TokenOf(7, 2, Duration(0)));
  const wire::State state = StateOf(1, Phase::kIdle, 7, 2);
  const Measured measured = pod.Said(At(milliseconds(901)), state, second);
  EXPECT_EQ(measured.held, milliseconds(1));
  EXPECT_EQ(measured.pod_held, Duration(0));
}

using Verdict = RelayGuard::Verdict;

// Two pods with a client each, which the daemon knows.
struct Guarded {
  explicit Guarded(Duration drain_timeout = seconds(10)) : guard(drain_timeout) {
    Come(1, "one");
    Come(2, "two");
  }
  void ComeBack(uint64_t client, const std::string& pod) {
    guard.Disconnect(client);
    Come(client, pod);
  }
  void Come(uint64_t client, const std::string& pod) {
    guard.Attach(client, pod);
    guard.Served(now, client);
  }
  // Whether it is passed on.
  bool Say(uint64_t client, Phase phase, uint64_t epoch, uint64_t rev) {
    const bool passed = guard.Said(now, client, StateOf(++seq, phase, epoch, rev));
    EXPECT_EQ(guard.Invariants(now), std::nullopt);
    return passed;
  }
  bool Allows(uint64_t client, uint64_t epoch, Duration quota = kQuota) {
    return Judge(client, TokenOf(epoch, 1, quota)) == Verdict::kPass;
  }
  Verdict Judge(uint64_t client, const wire::Token& token) {
    return guard.Judge(now, client, token);
  }
  RelayGuard guard;
  Instant now{seconds(100)};
  uint64_t seq = 0;
};

TEST(RelayGuard, OnePodAtATimeAndNoOldGrant) {
  Guarded g;
  EXPECT_TRUE(g.Allows(1, 5));
  EXPECT_FALSE(g.Allows(2, 6)) << "the other has not drained";
  EXPECT_TRUE(g.Allows(2, 4, Duration(0))) << "a gate may always be closed";
  g.Say(1, Phase::kIdle, 4, 1);
  EXPECT_FALSE(g.Allows(2, 6)) << "what it said was about an earlier token";
  g.Say(1, Phase::kIdle, 5, 1);
  EXPECT_TRUE(g.Allows(2, 6));
  g.Say(2, Phase::kIdle, 6, 1);
  EXPECT_FALSE(g.Allows(1, 5)) << "an old grant";
  g.Come(3, "three");
  EXPECT_FALSE(g.Allows(3, 5)) << "an old grant for one that was told nothing";
}

TEST(RelayGuard, WhoNamesATokenFarAheadStillGetsItsTokens) {
  Guarded g;
  g.Say(1, Phase::kWaiting, 1'000'000, 1);
  EXPECT_TRUE(g.Allows(1, 5));
}

// It was stopped while its token was extended, and reads one word after the other when it goes on.
// A daemon that was started anew meanwhile does not know how far that went.
TEST(RelayGuard, WhatAClientSaidBeforeItsTokenWasExtendedIsNotPassedOn) {
  Guarded g;
  EXPECT_EQ(g.Judge(1, TokenOf(5, 8, kQuota)), Verdict::kPass);
  EXPECT_EQ(g.Judge(1, TokenOf(5, 9, kQuota)), Verdict::kPass);
  EXPECT_EQ(g.Judge(1, TokenOf(5, 2, Duration(0))), Verdict::kPass) << "the new daemon's";
  EXPECT_FALSE(g.Say(1, Phase::kWaiting, 5, 7)) << "it has two extensions to read yet";
  EXPECT_FALSE(g.Say(1, Phase::kHolding, 5, 8));
  EXPECT_FALSE(g.Allows(2, 6)) << "it has not drained";
  EXPECT_TRUE(g.Say(1, Phase::kHolding, 5, 9));
  EXPECT_TRUE(g.Say(1, Phase::kWaiting, 5, 9));
  EXPECT_TRUE(g.Allows(2, 6));
}

TEST(RelayGuard, AWordThatClosesAGateOvertakesNothing) {
  Guarded g;
  EXPECT_TRUE(g.Allows(1, 5));
  EXPECT_EQ(g.Judge(1, TokenOf(5, 2, Duration(0))), Verdict::kPass);
  EXPECT_TRUE(g.Say(1, Phase::kWaiting, 5, 1)) << "who had drained before has";
  EXPECT_TRUE(g.Allows(2, 6));
}

TEST(RelayGuard, WhatAnOldConnectionLostIsNotWaitedFor) {
  Guarded g;
  EXPECT_TRUE(g.Allows(1, 5));
  EXPECT_EQ(g.Judge(1, TokenOf(5, 2, kQuota)), Verdict::kPass);
  g.Come(1, "one");
  EXPECT_FALSE(g.Say(1, Phase::kIdle, 5, 1)) << "it attaches anew, and has lost nothing";
  g.ComeBack(1, "one");
  EXPECT_TRUE(g.Say(1, Phase::kIdle, 5, 1));
  EXPECT_TRUE(g.Allows(2, 6));
}

// The client ignores it, so it would never say that it has drained.
TEST(RelayGuard, AGrantThatIsRepeatedIsDropped) {
  Guarded g;
  EXPECT_TRUE(g.Allows(1, 5));
  g.Say(1, Phase::kWaiting, 5, 1);
  EXPECT_EQ(g.Judge(1, TokenOf(5, 1, kQuota)), Verdict::kDrop);
  EXPECT_TRUE(g.Allows(2, 6)) << "nobody holds";
  g.Say(2, Phase::kWaiting, 6, 1);
  g.ComeBack(2, "two");
  g.Say(2, Phase::kWaiting, 6, 1);
  EXPECT_EQ(g.Judge(2, TokenOf(6, 1, kQuota)), Verdict::kDrop) << "it came by the old connection";
  EXPECT_TRUE(g.Allows(1, 7));
}

// The client ignores it, so it would never say that it has drained.
TEST(RelayGuard, AGrantThatANewerWordOvertookIsDropped) {
  Guarded g;
  EXPECT_TRUE(g.Allows(2, 4));
  EXPECT_EQ(g.Judge(1, TokenOf(5, 2, Duration(0))), Verdict::kPass);
  g.Say(1, Phase::kIdle, 5, 2);
  g.Say(2, Phase::kIdle, 4, 1);
  EXPECT_EQ(g.Judge(1, TokenOf(5, 1, kQuota)), Verdict::kDrop);
  EXPECT_TRUE(g.Allows(2, 6)) << "nobody holds";
  // What stops a claim says nothing about the tokens that come.
  EXPECT_EQ(g.Judge(1, TokenOf(7, ~uint64_t{0}, Duration(0))), Verdict::kPass);
  g.Say(2, Phase::kIdle, 6, 1);
  EXPECT_TRUE(g.Allows(1, 7));
}

// It takes and returns one token, and then says over and over that it holds.
TEST(RelayGuard, FalseClaimsCostTheOthersAHundredthOfTheTime) {
  Guarded g;
  EXPECT_TRUE(g.Allows(1, 5));
  g.Say(1, Phase::kIdle, 5, 1);
  int dropped = 0;
  uint64_t epoch = 6;
  for (int i = 0; i < 100'000; ++i, g.now += milliseconds(10)) {
    g.ComeBack(1, "one");
    g.Say(1, Phase::kHolding, 3, 1);
    if (i % 10 == 9) g.Say(1, Phase::kIdle, 3, 1);
    g.now += milliseconds(i % 7);
    if (g.Allows(2, epoch)) {
      g.Say(2, Phase::kWaiting, epoch++, 1);
    } else {
      ++dropped;
    }
  }
  EXPECT_GT(dropped, 500) << "for they may be true";
  EXPECT_LT(dropped, 2'200) << "10 s, and 1 % of 1 300 s, of 100 000 grants in all";
}

TEST(RelayGuard, AClaimEndsByTheWordOfWhoMadeIt) {
  Guarded g;
  EXPECT_TRUE(g.Allows(1, 5));
  g.Say(1, Phase::kIdle, 5, 1);
  g.ComeBack(1, "one");
  g.Say(1, Phase::kHolding, 3, 1);
  EXPECT_FALSE(g.Allows(2, 6));
  g.Say(1, Phase::kIdle, 3, 1);
  EXPECT_TRUE(g.Allows(2, 6));
}

// A client attaches again and says that it holds what it was not granted, drains, and does so
// again, while the GPU is kept for a gang that waits for another of its GPUs.
TEST(TokenScheduler, ClaimsAreRationedWhileAGangsReservationWaits) {
  Driven step(0);
  TokenScheduler& scheduler = step.scheduler;
  Instant& now = step.now;
  step(PodSet{PodId{1}, Spec(50), true});
  step(PodSet{PodId{2}, Spec(1, 1)});
  step(ClientAttached{ClientId{10}, PodId{1}});
  step(ClientReport{ClientId{10}, 1, Phase::kWaiting, 0, 0});
  step(GangStep{PodId{1}, GangStep::Do::kWait});
  step(GangStep{PodId{1}, GangStep::Do::kReserve});
  const Instant start = now;
  Duration claimed{0};
  for (uint64_t seq = 1; now < start + seconds(1'000); seq += 2) {
    step(ClientAttached{ClientId{20}, PodId{2}});
    step(ClientReport{ClientId{20}, seq, Phase::kHolding, 1'000, 1});
    if (!scheduler.Gang(PodId{1}).free) claimed += milliseconds(100);
    now += milliseconds(100);
    step(ClientReport{ClientId{20}, seq + 1, Phase::kIdle, 1'000, 1});
    EXPECT_TRUE(scheduler.Gang(PodId{1}).free);
  }
  EXPECT_GT(claimed, seconds(10)) << "for they may be true";
  EXPECT_LT(claimed, seconds(21));
  const auto status = scheduler.Status(now);
  EXPECT_GE(status[1].held, claimed - seconds(1)) << "and they are charged";
}

TEST(TokenScheduler, WhoKeepsAFreeGpuByAClaimIsChargedForIt) {
  Driven step(0);
  TokenScheduler& scheduler = step.scheduler;
  Instant& now = step.now;
  step(PodSet{PodId{1}, Spec(50)});
  step(PodSet{PodId{2}, Spec(50)});
  step(ClientAttached{ClientId{10}, PodId{1}});
  step(ClientAttached{ClientId{20}, PodId{2}});
  step(ClientReport{ClientId{20}, 1, Phase::kIdle, 0, 0});
  step(ClientReport{ClientId{10}, 1, Phase::kWaiting, 0, 0});
  step(ClientReport{ClientId{20}, 2, Phase::kHolding, 1'000, 1});
  now += milliseconds(5);
  step(ClientReport{ClientId{10}, 2, Phase::kWaiting, scheduler.epoch(), 1, milliseconds(5)});
  ASSERT_FALSE(scheduler.holder()) << "it may be true";
  now += milliseconds(700);
  step(ClientReport{ClientId{20}, 3, Phase::kIdle, 1'000, 1});
  EXPECT_EQ(scheduler.holder(), PodId{1});
  EXPECT_EQ(scheduler.Status(now)[1].held, milliseconds(700));
}

}  // namespace
}  // namespace baton::scheduler
