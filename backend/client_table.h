// The clients that a daemon knows: by id, by process, and how many there are of a pod and of a
// node.
//
// A client is one process (node, pid, start time) in one incarnation. It keeps its id when its
// connection, its node's relay or this daemon comes and goes.
//
// Not thread safe: of the event loop.
#ifndef BATON_BACKEND_CLIENT_TABLE_H_
#define BATON_BACKEND_CLIENT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "backend/gpus.h"
#include "backend/usage_book.h"
#include "base/check.h"
#include "base/ids.h"
#include "wire/codec.h"

namespace baton::backend {

// Sent where the client is connected.
template <class Message>
void SendTo(const Client& client, const Message& message) {
  if (client.link == nullptr || !client.connected) return;
  char buffer[512];
  const size_t size = wire::Encode(message, buffer, sizeof buffer);
  BATON_CHECK(size != 0);
  client.link->Send(client.number, {buffer, size});
}
void Refuse(const Client& client, wire::ErrorKind kind, const std::string& text);
// For people: its process, and on which node.
std::string Where(const Client& client);
bool HoldsAnything(const Client& client);
// Tells the client how it stands to the GPU of the lane. `pod`: null when it was deleted.
void SendAttached(const config::Options& options, const Lane& lane, const Pod* pod,
                  uint64_t memory_bound);

class ClientTable {
 public:
  using Process = std::tuple<std::string, uint64_t, uint64_t>;  // node, pid, start time

  explicit ClientTable(UsageBook& usage) : usage_(usage) {}

  // Null when there is none.
  Client* Find(ClientId id) const;
  Client* FindProcess(const Process& process, uint64_t incarnation) const;
  // Ordered by id.
  const std::map<uint64_t, std::unique_ptr<Client>>& all() const { return clients_; }
  // Ordered by id.
  const std::vector<Client*>& OfPod(PodId pod) const;
  size_t OfNode(const std::string& node) const;
  std::vector<ClientId> OfLink(const ClientLink& link) const;

  // A client that nobody has found yet: it has no link.
  Client& Add(PodId pod, const Process& process, uint64_t incarnation);
  // The client on one GPU more.
  Lane& AddLane(Client& client, Gpu& gpu);
  // Its lanes must be empty of memory; what it last reported is forgotten.
  void Remove(const Client& client);

  // Pods that are deleted, but have clients.
  bool Leaves(PodId pod) const { return leaving_.count(pod) != 0; }
  // False when it leaves already.
  bool BeginLeaving(PodId pod) { return leaving_.insert(pod).second; }
  void EndLeaving(PodId pod) { leaving_.erase(pod); }

 private:
  UsageBook& usage_;
  std::map<uint64_t, std::unique_ptr<Client>> clients_;
  std::unordered_map<uint64_t, Client*> index_;
  std::multimap<Process, ClientId> by_process_;
  std::map<PodId, std::vector<Client*>> of_pod_;
  std::map<std::string, size_t> of_node_;
  std::set<PodId> leaving_;
  uint64_t last_ = 0;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_CLIENT_TABLE_H_
