#include "policy/fair_queue.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace baton::policy {
namespace {

__extension__ typedef __int128 Wide;

// Virtual times stay this far from the end of their range: a debt that would take the fluid GPU 36
// years to pay back is as good as one that takes longer.
constexpr int64_t kMost = INT64_C(1) << 60;

// (a · b + rest) / c, rounded towards zero and within ±kMost; leaves the remainder in `rest`. The
// sum may exceed 64 bits, but seldom does, and division is what a decision's arithmetic costs.
int64_t Divide(int64_t a, int64_t b, int64_t c, int64_t& rest) {
  int64_t sum;
  if (!__builtin_mul_overflow(a, b, &sum) && !__builtin_add_overflow(sum, rest, &sum)) {
    rest = sum % c;
    return std::clamp(sum / c, -kMost, kMost);
  }
  const Wide wide = static_cast<Wide>(a) * b + rest;
  rest = static_cast<int64_t>(wide % c);
  return static_cast<int64_t>(std::clamp<Wide>(wide / c, -kMost, kMost));
}

int64_t MulDiv(int64_t a, int64_t b, int64_t c) {
  int64_t rest = 0;
  return Divide(a, b, c, rest);
}

// The virtual time in which a rate of `share` serves `ns`. The rest of the division is kept for the
// next time, so that many small services add up to no drift.
int64_t VirtualTime(int64_t ns, int64_t share, int64_t& rest) {
  return Divide(ns, kWhole, share, rest);
}

// Virtual time is started anew from zero before it comes near the end of its range.
constexpr int64_t kVirtualMax = INT64_C(1) << 58;

}  // namespace

Slot FairQueue::Add(PodId id, const ShareSpec& spec, Instant now) {
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
  pod.bucket_ns = BucketSize(pod);
  pod.bucket_at = now;
  return slot;
}

void FairQueue::Update(Slot slot, const ShareSpec& spec, Instant now) {
  Pod& pod = pods_[slot];
  const bool was_waiting = pod.waiting;
  const Duration burst(pod.burst_ns);
  if (was_waiting) SetWaiting(slot, false, burst);
  pod.bucket_ns = BucketAt(pod, now);
  pod.bucket_at = now;
  pod.spec = spec;
  dirty_ |= pod.active;
  if (was_waiting) SetWaiting(slot, true, burst);
}

void FairQueue::SetTeamWeights(std::vector<uint32_t> weights) {
  if (weights == team_weights_) return;
  team_weights_ = std::move(weights);
  dirty_ = true;
}

void FairQueue::Remove(Slot slot) {
  SetActive(slot, false);
  for (Hold& hold : window_) {
    if (hold.slot == slot) hold.slot.reset();
  }
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
    const int64_t slept = MulDiv(pod.spec.request, served_ns_ - pod.served_at, kWhole);
    pod.lag_ns = std::min(pod.lag_ns + slept, Nanos(Credit(slot)));
    active_.insert(at, slot);
  } else {
    if (pod.waiting) SetWaiting(slot, false, Duration(1));
    pod.lag_ns = LagOf(pod);
    pod.fluid = 0;
    pod.served_at = served_ns_;
    active_.erase(at);
  }
  pod.active = active;
  dirty_ = true;
}

void FairQueue::SetWaiting(Slot slot, bool waiting, Duration burst) {
  Pod& pod = pods_[slot];
  BATON_CHECK(pod.active && Nanos(burst) > 0);
  Dequeue(slot);
  if (pod.waiting != waiting && pod.spec.priority == Priority::kHigh) {
    const auto by_id = [this](Slot a, Slot b) { return pods_[a].id < pods_[b].id; };
    const auto at = std::lower_bound(high_.begin(), high_.end(), slot, by_id);
    waiting ? (void)high_.insert(at, slot) : (void)high_.erase(at);
  }
  pod.waiting = waiting;
  pod.burst_ns = Nanos(burst);
  if (dirty_) return;  // Settle queues everybody
  SetEligible(pod, pod.eligible);
  if (waiting) Enqueue(slot);
}

void FairQueue::CapLag(Slot slot, Duration most) {
  if (dirty_) Settle();
  const bool queued = pods_[slot].waiting && !throttled_.contains(slot);
  if (queued) Dequeue(slot);
  Forfeit(slot, LagOf(pods_[slot]) - Nanos(most));
  if (queued) Enqueue(slot);
}

Duration FairQueue::Credit(Slot slot) const {
  return Duration(MulDiv(pods_[slot].spec.request, Nanos(options_.sleep_credit), kWhole));
}

void FairQueue::Charge(Slot slot, Duration held, Instant now) {
  Pod& pod = pods_[slot];
  BATON_CHECK(pod.active);
  const int64_t s = Nanos(held);
  served_ns_ += s;
  if (options_.rule == Rule::kWindow) Record(slot, s);
  // The bucket filled up until the hold began, and drained and filled at once while it lasted.
  const Instant began = std::max(pod.bucket_at, now - std::max(held, Duration(0)));
  pod.bucket_ns = BucketAt(pod, began) - s;
  pod.bucket_at = began;
  pod.bucket_ns = BucketAt(pod, now);
  pod.bucket_at = now;
  if (pod.fluid == 0) Settle();  // active since the last one
  virtual_ns_ += VirtualTime(s, fluid_sum_, virtual_rest_);
  const bool queued = pod.waiting && !dirty_;
  if (queued) Dequeue(slot);
  SetEligible(pod, pod.eligible + VirtualTime(s, pod.fluid, pod.eligible_rest));
  if (queued) Enqueue(slot);
  dirty_ |= virtual_ns_ > kVirtualMax || pod.eligible > kVirtualMax;
}

std::optional<Slot> FairQueue::Pick(Instant now) {
  if (options_.rule != Rule::kEarliestFinish) return PickByScan(now);
  if (const auto urgent = PickUrgent(now)) return urgent;
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
    } else if (Allowed(slot, now)) {
      return slot;
    }
  }
}

std::optional<Slot> FairQueue::PickByScan(Instant now) {
  if (const auto urgent = PickUrgent(now)) return urgent;
  while (true) {
    std::optional<Slot> first;
    Standing best;
    for (const Slot slot : active_) {
      if (!pods_[slot].waiting || throttled_.contains(slot)) continue;
      const Standing standing = StandingOf(slot);
      if (first && !GoesBefore(options_.rule, standing, best)) continue;
      first = slot;
      best = standing;
    }
    if (!first || Allowed(*first, now)) return first;
  }
}

std::optional<Slot> FairQueue::PickUrgent(Instant now) {
  if (dirty_) Settle();
  while (!throttled_.empty() && throttled_.top_key() <= Nanos(now)) {
    const Slot slot = throttled_.top();
    throttled_.Erase(slot);
    Enqueue(slot);
  }
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
  return heap.top();
}

Instant FairQueue::NextRefill() const {
  return throttled_.empty() ? kNever : InstantFromNanos(throttled_.top_key());
}

Duration FairQueue::Allowance(Slot slot, Instant now) const {
  return Duration(BucketAt(pods_[slot], now));
}

Duration FairQueue::Lag(Slot slot) {
  if (dirty_) Settle();
  return Duration(LagOf(pods_[slot]));
}

Share FairQueue::Fluid(Slot slot) {
  if (dirty_) Settle();
  return pods_[slot].fluid;
}

bool FairQueue::Urgent(Slot slot) {
  return pods_[slot].spec.priority == Priority::kHigh && Lag(slot) > -options_.priority_burst;
}

bool FairQueue::FinishesBefore(Slot a, Slot b) {
  if (dirty_) Settle();
  if (options_.rule == Rule::kEarliestFinish) {
    return pods_[a].eligible <= virtual_ns_ && pods_[a].finish < pods_[b].finish;
  }
  const Standing standing = StandingOf(a);
  return IsDue(options_.rule, standing) && GoesBefore(options_.rule, standing, StandingOf(b));
}

Standing FairQueue::StandingOf(Slot slot) const {
  const Pod& pod = pods_[slot];
  return {.id = pod.id,
          .owed = pod.eligible <= virtual_ns_,
          .lag_ns = LagOf(pod),
          .eligible = pod.eligible,
          .finish = pod.finish,
          .window_ns = MulDiv(pod.fluid, window_sum_ns_, fluid_sum_) - pod.window_ns};
}

void FairQueue::Record(Slot slot, int64_t held_ns) {
  window_.push_back({slot, held_ns});
  pods_[slot].window_ns += held_ns;
  window_sum_ns_ += held_ns;
  while (window_sum_ns_ > Nanos(kUsageWindow)) {
    Hold& oldest = window_.front();
    // A refund leaves as a whole.
    const int64_t part = std::min(oldest.held_ns, window_sum_ns_ - Nanos(kUsageWindow));
    if (oldest.slot) pods_[*oldest.slot].window_ns -= part;
    window_sum_ns_ -= part;
    oldest.held_ns -= part;
    if (oldest.held_ns == 0) window_.pop_front();
  }
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
  const int64_t need = std::min(pod.burst_ns, BucketSize(pod) / 2);
  const int64_t bucket = BucketAt(pod, now);
  if (bucket >= need) return true;
  Dequeue(slot);
  Forfeit(slot, LagOf(pod) - need);
  const int64_t wait = MulDiv(need - bucket, kWhole, pod.spec.limit) + 1;
  throttled_.Insert(slot, Nanos(now) + wait, pod.id.value);
  return false;
}

// A pod at its limit cannot be given what it is owed. More than its next hold it would keep for
// ever, and the others, whose lags are the mirror of it, would drift ahead without bound; so the
// excess goes back to all by their entitlement.
void FairQueue::Forfeit(Slot slot, int64_t excess) {
  if (excess <= 0) return;
  Pod& pod = pods_[slot];
  SetEligible(pod, pod.eligible + VirtualTime(excess, pod.fluid, pod.eligible_rest));
  virtual_ns_ += VirtualTime(excess, fluid_sum_, virtual_rest_);
}

// Keeps everybody's lag over a change of membership, and spreads what does not sum up to zero over
// the active pods by their entitlement, but for those that came with a debt: they owe all of it to
// the others, or each nap would forgive them a part. Queues those who wait.
void FairQueue::Settle() {
  scratch_.clear();
  int64_t lags = 0;
  for (const Slot slot : active_) {
    Pod& pod = pods_[slot];
    pod.lag_ns = LagOf(pod);
    lags += pod.lag_ns;
    scratch_.push_back({pod.spec.request, pod.spec.limit, pod.spec.slack_weight, pod.spec.team});
  }
  FluidShares(scratch_, team_weights_);
  fluid_sum_ = 0;
  int64_t bearers = 0;  // entitlement of those over whom it is spread
  for (size_t i = 0; i < active_.size(); ++i) {
    Pod& pod = pods_[active_[i]];
    pod.owes = pod.fluid == 0 && pod.lag_ns < 0;
    pod.fluid = scratch_[i].fluid;
    fluid_sum_ += pod.fluid;
    if (!pod.owes) bearers += pod.fluid;
  }
  const bool all = bearers == 0;  // nobody is there to be owed anything
  if (all) bearers = fluid_sum_;
  virtual_rest_ = 0;
  virtual_ns_ = bearers == 0 ? 0 : VirtualTime(-lags, bearers, virtual_rest_);
  eligible_.Clear();
  early_.Clear();
  for (const Slot slot : active_) {
    Pod& pod = pods_[slot];
    pod.eligible_rest = 0;
    const int64_t begin = pod.owes && !all ? virtual_ns_ : 0;
    SetEligible(pod, begin + VirtualTime(-pod.lag_ns, pod.fluid, pod.eligible_rest));
    if (pod.waiting && !throttled_.contains(slot)) Enqueue(slot);
  }
  dirty_ = false;
}

int64_t FairQueue::BucketSize(const Pod& pod) const {
  if (pod.spec.limit >= kWhole) return std::numeric_limits<int64_t>::max() / 4;
  return std::max<int64_t>(1, MulDiv(pod.spec.limit, Nanos(options_.limit_window), kWhole));
}

int64_t FairQueue::BucketAt(const Pod& pod, Instant now) const {
  const int64_t size = BucketSize(pod);
  if (pod.spec.limit >= kWhole) return size;
  return std::min(size, pod.bucket_ns + MulDiv(pod.spec.limit, Nanos(now - pod.bucket_at), kWhole));
}

int64_t FairQueue::LagOf(const Pod& pod) const {
  return pod.fluid == 0 ? pod.lag_ns : MulDiv(pod.fluid, virtual_ns_ - pod.eligible, kWhole);
}

void FairQueue::SetEligible(Pod& pod, int64_t eligible) {
  pod.eligible = std::min(eligible, kMost);
  if (pod.fluid > 0) pod.finish = pod.eligible + MulDiv(pod.burst_ns, kWhole, pod.fluid);
}

}  // namespace baton::policy
