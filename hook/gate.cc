#include "hook/gate.h"

#include <stdlib.h>

#include "hook/client.h"
#include "hook/driver.h"
#include "hook/gpu.h"
#include "hook/meter.h"

namespace baton::hook {

__thread Slot* t_slot __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

std::atomic<Slot*> g_slots{nullptr};

// Matches no launch, so the first one looks its cell up. All threads share it, and none writes to
// it.
constinit Cell g_no_cell = {.stamp = kNoStamp};

Cell*& Recent(Slot* slot, CUstream stream) { return slot->recent[RecentIndex(stream)]; }

void ForgetRecent(Slot* slot) {
  for (Cell*& cell : slot->recent) cell = &g_no_cell;
}

// The slot of a thread that has ended, with launches into its default stream that no mark covers:
// the next drain covers them, and no mark of another thread could.
bool Unfinished(Slot* slot) {
  Guard guard(slot->cells_lock);
  for (Cell* c = slot->cells.load(); c != nullptr; c = c->next) {
    if (c->handle == CU_STREAM_PER_THREAD && c->pending.load() > 0) return true;
  }
  return false;
}

void ThreadExit(void* value) {
  auto* slot = static_cast<Slot*>(value);
  t_slot = nullptr;
  slot->in_launch.store(0);
  slot->taken.store(false, std::memory_order_release);
}

size_t BucketOf(CUstream stream) {
  return (reinterpret_cast<uintptr_t>(stream) * 0x9e3779b97f4a7c15u) >> 58;
}

// The cell of this thread's launches into `stream`. Null where Baton has nothing to do with it: no
// context, or a device that is unknown.
Cell* FindCell(Slot* slot, CUstream stream) {
  const bool by_context = stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  CUcontext context = nullptr;
  if (by_context && !ContextOfStream(stream, &context)) return nullptr;
  // No cell carries the 0 that stands for "slow side only".
  uint64_t stamp = g_stamp.value.load(std::memory_order_acquire);
  if (stamp == 0) stamp = kNoStamp;
  Cell*& bucket = slot->buckets[BucketOf(stream)];
  for (Cell* c = bucket; c != nullptr; c = c->next_in_bucket) {
    if (c->handle != stream || (by_context && c->context != context)) continue;
    AwaitLeft(c->stream->context);
    // The record may serve another stream by now.
    if (c->stream->gone.load() || c->stream->handle != stream) continue;
    if (c->stream->context->gone.load() || c->stream->context->handle != c->context) continue;
    c->stamp = stamp;
    return c;
  }
  if (!by_context && !ContextOfStream(stream, &context)) return nullptr;
  Context* owner = ContextOf(context);
  if (owner == nullptr) return nullptr;
  Stream* record = StreamOf(owner, stream, stream == CU_STREAM_PER_THREAD ? slot : nullptr);
  if (record == nullptr) return nullptr;

  Guard guard(slot->cells_lock);
  // A cell of a stream that is gone serves again once its launches are accounted for.
  Cell* cell = nullptr;
  for (Cell** at = &bucket; *at != nullptr; at = &(*at)->next_in_bucket) {
    if ((*at)->stream->gone.load() && (*at)->pending.load() == 0 && (*at)->gpu == owner->gpu) {
      cell = *at;
      break;
    }
  }
  const bool fresh = cell == nullptr;
  if (fresh) {
    void* p = nullptr;
    if (posix_memalign(&p, 64, sizeof(Cell)) != 0) return nullptr;
    cell = new (p) Cell();
  }
  cell->handle = stream;
  cell->stamp = stamp;
  cell->stream = record;
  cell->context = context;
  cell->sample_next = false;
  if (fresh) {
    cell->gpu = owner->gpu;
    cell->gate = &owner->gpu->gate;
    cell->flag = uint64_t{1} << owner->gpu->index;
    cell->next_in_bucket = bucket;
    bucket = cell;
    cell->next = slot->cells.load(std::memory_order_relaxed);
    // From here on other threads count its launches, without the lock.
    slot->cells.store(cell, std::memory_order_release);
  }
  return cell;
}

// Sets this thread's flag and looks at the gate. True: the launch may go, the flag stays set.
bool Enter(Slot* slot, const Cell* cell) {
  slot->in_launch.store(cell->flag, std::memory_order_relaxed);
  if (HasMembarrier()) {
    FlagFence();
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  if (cell->gate->open.load(std::memory_order_acquire) != 0) return true;
  slot->in_launch.store(0, std::memory_order_relaxed);
  return false;
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
  auto& known = slot->known[KnownIndex(key)];
  if (known.key != key) {
    known.estimate = EstimateOf(key);
    known.key = key;
  }
  return known.estimate;
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

bool ContextOfStream(CUstream stream, CUcontext* context) {
  *context = nullptr;
  if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
    return Drv<Fn::cuCtxGetCurrent>(context) == CUDA_SUCCESS && *context != nullptr;
  }
  if (Drv<Fn::cuStreamGetCtx>(stream, context) == CUDA_SUCCESS && *context != nullptr) return true;
  // Of a stream of a green context: the context that it stands for.
  void* green = nullptr;
  if (Drv<Fn::cuStreamGetCtx_v2>(stream, context, &green) != CUDA_SUCCESS) return false;
  return *context != nullptr || Drv<Fn::cuCtxFromGreenCtx>(context, green) == CUDA_SUCCESS;
}

Slot* FirstSlot() { return g_slots.load(std::memory_order_acquire); }

Slot* MySlot() {
  if (t_slot != nullptr) return t_slot;
  Slot* slot = nullptr;
  for (Slot* s = FirstSlot(); s != nullptr && slot == nullptr; s = s->next) {
    bool free = false;
    if (!s->taken.load() && !Unfinished(s) && s->taken.compare_exchange_strong(free, true))
      slot = s;
  }
  if (slot == nullptr) {
    void* p = nullptr;
    if (posix_memalign(&p, alignof(Slot), sizeof(Slot)) != 0) return nullptr;
    slot = new (p) Slot();
    slot->taken.store(true);
    slot->next = g_slots.load(std::memory_order_relaxed);
    while (!g_slots.compare_exchange_weak(slot->next, slot, std::memory_order_release)) {
    }
  }
  ForgetRecent(slot);
  slot->ahead_of = nullptr;
  slot->unmarked_ns = 0;
  t_slot = slot;
  AtThreadExit(ThreadExit, slot);
  return slot;
}

void ContextChanged() {
  if (t_slot == nullptr) return;
  Recent(t_slot, CU_STREAM_LEGACY) = &g_no_cell;
  Recent(t_slot, CU_STREAM_PER_THREAD) = &g_no_cell;
}

void ForgetSlots() {
  g_slots.store(nullptr);
  t_slot = nullptr;
}

Pass EnterSlow(CUstream stream, uint64_t key) {
  constexpr Pass kNothing = {nullptr, nullptr};
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
  while (!Enter(slot, cell)) Park(cell->gpu);

  Estimate* estimate = Known(slot, key);
  Pass pass = {cell, nullptr};
  if (cell->sample_next || estimate->samples.load(std::memory_order_relaxed) == 0) {
    const CapturesGuard captures(slot);
    HookCalls calls(cell->stream->context->handle);
    if (cell->pending.load(std::memory_order_relaxed) == 0 || RecordMark(cell, nullptr)) {
      Guard guard(cell->stream->lock);
      RecordEvent(cell->stream, &pass.start);
    }
  }
  return pass;
}

void LeaveSlow(Pass pass, uint64_t key) {
  if (pass.cell == nullptr) return;
  Slot* slot = t_slot;
  Cell* cell = pass.cell;
  Recent(slot, cell->handle) = cell;
  {
    const CapturesGuard captures(slot);
    const bool due = Note(slot, cell, Known(slot, key));
    if (due || pass.start != nullptr || captures.captures()) {
      HookCalls calls(cell->stream->context->handle);
      RecordMark(cell, pass.start);
      Pace(slot, cell->gpu);
    }
  }
  slot->in_launch.store(0, std::memory_order_release);
  MarkAllIfDue(slot, cell);
  if (cell->gpu->single.load(std::memory_order_relaxed)) Launched(cell->gpu);
}

bool EnterSeveral(const CUstream* streams, unsigned count) {
  if (!StartOnce()) return false;
  Slot* slot = MySlot();
  if (slot == nullptr || slot->in_launch.load(std::memory_order_relaxed) != 0) return false;
  uint64_t flags = 0;
  for (unsigned i = 0; i < count; ++i) {
    Cell* cell = FindCell(slot, streams[i]);
    if (cell == nullptr) return false;
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
      Park(cell->gpu);
      i = 0;
      break;
    }
    if (slot->in_launch.load(std::memory_order_relaxed) != 0) break;
  }
  return true;
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
}

void FinishLaunch(Slot* slot, Cell* cell) {
  {
    HookCalls calls(cell->stream->context->handle);
    RecordMark(cell, nullptr);
  }
  // The next launch is to be measured by itself: that is the slow side's business.
  if (cell->sample_next || !StillCurrent(cell)) cell->stamp = kNoStamp;
  Pace(slot, cell->gpu);
  slot->in_launch.store(0, std::memory_order_release);
  MarkAllIfDue(slot, cell);
}

}  // namespace baton::hook
