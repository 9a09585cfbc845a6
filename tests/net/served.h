// A server to try, with handlers of all kinds.
#ifndef BATON_TESTS_NET_SERVED_H_
#define BATON_TESTS_NET_SERVED_H_

#include <unistd.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/server.h"
#include "tests/net/client.h"

namespace baton::net {

// A server, and the event loop of its handlers on a thread.
class Served {
 public:
  explicit Served(HttpOptions options = {}) : server(io, Anywhere(std::move(options))) {
    server.Route("/api/v1/status", [](const HttpRequest&, const HttpServer::Respond& respond) {
      HttpResponse response;
      response.body = "{\"ok\":true}";
      respond(response);
    });
    const HttpServer::Handler echo = [](const HttpRequest& request,
                                        const HttpServer::Respond& respond) {
      HttpResponse response;
      response.content_type = "text/plain";
      response.body = "path=" + request.path;
      for (const auto& [name, value] : request.query) response.body += " " + name + "=" + value;
      respond(response);
    };
    for (const char* path : {"/echo/x", "/echo/a/b c", "/echo/..x", "/echo/<script>"}) {
      server.Route(path, echo);
    }
    server.Route("/later", [this](const HttpRequest&, HttpServer::Respond respond) {
      threads.emplace_back([respond] {
        HttpResponse response;
        response.body = "\"later\"";
        respond(response);
        respond(response);  // ignored
      });
    });
    server.Route("/never", [this](const HttpRequest&, HttpServer::Respond respond) {
      kept.push_back(std::move(respond));
    });
    server.Route("/big", [](const HttpRequest&, const HttpServer::Respond& respond) {
      HttpResponse response;
      response.produce = [] { return std::string(8 << 20, 'x'); };
      respond(response);
    });
    server.Route("/work", [this](const HttpRequest&, const HttpServer::Respond& respond) {
      const Instant begun = MonotonicNow();
      usleep(1000);
      respond(HttpResponse{});
      work.emplace_back(begun, MonotonicNow());
    });
    server.Route("/error", [](const HttpRequest&, const HttpServer::Respond& respond) {
      respond(ErrorResponse({ErrorCode::kUnavailable, "the \"ledger\" is away"}));
    });
    server.Route(
        "/healthz",
        [](const HttpRequest&, const HttpServer::Respond& respond) {
          HttpResponse response;
          response.content_type = "text/plain";
          response.body = "ok\n";
          respond(response);
        },
        Access::kOpen);
    server.AddAsset("/", "text/html; charset=utf-8", "<!doctype html>");
    server.AddAsset("/app.js", "text/javascript", "let a = 1;");
    stream = &server.AddStream("/api/v1/stream");
    started = server.Start();
    thread = std::thread([this] {
      const auto work = boost::asio::make_work_guard(io);
      io.run();
    });
  }
  ~Served() {
    io.stop();
    thread.join();
    for (std::thread& one : threads) one.join();
    server.Stop();
  }
  uint16_t port() const { return server.port(); }
  // Runs `action` on the loop's thread, and waits for it.
  void OnLoop(const std::function<void()>& action) {
    std::atomic<bool> done = false;
    boost::asio::post(io, [&] {
      action();
      done = true;
      done.notify_one();
    });
    done.wait(false);
  }
  // Looks again and again until so many read events.
  bool AwaitReaders(size_t count) {
    for (int i = 0; i < kPatienceMs && stream->readers() != count; ++i) usleep(1000);
    return stream->readers() == count;
  }

  static HttpOptions Anywhere(HttpOptions options) {
    if (options.listen == HttpOptions().listen) options.listen = "127.0.0.1:0";
    return options;
  }

  boost::asio::io_context io;
  // The loop's.
  std::vector<std::thread> threads;
  std::vector<HttpServer::Respond> kept;
  std::vector<std::pair<Instant, Instant>> work;
  HttpServer server;
  EventStream* stream;
  Result<void> started;
  std::thread thread;
};

}  // namespace baton::net

#endif  // BATON_TESTS_NET_SERVED_H_
