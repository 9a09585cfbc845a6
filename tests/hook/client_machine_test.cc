// The client's laws, first as a table of what each event does, then as properties over lossy,
// repeated and reordered frames.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <optional>

#include "tests/hook/client_laws.h"

namespace baton::hook {
namespace {

TEST_F(ClientLaws, SaysNothingBeforeItIsAttached) {
  EXPECT_FALSE(Park().send);
  EXPECT_EQ(machine_.phase(), Phase::kWaiting);
  const Effects e = Attach();
  EXPECT_TRUE(e.send);
  EXPECT_EQ(e.state.phase, Phase::kWaiting);
}

TEST_F(ClientLaws, AParkedLaunchWaitsAndATokenOpens) {
  Attach();
  EXPECT_FALSE(last_.open);
  Effects e = Park();
  EXPECT_EQ(e.state.phase, Phase::kWaiting);
  EXPECT_FALSE(e.open);
  now_ += milliseconds(7);
  e = Token(1, 1, kQuota);
  EXPECT_TRUE(e.open);
  EXPECT_TRUE(e.send);
  EXPECT_EQ(e.state.phase, Phase::kHolding);
  EXPECT_EQ(e.state.waited_ns, 7'000'000u);
}

TEST_F(ClientLaws, AnIdleClientTakesNoTokenAndAnswers) {
  Attach();
  const Effects e = Token(4, 2, kQuota);
  EXPECT_FALSE(e.open);
  EXPECT_TRUE(e.send);
  EXPECT_EQ(e.state.phase, Phase::kIdle);
  EXPECT_EQ(e.state.epoch, 4u);
  EXPECT_EQ(e.state.rev, 2u);
}

TEST_F(ClientLaws, AnOlderOrRepeatedTokenChangesNothing) {
  Hold();
  EXPECT_FALSE(Token(1, 1, seconds(9)).send);
  EXPECT_FALSE(Token(0, 7, Duration(0)).send);
  EXPECT_EQ(machine_.deadline(), now_ + kQuota);
  EXPECT_TRUE(machine_.open());
}

TEST_F(ClientLaws, TheGateClosesAtTheDeadlineAndReturnsAfterTheDrain) {
  Hold();
  Effects e = Pass(seconds(1), true);
  EXPECT_EQ(machine_.phase(), Phase::kDraining);
  EXPECT_EQ(now_ - InstantFromNanos(1'000'000'000'000), kQuota);
  EXPECT_FALSE(e.open);
  EXPECT_TRUE(e.watch);
  now_ += milliseconds(2);
  e = Do(EventKind::kFinished);
  EXPECT_EQ(e.state.phase, Phase::kIdle);
  EXPECT_EQ(e.state.held_ns, 22'000'000u);
  EXPECT_FALSE(e.watch);
}

TEST_F(ClientLaws, ItWaitsAgainWhenAThreadIsParkedOrPacedAtTheEndOfTheDrain) {
  for (const bool paced : {false, true}) {
    ClientLaws::machine_ = ClientMachine(ClientOptions{}, now_);
    seen_ = {};
    Hold();
    Pass(seconds(1), true);
    (paced ? seen_.pacing : seen_.parked) = 1;
    Do(EventKind::kParked);
    EXPECT_EQ(machine_.phase(), Phase::kDraining);
    EXPECT_EQ(Do(EventKind::kFinished).state.phase, Phase::kWaiting);
  }
}

TEST_F(ClientLaws, TheGateClosesEarlyByTheBacklogButNotBeforeHalfOfTheQuota) {
  Hold();
  const Instant begin = now_;
  seen_.backlog = milliseconds(3);
  Pass(seconds(1), true);
  EXPECT_EQ(now_ - begin, kQuota - milliseconds(3));

  machine_ = ClientMachine(ClientOptions{}, now_);
  seen_ = {};
  Hold();
  const Instant again = now_;
  seen_.backlog = seconds(1);
  Pass(seconds(2), true);
  EXPECT_EQ(now_ - again, kQuota / 2);
}

TEST_F(ClientLaws, AnExtensionMovesTheDeadlineAndReopensADrain) {
  Hold();
  now_ += milliseconds(10);
  Token(1, 2, kQuota);
  EXPECT_EQ(machine_.deadline(), now_ + kQuota);
  Pass(seconds(1), true);
  ASSERT_EQ(machine_.phase(), Phase::kDraining);
  const Effects e = Token(1, 3, kQuota);
  EXPECT_EQ(e.state.phase, Phase::kHolding);
  EXPECT_TRUE(e.open);
  EXPECT_FALSE(e.watch);
}

TEST_F(ClientLaws, ARevocationClosesAtOnce) {
  Hold();
  const Effects e = Token(1, 2, Duration(0));
  EXPECT_EQ(e.state.phase, Phase::kDraining);
  EXPECT_FALSE(e.open);
}

TEST_F(ClientLaws, AWaitingClientJoinsItsPodsTokenAgain) {
  Hold();
  Pass(seconds(1), true);
  seen_.parked = 1;
  ASSERT_EQ(Do(EventKind::kFinished).state.phase, Phase::kWaiting);
  EXPECT_TRUE(Token(1, 2, kQuota).open);
}

TEST_F(ClientLaws, IdleTimeCountsFromTheEndOfTheWork) {
  Hold(seconds(60));
  Pass(milliseconds(10), true);
  // A long kernel: the gate closes to look, the GPU still works, and it opens again at its end.
  while (!last_.watch) Pass(milliseconds(1));
  EXPECT_FALSE(last_.open);
  now_ += milliseconds(30);
  Effects e = Do(EventKind::kFinished);
  EXPECT_EQ(machine_.phase(), Phase::kHolding);
  EXPECT_TRUE(e.open);
  const Instant finished = now_;
  while (!last_.watch) Pass(milliseconds(1));
  EXPECT_GE(now_ - finished, milliseconds(2));
  e = Do(EventKind::kFinished);
  EXPECT_EQ(e.state.phase, Phase::kIdle);
}

// Of the token that it has, as long as it has that, and after; of one that came by the socket it
// does not know.
TEST_F(ClientLaws, SaysHowLongTheHandOffToItsTokenTook) {
  Attach();
  Park();
  wire::Token ahead;
  ahead.epoch = 2;
  ahead.rev = 1;
  ahead.quota_ns = static_cast<uint64_t>(Nanos(milliseconds(20)));
  ahead.after_client = 1;
  Do({.kind = EventKind::kToken, .token = ahead});
  const Instant drained = now_;
  Pass(microseconds(30));
  Do({.kind = EventKind::kWord, .drained_at = drained});
  ASSERT_EQ(last_.state.phase, Phase::kHolding);
  EXPECT_EQ(last_.state.handoff_ns, 30'000u);
  Pass(milliseconds(1));
  Token(2, 2, milliseconds(0));
  Do(EventKind::kFinished);
  ASSERT_EQ(last_.state.phase, Phase::kWaiting);
  EXPECT_EQ(last_.state.handoff_ns, 30'000u);
  Token(3, 1, milliseconds(20));
  EXPECT_EQ(last_.state.handoff_ns, 0u);
}

// Its program waits for each kernel, and launches the next one as soon as it ends: that is parked
// a moment before the end is seen, however long the drain took until then.
TEST_F(ClientLaws, ALaunchThatIsParkedAtTheEndOfALongDrainReopensNothing) {
  Hold();
  Token(1, 2, milliseconds(0));
  ASSERT_EQ(machine_.phase(), Phase::kDraining);
  Pass(milliseconds(400));
  Park();
  EXPECT_EQ(machine_.phase(), Phase::kDraining);
  EXPECT_FALSE(machine_.open());
  Do(EventKind::kFinished);
  EXPECT_EQ(machine_.phase(), Phase::kWaiting);
}

TEST_F(ClientLaws, ALaunchThatStaysParkedInADrainReopensTheGate) {
  Hold();
  Token(1, 2, milliseconds(0));
  Pass(milliseconds(400));
  const Instant parked = now_;
  Park();
  Pass(milliseconds(200));
  EXPECT_EQ(machine_.phase(), Phase::kHolding);
  EXPECT_TRUE(machine_.open());
  EXPECT_EQ(now_ - parked, milliseconds(50));
}

TEST_F(ClientLaws, ALaunchDuringTheProbeGoesOn) {
  Hold(seconds(60));
  while (!last_.watch) Pass(milliseconds(1));
  const Effects e = Park();
  EXPECT_TRUE(e.open);
  EXPECT_EQ(machine_.phase(), Phase::kHolding);
}

TEST_F(ClientLaws, WithoutARivalTheTokenIsKeptLongerUntilOneComes) {
  Hold(seconds(60), false);
  now_ += milliseconds(10);
  Do(EventKind::kTimer);
  EXPECT_TRUE(last_.open);
  EXPECT_TRUE(Token(1, 2, seconds(60), true).watch);
}

// As far as the backend allows that.
TEST_F(ClientLaws, TheBacklogMayBeLargerWhereThreadsWakeUpLate) {
  for (const auto allowed : {milliseconds(0), milliseconds(1), milliseconds(7)}) {
    machine_ = ClientMachine({}, now_);
    Event event;
    event.kind = EventKind::kAttached;
    event.attached.backlog_ns = 3'000'000;
    event.attached.late_backlog_ns = static_cast<uint64_t>(Nanos(allowed));
    Do(event);
    Park();
    seen_.parked = 0;
    Token(1, 1, kQuota);
    EXPECT_EQ(machine_.backlog_bound(), milliseconds(3));
    seen_.late = true;
    Do(EventKind::kTimer);
    EXPECT_EQ(machine_.backlog_bound(), std::max(allowed, milliseconds(3)));
    seen_.late = false;
    Do(EventKind::kTimer);
    EXPECT_EQ(machine_.backlog_bound(), milliseconds(3));
  }
}

TEST_F(ClientLaws, TheBacklogMayBeLargerWithoutARival) {
  Hold(seconds(60), false);
  EXPECT_EQ(machine_.backlog_bound(), milliseconds(9));
  Token(1, 2, seconds(60), true);
  EXPECT_EQ(machine_.backlog_bound(), milliseconds(3));
}

// Whom a token was cut for may come again, and would wait for all that is in flight then.
TEST_F(ClientLaws, ForASecondAfterACutTheBacklogIsNoLargerThanBesideARival) {
  Event event;
  event.kind = EventKind::kAttached;
  event.attached.backlog_ns = 3'000'000;
  event.attached.late_backlog_ns = 9'000'000;
  Do(event);
  Park();
  seen_.parked = 0;
  seen_.late = true;
  Token(1, 1, milliseconds(40));
  // An extension is no cut, nor is what comes a bit later than the one before it.
  now_ += milliseconds(1);
  Token(1, 2, milliseconds(60));
  Token(1, 3, milliseconds(58));
  EXPECT_EQ(machine_.backlog_bound(), milliseconds(9));
  Token(1, 4, milliseconds(5));
  EXPECT_EQ(machine_.backlog_bound(), milliseconds(3));
  Token(1, 5, milliseconds(60), false);
  EXPECT_EQ(machine_.backlog_bound(), milliseconds(3)) << "nobody waits any more";
  now_ += milliseconds(990);
  Token(1, 6, milliseconds(60), false);
  EXPECT_EQ(machine_.backlog_bound(), milliseconds(3));
  now_ += milliseconds(20);
  Token(1, 7, milliseconds(60), false);
  EXPECT_EQ(machine_.backlog_bound(), milliseconds(9));
  // To its end at once.
  Token(1, 8, milliseconds(0));
  Token(2, 1, milliseconds(40));
  EXPECT_EQ(machine_.backlog_bound(), milliseconds(3));
}

// A pause shorter than `idle` (2 ms here) costs less than giving the token back and getting it
// again, a longer one costs more: then the token goes back almost at once, but it takes several
// long pauses to believe in them, and one that is short to doubt.
TEST_F(ClientLaws, LongPausesGiveTheTokenBackSoonerAndShortOnesLater) {
  Hold(seconds(60));
  uint64_t epoch = 1;
  // The GPU is idle for so long between two launches. How long the token was kept then.
  const auto pause = [&](Duration length) {
    ++seen_.launches;
    Do(EventKind::kTimer);
    const Instant idle = now_;
    while (!last_.watch && now_ - idle < length) Pass(microseconds(10));
    if (!last_.watch) return length;
    const Duration kept = now_ - idle;
    Do(EventKind::kFinished);
    EXPECT_EQ(machine_.phase(), Phase::kIdle);
    now_ = std::max(now_, idle + length);
    Park();
    seen_.parked = 0;
    Token(++epoch, 1, seconds(60));
    return kept;
  };
  constexpr Duration kStep = microseconds(20);
  EXPECT_LE(pause(milliseconds(5)) - milliseconds(2), kStep);
  EXPECT_LE(pause(milliseconds(5)) - milliseconds(2), kStep) << "once may be chance";
  EXPECT_LE(pause(milliseconds(5)) - milliseconds(1), kStep);
  for (int i = 0; i < 20; ++i) pause(milliseconds(5));
  EXPECT_LE(pause(milliseconds(5)), microseconds(63) + kStep);
  EXPECT_LE(pause(microseconds(200)), microseconds(63) + kStep);
  EXPECT_GE(pause(microseconds(200)), microseconds(125)) << "it was given back in vain";
  for (int i = 0; i < 5; ++i) pause(microseconds(1'500));
  EXPECT_EQ(pause(microseconds(1'500)), microseconds(1'500)) << "kept through it";
}

// 32 ms here: a lone program with pauses of some milliseconds never waits for its token. One with
// longer pauses does not pay for them.
TEST_F(ClientLaws, WithoutARivalOnlyPausesThatAreLongBesideAHandOffGiveTheTokenBack) {
  Hold(seconds(600), false);
  uint64_t epoch = 1;
  const auto kept = [&](Duration pause) {
    ++seen_.launches;
    Do(EventKind::kTimer);
    const Instant idle = now_;
    while (!last_.watch && now_ - idle < pause) Pass(microseconds(100));
    const Duration kept = now_ - idle;
    if (!last_.watch) return kept;
    Do(EventKind::kFinished);
    now_ = std::max(now_, idle + pause);
    Park();
    seen_.parked = 0;
    Token(++epoch, 1, seconds(600), false);
    return kept;
  };
  for (int i = 0; i < 10; ++i) EXPECT_EQ(kept(milliseconds(20)), milliseconds(20));
  EXPECT_GE(kept(milliseconds(200)), milliseconds(32));
  for (int i = 0; i < 12; ++i) kept(milliseconds(200));
  EXPECT_LE(kept(milliseconds(200)), milliseconds(2));
}

// A grant wakes a thread that has something to launch.
TEST_F(ClientLaws, WhoWasParkedIsWaitedForBeforeTheTokenIsTakenForIdle) {
  Attach();
  Park();
  Token(1, 1, seconds(60));
  for (int i = 0; i < 30; ++i) {
    Pass(milliseconds(1));
    ASSERT_TRUE(last_.open) << "it has not woken up yet";
  }
  seen_.parked = 0;
  while (!last_.watch) Pass(milliseconds(1));
  EXPECT_FALSE(last_.open);
}

TEST_F(ClientLaws, ReportsItselfEveryHeartbeat) {
  Attach();
  uint64_t seq = last_.state.seq;
  for (int i = 0; i < 5; ++i) {
    now_ = last_.wake;
    const Effects e = Do(EventKind::kTimer);
    ASSERT_TRUE(e.send);
    EXPECT_EQ(e.state.seq, ++seq);
    EXPECT_EQ(e.wake, now_ + milliseconds(100));
  }
}

TEST_F(ClientLaws, ATokenStaysValidWhileTheBackendIsAway) {
  Hold();
  const Instant begin = now_;
  EXPECT_TRUE(Do(EventKind::kDisconnected).open);
  Pass(seconds(1), true);
  EXPECT_EQ(now_ - begin, kQuota);
  EXPECT_FALSE(last_.send);
  const Effects e = Attach();
  EXPECT_TRUE(e.send);
  EXPECT_EQ(e.state.phase, Phase::kDraining);
  EXPECT_EQ(e.state.epoch, 1u);
}

TEST_F(ClientLaws, SequenceAndCountersGoOnOverReconnects) {
  Hold();
  const uint64_t seq = last_.state.seq;
  Do(EventKind::kDisconnected);
  now_ += milliseconds(1);
  const Effects e = Attach();
  EXPECT_GT(e.state.seq, seq);
  EXPECT_EQ(e.state.phase, Phase::kHolding);
  EXPECT_EQ(e.state.held_ns, 1'000'000u);
}

TEST_F(ClientLaws, ItSaysHowLongAgoItDrainedOverAGapInItsHold) {
  EXPECT_EQ(Attach().state.drained_ns, 0u) << "it has never held";
  Park();
  seen_.parked = 0;
  Token(1, 1, kQuota);
  Pass(seconds(1), true);
  seen_.parked = 1;
  EXPECT_EQ(Do(EventKind::kFinished).state.drained_ns, 1u);
  now_ += milliseconds(30);
  EXPECT_EQ(Do(EventKind::kSync).state.drained_ns, 30'000'000u);
  seen_.parked = 0;
  EXPECT_EQ(Token(1, 2, kQuota).state.drained_ns, 0u) << "the same token lets it on";
  Pass(seconds(1), true);
  Do(EventKind::kFinished);
  now_ += milliseconds(5);
  const Effects e = Do(EventKind::kSync);
  EXPECT_EQ(e.state.drained_ns, 5'000'000u);
  EXPECT_EQ(e.state.held_ns, 40'000'000u);
}

TEST_F(ClientLaws, ASyncIsAnsweredWithTheState) {
  Hold();
  EXPECT_TRUE(Do(EventKind::kSync).send);
}

TEST_F(ClientLaws, ADrainThatWaitsForAParkedLaunchReopensForLongerEachTime) {
  Hold();
  Pass(seconds(1), true);
  ASSERT_EQ(machine_.phase(), Phase::kDraining);
  Park();
  Duration open{0};
  for (int i = 0; i < 4; ++i) {
    const Instant closed = now_;
    Pass(seconds(1));
    ASSERT_EQ(machine_.phase(), Phase::kHolding);
    EXPECT_EQ(now_ - closed, milliseconds(50 << i));
    EXPECT_TRUE(last_.open);
    EXPECT_EQ(last_.state.epoch, 1u);
    const Instant opened = now_;
    Pass(seconds(10));
    ASSERT_EQ(machine_.phase(), Phase::kDraining);
    EXPECT_GT(now_ - opened, open);
    open = now_ - opened;
  }
}

// Several threads' work takes long, or waits for that of other processes, and ends all the same.
TEST_F(ClientLaws, ADrainInWhichWorkEndsIsNotStuck) {
  Hold();
  Pass(seconds(1), true);
  Park();
  for (int i = 0; i < 20; ++i) {
    Pass(milliseconds(40));
    seen_.busy_ns += 1'000'000;
    ASSERT_EQ(machine_.phase(), Phase::kDraining);
  }
}

TEST_F(ClientLaws, WhatDrainsTookOfLateIsNoStuckDrain) {
  Hold();
  Token(1, 2, milliseconds(0));
  Pass(milliseconds(300));
  Do(EventKind::kFinished);
  ASSERT_NE(machine_.phase(), Phase::kDraining);
  Park();
  Token(2, 1, milliseconds(20));
  Token(2, 2, milliseconds(0));
  ASSERT_EQ(machine_.phase(), Phase::kDraining);
  Park();
  Pass(milliseconds(500));
  EXPECT_EQ(machine_.phase(), Phase::kDraining);
  Pass(milliseconds(200));
  EXPECT_EQ(machine_.phase(), Phase::kHolding);
}

TEST_F(ClientLaws, ALongKernelIsNoStuckDrain) {
  Hold();
  Pass(seconds(1), true);
  seen_.longest = milliseconds(100);
  Park();
  Pass(milliseconds(399));
  EXPECT_EQ(machine_.phase(), Phase::kDraining);
}

TEST_F(ClientLaws, InObserveModeTheGateIsOpenAndNothingIsAsked) {
  EXPECT_TRUE(Attach(false).open);
  Park();
  EXPECT_EQ(machine_.phase(), Phase::kIdle);
  EXPECT_TRUE(machine_.open());
  // Back to enforcing: what runs is declared and drained first.
  EXPECT_EQ(Attach(true).state.phase, Phase::kDraining);
  EXPECT_FALSE(machine_.open());
}

class OpenModeLaws : public ClientLaws {
 protected:
  OpenModeLaws() : ClientLaws(wire::AwayMode::kOpen) {}
};

TEST_F(OpenModeLaws, OpensAfterTheGracePeriodAndCountsTheTime) {
  Attach();
  Do(EventKind::kDisconnected);
  const Instant away = now_;
  Park();
  Pass(seconds(10));
  EXPECT_TRUE(machine_.unmanaged());
  EXPECT_EQ(now_ - away, seconds(1));
  EXPECT_TRUE(last_.open);
  now_ += seconds(3);
  const Effects e = Attach();
  EXPECT_FALSE(e.open);
  EXPECT_EQ(e.state.phase, Phase::kDraining);
  EXPECT_EQ(e.state.unmanaged_ns, 3'000'000'000u);
}

TEST_F(OpenModeLaws, AShortAbsenceOpensNothing) {
  Attach();
  Do(EventKind::kDisconnected);
  Park();
  now_ += milliseconds(999);
  Do(EventKind::kTimer);
  EXPECT_FALSE(last_.open);
  EXPECT_EQ(Attach().state.phase, Phase::kWaiting);
}

TEST_F(OpenModeLaws, AHolderFirstUsesUpItsToken) {
  Hold(seconds(5));
  Do(EventKind::kDisconnected);
  Pass(seconds(4), true);
  EXPECT_EQ(machine_.phase(), Phase::kHolding);
  EXPECT_FALSE(machine_.unmanaged());
}

// A backend that follows docs/protocol.md to the letter, over a link that loses, repeats and
// reorders, and a GPU whose work ends when it wants to.
struct World {
  ClientMachine machine;
  Instant now = InstantFromNanos(1'000'000'000);
  Observation seen;
  Effects effects;
  bool work = false;  // something runs on the GPU

  std::deque<wire::Token> to_client;
  std::deque<wire::State> to_backend;
  uint64_t epoch = 0, rev = 0;
  uint64_t seq_seen = 0;
  uint64_t held_seen = 0;
  bool client_has = false;  // may the client hold, as far as the backend knows

  void Step(const Event& event) {
    const bool was_open = machine.open();
    const Phase before = machine.phase();
    effects = machine.Step(now, event, seen);
    if (effects.send) to_backend.push_back(effects.state);
    // The gate is open only for a holder.
    RC_ASSERT(effects.open == (machine.phase() == Phase::kHolding && !effects.watch));
    // From a hold one comes back only when the GPU has finished.
    const bool returned = (before == Phase::kHolding || before == Phase::kDraining) &&
                          (machine.phase() == Phase::kIdle || machine.phase() == Phase::kWaiting);
    RC_ASSERT(!returned || (event.kind == EventKind::kFinished && !work));
    (void)was_open;
  }
  void Step(EventKind kind) {
    Event event;
    event.kind = kind;
    Step(event);
  }
  void Send(Duration quota) {
    wire::Token token;
    token.epoch = epoch;
    token.rev = rev;
    token.quota_ns = static_cast<uint64_t>(quota.count());
    token.contended = true;
    to_client.push_back(token);
  }
  void Hear(const wire::State& s) {
    if (s.seq <= seq_seen) return;
    seq_seen = s.seq;
    RC_ASSERT(s.held_ns >= held_seen);  // cumulative
    held_seen = s.held_ns;
    const bool latest = s.epoch == epoch && s.rev == rev;
    const bool drained = s.phase == Phase::kIdle || s.phase == Phase::kWaiting;
    if (!latest) {
      // It has not heard the last word: said again on the heartbeat.
      if (client_has) Send(milliseconds(5));
      return;
    }
    if (drained) client_has = false;
    if (s.phase == Phase::kWaiting && !client_has) {
      ++epoch;
      rev = 1;
      client_has = true;
      Send(milliseconds(5));
    }
  }
};

RC_GTEST_PROP(ClientProperties, WhatTheBackendThinksDrainedIsDrainedWhateverTheLinkDoes, ()) {
  World w;
  w.machine = ClientMachine(ClientOptions{}, w.now);
  Event attached;
  attached.kind = EventKind::kAttached;
  attached.attached.idle_ns = 1'000'000;
  attached.attached.heartbeat_ns = 10'000'000;
  w.Step(attached);
  const auto steps = *rc::gen::container<std::vector<int>>(200, rc::gen::inRange(0, 1000));
  for (const int step : steps) {
    const int amount = step / 10;
    w.now += microseconds(amount * amount);
    switch (step % 10) {
      case 0:
      case 1:  // the application launches
        if (w.machine.open()) {
          w.work = true;
          ++w.seen.launches;
          w.seen.parked = 0;
        } else {
          w.seen.parked = 1;
          w.Step(EventKind::kParked);
          if (w.machine.open()) w.seen.parked = 0;
        }
        break;
      case 2:  // the GPU finishes
        w.work = false;
        if (w.effects.watch) w.Step(EventKind::kFinished);
        break;
      case 3:
        w.Step(EventKind::kTimer);
        break;
      case 4:
      case 5:  // a frame arrives, from anywhere in the queue
        if (!w.to_client.empty()) {
          const size_t i = static_cast<size_t>(amount) % w.to_client.size();
          Event event;
          event.kind = EventKind::kToken;
          event.token = w.to_client[i];
          if (amount % 3 != 0) w.to_client.erase(w.to_client.begin() + static_cast<long>(i));
          w.Step(event);
          if (w.machine.open()) w.seen.parked = 0;
        }
        break;
      case 6:
      case 7:
        if (!w.to_backend.empty()) {
          const size_t i = static_cast<size_t>(amount) % w.to_backend.size();
          const wire::State state = w.to_backend[i];
          if (amount % 3 != 0) w.to_backend.erase(w.to_backend.begin() + static_cast<long>(i));
          w.Hear(state);
        }
        break;
      case 8:  // the backend revokes or extends
        if (w.client_has) {
          ++w.rev;
          w.Send(amount % 2 == 0 ? Duration(0) : milliseconds(5));
        }
        break;
      case 9:  // the link loses something, or breaks
        if (amount % 4 == 0) {
          w.to_client.clear();
          w.Step(EventKind::kDisconnected);
          w.Step(attached);
        } else if (!w.to_backend.empty()) {
          w.to_backend.pop_front();
        }
        break;
    }
    // The law: who may give the GPU to somebody else knows that nothing of this client runs there
    // or can be launched.
    if (!w.client_has) {
      RC_ASSERT(!w.machine.open());
      RC_ASSERT(!w.work);
    }
  }
}

}  // namespace
}  // namespace baton::hook
