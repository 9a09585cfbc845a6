#include "hook/nvml.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <atomic>

#include "hook/gpu.h"
#include "hook/libc.h"
#include "hook/pod_figures.h"

namespace baton::hook {
namespace {

// As the public reference (NVML API 13) declares them.
enum NvmlResult : int {
  kNvmlSuccess = 0,
  kNvmlNotFound = 6,
  kNvmlInsufficientSize = 7,
  kNvmlFunctionNotFound = 13,
  kNvmlNoMemory = 20,
};
struct NvmlMemory {  // bytes
  unsigned long long total, free, used;
};
struct NvmlMemoryV2 {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
struct NvmlRates {  // percent
  unsigned int gpu, memory;
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
struct NvmlSample {
  unsigned int pid;
  unsigned long long time_stamp;  // microseconds since 1970
  unsigned int sm, memory, encoder, decoder;
};

// NVML's own function; null where this library has none.
template <class F>
F* RealNvml(const char* name) {
  static std::atomic<void*> library{nullptr};
  if (!FindLibc()) return nullptr;
  void* l = library.load(std::memory_order_acquire);
  if (l == nullptr) {
    l = OpenLibrary("libnvidia-ml.so.1", true);
    if (l == nullptr) l = OpenLibrary("libnvidia-ml.so.1", false);
    library.store(l, std::memory_order_release);
  }
  return l == nullptr ? nullptr : reinterpret_cast<F*>(RealDlsym(l, name));
}

// What the pod has of an NVML device. False: it is none of the pod's GPUs.
bool OnPodsGpu(void* device, PodMemory* memory) {
  if (!Managed()) return false;
  char uuid[96] = {};
  auto* real = RealNvml<int(void*, char*, unsigned int)>("nvmlDeviceGetUUID");
  if (real == nullptr || real(device, uuid, sizeof(uuid)) != kNvmlSuccess) return false;
  return strncmp(uuid, "GPU-", 4) == 0 && AskPodMemory(uuid, memory);
}

template <class Memory>
void ShowSlice(const PodMemory& pod, Memory* memory) {
  if (pod.cap != 0 && pod.cap < memory->total) memory->total = pod.cap;
  memory->used = pod.used < memory->total ? pod.used : memory->total;
  const unsigned long long left = memory->total - memory->used;
  if (pod.cap != 0 || memory->free > left) memory->free = left;
}

template <class Memory>
int MemoryInfo(const char* name, void* device, Memory* memory) {
  auto* real = RealNvml<int(void*, Memory*)>(name);
  if (real == nullptr) return kNvmlFunctionNotFound;
  const int result = real(device, memory);
  PodMemory pod;
  if (result == kNvmlSuccess && OnPodsGpu(device, &pod)) ShowSlice(pod, memory);
  return result;
}

// All that `ask(&count, items)` has, in memory to be freed; it is asked with more room until it
// fits.
template <class Item, class Ask>
int Collect(Item** items, unsigned int* count, Ask ask) {
  unsigned int room = 64;
  *items = nullptr;
  for (int attempt = 0; attempt < 4; ++attempt) {
    auto* more = static_cast<Item*>(realloc(*items, room * sizeof(Item)));
    if (more == nullptr) return kNvmlNoMemory;
    *items = more;
    *count = room;
    const int result = ask(count, *items);
    if (result != kNvmlInsufficientSize) return result;
    room = (*count < 1'000'000 ? *count : 1'000'000) + 16;
  }
  return kNvmlInsufficientSize;
}

// Leaves those of the pod's processes.
template <class Item>
void KeepPods(Item* items, unsigned int* count) {
  unsigned int kept = 0;
  for (unsigned int i = 0; i < *count; ++i) {
    if (IsOfPod(items[i].pid)) items[kept++] = items[i];
  }
  *count = kept;
}

// Answers as NVML does, from all that there is of the pod's.
template <class Item>
int HandOut(const Item* all, unsigned int have, unsigned int* count, Item* items) {
  const unsigned int room = *count;
  *count = have;
  if (have > room) return kNvmlInsufficientSize;
  for (unsigned int i = 0; i < have; ++i) items[i] = all[i];
  return kNvmlSuccess;
}

template <class Process>
int Processes(const char* name, void* device, unsigned int* count, Process* processes) {
  auto* real = RealNvml<int(void*, unsigned int*, Process*)>(name);
  if (real == nullptr) return kNvmlFunctionNotFound;
  PodMemory pod;
  if (count == nullptr || (*count != 0 && processes == nullptr) || !OnPodsGpu(device, &pod)) {
    return real(device, count, processes);
  }
  Process* all = nullptr;
  unsigned int have = 0;
  int result =
      Collect(&all, &have, [&](unsigned int* n, Process* items) { return real(device, n, items); });
  if (result == kNvmlSuccess) {
    KeepPods(all, &have);
    result = HandOut(all, have, count, processes);
  }
  free(all);
  return result;
}

using GetSamples = int(void*, NvmlSample*, unsigned int*, unsigned long long);

// The use that the pod's processes made of the device since then, a sample each.
int SamplesOfPod(GetSamples* real, void* device, unsigned long long since, NvmlSample** all,
                 unsigned int* have) {
  const int result = Collect(
      all, have, [&](unsigned int* n, NvmlSample* items) { return real(device, items, n, since); });
  if (result == kNvmlSuccess) KeepPods(*all, have);
  return result;
}

// Of the pod over the last second. Where NVML does not tell processes apart: `rates` stays.
void ShowUse(void* device, NvmlRates* rates) {
  auto* real = RealNvml<GetSamples>("nvmlDeviceGetProcessUtilization");
  if (real == nullptr) return;
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const auto since = static_cast<unsigned long long>(now.tv_sec - 1) * 1'000'000 +
                     static_cast<unsigned long long>(now.tv_nsec) / 1000;
  NvmlSample* all = nullptr;
  unsigned int have = 0;
  const int result = SamplesOfPod(real, device, since, &all, &have);
  if (result == kNvmlSuccess || result == kNvmlNotFound) {
    if (result == kNvmlNotFound) have = 0;
    *rates = {0, 0};
    for (unsigned int i = 0; i < have; ++i) {
      rates->gpu += all[i].sm;
      rates->memory += all[i].memory;
    }
    if (rates->gpu > 100) rates->gpu = 100;
    if (rates->memory > 100) rates->memory = 100;
  }
  free(all);
}

}  // namespace

// Defines an exported function under exactly this name.
#define BATON_NVML(name, params)                                     \
  extern "C" int name params __attribute__((visibility("default"))); \
  extern "C" int name params

BATON_NVML(nvmlDeviceGetMemoryInfo, (void* device, NvmlMemory* memory)) {
  return MemoryInfo(__func__, device, memory);
}
BATON_NVML(nvmlDeviceGetMemoryInfo_v2, (void* device, NvmlMemoryV2* memory)) {
  return MemoryInfo(__func__, device, memory);
}

BATON_NVML(nvmlDeviceGetUtilizationRates, (void* device, NvmlRates* rates)) {
  auto* real = RealNvml<int(void*, NvmlRates*)>(__func__);
  if (real == nullptr) return kNvmlFunctionNotFound;
  const int result = real(device, rates);
  PodMemory pod;
  if (result == kNvmlSuccess && OnPodsGpu(device, &pod)) ShowUse(device, rates);
  return result;
}

BATON_NVML(nvmlDeviceGetProcessUtilization,
           (void* device, NvmlSample* samples, unsigned int* count, unsigned long long since)) {
  auto* real = RealNvml<GetSamples>(__func__);
  if (real == nullptr) return kNvmlFunctionNotFound;
  PodMemory pod;
  if (count == nullptr || (*count != 0 && samples == nullptr) || !OnPodsGpu(device, &pod)) {
    return real(device, samples, count, since);
  }
  NvmlSample* all = nullptr;
  unsigned int have = 0;
  int result = SamplesOfPod(real, device, since, &all, &have);
  if (result == kNvmlSuccess) result = HandOut(all, have, count, samples);
  free(all);
  return result == kNvmlSuccess && have == 0 ? static_cast<int>(kNvmlNotFound) : result;
}

#define BATON_NVML_PROCESSES(name, type)                                   \
  BATON_NVML(name, (void* device, unsigned int* count, type* processes)) { \
    return Processes(__func__, device, count, processes);                  \
  }
BATON_NVML_PROCESSES(nvmlDeviceGetComputeRunningProcesses, NvmlProcessV1)
BATON_NVML_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, NvmlProcess)
BATON_NVML_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, NvmlProcess)
BATON_NVML_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, NvmlProcessV1)
BATON_NVML_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, NvmlProcess)
BATON_NVML_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, NvmlProcess)

void* NvmlWrapper(const char* name) {
  if (strncmp(name, "nvmlDeviceGet", 13) != 0) return nullptr;
#define BATON_NVML_FIND(function) \
  if (strcmp(name, #function) == 0) return reinterpret_cast<void*>(function);
  BATON_NVML_REPLACED(BATON_NVML_FIND)
#undef BATON_NVML_FIND
  return nullptr;
}

}  // namespace baton::hook
