#include "hook/host_waits.h"

#include <stdlib.h>

#include "hook/captures.h"
#include "hook/client.h"
#include "hook/gate.h"
#include "hook/gpu.h"
#include "hook/meter.h"
#include "hook/steps.h"

namespace baton::hook {
namespace {

void Raise(std::atomic<uint32_t>& value, uint32_t to) {
  uint32_t now = value.load();
  while (now < to && !value.compare_exchange_weak(now, to)) {
  }
}

// Whether anything was launched behind the wait, as far as is known.
bool HasWorkBehind(const HostWait& wait) {
  bool any = wait.stream->newest_behind.load() >= wait.number;
  if (!any) {
    const bool all =
        ForCells(wait.stream, [&](const Cell* c) { any = any || c->pending.load() > 0; });
    any = any || !all;
  }
  return any;
}

void Over(const HostWait& wait) { Raise(wait.stream->waits_over, wait.number); }

// The stream goes on: what is behind the wait counts as launched now. The flag is set, or the
// process drains.
void Resume(const HostWait& wait) {
  Meter& meter = wait.gpu->meter;
  const bool work = HasWorkBehind(wait);
  Over(wait);
  if (!work) return;
  meter.resumed.fetch_add(1, std::memory_order_relaxed);
  meter.held_ns.store(0, std::memory_order_relaxed);  // until it is counted again
  const int64_t end = Nanos(MonotonicNow()) + meter.outstanding_ns.load(std::memory_order_relaxed);
  if (end > meter.finish_at.load(std::memory_order_relaxed)) {
    meter.finish_at.store(end, std::memory_order_relaxed);
  }
}

// Ends the wait as soon as this process may launch. Called by the driver's thread, which may not
// call the driver, so nothing here does.
void Finish(HostWait* wait) {
  Gpu* gpu = wait->gpu;
  Slot* slot = MySlot();
  const bool nested = slot == nullptr || slot->in_launch.load(std::memory_order_relaxed) != 0;
  while (!nested) {
    if (EnterGate(slot, gpu->gate, uint64_t{1} << gpu->index)) {
      Resume(*wait);
      slot->in_launch.store(0, std::memory_order_release);
      if (gpu->after_launch.load(std::memory_order_relaxed)) {
        SignalsHeld held;
        StepOrPass(
            gpu, Event{}, [](void*) {}, nullptr);
      }
      slot->prompt.End();
      break;
    }
    {
      // Drained() has counted what is behind the wait as held, or finds out that it ended.
      Guard guard(gpu->meter.waits_lock);
      if (!HasWorkBehind(*wait)) {
        Over(*wait);
        ++gpu->meter.waits_ended;
        break;
      }
    }
    Want(gpu);
    const auto over = [](void* passed) { Over(*static_cast<HostWait*>(passed)); };
    const Parked parked = ParkOrPass(gpu, over, wait);
    if (parked == Parked::kPassed) {
      gpu->meter.let_pass.fetch_add(1);
      Resume(*wait);
    }
    if (parked != Parked::kOpen) break;
  }
  Over(*wait);
  free(wait);
}

}  // namespace

BegunWait BeginHostWait(CUstream stream) {
  constexpr BegunWait kNothing = {nullptr, nullptr, 0};
  if (!StartOnce()) return kNothing;
  Slot* slot = MySlot();
  // A call from within a launch, or the hook's own.
  if (slot == nullptr || slot->in_launch.load(std::memory_order_relaxed) != 0) return kNothing;
  // In a capture it becomes a node of the graph.
  if (g_captures.load(std::memory_order_acquire) > 0 && IsCapturing(stream)) return kNothing;
  Cell* cell = FindCell(slot, stream);
  if (cell == nullptr) return kNothing;
  auto* wait = static_cast<HostWait*>(malloc(sizeof(HostWait)));
  if (wait == nullptr) return kNothing;
  // What other threads launch into the stream is before the wait or behind it, and it is known
  // which.
  cell->stream->beginning.fetch_add(1);
  StopLaunches(slot, cell->stream);
  // So that the end of what comes before is seen.
  CoverStream(slot, cell);
  const uint32_t number = cell->stream->waits_begun.fetch_add(1) + 1;
  *wait = {cell->gpu, cell->stream, number, nullptr, nullptr, nullptr};
  return {wait, cell->stream, number};
}

void EndBegin(const BegunWait& begun, bool taken) {
  if (begun.wait == nullptr) return;
  if (taken) {
    Raise(begun.stream->waits, begun.number);
    // The next launch into the stream learns of it. One that misses this counts as not behind it.
    ForCells(begun.stream, [](Cell* c) { c->stamp.store(kNoStamp, std::memory_order_relaxed); });
  } else {
    free(begun.wait);
  }
  begun.stream->beginning.fetch_sub(1);
}

void RunHostFunction(void* argument) {
  auto* wait = static_cast<HostWait*>(argument);
  if (wait->function != nullptr) wait->function(wait->user);
  Finish(wait);
}

void RunCallback(CUstream stream, CUresult status, void* argument) {
  auto* wait = static_cast<HostWait*>(argument);
  wait->callback(stream, status, wait->user);
  Finish(wait);
}

}  // namespace baton::hook
