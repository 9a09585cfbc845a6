// One connection of a client, plain or TLS, and HTTP/1.1 over it: one request after the other. Each
// call blocks, has a deadline, and can be ended from another thread.
//
// One thread at a time, but for Abort().
#ifndef BATON_NET_CLIENT_CONNECTION_H_
#define BATON_NET_CLIENT_CONNECTION_H_

#include <memory>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "base/time.h"
#include "net/tls.h"
#include "net/url.h"

namespace baton::net {

enum class HttpEnd : uint8_t {
  kTimeout,    // the deadline is over
  kAborted,    // Abort() was called, or what stands for it
  kUntrusted,  // the peer's certificate is not good: trying again will not help
  kBusy,       // all connections were in use until the deadline (HttpClient)
  kBroken,     // the peer, the network, TLS or HTTP: see `why`
};

struct HttpError {
  HttpEnd end = HttpEnd::kBroken;
  std::string why;    // "connection refused; is the API server there?"
  bool sent = false;  // the server may have got the request, or a part of it
};

template <class T>
using HttpResult = tl::expected<T, HttpError>;

struct HttpAnswer {
  int status = 0;
  Duration retry_after{0};  // of the field Retry-After in seconds, at most a day; dates are ignored
  std::string body;
};

class ClientConnection {
 public:
  ClientConnection();
  ~ClientConnection();
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;

  // Connects to each address of the URL's host in turn. `tls`: null for plain HTTP; outlives this.
  // Names are looked up by getaddrinfo, which cannot be ended: it may go on in a thread of its own
  // for a while after the deadline, and touches nothing of this. Once.
  HttpResult<void> Open(const HttpUrl& url, const ClientTls* tls, Instant deadline);

  // A whole request as it goes over the wire, and the whole of its answer, whose body is `body_max`
  // bytes at most.
  HttpResult<HttpAnswer> Ask(std::string_view request, size_t body_max, Instant deadline);

  // The same in pieces: the answer's header, then its body as it comes, of any length. An empty
  // piece is its end.
  HttpResult<HttpAnswer> Begin(std::string_view request, Instant deadline);
  HttpResult<std::string> Next(Instant deadline);

  // After the end of an answer: whether another request may follow.
  bool reusable() const;
  // Whether anything of the answer to the last request has come.
  bool heard() const;
  // Whether the peer has not closed the connection yet, as far as this machine knows.
  bool Alive() const;

  // Ends what runs and whatever is called later. From any thread, while this lives.
  void Abort();
  bool aborted() const;

 private:
  struct Socket;
  HttpResult<HttpAnswer> ReadHeader(std::string_view request, uint64_t body_max, Instant deadline);

  std::unique_ptr<Socket> socket_;
};

}  // namespace baton::net

#endif  // BATON_NET_CLIENT_CONNECTION_H_
