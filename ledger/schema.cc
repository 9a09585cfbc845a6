#include "ledger/schema.h"

#include <fmt/format.h>

#include <algorithm>

#include "ledger/buckets.h"
#include "ledger/columns.h"
#include "ledger/settled.h"

namespace baton::ledger {
namespace {

// Version 1: the books.
void MakeBooks(Database& database) {
  std::string counters;
  for (size_t i = 0; i < kFirstCounters; ++i) {
    counters += (i == 0 ? "" : ", ") + std::string(kCounterNames[i]) + " BIGINT NOT NULL";
  }
  const std::string clustered = std::string(" ") + database.clustered();
  // Besides the version: "NAME_floor", the second before which a level's buckets are dropped.
  database.Run("CREATE TABLE meta (name TEXT PRIMARY KEY, value BIGINT NOT NULL)", {});
  // Usage books, and how far each of them is booked.
  database.Run(
      "CREATE TABLE sources (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,"
      " node TEXT NOT NULL, seq BIGINT NOT NULL, booked_until_ms BIGINT NOT NULL,"
      " largest_pod BIGINT NOT NULL)",
      {});
  // A GPU as one source knows it. listed: it stood in the batch booked last.
  database.Run(
      "CREATE TABLE gpus (id INTEGER PRIMARY KEY, source INTEGER NOT NULL, uuid TEXT NOT NULL,"
      " node TEXT NOT NULL, model TEXT NOT NULL, memory_bytes BIGINT NOT NULL,"
      " listed INTEGER NOT NULL, UNIQUE (source, uuid))",
      {});
  // A pod on a GPU while it had one owner.
  database.Run(
      "CREATE TABLE accounts (id INTEGER PRIMARY KEY, gpu INTEGER NOT NULL, pod BIGINT NOT NULL,"
      " name TEXT NOT NULL, name_space TEXT NOT NULL, team TEXT NOT NULL, user_name TEXT NOT NULL)",
      {});
  database.Run("CREATE INDEX accounts_of ON accounts (gpu, pod)", {});
  // The last totals of a pod on a GPU, and the account that pays now.
  database.Run(
      "CREATE TABLE meters (gpu INTEGER NOT NULL, pod BIGINT NOT NULL,"
      " account INTEGER NOT NULL, " +
          counters + ", PRIMARY KEY (gpu, pod))" + clustered,
      {});
  for (const Level& level : kLevels) {
    database.Run(fmt::format("CREATE TABLE {} (t BIGINT NOT NULL, account INTEGER NOT NULL, {},"
                             " memory_peak_mib BIGINT NOT NULL, PRIMARY KEY (t, account)){}",
                             TableOf(Kind::kUse, level), counters, clustered),
                 {});
    database.Run(fmt::format("CREATE TABLE {} (t BIGINT NOT NULL, gpu INTEGER NOT NULL,"
                             " present_ns BIGINT NOT NULL, idle_ns BIGINT NOT NULL,"
                             " PRIMARY KEY (t, gpu)){}",
                             TableOf(Kind::kGpu, level), clustered),
                 {});
  }
}

// Version 2: batches that wait to be sent upstream, numbered as they came.
void MakeSpool(Database& database) {
  database.Run(std::string("CREATE TABLE spool (number INTEGER PRIMARY KEY, body ") +
                   database.blob() + " NOT NULL)",
               {});
}

// What daemons of an earlier version pass over makes no version of its own; meta says how much of
// it is there as "extra".

// Extra 1: who changed what.
void MakeChanges(Database& database) {
  database.Run(
      "CREATE TABLE changes (id INTEGER PRIMARY KEY, at_ms BIGINT NOT NULL, node TEXT NOT NULL,"
      " who TEXT NOT NULL, action TEXT NOT NULL, kind TEXT NOT NULL, object TEXT NOT NULL,"
      " was TEXT NOT NULL, became TEXT NOT NULL)",
      {});
  // What is configured on each node now: to find what changes.
  database.Run(
      "CREATE TABLE settings (node TEXT NOT NULL, kind TEXT NOT NULL, object TEXT NOT NULL,"
      " value TEXT NOT NULL, PRIMARY KEY (node, kind, object))",
      {});
}

// Extra 2: energy, and the last total of a GPU's.
void MakeEnergy(Database& database) {
  const std::string type = " BIGINT NOT NULL DEFAULT 0";
  database.Run("ALTER TABLE gpus ADD COLUMN counted_j" + type, {});
  std::vector<std::string> tables = {"meters"};
  for (const Level& level : kLevels) {
    tables.push_back(TableOf(Kind::kUse, level));
    tables.push_back(TableOf(Kind::kGpu, level));
  }
  for (const std::string& table : tables) {
    database.Run(fmt::format("ALTER TABLE {} ADD COLUMN energy_j{}", table, type), {});
  }
}

// Extra 3: use that no other team wanted. What was booked before counts as contended, and so does
// what a daemon of an earlier version books.
void MakeUncontended(Database& database) {
  const std::string column = " ADD COLUMN uncontended_ns BIGINT NOT NULL DEFAULT 0";
  database.Run("ALTER TABLE meters" + column, {});
  for (const Level& level : kLevels) {
    database.Run(std::string("ALTER TABLE use_") + level.name + column, {});
  }
}

// Extra 4, MakePacked(): settled buckets, which a daemon of an earlier version takes for dropped.

constexpr void (*kSteps[])(Database&) = {MakeBooks, MakeSpool};
constexpr void (*kExtras[])(Database&) = {MakeChanges, MakeEnergy, MakeUncontended, MakePacked};
constexpr int64_t kSchemaVersion = std::size(kSteps);
constexpr int64_t kExtraVersion = std::size(kExtras);

// How many of kExtras are there.
int64_t ExtraOf(Database& database) {
  const std::vector<std::string> tables = database.Tables();
  const auto has = [&](const char* table) {
    return std::find(tables.begin(), tables.end(), table) != tables.end();
  };
  if (!has("meta")) return 0;
  // The first one did not say so.
  int64_t extra = has("changes") ? 1 : 0;
  database.Run("SELECT value FROM meta WHERE name = 'extra'", {},
               [&](const Row& row) { extra = row.Int(0); });
  return extra;
}
void SetMeta(Database& database, std::string_view name, int64_t value) {
  database.Run(
      "INSERT INTO meta (name, value) VALUES ($1, $2)"
      " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
      {name, value});
}

int64_t VersionOf(Database& database) {
  const std::vector<std::string> tables = database.Tables();
  if (tables.empty()) return 0;
  int64_t version = -1;
  if (std::find(tables.begin(), tables.end(), "meta") != tables.end() &&
      std::find(tables.begin(), tables.end(), "sources") != tables.end()) {
    database.Run("SELECT value FROM meta WHERE name = 'version'", {},
                 [&](const Row& row) { version = row.Int(0); });
  }
  if (version < 1) {
    throw DatabaseError(ErrorCode::kInvalid,
                        "the database that [ledger] names is there but is no ledger of Baton; name "
                        "another one");
  }
  if (version > kSchemaVersion) {
    throw DatabaseError(ErrorCode::kInvalid, "the ledger is of version " + std::to_string(version) +
                                                 ", made by a newer Baton; this one knows up to " +
                                                 std::to_string(kSchemaVersion) +
                                                 ": update it, or name another database");
  }
  return version;
}

}  // namespace

void Migrate(Database& database) {
  {
    Transaction look(database, Database::Access::kRead);
    if (VersionOf(database) == kSchemaVersion && ExtraOf(database) >= kExtraVersion) return;
  }
  Transaction transaction(database, Database::Access::kWrite);
  // Somebody else may have done it meanwhile.
  const int64_t version = VersionOf(database);
  for (int64_t step = version; step < kSchemaVersion; ++step) kSteps[step](database);
  const int64_t extra = ExtraOf(database);
  for (int64_t step = extra; step < kExtraVersion; ++step) kExtras[step](database);
  SetMeta(database, "version", kSchemaVersion);
  SetMeta(database, "extra", std::max(extra, kExtraVersion));
  transaction.Commit();
}

}  // namespace baton::ledger
