// A pod as Baton reads it: what its containers ask of GPUs, and where it is. Made from a Pod of the
// API, and nothing else: what a SharePod says stands in its child's annotations too.
//
// Pure; never throws, whatever the object is.
#ifndef BATON_K8S_TYPES_GPU_POD_H_
#define BATON_K8S_TYPES_GPU_POD_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "devmgr/placement/request.h"
#include "k8s/api/object.h"
#include "k8s/types/quantity.h"
#include "policy/share.h"
#include "spec/pod_request.h"

namespace baton::k8s {

// What one container asks for.
struct ContainerGpus {
  std::string name;
  uint32_t index = 0;  // among the pod's containers, init containers first
  policy::Share request = policy::kWhole;
  policy::Share limit = policy::kWhole;
  GpuMemory memory;
  uint32_t count = 1;
  bool whole = false;  // nvidia.com/gpu: GPUs of its own
  // What its limits say, by which the kubelet counts: they stay as they were when a pod that is
  // bound gets another request or memory by its annotations. 0: there are none.
  uint32_t share_units = 0;   // baton.dev/gpu-share
  uint32_t memory_units = 0;  // baton.dev/gpu-memory

  friend bool operator==(const ContainerGpus&, const ContainerGpus&) = default;
};

struct GpuPod {
  ObjectName name;
  std::string uid;
  std::vector<ContainerGpus> containers;  // those that ask for GPUs, in the order of the spec
  // What batond is told of the whole pod: priority (of its tokens, and of nothing else), team, user
  // and so on. Share, memory and GPUs are the containers'.
  spec::PodRequest asked;
  std::string gang;  // empty: on its own
  uint32_t gang_size = 0;
  // It says mode auto. `request.mode` is empty then, unless it asks for what only pods that take
  // turns have: a limit, high or idle priority, a latency, swap, a gang, or several GPUs for a
  // container.
  bool mode_is_auto = false;
  // For the device manager: name is "namespace/name"; containers in the order of `containers`, each
  // with one group; cpu and memory are what the whole pod asks of the node (the greater of the sum
  // over containers and the greatest init container, and overhead). Its `priority` is Kubernetes'
  // (spec.priority): room goes by that alone.
  devmgr::PodRequest request;

  bool asks() const { return !containers.empty(); }
  friend bool operator==(const GpuPod&, const GpuPod&) = default;
};

// kInvalid: a sentence that names the field ("metadata.annotations[baton.dev/request]: '130' ...").
// A pod that asks for no GPU is a GpuPod without containers.
//
// A container asks by its limits: baton.dev/gpu-share is the sum of its requests over its GPUs, so
// by itself it is the request (and the limit is 100 unless annotated), and with the annotation
// `request` it must be that, rounded down (but to 1 at least) or up for each GPU.
// baton.dev/gpu-memory likewise, but it may be left out where the annotation `memory` is there.
// Once the pod is bound, and for a SharePod's child, the annotations alone count: limits cannot
// change any more, and annotations do. nvidia.com/gpu is whole GPUs, in mode exclusive. One pod
// asks for shares or whole GPUs, not both. Init containers that ask have GPUs of their own, as
// containers do: nothing is reused.
//
// Without a name (the webhook sees a pod before its generateName became one) request.name is made
// of what there is. spec.nodeSelector is in request.node_labels.
Result<GpuPod> ReadGpuPod(const Json& pod, uint32_t memory_unit_mib);

// What the pod asks of its node, in cpu and memory: of any pod.
struct NodeResources {
  uint64_t cpu_milli = 0;
  uint64_t memory_mib = 0;
};
NodeResources ResourcesOf(const Json& pod);

// The annotations that a Binding carries, which say where each container's GPUs are: kPlacement of
// the pod, as below, and of each container kDevices, in mode mps kMpsPipe and so on too, and in a
// pod of mode auto kTicket where it takes turns. Where a device was made (devmgr::Vgpu::device),
// kDevices names that. `made`: `pod` as the Pod itself says, which for a SharePod's child may be
// older.
//
//   {"v":1,"node":"n1","containers":[{"name":"main","vgpus":[{"card":"GPU-...","mode":"time-slice",
//    "share":300000,"memoryMiB":4096,"layout":0,"slot":0}]}]}
std::vector<std::pair<std::string, std::string>> PlacementAnnotations(
    const GpuPod& pod, const devmgr::Placement& placement, const GpuPod& made);
// The same placement again. Nothing: there is no such annotation. kInvalid: it is damaged.
Result<std::optional<devmgr::Placement>> ReadPlacement(const Json& pod);
// By text, for SharePods' status.
std::string PlacementText(const GpuPod& pod, const devmgr::Placement& placement);
Result<devmgr::Placement> ParsePlacement(std::string_view text);

// The value of the pod's label keys::kMakesDevices; empty: it has none.
std::string MakesDevicesOn(const Json& pod);

// Neither failed nor succeeded nor gone from its node: it takes room.
bool TakesRoom(const Json& pod);

}  // namespace baton::k8s

#endif  // BATON_K8S_TYPES_GPU_POD_H_
