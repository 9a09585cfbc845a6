// Memory. A device address is a private host address of this process, so copies really move
// bytes; the capacity is accounted in the device file, for all processes.
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "sim/driver.h"

namespace baton::sim {
namespace {

constexpr size_t kPage = 4096;
// What a virtual mapping is a multiple of; cuMemGetAllocationGranularity tells it.
constexpr size_t kGranule = 2 << 20;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void* Map(size_t bytes, bool low) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (low ? MAP_32BIT : 0), -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

bool Charge(Dev* dev, size_t bytes) {
  Device::Session session(dev->device);
  if (session->ChargeMemory(dev->device->process(), bytes)) return true;
  // What a dead process held may be free by now.
  session.CheckProcesses();
  return session->ChargeMemory(dev->device->process(), bytes);
}

void Uncharge(Dev* dev, size_t bytes) {
  if (bytes == 0) return;
  Device::Session session(dev->device);
  session->ReleaseMemory(dev->device->process(), bytes);
}

// Physical memory of the virtual-memory calls: pieces of one sparse file, so that it can be
// mapped at any address, and twice.
struct Physical {
  Dev* dev = nullptr;
  size_t bytes = 0;
  off_t offset = 0;
  int references = 1;  // its handle and its mappings
  bool released = false;
};

struct Mapping {
  size_t bytes;
  Physical* physical;
};

struct Virtual {
  int file = -1;
  off_t end = 0;
  std::map<uintptr_t, size_t> reservations;
  std::map<uintptr_t, Mapping> mappings;
};

Virtual& TheVirtual() {
  static Virtual& v = *new Virtual;
  return v;
}

void Unreference(Physical* physical) {
  if (--physical->references > 0) return;
  fallocate(TheVirtual().file, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, physical->offset,
            static_cast<off_t>(physical->bytes));
  Uncharge(physical->dev, physical->bytes);
  TheDriver().live.erase(physical);
  delete physical;
}

CUresult Allocate(CUdeviceptr* out, size_t bytes, Allocation::Kind kind, bool low = false) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = CheckUnsafe()) return r;
  return AllocateDevice(lock, ctx, bytes, kind, out, low);
}

CUresult Free(CUdeviceptr pointer) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  if (CUresult r = CheckUnsafe()) return r;
  if (pointer == 0) return CUDA_SUCCESS;
  return FreeDevice(lock, pointer);
}

CUresult AllocateHost(void** out, size_t bytes, unsigned int flags) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = CheckUnsafe()) return r;
  void* at = Map(RoundUp(bytes, kPage), false);
  if (at == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  Allocation a;
  a.bytes = bytes;
  a.kind = Allocation::kHost;
  a.dev = ctx->dev;
  a.ctx = ctx;
  a.id = TheDriver().next_id++;
  a.flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
  TheDriver().memory[reinterpret_cast<uintptr_t>(at)] = a;
  *out = at;
  return CUDA_SUCCESS;
}

CUresult AddressRange(CUdeviceptr* base, size_t* size, CUdeviceptr pointer) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  uintptr_t start;
  const Allocation* a = FindAllocation(pointer, 1, &start);
  if (a == nullptr || a->kind == Allocation::kHost || a->kind == Allocation::kRegistered) {
    return CUDA_ERROR_NOT_FOUND;
  }
  if (base != nullptr) *base = start;
  if (size != nullptr) *size = a->bytes;
  return CUDA_SUCCESS;
}

CUresult PointerAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr pointer) {
  uintptr_t base = 0;
  const Allocation* a = FindAllocation(pointer, 1, &base);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (a == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool host = a->kind == Allocation::kHost || a->kind == Allocation::kRegistered;
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      if (a->kind == Allocation::kPool || a->kind == Allocation::kMapped) {
        *static_cast<CUcontext*>(out) = nullptr;
      } else {
        *static_cast<CUcontext*>(out) = reinterpret_cast<CUcontext>(a->ctx);
      }
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned int*>(out) = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(out) = pointer;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!host && a->kind != Allocation::kManaged) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<void**>(out) = AsPointer(pointer);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      *static_cast<unsigned int*>(out) = 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(out) = a->id;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned int*>(out) = a->kind == Allocation::kManaged;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(out) = a->dev->ordinal;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(out) = base;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(out) = a->bytes;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<unsigned int*>(out) = 1;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      *static_cast<CUmemoryPool*>(out) = reinterpret_cast<CUmemoryPool>(a->pool);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

Allocation* FindAllocation(uintptr_t pointer, size_t bytes, uintptr_t* base) {
  auto& memory = TheDriver().memory;
  auto it = memory.upper_bound(pointer);
  if (it == memory.begin()) return nullptr;
  --it;
  // A range may run on through adjacent mappings of physical memory.
  const uintptr_t end = pointer + bytes;
  uintptr_t reached = it->first + it->second.bytes;
  if (pointer >= reached) return nullptr;
  for (auto next = std::next(it); reached < end; ++next) {
    if (it->second.kind != Allocation::kMapped || next == memory.end() || next->first != reached ||
        next->second.kind != Allocation::kMapped || next->second.flags == 0) {
      return nullptr;
    }
    reached += next->second.bytes;
  }
  if (it->second.kind == Allocation::kMapped && it->second.flags == 0) return nullptr;
  if (base != nullptr) *base = it->first;
  return &it->second;
}

bool IsDeviceMemory(uintptr_t pointer) {
  const Allocation* a = FindAllocation(pointer, 1);
  return a != nullptr && a->kind != Allocation::kHost && a->kind != Allocation::kRegistered &&
         a->kind != Allocation::kManaged;
}

CUresult AllocateDevice(Lock&, Ctx* ctx, size_t bytes, Allocation::Kind kind, CUdeviceptr* out,
                        bool low) {
  const size_t size = RoundUp(bytes, kPage);
  if (size < bytes || !Charge(ctx->dev, size)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* at = Map(size, low);
  if (at == nullptr) {
    Uncharge(ctx->dev, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Allocation a;
  a.bytes = bytes;
  a.charged = size;
  a.kind = kind;
  a.dev = ctx->dev;
  a.ctx = ctx;
  a.id = TheDriver().next_id++;
  TheDriver().memory[reinterpret_cast<uintptr_t>(at)] = a;
  *out = reinterpret_cast<CUdeviceptr>(at);
  return CUDA_SUCCESS;
}

// Like a real driver's, it waits for the context's work, which may still use the memory.
CUresult FreeDevice(Lock& lock, CUdeviceptr pointer) {
  auto& memory = TheDriver().memory;
  auto it = memory.find(pointer);
  if (it == memory.end() ||
      (it->second.kind != Allocation::kDevice && it->second.kind != Allocation::kManaged &&
       it->second.kind != Allocation::kPool)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (CUresult r = WaitForContext(lock, it->second.ctx)) return r;
  it = memory.find(pointer);
  if (it == memory.end()) return CUDA_ERROR_INVALID_VALUE;
  const Allocation a = it->second;
  memory.erase(it);
  munmap(AsPointer(pointer), RoundUp(a.bytes, kPage));
  if (a.pool != nullptr) {
    a.pool->used -= a.charged;
    a.pool->reserved -= a.charged;
  }
  Uncharge(a.dev, a.charged);
  return CUDA_SUCCESS;
}

void ReleaseContextMemory(Ctx* ctx) {
  auto& memory = TheDriver().memory;
  for (auto it = memory.begin(); it != memory.end();) {
    const Allocation& a = it->second;
    const bool mine =
        a.ctx == ctx && (a.kind == Allocation::kDevice || a.kind == Allocation::kManaged ||
                         a.kind == Allocation::kHost);
    if (mine) {
      munmap(reinterpret_cast<void*>(it->first), RoundUp(a.bytes, kPage));
      Uncharge(a.dev, a.charged);
    }
    it = mine ? memory.erase(it) : std::next(it);
  }
}

Work MoveWork(Dev* dev, OpKind engine, size_t bytes, CUgraphNodeType type,
              std::function<void()> effect) {
  Work work;
  work.kind = engine;
  work.node_type = type;
  work.name = type == CU_GRAPH_NODE_TYPE_MEMSET ? "[memset]" : "[memcpy]";
  work.effect = std::move(effect);
  const DeviceFile& file = dev->device->file();
  const double rate = static_cast<double>(engine == OpKind::kKernel ? file.device_bytes_per_s
                                                                    : file.host_bytes_per_s);
  work.duration = 1000 + static_cast<int64_t>(static_cast<double>(bytes) / rate * 1e9);
  return work;
}

OpKind CopyEngineFor(const void* to, const void* from) {
  const bool to_device = IsDeviceMemory(reinterpret_cast<uintptr_t>(to));
  const bool from_device = IsDeviceMemory(reinterpret_cast<uintptr_t>(from));
  if (to_device && from_device) return OpKind::kKernel;
  return from_device ? OpKind::kCopyOut : OpKind::kCopyIn;
}

Work CopyWork(Dev* dev, void* to, const void* from, size_t bytes) {
  return MoveWork(dev, CopyEngineFor(to, from), bytes, CU_GRAPH_NODE_TYPE_MEMCPY,
                  [to, from, bytes] { memmove(to, from, bytes); });
}

// ---- Pools.

void TrimPool(Pool* pool, uint64_t keep) {
  while (pool->reserved > keep && !pool->free_blocks.empty()) {
    auto it = std::prev(pool->free_blocks.end());
    munmap(AsPointer(it->second), it->first);
    pool->reserved -= it->first;
    Uncharge(pool->dev, it->first);
    pool->free_blocks.erase(it);
  }
}

void TrimPools(Dev* dev) {
  for (Pool* pool : dev->pools) TrimPool(pool, std::max(pool->threshold, pool->used));
}

CUresult AllocateFromPool(Lock& lock, Stream* stream, Pool* pool, size_t bytes, CUdeviceptr* out) {
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!IsLive(pool)) return CUDA_ERROR_INVALID_VALUE;
  const size_t size = RoundUp(bytes, kPage);
  if (size < bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr at = 0;
  Refresh(lock, pool->dev);
  auto it = pool->free_blocks.find(size);
  if (it != pool->free_blocks.end()) {
    at = it->second;
    pool->free_blocks.erase(it);
  } else {
    if (!Charge(pool->dev, size)) {
      TrimPool(pool, pool->used);
      if (!Charge(pool->dev, size)) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    void* mapped = Map(size, false);
    if (mapped == nullptr) {
      Uncharge(pool->dev, size);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    at = reinterpret_cast<CUdeviceptr>(mapped);
    pool->reserved += size;
    pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
  }
  pool->used += size;
  pool->used_high = std::max(pool->used_high, pool->used);
  Allocation a;
  a.bytes = bytes;
  a.charged = size;
  a.kind = Allocation::kPool;
  a.dev = pool->dev;
  a.ctx = stream->ctx;
  a.pool = pool;
  a.id = TheDriver().next_id++;
  TheDriver().memory[at] = a;
  *out = at;
  if (stream->capture != nullptr) {
    Work work;
    work.node_type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    return AddCaptureNode(stream, work);
  }
  return CUDA_SUCCESS;
}

CUresult FreeToPool(Lock& lock, Stream* stream, CUdeviceptr pointer) {
  if (pointer == 0) return CUDA_SUCCESS;
  auto& memory = TheDriver().memory;
  auto it = memory.find(pointer);
  if (it == memory.end()) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture != nullptr) {
    Work work;
    work.node_type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    return AddCaptureNode(stream, work);
  }
  if (it->second.kind == Allocation::kDevice || it->second.kind == Allocation::kManaged) {
    return FreeDevice(lock, pointer);
  }
  if (it->second.kind != Allocation::kPool) return CUDA_ERROR_INVALID_VALUE;
  // The address is the pool's again once the stream has come this far.
  Work work;
  const uint64_t id = it->second.id;
  work.effect = [pointer, id] {
    Lock effect_lock(TheDriver().mutex);
    auto& all = TheDriver().memory;
    auto freed = all.find(pointer);
    if (freed == all.end() || freed->second.id != id) return;
    Pool* pool = freed->second.pool;
    pool->used -= freed->second.charged;
    pool->free_blocks.emplace(freed->second.charged, pointer);
    all.erase(freed);
  };
  return Enqueue(lock, stream, work);
}

SIM_API(cuDeviceGetDefaultMemPool, (CUmemoryPool * out, CUdevice device)) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUmemoryPool>(&dev->default_pool);
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetMemPool, (CUmemoryPool * out, CUdevice device)) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUmemoryPool>(dev->pool);
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool handle)) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  auto* pool = reinterpret_cast<Pool*>(handle);
  if (!IsLive(pool) || pool->dev != dev) return CUDA_ERROR_INVALID_VALUE;
  dev->pool = pool;
  return CUDA_SUCCESS;
}

SIM_API(cuMemPoolCreate, (CUmemoryPool * out, const CUmemPoolProps* properties)) {
  Lock lock(TheDriver().mutex);
  if (out == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  Dev* dev;
  if (CUresult r = GetDev(properties->location.id, &dev)) return r;
  auto* pool = new Pool;
  pool->dev = dev;
  dev->pools.push_back(pool);
  TheDriver().live.insert(pool);
  *out = reinterpret_cast<CUmemoryPool>(pool);
  return CUDA_SUCCESS;
}

SIM_API(cuMemPoolDestroy, (CUmemoryPool handle)) {
  Lock lock(TheDriver().mutex);
  auto* pool = reinterpret_cast<Pool*>(handle);
  if (!IsLive(pool) || pool == &pool->dev->default_pool) return CUDA_ERROR_INVALID_VALUE;
  if (pool->dev->pool == pool) pool->dev->pool = &pool->dev->default_pool;
  TrimPool(pool, pool->used);
  // What is still allocated keeps the object; it is only no longer a valid handle.
  TheDriver().live.erase(pool);
  return CUDA_SUCCESS;
}

SIM_API(cuMemPoolTrimTo, (CUmemoryPool handle, size_t keep)) {
  Lock lock(TheDriver().mutex);
  auto* pool = reinterpret_cast<Pool*>(handle);
  if (!IsLive(pool)) return CUDA_ERROR_INVALID_VALUE;
  Refresh(lock, pool->dev);
  TrimPool(pool, keep);
  return CUDA_SUCCESS;
}

SIM_API(cuMemPoolGetAttribute, (CUmemoryPool handle, CUmemPool_attribute attribute, void* value)) {
  Lock lock(TheDriver().mutex);
  auto* pool = reinterpret_cast<Pool*>(handle);
  if (!IsLive(pool) || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Refresh(lock, pool->dev);
  auto* wide = static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: {
      auto it = pool->flags.find(attribute);
      *static_cast<int*>(value) = it == pool->flags.end() ? 1 : it->second;
      return CUDA_SUCCESS;
    }
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *wide = pool->threshold;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *wide = pool->reserved;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *wide = pool->reserved_high;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *wide = pool->used;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *wide = pool->used_high;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

SIM_API(cuMemPoolSetAttribute, (CUmemoryPool handle, CUmemPool_attribute attribute, void* value)) {
  Lock lock(TheDriver().mutex);
  auto* pool = reinterpret_cast<Pool*>(handle);
  if (!IsLive(pool) || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      pool->flags[attribute] = *static_cast<int*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool->threshold = *static_cast<cuuint64_t*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      pool->reserved_high = pool->reserved;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      pool->used_high = pool->used;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

SIM_API(cuMemPoolSetAccess, (CUmemoryPool handle, const CUmemAccessDesc*, size_t)) {
  Lock lock(TheDriver().mutex);
  return IsLive(reinterpret_cast<Pool*>(handle)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuMemPoolGetAccess, (CUmemAccess_flags * flags, CUmemoryPool handle, CUmemLocation*)) {
  Lock lock(TheDriver().mutex);
  if (!IsLive(reinterpret_cast<Pool*>(handle)) || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}

// ---- Plain memory. The first generation of these calls has 32-bit addresses.

SIM_API(cuMemAlloc_v2, (CUdeviceptr * out, size_t bytes)) {
  return Allocate(out, bytes, Allocation::kDevice);
}
SIM_API(cuMemAlloc, (unsigned int* out, unsigned int bytes)) {
  CUdeviceptr at = 0;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult r = Allocate(&at, bytes, Allocation::kDevice, true);
  *out = static_cast<unsigned int>(at);
  return r;
}

SIM_API(cuMemAllocPitch_v2,
        (CUdeviceptr * out, size_t* pitch, size_t width, size_t height, unsigned int element)) {
  if (pitch == nullptr || width == 0 || height == 0 ||
      (element != 4 && element != 8 && element != 16)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const size_t row = RoundUp(width, 512);
  const CUresult r = Allocate(out, row * height, Allocation::kDevice);
  if (r == CUDA_SUCCESS) *pitch = row;
  return r;
}

SIM_API(cuMemAllocManaged, (CUdeviceptr * out, size_t bytes, unsigned int flags)) {
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  return Allocate(out, bytes, Allocation::kManaged);
}

SIM_API(cuMemFree_v2, (CUdeviceptr pointer)) { return Free(pointer); }
SIM_API(cuMemFree, (unsigned int pointer)) { return Free(pointer); }

SIM_API(cuMemGetInfo_v2, (size_t * free, size_t* total)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device::Session session(ctx->dev->device);
  session.CheckProcesses();
  const DeviceFile& file = ctx->dev->device->file();
  *total = file.memory_bytes;
  *free = file.memory_bytes - file.memory_used;
  return CUDA_SUCCESS;
}
SIM_API(cuMemGetInfo, (unsigned int* free, unsigned int* total)) {
  size_t f = 0, t = 0;
  const CUresult r = Api_cuMemGetInfo_v2(&f, &t);
  *free = static_cast<unsigned int>(std::min<size_t>(f, UINT32_MAX));
  *total = static_cast<unsigned int>(std::min<size_t>(t, UINT32_MAX));
  return r;
}

SIM_API(cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t* size, CUdeviceptr pointer)) {
  return AddressRange(base, size, pointer);
}

SIM_API(cuMemAllocHost_v2, (void** out, size_t bytes)) { return AllocateHost(out, bytes, 0); }
SIM_API(cuMemAllocHost, (void** out, unsigned int bytes)) { return AllocateHost(out, bytes, 0); }
SIM_API(cuMemHostAlloc, (void** out, size_t bytes, unsigned int flags)) {
  return AllocateHost(out, bytes, flags);
}

SIM_API(cuMemFreeHost, (void* pointer)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  auto& memory = TheDriver().memory;
  auto it = memory.find(reinterpret_cast<uintptr_t>(pointer));
  if (it == memory.end() || it->second.kind != Allocation::kHost) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = WaitForContext(lock, it->second.ctx)) return r;
  it = memory.find(reinterpret_cast<uintptr_t>(pointer));
  if (it == memory.end()) return CUDA_ERROR_INVALID_VALUE;
  munmap(pointer, RoundUp(it->second.bytes, kPage));
  memory.erase(it);
  return CUDA_SUCCESS;
}

static CUresult RegisterHost(void* pointer, size_t bytes, unsigned int flags) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (FindAllocation(reinterpret_cast<uintptr_t>(pointer), 1) != nullptr) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  Allocation a;
  a.bytes = bytes;
  a.kind = Allocation::kRegistered;
  a.dev = ctx->dev;
  a.ctx = ctx;
  a.id = TheDriver().next_id++;
  a.flags = flags;
  TheDriver().memory[reinterpret_cast<uintptr_t>(pointer)] = a;
  return CUDA_SUCCESS;
}
SIM_API(cuMemHostRegister_v2, (void* p, size_t bytes, unsigned int flags)) {
  return RegisterHost(p, bytes, flags);
}
SIM_API(cuMemHostRegister, (void* p, size_t bytes, unsigned int flags)) {
  return RegisterHost(p, bytes, flags);
}

SIM_API(cuMemHostUnregister, (void* pointer)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  auto& memory = TheDriver().memory;
  auto it = memory.find(reinterpret_cast<uintptr_t>(pointer));
  if (it == memory.end() || it->second.kind != Allocation::kRegistered) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  WaitForContext(lock, it->second.ctx);
  memory.erase(reinterpret_cast<uintptr_t>(pointer));
  return CUDA_SUCCESS;
}

SIM_API(cuMemHostGetDevicePointer_v2, (CUdeviceptr * out, void* pointer, unsigned int flags)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  const Allocation* a = FindAllocation(reinterpret_cast<uintptr_t>(pointer), 1);
  if (out == nullptr || flags != 0 || a == nullptr ||
      (a->kind != Allocation::kHost && a->kind != Allocation::kRegistered)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = reinterpret_cast<CUdeviceptr>(pointer);
  return CUDA_SUCCESS;
}

SIM_API(cuMemHostGetFlags, (unsigned int* flags, void* pointer)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  const Allocation* a = FindAllocation(reinterpret_cast<uintptr_t>(pointer), 1);
  if (flags == nullptr || a == nullptr || a->kind != Allocation::kHost) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *flags = a->flags;
  return CUDA_SUCCESS;
}

SIM_API(cuPointerGetAttribute, (void* out, CUpointer_attribute attribute, CUdeviceptr pointer)) {
  Lock lock(TheDriver().mutex);
  if (CUresult r = CheckInitialized()) return r;
  return PointerAttribute(out, attribute, pointer);
}

// Unlike the single call, it answers for memory that CUDA does not know, with zeros.
SIM_API(cuPointerGetAttributes,
        (unsigned int count, CUpointer_attribute* attributes, void** out, CUdeviceptr pointer)) {
  Lock lock(TheDriver().mutex);
  if (CUresult r = CheckInitialized()) return r;
  if (attributes == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count; ++i) {
    if (PointerAttribute(out[i], attributes[i], pointer) == CUDA_SUCCESS) continue;
    switch (static_cast<int>(attributes[i])) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      case CU_POINTER_ATTRIBUTE_MAPPED:
        *static_cast<unsigned int*>(out[i]) = 0;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(out[i]) = -2;
        break;
      default:
        *static_cast<void**>(out[i]) = nullptr;
    }
  }
  return CUDA_SUCCESS;
}

SIM_API(cuPointerSetAttribute, (const void*, CUpointer_attribute, CUdeviceptr pointer)) {
  Lock lock(TheDriver().mutex);
  return FindAllocation(pointer, 1) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult Advise(CUdeviceptr pointer, size_t bytes) {
  Lock lock(TheDriver().mutex);
  const Allocation* a = FindAllocation(pointer, bytes);
  return a != nullptr && a->kind == Allocation::kManaged ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SIM_API(cuMemAdvise, (CUdeviceptr pointer, size_t bytes, CUmem_advise, CUdevice)) {
  return Advise(pointer, bytes);
}
SIM_API(cuMemAdvise_v2, (CUdeviceptr pointer, size_t bytes, CUmem_advise, CUmemLocation)) {
  return Advise(pointer, bytes);
}

// ---- Virtual memory.

SIM_API(cuMemGetAllocationGranularity,
        (size_t * granularity, const CUmemAllocationProp* prop, CUmemAllocationGranularity_flags)) {
  if (granularity == nullptr || prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *granularity = kGranule;
  return CUDA_SUCCESS;
}

SIM_API(cuMemAddressReserve, (CUdeviceptr * out, size_t bytes, size_t alignment, CUdeviceptr hint,
                              unsigned long long flags)) {
  Lock lock(TheDriver().mutex);
  if (CUresult r = CheckInitialized()) return r;
  if (out == nullptr || bytes == 0 || bytes % kGranule != 0 || flags != 0 ||
      (alignment & (alignment - 1)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const size_t unit = std::max(alignment, kGranule);
  void* at = mmap(AsPointer(hint), bytes + unit, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto raw = reinterpret_cast<uintptr_t>(at);
  const uintptr_t base = RoundUp(raw, unit);
  if (base != raw) munmap(at, base - raw);
  if (base + bytes != raw + bytes + unit) {
    munmap(reinterpret_cast<void*>(base + bytes), raw + unit - base);
  }
  TheVirtual().reservations[base] = bytes;
  *out = base;
  return CUDA_SUCCESS;
}

SIM_API(cuMemAddressFree, (CUdeviceptr pointer, size_t bytes)) {
  Lock lock(TheDriver().mutex);
  Virtual& v = TheVirtual();
  auto it = v.reservations.find(pointer);
  if (it == v.reservations.end() || it->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  auto mapped = v.mappings.lower_bound(pointer);
  if (mapped != v.mappings.end() && mapped->first < pointer + bytes)
    return CUDA_ERROR_INVALID_VALUE;
  munmap(AsPointer(pointer), bytes);
  v.reservations.erase(it);
  return CUDA_SUCCESS;
}

SIM_API(cuMemCreate, (CUmemGenericAllocationHandle * out, size_t bytes,
                      const CUmemAllocationProp* prop, unsigned long long flags)) {
  Lock lock(TheDriver().mutex);
  if (CUresult r = CheckInitialized()) return r;
  if (out == nullptr || prop == nullptr || flags != 0 || bytes == 0 || bytes % kGranule != 0 ||
      prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  Dev* dev;
  if (CUresult r = GetDev(prop->location.id, &dev)) return r;
  if (CUresult r = CheckUnsafe()) return r;
  if (dev->device->process() < 0 && dev->device->Attach() < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Virtual& v = TheVirtual();
  if (v.file < 0) {
    v.file = static_cast<int>(syscall(SYS_memfd_create, "baton-sim", 1 /* MFD_CLOEXEC */));
    if (v.file < 0 || ftruncate(v.file, off_t{1} << 45) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
  }
  if (!Charge(dev, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* physical = new Physical;
  physical->dev = dev;
  physical->bytes = bytes;
  physical->offset = v.end;
  v.end += static_cast<off_t>(bytes);
  TheDriver().live.insert(physical);
  *out = reinterpret_cast<CUmemGenericAllocationHandle>(physical);
  return CUDA_SUCCESS;
}

SIM_API(cuMemRelease, (CUmemGenericAllocationHandle handle)) {
  Lock lock(TheDriver().mutex);
  auto* physical = reinterpret_cast<Physical*>(handle);
  if (!IsLive(physical) || physical->released) return CUDA_ERROR_INVALID_VALUE;
  physical->released = true;
  Unreference(physical);
  return CUDA_SUCCESS;
}

SIM_API(cuMemMap, (CUdeviceptr pointer, size_t bytes, size_t offset,
                   CUmemGenericAllocationHandle handle, unsigned long long flags)) {
  Lock lock(TheDriver().mutex);
  auto* physical = reinterpret_cast<Physical*>(handle);
  Virtual& v = TheVirtual();
  if (!IsLive(physical) || flags != 0 || offset != 0 || bytes != physical->bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto it = v.reservations.upper_bound(pointer);
  if (it == v.reservations.begin() || pointer % kGranule != 0) return CUDA_ERROR_INVALID_VALUE;
  --it;
  if (pointer + bytes > it->first + it->second) return CUDA_ERROR_INVALID_VALUE;
  auto after = v.mappings.lower_bound(pointer + bytes);
  if (after != v.mappings.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second.bytes > pointer) return CUDA_ERROR_INVALID_VALUE;
  }
  if (mmap(AsPointer(pointer), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, v.file,
           physical->offset) == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++physical->references;
  v.mappings[pointer] = {bytes, physical};
  Allocation a;
  a.bytes = bytes;
  a.kind = Allocation::kMapped;
  a.dev = physical->dev;
  a.id = TheDriver().next_id++;
  TheDriver().memory[pointer] = a;
  return CUDA_SUCCESS;
}

SIM_API(cuMemUnmap, (CUdeviceptr pointer, size_t bytes)) {
  Lock lock(TheDriver().mutex);
  Virtual& v = TheVirtual();
  auto first = v.mappings.find(pointer);
  uintptr_t end = pointer;
  for (auto it = first; it != v.mappings.end() && it->first == end && end < pointer + bytes; ++it) {
    end += it->second.bytes;
  }
  if (end != pointer + bytes) return CUDA_ERROR_INVALID_VALUE;
  for (Dev* dev : TheDriver().devices) {
    const std::vector<Ctx*> contexts = dev->contexts;
    for (Ctx* ctx : contexts) WaitForContext(lock, ctx);
  }
  for (auto it = v.mappings.find(pointer); it != v.mappings.end() && it->first < end;) {
    mmap(reinterpret_cast<void*>(it->first), it->second.bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    TheDriver().memory.erase(it->first);
    Unreference(it->second.physical);
    it = v.mappings.erase(it);
  }
  return CUDA_SUCCESS;
}

SIM_API(cuMemSetAccess,
        (CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc* access, size_t count)) {
  Lock lock(TheDriver().mutex);
  if (access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  Virtual& v = TheVirtual();
  uintptr_t end = pointer;
  for (auto it = v.mappings.find(pointer); it != v.mappings.end() && it->first == end; ++it) {
    end += it->second.bytes;
    if (end >= pointer + bytes) break;
  }
  if (end != pointer + bytes || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  bool write = false, read = false;
  for (size_t i = 0; i < count; ++i) {
    write |= access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    read |= access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ;
  }
  for (auto it = v.mappings.find(pointer); it != v.mappings.end() && it->first < end; ++it) {
    mprotect(reinterpret_cast<void*>(it->first), it->second.bytes,
             write  ? PROT_READ | PROT_WRITE
             : read ? PROT_READ
                    : PROT_NONE);
    TheDriver().memory[it->first].flags = write ? 3 : read ? 1 : 0;
  }
  return CUDA_SUCCESS;
}

SIM_API(cuMemGetAccess,
        (unsigned long long* flags, const CUmemLocation* location, CUdeviceptr pointer)) {
  Lock lock(TheDriver().mutex);
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Allocation* a = FindAllocation(pointer, 1);
  *flags = a != nullptr ? a->flags : 0;
  return CUDA_SUCCESS;
}

SIM_API(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * out, void* address)) {
  Lock lock(TheDriver().mutex);
  Virtual& v = TheVirtual();
  const auto pointer = reinterpret_cast<uintptr_t>(address);
  auto it = v.mappings.upper_bound(pointer);
  if (out == nullptr || it == v.mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
  --it;
  if (pointer >= it->first + it->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  Physical* physical = it->second.physical;
  if (physical->released) {
    physical->released = false;
    ++physical->references;
  }
  *out = reinterpret_cast<CUmemGenericAllocationHandle>(physical);
  return CUDA_SUCCESS;
}

SIM_API(cuMemGetAllocationPropertiesFromHandle,
        (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle)) {
  Lock lock(TheDriver().mutex);
  auto* physical = reinterpret_cast<Physical*>(handle);
  if (!IsLive(physical) || prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  memset(prop, 0, sizeof(*prop));
  prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop->location.id = physical->dev->ordinal;
  return CUDA_SUCCESS;
}

}  // namespace baton::sim
