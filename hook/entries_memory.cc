// Device memory by every way that this hook counts: cuMemAlloc, pitch, managed, stream-ordered
// pools and VMM. What the hook does not know is the driver's alone.
#include "hook/allocation.h"
#include "hook/entries.h"
#include "hook/mover.h"

namespace baton::hook {
BATON_API(cuMemAlloc_v2, (CUdeviceptr * p, size_t bytes)) {
  BATON_REAL(cuMemAlloc_v2);
  if (CUresult result; AllocateMovable(bytes, p, &result)) return result;
  return Allocate(bytes, p, [&] { return real(p, bytes); });
}

// The first generation: addresses and sizes of 32 bits.
BATON_API(cuMemAlloc, (unsigned* p, unsigned bytes)) {
  BATON_REAL(cuMemAlloc);
  CUdeviceptr at = 0;
  return Allocate(bytes, &at, [&] {
    const CUresult result = real(p, bytes);
    if (result == CUDA_SUCCESS) at = *p;
    return result;
  });
}

BATON_API(cuMemAllocManaged, (CUdeviceptr * p, size_t bytes, unsigned flags)) {
  BATON_REAL(cuMemAllocManaged);
  return Allocate(bytes, p, [&] { return real(p, bytes, flags); });
}

namespace {

// The pitch is the driver's to choose: charged at what was asked for, rounded up to the largest
// alignment that drivers use, and then corrected.
template <class Address, class Size, class Call>
CUresult AllocatePitch(const Address* p, const Size* pitch, uint64_t width, uint64_t height,
                       Call call) {
  constexpr uint64_t kPitchAlign = 512;
  Gpu* gpu = MemoryGpu();
  uint64_t guess = 0;
  if (__builtin_mul_overflow((width + kPitchAlign - 1) / kPitchAlign * kPitchAlign, height,
                             &guess)) {
    guess = UINT64_MAX;
  }
  if (!Charge(gpu, guess)) return NotCharged(gpu, guess);
  const CUresult result = call();
  if (result != CUDA_SUCCESS) {
    Credit(gpu, guess);
    NotAllocated(gpu, guess, result);
    return result;
  }
  const uint64_t actual = uint64_t{*pitch} * height;
  if (actual < guess) Credit(gpu, guess - actual);
  if (gpu != nullptr) Remember(*p, {gpu, actual < guess ? actual : guess, CurrentContext()});
  return result;
}

}  // namespace

BATON_API(cuMemAllocPitch_v2,
          (CUdeviceptr * p, size_t* pitch, size_t width, size_t height, unsigned element)) {
  BATON_REAL(cuMemAllocPitch_v2);
  return AllocatePitch(p, pitch, width, height,
                       [&] { return real(p, pitch, width, height, element); });
}

BATON_API(cuMemAllocPitch,
          (unsigned* p, unsigned* pitch, unsigned width, unsigned height, unsigned element)) {
  BATON_REAL(cuMemAllocPitch);
  return AllocatePitch(p, pitch, width, height,
                       [&] { return real(p, pitch, width, height, element); });
}

// Stream-ordered memory is charged by what its pool reserves. In a stream capture it becomes a node
// of the graph, and nothing is allocated now.
namespace {

template <class Call>
CUresult AllocateAsync(CUstream stream, CUmemoryPool pool, CUdeviceptr* p, size_t bytes,
                       Call call) {
  if (!Managed() || (g_captures.load() > 0 && IsCapturing(stream))) return call();
  // Without a pool it is the one that the stream's device has at present.
  Gpu* gpu = GpuOfStream(stream);
  if (gpu == nullptr ||
      (pool == nullptr && Drv<Fn::cuDeviceGetMemPool>(&pool, gpu->device) != CUDA_SUCCESS)) {
    return call();
  }
  gpu = GpuOfPool(pool);
  if (gpu == nullptr) return call();
  Guard guard(PoolsLock(gpu));
  uint64_t charged = 0;
  if (!ChargePool(gpu, pool, bytes, &charged)) return NotCharged(gpu, bytes);
  const CUresult result = call();
  SettlePool(gpu, pool, charged);
  if (result == CUDA_SUCCESS) RememberPooled(gpu, *p, pool);
  NotAllocated(gpu, bytes, result);
  return result;
}

// Also for cuMemFree of such memory, and cuMemFreeAsync of any other.
template <class Call>
CUresult FreeAny(CUdeviceptr p, Call call) {
  if (FreeMovable(p)) return CUDA_SUCCESS;
  Gpu* gpu = nullptr;
  CUmemoryPool pool = nullptr;
  const bool pooled = PoolOf(p, &gpu, &pool);
  const CUresult result = Free(p, call);
  if (pooled) {
    Guard guard(PoolsLock(gpu));
    SettlePool(gpu, pool, 0);
  }
  return result;
}

}  // namespace

BATON_API(cuMemAllocAsync, (CUdeviceptr * p, size_t bytes, CUstream stream)) {
  BATON_REAL(cuMemAllocAsync);
  return AllocateAsync(Legacy(stream), nullptr, p, bytes, [&] { return real(p, bytes, stream); });
}
BATON_API(cuMemAllocAsync_ptsz, (CUdeviceptr * p, size_t bytes, CUstream stream)) {
  BATON_REAL(cuMemAllocAsync_ptsz);
  return AllocateAsync(PerThread(stream), nullptr, p, bytes,
                       [&] { return real(p, bytes, stream); });
}
BATON_API(cuMemAllocFromPoolAsync,
          (CUdeviceptr * p, size_t bytes, CUmemoryPool pool, CUstream stream)) {
  BATON_REAL(cuMemAllocFromPoolAsync);
  return AllocateAsync(Legacy(stream), pool, p, bytes,
                       [&] { return real(p, bytes, pool, stream); });
}
BATON_API(cuMemAllocFromPoolAsync_ptsz,
          (CUdeviceptr * p, size_t bytes, CUmemoryPool pool, CUstream stream)) {
  BATON_REAL(cuMemAllocFromPoolAsync_ptsz);
  return AllocateAsync(PerThread(stream), pool, p, bytes,
                       [&] { return real(p, bytes, pool, stream); });
}
BATON_API(cuMemFreeAsync, (CUdeviceptr p, CUstream stream)) {
  BATON_REAL(cuMemFreeAsync);
  return FreeAny(p, [&] { return real(p, stream); });
}
BATON_API(cuMemFreeAsync_ptsz, (CUdeviceptr p, CUstream stream)) {
  BATON_REAL(cuMemFreeAsync_ptsz);
  return FreeAny(p, [&] { return real(p, stream); });
}

namespace {
constexpr int kManagedType = 2;  // CU_MEM_ALLOCATION_TYPE_MANAGED, which older headers lack
}

BATON_API(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps* props)) {
  BATON_REAL(cuMemPoolCreate);
  const CUresult result = real(pool, props);
  if (result == CUDA_SUCCESS && Managed()) {
    // A managed pool that names no device is charged as cuMemAllocManaged is: where the program
    // works now.
    const bool on_device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    const bool managed = static_cast<int>(props->allocType) == kManagedType;
    RememberPool(*pool, on_device ? MemoryGpuOf(props->location.id)
                        : managed ? MemoryGpu()
                                  : nullptr);
  }
  return result;
}
// A pool that belongs to a place, and not to the program: `type` says whether it is managed.
#define BATON_POOL_OF(name)                                                     \
  BATON_API(name, (CUmemoryPool * pool, CUmemLocation * location, int type)) {  \
    BATON_REAL(name);                                                           \
    const CUresult result = real(pool, location, type);                         \
    if (result == CUDA_SUCCESS && Managed() && type == kManagedType) {          \
      const bool on_device = location->type == CU_MEM_LOCATION_TYPE_DEVICE;     \
      RememberPool(*pool, on_device ? MemoryGpuOf(location->id) : MemoryGpu()); \
    }                                                                           \
    return result;                                                              \
  }
BATON_POOL_OF(cuMemGetDefaultMemPool)
BATON_POOL_OF(cuMemGetMemPool)

BATON_API(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep)) {
  BATON_REAL(cuMemPoolTrimTo);
  Gpu* gpu = Managed() ? GpuOfPool(pool) : nullptr;
  if (gpu == nullptr) return real(pool, keep);
  Guard guard(PoolsLock(gpu));
  const CUresult result = real(pool, keep);
  SettlePool(gpu, pool, 0);
  return result;
}
BATON_API(cuMemPoolDestroy, (CUmemoryPool pool)) {
  BATON_REAL(cuMemPoolDestroy);
  return DestroyPool(pool, real);
}

BATON_API(cuMemFree_v2, (CUdeviceptr p)) {
  BATON_REAL(cuMemFree_v2);
  return FreeAny(p, [&] { return real(p); });
}

BATON_API(cuMemFree, (unsigned p)) {
  BATON_REAL(cuMemFree);
  return FreeAny(p, [&] { return real(p); });
}

// VMM: physical memory is charged where it is made; imports are somebody else's charge.
BATON_API(cuMemCreate, (CUmemGenericAllocationHandle * handle, size_t bytes,
                        const CUmemAllocationProp* prop, unsigned long long flags)) {
  BATON_REAL(cuMemCreate);
  Gpu* gpu = nullptr;
  if (Managed() && prop != nullptr && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    gpu = MemoryGpuOf(prop->location.id);
  }
  if (!Charge(gpu, bytes)) return NotCharged(gpu, bytes);
  const CUresult result = real(handle, bytes, prop, flags);
  if (result == CUDA_SUCCESS) {
    RememberHandle(gpu, *handle, bytes);
  } else {
    Credit(gpu, bytes);
    NotAllocated(gpu, bytes, result);
  }
  return result;
}

BATON_API(cuMemRelease, (CUmemGenericAllocationHandle handle)) {
  BATON_REAL(cuMemRelease);
  return ReleaseHandle(handle, real);
}

BATON_API(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void* address)) {
  BATON_REAL(cuMemRetainAllocationHandle);
  const CUresult result = real(handle, address);
  if (result == CUDA_SUCCESS) RetainHandle(reinterpret_cast<CUdeviceptr>(address), *handle);
  return result;
}

BATON_API(cuMemMap, (CUdeviceptr address, size_t bytes, size_t offset,
                     CUmemGenericAllocationHandle handle, unsigned long long flags)) {
  BATON_REAL(cuMemMap);
  const CUresult result = real(address, bytes, offset, handle, flags);
  if (result == CUDA_SUCCESS && Managed()) RememberMapping(address, bytes, handle);
  return result;
}

BATON_API(cuMemUnmap, (CUdeviceptr address, size_t bytes)) {
  BATON_REAL(cuMemUnmap);
  return Unmap(address, bytes, real);
}

namespace {

template <class Size, class Call>
CUresult MemoryInfo(Size* free, Size* total, Call call) {
  const CUresult result = call();
  if (result != CUDA_SUCCESS) return result;
  Gpu* gpu = MemoryGpu();
  SettlePools(gpu);
  size_t f = *free, t = *total;
  SeenByPod(gpu, &f, &t);
  *free = static_cast<Size>(f);
  *total = static_cast<Size>(t);
  return result;
}

template <class Size, class Call>
CUresult TotalMemory(Size* bytes, CUdevice device, Call call) {
  const CUresult result = call();
  if (result != CUDA_SUCCESS || !Managed()) return result;
  size_t total = *bytes;
  SeenByPod(MemoryGpuOf(device), nullptr, &total);
  *bytes = static_cast<Size>(total);
  return result;
}

}  // namespace

BATON_API(cuMemGetInfo_v2, (size_t * free, size_t* total)) {
  BATON_REAL(cuMemGetInfo_v2);
  return MemoryInfo(free, total, [&] { return real(free, total); });
}

BATON_API(cuMemGetInfo, (unsigned* free, unsigned* total)) {
  BATON_REAL(cuMemGetInfo);
  return MemoryInfo(free, total, [&] { return real(free, total); });
}

BATON_API(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device)) {
  BATON_REAL(cuDeviceTotalMem_v2);
  return TotalMemory(bytes, device, [&] { return real(bytes, device); });
}

BATON_API(cuDeviceTotalMem, (unsigned* bytes, CUdevice device)) {
  BATON_REAL(cuDeviceTotalMem);
  return TotalMemory(bytes, device, [&] { return real(bytes, device); });
}

}  // namespace baton::hook
