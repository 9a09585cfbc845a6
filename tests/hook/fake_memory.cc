// The memory of the tests' own driver.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/hook/fake_driver.h"
#include "tests/hook/fake_state.h"

namespace {

using namespace baton::hook;

struct FakeMemory {
  size_t bytes;
  FakeContext* context;
};

struct FakePool {
  uint64_t used = 0, reserved = 0;
};

std::map<CUdeviceptr, FakeMemory> g_memory;
std::map<CUdeviceptr, std::pair<FakePool*, size_t>> g_pooled;
std::vector<CUdeviceptr> g_deferred;  // freed, when their stream gets there
CUdeviceptr g_next_address = 0x7f0000000000;
std::set<FakePool*> g_pools;  // all
std::atomic<uint64_t> g_allocations{0}, g_memory_mistakes{0};
std::atomic<bool> g_defer_frees{false};

CUresult AllocateFrom(FakePool* pool, CUdeviceptr* p, size_t bytes) {
  // Long enough for another thread to come meanwhile.
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::lock_guard lock(g_mutex);
  *p = g_next_address;
  g_next_address += bytes + 512;
  g_pooled[*p] = {pool, bytes};
  g_pools.insert(pool);
  pool->used += bytes;
  pool->reserved = std::max(pool->reserved, pool->used);
  return CUDA_SUCCESS;
}

FakePool* FreePooled(CUdeviceptr p) {
  const auto [pool, bytes] = g_pooled[p];
  pool->used -= bytes;
  g_pooled.erase(p);
  return pool;
}

}  // namespace

namespace baton::hook {

void EndMemory(const FakeContext* context) {
  std::erase_if(g_memory, [&](const auto& m) { return m.second.context == context; });
}

void ShrinkPools() {
  std::lock_guard lock(g_mutex);
  for (FakePool* pool : g_pools) pool->reserved = pool->used;
}

uint64_t MemoryMistakes() { return g_memory_mistakes.load(); }

}  // namespace baton::hook

FAKE_CONTROL uint64_t fake_allocations() { return g_allocations.load(); }

FAKE_API(cuMemAlloc_v2, (CUdeviceptr * p, size_t bytes)) {
  g_allocations.fetch_add(1);
  std::lock_guard lock(g_mutex);
  if (Current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *p = g_next_address;
  g_next_address += bytes + 512;
  g_memory[*p] = {bytes, Current()};
  return CUDA_SUCCESS;
}
// The first generation, whose addresses have 32 bits: unrelated to the present one, as in a driver.
FAKE_API(cuMemAlloc, (unsigned* p, unsigned bytes)) {
  static unsigned next = 4096;
  g_allocations.fetch_add(1);
  std::lock_guard lock(g_mutex);
  *p = next;
  next += bytes;
  g_memory[*p] = {bytes, Current()};
  return CUDA_SUCCESS;
}
FAKE_API(cuMemFree, (unsigned p)) {
  std::lock_guard lock(g_mutex);
  return g_memory.erase(p) > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
FAKE_API(cuMemGetInfo, (unsigned* free, unsigned* total)) {
  *total = *free = 4'000'000'000;
  return CUDA_SUCCESS;
}
FAKE_API(cuPointerGetAttribute, (void* value, CUpointer_attribute, CUdeviceptr p)) {
  std::lock_guard lock(g_mutex);
  if (g_memory.count(p) == 0) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<unsigned*>(value) = CU_MEMORYTYPE_DEVICE;
  return CUDA_SUCCESS;
}
FAKE_API(cuMemFree_v2, (CUdeviceptr p)) {
  std::lock_guard lock(g_mutex);
  return g_memory.erase(p) > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
// A pool keeps what is freed until it is trimmed.
FAKE_API(cuDeviceGetDefaultMemPool, (CUmemoryPool * pool, CUdevice d)) {
  static FakePool pools[2];
  *pool = reinterpret_cast<CUmemoryPool>(&pools[d]);
  return CUDA_SUCCESS;
}
FAKE_API(cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice d)) {
  return Api_cuDeviceGetDefaultMemPool(pool, d);
}
FAKE_API(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps*)) {
  *pool = reinterpret_cast<CUmemoryPool>(new FakePool);
  return CUDA_SUCCESS;
}
FAKE_API(cuMemPoolGetAttribute, (CUmemoryPool p, CUmemPool_attribute attribute, void* value)) {
  std::lock_guard lock(g_mutex);
  const auto* pool = reinterpret_cast<const FakePool*>(p);
  *static_cast<cuuint64_t*>(value) =
      attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ? pool->used : pool->reserved;
  return CUDA_SUCCESS;
}
FAKE_API(cuMemPoolTrimTo, (CUmemoryPool p, size_t keep)) {
  std::lock_guard lock(g_mutex);
  auto* pool = reinterpret_cast<FakePool*>(p);
  pool->reserved = std::min(pool->reserved, std::max<uint64_t>(pool->used, keep));
  return CUDA_SUCCESS;
}
FAKE_API(cuMemPoolDestroy, (CUmemoryPool p)) {
  std::lock_guard lock(g_mutex);
  auto* pool = reinterpret_cast<FakePool*>(p);
  pool->reserved = pool->used;
  return CUDA_SUCCESS;
}
FAKE_API(cuMemAllocFromPoolAsync, (CUdeviceptr * p, size_t bytes, CUmemoryPool from, CUstream)) {
  return AllocateFrom(reinterpret_cast<FakePool*>(from), p, bytes);
}
FAKE_API(cuMemAllocAsync, (CUdeviceptr * p, size_t bytes, CUstream s)) {
  CUmemoryPool pool = nullptr;
  {
    std::lock_guard lock(g_mutex);
    const FakeStream* stream = StreamAt(Legacy(s));
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    Api_cuDeviceGetDefaultMemPool(&pool, stream->context->device);
  }
  return AllocateFrom(reinterpret_cast<FakePool*>(pool), p, bytes);
}
FAKE_API(cuMemFreeAsync, (CUdeviceptr p, CUstream)) {
  std::lock_guard lock(g_mutex);
  if (g_defer_frees.load()) {
    g_deferred.push_back(p);
  } else {
    FreePooled(p);
  }
  return CUDA_SUCCESS;
}
// While it is on, no stream gets to the frees in it; then all do, and the pools give back.
FAKE_CONTROL void fake_defer_frees(bool on) {
  std::lock_guard lock(g_mutex);
  g_defer_frees.store(on);
  for (const CUdeviceptr p : g_deferred) {
    FakePool* pool = FreePooled(p);
    pool->reserved = pool->used;
  }
  g_deferred.clear();
}
FAKE_API(cuMemCreate, (CUmemGenericAllocationHandle * handle, size_t, const CUmemAllocationProp*,
                       unsigned long long)) {
  static std::atomic<uint64_t> last{0};
  *handle = ++last;
  return CUDA_SUCCESS;
}
FAKE_API(cuMemRelease, (CUmemGenericAllocationHandle)) { return CUDA_SUCCESS; }
FAKE_API(cuMemMap,
         (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)) {
  return CUDA_SUCCESS;
}
FAKE_API(cuMemUnmap, (CUdeviceptr, size_t)) {
  std::lock_guard lock(g_mutex);
  if (IsBusy(nullptr)) ++g_memory_mistakes;
  return CUDA_SUCCESS;
}
FAKE_API(cuMemGetInfo_v2, (size_t * free, size_t* total)) {
  *total = size_t{16} << 30;
  *free = size_t{15} << 30;
  return CUDA_SUCCESS;
}
FAKE_API(cuMemAddressReserve,
         (CUdeviceptr * p, size_t bytes, size_t, CUdeviceptr, unsigned long long)) {
  std::lock_guard lock(g_mutex);
  *p = g_next_address;
  g_next_address += bytes + 512;
  return CUDA_SUCCESS;
}
FAKE_API(cuMemAddressFree, (CUdeviceptr, size_t)) { return CUDA_SUCCESS; }
FAKE_API(cuMemSetAccess, (CUdeviceptr, size_t, const CUmemAccessDesc*, size_t)) {
  return CUDA_SUCCESS;
}
