#include "hook/observe.h"

#include "hook/close_look.h"
#include "hook/memory.h"
#include "hook/meter.h"
#include "hook/mover.h"

namespace baton::hook {

Observation Observe(Gpu* gpu, Instant now) {
  Observation o;
  o.launches = LaunchCount(gpu);
  o.backlog = Backlog(gpu, now);
  o.longest = Duration(gpu->meter.longest_ns.load(std::memory_order_relaxed));
  o.parked = gpu->parked.load();
  o.pacing = gpu->pacing.load();
  o.late = CloseLook::Late(now);
  o.busy_ns = gpu->meter.busy_ns.load(std::memory_order_relaxed);
  o.switch_ns = gpu->meter.switch_ns.load(std::memory_order_relaxed);
  o.memory_bytes = gpu->memory.used.load(std::memory_order_relaxed);
  o.copies_bytes = CopiesBytes();
  if (const Movable* movable = gpu->movable) {
    o.movable_in = movable->arena.in();
    o.memory_wanted = movable->wanted.load(std::memory_order_relaxed);
  }
  return o;
}

}  // namespace baton::hook
