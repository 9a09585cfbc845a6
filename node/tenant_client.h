// What the tenants' endpoint keeps of each client. Of node/tenant_endpoint.cc.
#ifndef BATON_NODE_TENANT_CLIENT_H_
#define BATON_NODE_TENANT_CLIENT_H_

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "node/closer.h"
#include "node/listen_unix.h"
#include "node/tenant_endpoint.h"
#include "wire/codec.h"

namespace baton::node {

struct TenantEndpoint::Client {
  explicit Client(boost::asio::io_context& io)
      : socket(io), exit_watch(io), timer(io), exec_timer(io) {}
  ~Client() { CloseElsewhere(socket); }

  uint64_t number = 0;
  Peer peer;
  uint64_t incarnation = 0;
  std::string owner;  // whose bound it counts for; empty: nobody's
  bool connected = false;
  bool said_hello = false;
  bool served = false;
  bool reaping = false;
  bool closing = false;     // a deferred disconnect is under way
  bool writing = false;     // waits for room in the socket
  uint32_t connection = 0;  // grows with each connection, so late handlers know theirs is over
  boost::asio::posix::stream_descriptor socket;
  boost::asio::posix::stream_descriptor exit_watch;  // peer.pidfd, once it has said Hello
  boost::asio::steady_timer timer;
  boost::asio::steady_timer exec_timer;  // of one that has disconnected
  struct Unsent {
    std::string frame;
    Words words;
  };
  std::deque<Unsent> unsent;
  Words words;
  std::vector<Lane> lanes;        // one for each GPU, never more than kLanesMax
  std::vector<std::string> used;  // GPUs that it ever attached, whatever their index now
  Instant heard_at{};             // the frame that is handled
  std::shared_ptr<Rate> rate;     // of its frames: its pod's, once it has said Hello
  Instant reap_until{};
  Duration reap_poll = std::chrono::microseconds(500);

  // False: it is to wait for room in the socket.
  bool SendNow(std::string_view frame, const Words& with = nullptr);
  void SendError(wire::ErrorKind kind, std::string_view text);

  // Null: no GPU is attached by this index.
  Lane* At(uint8_t index) {
    const auto lane = std::find_if(lanes.begin(), lanes.end(), [index](const Lane& l) {
      return l.attached && l.index == index;
    });
    return lane == lanes.end() ? nullptr : &*lane;
  }
  Lane* Of(std::string_view uuid) {
    const auto lane =
        std::find_if(lanes.begin(), lanes.end(), [uuid](const Lane& l) { return l.uuid == uuid; });
    return lane == lanes.end() ? nullptr : &*lane;
  }
};

inline bool TenantEndpoint::Client::SendNow(std::string_view frame, const Words& with) {
  if (!unsent.empty()) return false;  // order is kept
  return TrySend(socket.native_handle(), frame, with != nullptr ? with->fd() : -1);
}

inline void TenantEndpoint::Client::SendError(wire::ErrorKind kind, std::string_view text) {
  wire::Error message;
  message.kind = kind;
  message.text.Set(text);
  char buffer[512];
  const size_t size = wire::Encode(message, buffer, sizeof buffer);
  SendNow({buffer, size});
}

}  // namespace baton::node

#endif  // BATON_NODE_TENANT_CLIENT_H_
