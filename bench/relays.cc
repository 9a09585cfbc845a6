#include "bench/relays.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <deque>

#include "base/entropy.h"
#include "scheduler/hold_meter.h"
#include "wire/batch.h"
#include "wire/codec.h"
#include "wire/messages.h"

namespace baton::bench {
namespace {

constexpr Duration kPatience = std::chrono::seconds(5);
constexpr Duration kLookAgain = std::chrono::milliseconds(10);
constexpr Duration kBeatEvery = std::chrono::milliseconds(500);
constexpr uint64_t kMemory = uint64_t{80} << 30;

}  // namespace

struct Relays::Node {
  Node() = default;
  ~Node() {
    if (socket != nullptr) zmq_close(socket);
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // With all that is said until Flush().
  template <class Message>
  bool Say(const Message& message) {
    std::array<char, wire::kBatchMax - wire::kBatchLength> frame;
    const size_t size = wire::Encode(message, frame.data(), frame.size());
    if (size == 0) return false;
    batch.Add({frame.data(), size}, [this](std::string_view frames) { Send(frames); });
    return true;
  }
  void Flush() {
    batch.Flush([this](std::string_view frames) { Send(frames); });
  }
  void Send(std::string_view frames) { zmq_send(socket, frames.data(), frames.size(), 0); }

  wire::NodeHello hello;
  void* socket = nullptr;
  int descriptor = -1;
  bool welcomed = false;
  std::string refused;  // why, by batond
  wire::FrameBatch<wire::FramesUp> batch;
};

struct Relays::Client {
  Node& node;
  size_t number = 0;
  std::deque<std::string> inbox{};
  bool arrived = false;             // it is in arrived_
  scheduler::HoldMeter meter{};     // of the one GPU that it attaches to
  scheduler::PodMeter pod_meter{};  // its pod has no other client
};

class Relays::ClientTransport : public cli::Transport {
 public:
  ClientTransport(Relays& relays, Client& client) : relays_(relays), client_(client) {}

  size_t Send(const char* data, size_t size) override {
    wire::Frame frame;
    if (frame.Parse(data, size) != wire::DecodeStatus::kOk) return 0;
    // In batond they are numbers from 1; the process of each is one of its own.
    const uint64_t number = client_.number + 1;
    if (frame.type() == wire::Hello::kType) {
      wire::ClientUp up;
      up.client = up.pid = up.start_time = number;
      up.uid = getuid();
      up.hello = {data, size};
      return client_.node.Say(up) ? size : 0;
    }
    wire::ClientFrame up;
    up.client = number;
    up.frame = {data, size};
    wire::State state;
    if (frame.Read(state)) {
      const auto held = client_.pod_meter.Said(MonotonicNow(), state, client_.meter);
      up.held_ns = static_cast<uint64_t>(Nanos(held.held));
      up.pod_held_ns = static_cast<uint64_t>(Nanos(held.pod_held));
    }
    return client_.node.Say(up) ? size : 0;
  }

  size_t Receive(char* frame, bool wait) override {
    const Instant until = MonotonicNow() + kPatience;
    if (wait) client_.node.Flush();
    while (wait && client_.inbox.empty() && MonotonicNow() < until) {
      relays_.Drain(client_.node);
      if (client_.inbox.empty()) relays_.Wait(std::min(until, MonotonicNow() + kLookAgain));
    }
    if (client_.inbox.empty()) return 0;
    const std::string next = std::move(client_.inbox.front());
    client_.inbox.pop_front();
    std::copy(next.begin(), next.end(), frame);
    return next.size();
  }

 private:
  Relays& relays_;
  Client& client_;
};

Result<std::unique_ptr<Relays>> Relays::Connect(const std::string& address,
                                                const std::string& server_key,
                                                const std::vector<RelayNode>& nodes) {
  std::unique_ptr<Relays> relays(new Relays);
  relays->context_ = zmq_ctx_new();
  for (const RelayNode& of : nodes) {
    auto node = std::make_unique<Node>();
    node->hello.node.Set(of.name);
    node->hello.instance = RandomId();
    node->hello.batches = true;
    std::string gpus;
    for (const std::string& uuid : of.gpus) gpus += fmt::format("{} {} none\n", uuid, kMemory);
    node->hello.gpus.Set(gpus);
    node->socket = zmq_socket(relays->context_, ZMQ_DEALER);
    const int none = 0;
    zmq_setsockopt(node->socket, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(node->socket, ZMQ_SNDHWM, &none, sizeof none);
    zmq_setsockopt(node->socket, ZMQ_RCVHWM, &none, sizeof none);
    zmq_setsockopt(node->socket, ZMQ_CURVE_PUBLICKEY, of.keys.public_key.c_str(), 41);
    zmq_setsockopt(node->socket, ZMQ_CURVE_SECRETKEY, of.keys.secret_key.c_str(), 41);
    zmq_setsockopt(node->socket, ZMQ_CURVE_SERVERKEY, server_key.c_str(), 41);
    if (zmq_connect(node->socket, address.c_str()) != 0) {
      return Fail(ErrorCode::kInternal, fmt::format("{}: {}", address, zmq_strerror(zmq_errno())));
    }
    node->Say(node->hello);
    node->Flush();  // alone, as batond does not know yet that this side may batch
    size_t size = sizeof node->descriptor;
    zmq_getsockopt(node->socket, ZMQ_FD, &node->descriptor, &size);
    relays->nodes_.push_back(std::move(node));
  }
  const Instant until = MonotonicNow() + kPatience;
  for (const auto& node : relays->nodes_) {
    while (!node->welcomed) {
      relays->Drain(*node);
      if (!node->welcomed) relays->Wait(std::min(until, MonotonicNow() + kLookAgain));
      if (!node->refused.empty()) return Fail(ErrorCode::kDenied, node->refused);
      if (MonotonicNow() >= until) {
        return Fail(ErrorCode::kUnavailable, "batond at " + address + " does not answer its nodes");
      }
    }
  }
  return relays;
}

Relays::~Relays() {
  nodes_.clear();
  if (context_ != nullptr) zmq_ctx_term(context_);
}

std::unique_ptr<cli::Transport> Relays::NewClient(size_t node) {
  clients_.push_back(std::make_unique<Client>(Client{*nodes_[node], clients_.size()}));
  return std::make_unique<ClientTransport>(*this, *clients_.back());
}

bool Relays::Await(Instant until, const Hear& hear) {
  Beat();
  for (const auto& node : nodes_) node->Flush();
  for (const auto& node : nodes_) Drain(*node);
  if (arrived_.empty()) {
    Wait(std::min(until, beaten_ + kBeatEvery));
    for (const auto& node : nodes_) Drain(*node);
  }
  for (const size_t number : std::exchange(arrived_, {})) {
    clients_[number]->arrived = false;
    if (!hear(number, false)) return false;
  }
  return true;
}

void Relays::Wait(Instant until) {
  // zmq_poll() knows milliseconds only. These descriptors tell once that something has come, and
  // each socket was drained just before.
  std::vector<pollfd> ready;
  for (const auto& node : nodes_) ready.push_back({node->descriptor, POLLIN, 0});
  const int64_t left = std::max<int64_t>(0, Nanos(until - MonotonicNow()));
  const timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
  ppoll(ready.data(), ready.size(), &timeout, nullptr);
}

void Relays::Drain(Node& node) {
  std::array<char, wire::kBatchMax + wire::kTenantFrameMax> frame;
  while (true) {
    const int got = zmq_recv(node.socket, frame.data(), frame.size(), ZMQ_DONTWAIT);
    if (got < 0) return;
    Take(node, frame.data(), std::min(static_cast<size_t>(got), frame.size()));
  }
}

void Relays::Take(Node& node, const char* data, size_t size) {
  wire::Frame frame;
  if (frame.Parse(data, size) != wire::DecodeStatus::kOk) return;
  wire::FramesDown many;
  if (frame.Read(many)) {
    wire::EachFrame(many.frames, [&](std::string_view one) { Take(node, one.data(), one.size()); });
    return;
  }
  wire::ToClient to;
  wire::Error error;
  if (frame.type() == wire::NodeWelcome::kType) node.welcomed = true;
  if (frame.Read(error)) node.refused = error.text.view();
  if (!frame.Read(to) || to.client == 0 || to.client > clients_.size()) return;
  Client& client = *clients_[to.client - 1];
  wire::Frame inner;
  wire::Token token;
  if (inner.Parse(to.frame.data, to.frame.size) == wire::DecodeStatus::kOk && inner.Read(token)) {
    const Instant now = MonotonicNow();
    client.meter.Sent(now, token);
    client.pod_meter.Sent(now, token);
  }
  client.inbox.emplace_back(to.frame.data, to.frame.size);
  if (!std::exchange(client.arrived, true)) arrived_.push_back(client.number);
}

void Relays::Beat() {
  const Instant now = MonotonicNow();
  if (now < beaten_ + kBeatEvery) return;
  beaten_ = now;
  for (const auto& node : nodes_) {
    wire::Ping ping;
    ping.instance = node->hello.instance;
    node->Say(ping);
  }
}

}  // namespace baton::bench
