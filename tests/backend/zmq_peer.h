// The other end of a ZeroMQ link of batond or a relay: says exactly what a test wants.
#ifndef BATON_TESTS_BACKEND_ZMQ_PEER_H_
#define BATON_TESTS_BACKEND_ZMQ_PEER_H_

#include <gtest/gtest.h>
#include <zmq.h>

#include <string>
#include <vector>

#include "tests/backend/scripted_client.h"
#include "wire/codec.h"

namespace baton::backend {

class ZmqPeer {
 public:
  explicit ZmqPeer(int type) : context_(zmq_ctx_new()), socket_(zmq_socket(context_, type)) {
    const int linger = 0, patience = ScriptedClient::kPatienceMs;
    zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &patience, sizeof patience);
  }
  ~ZmqPeer() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  ZmqPeer(const ZmqPeer&) = delete;
  ZmqPeer& operator=(const ZmqPeer&) = delete;
  void Connect(const std::string& address) { EXPECT_EQ(zmq_connect(socket_, address.c_str()), 0); }
  // Listens where there is room. The address.
  std::string Listen() {
    EXPECT_EQ(zmq_bind(socket_, "tcp://127.0.0.1:*"), 0);
    char address[64];
    size_t size = sizeof address;
    EXPECT_EQ(zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, address, &size), 0);
    return address;
  }
  // A ROUTER answers the one whom it heard last.
  void SendRaw(const std::string& bytes) {
    if (!identity_.empty()) zmq_send(socket_, identity_.data(), identity_.size(), ZMQ_SNDMORE);
    zmq_send(socket_, bytes.data(), bytes.size(), 0);
  }
  template <class Message>
  void Send(const Message& message, size_t payload = 0) {
    std::string buffer(payload + 4096, '\0');
    buffer.resize(wire::Encode(message, buffer.data(), buffer.size()));
    SendRaw(buffer);
  }
  // The next one; others are dropped. False when patience ends.
  template <class Message>
  bool Await(Message& message) {
    while (Receive()) {
      wire::Frame frame;
      if (frame.Parse(frame_.data(), frame_.size()) == wire::DecodeStatus::kOk &&
          frame.type() == Message::kType) {
        return frame.Read(message);
      }
    }
    return false;
  }

 private:
  bool Receive() {
    std::vector<std::string> parts;
    int more = 1;
    while (more != 0) {
      zmq_msg_t part;
      zmq_msg_init(&part);
      const bool got = zmq_msg_recv(&part, socket_, 0) >= 0;
      if (got) parts.emplace_back(static_cast<char*>(zmq_msg_data(&part)), zmq_msg_size(&part));
      more = got ? zmq_msg_more(&part) : 0;
      zmq_msg_close(&part);
    }
    if (parts.empty()) return false;
    if (parts.size() > 1) identity_ = parts[0];
    frame_ = parts.back();
    return true;
  }

  void* context_;
  void* socket_;
  std::string identity_;
  std::string frame_;
};

}  // namespace baton::backend

#endif  // BATON_TESTS_BACKEND_ZMQ_PEER_H_
