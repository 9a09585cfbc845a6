#include "backend/web.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "backend/http/metrics.h"
#include "backend/status.h"
#include "web/assets.h"

namespace baton::backend {
namespace {

using http::ErrorResponse;
using http::HttpRequest;
using http::HttpResponse;
using nlohmann::json;

constexpr Duration kStreamEvery = std::chrono::seconds(1);
// Of the event loop's time the stream takes at most one part in so many.
constexpr int kStreamPart = 50;

std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Written on the server's thread.
HttpResponse JsonResponse(json value) {
  HttpResponse response;
  response.produce = [value = std::make_shared<json>(std::move(value))] { return Dump(*value); };
  return response;
}

http::HttpOptions HttpOptionsFrom(const Options& options) {
  http::HttpOptions to;
  to.listen = options.http.listen;
  to.token_file = options.http.token_file;
  to.certificate_file = options.http.certificate_file;
  to.key_file = options.http.key_file;
  return to;
}

}  // namespace

Web::Web(boost::asio::io_context& io, const Options& options, Arbiter& arbiter, Books* books,
         Nvml& nvml, EventLog& log, std::function<DaemonStatus()> daemon)
    : io_(io),
      options_(options),
      arbiter_(arbiter),
      books_(books),
      nvml_(nvml),
      log_(log),
      daemon_(std::move(daemon)),
      started_(time(nullptr)),
      server_(io, HttpOptionsFrom(options)),
      stream_(server_.AddStream("/api/v1/stream")),
      timer_(io) {
  for (const web::Asset& asset : web::Assets()) {
    for (const std::string_view path : {asset.path, std::string_view("/")}) {
      if (path == "/" && asset.path != "/index.html") continue;
      server_.AddAsset(std::string(path), std::string(asset.type), std::string(asset.bytes));
    }
  }
  using Respond = http::HttpServer::Respond;
  server_.Route(
      "/healthz",
      [](const HttpRequest&, const Respond& respond) {
        HttpResponse response;
        response.content_type = "text/plain";
        response.body = "ok\n";
        respond(std::move(response));
      },
      http::Access::kOpen);
  server_.Route("/metrics",
                [this](const HttpRequest&, Respond respond) { Metrics(std::move(respond)); });
  server_.Route("/api/v1/status",
                [this](const HttpRequest&, Respond respond) { Status(std::move(respond)); });
  server_.Route("/api/v1/timeline", [this](const HttpRequest& request, Respond respond) {
    Timeline(request, std::move(respond));
  });
  for (const char* command : {"report", "standing", "advise"}) {
    server_.Route(std::string("/api/v1/") + command,
                  [this, command](const HttpRequest& request, Respond respond) {
                    Ask({{"command", command}}, request, std::move(respond));
                  });
  }
  for (const char* what : {"pod", "team"}) {
    server_.RoutePrefix(
        std::string("/api/v1/explain/") + what + "/",
        [this, what](const HttpRequest& request, Respond respond) {
          Ask({{"command", "explain"}, {what, request.rest}}, request, std::move(respond));
        });
  }
}

Web::~Web() { *alive_ = false; }

Result<void> Web::Start() {
  if (auto started = server_.Start(); !started) return started;
  if (!options_.http.listen.empty()) Stream();
  return {};
}

void Web::Stop() {
  timer_.cancel();
  server_.Stop();
}

void Web::Booked() {
  if (stream_.readers() > 0) stream_.Broadcast("ledger", "{}");
}

void Web::Stream() {
  const Instant before = MonotonicNow();
  if (stream_.readers() > 0) {
    auto status = std::make_shared<json>(StatusJson(arbiter_, log_, daemon_(), "*"));
    stream_.Broadcast("status", [status = std::move(status)] { return Dump(*status); });
  }
  const Duration took = MonotonicNow() - before;
  timer_.expires_after(std::max(kStreamEvery, kStreamPart * took));
  timer_.async_wait([this, alive = alive_](const boost::system::error_code& error) {
    if (!error && *alive) Stream();
  });
}

void Web::Status(http::HttpServer::Respond respond) {
  respond(JsonResponse(StatusJson(arbiter_, log_, daemon_(), "*")));
}

void Web::Ask(json question, const HttpRequest& request, http::HttpServer::Respond respond) {
  if (books_ == nullptr) {
    return respond(ErrorResponse(
        {ErrorCode::kUnavailable, "batond keeps no books: ledger.database is \"none\""}));
  }
  for (const auto& [name, value] : request.query) question[name] = value;
  books_->Ask(question, [respond = std::move(respond)](Result<json> answer) {
    respond(answer ? JsonResponse(std::move(*answer)) : ErrorResponse(answer.error()));
  });
}

void Web::Timeline(const HttpRequest& request, http::HttpServer::Respond respond) {
  auto refuse = [&](ErrorCode code, std::string sentence) {
    respond(ErrorResponse({code, std::move(sentence)}));
  };
  int64_t seconds = 30;
  std::string uuid;
  for (const auto& [name, value] : request.query) {
    if (name == "gpu") {
      uuid = value;
    } else if (name == "seconds") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
      if (error != std::errc() || end != value.data() + value.size() || seconds < 1 ||
          seconds > 600) {
        return refuse(ErrorCode::kInvalid, "seconds must be a whole number from 1 to 600");
      }
    } else {
      return refuse(ErrorCode::kInvalid, "the timeline takes gpu and seconds, nothing else");
    }
  }
  auto it = arbiter_.gpus().find(uuid);
  if (it == arbiter_.gpus().end()) {
    return refuse(ErrorCode::kNotFound, "there is no GPU of this uuid; /api/v1/status lists them");
  }
  Arbiter::Gpu& gpu = *it->second;
  const Instant now = MonotonicNow();
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  const double now_ms =
      static_cast<double>(wall.tv_sec) * 1e3 + static_cast<double>(wall.tv_nsec / 1000) / 1e3;
  auto ms = [&](Instant at) { return now_ms - static_cast<double>(Nanos(now - at) / 1000) / 1e3; };
  auto name = [&](PodId id) {
    const Pod* pod = arbiter_.pods().Find(id);
    return pod != nullptr ? pod->name : "(deleted)";
  };
  json spans = json::array();
  auto add = [&](PodId pod, const char* kind, Instant from, json to) {
    spans.push_back(
        {{"pod", name(pod)}, {"kind", kind}, {"from_ms", ms(from)}, {"to_ms", std::move(to)}});
  };
  using Kind = Arbiter::Span::Kind;
  for (const Arbiter::Span& span : gpu.timeline.Since(now - std::chrono::seconds(seconds))) {
    add(span.pod,
        span.kind == Kind::kHold    ? "hold"
        : span.kind == Kind::kDrain ? "drain"
                                    : "wait",
        span.from, ms(span.to));
  }
  // What still lasts.
  if (gpu.holder) {
    const bool drains = gpu.drains_since != kNever;
    add(gpu.holder, "hold", gpu.held_since, drains ? json(ms(gpu.drains_since)) : json());
    if (drains) add(gpu.holder, "drain", gpu.drains_since, {});
  }
  for (const PodStatus& pod : gpu.scheduler.Status(now)) {
    if (pod.waiting) add(pod.pod, "wait", pod.waiting_since, {});
  }
  respond(JsonResponse(
      {{"gpu", uuid}, {"now_ms", static_cast<int64_t>(now_ms)}, {"spans", std::move(spans)}}));
}

void Web::Metrics(http::HttpServer::Respond respond) {
  auto snapshot = std::make_shared<http::MetricsSnapshot>();
  const Instant now = MonotonicNow();
  const DaemonStatus daemon = daemon_();
  snapshot->version = daemon.version;
  snapshot->start_time_seconds = static_cast<double>(started_);
  if (books_ != nullptr) snapshot->ledger_up = books_->Trouble().empty();
  // Of each local GPU: the processes that are known there.
  std::vector<std::vector<pid_t>> known;
  for (Arbiter::Gpu* at : arbiter_.GpusOf("*")) {
    const Arbiter::Gpu& gpu = *at;
    http::GpuMetrics row;
    row.uuid = gpu.info.uuid;
    row.model = gpu.info.name;
    row.node = gpu.node.empty() ? NodeName(options_) : gpu.node;
    row.memory_bytes = gpu.info.memory_bytes;
    const uint64_t held = arbiter_.HeldNow(gpu, now);
    row.held = DurationFromNanos(held);
    row.busy = DurationFromNanos(gpu.busy_ns);
    row.idle = gpu.idle + (gpu.idle_since != kNever ? now - gpu.idle_since : Duration(0));
    const auto lately = gpu.series.Over(std::chrono::seconds(10), now, held, gpu.busy_ns);
    row.held_ratio = lately.held;
    row.busy_ratio = lately.waited;  // the second of the two is busy time here
    row.handoff = gpu.scheduler.handoff();
    row.handoffs = gpu.grants;
    row.hung = gpu.hung;
    row.link_up = !gpu.frozen;
    for (const PodStatus& status : at->scheduler.Status(now)) {
      const Pod* pod = arbiter_.pods().Find(status.pod);
      auto on = gpu.pods.find(status.pod);
      if (pod == nullptr || on == gpu.pods.end()) continue;
      row.allocated_ratio += pod->share.request / 1e6;
      row.allocated_memory_bytes += pod->memory_cap;
      row.memory_used_bytes += on->second.memory;
      if (status.waiting && !status.throttled) ++row.waiting_pods;
      const UsageEntry* account = arbiter_.Account(gpu, status.pod);
      const Usage usage = account != nullptr ? account->usage : Usage{};
      const uint64_t pod_held = arbiter_.HeldNow(gpu, status.pod, now);
      http::PodMetrics of;
      of.gpu = gpu.info.uuid;
      of.pod = pod->name;
      of.name_space = pod->name_space;
      of.team = pod->team;
      of.request_ratio = pod->share.request / 1e6;
      of.limit_ratio = pod->share.limit / 1e6;
      of.achieved_ratio = on->second.series.Over(std::chrono::seconds(10), now, pod_held, 0).held;
      of.lag = status.lag;
      of.held = DurationFromNanos(pod_held);
      of.busy = DurationFromNanos(usage.busy_ns);
      of.waited = DurationFromNanos(usage.waited_ns);
      of.unmanaged = DurationFromNanos(usage.unmanaged_ns);
      of.memory_used_bytes = on->second.memory;
      of.memory_cap_bytes = pod->memory_cap;
      of.launches = usage.launches;
      of.grants = usage.grants;
      of.revocations = usage.revocations;
      of.waits = on->second.waits;
      of.holds = on->second.holds;
      snapshot->pods.push_back(std::move(of));
    }
    snapshot->gpus.push_back(std::move(row));
    std::vector<pid_t> pids;
    for (const auto& [id, lane] : gpu.lanes) pids.push_back(static_cast<pid_t>(lane->client->pid));
    if (gpu.node.empty()) {
      known.push_back(std::move(pids));
    } else {
      known.emplace_back();
    }
  }
  HttpResponse response;
  response.content_type = http::kMetricsContentType;
  // NVML may take its time, and so may the standing of many teams.
  response.produce = [this, snapshot, known = std::move(known),
                      teams = books_ != nullptr && books_->has_teams()
                                  ? std::optional(books_->teams())
                                  : std::nullopt,
                      uses = books_ != nullptr ? books_->uses() : std::vector<teams::Use>{}] {
    for (size_t i = 0; i < snapshot->gpus.size(); ++i) {
      http::GpuMetrics& row = snapshot->gpus[i];
      if (const auto rates = nvml_.UtilizationOf(row.uuid)) {
        row.sm_utilization_ratio = rates->sm;
        row.memory_utilization_ratio = rates->memory;
      }
      for (const pid_t pid : nvml_.Processes(row.uuid)) {
        const auto& pids = known[i];
        if (std::find(pids.begin(), pids.end(), pid) == pids.end()) ++row.unmanaged_processes;
      }
    }
    if (teams) {
      for (const teams::StandingRow& row : teams::Standing(*teams, uses)) {
        if (!row.user.empty() || row.path.empty()) continue;
        snapshot->teams.push_back({row.path, row.share.factor, row.share.normalized_usage,
                                   row.share.normalized_shares, std::nullopt});
      }
    }
    return http::MetricsText(*snapshot);
  };
  respond(std::move(response));
}

}  // namespace baton::backend
