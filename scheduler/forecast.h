// What each pod will hold next on one GPU, learnt from what it held, and what a hand-off there
// costs.
#ifndef BATON_SCHEDULER_FORECAST_H_
#define BATON_SCHEDULER_FORECAST_H_

#include <algorithm>
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
  // A token of the pod that had ended was back so much later.
  void LearnOverrun(uint32_t pod, Duration overrun);
  // How long before the next one begins a token of the pod must end: its drain and the hand-off.
  Duration Handover(uint32_t pod) const;
  // What the pod will hold when it is next granted, until another may go. The bound on everybody's
  // lag rests on this being no less than what comes: where the pod ran out of work before, about as
  // much again; a pod that never does is predicted its longest recent hold.
  Duration Burst(uint32_t pod) const;
  // It has never held, so nothing is known of what it needs. (A gang is not taken for a small one.)
  bool Unknown(uint32_t pod) const;
  // The shortest token that keeps hand-offs at their fraction of the GPU's time.
  Duration BaseQuota() const { return base_quota_; }

  // A client has confirmed a Token, this long after it was sent.
  void NoteWay(Duration took);
  // A hand-off took so long, from when the holder had drained to the gate of the next one, as that
  // one's hook has measured, or a return and a grant by way of this daemon; 0: not known.
  void NoteHandoff(Duration took);
  // Beside that the GPU itself needed so long to come from one process to the other, as the other
  // one's hook has measured; 0: not known.
  void NoteSwitch(Duration took);
  // From a Token to its confirmation, smoothed.
  Duration grant() const { return Duration(grant_ns_); }
  // What a hand-off costs the GPU: as NoteHandoff() and NoteSwitch(), smoothed.
  Duration handoff() const { return Duration(handoff_ns_) + ContextSwitch(); }
  // All hand-offs so far, as NoteHandoff().
  Duration handoff_total() const { return handoff_total_; }
  // The part of one in which nobody holds: by way of this daemon, a return. A grant is its pod's.
  Duration unheld() const {
    return std::max(Duration(1), Duration(handoff_ns_ / 2) + ContextSwitch());
  }

 private:
  using Pod = Roster::Pod;

  Duration ReckonBaseQuota() const;
  Duration ContextSwitch() const { return std::max(options_.context_switch, Duration(switch_ns_)); }

  const SchedulerOptions& options_;
  Roster& roster_;
  int64_t grant_ns_;
  int64_t handoff_ns_;     // without what the GPU itself needs
  int64_t switch_ns_ = 0;  // that, as it was measured
  Duration base_quota_;    // by handoff_ns_
  Duration handoff_total_{0};
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_FORECAST_H_
