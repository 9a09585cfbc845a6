// The client and the server of the house at each other: trust, certificates, tokens, streams, and
// that everything ends. What malformed answers do, and what is sent again, is in
// tests/k8s/api/client_test.cc, against a server that does wrong on demand.
#include "net/http_client.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>
#include <thread>

#include "base/file.h"
#include "net/server.h"
#include "tests/net/certificate.h"
#include "tests/net/served.h"

namespace baton::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kAnswerMax = 1 << 20;

Instant Soon() { return MonotonicNow() + milliseconds(kPatienceMs); }

std::string PemIn(const std::string& path) { return ReadFile(path, kPemMax).value_or(""); }

HttpClientOptions Options(uint16_t port, const char* scheme = "http") {
  return {.url = fmt::format("{}://127.0.0.1:{}", scheme, port),
          .server = "the server",
          .user_agent = "test"};
}

std::unique_ptr<HttpClient> ClientOf(const HttpClientOptions& options) {
  auto client = HttpClient::Make(options);
  EXPECT_TRUE(client) << (client ? "" : client.error().message);
  return client ? std::move(*client) : nullptr;
}

// A server of programs over TLS with the test's certificate.
struct Secure {
  TlsIdentity identity;
  std::unique_ptr<HttpServer> server;
  Secure() {
    EXPECT_TRUE(identity.Set(PemIn(TestCertificate().certificate), PemIn(TestCertificate().key)));
    server = std::make_unique<HttpServer>(
        ForPrograms("127.0.0.1:0"), &identity, [](const HttpRequest& request) {
          return HttpResponse{200, request.method + " " + request.path + " " + request.body};
        });
    EXPECT_TRUE(server->Start());
  }
  HttpClientOptions options() const {
    HttpClientOptions options = Options(server->port(), "https");
    options.tls.ca_file = TestCertificate().certificate;
    return options;
  }
};

std::string Whole(const HttpResult<HttpAnswer>& answer) {
  return answer ? fmt::format("{} {}", answer->status, answer->body) : answer.error().why;
}

TEST(HttpUrl, ServersAreParsedOrRefused) {
  const auto one = ParseHttpUrl("https://[fd00::1]:6443/k8s/c-1/", "the server");
  ASSERT_TRUE(one);
  EXPECT_EQ(one->host, "fd00::1");
  EXPECT_EQ(one->port, 6443);
  EXPECT_EQ(one->path, "/k8s/c-1");
  EXPECT_EQ(one->authority, "[fd00::1]:6443");
  EXPECT_EQ(ParseHttpUrl("https://host", "the server")->port, 443);
  for (const char* bad :
       {"", "host", "https://", "https://h:0", "https://h:65536", "https://h:1x", "https://u@h",
        "https://h/?q", "https://[::1", "https://[::1]x", "https://h h", "https://h\r\nX: y"}) {
    const auto refused = ParseHttpUrl(bad, "the server");
    ASSERT_FALSE(refused) << bad;
    EXPECT_TRUE(refused.error().message.starts_with("the server's URL '")) << bad;
  }
  EXPECT_EQ(PercentEncode("a b/ä=&"), "a%20b%2F%C3%A4%3D%26");
  EXPECT_TRUE(ParseHttpUrl("http://127.8.0.1", "the server")->loopback);
  EXPECT_TRUE(ParseHttpUrl("http://[::1]:1", "the server")->loopback);
  EXPECT_TRUE(ParseHttpUrl("http://localhost", "the server")->loopback);
  EXPECT_FALSE(ParseHttpUrl("http://10.0.0.1", "the server")->loopback);
  EXPECT_FALSE(ParseHttpUrl("http://127.example", "the server")->loopback);
}

TEST(HttpClient, KeepsItsConnectionAndSendsBodies) {
  Secure secure;
  const auto client = ClientOf(secure.options());
  EXPECT_EQ(Whole(client->Ask({.target = "/a?b=c"}, kAnswerMax, Soon())), "200 GET /a ");
  const HttpCall post{.method = "POST", .target = "/b", .body = "text", .content_type = "x/y"};
  EXPECT_EQ(Whole(client->Ask(post, kAnswerMax, Soon())), "200 POST /b text");
  EXPECT_EQ(secure.server->counts().connections, 1u);
  const HttpCall large{
      .method = "POST", .target = "/c", .body = std::string(300'000, 'x'), .content_type = "x/y"};
  EXPECT_EQ(Whole(client->Ask(large, kAnswerMax, Soon())).size(), 12u + 300'000);
  EXPECT_EQ(Whole(client->Ask(large, 1'000, Soon())),
            "the answer is no good HTTP: it is larger than what was allowed for it");
}

TEST(HttpClient, TrustsOnlyTheCertificateOfTheName) {
  Secure secure;
  HttpClientOptions options = secure.options();
  const auto ask = [&] {
    const auto answer = ClientOf(options)->Ask({.target = "/"}, kAnswerMax, Soon());
    if (!answer) {
      EXPECT_EQ(answer.error().end, HttpEnd::kUntrusted);
      EXPECT_FALSE(answer.error().sent);
    }
    return Whole(answer);
  };
  EXPECT_EQ(ask(), "200 GET / ");
  options.tls.server_name = "localhost";
  EXPECT_EQ(ask(), "200 GET / ");
  for (const char* other : {"other.example", "127.0.0.2"}) {
    options.tls.server_name = other;
    EXPECT_EQ(ask(),
              "the certificate shown is for 127.0.0.1, localhost, not for that host; use one of "
              "these names, or set tls-server-name to one");
  }
  options.tls.insecure = true;
  EXPECT_EQ(ask(), "200 GET / ");
  options.tls = {};
  EXPECT_TRUE(ask().starts_with("the certificate shown is not to be trusted (")) << ask();
  options.tls.ca = "nonsense";
  EXPECT_EQ(HttpClient::Make(options).error().message,
            "the certificate-authority holds no certificate (PEM)");
}

TEST(HttpClient, ShowsItsCertificateToTheServer) {
  Secure secure;
  const auto context = secure.identity.context();
  context->set_verify_mode(boost::asio::ssl::verify_peer |
                           boost::asio::ssl::verify_fail_if_no_peer_cert);
  context->add_certificate_authority(boost::asio::buffer(PemIn(TestCertificate().certificate)));
  HttpClientOptions options = secure.options();
  EXPECT_FALSE(ClientOf(options)->Ask({.target = "/"}, kAnswerMax, Soon()));
  options.tls.certificate_file = TestCertificate().certificate;
  EXPECT_EQ(HttpClient::Make(options).error().message,
            "there is a client certificate without its key; give both or none");
  options.tls.key_file = TestCertificate().key;
  EXPECT_EQ(Whole(ClientOf(options)->Ask({.target = "/"}, kAnswerMax, Soon())), "200 GET / ");
}

TEST(HttpClient, BringsTheTokenOfItsFile) {
  const TempFolder folder;
  HttpOptions options;
  options.token_file = folder.Write("servers", "0123456789abcdef0123456789abcdef", 0600);
  Served served(options);
  HttpClientOptions mine = Options(served.port());
  mine.token_file = folder / "mine";
  EXPECT_EQ(HttpClient::Make(mine).error().code, ErrorCode::kNotFound);
  folder.Write("mine", "old");
  const auto client = ClientOf(mine);
  EXPECT_EQ(client->Ask({.target = "/api/v1/status"}, kAnswerMax, Soon())->status, 401);
  folder.Write("mine", "0123456789abcdef0123456789abcdef\n");
  EXPECT_EQ(client->Ask({.target = "/api/v1/status"}, kAnswerMax, Soon())->status, 200);
}

TEST(HttpClient, FollowsAStreamOfEventsUntilToldToStop) {
  Served served;
  const auto client = ClientOf(Options(served.port()));
  std::string seen;
  std::thread speaking([&] {
    ASSERT_TRUE(served.AwaitReaders(1));
    for (const char* data : {"one", "two", "three"}) {
      served.OnLoop([&] { served.stream->Broadcast("e", std::string(data)); });
    }
  });
  const auto ended = client->Follow({.target = "/api/v1/stream"}, seconds(20), seconds(20), {},
                                    [&](std::string_view piece) {
                                      seen += piece;
                                      return seen.find("two\n\n") == std::string::npos;
                                    });
  speaking.join();
  ASSERT_TRUE(ended) << ended.error().why;
  EXPECT_EQ(ended->status, 200);
  EXPECT_TRUE(seen.starts_with("event: e\ndata: one\n\nevent: e\ndata: two\n\n")) << seen;
  EXPECT_TRUE(served.AwaitReaders(0));
  // Any other answer is whole, and silence has an end.
  const auto take = [](std::string_view) { return true; };
  const auto absent = client->Follow({.target = "/none"}, seconds(20), seconds(20), {}, take);
  ASSERT_TRUE(absent);
  EXPECT_EQ(absent->status, 404);
  EXPECT_NE(absent->body.find("there is nothing at /none"), std::string::npos);
  const auto silent =
      client->Follow({.target = "/api/v1/stream"}, seconds(20), milliseconds(50), {}, take);
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().end, HttpEnd::kTimeout);
  EXPECT_EQ(silent.error().why, "nothing was heard for too long");
}

TEST(HttpClient, EndsAtItsDeadlineByItsCallersTokenAndByStop) {
  Served served;
  const auto client = ClientOf(Options(served.port()));
  const auto late =
      client->Ask({.target = "/never"}, kAnswerMax, MonotonicNow() + milliseconds(50));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().end, HttpEnd::kTimeout);
  EXPECT_TRUE(late.error().sent);
  std::stop_source mine;
  const auto hang = [&](const std::stop_token& stop) {
    const auto answer =
        client->Ask({.target = "/never"}, kAnswerMax, MonotonicNow() + seconds(600), stop);
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().end, HttpEnd::kAborted);
  };
  std::thread by_caller([&] { hang(mine.get_token()); });
  std::thread by_client([&] { hang({}); });
  std::thread following([&] {
    const auto followed = client->Follow({.target = "/api/v1/stream"}, seconds(600), seconds(600),
                                         {}, [](std::string_view) { return true; });
    ASSERT_FALSE(followed);
    EXPECT_EQ(followed.error().end, HttpEnd::kAborted);
  });
  ASSERT_TRUE(served.AwaitReaders(1));
  mine.request_stop();
  by_caller.join();
  client->Stop();
  by_client.join();
  following.join();
  EXPECT_EQ(client->Ask({.target = "/"}, kAnswerMax, Soon()).error().end, HttpEnd::kAborted);
}

TEST(HttpClient, AllConnectionsBusyIsItsOwnError) {
  Served served;
  HttpClientOptions options = Options(served.port());
  options.connections_max = 1;
  const auto client = ClientOf(options);
  std::thread holding([&] {
    EXPECT_FALSE(client->Ask({.target = "/never"}, kAnswerMax, MonotonicNow() + seconds(600)));
  });
  HttpResult<HttpAnswer> busy;
  // Until the other has the connection.
  do {
    busy = client->Ask({.target = "/echo/x"}, kAnswerMax, MonotonicNow() + milliseconds(20));
  } while (busy || busy.error().end != HttpEnd::kBusy);
  EXPECT_EQ(busy.error().why, "all 1 connections were busy for too long");
  client->Stop();
  holding.join();
}

}  // namespace
}  // namespace baton::net
