// What `baton top` and `baton status` make of a status answer.
#include "cli/pod_table.h"

#include <gtest/gtest.h>

#include "tests/cli/harness.h"

namespace baton::cli {
namespace {

using nlohmann::json;

PodRow Row(std::string gpu, std::string pod, double request, double achieved) {
  PodRow row;
  row.gpu = std::move(gpu);
  row.pod = std::move(pod);
  row.request = request;
  row.achieved_1s = achieved;
  return row;
}

std::vector<std::string> Names(const std::vector<PodRow>& rows) {
  std::vector<std::string> names;
  names.reserve(rows.size());
  for (const PodRow& row : rows) names.push_back(row.pod);
  return names;
}

TEST(PodTable, SortsNamesUpAndAmountsDown) {
  std::vector<PodRow> rows{Row("1", "a", 10, 50), Row("0", "c", 30, 20), Row("0", "b", 30, 30)};
  Sort(rows, SortBy::kGpu);
  EXPECT_EQ(Names(rows), (std::vector<std::string>{"b", "c", "a"}));
  Sort(rows, SortBy::kPod);
  EXPECT_EQ(Names(rows), (std::vector<std::string>{"a", "b", "c"}));
  Sort(rows, SortBy::kRequest);
  EXPECT_EQ(Names(rows), (std::vector<std::string>{"b", "c", "a"}));
  Sort(rows, SortBy::kAchieved);
  EXPECT_EQ(Names(rows), (std::vector<std::string>{"a", "b", "c"}));
}

TEST(PodTable, ColumnsAlignAndLinesAreCutToTheWidth) {
  const std::vector<std::string> table =
      Table({Row("GPU-1", "short", 5, 5), Row("GPU-1", "a-much-longer-name", 100, 99.9)}, 0);
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table[1].find("5.0"), table[2].find("100.0") + 2) << table[1] << "\n" << table[2];
  for (const std::string& line : Table({Row("GPU-1", "short", 5, 5)}, 20)) {
    EXPECT_LE(line.size(), 20u);
  }
}

TEST(PodTable, HowLatenciesWereMetIsShownWhereSomebodyHasOne) {
  PodRow serve = Row("0", "serve", 10, 10), fresh = Row("0", "fresh", 10, 0);
  EXPECT_EQ(Table({serve}, 0)[0].find("IN TIME"), std::string::npos);
  serve.latency_ns = fresh.latency_ns = 20'000'000;
  serve.latency_waits = 1'000;
  serve.latency_late = 8;
  const auto table = Table({serve, Row("0", "train", 50, 90), fresh}, 0);
  EXPECT_NE(table[0].find("IN TIME"), std::string::npos) << table[0];
  EXPECT_NE(table[1].find("99.2% of 20ms"), std::string::npos) << table[1];
  EXPECT_EQ(table[2].find("20ms"), std::string::npos) << table[2];
  EXPECT_NE(table[3].find("- of 20ms"), std::string::npos) << table[3];
  // From a status answer, too; one of an older daemon has none.
  const auto rows = RowsFrom(json::parse(R"({"pods": [{"name": "serve", "latency_ns": 5000000,
      "latency_waits": 4, "latency_late": 1, "gpus": [{"uuid": "GPU-1"}]},
      {"name": "old", "gpus": [{"uuid": "GPU-1"}]}]})"));
  EXPECT_NE(Table(rows, 0)[1].find("75.0% of 5ms"), std::string::npos) << Table(rows, 0)[1];
}

TEST(PodTable, ATenantsNameCannotReachTheTerminal) {
  for (const char* evil : {"\033[2J",
                           "\xc2\x9b"
                           "2J",
                           "\u202e"}) {
    const std::vector<std::string> table = Table({Row("0", std::string("evil") + evil, 1, 1)}, 0);
    EXPECT_EQ(table[1].find(evil), std::string::npos);
  }
}

TEST(PodTable, CutsBetweenCharacters) {
  const std::vector<std::string> table = Table({Row("GPU", "äöü", 1, 1)}, 2);
  EXPECT_EQ(table[1], "äö");
}

const char kStatus[] = R"({
  "daemon": {"version": "0.1.0", "mode": "enforce", "degraded": ["the disk is full"]},
  "gpus": [{"uuid": "GPU-0123456789ab", "name": "Simulated", "node": "", "holder": "trainer",
            "queue": ["notebook"], "hung": false, "present": true}],
  "nodes": [{"name": "n1", "link": "cut"}],
  "pods": [
    {"name": "trainer", "request": 60.0, "limit": 100.0, "memory": 4294967296, "priority": "high",
     "team": "research/vision",
     "gpus": [{"uuid": "GPU-0123456789ab", "node": "", "phase": "holding", "achieved_1s": 61.5,
               "achieved_10s": 60.25, "achieved_60s": 59.9, "waited_1s": 12.5,
               "memory_used": 1073741824}]},
    {"name": "notebook", "request": 10.0, "limit": 20.0, "memory": 0, "priority": "low", "team": "",
     "gpus": [{"uuid": "GPU-0123456789ab", "node": "n1", "phase": "waiting", "achieved_1s": 9.5,
               "achieved_10s": 10.0, "achieved_60s": 0.0, "waited_1s": 90.0, "memory_used": 0}]}]})";

TEST(PodTable, TopInAPipePrintsPlainLines) {
  FakeDaemon daemon([](const json&) { return json::parse(kStatus); });
  const Outcome outcome = RunBaton({"top", "--once", "--socket-dir", daemon.socket_dir()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(
      outcome.out,
      "GPU              POD        REQUEST  LIMIT    1s   10s   60s  WAIT%     MEMORY  PHASE"
      "    TEAM\n"
      "GPU-01234567     trainer ^     60.0  100.0  61.5  60.2  59.9   12.5  1GiB/4GiB  holding"
      "  research/vision\n"
      "n1:GPU-01234567  notebook      10.0   20.0   9.5  10.0   0.0   90.0         0B  "
      "waiting\n");
  EXPECT_EQ(daemon.requests().at(0), (json{{"command", "status"}}));
}

TEST(PodTable, TopSaysForHowManyPodsOfItsGangAPodWaits) {
  json status = json::parse(kStatus);
  status["pods"][0]["gang_missing"] = 2;
  status["pods"][1]["gang_missing"] = 1;
  FakeDaemon daemon([&](const json&) { return status; });
  const Outcome outcome = RunBaton({"top", "--once", "--socket-dir", daemon.socket_dir()});
  EXPECT_NE(outcome.out.find("1GiB/4GiB  waits for 2 pods  research"), std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("0B  waits for 1 pod\n"), std::string::npos) << outcome.out;
}

TEST(PodTable, StatusTellsWhatIsWrongAndWhoHolds) {
  FakeDaemon daemon([](const json&) { return json::parse(kStatus); });
  const Outcome outcome = RunBaton({"status", "--socket-dir", daemon.socket_dir()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const char* part :
       {"! the disk is full\n", "! the link to node n1 is cut",
        "0  GPU-0123456789ab  Simulated  held by trainer, 1 waiting\n", "research/vision\n"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
}

TEST(PodTable, StatusTellsAGpusIndexItsMemoryAndWhetherItIsCordoned) {
  const json status{{"gpus",
                     {{{"uuid", "GPU-a"}, {"memory", uint64_t{8} << 30}, {"cordoned", true}},
                      {{"uuid", "GPU-b"},
                       {"node", "n1"},
                       {"memory", uint64_t{80} << 30},
                       {"unmanaged", {{{"pid", 5}, {"memory", uint64_t{1} << 30}}}}}}},
                    {"pods",
                     {{{"gpus", {{{"uuid", "GPU-b"}, {"memory_used", uint64_t{3} << 29}}}}},
                      {{"gpus", {{{"uuid", "GPU-b"}, {"memory_used", uint64_t{2} << 30}}}}}}}};
  const std::vector<std::string> lines = Summary(status);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1], "0  GPU-a  0B/8.0GiB  free, cordoned");
  EXPECT_EQ(lines[2], "1  n1:GPU-b  4.5GiB/80.0GiB  used without the token");
}

TEST(PodTable, AGpuThatGivesNoTokenIsNotCalledFree) {
  const std::vector<std::string> lines =
      Summary({{"gpus",
                {{{"uuid", "GPU-a"}, {"health", "failed"}},
                 {{"uuid", "GPU-b"}, {"health", "missing"}, {"cordoned", true}},
                 {{"uuid", "GPU-c"}, {"health", "healthy"}, {"mig_enabled", true}}}}});
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1], "0  GPU-a  failed");
  EXPECT_EQ(lines[2], "1  GPU-b  missing, cordoned");
  EXPECT_EQ(lines[3], "2  GPU-c  MIG, no token");
}

TEST(PodTable, ProcessesWithoutTheTokenAreNamed) {
  json gpu{{"uuid", "GPU-0"}, {"unmanaged", json::array()}};
  const auto lines = [&] { return Summary({{"gpus", {gpu}}}); };
  ASSERT_EQ(lines().size(), 2u);
  EXPECT_EQ(lines()[1], "0  GPU-0  free");
  EXPECT_EQ(UnmanagedNote({{"gpus", {gpu}}}), "");
  gpu["unmanaged"] = {{{"pid", 4711},
                       {"user", "bob"},
                       {"uid", 1000},
                       {"command", "py\x1bthon"},
                       {"container", std::string(64, 'a')},
                       {"pod", "train"},
                       {"memory", uint64_t{3} << 30}},
                      {{"pid", 5}, {"user", ""}, {"uid", 7}, {"command", "x"}},
                      {{"pid", 6}}};
  ASSERT_EQ(lines().size(), 5u);
  EXPECT_EQ(lines()[1], "0  GPU-0  used without the token");
  EXPECT_EQ(lines()[2],
            "  ! process 4711 (py?thon) of user bob in container aaaaaaaaaaaa of pod train, with "
            "3GiB, runs without the token");
  EXPECT_EQ(lines()[3], "  ! process 5 (x) of user 7 runs without the token");
  EXPECT_EQ(lines()[4], "  ! process 6 runs without the token");
  gpu["holder"] = "train";
  EXPECT_EQ(lines()[1], "0  GPU-0  held by train");
  EXPECT_EQ(UnmanagedNote({{"gpus", {gpu}}}),
            "! 3 processes run without the token; 'baton status' names them");
}

TEST(PodTable, StatusAsJsonIsOneObjectOfWhatTheDaemonSaid) {
  FakeDaemon daemon([](const json&) { return json::parse(kStatus); });
  const Outcome outcome = RunBaton({"status", "--json", "--socket-dir", daemon.socket_dir()});
  EXPECT_EQ(json::parse(outcome.out), json::parse(kStatus));
}

}  // namespace
}  // namespace baton::cli
