// The part of Arbiter that creates, changes and deletes pods.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "backend/arbiter.h"
#include "backend/process.h"
#include "base/parse.h"

namespace baton::backend {
namespace {

// What is compared to see whether the file's entry for a pod changed.
std::string Fingerprint(const PodConfig& c) {
  std::string gpus;
  for (const std::string& gpu : c.gpus) gpus += gpu + ",";
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{:016x}|{}", c.request, c.limit, c.memory,
                     PriorityName(c.priority), c.team, gpus, c.uid, UsageBook::GpuKey(c.ticket),
                     c.independent) +
         (c.user.empty() && c.name_space.empty() ? "" : "|" + c.user + "|" + c.name_space);
}

bool IsIndex(const std::string& text) {
  return !text.empty() && text.size() < 5 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

Result<void> CheckName(const std::string& name) {
  const bool printable = std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
  });
  if (name.empty() || name.size() > 128 || !printable) {
    return Fail(ErrorCode::kInvalid, "a pod's name is 1 to 128 printable characters");
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> Arbiter::ResolveGpus(const std::vector<std::string>& wanted,
                                                      uint32_t count,
                                                      const std::string& node) const {
  const std::vector<Gpu*> all = GpusOf(node);
  std::vector<std::string> uuids;
  if (wanted.empty()) {
    if (all.size() < count || all.empty()) {
      return Fail(ErrorCode::kNotFound,
                  all.empty()
                      ? "there is no GPU here; check the driver, or list GPUs as [[gpu]] in "
                        "the configuration"
                      : fmt::format("{} GPUs are asked for, there are {}", count, all.size()));
    }
    // Most room first; equals in their order. All of one pod's GPUs are on one node.
    std::vector<Gpu*> order = all;
    std::stable_sort(order.begin(), order.end(), [this](const Gpu* a, const Gpu* b) {
      return pods_.Room(a->info.uuid) > pods_.Room(b->info.uuid);
    });
    for (const Gpu* first : order) {
      uuids.clear();
      for (const Gpu* gpu : order) {
        if (gpu->node == first->node && uuids.size() < count) uuids.push_back(gpu->info.uuid);
      }
      if (uuids.size() == count) return uuids;
    }
    return Fail(ErrorCode::kNotFound, fmt::format("no node has {} GPUs", count));
  }
  for (const std::string& name : wanted) {
    std::string uuid = name;
    if (IsIndex(name)) {
      const auto index = static_cast<size_t>(std::stoul(name));
      if (index >= all.size()) {
        return Fail(ErrorCode::kNotFound,
                    fmt::format("there is no GPU {}; there are {}", name, all.size()));
      }
      uuid = all[index]->info.uuid;
    }
    const bool known =
        std::any_of(all.begin(), all.end(), [&](const Gpu* gpu) { return gpu->info.uuid == uuid; });
    if (!known) {
      return Fail(ErrorCode::kNotFound,
                  fmt::format("there is no GPU {} here; 'baton status' lists them", name));
    }
    if (std::find(uuids.begin(), uuids.end(), uuid) != uuids.end()) {
      return Fail(ErrorCode::kInvalid, fmt::format("GPU {} is named twice", name));
    }
    uuids.push_back(uuid);
  }
  const std::string& first = gpus_.at(uuids[0])->node;
  for (const std::string& uuid : uuids) {
    if (gpus_.at(uuid)->node != first) {
      return Fail(ErrorCode::kInvalid, "all GPUs of a pod must be on one node");
    }
  }
  return uuids;
}

Result<Pod*> Arbiter::CreatePod(Pod pod, uint32_t count, const std::string& node) {
  if (auto named = CheckName(pod.name); !named) return tl::unexpected(named.error());
  if (pod.team.size() > 256) return Fail(ErrorCode::kInvalid, "a team's path is too long");
  if (pod.user.size() > 256 || pod.name_space.size() > 256) {
    return Fail(ErrorCode::kInvalid, "a user's and a namespace's name are at most 256 bytes");
  }
  if (!pod.throw_away) {
    auto gpus = ResolveGpus(pod.gpus, std::max<uint32_t>(1, count), node);
    if (!gpus) return tl::unexpected(gpus.error());
    pod.gpus = *gpus;
  }
  if (pod.gpus.size() > wire::kGpusMax) {
    return Fail(ErrorCode::kInvalid, fmt::format("a pod has at most {} GPUs", wire::kGpusMax));
  }
  if (teams_ != nullptr && !pod.throw_away) {
    if (auto admitted = teams_->Admit(pod); !admitted) return tl::unexpected(admitted.error());
  }
  auto added = pods_.Add(std::move(pod));
  if (!added) return added;
  Pod& fresh = **added;
  for (const std::string& uuid : fresh.gpus) {
    Gpu& gpu = *gpus_.at(uuid);
    usage_.At(fresh.id, gpu.key, 0);
    TellShare(gpu, fresh);
    gpu.pods[fresh.id].series.Add(MonotonicNow(), 0, 0);
  }
  FormGang(fresh);
  WeighLater(fresh);
  if (fresh.throw_away) {
    unused_.emplace_back(MonotonicNow(), fresh.id);
  } else {
    SavePods();
    log_.Add(EventLog::Level::kInfo, "pod",
             fmt::format("{} created: request {}%, limit {}%", fresh.name,
                         fresh.share.request / 1e4, fresh.share.limit / 1e4));
  }
  return &fresh;
}

Result<void> Arbiter::DeletePod(Pod& pod) {
  const PodId id = pod.id;
  const bool throw_away = pod.throw_away;
  const std::string name = pod.name;
  const std::vector<std::string> uuids = pod.gpus;
  WeighLater(pod);
  // Its ticket is void from here on.
  pods_.Remove(id, keep_departed_ && !throw_away);
  const bool has_clients = clients_of_pod_.count(id) != 0;
  if (has_clients) leaving_.insert(id);
  gangs_.Remove(id);
  for (const std::string& uuid : uuids) {
    auto it = gpus_.find(uuid);
    if (it == gpus_.end()) continue;
    // A token that it holds is taken back first.
    Step(*it->second, PodRemoved{id});
  }
  has_clients ? CloseWhenDrained(id) : ForgetPod(id);
  if (!throw_away) {
    SavePods();
    log_.Add(EventLog::Level::kInfo, "pod", name + " deleted");
  }
  return {};
}

// The clients of a deleted pod are closed once none of them holds anything. Before that their
// reports are needed, and those that have drained may have to launch what the others wait for on
// the GPU.
void Arbiter::CloseWhenDrained(PodId pod) {
  std::vector<ClientId> drained;
  for (auto& [number, client] : clients_) {
    if (client->pod != pod) continue;
    if (HoldsAnything(*client)) return;
    const bool idle = std::all_of(client->lanes.begin(), client->lanes.end(), [](const auto& lane) {
      return lane->phase == wire::Phase::kIdle || lane->phase == wire::Phase::kWaiting;
    });
    if (idle && client->link != nullptr && client->connected) drained.push_back(client->id);
  }
  for (const ClientId id : drained) {
    Client* client = Find(id);
    if (client == nullptr) continue;
    client->link->Refuse(client->number, wire::ErrorKind::kUnknownPod, "the pod was deleted");
  }
}

void Arbiter::ForgetPod(PodId pod) {
  leaving_.erase(pod);
  for (Gpu* gpu : gpu_order_) gpu->pods.erase(pod);
  if (pods_.departed().count(pod) == 0) usage_.Drop(pod, 0);
}

Result<void> Arbiter::SetPod(Pod& pod, const PodChange& change) {
  uint32_t request = change.request != 0 ? change.request : pod.share.request;
  uint32_t limit = change.limit != 0 ? change.limit : pod.share.limit;
  if (change.limit == 0 && change.request != 0) {
    // Raising the request of a pod beyond its limit: a strict pod stays strict, else say so.
    if (pod.share.limit == pod.share.request) limit = std::max(limit, request);
  }
  policy::ShareSpec spec;
  spec.request = request;
  spec.limit = limit;
  spec.priority = change.priority != nullptr ? *change.priority : pod.share.priority;
  auto share = policy::Validated(spec);
  if (!share) return tl::unexpected(share.error());
  if (change.team != nullptr && change.team->size() > 256) {
    return Fail(ErrorCode::kInvalid, "a team's path is too long");
  }
  if (teams_ != nullptr) {
    Pod changed = pod;
    changed.share = *share;
    if (change.team != nullptr) changed.team = *change.team;
    if (auto admitted = teams_->Admit(changed); !admitted) return admitted;
  }
  if (auto set = pods_.SetShare(pod, *share); !set) return set;
  WeighLater(pod);
  if (change.memory_cap != nullptr) pod.memory_cap = *change.memory_cap;
  if (change.team != nullptr) pod.team = *change.team;
  for (const std::string& uuid : pod.gpus) {
    if (auto it = gpus_.find(uuid); it != gpus_.end()) TellShare(*it->second, pod);
  }
  if (change.memory_cap != nullptr) {
    for (auto& [number, client] : clients_) {
      if (client->pod != pod.id) continue;
      for (auto& lane : client->lanes) {
        if (lane->attached) SendAttached(*lane, &pod);
      }
    }
  }
  SavePods();
  log_.Add(EventLog::Level::kInfo, "pod",
           fmt::format("{} set: request {}%, limit {}%, memory {}, priority {}", pod.name,
                       pod.share.request / 1e4, pod.share.limit / 1e4,
                       pod.memory_cap == 0 ? "without cap" : FormatBytes(pod.memory_cap),
                       PriorityName(pod.share.priority)));
  return {};
}

// ----------------------------------------------------------------------------------------- teams

policy::ShareSpec Arbiter::SpecOf(const Pod& pod) const {
  return teams_ != nullptr && !pod.throw_away ? teams_->Effective(pod) : pod.share;
}

void Arbiter::TellShare(Gpu& gpu, const Pod& pod) {
  const policy::ShareSpec spec = SpecOf(pod);
  gpu.pods[pod.id].told = spec;
  Step(gpu, PodSet{pod.id, spec, pod.gang()});
}

void Arbiter::WeighLater(const Pod& pod) {
  if (teams_ == nullptr) return;
  for (const std::string& uuid : pod.gpus) {
    auto it = gpus_.find(uuid);
    if (it == gpus_.end() || std::exchange(it->second->weigh, true)) continue;
    to_weigh_.push_back(it->second.get());
  }
  Later();
}

void Arbiter::Weigh(Gpu& gpu) {
  if (teams_ == nullptr) return;
  std::vector<std::string> teams;
  for (const auto& [id, on] : gpu.pods) {
    if (const Pod* pod = pods_.Find(id)) teams.push_back(pod->team);
  }
  const std::vector<uint32_t> weights = teams_->Weights(teams);
  Step(gpu, TeamWeights{weights});
}

void Arbiter::TeamsChanged() {
  for (const auto& [id, pod] : pods_.all()) {
    for (const std::string& uuid : pod.gpus) {
      auto it = gpus_.find(uuid);
      if (it == gpus_.end()) continue;
      const auto on = it->second->pods.find(id);
      if (on != it->second->pods.end() && on->second.told != SpecOf(pod))
        TellShare(*it->second, pod);
    }
    WeighLater(pod);
  }
}

void Arbiter::ApplyConfiguredPods(const std::vector<PodConfig>& configured) {
  if (&configured != &configured_) configured_ = configured;
  configured_known_ = true;
  // Those that left the file.
  std::vector<PodId> left;
  for (const auto& [id, pod] : pods_.all()) {
    if (pod.from_file.empty()) continue;
    const bool listed =
        std::any_of(configured_.begin(), configured_.end(),
                    [&name = pod.name](const PodConfig& c) { return c.name == name; });
    if (!listed) left.push_back(id);
  }
  for (const PodId id : left) {
    if (Pod* pod = pods_.Find(id)) (void)DeletePod(*pod);
  }
  for (const PodConfig& c : configured_) {
    const std::string fingerprint = Fingerprint(c);
    auto share = ShareFrom(c.request, c.limit, c.priority);
    if (!share) continue;  // checked when the file was read
    Pod* pod = pods_.FindByName(c.name);
    if (pod != nullptr && pod->from_file == fingerprint) continue;
    if (pod != nullptr) {
      PodChange change;
      change.request = share->request;
      change.limit = share->limit;
      change.memory_cap = &c.memory;
      change.priority = &c.priority;
      change.team = &c.team;
      if (auto set = SetPod(*pod, change); !set) {
        log_.Add(EventLog::Level::kWarning, "pod",
                 fmt::format("[[pod]] {} is not applied: {}", c.name, set.error().message));
        continue;
      }
      const auto gpus = ResolveGpus(c.gpus, 1, "*");
      if ((!c.gpus.empty() && gpus && *gpus != pod->gpus) ||
          (!c.ticket.empty() && c.ticket != pod->ticket)) {
        log_.Add(EventLog::Level::kWarning, "pod",
                 fmt::format("[[pod]] {}: gpus and ticket of a pod that exists stay; remove it "
                             "from the file, reload, and put it back",
                             c.name));
      }
      pod->user = c.user;
      pod->name_space = c.name_space;
      pod->uid = c.uid;
      pod->from_file = fingerprint;
      SavePods();
      continue;
    }
    Pod fresh;
    fresh.name = c.name;
    fresh.share = *share;
    fresh.memory_cap = c.memory;
    fresh.team = c.team;
    fresh.user = c.user;
    fresh.name_space = c.name_space;
    fresh.gpus = c.gpus;
    fresh.ticket = c.ticket;
    fresh.uid = c.uid;
    fresh.independent = c.independent;
    fresh.from_file = fingerprint;
    auto added = CreatePod(std::move(fresh), 1, "*");
    // A GPU that is not known yet may belong to a node that has not connected: tried again then.
    if (!added && added.error().code != ErrorCode::kNotFound) {
      log_.Add(EventLog::Level::kWarning, "pod",
               fmt::format("[[pod]] {} is not created: {}", c.name, added.error().message));
    }
  }
}

bool Arbiter::PodIsOn(const Pod& pod, const std::string& node) const {
  return node == "*" || std::any_of(pod.gpus.begin(), pod.gpus.end(), [&](const std::string& uuid) {
           auto it = gpus_.find(uuid);
           return it != gpus_.end() && it->second->node == node;
         });
}

Arbiter::Gpu& Arbiter::ThrowAwayGpu(const std::string& node) {
  const std::string uuid = "BENCH-" + (node.empty() ? "0" : node.substr(0, 48));
  if (auto it = gpus_.find(uuid); it != gpus_.end()) return *it->second;
  // Who measured before this daemon started holds nothing that matters.
  unlink((options_.server.state_dir + "/gpu-" + uuid + ".holder").c_str());
  // As real as a GPU can be without a device: its holder is stored too.
  (void)AddGpu({uuid, "virtual", 0}, node, true);
  return *gpus_.at(uuid);
}

// Tickets for measuring that nobody used within a minute.
void Arbiter::DropUnused(Instant now) {
  while (!unused_.empty() && now - unused_.front().first > std::chrono::minutes(1)) {
    const PodId id = unused_.front().second;
    unused_.pop_front();
    Pod* pod = pods_.Find(id);
    if (pod != nullptr && clients_of_pod_.count(id) == 0) (void)DeletePod(*pod);
  }
}

void Arbiter::SavePods() {
  auto saved = ReplaceFile(options_.server.state_dir + "/pods.json", pods_.Save(), 0600, false);
  const std::string trouble = saved ? ""
                                    : "pods could not be stored: " + saved.error().message +
                                          "; after a restart the "
                                          "newest would be missing";
  if (!trouble.empty() && degraded_pods_.empty()) {
    log_.Add(EventLog::Level::kWarning, "daemon", trouble);
  }
  degraded_pods_ = trouble;
}

}  // namespace baton::backend
