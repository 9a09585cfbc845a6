// Crashes, damage and full disks: what is booked stays whole.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/random.h"
#include "ledger/buckets.h"
#include "ledger/columns.h"
#include "tests/ledger/books.h"

namespace baton::ledger {
namespace {

constexpr int kPods = 20;
constexpr int64_t kStep_ns = 1'000'000;

// Batch `seq` of a source of which each pod has held seq · kStep_ns.
Batch NthBatch(const std::string& source, uint64_t seq) {
  Batch batch = MakeBatch(source, seq, At(static_cast<int64_t>(seq) * 7));
  for (uint64_t pod = 1; pod <= kPods; ++pod) {
    AddSample(batch, pod, "GPU-a", static_cast<int64_t>(seq) * kStep_ns);
  }
  AddGpu(batch, "GPU-a");
  return batch;
}

// The newest of these batches that is booked, and that each one since `first` is wholly or not at
// all. The first one that a ledger has of a source books nothing.
uint64_t Booked(Ledger& ledger, Database& database, const std::string& source, uint64_t first = 1) {
  const auto last = ledger.LastOf(source);
  EXPECT_TRUE(last) << last.error().message;
  if (!last) return 0;
  const int64_t expected =
      last->seq == 0 ? 0 : static_cast<int64_t>(last->seq - first) * kStep_ns * kPods;
  for (const Level& level : kLevels) {
    int64_t held_ns = 0;
    for (const BucketRow& row : BucketsOf(database, level.name, source)) {
      held_ns += row.use.held_ns;
    }
    EXPECT_EQ(held_ns, expected) << level.name << " after " << last->seq;
  }
  return last->seq;
}

class LedgerFaults : public testing::Test {
 protected:
  const std::string& path() const { return path_; }
  Result<std::unique_ptr<Ledger>> Open() {
    trouble_.clear();
    return Ledger::Open({"sqlite:" + path_, {}}, &trouble_);
  }
  std::unique_ptr<Ledger> OpenWell() {
    auto ledger = Open();
    EXPECT_TRUE(ledger) << ledger.error().message;
    EXPECT_EQ(trouble_, "");
    return ledger ? std::move(*ledger) : nullptr;
  }
  // A process that books batch after batch from `seq`, killed in the middle of it: a moment after
  // it has booked some.
  void BookAndKill(const std::string& source, uint64_t seq, int64_t batches, useconds_t after_us) {
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto ledger = Ledger::Open({"sqlite:" + path_, {}}, nullptr);
      if (!ledger) _exit(1);
      while ((*ledger)->Apply(NthBatch(source, seq)) && write(told[1], "x", 1) == 1) ++seq;
      _exit(2);
    }
    close(told[1]);
    for (char byte; batches > 0; --batches) {
      EXPECT_EQ(read(told[0], &byte, 1), 1);
    }
    usleep(after_us);
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    close(told[0]);
    EXPECT_TRUE(WIFSIGNALED(status)) << "it ended by itself, status " << status;
  }

  MemoryFolder folder_;
  const std::string path_ = folder_ / "ledger";
  std::string trouble_;
};

TEST_F(LedgerFaults, AKilledProcessLeavesEachBatchWhollyOrNotAtAll) {
  const std::string source = NewSource();
  const auto seed = static_cast<uint64_t>(Nanos(MonotonicNow()));
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  uint64_t booked = 0;
  for (int round = 0; round < 25; ++round) {
    const int64_t batches = random.Between(0, 6);
    BookAndKill(source, booked + 1, batches, static_cast<useconds_t>(random.Between(0, 5'000)));
    const auto ledger = OpenWell();
    ASSERT_TRUE(ledger);
    const auto inside = MakeSqlite(path());
    const uint64_t now = Booked(*ledger, *inside, source);
    EXPECT_GE(now, booked + static_cast<uint64_t>(batches));  // a killed process loses nothing
    booked = now;
  }
}

TEST_F(LedgerFaults, ATornLogIsRecoveredFrom) {
  const std::string source = NewSource();
  Random random(11);
  for (int round = 0; round < 10; ++round) {
    BookAndKill(source, 1, 40, 0);
    // The power went: of the log's end some is missing and some was never written.
    const std::string log = path() + "-wal";
    const auto size = static_cast<int64_t>(std::filesystem::file_size(log));
    ASSERT_GT(size, 0);
    const int64_t keep = random.Between(0, size);
    ASSERT_EQ(truncate(log.c_str(), keep), 0);
    if (keep > 0) {
      std::fstream file(log, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(random.Between(std::max<int64_t>(0, keep - 3000), keep - 1));
      file.write("garbage", static_cast<std::streamsize>(random.Between(1, 7)));
    }
    std::filesystem::remove(path() + "-shm");
    const auto ledger = OpenWell();
    ASSERT_TRUE(ledger);
    const auto inside = MakeSqlite(path());
    const uint64_t booked = Booked(*ledger, *inside, source);
    const auto next = ledger->Apply(NthBatch(source, booked + 1));
    ASSERT_TRUE(next) << next.error().message;
    EXPECT_EQ(Booked(*ledger, *inside, source), booked + 1);
    inside->Disconnect();
    for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(path() + end);
  }
}

TEST_F(LedgerFaults, AFileThatIsNoDatabaseIsMovedAsideAndSaid) {
  for (int round = 0; round < 2; ++round) {
    std::ofstream(path()) << "this was written by something else " << std::string(5000, 'x');
    auto ledger = Open();
    ASSERT_TRUE(ledger) << ledger.error().message;
    const std::string aside = path() + (round == 0 ? ".damaged" : ".damaged-2");
    EXPECT_NE(trouble_.find("moved to " + aside), std::string::npos) << trouble_;
    EXPECT_GT(std::filesystem::file_size(aside), 5000u);
    EXPECT_TRUE((*ledger)->Apply(NthBatch(NewSource(), 1)));
    ledger->reset();
    EXPECT_TRUE(OpenWell());
    std::filesystem::remove(path());
  }
}

void OverwriteMiddle(const std::string& path) {
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  ASSERT_GT(size, 40'000);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(8192);
  file << std::string(static_cast<size_t>(size - 8192), '\x5a');
}

TEST_F(LedgerFaults, ADamagedPageIsFoundWhenTheFileIsOpened) {
  const std::string source = NewSource();
  {
    const auto ledger = OpenWell();
    for (uint64_t seq = 1; seq < 30; ++seq) ASSERT_TRUE(*ledger->Apply(NthBatch(source, seq)));
  }
  OverwriteMiddle(path());
  auto ledger = Open();
  ASSERT_TRUE(ledger) << ledger.error().message;
  EXPECT_NE(trouble_.find("is damaged"), std::string::npos) << trouble_;
  EXPECT_TRUE(std::filesystem::exists(path() + ".damaged"));
  EXPECT_EQ((*ledger)->LastOf(source)->seq, 0u);
}

TEST_F(LedgerFaults, DamageThatComesLaterIsMovedAsideWhenItIsMet) {
  const std::string source = NewSource();
  auto ledger = OpenWell();
  auto other = OpenWell();
  for (uint64_t seq = 1; seq < 30; ++seq) ASSERT_TRUE(*ledger->Apply(NthBatch(source, seq)));
  // All of it from the log into the file, and out of the connections' caches.
  {
    const auto inside = MakeSqlite(path());
    inside->Connect();
    inside->Run("PRAGMA wal_checkpoint(TRUNCATE)", {});
    Transaction transaction(*inside, Database::Access::kWrite);
    inside->Run("UPDATE meta SET value = value", {});
    transaction.Commit();
    inside->Run("PRAGMA wal_checkpoint(TRUNCATE)", {});
  }
  OverwriteMiddle(path());
  const auto met = ledger->Apply(NthBatch(source, 30));
  ASSERT_FALSE(met);
  EXPECT_EQ(met.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(ledger->TakeTrouble().find("moved to " + path() + ".damaged"), std::string::npos);
  EXPECT_EQ(ledger->TakeTrouble(), "");
  // The same call works now, and others find the new file by themselves.
  const auto again = ledger->Apply(NthBatch(source, 30));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE(*again);
  EXPECT_EQ(other->LastOf(source)->seq, 30u);
  EXPECT_FALSE(std::filesystem::exists(path() + ".damaged-2"));
}

TEST_F(LedgerFaults, AFileThatIsRemovedIsMadeAgain) {
  const std::string source = NewSource();
  const auto ledger = OpenWell();
  ASSERT_TRUE(*ledger->Apply(NthBatch(source, 1)));
  for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(path() + end);
  ASSERT_TRUE(*ledger->Apply(NthBatch(source, 2)));
  EXPECT_TRUE(std::filesystem::exists(path()));
  struct stat st;
  ASSERT_EQ(stat(path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
}

TEST_F(LedgerFaults, AFullDiskIsSaidAndTheBatchBookedOnceThereIsRoom) {
  const std::string source = NewSource();
  const auto ledger = OpenWell();
  ASSERT_TRUE(*ledger->Apply(NthBatch(source, 1)));
  // As the one that reads: the log stays while it is there, and needs room.
  const auto other = OpenWell();
  // No file grows beyond what this process may write: the same error path as a full disk.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  uint64_t seq = 2;
  for (int round = 0; round < 3; ++round) {
    rlimit tight = before;
    tight.rlim_cur = std::filesystem::file_size(path() + "-wal") + 20'000;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
    Result<bool> booked = true;
    const uint64_t first = seq;
    while (booked && seq < first + 1000) booked = ledger->Apply(NthBatch(source, seq++));
    --seq;
    const Result<bool> still = ledger->Apply(NthBatch(source, seq));
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_FALSE(booked);
    EXPECT_EQ(booked.error().code, ErrorCode::kUnavailable) << booked.error().message;
    ASSERT_FALSE(still);
    EXPECT_EQ(still.error().code, ErrorCode::kUnavailable) << still.error().message;
    const Result<bool> now = ledger->Apply(NthBatch(source, seq));
    ASSERT_TRUE(now) << now.error().message;
    EXPECT_TRUE(*now);
    const auto inside = MakeSqlite(path());
    EXPECT_EQ(Booked(*ledger, *inside, source), seq);
    ++seq;
  }
  EXPECT_EQ(ledger->TakeTrouble(), "");
}

TEST_F(LedgerFaults, AFolderThatIsNotThereIsUnavailableUntilItIs) {
  const std::string folder = folder_ / "later";
  auto ledger = Ledger::Later({"sqlite:" + folder + "/ledger", {}});
  ASSERT_TRUE(ledger);
  const std::string source = NewSource();
  const auto booked = (*ledger)->Apply(NthBatch(source, 1));
  ASSERT_FALSE(booked);
  EXPECT_EQ(booked.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(booked.error().message.find(folder), std::string::npos) << booked.error().message;
  std::filesystem::create_directory(folder);
  EXPECT_TRUE((*ledger)->Apply(NthBatch(source, 1)));
}

TEST(PostgresServer, ThatCannotBeReachedIsSaidInOneLine) {
  // Two addresses, so that libpq has two sentences to say; nobody listens on port 1.
  const auto nowhere = MakePostgres("host=127.0.0.1,127.0.0.2 port=1 dbname=baton");
  std::string what;
  try {
    nowhere->Connect();
  } catch (const DatabaseError& error) {
    what = error.what();
  }
  EXPECT_NE(what.find("\"127.0.0.1\", port 1 failed: "), std::string::npos) << what;
  EXPECT_NE(what.find("; connection to server at \"127.0.0.2\""), std::string::npos) << what;
  EXPECT_EQ(what.find_first_of("\n\t"), std::string::npos) << what;
}

TEST(PostgresServer, ThatIsLostIsFoundAgainByTheNextCall) {
  std::string why_not;
  PostgresServer* server = Server(&why_not);
  if (server == nullptr) GTEST_SKIP() << why_not;
  auto ledger = Ledger::Open({server->uri(), {}}, nullptr);
  ASSERT_TRUE(ledger) << ledger.error().message;
  const std::string source = NewSource();
  uint64_t seq = 0, first = 1;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(*(*ledger)->Apply(NthBatch(source, ++seq)));
    server->Crash();
    const auto away = (*ledger)->Apply(NthBatch(source, seq + 1));
    ASSERT_FALSE(away);
    EXPECT_EQ(away.error().code, ErrorCode::kUnavailable) << away.error().message;
    ASSERT_TRUE(server->Up());
    // What was not on its disk yet (synchronous_commit is off) is gone, each batch wholly.
    const auto inside = MakePostgres(server->uri());
    const uint64_t kept = Booked(**ledger, *inside, source, first);
    EXPECT_LE(kept, seq);
    const auto booked = (*ledger)->Apply(NthBatch(source, ++seq));
    ASSERT_TRUE(booked) << booked.error().message;
    if (kept == 0) first = seq;
    EXPECT_EQ(Booked(**ledger, *inside, source, first), seq);
  }
}

TEST(PostgresServer, ASessionThatIsEndedIsReplaced) {
  std::string why_not;
  PostgresServer* server = Server(&why_not);
  if (server == nullptr) GTEST_SKIP() << why_not;
  auto ledger = Ledger::Open({server->uri(), {}}, nullptr);
  ASSERT_TRUE(ledger) << ledger.error().message;
  const std::string source = NewSource();
  ASSERT_TRUE(*(*ledger)->Apply(NthBatch(source, 1)));
  const auto inside = MakePostgres(server->uri());
  inside->Connect();
  {
    const Transaction transaction(*inside, Database::Access::kRead);
    inside->Run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <>"
        " pg_backend_pid() AND backend_type = 'client backend'",
        {});
  }
  const auto ended = (*ledger)->Apply(NthBatch(source, 2));
  if (!ended) {
    EXPECT_EQ(ended.error().code, ErrorCode::kUnavailable) << ended.error().message;
  }
  const auto again = (*ledger)->Apply(NthBatch(source, 2));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(Booked(**ledger, *inside, source), 2u);
}

}  // namespace
}  // namespace baton::ledger
