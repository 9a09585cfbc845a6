#include "teams/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/parse.h"

namespace baton::teams {
namespace {

// Figures that differ by less are the same: FluidShares rounds to millionths, once a pod.
constexpr double kSame = 2e-5;

std::string Percent(double part) {
  const double percent = 100 * part;
  return percent == 0 || percent >= 0.95 ? fmt::format("{:g}%", std::round(10 * percent) / 10)
                                         : fmt::format("{:.2g}%", percent);
}

// "less than", "more than" or "just", by what a sentence would print of both.
const char* Against(double usage, double due) {
  if (Percent(usage) == Percent(due)) return "just";
  return usage > due ? "more than" : "less than";
}

bool IsIdle(const ExplainPod& p) { return p.spec.priority == policy::Priority::kIdle; }

// Has work, and a part of the GPU's time: those of idle priority have what others leave.
bool Counts(const ExplainPod& p) { return p.active && !IsIdle(p); }

// A pod of idle priority.
std::vector<std::string> ExplainIdle(const ExplainGpu& gpu, const ExplainPod& p,
                                     std::optional<double> waited) {
  std::vector<std::string> out;
  out.push_back(
      fmt::format("{} is of idle priority: it has {} while no pod with a request has work "
                  "there, and gives way at once.",
                  p.name, gpu.name));
  const auto others = std::count_if(gpu.pods.begin(), gpu.pods.end(), Counts);
  if (others > 0) {
    out.push_back(fmt::format("{} such pod{} work now{}.", others, others == 1 ? " has" : "s have",
                              p.paused ? ", so it is paused" : ": it has what their limits leave"));
  } else {
    const auto idle = std::count_if(gpu.pods.begin(), gpu.pods.end(), [&](const ExplainPod& other) {
      return &other != &p && other.active && IsIdle(other);
    });
    out.push_back(idle == 0 ? "None has work now, so it may have all of the GPU."
                            : fmt::format("None has work now, so it shares the GPU equally with {} "
                                          "other{} of idle priority.",
                                          idle, idle == 1 ? "" : "s"));
  }
  if (p.spec.limit < policy::kWhole) {
    out.push_back(fmt::format("It is limited to {}.", Percent(policy::Ratio(p.spec.limit))));
  }
  if (waited) out.push_back(fmt::format("It waited {} of the last minute.", Percent(*waited)));
  return out;
}

std::vector<policy::Entitlement> EntitlementsOf(const ExplainGpu& gpu, size_t pod,
                                                std::span<const SlackRow> rows, TeamIndex& index) {
  std::vector<policy::Entitlement> shares;
  for (size_t i = 0; i < gpu.pods.size(); ++i) {
    const ExplainPod& p = gpu.pods[i];
    if (!Counts(p) && i != pod) continue;
    shares.push_back({p.spec.request, p.spec.limit, p.spec.slack_weight, index.Of(p.team)});
  }
  if (gpu.teams != nullptr) {
    policy::FluidShares(shares, index.Weights(rows));
  } else {
    policy::FluidShares(shares);
  }
  return shares;
}

std::vector<SlackRow> RowsOf(const ExplainGpu& gpu, std::span<const Use> uses) {
  if (gpu.teams == nullptr) return {};
  std::vector<std::string> present;
  for (const ExplainPod& p : gpu.pods) present.push_back(p.team);
  return SlackWeights(*gpu.teams, uses, present);
}

// How the teams share what is left over, and the pods what their team has of it.
void ExplainTeamSlack(const ExplainGpu& gpu, size_t pod, const ShareParts& parts,
                      std::vector<std::string>& out) {
  const std::string team = NormalPath(gpu.pods[pod].team);
  const Teams& teams = *gpu.teams;
  std::string why =
      fmt::format("Of the teams with pods here {} weighs {}", team, Percent(parts.team_weight));
  if (teams.history == 0) {
    why += "; what they used does not count (history = 0)";
  } else {
    why += fmt::format(" and has {} of what they used (older use counts half every {}), {} its due",
                       Percent(parts.team_usage), FormatPeriod(teams.half_life),
                       Against(parts.team_usage, parts.team_weight));
    if (parts.team_uncounted > 0) {
      why += fmt::format("; {} more is not held against it, for no other team wanted it",
                         Percent(parts.team_uncounted));
    }
  }
  if (parts.team_due > 0) {
    why += fmt::format(". Of the teams with work it is due {} of what is left over",
                       Percent(parts.team_due / parts.left_over));
  } else {
    why += ". It gets of what is left over what teams that used less do not take";
  }
  if (parts.team_slack > parts.team_due + kSame) {
    why += fmt::format(", {} of the GPU, and gets {}: other teams cannot take all of theirs",
                       Percent(parts.team_due), Percent(parts.team_slack));
  } else if (parts.team_slack < parts.team_due - kSame) {
    why += fmt::format(", {} of the GPU, and gets {}: its pods' limits take no more",
                       Percent(parts.team_due), Percent(parts.team_slack));
  } else {
    why += fmt::format(", {} of the GPU", Percent(parts.team_slack));
  }
  out.push_back(why + ".");
  size_t members = 0;
  for (size_t i = 0; i < gpu.pods.size(); ++i) {
    const bool has_work = Counts(gpu.pods[i]) || i == pod;
    members += has_work && NormalPath(gpu.pods[i].team) == team ? 1 : 0;
  }
  if (members > 1) {
    out.push_back(
        fmt::format("{} shares that with {} of its team, by request.", gpu.pods[pod].name,
                    members == 2 ? "another pod" : fmt::format("{} other pods", members - 1)));
  }
}

void ExplainBudgets(const Teams& teams, std::string_view path, const Budgets* budgets,
                    std::vector<std::string>& out) {
  if (budgets == nullptr) return;
  for (std::string_view at = path; !at.empty(); at = ParentOf(at)) {
    const Team* team = teams.Find(at);
    const auto state = budgets->states().find(at);
    if (team == nullptr || team->budget <= 0 || state == budgets->states().end()) continue;
    std::string text = fmt::format("Team {} held {} of its budget of {:.6g} GPU-hours in {}", at,
                                   FormatHours(state->second.held_hours, team->budget),
                                   team->budget, FormatPeriod(team->budget_period));
    if (state->second.over) {
      text += team->over_budget == OverBudget::kLow ? ": its pods lose high priority"
                                                    : ": new pods of it are refused";
    }
    out.push_back(text + ".");
  }
}

}  // namespace

ShareParts PartsOf(const ExplainGpu& gpu, size_t pod, std::span<const Use> uses) {
  TeamIndex index;
  const std::vector<SlackRow> rows = RowsOf(gpu, uses);
  const auto shares = EntitlementsOf(gpu, pod, rows, index);
  const uint32_t own_team = index.Of(gpu.pods[pod].team);
  const auto own =
      std::count_if(gpu.pods.begin(), gpu.pods.begin() + static_cast<ptrdiff_t>(pod), Counts);
  ShareParts parts;
  policy::ShareSum asked;
  for (const policy::Entitlement& s : shares) asked += s.request;
  parts.asked = policy::Ratio(asked);
  parts.left_over = std::max(0.0, 1 - parts.asked);
  const policy::Entitlement& mine = shares[static_cast<size_t>(own)];
  parts.fluid = policy::Ratio(mine.fluid);
  parts.requested = asked <= policy::kWhole ? policy::Ratio(mine.request) : parts.fluid;
  parts.slack = parts.fluid - parts.requested;
  parts.limit = policy::Ratio(mine.limit);
  if (gpu.teams == nullptr) {
    parts.team_weight = 1;
    parts.team_due = parts.left_over;
  }
  std::vector<bool> working;
  if (parts.left_over > 0) {
    for (const policy::Entitlement& s : shares) {
      if (gpu.teams == nullptr || s.team == own_team) {
        parts.team_slack += policy::Ratio(s.fluid - s.request);
      }
    }
  }
  for (const policy::Entitlement& s : shares) {
    if (s.team >= working.size()) working.resize(s.team + 1);
    working[s.team] = true;
  }
  double sum = 0;
  for (const SlackRow& row : rows) {
    const uint32_t team = index.Of(row.team);
    if (team < working.size() && working[team]) sum += row.slack;
    if (team != own_team) continue;
    parts.team_weight = row.weight;
    parts.team_usage = row.usage;
    parts.team_uncounted = row.uncounted;
    parts.team_due = row.slack;
  }
  if (gpu.teams != nullptr) parts.team_due = sum > 0 ? parts.left_over * parts.team_due / sum : 0;
  return parts;
}

std::vector<std::string> ExplainShare(const ExplainGpu& gpu, size_t pod, std::span<const Use> uses,
                                      std::optional<double> waited, const Budgets* budgets) {
  const ExplainPod& p = gpu.pods[pod];
  if (IsIdle(p)) return ExplainIdle(gpu, p, waited);
  const ShareParts parts = PartsOf(gpu, pod, uses);
  std::vector<std::string> out;
  const double request = policy::Ratio(p.spec.request);
  if (!p.active) {
    out.push_back(fmt::format("{} has no work on {} now; this is what it gets when it has.", p.name,
                              gpu.name));
  }
  if (parts.asked <= 1) {
    out.push_back(fmt::format("{} asks for {} of {} and gets at least that.", p.name,
                              Percent(request), gpu.name));
  } else {
    out.push_back(fmt::format(
        "{} asks for {} of {}, but the pods that have work ask for {} "
        "together, so each gets its part of that: {} gets {}.",
        p.name, Percent(request), gpu.name, Percent(parts.asked), p.name, Percent(parts.fluid)));
  }
  if (parts.left_over > 0) {
    out.push_back(fmt::format("Of the {} that requests leave over it gets {}, so {} in all.",
                              Percent(parts.left_over), Percent(parts.slack),
                              Percent(parts.fluid)));
    if (gpu.teams != nullptr) ExplainTeamSlack(gpu, pod, parts, out);
  } else if (parts.asked <= 1) {
    out.push_back("Requests leave nothing over.");
  }
  if (p.spec.limit < policy::kWhole) {
    const bool held_back = parts.left_over > 0 && parts.fluid >= parts.limit - kSame;
    out.push_back(fmt::format("It is limited to {}{}.", Percent(parts.limit),
                              held_back ? ", which is what it gets" : ""));
  }
  if (waited) out.push_back(fmt::format("It waited {} of the last minute.", Percent(*waited)));
  if (gpu.teams != nullptr) ExplainBudgets(*gpu.teams, NormalPath(p.team), budgets, out);
  return out;
}

std::vector<std::string> ExplainTeam(const Teams& teams, std::string_view team,
                                     std::span<const Use> uses, std::span<const LimitPod> pods,
                                     const Budgets* budgets) {
  const std::string path = NormalPath(team);
  std::vector<Use> all(uses.begin(), uses.end());
  all.push_back({path, "", 0});  // so that it has a row
  const std::vector<StandingRow> rows = Standing(teams, all);
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const StandingRow& r) {
    return r.path == path && r.user.empty();
  });
  const policy::FairShare& share = row->share;
  std::vector<std::string> out;
  out.push_back(fmt::format("Team {} weighs {} of {} beside its siblings: {} of the whole.", path,
                            row->raw_shares,
                            std::llround(static_cast<double>(row->raw_shares) / share.level_shares),
                            Percent(share.normalized_shares)));
  if (rows[0].share.raw_usage + rows[0].share.raw_uncounted <= 0) {
    out.push_back("Nobody has used anything that still counts.");
  } else {
    out.push_back(fmt::format(
        "It and the teams below it have {} of all use (older use counts half every {}), {} its "
        "due; its fair-share factor, for which its siblings' use counts too, is {:.3f} (0.5 is "
        "just its due), LevelFS {:.3g}.",
        Percent(share.normalized_usage), FormatPeriod(teams.half_life),
        Against(share.normalized_usage, share.normalized_shares), share.factor, share.level_fs));
    const double used = share.raw_usage + share.raw_uncounted;
    if (share.raw_uncounted > 0) {
      out.push_back(
          fmt::format("Of what they used {} is not held against them, for no other team wanted it.",
                      Percent(share.raw_uncounted / used)));
    }
  }
  out.push_back(teams.history == 0
                    ? "What requests leave over goes by weight alone (history = 0)."
                    : "Requests are never touched; of what they leave over a team gets the more "
                      "the less it used.");
  ExplainBudgets(teams, path, budgets, out);
  for (std::string_view at = path; !at.empty(); at = ParentOf(at)) {
    const Team* limited = teams.Find(at);
    if (limited == nullptr || limited->limit == policy::Share(0)) continue;
    policy::ShareSum sum;
    for (const LimitPod& pod : pods) {
      if (IsIn(NormalPath(pod.team), at)) sum += pod.request;
    }
    out.push_back(fmt::format("Pods of team {} request {:.6g} of at most {:.6g} GPUs.", at,
                              policy::Ratio(sum), policy::Ratio(limited->limit)));
  }
  return out;
}

}  // namespace baton::teams
