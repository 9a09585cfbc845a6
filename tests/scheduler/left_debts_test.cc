// Who deletes a pod and creates it again goes on where that one was.
#include "scheduler/left_debts.h"

#include <gtest/gtest.h>

#include "tests/scheduler/scripted.h"

namespace baton::scheduler {
namespace {

constexpr Instant kNow{milliseconds(1000)};

LeftDebts::Both Owing(int64_t lag_ns, int64_t of_idle_ns = 0) {
  return {{.lag_ns = -lag_ns}, {.lag_ns = -of_idle_ns}};
}
int64_t LagOf(const LeftDebts::Both& debts) {
  return debts.of_requests.lag_ns + debts.of_idle.lag_ns;
}

TEST(LeftDebts, AreTakenOverOnceByTheirOwnersTheLargestFirst) {
  LeftDebts left;
  left.Leave(1, Owing(10), kNow);
  left.Leave(1, Owing(10, 20), kNow);
  left.Leave(1, Owing(20), kNow);
  left.Leave(2, Owing(90), kNow);
  EXPECT_EQ(LagOf(left.Take(1)), -30);
  EXPECT_EQ(LagOf(left.Take(1)), -20);
  EXPECT_EQ(LagOf(left.Take(1)), -10);
  EXPECT_EQ(LagOf(left.Take(1)), 0);
  EXPECT_EQ(LagOf(left.Take(2)), -90);
}

TEST(LeftDebts, AreOfWhoIsKnownAndOweSomething) {
  LeftDebts left;
  left.Leave(0, Owing(10), kNow);
  left.Leave(1, {{.paid = kNow, .limit_full_at = kNow}, {}}, kNow);
  EXPECT_EQ(left.size(), 0u);
  EXPECT_EQ(LagOf(left.Take(0)), 0);
  const Instant later = kNow + Duration(1);
  left.Leave(1, {{.owed_ns = -1}, {}}, kNow);
  left.Leave(1, {{.paid = later}, {}}, kNow);
  left.Leave(1, {{}, {.limit_full_at = later}}, kNow);
  EXPECT_EQ(left.size(), 3u);
}

TEST(LeftDebts, TheLeastIsForgottenWhereThereAreTooMany) {
  LeftDebts left;
  left.Leave(1, Owing(1'000), kNow);
  left.Leave(2, Owing(1), kNow);
  for (size_t i = 2; i <= LeftDebts::kMost; ++i) left.Leave(3, Owing(10), kNow);
  EXPECT_EQ(left.size(), LeftDebts::kMost);
  EXPECT_EQ(LagOf(left.Take(1)), -1'000);
  EXPECT_EQ(LagOf(left.Take(2)), 0);
}

class CreatedAgain : public Scripted {
 protected:
  void AddOf(uint64_t owner, uint64_t pod, const policy::ShareSpec& spec) {
    Step(PodSet{PodId{pod}, spec, false, {}, owner});
    Step(ClientAttached{ClientId{pod}, PodId{pod}});
  }
  static policy::ShareSpec Idle() {
    return policy::Validated({.request = policy::Share(0), .priority = policy::Priority::kIdle})
        .value();
  }
};

TEST_F(CreatedAgain, APodOwesWhatItsOwnersOtherPodHad) {
  AddOf(7, 1, Spec(10, 20));
  AddOf(8, 2, Spec(50));
  Hold(1);
  Say(2, Phase::kWaiting);
  Pass(milliseconds(300));  // a kernel
  Say(1, Phase::kWaiting);
  ASSERT_EQ(Holder(), 2u);
  const Duration lag = StatusOf(1).lag, owed = StatusOf(1).owed_of_request;
  ASSERT_LT(lag, milliseconds(-150));
  ASSERT_LT(owed, milliseconds(-50));
  Step(PodRemoved{PodId{1}});
  AddOf(7, 3, Spec(10, 20));
  AddOf(7, 4, Spec(10, 20));
  AddOf(9, 5, Spec(10, 20));
  EXPECT_EQ(StatusOf(3).lag, lag);
  EXPECT_EQ(StatusOf(3).owed_of_request, owed);
  for (const uint64_t pod : {4, 5}) {
    EXPECT_EQ(StatusOf(pod).lag, Duration(0)) << pod;
    EXPECT_EQ(StatusOf(pod).owed_of_request, Duration(0)) << pod;
  }
  for (const uint64_t pod : {3, 4, 5}) {
    Say(pod, Phase::kWaiting);
    EXPECT_EQ(StatusOf(pod).throttled, pod == 3) << pod;
  }
}

TEST_F(CreatedAgain, WhoIsDeletedWhileItHoldsOwesThatToo) {
  AddOf(7, 1, Spec(10));
  Add(2, Spec(50));
  Hold(1);
  Say(2, Phase::kWaiting);
  Step(PodRemoved{PodId{1}});
  Pass(milliseconds(300));
  Say(1, Phase::kIdle);
  ASSERT_EQ(Holder(), 2u);
  AddOf(7, 3, Spec(10));
  EXPECT_LT(StatusOf(3).lag, milliseconds(-150));
}

TEST_F(CreatedAgain, OfIdlePriorityItOwesItsLike) {
  AddOf(7, 1, Idle());
  AddOf(8, 2, Idle());
  Hold(1);
  Say(2, Phase::kWaiting);
  Pass(milliseconds(300));
  Say(1, Phase::kWaiting);
  ASSERT_EQ(Holder(), 2u);
  Step(PodRemoved{PodId{1}});
  AddOf(7, 3, Idle());
  EXPECT_LT(StatusOf(3).lag, milliseconds(-100));
}

}  // namespace
}  // namespace baton::scheduler
