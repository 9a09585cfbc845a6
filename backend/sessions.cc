#include "backend/sessions.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/memory_room.h"
#include "backend/out_of_memory.h"

namespace baton::backend {
namespace {

// Each client of a token is a member in the holder's file.
constexpr size_t kClientsPerPodAndGpu = HolderFile::kMembersMax;
// A pod that is out of memory on a GPU is an event again after this; and who had what is looked at
// again after that.
constexpr Duration kSayAgain = std::chrono::minutes(1);
constexpr Duration kLookAgain = std::chrono::milliseconds(100);

}  // namespace

Sessions::Sessions(const config::Options& options, Pods& pods, const Gpus& gpus,
                   ClientTable& clients, Accounts& accounts, Tokens& tokens, Room& room,
                   PodLifecycle& lifecycle, node::EventLog& log)
    : options_(options),
      pods_(pods),
      gpus_(gpus),
      clients_(clients),
      accounts_(accounts),
      tokens_(tokens),
      room_(room),
      lifecycle_(lifecycle),
      log_(log) {}

Lane* Sessions::FindLane(Client& client, uint8_t index) {
  if (index < wire::kGpusMax) {
    Lane* lane = client.by_index[index];
    if (lane != nullptr && lane->attached) return lane;
  }
  Refuse(client, wire::ErrorKind::kProtocol,
         "attach to this GPU before you send messages about it");
  return nullptr;
}

void Sessions::State(ClientId id, const wire::State& state, const scheduler::Measured& measured,
                     Duration age) {
  Client* client = clients_.Find(id);
  if (client == nullptr) return;
  Lane* lane = FindLane(*client, state.gpu);
  if (lane == nullptr || state.seq <= lane->seq) return;
  lane->seq = state.seq;
  lane->phase = state.phase;
  if (Enforces(options_)) {
    tokens_.Step(*lane->gpu,
                 scheduler::ReportOf(client->id, state, measured, age, lane->last->usage.held_ns));
  }
  if (lane->gpu->holder == client->pod) lane->gpu->hold.OnPhase(state.phase, MonotonicNow());
  room_.OnState(*lane, state);
  // The tokens are out.
  accounts_.Report(*lane, state);
  if (clients_.Leaves(client->pod)) lifecycle_.CloseWhenDrained(client->pod);
}

void Sessions::RefuseForBound(ClientLink& link, uint64_t number, const std::string& bound,
                              const char* remedy) {
  const std::string text = fmt::format("{}; {}", bound, remedy);
  if (refusals_.Add(bound, MonotonicNow())) {
    log_.Add(node::EventLog::Level::kWarning, "client",
             fmt::format("{}, and more are refused; {}", bound, remedy));
  }
  link.Refuse(number, wire::ErrorKind::kLimit, text);
}

ClientId Sessions::Up(ClientLink& link, uint64_t number, const std::string& node, uint64_t pid,
                      uint64_t start_time, uint64_t uid, std::string_view kubernetes_pod,
                      const wire::Hello& hello) {
  const ClientTable::Process process{node, pid, start_time};
  Client* client = clients_.FindProcess(process, hello.incarnation);
  const Pod* pod = pods_.FindByTicket(hello.ticket.view());
  // Who still holds something of a deleted pod comes back to say that it has drained.
  const bool leaves =
      pod == nullptr && client != nullptr && clients_.Leaves(client->pod) && HoldsAnything(*client);
  if (pod == nullptr && !leaves) {
    link.Refuse(number, wire::ErrorKind::kUnknownPod,
                "BATON_TICKET belongs to no pod, or to a deleted one; start the program with "
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
                            kubernetes_pod.empty() ? "no pod, by its cgroup"
                                                   : "pod " + std::string(kubernetes_pod)));
    return {};
  }
  if (client != nullptr && pod != nullptr && client->pod != pod->id) {
    link.Refuse(number, wire::ErrorKind::kDenied, "this process already belongs to another pod");
    return {};
  }
  if (client == nullptr) {
    const std::vector<Client*>& others = clients_.OfPod(pod->id);
    // An incarnation names the client's counters; drawn at random it is nobody else's.
    if (std::any_of(others.begin(), others.end(),
                    [&](const Client* other) { return other->incarnation == hello.incarnation; })) {
      link.Refuse(number, wire::ErrorKind::kDenied, "another process uses this incarnation");
      return {};
    }
    if (!node.empty() && clients_.OfNode(node) >= options_.server.clients_max) {
      RefuseForBound(link, number,
                     fmt::format("batond serves no more than {} processes of node {}",
                                 options_.server.clients_max, node),
                     "end some, or raise [server] clients_max");
      return {};
    }
    if (others.size() >= options_.server.clients_per_pod) {
      RefuseForBound(link, number,
                     fmt::format("pod {} may have no more than {} processes", pod->name,
                                 options_.server.clients_per_pod),
                     "end some, or raise [server] clients_per_pod");
      return {};
    }
    client = &clients_.Add(pod->id, process, hello.incarnation);
    log_.Add(node::EventLog::Level::kDebug, "client",
             fmt::format("{} of pod {} connected", Where(*client), pod->name));
  }
  client->uid = uid;
  client->command = hello.command.view();
  client->link = &link;
  client->number = number;
  client->connected = true;
  client->words = hello.words;
  for (auto& lane : client->lanes) lane->attached = false;
  client->by_index.fill(nullptr);
  wire::Welcome welcome;
  welcome.client = client->id.value;
  welcome.pod.Set(pod != nullptr ? pod->name : "a deleted pod");
  SendTo(*client, welcome);
  return client->id;
}

void Sessions::Attach(ClientId id, const wire::Attach& attach) {
  Client* client = clients_.Find(id);
  if (client == nullptr || attach.gpu >= wire::kGpusMax) return;
  const std::string uuid(attach.uuid.view());
  const Pod* pod = pods_.Find(client->pod);
  Gpu* const found = gpus_.Find(uuid);
  if (found == nullptr) {
    return Refuse(*client, wire::ErrorKind::kUnknownGpu,
                  uuid + " is not managed here; 'baton status' lists the managed GPUs");
  }
  Gpu& gpu = *found;
  const auto known = gpu.lanes.find(id.value);
  const bool leaves = pod == nullptr && known != gpu.lanes.end() && clients_.Leaves(client->pod);
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
    const uint64_t clients = gpu.pods[client->pod].clients;
    if (clients >= kClientsPerPodAndGpu) {
      return Refuse(*client, wire::ErrorKind::kLimit,
                    fmt::format("pod {} has {} processes on {} already", pod->name, clients, uuid));
    }
    lane = &clients_.AddLane(*client, gpu);
  }
  if (client->by_index[attach.gpu] != nullptr && client->by_index[attach.gpu] != lane) {
    return Refuse(*client, wire::ErrorKind::kProtocol, "this index already stands for another GPU");
  }
  if (lane->attached && lane->index != attach.gpu) {
    return Refuse(*client, wire::ErrorKind::kProtocol, "this GPU already has another index");
  }
  lane->index = attach.gpu;
  lane->attached = true;
  lane->swaps = pod != nullptr && pod->swap;
  client->by_index[attach.gpu] = lane;

  SendAttached(options_, *lane, pod, pod != nullptr ? MemoryBound(gpu, pods_, *pod) : 0);
  if (Enforces(options_))
    tokens_.Step(gpu, scheduler::ClientAttached{id, client->pod, client->words});
}

void Sessions::Memory(ClientId id, const wire::Memory& memory) {
  Client* client = clients_.Find(id);
  if (client == nullptr) return;
  Lane* lane = FindLane(*client, memory.gpu);
  if (lane == nullptr || memory.request < lane->memory_request) return;
  lane->memory_request = memory.request;
  lane->memory_said = true;
  const Pod* pod = pods_.Find(client->pod);
  const uint64_t others = lane->on->memory - lane->memory;
  const uint64_t cap = pod != nullptr ? MemoryBound(*lane->gpu, pods_, *pod) : 0;
  wire::MemoryReply reply;
  reply.gpu = memory.gpu;
  reply.request = memory.request;
  reply.memory_cap = cap;
  // One step for the whole pod: of two processes that race for the last bytes one is refused.
  reply.granted =
      memory.total <= lane->memory || cap == 0 || (others <= cap && memory.total <= cap - others);
  // Saturating: a client that claims 2^64 bytes must not wrap the sum.
  if (reply.granted && memory.total > UINT64_MAX / 4) reply.granted = false;
  const bool swaps = pod != nullptr && pod->swap;
  if (memory.refused != 0 && pod != nullptr) OutOfMemory(*lane, *pod, memory.refused);
  lane->host_full = false;
  const uint64_t movable = swaps ? std::min(memory.movable, memory.total) : 0;
  const uint64_t fixed = memory.total - movable, fixed_now = lane->memory - lane->movable;
  if (reply.granted && memory.total > lane->memory) {
    if (swaps && !room_.WithinBudget(gpus_, *lane->gpu, *pod, others + memory.total,
                                     MovableOf(*lane->gpu, pod->id) - lane->movable + movable)) {
      reply.granted = false;
      reply.host_full = lane->host_full = true;
    } else if (fixed > fixed_now && !room_.Fits(*lane->gpu, client->pod, fixed - fixed_now)) {
      return;  // it asks again, and by then others have made room
    }
  }
  if (reply.granted) {
    accounts_.SetMemory(*lane, memory.total);
    const uint64_t grown = movable > lane->movable ? movable - lane->movable : 0;
    lane->movable = movable;
    if (swaps) room_.OnMemory(*lane, grown);
  }
  reply.pod_used = lane->on->memory;
  SendTo(*client, reply);
}

void Sessions::OutOfMemory(const Lane& lane, const Pod& pod, uint64_t asked) {
  MemoryRefusal& refusal = lane.on->refusal;
  const Instant now = MonotonicNow();
  ++refusal.times;
  if (refusal.times > 1 && now - refusal.at < kLookAgain) return;
  refusal.text = OutOfMemoryText(*lane.gpu, pods_, pod, lane, asked, room_.budget());
  refusal.at = now;
  if (refusal.times > 1 && now - refusal.said < kSayAgain) return;
  refusal.said = now;
  log_.Add(node::EventLog::Level::kWarning, "pod",
           fmt::format("pod {} is out of memory: process {} {}", pod.name, lane.client->pid,
                       refusal.text));
}

void Sessions::Ended(ClientId id, uint8_t gpu, uint64_t epoch, Duration held) {
  const Client* client = clients_.Find(id);
  Lane* lane = client != nullptr && gpu < wire::kGpusMax ? client->by_index[gpu] : nullptr;
  if (lane != nullptr) lane->ended = {epoch, held};
}

void Sessions::Down(ClientId id, wire::DownReason reason, Instant heard) {
  Client* client = clients_.Find(id);
  if (client == nullptr) return;
  if (reason == wire::DownReason::kExited) return Gone(*client);
  if (!client->connected) return;
  client->connected = false;
  log_.Add(node::EventLog::Level::kDebug, "client", Where(*client) + " disconnected");
  for (auto& lane : client->lanes) {
    lane->attached = false;
    if (Enforces(options_)) tokens_.Step(*lane->gpu, scheduler::ClientDisconnected{id, heard});
  }
}

void Sessions::Gone(Client& client) {
  const PodId pod = client.pod;
  client.connected = false;
  log_.Add(node::EventLog::Level::kDebug, "client", Where(client) + " has ended");
  for (auto& lane : client.lanes) {
    const auto& [epoch, held] = lane->ended;
    tokens_.Step(*lane->gpu, scheduler::ClientGone{client.id, epoch, held});
    accounts_.SetMemory(*lane, 0);
  }
  clients_.Remove(client);
  lifecycle_.ClientLeft(pod);
}

void Sessions::DropLink(ClientLink& link, Instant heard) {
  for (const ClientId id : clients_.OfLink(link)) {
    Down(id, wire::DownReason::kDisconnected, heard);
    if (Client* client = clients_.Find(id)) client->link = nullptr;
  }
}

std::vector<Sessions::Missing> Sessions::MissingOn(const std::string& node) const {
  std::vector<Missing> missing;
  for (const auto& [id, client] : clients_.all()) {
    if (client->connected || client->node != node || client->pid == 0) continue;
    Missing m{client->id, client->pid, client->start_time, client->incarnation, {}};
    for (const auto& lane : client->lanes) m.gpus.push_back(lane->gpu->info.uuid);
    missing.push_back(std::move(m));
  }
  return missing;
}

void Sessions::SetGroup(ClientId id, const std::string& group) {
  if (Client* client = clients_.Find(id)) client->group = group;
}

void Sessions::Bind(ClientId id, ClientLink& link, uint64_t number) {
  Client* client = clients_.Find(id);
  if (client == nullptr) return;
  client->link = &link;
  client->number = number;
}

}  // namespace baton::backend
