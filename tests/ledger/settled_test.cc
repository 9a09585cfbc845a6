// Settled buckets, which PostgreSQL has packed: a ledger there must answer what one in SQLite does,
// where none are.
#include "ledger/settled.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "base/random.h"
#include "ledger/history.h"
#include "ledger/time_zone.h"
#include "tests/ledger/books.h"
#include "tests/scale.h"

namespace baton::ledger {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr int64_t kADay_s = 86'400;
constexpr int64_t kAnHour_s = 3600;

class Settled : public LedgerTest {
 protected:
  void SetUp() override {
    LedgerTest::SetUp();
    if (IsSkipped()) return;
    options_.retention = {
        .fine = hours(3), .minutes = hours(24), .hours = hours(24 * 10), .days = hours(24 * 40)};
    packs_ = LedgerTest::Open(options_.retention);
    options_.database = "sqlite:" + (folder_ / "twin");
    plain_ = Ledger::Open(options_, nullptr).value();
  }

  void Book(const Batch& batch) {
    Apply(*packs_, batch);
    Apply(*plain_, batch);
  }
  // A few stretches at a time.
  void Trim(int64_t at) {
    for (int i = 0; i < 12; ++i) {
      ASSERT_TRUE(packs_->Trim(At(at)));
      ASSERT_TRUE(plain_->Trim(At(at)));
    }
  }

  int64_t Count(const std::string& table) {
    const auto inside = Inside();
    inside->Connect();
    const Transaction look(*inside, Database::Access::kRead);
    int64_t rows = 0;
    inside->Run("SELECT COUNT(*) FROM " + table, {},
                [&](const class Row& row) { rows = row.Int(0); });
    return rows;
  }

  using Answer = std::map<std::tuple<std::vector<std::string>, std::string, std::string>, Numbers>;
  using Capacities =
      std::map<std::pair<std::vector<std::string>, std::string>, std::vector<Int128>>;
  static std::pair<Answer, Capacities> Report(Ledger& ledger, const Question& question) {
    const auto uses = ledger.Query(question);
    EXPECT_TRUE(uses) << uses.error().message;
    std::pair<Answer, Capacities> answer;
    for (const UseRow& row : uses->rows) {
      answer.first[{row.keys, row.team, row.model}] = NumbersOf(row.use);
    }
    for (const CapacityRow& row : uses->capacity) {
      answer.second[{row.keys, row.model}] = {row.present_ns, row.idle_ns, row.energy_j};
    }
    return answer;
  }

  // All that can be asked of a window.
  void AskBoth(Window window, Random& random) {
    Question question;
    question.window = window;
    constexpr By kBys[] = {By::kTeam, By::kPod, By::kGpu, By::kDay, By::kTotal};
    question.by = {kBys[static_cast<size_t>(random.Between(0, 4))]};
    if (random.OneIn(3)) question.team = "ops";
    if (random.OneIn(4)) question.zone = FindTimeZone("Asia/Kolkata").value();
    ASSERT_EQ(Report(*packs_, question), Report(*plain_, question));

    ASSERT_EQ(*packs_->HeldBy("research", window, {}), *plain_->HeldBy("research", window, {}));

    const std::string gpu = random.OneIn(2) ? "GPU-a" : "";
    const auto a = packs_->Activities(window, gpu);
    const auto b = plain_->Activities(window, gpu);
    ASSERT_TRUE(a && b);
    ASSERT_EQ(a->size(), b->size());
    for (size_t i = 0; i < a->size(); ++i) {
      const Activity& one = (*a)[i];
      const Activity& other = (*b)[i];
      ASSERT_EQ(one.owner.pod, other.owner.pod);
      ASSERT_EQ(one.buckets.size(), other.buckets.size());
      for (size_t n = 0; n < one.buckets.size(); ++n) {
        ASSERT_EQ(one.buckets[n].t, other.buckets[n].t);
        ASSERT_NEAR(one.buckets[n].held, other.buckets[n].held, 1e-5);
        ASSERT_NEAR(one.buckets[n].waited, other.buckets[n].waited, 1e-5);
        ASSERT_EQ(one.buckets[n].memory_peak_mib, other.buckets[n].memory_peak_mib);
      }
    }
    const auto gpus = [&](Ledger& ledger) {
      std::string names;
      const std::vector<BookedGpu> all = ledger.Gpus(window).value();
      for (const BookedGpu& booked : all) names += booked.uuid + " ";
      return names;
    };
    ASSERT_EQ(gpus(*packs_), gpus(*plain_));

    const auto steps = [&](Ledger& ledger) {
      Question of = question;
      of.by = {By::kPod};
      const History history = ledger.Steps(of, 100'000).value();
      std::map<std::tuple<size_t, size_t, uint64_t>, Numbers> uses;
      for (const History::Use& use : history.uses) {
        const Numbers more = ledger::NumbersOf(use.use);
        Numbers& sum =
            uses[{use.step, history.accounts[use.account].gpu, history.accounts[use.account].pod}];
        for (size_t c = 0; c < sum.size(); ++c) sum[c] += more[c];
      }
      std::map<std::pair<size_t, size_t>, std::pair<int64_t, int64_t>> presence;
      for (const auto& there : history.presence) {
        presence[{there.step, there.gpu}] = {there.present_ns, there.idle_ns};
      }
      return std::pair(uses, presence);
    };
    ASSERT_EQ(steps(*packs_), steps(*plain_));

    for (const Duration half_life : {Duration(hours(24 * 7)), Duration(hours(1))}) {
      const auto decayed = [&](Ledger& ledger) {
        return ledger.Decayed(window.to, half_life, {}).value();
      };
      const auto one = decayed(*packs_);
      const auto other = decayed(*plain_);
      ASSERT_EQ(one.size(), other.size());
      for (size_t i = 0; i < one.size(); ++i) {
        ASSERT_EQ(one[i].team, other[i].team);
        ASSERT_NEAR(one[i].decayed_ns, other[i].decayed_ns,
                    1e-9 * std::abs(other[i].decayed_ns) + 1);
        ASSERT_NEAR(one[i].uncontended_ns, other[i].uncontended_ns,
                    1e-9 * std::abs(other[i].uncontended_ns) + 1);
      }
    }
  }

  LedgerOptions options_;
  std::unique_ptr<Ledger> packs_;
  std::unique_ptr<Ledger> plain_;

 private:
  MemoryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Postgres, Settled, testing::Values("postgres"));

// Batches that come in time, late, from a clock that is ahead and set right later, of pods that
// come and go; packed at any time, also in between, and dropped.
TEST_P(Settled, AnswersAreThoseOfALedgerThatPacksNothing) {
  Random random(2911);
  const auto below = [&](int64_t n) { return random.Between(0, n - 1); };
  struct Source {
    std::string name = NewSource();
    uint64_t seq = 1;
    int64_t at = 0;  // of the last batch
    std::map<uint64_t, int64_t> held_ns;
    int64_t energy_j = 0;
  };
  std::vector<Source> sources(3);
  int64_t now = 50 * kADay_s;
  for (Source& source : sources) {
    Batch batch = MakeBatch(source.name, 1, At(now));
    for (const char* gpu : {"GPU-a", "GPU-b"}) AddGpu(batch, gpu);
    Book(batch);
    source.at = now;
  }
  const auto book = [&](Source& source, int64_t at) {
    Batch batch = MakeBatch(source.name, ++source.seq, At(at));
    const int64_t most = std::max<int64_t>(at - source.at, 10) * kSecond / 4;
    for (uint64_t pod = 1; pod <= 4; ++pod) {
      if (random.OneIn(3)) continue;
      int64_t& held = source.held_ns[pod];
      held += below(most);
      const std::string team = pod == 1 ? "research" : pod == 2 ? "ops" : "ops/night";
      Sample& sample = AddSample(batch, pod, pod % 2 == 0 ? "GPU-a" : "GPU-b", held,
                                 {"p" + std::to_string(pod), "ns", team, "user"});
      sample.memory_peak_mib = below(50'000);
    }
    source.energy_j += below(5000);
    for (const char* gpu : {"GPU-a", "GPU-b"}) {
      AddGpu(batch, gpu, seconds(1));
      batch.gpus.back().energy_j = source.energy_j;
    }
    Book(batch);
    source.at = at;
  };
  constexpr int kSteps = kSanitized ? 50 : 160;
  int packed = 0;
  for (int step = 0; step < kSteps; ++step) {
    const int64_t pauses[] = {10, 600, kAnHour_s, 5 * kAnHour_s, kADay_s, 12 * kADay_s};
    now += pauses[below(random.OneIn(9) ? 6 : 4)] + below(100);
    Source& source = sources[static_cast<size_t>(below(3))];
    switch (below(12)) {
      case 0:
        book(source, now - below(9 * kADay_s));  // late, or a clock behind
        break;
      case 1:
        book(source, now + 30 * kADay_s);  // a clock ahead
        break;
      case 2:
      case 3:
        Trim(now);
        break;
      default:
        book(source, now);
        break;
    }
    if (step % 4 != 0) continue;
    const int64_t from = now - below(random.OneIn(2) ? 30 * kADay_s : 6 * kAnHour_s) - 1;
    SCOPED_TRACE("step " + std::to_string(step));
    ASSERT_NO_FATAL_FAILURE(AskBoth({At(from), At(from + 1 + below(now - from))}, random));
    packed += Count("packed_use_minutes") > 0 && Count("packed_use_hours") > 0 &&
              Count("packed_gpu_fine") > 0;
  }
  EXPECT_GT(packed, kSteps / 16) << "this test must ask ledgers that have packed all levels";
}

// A day, asked by the minute: packed from when it is settled, and no later than that.
TEST_P(Settled, OnlyWhatIsSettledIsPacked) {
  const std::string source = NewSource();
  Begin(*packs_, source, At(0));
  Begin(*plain_, source, At(0));
  for (int64_t minute = 1; minute <= 600; ++minute) {
    Batch batch = MakeBatch(source, static_cast<uint64_t>(minute) + 1, At(60 * minute));
    AddSample(batch, 1, "GPU-a", minute * 20 * kSecond);
    AddGpu(batch, "GPU-a", seconds(40));
    Book(batch);
  }
  Trim(600 * 60);
  EXPECT_EQ(Count("packed_use_fine"), 2 * 12) << "of three hours that are kept";
  EXPECT_EQ(Count("use_fine"), 360);
  EXPECT_EQ(Count("packed_use_minutes"), 2 * 6);
  EXPECT_EQ(Count("use_minutes"), 240);
  EXPECT_EQ(Count("packed_gpu_minutes"), 2 * 6);
  EXPECT_EQ(Count("use_hours"), 10);
  EXPECT_EQ(Count("packed_use_hours"), 0);
  // What is booked late stands beside it, is in the answers at once, and packed then.
  Random random(1);
  const std::string late = NewSource();
  for (Ledger* ledger : {packs_.get(), plain_.get()}) Begin(*ledger, late, At(60));
  for (int64_t n = 1; n <= 2; ++n) {
    Batch batch = MakeBatch(late, static_cast<uint64_t>(n) + 1, At(60 + 600 * n));
    AddSample(batch, 1, "GPU-a", n * kSecond);
    Book(batch);
    EXPECT_GT(Count("use_minutes"), 240);
    ASSERT_NO_FATAL_FAILURE(AskBoth({At(0), At(3600)}, random));
    Trim(600 * 60);
    EXPECT_EQ(Count("use_minutes"), 240);
    EXPECT_EQ(Count("packed_use_minutes"), 2 * 6 + 1) << "another account";
    ASSERT_NO_FATAL_FAILURE(AskBoth({At(0), At(3600)}, random));
  }
}

// What a Baton of before sees: plain rows, and floors from which on these are all there are.
TEST_P(Settled, BeforeTheFloorThatAnEarlierBatonReadsNothingCounts) {
  const std::string source = NewSource();
  Begin(*packs_, source, At(0));
  for (int64_t hour = 1; hour <= 24 * 20; ++hour) {
    Batch batch = MakeBatch(source, static_cast<uint64_t>(hour) + 1, At(kAnHour_s * hour));
    AddSample(batch, 1, "GPU-a", hour * 1800 * kSecond);
    AddGpu(batch, "GPU-a", seconds(1800));
    Apply(*packs_, batch);
    if (hour % 24 == 0) {
      ASSERT_TRUE(packs_->Trim(At(kAnHour_s * hour)));
    }
  }
  const auto inside = Inside();
  inside->Connect();
  const Transaction look(*inside, Database::Access::kRead);
  std::map<std::string, int64_t> meta;
  inside->Run("SELECT name, value FROM meta", {},
              [&](const class Row& row) { meta[row.Text(0)] = row.Int(1); });
  const int64_t end = kMonday_s + 24 * 20 * kAnHour_s;
  for (const Level& level : kLevels) {
    const int64_t floor = meta[std::string(level.name) + "_floor"];
    EXPECT_EQ(floor % level.trim_seconds, 0) << level.name;
    int64_t held_ns = 0;
    inside->Run(
        "SELECT CAST(SUM(held_ns) AS BIGINT) FROM " + TableOf(Kind::kUse, level) + " WHERE t >= $1",
        {floor}, [&](const class Row& row) { held_ns = row.Int(0); });
    EXPECT_EQ(held_ns, (end - std::max(floor, kMonday_s)) / 2 * kSecond) << level.name;
  }
  EXPECT_GT(meta["minutes_floor"], meta["minutes_dropped"]);
  EXPECT_GT(meta["hours_floor"], meta["hours_dropped"]);
  EXPECT_EQ(meta.count("days_dropped"), 0u);
}

// Numbers of any size and sign, in columns that are all zero and others.
TEST_P(Settled, EveryNumberComesBackAsItWas) {
  const std::string source = NewSource();
  Begin(*packs_, source, At(0));
  Begin(*plain_, source, At(0));
  Random random(7);
  constexpr int64_t kMost = int64_t{1} << 60;
  int64_t total = 0;
  for (int64_t minute = 1; minute <= 9 * 60; ++minute) {
    Batch batch = MakeBatch(source, static_cast<uint64_t>(minute) + 1, At(60 * minute));
    // Totals that a broken source took back.
    total = random.OneIn(5) ? kMost : random.Between(0, kMost);
    AddSample(batch, 1, "GPU-a", total).memory_peak_mib = random.Between(0, kMost);
    Sample& zeros = AddSample(batch, 2, "GPU-a", 0);
    zeros.total.launches = minute;
    AddGpu(batch, "GPU-a");
    Book(batch);
  }
  Trim(9 * kAnHour_s);
  ASSERT_GT(Count("packed_use_minutes"), 0);
  for (int64_t hour = 0; hour < 4; ++hour) {
    ASSERT_NO_FATAL_FAILURE(
        AskBoth({At(hour * kAnHour_s + 600), At(hour * kAnHour_s + 660)}, random));
  }
}

}  // namespace
}  // namespace baton::ledger
