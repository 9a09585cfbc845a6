#include "k8s/binder/reconciler.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "spec/modes.h"

namespace baton::k8s {
namespace {

// It asks PodDisruptionBudgets, and the API server adds the condition DisruptionTarget, by which
// controllers (podFailurePolicy of Jobs) know why the pod ends.
Json EvictionOf(const ObjectName& name, const std::string& uid) {
  return {{"apiVersion", "policy/v1"},
          {"kind", "Eviction"},
          {"metadata", {{"name", name.name}, {"namespace", name.name_space}}},
          {"deleteOptions", {{"preconditions", {{"uid", uid}}}}}};
}

// So late a watch may be with a SharePod whose child has been seen. Kubernetes' own collector
// deletes children of SharePods that are gone within seconds, and asks the API server before.
constexpr Duration kOwnerUnseen = std::chrono::minutes(10);

// So long a node may take to make what a pod gets of its GPU.
constexpr Duration kMaking = std::chrono::seconds(60);

// What a pod's limits say of Baton's own resources. Others may be added to a pod by others.
std::pair<uint64_t, uint64_t> LimitsOf(const std::map<std::string, uint64_t>& resources) {
  const auto of = [&](std::string_view resource) {
    const auto found = resources.find(std::string(resource));
    return found == resources.end() ? 0 : found->second;
  };
  return {of(kShareResource), of(kMemoryResource)};
}

}  // namespace

bool Reconciler::HoldsRoom(const Entry& entry) const {
  if (p_.in_flight.Has(entry.key)) return true;
  if (entry.IsWanted() && p_.assumed.IsFor(entry.key, entry.uid())) return true;
  const std::string& bound = p_.in_flight.MayBeBound(entry.key);
  return !bound.empty() && entry.pod && entry.pod->uid == bound && entry.pod->end == PodEnd::kNone;
}

void Reconciler::ReleaseOutdated(const Entry& entry) {
  const std::string& key = entry.key;
  if (!p_.assumed.Has(key) || !p_.in_flight.MayBeBound(key).empty()) return;
  if (!p_.assumed.IsCurrent(key, entry.request()) ||
      !p_.view.WhyOff(entry.needs(), p_.assumed.PlaceOf(key).node).empty()) {
    p_.assumed.Release(key);
  } else {
    static_cast<void>(p_.assumed.Rebook(entry.request()));
  }
}

void Reconciler::Reconcile(Entry& entry, const CoreNow& now) {
  now_ = now;
  const std::string& key = entry.key;
  if (p_.assumed.Has(key) && !HoldsRoom(entry)) p_.assumed.Release(key);
  if (p_.in_flight.Has(key)) {
    // Nor is a place decided for a pod that is to be made anew.
    if (!entry.IsWanted() || IsOfBefore(entry)) p_.rounds.Withdraw(key);
    return;
  }
  const bool waited = p_.rounds.Withdraw(key);
  p_.resizes.Withdraw(key);
  if (const Instant at = p_.retries.at(key); now.at < at) {
    p_.queue.AddAt(at, key);
    return;
  }
  if (DeleteUnwanted(entry)) return;
  if (entry.share && !entry.share->deleting) {
    ReconcileSharePod(entry, waited);
  } else if (entry.pod && entry.pod->owner.empty() && !entry.share) {
    ReconcilePod(entry, waited);
  } else if (!entry.pod && !entry.share) {
    Forget(std::string(key));
  }
}

void Reconciler::ForgetGone(const Entry& entry) {
  if (entry.pod || entry.share || p_.in_flight.Has(entry.key)) return;
  if (p_.assumed.Has(entry.key)) p_.assumed.Release(entry.key);
  Forget(std::string(entry.key));
}

void Reconciler::Forget(const std::string& key) {
  p_.assumed.Forget(key);
  p_.in_flight.Forget(key);
  p_.retries.Forget(key);
  p_.reasons.Forget(key);
  p_.rounds.Forget(key);
  p_.replacements.Forget(key);
  unowned_.erase(key);
  making_.erase(key);
  p_.objects.Erase(key);
}

bool Reconciler::IsOrphan(const Entry& entry) {
  const Pod& pod = *entry.pod;
  if (pod.owner.empty() || p_.objects.LeavesChild(pod.owner)) return false;
  if (entry.share && entry.share->uid == pod.owner) {
    unowned_.erase(entry.key);
    return entry.share->deleting;
  }
  if (p_.objects.HasGone(pod.owner)) return true;
  auto& [uid, since] = unowned_[entry.key];
  if (uid != pod.uid) {
    uid = pod.uid;
    since = now_.at;
  }
  if (now_.at >= since + kOwnerUnseen) return true;
  p_.queue.AddAt(since + kOwnerUnseen, entry.key);
  return false;
}

bool Reconciler::DeleteUnwanted(const Entry& entry) {
  if (!entry.pod || entry.pod->deleting) return false;
  const Pod& pod = *entry.pod;
  const bool orphan = IsOrphan(entry);
  const Preemptions& preemptions = p_.rounds.preemptions();
  // A victim that has ended has no room to give.
  const bool victim = preemptions.IsVictim(entry.key, pod.uid) && pod.takes_room;
  if (!orphan && !victim) return false;
  if (!orphan) {
    p_.in_flight.Send(entry.name, WriteKind::kEvict, pod.uid, EvictionOf(entry.name, pod.uid));
    return true;
  }
  // Only as it was seen: it may have been made a pod of its own since.
  p_.in_flight.Send(entry.name, WriteKind::kDeletePod, pod.uid, {{"resourceVersion", pod.version}});
  return true;
}

bool Reconciler::IsRejected(const Entry& entry) {
  if (!p_.retries.IsRejected(entry.key)) return false;
  p_.reasons.Set(entry.key, p_.retries.rejection(entry.key));
  const Instant until = p_.retries.rejected_until(entry.key);
  if (now_.at < until) p_.queue.AddAt(until, entry.key);
  return now_.at < until;
}

void Reconciler::AwaitRoom(const Entry& entry, bool waited) {
  if (!IsRejected(entry)) p_.rounds.Await(entry, waited);
}

void Reconciler::ReconcilePod(const Entry& entry, bool waited) {
  const std::string& key = entry.key;
  const Pod& pod = *entry.pod;
  if (!pod.node.empty()) {
    if (!pod.takes_room || pod.deleting) return;
    const bool in_doubt = p_.in_flight.IsInDoubt(key, pod.uid);
    if (!pod.wrong.empty()) {
      SendResize(entry, p_.resizes.Reject(entry, pod.wrong, in_doubt));
    } else if (pod.gpu.asks()) {
      GpuPod wanted = pod.gpu;
      ReleaseEnded(pod.ended, wanted.request);
      SendResize(entry, p_.resizes.Reconcile(entry, wanted, nullptr, in_doubt,
                                             p_.rounds.preemptions().KeptFrom(entry)));
    }
    return;
  }
  if (!pod.ours || pod.deleting || !pod.gates.empty() || !pod.takes_room) return;
  if (!p_.assumed.Has(key) && pod.prepared && !p_.retries.IsRejected(key) &&
      VolumesAllow(entry, pod.prepared->node) && p_.resizes.Allows(entry, *pod.prepared)) {
    // What was decided before a restart goes on, where there is room still.
    p_.assumed.Restore(pod.request, *pod.prepared, pod.uid);
  }
  ReleaseOutdated(entry);
  if (p_.assumed.Has(key)) {
    Bind(entry, pod, pod.gpu);
    return;
  }
  if (TakeBackDevices(entry, pod)) return;
  if (!pod.wrong.empty()) {
    p_.reasons.Set(key, {"Invalid", pod.wrong});
  } else {
    AwaitRoom(entry, waited);
  }
  ShowReason(entry);
  SendCondition(entry, pod);
}

void Reconciler::SendCondition(const Entry& entry, const Pod& pod) {
  const Reason& shown = p_.reasons.shown(entry.key);
  if (shown.kind.empty()) return;
  if (auto patch = UnschedulablePatch(pod, shown, now_.unix_s)) {
    p_.in_flight.Send(entry.name, WriteKind::kPodCondition, pod.uid, *std::move(patch));
  }
}

namespace {

constexpr const char* kWaitingForScheduler = "WaitingForScheduler";
constexpr const char* kSchedulingGated = "SchedulingGated";

// Why a pod that another scheduler places has no node yet.
Reason WhatItsSchedulerSays(const Pod& child) {
  const Json* list = Find(child.object, "status/conditions");
  if (list != nullptr && list->is_array()) {
    for (const Json& condition : *list) {
      if (TextAt(condition, "type") != "PodScheduled") continue;
      const std::string reason = TextAt(condition, "reason");
      if (!reason.empty()) return {reason, TextAt(condition, "message")};
    }
  }
  return {kWaitingForScheduler,
          "waiting for scheduler " + TextAt(child.object, "spec/schedulerName")};
}

}  // namespace

bool Reconciler::PlaceSharePod(const Entry& entry, const Pod* child, const Pod* gone, bool waited) {
  const std::string& key = entry.key;
  const Share& share = *entry.share;
  if (gone != nullptr) {
    p_.reasons.Set(key, {"PodGone", WhyGone(*gone)});
    return false;
  }
  const bool taken = p_.view.foreign().Has(key);
  if (taken || (entry.pod && child == nullptr)) {
    p_.reasons.Set(
        key, {"NameTaken",
              !taken && entry.pod->deleting
                  ? fmt::format("the previous pod {} has not ended yet", key)
                  : fmt::format("a pod {} exists that does not belong to this SharePod; delete the "
                                "pod or rename the SharePod",
                                key)});
    return false;
  }
  // Where the child is bound or ends there is nothing to decide.
  if (child != nullptr &&
      (child->end != PodEnd::kNone || child->deleting || !child->node.empty())) {
    return false;
  }
  if (!share.wrong.empty()) {
    p_.reasons.Set(key, {"Invalid", share.wrong});
    return false;
  }
  if (!share.child_wrong.empty()) {
    p_.reasons.Set(key, {"Invalid", "its pod was created with " + share.child_wrong});
    return true;
  }
  if (share.foreign) {
    p_.reasons.Set(key, child != nullptr ? WhatItsSchedulerSays(*child)
                                         : Reason{kWaitingForScheduler, "its pod is created next"});
    if (child == nullptr) static_cast<void>(IsRejected(entry));
    return true;
  }
  if (!entry.gates().empty()) {
    // Whoever opens them wants to see its pod first.
    p_.reasons.Set(key, {kSchedulingGated, fmt::format("waiting for scheduling gates to open: {}",
                                                       fmt::join(entry.gates(), ", "))});
    if (child == nullptr) static_cast<void>(IsRejected(entry));
    return true;
  }
  if (!p_.assumed.Has(key) && share.placement && !(child == nullptr && share.was_bound) &&
      !p_.retries.IsRejected(key) && VolumesAllow(entry, share.placement->node) &&
      p_.resizes.Allows(entry, *share.placement)) {
    // What was decided before a restart goes on, where there is room still.
    p_.assumed.Restore(share.request, *share.placement, share.uid);
  }
  ReleaseOutdated(entry);
  if (p_.assumed.Has(key)) return false;
  AwaitRoom(entry, waited);
  return true;
}

void Reconciler::ReconcileSharePod(const Entry& entry, bool waited) {
  const std::string& key = entry.key;
  const Share& share = *entry.share;
  const Pod* child = entry.pod && entry.pod->owner == share.uid ? &*entry.pod : nullptr;
  // One that is gone counts no more, but has the name until its object goes.
  const Pod* gone = child != nullptr && child->end == PodEnd::kGone ? child : nullptr;
  if (gone != nullptr) child = nullptr;
  if (child != nullptr && ReplaceOutdated(entry, *child)) return;
  if (child == nullptr && share.finished) return;
  const bool waits = PlaceSharePod(entry, child, gone, waited);
  const bool bound = child != nullptr && !child->node.empty();
  const bool assumed = p_.assumed.Has(key);
  // A rejected one is tried again; until that has ended nothing has changed for those who look.
  const bool again = assumed && p_.retries.IsRejected(key);
  if ((!assumed || again) && !bound) {
    ShowReason(entry);
  } else {
    p_.reasons.Forget(key);
  }
  // Of one that has just come there is nothing to say yet.
  if (waits && p_.reasons.shown(key).kind.empty() && !share.placement && !share.was_bound) return;
  if (bound && child->end == PodEnd::kNone && !child->deleting) {
    const bool in_doubt = p_.in_flight.IsInDoubt(key, child->uid);
    GpuPod wanted = share.gpu;
    ReleaseEnded(child->ended, wanted.request);
    if (SendResize(entry, share.wrong.empty()
                              ? p_.resizes.Reconcile(entry, wanted, &share, in_doubt,
                                                     p_.rounds.preemptions().KeptFrom(entry))
                              : p_.resizes.Reject(entry, share.wrong, in_doubt))) {
      return;
    }
  }
  if (SendStatus(entry, child)) return;
  if (child != nullptr && !assumed && TakeBackDevices(entry, *child)) return;
  if (gone != nullptr) {
    DeleteLost(entry, *gone);
  } else if (assumed) {
    SendChild(entry, child);
  } else if (waits && !entry.pod &&
             (share.foreign || !share.gates.empty() || p_.rounds.NeedsChildFirst(key)) &&
             now_.at >= p_.retries.rejected_until(key)) {
    p_.in_flight.Send(entry.name, WriteKind::kCreateChild, "", MakeChild(p_.options, share));
  } else if (waits && child != nullptr && !share.foreign && child->gates.empty()) {
    SendCondition(entry, *child);
  }
}

bool Reconciler::SendResize(const Entry& entry, std::optional<Json> patch) {
  if (!patch) return false;
  Patch(entry, *std::move(patch));
  return true;
}

bool Reconciler::SendStatus(const Entry& entry, const Pod* child) {
  const std::string& key = entry.key;
  const Share& share = *entry.share;
  const bool rejected = p_.retries.IsRejected(key);
  SharePodFacts facts{.share = share,
                      .child = child,
                      .cluster = p_.view.cluster(),
                      .placement = std::nullopt,
                      .assumed = p_.assumed.Has(key) && !rejected,
                      .reason = p_.reasons.shown(key),
                      .resize = p_.resizes.WhyNot(key)};
  const bool bound = child != nullptr && !child->node.empty();
  // That of a pod from before is none of its own.
  if (bound ? p_.assumed.HasPlace(key) : facts.assumed) {
    facts.placement = p_.assumed.PlaceOf(key);
  } else if (bound) {
    facts.placement = child->placement;
  }
  Json status = SharePodStatus(facts, now_.unix_s);
  const Json* before = Find(share.object, "status");
  if (before != nullptr && *before == status) return false;
  Json body = share.object;
  body["status"] = std::move(status);
  p_.in_flight.Send(entry.name, WriteKind::kStatus, share.uid, std::move(body));
  return true;
}

void Reconciler::SendChild(const Entry& entry, const Pod* child) {
  const Share& share = *entry.share;
  if (!share.wrong.empty()) {
    // Its Binding may have been carried out before it became wrong: now that is made certain.
    if (child != nullptr) Bind(entry, *child, child->gpu);
  } else if (child == nullptr) {
    p_.in_flight.Send(entry.name, WriteKind::kCreateChild, "", MakeChild(p_.options, share));
  } else if (auto changes = ChangesOfChild(share, child->object)) {
    Patch(entry, *std::move(changes));
  } else {
    Bind(entry, *child, share.gpu);
  }
}

void Reconciler::Bind(const Entry& entry, const Pod& pod, const GpuPod& gpu) {
  if (p_.in_flight.IsInDoubt(entry.key, pod.uid) && p_.retries.IsRejected(entry.key)) {
    // A patch of nothing: its answer says whether it is on a node.
    Patch(entry, Json::object());
    return;
  }
  devmgr::Placement to = p_.assumed.PlaceOf(entry.key);
  if (!HasVolumes(entry, to) || !HasDevices(entry, pod, gpu, to)) return;
  Json annotations = Json::object();
  if (gpu.asks()) {
    for (auto& [key, value] : PlacementAnnotations(gpu, to, pod.gpu)) annotations[key] = value;
  }
  Json body{{"apiVersion", "v1"},
            {"kind", "Binding"},
            {"metadata",
             {{"name", entry.name.name},
              {"namespace", entry.name.name_space},
              {"uid", pod.uid},
              {"annotations", std::move(annotations)}}},
            {"target", {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", to.node}}}};
  p_.in_flight.SendBinding(entry.name, pod.uid, p_.assumed.PlaceOf(entry.key), std::move(body));
}

bool Reconciler::HasDevices(const Entry& entry, const Pod& pod, const GpuPod& gpu,
                            devmgr::Placement& to) {
  if (!HasParts(to)) return true;
  const std::string& key = entry.key;
  if (!pod.prepared || !SameParts(*pod.prepared, to)) {
    Json patch;
    patch["metadata"]["labels"][PodKey(keys::kMakesDevices)] = LabelOfNode(to.node);
    patch["metadata"]["annotations"][PodKey(keys::kPlacement)] = PlacementText(gpu, to);
    Patch(entry, std::move(patch));
    return false;
  }
  const auto there = p_.devices.find(to.node);
  size_t parts = 0, made = 0;
  for (size_t i = 0; i < gpu.containers.size(); ++i) {
    size_t at = 0;
    for (devmgr::Vgpu& vgpu : to.vgpus) {
      if (vgpu.container != i || spec::ByToken(vgpu.mode)) continue;
      ++parts;
      if (there == p_.devices.end()) continue;
      const auto devices = there->second.find(TicketOf(pod.uid, gpu.containers[i].name));
      if (devices == there->second.end() || at == devices->second.size()) continue;
      vgpu.device = devices->second[at++];
      ++made;
    }
  }
  if (made == parts) {
    making_.erase(key);
    return true;
  }
  auto& [node, since] = making_[key];
  if (std::exchange(node, to.node) != to.node) since = now_.at;
  if (now_.at < since + kMaking) {
    p_.queue.AddAt(since + kMaking, key);
    return false;
  }
  making_.erase(key);
  // A Binding that was sent named what had been made.
  if (!p_.in_flight.MayBeBound(key).empty()) return false;
  p_.assumed.Release(key);
  p_.retries.Reject(key,
                    {"DevicesNotMade",
                     fmt::format("node {} has not made the pod's part of a GPU for {} s; see the "
                                 "pod's Events, and the log of batond there",
                                 to.node, Nanos(kMaking) / 1'000'000'000)},
                    now_.at);
  p_.queue.Add(key);
  return false;
}

bool Reconciler::TakeBackDevices(const Entry& entry, const Pod& pod) {
  making_.erase(entry.key);
  // One that has a node, or may have by now, keeps what it says.
  if (!pod.says_devices || pod.deleting || !pod.node.empty() ||
      !p_.in_flight.MayBeBound(entry.key).empty()) {
    return false;
  }
  Patch(entry, {{"metadata",
                 {{"labels", {{PodKey(keys::kMakesDevices), nullptr}}},
                  {"annotations", {{PodKey(keys::kPlacement), nullptr}}}}}});
  return true;
}

void Reconciler::DevicesMade(const std::string& node) {
  for (const auto& [key, waits] : making_) {
    if (waits.first == node) p_.queue.Add(key);
  }
}

bool Reconciler::VolumesAllow(const Entry& entry, const std::string& node) const {
  if (entry.needs().claims.empty()) return true;
  const auto needs = p_.objects.ResolvedNeeds(entry);
  return needs && p_.view.WhyOff(*needs, node).empty();
}

bool Reconciler::HasVolumes(const Entry& entry, const devmgr::Placement& to) {
  // A Binding that was sent had them.
  if (entry.needs().claims.empty() || !p_.in_flight.MayBeBound(entry.key).empty()) return true;
  // The claims may say something else since the decision: that is made again.
  if (!VolumesAllow(entry, to.node)) {
    p_.assumed.Release(entry.key);
    p_.queue.Add(entry.key);
    return false;
  }
  const Volumes::Missing missing = p_.objects.MissingVolume(entry, to.node);
  if (missing.claim.empty()) return true;
  p_.rounds.AwaitVolumes(entry.key);
  if (missing.tell) p_.in_flight.SendSelectedNode(entry.name, missing.claim, to.node);
  return false;
}

namespace {

bool HasOtherTemplate(const Share& share, const Pod& child) {
  return !child.template_hash.empty() && child.template_hash != share.template_hash;
}

}  // namespace

bool Reconciler::IsOfBefore(const Entry& entry) const {
  if (!entry.share || !entry.pod || entry.pod->owner != entry.share->uid) return false;
  const Share& share = *entry.share;
  const Pod& child = *entry.pod;
  if (child.deleting || child.end != PodEnd::kNone || !share.has_child) return false;
  // Limits of a pod cannot change. One that is on no node yet is made anew with those that it
  // needs.
  return HasOtherTemplate(share, child) ||
         (child.node.empty() && p_.in_flight.MayBeBound(entry.key).empty() &&
          LimitsOf(child.request.resources) != LimitsOf(share.made.resources));
}

bool Reconciler::ReplaceOutdated(const Entry& entry, const Pod& child) {
  if (!IsOfBefore(entry)) return false;
  const bool other_template = HasOtherTemplate(*entry.share, child);
  const bool may_be_bound = !p_.in_flight.MayBeBound(entry.key).empty();
  if (p_.assumed.Has(entry.key) && !may_be_bound) p_.assumed.Release(entry.key);
  p_.events.Add(entry, false, other_template ? "TemplateChanged" : "LimitsChanged", "Replacing",
                other_template
                    ? "spec.template has changed; the pod is deleted and created again"
                    : "the request has changed before the pod had a place; the pod is created "
                      "again with new limits");
  p_.in_flight.Send(entry.name, WriteKind::kDeletePod, child.uid, Json());
  return true;
}

void Reconciler::Patch(const Entry& entry, Json patch) {
  patch["metadata"]["uid"] = entry.pod->uid;
  p_.in_flight.Send(entry.name, WriteKind::kPatchPod, entry.pod->uid, std::move(patch));
}

void Reconciler::DeleteLost(const Entry& entry, const Pod& gone) {
  if (gone.deleting) return;  // its kubelet does
  const Instant at = p_.replacements.DeleteAt(entry.key, gone.uid, now_.at);
  if (now_.at < at) {
    p_.queue.AddAt(at, entry.key);
    return;
  }
  p_.in_flight.Send(entry.name, WriteKind::kDeletePod, gone.uid, Json());
}

void Reconciler::ShowReason(const Entry& entry) {
  if (!p_.reasons.Show(entry.key, now_.at)) return;
  const Reason& shown = p_.reasons.shown(entry.key);
  if (shown == p_.retries.rejection(entry.key)) {
    p_.events.Add(entry, true, shown.kind, "Binding", shown.text);
  } else if (shown.kind == kWaitingForScheduler || shown.kind == kSchedulingGated) {
    return;  // nothing is wrong
  } else if (shown.kind == "PodGone") {
    p_.events.Add(entry, true, shown.kind, "Replacing", shown.text);
  } else {
    p_.events.Add(entry, true, "FailedScheduling", "Scheduling", shown.text);
  }
}

}  // namespace baton::k8s
