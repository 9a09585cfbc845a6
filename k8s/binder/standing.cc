#include "k8s/binder/standing.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/team_path.h"
#include "k8s/api/object.h"

namespace baton::k8s {
namespace {

constexpr size_t kAnswerMax = 64 << 20;  // bytes
constexpr Duration kAnswerTimeout = std::chrono::seconds(10);
constexpr uint64_t kStandingWeightMax = 1'000'000;

}  // namespace

Result<devmgr::Standings> ReadStanding(std::string_view body) {
  const std::optional<Json> answer = ParseObject(body);
  const Json* rows = answer ? Find(*answer, "rows") : nullptr;
  if (rows == nullptr || !rows->is_array()) {
    return Fail(ErrorCode::kInvalid, "the answer is no standing: it has no list 'rows'");
  }
  devmgr::Standings standings;
  std::map<std::string, double> below;  // what teams right below have used, by path
  for (const Json& row : *rows) {
    const Json* used = Find(row, "raw_usage_hours");
    const Json* weight = Find(row, "raw_shares");
    const std::string team = TextAt(row, "team");
    if (!row.is_object() || used == nullptr || !used->is_number() || weight == nullptr ||
        !weight->is_number_unsigned() || TeamPath(team) != team) {
      return Fail(ErrorCode::kInvalid,
                  "the answer is no standing: a row has no team, raw_shares "
                  "or raw_usage_hours");
    }
    if (team.empty() || !TextAt(row, "user").empty()) continue;
    const double hours = std::max(0.0, used->get<double>());
    standings[team] = {
        static_cast<uint32_t>(std::clamp<uint64_t>(weight->get<uint64_t>(), 1, kStandingWeightMax)),
        hours};
    const size_t slash = team.rfind('/');
    if (slash != std::string::npos) below[team.substr(0, slash)] += hours;
  }
  // A row's use is that of the teams below it too.
  for (const auto& [team, hours] : below) {
    const auto at = standings.find(team);
    if (at != standings.end()) at->second.used_hours = std::max(0.0, at->second.used_hours - hours);
  }
  return standings;
}

Result<std::unique_ptr<StandingSource>> StandingSource::Start(
    StandingOptions options, std::function<void(devmgr::Standings)> told) {
  net::HttpClientOptions client_options;
  client_options.url = options.url;
  client_options.server = "the central batond";
  client_options.user_agent = "baton-k8s binder";
  client_options.tls.ca_file = options.ca_file;
  client_options.token_file = options.token_file;
  client_options.connections_max = 1;
  auto client = net::HttpClient::Make(std::move(client_options));
  if (!client) return tl::unexpected(client.error());
  return std::unique_ptr<StandingSource>(
      new StandingSource(std::move(options), *std::move(client), std::move(told)));
}

StandingSource::StandingSource(StandingOptions options, std::unique_ptr<net::HttpClient> client,
                               std::function<void(devmgr::Standings)> told)
    : options_(std::move(options)), client_(std::move(client)), told_(std::move(told)) {
  worker_ = std::thread([this] { Work(); });
}

StandingSource::~StandingSource() {
  client_->Stop();
  worker_.join();
}

std::optional<double> StandingSource::age_s() const {
  const int64_t at = answered_ns_;
  if (at == 0) return std::nullopt;
  return static_cast<double>(Nanos(MonotonicNow().time_since_epoch()) - at) / 1e9;
}

Result<devmgr::Standings> StandingSource::Ask() {
  net::HttpCall call;
  call.target = "/api/v1/standing";
  const auto answer = client_->Ask(call, kAnswerMax, MonotonicNow() + kAnswerTimeout);
  if (!answer) return Fail(ErrorCode::kUnavailable, answer.error().why);
  if (answer->status != 200) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("HTTP status {}: {}", answer->status, answer->body.substr(0, 200)));
  }
  return ReadStanding(answer->body);
}

void StandingSource::Work() {
  bool away = false;     // it did not answer the last time
  bool counted = false;  // the past counts
  do {
    auto standings = Ask();
    if (client_->stopped()) return;
    if (standings) {
      if (away || !counted) spdlog::info("teams go by the standing of {}", options_.url);
      answered_ns_ = Nanos(MonotonicNow().time_since_epoch());
      counted = true;
      told_(*std::move(standings));
    } else {
      if (!away) {
        spdlog::warn("no standing of teams from {}: {}; the last one counts for {} s more",
                     options_.url, standings.error().message,
                     std::max<int64_t>(0, Nanos(options_.age_max) / 1'000'000'000 -
                                              static_cast<int64_t>(age_s().value_or(1e9))));
      }
      if (counted && age_s().value_or(0) * 1e9 > static_cast<double>(Nanos(options_.age_max))) {
        spdlog::warn(
            "the last standing of teams is too old: only what runs now counts between "
            "them");
        counted = false;
        told_({});
      }
    }
    away = !standings.has_value();
  } while (client_->Pause(options_.every, kNever, {}));
}

}  // namespace baton::k8s
