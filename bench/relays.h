// The relays of many nodes, played by this process: what thousands of tenants say goes to batond
// over ZeroMQ with CURVE, as baton-frontend would pass it on, without a process for each of them.
#ifndef BATON_BENCH_RELAYS_H_
#define BATON_BENCH_RELAYS_H_

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/contention.h"
#include "cli/tenant_link.h"
#include "net/keys.h"

namespace baton::bench {

struct RelayNode {
  std::string name;
  net::KeyPair keys;
  std::vector<std::string> gpus;  // uuids
};

// Not thread safe.
class Relays : public cli::Arrivals {
 public:
  // Connects each node to batond at `address`, and returns when all have been welcomed.
  static Result<std::unique_ptr<Relays>> Connect(const std::string& address,
                                                 const std::string& server_key,
                                                 const std::vector<RelayNode>& nodes);
  ~Relays() override;

  // A new client on the node. Its number among all of them, in order of these calls, is the one
  // that Await() gives. Lives no longer than this.
  std::unique_ptr<cli::Transport> NewClient(size_t node);

  bool Await(Instant until, const Hear& hear) override;

 private:
  struct Node;
  struct Client;
  class ClientTransport;

  Relays() = default;
  // Takes what has come to the node. The clients that it is for are noted.
  void Drain(Node& node);
  void Take(Node& node, const char* data, size_t size);
  // Until something has come to any of the nodes; of one that was not drained it may not be told.
  void Wait(Instant until);
  // Says to batond that they are there.
  void Beat();

  void* context_ = nullptr;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<size_t> arrived_;  // clients, each once
  Instant beaten_{};
};

}  // namespace baton::bench

#endif  // BATON_BENCH_RELAYS_H_
