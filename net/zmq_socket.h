// A ZeroMQ socket in an Asio loop. It watches ZMQ_FD, which is edge-triggered: events are looked
// at again after every send and every receive until there are none. Never blocks.
// Not thread safe.
#ifndef BATON_NET_ZMQ_SOCKET_H_
#define BATON_NET_ZMQ_SOCKET_H_

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace baton::net {

// Owns a ZeroMQ context with one I/O thread.
class ZmqContext {
 public:
  ZmqContext();
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;
  void* get() const { return context_; }

 private:
  void* context_;
};

class ZmqSocket {
 public:
  // The parts of one message, valid during the call. `user`: the peer's user id, as the ZAP
  // handler gave it; empty without CURVE.
  using Handler =
      std::function<void(const std::vector<std::string_view>& parts, std::string_view user)>;

  ZmqSocket(boost::asio::io_context& io, ZmqContext& context, int type, Handler handler);
  ~ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  void Set(int option, int value);
  void SetLongest(int64_t bytes);  // a peer that sends a longer message is disconnected
  void Set(int option, std::string_view value);
  Result<void> Bind(const std::string& address);
  Result<void> Connect(const std::string& address);
  // Begins to take messages.
  void Start();
  // Takes none any more and closes.
  void Close();

  // False when the message could not be queued: nobody there, or too much unsent. It is then gone.
  bool Send(std::initializer_list<std::string_view> parts);
  void* get() const { return socket_; }

 private:
  void Await();
  void Drain();
  void DrainSoon();
  bool Receive();

  boost::asio::io_context& io_;
  Handler handler_;
  void* socket_;
  boost::asio::posix::stream_descriptor readiness_;
  bool started_ = false;
  bool waiting_ = false;
  bool draining_ = false;
  bool drain_posted_ = false;
  std::vector<std::string_view> parts_;
  std::string user_;  // who sent what was received last
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::net

#endif  // BATON_NET_ZMQ_SOCKET_H_
