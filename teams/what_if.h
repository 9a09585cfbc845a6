// What pods would get of one GPU by other shares, from what they did: as a perfectly fair,
// infinitely divisible GPU would divide each bucket of time among those who wanted it then.
//
// What a pod would not get in a bucket is not carried on to the next: pods that always have work do
// not catch up, and of the others a bucket tells too little.
//
// Pure and thread safe.
#ifndef BATON_TEAMS_WHAT_IF_H_
#define BATON_TEAMS_WHAT_IF_H_

#include <span>
#include <string>
#include <vector>

#include "teams/standing.h"

namespace baton::teams {

struct WhatIfPod {
  std::string team;        // any path
  policy::ShareSpec spec;  // Validated(); its team number does not matter
};

class WhatIf {
 public:
  // `teams` may be null: what requests leave goes by slack weights alone.
  WhatIf(std::vector<WhatIfPod> pods, const Teams* teams, std::span<const Use> uses);

  // What each of the pods would get of a bucket of which it would use the part `wanted` alone (0 to
  // 1, others are taken for the nearest): its request first, as far as it wants that, then what
  // others leave, never more than its limit. Pods of idle priority share equally what is left after
  // that. Parts, in the order of the pods, whose sum is at most 1. O(n log n).
  std::vector<double> Divide(std::span<const double> wanted) const;

 private:
  std::vector<WhatIfPod> pods_;
  std::vector<uint32_t> team_of_;       // by pod
  std::vector<uint32_t> team_weights_;  // by team; empty: none
};

}  // namespace baton::teams

#endif  // BATON_TEAMS_WHAT_IF_H_
