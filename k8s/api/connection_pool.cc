#include "k8s/api/connection_pool.h"

#include <algorithm>
#include <utility>

namespace baton::k8s {
namespace {

// API servers close what was silent for longer (Go's default there is 90 s).
constexpr Duration kIdleMax = std::chrono::seconds(45);

}  // namespace

bool ConnectionPool::Pause(Duration duration, Instant deadline, const std::stop_token& stop) {
  const Instant now = MonotonicNow();
  if (duration >= deadline - now) return false;
  std::unique_lock lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + duration;
  changed_.wait_until(lock, stop, until, [this] { return stopped_.load(); });
  return !stopped_ && !stop.stop_requested();
}

std::unique_ptr<ConnectionPool::Connection> ConnectionPool::Take(Instant deadline,
                                                                 const std::stop_token& stop) {
  const Instant now = MonotonicNow();
  std::unique_lock lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + std::max(deadline - now, Duration(0));
  const bool room = changed_.wait_until(lock, stop, until,
                                        [this] { return stopped_ || taken_ < connections_max_; });
  if (!room || stopped_ || stop.stop_requested()) return nullptr;
  ++taken_;
  while (!idle_.empty()) {
    std::unique_ptr<Connection> connection = std::move(idle_.back());
    idle_.pop_back();
    if (now - connection->idle_since < kIdleMax && connection->stream.Alive()) return connection;
  }
  return std::make_unique<Connection>();
}

void ConnectionPool::GiveBack(std::unique_ptr<Connection> connection) {
  const std::lock_guard lock(mutex_);
  --taken_;
  if (connection->http.reusable() && !connection->stream.aborted() && !stopped_) {
    connection->idle_since = MonotonicNow();
    connection->used = true;
    idle_.push_back(std::move(connection));
  }
  // All: the one that is woken may only be in a pause before it repeats.
  changed_.notify_all();
}

void ConnectionPool::DropIdle() {
  const std::lock_guard lock(mutex_);
  idle_.clear();
}

void ConnectionPool::Stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  for (Stream* stream : busy_) stream->Abort();
  changed_.notify_all();
}

ConnectionPool::Busy::Busy(ConnectionPool& pool, Stream& stream, const std::stop_token& stop)
    : pool_(pool), stream_(stream), on_stop_(stop, [&stream] { stream.Abort(); }) {
  const std::lock_guard lock(pool_.mutex_);
  pool_.busy_.insert(&stream_);
  if (pool_.stopped_) stream_.Abort();
}

ConnectionPool::Busy::~Busy() {
  const std::lock_guard lock(pool_.mutex_);
  pool_.busy_.erase(&stream_);
}

}  // namespace baton::k8s
