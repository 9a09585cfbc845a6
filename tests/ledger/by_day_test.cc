// A long time by its days: many of them are one question to the database.
#include <gtest/gtest.h>

#include <map>

#include "ledger/ledger.h"
#include "ledger/time_zone.h"
#include "tests/ledger/books.h"

namespace baton::ledger {
namespace {

using std::chrono::hours;

constexpr int64_t kLength_s = 86400;
constexpr int64_t kDays = 200;

// Whole days, days of a zone that begin within others, and a price that changes within one; while
// what is old is trimmed, of each level some at a time.
TEST_P(LedgerTest, EachDayOfManySaysWhatItSaysByItself) {
  const Retention retention{
      .fine = hours(2), .minutes = hours(24), .hours = hours(24 * 30), .days = hours(24 * 1000)};
  const auto ledger = Open(retention);
  const std::string source = NewSource();
  Begin(*ledger, source, At(0));
  int64_t held_s = 0;
  for (int64_t day = 0; day < kDays; ++day) {
    held_s += 1 + day % 7;
    Batch batch = MakeBatch(source, static_cast<uint64_t>(day) + 2,
                            At(day * kLength_s + 3'600 * (day % 24) + 1'000));
    AddSample(batch, 1, "GPU-a", held_s * kSecond);
    AddGpu(batch, "GPU-a");
    Apply(*ledger, batch);
  }
  const auto zone = FindTimeZone("Asia/Kolkata");  // half an hour beside everybody
  ASSERT_TRUE(zone) << zone.error().message;
  for (const bool utc : {true, false, true, false}) {
    ASSERT_TRUE(ledger->Trim(At(kDays * kLength_s)));
    Question all{.window = {At(0), At(kDays * kLength_s)}, .by = {By::kDay, By::kTeam}};
    if (!utc) all.zone = *zone;
    all.changes = {At((kDays - 10) * kLength_s + 7 * 3'600)};
    const auto uses = ledger->Query(all);
    ASSERT_TRUE(uses) << uses.error().message;
    EXPECT_GE(uses->periods.size(), static_cast<size_t>(kDays));
    std::map<std::string, int64_t> held_ns;
    int64_t sum_ns = 0;
    for (const UseRow& row : uses->rows) {
      held_ns[row.keys.at(0)] += Narrow(row.use.held_ns);
      sum_ns += Narrow(row.use.held_ns);
    }
    EXPECT_EQ(sum_ns, held_s * kSecond) << utc;
    int64_t day = 0;
    for (const auto& [name, window] : uses->periods) {
      if (++day % 5 != 0 && day < kDays - 20) continue;
      Question one{.window = window, .by = {By::kTotal}};
      one.zone = all.zone;
      const auto alone = ledger->Query(one);
      ASSERT_TRUE(alone) << alone.error().message;
      const int64_t alone_ns = alone->rows.empty() ? 0 : Narrow(alone->rows.at(0).use.held_ns);
      ASSERT_EQ(held_ns[name], alone_ns) << name << (utc ? "" : " of a zone");
    }
  }
}

// A model is of all hours of a GPU, and so is its price.
TEST_P(LedgerTest, AGpuOfWhichOnlyTheUuidIsSaidKeepsItsModel) {
  const auto ledger = Open();
  const std::string source = NewSource();
  Begin(*ledger, source, At(0));
  const auto models = [&] {
    std::string all;
    const auto uses = ledger->Query({{At(0), At(3'600)}, {By::kModel}});
    for (const CapacityRow& row : uses->capacity) all += row.model + ";";
    return all;
  };
  uint64_t seq = 1;
  for (const char* said : {"model-x", "", "model-y", ""}) {
    ++seq;
    Batch batch = MakeBatch(source, seq, At(static_cast<int64_t>(seq) * 10));
    AddGpu(batch, "GPU-a", Duration(0), said);
    batch.gpus.back().memory_bytes = *said == 0 ? 0 : 80;
    Apply(*ledger, batch);
    EXPECT_EQ(models(), seq < 4 ? "model-x;" : "model-y;") << seq;
    EXPECT_EQ(ledger->Gpus({At(0), At(3'600)})->at(0).memory_bytes, 80u);
  }
}

}  // namespace
}  // namespace baton::ledger
