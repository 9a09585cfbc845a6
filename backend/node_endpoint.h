// The ZeroMQ side of batond: a ROUTER socket to which nodes' relays connect (and, for measuring,
// clients without one). Gives each node's frames to the arbiter and carries its answers back.
//
// With keys, a node is who its key says; without, it is believed (loopback only). A node whose link
// is cut keeps what it holds: its GPUs are frozen until it is back. A relay that restarted is told
// apart by its instance.
//
// The port is open to strangers. Who does not complete the handshake is closed after some seconds;
// while there are as many connections as a quarter of the file descriptors, new ones are closed at
// once, so that pods and operator find some. What is refused is said once a minute.
// Not thread safe: lives in one event loop.
#ifndef BATON_BACKEND_NODE_ENDPOINT_H_
#define BATON_BACKEND_NODE_ENDPOINT_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backend/arbiter.h"
#include "backend/control.h"
#include "backend/upstream.h"
#include "net/zap.h"
#include "net/zmq_socket.h"
#include "node/refusals.h"
#include "wire/codec.h"

namespace baton::backend {

class NodeEndpoint {
 public:
  NodeEndpoint(boost::asio::io_context& io, const config::Options& options, Arbiter& arbiter,
               Control& control, Books* books, node::EventLog& log);
  ~NodeEndpoint();

  // Listens as options.zmq says.
  Result<void> Listen();
  void Stop();
  // After a change of options.zmq.nodes: who is not listed any more is cut off.
  void NodesChanged();
  // How teams stand has changed.
  void TellTeams();
  std::vector<NodeStatus> Status() const;
  // Who is refused; empty: nobody.
  std::string Trouble() const { return refusals_.Trouble(MonotonicNow()); }

 private:
  class Node;
  class Direct;

  void Receive(const std::vector<std::string_view>& parts, std::string_view key);
  void FromNode(Node& node, const wire::Frame& frame);
  void FromNode(Node& node, const wire::FramesUp& batch);
  void FromDirect(Direct& direct, const wire::Frame& frame);
  void OnNodeHello(const std::string& identity, const wire::NodeHello& hello, std::string_view key);
  void OnHello(const std::string& identity, const wire::Hello& hello, std::string_view key);
  // Why a peer with that key may not act as the node; empty: it may, or there are no keys.
  std::string WhyNot(std::string_view key, std::string_view node) const;
  // To a request that came over the node's control socket.
  void Answer(const std::string& identity, uint64_t request, const node::LongAnswer& given);
  void AskAboutMissing(Node& node);
  // A connection was made or has ended.
  void OnMonitor(const std::vector<std::string_view>& parts);
  // Whether the descriptor stands for a connection to the port.
  bool IsConnection(int descriptor) const;
  // `about` tells what is to be said at most once a minute.
  void Warn(const std::string& about, const std::string& text);
  void Beat();
  template <class Message>
  bool SendTo(const std::string& identity, const Message& message);
  // The same once this turn of the loop is over, in one message with all that it is told by then,
  // where its relay understands that.
  template <class Message>
  void Tell(Node& node, const Message& message);
  void FlushSoon(Node& node);
  void Flush();
  void SendError(const std::string& identity, wire::ErrorKind kind, std::string_view text);

  boost::asio::io_context& io_;
  const config::Options& options_;
  Arbiter& arbiter_;
  Control& control_;
  node::EventLog& log_;
  std::optional<BooksServer> books_;
  const uint64_t instance_;
  net::ZmqContext context_;
  std::optional<net::Zap> zap_;
  net::ZmqSocket socket_;
  std::optional<net::ZmqSocket> monitor_;
  std::set<int> connections_;  // their descriptors
  node::Refusals refusals_;
  boost::asio::steady_timer beat_;
  std::map<std::string, std::unique_ptr<Node>> nodes_;                // by name
  std::unordered_map<std::string, Node*> node_by_identity_;           // current ones only
  std::unordered_map<std::string, std::unique_ptr<Direct>> directs_;  // by identity
  std::vector<Node*> to_flush_;                                       // at the end of this turn
  uint64_t directs_made_ = 0;
  int beats_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_NODE_ENDPOINT_H_
