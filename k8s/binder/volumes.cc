#include "k8s/binder/volumes.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace baton::k8s {

void Volumes::SetClaim(const Json& claim) {
  claims_[NameOf(claim).Text()] =
      TextAt(claim, "status/phase") == "Bound" ? TextAt(claim, "spec/volumeName") : "";
}

void Volumes::RemoveClaim(const Json& claim) { claims_.erase(NameOf(claim).Text()); }

void Volumes::SetVolume(const Json& volume) {
  volumes_[TextAt(volume, "metadata/name")] = VolumeTerms(volume);
}

void Volumes::RemoveVolume(const Json& volume) { volumes_.erase(TextAt(volume, "metadata/name")); }

Result<PodNeeds> Volumes::Resolve(const std::string& name_space, const PodNeeds& needs) const {
  PodNeeds with = needs;
  with.claims.clear();
  for (const std::string& claim : needs.claims) {
    const auto found = claims_.find(ObjectName{name_space, claim}.Text());
    if (found == claims_.end()) {
      return Fail(ErrorCode::kNotFound, "PersistentVolumeClaim " + claim + " does not exist");
    }
    const auto volume = volumes_.find(found->second);
    if (found->second.empty() || volume == volumes_.end()) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("PersistentVolumeClaim {} is not bound. Baton does not bind volumes: "
                              "where its storage class waits for the first consumer, use one "
                              "with volumeBindingMode Immediate, or kube-scheduler with "
                              "baton-k8s extender",
                              claim));
    }
    if (!volume->second.empty()) with.terms.push_back(volume->second);
  }
  return with;
}

}  // namespace baton::k8s
