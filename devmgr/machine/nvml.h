// What the NVIDIA management library knows: which GPUs there are and how they are, which processes
// have work on them, and the MIG instances, which it makes and takes away. The library is loaded at
// run time (libnvidia-ml.so.1); without it, GPUs come from the configuration and a process's exit
// alone proves that its work has ended.
//
// Thread safe. A call may take milliseconds (MIG: seconds), or hang with the driver: ask on a
// thread that may be lost. A library older than a function is as one that does not know the answer.
#ifndef BATON_DEVMGR_MACHINE_NVML_H_
#define BATON_DEVMGR_MACHINE_NVML_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "devmgr/inventory.h"
#include "devmgr/machine/mig_control.h"

namespace baton::devmgr {

// Something that NVML tells of a GPU by itself.
struct CardNews {
  std::string uuid;
  uint32_t xid = 0;    // 0: something else happened; look again
  bool fails = false;  // the GPU must not be used: the next Look() says so too
  std::string what;    // "XID 79: GPU has fallen off the bus"
};

class Nvml : public MigControl {
 public:
  // Never null. Where the library is absent or refuses, available() is false and why() says so;
  // Look() asks it again.
  static std::unique_ptr<Nvml> Load(const std::string& library = "libnvidia-ml.so.1");

  virtual bool available() const = 0;
  virtual std::string why() const = 0;
  // In the order of NVML's indexes, which is the bus order.
  virtual std::vector<GpuInfo> Gpus() = 0;
  // Whether NVML lists `pid` among the processes that compute on the GPU. False where NVML cannot
  // say (absent, unknown uuid, no permission): then the process's exit is the proof.
  virtual bool Lists(const std::string& uuid, pid_t pid) = 0;
  // All that it lists; nothing where it cannot say.
  struct Process {
    pid_t pid = 0;
    uint64_t memory_bytes = 0;  // that it has there; 0 where NVML does not tell
  };
  virtual std::vector<Process> Processes(const std::string& uuid) = 0;
  // Over the driver's last sampling period (some 100 ms to 1 s), 0 to 1: the time in which a kernel
  // ran, and in which device memory was read or written. Nothing where NVML cannot say.
  struct Utilization {
    double sm = 0;
    double memory = 0;
  };
  virtual std::optional<Utilization> UtilizationOf(const std::string& uuid) = 0;
  // The same of each process on the GPU since `since_us` (microseconds since 1970), as the driver
  // sampled it; it keeps samples for some ten seconds. Those that did nothing are left out. Nothing
  // where NVML cannot say: before Maxwell, in MIG mode.
  struct ProcessUse {
    pid_t pid = 0;
    Utilization use;
  };
  virtual std::optional<std::vector<ProcessUse>> ProcessUses(const std::string& uuid,
                                                             uint64_t since_us) = 0;
  // Of a MIG instance of the GPU, by NVML's id of it, since the last call for it: how many of its
  // SMs were busy, over time, and how much of its memory bandwidth was used. Nothing at the first
  // call, and where NVML cannot say: before Hopper.
  struct InstanceUse {
    Utilization use;
    Duration over{0};  // since the last call; 100 ms or more
  };
  virtual std::optional<InstanceUse> UseOfInstance(const std::string& uuid, uint32_t instance) = 0;
  // All that the GPU took since the driver was loaded, in joules; it moves every 100 ms or so, and
  // a call may take some milliseconds. Nothing where NVML cannot say (before Volta).
  virtual std::optional<double> EnergyOf(const std::string& uuid) = 0;

  // Lets the driver refuse to the processes of a cgroup, all together, more than `bytes` of the
  // GPU's memory, whatever they call; 0: no bound. `folder`: the full path of the group's folder.
  // Guarantees the group nothing. Drivers have this from R615 on. kUnavailable: the library has no
  // such call; kInvalid: not this driver, kernel or GPU; kNotFound: no such group, or none whose
  // memory the kernel counts.
  virtual Result<void> CapMemory(const std::string& uuid, const std::string& folder,
                                 uint64_t bytes) = 0;
  // Whether the library has the call.
  virtual bool CapsMemory() const = 0;

  // The GPUs of this node as they are now, in the order of NVML's indexes. `name` becomes the
  // node's; what is not of GPUs is left as it is by default.
  //
  // A GPU is kFailed when NVML says that it is lost or needs a reset, when it had uncorrected ECC
  // errors since the driver was loaded or could not remap a row, when Wait() told of a critical
  // XID, or when its MIG instances cannot be listed while MIG mode is on. One that was seen before
  // and cannot be asked any more is told as it was, as kFailed. A pending row remap is no failure:
  // errors are contained until the next reset.
  //
  // kUnavailable: there is no NVML, no driver, or it does not answer; what was known before is not
  // to be given up for that. `complaints`, if not null: a sentence for each thing that could not be
  // found out.
  virtual Result<Node> Look(const std::string& name,
                            std::vector<std::string>* complaints = nullptr) = 0;
  // Waits for news of the GPUs that the last Look() saw, `at_most` long (to the millisecond, up to
  // a minute); nothing when there were none. One thread at a time. After an error pause before the
  // next call: it may come at once. kUnavailable: NVML has no events here, or not now; looks tell
  // the rest.
  virtual Result<std::optional<CardNews>> Wait(Duration at_most) = 0;
  // The operator has seen to the GPU: an XID of before no longer counts against it. It is
  // forgotten too when NVML ceases to list the GPU, as during a reset.
  virtual void ForgetXid(const std::string& uuid) = 0;
};

// Whether a GPU that reports the XID can go on being used. Application errors (13, 31, 43, 45, 68,
// 109, as NVIDIA's device plugin for Kubernetes has them) and notes about what has been dealt with
// (63, 92, 93, 106, 107, 108, 137, 141, 154, "ignore" or informational in NVIDIA's XID catalog) say
// nothing against it; every other does.
bool IsCriticalXid(uint32_t xid);
// "XID 79: GPU has fallen off the bus".
std::string XidText(uint32_t xid);

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_MACHINE_NVML_H_
