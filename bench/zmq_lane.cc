#include "bench/zmq_lane.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "net/keys.h"
#include "wire/messages.h"

namespace baton::bench {
namespace {

constexpr int kPatienceMs = 5000;

tl::unexpected<Error> ZmqFailed(const char* what) {
  return Fail(ErrorCode::kInternal, std::string(what) + ": " + zmq_strerror(zmq_errno()));
}

void SetInt(void* socket, int option, int value) {
  zmq_setsockopt(socket, option, &value, sizeof value);
}

class DealerTransport : public cli::Transport {
 public:
  explicit DealerTransport(const std::string& address)
      : context_(zmq_ctx_new()), socket_(zmq_socket(context_, ZMQ_DEALER)) {
    SetInt(socket_, ZMQ_LINGER, 0);
    SetInt(socket_, ZMQ_RCVTIMEO, kPatienceMs);
    zmq_connect(socket_, address.c_str());  // nobody there is found out by the first Receive
  }
  ~DealerTransport() override {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  size_t Send(const char* frame, size_t size) override {
    return zmq_send(socket_, frame, size, 0) >= 0 ? size : 0;
  }
  size_t Receive(char* frame, bool wait) override {
    const int got = zmq_recv(socket_, frame, wire::kTenantFrameMax, wait ? 0 : ZMQ_DONTWAIT);
    return got > 0 ? std::min(static_cast<size_t>(got), wire::kTenantFrameMax) : 0;
  }

 private:
  void* context_;
  void* socket_;
};

void UseCurve(void* socket, const net::KeyPair& own, const std::string& server_key) {
  zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, own.public_key.c_str(), 41);
  zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, own.secret_key.c_str(), 41);
  zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server_key.c_str(), 41);
}

// The echo's other process: binds, says where, and answers until it is killed.
[[noreturn]] void AnswerEchoes(bool curve, const net::KeyPair& keys, int report) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  void* socket = zmq_socket(zmq_ctx_new(), ZMQ_ROUTER);
  if (curve) {
    SetInt(socket, ZMQ_CURVE_SERVER, 1);
    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, keys.secret_key.c_str(), 41);
  }
  std::array<char, 256> address{};
  size_t size = address.size();
  if (zmq_bind(socket, "tcp://127.0.0.1:*") != 0 ||
      zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, address.data(), &size) != 0 ||
      write(report, address.data(), address.size()) < 0) {
    _exit(1);
  }
  std::array<char, 64> peer;
  std::array<char, 2 * wire::kTenantFrameMax> frame;
  for (;;) {
    const int peer_size = zmq_recv(socket, peer.data(), peer.size(), 0);
    const int got = zmq_recv(socket, frame.data(), frame.size(), 0);
    if (peer_size < 0 || got < 0) _exit(1);
    zmq_send(socket, peer.data(), static_cast<size_t>(peer_size), ZMQ_SNDMORE);
    zmq_send(socket, frame.data(), static_cast<size_t>(got), 0);
  }
}

}  // namespace

std::unique_ptr<cli::Transport> ConnectDealer(const std::string& address) {
  return std::make_unique<DealerTransport>(address);
}

Result<std::unique_ptr<ZmqEcho>> ZmqEcho::Start(bool curve) {
  const Result<net::KeyPair> server = net::MakeKeyPair();
  const Result<net::KeyPair> client = net::MakeKeyPair();
  if (!server || !client) return tl::unexpected((server ? client : server).error());
  int ends[2];
  if (pipe(ends) != 0) return Fail(ErrorCode::kInternal, std::strerror(errno));
  std::unique_ptr<ZmqEcho> echo(new ZmqEcho);
  echo->child_ = fork();
  if (echo->child_ == 0) AnswerEchoes(curve, *server, ends[1]);
  close(ends[1]);
  std::array<char, 256> address{};
  const ssize_t got = read(ends[0], address.data(), address.size());
  close(ends[0]);
  if (got <= 0) return Fail(ErrorCode::kInternal, "the raw echo's other process did not start");
  echo->context_ = zmq_ctx_new();
  echo->socket_ = zmq_socket(echo->context_, ZMQ_DEALER);
  SetInt(echo->socket_, ZMQ_LINGER, 0);
  SetInt(echo->socket_, ZMQ_RCVTIMEO, kPatienceMs);
  if (curve) UseCurve(echo->socket_, *client, server->public_key);
  if (zmq_connect(echo->socket_, address.data()) != 0) return ZmqFailed("zmq_connect");
  return echo;
}

ZmqEcho::~ZmqEcho() {
  if (socket_ != nullptr) zmq_close(socket_);
  if (context_ != nullptr) zmq_ctx_term(context_);
  if (child_ > 0) {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
}

Result<Duration> ZmqEcho::RoundTrip(size_t frame_size) {
  std::array<char, 2 * wire::kTenantFrameMax> frame{};
  const Instant sent = MonotonicNow();
  if (zmq_send(socket_, frame.data(), frame_size, 0) < 0 ||
      zmq_recv(socket_, frame.data(), frame.size(), 0) < 0) {
    return ZmqFailed("the raw echo");
  }
  return MonotonicNow() - sent;
}

}  // namespace baton::bench
