// What docs/bounds.md promises of requests, whoever is beside the pod.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/policy/mix.h"

namespace baton::policy {
namespace {

using std::chrono::milliseconds;

// Whoever comes, goes, naps, wakes with a debt or goes first, and whatever teams weigh: over any
// window in which it has work, a pod without limit holds its request, but for a constant.
RC_GTEST_PROP(FairQueueLaw, OverAnyWindowWithWorkAPodHoldsItsRequest, ()) {
  Random random = AnyRandom();
  Mix mix(random, {.high = random.OneIn(2), .pods_max = 40, .overruns = random.OneIn(2)});
  struct Window {
    double due = 0;  // request times served time, less what it held, while it has work
    double least = 0;
  };
  std::vector<Window> windows(mix.tenants.size());
  for (Tenant& t : mix.tenants) mix.Wake(t);
  const auto ns = [](Duration d) { return static_cast<double>(Nanos(d)); };
  const double longest = ns(mix.longest);
  const double bound = std::max(ns(mix.options.guarantee_bound), 2 * longest);
  double excess = 0;  // of holds over what was predicted
  for (const Tenant& t : mix.tenants) excess += ns(t.longest - t.predicted);
  for (int step = 0; step < mix.holds(); ++step) {
    Tenant& t = mix.tenants[static_cast<size_t>(
        random.Between(0, static_cast<int64_t>(mix.tenants.size()) - 1))];
    switch (random.Between(0, 9)) {
      case 0: {  // it has no more work, for a moment or longer
        if (!mix.queue.fluid().active(t.slot)) break;
        mix.queue.SetWaiting(t.slot, false, Duration(1));
        // It comes back with a claim of at most M; of nothing, if it was gone.
        const bool gone = random.OneIn(2);
        if (gone) mix.queue.SetActive(t.slot, false);
        Window& w = windows[t.slot];
        w.due = std::min(w.due, w.least + (gone ? 1 : 2) * bound);
        break;
      }
      case 1:  // another pod takes its place
        mix.queue.Remove(t.slot);
        t.id.value += 1'000'000;
        RC_ASSERT(mix.queue.Add(t.id, t.spec, mix.now) == t.slot);
        windows[t.slot] = {};
        if (random.OneIn(2)) mix.Wake(t);
        break;
      case 2:
        mix.queue.SetTeamWeights({static_cast<uint32_t>(random.Between(0, 3)),
                                  static_cast<uint32_t>(random.Between(0, 3))});
        break;
      default:
        mix.Wake(t);
    }
    std::vector<bool> has_work;
    for (const Tenant& other : mix.tenants) {
      has_work.push_back(mix.queue.fluid().active(other.slot) && mix.queue.waiting(other.slot));
    }
    const Tenant* served = mix.Serve();
    if (served == nullptr) continue;
    const auto held = static_cast<double>(Nanos(served->last));
    for (size_t i = 0; i < windows.size(); ++i) {
      if (!has_work[i]) continue;
      Window& w = windows[i];
      w.due += Ratio(mix.tenants[i].spec.request) * held;
      if (&mix.tenants[i] == served) w.due -= held;
      w.least = std::min(w.least, w.due);
      RC_ASSERT(w.due - w.least <= 2 * bound + longest + excess + 100);
    }
  }
}

// Beside pods that always have work, others that come and go, and high priority: once it must
// begin, one hold may be in its way, and then only who must begin too or is far below its request.
RC_GTEST_PROP(FairQueueLaw, WhoComesFromAPauseEndsWhenItsRequestWouldHaveServedIt, ()) {
  Random random = AnyRandom();
  Mix mix(random, {.high = random.OneIn(2), .pods_max = 40, .longest_max = milliseconds(200)});
  const Duration handoff(random.Spread(10'000, 1'000'000));
  const Duration least = Guarantee::kLeastHandoffs * handoff;
  std::vector<bool> pauses(mix.tenants.size());
  struct Due {
    bool there = false;
    Duration begin{0};  // served time at which it must, and by which it must end
    Duration end{0};
    Duration others{0};  // since then went those that must go as well
  };
  std::vector<Due> due(mix.tenants.size());
  for (Tenant& t : mix.tenants) {
    pauses[t.slot] = t.slot > 0 && random.OneIn(2);
    if (pauses[t.slot]) t.same = true;
    if (!pauses[t.slot]) mix.Wake(t);
  }
  const auto come = [&](Tenant& t) {
    if (!pauses[t.slot] || due[t.slot].there) return;
    mix.queue.SetActive(t.slot, true);
    mix.queue.SetWaiting(t.slot, true, t.predicted, {t.predicted, handoff});
    const Duration owed = mix.queue.requests().Owed(t.slot);
    const double work = static_cast<double>(Nanos(t.predicted + handoff - owed));
    const Duration until(static_cast<int64_t>(work / Ratio(t.spec.request)));
    const Duration cost = t.predicted + handoff;
    const Duration begin = mix.queue.fluid().served() + std::max(until - cost, Duration(0));
    due[t.slot] = {true, begin, begin + cost, Duration(0)};
  };
  const auto hold_for = [&](const Tenant& t, Duration hold, bool must) {
    for (Due& d : due) {
      if (d.there && must && d.begin <= mix.queue.fluid().served()) d.others += hold;
    }
    mix.queue.Charge(t.slot, hold, mix.now += hold);
  };
  for (int step = 0; step < mix.holds(); ++step) {
    come(mix.tenants[static_cast<size_t>(
        random.Between(0, static_cast<int64_t>(mix.tenants.size()) - 1))]);
    const auto slot = mix.queue.Pick(mix.now);
    RC_ASSERT(slot.has_value());
    Tenant& t = mix.At(*slot);
    const bool must = pauses[t.slot] || mix.queue.requests().Owed(t.slot) > Duration(0);
    mix.queue.SetWaiting(t.slot, false, Duration(1));
    Duration hold = t.longest;
    // The token of one that has more work ends when one from a pause must begin, or comes and must.
    if (!pauses[t.slot] && !mix.queue.requests().MustStay(t.slot)) {
      const Duration until(random.Between(1, Nanos(hold)));
      hold = std::clamp(mix.queue.NextDue(), std::min(least, hold), hold);
      if (until < hold) {
        hold_for(t, until, must);
        come(mix.tenants[static_cast<size_t>(
            random.Between(0, static_cast<int64_t>(mix.tenants.size()) - 1))]);
        const Duration most = hold - until;
        hold = std::clamp(mix.queue.NextDue(), std::min(std::max(least - until, Duration(1)), most),
                          most);
      }
    }
    hold_for(t, hold, must);
    if (!pauses[t.slot]) {
      mix.queue.SetWaiting(t.slot, true, t.predicted);
      continue;
    }
    const Due& d = due[t.slot];
    RC_ASSERT(mix.queue.fluid().served() <=
              d.end + mix.longest + least + d.others + mix.rounding());
    due[t.slot].there = false;
    if (random.OneIn(2)) mix.queue.SetActive(t.slot, false);
  }
}

}  // namespace
}  // namespace baton::policy
