// Gangs against singles and each other: shares, limits, and what may go wrong on the way.
#include "scheduler/gang_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "tests/scheduler/gang_run.h"
#include "tests/scheduler/share_spec.h"

namespace baton::scheduler {
namespace {

TEST(Gang, AloneItKeepsItsTokens) {
  GangRun world(2);
  const PodId a = world.Add({.spec = Spec(50), .gpus = {0, 1}, .collective = 5});
  world.Run(seconds(1));
  EXPECT_GT(Least(world.SharesOver(seconds(5)), a), 99);
  EXPECT_LE(world.Grants(0), 2u);
}

TEST(Gang, TwoOnTheSameGpusAndASaturatingSingleOnEachAllGetTheirRequests) {
  for (const Duration kernel :
       {Duration(microseconds(20)), Duration(microseconds(300)), Duration(milliseconds(3))}) {
    for (const uint32_t every : {2, 20}) {
      if (kWorlds == 1 && every == 2) continue;
      SCOPED_TRACE(testing::Message() << kernel.count() << " ns, collective every " << every);
      GangRun world(2, 7);
      const PodPlan gang{.spec = Spec(30), .gpus = {0, 1}, .kernel = kernel, .collective = every};
      const PodId a = world.Add(gang);
      const PodId b = world.Add(gang);
      const PodId s = world.Add({.spec = Spec(40), .gpus = {0}});
      const PodId t = world.Add({.spec = Spec(40), .gpus = {1}});
      world.Run(seconds(2));
      const Shares shares = world.SharesOver(seconds(10));
      // A part of what a gang holds goes by while its ranks meet at the end of it.
      for (const PodId gang_pod : {a, b}) EXPECT_GT(Least(shares, gang_pod), 26);
      for (const PodId single : {s, t}) EXPECT_GT(Least(shares, single), 39);
    }
  }
}

// Each of the collectives is a meeting of its own: the ranks can hardly ever be caught at the same
// place.
TEST(Gang, CollectivesBackToBackStillDrain) {
  GangRun world(2);
  const PodId a = world.Add({.spec = Spec(50), .gpus = {0, 1}, .collective = 1});
  const PodId s = world.Add({.spec = Spec(50), .gpus = {0}});
  world.Run(seconds(1));
  const Shares shares = world.SharesOver(seconds(5));
  EXPECT_GT(Least(shares, a), 35);
  EXPECT_GT(Least(shares, s), 48);
}

TEST(Gang, ThoseThatCrossInACircleAllGoOn) {
  GangRun world(3);
  const Duration kernel = microseconds(200);
  std::vector<PodId> gangs;
  for (const std::vector<uint32_t>& gpus :
       {std::vector<uint32_t>{0, 1}, std::vector<uint32_t>{1, 2}, std::vector<uint32_t>{0, 2}}) {
    gangs.push_back(
        world.Add({.spec = Spec(30), .gpus = gpus, .kernel = kernel, .collective = 10}));
  }
  std::vector<PodId> singles;
  for (const uint32_t g : {0, 1, 2}) singles.push_back(world.Add({.spec = Spec(40), .gpus = {g}}));
  world.Run(seconds(2));
  const Shares shares = world.SharesOver(seconds(10));
  for (const PodId pod : gangs) EXPECT_GT(Least(shares, pod), 25);
  for (const PodId pod : singles) EXPECT_GT(Least(shares, pod), 39);
}

// Eight GPUs in a ring, and eight gangs of four neighbours each: those that lie opposite have no
// GPU in common, and two of them fill the machine.
TEST(Gang, ThoseThatHaveNoGpuInCommonRunSideBySide) {
  for (const bool singles : {false, true}) {
    GangRun world(8);
    std::vector<PodId> gangs, alone;
    for (uint32_t i = 0; i < 8; ++i) {
      gangs.push_back(world.Add({.spec = Spec(singles ? 20.0 : 25.0),
                                 .gpus = {i, (i + 1) % 8, (i + 2) % 8, (i + 3) % 8},
                                 .collective = 10}));
      if (singles) alone.push_back(world.Add({.spec = Spec(15), .gpus = {i}}));
    }
    world.Run(seconds(2));
    const Shares shares = world.SharesOver(seconds(20));
    double least_gang = 100, least_single = 100;
    for (const PodId gang : gangs) least_gang = std::min(least_gang, Least(shares, gang));
    for (const PodId pod : alone) least_single = std::min(least_single, Least(shares, pod));
    printf("figure ring_of_gangs%s %.2f %%, singles %.2f %%\n", singles ? "_beside_singles" : "",
           least_gang, least_single);
    EXPECT_GE(least_gang, singles ? 18 : 23);
    EXPECT_GE(least_single, 14.5);
  }
}

// The middle one needs a GPU of each of the others, whose tokens end at different times: each of
// them could go again while the other one has its GPU.
TEST(Gang, OneThatWaitsIsNotOvertakenByOneThatWouldEndLater) {
  GangRun world(4);
  world.Add({.spec = Spec(40), .gpus = {0, 1}, .collective = 10});
  world.Add({.spec = Spec(40),
             .gpus = {2, 3},
             .kernel = microseconds(1'700),
             .collective = 7,
             .arrives = milliseconds(20)});
  const PodId middle =
      world.Add({.spec = Spec(40), .gpus = {1, 2}, .collective = 10, .arrives = milliseconds(20)});
  world.Run(seconds(2));
  const double share = Least(world.SharesOver(seconds(10)), middle);
  printf("figure gang_between_two_others %.1f %%\n", share);
  EXPECT_GE(share, 36);
}

TEST(Gang, OneGpuThatIsWantedByManyDoesNotGiveItMoreThanItsShareOfTheOthers) {
  GangRun world(2);
  const PodId a = world.Add({.spec = Spec(20), .gpus = {0, 1}, .collective = 10});
  const PodId s = world.Add({.spec = Spec(80), .gpus = {0}});
  const PodId t = world.Add({.spec = Spec(30), .gpus = {1}});
  world.Run(seconds(2));
  const Shares shares = world.SharesOver(seconds(10));
  EXPECT_GT(Least(shares, a), 17);
  EXPECT_GT(Least(shares, s), 78);  // its request is not touched by the gang's elsewhere
  EXPECT_GT(Least(shares, t), 60);  // what the gang cannot use
}

TEST(Gang, ItsLimitHolds) {
  GangRun world(2);
  const PodId a = world.Add({.spec = Spec(20, 20), .gpus = {0, 1}, .collective = 10});
  world.Run(seconds(2));
  const Shares shares = world.SharesOver(seconds(10));
  EXPECT_LT(shares.at({a, 0}), 21);
  EXPECT_LT(shares.at({a, 1}), 21);
  EXPECT_GT(Least(shares, a), 17);
}

// Its tokens are short. Were it predicted to hold for longer, it would seldom come first on both.
TEST(Gang, OneOfASmallLimitHasItsRequestBesideSeveral) {
  GangRun world(2);
  const PodId a = world.Add({.spec = Spec(2, 2), .gpus = {0, 1}, .collective = 10});
  world.Add({.spec = Spec(98), .gpus = {0}});
  for (const double request : {50, 48}) world.Add({.spec = Spec(request), .gpus = {1}});
  world.Run(seconds(5));
  EXPECT_GT(Least(world.SharesOver(seconds(30)), a), 1.4);
}

// It waits until the gang's ranks have met.
TEST(Gang, AHighPriorityPodTakesTheTokensBackAtOnce) {
  std::vector<Duration> longest;
  for (uint64_t seed = 1; seed <= 9; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    GangRun world(2, seed);
    const PodId a = world.Add({.spec = Spec(30), .gpus = {0, 1}, .collective = 10});
    const PodId s = world.Add({.spec = Spec(30, 100, policy::Priority::kHigh),
                               .gpus = {1},
                               .burst = milliseconds(4),
                               .pause = milliseconds(100)});
    world.Run(seconds(5));
    EXPECT_GT(world.Launches(s), 40 * 4u);  // a burst each 104 ms, and a short wait
    longest.push_back(world.LongestWait(s));
    EXPECT_GT(Least(world.SharesOver(seconds(5)), a), 80);
  }
  std::sort(longest.begin(), longest.end());
  EXPECT_LT(longest[longest.size() / 2], milliseconds(12));
  EXPECT_LT(longest.back(), milliseconds(15));
}

TEST(Gang, WhenARankDiesTheGpusAreGivenToOthers) {
  GangRun world(2);
  const PodId a = world.Add({.spec = Spec(50), .gpus = {0, 1}, .collective = 2});
  const PodId s = world.Add({.spec = Spec(50), .gpus = {0}});
  const PodId t = world.Add({.spec = Spec(50), .gpus = {1}});
  world.Run(seconds(1));
  world.Kill(a, 0);
  world.Run(milliseconds(100));
  world.Kill(a, 1);  // its peer waits for the dead one's next collective for ever
  world.Run(milliseconds(100));
  const Shares shares = world.SharesOver(seconds(2));
  EXPECT_GT(Least(shares, s), 99);
  EXPECT_GT(Least(shares, t), 99);
}

TEST(Gang, ADaemonThatStartsAnewWaitsForAllOfItsRanks) {
  for (uint64_t seed = 1; seed <= kWorlds; ++seed) {
    GangRun world(2, seed);
    const PodPlan gang{
        .spec = Spec(30), .gpus = {0, 1}, .kernel = microseconds(300), .collective = 3};
    const PodId a = world.Add(gang);
    const PodId b = world.Add(gang);
    const PodId s = world.Add({.spec = Spec(40), .gpus = {0}});
    world.Run(milliseconds(500 + 7 * static_cast<int>(seed)));
    world.Restart();
    world.Run(seconds(1));
    const Shares shares = world.SharesOver(seconds(3));
    EXPECT_GT(Least(shares, a), 25) << "seed " << seed;
    EXPECT_GT(Least(shares, b), 25) << "seed " << seed;
    EXPECT_GT(Least(shares, s), 38) << "seed " << seed;
  }
}

TEST(Gang, OneThatIsDeletedWhileItsGpusAreKeptForItLetsThemGo) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    GangRun world(2, seed);
    const PodId a = world.Add({.spec = Spec(50), .gpus = {0, 1}, .collective = 5});
    const PodId s = world.Add({.spec = Spec(50), .gpus = {0}, .kernel = milliseconds(5)});
    const PodId t = world.Add({.spec = Spec(50), .gpus = {1}, .kernel = milliseconds(5)});
    world.Run(milliseconds(500) + microseconds(917) * seed);
    world.Remove(a);
    world.Run(milliseconds(100));
    const Shares shares = world.SharesOver(milliseconds(500));
    for (const PodId single : {s, t}) EXPECT_GT(Least(shares, single), 98);
  }
}

TEST(Gang, SeveralProcessesOnOneGpuAllCatchUp) {
  GangRun world(2);
  const PodId a = world.Add({.spec = Spec(50),
                             .processes = 2,
                             .gpus = {0, 1},
                             .kernel = microseconds(300),
                             .collective = 7});
  const PodId s = world.Add({.spec = Spec(50), .gpus = {0}});
  world.Run(seconds(1));
  const Shares shares = world.SharesOver(seconds(5));
  EXPECT_GT(Least(shares, a), 40);
  EXPECT_GT(Least(shares, s), 48);
}

TEST(Gang, SeveralThreadsWithCommunicatorsOfTheirOwnAllCatchUp) {
  GangRun world(2);
  const PodId a = world.Add({.spec = Spec(50),
                             .gpus = {0, 1},
                             .kernel = microseconds(300),
                             .collective = 7,
                             .threads = 3});
  const PodId s = world.Add({.spec = Spec(50), .gpus = {0}});
  world.Run(seconds(1));
  const Shares shares = world.SharesOver(seconds(5));
  EXPECT_GT(Least(shares, a), 40);
  EXPECT_GT(Least(shares, s), 48);
}

TEST(Gang, OneProcessThatLaunchesOnAllItsGpusInTurnGoesOn) {
  GangRun world(3);
  const PodId a = world.Add({.spec = Spec(50),
                             .gpus = {0, 1, 2},
                             .kernel = microseconds(300),
                             .collective = 7,
                             .in_turn = true});
  const PodId s = world.Add({.spec = Spec(50), .gpus = {0}});
  world.Run(seconds(1));
  const Shares shares = world.SharesOver(seconds(5));
  EXPECT_GT(Least(shares, a), 40);
  EXPECT_GT(Least(shares, s), 48);
}

// Whoever is let on has a kernel when the others are done, and its next GPU to wait for.
TEST(Gang, ProcessesThatLaunchInTurnWithoutWaitingForEachOtherComeToRest) {
  for (uint64_t seed = 1; seed <= kWorlds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    GangRun world(4, seed);
    const PodId a = world.Add({.spec = Spec(50),
                               .processes = 2,
                               .gpus = {0, 1, 2, 3},
                               .kernel = microseconds(2'500),
                               .in_turn = true});
    const PodId s = world.Add({.spec = Spec(50), .gpus = {0}});
    world.Run(seconds(1));
    const Shares shares = world.SharesOver(seconds(5));
    EXPECT_GT(Least(shares, a), 38);  // the rest of its time goes by until they rest
    EXPECT_GT(Least(shares, s), 48);
  }
}

// Each of them asks again before its grace is over, so that one always rests; and cuts the gang.
// `busy`: another one uses what they leave meanwhile.
TEST(Gang, SmallPodsDoNotKeepItWaitingForEver) {
  struct Case {
    policy::Priority priority;
    bool busy;
    double least;
  };
  for (const Case& c :
       {Case{policy::Priority::kNormal, false, 35}, Case{policy::Priority::kNormal, true, 17},
        Case{policy::Priority::kHigh, false, 10}, Case{policy::Priority::kHigh, true, 7}}) {
    for (uint64_t seed = 1; seed <= kWorlds; ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", least " << c.least);
      GangRun world(2, seed);
      const PodId gang = world.Add(
          {.spec = Spec(17), .gpus = {0, 1}, .kernel = microseconds(288), .collective = 61});
      for (const Duration pause : {milliseconds(8), milliseconds(5)}) {
        world.Add({.spec = Spec(10, 100, c.priority),
                   .gpus = {1},
                   .kernel = microseconds(20),
                   .burst = microseconds(20),
                   .pause = pause,
                   .jitter = 50});
      }
      if (c.busy) world.Add({.spec = Spec(2), .gpus = {1}});
      world.Run(milliseconds(500) + microseconds(3'137) * seed);
      EXPECT_GT(Least(world.SharesOver(seconds(5)), gang), c.least);
    }
  }
}

TEST(Gang, WhileTheLinkIsCutNothingIsDecidedAndNothingSpins) {
  for (uint64_t seed = 1; seed <= kWorlds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    GangRun world(2, seed);
    const PodPlan gang{.spec = Spec(30), .gpus = {0, 1}, .collective = 5};
    const PodId a = world.Add(gang);
    const PodId b = world.Add(gang);
    const PodId s = world.Add({.spec = Spec(40), .gpus = {0}});
    world.Run(milliseconds(500) + microseconds(3'137) * seed);
    world.CutLink(seconds(1));
    const uint64_t before = world.daemon().gang_wakeups();
    world.Run(milliseconds(900));
    EXPECT_LT(world.daemon().gang_wakeups() - before, 50u);
    world.Run(milliseconds(1'000));
    // Who held all the time has to pay for it.
    world.Run(seconds(3));
    const Shares shares = world.SharesOver(seconds(2));
    for (const PodId pod : {a, b}) EXPECT_GT(Least(shares, pod), 25);
    EXPECT_GT(Least(shares, s), 37);
  }
}

// A node comes back without one of its GPUs.
TEST(Gang, WhenOneOfItsGpusIsGoneTheOthersAreNotLost) {
  for (uint64_t seed = 1; seed <= kWorlds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    GangRun world(2, seed);
    const PodId a = world.Add({.spec = Spec(90), .gpus = {0, 1}});
    const PodId s = world.Add({.spec = Spec(10), .gpus = {0}});
    world.Run(milliseconds(500) + microseconds(3'137) * seed);
    world.Restart({0});
    world.Run(milliseconds(300));
    EXPECT_GT(Least(world.SharesOver(seconds(1)), s), 95);
    EXPECT_GT(world.Launches(a), 0u);
  }
}

// What others do elsewhere, or what the limit gives back, happens while nothing happens here.
TEST(Gang, AtItsLimitItGoesOnAsSoonAsItMay) {
  GangRun world(2);
  const PodId a = world.Add({.spec = Spec(20, 20), .gpus = {0, 1}, .collective = 10});
  world.Run(seconds(1));
  const Shares shares = world.SharesOver(seconds(10));
  EXPECT_GT(Least(shares, a), 19);
  EXPECT_LT(world.LongestWait(a), milliseconds(180));
  for (const uint32_t g : {0, 1}) {
    EXPECT_LT(world.Charged(a, g),
              (world.now().time_since_epoch() + milliseconds(200)) * 20 / 100 + milliseconds(45));
  }
}

TEST(Gang, AClaimThatNobodyCanCheckStopsOneGpuNotAllOfTheGang) {
  GangRun world(2);
  const PodId a = world.Add({.spec = Spec(50), .gpus = {0, 1}, .collective = 10});
  const PodId s = world.Add({.spec = Spec(25), .gpus = {0}});
  const PodId t = world.Add({.spec = Spec(50), .gpus = {1}});
  const PodId liar = world.Add({.spec = Spec(25), .gpus = {0}, .kernel = seconds(100)});
  world.Run(milliseconds(500));
  (void)s, (void)liar;
  EXPECT_GT(Least(world.SharesOver(seconds(2)), t), 90);
  EXPECT_GE(world.Charged(a, 1), Duration(0));
}

TEST(Gang, OneThatHasNothingToDoIsInNobodysWay) {
  GangRun world(2);
  const PodId a = world.Add({.spec = Spec(50),
                             .gpus = {0, 1},
                             .burst = milliseconds(4),
                             .pause = milliseconds(500),
                             .collective = 5});
  const PodId s = world.Add({.spec = Spec(50), .gpus = {0}});
  world.Run(milliseconds(300));
  EXPECT_GT(world.Launches(a), 0u);
  for (int i = 0; i < 100; ++i) {
    world.Run(milliseconds(10));
    for (const uint32_t g : {0, 1}) EXPECT_EQ(world.Asks(a), world.Waits(a, g));
  }
  EXPECT_GT(world.Launches(s), 0u);
}

// High priority comes before it on each GPU as long as it is not far behind its request there, and
// a moment at which it comes first on all is rare beside long kernels.
TEST(Gang, HasItsRequestBesideHighPriorityAndLongKernels) {
  GangRun world(3);
  const PodId a = world.Add({.spec = Spec(20), .gpus = {0, 1, 2}, .collective = 5});
  std::vector<PodId> high;
  for (const uint32_t g : {0, 1, 2}) {
    high.push_back(world.Add({.spec = Spec(40, 100, policy::Priority::kHigh), .gpus = {g}}));
    world.Add({.spec = Spec(20), .gpus = {g}, .kernel = milliseconds(94)});
  }
  world.Run(seconds(2));
  const Shares shares = world.SharesOver(seconds(20));
  printf("figure gang_beside_high_priority %.2f %%\n", Least(shares, a));
  EXPECT_GT(world.Held(a), milliseconds(22'000 / 5 - 500));
  for (const PodId pod : high) EXPECT_GT(Least(shares, pod), 39);
}

// Where high priority leaves most of the GPU idle, the gang is owed nothing: what it is owed on its
// other GPU counts there too, for its turn and against a cut, and no longer than it is owed that.
TEST(Gang, WhatItIsOwedOnOneOfItsGpusCountsOnAll) {
  for (const Duration pause : {milliseconds(1), milliseconds(4)}) {
    for (const uint32_t percent : {10, 40}) {
      SCOPED_TRACE(percent);
      GangRun world(2);
      const PodId a = world.Add({.spec = Spec(percent), .gpus = {0, 1}, .collective = 5});
      const PodId high = world.Add({.spec = Spec(20, 100, policy::Priority::kHigh),
                                    .gpus = {0},
                                    .kernel = microseconds(200),
                                    .burst = milliseconds(1),
                                    .pause = pause});
      const PodId s = world.Add({.spec = Spec(60), .gpus = {1}});
      world.Run(seconds(2));
      const Shares shares = world.SharesOver(seconds(20));
      EXPECT_GT(Least(shares, a), 0.9 * percent);
      EXPECT_GT(Least(shares, high), pause == milliseconds(1) ? 25 : 12);
      EXPECT_GT(Least(shares, s), 58);
    }
  }
}

// The tokens go by the share that each pod has where it is.
TEST(Gang, OfTwoPodsGoesOnAsOneOfASinglePodDoes) {
  uint64_t collectives[2];
  for (const bool many_pods : {false, true}) {
    GangRun world(2);
    const PodPlan plan{.spec = Spec(50), .gpus = {0, 1}, .collective = 5};
    const PodId a = many_pods ? world.AddPods(plan) : world.Add(plan);
    const PodId b = many_pods ? world.AddPods(plan) : world.Add(plan);
    world.Run(seconds(1));
    const Shares shares = world.SharesOver(seconds(10));
    for (const PodId gang : {a, b}) EXPECT_GT(Least(shares, gang), 45);
    collectives[many_pods ? 1 : 0] = std::min(world.Collectives(a), world.Collectives(b));
  }
  EXPECT_EQ(collectives[0], collectives[1]) << "the same decisions";
}

TEST(Gang, WhatHappensOnOtherGpusCostsItNothing) {
  GangRun world(3);
  const PodId s = world.Add({.spec = Spec(50), .gpus = {2}, .kernel = microseconds(100)});
  world.Add({.spec = Spec(50), .gpus = {2}, .kernel = microseconds(100)});
  world.Add({.spec = Spec(50), .gpus = {0, 1}, .collective = 5});
  world.Run(seconds(1));
  const uint64_t before = world.daemon().gangs().tended(), grants = world.Grants(2);
  world.Run(seconds(1));
  EXPECT_GT(world.Launches(s), 0u);
  EXPECT_GT(world.Grants(2) - grants, 10u);
  EXPECT_LT(world.daemon().gangs().tended() - before, 200u);  // its own heartbeats and renewals
}

// Pod 1 is a gang on two GPUs, with pod `other` on the other one where that is another; pods 2 and
// 3 are singles on the first and the second. Clients, 10 times the pod and the GPU's number, say
// what the test wants them to say; 10 and 11 are those of the gang.
struct TwoGpus {
  explicit TwoGpus(double limit = 100, uint64_t other = 1) : second{other} {
    for (const uint64_t g : {0, 1}) {
      const PodId pod = g == 0 ? PodId{1} : second;
      Step(g, PodSet{pod, Spec(1, limit), true});
      Step(g, ClientAttached{ClientId{10 + g}, pod});
      Step(g, PodSet{PodId{2 + g}, Spec(1)});
      Step(g, ClientAttached{ClientId{20 + 11 * g}, PodId{2 + g}});
    }
    gangs.Set(GangId{1}, {{PodId{1}, &gpus[0]}, {second, &gpus[1]}});
  }
  void Step(size_t g, const Event& event) {
    Effects effects;
    gpus[g].Step(now, event, effects);
    for (const Effect& effect : effects) {
      if (const auto* send = std::get_if<SendToken>(&effect)) told[send->client.value] = *send;
    }
  }
  void Say(size_t g, uint64_t client, wire::Phase phase) {
    const SendToken& last = told[client];
    Step(g, ClientReport{ClientId{client}, ++seq, phase, last.epoch, last.rev});
    Tend();
  }
  void Tend() {
    gangs.Tend(now, [this](const TokenScheduler& gpu, const GangStep& step) {
      Step(&gpu == &gpus[0] ? 0 : 1, step);
    });
    EXPECT_EQ(gangs.Invariants(), std::nullopt);
  }
  void Pass(Duration time) {
    for (const Instant end = now + time; now < end; now += microseconds(100)) {
      for (const uint32_t g : {0, 1}) {
        if (gpus[g].wakeup() <= now) Step(g, Tick{});
      }
      Tend();
      was_reserved |= gpus[1].Gang(second).reserved;
    }
  }

  const PodId second;
  TokenScheduler gpus[2] = {TokenScheduler({}, 0), TokenScheduler({}, 0)};
  GangScheduler gangs{{}};
  Instant now{seconds(1)};
  uint64_t seq = 0;
  std::map<uint64_t, SendToken> told;  // last, by client
  bool was_reserved = false;
};

// A single pod of 1 % might draw in advance beside somebody who waits.
TEST(Gang, ItsTokensAreNoLongerThanItsLimitAllows) {
  TwoGpus world(1);
  world.Say(0, 20, wire::Phase::kWaiting);
  world.Say(0, 20, wire::Phase::kHolding);
  for (const uint64_t g : {0, 1}) world.Say(g, 10 + g, wire::Phase::kWaiting);
  for (int i = 0; i < 1'000 && !world.was_reserved; ++i) world.Pass(milliseconds(1));
  world.Say(0, 20, wire::Phase::kWaiting);
  EXPECT_GT(world.told[10].quota, Duration(0));
  EXPECT_LE(world.told[10].quota, SchedulerOptions().fairness.limit_window / 100);
}

// Its buckets are empty after 50 ms.
TEST(Gang, ItIsExtendedNoFurtherThanItsLimitAllows) {
  TwoGpus world(20);
  for (const uint64_t g : {0, 1}) world.Say(g, 10 + g, wire::Phase::kWaiting);
  for (const uint64_t g : {0, 1}) world.Say(g, 10 + g, wire::Phase::kHolding);
  const Instant granted = world.now;
  while (world.told[10].rev == 1) world.Pass(microseconds(100));
  EXPECT_LE(world.now + world.told[10].quota, granted + milliseconds(51));
}

TEST(Gang, NoGpuIsKeptForItWhileAHolderOfAnotherOneHangs) {
  TwoGpus world;
  world.Say(0, 20, wire::Phase::kWaiting);
  world.Say(0, 20, wire::Phase::kHolding);
  for (const uint64_t g : {0, 1}) world.Say(g, 10 + g, wire::Phase::kWaiting);
  world.Pass(seconds(2));
  EXPECT_TRUE(world.was_reserved) << "until it was seen to hang";
  EXPECT_FALSE(world.gpus[1].Gang(PodId{1}).reserved);
  world.Say(1, 31, wire::Phase::kWaiting);
  EXPECT_EQ(world.gpus[1].holder(), PodId{3});
}

// It asks again at once each time, and nobody else asks there.
TEST(Gang, AHolderThatHangsAgainAndAgainDoesNotKeepItOut) {
  TwoGpus world;
  world.Say(0, 20, wire::Phase::kWaiting);
  world.Say(0, 20, wire::Phase::kHolding);
  for (const uint64_t g : {0, 1}) world.Say(g, 10 + g, wire::Phase::kWaiting);
  for (int i = 0; i < 5; ++i) {
    SCOPED_TRACE(i);
    world.Pass(seconds(2));
    EXPECT_FALSE(world.gpus[1].Gang(PodId{1}).reserved) << "while the other GPU's holder hangs";
    world.Say(0, 20, wire::Phase::kWaiting);
    for (const uint64_t g : {0, 1}) {
      EXPECT_EQ(world.gpus[g].holder(), PodId{1});
      world.Say(g, 10 + g, wire::Phase::kHolding);
    }
    while (world.told[10].quota > Duration(0)) world.Pass(milliseconds(1));
    for (const uint64_t g : {0, 1}) world.Say(g, 10 + g, wire::Phase::kWaiting);
    while (world.gpus[0].holder() != PodId{2}) world.Pass(milliseconds(1));
    world.Say(0, 20, wire::Phase::kHolding);
  }
}

// A hanging holder of the other GPU leaves, and the link with it.
TEST(Gang, NoGpuIsKeptForItWhileTheLinkToAnotherOneIsCut) {
  TwoGpus world;
  world.Say(0, 20, wire::Phase::kWaiting);
  world.Say(0, 20, wire::Phase::kHolding);
  world.Say(1, 31, wire::Phase::kWaiting);
  world.Say(1, 31, wire::Phase::kHolding);
  for (const uint64_t g : {0, 1}) world.Say(g, 10 + g, wire::Phase::kWaiting);
  while (!world.gpus[1].Gang(PodId{1}).reserved) world.Pass(milliseconds(1));
  world.Step(0, LinkCut{true});
  world.Say(1, 31, wire::Phase::kWaiting);
  world.Tend();
  EXPECT_EQ(world.gpus[1].holder(), PodId{3});
}

// What is found held when a daemon starts is the gang's own, and comes back.
TEST(Gang, NothingIsGrantedBeforeAllOfItsPodsAreThere) {
  TwoGpus world(100, 5);
  world.gangs.Set(GangId{1}, {{PodId{1}, &world.gpus[0]}, {PodId{5}, &world.gpus[1]}}, false);
  for (const uint64_t g : {0, 1}) world.Say(g, 10 + g, wire::Phase::kWaiting);
  world.Pass(seconds(1));
  EXPECT_EQ(world.gpus[0].holder(), std::nullopt);
  world.gangs.Set(GangId{1}, {{PodId{1}, &world.gpus[0]}, {PodId{5}, &world.gpus[1]}}, true);
  world.Pass(milliseconds(10));
  EXPECT_EQ(world.gpus[0].holder(), PodId{1});
  EXPECT_EQ(world.gpus[1].holder(), PodId{5});
}

TEST(Gang, APodThatLeavesTakesItsTokenAlongAndTheOthersGoOn) {
  TwoGpus world(100, 5);
  for (const uint64_t g : {0, 1}) world.Say(g, 10 + g, wire::Phase::kWaiting);
  for (const uint64_t g : {0, 1}) world.Say(g, 10 + g, wire::Phase::kHolding);
  ASSERT_EQ(world.gpus[1].holder(), PodId{5});
  world.gangs.Set(GangId{1}, {{PodId{1}, &world.gpus[0]}});
  world.Step(1, PodRemoved{PodId{5}});
  world.Tend();
  for (const uint64_t client : {10, 11}) EXPECT_EQ(world.told[client].quota, Duration(0));
  world.Say(1, 11, wire::Phase::kIdle);
  EXPECT_EQ(world.gpus[1].holder(), PodId{5}) << "its kernels may be waiting for the other pod's";
  world.Say(0, 10, wire::Phase::kWaiting);
  EXPECT_EQ(world.gpus[1].holder(), std::nullopt);
  EXPECT_EQ(world.gpus[0].holder(), PodId{1});
  EXPECT_GT(world.told[10].quota, Duration(0));
  world.gangs.Set(GangId{1}, {});
  world.Step(0, PodRemoved{PodId{1}});
  world.Say(0, 10, wire::Phase::kIdle);
  EXPECT_EQ(world.gpus[0].holder(), std::nullopt);
  EXPECT_TRUE(world.gangs.empty());
}

TEST(Gang, APodThatLeavesWhileTheGpusAreKeptFreesThem) {
  TwoGpus world(100, 5);
  world.Say(0, 20, wire::Phase::kWaiting);
  world.Say(0, 20, wire::Phase::kHolding);
  for (const uint64_t g : {0, 1}) world.Say(g, 10 + g, wire::Phase::kWaiting);
  for (int i = 0; i < 1'000 && !world.was_reserved; ++i) world.Pass(milliseconds(1));
  ASSERT_TRUE(world.gpus[0].Gang(PodId{1}).reserved);
  world.gangs.Set(GangId{1}, {{PodId{1}, &world.gpus[0]}});
  world.Step(1, PodRemoved{PodId{5}});
  world.Tend();
  world.Say(1, 31, wire::Phase::kWaiting);
  EXPECT_EQ(world.gpus[1].holder(), PodId{3});
  world.Say(0, 20, wire::Phase::kIdle);
  world.Pass(milliseconds(10));
  EXPECT_EQ(world.gpus[0].holder(), PodId{1});
}

TEST(Gang, APodThatComesHasItsTokenWithTheNextOnesOfTheOthers) {
  TwoGpus world(100, 5);
  world.gangs.Set(GangId{1}, {{PodId{1}, &world.gpus[0]}});
  world.Say(0, 10, wire::Phase::kWaiting);
  world.Say(0, 10, wire::Phase::kHolding);
  world.Say(1, 11, wire::Phase::kWaiting);
  ASSERT_EQ(world.gpus[1].holder(), std::nullopt) << "it is in no gang yet";
  world.gangs.Set(GangId{1}, {{PodId{1}, &world.gpus[0]}, {PodId{5}, &world.gpus[1]}});
  world.Pass(milliseconds(1));
  EXPECT_EQ(world.told[10].quota, Duration(0));
  world.Say(0, 10, wire::Phase::kWaiting);
  world.Pass(milliseconds(20));
  for (const uint64_t g : {0, 1}) {
    EXPECT_TRUE(world.gpus[g].holder()) << g;
    EXPECT_GT(world.told[10 + g].quota, Duration(0)) << g;
  }
}

// It stands in line there like one that was there from the beginning, another gang before it.
TEST(Gang, APodThatComesWhileTheOthersWaitStandsInLineToo) {
  TwoGpus world(100, 5);
  world.gangs.Set(GangId{1}, {});
  world.Tend();
  world.gangs.Set(GangId{3}, {{PodId{1}, &world.gpus[0]}});
  world.Step(1, PodSet{PodId{6}, Spec(1), true});
  world.Step(1, ClientAttached{ClientId{60}, PodId{6}});
  world.gangs.Set(GangId{2}, {{PodId{6}, &world.gpus[1]}});
  for (const auto& [g, client] : {std::pair(0, 20), std::pair(1, 31)}) {
    world.Say(g, client, wire::Phase::kWaiting);
    world.Say(g, client, wire::Phase::kHolding);
  }
  world.Say(1, 60, wire::Phase::kWaiting);
  world.Say(0, 10, wire::Phase::kWaiting);
  world.gangs.Set(GangId{3}, {{PodId{1}, &world.gpus[0]}, {PodId{5}, &world.gpus[1]}});
  world.Pass(milliseconds(1));
  world.Say(1, 31, wire::Phase::kIdle);
  world.Say(1, 60, wire::Phase::kIdle);
  world.Say(0, 20, wire::Phase::kIdle);
  world.Pass(milliseconds(4));
  EXPECT_EQ(world.gpus[0].holder(), PodId{1});
  EXPECT_EQ(world.gpus[1].holder(), PodId{5});
}

}  // namespace
}  // namespace baton::scheduler
