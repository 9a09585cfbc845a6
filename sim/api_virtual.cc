// Virtual memory: addresses, physical memory, and the mappings between them.
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "sim/driver.h"
#include "sim/memory.h"

namespace baton::sim {
namespace {

// What a virtual mapping is a multiple of; cuMemGetAllocationGranularity tells it.
constexpr size_t kGranule = 2 << 20;

// Physical memory of the virtual-memory calls: pieces of one sparse file, so that it can be
// mapped at any address, and twice.
struct Physical {
  Dev* dev = nullptr;
  size_t bytes = 0;
  off_t offset = 0;
  int handles = 1;     // not released: as often as it was made and retained
  int references = 1;  // those and its mappings
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

}  // namespace

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
  if (dev->device->process() < 0 && dev->device->Attach(dev->instance) < 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
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
  if (!IsLive(physical) || physical->handles == 0) return CUDA_ERROR_INVALID_VALUE;
  --physical->handles;
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
    // The addresses stay reserved.
    (void)!mmap(reinterpret_cast<void*>(it->first), it->second.bytes, PROT_NONE,
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
  ++physical->handles;
  ++physical->references;
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
