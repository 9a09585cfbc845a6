// HTTP as it comes over the network: requests to our servers, and an API server's answers.
#include "k8s/api/http.h"

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
#include "net/server.h"
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

int Connected(uint16_t port, uint64_t hash) {
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
  BATON_CHECK(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
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

FUZZ_TARGET(http_answer) {
  int ends[2];
  BATON_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  constexpr size_t kBodyMax = 64 << 10;
  {
    (void)send(ends[0], input.data(), std::min<size_t>(input.size(), kBodyMax), MSG_NOSIGNAL);
    shutdown(ends[0], SHUT_WR);
    k8s::Stream stream(ends[1]);
    k8s::HttpExchange exchange(stream);
    for (int requests = 0; requests < 3; ++requests) {
      const auto answer = exchange.Ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n", kBodyMax,
                                       MonotonicNow() + std::chrono::seconds(10));
      if (!answer) {
        BATON_CHECK(answer.error().end == k8s::StreamEnd::kBroken);
        break;
      }
      BATON_CHECK(answer->status >= 200 && answer->status <= 999);
      BATON_CHECK(answer->body.size() <= kBodyMax);
      if (!exchange.reusable()) break;
    }
  }
  close(ends[0]);
}

FUZZ_TARGET(kubeconfig) {
  static const MemoryFolder folder;
  const std::string path = folder.Write("config", std::string(input));
  const auto config = k8s::KubeconfigContext(path);
  BATON_CHECK(config ? !config->server.empty() : !config.error().message.empty());
}

}  // namespace
}  // namespace baton::fuzz
