// A GPU as a small program of the driver API uses it.
#ifndef BATON_BENCH_BARE_GPU_H_
#define BATON_BENCH_BARE_GPU_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "bench/driver.h"
#include "bench/kernels.h"

namespace baton::bench {

// Device 0's primary context, current, and the kernels of bench/kernels.h. Ends the program where a
// call fails. Of one thread.
class BareGpu {
 public:
  explicit BareGpu(const Driver& found) : driver(found) {
    CUcontext context = nullptr;
    Check(driver.Init(0), "cuInit");
    Check(driver.DevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    Check(driver.CtxSetCurrent(context), "cuCtxSetCurrent");
    Check(driver.ModuleLoadData(&module_, kKernelsPtx), "cuModuleLoadData");
    spin_ = Kernel("baton_spin");
  }
  CUfunction Kernel(const char* name) const {
    CUfunction kernel = nullptr;
    Check(driver.ModuleGetFunction(&kernel, module_, name), "cuModuleGetFunction");
    return kernel;
  }
  void Spin(uint64_t ns, CUstream in = nullptr) const {
    void* arguments[] = {&ns};
    Check(driver.LaunchKernel(spin_, 1, 1, 1, 1, 1, 1, 0, in, arguments, nullptr), "baton_spin");
  }
  void Synchronize() const { Check(driver.CtxSynchronize(), "cuCtxSynchronize"); }
  void Check(CUresult result, const char* what) const {
    if (result == CUDA_SUCCESS) return;
    std::fprintf(stderr, "%s: %s\n", what, driver.Name(result).c_str());
    std::_Exit(1);
  }

  const Driver driver;

 private:
  CUmodule module_ = nullptr;
  CUfunction spin_ = nullptr;
};

}  // namespace baton::bench

#endif  // BATON_BENCH_BARE_GPU_H_
