#include "net/http_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace baton::net {
namespace {

// Servers close what was silent for longer (Go's default there is 90 s).
constexpr Duration kIdleMax = std::chrono::seconds(45);
constexpr size_t kErrorMax = size_t{1} << 20;

bool Printable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

HttpClient::HttpClient(HttpClientOptions options, HttpUrl url, std::unique_ptr<ClientTls> tls)
    : options_(std::move(options)),
      url_(std::move(url)),
      tls_(std::move(tls)),
      token_(options_.token, options_.token_file) {}

Result<std::unique_ptr<HttpClient>> HttpClient::Make(HttpClientOptions options) {
  auto url = ParseHttpUrl(options.url, options.server);
  if (!url) return tl::unexpected(url.error());
  std::unique_ptr<ClientTls> tls;
  if (url->tls) {
    auto made = ClientTls::Make(options.tls);
    if (!made) return tl::unexpected(made.error());
    tls = std::move(*made);
  } else if (!url->loopback) {
    return Fail(ErrorCode::kInvalid, options.server + "'s URL '" + options.url +
                                         "' is not encrypted, which only loopback may be; write "
                                         "https://");
  }
  if (!options.token_file.empty() && options.token.empty()) {
    if (auto found = BearerToken::Check(options.token_file); !found) {
      return tl::unexpected(found.error());
    }
  }
  if (!Printable(options.token)) {
    return Fail(ErrorCode::kInvalid, "the token has characters that no token has");
  }
  if (!Printable(options.user_agent)) {
    return Fail(ErrorCode::kInvalid, "the user agent has characters that it may not have");
  }
  if (options.connections_max == 0) {
    return Fail(ErrorCode::kInvalid, "a client needs at least one connection");
  }
  return std::unique_ptr<HttpClient>(
      new HttpClient(std::move(options), std::move(*url), std::move(tls)));
}

std::string HttpClient::TextOf(const HttpCall& call) {
  std::string text;
  text.reserve(512 + call.body.size());
  text.append(call.method).append(" ").append(url_.path).append(call.target);
  text.append(" HTTP/1.1\r\nHost: ").append(url_.authority);
  text.append("\r\nUser-Agent: ").append(options_.user_agent);
  text.append("\r\nAccept: application/json\r\n");
  if (const std::string token = token_.Get(); !token.empty()) {
    text.append("Authorization: Bearer ").append(token).append("\r\n");
  }
  if (call.content_type != nullptr) {
    text.append("Content-Type: ").append(call.content_type);
    text.append("\r\nContent-Length: ").append(std::to_string(call.body.size())).append("\r\n");
  }
  return text.append("\r\n").append(call.body);
}

template <class Talk>
HttpResult<HttpAnswer> HttpClient::On(ClientConnection& connection, bool open, Instant deadline,
                                      const std::stop_token& stop, const Talk& talk) {
  const auto abort = [&connection] { connection.Abort(); };
  const std::stop_callback by_client(stop_.get_token(), abort);
  const std::stop_callback by_caller(stop, abort);
  if (open) {
    if (auto opened = connection.Open(url_, tls_.get(), deadline); !opened) {
      return tl::unexpected(std::move(opened.error()));
    }
  }
  return talk();
}

HttpResult<HttpAnswer> HttpClient::Ask(const HttpCall& call, size_t body_max, Instant deadline,
                                       const std::stop_token& stop) {
  bool stale_again = call.repeatable;
  bool token_again = true;
  while (true) {
    bool kept = false;
    std::unique_ptr<ClientConnection> connection = Take(deadline, stop, kept);
    if (!connection) {
      if (stopped() || stop.stop_requested()) {
        return tl::unexpected(HttpError{HttpEnd::kAborted, "stopped"});
      }
      return tl::unexpected(HttpError{
          HttpEnd::kBusy,
          fmt::format("all {} connections were busy for too long", options_.connections_max)});
    }
    auto answer = On(*connection, !kept, deadline, stop,
                     [&] { return connection->Ask(TextOf(call), body_max, deadline); });
    // The server was started again, most likely: the other kept ones are stale as well.
    const bool stale =
        kept && !answer && answer.error().end == HttpEnd::kBroken && !connection->heard();
    GiveBack(std::move(connection), stale);
    if (stale && std::exchange(stale_again, false)) continue;
    if (answer && answer->status == 401 && std::exchange(token_again, false)) {
      token_.Refused();
      continue;
    }
    return answer;
  }
}

HttpResult<HttpAnswer> HttpClient::Follow(const HttpCall& call, Duration opening, Duration silence,
                                          const std::stop_token& stop,
                                          const std::function<bool(std::string_view)>& on_piece) {
  for (bool token_again = true;; token_again = false) {
    ClientConnection connection;
    const Instant deadline = MonotonicNow() + opening;
    auto answer = On(connection, true, deadline, stop, [&] {
      auto begun = connection.Begin(TextOf(call), deadline);
      const bool follow = begun && begun->status == 200;
      while (begun) {
        auto piece = connection.Next(follow ? MonotonicNow() + silence : deadline);
        if (!piece && follow) return HttpResult<HttpAnswer>(tl::unexpected(piece.error()));
        if (!piece || piece->empty()) break;
        if (follow && !on_piece(*piece)) break;
        if (!follow && (begun->body += *piece).size() >= kErrorMax) break;
      }
      return begun;
    });
    if (!answer && answer.error().sent && answer.error().end == HttpEnd::kTimeout) {
      answer.error().why = "nothing was heard for too long";
    }
    if (!answer || answer->status != 401 || !token_again) return answer;
    token_.Refused();
  }
}

bool HttpClient::Pause(Duration duration, Instant deadline, const std::stop_token& stop) {
  if (duration >= deadline - MonotonicNow()) return false;
  std::unique_lock lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + duration;
  changed_.wait_until(lock, stop, until, [this] { return stopped(); });
  return !stopped() && !stop.stop_requested();
}

std::unique_ptr<ClientConnection> HttpClient::Take(Instant deadline, const std::stop_token& stop,
                                                   bool& kept) {
  const Instant now = MonotonicNow();
  std::unique_lock lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + std::max(deadline - now, Duration(0));
  const bool room = changed_.wait_until(
      lock, stop, until, [this] { return stopped() || taken_ < options_.connections_max; });
  if (!room || stopped() || stop.stop_requested()) return nullptr;
  ++taken_;
  kept = true;
  while (!idle_.empty()) {
    Kept last = std::move(idle_.back());
    idle_.pop_back();
    if (now - last.since < kIdleMax && last.connection->Alive()) return std::move(last.connection);
  }
  kept = false;
  return std::make_unique<ClientConnection>();
}

void HttpClient::GiveBack(std::unique_ptr<ClientConnection> connection, bool others_are_stale) {
  const std::lock_guard lock(mutex_);
  --taken_;
  if (others_are_stale) idle_.clear();
  if (connection->reusable() && !connection->aborted() && !stopped()) {
    idle_.push_back({std::move(connection), MonotonicNow()});
  }
  // All: the one that is woken may only be in a pause before it repeats.
  changed_.notify_all();
}

void HttpClient::Stop() {
  stop_.request_stop();
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

}  // namespace baton::net
