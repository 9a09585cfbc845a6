// `nvml_query linked|dlsym`: prints what NVML tells of each GPU, as JSON: [{uuid, total, used,
// free, total_v2, used_v2, gpu_use, processes: [pid], samples: [pid]}]. Calls no CUDA.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

extern "C" {
struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
struct Rates {
  unsigned int gpu, memory;
};
struct Process {
  unsigned int pid;
  unsigned long long used;
  unsigned int gpu_instance, compute_instance;
};
struct Sample {
  unsigned int pid;
  unsigned long long time_stamp;
  unsigned int sm, memory, encoder, decoder;
};
int nvmlInit_v2();
int nvmlDeviceGetCount_v2(unsigned int*);
int nvmlDeviceGetHandleByIndex_v2(unsigned int, void**);
int nvmlDeviceGetUUID(void*, char*, unsigned int);
int nvmlDeviceGetMemoryInfo(void*, Memory*);
int nvmlDeviceGetMemoryInfo_v2(void*, MemoryV2*);
int nvmlDeviceGetUtilizationRates(void*, Rates*);
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned int*, Process*);
int nvmlDeviceGetProcessUtilization(void*, Sample*, unsigned int*, unsigned long long);
}

namespace {

bool g_linked = false;

// As this program's words say.
template <class Function>
Function* Find(const char* name, Function* linked) {
  if (g_linked) return linked;
  static void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}
#define NVML(name) Find(#name, name)

constexpr int kInsufficientSize = 7;

template <class Items>
std::string Pids(const Items* items, unsigned int count) {
  std::string all;
  for (unsigned int i = 0; i < count; ++i) {
    all += (i == 0 ? "" : ",") + std::to_string(items[i].pid);
  }
  return "[" + all + "]";
}

// Asks for the number first, as tools do.
std::string Processes(void* device) {
  Process processes[64];
  unsigned int count = 0;
  const int asked = NVML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, nullptr);
  if (asked != (count == 0 ? 0 : kInsufficientSize)) return "\"asked for the number: wrong\"";
  if (count > 64) return "\"too many\"";
  if (NVML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, processes) != 0) return "null";
  return Pids(processes, count);
}

std::string Samples(void* device) {
  Sample samples[64];
  unsigned int count = 64;
  const int result = NVML(nvmlDeviceGetProcessUtilization)(device, samples, &count, 0);
  return result == 0 ? Pids(samples, count) : "[]";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  g_linked = std::strcmp(argv[1], "linked") == 0;
  unsigned int count = 0;
  if (NVML(nvmlInit_v2)() != 0 || NVML(nvmlDeviceGetCount_v2)(&count) != 0) return 1;
  std::string all;
  for (unsigned int i = 0; i < count; ++i) {
    void* device = nullptr;
    char uuid[96] = {};
    Memory memory{};
    MemoryV2 memory_v2{};
    memory_v2.version = sizeof(MemoryV2) | 2u << 24;
    Rates rates{};
    if (NVML(nvmlDeviceGetHandleByIndex_v2)(i, &device) != 0 ||
        NVML(nvmlDeviceGetUUID)(device, uuid, sizeof(uuid)) != 0 ||
        NVML(nvmlDeviceGetMemoryInfo)(device, &memory) != 0 ||
        NVML(nvmlDeviceGetMemoryInfo_v2)(device, &memory_v2) != 0 ||
        NVML(nvmlDeviceGetUtilizationRates)(device, &rates) != 0) {
      return 1;
    }
    char text[512];
    std::snprintf(text, sizeof(text),
                  "{\"uuid\": \"%s\", \"total\": %llu, \"used\": %llu, \"free\": %llu, "
                  "\"total_v2\": %llu, \"used_v2\": %llu, \"gpu_use\": %u, ",
                  uuid, memory.total, memory.used, memory.free, memory_v2.total, memory_v2.used,
                  rates.gpu);
    all += (i == 0 ? "" : ", ") + std::string(text) + "\"processes\": " + Processes(device) +
           ", \"samples\": " + Samples(device) + "}";
  }
  std::printf("[%s]\n", all.c_str());
  return 0;
}
