// The ledger's spool and schema, what it refuses, and readers beside its writer.
#include <gtest/gtest.h>

#include <functional>

#include "base/random.h"
#include "ledger/columns.h"
#include "ledger/ledger.h"
#include "ledger/merge.h"
#include "tests/ledger/books.h"

namespace baton::ledger {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_P(LedgerTest, TheSpoolGivesBatchesInOrderUntilTheyAreDropped) {
  const auto ledger = Open();
  const std::string source = NewSource();
  const std::string other = NewSource();
  for (uint64_t seq = 1; seq <= 5; ++seq) {
    Batch batch = MakeBatch(seq <= 3 ? source : other, seq, At(static_cast<int64_t>(seq) * 10));
    AddSample(batch, 1, "GPU-a", static_cast<int64_t>(seq), {"p\n\"x", "", "t", "u"});
    AddGpu(batch, "GPU-a", seconds(1));
    ASSERT_TRUE(*ledger->ApplyAndSpool(batch));
    EXPECT_FALSE(*ledger->ApplyAndSpool(batch));  // repeated: neither booked nor spooled
  }
  auto spooled = ledger->Spooled(0, 2);
  ASSERT_TRUE(spooled) << spooled.error().message;
  ASSERT_EQ(spooled->size(), 2u);
  EXPECT_EQ((*spooled)[0].batch.seq, 1u);
  EXPECT_EQ((*spooled)[1].batch.samples[0].owner.pod, "p\n\"x");
  const uint64_t second = (*spooled)[1].number;
  spooled = ledger->Spooled(second, 100);
  ASSERT_EQ(spooled->size(), 3u);
  EXPECT_EQ((*spooled)[0].batch.seq, 3u);
  EXPECT_EQ((*spooled)[1].batch.source, other);
  EXPECT_EQ((*spooled)[2].batch.to, At(50));
  const uint64_t last = (*spooled)[2].number;
  ASSERT_TRUE(ledger->DropSpooled(second));
  EXPECT_EQ(ledger->Spooled(0, 100)->size(), 3u);
  ASSERT_TRUE(ledger->DropSpooled(last));
  EXPECT_TRUE(ledger->Spooled(0, 100)->empty());
  // Numbers go on from where they were.
  ASSERT_TRUE(*ledger->ApplyAndSpool(MakeBatch(source, 9, At(90))));
  spooled = ledger->Spooled(last, 100);
  ASSERT_EQ(spooled->size(), 1u);
  EXPECT_EQ((*spooled)[0].batch.seq, 9u);
}

// As a day without the upstream would leave it.
void FillSpool(Database& database, const std::function<Batch(uint64_t seq)>& batch_of) {
  database.Connect();
  Transaction transaction(database, Database::Access::kWrite);
  database.Run("INSERT INTO meta (name, value) VALUES ('spooled', 8640)", {});
  for (int64_t number = 1; number <= 8640; ++number) {
    const std::string bytes = EncodeBatch(batch_of(static_cast<uint64_t>(number)));
    database.Run("INSERT INTO spool (number, body) VALUES ($1, $2)", {number, Blob{bytes}});
  }
  transaction.Commit();
}

TEST_P(LedgerTest, AFullSpoolMergesItsOldestBatches) {
  const auto ledger = Open();
  const std::string source = NewSource();
  const auto batch_of = [&](uint64_t seq) {
    Batch batch = MakeBatch(source, seq, At(static_cast<int64_t>(seq) * 10));
    AddSample(batch, seq, "GPU-a", 1);
    return batch;
  };
  FillSpool(*Inside(), batch_of);
  ASSERT_TRUE(*ledger->ApplyAndSpool(batch_of(8641)));
  ASSERT_TRUE(*ledger->ApplyAndSpool(batch_of(8642)));
  const auto spooled = ledger->Spooled(0, 10'000);
  ASSERT_TRUE(spooled) << spooled.error().message;
  ASSERT_EQ(spooled->size(), 8640u);
  EXPECT_EQ(spooled->front().number, 1u);
  EXPECT_EQ(spooled->front().batch.seq, 1u);
  EXPECT_EQ(spooled->at(1).number, 4u);
  EXPECT_EQ(spooled->at(1).batch.seq, 4u);
  EXPECT_EQ(spooled->at(1).batch.samples.size(), 3u);
  EXPECT_EQ(spooled->back().batch.seq, 8642u);
}

TEST_P(LedgerTest, AFullSpoolKeepsWhoseUseItWas) {
  const auto ledger = Open();
  const std::string source = NewSource();
  const auto batch_of = [&](uint64_t seq) {
    Batch batch = MakeBatch(source, seq, At(static_cast<int64_t>(seq) * 10));
    AddSample(batch, 1, "GPU-a", static_cast<int64_t>(seq),
              {"p", "", seq <= 4 ? "old" : "new", "u"});
    return batch;
  };
  FillSpool(*Inside(), batch_of);
  for (uint64_t seq = 8641; seq <= 8650; ++seq) {
    ASSERT_TRUE(*ledger->ApplyAndSpool(batch_of(seq)));
  }
  const auto spooled = ledger->Spooled(0, 10'000);
  ASSERT_TRUE(spooled) << spooled.error().message;
  EXPECT_EQ(spooled->size(), 8640u);
  EXPECT_EQ(spooled->at(1).batch.seq, 4u);
  EXPECT_EQ(spooled->at(1).batch.samples.at(0).owner.team, "old");
  EXPECT_EQ(spooled->at(1).batch.samples.at(0).total.held_ns, 4);
  EXPECT_EQ(spooled->at(2).batch.seq, 13u);
}

// Booked upstream, but the acknowledgement was lost with the link: it is sent again.
TEST_P(LedgerTest, WhatUpstreamHasAlreadyIsNotCountedAgainWithTheNextBatch) {
  const auto ledger = Open();
  const std::string source = NewSource();
  const auto batch_of = [&](uint64_t seq) {
    Batch batch = MakeBatch(source, seq, At(static_cast<int64_t>(seq) * 10));
    AddGpu(batch, "GPU-a", std::chrono::seconds(4));
    return batch;
  };
  FillSpool(*Inside(), batch_of);
  MemoryFolder folder;
  const auto upstream = Ledger::Open({"sqlite:" + (folder / "upstream"), {}}, nullptr).value();
  Begin(*upstream, source, At(0));
  const auto send = [&] {
    Batch batch = (*ledger->Spooled(0, 1))[0].batch;
    batch.seq += 1;  // Begin()'s is the first
    ASSERT_TRUE(upstream->Apply(batch));
  };
  send();
  for (uint64_t seq = 8641; seq <= 8650; ++seq) {
    ASSERT_TRUE(*ledger->ApplyAndSpool(batch_of(seq)));
  }
  // The first ones that are left.
  for (int i = 0; i < 3; ++i) {
    send();
    ASSERT_TRUE(ledger->DropSpooled((*ledger->Spooled(0, 1))[0].number));
  }
  const auto uses = upstream->Query({At(0), At(100'000)}, By::kTotal);
  ASSERT_TRUE(uses && uses->capacity.size() == 1);
  const Int128 tens = uses->capacity[0].present_ns / (10 * kSecond);
  EXPECT_EQ(Narrow(uses->capacity[0].idle_ns), Narrow(tens) * 4 * kSecond);
}

// What was merged says from when on its GPUs were there; before that they were not heard of.
TEST_P(LedgerTest, OfMergedBatchesAGpuWasThereSinceTheFirst) {
  const auto ledger = Open();
  const std::string source = NewSource();
  const auto present_s = [&] {
    int64_t sum_ns = 0;
    for (const PresenceRow& row : PresenceOf(*Inside(), "days", source)) sum_ns += row.present_ns;
    return sum_ns / kSecond;
  };
  uint64_t seq = 1;
  const auto merge = [&](int64_t from_s, int64_t to_s) {
    Batch merged;
    for (int64_t at = from_s; at <= to_s; at += 600) {
      Batch batch = MakeBatch(source, ++seq, At(at));
      AddGpu(batch, "GPU-a", std::chrono::seconds(60));
      if (at > from_s) MergeInto(std::move(merged), batch);
      merged = std::move(batch);
    }
    return merged;
  };
  Begin(*ledger, source, At(0));
  Apply(*ledger, DecodeBatch(EncodeBatch(merge(600, 36'000))).value());
  EXPECT_EQ(present_s(), 36'000);
  // Stopped for five hours.
  Apply(*ledger, merge(54'000, 61'200));
  EXPECT_EQ(present_s(), 36'000 + 7'200);
  // For five hours between two that are merged all the same.
  Batch before = merge(61'800, 64'800);
  Batch after = merge(82'800, 84'000);
  MergeInto(std::move(before), after);
  Apply(*ledger, after);
  EXPECT_GE(present_s(), 36'000 + 7'200 + 1'200);
  EXPECT_LE(present_s(), 36'000 + 7'200 + 1'200 + 3'600);
}

TEST_P(LedgerTest, WrongBatchesAreRefusedWithAReason) {
  const auto ledger = Open();
  const Batch good = [] {
    Batch batch = MakeBatch(NewSource(), 1, At(0));
    AddSample(batch, 1, "GPU-a", 1);
    AddGpu(batch, "GPU-a");
    return batch;
  }();
  const auto refused = [&](const std::function<void(Batch&)>& change, const char* reason) {
    Batch batch = good;
    change(batch);
    const auto booked = ledger->Apply(batch);
    ASSERT_FALSE(booked) << reason;
    EXPECT_EQ(booked.error().code, ErrorCode::kInvalid);
    EXPECT_NE(booked.error().message.find(reason), std::string::npos) << booked.error().message;
  };
  refused([](Batch& b) { b.source = "x"; }, "32 hex digits");
  refused([](Batch& b) { b.seq = 0; }, "seq");
  refused([](Batch& b) { b.to = WallTime{}; }, "clock");
  refused([](Batch& b) { b.samples[0].total.busy_ns = -1; }, "0 to 2^60");
  refused([](Batch& b) { b.samples[0].total.launches = INT64_MAX; }, "0 to 2^60");
  refused([](Batch& b) { b.samples[0].pod = UINT64_MAX; }, "0 to 2^60");
  refused([](Batch& b) { b.samples[0].gpu = ""; }, "uuid");
  refused([](Batch& b) { b.samples[0].gpu = std::string("G\0U", 3); }, "uuid");
  refused([](Batch& b) { b.gpus[0].idle = Duration(-1); }, "0 to 2^60");
  refused([](Batch& b) { b.gpus.push_back(b.gpus[0]); }, "twice");
  refused([](Batch& b) { b.samples.push_back(b.samples[0]); }, "twice");
  refused([](Batch& b) { b.samples.resize(1'000'001, b.samples[0]); }, "million");
  EXPECT_EQ(ledger->LastOf(good.source)->seq, 0u);
  EXPECT_TRUE(*ledger->Apply(good));
  EXPECT_EQ(ledger->Query({At(10), At(0)}, By::kTotal).error().code, ErrorCode::kInvalid);
}

TEST_P(LedgerTest, NamesThatNoDatabaseTakesAreStoredAsNearAsCanBe) {
  const auto ledger = Open();
  const std::string source = NewSource();
  Begin(*ledger, source, At(0));
  Batch batch = MakeBatch(source, 2, At(10));
  const std::string broken = std::string("a\xff\xc3") + '\0' + "\xed\xa0\x80 \xf0\x9f\x8e\xbc é";
  AddSample(batch, 1, "GPU-a", 1, {broken, "", std::string(600, 'x'), "'; DROP TABLE meta; --"});
  batch.node = "n\xfe";
  Apply(*ledger, batch);
  const auto uses = ledger->Query({At(0), At(60)}, By::kPod);
  ASSERT_TRUE(uses) << uses.error().message;
  ASSERT_EQ(uses->rows.size(), 1u);
  EXPECT_EQ(uses->rows[0].keys.front(), "a?????? \xf0\x9f\x8e\xbc é");
  EXPECT_EQ(uses->rows[0].team, std::string(512, 'x'));
  EXPECT_EQ(ledger->Query({At(0), At(60)}, By::kUser)->rows[0].keys.front(),
            "'; DROP TABLE meta; --");
}

// 64 bits of nanoseconds are 292 GPU-years, which a cluster's waiting time has in a month.
TEST_P(LedgerTest, SumsBeyond64BitsAreExact) {
  const auto ledger = Open();
  const std::string source = NewSource();
  Begin(*ledger, source, At(0));
  // Two batches, so that buckets of several levels and what is between them are added up.
  constexpr int64_t kHalf = (int64_t{1} << 59) - 1;
  for (uint64_t seq = 2; seq <= 3; ++seq) {
    Batch batch = MakeBatch(source, seq, seq == 2 ? At(10) : At(2 * 86400 + 10));
    for (uint64_t pod = 1; pod <= 40; ++pod) {
      Sample& sample = AddSample(batch, pod, "GPU-a", kHalf * static_cast<int64_t>(seq - 1),
                                 {"p", "", pod <= 20 ? "a" : "b", "u"});
      sample.total.waited_ns = sample.total.held_ns;
    }
    Apply(*ledger, batch);
  }
  const Int128 all = Int128{80} * kHalf;
  ASSERT_GT(all, std::numeric_limits<int64_t>::max());
  const Window window{At(0), At(3 * 86400)};
  for (const By by : {By::kTeam, By::kPod, By::kDay, By::kTotal}) {
    const auto uses = ledger->Query(window, by);
    ASSERT_TRUE(uses) << uses.error().message;
    Int128 held = 0;
    Int128 waited = 0;
    for (const UseRow& row : uses->rows) {
      held += row.use.held_ns;
      waited += row.use.waited_ns;
      if (by != By::kTeam) continue;
      EXPECT_EQ(FormatSum(row.use.held_ns), FormatSum(all / 2)) << row.keys.front();
    }
    EXPECT_EQ(FormatSum(held), FormatSum(all)) << static_cast<int>(by);
    EXPECT_EQ(FormatSum(waited), FormatSum(all)) << static_cast<int>(by);
  }
  EXPECT_EQ(FormatSum(*ledger->HeldBy("", window)), FormatSum(all));
  EXPECT_EQ(FormatSum(*ledger->HeldBy("a", window)), FormatSum(all / 2));
}

TEST(Sums, AreTheSameAsTexts) {
  constexpr Int128 kLarge = Int128{1} << 100;
  for (const auto& [sum, text] :
       {std::pair<Int128, const char*>(0, "0"), std::pair<Int128, const char*>(-17, "-17"),
        std::pair<Int128, const char*>(kLarge, "1267650600228229401496703205376"),
        std::pair<Int128, const char*>(-kLarge, "-1267650600228229401496703205376")}) {
    EXPECT_EQ(FormatSum(sum), text);
    EXPECT_TRUE(ParseSum(text) == sum) << text;
  }
  for (const char* text : {"", "1.5", "x", "1e9", "999999999999999999999999999999999999999999"}) {
    EXPECT_TRUE(ParseSum(text) == 0) << text;
  }
}

// Version 1 as it was made.
const char* const kVersion1[] = {
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value BIGINT NOT NULL)",
    "INSERT INTO meta (name, value) VALUES ('version', 1)",
    "CREATE TABLE sources (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, node TEXT NOT NULL,"
    " seq BIGINT NOT NULL, booked_until_ms BIGINT NOT NULL, largest_pod BIGINT NOT NULL)",
    "CREATE TABLE gpus (id INTEGER PRIMARY KEY, source INTEGER NOT NULL, uuid TEXT NOT NULL,"
    " node TEXT NOT NULL, model TEXT NOT NULL, memory_bytes BIGINT NOT NULL, listed INTEGER NOT"
    " NULL, UNIQUE (source, uuid))",
    "CREATE TABLE accounts (id INTEGER PRIMARY KEY, gpu INTEGER NOT NULL, pod BIGINT NOT NULL, name"
    " TEXT NOT NULL, name_space TEXT NOT NULL, team TEXT NOT NULL, user_name TEXT NOT NULL)",
    "CREATE INDEX accounts_of ON accounts (gpu, pod)",
    "CREATE TABLE meters (gpu INTEGER NOT NULL, pod BIGINT NOT NULL, account INTEGER NOT NULL,"
    " held_ns BIGINT NOT NULL, busy_ns BIGINT NOT NULL, waited_ns BIGINT NOT NULL, unmanaged_ns"
    " BIGINT NOT NULL, memory_mib_ms BIGINT NOT NULL, launches BIGINT NOT NULL, grants BIGINT NOT"
    " NULL, revocations BIGINT NOT NULL, PRIMARY KEY (gpu, pod))",
    "INSERT INTO sources VALUES (1, '0123456789abcdef0123456789abcdef', 'n', 7, 1794787200000, 3)",
    "INSERT INTO gpus VALUES (1, 1, 'GPU-a', 'n', 'model-x', 0, 1)",
    "INSERT INTO accounts VALUES (1, 1, 3, 'p', '', 'research', 'u')",
    "INSERT INTO meters VALUES (1, 3, 1, 5000, 0, 0, 0, 0, 0, 0, 0)",
};

TEST_P(LedgerTest, AnOlderSchemaIsBroughtUpToDateWithWhatIsInIt) {
  std::vector<std::string> statements(std::begin(kVersion1), std::end(kVersion1));
  for (const char* level : {"fine", "minutes", "hours", "days"}) {
    statements.push_back(
        std::string("CREATE TABLE use_") + level +
        " (t BIGINT NOT NULL, account INTEGER NOT NULL, held_ns BIGINT NOT NULL,"
        " busy_ns BIGINT NOT NULL, waited_ns BIGINT NOT NULL, unmanaged_ns BIGINT"
        " NOT NULL, memory_mib_ms BIGINT NOT NULL, launches BIGINT NOT NULL, grants"
        " BIGINT NOT NULL, revocations BIGINT NOT NULL, memory_peak_mib BIGINT NOT"
        " NULL, PRIMARY KEY (t, account))");
    statements.push_back(std::string("INSERT INTO use_") + level +
                         " VALUES (1794700800, 1, 5000, 0, 0, 0, 0, 0, 0, 0, 0)");
    statements.push_back(std::string("CREATE TABLE gpu_") + level +
                         " (t BIGINT NOT NULL, gpu INTEGER NOT NULL, present_ns BIGINT NOT NULL,"
                         " idle_ns BIGINT NOT NULL, PRIMARY KEY (t, gpu))");
  }
  Sql(statements);
  const auto ledger = Open();
  ASSERT_TRUE(ledger);
  const std::string source = "0123456789abcdef0123456789abcdef";
  EXPECT_EQ(ledger->LastOf(source)->seq, 7u);
  Batch batch = MakeBatch(source, 8, At(10));
  AddSample(batch, 3, "GPU-a", 7000, {"p", "", "research", "u"});
  ASSERT_TRUE(*ledger->ApplyAndSpool(batch));  // version 2
  EXPECT_EQ(ledger->Spooled(0, 10)->size(), 1u);
  EXPECT_EQ(*ledger->HeldBy("research", {At(-86400), At(86400)}), 7000);
  // Nobody knows who wanted what was used before: it counts as contended.
  const auto uncontended = [](Ledger& books) {
    return books.Decayed(At(-86400), hours(24)).value().at(0).uncontended_ns;
  };
  EXPECT_EQ(uncontended(*ledger), 7000 / 5) << "of the batch alone, which AddSample made";
  // A daemon of before goes on with these tables; what it books counts as contended too.
  Sql({"UPDATE meters SET held_ns = held_ns + 600",
       "INSERT INTO use_hours (t, account, held_ns, busy_ns, waited_ns, unmanaged_ns,"
       " memory_mib_ms, launches, grants, revocations, memory_peak_mib)"
       " VALUES (1794790800, 1, 600, 0, 0, 0, 0, 0, 0, 0, 0)"});
  EXPECT_EQ(uncontended(*Open()), 7000 / 5);
  Batch more = MakeBatch(source, 9, At(20));
  AddSample(more, 3, "GPU-a", 8000, {"p", "", "research", "u"});
  Apply(*ledger, more);
  EXPECT_EQ(uncontended(*ledger), 8000 / 5);
  // What came without a version of its own: who changed what, and energy.
  ASSERT_TRUE(ledger->Record({At(10), "n", "root", "create", "pod", "p", "", "{}"}));
  batch.seq = 10;
  batch.to = At(30);
  batch.samples[0].total.energy_j = 600;
  ASSERT_TRUE(*ledger->Apply(batch));
  EXPECT_EQ(ledger->Query({At(-86400), At(86400)}, By::kTotal)->rows[0].use.energy_j, 600);
}

TEST_P(LedgerTest, ANewerSchemaAndOtherPeoplesTablesAreRefusedAndLeftAlone) {
  { ASSERT_TRUE(Open()); }
  Sql({"UPDATE meta SET value = 99 WHERE name = 'version'"});
  auto ledger = Ledger::Open({database(), {}}, nullptr);
  ASSERT_FALSE(ledger);
  EXPECT_EQ(ledger.error().code, ErrorCode::kInvalid);
  EXPECT_NE(ledger.error().message.find("version 99"), std::string::npos) << ledger.error().message;
  Sql({"DROP TABLE meta", "CREATE TABLE meta (x INTEGER)"});
  ledger = Ledger::Open({database(), {}}, nullptr);
  ASSERT_FALSE(ledger);
  EXPECT_EQ(ledger.error().code, ErrorCode::kInternal) << ledger.error().message;
  Sql({"DROP TABLE meta"});
  ledger = Ledger::Open({database(), {}}, nullptr);
  ASSERT_FALSE(ledger);
  EXPECT_EQ(ledger.error().code, ErrorCode::kInvalid);
  EXPECT_NE(ledger.error().message.find("no ledger of Baton"), std::string::npos);
}

TEST_P(LedgerTest, OneReadsWhileAnotherWrites) {
  const auto writer = Open();
  const auto reader = Open();
  const std::string source = NewSource();
  Begin(*writer, source, At(0));
  for (uint64_t seq = 2; seq < 20; ++seq) {
    Batch batch = MakeBatch(source, seq, At(static_cast<int64_t>(seq) * 10));
    AddSample(batch, 1, "GPU-a", static_cast<int64_t>(seq) * kSecond);
    Apply(*writer, batch);
    const auto uses = reader->Query({At(0), At(1000)}, By::kTotal);
    ASSERT_TRUE(uses) << uses.error().message;
    ASSERT_EQ(uses->rows[0].use.held_ns, static_cast<int64_t>(seq) * kSecond);
  }
  EXPECT_GT(*reader->SizeBytes(), 10'000);
}

TEST(LedgerOptions, ThatMakeNoSenseAreRefused) {
  const auto code = [](const LedgerOptions& options) {
    return Ledger::Later(options).error().code;
  };
  for (const char* database : {"", "sqlite:", "sqlite::memory:", "/var/lib/x", "mysql://x"}) {
    LedgerOptions options;
    options.database = database;
    EXPECT_EQ(code(options), ErrorCode::kInvalid) << database;
  }
  const LedgerOptions good{.database = "sqlite:/var/lib/baton/ledger.sqlite"};
  LedgerOptions options = good;
  options.retention.minutes = hours(1);
  EXPECT_EQ(code(options), ErrorCode::kInvalid);
  options = good;
  options.retention.hours = hours(0);  // for ever, as the days
  EXPECT_TRUE(Ledger::Later(options));
  options.retention.days = hours(24 * 1000);
  EXPECT_EQ(code(options), ErrorCode::kInvalid);
}

}  // namespace
}  // namespace baton::ledger
