#include "backend/client_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::backend {

void Refuse(const Client& client, wire::ErrorKind kind, const std::string& text) {
  if (client.link != nullptr && client.connected) client.link->Refuse(client.number, kind, text);
}

std::string Where(const Client& client) {
  return fmt::format("pid {}{}{}", client.pid, client.node.empty() ? "" : " on ", client.node);
}

bool HoldsAnything(const Client& client) {
  return std::any_of(client.lanes.begin(), client.lanes.end(),
                     [&](const auto& lane) { return lane->gpu->scheduler.Holds(client.id); });
}

void SendAttached(const config::Options& options, const Lane& lane, const Pod* pod,
                  uint64_t memory_bound) {
  wire::Attached attached;
  attached.gpu = lane.index;
  attached.gated = Enforces(options);
  attached.memory_cap = memory_bound;
  attached.gang = pod != nullptr && pod->in_gang();
  attached.idle_ns = static_cast<uint64_t>(Nanos(options.hook.idle));
  const bool idle = pod != nullptr && pod->share.priority == policy::Priority::kIdle;
  attached.backlog_ns = static_cast<uint64_t>(Nanos(scheduler::BacklogOf(options.scheduler, idle)));
  attached.late_backlog_ns =
      static_cast<uint64_t>(Nanos(scheduler::LateBacklogOf(options.scheduler, idle)));
  attached.heartbeat_ns = static_cast<uint64_t>(Nanos(options.hook.heartbeat));
  attached.open_after_ns = static_cast<uint64_t>(Nanos(options.hook.open_after));
  SendTo(*lane.client, attached);
}

Client* ClientTable::Find(ClientId id) const {
  const auto it = index_.find(id.value);
  return it == index_.end() ? nullptr : it->second;
}

Client* ClientTable::FindProcess(const Process& process, uint64_t incarnation) const {
  for (auto [it, end] = by_process_.equal_range(process); it != end; ++it) {
    Client* client = Find(it->second);
    if (client->incarnation == incarnation) return client;
  }
  return nullptr;
}

const std::vector<Client*>& ClientTable::OfPod(PodId pod) const {
  static const std::vector<Client*> kNone;
  const auto of = of_pod_.find(pod);
  return of == of_pod_.end() ? kNone : of->second;
}

size_t ClientTable::OfNode(const std::string& node) const {
  const auto of = of_node_.find(node);
  return of == of_node_.end() ? 0 : of->second;
}

std::vector<ClientId> ClientTable::OfLink(const ClientLink& link) const {
  std::vector<ClientId> of_link;
  for (const auto& [id, client] : clients_) {
    if (client->link == &link) of_link.push_back(client->id);
  }
  return of_link;
}

Client& ClientTable::Add(PodId pod, const Process& process, uint64_t incarnation) {
  auto made = std::make_unique<Client>();
  Client& client = *made;
  client.id = ClientId{++last_};
  client.pod = pod;
  std::tie(client.node, client.pid, client.start_time) = process;
  client.incarnation = incarnation;
  clients_.emplace(client.id.value, std::move(made));
  index_[client.id.value] = &client;
  by_process_.emplace(process, client.id);
  of_pod_[pod].push_back(&client);
  ++of_node_[client.node];
  return client;
}

Lane& ClientTable::AddLane(Client& client, Gpu& gpu) {
  Lane& lane = *client.lanes.emplace_back(std::make_unique<Lane>());
  lane.client = &client;
  lane.gpu = &gpu;
  lane.last = &usage_.At(client.pod, gpu.key, client.incarnation);
  lane.before = lane.last->usage;
  lane.since = MonotonicNow();
  lane.total = &usage_.At(client.pod, gpu.key, 0);
  lane.on = &gpu.pods[client.pod];
  ++lane.on->clients;
  gpu.lanes[client.id.value] = &lane;
  return lane;
}

void ClientTable::Remove(const Client& client) {
  const ClientId id = client.id;
  for (const auto& lane : client.lanes) {
    lane->gpu->lanes.erase(id.value);
    --lane->on->clients;
  }
  usage_.Drop(client.pod, client.incarnation);
  auto [it, end] = by_process_.equal_range({client.node, client.pid, client.start_time});
  while (it != end && it->second != id) ++it;
  if (it != end) by_process_.erase(it);
  if (const auto of = of_node_.find(client.node); --of->second == 0) of_node_.erase(of);
  const auto of_pod = of_pod_.find(client.pod);
  std::erase(of_pod->second, &client);
  if (of_pod->second.empty()) of_pod_.erase(of_pod);
  index_.erase(id.value);
  clients_.erase(id.value);
}

}  // namespace baton::backend
