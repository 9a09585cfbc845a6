// The inside of the binder's core: what it knows of each name, and where its behaviour is.
//
//   core.cc         what is told, and the order of a step
//   core_settle.cc  what to do next for one name: decide, make the child, bind, delete
//   core_resize.cc  shares that change while the pod runs
//   core_rounds.cc  who of those that wait is placed, who goes for whom, why the others wait
//   core_status.cc  what is said: SharePods' status, pods' conditions, Events
//   core_writes.cc  writes on their way, and what follows from how they ended
//
// Inputs are recorded, and change only what is known of a name; the name is touched. A step settles
// each touched name: it looks at what is there, and does one thing that is missing. Who has no
// place waits, and a round tries all that wait.
#ifndef BATON_K8S_BINDER_CORE_IMPL_H_
#define BATON_K8S_BINDER_CORE_IMPL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "devmgr/queue.h"
#include "k8s/binder/cluster_view.h"
#include "k8s/binder/core.h"
#include "k8s/binder/graves.h"
#include "k8s/binder/objects.h"
#include "k8s/binder/priority_classes.h"
#include "k8s/binder/volumes.h"

namespace baton::k8s {

inline constexpr Instant kAlways = Instant::min();

// Bytes of a condition's message; the rest is cut off.
inline constexpr size_t kMessageMax = 1'000;
std::string Cut(std::string text);

// Whether the placement has the shares and memory that the request says now.
bool IsAsAsked(const devmgr::PodRequest& request, const devmgr::Placement& placement,
               const devmgr::Cluster& cluster);

class Core::Impl {
 public:
  using Placement = devmgr::Placement;
  using PodRequest = devmgr::PodRequest;

  // Why something waits.
  struct Why {
    std::string kind;  // CamelCase
    std::string text;
    friend bool operator==(const Why&, const Why&) = default;
  };

  // All that there is of one name: a SharePod and its child, or a pod. It is there while one of
  // them is, or a write is on its way.
  struct Entry {
    ObjectName name;
    std::string key;
    std::optional<Share> share;
    std::optional<Pod> pod;
    uint64_t on_its_way = 0;  // id of the write
    Write write;              // without its body
    std::string decided_for;  // uid of the SharePod or pod that its room was booked for
    Placement bind_to;        // of a Binding that is on its way
    Instant retry_at = kAlways;
    uint32_t failures = 0;
    bool stale = false;       // waits for a newer version
    std::string bind_uid;     // a Binding was sent for it and may have been carried out
    std::string doubt_uid;    // the answer to a Binding or patch of it is missing
    std::string deleted_uid;  // it was deleted
    std::string evict_uid;    // it has to go
    std::string evict_for;    // for this one
    std::string marked_uid;   // its condition says so
    bool waits = false;       // in `waiting`
    bool make_child = false;  // though it has no place: others would have to go for it
    bool learned = false;
    uint32_t passed_over = 0;
    Why why;    // now
    Why shown;  // what its condition says
    Instant shown_at = kAlways;
    Instant explained_at = kAlways;
    Why refusal;  // the API server does not take its child or Binding: its words
    uint32_t refusals = 0;
    Instant refused_until = kAlways;  // then it is tried again
    std::string resize;               // why it could not be resized
    std::optional<Instant> bound_at;  // when the pod was first seen on its node
    std::string gone_uid;             // of the pod that its node ended or refused
    Instant remove_at = kAlways;      // when that one is deleted
    uint32_t losses = 0;              // how many there were in a row that did not last
    std::string gang;                 // "namespace/word"
  };

  struct Told {
    Watched kind;
    bool gone;
    Json object;
  };

  // A pod for which others were sent away.
  struct Displacing {
    std::string node;
    std::map<std::string, std::string> victims;  // uids by key
  };

  // What the last round said of one that waits.
  struct Refused {
    Why why;
    PodNeeds needs;
  };

  explicit Impl(CoreOptions given)
      : options(std::move(given)), view(options.memory_unit_mib, options.policy) {}

  // ------------------------------------------------------------------------ core.cc: what is told

  Entry& At(const ObjectName& name);
  // To be settled in this step.
  void Touch(const std::string& key);
  void TouchAssumedOn(const std::string& node);

  void Hear(Told& told);
  void HearClass(const Told& told);
  void HearVolume(const Told& told);
  void PodChanged(Json object);
  void PodGone(const Json& object);
  void ShareChanged(Json object);
  void ShareGone(const Json& object);

  // Tells the view of the entry's pod.
  void Register(Entry& entry);
  void SetPriority(Share& share) const;
  // The entry's pod has gone, or its SharePod: what was true of that one only.
  void ForgetPod(Entry& entry);
  void ForgetShare(Entry& entry);
  // The one that is to be placed has gone.
  void ForgetWaiter(Entry& entry);
  // A newer version is there.
  static void Fresh(Entry& entry);
  // Keeps account of who is in which gang.
  void Join(Entry& entry);

  // ------------------------------------------------------------------------------ core.cc: steps

  void SettleTouched();
  Effects Step(const CoreNow& at);
  Instant Next() const;

  // ------------------------------------------------------------------------------ core_writes.cc

  void Send(Entry& entry, WriteKind kind, std::string uid, Json body);
  void Finish(WriteResult& result);
  void Succeeded(Entry& entry, WriteResult& result);
  // As the watch will show it.
  void Bound(Entry& entry);
  // A write's answer shows the pod as it is after what was in doubt.
  void EndDoubt(Entry& entry);
  void Failed(Entry& entry, const ApiError& error);
  Duration Backoff(uint32_t failures) const;
  // The API server does not want it as it is: a quota, a policy, a field. Others may have its room
  // until it is tried again, and it says so until then and while it is tried.
  void Refuse(Entry& entry, const char* kind, const ApiError& error);
  static void Accepted(Entry& entry);
  // True: not yet.
  bool IsRefused(Entry& entry);
  // The cache is behind; if nothing comes, it is tried again.
  void WaitForNewer(Entry& entry);

  // ------------------------------------------------------------------------------ core_settle.cc

  // Booked by a decision, and not seen on a node yet.
  bool IsAssumed(const Entry& entry) const;
  const Placement& PlaceOf(const Entry& entry) const;
  bool StandsInStatus(const Entry& entry) const;
  // Of the SharePod, or of the pod where there is none: of whom its room is.
  static const std::string& HolderOf(const Entry& entry);
  // Whether there is still somebody for whom what was decided counts.
  bool Holds(const Entry& entry) const;
  bool IsWanted(const Entry& entry) const;
  // What was decided is not what is asked for now, and nothing speaks against deciding again.
  bool IsOutdated(const Entry& entry, const PodRequest& request) const;

  void Settle(Entry& entry);
  void SettlePod(Entry& entry, Pod& pod);
  void SettleShare(Entry& entry, Share& share, Pod* pod);
  // Deletes a child that its node ended or refused, so that another can be made. It waits twice as
  // long for each one in a row: a node may refuse all that come, for ever.
  void Remove(Entry& entry, const Pod& gone);
  void Bind(Entry& entry, const Pod& pod, const GpuPod& gpu);
  void Patch(Entry& entry, const Pod& pod, Json patch);
  // It has no place: it takes part in the next round, if nothing is against that.
  void Await(Entry& entry, const PodNeeds& needs, const PodRequest& request, const GpuPod& gpu);
  void SetWaits(Entry& entry, bool waits);
  // It is one of the usual pods, by which places are chosen.
  void Learn(Entry& entry, const PodRequest& request);

  // ------------------------------------------------------------------------------ core_resize.cc

  // A pod that is on its node gets what it asks for now, if there is room. What it grows by is
  // booked before its annotations say so, what it shrinks by is free after they do. True: something
  // was sent.
  bool SettleBound(Entry& entry, const Pod& pod, const GpuPod& wanted,
                   const std::optional<std::reference_wrapper<const Json>>& share);
  // What it asks for now it cannot have: what was booked beyond what its annotations say is free
  // again. True: something was sent.
  bool Keep(Entry& entry, const Pod& pod);
  // The same place with the shares that are wanted now.
  Result<Placement> Resized(const PodRequest& wanted, Placement placement) const;
  // To those shares, where it is: all of its containers or none.
  Result<void> Resize(const Entry& entry, const Placement& to);

  // ------------------------------------------------------------------------------ core_status.cc

  Json StatusOf(const Entry& entry, const Share& share, const Pod* child) const;
  // What became of a child that is gone: a sentence.
  static std::string WhyGone(const Pod& gone);
  // ", GPU 0,1"; empty: it has none.
  std::string CardsText(const Placement& placement) const;
  // Takes over the reason into what is shown, where it is time.
  void Show(Entry& entry);
  // PodScheduled=False, as kube-scheduler writes it.
  void ShowOnPod(Entry& entry, const Pod& pod);
  // As kube-scheduler does, so that controllers (podFailurePolicy of Jobs) know why it ends. Where
  // it need not go after all, Kubernetes takes the condition back after two minutes.
  void MarkVictim(Entry& entry, const Pod& pod);
  // An Event about the pod, and one about its SharePod.
  void Tell(const Entry& entry, bool warning, std::string reason, std::string action,
            const std::string& text);

  // ------------------------------------------------------------------------------ core_rounds.cc

  // Of one that waits.
  const PodRequest& RequestOf(const Entry& entry) const;
  const PodNeeds& NeedsOf(const Entry& entry) const;
  const GpuPod& GpuOf(const Entry& entry) const;
  bool MayDisplace(const Entry& entry) const;

  void Round();
  void Displace(const devmgr::Proposal& proposal);
  // Those that need nobody to go any more.
  void PurgeDisplacing();
  // Who has not been told yet need not go, and no node is kept.
  void StopDisplacing(const std::string& pod);
  // Why it fits nowhere, node by node, as far as a condition has room for it.
  std::string Explain(const Entry& entry, const std::string& why, const PodNeeds& needs);
  // Works out why those wait that were refused, as many as one step may.
  void ExplainSome();

  // -------------------------------------------------------------------------------------- state

  const CoreOptions options;
  std::vector<std::variant<Told, WriteResult>> inbox;
  bool synced = false;

  // The cluster as it was told, with what was decided.
  ClusterView view;
  std::map<std::string, Entry> entries;
  std::map<std::string, std::set<std::string>> gangs;
  PriorityClasses classes;
  Volumes volumes;
  Graves graves;

  // Of the step that is made, or was the last.
  CoreNow now;
  Effects effects;
  bool waited = false;  // whether what is settled now waited before
  std::set<std::string> touched;

  // To be looked at again: at a time, as a write ends, as a volume changes, as room comes free.
  std::set<std::pair<Instant, std::string>> timers;
  std::map<uint64_t, std::string> ways;  // entries by the id of their write
  uint64_t last_id = 0;
  std::set<std::string> claimants;
  std::set<std::string> resizers;

  // Rounds.
  std::set<std::string> waiting;
  bool round_wanted = false;
  Instant last_round = kAlways;
  int32_t refused_priority = INT32_MIN;  // the highest of those that the last round refused
  std::vector<devmgr::Reservation> kept;
  std::map<std::string, Displacing> displacing;
  // To be explained, by when: first those that say nothing of the kind yet, then those that were
  // explained the longest ago.
  std::map<std::pair<Instant, std::string>, Refused> refused;

  // For those who look.
  std::vector<std::string> troubles;
  CoreCounts totals;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_CORE_IMPL_H_
