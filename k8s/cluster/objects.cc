#include "k8s/cluster/objects.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "k8s/cluster/cluster_view.h"
#include "k8s/types/flavors.h"
#include "k8s/types/read.h"
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

// Null: none.
const Json* ControllerOf(const Json& pod) {
  for (const Json& owner : ListAt(pod, "metadata/ownerReferences")) {
    if (Flag(owner, "controller")) return &owner;
  }
  return nullptr;
}

// The uid of the SharePod that controls it.
std::string OwnerOf(const Json& pod) {
  const Json* owner = ControllerOf(pod);
  const bool share = owner != nullptr && TextAt(*owner, "kind") == resources::kSharePods.kind &&
                     TextAt(*owner, "apiVersion").starts_with(resources::kSharePods.group + "/");
  return share ? TextAt(*owner, "uid") : "";
}

// By which users say that a pod must not be moved.
constexpr std::pair<const char*, const char*> kStays[] = {
    {"cluster-autoscaler.kubernetes.io/safe-to-evict", "false"},
    {"karpenter.sh/do-not-disrupt", "true"}};

// Another is made in its place, perhaps on another node; and nobody has said that it must stay.
bool MayMove(const Json& pod, const GpuPod& gpu) {
  if (!gpu.asks() || !gpu.gang.empty()) return false;
  const Json* owner = ControllerOf(pod);
  if (owner == nullptr || TextAt(*owner, "kind") == "DaemonSet") return false;
  const Json* annotations = Find(pod, "metadata/annotations");
  return annotations == nullptr || !annotations->is_object() ||
         std::none_of(std::begin(kStays), std::end(kStays), [&](const auto& stays) {
           return annotations->value(stays.first, Json()) == stays.second;
         });
}

// An init container that has ended well does not run again, but for one that is restarted always.
std::vector<uint32_t> EndedOf(const Json& pod, const GpuPod& gpu) {
  std::vector<uint32_t> ended;
  const Json& inits = ListAt(pod, "spec/initContainers");
  for (uint32_t i = 0; i < gpu.containers.size(); ++i) {
    const ContainerGpus& gpus = gpu.containers[i];
    if (gpus.index >= inits.size()) break;
    if (TextAt(inits[gpus.index], "restartPolicy") == "Always") continue;
    for (const Json& status : ListAt(pod, "status/initContainerStatuses")) {
      if (TextAt(status, "name") != gpus.name) continue;
      const Json* code = Find(status, "state/terminated/exitCode");
      if (code != nullptr && *code == 0) ended.push_back(i);
    }
  }
  return ended;
}

std::vector<std::string> GatesOf(const Json& pod) {
  std::vector<std::string> gates;
  for (const Json& gate : ListAt(pod, "spec/schedulingGates")) {
    gates.push_back(TextAt(gate, "name"));
  }
  return gates;
}

}  // namespace

void ReleaseEnded(const std::vector<uint32_t>& ended, devmgr::PodRequest& request) {
  for (const uint32_t i : ended) {
    if (i >= request.containers.size()) continue;
    for (devmgr::VgpuRequest& vgpu : request.containers[i].vgpus) {
      vgpu.share = policy::Share(0);
      vgpu.memory_mib = 0;
      vgpu.memory_part = policy::Share(0);
    }
  }
}

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

Pod ReadPod(Json object, const PodOptions& options, std::vector<std::string>* troubles) {
  Pod pod;
  pod.uid = UidOf(object);
  pod.version = ResourceVersionOf(object);
  pod.owner = OwnerOf(object);
  pod.phase = TextAt(object, "status/phase");
  pod.end = EndOf(object);
  pod.deleting = Find(object, "metadata/deletionTimestamp") != nullptr;
  pod.ready = OneSays(object, "Ready");
  pod.gates = GatesOf(object);
  auto gpu = ReadGpuPod(object, options.memory_unit_mib);
  SeenPod seen = SeePod(object, gpu);
  pod.node = std::move(seen.node);
  pod.takes_room = seen.takes_room;
  pod.whole = seen.whole;
  pod.request = std::move(seen.request);
  pod.placement = std::move(seen.placement);
  if (gpu) {
    pod.gpu = *std::move(gpu);
    if (!pod.node.empty()) pod.ended = EndedOf(object, pod.gpu);
  } else {
    pod.wrong = gpu.error().message;
  }
  if (!pod.node.empty() && !ReadPlacement(object)) {
    troubles->push_back("pod " + NameOf(object).Text() +
                        ": its placement annotation is damaged; delete the pod");
  }
  const std::string makes = MakesDevicesOn(object);
  pod.says_devices = pod.node.empty() && !makes.empty();
  if (pod.says_devices) {
    auto prepared = ReadPlacement(object).value_or(std::nullopt);
    if (prepared && makes == LabelOfNode(prepared->node)) pod.prepared = std::move(prepared);
  }
  const bool scheduler = TextAt(object, "spec/schedulerName") == options.scheduler;
  pod.ours = pod.node.empty() && scheduler;
  if (scheduler && pod.wrong.empty()) {
    auto needs = ReadNeeds(object);
    if (!needs && pod.ours) pod.wrong = needs.error().message;
    pod.may_move = needs && MayMove(object, pod.gpu);
    if (needs) pod.needs = *std::move(needs);
    if (!pod.ours) pod.needs.node_name.clear();  // where it is now
  }
  pod.template_hash = TextAt(object, "metadata/annotations/baton.dev~1template-hash");
  const bool batons =
      scheduler || !pod.owner.empty() || pod.gpu.asks() || pod.placement || !pod.wrong.empty();
  pod.foreign = !batons;
  if (batons) {
    Json* metadata = &object["metadata"];
    if (metadata->is_object()) metadata->erase("managedFields");
    pod.object = std::move(object);
  }
  return pod;
}

namespace {

const std::string kFlavorsPointer = "metadata/annotations/baton.dev~1flavors";

// Where there is no webhook. What cannot be filled in is refused where the spec is read.
void FillIn(const PodOptions& options, const spec::Flavors& sized, Share& share) {
  const std::set<std::string> names = FlavorsNamedBy(share.object);
  if (names.empty()) return;
  spec::Flavors flavors;
  for (const std::string& name : names) {
    for (const spec::Flavors* from : {&sized, &options.inject.flavors}) {
      if (const auto found = from->find(name); found != from->end()) flavors.insert(*found);
    }
  }
  Json filled = share.object;
  static_cast<void>(FillInSharePod(flavors, Json(), filled));
  if (filled == share.object) return;
  share.unfilled = std::exchange(share.object, std::move(filled));
  share.flavors = std::move(flavors);
}

}  // namespace

Share ReadShare(Json object, const PodOptions& options, const spec::Flavors& sized,
                std::vector<std::string>* troubles) {
  Share share;
  share.uid = UidOf(object);
  share.version = ResourceVersionOf(object);
  share.generation = IntegerAt(object, "metadata/generation");
  share.deleting = Find(object, "metadata/deletionTimestamp") != nullptr;
  const Json& finalizers = ListAt(object, "metadata/finalizers");
  share.leaves_child = share.deleting && std::find(finalizers.begin(), finalizers.end(),
                                                   "orphan") != finalizers.end();
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
  FillIn(options, sized, share);
  return share;
}

namespace {

Result<Json> ChildOf(const PodOptions& options, const Share& share) {
  auto child = ChildPod(share.object, options.memory_unit_mib);
  if (!child) return child;
  if (!share.flavors.empty()) {
    (*child)["metadata"]["annotations"][PodKey(keys::kFlavors)] = FlavorsText(share.flavors);
  }
  if (auto injected = Inject(*child, options.inject); !injected) {
    return Fail(ErrorCode::kInvalid, "spec.template: " + injected.error().message);
  }
  return child;
}

// Leaves of an object the members `keys`.
void Keep(Json& object, std::initializer_list<std::string_view> keys) {
  if (!object.is_object()) return;
  for (auto it = object.begin(); it != object.end();) {
    const bool wanted = std::find(keys.begin(), keys.end(), it.key()) != keys.end();
    it = wanted ? std::next(it) : object.erase(it);
  }
}

// The member at `key`; null where it is not there.
Json* Member(Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

template <class Act>
void ForEach(Json* list, const Act& act) {
  if (list == nullptr || !list->is_array()) return;
  for (Json& element : *list) act(element);
}

bool IsOfBaton(std::string_view annotation) {
  return annotation.find("baton.dev/") != std::string_view::npos;
}

// On its node, and none of Baton's.
bool IsPlain(const Json& pod) {
  if (TextAt(pod, "spec/nodeName").empty() || !OwnerOf(pod).empty()) return false;
  if (const Json* annotations = Find(pod, "metadata/annotations")) {
    for (const auto& [key, value] : annotations->items()) {
      if (IsOfBaton(key)) return false;
    }
  }
  for (const char* list : {"spec/containers", "spec/initContainers"}) {
    for (const Json& container : ListAt(pod, list)) {
      const Json* limits = Find(container, "resources/limits");
      if (limits == nullptr || !limits->is_object()) continue;
      for (const auto& [resource, amount] : limits->items()) {
        if (resource.starts_with(kPrefix) || resource == kWholeResource) return false;
      }
    }
  }
  return true;
}

}  // namespace

void ProjectPod(Json& pod) {
  if (!pod.is_object()) return;
  Keep(pod, {"kind", "apiVersion", "metadata", "spec", "status"});
  if (Json* metadata = Member(pod, "metadata")) {
    Keep(*metadata,
         {"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp",
          "generation", "annotations", "ownerReferences", "labels"});
    if (Json* labels = Member(*metadata, "labels")) {
      const Json makes = labels->value(PodKey(keys::kMakesDevices), Json());
      metadata->erase("labels");
      if (!makes.is_null()) (*metadata)["labels"][PodKey(keys::kMakesDevices)] = makes;
    }
    if (Json* annotations = Member(*metadata, "annotations");
        annotations != nullptr && annotations->is_object()) {
      for (auto it = annotations->begin(); it != annotations->end();) {
        const bool stays = std::any_of(std::begin(kStays), std::end(kStays),
                                       [&](const auto& one) { return it.key() == one.first; });
        it = stays || IsOfBaton(it.key()) ? std::next(it) : annotations->erase(it);
      }
      if (annotations->empty()) metadata->erase("annotations");
    }
  }
  if (Json* spec = Member(pod, "spec")) {
    Keep(*spec, {"nodeName", "schedulerName", "schedulingGates", "priority", "preemptionPolicy",
                 "priorityClassName", "restartPolicy", "nodeSelector", "affinity", "tolerations",
                 "topologySpreadConstraints", "resourceClaims", "resources", "overhead", "volumes",
                 "containers", "initContainers"});
    for (const char* list : {"containers", "initContainers"}) {
      ForEach(Member(*spec, list), [](Json& container) {
        Keep(container, {"name", "resources", "ports", "restartPolicy"});
      });
    }
    ForEach(Member(*spec, "volumes"), [](Json& volume) {
      Keep(volume, {"name", "persistentVolumeClaim", "ephemeral"});
      if (Json* made = Member(volume, "ephemeral")) *made = Json::object();
    });
  }
  if (IsPlain(pod)) {
    // What it takes of its node is all that counts, and most pods are such.
    if (Json* spec = Member(pod, "spec")) {
      for (const char* need : {"affinity", "tolerations", "topologySpreadConstraints", "volumes"}) {
        spec->erase(need);
      }
    }
    if (Json* metadata = Member(pod, "metadata")) {
      Keep(*metadata, {"name", "namespace", "uid", "resourceVersion"});
    }
    if (Json* status = Member(pod, "status")) Keep(*status, {"phase"});
    return;
  }
  if (Json* status = Member(pod, "status")) {
    Keep(*status, {"phase", "reason", "message", "conditions", "initContainerStatuses"});
    ForEach(Member(*status, "conditions"), [](Json& condition) {
      Keep(condition, {"type", "status", "reason", "message", "lastTransitionTime"});
    });
    ForEach(Member(*status, "initContainerStatuses"), [](Json& container) {
      Keep(container, {"name", "state"});
    });
  }
}

void ProjectNode(Json& node) {
  if (!node.is_object()) return;
  Keep(node, {"kind", "apiVersion", "metadata", "spec", "status"});
  if (Json* metadata = Member(node, "metadata")) {
    Keep(*metadata, {"name", "uid", "resourceVersion", "labels"});
  }
  if (Json* spec = Member(node, "spec")) Keep(*spec, {"taints", "unschedulable"});
  if (Json* status = Member(node, "status")) {
    Keep(*status, {"allocatable", "conditions", "nodeInfo"});
    if (Json* info = Member(*status, "nodeInfo")) Keep(*info, {"bootID"});
  }
}

Json MakeChild(const PodOptions& options, const Share& share) {
  auto child = ChildOf(options, share);
  BATON_CHECK(child.has_value());
  // It is bound to that node as to any other.
  if (Json& spec = (*child)["spec"]; spec.is_object()) spec.erase("nodeName");
  return *std::move(child);
}

std::optional<Json> ChangesOfChild(const Share& share, const Json& child) {
  auto changes = ChildChanges(share.object, child);
  const std::string is = TextAt(child, kFlavorsPointer);
  const std::string text = FlavorsText(share.flavors);
  if (is == text) return changes;
  if (!changes) changes = Json::object();
  (*changes)["metadata"]["annotations"][PodKey(keys::kFlavors)] =
      text.empty() ? Json() : Json(text);
  return changes;
}

spec::Flavors FlavorsOfChild(const Json& child) {
  return ReadFlavorsText(TextAt(child, kFlavorsPointer)).value_or(spec::Flavors());
}

void ResizeShare(const PodOptions& options, const spec::Flavors& sized, Share& share) {
  share.object = std::exchange(share.unfilled, nullptr);
  share.flavors.clear();
  FillIn(options, sized, share);
  share.wrong.clear();
  share.has_child = false;
  ReadChild(options, share);
}

void ReadChild(const PodOptions& options, Share& share) {
  const auto child = ChildOf(options, share);
  if (!child) {
    share.wrong = child.error().message;
    return;
  }
  auto gpu = ReadGpuPod(*child, options.memory_unit_mib);
  if (!gpu) {
    share.wrong = gpu.error().message;
    return;
  }
  share.template_hash = TextAt(*child, "metadata/annotations/baton.dev~1template-hash");
  share.foreign = TextAt(*child, "spec/schedulerName") != options.scheduler;
  // Of another scheduler's pods that one looks at what they need.
  auto needs = share.foreign ? PodNeeds() : ReadNeeds(*child);
  if (!needs) {
    share.wrong = "spec.template." + needs.error().message;
    return;
  }
  share.may_move = !share.foreign && MayMove(*child, *gpu);
  share.gpu = *std::move(gpu);
  share.request = share.gpu.request;
  share.request.name = NameOf(share.object).Text();
  share.request.node_labels.clear();
  share.made = {share.request.cpu_milli, share.request.memory_mib, OtherResources(*child),
                *std::move(needs)};
  share.has_child = true;
  share.gates = GatesOf(*child);
  share.priority_class = TextAt(*child, "spec/priorityClassName");
  TakeFromChild(nullptr, share);
}

bool TakeFromChild(const Pod* child, Share& share) {
  if (!share.has_child) return false;
  HostNeeds host = share.made;
  std::string wrong;
  if (child != nullptr) {
    const devmgr::PodRequest& is = child->request;
    // What cannot be read of its GPUs is made right, or the SharePod's word counts.
    if (child->gpu.asks()) {
      host.cpu_milli = is.cpu_milli;
      host.memory_mib = is.memory_mib;
      if (child->ours) {
        host.needs = child->needs;
        wrong = child->wrong;
      }
    }
    host.resources = is.resources;
  }
  devmgr::PodRequest& request = share.request;
  const HostNeeds before{request.cpu_milli, request.memory_mib, request.resources, share.needs};
  if (before == host && share.child_wrong == wrong) return false;
  request.cpu_milli = host.cpu_milli;
  request.memory_mib = host.memory_mib;
  request.resources = std::move(host.resources);
  share.needs = std::move(host.needs);
  share.child_wrong = std::move(wrong);
  return true;
}

}  // namespace baton::k8s
