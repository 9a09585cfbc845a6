// What the ledger's tests share: a ledger to try, batches to fill it with, and its rows as they
// are.
#ifndef BATON_TESTS_LEDGER_BOOKS_H_
#define BATON_TESTS_LEDGER_BOOKS_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "ledger/columns.h"
#include "ledger/database.h"
#include "ledger/ledger.h"
#include "tests/ledger/postgres_server.h"
#include "tests/temp_folder.h"

namespace baton::ledger {

// 2026-11-16T00:00:00Z, a Monday.
inline constexpr int64_t kMonday_s = 1'794'787'200;
WallTime At(int64_t seconds_after_monday);
WallTime AtMs(int64_t ms_after_monday);

// A source's name that no test has had before.
std::string NewSource();
Batch MakeBatch(const std::string& source, uint64_t seq, WallTime to);
// One more pod in the batch; held_ns is its total, and the other counters follow from it.
Sample& AddSample(Batch& batch, uint64_t pod, const std::string& gpu, int64_t held_ns,
                  const Owner& owner = {"train", "", "research", "user-a"});
// ... on a GPU that is listed from then on.
void AddGpu(Batch& batch, const std::string& uuid, Duration idle = Duration{0},
            const std::string& model = "model-x");

inline constexpr int64_t kSecond = 1'000'000'000;
// The first batch of a source, after which its use is booked.
void Begin(Ledger& ledger, const std::string& source, WallTime at,
           const std::vector<std::string>& gpus = {"GPU-a"});
// One that is booked.
void Apply(Ledger& ledger, const Batch& batch);

// Sums that are no larger than what tests add up in 64 bits.
inline int64_t Narrow(Int128 sum) {
  const auto narrow = static_cast<int64_t>(sum);
  BATON_CHECK(narrow == sum);
  return narrow;
}
inline Numbers NumbersOf(const Sums& s) {
  return {Narrow(s.held_ns),       Narrow(s.busy_ns),       Narrow(s.waited_ns),
          Narrow(s.unmanaged_ns),  Narrow(s.memory_mib_ms), Narrow(s.launches),
          Narrow(s.grants),        Narrow(s.revocations),   Narrow(s.energy_j),
          Narrow(s.uncontended_ns)};
}

// A row of use_LEVEL with its owner.
struct BucketRow {
  int64_t t = 0;
  std::string gpu;
  uint64_t pod = 0;
  Owner owner;
  Counters use;
  int64_t memory_peak_mib = 0;
};
struct PresenceRow {
  int64_t t = 0;
  std::string gpu;
  int64_t present_ns = 0;
  int64_t idle_ns = 0;
  int64_t energy_j = 0;
};
// As the tables say; of one source.
std::vector<BucketRow> BucketsOf(Database& database, const std::string& level,
                                 const std::string& source);
std::vector<PresenceRow> PresenceOf(Database& database, const std::string& level,
                                    const std::string& source);

// On each of the databases.
class LedgerTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override;
  bool IsPostgres() const { return std::string(GetParam()) == "postgres"; }
  // An empty database, and what is needed to look into it beside the ledger.
  const std::string& database() const { return database_; }
  std::unique_ptr<Ledger> Open(const Retention& retention = {});
  std::unique_ptr<Database> Inside();
  // Runs statements one by one.
  void Sql(const std::vector<std::string>& statements);

 private:
  MemoryFolder folder_;
  std::string database_;
};

// The server of this process; skips where there is none. Use with ASSERT_NO_FATAL_FAILURE.
PostgresServer* Server(std::string* why_not);

}  // namespace baton::ledger

#endif  // BATON_TESTS_LEDGER_BOOKS_H_
