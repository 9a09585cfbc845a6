// MIG instances of the GPUs of this node, as the driver has them: listed, made, taken away. NVML
// (devmgr/machine/nvml.h) is one such; tests may bring another.
//
// An instance here is a GPU instance together with the one compute instance that spans it: that
// pair is what a process can be given by uuid. Thread safe. Calls may take seconds, or hang with
// the driver.
#ifndef BATON_DEVMGR_MACHINE_MIG_CONTROL_H_
#define BATON_DEVMGR_MACHINE_MIG_CONTROL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "devmgr/inventory.h"

namespace baton::devmgr {

class MigControl {
 public:
  virtual ~MigControl() = default;

  // By start; none where MIG mode is off. One without a compute instance, because somebody was
  // interrupted while making it, has an empty uuid. kNotFound: no such GPU; kUnavailable: the
  // driver does not answer, or the GPU is lost.
  virtual Result<std::vector<MigInstance>> Instances(const std::string& card) = 0;
  // Makes an instance of `profile` ("1g.10gb", as nvidia-smi spells it) at memory slice `start`,
  // with one compute instance over all of it. Leaves nothing behind when it fails. kInvalid: MIG
  // mode is off, or the GPU has no such profile or it cannot start there; kExhausted: the place is
  // taken.
  virtual Result<MigInstance> Create(const std::string& card, const std::string& profile,
                                     uint32_t start) = 0;
  // Takes away the GPU instance with NVML's id `instance` and what is in it. Success where there is
  // none. kUnavailable: it is in use; try again later.
  virtual Result<void> Destroy(const std::string& card, uint32_t instance) = 0;
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_MACHINE_MIG_CONTROL_H_
