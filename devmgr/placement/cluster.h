// The cluster as the device manager sees it: its nodes and GPUs, and the map of virtual GPUs on
// them. Decides where pods go, and keeps account of where they are.
//
// No I/O, no clock, no random numbers but those of a given seed: the same calls give the same
// answers. A GPU is never given more than it has, whatever is called: Commit() checks everything
// again. Not thread safe.
#ifndef BATON_DEVMGR_PLACEMENT_CLUSTER_H_
#define BATON_DEVMGR_PLACEMENT_CLUSTER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "devmgr/inventory.h"
#include "devmgr/modes/sharing_mode.h"
#include "devmgr/placement/policy.h"
#include "devmgr/placement/request.h"

namespace baton::devmgr {

struct NodeState;  // internal

// A pod that has been placed.
struct PlacedPod {
  PodRequest request;
  Placement placement;

  friend bool operator==(const PlacedPod&, const PlacedPod&) = default;
};

// How expected use changed a decision (devmgr/placement/policy.h).
struct UseChoice {
  std::string instead_of;  // the first GPU that the rule alone would have taken; empty: no change
  // Expected use with the pod, in millionths of a GPU: of that one, and of the first that was
  // taken.
  int64_t there = 0;
  int64_t here = 0;
};

class Cluster {
 public:
  struct State;  // internal

  // `modes`: how GPUs can be divided, in the order in which they are preferred where they score
  // the same; each lives longer than the cluster. At least one, at most 16.
  explicit Cluster(std::span<const SharingMode* const> modes, const PlacementPolicy& policy = {});
  ~Cluster();
  Cluster(Cluster&&) noexcept;
  Cluster& operator=(Cluster&&) noexcept;

  // Adds the node or replaces what is known of it. What is placed there stays, also on GPUs that
  // are no more usable; a GPU with pods on it that `node` lacks is kept as missing. kInvalid: more
  // than VgpuRequest::kCardsMax GPUs, a name or uuid that is empty or used elsewhere, a GPU
  // without memory, one with less than is taken of it.
  Result<void> SetNode(const Node& node);
  // kNotFound; kExists while pods are placed there.
  Result<void> RemoveNode(std::string_view name);
  // By name. Pointers are good until the next change of the inventory.
  std::vector<const Node*> Nodes() const;
  const Node* FindNode(std::string_view name) const;
  // Null: no such GPU.
  const Card* FindCard(std::string_view uuid) const;
  const CardUse* UseOf(std::string_view uuid) const;
  struct Capacity {
    uint64_t cpu_milli = 0;
    uint64_t memory_mib = 0;
    policy::ShareSum share;  // of its usable GPUs
  };
  // What is left of the node's own and of its GPUs' time; zeros where it is not looked at, or there
  // is no such node.
  Capacity FreeOn(std::string_view node) const;

  // A pod of this kind has come: it counts in the usual mix, by which Rule::kFragmentation decides.
  // Once for each pod, whether it found a place or not.
  void Learn(const PodRequest& request);

  // What of all GPUs is free and of no use to the usual pod, 0 to 1
  // (devmgr/placement/fragmentation.h).
  double Fragmentation() const;

  const PlacementPolicy& policy() const;
  void SetPolicy(const PlacementPolicy& policy);

  // Where the pod goes, if it goes now: nothing is changed. kInvalid: see Validate(). kExists: it
  // is placed already. kExhausted: nowhere now; the message sums up why, Explain() says it in full.
  // kNotFound: nowhere ever, for no GPU is of that kind. `use`: null, or set where there is a
  // place.
  Result<Placement> Decide(const PodRequest& request, UseChoice* use = nullptr) const;
  // The same on one node only.
  Result<Placement> DecideOn(std::string_view node, const PodRequest& request,
                             UseChoice* use = nullptr) const;
  // How many pods like this one would fit beside each other now, on this node, or on all together
  // ("*"): as many as Decide() and Commit() would find room for, words between pods apart. 0: none;
  // or the request is not of one virtual GPU, names no mode, or is not valid. O(GPUs + answer).
  uint64_t HowManyFit(const PodRequest& request, std::string_view node) const;
  // Why each node cannot take it; of nodes that can, nothing.
  std::vector<NodeRefusal> Explain(const PodRequest& request) const;

  // Books what Decide() said, or what was decided elsewhere or before a restart. What
  // is free, the mode, exclusion, anti-affinity, gangs and the node's own room are checked against
  // the state as it is now; what the pod wishes for beside (models, uuids, labels, affinity,
  // whether GPUs are usable) was a matter of the decision. kInvalid, kExists, kNotFound (node, GPU,
  // mode), kExhausted.
  Result<void> Commit(const PodRequest& request, const Placement& placement);
  // Commit() for what runs there already: GPUs are checked, what of the node beside them it takes
  // is booked though there be too little.
  Result<void> Adopt(const PodRequest& request, const Placement& placement);
  // kNotFound. After it the state is what it was before Commit(), to the bit.
  Result<void> Delete(std::string_view pod);
  // Other shares or memory for the virtual GPUs of one group, in place. kNotFound, kInvalid,
  // kExhausted: then nothing has changed.
  Result<void> Resize(std::string_view pod, uint32_t container, uint32_t group, policy::Share share,
                      uint32_t memory_mib);
  // What the pod is expected to execute from now on: PodRequest::expected_use. kNotFound.
  Result<void> SetExpectedUse(std::string_view pod, const std::optional<policy::Share>& use);
  // What the GPU's pods are expected to execute together, in millionths of it: may be more than it
  // has. 0: no such GPU.
  int64_t ExpectedUse(std::string_view uuid) const;
  // To another place, atomically; the caller knows that it is not running.
  Result<void> Move(std::string_view pod, const Placement& to);

  const PlacedPod* Find(std::string_view pod) const;
  // By name.
  const std::map<std::string, PlacedPod, std::less<>>& pods() const;
  // By name.
  std::vector<const PlacedPod*> PodsOn(std::string_view node) const;

  // Bytes of memory that the state takes, roughly.
  size_t MemoryBytes() const;

 private:
  // Commit(); `host`: whether the node's processors and memory must suffice too.
  Result<void> Book(const PodRequest& request, const Placement& placement, bool host);
  // Another request or placement for a pod that is placed; nothing changes where that fails.
  Result<void> Replace(std::string_view pod, const PodRequest& request, const Placement& placement);

  // `pod`'s GPUs are taken; now it is in the map.
  void Enter(PlacedPod pod, NodeState& node);
  Result<Placement> DecideAmong(const PodRequest& request,
                                std::span<const std::unique_ptr<NodeState>> nodes,
                                UseChoice* use) const;

  std::unique_ptr<State> state_;
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_CLUSTER_H_
