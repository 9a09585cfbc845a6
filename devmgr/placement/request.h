// What a pod asks of the cluster, and where it was put.
#ifndef BATON_DEVMGR_PLACEMENT_REQUEST_H_
#define BATON_DEVMGR_PLACEMENT_REQUEST_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "devmgr/modes/sharing_mode.h"
#include "devmgr/placement/policy.h"
#include "policy/share.h"

namespace baton::devmgr {

// `count` virtual GPUs that are alike, each on a GPU of its own.
struct VgpuRequest {
  // Of one GPU: 1 000 (0.1 %) to policy::kWhole; 0 where PodRequest::idle says so.
  policy::Share share = policy::kWhole;
  uint32_t memory_mib = 0;    // of each; 0: as memory_part says
  policy::Share memory_part;  // of the GPU's memory, 1 MiB at least; both 0: no cap
  uint32_t count = 1;         // 1 to kCardsMax
  static constexpr uint32_t kCardsMax = 16;

  friend bool operator==(const VgpuRequest&, const VgpuRequest&) = default;
};

// All virtual GPUs of a container are on different GPUs; those of two containers may share one.
struct ContainerRequest {
  std::string name;
  std::vector<VgpuRequest> vgpus;

  friend bool operator==(const ContainerRequest&, const ContainerRequest&) = default;
};

// A node that a pod must not go to, and why, in a few words: "untolerated taint".
struct ExcludedNode {
  std::string node;
  std::string why;
};

struct PodRequest {
  std::string name;  // unique in the cluster; on Kubernetes "namespace/name"
  std::string team;
  int32_t priority = 0;     // the higher goes first, and may take the room of the lower
  bool idle = false;        // virtual GPUs may have a share of 0: a pod of idle priority, which
                            // takes the room of its memory only; a container that has ended
  uint32_t cpu_milli = 0;   // of the node
  uint64_t memory_mib = 0;  // of the node; at most 2^40
  std::vector<ContainerRequest> containers;

  // "time-slice", "mig", ...; empty: whichever scores best of those that may be chosen
  // (Mode::chosen)
  std::string mode;
  // GPUs. A model is meant by any of its words in order, whatever the case: "h100", "A100 80GB".
  std::vector<std::string> models;  // one of these; empty: any
  std::vector<std::string> not_models;
  std::vector<std::string> uuids;  // only these; empty: any
  std::vector<std::string> not_uuids;
  std::map<std::string, std::string> node_labels;  // the node has all of them
  // Between pods, on the level of GPUs; the words are the users' own.
  std::string affinity;       // on GPUs that have a pod with the same word, once there is one
  std::string anti_affinity;  // on no GPU that has a pod with the same word
  std::string exclusion;      // no GPU is shared by pods whose words differ (none is a word too)
  // What it is expected to execute on each of its GPUs if nobody were beside it, by what is known
  // of it or of pods like it; nothing: as much as it requests. Only a choice among places that are
  // nearly as good depends on it (devmgr/placement/policy.h).
  std::optional<policy::Share> expected_use;
  // Instead of the cluster's rules for nodes and for GPUs; nothing: as those say.
  std::optional<Rule> node_rule;
  std::optional<Rule> card_rule;
  // Pods of one gang are on different GPUs, but where `uuids` or `affinity` name some.
  std::string gang;
  // What it takes of the node beside, in whatever unit Node::resources counts it.
  std::map<std::string, uint64_t> resources;
  // Nodes that it must not go to, for reasons of the caller's own: sorted by name; null: none. Pods
  // of one kind share one list: two requests are alike only where the list is the same object.
  std::shared_ptr<const std::vector<ExcludedNode>> off_nodes;

  friend bool operator==(const PodRequest&, const PodRequest&) = default;
};
// Whether pods of its gang are on other GPUs than it.
inline bool GangKeepsApart(const PodRequest& request) {
  return request.uuids.empty() && request.affinity.empty();
}

// Ranges, counts, containers without a name of their own, a name that is empty: kInvalid and one
// sentence. At most 32 containers and 128 virtual GPUs.
Result<void> Validate(const PodRequest& request);

// One virtual GPU on its GPU.
struct Vgpu {
  uint32_t container = 0;  // index in PodRequest::containers
  uint32_t group = 0;      // index in ContainerRequest::vgpus
  std::string card;        // uuid
  std::string mode;
  Fit fit;
  std::string device;  // what DeviceDriver::Create said; empty where there is no driver or not yet

  friend bool operator==(const Vgpu&, const Vgpu&) = default;
};

struct Placement {
  std::string node;
  std::vector<Vgpu> vgpus;  // by container, group and GPU

  friend bool operator==(const Placement&, const Placement&) = default;
};

// Why not, for each node in the order of names, with its GPUs in theirs.
struct CardRefusal {
  std::string uuid;
  std::string why;  // empty: this GPU would do, but not enough of them
};
struct NodeRefusal {
  std::string node;
  std::string why;  // of the node itself; empty: see the GPUs
  std::vector<CardRefusal> cards;
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_REQUEST_H_
