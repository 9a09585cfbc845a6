#include "tests/driver_conformance/driver.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "bench/kernels.h"

namespace baton::conformance {
namespace {

void* library = nullptr;

}  // namespace

void* FindSymbol(const char* name) { return dlsym(library, name); }

void* NeedSymbol(const char* name) {
  void* symbol = FindSymbol(name);
  if (symbol == nullptr) {
    std::fprintf(stderr, "the driver under test does not export %s\n", name);
    _exit(1);
  }
  return symbol;
}

const char* ErrorName(CUresult result) {
  const char* name = nullptr;
  DRV(cuGetErrorName)(result, &name);
  return name != nullptr ? name : "an unknown error";
}

CUresult CreateContext(CUcontext* context, CUdevice device) {
  using Create = CUresult (*)(CUcontext*, unsigned int, CUdevice);
  return reinterpret_cast<Create>(NeedSymbol("cuCtxCreate_v2"))(context, 0, device);
}

void DriverTest::SetUp() {
  ASSERT_OK(DRV(cuDeviceGet)(&device_, 0));
  ASSERT_OK(DRV(cuDevicePrimaryCtxRetain)(&context_, device_));
  ASSERT_OK(DRV(cuCtxSetCurrent)(context_));
  ASSERT_OK(DRV(cuModuleLoadData)(&module_, bench::kKernelsPtx));
  ASSERT_OK(DRV(cuModuleGetFunction)(&spin_, module_, "baton_spin"));
  ASSERT_OK(DRV(cuModuleGetFunction)(&spin_store_, module_, "baton_spin_store"));
  ASSERT_OK(DRV(cuModuleGetFunction)(&spin_wait_, module_, "baton_spin_wait"));
  ASSERT_OK(DRV(cuModuleGetFunction)(&add_, module_, "baton_add"));
  ASSERT_OK(DRV(cuModuleGetFunction)(&fault_, module_, "baton_fault"));
}

void DriverTest::TearDown() {
  EXPECT_OK(DRV(cuCtxSetCurrent)(context_));
  EXPECT_OK(DRV(cuCtxSynchronize)());
  for (CUstream stream : streams_) EXPECT_OK(DRV(cuStreamDestroy)(stream));
  for (CUevent event : events_) EXPECT_OK(DRV(cuEventDestroy)(event));
  for (CUdeviceptr p : memory_) EXPECT_OK(DRV(cuMemFree)(p));
  if (module_ != nullptr) {
    EXPECT_OK(DRV(cuModuleUnload)(module_));
  }
  EXPECT_OK(DRV(cuDevicePrimaryCtxRelease)(device_));
  EXPECT_OK(DRV(cuCtxSetCurrent)(nullptr));
}

CUresult DriverTest::Spin(uint64_t ns, CUstream stream) {
  void* params[] = {&ns};
  return DRV(cuLaunchKernel)(spin_, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
}

CUresult DriverTest::Add(CUdeviceptr p, uint32_t n, uint32_t v, CUstream stream) {
  void* params[] = {&p, &n, &v};
  return DRV(cuLaunchKernel)(add_, 4, 1, 1, 64, 1, 1, 0, stream, params, nullptr);
}

CUdeviceptr DriverTest::Alloc(size_t bytes) {
  CUdeviceptr p = 0;
  EXPECT_OK(DRV(cuMemAlloc)(&p, bytes));
  EXPECT_OK(DRV(cuMemsetD8)(p, 0, bytes));
  EXPECT_OK(DRV(cuCtxSynchronize)());
  memory_.push_back(p);
  return p;
}

std::vector<uint32_t> DriverTest::Read(CUdeviceptr p, size_t words) {
  std::vector<uint32_t> values(words);
  EXPECT_OK(DRV(cuMemcpyDtoH)(values.data(), p, words * 4));
  return values;
}

CUstream DriverTest::NewStream(unsigned int flags) {
  CUstream stream = nullptr;
  EXPECT_OK(DRV(cuStreamCreate)(&stream, flags));
  streams_.push_back(stream);
  return stream;
}

CUevent DriverTest::NewEvent(unsigned int flags) {
  CUevent event = nullptr;
  EXPECT_OK(DRV(cuEventCreate)(&event, flags));
  events_.push_back(event);
  return event;
}

}  // namespace baton::conformance

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  using namespace baton::conformance;
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::printf("skipped: no libcuda.so.1 (%s)\n", dlerror());
    return 77;
  }
  const CUresult ready = DRV(cuInit)(0);
  if (ready == CUDA_ERROR_NO_DEVICE) {
    std::printf("skipped: the driver finds no device\n");
    return 77;
  }
  if (ready != CUDA_SUCCESS) {
    std::printf("cuInit: %s\n", ErrorName(ready));
    return 1;
  }
  return RUN_ALL_TESTS();
}
