// SharePods (baton.dev/v1alpha1): what a user writes, the child pod that it becomes, and its
// status. Pure; never throws.
#ifndef BATON_K8S_TYPES_SHARE_POD_H_
#define BATON_K8S_TYPES_SHARE_POD_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "k8s/api/object.h"
#include "k8s/types/gpu_pod.h"

namespace baton::k8s {

// Checks what the schema and CEL cannot or a cluster without the webhook lets through: the same
// sentences as the webhook's. kInvalid names the field ("spec.gpu.request: ...").
Result<void> CheckSharePod(const Json& share_pod);
// What of it may not change: count, mode, model, affinity words. kInvalid names the first field
// that has. A template may: then the pod is deleted, and another made of the new one.
Result<void> CheckSharePodChange(const Json& before, const Json& after);

// The pod that it becomes, whole but for what Inject() adds: its own name and namespace, a
// controller ownerReference, schedulerName, labels, the annotations and limits by which
// ReadGpuPod() reads the same as `spec.gpu` says. kInvalid: see CheckSharePod().
Result<Json> ChildPod(const Json& share_pod, uint32_t memory_unit_mib);
// The annotations of a child that exists which must change after the SharePod was: a merge patch
// for the pod's metadata; nothing: none. A child of another template than the SharePod has now (its
// annotation kTemplateHash says so) is not changed but made anew.
std::optional<Json> ChildChanges(const Json& share_pod, const Json& child);

// Status conditions. Types as kubectl shows them; `reason` CamelCase.
struct Condition {
  std::string type;  // Placed, Bound, Running, Resized, Attached, Paused
  bool status = false;
  std::string reason;
  std::string message;
};
// Puts them into a status's list "conditions": lastTransitionTime (`now`, RFC 3339) only where
// `status` changes, observedGeneration as given; none where the condition does not depend on the
// spec (`kubectl wait` then goes by that of the whole status). True: something is different now.
bool SetCondition(Json& status, const Condition& condition,
                  std::optional<int64_t> observed_generation, const std::string& now);
void RemoveCondition(Json& status, std::string_view type);

}  // namespace baton::k8s

#endif  // BATON_K8S_TYPES_SHARE_POD_H_
