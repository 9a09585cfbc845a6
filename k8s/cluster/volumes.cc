#include "k8s/cluster/volumes.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "k8s/types/read.h"

namespace baton::k8s {
namespace {

constexpr std::string_view kSelectedNodePointer =
    "metadata/annotations/volume.kubernetes.io~1selected-node";
// Of classes whose volumes an administrator makes.
constexpr std::string_view kNoProvisioner = "kubernetes.io/no-provisioner";

// What a provisioner lacked on a node may be there later.
constexpr Duration kTryNodeAgain = std::chrono::minutes(1);

NodeTerm OnNode(const char* op, const std::string& node) {
  return {{}, {{"metadata.name", op, {node}}}};
}

}  // namespace

void Volumes::SetClaim(const Json& object, Instant now) {
  const std::string name = NameOf(object).Text();
  Claim& claim = claims_[name];
  // A watch's event from before the answer to a write takes nothing back.
  std::string version = ResourceVersionOf(object);
  if (IsOlderVersion(version, claim.version)) return;
  claim.version = std::move(version);
  claim.volume = TextAt(object, "status/phase") == "Bound" ? TextAt(object, "spec/volumeName") : "";
  claim.storage_class = TextAt(object, "spec/storageClassName");
  std::string selected = TextAt(object, kSelectedNodePointer);
  // A provisioner that cannot make the volume there takes the annotation back.
  if (selected.empty() && !claim.selected.empty()) {
    claim.failed_on = claim.selected;
    claim.retry_at = now + kTryNodeAgain;
    retries_.emplace(claim.retry_at, name);
  }
  claim.selected = std::move(selected);
  if (!claim.volume.empty()) claim.failed_on.clear();
}

bool Volumes::Retry(Instant now) {
  bool any = false;
  while (!retries_.empty() && retries_.begin()->first <= now) {
    const auto found = claims_.find(retries_.extract(retries_.begin()).value().second);
    if (found == claims_.end() || found->second.retry_at > now) continue;
    any |= !std::exchange(found->second.failed_on, "").empty();
  }
  return any;
}

void Volumes::RemoveClaim(const Json& claim) { claims_.erase(NameOf(claim).Text()); }

void Volumes::SetVolume(const Json& volume) {
  volumes_[TextAt(volume, "metadata/name")] = VolumeTerms(volume);
}

void Volumes::RemoveVolume(const Json& volume) { volumes_.erase(TextAt(volume, "metadata/name")); }

void Volumes::SetClass(const Json& object) {
  Class& made = classes_[TextAt(object, "metadata/name")];
  made.waits = TextAt(object, "volumeBindingMode") == "WaitForFirstConsumer";
  made.provisioner = TextAt(object, "provisioner");
  made.topologies.clear();
  for (const Json& topology : ListAt(object, "allowedTopologies")) {
    NodeTerm term;
    for (const Json& expression : ListAt(topology, "matchLabelExpressions")) {
      Requirement requirement{TextAt(expression, "key"), "In", {}};
      for (const Json& value : ListAt(expression, "values")) {
        if (value.is_string()) requirement.values.push_back(value.get<std::string>());
      }
      term.labels.push_back(std::move(requirement));
    }
    if (!term.labels.empty()) made.topologies.push_back(std::move(term));
  }
}

void Volumes::RemoveClass(const Json& object) { classes_.erase(TextAt(object, "metadata/name")); }

Result<std::vector<std::vector<NodeTerm>>> Volumes::TermsOf(const std::string& name,
                                                            const Claim& claim) const {
  const auto found = classes_.find(claim.storage_class);
  if (claim.storage_class.empty()) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("PersistentVolumeClaim {} is not bound and has no storage class; bind "
                            "it to a volume (spec.volumeName), or set storageClassName",
                            name));
  }
  if (found == classes_.end()) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("PersistentVolumeClaim {} is not bound, and its storage class {} does "
                            "not exist",
                            name, claim.storage_class));
  }
  const Class& of = found->second;
  if (!of.waits) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("PersistentVolumeClaim {} is not bound yet; provisioner {} of storage "
                            "class {} has to make its volume",
                            name, of.provisioner, claim.storage_class));
  }
  if (of.provisioner == kNoProvisioner) {
    return Fail(
        ErrorCode::kUnavailable,
        fmt::format("PersistentVolumeClaim {} is not bound, and its storage class {} has no "
                    "provisioner: kube-scheduler has to choose among volumes that exist. "
                    "Set spec.volumeName of the claim, or schedulerName to a kube-scheduler "
                    "with Baton's extender",
                    name, claim.storage_class));
  }
  std::vector<std::vector<NodeTerm>> terms;
  if (!of.topologies.empty()) terms.push_back(of.topologies);
  if (!claim.selected.empty()) {
    terms.push_back({OnNode("In", claim.selected)});
  } else if (!claim.failed_on.empty()) {
    terms.push_back({OnNode("NotIn", claim.failed_on)});
  }
  return terms;
}

Result<PodNeeds> Volumes::Resolve(const std::string& name_space, const PodNeeds& needs) const {
  PodNeeds with = needs;
  with.claims.clear();
  for (const std::string& name : needs.claims) {
    const auto found = claims_.find(ObjectName{name_space, name}.Text());
    if (found == claims_.end()) {
      return Fail(ErrorCode::kNotFound, "PersistentVolumeClaim " + name + " does not exist");
    }
    const Claim& claim = found->second;
    if (claim.volume.empty()) {
      auto terms = TermsOf(name, claim);
      if (!terms) return tl::unexpected(terms.error());
      for (auto& term : *terms) with.terms.push_back(std::move(term));
      continue;
    }
    const auto volume = volumes_.find(claim.volume);
    if (volume == volumes_.end()) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("PersistentVolumeClaim {} is bound to PersistentVolume {}, which has "
                              "not been seen yet",
                              name, claim.volume));
    }
    if (!volume->second.empty()) with.terms.push_back(volume->second);
  }
  return with;
}

Volumes::Missing Volumes::MissingOn(const std::string& node, const std::string& name_space,
                                    const PodNeeds& needs) const {
  Missing waits;
  for (const std::string& name : needs.claims) {
    const auto found = claims_.find(ObjectName{name_space, name}.Text());
    if (found == claims_.end() || !found->second.volume.empty()) continue;
    if (found->second.selected != node) return {name, true};
    if (waits.claim.empty()) waits.claim = name;
  }
  return waits;
}

}  // namespace baton::k8s
