// Who gets the token next on one GPU: the pod furthest below its target share.
//
// The rule is Earliest Eligible Virtual Deadline First (Stoica, Abdel-Wahab: "Earliest Eligible
// Virtual Deadline First", 1995) over *measured held time*, with limits as token buckets, a bounded
// credit for sleepers and debts that are never forgiven. docs/policy.md derives it; in short:
//
//   lag_i  = fluid_i · (V − e_i)      what pod i is owed; V is virtual time, e_i its eligible time
//   charge : e_h += held / fluid_h ;  V += held / Σ fluid          (so Σ lag stays 0)
//   pick   : among those with lag >= 0 the earliest finish, (burst_i − lag_i) / fluid_i;
//            if there is none, the one least ahead relative to its share
//
// FairQueueOptions::rule replaces the order in which they are picked, for comparison.
//
// Pick and Charge cost O(log n), amortised, plus the number of high-priority pods that wait; Pick
// by another rule costs O(n). A pod that becomes active or inactive costs O(n log n), because the
// entitlements of all others change.
// Pure: reads no clock and draws no random numbers; ties break by pod id. Not thread safe.
#ifndef BATON_POLICY_FAIR_QUEUE_H_
#define BATON_POLICY_FAIR_QUEUE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/indexed_heap.h"
#include "policy/rule.h"
#include "policy/share.h"

namespace baton::policy {

struct FairQueueOptions {
  // The most that a sleeping pod saves up, as time of the whole GPU: its credit is request times
  // this. Longer favours interactive pods; the others may be delayed by up to that credit.
  Duration sleep_credit = std::chrono::milliseconds(250);
  // The limit's bucket holds limit times this. Longer lets a limited pod run in longer pieces
  // (fewer hand-offs); its usage may exceed limit · t by up to this much.
  Duration limit_window = std::chrono::milliseconds(200);
  // How far a high-priority pod may run ahead of its share before it queues like anybody else.
  Duration priority_burst = std::chrono::milliseconds(50);
  // In which order pods go. The bounds of docs/policy.md are the default's.
  Rule rule = Rule::kEarliestFinish;
};

// Names a pod within one FairQueue. Small and dense; reused after Remove.
using Slot = uint32_t;

class FairQueue {
 public:
  explicit FairQueue(const FairQueueOptions& options) : options_(options) {}

  // Adds an inactive pod without lag. `spec` must be Validated(). The caller admits: the sum of
  // requests may exceed the whole (overcommit); entitlements then scale down in proportion.
  Slot Add(PodId id, const ShareSpec& spec, Instant now);
  // Changes what a pod asks for; its lag stays.
  void Update(Slot slot, const ShareSpec& spec, Instant now);
  // The weights by which teams share what requests leave over, by ShareSpec::team
  // (`policy/share.h`: FluidShares); none, as at first, where teams do not matter. Everybody's lag
  // stays.
  void SetTeamWeights(std::vector<uint32_t> weights);
  // Forgets the pod; its lag is spread over the active ones.
  void Remove(Slot slot);

  // Active: waits, holds, or stopped a moment ago (the caller decides how long). Only active pods
  // share the GPU in the fluid model. A pod that becomes active brings its bounded credit, or debt.
  void SetActive(Slot slot, bool active);
  bool active(Slot slot) const { return pods_[slot].active; }

  // Whether the pod takes part in Pick, and the held time it is predicted to need next (> 0): the
  // `burst` of its finish time. Needs an active pod.
  void SetWaiting(Slot slot, bool waiting, Duration burst);
  bool waiting(Slot slot) const { return pods_[slot].waiting; }

  // The most that the pod saves up while it sleeps.
  Duration Credit(Slot slot) const;
  // What active pod `slot` is owed beyond `most` goes back to all by their entitlement. For one
  // that had nothing to do for a moment: it keeps no more credit than one that slept, or short
  // pauses would add up to a claim without bound.
  void CapLag(Slot slot, Duration most);

  // Active pod `slot` was measured to hold the GPU for `held` since it was last charged; negative
  // to take back what an estimate charged too much.
  void Charge(Slot slot, Duration held, Instant now);

  // The waiting pod that is to hold next, or nothing when nobody waits or all who wait are at their
  // limit. Changes nothing but the internal order.
  std::optional<Slot> Pick(Instant now);
  // The same, found by comparing all who wait, in O(n): what Pick does for rules that have no heaps
  // of their own.
  std::optional<Slot> PickByScan(Instant now);
  // The pod that Pick is likely to return next, as a hint to fetch what belongs to it; the queue
  // fetches its own part.
  std::optional<Slot> PrefetchLikely() const;
  // When a waiting pod that Pick found at its limit will be allowed again; kNever if there is none.
  Instant NextRefill() const;

  // Held time that the pod's limit allows from now; a very large one without a limit.
  Duration Allowance(Slot slot, Instant now) const;
  // What the pod is owed in held time; negative: it is ahead.
  Duration Lag(Slot slot);
  // Its entitlement among the pods active now; 0 while it is not active.
  Share Fluid(Slot slot);
  // True for a high-priority pod that has not used up its burst, so it may revoke a low one.
  bool Urgent(Slot slot);
  // True when active pod `a` is owed time and its fluid finish comes before the one of active pod
  // `b`. By another rule: when `a` is due, and goes before `b`.
  bool FinishesBefore(Slot a, Slot b);

  const ShareSpec& spec(Slot slot) const { return pods_[slot].spec; }
  PodId id(Slot slot) const { return pods_[slot].id; }
  // Held time charged to all pods so far.
  Duration served() const { return Duration(served_ns_); }

 private:
  struct alignas(128) Pod {
    PodId id;
    ShareSpec spec;
    bool active = false;
    bool waiting = false;
    bool owes = false;  // became active with a debt since the Settle before; Settle's own
    Share fluid = 0;    // 0: inactive, or active since the last Settle
    int64_t burst_ns = 1;
    int64_t eligible = 0;       // virtual time at which the lag is 0; while fluid > 0
    int64_t eligible_rest = 0;  // remainder of the last division, so that it does not drift
    int64_t finish = 0;         // eligible + burst / fluid; while fluid > 0
    int64_t lag_ns = 0;         // while fluid == 0
    int64_t served_at = 0;      // served_ns_ when it became inactive
    int64_t window_ns = 0;      // of the held times in window_, its own
    int64_t bucket_ns = 0;      // the limit's bucket, as of bucket_at
    Instant bucket_at{};
  };
  struct Hold {
    std::optional<Slot> slot;  // nothing when the pod was removed
    int64_t held_ns;
  };

  void Enqueue(Slot slot);
  void Dequeue(Slot slot);
  // Throttles the pod when its bucket is too low. True when it may run.
  bool Allowed(Slot slot, Instant now);
  void Forfeit(Slot slot, int64_t excess);
  // A waiting high-priority pod that is within its burst and its limit. First lets those wait with
  // the others whose refill has come.
  std::optional<Slot> PickUrgent(Instant now);
  Standing StandingOf(Slot slot) const;
  void Record(Slot slot, int64_t held_ns);
  void Settle();
  int64_t BucketSize(const Pod& pod) const;
  int64_t BucketAt(const Pod& pod, Instant now) const;
  int64_t LagOf(const Pod& pod) const;
  void SetEligible(Pod& pod, int64_t eligible);

  const FairQueueOptions options_;
  std::vector<Pod> pods_;
  std::vector<Slot> free_;
  std::vector<Slot> active_;  // ordered by pod id
  std::vector<Slot> high_;    // waiting high-priority pods, ordered by pod id
  IndexedHeap eligible_;      // waiting pods that had lag >= 0 when put here, by finish
  IndexedHeap early_;         // waiting pods that had lag < 0 when put here, by eligible time
  IndexedHeap throttled_;     // waiting pods at their limit, by the instant of their refill
  std::vector<uint32_t> team_weights_;
  std::vector<Entitlement> scratch_;
  bool dirty_ = false;  // membership changed: entitlements and queues await Settle
  int64_t virtual_ns_ = 0;
  int64_t virtual_rest_ = 0;  // remainder of the last division, as in Pod
  int64_t fluid_sum_ = 0;
  int64_t served_ns_ = 0;
  std::deque<Hold> window_;  // the last kUsageWindow of held time, oldest first; for Rule::kWindow
  int64_t window_sum_ns_ = 0;
};

}  // namespace baton::policy

#endif  // BATON_POLICY_FAIR_QUEUE_H_
