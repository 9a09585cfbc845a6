// Days and months of time zones with their daylight-saving time, and reports by them: golden files
// over both changes of the clocks and a leap day. BATON_UPDATE=1 writes the files.
#include "ledger/time_zone.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "ledger/periods.h"
#include "ledger/report.h"
#include "tests/ledger/books.h"

namespace baton::ledger {
namespace {

using nlohmann::json;
using std::chrono::hours;
using std::chrono::minutes;

WallTime Utc(const std::string& text) { return ParseTime(text).value(); }
TimeZone Zone(const std::string& name) { return FindTimeZone(name).value(); }

constexpr std::array<int64_t, 4> kAll = {0, 0, 0, 0};

TEST(TimeZones, AreThoseOfTheTzDatabase) {
  EXPECT_EQ(Zone("").zone, nullptr);
  EXPECT_EQ(Zone("UTC").zone, nullptr);
  EXPECT_NE(Zone("Europe/Berlin").zone, nullptr);
  for (const char* name : {"Europe/Berln", "../../etc/passwd", "/etc/localtime", "x\x1b", " ",
                           "Europe", "posixrules/../UTC"}) {
    const auto zone = FindTimeZone(name);
    ASSERT_FALSE(zone) << name;
    EXPECT_EQ(zone.error().code, ErrorCode::kInvalid);
    EXPECT_NE(zone.error().message.find("such as Europe/Berlin"), std::string::npos);
    EXPECT_EQ(zone.error().message.find('\x1b'), std::string::npos);
  }
}

TEST(TimeZones, TimesAreReadAndPrintedInThem) {
  const TimeZone berlin = Zone("Europe/Berlin");
  EXPECT_EQ(ParseTime("2026-07-01", berlin), Utc("2026-06-30T22:00"));
  EXPECT_EQ(ParseTime("2026-12-01T12:30", berlin), Utc("2026-12-01T11:30"));
  EXPECT_EQ(ParseTime("2026-12-01T12:30Z", berlin), Utc("2026-12-01T12:30"));
  EXPECT_EQ(ParseTime("2026-03-29T02:30", berlin), Utc("2026-03-29T01:00")) << "there is no such";
  EXPECT_EQ(ParseTime("2026-10-25T02:30", berlin), Utc("2026-10-25T00:30")) << "the first of two";
  EXPECT_EQ(FormatTime(Utc("2026-07-01T00:00"), berlin), "2026-07-01T02:00:00+02:00");
  EXPECT_EQ(FormatTime(Utc("2026-12-01T00:00"), Zone("America/St_Johns")),
            "2026-11-30T20:30:00-03:30");
  EXPECT_EQ(FormatTime(Utc("2026-12-01T00:00")), "2026-12-01T00:00:00Z");
  const auto window = ParseWindow("2026-03-29", "2026-03-30", "", Utc("2026-04-01"), berlin);
  ASSERT_TRUE(window);
  EXPECT_EQ(window->to - window->from, hours(23));
}

TEST(Periods, AreDaysOf23And25HoursWhereClocksChange) {
  const TimeZone berlin = Zone("Europe/Berlin");
  const auto length = [&](const char* day, const char* next) {
    const Window window{*ParseTime(day, berlin), *ParseTime(next, berlin)};
    const auto periods = PeriodsOf(berlin, PeriodLength::kDay, window, kAll);
    EXPECT_EQ(periods.size(), 1u) << day;
    EXPECT_EQ(periods[0].name, day);
    EXPECT_EQ(periods[0].window.from, window.from);
    return std::chrono::duration_cast<hours>(periods[0].window.to - periods[0].window.from).count();
  };
  EXPECT_EQ(length("2026-03-28", "2026-03-29"), 24);
  EXPECT_EQ(length("2026-03-29", "2026-03-30"), 23);
  EXPECT_EQ(length("2026-10-25", "2026-10-26"), 25);
}

TEST(Periods, CoverAWindowOnceWithoutGapsOrOverlaps) {
  for (const char* name : {"UTC", "Europe/Berlin", "Asia/Kolkata", "Pacific/Apia",
                           "America/Sao_Paulo", "Pacific/Kiritimati"}) {
    const TimeZone zone = Zone(name);
    for (const PeriodLength length : {PeriodLength::kDay, PeriodLength::kMonth}) {
      for (const std::array<int64_t, 4>& floors :
           {kAll, std::array<int64_t, 4>{Utc("2011-12-20").time_since_epoch().count() / 1000,
                                         Utc("2011-12-10").time_since_epoch().count() / 1000,
                                         Utc("2011-12-01").time_since_epoch().count() / 1000, 0}}) {
        const WindowCut cut =
            CutWindowIn(zone, {Utc("2011-11-11T11:11"), Utc("2012-02-02T02:02")}, floors);
        WallTime at = cut.window.from;
        int64_t second = Millis(at) / 1000;
        std::string last;
        for (const Period& period : PeriodsOf(zone, length, cut.window, floors)) {
          EXPECT_LT(last, period.name) << name;
          EXPECT_EQ(period.window.from, at) << name << ' ' << period.name;
          for (const Piece& piece : period.pieces) {
            EXPECT_EQ(piece.from, second) << name << ' ' << period.name;
            EXPECT_GE(piece.from, floors[piece.level]) << name << ' ' << period.name;
            second = piece.to;
          }
          at = period.window.to;
          EXPECT_EQ(second, Millis(at) / 1000) << name << ' ' << period.name;
          last = period.name;
        }
        EXPECT_EQ(at, cut.window.to) << name;
      }
    }
  }
}

// Where only days (UTC) are left, a day of the zone is the one of the same date, or the one before
// where more of it lies there.
TEST(Periods, WhereOnlyDaysAreLeftAreTheDaysOfTheSameDate) {
  const std::array<int64_t, 4> floors = {Utc("2027-01-01").time_since_epoch().count() / 1000,
                                         Utc("2027-01-01").time_since_epoch().count() / 1000,
                                         Utc("2027-01-01").time_since_epoch().count() / 1000, 0};
  for (const char* name :
       {"Europe/Berlin", "America/Los_Angeles", "Asia/Tokyo", "Pacific/Kiritimati"}) {
    const TimeZone zone = Zone(name);
    const auto earlier = std::chrono::days(name == std::string("Pacific/Kiritimati") ? 1 : 0);
    const WindowCut cut =
        CutWindowIn(zone, {*ParseTime("2026-03-01", zone), *ParseTime("2026-04-01", zone)}, floors);
    EXPECT_EQ(cut.window.from, Utc("2026-03-01") - earlier) << name;
    EXPECT_EQ(cut.window.to, Utc("2026-04-01") - earlier) << name << ": months add up to the year";
    const auto days = PeriodsOf(zone, PeriodLength::kDay, cut.window, floors);
    ASSERT_EQ(days.size(), 31u) << name;
    EXPECT_EQ(days[28].name, "2026-03-29");
    EXPECT_EQ(days[28].window.from, Utc("2026-03-29") - earlier);
  }
}

// A report as a text that people can read and compare, with what must hold of each row.
std::string Golden(const json& report) {
  std::ostringstream text;
  text << report.at("by").get<std::string>() << ' ' << report.at("from").get<std::string>() << ' '
       << report.at("to").get<std::string>() << ' ' << report.value("time_zone", "UTC") << '\n';
  double held = 0, cost = 0;
  for (const json& row : report.at("rows")) {
    text << row.at("key").get<std::string>() << ": " << row.value("from", "") << " to "
         << row.value("to", "") << " held " << row.at("held_hours") << " waited "
         << row.at("waited_hours") << " cost " << row.at("cost");
    if (row.contains("price")) text << " price " << row.at("price");
    if (row.contains("capacity_hours")) {
      text << " idle " << row.at("idle_hours") << " unattributed " << row.at("unattributed_hours")
           << " capacity " << row.at("capacity_hours");
    }
    text << '\n';
    held += row.at("held_hours").get<double>();
    cost += row.at("cost").get<double>();
  }
  EXPECT_NEAR(held, report.at("held_hours").get<double>(), 1e-9);
  EXPECT_NEAR(cost, report.at("cost").get<double>(), 1e-9);
  text << "held " << report.at("held_hours");
  if (report.contains("others_hours")) text << " others " << report.at("others_hours");
  text << " idle " << report.at("idle_hours") << " unattributed " << report.at("unattributed_hours")
       << " capacity " << report.at("capacity_hours") << " cost " << report.at("cost") << '\n';
  return text.str();
}

struct Asked {
  const char* name;
  const char* zone;
  const char* from;
  const char* to;
  const char* by;
  const char* team = "";
  const char* user = "";
  const char* pod = "";
};

// A section of a golden file.
std::string Answered(Ledger& ledger, const Asked& asked, const Prices& prices) {
  SCOPED_TRACE(asked.name);
  Question question;
  question.zone = Zone(asked.zone);
  question.window = *ParseWindow(asked.from, asked.to, "", Utc("2029-01-01"), question.zone);
  question.by = *ParseBys(asked.by);
  question.team = asked.team;
  question.user = asked.user;
  question.pod = asked.pod;
  question.changes = PriceChanges(prices);
  const auto uses = ledger.Query(question);
  if (!uses) {
    ADD_FAILURE() << uses.error().message;
    return "";
  }
  return std::string("# ") + asked.name + "\n" +
         Golden(ReportJson(*uses, question, prices, "EUR")) + "\n";
}

// The file is as `all` says; BATON_UPDATE=1 makes it so.
void ExpectGolden(const std::string& all, const char* name) {
  const std::string path = std::string(GOLDEN) + "/" + name;
  if (std::getenv("BATON_UPDATE") != nullptr) std::ofstream(path) << all;
  std::ostringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(all, golden.str()) << "run this test with BATON_UPDATE=1, and read what changes";
}

// Two pods on one GPU, which hold it for 30 and 12 minutes of each hour, while it is idle for 15.
void UseSteadily(Ledger& ledger, WallTime from, WallTime to) {
  const std::string source = NewSource();
  Begin(ledger, source, from);
  for (int64_t hour = 1; from + hours(hour) <= to; ++hour) {
    Batch batch = MakeBatch(source, static_cast<uint64_t>(hour) + 1, from + hours(hour));
    AddSample(batch, 1, "GPU-a", hour * 1800 * kSecond, {"train", "", "research", "user-a"});
    AddSample(batch, 2, "GPU-a", hour * 720 * kSecond, {"web", "prod", "ops/web", "user-b"});
    AddGpu(batch, "GPU-a", minutes(15));
    Apply(ledger, batch);
  }
}

TEST_P(LedgerTest, ReportsOverBothChangesOfTheClocksAndALeapDayAreAsInTheGoldenFiles) {
  const auto ledger = Open();
  UseSteadily(*ledger, Utc("2026-03-27"), Utc("2026-03-31"));
  UseSteadily(*ledger, Utc("2026-10-23"), Utc("2026-10-27"));
  UseSteadily(*ledger, Utc("2028-02-27"), Utc("2028-03-02"));
  std::string all;
  for (const Asked& asked : std::initializer_list<Asked>{
           {"spring", "Europe/Berlin", "2026-03-28", "2026-03-31", "day"},
           {"spring, by UTC", "", "2026-03-28", "2026-03-31", "day"},
           {"spring, by day and team", "Europe/Berlin", "2026-03-29", "2026-03-31", "day,team"},
           {"autumn", "Europe/Berlin", "2026-10-24", "2026-10-27", "day"},
           {"autumn, of one team", "Europe/Berlin", "2026-10-24", "2026-10-27", "day,user", "ops"},
           {"autumn, of one user", "Europe/Berlin", "2026-10-25", "2026-10-26", "team", "",
            "user-a"},
           {"autumn, of one pod", "Europe/Berlin", "2026-10-25", "2026-10-26", "pod", "", "",
            "prod/web"},
           {"autumn, where the half hour counts", "Asia/Kolkata", "2026-10-24", "2026-10-26",
            "day"},
           {"leap day", "America/New_York", "2028-02-28", "2028-03-01", "day"},
           {"leap day, by month", "America/New_York", "2028-02-01", "2028-04-01", "month"},
           {"months and GPUs", "", "2026-01-01", "2029-01-01", "month,gpu"},
       }) {
    all += Answered(*ledger, asked, {{"", 2}});
  }
  ExpectGolden(all, "reports.txt");
}

ModelPrices From(std::initializer_list<std::pair<const char*, double>> list) {
  std::vector<DatedPrice> dated;
  for (const auto& [from, price] : list) {
    dated.push_back({*from == '\0' ? WallTime{} : Utc(from), price});
  }
  return ModelPrices::Make(std::move(dated)).value();
}

// The GPU is of model-x: it is priced apart from the others from an autumn on.
TEST_P(LedgerTest, CostsByDatedPricesAreAsInTheGoldenFiles) {
  const auto ledger = Open();
  UseSteadily(*ledger, Utc("2026-10-23"), Utc("2026-10-27"));
  UseSteadily(*ledger, Utc("2026-11-02"), Utc("2026-11-04"));
  const Prices prices{{"", From({{"", 1}, {"2026-11-02T12:00", 2}})},
                      // 02:00 in summer, an hour before the clocks are set back; and at noon.
                      {"model-x", From({{"2026-10-25T00:00", 3}, {"2026-11-03T12:00", 4}})}};
  std::string all;
  for (const Asked& asked : std::initializer_list<Asked>{
           {"a change at noon", "", "2026-11-03", "2026-11-04", "team"},
           {"a change at noon, by price", "", "2026-11-03", "2026-11-04", "team,price"},
           {"a change at noon, by day", "", "2026-11-02", "2026-11-04", "day"},
           {"a change at noon, by day and price", "", "2026-11-02", "2026-11-04",
            "day,model,price"},
           {"a change at noon, of one team", "", "2026-11-03T11:00", "2026-11-03T14:00",
            "pod,price", "ops"},
           {"the night of the clocks' change", "Europe/Berlin", "2026-10-25", "2026-10-26",
            "day,price"},
           {"around the clocks' change, by day", "Europe/Berlin", "2026-10-24", "2026-10-27",
            "day"},
           {"around the clocks' change, by month", "Europe/Berlin", "2026-10-01", "2026-12-01",
            "month,price"},
           {"all", "", "2026-01-01", "2027-01-01", "total"},
       }) {
    all += Answered(*ledger, asked, prices);
  }
  ExpectGolden(all, "prices.txt");
}

// What a team used stays under the name that it had then: under `research` before noon, under `lab`
// after it. The clock that is a year ahead for an hour books there; when it steps back, that hour
// is taken back to when it was, and no report of the year after has anything.
TEST_P(LedgerTest, ReportsOfARenamedTeamAndAClockAYearAheadAreAsInTheGoldenFiles) {
  const auto ledger = Open();
  const std::string source = NewSource();
  const WallTime day = Utc("2026-11-02");
  Begin(*ledger, source, day);
  const auto book = [&](int64_t hour, WallTime clock) {
    Batch batch = MakeBatch(source, static_cast<uint64_t>(hour) + 1, clock);
    AddSample(batch, 1, "GPU-a", hour * 1800 * kSecond,
              {"train", "", hour <= 12 ? "research" : "lab", "user-a"});
    AddSample(batch, 2, "GPU-a", hour * 720 * kSecond, {"web", "prod", "ops/web", "user-b"});
    AddGpu(batch, "GPU-a", minutes(15));
    Apply(*ledger, batch);
  };
  for (int64_t hour = 1; hour <= 24; ++hour) {
    book(hour, day + hours(hour) + (hour == 20 ? hours(365 * 24) : hours(0)));
  }
  std::string all;
  for (const Asked& asked : std::initializer_list<Asked>{
           {"a team renamed at noon", "", "2026-11-02", "2026-11-03", "team"},
           {"a team renamed at noon, by pod and team", "", "2026-11-02", "2026-11-03", "pod,team"},
           {"of the old name", "", "2026-11-02", "2026-11-03", "day,user", "research"},
           {"of the new name, the morning", "", "2026-11-02", "2026-11-02T12:00", "day", "lab"},
           {"the hour in which the clock was ahead", "", "2026-11-02T18:00", "2026-11-02T22:00",
            "team"},
           {"all", "", "2026-01-01", "2028-01-01", "month"},
       }) {
    all += Answered(*ledger, asked, {{"", 2}});
  }
  ExpectGolden(all, "names_and_clocks.txt");
}

// Whatever prices and window: each part between changes costs what it costs as a report of its own
// by one price.
TEST_P(LedgerTest, DatedPricesCostAsReportsBetweenTheirChangesDo) {
  const auto ledger = Open();
  const WallTime begin = Utc("2026-11-02"), end = Utc("2026-11-06");
  UseSteadily(*ledger, begin, end);
  constexpr int kMinutes = 4 * 24 * 60;
  std::mt19937_64 random(20'261'124);
  const auto any = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  for (int i = 0; i < 50; ++i) {
    SCOPED_TRACE(i);
    std::set<int> moments;
    for (int n = any(0, 5); n > 0; --n) moments.insert(any(-600, kMinutes + 600));
    std::vector<DatedPrice> dated{{WallTime{}, 1.0 * any(0, 9)}};
    for (const int at : moments) dated.push_back({begin + minutes(at), 1.0 * any(0, 9)});
    const Prices prices{{"", ModelPrices::Make(dated).value()}};
    const int from = any(0, kMinutes - 1), to = any(from + 1, kMinutes);
    Question question{{begin + minutes(from), begin + minutes(to)}};
    if (any(0, 1) == 0) question.by = *ParseBys("day,pod,price");
    question.changes = PriceChanges(prices);
    const auto uses = ledger->Query(question);
    ASSERT_TRUE(uses) << uses.error().message;
    double cost = 0;
    for (size_t p = 0; p < dated.size(); ++p) {
      const WallTime since = std::max(question.window.from, dated[p].from);
      const WallTime until =
          std::min(question.window.to, p + 1 < dated.size() ? dated[p + 1].from : end);
      if (since >= until) continue;
      const Question part{{since, until}};
      const json report = ReportJson(*ledger->Query(part), part, {}, "EUR");
      cost += dated[p].price * report.at("held_hours").get<double>();
    }
    EXPECT_NEAR(ReportJson(*uses, question, prices, "EUR").at("cost").get<double>(), cost, 1e-9);
  }
}

// Where only days are left a change is at the nearest midnight; nothing is counted twice or lost.
TEST_P(LedgerTest, ChangesOfPricesAreAtTheNearestEdgeThatIsLeft) {
  const auto ledger = Open({hours(1), hours(1), hours(24), hours(0)});
  UseSteadily(*ledger, Utc("2026-11-02"), Utc("2026-11-10"));
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(ledger->Trim(Utc("2026-11-10")));
  for (const auto& [change, first_days] : std::initializer_list<std::pair<const char*, int>>{
           {"2026-11-03T11:59", 1}, {"2026-11-03T12:00", 2}, {"2026-11-03T23:00", 2}}) {
    const Prices prices{{"", From({{"", 1}, {change, 10}})}};
    Question question{{Utc("2026-11-02"), Utc("2026-11-06")}};
    question.changes = PriceChanges(prices);
    const auto uses = ledger->Query(question);
    ASSERT_TRUE(uses);
    const json report = ReportJson(*uses, question, prices, "EUR");
    EXPECT_NEAR(report.at("held_hours").get<double>(), 4 * 16.8, 1e-9) << change;
    EXPECT_NEAR(report.at("cost").get<double>(), 16.8 * (first_days + 10 * (4 - first_days)), 1e-9)
        << change;
  }
}

TEST_P(LedgerTest, KeysThatDoNotGoTogetherAreRefused) {
  const auto ledger = Open();
  for (const char* by : {"team,team", "total,team", "team,user,namespace,pod,gpu,node,day,model"}) {
    Question question{{At(0), At(60)}, *ParseBys(by)};
    const auto uses = ledger->Query(question);
    ASSERT_FALSE(uses) << by;
    EXPECT_EQ(uses.error().code, ErrorCode::kInvalid);
  }
}

}  // namespace
}  // namespace baton::ledger
