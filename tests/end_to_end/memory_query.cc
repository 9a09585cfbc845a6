// `memory_query info|total`: asks the driver about memory as the first thing after cuInit (and
// after the context that cuMemGetInfo needs), as a framework does that sizes itself by it. Prints
// the total in bytes.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

namespace {

// As frameworks find it.
template <class Function>
Function Find(const char* name) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  return driver == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(driver, name));
}

}  // namespace

int main(int argc, char** argv) {
  const auto init = Find<CUresult (*)(unsigned)>("cuInit");
  const auto retain = Find<CUresult (*)(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain");
  const auto set_current = Find<CUresult (*)(CUcontext)>("cuCtxSetCurrent");
  const auto info = Find<CUresult (*)(size_t*, size_t*)>("cuMemGetInfo_v2");
  const auto total_of = Find<CUresult (*)(size_t*, CUdevice)>("cuDeviceTotalMem_v2");
  if (argc != 2 || init == nullptr || retain == nullptr || set_current == nullptr ||
      info == nullptr || total_of == nullptr) {
    return 2;
  }
  CUcontext context = nullptr;
  size_t free = 0, total = 0;
  if (init(0) != CUDA_SUCCESS) return 1;
  if (strcmp(argv[1], "total") == 0) {
    if (total_of(&total, 0) != CUDA_SUCCESS) return 1;
  } else if (retain(&context, 0) != CUDA_SUCCESS || set_current(context) != CUDA_SUCCESS ||
             info(&free, &total) != CUDA_SUCCESS) {
    return 1;
  }
  printf("%zu\n", total);
  return 0;
}
