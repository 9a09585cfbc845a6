// Pods as an agent of a node finds them.
#ifndef BATON_TESTS_K8S_DEVICE_PLUGIN_NODE_PODS_OF_TESTS_H_
#define BATON_TESTS_K8S_DEVICE_PLUGIN_NODE_PODS_OF_TESTS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "k8s/api/object.h"

namespace baton::k8s {

// As the binder leaves it, which has given what the pod asks for.
inline void SetRequest(Json& pod, const std::string& request) {
  Json& annotations = pod["metadata"]["annotations"];
  annotations["baton.dev/request"] = request;
  Json placement = Json::parse(annotations["baton.dev/placement"].get<std::string>());
  placement["containers"][0]["vgpus"][0]["share"] = static_cast<uint64_t>(std::stod(request) * 1e4);
  annotations["baton.dev/placement"] = placement.dump();
}

// On node n1, with its placement.
inline Json PodOnNode(const std::string& name, const std::string& request, const std::string& limit,
                      const std::string& card = "GPU-a") {
  Json placement = Json::parse(R"({"v": 1, "node": "n1", "containers": [{"name": "main", "vgpus": [
      {"mode": "time-slice", "share": 100000, "memoryMiB": 0, "layout": 0, "slot": 0}]}]})");
  placement["containers"][0]["vgpus"][0]["card"] = card;
  Json pod = Json::parse(R"({
      "metadata": {"namespace": "vision", "annotations": {}},
      "spec": {"nodeName": "n1", "schedulerName": "baton", "containers": [
          {"name": "main", "image": "x",
           "resources": {"limits": {"baton.dev/gpu-share": "10"}}}]},
      "status": {"phase": "Running"}})");
  pod["metadata"]["name"] = name;
  pod["metadata"]["annotations"] = {{"baton.dev/limit", limit},
                                    {"baton.dev/placement", placement.dump()}};
  SetRequest(pod, request);
  return pod;
}

// The pod is of a SharePod of its name.
inline void SetOwner(Json& pod, const Json& share_pod) {
  Json owner{{"apiVersion", "baton.dev/v1alpha1"}, {"kind", "SharePod"}, {"controller", true}};
  owner["name"] = NameOf(share_pod).name;
  owner["uid"] = UidOf(share_pod);
  pod["metadata"]["ownerReferences"] = Json::array({std::move(owner)});
}

}  // namespace baton::k8s

#endif  // BATON_TESTS_K8S_DEVICE_PLUGIN_NODE_PODS_OF_TESTS_H_
