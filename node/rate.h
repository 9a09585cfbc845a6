// How often a tenant may do something: a token bucket. And the queue of those that did it too
// often.
#ifndef BATON_NODE_RATE_H_
#define BATON_NODE_RATE_H_

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/time.h"

namespace baton::node {

// `burst` at once and `per_second` in the long run; both at least 1. No clock. Not thread safe.
class Rate {
 public:
  Rate(int64_t per_second, int64_t burst, Instant now)
      : per_second_(per_second), burst_ns_(burst * kSecond), left_ns_(burst_ns_), at_(now) {}

  // Whether any of it is left at `now` (never before an earlier call's).
  bool May(Instant now) {
    const int64_t most = burst_ns_ - left_ns_;
    const int64_t elapsed = std::min(Nanos(now - at_), most / per_second_ + 1);
    left_ns_ = std::min(burst_ns_, left_ns_ + elapsed * per_second_);
    at_ = now;
    return left_ns_ > 0;
  }
  // May go below nothing: what is spent is paid later.
  void Spend(int64_t amount) { left_ns_ -= amount * kSecond; }
  // Nothing is spent, so it is as good as new.
  bool Full(Instant now) {
    May(now);
    return left_ns_ == burst_ns_;
  }

 private:
  static constexpr int64_t kSecond = 1'000'000'000;
  const int64_t per_second_;
  const int64_t burst_ns_;  // in parts of 10⁻⁹
  int64_t left_ns_;
  Instant at_;  // what was earned until here is in left_ns_
};

// A rate for each name; who has spent none of its own is forgotten.
class Rates {
 public:
  Rates(int64_t per_second, int64_t burst) : per_second_(per_second), burst_(burst) {}

  // The same for the same name, for as long as it matters.
  std::shared_ptr<Rate> Of(std::string_view name, Instant now);
  size_t size() const { return of_.size(); }
  void Clear() { of_.clear(); }

 private:
  const int64_t per_second_;
  const int64_t burst_;
  size_t sweep_at_ = 64;
  std::map<std::string, std::shared_ptr<Rate>, std::less<>> of_;
};

// Who is over its rate takes turns with the others that are, as the rates come back: looked at
// every few milliseconds, whatever their number, so that they cost the others no more than their
// rates.
class Throttle {
 public:
  static constexpr Duration kEvery = std::chrono::milliseconds(5);

  explicit Throttle(boost::asio::io_context& io) : timer_(io) {}
  ~Throttle() { *alive_ = false; }

  // `turn` is called when the rate allows it, again until it returns false; it spends some of the
  // rate, or returns false. It may call Add, and end this.
  void Add(std::shared_ptr<Rate> rate, std::function<bool()> turn);
  void Stop();

 private:
  struct Waiting {
    std::shared_ptr<Rate> rate;
    std::function<bool()> turn;
  };
  void Await();
  void Look();

  boost::asio::steady_timer timer_;
  std::deque<Waiting> waiting_;
  bool awaiting_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // false after destruction
};

}  // namespace baton::node

#endif  // BATON_NODE_RATE_H_
