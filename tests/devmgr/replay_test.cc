// Traces of clusters: read, and replayed.
#include "devmgr/placement/replay.h"

#include <gtest/gtest.h>

#include "devmgr/modes/exclusive.h"
#include "devmgr/modes/time_slice.h"
#include "devmgr/placement/churn.h"
#include "devmgr/placement/cluster.h"

namespace baton::devmgr {
namespace {

const TimeSlice kReplayTimeSlice;
const Exclusive kReplayExclusive;
const SharingMode* const kReplayModes[] = {&kReplayTimeSlice, &kReplayExclusive};

TEST(Replay, CountsWhatArrivedAndWhatWasGiven) {
  const auto nodes = ReadTraceNodes("sn,cpu_milli,memory_mib,gpu,model\na,8000,1000,2,T4\n");
  ASSERT_TRUE(nodes);
  const auto pods = ReadTracePods(
      "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
      "half,1000,10,1,500,\n"
      "two,1000,10,2,1000,T4|V100\n"
      "none,1000,10,0,0,\n");
  ASSERT_TRUE(pods) << pods.error().message;
  EXPECT_EQ((*pods)[1].models, (std::vector<std::string>{"T4", "V100"}));
  Cluster cluster(kReplayModes);
  ASSERT_TRUE(cluster.SetNode((*nodes)[0]));
  Replay replay(cluster, {});
  EXPECT_TRUE(replay.Arrive((*pods)[0]));
  EXPECT_FALSE(replay.Arrive((*pods)[1])) << "one GPU is half taken";
  EXPECT_TRUE(replay.Arrive((*pods)[2]));
  EXPECT_EQ(replay.arrived(), policy::Share(2'500'000));
  EXPECT_EQ(replay.allocated(), policy::Share(500'000));
  EXPECT_EQ(replay.placed(), 2u);
  EXPECT_EQ(replay.failed(), 1u);

  const auto arrivals = Arrivals(*pods, policy::kWhole * 2, 10, 7);
  policy::ShareSum demand;
  for (const PodRequest& pod : arrivals) demand += DemandOf(pod);
  EXPECT_GE(demand, policy::kWhole * 20);
  EXPECT_LT(demand, policy::kWhole * 22);
  EXPECT_EQ(arrivals.size(), Arrivals(*pods, policy::kWhole * 2, 10, 7).size());
}

TEST(Replay, WithoutTheColumnOfModelsPodsGoOnAnyModel) {
  const auto pods = ReadTracePods(
      "gpu_milli,num_gpu,name,cpu_milli,memory_mib\n"
      "500,1,half,1000,10\n"
      "1000,2,two,2000,20\n");
  ASSERT_TRUE(pods) << pods.error().message;
  ASSERT_EQ(pods->size(), 2u);
  for (const PodRequest& pod : *pods) EXPECT_TRUE(pod.models.empty()) << pod.name;
  EXPECT_EQ((*pods)[1].name, "two");
  EXPECT_EQ((*pods)[1].cpu_milli, 2'000u);
  EXPECT_EQ(DemandOf((*pods)[1]), policy::kWhole * 2);
  EXPECT_EQ(ReadTracePods("gpu_spec\nT4\n").error().message, "line 1: there is no column 'name'");
}

TEST(Replay, LifetimesAreThoseOfTheTrace) {
  const auto lifetimes =
      ReadTraceLifetimes("name,deletion_time,creation_time\na,100,40\nb,7,7\nc,12902960,427061\n");
  ASSERT_TRUE(lifetimes) << lifetimes.error().message;
  EXPECT_EQ(*lifetimes, (std::vector<double>{60, 1, 12'475'899}));
  EXPECT_EQ(ReadTraceLifetimes("name\na\n").error().message,
            "line 1: there is no column 'creation_time'");
  EXPECT_EQ(ReadTraceLifetimes("creation_time,deletion_time\n1,\n").error().message,
            "line 2: '' is not a number up to 4611686018427387903");
}

TEST(Replay, ATornFileIsOneClearLine) {
  const auto message = [](std::string_view pods) {
    const auto read = ReadTracePods(pods);
    return read ? "it was read" : read.error().message;
  };
  const std::string header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n";
  EXPECT_EQ(message(""), "the file is empty");
  EXPECT_EQ(message("name,cpu\n"), "line 1: there is no column 'cpu_milli'");
  EXPECT_EQ(message(header + "a,1,1,1"), "line 2: 4 columns, not 6");
  EXPECT_EQ(message(header + "a,1,1,1,500,\nb,x,1,1,500,\n"),
            "line 3: 'x' is not a number up to 4294967295");
  EXPECT_EQ(message(header + "a,1,1,17,500,\n"), "line 2: '17' is not a number up to 16");
  EXPECT_EQ(message(header + "a,1,1,1,0,\n"), "line 2: a/main: 0 % of a GPU; between 0.1 and 100");
  const auto twice = ReadTraceNodes("sn,cpu_milli,memory_mib,gpu,model\na,1,1,1,\na,1,1,2,\n");
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().message, "line 3: node a is listed twice");
}

}  // namespace
}  // namespace baton::devmgr
