#include "k8s/api/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "k8s/api/api_error.h"
#include "k8s/api/backoff.h"
#include "net/http_client.h"

namespace baton::k8s {
namespace {

// Of an event. etcd refuses objects beyond 1.5 MiB.
constexpr size_t kEventMax = size_t{16} << 20;
constexpr int kPagesMax = 100'000;
// A server that says nonsense more often than that does not get better by being asked.
constexpr int kBadAnswersMax = 4;

using net::HttpAnswer;
using net::HttpCall;
using net::HttpEnd;
using net::HttpResult;
using net::PercentEncode;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

class Client::Impl {
 public:
  Impl(ClusterConfig config, ClientOptions options, std::unique_ptr<net::HttpClient> http)
      : config_(std::move(config)),
        options_(std::move(options)),
        http_(std::move(http)),
        seed_(options_.seed != 0 ? options_.seed : std::random_device{}()) {}

  ApiResult<Json> Call(const HttpCall& call, const std::stop_token& stop = {});
  ApiResult<Json> List(const Resource& resource, std::string_view name_space,
                       const ListOptions& options);
  ApiResult<void> Watch(const Resource& resource, std::string_view name_space,
                        const ListOptions& options, std::string_view resource_version,
                        Duration silence, const OnEvent& on_event);

  // `how`: further parameters, "&force=true".
  ApiResult<Json> Apply(const std::string& path, std::string_view manager, std::string_view how,
                        const Json& object) {
    if (manager.empty()) manager = options_.field_manager;
    return Call({.method = "PATCH",
                 .target = fmt::format("{}?fieldManager={}{}", path, PercentEncode(manager), how),
                 .body = Dump(object),
                 .content_type = "application/apply-patch+yaml"});  // JSON is YAML
  }

  void Stop() { http_->Stop(); }
  bool stopped() const { return http_->stopped(); }
  const ClusterConfig& config() const { return config_; }
  const ClientOptions& options() const { return options_; }

 private:
  // A call as errors name it: "GET URL".
  std::string TextOf(const HttpCall& call) const {
    return fmt::format("{} {}{}", call.method, config_.server,
                       std::string_view(call.target).substr(0, call.target.find('?')));
  }
  uint64_t NextSeed() { return seed_.fetch_add(0x9e3779b97f4a7c15u); }

  const ClusterConfig config_;
  const ClientOptions options_;
  const std::unique_ptr<net::HttpClient> http_;
  std::atomic<uint64_t> seed_;
};

ApiResult<Json> Client::Impl::Call(const HttpCall& call, const std::stop_token& stop) {
  const Instant deadline = MonotonicNow() + options_.timeout;
  Backoff backoff(options_.backoff_min, options_.backoff_max, NextSeed());
  int bad_answers = 0;
  while (true) {
    if (stopped() || stop.stop_requested()) return tl::unexpected(StoppedError());
    ApiError error;
    Duration pause = backoff.Next();
    try {
      const Instant until = std::min(deadline, MonotonicNow() + options_.attempt_timeout);
      const auto answer = http_->Ask(call, options_.answer_bytes_max, until, stop);
      if (!answer) {
        error = ErrorOf(answer.error(), TextOf(call));
        const HttpEnd end = answer.error().end;
        if (end == HttpEnd::kAborted || end == HttpEnd::kUntrusted || end == HttpEnd::kBusy ||
            (answer.error().sent && !call.repeatable)) {
          return tl::unexpected(std::move(error));
        }
      } else {
        std::optional<Json> body = ParseObject(answer->body);
        if (answer->status / 100 == 2 && body) return std::move(*body);
        error = answer->status / 100 == 2
                    ? BadAnswer(fmt::format("{}: the answer is no JSON object: {}", TextOf(call),
                                            Excerpt(answer->body)))
                    : ErrorOf(*answer, body, TextOf(call));
      }
    } catch (const std::exception& thrown) {  // memory
      return tl::unexpected(ApiError{0, "Internal", TextOf(call) + ": " + thrown.what(), {}});
    }
    switch (error.status) {
      case 0:
        if (error.reason != "BadAnswer") break;
        if (!call.repeatable || ++bad_answers == kBadAnswersMax) return tl::unexpected(error);
        break;
      case 429:
        // The server is not busy: it is the pod that may not go.
        if (error.reason == kDisruptionBudget) return tl::unexpected(error);
        if (error.retry_after > Duration(0)) pause = error.retry_after;
        break;
      case 500:
        // An applied field that the definition does not have: no repetition will bring it.
        if (error.message.find("field not declared in schema") != std::string::npos) {
          return tl::unexpected(error);
        }
        [[fallthrough]];
      case 502:
      case 503:
      case 504:
        if (!call.repeatable) return tl::unexpected(error);
        pause = std::max(pause, error.retry_after);
        break;
      default:
        return tl::unexpected(error);
    }
    if (!http_->Pause(pause, deadline, stop)) {
      if (stopped() || stop.stop_requested()) return tl::unexpected(StoppedError());
      return tl::unexpected(error);
    }
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
    if (options.from_cache) {
      add("resourceVersion", options.not_older_than.empty() ? "0" : options.not_older_than);
      add("resourceVersionMatch", options.not_older_than.empty() ? "" : "NotOlderThan");
    } else if (!whole) {
      add("limit", std::to_string(options.page));
    }
    add("continue", next);
    const HttpCall call{.target = std::move(target)};
    auto answer = Call(call, options.stop);
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
        return tl::unexpected(BadAnswer(TextOf(call) + ": the answer is no list of objects"));
      }
      for (Json& item : *found) {
        if (!item.is_object()) continue;
        item.emplace("kind", resource.kind);
        item.emplace("apiVersion", resource.ApiVersion());
        if (options.project) options.project(item);
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
  HttpCall call{.target = resource.Path(name_space) + "?watch=1&allowWatchBookmarks=true"};
  const auto add = [&call](std::string_view key, std::string_view value) {
    if (value.empty()) return;
    call.target.append("&").append(key).append("=").append(PercentEncode(value));
  };
  add("timeoutSeconds", std::to_string(random.Between(300, 600)));
  add("resourceVersion", resource_version);
  add("labelSelector", options.label_selector);
  add("fieldSelector", options.field_selector);
  const std::string asked = TextOf(call) + " (watch)";
  std::optional<ApiError> failed;
  const auto fail = [&failed](ApiError error) {
    failed = std::move(error);
    return false;
  };
  // Whether to go on after this line.
  const auto take = [&](std::string_view line) {
    if (line.find_first_not_of(" \r\t") == std::string_view::npos) return true;
    std::optional<Json> event = ParseObject(line);
    const auto object = event ? event->find("object") : Json::iterator();
    const std::string type = event ? TextAt(*event, "type") : std::string();
    if (!event || type.empty() || object == event->end() || !object->is_object()) {
      return fail(BadAnswer(asked + ": an event is not as it should be: " +
                            Excerpt(std::string(line.substr(0, 300)))));
    }
    if (type == "ERROR") {
      const Json* code = Find(*object, "code");
      HttpAnswer answer;
      answer.status = code != nullptr && code->is_number_integer() ? code->get<int>() : 500;
      fail(ErrorOf(answer, *object, asked));
      on_event(type, std::move(*object));
      return false;
    }
    if (!on_event(type, std::move(*object))) return false;
    return stopped() || options.stop.stop_requested() ? fail(StoppedError()) : true;
  };
  std::string rest;  // the beginning of a line
  const auto take_piece = [&](std::string_view piece) {
    size_t end = piece.find('\n');
    if (end == std::string_view::npos) {
      rest += piece;
    } else {
      if (!take(rest.append(piece.substr(0, end)))) return false;
      for (piece.remove_prefix(end + 1); (end = piece.find('\n')) != std::string_view::npos;
           piece.remove_prefix(end + 1)) {
        if (!take(piece.substr(0, end))) return false;
      }
      rest = piece;
    }
    return rest.size() <= kEventMax || fail(BadAnswer(asked + ": an event is larger than 16 MiB"));
  };
  // The header comes at once, even where there is nothing to be told yet.
  bool going = true;
  const auto answer =
      http_->Follow(call, std::min(options_.attempt_timeout, silence), silence, options.stop,
                    [&](std::string_view piece) { return going = take_piece(piece); });
  if (!answer) return tl::unexpected(ErrorOf(answer.error(), asked));
  if (answer->status != 200) {
    return tl::unexpected(ErrorOf(*answer, ParseObject(answer->body), asked));
  }
  if (going && !rest.empty()) take(rest);
  if (failed) return tl::unexpected(std::move(*failed));
  return {};
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() { impl_->Stop(); }

Result<std::unique_ptr<Client>> Client::Make(ClusterConfig config, ClientOptions options) {
  const Duration zero{0};
  if (options.timeout <= zero || options.attempt_timeout <= zero || options.backoff_min <= zero ||
      options.backoff_max < options.backoff_min || options.connections_max == 0) {
    return Fail(ErrorCode::kInvalid, "the client's timeouts and bounds must be positive");
  }
  auto http = net::HttpClient::Make({.url = config.server,
                                     .server = kApiServer,
                                     .user_agent = options.user_agent,
                                     .tls = config.tls,
                                     .token = config.token,
                                     .token_file = config.token_file,
                                     .connections_max = options.connections_max});
  if (!http) return tl::unexpected(http.error());
  return std::unique_ptr<Client>(
      new Client(std::make_unique<Impl>(std::move(config), std::move(options), std::move(*http))));
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
       .content_type = "application/json",
       .repeatable = false});
}

ApiResult<Json> Client::Update(const Resource& resource, const ObjectName& name, const Json& object,
                               std::string_view subresource) {
  return impl_->Call({.method = "PUT",
                      .target = resource.Path(name.name_space, name.name, subresource),
                      .body = Dump(object),
                      .content_type = "application/json",
                      .repeatable = !ResourceVersionOf(object).empty()});
}

ApiResult<Json> Client::Patch(const Resource& resource, const ObjectName& name, PatchKind kind,
                              const Json& patch, std::string_view subresource) {
  return impl_->Call({.method = "PATCH",
                      .target = resource.Path(name.name_space, name.name, subresource) +
                                "?fieldManager=" + PercentEncode(impl_->options().field_manager),
                      .body = Dump(patch),
                      .content_type = kind == PatchKind::kJson ? "application/json-patch+json"
                                      : kind == PatchKind::kMerge
                                          ? "application/merge-patch+json"
                                          : "application/strategic-merge-patch+json",
                      .repeatable = false});
}

ApiResult<Json> Client::Apply(const Resource& resource, const ObjectName& name, const Json& object,
                              std::string_view subresource, bool force, std::string_view manager) {
  return impl_->Apply(resource.Path(name.name_space, name.name, subresource), manager,
                      force ? "&force=true" : "", object);
}

ApiResult<Json> Client::DryApply(const Resource& resource, const ObjectName& name,
                                 const Json& object, std::string_view manager) {
  return impl_->Apply(resource.Path(name.name_space, name.name), manager, "&force=true&dryRun=All",
                      object);
}

ApiResult<Json> Client::Delete(const Resource& resource, const ObjectName& name,
                               std::string_view uid, int64_t grace, std::string_view version) {
  Json options{{"apiVersion", "v1"}, {"kind", "DeleteOptions"}};
  if (!uid.empty()) options["preconditions"]["uid"] = uid;
  if (!version.empty()) options["preconditions"]["resourceVersion"] = version;
  if (grace >= 0) options["gracePeriodSeconds"] = grace;
  return impl_->Call({.method = "DELETE",
                      .target = resource.Path(name.name_space, name.name),
                      .body = Dump(options),
                      .content_type = "application/json"});
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
