// Who would have to go for a pod that fits nowhere. Only proposed: nothing is changed.
//
// Of all sets of pods that may go, on one node, after which the pod has a place there: the fewest
// pods; of these those whose priorities are lower (the highest of each compared first, then the
// next); of these the smaller share of GPUs; then by the names of the node and of the pods.
//
// Nodes are looked at in the order of a lower bound of that, which takes sums only, and the search
// ends where the bound is no better than what was found. On a node all sets are tried, the small
// ones first; where they are too many, or the decisions that the options allow are used up, what
// remains is the least set that is found by taking all away and putting back, the most valuable
// first, what leaves room. That set is minimal: none of it may stay. Displacement::exact says
// whether anything better can be ruled out. Cost: O(pods + GPUs) for the bounds, some microseconds
// a node, and a decision on one node for each set tried.
//
// Nodes that have given away more than they have now (their inventory has changed) are not
// considered. Pure; deterministic.
#ifndef BATON_DEVMGR_PLACEMENT_PREEMPTION_H_
#define BATON_DEVMGR_PLACEMENT_PREEMPTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "devmgr/placement/cluster.h"
#include "devmgr/placement/what_if.h"

namespace baton::devmgr {

struct DisplacementOptions {
  // Pods that must stay and nodes not to be looked at, beside all others; null: none.
  const Names* spared = nullptr;
  const Names* avoided = nullptr;
  // What else a set of pods that go must achieve (a team's ceiling); null: nothing. If a set does,
  // so do those that contain it.
  std::function<bool(std::span<const PlacedPod* const>)> enough;
  // Decisions on copies of nodes, in all.
  uint32_t decisions = 20'000;
};

struct Displacement {
  std::string node;
  std::vector<std::string> pods;  // that go, by name; at least one
  Placement placement;            // where there is room then
  bool exact = true;

  friend bool operator==(const Displacement&, const Displacement&) = default;
};

// Pods of lower priority go. kExists: it is placed. kInvalid: see Validate(). kNotFound: there is
// room without it, or no GPU is of its kind. kExhausted: not even then is there room.
Result<Displacement> Preempt(const Cluster& cluster, Modes modes, const PodRequest& request,
                             const DisplacementOptions& options = {});

// The same for any choice of who may go, for a pod that is valid, not placed and fits nowhere.
// kExhausted.
Result<Displacement> LeastDisturbance(const Cluster& cluster, Modes modes,
                                      const PodRequest& request, const PodTest& may_go,
                                      const DisplacementOptions& options);

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_PREEMPTION_H_
