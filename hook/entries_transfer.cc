// Memsets by the host and copies. Sets and device-to-device copies are GPU work like a kernel;
// copies between host and device pass, and are counted.
#include <stddef.h>

#include "hook/transfer.h"

namespace baton::hook {

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

// Host and array.
#define BATON_COPY_HTOA(name)                                                \
  BATON_API(name, (CUarray to, size_t offset, const void* from, size_t n)) { \
    BATON_REAL(name);                                                        \
    CountCopy(n);                                                            \
    return real(to, offset, from, n);                                        \
  }
#define BATON_COPY_HTOA_ASYNC(name)                                                           \
  BATON_API(name, (CUarray to, size_t offset, const void* from, size_t n, CUstream stream)) { \
    BATON_REAL(name);                                                                         \
    CountCopy(n);                                                                             \
    return real(to, offset, from, n, stream);                                                 \
  }
#define BATON_COPY_ATOH(name)                                          \
  BATON_API(name, (void* to, CUarray from, size_t offset, size_t n)) { \
    BATON_REAL(name);                                                  \
    CountCopy(n);                                                      \
    return real(to, from, offset, n);                                  \
  }
#define BATON_COPY_ATOH_ASYNC(name)                                                     \
  BATON_API(name, (void* to, CUarray from, size_t offset, size_t n, CUstream stream)) { \
    BATON_REAL(name);                                                                   \
    CountCopy(n);                                                                       \
    return real(to, from, offset, n, stream);                                           \
  }
BATON_COPY_HTOA(cuMemcpyHtoA_v2)
BATON_COPY_HTOA(cuMemcpyHtoA_v2_ptds)
BATON_COPY_HTOA_ASYNC(cuMemcpyHtoAAsync_v2)
BATON_COPY_HTOA_ASYNC(cuMemcpyHtoAAsync_v2_ptsz)
BATON_COPY_ATOH(cuMemcpyAtoH_v2)
BATON_COPY_ATOH(cuMemcpyAtoH_v2_ptds)
BATON_COPY_ATOH_ASYNC(cuMemcpyAtoHAsync_v2)
BATON_COPY_ATOH_ASYNC(cuMemcpyAtoHAsync_v2_ptsz)

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

// What came after CUDA 11.8, whose header lacks the types.
namespace {

struct Operand {  // CUmemcpy3DOperand
  static constexpr int kArray = 2;
  int type;
  CUdeviceptr pointer;  // or the array
  uint64_t more[3];
};
struct BatchCopy {  // CUDA_MEMCPY3D_BATCH_OP
  Operand from, to;
  size_t width, height, depth;
  int order;
  unsigned flags;
};
struct Decompression {  // CUmemDecompressParams
  size_t from_bytes;
  uint64_t more[7];
};
#if CUDA_VERSION >= 12080
static_assert(sizeof(BatchCopy) == sizeof(CUDA_MEMCPY3D_BATCH_OP) &&
              offsetof(BatchCopy, to.pointer) == offsetof(CUDA_MEMCPY3D_BATCH_OP, dst.op) &&
              offsetof(BatchCopy, width) == offsetof(CUDA_MEMCPY3D_BATCH_OP, extent) &&
              Operand::kArray == CU_MEMCPY_OPERAND_TYPE_ARRAY);
static_assert(sizeof(Decompression) == sizeof(CUmemDecompressParams));
#endif

bool IsOnDevice(const Operand& o) { return o.type == Operand::kArray || OnDevice(o.pointer); }

// A batch with a copy between devices in it is GPU work as a whole.
template <class BothOnDeviceAt, class BytesAt, class Call>
CUresult Batch(CUstream stream, size_t count, BothOnDeviceAt both, BytesAt bytes_at, Call call) {
  if (!Managed()) return call();
  uint64_t bytes = 0;
  bool on_device = false;
  for (size_t i = 0; i < count; ++i) {
    bytes += bytes_at(i);
    on_device = on_device || both(i);
  }
  return Copy(stream, on_device, bytes, call);
}

template <class Call>
CUresult Batch(CUstream stream, const CUdeviceptr* to, const CUdeviceptr* from, const size_t* sizes,
               size_t count, Call call) {
  if (to == nullptr || from == nullptr || sizes == nullptr) return call();
  return Batch(
      stream, count, [&](size_t i) { return OnDevice(to[i]) && OnDevice(from[i]); },
      [&](size_t i) { return sizes[i]; }, call);
}

template <class Call>
CUresult Batch(CUstream stream, const BatchCopy* copies, size_t count, Call call) {
  if (copies == nullptr) return call();
  return Batch(
      stream, count,
      [&](size_t i) { return IsOnDevice(copies[i].to) && IsOnDevice(copies[i].from); },
      [&](size_t i) { return copies[i].width * copies[i].height * copies[i].depth; }, call);
}

uint64_t Sum(const size_t* sizes, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; sizes != nullptr && i < count; ++i) sum += sizes[i];
  return sum;
}

}  // namespace

#define BATON_COPY_BATCH(name, stream_of)                                                          \
  BATON_API(name,                                                                                  \
            (CUdeviceptr * to, CUdeviceptr * from, size_t * sizes, size_t count, void* attributes, \
             size_t* indices, size_t n, size_t* failed, CUstream stream)) {                        \
    BATON_REAL(name);                                                                              \
    return Batch(stream_of(stream), to, from, sizes, count, [&] {                                  \
      return real(to, from, sizes, count, attributes, indices, n, failed, stream);                 \
    });                                                                                            \
  }
#define BATON_COPY_BATCH_V2(name, stream_of)                                                    \
  BATON_API(name, (CUdeviceptr * to, CUdeviceptr * from, size_t * sizes, size_t count,          \
                   void* attributes, size_t* indices, size_t n, CUstream stream)) {             \
    BATON_REAL(name);                                                                           \
    return Batch(stream_of(stream), to, from, sizes, count,                                     \
                 [&] { return real(to, from, sizes, count, attributes, indices, n, stream); }); \
  }
BATON_COPY_BATCH(cuMemcpyBatchAsync, Legacy)
BATON_COPY_BATCH(cuMemcpyBatchAsync_ptsz, PerThread)
BATON_COPY_BATCH_V2(cuMemcpyBatchAsync_v2, Legacy)
BATON_COPY_BATCH_V2(cuMemcpyBatchAsync_v2_ptsz, PerThread)

#define BATON_COPY_BATCH_3D(name, stream_of)                                                    \
  BATON_API(name, (size_t count, BatchCopy * copies, size_t * failed, unsigned long long flags, \
                   CUstream stream)) {                                                          \
    BATON_REAL(name);                                                                           \
    return Batch(stream_of(stream), copies, count,                                              \
                 [&] { return real(count, copies, failed, flags, stream); });                   \
  }
#define BATON_COPY_BATCH_3D_V2(name, stream_of)                                                    \
  BATON_API(name, (size_t count, BatchCopy * copies, unsigned long long flags, CUstream stream)) { \
    BATON_REAL(name);                                                                              \
    return Batch(stream_of(stream), copies, count,                                                 \
                 [&] { return real(count, copies, flags, stream); });                              \
  }
BATON_COPY_BATCH_3D(cuMemcpy3DBatchAsync, Legacy)
BATON_COPY_BATCH_3D(cuMemcpy3DBatchAsync_ptsz, PerThread)
BATON_COPY_BATCH_3D_V2(cuMemcpy3DBatchAsync_v2, Legacy)
BATON_COPY_BATCH_3D_V2(cuMemcpy3DBatchAsync_v2_ptsz, PerThread)

#define BATON_COPY_ATTRIBUTES(name, stream_of)                                                 \
  BATON_API(name,                                                                              \
            (CUdeviceptr to, CUdeviceptr from, size_t n, void* attributes, CUstream stream)) { \
    BATON_REAL(name);                                                                          \
    return Copy(stream_of(stream), BothOnDevice(to, from), n,                                  \
                [&] { return real(to, from, n, attributes, stream); });                        \
  }
#define BATON_COPY_ATTRIBUTES_3D(name, stream_of)                                        \
  BATON_API(name, (BatchCopy * copy, unsigned long long flags, CUstream stream)) {       \
    BATON_REAL(name);                                                                    \
    return Batch(stream_of(stream), copy, 1, [&] { return real(copy, flags, stream); }); \
  }
BATON_COPY_ATTRIBUTES(cuMemcpyWithAttributesAsync, Legacy)
BATON_COPY_ATTRIBUTES(cuMemcpyWithAttributesAsync_ptsz, PerThread)
BATON_COPY_ATTRIBUTES_3D(cuMemcpy3DWithAttributesAsync, Legacy)
BATON_COPY_ATTRIBUTES_3D(cuMemcpy3DWithAttributesAsync_ptsz, PerThread)

#define BATON_DECOMPRESS(name, stream_of)                                                \
  BATON_API(name, (Decompression * parts, size_t count, unsigned flags, size_t* failed,  \
                   CUstream stream)) {                                                   \
    BATON_REAL(name);                                                                    \
    uint64_t bytes = 0;                                                                  \
    for (size_t i = 0; parts != nullptr && i < count; ++i) bytes += parts[i].from_bytes; \
    return Launch(stream_of(stream), BytesKey(Kind::kDecompress, bytes),                 \
                  [&] { return real(parts, count, flags, failed, stream); });            \
  }
BATON_DECOMPRESS(cuMemBatchDecompressAsync, Legacy)
BATON_DECOMPRESS(cuMemBatchDecompressAsync_ptsz, PerThread)

// Managed memory moves between host and device. Of a discard nothing moves.
#define BATON_PREFETCH(name)                                                 \
  BATON_API(name, (CUdeviceptr p, size_t n, CUdevice to, CUstream stream)) { \
    BATON_REAL(name);                                                        \
    CountCopy(n);                                                            \
    return real(p, n, to, stream);                                           \
  }
#define BATON_PREFETCH_V2(name)                                                                   \
  BATON_API(name, (CUdeviceptr p, size_t n, CUmemLocation to, unsigned flags, CUstream stream)) { \
    BATON_REAL(name);                                                                             \
    CountCopy(n);                                                                                 \
    return real(p, n, to, flags, stream);                                                         \
  }
#define BATON_PREFETCH_BATCH(name)                                                           \
  BATON_API(name, (CUdeviceptr * p, size_t * sizes, size_t count, CUmemLocation * to,        \
                   size_t * indices, size_t n, unsigned long long flags, CUstream stream)) { \
    BATON_REAL(name);                                                                        \
    CountCopy(Sum(sizes, count));                                                            \
    return real(p, sizes, count, to, indices, n, flags, stream);                             \
  }
BATON_PREFETCH(cuMemPrefetchAsync)
BATON_PREFETCH(cuMemPrefetchAsync_ptsz)
BATON_PREFETCH_V2(cuMemPrefetchAsync_v2)
BATON_PREFETCH_V2(cuMemPrefetchAsync_v2_ptsz)
BATON_PREFETCH_BATCH(cuMemPrefetchBatchAsync)
BATON_PREFETCH_BATCH(cuMemPrefetchBatchAsync_ptsz)

}  // namespace baton::hook
