// A cluster, its teams, and the pods that came to it: what `baton simulate cluster` is asked about.
// Values without behaviour; they are made from the books (backend/workload.h) or read from files
// (capacity/scenario_files.h).
#ifndef BATON_CAPACITY_SCENARIO_H_
#define BATON_CAPACITY_SCENARIO_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "devmgr/inventory.h"
#include "devmgr/placement/policy.h"
#include "devmgr/placement/quota.h"
#include "devmgr/placement/request.h"
#include "policy/share.h"
#include "teams/standing.h"
#include "teams/tree.h"

namespace baton::capacity {

// A part of what a pod does, in its own time: that which passes while it works or pauses, and
// stands still while it waits for its turn.
struct Phase {
  Duration length{0};
  // The part of that time in which it works: what it would use of each of its GPUs without the
  // others, 0 to 1 (teams::Alone()).
  double alone = 1;
};

enum class Ends : uint8_t {
  kWork,   // it goes once it has done all of its course, however long that takes
  kTime,   // it goes so long after it was placed; what it did not get by then it never does
  kNever,  // it is there until the end; its course is by the clock, as for kTime
};

struct PodPlan {
  // Name, team, priority, what it asks of GPUs, constraints. The shares of its virtual GPUs are its
  // request; 0 of idle priority.
  devmgr::PodRequest request;
  policy::ShareSpec share;  // Validated(); its team number does not matter
  Duration came{0};         // when it was asked for; below 0: before the beginning
  std::vector<Phase> course;
  Ends ends = Ends::kWork;
  // It has a place at the beginning: the GPUs (uuids). Empty: it waits from `came` on.
  std::vector<std::string> on;
  // What `baton advise` would have it request.
  std::optional<policy::Share> advised;
  // What it held by the books, in GPU-hours; nothing: nobody recorded it.
  std::optional<double> had_hours;
};

struct Scenario {
  Duration length{0};
  std::vector<devmgr::Node> nodes;
  devmgr::PlacementPolicy placement;
  // Of a GPU, what requests on it may add up to: 1 or more.
  double overcommit = 1;
  teams::Teams teams;  // a team's limit is its ceiling
  // Guarantees: GPUs of a team and all below it.
  std::vector<std::pair<std::string, double>> guarantees;
  // What teams have used by the beginning, in GPU-hours, older use counting less.
  std::vector<teams::Use> uses;
  policy::Share uncontended_use{0};
  std::vector<PodPlan> pods;
};

}  // namespace baton::capacity

#endif  // BATON_CAPACITY_SCENARIO_H_
