// The binder's decisions: what stands in the cluster goes in, what is to be written comes out.
//
// It knows no intentions but those that stand in the cluster: for each pod and SharePod it looks at
// what there is and does the next thing that is missing, so it goes on after a restart, a lost
// answer or somebody else's change in the same way. One thing is on its way per name (a SharePod
// and its child have one), so writes of one object never overtake each other.
//
//   SharePod       decided -> status.placement -> child -> Binding -> conditions
//                  (its child comes first where others have to go for it)
//   pod            decided -> Binding with the placement as annotations
//
// What it decided stays booked from then on until the pod is seen elsewhere, has ended or gone, or
// the API server has refused; while it is unknown whether a Binding was carried out, it is taken
// that it was. Children without their SharePod are deleted. A child that goes while its SharePod
// stays (evicted, displaced, refused by its kubelet, node drained; k8s/binder/objects.h has the
// rule) is made again where there is room. Where its object stays, that is deleted first.
//
// Pure: no I/O, no clock, no random numbers; the same calls give the same effects. Not thread safe.
#ifndef BATON_K8S_BINDER_CORE_H_
#define BATON_K8S_BINDER_CORE_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "devmgr/cluster.h"
#include "devmgr/queue.h"
#include "k8s/api/object.h"
#include "k8s/types/annotations.h"
#include "k8s/types/inject.h"

namespace baton::k8s {

enum class Watched : uint8_t {
  kNode,
  kGpuNode,
  kPod,
  kSharePod,
  kPriorityClass,
  kClaim,   // PersistentVolumeClaim
  kVolume,  // PersistentVolume
};
inline constexpr size_t kWatchedKinds = 7;

struct CoreOptions {
  std::string scheduler{kScheduler};  // pods with this schedulerName are ours
  uint32_t memory_unit_mib = kMemoryUnitMib;
  devmgr::PlacementPolicy policy;
  InjectOptions inject;  // into children
  // Rounds are made when something has changed, and no closer to each other.
  Duration round_interval = std::chrono::milliseconds(20);
  devmgr::RoundOptions round{.patience = 64};
  // Why something waits is written again after this long, where it has changed; at once where the
  // kind of reason has.
  Duration say_again = std::chrono::seconds(10);
  uint32_t explain_per_step = 16;
  // After a write that failed: doubled each time.
  Duration retry_min = std::chrono::milliseconds(200);
  Duration retry_max = std::chrono::seconds(60);
  uint32_t evictions_max = 64;  // on their way at once
};

enum class WriteKind : uint8_t {
  kStatus,        // PUT sharepods/status: body is the whole object, with its resourceVersion
  kCreateChild,   // POST pods
  kBind,          // POST pods/binding
  kPatchPod,      // merge patch of metadata
  kPodCondition,  // strategic patch of pods/status
  kMarkVictim,    // strategic patch of pods/status: condition DisruptionTarget
  kDeletePod,     // only if it has this uid; its own grace period
};

struct Write {
  uint64_t id = 0;
  WriteKind kind = WriteKind::kStatus;
  ObjectName name;
  std::string uid;
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
  uint64_t failures = 0;  // writes that were refused or got no answer, but for conflicts
  uint64_t waiting = 0;   // now
  uint64_t placed = 0;    // now: pods that are booked
  uint64_t on_their_way = 0;
  uint64_t unbooked = 0;  // now: bound pods that could not be booked
};

class Core {
 public:
  explicit Core(CoreOptions options);
  ~Core();

  // What watches tell. Only recorded; acted on by Step().
  void Changed(Watched kind, Json object);
  void Gone(Watched kind, const Json& object);
  // Everything that there was at the start has been told; nothing is decided before.
  void Synced();
  void Done(WriteResult result);

  // Does what there is to do now.
  Effects Step(const CoreNow& now);
  // When Step() is to be called even if nothing is told meanwhile; kNever.
  Instant next() const;

  const devmgr::Cluster& cluster() const;
  CoreCounts counts() const;
  // Sentences about what is wrong with the cluster's objects, since the last call.
  std::vector<std::string> TakeTroubles();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_CORE_H_
