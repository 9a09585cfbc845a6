#include "backend/reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "backend/advise.h"
#include "backend/gpu_history.h"
#include "backend/latency.h"
#include "backend/memory_room.h"
#include "backend/pod_use.h"
#include "backend/receipt.h"
#include "backend/what_if.h"
#include "backend/workload.h"
#include "base/parse.h"
#include "base/team_path.h"
#include "ledger/report.h"
#include "ledger/terms.h"
#include "teams/explain.h"

namespace baton::backend {
namespace {

using nlohmann::json;
using Fields = std::map<std::string, std::string>;

constexpr size_t kTextMax = 512;
constexpr Duration kForecastMax = std::chrono::hours(3650 * 24);
// Of a GPU's time.
constexpr double kHandoffsWorthAWord = 0.001;

double Hours(double ns) { return ns / 3600e9; }

// A team's budget, and how it stands.
struct Budgeted {
  std::string team;
  double hours = 0;
  double period_s = 0;
  teams::BudgetState state;
};

std::vector<Budgeted> BudgetsOf(const ReportView& view) {
  std::vector<Budgeted> budgets;
  for (const teams::Team& team : view.teams.teams) {
    if (team.budget <= 0) continue;
    const auto state = view.budgets.states().find(team.path);
    budgets.push_back(
        {team.path, team.budget, static_cast<double>(Nanos(team.budget_period)) / 1e9,
         state == view.budgets.states().end() ? teams::BudgetState{} : state->second});
  }
  return budgets;
}

// A budget is of a team and all below it, and of a period of its own: it stands beside the use of
// the window. A team that used nothing itself gets a row, for those below it may have.
void AddBudgets(json& report, const std::vector<Budgeted>& budgets, const std::string& below) {
  json& rows = report.at("rows");
  for (const Budgeted& budget : budgets) {
    if (!below.empty() && !teams::IsIn(budget.team, teams::NormalPath(below))) continue;
    auto row = std::find_if(rows.begin(), rows.end(), [&](const json& r) {
      return teams::NormalPath(r.at("key").get_ref<const std::string&>()) == budget.team;
    });
    if (row == rows.end()) {
      json none{{"key", budget.team}, {"efficiency", 0.0}, {"launches", 0}, {"grants", 0}};
      for (const char* hours :
           {"held_hours", "busy_hours", "waited_hours", "unmanaged_hours", "memory_gib_hours"}) {
        none[hours] = 0.0;
      }
      if (report.contains("cost")) none["cost"] = 0.0;
      row = rows.insert(std::find_if(rows.begin(), rows.end(),
                                     [&](const json& r) { return r.at("key") > budget.team; }),
                        std::move(none));
    }
    (*row)["budget_hours"] = budget.hours;
    (*row)["budget_period_s"] = budget.period_s;
    (*row)["budget_held_hours"] = budget.state.held_hours;
    (*row)["over_budget"] = budget.state.over;
  }
}

Result<ReportAnswer> AskUse(const Fields& field, const ReportView& view) {
  const std::string& by_text = field.at("by");
  const auto by = ledger::ParseBys(by_text.empty() ? "team" : by_text);
  if (!by) return tl::unexpected(by.error());
  return LedgerQuery(
      [field, by = *by, budgets = BudgetsOf(view), prices = view.options.ledger.prices,
       currency = view.options.ledger.currency,
       factors = view.options.ledger.factors()](ledger::Ledger& ledger) -> Result<json> {
        Result<ledger::Question> asked = QuestionOf(field, prices);
        if (!asked) return tl::unexpected(asked.error());
        ledger::Question& question = *asked;
        question.by = by;
        question.user = field.at("user");
        question.name_space = field.at("namespace");
        auto uses = ledger.Query(question);
        if (!uses) return tl::unexpected(uses.error());
        json report = ledger::ReportJson(*uses, question, prices, currency, factors);
        const bool some =
            !question.user.empty() || !question.name_space.empty() || !question.pod.empty();
        if (by == std::vector{ledger::By::kTeam} && !some) {
          AddBudgets(report, budgets, question.team);
        }
        return report;
      });
}

// A course is told at so many moments beside its beginning.
constexpr int64_t kForecastPoints = 32;
// Steps of the reckoning in a half-life.
constexpr int64_t kForecastSteps = 1'000;
// And at most between two moments that are told: whoever asks has a bound on what it costs.
constexpr int64_t kForecastMost = 128;

// The pods whose shares a forecast is of: all that have tokens and a request.
std::vector<teams::CoursePod> CoursePodsOf(Arbiter& arbiter) {
  std::vector<teams::CoursePod> pods;
  std::map<std::string_view, uint32_t> numbers;
  for (const auto& [id, pod] : arbiter.pods().all()) {
    if (pod.throw_away || !pod.by_token() || pod.share.priority == policy::Priority::kIdle)
      continue;
    for (const std::string& gpu : pod.gpus) {
      const auto number = static_cast<uint32_t>(numbers.size());
      pods.push_back(
          {pod.team, numbers.emplace(gpu, number).first->second, arbiter.shares().SpecOf(pod)});
    }
  }
  return pods;
}

// How shares and use of teams go on from now.
json ForecastJson(const teams::Teams& teams, const std::vector<teams::Use>& uses,
                  const std::vector<teams::CoursePod>& pods, Duration length) {
  // Divided first: a thousand times ten years is no Duration.
  const int64_t finest = length / std::max(Duration(1), teams.half_life / kForecastSteps);
  const Duration step =
      length / kForecastPoints / std::clamp<int64_t>(finest / kForecastPoints, 1, kForecastMost);
  const teams::Course course = teams::Forecast(teams, uses, pods, length, step);
  json points = json::array();
  for (int64_t n = 0; n <= kForecastPoints; ++n) {
    const auto at =
        static_cast<size_t>(n * static_cast<int64_t>(course.points.size() - 1) / kForecastPoints);
    const teams::CoursePoint& point = course.points[at];
    points.push_back({{"at_s", static_cast<double>(Nanos(point.at)) / 1e9},
                      {"gpus", point.share},
                      {"usage", point.usage}});
  }
  return {{"teams", course.teams}, {"points", std::move(points)}};
}

Result<ReportAnswer> AskStanding(const Fields& field, const ReportView& view) {
  std::optional<Duration> ahead;
  std::vector<teams::CoursePod> pods;
  if (const std::string& said = field.at("forecast"); !said.empty()) {
    const auto length = ParseDuration(said);
    if (!length || *length < std::chrono::minutes(1) || *length > kForecastMax) {
      return Fail(ErrorCode::kInvalid,
                  "forecast: '" + said + "' is not a time from 1m to 3650d, such as 14d");
    }
    ahead = *length;
    pods = CoursePodsOf(view.arbiter);
    if (pods.empty()) {
      return Fail(ErrorCode::kNotFound,
                  "forecast: there are no pods with tokens here; ask the batond that grants them");
    }
  }
  return LedgerQuery([teams = view.teams, weights = view.options.ledger.weights,
                      uncontended_use = view.options.teams.uncontended_use, ahead,
                      pods = std::move(pods)](ledger::Ledger& ledger) -> Result<json> {
    auto decayed = ledger.Decayed(ledger::WallNow(), teams.half_life, weights);
    if (!decayed) return tl::unexpected(decayed.error());
    const std::vector<teams::Use> uses = UsesOf(*decayed, uncontended_use);
    json rows = json::array();
    for (const teams::StandingRow& row : teams::Standing(teams, uses)) {
      const policy::FairShare& share = row.share;
      rows.push_back({{"team", row.path},
                      {"user", row.user},
                      {"raw_shares", row.raw_shares},
                      {"normalized_shares", share.normalized_shares},
                      {"raw_usage_hours", Hours(share.raw_usage)},
                      {"uncounted_hours", Hours(share.raw_uncounted)},
                      {"normalized_usage", share.normalized_usage},
                      {"effective_usage", share.effective_usage},
                      {"factor", share.factor},
                      {"level_fs", std::isfinite(share.level_fs) ? json(share.level_fs) : json()},
                      {"rank", share.rank},
                      {"fair_tree", share.fair_tree}});
    }
    json answer{{"half_life_s", static_cast<double>(Nanos(teams.half_life)) / 1e9},
                {"k", teams.history / 1e6},
                {"uncontended_use", policy::Ratio(uncontended_use)},
                {"rows", std::move(rows)}};
    if (ahead) answer["forecast"] = ForecastJson(teams, uses, pods, *ahead);
    return answer;
  });
}

// Who else is on the pod's GPU, and takes time that no token gives.
void AddUnmanaged(json& sentences, const Arbiter& arbiter, const Pod& pod,
                  const std::string& uuid) {
  const auto it = arbiter.gpus().find(uuid);
  if (it == arbiter.gpus().end()) return;
  for (const UnmanagedProcess& process : it->second->unmanaged) {
    sentences.push_back(fmt::format(
        "On {} {} launches without the token{}.", uuid, Describe(process),
        process.pod == pod.name
            ? ": the hook is not in it, so neither request, limit nor memory cap hold for it (was "
              "LD_PRELOAD replaced, or is the program linked statically?)"
            : ": what it takes of the GPU is missing to all pods there"));
  }
}

// How much of its part a pod without tokens uses.
void AddPartUsed(json& sentences, const Arbiter& arbiter, const Pod& pod, const std::string& uuid,
                 Instant now) {
  const auto it = arbiter.gpus().find(uuid);
  if (it == arbiter.gpus().end()) return;
  const auto on = it->second->pods.find(pod.id);
  const PodUse* use = on != it->second->pods.end() ? UseNow(on->second, now) : nullptr;
  sentences.push_back(
      use == nullptr
          ? fmt::format("How much of its part of {} it uses is not measured: NVML does not tell.",
                        uuid)
          : fmt::format("By NVML, it kept the SMs of its part of {} busy for {:.0f} % of the last "
                        "seconds.",
                        uuid, use->sm * 100));
}

// Where the memory of a pod with swap is.
void AddSwap(json& sentences, const Arbiter& arbiter, const Pod& pod, const std::string& uuid) {
  const auto it = arbiter.gpus().find(uuid);
  if (!pod.swap || it == arbiter.gpus().end()) return;
  const auto on = it->second->pods.find(pod.id);
  if (on == it->second->pods.end()) return;
  sentences.push_back(fmt::format(
      "{} of {} that {} has on {} is swapped out to the host; {} is always there for it.{}",
      FormatBytes(SwappedOut(*it->second, pod.id)), FormatBytes(on->second.memory), pod.name, uuid,
      FormatBytes(pod.memory_request),
      on->second.swap.held_back
          ? " It has work, and stands aside until other pods with swap make room."
      : IsReleased(*it->second, pod.id)
          ? " It has had no work for longer than [memory] idle_release: all of it comes back when "
            "it launches."
          : ""));
}

// Whether the driver holds its memory cap too, where it can.
void AddKernelCap(json& sentences, const Arbiter& arbiter, const Pod& pod,
                  const std::string& uuid) {
  const auto it = arbiter.gpus().find(uuid);
  if (it == arbiter.gpus().end() || !pod.by_token()) return;
  if (!arbiter.kernel_caps().WhyNot(*it->second).empty()) return;
  const KernelCaps::Held held = arbiter.kernel_caps().Of(*it->second, pod);
  if (held.by_driver) {
    sentences.push_back(fmt::format(
        "On {} the driver holds its memory cap too, for every process of its container.", uuid));
  } else if (!held.why.empty()) {
    sentences.push_back(
        fmt::format("On {} the hook alone holds its memory cap: {}.", uuid, held.why));
  }
}

// What hand-offs took of the pod's GPU lately, where it is worth a word.
void AddHandoffs(json& sentences, const Gpu& gpu, Instant now, policy::Share most) {
  const scheduler::TokenScheduler& tokens = gpu.scheduler;
  const double part = gpu.handoffs
                          .Over(std::chrono::minutes(1), now,
                                static_cast<uint64_t>(Nanos(tokens.handoff_total())), 0)
                          .held;
  if (part < kHandoffsWorthAWord) return;
  std::string sentence = fmt::format(
      "In the last minute {} stood still for {:.1f} % of the time because its token moved from pod "
      "to pod.",
      gpu.info.uuid, 100 * part);
  if (part > policy::Ratio(most)) {
    sentence += fmt::format(
        " That is more than handoff_fraction ({:.1f} %): threads wake up late on this machine.",
        policy::Percent(most));
  }
  sentences.push_back(std::move(sentence));
}

// When its program last got no memory, and why.
void AddRefusal(json& sentences, const Arbiter& arbiter, const Pod& pod, const std::string& uuid,
                Instant now) {
  const auto it = arbiter.gpus().find(uuid);
  if (it == arbiter.gpus().end()) return;
  const auto on = it->second->pods.find(pod.id);
  if (on == it->second->pods.end() || on->second.refusal.times == 0) return;
  const MemoryRefusal& refusal = on->second.refusal;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - refusal.at).count();
  sentences.push_back(
      fmt::format("{} is out of memory: {} s ago it {}.", pod.name, seconds, refusal.text));
}

Result<ReportAnswer> AskExplain(const Fields& field, const ReportView& view) {
  const std::string& name = field.at("pod");
  const std::string& team = field.at("team");
  if (name.empty() == team.empty()) {
    return Fail(ErrorCode::kInvalid, "explain takes either pod or team");
  }
  if (name.empty()) {
    if (!view.has_teams) {
      return Fail(ErrorCode::kNotFound,
                  "there are no teams here: [teams] file is not set (docs/teams.md)");
    }
    return json{{"sentences", teams::ExplainTeam(view.teams, team, view.by_team,
                                                 LimitPods(view.arbiter.pods()), &view.budgets)}};
  }
  const Pod* pod = view.arbiter.pods().FindByName(name);
  if (pod == nullptr) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("no pod {}; 'baton status' lists the pods", name));
  }
  const Instant now = MonotonicNow();
  json sentences = json::array();
  if (const size_t missing = view.arbiter.pods().MissingOf(*pod); missing != 0) {
    sentences.push_back(
        fmt::format("{} waits for {} more pod{} of gang {}: until then none of its "
                    "pods launches.",
                    name, missing, missing == 1 ? "" : "s", pod->gang));
  }
  if (pod->beside_own) {
    sentences.push_back(
        fmt::format("{} shares a GPU with another pod of gang {}, so its tokens come "
                    "by themselves, not with the others'.",
                    name, pod->gang));
  }
  for (const std::string& uuid : pod->gpus) {
    auto it = view.arbiter.gpus().find(uuid);
    if (it == view.arbiter.gpus().end()) continue;
    const Gpu& gpu = *it->second;
    teams::ExplainGpu explain{uuid, {}, view.has_teams ? &view.teams : nullptr};
    size_t at = 0;
    std::optional<double> waited;
    for (const scheduler::PodStatus& status : it->second->scheduler.Status(now)) {
      const Pod* other = view.arbiter.pods().Find(status.pod);
      if (other == nullptr) continue;
      if (other == pod) {
        at = explain.pods.size();
        if (auto on = gpu.pods.find(pod->id); on != gpu.pods.end()) {
          const uint64_t held = view.arbiter.accounts().HeldNow(gpu, pod->id, now);
          waited = on->second.series
                       .Over(std::chrono::minutes(1), now, held,
                             static_cast<uint64_t>(Nanos(status.waited)))
                       .waited;
        }
      }
      explain.pods.push_back({other->name, other->team, view.arbiter.shares().SpecOf(*other),
                              status.fluid > policy::Share(0), status.paused});
    }
    if (explain.pods.empty()) continue;
    for (std::string& sentence : teams::ExplainShare(explain, at, view.by_team, waited,
                                                     view.has_teams ? &view.budgets : nullptr)) {
      sentences.push_back(std::move(sentence));
    }
    AddHandoffs(sentences, gpu, now, view.options.scheduler.handoff_fraction);
  }
  for (const std::string& uuid : pod->gpus) {
    const auto it = view.arbiter.gpus().find(uuid);
    if (it == view.arbiter.gpus().end()) continue;
    for (std::string& sentence : LatencySentences(*it->second, view.arbiter.pods(), *pod, now)) {
      sentences.push_back(std::move(sentence));
    }
  }
  for (const std::string& uuid : pod->gpus) AddSwap(sentences, view.arbiter, *pod, uuid);
  for (const std::string& uuid : pod->gpus) AddRefusal(sentences, view.arbiter, *pod, uuid, now);
  for (const std::string& uuid : pod->gpus) AddKernelCap(sentences, view.arbiter, *pod, uuid);
  for (const std::string& uuid : pod->gpus) AddUnmanaged(sentences, view.arbiter, *pod, uuid);
  if (pod->allocated) {
    sentences.push_back(
        fmt::format("{} has its GPUs{} as a whole and without the token: all of the time since it "
                    "was created counts as held.",
                    name, pod->without_hook ? "" : ", which are not NVIDIA's,"));
  } else if (!pod->by_token()) {
    sentences.push_back(
        fmt::format("{} has a part of {} by {} and waits for no token: the part counts as held for "
                    "as long as the pod exists.",
                    name, pod->gpus.size() > 1 ? "each of its GPUs" : "its GPU",
                    pod->mode == spec::kMig ? "MIG" : "MPS"));
    for (const std::string& uuid : pod->gpus) AddPartUsed(sentences, view.arbiter, *pod, uuid, now);
  }
  return json{{"sentences", std::move(sentences)}};
}

// As people write it; `was` and `is` of a row have it as it is kept.
std::string TextOf(const std::string& key, const json& value) {
  if ((key == "memory" || key == "memory_request") && value.is_number_unsigned()) {
    return FormatBytes(value.get<uint64_t>());
  }
  if (key == "priority" && value == "low") return "normal";
  if (value.is_string()) return value.get<std::string>();
  const auto is_text = [](const json& one) { return one.is_string(); };
  if (value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), is_text)) {
    std::string text;
    for (const json& one : value) text += (text.empty() ? "" : " ") + one.get<std::string>();
    return text;
  }
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// What is not as it was: "limit 80 -> 100, request 30 -> 40"; of what was made or deleted all of
// it.
std::string ChangeText(const json& was, const json& is) {
  std::set<std::string> keys;
  for (const json* object : {&was, &is}) {
    if (!object->is_object()) continue;
    for (const auto& [key, value] : object->items()) keys.insert(key);
  }
  std::string text;
  for (const std::string& key : keys) {
    const json before = was.is_object() ? was.value(key, json()) : json();
    const json after = is.is_object() ? is.value(key, json()) : json();
    // When it was asked for is of no interest to who changed what.
    if (before == after || key == "asked_at") continue;
    text += (text.empty() ? "" : ", ") + key + " ";
    if (before.is_null()) {
      text += TextOf(key, after);
    } else if (after.is_null()) {
      text += "was " + TextOf(key, before);
    } else {
      text += TextOf(key, before) + " -> " + TextOf(key, after);
    }
  }
  return text;
}

// Of a team what it has: 0 is none there, no limit of 0 GPUs.
void WithoutNone(json& team) {
  if (!team.is_object()) return;
  if (team.value("limit", json()) == 0) team.erase("limit");
  if (team.value("users", json()) == json::object()) team.erase("users");
  if (team.value("budget", json()) != 0) return;
  for (const char* of_budget : {"budget", "budget_period_s", "over_budget"}) team.erase(of_budget);
}

// Prices with dates as people write them: "2.5, 3.0 from 2027-01-01T00:00:00Z".
json PricesInWords(const json& price) {
  const auto dated = price.is_object() ? price.find("prices") : price.end();
  if (dated == price.end() || !dated->is_array()) return price;
  std::string words;
  for (const json& one : *dated) {
    if (!one.is_object()) return price;
    const std::string from = one.value("from", "");
    words += (words.empty() ? "" : ", ") + one.value("price", json()).dump();
    if (from != ledger::FormatTime({})) words += " from " + from;
  }
  return {{"price", words}};
}

Result<ReportAnswer> AskLog(const Fields& field, const ReportView&) {
  const auto window = WindowOf(field, "7d");
  if (!window) return tl::unexpected(window.error());
  // What is done in this moment is a part of it.
  ledger::ChangesQuestion question{.from = window->from,
                                   .to = window->to + std::chrono::milliseconds(1),
                                   .who = field.at("who"),
                                   .kind = "",
                                   .object = "",
                                   .wide = true};
  for (const char* kind : {"pod", "gpu", "team"}) {
    const std::string& object = field.at(kind);
    if (object.empty()) continue;
    if (!question.kind.empty()) {
      return Fail(ErrorCode::kInvalid, "pod, gpu and team do not go together");
    }
    question.kind = kind;
    question.object = question.kind == "team" ? TeamPath(object) : object;
  }
  return LedgerQuery([window = *window, question](ledger::Ledger& ledger) -> Result<json> {
    const auto changes = ledger.Changes(question);
    if (!changes) return tl::unexpected(changes.error());
    json rows = json::array();
    for (const ledger::Change& change : *changes) {
      json was = ledger::ObjectIn(change.was), is = ledger::ObjectIn(change.is);
      if (change.kind == "team") {
        WithoutNone(was);
        WithoutNone(is);
      }
      rows.push_back(
          {{"at", ledger::FormatTime(change.at)},
           {"node", change.node},
           {"who", change.who},
           {"action", change.action},
           {"kind", change.kind},
           {"object", change.object},
           {"change", change.kind == "price" ? ChangeText(PricesInWords(was), PricesInWords(is))
                                             : ChangeText(was, is)},
           {"was", was},
           {"is", is}});
    }
    return json{{"from", ledger::FormatTime(window.from)},
                {"to", ledger::FormatTime(window.to)},
                {"more", changes->size() == question.most},
                {"rows", std::move(rows)}};
  });
}

constexpr std::string_view kBy = "by", kFrom = "from", kTo = "to", kLast = "last", kTeam = "team",
                           kPod = "pod";

const std::array kReports{
    Report{
        "report", {kBy, kFrom, kTo, kLast, kTeam, "user", "namespace", kPod, "time_zone"}, AskUse},
    Report{"standing", {"forecast"}, AskStanding},
    Report{"explain", {kPod, kTeam}, AskExplain},
    Report{"advise", {kLast}, AskAdvise},
    Report{"whatif", {kFrom, kTo, kLast, "shares"}, AskWhatIf},
    Report{"workload", {kFrom, kTo, kLast}, AskWorkload},
    Report{"history", {"gpu", kFrom, kTo, kLast}, AskHistory},
    Report{"log", {kFrom, kTo, kLast, kPod, "gpu", kTeam, "who"}, AskLog},
    Report{"receipt", {kPod, kTeam, kFrom, kTo, kLast, "time_zone", kBy}, AskReceipt},
    Report{"receipt_key", {}, AskReceiptKey},
};

}  // namespace

Result<ledger::Window> WindowOf(const std::map<std::string, std::string>& field,
                                const char* otherwise) {
  const bool said = !field.at("from").empty() || !field.at("to").empty();
  const std::string& last = field.at("last");
  return ledger::ParseWindow(field.at("from"), field.at("to"),
                             last.empty() && !said ? otherwise : last, ledger::WallNow());
}

Result<ledger::Question> QuestionOf(const std::map<std::string, std::string>& field,
                                    const ledger::Prices& prices) {
  ledger::Question question;
  const auto zone = ledger::FindTimeZone(field.at("time_zone"));
  if (!zone) return tl::unexpected(zone.error());
  question.zone = *zone;
  const auto window = ledger::ParseWindow(field.at("from"), field.at("to"), field.at("last"),
                                          ledger::WallNow(), *zone);
  if (!window) return tl::unexpected(window.error());
  question.window = *window;
  question.changes = ledger::PriceChanges(prices);
  if (!field.at("team").empty()) question.team = teams::NormalPath(field.at("team"));
  question.pod = field.at("pod");
  return question;
}

std::span<const Report> Reports() { return kReports; }

const Report* FindReport(std::string_view name) {
  const auto found = std::find_if(kReports.begin(), kReports.end(),
                                  [&](const Report& report) { return report.name == name; });
  return found == kReports.end() ? nullptr : &*found;
}

Result<Fields> FieldsOf(const Report& report, const json& question) {
  Fields fields;
  for (const std::string_view name : report.fields) fields[std::string(name)];
  for (const auto& [key, value] : question.items()) {
    if (key == "command") continue;
    auto it = fields.find(key);
    if (it == fields.end()) {
      return Fail(ErrorCode::kInvalid, "this command has no field " + key.substr(0, 64));
    }
    if (!value.is_string() || value.get_ref<const std::string&>().size() > kTextMax) {
      return Fail(ErrorCode::kInvalid, key + " must be a text of at most 512 characters");
    }
    it->second = value;
  }
  return fields;
}

std::vector<teams::LimitPod> LimitPods(const Pods& pods) {
  std::vector<teams::LimitPod> counted;
  for (const auto& [id, pod] : pods.all()) {
    if (pod.throw_away) continue;
    counted.push_back({pod.name, pod.team, policy::ShareSum(pod.share.request) * pod.gpus.size()});
  }
  return counted;
}

std::vector<teams::Use> UsesOf(const std::vector<ledger::DecayedUse>& decayed,
                               policy::Share uncontended_use) {
  std::vector<teams::Use> uses;
  uses.reserve(decayed.size());
  for (const ledger::DecayedUse& use : decayed) {
    const double all = std::max(0.0, use.decayed_ns);
    const double uncounted =
        (1 - policy::Ratio(uncontended_use)) * std::clamp(use.uncontended_ns, 0.0, all);
    uses.push_back({use.team, use.user, all - uncounted, uncounted});
  }
  return uses;
}

}  // namespace baton::backend
