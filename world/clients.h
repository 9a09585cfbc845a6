// What a process does while it lives: a launching thread, and the real machine of its hook, which
// says when it may launch.
#ifndef BATON_WORLD_CLIENTS_H_
#define BATON_WORLD_CLIENTS_H_

#include "base/time.h"
#include "hook/client_machine.h"
#include "world/gpus.h"
#include "world/links.h"
#include "world/state.h"

namespace baton::world {

class Clients {
 public:
  Clients(WorldState& world, Gpus& gpus, Links& links)
      : world_(world), gpus_(gpus), links_(links) {}

  // The next burst of the process' work.
  void BeginBurst(Process& p);
  // A kernel of the living process has ended.
  void KernelEnded(Process& p);
  // Something for the machine; a process that is stopped finds it when it goes on.
  void Deliver(Process& p, const hook::Event& event);
  void Continue(Process& p);

  // Events kOpened, kFinished and kWake.
  void Opened(Process& p);
  void Finished(Process& p);
  void Wake(Process& p, Instant at);

 private:
  void Launch(Process& p);
  void LaunchKernel(Process& p, Duration length);
  // Lets a thread that was parked for its backlog go on, where half of it is gone.
  bool Unthrottle(Process& p);
  void EndBurst(Process& p);
  hook::Observation Observe(const Process& p) const;
  void Step(Process& p, const hook::Event& event);
  void QueueWake(Process& p);
  void NoticeFinished(Process& p);

  WorldState& world_;
  Gpus& gpus_;
  Links& links_;
};

}  // namespace baton::world

#endif  // BATON_WORLD_CLIENTS_H_
