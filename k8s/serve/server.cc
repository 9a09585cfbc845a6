#include "k8s/serve/server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>
// Boost.Asio 1.74 uses std::exchange without including <utility>.
#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <condition_variable>
#include <list>
#include <optional>
#include <system_error>
#include <thread>

#include "backend/http/options.h"
#include "base/check.h"
#include "k8s/api/stream.h"

namespace baton::k8s {

namespace {

namespace bhttp = boost::beast::http;

std::string Errno(const std::string& what) {
  return what + ": " + std::generic_category().message(errno);
}

std::string_view ReasonOf(int status) {
  const auto reason = bhttp::obsolete_reason(static_cast<bhttp::status>(status));
  return {reason.data(), reason.size()};
}

}  // namespace

ServeAnswer ServeError(int status, std::string_view sentence) {
  std::string body = "{\"error\":\"";
  for (const char c : sentence) {
    if (c == '"' || c == '\\') body += '\\';
    body += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return {status, body + "\"}\n"};
}

class Server::Core {
 public:
  Core(ServeOptions options, const TlsIdentity* tls, ServeHandler handler)
      : options_(std::move(options)), tls_(tls), handler_(std::move(handler)) {}
  ~Core() {
    Stop();
    if (listen_ >= 0) close(listen_);
    if (wake_ >= 0) close(wake_);
  }

  Result<void> Start() {
    const auto address = http::ParseListen(options_.listen);
    if (!address) return tl::unexpected(address.error());
    sockaddr_storage storage{};
    socklen_t size = sizeof(sockaddr_in);
    auto* six = reinterpret_cast<sockaddr_in6*>(&storage);
    auto* four = reinterpret_cast<sockaddr_in*>(&storage);
    if (inet_pton(AF_INET6, address->host.c_str(), &six->sin6_addr) == 1) {
      six->sin6_family = AF_INET6;
      six->sin6_port = htons(address->port);
      size = sizeof(sockaddr_in6);
    } else {
      BATON_CHECK(inet_pton(AF_INET, address->host.c_str(), &four->sin_addr) == 1);
      four->sin_family = AF_INET;
      four->sin_port = htons(address->port);
    }
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    listen_ = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    if (listen_ >= 0) setsockopt(listen_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (wake_ < 0 || listen_ < 0 ||
        bind(listen_, reinterpret_cast<sockaddr*>(&storage), size) != 0 ||
        listen(listen_, 512) != 0 ||
        getsockname(listen_, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
      return Fail(ErrorCode::kUnavailable, Errno("cannot listen on " + options_.listen) +
                                               "; choose another address or port");
    }
    port_ = ntohs(storage.ss_family == AF_INET6 ? six->sin6_port : four->sin_port);
    acceptor_ = std::thread([this] { Accept(); });
    return {};
  }

  void Stop() {
    if (!acceptor_.joinable()) return;
    stopping_ = true;
    const uint64_t one = 1;
    (void)!write(wake_, &one, sizeof(one));
    acceptor_.join();
    const Instant until = MonotonicNow() + options_.stop_timeout;
    std::unique_lock lock(mutex_);
    for (Connection& connection : connections_) {
      if (!connection.busy) connection.stream.Abort();
    }
    ended_.wait_for(lock, until - MonotonicNow(), [&] { return running_ == 0; });
    for (Connection& connection : connections_) connection.stream.Abort();
    ended_.wait(lock, [&] { return running_ == 0; });
    lock.unlock();
    Reap();
  }

  uint16_t port() const { return port_; }
  Counts counts() const {
    const std::lock_guard lock(mutex_);
    Counts counts = counts_;
    counts.open = running_;
    return counts;
  }

 private:
  struct Connection {
    explicit Connection(int fd) : stream(fd) {}
    Stream stream;
    std::thread thread;
    // Under mutex_:
    bool busy = false;  // between the first byte of a request and the last of its answer
    bool done = false;
    Instant since = MonotonicNow();
  };

  void Accept() {
    while (!stopping_) {
      pollfd wanted[2] = {{listen_, POLLIN, 0}, {wake_, POLLIN, 0}};
      if (poll(wanted, 2, -1) < 0 && errno != EINTR) break;
      Reap();
      if (stopping_ || (wanted[0].revents & POLLIN) == 0) continue;
      const int fd = accept4(listen_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) {
        // Out of descriptors: the connection stays in the queue. Not so fast again.
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
          pollfd wake{wake_, POLLIN, 0};
          poll(&wake, 1, 50);
        }
        continue;
      }
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      Begin(fd);
    }
  }

  void Begin(int fd) {
    const std::lock_guard lock(mutex_);
    ++counts_.connections;
    if (running_ >= options_.connections_max) {
      Connection* silent = nullptr;
      for (Connection& connection : connections_) {
        if (connection.done || connection.busy || connection.stream.aborted()) continue;
        if (silent == nullptr || connection.since < silent->since) silent = &connection;
      }
      if (silent != nullptr) silent->stream.Abort();
      // Those that were told to go may take a moment; beyond that, nobody comes.
      if (silent == nullptr || running_ >= options_.connections_max + kLeavingMax) {
        close(fd);
        return;
      }
    }
    Connection& connection = connections_.emplace_back(fd);
    ++running_;
    try {
      connection.thread = std::thread([this, &connection] {
        Serve(connection);
        // The peer is to know now; the socket is closed only when this thread is joined, as the
        // next connection comes.
        connection.stream.Abort();
        const std::lock_guard end(mutex_);
        connection.done = true;
        --running_;
        ended_.notify_all();
      });
    } catch (const std::system_error&) {
      --running_;
      connections_.pop_back();
    }
  }

  // Joins the threads that have ended.
  void Reap() {
    std::list<Connection> done;
    {
      const std::lock_guard lock(mutex_);
      for (auto at = connections_.begin(); at != connections_.end();) {
        const auto next = std::next(at);
        if (at->done) done.splice(done.end(), connections_, at);
        at = next;
      }
    }
    for (Connection& connection : done) connection.thread.join();
  }

  void Enter(Connection& connection, bool busy) {
    const std::lock_guard lock(mutex_);
    connection.busy = busy;
    connection.since = MonotonicNow();
    if (!busy && stopping_) connection.stream.Abort();
  }

  void Serve(Connection& connection) {
    Stream& stream = connection.stream;
    if (tls_ != nullptr) {
      const auto context = tls_->context();
      const auto done =
          context == nullptr
              ? StreamResult<void>(tl::unexpected(StreamError{}))
              : stream.Handshake(context.get(), true, MonotonicNow() + options_.request_timeout);
      if (!done) {
        const std::lock_guard lock(mutex_);
        ++counts_.handshakes_failed;
        return;
      }
    }
    std::string in;
    while (!stopping_ && One(connection, in)) {
    }
  }

  // Of bodies_bytes_max, what a request takes as long as it is here.
  struct Booking {
    explicit Booking(std::atomic<size_t>& of) : all(of) {}
    ~Booking() { all -= bytes; }
    Booking(const Booking&) = delete;
    Booking& operator=(const Booking&) = delete;
    bool Take(size_t more, size_t max) {
      bytes = more;
      return all.fetch_add(more) + more <= max;
    }

    std::atomic<size_t>& all;
    size_t bytes = 0;
  };

  // One request and its answer. False: the connection is at its end.
  bool One(Connection& connection, std::string& in) {
    constexpr size_t kReadSize = 32 << 10;
    Stream& stream = connection.stream;
    bhttp::request_parser<bhttp::string_body> parser;
    parser.header_limit(static_cast<uint32_t>(options_.header_bytes_max));
    parser.body_limit(options_.body_bytes_max);
    Instant deadline = MonotonicNow() + options_.idle_timeout;
    bool begun = false;
    bool header = false;
    Booking booking(bodies_bytes_);
    while (!parser.is_done()) {
      if (!in.empty()) {
        if (!begun) {
          begun = true;
          deadline = MonotonicNow() + options_.request_timeout;
          Enter(connection, true);
        }
        boost::system::error_code error;
        size_t taken = 0;
        try {
          taken = parser.put(boost::asio::const_buffer(in.data(), in.size()), error);
        } catch (const std::exception&) {
          error = bhttp::error::body_limit;
        }
        in.erase(0, taken);
        if (error && error != bhttp::error::need_more) {
          if (error == bhttp::error::body_limit) {
            return Refuse(stream, 413,
                          fmt::format("the body is longer than {} bytes", options_.body_bytes_max));
          }
          if (error == bhttp::error::header_limit) {
            return Refuse(
                stream, 431,
                fmt::format("the header is longer than {} bytes", options_.header_bytes_max));
          }
          return Refuse(stream, 400, "this is no good HTTP: " + error.message());
        }
        if (parser.is_header_done() && !header) {
          header = true;
          // One in chunks may become as long as any.
          const auto length = parser.content_length();
          const size_t body = length             ? static_cast<size_t>(*length)
                              : parser.chunked() ? options_.body_bytes_max
                                                 : 0;
          if (body > kSmallBody && !booking.Take(body, options_.bodies_bytes_max)) {
            return Refuse(stream, 503, "too many large requests at once; ask again in a moment");
          }
          const auto field = parser.get()[bhttp::field::expect];
          if (!parser.is_done() && boost::beast::iequals(field, "100-continue") &&
              !stream.Write("HTTP/1.1 100 Continue\r\n\r\n",
                            MonotonicNow() + options_.write_timeout)) {
            return false;
          }
        }
        if (taken > 0 || parser.is_done()) continue;
        // What the parser leaves lying is the beginning of a header or of a chunk.
        if (in.size() > options_.header_bytes_max + kReadSize) {
          return Refuse(stream, 400, "this is no good HTTP: a line without an end");
        }
      }
      const size_t before = in.size();
      in.resize(before + kReadSize);
      const auto got = stream.Read(in.data() + before, kReadSize, deadline);
      in.resize(before + (got ? *got : 0));
      if (!got && begun && got.error().end == StreamEnd::kTimeout) {
        return Refuse(stream, 408, "the request did not come to its end in time");
      }
      if (!got || *got == 0) return false;
    }
    auto message = parser.release();
    ServeRequest request;
    const auto method = message.method_string();
    request.method.assign(method.data(), method.size());
    const auto target = message.target();
    request.path.assign(target.data(), target.size());
    request.path.erase(std::min(request.path.find('?'), request.path.size()));
    request.body = std::move(message.body());
    ServeAnswer answer;
    try {
      answer = handler_(request);
    } catch (const std::exception& thrown) {
      answer = ServeError(500, thrown.what());
    }
    const bool keep = message.keep_alive() && !stopping_;
    {
      const std::lock_guard lock(mutex_);
      ++counts_.requests;
    }
    if (!Send(stream, answer, keep, request.method == "HEAD")) return false;
    Enter(connection, false);
    return keep;
  }

  bool Send(Stream& stream, const ServeAnswer& answer, bool keep, bool head) {
    std::string out =
        fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}\r\n",
                    answer.status, ReasonOf(answer.status), answer.content_type, answer.body.size(),
                    keep ? "" : "Connection: close\r\n");
    if (!head) out += answer.body;
    return stream.Write(out, MonotonicNow() + options_.write_timeout).has_value();
  }

  bool Refuse(Stream& stream, int status, std::string_view sentence) {
    {
      const std::lock_guard lock(mutex_);
      ++counts_.refused;
    }
    if (!Send(stream, ServeError(status, sentence), false, false)) return false;
    // Closing a socket with bytes unread would take the answer back.
    const Instant until = MonotonicNow() + kLinger;
    std::array<char, 4096> rest;
    for (size_t left = options_.body_bytes_max; left > 0;) {
      const auto got = stream.Read(rest.data(), rest.size(), until);
      if (!got || *got == 0) break;
      left -= std::min(left, *got);
    }
    return false;
  }

  static constexpr uint32_t kLeavingMax = 64;
  static constexpr size_t kSmallBody = 64 << 10;
  static constexpr Duration kLinger = std::chrono::milliseconds(500);

  const ServeOptions options_;
  const TlsIdentity* const tls_;
  const ServeHandler handler_;
  int listen_ = -1;
  int wake_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<size_t> bodies_bytes_{0};
  std::thread acceptor_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::list<Connection> connections_;
  size_t running_ = 0;
  Counts counts_;
};

Server::Server(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::Start(ServeOptions options, const TlsIdentity* tls,
                                              ServeHandler handler) {
  auto core = std::make_unique<Core>(std::move(options), tls, std::move(handler));
  if (auto started = core->Start(); !started) return tl::unexpected(started.error());
  return std::unique_ptr<Server>(new Server(std::move(core)));
}

uint16_t Server::port() const { return core_->port(); }
void Server::Stop() { core_->Stop(); }
Server::Counts Server::counts() const { return core_->counts(); }

}  // namespace baton::k8s
