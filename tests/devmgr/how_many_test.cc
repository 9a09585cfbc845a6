// How many pods fit, against pods that are placed one by one until none fits any more.
#include <gtest/gtest.h>

#include <random>

#include "devmgr/modes/mig_mode.h"
#include "tests/devmgr/small_cluster.h"

namespace baton::devmgr {
namespace {

// Until the next one has no place; on `node`, or anywhere.
uint64_t Fill(Cluster& cluster, PodRequest pod, const std::string& node = "*") {
  for (uint64_t pods = 0;; ++pods) {
    pod.name = "filler-" + node + std::to_string(pods);
    const auto place = node == "*" ? cluster.Decide(pod) : cluster.DecideOn(node, pod);
    if (!place) return pods;
    EXPECT_TRUE(cluster.Commit(pod, *place));
  }
}

TEST(HowManyFit, IsWhatPlacementFindsRoomFor) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  Random random(seed);
  uint64_t some = 0;
  for (int round = 0; round < 300; ++round) {
    Cluster cluster = RandomCluster(random, 4, 4, 12);
    PodRequest pod = PodOf("asked", static_cast<uint32_t>(random.Between(1, 10)) * 70'000);
    VgpuRequest& vgpu = pod.containers[0].vgpus[0];
    if (random.OneIn(2)) vgpu.memory_mib = static_cast<uint32_t>(random.Between(1, 10)) * 900;
    if (random.OneIn(6)) vgpu.memory_part = policy::Share(250'000);
    if (random.OneIn(5)) pod.mode = "exclusive";
    if (random.OneIn(4)) pod.cpu_milli = 1'500;
    if (random.OneIn(6)) pod.models = {random.OneIn(2) ? "h200" : "t4"};
    const Print before = PrintOf(cluster);
    const uint64_t on_first = cluster.HowManyFit(pod, "n0");
    const uint64_t all = cluster.HowManyFit(pod, "*");
    EXPECT_EQ(PrintOf(cluster), before);
    EXPECT_EQ(Fill(cluster, pod, "n0"), on_first);
    EXPECT_EQ(on_first + Fill(cluster, pod), all);
    EXPECT_EQ(cluster.HowManyFit(pod, "*"), 0u);
    some += all;
  }
  EXPECT_GT(some, 300u);
}

TEST(HowManyFit, CountsInstancesOfAGpuThatIsDividedByMig) {
  const MigTemplates templates = MigTemplates::BuiltIn();
  const MigMode mig(templates);
  const SharingMode* const modes[] = {&mig};
  Cluster cluster(modes);
  Node node = NodeOf("n0", 2);
  for (Card& card : node.cards) {
    card.model = "NVIDIA A100-SXM4-40GB";
    card.memory_mib = 40'960;
    card.mig_enabled = true;
  }
  ASSERT_TRUE(cluster.SetNode(node));
  for (const uint32_t share : {100'000u, 200'000u, 400'000u, 900'000u}) {
    PodRequest pod = PodOf("asked", share);
    pod.mode = "mig";
    const uint64_t fit = cluster.HowManyFit(pod, "*");
    EXPECT_GT(fit, 0u);
    Cluster copy(modes);
    ASSERT_TRUE(copy.SetNode(node));
    EXPECT_EQ(Fill(copy, pod), fit) << share;
  }
}

TEST(HowManyFit, IsNothingWhereItCannotBeSaid) {
  Cluster cluster(SmallModes());
  ASSERT_TRUE(cluster.SetNode(NodeOf("n0", 2)));
  EXPECT_EQ(cluster.HowManyFit(PodOf("asked", 100'000), "*"), 20u);
  EXPECT_EQ(cluster.HowManyFit(PodOf("asked", 100'000), "elsewhere"), 0u);
  EXPECT_EQ(cluster.HowManyFit(PodOf("asked", 100'000, 2), "*"), 0u) << "of two GPUs";
  PodRequest pod = PodOf("asked", 100'000);
  pod.mode = "mig";
  EXPECT_EQ(cluster.HowManyFit(pod, "*"), 0u) << "there is no such mode here";
  EXPECT_EQ(cluster.HowManyFit(PodOf("", 100'000), "*"), 0u);
}

}  // namespace
}  // namespace baton::devmgr
