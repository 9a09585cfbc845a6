// The fewest moves of pods that make room for one that fits nowhere. Only proposed.
//
// A pod is moved at most once, and only if the caller says that it may be; each goes to a place
// that is free once those before it have moved, and is checked by Cluster::DecideOn() on a copy of
// the cluster in that state; the last state has a place for the pending pod.
//
// The search goes backwards: the pending pod is put on a node without the pods that are in its way
// there, as few as possible, and these are then pending themselves. It is deepened by the number of
// moves, so the first plan has the fewest. For each number it is run twice: with the place that the
// policy chooses for every pod that was driven out, then with all places (for a pod of several
// virtual GPUs: of as few GPUs as it can do with, where those are at most 70 on a node, and
// whichever the policy chooses). DefragPlan::exact says that all smaller numbers were searched to
// the end. Nodes on which sums rule it out are not looked at. Cost: a copy of the cluster, and at
// most so many looks at a node as the options say; a look takes some microseconds.
//
// Nodes that have given away more than they have now are left out, and so are others that the
// options say; then pods with an affinity word stay where they are. Pure; deterministic.
#ifndef BATON_DEVMGR_PLACEMENT_DEFRAG_H_
#define BATON_DEVMGR_PLACEMENT_DEFRAG_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "devmgr/placement/cluster.h"
#include "devmgr/placement/what_if.h"

namespace baton::devmgr {

struct DefragOptions {
  uint32_t moves = 4;  // at most; no more than kMovesMax
  static constexpr uint32_t kMovesMax = 16;
  uint64_t steps = 1'000'000;  // looks at one node, in all
  size_t nodes = SIZE_MAX;     // so many only, those with the most GPU time free
  Names off = {};              // and none of these
};

// What a pod asks for where it is put instead; nothing: it may not be moved. Asked once of each.
using MoveRequest = std::function<std::optional<PodRequest>(const PlacedPod&)>;

struct PodMove {
  std::string pod;
  Placement from;
  Placement to;

  friend bool operator==(const PodMove&, const PodMove&) = default;
};

struct DefragPlan {
  std::vector<PodMove> moves;  // in the order in which they are to be made
  Placement placement;         // of the pending pod after them
  bool exact = true;           // no plan has fewer moves
  uint64_t steps = 0;          // used

  friend bool operator==(const DefragPlan&, const DefragPlan&) = default;
};

// No moves where the pod fits as it is. kInvalid, kExists, kNotFound: as Cluster::Decide() says.
// kExhausted: no such plan, or none was found; the sentence says which.
Result<DefragPlan> Defrag(const Cluster& cluster, Modes modes, const PodRequest& request,
                          const MoveRequest& moved, const DefragOptions& options = {});

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_DEFRAG_H_
