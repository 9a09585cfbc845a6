#include "k8s/binder/preemptions.h"

#include <utility>

namespace baton::k8s {

const Preemption* Preemptions::Find(const std::string& pod) const {
  const auto it = preemptions_.find(pod);
  return it == preemptions_.end() ? nullptr : &it->second;
}

bool Preemptions::HasRoomFor(const devmgr::Displacement& displacement) const {
  size_t victims = displacement.pods.size();
  for (const auto& [pod, preemption] : preemptions_) victims += preemption.victims.size();
  return victims <= victims_max_;
}

bool Preemptions::Start(const std::string& pod, const devmgr::Displacement& displacement,
                        bool reclaims) {
  if (!HasRoomFor(displacement)) return false;
  Preemption made{displacement.node, {}, reclaims};
  for (const std::string& key : displacement.pods) {
    const Entry* victim = objects_.Find(key);
    // What is not on its node yet is asked for again in the next round.
    if (victim == nullptr || !victim->pod || victim->pod->node.empty()) return false;
    made.victims[key] = victim->pod->uid;
  }
  for (const auto& [key, uid] : made.victims) {
    Victim& victim = victims_[key];
    victim.uid = uid;
    victim.pod = pod;
    victim.reclaims = reclaims;
    queue_.Add(key);
  }
  preemptions_[pod] = std::move(made);
  return true;
}

std::vector<std::string> Preemptions::Ended(const std::set<std::string>& wanting) {
  std::vector<std::string> ended;
  for (auto& [pod, preemption] : preemptions_) {
    std::erase_if(preemption.victims, [&](const auto& victim) {
      const Entry* entry = objects_.Find(victim.first);
      return entry == nullptr || !entry->pod || entry->pod->uid != victim.second ||
             !entry->pod->takes_room;
    });
    if (preemption.victims.empty() || !wanting.contains(pod)) ended.push_back(pod);
  }
  return ended;
}

void Preemptions::Stop(const std::string& pod) {
  const auto it = preemptions_.find(pod);
  if (it == preemptions_.end()) return;
  for (const auto& [key, uid] : it->second.victims) {
    const auto victim = victims_.find(key);
    if (victim != victims_.end() && victim->second.uid == uid) victim->second.uid.clear();
  }
  preemptions_.erase(it);
}

std::string Preemptions::KeptFrom(const Entry& entry) const {
  for (const auto& [pod, preemption] : preemptions_) {
    if (!entry.pod || preemption.node != entry.pod->node) continue;
    const Entry* holder = objects_.Find(pod);
    const bool above = holder != nullptr && entry.request().priority > holder->request().priority;
    if (preemption.reclaims || !above) return pod;
  }
  return "";
}

bool Preemptions::IsVictim(const std::string& key, const std::string& uid) const {
  const auto it = victims_.find(key);
  return it != victims_.end() && it->second.uid == uid;
}

bool Preemptions::IsDeleted(const std::string& key, const std::string& uid) const {
  const auto it = victims_.find(key);
  return it != victims_.end() && it->second.deleted_uid == uid;
}

void Preemptions::SetDeleted(const std::string& key, const std::string& uid) {
  if (const auto it = victims_.find(key); it != victims_.end()) it->second.deleted_uid = uid;
}

}  // namespace baton::k8s
