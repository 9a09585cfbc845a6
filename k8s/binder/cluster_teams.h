// The Teams of the cluster as rounds go by them: quotas, weights, and what each team has used as
// the central batond says. Writes into each Team's status whether it is in force.
//
// Pure; deterministic. Not thread safe.
#ifndef BATON_K8S_BINDER_CLUSTER_TEAMS_H_
#define BATON_K8S_BINDER_CLUSTER_TEAMS_H_

#include <map>
#include <set>
#include <string>

#include "base/time.h"
#include "devmgr/placement/quota.h"
#include "devmgr/placement/team_order.h"
#include "k8s/api/object.h"
#include "k8s/binder/core.h"
#include "k8s/binder/in_flight.h"
#include "k8s/cluster/work_queue.h"
#include "k8s/types/team.h"

namespace baton::k8s {

class ClusterTeams {
 public:
  ClusterTeams(WorkQueue& queue, InFlight& in_flight) : queue_(queue), in_flight_(in_flight) {}

  void Set(Json object);
  void Remove(const Json& object);
  // Puts into force what was told since the last call, as far as it agrees. Not before all Teams
  // have been told.
  void Settle();
  // What teams weigh and have used by the central batond's standing; nothing where it is not known.
  void SetStandings(devmgr::Standings standings);

  const devmgr::Quotas& quotas() const { return teams_.quotas(); }
  // A Team's weight comes before that of the standing.
  const devmgr::Standings& standings() const { return standings_; }

  // Sends the statuses that are not as they should be.
  void Reconcile(const CoreNow& now);
  void OnWriteResult(const Write& write, WriteResult& result, Instant now);
  // When Reconcile() has something to do; kNever.
  Instant next() const;

 private:
  WorkQueue& queue_;
  InFlight& in_flight_;
  TeamSet teams_;
  bool changed_ = false;
  devmgr::Standings told_;  // by the central batond
  devmgr::Standings standings_;
  std::set<std::string> pending_;              // Teams whose status is to be looked at
  std::map<std::string, Instant> not_before_;  // after a write that failed
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_CLUSTER_TEAMS_H_
