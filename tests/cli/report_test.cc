// What `baton report`, `standing`, `explain` and `advise` print. The columns of csv and parsable
// are a contract with other people's programs.
#include <gtest/gtest.h>

#include <sstream>

#include "cli/text_table.h"
#include "tests/cli/harness.h"

namespace baton::cli {
namespace {

using nlohmann::json;

json Books(const json& request) {
  const std::string command = request.at("command");
  if (command == "standing" && request.contains("forecast")) {
    return json::parse(R"({"half_life_s": 604800, "k": 1, "rows": [], "forecast": {
      "teams": ["a", "b\u001b"], "points": [
      {"at_s": 0, "gpus": [0.1, 0.9], "usage": [0.9, 0.1]},
      {"at_s": 3600, "gpus": [0.2, 0.8], "usage": [0.8, 0.2]},
      {"at_s": 432000, "gpus": [0.5, 0.5], "usage": [0.5, 0.5]}]}})");
  }
  if (command == "standing") {
    return json::parse(R"({"half_life_s": 604800, "k": 1, "rows": [
      {"team": "", "user": "", "raw_shares": 1, "normalized_shares": 1, "raw_usage_hours": 3.5,
       "uncounted_hours": 1.25,
       "normalized_usage": 1, "effective_usage": 1, "factor": 0.5, "level_fs": 1, "rank": 0},
      {"team": "research/vision", "user": "", "raw_shares": 3, "normalized_shares": 0.25,
       "raw_usage_hours": 0.000001, "uncounted_hours": 1.25, "normalized_usage": 0.125,
       "effective_usage": 0.1, "factor": 0.757858, "level_fs": 2, "rank": 1},
      {"team": "research/vision", "user": "user-a", "raw_shares": 1, "normalized_shares": 0.25,
       "raw_usage_hours": 0, "normalized_usage": 0, "effective_usage": 0, "factor": 1,
       "level_fs": null, "rank": 2}]})");
  }
  if (command == "explain") {
    return {
        {"sentences", {"Asked of " + request.value("pod", request.value("team", "")), "b\x1b"}}};
  }
  if (command == "advise") {
    if (request.at("last") == "1h") return {{"rows", json::array()}};  // of a version before
    return json::parse(R"({"pods": 3, "unseen": ["b"], "needed_s": 72000,
      "rows": [{"pod": "a", "team": "t", "gpu": "GPU-0123456789abcdef", "what": "memory",
      "now": "8GiB", "used": "1GiB", "set_to": "1.25GiB", "frees": "6.75GiB", "why": "it never used more"}]})");
  }
  if (command == "whatif") {
    if (request.at("last") == "1h") return {{"rows", json::array()}};
    return json::parse(R"({"from": "2026-11-25T08:00:00Z", "to": "2026-11-25T09:00:00Z",
      "bucket_s": 10, "rows": [
      {"pod": "a", "namespace": "vision", "team": "t", "gpu": "GPU-0123456789abcdef",
       "known": true, "request": 60, "limit": 100, "hours": 1, "alone": 99.96, "had": 50,
       "would_get": 66.66667, "would_wait": 33.3},
      {"pod": "b\u001b", "namespace": "", "team": "", "gpu": "GPU-0123456789abcdef",
       "known": false, "request": 0, "limit": 100, "hours": 1, "alone": 2.5, "had": 7.5,
       "would_get": 2.5, "would_wait": 0}]})");
  }
  if (command == "log") {
    if (request.at("last") == "1h") {
      return {{"from", "2026-11-25T08:00:00Z"},
              {"to", "2026-11-25T09:00:00Z"},
              {"more", false},
              {"rows", json::array()}};
    }
    return json::parse(R"({"from": "2026-11-18T09:00:00Z", "to": "2026-11-25T09:00:00Z",
      "more": true, "rows": [
      {"at": "2026-11-25T08:00:02Z", "node": "n1", "who": "uid 0", "action": "set", "kind": "pod",
       "object": "vision/a", "change": "request 30.0 -> 40.5\u001b", "was": {"request": 30.0},
       "is": {"request": 40.5}},
      {"at": "2026-11-25T08:00:01Z", "node": "n1", "who": "uid 4294967294", "action": "cordon",
       "kind": "gpu", "object": "GPU-a", "change": "", "was": null, "is": null},
      {"at": "2026-11-25T08:00:00Z", "node": "n1", "who": "alice\u001b", "action": "delete",
       "kind": "pod", "object": "b", "change": "request was 5", "was": {"request": 5}, "is": null}]})");
  }
  json answer = json::parse(R"({"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z",
    "by": "user", "unit": "GPU-hours", "currency": "EUR", "rows": [
      {"key": "", "team": "=1+2", "held_hours": 0.125, "busy_hours": 0, "waited_hours": 0,
       "unmanaged_hours": 0, "memory_gib_hours": 0, "efficiency": 0, "launches": 0, "grants": 1,
       "cost": 0.25},
      {"key": "a\"b|c\\", "team": "r/v,x", "held_hours": 1.5, "busy_hours": 1.2,
       "waited_hours": 0.25, "unmanaged_hours": 0, "memory_gib_hours": 3.25, "efficiency": 0.8,
       "launches": 42, "grants": 7, "cost": 3}],
    "held_hours": 1.625, "idle_hours": 0.5, "unattributed_hours": 0.125, "capacity_hours": 2.25,
    "cost": 3.25, "idle_cost": 1, "unattributed_cost": 0.25})");
  if (request.at("by") == "gpu") {
    answer.erase("currency");
    answer["by"] = "gpu";
    answer["rows"] = json::parse(R"([{"key": "GPU-a", "held_hours": 1.625, "busy_hours": 1.2,
      "waited_hours": 0.25, "unmanaged_hours": 0, "memory_gib_hours": 3.25, "efficiency": 0.7384,
      "launches": 42, "grants": 8, "capacity_hours": 2.25, "idle_hours": 0.5,
      "unattributed_hours": 0.125}])");
  }
  if (request.at("by") == "total") {  // with energy
    answer.erase("currency");
    answer["by"] = "total";
    answer["rows"] = json::parse(R"([{"key": "", "held_hours": 1.625, "busy_hours": 1.2,
      "waited_hours": 0.25, "unmanaged_hours": 0, "memory_gib_hours": 3.25, "efficiency": 0.7384,
      "launches": 42, "grants": 8, "energy_kwh": 0.75, "energy_cost": 0.225, "carbon_kg": 0.3}])");
    answer.update(json::parse(R"({"currency": "EUR", "energy_kwh": 0.75, "energy_cost": 0.225,
      "carbon_kg": 0.3, "idle_energy_kwh": 0.25, "idle_energy_cost": 0.075,
      "idle_carbon_kg": 0.1})"));
    answer.erase("cost");
  }
  if (request.at("by") == "pod") {  // an instance by MIG
    answer.erase("currency");
    answer["by"] = "pod";
    answer["rows"] = json::parse(R"([{"key": "m", "team": "t", "held_hours": 1.625, "busy_hours": 0,
      "waited_hours": 0, "unmanaged_hours": 0, "memory_gib_hours": 0, "efficiency": 0,
      "launches": 0, "grants": 0, "allocated": true},
      {"key": "n", "team": "t", "held_hours": 1.5, "busy_hours": 0.5, "waited_hours": 0,
      "unmanaged_hours": 0, "memory_gib_hours": 0, "efficiency": 0.333, "launches": 0, "grants": 0,
      "allocated": true, "measured": true}])");
  }
  return answer;
}

// Each command that only reads, with what it needs.
TEST(Json, EveryCommandThatOnlyReadsPrintsWhatTheDaemonSaid) {
  const FakeDaemon daemon([](const json& request) -> json {
    return {{"version", "1"}, {"mode", "enforce"}, {"said", request.at("command")}};
  });
  for (std::vector<std::string> command : {std::vector<std::string>{"ping"},
                                           {"status"},
                                           {"top", "--once"},
                                           {"vgpu", "list"},
                                           {"report"},
                                           {"standing"},
                                           {"advise"},
                                           {"log"},
                                           {"explain", "pod", "a"},
                                           {"explain", "team", "t"}}) {
    const std::string name = command[0];
    command.insert(command.end(), {"--json", "--socket-dir", daemon.socket_dir()});
    const Outcome outcome = RunBaton(command);
    EXPECT_EQ(outcome.status, 0) << name << outcome.err;
    const json printed = json::parse(outcome.out, nullptr, false);
    ASSERT_TRUE(printed.is_object()) << name << outcome.out;
    EXPECT_TRUE(printed.contains("said")) << name;
    EXPECT_FALSE(printed.contains("ok")) << name;
  }
  EXPECT_EQ(RunBaton({"report", "--json", "--format", "csv"}).status, 2);
}

std::string Printed(std::vector<std::string> arguments) {
  const FakeDaemon daemon(Books);
  arguments.insert(arguments.end(), {"--socket-dir", daemon.socket_dir()});
  const Outcome outcome = RunBaton(arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return outcome.out;
}

TEST(Standing, AForecastIsATableForPeopleAndAllOfItForPrograms) {
  const std::string printed = Printed({"standing", "--forecast", "5d"});
  for (const char* text : {"Team", "Now", "+1.0h", "+5.0d", "0.10", "0.80", "0.50", "b?"}) {
    EXPECT_NE(printed.find(text), std::string::npos) << text << "\n" << printed;
  }
  const std::string csv = Printed({"standing", "--forecast", "5d", "--format", "csv"});
  EXPECT_EQ(csv.substr(0, csv.find('\n', 40)),
            "Team,Seconds,GPUs,NormUsage\na,0,0.100000,0.900000");
}

TEST(Report, WhatNobodyMeasuredHasNoEfficiency) {
  const std::string printed = Printed({"report", "--by", "pod"});
  EXPECT_NE(printed.find(" - "), std::string::npos) << printed;
  EXPECT_EQ(printed.find("0.0%"), std::string::npos) << printed;
  EXPECT_NE(printed.find("33.3%"), std::string::npos) << "what NVML told: " << printed;
}

TEST(Report, AsCsvKeepsItsColumns) {
  EXPECT_EQ(Printed({"report", "--by", "user", "--format", "csv"}),
            R"(key,team,held_gpu_hours,busy_gpu_hours,efficiency,waited_hours,memory_gib_hours,)"
            R"(launches,cost,capacity_gpu_hours,idle_gpu_hours,unattributed_gpu_hours
(none),'=1+2,0.125000000,0.000000000,0.000000000,0.000000000,0.000000000,0,0.250000000,,,
"a""b|c\","r/v,x",1.500000000,1.200000000,0.800000000,0.250000000,3.250000000,42,3.000000000,,,
idle,,0.500000000,,,,,,1.000000000,,,
unattributed,,0.125000000,,,,,,0.250000000,,,
capacity,,2.250000000,,,,,,4.500000000,,,
)");
}

TEST(Report, AsParsableTextKeepsItsColumns) {
  EXPECT_EQ(Printed({"report", "--by", "user", "--format", "parsable"}),
            R"(key|team|held_gpu_hours|busy_gpu_hours|efficiency|waited_hours|memory_gib_hours|)"
            R"(launches|cost|capacity_gpu_hours|idle_gpu_hours|unattributed_gpu_hours
(none)|=1+2|0.125000000|0.000000000|0.000000000|0.000000000|0.000000000|0|0.250000000|||
a"b\|c\\|r/v,x|1.500000000|1.200000000|0.800000000|0.250000000|3.250000000|42|3.000000000|||
idle||0.500000000||||||1.000000000|||
unattributed||0.125000000||||||0.250000000|||
capacity||2.250000000||||||4.500000000|||
)");
}

TEST(Report, OfGpusHasWhatEachOneWasThereFor) {
  EXPECT_EQ(
      Printed({"report", "--by", "gpu", "--format", "csv"}),
      R"(key,held_gpu_hours,busy_gpu_hours,efficiency,waited_hours,memory_gib_hours,launches,)"
      R"(capacity_gpu_hours,idle_gpu_hours,unattributed_gpu_hours
GPU-a,1.625000000,1.200000000,0.738400000,0.250000000,3.250000000,42,2.250000000,0.500000000,)"
      R"(0.125000000
idle,0.500000000,,,,,,,,
unattributed,0.125000000,,,,,,,,
capacity,2.250000000,,,,,,,,
)");
}

TEST(Report, EnergyStandsAtTheEndAndOfWhatNobodyHeldToo) {
  EXPECT_EQ(
      Printed({"report", "--by", "total", "--format", "csv"}),
      R"(key,held_gpu_hours,busy_gpu_hours,efficiency,waited_hours,memory_gib_hours,launches,)"
      R"(capacity_gpu_hours,idle_gpu_hours,unattributed_gpu_hours,energy_kwh,energy_cost,)"
      R"(carbon_kg
(none),1.625000000,1.200000000,0.738400000,0.250000000,3.250000000,42,,,,0.750000000,0.225000000,)"
      R"(0.300000000
idle,0.500000000,,,,,,,,,0.250000000,0.075000000,0.100000000
unattributed,0.125000000,,,,,,,,,,,
capacity,2.250000000,,,,,,,,,1.000000000,0.300000000,0.400000000
)");
}

TEST(Report, ForPeopleSaysFromWhenAndLeavesOutWhatHasNoFigures) {
  EXPECT_EQ(Printed({"report", "--by", "user"}),
            R"(From 2026-11-01T00:00:00Z to 2026-11-02T00:00:00Z, in GPU-hours, cost in EUR

USER          TEAM    HELD   BUSY    EFF  WAITED  GiB*h  LAUNCHES  COST
(no user)     =1+2   0.125  0.000   0.0%   0.000   0.00         0  0.25
a"b|c\        r/v,x  1.500  1.200  80.0%   0.250   3.25        42  3.00
idle                 0.500                                         1.00
unattributed         0.125                                         0.25
capacity             2.250                                         4.50
)");
}

TEST(Report, ForPeopleTheRowOfTheTotalIsOfAll) {
  const std::string printed = Printed({"report", "--by", "total"});
  EXPECT_NE(printed.find("\n(all) "), std::string::npos) << printed;
}

TEST(Report, ForPeopleHasAsManyDecimalsAsItsSmallestFigureNeeds) {
  const FakeDaemon daemon([](const json& request) {
    json answer = Books(request);
    answer["rows"][0]["held_hours"] = 0.00042;
    answer["rows"][0]["cost"] = 0.00084;
    return answer;
  });
  const Outcome outcome = RunBaton({"report", "--by", "user", "--socket-dir", daemon.socket_dir()});
  EXPECT_EQ(outcome.out,
            R"(From 2026-11-01T00:00:00Z to 2026-11-02T00:00:00Z, in GPU-hours, cost in EUR

USER          TEAM      HELD   BUSY    EFF  WAITED  GiB*h  LAUNCHES     COST
(no user)     =1+2   0.00042  0.000   0.0%   0.000   0.00         0  0.00084
a"b|c\        r/v,x  1.50000  1.200  80.0%   0.250   3.25        42  3.00000
idle                 0.50000                                         1.00000
unattributed         0.12500                                         0.25000
capacity             2.25000                                         4.50000
)");
}

TEST(Report, AsJsonIsTheAnswer) {
  json expected = Books({{"command", "report"}, {"by", "user"}});
  EXPECT_EQ(json::parse(Printed({"report", "--by", "user", "--format", "json"})), expected);
}

// "My team, by day and user": a column for each key, and what others held.
TEST(Report, ByTwoKeysHasAColumnForEach) {
  const FakeDaemon daemon([](const json&) {
    return json::parse(R"({"from": "2026-11-01T00:00:00+01:00", "to": "2026-11-03T00:00:00+01:00",
      "by": "day,user", "unit": "GPU-hours", "time_zone": "Europe/Berlin", "rows": [
        {"key": "2026-11-01, ", "keys": ["2026-11-01", ""], "team": "r/v", "held_hours": 1.5,
         "busy_hours": 1, "waited_hours": 0, "unmanaged_hours": 0, "memory_gib_hours": 0,
         "efficiency": 0.5, "launches": 3, "grants": 1},
        {"key": "2026-11-02, a", "keys": ["2026-11-02", "a"], "team": "r", "held_hours": 2,
         "busy_hours": 1, "waited_hours": 0, "unmanaged_hours": 0, "memory_gib_hours": 0,
         "efficiency": 0.5, "launches": 3, "grants": 1}],
      "held_hours": 3.5, "others_hours": 4, "idle_hours": 0.5, "unattributed_hours": 0,
      "capacity_hours": 8})");
  });
  const auto printed = [&](const char* format) {
    return RunBaton({"report", "--by", "day,user", "--format", format, "--socket-dir",
                     daemon.socket_dir()})
        .out;
  };
  EXPECT_EQ(printed("csv"),
            R"(day,user,team,held_gpu_hours,busy_gpu_hours,efficiency,waited_hours,)"
            R"(memory_gib_hours,launches,capacity_gpu_hours,idle_gpu_hours,unattributed_gpu_hours
2026-11-01,(none),r/v,1.500000000,1.000000000,0.500000000,0.000000000,0.000000000,3,,,
2026-11-02,a,r,2.000000000,1.000000000,0.500000000,0.000000000,0.000000000,3,,,
others,,,4.000000000,,,,,,,,
idle,,,0.500000000,,,,,,,,
unattributed,,,0.000000000,,,,,,,,
capacity,,,8.000000000,,,,,,,,
)");
  EXPECT_EQ(printed("table"),
            R"(From 2026-11-01T00:00:00+01:00 to 2026-11-03T00:00:00+01:00, in GPU-hours

DAY           USER       TEAM   HELD   BUSY    EFF  WAITED  GiB*h  LAUNCHES
2026-11-01    (no user)  r/v   1.500  1.000  50.0%   0.000   0.00         3
2026-11-02    a          r     2.000  1.000  50.0%   0.000   0.00         3
others                         4.000
idle                           0.500
unattributed                   0.000
capacity                       8.000
)");
}

TEST(Report, OfTeamsHasTheirBudgetsAtTheEnd) {
  const FakeDaemon daemon([](const json&) {
    return json::parse(R"({"from": "a", "to": "b", "by": "team", "unit": "GPU-hours", "rows": [
        {"key": "ops", "held_hours": 1, "busy_hours": 1, "waited_hours": 0, "unmanaged_hours": 0,
         "memory_gib_hours": 0, "efficiency": 1, "launches": 3, "grants": 1},
        {"key": "r", "held_hours": 1.5, "busy_hours": 1, "waited_hours": 0, "unmanaged_hours": 0,
         "memory_gib_hours": 0, "efficiency": 0.5, "launches": 3, "grants": 1,
         "budget_hours": 500, "budget_period_s": 2592000, "budget_held_hours": 512.25,
         "over_budget": true}],
      "held_hours": 2.5, "idle_hours": 0.5, "unattributed_hours": 0, "capacity_hours": 3})");
  });
  const auto printed = [&](const char* format) {
    return RunBaton({"report", "--format", format, "--socket-dir", daemon.socket_dir()}).out;
  };
  const std::string csv = printed("csv");
  EXPECT_NE(csv.find(",unattributed_gpu_hours,budget_gpu_hours,budget_held_gpu_hours\nops,1.0"),
            std::string::npos)
      << csv;
  EXPECT_NE(csv.find("\nr,1.500000000,1.000000000,0.500000000,0.000000000,0.000000000,3,,,,"
                     "500.000000000,512.250000000\n"),
            std::string::npos)
      << csv;
  const std::string table = printed("table");
  EXPECT_NE(table.find("LAUNCHES   BUDGET    OF IT\n"), std::string::npos) << table;
  EXPECT_NE(table.find("3  500.000  512.250\n"), std::string::npos) << table;
}

TEST(Report, AsksForZonesAndPartsOnlyWhereTheyAreGiven) {
  FakeDaemon daemon(Books);
  RunBaton({"report", "--by", "user", "--time-zone", "Europe/Berlin", "--team", "r", "--user", "u",
            "--namespace", "n", "--pod", "p", "--socket-dir", daemon.socket_dir()});
  const auto requests = daemon.requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0], (json{{"command", "report"},
                               {"by", "user"},
                               {"from", ""},
                               {"to", ""},
                               {"last", ""},
                               {"time_zone", "Europe/Berlin"},
                               {"team", "r"},
                               {"user", "u"},
                               {"namespace", "n"},
                               {"pod", "p"}}));
}

TEST(Report, AsksForTheWindowAsItWasWritten) {
  FakeDaemon daemon(Books);
  RunBaton({"report", "--by", "day", "--from", "2026-11-01", "--to", "2026-11-02", "--socket-dir",
            daemon.socket_dir()});
  const auto requests = daemon.requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0], (json{{"command", "report"},
                               {"by", "day"},
                               {"from", "2026-11-01"},
                               {"to", "2026-11-02"},
                               {"last", ""}}));
}

TEST(Report, WhatTheDaemonRefusesIsOneLine) {
  const FakeDaemon daemon([](const json&) {
    return json{{"ok", false}, {"code", "invalid"}, {"error", "nothing is reported by 'x'"}};
  });
  const Outcome outcome = RunBaton({"report", "--by", "x", "--socket-dir", daemon.socket_dir()});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err, "baton: nothing is reported by 'x'\n");
  EXPECT_EQ(outcome.out, "");
}

// A report that is cut short at a full disk must not pass for a whole one.
TEST(Report, ThatCannotBeWrittenIsAnError) {
  const FakeDaemon daemon([](const json& request) {
    return request.at("command") == "status" ? json::object() : Books(request);
  });
  for (std::vector<std::string> command :
       std::vector<std::vector<std::string>>{{"report", "--by", "user"},
                                             {"report", "--by", "user", "--format", "csv"},
                                             {"report", "--by", "user", "--format", "json"},
                                             {"standing"},
                                             {"standing", "--format", "parsable"},
                                             {"advise"},
                                             {"whatif"},
                                             {"log"},
                                             {"explain", "pod", "a"},
                                             {"status", "--json"}}) {
    command.insert(command.end(), {"--socket-dir", daemon.socket_dir()});
    const Outcome outcome = RunBaton(command, {}, "/dev/full");
    EXPECT_EQ(outcome.status, 1) << command[0];
    EXPECT_EQ(outcome.err, "baton: cannot write the output: No space left on device\n");
  }
  EXPECT_EQ(RunBaton({"report", "--help"}, {}, "/dev/full").status, 1);
}

TEST(Report, AnAnswerOfAnotherShapeIsNoCrash) {
  const FakeDaemon daemon([](const json&) { return json{{"by", "team"}, {"rows", 5}}; });
  for (const char* command : {"report", "standing", "advise", "whatif", "log"}) {
    const Outcome outcome = RunBaton({command, "--socket-dir", daemon.socket_dir()});
    EXPECT_EQ(outcome.status, 1) << command;
    EXPECT_EQ(outcome.err.find("baton: unexpected answer: "), 0u) << outcome.err;
  }
}

TEST(JsonLines, AreTheRowsWithWhatHoldsForAll) {
  for (const char* command : {"report", "standing", "advise", "whatif", "log"}) {
    const json whole = json::parse(Printed({command, "--json"}));
    std::istringstream lines(Printed({command, "--format", "jsonl"}));
    std::string line;
    size_t count = 0;
    while (std::getline(lines, line)) {
      const json got = json::parse(line);
      const json& row = whole.at("rows").at(count++);
      for (const auto& [name, value] : row.items()) EXPECT_EQ(got.at(name), value) << line;
      for (const auto& [name, value] : whole.items()) {
        if (!value.is_string()) continue;
        EXPECT_EQ(got.at(name), row.value(name, value.get<std::string>())) << command;
      }
      EXPECT_FALSE(got.contains("ok"));
    }
    EXPECT_EQ(count, whole.at("rows").size()) << command;
    EXPECT_GT(count, 0u) << command;
  }
}

TEST(Report, AFormatThatIsNoneIsRefused) {
  for (const char* command : {"report", "standing", "advise", "whatif", "log"}) {
    const Outcome outcome = RunBaton({command, "--format", "xml"});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.err,
              std::string("baton: unknown format 'xml'; choose table, csv, json, jsonl") +
                  (std::string(command) == "report" ? ", parsable or focus\n" : " or parsable\n"));
  }
}

TEST(Standing, AsCsvKeepsItsColumns) {
  EXPECT_EQ(Printed({"standing", "--format", "csv"}),
            "Team,User,RawShares,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS,Rank,"
            "Uncounted\n"
            R"((all),,1,1.000000,3.500000000,1.000000,1.000000,0.500000,1.000000,,1.250000000
research/vision,,3,0.250000,0.000001000,0.125000,0.100000,0.757858,2.000000,1,1.250000000
research/vision,user-a,1,0.250000,0.000000000,0.000000,0.000000,1.000000,inf,2,0.000000000
)") << "the daemon of the last row is of a version before";
}

TEST(Standing, ForPeopleStandsAsATree) {
  const std::string table = Printed({"standing"});
  EXPECT_NE(table.find("\n  research/vision  user-a          1    0.250000"), std::string::npos)
      << table;
  EXPECT_EQ(table.find("Team               User"), 0u) << table;
}

TEST(Explain, PrintsItsSentencesWithoutControlCharacters) {
  EXPECT_EQ(Printed({"explain", "pod", "trainer"}), "Asked of trainer\nb?\n");
  EXPECT_EQ(Printed({"explain", "team", "r/v"}), "Asked of r/v\nb?\n");
  const Outcome outcome = RunBaton({"explain", "user", "x"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err, "baton: unknown command 'user'; see 'baton explain --help'\n");
}

TEST(Log, PrintsWhoChangedWhatFromWhatToWhat) {
  EXPECT_EQ(Printed({"log", "--format", "parsable"}),
            "TIME|NODE|WHO|WHAT|OBJECT|CHANGE\n"
            "2026-11-25T08:00:02Z|n1|root|set|pod vision/a|request 30.0 -> 40.5?\n"
            "2026-11-25T08:00:01Z|n1|uid 4294967294|cordon|gpu GPU-a|\n"
            "2026-11-25T08:00:00Z|n1|alice?|delete|pod b|request was 5\n");
  EXPECT_NE(Printed({"log"}).find("--from and --to show others"), std::string::npos);
  EXPECT_EQ(Printed({"log", "--last", "1h"}),
            "Nothing was changed from 2026-11-25T08:00:00Z to 2026-11-25T09:00:00Z.\n");
}

TEST(Advise, PrintsWhatToSetOrThatAllIsWell) {
  EXPECT_EQ(Printed({"advise", "--format", "csv"}),
            "POD,GPU,WHAT,NOW,USED p99,SET TO,FREES,WHY\n"
            "a,GPU-01234567,memory,8GiB,1GiB,1.25GiB,6.75GiB,it never used more\n");
  EXPECT_NE(Printed({"advise"}).find("\n\n1 of 3 pods has less than 20 hours"), std::string::npos);
  EXPECT_EQ(Printed({"advise", "--last", "1h"}), "All requests and memory caps fit the use.\n");
  EXPECT_EQ(Printed({"advise", "--last", "1h", "--format", "csv"}),
            "POD,GPU,WHAT,NOW,USED p99,SET TO,FREES,WHY\n");
}

TEST(WhatIf, PrintsWhatPodsWouldGet) {
  EXPECT_EQ(Printed({"whatif", "--format", "csv"}),
            "POD,TEAM,GPU,REQUEST,LIMIT,ALONE,HAD,WOULD GET,WOULD WAIT\n"
            "vision/a,t,GPU-0123456789abcdef,60.000000,100.000000,99.960000,50.000000,66.666670,"
            "33.300000\n"
            "b?,,GPU-0123456789abcdef,-,100.000000,2.500000,7.500000,2.500000,0.000000\n");
  EXPECT_EQ(Printed({"whatif"}),
            "POD       TEAM  GPU           REQUEST   LIMIT   ALONE    HAD  WOULD GET  WOULD WAIT\n"
            "vision/a  t     GPU-01234567    60.0%  100.0%  100.0%  50.0%      66.7%       33.3%\n"
            "b?              GPU-01234567        -  100.0%    2.5%   7.5%       2.5%        0.0%\n"
            "\n-: not known any more, so it has what others leave; --shares says what it asks "
            "for.\n");
  EXPECT_EQ(Printed({"whatif", "--last", "1h"}), "No pod used a GPU by the token in this time.\n");
}

TEST(TextTable, StandsInColumnsWhateverTheScript) {
  const TextTable table{{{"NAME", true}, {"N"}}, {{"größe", "1"}, {"b", "1000"}}};
  EXPECT_EQ(table.Lines(), (std::vector<std::string>{"NAME      N", "größe     1", "b      1000"}));
  EXPECT_EQ(table.Lines(4), (std::vector<std::string>{"NAME", "größ", "b   "}));
}

TEST(TextTable, CsvQuotesWhatNeedsItAndDisarmsFormulas) {
  TextTable table{{{"a"}}, {}};
  for (const char* cell : {"x", "", "a,b", "say \"so\"", "two\nlines", "=1", "+1", "-x", "@x",
                           "\tx", "-1.5", "1e-05", "=\"a,b\""}) {
    table.rows.push_back({cell});
  }
  EXPECT_EQ(table.Csv(),
            "a\nx\n\n\"a,b\"\n\"say \"\"so\"\"\"\n\"two\nlines\"\n'=1\n'+1\n'-x\n'@x\n'\tx\n-1.5\n"
            "1e-05\n\"'=\"\"a,b\"\"\"\n");
}

TEST(TextTable, ParsableCellsCanBeToldApartAgain) {
  const TextTable table{{{"a"}, {"b"}}, {{"x|y", "z"}, {"x\\", "|y"}, {"", ""}}};
  EXPECT_EQ(table.Parsable(), "a|b\nx\\|y|z\nx\\\\|\\|y\n|\n");
}

}  // namespace
}  // namespace baton::cli
