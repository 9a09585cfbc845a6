// Drawn mixes of pods on one GPU, for the laws of the fair queue.
#ifndef BATON_TESTS_POLICY_MIX_H_
#define BATON_TESTS_POLICY_MIX_H_

#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "policy/fair_queue.h"
#include "world/rule.h"

namespace baton::policy {

inline Random AnyRandom() {
  return Random(*rc::gen::noShrink(
      rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<uint64_t>().as("seed"))));
}

// Both included.
inline Share AnyShare(Random& random, Share least, Share most) {
  return Share(random.Between(least.millionths(), most.millionths()));
}

struct Tenant {
  PodId id;
  ShareSpec spec;
  Duration predicted{0};  // what the queue is told that its next hold takes
  Duration longest{0};    // what it takes at most
  bool same = false;      // every hold takes that
  Slot slot = 0;
  Duration held{0};
  Duration last{0};  // of `held`, the last hold

  bool limited() const { return spec.limit < kWhole; }
  bool high() const { return spec.priority == Priority::kHigh; }
};

struct Kind {
  bool limits = false;
  bool high = false;
  double requested = 1;  // sum of the requests, as a part of the GPU; about
  uint32_t pods_max = 512;
  Duration longest_min = std::chrono::microseconds(10);
  Duration longest_max = std::chrono::seconds(2);
  bool overruns = false;  // holds may take longer than predicted
  world::Rule rule = world::Rule::kEarliestFinish;
};

// A GPU and its tenants. Nobody is active at first.
class Mix {
  static constexpr int64_t kLeast = kShareMin.millionths();

 public:
  Mix(Random& random, const Kind& kind)
      : random(random), options{.order = OrderOf(kind.rule)}, queue(options) {
    const auto n = static_cast<uint32_t>(
        random.Between(2, random.OneIn(8) ? kind.pods_max : std::min<uint32_t>(kind.pods_max, 12)));
    auto left = static_cast<int64_t>(kMillion * kind.requested);
    const bool alike = random.OneIn(2);
    const auto any_longest = [&] {
      return Duration(random.Spread(Nanos(kind.longest_min), Nanos(kind.longest_max)));
    };
    const Duration shared = any_longest();
    for (uint32_t i = 0; i < n; ++i) {
      Tenant t;
      const int64_t most = std::max<int64_t>(kLeast, left - (n - i - 1) * kLeast);
      const int64_t fair = std::max<int64_t>(kLeast, 2 * left / (n - i));
      const int64_t wish =
          random.OneIn(2) ? random.Spread(kLeast, 990'000) : random.Between(kLeast, fair);
      const int64_t request = std::min<int64_t>({wish, most, 990'000});
      t.spec.request = Share(request);
      left -= request;
      if (kind.limits && i > 0 && random.OneIn(2)) {
        t.spec.limit =
            random.OneIn(2) ? t.spec.request : Share(random.Between(request, kMillion - 1));
      }
      if (kind.high && i > 0 && random.OneIn(4)) t.spec.priority = Priority::kHigh;
      t.spec = Validated(t.spec).value();
      t.longest = alike ? shared : any_longest();
      t.predicted = kind.overruns ? Duration(random.Between(1, Nanos(t.longest))) : t.longest;
      t.same = random.OneIn(2);
      t.id = PodId{i + 1};
      t.slot = queue.Add(t.id, t.spec, now);
      longest = std::max(longest, t.longest);
      tenants.push_back(t);
    }
  }

  Tenant& At(Slot slot) { return tenants[slot]; }
  void Wake(Tenant& t) {
    queue.SetActive(t.slot, true);
    queue.SetWaiting(t.slot, true, t.predicted);
  }
  void WakeAll() {
    for (Tenant& t : tenants) Wake(t);
  }
  // One hold, to its end; or nothing, where nobody may hold: then the time of the next refill.
  Tenant* Serve() {
    const auto slot = queue.Pick(now);
    if (!slot) {
      const Instant refill = queue.NextRefill();
      if (refill != kNever) now = std::max(now, refill);
      return nullptr;
    }
    Tenant& t = At(*slot);
    Duration hold = t.same ? t.longest : Duration(random.Between(1, Nanos(t.longest)));
    // A quota ends where the limit's bucket does; the kernel that runs then does not.
    if (!t.same) hold = std::max(Duration(1), std::min(hold, queue.Allowance(t.slot, now)));
    now += hold;
    t.held += hold;
    t.last = hold;
    queue.Charge(t.slot, hold, now);
    queue.SetWaiting(t.slot, true, t.predicted);
    return &t;
  }
  // How many holds a law looks at, each of them at all pods.
  int holds() const { return std::clamp(static_cast<int>(60'000 / tenants.size()), 200, 1'000); }
  // Each division rounds by less than a nanosecond.
  Duration rounding() const { return Duration(static_cast<int64_t>(3 * tenants.size()) + 10); }

  Random& random;
  const FairQueueOptions options;
  FairQueue queue;
  Instant now{};
  std::vector<Tenant> tenants;  // by slot
  Duration longest{0};          // L
};

}  // namespace baton::policy

#endif  // BATON_TESTS_POLICY_MIX_H_
