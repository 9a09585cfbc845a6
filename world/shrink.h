// From a world that fails to the smallest one found that fails the same check.
#ifndef BATON_WORLD_SHRINK_H_
#define BATON_WORLD_SHRINK_H_

#include <cstdint>

#include "base/time.h"
#include "world/engine.h"
#include "world/plan.h"

namespace baton::world {

struct Shrunk {
  Plan plan;
  Verdict verdict;    // of that plan: not ok
  uint32_t runs = 0;  // worlds that it took
};

// Leaves out faults and pods, merges processes and GPUs, brings faults forward and cuts the end, as
// long as Verdict::check stays what it was: delta debugging (Zeller, Hildebrandt: "Simplifying and
// Isolating Failure-Inducing Input", 2002) over the plan. Stops after `budget` of real time with
// what it has; never slower than one run beyond it. `failed`: the verdict of `plan`, not ok.
Shrunk Shrink(const Plan& plan, const Verdict& failed, const RunOptions& options, Duration budget);

}  // namespace baton::world

#endif  // BATON_WORLD_SHRINK_H_
