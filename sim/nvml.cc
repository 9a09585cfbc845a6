// libnvidia-ml.so.1 over the same device files: the small part of NVML's documented interface that
// a scheduler of GPUs asks. Declared here, for its header comes with no package that is needed
// otherwise. NVML does not look at CUDA_VISIBLE_DEVICES.
#include <string.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "sim/device.h"
#include "sim/record.h"

namespace baton::sim {
namespace {

enum NvmlReturn : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kUnknown = 999
};

struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlMemoryV2 {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
struct NvmlUtilization {
  unsigned int gpu, memory;  // percent
};
struct NvmlProcessV1 {
  unsigned int pid;
  unsigned long long used;
};
struct NvmlProcess {
  unsigned int pid;
  unsigned long long used;
  unsigned int gpu_instance, compute_instance;
};

std::mutex mutex;
int references = 0;
// Opened devices stay open: their descriptors also carry the lock of a driver in this process.
std::vector<Device*>& Devices() {
  static auto& devices = *new std::vector<Device*>;
  return devices;
}

NvmlReturn Find(void* handle, Device** device) {
  std::lock_guard lock(mutex);
  if (references == 0) return kUninitialized;
  auto& devices = Devices();
  auto it = std::find(devices.begin(), devices.end(), static_cast<Device*>(handle));
  if (it == devices.end()) return kInvalidArgument;
  *device = *it;
  return kSuccess;
}

NvmlReturn CopyText(const std::string& text, char* out, unsigned int length) {
  if (out == nullptr) return kInvalidArgument;
  if (text.size() >= length) return kInsufficientSize;
  memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

template <class Info, class Fill>
NvmlReturn Processes(void* handle, unsigned int* count, Info* infos, Fill fill) {
  Device* device;
  if (NvmlReturn r = Find(handle, &device)) return r;
  if (count == nullptr || (*count != 0 && infos == nullptr)) return kInvalidArgument;
  const std::vector<ProcessOnDevice> processes = device->Processes();
  const auto room = static_cast<size_t>(*count);
  *count = static_cast<unsigned int>(processes.size());
  if (processes.size() > room) return kInsufficientSize;
  for (size_t i = 0; i < processes.size(); ++i) infos[i] = fill(processes[i]);
  return kSuccess;
}

NvmlProcess Fill(const ProcessOnDevice& p) {
  // No instance: all bits set.
  return {static_cast<unsigned int>(p.pid), p.memory, UINT32_MAX, UINT32_MAX};
}

}  // namespace
}  // namespace baton::sim

#define SIM_NVML(name, params)                                       \
  extern "C" int name params __attribute__((visibility("default"))); \
  extern "C" int name params

using namespace baton::sim;  // NOLINT: the entry points below are C

SIM_NVML(nvmlInit_v2, (void)) {
  std::lock_guard lock(mutex);
  if (references++ > 0) return kSuccess;
  auto& devices = Devices();
  devices.clear();
  for (const std::string& path : DevicePaths()) {
    auto device = Device::Open(path);
    if (device) devices.push_back(*device);
  }
  if (!devices.empty()) return kSuccess;
  references = 0;
  return kDriverNotLoaded;
}
SIM_NVML(nvmlInit, (void)) { return nvmlInit_v2(); }
SIM_NVML(nvmlInitWithFlags, (unsigned int)) { return nvmlInit_v2(); }

SIM_NVML(nvmlShutdown, (void)) {
  std::lock_guard lock(mutex);
  if (references == 0) return kUninitialized;
  --references;
  return kSuccess;
}

extern "C" const char* nvmlErrorString(int result) __attribute__((visibility("default")));
extern "C" const char* nvmlErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotSupported:
      return "Not Supported";
    case kNotFound:
      return "Not Found";
    case kInsufficientSize:
      return "Insufficient Size";
    case kDriverNotLoaded:
      return "Driver Not Loaded";
    default:
      return "Unknown Error";
  }
}

SIM_NVML(nvmlSystemGetDriverVersion, (char* version, unsigned int length)) {
  return CopyText("580.00.00", version, length);
}

SIM_NVML(nvmlSystemGetCudaDriverVersion_v2, (int* version)) {
  if (version == nullptr) return kInvalidArgument;
  *version = 13000;
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetCount_v2, (unsigned int* count)) {
  std::lock_guard lock(mutex);
  if (references == 0) return kUninitialized;
  if (count == nullptr) return kInvalidArgument;
  *count = static_cast<unsigned int>(Devices().size());
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetHandleByIndex_v2, (unsigned int index, void** device)) {
  std::lock_guard lock(mutex);
  if (references == 0) return kUninitialized;
  if (device == nullptr || index >= Devices().size()) return kInvalidArgument;
  *device = Devices()[index];
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetHandleByUUID, (const char* uuid, void** device)) {
  std::lock_guard lock(mutex);
  if (references == 0) return kUninitialized;
  unsigned char bytes[16];
  if (device == nullptr || uuid == nullptr || !ParseUuid(uuid, bytes)) return kInvalidArgument;
  for (Device* d : Devices()) {
    if (memcmp(d->file().uuid, bytes, 16) != 0) continue;
    *device = d;
    return kSuccess;
  }
  return kNotFound;
}

SIM_NVML(nvmlDeviceGetIndex, (void* handle, unsigned int* index)) {
  Device* device;
  if (NvmlReturn r = Find(handle, &device)) return r;
  if (index == nullptr) return kInvalidArgument;
  std::lock_guard lock(mutex);
  auto& devices = Devices();
  *index = static_cast<unsigned int>(std::find(devices.begin(), devices.end(), device) -
                                     devices.begin());
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetUUID, (void* handle, char* uuid, unsigned int length)) {
  Device* device;
  if (NvmlReturn r = Find(handle, &device)) return r;
  return CopyText(FormatUuid(device->file().uuid), uuid, length);
}

SIM_NVML(nvmlDeviceGetName, (void* handle, char* name, unsigned int length)) {
  Device* device;
  if (NvmlReturn r = Find(handle, &device)) return r;
  return CopyText(device->file().name, name, length);
}

SIM_NVML(nvmlDeviceGetMemoryInfo, (void* handle, NvmlMemory* memory)) {
  Device* device;
  if (NvmlReturn r = Find(handle, &device)) return r;
  if (memory == nullptr) return kInvalidArgument;
  Device::Session session(device);
  session.CheckProcesses();
  const DeviceFile& file = device->file();
  *memory = {file.memory_bytes, file.memory_bytes - file.memory_used, file.memory_used};
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetMemoryInfo_v2, (void* handle, NvmlMemoryV2* memory)) {
  NvmlMemory plain;
  if (memory == nullptr) return kInvalidArgument;
  if (int r = nvmlDeviceGetMemoryInfo(handle, &plain)) return r;
  *memory = {memory->version, plain.total, 0, plain.free, plain.used};
  return kSuccess;
}

// Of the last second, as the records tell it, and the kernels that are running.
SIM_NVML(nvmlDeviceGetUtilizationRates, (void* handle, NvmlUtilization* rates)) {
  Device* device;
  if (NvmlReturn r = Find(handle, &device)) return r;
  if (rates == nullptr) return kInvalidArgument;
  constexpr int64_t kWindow = 1'000'000'000;
  uint64_t count;
  int64_t now;
  std::vector<KernelRecord> running;
  {
    Device::Session session(device);
    const DeviceFile& file = device->file();
    count = file.record_count;
    now = file.now.Signed();
    for (const Context& c : file.contexts) {
      for (OpRef ref = c.state != 0 ? uint64_t{c.running_head} : 0; ref != 0;
           ref = session->At(ref).next) {
        KernelRecord record{};
        record.start_ns = session->At(ref).started_at.Signed();
        record.end_ns = now;
        running.push_back(record);
      }
    }
  }
  // Far enough back for a second of kernels of 10 us.
  auto records = ReadRecords(device->path(), count > 100'000 ? count - 100'000 : 0);
  if (!records) return kUnknown;
  records->insert(records->end(), running.begin(), running.end());
  const double busy = BusyFraction(*records, now - kWindow, now);
  *rates = {static_cast<unsigned int>(busy * 100 + 0.5), 0};
  return kSuccess;
}

SIM_NVML(nvmlDeviceGetComputeRunningProcesses_v3,
         (void* handle, unsigned int* count, NvmlProcess* infos)) {
  return Processes(handle, count, infos, Fill);
}
SIM_NVML(nvmlDeviceGetComputeRunningProcesses_v2,
         (void* handle, unsigned int* count, NvmlProcess* infos)) {
  return Processes(handle, count, infos, Fill);
}
SIM_NVML(nvmlDeviceGetComputeRunningProcesses,
         (void* handle, unsigned int* count, NvmlProcessV1* infos)) {
  return Processes(handle, count, infos, [](const ProcessOnDevice& p) {
    return NvmlProcessV1{static_cast<unsigned int>(p.pid), p.memory};
  });
}
