#include "tests/ledger/books.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

#include "ledger/columns.h"

// libpqxx 6.4 leaks the result of the statement in which a connection broke.
extern "C" const char* __lsan_default_suppressions() { return "leak:libpqxx"; }

namespace baton::ledger {

WallTime AtMs(int64_t ms) { return WallTime(std::chrono::milliseconds(kMonday_s * 1000 + ms)); }
WallTime At(int64_t seconds) { return AtMs(seconds * 1000); }

std::string NewSource() {
  static int number = 0;
  char text[33];
  snprintf(text, sizeof text, "%016x%016x", static_cast<unsigned>(getpid()),
           static_cast<unsigned>(++number));
  return text;
}

Batch MakeBatch(const std::string& source, uint64_t seq, WallTime to) {
  Batch batch;
  batch.source = source;
  batch.node = "node-1";
  batch.seq = seq;
  batch.to = to;
  return batch;
}

Sample& AddSample(Batch& batch, uint64_t pod, const std::string& gpu, int64_t held_ns,
                  const Owner& owner) {
  Sample sample;
  sample.pod = pod;
  sample.gpu = gpu;
  sample.owner = owner;
  sample.total = {held_ns,     held_ns / 2,  held_ns / 3,  held_ns / 1000,
                  held_ns / 7, held_ns / 11, held_ns / 13, held_ns / 17,
                  0,           held_ns / 5};
  sample.memory_peak_mib = held_ns == 0 ? 0 : 1000 + static_cast<int64_t>(pod);
  batch.samples.push_back(sample);
  return batch.samples.back();
}

void AddGpu(Batch& batch, const std::string& uuid, Duration idle, const std::string& model) {
  batch.gpus.push_back({uuid, model, uint64_t{80} << 30, idle});
}

std::vector<BucketRow> BucketsOf(Database& database, const std::string& level,
                                 const std::string& source) {
  std::vector<BucketRow> rows;
  database.Connect();
  const Transaction transaction(database, Database::Access::kRead);
  database.Run("SELECT u.t, g.uuid, a.pod, a.name, a.name_space, a.team, a.user_name, " +
                   CounterList([](const std::string& name) { return "u." + name; }) +
                   ", u.memory_peak_mib FROM use_" + level +
                   " u JOIN accounts a ON a.id = u.account JOIN gpus g ON g.id = a.gpu"
                   " JOIN sources s ON s.id = g.source WHERE s.name = $1 ORDER BY u.t, u.account",
               {std::string_view(source)}, [&](const Row& row) {
                 BucketRow bucket{row.Int(0),
                                  row.Text(1),
                                  static_cast<uint64_t>(row.Int(2)),
                                  {row.Text(3), row.Text(4), row.Text(5), row.Text(6)},
                                  {},
                                  row.Int(17)};
                 Numbers n;
                 for (int i = 0; i < 10; ++i) n[static_cast<size_t>(i)] = row.Int(7 + i);
                 bucket.use = {n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9]};
                 rows.push_back(std::move(bucket));
               });
  return rows;
}

std::vector<PresenceRow> PresenceOf(Database& database, const std::string& level,
                                    const std::string& source) {
  std::vector<PresenceRow> rows;
  database.Connect();
  const Transaction transaction(database, Database::Access::kRead);
  database.Run("SELECT u.t, g.uuid, u.present_ns, u.idle_ns, u.energy_j FROM gpu_" + level +
                   " u JOIN gpus g ON g.id = u.gpu JOIN sources s ON s.id = g.source"
                   " WHERE s.name = $1 ORDER BY u.t, u.gpu",
               {std::string_view(source)}, [&](const Row& row) {
                 rows.push_back({row.Int(0), row.Text(1), row.Int(2), row.Int(3), row.Int(4)});
               });
  return rows;
}

PostgresServer* Server(std::string* why_not) {
  static const Result<std::unique_ptr<PostgresServer>> server = PostgresServer::Start();
  if (server) return server->get();
  *why_not = server.error().message;
  // Installed and not to be started is no reason to skip.
  EXPECT_EQ(server.error().code, ErrorCode::kNotFound) << *why_not;
  return nullptr;
}

void Begin(Ledger& ledger, const std::string& source, WallTime at,
           const std::vector<std::string>& gpus) {
  Batch batch = MakeBatch(source, 1, at);
  for (const std::string& gpu : gpus) AddGpu(batch, gpu);
  const auto booked = ledger.Apply(batch);
  ASSERT_TRUE(booked) << booked.error().message;
  ASSERT_TRUE(*booked);
}

void Apply(Ledger& ledger, const Batch& batch) {
  const auto booked = ledger.Apply(batch);
  ASSERT_TRUE(booked) << booked.error().message;
  ASSERT_TRUE(*booked);
}

void LedgerTest::SetUp() {
  if (!IsPostgres()) {
    database_ = "sqlite:" + (folder_ / "ledger");
    return;
  }
  std::string why_not;
  const PostgresServer* server = Server(&why_not);
  if (server == nullptr) GTEST_SKIP() << why_not;
  database_ = server->uri();
  Sql({"DROP SCHEMA IF EXISTS baton CASCADE", "CREATE SCHEMA baton"});
}

std::unique_ptr<Database> LedgerTest::Inside() {
  return IsPostgres() ? MakePostgres(database_) : MakeSqlite(folder_ / "ledger");
}

std::unique_ptr<Ledger> LedgerTest::Open(const Retention& retention) {
  std::string trouble;
  LedgerOptions options;
  options.database = database_;
  options.retention = retention;
  auto ledger = Ledger::Open(options, &trouble);
  EXPECT_TRUE(ledger) << ledger.error().message;
  EXPECT_EQ(trouble, "");
  return ledger ? std::move(*ledger) : nullptr;
}

void LedgerTest::Sql(const std::vector<std::string>& statements) {
  const std::unique_ptr<Database> inside = Inside();
  inside->Connect();
  Transaction transaction(*inside, Database::Access::kWrite);
  for (const std::string& statement : statements) inside->Run(statement, {});
  transaction.Commit();
}

}  // namespace baton::ledger
