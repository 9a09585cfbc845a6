// Pods that wait for room, and the rounds in which they are placed: who gets a place, who is
// preempted for whom, and why the others wait.
//
// Not thread safe.
#ifndef BATON_K8S_BINDER_ROUNDS_H_
#define BATON_K8S_BINDER_ROUNDS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "devmgr/placement/queue.h"
#include "k8s/binder/cluster_teams.h"
#include "k8s/binder/core.h"
#include "k8s/binder/moves.h"
#include "k8s/binder/preemptions.h"
#include "k8s/binder/reasons.h"
#include "k8s/binder/retries.h"
#include "k8s/binder/status.h"
#include "k8s/cluster/assumed_pods.h"
#include "k8s/cluster/cluster_view.h"
#include "k8s/cluster/object_cache.h"
#include "k8s/cluster/work_queue.h"

namespace baton::k8s {

class Rounds {
 public:
  // All of them outlive it.
  struct Parts {
    const CoreOptions& options;
    devmgr::Modes modes;
    const ObjectCache& objects;
    const ClusterTeams& teams;
    ClusterView& view;
    AssumedPods& assumed;
    WorkQueue& queue;
    Reasons& reasons;
    Retries& retries;
    EventQueue& events;
  };
  explicit Rounds(const Parts& parts)
      : p_(parts),
        preemptions_(parts.objects, parts.queue, parts.options.evictions_max),
        moves_(parts.modes, parts.view, parts.objects, parts.events) {}

  // The pod has no place: it takes part in the next round, unless its volumes are not there.
  // `waited`: what Withdraw() has just said; for who waits anew a round is requested.
  void Await(const Entry& entry, bool waited);
  // It takes part no more. True: it did.
  bool Withdraw(const std::string& key);
  bool IsWaiting(const std::string& key) const { return waiting_.contains(key); }
  // Claims or volumes have changed: those that wait for one are queued.
  void VolumesChanged();
  // It has a place, and waits there for its volumes.
  void AwaitVolumes(const std::string& key) { claimants_.insert(key); }
  // A victim may not go for now, as the API server says: the preemption ends, and the pod that it
  // was for says `why`.
  void SpareVictim(const std::string& key, const std::string& uid, Instant until,
                   const std::string& why);
  // A pod was seen on its node: only such a pod can be preempted.
  void PodBound(int32_t priority);

  // Its child is to be made though it has no place: the API server must have taken the pod before
  // others are preempted for it.
  // The same for one that waits: so autoscalers see a pod that wants a node, and volumes of its own
  // are made.
  bool NeedsChildFirst(const std::string& key) const;
  void ChildMade(const std::string& key);
  // It is one of the usual pods, by which places are chosen. Once for each.
  void Learn(const std::string& key, const devmgr::PodRequest& request);

  // Makes a round if one was requested and is due. True: it was.
  bool RunIfDue(Instant now);
  // Finds out why those wait that the last round refused, as many as one step may.
  void ExplainSome(Instant now);
  // When RunIfDue() or ExplainSome() has something to do; kNever.
  Instant next(Instant now) const;

  Preemptions& preemptions() { return preemptions_; }
  const Preemptions& preemptions() const { return preemptions_; }
  uint64_t rounds() const { return rounds_; }
  uint64_t placed() const { return placed_; }
  const std::set<std::string>& waiting() const { return waiting_; }

  // The pod is gone, or the SharePod.
  void ForgetObject(const std::string& key);
  // What was to be placed is gone.
  void ForgetWaiter(const std::string& key);
  // Nothing is left of the name.
  void Forget(const std::string& key) { names_.erase(key); }

 private:
  static constexpr size_t kMovesFor = 8;  // waiting pods
  struct Name {
    bool learned = false;
    bool child_first = false;
    uint32_t passed_over = 0;
    bool sought = false;  // in vain: who might go for it
    Instant explained_at = kAlways;
  };
  // A pod of which the API server has refused the eviction.
  struct Spared {
    std::string uid;
    Instant until;
    std::string pod;  // for which it was to go
    std::string why;
  };
  // What the last round said of one that waits.
  struct Refused {
    Reason reason;
    PodNeeds needs;
    bool ceiling = false;  // what nodes have is not why
    bool moves = false;    // those that would make room are looked for
    std::string withheld;  // devmgr::Refusal has it
  };

  void Run(Instant now);
  // All of its gang are there, and those that have no place can be placed now: some are not while
  // they wait for a volume, a gate or the end of the pod before, or are tried again later. False:
  // those that wait say so.
  bool IsGangComplete(const Entry& entry);
  std::vector<devmgr::WaitingPod> WaitingPods(std::map<std::string, PodNeeds>* needs);
  void SetRefused(const std::vector<devmgr::Refusal>& refused,
                  std::map<std::string, PodNeeds>& needs);
  // Those that the quotas of their namespace keep out are not among them, and say so. `together`:
  // what others of its gang are charged, which are placed only with it.
  bool IsWithinQuota(const Entry& entry, const GpuCharge& together);
  void Preempt(const devmgr::Proposal& proposal);
  void StopEndedPreemptions();
  void StopPreemption(const std::string& pod);
  // Nodes are kept for `pod` no more. True: some were.
  bool DropReservation(const std::string& pod);

  const Parts p_;
  Preemptions preemptions_;
  Moves moves_;
  std::map<std::string, Name> names_;
  std::set<std::string> waiting_;
  std::set<std::string> claimants_;  // with claims, whether they wait or not
  Instant next_round_ = kAlways;     // not before
  bool seeks_ = false;               // the last round has not looked who might go for each of them
  bool seeks_again_ = false;         // and since it began to, something has changed
  int32_t refused_priority_ = INT32_MIN;  // the highest of those that the last round refused
  std::vector<devmgr::Reservation> kept_;
  std::map<std::string, GpuCharge> charged_;  // by namespace, in this round
  std::map<std::string, Spared> spared_;      // by key
  // To be explained, by when: first those that say nothing of the kind yet, then those that were
  // explained the longest ago.
  std::map<std::pair<Instant, std::string>, Refused> refused_;
  uint64_t rounds_ = 0;
  uint64_t placed_ = 0;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_ROUNDS_H_
