// The words between users, webhook, binder and node: resources, annotations, labels, and the
// environment of containers. docs/kubernetes.md explains them; this is the one list.
//
// A pod asks for GPUs by `baton.dev/gpu-share` (and `baton.dev/gpu-memory`) in a container's
// limits, and more exactly by annotations. An annotation with the prefix "baton.dev" is for all
// containers that ask for GPUs; one with "NAME.container.baton.dev" is for that container, and
// wins.
#ifndef BATON_K8S_TYPES_ANNOTATIONS_H_
#define BATON_K8S_TYPES_ANNOTATIONS_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace baton::k8s {

inline constexpr std::string_view kScheduler = "baton";  // pods' schedulerName

// Extended resources.

// Percents of one GPU, in whole numbers: what the node has is 100 for each GPU. A container that
// asks for several GPUs asks for the sum. Rounded down where the share is finer, for the kubelet
// ends pods of which the sum exceeds what the node has: eight of 12.5 % must fit.
inline constexpr std::string_view kShareResource = "baton.dev/gpu-share";
// Units of GPU memory, rounded likewise; what a unit is, the cluster's operator says (256 MiB).
inline constexpr std::string_view kMemoryResource = "baton.dev/gpu-memory";
inline constexpr uint32_t kMemoryUnitMib = 256;
// Whole GPUs, as NVIDIA's plugin counts them.
inline constexpr std::string_view kWholeResource = "nvidia.com/gpu";

// The webhook's, of containers in mode mps: nodes that offer it let them reach MPS's daemons.
inline constexpr std::string_view kMpsResource = "baton.dev/gpu-mps";

// What users write: the suffix of the key.

inline constexpr std::string_view kPrefix = "baton.dev/";
namespace keys {
inline constexpr std::string_view kRequest = "request";  // percent of each GPU: "30", "12.5"
inline constexpr std::string_view kLimit = "limit";      // percent
inline constexpr std::string_view kMemory = "memory";    // "4Gi", "25%", of each GPU
inline constexpr std::string_view kCount = "count";      // GPUs, 1 to 16
// A named size that fills in what request, limit and memory do not say, when the pod is created.
inline constexpr std::string_view kFlavor = "flavor";
// Of the whole pod; never of one container.
inline constexpr std::string_view kPriority = "priority";  // low, high: of the token alone
inline constexpr std::string_view kLatency = "latency";    // "20ms", 1ms to 10s
inline constexpr std::string_view kTeam = "team";          // research/vision
inline constexpr std::string_view kUser = "user";          // for the books
inline constexpr std::string_view kSwap = "swap";          // true: its memory may move to the host
inline constexpr std::string_view kMemoryRequest = "memory-request";  // "4Gi", of each container
inline constexpr std::string_view kModel = "model";  // words of the GPU's model, by commas
inline constexpr std::string_view kNotModel = "not-model";
inline constexpr std::string_view kGpuUuid = "gpu-uuid";
inline constexpr std::string_view kNotGpuUuid = "not-gpu-uuid";
inline constexpr std::string_view kMode = "mode";               // a row of spec/modes.h, or auto
inline constexpr std::string_view kNodePolicy = "node-policy";  // binpack, spread: of nodes
inline constexpr std::string_view kGpuPolicy = "gpu-policy";    // and of a node's GPUs
inline constexpr std::string_view kAffinity = "affinity";  // words, see devmgr/placement/request.h
inline constexpr std::string_view kAntiAffinity = "anti-affinity";
inline constexpr std::string_view kExclusion = "exclusion";
inline constexpr std::string_view kGang = "gang";           // pods of one namespace with one word:
inline constexpr std::string_view kGangSize = "gang-size";  // all so many at once, or none
inline constexpr std::string_view kAway = "away";           // wait, open: BATON_AWAY of the hook
// What the binder and the node write.
inline constexpr std::string_view kPlacement = "placement";      // JSON, see gpu_pod.h
inline constexpr std::string_view kDevices = "visible-devices";  // of a container: uuids by commas
// Of a container in mode mps: what CUDA_MPS_PIPE_DIRECTORY, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE and
// CUDA_MPS_PINNED_DEVICE_MEM_LIMIT are there.
inline constexpr std::string_view kMpsPipe = "mps-pipe";
inline constexpr std::string_view kMpsShare = "mps-share";
inline constexpr std::string_view kMpsMemory = "mps-memory";
// Of a container in a pod of mode auto: what BATON_TICKET is there, where it was placed by turns.
inline constexpr std::string_view kTicket = "ticket";
// A label, with LabelOfNode(): the pod has a place there by kPlacement and is not bound before the
// node has made what it gets of its GPUs.
inline constexpr std::string_view kMakesDevices = "makes-devices";
inline constexpr std::string_view kInjected = "injected";  // the webhook's: see below
// Likewise: what it understood by other projects' names, in sentences (k8s/types/translate.h).
inline constexpr std::string_view kTranslated = "translated";
inline constexpr std::string_view kTemplateHash = "template-hash";  // of a SharePod's child
// Likewise, where the binder filled in the SharePod's flavors: these, see FlavorsText().
inline constexpr std::string_view kFlavors = "flavors";
// What the node's agent writes on its GpuNode: the kubelet mounts the hook, as it tells it.
inline constexpr std::string_view kMountsHook = "mounts-hook";
// Likewise: the node's public key, by which a central batond knows it.
inline constexpr std::string_view kPublicKey = "public-key";
}  // namespace keys
// Values of kInjected. All that the pod needs is in it; or the kubelet has to mount the hook.
inline constexpr std::string_view kInjectedAll = "1";
inline constexpr std::string_view kInjectedEnv = "2";

// A node's name as a label's value: of a long one the beginning and a hash of the whole.
std::string LabelOfNode(std::string_view node);

// "baton.dev/request"
std::string PodKey(std::string_view key);
// "main.container.baton.dev/request"
std::string ContainerKey(std::string_view container, std::string_view key);

// On the node.

// In containers these two are mounted read-only; see HookMounts().
inline constexpr std::string_view kSocketDir = "/run/baton";             // there and on the node
inline constexpr std::string_view kHookDir = "/usr/local/lib/baton";     // with libbaton.so
inline constexpr std::string_view kHostHookDir = "/var/lib/baton/hook";  // where it is on the node
// In the same folder, and what the loader reads in each container; it names the hook.
inline constexpr std::string_view kPreloadFile = "ld.so.preload";
inline constexpr std::string_view kPreloadPath = "/etc/ld.so.preload";

// BATON_TICKET of a container: the pod's uid and the container's name, "2f6c...-.../main", of at
// most 64 bytes where the uid is a UUID: a name of more than 27 has its end replaced by a hash of
// the whole. Not by the container's place, which other webhooks change as they put containers in.
// It is no secret: batond lets only processes of that pod attach by it, as their cgroup says.
std::string TicketOf(std::string_view pod_uid, std::string_view container);

}  // namespace baton::k8s

#endif  // BATON_K8S_TYPES_ANNOTATIONS_H_
