// What the replaced allocations share: charge, ask the driver, remember or credit.
#ifndef BATON_HOOK_ALLOCATION_H_
#define BATON_HOOK_ALLOCATION_H_

#include "hook/driver.h"
#include "hook/memory.h"

namespace baton::hook {

// What a program gets for `bytes` on `gpu` that were not charged; says why on stderr, now and then.
CUresult NotCharged(Gpu* gpu, uint64_t bytes);
// The driver has answered `result` to what was charged: where that is an out-of-memory error, says
// so on stderr, now and then, and to the backend.
void NotAllocated(Gpu* gpu, uint64_t bytes, CUresult result);

inline CUcontext CurrentContext() {
  CUcontext context = nullptr;
  Drv<Fn::cuCtxGetCurrent>(&context);
  return context;
}

// Charges, allocates in the current context by `call`, and remembers under what `key()` returns
// then.
template <class Key, class Call>
CUresult AllocateAs(uint64_t bytes, Key key, Call call) {
  Gpu* gpu = MemoryGpu();
  if (!Charge(gpu, bytes)) return NotCharged(gpu, bytes);
  const CUresult result = call();
  if (result != CUDA_SUCCESS) {
    Credit(gpu, bytes);
    NotAllocated(gpu, bytes, result);
  } else if (gpu != nullptr && bytes > 0) {
    Remember(key(), {gpu, bytes, CurrentContext()});
  }
  return result;
}

// The same for what the driver gives an address.
template <class Call>
CUresult Allocate(uint64_t bytes, const CUdeviceptr* address, Call call) {
  return AllocateAs(
      bytes, [&] { return *address; }, call);
}

// Frees by `call`, and credits what was remembered under `key`.
template <class Call>
CUresult Free(uint64_t key, Call call) {
  Charged charged = {};
  const bool known = Forget(key, &charged);
  const CUresult result = call();
  if (!known) return result;
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) {
    Credit(charged.gpu, charged.bytes);
  } else {
    Remember(key, charged);
  }
  return result;
}

// A key for what has a handle and no address: no address of a device has the highest bit.
inline uint64_t HandleKey(const void* handle) {
  return reinterpret_cast<uintptr_t>(handle) | uint64_t{1} << 63;
}

}  // namespace baton::hook

#endif  // BATON_HOOK_ALLOCATION_H_
