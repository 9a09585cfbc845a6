// What the ledger promises, on SQLite and on PostgreSQL.
#include "ledger/ledger.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/random.h"
#include "ledger/buckets.h"
#include "ledger/columns.h"
#include "tests/ledger/books.h"

namespace baton::ledger {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

const Owner kResearch{"train", "", "research", "user-a"};
const Owner kVision{"train", "lab", "research/vision", "user-b"};

INSTANTIATE_TEST_SUITE_P(Sqlite, LedgerTest, testing::Values("sqlite"));
INSTANTIATE_TEST_SUITE_P(Postgres, LedgerTest, testing::Values("postgres"));

Numbers Add(Numbers a, const Numbers& b, int64_t sign = 1) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += sign * b[i];
  return a;
}

TEST_P(LedgerTest, UseIsSpreadEvenlyOverTheTimeSinceTheBatchBefore) {
  const auto ledger = Open();
  const std::string source = NewSource();
  Begin(*ledger, source, At(5));
  Batch batch = MakeBatch(source, 2, At(30));
  AddSample(batch, 7, "GPU-a", 25 * kSecond);
  AddGpu(batch, "GPU-a");
  Apply(*ledger, batch);
  const auto rows = BucketsOf(*Inside(), "fine", source);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].t, kMonday_s);
  EXPECT_EQ(rows[0].use.held_ns, 5 * kSecond);
  EXPECT_EQ(rows[1].use.held_ns, 10 * kSecond);
  EXPECT_EQ(rows[2].use.held_ns, 10 * kSecond);
  EXPECT_EQ(rows[2].memory_peak_mib, 1007);
  for (const char* level : {"minutes", "hours", "days"}) {
    const auto coarse = BucketsOf(*Inside(), level, source);
    ASSERT_EQ(coarse.size(), 1u) << level;
    EXPECT_EQ(coarse[0].use.held_ns, 25 * kSecond) << level;
  }
}

TEST_P(LedgerTest, TheFirstBatchOfASourceBooksNothing) {
  const auto ledger = Open();
  const std::string source = NewSource();
  Batch first = MakeBatch(source, 41, At(100));
  AddSample(first, 1, "GPU-a", 1'000 * kSecond);
  Apply(*ledger, first);
  EXPECT_TRUE(BucketsOf(*Inside(), "days", source).empty());
  Batch second = MakeBatch(source, 42, At(110));
  AddSample(second, 1, "GPU-a", 1'004 * kSecond);
  AddSample(second, 2, "GPU-a", 3 * kSecond);  // new: it began with zero
  Apply(*ledger, second);
  const auto rows = BucketsOf(*Inside(), "days", source);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].use.held_ns, 4 * kSecond);
  EXPECT_EQ(rows[1].use.held_ns, 3 * kSecond);
}

TEST_P(LedgerTest, ARepeatedOrLateBatchChangesNothing) {
  const auto ledger = Open();
  const std::string source = NewSource();
  Begin(*ledger, source, At(0));
  Batch second = MakeBatch(source, 2, At(10));
  AddSample(second, 1, "GPU-a", kSecond);
  Batch third = MakeBatch(source, 3, At(20));
  AddSample(third, 1, "GPU-a", 5 * kSecond);
  Apply(*ledger, third);
  for (const Batch& batch : {second, third}) {
    const auto again = ledger->Apply(batch);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_FALSE(*again);
  }
  const auto last = ledger->LastOf(source);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->seq, 3u);
  EXPECT_EQ(last->to, At(20));
  EXPECT_EQ(last->largest_pod, 1u);
  EXPECT_EQ(*ledger->HeldBy("", {At(0), At(100)}), 5 * kSecond);
  EXPECT_EQ(ledger->LastOf(NewSource())->seq, 0u);
}

TEST_P(LedgerTest, AnOwnersChangeMovesTheUseThatFollows) {
  const auto ledger = Open();
  const std::string source = NewSource();
  Begin(*ledger, source, At(0));
  uint64_t seq = 1;
  for (const Owner& owner : {kResearch, kVision, kResearch}) {
    ++seq;
    Batch batch = MakeBatch(source, seq, At(static_cast<int64_t>(seq) * 10));
    AddSample(batch, 1, "GPU-a", static_cast<int64_t>(seq) * kSecond, owner);
    Apply(*ledger, batch);
  }
  const auto uses = ledger->Query({At(0), At(100)}, By::kTeam);
  ASSERT_TRUE(uses) << uses.error().message;
  ASSERT_EQ(uses->rows.size(), 2u);
  EXPECT_EQ(uses->rows[0].keys.front(), "research");
  EXPECT_EQ(uses->rows[0].use.held_ns, 3 * kSecond);
  EXPECT_EQ(uses->rows[1].keys.front(), "research/vision");
  EXPECT_EQ(uses->rows[1].use.held_ns, kSecond);
  int64_t accounts = 0;
  const auto inside = Inside();
  inside->Connect();
  {
    const Transaction transaction(*inside, Database::Access::kRead);
    inside->Run("SELECT COUNT(*) FROM accounts", {},
                [&](const Row& row) { accounts = row.Int(0); });
  }
  EXPECT_EQ(accounts, 2);  // an owner who returns has its account back
}

// A world of usage books whose batches are lost, repeated, late and out of order, whose pods change
// owners, and whose clocks step; and what the ledger must say of it.
class Books {
 public:
  explicit Books(uint64_t seed) : random_(seed) {
    for (int i = 0; i < 2; ++i) {
      books_.emplace_back();
      books_.back().source = NewSource();
      books_.back().now_ms = random_.Between(0, 10'000'000);
    }
  }

  void Step(Ledger& ledger) {
    Book& book = books_[static_cast<size_t>(random_.Between(0, 1))];
    Work(book);
    Batch batch = Snapshot(book);
    switch (random_.Between(0, 9)) {
      case 0:  // lost
        return;
      case 1:  // late
        book.late.push_back(batch);
        return;
      case 2:
        Give(ledger, book, batch);
        [[fallthrough]];  // and repeated
      default:
        Give(ledger, book, batch);
    }
    if (!book.late.empty() && random_.OneIn(2)) {
      Give(ledger, book, book.late.back());
      book.late.pop_back();
    }
  }

  void Check(Ledger& ledger, Database& database) {
    for (const Book& book : books_) {
      for (const Level& level : kLevels) {
        std::map<std::pair<Key, std::string>, Numbers> found;
        for (const BucketRow& row : BucketsOf(database, level.name, book.source)) {
          Numbers& sum = found[{{row.pod, row.gpu}, row.owner.team}];
          sum = Add(sum, NumbersOf(row.use));
        }
        for (auto it = found.begin(); it != found.end();) {
          it = it->second == Numbers{} ? found.erase(it) : std::next(it);
        }
        RC_ASSERT(found == book.booked);
      }
    }
    // The report of all time says the same.
    const auto uses = ledger.Query({WallTime{}, At(400 * 86400)}, By::kGpu);
    RC_ASSERT(uses.has_value());
    for (const Book& book : books_) {
      std::map<std::string, Numbers> expected;
      for (const auto& [key, numbers] : book.booked) {
        Numbers& sum = expected[key.first.second];
        sum = Add(sum, numbers);
      }
      for (const UseRow& row : uses->rows) {
        if (expected.contains(row.keys[0])) RC_ASSERT(NumbersOf(row.use) == expected[row.keys[0]]);
      }
    }
  }

 private:
  using Key = std::pair<uint64_t, std::string>;
  struct Pod {
    Numbers total{};
    Owner owner;
  };
  struct Book {
    std::string source;
    int64_t now_ms = 0;
    uint64_t seq = 0;
    std::map<Key, Pod> pods;
    std::vector<Batch> late;
    // What the ledger must have.
    uint64_t booked_seq = 0;
    std::map<Key, Numbers> known;
    std::map<std::pair<Key, std::string>, Numbers> booked;
  };

  void Work(Book& book) {
    switch (random_.Between(0, 19)) {
      case 0:
        book.now_ms += random_.Spread(1'000'000, 100'000'000);
        break;
      case 1:
        book.now_ms -= random_.Spread(1, 1'000'000);
        break;
      default:
        book.now_ms += random_.Spread(1, 60'000);
    }
    if (book.pods.size() < 6 && random_.OneIn(3)) {
      const std::string gpu =
          "GPU-" + book.source.substr(20) + "-" + std::to_string(random_.Between(0, 1));
      book.pods[{book.pods.size() + 1, gpu}].owner = kResearch;
    }
    for (auto& [key, pod] : book.pods) {
      if (random_.OneIn(20)) {
        pod.owner.team = "team-" + std::to_string(random_.Between(0, 2));
      }
      if (random_.OneIn(3)) continue;
      for (int64_t& number : pod.total) {
        // Corrections downwards are small.
        number = std::max<int64_t>(0, number + (random_.OneIn(9) ? random_.Between(-1000, 0)
                                                                 : random_.Spread(1, 1 << 30)));
      }
    }
  }

  Batch Snapshot(Book& book) {
    Batch batch = MakeBatch(book.source, ++book.seq, AtMs(book.now_ms));
    for (const auto& [key, pod] : book.pods) {
      if (random_.OneIn(5)) continue;  // it stands in a later one
      Sample& sample = AddSample(batch, key.first, key.second, 0, pod.owner);
      const Numbers& n = pod.total;
      sample.total = {n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9]};
    }
    return batch;
  }

  void Give(Ledger& ledger, Book& book, const Batch& batch) {
    const auto booked = ledger.Apply(batch);
    RC_ASSERT(booked.has_value());
    RC_ASSERT(*booked == (batch.seq > book.booked_seq));
    if (!*booked) return;
    const bool first = book.booked_seq == 0;
    book.booked_seq = batch.seq;
    for (const Sample& sample : batch.samples) {
      const Key key{sample.pod, sample.gpu};
      Numbers total = NumbersOf(sample.total);
      // An earlier version says nothing of these.
      for (size_t c = kFirstCounters; c < total.size(); ++c) {
        total[c] = std::max(total[c], book.known[key][c]);
      }
      if (!first) {
        const Numbers grown = Add(total, book.known[key], -1);
        Numbers& sum = book.booked[{key, sample.owner.team}];
        sum = Add(sum, grown);
        if (sum == Numbers{}) book.booked.erase({key, sample.owner.team});
      }
      book.known[key] = total;
    }
  }

  Random random_;
  std::vector<Book> books_;
};

TEST_P(LedgerTest, TheBucketsOfEachLevelAddUpToTheTotalsWhateverHappensToBatches) {
  const auto ledger = Open();
  const auto inside = Inside();
  int cases = 0;
  ASSERT_TRUE(rc::check([&] {
    const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<uint64_t>().as("seed"));
    // A server takes its time.
    if (++cases > (IsPostgres() ? 8 : 40)) return;
    Books books(seed);
    for (int step = 0; step < 30; ++step) books.Step(*ledger);
    books.Check(*ledger, *inside);
  }));
}

// Some time of two GPUs and a few pods that come and go.
struct Course {
  std::string source = NewSource();
  int64_t end_s = 0;

  Course(Ledger& ledger, Random& random, int64_t until_s, int64_t step_ms_min,
         int64_t step_ms_max) {
    Begin(ledger, source, At(0), {"GPU-a", "GPU-b"});
    std::map<uint64_t, int64_t> totals;
    int64_t now_ms = 0;
    for (uint64_t seq = 2; now_ms < until_s * 1000; ++seq) {
      const int64_t from_ms = now_ms;
      now_ms += random.Spread(step_ms_min, step_ms_max);
      Batch batch = MakeBatch(source, seq, AtMs(now_ms));
      for (const char* gpu : {"GPU-a", "GPU-b"}) {
        int64_t left = (now_ms - from_ms) * 1'000'000;
        for (uint64_t pod = 1; pod <= 3; ++pod) {
          const uint64_t id = pod + (gpu[4] == 'b' ? 10 : 0);
          if (random.OneIn(3)) continue;
          const int64_t held = random.OneIn(4) ? left : random.Between(0, left);
          left -= held;
          totals[id] += held;
          Owner owner = kResearch;
          owner.pod = "pod-" + std::to_string(id);
          owner.team = "team-" + std::to_string(pod);
          owner.user = "user-" + std::to_string(id % 2);
          AddSample(batch, id, gpu, totals[id], owner);
        }
        AddGpu(batch, gpu, Duration(random.Between(0, left)));
      }
      Apply(ledger, batch);
    }
    end_s = now_ms / 1000 + 1;
  }
};

TEST_P(LedgerTest, HeldAndIdleNeverExceedWhatWasThereInAnyBucket) {
  const auto ledger = Open();
  Random random(4711);
  const Course course(*ledger, random, IsPostgres() ? 800 : 3600, 1'000, 40'000);
  for (const Level& level : kLevels) {
    std::map<std::pair<int64_t, std::string>, int64_t> held;
    std::map<std::pair<int64_t, std::string>, int64_t> rows;
    for (const BucketRow& row : BucketsOf(*Inside(), level.name, course.source)) {
      held[{row.t, row.gpu}] += row.use.held_ns;
      ++rows[{row.t, row.gpu}];
    }
    int64_t present_ns = 0;
    for (const PresenceRow& row : PresenceOf(*Inside(), level.name, course.source)) {
      // A nanosecond for each pod and batch: at most one of these a second.
      const int64_t rounding = 3 * (level.seconds + 2);
      EXPECT_LE((held[{row.t, row.gpu}] + row.idle_ns), row.present_ns + rounding)
          << level.name << " " << row.t;
      EXPECT_LE(row.present_ns, level.seconds * kSecond);
      present_ns += row.present_ns;
    }
    const auto last = ledger->LastOf(course.source);
    EXPECT_EQ(present_ns, 2 * (last->to - At(0)) / milliseconds(1) * 1'000'000) << level.name;
  }
}

TEST_P(LedgerTest, AGpuThatWasNotHeardOfIsTakenToHaveBeenThereForAnHourAtMost) {
  const auto ledger = Open();
  const std::string source = NewSource();
  Begin(*ledger, source, At(0));
  const auto batch_at = [&](uint64_t seq, int64_t second, int64_t held_s, int64_t idle_s) {
    Batch batch = MakeBatch(source, seq, At(second));
    AddSample(batch, 1, "GPU-a", held_s * kSecond);
    AddGpu(batch, "GPU-a", seconds(idle_s));
    Apply(*ledger, batch);
  };
  const auto present_s = [&] {
    const auto uses = ledger->Query({At(0), At(10 * 86400)}, By::kTotal);
    int64_t present_ns = 0;
    for (const CapacityRow& row : uses->capacity) present_ns += Narrow(row.present_ns);
    return present_ns / kSecond;
  };
  batch_at(2, 1800, 60, 0);  // away for half an hour: unattributed
  EXPECT_EQ(present_s(), 1800);
  batch_at(3, 1800 + 10'000, 160, 50);  // beyond an hour: as long as it was held or idle
  EXPECT_EQ(present_s(), 1950);
  Batch gone = MakeBatch(source, 4, At(11'810));
  Apply(*ledger, gone);
  EXPECT_EQ(present_s(), 1950);
  batch_at(5, 11'820, 160, 4);  // back: since when is not known
  EXPECT_EQ(present_s(), 1954);
  batch_at(6, 11'830, 160, 10);
  EXPECT_EQ(present_s(), 1964);
}

// What the fine buckets say of a window, by a loop over all of them.
using Keyed = std::map<std::pair<std::string, std::string>, Numbers>;
Keyed BruteForce(const std::vector<BucketRow>& rows, Window window, By by) {
  Keyed sums;
  for (const BucketRow& row : rows) {
    if (row.t * 1000 < Millis(window.from) || row.t * 1000 >= Millis(window.to)) continue;
    std::pair<std::string, std::string> key;
    if (by == By::kTeam) key.first = row.owner.team;
    if (by == By::kUser) key = {row.owner.user, row.owner.team};
    if (by == By::kNamespace) key.first = row.owner.name_space;
    if (by == By::kPod) key = {row.owner.pod, row.owner.team};
    if (by == By::kGpu) key.first = row.gpu;
    if (by == By::kNode) key.first = "node-1";
    if (by == By::kDay) key.first = "2026-11-" + std::to_string(16 + (row.t - kMonday_s) / 86400);
    Numbers& sum = sums[key];
    sum = Add(sum, NumbersOf(row.use));
  }
  return sums;
}

TEST_P(LedgerTest, AnyWindowIsAnsweredAsTheFineBucketsSay) {
  const auto ledger = Open();
  Random random(42);
  const Course course(*ledger, random, 7 * 43'200, IsPostgres() ? 1'000'000 : 200'000, 3'500'000);
  ASSERT_GT(course.end_s, 3 * 86400);
  const auto fine = BucketsOf(*Inside(), "fine", course.source);
  const auto fine_gpus = PresenceOf(*Inside(), "fine", course.source);
  for (int i = 0; i < (IsPostgres() ? 40 : 150); ++i) {
    const int64_t from = random.Between(0, course.end_s * 1000);
    const int64_t to = random.OneIn(3) ? random.Between(from, from + 200'000)
                                       : random.Between(from, course.end_s * 1000);
    const Window window{AtMs(from), AtMs(to)};
    const By by = static_cast<By>(random.Between(0, 7));
    const auto uses = ledger->Query(window, by);
    ASSERT_TRUE(uses) << uses.error().message;
    if (from < to) {
      EXPECT_LE(uses->window.from, window.from);
      EXPECT_GE(uses->window.to, window.to);
      EXPECT_LT(window.from - uses->window.from, seconds(10));
      EXPECT_LT(uses->window.to - window.to, seconds(10));
    }
    Keyed found;
    for (const UseRow& row : uses->rows) {
      EXPECT_EQ(row.model, "model-x");
      found[{row.keys.front(), row.team}] = NumbersOf(row.use);
    }
    ASSERT_EQ(found, from < to ? BruteForce(fine, uses->window, by) : Keyed{})
        << "from " << from << " to " << to << " by " << static_cast<int>(by);
    int64_t present = 0;
    for (const CapacityRow& row : uses->capacity) present += Narrow(row.present_ns);
    for (const PresenceRow& row : fine_gpus) {
      if (from < to && row.t * 1000 >= Millis(uses->window.from) &&
          row.t * 1000 < Millis(uses->window.to)) {
        present -= row.present_ns;
      }
    }
    ASSERT_EQ(present, 0);
  }
  // Windows that touch count nothing twice and lose nothing.
  const auto held = [&](int64_t from, int64_t to) {
    return *ledger->HeldBy("", {At(from), At(to)});
  };
  EXPECT_EQ(held(0, 86'450) + held(86'450, course.end_s / 10 * 10),
            held(0, course.end_s / 10 * 10));
}

TEST_P(LedgerTest, WhatIsTrimmedIsStillInCoarserBucketsAndTheWindowSaysSo) {
  Retention retention;
  retention.fine = hours(2);
  retention.minutes = hours(12);
  retention.hours = hours(48);
  const auto ledger = Open(retention);
  Random random(7);
  const Course course(*ledger, random, 7 * 43'200, IsPostgres() ? 1'000'000 : 200'000, 3'500'000);
  const auto fine = BucketsOf(*Inside(), "fine", course.source);
  const WallTime end = At(course.end_s);
  // A few hours at a time: as often as it takes.
  for (int i = 0; i < (IsPostgres() ? 60 : 200); ++i) ASSERT_TRUE(ledger->Trim(end));
  const auto left = [&](const char* level) {
    const auto rows = BucketsOf(*Inside(), level, course.source);
    return rows.empty() ? WallTime{} : WallTime(seconds(rows.front().t));
  };
  EXPECT_GE(left("fine"), end - hours(2) - seconds(600));
  EXPECT_GE(left("minutes"), end - hours(13));
  EXPECT_GE(left("hours"), end - hours(72));
  EXPECT_LT(left("hours"), end - hours(47));
  EXPECT_LT(left("days"), At(86400));
  for (int i = 0; i < (IsPostgres() ? 40 : 100); ++i) {
    const int64_t from = random.Between(0, course.end_s * 1000 - 1);
    const Window window{AtMs(from), AtMs(random.Between(from + 1, course.end_s * 1000))};
    const auto uses = ledger->Query(window, By::kTeam);
    ASSERT_TRUE(uses) << uses.error().message;
    EXPECT_LE(uses->window.from, window.from);
    EXPECT_GE(uses->window.to, window.to);
    EXPECT_LT(window.from - uses->window.from, hours(24));
    Keyed found;
    for (const UseRow& row : uses->rows) found[{row.keys.front(), row.team}] = NumbersOf(row.use);
    ASSERT_EQ(found, BruteForce(fine, uses->window, By::kTeam)) << from;
  }
}

TEST_P(LedgerTest, DaysThatAreTrimmedAreOutsideTheAnswersWindow) {
  Retention retention;
  retention.fine = retention.minutes = retention.hours = retention.days = hours(24);
  const auto ledger = Open(retention);
  const std::string source = NewSource();
  Begin(*ledger, source, At(0));
  for (uint64_t day = 1; day <= 4; ++day) {
    Batch batch = MakeBatch(source, day + 1, At(static_cast<int64_t>(day) * 86400));
    // Each day another pod, so that accounts go too.
    AddSample(batch, day, "GPU-a", 3600 * kSecond);
    Apply(*ledger, batch);
  }
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(ledger->Trim(At(4 * 86400)));
  const auto uses = ledger->Query({At(0), At(4 * 86400)}, By::kTotal);
  ASSERT_TRUE(uses);
  EXPECT_EQ(uses->window.from, At(3 * 86400));
  ASSERT_EQ(uses->rows.size(), 1u);
  EXPECT_EQ(uses->rows[0].use.held_ns, 3600 * kSecond);
  EXPECT_TRUE(ledger->Query({At(0), At(86400)}, By::kTotal)->rows.empty());
}

TEST_P(LedgerTest, RowsAreByWhatIsAsked) {
  const auto ledger = Open();
  const std::string source = NewSource();
  Begin(*ledger, source, At(0));
  Batch batch = MakeBatch(source, 2, At(10));
  AddSample(batch, 1, "GPU-a", kSecond, kResearch);
  AddSample(batch, 2, "GPU-b", 2 * kSecond, kVision);
  AddSample(batch, 2, "GPU-a", 4 * kSecond, kVision);
  AddGpu(batch, "GPU-a", seconds(3));
  AddGpu(batch, "GPU-b", seconds(1), "model-y");
  Apply(*ledger, batch);
  const auto keys = [&](By by) {
    std::string text;
    const auto uses = ledger->Query({At(0), At(60)}, by);
    for (const UseRow& row : uses->rows) {
      text += row.keys.front() + "|" + row.team + "|" + row.model + "=" +
              FormatSum(row.use.held_ns / kSecond) + " ";
    }
    for (const CapacityRow& row : uses->capacity) {
      text += row.keys.front() + "|" + row.model + "=" + FormatSum(row.present_ns / kSecond) + "," +
              FormatSum(row.idle_ns / kSecond) + " ";
    }
    return text;
  };
  const std::string cards = "|model-x=10,3 |model-y=3,1 ";
  EXPECT_EQ(keys(By::kTeam),
            "research||model-x=1 research/vision||model-x=4 research/vision||model-y=2 " + cards);
  EXPECT_EQ(keys(By::kUser),
            "user-a|research|model-x=1 user-b|research/vision|model-x=4 "
            "user-b|research/vision|model-y=2 " +
                cards);
  EXPECT_EQ(keys(By::kNamespace), "||model-x=1 lab||model-x=4 lab||model-y=2 " + cards);
  EXPECT_EQ(keys(By::kPod),
            "lab/train|research/vision|model-x=4 lab/train|research/vision|model-y=2 "
            "train|research|model-x=1 " +
                cards);
  EXPECT_EQ(keys(By::kGpu),
            "GPU-a||model-x=5 GPU-b||model-y=2 GPU-a|model-x=10,3 GPU-b|model-y=3,1 ");
  EXPECT_EQ(keys(By::kNode),
            "node-1||model-x=5 node-1||model-y=2 node-1|model-x=10,3 node-1|model-y=3,1 ");
  EXPECT_EQ(keys(By::kDay),
            "2026-11-16||model-x=5 2026-11-16||model-y=2 "
            "2026-11-16|model-x=10,3 2026-11-16|model-y=3,1 ");
  EXPECT_EQ(keys(By::kTotal), "||model-x=5 ||model-y=2 " + cards);
}

TEST_P(LedgerTest, ATeamsUseHasThatOfAllBelowItAndOfNoOther) {
  const auto ledger = Open();
  const std::string source = NewSource();
  Begin(*ledger, source, At(0));
  Batch batch = MakeBatch(source, 2, At(10));
  uint64_t pod = 0;
  int64_t held = 1;
  for (const char* team : {"a", "a/b", "a/b/c", "ab", "a%", "A", ""}) {
    AddSample(batch, ++pod, "GPU-a", held, {"p", "", team, "u"});
    held *= 10;
  }
  Apply(*ledger, batch);
  const Window window{At(0), At(60)};
  EXPECT_EQ(*ledger->HeldBy("a", window), 111);
  EXPECT_EQ(*ledger->HeldBy("a/b", window), 110);
  EXPECT_EQ(*ledger->HeldBy("ab", window), 1000);
  EXPECT_EQ(*ledger->HeldBy("nobody", window), 0);
  EXPECT_EQ(*ledger->HeldBy("", window), 1'111'111);
}

TEST_P(LedgerTest, AnHourCountsAsItsModelWeighs) {
  const auto ledger = Open();
  const std::string source = NewSource();
  Batch batch = MakeBatch(source, 1, At(0));
  AddGpu(batch, "GPU-a", Duration{0}, "H200");
  AddGpu(batch, "GPU-b", Duration{0}, "T4");
  Apply(*ledger, batch);
  batch.seq = 2;
  batch.to = At(1800);
  AddSample(batch, 1, "GPU-a", 100 * kSecond, kResearch);
  AddSample(batch, 1, "GPU-b", 40 * kSecond, kResearch);
  AddSample(batch, 2, "GPU-b", 60 * kSecond, kVision);
  Apply(*ledger, batch);
  const Window window{At(0), At(3600)};
  const auto seconds_of = [&](const ModelWeights& weights) {
    const auto decayed = ledger->Decayed(At(1800), hours(4), weights);
    EXPECT_TRUE(decayed && decayed->size() == 2u);
    EXPECT_EQ((*decayed)[0].team, "research");
    EXPECT_DOUBLE_EQ((*decayed)[0].decayed_ns, (*decayed)[0].held_ns) << "it is the hour's middle";
    const Int128 all = ledger->HeldBy("research", window, weights).value();
    const Int128 below = ledger->HeldBy("research/vision", window, weights).value();
    EXPECT_NEAR((*decayed)[0].held_ns, static_cast<double>(Narrow(all - below)), 2);
    EXPECT_NEAR((*decayed)[1].held_ns, static_cast<double>(Narrow(below)), 2);
    return std::pair((*decayed)[0].held_ns / kSecond, (*decayed)[1].held_ns / kSecond);
  };
  EXPECT_EQ(seconds_of({}), std::pair(140., 60.));
  EXPECT_EQ(seconds_of({{"T4", 0.25}}), std::pair(110., 15.));
  EXPECT_EQ(seconds_of({{"H200", 2}, {"", 0.5}}), std::pair(220., 30.));
  EXPECT_EQ(seconds_of({{"", 0}}), std::pair(0., 0.));
}

TEST_P(LedgerTest, UseDecaysByItsHalfLife) {
  const auto ledger = Open();
  const std::string source = NewSource();
  Begin(*ledger, source, At(0));
  Batch batch = MakeBatch(source, 2, At(1800));
  AddSample(batch, 1, "GPU-a", 1000 * kSecond, kResearch);
  AddSample(batch, 2, "GPU-a", 500 * kSecond, kVision);
  Apply(*ledger, batch);
  const auto decayed = [&](WallTime now, Duration half_life) {
    const auto all = ledger->Decayed(now, half_life);
    EXPECT_TRUE(all) << all.error().message;
    EXPECT_EQ(all->size(), 2u);
    EXPECT_EQ((*all)[0].team, "research");
    EXPECT_EQ((*all)[0].user, "user-a");
    EXPECT_EQ((*all)[1].team, "research/vision");
    EXPECT_EQ((*all)[0].held_ns, 1000.0 * kSecond);
    EXPECT_NEAR((*all)[1].decayed_ns, (*all)[0].decayed_ns / 2, 1);
    EXPECT_NEAR((*all)[0].uncontended_ns, (*all)[0].decayed_ns / 5, 1) << "as AddSample says";
    return (*all)[0].decayed_ns / (1000.0 * kSecond);
  };
  // The hour's middle is half an hour after Monday began; the day's, twelve hours after it.
  const WallTime middle = At(1800);
  EXPECT_DOUBLE_EQ(decayed(middle, hours(4)), 1.0);
  EXPECT_DOUBLE_EQ(decayed(middle - hours(1), hours(4)), 1.0);  // a clock that stepped back
  EXPECT_DOUBLE_EQ(decayed(middle + hours(2), hours(4)), std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(decayed(middle + hours(4), hours(4)), 0.5);
  EXPECT_DOUBLE_EQ(decayed(middle + hours(40), hours(4)), 1.0 / 1024);
  EXPECT_DOUBLE_EQ(decayed(At(43'200 + 30 * 86400), hours(24 * 30)), 0.5);
  EXPECT_DOUBLE_EQ(decayed(At(43'200 + 300 * 86400), hours(24 * 30)), 1.0 / 1024);
  EXPECT_EQ(decayed(At(5000 * 86400), hours(24)), 0.0);
  // Short half-lives look closer: minutes, then ten seconds.
  const auto by_bucket = [](double now_s, double bucket_s, double half_life_s) {
    double sum = 0;
    const double count = 1800 / bucket_s;
    for (double n = 0; n < count; ++n) {
      sum += std::exp2(-(now_s - (n + 0.5) * bucket_s) / half_life_s) / count;
    }
    return sum;
  };
  EXPECT_NEAR(decayed(At(5400), hours(1)), by_bucket(5400, 60, 3600), 1e-9);
  EXPECT_NEAR(decayed(At(2000), seconds(100)), by_bucket(2000, 10, 100), 1e-9);
  EXPECT_EQ(ledger->Decayed(middle, Duration(1)).error().code, ErrorCode::kInvalid);
}

TEST_P(LedgerTest, ProfilesSayHowMuchOfItsTimeAPodHeldAndNeeded) {
  const auto ledger = Open();
  const std::string source = NewSource();
  Begin(*ledger, source, At(0));
  int64_t held = 0;
  uint64_t seq = 1;
  // 100 buckets: it holds a tenth of each, half of two, nothing in the last but one.
  for (int i = 0; i < 100; ++i) {
    Batch batch = MakeBatch(source, ++seq, At(10 * (i + 1)));
    if (i == 98) {
      Apply(*ledger, batch);
      continue;
    }
    held += i == 20 || i == 30 ? 5 * kSecond : kSecond;
    Sample& sample = AddSample(batch, 1, "GPU-a", held, i < 50 ? kResearch : kVision);
    sample.memory_peak_mib = i == 70 ? 9000 : 4000;
    Apply(*ledger, batch);
  }
  const auto profiles = ledger->Profiles({At(0), At(1000)});
  ASSERT_TRUE(profiles) << profiles.error().message;
  ASSERT_EQ(profiles->size(), 1u);
  const Profile& profile = (*profiles)[0];
  EXPECT_EQ(profile.owner.team, "research/vision");
  EXPECT_EQ(profile.gpu, "GPU-a");
  EXPECT_EQ(profile.buckets, 100);
  EXPECT_NEAR(profile.held_p50, 0.1, 1e-6);
  EXPECT_NEAR(profile.held_p99, 0.5, 1e-6);
  EXPECT_EQ(profile.memory_peak_mib, 9000);
  const auto activities = ledger->Activities({At(0), At(1000)});
  ASSERT_EQ(activities->size(), 1u);
  const Activity& activity = activities->front();
  EXPECT_EQ(activity.owner.team, "research/vision");
  EXPECT_EQ(activity.seconds, 10);
  ASSERT_EQ(activity.buckets.size(), 99u) << "none where it used nothing";
  EXPECT_EQ(activity.buckets[20].t - activity.buckets[0].t, 200);
  EXPECT_NEAR(activity.buckets[20].held, 0.5, 1e-6);
  EXPECT_EQ(activity.buckets[70].memory_peak_mib, 9000);
  const auto minutes = ledger->Profiles({At(0), At(7200)});
  ASSERT_EQ(minutes->size(), 1u);
  EXPECT_EQ((*minutes)[0].buckets, 17);
}

}  // namespace
}  // namespace baton::ledger
