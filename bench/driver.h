// The driver API as a program finds it that does not link against it: dlopen("libcuda.so.1"), then
// dlsym or cuGetProcAddress for each function, as the CUDA runtime does. Whatever stands between,
// a preloaded hook or a simulated driver, is met just as a framework would meet it.
#ifndef BATON_BENCH_DRIVER_H_
#define BATON_BENCH_DRIVER_H_

#include <cuda.h>

#include <string>

#include "base/result.h"

namespace baton::bench {

// (member, name, suffix of the current version, suffix for per-thread default streams, arguments)
#define BATON_BENCH_DRIVER_SYMBOLS(X)                                                            \
  X(Init, "cuInit", "", "", (unsigned int))                                                      \
  X(GetErrorName, "cuGetErrorName", "", "", (CUresult, const char**))                            \
  X(GetErrorString, "cuGetErrorString", "", "", (CUresult, const char**))                        \
  X(DeviceGetCount, "cuDeviceGetCount", "", "", (int*))                                          \
  X(DeviceGet, "cuDeviceGet", "", "", (CUdevice*, int))                                          \
  X(DeviceGetName, "cuDeviceGetName", "", "", (char*, int, CUdevice))                            \
  X(DevicePrimaryCtxSetFlags, "cuDevicePrimaryCtxSetFlags", "_v2", "", (CUdevice, unsigned int)) \
  X(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", "", "", (CUcontext*, CUdevice))          \
  X(CtxSetCurrent, "cuCtxSetCurrent", "", "", (CUcontext))                                       \
  X(CtxSynchronize, "cuCtxSynchronize", "", "", ())                                              \
  X(ModuleLoadData, "cuModuleLoadData", "", "", (CUmodule*, const void*))                        \
  X(ModuleGetFunction, "cuModuleGetFunction", "", "", (CUfunction*, CUmodule, const char*))      \
  X(MemAlloc, "cuMemAlloc", "_v2", "", (CUdeviceptr*, size_t))                                   \
  X(MemFree, "cuMemFree", "_v2", "", (CUdeviceptr))                                              \
  X(MemGetInfo, "cuMemGetInfo", "_v2", "", (size_t*, size_t*))                                   \
  X(MemGetAddressRange, "cuMemGetAddressRange", "_v2", "", (CUdeviceptr*, size_t*, CUdeviceptr)) \
  X(MemAllocHost, "cuMemAllocHost", "_v2", "", (void**, size_t))                                 \
  X(MemHostRegister, "cuMemHostRegister", "_v2", "", (void*, size_t, unsigned int))              \
  X(MemHostGetDevicePointer, "cuMemHostGetDevicePointer", "_v2", "",                             \
    (CUdeviceptr*, void*, unsigned int))                                                         \
  X(MemsetD32, "cuMemsetD32", "_v2", "_ptds", (CUdeviceptr, unsigned int, size_t))               \
  X(MemcpyDtoH, "cuMemcpyDtoH", "_v2", "_ptds", (void*, CUdeviceptr, size_t))                    \
  X(MemcpyHtoD, "cuMemcpyHtoD", "_v2", "_ptds", (CUdeviceptr, const void*, size_t))              \
  X(MemcpyHtoDAsync, "cuMemcpyHtoDAsync", "_v2", "_ptsz",                                        \
    (CUdeviceptr, const void*, size_t, CUstream))                                                \
  X(StreamCreate, "cuStreamCreate", "", "", (CUstream*, unsigned int))                           \
  X(StreamSynchronize, "cuStreamSynchronize", "", "_ptsz", (CUstream))                           \
  X(EventCreate, "cuEventCreate", "", "", (CUevent*, unsigned int))                              \
  X(EventRecord, "cuEventRecord", "", "_ptsz", (CUevent, CUstream))                              \
  X(EventSynchronize, "cuEventSynchronize", "", "", (CUevent))                                   \
  X(EventQuery, "cuEventQuery", "", "", (CUevent))                                               \
  X(EventElapsedTime, "cuEventElapsedTime", "", "", (float*, CUevent, CUevent))                  \
  X(EventDestroy, "cuEventDestroy", "_v2", "", (CUevent))                                        \
  X(LaunchKernel, "cuLaunchKernel", "", "_ptsz",                                                 \
    (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,           \
     unsigned int, unsigned int, CUstream, void**, void**))                                      \
  X(GraphCreate, "cuGraphCreate", "", "", (CUgraph*, unsigned int))                              \
  X(GraphAddKernelNode, "cuGraphAddKernelNode", "", "",                                          \
    (CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const CUDA_KERNEL_NODE_PARAMS_v1*))      \
  X(GraphInstantiate, "cuGraphInstantiateWithFlags", "", "",                                     \
    (CUgraphExec*, CUgraph, unsigned long long))                                                 \
  X(GraphLaunch, "cuGraphLaunch", "", "_ptsz", (CUgraphExec, CUstream))

enum class Resolve {
  kDlsym,        // dlsym of each versioned name
  kProcAddress,  // cuGetProcAddress_v2 (or its first version) of each base name
};

// Pointers into the driver that is loaded; never unloaded. Plain data, free to copy.
struct Driver {
#define X(member, name, suffix, thread_suffix, arguments) CUresult(*member) arguments = nullptr;
  BATON_BENCH_DRIVER_SYMBOLS(X)
#undef X

  // "CUDA_ERROR_ILLEGAL_ADDRESS (700)".
  std::string Name(CUresult result) const;
};

// Loads libcuda.so.1 from the loader's path. `per_thread` takes the spellings whose stream 0 is the
// calling thread's own. Fails with kNotFound when there is no driver, and with kInvalid when it
// lacks a function. Does not call cuInit.
Result<Driver> LoadDriver(Resolve resolve, bool per_thread);

}  // namespace baton::bench

#endif  // BATON_BENCH_DRIVER_H_
