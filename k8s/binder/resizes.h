// Shares and memory that change while the pod runs. What a pod grows by is reserved before its
// annotations say so; what it shrinks by is free after they do.
//
// Not thread safe.
#ifndef BATON_K8S_BINDER_RESIZES_H_
#define BATON_K8S_BINDER_RESIZES_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/result.h"
#include "k8s/binder/cluster_teams.h"
#include "k8s/binder/status.h"
#include "k8s/cluster/assumed_pods.h"
#include "k8s/cluster/cluster_view.h"
#include "k8s/cluster/object_cache.h"
#include "k8s/cluster/work_queue.h"

namespace baton::k8s {

class Resizes {
 public:
  Resizes(const ObjectCache& objects, const ClusterTeams& teams, ClusterView& view,
          const AssumedPods& places, WorkQueue& queue, EventQueue& events)
      : objects_(objects),
        teams_(teams),
        view_(view),
        places_(places),
        queue_(queue),
        events_(events) {}

  // The pod is on its node and asks for `wanted` now: it gets that, if there is room. `share`: its
  // SharePod; null: it has none. `in_doubt`: an earlier patch of it may have
  // been carried out. `kept_for`: what is free on its node is for that pod; empty: for anybody.
  // Returns the patch to send next; nothing: none.
  std::optional<Json> Reconcile(const Entry& entry, const GpuPod& wanted, const Share* share,
                                bool in_doubt, const std::string& kept_for);
  // It asks for what makes no sense, for this reason: it keeps what it has.
  std::optional<Json> Reject(const Entry& entry, std::string why, bool in_doubt);

  // The ceilings of the pod's team allow that place, which was decided on earlier.
  bool Allows(const Entry& entry, const devmgr::Placement& placement) const;

  // Why the pod does not have the size that it asks for; empty: it has.
  const std::string& WhyNot(const std::string& key) const;
  // The pod waits for room no more, until Reconcile() says so again.
  void Withdraw(const std::string& key) { waiting_.erase(key); }
  // Room may have come free: those that wait for it are queued.
  void QueueWaiting() {
    for (const std::string& key : waiting_) queue_.Add(key);
  }
  // The pod is gone.
  void ForgetPod(const std::string& key) {
    why_not_.erase(key);
    changing_.erase(key);
  }

 private:
  // Room beyond what the pod's annotations say is free again.
  std::optional<Json> Keep(const Entry& entry, bool in_doubt);
  // To those sizes, where it is: all of its containers or none.
  Result<void> Resize(const std::string& key, const devmgr::Placement& to);

  // The pod may have those sizes: by the namespace's ResourceQuotas and the team's ceilings, and
  // more than it has only where nothing is kept for another. kExhausted: a sentence.
  Result<void> CheckAllowed(const Entry& entry, const devmgr::Placement& to,
                            const std::string& kept_for) const;

  const ObjectCache& objects_;
  const ClusterTeams& teams_;
  ClusterView& view_;
  const AssumedPods& places_;
  WorkQueue& queue_;
  EventQueue& events_;
  std::set<std::string> waiting_;
  std::set<std::string> changing_;              // a patch of theirs says another size
  std::map<std::string, std::string> why_not_;  // by key
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_RESIZES_H_
