#include "backend/arbiter.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <boost/asio/post.hpp>

#include "base/check.h"
#include "base/parse.h"
#include "wire/codec.h"

namespace baton::backend {
namespace {

// Each client of a token is a member in the holder's file.
constexpr size_t kClientsPerPodAndGpu = HolderFile::kMembersMax;
constexpr Duration kTickEvery = std::chrono::microseconds(100);

template <class Message>
void SendTo(Arbiter::Client& client, const Message& message) {
  if (client.link == nullptr || !client.connected) return;
  char buffer[512];
  const size_t size = wire::Encode(message, buffer, sizeof buffer);
  BATON_CHECK(size != 0);
  client.link->Send(client.number, {buffer, size});
}

void Refuse(Arbiter::Client& client, wire::ErrorKind kind, const std::string& text) {
  if (client.link != nullptr && client.connected) client.link->Refuse(client.number, kind, text);
}

// Adds what `now` says beyond `last` to `total`.
void Advance(uint64_t& last, uint64_t now, uint64_t& total) {
  if (now <= last) return;
  total += now - last;
  last = now;
}

std::string Where(const Arbiter::Client& client) {
  return fmt::format("pid {}{}{}", client.pid, client.node.empty() ? "" : " on ", client.node);
}

}  // namespace

void Series::Add(Instant now, uint64_t held_ns, uint64_t waited_ns) {
  samples_[count_++ % samples_.size()] = {now, held_ns, waited_ns};
}

Series::Shares Series::Over(Duration window, Instant now, uint64_t held_ns,
                            uint64_t waited_ns) const {
  // The newest sample that is at least `window` old, else the oldest there is.
  const size_t kept = std::min(count_, samples_.size());
  const Sample* from = nullptr;
  for (size_t i = 1; i <= kept; ++i) {
    from = &samples_[(count_ - i) % samples_.size()];
    if (now - from->at >= window) break;
  }
  if (from == nullptr || now <= from->at) return {};
  const auto span = static_cast<double>(Nanos(now - from->at));
  auto part = [&](uint64_t newer, uint64_t older) {
    return newer <= older ? 0 : std::min(1.0, static_cast<double>(newer - older) / span);
  };
  return {part(held_ns, from->held_ns), part(waited_ns, from->waited_ns)};
}

Arbiter::Arbiter(boost::asio::io_context& io, const Options& options, Pods& pods, Vgpus& vgpus,
                 UsageBook& usage, EventLog& log)
    : io_(io),
      options_(options),
      pods_(pods),
      vgpus_(vgpus),
      usage_(usage),
      log_(log),
      boot_id_(BootId()),
      gangs_(options.scheduler.scheduler),
      gang_timer_(io),
      sampler_(io) {
  vgpus_.SetCordoned(pods_.cordoned());
  // Until their cards have come they wait for them.
  for (const auto& [id, pod] : pods_.all()) vgpus_.Book(*pods_.Find(id));
  Sample();
}

Arbiter::~Arbiter() { *alive_ = false; }

Arbiter::Client* Arbiter::Find(ClientId id) {
  auto it = client_index_.find(id.value);
  return it == client_index_.end() ? nullptr : it->second;
}

Arbiter::Client* Arbiter::FindProcess(const Process& process, uint64_t incarnation) {
  for (auto [it, end] = by_process_.equal_range(process); it != end; ++it) {
    Client* client = Find(it->second);
    if (client->incarnation == incarnation) return client;
  }
  return nullptr;
}

bool Arbiter::HoldsAnything(const Client& client) const {
  return std::any_of(client.lanes.begin(), client.lanes.end(),
                     [&](const auto& lane) { return lane->gpu->scheduler.Holds(client.id); });
}

Arbiter::Lane* Arbiter::FindLane(Client& client, uint8_t index) {
  if (index < wire::kGpusMax) {
    Lane* lane = client.by_index[index];
    if (lane != nullptr && lane->attached) return lane;
  }
  Refuse(client, wire::ErrorKind::kProtocol, "attach to a GPU before speaking about it");
  return nullptr;
}

// ------------------------------------------------------------------------------ the token's path

void Arbiter::Step(Gpu& gpu, const Event& event) {
  const bool had_gangs = gpu.scheduler.has_gangs();
  StepOne(gpu, event);
  if (had_gangs || gpu.scheduler.has_gangs()) TendGangs();
}

void Arbiter::TendGangs() {
  gangs_.Tend(MonotonicNow(), [this](const TokenScheduler& scheduler, const GangStep& step) {
    StepOne(*by_scheduler_.at(&scheduler), step);
  });
  const Instant at = gangs_.wakeup();
  if (at >= gang_armed_) return;
  gang_armed_ = at;
  gang_timer_.expires_at(
      std::chrono::steady_clock::time_point(std::chrono::nanoseconds(Nanos(at))));
  gang_timer_.async_wait([this, alive = alive_](const boost::system::error_code& error) {
    if (error || !*alive) return;
    gang_armed_ = kNever;
    TendGangs();
  });
}

// A gang can stand in line once all its GPUs are there. Before that it may hold one of them, since
// before this daemon started.
void Arbiter::FormGang(const Pod& pod) {
  if (!pod.gang()) return;
  std::vector<TokenScheduler*> gpus;
  for (Gpu* gpu : gpu_order_) {
    if (pod.Has(gpu->info.uuid)) gpus.push_back(&gpu->scheduler);
  }
  const bool complete = gpus.size() == pod.gpus.size();
  if (!gpus.empty()) gangs_.Add(pod.id, std::move(gpus), complete);
}

void Arbiter::StepOne(Gpu& gpu, const Event& event) {
  const Instant now = MonotonicNow();
  effects_.clear();
  gpu.scheduler.Step(now, event, effects_);
  for (const Effect& effect : effects_) CarryOut(gpu, now, effect);
  NoteIdle(gpu, now);
  Arm(gpu);
}

void Arbiter::CarryOut(Gpu& gpu, Instant now, const Effect& effect) {
  if (const auto* send = std::get_if<SendToken>(&effect)) {
    auto it = gpu.lanes.find(send->client.value);
    // One that held before a restart is connected before it says which index stands for this GPU.
    if (it == gpu.lanes.end() || !it->second->attached) return;
    wire::Token token;
    token.gpu = it->second->index;
    token.epoch = send->epoch;
    token.rev = send->rev;
    token.quota_ns = static_cast<uint64_t>(Nanos(send->quota));
    token.contended = send->contended;
    SendTo(*it->second->client, token);
  } else if (const auto* store = std::get_if<StoreHolder>(&effect)) {
    auto it = gpu.lanes.find(store->client.value);
    if (it == gpu.lanes.end()) return;
    Lane& lane = *it->second;
    const Client& client = *lane.client;
    gpu.clear_file = false;
    if (gpu.holder != store->pod) {
      gpu.holder = store->pod;
      gpu.granted_at = now;
      gpu.hold = {store->pod, now - store->waited, now};
      ++gpu.grants;
      ++lane.total->usage.grants;
      lane.total->BeginHold(store->epoch);
    }
    if (gpu.file.Full(store->epoch)) {
      // Processes that came and went under this one token.
      gpu.file.Keep([&](const HolderFile::Member& member) {
        const Client* known =
            FindProcess({gpu.node, member.pid, member.start_time}, member.incarnation);
        return known != nullptr && gpu.scheduler.Holds(known->id);
      });
    }
    gpu.holder_stored = gpu.file.Store(
        store->epoch, {store->pod.value, client.pid, client.start_time, client.incarnation,
                       static_cast<uint64_t>(Nanos(store->joined_at))});
  } else if (const auto* charged = std::get_if<Charged>(&effect)) {
    // Booked as charged, however the token comes back.
    gpu.held += charged->held;
    if (UsageEntry* account = Account(gpu, charged->pod)) {
      account->usage.held_ns += static_cast<uint64_t>(Nanos(charged->held));
    }
    gpu.granted_at = now;  // from here on HeldNow reckons what is not booked yet
  } else if (std::holds_alternative<ClearHolders>(effect)) {
    gpu.hold.returned_at = now;
    to_record_.emplace_back(&gpu, gpu.hold);
    gpu.holder = PodId{};
    gpu.hung = false;
    gpu.file.Forget();
    // Written later: until then a restart would wait for somebody who has drained, no more.
    gpu.clear_file = true;
    to_clear_.push_back(&gpu);
    Later();
  } else if (const auto* kill = std::get_if<KillClient>(&effect)) {
    auto it = gpu.lanes.find(kill->client.value);
    if (it == gpu.lanes.end()) return;
    Client& client = *it->second->client;
    if (client.link == nullptr) return;
    client.link->KillProcess(client.number);
    log_.Add(EventLog::Level::kWarning, "token",
             fmt::format("killed {}: it did not drain within {}", Where(client),
                         FormatDuration(options_.scheduler.scheduler.drain_timeout)));
  } else if (const auto* notice = std::get_if<Notice>(&effect)) {
    to_note_.emplace_back(&gpu, *notice);
    Later();
  }
}

void Arbiter::Arm(Gpu& gpu) {
  // Ticks that lie close together are one: no deadline needs to be met that exactly.
  const Instant at = std::max(gpu.scheduler.wakeup(), gpu.ticked + kTickEvery);
  // A timer that is due too early only looks again; moving it would cost a system call each time.
  if (at >= gpu.armed) return;
  gpu.armed = at;
  gpu.timer.expires_at(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(Nanos(at))));
  gpu.timer.async_wait([this, alive = alive_, &gpu](const boost::system::error_code& error) {
    if (error || !*alive) return;
    gpu.armed = kNever;
    if (const Instant now = MonotonicNow(); now >= gpu.scheduler.wakeup()) {
      gpu.ticked = now;
      Step(gpu, Tick{});
    } else {
      Arm(gpu);
    }
  });
}

void Arbiter::State(ClientId id, const wire::State& state, Duration held) {
  Client* client = Find(id);
  if (client == nullptr) return;
  Lane* lane = FindLane(*client, state.gpu);
  if (lane == nullptr || state.seq <= lane->seq) return;
  lane->seq = state.seq;
  lane->phase = state.phase;
  if (enforcing()) {
    const uint64_t settled = lane->last->usage.held_ns;
    const uint64_t claimed = std::max(state.held_ns, settled) - settled;
    Step(*lane->gpu, ClientReport{client->id, state.seq, state.phase, state.epoch, state.rev, held,
                                  DurationFromNanos(claimed), DurationFromNanos(state.backlog_ns)});
  }
  if (state.phase == wire::Phase::kDraining && lane->gpu->hold.drains_since == kNever) {
    lane->gpu->hold.drains_since = MonotonicNow();
  }
  Book(*lane, state);
  if (leaving_.count(client->pod) != 0) CloseWhenDrained(client->pod);
}

// Everything below this line runs after the tokens are out.

void Arbiter::Book(Lane& lane, const wire::State& state) {
  UsageEntry& total = *lane.total;
  Usage& last = lane.last->usage;
  usage_.Begin(total, *lane.last);
  if (!enforcing()) {
    Advance(last.held_ns, state.held_ns, total.usage.held_ns);
  } else if (!lane.gpu->scheduler.Holds(lane.client->id, state.epoch)) {
    // Where tokens are given out, held time is booked as they are charged.
    last.held_ns = std::max(last.held_ns, state.held_ns);
  }
  lane.gpu->busy_ns += std::max(last.busy_ns, state.busy_ns) - last.busy_ns;
  Advance(last.busy_ns, state.busy_ns, total.usage.busy_ns);
  Advance(last.launches, state.launches, total.usage.launches);
  Advance(last.waited_ns, state.waited_ns, total.usage.waited_ns);
  Advance(last.unmanaged_ns, state.unmanaged_ns, total.usage.unmanaged_ns);
  Advance(last.copies_bytes, state.copies_bytes, total.usage.copies_bytes);
  usage_.End();
  if (!lane.memory_said) {
    // It was attached before this daemon was: what it holds is a fact, not a request.
    lane.memory_said = true;
    const uint64_t total = lane.gpu->info.memory_bytes;
    const uint64_t said = total == 0 ? 0 : std::min(state.memory_bytes, total);
    SetMemory(lane, said);
  }
}

void Arbiter::Later() {
  if (later_) return;
  later_ = true;
  boost::asio::post(io_, [this, alive = alive_] {
    if (*alive) DoLater();
  });
}

void Arbiter::DoLater() {
  later_ = false;
  for (Gpu* gpu : to_clear_) {
    if (gpu->clear_file) gpu->holder_stored = gpu->file.Clear();
    gpu->clear_file = false;
  }
  to_clear_.clear();
  for (const auto& [gpu, hold] : to_record_) Record(*gpu, hold);
  to_record_.clear();
  if (!to_weigh_.empty()) {
    // One at a time: frames that arrive meanwhile go first.
    Gpu* gpu = to_weigh_.back();
    to_weigh_.pop_back();
    gpu->weigh = false;
    Weigh(*gpu);
    if (!to_weigh_.empty()) Later();
  }
  for (auto& [gpu, notice] : to_note_) Note(*gpu, notice);
  to_note_.clear();
}

void Arbiter::Note(Gpu& gpu, const Notice& notice) {
  const Pod* pod = pods_.Find(notice.pod);
  const std::string name = pod != nullptr ? pod->name : "a deleted pod";
  const Client* client = Find(notice.client);
  const std::string who = client != nullptr ? name + " (" + Where(*client) + ")" : name;
  switch (notice.kind) {
    case Notice::Kind::kHung:
      gpu.hung = true;
      log_.Add(EventLog::Level::kWarning, "token",
               fmt::format("{} on {} has not drained for {}: it is stopped, or a kernel does not "
                           "end; the GPU waits for it{}",
                           who, gpu.info.uuid, FormatDuration(notice.by),
                           options_.scheduler.scheduler.drain_kill
                               ? ""
                               : " (scheduler.drain_action = \"kill\" would end it)"));
      return;
    case Notice::Kind::kOverrun:
      ++gpu.overruns;
      log_.Add(EventLog::Level::kDebug, "token",
               fmt::format("{} on {} overran its token by {}", who, gpu.info.uuid,
                           FormatDuration(notice.by)));
      return;
    case Notice::Kind::kRevoked:
      if (UsageEntry* account = Account(gpu, notice.pod)) ++account->usage.revocations;
      log_.Add(EventLog::Level::kDebug, "token",
               fmt::format("{} on {} was revoked", who, gpu.info.uuid));
      return;
    case Notice::Kind::kReopened:
      log_.Add(EventLog::Level::kDebug, "token",
               fmt::format("{} on {} got its token again: its drain waited for its own launch", who,
                           gpu.info.uuid));
      return;
  }
}

// --------------------------------------------------------------------------------------- clients

ClientId Arbiter::Up(ClientLink& link, uint64_t number, const std::string& node, uint64_t pid,
                     uint64_t start_time, uint64_t uid, std::string_view kubernetes_pod,
                     const wire::Hello& hello) {
  const Process process{node, pid, start_time};
  Client* client = FindProcess(process, hello.incarnation);
  const Pod* pod = pods_.FindByTicket(hello.ticket.view());
  // Who still holds something of a deleted pod comes back to say that it has drained.
  const bool leaves = pod == nullptr && client != nullptr && leaving_.count(client->pod) != 0 &&
                      HoldsAnything(*client);
  if (pod == nullptr && !leaves) {
    link.Refuse(number, wire::ErrorKind::kUnknownPod,
                "BATON_TICKET names no pod, or one that was deleted; start the program with "
                "'baton run'");
    return {};
  }
  if (pod != nullptr && pod->uid >= 0 && uid != 0 && static_cast<uint64_t>(pod->uid) != uid) {
    link.Refuse(number, wire::ErrorKind::kDenied,
                fmt::format("pod {} belongs to user {}, not to user {}", pod->name, pod->uid, uid));
    return {};
  }
  if (pod != nullptr && !pod->cgroup.empty() && pod->cgroup != kubernetes_pod) {
    link.Refuse(number, wire::ErrorKind::kDenied,
                fmt::format("BATON_TICKET is that of Kubernetes pod {}, and this process is in {}; "
                            "only processes of the pod itself may use it",
                            pod->cgroup,
                            kubernetes_pod.empty() ? "none that its cgroup names"
                                                   : "pod " + std::string(kubernetes_pod)));
    return {};
  }
  if (client != nullptr && pod != nullptr && client->pod != pod->id) {
    link.Refuse(number, wire::ErrorKind::kDenied, "this process belongs to another pod already");
    return {};
  }
  // An incarnation names the client's counters; drawn at random it is nobody else's.
  const bool taken =
      client == nullptr && std::any_of(clients_.begin(), clients_.end(), [&](auto& c) {
        return c.second->incarnation == hello.incarnation && c.second->pod == pod->id;
      });
  if (taken) {
    link.Refuse(number, wire::ErrorKind::kDenied, "another process has this incarnation");
    return {};
  }
  if (client == nullptr && !node.empty() && clients_of_node_[node] >= options_.server.clients_max) {
    link.Refuse(number, wire::ErrorKind::kLimit,
                fmt::format("batond serves no more than {} processes of one node; end some, or "
                            "raise [server] clients_max",
                            options_.server.clients_max));
    return {};
  }
  if (client == nullptr) {
    auto fresh = std::make_unique<Client>();
    client = fresh.get();
    client->id = ClientId{++last_client_};
    client->pod = pod->id;
    client->node = node;
    client->pid = pid;
    client->start_time = start_time;
    client->incarnation = hello.incarnation;
    clients_.emplace(client->id.value, std::move(fresh));
    client_index_[client->id.value] = client;
    by_process_.emplace(process, client->id);
    ++clients_of_pod_[pod->id];
    ++clients_of_node_[node];
    log_.Add(EventLog::Level::kDebug, "client",
             fmt::format("{} of pod {} connected", Where(*client), pod->name));
  }
  client->uid = uid;
  client->command = hello.command.view();
  client->link = &link;
  client->number = number;
  client->connected = true;
  for (auto& lane : client->lanes) lane->attached = false;
  client->by_index.fill(nullptr);
  wire::Welcome welcome;
  welcome.client = client->id.value;
  welcome.pod.Set(pod != nullptr ? pod->name : "a deleted pod");
  SendTo(*client, welcome);
  return client->id;
}

void Arbiter::Attach(ClientId id, const wire::Attach& attach) {
  Client* client = Find(id);
  if (client == nullptr || attach.gpu >= wire::kGpusMax) return;
  const std::string uuid(attach.uuid.view());
  const Pod* pod = pods_.Find(client->pod);
  auto it = gpus_.find(uuid);
  if (it == gpus_.end()) {
    return Refuse(*client, wire::ErrorKind::kUnknownGpu,
                  uuid + " is not managed here; 'baton status' lists the GPUs that are");
  }
  Gpu& gpu = *it->second;
  const auto known = gpu.lanes.find(id.value);
  const bool leaves =
      pod == nullptr && known != gpu.lanes.end() && leaving_.count(client->pod) != 0;
  const bool has_share = pod != nullptr && pod->Has(uuid);
  if (has_share && !pod->by_token()) {
    return Refuse(*client, wire::ErrorKind::kUnknownGpu,
                  fmt::format("pod {} has its part of {} by {}, without tokens: start it with "
                              "'baton run', which leaves the hook out",
                              pod->name, uuid, pod->mode));
  }
  if (!has_share && !leaves) {
    return Refuse(
        *client, wire::ErrorKind::kUnknownGpu,
        fmt::format("pod {} has no share of {}; set CUDA_VISIBLE_DEVICES to its own GPUs, "
                    "as 'baton run' does",
                    pod != nullptr ? pod->name : "?", uuid));
  }
  if (gpu.node != client->node && !gpu.throw_away) {
    return Refuse(*client, wire::ErrorKind::kUnknownGpu, uuid + " is on another node");
  }
  Lane* lane = nullptr;
  if (known != gpu.lanes.end()) {
    lane = known->second;
  } else {
    PodOnGpu& on = gpu.pods[client->pod];
    if (on.clients >= kClientsPerPodAndGpu) {
      return Refuse(
          *client, wire::ErrorKind::kLimit,
          fmt::format("pod {} has {} processes on {} already", pod->name, on.clients, uuid));
    }
    ++on.clients;
    client->lanes.push_back(std::make_unique<Lane>());
    lane = client->lanes.back().get();
    lane->client = client;
    lane->gpu = &gpu;
    lane->last = &usage_.At(client->pod, gpu.key, client->incarnation);
    lane->total = &usage_.At(client->pod, gpu.key, 0);
    lane->on = &on;
    gpu.lanes[id.value] = lane;
  }
  if (client->by_index[attach.gpu] != nullptr && client->by_index[attach.gpu] != lane) {
    return Refuse(*client, wire::ErrorKind::kProtocol, "this index stands for another GPU already");
  }
  if (lane->attached && lane->index != attach.gpu) {
    return Refuse(*client, wire::ErrorKind::kProtocol, "this GPU has another index already");
  }
  lane->index = attach.gpu;
  lane->attached = true;
  client->by_index[attach.gpu] = lane;

  SendAttached(*lane, pod);
  if (enforcing()) Step(gpu, ClientAttached{id, client->pod});
}

void Arbiter::SendAttached(Lane& lane, const Pod* pod) {
  wire::Attached attached;
  attached.gpu = lane.index;
  attached.gated = enforcing();
  attached.memory_cap = pod != nullptr ? pod->CapOn(lane.gpu->info.uuid) : 0;
  attached.gang = pod != nullptr && pod->gang();
  attached.idle_ns = static_cast<uint64_t>(Nanos(options_.hook.idle));
  attached.backlog_ns = static_cast<uint64_t>(Nanos(options_.scheduler.scheduler.backlog));
  attached.heartbeat_ns = static_cast<uint64_t>(Nanos(options_.hook.heartbeat));
  attached.open_after_ns = static_cast<uint64_t>(Nanos(options_.hook.open_after));
  SendTo(*lane.client, attached);
}

void Arbiter::Memory(ClientId id, const wire::Memory& memory) {
  Client* client = Find(id);
  if (client == nullptr) return;
  Lane* lane = FindLane(*client, memory.gpu);
  if (lane == nullptr || memory.request < lane->memory_request) return;
  lane->memory_request = memory.request;
  lane->memory_said = true;
  const Pod* pod = pods_.Find(client->pod);
  const uint64_t others = lane->on->memory - lane->memory;
  const uint64_t cap = pod != nullptr ? pod->CapOn(lane->gpu->info.uuid) : 0;
  wire::MemoryReply reply;
  reply.gpu = memory.gpu;
  reply.request = memory.request;
  reply.memory_cap = cap;
  // One step for the whole pod: of two processes that race for the last bytes one is refused.
  reply.granted =
      memory.total <= lane->memory || cap == 0 || (others <= cap && memory.total <= cap - others);
  // Saturating: a client that claims 2^64 bytes must not wrap the sum.
  if (reply.granted && memory.total > UINT64_MAX / 4) reply.granted = false;
  if (reply.granted) SetMemory(*lane, memory.total);
  reply.pod_used = lane->on->memory;
  SendTo(*client, reply);
}

void Arbiter::Down(ClientId id, wire::DownReason reason, Instant heard) {
  Client* client = Find(id);
  if (client == nullptr) return;
  if (reason == wire::DownReason::kExited) return Gone(*client);
  if (!client->connected) return;
  client->connected = false;
  log_.Add(EventLog::Level::kDebug, "client", Where(*client) + " disconnected");
  for (auto& lane : client->lanes) {
    lane->attached = false;
    if (enforcing()) Step(*lane->gpu, ClientDisconnected{id, heard});
  }
}

void Arbiter::Gone(Client& client) {
  const ClientId id = client.id;
  const PodId pod = client.pod;
  client.connected = false;
  log_.Add(EventLog::Level::kDebug, "client", Where(client) + " is gone");
  for (auto& lane : client.lanes) {
    Gpu& gpu = *lane->gpu;
    Step(gpu, ClientGone{id});
    gpu.lanes.erase(id.value);
    SetMemory(*lane, 0);
    --lane->on->clients;
  }
  usage_.Drop(pod, client.incarnation);
  auto [it, end] = by_process_.equal_range({client.node, client.pid, client.start_time});
  for (; it != end; ++it) {
    if (it->second == id) {
      by_process_.erase(it);
      break;
    }
  }
  if (--clients_of_node_[client.node] == 0) clients_of_node_.erase(client.node);
  client_index_.erase(id.value);
  clients_.erase(id.value);
  if (--clients_of_pod_[pod] == 0) {
    clients_of_pod_.erase(pod);
    Pod* left = pods_.Find(pod);
    if (leaving_.count(pod) != 0) {
      ForgetPod(pod);
    } else if (left != nullptr && left->throw_away) {
      Drop(*left);
    }
  } else if (leaving_.count(pod) != 0) {
    CloseWhenDrained(pod);
  }
}

void Arbiter::DropLink(ClientLink& link, Instant heard) {
  std::vector<ClientId> of_link;
  for (auto& [id, client] : clients_) {
    if (client->link == &link) of_link.push_back(client->id);
  }
  for (const ClientId id : of_link) {
    Down(id, wire::DownReason::kDisconnected, heard);
    if (Client* client = Find(id)) client->link = nullptr;
  }
}

std::vector<Arbiter::Missing> Arbiter::MissingOn(const std::string& node) const {
  std::vector<Missing> missing;
  for (const auto& [id, client] : clients_) {
    if (client->connected || client->node != node || client->pid == 0) continue;
    Missing m{client->id, client->pid, client->start_time, client->incarnation, {}};
    for (const auto& lane : client->lanes) m.gpus.push_back(lane->gpu->info.uuid);
    missing.push_back(std::move(m));
  }
  return missing;
}

void Arbiter::Bind(ClientId id, ClientLink& link, uint64_t number) {
  Client* client = Find(id);
  if (client == nullptr) return;
  client->link = &link;
  client->number = number;
}

// ------------------------------------------------------------------------------------------ GPUs

Result<void> Arbiter::AddGpu(const devmgr::GpuInfo& info, const std::string& node,
                             bool throw_away) {
  auto it = gpus_.find(info.uuid);
  if (it != gpus_.end()) {
    Gpu& gpu = *it->second;
    if (gpu.node != node) {
      return Fail(ErrorCode::kExists,
                  fmt::format("{} belongs to {} already", info.uuid,
                              gpu.node.empty() ? "batond's own machine" : "node " + gpu.node));
    }
    gpu.info = info;
    gpu.present = true;
    return {};
  }
  if (!throw_away) {
    // What NVML says of it beyond that comes first, where it is this machine's.
    devmgr::Card card;
    card.uuid = info.uuid;
    card.model = info.name;
    card.memory_mib =
        static_cast<uint32_t>(std::min<uint64_t>(info.memory_bytes >> 20, kUnknownMemoryMib));
    if (auto known = vgpus_.AddCard(node, card); !known) return known;
  }
  HolderFile file;
  // Of another machine's processes its relay knows (NodeCheck), not this machine's boot.
  const std::string trouble = file.Open(options_.server.state_dir + "/gpu-" + info.uuid + ".holder",
                                        boot_id_, node.empty());
  if (!trouble.empty()) log_.Add(EventLog::Level::kWarning, "gpu", trouble);
  const uint64_t gpu_key = UsageBook::GpuKey(info.uuid);
  const uint64_t newest = std::max(file.epoch(), usage_.NewestHold(gpu_key));
  // Grants begin at the wall clock, in millionths of a second: above any that a daemon whose state
  // was lost, or could not be written, can have given out, so hooks and relays do not take them for
  // old.
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  const uint64_t first_epoch = static_cast<uint64_t>(wall.tv_sec) * 1'000'000;
  auto made = std::make_unique<Gpu>(io_, options_.scheduler.scheduler, newest, first_epoch);
  Gpu& gpu = *made;
  gpu.info = info;
  gpu.node = node;
  gpu.present = true;
  gpu.throw_away = throw_away;
  gpu.key = gpu_key;
  gpu.holder_stored = trouble.empty() || file.epoch() != 0;
  gpu.file = std::move(file);
  gpus_.emplace(info.uuid, std::move(made));
  gpu_order_.push_back(&gpu);
  by_scheduler_[&gpu.scheduler] = &gpu;
  BookAgain(&info.uuid);
  for (const auto& [id, pod] : pods_.all()) {
    if (!pod.Has(info.uuid) || !pod.by_token()) continue;
    TellShare(gpu, pod);
    gpu.pods[id].series.Add(MonotonicNow(), HeldNow(gpu, id, MonotonicNow()), 0);
  }
  NoteIdle(gpu, MonotonicNow());
  Restore(gpu);
  // Only now: a gang that holds elsewhere claims this GPU too, which may have holders of its own.
  for (const auto& [id, pod] : pods_.all()) {
    if (pod.Has(info.uuid)) FormGang(pod);
  }
  if (!gangs_.empty()) TendGangs();
  log_.Add(EventLog::Level::kInfo, "gpu",
           fmt::format("{} {} {}{}", info.uuid, info.name, FormatBytes(info.memory_bytes),
                       node.empty() ? "" : " on node " + node));
  if (configured_known_) ApplyConfiguredPods(configured_);
  return {};
}

// Who held the GPU when this daemon, or the one before it, last wrote: nothing is granted there
// until they have come back and drained, or died.
void Arbiter::Restore(Gpu& gpu) {
  if (!enforcing()) return;
  // A newer token was about to be sent: those of the file had given theirs back.
  if (usage_.NewestHold(gpu.key) > gpu.file.epoch()) return;
  for (const HolderFile::Member& member : std::vector(gpu.file.members())) {
    const PodId pod{member.pod};
    const bool known = pods_.Find(pod) != nullptr;
    if (!known && leaving_.insert(pod).second) {
      // Deleted since. It counts as a pod until its process is gone.
      Step(gpu, PodSet{pod, *policy::Validated(policy::ShareSpec{})});
    }
    const Process process{gpu.node, member.pid, member.start_time};
    Client* client = FindProcess(process, member.incarnation);
    if (client == nullptr) {
      auto fresh = std::make_unique<Client>();
      client = fresh.get();
      client->id = ClientId{++last_client_};
      client->pod = pod;
      client->node = gpu.node;
      client->pid = member.pid;
      client->start_time = member.start_time;
      client->incarnation = member.incarnation;
      clients_.emplace(client->id.value, std::move(fresh));
      client_index_[client->id.value] = client;
      by_process_.emplace(process, client->id);
      ++clients_of_pod_[pod];
      ++clients_of_node_[gpu.node];
    }
    if (gpu.lanes.count(client->id.value) != 0) continue;
    client->lanes.push_back(std::make_unique<Lane>());
    Lane* lane = client->lanes.back().get();
    lane->client = client;
    lane->gpu = &gpu;
    lane->last = &usage_.At(client->pod, gpu.key, client->incarnation);
    lane->total = &usage_.At(client->pod, gpu.key, 0);
    gpu.lanes[client->id.value] = lane;
    lane->on = &gpu.pods[client->pod];
    ++lane->on->clients;
    gpu.holder = pod;
    gpu.granted_at = MonotonicNow();
    gpu.hold = {pod, gpu.granted_at, gpu.granted_at};
    HolderRestored restored{client->id, pod, gpu.file.epoch(), gpu.granted_at, gpu.granted_at, {}};
    if (member.joined_ns != 0) {
      restored.granted_at = Instant(DurationFromNanos(gpu.file.granted_ns()));
      restored.joined_at = Instant(DurationFromNanos(member.joined_ns));
      restored.charged = DurationFromNanos(lane->total->ChargedFor(restored.epoch));
      gpu.hold.granted_at = gpu.hold.waits_since = restored.granted_at;
    }
    Step(gpu, restored);
    log_.Add(EventLog::Level::kInfo, "gpu",
             fmt::format("{} was held by {} when the daemon ended; waiting for it to come back or "
                         "to die",
                         gpu.info.uuid, Where(*client)));
  }
  for (const HolderFile::Member& member : gpu.file.members()) {
    if (pods_.Find(PodId{member.pod}) == nullptr) Step(gpu, PodRemoved{PodId{member.pod}});
  }
}

// Pods that are unbooked; `gpu`: those on it only.
void Arbiter::BookAgain(const std::string* gpu) {
  if (vgpus_.unbooked().empty()) return;
  vgpus_.BookAgain([this, gpu](PodId id) -> Pod* {
    Pod* pod = pods_.Find(id);
    return pod != nullptr && (gpu == nullptr || pod->Has(*gpu)) ? pod : nullptr;
  });
}

void Arbiter::SetCards(const std::string& node, std::vector<devmgr::Card> cards) {
  auto events = vgpus_.SetCards(node, std::move(cards));
  if (!events) {
    log_.Add(EventLog::Level::kWarning, "gpu", events.error().message);
    return;
  }
  for (const devmgr::InventoryEvent& event : *events) {
    using Kind = devmgr::InventoryEvent::Kind;
    const char* what = nullptr;
    switch (event.kind) {
      case Kind::kFailed:
        what = "has failed";
        break;
      case Kind::kVanished:
        what = "is not there any more";
        break;
      case Kind::kRecovered:
        what = "is healthy again";
        break;
      case Kind::kAppeared:
        // The first time it is told with what it is, by AddGpu().
        if (gpus_.count(event.uuid) != 0) what = "is there again";
        break;
      case Kind::kReshaped:
      case Kind::kChanged:
      case Kind::kCordoned:
      case Kind::kUncordoned:
        break;
    }
    if (what == nullptr) continue;
    const bool bad = event.kind == Kind::kFailed || event.kind == Kind::kVanished;
    std::string pods;
    for (const std::string& pod : vgpus_.PodsOn(event.uuid)) {
      if (pods.size() > 200) {
        pods += ", ...";
        break;
      }
      pods += (pods.empty() ? "" : ", ") + pod;
    }
    log_.Add(
        bad ? EventLog::Level::kWarning : EventLog::Level::kInfo, "gpu",
        fmt::format("{} {}{}{}{}{}", event.uuid, what,
                    event.kind == Kind::kAppeared || event.why.empty() ? "" : ": ",
                    event.kind == Kind::kAppeared ? "" : event.why,
                    bad ? "; it gets no more pods" : "", pods.empty() ? "" : "; on it: " + pods));
  }
  BookAgain(nullptr);
}

Result<std::string> Arbiter::Cordon(const std::string& gpu, const std::string& node,
                                    bool cordoned) {
  const auto uuids = ResolveGpus({gpu}, node);
  if (!uuids) return tl::unexpected(uuids.error());
  const std::string& uuid = uuids->front();
  pods_.SetCordoned(uuid, cordoned);
  vgpus_.SetCordoned(pods_.cordoned());
  if (!cordoned && maker_ != nullptr && gpus_.at(uuid)->node.empty()) maker_->Forgive(uuid);
  SavePods();
  log_.Add(EventLog::Level::kInfo, "gpu",
           uuid + (cordoned ? " cordoned: it gets no more pods" : " uncordoned"));
  return uuid;
}

void Arbiter::SetFrozen(const std::string& node, bool frozen) {
  vgpus_.SetReachable(node, !frozen);
  for (Gpu* gpu : gpu_order_) {
    if (gpu->node != node || gpu->frozen == frozen) continue;
    gpu->frozen = frozen;
    Step(*gpu, LinkCut{frozen});
  }
  // Pods of the file that wait for this node.
  if (!frozen && configured_known_) ApplyConfiguredPods(configured_);
}

std::vector<Arbiter::Gpu*> Arbiter::GpusOf(const std::string& node) const {
  std::vector<Gpu*> of_node;
  for (Gpu* gpu : gpu_order_) {
    if (!gpu->throw_away && (node == "*" || gpu->node == node)) of_node.push_back(gpu);
  }
  return of_node;
}

// --------------------------------------------------------------------------------------- status

UsageEntry* Arbiter::Account(const Gpu& gpu, PodId pod) const {
  return usage_.Find(pod, gpu.key, 0);
}

uint64_t Arbiter::HeldNow(const Gpu& gpu, PodId pod, Instant now) const {
  const UsageEntry* account = Account(gpu, pod);
  uint64_t held = account != nullptr ? account->usage.held_ns : 0;
  if (enforcing() && gpu.holder == pod && now > gpu.granted_at) {
    held += static_cast<uint64_t>(Nanos(now - gpu.granted_at));
  }
  return held;
}

uint64_t Arbiter::HeldNow(const Gpu& gpu, Instant now) const {
  Duration held = gpu.held;
  if (enforcing() && gpu.holder && now > gpu.granted_at) held += now - gpu.granted_at;
  return static_cast<uint64_t>(std::max<int64_t>(0, Nanos(held)));
}

void Arbiter::Sample() {
  sampler_.expires_after(Series::kEvery);
  sampler_.async_wait([this, alive = alive_](const boost::system::error_code& error) {
    if (error || !*alive) return;
    // One GPU at a time: frames that arrive meanwhile go first.
    for (const auto& [uuid, gpu] : gpus_) {
      boost::asio::post(io_, [this, alive, uuid = uuid] {
        if (*alive) SampleGpu(uuid);
      });
    }
    usage_.Flush();
    DropUnused(MonotonicNow());
    Sample();
  });
}

void Arbiter::SampleGpu(const std::string& uuid) {
  auto it = gpus_.find(uuid);
  if (it == gpus_.end()) return;
  Gpu& gpu = *it->second;
  const Instant now = MonotonicNow();
  gpu.series.Add(now, HeldNow(gpu, now), gpu.busy_ns);
  for (const PodStatus& pod : gpu.scheduler.Status(now)) {
    auto on = gpu.pods.find(pod.pod);
    if (on == gpu.pods.end()) continue;  // deleted, and only its debt is left
    on->second.series.Add(now, HeldNow(gpu, pod.pod, now),
                          static_cast<uint64_t>(Nanos(pod.waited)));
  }
}

std::vector<std::string> Arbiter::Degraded() const {
  std::vector<std::string> all;
  if (!usage_.degraded().empty()) all.push_back(usage_.degraded());
  if (!degraded_pods_.empty()) all.push_back(degraded_pods_);
  if (std::any_of(gpu_order_.begin(), gpu_order_.end(),
                  [](const Gpu* gpu) { return !gpu->holder_stored; })) {
    all.push_back("the holders of GPUs could not be written to " + options_.server.state_dir +
                  "; after a crash they would not be waited for");
  }
  if (!vgpus_.unbooked().empty()) {
    std::string names;
    size_t named = 0;
    for (const auto& [id, why] : vgpus_.unbooked()) {
      const Pod* pod = std::as_const(pods_).Find(id);
      if (pod == nullptr || ++named > 3) continue;
      names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", pod->name, why);
    }
    if (named > 3) names += fmt::format(", and {} more", named - 3);
    all.push_back("pods without a place: " + names);
  }
  for (const Gpu* gpu : gpu_order_) {
    const devmgr::Card* card = vgpus_.CardOf(gpu->info.uuid);
    if (card == nullptr || card->health != devmgr::Health::kFailed) continue;
    all.push_back(fmt::format("{} has failed: {}", card->uuid, card->why));
  }
  return all;
}

void Arbiter::Store() {
  DoLater();
  SavePods();
  usage_.Flush();
}

}  // namespace baton::backend
