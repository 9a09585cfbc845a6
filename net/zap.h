// Decides who may connect over CURVE: the nodes whose public keys are listed, each under its own
// name. Answers ZeroMQ's authentication requests (RFC 27, ZAP) in the daemon's loop.
// Not thread safe.
#ifndef BATON_NET_ZAP_H_
#define BATON_NET_ZAP_H_

#include <functional>
#include <map>
#include <string>

#include "net/zmq_socket.h"

namespace baton::net {

class Zap {
 public:
  // `nodes`: name → public key in Z85. `refused` is told the key and address of who is not listed.
  // Must exist before a CURVE server socket of the same context is bound.
  Zap(boost::asio::io_context& io, ZmqContext& context, std::map<std::string, std::string> nodes,
      std::function<void(const std::string& key, const std::string& address)> refused);

  // Later connections are judged by this list.
  void SetNodes(std::map<std::string, std::string> nodes);

 private:
  void Answer(const std::vector<std::string_view>& request);

  std::map<std::string, std::string> names_;  // by key
  std::function<void(const std::string&, const std::string&)> refused_;
  ZmqSocket socket_;
};

}  // namespace baton::net

#endif  // BATON_NET_ZAP_H_
