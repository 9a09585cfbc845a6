// Who uses a GPU how much, through NVML: processes, and MIG instances.
#ifndef BATON_DEVMGR_MACHINE_NVML_USE_H_
#define BATON_DEVMGR_MACHINE_NVML_USE_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "devmgr/machine/nvml_api.h"

namespace baton::devmgr::nvml {

// As devmgr/machine/nvml.h has it.
std::optional<std::vector<Nvml::ProcessUse>> ProcessUses(const Api& api, Device device,
                                                         uint64_t since_us);

// The newest sample of each MIG instance that was asked for: GPU performance metrics (GPM) are the
// difference of two. Thread safe, but for two calls for one instance at once.
class InstanceSamples {
 public:
  // `api` outlives it.
  explicit InstanceSamples(const Api& api) : api_(api) {}
  InstanceSamples(const InstanceSamples&) = delete;
  InstanceSamples& operator=(const InstanceSamples&) = delete;

  // Before NVML is shut down.
  void Clear();
  // As devmgr/machine/nvml.h has it; `device`: the GPU.
  std::optional<Nvml::InstanceUse> UseOf(Device device, const std::string& uuid, uint32_t instance);

 private:
  struct Taken {
    GpmSample sample = nullptr;  // null: none could be
    Instant at{};
  };
  Taken Take(Device device, uint32_t instance) const;
  std::optional<Nvml::InstanceUse> Between(GpmSample first, GpmSample last, Duration over) const;
  void Free(const Taken& taken) const;

  const Api& api_;
  std::mutex mutex_;                                        // for this:
  std::map<std::pair<std::string, uint32_t>, Taken> last_;  // by GPU and instance
};

}  // namespace baton::devmgr::nvml

#endif  // BATON_DEVMGR_MACHINE_NVML_USE_H_
