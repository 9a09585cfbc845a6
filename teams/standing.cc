#include "teams/standing.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

namespace baton::teams {
namespace {

using Paths = std::set<std::string, PathLess>;

// With those above it.
void AddPath(Paths& paths, std::string_view path) {
  for (; !path.empty(); path = ParentOf(path)) {
    if (!paths.emplace(path).second) return;
  }
}

// Nothing that a book may say makes a sum infinite.
double Sane(double use) { return use > 0 ? std::min(use, 1e30) : 0; }

// Entitlements of a GPU's pods, `numbers` by pod, in the order of `pods`.
std::vector<policy::Entitlement> Fluid(std::span<const CoursePod* const> pods, TeamIndex& index,
                                       std::span<const SlackRow> rows) {
  std::vector<policy::Entitlement> shares;
  for (const CoursePod* pod : pods) {
    shares.push_back(
        {pod->spec.request, pod->spec.limit, pod->spec.slack_weight, index.Of(pod->team)});
  }
  policy::FluidShares(shares, index.Weights(rows));
  return shares;
}

}  // namespace

std::vector<Use> ByTeam(std::span<const Use> uses) {
  std::map<std::string, Use, PathLess> sums;
  for (const Use& use : uses) {
    Use& sum = sums[NormalPath(use.team)];
    sum.decayed += Sane(use.decayed);
    sum.uncounted += Sane(use.uncounted);
  }
  std::vector<Use> teams;
  for (const auto& [path, sum] : sums) teams.push_back({path, "", sum.decayed, sum.uncounted});
  return teams;
}

std::vector<StandingRow> Standing(const Teams& teams, std::span<const Use> uses) {
  struct Member {
    uint32_t weight = 0;
    Use use;
  };
  std::map<std::string, std::map<std::string, Member>> users;
  std::map<std::string, Use> own;
  Paths paths;
  for (const Team& team : teams.teams) {
    AddPath(paths, team.path);
    for (const User& user : team.users) users[team.path][user.name].weight = user.weight;
  }
  for (const Use& use : uses) {
    const std::string path = NormalPath(use.team);
    AddPath(paths, path);
    Use* sum = &own[path];
    if (!use.user.empty()) {
      Member& member = users[path][use.user];
      member.weight = std::max<uint32_t>(1, member.weight);
      sum = &member.use;
    }
    sum->decayed += Sane(use.decayed);
    sum->uncounted += Sane(use.uncounted);
  }
  std::vector<StandingRow> rows(1);
  std::vector<policy::Association> tree(1);
  rows[0].raw_shares = 1;
  std::map<std::string_view, uint32_t> at;  // of teams, in `tree`
  at[""] = 0;
  for (const std::string& path : paths) {
    const auto team = static_cast<uint32_t>(tree.size());
    at[path] = team;
    const Use& used = own[path];
    tree.push_back({.parent = at.at(ParentOf(path)),
                    .shares = teams.WeightOf(path),
                    .usage = used.decayed,
                    .uncounted = used.uncounted});
    rows.push_back({.path = path, .user = "", .raw_shares = tree.back().shares, .share = {}});
    const auto members = users.find(path);
    if (members == users.end()) continue;
    for (const auto& [name, user] : members->second) {
      tree.push_back({.parent = team,
                      .shares = user.weight,
                      .usage = user.use.decayed,
                      .uncounted = user.use.uncounted,
                      .user = true});
      rows.push_back({.path = path, .user = name, .raw_shares = user.weight, .share = {}});
    }
  }
  const std::vector<policy::FairShare> shares = policy::FairShares(tree);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].share = shares[i];
  return rows;
}

std::vector<SlackRow> SlackWeights(const Teams& teams, std::span<const Use> uses,
                                   std::span<const std::string> present) {
  Paths here;
  for (const std::string& path : present) here.insert(NormalPath(path));
  std::map<std::string, Use, PathLess> used;
  for (Use& use : ByTeam(uses)) used[use.team] = std::move(use);
  Paths paths;
  for (const std::string& path : here) AddPath(paths, path);
  std::vector<policy::Association> tree(1);
  std::vector<uint32_t> leaves;             // of `here`
  std::map<std::string_view, uint32_t> at;  // of teams with subteams here
  at[""] = 0;
  for (auto path = paths.begin(); path != paths.end(); ++path) {
    const auto next = std::next(path);
    const bool above = next != paths.end() && IsIn(*next, *path);
    tree.push_back({.parent = at.at(ParentOf(*path)), .shares = teams.WeightOf(*path)});
    const auto team = static_cast<uint32_t>(tree.size() - 1);
    at[*path] = team;
    if (here.count(*path) == 0) continue;
    if (above) {  // its own pods stand beside the teams below it
      tree.push_back({.parent = team, .shares = teams.OwnWeightOf(*path)});
    }
    if (const auto use = used.find(*path); use != used.end()) {
      tree.back().usage = use->second.decayed;
      tree.back().uncounted = use->second.uncounted;
    }
    leaves.push_back(static_cast<uint32_t>(tree.size() - 1));
  }
  const std::vector<policy::FairShare> shares = policy::FairShares(tree);
  std::vector<SlackRow> rows;
  for (const std::string& path : here) {
    const policy::FairShare& share = shares[leaves[rows.size()]];
    const auto part = [](double of) {
      return static_cast<uint32_t>(std::llround(policy::kMillion * of));
    };
    // Nobody's weight is rounded to nothing.
    const uint32_t w = std::max<uint32_t>(1, part(share.normalized_shares));
    const double whole = shares[0].raw_usage + shares[0].raw_uncounted;
    rows.push_back({path, share.normalized_shares, share.normalized_usage,
                    policy::HistoryWeight(w, part(share.normalized_usage), teams.history),
                    whole > 0 ? share.raw_uncounted / whole : 0});
  }
  return rows;
}

uint32_t TeamIndex::Of(std::string_view team) {
  const std::string path = NormalPath(team);
  if (const auto found = numbers_.find(path); found != numbers_.end()) return found->second;
  const auto free = std::find(taken_.begin(), taken_.end(), false);
  const auto number = static_cast<uint32_t>(free - taken_.begin());
  if (free == taken_.end()) taken_.push_back(false);
  taken_[number] = true;
  numbers_[path] = number;
  return number;
}

void TeamIndex::Retain(std::span<const std::string> teams) {
  std::set<std::string, std::less<>> kept;
  for (const std::string& team : teams) kept.insert(NormalPath(team));
  for (auto it = numbers_.begin(); it != numbers_.end();) {
    if (kept.count(it->first) != 0) {
      ++it;
      continue;
    }
    taken_[it->second] = false;
    it = numbers_.erase(it);
  }
  while (!taken_.empty() && !taken_.back()) taken_.pop_back();
}

std::vector<uint32_t> TeamIndex::Weights(std::span<const SlackRow> rows) {
  std::vector<uint32_t> weights;
  for (const SlackRow& row : rows) {
    const uint32_t number = Of(row.team);
    if (number >= weights.size()) weights.resize(number + 1);
    weights[number] = row.slack;
  }
  return weights;
}

Course Forecast(const Teams& teams, std::span<const Use> uses, std::span<const CoursePod> pods,
                Duration length, Duration step) {
  constexpr int64_t kStepsMax = 100'000;
  step = std::max(step, Duration(1));
  const int64_t steps = std::clamp<int64_t>(length / step, 0, kStepsMax);
  Course course;
  Paths paths;
  std::map<uint32_t, std::vector<const CoursePod*>> gpus;
  for (const CoursePod& pod : pods) {
    paths.insert(NormalPath(pod.team));
    gpus[pod.gpu].push_back(&pod);
  }
  course.teams.assign(paths.begin(), paths.end());
  const auto at = [&](std::string_view team) {
    const std::string path = NormalPath(team);
    return static_cast<size_t>(
        std::lower_bound(course.teams.begin(), course.teams.end(), path, PathLess()) -
        course.teams.begin());
  };
  TeamIndex index;
  std::vector<Use> used;
  for (const std::string& team : course.teams) used.push_back({team, "", 0});
  double others = 0;  // used by teams without pods
  for (const Use& use : uses) {
    const size_t t = at(use.team);
    const bool has_pods = t < used.size() && used[t].team == NormalPath(use.team);
    (has_pods ? used[t].decayed : others) += Sane(use.decayed);
    (has_pods ? used[t].uncounted : others) += Sane(use.uncounted);
  }
  const double decay = std::numbers::ln2 / static_cast<double>(Nanos(teams.half_life));  // per ns
  const double kept = std::exp(-decay * static_cast<double>(Nanos(step)));
  std::map<uint32_t, std::vector<std::string>> present;
  for (const auto& [gpu, here] : gpus) {
    for (const CoursePod* pod : here) present[gpu].push_back(pod->team);
  }
  for (int64_t n = 0; n <= steps; ++n) {
    CoursePoint point{.at = n * step,
                      .share = std::vector<double>(used.size()),
                      .usage = std::vector<double>(used.size())};
    double sum = others;
    for (const Use& use : used) sum += use.decayed + use.uncounted;
    for (size_t t = 0; t < used.size(); ++t) point.usage[t] = sum > 0 ? used[t].decayed / sum : 0;
    for (const auto& [gpu, here] : gpus) {
      const auto shares = Fluid(here, index, SlackWeights(teams, used, present[gpu]));
      for (size_t i = 0; i < here.size(); ++i)
        point.share[at(here[i]->team)] += policy::Ratio(shares[i].fluid);
    }
    for (size_t t = 0; t < used.size(); ++t) {
      used[t].decayed = used[t].decayed * kept + point.share[t] * (1 - kept) / decay;
      used[t].uncounted *= kept;
    }
    others *= kept;
    course.points.push_back(std::move(point));
  }
  return course;
}

}  // namespace baton::teams
