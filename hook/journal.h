// The launch journal: what each thread has launched into which stream since the last mark there,
// and what that is expected to take.
//
// A thread writes its own slot and cells while its flag (Slot::in_launch) names their GPU; whoever
// has closed that GPU's gate (hook/gate.h) reads and clears them while no flag does.
#ifndef BATON_HOOK_JOURNAL_H_
#define BATON_HOOK_JOURNAL_H_

#include <stdint.h>

#include <atomic>

#include "base/short_slice.h"
#include "hook/cuda_types.h"
#include "hook/libc.h"
#include "hook/recent.h"

namespace baton::hook {

struct Gate;
struct Gpu;
struct Stream;

// Predicted GPU time of one kind of work: a kernel with about the same number of blocks, a graph,
// a copy or a set of about the same size. Shared by all threads, never freed.
struct Estimate {
  uint64_t key = 0;
  std::atomic<uint64_t> ns{0};
  std::atomic<uint32_t> samples{0};  // 0: never measured
  std::atomic<uint32_t> seen{0};     // the latest mark that counts it, roughly
  Estimate* next = nullptr;          // in its bucket
};

// One thread's launches into one stream since the last mark. Owned by the thread while its flag is
// set, by the closer while the gate is closed.
struct alignas(64) Cell {
  static constexpr uint32_t kLogSize = 256;
  CUstream handle = nullptr;
  // Equal to g_stamp: handle and context are known to be still right.
  std::atomic<uint64_t> stamp{0};
  Gate* gate = nullptr;                 // this, flag and gpu: the same for good
  uint64_t flag = 0;                    // the GPU's bit in Slot::in_launch
  std::atomic<uint32_t> pending{0};     // launches after the last mark
  std::atomic<uint64_t> pending_ns{0};  // and what they are predicted to take
  std::atomic<uint64_t> launches{0};    // all of them, ever
  Gpu* gpu = nullptr;
  Stream* stream = nullptr;
  CUcontext context = nullptr;
  int64_t arrives_at = 0;     // Mark::arrives_at of the launch under way
  bool sample_next = false;   // measure the next launch by itself
  uint32_t unsampled = 0;     // marked launches since one was measured so
  uint64_t unsampled_ns = 0;  // and what they were predicted to take
  // The pending launches come after this wait of the stream.
  std::atomic<uint32_t> behind{0};
  // As many launches of this cell, its first, are covered by a mark of another's.
  std::atomic<uint64_t> covering{0}, covered{0};
  Cell* next_in_bucket = nullptr;
  Cell* next = nullptr;          // of this thread
  Estimate* log[kLogSize] = {};  // of the pending launches
};

// What a thread keeps. Never freed: a slot is used again after its thread has ended.
struct alignas(64) Slot {
  static constexpr uint64_t kHooksOwn = ~uint64_t{0};  // the hook's thread: its calls pass
  static constexpr size_t kBuckets = 64;

  std::atomic<uint64_t> in_launch{0};  // Cell::flag of the launch under way
  const Gate* ahead_of = nullptr;      // its GPU had more than enough to do after the last mark
  uint64_t unmarked_ns = 0;            // predicted time launched since all of its cells were marked
  Recent<Cell, 128> recent;            // by stream's handle; a cell may be another stream's by now
  Recent<Estimate, 1024> known;        // by kind of work

  // Taken to insert a cell, to give one another stream, to read or mark those of another thread,
  // and, while there are captures, for every launch's own note.
  Lock cells_lock;
  Cell* buckets[kBuckets] = {};
  std::atomic<Cell*> cells{nullptr};  // newest first, none is ever taken away
  std::atomic<bool> taken{false};
  PromptWaking prompt;  // from a wait for the gate until the launch has gone
  std::atomic<uint64_t> copies_bytes{0};
  Slot* next = nullptr;
};

// This thread's slot, or null before its first gated call.
extern __thread Slot* t_slot __attribute__((tls_model("initial-exec")));

// Changes whenever a cell might have become wrong (a stream or a context is gone). Zero while every
// launch must take the slow side: a capture is active, or the kernel has no membarrier.
struct alignas(64) Stamp {
  std::atomic<uint64_t> value{0};
};
extern Stamp g_stamp;

// GPU time in one stream after which a mark is due; and in all streams of a thread, after which all
// of them are marked.
inline constexpr uint64_t kMarkEveryNs = 400'000;
inline constexpr uint64_t kMarkAllEveryNs = 800'000;
// The stamp of a cell whose next launch takes the slow side: g_stamp is never this.
inline constexpr uint64_t kNoStamp = ~uint64_t{0};

// The estimate of a kind of work. Thread safe.
Estimate* EstimateOf(uint64_t key);

// Slots of all threads, newest first.
Slot* FirstSlot();
// Calls `act` for every cell of launches into the stream. Never waits: false if it had to leave out
// those of a thread.
template <class Act>
bool ForCells(const Stream* stream, Act act) {
  bool all = true;
  for (Slot* s = FirstSlot(); s != nullptr; s = s->next) {
    if (!s->cells_lock.TryAcquire()) {
      all = false;
      continue;
    }
    for (Cell* c = s->cells.load(std::memory_order_acquire); c != nullptr; c = c->next) {
      if (c->stream == stream) act(c);
    }
    s->cells_lock.Release();
  }
  return all;
}
// The calling thread's slot, made on first use; null when memory is short.
Slot* MySlot();
// The cell of the slot's launches into `stream`; made on first use. Null where Baton has nothing to
// do with it: no context, or a device that is unknown.
Cell* FindCell(Slot* slot, CUstream stream);
// Whether a launch into the cell's stream is to get its mark at once, on the slow side: behind a
// wait for the host in a thread's default stream, where nobody else could record one.
bool MarkedAtOnce(const Cell* cell);
// Whether the pending launches are behind a wait for the host that is not over. Slot::cells_lock is
// held.
bool IsHeld(const Cell* cell);
// The thread's next launch into the cell's stream finds it without a search.
void Remember(Slot* slot, Cell* cell);
// The next launch of this thread looks its cell up: the current context may have changed.
void ContextChanged();
// In a child after fork: no other thread's slot exists here.
void ForgetSlots();

// Recomputes g_stamp; after a change of g_captures, or when cells may have become wrong.
void NewStamp();

// Launches into the GPU so far (with work that went on after a wait for the host, as one launch),
// and bytes of copies, of this process.
uint64_t LaunchCount(const Gpu* gpu);
uint64_t CopiesBytes();

inline uint64_t HandleKey(CUstream stream) { return reinterpret_cast<uintptr_t>(stream); }

// Notes a launch of the calling thread, whose flag is set. True when a mark is due.
inline bool Note(Slot* slot, Cell* cell, Estimate* estimate) {
  const uint32_t pending = cell->pending.load(std::memory_order_relaxed);
  const uint64_t one = estimate->ns.load(std::memory_order_relaxed);
  const uint64_t ns = cell->pending_ns.load(std::memory_order_relaxed) + one;
  slot->unmarked_ns += one;
  cell->log[pending] = estimate;
  cell->pending.store(pending + 1, std::memory_order_relaxed);
  cell->pending_ns.store(ns, std::memory_order_relaxed);
  cell->launches.store(cell->launches.load(std::memory_order_relaxed) + 1,
                       std::memory_order_relaxed);
  return pending + 1 == Cell::kLogSize || ns >= kMarkEveryNs ||
         slot->unmarked_ns >= kMarkAllEveryNs;
}

}  // namespace baton::hook

#endif  // BATON_HOOK_JOURNAL_H_
