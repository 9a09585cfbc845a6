// The binder's decisions: what stands in the cluster goes in, what is to be written comes out.
//
// It has no intentions but those that stand in the cluster: for each pod and SharePod it compares
// what there is with what is wanted and sends the next write that is missing, so it continues after
// a restart, a lost answer or somebody else's change in the same way. At most one write is in
// flight per name (a SharePod and its child share one), so writes of one object never overtake each
// other.
//
// A decision reserves room until the pod is seen elsewhere, has ended or gone, or the API server
// has rejected it; while it is unknown whether a Binding was carried out, it counts as carried out.
// Children without their SharePod are deleted. A child that goes while its SharePod stays (evicted,
// preempted, refused by its kubelet, node drained; k8s/cluster/objects.h has the rule) is made
// again where there is room. Where its object stays, that is deleted first.
//
// Its parts: ObjectCache, ClusterTeams and ClusterView know the cluster, Rounds place what waits,
// Reconciler chooses the next write of a name, Retries and InFlight know how writes ended, status.h
// makes what users see.
//
// Pure: no I/O, no clock, no random numbers; the same calls give the same effects. Not thread safe.
#ifndef BATON_K8S_BINDER_CORE_H_
#define BATON_K8S_BINDER_CORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "devmgr/modes/mig_templates.h"
#include "devmgr/placement/cluster.h"
#include "devmgr/placement/queue.h"
#include "k8s/api/object.h"
#include "k8s/cluster/watched.h"

namespace baton::k8s {

struct CoreOptions : PodOptions {
  devmgr::PlacementPolicy policy;
  std::shared_ptr<const devmgr::MigTemplates> mig_templates;  // null: as built in
  // At least this long from one round of placement to the next; less after one that placed all that
  // waited. A round is made when something has changed.
  Duration round_interval = std::chrono::milliseconds(20);
  devmgr::RoundOptions round{.patience = 64};
  // The text of a waiting pod's condition is updated this often at most; another kind of reason is
  // shown at once.
  Duration say_again = std::chrono::seconds(10);
  uint32_t explain_per_step = 16;  // waiting pods
  // Pause after a write that failed, doubled each time.
  Duration retry_min = std::chrono::milliseconds(200);
  Duration retry_max = std::chrono::seconds(60);
  uint32_t evictions_max = 64;  // preempted pods that have not gone yet
  // A pod of which the API server refuses the eviction (a PodDisruptionBudget, a policy) is not
  // chosen to go again for so long.
  Duration spare_for = std::chrono::seconds(30);
};

enum class WriteKind : uint8_t {
  kStatus,        // PUT sharepods/status: body is the whole object, with its resourceVersion
  kTeamStatus,    // PUT teams/status, likewise
  kCreateChild,   // POST pods
  kBind,          // POST pods/binding
  kPatchPod,      // merge patch of metadata
  kPodCondition,  // strategic patch of pods/status
  kEvict,         // POST pods/eviction, only if it has this uid: RefusesEviction()
  kDeletePod,     // only if it has this uid, and the body's `resourceVersion`; its own grace period
  kSelectNode,    // merge patch of a PersistentVolumeClaim, `claim`: where its volume is to be made
};

struct Write {
  uint64_t id = 0;
  WriteKind kind = WriteKind::kStatus;
  ObjectName name;
  std::string uid;
  std::string claim;  // kSelectNode: its name, in the namespace of `name`
  Json body;
};

// An Event about an object.
struct Note {
  Json about;
  bool warning = false;
  std::string reason;
  std::string action;
  std::string text;
};

struct Effects {
  std::vector<Write> writes;
  std::vector<Note> notes;
};

// How a Write ended: `object` is the API server's answer where it was carried out.
struct WriteResult {
  uint64_t id = 0;
  bool done = false;
  Json object;
  ApiError error;
  // It failed, and a GET says that there is no such pod, or that another has its name. A 404 alone
  // may be about a namespace, a webhook or a path of the API.
  bool missing = false;
};

struct CoreNow {
  Instant at;
  int64_t unix_s = 0;  // for people to read in conditions
};

struct CoreCounts {
  uint64_t rounds = 0;
  uint64_t decided = 0;
  uint64_t bound = 0;
  uint64_t displaced = 0;
  uint64_t conflicts = 0;
  uint64_t failures = 0;   // writes that were refused or got no answer, but for conflicts
  uint64_t waiting = 0;    // now
  uint64_t placed = 0;     // now: pods that are booked
  uint64_t in_flight = 0;  // now: writes
  uint64_t unbooked = 0;   // now: bound pods that could not be booked
};

class Core {
 public:
  explicit Core(CoreOptions options);
  ~Core();

  // Watch events. Only recorded; Step() acts on them.
  void Changed(Watched kind, Json object);
  void Gone(Watched kind, const Json& object);
  // All objects that existed at the start have been passed in; nothing is decided before, though
  // Step() keeps up with what was recorded.
  void Synced();
  void Done(WriteResult result);
  // What teams weigh and have used, as the central batond says; nothing: it is not known, and what
  // runs now is all that counts between teams.
  void SetStandings(devmgr::Standings standings);

  // Acts on all that was recorded. Returns what is to be written now.
  Effects Step(const CoreNow& now);
  // When Step() must be called even without new events; kNever.
  Instant next() const;

  const devmgr::Cluster& cluster() const;
  CoreCounts counts() const;
  // Pods and SharePods without a place, by reason as conditions have it; "Waiting": nobody has said
  // yet. O(pods).
  std::map<std::string, uint64_t> Pending() const;
  // Sentences about damaged objects and rejected writes since the last call.
  std::vector<std::string> TakeTroubles();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_CORE_H_
