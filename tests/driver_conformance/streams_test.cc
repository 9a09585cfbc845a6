// Order between and inside streams, events, host functions, and waits for values.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/driver_conformance/driver.h"

namespace baton::conformance {
namespace {

using Streams = DriverTest;
constexpr uint64_t kMs = 1'000'000;

TEST_F(Streams, AreNotReadyUntilTheirWorkIsDone) {
  CUstream stream = NewStream();
  EXPECT_OK(DRV(cuStreamQuery)(stream));
  EXPECT_OK(Spin(50 * kMs, stream));
  EXPECT_ERROR(CUDA_ERROR_NOT_READY, DRV(cuStreamQuery)(stream));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_OK(DRV(cuStreamQuery)(stream));
}

TEST_F(Streams, EventsTimeWhatLiesBetweenThem) {
  CUstream stream = NewStream();
  CUevent before = NewEvent(), after = NewEvent();
  EXPECT_OK(DRV(cuEventRecord)(before, stream));
  EXPECT_OK(Spin(20 * kMs, stream));
  EXPECT_OK(DRV(cuEventRecord)(after, stream));
  EXPECT_ERROR(CUDA_ERROR_NOT_READY, DRV(cuEventQuery)(after));
  float ms = 0;
  EXPECT_ERROR(CUDA_ERROR_NOT_READY,
               DRV_AS(cuEventElapsedTime, "cuEventElapsedTime")(&ms, before, after));
  EXPECT_OK(DRV(cuEventSynchronize)(after));
  EXPECT_OK(DRV(cuEventQuery)(after));
  EXPECT_OK(DRV_AS(cuEventElapsedTime, "cuEventElapsedTime")(&ms, before, after));
  EXPECT_GE(ms, 19.9f);
}

TEST_F(Streams, AnEventThatWasNeverRecordedIsComplete) {
  CUevent event = NewEvent();
  EXPECT_OK(DRV(cuEventQuery)(event));
  EXPECT_OK(DRV(cuEventSynchronize)(event));
  EXPECT_OK(DRV(cuStreamWaitEvent)(NewStream(), event, 0));
}

TEST_F(Streams, EventsWithoutTimingDoNotTellTimes) {
  CUevent event = NewEvent(CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
  EXPECT_OK(DRV(cuEventRecord)(event, nullptr));
  EXPECT_OK(DRV(cuEventSynchronize)(event));
  float ms;
  EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE,
               DRV_AS(cuEventElapsedTime, "cuEventElapsedTime")(&ms, event, event));
}

TEST_F(Streams, AStreamWaitsForAnothersEvent) {
  CUdeviceptr p = Alloc(4);
  CUstream first = NewStream(), second = NewStream();
  CUevent event = NewEvent(CU_EVENT_DISABLE_TIMING);
  EXPECT_OK(Spin(20 * kMs, first));
  EXPECT_OK(DRV(cuMemsetD32Async)(p, 41, 1, first));
  EXPECT_OK(DRV(cuEventRecord)(event, first));
  EXPECT_OK(DRV(cuStreamWaitEvent)(second, event, 0));
  EXPECT_OK(Add(p, 1, 1, second));
  EXPECT_OK(DRV(cuStreamSynchronize)(second));
  EXPECT_EQ(42u, Read(p, 1)[0]);
}

TEST_F(Streams, TheLegacyStreamFollowsBlockingOnesAndHoldsThemBack) {
  CUdeviceptr p = Alloc(4);
  CUstream stream = NewStream(CU_STREAM_DEFAULT);
  EXPECT_OK(Spin(20 * kMs, stream));
  EXPECT_OK(DRV(cuMemsetD32Async)(p, 10, 1, stream));
  EXPECT_OK(Add(p, 1, 1, nullptr));
  EXPECT_OK(Add(p, 1, 1, stream));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_EQ(12u, Read(p, 1)[0]);
}

TEST_F(Streams, TheLegacyStreamDoesNotWaitForNonBlockingOnes) {
  CUstream stream = NewStream(CU_STREAM_NON_BLOCKING);
  EXPECT_OK(DRV(cuStreamSynchronize)(nullptr));
  CUdeviceptr flag;
  void* host;
  ASSERT_OK(DRV(cuMemHostAlloc)(&host, 4, CU_MEMHOSTALLOC_DEVICEMAP));
  *static_cast<volatile uint32_t*>(host) = 0;
  ASSERT_OK(DRV(cuMemHostGetDevicePointer)(&flag, host, 0));
  EXPECT_OK(DRV(cuStreamWaitValue32)(stream, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_OK(DRV(cuStreamSynchronize)(nullptr));
  EXPECT_ERROR(CUDA_ERROR_NOT_READY, DRV(cuStreamQuery)(stream));
  *static_cast<volatile uint32_t*>(host) = 1;
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_OK(DRV(cuMemFreeHost)(host));
}

TEST_F(Streams, WorkOfADestroyedStreamGoesOn) {
  CUdeviceptr p = Alloc(4);
  CUstream stream;
  ASSERT_OK(DRV(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT_OK(Spin(10 * kMs, stream));
  EXPECT_OK(Add(p, 1, 8, stream));
  EXPECT_OK(DRV(cuStreamDestroy)(stream));
  EXPECT_OK(DRV(cuCtxSynchronize)());
  EXPECT_EQ(8u, Read(p, 1)[0]);
}

TEST_F(Streams, EachThreadHasADefaultStreamOfItsOwn) {
  CUdeviceptr p = Alloc(8);
  const auto work = [&](CUdeviceptr at, uint32_t v) {
    EXPECT_OK(DRV(cuCtxSetCurrent)(context_));
    uint32_t n = 1;
    void* params[] = {&at, &n, &v};
    for (int i = 0; i < 50; ++i) {
      EXPECT_OK(DRV_AS(cuLaunchKernel, "cuLaunchKernel_ptsz")(add_, 1, 1, 1, 1, 1, 1, 0, nullptr,
                                                              params, nullptr));
    }
    EXPECT_OK(DRV_AS(cuStreamSynchronize, "cuStreamSynchronize_ptsz")(nullptr));
  };
  std::thread one(work, p, 1), two(work, p + 4, 2);
  one.join();
  two.join();
  EXPECT_EQ((std::vector<uint32_t>{50, 100}), Read(p, 2));
}

TEST_F(Streams, HostFunctionsRunInTheirStreamsOrder) {
  CUstream stream = NewStream();
  CUdeviceptr p = Alloc(4);
  static std::atomic<int> order;
  order = 0;
  EXPECT_OK(Spin(10 * kMs, stream));
  EXPECT_OK(DRV(cuLaunchHostFunc)(
      stream,
      [](void*) {
        int expected = 0;
        order.compare_exchange_strong(expected, 1);
      },
      nullptr));
  EXPECT_OK(Add(p, 1, 1, stream));
  EXPECT_OK(DRV(cuLaunchHostFunc)(
      stream,
      [](void*) {
        int expected = 1;
        order.compare_exchange_strong(expected, 2);
      },
      nullptr));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_EQ(2, order.load());
}

TEST_F(Streams, CallbacksAreTold) {
  CUstream stream = NewStream();
  static std::atomic<int> told;
  told = -1;
  EXPECT_OK(Spin(kMs, stream));
  EXPECT_OK(DRV(cuStreamAddCallback)(
      stream, [](CUstream, CUresult status, void*) { told = static_cast<int>(status); }, nullptr,
      0));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_EQ(0, told.load());
}

TEST_F(Streams, AStreamWaitsForAValueThatAnotherWrites) {
  CUdeviceptr p = Alloc(16);
  CUstream waits = NewStream(), writes = NewStream();
  EXPECT_OK(DRV(cuStreamWaitValue32)(waits, p, 5, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_OK(DRV(cuMemsetD32Async)(p + 8, 77, 1, waits));
  EXPECT_ERROR(CUDA_ERROR_NOT_READY, DRV(cuStreamQuery)(waits));
  EXPECT_OK(Spin(5 * kMs, writes));
  EXPECT_OK(DRV(cuStreamWriteValue32)(writes, p, 5, CU_STREAM_WRITE_VALUE_DEFAULT));
  EXPECT_OK(DRV(cuStreamSynchronize)(waits));
  EXPECT_EQ(77u, Read(p, 4)[2]);
}

TEST_F(Streams, KernelsMayWaitForOneAnother) {
  CUdeviceptr p = Alloc(4);
  CUstream waits = NewStream(), stores = NewStream();
  uint32_t v = 1;
  void* wait_params[] = {&p, &v};
  EXPECT_OK(DRV(cuLaunchKernel)(spin_wait_, 1, 1, 1, 1, 1, 1, 0, waits, wait_params, nullptr));
  EXPECT_OK(DRV(cuStreamWriteValue32)(stores, p, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  EXPECT_OK(DRV(cuStreamSynchronize)(waits));
}

TEST_F(Streams, AStoreToMappedMemoryIsSeenByAPollingHost) {
  CUstream stream = NewStream();
  void* host;
  CUdeviceptr flag;
  ASSERT_OK(DRV(cuMemHostAlloc)(&host, 4, CU_MEMHOSTALLOC_DEVICEMAP));
  *static_cast<volatile uint32_t*>(host) = 0;
  ASSERT_OK(DRV(cuMemHostGetDevicePointer)(&flag, host, 0));
  uint64_t ns = kMs;
  uint32_t v = 9;
  void* params[] = {&ns, &flag, &v};
  EXPECT_OK(DRV(cuLaunchKernel)(spin_store_, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (*static_cast<volatile uint32_t*>(host) != 9) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::yield();
  }
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_OK(DRV(cuMemFreeHost)(host));
}

TEST_F(Streams, TellTheirContext) {
  CUcontext context = nullptr;
  EXPECT_OK(DRV_AS(cuStreamGetCtx, "cuStreamGetCtx")(NewStream(), &context));
  EXPECT_EQ(context_, context);
}

TEST_F(Streams, ManyThreadsLaunchAndWaitAtOnce) {
  CUdeviceptr p = Alloc(8 * 4);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 8; ++t) {
    threads.emplace_back([this, p, t] {
      EXPECT_OK(DRV(cuCtxSetCurrent)(context_));
      CUstream stream;
      ASSERT_OK(DRV(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
      for (int i = 0; i < 200; ++i) {
        ASSERT_OK(Add(p + 4 * t, 1, 1, stream));
        if (i % 20 == 0) {
          ASSERT_OK(DRV(cuStreamSynchronize)(stream));
        }
      }
      EXPECT_OK(DRV(cuStreamSynchronize)(stream));
      EXPECT_OK(DRV(cuStreamDestroy)(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::vector<uint32_t>(8, 200), Read(p, 8));
}

}  // namespace
}  // namespace baton::conformance
