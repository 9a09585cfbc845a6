#include "devmgr/machine/nvml_api.h"

#include <dlfcn.h>

#include <initializer_list>

namespace baton::devmgr::nvml {
namespace {

// What a reader can do about it; "": nothing that fits in a clause.
const char* Advice(Return code) {
  switch (code) {
    case kGpuIsLost:
    case kResetRequired:
      return "reset the GPU (nvidia-smi --gpu-reset) or restart the machine";
    case kUninitialized:
    case kDriverNotLoaded:
      return "load the NVIDIA driver (nvidia-smi must work)";
    case kNoPermission:
      return "run batond as root";
    case kOperatingSystem:
      return "the service's cgroup or container must allow /dev/nvidia*";
    case kVersionMismatch:
      return "the driver was updated: restart the machine, or load the new one";
    case kInUse:
      return "try again when nothing runs on it";
    case kInsufficientResources:
      return "the place is taken";
    case kNotSupported:
    case kFunctionNotFound:
      return "the GPU or the driver cannot do it";
    default:
      return "look at the kernel's log (dmesg, NVRM)";
  }
}

ErrorCode CodeOf(Return code) {
  switch (code) {
    case kInvalidArgument:
    case kNotSupported:
      return ErrorCode::kInvalid;
    case kNoPermission:
    case kOperatingSystem:
      return ErrorCode::kDenied;
    case kNotFound:
      return ErrorCode::kNotFound;
    case kInsufficientResources:
      return ErrorCode::kExhausted;
    case kUninitialized:
    case kDriverNotLoaded:
    case kTimeout:
    case kFunctionNotFound:
    case kGpuIsLost:
    case kResetRequired:
    case kVersionMismatch:
    case kInUse:
      return ErrorCode::kUnavailable;
    default:
      return ErrorCode::kInternal;
  }
}

template <class Function>
void Find(void* library, Function*& function, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    if (function != nullptr) return;
  }
}

}  // namespace

Result<Api> Load(const std::string& library) {
  Api api;
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Fail(ErrorCode::kUnavailable, library + " was not found");
#define BATON_NVML_FIND(field, type, ...) Find(handle, api.field, {__VA_ARGS__});
  BATON_NVML_FUNCTIONS(BATON_NVML_FIND)
#undef BATON_NVML_FIND
  const char* missing = api.init == nullptr       ? "nvmlInit"
                        : api.count == nullptr    ? "nvmlDeviceGetCount"
                        : api.by_index == nullptr ? "nvmlDeviceGetHandleByIndex"
                        : api.by_uuid == nullptr  ? "nvmlDeviceGetHandleByUUID"
                        : api.uuid == nullptr     ? "nvmlDeviceGetUUID"
                                                  : nullptr;
  if (missing != nullptr) return tl::unexpected(Missing(missing));
  return api;
}

Error Failure(const Api& api, const std::string& call, const std::string& where, Return code) {
  const char* text = api.error_string != nullptr ? api.error_string(code) : nullptr;
  const std::string number = std::to_string(static_cast<int>(code));
  std::string message =
      call + (where.empty() ? "" : " of " + where) + ": " +
      (text != nullptr ? std::string(text) + " (" + number + ")" : "NVML answered " + number);
  return {CodeOf(code), message + "; " + Advice(code)};
}

Error Missing(const std::string& call) {
  return {ErrorCode::kUnavailable,
          "libnvidia-ml.so.1 has no " + call + "; install a newer NVIDIA driver"};
}

}  // namespace baton::devmgr::nvml
