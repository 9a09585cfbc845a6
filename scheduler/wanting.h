// Whose pods want a GPU: they wait for it, and their limits let them go. By team, so that it is
// known of a hold since when anybody else wanted the GPU meanwhile. Pure; not thread safe.
#ifndef BATON_SCHEDULER_WANTING_H_
#define BATON_SCHEDULER_WANTING_H_

#include <algorithm>
#include <array>
#include <boost/container/flat_map.hpp>
#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/time.h"
#include "policy/indexed_heap.h"
#include "scheduler/roster.h"

namespace baton::scheduler {

class Wanting {
 public:
  explicit Wanting(Roster& roster) : roster_(roster) {}

  // Whose the pod is. It does not wait.
  void SetTeam(uint32_t index, uint32_t team) {
    Erase(index);
    roster_.pod(index).want.team = team;
  }
  // The pod waits, and its limit lets it go from `from` on. Replaces what was said of it before.
  void Set(uint32_t index, Instant from, Instant now) {
    Erase(index);
    Roster::Pod& pod = roster_.pod(index);
    pod.want.idle = pod.idle_priority();
    if (from <= now) return Count(pod);
    pod.want.later = true;
    those_[pod.want.idle].later.Insert(index, Nanos(from), pod.id.value);
  }
  // It does not wait.
  void Erase(uint32_t index) {
    Roster::Pod& pod = roster_.pod(index);
    Those& those = those_[pod.want.idle];
    if (pod.want.later) those.later.Erase(index);
    if (pod.want.counted) {
      --those.all;
      const auto of = those.of.find(pod.want.team);
      if (--of->second == 0) those.of.erase(of);
    }
    pod.want.later = pod.want.counted = false;
  }
  // From when on pods of other teams have wanted the GPU that `holder` holds, as far as that is so
  // by `now`: kNever where it is not, an instant long ago where it was so in the last call. Who is
  // of idle priority wants only what its like holds. `now` never goes back.
  Instant OthersSince(uint32_t holder, Instant now) {
    const Roster::Pod& pod = roster_.pod(holder);
    const Instant at = OthersSince(those_[false], pod.want.team, now);
    if (!pod.idle_priority()) return at;
    return std::min(at, OthersSince(those_[true], pod.want.team, now));
  }

 private:
  // Few teams are on one GPU: they stand here, without a block of memory more.
  using ByTeam =
      boost::container::flat_map<uint32_t, uint32_t, std::less<uint32_t>,
                                 boost::container::small_vector<std::pair<uint32_t, uint32_t>, 4>>;
  struct Those {
    uint32_t all = 0;           // who want it now,
    ByTeam of;                  // none of 0
    policy::IndexedHeap later;  // those at their limits, by when these let them go
    bool Others(uint32_t team) const {
      const auto own = of.find(team);
      return all > (own != of.end() ? own->second : 0);
    }
  };
  Instant OthersSince(Those& those, uint32_t team, Instant now) {
    if (those.Others(team)) return Instant{};
    while (!those.later.empty() && those.later.top_key() <= Nanos(now)) {
      const Instant at = InstantFromNanos(those.later.top_key());
      Roster::Pod& pod = roster_.pod(those.later.top());
      those.later.Erase(those.later.top());
      pod.want.later = false;
      Count(pod);
      if (those.Others(team)) return at;
    }
    return kNever;
  }
  void Count(Roster::Pod& pod) {
    pod.want.counted = true;
    ++those_[pod.want.idle].all;
    ++those_[pod.want.idle].of[pod.want.team];
  }

  Roster& roster_;
  std::array<Those, 2> those_;  // with requests, and of idle priority
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_WANTING_H_
