// Who shares the GPUs: a tree of teams and their users, with weights, budgets and limits. It is one
// TOML file, which a reload replaces as a whole:
//
//   half_life = "7d"         # older use counts half per half-life
//   history = 1.0            # how much use steers what requests leave over; 0: not at all
//   [[team]]
//   name = "research/vision" # a path; its parents may be left out and then weigh 1
//   weight = 3               # among the teams and users beside it
//   users = ["user-a", {name = "user-b", weight = 2}]
//   budget = 500             # GPU-hours in any budget_period
//   budget_period = "30d"
//   over_budget = "low"      # its pods lose high priority; "refuse": no new pods
//   limit = 4.0              # requests of its pods add up to at most this many GPUs
//
// Budgets and limits are of a team and all below it. A team that the file does not name weighs 1
// and has neither; a pod without a team is of team "default".
//
// Pure and thread safe; reading the file is the caller's.
#ifndef BATON_TEAMS_TREE_H_
#define BATON_TEAMS_TREE_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/team_path.h"
#include "base/time.h"
#include "policy/share.h"

namespace baton::teams {

using baton::kDefaultTeam;
inline constexpr size_t kPathMax = 256;  // bytes
inline constexpr size_t kDepthMax = kTeamDepthMax;
inline constexpr uint32_t kWeightMax = 1'000'000;
inline constexpr size_t kFileMax = 1 << 20;  // bytes

struct User {
  std::string name;
  uint32_t weight = 1;  // 1 to kWeightMax
};

enum class OverBudget : uint8_t {
  kLow,     // the pods' priority is low while the team is over its budget
  kRefuse,  // new pods are refused
};

struct Team {
  std::string path;         // NormalPath()
  uint32_t weight = 1;      // 1 to kWeightMax, among its siblings
  std::vector<User> users;  // by name
  double budget = 0;        // GPU-hours, 0.001 to 1e9; 0: none
  Duration budget_period = std::chrono::hours(30 * 24);
  OverBudget over_budget = OverBudget::kLow;
  policy::ShareSum limit;  // 0.001 to 1 000 000 GPUs; 0: none
};

struct Teams {
  Duration half_life = std::chrono::hours(7 * 24);
  uint32_t history = policy::kMillion;  // k in millionths, at most 1 000 times that
  std::vector<Team> teams;              // by PathLess

  // Null where the file does not name it. `path` is NormalPath().
  const Team* Find(std::string_view path) const;
  // 1 where the file does not name it.
  uint32_t WeightOf(std::string_view path) const;
  // Of a team's own pods among the teams right below it: what its users weigh together, or 1.
  uint32_t OwnWeightOf(std::string_view path) const;
};

// A team's path as it is compared: TeamPath(), and "default" for nothing at all.
std::string NormalPath(std::string_view path);
// kNotFound: the file names neither the team nor one below it, and it is not "default".
Result<void> CheckKnown(const Teams& teams, std::string_view team);
// The path above, or "" (all teams).
std::string_view ParentOf(std::string_view path);
// Whether `path` is `ancestor` or below it. Everything is below "".
bool IsIn(std::string_view path, std::string_view ancestor);
// Teams stand before those below them, and these before the next team.
struct PathLess {
  using is_transparent = void;
  bool operator()(std::string_view a, std::string_view b) const;
};

// Errors (kInvalid): "name:line: what is wrong; what is accepted". `name` stands for the file.
Result<Teams> ParseTeams(std::string_view text, const std::string& name);
// As a file that ParseTeams() takes back as the same.
std::string PrintTeams(const Teams& teams);

// "30 days", "12 hours", "90 s", for sentences.
std::string FormatPeriod(Duration period);

}  // namespace baton::teams

#endif  // BATON_TEAMS_TREE_H_
