#include "bench/collective.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

namespace baton::bench {
namespace {

using std::chrono::seconds;

class CollectiveTest : public ::testing::Test {
 protected:
  static Collective& Make(const std::vector<int>& devices) {
    auto made = Collective::Create(devices);
    if (!made) throw std::runtime_error(made.error().message);
    return **made;
  }
  // As the rank's device does.
  static void Write(Collective& ranks, size_t offset, uint32_t n) {
    reinterpret_cast<std::atomic<uint32_t>*>(reinterpret_cast<char*>(&ranks) + offset)->store(n);
  }
  static void Arrive(Collective& ranks, int rank, uint32_t n) {
    Write(ranks, ranks.ArrivedOffset(rank), n);
  }
  static void Leave(Collective& ranks, int rank, uint32_t n) {
    Write(ranks, ranks.LeftOffset(rank), n);
  }
  static constexpr Instant At(int s) { return Instant(seconds(s)); }
};

TEST_F(CollectiveTest, WhatOneRankHasBegunAllMayBeginAfterTheEnd) {
  Collective& ranks = Make({0, 1});
  EXPECT_TRUE(ranks.Begin(0, 1));
  EXPECT_TRUE(ranks.Begin(0, 2));
  ranks.End();
  EXPECT_FALSE(ranks.Begin(0, 3));
  EXPECT_TRUE(ranks.Begin(1, 1));
  EXPECT_TRUE(ranks.Begin(1, 2));
  EXPECT_FALSE(ranks.Begin(1, 3));
}

TEST_F(CollectiveTest, RanksThatEndAtDifferentTimesEndWithTheSameCollective) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    constexpr int kRanks = 4;
    Collective& ranks = Make(std::vector<int>(kRanks, 0));
    uint32_t last[kRanks] = {};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank, enough = 1 + random() % 50] {
        for (uint32_t n = 1;; ++n) {
          if (n > enough) ranks.End();
          if (!ranks.Begin(rank, n)) return;
          last[rank] = n;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const uint32_t n : last) ASSERT_EQ(n, last[0]) << "in round " << round;
  }
}

TEST_F(CollectiveTest, ItIsCompletedWhenAllHaveLeft) {
  Collective& ranks = Make({0, 1});
  for (int rank : {0, 1}) {
    ASSERT_TRUE(ranks.Begin(rank, 1));
    Arrive(ranks, rank, 1);
  }
  Leave(ranks, 0, 1);
  EXPECT_EQ(ranks.Completed(), 0u);
  Leave(ranks, 1, 1);
  EXPECT_EQ(ranks.Completed(), 1u);
  EXPECT_EQ(ranks.Unfinished(), "");
}

TEST_F(CollectiveTest, WhoWaitsForWhomIsSaid) {
  Collective& ranks = Make({0, 3});
  ASSERT_TRUE(ranks.Begin(1, 1));
  Arrive(ranks, 1, 1);
  EXPECT_EQ(ranks.Unfinished(), "device 3 waits in collective 1 for device 0");
  ASSERT_TRUE(ranks.Begin(0, 1));
  EXPECT_EQ(ranks.Unfinished(),
            "device 0 is still before collective 1; device 3 waits in collective 1 for device 0");
}

TEST_F(CollectiveTest, RanksThatShareADeviceAreToldApart) {
  Collective& ranks = Make({0, 1, 0});
  ASSERT_TRUE(ranks.Begin(2, 1));
  Arrive(ranks, 2, 1);
  EXPECT_EQ(ranks.Unfinished(),
            "device 0 (rank 2) waits in collective 1 for device 0 (rank 0), device 1");
}

TEST_F(CollectiveTest, AStallIsToldWhenNothingWasCompletedForLong) {
  Collective& ranks = Make({0, 1});
  StallWatch watch(ranks, seconds(20), At(0));
  EXPECT_EQ(watch.Look(At(100)), "") << "nothing has begun";
  ASSERT_TRUE(ranks.Begin(0, 1));
  EXPECT_EQ(watch.Look(At(119)), "");
  for (int rank : {0, 1}) Leave(ranks, rank, 1);
  ASSERT_TRUE(ranks.Begin(0, 2));
  EXPECT_EQ(watch.Look(At(121)), "") << "one was completed meanwhile";
  EXPECT_EQ(watch.Look(At(140)), "");
  EXPECT_EQ(watch.Look(At(141)),
            "no collective has ended for 20s: device 0 is still before collective 2");
}

TEST_F(CollectiveTest, ARankThatGaveUpIsNotWaitedForLong) {
  Collective& ranks = Make({0, 1});
  StallWatch watch(ranks, seconds(20), At(0));
  ASSERT_TRUE(ranks.Begin(0, 1));
  ranks.GiveUp();
  EXPECT_EQ(watch.Look(Instant(std::chrono::milliseconds(900))), "");
  EXPECT_NE(watch.Look(At(1)), "");
}

}  // namespace
}  // namespace baton::bench
