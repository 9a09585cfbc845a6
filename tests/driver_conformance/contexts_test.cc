// Devices, contexts and what an illegal address does to them.
#include <cstring>
#include <thread>

#include "bench/kernels.h"
#include "tests/driver_conformance/driver.h"

namespace baton::conformance {
namespace {

using Contexts = DriverTest;

TEST_F(Contexts, DevicesAnswerForThemselves) {
  int count = 0, value = 0;
  EXPECT_OK(DRV(cuDeviceGetCount)(&count));
  EXPECT_GE(count, 1);
  CUdevice none;
  EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, DRV(cuDeviceGet)(&none, count));
  EXPECT_ERROR(CUDA_ERROR_INVALID_DEVICE, DRV(cuDeviceGet)(&none, -1));
  char name[100] = "";
  EXPECT_OK(DRV(cuDeviceGetName)(name, sizeof(name), device_));
  EXPECT_GT(std::strlen(name), 0u);
  size_t bytes = 0;
  EXPECT_OK(DRV(cuDeviceTotalMem)(&bytes, device_));
  EXPECT_GT(bytes, size_t{1} << 28);
  EXPECT_OK(DRV(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device_));
  EXPECT_EQ(32, value);
  CUuuid a = {}, b = {};
  EXPECT_OK(DRV_AS(cuDeviceGetUuid, "cuDeviceGetUuid")(&a, device_));
  EXPECT_OK(DRV_AS(cuDeviceGetUuid, "cuDeviceGetUuid")(&b, device_));
  EXPECT_EQ(0, std::memcmp(&a, &b, sizeof(a)));
  int version = 0;
  EXPECT_OK(DRV(cuDriverGetVersion)(&version));
  EXPECT_GE(version, 11000);
}

TEST_F(Contexts, APrimaryContextIsCountedAndShared) {
  CUcontext again = nullptr;
  ASSERT_OK(DRV(cuDevicePrimaryCtxRetain)(&again, device_));
  EXPECT_EQ(context_, again);
  EXPECT_OK(DRV(cuDevicePrimaryCtxRelease)(device_));
  unsigned int flags;
  int active = 0;
  EXPECT_OK(DRV(cuDevicePrimaryCtxGetState)(device_, &flags, &active));
  EXPECT_EQ(1, active);
  CUstream stream = NewStream();
  EXPECT_OK(Spin(1000, stream));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
}

TEST_F(Contexts, AfterAResetThePrimaryContextIsMadeAnew) {
  CUdeviceptr p;
  ASSERT_OK(DRV(cuMemAlloc)(&p, 64));
  EXPECT_OK(DRV(cuDevicePrimaryCtxReset)(device_));
  module_ = nullptr;  // gone with all that was in it
  ASSERT_OK(DRV(cuDevicePrimaryCtxRetain)(&context_, device_));
  ASSERT_OK(DRV(cuCtxSetCurrent)(context_));
  ASSERT_OK(DRV(cuMemAlloc)(&p, 64));
  EXPECT_OK(DRV(cuMemsetD32)(p, 3, 16));
  EXPECT_EQ(std::vector<uint32_t>(16, 3), Read(p, 16));
  EXPECT_OK(DRV(cuMemFree)(p));
  CUmodule module;
  ASSERT_OK(DRV(cuModuleLoadData)(&module, bench::kKernelsPtx));
  EXPECT_OK(DRV(cuModuleGetFunction)(&spin_, module, "baton_spin"));
  CUstream stream = NewStream();
  EXPECT_OK(Spin(1000, stream));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_OK(DRV(cuModuleUnload)(module));
  // The reset was no release: the first use is still counted.
  EXPECT_OK(DRV(cuDevicePrimaryCtxRelease)(device_));
  EXPECT_OK(DRV(cuCtxSynchronize)());
}

TEST_F(Contexts, TheStackOfContextsIsEachThreadsOwn) {
  CUcontext made = nullptr, current = nullptr, popped = nullptr;
  ASSERT_OK(CreateContext(&made, device_));
  EXPECT_OK(DRV(cuCtxGetCurrent)(&current));
  EXPECT_EQ(made, current);
  std::thread([&] {
    CUcontext other = made;
    EXPECT_OK(DRV(cuCtxGetCurrent)(&other));
    EXPECT_EQ(nullptr, other);
    CUdevice device;
    EXPECT_ERROR(CUDA_ERROR_INVALID_CONTEXT, DRV(cuCtxGetDevice)(&device));
    CUdeviceptr p;
    EXPECT_ERROR(CUDA_ERROR_INVALID_CONTEXT, DRV(cuMemAlloc)(&p, 16));
  }).join();
  EXPECT_OK(DRV(cuCtxPopCurrent)(&popped));
  EXPECT_EQ(made, popped);
  EXPECT_OK(DRV(cuCtxGetCurrent)(&current));
  EXPECT_EQ(context_, current);
  EXPECT_OK(DRV(cuCtxPushCurrent)(made));
  CUdevice device = -1;
  EXPECT_OK(DRV(cuCtxGetDevice)(&device));
  EXPECT_EQ(device_, device);
  EXPECT_OK(DRV(cuCtxDestroy)(made));
  EXPECT_OK(DRV(cuCtxGetCurrent)(&current));
  EXPECT_EQ(context_, current);
}

TEST_F(Contexts, TwoContextsOfOneProcessBothComputeRightResults) {
  CUdeviceptr p = Alloc(1024 * 4);
  CUcontext made = nullptr;
  ASSERT_OK(CreateContext(&made, device_));
  CUdeviceptr q;
  EXPECT_OK(DRV(cuMemAlloc)(&q, 1024 * 4));
  EXPECT_OK(DRV(cuMemsetD32)(q, 7, 1024));
  std::vector<uint32_t> values(1024);
  EXPECT_OK(DRV(cuMemcpyDtoH)(values.data(), q, 4096));
  EXPECT_EQ(std::vector<uint32_t>(1024, 7), values);
  CUcontext popped = nullptr;
  EXPECT_OK(DRV(cuCtxPopCurrent)(&popped));
  EXPECT_OK(Add(p, 1024, 5, nullptr));
  EXPECT_EQ(std::vector<uint32_t>(1024, 5), Read(p, 1024));
  EXPECT_OK(DRV(cuCtxDestroy)(made));
}

TEST_F(Contexts, EveryDeviceWorks) {
  int count = 0;
  ASSERT_OK(DRV(cuDeviceGetCount)(&count));
  for (int i = 0; i < count; ++i) {
    CUcontext ctx = nullptr;
    ASSERT_OK(CreateContext(&ctx, i));
    CUdevice device = -1;
    EXPECT_OK(DRV(cuCtxGetDevice)(&device));
    EXPECT_EQ(i, device);
    CUdeviceptr p;
    EXPECT_OK(DRV(cuMemAlloc)(&p, 64));
    EXPECT_OK(DRV(cuMemsetD32)(p, 3u + static_cast<unsigned int>(i), 16));
    uint32_t word = 0;
    EXPECT_OK(DRV(cuMemcpyDtoH)(&word, p, 4));
    EXPECT_EQ(3u + static_cast<uint32_t>(i), word);
    EXPECT_OK(DRV(cuMemFree)(p));
    EXPECT_OK(DRV(cuCtxDestroy)(ctx));
  }
}

TEST_F(Contexts, APriorityRangeIsGiven) {
  int least = 0, greatest = 0;
  EXPECT_OK(DRV(cuCtxGetStreamPriorityRange)(&least, &greatest));
  EXPECT_LE(greatest, least);
  CUstream stream;
  ASSERT_OK(DRV(cuStreamCreateWithPriority)(&stream, CU_STREAM_NON_BLOCKING, greatest));
  int priority = 1;
  unsigned int flags = 0;
  EXPECT_OK(DRV(cuStreamGetPriority)(stream, &priority));
  EXPECT_EQ(greatest, priority);
  EXPECT_OK(DRV(cuStreamGetFlags)(stream, &flags));
  EXPECT_EQ(static_cast<unsigned int>(CU_STREAM_NON_BLOCKING), flags);
  EXPECT_OK(DRV(cuStreamDestroy)(stream));
}

// In a process of its own: afterwards a real driver lets it do nothing more.
TEST_F(Contexts, AnIllegalAddressSticksToItsContext) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        CUresult launched =
            DRV(cuLaunchKernel)(fault_, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
        CUresult synchronized = DRV(cuCtxSynchronize)();
        CUdeviceptr p;
        CUresult after = DRV(cuMemAlloc)(&p, 16);
        const bool right = launched == CUDA_SUCCESS && synchronized == CUDA_ERROR_ILLEGAL_ADDRESS &&
                           after == CUDA_ERROR_ILLEGAL_ADDRESS;
        _exit(right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace baton::conformance
