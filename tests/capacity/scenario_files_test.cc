#include "capacity/scenario_files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/capacity/clusters.h"

namespace baton::capacity {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

Result<Scenario> Read(const ScenarioFiles& files) {
  return ReadScenario(files.cluster, "cluster.toml",
                      [&](const std::string& file) -> Result<std::string> {
                        if (file == kTeamsFile) return files.teams;
                        if (file == kPodsFile) return files.pods;
                        return Fail(ErrorCode::kNotFound, file + " does not exist");
                      });
}

TEST(ScenarioFiles, SayTheSameAgain) {
  Scenario s;
  s.length = hours(10);
  s.nodes = {NodeOf("n", 2), NodeOf("m", 3), NodeOf("without", 0)};
  s.overcommit = 1.5;
  s.uncontended_use = policy::ShareOf(0.25);
  s.placement.nodes = devmgr::Rule::kBinpack;
  s.teams.half_life = hours(24);
  s.teams.teams = {TeamOf("a", 2), TeamOf("a/b", 3)};
  s.guarantees = {{"a", 1.5}};
  s.uses = {{"a", "", 12.5, 3}, {"b", "", 1, 0}};
  s.pods = {PodOf("x", "a/b", 30, -hours(1), hours(2), 2, 0.5),
            PodOf("y", "", 100, seconds(90), hours(3))};
  s.pods[0].course.push_back({seconds(17), 0.125});
  s.pods[0].on = {"n/0", "n/1"};
  s.pods[0].advised = policy::ShareOf(0.2);
  s.pods[0].had_hours = 1.25;
  s.pods[0].request.gang = "g";
  s.pods[0].request.priority = -3;
  s.pods[0].request.models = {"H200", "A100 80GB"};
  s.pods[0].request.containers[0].vgpus[0].memory_mib = 5'000;
  s.pods[1].ends = Ends::kNever;
  s.pods[1].request.mode = "exclusive";
  s.pods[1].request.containers[0].vgpus[0].memory_part = policy::ShareOf(0.5);
  s.pods.push_back(PodOf("idle", "c", 10, Duration(0), hours(1)));
  s.pods[2].ends = Ends::kTime;
  s.pods[2].request.idle = true;
  s.pods[2].request.containers[0].vgpus[0].share = policy::Share(0);
  s.pods[2].share =
      policy::Validated({.request = policy::Share(0), .priority = policy::Priority::kIdle}).value();

  const ScenarioFiles files = WriteScenario(s);
  const auto read = Read(files);
  ASSERT_TRUE(read) << read.error().message << "\n" << files.cluster << files.pods;
  EXPECT_EQ(read->length, s.length);
  EXPECT_EQ(read->overcommit, 1.5);
  EXPECT_EQ(read->uncontended_use, s.uncontended_use);
  EXPECT_EQ(read->placement, s.placement);
  EXPECT_EQ(read->guarantees, s.guarantees);
  EXPECT_EQ(teams::PrintTeams(read->teams), teams::PrintTeams(s.teams));
  ASSERT_EQ(read->nodes.size(), 3u);
  for (size_t n = 0; n < 2; ++n) {
    EXPECT_EQ(read->nodes[n].name, s.nodes[n].name);
    ASSERT_EQ(read->nodes[n].cards.size(), s.nodes[n].cards.size());
    EXPECT_EQ(read->nodes[n].cards[1].uuid, s.nodes[n].cards[1].uuid);
    EXPECT_EQ(read->nodes[n].cards[1].memory_mib, 10'000u);
  }
  ASSERT_EQ(read->pods.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read->pods[i].request, s.pods[i].request) << i;
    EXPECT_EQ(read->pods[i].share, s.pods[i].share) << i;
    EXPECT_EQ(read->pods[i].came, s.pods[i].came) << i;
    EXPECT_EQ(read->pods[i].ends, s.pods[i].ends) << i;
    EXPECT_EQ(read->pods[i].on, s.pods[i].on) << i;
    EXPECT_EQ(read->pods[i].advised, s.pods[i].advised) << i;
    EXPECT_EQ(read->pods[i].had_hours, s.pods[i].had_hours) << i;
    ASSERT_EQ(read->pods[i].course.size(), s.pods[i].course.size()) << i;
    for (size_t n = 0; n < s.pods[i].course.size(); ++n) {
      EXPECT_EQ(read->pods[i].course[n].length, s.pods[i].course[n].length);
      EXPECT_EQ(read->pods[i].course[n].alone, s.pods[i].course[n].alone);
    }
  }
  EXPECT_EQ(WriteScenario(*read).pods, files.pods);
  EXPECT_EQ(WriteScenario(*read).cluster, files.cluster);
}

// As Alibaba published it (github.com/alibaba/clusterdata, cluster-trace-gpu-v2023).
TEST(ScenarioFiles, ATraceOfPodsIsRead) {
  const auto pods = ReadPods(
      "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
      "deletion_time,scheduled_time\n"
      "p0,12000,16384,1,1000,,LS,Running,0,12537496,0\n"
      "p1,6000,12288,1,460,V100M16|V100M32,LS,Running,427061,,427061\n"
      "p2,6000,12288,1,460,,LS,Running,100,400,160\n");
  ASSERT_TRUE(pods) << pods.error().message;
  ASSERT_EQ(pods->size(), 3u);
  EXPECT_EQ((*pods)[0].ends, Ends::kWork);
  EXPECT_EQ((*pods)[0].course[0].length, seconds(12537496));
  EXPECT_EQ((*pods)[1].ends, Ends::kNever);
  EXPECT_EQ((*pods)[1].request.models, (std::vector<std::string>{"V100M16", "V100M32"}));
  EXPECT_EQ((*pods)[2].came, seconds(100));
  EXPECT_EQ((*pods)[2].course[0].length, seconds(240)) << "it waited for a minute";
}

TEST(ScenarioFiles, NodesComeByNumberAndFromATrace) {
  ScenarioFiles files{"pods = \"pods.csv\"\n[[node]]\nname = \"n\"\ncount = 3\ngpus = 2\n", "",
                      "name,cpu_milli,memory_mib,num_gpu,gpu_milli,deletion_time,use\n"
                      "p,0,0,1,500,100,40\n"};
  const auto read = Read(files);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->nodes.size(), 3u);
  EXPECT_EQ(read->nodes[2].name, "n-3");
  EXPECT_EQ(read->length, seconds(100)) << "until the last pod would be through";
  EXPECT_EQ(read->pods[0].course[0].alone, 0.4);
  EXPECT_TRUE(Play(*read));

  files.cluster = "pods = \"pods.csv\"\nnodes = \"teams.toml\"\n";
  files.teams = "sn,cpu_milli,memory_mib,gpu,model\nx,1000,1000,2,A10\n";
  const auto traced = Read(files);
  ASSERT_TRUE(traced) << traced.error().message;
  EXPECT_EQ(traced->nodes[0].cards.size(), 2u);
}

TEST(ScenarioFiles, SayWhatIsWrongAndWhere) {
  const std::string head =
      "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time,"
      "use,ends,gpu_memory,limit_milli\n";
  const auto of_pods = [&](const std::string& row) {
    const auto pods = ReadPods(head + row + "\n");
    return pods ? "" : pods.error().message;
  };
  EXPECT_EQ(of_pods("p,0,0,1,500,0,10,,,,"), "");
  EXPECT_EQ(of_pods("p,0,0,1,500,0,10,x,,,"),
            "line 2: use: 'x' is not a percentage such as 40, nor percentages with seconds such as "
            "100*3600 5*600");
  EXPECT_EQ(of_pods("p,0,0,1,500,0,10,,soon,,"),
            "line 2: ends: 'soon' is none of work, time, never");
  EXPECT_NE(of_pods("p,0,0,1,500,20,10,,,,").find("line 2: deletion_time"), std::string::npos);
  EXPECT_NE(of_pods("p,0,0,0,500,0,10,,,,").find("num_gpu"), std::string::npos);
  EXPECT_NE(of_pods("p,0,0,1,500,0,10,,,much,").find("gpu_memory"), std::string::npos);
  EXPECT_NE(of_pods("p,0,0,1,500,0,10,,,,2000").find("limit_milli"), std::string::npos);
  EXPECT_NE(of_pods("p,0,0,1,500,0,,50,work,,").find("ends"), std::string::npos);
  const auto of_cluster = [](const std::string& text) {
    const auto read =
        Read({text, "", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,0,0,1,500\n"});
    return read ? "" : read.error().message;
  };
  EXPECT_EQ(of_cluster("pods = \"pods.csv\"\n[[node]]\nname = \"n\"\ngpu = 4\n"),
            "cluster.toml:4: [[node]] has no key gpu; it has name, count, gpus, model, memory");
  EXPECT_EQ(of_cluster("pods = \"pods.csv\"\n"), "cluster.toml: the cluster needs a [[node]]");
  EXPECT_EQ(of_cluster("[[node]]\nname = \"n\"\n"),
            "cluster.toml: pods = \"FILE.csv\" must name the pods");
  EXPECT_EQ(of_cluster("pods = \"other.csv\"\n[[node]]\nname = \"n\"\n"),
            "other.csv does not exist");
  EXPECT_NE(of_cluster("length = 3\n").find("cluster.toml:1: length"), std::string::npos);
  EXPECT_NE(of_cluster("[[node]]\nname = \"n\"\nmemory = \"x\"\n"), "");
  EXPECT_NE(of_cluster("[[guarantee]]\ngpus = 3\n"), "");
  EXPECT_NE(of_cluster("[placement]\nnodes = \"best\"\n"), "");
  EXPECT_NE(of_cluster("[[node]\n"), "");
}

}  // namespace
}  // namespace baton::capacity
