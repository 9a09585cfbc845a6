// The faults of a plan, as each one's time comes.
#ifndef BATON_WORLD_FAULTS_H_
#define BATON_WORLD_FAULTS_H_

#include <cstddef>

#include "world/daemon.h"
#include "world/links.h"
#include "world/plan.h"
#include "world/processes.h"
#include "world/state.h"

namespace baton::world {

class Faults {
 public:
  Faults(WorldState& world, Links& links, Daemon& daemon, Processes& processes)
      : world_(world), links_(links), daemon_(daemon), processes_(processes) {}

  // Queues the fault of this number, if there is one.
  void Queue(size_t number);
  // Event kFault: it happens, and the next one is queued.
  void Inject(size_t number);
  void Do(const FaultPlan& fault);
  // Event kLinkBack.
  void MendLink(bool noticed);
  // Event kRelayBack.
  void RelayBack();

 private:
  void CutLink(const FaultPlan& fault);
  void EndRelay(Duration length);
  void Resize(size_t pod, const policy::ShareSpec& spec);
  void Hit(const FaultPlan& fault);

  WorldState& world_;
  Links& links_;
  Daemon& daemon_;
  Processes& processes_;
};

}  // namespace baton::world

#endif  // BATON_WORLD_FAULTS_H_
