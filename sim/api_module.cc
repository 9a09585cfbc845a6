// Modules, libraries, functions, occupancy, and the launches that name no stream of their own.
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <string>

#include "sim/driver.h"

namespace baton::sim {
namespace {

// Functions of a library stay valid in every context; a module's go with it.
void Register(Module* module) {
  for (const KernelSpec& spec : module->specs) {
    if (module->functions.count(spec.name) != 0) continue;
    for (auto* map : {&module->functions, &module->kernels}) {
      auto function = std::make_unique<Function>();
      function->spec = &spec;
      TheDriver().live.insert(function.get());
      (*map)[spec.name] = std::move(function);
    }
    Function* kernel = module->kernels[spec.name].get();
    kernel->is_kernel = true;
    kernel->function_of_kernel = module->functions[spec.name].get();
  }
  TheDriver().live.insert(module);
}

// Variables take memory of the device from here on, in the context of the caller or, of a library
// that is loaded without one, when they are first asked for.
CUresult GiveVariables(Lock& lock, Module* module, Ctx* ctx) {
  for (auto& [name, variable] : module->variables) {
    if (ctx == nullptr) break;
    if (CUresult r = AllocateDevice(lock, ctx, variable.bytes, Allocation::kDevice, &variable.at)) {
      return r;
    }
  }
  return CUDA_SUCCESS;
}

void TakeVariables(Lock& lock, Module* module) {
  for (auto& [name, variable] : module->variables) {
    if (variable.at != 0) FreeDevice(lock, variable.at);
    variable.at = 0;
  }
}

CUresult GetVariable(CUdeviceptr* at, size_t* bytes, const void* handle, const char* name) {
  Lock lock(TheDriver().mutex);
  auto* module = static_cast<Module*>(const_cast<void*>(handle));
  if (!IsLive(module)) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto it = module->variables.find(name);
  if (it == module->variables.end()) return CUDA_ERROR_NOT_FOUND;
  if (FindAllocation(it->second.at, it->second.bytes) == nullptr) {
    Ctx* ctx;
    if (CUresult r = CurrentContext(&ctx)) return r;
    it->second.at = 0;
    if (CUresult r =
            AllocateDevice(lock, ctx, it->second.bytes, Allocation::kDevice, &it->second.at)) {
      return r;
    }
  }
  if (at != nullptr) *at = it->second.at;
  if (bytes != nullptr) *bytes = it->second.bytes;
  return CUDA_SUCCESS;
}

void Unregister(Module* module) {
  TheDriver().live.erase(module);
  for (auto* map : {&module->functions, &module->kernels}) {
    for (auto& [name, function] : *map) TheDriver().live.erase(function.get());
  }
  // The object stays: work in flight still names its kernels, and so do graphs.
}

CUresult Load(Module** out, const void* image, size_t bytes, bool needs_context) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx = nullptr;
  if (CUresult r = needs_context ? CurrentContext(&ctx) : CheckInitialized()) return r;
  if (!needs_context && CurrentContext(&ctx) != CUDA_SUCCESS) ctx = nullptr;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = LoadModule(image, bytes, out)) return r;
  if (CUresult r = GiveVariables(lock, *out, ctx)) {
    TakeVariables(lock, *out);
    return r;
  }
  Register(*out);
  return CUDA_SUCCESS;
}

CUresult LoadFile(Module** out, const char* path, bool needs_context) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FILE* file = fopen(path, "rbe");
  if (file == nullptr) return CUDA_ERROR_FILE_NOT_FOUND;
  std::string text;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), file)) > 0;) text.append(buffer, n);
  fclose(file);
  return text.empty() ? CUDA_ERROR_INVALID_IMAGE
                      : Load(out, text.data(), text.size(), needs_context);
}

CUresult LoadFor(CUmodule* out, const void* image) {
  Module* module = nullptr;
  const CUresult r = Load(out == nullptr ? nullptr : &module, image, 0, true);
  if (r == CUDA_SUCCESS) *out = reinterpret_cast<CUmodule>(module);
  return r;
}

int FunctionAttribute(const Function& function, int attribute) {
  auto it = function.attributes.find(attribute);
  if (it != function.attributes.end()) return it->second;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return 1024;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return 16;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      return 64;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return 90;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return 48 * 1024;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return -1;
    default:
      return 0;
  }
}

CUresult GetAttribute(int* value, int attribute, const void* handle) {
  Lock lock(TheDriver().mutex);
  Function* function;
  if (CUresult r = GetFunction(handle, &function)) return r;
  if (value == nullptr || attribute < 0 || attribute >= 32) return CUDA_ERROR_INVALID_VALUE;
  *value = FunctionAttribute(*function, attribute);
  return CUDA_SUCCESS;
}

CUresult SetAttribute(int attribute, int value, const void* handle) {
  Lock lock(TheDriver().mutex);
  Function* function;
  if (CUresult r = GetFunction(handle, &function)) return r;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
      attribute != CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT && attribute < 10) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
      (value < 0 || value > 227 * 1024)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  function->attributes[attribute] = value;
  return CUDA_SUCCESS;
}

CUresult Valid(const void* handle) {
  Lock lock(TheDriver().mutex);
  Function* function;
  return GetFunction(handle, &function);
}

CUresult ParamInfo(const void* handle, size_t index, size_t* offset, size_t* size) {
  Lock lock(TheDriver().mutex);
  Function* function;
  if (CUresult r = GetFunction(handle, &function)) return r;
  const KernelSpec& spec = *function->spec;
  if (offset == nullptr || index >= spec.param_sizes.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = spec.param_offsets[index];
  if (size != nullptr) *size = spec.param_sizes[index];
  return CUDA_SUCCESS;
}

CUresult Name(const char** name, const void* handle) {
  Lock lock(TheDriver().mutex);
  Function* function;
  if (CUresult r = GetFunction(handle, &function)) return r;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = function->spec->name.c_str();
  return CUDA_SUCCESS;
}

CUresult MaxActiveBlocks(int* blocks, CUfunction function, int block_size, size_t shared) {
  Lock lock(TheDriver().mutex);
  Function* f;
  if (CUresult r = GetFunction(function, &f)) return r;
  if (blocks == nullptr || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  int most = block_size > 1024 ? 0 : std::min(32, 2048 / block_size);
  if (shared > 0) most = std::min<int>(most, static_cast<int>(228 * 1024 / (shared + 1024)));
  *blocks = most;
  return CUDA_SUCCESS;
}

CUresult MaxBlockSize(int* grid, int* block, CUfunction function, int limit) {
  Lock lock(TheDriver().mutex);
  Function* f;
  if (CUresult r = GetFunction(function, &f)) return r;
  if (grid == nullptr || block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *block = limit > 0 ? std::min(limit, 1024) : 1024;
  *grid = 108 * (2048 / *block);
  return CUDA_SUCCESS;
}

CUresult LegacyLaunch(CUfunction handle, unsigned int w, unsigned int h, CUstream stream_handle) {
  Lock lock(TheDriver().mutex);
  Stream* stream;
  if (CUresult r = GetStream(stream_handle, false, &stream)) return r;
  Function* function;
  if (CUresult r = GetFunction(handle, &function)) return r;
  const LaunchShape shape{
      {w, h, 1}, {function->block[0], function->block[1], function->block[2]}, 0};
  std::vector<unsigned char> params = function->params;
  params.resize(std::max(params.size(), function->spec->param_bytes));
  size_t bytes = params.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &bytes, CU_LAUNCH_PARAM_END};
  Work work;
  if (CUresult r = MakeKernelWork(function, shape, nullptr, extra, &work)) return r;
  return Enqueue(lock, stream, work);
}

CUresult SetParam(CUfunction handle, int offset, const void* value, size_t bytes) {
  Lock lock(TheDriver().mutex);
  Function* function;
  if (CUresult r = GetFunction(handle, &function)) return r;
  if (offset < 0 || static_cast<size_t>(offset) + bytes > 4096) return CUDA_ERROR_INVALID_VALUE;
  const size_t end = static_cast<size_t>(offset) + bytes;
  if (function->params.size() < end) function->params.resize(end);
  memcpy(function->params.data() + offset, value, bytes);
  return CUDA_SUCCESS;
}

template <class Map>
CUresult Lookup(const void* handle, const char* name, Map Module::*map, Function** function) {
  auto* module = static_cast<Module*>(const_cast<void*>(handle));
  if (!IsLive(module)) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (module->open_ended && (module->*map).count(name) == 0) {
    AddKernel(module, name);
    Register(module);
  }
  auto it = (module->*map).find(name);
  if (it == (module->*map).end()) return CUDA_ERROR_NOT_FOUND;
  *function = it->second.get();
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API(cuModuleLoad, (CUmodule * out, const char* path)) {
  Module* module = nullptr;
  const CUresult r = LoadFile(out == nullptr ? nullptr : &module, path, true);
  if (r == CUDA_SUCCESS) *out = reinterpret_cast<CUmodule>(module);
  return r;
}
SIM_API(cuModuleLoadData, (CUmodule * out, const void* image)) { return LoadFor(out, image); }
SIM_API(cuModuleLoadDataEx,
        (CUmodule * out, const void* image, unsigned int, CUjit_option*, void**)) {
  return LoadFor(out, image);
}
SIM_API(cuModuleLoadFatBinary, (CUmodule * out, const void* image)) { return LoadFor(out, image); }

static CUresult Unload(const void* handle) {
  Lock lock(TheDriver().mutex);
  if (CUresult r = CheckInitialized()) return r;
  auto* module = static_cast<Module*>(const_cast<void*>(handle));
  if (!IsLive(module)) return CUDA_ERROR_INVALID_HANDLE;
  Unregister(module);
  TakeVariables(lock, module);
  return CUDA_SUCCESS;
}
SIM_API(cuModuleUnload, (CUmodule module)) { return Unload(module); }

SIM_API(cuModuleGetFunction, (CUfunction * out, CUmodule module, const char* name)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Function* function;
  if (CUresult r = Lookup(module, name, &Module::functions, &function)) return r;
  function->module = module;
  *out = reinterpret_cast<CUfunction>(function);
  return CUDA_SUCCESS;
}

SIM_API(cuModuleGetFunctionCount, (unsigned int* count, CUmodule handle)) {
  Lock lock(TheDriver().mutex);
  auto* module = reinterpret_cast<Module*>(handle);
  if (!IsLive(module)) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned int>(module->functions.size());
  return CUDA_SUCCESS;
}

SIM_API(cuModuleGetGlobal_v2,
        (CUdeviceptr * at, size_t* bytes, CUmodule module, const char* name)) {
  return GetVariable(at, bytes, module, name);
}

SIM_API(cuModuleGetLoadingMode, (int* mode)) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = 1;  // eager
  return CUDA_SUCCESS;
}

// CUlibrary and CUkernel are younger than the oldest header, so plain pointers.

SIM_API(cuLibraryLoadData, (void** out, const void* code, CUjit_option*, void**, unsigned int,
                            void*, void**, unsigned int)) {
  return Load(reinterpret_cast<Module**>(out), code, 0, false);
}
SIM_API(cuLibraryLoadFromFile, (void** out, const char* path, CUjit_option*, void**, unsigned int,
                                void*, void**, unsigned int)) {
  return LoadFile(reinterpret_cast<Module**>(out), path, false);
}
SIM_API(cuLibraryUnload, (void* library)) { return Unload(library); }

SIM_API(cuLibraryGetKernel, (void** out, void* library, const char* name)) {
  Lock lock(TheDriver().mutex);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Function* kernel;
  if (CUresult r = Lookup(library, name, &Module::kernels, &kernel)) return r;
  *out = kernel;
  return CUDA_SUCCESS;
}

SIM_API(cuLibraryGetKernelCount, (unsigned int* count, void* library)) {
  Lock lock(TheDriver().mutex);
  auto* module = static_cast<Module*>(library);
  if (!IsLive(module)) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned int>(module->kernels.size());
  return CUDA_SUCCESS;
}

SIM_API(cuLibraryEnumerateKernels, (void** kernels, unsigned int count, void* library)) {
  Lock lock(TheDriver().mutex);
  auto* module = static_cast<Module*>(library);
  if (!IsLive(module)) return CUDA_ERROR_INVALID_HANDLE;
  unsigned int i = 0;
  for (auto& [name, kernel] : module->kernels) {
    if (i < count) kernels[i++] = kernel.get();
  }
  return CUDA_SUCCESS;
}

SIM_API(cuLibraryGetModule, (CUmodule * out, void* library)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  if (!IsLive(static_cast<Module*>(library))) return CUDA_ERROR_INVALID_HANDLE;
  *out = static_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}

SIM_API(cuLibraryGetGlobal, (CUdeviceptr * at, size_t* bytes, void* library, const char* name)) {
  return GetVariable(at, bytes, library, name);
}
SIM_API(cuLibraryGetManaged, (CUdeviceptr * at, size_t* bytes, void* library, const char* name)) {
  return GetVariable(at, bytes, library, name);
}

SIM_API(cuKernelGetFunction, (CUfunction * out, void* kernel)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  Function* function;
  if (CUresult r = GetFunction(kernel, &function)) return r;
  if (out == nullptr || !function->is_kernel) return CUDA_ERROR_INVALID_HANDLE;
  *out = reinterpret_cast<CUfunction>(function->function_of_kernel);
  return CUDA_SUCCESS;
}

SIM_API(cuKernelGetAttribute,
        (int* value, CUfunction_attribute attribute, void* kernel, CUdevice)) {
  return GetAttribute(value, attribute, kernel);
}
SIM_API(cuKernelSetAttribute, (CUfunction_attribute attribute, int value, void* kernel, CUdevice)) {
  return SetAttribute(attribute, value, kernel);
}
SIM_API(cuKernelSetCacheConfig, (void* kernel, CUfunc_cache, CUdevice)) { return Valid(kernel); }
SIM_API(cuKernelGetName, (const char** name, void* kernel)) { return Name(name, kernel); }
SIM_API(cuKernelGetParamInfo, (void* kernel, size_t index, size_t* offset, size_t* size)) {
  return ParamInfo(kernel, index, offset, size);
}

SIM_API(cuFuncGetAttribute, (int* value, CUfunction_attribute attribute, CUfunction function)) {
  return GetAttribute(value, attribute, function);
}
SIM_API(cuFuncSetAttribute, (CUfunction function, CUfunction_attribute attribute, int value)) {
  return SetAttribute(attribute, value, function);
}
SIM_API(cuFuncSetCacheConfig, (CUfunction function, CUfunc_cache)) { return Valid(function); }
SIM_API(cuFuncSetSharedMemConfig, (CUfunction function, CUsharedconfig)) { return Valid(function); }
SIM_API(cuFuncGetName, (const char** name, CUfunction function)) { return Name(name, function); }
SIM_API(cuFuncGetParamInfo, (CUfunction function, size_t index, size_t* offset, size_t* size)) {
  return ParamInfo(function, index, offset, size);
}
SIM_API(cuFuncLoad, (CUfunction function)) { return Valid(function); }
SIM_API(cuFuncIsLoaded, (int* state, CUfunction function)) {
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = 1;
  return Valid(function);
}
SIM_API(cuFuncGetModule, (CUmodule * out, CUfunction handle)) {
  Lock lock(TheDriver().mutex);
  Function* function;
  if (CUresult r = GetFunction(handle, &function)) return r;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = function->module;
  return CUDA_SUCCESS;
}

SIM_API(cuOccupancyMaxActiveBlocksPerMultiprocessor,
        (int* blocks, CUfunction function, int block_size, size_t shared)) {
  return MaxActiveBlocks(blocks, function, block_size, shared);
}
SIM_API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
        (int* blocks, CUfunction function, int block_size, size_t shared, unsigned int)) {
  return MaxActiveBlocks(blocks, function, block_size, shared);
}
SIM_API(cuOccupancyMaxPotentialBlockSize,
        (int* grid, int* block, CUfunction function, CUoccupancyB2DSize, size_t, int limit)) {
  return MaxBlockSize(grid, block, function, limit);
}
SIM_API(cuOccupancyMaxPotentialBlockSizeWithFlags,
        (int* grid, int* block, CUfunction function, CUoccupancyB2DSize, size_t, int limit,
         unsigned int)) {
  return MaxBlockSize(grid, block, function, limit);
}
SIM_API(cuOccupancyMaxActiveClusters, (int* clusters, CUfunction function, const void*)) {
  if (clusters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *clusters = 16;
  return Valid(function);
}
SIM_API(cuOccupancyMaxPotentialClusterSize, (int* size, CUfunction function, const void*)) {
  if (size == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *size = 8;
  return Valid(function);
}
SIM_API(cuOccupancyAvailableDynamicSMemPerBlock, (size_t * bytes, CUfunction function, int, int)) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = 48 * 1024;
  return Valid(function);
}

SIM_API(cuLaunchCooperativeKernelMultiDevice,
        (CUDA_LAUNCH_PARAMS * list, unsigned int count, unsigned int)) {
  if (list == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(TheDriver().mutex);
  for (unsigned int i = 0; i < count; ++i) {
    const CUDA_LAUNCH_PARAMS& p = list[i];
    Stream* stream;
    if (CUresult r = GetStream(p.hStream, false, &stream)) return r;
    if (stream->legacy) return CUDA_ERROR_INVALID_HANDLE;
    Function* function;
    if (CUresult r = GetFunction(p.function, &function)) return r;
    Work work;
    if (CUresult r = MakeKernelWork(function,
                                    {{p.gridDimX, p.gridDimY, p.gridDimZ},
                                     {p.blockDimX, p.blockDimY, p.blockDimZ},
                                     p.sharedMemBytes},
                                    p.kernelParams, nullptr, &work)) {
      return r;
    }
    if (CUresult r = Enqueue(lock, stream, work)) return r;
  }
  return CUDA_SUCCESS;
}

SIM_API(cuFuncSetBlockShape, (CUfunction handle, int x, int y, int z)) {
  Lock lock(TheDriver().mutex);
  Function* function;
  if (CUresult r = GetFunction(handle, &function)) return r;
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  function->block[0] = static_cast<unsigned int>(x);
  function->block[1] = static_cast<unsigned int>(y);
  function->block[2] = static_cast<unsigned int>(z);
  return CUDA_SUCCESS;
}
SIM_API(cuFuncSetSharedSize, (CUfunction function, unsigned int)) { return Valid(function); }
SIM_API(cuParamSetSize, (CUfunction handle, unsigned int bytes)) {
  Lock lock(TheDriver().mutex);
  Function* function;
  if (CUresult r = GetFunction(handle, &function)) return r;
  if (bytes > 4096) return CUDA_ERROR_INVALID_VALUE;
  function->params.resize(bytes);
  return CUDA_SUCCESS;
}
SIM_API(cuParamSeti, (CUfunction function, int offset, unsigned int value)) {
  return SetParam(function, offset, &value, sizeof(value));
}
SIM_API(cuParamSetf, (CUfunction function, int offset, float value)) {
  return SetParam(function, offset, &value, sizeof(value));
}
SIM_API(cuParamSetv, (CUfunction function, int offset, void* value, unsigned int bytes)) {
  return SetParam(function, offset, value, bytes);
}
SIM_API(cuLaunch, (CUfunction function)) { return LegacyLaunch(function, 1, 1, nullptr); }
SIM_API(cuLaunchGrid, (CUfunction function, int w, int h)) {
  if (w <= 0 || h <= 0) return CUDA_ERROR_INVALID_VALUE;
  return LegacyLaunch(function, static_cast<unsigned int>(w), static_cast<unsigned int>(h),
                      nullptr);
}
SIM_API(cuLaunchGridAsync, (CUfunction function, int w, int h, CUstream stream)) {
  if (w <= 0 || h <= 0) return CUDA_ERROR_INVALID_VALUE;
  return LegacyLaunch(function, static_cast<unsigned int>(w), static_cast<unsigned int>(h), stream);
}

}  // namespace baton::sim
