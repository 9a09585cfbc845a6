// A world that runs: its parts, and the loop over what happens. Run() of world/engine.h is one from
// its beginning to its end; who needs more may stop it at an instant, look, and do something to it.
#ifndef BATON_WORLD_WORLD_H_
#define BATON_WORLD_WORLD_H_

#include "base/time.h"
#include "world/adversary.h"
#include "world/clients.h"
#include "world/daemon.h"
#include "world/engine.h"
#include "world/faults.h"
#include "world/gpus.h"
#include "world/laws.h"
#include "world/links.h"
#include "world/node.h"
#include "world/plan.h"
#include "world/processes.h"
#include "world/state.h"

namespace baton::world {

class World {
 public:
  // `plan` passes CheckPlan(), and outlives the world.
  World(const Plan& plan, const RunOptions& options);

  // Everything that happens until `end`; less where a check fails.
  void RunUntil(Instant end);
  // What is to be said of the plan's whole length. Nothing is done after that.
  Verdict Finish();

  WorldState& state() { return state_; }
  Daemon& daemon() { return daemon_; }
  Clients& clients() { return clients_; }
  Processes& processes() { return processes_; }
  Faults& faults() { return faults_; }

 private:
  void Handle(const Event& event);
  Process& ProcessAt(const Event& event) { return *state_.processes[event.subject]; }
  void Arrive(size_t pod);
  void Leave(size_t pod);
  void AtRelay(uint32_t frame);
  void PassPlain();
  void AtDaemon(uint32_t frame);
  void AtClient(uint32_t frame);
  void Deliver(uint32_t frame);
  void Act(Process& p, uint32_t connection);
  void Continue(Process& p);
  void ExtendSeries();
  void Summarize();

  WorldState state_;
  Gpus gpus_{state_};
  Links links_{state_};
  Node node_{state_};
  Laws laws_{state_, node_};
  Daemon daemon_{state_, gpus_, links_, node_, laws_};
  Clients clients_{state_, gpus_, links_};
  Adversary adversary_{state_, links_, node_, daemon_, clients_};
  Processes processes_{state_, gpus_, laws_, node_, daemon_, clients_, adversary_};
  Faults faults_{state_, links_, daemon_, processes_};
};

}  // namespace baton::world

#endif  // BATON_WORLD_WORLD_H_
