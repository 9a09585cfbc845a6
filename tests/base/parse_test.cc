#include "base/parse.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(Parse, DurationsNeedAUnit) {
  EXPECT_EQ(ParseDuration("20ms").value(), milliseconds(20));
  EXPECT_EQ(ParseDuration("1.5s").value(), milliseconds(1500));
  EXPECT_EQ(ParseDuration("250us").value(), microseconds(250));
  EXPECT_EQ(ParseDuration("7d").value(), std::chrono::hours(168));
  EXPECT_EQ(ParseDuration("2w").value(), std::chrono::hours(336));
  EXPECT_EQ(ParseDuration("0").value(), Duration(0));
  for (const char* bad :
       {"", "20", "ms", "-1s", "1e9h", "nan s", "inf", "1 parsec", "1s2", "600w"}) {
    EXPECT_FALSE(ParseDuration(bad)) << bad;
  }
}

TEST(Parse, BytesTakeTheSpellingsOfPeopleAndOfKubernetes) {
  EXPECT_EQ(ParseBytes("4GiB").value(), 4ull << 30);
  EXPECT_EQ(ParseBytes("4Gi").value(), 4ull << 30);
  EXPECT_EQ(ParseBytes("1.5 GiB").value(), 3ull << 29);
  EXPECT_EQ(ParseBytes("2GB").value(), 2'000'000'000u);
  EXPECT_EQ(ParseBytes("17").value(), 17u);
  for (const char* bad : {"", "GiB", "-4GiB", "4gib", "1e30", "9999999TiB"}) {
    EXPECT_FALSE(ParseBytes(bad)) << bad;
  }
}

TEST(Parse, FormattedQuantitiesReadBack) {
  EXPECT_EQ(FormatDuration(milliseconds(20)), "20ms");
  EXPECT_EQ(FormatDuration(milliseconds(1500)), "1.5s");
  EXPECT_EQ(FormatDuration(Duration(0)), "0s");
  EXPECT_EQ(FormatBytes(4ull << 30), "4GiB");
  EXPECT_EQ(FormatBytes(17), "17B");
  EXPECT_EQ(FormatDuration(std::chrono::hours(100'000)), "360000000s");
  EXPECT_EQ(FormatDuration(-std::chrono::hours(100'000)), "-360000000s");
  EXPECT_EQ(FormatBytes(1ull << 60), "1048576TiB");
}

TEST(FormatHours, ShowsThreeDigitsAndTellsItFromWhatStandsBeside) {
  EXPECT_EQ(FormatHours(0), "0.0");
  EXPECT_EQ(FormatHours(512.34), "512.3");
  EXPECT_EQ(FormatHours(20), "20.0");
  EXPECT_EQ(FormatHours(6), "6.00");
  EXPECT_EQ(FormatHours(0.00103), "0.00103");
  EXPECT_EQ(FormatHours(0.0010001, 0.001), "0.0010001");
  EXPECT_EQ(FormatHours(500.0001, 500), "500.0001");
  EXPECT_EQ(FormatHours(500, 500), "500.0");
  EXPECT_EQ(FormatHours(1e-12), "0.000000000");
  EXPECT_EQ(FormatHours(-0.25), "-0.250");
}

TEST(DecimalsFor, AreAsManyAsShowTwoDigitsAndSixAtMost) {
  EXPECT_EQ(DecimalsFor(0, 3), 3);
  EXPECT_EQ(DecimalsFor(1234.5, 3), 3);
  EXPECT_EQ(DecimalsFor(0.0123, 3), 3);
  EXPECT_EQ(DecimalsFor(0.00123, 3), 4);
  EXPECT_EQ(DecimalsFor(-0.00123, 2), 4);
  EXPECT_EQ(DecimalsFor(0.0000021, 3), 6);
  EXPECT_EQ(DecimalsFor(1e-9, 3), 3) << "the rest of a division";
}

}  // namespace
}  // namespace baton
