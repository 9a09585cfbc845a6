// What a pod needs so that the hook works in it: LD_PRELOAD and environment for each container that
// asks for a share. Used by the webhook, and by the binder for the children that it makes, so a
// cluster without the webhook works too. Pure; idempotent.
//
// The hook and the socket's folder are not in the pod: the kubelet mounts them, as the device
// plugin tells it when a container gets its baton.dev/gpu-share. So a pod with a share needs no
// hostPath, and runs where the policy `restricted` is enforced.
#ifndef BATON_K8S_TYPES_INJECT_H_
#define BATON_K8S_TYPES_INJECT_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "k8s/types/annotations.h"
#include "spec/flavors.h"

namespace baton::k8s {

struct InjectOptions {
  std::string socket_dir{kSocketDir};       // on the node
  std::string host_hook_dir{kHostHookDir};  // on the node
  uint32_t memory_unit_mib = kMemoryUnitMib;
  std::string runtime_class = {};          // of pods that name none; empty: none
  std::vector<std::string> tolerate = {};  // keys of taints (NoSchedule), such as nvidia.com/gpu
  spec::Flavors flavors = {};              // that pods and SharePods may name
  bool choose_mode = false;                // pods with a share that name no mode get mode auto
};

// A folder or file of the node, mounted read-only unless it says otherwise.
struct HookMount {
  std::string container_path;
  std::string host_path;
  bool writable = false;
};
// What each container with a share gets: the socket's folder, the hook's folder, and an
// /etc/ld.so.preload that names the hook, so it stays where a program sets LD_PRELOAD anew. A
// container that mounts such a file itself keeps its own: kubelets put a pod's own mounts last.
std::vector<HookMount> HookMounts(const InjectOptions& options = {});
// Whether the pod relies on them. Not so: pods without a share; and those that a webhook of before
// gave hostPath volumes.
bool NeedsHookMounts(const nlohmann::json& pod);

// Fills in what the pod's flavors say (FillInPod()), and its mode where that is to be. Then sets in
// a Pod that asks for GPUs: schedulerName (where it is the default's or empty), tolerations and
// runtimeClassName as the options say, limits of baton.dev/gpu-memory that are written in bytes
// ("4Gi") in units, with the annotation `memory` for what is exact, and per container that asks
//   BATON_POD_UID        fieldRef metadata.uid
//   BATON_TICKET         $(BATON_POD_UID)/CONTAINER                     (TicketOf); in mode auto a
//                        fieldRef of kTicket, which is empty in a MIG instance
//   BATON_SOCKET         /run/baton/baton.sock
//   BATON_AWAY           where the annotation says so
//   BATON_SWAP           1 for a pod with swap
//   LD_PRELOAD           /usr/local/lib/baton/libbaton.so, before what was there already
//   NVIDIA_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES   fieldRef of its kDevices annotation
//   CUDA_MPS_...         in mode mps: fieldRefs of kMpsPipe, kMpsShare and kMpsMemory
// In modes mig and mps, which have no tokens, those before NVIDIA_VISIBLE_DEVICES are left out. In
// mode mps the container's limits get kMpsResource too.
// These env entries stand before the container's own, so that its own may refer to them. Containers
// that do not ask for GPUs get NVIDIA_VISIBLE_DEVICES=void where they say nothing of it themselves.
// A pod of whole GPUs only gets the devices, and no hook. kInvalid: see ReadGpuPod(); or
// LD_PRELOAD comes from a reference (valueFrom), a variable or mount path of ours is already taken,
// or one of the two folders of the node would be mounted so that the pod can write there. A pod
// that has the volumes of before, and mounts them as before, keeps them. False: it asks for none,
// nothing was changed.
Result<bool> Inject(nlohmann::json& pod, const InjectOptions& options = {});

// Hook and socket are those of all pods of the node: who could write there would run in the others.
// kInvalid: a container of a pod's `spec`, of whatever list, mounts one of the two folders of the
// node otherwise than read-only.
Result<void> CheckMounts(const nlohmann::json& spec, const InjectOptions& options = {});

}  // namespace baton::k8s

#endif  // BATON_K8S_TYPES_INJECT_H_
