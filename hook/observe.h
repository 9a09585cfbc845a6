// What the client machine is told of its GPU at each step.
#ifndef BATON_HOOK_OBSERVE_H_
#define BATON_HOOK_OBSERVE_H_

#include "hook/gpu.h"

namespace baton::hook {

Observation Observe(Gpu* gpu, Instant now);

}  // namespace baton::hook

#endif  // BATON_HOOK_OBSERVE_H_
