// How processes come and go: they are started, connect to the daemon, lose it, are stopped, die and
// are started again.
#ifndef BATON_WORLD_PROCESSES_H_
#define BATON_WORLD_PROCESSES_H_

#include <cstdint>

#include "base/time.h"
#include "world/clients.h"
#include "world/daemon.h"
#include "world/gpus.h"
#include "world/laws.h"
#include "world/state.h"

namespace baton::world {

class Processes {
 public:
  Processes(WorldState& world, Gpus& gpus, Laws& laws, Daemon& daemon, Clients& clients)
      : world_(world), gpus_(gpus), laws_(laws), daemon_(daemon), clients_(clients) {}

  // All of the pod.
  void StartAll(size_t pod);
  void EndAll(size_t pod);

  // Events kBegin, kConnect and kAttached.
  void Begin(Process& p);
  void Connect(Process& p);
  void Attached(Process& p, uint32_t connection);
  // The daemon has ended: all connections with it.
  void LoseDaemon();

  // What runs on the GPU has ended, just now.
  void KernelEnded(uint32_t gpu);
  // SIGSTOP, and SIGCONT after `length`.
  void Stop(Process& p, Duration length);
  // SIGKILL. Those of a gang end together: one that misses a peer waits for ever, and who started
  // it knows. They are started again after a while.
  void Kill(Process& p);

 private:
  void Start(size_t pod, uint32_t gpu, uint32_t ordinal, Duration delay);
  void End(Process& p);
  void ReportGone(Process& p);

  WorldState& world_;
  Gpus& gpus_;
  Laws& laws_;
  Daemon& daemon_;
  Clients& clients_;
};

}  // namespace baton::world

#endif  // BATON_WORLD_PROCESSES_H_
