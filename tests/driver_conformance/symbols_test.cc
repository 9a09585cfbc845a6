// cuGetProcAddress: by version and by default stream.
#include <cstdlib>
#include <cstring>

#include "tests/driver_conformance/driver.h"

namespace baton::conformance {
namespace {

class Symbols : public DriverTest {
 protected:
  // The first generation, which every driver since 11.3 exports.
  void* Ask(const char* name, int version, cuuint64_t flags, CUresult* result = nullptr) {
    using First = CUresult (*)(const char*, void**, int, cuuint64_t);
    static auto first = reinterpret_cast<First>(NeedSymbol("cuGetProcAddress"));
    void* symbol = nullptr;
    const CUresult r = first(name, &symbol, version, flags);
    if (result != nullptr) *result = r;
    return symbol;
  }
  uint32_t LaunchThrough(void* launch) {
    CUdeviceptr p = Alloc(4);
    uint32_t n = 1, v = 5;
    void* params[] = {&p, &n, &v};
    EXPECT_OK(reinterpret_cast<decltype(&cuLaunchKernel)>(launch)(add_, 1, 1, 1, 1, 1, 1, 0,
                                                                  nullptr, params, nullptr));
    EXPECT_OK(DRV(cuCtxSynchronize)());
    return Read(p, 1)[0];
  }
};

TEST_F(Symbols, AreFoundByVersion) {
  void* first = Ask("cuMemAlloc", 2000, 0);
  void* second = Ask("cuMemAlloc", 3020, 0);
  ASSERT_NE(nullptr, second);
  EXPECT_NE(first, second);
  CUdeviceptr p = 0;
  EXPECT_OK(reinterpret_cast<decltype(&cuMemAlloc)>(second)(&p, 4096));
  EXPECT_OK(reinterpret_cast<decltype(&cuMemFree)>(Ask("cuMemFree", 11000, 0))(p));
}

TEST_F(Symbols, DistinguishTheDefaultStreams) {
  void* legacy = Ask("cuLaunchKernel", 11030, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
  void* per_thread = Ask("cuLaunchKernel", 11030, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  ASSERT_NE(nullptr, legacy);
  ASSERT_NE(nullptr, per_thread);
  EXPECT_NE(legacy, per_thread);
  EXPECT_EQ(5u, LaunchThrough(legacy));
  EXPECT_EQ(5u, LaunchThrough(per_thread));
  // What has no per-thread form is found all the same.
  EXPECT_NE(nullptr, Ask("cuMemAlloc", 11030, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
}

TEST_F(Symbols, OfNewerVersionsThanTheDriverAreNotAnswered) {
  setenv("BATON_SIM_DRIVER_VERSION", "12020", 1);  // a real driver does not mind
  int version = 0;
  ASSERT_OK(DRV(cuDriverGetVersion)(&version));
  CUresult result = CUDA_SUCCESS;
  void* const newest = Ask("cuEventElapsedTime", 13000, 0, &result);
  if (result == CUDA_SUCCESS) {
    EXPECT_EQ(newest, Ask("cuEventElapsedTime", version, 0));
  }
  unsetenv("BATON_SIM_DRIVER_VERSION");
}

// In the headers of CUDA 12 that name stands for the function of three arguments. Drivers find that
// one by its own name alone: an NVIDIA driver 580 does so for every version asked for.
TEST_F(Symbols, InstantiateTakesFiveArgumentsInEveryVersion) {
  void* const five = Ask("cuGraphInstantiate", 11000, 0);
  EXPECT_EQ(five, NeedSymbol("cuGraphInstantiate_v2"));
  int version = 0;
  ASSERT_OK(DRV(cuDriverGetVersion)(&version));
  EXPECT_EQ(five, Ask("cuGraphInstantiate", version, 0));
  EXPECT_NE(five, Ask("cuGraphInstantiateWithFlags", version, 0));
}

TEST_F(Symbols, UnknownNamesAreNotFound) {
  CUresult result = CUDA_SUCCESS;
  EXPECT_EQ(nullptr, Ask("cuNoSuchFunction", 11030, 0, &result));
  EXPECT_ERROR(CUDA_ERROR_NOT_FOUND, result);
}

TEST_F(Symbols, TheSecondGenerationTellsWhy) {
  using Second = CUresult (*)(const char*, void**, int, cuuint64_t, int*);
  auto second = reinterpret_cast<Second>(FindSymbol("cuGetProcAddress_v2"));
  if (second == nullptr) GTEST_SKIP() << "a driver before CUDA 12";
  void* symbol = nullptr;
  int status = -1;
  EXPECT_OK(second("cuLaunchKernel", &symbol, 12000, 0, &status));
  EXPECT_EQ(0, status);
  EXPECT_EQ(5u, LaunchThrough(symbol));
  second("cuNoSuchFunction", &symbol, 12000, 0, &status);
  EXPECT_EQ(nullptr, symbol);
  EXPECT_EQ(1, status);
  second("cuLaunchKernelEx", &symbol, 8000, 0, &status);
  EXPECT_EQ(nullptr, symbol);
  EXPECT_EQ(2, status);
  // Asked for itself, it gives what works like itself.
  EXPECT_OK(second("cuGetProcAddress", &symbol, 12000, 0, &status));
  ASSERT_NE(nullptr, symbol);
  void* again = nullptr;
  EXPECT_OK(reinterpret_cast<Second>(symbol)("cuStreamSynchronize", &again, 12000, 0, &status));
  EXPECT_NE(nullptr, again);
}

TEST_F(Symbols, OldAndNewSpellingsAreExported) {
  for (const char* name : {"cuMemAlloc",
                           "cuMemAlloc_v2",
                           "cuMemFree_v2",
                           "cuMemcpyHtoD_v2",
                           "cuMemcpyHtoD_v2_ptds",
                           "cuMemcpyHtoDAsync_v2_ptsz",
                           "cuMemsetD32_v2_ptds",
                           "cuMemsetD32Async_ptsz",
                           "cuCtxCreate_v2",
                           "cuCtxDestroy_v2",
                           "cuStreamDestroy_v2",
                           "cuEventDestroy_v2",
                           "cuLaunchKernel_ptsz",
                           "cuLaunchCooperativeKernel_ptsz",
                           "cuStreamSynchronize_ptsz",
                           "cuStreamQuery_ptsz",
                           "cuStreamWaitEvent_ptsz",
                           "cuEventRecord_ptsz",
                           "cuGraphLaunch_ptsz",
                           "cuStreamBeginCapture_v2_ptsz",
                           "cuMemAllocAsync_ptsz",
                           "cuMemFreeAsync_ptsz",
                           "cuGetExportTable"}) {
    EXPECT_NE(nullptr, FindSymbol(name)) << name;
  }
}

}  // namespace
}  // namespace baton::conformance
