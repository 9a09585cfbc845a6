#include "hook/drain.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hook/gpu.h"
#include "hook/mover.h"
#include "hook/spin_budget.h"

namespace baton::hook {
namespace {

using std::chrono::microseconds;

// How often a drain is looked at that is far from its end, or overdue.
constexpr Duration kPollMin = microseconds(20);
constexpr Duration kPollMax = microseconds(250);
// Around the predicted end it is looked at without a pause: from so long before until so long
// after, and for no more in one go.
constexpr Duration kSpinBefore = microseconds(100);
constexpr Duration kSpinAfter = microseconds(50);
constexpr Duration kSpinMost = microseconds(200);
// Two looks further apart than this: somebody else had the processor meanwhile. Then it is left to
// them for a while.
constexpr Duration kDenied = microseconds(500);
constexpr Duration kLeaveToOthers = std::chrono::milliseconds(20);

// The client thread's.
struct {
  SpinBudget budget;
  Instant not_before{};
} spin;

// Whether this thread may run on several processors.
bool SeveralProcessors() {
  unsigned long set[128] = {};  // of 8 192 processors
  const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof(set), set);
  int processors = 0;
  for (long i = 0; i < bytes / static_cast<long>(sizeof(set[0])); ++i) {
    processors += __builtin_popcountl(set[i]);
  }
  return processors > 1;
}

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

// False: there is nothing to watch any more.
bool Look(Gpu* gpu, void (*finished)(Gpu*)) {
  // What covers the launches is recorded once the gate is known to stay closed.
  Guard guard(gpu->lock);
  if (!gpu->watch || gpu->gate.open.load() != 0) return false;
  const bool moves = gpu->movable != nullptr && gpu->movable->moving.load();
  if (moves || !FlagsClear(gpu) || !Drained(gpu)) return true;
  finished(gpu);
  return false;
}

Instant PredictedEnd(const Gpu* gpu) { return InstantFromNanos(gpu->meter.finish_at.load()); }

// Looks until the drain has ended, or its end is not near any more. As Look().
bool LookClosely(Gpu* gpu, void (*finished)(Gpu*)) {
  const Instant from = MonotonicNow();
  const Duration left = spin.budget.Left(from);
  const Duration most = left < kSpinMost ? left : kSpinMost;
  Instant now = from;
  const auto near = [&] {
    const Instant end = PredictedEnd(gpu);
    return now >= end - kSpinBefore && now < end + kSpinAfter && now - from < most;
  };
  if (now < spin.not_before || !near() || !SeveralProcessors()) return true;
  bool goes_on = true;
  while (near() && (goes_on = Look(gpu, finished))) {
    const Instant before = now;
    now = MonotonicNow();
    if (now - before > kDenied) spin.not_before = now + kLeaveToOthers;
  }
  now = MonotonicNow();
  spin.budget.Spend(now, now - from);
  return goes_on;
}

}  // namespace

Instant WatchDrain(Gpu* gpu, void (*finished)(Gpu*)) {
  if (!Look(gpu, finished) || !LookClosely(gpu, finished)) return kNever;
  // Finely enough that a wrong prediction costs little, and rarely when the end is far, or overdue.
  const Instant now = MonotonicNow();
  const Instant end = PredictedEnd(gpu);
  const Duration left = Backlog(gpu, now) / 8;
  const Duration overdue = (now - end) / 32;
  Duration poll = left > overdue ? left : overdue;
  poll = poll < kPollMin ? kPollMin : poll > kPollMax ? kPollMax : poll;
  const Instant close = end - kSpinBefore;  // from here on it is looked at closely
  return now < close && close < now + poll ? close : now + poll;
}

}  // namespace baton::hook
