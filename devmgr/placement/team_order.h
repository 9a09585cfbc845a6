// Which team's pods come next: the one that has least of what it is due, as in the Fair Tree
// (policy/fair_share.h), by what it has used and as if what runs now ran on for a while. Siblings
// are compared, each with all teams below it: so what an idle team leaves goes to its siblings. A
// team's own pods stand beside the teams below it, with weight 1.
//
// What a team has used would not do alone. Of a pod that was placed a moment ago nothing has been
// used yet, so a team that is behind would be given all that comes free until what it was given has
// been used, which is far too much by then. What runs would not do alone either: a team that could
// not use its due, or whose pods do not divide it evenly, would never get that back. So it is
//
//   s = (U + ahead R) / weight     U: GPU-hours used, R: GPUs that run
//
// and the team with the least s comes first. While all s are kept equal, dU/dt = R makes what each
// lacks of its due decay with time constant `ahead`, without swinging. An s is off by ahead p / w
// at most where the team that comes first is given, its pods being of p GPUs at most. So a week is
// off by about two of the team's largest pods: with 64 GPUs, a month of demand beyond them and
// weights 3 : 2 : 1, each team had its due within 2 % in every week where no pod took more than 0.7
// % of its team's week (tests/devmgr/team_order_test.cc), and within 2.9 % where one took 1.4 %.
//
// Pure. Not thread safe.
#ifndef BATON_DEVMGR_PLACEMENT_TEAM_ORDER_H_
#define BATON_DEVMGR_PLACEMENT_TEAM_ORDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "devmgr/placement/cluster.h"

namespace baton::devmgr {

struct TeamStanding {
  uint32_t weight = 1;    // among its siblings; 0 counts as 1
  double used_hours = 0;  // GPU-hours, older ones counting less; without those of teams below it

  friend bool operator==(const TeamStanding&, const TeamStanding&) = default;
};
// By team. One that is not there weighs 1 and has used nothing.
using Standings = std::map<std::string, TeamStanding, std::less<>>;

class TeamOrder {
 public:
  // Each pod of the cluster is charged for what it takes. `ahead`: for how long each is charged.
  TeamOrder(const Standings& standings, const Cluster& cluster, Duration ahead);

  // A pod of the team has been placed, and takes so much, in millionths of a GPU. O(depth).
  void Charge(std::string_view team, uint64_t share);
  // Whether team `a` comes before `b`: it has less of what it is due. Those that have the same: the
  // one that is due more, then by name. A strict order. O(depth).
  bool Before(const std::string& a, const std::string& b);

 private:
  struct Node {
    std::string path;
    uint32_t parent = 0;
    uint32_t depth = 0;
    double weight = 1;
    double own = 0;  // GPU-hours of the team itself
    double all = 0;  // and of all below it
  };
  // What is compared with its siblings.
  struct Claim {
    double used;
    double weight;
    const std::string& path;
  };
  static bool Before(const Claim& a, const Claim& b);

  uint32_t IndexOf(std::string_view team);
  void Add(uint32_t team, double hours);

  const Standings& standings_;
  const double ahead_hours_;
  std::map<std::string, uint32_t, std::less<>> indices_;
  std::vector<Node> nodes_{1};  // the first is all teams together
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_TEAM_ORDER_H_
