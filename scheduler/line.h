// Who stands in line for one GPU: which pods wait, which count as active, what each is predicted to
// hold next, and what it has been charged. Whom to pick is the fair queue's to say.
#ifndef BATON_SCHEDULER_LINE_H_
#define BATON_SCHEDULER_LINE_H_

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "policy/fair_queue.h"
#include "scheduler/events.h"
#include "scheduler/roster.h"

namespace baton::scheduler {

class Line {
 public:
  Line(const SchedulerOptions& options, Roster& roster, const Turn& turn);

  // `pod` is its number in the roster, and in queue().
  void Add(uint32_t pod, const policy::ShareSpec& spec);
  // While the roster still knows it.
  void Remove(uint32_t pod);
  policy::FairQueue& queue() { return queue_; }
  const policy::FairQueue& queue() const { return queue_; }

  // The pod waits from now on: it asks, and does not hold. True when it did not wait before.
  bool Enter(uint32_t pod);
  // It does not wait any more, because it `holds` or because it stopped asking.
  void Leave(uint32_t pod, bool holds);
  // It asks for nothing, and has just stopped; it counts as active for `active_grace` yet.
  void Rest(uint32_t pod);
  // It holds without having waited.
  void Wake(uint32_t pod);
  // Those whose grace is over are not active any more.
  void ForgetRested();
  // Single pods whose grace is not over, those that rest longest first.
  std::vector<uint32_t> Resting() const;
  bool anybody_waits() const { return waiting_ > 0; }
  // Somebody waits, or rests and may come back any moment.
  bool contended() const { return waiting_ + resting_ > 0; }
  // When ForgetRested() is due.
  Instant wakeup() const;

  // The pod is charged `held` more; negative to take back what an estimate charged too much.
  void Charge(uint32_t pod, Duration held);
  // The pod's token is back, after it was held for this long, and for so long at most between two
  // decisions whether it goes on: what it will need next.
  void Learn(uint32_t pod, Duration held, Duration longest);
  // What the pod will hold when it is next granted, until another may go. The bound on everybody's
  // lag rests on this being no less than what comes: where the pod ran out of work before, about as
  // much again; a pod that never does is predicted its longest recent hold.
  Duration Burst(uint32_t pod) const;
  // Long enough to pay for its hand-off and to finish the usual burst, within the bounds and what
  // the pod's limit still allows.
  Duration Quota(uint32_t pod) const;
  // A pod that must begin for its request's sake may cut the pod's token to this, not further;
  // Duration::max(): not at all.
  Duration LeastQuota(uint32_t pod) const;
  // The shortest token that keeps hand-offs at their fraction of the GPU's time.
  Duration BaseQuota() const;

  // A client has confirmed a grant, this long after it was sent.
  void NoteConfirmed(Duration took);
  // From a grant to its confirmation, smoothed.
  Duration grant() const { return Duration(grant_ns_); }
  // What a hand-off costs the GPU.
  Duration handoff() const;
  // The part of it in which nobody holds: the way of a grant is its pod's already.
  Duration unheld() const { return handoff() - grant(); }

 private:
  using Pod = Roster::Pod;

  // kNever: it does not.
  void SetResting(Pod& pod, Instant since);

  const SchedulerOptions& options_;
  Roster& roster_;
  const Turn& turn_;
  policy::FairQueue queue_;
  std::deque<std::pair<Instant, uint32_t>> grace_;  // pods that stopped asking, oldest first
  uint32_t waiting_ = 0;                            // pods
  uint32_t resting_ = 0;
  int64_t grant_ns_;
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_LINE_H_
