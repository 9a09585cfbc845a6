// The next write for one name: it looks at what there is of a SharePod or pod and sends the one
// thing that is missing, until nothing is.
//
//   SharePod       decided -> status.placement -> child -> Binding -> conditions
//                  (its child comes first where others are preempted for it)
//   pod            decided -> Binding with the placement as annotations
//
// By MIG or MPS a part of the GPU has to be made first. So before its Binding the pod gets the
// placement and the label kMakesDevices, its node's agent has the part made and says so in the
// GpuNode, and the Binding carries the name of what was made. A pod that lost its place loses the
// label, and the agent takes the part away.
//
// A child without its SharePod, and a victim of a preemption, is deleted. Watches of pods and of
// SharePods do not wait for each other, so a child whose SharePod has never been seen is given some
// time before that. A child that its node
// ended or refused is deleted, and made again where there is room.
//
// Not thread safe.
#ifndef BATON_K8S_BINDER_RECONCILER_H_
#define BATON_K8S_BINDER_RECONCILER_H_

#include <map>
#include <string>
#include <utility>

#include "k8s/binder/core.h"
#include "k8s/binder/in_flight.h"
#include "k8s/binder/reasons.h"
#include "k8s/binder/replacements.h"
#include "k8s/binder/resizes.h"
#include "k8s/binder/retries.h"
#include "k8s/binder/rounds.h"
#include "k8s/binder/status.h"
#include "k8s/cluster/assumed_pods.h"
#include "k8s/cluster/object_cache.h"
#include "k8s/cluster/work_queue.h"

namespace baton::k8s {

class Reconciler {
 public:
  // All of them outlive it.
  struct Parts {
    const CoreOptions& options;
    ObjectCache& objects;
    ClusterView& view;
    const std::map<std::string, MadeDevices>& devices;  // by node
    AssumedPods& assumed;
    WorkQueue& queue;
    InFlight& in_flight;
    Retries& retries;
    Reasons& reasons;
    Rounds& rounds;
    Resizes& resizes;
    Replacements& replacements;
    EventQueue& events;
  };
  explicit Reconciler(const Parts& parts) : p_(parts) {}

  // The node has told of what was made there: pods that wait for it are looked at again.
  void DevicesMade(const std::string& node);
  // `entry` does not outlive the call where nothing is left of the name.
  void Reconcile(Entry& entry, const CoreNow& now);
  // Nothing is left of the name: what is known of it goes. Decides nothing.
  void ForgetGone(const Entry& entry);

 private:
  // Who the room of an assumed pod is for is still there.
  bool HoldsRoom(const Entry& entry) const;
  // Of an assumed pod that asks for something else since: its place has what it takes now, or goes
  // where that is not there and nothing speaks against deciding again.
  void ReleaseOutdated(const Entry& entry);
  // The API server has rejected it, which is why it waits. True: it is not tried again yet.
  bool IsRejected(const Entry& entry);
  // Takes part in rounds, unless IsRejected().
  void AwaitRoom(const Entry& entry, bool waited);

  void ReconcilePod(const Entry& entry, bool waited);
  void ReconcileSharePod(const Entry& entry, bool waited);
  // Places the SharePod where it has no place. True: it has to wait.
  bool PlaceSharePod(const Entry& entry, const Pod* child, const Pod* gone, bool waited);
  // True: something was sent.
  bool SendStatus(const Entry& entry, const Pod* child);
  bool SendResize(const Entry& entry, std::optional<Json> patch);
  // What brings a placed SharePod to its node: the child, its annotations, its Binding.
  void SendChild(const Entry& entry, const Pod* child);
  // Its claims let it go there.
  bool VolumesAllow(const Entry& entry, const std::string& node) const;
  // Of a pod that has a place: its claims' volumes are there. False: what is missing was sent, or
  // is waited for.
  bool HasVolumes(const Entry& entry, const devmgr::Placement& to);
  // Of a pod that has the place `to`: what has to be made there is made, and `to` names it. False:
  // what is missing was sent, or is waited for.
  bool HasDevices(const Entry& entry, const Pod& pod, const GpuPod& gpu, devmgr::Placement& to);
  // An unbound pod says that it has a place, and has none. True: that was sent.
  bool TakeBackDevices(const Entry& entry, const Pod& pod);
  // The SharePod's child is of another template, or of limits that it would not have now.
  bool IsOfBefore(const Entry& entry) const;
  // Such a child goes.
  bool ReplaceOutdated(const Entry& entry, const Pod& child);
  // What an unbound pod says while it waits.
  void SendCondition(const Entry& entry, const Pod& pod);
  // True: it has to go, and that is being done.
  bool DeleteUnwanted(const Entry& entry);
  // Its SharePod is gone, and not only late to be seen.
  bool IsOrphan(const Entry& entry);
  void DeleteLost(const Entry& entry, const Pod& gone);
  void Bind(const Entry& entry, const Pod& pod, const GpuPod& gpu);
  void Patch(const Entry& entry, Json patch);
  void ShowReason(const Entry& entry);
  void Forget(const std::string& key);

  const Parts p_;
  CoreNow now_;  // of this call
  // Children whose SharePod has never been seen: by key, uid and since when.
  std::map<std::string, std::pair<std::string, Instant>> unowned_;
  // Pods that wait until something is made: the node, and since when.
  std::map<std::string, std::pair<std::string, Instant>> making_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_RECONCILER_H_
