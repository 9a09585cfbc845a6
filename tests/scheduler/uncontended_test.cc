// What of a pod's held time nobody of another team wanted.
#include <gtest/gtest.h>

#include "base/random.h"
#include "scheduler/wanting.h"
#include "tests/scheduler/scripted.h"

namespace baton::scheduler {
namespace {

using std::chrono::microseconds;

class Uncontended : public Scripted {
 protected:
  static policy::ShareSpec Of(uint32_t team, policy::ShareSpec spec = Spec(10)) {
    spec.team = team;
    return spec;
  }
  // The pod, which holds, drains, and asks for nothing more.
  void Return(uint64_t pod) {
    Say(pod, Phase::kIdle);
    ASSERT_NE(Holder(), pod);
  }
  // It holds for `time`, as its node measures too, and drains.
  void Hold(uint64_t pod, Duration time) {
    Scripted::Hold(pod);
    ASSERT_EQ(Holder(), pod);
    Pass(time);
    Return(pod);
  }
  // In percent of what it was charged.
  double PartOf(uint64_t pod) {
    const Charged& charged = charged_[pod];
    return 100.0 * static_cast<double>(Nanos(charged.uncontended)) /
           static_cast<double>(std::max<int64_t>(1, Nanos(charged.held)));
  }
};

TEST_F(Uncontended, IsAllThatAPodHoldsAlone) {
  Add(1, Of(0));
  Add(2, Of(1));
  Hold(1, milliseconds(30));
  EXPECT_GT(charged_[1].held, Duration(0));
  EXPECT_EQ(charged_[1].uncontended, charged_[1].held);
}

TEST_F(Uncontended, IsAllThatOnlyItsOwnTeamWaitsFor) {
  Add(1, Of(7));
  Add(2, Of(7));
  Scripted::Hold(1);
  Say(2, Phase::kWaiting);
  Pass(milliseconds(5));
  Return(1);
  EXPECT_EQ(charged_[1].uncontended, charged_[1].held);
}

TEST_F(Uncontended, EndsWhereAnotherTeamBeginsToWait) {
  Add(1, Of(0));
  Add(2, Of(1));
  Scripted::Hold(1);
  Pass(milliseconds(3));
  Say(2, Phase::kWaiting);
  Pass(milliseconds(1));
  Return(1);
  ASSERT_EQ(Holder(), 2u);
  EXPECT_NEAR(PartOf(1), 75, 3);
  EXPECT_EQ(charged_[2].uncontended, Duration(0));
}

TEST_F(Uncontended, IsNothingOfWhatTwoTeamsTakeTurnsAt) {
  Add(1, Of(0));
  Add(2, Of(1));
  for (const uint64_t pod : {1, 2}) Say(pod, Phase::kWaiting);
  for (int turn = 0; turn < 50; ++turn) {
    const uint64_t pod = Holder();
    Say(pod, Phase::kHolding);
    Pass(milliseconds(4));
    Say(pod, Phase::kWaiting);
  }
  EXPECT_GT(charged_[1].held + charged_[2].held, milliseconds(190));
  EXPECT_EQ(charged_[1].uncontended + charged_[2].uncontended, Duration(0));
}

TEST_F(Uncontended, WhoIsAtItsLimitWantsNothingUntilThatLetsItGo) {
  Add(1, Of(0));
  Add(2, Of(1, Spec(1, 1)));
  const Instant may_go = Exhaust(2);
  const Duration rest = may_go - now_;
  ASSERT_GT(rest, milliseconds(10));
  Scripted::Hold(1);
  ASSERT_EQ(Holder(), 1u);
  // Until then it renews its token.
  while (now_ + milliseconds(1) < may_go) {
    Pass(milliseconds(1));
    Say(1, Phase::kHolding);
    ASSERT_EQ(Holder(), 1u);
  }
  EXPECT_EQ(charged_[1].uncontended, charged_[1].held);
  const Duration before = charged_[1].uncontended;
  Pass(may_go + microseconds(500) - now_);
  Say(1, Phase::kWaiting);
  EXPECT_LE(charged_[1].uncontended, rest);
  EXPECT_GT(charged_[1].uncontended, before);
}

TEST_F(Uncontended, WhoIsHeldBackWantsNothing) {
  Add(1, Of(0));
  Add(2, Of(1));
  Scripted::Hold(1);
  Say(2, Phase::kWaiting);
  Step(PodHeldBack{PodId{2}, true});
  Pass(milliseconds(4));
  Return(1);
  EXPECT_EQ(charged_[1].uncontended, charged_[1].held);
}

TEST_F(Uncontended, WhoIsOfIdlePriorityWantsNothingOfThoseWithARequest) {
  Add(1, Of(0));
  Add(2, Of(1, Spec(0, 100, policy::Priority::kIdle)));
  Scripted::Hold(1);
  Say(2, Phase::kWaiting);
  Pass(milliseconds(4));
  Return(1);
  EXPECT_EQ(charged_[1].uncontended, charged_[1].held);
}

TEST_F(Uncontended, ThoseOfIdlePriorityWantWhatTheirLikeHold) {
  for (const uint64_t pod : {1, 2}) {
    Add(pod, Of(static_cast<uint32_t>(pod), Spec(0, 100, policy::Priority::kIdle)));
  }
  Scripted::Hold(1);
  Say(2, Phase::kWaiting);
  Pass(milliseconds(4));
  Return(1);
  EXPECT_GT(charged_[1].held, Duration(0));
  EXPECT_EQ(charged_[1].uncontended, Duration(0));
}

TEST_F(Uncontended, WhoChangesItsTeamWhileItWaitsIsOfTheNewOne) {
  Add(1, Of(0));
  Add(2, Of(1));
  Scripted::Hold(1);
  Say(2, Phase::kWaiting);
  Pass(milliseconds(1));
  Step(PodSet{PodId{2}, Of(0)});
  Pass(milliseconds(3));
  Return(1);
  EXPECT_NEAR(PartOf(1), 75, 3);
}

// Whatever happens, in whatever order: it is a part of what is charged, and where only one team is
// there all of it.
// Pods have numbers that are given out again.
TEST_F(Uncontended, IsNothingOfWhatAPodOfBeforeHad) {
  Add(1, Of(0));
  Scripted::Hold(1);
  Pass(milliseconds(5));
  ClientReport drained{ClientId{1}, ++seq_, Phase::kIdle, told_[1].epoch, told_[1].rev};
  drained.held = milliseconds(1);  // as its node measured: the rest is nobody's
  Step(drained);
  Step(PodRemoved{PodId{1}});
  charged_.clear();
  Add(2, Of(0));
  Add(3, Of(1));
  Scripted::Hold(2);
  ASSERT_EQ(Holder(), 2u);
  Say(3, Phase::kWaiting);
  Pass(milliseconds(3));
  Return(2);
  EXPECT_GT(charged_[2].held, Duration(0));
  EXPECT_EQ(charged_[2].uncontended, Duration(0));
}

TEST(UncontendedLaw, IsAPartOfWhatIsCharged) {
  Duration held{0}, alone{0};
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    class Drawn : public Scripted {
     public:
      void TestBody() override {}
      void Play(uint64_t seed) {
        Random random(seed);
        const int64_t teams = random.Between(1, 3);
        const auto spec = [&] {
          const bool idle = random.OneIn(5);
          policy::ShareSpec drawn =
              idle ? Spec(0, 100, policy::Priority::kIdle)
                   : Spec(5, random.OneIn(3) ? 5 : 100,
                          random.OneIn(5) ? policy::Priority::kHigh : policy::Priority::kNormal);
          drawn.team = static_cast<uint32_t>(random.Between(1, teams));
          return drawn;
        };
        for (uint64_t pod = 1; pod <= 6; ++pod) Add(pod, spec());
        for (int step = 0; step < 300; ++step) {
          const auto pod = static_cast<uint64_t>(random.Between(1, 6));
          const bool holds = Holder() == pod;
          switch (random.Between(0, 10)) {
            case 10:
              Step(PodRemoved{PodId{pod}});
              Add(pod, spec());
              break;
            case 0:
              Step(PodSet{PodId{pod}, spec()});
              break;
            case 1:
              Step(PodHeldBack{PodId{pod}, random.OneIn(2)});
              break;
            case 2:
            case 3:
              Say(pod, Phase::kIdle);
              break;
            default:
              Say(pod, holds && !random.OneIn(3) ? Phase::kHolding : Phase::kWaiting);
              break;
          }
          Pass(microseconds(random.Between(0, 8000)));
          held = alone = Duration(0);
          for (const auto& [id, charged] : charged_) {
            ASSERT_GE(charged.uncontended, Duration(0)) << step;
            ASSERT_LE(charged.uncontended, charged.held) << step;
            held += charged.held;
            alone += charged.uncontended;
          }
          if (teams == 1) {
            ASSERT_EQ(alone, held) << step;
          }
          ASSERT_EQ(scheduler_.Invariants(), std::nullopt);
        }
      }
      Duration held{0}, alone{0};
    };
    Drawn drawn;
    drawn.Play(seed);
    if (testing::Test::HasFatalFailure()) return;
    held += drawn.held;
    alone += drawn.alone;
  }
  EXPECT_GT(held, std::chrono::seconds(100));
  EXPECT_GT(alone, held / 5) << "both happen";
  EXPECT_LT(alone, held * 4 / 5);
}

TEST(Wanting, KnowsSinceWhenOthersDo) {
  const auto at = [](int ms) { return Instant(milliseconds(ms)); };
  Roster roster;
  Wanting wanting(roster);
  for (const uint32_t index : {0, 1, 2}) {
    roster.AddPod(PodId{index + 1}, false);
    wanting.SetTeam(index, index);
  }
  wanting.SetTeam(2, 0);  // holds
  EXPECT_EQ(wanting.OthersSince(2, at(10)), kNever);
  wanting.Set(0, at(0), at(10));
  wanting.Set(1, at(15), at(10));
  EXPECT_EQ(wanting.OthersSince(2, at(14)), kNever) << "1 is at its limit";
  EXPECT_EQ(wanting.OthersSince(2, at(20)), at(15));
  EXPECT_EQ(wanting.OthersSince(2, at(20)), Instant{}) << "for long";
  wanting.Erase(1);
  wanting.Erase(1);
  EXPECT_EQ(wanting.OthersSince(2, at(20)), kNever);
  wanting.SetTeam(0, 3);
  EXPECT_EQ(wanting.OthersSince(2, at(20)), kNever) << "it does not wait";
  wanting.Set(0, at(0), at(20));
  EXPECT_EQ(wanting.OthersSince(2, at(20)), Instant{});
  wanting.SetTeam(2, 3);
  EXPECT_EQ(wanting.OthersSince(2, at(20)), kNever);
}

}  // namespace
}  // namespace baton::scheduler
