// Memsets by the host and copies. Sets and device-to-device copies are GPU work like a kernel;
// copies between host and device pass, and are counted.
#include "hook/entries.h"

namespace baton::hook {
namespace {

constexpr CUstream kSync = nullptr;  // the spellings without a stream run in stream 0

bool OnDevice(CUdeviceptr p) {
  unsigned type = 0;
  // What the driver does not know is ordinary host memory.
  return Drv<Fn::cuPointerGetAttribute>(static_cast<void*>(&type), CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        p) == CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_DEVICE;
}

bool OnDevice(CUmemorytype type, CUdeviceptr p) {
  if (type == CU_MEMORYTYPE_UNIFIED) return OnDevice(p);
  return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY;
}

// Looked at only where it matters: a process that is not managed pays nothing.
template <class Call>
CUresult Copy(CUstream stream, bool on_device, uint64_t bytes, Call call) {
  if (on_device) return Launch(stream, BytesKey(Kind::kCopy, bytes), call);
  CountCopy(bytes);
  return call();
}

bool BothOnDevice(CUdeviceptr a, CUdeviceptr b) { return Managed() && OnDevice(a) && OnDevice(b); }

template <class Copy3D>
bool BothOnDevice(const Copy3D* c) {
  return Managed() && c != nullptr && OnDevice(c->srcMemoryType, c->srcDevice) &&
         OnDevice(c->dstMemoryType, c->dstDevice);
}

uint64_t Bytes(const CUDA_MEMCPY2D* c) { return c == nullptr ? 0 : c->WidthInBytes * c->Height; }
template <class Box>  // CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER
uint64_t Bytes(const Box* c) {
  return c == nullptr ? 0 : c->WidthInBytes * c->Height * c->Depth;
}

}  // namespace

#define BATON_SET(name, Value, stream_of)                                    \
  BATON_API(name, (CUdeviceptr p, Value value, size_t n)) {                  \
    BATON_REAL(name);                                                        \
    return Launch(stream_of(kSync), BytesKey(Kind::kSet, n * sizeof(Value)), \
                  [&] { return real(p, value, n); });                        \
  }
#define BATON_SET_ASYNC(name, Value, stream_of)                               \
  BATON_API(name, (CUdeviceptr p, Value value, size_t n, CUstream stream)) {  \
    BATON_REAL(name);                                                         \
    return Launch(stream_of(stream), BytesKey(Kind::kSet, n * sizeof(Value)), \
                  [&] { return real(p, value, n, stream); });                 \
  }
#define BATON_SET_2D(name, Value, stream_of)                                        \
  BATON_API(name, (CUdeviceptr p, size_t pitch, Value value, size_t w, size_t h)) { \
    BATON_REAL(name);                                                               \
    return Launch(stream_of(kSync), BytesKey(Kind::kSet, w * h * sizeof(Value)),    \
                  [&] { return real(p, pitch, value, w, h); });                     \
  }
#define BATON_SET_2D_ASYNC(name, Value, stream_of)                                             \
  BATON_API(name,                                                                              \
            (CUdeviceptr p, size_t pitch, Value value, size_t w, size_t h, CUstream stream)) { \
    BATON_REAL(name);                                                                          \
    return Launch(stream_of(stream), BytesKey(Kind::kSet, w * h * sizeof(Value)),              \
                  [&] { return real(p, pitch, value, w, h, stream); });                        \
  }

BATON_SET(cuMemsetD8_v2, unsigned char, Legacy)
BATON_SET(cuMemsetD8_v2_ptds, unsigned char, PerThread)
BATON_SET(cuMemsetD16_v2, unsigned short, Legacy)
BATON_SET(cuMemsetD16_v2_ptds, unsigned short, PerThread)
BATON_SET(cuMemsetD32_v2, unsigned int, Legacy)
BATON_SET(cuMemsetD32_v2_ptds, unsigned int, PerThread)
BATON_SET_2D(cuMemsetD2D8_v2, unsigned char, Legacy)
BATON_SET_2D(cuMemsetD2D8_v2_ptds, unsigned char, PerThread)
BATON_SET_2D(cuMemsetD2D16_v2, unsigned short, Legacy)
BATON_SET_2D(cuMemsetD2D16_v2_ptds, unsigned short, PerThread)
BATON_SET_2D(cuMemsetD2D32_v2, unsigned int, Legacy)
BATON_SET_2D(cuMemsetD2D32_v2_ptds, unsigned int, PerThread)
BATON_SET_ASYNC(cuMemsetD8Async, unsigned char, Legacy)
BATON_SET_ASYNC(cuMemsetD8Async_ptsz, unsigned char, PerThread)
BATON_SET_ASYNC(cuMemsetD16Async, unsigned short, Legacy)
BATON_SET_ASYNC(cuMemsetD16Async_ptsz, unsigned short, PerThread)
BATON_SET_ASYNC(cuMemsetD32Async, unsigned int, Legacy)
BATON_SET_ASYNC(cuMemsetD32Async_ptsz, unsigned int, PerThread)
BATON_SET_2D_ASYNC(cuMemsetD2D8Async, unsigned char, Legacy)
BATON_SET_2D_ASYNC(cuMemsetD2D8Async_ptsz, unsigned char, PerThread)
BATON_SET_2D_ASYNC(cuMemsetD2D16Async, unsigned short, Legacy)
BATON_SET_2D_ASYNC(cuMemsetD2D16Async_ptsz, unsigned short, PerThread)
BATON_SET_2D_ASYNC(cuMemsetD2D32Async, unsigned int, Legacy)
BATON_SET_2D_ASYNC(cuMemsetD2D32Async_ptsz, unsigned int, PerThread)

#define BATON_COPY(name, To, From, on_device, stream_of)                            \
  BATON_API(name, (To to, From from, size_t n)) {                                   \
    BATON_REAL(name);                                                               \
    return Copy(stream_of(kSync), on_device, n, [&] { return real(to, from, n); }); \
  }
#define BATON_COPY_ASYNC(name, To, From, on_device, stream_of)                               \
  BATON_API(name, (To to, From from, size_t n, CUstream stream)) {                           \
    BATON_REAL(name);                                                                        \
    return Copy(stream_of(stream), on_device, n, [&] { return real(to, from, n, stream); }); \
  }

BATON_COPY(cuMemcpyDtoD_v2, CUdeviceptr, CUdeviceptr, true, Legacy)
BATON_COPY(cuMemcpyDtoD_v2_ptds, CUdeviceptr, CUdeviceptr, true, PerThread)
BATON_COPY_ASYNC(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, true, Legacy)
BATON_COPY_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, CUdeviceptr, CUdeviceptr, true, PerThread)
BATON_COPY(cuMemcpyHtoD_v2, CUdeviceptr, const void*, false, Legacy)
BATON_COPY(cuMemcpyHtoD_v2_ptds, CUdeviceptr, const void*, false, PerThread)
BATON_COPY_ASYNC(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void*, false, Legacy)
BATON_COPY_ASYNC(cuMemcpyHtoDAsync_v2_ptsz, CUdeviceptr, const void*, false, PerThread)
BATON_COPY(cuMemcpyDtoH_v2, void*, CUdeviceptr, false, Legacy)
BATON_COPY(cuMemcpyDtoH_v2_ptds, void*, CUdeviceptr, false, PerThread)
BATON_COPY_ASYNC(cuMemcpyDtoHAsync_v2, void*, CUdeviceptr, false, Legacy)
BATON_COPY_ASYNC(cuMemcpyDtoHAsync_v2_ptsz, void*, CUdeviceptr, false, PerThread)
BATON_COPY(cuMemcpy, CUdeviceptr, CUdeviceptr, BothOnDevice(to, from), Legacy)
BATON_COPY(cuMemcpy_ptds, CUdeviceptr, CUdeviceptr, BothOnDevice(to, from), PerThread)
BATON_COPY_ASYNC(cuMemcpyAsync, CUdeviceptr, CUdeviceptr, BothOnDevice(to, from), Legacy)
BATON_COPY_ASYNC(cuMemcpyAsync_ptsz, CUdeviceptr, CUdeviceptr, BothOnDevice(to, from), PerThread)

#define BATON_COPY_PEER(name, stream_of)                                                           \
  BATON_API(name, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, \
                   size_t n)) {                                                                    \
    BATON_REAL(name);                                                                              \
    return Copy(stream_of(kSync), true, n,                                                         \
                [&] { return real(to, to_context, from, from_context, n); });                      \
  }
#define BATON_COPY_PEER_ASYNC(name, stream_of)                                                     \
  BATON_API(name, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, \
                   size_t n, CUstream stream)) {                                                   \
    BATON_REAL(name);                                                                              \
    return Copy(stream_of(stream), true, n,                                                        \
                [&] { return real(to, to_context, from, from_context, n, stream); });              \
  }
BATON_COPY_PEER(cuMemcpyPeer, Legacy)
BATON_COPY_PEER(cuMemcpyPeer_ptds, PerThread)
BATON_COPY_PEER_ASYNC(cuMemcpyPeerAsync, Legacy)
BATON_COPY_PEER_ASYNC(cuMemcpyPeerAsync_ptsz, PerThread)

#define BATON_COPY_BOX(name, Box, stream_of)                                                 \
  BATON_API(name, (const Box* box)) {                                                        \
    BATON_REAL(name);                                                                        \
    return Copy(stream_of(kSync), BothOnDevice(box), Bytes(box), [&] { return real(box); }); \
  }
#define BATON_COPY_BOX_ASYNC(name, Box, stream_of)                \
  BATON_API(name, (const Box* box, CUstream stream)) {            \
    BATON_REAL(name);                                             \
    return Copy(stream_of(stream), BothOnDevice(box), Bytes(box), \
                [&] { return real(box, stream); });               \
  }
BATON_COPY_BOX(cuMemcpy2D_v2, CUDA_MEMCPY2D, Legacy)
BATON_COPY_BOX(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, PerThread)
BATON_COPY_BOX(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, Legacy)
BATON_COPY_BOX(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, PerThread)
BATON_COPY_BOX_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, Legacy)
BATON_COPY_BOX_ASYNC(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, PerThread)
BATON_COPY_BOX(cuMemcpy3D_v2, CUDA_MEMCPY3D, Legacy)
BATON_COPY_BOX(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, PerThread)
BATON_COPY_BOX_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, Legacy)
BATON_COPY_BOX_ASYNC(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, PerThread)

// Between devices by definition.
#define BATON_COPY_BOX_PEER(name, stream_of)                                    \
  BATON_API(name, (const CUDA_MEMCPY3D_PEER* box)) {                            \
    BATON_REAL(name);                                                           \
    return Copy(stream_of(kSync), true, Bytes(box), [&] { return real(box); }); \
  }
#define BATON_COPY_BOX_PEER_ASYNC(name, stream_of)                                       \
  BATON_API(name, (const CUDA_MEMCPY3D_PEER* box, CUstream stream)) {                    \
    BATON_REAL(name);                                                                    \
    return Copy(stream_of(stream), true, Bytes(box), [&] { return real(box, stream); }); \
  }
BATON_COPY_BOX_PEER(cuMemcpy3DPeer, Legacy)
BATON_COPY_BOX_PEER(cuMemcpy3DPeer_ptds, PerThread)
BATON_COPY_BOX_PEER_ASYNC(cuMemcpy3DPeerAsync, Legacy)
BATON_COPY_BOX_PEER_ASYNC(cuMemcpy3DPeerAsync_ptsz, PerThread)

// Arrays are device memory.
#define BATON_COPY_TO_ARRAY(name, stream_of)                                           \
  BATON_API(name, (CUarray to, size_t offset, CUdeviceptr from, size_t n)) {           \
    BATON_REAL(name);                                                                  \
    return Copy(stream_of(kSync), true, n, [&] { return real(to, offset, from, n); }); \
  }
#define BATON_COPY_FROM_ARRAY(name, stream_of)                                         \
  BATON_API(name, (CUdeviceptr to, CUarray from, size_t offset, size_t n)) {           \
    BATON_REAL(name);                                                                  \
    return Copy(stream_of(kSync), true, n, [&] { return real(to, from, offset, n); }); \
  }
#define BATON_COPY_ARRAYS(name, stream_of)                                                      \
  BATON_API(name, (CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t n)) { \
    BATON_REAL(name);                                                                           \
    return Copy(stream_of(kSync), true, n,                                                      \
                [&] { return real(to, to_offset, from, from_offset, n); });                     \
  }
BATON_COPY_TO_ARRAY(cuMemcpyDtoA_v2, Legacy)
BATON_COPY_TO_ARRAY(cuMemcpyDtoA_v2_ptds, PerThread)
BATON_COPY_FROM_ARRAY(cuMemcpyAtoD_v2, Legacy)
BATON_COPY_FROM_ARRAY(cuMemcpyAtoD_v2_ptds, PerThread)
BATON_COPY_ARRAYS(cuMemcpyAtoA_v2, Legacy)
BATON_COPY_ARRAYS(cuMemcpyAtoA_v2_ptds, PerThread)

}  // namespace baton::hook
