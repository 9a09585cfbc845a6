// The ZeroMQ side of the round trips: a tenant that speaks to batond over it, and a raw echo
// between two processes over the same kind of sockets.
#ifndef BATON_BENCH_ZMQ_LANE_H_
#define BATON_BENCH_ZMQ_LANE_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "cli/measure.h"
#include "cli/tenant_link.h"

namespace baton::bench {

// A tenant's frames straight to batond's ROUTER at `address`, without relay and CURVE.
std::unique_ptr<cli::Transport> ConnectDealer(const std::string& address);

// DEALER here, ROUTER in a forked child, TCP on the loopback, CURVE on or off. The child uses only
// what it makes itself, so this process may have other contexts.
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
