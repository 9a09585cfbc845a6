// The HTTP server of batond and of baton-k8s. Sockets, TLS and parsing live on a thread of the
// server's own; everything is bounded: connections, headers, bodies, and how long anything takes.
//
// For people and Prometheus (batond) it answers GET and HEAD by handlers, serves the page's files,
// and streams events; nothing is changed through it. No flood of requests takes the event loop that
// grants tokens. Handlers do run on that loop, since what they tell is there, but never two in a
// row without a pause, and all together for at most a tenth of its time. What takes longer than a
// millisecond is made elsewhere: HttpResponse::produce. Errors that concern one client go to that
// client as {"error": sentence, "code": ...}.
//
// For programs (baton-k8s) one Service, which may block, answers all requests, also over a
// certificate that is exchanged while it runs.
//
// One thread, that of `io`, calls everything here but Respond, Broadcast() and counts(), which any
// may.
#ifndef BATON_NET_SERVER_H_
#define BATON_NET_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "net/message.h"
#include "net/options.h"
#include "net/tls.h"

namespace boost::asio {
class io_context;
}

namespace baton::net {

// Server-sent events, the same for all who read them. A reader that is `stream_backlog` events
// behind is dropped; it connects again by itself and goes on from there.
class EventStream {
 public:
  virtual ~EventStream() = default;
  // `event`: the type of the event. `data`: any text, for all who read now.
  virtual void Broadcast(std::string event, std::string data) = 0;
  // The same, where the text is made on the server's thread; it should not take long.
  virtual void Broadcast(std::string event, std::function<std::string()> data) = 0;
  // How many there are at this moment: what nobody reads need not be made.
  virtual size_t readers() const = 0;
};

enum class Access : uint8_t {
  kToken,  // needs the token, where there is one
  kOpen,   // for all who can connect
};

// Whether such a server could read its token, certificate and key, and whether its address is free;
// it is not kept.
Result<void> CheckHttpFiles(const HttpOptions& options);
Result<void> CheckHttpAddress(const HttpOptions& options);

class HttpServer {
 public:
  // Called once, now or later, from any thread. A second call, or one after the client has left or
  // the server has stopped, does nothing.
  using Respond = std::function<void(HttpResponse)>;
  using Handler = std::function<void(const HttpRequest&, Respond)>;

  // Answers requests of any method, path and body. Called on options.workers threads at once, and
  // may take its time. What it throws is a 500.
  using Service = std::function<HttpResponse(const HttpRequest&)>;

  HttpServer(boost::asio::io_context& io, HttpOptions options);
  // `options`: ForPrograms(). `tls`: null for plain HTTP; outlives the server.
  HttpServer(HttpOptions options, const TlsIdentity* tls, Service service);
  // Stop().
  ~HttpServer();

  // What is served; before Start(). Paths begin with "/" and are said once.
  void Route(const std::string& path, Handler handler, Access access = Access::kToken);
  // A file of the page. Open to all: a page is how a token gets here, and holds no data itself.
  void AddAsset(const std::string& path, std::string content_type, std::string bytes);
  // The stream lives as long as the server.
  EventStream& AddStream(const std::string& path);

  // Reads token and certificate, listens, and serves from then on. An error is one sentence for
  // the operator. Does nothing where options.listen is empty. Blocks for some milliseconds.
  Result<void> Start();
  // Takes no more connections, and ends those that are silent at once, the others after their
  // answer or options.stop_timeout. Waits for a Service and a `produce` that is under way, which
  // are not called any more.
  void Stop();
  // Where it listens; 0 before Start().
  uint16_t port() const;
  // Until when its certificate is good, in seconds since 1970; nothing without one. After Start().
  std::optional<int64_t> certificate_expires() const;

  struct Counts {
    uint64_t connections = 0;  // accepted
    uint64_t open = 0;         // now
    uint64_t requests = 0;     // answered by a handler or the Service
    uint64_t refused = 0;      // that were no good HTTP, too large or too slow
    uint64_t handshakes_failed = 0;
  };
  Counts counts() const;

 private:
  class Core;
  std::shared_ptr<Core> core_;
};

}  // namespace baton::net

#endif  // BATON_NET_SERVER_H_
