// Questions about addresses, and handles of memory for other processes. Of memory that can be moved
// (hook/mover.h) the driver knows parts at best: the hook answers, and refuses handles, which would
// keep it where it is.
#include "hook/entries.h"
#include "hook/mover.h"

namespace baton::hook {

BATON_API(cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t* bytes, CUdeviceptr p)) {
  BATON_REAL(cuMemGetAddressRange_v2);
  Gpu* gpu = nullptr;
  Arena::Allocation found;
  if (!FindMovable(p, &gpu, &found)) return real(base, bytes, p);
  if (base != nullptr) *base = found.base;
  if (bytes != nullptr) *bytes = found.bytes;
  return CUDA_SUCCESS;
}

// The first generation: addresses of 32 bits, where nothing can be moved.
BATON_API(cuMemGetAddressRange, (unsigned* base, unsigned* bytes, unsigned p)) {
  BATON_REAL(cuMemGetAddressRange);
  return real(base, bytes, p);
}

namespace {

// True: the answer is the hook's.
bool Attribute(const Gpu* gpu, const Arena::Allocation& found, CUpointer_attribute attribute,
               CUdeviceptr p, void* out) {
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(out) = found.context;
      return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(out) = CU_MEMORYTYPE_DEVICE;
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(out) = p;
      return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(out) = found.id;
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(out) = gpu->device;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(out) = found.base;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(out) = found.bytes;
      return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<unsigned*>(out) = 1;
      return true;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      *static_cast<unsigned*>(out) = 0;
      return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      *static_cast<unsigned long long*>(out) = 0;
      return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      *static_cast<CUmemoryPool*>(out) = nullptr;
      return true;
    default:
      return false;
  }
}

}  // namespace

BATON_API(cuPointerGetAttribute, (void* out, CUpointer_attribute attribute, CUdeviceptr p)) {
  BATON_REAL(cuPointerGetAttribute);
  Gpu* gpu = nullptr;
  Arena::Allocation found;
  if (out != nullptr && FindMovable(p, &gpu, &found) && Attribute(gpu, found, attribute, p, out)) {
    return CUDA_SUCCESS;
  }
  return real(out, attribute, p);
}

BATON_API(cuPointerGetAttributes,
          (unsigned count, CUpointer_attribute* attributes, void** out, CUdeviceptr p)) {
  BATON_REAL(cuPointerGetAttributes);
  const CUresult result = real(count, attributes, out, p);
  Gpu* gpu = nullptr;
  Arena::Allocation found;
  if (result == CUDA_SUCCESS && FindMovable(p, &gpu, &found)) {
    for (unsigned i = 0; i < count; ++i) Attribute(gpu, found, attributes[i], p, out[i]);
  }
  return result;
}

BATON_API(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr p)) {
  BATON_REAL(cuIpcGetMemHandle);
  return RefusesMovable(p, "cuIpcGetMemHandle") ? CUDA_ERROR_NOT_SUPPORTED : real(handle, p);
}

// `type`: CUmemRangeHandleType.
BATON_API(cuMemGetHandleForAddressRange,
          (void* handle, CUdeviceptr p, size_t bytes, int type, unsigned long long flags)) {
  BATON_REAL(cuMemGetHandleForAddressRange);
  if (RefusesMovable(p, "cuMemGetHandleForAddressRange")) return CUDA_ERROR_NOT_SUPPORTED;
  return real(handle, p, bytes, type, flags);
}

// The stream reaches it at any time, with the token or without.
#define BATON_WRITE_VALUE(name, Value)                                                   \
  BATON_API(name, (CUstream stream, CUdeviceptr address, Value value, unsigned flags)) { \
    BATON_REAL(name);                                                                    \
    if (RefusesMovable(address, #name)) return CUDA_ERROR_NOT_SUPPORTED;                 \
    return real(stream, address, value, flags);                                          \
  }
BATON_WRITE_VALUE(cuStreamWriteValue32, cuuint32_t)
BATON_WRITE_VALUE(cuStreamWriteValue32_ptsz, cuuint32_t)
BATON_WRITE_VALUE(cuStreamWriteValue32_v2, cuuint32_t)
BATON_WRITE_VALUE(cuStreamWriteValue32_v2_ptsz, cuuint32_t)
BATON_WRITE_VALUE(cuStreamWriteValue64, cuuint64_t)
BATON_WRITE_VALUE(cuStreamWriteValue64_ptsz, cuuint64_t)
BATON_WRITE_VALUE(cuStreamWriteValue64_v2, cuuint64_t)
BATON_WRITE_VALUE(cuStreamWriteValue64_v2_ptsz, cuuint64_t)

}  // namespace baton::hook
