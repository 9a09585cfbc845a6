// Makes the MIG instances that the vGPU map wants, and takes them away. Never changes whether MIG
// is on.
#ifndef BATON_DEVMGR_MACHINE_MIG_DRIVER_H_
#define BATON_DEVMGR_MACHINE_MIG_DRIVER_H_

#include <mutex>
#include <string>
#include <vector>

#include "devmgr/machine/device_marks.h"
#include "devmgr/machine/mig_control.h"
#include "devmgr/modes/mig_mode.h"
#include "devmgr/modes/sharing_mode.h"

namespace baton::devmgr {

// Each instance is marked before it is made. A mark and an instance at its place: ours. A mark
// alone: it was not made yet, or is gone already. An instance alone: somebody else's, which is
// never touched, and never given to a pod. Thread safe.
class MigDriver final : public DeviceDriver {
 public:
  // All three live longer than this.
  MigDriver(MigControl& control, DeviceMarks& marks, const MigMode& mode)
      : control_(control), marks_(marks), mode_(mode) {}

  // The instance's uuid. kInvalid: the slot means nothing. kUnavailable: somebody else's instance
  // is in the place, or the driver does not answer.
  Result<std::string> Create(const Card& card, const Vgpu& vgpu) override;
  // Success as well where the GPU is gone, and its instances with it.
  Result<void> Destroy(const Card& card, const Vgpu& vgpu) override;
  Result<std::vector<std::string>> Reconcile(const Card& card, std::vector<Vgpu>& known) override;

 private:
  struct Made {
    std::string device;
    bool anew = false;
  };
  // With mutex_ held.
  Result<Made> Make(const Card& card, const Vgpu& vgpu);
  Result<bool> TakeAway(const std::string& card, const std::string& id, const std::string& mark);

  std::mutex mutex_;
  MigControl& control_;
  DeviceMarks& marks_;
  const MigMode& mode_;
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_MACHINE_MIG_DRIVER_H_
