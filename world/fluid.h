// The GPU that docs/policy.md measures against: it serves every pod that has work at once, each at
// the rate of its entitlement, and hands nothing over.
#ifndef BATON_WORLD_FLUID_H_
#define BATON_WORLD_FLUID_H_

#include <vector>

#include "base/time.h"
#include "world/plan.h"

namespace baton::world {

// What each pod of the plan would have got of this GPU, in the order of the plan; 0 for pods that
// are elsewhere. Work and pauses are taken at their means. `plan` passes CheckPlan(). Pure.
std::vector<Duration> FluidService(const Plan& plan, uint32_t gpu);

}  // namespace baton::world

#endif  // BATON_WORLD_FLUID_H_
