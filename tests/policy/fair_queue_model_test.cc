// FairQueue against its definition: docs/policy.md's mathematics written down once more, as plainly
// as can be, in floating point and without virtual time. No limits here: their laws are elsewhere.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "policy/fair_queue.h"

namespace baton::policy {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct ModelPod {
  ShareSpec spec;
  bool active = false;
  bool waiting = false;
  double burst = 1;
  double lag = 0;       // of an inactive pod: as it became so
  double slept_at = 0;  // what all had been served when it did
  double fluid = 0;
  double owed = 0;      // of its request
  double hold = 0;      // since it waited last
  double pays_for = 0;  // what is left of a hold of its own that was longer than any of late
  bool paying = false;
  double due = kNever;  // since a pause: the served time at which it must begin ...
  double cost = 0;      // ... to take this much

  double StillDue(double limit) const { return burst - (owed - limit); }
};

class Model {
 public:
  explicit Model(const FairQueueOptions& options) : options_(options) {}

  void SetActive(ModelPod& pod, bool active) {
    if (pod.active == active) return;
    const double rate = Ratio(pod.spec.request);
    if (active) {
      pod.lag = std::min(pod.lag + rate * (served_ - pod.slept_at), Credit(pod));
    } else {
      if (pod.waiting) SetWaiting(pod, false, 1);
      pod.owed = std::min(pod.owed, 0.0);
      pod.slept_at = served_;
      // By the entitlements beside it.
      for (ModelPod& p : pods) {
        if (p.active && &p != &pod) p.lag += pod.lag * p.fluid / (sum_ - pod.fluid);
      }
    }
    pod.active = active;
    Recentre(active && pod.lag < 0 ? &pod : nullptr);
  }
  // `usual` and `handoff`: of one that comes from a pause.
  void SetWaiting(ModelPod& pod, bool waiting, double burst, double usual = 0, double handoff = 0) {
    if (pod.due <= Reach()) pod.owed -= handoff_;
    pod.due = kNever;
    const double own = PaysFor(pod);
    pod.owed = std::max(pod.owed, -std::max(Limit(), own));
    if (waiting && !pod.waiting && pod.hold == 0) pod.owed = std::min(pod.owed, Limit());
    pod.hold = 0;
    pod.waiting = waiting;
    pod.burst = burst;
    if (waiting) NoteHold(burst);
    if (!waiting || handoff == 0) return;
    handoff_ = handoff;
    pod.cost = usual + handoff;
    pod.owed = std::max(pod.owed, -std::max(limit_longest_, own));
    pod.due = served_ + (pod.cost - pod.owed) / RequestOf(pod) - pod.cost;
  }
  void Charge(ModelPod& pod, double held) {
    served_ += held;
    for (ModelPod& p : pods) {
      if (p.active) p.lag += p.fluid / sum_ * held;
      p.pays_for -= RequestOf(p) * held;
      if (p.waiting || &p == &pod) {
        p.owed += RequestOf(p) * held;
      } else if (p.owed < 0 && held > 0) {
        p.owed = std::min(0.0, p.owed + RequestOf(p) * held);
      }
    }
    pod.lag -= held;
    pod.owed -= held;
    pod.hold += held;
    longest_ -= std::floor(longest_ / 256);
    NoteHold(held);
    if (longest_ >= std::floor(limit_longest_ / 2)) return;
    for (const ModelPod& p : pods) {
      if (p.waiting) longest_ = std::max(longest_, p.burst);
    }
    limit_longest_ = longest_;
  }
  void CapLag(ModelPod& pod, double most) {
    pod.owed = std::min({pod.owed, most, Limit()});
    const double excess = pod.lag - most;
    if (excess <= 0) return;
    pod.lag -= excess;
    for (ModelPod& p : pods) {
      if (p.active) p.lag += p.fluid / sum_ * excess;
    }
  }
  double Credit(const ModelPod& pod) const {
    return Ratio(pod.spec.request) * static_cast<double>(Nanos(options_.sleep_credit));
  }
  // Whether the pod goes first for its request's sake, give or take the slop.
  bool MayGoForItsRequest(const ModelPod& pod, double slop) const {
    return pod.owed >= Limit() - slop || pod.due <= Reach() + Slop(pod, slop);
  }
  // By how much it then is too far ahead of its fair share.
  double TooFarAhead(const ModelPod& pod) const { return std::max(0.0, -pod.lag - Limit()); }
  void Forgive(ModelPod& pod) {
    const double ahead = TooFarAhead(pod);
    for (ModelPod& p : pods) {
      if (p.active) p.lag -= p.fluid / (sum_ - pod.fluid) * ahead;
    }
    pod.lag = -Limit();
  }
  // Entitlements follow who is active; lags are kept, and what does not sum up to zero is spread
  // over all but the one that came with a debt, unless it is alone.
  void Recentre(const ModelPod* came = nullptr) {
    std::vector<Entitlement> shares;
    for (const ModelPod& p : pods) {
      if (p.active) {
        shares.push_back({p.spec.request, p.spec.limit, p.spec.slack_weight, p.spec.team});
      }
    }
    FluidShares(shares, team_weights);
    auto share = shares.begin();
    double lags = 0;
    sum_ = 0;
    for (ModelPod& p : pods) {
      p.fluid = p.active ? (share++)->fluid.millionths() : 0;
      sum_ += p.fluid;
      if (p.active) lags += p.lag;
    }
    const double bearers = came == nullptr ? sum_ : sum_ - came->fluid;
    for (ModelPod& p : pods) {
      if (!p.active) continue;
      if (bearers == 0) {
        p.lag = 0;
      } else if (&p != came) {
        p.lag -= lags * p.fluid / bearers;
      }
    }
  }
  // Whether the rule allows that `pod` is picked, where `slop` nanoseconds of lag do not matter.
  bool MayBePicked(const ModelPod& pod, double slop) const {
    const auto burst = static_cast<double>(Nanos(options_.priority_burst));
    const auto urgent = [&](const ModelPod& p, double s) {
      return p.spec.priority == Priority::kHigh && p.lag > -burst + s;
    };
    const auto finish = [](const ModelPod& p, double s) { return (p.burst - p.lag + s) / p.fluid; };
    const bool may_be_urgent = urgent(pod, -slop);
    const bool may_be_behind = MayBeFirstDue(pod, slop) || MayBeFirstBehind(pod, slop);
    for (const ModelPod& p : pods) {
      if (!p.waiting || &p == &pod) continue;
      if (p.owed >= Limit() + slop || p.due <= Reach() - Slop(p, slop)) {
        if (!may_be_behind) return false;
      } else if (may_be_behind) {
        continue;
      } else if (urgent(p, slop)) {
        if (!may_be_urgent || finish(p, slop) < finish(pod, -slop)) return false;
      } else if (may_be_urgent) {
        continue;
      } else if (p.lag >= slop) {
        if (pod.lag < -slop || finish(p, slop) < finish(pod, -slop)) return false;
      } else if (pod.lag < -slop) {
        if ((p.lag - slop) / p.fluid > (pod.lag + slop) / pod.fluid) return false;
      }
    }
    return pod.waiting;
  }

  std::vector<ModelPod> pods;
  std::vector<uint32_t> team_weights;

 private:
  double Limit() const {
    return std::max(static_cast<double>(Nanos(options_.guarantee_bound)), 2 * limit_longest_);
  }
  // Who must begin by then is due.
  double Reach() const { return served_ + Guarantee::kLeastHandoffs * handoff_; }
  // What a slop in what the pod is owed makes of its deadlines.
  double Slop(const ModelPod& pod, double slop) const { return slop + slop / RequestOf(pod); }
  double Deadline(const ModelPod& pod) const {
    return served_ + pod.StillDue(Limit()) / RequestOf(pod);
  }
  // Where nobody is far behind: of those from a pause, the one that must begin first.
  bool MayBeFirstDue(const ModelPod& pod, double slop) const {
    const double own = Slop(pod, slop);
    if (pod.due > Reach() + own) return false;
    return std::none_of(pods.begin(), pods.end(), [&](const ModelPod& p) {
      if (!p.waiting || &p == &pod) return false;
      return p.due + Slop(p, slop) < pod.due - own || p.owed >= Limit() + slop;
    });
  }
  // Of those far behind, the one with the earliest deadline.
  bool MayBeFirstBehind(const ModelPod& pod, double slop) const {
    const double own = Slop(pod, slop);
    if (pod.owed < Limit() - slop) return false;
    return std::none_of(pods.begin(), pods.end(), [&](const ModelPod& p) {
      if (!p.waiting || &p == &pod || p.owed < Limit() + slop) return false;
      return Deadline(p) + Slop(p, slop) < Deadline(pod) - own;
    });
  }
  double PaysFor(ModelPod& pod) const {
    if (!pod.paying) pod.pays_for = 0;
    const bool is_long = pod.hold > limit_longest_;
    if (is_long) pod.pays_for = std::max(pod.pays_for, pod.hold);
    if (!pod.paying && !is_long) return 0;
    pod.paying = pod.pays_for > limit_longest_;
    return pod.pays_for;
  }
  void NoteHold(double length) {
    longest_ = std::max(longest_, length);
    limit_longest_ = std::max(limit_longest_, longest_);
  }
  // In millionths, as all shares.
  double RequestOf(const ModelPod& pod) const {
    ShareSum sum;
    for (const ModelPod& p : pods) sum += p.spec.request;
    if (sum <= kWhole) return Ratio(pod.spec.request);
    const double scaled = Ratio(pod.spec.request) / Ratio(sum);
    return std::max(1.0, std::floor(scaled * kMillion)) / kMillion;
  }

  const FairQueueOptions options_;
  double served_ = 0;
  double sum_ = 0;
  double longest_ = 0;  // hold, of late
  double limit_longest_ = 0;
  double handoff_ = 0;
};

RC_GTEST_PROP(FairQueueModel, LagsEntitlementsAndPicksAreThoseOfTheDefinition, ()) {
  Random random(*rc::gen::noShrink(
      rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<uint64_t>().as("seed"))));
  const FairQueueOptions options;
  FairQueue queue(options);
  Model model(options);
  Instant now{};
  const auto any_spec = [&random] {
    ShareSpec spec{.request = Share(random.Spread(kShareMin.millionths(), 400'000))};
    spec.slack_weight = static_cast<uint32_t>(random.Between(1, kMillion));
    spec.priority = random.OneIn(5) ? Priority::kHigh : Priority::kNormal;
    spec.team = static_cast<uint32_t>(random.Between(0, 3));
    return spec;
  };
  const auto any_length = [&random] { return Duration(random.Spread(10'000, 2'000'000'000)); };
  const auto n = static_cast<Slot>(random.Between(1, 16));
  for (Slot i = 0; i < n; ++i) {
    model.pods.push_back({.spec = any_spec()});
    RC_ASSERT(queue.Add(PodId{i + 1}, model.pods.back().spec, now) == i);
  }
  double slop = 10;  // grows by what each change may round
  for (int step = 0; step < 300; ++step) {
    const auto slot = static_cast<Slot>(random.Between(0, n - 1));
    ModelPod& pod = model.pods[slot];
    slop += 1 + n;
    switch (random.Between(0, 11)) {
      case 0:
        queue.SetActive(slot, false);
        model.SetActive(pod, false);
        break;
      case 1:
        pod.spec = any_spec();
        queue.Update(slot, pod.spec, now);
        model.Recentre();
        break;
      case 2:
        if (!pod.active) break;
        if (random.OneIn(2)) {
          queue.SetWaiting(slot, false, Duration(1));
          model.SetWaiting(pod, false, 1);
        }
        queue.CapLag(slot, queue.fluid().Credit(slot));
        model.CapLag(pod, model.Credit(pod));
        break;
      case 3:
        model.team_weights.clear();
        for (int64_t t = random.Between(0, 3); t > 0; --t) {
          model.team_weights.push_back(static_cast<uint32_t>(random.Between(0, 3)));
        }
        queue.SetTeamWeights(model.team_weights);
        model.Recentre();
        break;
      case 4: {
        const Duration held = random.OneIn(2) ? any_length() : -any_length() / 4;
        if (!pod.active) break;
        queue.Charge(slot, held, now);
        model.Charge(pod, static_cast<double>(Nanos(held)));
        break;
      }
      default: {
        const Duration burst = any_length();
        const bool pause = random.OneIn(2);
        const Duration usual = pause ? any_length() : Duration(0);
        const Duration handoff = pause ? Duration(random.Spread(1'000, 10'000'000)) : Duration(0);
        queue.SetActive(slot, true);
        queue.SetWaiting(slot, true, burst, {usual, handoff});
        model.SetActive(pod, true);
        model.SetWaiting(pod, true, static_cast<double>(Nanos(burst)),
                         static_cast<double>(Nanos(usual)), static_cast<double>(Nanos(handoff)));
      }
    }
    for (Slot i = 0; i < n; ++i) {
      const ModelPod& p = model.pods[i];
      RC_ASSERT(queue.fluid().active(i) == p.active);
      RC_ASSERT(queue.Fluid(i) == Share(static_cast<uint32_t>(p.fluid)));
      if (p.active) RC_ASSERT(std::abs(static_cast<double>(Nanos(queue.Lag(i))) - p.lag) <= slop);
    }
    const auto picked = queue.Pick(now);
    RC_ASSERT(picked.has_value() == std::any_of(model.pods.begin(), model.pods.end(),
                                                [](const ModelPod& p) { return p.waiting; }));
    if (!picked) continue;
    RC_ASSERT(model.MayBePicked(model.pods[*picked], slop));
    ModelPod& first = model.pods[*picked];
    if (std::abs(static_cast<double>(Nanos(queue.Lag(*picked))) - first.lag) > slop) {
      RC_ASSERT(model.MayGoForItsRequest(first, slop));
      RC_ASSERT(model.TooFarAhead(first) > 0);
      model.Forgive(first);
    } else if (model.MayGoForItsRequest(first, -slop)) {
      RC_ASSERT(model.TooFarAhead(first) <= 2 * slop);
    }
    const double owed = model.pods[*picked].owed;
    RC_ASSERT(std::abs(static_cast<double>(Nanos(queue.requests().Owed(*picked))) - owed) <= slop);
    const Duration held = any_length();
    now += held;
    queue.Charge(*picked, held, now);
    model.Charge(model.pods[*picked], static_cast<double>(Nanos(held)));
  }
}

}  // namespace
}  // namespace baton::policy
