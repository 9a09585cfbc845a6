#include "policy/fair_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace baton::policy {
namespace {

// A gang can seldom go when it is picked.
Duration LatencyOf(const QueuedPod& pod) {
  return pod.claims == Claims::kAlways ? pod.spec.latency : Duration(0);
}

}  // namespace

Slot FairQueue::Add(PodId id, const ShareSpec& spec, Instant now, Claims claims,
                    const Debts& debts) {
  Slot slot;
  if (free_.empty()) {
    slot = static_cast<Slot>(pods_.size());
    pods_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  QueuedPod& pod = pods_[slot];
  pod = {};
  pod.id = id;
  pod.spec = spec;
  pod.bucket.Fill(pod.RateOver(options_.limit_window), now, debts.limit_full_at);
  pod.claims = claims;
  fluid_.Add(slot, debts);
  guarantee_.Add(slot, id, claims == Claims::kNever ? Share(0) : spec.request,
                 claims != Claims::kWhenRanked, debts);
  if (debts.paid > now) deadlines_.Owe(slot, id, debts.paid);
  deadlines_.Set(slot, id, order_ == nullptr ? LatencyOf(pod) : Duration(0));
  return slot;
}

void FairQueue::Update(Slot slot, const ShareSpec& spec, Instant now, Instant limit_full_at) {
  QueuedPod& pod = pods_[slot];
  const bool was_waiting = pod.waiting;
  const Duration burst = fluid_.burst(slot);
  if (was_waiting) Line(slot, false, burst);
  pod.bucket.Settle(pod.RateOver(options_.limit_window), now);
  pod.spec = spec;
  if (limit_full_at > LimitFullAt(slot)) {
    pod.bucket.Fill(pod.RateOver(options_.limit_window), now, limit_full_at);
  }
  guarantee_.SetRequest(slot, pod.claims == Claims::kNever ? Share(0) : spec.request);
  fluid_.Update(slot);
  deadlines_.Set(slot, pod.id, order_ == nullptr ? LatencyOf(pod) : Duration(0));
  if (was_waiting) Line(slot, true, burst);
}

void FairQueue::SetTeamWeights(std::vector<uint32_t> weights) {
  fluid_.SetTeamWeights(std::move(weights));
}

Debts FairQueue::Remove(Slot slot) {
  SetActive(slot, false);
  Debts debts;
  fluid_.Remove(slot, debts);
  guarantee_.Remove(slot, debts);
  debts.paid = deadlines_.Remove(slot);
  debts.limit_full_at = LimitFullAt(slot);
  free_.push_back(slot);
  return debts;
}

void FairQueue::SetActive(Slot slot, bool active) {
  if (fluid_.active(slot) == active) return;
  if (!active) {
    if (pods_[slot].waiting) SetWaiting(slot, false, Duration(1));
    guarantee_.CapClaim(slot, Duration(0));
  }
  fluid_.SetActive(slot, active);
}

void FairQueue::SetWaiting(Slot slot, bool waiting, Duration burst, const FromPause& from,
                           const WaitsSince& since) {
  BATON_CHECK(fluid_.active(slot) && Nanos(burst) > 0);
  if (waiting) {
    deadlines_.Wait(slot, since, guarantee_.RateOf(slot));
  } else {
    deadlines_.Leave(slot);
  }
  if (pods_[slot].claims != Claims::kWhenRanked) guarantee_.SetWaiting(slot, waiting, burst, from);
  Line(slot, waiting, burst);
}

void FairQueue::SetWork(Slot slot, bool has, Duration burst) {
  BATON_CHECK(pods_[slot].claims == Claims::kWhenRanked);
  guarantee_.SetWaiting(slot, has, burst);
}

void FairQueue::Line(Slot slot, bool waiting, Duration burst) {
  QueuedPod& pod = pods_[slot];
  throttled_.Erase(slot);
  deadlines_.SetLimited(slot, false);
  if (pod.waiting != waiting && pod.spec.priority == Priority::kHigh) {
    const auto by_id = [this](Slot a, Slot b) { return pods_[a].id < pods_[b].id; };
    const auto at = std::lower_bound(high_.begin(), high_.end(), slot, by_id);
    waiting ? (void)high_.insert(at, slot) : (void)high_.erase(at);
  }
  if (pod.waiting != waiting && pod.claims == Claims::kWhenRanked) {
    waiting ? ranked_.push_back(slot) : (void)std::erase(ranked_, slot);
  }
  pod.waiting = waiting;
  fluid_.SetQueued(slot, waiting, burst);
}

void FairQueue::CapLag(Slot slot, Duration most, bool keeps_claim) {
  fluid_.CapLag(slot, most);
  guarantee_.CapClaim(slot, keeps_claim ? guarantee_.MostBehind() : most);
}

void FairQueue::Charge(Slot slot, Duration held, Instant now) {
  QueuedPod& pod = pods_[slot];
  BATON_CHECK(fluid_.active(slot));
  if (order_ != nullptr) order_->Charged(pod.id, held);
  guarantee_.Charge(slot, held);
  deadlines_.Charge(slot, held, now, guarantee_.RateOf(slot), guarantee_.LongestHold());
  pod.bucket.Charge(pod.RateOver(options_.limit_window), held, now);
  if (pod.waiting) Line(slot, true, fluid_.burst(slot));  // even if it was at its limit
  fluid_.Charge(slot, held);
}

std::optional<Slot> FairQueue::Pick(Instant now) {
  // Those whose refill has come wait with the others.
  fluid_.Settle();
  while (!throttled_.empty() && throttled_.top_key() <= Nanos(now)) {
    const Slot slot = throttled_.top();
    const Duration burst = fluid_.burst(slot);
    Line(slot, true, burst);
    if (pods_[slot].claims != Claims::kWhenRanked) guarantee_.SetWaiting(slot, true, burst);
  }
  const auto ranked = FirstOf(
      ranked_, now, [this](Slot slot) { return guarantee_.MustGo(slot); },
      [this](Slot a, Slot b) { return guarantee_.GoesBefore(a, b); });
  while (order_ == nullptr) {
    const auto behind = guarantee_.Behind();
    if (!behind) break;
    if (!Allowed(*behind, now)) continue;
    // Both must go: whose deadline is first does. One that naps is behind again and again, and
    // would keep a gang's other GPUs waiting for good.
    if (ranked && guarantee_.GoesBefore(*ranked, *behind)) return ranked;
    // What it had for its request's sake is no debt of its fair share beyond what it may be behind
    // by: else it lives by its request alone for as long as others that nap leave it too little
    // slack.
    fluid_.CapDebt(*behind, guarantee_.MostBehind());
    return behind;
  }
  if (ranked) return ranked;
  if (!deadlines_.waiting().empty()) {
    const auto early = FirstOf(
        deadlines_.waiting(), now, [&](Slot slot) { return deadlines_.Within(slot, now); },
        [this](Slot a, Slot b) { return deadlines_.GoesBefore(a, b); });
    if (early) return early;
  }
  const auto urgent = FirstOf(
      high_, now, [this](Slot slot) { return Urgent(slot); },
      [this](Slot a, Slot b) { return fluid_.finish(a) < fluid_.finish(b); });
  if (urgent) return urgent;
  while (true) {
    const auto first = order_ == nullptr ? fluid_.First() : fluid_.FirstBy(*order_);
    if (!first || Allowed(*first, now)) return first;
  }
}

template <class Must, class Before>
std::optional<Slot> FairQueue::FirstOf(const std::vector<Slot>& pods, Instant now, Must must,
                                       Before before) {
  std::optional<Slot> first;
  for (const Slot slot : pods) {
    if (throttled_.contains(slot) || !must(slot) || !Allowed(slot, now)) continue;
    if (!first || before(slot, *first)) first = slot;
  }
  return first;
}

std::optional<Slot> FairQueue::PrefetchLikely() const {
  const auto likely = fluid_.Likely();
  if (!likely) return std::nullopt;
  const char* pod = reinterpret_cast<const char*>(&pods_[*likely]);
  __builtin_prefetch(pod, 1);
  __builtin_prefetch(pod + 64, 1);
  guarantee_.Prefetch(*likely);
  return likely;
}

Instant FairQueue::NextRefill() const {
  return throttled_.empty() ? kNever : InstantFromNanos(throttled_.top_key());
}

Duration FairQueue::Allowance(Slot slot, Instant now) const {
  return Duration(pods_[slot].bucket.LevelAt(pods_[slot].RateOver(options_.limit_window), now));
}

Instant FairQueue::MayGoAt(Slot slot) const {
  return pods_[slot].bucket.HasAt(pods_[slot].RateOver(options_.limit_window),
                                  pods_[slot].NeededOf(options_.limit_window));
}

Instant FairQueue::LimitFullAt(Slot slot) const {
  return pods_[slot].bucket.FullAt(pods_[slot].RateOver(options_.limit_window));
}

bool FairQueue::Urgent(Slot slot) {
  return pods_[slot].spec.priority == Priority::kHigh && Lag(slot) > -options_.priority_burst;
}

bool FairQueue::MayRevoke(Slot slot, Slot holder) {
  return Urgent(slot) && pods_[holder].spec.priority == Priority::kNormal &&
         !guarantee_.MustStay(holder);
}

bool FairQueue::FinishesBefore(Slot a, Slot b) {
  fluid_.Settle();
  if (order_ != nullptr) {
    const Standing standing = fluid_.StandingOf(a);
    return order_->IsDue(standing) && order_->GoesBefore(standing, fluid_.StandingOf(b));
  }
  if (guarantee_.MustStay(b)) return false;
  if (guarantee_.MustGo(a)) return true;
  return fluid_.owed(a) && fluid_.finish(a) < fluid_.finish(b);
}

bool FairQueue::Allowed(Slot slot, Instant now) {
  const QueuedPod& pod = pods_[slot];
  const LimitBucket::Rate rate = pod.RateOver(options_.limit_window);
  const int64_t need = pod.NeededOf(options_.limit_window), level = pod.bucket.LevelAt(rate, now);
  if (level >= need) return true;
  fluid_.SetQueued(slot, false, fluid_.burst(slot));
  if (pod.claims == Claims::kWhenRanked) {
    guarantee_.CapClaim(slot, Duration(0));
  } else {
    guarantee_.Throttle(slot);
  }
  // It cannot be given what it is owed. More than its next hold it would keep for ever, and the
  // others, whose lags are the mirror of it, would drift ahead without bound.
  fluid_.CapLag(slot, Duration(need));
  deadlines_.SetLimited(slot, true);
  throttled_.Insert(slot, Nanos(now + rate.TimeFor(need - level)), pod.id.value);
  return false;
}

}  // namespace baton::policy
