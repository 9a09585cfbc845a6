// What NVML tells of the use that pods make of SMs and memory: of processes, which are joined with
// their pods here, and of MIG instances. It is the busy time of pods by MIG, of which nothing else
// is measured. Nothing is known of pods by MPS: drivers count what they do for MPS's server (580 on
// an H200), but now and then name one of them for what it did before the server was there.
//
// A thread of each GPU reads (backend/energy.h); what it read is added on the event loop.
#ifndef BATON_BACKEND_POD_USE_H_
#define BATON_BACKEND_POD_USE_H_

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend/accounts.h"
#include "backend/gpus.h"
#include "backend/pods.h"
#include "base/time.h"
#include "devmgr/machine/nvml.h"
#include "node/process.h"

namespace baton::backend {

// Of a GPU, since the reading before.
struct UseReading {
  struct Process {
    pid_t pid = 0;
    node::ProcessFacts facts;  // with start_time 0: nothing is known of it
    devmgr::Nvml::Utilization use;
  };
  struct Instance {
    std::string device;  // "MIG-..."
    devmgr::Nvml::InstanceUse use;
  };
  bool by_process = false;  // NVML tells processes apart: those that are missing did nothing
  Duration over{0};         // where it does
  std::vector<Process> processes;
  std::vector<Instance> instances;
};

// Reads one GPU, again and again. Calls of NVML and of /proc: not for the event loop. Not thread
// safe.
class UseReader {
 public:
  // Nothing at the first time, and where NVML does not tell.
  std::optional<UseReading> Read(devmgr::Nvml& nvml, const std::string& uuid);

 private:
  Instant at_{};  // of the last reading
  std::map<pid_t, node::ProcessFacts>
      facts_;  // of the processes in it: one may end before the next
};

// Sets PodOnGpu::use of the pods on the GPU of which it tells. Adds to the accounts what pods by
// MIG executed: of their part's time as much as NVML says of their SMs. At least a nanosecond, so
// that the books tell an idle pod from one that was not measured. Of the event loop.
void AddUse(const UseReading& reading, const Pods& pods, const Accounts& accounts, Gpu& gpu,
            Instant now);
// What was told last; null where that is too long ago.
const PodUse* UseNow(const PodOnGpu& on, Instant now);

}  // namespace baton::backend

#endif  // BATON_BACKEND_POD_USE_H_
