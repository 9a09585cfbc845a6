// The real driver: where its functions are, found once by name in the libcuda.so.1 that the
// process loads. Thread safe.
#ifndef BATON_HOOK_DRIVER_H_
#define BATON_HOOK_DRIVER_H_

#include <atomic>

#include "hook/cuda_types.h"

// Driver functions that the hook calls for its own purposes and does not replace.
#define BATON_USED_FUNCTIONS(X)                                                                   \
  X(cuCtxGetCurrent, CUresult(CUcontext*))                                                        \
  X(cuCtxGetDevice, CUresult(CUdevice*))                                                          \
  X(cuMemAddressFree, CUresult(CUdeviceptr, size_t))                                              \
  X(cuMemAddressReserve, CUresult(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long)) \
  X(cuMemFreeHost, CUresult(void*))                                                               \
  X(cuMemHostAlloc, CUresult(void**, size_t, unsigned int))                                       \
  X(cuMemSetAccess, CUresult(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t))                \
  X(cuCtxGetLimit, CUresult(size_t*, CUlimit))                                                    \
  X(cuDeviceGetCount, CUresult(int*))                                                             \
  X(cuDeviceGetAttribute, CUresult(int*, CUdevice_attribute, CUdevice))                           \
  X(cuDeviceGetDefaultMemPool, CUresult(CUmemoryPool*, CUdevice))                                 \
  X(cuDeviceGetMemPool, CUresult(CUmemoryPool*, CUdevice))                                        \
  X(cuDeviceGetGraphMemAttribute, CUresult(CUdevice, CUgraphMem_attribute, void*))                \
  X(cuDeviceGetUuid, CUresult(CUuuid*, CUdevice))                                                 \
  X(cuDeviceGetUuid_v2, CUresult(CUuuid*, CUdevice))                                              \
  X(cuDevicePrimaryCtxGetState, CUresult(CUdevice, unsigned int*, int*))                          \
  X(cuDevicePrimaryCtxRetain, CUresult(CUcontext*, CUdevice))                                     \
  X(cuEventCreate, CUresult(CUevent*, unsigned int))                                              \
  X(cuEventDestroy_v2, CUresult(CUevent))                                                         \
  X(cuEventElapsedTime, CUresult(float*, CUevent, CUevent))                                       \
  X(cuEventQuery, CUresult(CUevent))                                                              \
  X(cuGraphChildGraphNodeGetGraph, CUresult(CUgraphNode, CUgraph*))                               \
  X(cuGraphGetNodes, CUresult(CUgraph, CUgraphNode*, size_t*))                                    \
  X(cuGraphMemAllocNodeGetParams, CUresult(CUgraphNode, CUDA_MEM_ALLOC_NODE_PARAMS*))             \
  X(cuGraphNodeGetType, CUresult(CUgraphNode, CUgraphNodeType*))                                  \
  X(cuEventRecord, CUresult(CUevent, CUstream))                                                   \
  X(cuMemPoolGetAttribute, CUresult(CUmemoryPool, CUmemPool_attribute, void*))                    \
  X(cuStreamGetCtx, CUresult(CUstream, CUcontext*))                                               \
  X(cuStreamGetCtx_v2, CUresult(CUstream, CUcontext*, void**))                                    \
  X(cuCtxFromGreenCtx, CUresult(CUcontext*, void*))                                               \
  X(cuStreamIsCapturing, CUresult(CUstream, CUstreamCaptureStatus*))                              \
  X(cuThreadExchangeStreamCaptureMode, CUresult(CUstreamCaptureMode*))

namespace baton::hook {

enum class Fn : uint16_t {
#define BATON_ENTRY(action, spelling, name, since, per_thread) spelling,
#include "hook/functions.inc"
#define BATON_USED(name, type) name,
  BATON_USED_FUNCTIONS(BATON_USED)
#undef BATON_USED
      kCount
};
inline constexpr size_t kFnCount = static_cast<size_t>(Fn::kCount);

namespace internal {
extern std::atomic<void*> g_real[kFnCount];
void* FindReal(Fn fn);
}  // namespace internal

// The driver's own function, or null where this driver has none.
template <class F>
F* RealAs(Fn fn) {
  void* p = internal::g_real[static_cast<size_t>(fn)].load(std::memory_order_relaxed);
  if (__builtin_expect(p == nullptr, 0)) p = internal::FindReal(fn);
  return reinterpret_cast<F*>(p);
}

// Tells where a driver function is, as the driver itself told (cuGetProcAddress, dlsym), for one
// that is not known yet.
void OfferReal(Fn fn, void* address);

// For a function that this driver lacks, or a process without a driver.
inline constexpr CUresult kNoDriver = CUDA_ERROR_NOT_FOUND;

// Calls a driver function for the hook itself: Drv<Fn::cuEventQuery>(event).
template <Fn fn>
struct UsedType;
#define BATON_USED(name, type) \
  template <>                  \
  struct UsedType<Fn::name> {  \
    using F = type;            \
  };
BATON_USED_FUNCTIONS(BATON_USED)
#undef BATON_USED

template <Fn fn, class... Args>
CUresult Drv(Args... args) {
  auto* real = RealAs<typename UsedType<fn>::F>(fn);
  return real == nullptr ? kNoDriver : real(args...);
}

// "GPU-" and the device's uuid, as NVML spells it. How many bytes that is; 0: the driver does not
// know the device.
size_t DeviceUuid(CUdevice device, char (&text)[64]);

}  // namespace baton::hook

#endif  // BATON_HOOK_DRIVER_H_
