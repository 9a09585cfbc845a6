// The token that is sent ahead: to whom and when, when it counts as begun, what its clients gain by
// lies, and how it is taken back. The scheduler is told events one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>

#include "scheduler/token_scheduler.h"
#include "tests/scheduler/share_spec.h"

namespace baton::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using wire::Phase;

// Pods 1, 2 and 3 with clients 10, 20 and 30, which have words.
class SentAhead : public ::testing::Test {
 protected:
  SentAhead() {
    for (const uint64_t pod : {1, 2, 3}) {
      Step(PodSet{PodId{pod}, Spec(30)});
      Step(ClientAttached{ClientId{10 * pod}, PodId{pod}, true});
    }
  }

  void Step(const Event& event) {
    effects_.clear();
    scheduler_.Step(now_, event, effects_);
    EXPECT_EQ(scheduler_.Invariants(), std::nullopt);
    for (const Effect& effect : effects_) {
      if (const auto* sent = std::get_if<SendToken>(&effect)) {
        told_[sent->client.value] = *sent;
        opened_[sent->client.value] += sent->quota > Duration(0) ? 1 : 0;
      }
      if (const auto* charged = std::get_if<Charged>(&effect)) {
        charged_[charged->pod.value] += charged->held;
      }
    }
  }
  // Of the token that the client was sent last.
  void Say(uint64_t client, Phase phase, Duration held = Duration(0)) {
    const SendToken& last = told_[client];
    Step(ClientReport{ClientId{client}, ++seq_, phase, last.epoch, last.rev, held});
  }
  void HandOver(Duration handoff, Duration gpu_switch);
  // As its node has measured.
  void Report(uint64_t client, Phase phase, Duration held, Duration pod_held) {
    const SendToken& last = told_[client];
    Step(ClientReport{.client = ClientId{client},
                      .seq = ++seq_,
                      .phase = phase,
                      .epoch = last.epoch,
                      .rev = last.rev,
                      .held = held,
                      .pod_held = pod_held});
  }
  void Pass(Duration time) {
    const Instant end = now_ + time;
    for (int ticks = 0; scheduler_.wakeup() <= end; ++ticks) {
      ASSERT_LT(ticks, 1'000) << "no way on from a wakeup";
      now_ = std::max(now_, scheduler_.wakeup());
      Step(Tick{});
    }
    now_ = end;
  }
  uint64_t Holder() const { return scheduler_.holder().value_or(PodId{0}).value; }

  // Pod 1 is granted for quota_min at granted_at_, and drains when that is over; pod 2 waits.
  void SendAhead(std::initializer_list<uint64_t> waiting = {20}) {
    granted_at_ = now_;
    Say(10, Phase::kWaiting);
    Say(10, Phase::kHolding);
    for (const uint64_t client : waiting) Say(client, Phase::kWaiting);
    Pass(options_.quota_min);
    Say(10, Phase::kDraining);
  }
  // The next one says that it holds.
  void Begin() {
    began_at_ = now_;
    Say(20, Phase::kHolding);
  }
  // So long the client was the holder by now, as its node has measured.
  Duration Held(Instant since) const { return now_ - since; }
  // Another client of pod 1 asks, whom its drain may be waiting for, until it must be let in.
  void GetStuck() {
    Step(ClientAttached{ClientId{11}, PodId{1}, true});
    Say(11, Phase::kWaiting);
    Pass(options_.drain_reopen);
  }

  const SchedulerOptions options_;
  Instant now_{std::chrono::seconds(3)};
  Instant granted_at_{};
  Instant began_at_{};
  uint64_t seq_ = 0;
  Effects effects_;                     // of the last step
  std::map<uint64_t, SendToken> told_;  // last, by client
  std::map<uint64_t, int> opened_;      // how often what it was sent would open its gate
  std::map<uint64_t, Duration> charged_;
  TokenScheduler scheduler_{options_, 0};
};

// Its work ends long before its quota does: it does not compete for more.
TEST_F(SentAhead, WhoLeavesEarlyIsFollowed) {
  for (const bool leaves : {true, false}) {
    Say(10, Phase::kWaiting);
    Say(10, Phase::kHolding);
    Say(20, Phase::kWaiting);
    ASSERT_EQ(Holder(), 1u);
    Pass(milliseconds(1));
    const SendToken& last = told_[10];
    Step(ClientReport{.client = ClientId{10},
                      .seq = ++seq_,
                      .phase = Phase::kDraining,
                      .epoch = last.epoch,
                      .rev = last.rev,
                      .backlog = leaves ? microseconds(300) : last.quota - milliseconds(1)});
    EXPECT_EQ(told_[20].after.client == ClientId{10}, leaves);
    Say(10, Phase::kIdle);
    Say(20, Phase::kHolding);
    Say(20, Phase::kIdle);
    EXPECT_EQ(Holder(), 0u);
    told_[20] = {};
    Pass(milliseconds(50));
  }
}

TEST_F(SentAhead, TheNextOneWaitsForTheHoldersWordAndIsStoredFirst) {
  SendAhead();
  EXPECT_EQ(Holder(), 1u);
  const SendToken& sent = told_[20];
  EXPECT_EQ(sent.after.client, ClientId{10});
  EXPECT_EQ(sent.after.epoch, told_[10].epoch);
  EXPECT_EQ(sent.after.rev, told_[10].rev);
  EXPECT_EQ(sent.epoch, told_[10].epoch + 1);
  EXPECT_GT(sent.quota, Duration(0));
  ASSERT_EQ(effects_.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<StoreNext>(effects_.front()));
}

// A hand-off by a word, of which the next one says that it took so long; and back to nobody.
void SentAhead::HandOver(Duration handoff, Duration gpu_switch) {
  SendAhead();
  ASSERT_EQ(Holder(), 1u);
  ASSERT_EQ(told_[20].after.client, ClientId{10});
  Pass(milliseconds(1));
  Say(10, Phase::kIdle, Held(granted_at_));
  Step(ClientReport{.client = ClientId{20},
                    .seq = ++seq_,
                    .phase = Phase::kHolding,
                    .epoch = told_[20].epoch,
                    .rev = told_[20].rev,
                    .handoff = handoff,
                    .gpu_switch = gpu_switch});
  ASSERT_EQ(Holder(), 2u);
  Say(20, Phase::kIdle);
  told_[20] = {};
  Pass(milliseconds(50));
}

// What a hand-off costs is what the next one's hook has measured; so tokens are as short as that
// allows. It may say what it likes: never more than the time since it was sent its token.
TEST_F(SentAhead, WhatAHandOffCostsIsMeasuredByTheNextOne) {
  struct Case {
    Duration said, counts;
  };
  for (const auto [said, counts] : {Case{microseconds(30), microseconds(30)},
                                    {Duration(0), Duration(0)},
                                    {Duration::max(), milliseconds(1)}}) {
    const Duration before = scheduler_.handoff_total();
    for (int i = 0; i < 100; ++i) {
      ASSERT_NO_FATAL_FAILURE(HandOver(said, Duration(0)));
    }
    EXPECT_EQ(scheduler_.handoff_total() - before, 100 * counts);
    if (counts == Duration(0)) continue;
    EXPECT_NEAR(Nanos(scheduler_.handoff()), Nanos(counts + options_.context_switch), 2'000);
  }
}

// So does what the GPU itself needs to come to the next one's process, at least `context_switch`.
// It may say what it likes of that too.
TEST_F(SentAhead, WhatTheGpuNeedsToSwitchIsAPartOfTheHandOff) {
  struct Case {
    Duration said, counts;
  };
  const Duration least = options_.context_switch;
  for (const auto [said, counts] : {Case{Duration(0), least},
                                    {microseconds(10), least},
                                    {microseconds(142), microseconds(142)},
                                    {Duration::max(), milliseconds(1)}}) {
    for (int i = 0; i < 100; ++i) {
      ASSERT_NO_FATAL_FAILURE(HandOver(microseconds(30), said));
    }
    EXPECT_NEAR(Nanos(scheduler_.handoff()), Nanos(microseconds(30) + counts), 5'000);
  }
}

// Where its node says that later than the holder's end was known: what is stored is for the daemon
// after this one, which charges from then on.
TEST_F(SentAhead, SinceWhenItHoldsIsStoredOnceThatIsKnown) {
  SendAhead();
  Pass(milliseconds(30));
  Step(ClientGone{ClientId{10}});
  ASSERT_EQ(Holder(), 2u);
  Report(20, Phase::kHolding, Duration(0), milliseconds(20));
  const auto stored = std::find_if(effects_.begin(), effects_.end(), [](const Effect& effect) {
    return std::holds_alternative<StoreHolder>(effect);
  });
  ASSERT_NE(stored, effects_.end());
  const auto& holder = std::get<StoreHolder>(*stored);
  EXPECT_EQ(holder.client, ClientId{20});
  EXPECT_EQ(holder.epoch, told_[20].epoch);
  EXPECT_EQ(holder.joined_at, now_ - milliseconds(20));
  Report(20, Phase::kHolding, Duration(0), milliseconds(20));
  EXPECT_TRUE(effects_.empty()) << "it is known already";
}

TEST_F(SentAhead, NothingIsSentToWhoHasNoWordNorWhereTheHolderHasNone) {
  Step(ClientAttached{ClientId{20}, PodId{2}, false});
  SendAhead();
  EXPECT_EQ(opened_[20], 0);
  Say(10, Phase::kIdle, milliseconds(6));
  ASSERT_EQ(Holder(), 2u);
  EXPECT_EQ(told_[20].after.client, ClientId{});
  Say(20, Phase::kHolding);
  Say(10, Phase::kWaiting);
  Pass(options_.quota_min);
  Say(20, Phase::kDraining);
  EXPECT_EQ(Holder(), 2u);
  EXPECT_LT(told_[10].epoch, told_[20].epoch);
}

TEST_F(SentAhead, ItIsTheHoldersWhenTheOneBeforeHasReturnedAndNeedsNoWord) {
  SendAhead();
  Pass(milliseconds(1));
  Begin();
  EXPECT_EQ(Holder(), 1u);
  const Duration held = Held(granted_at_);
  Pass(milliseconds(1));
  Say(10, Phase::kWaiting, held);
  EXPECT_EQ(Holder(), 2u);
  EXPECT_EQ(charged_[1], held);
  EXPECT_EQ(opened_[20], 1) << "it was told ahead, and has begun by itself";
  Pass(milliseconds(2));
  Say(20, Phase::kIdle, Held(began_at_));
  EXPECT_EQ(charged_[2], milliseconds(3)) << "it began when the one before had drained";
}

TEST_F(SentAhead, WhoseHolderWasNotMeasuredIsToldToBegin) {
  SendAhead();
  Say(10, Phase::kWaiting);
  EXPECT_EQ(Holder(), 2u);
  EXPECT_EQ(opened_[20], 2);
  EXPECT_EQ(told_[20].after.client, ClientId{});
  EXPECT_EQ(told_[20].rev, 2u);
}

TEST_F(SentAhead, WhatIsSaidOfItWaitsAndCountsAsOfThen) {
  SendAhead();
  Begin();
  const Duration held = Held(granted_at_);
  Pass(milliseconds(4));
  Say(20, Phase::kIdle);
  EXPECT_EQ(Holder(), 1u);
  EXPECT_EQ(charged_[2], Duration(0));
  Pass(milliseconds(30));
  Say(30, Phase::kWaiting);
  Say(10, Phase::kIdle, held);
  EXPECT_EQ(Holder(), 3u);
  EXPECT_EQ(charged_[1], held);
  EXPECT_EQ(charged_[2], milliseconds(4)) << "not for what the holder's State was late";
}

TEST_F(SentAhead, WhoeverComesWaitsForBothWhateverTheNextOneSays) {
  SendAhead();
  Say(30, Phase::kWaiting);
  for (const Phase phase : {Phase::kHolding, Phase::kIdle, Phase::kDraining, Phase::kWaiting}) {
    Step(ClientReport{ClientId{20}, ++seq_, phase, told_[20].epoch, 1, Duration(0),
                      milliseconds(500)});
    Pass(milliseconds(5));
    EXPECT_EQ(Holder(), 1u);
    EXPECT_EQ(opened_[30], 0);
  }
  const Duration held = Held(granted_at_);
  Say(10, Phase::kIdle, held);
  EXPECT_EQ(charged_[1], held) << "what the next one says takes nothing off the holder's account";
  EXPECT_EQ(Holder(), 3u);
}

TEST_F(SentAhead, WhoNamesARevisionOfItThatWasNeverSentHasNotDrained) {
  SendAhead();
  Step(ClientReport{ClientId{20}, ++seq_, Phase::kWaiting, told_[20].epoch, 7});
  Say(10, Phase::kIdle, Held(granted_at_));
  EXPECT_EQ(Holder(), 2u);
  Say(30, Phase::kWaiting);
  EXPECT_EQ(opened_[30], 0);
}

TEST_F(SentAhead, NothingOpensTheHoldersGateWhileItIsOut) {
  SendAhead();
  const int before = opened_[10];
  Step(ClientAttached{ClientId{11}, PodId{1}, true});
  Say(11, Phase::kWaiting);
  Step(PodSet{PodId{1}, Spec(40)});
  Say(30, Phase::kWaiting);
  Say(10, Phase::kHolding);
  Say(10, Phase::kDraining);
  Step(ClientDisconnected{ClientId{10}});
  Step(ClientAttached{ClientId{10}, PodId{1}, true});
  Step(ClientReport{ClientId{10}, ++seq_, Phase::kDraining, told_[10].epoch, 0});
  Pass(options_.drain_reopen / 2);
  EXPECT_EQ(opened_[10], before);
  EXPECT_EQ(opened_[11], 0);
}

// The relay of both was away, with what it had measured: each tells how long ago it had drained.
TEST_F(SentAhead, OverARestartOfTheRelayOnlyWhatWasHeldIsCharged) {
  for (const bool next_is_back_first : {true, false}) {
    charged_.clear();
    SendAhead();
    const Duration held = Held(granted_at_) + milliseconds(1);
    const Instant lost = now_;
    Pass(milliseconds(10));
    for (const uint64_t client : {10, 20}) Step(ClientDisconnected{ClientId{client}, lost});
    Pass(milliseconds(90));
    const auto is_back = [&](uint64_t client, Duration drained_after) {
      const SendToken& last = told_[client];
      Step(ClientAttached{ClientId{client}, PodId{client / 10}, true});
      Step(ClientReport{.client = ClientId{client},
                        .seq = ++seq_,
                        .phase = Phase::kIdle,
                        .epoch = last.epoch,
                        .rev = last.rev,
                        .drained_ago = now_ - lost - drained_after});
    };
    if (next_is_back_first) is_back(20, milliseconds(7));
    Pass(milliseconds(20));
    is_back(10, milliseconds(1));
    Pass(milliseconds(20));
    if (!next_is_back_first) is_back(20, milliseconds(7));
    EXPECT_EQ(Holder(), 0u);
    EXPECT_EQ(charged_[1], held);
    EXPECT_EQ(charged_[2], milliseconds(6));
    Pass(milliseconds(50));
  }
}

TEST_F(SentAhead, TheNextOneThatIsGoneIsChargedForWhatItMayHaveHeld) {
  SendAhead();
  const Duration held = Held(granted_at_);
  Pass(milliseconds(3));
  Step(ClientGone{ClientId{20}});
  EXPECT_EQ(Holder(), 1u);
  Pass(milliseconds(20));
  Say(30, Phase::kWaiting);
  Say(10, Phase::kIdle, held);
  EXPECT_EQ(Holder(), 3u);
  EXPECT_EQ(charged_[1], held);
  EXPECT_EQ(charged_[2], milliseconds(3));
  EXPECT_GT(told_[30].epoch, told_[20].epoch);
}

TEST_F(SentAhead, AClientThatIsGoneIsChargedWithTheOthersOfItsPod) {
  Step(ClientAttached{ClientId{21}, PodId{2}, true});
  SendAhead({20, 21});
  Begin();
  Say(21, Phase::kHolding);
  const Duration held = Held(granted_at_);
  Pass(milliseconds(2));
  Say(20, Phase::kIdle);
  Pass(milliseconds(2));
  Say(21, Phase::kIdle);
  Pass(milliseconds(20));
  Step(ClientGone{ClientId{21}});
  Say(10, Phase::kIdle, held);
  EXPECT_EQ(charged_[1], held);
  EXPECT_EQ(charged_[2], milliseconds(4));
}

// The holder's news came late, so all that its node knows is that it held until then.
TEST_F(SentAhead, AClientThatIsGoneIsChargedForWhatItHeldLongerThanTheOthers) {
  Step(ClientAttached{ClientId{21}, PodId{2}, true});
  SendAhead({20, 21});
  const Duration held = Held(granted_at_);
  Pass(milliseconds(2));
  Say(20, Phase::kIdle, milliseconds(2));
  Pass(milliseconds(2));
  Say(21, Phase::kIdle, milliseconds(4));
  Pass(milliseconds(20));
  Step(ClientGone{ClientId{21}});
  Pass(milliseconds(20));
  Say(10, Phase::kIdle, Held(granted_at_));
  EXPECT_EQ(charged_[1], held + milliseconds(40));
  EXPECT_EQ(charged_[2], milliseconds(4));
}

// So long at least its pod held, whatever the others will say.
TEST_F(SentAhead, AClientThatIsGoneIsChargedWhereTheOthersHaveNotDrained) {
  Step(ClientAttached{ClientId{21}, PodId{2}, true});
  SendAhead({20, 21});
  const Duration held = Held(granted_at_);
  Say(20, Phase::kHolding);
  Pass(milliseconds(4));
  Say(21, Phase::kIdle, milliseconds(4));
  Step(ClientGone{ClientId{21}});
  Pass(milliseconds(20));
  Say(10, Phase::kIdle, Held(granted_at_));
  Say(20, Phase::kIdle, milliseconds(1));
  EXPECT_EQ(charged_[1], held + milliseconds(20));
  EXPECT_EQ(charged_[2], milliseconds(4));
}

TEST_F(SentAhead, WhatTheNextOneWasMeasuredToHoldIsNotTheHolders) {
  SendAhead();
  const Duration held = Held(granted_at_);
  Pass(milliseconds(4));
  Report(20, Phase::kIdle, milliseconds(4), milliseconds(4));
  Pass(milliseconds(30));
  // It claims to have held on, after its node heard that it had drained.
  Say(10, Phase::kIdle, Held(granted_at_));
  EXPECT_EQ(charged_[1], held);
  EXPECT_EQ(charged_[2], milliseconds(4));
}

TEST_F(SentAhead, ItBeganWhenItsNodeSawItBeginThoughTheHolderClaimsMore) {
  SendAhead();
  const Duration held = Held(granted_at_);
  Pass(milliseconds(4));
  Report(20, Phase::kHolding, Duration(0), milliseconds(4));
  Pass(milliseconds(6));
  Say(10, Phase::kIdle, Held(granted_at_));
  EXPECT_EQ(charged_[1], held);
  Pass(milliseconds(2));
  Report(20, Phase::kIdle, milliseconds(12), milliseconds(12));
  EXPECT_EQ(charged_[2], milliseconds(12));
}

TEST_F(SentAhead, ItIsChargedAsItsNodeMeasuredThoughItsHolderWasHeardOfLater) {
  SendAhead();
  Pass(milliseconds(10));
  Say(10, Phase::kIdle, Held(granted_at_));
  ASSERT_EQ(Holder(), 2u);
  Pass(milliseconds(2));
  Report(20, Phase::kIdle, milliseconds(9), milliseconds(9));
  EXPECT_EQ(charged_[2], milliseconds(9));
}

TEST_F(SentAhead, WhatWasSaidOfItIsSettledWhenItIsCharged) {
  SendAhead();
  Begin();
  Say(20, Phase::kIdle);
  const auto settled = [this] {
    return std::count_if(effects_.begin(), effects_.end(), [](const Effect& effect) {
      const auto* one = std::get_if<Settled>(&effect);
      return one != nullptr && one->client == ClientId{20};
    });
  };
  EXPECT_EQ(settled(), 0);
  Say(10, Phase::kIdle, Held(granted_at_));
  EXPECT_EQ(settled(), 1);
}

TEST_F(SentAhead, ThePodOfTheNextOneIsRemovedWhenItHasHadItsToken) {
  SendAhead();
  Begin();
  Step(PodRemoved{PodId{2}});
  Step(ClientGone{ClientId{20}});
  EXPECT_EQ(Holder(), 1u);
  Say(30, Phase::kWaiting);
  Say(10, Phase::kIdle, Held(granted_at_));
  EXPECT_EQ(Holder(), 3u);
}

TEST_F(SentAhead, AStuckHolderGoesOnOnlyOnceTheNextOneHasClosedAndItStillDrains) {
  SendAhead();
  GetStuck();
  const int before = opened_[10];
  EXPECT_EQ(told_[20].quota, Duration(0));
  EXPECT_EQ(told_[20].rev, 2u);
  Pass(milliseconds(50));
  Say(10, Phase::kDraining);
  EXPECT_EQ(opened_[11], 0) << "the next one may begin until it has answered";
  const uint64_t rev = told_[10].rev;
  Say(20, Phase::kWaiting);
  EXPECT_EQ(told_[10].rev, rev + 1) << "it is asked";
  EXPECT_EQ(opened_[11], 0);
  Say(10, Phase::kDraining);
  EXPECT_EQ(opened_[10], before + 1);
  EXPECT_EQ(opened_[11], 1);
  Say(11, Phase::kIdle, milliseconds(1));
  Say(10, Phase::kIdle, Held(granted_at_));
  EXPECT_EQ(Holder(), 2u) << "it is next all the same, by another token";
  EXPECT_GT(told_[20].epoch, 2u);
}

TEST_F(SentAhead, AHolderWhoseLastWordWasLostIsNotTakenForAStuckOne) {
  SendAhead();
  Begin();
  const Duration held = Held(granted_at_);
  Pass(milliseconds(2));
  Say(20, Phase::kIdle);
  GetStuck();
  Say(20, Phase::kIdle);  // it has closed
  EXPECT_EQ(opened_[11], 0);
  Say(10, Phase::kIdle, held);
  EXPECT_EQ(charged_[1], held);
  EXPECT_GE(charged_[2], milliseconds(2));
  EXPECT_EQ(Holder(), 1u) << "its other client's, by a new token";
  EXPECT_GT(told_[11].epoch, 2u);
}

// After a restart: client 10 held token 41, and client 20 was sent 42 ahead.
class SentAheadBefore : public SentAhead {
 protected:
  static constexpr uint64_t kEpoch = 41;
  explicit SentAheadBefore(Duration charged = Duration(0)) {
    scheduler.emplace(options_, kEpoch);
    const Instant then = now_ - milliseconds(100);
    granted_at_ = then - milliseconds(10);
    for (const uint64_t pod : {1, 2, 3}) Again(PodSet{PodId{pod}, Spec(30)});
    Again(HolderRestored{ClientId{10}, PodId{1}, kEpoch, granted_at_, granted_at_, charged});
    Again(HolderRestored{ClientId{20}, PodId{2}, kEpoch + 1, then, then, Duration(0), true});
    for (const uint64_t pod : {1, 2, 3}) {
      Again(ClientAttached{ClientId{10 * pod}, PodId{pod}, true});
    }
  }
  void Again(const Event& event) {
    effects_.clear();
    scheduler->Step(now_, event, effects_);
    EXPECT_EQ(scheduler->Invariants(), std::nullopt);
    for (const Effect& effect : effects_) {
      if (const auto* charged = std::get_if<Charged>(&effect)) {
        charged_[charged->pod.value] += charged->held;
      }
    }
  }
  // Of what it was sent by the scheduler before.
  void Said(uint64_t client, Phase phase, uint64_t epoch, Duration claimed, Duration ago) {
    ClientReport report{ClientId{client}, ++seq_, phase, epoch, 1};
    report.claimed = claimed;
    report.drained_ago = ago;
    Again(report);
  }

  std::optional<TokenScheduler> scheduler;
};

TEST_F(SentAheadBefore, BeginsWhenTheHolderIsHeardAndIsChargedByItsOwnWord) {
  Said(20, Phase::kHolding, kEpoch + 1, milliseconds(70), Duration(0));
  EXPECT_EQ(scheduler->holder(), PodId{1});
  Said(10, Phase::kWaiting, kEpoch, milliseconds(40), milliseconds(70));
  EXPECT_EQ(scheduler->holder(), PodId{2});
  EXPECT_EQ(scheduler->epoch(), kEpoch + 1);
  EXPECT_EQ(charged_[1], milliseconds(40));
  Said(20, Phase::kIdle, kEpoch + 1, milliseconds(70), Duration(0));
  EXPECT_GE(charged_[2], milliseconds(70));
}

// A relay says again what it had while the daemon was away: all of it is as of then.
TEST_F(SentAheadBefore, IsChargedFromWhenItBeganHoweverOldItsWordIs) {
  ClientReport said{ClientId{20}, ++seq_, Phase::kDraining, kEpoch + 1, 1};
  said.pod_held = said.claimed = milliseconds(30);
  said.age = milliseconds(40);
  Again(said);
  // It says that it drained later than that.
  Said(10, Phase::kWaiting, kEpoch, milliseconds(80), milliseconds(30));
  ASSERT_EQ(scheduler->holder(), PodId{2});
  Again(ClientGone{ClientId{20}});
  EXPECT_EQ(charged_[1], milliseconds(40));
  EXPECT_EQ(charged_[2], milliseconds(70));
}

TEST_F(SentAheadBefore, BeganAsTheQuickestOfItsWordsTells) {
  Said(10, Phase::kWaiting, kEpoch, milliseconds(110), Duration(0));
  ASSERT_EQ(scheduler->holder(), PodId{2});
  Pass(milliseconds(2));
  // It began 100 us before the holder was heard, and this took 300 us.
  Said(20, Phase::kDraining, kEpoch + 1, milliseconds(2) - microseconds(200), Duration(0));
  Pass(milliseconds(1));
  Said(20, Phase::kWaiting, kEpoch + 1, milliseconds(3) + microseconds(100), Duration(0));
  EXPECT_EQ(charged_[2], milliseconds(3) + microseconds(100));
  EXPECT_EQ(charged_[1] + charged_[2], milliseconds(113));
}

TEST_F(SentAheadBefore, IsOverWhereItsClientSaysSoOnceTheHolderIsHeard) {
  Said(20, Phase::kIdle, kEpoch + 1, milliseconds(20), milliseconds(50));
  Said(30, Phase::kWaiting, 0, Duration(0), Duration(0));
  EXPECT_EQ(scheduler->holder(), PodId{1});
  Said(10, Phase::kIdle, kEpoch, milliseconds(40), milliseconds(70));
  EXPECT_EQ(scheduler->holder(), PodId{3});
  EXPECT_EQ(charged_[1], milliseconds(40));
  EXPECT_EQ(charged_[2], milliseconds(20));
}

TEST_F(SentAheadBefore, IsNobodysWhereBothAreGone) {
  Again(ClientGone{ClientId{20}});
  EXPECT_EQ(scheduler->holder(), PodId{1});
  Again(ClientGone{ClientId{10}});
  EXPECT_FALSE(scheduler->holder());
  Said(30, Phase::kWaiting, 0, Duration(0), Duration(0));
  EXPECT_EQ(scheduler->holder(), PodId{3});
  EXPECT_GT(scheduler->epoch(), kEpoch + 1);
}

class SentAheadLongBefore : public SentAheadBefore {
 protected:
  SentAheadLongBefore() : SentAheadBefore(milliseconds(60)) {}
};

TEST_F(SentAheadLongBefore, BeganWithinWhatTheHolderIsChargedAndThatGetsItBack) {
  Said(10, Phase::kIdle, kEpoch, milliseconds(15), milliseconds(95));
  EXPECT_EQ(scheduler->holder(), PodId{2});
  EXPECT_EQ(charged_[1], Duration(0)) << "the daemon before has watched it for that";
  Said(20, Phase::kDraining, kEpoch + 1, milliseconds(94), Duration(0));
  EXPECT_EQ(charged_[1], -milliseconds(44));
  Again(ClientGone{ClientId{20}});
  EXPECT_EQ(charged_[2], milliseconds(94));
}

// Nothing can be given back to it.
TEST_F(SentAheadLongBefore, IsNotChargedAgainForWhatAHolderThatIsDeletedWasCharged) {
  Again(PodRemoved{PodId{1}});
  now_ += milliseconds(500);
  Again(ClientGone{ClientId{10}});
  ASSERT_EQ(scheduler->holder(), PodId{2});
  now_ += milliseconds(10);
  Said(20, Phase::kIdle, kEpoch + 1, milliseconds(17), milliseconds(400));
  EXPECT_GE(charged_[2], milliseconds(17));
  EXPECT_LE(milliseconds(60) + charged_[1] + charged_[2], now_ - granted_at_);
}

// What it was sent by its request is charged to that, whatever it is when that begins.
TEST_F(SentAhead, WhoIsToBeOfIdlePriorityMeanwhileIsWhenItHasDrained) {
  SendAhead();
  policy::ShareSpec idle{.request = policy::Share(0), .priority = policy::Priority::kIdle};
  Step(PodSet{PodId{2}, policy::Validated(idle).value()});
  Say(10, Phase::kWaiting, Held(granted_at_));
  ASSERT_EQ(Holder(), 2u);
  EXPECT_EQ(told_[20].quota, Duration(0)) << "it ends at once";
  Begin();
  Pass(milliseconds(200));
  Say(20, Phase::kWaiting, Held(began_at_));
  EXPECT_EQ(Holder(), 1u);
  Step(PodSet{PodId{2}, Spec(30)});
  for (const PodStatus& status : scheduler_.Status(now_)) {
    if (status.pod == PodId{2}) {
      EXPECT_LT(status.lag, milliseconds(-60));
    }
  }
}

}  // namespace
}  // namespace baton::scheduler
