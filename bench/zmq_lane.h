// The ZeroMQ side of the round trips: a tenant that speaks to batond as a relay would, and a raw
// echo between two processes over the same kind of sockets.
#ifndef BATON_BENCH_ZMQ_LANE_H_
#define BATON_BENCH_ZMQ_LANE_H_

#include <sys/types.h>

#include <array>
#include <memory>
#include <string>

#include "cli/measure.h"
#include "cli/tenant_link.h"
#include "wire/messages.h"

namespace baton::bench {

// A relay of one client: a DEALER without CURVE. The client's frames travel inside ClientUp and
// ClientFrame.
class Relay : public cli::Transport {
 public:
  // Fails when batond at `address` does not welcome it within five seconds.
  static Result<std::unique_ptr<Relay>> Connect(const std::string& address,
                                                const std::string& node);
  ~Relay() override;

  // A control request, as a node's control socket passes it on. The answer's JSON.
  Result<std::string> Ask(const std::string& json);
  size_t Send(const char* frame, size_t size) override;
  size_t Receive(char* frame) override;

 private:
  Relay();
  template <class Message>
  size_t Put(const Message& message);
  template <class Message>
  Result<Message> Await();

  void* context_;
  void* socket_;
  bool up_ = false;  // ClientUp was sent
  Instant token_at_{};
  std::array<char, 2 * wire::kTenantFrameMax> received_;  // what the last Await returned lies here
};

// DEALER here, ROUTER in a forked child, TCP on the loopback, CURVE on or off. Make it while the
// process has one thread.
class ZmqEcho : public cli::Echo {
 public:
  static Result<std::unique_ptr<ZmqEcho>> Start(bool curve);
  ~ZmqEcho() override;
  Result<Duration> RoundTrip(size_t frame_size) override;

 private:
  ZmqEcho() = default;
  void* context_ = nullptr;
  void* socket_ = nullptr;
  pid_t child_ = -1;
};

}  // namespace baton::bench

#endif  // BATON_BENCH_ZMQ_LANE_H_
