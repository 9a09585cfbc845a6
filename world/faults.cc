#include "world/faults.h"

#include <vector>

namespace baton::world {

void Faults::Queue(size_t number) {
  const auto& faults = world_.plan.faults;
  if (number < faults.size()) world_.At(Instant(faults[number].at), What::kFault, number);
}

void Faults::Inject(size_t number) {
  Queue(number + 1);
  Do(world_.plan.faults[number]);
}

void Faults::Do(const FaultPlan& fault) {
  switch (fault.kind) {
    case kFrames:
      return links_.SpoilUntil(world_.now + fault.length, fault.one_in);
    case kRestarts:
      if (daemon_.down() || processes_.relay_down()) return;
      daemon_.Stop(fault.length);
      processes_.LoseDaemon();
      return world_.After(fault.length, What::kDaemonBack);
    case kCuts:
      return CutLink(fault);
    case kRelays:
      return EndRelay(fault.length);
    case kResizes:
      return Resize(world_.IndexOf(PodId{fault.pod}), fault.spec);
    default:
      return Hit(fault);
  }
}

// The daemon may notice, or find out only when the link is back.
void Faults::CutLink(const FaultPlan& fault) {
  if (links_.cut()) return;
  links_.SetCut(true);
  if (fault.noticed) daemon_.CutLink(true);
  world_.After(fault.length, What::kLinkBack, 0, fault.noticed ? 1 : 0);
}

void Faults::MendLink(bool noticed) {
  links_.SetCut(false);
  if (noticed) daemon_.CutLink(false);
  processes_.SayEverything();
}

void Faults::EndRelay(Duration length) {
  if (!world_.plan.relay || processes_.relay_down() || daemon_.down()) return;
  processes_.LoseRelay();
  world_.After(length, What::kRelayBack);
}

// Once it has a link to the daemon.
void Faults::RelayBack() {
  if (links_.cut()) return world_.After(std::chrono::milliseconds(5), What::kRelayBack);
  processes_.RelayIsBack();
}

void Faults::Resize(size_t pod, const policy::ShareSpec& spec) {
  world_.pods[pod].spec = spec;
  world_.pods[pod].resized = true;
  if (world_.pods[pod].present) daemon_.SetShare(pod);
}

// One of the pod's living processes.
void Faults::Hit(const FaultPlan& fault) {
  const auto& living = world_.pods[world_.IndexOf(PodId{fault.pod})].living;
  if (living.empty()) return;
  Process& p = *living[fault.process % living.size()];
  if (fault.kind == kKills) {
    processes_.Kill(p);
  } else if (fault.kind == kHangs) {
    p.hang = true;
  } else {
    processes_.Stop(p, fault.length);
  }
}

}  // namespace baton::world
