// batond's HTTP server: answers GET and HEAD by handlers, serves the page's files, and streams
// events. For people and for Prometheus; nothing is changed through it.
//
// Sockets, TLS and parsing live on a thread of the server's own: no flood of requests takes the
// event loop that grants tokens. Handlers do run on that loop, since what they tell is there, but
// never two in a row without a pause, and all together for at most a tenth of its time. What takes
// longer than a millisecond is made elsewhere: HttpResponse::produce.
//
// One thread, that of `io`, calls everything here but Respond and Broadcast(), which any may.
// Errors that concern one client go to that client as {"error": sentence, "code": ...}.
#ifndef BATON_BACKEND_HTTP_SERVER_H_
#define BATON_BACKEND_HTTP_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backend/http/message.h"
#include "backend/http/options.h"
#include "base/result.h"

namespace boost::asio {
class io_context;
}

namespace baton::http {

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

class HttpServer {
 public:
  // Called once, now or later, from any thread. A second call, or one after the client has left or
  // the server has stopped, does nothing.
  using Respond = std::function<void(HttpResponse)>;
  using Handler = std::function<void(const HttpRequest&, Respond)>;

  HttpServer(boost::asio::io_context& io, HttpOptions options);
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
  // Ends all connections. Waits for a `produce` that is under way.
  void Stop();
  // Where it listens; 0 before Start().
  uint16_t port() const;

 private:
  class Core;
  std::shared_ptr<Core> core_;
};

}  // namespace baton::http

#endif  // BATON_BACKEND_HTTP_SERVER_H_
