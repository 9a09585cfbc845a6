#include "backend/pod_lifecycle.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "backend/latency.h"
#include "backend/memory_room.h"
#include "base/parse.h"
#include "base/utf8.h"

namespace baton::backend {
namespace {

std::string CapText(const Pod& pod) {
  if (pod.memory_cap != 0) return FormatBytes(pod.memory_cap);
  return pod.memory_part != policy::Share(0) ? policy::PercentText(pod.memory_part) + "%"
                                             : "without cap";
}

std::string LatencyText(const Pod& pod) {
  return pod.share.latency == Duration(0) ? "" : ", latency " + FormatDuration(pod.share.latency);
}

Result<void> CheckName(const std::string& name) {
  if (name.empty() || name.size() > 128 || !IsPrintable(name)) {
    return Fail(ErrorCode::kInvalid, "a pod's name is 1 to 128 printable characters");
  }
  return {};
}

}  // namespace

PodLifecycle::PodLifecycle(const config::Options& options, const Gpus& gpus, Vgpus& vgpus,
                           PodsFile& file, UsageBook& usage, Accounts& accounts,
                           Snapshots& snapshots, ClientTable& clients, Tokens& tokens,
                           PodShares& shares, node::EventLog& log)
    : options_(options),
      gpus_(gpus),
      vgpus_(vgpus),
      file_(file),
      pods_(file.pods()),
      usage_(usage),
      accounts_(accounts),
      snapshots_(snapshots),
      clients_(clients),
      tokens_(tokens),
      shares_(shares),
      log_(log) {}

Result<uint32_t> PodLifecycle::Resolve(Pod& pod, uint32_t count, const std::string& node) const {
  if (auto named = CheckName(pod.name); !named) return tl::unexpected(named.error());
  if (pod.team.size() > 256) return Fail(ErrorCode::kInvalid, "a team's path is too long");
  if (pod.user.size() > 256 || pod.name_space.size() > 256) {
    return Fail(ErrorCode::kInvalid, "a user's and a namespace's name are at most 256 bytes");
  }
  for (std::string& gpu : pod.wishes.not_gpus) {
    // One that is not there is no trouble.
    if (gpu.find_first_not_of("0123456789") != std::string::npos) continue;
    auto uuid = gpus_.Resolve({gpu}, node);
    if (!uuid) return tl::unexpected(uuid.error());
    gpu = uuid->front();
  }
  if (pod.throw_away || pod.wishes.gpus.empty()) return std::max<uint32_t>(1, count);
  auto gpus = gpus_.Resolve(pod.wishes.gpus, node);
  if (!gpus) return tl::unexpected(gpus.error());
  pod.wishes.gpus = std::move(*gpus);
  const auto named = static_cast<uint32_t>(pod.wishes.gpus.size());
  if (count > named) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("{} GPUs are requested, but {} are listed", count, named));
  }
  return count == 0 ? named : count;
}

void PodLifecycle::CountTaken() {
  if (std::exchange(counted_, many_)) return;
  vgpus_.cards().SetTaken(TakenMemory(gpus_, pods_));
}

// Where the hardware divides the GPU, or the pod has all of it, a cap would say nothing.
void PodLifecycle::SetDefaultCap(Pod& pod) const {
  const std::string& mode = pod.wishes.mode;
  if (pod.throw_away || pod.memory_cap != 0 || pod.memory_part != policy::Share(0)) return;
  if (pod.swap) return;  // it has what its request says, and what is left
  if (mode == spec::kExclusive || mode == spec::kMig) return;
  pod.memory_part = options_.default_cap;
}

void PodLifecycle::CreatePod(Pod pod, uint32_t count, const std::string& node, const Made& done) {
  const auto resolved = Resolve(pod, count, node);
  if (!resolved) return done(tl::unexpected(resolved.error()));
  if (pod.throw_away) return done(Enter(std::move(pod)));
  if (pods_.FindByName(pod.name) != nullptr) {
    return done(Fail(ErrorCode::kExists, fmt::format("there is a pod {} already; choose another "
                                                     "name, or remove it with: baton rm {}",
                                                     pod.name, pod.name)));
  }
  if (auto swap = spec::CheckSwap(pod); !swap) return done(tl::unexpected(swap.error()));
  if (auto idle = CheckIdle(pod); !idle) return done(tl::unexpected(idle.error()));
  if (auto joins = CheckGang(pod); !joins) return done(tl::unexpected(joins.error()));
  SetDefaultCap(pod);
  CountTaken();
  const auto late = WithoutLatency(gpus_.OfNode(node), pods_, pod);
  if (!late) return done(tl::unexpected(late.error()));
  const std::vector<std::string> said = pod.wishes.not_gpus;
  pod.wishes.not_gpus.insert(pod.wishes.not_gpus.end(), late->begin(), late->end());
  const auto placed = vgpus_.Place(pod, *resolved, node);
  pod.wishes.not_gpus = said;
  if (!placed) {
    const std::string why =
        late->empty() ? ""
                      : fmt::format("; its latency cannot be met on {}", fmt::join(*late, ", "));
    return done(Fail(placed.error().code, placed.error().message + why));
  }
  if (auto admitted = shares_.Admit(pod); !admitted) {
    vgpus_.Remove(pod);
    return done(tl::unexpected(admitted.error()));
  }
  if (!pod.has_devices()) {
    const Pod placed = pod;
    auto entered = Enter(std::move(pod));
    if (!entered) vgpus_.Remove(placed);
    return done(entered);
  }
  // Its room is kept meanwhile.
  if (maker_ == nullptr) {
    vgpus_.Remove(pod);
    return done(Fail(ErrorCode::kUnavailable, "this batond makes no devices of mode " + pod.mode));
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
Result<Pod*> PodLifecycle::Enter(Pod pod) {
  auto added = pods_.Add(std::move(pod));
  if (!added) return added;
  Pod& fresh = **added;
  for (const std::string& uuid : fresh.gpus) usage_.At(fresh.id, gpus_.Find(uuid)->key, 0);
  PutOnGpus(fresh);
  if (fresh.throw_away) {
    unused_.emplace_back(MonotonicNow(), fresh.id);
    return &fresh;
  }
  file_.Save();
  log_.Add(node::EventLog::Level::kInfo, "pod",
           fmt::format("{} created: request {}%, limit {}%{}{}{}", fresh.name,
                       policy::Percent(fresh.share.request), policy::Percent(fresh.share.limit),
                       LatencyText(fresh), fresh.mode == spec::kTimeSlice ? "" : ", " + fresh.mode,
                       fresh.gang.empty() ? "" : ", of gang " + fresh.gang));
  if (fresh.beside_own) {
    log_.Add(node::EventLog::Level::kWarning, "pod",
             fmt::format("{} shares a GPU with another pod of gang {}: its tokens come by "
                         "themselves, not with the others'",
                         fresh.name, fresh.gang));
  }
  return &fresh;
}

void PodLifecycle::PutOn(Gpu& gpu, const Pod& pod) {
  shares_.Tell(gpu, pod);
  const Instant now = MonotonicNow();
  gpu.pods[pod.id].series.Add(now, accounts_.UsedNow(gpu, pod.id, now), 0);
}

void PodLifecycle::Allocate(Gpu& gpu, const Pod& pod) {
  for (size_t i = 0; i < pod.gpus.size() && !pod.by_token(); ++i) {
    if (pod.gpus[i] != gpu.info.uuid) continue;
    accounts_.Allocate(gpu, pod.id, pod.allocated ? policy::kWhole : pod.vgpus[i].fit.share);
  }
}

void PodLifecycle::PutOnGpus(const Pod& pod) {
  for (const std::string& uuid : pod.gpus) Allocate(*gpus_.Find(uuid), pod);
  if (!pod.by_token()) return;
  for (const std::string& uuid : pod.gpus) PutOn(*gpus_.Find(uuid), pod);
  tokens_.FormGang(pod);
  shares_.WeighLater(pod);
}

void PodLifecycle::PutPodsOn(Gpu& gpu) {
  for (const auto& [id, pod] : pods_.all()) {
    if (!pod.Has(gpu.info.uuid)) continue;
    Allocate(gpu, pod);
    if (pod.by_token()) PutOn(gpu, pod);
  }
}

void PodLifecycle::TakeOffGpus(const Pod& pod) {
  shares_.WeighLater(pod);
  tokens_.LeaveGang(pod);
  for (const std::string& uuid : pod.gpus) {
    // A token that it holds is taken back first.
    if (Gpu* gpu = gpus_.Find(uuid)) {
      tokens_.Step(*gpu, scheduler::PodRemoved{pod.id});
      accounts_.Free(*gpu, pod.id);
    }
  }
}

std::vector<DeviceJob> PodLifecycle::JobsFor(const Pod& pod) const {
  std::vector<DeviceJob> jobs;
  for (size_t i = 0; i < pod.gpus.size() && pod.has_devices(); ++i) {
    devmgr::Card card;
    card.uuid = pod.gpus[i];
    if (const devmgr::Card* known = vgpus_.cards().Find(pod.gpus[i])) card = *known;
    jobs.push_back({pod.mode, std::move(card), vgpus_.ForDriver(pod, i)});
  }
  return jobs;
}

Result<void> PodLifecycle::CheckIdle(const Pod& pod) const {
  if (under_way_.count(pod.name) == 0) return {};
  return Fail(
      ErrorCode::kUnavailable,
      fmt::format("the devices of pod {} are being created or deleted; try again", pod.name));
}

// A size that is not the others', or one pod too many, is a mistake that would show as a wait
// without end.
Result<void> PodLifecycle::CheckGang(const Pod& pod) const {
  if (pod.gang.empty()) return {};
  if (!pod.wishes.mode.empty() && !spec::ByToken(pod.wishes.mode)) {
    return Fail(
        ErrorCode::kInvalid,
        fmt::format("pods in mode {} have no tokens, so they are in no gang; leave the gang "
                    "or the mode out",
                    pod.wishes.mode));
  }
  std::vector<std::string> names;
  for (const Pod* other : pods_.NamedGang(pod.gang)) {
    if (other->gang_size != pod.gang_size) {
      return Fail(ErrorCode::kInvalid,
                  fmt::format("gang {} has size {} in pod {}; say the same, or name another gang",
                              pod.gang, other->gang_size, other->name));
    }
    names.push_back(other->name);
  }
  if (pod.gang_size == 0 || names.size() < pod.gang_size) return {};
  return Fail(ErrorCode::kExists,
              fmt::format("gang {} has all of its {} pods ({}); remove one, or name another gang",
                          pod.gang, pod.gang_size, fmt::join(names, ", ")));
}

void PodLifecycle::DeletePod(Pod& pod, const Done& done) {
  if (auto idle = CheckIdle(pod); !idle) return done(idle);
  if (!pod.has_devices() || maker_ == nullptr) {
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

void PodLifecycle::Drop(Pod& pod) {
  const Pod left = pod;
  const PodId id = pod.id;
  // Its ticket is void from here on.
  pods_.Remove(id, snapshots_.keeps_departed() && !left.throw_away);
  vgpus_.Remove(left);
  const bool has_clients = !clients_.OfPod(id).empty();
  counted_ = counted_ && !has_clients;
  if (has_clients) clients_.BeginLeaving(id);
  TakeOffGpus(left);
  has_clients ? CloseWhenDrained(id) : ForgetPod(id);
  if (left.throw_away) return;
  ReserveAgain([&left](const Pod& pod) {
    return std::any_of(left.gpus.begin(), left.gpus.end(),
                       [&pod](const std::string& gpu) { return pod.Has(gpu); });
  });
  file_.Save();
  log_.Add(node::EventLog::Level::kInfo, "pod", left.name + " deleted");
  if (dropped_) dropped_(left);
}

void PodLifecycle::MovePod(Pod& pod, const std::vector<std::string>& gpus, const std::string& node,
                           const Done& done) {
  if (auto idle = CheckIdle(pod); !idle) return done(idle);
  if (Runs(pod)) {
    return done(Fail(ErrorCode::kUnavailable,
                     fmt::format("pod {} is running; end its programs, then move it", pod.name)));
  }
  if (gpus.size() != pod.gpus.size()) {
    return done(Fail(ErrorCode::kInvalid,
                     fmt::format("pod {} has {} GPUs; list as many", pod.name, pod.gpus.size())));
  }
  const auto uuids = gpus_.Resolve(gpus, node);
  if (!uuids) return done(tl::unexpected(uuids.error()));
  const auto move = [this](Pod& pod, const std::vector<std::string>& to) -> Result<void> {
    Pod moved = pod;
    CountTaken();
    if (auto there = vgpus_.Move(moved, to); !there) return there;
    TakeOffGpus(pod);
    for (const std::string& gpu : pod.gpus) {
      if (Gpu* left = gpus_.Find(gpu)) left->pods.erase(pod.id);
    }
    pod = std::move(moved);
    pods_.Changed(pod.id);
    pods_.JoinGang(pod);
    for (const std::string& gpu : pod.gpus) usage_.At(pod.id, gpus_.Find(gpu)->key, 0);
    PutOnGpus(pod);
    ReserveAgain(nullptr);
    file_.Save();
    std::string where;
    for (const std::string& gpu : pod.gpus) where += (where.empty() ? "" : ", ") + gpu;
    log_.Add(node::EventLog::Level::kInfo, "pod", fmt::format("{} moved to {}", pod.name, where));
    return {};
  };
  if (!pod.has_devices() && (pod.wishes.mode.empty() || pod.wishes.mode == pod.mode)) {
    auto moved = move(pod, *uuids);
    // Without a mode of its own it may have come to a GPU that is divided by MIG.
    if (!moved || !pod.has_devices()) return done(moved);
  }
  if (maker_ == nullptr) return done(Fail(ErrorCode::kUnavailable, "this batond makes no devices"));
  under_way_.insert(pod.name);
  const auto make = [this, alive = alive_, id = pod.id, name = pod.name,
                     done](const Result<void>& moved) {
    Pod* pod = pods_.Find(id);
    if (pod == nullptr || !pod->has_devices()) {
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
        pods_.Changed(id);
      }
      file_.Save();
      if (!moved) return done(moved);
      if (!devices) return done(tl::unexpected(devices.error()));
      done({});
    });
  };
  if (!pod.has_devices()) return make({});
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

void PodLifecycle::SetDevices(const std::string& name, size_t index, const std::string& device) {
  Pod* pod = pods_.FindByName(name);
  if (pod == nullptr || index >= pod->vgpus.size() || pod->vgpus[index].device == device) return;
  pod->vgpus[index].device = device;
  pods_.Changed(pod->id);
  file_.Save();
}

void PodLifecycle::ClientLeft(PodId id) {
  if (!clients_.OfPod(id).empty()) {
    if (clients_.Leaves(id)) CloseWhenDrained(id);
    return;
  }
  Pod* pod = pods_.Find(id);
  if (clients_.Leaves(id)) {
    ForgetPod(id);
  } else if (pod != nullptr && pod->throw_away) {
    Drop(*pod);
  }
}

void PodLifecycle::CloseWhenDrained(PodId pod) {
  std::vector<ClientId> drained;
  for (const Client* client : clients_.OfPod(pod)) {
    if (HoldsAnything(*client)) return;
    const bool idle = std::all_of(client->lanes.begin(), client->lanes.end(), [](const auto& lane) {
      return lane->phase == wire::Phase::kIdle || lane->phase == wire::Phase::kWaiting;
    });
    if (idle && client->link != nullptr && client->connected) drained.push_back(client->id);
  }
  for (const ClientId id : drained) {
    if (const Client* client = clients_.Find(id)) {
      Refuse(*client, wire::ErrorKind::kUnknownPod, "the pod was deleted");
    }
  }
}

void PodLifecycle::ForgetPod(PodId pod) {
  clients_.EndLeaving(pod);
  for (Gpu* gpu : gpus_.all()) gpu->pods.erase(pod);
  if (pods_.departed().count(pod) == 0) usage_.Drop(pod, 0);
}

Result<void> PodLifecycle::SetPod(Pod& pod, const spec::PodRequest& asked) {
  if (auto ok = spec::CheckShare(asked.share, pod.mode, pod.in_gang()); !ok) return ok;
  if (auto ok = spec::CheckSwap(asked); !ok) return ok;
  Pod changed = pod;
  changed.share = asked.share;
  changed.team = asked.team;
  for (const std::string& uuid : pod.gpus) {
    const Gpu* gpu = gpus_.Find(uuid);
    if (gpu == nullptr || asked.share == pod.share) continue;
    if (auto ok = CheckLatency(*gpu, pods_, changed); !ok) return ok;
  }
  if (auto admitted = shares_.Admit(changed); !admitted) return admitted;
  if (auto idle = CheckIdle(pod); !idle) return idle;
  const bool attaches =
      asked.memory_cap != pod.memory_cap || asked.memory_part != pod.memory_part ||
      asked.memory_request != pod.memory_request || asked.share.priority != pod.share.priority;
  CountTaken();
  if (auto set = vgpus_.Resize(pod, asked.share, asked.memory_cap, asked.memory_part,
                               asked.memory_request);
      !set) {
    return set;
  }
  counted_ = counted_ && !Runs(pod);
  pods_.Changed(pod.id);
  ReserveAgain(nullptr);
  shares_.WeighLater(pod);
  if (pod.mode == spec::kMps && maker_ != nullptr) {
    // The GPU's daemon is told; programs that run keep what they began with.
    maker_->Create(JobsFor(pod), [](Result<std::vector<std::string>>) {});
  }
  if (asked.team != pod.team) snapshots_.OwnerChanges(pod);
  pod.team = asked.team;
  for (const std::string& uuid : pod.gpus) {
    if (Gpu* gpu = gpus_.Find(uuid)) {
      pod.by_token() ? shares_.Tell(*gpu, pod) : Allocate(*gpu, pod);
    }
  }
  if (attaches) {
    for (const Client* client : clients_.OfPod(pod.id)) {
      for (auto& lane : client->lanes) {
        if (lane->attached) {
          SendAttached(options_, *lane, &pod, MemoryBound(*lane->gpu, pods_, pod));
        }
      }
    }
  }
  file_.Save();
  log_.Add(node::EventLog::Level::kInfo, "pod",
           fmt::format("{} set: request {}%, limit {}%, memory {}, priority {}{}", pod.name,
                       policy::Percent(pod.share.request), policy::Percent(pod.share.limit),
                       CapText(pod), spec::PriorityWord(pod.share.priority), LatencyText(pod)));
  return {};
}

void PodLifecycle::ApplyConfiguredPods(const std::vector<config::ConfiguredPod>& configured,
                                       MadeOfFile made) {
  if (&configured != &configured_) configured_ = configured;
  made_of_file_ = std::move(made);
  configured_known_ = true;
  const PodsFile::Batch one_write(file_);
  many_ = true;
  // Those that left the file.
  std::unordered_set<std::string_view> listed;
  for (const config::ConfiguredPod& one : configured_) listed.insert(one.request.name);
  std::vector<PodId> left;
  for (const auto& [id, pod] : pods_.all()) {
    if (!pod.from_file.empty() && listed.count(pod.name) == 0) left.push_back(id);
  }
  for (const PodId id : left) {
    Pod* pod = pods_.Find(id);
    if (pod == nullptr) continue;
    DeletePod(*pod, [this, name = pod->name](const Result<void>& deleted) {
      if (deleted) return;
      log_.Add(node::EventLog::Level::kWarning, "pod",
               fmt::format("{} is no longer in the file, but stays for now: {}", name,
                           deleted.error().message));
    });
  }
  for (const auto& [asked, fingerprint] : configured_) {
    Pod* pod = pods_.FindByName(asked.name);
    if (pod != nullptr && pod->from_file == fingerprint) continue;
    // A user has the ticket of a pod that the user made, and would have what the file gives.
    if (pod != nullptr && pod->from_file.empty() && pod->uid > 0 && pod->uid != asked.uid) {
      log_.Add(node::EventLog::Level::kWarning, "pod",
               fmt::format("[[pod]] {} is not applied: user {} has a pod of that name; remove it "
                           "with 'baton rm {}', and reload",
                           asked.name, pod->user.empty() ? std::to_string(pod->uid) : pod->user,
                           asked.name));
      continue;
    }
    if (pod != nullptr) {
      if (auto set = SetPod(*pod, asked); !set) {
        log_.Add(node::EventLog::Level::kWarning, "pod",
                 fmt::format("[[pod]] {} is not applied: {}", asked.name, set.error().message));
        continue;
      }
      spec::CardWishes wishes = asked.wishes;
      wishes.gpus = pod->wishes.gpus;
      bool elsewhere =
          wishes != pod->wishes || (asked.count != 0 && asked.count != pod->gpus.size());
      if (!asked.wishes.gpus.empty()) {
        const auto gpus = gpus_.Resolve(asked.wishes.gpus, "*");
        elsewhere |= gpus && *gpus != pod->wishes.gpus;
      }
      if (elsewhere || (!asked.ticket.empty() && asked.ticket != pod->ticket)) {
        log_.Add(
            node::EventLog::Level::kWarning, "pod",
            fmt::format("[[pod]] {}: ticket, GPUs and mode cannot change while the pod exists; "
                        "remove it from the file, reload, and put it back",
                        asked.name));
      }
      if (asked.user != pod->user || asked.name_space != pod->name_space) {
        snapshots_.OwnerChanges(*pod);
      }
      pod->user = asked.user;
      pod->name_space = asked.name_space;
      pod->uid = asked.uid;
      pod->from_file = fingerprint;
      pods_.Changed(pod->id);
      file_.Save();
      continue;
    }
    Pod fresh;
    static_cast<spec::PodRequest&>(fresh) = asked;
    fresh.from_file = fingerprint;
    CreatePod(
        std::move(fresh), asked.count, "*", [this, name = asked.name](const Result<Pod*>& added) {
          if (added && made_of_file_) made_of_file_(**added);
          // A GPU that is not known yet may belong to a node that has not connected: tried again
          // then.
          if (!added && added.error().code != ErrorCode::kNotFound) {
            log_.Add(node::EventLog::Level::kWarning, "pod",
                     fmt::format("[[pod]] {} is not created: {}", name, added.error().message));
          }
        });
  }
  many_ = counted_ = false;
}

void PodLifecycle::ReserveAgain(const std::function<bool(const Pod&)>& which) {
  if (vgpus_.unreserved().empty()) return;
  std::vector<std::pair<PodId, std::vector<devmgr::Fit>>> tried;
  const auto fits = [](const Pod& pod) {
    std::vector<devmgr::Fit> all;
    for (const PodVgpu& vgpu : pod.vgpus) all.push_back(vgpu.fit);
    return all;
  };
  vgpus_.ReserveAgain([&](PodId id) -> Pod* {
    Pod* pod = pods_.Find(id);
    if (pod == nullptr || !which(*pod)) return nullptr;
    tried.emplace_back(id, fits(*pod));
    return pod;
  });
  for (const auto& [id, before] : tried) {
    if (fits(*pods_.Find(id)) != before) pods_.Changed(id);
  }
}

void PodLifecycle::ReserveAgain(const std::string* gpu) {
  ReserveAgain([gpu](const Pod& pod) { return gpu == nullptr || pod.Has(*gpu); });
}

void PodLifecycle::ApplyConfiguredPodsAgain() {
  if (configured_known_) ApplyConfiguredPods(configured_, made_of_file_);
}

void PodLifecycle::DropUnused(Instant now) {
  while (!unused_.empty() && now - unused_.front().first > std::chrono::minutes(1)) {
    const PodId id = unused_.front().second;
    unused_.pop_front();
    Pod* pod = pods_.Find(id);
    if (pod != nullptr && !Runs(*pod)) Drop(*pod);
  }
}

}  // namespace baton::backend
