// Memory pools, and memory that is ordered by streams.
#include <sys/mman.h>

#include <algorithm>

#include "sim/driver.h"
#include "sim/memory.h"

namespace baton::sim {

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
  if (stream->capture != nullptr) {
    auto memory = NewGraphMemory(pool->dev, bytes);
    if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    Work work;
    work.node_type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    Node* node;
    if (CUresult r = AddCaptureNode(stream, work, &node)) return r;
    *out = memory->at;
    node->memory = std::move(memory);
    return CUDA_SUCCESS;
  }
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
    Node* node;
    if (CUresult r = AddCaptureNode(stream, work, &node)) return r;
    node->frees = pointer;
    return CUDA_SUCCESS;
  }
  // A graph's memory stays its own.
  if (it->second.kind == Allocation::kGraph) return Enqueue(lock, stream, Work{});
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
  // Of a managed pool the location is where its memory likes to be; here it is on a device.
  constexpr int kManaged = 2;  // CU_MEM_ALLOCATION_TYPE_MANAGED, which older headers lack
  Dev* dev;
  if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    if (CUresult r = GetDev(properties->location.id, &dev)) return r;
  } else if (static_cast<int>(properties->allocType) == kManaged) {
    Ctx* ctx;
    if (CUresult r = CurrentContext(&ctx)) return r;
    dev = ctx->dev;
  } else {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
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

}  // namespace baton::sim
