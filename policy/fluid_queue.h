// The fair share of one GPU: what each pod is owed of it, and who of those queued goes first by it.
//
// Earliest Eligible Virtual Deadline First (Stoica, Abdel-Wahab: "Earliest Eligible Virtual
// Deadline First", 1995) over *measured held time*, with a bounded credit for sleepers and debts
// that are never forgiven. docs/policy.md derives it; in short:
//
//   lag_i  = fluid_i · (V − e_i)      what pod i is owed; V is virtual time, e_i its eligible time
//   charge : e_h += held / fluid_h ;  V += held / Σ fluid          (so Σ lag stays 0)
//   first  : among those with lag >= 0 the earliest finish, (burst_i − lag_i) / fluid_i;
//            if there is none, the one least ahead relative to its share
//
// What becomes active or inactive, or asks for something else, changes the entitlements of all: in
// Settle(), in O(n log n). The rest costs O(log n), amortised, at most. Pure; ties break by pod id.
// Not thread safe.
#ifndef BATON_POLICY_FLUID_QUEUE_H_
#define BATON_POLICY_FLUID_QUEUE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/debts.h"
#include "policy/indexed_heap.h"
#include "policy/pick_order.h"
#include "policy/queued_pod.h"
#include "policy/share.h"

namespace baton::policy {

class FluidQueue {
 public:
  using Slot = uint32_t;

  // `sleep_credit`: what a sleeping pod saves up at most, as time of the whole GPU. `pods`: by
  // slot.
  FluidQueue(Duration sleep_credit, std::vector<QueuedPod>& pods)
      : sleep_credit_(sleep_credit), pods_(pods) {}

  // A new record: an inactive pod without lag but for what it takes over.
  void Add(Slot slot, const Debts& debts = {});
  // What the pod, which is not active, has had before its time.
  void Remove(Slot slot, Debts& debts) const;
  // Its `spec` has changed; its lag stays.
  void Update(Slot slot);
  // As FairQueue's.
  void SetTeamWeights(std::vector<uint32_t> weights);
  // The pod was not so before, and is not queued. One that becomes active brings its bounded
  // credit, or its debt. What one that stops was owed, or owed, is between those that it leaves.
  void SetActive(Slot slot, bool active);
  bool active(Slot slot) const { return pods_[slot].account.active; }

  // Whether First() may return the active pod, and the held time that it is predicted to need next
  // (> 0).
  void SetQueued(Slot slot, bool queued, Duration burst);
  Duration burst(Slot slot) const { return Duration(pods_[slot].account.burst_ns); }
  // The active pod held for `held`; negative to take back.
  void Charge(Slot slot, Duration held);
  // What the active pod is owed beyond `most` goes back to all by their entitlement.
  void CapLag(Slot slot, Duration most);
  // What the active pod is ahead beyond `most` is forgiven, by all by their entitlement. After
  // Settle().
  void CapDebt(Slot slot, Duration most);

  // Reckons with changes of who is active and of what they ask for.
  void Settle() {
    if (dirty_) SettleAll();
  }
  // The queued pod that goes first; by `order` in O(n). After Settle().
  std::optional<Slot> First();
  std::optional<Slot> FirstBy(const PickOrder& order) const;
  // What First() is likely to return next.
  std::optional<Slot> Likely() const;

  // Of an active pod, after Settle(): whether it is owed time, the virtual time by which its next
  // hold would be served, and all that an order goes by.
  bool owed(Slot slot) const { return pods_[slot].account.eligible <= virtual_ns_; }
  int64_t finish(Slot slot) const { return pods_[slot].account.finish; }
  Standing StandingOf(Slot slot) const;
  // As FairQueue's. They settle first.
  Duration Lag(Slot slot);
  Share Fluid(Slot slot);
  // The most that the pod saves up while it sleeps.
  Duration Credit(Slot slot) const;
  // The sum of all active pods' lags, which is 0 but for roundings of less than a nanosecond for
  // each service; nothing before Settle(). O(n).
  std::optional<Duration> SumOfLags() const;
  // Held time charged to all pods so far.
  Duration served() const { return Duration(served_ns_); }

 private:
  void Enqueue(Slot slot);
  void Dequeue(Slot slot);
  // Takes `ns` of what the pod is owed: it had them, or gives them to all.
  void Take(Slot slot, int64_t ns);
  void SettleAll();

  const Duration sleep_credit_;
  std::vector<QueuedPod>& pods_;
  std::vector<Slot> active_;  // ordered by pod id
  IndexedHeap eligible_;      // queued pods that had lag >= 0 when put here, by finish
  IndexedHeap early_;         // queued pods that had lag < 0 when put here, by eligible time
  std::vector<uint32_t> team_weights_;
  std::vector<Entitlement> scratch_;
  bool dirty_ = false;  // entitlements and heaps await SettleAll
  int64_t virtual_ns_ = 0;
  int64_t virtual_rest_ = 0;  // remainder of the last division, as in FluidAccount
  ShareSum fluid_sum_;
  int64_t served_ns_ = 0;
};

// In line: a decision calls it three times.
inline void FluidQueue::SetQueued(Slot slot, bool queued, Duration burst) {
  FluidAccount& pod = pods_[slot].account;
  Dequeue(slot);
  pod.queued = queued;
  const bool same_burst = pod.burst_ns == Nanos(burst);
  pod.burst_ns = Nanos(burst);
  if (dirty_) return;  // SettleAll queues everybody
  if (!same_burst) pod.SetEligible(pod.eligible);
  if (queued) Enqueue(slot);
}

inline void FluidQueue::Enqueue(Slot slot) {
  const QueuedPod& pod = pods_[slot];
  if (pod.account.eligible <= virtual_ns_) {
    eligible_.Insert(slot, pod.account.finish, pod.id.value);
  } else {
    early_.Insert(slot, pod.account.eligible, pod.id.value);
  }
}

inline void FluidQueue::Dequeue(Slot slot) {
  eligible_.Erase(slot);
  early_.Erase(slot);
}

}  // namespace baton::policy

#endif  // BATON_POLICY_FLUID_QUEUE_H_
