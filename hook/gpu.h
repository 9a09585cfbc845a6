// What the process keeps for each GPU: the gate, the client machine, what is known of the work on
// it, and the memory charged. Also the hook's life in the process: whether it is on, and its fork.
#ifndef BATON_HOOK_GPU_H_
#define BATON_HOOK_GPU_H_

#include <atomic>

#include "hook/client_machine.h"
#include "hook/gate.h"
#include "hook/meter.h"
#include "hook/words.h"

namespace baton::hook {

inline constexpr int kGpusMax = wire::kGpusMax;

struct Movable;

// Whether the client thread, with Gpu::lock, is looking whether a drain is over: then this process
// has the token. It may hang in the driver there.
enum class DrainLook : uint32_t {
  kNone,
  kLooks,
  kPassed,  // a thread went on meanwhile that the driver may have waited for: the drain is not over
};

struct Gpu {
  Gate gate;
  uint8_t index = 0;
  CUdevice device = 0;
  wire::Text<64> uuid;
  uint64_t memory_total = 0;

  // The client machine, under `lock`. The rest is written under it and read anywhere.
  Lock lock;
  ClientMachine machine;
  Instant wake = kNever;
  bool watch = false;
  wire::State owed{};  // is to be sent, if `owes`
  bool owes = false;
  Awaited awaited;                        // what the machine's ahead() waits for
  std::atomic<bool> wanted{false};        // to be attached
  std::atomic<int64_t> wanted_at{0};      // since when, in nanoseconds
  std::atomic<bool> attached{false};      // on the present connection
  std::atomic<uint32_t> parked{0};        // threads that wait for the gate
  std::atomic<uint32_t> asleep{0};        // those of them that sleep on the gate
  std::atomic<uint32_t> pacing{0};        // threads that wait for the backlog to shrink
  std::atomic<bool> after_launch{false};  // Launched() after the next launch
  Instant attach_at{};                    // when to ask (again) to be attached; the client thread's
  bool flags_clear = false;               // of this closing: no thread is in a launch any more
  std::atomic<DrainLook> look{DrainLook::kNone};  // the client thread's, at a drain
  uint32_t took_over = 0;                         // hand-offs to here, by another's word
  Instant ended_at{};                             // the last drain was over, as far as is known

  Meter meter;

  // Device memory that this process has been charged, and the question that is open.
  struct {
    Lock lock;  // one question at a time; held until it is answered
    std::atomic<uint64_t> used{0};
    std::atomic<uint64_t> cap{0};
    // futex: whether `cap` is known. 0 nobody has said yet, 1 as last said, 2 this GPU is not the
    // pod's. It stays known while the backend is away.
    std::atomic<uint32_t> cap_known{0};
    std::atomic<uint64_t> pod_used{0};
    std::atomic<int64_t> pod_asked_at{0};  // when it was last asked for by itself
    std::atomic<uint64_t> request{0};
    std::atomic<uint32_t> answer{0};     // futex: 0 open, 1 granted, 2 refused, 3 ask again
    std::atomic<bool> host_full{false};  // the last answer was a refusal for want of host memory
    std::atomic<int64_t> told_at{0};     // when the backend heard of a refusal
    std::atomic<uint64_t> movable{0};    // the part of `used` that can be moved to the host
  } memory;
  Movable* movable = nullptr;  // null: this pod's memory stays where it is. For good
};

// Whether this process is managed at all: BATON_TICKET is set, BATON_DISABLE is not, and this is
// glibc. Reads the environment once.
bool Managed();
// Starts the client thread, once per process. True when it runs.
bool StartOnce();
// The GPU of a device ordinal, made on first use; null when the driver does not know it.
Gpu* GpuOf(CUdevice device);
// The GPUs made so far; those at [0, GpuCount()) are there for good.
int GpuCount();
Gpu* GpuAt(int index);

// True when launches may use membarrier's cheap side.
bool HasMembarrier();

}  // namespace baton::hook

#endif  // BATON_HOOK_GPU_H_
