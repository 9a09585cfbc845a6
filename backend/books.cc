#include "backend/books.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "backend/ledger/report.h"
#include "backend/process.h"
#include "backend/teams/explain.h"
#include "base/parse.h"

namespace baton::backend {
namespace {

using nlohmann::json;

constexpr size_t kTextMax = 512;

ledger::LedgerOptions LedgerOptionsFrom(const Options& options) {
  ledger::LedgerOptions to;
  to.database = options.ledger.database.empty()
                    ? "sqlite:" + options.server.state_dir + "/ledger.sqlite"
                    : options.ledger.database;
  to.retention = options.ledger.retention;
  return to;
}

// The text fields of a question; a field that is not in `known` is a mistake of the caller's.
Result<std::map<std::string, std::string>> Texts(const json& request,
                                                 std::initializer_list<const char*> known) {
  std::map<std::string, std::string> texts;
  for (const char* name : known) texts[name];
  for (const auto& [key, value] : request.items()) {
    if (key == "command") continue;
    auto it = texts.find(key);
    if (it == texts.end()) {
      return Fail(ErrorCode::kInvalid, "this command has no field " + key.substr(0, 64));
    }
    if (!value.is_string() || value.get_ref<const std::string&>().size() > kTextMax) {
      return Fail(ErrorCode::kInvalid, key + " must be a text of at most 512 characters");
    }
    it->second = value;
  }
  return texts;
}

double Hours(double ns) { return ns / 3600e9; }

std::vector<teams::Use> UsesOf(const std::vector<ledger::DecayedUse>& decayed) {
  std::vector<teams::Use> uses;
  for (const ledger::DecayedUse& use : decayed) {
    uses.push_back({use.team, use.user, use.decayed_ns});
  }
  return uses;
}

// ---------------------------------------------------------------------------------------- advice

// What is known of a pod that exists now.
struct Asked {
  policy::ShareSpec share;
  uint64_t memory_cap = 0;
};

// Fewer buckets say nothing about a p99.
constexpr int64_t kBucketsLeast = 20;
constexpr int64_t kStepMib = 256;

json AdviceRow(const ledger::Profile& profile, const char* what, std::string now, std::string used,
               std::string set_to, std::string frees, std::string why) {
  return {{"pod", profile.owner.pod},    {"team", profile.owner.team},
          {"gpu", profile.gpu},          {"what", what},
          {"now", std::move(now)},       {"used", std::move(used)},
          {"set_to", std::move(set_to)}, {"frees", std::move(frees)},
          {"why", std::move(why)}};
}

void AdviseMemory(json& rows, const ledger::Profile& profile, const Asked& asked) {
  const auto cap = static_cast<int64_t>(asked.memory_cap >> 20);
  auto bytes = [](int64_t mib) { return FormatBytes(static_cast<uint64_t>(mib) << 20); };
  const std::string used = bytes(profile.memory_p99_mib);
  // A quarter more than the p99, and never less than was ever used.
  const int64_t wanted =
      std::max(profile.memory_p99_mib * 5 / 4, profile.memory_peak_mib * 21 / 20);
  const int64_t fit = std::max<int64_t>(kStepMib, (wanted + kStepMib - 1) / kStepMib * kStepMib);
  if (cap == 0) return;
  if (fit * 3 / 2 < cap) {
    rows.push_back(AdviceRow(
        profile, "memory", bytes(cap), used, bytes(fit), bytes(cap - fit),
        fmt::format("it never used more than {} of its cap", bytes(profile.memory_peak_mib))));
  } else if (profile.memory_p99_mib * 100 >= cap * 95) {
    rows.push_back(AdviceRow(profile, "memory", bytes(cap), used, bytes(fit), "",
                             "it is at its cap, and may be refused more"));
  }
}

void AdviseRequest(json& rows, const ledger::Profile& profile, const Asked& asked) {
  auto percent = [](double part) { return fmt::format("{:.1f}%", part * 100); };
  const double request = asked.share.request / 1e6;
  // Whole percents, and a quarter more than the p99.
  const double fit = std::max(0.01, std::ceil(profile.held_p99 * 125) / 100);
  if (fit * 1.5 < request) {
    rows.push_back(AdviceRow(profile, "request", percent(request), percent(profile.held_p99),
                             percent(fit), percent(request - fit) + " of a GPU",
                             "it asks for far more than it uses; others cannot be placed there"));
  } else if (profile.held_p50 > 1.5 * request && request < 0.9) {
    rows.push_back(
        AdviceRow(profile, "request", percent(request), percent(profile.held_p99),
                  percent(std::min(1.0, std::ceil(profile.held_p50 * 100) / 100)), "",
                  "it lives on what others leave over, which may go to them at any time"));
  }
}

}  // namespace

Books::Books(boost::asio::io_context& io, const Options& options, Arbiter& arbiter,
             std::string source, EventLog& log)
    : io_(io),
      options_(options),
      arbiter_(arbiter),
      source_(std::move(source)),
      log_(log),
      timer_(io) {}

Books::~Books() {
  *alive_ = false;
  arbiter_.SetTeamPolicy(nullptr);
}

bool Books::Knows(const std::string& command) {
  return command == "report" || command == "standing" || command == "explain" ||
         command == "advise";
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
    if (it == held_.end()) return Fail(ErrorCode::kNotFound, "nobody has looked yet");
    return it->second;
  });
  for (const std::string& sentence : said) log_.Add(EventLog::Level::kWarning, "team", sentence);
  std::vector<std::string> present;
  for (const auto& [id, pod] : arbiter_.pods().all()) present.push_back(pod.team);
  index_.Retain(present);
  arbiter_.SetTeamPolicy(this);
  arbiter_.TeamsChanged();
  if (teams_told_) teams_told_();
}

Result<void> Books::Start() {
  arbiter_.KeepDeparted(true);
  auto started =
      ledger::LedgerWriter::Start(LedgerOptionsFrom(options_), !options_.upstream.connect.empty());
  if (!started) return tl::unexpected(started.error());
  writer_ = std::move(*started);
  beginning_ = arbiter_.SnapshotNow();
  Tick();
  return {};
}

void Books::Stop() {
  timer_.cancel();
  if (writer_ == nullptr) return;
  if (ready_) {
    ledger::Batch batch = arbiter_.SnapshotNow();
    batch.source = source_;
    batch.node = NodeName(options_);
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
    log_.Add(trouble.empty() ? EventLog::Level::kInfo : EventLog::Level::kWarning, "ledger",
             trouble.empty() ? "the ledger works again" : trouble);
  }
  if (std::string notice = writer_->TakeNotice(); !notice.empty()) {
    log_.Add(EventLog::Level::kWarning, "ledger", std::move(notice));
  }
  TakeSnapshot();
  LookAtTeams();
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
            log_.Add(EventLog::Level::kWarning, "ledger",
                     "the ledger knows nothing of what pods here used before now: it is new, or "
                     "was deleted; it counts from here");
          }
          beginning_.source = source_;
          beginning_.node = NodeName(options_);
          beginning_.seq = ++seq_;
          Put(beginning_, [](const Result<bool>&) {});
        }
        beginning_ = {};
        StartAbove(last->seq);  // an upstream may have said more
        ready_ = true;
        arbiter_.pods().StartAbove(last->largest_pod);
        TakeSnapshot();
      });
    });
    return;
  }
  arbiter_.Snapshot([this, alive = alive_](ledger::Batch batch) {
    if (!*alive) return;
    snapping_ = false;
    batch.source = source_;
    batch.node = NodeName(options_);
    batch.seq = ++seq_;
    const ledger::WallTime to = batch.to;
    Put(std::move(batch), [this, to](Result<bool> booked) {
      if (booked) arbiter_.Booked(to);
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
  looking_ = writer_->Ask(
      [this, alive = alive_, half_life = teams_.half_life, budgets](ledger::Ledger& ledger) {
        const ledger::WallTime now = ledger::WallNow();
        const auto decayed = ledger.Decayed(now, half_life);
        Held held;
        for (const auto& [team, period] : budgets) {
          const auto span = std::chrono::duration_cast<std::chrono::milliseconds>(period);
          held[team] = ledger.HeldBy(team, {now - span, now}).map([](int64_t ns) {
            return Hours(static_cast<double>(ns));
          });
        }
        std::vector<teams::Use> uses = decayed ? UsesOf(*decayed) : std::vector<teams::Use>();
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

// ----------------------------------------------------------------------------------- TeamPolicy

policy::ShareSpec Books::Effective(const Pod& pod) {
  policy::ShareSpec spec = pod.share;
  spec.team = index_.Of(teams::NormalPath(pod.team));
  spec.priority = budgets_.Effective(teams_, pod.team, spec.priority);
  return spec;
}

std::vector<uint32_t> Books::Weights(const std::vector<std::string>& present) {
  return index_.Weights(teams::SlackWeights(teams_, by_team_, present));
}

std::vector<teams::LimitPod> Books::LimitPods() const {
  std::vector<teams::LimitPod> pods;
  for (const auto& [id, pod] : arbiter_.pods().all()) {
    if (pod.throw_away) continue;
    pods.push_back({pod.name, pod.team, uint64_t{pod.share.request} * pod.gpus.size()});
  }
  return pods;
}

Result<void> Books::Admit(const Pod& pod) {
  // Who moves to a team is new there.
  const Pod* former = arbiter_.pods().FindByName(pod.name);
  if (former == nullptr || teams::NormalPath(former->team) != teams::NormalPath(pod.team)) {
    if (auto admitted = budgets_.Admit(teams_, pod.team); !admitted) return admitted;
  }
  return teams::CheckLimits(teams_, LimitPods(),
                            {pod.name, pod.team, uint64_t{pod.share.request} * pod.gpus.size()});
}

// ------------------------------------------------------------------------------------- questions

void Books::Ask(const json& request, Answer answer) {
  const std::string command = request.value("command", "");
  if (command == "report") return AskReport(request, std::move(answer));
  if (command == "standing") {
    if (auto texts = Texts(request, {}); !texts) return answer(tl::unexpected(texts.error()));
    return AskStanding(std::move(answer));
  }
  if (command == "explain") return AskExplain(request, std::move(answer));
  AskAdvise(request, std::move(answer));
}

void Books::Read(std::function<Result<json>(ledger::Ledger&)> work, Answer answer) {
  const bool asked =
      writer_->Ask([this, alive = alive_, work = std::move(work), answer](ledger::Ledger& ledger) {
        auto made = work(ledger);
        boost::asio::post(io_, [alive, answer, made = std::move(made)]() mutable {
          if (*alive) answer(std::move(made));
        });
      });
  if (!asked) {
    answer(
        Fail(ErrorCode::kUnavailable, "too many questions wait for the ledger; ask again later"));
  }
}

void Books::AskReport(const json& request, Answer answer) {
  const auto texts = Texts(request, {"by", "from", "to", "last"});
  if (!texts) return answer(tl::unexpected(texts.error()));
  const std::string& by_text = texts->at("by");
  const auto by = ledger::ParseBy(by_text.empty() ? "team" : by_text);
  if (!by) return answer(tl::unexpected(by.error()));
  const auto window =
      ledger::ParseWindow(texts->at("from"), texts->at("to"), texts->at("last"), ledger::WallNow());
  if (!window) return answer(tl::unexpected(window.error()));
  Read(
      [by = *by, window = *window, prices = options_.ledger.prices,
       currency = options_.ledger.currency](ledger::Ledger& ledger) -> Result<json> {
        auto uses = ledger.Query(window, by);
        if (!uses) return tl::unexpected(uses.error());
        return ledger::ReportJson(*uses, by, prices, currency);
      },
      std::move(answer));
}

void Books::AskStanding(Answer answer) {
  Read(
      [teams = teams_](ledger::Ledger& ledger) -> Result<json> {
        auto decayed = ledger.Decayed(ledger::WallNow(), teams.half_life);
        if (!decayed) return tl::unexpected(decayed.error());
        json rows = json::array();
        for (const teams::StandingRow& row : teams::Standing(teams, UsesOf(*decayed))) {
          const policy::FairShare& share = row.share;
          rows.push_back(
              {{"team", row.path},
               {"user", row.user},
               {"raw_shares", row.raw_shares},
               {"normalized_shares", share.normalized_shares},
               {"raw_usage_hours", Hours(share.raw_usage)},
               {"normalized_usage", share.normalized_usage},
               {"effective_usage", share.effective_usage},
               {"factor", share.factor},
               {"level_fs", std::isfinite(share.level_fs) ? json(share.level_fs) : json()},
               {"rank", share.rank},
               {"fair_tree", share.fair_tree}});
        }
        return json{{"half_life_s", static_cast<double>(Nanos(teams.half_life)) / 1e9},
                    {"k", teams.history / 1e6},
                    {"rows", std::move(rows)}};
      },
      std::move(answer));
}

void Books::AskExplain(const json& request, Answer answer) {
  const auto texts = Texts(request, {"pod", "team"});
  if (!texts) return answer(tl::unexpected(texts.error()));
  const std::string& name = texts->at("pod");
  const std::string& team = texts->at("team");
  if (name.empty() == team.empty()) {
    return answer(Fail(ErrorCode::kInvalid, "explain takes either pod or team"));
  }
  if (name.empty()) {
    if (!has_teams_) {
      return answer(Fail(ErrorCode::kNotFound,
                         "teams do not matter here: [teams] file is not set (docs/teams.md)"));
    }
    return answer(
        json{{"sentences", teams::ExplainTeam(teams_, team, by_team_, LimitPods(), &budgets_)}});
  }
  const Pod* pod = arbiter_.pods().FindByName(name);
  if (pod == nullptr) {
    return answer(Fail(ErrorCode::kNotFound,
                       fmt::format("there is no pod {}; 'baton status' lists them", name)));
  }
  const Instant now = MonotonicNow();
  json sentences = json::array();
  for (const std::string& uuid : pod->gpus) {
    auto it = arbiter_.gpus().find(uuid);
    if (it == arbiter_.gpus().end()) continue;
    const Arbiter::Gpu& gpu = *it->second;
    teams::ExplainGpu explain{uuid, {}, has_teams_ ? &teams_ : nullptr};
    size_t at = 0;
    std::optional<double> waited;
    for (const PodStatus& status : it->second->scheduler.Status(now)) {
      const Pod* other = arbiter_.pods().Find(status.pod);
      if (other == nullptr) continue;
      if (other == pod) {
        at = explain.pods.size();
        if (auto on = gpu.pods.find(pod->id); on != gpu.pods.end()) {
          const uint64_t held = arbiter_.HeldNow(gpu, pod->id, now);
          waited = on->second.series
                       .Over(std::chrono::minutes(1), now, held,
                             static_cast<uint64_t>(Nanos(status.waited)))
                       .waited;
        }
      }
      explain.pods.push_back({other->name, other->team, arbiter_.SpecOf(*other), status.fluid > 0});
    }
    if (explain.pods.empty()) continue;
    for (std::string& sentence :
         teams::ExplainShare(explain, at, by_team_, waited, has_teams_ ? &budgets_ : nullptr)) {
      sentences.push_back(std::move(sentence));
    }
  }
  if (!pod->by_token()) {
    sentences.push_back(
        fmt::format("{} has its part of each GPU by {}, not by turns: nothing of it "
                    "is measured.",
                    name, pod->mode));
  }
  answer(json{{"sentences", std::move(sentences)}});
}

void Books::AskAdvise(const json& request, Answer answer) {
  const auto texts = Texts(request, {"last"});
  if (!texts) return answer(tl::unexpected(texts.error()));
  const std::string& last = texts->at("last");
  const auto window = ledger::ParseWindow("", "", last.empty() ? "7d" : last, ledger::WallNow());
  if (!window) return answer(tl::unexpected(window.error()));
  std::map<std::string, Asked> asked;
  for (const auto& [id, pod] : arbiter_.pods().all()) {
    if (!pod.throw_away)
      asked[pod.name] = {pod.share, pod.gpus.empty() ? 0 : pod.CapOn(pod.gpus.front())};
  }
  Read(
      [window = *window, asked = std::move(asked)](ledger::Ledger& ledger) -> Result<json> {
        auto profiles = ledger.Profiles(window);
        if (!profiles) return tl::unexpected(profiles.error());
        json rows = json::array();
        for (const ledger::Profile& profile : *profiles) {
          auto pod = asked.find(profile.owner.pod);
          if (pod == asked.end() || profile.buckets < kBucketsLeast) continue;
          AdviseMemory(rows, profile, pod->second);
          AdviseRequest(rows, profile, pod->second);
        }
        return json{{"from", ledger::FormatTime(window.from)},
                    {"to", ledger::FormatTime(window.to)},
                    {"rows", std::move(rows)}};
      },
      std::move(answer));
}

}  // namespace baton::backend
