#include "policy/fair_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "policy/rational.h"

namespace baton::policy {
namespace {

// The virtual time in which a rate of `share` serves `ns`. The rest of the division is kept for the
// next time, so that many small services add up to no drift.
int64_t VirtualTime(int64_t ns, ShareSum share, int64_t& rest) {
  return TimeToServe(ns, share, rest);
}

// Virtual time is started anew from zero before it comes near the end of its range.
constexpr int64_t kVirtualMax = INT64_C(1) << 58;

}  // namespace

Slot FairQueue::Add(PodId id, const ShareSpec& spec, Instant now, Claims claims,
                    Instant limit_full_at) {
  Slot slot;
  if (free_.empty()) {
    slot = static_cast<Slot>(pods_.size());
    pods_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  Pod& pod = pods_[slot];
  pod = Pod{};
  pod.id = id;
  pod.spec = spec;
  pod.served_at = served_ns_;
  pod.bucket.Fill(pod.RateOver(options_.limit_window), now, limit_full_at);
  pod.claims = claims;
  guarantee_.Add(slot, id, claims == Claims::kNever ? Share(0) : spec.request,
                 claims != Claims::kWhenRanked);
  return slot;
}

void FairQueue::Update(Slot slot, const ShareSpec& spec, Instant now) {
  Pod& pod = pods_[slot];
  const bool was_waiting = pod.waiting;
  const Duration burst(pod.burst_ns);
  if (was_waiting) Line(slot, false, burst);
  pod.bucket.Settle(pod.RateOver(options_.limit_window), now);
  pod.spec = spec;
  guarantee_.SetRequest(slot, pod.claims == Claims::kNever ? Share(0) : spec.request);
  dirty_ |= pod.active;
  if (was_waiting) Line(slot, true, burst);
}

void FairQueue::SetTeamWeights(std::vector<uint32_t> weights) {
  if (weights == team_weights_) return;
  team_weights_ = std::move(weights);
  dirty_ = true;
}

void FairQueue::Remove(Slot slot) {
  SetActive(slot, false);
  guarantee_.Remove(slot);
  free_.push_back(slot);
}

void FairQueue::SetActive(Slot slot, bool active) {
  Pod& pod = pods_[slot];
  if (pod.active == active) return;
  const auto by_id = [this](Slot a, Slot b) { return pods_[a].id < pods_[b].id; };
  const auto at = std::lower_bound(active_.begin(), active_.end(), slot, by_id);
  // Changes take effect one after the other: what a leaver was owed or owed is between those that
  // it left.
  if (dirty_) Settle();
  if (active) {
    // Its request kept running while others were served, up to the credit; a debt shrinks at the
    // same rate and is never dropped.
    const int64_t slept = ServedIn(served_ns_ - pod.served_at, pod.spec.request);
    pod.lag_ns = std::min(pod.lag_ns + slept, Nanos(Credit(slot)));
    active_.insert(at, slot);
  } else {
    if (pod.waiting) SetWaiting(slot, false, Duration(1));
    guarantee_.CapClaim(slot, Duration(0));
    pod.lag_ns = pod.LagAt(virtual_ns_);
    // What it was owed, or owed, is between those that it leaves, by what they are entitled to
    // beside it: whoever paid for a credit that was not used gets as much back.
    fluid_sum_ -= pod.fluid;
    if (fluid_sum_ > Share(0)) virtual_ns_ += VirtualTime(pod.lag_ns, fluid_sum_, virtual_rest_);
    pod.fluid = Share(0);
    pod.served_at = served_ns_;
    active_.erase(at);
  }
  pod.active = active;
  dirty_ = true;
}

void FairQueue::SetWaiting(Slot slot, bool waiting, Duration burst, const FromPause& from) {
  Pod& pod = pods_[slot];
  BATON_CHECK(pod.active && Nanos(burst) > 0);
  if (pod.claims != Claims::kWhenRanked) guarantee_.SetWaiting(slot, waiting, burst, from);
  Line(slot, waiting, burst);
}

void FairQueue::SetWork(Slot slot, bool has, Duration burst) {
  BATON_CHECK(pods_[slot].claims == Claims::kWhenRanked);
  guarantee_.SetWaiting(slot, has, burst);
}

void FairQueue::Line(Slot slot, bool waiting, Duration burst) {
  Pod& pod = pods_[slot];
  Dequeue(slot);
  if (pod.waiting != waiting && pod.spec.priority == Priority::kHigh) {
    const auto by_id = [this](Slot a, Slot b) { return pods_[a].id < pods_[b].id; };
    const auto at = std::lower_bound(high_.begin(), high_.end(), slot, by_id);
    waiting ? (void)high_.insert(at, slot) : (void)high_.erase(at);
  }
  if (pod.waiting != waiting && pod.claims == Claims::kWhenRanked) {
    waiting ? ranked_.push_back(slot) : (void)std::erase(ranked_, slot);
  }
  pod.waiting = waiting;
  const bool same_burst = pod.burst_ns == Nanos(burst);
  pod.burst_ns = Nanos(burst);
  if (dirty_) return;  // Settle queues everybody
  if (!same_burst) pod.SetEligible(pod.eligible);
  if (waiting) Enqueue(slot);
}

void FairQueue::CapLag(Slot slot, Duration most) {
  if (dirty_) Settle();
  const bool queued = pods_[slot].waiting && !throttled_.contains(slot);
  if (queued) Dequeue(slot);
  Forfeit(slot, pods_[slot].LagAt(virtual_ns_) - Nanos(most));
  if (queued) Enqueue(slot);
  guarantee_.CapClaim(slot, most);
}

Duration FairQueue::Credit(Slot slot) const {
  return Duration(ServedIn(Nanos(options_.sleep_credit), pods_[slot].spec.request));
}

void FairQueue::Charge(Slot slot, Duration held, Instant now) {
  Pod& pod = pods_[slot];
  BATON_CHECK(pod.active);
  const int64_t s = Nanos(held);
  served_ns_ += s;
  if (order_ != nullptr) order_->Charged(pod.id, held);
  guarantee_.Charge(slot, held);
  pod.bucket.Charge(pod.RateOver(options_.limit_window), held, now);
  if (dirty_) Settle();  // it was served at the rates of those who are active now
  virtual_ns_ += VirtualTime(s, fluid_sum_, virtual_rest_);
  const bool queued = pod.waiting;
  if (queued) Dequeue(slot);
  pod.SetEligible(pod.eligible + VirtualTime(s, pod.fluid, pod.eligible_rest));
  if (queued) Enqueue(slot);
  dirty_ |= virtual_ns_ > kVirtualMax || pod.eligible > kVirtualMax;
}

std::optional<Slot> FairQueue::Pick(Instant now) {
  Unthrottle(now);
  while (order_ == nullptr) {
    const auto behind = guarantee_.Behind();
    if (!behind) break;
    if (!Allowed(*behind, now)) continue;
    Forgive(*behind);
    return behind;
  }
  if (const auto ranked = PickRanked(now)) return ranked;
  if (const auto urgent = PickUrgent(now)) return urgent;
  while (true) {
    const auto first = order_ == nullptr ? First() : FirstByOrder();
    if (!first || Allowed(*first, now)) return first;
  }
}

std::optional<Slot> FairQueue::First() {
  while (true) {
    while (!early_.empty() && early_.top_key() <= virtual_ns_) {
      const Slot slot = early_.top();
      early_.Erase(slot);
      eligible_.Insert(slot, pods_[slot].finish, pods_[slot].id.value);
    }
    const bool owed = !eligible_.empty();
    if (!owed && early_.empty()) return std::nullopt;
    const Slot slot = owed ? eligible_.top() : early_.top();
    if (owed && pods_[slot].eligible > virtual_ns_) {  // a refund set virtual time back
      eligible_.Erase(slot);
      early_.Insert(slot, pods_[slot].eligible, pods_[slot].id.value);
    } else {
      return slot;
    }
  }
}

std::optional<Slot> FairQueue::FirstByOrder() {
  std::optional<Slot> first;
  Standing best;
  for (const Slot slot : active_) {
    if (!pods_[slot].waiting || throttled_.contains(slot)) continue;
    const Standing standing = pods_[slot].StandingAt(virtual_ns_, fluid_sum_);
    if (first && !order_->GoesBefore(standing, best)) continue;
    first = slot;
    best = standing;
  }
  return first;
}

void FairQueue::Unthrottle(Instant now) {
  if (dirty_) Settle();
  while (!throttled_.empty() && throttled_.top_key() <= Nanos(now)) {
    const Slot slot = throttled_.top();
    throttled_.Erase(slot);
    Enqueue(slot);
    if (pods_[slot].claims != Claims::kWhenRanked) {
      guarantee_.SetWaiting(slot, true, Duration(pods_[slot].burst_ns));
    }
  }
}

std::optional<Slot> FairQueue::PickRanked(Instant now) {
  std::optional<Slot> first;
  for (const Slot slot : ranked_) {
    if (throttled_.contains(slot) || !guarantee_.MustGo(slot) || !Allowed(slot, now)) continue;
    if (!first || guarantee_.GoesBefore(slot, *first)) first = slot;
  }
  return first;
}

std::optional<Slot> FairQueue::PickUrgent(Instant now) {
  std::optional<Slot> urgent;
  for (const Slot slot : high_) {
    if (throttled_.contains(slot) || !Urgent(slot) || !Allowed(slot, now)) continue;
    if (!urgent || pods_[slot].finish < pods_[*urgent].finish) urgent = slot;
  }
  return urgent;
}

std::optional<Slot> FairQueue::PrefetchLikely() const {
  const IndexedHeap& heap = eligible_.empty() ? early_ : eligible_;
  if (heap.empty()) return std::nullopt;
  const char* pod = reinterpret_cast<const char*>(&pods_[heap.top()]);
  __builtin_prefetch(pod, 1);
  __builtin_prefetch(pod + 64, 1);
  guarantee_.Prefetch(heap.top());
  return heap.top();
}

Instant FairQueue::NextRefill() const {
  return throttled_.empty() ? kNever : InstantFromNanos(throttled_.top_key());
}

Duration FairQueue::Allowance(Slot slot, Instant now) const {
  return Duration(pods_[slot].bucket.LevelAt(pods_[slot].RateOver(options_.limit_window), now));
}

Instant FairQueue::LimitFullAt(Slot slot) const {
  return pods_[slot].bucket.FullAt(pods_[slot].RateOver(options_.limit_window));
}

Duration FairQueue::Lag(Slot slot) {
  if (dirty_) Settle();
  return Duration(pods_[slot].LagAt(virtual_ns_));
}

std::optional<Duration> FairQueue::SumOfLags() const {
  if (dirty_) return std::nullopt;
  int64_t sum = 0;
  for (const Slot slot : active_) sum += pods_[slot].LagAt(virtual_ns_);
  return Duration(sum);
}

Share FairQueue::Fluid(Slot slot) {
  if (dirty_) Settle();
  return pods_[slot].fluid;
}

bool FairQueue::Urgent(Slot slot) {
  return pods_[slot].spec.priority == Priority::kHigh && Lag(slot) > -options_.priority_burst;
}

bool FairQueue::MayRevoke(Slot slot, Slot holder) {
  return Urgent(slot) && pods_[holder].spec.priority == Priority::kNormal &&
         !guarantee_.MustStay(holder);
}

bool FairQueue::FinishesBefore(Slot a, Slot b) {
  if (dirty_) Settle();
  if (order_ != nullptr) {
    const Standing standing = pods_[a].StandingAt(virtual_ns_, fluid_sum_);
    return order_->IsDue(standing) &&
           order_->GoesBefore(standing, pods_[b].StandingAt(virtual_ns_, fluid_sum_));
  }
  if (guarantee_.MustStay(b)) return false;
  if (guarantee_.MustGo(a)) return true;
  return pods_[a].eligible <= virtual_ns_ && pods_[a].finish < pods_[b].finish;
}

void FairQueue::Enqueue(Slot slot) {
  const Pod& pod = pods_[slot];
  if (pod.eligible <= virtual_ns_) {
    eligible_.Insert(slot, pod.finish, pod.id.value);
  } else {
    early_.Insert(slot, pod.eligible, pod.id.value);
  }
}

void FairQueue::Dequeue(Slot slot) {
  eligible_.Erase(slot);
  early_.Erase(slot);
  throttled_.Erase(slot);
}

bool FairQueue::Allowed(Slot slot, Instant now) {
  const Pod& pod = pods_[slot];
  // Half a bucket is enough to begin: one that must be full first overflows whenever its turn comes
  // late.
  const LimitBucket::Rate rate = pod.RateOver(options_.limit_window);
  const int64_t need = std::min(pod.burst_ns, rate.Size() / 2);
  const int64_t level = pod.bucket.LevelAt(rate, now);
  if (level >= need) return true;
  Dequeue(slot);
  if (pod.claims == Claims::kWhenRanked) {
    guarantee_.CapClaim(slot, Duration(0));
  } else {
    guarantee_.Throttle(slot);
  }
  Forfeit(slot, pod.LagAt(virtual_ns_) - need);
  throttled_.Insert(slot, Nanos(now + rate.TimeFor(need - level)), pod.id.value);
  return false;
}

// A pod at its limit cannot be given what it is owed. More than its next hold it would keep for
// ever, and the others, whose lags are the mirror of it, would drift ahead without bound; so the
// excess goes back to all by their entitlement.
void FairQueue::Forfeit(Slot slot, int64_t excess) {
  if (excess <= 0) return;
  Pod& pod = pods_[slot];
  pod.SetEligible(pod.eligible + VirtualTime(excess, pod.fluid, pod.eligible_rest));
  virtual_ns_ += VirtualTime(excess, fluid_sum_, virtual_rest_);
}

// What a pod had for its request's sake is no debt of its fair share beyond what it may be behind
// by: else it lives by its request alone for as long as others that nap leave it too little slack.
void FairQueue::Forgive(Slot slot) {
  Pod& pod = pods_[slot];
  const int64_t ahead = -pod.LagAt(virtual_ns_) - Nanos(guarantee_.MostBehind());
  const ShareSum others = fluid_sum_ - pod.fluid;
  if (ahead <= 0 || others == Share(0)) return;
  const int64_t from_all =
      MulDiv(ahead, fluid_sum_.millionths(), others.millionths());  // the pod itself among them
  Dequeue(slot);
  pod.SetEligible(pod.eligible - VirtualTime(from_all, pod.fluid, pod.eligible_rest));
  virtual_ns_ -= VirtualTime(from_all, fluid_sum_, virtual_rest_);
  Enqueue(slot);
}

// Keeps everybody's lag over a change of membership, and spreads what does not sum up to zero over
// the active pods by their entitlement, but for those that came with a debt: they owe all of it to
// the others, or each nap would forgive them a part. Queues those who wait.
void FairQueue::Settle() {
  scratch_.clear();
  int64_t lags = 0;
  for (const Slot slot : active_) {
    Pod& pod = pods_[slot];
    pod.lag_ns = pod.LagAt(virtual_ns_);
    lags += pod.lag_ns;
    scratch_.push_back({pod.spec.request, pod.spec.limit, pod.spec.slack_weight, pod.spec.team});
  }
  FluidShares(scratch_, team_weights_);
  fluid_sum_ = Share(0);
  ShareSum bearers;  // entitlement of those over whom it is spread
  for (size_t i = 0; i < active_.size(); ++i) {
    Pod& pod = pods_[active_[i]];
    pod.owes = pod.fluid == Share(0) && pod.lag_ns < 0;
    pod.fluid = scratch_[i].fluid;
    fluid_sum_ += pod.fluid;
    if (!pod.owes) bearers += pod.fluid;
  }
  const bool all = bearers == Share(0);  // nobody is there to be owed anything
  if (all) bearers = fluid_sum_;
  virtual_rest_ = 0;
  virtual_ns_ = bearers == Share(0) ? 0 : VirtualTime(-lags, bearers, virtual_rest_);
  eligible_.Clear();
  early_.Clear();
  for (const Slot slot : active_) {
    Pod& pod = pods_[slot];
    pod.eligible_rest = 0;
    const int64_t begin = pod.owes && !all ? virtual_ns_ : 0;
    pod.SetEligible(begin + VirtualTime(-pod.lag_ns, pod.fluid, pod.eligible_rest));
    if (pod.waiting && !throttled_.contains(slot)) Enqueue(slot);
  }
  dirty_ = false;
}

int64_t FairQueue::Pod::LagAt(int64_t virtual_ns) const {
  return fluid == Share(0) ? lag_ns : ServedIn(virtual_ns - eligible, fluid);
}

Standing FairQueue::Pod::StandingAt(int64_t virtual_ns, ShareSum fluid_sum) const {
  return {.id = id,
          .owed = eligible <= virtual_ns,
          .lag_ns = LagAt(virtual_ns),
          .eligible = eligible,
          .finish = finish,
          .fluid = fluid,
          .fluid_sum = fluid_sum};
}

void FairQueue::Pod::SetEligible(int64_t at) {
  eligible = std::min(at, kRationalMost);
  if (fluid > Share(0)) finish = eligible + TimeToServe(burst_ns, fluid);
}

}  // namespace baton::policy
