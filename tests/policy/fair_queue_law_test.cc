// What docs/bounds.md promises, for any mix: a share of 0.1 % to 99 %, 2 to 512 pods, holds of
// 10 us to 2 s, limits, priorities, sleepers. Mixes are drawn from a seed, which rapidcheck prints
// when a law is broken.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "tests/policy/mix.h"

namespace baton::policy {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Runs saturating pods and checks after every hold: nobody is ahead of its due by more than L, and
// who has no limit is not behind it by more than `behind`.
void CheckLags(Mix& mix, double behind) {
  const auto most =
      Duration(static_cast<int64_t>(behind * static_cast<double>(Nanos(mix.longest))));
  mix.WakeAll();
  for (int step = 0; step < mix.holds(); ++step) {
    mix.Serve();
    // What others could not take for their limits, and what high-priority pods took early.
    Duration untaken{0};
    Duration early{0};
    for (const Tenant& t : mix.tenants) {
      const Duration lag = mix.queue.Lag(t.slot);
      if (t.limited()) untaken += std::max(Duration(0), lag);
      if (t.high()) early += std::max(Duration(0), -lag);
    }
    for (const Tenant& t : mix.tenants) {
      const Duration lag = mix.queue.Lag(t.slot);
      const Duration burst = t.high() ? mix.options.priority_burst : Duration(0);
      RC_ASSERT(lag >= -mix.longest - untaken - burst - mix.rounding());
      if (!t.limited()) RC_ASSERT(lag <= most + early + mix.rounding());
    }
  }
}

RC_GTEST_PROP(FairQueueLaw, NoSaturatingPodIsEverMoreThanOneLongestHoldFromItsDue, ()) {
  Random random = AnyRandom();
  Mix mix(random, {.high = random.OneIn(3)});
  CheckLags(mix, 1);
}

RC_GTEST_PROP(FairQueueLaw, OrTwoBesidePodsThatAreHeldBackByTheirLimits, ()) {
  Random random = AnyRandom();
  Mix mix(random, {.limits = true, .high = random.OneIn(3)});
  CheckLags(mix, 2);
}

RC_GTEST_PROP(FairQueueLaw, AHoldLongerThanPredictedCostsTheOthersItsExcessOnce, ()) {
  Random random = AnyRandom();
  Mix mix(random, {.overruns = true});
  mix.WakeAll();
  Duration excess{0};  // of every pod's longest hold over its prediction
  for (const Tenant& t : mix.tenants) excess += t.longest - t.predicted;
  for (int step = 0; step < mix.holds(); ++step) {
    mix.Serve();
    for (const Tenant& t : mix.tenants) {
      const Duration lag = mix.queue.Lag(t.slot);
      const Duration others = excess - (t.longest - t.predicted);
      const double part = Ratio(mix.queue.Fluid(t.slot)) * static_cast<double>(Nanos(others));
      RC_ASSERT(lag >= -mix.longest - mix.rounding());
      RC_ASSERT(lag <= mix.longest + Duration(static_cast<int64_t>(part)) + mix.rounding());
    }
  }
}

RC_GTEST_PROP(FairQueueLaw, TheShareOverAnyWindowIsWithinTwoLongestHoldsOfItsTarget, ()) {
  Random random = AnyRandom();
  Mix mix(random,
          {.pods_max = 64, .longest_min = milliseconds(2), .longest_max = milliseconds(500)});
  mix.WakeAll();
  const Duration window = seconds(10);
  struct Point {
    Instant at;
    std::vector<Duration> held;
  };
  std::vector<Point> points;
  const auto record = [&] {
    points.push_back({mix.now, {}});
    for (const Tenant& t : mix.tenants) points.back().held.push_back(t.held);
  };
  record();
  while (mix.now < Instant(3 * window)) {
    RC_ASSERT(mix.Serve() != nullptr);
    record();
  }
  // Held times grow in straight lines between points, so the worst windows begin or end at one.
  const auto held_at = [&](Instant at) {
    const auto after = std::lower_bound(points.begin(), points.end(), at,
                                        [](const Point& p, Instant t) { return p.at < t; });
    const auto before = after == points.begin() ? after : after - 1;
    const Duration span = after->at - before->at;
    const double part = span == Duration(0) ? 0
                                            : static_cast<double>(Nanos(at - before->at)) /
                                                  static_cast<double>(Nanos(span));
    std::vector<double> held;
    for (size_t i = 0; i < mix.tenants.size(); ++i) {
      held.push_back(static_cast<double>(Nanos(before->held[i])) +
                     part * static_cast<double>(Nanos(after->held[i] - before->held[i])));
    }
    return held;
  };
  const double bound =
      2 * static_cast<double>(Nanos(mix.longest)) / static_cast<double>(Nanos(window)) + 1e-6;
  for (const Point& p : points) {
    for (const Instant begin : {p.at, p.at - window}) {
      if (begin < Instant{} || begin + window > mix.now) continue;
      const std::vector<double> from = held_at(begin);
      const std::vector<double> to = held_at(begin + window);
      for (size_t i = 0; i < mix.tenants.size(); ++i) {
        const double share = (to[i] - from[i]) / static_cast<double>(Nanos(window));
        const double target = Ratio(mix.queue.Fluid(mix.tenants[i].slot));
        RC_ASSERT(std::abs(share - target) <= bound);
      }
    }
  }
}

// What a latency may change of shares: nothing beyond M. Twice the same mix, of which some pods
// have latencies the second time, down to one that asks to be served at once whatever it had. Pods
// pause, so that they come back within their requests again and again.
RC_GTEST_PROP(FairQueueLaw, ALatencyGetsNobodyMoreThanWithoutItByMoreThanM, ()) {
  Random random = AnyRandom();
  const uint64_t seed = static_cast<uint64_t>(random.Between(0, INT64_MAX));
  const Kind kind{.limits = random.OneIn(3),
                  .requested = random.OneIn(3) ? 1.5 : 1.0,
                  .pods_max = 24,
                  .longest_max = milliseconds(60)};
  Random first(seed), second(seed);
  Mix without(first, kind), with(second, kind);
  for (Tenant& t : with.tenants) {
    if (!random.OneIn(2)) continue;
    t.spec.latency = Duration(random.Spread(Nanos(kLatencyMin), Nanos(milliseconds(100))));
    with.queue.Update(t.slot, t.spec, with.now);
  }
  const bool saturated = random.OneIn(2);
  const auto run = [&](Mix& mix) {
    const auto wake = [&](Tenant& t) {
      mix.queue.SetActive(t.slot, true);
      mix.queue.SetWaiting(t.slot, true, t.predicted, {}, {mix.now});
    };
    for (Tenant& t : mix.tenants) wake(t);
    std::vector<std::pair<Instant, size_t>> back;
    for (int step = 0; step < 1'500; ++step) {
      std::erase_if(back, [&](const auto& pause) {
        if (pause.first > mix.now) return false;
        wake(mix.tenants[pause.second]);
        return true;
      });
      Tenant* t = mix.Serve();
      if (t == nullptr) {
        if (mix.queue.NextRefill() == kNever && !back.empty()) mix.now = back.front().first;
        continue;
      }
      mix.queue.SetWaiting(t->slot, false, t->predicted);
      // The first always has work, so all time is served.
      if (saturated || t->slot == 0 || !mix.random.OneIn(4)) {
        wake(*t);
      } else {
        back.emplace_back(mix.now + 2 * t->longest, t->slot);
      }
      const Duration most = mix.queue.requests().MostBehind() + mix.longest + mix.rounding();
      for (const Tenant& each : mix.tenants) {
        if (each.spec.latency == Duration(0)) continue;
        // What others could not take for their limits or their pauses goes to those who are there.
        Duration untaken{0};
        for (const Tenant& other : mix.tenants) {
          untaken += std::max(Duration(0), mix.queue.Lag(other.slot));
        }
        RC_ASSERT(mix.queue.Lag(each.slot) >=
                  -most - (saturated && !kind.limits ? Duration(0) : untaken));
      }
    }
  };
  run(without);
  run(with);
  if (!saturated || kind.limits) return;
  const auto share = [](const Mix& mix, const Tenant& t) {
    return static_cast<double>(Nanos(t.held)) / static_cast<double>(Nanos(mix.now - Instant{}));
  };
  const double m = static_cast<double>(Nanos(with.queue.requests().MostBehind() + with.longest));
  for (size_t i = 0; i < with.tenants.size(); ++i) {
    const double more = share(with, with.tenants[i]) - share(without, without.tenants[i]);
    const auto length = static_cast<double>(Nanos(std::min(with.now, without.now) - Instant{}));
    RC_ASSERT(std::abs(more) * length <= 2 * m);
  }
}

RC_GTEST_PROP(FairQueueLaw, UsageNeverExceedsTheLimitByMoreThanItsWindowAndOneHold, ()) {
  Random random = AnyRandom();
  Mix mix(random, {.limits = true,
                   .high = random.OneIn(2),
                   .requested = random.OneIn(3) ? 3.0 : 1.0,
                   .pods_max = 64,
                   .overruns = random.OneIn(2)});
  mix.WakeAll();
  // By pod: what it used beyond its limit's rate, the least that this ever was, the most its bucket
  // ever held. From any instant on, not only from the first.
  struct Account {
    double excess = 0;
    double least = 0;
    double bucket = 0;
  };
  std::vector<Account> accounts(mix.tenants.size());
  Instant last = mix.now;
  for (int step = 0; step < 1'000; ++step) {
    Tenant& other = mix.tenants[static_cast<size_t>(
        random.Between(0, static_cast<int64_t>(mix.tenants.size()) - 1))];
    switch (random.Between(0, 40)) {
      case 4:
        mix.queue.SetTeamWeights({static_cast<uint32_t>(random.Between(0, 3))});
        break;
      case 0:
        mix.queue.SetActive(other.slot, false);
        break;
      case 1:
        mix.Wake(other);
        break;
      case 2:
        other.spec.limit = AnyShare(random, other.spec.request, kWhole);
        mix.queue.Update(other.slot, other.spec, mix.now);
        break;
      case 3:  // nobody holds for a while
        mix.now += Duration(random.Spread(1'000, 10'000'000'000));
        break;
      default:
        break;
    }
    Tenant* served = mix.Serve();
    for (size_t i = 0; i < mix.tenants.size(); ++i) {
      const Tenant& t = mix.tenants[i];
      Account& a = accounts[i];
      const double c = Ratio(t.spec.limit);
      const double bucket = c * static_cast<double>(Nanos(mix.options.limit_window));
      a.bucket = std::max(a.bucket, t.limited() ? bucket : 0);
      a.excess -= c * static_cast<double>(Nanos(mix.now - last));
    }
    last = mix.now;
    if (served != nullptr) {
      Account& a = accounts[served->slot];
      a.excess += static_cast<double>(Nanos(served->last));
      RC_ASSERT(a.excess - a.least <= a.bucket + static_cast<double>(Nanos(mix.longest)) + 100);
    }
    for (Account& a : accounts) a.least = std::min(a.least, a.excess);
  }
}

// What the pod's bucket has beyond what it needs to hold: its predicted hold, or half a bucket.
Duration Room(const Mix& mix, const Tenant& t) {
  if (!t.limited()) return Duration::max();
  const Duration half = Duration(ServedIn(Nanos(mix.options.limit_window), t.spec.limit)) / 2;
  return mix.queue.Allowance(t.slot, mix.now) - std::min(t.predicted, half);
}

// Anything that may happen to a pod between holds.
void Disturb(Mix& mix) {
  Random& random = mix.random;
  Tenant& t = mix.tenants[static_cast<size_t>(
      random.Between(0, static_cast<int64_t>(mix.tenants.size()) - 1))];
  switch (random.Between(0, 12)) {
    case 0:
    case 1:
      mix.queue.SetActive(t.slot, false);
      break;
    case 2:
      if (!mix.queue.fluid().active(t.slot)) break;
      mix.queue.SetWaiting(t.slot, false, Duration(1));
      mix.queue.CapLag(t.slot, mix.queue.fluid().Credit(t.slot));
      break;
    case 3: {
      t.spec.request = AnyShare(random, kShareMin, t.spec.request * 3 / 2);
      t.spec.request = std::min(t.spec.request, kWhole);
      t.spec.limit = random.OneIn(2) ? kWhole : AnyShare(random, t.spec.request, kWhole);
      t.spec.slack_weight = static_cast<uint32_t>(random.Between(0, kMillion));
      t.spec.team = static_cast<uint32_t>(random.Between(0, 3));
      mix.queue.Update(t.slot, t.spec, mix.now);
      break;
    }
    case 4: {
      t.id.value += 1'000'000;
      mix.queue.Remove(t.slot);
      RC_ASSERT(mix.queue.Add(t.id, t.spec, mix.now) == t.slot);
      break;
    }
    case 5:  // an estimate was too much; it asks anew
      if (!mix.queue.fluid().active(t.slot)) break;
      mix.queue.Charge(t.slot, -t.last / 2, mix.now);
      t.last = Duration(0);
      mix.Wake(t);
      break;
    case 6:
      mix.queue.SetTeamWeights({static_cast<uint32_t>(random.Between(0, 3)),
                                static_cast<uint32_t>(random.Between(0, 3))});
      break;
    case 7:
      mix.now += Duration(random.Spread(1'000, 1'000'000'000));
      break;
    default:
      mix.Wake(t);
  }
}

RC_GTEST_PROP(FairQueueLaw, TheGpuIdlesOnlyWhileAllWhoWaitAreAtTheirLimitAndNoLonger, ()) {
  Random random = AnyRandom();
  Mix mix(random, {.limits = true,
                   .high = random.OneIn(2),
                   .requested = random.OneIn(3) ? 3.0 : 1.0,
                   .pods_max = 40,
                   .overruns = true,
                   .rule = world::kRules[static_cast<size_t>(random.Between(0, 3))]});
  for (int step = 0; step < 500; ++step) {
    Disturb(mix);
    const auto picked = mix.queue.Pick(mix.now);
    if (picked) {
      RC_ASSERT(mix.queue.waiting(*picked));
      RC_ASSERT(Room(mix, mix.At(*picked)) >= Duration(0));
      mix.Serve();
      continue;
    }
    bool anybody = false;
    for (const Tenant& t : mix.tenants) {
      if (!mix.queue.waiting(t.slot)) continue;
      anybody = true;
      RC_ASSERT(Room(mix, t) <= Duration(0));  // a refill is rounded up
    }
    const Instant refill = mix.queue.NextRefill();
    RC_ASSERT((refill != kNever) == anybody);
    if (!anybody) continue;
    RC_ASSERT(refill > mix.now);
    RC_ASSERT(!mix.queue.Pick(refill - Duration(1)));
    RC_ASSERT(mix.queue.Pick(refill).has_value());
    mix.now = refill;
  }
}

RC_GTEST_PROP(FairQueueLaw, AHighPriorityPodGoesFirstWhileItIsWithinItsBurst, ()) {
  Random random = AnyRandom();
  Mix mix(random, {.limits = random.OneIn(2), .high = true, .pods_max = 40});
  for (int step = 0; step < 300; ++step) {
    Disturb(mix);
    bool urgent = false;
    for (const Tenant& t : mix.tenants) {
      if (!mix.queue.waiting(t.slot) || !t.high() || Room(mix, t) <= Duration(0)) continue;
      urgent |= mix.queue.Lag(t.slot) > -mix.options.priority_burst;
    }
    const auto picked = mix.queue.Pick(mix.now);
    if (urgent) {
      RC_ASSERT(picked.has_value());
      const bool is_urgent =
          mix.At(*picked).high() && mix.queue.Lag(*picked) > -mix.options.priority_burst;
      // But for who is too far below its request.
      RC_ASSERT(is_urgent || mix.queue.requests().Owed(*picked) >= mix.options.guarantee_bound);
    }
    mix.Serve();
  }
}

RC_GTEST_PROP(FairQueueLaw, NewTeamWeightsTouchNoRequestMoveNobodysLagAndKeepTheBounds, ()) {
  Random random = AnyRandom();
  Mix mix(random, {.requested = random.OneIn(2) ? 1.0 : 0.3, .pods_max = 64});
  ShareSum asked;
  for (Tenant& t : mix.tenants) {
    t.spec.team = static_cast<uint32_t>(random.Between(0, 3));
    mix.queue.Update(t.slot, t.spec, mix.now);
    asked += t.spec.request;
  }
  mix.WakeAll();
  const auto lags = [&] {
    std::vector<Duration> all;
    for (const Tenant& t : mix.tenants) all.push_back(mix.queue.Lag(t.slot));
    return all;
  };
  std::vector<Duration> changed_at = lags();  // as of the last change
  for (int step = 0; step < mix.holds(); ++step) {
    if (random.OneIn(10)) {
      std::vector<uint32_t> weights;
      for (int64_t n = random.Between(0, 4); n > 0; --n) {
        weights.push_back(static_cast<uint32_t>(random.OneIn(3) ? 0 : random.Spread(1, 4'000'000)));
      }
      changed_at = lags();
      mix.queue.SetTeamWeights(weights);
      const std::vector<Duration> now = lags();
      for (size_t i = 0; i < now.size(); ++i) {
        RC_ASSERT(std::chrono::abs(now[i] - changed_at[i]) <= mix.rounding());
      }
    }
    mix.Serve();
    // What others have had early, by the old weights, is what a pod may wait for beyond one hold.
    Duration early{0};
    for (const Duration lag : changed_at) early += std::max(Duration(0), -lag);
    for (size_t i = 0; i < mix.tenants.size(); ++i) {
      const Slot slot = mix.tenants[i].slot;
      if (asked <= kWhole) RC_ASSERT(mix.queue.Fluid(slot) >= mix.tenants[i].spec.request);
      const double due =
          Ratio(mix.queue.Fluid(slot)) * static_cast<double>(Nanos(early + mix.longest));
      RC_ASSERT(mix.queue.Lag(slot) >= -mix.longest - mix.rounding());
      RC_ASSERT(mix.queue.Lag(slot) <= std::max(mix.longest, changed_at[i]) +
                                           Duration(static_cast<int64_t>(due)) + mix.rounding());
    }
  }
}

// Σ lag over the active pods.
Duration SumOfLags(Mix& mix) {
  Duration sum{0};
  for (const Tenant& t : mix.tenants) {
    if (mix.queue.fluid().active(t.slot)) sum += mix.queue.Lag(t.slot);
  }
  return sum;
}

RC_GTEST_PROP(FairQueueLaw, LagsOfTheActivePodsSumUpToZeroWhateverHappens, ()) {
  Random random = AnyRandom();
  Mix mix(
      random,
      {.limits = true, .high = true, .requested = random.OneIn(3) ? 8.0 : 1.0, .overruns = true});
  for (int step = 0; step < 500; ++step) {
    Disturb(mix);
    mix.Serve();
    const Duration sum = SumOfLags(mix);
    RC_ASSERT(sum <= mix.rounding());
    RC_ASSERT(sum >= -mix.rounding());
  }
}

RC_GTEST_PROP(FairQueueLaw, WhoComesOrGoesMovesTheOthersByNoMoreThanItsCreditOrDebt, ()) {
  Random random = AnyRandom();
  Mix mix(random, {.limits = random.OneIn(2), .high = random.OneIn(2), .overruns = true});
  std::vector<Duration> left(mix.tenants.size());  // the lag with which it became inactive
  for (int step = 0; step < 300; ++step) {
    for (int i = 0; i < 3; ++i) mix.Serve();
    const auto index =
        static_cast<size_t>(random.Between(0, static_cast<int64_t>(mix.tenants.size()) - 1));
    Tenant& t = mix.tenants[index];
    std::vector<std::pair<Slot, Duration>> others;
    for (const Tenant& other : mix.tenants) {
      if (&other == &t || !mix.queue.fluid().active(other.slot)) continue;
      others.emplace_back(other.slot, mix.queue.Lag(other.slot));
    }
    Duration moved{0};
    if (mix.queue.fluid().active(t.slot)) {
      left[index] = mix.queue.Lag(t.slot);
      mix.queue.SetActive(t.slot, false);
      moved = left[index];
    } else {
      mix.Wake(t);
      const Duration credit = Duration(ServedIn(Nanos(mix.options.sleep_credit), t.spec.request));
      moved = std::max(credit, -left[index]);
      // What it brings is never more than its credit, nor forgiven faster than its request.
      RC_ASSERT(mix.queue.Lag(t.slot) <= credit + Duration(1));
    }
    Duration shift{0};
    for (const auto& [slot, lag] : others) shift += std::chrono::abs(mix.queue.Lag(slot) - lag);
    RC_ASSERT(shift <= std::chrono::abs(moved) + mix.rounding());
  }
}

RC_GTEST_PROP(FairQueueLaw, SleepersThatReturnDelayTheOthersByNoMoreThanTheirCredits, ()) {
  Random random = AnyRandom();
  Mix mix(random, {.limits = false});
  std::vector<bool> sleeper(mix.tenants.size());
  for (size_t i = 1; i < mix.tenants.size(); ++i) sleeper[i] = random.OneIn(3);
  for (Tenant& t : mix.tenants) {
    if (!sleeper[t.slot]) mix.Wake(t);
  }
  for (int step = 0; step < 200; ++step) mix.Serve();
  std::vector<Share> alone;  // what each was entitled to while they slept
  for (const Tenant& t : mix.tenants) alone.push_back(mix.queue.Fluid(t.slot));
  for (Tenant& t : mix.tenants) {
    if (sleeper[t.slot]) mix.Wake(t);
  }
  const Instant woken = mix.now;
  double credits = 0;
  std::vector<Duration> before;
  for (const Tenant& t : mix.tenants) {
    before.push_back(t.held);
    if (!sleeper[t.slot]) continue;
    credits += Ratio(t.spec.request) * static_cast<double>(Nanos(mix.options.sleep_credit));
  }
  const auto l = static_cast<double>(Nanos(mix.longest));
  for (int step = 0; step < 400; ++step) {
    mix.Serve();
    for (size_t i = 0; i < mix.tenants.size(); ++i) {
      const Tenant& t = mix.tenants[i];
      const double fluid = Ratio(mix.queue.Fluid(t.slot));
      const double due = fluid * static_cast<double>(Nanos(mix.now - woken));
      const auto had = static_cast<double>(Nanos(t.held - before[i]));
      if (sleeper[i]) {
        const double credit =
            Ratio(t.spec.request) * static_cast<double>(Nanos(mix.options.sleep_credit));
        RC_ASSERT(had <= due + credit + l + 1'000);
      } else {
        RC_ASSERT(had >= due - Ratio(alone[i]) * credits - 2 * l - 1'000);
      }
    }
  }
}

RC_GTEST_PROP(FairQueueLaw, HoursOfAnyMixStayExact, ()) {
  Random random = AnyRandom();
  Mix mix(random, {.requested = random.OneIn(2) ? 8.0 : 1.0,
                   .longest_min = seconds(1),
                   .longest_max = seconds(30)});
  mix.WakeAll();
  ShareSum given;
  for (const Tenant& t : mix.tenants) given += mix.queue.Fluid(t.slot);
  for (int step = 0; step < 2'000 || mix.now < Instant(hours(2)); ++step) mix.Serve();
  RC_ASSERT(std::abs(Ratio(given) - 1) <= 1e-3);
  for (const Tenant& t : mix.tenants) {
    const double due = Ratio(mix.queue.Fluid(t.slot)) / Ratio(given) *
                       static_cast<double>(Nanos(mix.now.time_since_epoch()));
    const auto lag = static_cast<double>(Nanos(mix.queue.Lag(t.slot)));
    RC_ASSERT(std::abs(due - static_cast<double>(Nanos(t.held)) - lag) <=
              1e-9 * due + static_cast<double>(Nanos(mix.rounding())));
    RC_ASSERT(std::abs(lag) <= static_cast<double>(Nanos(mix.longest + mix.rounding())));
  }
}

RC_GTEST_PROP(FairQueueLaw, TheSameEventsGiveTheSameDecisions, ()) {
  const auto seed = *rc::gen::arbitrary<uint64_t>().as("seed");
  std::vector<Instant> first;
  std::vector<Instant> second;
  for (std::vector<Instant>* trace : {&first, &second}) {
    Random random(seed);
    Mix mix(random, {.limits = true, .high = true, .overruns = true});
    for (int step = 0; step < 300; ++step) {
      Disturb(mix);
      mix.Serve();
      trace->push_back(mix.now);
    }
  }
  RC_ASSERT(first == second);
}

}  // namespace
}  // namespace baton::policy
