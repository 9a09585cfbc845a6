// What to do next for one name, by what there is of it.
#include <fmt/format.h>

#include <utility>

#include "k8s/binder/core_impl.h"
#include "k8s/types/share_pod.h"

namespace baton::k8s {

bool Core::Impl::IsAssumed(const Entry& entry) const {
  return view.IsBooked(entry.key) && !view.IsBound(entry.key);
}

const devmgr::Placement& Core::Impl::PlaceOf(const Entry& entry) const {
  return view.cluster().Find(entry.key)->placement;
}

bool Core::Impl::StandsInStatus(const Entry& entry) const {
  return entry.share && entry.share->placement && *entry.share->placement == PlaceOf(entry);
}

const std::string& Core::Impl::HolderOf(const Entry& entry) {
  return entry.share ? entry.share->uid : entry.pod->uid;
}

bool Core::Impl::Holds(const Entry& entry) const {
  if (entry.on_its_way != 0) return true;
  if (IsWanted(entry) && HolderOf(entry) == entry.decided_for) return true;
  return !entry.bind_uid.empty() && entry.pod && entry.pod->uid == entry.bind_uid &&
         entry.pod->end == PodEnd::kNone;
}

bool Core::Impl::IsWanted(const Entry& entry) const {
  const Pod* pod = entry.pod ? &*entry.pod : nullptr;
  if (entry.share && !entry.share->deleting) {
    if (entry.share->finished || !entry.share->wrong.empty()) return false;
    return pod == nullptr ||
           (pod->owner == entry.share->uid && !pod->deleting && pod->end == PodEnd::kNone);
  }
  return pod != nullptr && pod->owner.empty() && pod->ours && pod->takes_room && !pod->deleting &&
         !pod->gated && pod->wrong.empty();
}

bool Core::Impl::IsOutdated(const Entry& entry, const PodRequest& request) const {
  return IsAssumed(entry) && entry.bind_uid.empty() &&
         (!IsAsAsked(request, PlaceOf(entry), view.cluster()) ||
          !view.HasNode(PlaceOf(entry).node));
}

void Core::Impl::Settle(Entry& entry) {
  if (IsAssumed(entry) && !Holds(entry)) view.Release(entry.key);
  if (entry.on_its_way != 0) {
    if (!IsWanted(entry)) SetWaits(entry, false);
    return;
  }
  waited = entry.waits;
  SetWaits(entry, false);
  claimants.erase(entry.key);
  resizers.erase(entry.key);
  if (now.at < entry.retry_at) {
    timers.emplace(entry.retry_at, entry.key);
    return;
  }
  Pod* pod = entry.pod ? &*entry.pod : nullptr;
  Share* share = entry.share && !entry.share->deleting ? &*entry.share : nullptr;
  if (pod != nullptr && !pod->deleting) {
    const bool orphan = !pod->owner.empty() && (share == nullptr || share->uid != pod->owner);
    // One that has ended has no room to give.
    const bool victim = entry.evict_uid == pod->uid && pod->takes_room;
    if (orphan || victim) {
      if (!orphan && entry.marked_uid != pod->uid) {
        MarkVictim(entry, *pod);
        return;
      }
      if (entry.deleted_uid != pod->uid && !orphan) {
        ++totals.displaced;
        Tell(entry, true, "Preempted", "Preempting",
             fmt::format("deleted to make room for {}, which has a higher priority",
                         entry.evict_for));
      }
      Send(entry, WriteKind::kDeletePod, pod->uid, Json());
      return;
    }
  }
  if (share != nullptr) {
    SettleShare(entry, *share, pod);
  } else if (pod != nullptr && pod->owner.empty() && !entry.share) {
    SettlePod(entry, *pod);
  } else if (pod == nullptr && !entry.share) {
    entries.erase(entry.key);
  }
}

void Core::Impl::SettlePod(Entry& entry, Pod& pod) {
  if (!pod.node.empty()) {
    if (!pod.takes_room || pod.deleting) return;
    if (!pod.wrong.empty()) {
      Keep(entry, pod);
    } else if (pod.gpu.asks()) {
      SettleBound(entry, pod, pod.gpu, std::nullopt);
    }
    return;
  }
  if (!pod.ours || pod.deleting || pod.gated || !pod.takes_room) return;
  if (IsOutdated(entry, pod.request)) view.Release(entry.key);
  if (IsAssumed(entry)) {
    Bind(entry, pod, pod.gpu);
    return;
  }
  if (!pod.wrong.empty()) {
    entry.why = {"Invalid", pod.wrong};
  } else if (!IsRefused(entry)) {
    Await(entry, pod.needs, pod.request, pod.gpu);
  }
  Show(entry);
  ShowOnPod(entry, pod);
}

void Core::Impl::Bind(Entry& entry, const Pod& pod, const GpuPod& gpu) {
  if (entry.doubt_uid == pod.uid && !entry.refusal.kind.empty()) {
    // A patch of nothing: its answer says whether it is on a node.
    Patch(entry, pod, Json::object());
    return;
  }
  entry.bind_to = PlaceOf(entry);
  Json annotations = Json::object();
  if (gpu.asks()) {
    for (auto& [key, value] : PlacementAnnotations(gpu, entry.bind_to)) annotations[key] = value;
  }
  Json body{{"apiVersion", "v1"},
            {"kind", "Binding"},
            {"metadata",
             {{"name", entry.name.name},
              {"namespace", entry.name.name_space},
              {"uid", pod.uid},
              {"annotations", std::move(annotations)}}},
            {"target", {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", entry.bind_to.node}}}};
  entry.bind_uid = pod.uid;
  Send(entry, WriteKind::kBind, pod.uid, std::move(body));
}

void Core::Impl::Await(Entry& entry, const PodNeeds& needs, const PodRequest& request,
                       const GpuPod& gpu) {
  if (!needs.claims.empty()) {
    claimants.insert(entry.key);
    if (auto found = volumes.Resolve(entry.name.name_space, needs); !found) {
      entry.why = {"VolumeUnbound", found.error().message};
      return;
    }
  }
  if (!entry.gang.empty() && gpu.gang_size > 0) {
    const size_t there = gangs[entry.gang].size();
    if (there < gpu.gang_size) {
      entry.why = {"WaitingForGang", fmt::format("{} of the {} pods of gang '{}' are there", there,
                                                 gpu.gang_size, gpu.gang)};
    }
  }
  view.Expect(request);
  if (gpu.asks()) Learn(entry, request);
  SetWaits(entry, true);
}

void Core::Impl::Learn(Entry& entry, const PodRequest& request) {
  if (std::exchange(entry.learned, true)) return;
  view.cluster().Learn(request);
}

void Core::Impl::SetWaits(Entry& entry, bool waits) {
  if (waits == entry.waits) return;
  entry.waits = waits;
  if (!waits) {
    waiting.erase(entry.key);
    return;
  }
  waiting.insert(entry.key);
  round_wanted |= !waited;
}

void Core::Impl::SettleShare(Entry& entry, Share& share, Pod* pod) {
  Pod* child = pod != nullptr && pod->owner == share.uid ? pod : nullptr;
  // One that is gone counts no more, but has the name until its object goes.
  const Pod* gone = child != nullptr && child->end == PodEnd::kGone ? child : nullptr;
  if (gone != nullptr) child = nullptr;
  const bool lives = child != nullptr && child->end == PodEnd::kNone && !child->deleting;
  // A child that is there keeps its limits, whatever the SharePod says since.
  const auto& resources = child != nullptr ? child->request.resources : share.resources;
  if (share.request.resources != resources) share.request.resources = resources;
  if (child == nullptr && share.finished) return;
  bool waits = false;
  if (gone != nullptr) {
    entry.why = {"PodGone", WhyGone(*gone)};
  } else if (pod != nullptr && child == nullptr) {
    entry.why = {"NameTaken",
                 pod->deleting
                     ? fmt::format("the pod {} of before has not ended yet", entry.key)
                     : fmt::format("there is a pod {} that is not of this SharePod; delete it "
                                   "or give the SharePod another name",
                                   entry.key)};
  } else if (child != nullptr && (!lives || !child->node.empty())) {
    // Nothing to decide.
  } else if (!share.wrong.empty()) {
    entry.why = {"Invalid", share.wrong};
  } else {
    if (!IsAssumed(entry) && share.placement && !(child == nullptr && share.was_bound) &&
        entry.refusal.kind.empty()) {
      // What was decided before a restart goes on, where there is room still.
      PodRequest request = share.request;
      if (IsAsAsked(request, *share.placement, view.cluster()) &&
          view.HasNode(share.placement->node)) {
        if (view.Assume(request, *share.placement)) entry.decided_for = share.uid;
      }
    }
    if (IsOutdated(entry, share.request)) view.Release(entry.key);
    if (!IsAssumed(entry)) {
      if (!IsRefused(entry)) Await(entry, share.needs, share.request, share.gpu);
      waits = true;
    }
  }
  const bool assumed = IsAssumed(entry);
  // It is tried again; until that has ended nothing has changed for those who look.
  const bool again = assumed && !entry.refusal.kind.empty();
  if ((!assumed || again) && (child == nullptr || child->node.empty())) Show(entry);
  if ((assumed && !again) || (child != nullptr && !child->node.empty())) {
    entry.why = entry.shown = Why();
  }
  // Of one that has just come there is nothing to say yet.
  if (waits && entry.shown.kind.empty() && !share.placement && !share.was_bound) return;
  if (lives && !child->node.empty()) {
    if (!share.wrong.empty()) {
      entry.resize = share.wrong;
      if (Keep(entry, *child)) return;
    } else if (SettleBound(entry, *child, share.gpu, share.object)) {
      return;
    }
  }
  Json status = StatusOf(entry, share, child);
  const Json* before = Find(share.object, "status");
  if (before == nullptr || *before != status) {
    Json body = share.object;
    body["status"] = std::move(status);
    Send(entry, WriteKind::kStatus, share.uid, std::move(body));
    return;
  }
  if (gone != nullptr) {
    Remove(entry, *gone);
    return;
  }
  if (!assumed) {
    if (entry.waits && entry.make_child && pod == nullptr) {
      Send(entry, WriteKind::kCreateChild, "", *share.child);
    }
    return;
  }
  if (!share.wrong.empty()) {
    // Its Binding may have been carried out before it became wrong: now that is made certain.
    if (child != nullptr) Bind(entry, *child, child->gpu);
  } else if (child == nullptr) {
    Send(entry, WriteKind::kCreateChild, "", *share.child);
  } else if (auto changes = ChildChanges(share.object, child->object)) {
    Patch(entry, *child, *std::move(changes));
  } else {
    Bind(entry, *child, share.gpu);
  }
}

void Core::Impl::Remove(Entry& entry, const Pod& gone) {
  if (gone.deleting) return;  // its kubelet does
  if (entry.gone_uid != gone.uid) {
    entry.gone_uid = gone.uid;
    const bool lasted = entry.bound_at && now.at - *entry.bound_at >= options.retry_max;
    if (lasted) entry.losses = 0;
    entry.remove_at = now.at + Backoff(entry.losses++);
  }
  if (now.at < entry.remove_at) {
    timers.emplace(entry.remove_at, entry.key);
    return;
  }
  Send(entry, WriteKind::kDeletePod, gone.uid, Json());
}

void Core::Impl::Patch(Entry& entry, const Pod& pod, Json patch) {
  patch["metadata"]["uid"] = pod.uid;
  Send(entry, WriteKind::kPatchPod, pod.uid, std::move(patch));
}

}  // namespace baton::k8s
