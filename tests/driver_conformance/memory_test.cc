// Memory: plain, pitched, host, managed, from pools, and virtual.
#include <cstring>
#include <numeric>
#include <string>

#include "bench/kernels.h"
#include "tests/driver_conformance/driver.h"

namespace baton::conformance {
namespace {

using Memory = DriverTest;

std::vector<uint32_t> Count(size_t n) {
  std::vector<uint32_t> values(n);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

TEST_F(Memory, CopiesBothWaysAndBetween) {
  const std::vector<uint32_t> in = Count(100'000);
  CUdeviceptr a = Alloc(in.size() * 4), b = Alloc(in.size() * 4);
  EXPECT_OK(DRV(cuMemcpyHtoD)(a, in.data(), in.size() * 4));
  EXPECT_OK(DRV(cuMemcpyDtoD)(b, a, in.size() * 4));
  EXPECT_EQ(in, Read(b, in.size()));
  EXPECT_OK(DRV(cuMemsetD32)(b, 0, in.size()));
  EXPECT_OK(DRV(cuMemcpy)(b, a, in.size() * 4));
  EXPECT_EQ(in, Read(b, in.size()));
}

TEST_F(Memory, AsynchronousCopiesKeepTheirStreamsOrder) {
  CUstream stream = NewStream();
  constexpr size_t kWords = 50'000;
  void *in, *out;
  ASSERT_OK(DRV(cuMemAllocHost)(&in, kWords * 4));
  ASSERT_OK(DRV(cuMemAllocHost)(&out, kWords * 4));
  const std::vector<uint32_t> values = Count(kWords);
  std::memcpy(in, values.data(), kWords * 4);
  CUdeviceptr a = Alloc(kWords * 4), b = Alloc(kWords * 4);
  EXPECT_OK(DRV(cuMemcpyHtoDAsync)(a, in, kWords * 4, stream));
  EXPECT_OK(Add(a, kWords, 1, stream));
  EXPECT_OK(DRV(cuMemcpyDtoDAsync)(b, a, kWords * 4, stream));
  EXPECT_OK(DRV(cuMemcpyDtoHAsync)(out, b, kWords * 4, stream));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  for (size_t i = 0; i < kWords; ++i) {
    ASSERT_EQ(values[i] + 1, static_cast<uint32_t*>(out)[i]) << i;
  }
  EXPECT_OK(DRV(cuMemFreeHost)(in));
  EXPECT_OK(DRV(cuMemFreeHost)(out));
}

TEST_F(Memory, PageableSourcesMayBeReusedAtOnce) {
  int reads_pageable = 0;
  ASSERT_OK(DRV(cuDeviceGetAttribute)(&reads_pageable, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
                                      device_));
  if (reads_pageable) GTEST_SKIP() << "this device may read pageable memory where it lies";
  CUstream stream = NewStream();
  CUdeviceptr p = Alloc(4);
  EXPECT_OK(Spin(5'000'000, stream));
  uint32_t word = 6;
  EXPECT_OK(DRV(cuMemcpyHtoDAsync)(p, &word, 4, stream));
  word = 1;
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_EQ(6u, Read(p, 1)[0]);
}

TEST_F(Memory, SetsOfEveryWidth) {
  CUdeviceptr p = Alloc(32);
  EXPECT_OK(DRV(cuMemsetD8)(p, 0xab, 8));
  EXPECT_OK(DRV(cuMemsetD16)(p + 8, 0x1234, 4));
  EXPECT_OK(DRV(cuMemsetD32)(p + 16, 0xdeadbeef, 2));
  EXPECT_OK(DRV(cuMemsetD2D8)(p + 24, 4, 0x7f, 2, 2));
  EXPECT_EQ((std::vector<uint32_t>{0xabababab, 0xabababab, 0x12341234, 0x12341234, 0xdeadbeef,
                                   0xdeadbeef, 0x7f7f, 0x7f7f}),
            Read(p, 8));
}

TEST_F(Memory, RectanglesAreCopiedRowByRow) {
  CUdeviceptr p = 0;
  size_t pitch = 0;
  ASSERT_OK(DRV(cuMemAllocPitch)(&p, &pitch, 20, 3, 4));
  EXPECT_GE(pitch, 20u);
  const std::vector<uint32_t> in = Count(15);
  std::vector<uint32_t> out(15);
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = in.data();
  copy.srcPitch = 20;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = p;
  copy.dstPitch = pitch;
  copy.WidthInBytes = 20;
  copy.Height = 3;
  EXPECT_OK(DRV(cuMemcpy2D)(&copy));
  CUDA_MEMCPY2D back = {};
  back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  back.srcDevice = p;
  back.srcPitch = pitch;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = out.data();
  back.dstPitch = 20;
  back.WidthInBytes = 20;
  back.Height = 3;
  EXPECT_OK(DRV(cuMemcpy2D)(&back));
  EXPECT_EQ(in, out);
  EXPECT_OK(DRV(cuMemFree)(p));
}

TEST_F(Memory, MoreThanThereIsIsRefused) {
  size_t free = 0, total = 0;
  ASSERT_OK(DRV(cuMemGetInfo)(&free, &total));
  EXPECT_LE(free, total);
  CUdeviceptr p = 0;
  EXPECT_ERROR(CUDA_ERROR_OUT_OF_MEMORY, DRV(cuMemAlloc)(&p, total + (size_t{1} << 30)));
  EXPECT_ERROR(CUDA_ERROR_INVALID_VALUE, DRV(cuMemAlloc)(&p, 0));
  CUdeviceptr small = Alloc(1 << 20);
  EXPECT_NE(0u, small);
}

// Other programs on the GPU would disturb this one.
TEST_F(Memory, WhatIsAllocatedIsNoLongerFree) {
  size_t before = 0, during = 0, after = 0, total = 0;
  constexpr size_t kBytes = size_t{64} << 20;
  ASSERT_OK(DRV(cuMemGetInfo)(&before, &total));
  CUdeviceptr p;
  ASSERT_OK(DRV(cuMemAlloc)(&p, kBytes));
  ASSERT_OK(DRV(cuMemGetInfo)(&during, &total));
  EXPECT_LE(during + kBytes, before);
  EXPECT_OK(DRV(cuMemFree)(p));
  ASSERT_OK(DRV(cuMemGetInfo)(&after, &total));
  EXPECT_GT(after, during);
}

TEST_F(Memory, PointersTellWhatTheyAre) {
  CUdeviceptr p = Alloc(1000), base = 0;
  size_t size = 0;
  EXPECT_OK(DRV(cuMemGetAddressRange)(&base, &size, p + 10));
  EXPECT_EQ(p, base);
  EXPECT_GE(size, 1000u);
  unsigned int type = 0;
  EXPECT_OK(DRV(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
  EXPECT_EQ(static_cast<unsigned int>(CU_MEMORYTYPE_DEVICE), type);
  // Some systems let the device reach all host memory, and know it then.
  int on_stack = 0;
  type = 0;
  const CUresult result = DRV(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                     reinterpret_cast<CUdeviceptr>(&on_stack));
  if (result != CUDA_ERROR_INVALID_VALUE) {
    EXPECT_NE(static_cast<unsigned int>(CU_MEMORYTYPE_DEVICE), type);
  }
}

TEST_F(Memory, HostMemoryCanBeRegistered) {
  std::vector<unsigned char> pages(3 * 4096);
  auto* start = reinterpret_cast<unsigned char*>(
      (reinterpret_cast<uintptr_t>(pages.data()) + 4095) / 4096 * 4096);
  ASSERT_OK(DRV(cuMemHostRegister)(start, 4096, 0));
  EXPECT_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, DRV(cuMemHostRegister)(start, 4096, 0));
  EXPECT_OK(DRV(cuMemHostUnregister)(start));
  EXPECT_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, DRV(cuMemHostUnregister)(start));
}

TEST_F(Memory, ManagedMemoryIsSeenFromBothSides) {
  int supported = 0;
  ASSERT_OK(DRV(cuDeviceGetAttribute)(&supported, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, device_));
  if (!supported) GTEST_SKIP() << "no managed memory";
  CUdeviceptr p;
  ASSERT_OK(DRV(cuMemAllocManaged)(&p, 64, CU_MEM_ATTACH_GLOBAL));
  auto* words = reinterpret_cast<volatile uint32_t*>(p);
  for (int i = 0; i < 16; ++i) words[i] = 3;
  EXPECT_OK(Add(p, 16, 4, nullptr));
  EXPECT_OK(DRV(cuCtxSynchronize)());
  for (int i = 0; i < 16; ++i) EXPECT_EQ(7u, words[i]);
  EXPECT_OK(DRV(cuMemFree)(p));
}

TEST_F(Memory, StreamOrderedMemoryComesFromThePool) {
  int supported = 0;
  ASSERT_OK(
      DRV(cuDeviceGetAttribute)(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device_));
  if (!supported) GTEST_SKIP() << "no memory pools";
  CUstream stream = NewStream();
  CUmemoryPool pool;
  ASSERT_OK(DRV(cuDeviceGetDefaultMemPool)(&pool, device_));
  CUdeviceptr p = 0;
  ASSERT_OK(DRV(cuMemAllocAsync)(&p, 1 << 20, stream));
  EXPECT_OK(DRV(cuMemsetD32Async)(p, 11, 16, stream));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_EQ(std::vector<uint32_t>(16, 11), Read(p, 16));
  cuuint64_t used = 0, reserved = 0;
  EXPECT_OK(DRV(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_OK(DRV(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
  EXPECT_GE(used, 1u << 20);
  EXPECT_GE(reserved, used);
  EXPECT_OK(DRV(cuMemFreeAsync)(p, stream));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_OK(DRV(cuMemPoolTrimTo)(pool, 0));
  EXPECT_OK(DRV(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(0u, used);
}

TEST_F(Memory, APoolOfOnesOwn) {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device_;
  CUmemoryPool pool;
  ASSERT_OK(DRV(cuMemPoolCreate)(&pool, &properties));
  CUstream stream = NewStream();
  CUdeviceptr p;
  ASSERT_OK(DRV(cuMemAllocFromPoolAsync)(&p, 4096, pool, stream));
  EXPECT_OK(DRV(cuMemsetD8Async)(p, 1, 4096, stream));
  EXPECT_OK(DRV(cuMemFreeAsync)(p, stream));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_OK(DRV(cuMemPoolDestroy)(pool));
}

TEST_F(Memory, VirtualMemoryIsMappedWhereAskedAndTwice) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device_;
  size_t unit = 0;
  ASSERT_OK(DRV(cuMemGetAllocationGranularity)(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr at = 0;
  ASSERT_OK(DRV(cuMemAddressReserve)(&at, 2 * unit, 0, 0, 0));
  CUmemGenericAllocationHandle handle;
  ASSERT_OK(DRV(cuMemCreate)(&handle, unit, &prop, 0));
  ASSERT_OK(DRV(cuMemMap)(at, unit, 0, handle, 0));
  ASSERT_OK(DRV(cuMemMap)(at + unit, unit, 0, handle, 0));
  CUmemAccessDesc access = {};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  ASSERT_OK(DRV(cuMemSetAccess)(at, 2 * unit, &access, 1));
  EXPECT_OK(DRV(cuMemsetD32)(at, 123, 4));
  EXPECT_EQ(std::vector<uint32_t>(4, 123), Read(at + unit, 4));
  // A handle that was retained is to be released once more, before or after its mappings go.
  CUmemGenericAllocationHandle again = 0;
  EXPECT_OK(DRV(cuMemRetainAllocationHandle)(&again, reinterpret_cast<void*>(at + unit)));
  EXPECT_EQ(again, handle);
  EXPECT_OK(DRV(cuMemRelease)(again));
  EXPECT_OK(DRV(cuMemUnmap)(at, 2 * unit));
  EXPECT_OK(DRV(cuMemRelease)(handle));
  EXPECT_OK(DRV(cuMemAddressFree)(at, 2 * unit));
}

// What the device has less by `take`, and whether `give_back` returns it.
template <class Take, class GiveBack>
void ExpectTakes(size_t bytes, Take take, GiveBack give_back) {
  size_t before = 0, taken = 0, after = 0, total = 0;
  ASSERT_OK(DRV(cuMemGetInfo)(&before, &total));
  take();
  ASSERT_OK(DRV(cuMemGetInfo)(&taken, &total));
  EXPECT_GE(before, taken + bytes);
  give_back();
  ASSERT_OK(DRV(cuMemGetInfo)(&after, &total));
  EXPECT_GE(after, taken + bytes);
}

TEST_F(Memory, AVariableOfAModuleHasAnAddressAndItsSize) {
  const std::string ptx =
      std::string(bench::kKernelsPtx) + "\n.visible .global .align 4 .b8 words[64];\n";
  CUmodule module;
  ASSERT_OK(DRV(cuModuleLoadData)(&module, ptx.c_str()));
  CUdeviceptr p = 0;
  size_t bytes = 0;
  ASSERT_OK(DRV(cuModuleGetGlobal)(&p, &bytes, module, "words"));
  EXPECT_EQ(bytes, 64u);
  EXPECT_OK(DRV(cuMemsetD32)(p, 7, 16));
  EXPECT_EQ(std::vector<uint32_t>(16, 7), Read(p, 16));
  EXPECT_ERROR(CUDA_ERROR_NOT_FOUND, DRV(cuModuleGetGlobal)(&p, &bytes, module, "sentences"));
  EXPECT_OK(DRV(cuModuleUnload)(module));
}

TEST_F(Memory, ArraysTakeMemoryUntilTheyAreDestroyed) {
  constexpr size_t kSide = 4096;
  CUarray array = nullptr;
  const CUDA_ARRAY_DESCRIPTOR flat = {kSide, kSide, CU_AD_FORMAT_FLOAT, 1};
  ExpectTakes(
      kSide * kSide * 4, [&] { ASSERT_OK(DRV(cuArrayCreate)(&array, &flat)); },
      [&] { ASSERT_OK(DRV(cuArrayDestroy)(array)); });
  const CUDA_ARRAY3D_DESCRIPTOR deep = {256, 256, 256, CU_AD_FORMAT_FLOAT, 1, 0};
  ExpectTakes(
      256 * 256 * 256 * 4, [&] { ASSERT_OK(DRV(cuArray3DCreate)(&array, &deep)); },
      [&] { ASSERT_OK(DRV(cuArrayDestroy)(array)); });
  CUmipmappedArray levels = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR base = {kSide, kSide, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  ExpectTakes(
      kSide * kSide * 5, [&] { ASSERT_OK(DRV(cuMipmappedArrayCreate)(&levels, &base, 8)); },
      [&] { ASSERT_OK(DRV(cuMipmappedArrayDestroy)(levels)); });
}

TEST_F(Memory, AGraphTakesMemoryWhenItIsLaunchedAndTheDeviceKeepsItUntilATrim) {
  CUgraph graph;
  CUgraphNode node, free_node;
  CUgraphExec exec;
  CUDA_MEM_ALLOC_NODE_PARAMS params = {};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params.poolProps.location.id = device_;
  params.bytesize = 64 << 20;
  ASSERT_OK(DRV(cuGraphCreate)(&graph, 0));
  ASSERT_OK(DRV(cuGraphAddMemAllocNode)(&node, graph, nullptr, 0, &params));
  ASSERT_OK(DRV(cuGraphAddMemFreeNode)(&free_node, graph, &node, 1, params.dptr));
  ASSERT_OK(DRV(cuGraphInstantiateWithFlags)(&exec, graph, 0));
  CUstream stream = NewStream();
  const auto reserved = [&] {
    cuuint64_t bytes = 0;
    EXPECT_OK(
        DRV(cuDeviceGetGraphMemAttribute)(device_, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes));
    return bytes;
  };
  const cuuint64_t before = reserved();
  for (int i = 0; i < 2; ++i) {
    ExpectTakes(
        params.bytesize,
        [&] {
          ASSERT_OK(DRV(cuGraphLaunch)(exec, stream));
          ASSERT_OK(DRV(cuStreamSynchronize)(stream));
          EXPECT_GE(reserved(), before + params.bytesize);
        },
        [&] { ASSERT_OK(DRV(cuDeviceGraphMemTrim)(device_)); });
  }
  EXPECT_OK(DRV(cuGraphExecDestroy)(exec));
  EXPECT_OK(DRV(cuGraphDestroy)(graph));
}

}  // namespace
}  // namespace baton::conformance
