#include "backend/web.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <charconv>
#include <nlohmann/json.hpp>

#include "backend/books.h"
#include "backend/pod_use.h"
#include "backend/reports.h"
#include "net/metrics.h"
#include "web/assets.h"

namespace baton::backend {
namespace {

using net::ErrorResponse;
using net::HttpRequest;
using net::HttpResponse;
using nlohmann::json;

constexpr Duration kStreamEvery = std::chrono::seconds(1);
// Of the event loop's time the stream takes at most one part in so many.
constexpr int kStreamPart = 50;
// All that is made in steps together: one in so many.
constexpr int kSlicesPart = 10;
// Pods of a status between two looks at the sockets: some 20 microseconds each. Of the metrics:
// some two.
constexpr size_t kPodsOfStatusAtOnce = 8;
constexpr size_t kMetricsAtOnce = 64;

std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Written on the server's thread.
HttpResponse JsonResponse(json value) {
  HttpResponse response;
  response.produce = [value = std::make_shared<json>(std::move(value))] { return Dump(*value); };
  return response;
}

// What a timeline is written from: of thousands of holds, on the server's thread.
struct TimelineSnapshot {
  std::string uuid;
  int64_t now_us = 0;  // since 1970
  Instant now{};       // the same moment
  std::vector<Hold> holds;
  std::vector<std::pair<PodId, Instant>> waiting;  // and since when
  std::map<PodId, std::string> names;
};

std::string TimelineText(const TimelineSnapshot& snapshot) {
  const auto ms = [&](Instant at) {
    return static_cast<double>(snapshot.now_us - Nanos(snapshot.now - at) / 1000) / 1e3;
  };
  json spans = json::array();
  const auto add = [&](PodId pod, const char* kind, Instant from, Instant to) {
    spans.push_back({{"pod", snapshot.names.at(pod)},
                     {"kind", kind},
                     {"from_ms", ms(from)},
                     {"to_ms", to == kNever ? json() : json(ms(to))}});
  };
  for (const Hold& hold : snapshot.holds) {
    if (hold.waits_since < hold.granted_at) {
      add(hold.pod, "wait", hold.waits_since, hold.granted_at);
    }
    const Instant drains = hold.Drains(!snapshot.waiting.empty());
    add(hold.pod, "hold", hold.granted_at, std::min(drains, hold.returned_at));
    if (drains != kNever) add(hold.pod, "drain", drains, hold.returned_at);
  }
  for (const auto& [pod, since] : snapshot.waiting) add(pod, "wait", since, kNever);
  return Dump(
      {{"gpu", snapshot.uuid}, {"now_ms", snapshot.now_us / 1000}, {"spans", std::move(spans)}});
}

}  // namespace

Web::Web(boost::asio::io_context& io, const config::Options& options, Arbiter& arbiter,
         Books* books, devmgr::Nvml& nvml, node::EventLog& log,
         std::function<DaemonStatus()> daemon)
    : options_(options),
      arbiter_(arbiter),
      books_(books),
      nvml_(nvml),
      log_(log),
      daemon_(std::move(daemon)),
      started_(time(nullptr)),
      server_(io, options.http),
      stream_(server_.AddStream("/api/v1/stream")),
      timer_(io),
      slices_(io, kSlicesPart) {
  for (const web::Asset& asset : web::Assets()) {
    for (const std::string_view path : {asset.path, std::string_view("/")}) {
      if (path == "/" && asset.path != "/index.html") continue;
      server_.AddAsset(std::string(path), std::string(asset.type), std::string(asset.bytes));
    }
  }
  using Respond = net::HttpServer::Respond;
  server_.Route(
      "/healthz",
      [](const HttpRequest&, const Respond& respond) {
        HttpResponse response;
        response.content_type = "text/plain";
        response.body = "ok\n";
        respond(std::move(response));
      },
      net::Access::kOpen);
  server_.Route("/metrics",
                [this](const HttpRequest&, Respond respond) { Metrics(std::move(respond)); });
  server_.Route("/api/v1/status",
                [this](const HttpRequest&, Respond respond) { Status(std::move(respond)); });
  server_.Route("/api/v1/timeline", [this](const HttpRequest& request, Respond respond) {
    Timeline(request, std::move(respond));
  });
  // explain takes names as parameters: a pod may be called "..", which no path can end with.
  for (const Report& report : Reports()) {
    server_.Route(fmt::format("/api/v1/{}", report.name),
                  [this, &report](const HttpRequest& request, Respond respond) {
                    Ask({{"command", report.name}}, request, std::move(respond));
                  });
  }
}

Web::~Web() { *alive_ = false; }

Result<void> Web::Start() {
  if (auto started = server_.Start(); !started) return started;
  if (!options_.http.listen.empty()) Stream();
  return {};
}

std::string Web::url() const {
  return port() == 0 ? "" : net::UrlOf(options_.http, port(), config::NodeName(options_));
}

void Web::Stop() {
  timer_.cancel();
  server_.Stop();
}

void Web::Booked() {
  if (stream_.readers() > 0) stream_.Broadcast("ledger", "{}");
}

void Web::Stream() {
  const auto again = [this] {
    timer_.expires_after(std::max(kStreamEvery, kStreamPart * status_took_));
    timer_.async_wait([this, alive = alive_](const boost::system::error_code& error) {
      if (!error && *alive) Stream();
    });
  };
  if (stream_.readers() == 0) return again();
  WithStatus([this, again](const std::shared_ptr<const node::LongAnswer>& status) {
    stream_.Broadcast("status", [status] { return status->Whole() + "}"; });
    again();
  });
}

void Web::Status(net::HttpServer::Respond respond) {
  WithStatus([respond = std::move(respond)](const std::shared_ptr<const node::LongAnswer>& status) {
    HttpResponse response;
    response.produce = [status] { return status->Whole() + "}"; };
    respond(std::move(response));
  });
}

void Web::WithStatus(UseStatus use) {
  asked_status_.push_back(std::move(use));
  if (asked_status_.size() > 1) return;
  struct Work {
    std::optional<StatusSteps> steps;
    std::vector<UseStatus> asked;
    Duration took{0};
  };
  slices_.Add([this, work = std::make_shared<Work>()] {
    const Instant before = MonotonicNow();
    bool done = false;
    if (!work->steps) {
      work->asked = std::exchange(asked_status_, {});
      work->steps.emplace(arbiter_, log_, daemon_(), "*");
    } else {
      done = work->steps->GoOn(kPodsOfStatusAtOnce);
    }
    work->took += MonotonicNow() - before;
    if (!done) return false;
    status_took_ = work->took;
    const auto status = std::make_shared<const node::LongAnswer>(work->steps->Take());
    for (const UseStatus& use : work->asked) use(status);
    return true;
  });
}

void Web::Ask(json question, const HttpRequest& request, net::HttpServer::Respond respond) {
  if (books_ == nullptr) {
    return respond(ErrorResponse(
        {ErrorCode::kUnavailable, "there is no ledger: ledger.database is \"none\""}));
  }
  for (const auto& [name, value] : request.query) {
    // What is asked is said by the path alone.
    if (question.contains(name)) {
      return respond(ErrorResponse({ErrorCode::kInvalid, "unknown parameter " + name}));
    }
    question[name] = value;
  }
  books_->Ask(question, [respond = std::move(respond)](Result<json> answer) {
    respond(answer ? JsonResponse(std::move(*answer)) : ErrorResponse(answer.error()));
  });
}

void Web::Timeline(const HttpRequest& request, net::HttpServer::Respond respond) {
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
  const auto gpus = arbiter_.GpusOf("*");
  const auto it = std::find_if(gpus.begin(), gpus.end(), [&](const Gpu* one) {
    return one->info.uuid == uuid || (uuid.empty() && gpus.size() == 1);
  });
  if (it == gpus.end()) {
    return refuse(ErrorCode::kNotFound,
                  uuid.empty() && !gpus.empty()
                      ? "gpu names one of several GPUs; /api/v1/status lists them"
                      : "no GPU has this uuid; /api/v1/status lists the GPUs");
  }
  Gpu& gpu = **it;
  const Instant now = MonotonicNow();
  TimelineSnapshot snapshot;
  snapshot.uuid = gpu.info.uuid;
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  snapshot.now_us = int64_t{wall.tv_sec} * 1'000'000 + wall.tv_nsec / 1000;
  snapshot.now = now;
  snapshot.holds = gpu.timeline.Since(now - std::chrono::seconds(seconds));
  if (gpu.holder) snapshot.holds.push_back(gpu.hold);
  for (const scheduler::PodStatus& pod : gpu.scheduler.Status(now)) {
    if (pod.waiting) snapshot.waiting.emplace_back(pod.pod, pod.waiting_since);
  }
  const auto name = [&](PodId id) {
    auto [entry, added] = snapshot.names.try_emplace(id);
    if (!added) return;
    const Pod* pod = arbiter_.pods().Find(id);
    entry->second = pod != nullptr ? pod->name : "(deleted)";
  };
  for (const Hold& hold : snapshot.holds) name(hold.pod);
  for (const auto& [pod, since] : snapshot.waiting) name(pod);
  HttpResponse response;
  response.produce = [snapshot = std::make_shared<TimelineSnapshot>(std::move(snapshot))] {
    return TimelineText(*snapshot);
  };
  respond(std::move(response));
}

namespace {

// The metrics of all pods, in steps.
struct MetricsWork {
  std::shared_ptr<net::MetricsSnapshot> snapshot = std::make_shared<net::MetricsSnapshot>();
  std::vector<Gpu*> gpus{};
  size_t gpu = 0;  // the next one, or the one whose pods are added
  std::optional<net::GpuMetrics> row{};
  std::vector<scheduler::PodStatus> pods{};  // on it
  size_t pod = 0;
};

net::GpuMetrics MetricsOf(const MetricsWork& work, const Arbiter& arbiter,
                          const config::Options& options) {
  const Instant now = MonotonicNow();
  const Gpu& gpu = *work.gpus[work.gpu];
  net::GpuMetrics row;
  row.uuid = gpu.info.uuid;
  row.model = gpu.info.name;
  row.node = gpu.node.empty() ? config::NodeName(options) : gpu.node;
  row.memory_bytes = gpu.info.memory_bytes;
  const uint64_t held = arbiter.accounts().HeldNow(gpu, now);
  row.held = DurationFromNanos(held);
  row.busy = DurationFromNanos(gpu.busy_ns);
  row.idle = arbiter.accounts().IdleNow(gpu, now);
  const auto lately = gpu.series.Over(std::chrono::seconds(10), now, held, gpu.busy_ns);
  row.held_ratio = lately.held;
  row.busy_ratio = lately.waited;  // the second of the two is busy time here
  row.handoff = gpu.scheduler.handoff();
  row.handoff_total = gpu.scheduler.handoff_total();
  row.handoffs = gpu.grants;
  row.sent_ahead = gpu.sent_ahead;
  if (gpu.energy.known) {
    row.energy_joules = gpu.energy.joules;
    row.idle_energy_joules = gpu.energy.idle;
  }
  row.hung = gpu.hung;
  const devmgr::Card* card = arbiter.vgpus().cards().Find(gpu.info.uuid);
  row.failed = card != nullptr && card->health != devmgr::Health::kHealthy;
  row.link_up = !gpu.frozen;
  row.unmanaged_processes = gpu.unmanaged.size();
  return row;
}

void AddUse(net::PodMetrics& of, const PodOnGpu& on, Instant now) {
  const PodUse* use = UseNow(on, now);
  if (use == nullptr) return;
  of.sm_busy_seconds = use->sm_s;
  of.memory_busy_seconds = use->memory_s;
}

void AddPod(MetricsWork& work, const Arbiter& arbiter, const scheduler::PodStatus& status) {
  const Instant now = MonotonicNow();
  const Gpu& gpu = *work.gpus[work.gpu];
  net::GpuMetrics& row = *work.row;
  const Pod* pod = arbiter.pods().Find(status.pod);
  auto on = gpu.pods.find(status.pod);
  if (pod == nullptr || on == gpu.pods.end()) return;
  row.allocated_ratio += policy::Ratio(pod->share.request);
  row.allocated_memory_bytes += pod->CapOn(gpu.info.uuid);
  row.memory_used_bytes += on->second.memory;
  if (status.waiting && !status.throttled && !status.paused) ++row.waiting_pods;
  const UsageEntry* account = arbiter.accounts().Of(gpu, status.pod);
  const Usage usage = account != nullptr ? account->usage : Usage{};
  const uint64_t pod_held = arbiter.accounts().HeldNow(gpu, status.pod, now);
  net::PodMetrics of;
  of.gpu = gpu.info.uuid;
  of.pod = pod->name;
  of.name_space = pod->name_space;
  of.team = pod->team;
  of.request_ratio = policy::Ratio(pod->share.request);
  of.limit_ratio = policy::Ratio(pod->share.limit);
  const uint64_t used = arbiter.accounts().UsedNow(gpu, status.pod, now);
  of.achieved_ratio = on->second.series.Over(std::chrono::seconds(10), now, used, 0).held;
  of.lag = status.lag;
  of.held = DurationFromNanos(pod_held);
  of.busy = DurationFromNanos(usage.busy_ns);
  of.waited = DurationFromNanos(usage.waited_ns);
  of.unmanaged = DurationFromNanos(usage.unmanaged_ns);
  of.memory_used_bytes = on->second.memory;
  of.memory_cap_bytes = pod->CapOn(gpu.info.uuid);
  of.launches = usage.launches;
  of.grants = usage.grants;
  of.revocations = usage.revocations;
  if (pod->share.latency != Duration(0)) of.latency = {{status.met.waits, status.met.late}};
  if (gpu.energy.known) of.energy_joules = on->second.joules;
  AddUse(of, on->second, now);
  of.waits = on->second.waits;
  of.holds = on->second.holds;
  work.snapshot->pods.push_back(std::move(of));
}

// Pods without tokens: what NVML tells of them.
void AddParts(MetricsWork& work, const Arbiter& arbiter) {
  const Instant now = MonotonicNow();
  const Gpu& gpu = *work.gpus[work.gpu];
  for (const auto& [id, allocation] : gpu.allocations) {
    const Pod* pod = arbiter.pods().Find(id);
    const auto on = gpu.pods.find(id);
    if (pod == nullptr || on == gpu.pods.end()) continue;
    net::PodMetrics of;
    of.gpu = gpu.info.uuid;
    of.pod = pod->name;
    of.name_space = pod->name_space;
    of.team = pod->team;
    AddUse(of, on->second, now);
    work.snapshot->parts.push_back(std::move(of));
  }
}

// True: that was all.
bool GoOn(MetricsWork& work, const Arbiter& arbiter, const config::Options& options) {
  if (work.gpu == work.gpus.size()) return true;
  if (!work.row) {
    work.row = MetricsOf(work, arbiter, options);
    work.pods = work.gpus[work.gpu]->scheduler.Status(MonotonicNow());
    work.pod = 0;
    return false;
  }
  const size_t end = std::min(work.pods.size(), work.pod + kMetricsAtOnce);
  while (work.pod < end) AddPod(work, arbiter, work.pods[work.pod++]);
  if (work.pod == work.pods.size()) {
    AddParts(work, arbiter);
    work.snapshot->gpus.push_back(std::move(*work.row));
    work.row.reset();
    ++work.gpu;
  }
  return work.gpu == work.gpus.size();
}

// Of a team's budget; nothing without one, or before anybody has looked.
std::optional<double> BudgetUsed(const teams::Teams& teams, const teams::Budgets& budgets,
                                 const std::string& path) {
  const teams::Team* team = teams.Find(path);
  const auto state = budgets.states().find(path);
  if (team == nullptr || team->budget == 0 || state == budgets.states().end()) return std::nullopt;
  return state->second.held_hours / team->budget;
}

}  // namespace

void Web::Metrics(net::HttpServer::Respond respond) {
  auto work = std::make_shared<MetricsWork>();
  work->gpus = arbiter_.GpusOf("*");
  work->snapshot->pods.reserve(arbiter_.pods().all().size());
  const DaemonStatus daemon = daemon_();
  work->snapshot->version = daemon.version;
  work->snapshot->start_time_seconds = static_cast<double>(started_);
  if (books_ != nullptr) work->snapshot->ledger_up = books_->Trouble().empty();
  work->snapshot->upstream_up = daemon.upstream_up;
  work->snapshot->certificate_expires = server_.certificate_expires();
  slices_.Add([this, work, respond = std::move(respond)] {
    if (!GoOn(*work, arbiter_, options_)) return false;
    TellMetrics(work->snapshot, respond);
    return true;
  });
}

void Web::TellMetrics(const std::shared_ptr<net::MetricsSnapshot>& snapshot,
                      const net::HttpServer::Respond& respond) {
  HttpResponse response;
  response.content_type = net::kMetricsContentType;
  // NVML may take its time, and so may the standing of many teams.
  response.produce = [this, snapshot,
                      teams = books_ != nullptr && books_->has_teams()
                                  ? std::optional(books_->teams())
                                  : std::nullopt,
                      uses = books_ != nullptr ? books_->uses() : std::vector<teams::Use>{},
                      budgets = books_ != nullptr ? books_->budgets() : teams::Budgets{}] {
    for (size_t i = 0; i < snapshot->gpus.size(); ++i) {
      net::GpuMetrics& row = snapshot->gpus[i];
      if (const auto rates = nvml_.UtilizationOf(row.uuid)) {
        row.sm_utilization_ratio = rates->sm;
        row.memory_utilization_ratio = rates->memory;
      }
    }
    if (teams) {
      for (const teams::StandingRow& row : teams::Standing(*teams, uses)) {
        if (!row.user.empty() || row.path.empty()) continue;
        snapshot->teams.push_back({row.path, row.share.factor, row.share.normalized_usage,
                                   row.share.normalized_shares,
                                   BudgetUsed(*teams, budgets, row.path)});
      }
    }
    return net::MetricsText(*snapshot);
  };
  respond(std::move(response));
}

}  // namespace baton::backend
