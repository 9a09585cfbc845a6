// Who leaves early: when, and when not.
#include <utility>

#include "tests/hook/client_laws.h"

namespace baton::hook {
namespace {

// Beside rivals, a program that pauses for long whenever its work ends says that it drains shortly
// before that end.
class Leaving : public ClientLaws {
 protected:
  static constexpr Duration kWork = milliseconds(3);

  void SetUp() override { Attach(); }
  // Asks for the token and launches some work at once. What it says until the work ends.
  Phase Burst(Duration launched_later = Duration(0)) {
    Park();
    seen_.parked = 0;
    Token(++epoch_, 1, kQuota, contended_);
    ends_ = now_;
    Launch(kWork);
    while (now_ < ends_ && machine_.phase() == Phase::kHolding) {
      now_ = std::min(ends_, std::max(last_.wake, now_ + microseconds(1)));
      if (launched_later > Duration(0) && ends_ - now_ < microseconds(350)) {
        Launch(std::exchange(launched_later, Duration(0)));
        continue;
      }
      See();
    }
    return machine_.phase();
  }
  void Launch(Duration work) {
    ++seen_.launches;
    ends_ += work;
    See();
  }
  void See() {
    seen_.backlog = ends_ > now_ ? ends_ - now_ : Duration(0);
    Do(EventKind::kTimer);
  }
  // The work ends, and the program pauses until it asks again.
  void Pause(Duration pause = milliseconds(20)) {
    now_ = std::max(now_, ends_);
    See();
    for (int i = 0; i < 500 && machine_.phase() != Phase::kIdle; ++i) {
      if (last_.watch) Do(EventKind::kFinished);
      if (machine_.phase() != Phase::kIdle) Pass(microseconds(100));
    }
    ASSERT_EQ(machine_.phase(), Phase::kIdle);
    now_ = std::max(now_, ends_ + pause);
  }
  // So often until it leaves early.
  int BurstsUntilItLeaves() {
    for (int i = 1; i <= 1000; ++i) {
      const bool leaves = Burst() == Phase::kDraining;
      Pause();
      if (leaves) return i;
    }
    return 0;
  }

  uint64_t epoch_ = 0;
  bool contended_ = true;
  Instant ends_{};
};

TEST_F(Leaving, OnlyWhoAlwaysPausesLeavesBeforeItsWorkEnds) {
  EXPECT_GE(BurstsUntilItLeaves(), 10);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Burst(), Phase::kDraining);
    EXPECT_LE(ends_ - now_, microseconds(300));
    EXPECT_GT(ends_, now_) << "the work still runs";
    EXPECT_FALSE(last_.open);
    Pause();
  }
  // One short pause, and it has to be seen anew.
  Burst();
  Pause(milliseconds(1));
  EXPECT_GE(BurstsUntilItLeaves(), 10);
}

TEST_F(Leaving, NotWithoutARival) {
  contended_ = false;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(Burst(), Phase::kHolding);
    Pause(milliseconds(100));
  }
}

TEST_F(Leaving, NotARankOfAGang) {
  Attach(true, true);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(Burst(), Phase::kHolding);
    Pause();
  }
}

TEST_F(Leaving, WorkThatComesBeforeTheCloseIsWaitedFor) {
  BurstsUntilItLeaves();
  EXPECT_EQ(Burst(milliseconds(2)), Phase::kDraining);
  EXPECT_LE(ends_ - now_, microseconds(300));
}

TEST_F(Leaving, WhoKeptALaunchOffDoesSoRarelyFromThenOn) {
  int before = BurstsUntilItLeaves();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Burst(), Phase::kDraining);
    Park();  // it had more to do
    now_ = std::max(now_, ends_);
    Do(EventKind::kFinished);
    EXPECT_EQ(machine_.phase(), Phase::kWaiting);
    seen_.parked = 0;
    Token(++epoch_, 1, kQuota);
    Pause();
    const int needed = BurstsUntilItLeaves();
    EXPECT_GE(needed, 3 * before);
    before = needed;
  }
}

}  // namespace
}  // namespace baton::hook
