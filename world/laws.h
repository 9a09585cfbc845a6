// What must hold in every world, and how near it comes to what it must not be: limits and books
// after every hold, fairness after every step of a world without faults, and that everybody who
// waits is served once the faults have stopped. docs/policy.md and bounds.md derive the bounds.
#ifndef BATON_WORLD_LAWS_H_
#define BATON_WORLD_LAWS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "policy/share.h"
#include "scheduler/token_scheduler.h"
#include "world/node.h"
#include "world/state.h"

namespace baton::world {

class Laws {
 public:
  // Knows of `world` only the plan and the options yet.
  Laws(WorldState& world, const Node& node);
  // Queues its own events.
  void Begin();

  // After each step of a GPU's scheduler.
  void AfterStep(uint32_t g) {
    if (calm_) CheckFairness(g);
  }
  // A kernel of the pod has ended.
  void CheckLimit(size_t pod, uint32_t g);
  // No token is out: what was held has been charged, once.
  void CheckBook(uint32_t g);
  // Events kLiveness and kShares.
  void CheckLiveness();
  void CheckShares(uint32_t g);
  // At the end: what pods took from each other, where some are hostile.
  void CheckHostile();

 private:
  // A pod on one GPU.
  struct Watched {
    bool was_active = false;
    bool went_first = false;  // for its request, and has not been behind since
    double share = 0;         // its part of what the GPU gives out, while everybody asks
    Duration held_settled{0};
    std::vector<double> share_errors;  // a ring
  };
  struct WatchedGpu {
    Duration longest_kernel{0};
    Instant keeps_others_since = kNever;  // one of idle priority that holds
    std::vector<Watched> pods;            // as in the plan
    Duration held_settled{0};
    uint64_t share_samples = 0;
  };
  // A process that waits, while its pod is owed time: since when it waits, since when it is owed,
  // and the most that the others of its GPUs were owed meanwhile.
  struct Due {
    Instant asked = kNever;
    Instant since{};
    Duration behind{0};
    policy::Share fluid = policy::kWhole;  // the least that it was entitled to
  };
  using Statuses = std::map<PodId, scheduler::PodStatus>;

  Duration Longest(uint32_t g) const;
  Duration MustGo(uint32_t g) const;
  bool Steady(size_t pod) const;
  using StatusList = std::vector<scheduler::PodStatus>;
  void CheckFairness(uint32_t g);
  void CheckIdle(uint32_t g, const StatusList& pods);
  void CheckLags(uint32_t g, const StatusList& pods);
  void CheckRequests(uint32_t g, const StatusList& pods);
  void CheckCredit(size_t pod, uint32_t g, const scheduler::PodStatus& s);
  void PrepareShares();
  static Duration OwedToOthers(const Statuses& status, PodId pod);
  void CheckPatience(const Process& p, std::vector<Statuses>& status);

  void CheckCharged(uint32_t g);
  void CheckStolen(size_t pod, uint32_t g);
  void CheckRobbed(size_t pod, uint32_t g);
  void CheckLost(uint32_t g);
  Duration Claims(uint32_t g) const;
  int64_t HostilePods(uint32_t g) const;

  WorldState& world_;
  const Node& node_;
  const scheduler::SchedulerOptions& scheduler_;
  bool gangs_here_ = false;
  bool hostile_here_ = false;
  // How long each pod held is known: a relay watches, and no more happens than that it, or the
  // daemon, ends now and then.
  bool measured_ = false;
  bool calm_ = false;  // no faults, no gangs: look at every step
  bool fair_ = false;  // and everybody stays: by the bounds of lags as well
  std::vector<WatchedGpu> gpus_;
  std::vector<Due> due_;  // by process
};

}  // namespace baton::world

#endif  // BATON_WORLD_LAWS_H_
