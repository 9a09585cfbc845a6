// `baton simulate cluster`: by a daemon's books, by files, and what is said about wrong questions.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/harness.h"

namespace baton::cli {
namespace {

using nlohmann::json;

// A pod of a whole GPU for an hour every 20 minutes, on two GPUs, of which it uses 40 %.
constexpr const char* kCluster = R"(length = "6h"
pods = "pods.csv"
teams = "teams.toml"
[[node]]
name = "n"
gpus = 2
)";
constexpr const char* kTeams = "history = 0\n[[team]]\nname = \"research\"\nweight = 3\n";
std::string Pods() {
  std::string pods =
      "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time,team,advised_milli,"
      "had_hours,use,gpu_memory\n";
  for (int n = 0; n < 18; ++n) {
    pods += "p" + std::to_string(n) + ",0,0,1,1000," + std::to_string(1200 * n) + "," +
            std::to_string(1200 * n + 3600) + "," + (n % 3 == 0 ? "ops" : "research") +
            ",500,0.5,40,0\n";
  }
  return pods;
}

std::string TextIn(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class SimulateCluster : public testing::Test {
 protected:
  SimulateCluster() {
    std::ofstream(folder_.path() + "/cluster.toml") << kCluster;
    std::ofstream(folder_.path() + "/teams.toml") << kTeams;
    std::ofstream(folder_.path() + "/pods.csv") << Pods();
  }
  Outcome Run(std::vector<std::string> flags) const {
    flags.insert(flags.begin(), {"simulate", "cluster", folder_.path()});
    return RunBaton(flags);
  }
  json Json(std::vector<std::string> flags = {}) const {
    flags.push_back("--json");
    const Outcome outcome = Run(flags);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out);
  }
  TempFolder folder_;
};

double Share(const json& outcome, const std::string& team) {
  for (const json& row : outcome.at("teams")) {
    if (row.at("team") == team) return row.at("share");
  }
  return -1;
}

TEST_F(SimulateCluster, TellsWhatTeamsGetAndHowLongTheyWait) {
  const Outcome outcome = Run({});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* text :
       {"18 pods, 2 GPUs, 12.0 GPU-hours", "TEAM", "ASKED", "RECORDED", "GOT", "SHARE", "WAIT p50",
        "p99", "NO PLACE", "\nops ", "\nresearch ", "\n(all) ", "n/1", "BUSY"}) {
    EXPECT_NE(outcome.out.find(text), std::string::npos) << text << "\n" << outcome.out;
  }
  EXPECT_EQ(outcome.out.find("AS IT IS"), std::string::npos);
  const json is = Json().at("as_it_is");
  EXPECT_NEAR(Share(is, "ops") + Share(is, "research"), 40, 2);
  EXPECT_EQ(Json().at("recorded_hours").at("ops"), 3);
  EXPECT_FALSE(Json().contains("what_if"));
}

// Three GPUs of work: two more end the wait, and as advised half a GPU for each does too.
TEST_F(SimulateCluster, AnswersWhatWouldBeOtherwise) {
  for (const std::vector<std::string>& question :
       {std::vector<std::string>{"--add-gpus", "2"}, {"--add-nodes", "1"}, {"--advised"}}) {
    const json answer = Json(question);
    double longest_s = 0;
    for (const json& team : answer.at("as_it_is").at("teams")) {
      longest_s = std::max(longest_s, team.at("wait_max_s").get<double>());
    }
    EXPECT_GT(longest_s, 3000);
    for (const json& team : answer.at("what_if").at("teams")) {
      EXPECT_EQ(team.at("wait_max_s"), 0) << question[0];
      EXPECT_EQ(team.at("no_place"), 0);
    }
  }
  const Outcome outcome = Run({"--add-gpus", "2"});
  EXPECT_NE(outcome.out.find("AS IT IS"), std::string::npos);
  EXPECT_NE(outcome.out.find("added-1/1"), std::string::npos) << outcome.out;
}

TEST_F(SimulateCluster, WeightsGuaranteesLimitsAndSharesAreFlags) {
  EXPECT_LT(Share(Json({"--limit", "ops=0.5"}).at("what_if"), "ops"), 0.1) << "none fits in it";
  EXPECT_EQ(Run({"--weight", "ops=90%", "--weight", "research=3"}).status, 0);
  EXPECT_EQ(Run({"--guarantee", "ops=50%,research=1"}).status, 0);
  EXPECT_EQ(Run({"--shares", "p1=30:50,p2=10", "--shares", "p3=50"}).status, 0);
}

TEST_F(SimulateCluster, ThePictureHasTeamsAndTheirWaits) {
  const std::string path = folder_.path() + "/x.svg";
  ASSERT_EQ(Run({"--svg", path}).status, 0);
  const std::string svg = TextIn(path);
  for (const char* text : {"When pods waited for a place", "Share of all GPUs", "research"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(Run({"--svg", "/nowhere/x.svg"}).status, 1);
}

TEST_F(SimulateCluster, ABatondsBooksAreAskedAndCanBeKept) {
  const FakeDaemon daemon([](const json& request) -> json {
    EXPECT_EQ(request.at("command"), "workload");
    EXPECT_EQ(request.at("last"), "7d");
    return {{"from", "2026-11-18T09:00:00Z"},
            {"to", "2026-11-25T09:00:00Z"},
            {"left_out", 2},
            {"cluster", kCluster},
            {"teams", kTeams},
            {"pods", Pods()}};
  });
  const std::string kept = folder_.path() + "/kept";
  const Outcome outcome = RunBaton(
      {"simulate", "cluster", "--last", "7d", "--save", kept, "--socket-dir", daemon.socket_dir()});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("2026-11-18T09:00:00Z to 2026-11-25T09:00:00Z"), std::string::npos);
  EXPECT_NE(outcome.out.find("Left out: 2 pods"), std::string::npos);
  const Outcome again = RunBaton({"simulate", "cluster", kept});
  ASSERT_EQ(again.status, 0) << again.err;
  const auto tables = [](const std::string& text) {
    const size_t from = text.find("TEAM");
    return text.substr(from, text.find("\nLeft out") - from);
  };
  EXPECT_EQ(tables(again.out), tables(outcome.out));
  EXPECT_EQ(RunBaton({"simulate", "cluster", kept, "--last", "7d"}).status, 2);
}

TEST_F(SimulateCluster, OptionsBeforeItAreNotForgotten) {
  const Outcome got = RunBaton({"simulate", "--json", "cluster", "/nowhere"});
  EXPECT_EQ(got.status, 2);
  EXPECT_NE(got.err.find("write it after 'cluster'"), std::string::npos) << got.err;
}

TEST_F(SimulateCluster, SaysWhatToDo) {
  const auto error = [](const Outcome& outcome) {
    EXPECT_NE(outcome.status, 0);
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_NE(error(Run({"--weight", "reserch=3"})).find("did you mean research?"),
            std::string::npos);
  EXPECT_NE(error(Run({"--weight", "research"})).find("TEAM=WEIGHT"), std::string::npos);
  EXPECT_NE(error(Run({"--add-gpus", "0"})).find("--add-gpus"), std::string::npos);
  EXPECT_NE(
      error(RunBaton({"simulate", "cluster", folder_.path() + "/none.toml"})).find("none.toml"),
      std::string::npos);
  EXPECT_NE(error(RunBaton({"simulate", "cluster", "--socket-dir", folder_.path()}))
                .find("name a cluster's file"),
            std::string::npos);
  EXPECT_NE(error(RunBaton({"simulate"})).find("WORKLOAD is required"), std::string::npos);
  std::ofstream(folder_.path() + "/pods.csv") << "name\n";
  EXPECT_NE(error(Run({})).find("pods.csv: line 1: there is no column"), std::string::npos);
  const FakeDaemon empty([](const json&) -> json {
    return {{"ok", false}, {"code", "not_found"}, {"error", "no pod was there"}};
  });
  EXPECT_NE(error(RunBaton({"simulate", "cluster", "--socket-dir", empty.socket_dir()}))
                .find("no pod was there"),
            std::string::npos);
}

}  // namespace
}  // namespace baton::cli
