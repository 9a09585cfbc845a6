#include "backend/unmanaged.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/parse.h"

namespace baton::backend {
namespace {

// Named in one event; the others are counted.
constexpr size_t kUnmanagedNamedMax = 3;
// Of a container's id, as its tools print it.
constexpr size_t kShortId = 12;

bool IsSame(const UnmanagedProcess& a, const UnmanagedProcess& b) {
  return a.pid == b.pid && a.start_time == b.start_time;
}

bool Contains(const std::vector<UnmanagedProcess>& all, const UnmanagedProcess& one) {
  return std::any_of(all.begin(), all.end(), [&](const auto& p) { return IsSame(p, one); });
}

}  // namespace

std::string Describe(const UnmanagedProcess& process) {
  std::string text = fmt::format("process {}", process.pid);
  if (process.start_time == 0) {
    text += " (not visible from here)";
  } else {
    text += fmt::format(" ({}) of user {}", process.command,
                        process.user.empty() ? std::to_string(process.uid) : process.user);
  }
  if (!process.container.empty()) text += " in container " + process.container.substr(0, kShortId);
  if (!process.pod.empty()) text += " of pod " + process.pod;
  if (process.memory_bytes != 0) text += ", with " + FormatBytes(process.memory_bytes);
  return text;
}

uint64_t MemoryOf(const std::vector<UnmanagedProcess>& processes) {
  uint64_t bytes = 0;
  for (const UnmanagedProcess& process : processes) bytes += process.memory_bytes;
  return bytes;
}

bool IsOf(const Pod& pod, const node::ProcessFacts& process) {
  const bool by_ticket = !process.ticket.empty() && pod.ticket == process.ticket;
  return by_ticket || (!pod.cgroup.empty() && pod.cgroup == process.kubernetes_pod);
}

const Lane* LaneOf(const Gpu& gpu, pid_t pid) {
  const auto of = std::find_if(gpu.lanes.begin(), gpu.lanes.end(), [&](const auto& entry) {
    return entry.second->client->pid == static_cast<uint64_t>(pid);
  });
  return of != gpu.lanes.end() ? of->second : nullptr;
}

const Pod* Unmanaged::PodOf(const SeenProcess& process) const {
  for (const auto& [id, pod] : pods_.all()) {
    if (IsOf(pod, process.facts)) return &pod;
  }
  return nullptr;
}

bool Unmanaged::IsManaged(const Gpu& gpu, const SeenProcess& process) const {
  // MIG's instances are divided by the hardware, and others make some too.
  const devmgr::Card* card = vgpus_.cards().Find(gpu.info.uuid);
  if (card != nullptr && card->mig_enabled) return true;
  if (LaneOf(gpu, process.pid) != nullptr) return true;
  const Pod* pod = PodOf(process);
  if (pod != nullptr && pod->Has(gpu.info.uuid) && !pod->by_token()) return true;
  const bool mps = std::any_of(pods_.all().begin(), pods_.all().end(), [&](const auto& entry) {
    return entry.second.mode == spec::kMps && entry.second.Has(gpu.info.uuid);
  });
  return mps && process.facts.command.starts_with("nvidia-cuda-mp");  // MPS's own server
}

uint64_t Unmanaged::OverheadOf(const Gpu& gpu, const std::vector<SeenProcess>& processes) {
  uint64_t bytes = 0;
  for (const SeenProcess& process : processes) {
    const Lane* lane = LaneOf(gpu, process.pid);
    if (lane != nullptr)
      bytes += process.memory_bytes - std::min(process.memory_bytes, lane->memory);
  }
  return bytes;
}

void Unmanaged::Update(const SeenProcesses& seen, Instant now) {
  for (const auto& [uuid, processes] : seen) {
    Gpu* gpu = gpus_.Find(uuid);
    if (gpu == nullptr || !gpu->node.empty()) continue;
    std::map<Key, Instant> since;
    std::vector<UnmanagedProcess> named;
    for (const SeenProcess& process : processes) {
      if (IsManaged(*gpu, process)) continue;
      const node::ProcessFacts& facts = process.facts;
      const Key key{process.pid, facts.start_time};
      const auto before = since_[uuid].find(key);
      since[key] = before != since_[uuid].end() ? before->second : now;
      if (now - since[key] < kNamedAfter) continue;
      const Pod* pod = PodOf(process);
      named.push_back({process.pid, facts.start_time, facts.uid, facts.user, facts.command,
                       facts.container, pod != nullptr ? pod->name : "", process.memory_bytes});
    }
    since_[uuid] = std::move(since);
    gpu->overhead = OverheadOf(*gpu, processes);
    const std::vector<UnmanagedProcess> before = std::exchange(gpu->unmanaged, std::move(named));
    accounts_.NoteIdle(*gpu, now);
    Tell(*gpu, before);
  }
}

void Unmanaged::Tell(const Gpu& gpu, const std::vector<UnmanagedProcess>& before) const {
  std::string names;
  size_t come = 0;
  for (const UnmanagedProcess& process : gpu.unmanaged) {
    if (Contains(before, process) || ++come > kUnmanagedNamedMax) continue;
    names += (names.empty() ? "" : "; ") + Describe(process);
  }
  if (come > kUnmanagedNamedMax) names += fmt::format("; and {} more", come - kUnmanagedNamedMax);
  if (come != 0) {
    log_.Add(node::EventLog::Level::kWarning, "gpu",
             fmt::format("{} is used without the token by {}: Baton does not manage {}",
                         gpu.info.uuid, names, come == 1 ? "it" : "them"));
  }
  const auto gone = std::count_if(before.begin(), before.end(), [&](const auto& process) {
    return !Contains(gpu.unmanaged, process);
  });
  if (gone != 0) {
    log_.Add(node::EventLog::Level::kInfo, "gpu",
             fmt::format("{} process{} without the token left {}; {} still there", gone,
                         gone == 1 ? "" : "es", gpu.info.uuid, gpu.unmanaged.size()));
  }
}

}  // namespace baton::backend
