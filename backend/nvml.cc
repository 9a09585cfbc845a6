#include "backend/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace baton::backend {
namespace {

// Declarations after NVIDIA's public NVML reference; no header of the toolkit is needed.
using NvmlReturn = int;  // 0 is success, 7 insufficient size
constexpr NvmlReturn kInsufficientSize = 7;
using NvmlDevice = void*;
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
// nvmlProcessInfo_t of the _v2 and _v3 calls.
struct NvmlProcess {
  unsigned int pid;
  unsigned long long used_memory;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};
// The first call had this shorter record.
struct NvmlProcessV1 {
  unsigned int pid;
  unsigned long long used_memory;
};

struct NvmlUtilization {
  unsigned int gpu;  // percent
  unsigned int memory;
};

class LoadedNvml : public Nvml {
 public:
  LoadedNvml() { why_ = Open(); }
  ~LoadedNvml() override {
    if (shutdown_ != nullptr && available()) shutdown_();
    // Not unloaded: drivers leave threads and exit handlers behind.
  }

  bool available() const override { return why_.empty(); }
  const std::string& why() const override { return why_; }

  std::vector<GpuInfo> Gpus() override {
    std::vector<GpuInfo> gpus;
    if (!available()) return gpus;
    unsigned count = 0;
    if (count_(&count) != 0) return gpus;
    for (unsigned i = 0; i < count; ++i) {
      NvmlDevice device = nullptr;
      char uuid[96] = {};
      char name[96] = {};
      NvmlMemory memory{};
      // A GPU that fell off the bus answers with an error; the others go on.
      if (by_index_(i, &device) != 0 || uuid_(device, uuid, sizeof uuid) != 0) continue;
      if (name_ != nullptr) name_(device, name, sizeof name);
      if (memory_ != nullptr) memory_(device, &memory);
      gpus.push_back({uuid, name, memory.total});
    }
    return gpus;
  }

  bool Lists(const std::string& uuid, pid_t pid) override {
    const auto pids = Processes(uuid);
    return std::find(pids.begin(), pids.end(), pid) != pids.end();
  }

  std::vector<pid_t> Processes(const std::string& uuid) override {
    std::vector<pid_t> pids;
    const NvmlDevice device = DeviceOf(uuid);
    if (device == nullptr) return pids;
    Collect<NvmlProcess>(processes_, device, pids);
    if (processes_ == nullptr) Collect<NvmlProcessV1>(processes_v1_, device, pids);
    return pids;
  }

  std::optional<Utilization> UtilizationOf(const std::string& uuid) override {
    const NvmlDevice device = DeviceOf(uuid);
    NvmlUtilization rates{};
    if (device == nullptr || utilization_ == nullptr || utilization_(device, &rates) != 0) {
      return std::nullopt;
    }
    return Utilization{std::min(rates.gpu, 100u) / 100.0, std::min(rates.memory, 100u) / 100.0};
  }

 private:
  // Null for what NVML does not know.
  NvmlDevice DeviceOf(const std::string& uuid) {
    if (!available()) return nullptr;
    const std::lock_guard lock(mutex_);
    auto it = devices_.find(uuid);
    if (it == devices_.end()) {
      NvmlDevice device = nullptr;
      if (by_uuid_(uuid.c_str(), &device) != 0) return nullptr;
      it = devices_.emplace(uuid, device).first;
    }
    return it->second;
  }

  template <class Process>
  static void Collect(NvmlReturn (*call)(NvmlDevice, unsigned*, Process*), NvmlDevice device,
                      std::vector<pid_t>& pids) {
    if (call == nullptr) return;
    std::vector<Process> processes(32);
    // More processes may start between the calls: ask with room to spare, a bounded number of
    // times.
    for (int attempt = 0; attempt < 4; ++attempt) {
      auto count = static_cast<unsigned>(processes.size());
      const NvmlReturn result = call(device, &count, processes.data());
      if (result == 0) {
        for (unsigned i = 0; i < std::min<size_t>(count, processes.size()); ++i) {
          pids.push_back(static_cast<pid_t>(processes[i].pid));
        }
        return;
      }
      if (result != kInsufficientSize || count > 1'000'000) return;
      processes.resize(count + 32);
    }
  }

  // Empty, or why the library cannot be used.
  std::string Open() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return "libnvidia-ml.so.1 was not found";
    auto load = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    NvmlReturn (*init)() = nullptr;
    if (!load(init, "nvmlInit_v2") && !load(init, "nvmlInit")) return "nvmlInit is missing";
    load(shutdown_, "nvmlShutdown");
    if (!load(count_, "nvmlDeviceGetCount_v2") && !load(count_, "nvmlDeviceGetCount")) {
      return "nvmlDeviceGetCount is missing";
    }
    if (!load(by_index_, "nvmlDeviceGetHandleByIndex_v2") &&
        !load(by_index_, "nvmlDeviceGetHandleByIndex")) {
      return "nvmlDeviceGetHandleByIndex is missing";
    }
    if (!load(by_uuid_, "nvmlDeviceGetHandleByUUID")) {
      return "nvmlDeviceGetHandleByUUID is missing";
    }
    if (!load(uuid_, "nvmlDeviceGetUUID")) return "nvmlDeviceGetUUID is missing";
    load(name_, "nvmlDeviceGetName");
    load(memory_, "nvmlDeviceGetMemoryInfo");
    load(utilization_, "nvmlDeviceGetUtilizationRates");
    if (!load(processes_, "nvmlDeviceGetComputeRunningProcesses_v3") &&
        !load(processes_, "nvmlDeviceGetComputeRunningProcesses_v2")) {
      load(processes_v1_, "nvmlDeviceGetComputeRunningProcesses");
    }
    if (const NvmlReturn result = init(); result != 0) {
      return "nvmlInit answered " + std::to_string(result);
    }
    return {};
  }

  std::string why_;
  std::mutex mutex_;  // devices_; the library's own calls need none
  std::map<std::string, NvmlDevice> devices_;
  NvmlReturn (*shutdown_)() = nullptr;
  NvmlReturn (*count_)(unsigned*) = nullptr;
  NvmlReturn (*by_index_)(unsigned, NvmlDevice*) = nullptr;
  NvmlReturn (*by_uuid_)(const char*, NvmlDevice*) = nullptr;
  NvmlReturn (*uuid_)(NvmlDevice, char*, unsigned) = nullptr;
  NvmlReturn (*name_)(NvmlDevice, char*, unsigned) = nullptr;
  NvmlReturn (*memory_)(NvmlDevice, NvmlMemory*) = nullptr;
  NvmlReturn (*utilization_)(NvmlDevice, NvmlUtilization*) = nullptr;
  NvmlReturn (*processes_)(NvmlDevice, unsigned*, NvmlProcess*) = nullptr;
  NvmlReturn (*processes_v1_)(NvmlDevice, unsigned*, NvmlProcessV1*) = nullptr;
};

}  // namespace

std::unique_ptr<Nvml> Nvml::Load() { return std::make_unique<LoadedNvml>(); }

}  // namespace baton::backend
