#include "net/server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "k8s/webhook/webhook.h"
#include "net/client_connection.h"

namespace baton::k8s {
namespace {

using net::HttpOptions;
using net::HttpRequest;
using net::HttpResponse;
using net::HttpServer;
using std::chrono::milliseconds;

Instant In(Duration time) { return MonotonicNow() + time; }

// One connection of a client that trusts `authorities` only; empty: plain HTTP.
class Caller {
 public:
  Caller(uint16_t port, const std::string& authorities) {
    if (!authorities.empty()) {
      auto tls = net::ClientTls::Make({.ca = authorities});
      if (!tls) {
        why_ = tls.error().message;
        return;
      }
      tls_ = std::move(*tls);
    }
    const auto url = net::ParseHttpUrl(fmt::format("https://127.0.0.1:{}", port), "the server");
    if (auto done = connection_.Open(*url, tls_.get(), In(std::chrono::seconds(20))); !done) {
      why_ = done.error().why;
    }
  }

  // Status and body; 0 and why not.
  std::pair<int, std::string> Ask(const std::string& method, const std::string& path,
                                  const std::string& body = {}) {
    if (!why_.empty()) return {0, why_};
    const auto answer =
        connection_.Ask(fmt::format("{} {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                                    method, path, body.size(), body),
                        1 << 20, In(std::chrono::seconds(20)));
    if (!answer) return {0, answer.error().why};
    return {answer->status, answer->body};
  }
  std::pair<int, std::string> Raw(const std::string& bytes) {
    const auto answer = connection_.Ask(bytes, 1 << 20, In(std::chrono::seconds(20)));
    if (!answer) return {0, answer.error().why};
    return {answer->status, answer->body};
  }
  // Whether the server has not closed the connection.
  bool Alive() const { return connection_.Alive(); }

 private:
  std::unique_ptr<net::ClientTls> tls_;
  net::ClientConnection connection_;
  std::string why_;
};

HttpOptions Loopback() { return net::ForPrograms("127.0.0.1:0"); }

// A server that answers by `service` already.
Result<std::unique_ptr<HttpServer>> Serve(HttpOptions options, const net::TlsIdentity* tls,
                                          HttpServer::Service service) {
  auto server = std::make_unique<HttpServer>(std::move(options), tls, std::move(service));
  if (auto started = server->Start(); !started) return tl::unexpected(started.error());
  return server;
}

template <class F>
bool Eventually(F predicate) {
  for (const Instant end = In(std::chrono::seconds(30)); MonotonicNow() < end;) {
    if (predicate()) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return false;
}

const std::string kReview =
    R"({"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u",
    "resource":{"group":"","version":"v1","resource":"pods"},"operation":"CREATE","namespace":"n",
    "object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[
    {"name":"main","image":"x","env":[{"name":"A","value":"b"}],
     "resources":{"limits":{"baton.dev/gpu-share":"30","baton.dev/gpu-memory":"16"}}},
    {"name":"side","image":"y"}]}}}})";

TEST(Serve, OneConnectionServesManyRequests) {
  auto server = Serve(Loopback(), nullptr, [](const HttpRequest& request) {
    return HttpResponse{200, request.method + " " + request.path + " " + request.body,
                        "text/plain"};
  });
  ASSERT_TRUE(server) << server.error().message;
  Caller caller((*server)->port(), "");
  EXPECT_EQ(caller.Ask("POST", "/a?timeout=10s", "hello").second, "POST /a hello");
  EXPECT_EQ(caller.Ask("GET", "/b").second, "GET /b ");
  EXPECT_EQ(caller
                .Raw("POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                     "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
                .second,
            "POST /c abcde");
  EXPECT_EQ((*server)->counts().connections, 1u);
  EXPECT_EQ((*server)->counts().requests, 3u);
}

TEST(Serve, RefusesLargeSlowAndMalformedRequests) {
  HttpOptions options = Loopback();
  options.body_bytes_max = 1'000;
  options.header_bytes_max = 2'000;
  options.request_timeout = milliseconds(200);
  auto server = Serve(options, nullptr, [](const HttpRequest&) { return HttpResponse{}; });
  ASSERT_TRUE(server) << server.error().message;
  const uint16_t port = (*server)->port();
  EXPECT_EQ(Caller(port, "").Ask("POST", "/", std::string(1'000, 'x')).first, 200);
  const auto large = Caller(port, "").Ask("POST", "/", std::string(1'001, 'x'));
  EXPECT_EQ(large.first, 413);
  EXPECT_NE(large.second.find("longer than 1000 bytes"), std::string::npos);
  EXPECT_EQ(Caller(port, "").Ask("POST", "/", std::string(300'000, 'x')).first, 413);
  EXPECT_EQ(
      Caller(port, "").Raw("POST / HTTP/1.1\r\nX: " + std::string(3'000, 'x') + "\r\n\r\n").first,
      431);
  EXPECT_EQ(Caller(port, "").Raw("nonsense\r\n\r\n").first, 400);
  EXPECT_EQ(Caller(port, "").Raw("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc").first, 408);
  EXPECT_EQ((*server)->counts().refused, 5u);
}

TEST(Serve, ThrowingHandlerIsA500AndServingContinues) {
  auto server = Serve(Loopback(), nullptr, [](const HttpRequest& request) {
    if (request.path == "/throw") throw std::runtime_error("a \"bad\" day");
    return HttpResponse{};
  });
  ASSERT_TRUE(server) << server.error().message;
  Caller caller((*server)->port(), "");
  const auto thrown = caller.Ask("GET", "/throw");
  EXPECT_EQ(thrown.first, 500);
  EXPECT_EQ(thrown.second, "{\"error\":\"a \\\"bad\\\" day\"}\n");
  EXPECT_EQ(caller.Ask("GET", "/").first, 200);
}

TEST(Serve, LongestIdleConnectionIsEvicted) {
  HttpOptions options = Loopback();
  options.connections_max = 4;
  auto server = Serve(options, nullptr, [](const HttpRequest&) { return HttpResponse{}; });
  ASSERT_TRUE(server) << server.error().message;
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < 4; ++i) {
    callers.push_back(std::make_unique<Caller>((*server)->port(), ""));
    ASSERT_EQ(callers.back()->Ask("GET", "/").first, 200);
  }
  EXPECT_EQ(callers[0]->Ask("GET", "/").first, 200) << "now another is silent longest";
  Caller fifth((*server)->port(), "");
  EXPECT_EQ(fifth.Ask("GET", "/").first, 200);
  // Which of the three others began to wait first is the server's to say: their answers were with
  // us before its threads waited again.
  int alive = 0;
  for (size_t i = 1; i < callers.size(); ++i) alive += callers[i]->Ask("GET", "/").first == 200;
  EXPECT_EQ(alive, 2);
  EXPECT_EQ(callers[0]->Ask("GET", "/").first, 200);
}

// Else a client would ask once more on a connection on which nobody listens.
TEST(Serve, FinishedConnectionIsClosedAtOnce) {
  HttpOptions options = Loopback();
  options.idle_timeout = milliseconds(50);
  auto server = Serve(options, nullptr, [](const HttpRequest&) { return HttpResponse{}; });
  ASSERT_TRUE(server) << server.error().message;
  Caller caller((*server)->port(), "");
  ASSERT_EQ(caller.Ask("GET", "/").first, 200);
  EXPECT_TRUE(Eventually([&] { return !caller.Alive(); }));
}

TEST(Serve, StopWaitsForAnswersInFlight) {
  std::atomic<bool> begun{false};
  std::atomic<bool> go{false};
  auto server = Serve(Loopback(), nullptr, [&](const HttpRequest&) {
    begun = true;
    EXPECT_TRUE(Eventually([&] { return go.load(); }));
    return HttpResponse{200, "done", "text/plain"};
  });
  ASSERT_TRUE(server) << server.error().message;
  Caller silent((*server)->port(), "");
  std::pair<int, std::string> answer;
  std::thread asking([&] { answer = Caller((*server)->port(), "").Ask("GET", "/"); });
  ASSERT_TRUE(Eventually([&] { return begun.load(); }));
  std::thread stopping([&] { (*server)->Stop(); });
  // The silent one is ended while the other is still being answered.
  EXPECT_TRUE(Eventually([&] { return !silent.Alive(); }));
  go = true;
  stopping.join();
  asking.join();
  EXPECT_EQ(answer.second, "done");
}

TEST(Serve, ConcurrentLargeRequestsAreBounded) {
  HttpOptions options = Loopback();
  options.body_bytes_max = options.bodies_bytes_max = 200'000;
  std::atomic<bool> begun{false};
  std::atomic<bool> go{false};
  auto server = Serve(options, nullptr, [&](const HttpRequest& request) {
    if (request.path == "/long") {
      begun = true;
      EXPECT_TRUE(Eventually([&] { return go.load(); }));
    }
    return HttpResponse{};
  });
  ASSERT_TRUE(server) << server.error().message;
  const uint16_t port = (*server)->port();
  const std::string large(150'000, 'x');
  int first = 0;
  std::thread asking([&] { first = Caller(port, "").Ask("POST", "/long", large).first; });
  ASSERT_TRUE(Eventually([&] { return begun.load(); }));
  EXPECT_EQ(Caller(port, "").Ask("POST", "/", large).first, 503);
  EXPECT_EQ(Caller(port, "").Ask("POST", "/", std::string(60'000, 'x')).first, 200);
  go = true;
  asking.join();
  EXPECT_EQ(first, 200);
  EXPECT_TRUE(Eventually([&] { return Caller(port, "").Ask("POST", "/", large).first == 200; }));
}

TEST(Serve, BadListenAddressIsExplained) {
  const auto handler = [](const HttpRequest&) { return HttpResponse{}; };
  HttpOptions options = Loopback();
  options.listen = "somewhere";
  EXPECT_FALSE(Serve(options, nullptr, handler));
  auto first = Serve(Loopback(), nullptr, handler);
  ASSERT_TRUE(first);
  options.listen = fmt::format("127.0.0.1:{}", (*first)->port());
  const auto second = Serve(options, nullptr, handler);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("choose another address or port"), std::string::npos);
}

TEST(Serve, InvalidIdentityIsNotServed) {
  const auto one =
      MakeServingCertificate({"127.0.0.1"}, "a", WallNow(), std::chrono::hours(1)).value();
  const auto two =
      MakeServingCertificate({"127.0.0.1"}, "a", WallNow(), std::chrono::hours(1)).value();
  net::TlsIdentity identity;
  EXPECT_EQ(identity.context(), nullptr);
  ASSERT_TRUE(identity.Set(one.certificate, one.key));
  const auto context = identity.context();
  EXPECT_FALSE(identity.Set(one.certificate, two.key));
  EXPECT_FALSE(identity.Set("nonsense", one.key));
  EXPECT_FALSE(identity.Set(one.certificate, ""));
  EXPECT_EQ(identity.context(), context) << "what was there stays";
}

// The bundle as API servers see it: as it was `kLag` ago.
class Bundle {
 public:
  static constexpr Duration kLag = milliseconds(150);

  PublishAuthorities publish() {
    return [this](const std::vector<std::string>& wanted) -> Result<void> {
      const std::lock_guard lock(mutex_);
      const std::string before = history_.empty() ? "" : history_.back().second;
      std::string after = MergedBundle(before, wanted, WallNow());
      if (after != before) history_.emplace_back(MonotonicNow(), std::move(after));
      return {};
    };
  }
  std::string Seen() const {
    const std::lock_guard lock(mutex_);
    std::string seen;
    for (const auto& [when, bundle] : history_) {
      if (seen.empty() || when + kLag <= MonotonicNow()) seen = bundle;
    }
    return seen;
  }
  size_t versions() const {
    const std::lock_guard lock(mutex_);
    return history_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<Instant, std::string>> history_;
};

WebhookOptions SelfMade(Bundle& bundle) {
  WebhookOptions options;
  options.serve = Loopback();
  options.rotation.names = {"127.0.0.1"};
  options.rotation.replica = "a";
  options.rotation.propagation = milliseconds(400);
  options.publish = bundle.publish();
  options.publish_every = milliseconds(100);
  return options;
}

TEST(WebhookServer, CertificateRotatesUnderLoadWithoutErrors) {
  Bundle bundle;
  WebhookOptions options = SelfMade(bundle);
  // A certificate's times are whole seconds, so this is as short as it can be tested.
  options.rotation.validity = std::chrono::seconds(6);
  auto webhook = Webhook::Start(options);
  ASSERT_TRUE(webhook) << webhook.error().message;
  ASSERT_TRUE(Eventually([&] { return (*webhook)->ready(); }));
  std::atomic<bool> over{false};
  std::atomic<uint64_t> requests{0};
  std::mutex mutex;
  std::vector<std::string> failures;
  const uint16_t port = (*webhook)->port();
  const auto call = [&](Caller& caller) {
    const auto [status, body] = caller.Ask("POST", "/mutate", kReview);
    ++requests;
    if (status == 200 && body.find("\"allowed\":true") != std::string::npos) return;
    const std::lock_guard lock(mutex);
    failures.push_back(fmt::format("{} {}", status, body));
  };
  std::vector<std::thread> threads;
  threads.reserve(3);
  // Two that connect anew each time, and trust only the bundle that they see; one that keeps its
  // connection, which must outlive its certificate.
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!over) {
        Caller caller(port, bundle.Seen());
        call(caller);
        std::this_thread::sleep_for(milliseconds(2));
      }
    });
  }
  threads.emplace_back([&] {
    Caller caller(port, bundle.Seen());
    while (!over) {
      call(caller);
      std::this_thread::sleep_for(milliseconds(2));
    }
  });
  // The next is published, served, and the old authority taken out again.
  EXPECT_TRUE(Eventually([&] { return (*webhook)->rotations() >= 1 && bundle.versions() >= 3; }));
  std::this_thread::sleep_for(2 * Bundle::kLag);
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(failures.empty()) << failures.size() << " of " << requests << ": " << failures[0];
  EXPECT_GT(requests, 50u);
  EXPECT_EQ(BundleSize(bundle.Seen()), 1u);
  std::cout << requests << " requests over " << (*webhook)->rotations() << " rotation(s)\n";
}

// The least that a request can cost on this machine at this moment: a byte to another thread and
// back over loopback.
class Echo {
 public:
  Echo() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    near_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    good_ = bind(listener, any, size) == 0 && listen(listener, 1) == 0 &&
            getsockname(listener, any, &size) == 0 && connect(near_, any, size) == 0;
    if (good_) far_ = accept(listener, nullptr, nullptr);
    close(listener);
    thread_ = std::thread([this] {
      for (char c = 0; recv(far_, &c, 1, 0) == 1;) send(far_, &c, 1, MSG_NOSIGNAL);
    });
  }
  ~Echo() {
    shutdown(near_, SHUT_RDWR);
    thread_.join();
    close(near_);
    close(far_);
  }
  bool Ask() {
    char c = 'x';
    return good_ && send(near_, &c, 1, MSG_NOSIGNAL) == 1 && recv(near_, &c, 1, 0) == 1;
  }

 private:
  int near_ = -1;
  int far_ = -1;
  bool good_ = false;
  std::thread thread_;
};

// What reviews took in turns with echoes, in ms, the shortest first.
struct Latencies {
  std::vector<double> echo;
  std::vector<double> kept;   // reviews over one connection
  std::vector<double> fresh;  // reviews that each made a TLS connection
};

// 200 reviews/s for three seconds, one in ten over a new connection.
void Load(uint16_t port, const std::string& authorities, Latencies& took) {
  constexpr int kRequests = 600;
  took = {};
  Caller kept(port, authorities);
  Echo echo;
  const Instant begin = In(milliseconds(10));
  const auto timed = [](std::vector<double>& into, const auto& call) {
    const Instant start = MonotonicNow();
    call();
    into.push_back(static_cast<double>(Nanos(MonotonicNow() - start)) * 1e-6);
  };
  for (int i = 0; i < kRequests; ++i) {
    std::this_thread::sleep_for(begin + i * milliseconds(5) - MonotonicNow());
    bool echoed = false;
    timed(took.echo, [&] { echoed = echo.Ask(); });
    ASSERT_TRUE(echoed);
    std::pair<int, std::string> answer;
    if (i % 10 == 0) {
      timed(took.fresh,
            [&] { answer = Caller(port, authorities).Ask("POST", "/mutate", kReview); });
    } else {
      const char* path = i % 2 == 0 ? "/mutate" : "/validate";
      timed(took.kept, [&] { answer = kept.Ask("POST", path, kReview); });
    }
    ASSERT_EQ(answer.first, 200) << answer.second;
  }
  for (auto* times : {&took.echo, &took.kept, &took.fresh}) std::sort(times->begin(), times->end());
}

// No pod waits for the webhook: a review costs a small multiple of the least that a request costs.
// What stalls an answer (40 ms of a delayed acknowledgement) is hundreds of it.
TEST(WebhookServer, AnswersFast) {
  Bundle bundle;
  auto webhook = Webhook::Start(SelfMade(bundle));
  ASSERT_TRUE(webhook) << webhook.error().message;
  ASSERT_TRUE(Eventually([&] { return bundle.versions() > 0; }));
  constexpr double kKeptMax = 100;
  constexpr double kFreshMax = 400;
  constexpr double kPromised = 10;  // ms
  double kept = 0;
  double fresh = 0;
  double p99 = 0;
  const auto too_slow = [&] { return kept > kKeptMax || fresh > kFreshMax || p99 > kPromised; };
  // Where others use the machine beside it, one round may say nothing of Baton; what is wrong with
  // it shows in all.
  constexpr int kRounds = 5;
  for (int i = 0; i < kRounds && (i == 0 || too_slow()); ++i) {
    Latencies took;
    ASSERT_NO_FATAL_FAILURE(Load((*webhook)->port(), bundle.Seen(), took));
    const auto median = [](const std::vector<double>& times) { return times[times.size() / 2]; };
    kept = median(took.kept) / median(took.echo);
    fresh = median(took.fresh) / median(took.echo);
    std::vector<double> all = took.kept;
    all.insert(all.end(), took.fresh.begin(), took.fresh.end());
    std::sort(all.begin(), all.end());
    p99 = all[all.size() * 99 / 100];
    std::cout << fmt::format(
        "p50 {:.2f} ms, p99 {:.2f} ms, largest {:.2f} ms; medians: kept connection {:.0f}, new "
        "connection {:.0f} echoes of {:.3f} ms\n",
        median(all), p99, all.back(), kept, fresh, median(took.echo));
  }
  EXPECT_LE(kept, kKeptMax);
  EXPECT_LE(fresh, kFreshMax);
  EXPECT_LE(p99, kPromised);  // the tail, of which medians say nothing
}

TEST(WebhookServer, RenewedCertificateFilesAreReloaded) {
  const auto make = [] {
    return MakeServingCertificate({"127.0.0.1"}, "a", WallNow(), std::chrono::hours(1)).value();
  };
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("baton-webhook-test-{}", getpid());
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder / "new") << text;
    std::filesystem::rename(folder / "new", folder / name);
  };
  const auto first = make();
  write("tls.crt", first.certificate);
  write("tls.key", first.key);
  write("teams.toml", "[[team]]\nname = \"a\"\n");
  WebhookOptions options;
  options.serve = Loopback();
  options.metrics_listen = "127.0.0.1:0";
  options.certificate_file = folder / "tls.crt";
  options.key_file = folder / "tls.key";
  options.teams_file = folder / "teams.toml";
  options.files_every = milliseconds(10);
  auto webhook = Webhook::Start(options);
  ASSERT_TRUE(webhook) << webhook.error().message;
  const uint16_t port = (*webhook)->port();
  EXPECT_EQ(Caller(port, first.authority).Ask("GET", "/healthz").first, 200);

  const auto second = make();
  // Between the two renames they do not fit: the first is served on.
  write("tls.crt", second.certificate);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(Caller(port, first.authority).Ask("GET", "/healthz").first, 200);
  write("tls.key", second.key);
  EXPECT_TRUE(Eventually(
      [&] { return Caller(port, second.authority).Ask("GET", "/readyz").first == 200; }));
  EXPECT_EQ(Caller(port, first.authority).Ask("GET", "/healthz").first, 0);

  std::string with_team = kReview;
  with_team.replace(with_team.find("\"name\":\"p\""), 10,
                    R"("name":"p","annotations":{"baton.dev/team":"b"})");
  const auto says = [&](const char* what) {
    return Caller(port, second.authority).Ask("POST", "/validate", with_team).second.find(what) !=
           std::string::npos;
  };
  EXPECT_TRUE(says("team 'b' does not exist"));
  write("teams.toml", "[[team]]\nname = \"b\"\n");
  EXPECT_TRUE(Eventually([&] { return says("\"allowed\":true"); }));
  write("teams.toml", "no toml");
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_TRUE(says("\"allowed\":true")) << "the last good one counts";

  const auto metrics = Caller((*webhook)->metrics_port(), "").Ask("GET", "/metrics");
  EXPECT_EQ(metrics.first, 200);
  EXPECT_NE(
      metrics.second.find("baton_webhook_reviews_total{path=\"validate\",verdict=\"refused\"}"),
      std::string::npos);
  EXPECT_EQ(Caller((*webhook)->metrics_port(), "").Ask("GET", "/mutate").first, 404);
  EXPECT_EQ(Caller(port, second.authority).Ask("GET", "/mutate").first, 405);
  EXPECT_EQ(Caller(port, second.authority).Ask("POST", "/mutate", "{").first, 400);
  (*webhook)->Leave();
  EXPECT_EQ(Caller(port, second.authority).Ask("GET", "/readyz").first, 503);
  EXPECT_EQ(Caller(port, second.authority).Ask("GET", "/healthz").first, 200);
  webhook->reset();
  std::filesystem::remove_all(folder);
}

TEST(WebhookServer, ContradictoryOptionsAreRefused) {
  WebhookOptions options;
  options.serve = Loopback();
  EXPECT_FALSE(Webhook::Start(options)) << "nowhere to publish";
  options.certificate_file = "/nonexistent/tls.crt";
  EXPECT_FALSE(Webhook::Start(options)) << "no key";
  options.key_file = "/nonexistent/tls.key";
  const auto missing = Webhook::Start(options);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("/nonexistent/tls.crt"), std::string::npos);
}

}  // namespace
}  // namespace baton::k8s
