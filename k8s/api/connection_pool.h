// Connections to one server, kept and used again; at most so many at once. What waits for one, or
// is busy on one, ends soon after Stop().
//
// Thread safe.
#ifndef BATON_K8S_API_CONNECTION_POOL_H_
#define BATON_K8S_API_CONNECTION_POOL_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stop_token>
#include <vector>

#include "base/time.h"
#include "k8s/api/http.h"
#include "k8s/api/stream.h"

namespace baton::k8s {

class ConnectionPool {
 public:
  struct Connection {
    Stream stream;
    HttpExchange http{stream};
    Instant idle_since{};
    bool used = false;  // it is open, and was used before
  };

  explicit ConnectionPool(uint32_t connections_max) : connections_max_(connections_max) {}

  // A kept connection, or one that is to be opened. Null: all were busy until the deadline, or
  // Stop() or `stop` came before.
  std::unique_ptr<Connection> Take(Instant deadline, const std::stop_token& stop);
  // Of one that was taken; it is kept where it can be used again.
  void GiveBack(std::unique_ptr<Connection> connection);
  // Closes all that are kept.
  void DropIdle();
  // False: the deadline, Stop() or `stop` comes before.
  bool Pause(Duration duration, Instant deadline, const std::stop_token& stop);

  void Stop();
  bool stopped() const { return stopped_; }

  // While it lives, Stop() and `stop` end the stream.
  class Busy {
   public:
    Busy(ConnectionPool& pool, Stream& stream, const std::stop_token& stop);
    ~Busy();

   private:
    ConnectionPool& pool_;
    Stream& stream_;
    std::stop_callback<std::function<void()>> on_stop_;
  };

 private:
  const uint32_t connections_max_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<std::unique_ptr<Connection>> idle_;
  size_t taken_ = 0;
  std::set<Stream*> busy_;
  std::atomic<bool> stopped_{false};
};

}  // namespace baton::k8s

#endif  // BATON_K8S_API_CONNECTION_POOL_H_
