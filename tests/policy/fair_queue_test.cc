// Examples of fairness: shares in, ratios out. Time is a number here; nothing sleeps.
#include "policy/fair_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

namespace baton::policy {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Share Percent(uint32_t percent) { return kWhole * percent / 100; }

// A GPU that grants `quantum` at a time to whoever the queue picks.
class Gpu {
 public:
  Slot Add(Share request, Share limit, Priority priority = Priority::kNormal, uint32_t team = 0) {
    const auto spec =
        Validated({.request = request, .limit = limit, .priority = priority, .team = team});
    const Slot slot = queue.Add(PodId{++pods_}, spec.value(), now);
    held.resize(std::max<size_t>(held.size(), slot + 1));
    return slot;
  }
  void Wake(Slot slot, Duration burst) {
    queue.SetActive(slot, true);
    queue.SetWaiting(slot, true, burst);
  }
  void Sleep(Slot slot) { queue.SetActive(slot, false); }

  // Serves until `end`, `quantum` at a time.
  void Run(Instant end, Duration quantum = milliseconds(20)) {
    while (now < end) {
      const auto slot = queue.Pick(now);
      if (!slot) {
        now = std::min(end, std::max(queue.NextRefill(), now + Duration(1)));
        continue;
      }
      const Duration hold = std::min(quantum, queue.Allowance(*slot, now));
      now += hold;
      queue.Charge(*slot, hold, now);
      held[*slot] += hold;
      queue.SetWaiting(*slot, true, quantum);
    }
  }
  double Share_(Slot slot, Duration window) const {
    return static_cast<double>(Nanos(held[slot])) / static_cast<double>(Nanos(window));
  }

  FairQueue queue{FairQueueOptions{}};
  Instant now{};
  std::vector<Duration> held;

 private:
  uint64_t pods_ = 0;
};

TEST(FairQueue, SaturatingPodsGetTheirRequestsEvenAboveHalf) {
  Gpu gpu;
  const Slot a = gpu.Add(Percent(60), kWhole);
  const Slot b = gpu.Add(Percent(30), kWhole);
  const Slot c = gpu.Add(Percent(10), kWhole);
  for (const Slot s : {a, b, c}) gpu.Wake(s, milliseconds(20));
  gpu.Run(Instant(seconds(20)));
  EXPECT_NEAR(gpu.Share_(a, seconds(20)), 0.60, 0.002);
  EXPECT_NEAR(gpu.Share_(b, seconds(20)), 0.30, 0.002);
  EXPECT_NEAR(gpu.Share_(c, seconds(20)), 0.10, 0.002);
}

TEST(FairQueue, AStrictPodStopsAtItsLimitOnAnIdleGpu) {
  Gpu gpu;
  const Slot a = gpu.Add(Percent(30), Percent(30));
  gpu.Wake(a, milliseconds(20));
  gpu.Run(Instant(seconds(20)));
  EXPECT_NEAR(gpu.Share_(a, seconds(20)), 0.30, 0.003);
}

TEST(FairQueue, ANewPodMayHoldAtOnceAsMuchAsItsLimitSavesUp) {
  Gpu gpu;
  const Slot a = gpu.Add(Percent(30), Percent(30));
  gpu.Wake(a, milliseconds(20));
  EXPECT_EQ(gpu.queue.Allowance(a, gpu.now), milliseconds(60));
  gpu.Run(Instant(milliseconds(60)));
  EXPECT_EQ(gpu.held[a], milliseconds(60));
}

TEST(FairQueue, WhatAStrictPodLeavesGoesToTheOthers) {
  Gpu gpu;
  const Slot strict = gpu.Add(Percent(30), Percent(30));
  const Slot elastic = gpu.Add(Percent(10), kWhole);
  gpu.Wake(strict, milliseconds(20));
  gpu.Wake(elastic, milliseconds(20));
  gpu.Run(Instant(seconds(20)));
  EXPECT_NEAR(gpu.Share_(strict, seconds(20)), 0.30, 0.005);
  EXPECT_NEAR(gpu.Share_(elastic, seconds(20)), 0.70, 0.005);
}

// It was owed time only by what the other one was charged too much.
TEST(FairQueue, WhoIsAheadAgainByARefundWaits) {
  Gpu gpu;
  const Slot holder = gpu.Add(Percent(10), kWhole), ahead = gpu.Add(Percent(10), kWhole),
             owed = gpu.Add(Percent(10), kWhole);
  gpu.Wake(holder, milliseconds(60));
  gpu.Wake(ahead, milliseconds(1));
  gpu.Wake(owed, milliseconds(50));
  gpu.queue.Charge(ahead, milliseconds(3), gpu.now);
  gpu.queue.Charge(holder, milliseconds(9), gpu.now);
  EXPECT_EQ(gpu.queue.Pick(gpu.now), ahead) << "it is owed 1 ms, and has the least to do";
  gpu.queue.Charge(holder, -milliseconds(9), gpu.now);
  EXPECT_LT(gpu.queue.Lag(ahead), Duration(0));
  EXPECT_EQ(gpu.queue.Pick(gpu.now), owed);
}

// Whatever its predicted hold is, and however much of its bucket it has used.
TEST(FairQueue, APodIsAtItsLimitExactlyWhereItIsNotPicked) {
  std::mt19937 random(7);
  int left_out = 0;
  for (int i = 0; i < 2'000; ++i) {
    Gpu gpu;
    const Share limit = Percent(1 + random() % 100);
    const Slot pod = gpu.Add(std::min(limit, Percent(10)), limit);
    gpu.Wake(pod, milliseconds(1 + random() % 50));
    gpu.queue.Charge(pod, milliseconds(random() % 100), gpu.now);
    gpu.now += milliseconds(random() % 200);
    const bool at_limit = (gpu.now < gpu.queue.MayGoAt(pod));
    left_out += at_limit ? 1 : 0;
    ASSERT_EQ(!gpu.queue.Pick(gpu.now), at_limit) << i;
    ASSERT_EQ((gpu.now < gpu.queue.MayGoAt(pod)), at_limit) << i;
    if (!at_limit) continue;
    EXPECT_FALSE(gpu.queue.NextRefill() < gpu.queue.MayGoAt(pod));
  }
  EXPECT_GT(left_out, 100);
  EXPECT_LT(left_out, 1'900);
}

// All that a restarted daemon needs to know of a limit is one instant.
TEST(FairQueue, WhenALimitIsFullSaysWhatItAllowsUntilThen) {
  std::mt19937 random(7);
  for (const uint32_t percent : {1, 30, 99}) {
    Gpu gpu;
    const Slot slot = gpu.Add(Percent(1), Percent(percent));
    gpu.queue.SetActive(slot, true);
    for (int i = 0; i < 300; ++i) {
      gpu.now += Duration(random() % 50'000'000);
      gpu.queue.Charge(slot, Duration(static_cast<int64_t>(random() % 50'000'000) - 5'000'000),
                       gpu.now);
      Gpu restarted;
      restarted.now = gpu.now + Duration(random() % 100'000'000);
      const Slot again =
          restarted.queue.Add(PodId{1}, gpu.queue.spec(slot), restarted.now, Claims::kAlways,
                              {.limit_full_at = gpu.queue.LimitFullAt(slot)});
      const Duration difference = gpu.queue.Allowance(slot, restarted.now) -
                                  restarted.queue.Allowance(again, restarted.now);
      EXPECT_LE(std::abs(Nanos(difference)), 3);
    }
    const Instant full = gpu.queue.LimitFullAt(slot);
    const Duration most = gpu.queue.Allowance(slot, full + seconds(1));
    EXPECT_EQ(gpu.queue.Allowance(slot, std::max(gpu.now, full)), most);
  }
}

TEST(FairQueue, APodAtItsLimitIsNotOwedEverMoreForWhatItsLimitKeptItFrom) {
  Gpu gpu;
  const Slot strict = gpu.Add(Percent(30), Percent(30));
  const Slot slow = gpu.Add(Percent(70), kWhole);
  gpu.Wake(strict, milliseconds(20));
  gpu.Wake(slow, milliseconds(500));
  // Its bucket of 60 ms overflows while the other holds for half a second.
  for (int i = 0; i < 1'000; ++i) {
    const Slot slot = gpu.queue.Pick(gpu.now).value();
    const Duration hold = milliseconds(slot == strict ? 20 : 500);
    gpu.now += hold;
    gpu.held[slot] += hold;
    gpu.queue.Charge(slot, hold, gpu.now);
  }
  EXPECT_LT(gpu.Share_(strict, gpu.now - Instant{}), 0.2);
  EXPECT_LT(gpu.queue.Lag(strict), milliseconds(200));
  EXPECT_GT(gpu.queue.Lag(slow), -milliseconds(200));
}

TEST(FairQueue, AReturningSleeperTakesNoMoreThanItsCredit) {
  Gpu gpu;
  const Slot busy = gpu.Add(Percent(50), kWhole);
  const Slot sleeper = gpu.Add(Percent(50), kWhole);
  gpu.Wake(busy, milliseconds(20));
  gpu.Run(Instant(seconds(100)));
  gpu.Wake(sleeper, milliseconds(20));
  gpu.Run(Instant(seconds(101)));
  // Half of one second, plus the credit of half of 250 ms, which moves at most itself.
  EXPECT_LE(gpu.held[sleeper], milliseconds(500 + 125 + 20));
  EXPECT_GE(gpu.held[sleeper], milliseconds(500));
}

TEST(FairQueue, ADebtOutlivesASleep) {
  Gpu gpu;
  const Slot a = gpu.Add(Percent(50), kWhole);
  const Slot b = gpu.Add(Percent(50), kWhole);
  for (const Slot s : {a, b}) gpu.Wake(s, milliseconds(20));
  ASSERT_EQ(gpu.queue.Pick(gpu.now), a);
  gpu.queue.Charge(a, seconds(2), gpu.now);  // one kernel that ran for two seconds
  const Duration debt = gpu.queue.Lag(a);
  EXPECT_LT(debt, -milliseconds(900));
  gpu.Sleep(a);
  gpu.Wake(a, milliseconds(20));
  EXPECT_NEAR(static_cast<double>(Nanos(gpu.queue.Lag(a) - debt)), 0, 5)
      << "none of it is forgiven";
  EXPECT_NEAR(static_cast<double>(Nanos(gpu.queue.Lag(b) + debt)), 0, 5) << "b is owed it";
  gpu.Run(Instant(milliseconds(1900)));
  EXPECT_LE(gpu.held[a], milliseconds(20));
}

TEST(FairQueue, NapsForgiveNoDebt) {
  Gpu gpu;
  const Slot a = gpu.Add(Percent(50), kWhole);
  const Slot b = gpu.Add(Percent(30), kWhole);
  const Slot c = gpu.Add(Percent(20), kWhole);
  for (const Slot s : {a, b, c}) gpu.Wake(s, milliseconds(20));
  gpu.queue.Pick(gpu.now);
  gpu.queue.Charge(a, seconds(2), gpu.now);
  const Duration debt = gpu.queue.Lag(a);
  for (int nap = 0; nap < 100; ++nap) {
    gpu.Sleep(a);
    gpu.queue.Pick(gpu.now);
    gpu.Wake(a, milliseconds(20));
    gpu.queue.Pick(gpu.now);
  }
  EXPECT_NEAR(static_cast<double>(Nanos(gpu.queue.Lag(a) - debt)), 0, 500);
}

// Its request is all that it has for a while, for it had much of what the other one left.
TEST(FairQueue, WhoGoesForItsRequestIsForgivenBeyondM) {
  Gpu gpu;
  const auto add = [&](uint64_t id, uint32_t weight) {
    const Slot slot =
        gpu.queue.Add(PodId{id}, {.request = Percent(30), .slack_weight = weight}, {});
    gpu.Wake(slot, milliseconds(20));
    return slot;
  };
  const Slot a = add(1, 1);
  const Slot b = add(2, kMillion);
  for (int i = 0; i < 50; ++i) {
    gpu.queue.Charge(a, milliseconds(20), gpu.now);
    gpu.queue.SetWaiting(a, true, milliseconds(20));
  }
  while (*gpu.queue.Pick(gpu.now) != a) gpu.queue.Charge(b, milliseconds(20), gpu.now);
  EXPECT_NEAR(static_cast<double>(Nanos(gpu.queue.Lag(a))), -1e8, 1e3) << "M is 100 ms";
}

// A gang, which stands in line for the moment only in which its place is found out.
TEST(FairQueue, WhoIsRankedComesBeforeHighPriorityWhenItIsFarBehindItsRequest) {
  FairQueueOptions options;
  options.priority_burst = seconds(10);
  FairQueue queue(options);
  const Slot high = queue.Add(
      PodId{1}, *Validated({.request = Percent(50), .priority = Priority::kHigh}), Instant{});
  const Slot gang =
      queue.Add(PodId{2}, *Validated({.request = Percent(20)}), Instant{}, Claims::kWhenRanked);
  for (const Slot s : {high, gang}) queue.SetActive(s, true);
  queue.SetWaiting(high, true, milliseconds(20));
  queue.SetWork(gang, true, milliseconds(20));
  EXPECT_TRUE(queue.MayRevoke(high, gang)) << "it is owed nothing yet";
  const auto ranked_first = [&] {
    queue.SetWaiting(gang, true, milliseconds(20));
    const bool first = queue.Pick(Instant{}) == gang;
    queue.SetWaiting(gang, false, milliseconds(20));
    return first;
  };
  int waited_ms = 0;
  for (; !ranked_first() && waited_ms < 1'000; ++waited_ms) {
    EXPECT_EQ(queue.Pick(Instant{}), high) << "nobody waits for the gang";
    queue.Charge(high, milliseconds(1), Instant{});
  }
  EXPECT_EQ(waited_ms, 500) << "until it is owed 100 ms of a fifth";
  EXPECT_EQ(queue.Pick(Instant{}), high) << "for it is not ranked now";
  queue.Charge(gang, milliseconds(20), Instant{});
  EXPECT_FALSE(ranked_first());
  EXPECT_FALSE(queue.MayRevoke(high, gang)) << "it is owed more than M / 2";
}

TEST(FairQueue, WhatOneThatIsRankedIsOwedElsewhereCounts) {
  FairQueueOptions options;
  options.priority_burst = seconds(10);
  FairQueue queue(options);
  const Slot high = queue.Add(
      PodId{1}, *Validated({.request = Percent(25), .priority = Priority::kHigh}), Instant{});
  const Slot gang =
      queue.Add(PodId{2}, *Validated({.request = Percent(25)}), Instant{}, Claims::kWhenRanked);
  for (const Slot s : {high, gang}) queue.SetActive(s, true);
  for (const Slot s : {high, gang}) queue.SetWaiting(s, true, milliseconds(20));
  const auto goes_and_stays = [&](BehindBy elsewhere) {
    queue.SetElsewhere(gang, elsewhere);
    return std::pair(queue.Pick(Instant{}) == gang, !queue.MayRevoke(high, gang));
  };
  EXPECT_EQ(goes_and_stays(BehindBy::kLittle), std::pair(false, false));
  EXPECT_EQ(goes_and_stays(BehindBy::kHalf), std::pair(false, true));
  EXPECT_EQ(goes_and_stays(BehindBy::kAll), std::pair(true, true));
}

// Who naps is far behind again each time it comes back, by no more than a nap may leave it.
TEST(FairQueue, WhoIsRankedComesBeforeOneThatNapsWhenItIsFurtherBehind) {
  FairQueue queue(FairQueueOptions{});
  const Slot napping = queue.Add(PodId{1}, *Validated({.request = Percent(75)}), Instant{});
  const Slot gang =
      queue.Add(PodId{2}, *Validated({.request = Percent(20)}), Instant{}, Claims::kWhenRanked);
  const Slot other = queue.Add(PodId{3}, *Validated({.request = Percent(5)}), Instant{});
  for (const Slot s : {napping, gang, other}) queue.SetActive(s, true);
  queue.SetWaiting(napping, true, milliseconds(20));
  queue.SetWork(gang, true, milliseconds(20));
  for (int i = 0; i < 500; ++i) queue.Charge(other, milliseconds(20), Instant{});
  const auto first = [&] {
    queue.SetWaiting(gang, true, milliseconds(20));
    const auto picked = queue.Pick(Instant{});
    queue.SetWaiting(gang, false, milliseconds(20));
    return picked;
  };
  EXPECT_EQ(first(), napping);
  queue.SetWaiting(napping, false, milliseconds(20));
  queue.SetActive(napping, false);
  queue.SetActive(napping, true);
  queue.SetWaiting(napping, true, milliseconds(20));
  for (int i = 0; i < 7; ++i) queue.Charge(other, milliseconds(20), Instant{});
  EXPECT_GE(queue.requests().Owed(napping), milliseconds(100)) << "M";
  EXPECT_EQ(first(), gang);
}

TEST(FairQueue, ALimitThatIsUsedUpElsewhereStaysSo) {
  FairQueue queue(FairQueueOptions{});
  const ShareSpec spec = *Validated({.request = Percent(50), .limit = Percent(50)});
  const Slot pod = queue.Add(PodId{1}, spec, Instant{});
  const Duration whole = queue.Allowance(pod, Instant{});
  queue.Update(pod, spec, Instant{}, Instant{milliseconds(10)});
  EXPECT_EQ(queue.Allowance(pod, Instant{}), whole - milliseconds(5));
  queue.Update(pod, spec, Instant{}, Instant{milliseconds(4)});
  EXPECT_EQ(queue.Allowance(pod, Instant{}), whole - milliseconds(5)) << "not less than it is";
}

TEST(FairQueue, WhoIsRankedClaimsNothingOfItsRequestAtItsLimit) {
  FairQueue queue(FairQueueOptions{});
  const Slot other = queue.Add(PodId{1}, *Validated({.request = Percent(50)}), Instant{});
  const ShareSpec strict = *Validated({.request = Percent(20), .limit = Percent(20)});
  const Slot gang = queue.Add(PodId{2}, strict, Instant{}, Claims::kWhenRanked);
  for (const Slot s : {other, gang}) queue.SetActive(s, true);
  queue.Charge(gang, milliseconds(200), Instant{});  // five times what its limit allows at once
  queue.SetWork(gang, true, milliseconds(20));
  queue.Charge(other, seconds(2), Instant{});
  EXPECT_GT(queue.requests().Owed(gang), milliseconds(200));
  queue.SetWaiting(gang, true, milliseconds(20));
  EXPECT_EQ(queue.Pick(Instant{}), std::nullopt);
  EXPECT_LE(queue.requests().Owed(gang), Duration(0));
}

TEST(FairQueue, TwoThatLeaveTogetherLeaveWhatTheyWouldOneAfterTheOther) {
  const auto lag_of_last = [](bool look_between) {
    Gpu gpu;
    const Slot a = gpu.Add(Percent(50), kWhole);
    const Slot b = gpu.Add(Percent(30), kWhole);
    const Slot c = gpu.Add(Percent(20), kWhole);
    for (const Slot s : {a, b, c}) gpu.Wake(s, milliseconds(20));
    gpu.queue.Pick(gpu.now);
    gpu.queue.Charge(a, seconds(2), gpu.now);
    gpu.Sleep(a);
    if (look_between) gpu.queue.Pick(gpu.now);
    gpu.Sleep(b);
    gpu.queue.Pick(gpu.now);
    gpu.Wake(b, milliseconds(20));
    return gpu.queue.Lag(b);
  };
  EXPECT_EQ(lag_of_last(false), lag_of_last(true));
}

TEST(FairQueue, WhoLeavesAsAnotherComesBearsItsPartOfThatOnesCredit) {
  const auto lag_of_leaver = [](bool look_between) {
    Gpu gpu;
    const Slot a = gpu.Add(Percent(50), kWhole);
    const Slot b = gpu.Add(Percent(30), kWhole);
    const Slot c = gpu.Add(Percent(20), kWhole);
    for (const Slot s : {a, b}) gpu.Wake(s, milliseconds(20));
    gpu.queue.Pick(gpu.now);
    gpu.queue.Charge(a, milliseconds(100), gpu.now);
    gpu.Wake(c, milliseconds(20));
    if (look_between) gpu.queue.Pick(gpu.now);
    gpu.Sleep(b);
    gpu.queue.Pick(gpu.now);
    gpu.Wake(b, milliseconds(20));
    return gpu.queue.Lag(b);
  };
  EXPECT_EQ(lag_of_leaver(false), lag_of_leaver(true));
}

TEST(FairQueue, TwoThatComeTogetherBringWhatTheyWouldOneAfterTheOther) {
  const auto lags = [](bool look_between) {
    Gpu gpu;
    const Slot a = gpu.Add(Percent(50), kWhole);
    const Slot b = gpu.Add(Percent(30), kWhole);
    const Slot c = gpu.Add(Percent(20), kWhole);
    gpu.Wake(a, milliseconds(20));
    gpu.queue.Pick(gpu.now);
    gpu.queue.Charge(a, seconds(1), gpu.now);  // the others have a credit now
    gpu.Wake(b, milliseconds(20));
    if (look_between) gpu.queue.Pick(gpu.now);
    gpu.Wake(c, milliseconds(20));
    gpu.queue.Pick(gpu.now);
    return std::pair(gpu.queue.Lag(b), gpu.queue.Lag(c));
  };
  EXPECT_GT(lags(true).first, milliseconds(10));
  EXPECT_EQ(lags(false), lags(true));
}

// It is at its limit, so its entitlement is the same whether another naps or not.
TEST(FairQueue, NapsOfAnotherDoNotMoveAPodAtItsLimit) {
  Gpu gpu;
  const Slot limited = gpu.Add(Percent(20), Percent(20));
  const Slot train = gpu.Add(Percent(30), kWhole);
  const Slot napper = gpu.Add(Percent(20), kWhole);
  for (const Slot s : {limited, train}) gpu.Wake(s, milliseconds(20));
  for (int i = 0; i < 2'000; ++i) {
    gpu.queue.Charge(limited, milliseconds(4), gpu.now += milliseconds(4));
    gpu.queue.Charge(train, milliseconds(16), gpu.now += milliseconds(16));
    gpu.Wake(napper, milliseconds(20));
    gpu.queue.Pick(gpu.now);
    gpu.Sleep(napper);
  }
  EXPECT_LE(std::abs(Nanos(gpu.queue.Lag(limited))), Nanos(milliseconds(20)));
}

TEST(FairQueue, AHighPriorityPodGoesFirstUntilItsBurstIsSpent) {
  Gpu gpu;
  const Slot low = gpu.Add(Percent(90), kWhole);
  const Slot high = gpu.Add(Percent(10), kWhole, Priority::kHigh);
  gpu.Wake(low, milliseconds(5));
  gpu.Wake(high, milliseconds(5));
  gpu.Run(Instant(milliseconds(50)), milliseconds(5));
  EXPECT_GE(gpu.held[high], milliseconds(45)) << "it goes first";
  gpu.Run(Instant(seconds(20)), milliseconds(5));
  EXPECT_NEAR(gpu.Share_(high, seconds(20)), 0.10, 0.005) << "and cannot starve a request";
}

TEST(FairQueue, APodThatJoinsInheritsNothingOfOneThatLeft) {
  Gpu gpu;
  const Slot a = gpu.Add(Percent(50), kWhole);
  const Slot gone = gpu.Add(Percent(30), kWhole);
  for (const Slot s : {a, gone}) gpu.Wake(s, milliseconds(20));
  ASSERT_TRUE(gpu.queue.Pick(gpu.now));
  gpu.queue.Charge(gone, seconds(2), gpu.now);  // one kernel that ran for two seconds
  ASSERT_LT(gpu.queue.Lag(gone), -milliseconds(900));
  gpu.queue.Remove(gone);
  const Slot fresh = gpu.Add(Percent(20), kWhole);
  gpu.Wake(fresh, milliseconds(20));
  EXPECT_EQ(gpu.queue.Lag(a), Duration(0));
  EXPECT_EQ(gpu.queue.Lag(fresh), Duration(0));
}

TEST(FairQueue, APodWhoseShareIsChangedWhileItWaitsIsPredictedWhatItWas) {
  Gpu gpu;
  const Slot slow = gpu.Add(Percent(50), kWhole);
  const Slot quick = gpu.Add(Percent(50), kWhole);
  gpu.Wake(quick, milliseconds(10));
  gpu.Wake(slow, milliseconds(20));
  gpu.queue.Update(slow, gpu.queue.spec(slow), gpu.now);
  EXPECT_EQ(gpu.queue.Pick(gpu.now), quick);
  EXPECT_FALSE(gpu.queue.FinishesBefore(slow, quick));
}

TEST(FairQueue, RemovingAPodLeavesTheOthersFair) {
  Gpu gpu;
  const Slot a = gpu.Add(Percent(25), kWhole);
  const Slot gone = gpu.Add(Percent(50), kWhole);
  const Slot c = gpu.Add(Percent(25), kWhole);
  for (const Slot s : {a, gone, c}) gpu.Wake(s, milliseconds(20));
  gpu.Run(Instant(seconds(1)));
  gpu.queue.Remove(gone);
  const Duration before_a = gpu.held[a];
  const Duration before_c = gpu.held[c];
  gpu.Run(Instant(seconds(11)));
  EXPECT_NEAR(Nanos(gpu.held[a] - before_a) / 10e9, 0.5, 0.005);
  EXPECT_NEAR(Nanos(gpu.held[c] - before_c) / 10e9, 0.5, 0.005);
}

TEST(FairQueue, TeamsShareWhatRequestsLeaveOverByTheirWeights) {
  Gpu gpu;
  const Slot a1 = gpu.Add(Percent(10), kWhole, Priority::kNormal, 1);
  const Slot a2 = gpu.Add(Percent(10), kWhole, Priority::kNormal, 1);
  const Slot b = gpu.Add(Percent(20), kWhole, Priority::kNormal, 2);
  for (const Slot s : {a1, a2, b}) gpu.Wake(s, milliseconds(20));
  gpu.queue.SetTeamWeights({0, 1, 2});
  gpu.Run(Instant(seconds(20)));
  // 60 % is left over: a third of it to the two of team 1, two thirds to team 2.
  EXPECT_NEAR(gpu.Share_(a1, seconds(20)), 0.20, 0.002);
  EXPECT_NEAR(gpu.Share_(a2, seconds(20)), 0.20, 0.002);
  EXPECT_NEAR(gpu.Share_(b, seconds(20)), 0.60, 0.002);
  const Duration lag = gpu.queue.Lag(b);
  gpu.queue.SetTeamWeights({});  // teams do not matter any more
  EXPECT_EQ(gpu.queue.Fluid(b), Percent(50));
  EXPECT_NEAR(Nanos(gpu.queue.Lag(b)), Nanos(lag), 3) << "who is owed what stays";
}

TEST(FairQueue, ManySmallHoldsAddUpToNoDrift) {
  Gpu gpu;
  std::vector<Slot> slots;
  for (const uint32_t request : {333'333, 7'001, 123'457, 1'003}) {
    slots.push_back(gpu.Add(Share(request), kWhole));
    gpu.Wake(slots.back(), Duration(1'001));
  }
  gpu.Run(Instant(seconds(1)), Duration(1'001));
  int64_t sum = 0;
  for (const Slot s : slots) sum += Nanos(gpu.queue.Lag(s));
  EXPECT_LE(std::abs(sum), 8) << "after a million holds";
}

TEST(FairQueue, AHangOfADayIsADebtEvenWhereSharesAreTiny) {
  Gpu gpu;
  // As much overcommitted as can be: the least pod is entitled to a millionth.
  const Slot tiny = gpu.Add(kShareMin, kWhole);
  std::vector<Slot> others;
  others.reserve(1'000);
  for (int i = 0; i < 1'000; ++i) others.push_back(gpu.Add(kWhole, kWhole));
  gpu.Wake(tiny, milliseconds(20));
  for (const Slot s : others) gpu.Wake(s, milliseconds(20));
  ASSERT_EQ(gpu.queue.Fluid(tiny), Share(1));
  for (int i = 0; i < 40; ++i) {
    gpu.queue.Charge(tiny, std::chrono::hours(24), gpu.now);
    ASSERT_LT(gpu.queue.Lag(tiny), -seconds(1'000));
  }
  gpu.Run(Instant(seconds(100)));
  EXPECT_EQ(gpu.held[tiny], Duration(0));
  for (const Slot s : others) EXPECT_EQ(gpu.held[s], milliseconds(100));
}

// However far it is ahead of its share: what it had of the slack does not count.
TEST(FairQueue, WhoIsFarBelowItsRequestIsNotCutAndThenCuts) {
  Gpu gpu;
  const Slot train = gpu.Add(Percent(50), kWhole);
  const Slot other = gpu.Add(Percent(10), kWhole);
  const Slot high = gpu.Add(Percent(10), kWhole, Priority::kHigh);
  for (const Slot slot : {train, other}) gpu.Wake(slot, milliseconds(10));
  const auto hold = [&](Slot slot, int times) {
    gpu.queue.Pick(gpu.now);  // whoever it is; as before each hold
    while (times-- > 0) {
      gpu.queue.Charge(slot, milliseconds(10), gpu.now);
      gpu.queue.SetWaiting(slot, true, milliseconds(10));
    }
  };
  hold(train, 400);
  hold(other, 28);
  gpu.Wake(high, milliseconds(10));
  ASSERT_EQ(gpu.queue.requests().Owed(train), milliseconds(40));
  ASSERT_LT(gpu.queue.Lag(train), Duration(0));
  EXPECT_TRUE(gpu.queue.MayRevoke(high, train));
  EXPECT_TRUE(gpu.queue.FinishesBefore(high, train));
  hold(other, 4);
  ASSERT_EQ(gpu.queue.requests().Owed(train), milliseconds(60));
  EXPECT_FALSE(gpu.queue.MayRevoke(high, train)) << "it would have to go soon";
  EXPECT_FALSE(gpu.queue.FinishesBefore(high, train));
  EXPECT_FALSE(gpu.queue.FinishesBefore(train, high));
  hold(other, 8);
  ASSERT_LT(gpu.queue.Lag(train), Duration(0));
  EXPECT_TRUE(gpu.queue.FinishesBefore(train, high));
  EXPECT_EQ(gpu.queue.Pick(gpu.now), train);
}

TEST(FairQueue, WhoComesInAnothersPlaceOwesWhatThatHad) {
  Gpu gpu;
  ShareSpec spec = Validated({.request = Percent(10), .limit = Percent(20)}).value();
  spec.latency = milliseconds(10);
  const Slot gone = gpu.queue.Add(PodId{8}, spec, gpu.now);
  const Slot other = gpu.Add(Percent(50), kWhole);
  for (const Slot s : {gone, other}) gpu.Wake(s, milliseconds(20));
  gpu.now += milliseconds(300);
  gpu.queue.Charge(gone, milliseconds(300), gpu.now);
  const Duration lag = gpu.queue.Lag(gone), owed = gpu.queue.requests().Owed(gone);
  const Instant full_at = gpu.queue.LimitFullAt(gone);
  ASSERT_LT(lag, milliseconds(-150));
  ASSERT_LT(owed, milliseconds(-150));
  const Debts debts = gpu.queue.Remove(gone);
  // Without a latency at first: it would have none of that to pay for.
  ShareSpec later = spec;
  later.latency = Duration(0);
  const Slot pod = gpu.queue.Add(PodId{9}, later, gpu.now, Claims::kAlways, debts);
  EXPECT_EQ(gpu.queue.Lag(pod), lag);
  EXPECT_EQ(gpu.queue.requests().Owed(pod), owed);
  EXPECT_LE(std::abs(Nanos(gpu.queue.LimitFullAt(pod) - full_at)), 3);
  gpu.queue.Update(pod, spec, gpu.now);
  gpu.queue.SetActive(pod, true);
  gpu.queue.SetWaiting(pod, true, milliseconds(1), {}, {gpu.now});
  EXPECT_EQ(gpu.queue.deadlines().Deadline(pod), debts.paid + milliseconds(10));
  EXPECT_EQ(debts.paid, gpu.now + seconds(3) - milliseconds(300)) << "at a tenth, from 300 ms ago";

  // It pays as who sleeps.
  const Debts again = gpu.queue.Remove(pod);
  gpu.now += seconds(1);
  gpu.queue.Charge(other, seconds(1), gpu.now);
  const Slot last = gpu.queue.Add(PodId{10}, spec, gpu.now, Claims::kAlways, again);
  gpu.queue.SetActive(last, true);
  EXPECT_LE(std::abs(Nanos(gpu.queue.Lag(last) - lag - milliseconds(100))), 3);
  EXPECT_LE(std::abs(Nanos(gpu.queue.requests().Owed(last) - owed - milliseconds(100))), 3);
  // What another is owed is not kept.
  EXPECT_EQ(gpu.queue.Remove(other).lag_ns, 0);
}

}  // namespace
}  // namespace baton::policy
