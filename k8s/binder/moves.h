// Pods that would have to move to make room for one that waits (devmgr/placement/defrag.h). That is
// only said, in the condition of the one that waits. Where somebody ends them, the room is not lost
// again: their node is kept for the one that waits until they have gone.
//
// Not thread safe.
#ifndef BATON_K8S_BINDER_MOVES_H_
#define BATON_K8S_BINDER_MOVES_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "devmgr/placement/queue.h"
#include "devmgr/placement/what_if.h"
#include "k8s/binder/status.h"
#include "k8s/cluster/cluster_view.h"
#include "k8s/cluster/node_filter.h"
#include "k8s/cluster/object_cache.h"

namespace baton::k8s {

class Moves {
 public:
  // All of them outlive it.
  Moves(devmgr::Modes modes, ClusterView& view, const ObjectCache& objects, EventQueue& events)
      : modes_(modes), view_(view), objects_(objects), events_(events) {}

  // Part of a sentence; empty: no moves were found. At most two pods move, of no higher priority,
  // of which Pod::may_move says that they may. Looked at are the 64 nodes with the most GPU time
  // free that are not `kept`: it takes 8 to 21 ms (docs/results/placement.md).
  std::string Propose(const Entry& waiting, const PodNeeds& needs, const devmgr::Names& kept);

  // What a round is to keep; once before each. `waiting`: the others get nothing any more.
  std::vector<devmgr::Reservation> Keep(const std::set<std::string>& waiting);
  // It is to be kept in the next round too.
  bool Keeps(const std::string& holder) const;
  // These go for another: no node is kept because they do.
  void Forget(const std::vector<std::string>& pods);

 private:
  struct Plan {
    std::string node;                         // where the one that waits has room then
    std::map<std::string, std::string> pods;  // that move from there: uids by key
    bool begun = false;                       // one of them has gone, or is about to
  };
  const devmgr::Modes modes_;
  ClusterView& view_;
  const ObjectCache& objects_;
  EventQueue& events_;
  std::map<std::string, Plan> plans_;  // by the pod that waits
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_MOVES_H_
