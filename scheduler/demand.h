// Who asks for one GPU: how many pods wait for it, and which rest, that is stopped asking a moment
// ago. Those of idle priority are counted apart: they are in nobody's way.
#ifndef BATON_SCHEDULER_DEMAND_H_
#define BATON_SCHEDULER_DEMAND_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "scheduler/events.h"
#include "scheduler/roster.h"

namespace baton::scheduler {

class Demand {
 public:
  Demand(const SchedulerOptions& options, Roster& roster, const Turn& turn)
      : options_(options), roster_(roster), turn_(turn) {}

  // Somebody with a request waits; and somebody besides the pod does.
  bool anybody_waits() const { return waiting_ > 0; }
  bool others_wait(const Roster::Pod& pod) const {
    return waiting_ > (pod.waiting_since != kNever ? 1 : 0);
  }
  // Nobody waits, of idle priority neither.
  bool nobody_waits() const { return waiting_ + idle_waiting_ == 0; }
  // Somebody for whom a token of the pod must be back soon waits, or may come any moment; or its
  // limit pays for all the time that it keeps it.
  bool contended(uint32_t pod) const {
    const Roster::Pod& holder = roster_.pod(pod);
    return waiting_ + resting_ > 0 || holder.idle_priority() || holder.limited();
  }
  // Nobody with a request holds or rests, nor did a moment ago, and no gang waits. Whether a single
  // pod may go before those of idle priority is the queue's to say.
  bool idle_may_go() const { return resting_ + gangs_waiting_ == 0 && idle_from_ <= turn_.now; }
  // Single pods with requests that rest, those that rest longest first.
  std::vector<uint32_t> Resting() const {
    std::vector<uint32_t> resting;
    for (const auto& [since, index] : grace_) {
      const Roster::Pod& pod = roster_.pod(index);
      const bool counts = pod.id && !pod.gang && !pod.idle_priority();
      if (counts && pod.rests_since == since) resting.push_back(index);
    }
    return resting;
  }

  // Adds `by` to the numbers of pods that wait, where the pod does.
  void Count(const Roster::Pod& pod, int by) {
    const auto add = [by](uint32_t& number, bool one) {
      number += one ? static_cast<uint32_t>(by) : 0;
    };
    const bool waits = pod.waiting_since != kNever;
    add(idle_waiting_, waits && pod.idle_priority());
    add(waiting_, waits && !pod.idle_priority());
    add(gangs_waiting_, waits && pod.gang);
  }
  // The pod has just stopped asking, and rests.
  void Rest(uint32_t index) {
    Roster::Pod& pod = roster_.pod(index);
    SetResting(pod, turn_.now);
    grace_.emplace_back(turn_.now, index);
    const bool idle = pod.idle_priority();
    if (!idle) idle_from_ = turn_.now + kIdleGraces * options_.active_grace;
  }
  // kNever: it does not rest.
  void SetResting(Roster::Pod& pod, Instant since) {
    if (!pod.idle_priority()) {
      resting_ -= pod.rests_since != kNever ? 1 : 0;
      resting_ += since != kNever ? 1 : 0;
    }
    pod.rests_since = since;
  }
  // A pod that has rested for `active_grace`, and does not rest any more.
  std::optional<uint32_t> TakeRested() {
    while (!grace_.empty() && grace_.front().first + options_.active_grace <= turn_.now) {
      const auto [since, index] = grace_.front();
      grace_.pop_front();
      Roster::Pod& pod = roster_.pod(index);
      if (!pod.id || pod.rests_since != since) continue;  // it came back, or is somebody else
      SetResting(pod, kNever);
      return index;
    }
    return std::nullopt;
  }
  // When TakeRested() has one, or idle_may_go() lets go one that waits.
  Instant wakeup() const {
    const Instant at = grace_.empty() ? kNever : grace_.front().first + options_.active_grace;
    return idle_waiting_ > 0 && idle_from_ > turn_.now ? std::min(at, idle_from_) : at;
  }

 private:
  // Those of idle priority go when nobody with a request has worked for so many graces: a pause
  // that is shorter is not worth that its end must wait for their kernels.
  static constexpr int kIdleGraces = 2;

  const SchedulerOptions& options_;
  Roster& roster_;
  const Turn& turn_;
  std::deque<std::pair<Instant, uint32_t>> grace_;  // pods that stopped asking, oldest first
  // Pods with requests; the others apart.
  uint32_t waiting_ = 0;
  uint32_t gangs_waiting_ = 0;
  uint32_t resting_ = 0;
  uint32_t idle_waiting_ = 0;
  Instant idle_from_{};  // those of idle priority may go then, where nobody with a request works
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_DEMAND_H_
