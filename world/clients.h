// What a process does while it lives: launching threads, and the real machine of its hook, which
// says when they may launch.
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

  // All of its threads begin to work.
  void Begin(Process& p);
  // A kernel of the living process has ended, which the thread launched.
  void KernelEnded(Process& p, uint32_t thread);
  // Something for the machine; a process that is stopped finds it when it goes on.
  void Deliver(Process& p, const hook::Event& event);
  void Continue(Process& p);
  // The process says by its word that so much has drained: who waits for it wakes up.
  void SayWord(Process& p, uint64_t epoch, uint64_t rev);
  // Event kWord: the process looks at the word that it waits for.
  void Read(Process& p);

  // Events kBurst, kOpened, kTurn, kFinished and kWake.
  void BeginBurst(Process& p, uint32_t thread);
  void Opened(Process& p, uint32_t thread);
  void TakeTurn(Process& p) { Launch(p, 0); }
  void Finished(Process& p);
  void Wake(Process& p, Instant at);

 private:
  void Launch(Process& p, uint32_t thread);
  void LaunchKernel(Process& p, uint32_t thread, Duration length);
  bool HasTurn(const Process& p) const;
  void PassTurn(Process& p);
  // Lets a thread that was parked for its backlog go on. The hook does when it is at its bound
  // again. Half of that takes far fewer steps, and is the same but where threads wait for each
  // other that are not alike: by it depends how far one is ahead of the others.
  bool Unthrottle(Process& p, uint32_t thread);
  // Its burst, if all of it is launched and has ended.
  bool EndBurst(Process& p, uint32_t thread);
  hook::Observation Observe(const Process& p) const;
  void Step(Process& p, const hook::Event& event);
  // Writes the process's word, where that has changed; those who wait for it wake up.
  void Write(Process& p);
  void ReadSoon(Process& p);
  void QueueWake(Process& p);
  void NoticeFinished(Process& p);

  WorldState& world_;
  Gpus& gpus_;
  Links& links_;
};

}  // namespace baton::world

#endif  // BATON_WORLD_CLIENTS_H_
