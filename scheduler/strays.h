// Clients that claim to run beside a token that is not theirs. Each is told to stop, and nobody is
// granted until it has drained, or drain_timeout has passed. The claim may be false: all such
// claims of a pod together hold up the GPU for a hundredth of the time, and once drain_timeout.
#ifndef BATON_SCHEDULER_STRAYS_H_
#define BATON_SCHEDULER_STRAYS_H_

#include <cstdint>
#include <vector>

#include "scheduler/events.h"
#include "scheduler/hold_meter.h"
#include "scheduler/roster.h"

namespace baton::scheduler {

class Strays {
 public:
  Strays(const SchedulerOptions& options, Roster& roster, const Turn& turn)
      : options_(options), roster_(roster), turn_(turn) {}

  bool empty() const { return strays_.empty(); }
  bool Has(uint32_t client) const;
  // The client that claims to run for longest. There must be one.
  uint32_t oldest() const { return strays_.front().client; }
  // A pod that is new may make claims.
  void Allow(Roster::Pod& pod) const;
  // The client claims to hold the token of `epoch`. Nothing is waited for where its pod has made
  // more such claims than it may. One that is a stray already is told nothing.
  void Stop(uint32_t client, uint64_t epoch);
  // It has drained, or is gone.
  void Release(uint32_t client);
  // Those that had their time are waited for no longer.
  void Expire();
  // The link was cut until now, for this long.
  void LinkBack(Duration away);
  // When Expire() is due.
  Instant wakeup() const;
  // Whether none is waited for for longer than its pod's claims may last.
  bool bounded() const;
  // The GPU waits for one of them for longer than a token lasts.
  bool overdue() const;

 private:
  struct Stray {
    uint32_t client = 0;
    Instant since{};
    Instant until{};  // nobody is granted until then, unless it drains before
  };

  const SchedulerOptions& options_;
  Roster& roster_;
  const Turn& turn_;
  std::vector<Stray> strays_;  // oldest first
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_STRAYS_H_
