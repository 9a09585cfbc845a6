// What the binder looks at next: names, at once or at a time, and whether pods that wait for room
// are tried again. Deterministic: names come out in order, each once.
#ifndef BATON_K8S_CLUSTER_WORK_QUEUE_H_
#define BATON_K8S_CLUSTER_WORK_QUEUE_H_

#include <set>
#include <string>
#include <utility>

#include "base/time.h"

namespace baton::k8s {

inline constexpr Instant kAlways = Instant::min();

class WorkQueue {
 public:
  void Add(const std::string& key) { keys_.insert(key); }
  void AddAt(Instant at, const std::string& key) { timers_.emplace(at, key); }
  // Adds the names whose time has come.
  void AddDue(Instant now) {
    while (!timers_.empty() && timers_.begin()->first <= now) {
      keys_.insert(timers_.begin()->second);
      timers_.erase(timers_.begin());
    }
  }
  // Empties it. Names that were added for a later time stay.
  std::set<std::string> Take() { return std::exchange(keys_, {}); }
  // The earliest of the later times; kNever.
  Instant next() const { return timers_.empty() ? kNever : timers_.begin()->first; }

  void RequestRound() { round_requested_ = true; }
  bool round_requested() const { return round_requested_; }
  void ClearRoundRequest() { round_requested_ = false; }

 private:
  std::set<std::string> keys_;
  std::set<std::pair<Instant, std::string>> timers_;
  bool round_requested_ = false;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_CLUSTER_WORK_QUEUE_H_
