// Who makes room for the memory of a pod with swap.
#include "backend/room.h"

#include <gtest/gtest.h>

#include <random>

namespace baton::backend {
namespace {

constexpr PodId kOne{1}, kTwo{2};

TEST(DecideRoom, OnlyAsMuchAsIsNeeded) {
  const auto made = DecideRoom({{kOne, 300}, {kTwo, 500}}, 600);
  EXPECT_EQ(made.verdict, RoomVerdict::kMade);
  const std::vector<std::pair<PodId, uint64_t>> expected = {{kTwo, 500}, {kOne, 100}};
  EXPECT_EQ(made.victims, expected);
}

TEST(DecideRoom, WhoIsIdleMovesFirst) {
  const auto made = DecideRoom({{kOne, 500}, {.pod = kTwo, .spare = 10, .idle = true}}, 10);
  ASSERT_EQ(made.victims.size(), 1u);
  EXPECT_EQ(made.victims[0].first, kTwo);
}

TEST(DecideRoom, TheHolderAndWhoWasJustGivenRoomAreNotMoved) {
  const RoomPod holder{.pod = kOne, .spare = 500, .holds = true};
  const RoomPod stays{.pod = kTwo, .spare = 500, .stays = true};
  EXPECT_EQ(DecideRoom({holder}, 400).verdict, RoomVerdict::kSoon);
  EXPECT_EQ(DecideRoom({stays}, 400).verdict, RoomVerdict::kLater);
  EXPECT_EQ(DecideRoom({holder, stays}, 400).verdict, RoomVerdict::kSoon);
  EXPECT_EQ(DecideRoom({holder, stays}, 600).verdict, RoomVerdict::kLater);
  // Without work it need not stay.
  const auto made = DecideRoom({{.pod = kTwo, .spare = 500, .stays = true, .idle = true}}, 400);
  EXPECT_EQ(made.verdict, RoomVerdict::kMade);
}

// Then the GPU's room is taken by others, and whoever lacks it tries by itself.
TEST(DecideRoom, NobodyWaitsForWhatDoesNotHelp) {
  EXPECT_EQ(DecideRoom({}, 1).verdict, RoomVerdict::kSoon);
  EXPECT_EQ(DecideRoom({{.pod = kTwo, .spare = 10, .stays = true}}, 11).verdict,
            RoomVerdict::kSoon);
}

TEST(DecideRoom, RandomPodsAreMovedByWhatTheyCanSpareAndNoMore) {
  std::mt19937 random(7);
  int made = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<RoomPod> pods;
    uint64_t movable = 0;
    for (uint64_t id = 1; id <= random() % 6; ++id) {
      RoomPod pod{.pod = PodId{id}, .spare = random() % 100};
      pod.holds = id == 3 && random() % 2 == 0;
      pod.stays = random() % 3 == 0;
      pod.idle = !pod.holds && random() % 3 == 0;
      if (!pod.holds && (!pod.stays || pod.idle)) movable += pod.spare;
      pods.push_back(pod);
    }
    const uint64_t need = 1 + random() % 200;
    const RoomDecision decision = DecideRoom(pods, need);
    EXPECT_EQ(decision.verdict == RoomVerdict::kMade, movable >= need);
    uint64_t sum = 0;
    for (const auto& [id, bytes] : decision.victims) {
      const RoomPod& pod = pods[id.value - 1];
      EXPECT_FALSE(pod.holds);
      EXPECT_TRUE(!pod.stays || pod.idle);
      EXPECT_GT(bytes, 0u);
      EXPECT_LE(bytes, pod.spare);
      sum += bytes;
    }
    EXPECT_EQ(sum, decision.verdict == RoomVerdict::kMade ? need : 0);
    made += decision.verdict == RoomVerdict::kMade;
  }
  EXPECT_GT(made, 1000);
}

}  // namespace
}  // namespace baton::backend
