// A driver that does nothing, for launch_overhead: libcuda.so.1 with the functions that the hook
// needs, each as short as it can be, so that what is measured is the hook alone.
#include "hook/cuda_types.h"

#define STUB_API(name, params)                                                                  \
  extern "C" CUresult Stub_##name params __asm__(#name) __attribute__((visibility("default"))); \
  extern "C" CUresult Stub_##name params

namespace {
char g_object;  // every handle
template <class Handle>
CUresult Answer(Handle* handle) {
  *handle = reinterpret_cast<Handle>(&g_object);
  return CUDA_SUCCESS;
}
}  // namespace

STUB_API(cuInit, (unsigned)) { return CUDA_SUCCESS; }
STUB_API(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice)) {
  *uuid = {};
  return CUDA_SUCCESS;
}
STUB_API(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice)) {
  *bytes = size_t{1} << 34;
  return CUDA_SUCCESS;
}
STUB_API(cuCtxGetCurrent, (CUcontext * context)) { return Answer(context); }
STUB_API(cuCtxSetCurrent, (CUcontext)) { return CUDA_SUCCESS; }
STUB_API(cuCtxPushCurrent_v2, (CUcontext)) { return CUDA_SUCCESS; }
STUB_API(cuCtxPopCurrent_v2, (CUcontext * context)) { return Answer(context); }
STUB_API(cuCtxGetDevice, (CUdevice * device)) {
  *device = 0;
  return CUDA_SUCCESS;
}
STUB_API(cuStreamGetCtx, (CUstream, CUcontext* context)) { return Answer(context); }
STUB_API(cuEventCreate, (CUevent * event, unsigned)) { return Answer(event); }
STUB_API(cuEventDestroy_v2, (CUevent)) { return CUDA_SUCCESS; }
STUB_API(cuEventRecord, (CUevent, CUstream)) { return CUDA_SUCCESS; }
STUB_API(cuEventQuery, (CUevent)) { return CUDA_SUCCESS; }
STUB_API(cuEventElapsedTime, (float* ms, CUevent, CUevent)) {
  *ms = 0;
  return CUDA_SUCCESS;
}

STUB_API(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned, CUstream, void**, void**)) {
  __asm__ volatile("");  // a call that no compiler sees through
  return CUDA_SUCCESS;
}

// The same function under a name that the hook does not replace.
extern "C" __attribute__((visibility("default"))) void* stub_bare_launch() {
  return reinterpret_cast<void*>(&Stub_cuLaunchKernel);
}
