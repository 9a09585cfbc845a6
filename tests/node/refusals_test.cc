#include "node/refusals.h"

#include <gtest/gtest.h>

namespace baton::node {
namespace {

using std::chrono::seconds;

TEST(Refusals, ABoundIsSaidOnceAMinuteAndForgottenAMinuteAfterItsLast) {
  Refusals refusals;
  const Instant start{seconds(1000)};
  EXPECT_EQ(refusals.Trouble(start), "");
  EXPECT_TRUE(refusals.Add("user 7 has enough", start));
  for (int s = 1; s <= 60; ++s) EXPECT_FALSE(refusals.Add("user 7 has enough", start + seconds(s)));
  EXPECT_TRUE(refusals.Add("user 7 has enough", start + seconds(61)));
  EXPECT_TRUE(refusals.Add("user 8 has enough", start + seconds(61)));
  EXPECT_EQ(refusals.Trouble(start + seconds(61)),
            "user 7 has enough (62 refused); user 8 has enough (1 refused)");
  EXPECT_EQ(refusals.Trouble(start + seconds(122)), "");
  EXPECT_TRUE(refusals.Add("user 7 has enough", start + seconds(122)));
  EXPECT_EQ(refusals.Trouble(start + seconds(122)), "user 7 has enough (1 refused)");
}

TEST(Refusals, BoundsWithoutNumberAreCountedTogether) {
  Refusals refusals;
  const Instant now{seconds(1000)};
  int said = 0;
  for (int i = 0; i < 1000; ++i) said += refusals.Add("user " + std::to_string(i), now) ? 1 : 0;
  EXPECT_EQ(said, static_cast<int>(Refusals::kBoundsMax) + 1);
  EXPECT_NE(refusals.Trouble(now).find("other bounds are reached (984 refused)"),
            std::string::npos);
}

}  // namespace
}  // namespace baton::node
