// Why a pod gets what it gets, and where a team stands, in sentences. Every figure in them is the
// policy's own (policy::FluidShares, SlackWeights, Standing, Budgets).
//
// Pure and thread safe.
#ifndef BATON_TEAMS_EXPLAIN_H_
#define BATON_TEAMS_EXPLAIN_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "teams/budget.h"
#include "teams/standing.h"
#include "teams/tree.h"

namespace baton::teams {

struct ExplainPod {
  std::string name;
  std::string team;        // any path
  policy::ShareSpec spec;  // Validated(); its team number does not matter
  bool active = false;     // has work, or had until a moment ago
  bool paused = false;     // of idle priority: waits while others have work
};

// A GPU as one of its pods sees it.
struct ExplainGpu {
  std::string name;              // for people
  std::vector<ExplainPod> pods;  // all of the GPU
  // Null where the daemon has no file of teams: what is left over then goes by request alone.
  const Teams* teams = nullptr;
};

// A pod's entitlement, taken apart. Parts of the GPU, 0 to 1. Where the pod is not active: as it
// would be if it were.
struct ShareParts {
  double asked = 0;      // Σ of the requests of the active pods; above 1: overcommitted
  double requested = 0;  // what it gets for its request: less than that where overcommitted
  double left_over = 0;  // 1 - asked, or 0
  double slack = 0;      // its part of that
  double fluid = 0;      // requested + slack
  double limit = 0;
  // Of its team among the teams with active pods; 1 where teams do not matter.
  double team_weight = 0;     // w'
  double team_usage = 0;      // u', among the teams of all pods of the GPU
  double team_uncounted = 0;  // of what these used, too: what it did and is not held against it
  double team_due = 0;        // of left_over, by the weights e of the teams that have active pods
  double team_slack = 0;      // of left_over, what its active pods have together
};

// `pod`: its index in gpu.pods.
ShareParts PartsOf(const ExplainGpu& gpu, size_t pod, std::span<const Use> uses);

// `waited`: the part of the last minute in which the pod waited, where that is known. `budgets` may
// be null.
std::vector<std::string> ExplainShare(const ExplainGpu& gpu, size_t pod, std::span<const Use> uses,
                                      std::optional<double> waited, const Budgets* budgets);

// `pods`: all pods, for the limits.
std::vector<std::string> ExplainTeam(const Teams& teams, std::string_view team,
                                     std::span<const Use> uses, std::span<const LimitPod> pods,
                                     const Budgets* budgets);

}  // namespace baton::teams

#endif  // BATON_TEAMS_EXPLAIN_H_
