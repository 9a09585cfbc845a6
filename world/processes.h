// How processes come and go: they are started, connect to the daemon, lose it, are stopped, die and
// are started again.
#ifndef BATON_WORLD_PROCESSES_H_
#define BATON_WORLD_PROCESSES_H_

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "world/adversary.h"
#include "world/clients.h"
#include "world/daemon.h"
#include "world/gpus.h"
#include "world/laws.h"
#include "world/node.h"
#include "world/state.h"

namespace baton::world {

class Processes {
 public:
  Processes(WorldState& world, Gpus& gpus, Laws& laws, Node& node, Daemon& daemon, Clients& clients,
            Adversary& adversary)
      : world_(world),
        gpus_(gpus),
        laws_(laws),
        node_(node),
        daemon_(daemon),
        clients_(clients),
        adversary_(adversary) {}

  // All of the pod.
  void StartAll(size_t pod);
  void EndAll(size_t pod);

  // Events kBegin, kConnect and kAttached.
  void Begin(Process& p);
  void Connect(Process& p);
  void Attached(Process& p, uint32_t connection);
  // The daemon has ended: all connections with it, where there is no relay.
  void LoseDaemon();
  // The relay has found the daemon again, and says everything.
  void SayEverything();
  // The relay has ended: all connections with it, of which the daemon hears when another is there.
  void LoseRelay();
  void RelayIsBack();
  bool relay_down() const { return node_.down(); }

  // What runs in the stream has ended, just now.
  void KernelEnded(uint32_t stream);
  // SIGSTOP, and SIGCONT after `length`.
  void Stop(Process& p, Duration length);
  // SIGKILL. Those of a gang end together: one that misses a peer waits for ever, and who started
  // it knows. They are started again after a while.
  void Kill(Process& p);
  // It alone ends, and is not started again.
  void End(Process& p);
  // Its connection ends, and comes back after `length`.
  void Disconnect(Process& p, Duration length);

 private:
  void Start(size_t pod, uint32_t gpu, uint32_t ordinal, Duration delay);
  void ReportGone(Process& p);

  WorldState& world_;
  Gpus& gpus_;
  Laws& laws_;
  Node& node_;
  Daemon& daemon_;
  Clients& clients_;
  Adversary& adversary_;
  std::vector<uint32_t> lost_;  // whose connections the relay that is away had
  Instant lost_at_{};
};

}  // namespace baton::world

#endif  // BATON_WORLD_PROCESSES_H_
