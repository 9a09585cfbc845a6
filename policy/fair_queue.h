// Who gets the token next on one GPU: the pod furthest below its target share.
//
// Each pod has three accounts of *measured held time*: what it is owed of its fair share
// (policy/fluid_queue.h), what it is owed of its request alone (policy/guarantee.h), and what its
// limit allows (policy/limit_bucket.h). docs/policy.md derives them. Those at their limits do not
// go; of the others who wait go first, in this order:
//
//   those far below their *request*
//   those with a latency, within their requests, by the earliest deadline (policy/deadlines.h)
//   those of high priority, within their burst
//   the one that comes first by its fair share
//
// Pick and Charge cost O(log n), amortised, plus the number of pods that wait and have high
// priority or a latency. A pod that becomes active or inactive costs O(n log n), because the
// entitlements of all others change. Pure: reads no clock and draws no random numbers; ties break
// by pod id. Not thread safe.
#ifndef BATON_POLICY_FAIR_QUEUE_H_
#define BATON_POLICY_FAIR_QUEUE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/deadlines.h"
#include "policy/debts.h"
#include "policy/fluid_queue.h"
#include "policy/guarantee.h"
#include "policy/indexed_heap.h"
#include "policy/pick_order.h"
#include "policy/queued_pod.h"
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
  // Who is further below its request than this, or than two of the longest holds, goes before
  // everybody else, whatever their shares and priorities (policy/guarantee.h). Shorter keeps
  // requests more closely, and takes more decisions out of the fair share's hands.
  Duration guarantee_bound = std::chrono::milliseconds(100);
  // For experiments: makes the order in which pods go instead; each Pick then costs O(n), and
  // nobody has a latency.
  MakePickOrder order = nullptr;
};

// Names a pod within one FairQueue. Small and dense; reused after Remove.
using Slot = uint32_t;

class FairQueue {
 public:
  explicit FairQueue(const FairQueueOptions& options)
      : options_(options),
        order_(options.order == nullptr ? nullptr : options.order()),
        fluid_(options.sleep_credit, pods_),
        guarantee_(options.guarantee_bound) {}
  // Its parts know each other.
  FairQueue(const FairQueue&) = delete;
  FairQueue& operator=(const FairQueue&) = delete;

  // Adds an inactive pod without lag but for what it takes over (Remove()). `spec` must be
  // Validated(). The caller admits: the sum of requests may exceed the whole (overcommit);
  // entitlements then scale down in proportion. `claims`: when it may go first for its request's
  // sake.
  Slot Add(PodId id, const ShareSpec& spec, Instant now, Claims claims = Claims::kAlways,
           const Debts& debts = {});
  // Changes what a pod asks for; its lag stays. Its limit allows all again at `limit_full_at`, or
  // later.
  void Update(Slot slot, const ShareSpec& spec, Instant now, Instant limit_full_at = {});
  // The weights by which teams share what requests leave over, by ShareSpec::team
  // (`policy/share.h`: FluidShares); none, as at first, where teams do not matter. Everybody's lag
  // stays.
  void SetTeamWeights(std::vector<uint32_t> weights);
  // Forgets the pod; its lag is spread over the active ones. What it had before its time may be
  // another's.
  Debts Remove(Slot slot);

  // Active: waits, holds, or stopped a moment ago (the caller decides how long). Only active pods
  // share the GPU in the fluid model. A pod that becomes active brings its bounded credit, or debt.
  void SetActive(Slot slot, bool active);

  // Whether the pod takes part in Pick, and the held time it is predicted to need next (> 0): the
  // `burst` of its finish time. Needs an active pod. One that comes from a pause goes in
  // time for its request to be kept. `since` counts for one with a latency.
  void SetWaiting(Slot slot, bool waiting, Duration burst, const FromPause& from = {},
                  const WaitsSince& since = {});
  bool waiting(Slot slot) const { return pods_[slot].waiting; }

  // Whether a pod whose claims are kWhenRanked has work, and its predicted next hold (> 0). It
  // waits, in the sense above, only while it is ranked.
  void SetWork(Slot slot, bool has, Duration burst);

  // A pod whose claims are kWhenRanked is so far below its request where it must hold as well if it
  // is to hold here: then it goes first here, too, or its token is not cut.
  void SetElsewhere(Slot slot, BehindBy by) { guarantee_.SetElsewhere(slot, by); }

  // What active pod `slot` is owed beyond `most` goes back to all by their entitlement. For one
  // that had nothing to do for a moment: it keeps no more credit than one that slept, or short
  // pauses would add up to a claim without bound. What it is owed of its request alone is cut to
  // `most` too; `keeps_claim`: to M.
  void CapLag(Slot slot, Duration most, bool keeps_claim = false);

  // Active pod `slot` was measured to hold the GPU for `held` since it was last charged; negative
  // to take back what an estimate charged too much.
  void Charge(Slot slot, Duration held, Instant now);

  // The waiting pod that is to hold next, or nothing when nobody waits or all who wait are at their
  // limit. Changes nothing but the internal order, and what one that goes first for its request's
  // sake is too far ahead of its fair share: that is forgiven, by all.
  std::optional<Slot> Pick(Instant now);
  // The pod that Pick is likely to return next, as a hint to fetch what belongs to it; the queue
  // fetches its own part.
  std::optional<Slot> PrefetchLikely() const;
  // When a waiting pod that Pick found at its limit will be allowed again; kNever if there is none.
  Instant NextRefill() const;

  // Until then the pod's limit keeps it from its predicted next hold, and Pick leaves it out; an
  // instant that has passed where it does not.
  Instant MayGoAt(Slot slot) const;
  // Held time that the pod's limit allows from now; a very large one without a limit.
  Duration Allowance(Slot slot, Instant now) const;
  // When the limit allows all that it ever allows at once, if the pod does not hold until then.
  Instant LimitFullAt(Slot slot) const;
  // What the pod is owed in held time; negative: it is ahead.
  Duration Lag(Slot slot) { return fluid_.Lag(slot); }
  // Its entitlement among the pods active now; 0 while it is not active.
  Share Fluid(Slot slot) { return fluid_.Fluid(slot); }
  // True for a high-priority pod that has not used up its burst where `holder` is not, and holds
  // more than its request gives it: its token may be revoked.
  bool MayRevoke(Slot slot, Slot holder);
  // True when active pod `a` is owed time and its fluid finish comes before the one of active pod
  // `b`; or when `a` is so far below its request that it must go, and `b` is not below its own.
  bool FinishesBefore(Slot a, Slot b);
  // The held time of others after which the first of those that wait since a pause must begin; at
  // most 0: it is late; Duration::max(): there is none. Always so in experiments.
  Duration NextDue() const { return order_ == nullptr ? guarantee_.NextDue() : Duration::max(); }

  const ShareSpec& spec(Slot slot) const { return pods_[slot].spec; }
  // The accounts, to be read.
  const Deadlines& deadlines() const { return deadlines_; }
  const FluidQueue& fluid() const { return fluid_; }
  const Guarantee& requests() const { return guarantee_; }

 private:
  // A high-priority pod that has not used up its burst.
  bool Urgent(Slot slot);
  // SetWaiting() but for the account of its request.
  void Line(Slot slot, bool waiting, Duration burst);
  // Throttles the pod when its bucket is too low. True when it may run.
  bool Allowed(Slot slot, Instant now);
  // Of `pods`, which wait, those that `must` and are within their limits: the one that goes before
  // the others.
  template <class Must, class Before>
  std::optional<Slot> FirstOf(const std::vector<Slot>& pods, Instant now, Must must, Before before);

  const FairQueueOptions options_;
  std::unique_ptr<PickOrder> order_;  // null but in experiments
  std::vector<QueuedPod> pods_;
  FluidQueue fluid_;  // who waits and is not at its limit is queued there
  Guarantee guarantee_;
  Deadlines deadlines_;
  std::vector<Slot> free_;
  std::vector<Slot> high_;    // waiting high-priority pods, ordered by pod id
  std::vector<Slot> ranked_;  // waiting pods whose claims are kWhenRanked
  IndexedHeap throttled_;     // waiting pods at their limit, by the instant of their refill
};

}  // namespace baton::policy

#endif  // BATON_POLICY_FAIR_QUEUE_H_
