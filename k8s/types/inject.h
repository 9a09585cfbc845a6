// What a pod needs so that the hook works in it: mounts, LD_PRELOAD and environment for each
// container that asks for a share. Used by the webhook, and by the binder for the children that it
// makes, so a cluster without the webhook works too. Pure; idempotent.
#ifndef BATON_K8S_TYPES_INJECT_H_
#define BATON_K8S_TYPES_INJECT_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "k8s/types/annotations.h"

namespace baton::k8s {

struct InjectOptions {
  std::string socket_dir{kSocketDir};       // on the node
  std::string host_hook_dir{kHostHookDir};  // on the node
  uint32_t memory_unit_mib = kMemoryUnitMib;
};

// Sets in a Pod that asks for GPUs: schedulerName (where it is the default's or empty), the volumes
// baton-socket and baton-hook, and per container that asks
//   BATON_POD_UID        fieldRef metadata.uid
//   BATON_TICKET         $(BATON_POD_UID)/CONTAINER                     (TicketOf)
//   BATON_SOCKET         /run/baton/baton.sock
//   BATON_AWAY           where the annotation says so
//   LD_PRELOAD           /usr/local/lib/baton/libbaton.so, before what was there already
//   /etc/ld.so.preload   mounted, with the same, unless the container mounts one of its own: the
//                        hook stays where a program sets LD_PRELOAD anew
//   NVIDIA_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES   fieldRef of its kDevices annotation
// These env entries stand before the container's own, so that its own may refer to them. Containers
// that do not ask for GPUs get NVIDIA_VISIBLE_DEVICES=void where they say nothing of it themselves.
// A pod of whole GPUs only gets the devices, and no hook. kInvalid: see ReadGpuPod(); or
// LD_PRELOAD comes from a reference (valueFrom), a variable or volume of ours is already taken, or
// one of the two folders of the node would be mounted so that the pod can write there.
// False: it asks for none, nothing was changed.
Result<bool> Inject(nlohmann::json& pod, const InjectOptions& options = {});

// Hook and socket are those of all pods of the node: who could write there would run in the others.
// kInvalid: a container of a pod's `spec`, of whatever list, mounts one of the two folders of the
// node otherwise than read-only.
Result<void> CheckMounts(const nlohmann::json& spec, const InjectOptions& options = {});

}  // namespace baton::k8s

#endif  // BATON_K8S_TYPES_INJECT_H_
