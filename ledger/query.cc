// What the ledger answers: sums by the coarsest buckets that fit.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/team_path.h"
#include "ledger/buckets.h"
#include "ledger/columns.h"
#include "ledger/database.h"
#include "ledger/ledger.h"

namespace baton::ledger {
namespace {

constexpr int64_t kDay = 86400;

Result<void> Check(Window window) {
  // What Apply() books lies in here, and products of it stay in range.
  constexpr WallTime kMax = std::chrono::sys_days(std::chrono::year(3000) / 1 / 1);
  if (window.from > window.to || window.from < WallTime{} || window.to > kMax) {
    return Fail(ErrorCode::kInvalid,
                "a window must begin before it ends, and lie in the years 1970 to 3000");
  }
  return {};
}

// The second before which each level has no buckets any more.
std::array<int64_t, 4> Floors(Database& database) {
  std::array<int64_t, 4> floors{};
  database.Run("SELECT name, value FROM meta", {}, [&](const Row& row) {
    for (size_t i = 0; i < kLevels.size(); ++i) {
      if (row.Text(0) == std::string(kLevels[i].name) + "_floor") floors[i] = row.Int(1);
    }
  });
  return floors;
}

// "(SELECT ... FROM PREFIXfine WHERE t >= $1 AND t < $2 GROUP BY ... UNION ALL ...)" over all
// pieces, and the values of its placeholders.
std::string Union(const std::vector<Piece>& pieces, const std::string& prefix,
                  const std::string& select, const std::string& group, std::vector<Value>& values) {
  std::string sql;
  for (const Piece& piece : pieces) {
    values.emplace_back(piece.from);
    values.emplace_back(piece.to);
    const std::string last = std::to_string(values.size());
    sql += sql.empty() ? "(" : " UNION ALL ";
    sql += "SELECT " + select + " FROM " + prefix + kLevels[piece.level].name + " WHERE t >= $" +
           std::to_string(values.size() - 1) + " AND t < $" + last +
           (group.empty() ? "" : " GROUP BY " + group);
  }
  return sql + ")";
}

std::string SumsOf(const Database& database, const std::vector<std::string>& names) {
  std::string sql;
  for (const std::string& name : names) sql += ", " + database.SumOf(name) + " AS " + name;
  return sql;
}

// "2026-11-21".
std::string DayName(int64_t day) {
  const std::chrono::year_month_day date{
      std::chrono::sys_days(std::chrono::days(static_cast<int>(day)))};
  char text[16];
  std::snprintf(text, sizeof text, "%04d-%02u-%02u", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
  return text;
}

// How By is written in SQL: over accounts a, GPUs g, and u, which has the day where it is asked
// for.
struct Keys {
  const char* key;
  const char* team;
  const char* gpu_key;  // of a capacity row
};
Keys KeysOf(By by) {
  switch (by) {
    case By::kTeam:
      return {"a.team", "''", "''"};
    case By::kUser:
      return {"a.user_name", "a.team", "''"};
    case By::kNamespace:
      return {"a.name_space", "''", "''"};
    case By::kPod:
      return {"CASE WHEN a.name_space = '' THEN a.name ELSE a.name_space || '/' || a.name END",
              "a.team", "''"};
    case By::kGpu:
      return {"g.uuid", "''", "g.uuid"};
    case By::kNode:
      return {"g.node", "''", "g.node"};
    case By::kDay:
      return {"u.day", "''", "u.day"};
    case By::kTotal:
      break;
  }
  return {"''", "''", "''"};
}

// The value below which a fraction `q` of the values lies (nearest rank); 0 of none.
template <class T>
T Quantile(std::vector<T>& values, double q) {
  if (values.empty()) return T{};
  auto rank = static_cast<size_t>(q * static_cast<double>(values.size()));
  rank = std::min(rank, values.size() - 1);
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(rank), values.end());
  return values[rank];
}

}  // namespace

Int128 ParseSum(std::string_view text) {
  const bool below = !text.empty() && text.front() == '-';
  if (below) text.remove_prefix(1);
  Int128 sum = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || __builtin_mul_overflow(sum, 10, &sum) ||
        __builtin_add_overflow(sum, c - '0', &sum)) {
      return 0;
    }
  }
  return below ? -sum : sum;
}

std::string FormatSum(Int128 sum) {
  std::string text;
  for (Int128 left = sum; left != 0 || text.empty(); left /= 10) {
    const auto digit = static_cast<int>(left % 10);
    text += static_cast<char>('0' + (digit < 0 ? -digit : digit));
  }
  if (sum < 0) text += '-';
  std::reverse(text.begin(), text.end());
  return text;
}

Result<Uses> Ledger::Query(Window window, By by) {
  if (auto good = Check(window); !good) return tl::unexpected(good.error());
  static const std::vector<std::string> kUse(kCounterNames.begin(), kCounterNames.end());
  static const std::vector<std::string> kCapacity = {"present_ns", "idle_ns"};
  Uses uses;
  auto done = Try([&] {
    const Transaction transaction(*database_, Database::Access::kRead);
    const WindowCut cut = CutWindow(window, Floors(*database_));
    uses = {cut.window, {}, {}};
    if (cut.pieces.empty()) return;
    const Keys keys = KeysOf(by);
    const bool daily = by == By::kDay;
    const std::string day = daily ? ", t / 86400 AS day" : "";
    const std::string by_day = daily ? ", t / 86400" : "";
    const auto name = [&](const Row& row) { return daily ? DayName(row.Int(0)) : row.Text(0); };

    std::vector<Value> values;
    std::string sql = Union(cut.pieces, "use_", "account" + day + SumsOf(*database_, kUse),
                            "account" + by_day, values);
    sql = std::string("SELECT ") + keys.key + " AS k, " + keys.team + " AS team, g.model" +
          SumsOf(*database_, kUse) + " FROM " + sql +
          " u JOIN accounts a ON a.id = u.account JOIN gpus g ON g.id = a.gpu GROUP BY k, " +
          (by == By::kUser || by == By::kPod ? "a.team, " : "") + "g.model";
    database_->Run(sql, values, [&](const Row& row) {
      uses.rows.push_back({name(row),
                           row.Text(1),
                           row.Text(2),
                           {row.Wide(3), row.Wide(4), row.Wide(5), row.Wide(6), row.Wide(7),
                            row.Wide(8), row.Wide(9), row.Wide(10)}});
    });

    values.clear();
    sql = Union(cut.pieces, "gpu_", "gpu" + day + SumsOf(*database_, kCapacity), "gpu" + by_day,
                values);
    sql = std::string("SELECT ") + keys.gpu_key + " AS k, g.model" + SumsOf(*database_, kCapacity) +
          " FROM " + sql + " u JOIN gpus g ON g.id = u.gpu GROUP BY k, g.model";
    database_->Run(sql, values, [&](const Row& row) {
      uses.capacity.push_back({name(row), row.Text(1), row.Wide(2), row.Wide(3)});
    });
  });
  if (!done) return tl::unexpected(done.error());
  // Not by the database, which has an order of its own for letters.
  std::sort(uses.rows.begin(), uses.rows.end(), [](const UseRow& a, const UseRow& b) {
    return std::tie(a.key, a.team, a.model) < std::tie(b.key, b.team, b.model);
  });
  std::sort(uses.capacity.begin(), uses.capacity.end(),
            [](const CapacityRow& a, const CapacityRow& b) {
              return std::tie(a.key, a.model) < std::tie(b.key, b.model);
            });
  return uses;
}

Result<std::vector<DecayedUse>> Ledger::Decayed(WallTime now, Duration half_life) {
  if (half_life < std::chrono::seconds(1)) {
    return Fail(ErrorCode::kInvalid, "the half-life of use must be a second at least");
  }
  const double now_s = static_cast<double>(Millis(now)) / 1e3;
  const double half_life_s = static_cast<double>(Nanos(half_life)) / 1e9;
  // Beyond a thousand half-lives nothing is left that a double would hold.
  const double oldest_s = now_s - 1000 * half_life_s;
  std::vector<DecayedUse> all;
  auto done = Try([&] {
    all.clear();
    const Transaction transaction(*database_, Database::Access::kRead);
    // Buckets of a quarter of the half-life at most, where that matters: the finest level for what
    // is new, the next one for what is older, and so on.
    const size_t finest = half_life >= std::chrono::hours(4)     ? 2
                          : half_life >= std::chrono::minutes(4) ? 1
                                                                 : 0;
    constexpr std::array<int64_t, 3> kHorizon = {3600, kDay, 7 * kDay};
    const std::array<int64_t, 4> floors = Floors(*database_);
    std::vector<Value> values{now_s, oldest_s, half_life_s};
    std::string pieces;
    int64_t before = 0;  // where the coarser level ended; 0: nowhere yet
    for (size_t level = kLevels.size(); level-- > finest;) {
      const Level& of = kLevels[level];
      const std::string at = fmt::format("(t + {})", of.seconds / 2);
      std::string which = "1 = 1";
      if (level + 1 < kLevels.size()) {
        values.emplace_back(before);
        which = fmt::format("t >= ${}", values.size());
      }
      if (level > finest) {
        before =
            std::max({before,
                      Floor(std::max<int64_t>(0, static_cast<int64_t>(now_s) - kHorizon[level - 1]),
                            of.seconds),
                      floors[level - 1]});
        values.emplace_back(before);
        which += fmt::format(" AND t < ${}", values.size());
      }
      pieces += fmt::format(
          "{}SELECT account, SUM(CAST(held_ns AS DOUBLE PRECISION)) AS held_ns,"
          " SUM(held_ns * CASE WHEN {} >= CAST($1 AS DOUBLE PRECISION) THEN 1.0"
          " WHEN {} < CAST($2 AS DOUBLE PRECISION) THEN 0.0"
          " ELSE power(CAST(2.0 AS DOUBLE PRECISION), ({} - CAST($1 AS DOUBLE PRECISION))"
          " / CAST($3 AS DOUBLE PRECISION)) END) AS decayed_ns FROM use_{} WHERE {}"
          " GROUP BY account",
          pieces.empty() ? "" : " UNION ALL ", at, at, at, of.name, which);
    }
    const std::string sql = "SELECT a.team, a.user_name, SUM(u.held_ns), SUM(u.decayed_ns) FROM (" +
                            pieces +
                            ") u JOIN accounts a ON a.id = u.account GROUP BY a.team, a.user_name";
    database_->Run(sql, values, [&](const Row& row) {
      all.push_back({row.Text(0), row.Text(1), row.Real(2), row.Real(3)});
    });
  });
  if (!done) return tl::unexpected(done.error());
  std::sort(all.begin(), all.end(), [](const DecayedUse& a, const DecayedUse& b) {
    return std::tie(a.team, a.user) < std::tie(b.team, b.user);
  });
  return all;
}

Result<Int128> Ledger::HeldBy(const std::string& team, Window window) {
  if (auto good = Check(window); !good) return tl::unexpected(good.error());
  Int128 held_ns = 0;
  auto done = Try([&] {
    held_ns = 0;
    const Transaction transaction(*database_, Database::Access::kRead);
    const WindowCut cut = CutWindow(window, Floors(*database_));
    if (cut.pieces.empty()) return;
    std::vector<Value> values;
    std::string sql =
        Union(cut.pieces, "use_", "account, " + database_->SumOf("held_ns") + " AS held_ns",
              "account", values);
    sql = "SELECT " + database_->SumOf("u.held_ns") + " FROM " + sql +
          " u JOIN accounts a ON a.id = u.account";
    const std::string below = team + "/";
    if (!team.empty()) {
      const std::string own = "CAST($" + std::to_string(values.size() + 1) + " AS TEXT)";
      const std::string path = "CAST($" + std::to_string(values.size() + 2) + " AS TEXT)";
      sql += " WHERE a.team = " + own + " OR substr(a.team, 1, length(" + path + ")) = " + path;
      values.emplace_back(std::string_view(team));
      values.emplace_back(std::string_view(below));
      // What nobody named a team for.
      if (team == kDefaultTeam) sql += " OR a.team = ''";
    }
    database_->Run(sql, values, [&](const Row& row) { held_ns = row.Wide(0); });
  });
  if (!done) return tl::unexpected(done.error());
  return held_ns;
}

Result<std::vector<Profile>> Ledger::Profiles(Window window) {
  if (auto good = Check(window); !good) return tl::unexpected(good.error());
  struct Course {
    int64_t account = 0;  // the last one
    int64_t first = 0;
    int64_t last = 0;
    std::vector<float> held;
    std::vector<int64_t> peaks;
  };
  std::vector<Profile> profiles;
  auto done = Try([&] {
    profiles.clear();
    const Transaction transaction(*database_, Database::Access::kRead);
    const auto length = window.to - window.from;
    size_t level = length <= std::chrono::hours(1) ? 0 : length <= std::chrono::hours(24) ? 1 : 2;
    const std::array<int64_t, 4> floors = Floors(*database_);
    const int64_t from_s = Millis(window.from) / 1000;
    while (level + 1 < kLevels.size() && from_s < floors[level]) ++level;
    const int64_t seconds = kLevels[level].seconds;

    struct Account {
      std::pair<int64_t, int64_t> meter;  // GPU, pod
      Owner owner;
      std::string gpu;
    };
    // All of the window's first: rows of a bucket come by account, which says of which pod it is.
    const std::string table = std::string("use_") + kLevels[level].name;
    const std::vector<Value> values = {Floor(from_s, seconds),
                                       Ceil((Millis(window.to) + 999) / 1000, seconds)};
    std::map<int64_t, Account> accounts;
    database_->Run(
        "SELECT a.id, a.gpu, a.pod, a.name, a.name_space, a.team, a.user_name, g.uuid FROM"
        " (SELECT DISTINCT account FROM " +
            table +
            " WHERE t >= $1 AND t < $2) u"
            " JOIN accounts a ON a.id = u.account JOIN gpus g ON g.id = a.gpu",
        values, [&](const Row& row) {
          accounts[row.Int(0)] = {{row.Int(1), row.Int(2)},
                                  {row.Text(3), row.Text(4), row.Text(5), row.Text(6)},
                                  row.Text(7)};
        });
    std::map<std::pair<int64_t, int64_t>, Course> courses;
    database_->Run("SELECT t, account, held_ns, memory_peak_mib FROM " + table +
                       " WHERE t >= $1 AND t < $2 ORDER BY t, account",
                   values, [&](const Row& row) {
                     const int64_t t = row.Int(0);
                     Course& course = courses[accounts.at(row.Int(1)).meter];
                     const double share =
                         static_cast<double>(row.Int(2)) / (static_cast<double>(seconds) * 1e9);
                     if (!course.held.empty() && course.last == t) {
                       // Another owner within the bucket.
                       course.held.back() += static_cast<float>(share);
                       course.peaks.back() = std::max(course.peaks.back(), row.Int(3));
                     } else {
                       if (course.held.empty()) course.first = t;
                       course.held.push_back(static_cast<float>(share));
                       course.peaks.push_back(row.Int(3));
                     }
                     course.last = t;
                     course.account = row.Int(1);
                   });
    for (auto& [meter, course] : courses) {
      const Account& account = accounts.at(course.account);
      Profile profile;
      profile.owner = account.owner;
      profile.gpu = account.gpu;
      profile.buckets = (course.last - course.first) / seconds + 1;
      profile.memory_peak_mib = *std::max_element(course.peaks.begin(), course.peaks.end());
      profile.memory_p99_mib = Quantile(course.peaks, 0.99);
      // It was there, and used nothing.
      course.held.resize(static_cast<size_t>(profile.buckets), 0.0f);
      profile.held_p50 = std::clamp<double>(Quantile(course.held, 0.5), 0.0, 1.0);
      profile.held_p99 = std::clamp<double>(Quantile(course.held, 0.99), 0.0, 1.0);
      profiles.push_back(std::move(profile));
    }
  });
  if (!done) return tl::unexpected(done.error());
  std::sort(profiles.begin(), profiles.end(), [](const Profile& a, const Profile& b) {
    return std::tie(a.owner.name_space, a.owner.pod, a.gpu) <
           std::tie(b.owner.name_space, b.owner.pod, b.gpu);
  });
  return profiles;
}

}  // namespace baton::ledger
