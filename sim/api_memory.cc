// Memory. A device address is a private host address of this process, so copies really move
// bytes; the capacity is accounted in the device file, for all processes.
#include <string.h>
#include <sys/mman.h>

#include <algorithm>

#include "sim/driver.h"
#include "sim/memory.h"

namespace baton::sim {
namespace {

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
  Uncharge(ctx->dev, ctx->own_bytes);
  ctx->own_bytes = 0;
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

// The first generation of these calls has 32-bit addresses.

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

}  // namespace baton::sim
