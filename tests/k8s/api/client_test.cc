// Calls: what is repeated, what is said, and that nothing takes longer than it may.
#include "k8s/api/client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/random.h"
#include "tests/k8s/api/fixture.h"
#include "tests/k8s/stand_in/certificates.h"

namespace baton::k8s::testing {
namespace {

using resources::kPods;

const ObjectName kName{"default", "a"};

bool Says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A server that answers each connection with some bytes, whatever it was asked.
class RawServer {
 public:
  explicit RawServer(std::function<std::string(int round)> answer, bool wait_for_request = true)
      : answer_(std::move(answer)), wait_(wait_for_request) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(fd_, 16), 0);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      for (int round = 0;; ++round) {
        const int peer = accept(fd_, nullptr, nullptr);
        if (peer < 0) return;
        char buffer[65'536];
        if (wait_) (void)recv(peer, buffer, sizeof(buffer), 0);
        const std::string text = answer_(round);
        (void)send(peer, text.data(), text.size(), MSG_NOSIGNAL);
        shutdown(peer, SHUT_WR);
        // What is unread would make the close a reset that overtakes the answer.
        while (wait_ && recv(peer, buffer, sizeof(buffer), 0) > 0) {
        }
        close(peer);
      }
    });
  }
  ~RawServer() {
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
  }
  ClusterConfig config() const {
    ClusterConfig config;
    config.server = fmt::format("http://127.0.0.1:{}", port_);
    return config;
  }

 private:
  std::function<std::string(int)> answer_;
  const bool wait_;
  int fd_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
};

std::string Http(int status, const std::string& body) {
  return fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\n\r\n{}", status, body.size(), body);
}

TEST(ClientTest, ErrorNamesServerRequestAndReason) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  const auto absent = client->Get(kPods, {"default", "no pod/\"?"});
  ASSERT_FALSE(absent);
  EXPECT_TRUE(absent.error().not_found());
  EXPECT_EQ(absent.error().reason, "NotFound");
  EXPECT_TRUE(Says(absent.error().message, "GET " + server.url())) << absent.error().message;
  EXPECT_TRUE(Says(absent.error().message, "no%20pod%2F%22%3F")) << absent.error().message;
  EXPECT_TRUE(Says(absent.error().message, "404 NotFound: pods")) << absent.error().message;
}

TEST(ClientTest, UnreachableServerIsReported) {
  std::string url;
  {
    const ApiServer server;
    url = server.url();
  }
  ClusterConfig config;
  config.server = url;
  ClientOptions options = Quick();
  options.timeout = milliseconds(50);
  const auto answer = ClientOf(config, options)->GetPath("/version");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().status, 0);
  EXPECT_TRUE(Says(answer.error().message, "connection refused; is the API server there?"))
      << answer.error().message;
  config.server = "https://no-such-name.invalid";
  options.timeout = milliseconds(500);
  const auto unknown = ClientOf(config, options)->GetPath("/version");
  ASSERT_FALSE(unknown);
  EXPECT_TRUE(Says(unknown.error().message, "no-such-name.invalid")) << unknown.error().message;
}

TEST(ClientTest, PlainHttpIsForLoopbackOnly) {
  ClusterConfig config;
  config.server = "http://10.0.0.1";
  EXPECT_FALSE(Client::Make(config));
  config.server = "nonsense";
  EXPECT_FALSE(Client::Make(config));
  config.server = "https://10.0.0.1";
  config.tls.ca = "no PEM";
  const auto made = Client::Make(config);
  ASSERT_FALSE(made);
  EXPECT_TRUE(Says(made.error().message, "no certificate")) << made.error().message;
  config.tls.ca.clear();
  config.token_file = "/nonexistent/token";
  EXPECT_EQ(Client::Make(config).error().code, ErrorCode::kNotFound);
  config.token_file.clear();
  config.token = "a\r\nHost: b";
  EXPECT_FALSE(Client::Make(config));
}

TEST(ClientTest, UntrustedServerIsRefusedWithTheReason) {
  ApiServer server({.tls = true});
  ASSERT_TRUE(ClientOf(server.config())->GetPath("/version"));
  ClusterConfig config = server.config();
  config.tls.server_name = "kubernetes.default";
  EXPECT_TRUE(ClientOf(config)->GetPath("/version"));
  config.tls.server_name = "evil.example";
  auto answer = ClientOf(config)->GetPath("/version");
  ASSERT_FALSE(answer);
  EXPECT_TRUE(Says(answer.error().message, "localhost, kubernetes.default, 127.0.0.1"))
      << answer.error().message;
  config.tls.server_name = "127.0.0.2";
  EXPECT_FALSE(ClientOf(config)->GetPath("/version"));
  config = server.config();
  config.tls.ca = MakeAuthority("somebody else").certificate;
  answer = ClientOf(config)->GetPath("/version");
  ASSERT_FALSE(answer);
  EXPECT_TRUE(Says(answer.error().message, "certificate-authority")) << answer.error().message;
  config.tls.insecure = true;
  EXPECT_TRUE(ClientOf(config)->GetPath("/version"));
}

TEST(ClientTest, ClientCertificateNeedsItsKey) {
  ApiServer server({.tls = true});
  const KeyPair authority = MakeAuthority("a");
  const KeyPair mine = MakeCertificate(authority, "me", "");
  ClusterConfig config = server.config();
  config.tls.certificate = mine.certificate;
  EXPECT_FALSE(Client::Make(config));
  config.tls.key = mine.key;
  EXPECT_TRUE(ClientOf(config)->GetPath("/version"));
  config.tls.key = authority.key;
  const auto wrong = Client::Make(config);
  ASSERT_FALSE(wrong);
  EXPECT_TRUE(Says(wrong.error().message, "client key")) << wrong.error().message;
}

TEST(ClientTest, ReplacedTokenIsReadAgain) {
  const TempFolder folder;
  ApiServer server({.token = "first"});
  ClusterConfig config = server.config();
  config.token.clear();
  config.token_file = folder.Write("token", "first\n");
  const auto client = ClientOf(config);
  ASSERT_TRUE(client->GetPath("/version"));
  server.SetToken("second");
  folder.Write("token", "second\n");
  // Even of a POST: who is not let in has done nothing.
  EXPECT_TRUE(client->Create(kPods, kName, AnnotatedPod("a")));
  server.SetToken("third");
  const auto refused = client->GetPath("/version");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 401);
  server.SetToken("second");
  server.AddFault({.kind = FaultKind::kAnswer, .verb = "get", .status = 401});
  EXPECT_TRUE(client->GetPath("/version"));
}

TEST(ClientTest, OnlySafeRequestsAreRepeated) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  const auto faulty = [&](FaultKind kind, int status = 500) {
    server.ClearFaults();
    server.AddFault({.kind = kind, .path = "/pods", .status = status});
  };
  ASSERT_TRUE(client->Create(kPods, kName, AnnotatedPod("a")));
  const std::pair<FaultKind, int> faults[] = {
      {FaultKind::kAnswer, 429}, {FaultKind::kAnswer, 500},  {FaultKind::kAnswer, 503},
      {FaultKind::kAnswer, 504}, {FaultKind::kCutBefore, 0}, {FaultKind::kCutAfter, 0},
      {FaultKind::kHalfBody, 0}, {FaultKind::kMalformed, 0}, {FaultKind::kWrongType, 0},
  };
  int serial = 0;
  for (const auto& [kind, status] : faults) {
    SCOPED_TRACE(fmt::format("fault {} {}", static_cast<int>(kind), status));
    faulty(kind, status);
    const auto got = client->Get(kPods, kName);
    EXPECT_TRUE(got) << got.error().message;
    faulty(kind, status);
    EXPECT_TRUE(client->List(kPods, "default"));
    faulty(kind, status);
    EXPECT_TRUE(client->Apply(kPods, kName,
                              {{"apiVersion", "v1"},
                               {"kind", "Pod"},
                               {"metadata", {{"name", "a"}, {"annotations", {{"n", "1"}}}}}}));
    // A PUT whose answer was lost has been done: its version is no more current.
    const bool lost = kind != FaultKind::kAnswer && kind != FaultKind::kCutBefore;
    Json object = *server.Get(kPods, kName);
    object["metadata"]["annotations"]["put"] = std::to_string(serial);
    faulty(kind, status);
    const auto put = client->Update(kPods, kName, object);
    EXPECT_EQ(put.has_value(), !lost);
    if (!put) {
      EXPECT_TRUE(put.error().conflict()) << put.error().message;
    }
    EXPECT_EQ(TextAt(*server.Get(kPods, kName), "metadata/annotations/put"),
              std::to_string(serial));
    // A POST is only where it cannot have been done.
    const ObjectName fresh{"default", fmt::format("new{}", serial++)};
    faulty(kind, status);
    const auto created = client->Create(kPods, fresh, AnnotatedPod(fresh.name));
    EXPECT_EQ(created.has_value(), status == 429) << fresh.name;
    EXPECT_EQ(server.Get(kPods, fresh).has_value(), lost || status == 429);
    if (lost) {
      ASSERT_FALSE(created);
      EXPECT_EQ(created.error().status, 0) << created.error().message;
    }
  }
  faulty(FaultKind::kAnswer, 409);
  EXPECT_TRUE(client->Update(kPods, kName, *server.Get(kPods, kName)).error().conflict());
  faulty(FaultKind::kAnswer, 403);
  EXPECT_EQ(client->Get(kPods, kName).error().reason, "Forbidden");
}

// The server is not busy: it says so of the pod, and the caller decides.
TEST(ClientTest, EvictionThatABudgetRefusesIsNotRepeated) {
  ApiServer server;
  const auto client = ClientOf(server.config(), Quick());
  ASSERT_TRUE(client->Create(kPods, kName, AnnotatedPod("a")));
  const Json eviction{{"apiVersion", "policy/v1"},
                      {"kind", "Eviction"},
                      {"metadata", {{"name", kName.name}, {"namespace", kName.name_space}}}};
  server.SetBudget(kName, true);
  const auto refused = client->Create(kPods, kName, eviction, "eviction");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().reason, kDisruptionBudget);
  EXPECT_EQ(server.count("create pods/eviction"), 1u);
  EXPECT_TRUE(server.Get(kPods, kName));
  server.SetBudget(kName, false);
  // 429 of a server that has no time is another thing.
  server.AddFault({.kind = FaultKind::kAnswer, .path = "/eviction", .status = 429});
  EXPECT_TRUE(client->Create(kPods, kName, eviction, "eviction"));
  EXPECT_FALSE(server.Get(kPods, kName));
}

TEST(ClientTest, RetryAfterIsHonoured) {
  ApiServer server;
  ClientOptions options = Quick();
  const auto client = ClientOf(server.config(), options);
  server.AddFault({.kind = FaultKind::kAnswer, .status = 429, .retry_after_s = 1});
  const Instant begin = MonotonicNow();
  EXPECT_TRUE(client->Create(kPods, kName, AnnotatedPod("a")));
  EXPECT_GE(MonotonicNow() - begin, milliseconds(990));
  // Longer than there is time for: the caller decides, now.
  server.AddFault({.kind = FaultKind::kAnswer, .status = 429, .retry_after_s = 600});
  const auto refused = client->Get(kPods, kName);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 429);
  EXPECT_EQ(refused.error().retry_after, seconds(600));
  EXPECT_LT(MonotonicNow() - begin, refused.error().retry_after / 2);
}

TEST(ClientTest, EveryCallEndsWithinItsTimeout) {
  ApiServer server;
  ClientOptions options = Quick();
  options.timeout = seconds(1);
  options.attempt_timeout = milliseconds(100);
  const auto client = ClientOf(server.config(), options);
  server.AddFault({.kind = FaultKind::kHang, .times = 0});
  const Instant begin = MonotonicNow();
  const auto answer = client->Get(kPods, kName);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().status, 0);
  EXPECT_GE(MonotonicNow() - begin, options.attempt_timeout);
  // More than one attempt, and no more than there is time for.
  EXPECT_GE(server.faults_met(), 2u);
  EXPECT_LE(server.faults_met(), static_cast<size_t>(options.timeout / options.attempt_timeout));
  server.ClearFaults();
  // Slow, but in time.
  server.AddFault({.kind = FaultKind::kSlow, .delay = milliseconds(30)});
  EXPECT_TRUE(client->Create(kPods, kName, AnnotatedPod("a")));
}

TEST(ClientTest, StopEndsRunningAndLaterCalls) {
  ApiServer server;
  ClientOptions options = Quick();
  options.timeout = options.attempt_timeout = seconds(60);
  options.connections_max = 1;
  const auto client = ClientOf(server.config(), options);
  server.AddFault({.kind = FaultKind::kHang, .verb = "get", .times = 0});
  std::atomic<int> ended{0};
  std::vector<std::thread> threads;
  // One hangs, one waits for its connection, one watches, one waits to repeat.
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      EXPECT_EQ(client->Get(kPods, kName).error().reason, "Stopped");
      ++ended;
    });
  }
  threads.emplace_back([&] {
    EXPECT_EQ(client->Watch(kPods, {}, {}, "1", options.timeout, [](auto, auto) { return true; })
                  .error()
                  .reason,
              "Stopped");
    ++ended;
  });
  ASSERT_TRUE(server.WaitFor(
      [&] { return server.count("get pods") > 0 && server.count("watch pods") > 0; }));
  EXPECT_EQ(ended, 0);
  const Instant begin = MonotonicNow();
  client->Stop();
  for (auto& thread : threads) thread.join();
  EXPECT_LT(MonotonicNow() - begin, options.timeout / 2);
  EXPECT_TRUE(client->stopped());
  EXPECT_EQ(client->GetPath("/version").error().reason, "Stopped");
}

TEST(ClientTest, ConnectionsAreReusedUnlessStale) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(client->GetPath("/version"));
    // Even a POST, which is not repeated: that the server has closed is seen before.
    server.CutConnections();
    std::this_thread::sleep_for(milliseconds(2));
    const ObjectName name{"default", fmt::format("p{}", i)};
    const auto made = client->Create(kPods, name, AnnotatedPod(name.name));
    ASSERT_TRUE(made) << made.error().message;
  }
}

TEST(ClientTest, ManyThreadsShareFewConnections) {
  ApiServer server;
  ClientOptions options = Quick();
  options.connections_max = 3;
  const auto client = ClientOf(server.config(), options);
  std::vector<std::thread> threads;
  for (int t = 0; t < 12; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const ObjectName name{"default", fmt::format("p{}-{}", t, i)};
        EXPECT_TRUE(client->Create(kPods, name, AnnotatedPod(name.name)));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(server.List(kPods).size(), 600u);
}

// The connection that is free goes to who waits for it, though others wait for something else.
TEST(ClientTest, FreeConnectionWakesAWaitingCall) {
  ApiServer server;
  ClientOptions options = Quick();
  options.connections_max = 1;
  options.timeout = options.attempt_timeout = seconds(200);
  const auto client = ClientOf(server.config(), options);
  server.AddFault(
      {.kind = FaultKind::kAnswer, .path = "/pods/pauses", .status = 429, .retry_after_s = 150});
  server.AddFault({.kind = FaultKind::kSlow, .path = "/pods/slow", .delay = milliseconds(300)});
  std::vector<std::thread> threads;
  const auto get = [&](const char* name) {
    threads.emplace_back([&, name] { (void)client->Get(kPods, {"default", name}); });
  };
  get("pauses");
  ASSERT_TRUE(server.WaitFor([&] { return server.faults_met() == 1; }));
  std::this_thread::sleep_for(milliseconds(50));  // it has its answer, and waits
  get("slow");
  ASSERT_TRUE(server.WaitFor([&] { return server.faults_met() == 2; }));
  const Instant begin = MonotonicNow();
  EXPECT_TRUE(client->GetPath("/version"));
  EXPECT_LT(MonotonicNow() - begin, options.timeout / 2);
  client->Stop();
  for (auto& thread : threads) thread.join();
}

TEST(ClientTest, ListFollowsAllPages) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  for (int i = 0; i < 25; ++i) server.Put(kPods, AnnotatedPod(fmt::format("p{:02}", i)));
  ListOptions options;
  options.page = 10;
  const auto list = client->List(kPods, "default", options);
  ASSERT_TRUE(list);
  EXPECT_EQ((*list)["items"].size(), 25u);
  EXPECT_EQ(server.count("list pods"), 3u);
  EXPECT_EQ((*list)["items"][7]["kind"], "Pod");
  EXPECT_EQ(TextAt(*list, "metadata/resourceVersion"), std::to_string(server.version()));
  // A version that is compacted between two pages: once more, whole.
  server.AddFault({.kind = FaultKind::kAnswer, .verb = "list", .skip = 1, .status = 410});
  const auto again = client->List(kPods, "default", options);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ((*again)["items"].size(), 25u);
}

TEST(ClientTest, WatchEventsSurviveAnyChunking) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  const std::string from = std::to_string(server.version());
  server.Put(kPods, AnnotatedPod("a", {{"long", std::string(100'000, 'x')}}));
  server.Put(kPods, AnnotatedPod("b"));
  server.Remove(kPods, kName);
  std::string seen;
  const auto watched =
      client->Watch(kPods, "default", {}, from, seconds(10), [&](auto type, const Json& object) {
        seen += fmt::format("{} {};", type, NameOf(object).name);
        return type != "BOOKMARK";
      });
  EXPECT_TRUE(watched);
  EXPECT_EQ(seen, "ADDED a;ADDED b;DELETED a;BOOKMARK ;");
}

TEST(ClientTest, WatchEndsAsDocumentedForEachReason) {
  ApiServer server;
  const auto client = ClientOf(server.config());
  const auto watch = [&](Duration silence = seconds(10)) {
    return client->Watch(kPods, "default", {}, std::to_string(server.version()), silence,
                         [](auto, auto) { return true; });
  };
  server.AddFault({.kind = FaultKind::kEndWatch, .events = 1});
  EXPECT_TRUE(watch());
  server.AddFault({.kind = FaultKind::kCutWatch, .events = 1});
  auto ended = watch();
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().status, 0);
  EXPECT_EQ(ended.error().reason, "NoAnswer") << ended.error().message;
  server.AddFault({.kind = FaultKind::kStallWatch});
  ended = watch(milliseconds(300));
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().reason, "Timeout") << ended.error().message;
  server.AddFault({.kind = FaultKind::kMalformed, .verb = "watch", .events = 1});
  EXPECT_EQ(watch().error().reason, "BadAnswer");
  server.AddFault({.kind = FaultKind::kAnswer, .verb = "watch", .status = 410});
  EXPECT_TRUE(watch().error().gone());
  server.AddFault({.kind = FaultKind::kAnswer, .verb = "watch", .status = 429, .retry_after_s = 7});
  EXPECT_EQ(watch().error().retry_after, seconds(7));
  // Too old a version: an event of the type ERROR.
  server.Put(kPods, AnnotatedPod("a"));
  server.Put(kPods, AnnotatedPod("b"));
  server.Compact();
  std::string seen;
  const auto old = client->Watch(kPods, "default", {}, "1", seconds(10), [&](auto type, auto) {
    seen += type;
    return true;
  });
  ASSERT_FALSE(old);
  EXPECT_TRUE(old.error().gone()) << old.error().message;
  EXPECT_EQ(seen, "ERROR");
}

// What is long takes long: a list of many pages is not held to the time of one.
TEST(ClientTest, EachPageOfAListHasItsOwnTimeout) {
  ApiServer server;
  for (int i = 0; i < 12; ++i) server.Put(kPods, AnnotatedPod(fmt::format("p{:02}", i)));
  server.AddFault(
      {.kind = FaultKind::kSlow, .verb = "list", .times = 0, .delay = milliseconds(100)});
  ClientOptions options = Quick();
  options.timeout = options.attempt_timeout = milliseconds(600);
  ListOptions one_by_one;
  one_by_one.page = 1;
  const auto list = ClientOf(server.config(), options)->List(kPods, "default", one_by_one);
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ(list->at("items").size(), 12u);
}

TEST(ClientTest, OversizedOrMalformedAnswerIsAnError) {
  ClientOptions options = Quick();
  options.timeout = milliseconds(300);
  options.answer_bytes_max = 10'000;
  const auto ask = [&](const std::string& bytes) {
    const RawServer server([&](int) { return bytes; });
    const auto answer = ClientOf(server.config(), options)->GetPath("/version");
    return answer ? std::string("fine") : answer.error().message;
  };
  EXPECT_EQ(ask(Http(200, "{\"a\": 1}")), "fine");
  EXPECT_EQ(ask("HTTP/1.1 100 Continue\r\n\r\n" + Http(200, "{}")), "fine");
  EXPECT_EQ(
      ask("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"),
      "fine");
  EXPECT_TRUE(Says(ask(Http(200, std::string(20'000, ' ') + "{}")), "larger than"));
  EXPECT_TRUE(Says(ask("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5000\r\n" +
                       std::string(0x5000, ' ')),
                   "larger than"));
  EXPECT_TRUE(
      Says(ask("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n{"), "larger than"));
  EXPECT_TRUE(Says(ask(Http(200, std::string(5'000, '[') + std::string(5'000, ']'))), "no JSON"));
  EXPECT_TRUE(Says(ask(Http(200, "[1]")), "no JSON object"));
  EXPECT_TRUE(Says(ask(Http(200, "")), "no JSON object"));
  EXPECT_TRUE(Says(ask(Http(502, "<html>\nBad\x01\xff</html>")), "502"));
  EXPECT_TRUE(Says(ask(Http(418, "{\"kind\":\"Status\",\"message\":\"teapot\"}")), "teapot"));
  EXPECT_TRUE(Says(ask("HTTP/1.1 200 OK\r\nX: " + std::string(200'000, 'x')), "no good HTTP"));
  std::string lines = "HTTP/1.1 200 OK\r\n";
  while (lines.size() < 200'000) lines += "X: many short lines\r\n";
  EXPECT_TRUE(Says(ask(lines), "no good HTTP")) << "a header has an end";
  EXPECT_TRUE(Says(ask("SSH-2.0-OpenSSH\r\n"), "no good HTTP"));
  // 0 would mean that no answer came.
  EXPECT_TRUE(Says(ask("HTTP/1.1 000 None\r\nContent-Length: 2\r\n\r\n{}"), "below 100"));
  EXPECT_TRUE(Says(ask("HTTP/1.1 099 None\r\nContent-Length: 2\r\n\r\n{}"), "below 100"));
  EXPECT_TRUE(Says(ask(""), "cut"));
}

// Whatever a server sends, nothing crashes, nothing hangs, nothing is taken for an object.
TEST(ClientTest, RandomBytesFromAServerAreHarmless) {
  const uint64_t seed = static_cast<uint64_t>(Nanos(MonotonicNow()));
  std::printf("seed %lu\n", seed);
  Random random(seed);
  std::mutex mutex;
  const std::string event = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n";
  const std::string good = fmt::format(
      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n{:x}\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n",
      event.size(), event, event.size(), event);
  const RawServer server([&](int) {
    const std::lock_guard lock(mutex);
    std::string text = random.OneIn(3) ? Http(200, "{\"items\":[{\"metadata\":{}},7,null]}") : good;
    for (int64_t i = random.Between(0, 6); i > 0; --i) {
      const auto at = static_cast<size_t>(random.Between(0, static_cast<int64_t>(text.size()) - 1));
      switch (random.Between(0, 3)) {
        case 0:
          text[at] = static_cast<char>(random.Between(0, 255));
          break;
        case 1:
          text.erase(at);
          break;
        case 2:
          text.insert(at, text.substr(static_cast<size_t>(
                              random.Between(0, static_cast<int64_t>(text.size()) - 1))));
          break;
        default:
          text.insert(at, 1, static_cast<char>(random.Between(0, 255)));
      }
      if (text.empty()) break;
    }
    return text;
  });
  ClientOptions options = Quick();
  options.timeout = options.attempt_timeout = milliseconds(8);
  const auto client = ClientOf(server.config(), options);
  for (int round = 0; round < 300; ++round) {
    (void)client->List(kPods, "default");
    (void)client->Watch(kPods, "default", {}, "1", milliseconds(8),
                        [](auto, const Json& object) { return object.is_object(); });
  }
}

}  // namespace
}  // namespace baton::k8s::testing
