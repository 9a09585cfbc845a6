// What pods are owed of their requests alone: an account beside the fair share's lag.
//
// The lag (policy/fair_queue.h) says who is owed what of the whole GPU, slack included; a change of
// membership spreads it, naps bound it, high priority goes ahead of it. A request may depend on
// none of that. So each pod has a second account, which nobody else's changes:
//
//   while it has work:  owed_i grows by r_i for each nanosecond that the GPU serves anybody
//   it holds:           owed_i falls by what it holds
//   it has none:        owed_i, where it is below 0, grows as if it had, up to 0
//
// With M = max(bound, 2 L), L being the longest hold of late: owed_i never falls below -M, for what
// a pod had of the slack is no debt. Whoever is owed M or more goes first, by the earliest
// deadline: the instant, in served time, by which its next hold would have been served at the rate
// r_i. (Stoica, Zhang, Ng: "A Hierarchical Fair Service Curve Algorithm", 1997, splits guarantees
// from link sharing in this way.) In between the fair share decides, so where all have work the
// account changes nothing.
//
// A pod that comes from a pause cannot wait for that: the work it brings is short, and while it
// waits nothing of it is done. It has a deadline of its own, the instant by which its request alone
// would have served the work and the hand-off to it: (b + h - max(owed, -L)) / r served time from
// its coming. It is *due*, and goes first too, when it must begin to meet that. The hand-off is its
// own: once it was due, owed falls by h beside what it holds. So a pod that holds for longer than
// it used to waits for it the next time. One hold of its own that was longer than M, or L, is paid
// back in full in both cases: what is charged bit by bit is foreseen by nobody.
//
// Where requests sum to at most the whole, owed_i stays below M + L; over any window in which a pod
// has work it so holds at least r_i · W - (2 M + L), W in served time. Where they sum to more, r_i
// is scaled down in proportion.
//
// A gang can seldom go when it is picked: it needs other GPUs too. It has an account like the
// others, but who ranks gangs asks for it (MustGo); it is in nobody's way meanwhile.
//
// O(1) for most calls, O(log n) where somebody falls behind, and O(n) for a change of requests
// while they sum to more than the whole. Pure; not thread safe.
#ifndef BATON_POLICY_GUARANTEE_H_
#define BATON_POLICY_GUARANTEE_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/debts.h"
#include "policy/indexed_heap.h"
#include "policy/own_hold.h"
#include "policy/queued_pod.h"
#include "policy/rational.h"
#include "policy/share.h"

namespace baton::policy {

// That a pod which starts to wait comes from a pause: what it usually holds then, and what giving
// the GPU to it costs. Both above 0, or it does not.
struct FromPause {
  Duration usual{0};
  Duration handoff{0};
};

class Guarantee {
 public:
  using Slot = uint32_t;
  // A token shorter than so many hand-offs is none.
  static constexpr int kLeastHandoffs = 4;

  explicit Guarantee(Duration bound) : bound_ns_(Nanos(bound)) {}

  // A pod that is owed nothing, and has no work. It is ahead by what it takes over. `queued`:
  // Behind() may return it.
  void Add(Slot slot, PodId id, Share request, bool queued = true, const Debts& debts = {});
  void SetRequest(Slot slot, Share request);
  // What it was ahead is told by `debts`.
  void Remove(Slot slot, Debts& debts);

  // Whether the pod has work and may be picked, and what it is predicted to hold next (> 0).
  void SetWaiting(Slot slot, bool waiting, Duration burst, const FromPause& from = {});
  // What a pod that is not `queued` is behind by where it must hold as well if it is to hold here.
  void SetElsewhere(Slot slot, BehindBy by) { accounts_[slot].elsewhere = by; }
  // It had no work: it keeps no larger claim than that.
  void CapClaim(Slot slot, Duration most);
  // It has work, but is at its limit: it has what it may have, and until SetWaiting() no claim.
  void Throttle(Slot slot);
  // The pod held the GPU for so long, with work all the while; negative to take back.
  void Charge(Slot slot, Duration held);

  // The waiting pod that must go now: of those too far behind the one with the earliest deadline;
  // where there is none, of those due the one that had to begin first.
  std::optional<Slot> Behind() {
    const bool none =
        behind_.empty() && due_.empty() && (early_.empty() || early_.top_key() > served_ns_);
    return none ? std::nullopt : FirstBehind();
  }
  // Whether the pod is too far behind; and whether one that holds would be soon if it were stopped.
  bool MustGo(Slot slot) const {
    return FarBehind(slot) || IsDue(slot) || accounts_[slot].elsewhere == BehindBy::kAll;
  }
  bool MustStay(Slot slot) const {
    return HowFar(slot) != BehindBy::kLittle || accounts_[slot].elsewhere != BehindBy::kLittle;
  }
  // Here alone.
  BehindBy HowFar(Slot slot) const {
    if (FarBehind(slot)) return BehindBy::kAll;
    return Nanos(Owed(slot)) > Limit() / 2 ? BehindBy::kHalf : BehindBy::kLittle;
  }
  // M, and the longest hold of late.
  Duration MostBehind() const { return Duration(Limit()); }
  Duration LongestHold() const { return Duration(limit_longest_ns_); }
  // What the pod's request is, scaled down where all of them sum to more than the whole.
  Share RateOf(Slot slot) const { return Rate(accounts_[slot]); }
  // Of two that are too far behind: whether `a` has the earlier deadline.
  bool GoesBefore(Slot a, Slot b) const { return Deadline(a) < Deadline(b); }
  void Prefetch(Slot slot) const { __builtin_prefetch(&accounts_[slot], 1); }
  // What the pod is owed of its request; negative: it is ahead.
  Duration Owed(Slot slot) const;
  // The served time after which a pod that came from a pause must begin; at most 0: one is late;
  // Duration::max(): none waits.
  Duration NextDue() const {
    return due_.empty() ? Duration::max() : Duration(due_.top_key() - served_ns_);
  }

 private:
  static constexpr int64_t kNotAtAll = std::numeric_limits<int64_t>::max();
  struct alignas(64) Account {
    PodId id;
    Share request;  // 0: nothing is owed, or there is no such pod
    bool queued = true;
    bool waiting = false;
    bool paying = false;  // for a hold of its own, in own_
    BehindBy elsewhere = BehindBy::kLittle;
    int64_t burst_ns = 1;
    int64_t hold_ns = 0;           // it held since it waited last, or its token was renewed
    int64_t owed_ns = 0;           // as of `at`
    int64_t at = 0;                // served_ns_ then,
    int64_t at_passed = 0;         // and passed_ns_
    int64_t looks_at = kNotAtAll;  // its key in early_
  };
  bool FarBehind(Slot slot) const { return Nanos(Owed(slot)) >= Limit(); }
  // It came from a pause, and must begin now or before another token would be worth its hand-off.
  bool IsDue(Slot slot) const {
    return due_.contains(slot) && due_.key(slot) <= served_ns_ + kLeastHandoffs * handoff_ns_;
  }
  int64_t Limit() const { return std::max(bound_ns_, 2 * limit_longest_ns_); }
  Share Rate(const Account& account) const { return ScaledDown(account.request, requested_); }
  // When its next hold would have been served at the rate of its request, in served time.
  int64_t Deadline(Slot slot) const;
  std::optional<Slot> FirstBehind();
  int64_t OwedNow(const Account& account) const;
  void Settle(Account& account);
  void Requeue(Slot slot);
  void NoteHold(int64_t ns);
  // Changes what all wait by.
  template <class Change>
  void ForAll(Change change);

  const int64_t bound_ns_;
  std::vector<Account> accounts_;
  std::vector<OwnHold> own_;      // by slot
  IndexedHeap early_;             // waiting, by the served time at which it will be behind
  IndexedHeap behind_;            // waiting and behind, by deadline
  IndexedHeap due_;               // waiting since a pause, by the served time at which it is due
  int64_t handoff_ns_ = 0;        // as said last
  ShareSum requested_;            // by all
  int64_t longest_ns_ = 0;        // hold, of late; decays
  int64_t limit_longest_ns_ = 0;  // the same, in steps of two downwards: all wait by it
  int64_t served_ns_ = 0;
  int64_t passed_ns_ = 0;  // the same without what charges took back
};

}  // namespace baton::policy

#endif  // BATON_POLICY_GUARANTEE_H_
