// What each pod will hold next on one GPU, learnt from what it held, and what a hand-off there
// costs.
#ifndef BATON_SCHEDULER_FORECAST_H_
#define BATON_SCHEDULER_FORECAST_H_

#include <cstdint>

#include "scheduler/options.h"
#include "scheduler/roster.h"

namespace baton::scheduler {

class Forecast {
 public:
  Forecast(const SchedulerOptions& options, Roster& roster);

  // The pod's token is back, after it was held for this long, and for so long at most between two
  // decisions whether it goes on: what it will need next.
  void Learn(uint32_t pod, Duration held, Duration longest);
  // What the pod will hold when it is next granted, until another may go. The bound on everybody's
  // lag rests on this being no less than what comes: where the pod ran out of work before, about as
  // much again; a pod that never does is predicted its longest recent hold.
  Duration Burst(uint32_t pod) const;
  // It has never held, so nothing is known of what it needs. (A gang is not taken for a small one.)
  bool Unknown(uint32_t pod) const;
  // The shortest token that keeps hand-offs at their fraction of the GPU's time.
  Duration BaseQuota() const { return base_quota_; }

  // A client has confirmed a grant, this long after it was sent.
  void NoteConfirmed(Duration took);
  // From a grant to its confirmation, smoothed.
  Duration grant() const { return Duration(grant_ns_); }
  // What a hand-off costs the GPU: a return and a grant, each about as long, and the client's own
  // waking up.
  Duration handoff() const;
  // The part of it in which nobody holds: the way of a grant is its pod's already.
  Duration unheld() const { return handoff() - grant(); }

 private:
  using Pod = Roster::Pod;

  Duration ReckonBaseQuota() const;

  const SchedulerOptions& options_;
  Roster& roster_;
  int64_t grant_ns_;
  Duration base_quota_;  // by grant_ns_
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_FORECAST_H_
