#include "node/wake_latency.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/temp_folder.h"

namespace baton::node {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

class WakeLatency : public ::testing::Test {
 protected:
  // What a device would have been told.
  int32_t Told(Duration most) {
    const std::string device = folder_ / "cpu_dma_latency";
    EXPECT_TRUE(ReplaceFile(device, "", 0600, false));
    EXPECT_TRUE(LimitWakeLatency(most, device));
    const auto bytes = ReadFile(device, 64);
    int32_t us = -1;
    if (bytes && bytes->size() == sizeof us) std::memcpy(&us, bytes->data(), sizeof us);
    return us;
  }

  TempFolder folder_;
};

TEST_F(WakeLatency, IsToldInWholeMicroseconds) {
  EXPECT_EQ(Told(microseconds(20)), 20);
  EXPECT_EQ(Told(nanoseconds(20'999)), 20);
  EXPECT_EQ(Told(std::chrono::seconds(1)), 1'000'000);
}

TEST_F(WakeLatency, IsNeverZeroForThatWouldKeepProcessorsFromEverySleep) {
  EXPECT_EQ(Told(nanoseconds(1)), 1);
}

TEST_F(WakeLatency, OfASystemWithoutItSaysWhatIsMissing) {
  const auto limited = LimitWakeLatency(microseconds(20), folder_ / "none");
  ASSERT_FALSE(limited);
  EXPECT_EQ(limited.error().code, ErrorCode::kNotFound);
  EXPECT_NE(limited.error().message.find("/none: No such file"), std::string::npos)
      << limited.error().message;
}

}  // namespace
}  // namespace baton::node
