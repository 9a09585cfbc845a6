#include "devmgr/placement/gang.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/devmgr/small_cluster.h"

namespace baton::devmgr {
namespace {

TEST(Gang, TheLargestFirstIsTriedWhereTheOrderGivenFails) {
  PlacementPolicy spread;
  spread.nodes = spread.cards = Rule::kSpread;
  Cluster cluster(SmallModes(), spread);
  ASSERT_TRUE(cluster.SetNode(NodeOf("a", 2)));
  // Spread as given, the small ones take a GPU each.
  const std::vector<PodRequest> pods = {PodOf("s1", 300'000), PodOf("s2", 300'000),
                                        PodOf("large", 1'000'000)};
  const auto placed = PlaceGang(cluster, pods);
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(placed->at(0).vgpus[0].card, placed->at(1).vgpus[0].card);
  EXPECT_NE(placed->at(0).vgpus[0].card, placed->at(2).vgpus[0].card);
  for (const PodRequest& pod : pods) EXPECT_NE(cluster.Find(pod.name), nullptr);
}

TEST(Gang, OneThatCanNeverBePlacedFailsAtOnce) {
  Cluster cluster(SmallModes());
  ASSERT_TRUE(cluster.SetNode(NodeOf("a", 2)));
  const Print before = PrintOf(cluster);
  PodRequest other = PodOf("other", 100'000);
  other.models = {"TPU"};
  const auto failed = PlaceGang(cluster, std::vector<PodRequest>{PodOf("one", 100'000), other});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(PrintOf(cluster) == before);
  const auto twice =
      PlaceGang(cluster, std::vector<PodRequest>{PodOf("one", 100'000), PodOf("one", 100'000)});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, ErrorCode::kExists);
  EXPECT_TRUE(PrintOf(cluster) == before);
  EXPECT_EQ(PlaceGang(cluster, std::vector<PodRequest>(kGangMax + 1)).error().code,
            ErrorCode::kInvalid);
}

RC_GTEST_PROP(GangLaw, AllOrNoneAndNeverLessThanOneByOne, ()) {
  Random random(*rc::gen::arbitrary<uint64_t>());
  for (int i = 0; i < 10; ++i) {
    Cluster cluster = RandomCluster(random, 1 + random.Next() % 3, 3, random.Next() % 8);
    std::vector<PodRequest> pods;
    for (int64_t n = random.Between(0, 6); n > 0; --n) {
      pods.push_back(RandomPod(random, "g" + std::to_string(n)));
      // Small ones, so that there are sets that just fit.
      if (random.OneIn(2)) pods.back() = PodOf(pods.back().name, 300'000);
    }
    const Print before = PrintOf(cluster);
    bool one_by_one = true;
    size_t done = 0;
    for (; done < pods.size() && one_by_one; done += one_by_one) {
      const auto placement = cluster.Decide(pods[done]);
      one_by_one = placement && cluster.Commit(pods[done], *placement);
    }
    while (done-- > 0) RC_ASSERT(cluster.Delete(pods[done].name).has_value());
    RC_ASSERT(PrintOf(cluster) == before);

    const auto placed = PlaceGang(cluster, pods);
    RC_ASSERT(Sound(cluster));
    RC_ASSERT(placed || !one_by_one);
    RC_CLASSIFY(placed && !one_by_one, "another order helped");
    if (!placed) {
      RC_ASSERT(PrintOf(cluster) == before);
      const auto again = PlaceGang(cluster, pods);
      RC_ASSERT(!again && again.error().message == placed.error().message);
      continue;
    }
    RC_ASSERT(placed->size() == pods.size());
    for (size_t p = 0; p < pods.size(); ++p) {
      RC_ASSERT(cluster.Find(pods[p].name)->placement == (*placed)[p]);
    }
    for (const PodRequest& pod : pods) RC_ASSERT(cluster.Delete(pod.name).has_value());
    RC_ASSERT(PrintOf(cluster) == before);
    RC_ASSERT(*PlaceGang(cluster, pods) == *placed);
  }
}

}  // namespace
}  // namespace baton::devmgr
