// Who stands in line for one GPU: which pods wait, which count as active, what each has been
// charged, and how long its token would be. Whom to pick is the fair queue's to say; there is one
// for pods with requests, and one for those of idle priority, who go when nobody of the first has
// work.
#ifndef BATON_SCHEDULER_LINE_H_
#define BATON_SCHEDULER_LINE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "policy/fair_queue.h"
#include "scheduler/demand.h"
#include "scheduler/events.h"
#include "scheduler/forecast.h"
#include "scheduler/left_debts.h"
#include "scheduler/roster.h"
#include "scheduler/views.h"
#include "scheduler/wanting.h"

namespace baton::scheduler {

class Line {
 public:
  Line(const SchedulerOptions& options, Roster& roster, const Forecast& forecast, const Turn& turn);

  // `pod` is its number in the roster, and in queue(). A gang is not of idle priority.
  // `owner`, `limit_full_at`: as PodSet's.
  void Add(uint32_t pod, const policy::ShareSpec& spec, uint64_t owner = 0,
           Instant limit_full_at = {});
  void Update(uint32_t pod, const policy::ShareSpec& spec);
  // While the roster still knows it.
  void Remove(uint32_t pod);
  // Of the pods with requests. Those of idle priority are in it too, but never active.
  policy::FairQueue& queue() { return queue_; }
  const policy::FairQueue& queue() const { return queue_; }
  const Demand& demand() const { return demand_; }

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
  void Rest(uint32_t pod) { demand_.Rest(pod); }
  // It holds without having waited.
  void Wake(uint32_t pod);
  // Those whose grace is over are not active any more.
  void ForgetRested();

  // So much time has passed, in which `holder` had the token. Other teams wanted the GPU if one of
  // their pods waited that might have had it: none at its limit, nor one of idle priority where the
  // holder has a request.
  void Pass(Duration passed, uint32_t holder);
  // The pod is charged `held` more; negative to take back what an estimate charged too much.
  void Charge(uint32_t pod, Duration held);
  // The pod is charged for what it held without a token, waiting or not.
  void ChargeAside(uint32_t pod, Duration held);
  // Long enough to pay for its hand-off and to finish the usual burst, within the bounds and what
  // the pod's limit still allows.
  Duration Quota(uint32_t pod) const;
  // When the token that the pod has since `granted_at` must end for somebody who waits by a
  // latency; kNever: it need not. An instant that has passed: now.
  Instant EndForDeadline(uint32_t pod, Instant granted_at) const;
  // What of `quota` the pod is granted, where somebody must begin before that would be over.
  Duration CutForDue(uint32_t pod, Duration quota) const;
  // A pod that must begin for its request's or its latency's sake may cut the pod's token to this,
  // not further; Duration::max(): not at all.
  Duration LeastQuota(uint32_t pod) const;

 private:
  using Pod = Roster::Pod;
  struct Place {
    policy::FairQueue& queue;
    policy::Slot slot;
  };

  // Where the pod stands when it waits.
  Place PlaceOf(uint32_t pod);
  Duration LongestToken(const Pod& pod, const policy::ShareSpec& spec) const;
  void AddIdle(uint32_t pod, const policy::ShareSpec& spec, const policy::Debts& debts);
  // The pod waits: it may want the GPU.
  void Want(uint32_t pod);
  policy::WaitsSince WaitsSince(uint32_t pod) const;
  void NoteWait(uint32_t pod);

  const SchedulerOptions& options_;
  Roster& roster_;
  const Forecast& forecast_;
  const Turn& turn_;
  Demand demand_{options_, roster_, turn_};
  Wanting wanting_{roster_};
  policy::FairQueue queue_;
  policy::FairQueue idle_queue_;     // of idle priority, who have equal shares
  std::vector<uint32_t> idle_pods_;  // by their slots in idle_queue_
  LeftDebts left_;
  // Of the token in use, or the last one: its time in which no other team wanted the GPU.
  struct Uncontended {
    uint32_t pod = Roster::kNobody;
    uint64_t grants = 0;  // to the pod, this one included
    Duration left{0};     // not charged yet
    Duration charged{0};
  } uncontended_;
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_LINE_H_
