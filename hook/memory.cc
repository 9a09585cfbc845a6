#include "hook/memory.h"

#include <stdlib.h>

#include "hook/allocation.h"
#include "hook/client.h"
#include "hook/driver.h"
#include "hook/gpu.h"
#include "hook/graph_memory.h"
#include "hook/log.h"
#include "hook/mover.h"
#include "hook/questions.h"

namespace baton::hook {
namespace {

// Memory that is refused again within this time is no news.
constexpr Duration kSayAgain = std::chrono::seconds(60);
constexpr Duration kTellAgain = std::chrono::seconds(1);

struct Allocation {
  uint64_t address;
  Charged charged;
  CUmemoryPool pool;  // null: charged by itself
  uint64_t moment;    // when it was remembered
  Allocation* next;
};

struct Pool {
  CUmemoryPool handle;
  Gpu* gpu;  // null: it is not charged
  uint64_t charged;
  Pool* next;
};

// Memory made by cuMemCreate. It is there until no handle and no mapping is left.
struct Physical {
  uint64_t handle;
  uint64_t bytes;
  Gpu* gpu;
  uint32_t handles;     // not released; in g_physical while there are any
  uint32_t references;  // handles and mappings
  Physical* next;
};

struct Mapping {
  uint64_t address;
  uint64_t bytes;
  Physical* memory;  // null: not this process's charge
  Mapping* next;
};

constexpr size_t kBuckets = 4096;
Physical* g_physical[kBuckets];
Mapping* g_mappings[kBuckets];
Allocation* g_allocations[kBuckets];
Allocation* g_spare = nullptr;
uint64_t g_moment = 0;
Pool* g_pools = nullptr;
std::atomic<uint64_t> g_pooling{0};  // a bit for each GPU that a pool was charged on
Lock g_lock;
Lock g_pools_locks[kGpusMax];  // see PoolsLock()

size_t BucketOf(uint64_t address) { return (address * 0x9e3779b97f4a7c15u) >> 52; }

uint64_t Plus(uint64_t a, uint64_t b) { return a + b < a ? UINT64_MAX : a + b; }
uint64_t Minus(uint64_t a, uint64_t b) { return a < b ? 0 : a - b; }

}  // namespace

Lock g_limits_lock;

Gpu* MemoryGpuOf(CUdevice device) {
  if (!StartOnce()) return nullptr;
  // Calls from within a launch, and the hook's own, are not the program's.
  Slot* slot = MySlot();
  if (slot == nullptr || slot->in_launch.load(std::memory_order_relaxed) != 0) return nullptr;
  Gpu* gpu = GpuOf(device);
  if (gpu != nullptr) Want(gpu);
  return gpu;
}

Gpu* MemoryGpu() {
  CUdevice device = 0;
  if (!Managed() || Drv<Fn::cuCtxGetDevice>(&device) != CUDA_SUCCESS) return nullptr;
  return MemoryGpuOf(device);
}

namespace {

bool ChargeNow(Gpu* gpu, uint64_t bytes) {
  Guard guard(gpu->memory.lock);
  const uint64_t total = Plus(gpu->memory.used.load(), bytes);
  if (!AskMemory(gpu, total)) return false;
  gpu->memory.used.store(total);
  return true;
}

// Gives back what the GPU's pools reserve and do not use. True when there was any pool. PoolsLock()
// is held.
bool TrimPools(Gpu* gpu) {
  constexpr int kMax = 64;
  RelaxedCapture relaxed;
  CUmemoryPool pools[kMax];
  int count = 0;
  {
    Guard guard(g_lock);
    for (Pool* p = g_pools; p != nullptr && count < kMax; p = p->next) {
      if (p->gpu == gpu && p->charged > 0) pools[count++] = p->handle;
    }
  }
  const bool graphs = TrimGraphs(gpu);
  auto* trim = RealAs<CUresult(CUmemoryPool, size_t)>(Fn::cuMemPoolTrimTo);
  if (trim == nullptr) return graphs;
  for (int i = 0; i < count; ++i) {
    trim(pools[i], 0);
    SettlePool(gpu, pools[i], 0);
  }
  return graphs || count > 0;
}

}  // namespace

bool Charge(Gpu* gpu, uint64_t bytes) {
  if (gpu == nullptr || bytes == 0 || ChargeNow(gpu, bytes)) return true;
  Guard guard(PoolsLock(gpu));
  return TrimPools(gpu) && ChargeNow(gpu, bytes);
}

void ChargeAnyway(Gpu* gpu, uint64_t bytes) {
  if (bytes == 0 || ChargeNow(gpu, bytes)) return;
  Guard guard(gpu->memory.lock);
  gpu->memory.used.store(Plus(gpu->memory.used.load(), bytes));
}

namespace {

// True at most once in `every`: the moment of the last time is in `last`.
bool IsTime(std::atomic<int64_t>& last, Duration every) {
  const int64_t now = Nanos(MonotonicNow());
  int64_t before = last.load();
  return (before == 0 || now - before >= Nanos(every)) && last.compare_exchange_strong(before, now);
}

// The program has asked for `bytes` in vain. `full`: by the pod's cap it could have them.
void SayOutOfMemory(Gpu* gpu, uint64_t bytes, bool full) {
  static std::atomic<int64_t> said_at{0};
  const uint64_t used = gpu->memory.used.load(), pod = gpu->memory.pod_used.load();
  const bool host_full = !full && gpu->memory.host_full.load();  // before the next answer
  if (IsTime(gpu->memory.told_at, kTellAgain)) {
    Guard guard(gpu->memory.lock);
    TellMemory(gpu, gpu->memory.used.load(), bytes);
  }
  if (!IsTime(said_at, kSayAgain)) return;
  const auto mib = [](uint64_t n) { return static_cast<double>(n) / (1 << 20); };
  char cap[64] = "the pod has no cap there";
  if (const uint64_t limit = gpu->memory.cap.load(); limit != 0) {
    snprintf(cap, sizeof(cap), "the pod's cap there is %.1f MiB", mib(limit));
  }
  Say("out of memory: %.1f MiB asked on GPU %d%s, %s, the pod has %.1f MiB, and %.1f MiB of that "
      "is this process's%s",
      mib(bytes), gpu->device, full ? ", which has no more room" : "", cap,
      mib(pod > used ? pod : used), mib(used),
      host_full ? "; the host memory for pods with swap is used up: raise [memory] swap_budget_mib"
                : "");
}

}  // namespace

CUresult NotCharged(Gpu* gpu, uint64_t bytes) {
  if (Refused()) return CUDA_ERROR_NOT_PERMITTED;
  SayOutOfMemory(gpu, bytes, false);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void NotAllocated(Gpu* gpu, uint64_t bytes, CUresult result) {
  if (gpu != nullptr && result == CUDA_ERROR_OUT_OF_MEMORY) SayOutOfMemory(gpu, bytes, true);
}

void CreditLocked(Gpu* gpu, uint64_t bytes) {
  if (bytes == 0) return;
  const uint64_t total = Minus(gpu->memory.used.load(), bytes);
  gpu->memory.used.store(total);
  gpu->memory.pod_used.store(Minus(gpu->memory.pod_used.load(), bytes));
  TellMemory(gpu, total);
}

void Credit(Gpu* gpu, uint64_t bytes) {
  if (gpu == nullptr || bytes == 0) return;
  Guard guard(gpu->memory.lock);
  CreditLocked(gpu, bytes);
}

namespace {

void Keep(uint64_t address, const Charged& charged, CUmemoryPool pool) {
  if (charged.gpu == nullptr) return;
  Guard guard(g_lock);
  Allocation* a = g_spare;
  if (a != nullptr) {
    g_spare = a->next;
  } else {
    a = static_cast<Allocation*>(malloc(sizeof(Allocation)));
    if (a == nullptr) return;  // stays charged: on the safe side of the cap
  }
  Allocation*& bucket = g_allocations[BucketOf(address)];
  *a = {address, charged, pool, ++g_moment, bucket};
  bucket = a;
}

// Takes the record at `at` out. g_lock is held.
void Drop(Allocation** at) {
  Allocation* a = *at;
  *at = a->next;
  a->next = g_spare;
  g_spare = a;
}

bool Attribute(CUmemoryPool pool, CUmemPool_attribute attribute, uint64_t* value) {
  cuuint64_t v = 0;
  if (Drv<Fn::cuMemPoolGetAttribute>(pool, attribute, static_cast<void*>(&v)) != CUDA_SUCCESS) {
    return false;
  }
  *value = v;
  return true;
}

// g_lock is held. Null: not known.
Pool* FindPool(CUmemoryPool pool) {
  Pool* p = g_pools;
  while (p != nullptr && p->handle != pool) p = p->next;
  return p;
}

}  // namespace

void Remember(uint64_t address, const Charged& charged) { Keep(address, charged, nullptr); }

void RememberPooled(Gpu* gpu, CUdeviceptr address, CUmemoryPool pool) {
  Keep(address, {gpu, 0, nullptr}, pool);
}

bool PoolOf(CUdeviceptr address, Gpu** gpu, CUmemoryPool* pool) {
  Guard guard(g_lock);
  for (Allocation* a = g_allocations[BucketOf(address)]; a != nullptr; a = a->next) {
    if (a->address != address) continue;
    *gpu = a->charged.gpu;
    *pool = a->pool;
    return a->pool != nullptr;
  }
  return false;
}

Gpu* GpuOfStream(CUstream stream) {
  CUcontext handle = nullptr;
  if (!StartOnce() || !ContextOfStream(stream, &handle)) return nullptr;
  const Context* context = ContextOf(handle);
  return context == nullptr ? nullptr : MemoryGpuOf(context->gpu->device);
}

void RememberPool(CUmemoryPool pool, Gpu* gpu) {
  auto* p = static_cast<Pool*>(malloc(sizeof(Pool)));
  if (p == nullptr) return;  // it is taken for one that is not charged
  Guard guard(g_lock);
  if (FindPool(pool) != nullptr) {
    free(p);
    return;
  }
  *p = {pool, gpu, 0, g_pools};
  g_pools = p;
}

Gpu* GpuOfPool(CUmemoryPool pool) {
  {
    Guard guard(g_lock);
    if (const Pool* p = FindPool(pool)) return p->gpu;
  }
  // The program did not make it: a device's own, or one in host memory.
  int devices = 0;
  Drv<Fn::cuDeviceGetCount>(&devices);
  for (CUdevice d = 0; d < devices; ++d) {
    CUmemoryPool its = nullptr;
    if (Drv<Fn::cuDeviceGetDefaultMemPool>(&its, d) != CUDA_SUCCESS || its != pool) continue;
    Gpu* gpu = MemoryGpuOf(d);
    if (gpu == nullptr) return nullptr;
    // Not while DestroyPool() has it out of the list.
    Guard guard(PoolsLock(gpu));
    bool known;
    {
      Guard list(g_lock);
      known = FindPool(pool) != nullptr;
    }
    if (!known) RememberPool(pool, gpu);
    return gpu;
  }
  return nullptr;
}

Lock& PoolsLock(Gpu* gpu) { return g_pools_locks[gpu->index]; }

bool ChargePool(Gpu* gpu, CUmemoryPool pool, uint64_t bytes, uint64_t* charged) {
  const auto need = [&] {
    uint64_t reserved = 0, used = 0;
    if (!Attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) ||
        !Attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used)) {
      return bytes;
    }
    return Minus(bytes, Minus(reserved, used));
  };
  *charged = need();
  if (*charged == 0 || ChargeNow(gpu, *charged)) return true;
  TrimPools(gpu);
  *charged = need();  // this pool's spare may be gone now
  return *charged == 0 || ChargeNow(gpu, *charged);
}

void SettlePool(Gpu* gpu, CUmemoryPool pool, uint64_t charged) {
  uint64_t credit = 0;
  uint64_t more = 0;
  {
    Guard guard(g_lock);
    Pool* p = FindPool(pool);
    if (p == nullptr) return;
    const uint64_t known = Plus(p->charged, charged);
    uint64_t reserved = known;
    Attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
    credit = Minus(known, reserved);
    more = Minus(reserved, known);
    p->charged = reserved;
  }
  const uint64_t bit = uint64_t{1} << gpu->index;
  if ((g_pooling.load() & bit) == 0) g_pooling.fetch_or(bit);
  Credit(gpu, credit);
  ChargeAnyway(gpu, more);
}

namespace {

// Credits what the GPU's pools have given back. PoolsLock() is held.
void CreditGivenBack(Gpu* gpu) {
  if (!gpu->memory.lock.TryAcquire()) return;
  uint64_t credit = 0;
  {
    Guard guard(g_lock);
    for (Pool* p = g_pools; p != nullptr; p = p->next) {
      uint64_t reserved = 0;
      if (p->gpu != gpu || p->charged == 0 ||
          !Attribute(p->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) ||
          reserved >= p->charged) {
        continue;
      }
      credit += p->charged - reserved;
      p->charged = reserved;
    }
  }
  CreditLocked(gpu, credit);
  gpu->memory.lock.Release();
}

}  // namespace

void SettlePools(Gpu* gpu) {
  if (gpu == nullptr || !PoolsLock(gpu).TryAcquire()) return;
  if (g_allocating_graphs.load() > 0 && gpu->memory.lock.TryAcquire()) {
    gpu->memory.lock.Release();
    SettleGraphs(gpu);
  }
  CreditGivenBack(gpu);
  PoolsLock(gpu).Release();
}

void PoolsMayHaveShrunk() {
  const uint64_t pooling = g_pooling.load(std::memory_order_relaxed);
  for (int i = 0; pooling != 0 && i < GpuCount(); ++i) {
    Gpu* gpu = GpuAt(i);
    if ((pooling >> i & 1) == 0 || !PoolsLock(gpu).TryAcquire()) continue;
    CreditGivenBack(gpu);
    PoolsLock(gpu).Release();
  }
}

namespace {

// Its memory is freed already, or goes on without it. PoolsLock() is held.
void PoolGone(Pool* p, uint64_t used) {
  uint64_t credit = 0;
  {
    Guard guard(g_lock);
    const auto is_its = [&](const Allocation* a) {
      return a->pool == p->handle && a->charged.gpu == p->gpu;
    };
    uint64_t n = 0;
    for (Allocation* bucket : g_allocations) {
      for (Allocation* a = bucket; a != nullptr; a = a->next) n += is_its(a);
    }
    // Nobody can ask the pool any more: what is left in it is credited by equal shares.
    const uint64_t share = n == 0 ? 0 : (used < p->charged ? used : p->charged) / n;
    for (Allocation* bucket : g_allocations) {
      for (Allocation* a = bucket; a != nullptr; a = a->next) {
        if (!is_its(a)) continue;
        a->pool = nullptr;
        a->charged.bytes = share;
      }
    }
    credit = Minus(p->charged, share * n);
  }
  Credit(p->gpu, credit);
}

}  // namespace

CUresult DestroyPool(CUmemoryPool pool, CUresult (*real)(CUmemoryPool)) {
  Gpu* gpu = nullptr;
  {
    Guard guard(g_lock);
    if (const Pool* p = FindPool(pool)) gpu = p->gpu;
  }
  Lock unused;
  Guard pools(gpu == nullptr ? unused : PoolsLock(gpu));
  Pool* p = nullptr;
  {
    // Before the driver may give the handle out again.
    Guard guard(g_lock);
    Pool** at = &g_pools;
    while (*at != nullptr && (*at)->handle != pool) at = &(*at)->next;
    p = *at;
    if (p != nullptr) *at = p->next;
  }
  uint64_t used = 0;
  if (p != nullptr) Attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
  const CUresult result = real(pool);
  if (p == nullptr) return result;
  if (result == CUDA_SUCCESS) {
    PoolGone(p, used);
    free(p);
  } else {
    Guard guard(g_lock);
    p->next = g_pools;
    g_pools = p;
  }
  return result;
}

bool Forget(uint64_t address, Charged* charged) {
  Guard guard(g_lock);
  // Newest first: an address may be in use again before its old context is known to be gone.
  for (Allocation** at = &g_allocations[BucketOf(address)]; *at != nullptr; at = &(*at)->next) {
    if ((*at)->address != address) continue;
    *charged = (*at)->charged;
    Drop(at);
    return true;
  }
  return false;
}

uint64_t MemoryMoment() {
  Guard guard(g_lock);
  return g_moment;
}

void CreditContext(CUcontext context, uint64_t moment) {
  Charged all = {nullptr, 0, context};
  {
    Guard guard(g_lock);
    for (Allocation*& bucket : g_allocations) {
      for (Allocation** at = &bucket; *at != nullptr;) {
        const Allocation& a = **at;
        if (a.charged.context != context || a.moment > moment) {
          at = &(*at)->next;
          continue;
        }
        all.gpu = a.charged.gpu;
        all.bytes += a.charged.bytes;
        Drop(at);
      }
    }
  }
  Credit(all.gpu, all.bytes);
}

namespace {

void Link(Physical* p) {
  Physical*& bucket = g_physical[BucketOf(p->handle)];
  p->next = bucket;
  bucket = p;
}

void Link(Mapping* m) {
  Mapping*& bucket = g_mappings[BucketOf(m->address)];
  m->next = bucket;
  bucket = m;
}

void Unreference(Physical* p) {
  Gpu* gpu = nullptr;
  uint64_t bytes = 0;
  {
    Guard guard(g_lock);
    if (--p->references > 0) return;
    gpu = p->gpu;
    bytes = p->bytes;
    free(p);
  }
  Credit(gpu, bytes);
}

}  // namespace

void RememberHandle(Gpu* gpu, uint64_t handle, uint64_t bytes) {
  if (gpu == nullptr) return;
  auto* p = static_cast<Physical*>(malloc(sizeof(Physical)));
  if (p == nullptr) return;  // stays charged
  *p = {handle, bytes, gpu, 1, 1, nullptr};
  Guard guard(g_lock);
  Link(p);
}

CUresult ReleaseHandle(uint64_t handle, CUresult (*real)(CUmemGenericAllocationHandle)) {
  Physical* p = nullptr;
  {
    // Before the driver may give the handle out again.
    Guard guard(g_lock);
    Physical** at = &g_physical[BucketOf(handle)];
    while (*at != nullptr && (*at)->handle != handle) at = &(*at)->next;
    p = *at;
    if (p != nullptr && --p->handles == 0) *at = p->next;
  }
  const CUresult result = real(handle);
  if (p == nullptr) return result;
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) {
    Unreference(p);
  } else {
    Guard guard(g_lock);
    if (p->handles++ == 0) Link(p);
  }
  return result;
}

void RememberMapping(CUdeviceptr address, uint64_t bytes, uint64_t handle) {
  auto* m = static_cast<Mapping*>(malloc(sizeof(Mapping)));
  if (m == nullptr) return;
  Guard guard(g_lock);
  Physical* p = g_physical[BucketOf(handle)];
  while (p != nullptr && p->handle != handle) p = p->next;
  if (p != nullptr) ++p->references;
  *m = {address, bytes, p, nullptr};
  Link(m);
}

void RetainHandle(CUdeviceptr address, uint64_t handle) {
  Guard guard(g_lock);
  for (Mapping* bucket : g_mappings) {
    for (Mapping* m = bucket; m != nullptr; m = m->next) {
      if (m->memory == nullptr || address < m->address || address - m->address >= m->bytes)
        continue;
      Physical* p = m->memory;
      ++p->references;
      if (p->handles++ == 0) {
        p->handle = handle;
        Link(p);
      }
      return;
    }
  }
}

CUresult Unmap(CUdeviceptr address, size_t bytes, CUresult (*real)(CUdeviceptr, size_t)) {
  // The range is made up of whole mappings. Taken out before another thread may map there.
  Mapping* taken = nullptr;
  {
    Guard guard(g_lock);
    for (uint64_t a = address; a - address < bytes;) {
      Mapping** at = &g_mappings[BucketOf(a)];
      while (*at != nullptr && (*at)->address != a) at = &(*at)->next;
      Mapping* m = *at;
      if (m == nullptr || m->bytes == 0) break;
      *at = m->next;
      m->next = taken;
      taken = m;
      a += m->bytes;
    }
  }
  const CUresult result = real(address, bytes);
  const bool gone = result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED;
  while (taken != nullptr) {
    Mapping* m = taken;
    taken = m->next;
    if (!gone) {
      Guard guard(g_lock);
      Link(m);
      continue;
    }
    if (m->memory != nullptr) Unreference(m->memory);
    free(m);
  }
  return result;
}

void SeenByPod(Gpu* gpu, size_t* free, size_t* total) {
  if (gpu == nullptr || !AwaitCap(gpu)) return;
  const uint64_t cap = gpu->memory.cap.load();
  if (cap == 0) return;
  if (free != nullptr) AskPodUsed(gpu);
  const uint64_t used = gpu->memory.pod_used.load() > gpu->memory.used.load()
                            ? gpu->memory.pod_used.load()
                            : gpu->memory.used.load();
  if (total != nullptr && *total > cap) *total = cap;
  // What others have on the GPU moves away for a pod with swap.
  if (free != nullptr && (*free > Minus(cap, used) || Swaps())) *free = Minus(cap, used);
}

void ForgetMemory() {
  g_lock.Reset();
  g_limits_lock.Reset();
  for (Lock& lock : g_pools_locks) lock.Reset();
  for (Allocation*& bucket : g_allocations) bucket = nullptr;
  for (Physical*& bucket : g_physical) bucket = nullptr;
  for (Mapping*& bucket : g_mappings) bucket = nullptr;
  g_spare = nullptr;
  g_pools = nullptr;
  g_pooling.store(0);
  ForgetGraphs();
}

}  // namespace baton::hook
