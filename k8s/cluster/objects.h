// Pods and SharePods as the binder's core has them in memory: read once for each version that is
// told. Pure; never throws, whatever the objects are.
#ifndef BATON_K8S_CLUSTER_OBJECTS_H_
#define BATON_K8S_CLUSTER_OBJECTS_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "devmgr/placement/request.h"
#include "k8s/api/object.h"
#include "k8s/cluster/node_filter.h"
#include "k8s/cluster/watched.h"
#include "k8s/types/gpu_pod.h"
#include "spec/flavors.h"

namespace baton::k8s {

// False, or `missing`: it is not there, or something else.
bool Flag(const Json& object, std::string_view pointer);
int64_t IntegerAt(const Json& object, std::string_view pointer, int64_t missing = 0);

// How a pod has ended, as its SharePod goes by it.
enum class PodEnd : uint8_t {
  kNone,      // it has not: it waits, runs, or is about to end
  kFinished,  // by itself: so has its SharePod
  kGone,      // it was ended, or never ran: its SharePod gets another
};

// A kubelet reports Succeeded or Failed of every pod that it ends, before the object goes. So the
// phase alone does not say that a pod ended by itself. One in these phases is gone, not finished,
//
//   if it is being deleted: drained, preempted, `kubectl delete pod`
//   if it has the condition DisruptionTarget: evicted, or its node shuts down
//   if it has failed with a reason of its own: its kubelet refused it (UnexpectedAdmissionError,
//     OutOfcpu, NodeAffinity, NodeShutdown and many more) or ended it (Evicted, Terminated,
//     Preempting), or the node was lost (NodeLost). Of a pod whose containers have ended there is
//     none: their reasons are in status.containerStatuses. DeadlineExceeded does not count: that
//     deadline is in the pod's spec
//   if its restartPolicy is Always, the default: such a pod does not end by itself
//
// A pod without a SharePod is not made again by the binder: whether it has room (TakesRoom()) is
// all that counts there.
PodEnd EndOf(const Json& pod);

// A pod, as far as the binder looks at it.
struct Pod {
  Json object;  // null where it is none of Baton's
  std::string uid;
  std::string version;
  std::string node;
  std::string owner;  // uid of its SharePod
  std::string phase;
  PodEnd end = PodEnd::kNone;
  bool takes_room = false;
  bool deleting = false;
  bool ours = false;  // to be bound by us
  // Were it to end, another would be made that may go wherever `needs` lets it.
  bool may_move = false;
  std::vector<std::string> gates;  // while there are any it is not to be bound
  bool ready = false;
  bool whole = false;    // asks for whole GPUs
  bool foreign = false;  // none of Baton's: what counts is what it takes of its node
  GpuPod gpu;
  std::string wrong;  // why `gpu` or `needs` cannot be read
  PodNeeds needs;
  devmgr::PodRequest request;
  std::optional<devmgr::Placement> placement;
  // Of one that is on no node: where it was said to go, so that its devices are made there
  // (keys::kMakesDevices).
  bool says_devices = false;
  std::optional<devmgr::Placement> prepared;
  std::string template_hash;  // of the template that it was made of; empty: it does not say
  // Of `gpu`'s containers those that have ended for good: init containers. What they had is free.
  std::vector<uint32_t> ended;
};

// What a pod takes of its node beside GPUs, and which nodes it may go to.
struct HostNeeds {
  uint32_t cpu_milli = 0;
  uint64_t memory_mib = 0;
  std::map<std::string, uint64_t> resources;
  PodNeeds needs;
  friend bool operator==(const HostNeeds&, const HostNeeds&) = default;
};

struct Share {
  Json object;              // with what its flavors say filled in
  Json unfilled = nullptr;  // as it was before that; null where nothing was filled in
  spec::Flavors flavors;    // that were filled in
  std::string uid;
  std::string version;
  int64_t generation = 0;
  bool deleting = false;
  bool leaves_child = false;  // it is deleted without its child (--cascade=orphan)
  bool was_bound = false;     // its status says so
  // Its status says that it has ended. One whose pods are restarted always never has, whatever its
  // status says.
  bool finished = false;
  std::optional<devmgr::Placement> placement;  // of its status
  // Another scheduler binds its child, as its template says.
  bool foreign = false;
  std::string template_hash;
  // What its spec comes to. The priority of `request` depends on PriorityClasses too.
  bool has_child = false;  // a pod can be made of it
  // Of a child that is made now: its scheduling gates, by name.
  std::vector<std::string> gates;
  bool may_move = false;  // Pod::may_move of that
  std::string priority_class;
  std::string wrong;
  GpuPod gpu;
  HostNeeds made;  // of a child that is made now
  // As `made`, or as its child says that is there: what admits a pod may add to it (defaults of a
  // LimitRange, containers, a RuntimeClass's overhead, a selector of its namespace).
  PodNeeds needs;
  devmgr::PodRequest request;
  std::string child_wrong;  // why that cannot be read of the child
};

// Leaves of a Pod of the API what ReadPod() and those who use a Pod look at. Most pods of a cluster
// are none of Baton's, and of theirs that is little.
void ProjectPod(Json& pod);
// Of a Node what ClusterView::SetNode() looks at: not its images, which are most of it.
void ProjectNode(Json& node);

// `troubles`: sentences about what is damaged are added.
Pod ReadPod(Json object, const PodOptions& options, std::vector<std::string>* troubles);
// Without what its spec comes to. `sized`: flavors as they were when it got its size, which win
// over those that are offered now.
Share ReadShare(Json object, const PodOptions& options, const spec::Flavors& sized,
                std::vector<std::string>* troubles);
void ReadChild(const PodOptions& options, Share& share);
// Takes what it needs of its node from its child, which is there and has not ended; null: there is
// none. True: that is something else than before.
bool TakeFromChild(const Pod* child, Share& share);
// The same with other flavors `sized`.
void ResizeShare(const PodOptions& options, const spec::Flavors& sized, Share& share);
// By which a SharePod's child was sized, as far as it says so.
spec::Flavors FlavorsOfChild(const Json& child);
// The pod that a SharePod with a child (`has_child`) becomes: not kept, since most have theirs.
Json MakeChild(const PodOptions& options, const Share& share);
// A merge patch of what the child's annotations lack of it (ChildChanges()); nothing: none.
std::optional<Json> ChangesOfChild(const Share& share, const Json& child);

// The request of a pod whose containers `ended` take nothing any more. Those that have whole GPUs
// keep them until the pod ends.
void ReleaseEnded(const std::vector<uint32_t>& ended, devmgr::PodRequest& request);

}  // namespace baton::k8s

#endif  // BATON_K8S_CLUSTER_OBJECTS_H_
