// Decides who may connect over CURVE: those with a public key that is listed for some node. Answers
// ZeroMQ's authentication requests (RFC 27, ZAP) in the daemon's loop. The user id of a peer's
// messages is its public key: it may act as each node for which that is listed *now*. So a node
// that lists another's key as its own gains nothing, and takes nothing from the other. Not thread
// safe.
#ifndef BATON_NET_ZAP_H_
#define BATON_NET_ZAP_H_

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "net/zmq_socket.h"

namespace baton::net {

class Zap {
 public:
  // `nodes`: name → public key in Z85. `refused` is told the key and address of who is not listed.
  // Must exist before a CURVE server socket of the same context is bound.
  Zap(boost::asio::io_context& io, ZmqContext& context,
      const std::map<std::string, std::string>& nodes,
      std::function<void(const std::string& key, const std::string& address)> refused);

  // This list counts from now on, for connections that are open too.
  void SetNodes(const std::map<std::string, std::string>& nodes);
  // Whether the key is that node's.
  bool IsOf(std::string_view key, std::string_view node) const;
  // The node whose key it is, the first by name of several; empty: the key is not listed.
  std::string NodeOf(std::string_view key) const;

 private:
  void Answer(const std::vector<std::string_view>& request);

  std::map<std::string, std::set<std::string, std::less<>>, std::less<>> names_;  // by key
  std::function<void(const std::string&, const std::string&)> refused_;
  ZmqSocket socket_;
};

}  // namespace baton::net

#endif  // BATON_NET_ZAP_H_
