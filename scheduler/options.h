// What a token scheduler is configured with.
#ifndef BATON_SCHEDULER_OPTIONS_H_
#define BATON_SCHEDULER_OPTIONS_H_

#include <chrono>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "policy/fair_queue.h"

namespace baton::scheduler {

struct SchedulerOptions {
  policy::FairQueueOptions fairness;

  // A token's length lies between these. Shorter bounds how long others wait, longer saves
  // hand-offs. Between them it is what keeps hand-offs at or below `handoff_fraction`.
  Duration quota_min = std::chrono::milliseconds(5);
  Duration quota_max = std::chrono::milliseconds(40);
  // ε: the part of the GPU's time that hand-offs may cost; 1 %.
  policy::Share handoff_fraction{10'000};
  // What the GPU needs at least for a switch from one process to another; hooks measure it.
  Duration context_switch = std::chrono::microseconds(50);
  // GPU time that a client may have launched ahead of its completion. It is what a drain has to
  // wait for; less of it leaves gaps between kernels on a busy host.
  Duration backlog = std::chrono::milliseconds(2);
  // How long a pod that stopped asking still counts as active (keeps its entitlement, so a gap
  // between two kernels does not reshuffle everybody's shares).
  Duration active_grace = std::chrono::milliseconds(10);
  // A holder that has not drained this long after its token ended is reported as hung ...
  Duration drain_timeout = std::chrono::seconds(10);
  // ... and killed, where this says so. Otherwise the GPU waits for it.
  bool drain_kill = false;
  // A client of the holding pod that asks for the token while another of its clients has not
  // drained for this long gets it again: the GPU work of one may be waiting for the other's launch.
  Duration drain_reopen = std::chrono::milliseconds(100);
  // A Token that the client's reports do not confirm is sent again after this.
  Duration resend = std::chrono::milliseconds(500);

  // Shows `v` each key of [scheduler] (config/options.h). `backlog` is one of [hook].
  template <class V>
  void Visit(V& v) {
    using std::chrono::hours;
    using std::chrono::microseconds;
    using std::chrono::milliseconds;
    using std::chrono::seconds;
    v.Time("quota_min", quota_min, microseconds(100), seconds(1),
           "A token's length lies between quota_min and quota_max: shorter bounds the others' "
           "wait,\nlonger saves hand-offs.");
    v.Time("quota_max", quota_max, microseconds(100), seconds(10), nullptr);
    v.Ratio("handoff_fraction", handoff_fraction, 0.0001, 0.5,
            "Fraction of the GPU's time that hand-offs may cost.");
    v.Time(
        "context_switch", context_switch, Duration(0), milliseconds(100),
        "What the GPU needs at least to switch from one process to another. Hooks measure it: an\n"
        "H200 needs 142us. Longer makes tokens longer.");
    v.Time("active_grace", active_grace, Duration(0), seconds(10),
           "A pod that stopped asking keeps its entitlement for this long.");
    v.Time("drain_timeout", drain_timeout, milliseconds(10), hours(1),
           "A holder that has not drained this long after its token ended is reported as hung ...");
    std::string action = drain_kill ? "kill" : "report";
    v.Choice("drain_action", action, {"report", "kill"},
             "... and killed, where this says \"kill\".");
    drain_kill = action == "kill";
    v.Time("drain_reopen", drain_reopen, milliseconds(1), seconds(60),
           "When the drain of one process of a pod waits for a launch of another, reopen after "
           "this.");
    v.Time("resend", resend, milliseconds(10), seconds(60),
           "A token that the client's reports do not confirm is sent again after this.");
    v.Time("sleep_credit", fairness.sleep_credit, Duration(0), seconds(60),
           "The most that a sleeping pod saves up: its request times this. Longer favours\n"
           "interactive pods.");
    v.Time("limit_window", fairness.limit_window, milliseconds(1), seconds(60),
           "The limit's bucket: usage may exceed limit * time by limit times this.");
    v.Time("priority_burst", fairness.priority_burst, Duration(0), seconds(60),
           "How far a high-priority pod may run ahead of its share.");
  }

  // What must hold between them. kInvalid.
  Result<void> Check() const {
    if (quota_min <= quota_max) return {};
    return Fail(ErrorCode::kInvalid, "quota_min is above quota_max; lower it or raise quota_max");
  }
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_OPTIONS_H_
