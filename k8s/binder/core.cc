#include "k8s/binder/core.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "devmgr/modes/modes.h"
#include "k8s/binder/cluster_teams.h"
#include "k8s/binder/in_flight.h"
#include "k8s/binder/reasons.h"
#include "k8s/binder/reconciler.h"
#include "k8s/binder/replacements.h"
#include "k8s/binder/resizes.h"
#include "k8s/binder/retries.h"
#include "k8s/binder/rounds.h"
#include "k8s/binder/status.h"
#include "k8s/cluster/assumed_pods.h"
#include "k8s/cluster/cluster_view.h"
#include "k8s/cluster/object_cache.h"
#include "k8s/cluster/work_queue.h"

namespace baton::k8s {
namespace {

// A deletion that was taken, and of which nothing was seen, is sent again after this long.
constexpr Duration kDeleteAgain = std::chrono::seconds(30);

}  // namespace

// Takes in what watches tell and how writes ended, keeps the parts up to date with it, and gives
// the order of a step. Every decision is made in the parts.
class Core::Impl {
 public:
  struct WatchEvent {
    Watched kind;
    bool gone;
    Json object;
  };

  explicit Impl(CoreOptions given) : options_(std::move(given)) {}

  template <class Input>
  void Push(Input input) {
    inbox_.emplace_back(std::in_place_type<Input>, std::move(input));
  }
  void SetSynced() {
    if (std::exchange(synced_, true)) return;
    objects_.QueueAll();
    queue_.RequestRound();
  }

  Effects Step(const CoreNow& now);
  Instant Next() const;

  const devmgr::Cluster& cluster() const { return view_.cluster(); }
  CoreCounts Counts() const;
  std::map<std::string, uint64_t> Pending() const;
  std::vector<std::string> TakeTroubles() { return std::exchange(troubles_, {}); }

 private:
  void ReconcileQueued();

  void OnWatchEvent(WatchEvent& event);
  void OnNode(const WatchEvent& event);
  void OnGpuNode(const WatchEvent& event);
  // Also for the answers to writes.
  void OnPod(Json object);
  void OnSharePod(Json object);

  void OnWriteResult(WriteResult& result);
  void OnSuccess(Entry& entry, const Write& write, Json object);
  void OnBound(Entry& entry, const Write& write);
  void TellScheduled(const Entry& entry);
  void OnEvicted(const Entry& entry, const Write& write);
  void OnFailure(const Entry& entry, const Write& write, const WriteResult& result);
  // A write's answer shows the pod as it is after what was in doubt.
  void ResolveDoubt(const Entry& entry, const Write& write);

  // Tells the view of the entry's pod.
  void SeePodInView(const Entry& entry);
  // The entry's pod has gone, or its SharePod, or both of them: what was true of that one only.
  void ForgetPod(const Entry& entry, const std::string& uid);
  void ForgetSharePod(const Entry& entry);
  void ForgetWaiter(const std::string& key);

  const CoreOptions options_;
  std::vector<std::variant<WatchEvent, WriteResult, devmgr::Standings>> inbox_;
  bool synced_ = false;
  bool decides_ = false;  // it is synced, and has booked what others decided before
  CoreNow now_;           // of the step that is made, or was the last
  std::vector<std::string> troubles_;
  uint64_t bound_ = 0;
  uint64_t preempted_ = 0;
  uint64_t conflicts_ = 0;
  uint64_t failures_ = 0;

  WorkQueue queue_;
  ObjectCache objects_{options_, queue_};
  const devmgr::ModeSet modes_{options_.mig_templates};
  ClusterView view_{options_.memory_unit_mib, options_.policy, modes_};
  std::map<std::string, MadeDevices> devices_;  // of nodes, as they tell
  AssumedPods assumed_{view_};
  InFlight in_flight_;
  Retries retries_{options_};
  Reasons reasons_{options_.say_again, queue_};
  Replacements replacements_{options_};
  EventQueue events_;
  ClusterTeams teams_{queue_, in_flight_};
  Resizes resizes_{objects_, teams_, view_, assumed_, queue_, events_};
  Rounds rounds_{
      {options_, modes_, objects_, teams_, view_, assumed_, queue_, reasons_, retries_, events_}};
  Reconciler reconciler_{{options_, objects_, view_, devices_, assumed_, queue_, in_flight_,
                          retries_, reasons_, rounds_, resizes_, replacements_, events_}};
};

void Core::Impl::OnWatchEvent(WatchEvent& event) {
  switch (event.kind) {
    case Watched::kNode:
      OnNode(event);
      break;
    case Watched::kGpuNode:
      OnGpuNode(event);
      break;
    case Watched::kPod:
      if (!event.gone) {
        OnPod(std::move(event.object));
      } else if (const std::string key = NameOf(event.object).Text(); view_.foreign().Has(key)) {
        view_.foreign().Remove(key);
        if (objects_.Find(key) != nullptr) queue_.Add(key);  // a SharePod that wants the name
      } else if (const Entry* entry = objects_.RemovePod(event.object)) {
        ForgetPod(*entry, UidOf(event.object));
      }
      break;
    case Watched::kSharePod:
      if (!event.gone) {
        OnSharePod(std::move(event.object));
      } else if (const Entry* entry = objects_.RemoveSharePod(event.object)) {
        ForgetSharePod(*entry);
      }
      break;
    case Watched::kPriorityClass:
      objects_.SetPriorityClass(event.object, event.gone);
      break;
    case Watched::kQuota:
      objects_.SetQuota(event.object, event.gone);
      break;
    case Watched::kTeam:
      event.gone ? teams_.Remove(event.object) : teams_.Set(std::move(event.object));
      break;
    case Watched::kClaim:
    case Watched::kVolume:
    case Watched::kStorageClass:
      objects_.SetVolume(event.kind, event.object, event.gone, now_.at);
      rounds_.VolumesChanged();
      break;
  }
}

void Core::Impl::OnNode(const WatchEvent& event) {
  if (!event.gone) {
    view_.SetNode(event.object);
    return;
  }
  const std::string name = TextAt(event.object, "metadata/name");
  view_.RemoveNode(name);
  for (const devmgr::PlacedPod* pod : view_.cluster().PodsOn(name)) queue_.Add(pod->request.name);
}

void Core::Impl::OnGpuNode(const WatchEvent& event) {
  const std::string name = TextAt(event.object, "metadata/name");
  devices_[name] = event.gone ? MadeDevices() : DevicesOn(event.object);
  if (event.gone) {
    view_.RemoveGpuNode(name);
  } else if (std::string trouble = view_.SetGpuNode(event.object); !trouble.empty()) {
    troubles_.push_back(std::move(trouble));
  }
  reconciler_.DevicesMade(name);
}

void Core::Impl::OnPod(Json object) {
  const std::string key = NameOf(object).Text();
  const auto [entry, replaced_uid, new_spec, foreign] =
      objects_.SetPod(std::move(object), &troubles_);
  if (foreign) {
    view_.foreign().Set(key, foreign->takes_room ? foreign->node : "", foreign->request);
    return;
  }
  if (entry == nullptr) return;
  view_.foreign().Remove(key);
  if (!replaced_uid.empty()) ForgetPod(*entry, replaced_uid);
  const Pod& pod = *entry->pod;
  if (pod.deleting) retries_.Now(entry->key);
  if (new_spec) queue_.RequestRound();
  if (pod.gpu.asks() && !pod.node.empty()) rounds_.Learn(entry->key, pod.request);
  SeePodInView(*entry);
  TellScheduled(*entry);
  retries_.NewerSeen(entry->key);
}

void Core::Impl::OnSharePod(Json object) {
  const auto [entry, replaced_uid, new_spec, foreign] =
      objects_.SetSharePod(std::move(object), &troubles_);
  if (entry == nullptr) return;
  if (!replaced_uid.empty()) ForgetSharePod(*entry);
  if (new_spec) {
    queue_.RequestRound();
    retries_.Accept(entry->key);
  }
  retries_.NewerSeen(entry->key);
}

void Core::Impl::SeePodInView(const Entry& entry) {
  const Pod& pod = *entry.pod;
  const bool bound = view_.IsBound(entry.key);
  view_.SetPod({entry.key, pod.node, pod.takes_room, pod.whole, pod.placement, pod.request});
  if (bound || !view_.IsBound(entry.key)) return;
  replacements_.OnBound(entry.key, now_.at);
  rounds_.PodBound(pod.request.priority);
}

void Core::Impl::ForgetPod(const Entry& entry, const std::string& uid) {
  view_.RemovePod(entry.key);
  in_flight_.ForgetPod(entry.key, uid);
  replacements_.ForgetPod(entry.key);
  resizes_.ForgetPod(entry.key);
  rounds_.preemptions().ForgetPod(entry.key);
  rounds_.ForgetObject(entry.key);
  retries_.Now(entry.key);
  if (!entry.share) ForgetWaiter(entry.key);
}

void Core::Impl::ForgetSharePod(const Entry& entry) {
  retries_.Now(entry.key);
  rounds_.ForgetObject(entry.key);
  ForgetWaiter(entry.key);
}

void Core::Impl::ForgetWaiter(const std::string& key) {
  reasons_.Forget(key);
  retries_.ForgetWaiter(key);
  replacements_.Forget(key);
  rounds_.ForgetWaiter(key);
}

void Core::Impl::OnWriteResult(WriteResult& result) {
  const std::optional<Write> write = in_flight_.Finish(result.id);
  if (!write) return;
  if (write->kind == WriteKind::kTeamStatus) return teams_.OnWriteResult(*write, result, now_.at);
  Entry* entry = objects_.Find(write->name.Text());
  if (entry == nullptr) return;
  queue_.Add(entry->key);
  if (result.done) {
    retries_.Succeeded(entry->key);
    OnSuccess(*entry, *write, std::move(result.object));
  } else {
    OnFailure(*entry, *write, result);
  }
}

void Core::Impl::OnSuccess(Entry& entry, const Write& write, Json object) {
  switch (write.kind) {
    case WriteKind::kStatus:
      OnSharePod(std::move(object));
      break;
    case WriteKind::kTeamStatus:
      break;  // no pod's
    case WriteKind::kCreateChild:
      retries_.Accept(entry.key);
      rounds_.ChildMade(entry.key);
      OnPod(std::move(object));
      break;
    case WriteKind::kPatchPod:
    case WriteKind::kPodCondition:
      OnPod(std::move(object));
      ResolveDoubt(entry, write);
      break;
    case WriteKind::kBind:
      retries_.Accept(entry.key);
      OnBound(entry, write);
      break;
    case WriteKind::kSelectNode:
      objects_.SetVolume(Watched::kClaim, object, false, now_.at);
      break;
    case WriteKind::kEvict:
      OnEvicted(entry, write);
      [[fallthrough]];
    case WriteKind::kDeletePod:
      // Where it has been seen to end there is nothing to wait for.
      if (!entry.pod || entry.pod->uid != write.uid || entry.pod->deleting) break;
      rounds_.preemptions().SetDeleted(entry.key, write.uid);
      retries_.SetAt(entry.key, now_.at + kDeleteAgain);
      break;
  }
}

void Core::Impl::OnBound(Entry& entry, const Write& write) {
  in_flight_.ClearBinding(entry.key);
  ++bound_;
  if (!entry.pod || entry.pod->uid != write.uid || !entry.pod->node.empty()) return;
  objects_.SetBound(entry, in_flight_.BindingTo(entry.key));
  SeePodInView(entry);
  TellScheduled(entry);
}

// The watch may show a pod on its node before the Binding's answer comes, or no answer comes at
// all.
void Core::Impl::TellScheduled(const Entry& entry) {
  if (entry.pod->node.empty() || !in_flight_.SetCarriedOut(entry.key, entry.pod->uid)) return;
  const devmgr::Placement& to = in_flight_.BindingTo(entry.key);
  const std::string gpus = GpuIndexes(to, view_.cluster());
  events_.Add(entry, false, "Scheduled", "Binding",
              "bound to node " + to.node + (gpus.empty() ? "" : ", GPU " + gpus));
}

void Core::Impl::OnEvicted(const Entry& entry, const Write& write) {
  const Preemptions& preemptions = rounds_.preemptions();
  const bool again = preemptions.IsDeleted(entry.key, write.uid);
  if (again || !preemptions.IsVictim(entry.key, write.uid)) return;
  ++preempted_;
  events_.Add(
      entry, true, "Preempted", "Preempting",
      "preempted by " + preemptions.PreemptorOf(entry.key) +
          (preemptions.IsReclaimed(entry.key) ? ", whose team is guaranteed what this pod borrowed"
                                              : ", which has a higher priority"));
}

void Core::Impl::ResolveDoubt(const Entry& entry, const Write& write) {
  if (!in_flight_.IsInDoubt(entry.key, write.uid)) return;
  in_flight_.ClearDoubt(entry.key);
  if (!entry.pod || entry.pod->uid != write.uid || !entry.pod->node.empty()) return;
  // No earlier Binding was carried out.
  in_flight_.ClearBinding(entry.key);
  if (retries_.IsRejected(entry.key)) assumed_.Release(entry.key);
}

void Core::Impl::OnFailure(const Entry& entry, const Write& write, const WriteResult& result) {
  const ApiError& error = result.error;
  const std::string& key = entry.key;
  const bool uncertain = IsUncertain(error);
  error.conflict() ? ++conflicts_ : ++failures_;
  if (write.kind == WriteKind::kBind) {
    if (uncertain) {
      in_flight_.SetInDoubt(key, write.uid);
    } else if (error.status != 409 && !in_flight_.IsInDoubt(key, write.uid)) {
      // An earlier one may have been carried out all the same.
      in_flight_.ClearBinding(key);
    }
  }
  const bool patches = write.kind == WriteKind::kPatchPod;
  if (patches && uncertain) in_flight_.SetInDoubt(key, write.uid);
  // It keeps the pod where it is: others are looked for.
  if (write.kind == WriteKind::kEvict && RefusesEviction(error, retries_.failures(key) + 1)) {
    rounds_.SpareVictim(key, write.uid, now_.at + options_.spare_for, error.message);
    // Of a budget that is no trouble.
    if (error.reason != kDisruptionBudget) troubles_.push_back(key + ": " + error.message);
    return;
  }
  const bool of_pod = write.kind == WriteKind::kBind || patches ||
                      write.kind == WriteKind::kPodCondition || write.kind == WriteKind::kEvict ||
                      write.kind == WriteKind::kDeletePod;
  if (of_pod && result.missing) {
    if (objects_.RemoveMissingPod(write.name, write.uid) != nullptr) ForgetPod(entry, write.uid);
    return;
  }
  const bool may_be_bound = !in_flight_.MayBeBound(key).empty();
  AfterFailure after = Classify(write.kind, error);
  if (after == AfterFailure::kReject) {
    // A child that may not say what is asked for now is not bound.
    if (patches && (!assumed_.Has(key) || may_be_bound)) after = AfterFailure::kRetry;
  }
  switch (after) {
    case AfterFailure::kRetry:
      retries_.Later(key, now_.at, error.retry_after);
      break;
    case AfterFailure::kWaitForNewer:
      // Somebody has changed the SharePod: what was decided is decided again with what it says now.
      if (write.kind == WriteKind::kStatus && error.conflict() && assumed_.Has(key) &&
          !may_be_bound &&
          !(entry.share && entry.share->placement &&
            *entry.share->placement == assumed_.PlaceOf(key))) {
        assumed_.Release(key);
      }
      retries_.WaitForNewer(key, now_.at);
      return;
    case AfterFailure::kReject:
      // Others may have its room until it is tried again.
      if (!may_be_bound) assumed_.Release(key);
      retries_.Reject(
          key, {write.kind == WriteKind::kBind ? "BindingRefused" : "ChildRefused", error.message},
          now_.at);
      break;
  }
  if (!uncertain) troubles_.push_back(key + ": " + error.message);
}

void Core::Impl::ReconcileQueued() {
  for (std::set<std::string> keys = queue_.Take(); !keys.empty(); keys = queue_.Take()) {
    // First those that have their node: whose team they are is known before others get its room.
    for (const bool bound : {true, false}) {
      for (const std::string& key : keys) {
        Entry* entry = objects_.Find(key);
        if (entry == nullptr || (entry->pod && !entry->pod->node.empty()) != bound) continue;
        reconciler_.Reconcile(*entry, now_);
      }
    }
  }
}

Effects Core::Impl::Step(const CoreNow& now) {
  now_ = now;
  for (auto& input : std::exchange(inbox_, {})) {
    if (Impl::WatchEvent* event = std::get_if<Impl::WatchEvent>(&input)) {
      OnWatchEvent(*event);
    } else if (auto* standings = std::get_if<devmgr::Standings>(&input)) {
      teams_.SetStandings(std::move(*standings));
    } else {
      OnWriteResult(std::get<WriteResult>(input));
    }
  }
  if (!synced_) {
    // A standby: it keeps up, and decides nothing.
    for (const std::string& key : queue_.Take()) {
      if (const Entry* entry = objects_.Find(key)) reconciler_.ForgetGone(*entry);
    }
    view_.Flush();
    return {{}, events_.Take()};
  }
  // What the leader before carried out until it ended is all that has been decided.
  if (!std::exchange(decides_, true)) view_.BookAsSeen();
  teams_.Settle();
  if (objects_.RetryVolumes(now.at)) rounds_.VolumesChanged();
  queue_.AddDue(now.at);
  if (view_.Flush()) queue_.RequestRound();
  ReconcileQueued();
  if (view_.Flush()) queue_.RequestRound();
  if (rounds_.RunIfDue(now.at)) {
    resizes_.QueueWaiting();
    ReconcileQueued();
    if (view_.Flush()) queue_.RequestRound();
  }
  rounds_.ExplainSome(now.at);
  ReconcileQueued();
  teams_.Reconcile(now);
  return {in_flight_.TakeSent(), events_.Take()};
}

Instant Core::Impl::Next() const {
  if (!synced_) return kNever;
  if (!inbox_.empty()) return now_.at;
  return std::min({queue_.next(), rounds_.next(now_.at), teams_.next(), objects_.next_retry()});
}

CoreCounts Core::Impl::Counts() const {
  CoreCounts counts;
  counts.rounds = rounds_.rounds();
  counts.decided = rounds_.placed();
  counts.bound = bound_;
  counts.displaced = preempted_;
  counts.conflicts = conflicts_;
  counts.failures = failures_;
  counts.waiting = rounds_.waiting().size();
  counts.placed = view_.cluster().pods().size();
  counts.in_flight = in_flight_.size();
  counts.unbooked = view_.troubles().size();
  return counts;
}

std::map<std::string, uint64_t> Core::Impl::Pending() const {
  std::map<std::string, uint64_t> pending = reasons_.Counts();
  for (const std::string& key : rounds_.waiting()) {
    if (reasons_.now(key).kind.empty()) ++pending["Waiting"];
  }
  return pending;
}

Core::Core(CoreOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Core::~Core() = default;

void Core::Changed(Watched kind, Json object) {
  impl_->Push(Impl::WatchEvent{kind, false, std::move(object)});
}
void Core::Gone(Watched kind, const Json& object) {
  impl_->Push(Impl::WatchEvent{kind, true, object});
}
void Core::Synced() { impl_->SetSynced(); }
void Core::Done(WriteResult result) { impl_->Push(std::move(result)); }
void Core::SetStandings(devmgr::Standings standings) { impl_->Push(std::move(standings)); }
Effects Core::Step(const CoreNow& now) { return impl_->Step(now); }
Instant Core::next() const { return impl_->Next(); }
const devmgr::Cluster& Core::cluster() const { return impl_->cluster(); }
CoreCounts Core::counts() const { return impl_->Counts(); }
std::map<std::string, uint64_t> Core::Pending() const { return impl_->Pending(); }
std::vector<std::string> Core::TakeTroubles() { return impl_->TakeTroubles(); }

}  // namespace baton::k8s
