// The gate: what stands between a launching thread and the driver.
//
// While its GPU's gate is open a launch costs: the thread's own flag set and cleared, one load of
// the gate, one of the estimate of its work, and private counters. No lock, no shared line written,
// no fence, no system call, no allocation. Whoever closes the gate pays instead: it stores
// "closed", makes every thread's earlier stores visible (membarrier), and then waits until no flag
// names its GPU. From then on, and until it opens the gate again, no launch is between the check
// and the driver, and the cells of that GPU belong to the closer.
//
// Everything that is not the plain case (a stream not used of late, work not seen before, gate
// closed, more on the GPU than its bound, a stream capture somewhere in the process, a nested call)
// goes through Launch()'s slow side.
#ifndef BATON_HOOK_GATE_H_
#define BATON_HOOK_GATE_H_

#include <stdint.h>

#include <atomic>

#include "hook/cuda_types.h"
#include "hook/libc.h"

namespace baton::hook {

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

struct alignas(64) Gate {
  std::atomic<uint32_t> open{0};  // also the futex on which parked threads wait
};

// One thread's launches into one stream since the last mark. Owned by the thread while its flag is
// set, by the closer while the gate is closed.
struct Cell {
  static constexpr uint32_t kLogSize = 256;
  CUstream handle = nullptr;
  uint64_t stamp = 0;    // equal to g_stamp: handle and context are known to be still right
  Gate* gate = nullptr;  // this, flag and gpu: the same for good
  uint64_t flag = 0;     // the GPU's bit in Slot::in_launch
  std::atomic<uint32_t> pending{0};     // launches after the last mark
  std::atomic<uint64_t> pending_ns{0};  // and what they are predicted to take
  std::atomic<uint64_t> launches{0};    // all of them, ever
  Gpu* gpu = nullptr;
  Stream* stream = nullptr;
  CUcontext context = nullptr;
  bool sample_next = false;  // measure the next launch by itself
  Cell* next_in_bucket = nullptr;
  Cell* next = nullptr;          // of this thread
  Estimate* log[kLogSize] = {};  // of the pending launches
};

// What a thread keeps. Never freed: a slot is used again after its thread has ended.
struct alignas(64) Slot {
  static constexpr uint64_t kHooksOwn = ~uint64_t{0};  // the hook's thread: its calls pass
  static constexpr size_t kKnown = 256;   // KnownIndex()
  static constexpr size_t kRecent = 512;  // RecentIndex()
  static constexpr size_t kBuckets = 64;

  std::atomic<uint64_t> in_launch{0};  // Cell::flag of the launch under way
  const Gate* ahead_of = nullptr;      // its GPU had more than enough to do after the last mark
  uint64_t unmarked_ns = 0;            // predicted time launched since all of its cells were marked
  Cell* recent[kRecent] = {};          // by stream: cells of launches of late; never null
  struct {
    uint64_t key;
    Estimate* estimate;
  } known[kKnown] = {};

  // Taken to insert a cell, to give one another stream, to read or mark those of another thread,
  // and, while there are captures, for every launch's own note.
  Lock cells_lock;
  Cell* buckets[kBuckets] = {};
  std::atomic<Cell*> cells{nullptr};  // newest first, none is ever taken away
  std::atomic<bool> taken{false};
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

// The slow side of a launch, before and after the driver's call. A pass without a cell is a call
// that the hook has nothing to do with.
struct Pass {
  Cell* cell;
  CUevent start;  // recorded just before the launch, to measure it by itself
};
Pass EnterSlow(CUstream stream, uint64_t key);
void LeaveSlow(Pass pass, uint64_t key);
// The same for one launch into streams of several GPUs: it goes when all their gates are open.
// False: the hook has nothing to do with it.
bool EnterSeveral(const CUstream* streams, unsigned count);
void LeaveSeveral(const CUstream* streams, unsigned count, uint64_t key);
// After a launch that made a mark due: records it, or those of all of the thread's streams, and ends
// the launch. While the GPU has more than enough to do, the thread's next launch for it waits; this
// one does not, for what it started may wait for what the thread does next.
void FinishLaunch(Slot* slot, Cell* cell);

// The context of a stream; of a default one, the current context. False: there is none.
bool ContextOfStream(CUstream stream, CUcontext* context);

// Where the compiler must not move accesses to the flag; the processor is stopped by the closer.
inline void FlagFence() { std::atomic_signal_fence(std::memory_order_seq_cst); }

inline uint32_t KnownIndex(uint64_t key) {
  return static_cast<uint32_t>((key * 0x9e3779b97f4a7c15u) >> 56);
}
inline uint32_t RecentIndex(CUstream stream) {
  return static_cast<uint32_t>((reinterpret_cast<uintptr_t>(stream) * 0x9e3779b97f4a7c15u) >> 55);
}

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

// Launches work of kind `key` (never 0) into `stream` (one of the two default handles, or a
// stream's) by `call`, as soon as this process may.
template <class Call>
inline CUresult Launch(CUstream stream, uint64_t key, Call call) {
  Slot* slot = t_slot;
  if (__builtin_expect(slot != nullptr, 1)) {
    Cell* cell = slot->recent[RecentIndex(stream)];
    const auto& known = slot->known[KnownIndex(key)];
    if (__builtin_expect(cell->handle == stream && known.key == key &&
                             slot->in_launch.load(std::memory_order_relaxed) == 0 &&
                             slot->ahead_of != cell->gate,
                         1)) {
      slot->in_launch.store(cell->flag, std::memory_order_relaxed);
      FlagFence();
      // Both behind the flag: whoever closes the gate, or changes the stamp, then waits for it.
      if (__builtin_expect(cell->gate->open.load(std::memory_order_acquire) != 0 &&
                               cell->stamp == g_stamp.value.load(std::memory_order_relaxed),
                           1)) {
        Estimate* estimate = known.estimate;
        const CUresult result = call();
        const bool due = Note(slot, cell, estimate);
        FlagFence();
        if (__builtin_expect(!due, 1)) {
          slot->in_launch.store(0, std::memory_order_release);
        } else {
          FinishLaunch(slot, cell);
        }
        return result;
      }
      slot->in_launch.store(0, std::memory_order_relaxed);
    }
  }
  const Pass pass = EnterSlow(stream, key);
  const CUresult result = call();
  LeaveSlow(pass, key);
  return result;
}

}  // namespace baton::hook

#endif  // BATON_HOOK_GATE_H_
