// Use by team and user, older use counting less.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "ledger/buckets.h"
#include "ledger/database.h"
#include "ledger/floors.h"
#include "ledger/kept_use.h"
#include "ledger/ledger.h"
#include "ledger/settled.h"

namespace baton::ledger {
namespace {

constexpr size_t kHours = 2;  // of kLevels
constexpr int64_t kHour = kLevels[kHours].seconds;
constexpr int64_t kEver = std::numeric_limits<int64_t>::max();

// Buckets of one level: from `from` up to before `to`, in seconds.
struct Stretch {
  size_t level;
  int64_t from;
  int64_t to;
};

struct Decay {
  double now_s;
  double half_life_s;
};

int64_t NewestHour(Database& database) {
  int64_t newest = 0;
  database.Run("SELECT COALESCE(MAX(t), 0) FROM use_hours", {},
               [&](const Row& row) { newest = row.Int(0); });
  return newest;
}

// Adds what the stretches hold, by team, user and model, as it has decayed by now.
void Add(Database& database, const std::vector<Stretch>& stretches, const Decay& decay,
         KeptUse::Sums& sums) {
  // Beyond a thousand half-lives nothing is left that a double would hold.
  std::vector<Value> values{decay.now_s, decay.now_s - 1000 * decay.half_life_s, decay.half_life_s};
  std::string pieces;
  for (const auto& [level, from, to] : stretches) {
    if (from >= to) continue;
    const std::string at = fmt::format("(t + {})", kLevels[level].seconds / 2);
    values.emplace_back(from);
    values.emplace_back(to);
    const std::string buckets =
        BucketsIn(database, Kind::kUse, kLevels[level], {"held_ns", "uncontended_ns"},
                  fmt::format("${}", values.size() - 1), fmt::format("${}", values.size()));
    const std::string kept = fmt::format(
        "CASE WHEN {} >= CAST($1 AS DOUBLE PRECISION) THEN 1.0"
        " WHEN {} < CAST($2 AS DOUBLE PRECISION) THEN 0.0"
        " ELSE power(CAST(2.0 AS DOUBLE PRECISION), ({} - CAST($1 AS DOUBLE PRECISION))"
        " / CAST($3 AS DOUBLE PRECISION)) END",
        at, at, at);
    pieces += fmt::format(
        "{}SELECT account, SUM(CAST(held_ns AS DOUBLE PRECISION)) AS held_ns,"
        " SUM(held_ns * {}) AS decayed_ns, SUM(CASE WHEN uncontended_ns = 0 THEN 0.0"
        " ELSE uncontended_ns * {} END) AS uncontended_ns FROM {} b GROUP BY account",
        pieces.empty() ? "" : " UNION ALL ", kept, kept, buckets);
  }
  if (pieces.empty()) return;
  const std::string sql =
      "SELECT a.team, a.user_name, g.model, SUM(u.held_ns), SUM(u.decayed_ns),"
      " SUM(u.uncontended_ns) FROM (" +
      pieces +
      ") u JOIN accounts a ON a.id = u.account JOIN gpus g ON g.id = a.gpu"
      " GROUP BY a.team, a.user_name, g.model";
  database.Run(sql, values, [&](const Row& row) {
    KeptUse::Sum& sum = sums[{row.Text(0), row.Text(1), row.Text(2)}];
    sum.held_ns += row.Real(3);
    sum.decayed_ns += row.Real(4);
    sum.uncontended_ns += row.Real(5);
  });
}

// The stretches that together hold all use: the finest level for what is new, the next one for what
// is older, and so on; from the coarsest on.
std::vector<Stretch> Stretches(Database& database, int64_t now_s, size_t finest) {
  constexpr std::array<int64_t, 3> kHorizon = {kHour, 24 * kHour, 7 * 24 * kHour};
  const std::array<int64_t, 4> floors = Floors(database);
  std::vector<Stretch> stretches;
  int64_t from = 0;
  for (size_t level = kLevels.size(); level-- > finest;) {
    int64_t to = kEver;
    if (level > finest) {
      to = std::max(
          {from, Floor(std::max<int64_t>(0, now_s - kHorizon[level - 1]), kLevels[level].seconds),
           floors[level - 1]});
    }
    stretches.push_back({level, from, to});
    from = to;
  }
  return stretches;
}

// By days and hours: most of it is kept from the question before.
KeptUse::Sums KeptAndNew(Database& database, const std::vector<Stretch>& stretches,
                         const Decay& decay, KeptUse& kept) {
  const int64_t days_end = stretches.front().to;
  int64_t rewritten = 0;
  database.Run("SELECT value FROM meta WHERE name = 'rewritten'", {},
               [&](const Row& row) { rewritten = row.Int(0); });
  const int64_t this_hour = Floor(static_cast<int64_t>(decay.now_s), kHour);
  const int64_t to = std::min(NewestHour(database), this_hour) - kHour;
  KeptUse::Sums all;
  if (to < days_end) {  // nothing was booked for long: then nobody says what is booked late
    Add(database, stretches, decay, all);
    return all;
  }
  if (kept.half_life_s != decay.half_life_s || kept.days_end != days_end ||
      kept.rewritten != rewritten || kept.to > to) {
    kept = {.half_life_s = decay.half_life_s,
            .days_end = days_end,
            .rewritten = rewritten,
            .to = days_end,
            .as_of_s = decay.now_s,
            .sums = {}};
    Add(database, {stretches.front()}, decay, kept.sums);
  }
  const double since = std::exp2((kept.as_of_s - decay.now_s) / decay.half_life_s);
  for (auto& [whose, sum] : kept.sums) {
    sum.decayed_ns *= since;
    sum.uncontended_ns *= since;
  }
  kept.as_of_s = decay.now_s;
  Add(database, {{kHours, kept.to, to}}, decay, kept.sums);
  kept.to = to;
  all = kept.sums;
  Add(database, {{kHours, to, kEver}}, decay, all);
  return all;
}

}  // namespace

std::array<int64_t, 4> Floors(Database& database) {
  std::array<int64_t, 4> floors{};
  database.Run("SELECT name, value FROM meta", {}, [&](const Row& row) {
    for (size_t i = 0; i < kLevels.size(); ++i) {
      if (row.Text(0) == FloorName(database, kLevels[i])) floors[i] = row.Int(1);
    }
  });
  // After a long pause the coarser level may be trimmed for a while where the finer one is not yet,
  // and finer buckets alone answer nothing.
  for (size_t i = kLevels.size() - 1; i-- > 0;) floors[i] = std::max(floors[i], floors[i + 1]);
  return floors;
}

void NoteRewritten(Database& database) {
  database.Run(
      "INSERT INTO meta (name, value) VALUES ('rewritten', 1)"
      " ON CONFLICT (name) DO UPDATE SET value = meta.value + 1",
      {});
}

void NoteUseAt(Database& database, int64_t second) {
  if (second < NewestHour(database) - kHour) NoteRewritten(database);
}

Result<std::vector<DecayedUse>> Ledger::Decayed(WallTime now, Duration half_life,
                                                const ModelWeights& weights) {
  if (half_life < std::chrono::seconds(1)) {
    return Fail(ErrorCode::kInvalid, "the half-life of use must be a second at least");
  }
  const Decay decay = {static_cast<double>(Millis(now)) / 1e3,
                       static_cast<double>(Nanos(half_life)) / 1e9};
  // Buckets of a quarter of the half-life at most, where that matters.
  const size_t finest = half_life >= std::chrono::hours(4)     ? kHours
                        : half_life >= std::chrono::minutes(4) ? 1
                                                               : 0;
  KeptUse::Sums sums;
  auto done = Try([&] {
    const Transaction transaction(*database_, Database::Access::kRead);
    const std::vector<Stretch> stretches =
        Stretches(*database_, static_cast<int64_t>(decay.now_s), finest);
    if (finest != kHours) return Add(*database_, stretches, decay, sums);
    KeptUse kept = *kept_;  // what fails halfway has kept nothing
    sums = KeptAndNew(*database_, stretches, decay, kept);
    *kept_ = std::move(kept);
  });
  if (!done) return tl::unexpected(done.error());
  std::map<std::pair<std::string, std::string>, DecayedUse> by_user;
  for (const auto& [whose, sum] : sums) {
    const auto& [team, user, model] = whose;
    DecayedUse& use = by_user.try_emplace({team, user}, DecayedUse{team, user}).first->second;
    const double weight = WeightOf(weights, model);
    use.held_ns += weight * sum.held_ns;
    use.decayed_ns += weight * sum.decayed_ns;
    use.uncontended_ns += weight * sum.uncontended_ns;
  }
  std::vector<DecayedUse> all;
  all.reserve(by_user.size());
  for (auto& [who, use] : by_user) all.push_back(std::move(use));
  return all;
}

}  // namespace baton::ledger
