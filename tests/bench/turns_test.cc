#include "bench/turns.h"

#include <gtest/gtest.h>

namespace baton::bench {
namespace {

sim::KernelRecord Kernel(uint64_t pid, int64_t start, int64_t end) {
  sim::KernelRecord record{};
  record.pid = pid;
  record.start_ns = start;
  record.end_ns = end;
  record.busy_ns = end - start;
  return record;
}

int64_t Same(uint64_t pid) { return static_cast<int64_t>(pid); }

TEST(Turns, AreCountedOverWholeRounds) {
  // Rounds of 100: pod 1 for 60, of which 20 it stands still, then 10 for the hand-off, pod 2 for
  // 25, and 5 for the hand-off.
  std::vector<sim::KernelRecord> records;
  for (int64_t at = 0; at < 1000; at += 100) {
    records.push_back(Kernel(1, at, at + 20));
    records.push_back(Kernel(1, at + 40, at + 60));
    records.push_back(Kernel(2, at + 70, at + 95));
  }
  const Turns turns = TurnsIn(records, Same, 30, 850);
  EXPECT_EQ(turns.from_ns, 70) << "of pod 2, whose turn is the first that begins in the window";
  EXPECT_EQ(turns.to_ns, 770);
  EXPECT_EQ(turns.count, 14);
  EXPECT_DOUBLE_EQ(turns.held.at(1), 60);
  EXPECT_DOUBLE_EQ(turns.held.at(2), 25);
  EXPECT_DOUBLE_EQ(turns.busy.at(1), 40);
  EXPECT_DOUBLE_EQ(turns.busy.at(2), 25);
}

TEST(Turns, ALonePodHasOneForAllOfTheWindow) {
  std::vector<sim::KernelRecord> records;
  for (int64_t at = 0; at < 1000; at += 10) records.push_back(Kernel(1, at, at + 5));
  const Turns turns = TurnsIn(records, Same, 100, 900);
  EXPECT_EQ(turns.from_ns, 100);
  EXPECT_EQ(turns.to_ns, 900);
  EXPECT_EQ(turns.count, 1);
  EXPECT_DOUBLE_EQ(turns.held.at(1), 100);
  EXPECT_DOUBLE_EQ(turns.busy.at(1), 50);
}

TEST(Turns, ProcessesOfOneGroupShareItsTurn) {
  const std::vector<sim::KernelRecord> records = {Kernel(11, 0, 10),  Kernel(12, 10, 20),
                                                  Kernel(21, 20, 30), Kernel(11, 30, 40),
                                                  Kernel(21, 40, 50), Kernel(12, 50, 60)};
  const auto tens = [](uint64_t pid) { return static_cast<int64_t>(pid / 10); };
  const Turns turns = TurnsIn(records, tens, 0, 60);
  EXPECT_EQ(turns.to_ns, 50);
  EXPECT_EQ(turns.count, 4);
  EXPECT_DOUBLE_EQ(turns.held.at(1), 60);
  EXPECT_DOUBLE_EQ(turns.held.at(2), 40);
}

TEST(Turns, WithoutKernelsThereAreNone) {
  const Turns turns = TurnsIn({}, Same, 0, 100);
  EXPECT_EQ(turns.count, 0);
  EXPECT_TRUE(turns.held.empty());
}

}  // namespace
}  // namespace baton::bench
