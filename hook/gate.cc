#include "hook/gate.h"

#include "hook/captures.h"
#include "hook/client.h"
#include "hook/driver.h"
#include "hook/gpu.h"
#include "hook/meter.h"

namespace baton::hook {

namespace {

bool Enter(Slot* slot, const Cell* cell) { return EnterGate(slot, *cell->gate, cell->flag); }

// What the cell's thread launches from now on comes after the waits that its stream has. The flag
// is set.
void SeeWaits(Cell* cell) {
  const uint32_t waits = cell->stream->waits.load();
  if (cell->behind.load(std::memory_order_relaxed) == waits) return;
  HookCalls calls(cell->stream->context->handle);
  if (cell->pending.load(std::memory_order_relaxed) == 0 || RecordMark(cell, nullptr)) {
    cell->behind.store(waits, std::memory_order_relaxed);
  }
}

// A context can change by ways that the hook does not see (a library's private tables).
bool StillCurrent(const Cell* cell) {
  if (cell->handle != CU_STREAM_LEGACY && cell->handle != CU_STREAM_PER_THREAD) return true;
  CUcontext current = nullptr;
  return Drv<Fn::cuCtxGetCurrent>(&current) == CUDA_SUCCESS && current == cell->context;
}

// Sends the thread's next launch for the GPU through the slow side while that has more than enough
// to do.
void Pace(Slot* slot, Gpu* gpu) { slot->ahead_of = OverBound(gpu) ? &gpu->gate : nullptr; }

// While there are captures whoever begins one marks what other threads have pending: what they note
// meanwhile is under their lock.
class CapturesGuard {
 public:
  explicit CapturesGuard(Slot* slot) : slot_(g_captures.load() > 0 ? slot : nullptr) {
    if (slot_ != nullptr) slot_->cells_lock.Acquire();
  }
  ~CapturesGuard() {
    if (slot_ != nullptr) slot_->cells_lock.Release();
  }
  CapturesGuard(const CapturesGuard&) = delete;
  CapturesGuard& operator=(const CapturesGuard&) = delete;
  bool captures() const { return slot_ != nullptr; }

 private:
  Slot* const slot_;
};

Estimate* Known(Slot* slot, uint64_t key) {
  Estimate* estimate = slot->known.Find(key);
  if (estimate == nullptr) {
    estimate = EstimateOf(key);
    slot->known.Put(key, estimate);
  }
  return estimate;
}

// Marks what the thread, which is in no launch, has pending anywhere, as far as that can be done at
// once. Where a gate is closed the closer sees to it.
void MarkAll(Slot* slot) {
  slot->unmarked_ns = 0;
  for (Cell* cell = slot->cells.load(std::memory_order_relaxed); cell != nullptr;
       cell = cell->next) {
    if (cell->pending.load(std::memory_order_relaxed) == 0 || !Enter(slot, cell)) continue;
    {
      const CapturesGuard captures(slot);
      if (cell->pending.load(std::memory_order_relaxed) > 0) {
        TryMark(cell, true, captures.captures());
        cell->sample_next = false;
      }
    }
    slot->in_launch.store(0, std::memory_order_release);
  }
}

// Marks the thread's other streams where that is due. The launch into `cell` has ended.
void MarkAllIfDue(Slot* slot, const Cell* cell) {
  if (slot->unmarked_ns < kMarkAllEveryNs) return;
  MarkAll(slot);
  Pace(slot, cell->gpu);
}

}  // namespace

bool EnterGate(Slot* slot, const Gate& gate, uint64_t flag) {
  slot->in_launch.store(flag, std::memory_order_relaxed);
  if (HasMembarrier()) {
    FlagFence();
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  if (gate.open.load(std::memory_order_acquire) != 0) return true;
  slot->in_launch.store(0, std::memory_order_relaxed);
  return false;
}

Pass EnterSlow(CUstream stream, uint64_t key) {
  constexpr Pass kNothing = {nullptr, nullptr, false};
  if (!StartOnce()) return kNothing;
  Slot* slot = MySlot();
  // A call from within a launch, or the hook's own.
  if (slot == nullptr || slot->in_launch.load(std::memory_order_relaxed) != 0) return kNothing;
  if (g_captures.load(std::memory_order_acquire) > 0 && IsCapturing(stream)) return kNothing;
  Cell* cell = FindCell(slot, stream);
  if (cell == nullptr) return kNothing;
  if (slot->ahead_of == cell->gate) {
    slot->ahead_of = nullptr;
    MarkAll(slot);  // or nobody would see the end of what this thread waits for
    AwaitBacklog(cell->gpu);
  }
  Want(cell->gpu);
  int looks = kBeginLooks;
  do {
    while (!Enter(slot, cell)) {
      if (!Park(cell->gpu)) return {nullptr, nullptr, true};
    }
  } while (!AwaitBegun(slot, cell->stream, looks));

  Estimate* estimate = Known(slot, key);
  Pass pass = {cell, nullptr, false};
  const CapturesGuard captures(slot);
  SeeWaits(cell);
  std::atomic<bool>& first = cell->gpu->meter.arrives;
  const bool arrives = first.load(std::memory_order_relaxed) && first.exchange(false);
  if (arrives || cell->sample_next || estimate->samples.load(std::memory_order_relaxed) == 0) {
    HookCalls calls(cell->stream->context->handle);
    if (cell->pending.load(std::memory_order_relaxed) == 0 || RecordMark(cell, nullptr)) {
      Guard guard(cell->stream->lock);
      const Instant now = MonotonicNow();
      RecordEvent(cell->stream, &pass.start);
      cell->arrives_at = arrives && pass.start != nullptr ? Nanos(now) : 0;
    }
  }
  return pass;
}

void LeaveSlow(Pass pass, uint64_t key) {
  if (pass.cell == nullptr) return;
  Slot* slot = t_slot;
  Cell* cell = pass.cell;
  Remember(slot, cell);
  {
    const CapturesGuard captures(slot);
    const bool due = Note(slot, cell, Known(slot, key));
    if (due || pass.start != nullptr || captures.captures() || MarkedAtOnce(cell)) {
      HookCalls calls(cell->stream->context->handle);
      RecordMark(cell, pass.start);
      Pace(slot, cell->gpu);
    }
  }
  slot->in_launch.store(0, std::memory_order_release);
  MarkAllIfDue(slot, cell);
  Launched(slot, cell->gpu);
}

Entered EnterSeveral(const CUstream* streams, unsigned count) {
  if (!StartOnce()) return Entered::kNotOurs;
  Slot* slot = MySlot();
  if (slot == nullptr || slot->in_launch.load(std::memory_order_relaxed) != 0) {
    return Entered::kNotOurs;
  }
  uint64_t flags = 0;
  for (unsigned i = 0; i < count; ++i) {
    Cell* cell = FindCell(slot, streams[i]);
    if (cell == nullptr) return Entered::kNotOurs;
    Want(cell->gpu);
    flags |= cell->flag;
  }
  for (unsigned i = 0; i < count;) {
    slot->in_launch.store(flags, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (i = 0; i < count; ++i) {
      Cell* cell = FindCell(slot, streams[i]);
      if (cell == nullptr || cell->gate->open.load(std::memory_order_acquire) != 0) continue;
      slot->in_launch.store(0, std::memory_order_relaxed);
      if (!Park(cell->gpu)) return Entered::kRefused;
      i = 0;
      break;
    }
    if (slot->in_launch.load(std::memory_order_relaxed) != 0) break;
  }
  return Entered::kYes;
}

void LeaveSeveral(const CUstream* streams, unsigned count, uint64_t key) {
  Slot* slot = t_slot;
  for (unsigned i = 0; i < count; ++i) {
    Cell* cell = FindCell(slot, streams[i]);
    if (cell == nullptr) continue;
    const CapturesGuard captures(slot);
    Note(slot, cell, Known(slot, key));
    HookCalls calls(cell->stream->context->handle);
    RecordMark(cell, nullptr);
  }
  slot->in_launch.store(0, std::memory_order_release);
  for (unsigned i = 0; i < count; ++i) {
    if (const Cell* cell = FindCell(slot, streams[i])) Launched(slot, cell->gpu);
  }
}

void FinishLaunch(Slot* slot, Cell* cell) {
  {
    HookCalls calls(cell->stream->context->handle);
    RecordMark(cell, nullptr);
  }
  // The next launch is to be measured by itself: that is the slow side's business.
  if (cell->sample_next || !StillCurrent(cell))
    cell->stamp.store(kNoStamp, std::memory_order_relaxed);
  Pace(slot, cell->gpu);
  slot->in_launch.store(0, std::memory_order_release);
  MarkAllIfDue(slot, cell);
}

}  // namespace baton::hook
