// Processes on this machine's GPUs that the daemon does not manage: they launch without a token,
// and no cap holds for them. NVML tells which processes are on a GPU; those with a client there,
// and those of pods that need no token, are managed.
//
// A process is named once it was seen for kNamedAfter: one that has just started has not attached
// yet, and after a restart of the daemon nobody has.
//
// No I/O. Not thread safe: of the event loop.
#ifndef BATON_BACKEND_UNMANAGED_H_
#define BATON_BACKEND_UNMANAGED_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backend/accounts.h"
#include "backend/devices.h"
#include "backend/gpus.h"
#include "backend/pods.h"
#include "backend/vgpus.h"
#include "node/event_log.h"

namespace baton::backend {

// "process 4711 (python) of user bob in container 0123456789ab, with 3.1 GiB".
std::string Describe(const UnmanagedProcess& process);
// Their memory, as far as NVML tells it.
uint64_t MemoryOf(const std::vector<UnmanagedProcess>& processes);

// Whether the process is of the pod, by its environment or its cgroup.
bool IsOf(const Pod& pod, const node::ProcessFacts& process);
// Its client on the GPU; null: it has none there.
const Lane* LaneOf(const Gpu& gpu, pid_t pid);

class Unmanaged {
 public:
  static constexpr Duration kNamedAfter = std::chrono::seconds(3);

  Unmanaged(const Pods& pods, const Gpus& gpus, const Vgpus& vgpus, Accounts& accounts,
            node::EventLog& log)
      : pods_(pods), gpus_(gpus), vgpus_(vgpus), accounts_(accounts), log_(log) {}

  // Sets Gpu::unmanaged and Gpu::overhead of these GPUs; who is new there, or has gone, becomes an
  // event.
  void Update(const SeenProcesses& seen, Instant now);

 private:
  using Key = std::pair<pid_t, uint64_t>;  // and its start time
  // Its pod; null: none is known.
  const Pod* PodOf(const SeenProcess& process) const;
  bool IsManaged(const Gpu& gpu, const SeenProcess& process) const;
  static uint64_t OverheadOf(const Gpu& gpu, const std::vector<SeenProcess>& processes);
  void Tell(const Gpu& gpu, const std::vector<UnmanagedProcess>& before) const;

  const Pods& pods_;
  const Gpus& gpus_;
  const Vgpus& vgpus_;
  Accounts& accounts_;
  node::EventLog& log_;
  std::map<std::string, std::map<Key, Instant>> since_;  // by GPU: not managed, and since when
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_UNMANAGED_H_
