// Device memory: every allocation is charged to the pod before the driver is asked, and credited
// when it is freed. Whether it fits is decided by the backend, in one step for all the pod's
// processes; here the questions of one process and GPU are asked one at a time.
// Thread safe.
#ifndef BATON_HOOK_MEMORY_H_
#define BATON_HOOK_MEMORY_H_

#include <stdint.h>

#include "hook/cuda_types.h"
#include "hook/libc.h"

namespace baton::hook {

struct Gpu;

// The GPU of the current context, or null where Baton has nothing to do with it.
Gpu* MemoryGpu();
Gpu* MemoryGpuOf(CUdevice device);

// Charges `bytes` more. False: over the pod's cap even after the GPU's pools gave back what they do
// not use, and nothing is charged. Null `gpu`: true.
bool Charge(Gpu* gpu, uint64_t bytes);
void Credit(Gpu* gpu, uint64_t bytes);
// The same where Gpu::memory.lock is held.
void CreditLocked(Gpu* gpu, uint64_t bytes);
// Charges what the device has already, over the cap too: the next allocation is told so.
void ChargeAnyway(Gpu* gpu, uint64_t bytes);

// What was charged for an allocation, and the context that it goes with.
struct Charged {
  Gpu* gpu;
  uint64_t bytes;
  CUcontext context;
};
// Remembers it at `address`.
void Remember(uint64_t address, const Charged& charged);
// Forgets it. False: not known, and then nothing is to be credited.
bool Forget(uint64_t address, Charged* charged);
// After a context is gone: credits what was remembered in it up to a moment before it went. Its
// handle and addresses may be another's by then.
uint64_t MemoryMoment();
void CreditContext(CUcontext context, uint64_t moment);

// Stream-ordered pools are charged what they reserve. The GPU of a stream, and that of a pool: null
// where Baton has nothing to do with it, as with a pool in host memory.
Gpu* GpuOfStream(CUstream stream);
Gpu* GpuOfPool(CUmemoryPool pool);
// Remembers a pool and its GPU, if it is new.
void RememberPool(CUmemoryPool pool, Gpu* gpu);
// Held from ChargePool() to SettlePool(), the driver's call between them included: what a pool has
// to spare goes to one allocation only. Held while the backend is asked.
Lock& PoolsLock(Gpu* gpu);
// Before an allocation of `bytes`: charges what the pool will have to grow by, and returns that
// through `charged`; false: over the cap, even after what the pools do not use was given back.
// After it, or after a free: settles the difference.
bool ChargePool(Gpu* gpu, CUmemoryPool pool, uint64_t bytes, uint64_t* charged);
void SettlePool(Gpu* gpu, CUmemoryPool pool, uint64_t charged);
// Credits what the GPU's pools have given back by themselves: memory that was freed in stream order
// is, once its stream got there. Never waits, and does nothing while others are at it.
void SettlePools(Gpu* gpu);
// The driver has waited for the GPU, and may have taken back what pools do not use: SettlePools()
// of all GPUs, but for graphs, which keep theirs. Returns at once where no pool was charged.
void PoolsMayHaveShrunk();
// Destroys a pool by `real` and credits what it kept; what is still allocated from it is credited
// as it is freed.
CUresult DestroyPool(CUmemoryPool pool, CUresult (*real)(CUmemoryPool));
// The pool that `address` came from, as told by RememberPooled(); false: none.
void RememberPooled(Gpu* gpu, CUdeviceptr address, CUmemoryPool pool);
bool PoolOf(CUdeviceptr address, Gpu** gpu, CUmemoryPool* pool);

// Memory by handle is credited when its last handle is released and its last mapping is gone.
// After it was charged and made, mapped, or given a handle again; and around the calls that end it.
void RememberHandle(Gpu* gpu, uint64_t handle, uint64_t bytes);
void RememberMapping(CUdeviceptr address, uint64_t bytes, uint64_t handle);
void RetainHandle(CUdeviceptr address, uint64_t handle);
CUresult ReleaseHandle(uint64_t handle, CUresult (*real)(CUmemGenericAllocationHandle));
CUresult Unmap(CUdeviceptr address, size_t bytes, CUresult (*real)(CUdeviceptr, size_t));

// What the pod may have and what is left of it, given the driver's own figures.
void SeenByPod(Gpu* gpu, size_t* free, size_t* total);

// Held while a limit of a context changes.
extern Lock g_limits_lock;

// In a child after fork.
void ForgetMemory();

}  // namespace baton::hook

#endif  // BATON_HOOK_MEMORY_H_
