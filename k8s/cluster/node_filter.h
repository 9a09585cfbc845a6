// What a pod needs of its node beside GPUs, processors and memory: taints and tolerations,
// selectors and affinity to nodes, other resources, ports. As kube-scheduler's filters of the same
// names; preferences (preferred affinity, PreferNoSchedule, ScheduleAnyway) are not looked at,
// since the device manager has an opinion of its own about where a pod goes.
//
// What cannot be honoured is refused with a sentence: required affinity between pods, spreading
// constraints that must hold, resource claims, volumes that would be made where the pod goes.
//
// Pure; never throws, whatever the objects are.
#ifndef BATON_K8S_CLUSTER_NODE_FILTER_H_
#define BATON_K8S_CLUSTER_NODE_FILTER_H_

#include <compare>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "k8s/api/object.h"

namespace baton::k8s {

// An expression of node affinity. An operator that is not known matches nothing.
struct Requirement {
  std::string key;
  std::string op;  // In, NotIn, Exists, DoesNotExist, Gt, Lt
  std::vector<std::string> values;
  friend auto operator<=>(const Requirement&, const Requirement&) = default;
};

// All of its expressions hold; one without any holds nowhere.
struct NodeTerm {
  std::vector<Requirement> labels;
  std::vector<Requirement> fields;  // metadata.name
  friend auto operator<=>(const NodeTerm&, const NodeTerm&) = default;
};

struct Toleration {
  std::string key;  // empty: any
  bool exists = false;
  std::string value;
  std::string effect;  // empty: any
  friend auto operator<=>(const Toleration&, const Toleration&) = default;
};

// Alike for all pods of one template, so that nodes are looked at once for all of them.
struct PodNeeds {
  std::map<std::string, std::string> selector;
  // One term of each list holds.
  std::vector<std::vector<NodeTerm>> terms;
  std::vector<Toleration> tolerations;
  std::string node_name;            // empty: any
  std::vector<std::string> claims;  // PersistentVolumeClaims of its namespace, by name
  bool hook_mounts = false;         // the kubelet has to mount the hook (NeedsHookMounts())

  friend auto operator<=>(const PodNeeds&, const PodNeeds&) = default;
};

// kInvalid: a sentence that names the field that cannot be honoured, and what to do.
Result<PodNeeds> ReadNeeds(const Json& pod);

// The terms of a PersistentVolume's required node affinity; none: it may be used anywhere.
std::vector<NodeTerm> VolumeTerms(const Json& volume);

struct Taint {
  std::string key;
  std::string value;
  std::string effect;
  friend bool operator==(const Taint&, const Taint&) = default;
};
struct NodeFacts {
  std::string name;
  std::map<std::string, std::string> labels;
  std::vector<Taint> taints;
  // The kubelet mounts the hook: its device plugin is of a version that tells it to, and the
  // kubelet counts the resource that it does so for. ReadFacts() says the latter alone.
  bool mounts_hook = false;
  friend bool operator==(const NodeFacts&, const NodeFacts&) = default;
};
NodeFacts ReadFacts(const Json& node);

// Why the pod may not go there: a clause. Empty: it may.
std::string WhyNot(const PodNeeds& needs, const NodeFacts& node);
// The same with its kind in a few words: "untolerated taint". Nothing: the pod may go there.
struct Mismatch {
  std::string kind;
  std::string why;
};
std::optional<Mismatch> MismatchOf(const PodNeeds& needs, const NodeFacts& node);

// What a pod takes of a node beside GPUs, processors and memory, by the name of the resource, in
// bytes or pieces: "pods" (1), "ephemeral-storage", "hugepages-2Mi", "example.com/fpga",
// "port TCP/8080" (a port of the host, whatever the address), and what its limits say of
// "baton.dev/gpu-share" and "baton.dev/gpu-memory".
std::map<std::string, uint64_t> OtherResources(const Json& pod);
// What of it the node has for pods; ports are not among it.
std::map<std::string, uint64_t> OtherAllocatable(const Json& node);
bool IsPort(std::string_view resource);

}  // namespace baton::k8s

#endif  // BATON_K8S_CLUSTER_NODE_FILTER_H_
