#include "ledger/asked.h"

#include <fmt/format.h>

#include <chrono>
#include <limits>

#include "base/team_path.h"

namespace baton::ledger {

Result<void> Check(Window window) {
  // What Apply() books lies in here, and products of it stay in range.
  constexpr WallTime kMax = std::chrono::sys_days(std::chrono::year(3000) / 1 / 1);
  if (window.from > window.to || window.from < WallTime{} || window.to > kMax) {
    return Fail(ErrorCode::kInvalid,
                "a window must begin before it ends, and lie in the years 1970 to 3000");
  }
  return {};
}

std::string OfTeam(std::string_view team, std::string_view below, std::vector<Value>& values) {
  values.emplace_back(team);
  const std::string own = "CAST($" + std::to_string(values.size()) + " AS TEXT)";
  values.emplace_back(below);
  const std::string path = "CAST($" + std::to_string(values.size()) + " AS TEXT)";
  std::string sql = "(a.team = " + own + " OR substr(a.team, 1, length(" + path + ")) = " + path;
  // What nobody named a team for.
  if (team == kDefaultTeam) sql += " OR a.team = ''";
  return sql + ")";
}

std::string Filter(const Question& question, const std::string& below, std::vector<Value>& values) {
  std::string sql;
  const auto and_also = [&](const std::string& condition) {
    sql += (sql.empty() ? "" : " AND ") + condition;
  };
  const auto is = [&](const std::string& column, const std::string& value) {
    values.emplace_back(std::string_view(value));
    return column + " = CAST($" + std::to_string(values.size()) + " AS TEXT)";
  };
  if (!question.team.empty()) and_also(OfTeam(question.team, below, values));
  if (!question.user.empty()) and_also(is("a.user_name", question.user));
  if (!question.name_space.empty()) and_also(is("a.name_space", question.name_space));
  if (!question.pod.empty()) {
    and_also("(" + is("a.name", question.pod) + " OR " + is(kPodKey, question.pod) + ")");
  }
  return sql;
}

Result<void> Check(const Question& question) {
  if (auto good = Check(question.window); !good) return good;
  const std::vector<By>& by = question.by;
  if (by.empty() || by.size() > kBysMax) {
    return Fail(ErrorCode::kInvalid, fmt::format("a report is by 1 to {} keys", kBysMax));
  }
  if (Has(by, By::kTotal) && by.size() > 1) {
    return Fail(ErrorCode::kInvalid, "a report by total has no other keys");
  }
  for (size_t i = 0; i < by.size(); ++i) {
    if (std::find(by.begin(), by.begin() + static_cast<ptrdiff_t>(i), by[i]) !=
        by.begin() + static_cast<ptrdiff_t>(i)) {
      return Fail(ErrorCode::kInvalid, "a report is by each key once");
    }
  }
  return {};
}

std::vector<Period> AskedPeriods(Database& database, const Question& question, const WindowCut& cut,
                                 const std::array<int64_t, 4>& floors) {
  const bool daily = Has(question.by, By::kDay);
  if (!daily && !Has(question.by, By::kMonth)) return {{"", cut.window, cut.pieces}};
  constexpr const char* kDays[] = {"use_days", "gpu_days"};
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t last = -1;
  for (const std::string table : kDays) {
    database.Run("SELECT COALESCE(MIN(t), $1) FROM " + table, {first},
                 [&](const Row& row) { first = std::min(first, row.Int(0)); });
    database.Run("SELECT COALESCE(MAX(t), $1) FROM " + table, {last},
                 [&](const Row& row) { last = std::max(last, row.Int(0)); });
  }
  if (last < 0) return {};
  // With the whole of the periods at both ends.
  const int64_t margin = (daily ? 2 : 32) * kLevels[3].seconds;
  const auto at = [](int64_t second) { return WallTime(std::chrono::seconds(second)); };
  const Window window{std::max(cut.window.from, at(std::max<int64_t>(0, first - margin))),
                      std::min(cut.window.to, at(last + margin))};
  return PeriodsOf(question.zone, daily ? PeriodLength::kDay : PeriodLength::kMonth, window,
                   floors);
}

}  // namespace baton::ledger
