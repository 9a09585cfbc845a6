#include "bench/driver.h"

#include <dlfcn.h>

namespace baton::bench {
namespace {

// The API version asked of cuGetProcAddress: the first that has everything in the list.
constexpr int kApiVersion = 11040;

using GetProcAddressV1 = CUresult (*)(const char*, void**, int, cuuint64_t);
using GetProcAddressV2 = CUresult (*)(const char*, void**, int, cuuint64_t, int* status);

struct ByProcAddress {
  GetProcAddressV1 v1;
  GetProcAddressV2 v2;
  cuuint64_t flags;
  void* operator()(const char* name) const {
    void* pointer = nullptr;
    int status = 0;
    const CUresult result = v2 != nullptr ? v2(name, &pointer, kApiVersion, flags, &status)
                                          : v1(name, &pointer, kApiVersion, flags);
    return result == CUDA_SUCCESS ? pointer : nullptr;
  }
};

}  // namespace

std::string Driver::Name(CUresult result) const {
  const char* name = nullptr;
  if (GetErrorName == nullptr || GetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) {
    name = "CUDA error";
  }
  return std::string(name) + " (" + std::to_string(static_cast<int>(result)) + ")";
}

Result<Driver> LoadDriver(Resolve resolve, bool per_thread) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return Fail(ErrorCode::kNotFound,
                "cannot load libcuda.so.1 (" + std::string(reason != nullptr ? reason : "unknown") +
                    "); install the NVIDIA driver, or put the folder of Baton's simulated one on "
                    "LD_LIBRARY_PATH");
  }
  ByProcAddress by_address{};
  if (resolve == Resolve::kProcAddress) {
    by_address.v2 = reinterpret_cast<GetProcAddressV2>(dlsym(library, "cuGetProcAddress_v2"));
    by_address.v1 = reinterpret_cast<GetProcAddressV1>(dlsym(library, "cuGetProcAddress"));
    by_address.flags = per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                  : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    if (by_address.v1 == nullptr && by_address.v2 == nullptr) {
      return Fail(ErrorCode::kInvalid,
                  "this libcuda.so.1 has no cuGetProcAddress; use --resolve dlsym");
    }
  }
  Driver driver;
  std::string missing;
  const auto find = [&](const char* name, const char* suffix, const char* thread_suffix) {
    void* pointer = nullptr;
    if (resolve == Resolve::kProcAddress) {
      pointer = by_address(name);
    } else {
      const std::string symbol = std::string(name) + suffix + (per_thread ? thread_suffix : "");
      pointer = dlsym(library, symbol.c_str());
    }
    if (pointer == nullptr) missing += std::string(missing.empty() ? "" : ", ") + name;
    return pointer;
  };
#define X(member, name, suffix, thread_suffix, arguments) \
  driver.member = reinterpret_cast<CUresult(*) arguments>(find(name, suffix, thread_suffix));
  BATON_BENCH_DRIVER_SYMBOLS(X)
#undef X
  if (!missing.empty()) {
    return Fail(ErrorCode::kInvalid,
                "this libcuda.so.1 lacks " + missing + "; CUDA 11.4 or newer is needed");
  }
  return driver;
}

}  // namespace baton::bench
