#include "hook/drain.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "hook/close_look.h"
#include "hook/gpu.h"
#include "hook/mover.h"
#include "hook/words.h"

namespace baton::hook {
namespace {

using std::chrono::microseconds;

// Each look beside busy processors takes from what makes the thread run at once at the next: so
// there are few.
constexpr Duration kNear = microseconds(200);  // of the end: the next look is there
// How often a drain is looked at that is further from its end, or overdue.
constexpr Duration kPollMin = microseconds(20);
constexpr Duration kPollMax = microseconds(500);

CloseLook close_look(microseconds(100));  // the client thread's

// True when no thread is between the closed gate of `gpu` and the driver.
bool FlagsClear(Gpu* gpu) {
  if (gpu->flags_clear) return true;
  for (Slot* s = FirstSlot(); s != nullptr; s = s->next) {
    const uint64_t flags = s->in_launch.load(std::memory_order_acquire);
    if (flags != Slot::kHooksOwn && (flags >> gpu->index & 1) != 0) return false;
  }
  gpu->flags_clear = true;
  return true;
}

Instant PredictedEnd(const Gpu* gpu) { return InstantFromNanos(gpu->meter.finish_at.load()); }

// False: there is nothing to watch any more.
bool Look(Gpu* gpu, void (*finished)(Gpu*)) {
  // What covers the launches is recorded once the gate is known to stay closed.
  Guard guard(gpu->lock);
  if (!gpu->watch || gpu->gate.open.load() != 0) return false;
  gpu->look.store(DrainLook::kLooks);
  const bool moves = gpu->movable != nullptr && gpu->movable->moving.load();
  const bool drained = !moves && FlagsClear(gpu) && Drained(gpu);
  if (gpu->look.exchange(DrainLook::kNone) == DrainLook::kPassed || !drained) {
    gpu->ended_at = MonotonicNow();  // at the earliest
    return true;
  }
  // Whatever kept this thread from seeing it sooner is a part of the hand-off.
  if (const Instant end = PredictedEnd(gpu); end > gpu->ended_at) gpu->ended_at = end;
  finished(gpu);
  return false;
}

}  // namespace

Instant WatchDrain(Gpu* gpu, void (*finished)(Gpu*)) {
  if (!Look(gpu, finished)) return kNever;
  // Whoever is next looks closely too, so it is told as well.
  const auto expected = [gpu] {
    const Instant end = PredictedEnd(gpu);
    SayExpected(gpu->index, end);
    return end;
  };
  if (!close_look.Around(expected, [&] { return Look(gpu, finished); })) {
    // Whoever is next may wait for this processor.
    syscall(SYS_sched_yield);
    return kNever;
  }
  // Half way to the end each time, so that a wrong prediction costs little; rarely when it is
  // overdue.
  const Instant now = MonotonicNow();
  const Instant end = expected();
  const Instant begins = close_look.Begins(end);
  const Instant close = begins != kNever ? begins : end;
  if (now < close && close - now <= kNear) return close;
  const Duration left = Backlog(gpu, now) / 2;
  const Duration overdue = (now - end) / 32;
  Duration poll = left > overdue ? left : overdue;
  poll = poll < kPollMin ? kPollMin : poll > kPollMax ? kPollMax : poll;
  Instant next = now + poll;
  const Instant telling = InstantFromNanos(gpu->meter.telling_at.load());
  if (now < telling && telling < next) next = telling;
  return now < close && close < next ? close : next;
}

}  // namespace baton::hook
