// Nodes: what the API server knows of them (Node) and what Baton's part on the node tells of its
// GPUs (GpuNode, baton.dev/v1alpha1), as the device manager's inventory. Pure; never throws.
#ifndef BATON_K8S_TYPES_GPU_NODE_H_
#define BATON_K8S_TYPES_GPU_NODE_H_

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "devmgr/inventory.h"
#include "k8s/api/object.h"
#include "policy/share.h"

namespace baton::k8s {

// A GpuNode object for server-side apply:
//   {"metadata": {"name": NODE}, "status": {"cards": [{"uuid", "index", "vendor", "model",
//    "memoryMiB", "numa", "island", "pcie", "bus", "health", "why", "cordoned", "migCapable",
//    "migEnabled", "useBeyondRequests" (percent of the GPU, where it is not 0: Card::beyond),
//    "instances": [{"profile", "start", "slices"}] (of no pod of Kubernetes)}]}}
// and for people what that comes to, with what `use` says of the pods there:
//   "gpus", "models" ("2x NVIDIA H100, 1x NVIDIA L40S"), "memoryMiB", "used" (percent of one GPU:
//   "130"), "free" (likewise, of the GPUs that are healthy and not cordoned), "memoryUsedMiB"
struct GpuNodeUse {
  std::map<std::string, policy::ShareSum> shares;  // of requests, by uuid (empty: not known)
  uint64_t memory_mib = 0;                         // of memory caps
  friend bool operator==(const GpuNodeUse&, const GpuNodeUse&) = default;
};
Json GpuNodeOf(const devmgr::Node& node, const GpuNodeUse& use = {});

// What was made on a node for containers, by ticket (TicketOf()): uuids of MIG instances, or MPS's
// pipe directory, one for each GPU. In the GpuNode:
//   "devices": [{"ticket", "devices": [TEXT]}]
using MadeDevices = std::map<std::string, std::vector<std::string>>;
void SetDevices(Json& gpu_node, const MadeDevices& devices);
// Those again; what cannot be read is left out.
MadeDevices DevicesOn(const Json& gpu_node);
// Says in the GpuNode whether containers with a share get the hook from the kubelet there (an
// annotation: metadata.annotations[baton.dev/mounts-hook]); and whether it says so.
void SetMountsHook(Json& gpu_node, bool mounts);
bool MountsHook(const Json& gpu_node);
// The Node of that uid owns the GpuNode of its name, so that it goes with it. Empty: nobody does.
void SetOwnerNode(Json& gpu_node, const std::string& node_uid);
// The node's public key there, 40 characters of Z85; empty: none, or none that is one.
std::string PublicKeyOf(const Json& gpu_node);
// Its GPUs again. kInvalid names the field.
Result<std::vector<devmgr::Card>> CardsOf(const Json& gpu_node);

// GPUs of a node without GpuNode, from its allocatable and NVIDIA's labels: nvidia.com/gpu GPUs,
// named "NODE/0"..., of model nvidia.com/gpu.product, each with nvidia.com/gpu.memory MiB (else
// baton.dev/gpu-memory units / GPUs). Empty: it has none. Where Baton's agent has told the kubelet
// of shares there is, or soon will be, a GpuNode: a pod that went to guessed GPUs before would find
// none.
std::vector<devmgr::Card> GuessedCards(const Json& node, uint32_t memory_unit_mib);

// Name, labels, cordon (spec.unschedulable, or not Ready), and what pods may use (allocatable).
devmgr::Node ReadNode(const Json& node);

}  // namespace baton::k8s

#endif  // BATON_K8S_TYPES_GPU_NODE_H_
