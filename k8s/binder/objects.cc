#include "k8s/binder/objects.h"

#include <utility>

#include "k8s/binder/cluster_view.h"
#include "k8s/types/share_pod.h"

namespace baton::k8s {
namespace {

bool OneSays(const Json& object, std::string_view type) {
  const Json* list = Find(object, "status/conditions");
  if (list == nullptr || !list->is_array()) return false;
  for (const Json& condition : *list) {
    if (TextAt(condition, "type") == type) return TextAt(condition, "status") == "True";
  }
  return false;
}

// The uid of the SharePod that controls it.
std::string OwnerOf(const Json& pod) {
  const Json* owners = Find(pod, "metadata/ownerReferences");
  if (owners == nullptr || !owners->is_array()) return "";
  for (const Json& owner : *owners) {
    if (!Flag(owner, "controller") || TextAt(owner, "kind") != resources::kSharePods.kind) continue;
    if (TextAt(owner, "apiVersion").starts_with(resources::kSharePods.group + "/")) {
      return TextAt(owner, "uid");
    }
  }
  return "";
}

}  // namespace

bool Flag(const Json& object, std::string_view pointer) {
  const Json* found = Find(object, pointer);
  return found != nullptr && found->is_boolean() && found->get<bool>();
}

int64_t IntegerAt(const Json& object, std::string_view pointer, int64_t missing) {
  const Json* found = Find(object, pointer);
  return found != nullptr && found->is_number_integer() ? found->get<int64_t>() : missing;
}

PodEnd EndOf(const Json& pod) {
  if (TakesRoom(pod)) return PodEnd::kNone;
  if (Find(pod, "metadata/deletionTimestamp") != nullptr) return PodEnd::kGone;
  if (OneSays(pod, "DisruptionTarget")) return PodEnd::kGone;
  if (TextAt(pod, "status/phase") == "Failed") {
    const std::string reason = TextAt(pod, "status/reason");
    if (!reason.empty() && reason != "DeadlineExceeded") return PodEnd::kGone;
  }
  const bool always = TextAt(pod, "spec/restartPolicy", "Always") == "Always";
  return always ? PodEnd::kGone : PodEnd::kFinished;
}

Pod ReadPod(Json object, const CoreOptions& options, std::vector<std::string>* troubles) {
  Pod pod;
  pod.uid = UidOf(object);
  pod.version = ResourceVersionOf(object);
  pod.owner = OwnerOf(object);
  pod.phase = TextAt(object, "status/phase");
  pod.end = EndOf(object);
  pod.deleting = Find(object, "metadata/deletionTimestamp") != nullptr;
  pod.ready = OneSays(object, "Ready");
  const Json* gates = Find(object, "spec/schedulingGates");
  pod.gated = gates != nullptr && gates->is_array() && !gates->empty();
  auto gpu = ReadGpuPod(object, options.memory_unit_mib);
  SeenPod seen = SeePod(object, gpu);
  pod.node = std::move(seen.node);
  pod.takes_room = seen.takes_room;
  pod.whole = seen.whole;
  pod.request = std::move(seen.request);
  pod.placement = std::move(seen.placement);
  if (gpu) {
    pod.gpu = *std::move(gpu);
  } else {
    pod.wrong = gpu.error().message;
  }
  if (!pod.node.empty() && !ReadPlacement(object)) {
    troubles->push_back("pod " + NameOf(object).Text() +
                        ": its placement annotation is damaged; delete the pod");
  }
  const bool scheduler = TextAt(object, "spec/schedulerName") == options.scheduler;
  pod.ours = pod.node.empty() && scheduler;
  if (pod.ours && pod.wrong.empty()) {
    if (auto needs = ReadNeeds(object)) {
      pod.needs = *std::move(needs);
    } else {
      pod.wrong = needs.error().message;
    }
  }
  const bool batons =
      scheduler || !pod.owner.empty() || pod.gpu.asks() || pod.placement || !pod.wrong.empty();
  if (batons) {
    Json* metadata = &object["metadata"];
    if (metadata->is_object()) metadata->erase("managedFields");
    pod.object = std::move(object);
  }
  return pod;
}

Share ReadShare(Json object, std::vector<std::string>* troubles) {
  Share share;
  share.uid = UidOf(object);
  share.version = ResourceVersionOf(object);
  share.generation = IntegerAt(object, "metadata/generation");
  share.deleting = Find(object, "metadata/deletionTimestamp") != nullptr;
  share.was_bound = OneSays(object, "Bound");
  const std::string phase = TextAt(object, "status/phase");
  share.finished = (phase == "Succeeded" || phase == "Failed") &&
                   TextAt(object, "spec/template/spec/restartPolicy", "Always") != "Always";
  const std::string text = TextAt(object, "status/placement");
  if (!text.empty()) {
    if (auto placement = ParsePlacement(text)) {
      share.placement = *std::move(placement);
    } else {
      troubles->push_back("SharePod " + NameOf(object).Text() +
                          ": status.placement: " + placement.error().message);
    }
  }
  if (Json& metadata = object["metadata"]; metadata.is_object()) metadata.erase("managedFields");
  share.object = std::move(object);
  return share;
}

void ReadChild(const CoreOptions& options, Share& share) {
  auto child = ChildPod(share.object, options.memory_unit_mib);
  if (!child) {
    share.wrong = child.error().message;
    return;
  }
  if (auto injected = Inject(*child, options.inject); !injected) {
    share.wrong = "spec.template: " + injected.error().message;
    return;
  }
  auto gpu = ReadGpuPod(*child, options.memory_unit_mib);
  if (!gpu) {
    share.wrong = gpu.error().message;
    return;
  }
  auto needs = ReadNeeds(*child);
  if (!needs) {
    share.wrong = "spec.template." + needs.error().message;
    return;
  }
  share.gpu = *std::move(gpu);
  share.needs = *std::move(needs);
  share.request = share.gpu.request;
  share.request.name = NameOf(share.object).Text();
  share.request.node_labels.clear();
  share.resources = OtherResources(*child);
  share.request.resources = share.resources;
  // It is bound to that node as to any other.
  if (Json& spec = (*child)["spec"]; spec.is_object()) spec.erase("nodeName");
  share.child = *std::move(child);
}

}  // namespace baton::k8s
