#include "ledger/settled.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "ledger/columns.h"

namespace baton::ledger {
namespace {

constexpr Kind kKinds[] = {Kind::kUse, Kind::kGpu};

// How buckets of a level are packed. Days are not, for most questions are about them.
struct Packing {
  int64_t after_s;  // they are settled when they are so old; 0: never
  int64_t row_s;    // what one row is about, a part of Level::trim_seconds: a page of 8 kB holds
                    // some five rows of so many buckets, and of twice as many but two
};
constexpr std::array<Packing, 4> kPacking = {
    {{3600, 300}, {4 * 3600, 1800}, {2 * 86400, 86400}, {0, 0}}};  // of kLevels

const Packing& PackingOf(const Level& level) {
  size_t i = 0;
  while (kLevels[i].seconds != level.seconds) ++i;
  return kPacking[i];
}
bool Packs(const Database& database, const Level& level) {
  return database.packs() && PackingOf(level).after_s > 0;
}

std::vector<std::string> ColumnsOf(Kind kind) {
  if (kind == Kind::kGpu) return {kTimeNames.begin(), kTimeNames.end()};
  std::vector<std::string> columns(kCounterNames.begin(), kCounterNames.end());
  columns.emplace_back("memory_peak_mib");
  return columns;
}
std::string PackedOf(Kind kind, const Level& level) { return "packed_" + TableOf(kind, level); }

// "A, B, ..." with each name in the place of "{}".
std::string List(const std::vector<std::string>& names, std::string_view of) {
  std::string list;
  for (const std::string& name : names) {
    list += (list.empty() ? "" : ", ") + fmt::format(fmt::runtime(of), name);
  }
  return list;
}

// The numbers of all buckets of a row, in SQL.
std::string AllOf(const Level& level) {
  std::string numbers;
  for (int64_t i = 0; i < PackingOf(level).row_s / level.seconds; ++i) {
    numbers += (i == 0 ? "" : ",") + std::to_string(i);
  }
  return "CAST('{" + numbers + "}' AS SMALLINT[])";
}

// SELECT of packed buckets as rows: of stretches `p` and their buckets `b`.
std::string Unpacked(Kind kind, const Level& level, const std::vector<std::string>& columns) {
  return fmt::format(
      "SELECT p.t + {0} * b.at AS t, p.{1}{2} FROM {3} p"
      " CROSS JOIN LATERAL unnest(COALESCE(p.at, {6}){4}) AS b (at{5})",
      level.seconds, IdOf(kind),
      columns.empty() ? "" : ", " + List(columns, "COALESCE(b.{0}, 0) AS {0}"),
      PackedOf(kind, level), columns.empty() ? "" : ", " + List(columns, "p.{}"),
      columns.empty() ? "" : ", " + List(columns, "{}"), AllOf(level));
}

// Makes the stretches `p` rows again for which `which` holds.
void Unpack(Database& database, Kind kind, const Level& level, const std::string& which,
            const std::vector<Value>& values) {
  const std::vector<std::string> columns = ColumnsOf(kind);
  database.Run(fmt::format("INSERT INTO {} (t, {}, {}) {} WHERE {}{}", TableOf(kind, level),
                           IdOf(kind), List(columns, "{}"), Unpacked(kind, level, columns), which,
                           OnConflictAdd(kind, level)),
               values);
  database.Run(fmt::format("DELETE FROM {} p WHERE {}", PackedOf(kind, level), which), values);
}

// Of the first bucket in the table, unless that is after `oldest`.
int64_t OldestRow(Database& database, const std::string& table, int64_t oldest) {
  database.Run("SELECT COALESCE(MIN(t), $1) FROM " + table, {oldest},
               [&](const Row& row) { oldest = std::min(oldest, row.Int(0)); });
  return oldest;
}

}  // namespace

std::string TableOf(Kind kind, const Level& level) {
  return std::string(kind == Kind::kUse ? "use_" : "gpu_") + level.name;
}

const char* IdOf(Kind kind) { return kind == Kind::kUse ? "account" : "gpu"; }

std::string OnConflictAdd(Kind kind, const Level& level) {
  const std::string table = TableOf(kind, level);
  const auto add = [&](const std::string& name) {
    return fmt::format("{0} = {1}.{0} + excluded.{0}", name, table);
  };
  if (kind == Kind::kGpu) return " ON CONFLICT (t, gpu) DO UPDATE SET " + TimeList(add);
  return " ON CONFLICT (t, account) DO UPDATE SET " + CounterList(add) +
         fmt::format(
             ", memory_peak_mib = CASE WHEN excluded.memory_peak_mib > {0}.memory_peak_mib THEN"
             " excluded.memory_peak_mib ELSE {0}.memory_peak_mib END",
             table);
}

std::string BucketsIn(const Database& database, Kind kind, const Level& level,
                      const std::vector<std::string>& columns, const std::string& from,
                      const std::string& to) {
  std::string sql = fmt::format("SELECT t, {}{} FROM {} WHERE t >= {} AND t < {}", IdOf(kind),
                                columns.empty() ? "" : ", " + List(columns, "{}"),
                                TableOf(kind, level), from, to);
  if (Packs(database, level)) {
    sql += fmt::format(
        " UNION ALL {0} WHERE p.t > CAST({1} AS BIGINT) - {2} AND p.t < {3}"
        " AND p.t + {4} * b.at >= {1} AND p.t + {4} * b.at < {3}",
        Unpacked(kind, level, columns), from, PackingOf(level).row_s, to, level.seconds);
  }
  return "(" + sql + ")";
}

std::string JoinBuckets(const Database& database, Kind kind, const Level& level,
                        const std::vector<std::string>& columns, const std::string& from,
                        const std::string& to) {
  if (database.packs()) {
    return "CROSS JOIN LATERAL " + BucketsIn(database, kind, level, columns, from, to) + " u";
  }
  // SQLite knows no LATERAL. With CROSS it goes range by range.
  return fmt::format("CROSS JOIN {} u ON u.t >= {} AND u.t < {}", TableOf(kind, level), from, to);
}

int64_t OldestBucket(Database& database, const Level& level, int64_t oldest) {
  for (const Kind kind : kKinds) {
    oldest = OldestRow(database, TableOf(kind, level), oldest);
    if (Packs(database, level)) oldest = OldestRow(database, PackedOf(kind, level), oldest);
  }
  return oldest;
}

void DropBuckets(Database& database, const Level& level, int64_t floor) {
  for (const Kind kind : kKinds) {
    database.Run("DELETE FROM " + TableOf(kind, level) + " WHERE t < $1", {floor});
    if (!Packs(database, level)) continue;
    database.Run("DELETE FROM " + PackedOf(kind, level) + " WHERE t < $1", {floor});
  }
}

std::string FloorName(const Database& database, const Level& level) {
  return std::string(level.name) + (Packs(database, level) ? "_dropped" : "_floor");
}

void MakePacked(Database& database) {
  for (const Level& level : kLevels) {
    if (!Packs(database, level)) continue;
    for (const Kind kind : kKinds) {
      const std::string table = PackedOf(kind, level);
      const std::vector<std::string> columns = ColumnsOf(kind);
      // `at`: the number of each bucket in the row; null: all there are, in order. Another array
      // that is null is one of zeros. What is above 2 kB is compressed, and stays with its row.
      database.Run(fmt::format("CREATE TABLE {0} (t BIGINT NOT NULL, {1} INTEGER NOT NULL,"
                               " at SMALLINT[], {2}, PRIMARY KEY (t, {1}))"
                               " WITH (toast_tuple_target = 128)",
                               table, IdOf(kind), List(columns, "{} BIGINT[]")),
                   {});
      database.Run(fmt::format("ALTER TABLE {} ALTER COLUMN at SET STORAGE MAIN, {}", table,
                               List(columns, "ALTER COLUMN {} SET STORAGE MAIN")),
                   {});
    }
    database.Run(
        "INSERT INTO meta (name, value) SELECT CAST($1 AS TEXT), value FROM meta WHERE name = $2",
        {std::string_view(FloorName(database, level)),
         std::string_view(std::string(level.name) + "_floor")});
  }
}

bool PackStretch(Database& database, const Level& level, int64_t now) {
  if (!Packs(database, level)) return false;
  // Of a ledger whose newest books are old, these count as new: nobody looks for the newest bucket
  // among those that are packed.
  int64_t newest = 0;  // its end
  int64_t oldest = now;
  for (const Kind kind : kKinds) {
    database.Run("SELECT COALESCE(MAX(t), 0) FROM " + TableOf(kind, level), {},
                 [&](const Row& row) { newest = std::max(newest, row.Int(0) + level.seconds); });
    oldest = OldestRow(database, TableOf(kind, level), oldest);
  }
  const int64_t begin = Floor(oldest, level.trim_seconds);
  const int64_t end = begin + level.trim_seconds;
  if (end > std::min(now, newest) - PackingOf(level).after_s) return false;
  for (const Kind kind : kKinds) {
    const std::string table = TableOf(kind, level);
    const std::string id = IdOf(kind);
    // What was packed before this was booked late.
    Unpack(database, kind, level,
           fmt::format("p.t >= $1 AND p.t < $2 AND"
                       " p.{0} IN (SELECT {0} FROM {1} WHERE t >= $1 AND t < $2)",
                       id, table),
           {begin, end});
    const std::vector<std::string> columns = ColumnsOf(kind);
    database.Run(
        fmt::format("INSERT INTO {0} (t, {1}, at, {2}) SELECT t - t % {3}, {1},"
                    " NULLIF(array_agg(CAST(t % {3} / {4} AS SMALLINT)), {5}), {6}"
                    " FROM {7} WHERE t >= $1 AND t < $2 GROUP BY t - t % {3}, {1}",
                    PackedOf(kind, level), id, List(columns, "{}"), PackingOf(level).row_s,
                    level.seconds, AllOf(level),
                    List(columns, "CASE WHEN bit_or({0}) <> 0 THEN array_agg({0}) END"), table),
        {begin, end});
    database.Run("DELETE FROM " + table + " WHERE t >= $1 AND t < $2", {begin, end});
  }
  database.Run(
      "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value ="
      " CASE WHEN excluded.value > meta.value THEN excluded.value ELSE meta.value END",
      {std::string_view(std::string(level.name) + "_floor"), end});
  return true;
}

void GiveBack(Database& database, const Level& level) {
  if (!Packs(database, level)) return;
  for (const Kind kind : kKinds) {
    database.Vacuum(TableOf(kind, level));
    database.Vacuum(PackedOf(kind, level));
  }
}

void UnpackAfter(Database& database, const Level& level, int64_t second, int64_t source) {
  if (!Packs(database, level)) return;
  const std::string of_gpu = "(SELECT id FROM gpus WHERE source = $2)";
  for (const Kind kind : kKinds) {
    Unpack(database, kind, level,
           "p.t > $1 AND p." +
               (kind == Kind::kGpu
                    ? "gpu IN " + of_gpu
                    : "account IN (SELECT id FROM accounts WHERE gpu IN " + of_gpu + ")"),
           {second - PackingOf(level).row_s, source});
  }
}

}  // namespace baton::ledger
