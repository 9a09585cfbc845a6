// Laws of fairness: shares in, ratios out. Time is a number here; nothing sleeps.
#include "policy/fair_queue.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <vector>

namespace baton::policy {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Share Percent(uint32_t percent) { return percent * 10'000; }

// A GPU that grants `quantum` at a time to whoever the queue picks.
class Gpu {
 public:
  explicit Gpu(FairQueueOptions options = {}) : queue(options) {}

  Slot Add(Share request, Share limit, Priority priority = Priority::kLow, uint32_t team = 0) {
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

  // Serves until `end`; each service lasts the pod's quantum, plus what `overrun` says.
  template <class Overrun>
  void Run(Instant end, Duration quantum, Overrun overrun) {
    while (now < end) {
      const auto slot = queue.Pick(now);
      if (!slot) {
        const Instant refill = queue.NextRefill();
        now = std::min(end, std::max(refill, now + Duration(1)));
        continue;
      }
      const Duration held_now = std::min(quantum, queue.Allowance(*slot, now)) + overrun();
      now += held_now;
      queue.Charge(*slot, held_now, now);
      held[*slot] += held_now;
      queue.SetWaiting(*slot, true, predicted > Duration(0) ? predicted : quantum);
      if (observe) observe(*slot);
    }
  }
  void Run(Instant end, Duration quantum = milliseconds(20)) {
    Run(end, quantum, [] { return Duration(0); });
  }
  double Share_(Slot slot, Duration window) const {
    return static_cast<double>(Nanos(held[slot])) / static_cast<double>(Nanos(window));
  }

  FairQueue queue;
  Instant now{};
  std::vector<Duration> held;
  Duration predicted{0};  // the burst told to the queue; 0: the quantum
  std::function<void(Slot)> observe;

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
  // Alone with b, re-centring halves what a owes and what b is owed alike; it is not forgiven.
  gpu.Run(Instant(milliseconds(400)));
  EXPECT_LE(gpu.held[a], milliseconds(20));
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
  const Slot a1 = gpu.Add(Percent(10), kWhole, Priority::kLow, 1);
  const Slot a2 = gpu.Add(Percent(10), kWhole, Priority::kLow, 1);
  const Slot b = gpu.Add(Percent(20), kWhole, Priority::kLow, 2);
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
  for (const Share request : {333'333, 7'001, 123'457, 1'003}) {
    slots.push_back(gpu.Add(static_cast<Share>(request), kWhole));
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
  for (int i = 0; i < 1'000; ++i) others.push_back(gpu.Add(kWhole, kWhole));
  gpu.Wake(tiny, milliseconds(20));
  for (const Slot s : others) gpu.Wake(s, milliseconds(20));
  ASSERT_EQ(gpu.queue.Fluid(tiny), 1u);
  for (int i = 0; i < 40; ++i) gpu.queue.Charge(tiny, std::chrono::hours(24), gpu.now);
  EXPECT_LT(gpu.queue.Lag(tiny), -seconds(1'000));
  gpu.Run(Instant(seconds(100)));
  EXPECT_EQ(gpu.held[tiny], Duration(0));
  for (const Slot s : others) EXPECT_EQ(gpu.held[s], milliseconds(100));
}

// ------------------------------------------------------------------------------------- properties

struct Mix {
  std::vector<std::pair<Share, Share>> pods;  // request, limit
  Duration quantum;
  Duration overrun;
};

Mix AnyMix(bool with_limits) {
  Mix mix;
  const auto n = *rc::gen::inRange<uint32_t>(2, 40);
  int64_t left = kWhole;
  for (uint32_t i = 0; i < n && left >= 2 * kShareMin; ++i) {
    const auto request = static_cast<Share>(*rc::gen::inRange<int64_t>(
        kShareMin, std::max<int64_t>(kShareMin + 1, std::min<int64_t>(left, 2 * left / (n - i)))));
    const Share limit =
        with_limits && *rc::gen::inRange(0, 3) == 0 ? *rc::gen::inRange(request, kWhole) : kWhole;
    mix.pods.emplace_back(request, limit);
    left -= request;
  }
  mix.quantum = Duration(*rc::gen::inRange<int64_t>(1'000'000, 50'000'000));
  mix.overrun = Duration(*rc::gen::inRange<int64_t>(1, 20'000'000));
  return mix;
}

// Runs saturating pods with overruns of all lengths and checks |lag| <= bound at every step.
void CheckLag(const Mix& mix, Duration predicted, Duration bound) {
  Gpu gpu;
  gpu.predicted = predicted;
  std::vector<Slot> slots;
  for (const auto& [request, limit] : mix.pods) slots.push_back(gpu.Add(request, limit));
  for (const Slot s : slots) gpu.Wake(s, predicted);
  const auto rounding = Duration(static_cast<int64_t>(mix.pods.size()) + 2);
  gpu.observe = [&](Slot) {
    for (const Slot s : slots) {
      const Duration lag = gpu.queue.Lag(s);
      RC_ASSERT(lag <= bound + rounding);
      RC_ASSERT(lag >= -bound - rounding);
    }
  };
  uint64_t state = 1;
  gpu.Run(Instant(seconds(3)), mix.quantum, [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return Duration(static_cast<int64_t>((state >> 33) % Nanos(mix.overrun)));
  });
}

RC_GTEST_PROP(FairQueueLaw, NoSaturatingPodIsEverMoreThanOneLongestServiceFromItsDue, ()) {
  const Mix mix = AnyMix(false);
  const Duration longest = mix.quantum + mix.overrun;
  CheckLag(mix, longest, longest);
}

RC_GTEST_PROP(FairQueueLaw, ServicesLongerThanPredictedCostAtMostAsMuchAgain, ()) {
  const Mix mix = AnyMix(false);
  CheckLag(mix, mix.quantum, 2 * (mix.quantum + mix.overrun));
}

RC_GTEST_PROP(FairQueueLaw, UsageNeverExceedsTheLimitByMoreThanItsWindowAndOneService, ()) {
  const Mix mix = AnyMix(true);
  const FairQueueOptions options;
  Gpu gpu(options);
  std::vector<Slot> slots;
  for (const auto& [request, limit] : mix.pods) slots.push_back(gpu.Add(request, limit));
  for (const Slot s : slots) gpu.Wake(s, mix.quantum);
  gpu.observe = [&](Slot s) {
    const double c = gpu.queue.spec(s).limit / 1e6;
    const double bound = c * Nanos(gpu.now.time_since_epoch()) + c * Nanos(options.limit_window) +
                         Nanos(mix.quantum + mix.overrun);
    RC_ASSERT(Nanos(gpu.held[s]) <= bound + 1000);
  };
  gpu.Run(Instant(seconds(3)), mix.quantum, [&] { return mix.overrun; });
}

RC_GTEST_PROP(FairQueueLaw, LagsOfTheActivePodsSumUpToZeroThroughComingAndGoing, ()) {
  const Mix mix = AnyMix(true);
  Gpu gpu;
  std::vector<Slot> slots;
  for (const auto& [request, limit] : mix.pods) slots.push_back(gpu.Add(request, limit));
  for (int step = 0; step < 200; ++step) {
    const Slot s = slots[*rc::gen::inRange<size_t>(0, slots.size())];
    if (*rc::gen::inRange(0, 3) == 0) {
      gpu.Sleep(s);
    } else {
      gpu.Wake(s, mix.quantum);
    }
    gpu.Run(gpu.now + mix.quantum, mix.quantum, [&] { return mix.overrun; });
    int64_t sum = 0;
    int64_t active = 0;
    for (const Slot x : slots) {
      if (!gpu.queue.active(x)) continue;
      sum += Nanos(gpu.queue.Lag(x));
      ++active;
    }
    RC_ASSERT(std::abs(sum) <= 4 * active + 4);
  }
}

RC_GTEST_PROP(FairQueueLaw, TheSameEventsGiveTheSameDecisions, ()) {
  const Mix mix = AnyMix(true);
  std::vector<Slot> first;
  std::vector<Slot> second;
  for (std::vector<Slot>* trace : {&first, &second}) {
    Gpu gpu;
    std::vector<Slot> slots;
    for (const auto& [request, limit] : mix.pods) slots.push_back(gpu.Add(request, limit));
    for (const Slot s : slots) gpu.Wake(s, mix.quantum);
    gpu.observe = [&](Slot s) { trace->push_back(s); };
    gpu.Run(Instant(seconds(1)), mix.quantum);
  }
  RC_ASSERT(first == second);
}

}  // namespace
}  // namespace baton::policy
