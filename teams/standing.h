// Where every team and user stands, and what follows from it: the weights by which the teams on one
// GPU share what requests leave over.
//
// Pure and thread safe.
#ifndef BATON_TEAMS_STANDING_H_
#define BATON_TEAMS_STANDING_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "policy/fair_share.h"
#include "teams/tree.h"

namespace baton::teams {

// What a user of a team held, older use counting less (policy::Decayed). Any unit, the same for
// all; 0 or more. An empty user: nobody said who, and it counts as the team's own.
struct Use {
  std::string team;  // any path; counts as NormalPath() says
  std::string user;
  double decayed = 0;
  // The rest of what they held, likewise: a part of all use that is not held against them, for no
  // other team wanted it.
  double uncounted = 0;
};

// The same by team alone, by PathLess: for a caller that asks for the weights of many GPUs.
std::vector<Use> ByTeam(std::span<const Use> uses);

struct StandingRow {
  std::string path;         // "" is all teams together
  std::string user;         // empty: the row of the team itself
  uint64_t raw_shares = 0;  // its weight
  policy::FairShare share;
};

// All teams of the file, all teams and users that used something, and the teams above them. A team
// stands before its users, and these before the teams below it. O(n log n).
std::vector<StandingRow> Standing(const Teams& teams, std::span<const Use> uses);

// A team with pods on the GPU.
struct SlackRow {
  std::string team;
  double weight = 0;     // w', 0 to 1: its part by the weights of the tree
  double usage = 0;      // u', 0 to 1: the counted part of what the teams here used, anywhere
  uint32_t slack = 0;    // e = max(0, w' + k (w' - u')) in millionths (policy::HistoryWeight)
  double uncounted = 0;  // 0 to 1: the part that is its own and not counted
};

// `present`: the teams of the pods on this GPU, any paths, in any order, repeated or not. Only they
// are compared: the tree is cut down to them and those above them, so the weight of a team without
// pods here goes to its siblings, and what it used counts for nobody. Σ weight = 1; Σ usage = 1, or
// less by what of their use is not counted, or 0 where none of them used anything. A team whose
// subteams are present too stands beside these with its own pods, its own use, and what its users
// weigh together (Teams::OwnWeightOf).
//
// One row for each team, by PathLess. O((uses + present) log n).
std::vector<SlackRow> SlackWeights(const Teams& teams, std::span<const Use> uses,
                                   std::span<const std::string> present);

// Small, dense numbers for teams: policy::ShareSpec::team. A team keeps its number as long as it is
// retained, so that weights and pods may change one after the other. Not thread safe.
class TeamIndex {
 public:
  // The number of this team, which is given the lowest free one when it has none.
  uint32_t Of(std::string_view team);
  // Forgets all teams but these.
  void Retain(std::span<const std::string> teams);
  // What FairQueue::SetTeamWeights() takes, by number: for a team that is not in `rows` 0. Teams in
  // `rows` that have no number are given one.
  std::vector<uint32_t> Weights(std::span<const SlackRow> rows);

 private:
  std::map<std::string, uint32_t, std::less<>> numbers_;
  std::vector<bool> taken_;
};

// A pod that always has work, on one GPU.
struct CoursePod {
  std::string team;
  uint32_t gpu = 0;
  policy::ShareSpec spec;  // Validated(); its team number does not matter
};
struct CoursePoint {
  Duration at{0};
  std::vector<double> share;  // by team, from here on: GPUs, their sum at most that of the GPUs
  std::vector<double> usage;  // by team, up to here: its part of all decayed use, 0 to 1
};
struct Course {
  std::vector<std::string> teams;   // those with pods, by PathLess
  std::vector<CoursePoint> points;  // at 0, step, 2 step ... length
};

// What comes of these pods and that history, where all that they hold from now on counts, as if
// another team always wanted it: shares follow from the standing, the standing from shares (dU/dt =
// share - U ln 2 / half-life; decayed use in nanoseconds of a GPU). Weights are brought up to date
// every `step` (1 ns at least; a thousandth of the half-life is fine enough), in between the decay
// is exact. At most 100 000 steps; longer courses end there.
Course Forecast(const Teams& teams, std::span<const Use> uses, std::span<const CoursePod> pods,
                Duration length, Duration step);

}  // namespace baton::teams

#endif  // BATON_TEAMS_STANDING_H_
