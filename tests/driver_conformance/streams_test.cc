// Order between and inside streams, events, host functions, and waits for values.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/driver_conformance/driver.h"

namespace baton::conformance {
namespace {

using Streams = DriverTest;
constexpr uint64_t kMs = 1'000'000;

// A word of host memory that the device reads and writes too. What still waits for it when it goes
// is let run out.
class Word {
 public:
  Word() {
    EXPECT_OK(DRV(cuMemHostAlloc)(&host_, 4, CU_MEMHOSTALLOC_DEVICEMAP));
    EXPECT_OK(DRV(cuMemHostGetDevicePointer)(&device_, host_, 0));
    Store(0);
  }
  ~Word() {
    Store(UINT32_MAX / 2);
    EXPECT_OK(DRV(cuCtxSynchronize)());
    EXPECT_OK(DRV(cuMemFreeHost)(host_));
  }
  Word(const Word&) = delete;
  Word& operator=(const Word&) = delete;
  CUdeviceptr device() const { return device_; }
  uint32_t Load() const { return *static_cast<volatile uint32_t*>(host_); }
  void Store(uint32_t value) { *static_cast<volatile uint32_t*>(host_) = value; }

 private:
  void* host_ = nullptr;
  CUdeviceptr device_ = 0;
};

// Waits for a value and writes of one, by a stream. Headers before CUDA 12 mean the first
// generation by the plain names, which drivers leave disabled; the second (11.7) is asked for by
// its own.
class StreamValues : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    wait_ = reinterpret_cast<Op>(FindSymbol("cuStreamWaitValue32_v2"));
    write_ = reinterpret_cast<Op>(FindSymbol("cuStreamWriteValue32_v2"));
    if (wait_ == nullptr || write_ == nullptr) GTEST_SKIP() << "a driver before CUDA 11.7";
  }
  using Op = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int);
  Op wait_ = nullptr, write_ = nullptr;
};

// Whether the stream's work ends within 20 s.
bool EndsInTime(CUstream stream) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (DRV(cuStreamQuery)(stream) == CUDA_ERROR_NOT_READY) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

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
  // The kernel spins by a clock that on some cards moves once a millisecond.
  EXPECT_GE(ms, 18.9f);
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

// A time asked for without a current context may be refused: its documentation lists that error,
// that of the query does not.
TEST_F(Streams, EventsAreAskedFromAThreadWithoutAContext) {
  CUstream stream = NewStream();
  CUevent before = NewEvent(), after = NewEvent();
  EXPECT_OK(DRV(cuEventRecord)(before, stream));
  EXPECT_OK(Spin(50 * kMs, stream));
  EXPECT_OK(DRV(cuEventRecord)(after, stream));
  std::thread([&] {
    CUcontext current = context_;
    EXPECT_OK(DRV(cuCtxGetCurrent)(&current));
    EXPECT_EQ(nullptr, current);
    EXPECT_ERROR(CUDA_ERROR_NOT_READY, DRV(cuEventQuery)(after));
    EXPECT_OK(DRV(cuEventSynchronize)(after));
    EXPECT_OK(DRV(cuEventQuery)(after));
    float ms = 0;
    const CUresult timed = DRV_AS(cuEventElapsedTime, "cuEventElapsedTime")(&ms, before, after);
    EXPECT_EITHER(CUDA_SUCCESS, CUDA_ERROR_INVALID_CONTEXT, timed);
    std::printf("cuEventElapsedTime without a context: %s\n", ErrorName(timed));
    if (timed == CUDA_SUCCESS) {
      EXPECT_GE(ms, 48.9f);
    }
    EXPECT_OK(DRV(cuCtxGetCurrent)(&current));
    EXPECT_EQ(nullptr, current);
  }).join();
}

TEST_F(Streams, AnEventOutlivesItsStream) {
  CUstream stream;
  ASSERT_OK(DRV(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  CUevent event = NewEvent(CU_EVENT_DISABLE_TIMING);
  CUdeviceptr p = Alloc(4);
  EXPECT_OK(Spin(50 * kMs, stream));
  EXPECT_OK(Add(p, 1, 5, stream));
  EXPECT_OK(DRV(cuEventRecord)(event, stream));
  EXPECT_OK(DRV(cuStreamDestroy)(stream));
  EXPECT_ERROR(CUDA_ERROR_NOT_READY, DRV(cuEventQuery)(event));
  CUstream follows = NewStream();
  EXPECT_OK(DRV(cuStreamWaitEvent)(follows, event, 0));
  EXPECT_OK(Add(p, 1, 2, follows));
  EXPECT_OK(DRV(cuEventSynchronize)(event));
  EXPECT_OK(DRV(cuEventQuery)(event));
  EXPECT_OK(DRV(cuStreamSynchronize)(follows));
  EXPECT_EQ(7u, Read(p, 1)[0]);
}

TEST_F(Streams, ARecordReplacesWhatAPendingEventStoodFor) {
  CUdeviceptr p = Alloc(4);
  CUstream slow = NewStream(), follows = NewStream(), idle = NewStream();
  CUevent event = NewEvent(CU_EVENT_DISABLE_TIMING);
  EXPECT_OK(Spin(100 * kMs, slow));
  EXPECT_OK(DRV(cuMemsetD32Async)(p, 41, 1, slow));
  EXPECT_OK(DRV(cuEventRecord)(event, slow));
  EXPECT_OK(DRV(cuStreamWaitEvent)(follows, event, 0));
  EXPECT_OK(Add(p, 1, 1, follows));
  EXPECT_ERROR(CUDA_ERROR_NOT_READY, DRV(cuEventQuery)(event));
  EXPECT_OK(DRV(cuEventRecord)(event, idle));
  EXPECT_OK(DRV(cuEventSynchronize)(event));
  EXPECT_ERROR(CUDA_ERROR_NOT_READY, DRV(cuStreamQuery)(slow));
  // Who waited for the event before still waits for what it stood for then.
  EXPECT_OK(DRV(cuStreamSynchronize)(follows));
  EXPECT_EQ(42u, Read(p, 1)[0]);
}

TEST_F(Streams, AnEventIsRecordedInItsOwnContextOnly) {
  CUcontext made = nullptr, popped = nullptr;
  ASSERT_OK(CreateContext(&made, device_));
  CUevent foreign;
  ASSERT_OK(DRV(cuEventCreate)(&foreign, CU_EVENT_DEFAULT));
  EXPECT_OK(DRV(cuCtxPopCurrent)(&popped));
  CUstream stream = NewStream();
  EXPECT_ERROR(CUDA_ERROR_INVALID_HANDLE, DRV(cuEventRecord)(foreign, stream));
  // But a stream may wait for another context's.
  EXPECT_OK(DRV(cuStreamWaitEvent)(stream, foreign, 0));
  EXPECT_OK(DRV(cuEventDestroy)(foreign));
  EXPECT_OK(DRV(cuCtxDestroy)(made));
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

TEST_F(StreamValues, TheLegacyStreamDoesNotWaitForNonBlockingOnes) {
  CUstream stream = NewStream(CU_STREAM_NON_BLOCKING);
  EXPECT_OK(DRV(cuStreamSynchronize)(nullptr));
  Word flag;
  EXPECT_OK(wait_(stream, flag.device(), 1, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_OK(DRV(cuStreamSynchronize)(nullptr));
  EXPECT_ERROR(CUDA_ERROR_NOT_READY, DRV(cuStreamQuery)(stream));
  flag.Store(1);
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
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

// The driver does not see this order, and may put the streams' work one after the other as it was
// submitted: so the write comes first.
TEST_F(StreamValues, AStreamWaitsForAValueThatAnotherWrites) {
  CUdeviceptr p = Alloc(16);
  CUstream waits = NewStream(), writes = NewStream();
  EXPECT_OK(Spin(50 * kMs, writes));
  EXPECT_OK(write_(writes, p, 5, CU_STREAM_WRITE_VALUE_DEFAULT));
  EXPECT_OK(wait_(waits, p, 5, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_OK(DRV(cuMemsetD32Async)(p + 8, 77, 1, waits));
  EXPECT_ERROR(CUDA_ERROR_NOT_READY, DRV(cuStreamQuery)(waits));
  EXPECT_OK(DRV(cuStreamSynchronize)(waits));
  EXPECT_EQ(77u, Read(p, 4)[2]);
}

// Not promised of every launch, but of a device that runs kernels concurrently: programs rely on it
// for small ones. Each is launched once before, as a driver may load it only then, and wait for all
// that runs.
TEST_F(Streams, AKernelThatWaitsForAFlagAndTheOneThatSetsItBothEnd) {
  int concurrent = 0;
  ASSERT_OK(
      DRV(cuDeviceGetAttribute)(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, device_));
  if (!concurrent) GTEST_SKIP() << "no concurrent kernels";
  CUstream waits = NewStream(), stores = NewStream();
  CUdeviceptr counter = Alloc(4);
  Word word;
  CUdeviceptr flag = word.device();
  for (uint32_t value : {0u, 1u}) {
    uint64_t ns = kMs;
    void* wait_params[] = {&flag, &value};
    void* store_params[] = {&ns, &flag, &value};
    EXPECT_OK(DRV(cuLaunchKernel)(spin_wait_, 1, 1, 1, 1, 1, 1, 0, waits, wait_params, nullptr));
    EXPECT_OK(Add(counter, 1, 1, stores));
    EXPECT_OK(DRV(cuLaunchKernel)(spin_store_, 1, 1, 1, 1, 1, 1, 0, stores, store_params, nullptr));
    ASSERT_TRUE(EndsInTime(waits));
    ASSERT_TRUE(EndsInTime(stores));
  }
  EXPECT_EQ(1u, word.Load());
  EXPECT_EQ(2u, Read(counter, 1)[0]);
}

TEST_F(StreamValues, AKernelWaitsForAStreamsWrite) {
  CUstream waits = NewStream(), writes = NewStream();
  Word word;
  CUdeviceptr flag = word.device();
  uint32_t v = 1;
  void* params[] = {&flag, &v};
  EXPECT_OK(DRV(cuLaunchKernel)(spin_wait_, 1, 1, 1, 1, 1, 1, 0, waits, params, nullptr));
  EXPECT_OK(write_(writes, flag, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  EXPECT_TRUE(EndsInTime(waits));
}

TEST_F(Streams, AStoreToMappedMemoryIsSeenByAPollingHost) {
  CUstream stream = NewStream();
  Word word;
  CUdeviceptr flag = word.device();
  uint64_t ns = kMs;
  uint32_t v = 9;
  void* params[] = {&ns, &flag, &v};
  EXPECT_OK(DRV(cuLaunchKernel)(spin_store_, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (word.Load() != 9) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::yield();
  }
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
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
