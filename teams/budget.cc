#include "teams/budget.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/parse.h"

namespace baton::teams {
namespace {

// Who is over comes back this far below its budget.
constexpr double kBack = 0.99;
// The largest pods that a sentence names.
constexpr size_t kNamedMax = 5;

using policy::Share;
using policy::ShareSum;

std::string Gpus(ShareSum share) { return fmt::format("{:.6g}", policy::Ratio(share)); }

std::string OverSentence(const Team& team, double held) {
  return fmt::format(
      "team {} is over its budget of {:.6g} GPU-hours in {} ({}): {} until the last {} hold "
      "less than {:.6g}",
      team.path, team.budget, FormatPeriod(team.budget_period), FormatHours(held, team.budget),
      team.over_budget == OverBudget::kLow ? "its pods lose high priority"
                                           : "new pods of it are refused",
      FormatPeriod(team.budget_period), kBack * team.budget);
}

}  // namespace

std::vector<std::string> Budgets::Update(const Teams& teams, const HeldHours& held) {
  std::vector<std::string> events;
  for (auto it = states_.begin(); it != states_.end();) {
    const Team* team = teams.Find(it->first);
    if (team != nullptr && team->budget > 0) {
      ++it;
      continue;
    }
    if (it->second.over) events.push_back(fmt::format("team {} has no budget any more", it->first));
    unknown_.erase(it->first);
    it = states_.erase(it);
  }
  for (const Team& team : teams.teams) {
    if (team.budget <= 0) continue;
    BudgetState& state = states_[team.path];
    const Result<double> hours = held(team);
    bool& unknown = unknown_[team.path];
    if (!hours) {
      if (hours.error().code == ErrorCode::kNotFound) continue;
      if (!unknown) {
        events.push_back(
            fmt::format("what team {} held is not known ({}); it counts as {} its "
                        "budget, as before",
                        team.path, hours.error().message, state.over ? "over" : "within"));
      }
      unknown = true;
      continue;
    }
    unknown = false;
    state.held_hours = *hours;
    const bool over = *hours > (state.over ? kBack * team.budget : team.budget);
    if (over != state.over) {
      events.push_back(over ? OverSentence(team, *hours)
                            : fmt::format("team {} is within its budget of {:.6g} GPU-hours in {} "
                                          "again ({})",
                                          team.path, team.budget, FormatPeriod(team.budget_period),
                                          FormatHours(*hours, team.budget)));
    }
    state.over = over;
  }
  return events;
}

const Team* Budgets::Over(const Teams& teams, std::string_view team, OverBudget what) const {
  const std::string path = NormalPath(team);
  for (std::string_view at = path; !at.empty(); at = ParentOf(at)) {
    const auto state = states_.find(at);
    if (state == states_.end() || !state->second.over) continue;
    const Team* found = teams.Find(at);
    if (found != nullptr && found->budget > 0 && found->over_budget == what) return found;
  }
  return nullptr;
}

policy::Priority Budgets::Effective(const Teams& teams, std::string_view team,
                                    policy::Priority priority) const {
  const bool lowered =
      priority == policy::Priority::kHigh && Over(teams, team, OverBudget::kLow) != nullptr;
  return lowered ? policy::Priority::kNormal : priority;
}

Result<void> Budgets::Admit(const Teams& teams, std::string_view team) const {
  const Team* over = Over(teams, team, OverBudget::kRefuse);
  if (over == nullptr) return {};
  return Fail(ErrorCode::kExhausted,
              OverSentence(*over, states_.find(over->path)->second.held_hours) +
                  "; wait, raise the budget, or name another team");
}

Result<void> CheckLimits(const Teams& teams, std::span<const LimitPod> pods, const LimitPod& pod) {
  const std::string path = NormalPath(pod.team);
  for (const LimitPod& other : pods) {
    if (other.name == pod.name && NormalPath(other.team) == path && pod.request <= other.request) {
      return {};
    }
  }
  for (std::string_view at = path; !at.empty(); at = ParentOf(at)) {
    const Team* team = teams.Find(at);
    if (team == nullptr || team->limit == Share(0)) continue;
    std::vector<const LimitPod*> has;
    ShareSum sum;
    for (const LimitPod& other : pods) {
      if (other.name == pod.name || !IsIn(NormalPath(other.team), at)) continue;
      has.push_back(&other);
      sum += other.request;
    }
    if (sum + pod.request <= team->limit) continue;
    std::sort(has.begin(), has.end(), [](const LimitPod* a, const LimitPod* b) {
      return a->request != b->request ? a->request > b->request : a->name < b->name;
    });
    std::string who;
    for (size_t i = 0; i < std::min(has.size(), kNamedMax); ++i) {
      who += fmt::format("{}{} {}", i == 0 ? "" : ", ", has[i]->name, Gpus(has[i]->request));
    }
    if (has.size() > kNamedMax) who += fmt::format(" and {} more", has.size() - kNamedMax);
    const ShareSum left = team->limit - std::min(sum, team->limit);
    const std::string taken = has.empty() ? "nothing is requested yet"
                                          : fmt::format("{} are requested ({})", Gpus(sum), who);
    const std::string advice =
        left == Share(0) ? "lower or delete one of these" : fmt::format("{} would fit", Gpus(left));
    return Fail(
        ErrorCode::kExhausted,
        fmt::format("pods of team {} may request {} GPU{} together, and {}: {} for {} is too "
                    "much; {}",
                    at, Gpus(team->limit), team->limit == policy::kWhole ? "" : "s", taken,
                    Gpus(pod.request), pod.name, advice));
  }
  return {};
}

}  // namespace baton::teams
