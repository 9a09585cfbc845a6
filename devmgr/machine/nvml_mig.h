// MIG instances through NVML.
#ifndef BATON_DEVMGR_MACHINE_NVML_MIG_H_
#define BATON_DEVMGR_MACHINE_NVML_MIG_H_

#include <string>
#include <vector>

#include "devmgr/inventory.h"
#include "devmgr/machine/nvml_api.h"

namespace baton::devmgr::nvml {

// `where` names the GPU in errors; the rest as devmgr/machine/mig_control.h has it.
Result<std::vector<MigInstance>> Instances(const Api& api, Device device, const std::string& where);
Result<MigInstance> CreateInstance(const Api& api, Device device, const std::string& where,
                                   const std::string& profile, uint32_t start);
Result<void> DestroyInstance(const Api& api, Device device, const std::string& where,
                             uint32_t instance);

}  // namespace baton::devmgr::nvml

#endif  // BATON_DEVMGR_MACHINE_NVML_MIG_H_
