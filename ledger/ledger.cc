#include "ledger/ledger.h"

#include <algorithm>
#include <utility>

#include "ledger/buckets.h"
#include "ledger/database.h"
#include "ledger/kept_use.h"
#include "ledger/schema.h"
#include "ledger/settled.h"

namespace baton::ledger {
namespace {

// How many stretches (Level::trim_seconds) of a level one Trim() drops.
constexpr int64_t kTrimStretches = 24;
// For so long it packs: meanwhile no batch is booked.
constexpr Duration kPackFor = std::chrono::seconds(1);

Result<std::unique_ptr<Database>> DatabaseOf(const std::string& text) {
  constexpr std::string_view kSqlite = "sqlite:";
  if (text.starts_with(kSqlite)) {
    std::string path = text.substr(kSqlite.size());
    // ":memory:" and "file:" mean something else to SQLite; an empty path is a temporary file.
    if (!path.empty() && path.front() != ':' && !path.starts_with("file:")) {
      return MakeSqlite(std::move(path));
    }
  } else if (text.starts_with("postgresql://") || text.starts_with("postgres://") ||
             text.find('=') != std::string::npos) {
    return MakePostgres(text);
  }
  return Fail(ErrorCode::kInvalid,
              "[ledger] database must be \"sqlite:PATH\" or \"postgresql://USER@HOST/DATABASE\"");
}

Result<void> Check(const Retention& retention) {
  std::chrono::hours finer{0};
  bool for_ever = false;
  for (const std::chrono::hours kept :
       {retention.fine, retention.minutes, retention.hours, retention.days}) {
    if (kept.count() < 0 || (kept.count() > 0 && (for_ever || kept < finer))) {
      return Fail(
          ErrorCode::kInvalid,
          "[ledger] keeps finer figures longer than coarser ones; let days be kept at least "
          "as long as hours, hours as minutes, minutes as the fine ones (0: for ever)");
    }
    for_ever = kept.count() == 0;
    finer = kept;
  }
  return {};
}

// Packs for a while. True when it packed any.
bool PackSettled(Database& database, const Level& level, int64_t now, Instant until) {
  bool any = false;
  // A transaction for each stretch, so that others come to write in between.
  for (bool more = database.packs(); more && MonotonicNow() < until; any |= more) {
    Transaction transaction(database, Database::Access::kWrite);
    more = PackStretch(database, level, now);
    transaction.Commit();
  }
  return any;
}

// Drops some of what is older than `kept`. True when it dropped any.
bool DropOld(Database& database, const Level& level, int64_t now, std::chrono::hours kept) {
  const bool coarsest = level.seconds == kLevels.back().seconds;
  const int64_t goal =
      Floor(std::max<int64_t>(0, now - std::chrono::seconds(kept).count()), level.trim_seconds);
  const std::string floor_name = FloorName(database, level);
  int64_t floor = 0;
  {
    const Transaction look(database, Database::Access::kRead);
    database.Run("SELECT value FROM meta WHERE name = $1", {std::string_view(floor_name)},
                 [&](const Row& row) { floor = row.Int(0); });
    if (const int64_t next = Ceil(now, level.trim_seconds); floor > next) {
      // A clock that was ahead dropped what it took for old. The coarser level has what this one
      // lost, up to the end of the stretch; coarser than days is none.
      floor = coarsest ? goal : next;
    } else if (goal <= floor) {
      return false;
    } else {
      const int64_t oldest = OldestBucket(database, level, goal);
      floor =
          std::min(goal, Floor(oldest, level.trim_seconds) + kTrimStretches * level.trim_seconds);
    }
  }
  Transaction transaction(database, Database::Access::kWrite);
  DropBuckets(database, level, floor);
  if (level.seconds >= 3600) NoteRewritten(database);
  if (coarsest) {
    database.Run(
        "DELETE FROM accounts WHERE id NOT IN (SELECT account FROM use_days)"
        " AND id NOT IN (SELECT account FROM meters)",
        {});
  }
  database.Run(
      "INSERT INTO meta (name, value) VALUES ($1, $2)"
      " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
      {std::string_view(floor_name), floor});
  transaction.Commit();
  return true;
}

}  // namespace

Ledger::Ledger(std::unique_ptr<Database> database, const Retention& retention)
    : database_(std::move(database)), retention_(retention), kept_(std::make_unique<KeptUse>()) {}
Ledger::~Ledger() = default;

Result<std::unique_ptr<Ledger>> Ledger::Later(const LedgerOptions& options) {
  if (auto good = Check(options.retention); !good) return tl::unexpected(good.error());
  auto database = DatabaseOf(options.database);
  if (!database) return tl::unexpected(database.error());
  return std::unique_ptr<Ledger>(new Ledger(std::move(*database), options.retention));
}

Result<std::unique_ptr<Ledger>> Ledger::Open(const LedgerOptions& options, std::string* trouble) {
  auto ledger = Later(options);
  if (!ledger) return ledger;
  const auto nothing = [] {};
  Result<void> opened = (*ledger)->Try(nothing);
  std::string aside = (*ledger)->TakeTrouble();
  if (!opened && !aside.empty()) opened = (*ledger)->Try(nothing);
  if (!opened) return tl::unexpected(opened.error());
  if (trouble != nullptr) *trouble = std::move(aside);
  return ledger;
}

Result<void> Ledger::Try(const std::function<void()>& f) {
  try {
    if (database_->Connect()) {
      migrated_ = false;
      *kept_ = {};
      if (database_->replaced()) {
        trouble_ =
            "the ledger's file was removed or replaced while it was in use; what was booked "
            "is gone with it, and it counts from here";
      }
    }
    if (!migrated_) Migrate(*database_);
    migrated_ = true;
    f();
    return {};
  } catch (const DatabaseError& e) {
    if (e.damaged) {
      const std::string aside = database_->MoveAside();
      database_->Disconnect();
      if (aside.empty()) return Fail(ErrorCode::kUnavailable, e.what());
      trouble_ = std::string(e.what()) + "; it was moved to " + aside +
                 " with what was booked, and a new ledger is begun";
      return Fail(ErrorCode::kUnavailable, trouble_);
    }
    // Whatever state the connection is in: the next call makes a new one.
    if (e.code != ErrorCode::kExhausted) database_->Disconnect();
    return Fail(e.code, e.what());
  } catch (const std::exception& e) {
    database_->Disconnect();
    return Fail(ErrorCode::kInternal, std::string("the ledger: ") + e.what());
  }
}

std::string Ledger::TakeTrouble() { return std::exchange(trouble_, {}); }

Result<Ledger::Last> Ledger::LastOf(const std::string& source) {
  Last last;
  auto done = Try([&] {
    const Transaction transaction(*database_, Database::Access::kRead);
    database_->Run("SELECT seq, booked_until_ms, largest_pod FROM sources WHERE name = $1",
                   {std::string_view(source)}, [&](const Row& row) {
                     last.seq = static_cast<uint64_t>(row.Int(0));
                     last.to = WallTime(std::chrono::milliseconds(row.Int(1)));
                     last.largest_pod = static_cast<uint64_t>(row.Int(2));
                   });
  });
  if (!done) return tl::unexpected(done.error());
  return last;
}

Result<void> Ledger::Trim(WallTime now) {
  const int64_t second = Millis(now) / 1000;
  const Instant pack_until = MonotonicNow() + kPackFor;
  const std::array<std::chrono::hours, 4> kept = {retention_.fine, retention_.minutes,
                                                  retention_.hours, retention_.days};
  for (size_t i = 0; i < kLevels.size(); ++i) {
    auto done = Try([&] {
      bool deleted = PackSettled(*database_, kLevels[i], second, pack_until);
      if (kept[i].count() > 0) deleted |= DropOld(*database_, kLevels[i], second, kept[i]);
      if (deleted) GiveBack(*database_, kLevels[i]);
    });
    if (!done) return done;
  }
  if (retention_.days.count() == 0) return {};
  return Try([&] {
    Transaction transaction(*database_, Database::Access::kWrite);
    database_->Run("DELETE FROM changes WHERE at_ms < $1",
                   {Millis(now) - std::chrono::milliseconds(retention_.days).count()});
    transaction.Commit();
  });
}

Result<std::vector<SpooledBatch>> Ledger::Spooled(uint64_t above_number, size_t most) {
  std::vector<SpooledBatch> batches;
  std::string unreadable;
  auto done = Try([&] {
    batches.clear();
    const Transaction transaction(*database_, Database::Access::kRead);
    database_->Run("SELECT number, body FROM spool WHERE number > $1 ORDER BY number LIMIT $2",
                   {static_cast<int64_t>(std::min<uint64_t>(above_number, INT64_MAX)),
                    static_cast<int64_t>(std::min<size_t>(most, 10'000))},
                   [&](const Row& row) {
                     Result<Batch> batch = DecodeBatch(row.Bytes(1));
                     if (batch) {
                       batches.push_back({static_cast<uint64_t>(row.Int(0)), std::move(*batch)});
                     } else {
                       unreadable = batch.error().message;
                     }
                   });
  });
  if (!done) return tl::unexpected(done.error());
  if (batches.empty() && !unreadable.empty()) {
    return Fail(ErrorCode::kInternal, "the ledger's spool: " + unreadable);
  }
  return batches;
}

Result<void> Ledger::DropSpooled(uint64_t up_to_number) {
  return Try([&] {
    Transaction transaction(*database_, Database::Access::kWrite);
    database_->Run("DELETE FROM spool WHERE number <= $1",
                   {static_cast<int64_t>(std::min<uint64_t>(up_to_number, INT64_MAX))});
    transaction.Commit();
  });
}

Result<int64_t> Ledger::SizeBytes() {
  int64_t bytes = 0;
  auto done = Try([&] {
    const Transaction transaction(*database_, Database::Access::kRead);
    bytes = database_->SizeBytes();
  });
  if (!done) return tl::unexpected(done.error());
  return bytes;
}

}  // namespace baton::ledger
