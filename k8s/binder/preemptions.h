// Pods that are deleted so that others get their room: those of a higher priority, or of a team
// that is guaranteed what the victims borrowed. Each preemption has one pod that it is for, one
// node and its victims; it is over when they have gone.
//
// Not thread safe.
#ifndef BATON_K8S_BINDER_PREEMPTIONS_H_
#define BATON_K8S_BINDER_PREEMPTIONS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "devmgr/placement/preemption.h"
#include "k8s/cluster/object_cache.h"
#include "k8s/cluster/work_queue.h"

namespace baton::k8s {

struct Preemption {
  std::string node;
  std::map<std::string, std::string> victims;  // uids by key
  bool reclaims = false;                       // by a team's guarantee; else by priority
};

class Preemptions {
 public:
  // `victims_max`: at once, of all preemptions.
  Preemptions(const ObjectCache& objects, WorkQueue& queue, uint32_t victims_max)
      : objects_(objects), queue_(queue), victims_max_(victims_max) {}

  // By the pod that they are for.
  const std::map<std::string, Preemption>& all() const { return preemptions_; }
  // Null: none.
  const Preemption* Find(const std::string& pod) const;
  // Whether there may be so many more victims.
  bool HasRoomFor(const devmgr::Displacement& displacement) const;
  // False: not now, for there are too many victims, or one is not on its node yet. Else the victims
  // are queued.
  bool Start(const std::string& pod, const devmgr::Displacement& displacement, bool reclaims);
  // Drops victims that have gone. Returns the pods whose preemption is over: no victim is left, or
  // the pod is not one of those that want a place; Stop() those.
  std::vector<std::string> Ended(const std::set<std::string>& wanting);
  // Victims that have not been deleted yet stay.
  void Stop(const std::string& pod);

  // The pod for which others go from the entry's node, where the entry may not have that room;
  // empty: there is none.
  std::string KeptFrom(const Entry& entry) const;
  // Of a victim: whether it has to go, and for whom.
  bool IsVictim(const std::string& key, const std::string& uid) const;
  const std::string& PreemptorOf(const std::string& key) const { return victims_.at(key).pod; }
  bool IsReclaimed(const std::string& key) const { return victims_.at(key).reclaims; }
  // The API server has taken its deletion.
  bool IsDeleted(const std::string& key, const std::string& uid) const;
  void SetDeleted(const std::string& key, const std::string& uid);
  // It is gone.
  void ForgetPod(const std::string& key) { victims_.erase(key); }

 private:
  struct Victim {
    std::string uid;  // empty: it need not go
    std::string pod;  // for whom
    bool reclaims = false;
    std::string deleted_uid;
  };
  const ObjectCache& objects_;
  WorkQueue& queue_;
  const uint32_t victims_max_;
  std::map<std::string, Preemption> preemptions_;
  std::map<std::string, Victim> victims_;  // by key
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_PREEMPTIONS_H_
