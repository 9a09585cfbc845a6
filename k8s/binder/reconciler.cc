#include "k8s/binder/reconciler.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "k8s/types/share_pod.h"

namespace baton::k8s {

bool Reconciler::HoldsRoom(const Entry& entry) const {
  if (p_.in_flight.Has(entry.key)) return true;
  if (entry.IsWanted() && p_.assumed.IsFor(entry.key, entry.uid())) return true;
  const std::string& bound = p_.in_flight.MayBeBound(entry.key);
  return !bound.empty() && entry.pod && entry.pod->uid == bound && entry.pod->end == PodEnd::kNone;
}

bool Reconciler::IsOutdated(const Entry& entry, const devmgr::PodRequest& request) const {
  return p_.assumed.Has(entry.key) && p_.in_flight.MayBeBound(entry.key).empty() &&
         !p_.assumed.IsCurrent(entry.key, request);
}

void Reconciler::Reconcile(Entry& entry, const CoreNow& now) {
  now_ = now;
  const std::string& key = entry.key;
  if (p_.assumed.Has(key) && !HoldsRoom(entry)) p_.assumed.Release(key);
  if (p_.in_flight.Has(key)) {
    if (!entry.IsWanted()) p_.rounds.Withdraw(key);
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

void Reconciler::Forget(const std::string& key) {
  p_.assumed.Forget(key);
  p_.in_flight.Forget(key);
  p_.retries.Forget(key);
  p_.reasons.Forget(key);
  p_.rounds.Forget(key);
  p_.replacements.Forget(key);
  p_.objects.Erase(key);
}

bool Reconciler::DeleteUnwanted(const Entry& entry) {
  if (!entry.pod || entry.pod->deleting) return false;
  const Pod& pod = *entry.pod;
  const bool has_owner = entry.share && !entry.share->deleting && entry.share->uid == pod.owner;
  const bool orphan = !pod.owner.empty() && !has_owner;
  const Preemptions& preemptions = p_.rounds.preemptions();
  // A victim that has ended has no room to give.
  const bool victim = preemptions.IsVictim(entry.key, pod.uid) && pod.takes_room;
  if (!orphan && !victim) return false;
  if (!orphan) {
    const std::string& preemptor = preemptions.PreemptorOf(entry.key);
    if (!preemptions.IsMarked(entry.key, pod.uid)) {
      p_.in_flight.Send(entry.name, WriteKind::kMarkVictim, pod.uid,
                        DisruptionTargetPatch(pod, p_.options.scheduler, preemptor, now_.unix_s));
      return true;
    }
    if (!preemptions.IsDeleted(entry.key, pod.uid)) {
      ++preempted_;
      p_.events.Add(entry, true, "Preempted", "Preempting",
                    fmt::format("preempted by {}, which has a higher priority", preemptor));
    }
  }
  p_.in_flight.Send(entry.name, WriteKind::kDeletePod, pod.uid, Json());
  return true;
}

void Reconciler::AwaitRoom(const Entry& entry, bool waited, Instant now) {
  if (p_.retries.IsRejected(entry.key)) {
    p_.reasons.Set(entry.key, p_.retries.rejection(entry.key));
    if (const Instant until = p_.retries.rejected_until(entry.key); now < until) {
      p_.queue.AddAt(until, entry.key);
      return;
    }
  }
  p_.rounds.Await(entry, waited);
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
      SendResize(entry, p_.resizes.Reconcile(entry, pod.gpu, nullptr, in_doubt));
    }
    return;
  }
  if (!pod.ours || pod.deleting || pod.gated || !pod.takes_room) return;
  if (IsOutdated(entry, pod.request)) p_.assumed.Release(key);
  if (p_.assumed.Has(key)) {
    Bind(entry, pod, pod.gpu);
    return;
  }
  if (!pod.wrong.empty()) {
    p_.reasons.Set(key, {"Invalid", pod.wrong});
  } else {
    AwaitRoom(entry, waited, now_.at);
  }
  ShowReason(entry);
  const Reason& shown = p_.reasons.shown(key);
  if (shown.kind.empty()) return;
  if (auto patch = UnschedulablePatch(pod, shown, now_.unix_s)) {
    p_.in_flight.Send(entry.name, WriteKind::kPodCondition, pod.uid, *std::move(patch));
  }
}

bool Reconciler::PlaceSharePod(const Entry& entry, const Pod* child, const Pod* gone, bool waited) {
  const std::string& key = entry.key;
  const Share& share = *entry.share;
  if (gone != nullptr) {
    p_.reasons.Set(key, {"PodGone", WhyGone(*gone)});
    return false;
  }
  if (entry.pod && child == nullptr) {
    p_.reasons.Set(
        key, {"NameTaken",
              entry.pod->deleting
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
  if (!p_.assumed.Has(key) && share.placement && !(child == nullptr && share.was_bound) &&
      !p_.retries.IsRejected(key)) {
    // What was decided before a restart goes on, where there is room still.
    p_.assumed.Restore(share.request, *share.placement, share.uid);
  }
  if (IsOutdated(entry, share.request)) p_.assumed.Release(key);
  if (p_.assumed.Has(key)) return false;
  AwaitRoom(entry, waited, now_.at);
  return true;
}

void Reconciler::ReconcileSharePod(Entry& entry, bool waited) {
  const std::string& key = entry.key;
  Share& share = *entry.share;
  const Pod* child = entry.pod && entry.pod->owner == share.uid ? &*entry.pod : nullptr;
  // One that is gone counts no more, but has the name until its object goes.
  const Pod* gone = child != nullptr && child->end == PodEnd::kGone ? child : nullptr;
  if (gone != nullptr) child = nullptr;
  // A child that is there keeps its limits, whatever the SharePod says since.
  const auto& resources = child != nullptr ? child->request.resources : share.resources;
  if (share.request.resources != resources) share.request.resources = resources;
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
    if (SendResize(entry, share.wrong.empty()
                              ? p_.resizes.Reconcile(entry, share.gpu, &share.object, in_doubt)
                              : p_.resizes.Reject(entry, share.wrong, in_doubt))) {
      return;
    }
  }
  if (SendStatus(entry, child)) return;
  if (gone != nullptr) {
    DeleteLost(entry, *gone);
  } else if (assumed) {
    SendChild(entry, child);
  } else if (p_.rounds.IsWaiting(key) && p_.rounds.NeedsChildFirst(key) && !entry.pod) {
    p_.in_flight.Send(entry.name, WriteKind::kCreateChild, "", *share.child);
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
  if (p_.assumed.HasPlace(key) && (bound || !rejected)) {
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
    p_.in_flight.Send(entry.name, WriteKind::kCreateChild, "", *share.child);
  } else if (auto changes = ChildChanges(share.object, child->object)) {
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
  const devmgr::Placement& to = p_.assumed.PlaceOf(entry.key);
  Json annotations = Json::object();
  if (gpu.asks()) {
    for (auto& [key, value] : PlacementAnnotations(gpu, to)) annotations[key] = value;
  }
  Json body{{"apiVersion", "v1"},
            {"kind", "Binding"},
            {"metadata",
             {{"name", entry.name.name},
              {"namespace", entry.name.name_space},
              {"uid", pod.uid},
              {"annotations", std::move(annotations)}}},
            {"target", {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", to.node}}}};
  p_.in_flight.SendBinding(entry.name, pod.uid, to, std::move(body));
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
  } else if (shown.kind == "PodGone") {
    p_.events.Add(entry, true, shown.kind, "Replacing", shown.text);
  } else {
    p_.events.Add(entry, true, "FailedScheduling", "Scheduling", shown.text);
  }
}

}  // namespace baton::k8s
