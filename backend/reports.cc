#include "backend/reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "backend/memory_room.h"
#include "backend/what_if.h"
#include "base/parse.h"
#include "ledger/report.h"
#include "teams/explain.h"

namespace baton::backend {
namespace {

using nlohmann::json;
using Fields = std::map<std::string, std::string>;

constexpr size_t kTextMax = 512;
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
      if (report.contains("currency")) none["cost"] = 0.0;
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
  // Zones are files, so all that needs one is read in the ledger's thread.
  return LedgerQuery(
      [field, by = *by, budgets = BudgetsOf(view), prices = view.options.ledger.prices,
       currency = view.options.ledger.currency](ledger::Ledger& ledger) -> Result<json> {
        ledger::Question question;
        question.by = by;
        const auto zone = ledger::FindTimeZone(field.at("time_zone"));
        if (!zone) return tl::unexpected(zone.error());
        question.zone = *zone;
        const auto window = ledger::ParseWindow(field.at("from"), field.at("to"), field.at("last"),
                                                ledger::WallNow(), *zone);
        if (!window) return tl::unexpected(window.error());
        question.window = *window;
        question.changes = ledger::PriceChanges(prices);
        if (!field.at("team").empty()) question.team = teams::NormalPath(field.at("team"));
        question.user = field.at("user");
        question.name_space = field.at("namespace");
        question.pod = field.at("pod");
        auto uses = ledger.Query(question);
        if (!uses) return tl::unexpected(uses.error());
        json report = ledger::ReportJson(*uses, question, prices, currency);
        const bool some =
            !question.user.empty() || !question.name_space.empty() || !question.pod.empty();
        if (by == std::vector{ledger::By::kTeam} && !some) {
          AddBudgets(report, budgets, question.team);
        }
        return report;
      });
}

Result<ReportAnswer> AskStanding(const Fields&, const ReportView& view) {
  return LedgerQuery([teams = view.teams, weights = view.options.ledger.weights](
                         ledger::Ledger& ledger) -> Result<json> {
    auto decayed = ledger.Decayed(ledger::WallNow(), teams.half_life, weights);
    if (!decayed) return tl::unexpected(decayed.error());
    json rows = json::array();
    for (const teams::StandingRow& row : teams::Standing(teams, UsesOf(*decayed))) {
      const policy::FairShare& share = row.share;
      rows.push_back({{"team", row.path},
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
  for (const std::string& uuid : pod->gpus) AddSwap(sentences, view.arbiter, *pod, uuid);
  for (const std::string& uuid : pod->gpus) AddRefusal(sentences, view.arbiter, *pod, uuid, now);
  for (const std::string& uuid : pod->gpus) AddKernelCap(sentences, view.arbiter, *pod, uuid);
  for (const std::string& uuid : pod->gpus) AddUnmanaged(sentences, view.arbiter, *pod, uuid);
  if (pod->allocated) {
    sentences.push_back(
        fmt::format("{} has its GPUs, which are not NVIDIA's, as a whole and without the token: "
                    "all of the time since it was created counts as held.",
                    name));
  } else if (!pod->by_token()) {
    sentences.push_back(
        fmt::format("{} has a part of each GPU by {}, not by the token: that part counts as held "
                    "for as long as the pod is there, and how much of it the pod uses is not "
                    "measured.",
                    name, pod->mode));
  }
  return json{{"sentences", std::move(sentences)}};
}

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
                             "it is at its cap; its next allocation may fail"));
  }
}

void AdviseRequest(json& rows, const ledger::Profile& profile, const Asked& asked) {
  if (asked.share.priority == policy::Priority::kIdle) return;  // it has none, and wants none
  auto percent = [](double part) { return fmt::format("{:.1f}%", part * 100); };
  const double request = policy::Ratio(asked.share.request);
  // Whole percents, and a quarter more than the p99.
  const double fit = std::max(0.01, std::ceil(profile.held_p99 * 125) / 100);
  if (fit * 1.5 < request) {
    rows.push_back(AdviceRow(profile, "request", percent(request), percent(profile.held_p99),
                             percent(fit), percent(request - fit) + " of a GPU",
                             "its request is far above its use, and keeps other pods away"));
  } else if (profile.held_p50 > 1.5 * request && request < 0.9) {
    rows.push_back(
        AdviceRow(profile, "request", percent(request), percent(profile.held_p99),
                  percent(std::min(1.0, std::ceil(profile.held_p50 * 100) / 100)), "",
                  "it depends on time that other pods leave over and may need at any time"));
  }
}

Result<ReportAnswer> AskAdvise(const Fields& field, const ReportView& view) {
  const std::string& last = field.at("last");
  const auto window = ledger::ParseWindow("", "", last.empty() ? "7d" : last, ledger::WallNow());
  if (!window) return tl::unexpected(window.error());
  std::map<std::string, Asked> asked;
  for (const auto& [id, pod] : view.arbiter.pods().all()) {
    if (!pod.throw_away && pod.by_token())
      asked[pod.name] = {pod.share, pod.gpus.empty() ? 0 : pod.CapOn(pod.gpus.front())};
  }
  return LedgerQuery(
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
      });
}

// Of texts that this daemon, or one of another version, wrote.
json ObjectIn(const std::string& text) {
  json object = text.empty() ? json() : json::parse(text, nullptr, false);
  return object.is_object() ? object : json();
}

std::string TextOf(const json& value) {
  if (value.is_string()) return value.get<std::string>();
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
    if (before == after) continue;
    text += (text.empty() ? "" : ", ") + key + " ";
    if (before.is_null()) {
      text += TextOf(after);
    } else if (after.is_null()) {
      text += "was " + TextOf(before);
    } else {
      text += TextOf(before) + " -> " + TextOf(after);
    }
  }
  return text;
}

Result<ReportAnswer> AskLog(const Fields& field, const ReportView&) {
  const bool said = !field.at("from").empty() || !field.at("to").empty();
  const std::string& last = field.at("last");
  const auto window = ledger::ParseWindow(field.at("from"), field.at("to"),
                                          last.empty() && !said ? "7d" : last, ledger::WallNow());
  if (!window) return tl::unexpected(window.error());
  // What is done in this moment is a part of it.
  ledger::ChangesQuestion question{.from = window->from,
                                   .to = window->to + std::chrono::milliseconds(1),
                                   .who = field.at("who"),
                                   .kind = "",
                                   .object = ""};
  for (const char* kind : {"pod", "gpu", "team"}) {
    const std::string& object = field.at(kind);
    if (object.empty()) continue;
    if (!question.kind.empty()) {
      return Fail(ErrorCode::kInvalid, "pod, gpu and team do not go together");
    }
    question.kind = kind;
    question.object = object;
  }
  return LedgerQuery([window = *window, question](ledger::Ledger& ledger) -> Result<json> {
    const auto changes = ledger.Changes(question);
    if (!changes) return tl::unexpected(changes.error());
    json rows = json::array();
    for (const ledger::Change& change : *changes) {
      const json was = ObjectIn(change.was), is = ObjectIn(change.is);
      rows.push_back({{"at", ledger::FormatTime(change.at)},
                      {"node", change.node},
                      {"who", change.who},
                      {"action", change.action},
                      {"kind", change.kind},
                      {"object", change.object},
                      {"change", ChangeText(was, is)},
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
    Report{"standing", {}, AskStanding},
    Report{"explain", {kPod, kTeam}, AskExplain},
    Report{"advise", {kLast}, AskAdvise},
    Report{"whatif", {kFrom, kTo, kLast, "shares"}, AskWhatIf},
    Report{"log", {kFrom, kTo, kLast, kPod, "gpu", kTeam, "who"}, AskLog},
};

}  // namespace

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

std::vector<teams::Use> UsesOf(const std::vector<ledger::DecayedUse>& decayed) {
  std::vector<teams::Use> uses;
  uses.reserve(decayed.size());
  for (const ledger::DecayedUse& use : decayed) {
    uses.push_back({use.team, use.user, use.decayed_ns});
  }
  return uses;
}

}  // namespace baton::backend
