// The server as programs know it: bodies, TLS whose certificate is exchanged, and answers that take
// their time. tests/k8s/webhook/server_test.cc has what baton-k8s makes of it.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "net/server.h"
#include "tests/net/certificate.h"
#include "tests/net/client.h"

namespace baton::net {
namespace {

using std::chrono::milliseconds;

std::string FileText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

HttpResponse Echo(const HttpRequest& request) {
  return {200, request.method + " " + request.path + " " + std::to_string(request.body.size())};
}

HttpOptions Anywhere() { return ForPrograms("127.0.0.1:0"); }

TEST(HttpService, RefusalsReachClientsOverTls) {
  TlsIdentity identity;
  ASSERT_TRUE(
      identity.Set(FileText(TestCertificate().certificate), FileText(TestCertificate().key)));
  HttpOptions options = Anywhere();
  options.body_bytes_max = 1'000;
  options.request_timeout = milliseconds(200);
  HttpServer server(options, &identity, Echo);
  ASSERT_TRUE(server.Start());
  Client large(server.port(), true);
  ASSERT_TRUE(large.Send("POST /a HTTP/1.1\r\nContent-Length: 50000\r\n\r\n"));
  large.Send(std::string(50'000, 'x'));
  Answer refused = large.Read();
  EXPECT_EQ(refused.status, 413);
  EXPECT_EQ(refused.body, "{\"error\":\"the body is longer than 1000 bytes\"}\n");
  for (const char* begun :
       {"POST /a HTTP/1.1\r\nX: y", "POST /a HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc"}) {
    Client slow(server.port(), true);
    ASSERT_TRUE(slow.Send(begun));
    EXPECT_EQ(slow.Read().status, 408) << begun;
    EXPECT_TRUE(slow.AwaitEnd());
  }
  Client silent(server.port(), true);
  Client good(server.port(), true);
  ASSERT_TRUE(good.Send("POST /a?b=c HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd"));
  EXPECT_EQ(good.Read().body, "POST /a 4");
  EXPECT_EQ(server.counts().refused, 3u);
  EXPECT_EQ(server.counts().requests, 1u);
  EXPECT_EQ(server.counts().handshakes_failed, 0u);
}

TEST(HttpService, BodiesComeInAnyPieces) {
  HttpServer server(Anywhere(), nullptr, Echo);
  ASSERT_TRUE(server.Start());
  Client client(server.port());
  std::string chunks;
  for (int i = 0; i < 20'000; ++i) chunks += "1\r\nx\r\n";
  ASSERT_TRUE(client.Send("PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks +
                          "0\r\n\r\nPUT /b HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" +
                          std::string(1'000'000, 'x') + "GET * HTTP/1.1\r\n\r\n"));
  EXPECT_EQ(client.Read().body, "PUT /a 20000");
  EXPECT_EQ(client.Read().body, "PUT /b 1000000");
  EXPECT_EQ(client.Read().body, "GET * 0");
  ASSERT_TRUE(client.Send("PUT /c HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"));
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.Send("abc"));
  EXPECT_EQ(client.Read().body, "PUT /c 3");
  ASSERT_TRUE(client.Send("PUT /d HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" +
                          std::string(100'000, 'x')));
  const int status = client.Read().status;
  EXPECT_TRUE(status == 400 || status == 431) << status;
  EXPECT_TRUE(client.AwaitEnd());
}

TEST(HttpService, ConnectionsKeepTheCertificateTheyBeganWith) {
  TlsIdentity identity;
  HttpServer server(Anywhere(), &identity, Echo);
  ASSERT_TRUE(server.Start());
  EXPECT_TRUE(Client(server.port()).AwaitEnd()) << "there is none yet";
  EXPECT_EQ(server.counts().handshakes_failed, 1u);
  const auto set = [&] {
    return identity.Set(FileText(TestCertificate().certificate), FileText(TestCertificate().key));
  };
  ASSERT_TRUE(set());
  Client client(server.port(), true);
  std::atomic<bool> over = false;
  std::thread exchanging([&] {
    while (!over) EXPECT_TRUE(set());
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(client.Get("/").body, "GET / 0");
    EXPECT_EQ(Client(server.port(), true).Get("/").body, "GET / 0");
  }
  over = true;
  exchanging.join();
}

// Whatever a service and its clients do meanwhile.
TEST(HttpService, StopsWithEverythingUnderWay) {
  for (int i = 0; i < 5; ++i) {
    HttpOptions options = Anywhere();
    options.stop_timeout = milliseconds(20);
    std::atomic<int> begun = 0;
    std::atomic<bool> go = false;
    HttpServer server(options, nullptr, [&](const HttpRequest& request) {
      ++begun;
      if (request.path == "/slow") go.wait(false);
      return Echo(request);
    });
    ASSERT_TRUE(server.Start());
    Client slow(server.port()), half(server.port()), silent(server.port()), quick(server.port());
    slow.Send("GET /slow HTTP/1.1\r\n\r\n");
    half.Send("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc");
    while (begun < 1) std::this_thread::yield();
    EXPECT_EQ(quick.Get("/").status, 200) << "who waits keeps nobody out";
    std::thread stopping([&] { server.Stop(); });
    EXPECT_TRUE(silent.AwaitEnd());
    EXPECT_TRUE(quick.AwaitEnd());
    go = true;
    go.notify_all();
    stopping.join();
    EXPECT_TRUE(slow.AwaitEnd());
    EXPECT_TRUE(half.AwaitEnd());
    EXPECT_EQ(server.counts().open, 0u);
  }
}

}  // namespace
}  // namespace baton::net
