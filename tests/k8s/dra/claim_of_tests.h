// ResourceClaims as kube-scheduler leaves them.
#ifndef BATON_TESTS_K8S_DRA_CLAIM_OF_TESTS_H_
#define BATON_TESTS_K8S_DRA_CLAIM_OF_TESTS_H_

#include <nlohmann/json.hpp>
#include <string>

#include "k8s/api/object.h"

namespace baton::k8s {

// One result of an allocation on node n1.
inline Json AllocatedGpu(const std::string& request, const std::string& device,
                         const std::string& share, const std::string& memory,
                         const std::string& share_id = "5f0c2b6e-0000-4000-8000-000000000001") {
  return {{"request", request},  {"driver", "gpu.baton.dev"},
          {"pool", "n1"},        {"device", device},
          {"shareID", share_id}, {"consumedCapacity", {{"share", share}, {"memory", memory}}}};
}

// A claim of namespace vision with one request "gpu".
inline Json AllocatedClaim(const std::string& name, const std::string& device,
                           const std::string& share, const std::string& memory) {
  Json claim = Json::parse(R"({
      "metadata": {"namespace": "vision", "creationTimestamp": "2026-01-31T09:30:00Z"},
      "spec": {"devices": {"requests": [
          {"name": "gpu", "exactly": {"deviceClassName": "gpu.baton.dev"}}]}},
      "status": {"allocation": {"devices": {"results": []}}}})");
  claim["metadata"]["name"] = name;
  claim["metadata"]["uid"] = "uid-" + name;
  claim["status"]["allocation"]["devices"]["results"].push_back(
      AllocatedGpu("gpu", device, share, memory));
  return claim;
}

// Made for that pod, by a template.
inline void SetOwnerPod(Json& claim, const std::string& pod) {
  claim["metadata"]["ownerReferences"] = Json::array(
      {{{"apiVersion", "v1"}, {"kind", "Pod"}, {"name", pod}, {"uid", "p"}, {"controller", true}}});
}

inline void AddParameters(Json& claim, const std::string& source, Json parameters) {
  parameters.emplace("apiVersion", "baton.dev/v1alpha1");
  parameters.emplace("kind", "ShareParameters");
  claim["status"]["allocation"]["devices"]["config"].push_back(
      {{"source", source},
       {"opaque", {{"driver", "gpu.baton.dev"}, {"parameters", std::move(parameters)}}}});
}

}  // namespace baton::k8s

#endif  // BATON_TESTS_K8S_DRA_CLAIM_OF_TESTS_H_
