// What people read of a receipt adds up to the last decimal.
#include "receipt/statement.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/receipt/sample.h"

namespace baton::receipt {
namespace {

using nlohmann::json;

// In units of the last decimal.
int64_t UnitsOf(std::string text) {
  std::erase(text, '.');
  return std::stoll(text);
}

TEST(Statement, RoundsSoThatWhatIsPrintedAddsUp) {
  EXPECT_EQ(Rounded({0.333, 0.333, 0.334}, 1, 1), (std::vector<std::string>{"0.3", "0.4", "0.3"}));
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  for (int i = 0; i < 200; ++i) {
    std::vector<double> values(1 + draw() % 400);
    double total = 0;
    for (double& value : values) total += value = static_cast<double>(draw() % 100'000) / 9'973;
    int64_t sum = 0;
    const std::vector<std::string> texts = Rounded(values, total, 2);
    for (size_t at = 0; at < values.size(); ++at) {
      EXPECT_NEAR(std::stod(texts[at]), values[at], 0.0101);
      sum += UnitsOf(texts[at]);
    }
    EXPECT_EQ(sum, std::llround(total * 100));
  }
}

TEST(Statement, LeadsFromWhatWasGuaranteedToWhatWasHeld) {
  const auto rows = StatementOf(SampleReceipt().at("total"));
  ASSERT_EQ(rows.size(), 6u) << "a reason of nothing is left out";
  EXPECT_EQ(rows[0].hours, "18.000");
  EXPECT_EQ(rows[1].hours, "1.600");
  EXPECT_EQ(rows[2].hours, "1.033");
  EXPECT_EQ(rows[3].hours, "15.367");
  EXPECT_EQ(rows[4].hours, "0.900");
  EXPECT_EQ(rows[5].hours, "16.267");
}

TEST(Statement, AddsUpWhateverTheFiguresAre) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  const auto some = [&] { return static_cast<double>(draw() % 1'000'000) / 99'991; };
  for (int i = 0; i < 500; ++i) {
    json total{{"got_hours", some()}, {"less", json::object()}};
    double guaranteed = total.at("got_hours");
    for (const char* reason :
         {"no_work_hours", "outage_hours", "overcommit_hours", "limit_hours", "high_priority_hours",
          "unattributed_hours", "others_hours", "unknown_hours"}) {
      total["less"][reason] = draw() % 3 == 0 ? 0 : some();
      guaranteed += total["less"][reason].get<double>();
    }
    total["guaranteed_hours"] = guaranteed;
    total["held_hours"] = total.at("got_hours").get<double>() + some();
    int64_t sum = 0;
    for (const StatementRow& row : StatementOf(total)) {
      using Kind = StatementRow::Kind;
      const int64_t units = UnitsOf(row.hours);
      EXPECT_TRUE(row.kind != Kind::kSum || units == sum) << row.label;
      if (row.kind == Kind::kFirst) sum = units;
      if (row.kind == Kind::kLess) sum -= units;
      if (row.kind == Kind::kMore) sum += units;
    }
    EXPECT_EQ(sum, std::llround(total.at("held_hours").get<double>() * 1000));
  }
}

// 0.0032 - 0.0027 is a little more than 0.0005 in doubles, and rounds to another unit.
TEST(Statement, WhoGotAllThatItHeldHasNothingBeyond) {
  const auto hours = [](int64_t ns) { return static_cast<double>(ns) / 3600e9; };
  for (int64_t i = 1; i < 2'000; ++i) {
    const int64_t got_ns = i * 1'800'000'000, gap_ns = i % 37 * 9'720'000'000;
    const double got = hours(got_ns), gap = hours(gap_ns), guaranteed = hours(got_ns + gap_ns);
    json total = SampleReceipt().at("total");
    for (auto& [reason, none] : total.at("less").items()) none = 0.0;
    total["guaranteed_hours"] = guaranteed;
    total["less"]["no_work_hours"] = gap;
    total["got_hours"] = total["held_hours"] = got;
    total["beyond_hours"] = 0.0;
    for (const StatementRow& row : StatementOf(total)) {
      EXPECT_NE(row.kind, StatementRow::Kind::kMore) << got << " of " << guaranteed;
    }
  }
}

TEST(Statement, HasAColumnForWhatTheReportHas) {
  json receipt = SampleReceipt();
  const auto headings = [&] {
    std::string all;
    for (const LineColumn& column : LineColumns(receipt)) all += column.heading + ",";
    return all;
  };
  EXPECT_EQ(headings(), "Guaranteed,Got of it,Held,Busy,Waited,GiB*h,Cost,");
  receipt["total"]["energy_kwh"] = 12.5;
  receipt["total"]["energy_cost"] = 4;
  EXPECT_EQ(headings(), "Guaranteed,Got of it,Held,Busy,Waited,GiB*h,kWh,Energy cost,Cost,");
  receipt["total"].erase("cost");
  EXPECT_EQ(headings(), "Guaranteed,Got of it,Held,Busy,Waited,GiB*h,kWh,Energy cost,");
}

TEST(Statement, SaysWhatWasAskedForAndByWhom) {
  const auto table = AskedTable(SampleReceipt());
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table[1],
            (std::vector<std::string>{"vision/train", "before the log", "2026-11-02 12:00:00Z",
                                      "30 %", "100 %", "4GiB", "normal", "GPU-5d0033f9", "-"}));
  EXPECT_EQ(table[2], (std::vector<std::string>{"vision/train", "2026-11-02 12:00:00Z", "-", "60 %",
                                                "100 %", "25%", "high", "GPU-5d0033f9", "alice"}));
}

}  // namespace
}  // namespace baton::receipt
