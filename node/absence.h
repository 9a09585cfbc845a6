// When this daemon itself was stopped (SIGSTOP, a frozen cgroup, a suspended machine), so that
// clients are not charged for what it did not read meanwhile. Not thread safe: lives in one event
// loop.
#ifndef BATON_NODE_ABSENCE_H_
#define BATON_NODE_ABSENCE_H_

#include <sys/socket.h>

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>

#include "base/time.h"

namespace baton::node {

class Absence {
 public:
  explicit Absence(boost::asio::io_context& io) : timer_(io) {}

  // From here on it notices by itself, until Stop().
  void Start();
  void Stop() { timer_.cancel(); }

  // When the message that recvmsg() has just given counts as heard: now, or when it came, if this
  // daemon was stopped then. What lay there because its client sends more than may be read counts
  // as heard now. Its socket stamps what comes (StampMessages()).
  Instant Heard(const msghdr& message);

 private:
  void Notice();
  void Look(Instant now);

  boost::asio::steady_timer timer_;
  Instant ran_at_{};  // when this daemon was known to run
  Instant away_from_{};
  Instant back_at_{};
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);  // for handlers that outlive it
};

}  // namespace baton::node

#endif  // BATON_NODE_ABSENCE_H_
