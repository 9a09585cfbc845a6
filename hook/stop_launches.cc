// Threads that launch are stopped for a moment: before a capture, and before a wait for the host.
#include "hook/captures.h"
#include "hook/gpu.h"
#include "hook/meter.h"

namespace baton::hook {
namespace {

// Before a capture begins, threads that are in a launch and streams that are in use are looked at
// again, so often in all.
constexpr int kLaunchLooks = 500;
constexpr Duration kLaunchLook = std::chrono::microseconds(20);

// Whether the thread of `slot` is in no launch; looks again as often as `looks` is left.
bool AwaitNoLaunch(const Slot* slot, int& looks) {
  while (true) {
    const uint64_t launch = slot->in_launch.load();
    if (launch == 0 || launch == Slot::kHooksOwn) return true;
    if (looks-- <= 0) return false;
    SleepFor(kLaunchLook);
  }
}

}  // namespace

// From the new stamp on every launch takes the slow side, and notes under its slot's lock; once a
// thread is in no launch, what it has pending can be marked by this one. The closer marks nothing
// meanwhile, for want of g_capture_lock.
void MarkBeforeCapture() {
  if (HasMembarrier()) Membarrier();
  int looks = kLaunchLooks;
  for (Slot* slot = FirstSlot(); slot != nullptr; slot = slot->next) {
    // Who is held up in the driver may be waiting for this capture.
    if (!AwaitNoLaunch(slot, looks)) continue;
    Guard guard(slot->cells_lock);
    for (Cell* cell = slot->cells.load(); cell != nullptr; cell = cell->next) {
      while (cell->pending.load(std::memory_order_relaxed) > 0 &&
             !TryMark(cell, slot == t_slot, false)) {
        // Somebody collects; or its context is going, and that takes its work along.
        if (cell->gpu->meter.destroying.load() > 0 || looks-- <= 0) break;
        SleepFor(kLaunchLook);
      }
    }
  }
}

void StopLaunches(const Slot* own, const Stream* stream) {
  const auto launches_there = [stream](Slot* slot) {
    Guard guard(slot->cells_lock);
    bool any = false;
    for (Cell* c = slot->cells.load(std::memory_order_acquire); c != nullptr; c = c->next) {
      if (c->stream != stream) continue;
      c->stamp.store(kNoStamp, std::memory_order_relaxed);
      any = true;
    }
    return any;
  };
  bool others = false;
  for (Slot* s = FirstSlot(); s != nullptr; s = s->next) {
    if (s != own) others = launches_there(s) || others;
  }
  if (!others) return;
  if (HasMembarrier()) Membarrier();
  int looks = kLaunchLooks;
  for (Slot* s = FirstSlot(); s != nullptr; s = s->next) {
    if (s != own && launches_there(s)) AwaitNoLaunch(s, looks);
  }
}

bool AwaitBegun(Slot* slot, const Stream* stream, int& looks) {
  if (stream->beginning.load() == 0 || looks-- <= 0) return true;
  slot->in_launch.store(0, std::memory_order_release);
  SleepFor(kLaunchLook);
  return false;
}

}  // namespace baton::hook
