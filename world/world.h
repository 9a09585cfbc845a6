// A deterministic world: one seed makes pods, their work, their faults and the links between, and
// runs the *real* token scheduler, hook client machine and codec in it, in one thread on virtual
// time. After every event it checks what must always hold; once the faults have stopped, that
// everybody who waits is served.
#ifndef BATON_WORLD_WORLD_H_
#define BATON_WORLD_WORLD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "backend/token_scheduler.h"
#include "base/time.h"

namespace baton::world {

// Kinds of faults, or'ed together.
enum Fault : uint32_t {
  kFrames = 1,    // frames dropped, delayed, repeated, reordered
  kKills = 2,     // processes killed, and started again
  kStops = 4,     // processes stopped for a while
  kRestarts = 8,  // the daemon restarted
  kCuts = 16,     // links cut for a while
  kResizes = 32,  // shares changed, pods leaving and coming back
  kHangs = 64,    // a kernel that never ends; its process is killed after drain_timeout
  kAllFaults = 127,
};

// "all", "none", or a comma-separated list of: frames kills stops restarts cuts resizes hangs.
Result<uint32_t> ParseFaults(std::string_view text);
std::string FormatFaults(uint32_t faults);

struct WorldOptions {
  uint64_t seed = 1;
  uint32_t pods = 0;  // 2 to 512; 0: drawn from the seed
  Duration length = std::chrono::minutes(5);
  uint32_t faults = kAllFaults;
  // Faults stop this long before the end, so that liveness can be checked.
  Duration calm = std::chrono::seconds(30);
  backend::SchedulerOptions scheduler;
};

struct Verdict {
  bool ok = true;
  std::string violation;  // the first one, with its instant; empty when ok
  uint64_t events = 0;
  uint64_t grants = 0;
  uint64_t trace_hash = 0;  // of every decision, in order
  double busy = 0;          // of the GPU's time
  double worst_lag = 0;     // |lag| of a steady saturating pod, in units of L; fault-free worlds
  double worst_share = 0;   // its share error over a 10 s window, in units of 2 L / W
  Duration worst_wait{0};   // of a pod that was owed time, without faults
};

Verdict Run(const WorldOptions& options);

}  // namespace baton::world

#endif  // BATON_WORLD_WORLD_H_
