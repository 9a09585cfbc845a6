// Where a level's buckets are. In SQLite each is a row. A row of PostgreSQL takes 165 bytes with
// its index, and as many again are left free, so that it can change in its place. There, buckets
// that are settled, which is to say some hours old, are packed by the stretch
// (Level::trim_seconds): a row or two for each account or GPU, with an array for each counter. What
// is booked late into such a stretch is a row of its own until it is packed too: readers add up
// both.
//
// A Baton that knows nothing of packed buckets takes them for dropped, as NAME_floor in `meta` says
// to it, and answers with coarser ones.
//
// Within the ledger only. In a transaction, where nothing else is said.
#ifndef BATON_LEDGER_SETTLED_H_
#define BATON_LEDGER_SETTLED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ledger/buckets.h"
#include "ledger/database.h"

namespace baton::ledger {

// Each level has two tables: of what pods used, by t and account, and of GPUs, by t and gpu.
enum class Kind { kUse, kGpu };
std::string TableOf(Kind kind, const Level& level);
const char* IdOf(Kind kind);  // "account" or "gpu"
// What follows INSERT INTO TABLE ... where a bucket that is there already is added to: the columns
// are TableOf()'s own and EXCLUDED's.
std::string OnConflictAdd(Kind kind, const Level& level);

// For FROM: the buckets with `from` <= t < `to`, SQL of whole numbers such as "$1", with their
// columns t, account (or gpu) and `columns`. There may be two with the same t and account.
std::string BucketsIn(const Database& database, Kind kind, const Level& level,
                      const std::vector<std::string>& columns, const std::string& from,
                      const std::string& to);

// The same as a join, for FROM RANGES: the buckets `u` of each range, whose ends are `from` and
// `to`.
std::string JoinBuckets(const Database& database, Kind kind, const Level& level,
                        const std::vector<std::string>& columns, const std::string& from,
                        const std::string& to);

// Where the first of a level's buckets is, packed or not, to the stretch; `oldest` where none is
// before that.
int64_t OldestBucket(Database& database, const Level& level, int64_t oldest);
// Drops all buckets before `floor`, a multiple of Level::trim_seconds.
void DropBuckets(Database& database, const Level& level, int64_t floor);
// The name in `meta` of the second before which a level's buckets were dropped.
std::string FloorName(const Database& database, const Level& level);

// Makes the tables of packed buckets, where the database packs.
void MakePacked(Database& database);
// Packs the oldest stretch of a level that is settled at `now` (a second); false if there is none.
bool PackStretch(Database& database, const Level& level, int64_t now);
// Where PackStretch() or DropBuckets() deleted rows, makes their room free for new ones at once:
// the server may come by only when they are a fifth of the table. Outside a transaction.
void GiveBack(Database& database, const Level& level);
// Makes a source's buckets after t = `second` rows again.
void UnpackAfter(Database& database, const Level& level, int64_t second, int64_t source);

}  // namespace baton::ledger

#endif  // BATON_LEDGER_SETTLED_H_
