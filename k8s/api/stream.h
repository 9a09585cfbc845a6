// A TCP connection, plain or TLS, whose every step has a deadline and can be ended from another
// thread. Both ends of a connection are made of it.
//
// One thread at a time, but for Abort().
#ifndef BATON_K8S_API_STREAM_H_
#define BATON_K8S_API_STREAM_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "base/time.h"

struct ssl_st;
struct ssl_ctx_st;

namespace baton::k8s {

enum class StreamEnd : uint8_t {
  kTimeout,    // the deadline is over
  kAborted,    // Abort() was called
  kUntrusted,  // the peer's certificate is not good: trying again will not help
  kBroken,     // the peer, the network or TLS: see `why`
};

struct StreamError {
  StreamEnd end = StreamEnd::kBroken;
  std::string why;  // "connection refused; is the API server there?"
};

template <class T>
using StreamResult = tl::expected<T, StreamError>;

class Stream {
 public:
  Stream() = default;
  // An accepted socket. Takes it.
  explicit Stream(int fd);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  // To `host`, a name or an address: each of its addresses in turn. Names are looked up by
  // getaddrinfo, which cannot be ended: it may go on in a thread of its own for a while after the
  // deadline, and touches nothing of this.
  StreamResult<void> Connect(const std::string& host, uint16_t port, Instant deadline);
  // The TLS handshake over the connection. `prepare` sets up the SSL (names to verify); what it or
  // the verification refuses is said in the error.
  StreamResult<void> Handshake(ssl_ctx_st* context, bool server, Instant deadline,
                               const std::function<bool(ssl_st*)>& prepare = nullptr);

  // At least one byte; 0: the peer has ended its side.
  StreamResult<size_t> Read(char* into, size_t size, Instant deadline);
  StreamResult<void> Write(std::string_view bytes, Instant deadline);

  // Whether the peer has not closed the connection yet, as far as this machine knows.
  bool Alive() const;

  // Ends what runs and whatever is called later. From any thread, while the stream lives.
  void Abort();
  bool aborted() const { return aborted_.load(std::memory_order_relaxed); }

 private:
  StreamResult<void> ConnectTo(const void* address, unsigned size, Instant deadline);
  StreamResult<void> Wait(short events, Instant deadline) const;
  // After an SSL call that returned `result`: waits for what it wants.
  StreamResult<void> AfterTls(int result, Instant deadline);
  bool Take(int fd);

  std::mutex mutex_;  // of fd_ being set, against Abort()
  int fd_ = -1;
  std::atomic<bool> aborted_{false};
  ssl_st* tls_ = nullptr;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_API_STREAM_H_
