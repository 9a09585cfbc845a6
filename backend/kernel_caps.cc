#include "backend/kernel_caps.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::backend {

void KernelCaps::Start(DeviceMaker& maker, Cap cap, std::string why) {
  maker_ = &maker;
  cap_ = std::move(cap);
  why_ = options_.cgroup_root.empty() ? "[memory] cgroup_root is empty" : std::move(why);
}

std::map<KernelCaps::Key, KernelCaps::Wish> KernelCaps::Wishes() const {
  std::map<Key, Wish> wishes;
  for (const Gpu* gpu : gpus_.all()) {
    if (!gpu->node.empty() || !gpu->by_token()) continue;
    for (const auto& [id, lane] : gpu->lanes) {
      const Client& client = *lane->client;
      const Pod* pod = pods_.Find(client.pod);
      if (client.group.empty() || pod == nullptr) continue;
      Wish& wish = wishes[{gpu->info.uuid, client.group}];
      wish.shared = wish.shared || (wish.processes > 0 && wish.pod != pod->id);
      wish.pod = pod->id;
      ++wish.processes;
    }
  }
  for (auto& [key, wish] : wishes) {
    const Pod* pod = pods_.Find(wish.pod);
    const uint64_t cap = wish.shared ? 0 : pod->CapOn(key.first);
    if (cap != 0) wish.bytes = cap + wish.processes * (uint64_t{options_.process_mib} << 20);
  }
  return wishes;
}

void KernelCaps::Tend(Instant now) {
  if (maker_ == nullptr || !why_.empty() || now - tended_at_ < kTendEvery) return;
  tended_at_ = now;
  const std::map<Key, Wish> wishes = Wishes();
  for (const auto& [key, wish] : wishes) {
    if (wish.bytes != 0) groups_.try_emplace(key);
  }
  for (auto it = groups_.begin(); it != groups_.end();) {
    auto& [key, group] = *it;
    const auto wish = wishes.find(key);
    const uint64_t bytes = wish == wishes.end() ? 0 : wish->second.bytes;
    if (group.failed_at != kNever && (bytes != group.asked || now - group.failed_at >= kTryAgain)) {
      group.failed_at = kNever;
    }
    const bool idle = !group.under_way && group.failed_at == kNever;
    if (idle && bytes != group.bytes) {
      Ask(key, group, bytes);
    } else if (!group.under_way && bytes == 0 && group.bytes == 0) {
      it = groups_.erase(it);
      continue;
    }
    ++it;
  }
}

void KernelCaps::Ask(const Key& key, Group& group, uint64_t bytes) {
  group.under_way = true;
  group.asked = bytes;
  maker_->Run([this, alive = alive_, cap = cap_, key, bytes,
               folder = options_.cgroup_root + key.second]() -> std::function<void()> {
    Result<void> answer = cap(key.first, folder, bytes);
    return [this, alive, key, bytes, answer = std::move(answer)] {
      if (*alive) OnAnswer(key, bytes, answer);
    };
  });
}

void KernelCaps::OnAnswer(const Key& key, uint64_t bytes, const Result<void>& answer) {
  const auto it = groups_.find(key);
  if (it == groups_.end()) return;
  Group& group = it->second;
  group.under_way = false;
  if (answer) {
    group.bytes = bytes;
    group.why.clear();
    return;
  }
  if (bytes == 0) {
    // The container went first, and its limits with it.
    groups_.erase(it);
    return;
  }
  if (group.why != answer.error().message) {
    group.why = answer.error().message;
    log_.Add(node::EventLog::Level::kDebug, "gpu", "the driver holds no memory cap: " + group.why);
  }
  group.failed_at = MonotonicNow();
}

std::string KernelCaps::WhyNot(const Gpu& gpu) const {
  if (!gpu.node.empty()) return "the GPU is on another node";
  if (!gpu.by_token()) return "the GPU is not NVIDIA's";
  return why_;
}

KernelCaps::Held KernelCaps::Of(const Gpu& gpu, const Pod& pod) const {
  if (pod.CapOn(gpu.info.uuid) == 0) return {};
  if (std::string why = WhyNot(gpu); !why.empty()) return {false, std::move(why)};
  bool any = false;
  for (const auto& [id, lane] : gpu.lanes) {
    const Client& client = *lane->client;
    if (client.pod != pod.id) continue;
    any = true;
    if (client.group.empty()) return {false, "a process of the pod is in no container"};
    const auto found = groups_.find({gpu.info.uuid, client.group});
    const Group none, &group = found == groups_.end() ? none : found->second;
    if (!group.why.empty()) return {false, group.why};
    if (group.bytes != 0) continue;
    const bool shared = std::any_of(gpu.lanes.begin(), gpu.lanes.end(), [&](const auto& entry) {
      const Client& other = *entry.second->client;
      return other.pod != pod.id && other.group == client.group;
    });
    return {false, shared ? "another pod has processes in the same container"
                          : "the driver has not answered yet"};
  }
  return {any, ""};
}

}  // namespace baton::backend
