// When a drain is taken to wait for a launch of its own pod, and when for its work alone.
#include "tests/scheduler/scripted.h"

namespace baton::scheduler {
namespace {

using std::chrono::seconds;

// Pod 1 has clients 1, 3 and 4, and pod 2 waits.
class StuckDrain : public Scripted {
 protected:
  StuckDrain() {
    for (const uint64_t pod : {1, 2}) Add(pod, Spec(50));
    for (const uint64_t client : {3, 4}) Step(ClientAttached{ClientId{client}, PodId{1}});
  }
  // Client 1 drains, and says that its work takes so long.
  void Drain(Duration work = {}) {
    Hold(1);
    Say(2, Phase::kWaiting);
    Pass(milliseconds(100));
    const SendToken& last = told_[1];
    Step(ClientReport{.client = ClientId{1},
                      .seq = ++seq_,
                      .phase = Phase::kDraining,
                      .epoch = last.epoch,
                      .rev = last.rev,
                      .backlog = work});
  }
  Duration UntilReopened() {
    const Instant from = now_;
    const auto reopened = [this] {
      return std::count_if(notices_.begin(), notices_.end(), [](const Notice& notice) {
        return notice.kind == Notice::Kind::kReopened;
      });
    };
    const auto before = reopened();
    while (reopened() == before && now_ - from < seconds(20)) Pass(milliseconds(1));
    return now_ - from;
  }
};

TEST_F(StuckDrain, WorkThatOnlyTakesItsTimeIsNotStuck) {
  Drain(milliseconds(700));
  Say(3, Phase::kWaiting);
  EXPECT_NEAR(Nanos(UntilReopened()), Nanos(milliseconds(700) + options_.drain_reopen), 2e6);
}

TEST_F(StuckDrain, WhatClientsSayOfTheirWorkCountsUpToTwoSeconds) {
  Drain(seconds(1000));
  Say(3, Phase::kWaiting);
  EXPECT_LE(UntilReopened(), seconds(2) + options_.drain_reopen);
}

TEST_F(StuckDrain, EachReopeningOfOneTokenWaitsTwiceAsLong) {
  Drain();
  Say(3, Phase::kWaiting);
  EXPECT_LE(UntilReopened(), options_.drain_reopen);
  for (const uint64_t client : {1, 3}) Say(client, Phase::kHolding);
  Pass(options_.quota_min);
  for (const uint64_t client : {1, 3}) Say(client, Phase::kDraining);
  Say(4, Phase::kWaiting);
  EXPECT_NEAR(Nanos(UntilReopened()), Nanos(2 * options_.drain_reopen), 2e6);
}

TEST_F(StuckDrain, WhatDrainsTookOfLateIsNotStuck) {
  Drain();
  Pass(milliseconds(300));
  Say(1, Phase::kIdle);
  Hold(2);
  Say(2, Phase::kIdle);
  Drain();
  Say(3, Phase::kWaiting);
  EXPECT_GT(UntilReopened(), milliseconds(500));
}

TEST_F(StuckDrain, AClientThatHasDrainedShowsThatItMoves) {
  Hold(1);
  Say(3, Phase::kWaiting);
  Say(3, Phase::kHolding);
  Say(2, Phase::kWaiting);
  Pass(milliseconds(100));
  for (const uint64_t client : {1, 3}) Say(client, Phase::kDraining);
  Say(4, Phase::kWaiting);
  Say(3, Phase::kIdle);
  EXPECT_NEAR(Nanos(UntilReopened()), Nanos(options_.drain_reopen), 2e6);
}

}  // namespace
}  // namespace baton::scheduler
