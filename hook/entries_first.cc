// The first generation of sets and copies, whose addresses and sizes have 32 bits. Every driver
// still has it, beside the present one, and calls none of that by name.
#include "hook/transfer.h"

namespace baton::hook {
namespace {

using Address = unsigned int;  // CUdeviceptr_v1

struct Box2D {  // CUDA_MEMCPY2D_v1
  unsigned srcXInBytes, srcY;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  Address srcDevice;
  CUarray srcArray;
  unsigned srcPitch, dstXInBytes, dstY;
  CUmemorytype dstMemoryType;
  void* dstHost;
  Address dstDevice;
  CUarray dstArray;
  unsigned dstPitch, WidthInBytes, Height;
};
struct Box3D {  // CUDA_MEMCPY3D_v1
  unsigned srcXInBytes, srcY, srcZ, srcLOD;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  Address srcDevice;
  CUarray srcArray;
  void* reserved0;
  unsigned srcPitch, srcHeight, dstXInBytes, dstY, dstZ, dstLOD;
  CUmemorytype dstMemoryType;
  void* dstHost;
  Address dstDevice;
  CUarray dstArray;
  void* reserved1;
  unsigned dstPitch, dstHeight, WidthInBytes, Height, Depth;
};

uint64_t SetKey(uint64_t bytes) { return BytesKey(Kind::kSet, bytes); }

}  // namespace

#define BATON_FIRST_SET(name, Value)                                  \
  BATON_API(name, (Address p, Value value, unsigned n)) {             \
    BATON_REAL(name);                                                 \
    return Launch(Legacy(kSync), SetKey(uint64_t{n} * sizeof(Value)), \
                  [&] { return real(p, value, n); });                 \
  }
#define BATON_FIRST_SET_2D(name, Value)                                               \
  BATON_API(name, (Address p, unsigned pitch, Value value, unsigned w, unsigned h)) { \
    BATON_REAL(name);                                                                 \
    return Launch(Legacy(kSync), SetKey(uint64_t{w} * h * sizeof(Value)),             \
                  [&] { return real(p, pitch, value, w, h); });                       \
  }
BATON_FIRST_SET(cuMemsetD8, unsigned char)
BATON_FIRST_SET(cuMemsetD16, unsigned short)
BATON_FIRST_SET(cuMemsetD32, unsigned int)
BATON_FIRST_SET_2D(cuMemsetD2D8, unsigned char)
BATON_FIRST_SET_2D(cuMemsetD2D16, unsigned short)
BATON_FIRST_SET_2D(cuMemsetD2D32, unsigned int)

#define BATON_FIRST_COPY(name, To, From, on_device)                              \
  BATON_API(name, (To to, From from, unsigned n)) {                              \
    BATON_REAL(name);                                                            \
    return Copy(Legacy(kSync), on_device, n, [&] { return real(to, from, n); }); \
  }
#define BATON_FIRST_COPY_ASYNC(name, To, From, on_device)                                 \
  BATON_API(name, (To to, From from, unsigned n, CUstream stream)) {                      \
    BATON_REAL(name);                                                                     \
    return Copy(Legacy(stream), on_device, n, [&] { return real(to, from, n, stream); }); \
  }
BATON_FIRST_COPY(cuMemcpyDtoD, Address, Address, true)
BATON_FIRST_COPY(cuMemcpyHtoD, Address, const void*, false)
BATON_FIRST_COPY(cuMemcpyDtoH, void*, Address, false)
BATON_FIRST_COPY_ASYNC(cuMemcpyDtoDAsync, Address, Address, true)
BATON_FIRST_COPY_ASYNC(cuMemcpyHtoDAsync, Address, const void*, false)
BATON_FIRST_COPY_ASYNC(cuMemcpyDtoHAsync, void*, Address, false)

#define BATON_FIRST_BOX(name, Box)                                                        \
  BATON_API(name, (const Box* box)) {                                                     \
    BATON_REAL(name);                                                                     \
    return Copy(Legacy(kSync), BothOnDevice(box), Bytes(box), [&] { return real(box); }); \
  }
#define BATON_FIRST_BOX_ASYNC(name, Box)                                                           \
  BATON_API(name, (const Box* box, CUstream stream)) {                                             \
    BATON_REAL(name);                                                                              \
    return Copy(Legacy(stream), BothOnDevice(box), Bytes(box), [&] { return real(box, stream); }); \
  }
BATON_FIRST_BOX(cuMemcpy2D, Box2D)
BATON_FIRST_BOX(cuMemcpy2DUnaligned, Box2D)
BATON_FIRST_BOX_ASYNC(cuMemcpy2DAsync, Box2D)
BATON_FIRST_BOX(cuMemcpy3D, Box3D)
BATON_FIRST_BOX_ASYNC(cuMemcpy3DAsync, Box3D)

// Arrays are device memory.
BATON_API(cuMemcpyDtoA, (CUarray to, unsigned offset, Address from, unsigned n)) {
  BATON_REAL(cuMemcpyDtoA);
  return Copy(Legacy(kSync), true, n, [&] { return real(to, offset, from, n); });
}
BATON_API(cuMemcpyAtoD, (Address to, CUarray from, unsigned offset, unsigned n)) {
  BATON_REAL(cuMemcpyAtoD);
  return Copy(Legacy(kSync), true, n, [&] { return real(to, from, offset, n); });
}
BATON_API(cuMemcpyAtoA,
          (CUarray to, unsigned to_offset, CUarray from, unsigned from_offset, unsigned n)) {
  BATON_REAL(cuMemcpyAtoA);
  return Copy(Legacy(kSync), true, n, [&] { return real(to, to_offset, from, from_offset, n); });
}
BATON_API(cuMemcpyHtoA, (CUarray to, unsigned offset, const void* from, unsigned n)) {
  BATON_REAL(cuMemcpyHtoA);
  CountCopy(n);
  return real(to, offset, from, n);
}
BATON_API(cuMemcpyAtoH, (void* to, CUarray from, unsigned offset, unsigned n)) {
  BATON_REAL(cuMemcpyAtoH);
  CountCopy(n);
  return real(to, from, offset, n);
}
BATON_API(cuMemcpyHtoAAsync,
          (CUarray to, unsigned offset, const void* from, unsigned n, CUstream stream)) {
  BATON_REAL(cuMemcpyHtoAAsync);
  CountCopy(n);
  return real(to, offset, from, n, stream);
}
BATON_API(cuMemcpyAtoHAsync,
          (void* to, CUarray from, unsigned offset, unsigned n, CUstream stream)) {
  BATON_REAL(cuMemcpyAtoHAsync);
  CountCopy(n);
  return real(to, from, offset, n, stream);
}

}  // namespace baton::hook
