// A world of gangs and single pods that a test stops to look at it, and to do things to it that no
// plan of a world has.
#ifndef BATON_TESTS_SCHEDULER_GANG_RUN_H_
#define BATON_TESTS_SCHEDULER_GANG_RUN_H_

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tests/scheduler/share_spec.h"
#include "world/world.h"

namespace baton::scheduler {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using world::PodPlan;

// Of each pod on each of its GPUs, in percent.
using Shares = std::map<std::pair<PodId, uint32_t>, double>;

class GangRun {
 public:
  explicit GangRun(uint32_t gpus, uint64_t seed = 1, const SchedulerOptions& options = {});

  // Before the first Run(). Processes that do not pause draw their kernels each for itself.
  PodId Add(PodPlan pod);
  // A gang of pods, one on each of the GPUs, with so many processes each; empty: as `pod` says.
  // What is said of the first is said of all.
  PodId AddPods(PodPlan pod, const std::vector<uint32_t>& processes = {});
  // Faults come: holds may be longer than what was granted, and who waits may wait for ever.
  void ExpectFaults() { options_.bounds = false; }

  // A check of the world that fails, fails the test, and ends the world.
  void Run(Duration length);
  // As the devices saw it.
  Shares SharesOver(Duration length);

  void Do(const world::FaultPlan& fault);
  void SetShare(PodId pod, double request, double limit);
  void Stop(PodId pod, uint32_t which, Duration length);
  void Disconnect(PodId pod, uint32_t which, Duration length);
  // The link to all processes, as a relay tells them.
  void CutLink(Duration length);
  // The process dies alone, and is not started again.
  void Kill(PodId pod, uint32_t which);
  // All of the pod's processes are killed, one after the other, and started again.
  void StartAnew(PodId pod);
  // Deleted, while its processes live.
  void Remove(PodId pod);
  // The daemon ends, and another one hears of these GPUs, one after the other; all where empty.
  void Restart(std::vector<uint32_t> gpus = {});

  bool Living(PodId pod) { return !Processes(pod).empty(); }
  // Whether one of its processes has something to do, and whether the pod stands in line.
  bool Asks(PodId pod);
  bool Waits(PodId pod, uint32_t g);
  // Its processes over time, all of its gang.
  uint32_t Started(PodId pod);
  // Of the one of its living processes, or threads, that has launched least.
  uint64_t Launches(PodId pod);
  uint64_t Collectives(PodId pod);
  // Tokens of the GPU.
  uint64_t Grants(uint32_t g);
  // Charged since the beginning; and since the daemon started, where it is least.
  Duration Charged(PodId pod, uint32_t g);
  Duration Held(PodId pod);
  // Of the waits of a single pod, by its latency.
  LatencyMet Met(PodId pod);
  // Where it is ahead of its share, or beyond its limit, most.
  Duration Debt(PodId pod);
  // From a launch that finds the gate closed to the gate open.
  Duration LongestWait(PodId pod);
  const world::Daemon& daemon() { return world_->daemon(); }
  Instant now() { return world_ ? world_->state().now : Instant{}; }

 private:
  using Places = std::vector<world::Gang::Place>;
  const Places& PlacesOf(PodId pod);
  std::vector<world::Process*> Processes(PodId pod);
  world::Process* Living(PodId pod, uint32_t which);
  void EachStatus(PodId pod,
                  const std::function<void(const TokenScheduler&, const PodStatus&)>& look);

  uint32_t last_id_ = 0;  // the further ones of AddPods() have higher ones
  world::Plan plan_;
  world::RunOptions options_;
  std::optional<world::World> world_;
  Random random_;
  std::multimap<Instant, std::function<void()>> later_;
};

// On the GPU where it has least; 0: it had none at all.
double Least(const Shares& shares, PodId pod);

// Unoptimised and under sanitizers a world takes twenty times as long.
#ifdef NDEBUG
inline constexpr uint64_t kWorlds = 20;
#else
inline constexpr uint64_t kWorlds = 1;
#endif

}  // namespace baton::scheduler

#endif  // BATON_TESTS_SCHEDULER_GANG_RUN_H_
