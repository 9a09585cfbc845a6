// The part of Arbiter that creates, changes and deletes pods.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "backend/arbiter.h"
#include "backend/process.h"
#include "base/parse.h"

namespace baton::backend {
namespace {

// Empty where nothing is said, as it was in files of before.
std::string Wishes(const PodConfig& c) {
  std::string all;
  for (const auto* words : {&c.wishes.models, &c.wishes.not_models}) {
    for (const std::string& word : *words) all += word + ",";
    all += "|";
  }
  all += fmt::format("{}|{}|{}|{}", c.wishes.mode, c.wishes.affinity, c.wishes.anti_affinity,
                     c.wishes.exclusion);
  const bool said = all.find_first_not_of('|') != std::string::npos || c.count != 0;
  return (said ? fmt::format("|{}|{}", c.count, all) : "") +
         (c.memory_part != 0 ? fmt::format("|{} of memory", c.memory_part) : "");
}

// What is compared to see whether the file's entry for a pod changed.
std::string Fingerprint(const PodConfig& c) {
  std::string gpus;
  for (const std::string& gpu : c.gpus) gpus += gpu + ",";
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{:016x}|{}", c.request, c.limit, c.memory,
                     PriorityName(c.priority), c.team, gpus, c.uid, UsageBook::GpuKey(c.ticket),
                     c.independent) +
         (c.user.empty() && c.name_space.empty() ? "" : "|" + c.user + "|" + c.name_space) +
         Wishes(c);
}

bool IsIndex(const std::string& text) {
  return !text.empty() && text.size() < 5 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

std::string CapText(const Pod& pod) {
  if (pod.memory_cap != 0) return FormatBytes(pod.memory_cap);
  return pod.memory_part != 0 ? fmt::format("{}%", pod.memory_part / 1e4) : "without cap";
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
                                                      const std::string& node) const {
  const std::vector<Gpu*> all = GpusOf(node);
  std::vector<std::string> uuids;
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

Result<uint32_t> Arbiter::Resolve(Pod& pod, uint32_t count, const std::string& node) const {
  if (auto named = CheckName(pod.name); !named) return tl::unexpected(named.error());
  if (pod.team.size() > 256) return Fail(ErrorCode::kInvalid, "a team's path is too long");
  if (pod.user.size() > 256 || pod.name_space.size() > 256) {
    return Fail(ErrorCode::kInvalid, "a user's and a namespace's name are at most 256 bytes");
  }
  if (pod.throw_away || pod.wishes.gpus.empty()) return std::max<uint32_t>(1, count);
  auto gpus = ResolveGpus(pod.wishes.gpus, node);
  if (!gpus) return tl::unexpected(gpus.error());
  pod.wishes.gpus = std::move(*gpus);
  const auto named = static_cast<uint32_t>(pod.wishes.gpus.size());
  if (count > named) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("{} GPUs are asked for, and {} named", count, named));
  }
  return count == 0 ? named : count;
}

void Arbiter::CreatePod(Pod pod, uint32_t count, const std::string& node, const Made& done) {
  const auto resolved = Resolve(pod, count, node);
  if (!resolved) return done(tl::unexpected(resolved.error()));
  if (pod.throw_away) return done(Enter(std::move(pod)));
  if (pods_.FindByName(pod.name) != nullptr) {
    return done(Fail(ErrorCode::kExists, fmt::format("there is a pod {} already; choose another "
                                                     "name, or remove it with: baton rm {}",
                                                     pod.name, pod.name)));
  }
  if (auto idle = CheckIdle(pod); !idle) return done(tl::unexpected(idle.error()));
  if (auto placed = vgpus_.Place(pod, *resolved, node); !placed) {
    return done(tl::unexpected(placed.error()));
  }
  if (teams_ != nullptr) {
    if (auto admitted = teams_->Admit(pod); !admitted) {
      vgpus_.Remove(pod);
      return done(tl::unexpected(admitted.error()));
    }
  }
  if (pod.by_token()) {
    const Pod placed = pod;
    auto entered = Enter(std::move(pod));
    if (!entered) vgpus_.Remove(placed);
    return done(entered);
  }
  // Its room is kept meanwhile.
  if (maker_ == nullptr) {
    vgpus_.Remove(pod);
    return done(Fail(ErrorCode::kUnavailable, "nobody here makes devices of mode " + pod.mode));
  }
  under_way_.insert(pod.name);
  auto jobs = JobsFor(pod);
  maker_->Create(std::move(jobs), [this, alive = alive_, pod = std::move(pod),
                                   done](Result<std::vector<std::string>> devices) mutable {
    if (!*alive) return;
    under_way_.erase(pod.name);
    if (!devices) {
      vgpus_.Remove(pod);
      return done(tl::unexpected(devices.error()));
    }
    for (size_t i = 0; i < pod.vgpus.size(); ++i) pod.vgpus[i].device = (*devices)[i];
    const Pod placed = pod;
    auto entered = Enter(std::move(pod));
    if (!entered) {
      maker_->Destroy(JobsFor(placed), [](Result<void>) {});
      vgpus_.Remove(placed);
    }
    done(entered);
  });
}

// A pod that has its place.
Result<Pod*> Arbiter::Enter(Pod pod) {
  auto added = pods_.Add(std::move(pod));
  if (!added) return added;
  Pod& fresh = **added;
  for (const std::string& uuid : fresh.gpus) usage_.At(fresh.id, gpus_.at(uuid)->key, 0);
  PutOnGpus(fresh);
  if (fresh.throw_away) {
    unused_.emplace_back(MonotonicNow(), fresh.id);
    return &fresh;
  }
  SavePods();
  log_.Add(
      EventLog::Level::kInfo, "pod",
      fmt::format("{} created: request {}%, limit {}%{}", fresh.name, fresh.share.request / 1e4,
                  fresh.share.limit / 1e4, fresh.mode == kTimeSlice ? "" : ", " + fresh.mode));
  return &fresh;
}

void Arbiter::PutOnGpus(Pod& pod) {
  if (!pod.by_token()) return;
  for (const std::string& uuid : pod.gpus) {
    Gpu& gpu = *gpus_.at(uuid);
    TellShare(gpu, pod);
    gpu.pods[pod.id].series.Add(MonotonicNow(), HeldNow(gpu, pod.id, MonotonicNow()), 0);
  }
  FormGang(pod);
  WeighLater(pod);
}

void Arbiter::TakeOffGpus(const Pod& pod) {
  WeighLater(pod);
  gangs_.Remove(pod.id);
  for (const std::string& uuid : pod.gpus) {
    auto it = gpus_.find(uuid);
    // A token that it holds is taken back first.
    if (it != gpus_.end()) Step(*it->second, PodRemoved{pod.id});
  }
}

std::vector<DeviceJob> Arbiter::JobsFor(const Pod& pod) const {
  std::vector<DeviceJob> jobs;
  for (size_t i = 0; i < pod.gpus.size() && !pod.by_token(); ++i) {
    devmgr::Card card;
    card.uuid = pod.gpus[i];
    if (const devmgr::Card* known = vgpus_.CardOf(pod.gpus[i])) card = *known;
    jobs.push_back({pod.mode, std::move(card), vgpus_.ForDriver(pod, i)});
  }
  return jobs;
}

Result<void> Arbiter::CheckIdle(const Pod& pod) const {
  if (under_way_.count(pod.name) == 0) return {};
  return Fail(
      ErrorCode::kUnavailable,
      fmt::format("the devices of pod {} are being made or taken away; try again", pod.name));
}

void Arbiter::DeletePod(Pod& pod, const Done& done) {
  if (auto idle = CheckIdle(pod); !idle) return done(idle);
  if (pod.by_token() || maker_ == nullptr) {
    Drop(pod);
    return done({});
  }
  // Its place is free when nothing of it is left there. Until then it is a pod.
  under_way_.insert(pod.name);
  maker_->Destroy(JobsFor(pod), [this, alive = alive_, id = pod.id, name = pod.name,
                                 done](const Result<void>& gone) {
    if (!*alive) return;
    under_way_.erase(name);
    Pod* pod = pods_.Find(id);
    if (gone && pod != nullptr) Drop(*pod);
    done(gone);
  });
}

void Arbiter::Drop(Pod& pod) {
  const Pod left = pod;
  const PodId id = pod.id;
  // Its ticket is void from here on.
  pods_.Remove(id, keep_departed_ && !left.throw_away);
  vgpus_.Remove(left);
  const bool has_clients = clients_of_pod_.count(id) != 0;
  if (has_clients) leaving_.insert(id);
  TakeOffGpus(left);
  has_clients ? CloseWhenDrained(id) : ForgetPod(id);
  if (left.throw_away) return;
  BookAgain(nullptr);
  SavePods();
  log_.Add(EventLog::Level::kInfo, "pod", left.name + " deleted");
}

void Arbiter::MovePod(Pod& pod, const std::vector<std::string>& gpus, const std::string& node,
                      const Done& done) {
  if (auto idle = CheckIdle(pod); !idle) return done(idle);
  if (Runs(pod)) {
    return done(Fail(ErrorCode::kUnavailable,
                     fmt::format("pod {} runs; end its programs, then move it", pod.name)));
  }
  if (gpus.size() != pod.gpus.size()) {
    return done(Fail(ErrorCode::kInvalid,
                     fmt::format("pod {} has {} GPUs; name as many", pod.name, pod.gpus.size())));
  }
  const auto uuids = ResolveGpus(gpus, node);
  if (!uuids) return done(tl::unexpected(uuids.error()));
  const auto move = [this](Pod& pod, const std::vector<std::string>& to) -> Result<void> {
    Pod moved = pod;
    if (auto there = vgpus_.Move(moved, to); !there) return there;
    TakeOffGpus(pod);
    for (const std::string& gpu : pod.gpus) {
      if (auto it = gpus_.find(gpu); it != gpus_.end()) it->second->pods.erase(pod.id);
    }
    pod = std::move(moved);
    for (const std::string& gpu : pod.gpus) usage_.At(pod.id, gpus_.at(gpu)->key, 0);
    PutOnGpus(pod);
    BookAgain(nullptr);
    SavePods();
    std::string where;
    for (const std::string& gpu : pod.gpus) where += (where.empty() ? "" : ", ") + gpu;
    log_.Add(EventLog::Level::kInfo, "pod", fmt::format("{} moved to {}", pod.name, where));
    return {};
  };
  if (pod.by_token() && (pod.wishes.mode.empty() || pod.wishes.mode == pod.mode)) {
    auto moved = move(pod, *uuids);
    // Without a mode of its own it may have come to a card that is divided by MIG.
    if (!moved || pod.by_token()) return done(moved);
  }
  if (maker_ == nullptr) return done(Fail(ErrorCode::kUnavailable, "nobody here makes devices"));
  under_way_.insert(pod.name);
  const auto make = [this, alive = alive_, id = pod.id, name = pod.name,
                     done](const Result<void>& moved) {
    Pod* pod = pods_.Find(id);
    if (pod == nullptr || pod->by_token()) {
      under_way_.erase(name);
      return done(moved);
    }
    maker_->Create(JobsFor(*pod), [this, alive, id, name, moved,
                                   done](const Result<std::vector<std::string>>& devices) {
      if (!*alive) return;
      under_way_.erase(name);
      Pod* pod = pods_.Find(id);
      for (size_t i = 0; devices && pod != nullptr && i < pod->vgpus.size(); ++i) {
        pod->vgpus[i].device = (*devices)[i];
      }
      SavePods();
      if (!moved) return done(moved);
      if (!devices) return done(tl::unexpected(devices.error()));
      done({});
    });
  };
  if (pod.by_token()) return make({});
  maker_->Destroy(JobsFor(pod), [this, alive = alive_, id = pod.id, name = pod.name, to = *uuids,
                                 move, make, done](const Result<void>& gone) {
    if (!*alive) return;
    Pod* pod = pods_.Find(id);
    if (!gone || pod == nullptr) {
      under_way_.erase(name);
      return done(gone);
    }
    // Where that fails, what was there is made again.
    make(move(*pod, to));
  });
}

void Arbiter::SetDevices(const std::string& name, size_t index, const std::string& device) {
  Pod* pod = pods_.FindByName(name);
  if (pod == nullptr || index >= pod->vgpus.size() || pod->vgpus[index].device == device) return;
  pod->vgpus[index].device = device;
  SavePods();
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
  if (auto idle = CheckIdle(pod); !idle) return idle;
  const bool caps = change.memory_cap != nullptr;
  if (auto set = vgpus_.Resize(pod, *share, caps ? *change.memory_cap : pod.memory_cap,
                               caps ? change.memory_part : pod.memory_part);
      !set) {
    return set;
  }
  BookAgain(nullptr);
  WeighLater(pod);
  if (pod.mode == "mps" && maker_ != nullptr) {
    // The card's daemon is told; programs that run keep what they began with.
    maker_->Create(JobsFor(pod), [](Result<std::vector<std::string>>) {});
  }
  if (change.team != nullptr) pod.team = *change.team;
  for (const std::string& uuid : pod.gpus) {
    if (!pod.by_token()) break;
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
                       pod.share.request / 1e4, pod.share.limit / 1e4, CapText(pod),
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
    Pod* pod = pods_.Find(id);
    if (pod == nullptr) continue;
    DeletePod(*pod, [this, name = pod->name](const Result<void>& deleted) {
      if (deleted) return;
      log_.Add(EventLog::Level::kWarning, "pod",
               fmt::format("{}, which is not in the file any more, stays for now: {}", name,
                           deleted.error().message));
    });
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
      change.memory_part = c.memory_part;
      change.priority = &c.priority;
      change.team = &c.team;
      if (auto set = SetPod(*pod, change); !set) {
        log_.Add(EventLog::Level::kWarning, "pod",
                 fmt::format("[[pod]] {} is not applied: {}", c.name, set.error().message));
        continue;
      }
      bool elsewhere = false;
      if (!c.gpus.empty()) {
        const auto gpus = ResolveGpus(c.gpus, "*");
        elsewhere = gpus && *gpus != pod->wishes.gpus;
      }
      CardWishes wishes = c.wishes;
      wishes.gpus = pod->wishes.gpus;
      elsewhere |= wishes != pod->wishes || (c.count != 0 && c.count != pod->gpus.size());
      if (elsewhere || (!c.ticket.empty() && c.ticket != pod->ticket)) {
        log_.Add(
            EventLog::Level::kWarning, "pod",
            fmt::format("[[pod]] {}: ticket, GPUs and how it has them stay while a pod exists; "
                        "remove it from the file, reload, and put it back",
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
    fresh.memory_part = c.memory_part;
    fresh.wishes = c.wishes;
    fresh.wishes.gpus = c.gpus;
    fresh.ticket = c.ticket;
    fresh.uid = c.uid;
    fresh.independent = c.independent;
    fresh.from_file = fingerprint;
    CreatePod(std::move(fresh), c.count, "*", [this, name = c.name](const Result<Pod*>& added) {
      // A GPU that is not known yet may belong to a node that has not connected: tried again then.
      if (!added && added.error().code != ErrorCode::kNotFound) {
        log_.Add(EventLog::Level::kWarning, "pod",
                 fmt::format("[[pod]] {} is not created: {}", name, added.error().message));
      }
    });
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
    if (pod != nullptr && clients_of_pod_.count(id) == 0) Drop(*pod);
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
