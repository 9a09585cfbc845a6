#include "backend/pods.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/entropy.h"

namespace baton::backend {
namespace {

// The scheduler orders pods by 32 bits.
constexpr uint64_t kIdMax = UINT32_MAX;

}  // namespace

uint64_t Pod::CapOn(std::string_view gpu) const {
  if (memory_cap != 0 || memory_part == policy::Share(0)) return memory_cap;
  for (size_t i = 0; i < gpus.size() && i < vgpus.size(); ++i) {
    if (gpus[i] == gpu) return uint64_t{vgpus[i].fit.memory_mib} << 20;
  }
  return 0;
}

std::vector<std::string> Pod::Accounted() const {
  std::vector<std::string> all = gpus;
  for (const PodVgpu& vgpu : vgpus) {
    for (const std::string& gpu : vgpu.before) {
      if (std::find(all.begin(), all.end(), gpu) == all.end()) all.push_back(gpu);
    }
  }
  return all;
}

Result<Pod*> Pods::Add(Pod pod) {
  if (by_name_.count(pod.name) != 0) {
    return Fail(ErrorCode::kExists,
                fmt::format("there is a pod {} already; choose another name, or "
                            "remove it with: baton rm {}",
                            pod.name, pod.name));
  }
  if (pod.ticket.empty()) pod.ticket = RandomTicket();
  if (by_ticket_.count(pod.ticket) != 0) {
    return Fail(ErrorCode::kExists, "another pod has this ticket");
  }
  if (last_id_ >= kIdMax) return Fail(ErrorCode::kExhausted, "the ids of pods are used up");
  pod.vgpus.resize(pod.gpus.size());
  pod.id = PodId{++last_id_};
  Pod& entered = Enter(std::move(pod));
  Changed(entered.id);
  return &entered;
}

Pod& Pods::Enter(Pod pod) {
  by_name_[pod.name] = pod.id;
  by_ticket_[pod.ticket] = pod.id;
  if (!pod.gang.empty()) by_gang_[pod.gang].insert(pod.id);
  Pod& entered = pods_.emplace(pod.id, std::move(pod)).first->second;
  JoinGang(entered);
  return entered;
}

void Pods::JoinGang(Pod& pod) {
  pod.beside_own = false;
  if (pod.gang.empty() || !pod.in_gang()) return;
  const std::vector<const Pod*> gang = GangOf(pod);
  pod.beside_own = std::any_of(gang.begin(), gang.end(), [&](const Pod* other) {
    return other->id != pod.id && std::any_of(pod.gpus.begin(), pod.gpus.end(),
                                              [&](const auto& gpu) { return other->Has(gpu); });
  });
  if (!pod.beside_own && MissingOf(pod) != 0) return;
  for (const Pod* other : gang) {
    if (!std::exchange(Find(other->id)->gang_met, true)) Changed(other->id);
  }
}

size_t Pods::MissingOf(const Pod& pod) const {
  if (pod.gang.empty() || !pod.in_gang()) return 0;
  size_t size = 0;
  const std::vector<const Pod*> gang = GangOf(pod);
  for (const Pod* other : gang) {
    if (other->gang_met) return 0;
    size = std::max<size_t>(size, other->gang_size);
  }
  return size - std::min(size, gang.size());
}

std::vector<const Pod*> Pods::GangOf(const Pod& pod) const {
  std::vector<const Pod*> gang;
  if (!pod.in_gang()) return gang;
  if (pod.gang.empty()) {
    if (const Pod* self = Find(pod.id)) gang.push_back(self);
    return gang;
  }
  gang = NamedGang(pod.gang);
  std::erase_if(gang, [](const Pod* other) { return !other->in_gang(); });
  return gang;
}

std::vector<const Pod*> Pods::NamedGang(const std::string& gang) const {
  std::vector<const Pod*> all;
  const auto named = by_gang_.find(gang);
  if (named == by_gang_.end()) return all;
  for (const PodId id : named->second) all.push_back(Find(id));
  return all;
}

void Pods::Remove(PodId id, bool departs) {
  auto it = pods_.find(id);
  if (it == pods_.end()) return;
  const Pod& pod = it->second;
  Changed(id);
  changes_.peaks.erase(id);
  if (departs) {
    departed_[id] = {pod.owner(), pod.Accounted(), MonotonicNow()};
    changes_.departed.insert(id);
  }
  by_name_.erase(pod.name);
  by_ticket_.erase(pod.ticket);
  if (const auto gang = by_gang_.find(pod.gang); gang != by_gang_.end()) {
    gang->second.erase(id);
    if (gang->second.empty()) by_gang_.erase(gang);
  }
  pods_.erase(it);
}

void Pods::Forget(PodId id) {
  if (departed_.erase(id) != 0) changes_.departed.insert(id);
}

Pod* Pods::Find(PodId id) {
  auto it = pods_.find(id);
  return it == pods_.end() ? nullptr : &it->second;
}

Pod* Pods::FindByName(std::string_view name) {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : Find(it->second);
}

Pod* Pods::FindByTicket(std::string_view ticket) {
  auto it = by_ticket_.find(std::string(ticket));
  return it == by_ticket_.end() ? nullptr : Find(it->second);
}

void Pods::Changed(PodId id) {
  const Pod* pod = Find(id);
  if (pod == nullptr || !pod->throw_away) changes_.pods.insert(id);
}

void Pods::SetCordoned(const std::string& gpu, bool cordoned) {
  changes_.cordoned = true;
  if (cordoned) {
    cordoned_.insert(gpu);
  } else {
    cordoned_.erase(gpu);
  }
}

Result<void> Pods::Restore(PodsImage image) {
  Pods restored;
  restored.last_id_ = image.last_id;
  for (auto& [id, pod] : image.pods) {
    if (id.value == 0 || id.value > image.last_id || image.last_id > kIdMax) {
      return Fail(ErrorCode::kInvalid, "a pod's id is out of range");
    }
    if (restored.by_name_.count(pod.name) + restored.by_ticket_.count(pod.ticket) != 0) {
      return Fail(ErrorCode::kInvalid, "a pod's name or ticket is listed twice");
    }
    restored.Enter(std::move(pod));
  }
  restored.departed_ = std::move(image.departed);
  for (auto& [id, pod] : restored.departed_) pod.at = MonotonicNow();
  restored.cordoned_ = std::move(image.cordoned);
  restored.changes_ = {};
  *this = std::move(restored);
  return {};
}

}  // namespace baton::backend
