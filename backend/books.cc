#include "backend/books.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "backend/reports.h"
#include "base/check.h"
#include "base/file.h"
#include "ledger/time_zone.h"
#include "node/process.h"

namespace baton::backend {
namespace {

using nlohmann::json;

ledger::LedgerOptions LedgerOptionsFrom(const config::Options& options) {
  ledger::LedgerOptions to = options.ledger;
  if (to.database.empty()) to.database = "sqlite:" + options.server.state_dir + "/ledger.sqlite";
  return to;
}

// How often the ledger is asked what pods use, which goes by hours.
constexpr Duration kUseEvery = std::chrono::minutes(10);
// Of a user's changes in an hour, so many are written down.
constexpr int64_t kChangesOfUser = 200;

json TeamJson(const teams::Team& team) {
  json users = json::object();
  for (const teams::User& user : team.users) users[user.name] = user.weight;
  return {{"weight", team.weight},
          {"users", std::move(users)},
          {"budget", team.budget},
          {"budget_period_s",
           std::chrono::duration_cast<std::chrono::seconds>(team.budget_period).count()},
          {"over_budget", team.over_budget == teams::OverBudget::kRefuse ? "refuse" : "low"},
          {"limit", static_cast<double>(team.limit.millionths()) / policy::kMillion}};
}

// What decides who gets what, and what it costs.
ledger::Settings SettingsOf(const config::Options& options, const teams::Teams* teams) {
  ledger::Settings settings;
  const auto set = [&](const char* kind, const std::string& object, const json& value) {
    settings[{kind, object}] = value.dump(-1, ' ', false, json::error_handler_t::replace);
  };
  const auto part = [](policy::Share share) {
    return static_cast<double>(share.millionths()) / policy::kMillion;
  };
  set("config", "scheduler", {{"overcommit", part(options.overcommit)}});
  set("config", "memory",
      {{"default_cap", part(options.default_cap)}, {"reserve_mib", options.memory_reserve_mib}});
  set("config", "ledger",
      {{"currency", options.ledger.currency},
       {"energy_price", options.ledger.energy_price},
       {"carbon_g_per_kwh", options.ledger.carbon_g_per_kwh}});
  for (const auto& [model, prices] : options.ledger.prices) {
    json dated = json::array();
    for (const ledger::DatedPrice& price : prices.dated()) {
      dated.push_back({{"from", ledger::FormatTime(price.from)}, {"price", price.price}});
    }
    set("price", model,
        prices.plain() ? json{{"price", prices.dated().front().price}}
                       : json{{"prices", std::move(dated)}});
  }
  for (const auto& [model, weight] : options.ledger.weights) {
    set("model", model, {{"weight", weight}});
  }
  for (const auto& pod : options.pods) set("pod", pod.request.name, PublicFields(pod.request));
  if (teams == nullptr) return settings;
  set("teams", "",
      {{"half_life_s", std::chrono::duration_cast<std::chrono::seconds>(teams->half_life).count()},
       {"history", static_cast<double>(teams->history) / policy::kMillion}});
  for (const teams::Team& team : teams->teams) set("team", team.path, TeamJson(team));
  return settings;
}

// What placement expects pods to execute.
void LookAtUse(Arbiter& arbiter, ledger::LedgerWriter& writer, boost::asio::io_context& io,
               const std::shared_ptr<bool>& alive, Instant& use_at) {
  const Instant now = MonotonicNow();
  if (use_at != Instant{} && now - use_at < kUseEvery) return;
  std::set<std::string> present;
  for (const auto& [id, pod] : arbiter.pods().all()) {
    if (!pod.throw_away) present.insert(pod.name);
  }
  const bool asked =
      writer.Ask([&arbiter, &io, alive, present = std::move(present)](ledger::Ledger& ledger) {
        auto uses = UsesByLedger(ledger, ledger::WallNow(), present);
        // Where it fails, what was known stays.
        if (!uses) return;
        boost::asio::post(io, [&arbiter, alive, uses = *std::move(uses)]() mutable {
          if (*alive) arbiter.vgpus().expected_use().Set(std::move(uses), arbiter.pods());
        });
      });
  if (asked) use_at = now;
}

}  // namespace

json PublicFields(const spec::PodRequest& pod) {
  json fields = spec::WriteFields(pod);
  for (const char* hidden : {"name", "ticket", "cgroup"}) fields.erase(hidden);
  return fields;
}

std::vector<PresentPod> PresentPods(const Arbiter& arbiter) {
  std::vector<PresentPod> present;
  present.reserve(arbiter.pods().all().size());
  for (const auto& [id, pod] : arbiter.pods().all()) {
    if (!pod.throw_away) present.push_back({pod, pod.gpus});
  }
  return present;
}

std::map<std::string, std::string> AsInTheLog(const std::vector<PresentPod>& present) {
  std::map<std::string, std::string> pods;
  for (const auto& [request, gpus] : present) {
    json fields = PublicFields(request);
    fields["gpus"] = gpus;
    pods[request.name_space.empty() ? request.name : request.name_space + "/" + request.name] =
        fields.dump(-1, ' ', false, json::error_handler_t::replace);
  }
  return pods;
}

Books::Books(boost::asio::io_context& io, const config::Options& options, Arbiter& arbiter,
             std::string source, node::EventLog& log)
    : io_(io),
      options_(options),
      arbiter_(arbiter),
      source_(std::move(source)),
      log_(log),
      timer_(io) {}

Books::~Books() {
  *alive_ = false;
  arbiter_.snapshots().OnOwnerChange(nullptr);
  arbiter_.shares().SetTeamPolicy(nullptr);
}

Result<void> Books::ReadTeams() {
  if (options_.teams.file.empty()) return {};
  if (follows_upstream_) return {};
  auto text = ReadFile(options_.teams.file, teams::kFileMax);
  if (!text) return Fail(text.error().code, "teams: " + text.error().message);
  auto teams = teams::ParseTeams(*text, options_.teams.file);
  if (!teams) return tl::unexpected(teams.error());
  SetTeams(std::move(*teams), uses_, held_);
  return {};
}

void Books::Record(ledger::Change change, const json& was, const json& is, uint32_t rationed) {
  if (writer_ == nullptr) return;
  const auto text = [](const json& object) {
    return object.is_null() ? "" : object.dump(-1, ' ', false, json::error_handler_t::replace);
  };
  change.at = ledger::WallNow();
  change.node = config::NodeName(options_);
  change.was = text(was);
  change.is = text(is);
  if (rationed != 0) {
    Ration& ration = rations_[rationed];
    const int64_t hour =
        std::chrono::duration_cast<std::chrono::hours>(change.at.time_since_epoch()).count();
    if (std::exchange(ration.hour, hour) != hour) {
      if (ration.left_out > 0) {
        ledger::Change more = change;
        more.action = "more";
        more.kind = "pod";
        more.object = more.was = "";
        more.is = text({{"changes", ration.left_out}});
        writer_->Record(std::move(more));
      }
      ration.written = ration.left_out = 0;
    }
    if (ration.written >= kChangesOfUser) {
      ++ration.left_out;
      return;
    }
    ++ration.written;
  }
  writer_->Record(std::move(change));
}

void Books::RecordSettings() {
  if (writer_ == nullptr) return;
  ledger::Change by;
  by.at = ledger::WallNow();
  by.node = config::NodeName(options_);
  by.who = ledger::kConfiguration;
  by.action = "configure";
  const bool own = has_teams_ && !follows_upstream_;
  writer_->RecordSettings(std::move(by), SettingsOf(options_, own ? &teams_ : nullptr));
}

void Books::SetTeams(teams::Teams teams, std::vector<teams::Use> uses, Held held) {
  teams_ = std::move(teams);
  uses_ = std::move(uses);
  by_team_ = teams::ByTeam(uses_);
  held_ = std::move(held);
  has_teams_ = true;
  UseTeams();
}

void Books::UseTeams() {
  const auto said = budgets_.Update(teams_, [&](const teams::Team& team) -> Result<double> {
    auto it = held_.find(team.path);
    if (it == held_.end()) return Fail(ErrorCode::kNotFound, "there is no result yet");
    return it->second;
  });
  for (const std::string& sentence : said)
    log_.Add(node::EventLog::Level::kWarning, "team", sentence);
  std::vector<std::string> present;
  for (const auto& [id, pod] : arbiter_.pods().all()) present.push_back(pod.team);
  index_.Retain(present);
  arbiter_.shares().SetTeamPolicy(this);
  arbiter_.shares().TeamsChanged();
  if (teams_told_) teams_told_();
}

Result<void> Books::Start() {
  arbiter_.snapshots().KeepDeparted(true);
  auto started =
      ledger::LedgerWriter::Start(LedgerOptionsFrom(options_), !options_.upstream.connect.empty());
  if (!started) return tl::unexpected(started.error());
  writer_ = std::move(*started);
  beginning_ = arbiter_.snapshots().MakeNow();
  RecordSettings();
  Tick();
  return {};
}

void Books::Stop() {
  timer_.cancel();
  if (writer_ == nullptr) return;
  if (ready_) {
    ledger::Batch batch = arbiter_.snapshots().MakeNow();
    batch.source = source_;
    batch.node = config::NodeName(options_);
    batch.seq = ++seq_;
    writer_->Put(std::move(batch), nullptr);
  }
  writer_->Stop();
  *alive_ = false;
}

std::string Books::Trouble() const { return writer_ != nullptr ? writer_->trouble() : ""; }

void Books::Tick() {
  if (const std::string trouble = Trouble(); trouble != said_) {
    said_ = trouble;
    log_.Add(trouble.empty() ? node::EventLog::Level::kInfo : node::EventLog::Level::kWarning,
             "ledger", trouble.empty() ? "the ledger works again" : trouble);
  }
  if (std::string notice = writer_->TakeNotice(); !notice.empty()) {
    log_.Add(node::EventLog::Level::kWarning, "ledger", std::move(notice));
  }
  TakeSnapshot();
  LookAtTeams();
  LookAtUse(arbiter_, *writer_, io_, alive_, use_at_);
  timer_.expires_after(options_.ledger.every);
  timer_.async_wait([this, alive = alive_](const boost::system::error_code& error) {
    if (!error && *alive) Tick();
  });
}

void Books::TakeSnapshot() {
  if (snapping_) return;
  snapping_ = true;
  if (!ready_) {
    // Where the books left off. Until that is known nothing is booked; the totals wait.
    snapping_ = writer_->Ask([this, alive = alive_, source = source_](ledger::Ledger& ledger) {
      auto last = ledger.LastOf(source);
      boost::asio::post(io_, [this, alive, last = std::move(last)] {
        if (!*alive) return;
        snapping_ = false;
        if (!last) return;
        // Of a source that the ledger does not know, what was used before its first batch is not
        // booked: that should be nothing since this was started, however late the ledger answers.
        if (last->seq == 0) {
          const bool used = std::any_of(beginning_.samples.begin(), beginning_.samples.end(),
                                        [](const auto& s) { return s.total.held_ns > 0; });
          if (used) {
            log_.Add(
                node::EventLog::Level::kWarning, "ledger",
                "the ledger is new or was deleted: it has no usage from before now, and counts "
                "from here");
          }
          beginning_.source = source_;
          beginning_.node = config::NodeName(options_);
          beginning_.seq = ++seq_;
          Put(beginning_, [](const Result<bool>&) {});
        }
        beginning_ = {};
        StartAbove(last->seq);  // an upstream may have said more
        ready_ = true;
        arbiter_.snapshots().OnOwnerChange([this](ledger::Batch batch) {
          if (!*alive_) return;
          batch.source = source_;
          batch.node = config::NodeName(options_);
          batch.seq = ++seq_;
          Put(std::move(batch), [](const Result<bool>&) {});
        });
        arbiter_.pods().StartAbove(last->largest_pod);
        TakeSnapshot();
      });
    });
    return;
  }
  arbiter_.snapshots().Make([this, alive = alive_](ledger::Batch batch) {
    if (!*alive) return;
    snapping_ = false;
    batch.source = source_;
    batch.node = config::NodeName(options_);
    batch.seq = ++seq_;
    const ledger::WallTime to = batch.to;
    Put(std::move(batch), [this, to](Result<bool> booked) {
      if (booked) arbiter_.snapshots().Booked(to);
    });
  });
}

void Books::Put(ledger::Batch batch, std::function<void(Result<bool>)> booked) {
  writer_->Put(std::move(batch), [this, alive = alive_, booked](Result<bool> result) {
    boost::asio::post(io_, [this, alive, booked, result = std::move(result)] {
      if (!*alive) return;
      booked(result);
      if (result && told_) told_();
    });
  });
}

// The standing from the ledger, and what follows from it for pods. A batond whose upstream has a
// file of teams is told.
void Books::LookAtTeams() {
  // One question at a time: where the ledger hangs, people's would find no room.
  if (looking_ || !has_teams_ || follows_upstream_) return;
  std::vector<std::pair<std::string, Duration>> budgets;
  for (const teams::Team& team : teams_.teams) {
    if (team.budget > 0) budgets.emplace_back(team.path, team.budget_period);
  }
  looking_ =
      writer_->Ask([this, alive = alive_, half_life = teams_.half_life, budgets,
                    weights = options_.ledger.weights,
                    uncontended_use = options_.teams.uncontended_use](ledger::Ledger& ledger) {
        const ledger::WallTime now = ledger::WallNow();
        const auto decayed = ledger.Decayed(now, half_life, weights);
        Held held;
        for (const auto& [team, period] : budgets) {
          const auto span = std::chrono::duration_cast<std::chrono::milliseconds>(period);
          held[team] = ledger.HeldBy(team, {now - span, now}, weights).map([](ledger::Int128 ns) {
            return static_cast<double>(ns) / 3600e9;
          });
        }
        std::vector<teams::Use> uses =
            decayed ? UsesOf(*decayed, uncontended_use) : std::vector<teams::Use>();
        std::vector<teams::Use> by_team = teams::ByTeam(uses);
        boost::asio::post(io_, [this, alive, known = decayed.has_value(), uses = std::move(uses),
                                by_team = std::move(by_team), held = std::move(held)]() mutable {
          if (!*alive) return;
          looking_ = false;
          if (follows_upstream_) return;
          if (known) {
            uses_ = std::move(uses);
            by_team_ = std::move(by_team);
            looked_ = true;
          }
          held_ = std::move(held);
          UseTeams();
        });
      });
}

policy::ShareSpec Books::Effective(const Pod& pod) {
  policy::ShareSpec spec = pod.share;
  spec.team = index_.Of(teams::NormalPath(pod.team));
  spec.priority = budgets_.Effective(teams_, pod.team, spec.priority);
  return spec;
}

std::vector<uint32_t> Books::Weights(const std::vector<std::string>& present) {
  return index_.Weights(teams::SlackWeights(teams_, by_team_, present));
}

Result<void> Books::Admit(const Pod& pod) {
  // Who moves to a team is new there.
  const Pod* former = arbiter_.pods().FindByName(pod.name);
  if (former == nullptr || teams::NormalPath(former->team) != teams::NormalPath(pod.team)) {
    if (auto known = teams::CheckKnown(teams_, pod.team); !known) {
      if (options_.teams.unknown == "refuse") return known;
      log_.Add(node::EventLog::Level::kWarning, "team",
               fmt::format("pod {} is of team {}, which the file of teams does not name: it has "
                           "neither budget nor limit of its own",
                           pod.name, teams::NormalPath(pod.team)));
    }
    if (auto admitted = budgets_.Admit(teams_, pod.team); !admitted) return admitted;
  }
  return teams::CheckLimits(
      teams_, LimitPods(arbiter_.pods()),
      {pod.name, pod.team, policy::ShareSum(pod.share.request) * pod.gpus.size()});
}

void Books::Ask(const json& question, Answer answer) {
  const Report* report = FindReport(question.value("command", ""));
  BATON_CHECK(report != nullptr);
  const auto fields = FieldsOf(*report, question);
  if (!fields) return answer(tl::unexpected(fields.error()));
  auto asked = report->ask(*fields, {options_, arbiter_, teams_, has_teams_, by_team_, budgets_});
  if (!asked) return answer(tl::unexpected(asked.error()));
  if (auto* known = std::get_if<json>(&*asked)) return answer(std::move(*known));
  const bool taken =
      writer_->Ask([this, alive = alive_, answer,
                    query = std::get<LedgerQuery>(std::move(*asked))](ledger::Ledger& ledger) {
        auto made = query(ledger);
        boost::asio::post(io_, [alive, answer, made = std::move(made)]() mutable {
          if (*alive) answer(std::move(made));
        });
      });
  if (!taken) {
    answer(Fail(ErrorCode::kUnavailable, "too many queries wait for the ledger; try again later"));
  }
}

}  // namespace baton::backend
