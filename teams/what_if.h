// What pods would get of one GPU by other shares, from what they did in a bucket of time: as a
// perfectly fair, infinitely divisible GPU would serve them.
//
// A pod works and pauses, again and again, and takes longer for its work where others are beside
// it; its pauses stay as they were. How those of several pods meet is not known, so they are taken
// to be independent. What a pod does not get in a bucket is not carried on to the next.
//
// Pure and thread safe.
#ifndef BATON_TEAMS_WHAT_IF_H_
#define BATON_TEAMS_WHAT_IF_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "teams/standing.h"

namespace baton::teams {

// What a pod did in a bucket; parts of its time, others than 0 to 1 are taken for the nearest.
struct Did {
  double held = 0;
  double busy = 0;  // executed
  double waited = 0;
};

// The part of the bucket that the pod would have used without the others, 0 to 1. `beside`: what
// the others executed meanwhile, in GPUs.
//
// A pod that works for w and pauses for z uses w / (w + z) alone. By tokens w is held, and z what
// it neither held nor waited. Where no tokens are given out, each work took 1 + beside times as
// long as alone. Who waited and held nothing did not come to work: it is taken to have needed all
// of that time.
double Alone(const Did& did, double beside);

struct WhatIfPod {
  std::string team;        // any path
  policy::ShareSpec spec;  // Validated(); its team number does not matter
};

class WhatIf {
 public:
  // `teams` may be null: what requests leave goes by slack weights alone.
  WhatIf(std::vector<WhatIfPod> pods, const Teams* teams, std::span<const Use> uses);

  // What each of the pods would get of a bucket of which it would use `alone` without the others
  // (0 to 1), in the order of the pods: 1 / (1/rate + (1 - alone) / alone), where `rate` is what a
  // fluid GPU gives it in the mean while it has work (policy::FluidShares, among those who have
  // work then; pods of idle priority share equally what the others leave). Their sum is at most 1.
  //
  // The mean is over all sets of those that pause where these are up to 6, else over 64 moments.
  // How long a pod has work depends on its rate, so both are found by iteration.
  std::vector<double> Divide(std::span<const double> alone) const;

 private:
  // What a fluid GPU gives these pods while they, and they alone, have work; in their order.
  std::vector<double> Rates(std::span<const size_t> who) const;

  std::vector<WhatIfPod> pods_;
  std::vector<uint32_t> team_of_;       // by pod
  std::vector<uint32_t> team_weights_;  // by team; empty: none
};

}  // namespace baton::teams

#endif  // BATON_TEAMS_WHAT_IF_H_
