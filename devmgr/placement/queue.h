// One round over the pods that wait: who is placed, who is not and why, and who might go for whom.
//
// Order. First come those within a guarantee for whom a node is kept, or what was reclaimed for
// them below a ceiling would be borrowed again. Pods are tried by priority, the higher first. Among
// those of one priority the team is next that has least of what it is due, by what it used and what
// runs of it (devmgr/placement/ team_order.h); of one team, the pod that came first. What a team is
// given in the round counts at once, so many small pods are no more than few large ones. What was
// used before is the caller's.
//
// Kept room. A pod that does not fit is passed over in a round in which another is placed that was
// tried after it: smaller ones take the room that comes free. (Pods of a team that is due more are
// tried before it, so they pass nobody over.) After `patience` such rounds a node is kept for it:
// one on which it would fit if it were empty, with the fewest pods. Until it is placed no pod of
// the same or a lower priority is put there, and nobody is displaced there for one, unless that one
// is within a guarantee and the pod is not. Of one priority, nodes that are kept stay kept, and new
// ones go first to the teams that are due most. The bound: where pods run for at most L rounds, a
// pod that fits on some empty node, and before which k others that wait are tried, is placed within
// patience + (2 k + 3) (L + 1) rounds, as long as no more pods of higher priority, of teams that
// are due more or within a guarantee come. (In a round in which it is not passed over one of the k
// is placed, or nobody is; and after L rounds of nobody all nodes are empty. Once its patience has
// ended, those for whom nodes are kept already and then the k have theirs first at worst, and each
// node runs empty within L rounds.)
//
// Quotas. A pod that a ceiling keeps out is refused, which does not count as passing it over. One
// within its team's guarantee that finds no room gets a proposal of borrowed pods to displace; any
// other, of pods of lower priority; neither breaks another team's guarantee. The node of a proposal
// is kept for it from then on (vacated), for those within a guarantee also from pods of higher
// priority that would borrow, or what was reclaimed would be borrowed again; for any other also
// from those within a guarantee that are of no higher priority, or pods would have gone in vain.
// Nobody is displaced for a pod that fits by the end of the round. A round looks for so many only;
// a caller that says who was looked for in vain, and calls again while Round::more says so, gets to
// all of them.
//
// Gangs are placed as one (devmgr/placement/gang.h), and nodes are kept for all of one; for a gang
// nobody is displaced. A gang is of the team of its first pod by name, and of the lowest
// priority that one of its pods has.
//
// Pure; deterministic. Not thread safe.
#ifndef BATON_DEVMGR_PLACEMENT_QUEUE_H_
#define BATON_DEVMGR_PLACEMENT_QUEUE_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "devmgr/placement/cluster.h"
#include "devmgr/placement/preemption.h"
#include "devmgr/placement/quota.h"
#include "devmgr/placement/team_order.h"
#include "devmgr/placement/what_if.h"

namespace baton::devmgr {

struct WaitingPod {
  PodRequest request;        // the name is unique among them
  uint64_t since = 0;        // when it came, in any unit: the less came first
  std::string gang;          // those with the same word are a gang; empty: on its own
  uint32_t passed_over = 0;  // what the last round said; at first 0
  bool displaces = true;     // false: nobody is displaced for it
  bool sought = false;       // Refusal::sought of an earlier round: others are looked for first
  // It cannot be placed in this round, and comes back: nodes that are kept for it stay kept. It is
  // neither placed nor refused.
  bool away = false;
};

// Nodes that are kept for a pod, or for the gang of which it is the first by name.
struct Reservation {
  std::string holder;
  std::vector<std::string> nodes;  // by name
  bool vacated = false;            // by pods that are displaced for it

  friend bool operator==(const Reservation&, const Reservation&) = default;
};

struct RoundOptions {
  // Rounds of being passed over before nodes are kept; none for a pod of a team that would come
  // first even after it had been given that pod.
  uint32_t patience = 8;
  uint32_t reservations = 4;    // for so many pods or gangs at once, the starving ones
  uint32_t proposals = 4;       // at most; 0: nobody is displaced
  uint32_t decisions = 20'000;  // for each proposal, on copies of nodes
  uint32_t restarts = 8;        // for each gang
  // Between teams a pod that runs is charged for so much longer: about as long as the usual pod
  // runs (devmgr/placement/team_order.h).
  Duration ahead = std::chrono::hours(6);
  Names spared = {};  // pods that are not displaced, by name
};

struct PlacedNow {
  std::string pod;
  Placement placement;

  friend bool operator==(const PlacedNow&, const PlacedNow&) = default;
};

struct Refusal {
  std::string pod;
  ErrorCode code = ErrorCode::kExhausted;
  std::string why;           // a sentence
  uint32_t passed_over = 0;  // for WaitingPod in the next round
  bool ceiling = false;      // there may be room: a team's ceiling keeps it out
  bool sought = false;       // nobody was found who might go for it, now or in an earlier round
  // Part of a sentence: a node on which nobody is displaced for it, because it is kept for another.
  std::string withheld = {};

  friend bool operator==(const Refusal&, const Refusal&) = default;
};

struct Proposal {
  std::string pod;
  bool reclaims = false;  // by a guarantee; else by priority
  Displacement displacement;

  friend bool operator==(const Proposal&, const Proposal&) = default;
};

struct Round {
  std::vector<PlacedNow> placed;    // in the order in which they were
  std::vector<Refusal> refused;     // in the order in which they were tried
  std::vector<Proposal> proposals;  // no pod and no node in two of them
  bool more = false;                // for some nobody was looked for, for there are too many
  // For the next round. Those of proposals that are not carried out are to be left out.
  std::vector<Reservation> reservations;

  friend bool operator==(const Round&, const Round&) = default;
};

// Places those that fit on the cluster. `kept`: what the last round said of reservations; those
// whose holder does not wait any more, or whose nodes are of no use to it, are dropped. The caller
// tells Cluster::Learn() of new pods.
Round Schedule(Cluster& cluster, Modes modes, std::span<const WaitingPod> waiting,
               const Quotas& quotas, const Standings& standings, std::span<const Reservation> kept,
               const RoundOptions& options = {});

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_QUEUE_H_
