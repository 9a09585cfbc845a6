// The token scheduler against scripted clients on virtual time.
#include "scheduler/token_scheduler.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/scheduler/share_spec.h"

namespace baton::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using wire::Phase;

double Seconds(Duration d) { return static_cast<double>(Nanos(d)) / 1e9; }

// One process as its hook behaves: waits when it has work, holds until its deadline or until the
// work runs out, then drains for `drain`.
struct Process {
  PodId pod;
  Duration work = seconds(1000);  // GPU time it wants from now on
  Duration drain = microseconds(300);
  bool answers = true;  // false: stopped
  bool alive = true;
  uint64_t seq = 0;
  uint64_t epoch = 0;
  uint64_t rev = 0;
  Phase phase = Phase::kIdle;
  Instant granted{};
  Instant deadline = kNever;
  Instant drained_at = kNever;
  Duration held{0};  // as the device saw it
};

class World {
 public:
  explicit World(SchedulerOptions o = {}) : options(o), scheduler(o, 0) {}

  void AddPod(uint64_t pod, const policy::ShareSpec& spec) { Step(PodSet{PodId{pod}, spec}); }
  Process& AddProcess(uint64_t client, uint64_t pod) {
    Process& p = processes[client];
    p.pod = PodId{pod};
    Step(ClientAttached{ClientId{client}, PodId{pod}});
    return p;
  }
  void Want(uint64_t client, Duration work) {
    Process& p = processes[client];
    p.work = work;
    if (p.phase == Phase::kIdle) Say(client, Phase::kWaiting, Duration(0));
  }
  void Say(uint64_t client, Phase phase, Duration held) {
    Process& p = processes[client];
    p.phase = phase;
    Step(ClientReport{ClientId{client}, ++p.seq, phase, p.epoch, p.rev, held});
  }

  void Step(const Event& event) {
    Effects effects;
    scheduler.Step(now, event, effects);
    for (const Effect& effect : effects) {
      if (const auto* send = std::get_if<SendToken>(&effect)) {
        // Less would be for a single launch.
        EXPECT_TRUE(send->quota == Duration(0) || send->quota > wire::kSingleLaunch);
        if (lose && lose()) continue;
        inbox.emplace_back(now + link, *send);
      } else if (const auto* notice = std::get_if<Notice>(&effect)) {
        notices.push_back(*notice);
      } else if (const auto* kill = std::get_if<KillClient>(&effect)) {
        killed.insert(kill->client.value);
      }
    }
  }

  // Runs until `end`, in steps of the next thing to happen.
  void Run(Instant end) {
    while (now < end) {
      Instant next = std::min(end, std::max(now, scheduler.wakeup()));
      for (const auto& [at, token] : inbox) next = std::min(next, at);
      for (const auto& [id, p] : processes) {
        if (!p.answers || !p.alive) continue;
        if (p.phase == Phase::kHolding) next = std::min({next, p.deadline, p.granted + p.work});
        if (p.phase == Phase::kDraining) next = std::min(next, p.drained_at);
      }
      BusyUntil(next);
      const bool due = scheduler.wakeup() <= next;
      now = next;
      auto arrived = std::move(inbox);
      inbox.clear();
      for (const auto& item : arrived) {
        if (item.first <= now) {
          Receive(item.second);
        } else {
          inbox.push_back(item);
        }
      }
      for (auto& [id, p] : processes) {
        if (!p.answers || !p.alive) continue;
        if (p.phase == Phase::kHolding && now >= p.granted + p.work) {
          p.work = Duration(0);
          Say(id, Phase::kIdle, now - p.granted);
        } else if (p.phase == Phase::kHolding && now >= p.deadline) {
          p.drained_at = now + p.drain;
          Say(id, Phase::kDraining, Duration(0));
        } else if (p.phase == Phase::kDraining && now >= p.drained_at) {
          p.work -= std::min(p.work, now - p.granted);
          Say(id, p.work > Duration(0) ? Phase::kWaiting : Phase::kIdle, now - p.granted);
        }
      }
      if (due) Step(Tick{});
      CheckExclusive();
    }
  }

  double Share(uint64_t client) { return Seconds(processes[client].held); }
  bool Saw(Notice::Kind kind) const {
    for (const Notice& n : notices) {
      if (n.kind == kind) return true;
    }
    return false;
  }

  SchedulerOptions options;
  TokenScheduler scheduler;
  Instant now{};
  Duration link = microseconds(50);
  std::map<uint64_t, Process> processes;
  std::vector<std::pair<Instant, SendToken>> inbox;
  std::vector<Notice> notices;
  std::set<uint64_t> killed;
  std::function<bool()> lose;

 private:
  void Receive(const SendToken& token) {
    Process& p = processes[token.client.value];
    if (!p.alive || !p.answers) return;
    if (std::pair(token.epoch, token.rev) <= std::pair(p.epoch, p.rev)) return;
    const bool fresh = token.epoch != p.epoch;
    p.epoch = token.epoch;
    p.rev = token.rev;
    if (p.phase == Phase::kIdle || token.quota == Duration(0)) {
      if (p.phase == Phase::kHolding) p.deadline = now;
      Say(token.client.value, p.phase, Duration(0));
      return;
    }
    p.deadline = now + token.quota;
    if (fresh) p.granted = now;
    Say(token.client.value, Phase::kHolding, Duration(0));
  }
  void BusyUntil(Instant next) {
    for (auto& [id, p] : processes) {
      if (p.phase == Phase::kHolding || p.phase == Phase::kDraining) p.held += next - now;
    }
  }
  void CheckExclusive() {
    std::set<uint64_t> pods;
    for (auto& [id, p] : processes) {
      if (p.alive && (p.phase == Phase::kHolding || p.phase == Phase::kDraining)) {
        pods.insert(p.pod.value);
      }
    }
    ASSERT_LE(pods.size(), 1u) << "two pods hold at " << Nanos(now);
  }
};

// Three pods that always have work.
struct Three : World {
  explicit Three(SchedulerOptions o = {}) : World(o) {
    AddPod(1, Spec(60));
    AddPod(2, Spec(30));
    AddPod(3, Spec(10));
    for (uint64_t i = 1; i <= 3; ++i) AddProcess(i, i);
    for (uint64_t i = 1; i <= 3; ++i) Want(i, seconds(1000));
  }
};

TEST(TokenScheduler, SixtyThirtyTenComesOutAsAsked) {
  Three world;
  world.Run(Instant(seconds(20)));
  EXPECT_NEAR(world.Share(1), 12.0, 0.15);
  EXPECT_NEAR(world.Share(2), 6.0, 0.08);
  EXPECT_NEAR(world.Share(3), 2.0, 0.04);
}

// Whose memory has no room stands aside, its token ends, and the others share the time.
TEST(TokenScheduler, APodThatIsHeldBackGetsNoTokenUntilItIsNot) {
  Three world;
  world.Run(Instant(seconds(1)));
  world.Step(PodHeldBack{PodId{1}, true});
  world.Run(Instant(milliseconds(1100)));
  const double before = world.Share(1);
  EXPECT_NE(world.scheduler.holder(), PodId{1});
  world.Run(Instant(seconds(11)));
  EXPECT_EQ(world.Share(1), before);
  EXPECT_GT(world.Share(2) + world.Share(3), 10.2);
  EXPECT_EQ(world.scheduler.Invariants(), std::nullopt);
  // Those who had the time lose none of their requests to it when it is back.
  const double two = world.Share(2);
  world.Step(PodHeldBack{PodId{1}, false});
  world.Run(Instant(seconds(21)));
  EXPECT_NEAR(world.Share(1) - before, 6.0, 0.3);
  EXPECT_NEAR(world.Share(2) - two, 3.0, 0.3);
}

TEST(TokenScheduler, NobodyWaitingNobodyInterrupted) {
  World world;
  world.AddPod(1, Spec(30));
  world.AddProcess(1, 1);
  world.Want(1, seconds(1000));
  world.Run(Instant(seconds(10)));
  EXPECT_EQ(world.scheduler.epoch(), 1u) << "extended, never drained";
  EXPECT_GT(world.Share(1), 9.99);
}

TEST(TokenScheduler, AStrictPodStaysAtItsLimitAlone) {
  World world;
  world.AddPod(1, Spec(30, 30));
  world.AddProcess(1, 1);
  world.Want(1, seconds(1000));
  world.Run(Instant(seconds(20)));
  EXPECT_NEAR(world.Share(1), 6.0, 0.1);
}

TEST(TokenScheduler, AnInteractivePodIsServedSoonBesideSaturatingOnes) {
  World world;
  world.AddPod(1, Spec(45));
  world.AddPod(2, Spec(45));
  world.AddPod(3, Spec(10));
  for (uint64_t i = 1; i <= 3; ++i) world.AddProcess(i, i);
  world.Want(1, seconds(1000));
  world.Want(2, seconds(1000));
  std::vector<Duration> waits;
  for (int i = 0; i < 200; ++i) {
    world.Run(world.now + milliseconds(200 + i % 17));
    const Instant asked = world.now;
    world.Want(3, milliseconds(5));
    world.Run(world.now + milliseconds(100));
    ASSERT_EQ(world.processes[3].phase, Phase::kIdle);
    waits.push_back(world.processes[3].granted - asked);
  }
  std::sort(waits.begin(), waits.end());
  EXPECT_LE(waits[waits.size() * 99 / 100], milliseconds(26));
}

// 2 ms of work, then a gap: half of the GPU serves the work in 4 ms. Neither a saturating pod's
// long tokens nor the least token that an ordinary cut leaves may stand in its way.
TEST(TokenScheduler, WhoPausesBetweenTwoPiecesOfWorkGetsItsRequest) {
  for (const Duration gap : {microseconds(600), microseconds(1'100), microseconds(8'000)}) {
    World world;
    world.AddPod(1, Spec(50));
    world.AddPod(2, Spec(50));
    world.AddProcess(1, 1);
    world.AddProcess(2, 2);
    world.Want(1, seconds(1000));
    world.Want(2, milliseconds(2));
    constexpr int kRounds = 400;
    for (int i = 0; i < kRounds; ++i) {
      while (world.processes[2].phase != Phase::kIdle) world.Run(world.now + microseconds(20));
      world.Run(world.now + gap);
      world.Want(2, milliseconds(2));
    }
    const double round = 1e3 * Seconds(world.now.time_since_epoch()) / kRounds;
    const double fluid = 4 + 1e3 * Seconds(gap);
    EXPECT_LE(round, fluid / 0.85) << Nanos(gap);
    EXPECT_GE(round, fluid * 0.9) << Nanos(gap);
    EXPECT_GE(world.Share(1), 0.9 * (fluid - 2) / 1e3 * kRounds) << Nanos(gap);
  }
}

// However much is owed to those that come from pauses, a token is worth its hand-off.
TEST(TokenScheduler, ATokenThatIsCutForARequestIsWorthItsHandOff) {
  World world;
  world.AddPod(1, Spec(1));
  world.AddPod(2, Spec(99));
  world.AddProcess(1, 1);
  world.AddProcess(2, 2);
  world.Want(1, seconds(1000));
  world.Want(2, milliseconds(2));
  for (int i = 0; i < 100; ++i) {
    while (world.processes[2].phase != Phase::kIdle) world.Run(world.now + microseconds(20));
    world.Run(world.now + microseconds(100));
    world.Want(2, milliseconds(2));
  }
  // Of each, 0.3 ms are its drain.
  EXPECT_GE(world.Share(1) * 1e3, 0.6 * world.scheduler.Status(world.now)[0].grants);
}

TEST(TokenScheduler, WhoBeginsToWaitIsNotOwedWhatTheHolderHadBefore) {
  World world;
  world.AddPod(1, Spec(50));
  world.AddPod(2, Spec(50));
  world.AddProcess(1, 1);
  world.AddProcess(2, 2);
  world.Want(1, seconds(1000));
  world.Run(Instant(milliseconds(500)));
  world.Want(2, milliseconds(50));
  const PodStatus late = world.scheduler.Status(world.now)[1];
  ASSERT_TRUE(late.waiting);
  EXPECT_EQ(late.owed_of_request, Duration(0));
}

// What a pod held while nobody else wanted the GPU says nothing of how long it holds beside others:
// nobody is owed more for it.
TEST(TokenScheduler, AHoldThatWasExtendedIsNoLongHold) {
  World world;
  world.AddPod(1, Spec(20));
  world.AddPod(2, Spec(80));
  world.AddProcess(1, 1);
  world.AddProcess(2, 2);
  world.Want(1, seconds(1000));
  world.Run(Instant(seconds(2)));
  world.Want(2, seconds(1000));
  Duration most{0};
  for (int i = 0; i < 3'000; ++i) {
    world.Run(world.now + milliseconds(1));
    for (const PodStatus& s : world.scheduler.Status(world.now)) {
      most = std::max({most, s.owed_of_request, s.lag});
    }
  }
  EXPECT_LE(most, milliseconds(60));
}

// It may come back any moment: who holds meanwhile should not be far ahead of the GPU.
TEST(TokenScheduler, WhoHoldsBesideAPodThatRestsIsToldOfARival) {
  World world;
  world.AddPod(1, Spec(50));
  world.AddPod(2, Spec(50));
  world.AddProcess(1, 1);
  world.AddProcess(2, 2);
  std::vector<bool> contended;
  for (const Duration pause : {milliseconds(1), milliseconds(200)}) {
    world.Want(2, milliseconds(2));
    world.Run(world.now + milliseconds(5) + pause);
    ASSERT_EQ(world.processes[2].phase, Phase::kIdle);
    world.Want(1, milliseconds(2));
    ASSERT_EQ(world.inbox.size(), 1u);
    contended.push_back(world.inbox[0].second.contended);
    world.Run(world.now + seconds(1));
  }
  EXPECT_EQ(contended, (std::vector<bool>{true, false}));
}

// Many small limits must not chop the GPU's time into hand-offs.
TEST(TokenScheduler, AStrictPodDrawsInAdvanceWhereOthersWait) {
  World world;
  for (uint64_t i = 1; i <= 50; ++i) {
    world.AddPod(i, Spec(2, 2));
    world.AddProcess(i, i);
    world.Want(i, seconds(1000));
  }
  world.Run(Instant(seconds(20)));
  for (const PodStatus& s : world.scheduler.Status(world.now)) {
    EXPECT_NEAR(Seconds(s.held), 0.4, 0.03) << "its limit";
    EXPECT_GT(1e3 * Seconds(s.held) / static_cast<double>(s.grants), 10) << "a bucket is 4 ms";
  }
}

// Its tokens are short. Were it predicted to hold for longer, others would always come first.
TEST(TokenScheduler, APodOfTheLeastLimitHasItsRequestBesideSeveral) {
  World world;
  world.AddPod(1, Spec(0.1, 0.1));
  for (uint64_t i = 2; i <= 6; ++i) world.AddPod(i, Spec(19.98));
  for (uint64_t i = 1; i <= 6; ++i) {
    world.AddProcess(i, i);
    world.Want(i, seconds(1000));
  }
  world.Run(Instant(seconds(60)));
  EXPECT_NEAR(1e3 * world.Share(1), 60, 6) << "ms";
}

TEST(TokenScheduler, FourProcessesOfAPodShareOneShare) {
  World world;
  world.AddPod(1, Spec(50));
  world.AddPod(2, Spec(50));
  for (uint64_t i = 1; i <= 4; ++i) world.AddProcess(i, 1);
  world.AddProcess(5, 2);
  for (uint64_t i = 1; i <= 5; ++i) world.Want(i, seconds(1000));
  world.Run(Instant(seconds(10)));
  EXPECT_NEAR(world.Share(5), 5.0, 0.1);
  for (uint64_t i = 1; i <= 4; ++i) EXPECT_NEAR(world.Share(i), 5.0, 0.1) << "at the same time";
}

TEST(TokenScheduler, AHighPriorityPodRevokesALowOne) {
  World world;
  world.AddPod(1, Spec(50));
  world.AddPod(2, Spec(20, 100, policy::Priority::kHigh));
  world.AddProcess(1, 1);
  world.AddProcess(2, 2);
  world.Want(1, seconds(1000));
  world.Run(Instant(milliseconds(501)));
  const Instant asked = world.now;
  world.Want(2, milliseconds(5));
  world.Run(world.now + milliseconds(50));
  EXPECT_LE(world.processes[2].granted - asked, milliseconds(1));
  EXPECT_TRUE(world.Saw(Notice::Kind::kRevoked));
}

TEST(TokenScheduler, TheDeadHoldNothing) {
  Three world;
  world.Run(Instant(milliseconds(7)));
  const PodId holder = world.scheduler.holder().value();
  world.processes[holder.value].alive = false;
  world.Step(ClientDisconnected{ClientId{holder.value}});
  EXPECT_EQ(world.scheduler.holder(), holder) << "a closed socket is a hint, not proof";
  world.Step(ClientGone{ClientId{holder.value}});
  ASSERT_TRUE(world.scheduler.holder().has_value());
  EXPECT_NE(world.scheduler.holder(), holder) << "granted in the same step";
}

TEST(TokenScheduler, AHolderThatHangsIsReportedOnceAndKilledWhereThatIsConfigured) {
  for (const bool kill : {false, true}) {
    SchedulerOptions options;
    options.drain_timeout = seconds(1);
    options.drain_kill = kill;
    Three world(options);
    world.Run(Instant(milliseconds(7)));
    const PodId holder = world.scheduler.holder().value();
    world.processes[holder.value].answers = false;
    world.Run(Instant(seconds(5)));
    EXPECT_EQ(world.scheduler.holder(), holder) << "nothing moves before it drained or died";
    int hung = 0;
    for (const Notice& n : world.notices) hung += n.kind == Notice::Kind::kHung;
    EXPECT_EQ(hung, 1);
    EXPECT_EQ(world.killed.size(), kill ? 1u : 0u);
    for (const PodStatus& pod : world.scheduler.Status(world.now)) {
      if (pod.pod != holder) continue;
      EXPECT_GE(pod.held, seconds(5) - milliseconds(7) - 2 * options.quota_max)
          << "the books of a daemon that ends now are not further behind than by a token";
    }
    // It is continued: what it says next is that its deadline is long over.
    world.processes[holder.value].answers = true;
    world.Run(Instant(seconds(6)));
    EXPECT_NE(world.scheduler.epoch(), 1u);
  }
}

TEST(TokenScheduler, LostTokensAreSentAgain) {
  Three world;
  std::mt19937 random(7);
  world.lose = [&] { return random() % 4 == 0; };
  // A hook's heartbeat: its state again, whatever it is.
  for (int i = 0; i < 200; ++i) {
    world.Run(world.now + milliseconds(100));
    for (auto& [id, p] : world.processes) world.Say(id, p.phase, Duration(0));
  }
  EXPECT_GT(world.scheduler.epoch(), 20u) << "it goes on";
}

TEST(TokenScheduler, RepeatedAndOutdatedReportsChangeNothing) {
  Three world;
  world.Run(Instant(milliseconds(100)));
  const uint64_t epoch = world.scheduler.epoch();
  const uint64_t holder = world.scheduler.holder()->value;
  Effects effects;
  for (uint64_t seq = 0; seq <= world.processes[holder].seq; ++seq) {
    world.scheduler.Step(
        world.now, ClientReport{ClientId{holder}, seq, Phase::kIdle, epoch, 9, milliseconds(1)},
        effects);
  }
  EXPECT_EQ(world.scheduler.epoch(), epoch);
  EXPECT_EQ(world.scheduler.holder()->value, holder);
}

TEST(TokenScheduler, AReturnThatCrossesAnExtensionIsNotTakenForTheReturnOfIt) {
  World world;
  world.AddPod(1, Spec(80));
  world.AddPod(2, Spec(20));
  world.AddProcess(1, 1);
  world.AddProcess(2, 2);
  world.Want(1, seconds(1000));
  world.Want(2, seconds(1000));
  std::optional<SendToken> extension;
  while (!extension) {
    world.Run(world.now + microseconds(10));
    for (const auto& [at, token] : world.inbox) {
      const bool holds = world.processes[token.client.value].phase == Phase::kHolding;
      if (token.rev > 1 && token.quota > Duration(0) && holds) extension = token;
    }
    ASSERT_LT(world.now, Instant(seconds(2)));
  }
  // In flight is "go on until ..."; it has not arrived when its receiver says that it drained.
  const uint64_t holder = extension->client.value;
  ASSERT_EQ(world.processes[holder].rev, extension->rev - 1);
  world.Say(holder, Phase::kWaiting, milliseconds(10));
  EXPECT_EQ(world.scheduler.holder()->value, holder);
  EXPECT_EQ(world.scheduler.epoch(), extension->epoch);
}

TEST(TokenScheduler, WhileTheLinkIsCutNobodyIsLateToDrain) {
  SchedulerOptions options;
  options.drain_timeout = seconds(2);
  options.drain_kill = true;
  Three world(options);
  world.Run(Instant(milliseconds(7)));
  const PodId holder = world.scheduler.holder().value();
  world.processes[holder.value].answers = false;  // what it says does not arrive
  world.Step(LinkCut{true});
  world.Run(Instant(seconds(10)));
  EXPECT_EQ(world.scheduler.holder(), holder);
  world.Step(LinkCut{false});
  world.Run(Instant(milliseconds(10'500)));
  EXPECT_TRUE(world.killed.empty());
  EXPECT_FALSE(world.Saw(Notice::Kind::kHung));
  world.Run(Instant(seconds(13)));
  EXPECT_EQ(world.killed.size(), 1u) << "but it has no longer than others";
}

TEST(TokenScheduler, ALinkThatIsCutAgainAndAgainDoesNotKeepAHungHolder) {
  SchedulerOptions options;
  options.drain_timeout = seconds(5);
  options.drain_kill = true;
  Three world(options);
  world.Run(Instant(milliseconds(7)));
  world.processes[world.scheduler.holder().value().value].answers = false;
  world.Run(Instant(seconds(1)));
  for (int i = 0; i < 10 && world.killed.empty(); ++i) {
    world.Step(LinkCut{true});
    world.Run(world.now + seconds(2));
    world.Step(LinkCut{false});
    world.Run(world.now + milliseconds(1'500));
  }
  EXPECT_EQ(world.killed.size(), 1u);
  EXPECT_LT(world.now, Instant(seconds(5 + 3 * 2 + 2))) << "the time of the cuts, and its own";
}

TEST(TokenScheduler, AHangIsReportedThoughASiblingIsParked) {
  SchedulerOptions options;
  options.drain_timeout = seconds(1);
  World world(options);
  world.AddPod(1, Spec(50));
  world.AddPod(2, Spec(50));
  for (uint64_t i = 1; i <= 2; ++i) world.AddProcess(i, 1);
  world.AddProcess(3, 2);
  for (uint64_t i = 1; i <= 3; ++i) world.Want(i, seconds(1000));
  world.Run(Instant(milliseconds(1)));
  world.processes[1].drain = seconds(1000);
  world.Run(Instant(seconds(3)));
  EXPECT_TRUE(world.Saw(Notice::Kind::kHung));
}

TEST(TokenScheduler, ADrainStuckBehindALaunchOfTheSamePodIsReopened) {
  World world;
  world.AddPod(1, Spec(50));
  world.AddPod(2, Spec(50));
  for (uint64_t i = 1; i <= 2; ++i) world.AddProcess(i, 1);
  world.AddProcess(3, 2);
  for (uint64_t i = 1; i <= 3; ++i) world.Want(i, seconds(1000));
  world.Run(Instant(milliseconds(1)));
  ASSERT_EQ(world.scheduler.holder(), PodId{1});
  world.processes[1].drain = seconds(100);  // a kernel that waits for the other's next launch
  world.Run(Instant(milliseconds(300)));
  EXPECT_TRUE(world.Saw(Notice::Kind::kReopened));
  EXPECT_EQ(world.scheduler.holder(), PodId{1});
}

TEST(TokenScheduler, ARemovedPodGivesItsTokenBackFirst) {
  Three world;
  world.Run(Instant(milliseconds(3)));
  const PodId holder = world.scheduler.holder().value();
  world.processes[holder.value].work = milliseconds(50);
  world.Step(PodRemoved{holder});
  EXPECT_EQ(world.scheduler.holder(), holder);
  world.Run(world.now + milliseconds(10));
  EXPECT_NE(world.scheduler.holder(), holder);
  EXPECT_EQ(world.scheduler.Status(world.now).size(), 2u);
}

TEST(TokenScheduler, AShareChangedInPlaceIsFollowed) {
  Three world;
  world.Run(Instant(seconds(2)));
  world.Step(PodSet{PodId{1}, Spec(30)});
  world.Step(PodSet{PodId{2}, Spec(60)});
  const Duration before = world.processes[2].held;
  world.Run(Instant(seconds(12)));
  EXPECT_NEAR(Nanos(world.processes[2].held - before) / 1e10, 0.6, 0.02);
}

}  // namespace
}  // namespace baton::scheduler
