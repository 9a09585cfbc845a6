// Arrays, mipmapped arrays, and the heaps and stacks of kernels: memory of the device without an
// address that the program sees. An array's size is the driver's secret: it is charged what tiles
// of 64 bytes by 8 rows take.
#include "hook/allocation.h"
#include "hook/entries.h"

namespace baton::hook {
namespace {

// What any of the descriptors says.
struct Shape {
  uint64_t width, height, depth;
  CUarray_format format;
  uint64_t channels;
  unsigned flags;
};

struct First2D {  // CUDA_ARRAY_DESCRIPTOR_v1
  unsigned Width, Height;
  CUarray_format Format;
  unsigned NumChannels;
};
struct First3D {  // CUDA_ARRAY3D_DESCRIPTOR_v1
  unsigned Width, Height, Depth;
  CUarray_format Format;
  unsigned NumChannels, Flags;
};

template <class Descriptor>
Shape ShapeOf(const Descriptor& d) {
  Shape shape = {d.Width, d.Height, 0, d.Format, d.NumChannels, 0};
  if constexpr (requires { d.Depth; }) {
    shape.depth = d.Depth;
    shape.flags = d.Flags;
  }
  return shape;
}

// Of one channel; of a format that this hook does not know, more than it has.
uint64_t ChannelBytes(CUarray_format format) {
  switch (static_cast<int>(format)) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    default:
      return 4;
  }
}

uint64_t Times(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}
uint64_t RoundUp(uint64_t n, uint64_t unit) {
  return n > UINT64_MAX - unit ? UINT64_MAX : (n + unit - 1) / unit * unit;
}
uint64_t AtLeast1(uint64_t n) { return n == 0 ? 1 : n; }

uint64_t BytesOf(const Shape& s) {
  const uint64_t row = RoundUp(Times(s.width, s.channels * ChannelBytes(s.format)), 64);
  const uint64_t rows = s.height == 0 ? 1 : RoundUp(s.height, 8);
  return Times(Times(row, rows), AtLeast1(s.depth));
}

// With `levels` of a mipmapped one.
uint64_t ArrayBytes(Shape s, unsigned levels) {
  // Memory is mapped into it later.
  constexpr unsigned kSparse = 0x40, kDeferred = 0x80;
  if ((s.flags & (kSparse | kDeferred)) != 0) return 0;
  uint64_t bytes = 0;
  for (unsigned i = 0; i < levels && i < 64; ++i) {
    if (__builtin_add_overflow(bytes, BytesOf(s), &bytes)) return UINT64_MAX;
    s.width = AtLeast1(s.width / 2);
    if (s.height > 0) s.height = AtLeast1(s.height / 2);
    if (s.depth > 0 && (s.flags & CUDA_ARRAY3D_LAYERED) == 0) s.depth = AtLeast1(s.depth / 2);
    if (s.width == 1 && s.height <= 1 && s.depth <= 1) break;
  }
  return bytes;
}

template <class Handle, class Call>
CUresult AllocateArray(const Handle* array, uint64_t bytes, Call call) {
  return AllocateAs(
      bytes, [&] { return HandleKey(*array); }, call);
}

}  // namespace

#define BATON_ARRAY_CREATE(name, Descriptor)                                                 \
  BATON_API(name, (CUarray * array, const Descriptor* d)) {                                  \
    BATON_REAL(name);                                                                        \
    if (d == nullptr) return real(array, d);                                                 \
    return AllocateArray(array, ArrayBytes(ShapeOf(*d), 1), [&] { return real(array, d); }); \
  }
BATON_ARRAY_CREATE(cuArrayCreate, First2D)
BATON_ARRAY_CREATE(cuArrayCreate_v2, CUDA_ARRAY_DESCRIPTOR)
BATON_ARRAY_CREATE(cuArray3DCreate, First3D)
BATON_ARRAY_CREATE(cuArray3DCreate_v2, CUDA_ARRAY3D_DESCRIPTOR)

BATON_API(cuArrayDestroy, (CUarray array)) {
  BATON_REAL(cuArrayDestroy);
  return Free(HandleKey(array), [&] { return real(array); });
}

BATON_API(cuMipmappedArrayCreate,
          (CUmipmappedArray * array, const CUDA_ARRAY3D_DESCRIPTOR* d, unsigned levels)) {
  BATON_REAL(cuMipmappedArrayCreate);
  if (d == nullptr) return real(array, d, levels);
  return AllocateArray(array, ArrayBytes(ShapeOf(*d), levels),
                       [&] { return real(array, d, levels); });
}

BATON_API(cuMipmappedArrayDestroy, (CUmipmappedArray array)) {
  BATON_REAL(cuMipmappedArrayDestroy);
  return Free(HandleKey(array), [&] { return real(array); });
}

namespace {

// What memory of a context the limit is the size of, as a number: the heaps from which kernels
// allocate and print, and their stacks. 0: none.
int MemoryOf(CUlimit limit) {
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE) return 1;
  if (limit == CU_LIMIT_PRINTF_FIFO_SIZE) return 2;
  return limit == CU_LIMIT_STACK_SIZE ? 3 : 0;
}

// How often the device takes that: a stack for every thread that it can have at a time. 0: it does
// not tell.
uint64_t TimesTaken(const Gpu* gpu, CUlimit limit) {
  if (limit != CU_LIMIT_STACK_SIZE) return 1;
  int processors = 0, threads = 0;
  Drv<Fn::cuDeviceGetAttribute>(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu->device);
  Drv<Fn::cuDeviceGetAttribute>(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                                gpu->device);
  return processors > 0 && threads > 0
             ? static_cast<uint64_t>(processors) * static_cast<uint64_t>(threads)
             : 0;
}

}  // namespace

// What every context has from the start is not counted; what a program adds is, until it takes it
// back or the context ends.
BATON_API(cuCtxSetLimit, (CUlimit limit, size_t value)) {
  BATON_REAL(cuCtxSetLimit);
  const int memory = MemoryOf(limit);
  Gpu* gpu = memory != 0 ? MemoryGpu() : nullptr;
  const uint64_t times = gpu == nullptr ? 0 : TimesTaken(gpu, limit);
  size_t was = 0;
  if (times == 0 || Drv<Fn::cuCtxGetLimit>(&was, limit) != CUDA_SUCCESS) {
    return real(limit, value);
  }
  Guard guard(g_limits_lock);
  Charged kept = {gpu, 0, CurrentContext()};
  const uint64_t key = HandleKey(kept.context) + static_cast<uint64_t>(memory);
  Forget(key, &kept);
  const uint64_t more = value > was ? Times(value - was, times) : 0;
  const bool charged = Charge(gpu, more);
  const CUresult result = charged ? real(limit, value) : NotCharged(gpu, more);
  size_t is = was;
  Drv<Fn::cuCtxGetLimit>(&is, limit);
  const uint64_t before = kept.bytes + (charged ? more : 0);
  const uint64_t grown = is > was ? Times(is - was, times) : 0;
  const uint64_t shrunk = is < was ? Times(was - is, times) : 0;
  kept.bytes = kept.bytes + grown > shrunk ? kept.bytes + grown - shrunk : 0;
  if (before > kept.bytes) Credit(gpu, before - kept.bytes);
  if (before < kept.bytes) ChargeAnyway(gpu, kept.bytes - before);  // the driver rounds up
  if (kept.bytes > 0) Remember(key, kept);
  return result;
}

}  // namespace baton::hook
