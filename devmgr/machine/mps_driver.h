// Keeps an MPS control daemon on each GPU that has virtual GPUs in that mode, from the first to
// the last of them. Never changes a GPU's compute mode: MPS works in the default one too.
#ifndef BATON_DEVMGR_MACHINE_MPS_DRIVER_H_
#define BATON_DEVMGR_MACHINE_MPS_DRIVER_H_

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "devmgr/machine/device_marks.h"
#include "devmgr/machine/mps_control.h"
#include "devmgr/modes/sharing_mode.h"

namespace baton::devmgr {

// Each pod's processes bring their own limits (MpsMode::EnvironmentOf). The daemon is told the
// largest of its virtual GPUs', which binds those who come without.
//
// The daemon is needed as long as a virtual GPU on the GPU is marked. It is a child of nobody: it
// and its clients outlive batond, which under systemd takes KillMode=process. Thread safe; one call
// at a time.
class MpsDriver final : public DeviceDriver {
 public:
  // Both live longer than this.
  MpsDriver(MpsControl& control, DeviceMarks& marks) : control_(control), marks_(marks) {}

  // The daemon's pipe directory. kNotFound: MPS is not installed.
  Result<std::string> Create(const Card& card, const Vgpu& vgpu) override;
  // kUnavailable as well while processes of it still use the daemon that is to end.
  Result<void> Destroy(const Card& card, const Vgpu& vgpu) override;
  Result<std::vector<std::string>> Reconcile(const Card& card, std::vector<Vgpu>& known) override;
  // Of all GPUs on which a daemon was made or found, and is needed: it is started where it has
  // ended, as with the container that it ran in. What was done, in sentences.
  std::vector<std::string> Keep();

 private:
  using Marks = std::map<std::string, std::string>;
  // With mutex_ held. Whether the daemon had to be started.
  Result<bool> Serve(const Card& card, const Marks& marks);
  Result<void> Limit(const Card& card, const Marks& marks);
  // Ends the daemon, unless processes use it. Whether there was one.
  Result<bool> End(const std::string& card);
  Result<std::vector<std::string>> Pids(const std::string& card, const std::string& command);

  std::mutex mutex_;
  MpsControl& control_;
  DeviceMarks& marks_;
  std::map<std::string, Card> served_;  // by uuid: these have a daemon, unless it ended by itself
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_MACHINE_MPS_DRIVER_H_
