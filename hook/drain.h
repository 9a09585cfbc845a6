// The end of a drain, seen as soon as it comes: until then nobody else may launch, so every
// microsecond here is the GPU's. Far from the predicted end the client thread sleeps; for the last
// of it, it looks without a pause, for a sleeping thread wakes up tens of microseconds late. What
// that may take of a processor is bounded (hook/spin_budget.h), and where the process has one
// processor alone it sleeps: others have to run for the drain to end.
#ifndef BATON_HOOK_DRAIN_H_
#define BATON_HOOK_DRAIN_H_

#include "base/time.h"

namespace baton::hook {

struct Gpu;

// Moves the drain of `gpu` on, where there is one (Gpu::watch). Once all that was launched has
// finished, and no thread is between the gate and the driver, calls `finished` with Gpu::lock held.
// Returns when to look again; kNever: nothing is watched. The client thread's.
Instant WatchDrain(Gpu* gpu, void (*finished)(Gpu*));

}  // namespace baton::hook

#endif  // BATON_HOOK_DRAIN_H_
