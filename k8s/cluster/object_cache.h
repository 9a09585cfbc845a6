// SharePods and pods as they were last seen, by name, and what of other objects counts for them:
// PriorityClasses, claims and volumes, gangs. Holds no decisions.
//
// Whatever changes a name puts it into the work queue. Pure; deterministic. Not thread safe.
#ifndef BATON_K8S_CLUSTER_OBJECT_CACHE_H_
#define BATON_K8S_CLUSTER_OBJECT_CACHE_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "devmgr/placement/cluster.h"
#include "devmgr/placement/request.h"
#include "k8s/api/object.h"
#include "k8s/cluster/objects.h"
#include "k8s/cluster/priority_classes.h"
#include "k8s/cluster/quotas.h"
#include "k8s/cluster/tombstones.h"
#include "k8s/cluster/volumes.h"
#include "k8s/cluster/watched.h"
#include "k8s/cluster/work_queue.h"

namespace baton::k8s {

// What is known of one name: a SharePod and its child, or a pod. A name that waits has one of them.
struct Entry {
  ObjectName name;
  std::string key;  // name.Text()
  std::optional<Share> share;
  std::optional<Pod> pod;

  // Of the SharePod, or of the pod where there is none.
  const std::string& uid() const { return share ? share->uid : pod->uid; }
  const devmgr::PodRequest& request() const { return share ? share->request : pod->request; }
  const PodNeeds& needs() const { return share ? share->needs : pod->needs; }
  const GpuPod& gpu() const { return share ? share->gpu : pod->gpu; }
  // Of its pod, or of the one that is made next.
  const std::vector<std::string>& gates() const {
    const bool child = pod && (!share || pod->owner == share->uid) && pod->end != PodEnd::kGone;
    return share && !child ? share->gates : pod->gates;
  }
  // Whether there is something to place, or placed and not bound.
  bool IsWanted() const;
  // It has ended by itself, and gets no more pods.
  bool HasEnded() const;
  // Its pod is on a node, and is not about to go.
  bool HasLastingPod() const;
};

// What a pod is charged that has `gpu`'s limits and that placement.
GpuCharge ChargeAt(const GpuPod& gpu, const devmgr::Placement& placement, uint32_t memory_unit_mib);

class ObjectCache {
 public:
  ObjectCache(const PodOptions& options, WorkQueue& queue) : options_(options), queue_(queue) {}

  // An object was seen. What is older than what is known, or belongs to a deleted object, is
  // ignored: `entry` is null.
  struct Update {
    Entry* entry = nullptr;
    std::string replaced_uid;  // of another object that had the name before; empty: none
    bool new_spec = false;     // of a SharePod, or of a pod that waits: it asks for something else
    std::optional<Pod> foreign =
        {};  // it is none of Baton's and nothing else has its name: no entry
  };
  // `troubles`: sentences about damaged objects are added.
  Update SetPod(Json object, std::vector<std::string>* troubles);
  Update SetSharePod(Json object, std::vector<std::string>* troubles);
  // An object was deleted. Null: it was not known. The entry stays until Erase().
  Entry* RemovePod(const Json& object);
  Entry* RemoveSharePod(const Json& object);
  // The API server has no pod of that uid. It may never have been told of by the watch, which then
  // does not say that it has gone.
  Entry* RemoveMissingPod(const ObjectName& name, const std::string& uid);
  // A known pod has been bound there: as the watch will show it.
  void SetBound(Entry& entry, const devmgr::Placement& placement);

  // An object with this uid was seen to go, or another has its name since.
  bool HasGone(const std::string& uid) const { return tombstones_.Has(uid); }
  // The SharePod with this uid is, or was, deleted without its child: that stays, and is no child
  // of it as soon as Kubernetes' collector has said so in it.
  bool LeavesChild(const std::string& uid) const { return childless_.Has(uid); }

  void SetPriorityClass(const Json& object, bool gone);
  // kClaim, kVolume, kStorageClass.
  void SetVolume(Watched kind, const Json& object, bool gone, Instant now);
  // Provisioners may try nodes again that they gave up. True: for some claim they may.
  bool RetryVolumes(Instant now) { return volumes_.Retry(now); }
  Instant next_retry() const { return volumes_.next_retry(); }

  void SetQuota(const Json& object, bool gone);

  // Null: nothing is known of it.
  Entry* Find(const std::string& key);
  const Entry* Find(const std::string& key) const;
  void Erase(const std::string& key);
  // Queues all names.
  void QueueAll();

  // Whether others may be preempted for it.
  bool MayPreempt(const Entry& entry) const;
  // What it needs of a node with what its claims' volumes say. Errors as of Volumes::Resolve().
  Result<PodNeeds> ResolvedNeeds(const Entry& entry) const;
  // What its claims lack before it can be bound there.
  Volumes::Missing MissingVolume(const Entry& entry, const std::string& node) const {
    return volumes_.MissingOn(node, entry.name.name_space, entry.needs());
  }
  const Quotas& quotas() const { return quotas_; }
  // What the namespace's pods that have a place in `cluster` are charged by it, but for `except`.
  GpuCharge ChargeOfOthers(const std::string& name_space, const std::string& except,
                           const devmgr::Cluster& cluster) const;
  // "namespace/gang"; empty: it is in none.
  std::string GangOf(const Entry& entry) const;
  // Those of its gang that are there, itself among them, by key; empty: it is in none.
  const std::set<std::string>& GangMembers(const Entry& entry) const;

 private:
  Entry& At(const ObjectName& name);
  void SetPriority(Share& share) const;
  // The SharePod has the size that its child was made with, whatever its flavors say since. True:
  // that is another one than was known.
  bool KeepSize(Entry& entry) const;
  // What the SharePod needs of its node is what its child says. True: that is something else.
  static bool FollowChild(Entry& entry);
  // Keeps the gangs up to date, and queues the others of a gang that changes.
  void UpdateGang(const Entry& entry);
  void LeaveGang(const std::string& key);

  const PodOptions& options_;
  WorkQueue& queue_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::set<std::string>> gangs_;
  std::map<std::string, std::string> gang_of_;  // by key
  PriorityClasses classes_;
  Volumes volumes_;
  Quotas quotas_;
  Tombstones tombstones_;
  Tombstones childless_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_CLUSTER_OBJECT_CACHE_H_
