#include "k8s/api/client.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "base/utf8.h"
#include "k8s/api/backoff.h"
#include "k8s/api/http.h"
#include "k8s/api/tls.h"
#include "k8s/api/url.h"

namespace baton::k8s {
namespace {

// API servers close what was silent for longer (Go's default there is 90 s).
constexpr Duration kIdleMax = std::chrono::seconds(45);
constexpr Duration kTokenAge = std::chrono::minutes(1);
constexpr size_t kTokenMax = size_t{64} << 10;
// Of an event. etcd refuses objects beyond 1.5 MiB.
constexpr size_t kEventMax = size_t{16} << 20;
constexpr int kPagesMax = 100'000;
// A server that says nonsense more often than that does not get better by being asked.
constexpr int kBadAnswersMax = 4;

std::string Sentence(int status) {
  switch (status) {
    case 400:
      return "BadRequest";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "NotFound";
    case 405:
      return "MethodNotAllowed";
    case 409:
      return "Conflict";
    case 410:
      return "Gone";
    case 413:
      return "RequestEntityTooLarge";
    case 415:
      return "UnsupportedMediaType";
    case 422:
      return "Invalid";
    case 429:
      return "TooManyRequests";
    case 500:
      return "InternalError";
    case 503:
      return "ServiceUnavailable";
    case 504:
      return "Timeout";
    default:
      return "Unknown";
  }
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// What a server said that is no Status: one line of it.
std::string Excerpt(const std::string& body) {
  std::string text = ToUtf8(std::string_view(body).substr(0, 200));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text.empty() ? "(nothing)" : text;
}

ApiError StoppedError() { return {0, "Stopped", "the client was stopped", {}}; }

// Of a Status object, or whatever else a failure came with.
ApiError ErrorOf(int status, const std::optional<Json>& body, const std::string& text,
                 const std::string& asked) {
  ApiError error;
  error.status = status;
  std::string said;
  if (body) {
    error.reason = TextAt(*body, "reason");
    said = TextAt(*body, "message");
    if (const Json* after = Find(*body, "details/retryAfterSeconds");
        after != nullptr && after->is_number_unsigned()) {
      error.retry_after = std::chrono::seconds(std::min<uint64_t>(after->get<uint64_t>(), 86'400));
    }
  } else {
    said = Excerpt(text);
  }
  if (error.reason.empty()) error.reason = Sentence(status);
  error.message = fmt::format("{}: {} {}{}{}", asked, status, error.reason,
                              said.empty() ? "" : ": ", said.substr(0, 4096));
  return error;
}

}  // namespace

class Client::Impl {
  // The bearer token, read again when its file changes, once a minute, and when it is refused.
  class Token {
   public:
    Token(std::string text, std::string file) : text_(std::move(text)), file_(std::move(file)) {}

    std::string Get() {
      const std::lock_guard lock(mutex_);
      if (file_.empty()) return text_;
      struct stat status {};
      const bool there = stat(file_.c_str(), &status) == 0;
      if (!there || status.st_mtim.tv_sec != seen_.st_mtim.tv_sec ||
          status.st_mtim.tv_nsec != seen_.st_mtim.tv_nsec || status.st_ino != seen_.st_ino ||
          MonotonicNow() - read_at_ > kTokenAge) {
        Read();
      }
      return text_;
    }
    void Refused() {
      const std::lock_guard lock(mutex_);
      if (!file_.empty()) Read();
    }

   private:
    void Read() {
      struct stat status {};
      // A file that is away for a moment leaves the old token, which may still be good.
      if (stat(file_.c_str(), &status) != 0) return;
      auto text = ReadTextFile(file_, "the token", kTokenMax);
      if (!text) return;
      // Nothing that would end the header field.
      std::erase_if(*text, [](char c) { return c <= ' ' || c > '~'; });
      if (text->empty()) return;
      text_ = std::move(*text);
      seen_ = status;
      read_at_ = MonotonicNow();
    }

    std::mutex mutex_;
    std::string text_;
    const std::string file_;
    struct stat seen_ {};
    Instant read_at_{};
  };

  struct Link {
    Stream stream;
    HttpExchange http{stream};
    Instant idle_since{};
    bool used = false;
  };

 public:
  Impl(ClusterConfig config, ClientOptions options, ServerUrl url, std::unique_ptr<ClientTls> tls)
      : config_(std::move(config)),
        options_(std::move(options)),
        url_(std::move(url)),
        tls_(std::move(tls)),
        token_(config_.token, config_.token_file),
        seed_(options_.seed != 0 ? options_.seed : std::random_device{}()) {}

  struct Request {
    const char* method = "GET";
    std::string target;  // with its query
    std::string body = {};
    const char* type = nullptr;  // of the body
    bool repeatable = true;

    std::string Text(const Impl& impl) const {
      return fmt::format("{} {}{}", method, impl.config_.server,
                         std::string_view(target).substr(0, target.find('?')));
    }
  };

  ApiResult<Json> Call(const Request& request, const std::stop_token& stop = {});
  ApiResult<Json> List(const Resource& resource, std::string_view name_space,
                       const ListOptions& options);
  ApiResult<void> Watch(const Resource& resource, std::string_view name_space,
                        const ListOptions& options, std::string_view resource_version,
                        Duration silence, const OnEvent& on_event);

  void Stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    for (Stream* stream : busy_) stream->Abort();
    changed_.notify_all();
  }
  bool stopped() const { return stopped_; }
  const ClusterConfig& config() const { return config_; }
  const ClientOptions& options() const { return options_; }

 private:
  struct Attempt {
    ApiError error;
    bool done = false;      // it is what the caller gets, error or not
    bool not_sent = false;  // no byte of it has reached the server
    bool at_once = false;   // a kept connection was stale: again without a pause
    std::optional<Json> answer;
  };

  // A stream that Stop() and the caller's stop token end while it lives.
  class Busy {
   public:
    Busy(Impl& impl, Stream& stream, const std::stop_token& stop)
        : impl_(impl), stream_(stream), on_stop_(stop, [&stream] { stream.Abort(); }) {
      const std::lock_guard lock(impl_.mutex_);
      impl_.busy_.insert(&stream_);
      if (impl_.stopped_) stream_.Abort();
    }
    ~Busy() {
      const std::lock_guard lock(impl_.mutex_);
      impl_.busy_.erase(&stream_);
    }

   private:
    Impl& impl_;
    Stream& stream_;
    std::stop_callback<std::function<void()>> on_stop_;
  };

  std::unique_ptr<Link> Take(Instant deadline, const std::stop_token& stop);
  void GiveBack(std::unique_ptr<Link> link);
  void DropIdle();
  Attempt Once(const Request& request, Instant deadline, const std::stop_token& stop);
  StreamResult<void> Open(Stream& stream, Instant deadline) const;
  std::string HttpOf(const Request& request);
  uint64_t NextSeed() { return seed_.fetch_add(0x9e3779b97f4a7c15u); }
  // False: the deadline or Stop() comes before.
  bool Pause(Duration duration, Instant deadline, const std::stop_token& stop);
  ApiError Failed(const std::string& asked, const StreamError& error) const {
    if (error.end == StreamEnd::kAborted) return StoppedError();
    return {
        0, error.end == StreamEnd::kTimeout ? "Timeout" : "NoAnswer", asked + ": " + error.why, {}};
  }

  const ClusterConfig config_;
  const ClientOptions options_;
  const ServerUrl url_;
  const std::unique_ptr<ClientTls> tls_;  // null: plain
  Token token_;
  std::atomic<uint64_t> seed_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<std::unique_ptr<Link>> idle_;
  size_t taken_ = 0;
  std::set<Stream*> busy_;
  std::atomic<bool> stopped_{false};
};

bool Client::Impl::Pause(Duration duration, Instant deadline, const std::stop_token& stop) {
  const Instant now = MonotonicNow();
  if (duration >= deadline - now) return false;
  std::unique_lock lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + duration;
  changed_.wait_until(lock, stop, until, [this] { return stopped_.load(); });
  return !stopped_ && !stop.stop_requested();
}

std::unique_ptr<Client::Impl::Link> Client::Impl::Take(Instant deadline,
                                                       const std::stop_token& stop) {
  const Instant now = MonotonicNow();
  std::unique_lock lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + std::max(deadline - now, Duration(0));
  const bool room = changed_.wait_until(
      lock, stop, until, [this] { return stopped_ || taken_ < options_.connections_max; });
  if (!room || stopped_ || stop.stop_requested()) return nullptr;
  ++taken_;
  while (!idle_.empty()) {
    std::unique_ptr<Link> link = std::move(idle_.back());
    idle_.pop_back();
    if (now - link->idle_since < kIdleMax && link->stream.Alive()) return link;
  }
  return std::make_unique<Link>();
}

void Client::Impl::GiveBack(std::unique_ptr<Link> link) {
  const std::lock_guard lock(mutex_);
  --taken_;
  if (link->http.reusable() && !link->stream.aborted() && !stopped_) {
    link->idle_since = MonotonicNow();
    link->used = true;
    idle_.push_back(std::move(link));
  }
  // All: the one that is woken may only be in a pause before it repeats.
  changed_.notify_all();
}

void Client::Impl::DropIdle() {
  const std::lock_guard lock(mutex_);
  idle_.clear();
}

StreamResult<void> Client::Impl::Open(Stream& stream, Instant deadline) const {
  auto connected = stream.Connect(url_.host, url_.port, deadline);
  if (!connected || !tls_) return connected;
  return stream.Handshake(tls_->context(), false, deadline,
                          [this](ssl_st* tls) { return tls_->Prepare(tls, url_.host); });
}

std::string Client::Impl::HttpOf(const Request& request) {
  std::string text;
  text.reserve(512 + request.body.size());
  text.append(request.method).append(" ").append(url_.path).append(request.target);
  text.append(" HTTP/1.1\r\nHost: ").append(url_.authority);
  text.append("\r\nUser-Agent: ").append(options_.user_agent);
  text.append("\r\nAccept: application/json\r\n");
  if (const std::string token = token_.Get(); !token.empty()) {
    text.append("Authorization: Bearer ").append(token).append("\r\n");
  }
  if (request.type != nullptr) {
    text.append("Content-Type: ").append(request.type);
    text.append("\r\nContent-Length: ").append(std::to_string(request.body.size()));
    text.append("\r\n");
  }
  text.append("\r\n").append(request.body);
  return text;
}

Client::Impl::Attempt Client::Impl::Once(const Request& request, Instant deadline,
                                         const std::stop_token& stop) {
  Attempt attempt;
  std::unique_ptr<Link> link = Take(deadline, stop);
  if (!link) {
    attempt.done = true;
    attempt.error = stopped_ || stop.stop_requested()
                        ? StoppedError()
                        : ApiError{0,
                                   "Timeout",
                                   fmt::format("{}: all {} connections were busy for too long",
                                               request.Text(*this), options_.connections_max),
                                   {}};
    return attempt;
  }
  // Given back whatever comes, but first of all no more to be ended.
  std::optional<Busy> busy(std::in_place, *this, link->stream, stop);
  const auto finish = [&] {
    busy.reset();
    GiveBack(std::move(link));
  };
  if (!link->used) {
    if (auto opened = Open(link->stream, deadline); !opened) {
      attempt.error = Failed(request.Text(*this), opened.error());
      attempt.not_sent = true;
      attempt.done =
          opened.error().end == StreamEnd::kAborted || opened.error().end == StreamEnd::kUntrusted;
      finish();
      return attempt;
    }
  }
  auto answer = link->http.Ask(HttpOf(request), options_.answer_bytes_max, deadline);
  if (!answer) {
    attempt.error = Failed(request.Text(*this), answer.error());
    attempt.done = answer.error().end == StreamEnd::kAborted;
    attempt.at_once = link->used && !link->http.heard() && answer.error().end == StreamEnd::kBroken;
    finish();
    // The server was started again, most likely: the others are stale as well.
    if (attempt.at_once) DropIdle();
    return attempt;
  }
  finish();
  std::optional<Json> body = ParseObject(answer->body);
  if (answer->status / 100 == 2) {
    if (body) {
      attempt.done = true;
      attempt.answer = std::move(body);
    } else {
      attempt.error = {0,
                       "BadAnswer",
                       fmt::format("{}: the answer is no JSON object: {}", request.Text(*this),
                                   Excerpt(answer->body)),
                       {}};
    }
    return attempt;
  }
  attempt.error = ErrorOf(answer->status, body, answer->body, request.Text(*this));
  attempt.error.retry_after = std::max(attempt.error.retry_after, answer->retry_after);
  return attempt;
}

ApiResult<Json> Client::Impl::Call(const Request& request, const std::stop_token& stop) {
  const Instant deadline = MonotonicNow() + options_.timeout;
  Backoff backoff(options_.backoff_min, options_.backoff_max, NextSeed());
  bool token_again = true;
  bool stale_again = true;
  int bad_answers = 0;
  while (true) {
    if (stopped_ || stop.stop_requested()) return tl::unexpected(StoppedError());
    Attempt attempt;
    try {
      attempt = Once(request, std::min(deadline, MonotonicNow() + options_.attempt_timeout), stop);
    } catch (const std::exception& error) {  // memory
      attempt.done = true;
      attempt.error = {0, "Internal", request.Text(*this) + ": " + error.what(), {}};
    }
    if (attempt.answer) return std::move(*attempt.answer);
    if (attempt.done) return tl::unexpected(std::move(attempt.error));
    const ApiError& error = attempt.error;
    Duration pause = backoff.Next();
    switch (error.status) {
      case 0:
        if (!attempt.not_sent && !request.repeatable) return tl::unexpected(error);
        if (error.reason == "BadAnswer" && ++bad_answers == kBadAnswersMax) {
          return tl::unexpected(error);
        }
        if (attempt.at_once && stale_again) {
          stale_again = false;
          pause = Duration(0);
        }
        break;
      case 401:
        if (!token_again) return tl::unexpected(error);
        token_again = false;
        token_.Refused();
        pause = Duration(0);
        break;
      case 429:
        if (error.retry_after > Duration(0)) pause = error.retry_after;
        break;
      case 500:
      case 502:
      case 503:
      case 504:
        if (!request.repeatable) return tl::unexpected(error);
        pause = std::max(pause, error.retry_after);
        break;
      default:
        return tl::unexpected(error);
    }
    if (pause > Duration(0) && !Pause(pause, deadline, stop)) {
      if (stopped_ || stop.stop_requested()) return tl::unexpected(StoppedError());
      return tl::unexpected(error);
    }
    if (MonotonicNow() >= deadline) return tl::unexpected(error);
  }
}

ApiResult<Json> Client::Impl::List(const Resource& resource, std::string_view name_space,
                                   const ListOptions& options) {
  Json all = Json::object();
  Json items = Json::array();
  std::string next;
  bool whole = options.page == 0;
  for (int page = 0; page < kPagesMax; ++page) {
    std::string target = resource.Path(name_space);
    char mark = '?';
    const auto add = [&](std::string_view key, std::string_view value) {
      if (value.empty()) return;
      target += mark;
      mark = '&';
      target.append(key).append("=").append(PercentEncode(value));
    };
    add("labelSelector", options.label_selector);
    add("fieldSelector", options.field_selector);
    if (!whole) add("limit", std::to_string(options.page));
    add("continue", next);
    Request request;
    request.target = std::move(target);
    auto answer = Call(request, options.stop);
    if (!answer) {
      // The version that the pages were of is gone: once more, all at once.
      if (answer.error().gone() && !next.empty() && !whole) {
        whole = true;
        next.clear();
        items = Json::array();
        continue;
      }
      return answer;
    }
    // Go writes an empty list as null.
    if (const auto found = answer->find("items"); found != answer->end() && !found->is_null()) {
      if (!found->is_array()) {
        return tl::unexpected(ApiError{
            0, "BadAnswer", request.Text(*this) + ": the answer is no list of objects", {}});
      }
      for (Json& item : *found) {
        if (!item.is_object()) continue;
        item.emplace("kind", resource.kind);
        item.emplace("apiVersion", resource.ApiVersion());
        items.push_back(std::move(item));
      }
    }
    next = TextAt(*answer, "metadata/continue");
    if (next.empty()) {
      all["metadata"]["resourceVersion"] = TextAt(*answer, "metadata/resourceVersion");
      all["items"] = std::move(items);
      return all;
    }
  }
  return tl::unexpected(
      ApiError{0, "BadAnswer", "the list of " + resource.plural + " has no end", {}});
}

ApiResult<void> Client::Impl::Watch(const Resource& resource, std::string_view name_space,
                                    const ListOptions& options, std::string_view resource_version,
                                    Duration silence, const OnEvent& on_event) {
  // The server ends it after some minutes, not the same for all, so that watches spread again over
  // API servers after one of them was away.
  Random random(NextSeed());
  Request request;
  request.target = resource.Path(name_space) + "?watch=1&allowWatchBookmarks=true";
  const auto add = [&request](std::string_view key, std::string_view value) {
    if (value.empty()) return;
    request.target.append("&").append(key).append("=").append(PercentEncode(value));
  };
  add("timeoutSeconds", std::to_string(random.Between(300, 600)));
  add("resourceVersion", resource_version);
  add("labelSelector", options.label_selector);
  add("fieldSelector", options.field_selector);
  const std::string asked = request.Text(*this) + " (watch)";
  const auto fail = [this, &asked](StreamError error) {
    if (error.end == StreamEnd::kTimeout) error.why = "nothing was heard for too long";
    return tl::unexpected(Failed(asked, error));
  };

  for (const bool again : {true, false}) {
    Stream stream;
    const Busy busy(*this, stream, options.stop);
    const Instant opening = MonotonicNow() + std::min(options_.attempt_timeout, silence);
    if (auto opened = Open(stream, opening); !opened) {
      return tl::unexpected(Failed(asked, opened.error()));
    }
    HttpExchange http(stream);
    // The header comes at once, even where there is nothing to be told yet.
    auto answer = http.Begin(HttpOf(request), opening);
    if (!answer) return fail(answer.error());
    if (answer->status != 200) {
      std::string text;
      while (text.size() < (size_t{1} << 20)) {
        auto piece = http.Next(opening);
        if (!piece || piece->empty()) break;
        text += *piece;
      }
      if (answer->status == 401 && again) {
        token_.Refused();
        continue;
      }
      ApiError error = ErrorOf(answer->status, ParseObject(text), text, asked);
      error.retry_after = std::max(error.retry_after, answer->retry_after);
      return tl::unexpected(std::move(error));
    }
    std::string line;
    size_t searched = 0;
    while (true) {
      auto piece = http.Next(MonotonicNow() + silence);
      if (!piece) return fail(piece.error());
      const bool end = piece->empty();
      line += *piece;
      if (end && !line.empty()) line += '\n';
      size_t begin = 0;
      for (size_t stop = line.find('\n', searched); stop != std::string::npos;
           stop = line.find('\n', begin)) {
        const std::string_view one = std::string_view(line).substr(begin, stop - begin);
        begin = stop + 1;
        if (one.find_first_not_of(" \r\t") == std::string_view::npos) continue;
        std::optional<Json> event = ParseObject(one);
        const auto object = event ? event->find("object") : Json::iterator();
        const std::string type = event ? TextAt(*event, "type") : std::string();
        if (!event || type.empty() || object == event->end() || !object->is_object()) {
          return tl::unexpected(ApiError{0,
                                         "BadAnswer",
                                         asked + ": an event is not as it should be: " +
                                             Excerpt(std::string(one.substr(0, 300))),
                                         {}});
        }
        if (type == "ERROR") {
          const Json* code = Find(*object, "code");
          const int status = code != nullptr && code->is_number_integer() ? code->get<int>() : 500;
          ApiError error = ErrorOf(status, *object, {}, asked);
          on_event(type, std::move(*object));
          return tl::unexpected(std::move(error));
        }
        if (!on_event(type, std::move(*object))) return {};
        if (stopped_ || options.stop.stop_requested()) return tl::unexpected(StoppedError());
      }
      line.erase(0, begin);
      searched = line.size();
      if (line.size() > kEventMax) {
        return tl::unexpected(
            ApiError{0, "BadAnswer", asked + ": an event is larger than 16 MiB", {}});
      }
      if (end) return {};
    }
  }
  return {};  // not reached: the second round returns
}

// ------------------------------------------------------------------------------------------ Client

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() { impl_->Stop(); }

Result<std::unique_ptr<Client>> Client::Make(ClusterConfig config, ClientOptions options) {
  auto url = ParseServerUrl(config.server);
  if (!url) return tl::unexpected(url.error());
  std::unique_ptr<ClientTls> tls;
  if (url->tls) {
    auto made = ClientTls::Make(config);
    if (!made) return tl::unexpected(made.error());
    tls = std::move(*made);
  } else if (!IsLoopback(url->host)) {
    return Fail(ErrorCode::kInvalid, "the API server's URL '" + config.server +
                                         "' is not encrypted, which only loopback may be; write "
                                         "https://");
  }
  if (!config.token_file.empty() && config.token.empty()) {
    auto token = ReadTextFile(config.token_file, "the token", kTokenMax);
    if (!token) return tl::unexpected(token.error());
  }
  for (const std::string* text : {&config.token, &options.user_agent}) {
    if (std::any_of(text->begin(), text->end(), [](char c) { return c < ' ' || c > '~'; })) {
      return Fail(ErrorCode::kInvalid, text == &config.token
                                           ? "the token has characters that no token has"
                                           : "the user agent has characters that it may not have");
    }
  }
  const Duration zero{0};
  if (options.timeout <= zero || options.attempt_timeout <= zero || options.backoff_min <= zero ||
      options.backoff_max < options.backoff_min || options.connections_max == 0) {
    return Fail(ErrorCode::kInvalid, "the client's timeouts and bounds must be positive");
  }
  return std::unique_ptr<Client>(new Client(std::make_unique<Impl>(
      std::move(config), std::move(options), std::move(*url), std::move(tls))));
}

ApiResult<Json> Client::Get(const Resource& resource, const ObjectName& name) {
  return impl_->Call({.target = resource.Path(name.name_space, name.name)});
}

ApiResult<Json> Client::List(const Resource& resource, std::string_view name_space,
                             const ListOptions& options) {
  return impl_->List(resource, name_space, options);
}

ApiResult<Json> Client::Create(const Resource& resource, const ObjectName& name, const Json& object,
                               std::string_view subresource) {
  return impl_->Call(
      {.method = "POST",
       .target = resource.Path(name.name_space,
                               subresource.empty() ? std::string_view() : name.name, subresource),
       .body = Dump(object),
       .type = "application/json",
       .repeatable = false});
}

ApiResult<Json> Client::Update(const Resource& resource, const ObjectName& name, const Json& object,
                               std::string_view subresource) {
  return impl_->Call({.method = "PUT",
                      .target = resource.Path(name.name_space, name.name, subresource),
                      .body = Dump(object),
                      .type = "application/json",
                      .repeatable = !ResourceVersionOf(object).empty()});
}

ApiResult<Json> Client::Patch(const Resource& resource, const ObjectName& name, PatchKind kind,
                              const Json& patch, std::string_view subresource) {
  return impl_->Call({.method = "PATCH",
                      .target = resource.Path(name.name_space, name.name, subresource) +
                                "?fieldManager=" + PercentEncode(impl_->options().field_manager),
                      .body = Dump(patch),
                      .type = kind == PatchKind::kJson ? "application/json-patch+json"
                              : kind == PatchKind::kMerge
                                  ? "application/merge-patch+json"
                                  : "application/strategic-merge-patch+json",
                      .repeatable = false});
}

ApiResult<Json> Client::Apply(const Resource& resource, const ObjectName& name, const Json& object,
                              std::string_view subresource, bool force, std::string_view manager) {
  return impl_->Call(
      {.method = "PATCH",
       .target = resource.Path(name.name_space, name.name, subresource) + "?fieldManager=" +
                 PercentEncode(manager.empty() ? std::string_view(impl_->options().field_manager)
                                               : manager) +
                 (force ? "&force=true" : ""),
       .body = Dump(object),
       .type = "application/apply-patch+yaml"});  // JSON is YAML
}

ApiResult<Json> Client::Delete(const Resource& resource, const ObjectName& name,
                               std::string_view uid, int64_t grace) {
  Json options{{"apiVersion", "v1"}, {"kind", "DeleteOptions"}};
  if (!uid.empty()) options["preconditions"]["uid"] = uid;
  if (grace >= 0) options["gracePeriodSeconds"] = grace;
  return impl_->Call({.method = "DELETE",
                      .target = resource.Path(name.name_space, name.name),
                      .body = Dump(options),
                      .type = "application/json"});
}

ApiResult<Json> Client::GetPath(std::string_view target) {
  const bool good =
      !target.empty() && target.front() == '/' &&
      std::all_of(target.begin(), target.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (!good) {
    return tl::unexpected(ApiError{0, "BadRequest", "a path of the API begins with '/'", {}});
  }
  return impl_->Call({.target = std::string(target)});
}

ApiResult<void> Client::Watch(const Resource& resource, std::string_view name_space,
                              const ListOptions& options, std::string_view resource_version,
                              Duration silence, const OnEvent& on_event) {
  return impl_->Watch(resource, name_space, options, resource_version, silence, on_event);
}

void Client::Stop() { impl_->Stop(); }
bool Client::stopped() const { return impl_->stopped(); }
const ClusterConfig& Client::config() const { return impl_->config(); }
const ClientOptions& Client::options() const { return impl_->options(); }

}  // namespace baton::k8s
