#include "teams/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/parse.h"
#include "base/suggest.h"
#include "base/toml.h"
#include "base/utf8.h"

namespace baton::teams {
namespace {

constexpr Duration kDay = std::chrono::hours(24);
constexpr Duration kPeriodMax = 3650 * kDay;
constexpr size_t kUserNameMax = 128;  // bytes

// "7d" rather than "168h": the longest unit that is exact.
std::string ExactPeriod(Duration d) {
  const int64_t ns = d.count();
  for (const auto& [unit, size] : {std::pair{"d", Nanos(kDay)},
                                   {"h", INT64_C(3'600'000'000'000)},
                                   {"s", INT64_C(1'000'000'000)}}) {
    if (ns % size == 0) return fmt::format("{}{}", ns / size, unit);
  }
  return fmt::format("{}ns", ns);
}

class FileReader {
 public:
  FileReader(const toml::table& root, std::string file) : root_(root), file_(std::move(file)) {}

  Result<Teams> Read() {
    Teams result;
    Begin(root_, "the file");
    if (const toml::node* node = Get("half_life")) {
      result.half_life = Period(*node, "half_life");
    }
    if (const toml::node* node = Get("history")) {
      result.history = static_cast<uint32_t>(std::llround(1e6 * Number(*node, "history", 0, 1000)));
    }
    const toml::node* rows = Get("team");
    EndKeys();
    if (rows != nullptr) {
      const toml::array* list = rows->as_array();
      if (list == nullptr) {
        Complain(*rows, "write [[team]], one for each");
      } else {
        for (const toml::node& row : *list) ReadTeam(row, result);
      }
    }
    if (!error_.empty()) return Fail(ErrorCode::kInvalid, error_);
    std::sort(result.teams.begin(), result.teams.end(),
              [](const Team& a, const Team& b) { return PathLess()(a.path, b.path); });
    return result;
  }

 private:
  void ReadTeam(const toml::node& row, Teams& result) {
    const toml::table* table = row.as_table();
    if (table == nullptr) return Complain(row, "write [[team]], one for each");
    Begin(*table, "[[team]]");
    Team team;
    if (const toml::node* node = Get("name")) team.path = Path(*node);
    if (const toml::node* node = Get("weight")) team.weight = Weight(*node);
    if (const toml::node* node = Get("users")) ReadUsers(*node, team);
    const toml::node* period = Get("budget_period");
    const toml::node* over = Get("over_budget");
    if (const toml::node* node = Get("budget")) {
      team.budget = Number(*node, "budget", 0.001, 1e9);
    } else if (period != nullptr || over != nullptr) {
      Complain(row, "budget_period and over_budget need a budget beside them");
    }
    if (period != nullptr) team.budget_period = Period(*period, "budget_period");
    if (over != nullptr) {
      const auto text = over->value_exact<std::string>().value_or("");
      if (text != "low" && text != "refuse") {
        Complain(*over, "over_budget must be \"low\" or \"refuse\"");
      }
      team.over_budget = text == "refuse" ? OverBudget::kRefuse : OverBudget::kLow;
    }
    if (const toml::node* node = Get("limit")) {
      team.limit = policy::SharesOf(Number(*node, "limit", 0.001, 1e6));
    }
    EndKeys();
    if (team.path.empty()) return Complain(row, "a [[team]] needs a name");
    if (!named_.insert(team.path).second) {
      return Complain(row, fmt::format("team {} is listed twice", team.path));
    }
    result.teams.push_back(std::move(team));
  }

  void ReadUsers(const toml::node& node, Team& team) {
    const toml::array* list = node.as_array();
    if (list == nullptr) return Complain(node, kUsersAre);
    for (const toml::node& entry : *list) {
      User user;
      if (auto text = entry.value_exact<std::string>()) {
        user.name = *text;
      } else if (const toml::table* table = entry.as_table()) {
        for (auto&& [key, value] : *table) {
          if (key.str() == "weight") {
            user.weight = Weight(value);
          } else if (auto name = value.value_exact<std::string>(); key.str() == "name" && name) {
            user.name = *name;
          } else {
            return Complain(value, kUsersAre);
          }
        }
      }
      if (user.name.empty()) return Complain(entry, kUsersAre);
      if (user.name.size() > kUserNameMax || !IsPrintable(user.name)) {
        return Complain(entry, "a user's name is 1 to 128 printable bytes");
      }
      team.users.push_back(std::move(user));
    }
    std::sort(team.users.begin(), team.users.end(),
              [](const User& a, const User& b) { return a.name < b.name; });
    for (size_t i = 1; i < team.users.size(); ++i) {
      if (team.users[i].name == team.users[i - 1].name) {
        Complain(node, fmt::format("user {} is listed twice", team.users[i].name));
      }
    }
  }

  std::string Path(const toml::node& node) {
    auto path = node.value_exact<std::string>().value_or("");
    const auto depth = std::count(path.begin(), path.end(), '/') + 1;
    if (path.empty() || path.size() > kPathMax || static_cast<size_t>(depth) > kDepthMax ||
        !IsPrintable(path) || NormalPath(path) != path) {
      Complain(node, fmt::format("name must be a path such as \"research/vision\": 1 to {} parts, "
                                 "{} bytes at most, no slash at either end",
                                 kDepthMax, kPathMax));
    }
    return path;
  }

  uint32_t Weight(const toml::node& node) {
    const auto weight = node.value_exact<int64_t>();
    if (weight && *weight >= 1 && *weight <= kWeightMax) return static_cast<uint32_t>(*weight);
    Complain(node, fmt::format("weight must be a whole number from 1 to {}", kWeightMax));
    return 1;
  }

  double Number(const toml::node& node, const char* key, double min, double max) {
    const auto number = node.is_number() ? node.value<double>() : std::nullopt;
    if (number && *number >= min && *number <= max) return *number;
    Complain(node, fmt::format("{} must be a number from {:.10g} to {:.10g}", key, min, max));
    return max;
  }

  Duration Period(const toml::node& node, const char* key) {
    const auto text = node.value_exact<std::string>();
    const auto period = text ? ParseDuration(*text) : Fail(ErrorCode::kInvalid, "");
    if (period && *period >= std::chrono::seconds(1) && *period <= kPeriodMax) return *period;
    Complain(node, fmt::format("{} must be a time from \"1s\" to \"{}\", such as \"7d\"", key,
                               ExactPeriod(kPeriodMax)));
    return kDay;
  }

  void Begin(const toml::table& table, const char* what) {
    table_ = &table;
    what_ = what;
    keys_.clear();
  }
  const toml::node* Get(const char* key) {
    keys_.insert(key);
    return table_->get(key);
  }
  void EndKeys() {
    for (auto&& [key, node] : *table_) {
      if (keys_.count(std::string(key.str())) != 0) continue;
      std::string all;
      for (const std::string& known : keys_) all += (all.empty() ? "" : ", ") + known;
      Complain(node, fmt::format("{} has no key {}; it has {}", what_, key.str(), all));
    }
  }
  // Keeps the first complaint.
  void Complain(const toml::node& node, const std::string& what) {
    if (!error_.empty()) return;
    error_ = fmt::format("{}:{}: {}", file_, node.source().begin.line, what);
  }

  static constexpr const char* kUsersAre =
      "users must be a list such as [\"user-a\", {name = \"user-b\", weight = 2}]";

  const toml::table& root_;
  const std::string file_;
  std::string error_;
  std::set<std::string> named_;
  const toml::table* table_ = nullptr;
  const char* what_ = "";
  std::set<std::string> keys_;
};

}  // namespace

const Team* Teams::Find(std::string_view path) const {
  const auto at = std::lower_bound(
      teams.begin(), teams.end(), path,
      [](const Team& team, std::string_view p) { return PathLess()(team.path, p); });
  return at != teams.end() && at->path == path ? &*at : nullptr;
}

uint32_t Teams::WeightOf(std::string_view path) const {
  const Team* team = Find(path);
  return team != nullptr ? team->weight : 1;
}

uint32_t Teams::OwnWeightOf(std::string_view path) const {
  const Team* team = Find(path);
  uint64_t sum = 0;
  if (team != nullptr) {
    for (const User& user : team->users) sum += user.weight;
  }
  return static_cast<uint32_t>(std::clamp<uint64_t>(sum, 1, kWeightMax));
}

std::string NormalPath(std::string_view path) {
  std::string normal = TeamPath(path);
  return normal.empty() ? std::string(kDefaultTeam) : normal;
}

Result<void> CheckKnown(const Teams& teams, std::string_view team) {
  const std::string path = NormalPath(team);
  if (path == kDefaultTeam) return {};
  std::vector<std::string> names;
  for (const Team& known : teams.teams) {
    if (IsIn(known.path, path)) return {};
    names.push_back(known.path);
  }
  const std::string near = Nearest(path, names);
  return Fail(ErrorCode::kNotFound,
              fmt::format("team '{}' does not exist; {}", path.substr(0, 128),
                          near.empty() ? "ask the cluster's operator for the list of teams, or "
                                         "remove it for team 'default'"
                                       : "did you mean '" + near + "'?"));
}

std::string_view ParentOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

bool IsIn(std::string_view path, std::string_view ancestor) {
  return ancestor.empty() || (path.substr(0, ancestor.size()) == ancestor &&
                              (path.size() == ancestor.size() || path[ancestor.size()] == '/'));
}

bool PathLess::operator()(std::string_view a, std::string_view b) const {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    const auto key = [](char c) { return c == '/' ? 0 : static_cast<unsigned char>(c) + 1; };
    return key(x) < key(y);
  });
}

Result<Teams> ParseTeams(std::string_view text, const std::string& name) {
  if (text.size() > kFileMax) {
    return Fail(ErrorCode::kInvalid, name + ": a file of teams is at most 1 MiB");
  }
  const auto parsed = ParseToml(text, name);
  if (!parsed) return tl::unexpected<Error>(parsed.error());
  return FileReader(*parsed, name).Read();
}

std::string PrintTeams(const Teams& teams) {
  std::string text = fmt::format("half_life = \"{}\"\nhistory = {}\n", ExactPeriod(teams.half_life),
                                 teams.history / 1e6);
  for (const Team& team : teams.teams) {
    text += fmt::format("\n[[team]]\nname = {}\nweight = {}\n", TomlText(team.path), team.weight);
    if (!team.users.empty()) {
      std::string users;
      for (const User& user : team.users) {
        users += users.empty() ? "" : ", ";
        users += user.weight == 1
                     ? TomlText(user.name)
                     : fmt::format("{{name = {}, weight = {}}}", TomlText(user.name), user.weight);
      }
      text += fmt::format("users = [{}]\n", users);
    }
    if (team.budget > 0) {
      text += fmt::format("budget = {}\nbudget_period = \"{}\"\nover_budget = \"{}\"\n",
                          team.budget, ExactPeriod(team.budget_period),
                          team.over_budget == OverBudget::kLow ? "low" : "refuse");
    }
    if (team.limit != policy::Share(0)) {
      text += fmt::format("limit = {}\n", policy::Ratio(team.limit));
    }
  }
  return text;
}

std::string FormatPeriod(Duration period) {
  const auto print = [period](Duration unit, const char* one, const char* many) {
    const double n = static_cast<double>(Nanos(period)) / static_cast<double>(Nanos(unit));
    return fmt::format("{:.4g} {}", n, n == 1 ? one : many);
  };
  if (period >= kDay) return print(kDay, "day", "days");
  if (period >= std::chrono::hours(1)) return print(std::chrono::hours(1), "hour", "hours");
  return print(std::chrono::seconds(1), "s", "s");
}

}  // namespace baton::teams
