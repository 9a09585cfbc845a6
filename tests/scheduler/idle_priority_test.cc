// Pods of idle priority: they have the GPU while nobody with a request could use it.
#include <gtest/gtest.h>

#include "tests/scheduler/scripted.h"

namespace baton::scheduler {
namespace {

class IdlePriority : public Scripted {
 protected:
  static policy::ShareSpec Idle(double limit = 100) {
    return Spec(0, limit, policy::Priority::kIdle);
  }
};

TEST_F(IdlePriority, GoesAtOnceWhenNobodyHasWorkedForALongTime) {
  Add(1, Spec(50));
  Add(2, Idle());
  Say(2, Phase::kWaiting);
  EXPECT_EQ(Holder(), 2u);
  EXPECT_TRUE(told_[2].contended) << "it is to keep little work in flight";
  EXPECT_EQ(StatusOf(2).fluid, policy::kWhole);
}

TEST_F(IdlePriority, GivesWayAtOnceToWhoeverHasARequest) {
  Add(1, Spec(1));
  Add(2, Idle());
  Hold(2);
  Pass(milliseconds(1));
  Say(1, Phase::kWaiting);
  EXPECT_TRUE(Ends(2)) << "before quota_min";
  Say(2, Phase::kWaiting);
  EXPECT_EQ(Holder(), 1u);
  EXPECT_FALSE(told_[1].contended) << "whoever is idle is in nobody's way";
}

TEST_F(IdlePriority, WaitsWhileOthersWorkAndThroughTheirPauses) {
  Add(1, Spec(1));
  Add(2, Idle());
  Hold(1);
  EXPECT_FALSE(StatusOf(2).paused) << "it has nothing to do";
  Say(2, Phase::kWaiting);
  Pass(std::chrono::seconds(10));
  EXPECT_EQ(Holder(), 1u);
  EXPECT_TRUE(StatusOf(2).paused);
  EXPECT_EQ(StatusOf(2).fluid, policy::Share(0));
  EXPECT_EQ(StatusOf(1).fluid, policy::kWhole);
  Say(1, Phase::kIdle);
  EXPECT_TRUE(StatusOf(2).paused) << "the other one rests";
  Pass(2 * options_.active_grace - milliseconds(1));
  EXPECT_EQ(Holder(), 0u) << "it may come back";
  Pass(milliseconds(1));
  EXPECT_EQ(Holder(), 2u);
  EXPECT_FALSE(StatusOf(2).paused);
}

TEST_F(IdlePriority, HasWhatALimitLeaves) {
  Add(1, Spec(10, 10));
  Add(2, Idle());
  Hold(1);
  Say(2, Phase::kWaiting);
  // The limit's bucket is empty after 20 ms and what was drawn in advance.
  for (int i = 0; i < 100 && Holder() == 1; ++i) {
    Pass(milliseconds(5));
    if (Ends(1) || now_ - Instant(milliseconds(1000)) > milliseconds(200)) Say(1, Phase::kWaiting);
  }
  ASSERT_EQ(Holder(), 2u);
  ASSERT_TRUE(StatusOf(1).throttled);
  const Instant refill = scheduler_.wakeup();
  EXPECT_LE(told_[2].quota, refill + options_.quota_max - now_);
  Say(2, Phase::kHolding);
  while (!Ends(2) && told_[2].quota > Duration(0) && StatusOf(1).throttled) Pass(milliseconds(1));
  Pass(milliseconds(5));
  Say(2, Phase::kWaiting);
  EXPECT_EQ(Holder(), 1u) << "it goes on as soon as its limit lets it";
}

TEST_F(IdlePriority, HasNoMoreThanALimitOfOthersLeavesWhateverItsOwnIs) {
  Add(1, Spec(50, 50));
  Add(2, Idle(25));
  Hold(1);
  Pass(milliseconds(200));  // its drain takes long
  Say(1, Phase::kWaiting);
  ASSERT_TRUE(StatusOf(1).throttled);
  const Instant refill = scheduler_.wakeup();
  Pass(refill - now_ - milliseconds(5));
  Say(2, Phase::kWaiting);
  ASSERT_EQ(Holder(), 2u);
  EXPECT_LE(now_ + told_[2].quota, refill);
}

TEST_F(IdlePriority, AtItsLimitKeepsNobodyAwakeWhileOthersRest) {
  Add(1, Spec(50));
  Add(2, Idle(25));
  Hold(2);
  Pass(milliseconds(200));
  Say(2, Phase::kWaiting);
  ASSERT_EQ(Holder(), 0u) << "it is at its limit";
  Pass(scheduler_.wakeup() - now_ - milliseconds(1));
  Say(1, Phase::kWaiting);
  Say(1, Phase::kIdle);
  Pass(milliseconds(2));
  EXPECT_GT(scheduler_.wakeup(), now_);
}

TEST_F(IdlePriority, ItsTokenIsOverWhenALimitLetsAnotherGo) {
  Add(1, Spec(10, 10));
  Add(2, Idle());
  Pass(Exhaust(1) - now_ - milliseconds(3));
  Say(2, Phase::kWaiting);
  ASSERT_EQ(Holder(), 2u);
  EXPECT_LE(told_[2].quota, milliseconds(3));
  Say(2, Phase::kHolding);
  Pass(milliseconds(3));
  Say(2, Phase::kWaiting);
  EXPECT_EQ(Holder(), 1u);
}

TEST_F(IdlePriority, IsNotGrantedForLessTimeThanHandOffsCost) {
  Add(1, Spec(10, 10));
  Add(2, Idle());
  Pass(Exhaust(1) - now_ - std::chrono::microseconds(100));
  Say(2, Phase::kWaiting);
  EXPECT_EQ(Holder(), 0u);
  Pass(std::chrono::microseconds(100));
  EXPECT_EQ(Holder(), 1u);
}

TEST_F(IdlePriority, DoesNotGoWhileAGangWaitsForItsOtherGpus) {
  Step(PodSet{PodId{1}, Spec(50), true});
  Step(ClientAttached{ClientId{1}, PodId{1}});
  Add(2, Idle());
  Say(1, Phase::kWaiting);
  Step(GangStep{PodId{1}, GangStep::Do::kWait});
  Say(2, Phase::kWaiting);
  Pass(std::chrono::seconds(1));
  EXPECT_EQ(Holder(), 0u);
  Say(1, Phase::kIdle);
  Step(GangStep{PodId{1}, GangStep::Do::kRest});
  Pass(2 * options_.active_grace);
  EXPECT_EQ(Holder(), 2u);
}

TEST_F(IdlePriority, GivesWayToWhoIsAtItsLimitWhenThatLetsItGo) {
  for (const Duration before : {milliseconds(60), milliseconds(3)}) {
    SCOPED_TRACE(Nanos(before));
    const uint64_t one = before == milliseconds(60) ? 1 : 3, spare = one + 1;
    Add(one, Spec(10, 10));
    Add(spare, Idle());
    const Instant refill = Exhaust(one);
    Say(one, Phase::kIdle);
    Pass(refill - now_ - before);
    Say(spare, Phase::kWaiting);
    ASSERT_EQ(Holder(), spare);
    Say(spare, Phase::kHolding);
    const Duration granted = told_[spare].quota;
    Say(one, Phase::kWaiting);
    ASSERT_TRUE(StatusOf(one).throttled);
    EXPECT_FALSE(Ends(spare));
    EXPECT_LE(told_[spare].quota, std::min(before, granted) + std::chrono::microseconds(1));
    Step(PodRemoved{PodId{one}});
    Say(spare, Phase::kIdle);
  }
}

TEST_F(IdlePriority, GivesWayAtOnceToAGangThatTheGpuIsKeptFor) {
  Step(PodSet{PodId{1}, Spec(50), true});
  Add(2, Idle());
  Hold(2);
  Step(GangStep{PodId{1}, GangStep::Do::kWait});
  EXPECT_FALSE(Ends(2)) << "the gang may have to wait for another of its GPUs";
  Step(GangStep{PodId{1}, GangStep::Do::kReserve});
  EXPECT_TRUE(Ends(2));
}

TEST_F(IdlePriority, CutsNobodyWhoHasARequest) {
  Add(1, Spec(50));
  Add(2, Idle());
  Hold(1);
  Pass(options_.quota_min + milliseconds(1));
  Say(2, Phase::kWaiting);
  EXPECT_FALSE(Ends(1));
}

TEST_F(IdlePriority, DoesNotCutItsLike) {
  Add(1, Idle());
  Add(2, Idle());
  Hold(1);
  Pass(milliseconds(10));
  Say(2, Phase::kWaiting);
  EXPECT_FALSE(Ends(1));
}

TEST_F(IdlePriority, DoesNotWaitThroughThePausesOfItsLike) {
  Add(1, Idle());
  Add(2, Idle());
  Hold(1);
  Say(2, Phase::kWaiting);
  Say(1, Phase::kIdle);
  EXPECT_EQ(Holder(), 2u);
}

TEST_F(IdlePriority, IsDividedEquallyAndKeepsItsLimit) {
  Add(1, Idle());
  Add(2, Idle(25));
  Add(3, Idle());
  Say(1, Phase::kWaiting);
  Say(2, Phase::kWaiting);
  Say(3, Phase::kWaiting);
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t holder = Holder();
    if (holder != 0) Say(holder, Phase::kHolding);
    Pass(milliseconds(1));
    if (holder != 0 && holder == Holder() &&
        (Ends(holder) || now_ > Instant(milliseconds(1000)) + milliseconds(i + 1))) {
      Say(holder, Phase::kWaiting);
    }
    if (i % 5 == 4 && Holder() != 0) Say(Holder(), Phase::kWaiting);
  }
  const double all =
      static_cast<double>(Nanos(StatusOf(1).held + StatusOf(2).held + StatusOf(3).held));
  EXPECT_NEAR(static_cast<double>(Nanos(StatusOf(2).held)) / all, 0.25, 0.02);
  EXPECT_NEAR(static_cast<double>(Nanos(StatusOf(1).held)) / all, 0.375, 0.02);
}

TEST_F(IdlePriority, TakesNothingFromAnybodysAccount) {
  Add(1, Spec(50));
  Add(2, Spec(50));
  Add(3, Idle());
  Hold(3);
  Pass(std::chrono::seconds(5));
  Say(1, Phase::kWaiting);
  Say(2, Phase::kWaiting);
  Say(3, Phase::kWaiting);
  EXPECT_EQ(StatusOf(1).lag, Duration(0)) << "it saves nothing up while nobody else works";
  EXPECT_EQ(StatusOf(2).lag, Duration(0));
  EXPECT_GE(StatusOf(3).held, std::chrono::seconds(5));
}

TEST_F(IdlePriority, MayBeGivenAndTakenBackWhileItWaits) {
  Add(1, Spec(50));
  Add(2, Spec(50));
  Hold(1);
  Say(2, Phase::kWaiting);
  Step(PodSet{PodId{2}, Idle()});
  EXPECT_TRUE(StatusOf(2).paused);
  Pass(std::chrono::seconds(2));
  EXPECT_EQ(Holder(), 1u);
  EXPECT_EQ(StatusOf(1).fluid, policy::kWhole);
  // The other way round, while one of idle priority holds.
  Step(PodSet{PodId{1}, Idle()});
  Step(PodSet{PodId{2}, Spec(50)});
  EXPECT_TRUE(Ends(1));
  Say(1, Phase::kWaiting);
  EXPECT_EQ(Holder(), 2u);
}

TEST_F(IdlePriority, GivesWayToItsLikeThatIsGivenARequest) {
  Add(1, Idle());
  Add(2, Idle());
  Hold(1);
  Say(2, Phase::kWaiting);
  Pass(milliseconds(1));
  ASSERT_FALSE(Ends(1));
  Step(PodSet{PodId{2}, Spec(50)});
  EXPECT_TRUE(Ends(1));
}

TEST_F(IdlePriority, WhoBecomesOfItWhileItHoldsGivesWayToWhoWaits) {
  Add(1, Spec(50));
  Add(2, Spec(50));
  Hold(1);
  Say(2, Phase::kWaiting);
  ASSERT_FALSE(Ends(1));
  Step(PodSet{PodId{1}, Idle()});
  EXPECT_TRUE(Ends(1));
}

// Or it would be of idle priority for as long as each of its kernels runs, which nobody can stop.
TEST_F(IdlePriority, WhatAPodWasGrantedByItsRequestItsRequestPaysFor) {
  Add(1, Spec(50));
  Add(2, Spec(50));
  Hold(1);
  Say(2, Phase::kWaiting);
  Pass(milliseconds(1));
  Step(PodSet{PodId{1}, Idle()});
  Pass(milliseconds(200));  // its kernel
  ASSERT_EQ(Holder(), 1u);
  EXPECT_EQ(StatusOf(1).spec.priority, policy::Priority::kNormal) << "until it has drained";
  Say(1, Phase::kWaiting);
  EXPECT_EQ(Holder(), 2u);
  EXPECT_TRUE(StatusOf(1).paused);
  Step(PodSet{PodId{1}, Spec(50)});
  EXPECT_LT(StatusOf(1).lag, milliseconds(-60));
  EXPECT_LT(StatusOf(1).owed_of_request, milliseconds(-60));
}

TEST_F(IdlePriority, WhoIsGivenARequestAgainBeforeItHasDrainedKeepsItsPlace) {
  Add(1, Spec(50));
  Add(2, Spec(50));
  Hold(1);
  Say(2, Phase::kWaiting);
  Step(PodSet{PodId{1}, Idle()});
  Step(PodSet{PodId{1}, Spec(30)});
  EXPECT_EQ(StatusOf(1).spec.request, Spec(30).request);
  Pass(milliseconds(5));
  Say(1, Phase::kWaiting);
  EXPECT_FALSE(StatusOf(1).paused);
  EXPECT_EQ(StatusOf(1).spec.priority, policy::Priority::kNormal);
}

TEST_F(IdlePriority, LeavesNothingBehindWhenItIsRemoved) {
  Add(1, Idle());
  Say(1, Phase::kWaiting);
  Step(PodRemoved{PodId{1}});
  Say(1, Phase::kIdle);
  EXPECT_EQ(Holder(), 0u);
  Add(2, Spec(50));
  Say(2, Phase::kWaiting);
  EXPECT_EQ(Holder(), 2u);
  EXPECT_FALSE(StatusOf(2).paused);
}

}  // namespace
}  // namespace baton::scheduler
