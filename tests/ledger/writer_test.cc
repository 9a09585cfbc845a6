// The ledger beside an event loop: batches arrive, whatever the disk does.
#include "ledger/writer.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>

#include "tests/ledger/books.h"

namespace baton::ledger {
namespace {

constexpr std::chrono::seconds kPatience{30};

// What Apply() said to each batch, in the order of the answers.
class Answers {
 public:
  LedgerWriter::Booked Next() {
    return [this](Result<bool> result) {
      const std::lock_guard lock(mutex_);
      results_.push_back(std::move(result));
      changed_.notify_all();
    };
  }
  std::vector<Result<bool>> Wait(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return results_.size() >= count; }))
        << results_.size() << " of " << count;
    return results_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Result<bool>> results_;
};

// Through the reader's thread.
int64_t HeldBy(LedgerWriter& writer, const std::string& team) {
  std::promise<Result<Int128>> promise;
  EXPECT_TRUE(writer.Ask([&](Ledger& ledger) {
    promise.set_value(ledger.HeldBy(team, {At(0), At(1'000'000)}));
  }));
  const Result<Int128> held = promise.get_future().get();
  EXPECT_TRUE(held) << held.error().message;
  return Narrow(held.value_or(-1));
}

Batch SomeBatch(const std::string& source, uint64_t seq, uint64_t pod) {
  Batch batch = MakeBatch(source, seq, At(static_cast<int64_t>(seq) * 10));
  AddSample(batch, pod, "GPU-a", static_cast<int64_t>(seq), {"p", "", "t", "u"});
  AddGpu(batch, "GPU-a");
  return batch;
}

class LedgerWriterTest : public testing::Test {
 protected:
  std::unique_ptr<LedgerWriter> Start(bool spool = false) {
    auto writer = LedgerWriter::Start({"sqlite:" + path_, {}}, spool);
    EXPECT_TRUE(writer) << writer.error().message;
    return std::move(*writer);
  }
  MemoryFolder folder_;
  const std::string state_ = folder_ / "state";
  const std::string path_ = state_ + "/ledger";
};

TEST_F(LedgerWriterTest, BooksInOrderAndAnswersQuestions) {
  std::filesystem::create_directory(state_);
  const auto writer = Start();
  const std::string source = NewSource();
  Answers answers;
  for (uint64_t seq = 1; seq <= 20; ++seq) writer->Put(SomeBatch(source, seq, 1), answers.Next());
  writer->Put(SomeBatch(source, 5, 1), answers.Next());
  const auto results = answers.Wait(21);
  for (size_t i = 0; i < 20; ++i) EXPECT_TRUE(results[i] && *results[i]) << i;
  EXPECT_TRUE(results[20] && !*results[20]);
  EXPECT_EQ(HeldBy(*writer, "t"), 19);
  EXPECT_EQ(writer->trouble(), "");
}

// Two connections of one process make the file together: what one of them locks stays locked.
// A node's clock is a year ahead, and this machine's is believed.
TEST_F(LedgerWriterTest, BooksNothingMoreThanAnHourAhead) {
  std::filesystem::create_directory(state_);
  auto writer =
      LedgerWriter::Start({"sqlite:" + path_, {}}, false, TrustedClock(Duration(0))).value();
  const std::string source = NewSource();
  Answers answers;
  const WallTime begin = WallNow();
  const WallTime ahead = begin + std::chrono::hours(365 * 24);
  for (uint64_t seq = 1; seq <= 3; ++seq) {
    Batch batch = SomeBatch(source, seq, 1);
    batch.to = ahead + std::chrono::seconds(seq);
    writer->Put(std::move(batch), answers.Next());
  }
  for (const Result<bool>& booked : answers.Wait(3)) EXPECT_TRUE(booked && *booked);
  std::promise<Result<Int128>> held;
  EXPECT_TRUE(writer->Ask([&](Ledger& ledger) {
    held.set_value(ledger.HeldBy("t", {begin, begin + std::chrono::hours(2)}));
  }));
  EXPECT_EQ(Narrow(*held.get_future().get()), 2);
}

TEST_F(LedgerWriterTest, WhatIsBookedWhileTheFileIsMadeStays) {
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    std::filesystem::remove_all(state_);
    std::filesystem::create_directory(state_);
    const std::string source = NewSource();
    {
      const auto writer = Start();
      ASSERT_TRUE(writer->Ask([&](Ledger& ledger) {
        const auto last = ledger.LastOf(source);
        EXPECT_TRUE(last) << last.error().message;
      }));
      Answers answers;
      for (uint64_t seq = 1; seq <= 5; ++seq)
        writer->Put(SomeBatch(source, seq, 1), answers.Next());
      for (const auto& result : answers.Wait(5)) {
        EXPECT_TRUE(result && *result) << (result ? "booked before" : result.error().message);
      }
      EXPECT_EQ(HeldBy(*writer, "t"), 4);
      EXPECT_EQ(writer->TakeNotice(), "");
    }
    EXPECT_EQ(HeldBy(*Start(), "t"), 4);
  }
}

TEST_F(LedgerWriterTest, ALinkToAFileThatIsNotThereYetIsFollowedAndNobodyElseMayRead) {
  std::filesystem::create_directory(state_);
  const std::string elsewhere = folder_ / "elsewhere";
  std::filesystem::create_symlink(elsewhere, path_);
  const auto writer = Start();
  Answers answers;
  writer->Put(SomeBatch(NewSource(), 1, 1), answers.Next());
  EXPECT_TRUE(answers.Wait(1)[0]);
  EXPECT_EQ(writer->trouble(), "");
  EXPECT_EQ(std::filesystem::status(elsewhere).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

// What the next test runs as another process: locks are a process's.
TEST(LedgerFile, IsLookedAtFromOutside) {
  const char* file = getenv("BATON_LEDGER_FILE");
  if (file == nullptr) GTEST_SKIP() << "it is run by the next one";
  SQLite::Database database(file, SQLite::OPEN_READWRITE, 5'000);
  EXPECT_GT(database.execAndGet("SELECT count(*) FROM sqlite_master").getInt(), 0);
}

// An operator's sqlite3, say: whoever closes a file as the last one removes its log.
TEST_F(LedgerWriterTest, WhoeverElseLooksAtTheFileTakesNothingAway) {
  std::filesystem::create_directory(state_);
  const std::string look = "BATON_LEDGER_FILE=" + path_ + " " +
                           std::filesystem::read_symlink("/proc/self/exe").string() +
                           " --gtest_brief=1 --gtest_filter=LedgerFile.IsLookedAtFromOutside";
  const std::string source = NewSource();
  {
    const auto writer = Start();
    Answers answers;
    for (uint64_t seq = 1; seq <= 5; ++seq) {
      writer->Put(SomeBatch(source, seq, 1), answers.Next());
      answers.Wait(seq);
      EXPECT_EQ(HeldBy(*writer, "t"), static_cast<int64_t>(seq) - 1);
      EXPECT_EQ(system(look.c_str()), 0);
      EXPECT_TRUE(std::filesystem::exists(path_ + "-wal")) << "after batch " << seq;
    }
  }
  EXPECT_EQ(HeldBy(*Start(), "t"), 4);
}

TEST_F(LedgerWriterTest, WhatCannotBeBookedIsMergedAndNothingIsLost) {
  const auto writer = Start();
  const std::string source = NewSource();
  Answers answers;
  constexpr uint64_t kBatches = LedgerWriter::kWaitingMax + 100;
  // Each pod stands in one batch only.
  for (uint64_t seq = 1; seq <= kBatches; ++seq) {
    writer->Put(SomeBatch(source, seq, seq), answers.Next());
  }
  const auto merged = answers.Wait(100);
  for (const auto& result : merged) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
  }
  EXPECT_NE(writer->trouble().find(state_), std::string::npos) << writer->trouble();
  std::filesystem::create_directory(state_);
  const auto results = answers.Wait(kBatches);
  EXPECT_TRUE(results.back());
  EXPECT_EQ(writer->trouble(), "");
  // The first batch of all, with a hundred merged into it, sets the beginnings.
  int64_t expected = 0;
  for (uint64_t seq = 102; seq <= kBatches; ++seq) expected += static_cast<int64_t>(seq);
  EXPECT_EQ(HeldBy(*writer, "t"), expected);
}

// A database that is away for hours, and a pod at its limit, which leaves time that nobody has.
TEST_F(LedgerWriterTest, AGpuWasThereInAllOfTheTimeThatIsMerged) {
  std::filesystem::create_directory(state_);
  const std::string source = NewSource();
  // Of 30 s the pod held 10, and nobody wanted 5.
  const auto batch_of = [&](uint64_t seq) {
    Batch batch = MakeBatch(source, seq, At(static_cast<int64_t>(seq) * 30));
    AddSample(batch, 1, "GPU-a", static_cast<int64_t>(seq) * 10 * kSecond);
    AddGpu(batch, "GPU-a", std::chrono::seconds(5));
    return batch;
  };
  constexpr uint64_t kBatches = LedgerWriter::kWaitingMax + 300;
  Answers answers;
  {
    const auto writer = Start();
    writer->Put(batch_of(1), answers.Next());
    answers.Wait(1);
  }
  const std::string away = folder_ / "away";
  std::filesystem::rename(state_, away);
  const auto writer = Start();
  for (uint64_t seq = 2; seq <= kBatches; ++seq) writer->Put(batch_of(seq), answers.Next());
  answers.Wait(300);  // merged
  std::filesystem::rename(away, state_);
  answers.Wait(kBatches);
  std::promise<Result<Uses>> promise;
  EXPECT_TRUE(writer->Ask([&](Ledger& ledger) {
    promise.set_value(ledger.Query({At(0), At(1'000'000)}, By::kTotal));
  }));
  const Result<Uses> uses = promise.get_future().get();
  ASSERT_TRUE(uses && uses->rows.size() == 1 && uses->capacity.size() == 1);
  EXPECT_EQ(Narrow(uses->rows[0].use.held_ns), int64_t{kBatches - 1} * 10 * kSecond);
  EXPECT_EQ(Narrow(uses->capacity[0].idle_ns), int64_t{kBatches - 1} * 5 * kSecond);
  EXPECT_EQ(Narrow(uses->capacity[0].present_ns), int64_t{kBatches - 1} * 30 * kSecond);
}

// Handed to another team while the database is away: what it used before stays with the old one.
TEST_F(LedgerWriterTest, WhatIsMergedStaysWithWhoeverUsedIt) {
  std::filesystem::create_directory(state_);
  const std::string source = NewSource();
  const auto batch_of = [&](uint64_t seq) {
    Batch batch = MakeBatch(source, seq, At(static_cast<int64_t>(seq) * 10));
    AddSample(batch, 1, "GPU-a", static_cast<int64_t>(seq),
              {"p", "", seq <= 150 ? "old" : "new", "u"});
    AddGpu(batch, "GPU-a");
    return batch;
  };
  constexpr uint64_t kBatches = LedgerWriter::kWaitingMax + 300;
  Answers answers;
  {
    const auto writer = Start();
    writer->Put(batch_of(1), answers.Next());
    answers.Wait(1);
  }
  const std::string away = folder_ / "away";
  std::filesystem::rename(state_, away);
  const auto writer = Start();
  for (uint64_t seq = 2; seq <= kBatches; ++seq) writer->Put(batch_of(seq), answers.Next());
  answers.Wait(300);  // merged
  std::filesystem::rename(away, state_);
  answers.Wait(kBatches);
  EXPECT_EQ(HeldBy(*writer, "old"), 149);
  EXPECT_EQ(HeldBy(*writer, "new"), int64_t{kBatches} - 150);
}

TEST_F(LedgerWriterTest, ABatchThatIsWrongIsRefusedAndTheOthersGoOn) {
  std::filesystem::create_directory(state_);
  const auto writer = Start();
  const std::string source = NewSource();
  Answers answers;
  writer->Put(SomeBatch(source, 1, 1), answers.Next());
  writer->Put(SomeBatch("nobody", 2, 1), answers.Next());
  writer->Put(SomeBatch(source, 2, 1), answers.Next());
  const auto results = answers.Wait(3);
  EXPECT_TRUE(results[0]);
  ASSERT_FALSE(results[1]);
  EXPECT_EQ(results[1].error().code, ErrorCode::kInvalid);
  EXPECT_TRUE(results[2]);
}

TEST_F(LedgerWriterTest, ChangesWaitForALedgerThatIsAwayAndKeepTheirOrder) {
  const auto writer = Start();
  for (const char* object : {"a", "b", "c"}) {
    Change change;
    change.at = WallNow();
    change.object = object;
    writer->Record(std::move(change));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::filesystem::create_directory(state_);
  std::string found;
  for (int i = 0; i < 1'000 && found.size() < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::promise<std::string> objects;
    ASSERT_TRUE(writer->Ask([&](Ledger& ledger) {
      std::string all;
      const auto changes = ledger.Changes({.from = {}, .to = WallNow() + std::chrono::hours(1)});
      if (changes) {
        for (const Change& change : *changes) all += change.object;
      }
      objects.set_value(all);
    }));
    found = objects.get_future().get();
  }
  EXPECT_EQ(found, "cba");
}

TEST_F(LedgerWriterTest, StopBooksWhatWaits) {
  std::filesystem::create_directory(state_);
  auto writer = Start();
  const std::string source = NewSource();
  Answers answers;
  for (uint64_t seq = 1; seq <= 50; ++seq) writer->Put(SomeBatch(source, seq, 1), answers.Next());
  writer->Stop();
  for (const auto& result : answers.Wait(50)) EXPECT_TRUE(result && *result);
  writer->Put(SomeBatch(source, 51, 1), answers.Next());
  EXPECT_FALSE(writer->Ask([](Ledger&) {}));
  writer.reset();
  EXPECT_EQ(answers.Wait(50).size(), 50u);
}

TEST_F(LedgerWriterTest, StopDoesNotWaitForALedgerThatIsAway) {
  auto writer = Start();
  Answers answers;
  for (uint64_t seq = 1; seq <= 3; ++seq) {
    writer->Put(SomeBatch(NewSource(), seq, 1), answers.Next());
  }
  writer->Stop();
  const auto results = answers.Wait(3);
  ASSERT_EQ(results.size(), 3u);
  for (const auto& result : results) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
  }
}

TEST_F(LedgerWriterTest, ADamagedFileIsNoticedAndTheBatchBookedInTheNewOne) {
  std::filesystem::create_directory(state_);
  std::ofstream(path_) << std::string(4096, 'x');
  const auto writer = Start(true);
  Answers answers;
  const std::string source = NewSource();
  writer->Put(SomeBatch(source, 1, 1), answers.Next());
  const auto results = answers.Wait(1);
  EXPECT_TRUE(results[0] && *results[0]);
  EXPECT_NE(writer->TakeNotice().find("moved to " + path_ + ".damaged"), std::string::npos);
  EXPECT_EQ(writer->TakeNotice(), "");
  std::promise<size_t> spooled;
  writer->Ask([&](Ledger& ledger) { spooled.set_value(ledger.Spooled(0, 10)->size()); });
  EXPECT_EQ(spooled.get_future().get(), 1u);
}

TEST_F(LedgerWriterTest, QuestionsAreTurnedAwayWhenTooManyWait) {
  std::filesystem::create_directory(state_);
  const auto writer = Start();
  std::promise<void> go;
  std::shared_future<void> gone(go.get_future());
  std::promise<void> begun;
  writer->Ask([&](Ledger&) {
    begun.set_value();
    gone.wait();
  });
  begun.get_future().wait();
  std::atomic<size_t> asked = 0;
  for (size_t i = 0; i < LedgerWriter::kQuestionsMax; ++i) {
    EXPECT_TRUE(writer->Ask([&](Ledger&) { ++asked; }));
  }
  EXPECT_FALSE(writer->Ask([&](Ledger&) { ++asked; }));
  go.set_value();
  writer->Stop();
  EXPECT_EQ(asked, LedgerWriter::kQuestionsMax);
}

}  // namespace
}  // namespace baton::ledger
