// Trying out what must not be done to the cluster itself: copies of its nodes, and sums that tell
// what is not worth a try.
//
// The cluster is never touched: after a change of the inventory it may be that a pod that was taken
// away could not be booked again where it is.
#ifndef BATON_DEVMGR_PLACEMENT_WHAT_IF_H_
#define BATON_DEVMGR_PLACEMENT_WHAT_IF_H_

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "devmgr/placement/cluster.h"
#include "devmgr/placement/search.h"

namespace baton::devmgr {

// Those that the cluster was made with.
using Modes = std::span<const SharingMode* const>;
using Names = std::set<std::string, std::less<>>;
using PodTest = std::function<bool(const PlacedPod&)>;

// Decide(), but on none of these nodes.
Result<Placement> DecideOff(const Cluster& cluster, const PodRequest& request, const Names& nodes);

// Adds the node with these pods to `copy`, which has the same modes. False where one of them cannot
// be booked again, because the node has changed since: then it is not added.
bool CopyNode(const Node& node, std::span<const PlacedPod* const> pods, Cluster* copy);

// The nodes on which pods with this affinity are; none for the empty word. O(pods).
Names NodesWithAffinity(const Cluster& cluster, const std::string& affinity);

// What of a node a pod lacks, by sums: its GPUs' shares and memory, the node's own. Where the sums
// say no there is no place; where they say yes there may be one.
class Shortage {
 public:
  static constexpr uint32_t kNever = UINT32_MAX;

  // Keeps references.
  Shortage(const Cluster& cluster, Modes modes, const PodRequest& request);

  // Looks at this node, and at these of its pods as those that may go. False: the pod could never
  // be there, whoever went.
  bool Look(const Node& node, std::span<const PlacedPod* const> may_go);
  // Of those that may go, by their index: whether it is enough if just these do.
  bool Enough(std::span<const size_t> gone) const;
  bool EnoughIfAllGo() const;
  // No fewer pods than these must go; kNever: all are not enough.
  uint32_t Fewest() const;
  // The GPUs of the node that the pod may use, by index: a bit for each.
  uint16_t cards() const { return allowed_; }

 private:
  static constexpr size_t kCards = VgpuRequest::kCardsMax;
  struct Group {  // virtual GPUs that are alike and on different GPUs
    Want want;
    uint32_t count;
  };
  struct Part {  // of a pod that may go: what it has on one GPU
    size_t card;
    uint64_t share;
    uint64_t memory_mib;
  };
  struct Room {
    uint64_t share[kCards];
    uint64_t memory_mib[kCards];
    uint64_t cpu_milli;
    uint64_t host_mib;
  };
  bool MeansCard(const Card& card);
  void Free(size_t pod, Room& room) const;
  bool Enough(const Room& room) const;

  const Cluster& cluster_;
  const Modes modes_;
  const PodRequest& request_;
  std::vector<Group> groups_;
  uint64_t share_ = 0;                                // of all virtual GPUs
  std::vector<std::pair<std::string, bool>> models_;  // looked at already
  const Node* node_ = nullptr;
  uint16_t allowed_ = 0;
  Room room_{};
  std::span<const PlacedPod* const> may_go_;
  std::vector<std::vector<Part>> parts_;
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_WHAT_IF_H_
