// By when pods that ask for a latency are to be served, each within its request.
//
// A latency says when a pod is served, not how much it gets. So it counts only for what the request
// pays for: all that the pod holds, and a hand-off for each of its waits, is *paid for* at the rate
// of its request, at the latest by
//
//   paid <- max(paid, when the hold began) + held / r
//
// and at most as late as the longest hold of late takes, or this one, if that is longer; more than
// that it had of the slack, which is lent. A pod that waits since t is to begin by
//
//   deadline = max(t, paid) + latency
//
// and is within its request from max(t, paid) on. Of those who are the earliest deadline goes
// first. In any time W a pod so goes first for r W and one hold at most, which is the sporadic task
// of non-preemptive EDF (policy/feasible.h says which of them can be met together).
//
// By wall-clock time, as latencies are. O(1) for a pod without a latency; O(pods with a latency
// that wait) for the deadlines. Pure; not thread safe.
#ifndef BATON_POLICY_DEADLINES_H_
#define BATON_POLICY_DEADLINES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/rational.h"
#include "policy/share.h"

namespace baton::policy {

// That a pod waits by its latency, where it has one: since when, and what giving the GPU to it
// costs. kNever: it competes by its share alone.
struct WaitsSince {
  Instant since = kNever;
  Duration handoff{0};
};

class Deadlines {
 public:
  using Slot = uint32_t;

  // The pod's latency; 0: none. One that waits by another does so by this one; else it counts when
  // the pod waits next. What a pod had is paid for also while it has none: or each change of its
  // latency would let it go first once more.
  void Set(Slot slot, PodId id, Duration latency);
  // A new pod, which begins with that paid for at `paid`.
  void Owe(Slot slot, PodId id, Instant paid);
  // When all that the pod had is paid for.
  Instant Remove(Slot slot);

  // The pod waits; `rate` > 0 is that of its request.
  void Wait(Slot slot, const WaitsSince& wait, Share rate);
  // It does not wait any more. Who holds keeps its deadline.
  void Leave(Slot slot);
  // Whether the pod's limit keeps it from the GPU: then no token ends for it.
  void SetLimited(Slot slot, bool limited) {
    if (Has(slot)) accounts_[slot].limited = limited;
  }
  // The pod held until `now`; negative: that is taken back. `longest`: any hold of late. What it
  // holds until it waits next, or its token is renewed, is one hold, however often it is charged.
  void Charge(Slot slot, Duration held, Instant now, Share rate, Duration longest);

  // Those who wait by their latency, in no order that matters.
  const std::vector<Slot>& waiting() const { return waiting_; }
  // The pod's request pays for what it had.
  bool Within(Slot slot, Instant now) const { return accounts_[slot].due <= now; }
  // By when the pod is to begin, or was when it began; kNever: there is no such time.
  Instant Deadline(Slot slot) const {
    return Has(slot) && accounts_[slot].due != kNever
               ? accounts_[slot].due + accounts_[slot].latency
               : kNever;
  }
  // Of two that wait: whether `a` has the earlier one. Ties go to the lower id.
  bool GoesBefore(Slot a, Slot b) const;
  // The deadline that a token must end for first, and when it must, where it takes `handover` until
  // the next one begins; kNever: nobody waits by a latency.
  struct Ahead {
    Instant ends = kNever;
    Instant deadline = kNever;
  };
  Ahead Next(Duration handover) const;
  // Whether it waits, or did when it waited last, from before its request paid for that.
  bool WasAhead(Slot slot) const {
    return Has(slot) && accounts_[slot].due > accounts_[slot].since;
  }

 private:
  struct Account {
    PodId id;  // of a pod that has, or had, a latency
    Duration latency{0};
    Instant since = kNever;
    Instant due = kNever;  // max(since, paid)
    Instant paid{};
    Duration held{0};  // of the present hold, or the last one
    bool waiting = false;
    bool limited = false;
  };
  bool Has(Slot slot) const {
    return slot < accounts_.size() && accounts_[slot].latency > Duration(0);
  }
  bool Had(Slot slot) const { return slot < accounts_.size() && accounts_[slot].id; }

  std::vector<Account> accounts_;  // up to the last slot that ever had a latency
  std::vector<Slot> waiting_;
};

}  // namespace baton::policy

#endif  // BATON_POLICY_DEADLINES_H_
