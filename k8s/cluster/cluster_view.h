// What the API server's objects say of nodes, GPUs and the pods on them, as the device manager's
// cluster. Used by the binder and the extender, so both decide by the same.
//
// A pod that is bound and has room is booked where its placement annotation says, whatever else
// stands there. What cannot be booked (a GPU that is given twice, a pod with GPUs that Baton did
// not give) keeps others away: its GPUs, or the whole node where it is not known which, are
// cordoned until it has gone. Pods that use no GPU count in what they take of the node.
//
// Pure; deterministic. Not thread safe.
#ifndef BATON_K8S_CLUSTER_CLUSTER_VIEW_H_
#define BATON_K8S_CLUSTER_CLUSTER_VIEW_H_

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "devmgr/placement/cluster.h"
#include "devmgr/placement/what_if.h"
#include "k8s/cluster/foreign_pods.h"
#include "k8s/cluster/node_filter.h"
#include "k8s/types/annotations.h"
#include "k8s/types/gpu_node.h"
#include "k8s/types/gpu_pod.h"

namespace baton::k8s {

// A pod, as far as it matters to its node.
struct SeenPod {
  std::string key;   // "namespace/name"
  std::string node;  // empty: not bound
  bool takes_room = false;
  bool whole = false;  // it asks for whole GPUs; which, only a placement says
  std::optional<devmgr::Placement> placement;
  devmgr::PodRequest request;  // its `containers` are looked at only where there is no placement
};

// `gpu`: what ReadGpuPod() says of it.
SeenPod SeePod(const Json& pod, const Result<GpuPod>& gpu);

class ClusterView {
 public:
  // `modes` outlive it.
  ClusterView(uint32_t memory_unit_mib, const devmgr::PlacementPolicy& policy, devmgr::Modes modes);

  void SetNode(const Json& node);
  void RemoveNode(const std::string& name);
  // Returns a sentence where it cannot be read; then it counts as not there.
  std::string SetGpuNode(const Json& gpu_node);
  void RemoveGpuNode(const std::string& name);

  // A pod was seen. Where it is bound, what was decided about it is confirmed or replaced, and what
  // it takes of its node beside GPUs is what it says.
  void SetPod(const SeenPod& pod);
  void RemovePod(const std::string& key);
  // Books bound pods at the sizes that they were seen with last, for who follows another's
  // decisions: SetPod() leaves a known pod's size to who decides on it. At the next Flush().
  void BookAsSeen();
  // Pods that are none of Baton's are told of to these.
  ForeignPods& foreign() { return foreign_; }
  // Whether it is on a node, by what was seen.
  bool IsBound(const std::string& key) const { return here_.contains(key); }
  // Whether its GPUs are booked.
  bool IsBooked(const std::string& key) const { return cluster_.Find(key) != nullptr; }

  // What was decided, or said to be decided: booked until a pod of that key is seen elsewhere or
  // Release() is called. Not for bound pods.
  Result<void> Assume(const devmgr::PodRequest& request, const devmgr::Placement& placement);
  void Release(const std::string& key);
  // The pod is of this team, whatever it says itself, until it says another than before. On a GPU
  // that is no more there one that was booked may not be booked again.
  void SetTeam(const std::string& key, const std::string& team);

  // Brings the cluster up to date with all that was told; to be called before decisions. True:
  // something is different, so pods that fitted nowhere may fit now.
  bool Flush();

  // Such a pod may come: to be called before decisions about it.
  void Expect(const devmgr::PodRequest& request);
  // The nodes that `needs` rules out; null: none. Good until the next change of a node; the same
  // object for the same needs.
  std::shared_ptr<const std::vector<devmgr::ExcludedNode>> OffNodes(const PodNeeds& needs);
  // Why not, per node.
  std::string WhyOff(const PodNeeds& needs, const std::string& node) const;
  // What stands against the pod in the kubelet's account of baton.dev/gpu-share and gpu-memory on
  // that node; empty: nothing.
  std::string WhyKubelet(const devmgr::PodRequest& request, const std::string& node) const;
  // Why nothing can come to the node at the moment, beside its own cordon; empty: nothing.
  std::string WhyClosed(const std::string& node) const;
  bool HasNode(const std::string& name) const;

  devmgr::Cluster& cluster() { return cluster_; }
  const devmgr::Cluster& cluster() const { return cluster_; }
  uint32_t memory_unit_mib() const { return memory_unit_mib_; }
  // Pods that are bound and could not be booked: sentences, by key.
  const std::map<std::string, std::string>& troubles() const { return troubles_; }

 private:
  static constexpr size_t kOffMax = 4'096;
  struct NodeEntry {
    bool known = false;  // there is a Node of that name
    devmgr::Node node;   // without GPUs
    std::vector<devmgr::Card> guessed;
    std::optional<std::vector<devmgr::Card>> cards;  // of its GpuNode
    std::map<std::string, uint64_t> resources;
    NodeFacts facts;
    bool counts_share = false;           // its kubelet, as the Node says
    bool mounts_hook = false;            // its agent, as its GpuNode says
    std::set<std::string> pods;          // bound there, by key
    std::optional<devmgr::Node> booked;  // as the cluster has it
    std::string closed;
  };

  void Touch(const std::string& node) { dirty_.insert(node); }
  void SetFacts(NodeEntry& entry, NodeFacts facts);
  void FlushNode(const std::string& name, NodeEntry& entry);
  void AdoptAll(NodeEntry& entry, std::set<std::string>* blocked);
  devmgr::Node Wanted(const std::string& name, const NodeEntry& entry,
                      const std::set<std::string>& blocked) const;
  bool Set(const devmgr::Node& node, NodeEntry& entry);

  const uint32_t memory_unit_mib_;
  devmgr::Cluster cluster_;
  std::map<std::string, NodeEntry> nodes_;
  std::map<std::string, SeenPod> here_;       // bound pods that take room
  std::map<std::string, std::string> teams_;  // by SetTeam(), of those
  ForeignPods foreign_;
  std::map<std::string, std::string> troubles_;
  std::set<std::string> dirty_;
  std::set<std::string> ports_;  // that any of Baton's pods has asked for
  std::map<PodNeeds, std::shared_ptr<const std::vector<devmgr::ExcludedNode>>> off_;
  bool changed_ = false;
};

// The request of a pod that has that place: its shares and memory are those of the placement.
devmgr::PodRequest RequestAt(devmgr::PodRequest request, const devmgr::Placement& placement);
// Both take the same of their node beside GPUs.
bool SameOfHost(const devmgr::PodRequest& a, const devmgr::PodRequest& b);
// Of at least one GPU a part has to be made before the pod comes (modes mig and mps).
bool HasParts(const devmgr::Placement& placement);
// The same parts of the same GPUs.
bool SameParts(const devmgr::Placement& a, const devmgr::Placement& b);
// On the same node and GPUs, whatever the shares.
bool SamePlace(const devmgr::Placement& a, const devmgr::Placement& b);

}  // namespace baton::k8s

#endif  // BATON_K8S_CLUSTER_CLUSTER_VIEW_H_
