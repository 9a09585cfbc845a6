// Every way to launch a kernel.
#include <cstring>

#include "bench/kernels.h"
#include "tests/driver_conformance/driver.h"

namespace baton::conformance {
namespace {

using Launches = DriverTest;

TEST_F(Launches, PlainInEverySpellingOfTheStream) {
  CUdeviceptr p = Alloc(64);
  CUstream stream = NewStream();
  EXPECT_OK(Add(p, 16, 1, stream));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_OK(Add(p, 16, 1, nullptr));
  EXPECT_OK(Add(p, 16, 1, CU_STREAM_LEGACY));
  EXPECT_OK(DRV(cuStreamSynchronize)(nullptr));
  EXPECT_OK(Add(p, 16, 1, CU_STREAM_PER_THREAD));
  EXPECT_OK(DRV(cuStreamSynchronize)(CU_STREAM_PER_THREAD));
  uint32_t n = 16, v = 1;
  void* params[] = {&p, &n, &v};
  EXPECT_OK(DRV_AS(cuLaunchKernel, "cuLaunchKernel_ptsz")(add_, 1, 1, 1, 32, 1, 1, 0, nullptr,
                                                          params, nullptr));
  EXPECT_OK(DRV_AS(cuStreamSynchronize, "cuStreamSynchronize_ptsz")(nullptr));
  EXPECT_EQ(std::vector<uint32_t>(16, 5), Read(p, 16));
}

TEST_F(Launches, WithArgumentsInABuffer) {
  CUdeviceptr p = Alloc(64);
  struct {
    CUdeviceptr p;
    uint32_t n, v;
  } args = {p, 16, 9};
  size_t bytes = sizeof(args);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &args, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  EXPECT_OK(DRV(cuLaunchKernel)(add_, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra));
  EXPECT_EQ(std::vector<uint32_t>(16, 9), Read(p, 16));
}

TEST_F(Launches, ExtendedWithAndWithoutAttributes) {
  CUdeviceptr p = Alloc(64);
  CUstream stream = NewStream();
  uint32_t n = 16, v = 2;
  void* params[] = {&p, &n, &v};
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  EXPECT_OK(DRV(cuLaunchKernelEx)(&config, add_, params, nullptr));
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  EXPECT_OK(DRV(cuLaunchKernelEx)(&config, add_, params, nullptr));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_EQ(std::vector<uint32_t>(16, 4), Read(p, 16));
}

TEST_F(Launches, Cooperative) {
  CUdeviceptr p = Alloc(64);
  CUstream stream = NewStream();
  uint32_t n = 16, v = 3;
  void* params[] = {&p, &n, &v};
  EXPECT_OK(DRV(cuLaunchCooperativeKernel)(add_, 2, 1, 1, 32, 1, 1, 0, stream, params));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_EQ(std::vector<uint32_t>(16, 3), Read(p, 16));
  EXPECT_ERROR(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
               DRV(cuLaunchCooperativeKernel)(add_, 1 << 20, 1, 1, 1024, 1, 1, 0, stream, params));
}

#if CUDA_VERSION >= 12000
TEST_F(Launches, AKernelOfALibraryWithoutAContextOfItsOwn) {
  CUdeviceptr p = Alloc(64);
  CUlibrary library;
  ASSERT_OK(DRV(cuLibraryLoadData)(&library, bench::kKernelsPtx, nullptr, nullptr, 0, nullptr,
                                   nullptr, 0));
  CUkernel kernel;
  ASSERT_OK(DRV(cuLibraryGetKernel)(&kernel, library, "baton_add"));
  uint32_t n = 16, v = 6;
  void* params[] = {&p, &n, &v};
  // A CUkernel stands where a CUfunction is asked for.
  EXPECT_OK(DRV(cuLaunchKernel)(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 32, 1, 1, 0, nullptr,
                                params, nullptr));
  CUfunction function;
  ASSERT_OK(DRV(cuKernelGetFunction)(&function, kernel));
  EXPECT_OK(DRV(cuLaunchKernel)(function, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr));
  EXPECT_EQ(std::vector<uint32_t>(16, 12), Read(p, 16));
  CUkernel none;
  EXPECT_ERROR(CUDA_ERROR_NOT_FOUND, DRV(cuLibraryGetKernel)(&none, library, "no_such_kernel"));
  EXPECT_OK(DRV(cuLibraryUnload)(library));
}
#endif

// Calls of the first CUDA versions: deprecated, and still exported by drivers so far.
TEST_F(Launches, TheOldestSpellings) {
  using SetBlock = CUresult (*)(CUfunction, int, int, int);
  using SetSize = CUresult (*)(CUfunction, unsigned int);
  using SetInt = CUresult (*)(CUfunction, int, unsigned int);
  using SetBytes = CUresult (*)(CUfunction, int, void*, unsigned int);
  using Grid = CUresult (*)(CUfunction, int, int);
  using GridAsync = CUresult (*)(CUfunction, int, int, CUstream);
  auto set_block = reinterpret_cast<SetBlock>(FindSymbol("cuFuncSetBlockShape"));
  auto set_size = reinterpret_cast<SetSize>(FindSymbol("cuParamSetSize"));
  auto set_int = reinterpret_cast<SetInt>(FindSymbol("cuParamSeti"));
  auto set_bytes = reinterpret_cast<SetBytes>(FindSymbol("cuParamSetv"));
  auto grid = reinterpret_cast<Grid>(FindSymbol("cuLaunchGrid"));
  auto grid_async = reinterpret_cast<GridAsync>(FindSymbol("cuLaunchGridAsync"));
  if (!set_block || !set_size || !set_int || !set_bytes || !grid || !grid_async) {
    GTEST_SKIP() << "this driver has dropped them";
  }
  CUdeviceptr p = Alloc(64);
  EXPECT_OK(set_block(add_, 32, 1, 1));
  EXPECT_OK(set_bytes(add_, 0, &p, 8));
  EXPECT_OK(set_int(add_, 8, 16));
  EXPECT_OK(set_int(add_, 12, 4));
  EXPECT_OK(set_size(add_, 16));
  EXPECT_OK(grid(add_, 1, 1));
  CUstream stream = NewStream(CU_STREAM_DEFAULT);
  EXPECT_OK(grid_async(add_, 1, 1, stream));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_EQ(std::vector<uint32_t>(16, 8), Read(p, 16));
}

TEST_F(Launches, WrongOnesAreRefusedAndHarmNothing) {
  uint64_t ns = 1000;
  void* params[] = {&ns};
  EXPECT_EITHER(CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                DRV(cuLaunchKernel)(spin_, 0, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  EXPECT_EITHER(CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                DRV(cuLaunchKernel)(spin_, 1, 1, 1, 2048, 1, 1, 0, nullptr, params, nullptr));
  CUfunction none;
  EXPECT_ERROR(CUDA_ERROR_NOT_FOUND, DRV(cuModuleGetFunction)(&none, module_, "no_such_kernel"));
  EXPECT_OK(Spin(1000, nullptr));
  EXPECT_OK(DRV(cuCtxSynchronize)());
}

TEST_F(Launches, ThousandsMayBeOutstanding) {
  CUdeviceptr p = Alloc(4);
  CUstream stream = NewStream();
  constexpr uint32_t kLaunches = 5000;
  for (uint32_t i = 0; i < kLaunches; ++i) ASSERT_OK(Add(p, 1, 1, stream));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_EQ(kLaunches, Read(p, 1)[0]);
}

TEST_F(Launches, FunctionsTellTheirAttributes) {
  int threads = 0, blocks = 0;
  EXPECT_OK(DRV(cuFuncGetAttribute)(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, spin_));
  EXPECT_GE(threads, 128);
  EXPECT_OK(DRV(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, spin_, 128, 0));
  EXPECT_GE(blocks, 1);
  int grid = 0, block = 0;
  EXPECT_OK(DRV(cuOccupancyMaxPotentialBlockSize)(&grid, &block, spin_, nullptr, 0, 0));
  EXPECT_GE(grid, 1);
  EXPECT_GE(block, 32);
}

}  // namespace
}  // namespace baton::conformance
