// Pods that are placed together or not at all.
#ifndef BATON_DEVMGR_PLACEMENT_GANG_H_
#define BATON_DEVMGR_PLACEMENT_GANG_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "devmgr/placement/cluster.h"
#include "devmgr/placement/what_if.h"

namespace baton::devmgr {

struct GangOptions {
  // Other orders that are tried after the two below, each after its own failure.
  uint32_t restarts = 8;
  uint64_t seed = 0;               // of the random ones among them
  const Names* avoided = nullptr;  // nodes; null: none
};

// Places all of them, each where Decide() says once those before it are there, and returns their
// placements in the order of `pods`. The orders: as given; the largest first (by the GPUs that they
// ask for, the largest part of one GPU, GPU memory, name); then, as often as the options say, the
// one that failed goes to the front, or, where that was tried, by chance. So whatever fits as given
// is placed as if given one by one. What needs yet another order may be missed.
//
// On failure everything is undone, to the bit, and the error is that of the first order: kInvalid,
// kExists, kNotFound (it can never be), kExhausted. At most kGangMax pods. Cost: at most
// (2 + restarts) x pods decisions.
inline constexpr size_t kGangMax = 1'024;
Result<std::vector<Placement>> PlaceGang(Cluster& cluster, std::span<const PodRequest> pods,
                                         const GangOptions& options = {});

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_GANG_H_
