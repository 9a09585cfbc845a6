// Times and windows as people write them, and what a report's figures add up to.
#include "ledger/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ledger/columns.h"

namespace baton::ledger {
namespace {

using nlohmann::json;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr int64_t kHour = 3'600'000'000'000;
const WallTime kNow = std::chrono::sys_days(std::chrono::year(2026) / 11 / 21) + hours(14);

TEST(ReportTimes, AreReadInUtcToTheSecond) {
  const WallTime day = std::chrono::sys_days(std::chrono::year(2026) / 11 / 21);
  EXPECT_EQ(ParseTime("2026-11-21"), day);
  EXPECT_EQ(ParseTime("2026-11-21T14:30"), day + hours(14) + minutes(30));
  EXPECT_EQ(ParseTime("2026-11-21T14:30:05Z"), day + hours(14) + minutes(30) + seconds(5));
  EXPECT_EQ(ParseTime("2026-11-21T00:00Z"), day);
  EXPECT_EQ(ParseTime("2024-02-29"),
            WallTime(std::chrono::sys_days(std::chrono::year(2024) / 2 / 29)));
  EXPECT_EQ(ParseTime("1970-01-01"), WallTime());
  EXPECT_EQ(FormatTime(*ParseTime("2026-01-02T03:04:05")), "2026-01-02T03:04:05Z");
  EXPECT_EQ(FormatTime(WallTime(milliseconds(-1))), "1969-12-31T23:59:59Z");
}

TEST(ReportTimes, ThatAreNoneAreRefused) {
  for (const char* text : {"",
                           "Z",
                           "2026",
                           "2026-11",
                           "2026-11-21T14",
                           "2026-11-21T",
                           "2026-11-21T14:30:",
                           "26-11-21",
                           "2026-1-21",
                           "2026-13-01",
                           "2026-02-29",
                           "2026-11-31",
                           "2026-11-21T24:00",
                           "2026-11-21T14:60",
                           "2026-11-21T14:30:60",
                           "2026-11-21 14:30",
                           "2026-11-21T14:30:05ZZ",
                           "2026-11-21T14:30:05.5",
                           "-026-11-21",
                           "2026-11--1",
                           "+026-11-21",
                           "1969-12-31",
                           "tomorrow",
                           "2026-11-21T14:30+01:00"}) {
    const auto time = ParseTime(text);
    ASSERT_FALSE(time) << text;
    EXPECT_EQ(time.error().code, ErrorCode::kInvalid);
    EXPECT_NE(time.error().message.find("write 2026-11-21"), std::string::npos);
  }
}

TEST(ReportWindows, EndNowWhereNothingElseIsSaid) {
  const auto is = [](const Result<Window>& window, WallTime from, WallTime to) {
    return window && window->from == from && window->to == to;
  };
  EXPECT_TRUE(is(ParseWindow("", "", "", kNow), kNow - hours(30 * 24), kNow));
  EXPECT_TRUE(is(ParseWindow("", "", "90m", kNow), kNow - minutes(90), kNow));
  EXPECT_TRUE(is(ParseWindow("", "", "1us", kNow), kNow - milliseconds(1), kNow));
  EXPECT_TRUE(is(ParseWindow("2026-11-21", "", "", kNow), kNow - hours(14), kNow));
  EXPECT_TRUE(
      is(ParseWindow("2026-11-20", "2026-11-21", "", kNow), kNow - hours(38), kNow - hours(14)));
}

TEST(ReportWindows, ThatMakeNoSenseAreRefused) {
  for (const auto& [from, to, last] :
       std::vector<std::array<const char*, 3>>{{"2026-11-21", "", "7d"},
                                               {"", "2026-11-21", "7d"},
                                               {"", "2026-11-21", ""},
                                               {"2026-11-21", "2026-11-21", ""},
                                               {"2026-11-21", "2026-11-20", ""},
                                               {"2026-11-22", "", ""},
                                               {"", "", "0"},
                                               {"", "", "-5m"},
                                               {"", "", "99999999w"},
                                               {"soon", "", ""},
                                               {"2026-11-20", "soon", ""}}) {
    const auto window = ParseWindow(from, to, last, kNow);
    ASSERT_FALSE(window) << from << ' ' << to << ' ' << last;
    EXPECT_EQ(window.error().code, ErrorCode::kInvalid);
  }
}

TEST(ReportBy, IsOneOfItsWords) {
  for (const char* name : {"team", "user", "namespace", "pod", "gpu", "node", "day", "total",
                           "month", "model", "price"}) {
    const auto by = ParseBy(name);
    ASSERT_TRUE(by) << name;
    EXPECT_STREQ(ByName(*by), name);
  }
  const auto by = ParseBy("Team");
  ASSERT_FALSE(by);
  EXPECT_EQ(by.error().message,
            "nothing is reported by 'Team'; choose one of team, user, namespace, pod, gpu, node, "
            "day, total, month, model, price");
}

UseRow Used(const char* key, const char* model, double held, double busy) {
  UseRow row;
  row.keys = {key};
  row.model = model;
  row.use.held_ns = static_cast<int64_t>(held * kHour);
  row.use.busy_ns = static_cast<int64_t>(busy * kHour);
  row.use.launches = 7;
  return row;
}

CapacityRow There(const char* key, const char* model, double present, double idle) {
  return {{key}, model, static_cast<int64_t>(present * kHour), static_cast<int64_t>(idle * kHour)};
}

json Row(const json& report, const std::string& key) {
  for (const json& row : report.at("rows")) {
    if (row.at("key") == key) return row;
  }
  return json::object();
}

double Sum(const json& report, const char* field) {
  double sum = 0;
  for (const json& row : report.at("rows")) sum += row.at(field).get<double>();
  return sum;
}

TEST(ReportFigures, AddUpToWhatWasThereOverModelsAndPrices) {
  Uses uses;
  uses.window = {kNow - hours(10), kNow};
  uses.rows = {Used("one", "fast", 4, 3), Used("one", "slow", 2, 2), Used("two", "slow", 1, 0)};
  uses.capacity = {There("", "fast", 10, 5), There("", "slow", 10, 6.5)};
  const json report = ReportJson(uses, Question{{}, {By::kTeam}}, {{"fast", 3}, {"", 0.5}}, "EUR");
  EXPECT_EQ(report.at("from"), "2026-11-21T04:00:00Z");
  EXPECT_EQ(report.at("to"), "2026-11-21T14:00:00Z");
  EXPECT_EQ(report.at("by"), "team");
  ASSERT_EQ(report.at("rows").size(), 2u);
  EXPECT_DOUBLE_EQ(Row(report, "one").at("held_hours"), 6);
  EXPECT_DOUBLE_EQ(Row(report, "one").at("efficiency"), 5. / 6);
  EXPECT_EQ(Row(report, "one").at("launches"), 14);
  EXPECT_DOUBLE_EQ(Row(report, "one").at("cost"), 4 * 3 + 2 * 0.5);
  EXPECT_DOUBLE_EQ(Row(report, "two").at("cost"), 0.5);
  EXPECT_FALSE(Row(report, "one").contains("capacity_hours"));
  EXPECT_DOUBLE_EQ(report.at("held_hours"), 7);
  EXPECT_DOUBLE_EQ(report.at("idle_hours"), 11.5);
  EXPECT_DOUBLE_EQ(report.at("unattributed_hours"), 1.5);
  EXPECT_DOUBLE_EQ(report.at("capacity_hours"), 20);
  EXPECT_EQ(report.at("currency"), "EUR");
  EXPECT_DOUBLE_EQ(report.at("cost"), Sum(report, "cost"));
  EXPECT_DOUBLE_EQ(report.at("idle_cost"), 5 * 3 + 6.5 * 0.5);
  // All hours of each model have a price, and somebody or nobody has each hour.
  EXPECT_DOUBLE_EQ(report.at("cost").get<double>() + report.at("idle_cost").get<double>() +
                       report.at("unattributed_cost").get<double>(),
                   10 * 3 + 10 * 0.5);
}

TEST(Prices, HoldFromTheirMomentOn) {
  const Prices prices{{"", 1},
                      {"fast", ModelPrices::Make({{kNow, 3}, {kNow + hours(1), 0}}).value()}};
  EXPECT_EQ(PriceAt(prices, "slow", kNow), 1);
  EXPECT_EQ(PriceAt(prices, "fast", kNow - milliseconds(1)), 1) << "that of all others";
  EXPECT_EQ(PriceAt(prices, "fast", kNow), 3);
  EXPECT_EQ(PriceAt(prices, "fast", kNow + hours(1)), 0);
  EXPECT_EQ(PriceAt({{"fast", 2}}, "slow", kNow), std::nullopt);
  EXPECT_EQ(PriceChanges(prices), (std::vector{kNow, kNow + hours(1)}));
  EXPECT_FALSE(ModelPrices::Make({}));
  EXPECT_FALSE(ModelPrices::Make({{kNow, 3}, {kNow, 4}}));
  EXPECT_FALSE(ModelPrices::Make({{kNow, 3}, {kNow - hours(1), 4}}));
}

// Of a row with several prices none is told; its cost has them all.
TEST(ReportFigures, HaveAPriceWhereItIsOne) {
  const Prices prices{{"", ModelPrices::Make({{WallTime{}, 2}, {kNow, 3}}).value()}};
  Uses uses;
  uses.window = {kNow - hours(5), kNow + hours(5)};
  uses.spans = {{kNow - hours(5), {kNow - hours(5), kNow}}, {kNow, {kNow, kNow + hours(5)}}};
  uses.rows = {Used("fast", "fast", 1, 1), Used("fast", "fast", 2, 1), Used("slow", "slow", 4, 1)};
  uses.rows[1].span = 1;
  const json report = ReportJson(uses, Question{{}, {By::kModel}}, prices, "EUR");
  EXPECT_FALSE(Row(report, "fast").contains("price"));
  EXPECT_DOUBLE_EQ(Row(report, "fast").at("cost"), 1 * 2 + 2 * 3);
  EXPECT_DOUBLE_EQ(Row(report, "slow").at("price"), 2);
}

TEST(ReportFigures, OfEachGpuAddUpToo) {
  Uses uses;
  uses.window = {kNow - hours(10), kNow};
  uses.rows = {Used("GPU-a", "fast", 4, 3), Used("GPU-b", "slow", 9, 9)};
  uses.capacity = {There("GPU-a", "fast", 10, 5), There("GPU-b", "slow", 10, 0),
                   There("GPU-c", "slow", 10, 10)};
  const json report = ReportJson(uses, Question{{}, {By::kGpu}}, {}, "EUR");
  ASSERT_EQ(report.at("rows").size(), 3u);
  for (const json& row : report.at("rows")) {
    EXPECT_DOUBLE_EQ(row.at("held_hours").get<double>() + row.at("idle_hours").get<double>() +
                         row.at("unattributed_hours").get<double>(),
                     row.at("capacity_hours").get<double>())
        << row;
  }
  for (const char* field : {"held_hours", "idle_hours", "unattributed_hours", "capacity_hours"}) {
    EXPECT_DOUBLE_EQ(Sum(report, field), report.at(field).get<double>()) << field;
  }
  EXPECT_DOUBLE_EQ(Row(report, "GPU-c").at("idle_hours"), 10);
  EXPECT_DOUBLE_EQ(Row(report, "GPU-c").at("efficiency"), 0);
  for (const char* field : {"cost", "idle_cost", "unattributed_cost", "currency"}) {
    EXPECT_FALSE(report.contains(field)) << "without a price: " << field;
  }
}

TEST(ReportFigures, AreNeverBelowNothingWhereAHoldReachesBeyondTheWindow) {
  Uses uses;
  uses.window = {kNow - hours(1), kNow};
  uses.rows = {Used("GPU-a", "fast", 1.25, 2)};
  uses.capacity = {There("GPU-a", "fast", 1, 0.5)};
  const json report = ReportJson(uses, Question{{}, {By::kGpu}}, {{"", 1}}, "EUR");
  const json row = Row(report, "GPU-a");
  EXPECT_DOUBLE_EQ(row.at("efficiency"), 1) << "never more than all";
  EXPECT_DOUBLE_EQ(row.at("idle_hours"), 0);
  EXPECT_DOUBLE_EQ(row.at("unattributed_hours"), 0);
  EXPECT_DOUBLE_EQ(row.at("capacity_hours"), 1.25);
  EXPECT_GE(report.at("unattributed_cost").get<double>(), 0);
  const json none = ReportJson(Uses{{kNow - hours(1), kNow}, {}, {}, {}, {}, {}},
                               Question{{}, {By::kTeam}}, {}, "EUR");
  EXPECT_TRUE(none.at("rows").empty());
  EXPECT_DOUBLE_EQ(none.at("capacity_hours"), 0);
}

// They hold their part all the time, and what they do with it may be measured.
TEST(ReportFigures, OfPodsWithoutTokensSayWhatWasMeasured) {
  Uses uses;
  uses.window = {kNow - hours(1), kNow};
  uses.rows = {Used("turns", "fast", 1, 0.5), Used("unknown", "fast", 1, 0),
               Used("half", "fast", 1, 0.5), Used("idle", "fast", 1, 0),
               Used("observed", "fast", 0, 0.5)};
  for (const size_t i : {1, 2, 3}) uses.rows[i].use.launches = 0;
  uses.rows[3].use.busy_ns = 1;
  const json report = ReportJson(uses, Question{{}, {By::kPod}}, {}, "EUR");
  for (const char* pod : {"turns", "observed"}) {
    EXPECT_FALSE(Row(report, pod).contains("allocated")) << pod;
    EXPECT_FALSE(Row(report, pod).contains("measured")) << pod;
  }
  for (const char* pod : {"unknown", "half", "idle"}) {
    EXPECT_EQ(Row(report, pod).at("allocated"), true) << pod;
  }
  EXPECT_FALSE(Row(report, "unknown").contains("measured"));
  EXPECT_EQ(Row(report, "half").at("measured"), true);
  EXPECT_DOUBLE_EQ(Row(report, "half").at("efficiency"), 0.5);
  EXPECT_EQ(Row(report, "idle").at("measured"), true);
}

TEST(ReportFigures, OfAUserStandForEachTeam) {
  Uses uses;
  uses.window = {kNow - hours(1), kNow};
  uses.rows = {Used("user-a", "fast", 1, 1), Used("user-a", "fast", 2, 1)};
  uses.rows[0].team = "one";
  uses.rows[1].team = "two";
  const json report = ReportJson(uses, Question{{}, {By::kUser}}, {}, "EUR");
  ASSERT_EQ(report.at("rows").size(), 2u);
  EXPECT_EQ(report.at("rows")[0].at("team"), "one");
  EXPECT_EQ(report.at("rows")[1].at("team"), "two");
  EXPECT_DOUBLE_EQ(report.at("rows")[1].at("held_hours"), 2);
}

TEST(BatchBytes, AreReadBackAsTheSame) {
  Batch batch;
  batch.source = std::string(32, 'a');
  batch.samples.push_back({7, "GPU-a", {"p", "n", "t", "u"}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, 10});
  batch.since = WallTime(std::chrono::milliseconds(5));
  const std::string bytes = EncodeBatch(batch);
  const Batch read = DecodeBatch(bytes).value();
  EXPECT_EQ(read.since, batch.since);
  EXPECT_EQ(NumbersOf(read.samples.at(0).total), NumbersOf(batch.samples[0].total));
  EXPECT_EQ(EncodeBatch(read), bytes);
}

// A version before says nothing of use that no other team wanted; it counts as contended.
TEST(BatchBytes, OfTheVersionBeforeAreReadToo) {
  Batch batch;
  batch.source = std::string(32, 'a');
  batch.samples.push_back({7, "GPU-a", {"p", "n", "t", "u"}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, 10});
  json before = json::from_msgpack(EncodeBatch(batch));
  json& counters = before.at(5).at(0).at(6);
  ASSERT_EQ(counters.size(), kCounterNames.size());
  counters.erase(8);
  std::string bytes;
  json::to_msgpack(before, bytes);
  const Batch read = DecodeBatch(bytes).value();
  EXPECT_EQ(read.samples.at(0).total.revocations, 8);
  EXPECT_EQ(read.samples.at(0).total.uncontended_ns, 0);
}

TEST(BatchBytes, ThatAreNestedAsDeepAsTheyAreLongAreRefused) {
  for (const char one : {'\x91', '\x81', '\xdc'}) {
    const auto batch = DecodeBatch(std::string(8 << 20, one));
    ASSERT_FALSE(batch);
    EXPECT_EQ(batch.error().code, ErrorCode::kInvalid);
  }
}

}  // namespace
}  // namespace baton::ledger
