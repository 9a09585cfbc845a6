#include "ledger/trusted_clock.h"

#include <gtest/gtest.h>

namespace baton::ledger {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

constexpr Instant kStart{hours(1)};
const WallTime kWall{hours(24 * 365 * 56)};

TEST(TrustedClock, AClockThatIsWrongForAMinuteIsNotBelieved) {
  TrustedClock clock;
  for (int m = 0; m < 60; ++m) {
    EXPECT_FALSE(clock.Sees(kWall + minutes(m), kStart + minutes(m))) << m;
  }
  EXPECT_TRUE(clock.Sees(kWall + minutes(60), kStart + minutes(60)));
  // Ten years ahead, and back.
  EXPECT_FALSE(clock.Sees(kWall + hours(87'600), kStart + minutes(61)));
  EXPECT_FALSE(clock.Sees(kWall + minutes(62), kStart + minutes(62)));
  EXPECT_FALSE(clock.Sees(kWall + minutes(121), kStart + minutes(121)));
  EXPECT_TRUE(clock.Sees(kWall + minutes(122), kStart + minutes(122)));
}

TEST(TrustedClock, OneThatIsSlewedIsBelieved) {
  TrustedClock clock;
  clock.Sees(kWall, kStart);
  for (int m = 60; m < 600; ++m) {
    EXPECT_TRUE(clock.Sees(kWall + minutes(m) + std::chrono::seconds(m % 60), kStart + minutes(m)))
        << m;
  }
}

}  // namespace
}  // namespace baton::ledger
