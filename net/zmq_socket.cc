#include "net/zmq_socket.h"

#include <errno.h>
#include <zmq.h>

#include <array>
#include <boost/asio/post.hpp>

#include "base/check.h"

namespace baton::net {
namespace {

// Parts of one message; ZAP's have seven, ours two. Further ones are dropped.
constexpr size_t kPartsMax = 16;
// Messages handled before the loop's other events have their turn.
constexpr int kTurn = 64;

// Who sent the message, where that is known. By itself, for cmake/thread-sanitizer.supp names it: a
// thread of ZeroMQ's wrote that text, and nobody else ever does.
__attribute__((noinline)) void CopyUser(zmq_msg_t& message, std::string& user) {
  if (const char* id = zmq_msg_gets(&message, "User-Id")) user = id;
}

}  // namespace

ZmqContext::ZmqContext() : context_(zmq_ctx_new()) { BATON_CHECK(context_ != nullptr); }
ZmqContext::~ZmqContext() { zmq_ctx_term(context_); }

ZmqSocket::ZmqSocket(boost::asio::io_context& io, ZmqContext& context, int type, Handler handler)
    : io_(io),
      handler_(std::move(handler)),
      socket_(zmq_socket(context.get(), type)),
      readiness_(io) {
  BATON_CHECK(socket_ != nullptr);
  Set(ZMQ_LINGER, 0);
}

ZmqSocket::~ZmqSocket() {
  *alive_ = false;
  Close();
}

void ZmqSocket::Close() {
  if (readiness_.is_open()) readiness_.release();  // the descriptor is ZeroMQ's own
  if (socket_ != nullptr) zmq_close(socket_);
  socket_ = nullptr;
}

void ZmqSocket::Set(int option, int value) {
  BATON_CHECK(zmq_setsockopt(socket_, option, &value, sizeof value) == 0);
}

void ZmqSocket::SetLongest(int64_t bytes) {
  BATON_CHECK(zmq_setsockopt(socket_, ZMQ_MAXMSGSIZE, &bytes, sizeof bytes) == 0);
}

void ZmqSocket::Set(int option, std::string_view value) {
  BATON_CHECK(zmq_setsockopt(socket_, option, value.data(), value.size()) == 0);
}

Result<void> ZmqSocket::Bind(const std::string& address) {
  if (zmq_bind(socket_, address.c_str()) == 0) return {};
  return Fail(errno == EADDRINUSE ? ErrorCode::kExists : ErrorCode::kInvalid,
              "cannot listen on " + address + ": " + zmq_strerror(errno) +
                  "; write an address such as tcp://127.0.0.1:7411 that is free");
}

Result<void> ZmqSocket::Connect(const std::string& address) {
  if (zmq_connect(socket_, address.c_str()) == 0) return {};
  return Fail(ErrorCode::kInvalid, "cannot connect to " + address + ": " + zmq_strerror(errno) +
                                       "; write an address such as tcp://127.0.0.1:7411");
}

void ZmqSocket::Start() {
  int fd = -1;
  size_t size = sizeof fd;
  BATON_CHECK(zmq_getsockopt(socket_, ZMQ_FD, &fd, &size) == 0);
  readiness_.assign(fd);
  started_ = true;
  DrainSoon();
}

void ZmqSocket::Await() {
  if (waiting_ || socket_ == nullptr) return;
  waiting_ = true;
  readiness_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                        [this, alive = alive_](const boost::system::error_code& error) {
                          if (!*alive) return;
                          waiting_ = false;
                          if (!error) Drain();
                        });
}

void ZmqSocket::DrainSoon() {
  if (drain_posted_ || draining_ || !started_) return;
  drain_posted_ = true;
  boost::asio::post(io_, [this, alive = alive_] {
    if (!*alive) return;
    drain_posted_ = false;
    Drain();
  });
}

void ZmqSocket::Drain() {
  draining_ = true;
  for (int i = 0; i < kTurn && socket_ != nullptr; ++i) {
    int events = 0;
    size_t size = sizeof events;
    if (zmq_getsockopt(socket_, ZMQ_EVENTS, &events, &size) != 0 || (events & ZMQ_POLLIN) == 0 ||
        !Receive()) {
      draining_ = false;
      Await();
      return;
    }
  }
  draining_ = false;
  if (socket_ != nullptr) DrainSoon();
}

bool ZmqSocket::Receive() {
  std::array<zmq_msg_t, kPartsMax> messages;
  size_t count = 0;
  bool more = true;
  parts_.clear();
  user_.clear();
  while (more) {
    zmq_msg_t spare;
    zmq_msg_t* message = count < kPartsMax ? &messages[count] : &spare;
    zmq_msg_init(message);
    if (zmq_msg_recv(message, socket_, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(message);
      break;
    }
    more = zmq_msg_more(message) != 0;
    if (count == kPartsMax) {
      zmq_msg_close(&spare);
      continue;
    }
    parts_.emplace_back(static_cast<const char*>(zmq_msg_data(message)), zmq_msg_size(message));
    CopyUser(*message, user_);
    ++count;
  }
  // The handler may close this socket, but not destroy it.
  if (count != 0) handler_(parts_, user_);
  for (size_t i = 0; i < count; ++i) zmq_msg_close(&messages[i]);
  return count != 0;
}

bool ZmqSocket::Send(std::initializer_list<std::string_view> parts) {
  if (socket_ == nullptr) return false;
  bool sent = true;
  size_t left = parts.size();
  for (const std::string_view part : parts) {
    --left;
    if (zmq_send(socket_, part.data(), part.size(), ZMQ_DONTWAIT | (left != 0 ? ZMQ_SNDMORE : 0)) <
        0) {
      sent = false;
      break;
    }
  }
  // Sending takes in what the I/O thread had to say, arrivals included: nobody else announces them.
  DrainSoon();
  return sent;
}

}  // namespace baton::net
