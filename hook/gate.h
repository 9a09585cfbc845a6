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
#include "hook/journal.h"

namespace baton::hook {

struct alignas(64) Gate {
  std::atomic<uint32_t> open{0};  // also the futex on which parked threads wait
};

// The slow side of a launch, before and after the driver's call. A pass without a cell is a call
// that the hook has nothing to do with.
struct Pass {
  Cell* cell;
  CUevent start;  // recorded just before the launch, to measure it by itself
  bool refused;   // the launch must not go: Refused()
};
Pass EnterSlow(CUstream stream, uint64_t key);
void LeaveSlow(Pass pass, uint64_t key);
// The same for one launch into streams of several GPUs: it goes when all their gates are open.
enum class Entered : uint8_t { kYes, kNotOurs, kRefused };
Entered EnterSeveral(const CUstream* streams, unsigned count);
void LeaveSeveral(const CUstream* streams, unsigned count, uint64_t key);
// After a launch that made a mark due: records it, or those of all of the thread's streams, and
// ends the launch. While the GPU has more than enough to do, the thread's next launch for it waits;
// this one does not, for what it started may wait for what the thread does next.
void FinishLaunch(Slot* slot, Cell* cell);

// Where the compiler must not move accesses to the flag; the processor is stopped by the closer.
inline void FlagFence() { std::atomic_signal_fence(std::memory_order_seq_cst); }

// Sets this thread's flag and looks at the gate. True: the launch may go, and the flag stays set.
bool EnterGate(Slot* slot, const Gate& gate, uint64_t flag);

// Launches work of kind `key` (never 0) into `stream` (one of the two default handles, or a
// stream's) by `call`, as soon as this process may.
template <class Call>
inline CUresult Launch(CUstream stream, uint64_t key, Call call) {
  Slot* slot = t_slot;
  if (__builtin_expect(slot != nullptr, 1)) {
    Cell* cell = slot->recent.Find(HandleKey(stream));
    Estimate* estimate = slot->known.Find(key);
    if (__builtin_expect(cell != nullptr && estimate != nullptr && cell->handle == stream &&
                             slot->in_launch.load(std::memory_order_relaxed) == 0 &&
                             slot->ahead_of != cell->gate,
                         1)) {
      slot->in_launch.store(cell->flag, std::memory_order_relaxed);
      FlagFence();
      // Both behind the flag: whoever closes the gate, or changes the stamp, then waits for it.
      if (__builtin_expect(cell->gate->open.load(std::memory_order_acquire) != 0 &&
                               cell->stamp.load(std::memory_order_relaxed) ==
                                   g_stamp.value.load(std::memory_order_relaxed),
                           1)) {
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
  if (pass.refused) return CUDA_ERROR_NOT_PERMITTED;
  const CUresult result = call();
  LeaveSlow(pass, key);
  return result;
}

}  // namespace baton::hook

#endif  // BATON_HOOK_GATE_H_
