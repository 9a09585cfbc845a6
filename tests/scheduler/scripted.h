// A token scheduler, and clients that say what a test wants them to say.
#ifndef BATON_TESTS_SCHEDULER_SCRIPTED_H_
#define BATON_TESTS_SCHEDULER_SCRIPTED_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "scheduler/token_scheduler.h"
#include "tests/scheduler/share_spec.h"

namespace baton::scheduler {

using std::chrono::milliseconds;
using wire::Phase;

// Pod n has one client, n, which says what the test wants it to say.
class Scripted : public testing::Test {
 protected:
  explicit Scripted(const SchedulerOptions& options = {}) : options_(options) {}
  void Add(uint64_t pod, const policy::ShareSpec& spec) {
    Step(PodSet{PodId{pod}, spec});
    Step(ClientAttached{ClientId{pod}, PodId{pod}});
  }
  void Say(uint64_t pod, Phase phase) {
    const SendToken& last = told_[pod];
    Step(ClientReport{ClientId{pod}, ++seq_, phase, last.epoch, last.rev});
  }
  void Step(const Event& event) {
    Effects effects;
    scheduler_.Step(now_, event, effects);
    for (const Effect& effect : effects) {
      if (const auto* send = std::get_if<SendToken>(&effect)) told_[send->client.value] = *send;
      if (const auto* clear = std::get_if<ClearHolders>(&effect)) cleared_ = clear->epoch;
      if (const auto* notice = std::get_if<Notice>(&effect)) notices_.push_back(*notice);
      if (const auto* charged = std::get_if<Charged>(&effect)) {
        charged_[charged->pod.value].held += charged->held;
        charged_[charged->pod.value].uncontended += charged->uncontended;
      }
    }
  }
  // Ticks when the scheduler asks for it.
  void Pass(Duration time) {
    const Instant end = now_ + time;
    for (int ticks = 0; scheduler_.wakeup() <= end; ++ticks) {
      ASSERT_LT(ticks, 1'000'000) << "no way on from a wakeup";
      now_ = std::max(now_, scheduler_.wakeup());
      Step(Tick{});
    }
    now_ = end;
  }
  // 0: nobody.
  uint64_t Holder() const { return scheduler_.holder().value_or(PodId{0}).value; }
  // The pod was told to stop, or its token is over.
  bool Ends(uint64_t pod) { return told_[pod].quota == Duration(0); }
  PodStatus StatusOf(uint64_t pod) {
    for (const PodStatus& status : scheduler_.Status(now_)) {
      if (status.pod == PodId{pod}) return status;
    }
    return {};
  }

  // It asks, and holds what it is granted.
  void Hold(uint64_t pod) {
    Say(pod, Phase::kWaiting);
    Say(pod, Phase::kHolding);
  }
  // It says that it holds what it was not granted.
  void Claim(uint64_t pod) {
    Say(pod, Phase::kIdle);
    Say(pod, Phase::kHolding);
  }

  // The pod, alone, holds until it is at its limit, and asks for more. When it may go on.
  Instant Exhaust(uint64_t pod) {
    Hold(pod);
    Pass(milliseconds(300));
    Say(pod, Phase::kWaiting);
    Pass(milliseconds(100));
    EXPECT_TRUE(StatusOf(pod).throttled);
    EXPECT_EQ(Holder(), 0u);
    return scheduler_.wakeup();
  }

  const SchedulerOptions options_;
  Instant now_{milliseconds(1000)};
  uint64_t seq_ = 0;
  std::map<uint64_t, SendToken> told_;  // last, by client
  uint64_t cleared_ = 0;                // the last epoch that needs not be stored any more
  std::vector<Notice> notices_;
  std::map<uint64_t, Charged> charged_;  // all together, by pod
  TokenScheduler scheduler_{options_, 0};
};

}  // namespace baton::scheduler

#endif  // BATON_TESTS_SCHEDULER_SCRIPTED_H_
