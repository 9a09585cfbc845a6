#include "cli/measure.h"

#include <gtest/gtest.h>

#include "cli/bench_run.h"
#include "cli/handoff_floor.h"

namespace baton::cli {
namespace {

TEST(Measure, QuantilesAreNearestRanks) {
  std::vector<Duration> samples;
  for (int i = 1000; i >= 1; --i) samples.push_back(std::chrono::microseconds(i));
  const Quantiles q = Summarize(samples);
  EXPECT_DOUBLE_EQ(q.p50, 500);
  EXPECT_DOUBLE_EQ(q.p90, 900);
  EXPECT_DOUBLE_EQ(q.p99, 990);
}

TEST(Measure, OneSampleIsEveryQuantileAndNoneIsZero) {
  const Quantiles one = Summarize({std::chrono::microseconds(3)});
  EXPECT_DOUBLE_EQ(one.p50, 3);
  EXPECT_DOUBLE_EQ(one.p99, 3);
  EXPECT_DOUBLE_EQ(Summarize({}).p99, 0);
}

TEST(Measure, TheEchoAnswersFramesOfAnySize) {
  const auto echo = UnixEcho::Start();
  ASSERT_TRUE(echo) << echo.error().message;
  for (const size_t size : {1u, 60u, 4096u}) {
    const Result<Duration> took = (*echo)->RoundTrip(size);
    ASSERT_TRUE(took) << took.error().message;
    EXPECT_GT(*took, Duration::zero());
  }
}

TEST(Measure, TheFloorOfAHandOffIsMeasuredBetweenTwoProcesses) {
  const auto floor = HandOffFloor::Start();
  ASSERT_TRUE(floor) << floor.error().message;
  for (int i = 0; i < 20; ++i) {
    const Result<Duration> took = (*floor)->HandOff();
    ASSERT_TRUE(took) << took.error().message;
    EXPECT_GT(*took, Duration::zero());
  }
}

}  // namespace
}  // namespace baton::cli
