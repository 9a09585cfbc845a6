// Mixes of pods in which a promise was once broken, each small enough to be read.
#include <gtest/gtest.h>

#include <string>

#include "world/engine.h"
#include "world/plan.h"

namespace baton::world {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

PodPlan Of(uint32_t id, uint32_t percent) {
  PodPlan pod;
  pod.id = id;
  pod.spec.request = policy::Share(percent * 10'000);
  pod.spec = policy::Validated(pod.spec).value();
  return pod;
}

Plan For(Duration length) {
  Plan plan;
  plan.length = plan.calm_from = length;
  return plan;
}

// What it held and used of a GPU, in percent of the plan's time.
struct Had {
  double held = 0, used = 0;
};
Had Of(const Verdict& verdict, const Plan& plan, uint32_t pod, uint32_t gpu = 0) {
  const auto percent = [&plan](Duration time) {
    return 100 * static_cast<double>(Nanos(time)) / static_cast<double>(Nanos(plan.length));
  };
  for (const PodFigures& figures : verdict.pods) {
    if (figures.pod != pod || figures.gpu != gpu) continue;
    return {percent(figures.held), percent(figures.used)};
  }
  ADD_FAILURE() << "pod " << pod << " is not on GPU " << gpu;
  return {};
}

// A drain of all its processes takes longer than a drain that is stuck is given, and ends.
TEST(Promises, AreKeptBesideManyProcessesWithLongKernels) {
  struct {
    uint32_t processes;
    Duration kernel;
  } const mixes[] = {{8, milliseconds(20)}, {2, milliseconds(150)}, {48, milliseconds(1)}};
  for (const auto& mix : mixes) {
    for (const bool limited : {false, true}) {
      SCOPED_TRACE(std::to_string(mix.processes) +
                   (limited ? " processes, limited" : " processes"));
      Plan plan = For(seconds(60));
      plan.pods = {Of(1, 90), Of(2, 10)};
      plan.pods[1].processes = mix.processes;
      plan.pods[1].kernel = mix.kernel;
      if (limited) plan.pods[1].spec.limit = policy::Share(100'000u);
      const Verdict verdict = world::Run(plan, {});
      EXPECT_TRUE(verdict.ok) << verdict.check << ": " << verdict.violation;
      EXPECT_NEAR(Of(verdict, plan, 1).held, 90, 1.5);
      EXPECT_NEAR(Of(verdict, plan, 2).held, 10, 1.5);
    }
  }
}

// The limit pays for the time for which an idle token is kept: not for longer than beside others.
TEST(Promises, APodWithALimitIsNoSlowerAloneThanBesideOthers) {
  double used[2];
  for (const bool alone : {false, true}) {
    Plan plan = For(seconds(30));
    plan.pods = {Of(1, 10)};
    if (!alone) plan.pods.push_back(Of(2, 90));
    PodPlan& limited = plan.pods.front();
    limited.spec.limit = policy::Share(100'000u);
    limited.kernel = limited.burst = microseconds(200);
    limited.pause = milliseconds(5);
    used[alone] = Of(world::Run(plan, {}), plan, 1).used;
  }
  EXPECT_GE(used[true], used[false]);
}

TEST(Promises, ALimitHoldsOverChangesOfPriority) {
  Plan plan = For(seconds(20));
  plan.pods = {Of(1, 50)};
  plan.pods[0].spec.limit = policy::Share(500'000u);
  for (Duration at = milliseconds(100); at < plan.length; at += milliseconds(100)) {
    FaultPlan change;
    change.kind = kResizes;
    change.at = at;
    change.pod = 1;
    change.spec = plan.pods[0].spec;
    if (plan.faults.size() % 2 == 0) {
      change.spec.priority = policy::Priority::kIdle;
      change.spec.request = policy::Share(0u);
    }
    plan.faults.push_back(change);
  }
  const Verdict verdict = world::Run(plan, {});
  EXPECT_TRUE(verdict.ok) << verdict.check << ": " << verdict.violation;
  EXPECT_LE(Of(verdict, plan, 1).held, 53);
}

// Each of its processes has work in flight, which ends before the GPU is free.
TEST(Promises, APodOfIdlePriorityWithManyProcessesGivesWayAsSoonAsItsWorkInFlightEnds) {
  for (const uint32_t processes : {1, 3, 8, 16}) {
    SCOPED_TRACE(processes);
    Plan plan = For(seconds(30));
    plan.pods = {Of(1, 50), Of(2, 1)};
    plan.pods[0].burst = milliseconds(2);
    plan.pods[0].pause = milliseconds(60);
    PodPlan& night = plan.pods[1];
    night.spec = {};
    night.spec.request = policy::Share(0u);
    night.spec.priority = policy::Priority::kIdle;
    night.spec = policy::Validated(night.spec).value();
    night.kernel = microseconds(20);
    night.processes = processes;
    RunOptions options;
    options.bounds = false;  // which know of its kernels alone
    const Verdict verdict = world::Run(plan, options);
    EXPECT_TRUE(verdict.ok) << verdict.check << ": " << verdict.violation;
    for (const PodFigures& figures : verdict.pods) {
      if (figures.pod != 1) continue;
      EXPECT_GT(figures.waits.count(), 100u);
      // And 1 ms for frames.
      EXPECT_LE(figures.waits.max(),
                processes * (milliseconds(1) + night.kernel) + milliseconds(2));
    }
  }
}

// A pod that naps is far behind its request again and again, though it is owed little.
TEST(Promises, AGangIsNotStarvedByOneThatNaps) {
  Plan plan = For(seconds(60));
  plan.gpus = 2;
  plan.pods = {Of(1, 20), Of(2, 75), Of(3, 5), Of(4, 80)};
  plan.pods[0].gpus = {0, 1};
  plan.pods[0].collective = 10;
  for (const uint32_t on_1 : {1, 2}) plan.pods[on_1].gpus = {1};
  plan.pods[1].kernel = plan.pods[1].burst = microseconds(200);
  plan.pods[1].pause = milliseconds(1);
  plan.pods[3].gpus = {0};
  const Verdict verdict = world::Run(plan, {});
  EXPECT_TRUE(verdict.ok) << verdict.check << ": " << verdict.violation;
  for (const uint32_t gpu : {0, 1}) EXPECT_GE(Of(verdict, plan, 1, gpu).used, 15) << gpu;
}

// Where it is owed nothing, because the small pod leaves most of the GPU idle, that pod still comes
// whenever the gang has the other GPU at last.
TEST(Promises, AGangIsNotStarvedBySmallHighPriorityOnOneOfItsGpus) {
  struct {
    Duration burst, pause;
  } const naps[] = {{microseconds(200), milliseconds(1)},
                    {milliseconds(1), milliseconds(4)},
                    {milliseconds(2), milliseconds(2)},
                    {milliseconds(5), milliseconds(15)}};
  for (const auto& nap : naps) {
    SCOPED_TRACE(std::to_string(Nanos(nap.burst)) + " ns at a time");
    Plan plan = For(seconds(60));
    plan.gpus = 2;
    plan.pods = {Of(1, 40), Of(2, 20), Of(3, 60)};
    plan.pods[0].gpus = {0, 1};
    plan.pods[0].collective = 10;
    plan.pods[1].spec.priority = policy::Priority::kHigh;
    plan.pods[1].kernel = microseconds(200);
    plan.pods[1].burst = nap.burst;
    plan.pods[1].pause = nap.pause;
    plan.pods[2].gpus = {1};
    const Verdict verdict = world::Run(plan, {});
    EXPECT_TRUE(verdict.ok) << verdict.check << ": " << verdict.violation;
    for (const uint32_t gpu : {0, 1}) EXPECT_GE(Of(verdict, plan, 1, gpu).used, 38) << gpu;
  }
}

// A gang that asks for far more on one of its GPUs than on the other is owed that there for ever.
// On the other it takes nobody's request or latency for it.
TEST(Promises, WhatAGangIsOwedElsewhereTakesNobodysRequest) {
  Plan plan = For(seconds(60));
  plan.gpus = 2;
  plan.pods = {Of(1, 10), Of(2, 80), Of(3, 20), Of(4, 70), Of(5, 20)};
  for (const uint32_t rank : {0, 1}) {
    plan.pods[rank].gpus = {rank};
    plan.pods[rank].gang = 1;
    plan.pods[rank].collective = 10;
  }
  plan.pods[2].burst = milliseconds(2);
  plan.pods[2].pause = milliseconds(10);
  plan.pods[2].spec.latency = milliseconds(20);
  plan.pods[4].gpus = {1};
  const Verdict verdict = world::Run(plan, {});
  EXPECT_TRUE(verdict.ok) << verdict.check << ": " << verdict.violation;
  EXPECT_GE(Of(verdict, plan, 1).used, 9.5);
  EXPECT_LE(Of(verdict, plan, 1).used, 13);
  EXPECT_GE(Of(verdict, plan, 3).used, 8.5);
  for (const PodFigures& figures : verdict.pods) {
    if (figures.pod != 3) continue;
    EXPECT_LE(figures.met.late * 10, figures.met.waits);
  }
}

// Behind a relay: what was sent ahead to one that works for 30 us is over before its turn is seen
// to begin, and whoever comes next is not kept waiting for it.
TEST(Promises, AHoldThatIsOverBeforeItIsSeenToBeginHoldsUpNobody) {
  Plan plan = For(seconds(60));
  plan.seed = 3;
  plan.relay = true;
  plan.pods = {Of(1, 50), Of(2, 30), Of(3, 10)};
  plan.pods[2].kernel = plan.pods[2].burst = microseconds(30);
  plan.pods[2].pause = milliseconds(100);
  for (PodPlan& pod : plan.pods) pod.jitter = 30;
  const Verdict verdict = world::Run(plan, {});
  EXPECT_TRUE(verdict.ok) << verdict.check << ": " << verdict.violation;
}

}  // namespace
}  // namespace baton::world
