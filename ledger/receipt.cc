#include "ledger/receipt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/team_path.h"
#include "ledger/report.h"
#include "ledger/time_zone.h"

namespace baton::ledger {
namespace {

using nlohmann::json;

constexpr int64_t kMillionths = 1'000'000;

// Why a pod held less than it was guaranteed.
enum Reason : size_t {
  kNoWork,        // it neither held nor waited
  kOutage,        // the GPU or batond was not there
  kOvercommit,    // the requests of those with work were more than the GPU
  kLimit,         // its limit, which is its request
  kHighPriority,  // others of high priority went first
  kUnattributed,  // nobody held the GPU while it waited: hand-offs, batond away, work without a
                  // token
  kOthers,        // other pods held the GPU while it waited
  kUnknown,
  kReasons
};
constexpr std::array<const char*, kReasons> kReasonFields = {
    "no_work_hours",       "outage_hours",       "overcommit_hours", "limit_hours",
    "high_priority_hours", "unattributed_hours", "others_hours",     "unknown_hours"};

// What a line of a receipt adds up, in nanoseconds.
struct Guarantee {
  Int128 pod_ns = 0;
  Int128 guaranteed_ns = 0;
  Int128 held_ns = 0;
  Int128 got_ns = 0;
  std::array<Int128, kReasons> less_ns{};
  int64_t memory_peak_mib = 0;

  void Add(const Guarantee& more) {
    pod_ns += more.pod_ns;
    guaranteed_ns += more.guaranteed_ns;
    held_ns += more.held_ns;
    got_ns += more.got_ns;
    for (size_t i = 0; i < less_ns.size(); ++i) less_ns[i] += more.less_ns[i];
    memory_peak_mib = std::max(memory_peak_mib, more.memory_peak_mib);
  }
};

// A pod of one team on one GPU: whose time there is counted, or who is there beside them.
struct Seat {
  std::string pod;   // NAMESPACE/NAME, or NAME
  std::string name;  // "a/b" is the pod of this name as well as pod b of namespace a
  std::string team;
  size_t gpu = 0;
  bool asked = false;
  std::vector<Term> terms;  // by time, with `from` and `to`
  size_t next = 0;          // the first that is not over before the step that is looked at
  // Of its use in the window, where it has any.
  std::optional<WallTime> first_use, last_use;
};
using SeatKey = std::tuple<std::string, std::string, std::string, size_t>;

// A seat in one step.
struct Moment {
  int64_t there_ns = 0;       // by the log of changes
  int64_t guaranteed_ns = 0;  // of that, by its request
  bool strict = false;        // all the time its limit was its request
  bool high = false;          // it had high priority for some of the time
  Counters use;
  int64_t memory_peak_mib = 0;

  // It had work, as far as that is known.
  int64_t worked_ns() const { return std::max<int64_t>(0, use.held_ns + use.waited_ns); }
  // Of a time that it was there, what it was guaranteed.
  int64_t Guaranteed(Int128 of_ns) const {
    if (there_ns == 0) return 0;
    return static_cast<int64_t>(of_ns * guaranteed_ns / there_ns);
  }
};

// A GPU in one step, over all its pods.
struct GpuMoment {
  int64_t present_ns = 0;
  int64_t idle_ns = 0;
  int64_t held_ns = 0;
  int64_t waited_ns = 0;
  int64_t high_held_ns = 0;  // by pods of high priority
  double asked = 0;          // requests of those with work, as parts of the GPU

  // Nobody held it, and somebody may have wanted it.
  int64_t unattributed_ns() const {
    return std::max<int64_t>(0, present_ns - std::max<int64_t>(0, held_ns) - idle_ns);
  }
};

int64_t Ns(WallTime from, WallTime to) {
  return std::max<int64_t>(0, std::chrono::nanoseconds(to - from).count());
}

std::string PathOf(const Owner& owner) {
  return owner.name_space.empty() ? owner.pod : owner.name_space + "/" + owner.pod;
}

// docs/ledger.md says in words what this does: what is surely known comes first, and what nothing
// explains is unknown.
Guarantee Explain(const Moment& mine, const GpuMoment& gpu) {
  Guarantee sum;
  sum.pod_ns = mine.there_ns;
  sum.guaranteed_ns = mine.guaranteed_ns;
  sum.held_ns = mine.use.held_ns;
  sum.memory_peak_mib = mine.memory_peak_mib;
  const int64_t held = std::max<int64_t>(0, mine.use.held_ns);
  const int64_t got = std::min(held, mine.guaranteed_ns);
  sum.got_ns = got;
  int64_t rest = mine.guaranteed_ns - got;
  const auto put = [&](Reason reason, int64_t at_most) {
    const int64_t part = std::clamp<int64_t>(at_most, 0, rest);
    sum.less_ns[reason] += part;
    rest -= part;
  };
  const int64_t away = std::max<int64_t>(0, mine.there_ns - gpu.present_ns);
  int64_t quiet = std::max<int64_t>(0, mine.there_ns - away - mine.worked_ns());
  // Nobody held, nobody waited, and the GPU was not seen idle: batond was away.
  const int64_t lost =
      std::clamp<int64_t>(gpu.unattributed_ns() - std::max<int64_t>(0, gpu.waited_ns), 0, quiet);
  quiet -= lost;
  put(kOutage, mine.Guaranteed(away + lost));
  // It executed without tokens, so nobody knows what it would have held.
  const bool observed = held == 0 && mine.use.grants == 0 && mine.use.busy_ns > 0;
  if (!observed) {
    put(kNoWork, mine.Guaranteed(quiet));
    if (gpu.asked > 1) {
      const auto due = static_cast<double>(mine.Guaranteed(mine.worked_ns()));
      put(kOvercommit, static_cast<int64_t>(due * (1 - 1 / gpu.asked)));
    }
    const int64_t waited = std::max<int64_t>(0, mine.use.waited_ns);
    const int64_t nobody = mine.Guaranteed(std::min(waited, gpu.unattributed_ns()));
    put(mine.strict ? kLimit : kUnattributed, nobody);
    if (!mine.high) put(kHighPriority, mine.Guaranteed(std::min(waited, gpu.high_held_ns)));
    put(kOthers, mine.Guaranteed(std::min(waited, gpu.held_ns - held)));
  }
  put(kUnknown, rest);
  return sum;
}

class Reckoning {
 public:
  Reckoning(const Question& question, const History& history, const std::vector<Term>& terms)
      : question_(question), history_(history) {
    for (size_t i = 0; i < history.gpus.size(); ++i) gpus_[history.gpus[i].uuid] = i;
    FindSeats();
    for (const Term& term : terms) Place(term);
    FindUnrecorded();
    SetBounds();
  }

  using Key = std::pair<std::string, std::string>;  // as a row's: key, team
  std::map<Key, Guarantee> Lines() {
    std::map<Key, Guarantee> lines;
    size_t use = 0, presence = 0;
    for (size_t step = 0; step < history_.steps.size(); ++step) {
      std::map<size_t, GpuMoment> gpus;
      for (; presence < history_.presence.size() && history_.presence[presence].step == step;
           ++presence) {
        const History::Presence& there = history_.presence[presence];
        gpus[there.gpu].present_ns = there.present_ns;
        gpus[there.gpu].idle_ns = there.idle_ns;
      }
      std::map<size_t, Moment> moments = Moments(step);
      for (; use < history_.uses.size() && history_.uses[use].step == step; ++use) {
        const History::Use& used = history_.uses[use];
        Moment& moment = moments[seat_of_account_[used.account]];
        moment.use.held_ns += used.use.held_ns;
        moment.use.busy_ns += used.use.busy_ns;
        moment.use.waited_ns += used.use.waited_ns;
        moment.use.grants += used.use.grants;
        moment.memory_peak_mib = std::max(moment.memory_peak_mib, used.memory_peak_mib);
      }
      const Window window = history_.steps[step].window;
      for (const auto& [at, moment] : moments) {
        const size_t gpu = seats_[at].gpu;
        Count(moment, Ns(window.from, std::min(window.to, history_.gpus[gpu].booked_until)),
              gpus[gpu]);
      }
      for (const auto& [at, moment] : moments) {
        const Seat& seat = seats_[at];
        if (!seat.asked) continue;
        if (moment.there_ns == 0 && moment.use.held_ns > 0) unasked_.insert(seat.pod);
        lines[KeyOf(seat, step)].Add(Explain(moment, gpus[seat.gpu]));
      }
    }
    return lines;
  }

  // Whether the receipt is about the term, and it lies in the window.
  bool Counts(const Term& term) const {
    return IsAsked(term) && term.from.value_or(history_.window.from) < history_.window.to &&
           term.to.value_or(history_.window.to) > history_.window.from;
  }

  // After Lines(). `ends`: somebody said when the window ends, so it is not just up to now.
  std::vector<std::string> Notes(bool ends) const {
    std::vector<std::string> notes;
    if (ends && unrecorded_) {
      notes.push_back(fmt::format(
          "Not all of this time is recorded yet: what was used after {} is missing. A receipt that "
          "is made later has it.",
          FormatTime(*unrecorded_, question_.zone)));
    }
    for (const std::string& pod : unasked_) {
      notes.push_back(fmt::format(
          "For some of the time nothing is known of what {} asked for, so nothing of it counts as "
          "guaranteed there, and all that it held as beyond that.",
          pod));
    }
    for (const std::string& pod : nowhere_) {
      notes.push_back(fmt::format(
          "{} was on a GPU of which nothing was recorded; that time is left out.", pod));
    }
    return notes;
  }

 private:
  bool IsAsked(const Term& term) const {
    // As Filter() asks the ledger.
    if (!question_.pod.empty()) return term.pod == question_.pod || term.name == question_.pod;
    return term.team == question_.team || term.team.starts_with(question_.team + "/") ||
           (term.team.empty() && question_.team == kDefaultTeam);
  }

  size_t SeatAt(const std::string& pod, const std::string& name, const std::string& team,
                size_t gpu) {
    const auto [at, added] = index_.try_emplace(SeatKey{pod, name, team, gpu}, seats_.size());
    if (added) seats_.push_back({pod, name, team, gpu, false, {}, 0, {}, {}});
    return at->second;
  }

  void FindSeats() {
    for (const History::Account& account : history_.accounts) {
      const size_t at =
          SeatAt(PathOf(account.owner), account.owner.pod, account.owner.team, account.gpu);
      seats_[at].asked = seats_[at].asked || account.asked;
      seat_of_account_.push_back(at);
    }
    for (const History::Use& use : history_.uses) {
      Seat& seat = seats_[seat_of_account_[use.account]];
      const Window step = history_.steps[use.step].window;
      if (!seat.first_use) seat.first_use = step.from;
      seat.last_use = step.to;
    }
  }

  // A term on each of its GPUs; where these are not known, on those that the pod used.
  void Place(const Term& term) {
    const bool asked = IsAsked(term);
    const auto put = [&](size_t at) {
      seats_[at].terms.push_back(term);
      seats_[at].asked = seats_[at].asked || asked;
    };
    if (term.gpus.empty()) {
      for (size_t at = 0; at < seats_.size(); ++at) {
        const Seat& seat = seats_[at];
        const bool same = seat.pod == term.pod && seat.name == term.name && seat.team == term.team;
        if (same && seat.first_use) put(at);
      }
    }
    for (const std::string& uuid : term.gpus) {
      const auto gpu = gpus_.find(uuid);
      if (gpu != gpus_.end()) {
        put(SeatAt(term.pod, term.name, term.team, gpu->second));
      } else if (Counts(term)) {
        nowhere_.insert(term.pod);
      }
    }
  }

  // From when on something is missing of pods that were there longer than is recorded.
  void FindUnrecorded() {
    for (const Seat& seat : seats_) {
      if (!seat.asked) continue;
      const WallTime recorded =
          std::max(history_.window.from, history_.gpus[seat.gpu].booked_until);
      for (const Term& term : seat.terms) {
        if (!term.to && !term.present) continue;  // nobody knows how long it was there
        const WallTime to = std::min(term.to.value_or(history_.window.to), history_.window.to);
        if (to <= recorded || term.from.value_or(recorded) >= to) continue;
        unrecorded_ = std::min(unrecorded_.value_or(recorded), recorded);
      }
    }
  }

  // From when to when each term is, within the window and as far as is known.
  void SetBounds() {
    std::map<size_t, WallTime> first_there;  // of a GPU
    for (const History::Presence& there : history_.presence) {
      first_there.try_emplace(there.gpu, history_.steps[there.step].window.from);
    }
    for (size_t at = 0; at < seats_.size(); ++at) {
      Seat& seat = seats_[at];
      const WallTime until = std::min(history_.window.to, history_.gpus[seat.gpu].booked_until);
      const auto there = first_there.find(seat.gpu);
      // Of a pod that was there when the log began: since its GPU was seen, or it used it.
      WallTime begin = there == first_there.end() ? until : there->second;
      if (seat.first_use) begin = std::min(begin, *seat.first_use);
      // Of a pod that is gone, and nobody knows since when: until it last used something.
      const WallTime end = seat.last_use.value_or(history_.window.from);
      for (Term& term : seat.terms) {
        term.from = std::max(term.from.value_or(begin), history_.window.from);
        if (!term.to) term.to = term.present ? until : end;
        term.to = std::min(*term.to, until);
      }
      std::erase_if(seat.terms, [](const Term& term) { return *term.from >= *term.to; });
      if (!seat.terms.empty()) with_terms_.push_back(at);
    }
  }

  // Who was there in a step, by seat; without their use. Steps come in the order of time.
  std::map<size_t, Moment> Moments(size_t step) {
    std::map<size_t, Moment> moments;
    const Window window = history_.steps[step].window;
    for (const size_t at : with_terms_) {
      Seat& seat = seats_[at];
      while (seat.next < seat.terms.size() && *seat.terms[seat.next].to <= window.from) ++seat.next;
      for (size_t i = seat.next; i < seat.terms.size() && *seat.terms[i].from < window.to; ++i) {
        const Term& term = seat.terms[i];
        const int64_t ns = Ns(std::max(*term.from, window.from), std::min(*term.to, window.to));
        if (ns == 0) continue;
        const bool first = !moments.contains(at);
        Moment& moment = moments[at];
        moment.there_ns += ns;
        moment.guaranteed_ns += static_cast<int64_t>(Int128{ns} * term.request / kMillionths);
        moment.strict = (first || moment.strict) && term.limit <= term.request;
        moment.high = moment.high || term.priority == "high";
      }
    }
    return moments;
  }

  // `step_ns`: of the step, as far as it is recorded.
  static void Count(const Moment& moment, int64_t step_ns, GpuMoment& gpu) {
    gpu.held_ns += moment.use.held_ns;
    gpu.waited_ns += moment.use.waited_ns;
    if (moment.high) gpu.high_held_ns += std::max<int64_t>(0, moment.use.held_ns);
    if (moment.there_ns == 0 || step_ns == 0) return;
    const double worked =
        static_cast<double>(moment.worked_ns()) / static_cast<double>(moment.there_ns);
    gpu.asked += static_cast<double>(moment.guaranteed_ns) / static_cast<double>(step_ns) *
                 std::min(1.0, worked);
  }

  Key KeyOf(const Seat& seat, size_t step) const {
    switch (question_.by.front()) {
      case By::kPod:
        return {seat.pod, seat.team};
      case By::kGpu:
        return {history_.gpus[seat.gpu].uuid, ""};
      case By::kMonth:
        return {history_.steps[step].day.substr(0, 7), ""};
      default:
        return {history_.steps[step].day, ""};
    }
  }

  const Question& question_;
  const History& history_;
  std::map<std::string, size_t> gpus_;
  std::vector<Seat> seats_;
  std::map<SeatKey, size_t> index_;
  std::vector<size_t> seat_of_account_;
  std::vector<size_t> with_terms_;  // seats that have any in the window
  std::set<std::string> unasked_, nowhere_;
  std::optional<WallTime> unrecorded_;
};

double HoursOf(Int128 ns) { return static_cast<double>(ns) / 3600e9; }

void PutGuarantee(json& to, const Guarantee& sum) {
  to["pod_hours"] = HoursOf(sum.pod_ns);
  to["guaranteed_hours"] = HoursOf(sum.guaranteed_ns);
  to["got_hours"] = HoursOf(sum.got_ns);
  to["beyond_hours"] = HoursOf(sum.held_ns - sum.got_ns);
  json less = json::object();
  for (size_t i = 0; i < kReasons; ++i) less[kReasonFields[i]] = HoursOf(sum.less_ns[i]);
  to["less"] = std::move(less);
  to["memory_peak_gib"] = static_cast<double>(sum.memory_peak_mib) / 1024;
}

json AskedJson(const Term& term, const TimeZone& zone) {
  const auto percent = [](int64_t millionths) { return static_cast<double>(millionths) / 1e4; };
  json asked{{"pod", term.pod},
             {"team", term.team},
             {"request", percent(term.request)},
             {"limit", percent(term.limit)},
             {"priority", term.priority},
             {"gpus", term.gpus}};
  if (term.from) asked["from"] = FormatTime(*term.from, zone);
  if (term.to) asked["to"] = FormatTime(*term.to, zone);
  if (!term.memory.empty()) asked["memory"] = term.memory;
  if (!term.who.empty()) asked["who"] = term.who;
  if (!term.action.empty()) asked["action"] = term.action;
  return asked;
}

using Key = Reckoning::Key;

// A row that the report has not, as nothing was used, so that it has one.
UseRow NoUse(const Key& key) { return {{key.first}, key.second, "", {}, 0}; }

// What two answers about the same books have in common.
using Books = std::array<Int128, 5>;
void AddBooks(Books& to, const Sums& use) {
  to[0] += use.held_ns;
  to[1] += use.busy_ns;
  to[2] += use.waited_ns;
  to[3] += use.memory_mib_ms;
  to[4] += use.launches;
}

// Whether all three are of one state of the ledger.
bool Agree(const Uses& uses, const Uses& whole, const History& history) {
  const auto same = [&](Window window) {
    return window.from == uses.window.from && window.to == uses.window.to;
  };
  Books of_lines{}, of_whole{}, of_history{};
  for (const UseRow& row : uses.rows) AddBooks(of_lines, row.use);
  for (const UseRow& row : whole.rows) AddBooks(of_whole, row.use);
  for (const History::Use& one : history.uses) {
    if (!history.accounts[one.account].asked) continue;
    const Counters& use = one.use;
    AddBooks(of_history,
             {use.held_ns, use.busy_ns, use.waited_ns, 0, use.memory_mib_ms, use.launches, 0, 0});
  }
  return same(whole.window) && same(history.window) && of_lines == of_whole &&
         of_lines == of_history;
}

}  // namespace

Result<json> ReceiptJson(const Question& question, const Uses& uses, const Uses& whole,
                         const History& history, const std::vector<Term>& terms,
                         const Prices& prices, const std::string& currency,
                         const EnergyFactors& factors, bool ends) {
  Reckoning reckoning(question, history, terms);
  const std::map<Key, Guarantee> lines = reckoning.Lines();
  if (lines.size() > kReceiptLinesMax) {
    return Fail(ErrorCode::kInvalid,
                fmt::format("the receipt would have {} lines, more than {}: ask for a shorter "
                            "window, or for lines by month",
                            lines.size(), kReceiptLinesMax));
  }
  std::map<Key, Int128> held_ns;
  for (const UseRow& row : uses.rows) held_ns[{row.keys.front(), row.team}] += row.use.held_ns;
  bool agree = Agree(uses, whole, history);
  Uses all = uses;
  Guarantee total;
  for (const auto& [key, sum] : lines) {
    const auto row = held_ns.find(key);
    agree = agree && sum.held_ns == (row == held_ns.end() ? 0 : row->second);
    if (row == held_ns.end()) all.rows.push_back(NoUse(key));
    total.Add(sum);
  }
  for (const auto& [key, ns] : held_ns) agree = agree && lines.contains(key);
  if (!agree) {
    return Fail(ErrorCode::kUnavailable,
                "the ledger recorded something while the receipt was made; ask again");
  }
  Uses of_total = whole;
  if (of_total.rows.empty()) of_total.rows.push_back(NoUse({"", ""}));

  json receipt = ReportJson(all, question, prices, currency, factors);
  json rows = std::move(receipt.at("rows"));
  for (json& row : rows) {
    PutGuarantee(row, lines.at({row.at("key").get<std::string>(), row.value("team", "")}));
  }
  Question by_total = question;
  by_total.by = {By::kTotal};
  json by_sum = ReportJson(of_total, by_total, prices, currency, factors);
  json sum = std::move(by_sum.at("rows").front());
  sum.erase("key");
  // Where there are no lines it is the total alone that has a cost.
  if (by_sum.contains("currency")) receipt["currency"] = by_sum.at("currency");
  PutGuarantee(sum, total);

  json asked = json::array();
  int64_t step_s = 0;
  size_t unlisted = 0;
  for (const Term& term : terms) {
    if (!reckoning.Counts(term)) continue;
    if (asked.size() < kReceiptTermsMax) {
      asked.push_back(AskedJson(term, question.zone));
    } else {
      ++unlisted;
    }
  }
  std::vector<std::string> notes = reckoning.Notes(ends);
  if (unlisted > 0) {
    notes.push_back(fmt::format(
        "{} more times in which pods asked for something else are not listed; baton log has them.",
        unlisted));
  }
  for (const History::Step& step : history.steps) {
    step_s = std::max<int64_t>(step_s, Ns(step.window.from, step.window.to) / 1'000'000'000);
  }
  json answer{{"kind", question.pod.empty() ? "team" : "pod"},
              {"name", question.pod.empty() ? question.team : question.pod},
              {"step_s", step_s},
              {"asked", std::move(asked)},
              {"lines", std::move(rows)},
              {"total", std::move(sum)},
              {"notes", std::move(notes)}};
  for (const char* field :
       {"from", "to", "from_ms", "to_ms", "time_zone", "by", "unit", "currency"}) {
    if (receipt.contains(field)) answer[field] = std::move(receipt.at(field));
  }
  return answer;
}

}  // namespace baton::ledger
