// Pods that come and go without ever launching cost those that work nothing.
#include <gtest/gtest.h>

#include <deque>

#include "tests/scheduler/scripted.h"

namespace baton::scheduler {
namespace {

class LeasesBeside : public Scripted {
 protected:
  // Two pods that always want more, for ten seconds. What the first one held of that, in percent.
  double FirstsPart(int leases_a_second) {
    Add(1, Spec(30));
    Add(2, Spec(10));
    Say(1, Phase::kWaiting);
    Say(2, Phase::kWaiting);
    uint64_t next = 100;
    std::deque<std::pair<Instant, uint64_t>> leases;
    Instant due = now_;
    const Instant end = now_ + std::chrono::seconds(10);
    while (now_ < end) {
      for (; leases_a_second > 0 && due <= now_;
           due += std::chrono::microseconds(1'000'000 / leases_a_second)) {
        // A second each: a hundred of them have half of the GPU reserved.
        Step(PodSet{PodId{next}, Spec(0.5)});
        leases.emplace_back(now_ + std::chrono::seconds(1), next++);
      }
      for (; !leases.empty() && leases.front().first <= now_; leases.pop_front()) {
        Step(PodRemoved{PodId{leases.front().second}});
      }
      const uint64_t pod = Holder();
      if (pod == 0) {
        Pass(milliseconds(1));
        continue;
      }
      Say(pod, Phase::kHolding);
      Pass(milliseconds(4));
      Say(pod, Phase::kWaiting);
    }
    EXPECT_EQ(next, 100u + static_cast<uint64_t>(leases_a_second) * 10);
    const double first = static_cast<double>(Nanos(charged_[1].held));
    const double second = static_cast<double>(Nanos(charged_[2].held));
    EXPECT_GT(first + second, 0.98e10) << "the GPU is theirs while nobody else launches";
    return 100 * first / (first + second);
  }
};

class WithoutLeases : public LeasesBeside {};

TEST_F(LeasesBeside, AHundredASecondMoveSharesByLessThanAPoint) {
  EXPECT_NEAR(FirstsPart(100), 75, 1);
}

TEST_F(WithoutLeases, TheSharesAreTheSame) { EXPECT_NEAR(FirstsPart(0), 75, 1); }

}  // namespace
}  // namespace baton::scheduler
