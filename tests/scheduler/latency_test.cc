// A token ends in time for a pod that waits by a latency.
#include <gtest/gtest.h>

#include "tests/scheduler/scripted.h"

namespace baton::scheduler {
namespace {

class Latency : public Scripted {
 protected:
  static policy::ShareSpec Within(double request, Duration latency) {
    policy::ShareSpec spec = Spec(request);
    spec.latency = latency;
    return spec;
  }
  // It always has work: its token was over before its work was.
  void Saturate(uint64_t pod) {
    Hold(pod);
    Pass(milliseconds(60));
    Say(pod, Phase::kWaiting);
    Say(pod, Phase::kHolding);
  }
};

TEST_F(Latency, TheHoldersTokenEndsBeforeTheDeadline) {
  Add(1, Spec(60));
  Add(2, Within(10, milliseconds(4)));
  Saturate(1);
  ASSERT_EQ(Holder(), 1u);
  const uint64_t cuts = StatusOf(1).revocations;
  Say(2, Phase::kWaiting);
  EXPECT_EQ(StatusOf(1).revocations, cuts + 1);
  Pass(milliseconds(2));
  Say(1, Phase::kWaiting);
  EXPECT_EQ(Holder(), 2u);
  Say(2, Phase::kHolding);
  const PodStatus status = StatusOf(2);
  EXPECT_EQ(status.met.waits, 1u);
  EXPECT_EQ(status.met.late, 0u);
}

TEST_F(Latency, ALateWaitIsCounted) {
  Add(1, Spec(60));
  Add(2, Within(10, milliseconds(4)));
  Saturate(1);
  Say(2, Phase::kWaiting);
  Pass(milliseconds(30));  // a kernel that takes so long
  Say(1, Phase::kWaiting);
  EXPECT_EQ(Holder(), 2u);
  EXPECT_EQ(StatusOf(2).met.waits, 1u);
  EXPECT_EQ(StatusOf(2).met.late, 1u);
  EXPECT_EQ(StatusOf(2).met.ahead, 0u);
  EXPECT_GT(StatusOf(1).overrun, milliseconds(20)) << "that is why";
}

TEST_F(Latency, AHolderWithAnEarlierDeadlineHasWhatItCameFor) {
  Add(1, Within(40, milliseconds(4)));
  Add(2, Within(10, milliseconds(2)));
  Add(3, Spec(50));
  Hold(1);
  const Instant began = now_;
  Pass(milliseconds(3));
  Say(2, Phase::kWaiting);
  // The new pod is predicted quota_min.
  Pass(began + options_.quota_min - now_ - Duration(1));
  EXPECT_GT(told_[1].quota, Duration(0));
  Pass(milliseconds(1));
  Say(1, Phase::kWaiting);
  EXPECT_EQ(Holder(), 2u);
}

TEST_F(Latency, WhoIsFarBehindItsRequestIsNotCut) {
  Add(1, Spec(60));
  Add(2, Within(10, milliseconds(2)));
  Saturate(1);
  Say(2, Phase::kWaiting);
  Say(1, Phase::kWaiting);
  Say(2, Phase::kHolding);
  Pass(milliseconds(400));  // a kernel: pod 1 is far behind now
  Say(2, Phase::kWaiting);
  ASSERT_EQ(Holder(), 1u);
  Say(1, Phase::kHolding);
  const uint64_t cuts = StatusOf(1).revocations;
  Pass(milliseconds(5));
  EXPECT_EQ(StatusOf(1).revocations, cuts);
  EXPECT_EQ(Holder(), 1u);
}

}  // namespace
}  // namespace baton::scheduler
