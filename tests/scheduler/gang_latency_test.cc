// Gangs beside pods with latencies.
#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "tests/scheduler/gang_run.h"
#include "tests/scheduler/share_spec.h"

namespace baton::scheduler {
namespace {

TEST(Gang, ItsTokensEndForALatency) {
  GangRun world(2);
  const PodId a = world.Add({.spec = Spec(30), .gpus = {0, 1}, .collective = 10});
  std::vector<PodId> services;
  for (const uint32_t g : {0, 1}) {
    policy::ShareSpec spec = Spec(15);
    spec.latency = milliseconds(20);
    services.push_back(world.Add(
        {.spec = spec, .gpus = {g}, .burst = milliseconds(2), .pause = milliseconds(20 + g)}));
    world.Add({.spec = Spec(50), .gpus = {g}});
  }
  world.Run(seconds(5));
  EXPECT_GT(Least(world.SharesOver(seconds(20)), a), 30);
  for (const PodId service : services) {
    const LatencyMet met = world.Met(service);
    EXPECT_GT(met.waits, 500u);
    EXPECT_LT(met.late * 50, met.waits);
  }
}

// Its tokens last for some meetings of its ranks, though nobody's latency can be met so.
TEST(Gang, LatenciesThatAreTooShortDoNotChopItsTokens) {
  GangRun world(2);
  const PodId a = world.Add({.spec = Spec(40), .gpus = {0, 1}, .collective = 10});
  for (const uint32_t g : {0, 1}) {
    policy::ShareSpec spec = Spec(20);
    spec.latency = milliseconds(1);
    world.Add({.spec = spec, .gpus = {g}, .burst = milliseconds(1), .pause = milliseconds(5)});
    world.Add({.spec = Spec(40), .gpus = {g}});
  }
  world.Run(seconds(5));
  const double share = Least(world.SharesOver(seconds(20)), a);
  printf("figure gang_beside_latencies %.1f %%\n", share);
  EXPECT_GT(share, 30);
}

}  // namespace
}  // namespace baton::scheduler
