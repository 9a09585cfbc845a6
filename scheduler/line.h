// Who stands in line for one GPU: which pods wait, which count as active, what each is predicted to
// hold next, and what it has been charged. Whom to pick is the fair queue's to say; there is one
// for pods with requests, and one for those of idle priority, who go when nobody of the first has
// work.
#ifndef BATON_SCHEDULER_LINE_H_
#define BATON_SCHEDULER_LINE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "policy/fair_queue.h"
#include "scheduler/events.h"
#include "scheduler/roster.h"
#include "scheduler/views.h"

namespace baton::scheduler {

class Line {
 public:
  Line(const SchedulerOptions& options, Roster& roster, const Turn& turn);

  // `pod` is its number in the roster, and in queue(). A gang is not of idle priority.
  // `limit_full_at`: as PodSet's.
  void Add(uint32_t pod, const policy::ShareSpec& spec, Instant limit_full_at = {});
  void Update(uint32_t pod, const policy::ShareSpec& spec);
  // While the roster still knows it.
  void Remove(uint32_t pod);
  // Of the pods with requests. Those of idle priority are in it too, but never active.
  policy::FairQueue& queue() { return queue_; }
  const policy::FairQueue& queue() const { return queue_; }

  // The waiting pod that is to hold next; none where nobody may.
  std::optional<uint32_t> Next();
  // Whether the pod, which holds, would be Next() if it waited.
  bool GoesOn(uint32_t pod);
  // Held time that the pod's limit allows from now; for one of idle priority, until somebody with a
  // request may go on.
  Duration Allowance(uint32_t pod) const;
  // How long it is until somebody with a request whom Next() found at its limit may go.
  Duration UntilRefill() const;
  // When a pod that Next() found at its limit may go.
  Instant NextRefill() const;
  // What the queues know of it at `now`; whether it `holds`, and somebody with a request does.
  void Describe(uint32_t pod, Instant now, bool requester_holds, PodStatus& status);

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
  // Single pods with requests whose grace is not over, those that rest longest first.
  std::vector<uint32_t> Resting() const;
  // Of those with requests. Who is of idle priority is in nobody's way.
  bool anybody_waits() const { return waiting_ > 0; }
  bool nobody_waits() const { return waiting_ + idle_waiting_ == 0; }
  // Somebody for whom a token of the pod must be back soon waits, or may come any moment.
  bool contended(uint32_t pod) const {
    return waiting_ + resting_ > 0 || roster_.pod(pod).idle_priority();
  }
  // When ForgetRested() is due, or Next() has more to choose from.
  Instant wakeup() const;

  // The pod is charged `held` more; negative to take back what an estimate charged too much.
  void Charge(uint32_t pod, Duration held);
  // The pod is charged for what it held without a token, waiting or not.
  void ChargeAside(uint32_t pod, Duration held);
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
  Duration BaseQuota() const { return base_quota_; }

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
  struct Place {
    policy::FairQueue& queue;
    policy::Slot slot;
  };

  // Where the pod stands when it waits.
  Place PlaceOf(uint32_t pod);
  // kNever: it does not.
  void SetResting(Pod& pod, Instant since);
  // It has never held, so nothing is known of what it needs. (A gang is not taken for a small one.)
  bool Unknown(uint32_t pod) const;
  // Adds `by` to the numbers of pods that wait, where the pod does.
  void Count(const Pod& pod, int by);
  void AddIdle(uint32_t pod, const policy::ShareSpec& spec, Instant limit_full_at);
  Duration ReckonBaseQuota() const;
  // Nobody with a request works, nor may come back any moment.
  bool IdleMayGo() const;

  const SchedulerOptions& options_;
  Roster& roster_;
  const Turn& turn_;
  policy::FairQueue queue_;
  policy::FairQueue idle_queue_;                    // of idle priority, who have equal shares
  std::vector<uint32_t> idle_pods_;                 // by their slots in idle_queue_
  std::deque<std::pair<Instant, uint32_t>> grace_;  // pods that stopped asking, oldest first
  // Pods with requests; the others apart.
  uint32_t waiting_ = 0;
  uint32_t gangs_waiting_ = 0;
  uint32_t resting_ = 0;
  uint32_t idle_waiting_ = 0;
  Instant idle_from_{};  // those of idle priority may go then, where nobody with a request works
  int64_t grant_ns_;
  Duration base_quota_;  // by grant_ns_
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_LINE_H_
