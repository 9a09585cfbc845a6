// Runs a plan in the *real* token scheduler, hook client machine and codec, in one thread on
// virtual time, one scheduler for each simulated GPU. After every event it checks what must always
// hold; once the faults have stopped, that everybody who waits is served; in a world without
// faults, that everybody stays within the bounds of docs/bounds.md.
#ifndef BATON_WORLD_ENGINE_H_
#define BATON_WORLD_ENGINE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/time.h"
#include "scheduler/token_scheduler.h"
#include "world/histogram.h"
#include "world/plan.h"

namespace baton::world {

// What one token was: from its grant until it was back.
struct Hold {
  uint32_t gpu = 0;
  uint32_t pod = 0;
  Duration from{0};
  Duration to{0};
};

struct RunOptions {
  scheduler::SchedulerOptions scheduler;
  Duration idle = std::chrono::milliseconds(1);  // a hook without work keeps its token so long
  // That nobody launches beside another pod, that limits hold and that books balance is always
  // checked. This adds that everybody is served, and fairness where there are no faults.
  bool bounds = true;
  // Measures lags and shares also where they need not keep the bounds.
  bool measure = false;
  // A saturating pod may be this many times the longest hold L from its due; docs/bounds.md says
  // why 2, and what comes on top of it.
  double lag_bound = 2;
  // Looks after every step whether the schedulers' state makes sense. Always so with hostile pods.
  bool invariants = false;
  // Where there are faults or hostile pods, a holder that hangs is killed after 2 s; otherwise
  // nobody ever is.
  bool kill_hung = true;
  // Where above 0: PodFigures::series has the time used in each of these.
  Duration series_step{0};
  std::function<void(const Hold&)> on_hold;  // as each token comes back, and at the end
};

// What a pod got on one GPU.
struct PodFigures {
  uint32_t pod = 0;
  uint32_t gpu = 0;
  Duration used{0};  // by the GPU's own record
  Duration held{0};  // charged
  uint64_t grants = 0;
  Histogram waits;            // of its processes, from asking to going on
  scheduler::LatencyMet met;  // since its daemon began
  std::vector<Duration> series;
};

struct Verdict {
  bool ok = true;
  std::string check;      // which check failed first: exclusive, limit, book, codec, liveness, lag,
                          // share, credit, invariant, relay, epoch, stolen, claims, robbed or lost;
                          // empty when ok
  std::string violation;  // what it saw, with its instant
  Duration at{0};         // that instant
  uint64_t events = 0;
  uint64_t grants = 0;      // tokens, each from a grant to its return
  uint64_t trace_hash = 0;  // of every decision, in order
  double busy = 0;          // of the GPUs' time
  // Worlds without faults. Lags of steady saturating pods in units of L, what pausing pods have
  // saved up taken off; the range as it is, from ahead to owed.
  double worst_lag = 0;
  double lag_low = 0;
  double lag_high = 0;
  // The worst error of their shares over 10 s, in units of 2 L / 10 s. Where all pods of a GPU are
  // such.
  double worst_share = 0;
  double worst_share_points = 0;  // the same in percentage points of the GPU
  Duration worst_wait{0};         // of any process
  std::vector<PodFigures> pods;   // by pod and GPU
};

// `plan` passes CheckPlan(). Thread safe: runs share nothing.
Verdict Run(const Plan& plan, const RunOptions& options);

}  // namespace baton::world

#endif  // BATON_WORLD_ENGINE_H_
