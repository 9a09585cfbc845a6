// The memory of a pod with swap (BATON_SWAP=1): allocations that can be moved, and the thread of
// the hook that moves them. Memory goes to the host while this process has no token and the daemon
// asks for room; it comes back under the token, before the gate opens. The daemon gets to know of
// what there was no room for by wire::State, and decides who makes it.
#ifndef BATON_HOOK_MOVER_H_
#define BATON_HOOK_MOVER_H_

#include "hook/arena.h"

namespace baton::hook {

struct Gpu;

// Of one GPU. All but the arena is written under Gpu::lock.
struct Movable {
  Arena arena;
  std::atomic<bool> moving{false};         // the thread is at it: the gate stays closed
  std::atomic<uint64_t> keep{UINT64_MAX};  // no more is to stay on the device, as the daemon asks
  std::atomic<bool> gated{true};           // launches wait for tokens, so that memory may move
  std::atomic<uint64_t> wanted{0};         // bytes that there was no room for at the last attempt
};

// Whether this pod's memory can be moved. Fixed.
bool Swaps();
void SetSwaps();
// Makes Gpu::movable where this pod has one.
void MakeMovable(Gpu* gpu);
// Whether the gate may open as far as memory is concerned; if not, it is being brought in.
// Gpu::lock is held. True where nothing can move.
bool MemoryIsIn(Gpu* gpu);
// The daemon asks that no more than `keep` bytes stay on the device. Gpu::lock is not held.
void MakeRoom(Gpu* gpu, uint64_t keep);
// The process ends: nothing is moved any more. Waits a moment for what is under way.
void StopMoving();

// Allocates memory that can be moved, and charges it. False: not here, ask the driver.
bool AllocateMovable(uint64_t bytes, CUdeviceptr* p, CUresult* result);
// Frees it once the device is done with it: during a capture that cannot be waited for, and the
// memory is put off until a later free, the program's own wait, or a moment without work. False: it
// is none.
bool FreeMovable(CUdeviceptr p);
// Frees what was put off, once the device is done with it, unless there are captures.
void FreePutOff();
// The allocation that has the address. False: none.
bool FindMovable(CUdeviceptr address, Gpu** gpu, Arena::Allocation* found);
// True, and said on stderr once: the address is in such memory, with which `what` does not work.
bool RefusesMovable(CUdeviceptr address, const char* what);
// Around the end of a context: nothing is moved meanwhile. If it is gone, so is what was in it.
void LockMovable(bool lock);
void ForgetMovable(CUcontext context);  // between the two
// In a child after fork.
void ForgetMover();

}  // namespace baton::hook

#endif  // BATON_HOOK_MOVER_H_
