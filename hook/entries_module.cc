// Modules and libraries: their variables are memory of the device. How much is read from the image
// (hook/image.h), before the driver loads it.
#include "hook/allocation.h"
#include "hook/entries.h"
#include "hook/image.h"

namespace baton::hook {
namespace {

// A library belongs to no context. It is charged where the program works, or on the only GPU.
Gpu* LibraryGpu() {
  Gpu* gpu = MemoryGpu();
  int devices = 0;
  if (gpu == nullptr && Drv<Fn::cuDeviceGetCount>(&devices) == CUDA_SUCCESS && devices == 1) {
    gpu = MemoryGpuOf(0);
  }
  return gpu;
}

template <class Call>
CUresult LoadModule(const CUmodule* module, uint64_t bytes, Call call) {
  return AllocateAs(
      bytes, [&] { return HandleKey(*module); }, call);
}

template <class Call>
CUresult LoadLibrary(void* const* library, uint64_t bytes, Call call) {
  Gpu* gpu = LibraryGpu();
  if (!Charge(gpu, bytes)) return NotCharged(gpu, bytes);
  const CUresult result = call();
  if (result != CUDA_SUCCESS) {
    Credit(gpu, bytes);
    NotAllocated(gpu, bytes, result);
  } else if (gpu != nullptr && bytes > 0) {
    Remember(HandleKey(*library), {gpu, bytes, nullptr});
  }
  return result;
}

uint64_t BytesOf(const void* image) { return Managed() ? VariableBytes(image) : 0; }
uint64_t BytesOfFile(const char* path) { return Managed() ? VariableBytesOfFile(path) : 0; }

}  // namespace

BATON_API(cuModuleLoad, (CUmodule * module, const char* path)) {
  BATON_REAL(cuModuleLoad);
  return LoadModule(module, BytesOfFile(path), [&] { return real(module, path); });
}

BATON_API(cuModuleLoadData, (CUmodule * module, const void* image)) {
  BATON_REAL(cuModuleLoadData);
  return LoadModule(module, BytesOf(image), [&] { return real(module, image); });
}

BATON_API(cuModuleLoadDataEx, (CUmodule * module, const void* image, unsigned count,
                               CUjit_option* options, void** values)) {
  BATON_REAL(cuModuleLoadDataEx);
  return LoadModule(module, BytesOf(image),
                    [&] { return real(module, image, count, options, values); });
}

BATON_API(cuModuleLoadFatBinary, (CUmodule * module, const void* image)) {
  BATON_REAL(cuModuleLoadFatBinary);
  return LoadModule(module, BytesOf(image), [&] { return real(module, image); });
}

BATON_API(cuModuleUnload, (CUmodule module)) {
  BATON_REAL(cuModuleUnload);
  return Free(HandleKey(module), [&] { return real(module); });
}

// `library`: CUlibrary*, and options of types that older headers lack.
BATON_API(cuLibraryLoadData,
          (void** library, const void* image, CUjit_option* jit, void** jit_values, unsigned jits,
           void* options, void** values, unsigned count)) {
  BATON_REAL(cuLibraryLoadData);
  return LoadLibrary(library, BytesOf(image), [&] {
    return real(library, image, jit, jit_values, jits, options, values, count);
  });
}

BATON_API(cuLibraryLoadFromFile,
          (void** library, const char* path, CUjit_option* jit, void** jit_values, unsigned jits,
           void* options, void** values, unsigned count)) {
  BATON_REAL(cuLibraryLoadFromFile);
  return LoadLibrary(library, BytesOfFile(path), [&] {
    return real(library, path, jit, jit_values, jits, options, values, count);
  });
}

BATON_API(cuLibraryUnload, (void* library)) {
  BATON_REAL(cuLibraryUnload);
  return Free(HandleKey(library), [&] { return real(library); });
}

}  // namespace baton::hook
