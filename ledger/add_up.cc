#include "ledger/add_up.h"

#include <fmt/format.h>

namespace baton::ledger {
namespace {

// ", SUM(NAME) AS NAME ...".
std::string SumsOf(const Database& database, const std::vector<std::string>& columns) {
  std::string sql;
  for (const std::string& name : columns) sql += ", " + database.SumOf(name) + " AS " + name;
  return sql;
}

// Their buckets are added up by account or GPU first, of which there are few.
std::string Together(const Database& database, const std::vector<Piece>& pieces,
                     const Grouped& grouped, std::vector<Value>& values) {
  const char* const id = IdOf(grouped.kind);
  const std::string sums = SumsOf(database, grouped.columns);
  std::string all;
  for (const Piece& piece : pieces) {
    values.emplace_back(piece.from);
    values.emplace_back(piece.to);
    all += fmt::format(
        "{}SELECT {}{} FROM {} u GROUP BY {}", all.empty() ? "" : " UNION ALL ", id, sums,
        BucketsIn(database, grouped.kind, kLevels[piece.level], grouped.columns,
                  fmt::format("${}", values.size() - 1), fmt::format("${}", values.size())),
        id);
  }
  return fmt::format("SELECT 0, {}{} FROM ({}) u {}{} GROUP BY {}", grouped.select, sums, all,
                     grouped.joins, grouped.where.empty() ? "" : " WHERE " + grouped.where,
                     grouped.group);
}

// One question for all pieces of a
// level: PostgreSQL plans each for milliseconds, and a year has many days.
std::string OneByOne(const Database& database, const std::vector<Piece>& pieces,
                     const Grouped& grouped, std::vector<Value>& values) {
  const std::string sums = SumsOf(database, grouped.columns);
  std::string ranges;  // "asked_LEVEL (piece, lo, hi) AS (VALUES ...)", by level
  std::string sql;
  for (size_t level = 0; level < kLevels.size(); ++level) {
    std::string rows;
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].level != level) continue;
      const size_t at = values.size();
      values.emplace_back(static_cast<int64_t>(i));
      values.emplace_back(pieces[i].from);
      values.emplace_back(pieces[i].to);
      rows += fmt::format("{}(CAST(${} AS BIGINT), CAST(${} AS BIGINT), CAST(${} AS BIGINT))",
                          rows.empty() ? "" : ", ", at + 1, at + 2, at + 3);
    }
    if (rows.empty()) continue;
    const std::string asked = std::string("asked_") + kLevels[level].name;
    ranges += fmt::format("{}{} (piece, lo, hi) AS (VALUES {})", ranges.empty() ? "WITH " : ", ",
                          asked, rows);
    std::string buckets = fmt::format(
        "{} s {}", asked,
        JoinBuckets(database, grouped.kind, kLevels[level], grouped.columns, "s.lo", "s.hi"));
    std::string piece = "s.piece";
    // A piece of days is one day mostly, and has each account once.
    if (level + 1 < kLevels.size()) {
      buckets = fmt::format("(SELECT s.piece, u.{0}{1} FROM {2} GROUP BY s.piece, u.{0}) u",
                            IdOf(grouped.kind), sums, buckets);
      piece = "u.piece";
    }
    sql += fmt::format("{}SELECT {}, {}{} FROM {} {}{} GROUP BY {}, {}",
                       sql.empty() ? " " : " UNION ALL ", piece, grouped.select, sums, buckets,
                       grouped.joins, grouped.where.empty() ? "" : " WHERE " + grouped.where, piece,
                       grouped.group);
  }
  return ranges + sql;
}

}  // namespace

void AddUp(Database& database, const std::vector<Piece>& pieces, bool by_piece,
           const Grouped& grouped, std::vector<Value> values,
           const std::function<void(const Row&)>& take) {
  if (pieces.empty()) return;
  const std::string sql = by_piece ? OneByOne(database, pieces, grouped, values)
                                   : Together(database, pieces, grouped, values);
  database.Run(sql, values, take);
}

}  // namespace baton::ledger
