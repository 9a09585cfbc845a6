#include "policy/fluid_queue.h"

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

void FluidQueue::Add(Slot slot, const Debts& debts) {
  FluidAccount& pod = pods_[slot].account;
  pod.lag_ns = std::min<int64_t>(debts.lag_ns, 0);
  pod.served_at = pod.lag_ns < 0 ? debts.served_at : served_ns_;
}

void FluidQueue::Remove(Slot slot, Debts& debts) const {
  const FluidAccount& pod = pods_[slot].account;
  debts.lag_ns = std::min<int64_t>(pod.lag_ns, 0);
  debts.served_at = pod.served_at;
}

void FluidQueue::Update(Slot slot) { dirty_ |= pods_[slot].account.active; }

void FluidQueue::SetTeamWeights(std::vector<uint32_t> weights) {
  if (weights == team_weights_) return;
  team_weights_ = std::move(weights);
  dirty_ = true;
}

void FluidQueue::SetActive(Slot slot, bool active) {
  FluidAccount& pod = pods_[slot].account;
  BATON_CHECK(pod.active != active && !pod.queued);
  const auto by_id = [this](Slot a, Slot b) { return pods_[a].id < pods_[b].id; };
  const auto at = std::lower_bound(active_.begin(), active_.end(), slot, by_id);
  // Changes take effect one after the other: what a leaver was owed or owed is between those that
  // it left.
  Settle();
  if (active) {
    // Its request kept running while others were served, up to the credit; a debt shrinks at the
    // same rate and is never dropped.
    const int64_t slept = ServedIn(served_ns_ - pod.served_at, pods_[slot].spec.request);
    pod.lag_ns = std::min(pod.lag_ns + slept, Nanos(Credit(slot)));
    active_.insert(at, slot);
  } else {
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

Duration FluidQueue::Credit(Slot slot) const {
  return Duration(ServedIn(Nanos(sleep_credit_), pods_[slot].spec.request));
}

void FluidQueue::Charge(Slot slot, Duration held) {
  served_ns_ += Nanos(held);
  Settle();  // it was served at the rates of those who are active now
  Take(slot, Nanos(held));
  dirty_ |= virtual_ns_ > kVirtualMax || pods_[slot].account.eligible > kVirtualMax;
}

void FluidQueue::CapLag(Slot slot, Duration most) {
  Settle();
  const int64_t excess = pods_[slot].account.LagAt(virtual_ns_) - Nanos(most);
  if (excess > 0) Take(slot, excess);
}

void FluidQueue::Take(Slot slot, int64_t ns) {
  FluidAccount& pod = pods_[slot].account;
  virtual_ns_ += VirtualTime(ns, fluid_sum_, virtual_rest_);
  if (pod.queued) Dequeue(slot);
  pod.SetEligible(pod.eligible + VirtualTime(ns, pod.fluid, pod.eligible_rest));
  if (pod.queued) Enqueue(slot);
}

void FluidQueue::CapDebt(Slot slot, Duration most) {
  FluidAccount& pod = pods_[slot].account;
  const int64_t ahead = -pod.LagAt(virtual_ns_) - Nanos(most);
  const ShareSum others = fluid_sum_ - pod.fluid;
  if (ahead <= 0 || others == Share(0)) return;
  // The pod itself is among them.
  const int64_t from_all = MulDiv(ahead, Signed(fluid_sum_), Signed(others));
  if (pod.queued) Dequeue(slot);
  pod.SetEligible(pod.eligible - VirtualTime(from_all, pod.fluid, pod.eligible_rest));
  virtual_ns_ -= VirtualTime(from_all, fluid_sum_, virtual_rest_);
  if (pod.queued) Enqueue(slot);
}

std::optional<FluidQueue::Slot> FluidQueue::First() {
  while (true) {
    while (!early_.empty() && early_.top_key() <= virtual_ns_) {
      const Slot slot = early_.top();
      early_.Erase(slot);
      eligible_.Insert(slot, pods_[slot].account.finish, pods_[slot].id.value);
    }
    const bool any_owed = !eligible_.empty();
    if (!any_owed && early_.empty()) return std::nullopt;
    const Slot slot = any_owed ? eligible_.top() : early_.top();
    if (any_owed && pods_[slot].account.eligible > virtual_ns_) {  // a refund set virtual time back
      eligible_.Erase(slot);
      early_.Insert(slot, pods_[slot].account.eligible, pods_[slot].id.value);
    } else {
      return slot;
    }
  }
}

std::optional<FluidQueue::Slot> FluidQueue::FirstBy(const PickOrder& order) const {
  std::optional<Slot> first;
  Standing best;
  for (const Slot slot : active_) {
    if (!pods_[slot].account.queued) continue;
    const Standing standing = StandingOf(slot);
    if (first && !order.GoesBefore(standing, best)) continue;
    first = slot;
    best = standing;
  }
  return first;
}

std::optional<FluidQueue::Slot> FluidQueue::Likely() const {
  const IndexedHeap& heap = eligible_.empty() ? early_ : eligible_;
  if (heap.empty()) return std::nullopt;
  return heap.top();
}

Duration FluidQueue::Lag(Slot slot) {
  Settle();
  return Duration(pods_[slot].account.LagAt(virtual_ns_));
}

Share FluidQueue::Fluid(Slot slot) {
  Settle();
  return pods_[slot].account.fluid;
}

std::optional<Duration> FluidQueue::SumOfLags() const {
  if (dirty_) return std::nullopt;
  int64_t sum = 0;
  for (const Slot slot : active_) sum += pods_[slot].account.LagAt(virtual_ns_);
  return Duration(sum);
}

Standing FluidQueue::StandingOf(Slot slot) const {
  const FluidAccount& pod = pods_[slot].account;
  return {.id = pods_[slot].id,
          .owed = owed(slot),
          .lag_ns = pod.LagAt(virtual_ns_),
          .eligible = pod.eligible,
          .finish = pod.finish,
          .fluid = pod.fluid,
          .fluid_sum = fluid_sum_};
}

// Keeps everybody's lag over a change of membership, and spreads what does not sum up to zero over
// the active pods by their entitlement, but for those that came with a debt: they owe all of it to
// the others, or each nap would forgive them a part. Enqueues those that are queued.
void FluidQueue::SettleAll() {
  scratch_.clear();
  int64_t lags = 0;
  for (const Slot slot : active_) {
    FluidAccount& pod = pods_[slot].account;
    pod.lag_ns = pod.LagAt(virtual_ns_);
    lags += pod.lag_ns;
    const ShareSpec& spec = pods_[slot].spec;
    scratch_.push_back({spec.request, spec.limit, spec.slack_weight, spec.team});
  }
  FluidShares(scratch_, team_weights_);
  fluid_sum_ = Share(0);
  ShareSum bearers;  // entitlement of those over whom it is spread
  for (size_t i = 0; i < active_.size(); ++i) {
    FluidAccount& pod = pods_[active_[i]].account;
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
    FluidAccount& pod = pods_[slot].account;
    pod.eligible_rest = 0;
    const int64_t begin = pod.owes && !all ? virtual_ns_ : 0;
    pod.SetEligible(begin + VirtualTime(-pod.lag_ns, pod.fluid, pod.eligible_rest));
    if (pod.queued) Enqueue(slot);
  }
  dirty_ = false;
}

int64_t FluidAccount::LagAt(int64_t virtual_ns) const {
  return fluid == Share(0) ? lag_ns : ServedIn(virtual_ns - eligible, fluid);
}

}  // namespace baton::policy
