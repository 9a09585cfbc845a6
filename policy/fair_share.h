// Who is owed what over days: the standing of every team and user in a tree of shares, by decayed
// use. Reports and the order of waiting pods read it; no pod's request is ever touched by it.
//
// Formulas: the classic fair-share factor (slurm.schedmd.com/classic_fair_share.html) and the Fair
// Tree ranking (slurm.schedmd.com/fair_tree.html).
//
// Pure and thread safe.
#ifndef BATON_POLICY_FAIR_SHARE_H_
#define BATON_POLICY_FAIR_SHARE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"

namespace baton::policy {

// What `use` of `age` ago counts now: use * 2^(-age / half_life). Ages below 0 count as 0. Without
// a half-life (0 or less) nothing is forgotten.
double Decayed(double use, Duration age, Duration half_life);

// A team, or a user of one.
struct Association {
  uint32_t parent = 0;   // by index, and that of a team before this one; the first is the root
  uint64_t shares = 1;   // among its siblings, users and teams alike
  double usage = 0;      // decayed, 0 or more: its own, without its children's
  double uncounted = 0;  // the same: a part of the whole, and held against nobody
  bool user = false;     // has no children
};

struct FairShare {
  double level_shares = 0;       // of all its siblings' shares, itself included
  double normalized_shares = 0;  // S: of the whole; the product down the tree
  double raw_usage = 0;          // of itself and all below it
  double raw_uncounted = 0;      // the same of what is not counted
  double normalized_usage = 0;   // U_A: of the whole, which all that is not counted is a part of
  double effective_usage = 0;    // U_E = U_A + (U_E of the parent - U_A) * level_shares
  double factor = 0;             // 2^(-U_E / S), 0 to 1; ½: it used just what it is due
  // Its part of the siblings' shares over its part of their use, counted or not; infinite where
  // nothing of its own counts.
  double level_fs = 0;
  // Of a user: 1 comes first, and who ties has the same. 0: no user.
  uint32_t rank = 0;
  // Of a user: the Fair Tree factor, (users ranked no higher) / (users); 1 comes first.
  double fair_tree = 0;
};

// One for each association. O(n log n).
std::vector<FairShare> FairShares(std::span<const Association> tree);

}  // namespace baton::policy

#endif  // BATON_POLICY_FAIR_SHARE_H_
