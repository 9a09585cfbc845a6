#include "hook/journal.h"

#include "hook/captures.h"
#include "hook/driver.h"
#include "hook/gpu.h"
#include "hook/streams.h"

namespace baton::hook {

__thread Slot* t_slot __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

constexpr size_t kEstimateBuckets = 4096;
constexpr uint32_t kEstimatesMax = 65536;
// What work that was never measured is taken for.
constexpr uint64_t kUnknownNs = 500'000;

std::atomic<Estimate*> g_estimates[kEstimateBuckets];
std::atomic<uint32_t> g_estimate_count{0};
Lock g_estimates_lock;

uint64_t g_generation = 1;
Lock g_stamp_lock;

std::atomic<Slot*> g_slots{nullptr};

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
  slot->prompt = {};
  slot->taken.store(false, std::memory_order_release);
}

size_t BucketOf(CUstream stream) {
  return (reinterpret_cast<uintptr_t>(stream) * 0x9e3779b97f4a7c15u) >> 58;
}

}  // namespace

Stamp g_stamp;

void NewStamp() {
  // One at a time, so that the latest value of g_captures wins.
  Guard guard(g_stamp_lock);
  const uint64_t generation = ++g_generation;
  const bool slow = g_captures.load() > 0 || !HasMembarrier();
  g_stamp.value.store(slow ? 0 : generation, std::memory_order_release);
}

Estimate* EstimateOf(uint64_t key) {
  std::atomic<Estimate*>& bucket = g_estimates[(key * 0x9e3779b97f4a7c15u) >> 52];
  for (Estimate* e = bucket.load(std::memory_order_acquire); e != nullptr; e = e->next) {
    if (e->key == key) return e;
  }
  static Estimate everything_else;
  if (g_estimate_count.load(std::memory_order_relaxed) >= kEstimatesMax) return &everything_else;
  Guard guard(g_estimates_lock);
  for (Estimate* e = bucket.load(std::memory_order_relaxed); e != nullptr; e = e->next) {
    if (e->key == key) return e;
  }
  auto* e = New<Estimate>();
  if (e == nullptr) return &everything_else;
  e->key = key;
  e->ns.store(kUnknownNs, std::memory_order_relaxed);
  e->next = bucket.load(std::memory_order_relaxed);
  bucket.store(e, std::memory_order_release);
  g_estimate_count.fetch_add(1, std::memory_order_relaxed);
  return e;
}

bool MarkedAtOnce(const Cell* cell) {
  return cell->stream->owner != nullptr && cell->stream->WaitsForHost();
}

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
    c->stamp.store(MarkedAtOnce(c) ? kNoStamp : stamp, std::memory_order_relaxed);
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
    cell = New<Cell>();
    if (cell == nullptr) return nullptr;
  }
  cell->handle = stream;
  cell->stream = record;
  cell->stamp.store(MarkedAtOnce(cell) ? kNoStamp : stamp, std::memory_order_relaxed);
  cell->behind.store(0, std::memory_order_relaxed);
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

bool IsHeld(const Cell* cell) {
  const Stream* stream = cell->stream;
  return cell->behind.load(std::memory_order_relaxed) > stream->waits_over.load() &&
         !stream->gone.load() && !stream->context->gone.load();
}

void Remember(Slot* slot, Cell* cell) {
  const uint64_t key = HandleKey(cell->handle);
  if (slot->recent.Find(key) != cell) slot->recent.Put(key, cell);
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
    slot = New<Slot>();
    if (slot == nullptr) return nullptr;
    slot->taken.store(true);
    slot->next = g_slots.load(std::memory_order_relaxed);
    while (!g_slots.compare_exchange_weak(slot->next, slot, std::memory_order_release)) {
    }
  }
  slot->recent.ForgetAll();
  slot->ahead_of = nullptr;
  slot->unmarked_ns = 0;
  t_slot = slot;
  AtThreadExit(ThreadExit, slot);
  return slot;
}

void ContextChanged() {
  if (t_slot == nullptr) return;
  t_slot->recent.Forget(HandleKey(CU_STREAM_LEGACY));
  t_slot->recent.Forget(HandleKey(CU_STREAM_PER_THREAD));
}

void ForgetSlots() {
  g_estimates_lock.Reset();
  g_stamp_lock.Reset();
  g_slots.store(nullptr);
  t_slot = nullptr;
}

uint64_t LaunchCount(const Gpu* gpu) {
  uint64_t n = gpu->meter.resumed.load(std::memory_order_relaxed);
  for (Slot* s = FirstSlot(); s != nullptr; s = s->next) {
    for (Cell* c = s->cells.load(std::memory_order_acquire); c != nullptr; c = c->next) {
      if (c->gpu == gpu) n += c->launches.load(std::memory_order_relaxed);
    }
  }
  return n;
}

uint64_t CopiesBytes() {
  uint64_t n = 0;
  for (Slot* s = FirstSlot(); s != nullptr; s = s->next) n += s->copies_bytes.load();
  return n;
}

}  // namespace baton::hook
