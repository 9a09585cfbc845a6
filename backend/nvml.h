// What the NVIDIA management library knows: which GPUs there are and which processes have work on
// them. The library is loaded at run time (libnvidia-ml.so.1); without it, GPUs come from the
// configuration and a process's exit alone proves that its work has ended.
// Thread safe. A call may take milliseconds, or hang with the driver.
#ifndef BATON_BACKEND_NVML_H_
#define BATON_BACKEND_NVML_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace baton::backend {

struct GpuInfo {
  std::string uuid;  // "GPU-..."
  std::string name;  // "NVIDIA H200"
  uint64_t memory_bytes = 0;
};

class Nvml {
 public:
  // Never null. Where the library is absent or refuses, available() is false and why() says so.
  static std::unique_ptr<Nvml> Load();
  virtual ~Nvml() = default;

  virtual bool available() const = 0;
  virtual const std::string& why() const = 0;
  // In the order of NVML's indexes, which is the bus order.
  virtual std::vector<GpuInfo> Gpus() = 0;
  // Whether NVML lists `pid` among the processes that compute on the GPU. False where NVML cannot
  // say (absent, unknown uuid, no permission): then the process's exit is the proof.
  virtual bool Lists(const std::string& uuid, pid_t pid) = 0;
  // All that it lists; nothing where it cannot say.
  virtual std::vector<pid_t> Processes(const std::string& uuid) = 0;
  // Over the driver's last sampling period (some 100 ms to 1 s), 0 to 1: the time in which a kernel
  // ran, and in which device memory was read or written. Nothing where NVML cannot say.
  struct Utilization {
    double sm = 0;
    double memory = 0;
  };
  virtual std::optional<Utilization> UtilizationOf(const std::string& uuid) = 0;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_NVML_H_
