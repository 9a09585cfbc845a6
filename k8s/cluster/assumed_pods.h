// Pods that have a place by decision and have not been seen on their node: their room is reserved
// in the cluster view from then on, for the object (SharePod or pod) that the decision was made
// for. kube-scheduler calls such a pod assumed.
//
// Not thread safe.
#ifndef BATON_K8S_CLUSTER_ASSUMED_PODS_H_
#define BATON_K8S_CLUSTER_ASSUMED_PODS_H_

#include <map>
#include <string>

#include "devmgr/placement/cluster.h"
#include "devmgr/placement/request.h"
#include "k8s/cluster/cluster_view.h"
#include "k8s/cluster/vgpu_sizes.h"

namespace baton::k8s {

class AssumedPods {
 public:
  explicit AssumedPods(ClusterView& view) : view_(view) {}

  bool Has(const std::string& key) const { return view_.IsBooked(key) && !view_.IsBound(key); }
  // Of an assumed or a bound pod whose GPUs are reserved.
  bool HasPlace(const std::string& key) const { return view_.IsBooked(key); }
  const devmgr::Placement& PlaceOf(const std::string& key) const {
    return view_.cluster().Find(key)->placement;
  }

  // A round has placed it, for the object with this uid.
  void Add(const std::string& key, const std::string& uid) { uids_[key] = uid; }
  // It was placed before a restart. False: it cannot go there any more, or this binder has decided
  // on it since: what its status says may be older.
  bool Restore(const devmgr::PodRequest& request, const devmgr::Placement& placement,
               const std::string& uid) {
    if (IsFor(request.name, uid)) return false;
    if (!IsCurrent(request, placement) || !view_.Assume(request, placement)) return false;
    Add(request.name, uid);
    return true;
  }
  bool IsFor(const std::string& key, const std::string& uid) const {
    const auto it = uids_.find(key);
    return it != uids_.end() && it->second == uid;
  }
  // Whether its place still has the sizes that it asks for, on a node that is there.
  bool IsCurrent(const std::string& key, const devmgr::PodRequest& request) const {
    return IsCurrent(request, PlaceOf(key));
  }
  // It takes this much of its node now, beside GPUs. False: the node has not that much left, and it
  // has no place any more.
  bool Rebook(const devmgr::PodRequest& request) {
    const devmgr::PlacedPod placed = *view_.cluster().Find(request.name);
    if (SameOfHost(placed.request, request)) return true;
    view_.Release(request.name);
    return view_.Assume(request, placed.placement).has_value();
  }
  // Gives its room to others.
  void Release(const std::string& key) { view_.Release(key); }
  // Nothing is left of the name.
  void Forget(const std::string& key) { uids_.erase(key); }

 private:
  bool IsCurrent(const devmgr::PodRequest& request, const devmgr::Placement& placement) const {
    return HasRequestedSizes(request, placement, view_.cluster()) && view_.HasNode(placement.node);
  }

  ClusterView& view_;
  std::map<std::string, std::string> uids_;  // by key
};

}  // namespace baton::k8s

#endif  // BATON_K8S_CLUSTER_ASSUMED_PODS_H_
