#include "tests/k8s/binder/core_feed.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "k8s/cluster/objects.h"

namespace baton::k8s::testing {

const Resource kClaimsOfWorld{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true};
const Resource kVolumesOfWorld{"", "v1", "persistentvolumes", "PersistentVolume", false};
const Resource kStorageClassesOfWorld{"storage.k8s.io", "v1", "storageclasses", "StorageClass",
                                      false};

const Resource& CoreFeed::ResourceOf(Watched kind) {
  static const std::array<Resource, kWatchedKinds> all = {
      resources::kNodes,           resources::kGpuNodes, resources::kPods, resources::kSharePods,
      resources::kPriorityClasses, kClaimsOfWorld,       kVolumesOfWorld,  kStorageClassesOfWorld,
      resources::kResourceQuotas,  resources::kTeams};
  return all[static_cast<size_t>(kind)];
}

CoreFeed::CoreFeed(Store& store, const CoreOptions& options) : store_(store), core_(options) {
  // The lists, each of its own moment.
  for (size_t k = 0; k < kWatchedKinds; ++k) Relist(static_cast<Watched>(k));
}

Kind& CoreFeed::Of(Watched kind) const {
  const Resource& resource = ResourceOf(kind);
  return *store_.Find(resource.group, resource.plural);
}

// As the binder's watches do: what it does not read is not there.
void CoreFeed::Tell(Watched kind, Json object) {
  if (kind == Watched::kPod) ProjectPod(object);
  if (kind == Watched::kNode) ProjectNode(object);
  told_[static_cast<size_t>(kind)][NameOf(object)] = object;
  if (kind == Watched::kSharePod) shares_.insert(UidOf(object));
  core_.Changed(kind, std::move(object));
}

bool CoreFeed::Behind(Watched kind) const {
  const Kind& of = Of(kind);
  return !of.history.empty() && of.history.back().version > seen_[static_cast<size_t>(kind)];
}

void CoreFeed::Deliver(Watched kind, size_t most) {
  const Kind& of = Of(kind);
  uint64_t& seen = seen_[static_cast<size_t>(kind)];
  auto change =
      std::upper_bound(of.history.begin(), of.history.end(), seen,
                       [](uint64_t version, const Change& c) { return version < c.version; });
  for (; change != of.history.end() && most > 0; ++change, --most) {
    seen = change->version;
    if (std::string_view(change->type) == "DELETED") {
      told_[static_cast<size_t>(kind)].erase(NameOf(change->now->json));
      core_.Gone(kind, change->now->json);
    } else {
      Tell(kind, change->now->json);
    }
  }
}

void CoreFeed::Relist(Watched kind) {
  const Kind& of = Of(kind);
  const std::map<ObjectName, Json> before = told_[static_cast<size_t>(kind)];
  const auto same = [&](const ObjectName& name, const Json& was, const char* what) {
    const auto now = of.objects.find(name);
    const std::string at = std::string("metadata/") + what;
    return now != of.objects.end() && TextAt(now->second->json, at) == TextAt(was, at);
  };
  // As the reflector does: what is gone comes first, and of that no more than who it was is known.
  for (const auto& [name, object] : before) {
    if (same(name, object, "uid")) continue;
    told_[static_cast<size_t>(kind)].erase(name);
    Json who{{"name", name.name},
             {"uid", UidOf(object)},
             {"resourceVersion", ResourceVersionOf(object)}};
    if (!name.name_space.empty()) who["namespace"] = name.name_space;
    core_.Gone(kind, {{"metadata", std::move(who)}});
  }
  for (const auto& [name, object] : of.objects) {
    const auto known = before.find(name);
    if (known == before.end() || !same(name, known->second, "resourceVersion")) {
      Tell(kind, object->json);
    }
  }
  seen_[static_cast<size_t>(kind)] = store_.version();
}

}  // namespace baton::k8s::testing
