// What a gang is owed of its request on one of its GPUs, on the others.
#include <gtest/gtest.h>

#include "tests/scheduler/gang_run.h"
#include "tests/scheduler/share_spec.h"

namespace baton::scheduler {
namespace {

// The small ones of high priority leave most of their GPUs idle: there it is owed nothing.
TEST(Gang, WhatItIsOwedOnOneGpuCountsOnTheOther) {
  GangRun world(3);
  const PodId a = world.Add({.spec = Spec(40), .gpus = {0, 1}, .collective = 10});
  const PodId b = world.Add({.spec = Spec(40), .gpus = {1, 2}, .collective = 10});
  for (const uint32_t g : {0, 2}) {
    world.Add({.spec = Spec(20, 100, policy::Priority::kHigh),
               .gpus = {g},
               .kernel = microseconds(200),
               .burst = milliseconds(1),
               .pause = milliseconds(4)});
  }
  world.Add({.spec = Spec(20), .gpus = {1}});
  world.Run(seconds(5));
  const Shares shares = world.SharesOver(seconds(20));
  for (const PodId gang : {a, b}) EXPECT_GT(Least(shares, gang), 35);
}

// It is owed far more of the one than it can have, for ever.
TEST(Gang, WhatItIsOwedOfALargeRequestDoesNotCountWhereItHasASmallOne) {
  GangRun world(2);
  const PodId a = world.Add({.spec = Spec(10), .gpus = {0}, .collective = 10, .gang = 1});
  world.Add({.spec = Spec(80), .gpus = {1}, .collective = 10, .gang = 1});
  const PodId s = world.Add(
      {.spec = Spec(20), .gpus = {0}, .burst = milliseconds(2), .pause = milliseconds(10)});
  world.Add({.spec = Spec(70), .gpus = {0}});
  world.Add({.spec = Spec(20), .gpus = {1}});
  world.Run(seconds(5));
  const Shares shares = world.SharesOver(seconds(20));
  EXPECT_LT(shares.at({a, 0}), 14);
  EXPECT_GT(Least(shares, s), 8);
}

}  // namespace
}  // namespace baton::scheduler
