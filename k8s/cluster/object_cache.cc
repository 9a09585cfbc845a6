#include "k8s/cluster/object_cache.h"

#include <algorithm>
#include <utility>

#include "k8s/types/flavors.h"

namespace baton::k8s {

GpuCharge ChargeAt(const GpuPod& gpu, const devmgr::Placement& placement,
                   uint32_t memory_unit_mib) {
  GpuPod there = gpu;
  there.asked.swap = false;  // a placement has what is reserved
  for (const devmgr::Vgpu& vgpu : placement.vgpus) {
    if (vgpu.container >= there.containers.size()) continue;
    ContainerGpus& container = there.containers[vgpu.container];
    container.request = vgpu.fit.share;
    container.memory = {vgpu.fit.memory_mib, {}};
  }
  return ChargeOf(there, memory_unit_mib);
}

bool Entry::IsWanted() const {
  if (share && !share->deleting) {
    if (share->finished || share->foreign || !share->wrong.empty()) return false;
    if (!share->child_wrong.empty() || !gates().empty()) return false;
    return !pod || (pod->owner == share->uid && !pod->deleting && pod->end == PodEnd::kNone);
  }
  return pod && pod->owner.empty() && pod->ours && pod->takes_room && !pod->deleting &&
         pod->gates.empty() && pod->wrong.empty();
}

bool Entry::HasEnded() const {
  if (share)
    return share->finished || (pod && pod->owner == share->uid && pod->end == PodEnd::kFinished);
  return pod && !pod->takes_room;
}

bool Entry::HasLastingPod() const {
  return pod && !pod->node.empty() && !pod->deleting && pod->takes_room &&
         (!share || pod->owner == share->uid);
}

Entry& ObjectCache::At(const ObjectName& name) {
  const std::string key = name.Text();
  Entry& entry = entries_[key];
  if (entry.key.empty()) {
    entry.key = key;
    entry.name = name;
  }
  return entry;
}

Entry* ObjectCache::Find(const std::string& key) {
  const auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : &it->second;
}

const Entry* ObjectCache::Find(const std::string& key) const {
  const auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : &it->second;
}

void ObjectCache::QueueAll() {
  for (const auto& [key, entry] : entries_) queue_.Add(key);
}

void ObjectCache::Erase(const std::string& key) {
  LeaveGang(key);
  entries_.erase(key);
}

ObjectCache::Update ObjectCache::SetPod(Json object, std::vector<std::string>* troubles) {
  const std::string uid = UidOf(object);
  if (uid.empty() || tombstones_.Has(uid)) return {};
  const ObjectName name = NameOf(object);
  const Entry* known = Find(name.Text());
  if (known == nullptr || (!known->pod && !known->share)) {
    Pod pod = ReadPod(object, options_, troubles);
    if (pod.foreign) return {nullptr, "", false, std::move(pod)};
  }
  Entry& entry = At(name);
  Update update{.entry = &entry, .replaced_uid = "", .new_spec = false};
  if (entry.pod) {
    if (IsOlderVersion(ResourceVersionOf(object), entry.pod->version)) return {};
    const std::string node = TextAt(object, "spec/nodeName");
    // A pod never leaves its node: this is from before its Binding.
    if (entry.pod->uid == uid && node.empty() && !entry.pod->node.empty()) return {};
    if (entry.pod->uid != uid) {
      tombstones_.Add(entry.pod->uid);
      update.replaced_uid = entry.pod->uid;
      entry.pod.reset();
    }
  }
  Pod pod = ReadPod(std::move(object), options_, troubles);
  update.new_spec = pod.ours && (!entry.pod || entry.pod->request != pod.request ||
                                 entry.pod->needs != pod.needs || entry.pod->gpu != pod.gpu);
  entry.pod = std::move(pod);
  if (KeepSize(entry)) update.new_spec = true;
  if (FollowChild(entry)) update.new_spec = true;
  UpdateGang(entry);
  queue_.Add(entry.key);
  return update;
}

bool ObjectCache::KeepSize(Entry& entry) const {
  if (!entry.share || entry.share->unfilled.is_null() || entry.pod->owner != entry.share->uid) {
    return false;
  }
  Share& share = *entry.share;
  spec::Flavors sized = FlavorsOfChild(entry.pod->object);
  sized.insert(share.flavors.begin(), share.flavors.end());
  const bool same = std::all_of(share.flavors.begin(), share.flavors.end(), [&](const auto& was) {
    return FlavorsText({was}) == FlavorsText({*sized.find(was.first)});
  });
  if (same) return false;
  ResizeShare(options_, sized, share);
  SetPriority(share);
  return true;
}

bool ObjectCache::FollowChild(Entry& entry) {
  if (!entry.share) return false;
  Share& share = *entry.share;
  const bool child = entry.pod && entry.pod->owner == share.uid && entry.pod->end != PodEnd::kGone;
  return TakeFromChild(child ? &*entry.pod : nullptr, share);
}

ObjectCache::Update ObjectCache::SetSharePod(Json object, std::vector<std::string>* troubles) {
  const std::string uid = UidOf(object);
  if (uid.empty() || tombstones_.Has(uid)) return {};
  Entry& entry = At(NameOf(object));
  Update update{.entry = &entry, .replaced_uid = "", .new_spec = false};
  if (entry.share) {
    if (IsOlderVersion(ResourceVersionOf(object), entry.share->version)) return {};
    if (entry.share->uid != uid) {
      tombstones_.Add(entry.share->uid);
      update.replaced_uid = entry.share->uid;
      entry.share.reset();
    }
  }
  const Json* child = entry.pod && entry.pod->owner == uid ? &entry.pod->object : nullptr;
  spec::Flavors sized = child != nullptr ? FlavorsOfChild(*child) : spec::Flavors();
  if (entry.share) sized.insert(entry.share->flavors.begin(), entry.share->flavors.end());
  Share share = ReadShare(std::move(object), options_, sized, troubles);
  if (entry.share && share.generation > 0 && entry.share->generation == share.generation) {
    share.has_child = entry.share->has_child;
    share.priority_class = std::move(entry.share->priority_class);
    share.wrong = std::move(entry.share->wrong);
    share.gpu = std::move(entry.share->gpu);
    share.needs = std::move(entry.share->needs);
    share.may_move = entry.share->may_move;
    share.request = std::move(entry.share->request);
    share.made = std::move(entry.share->made);
    share.child_wrong = std::move(entry.share->child_wrong);
    share.gates = std::move(entry.share->gates);
    share.template_hash = std::move(entry.share->template_hash);
    share.foreign = entry.share->foreign;
  } else {
    ReadChild(options_, share);
    update.new_spec = true;
  }
  SetPriority(share);
  if (share.leaves_child) childless_.Add(uid);
  entry.share = std::move(share);
  FollowChild(entry);
  UpdateGang(entry);
  queue_.Add(entry.key);
  return update;
}

Entry* ObjectCache::RemovePod(const Json& object) {
  const std::string uid = UidOf(object);
  tombstones_.Add(uid);
  return RemoveMissingPod(NameOf(object), uid);
}

Entry* ObjectCache::RemoveMissingPod(const ObjectName& name, const std::string& uid) {
  Entry* entry = Find(name.Text());
  if (entry == nullptr || !entry->pod || entry->pod->uid != uid) return nullptr;
  entry->pod.reset();
  FollowChild(*entry);
  UpdateGang(*entry);
  queue_.Add(entry->key);
  return entry;
}

Entry* ObjectCache::RemoveSharePod(const Json& object) {
  const std::string uid = UidOf(object);
  tombstones_.Add(uid);
  Entry* entry = Find(NameOf(object).Text());
  if (entry == nullptr || !entry->share || entry->share->uid != uid) return nullptr;
  entry->share.reset();
  UpdateGang(*entry);
  queue_.Add(entry->key);
  return entry;
}

void ObjectCache::SetBound(Entry& entry, const devmgr::Placement& placement) {
  Pod& pod = *entry.pod;
  pod.node = placement.node;
  pod.ours = false;
  pod.object["spec"]["nodeName"] = placement.node;
  if (!pod.gpu.asks()) return;
  pod.placement = placement;
  Json& annotations = pod.object["metadata"]["annotations"];
  if (!annotations.is_object()) annotations = Json::object();
  for (auto& [key, value] : PlacementAnnotations(pod.gpu, placement, pod.gpu)) {
    annotations[key] = value;
  }
}

void ObjectCache::SetPriorityClass(const Json& object, bool gone) {
  gone ? classes_.Remove(object) : classes_.Set(object);
  for (auto& [key, entry] : entries_) {
    if (!entry.share) continue;
    SetPriority(*entry.share);
    queue_.Add(key);
  }
  queue_.RequestRound();
}

void ObjectCache::SetVolume(Watched kind, const Json& object, bool gone, Instant now) {
  if (kind == Watched::kClaim) {
    gone ? volumes_.RemoveClaim(object) : volumes_.SetClaim(object, now);
  } else if (kind == Watched::kStorageClass) {
    gone ? volumes_.RemoveClass(object) : volumes_.SetClass(object);
  } else {
    gone ? volumes_.RemoveVolume(object) : volumes_.SetVolume(object);
  }
}

void ObjectCache::SetQuota(const Json& object, bool gone) {
  gone ? quotas_.Remove(object) : quotas_.Set(object);
  queue_.RequestRound();
}

GpuCharge ObjectCache::ChargeOfOthers(const std::string& name_space, const std::string& except,
                                      const devmgr::Cluster& cluster) const {
  GpuCharge sum;
  const std::string prefix = name_space + "/";
  for (auto it = entries_.lower_bound(prefix);
       it != entries_.end() && it->first.starts_with(prefix); ++it) {
    const devmgr::PlacedPod* placed = it->first == except ? nullptr : cluster.Find(it->first);
    if (placed == nullptr) continue;
    const Entry& entry = it->second;
    // What its limits say stands in the pod where there is one.
    const GpuPod& gpu = entry.pod ? entry.pod->gpu : entry.gpu();
    sum += ChargeAt(gpu, placed->placement, options_.memory_unit_mib);
  }
  return sum;
}

void ObjectCache::SetPriority(Share& share) const {
  if (share.has_child) share.request.priority = classes_.ValueOf(share.priority_class);
}

bool ObjectCache::MayPreempt(const Entry& entry) const {
  // A pod has it from its class; a SharePod's may not be made yet.
  if (!entry.pod) return classes_.MayPreempt(entry.share->priority_class);
  return TextAt(entry.pod->object, "spec/preemptionPolicy") != "Never";
}

Result<PodNeeds> ObjectCache::ResolvedNeeds(const Entry& entry) const {
  return volumes_.Resolve(entry.name.name_space, entry.needs());
}

std::string ObjectCache::GangOf(const Entry& entry) const {
  const auto it = gang_of_.find(entry.key);
  return it == gang_of_.end() ? "" : it->second;
}

const std::set<std::string>& ObjectCache::GangMembers(const Entry& entry) const {
  static const std::set<std::string> none;
  const auto it = gang_of_.find(entry.key);
  return it == gang_of_.end() ? none : gangs_.at(it->second);
}

void ObjectCache::UpdateGang(const Entry& entry) {
  // Those that have ended were there.
  const GpuPod* gpu = nullptr;
  if (entry.share && !entry.share->deleting) {
    gpu = &entry.share->gpu;
  } else if (entry.pod && !entry.pod->deleting &&
             (!HasGone(entry.pod->owner) || LeavesChild(entry.pod->owner))) {
    gpu = &entry.pod->gpu;
  }
  std::string gang;
  if (gpu != nullptr && !gpu->gang.empty()) gang = entry.name.name_space + "/" + gpu->gang;
  if (gang == GangOf(entry)) return;
  LeaveGang(entry.key);
  if (gang.empty()) return;
  std::set<std::string>& members = gangs_[gang];
  for (const std::string& member : members) queue_.Add(member);
  members.insert(entry.key);
  gang_of_[entry.key] = std::move(gang);
  queue_.RequestRound();
}

void ObjectCache::LeaveGang(const std::string& key) {
  const auto it = gang_of_.find(key);
  if (it == gang_of_.end()) return;
  const auto gang = gangs_.find(it->second);
  gang->second.erase(key);
  for (const std::string& member : gang->second) queue_.Add(member);
  if (gang->second.empty()) {
    gangs_.erase(gang);
  } else {
    // It may be the one for which they waited.
    queue_.RequestRound();
  }
  gang_of_.erase(it);
}

}  // namespace baton::k8s
