#include "bench/mix.h"

#include <gtest/gtest.h>

namespace baton::bench {
namespace {

TEST(Mix, TargetsAreTheFluidSharesOfTheMix) {
  const auto mix = ParseMix("a:60:100,b:30:100,c:10:100");
  ASSERT_TRUE(mix) << mix.error().message;
  ASSERT_EQ(mix->size(), 3u);
  EXPECT_DOUBLE_EQ((*mix)[0].target, 60);
  EXPECT_DOUBLE_EQ((*mix)[1].target, 30);
  EXPECT_DOUBLE_EQ((*mix)[2].target, 10);
}

TEST(Mix, WhatIsLeftGoesToThoseBelowTheirLimitInProportionToTheirRequests) {
  const auto mix = ParseMix("a:20:25,b:20,c:10");
  ASSERT_TRUE(mix) << mix.error().message;
  EXPECT_NEAR((*mix)[0].target, 25, 0.01);
  EXPECT_NEAR((*mix)[1].target, 50, 0.01);
  EXPECT_NEAR((*mix)[2].target, 25, 0.01);
}

TEST(Mix, LimitsMayLeaveTheGpuIdle) {
  const auto mix = ParseMix("only:30:30");
  ASSERT_TRUE(mix) << mix.error().message;
  EXPECT_NEAR((*mix)[0].target, 30, 0.01);
}

TEST(Mix, NonsenseIsRefusedWithTheReason) {
  const auto refused = [](const char* text) {
    const auto mix = ParseMix(text);
    return mix ? std::string("accepted") : mix.error().message;
  };
  EXPECT_NE(refused("").find("name:request:limit"), std::string::npos) << refused("");
  EXPECT_NE(refused("a").find("name:request:limit"), std::string::npos) << refused("a");
  EXPECT_NE(refused("a:60:100:3").find("name:request:limit"), std::string::npos);
  EXPECT_NE(refused("a/b:60").find("a/b"), std::string::npos);
  EXPECT_NE(refused("a:60,b:60").find("120"), std::string::npos);
  EXPECT_NE(refused("a:10,a:20").find("names must differ"), std::string::npos);
  EXPECT_NE(refused("a:0").find("0"), std::string::npos);
  EXPECT_NE(refused("a:50:40").find("limit"), std::string::npos) << refused("a:50:40");
}

TEST(Mix, SharesPrintAsPercentWithoutTrailingZeros) {
  EXPECT_EQ(policy::PercentText(policy::Share(300'000)), "30");
  EXPECT_EQ(policy::PercentText(policy::Share(1'500)), "0.15");
}

}  // namespace
}  // namespace baton::bench
