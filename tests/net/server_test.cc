// The HTTP server, over real sockets.
#include "net/server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "base/random.h"
#include "tests/net/certificate.h"
#include "tests/net/client.h"
#include "tests/net/served.h"

namespace baton::net {
namespace {

using std::chrono::milliseconds;

constexpr const char* kToken = "0123456789abcdef-secret";

TEST(HttpServer, AnswersByItsHandlers) {
  Served served;
  ASSERT_TRUE(served.started) << served.started.error().message;
  Client client(served.port());
  Answer answer = client.Get("/api/v1/status");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer["content-type"], "application/json");
  EXPECT_EQ(answer.body, "{\"ok\":true}");
  EXPECT_EQ(answer["cache-control"], "no-store");
  EXPECT_EQ(answer["x-content-type-options"], "nosniff");
  EXPECT_NE(answer["content-security-policy"].find("default-src 'self'"), std::string::npos);
  EXPECT_NE(answer["date"].find(" GMT"), std::string::npos);
  // The same connection serves again.
  EXPECT_EQ(client.Get("/later").body, "\"later\"");
  EXPECT_EQ(client.Get("/echo/a%2Fb%20c?x=%31&y=a+b&z").body, "path=/echo/a/b c x=1 y=a b z=");
}

TEST(HttpServer, ErrorsAreASentenceAndACode) {
  Served served;
  Answer missing = Get(served.port(), "/api/v2/status");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.body,
            "{\"code\":\"not_found\",\"error\":\"there is nothing at /api/v2/status\"}\n");
  EXPECT_EQ(missing["content-type"], "application/json");
  Answer error = Get(served.port(), "/error");
  EXPECT_EQ(error.status, 503);
  EXPECT_EQ(error.body, "{\"code\":\"unavailable\",\"error\":\"the \\\"ledger\\\" is away\"}\n");
}

TEST(HttpServer, HeadIsAnsweredWithoutABody) {
  Served served;
  Client client(served.port());
  for (const char* target : {"/api/v1/status", "/", "/big"}) {
    ASSERT_TRUE(
        client.Send(std::string("HEAD ") + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    Answer answer = client.Read(true);
    EXPECT_EQ(answer.status, 200) << target;
    EXPECT_NE(answer["content-length"], "0") << target;
  }
  EXPECT_EQ(client.Get("/api/v1/status").body, "{\"ok\":true}") << "nothing came in between";
  Client stream(served.port());
  ASSERT_TRUE(stream.Send("HEAD /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  EXPECT_EQ(stream.Read(true)["content-type"], "text/event-stream");
  EXPECT_TRUE(stream.AwaitEnd());
}

TEST(HttpServer, OtherMethodsAreRefused) {
  Served served;
  for (const char* method :
       {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"}) {
    Client client(served.port());
    ASSERT_TRUE(client.Send(std::string(method) +
                            " / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"));
    Answer answer = client.Read();
    EXPECT_EQ(answer.status, 405) << method;
    EXPECT_EQ(answer["allow"], "GET, HEAD");
    EXPECT_TRUE(client.AwaitEnd());
  }
}

TEST(HttpServer, RequestsHaveNoBodies) {
  Served served;
  for (const char* fields : {"Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"}) {
    Client client(served.port());
    ASSERT_TRUE(client.Send(std::string("GET / HTTP/1.1\r\nHost: localhost\r\n") + fields +
                            "\r\n5\r\nhello"));
    EXPECT_EQ(client.Read().status, 413) << fields;
    EXPECT_TRUE(client.AwaitEnd());
  }
  // Two lengths, or a length and chunks: where a proxy and a server may see different requests.
  for (const char* fields :
       {"Content-Length: 0\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Content-Length: -1\r\n"}) {
    Client client(served.port());
    ASSERT_TRUE(
        client.Send(std::string("GET / HTTP/1.1\r\nHost: localhost\r\n") + fields + "\r\n"));
    const int status = client.Read().status;
    EXPECT_TRUE(status == 400 || status == 413) << fields << status;
    EXPECT_TRUE(client.AwaitEnd());
  }
}

TEST(HttpServer, ALongHeaderIsRefused) {
  HttpOptions options;
  options.header_bytes_max = 1024;
  Served served(options);
  EXPECT_EQ(Get(served.port(), "/", "X: " + std::string(600, 'a') + "\r\n").status, 200);
  for (const std::string& request :
       {"GET /" + std::string(3000, 'a') + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(3000, 'a') + "\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\n" + std::string(400, 'x') + ": y\r\n" +
            std::string(400, 'y') + ": y\r\n" + std::string(400, 'z') + ": y\r\n\r\n"}) {
    Client client(served.port());
    client.Send(request);
    EXPECT_EQ(client.Read().status, 431) << request.substr(0, 40);
    EXPECT_TRUE(client.AwaitEnd());
  }
}

TEST(HttpServer, HostilePathsReachNothing) {
  Served served;
  for (const char* target :
       {"/echo/../../etc/passwd", "/echo/%2e%2e/x", "/%2e%2e/%2e%2e/etc/passwd", "/echo/./x",
        "/echo/%00", "/echo/%0d%0aX:%20y", "/echo/%", "/echo/%4", "/echo/%zz", "/echo/%ff",
        "/echo/%c0%ae%c0%ae", "/echo/%ed%a0%80", "/echo/x?a=%00", "/echo/x?a=1&a=2",
        "/echo/x?1&2&3&4&5&6&7&8&9&10&11&12&13&14&15&16&17", "*", "http://localhost/",
        "localhost:80", "\\..\\x"}) {
    const Answer answer = Get(served.port(), target);
    EXPECT_EQ(answer.status, 400) << target;
    EXPECT_NE(answer.body.find("\"code\":\"invalid\""), std::string::npos) << target;
  }
  EXPECT_EQ(Get(served.port(), "//").status, 404);
  EXPECT_EQ(Get(served.port(), "/app.js/").status, 404);
  EXPECT_EQ(Get(served.port(), "/echo").status, 404);
  EXPECT_EQ(Get(served.port(), "/echo/..x").status, 200);
  EXPECT_EQ(Get(served.port(), "/echo/%3Cscript%3E").body, "path=/echo/<script>");
}

TEST(HttpServer, OnLoopbackOnlyLocalNamesAreKnown) {
  HttpOptions options;
  options.hosts = {"gpu.example.org"};
  Served served(options);
  const auto status = [&](const std::string& host) {
    Client client(served.port());
    client.Send("GET / HTTP/1.1\r\n" + host + "\r\n");
    return client.Read().status;
  };
  for (const char* host : {"localhost", "LOCALHOST:7412", "127.0.0.1", "127.0.0.1:80",
                           "127.1.2.3:7412", "[::1]:7412", "gpu.example.org:443"}) {
    EXPECT_EQ(status(std::string("Host: ") + host + "\r\n"), 200) << host;
  }
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example",
                           "10.0.0.1", "[::2]", "[::1", "evil.example:127.0.0.1", "1"}) {
    EXPECT_EQ(status(std::string("Host: ") + host + "\r\n"), 403) << host;
  }
  EXPECT_EQ(status(""), 400) << "HTTP/1.1 needs one";
  EXPECT_EQ(status("Host: localhost\r\nHost: evil.example\r\n"), 400);
  Client old(served.port());
  old.Send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.Read().status, 200);
  EXPECT_TRUE(old.AwaitEnd());
}

TEST(HttpServer, AssetsAreSentOnceWhileTheyStayTheSame) {
  Served served;
  Client client(served.port());
  Answer answer = client.Get("/app.js");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "let a = 1;");
  EXPECT_EQ(answer["content-type"], "text/javascript");
  EXPECT_EQ(answer["cache-control"], "no-cache");
  const std::string tag = answer["etag"];
  ASSERT_EQ(tag.size(), 26u);
  for (const std::string& match : {tag, "W/" + tag, "\"x\", " + tag, std::string("*")}) {
    const Answer same = client.Get("/app.js", "If-None-Match: " + match + "\r\n");
    EXPECT_EQ(same.status, 304) << match;
    EXPECT_EQ(same.body, "");
  }
  EXPECT_EQ(client.Get("/app.js", "If-None-Match: \"x\"\r\n").status, 200);
  EXPECT_NE(client.Get("/")["etag"], tag);
}

TEST(HttpServer, TheTokenIsAskedForWhereThereIsData) {
  TempFolder folder;
  HttpOptions options;
  options.token_file = folder.Write("token", std::string(kToken) + "\n");
  Served served(options);
  ASSERT_TRUE(served.started) << served.started.error().message;
  const auto status = [&](const std::string& target, const std::string& fields) {
    return Get(served.port(), target, fields).status;
  };
  const std::string good = std::string("Authorization: Bearer ") + kToken + "\r\n";
  EXPECT_EQ(status("/api/v1/status", good), 200);
  EXPECT_EQ(status("/api/v1/status", std::string("authorization: bearer ") + kToken + "\r\n"), 200);
  for (const std::string& bad :
       {std::string(), std::string("Authorization: Bearer wrong\r\n"),
        std::string("Authorization: Basic ") + kToken + "\r\n",
        std::string("Authorization: Bearer ") + std::string(kToken).substr(1) + "\r\n",
        std::string("Authorization: Bearer ") + kToken + "x\r\n",
        std::string("Authorization: Bearer 0123456789abcdef-sEcret\r\n"),
        std::string("Authorization: Bearer\r\n"), std::string("Authorization:\r\n"), good + good}) {
    Answer answer = Get(served.port(), "/api/v1/status", bad);
    EXPECT_EQ(answer.status, 401) << bad;
    EXPECT_EQ(answer["www-authenticate"], "Bearer realm=\"baton\"");
    EXPECT_EQ(status("/api/v1/stream", bad), 401) << bad;
    EXPECT_EQ(status("/echo/x", bad), 401) << bad;
  }
  EXPECT_EQ(status("/", ""), 200) << "the page itself holds no data";
  EXPECT_EQ(status("/healthz", ""), 200);
}

TEST(HttpServer, SpeaksTls) {
  HttpOptions options;
  options.certificate_file = TestCertificate().certificate;
  options.key_file = TestCertificate().key;
  Served served(options);
  ASSERT_TRUE(served.started) << served.started.error().message;
  Client client(served.port(), true);
  ASSERT_TRUE(client.connected());
  EXPECT_EQ(client.Get("/api/v1/status").body, "{\"ok\":true}");
  EXPECT_EQ(client.Get("/big").body.size(), size_t{8} << 20);
  ASSERT_TRUE(client.Send("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  EXPECT_EQ(client.Read().status, 405);
  EXPECT_TRUE(client.AwaitEnd());
  Client reader(served.port(), true);
  ASSERT_TRUE(reader.Send("GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  EXPECT_EQ(reader.Read().status, 200);
  ASSERT_TRUE(served.AwaitReaders(1));
  served.OnLoop([&] { served.stream->Broadcast("status", std::string(100'000, 'y')); });
  EXPECT_EQ(reader.ReadUntil("\n\n").size(), 100'000u + 22);
  // Who does not speak TLS is let go.
  Client plain(served.port());
  plain.Send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(plain.AwaitEnd());
  const auto expires = served.server.certificate_expires();
  ASSERT_TRUE(expires);
  EXPECT_GT(*expires, time(nullptr));
  EXPECT_FALSE(Served().server.certificate_expires()) << "without TLS";
}

TEST(HttpServer, WhatOtherMachinesReachNeedsTokenAndCertificate) {
  TempFolder folder;
  const auto trouble = [](const HttpOptions& options) {
    boost::asio::io_context io;
    HttpServer server(io, options);
    const auto started = server.Start();
    return started ? "" : started.error().message;
  };
  HttpOptions options;
  options.listen = "0.0.0.0:0";
  EXPECT_NE(trouble(options).find("set a token file and a certificate"), std::string::npos);
  options.token_file = folder.Write("token", kToken, 0640);
  EXPECT_NE(trouble(options).find("set a token file and a certificate"), std::string::npos);
  options.certificate_file = TestCertificate().certificate;
  EXPECT_NE(trouble(options).find("a certificate needs its key"), std::string::npos);
  options.key_file = TestCertificate().key;
  EXPECT_NE(trouble(options).find("can be read by others; run 'chmod 0600"), std::string::npos);
  options.token_file = folder.Write("short", "secret\n");
  EXPECT_NE(trouble(options).find("openssl rand -hex 32"), std::string::npos);
  options.token_file = folder.Write("spaces", "0123456789 0123456789\n");
  EXPECT_NE(trouble(options).find("visible ASCII"), std::string::npos);
  options.token_file = folder / "missing";
  EXPECT_NE(trouble(options).find("cannot open"), std::string::npos);
  options.token_file = folder.Write("good", kToken);
  options.key_file = folder.Write("other.pem", "nonsense");
  EXPECT_NE(trouble(options).find("is not the key of"), std::string::npos);
  options.key_file = TestCertificate().key;
  options.certificate_file = folder.Write("nonsense.pem", "nonsense");
  EXPECT_NE(trouble(options).find("cannot read the certificate"), std::string::npos);
  options.certificate_file = TestCertificate().certificate;
  EXPECT_EQ(trouble(options), "");
}

TEST(HttpOptions, AUrlIsOneThatABrowserOpens) {
  HttpOptions options;
  EXPECT_EQ(UrlOf(options, 7412, "gpu7"), "http://127.0.0.1:7412/");
  options.listen = "[::1]:0";
  EXPECT_EQ(UrlOf(options, 41234, "gpu7"), "http://[::1]:41234/");
  options.certificate_file = "cert.pem";
  for (const char* all : {"0.0.0.0:443", "[::]:443"}) {
    options.listen = all;
    EXPECT_EQ(UrlOf(options, 443, "gpu7"), "https://gpu7:443/");
  }
}

TEST(HttpOptions, AddressesAreCheckedAndSayWhatIsMeant) {
  for (const char* text : {"127.0.0.1:7412", "[::1]:0", "127.255.0.1:65535"}) {
    EXPECT_TRUE(ParseListen(text) && ParseListen(text)->loopback) << text;
  }
  for (const char* text : {"0.0.0.0:1", "[::]:80", "10.1.2.3:7412", "[fe80::1]:1"}) {
    EXPECT_TRUE(ParseListen(text) && !ParseListen(text)->loopback) << text;
  }
  for (const char* text : {"", ":", ":80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
                           "127.0.0.1:-1", "127.0.0.1:80x", "::1:80", "[]:80", "[::1]", "[::1:80",
                           "localhost:80", "*:80", "127.0.0.1 :80", "127.0.0.1:+80", "1:80"}) {
    const auto address = ParseListen(text);
    ASSERT_FALSE(address) << text;
    EXPECT_NE(address.error().message.find("\"127.0.0.1:7412\""), std::string::npos);
  }
  HttpOptions options;
  EXPECT_TRUE(CheckHttpOptions(options));
  options.listen.clear();
  EXPECT_TRUE(CheckHttpOptions(options)) << "no server";
  options = {};
  options.streams_max = 257;
  EXPECT_FALSE(CheckHttpOptions(options));
  options = {};
  options.heartbeat = Duration(1);
  EXPECT_FALSE(CheckHttpOptions(options));
}

TEST(HttpServer, AnAddressInUseIsSaid) {
  Served served;
  HttpOptions options;
  options.listen = "127.0.0.1:" + std::to_string(served.port());
  HttpServer second(served.io, options);
  const auto started = second.Start();
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::kExists);
}

TEST(HttpServer, WhoSaysLittleIsLetGo) {
  HttpOptions options;
  options.first_timeout = options.request_timeout = milliseconds(150);
  options.idle_timeout = milliseconds(150);
  Served served(options);
  Client silent(served.port());
  Client slow(served.port());
  Client idle(served.port());
  EXPECT_EQ(idle.Get("/").status, 200);
  // A byte now and then does not help.
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(4000, 'x');
  size_t sent = 0;
  while (sent < request.size() && slow.Send(request.substr(sent, 1))) {
    ++sent;
    usleep(10'000);
  }
  EXPECT_LT(sent, request.size());
  EXPECT_TRUE(slow.AwaitEnd());
  EXPECT_TRUE(silent.AwaitEnd());
  EXPECT_TRUE(idle.AwaitEnd());
}

TEST(HttpServer, WhoDoesNotReadIsLetGo) {
  HttpOptions options;
  options.write_timeout = milliseconds(200);
  options.connections_max = options.streams_max = 1;
  Served served(options);
  Client client(served.port(), false, 4096);
  ASSERT_TRUE(client.Send("GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  EXPECT_EQ(client.ReadUntil("\r\n").substr(0, 12), "HTTP/1.1 200");
  // It keeps the only place until its time is over.
  while (Get(served.port(), "/").status != 200) usleep(10'000);
  EXPECT_EQ(client.ReadUntil(std::string(8 << 20, 'x')).find("xx\r\n"), std::string::npos);
  EXPECT_TRUE(client.AwaitEnd());
}

TEST(HttpServer, AHandlerThatNeverRespondsIsSaidToTakeTooLong) {
  HttpOptions options;
  options.answer_timeout = milliseconds(150);
  Served served(options);
  Client client(served.port());
  const Answer answer = client.Get("/never");
  EXPECT_EQ(answer.status, 504);
  EXPECT_NE(answer.body.find("\"unavailable\""), std::string::npos);
  EXPECT_TRUE(client.AwaitEnd());
  served.OnLoop([&] {
    ASSERT_EQ(served.kept.size(), 1u);
    served.kept[0](HttpResponse{});  // too late, and harmless
  });
  EXPECT_EQ(Get(served.port(), "/api/v1/status").status, 200);
}

TEST(HttpServer, ALateAnswerIsNotTakenForThatToTheNextRequest) {
  Served served;
  {
    Client gone(served.port());
    gone.Send("GET /never HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for (size_t n = 0; n == 0;) served.OnLoop([&] { n = served.kept.size(); });
  }
  served.OnLoop([&] {
    HttpResponse response;
    response.produce = [] { return std::string("late"); };
    served.kept[0](response);
  });
  EXPECT_EQ(Get(served.port(), "/api/v1/status").body, "{\"ok\":true}");
}

TEST(HttpServer, ConnectionsAreBoundedAndTheSilentOnesMakeRoom) {
  HttpOptions options;
  options.connections_max = 8;
  options.streams_max = 8;
  Served served(options);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(std::make_unique<Client>(served.port()));
  // Silent connections keep nobody out; the oldest has made room.
  Client ninth(served.port());
  EXPECT_EQ(ninth.Get("/").status, 200);
  EXPECT_TRUE(clients[0]->AwaitEnd());
  EXPECT_EQ(clients[7]->Get("/").status, 200);
  clients.clear();
  // Those who are being served stay.
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<Client>(served.port()));
    clients.back()->Send("GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(clients.back()->Read().status, 200);
  }
  ASSERT_TRUE(served.AwaitReaders(8));
  Client refused(served.port());
  EXPECT_EQ(refused.Read().status, 503);
  EXPECT_TRUE(refused.AwaitEnd());
  clients.pop_back();
  ASSERT_TRUE(served.AwaitReaders(7));
  EXPECT_EQ(Get(served.port(), "/").status, 200);
}

TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  Served served;
  Client client(served.port());
  std::string requests;
  for (int i = 0; i < 100; ++i) {
    requests += "GET /echo/x?i=" + std::to_string(i) + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  }
  ASSERT_TRUE(client.Send(requests));
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(client.Read().body, "path=/echo/x i=" + std::to_string(i));
  }
}

TEST(HttpServer, ARequestMayComeByteByByte) {
  Served served;
  Client client(served.port());
  for (const char c : std::string("GET /echo/x HTTP/1.1\r\nHost: localhost\r\n\r\n")) {
    ASSERT_TRUE(client.Send(std::string(1, c)));
  }
  EXPECT_EQ(client.Read().body, "path=/echo/x");
}

// Whatever is asked for, handlers take a tenth of the loop's time.
TEST(HttpServer, AFloodLeavesTheLoopToTheTokens) {
  Served served;
  std::vector<std::thread> flood;
  for (int i = 0; i < 4; ++i) {
    flood.emplace_back([&] {
      Client client(served.port());
      for (int n = 0; n < 10; ++n) EXPECT_EQ(client.Get("/work").status, 200);
    });
  }
  for (std::thread& thread : flood) thread.join();
  served.OnLoop([&] {
    ASSERT_EQ(served.work.size(), 40u);
    Duration busy{0};
    for (size_t i = 0; i + 1 < served.work.size(); ++i) {
      busy += served.work[i].second - served.work[i].first;
    }
    EXPECT_LE(busy * 10, served.work.back().first - served.work.front().first);
  });
}

TEST(HttpServer, StopsWithEverythingUnderWay) {
  for (int i = 0; i < 5; ++i) {
    auto served = std::make_unique<Served>();
    Client asking(served->port()), reading(served->port()), streaming(served->port());
    asking.Send("GET /never HTTP/1.1\r\nHost: localhost\r\n\r\n");
    reading.Send("GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
    streaming.Send("GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(streaming.Read().status, 200);
    auto kept = std::make_shared<std::vector<HttpServer::Respond>>();
    served->OnLoop([&] { kept->swap(served->kept); });
    served.reset();
    for (auto& respond : *kept) respond(HttpResponse{});  // nobody is there any more
    EXPECT_TRUE(streaming.AwaitEnd());
    EXPECT_TRUE(asking.AwaitEnd());
  }
}

TEST(HttpServer, LivesOnWhateverIsSent) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  Served served;
  const std::vector<std::string> parts = {"GET ",
                                          "HEAD ",
                                          "POST ",
                                          "/",
                                          "/echo/",
                                          "?",
                                          "&",
                                          "=",
                                          "%",
                                          "%2e",
                                          "%00",
                                          " HTTP/1.1",
                                          " HTTP/1.0",
                                          " HTTP/9.9",
                                          "\r\n",
                                          "\n",
                                          "\r",
                                          "\r\n\r\n",
                                          "Host: localhost",
                                          "Host:",
                                          ": ",
                                          "Content-Length: ",
                                          "Transfer-Encoding: chunked",
                                          "0",
                                          "18446744073709551616",
                                          "-1",
                                          "Connection: close",
                                          "Connection: keep-alive",
                                          "Authorization: Bearer ",
                                          "\0",
                                          "\xff",
                                          "If-None-Match: ",
                                          "\"",
                                          ",",
                                          "W/",
                                          "*",
                                          std::string(300, 'a'),
                                          std::string(20'000, 'b'),
                                          "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                                          " ",
                                          "\t"};
  for (int round = 0; round < 400; ++round) {
    std::string bytes;
    if (random.OneIn(2)) bytes = "GET / HTTP/1.1\r\nHost: localhost\r\n";
    const auto length = random.Between(1, 30);
    for (int64_t i = 0; i < length; ++i) {
      if (random.OneIn(4)) {
        bytes += static_cast<char>(random.Next());
      } else {
        bytes += parts[random.Next() % parts.size()];
      }
    }
    Client client(served.port());
    client.Send(bytes);
    if (random.OneIn(2)) {
      // Says no more: the server must end by itself, at once or when nothing else comes.
      shutdown(client.fd(), SHUT_WR);
      ASSERT_TRUE(client.AwaitEnd()) << testing::PrintToString(bytes);
    }
  }
  EXPECT_EQ(Get(served.port(), "/api/v1/status").body, "{\"ok\":true}");
}

TEST(HttpTarget, IsReadWhateverItIs) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (int round = 0; round < 20'000; ++round) {
    std::string target = random.OneIn(8) ? "" : "/";
    for (int64_t i = random.Between(0, 24); i > 0; --i) {
      target +=
          random.OneIn(3) ? static_cast<char>(random.Next()) : "/.%2eEf?&=+ab"[random.Next() % 13];
    }
    const auto request = ParseTarget(target);
    if (!request) {
      EXPECT_EQ(request.error().code, ErrorCode::kInvalid);
      continue;
    }
    const std::string& path = request->path;
    ASSERT_EQ(path[0], '/');
    EXPECT_EQ(("/" + path + "/").find("/../"), std::string::npos) << path;
    for (const char c : path) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
  }
}

}  // namespace
}  // namespace baton::net
