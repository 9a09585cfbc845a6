// HTTP as it comes over the network: requests to our servers, and an API server's answers.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <cstring>
#include <thread>

#include "base/hash.h"
#include "base/time.h"
#include "k8s/api/cluster_config.h"
#include "net/client_connection.h"
#include "net/server.h"
#include "net/url.h"
#include "tests/fuzz/target.h"
#include "tests/temp_folder.h"

namespace baton::fuzz {
namespace {

// One for people and one for programs, which live as long as the process.
class Servers {
 public:
  Servers() {
    net::HttpOptions options;
    options.listen = "127.0.0.1:0";
    static net::HttpServer people(io_, options);
    people.Route("/api/v1/status",
                 [](const net::HttpRequest& request, const net::HttpServer::Respond& respond) {
                   respond({200, request.path});
                 });
    people.AddAsset("/index.html", "text/html", "<p>page</p>");
    static net::HttpServer programs(net::ForPrograms("127.0.0.1:0"), nullptr,
                                    [](const net::HttpRequest& request) {
                                      return net::HttpResponse{200, request.body};
                                    });
    for (net::HttpServer* server : {&people, &programs}) {
      BATON_CHECK(server->Start());
      ports_.push_back(server->port());
    }
    std::thread([this] { io_.run(); }).detach();
  }
  const std::vector<uint16_t>& ports() const { return ports_; }

 private:
  boost::asio::io_context& io_ = *new boost::asio::io_context();
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  std::vector<uint16_t> ports_;
};

// -1: that address has no free port.
int TryConnect(uint16_t port, uint64_t hash) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  BATON_CHECK(fd >= 0);
  // An address by the input, and no connection left behind: thousands a second would use up ports.
  const linger none{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(0x7f000000u | (static_cast<uint32_t>(hash) % 0xfffffdu + 1));
  (void)bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

int Connected(uint16_t port, uint64_t hash) {
  for (uint64_t i = 0; i < 100; ++i) {
    if (const int fd = TryConnect(port, hash + i); fd >= 0) return fd;
  }
  BATON_CHECK(!"the server refuses connections");
  return -1;
}

// How long the server had the connection.
Duration Ask(uint16_t port, std::string_view input) {
  const int fd = Connected(port, HashOf(input));
  (void)send(fd, input.data(), std::min<size_t>(input.size(), 64 << 10), MSG_NOSIGNAL);
  shutdown(fd, SHUT_WR);
  std::string answer;
  const Instant sent = MonotonicNow();
  for (;;) {
    char buffer[4096];
    const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
    if (n <= 0) break;
    if (answer.size() < 16) answer.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  BATON_CHECK(answer.empty() || answer.starts_with("HTTP/1."));
  return MonotonicNow() - sent;
}

FUZZ_TARGET(http_request) {
  static const Servers& servers = *new Servers();
  for (const uint16_t port : servers.ports()) {
    // A server that only hangs up when its time is over has lost sight of the connection; but once
    // it may be the machine.
    constexpr Duration kLong = std::chrono::seconds(5);
    if (Ask(port, input) > kLong) BATON_CHECK(Ask(port, input) < kLong);
  }
}

// Where a client connects to be answered with the input.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    BATON_CHECK(bind(fd_, reinterpret_cast<const sockaddr*>(&address), size) == 0);
    BATON_CHECK(listen(fd_, 4) == 0);
    BATON_CHECK(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    url_ = net::ParseHttpUrl("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)), "it");
  }
  const net::HttpUrl& url() const { return *url_; }
  int Accept() const {
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    BATON_CHECK(fd >= 0);
    const linger none{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    return fd;
  }

 private:
  const int fd_;
  Result<net::HttpUrl> url_ = Fail(ErrorCode::kInternal, "");
};

FUZZ_TARGET(http_answer) {
  static const Listener& listener = *new Listener();
  constexpr size_t kBodyMax = 64 << 10;
  const Instant deadline = MonotonicNow() + std::chrono::seconds(10);
  int fd;
  {
    net::ClientConnection connection;
    BATON_CHECK(connection.Open(listener.url(), nullptr, deadline));
    fd = listener.Accept();
    (void)send(fd, input.data(), std::min<size_t>(input.size(), kBodyMax), MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    for (int requests = 0; requests < 3; ++requests) {
      const auto answer = connection.Ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n", kBodyMax, deadline);
      if (!answer) {
        BATON_CHECK(answer.error().end == net::HttpEnd::kBroken);
        break;
      }
      BATON_CHECK(answer->status >= 200 && answer->status <= 999);
      BATON_CHECK(answer->body.size() <= kBodyMax);
      if (!connection.reusable()) break;
    }
  }
  close(fd);
}

FUZZ_TARGET(kubeconfig) {
  static const MemoryFolder folder;
  const std::string path = folder.Write("config", std::string(input));
  const auto config = k8s::KubeconfigContext(path);
  BATON_CHECK(config ? !config->server.empty() : !config.error().message.empty());
}

}  // namespace
}  // namespace baton::fuzz
