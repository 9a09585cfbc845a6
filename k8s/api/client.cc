#include "k8s/api/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "k8s/api/api_error.h"
#include "k8s/api/backoff.h"
#include "k8s/api/bearer_token.h"
#include "k8s/api/connection_pool.h"
#include "k8s/api/http.h"
#include "k8s/api/tls.h"
#include "k8s/api/url.h"

namespace baton::k8s {
namespace {

// Of an event. etcd refuses objects beyond 1.5 MiB.
constexpr size_t kEventMax = size_t{16} << 20;
constexpr int kPagesMax = 100'000;
// A server that says nonsense more often than that does not get better by being asked.
constexpr int kBadAnswersMax = 4;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

class Client::Impl {
 public:
  Impl(ClusterConfig config, ClientOptions options, ServerUrl url, std::unique_ptr<ClientTls> tls)
      : config_(std::move(config)),
        options_(std::move(options)),
        url_(std::move(url)),
        tls_(std::move(tls)),
        token_(config_.token, config_.token_file),
        pool_(options_.connections_max),
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

  void Stop() { pool_.Stop(); }
  bool stopped() const { return pool_.stopped(); }
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

  Attempt Once(const Request& request, Instant deadline, const std::stop_token& stop);
  StreamResult<void> Open(Stream& stream, Instant deadline) const;
  std::string HttpOf(const Request& request);
  uint64_t NextSeed() { return seed_.fetch_add(0x9e3779b97f4a7c15u); }

  const ClusterConfig config_;
  const ClientOptions options_;
  const ServerUrl url_;
  const std::unique_ptr<ClientTls> tls_;  // null: plain
  BearerToken token_;
  ConnectionPool pool_;
  std::atomic<uint64_t> seed_;
};

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
  std::unique_ptr<ConnectionPool::Connection> link = pool_.Take(deadline, stop);
  if (!link) {
    attempt.done = true;
    attempt.error = stopped() || stop.stop_requested()
                        ? StoppedError()
                        : ApiError{0,
                                   "Timeout",
                                   fmt::format("{}: all {} connections were busy for too long",
                                               request.Text(*this), options_.connections_max),
                                   {}};
    return attempt;
  }
  // Given back whatever comes, but first of all no more to be ended.
  std::optional<ConnectionPool::Busy> busy(std::in_place, pool_, link->stream, stop);
  const auto finish = [&] {
    busy.reset();
    pool_.GiveBack(std::move(link));
  };
  if (!link->used) {
    if (auto opened = Open(link->stream, deadline); !opened) {
      attempt.error = ErrorOf(opened.error(), request.Text(*this));
      attempt.not_sent = true;
      attempt.done =
          opened.error().end == StreamEnd::kAborted || opened.error().end == StreamEnd::kUntrusted;
      finish();
      return attempt;
    }
  }
  auto answer = link->http.Ask(HttpOf(request), options_.answer_bytes_max, deadline);
  if (!answer) {
    attempt.error = ErrorOf(answer.error(), request.Text(*this));
    attempt.done = answer.error().end == StreamEnd::kAborted;
    attempt.at_once = link->used && !link->http.heard() && answer.error().end == StreamEnd::kBroken;
    finish();
    // The server was started again, most likely: the others are stale as well.
    if (attempt.at_once) pool_.DropIdle();
    return attempt;
  }
  finish();
  std::optional<Json> body = ParseObject(answer->body);
  if (answer->status / 100 == 2) {
    if (body) {
      attempt.done = true;
      attempt.answer = std::move(body);
    } else {
      attempt.error = BadAnswer(fmt::format("{}: the answer is no JSON object: {}",
                                            request.Text(*this), Excerpt(answer->body)));
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
    if (stopped() || stop.stop_requested()) return tl::unexpected(StoppedError());
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
    if (pause > Duration(0) && !pool_.Pause(pause, deadline, stop)) {
      if (stopped() || stop.stop_requested()) return tl::unexpected(StoppedError());
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
        return tl::unexpected(
            BadAnswer(request.Text(*this) + ": the answer is no list of objects"));
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
  return tl::unexpected(BadAnswer("the list of " + resource.plural + " has no end"));
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
  const auto fail = [&asked](StreamError error) {
    if (error.end == StreamEnd::kTimeout) error.why = "nothing was heard for too long";
    return tl::unexpected(ErrorOf(error, asked));
  };

  for (const bool again : {true, false}) {
    Stream stream;
    const ConnectionPool::Busy busy(pool_, stream, options.stop);
    const Instant opening = MonotonicNow() + std::min(options_.attempt_timeout, silence);
    if (auto opened = Open(stream, opening); !opened) {
      return tl::unexpected(ErrorOf(opened.error(), asked));
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
          return tl::unexpected(BadAnswer(asked + ": an event is not as it should be: " +
                                          Excerpt(std::string(one.substr(0, 300)))));
        }
        if (type == "ERROR") {
          const Json* code = Find(*object, "code");
          const int status = code != nullptr && code->is_number_integer() ? code->get<int>() : 500;
          ApiError error = ErrorOf(status, *object, {}, asked);
          on_event(type, std::move(*object));
          return tl::unexpected(std::move(error));
        }
        if (!on_event(type, std::move(*object))) return {};
        if (stopped() || options.stop.stop_requested()) return tl::unexpected(StoppedError());
      }
      line.erase(0, begin);
      searched = line.size();
      if (line.size() > kEventMax) {
        return tl::unexpected(BadAnswer(asked + ": an event is larger than 16 MiB"));
      }
      if (end) return {};
    }
  }
  return {};  // not reached: the second round returns
}

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
    if (auto found = BearerToken::Check(config.token_file); !found) {
      return tl::unexpected(found.error());
    }
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
