// What pods of every kind of work get in the deterministic world: the requests of pods with pauses,
// beside bursts, services, visitors and high priority; and idle priority.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "teams/what_if.h"
#include "tests/cli/simulate.h"

namespace baton::cli {
namespace {

using SimulatedShares = Simulate;

TEST_F(SimulatedShares, ManySmallPodsOfHighPriorityLeaveTheBigOneItsRequest) {
  struct Services {
    int count;
    const char* request;
    const char* pause;
  };
  for (const auto& [count, request, pause] :
       {Services{5, "10", "20ms"}, Services{20, "2.5", "100ms"}}) {
    const auto json =
        Json(fmt::format("[[pod]]\nname = \"train\"\nrequest = 50\nkernel = \"1ms\"\n"
                         "[[pod]]\nname = \"svc\"\ncount = {}\nrequest = {}\npriority = \"high\"\n"
                         "kernel = \"1ms\"\nburst = \"5ms\"\npause = \"{}\"\n",
                         count, request, pause),
             {"--length", "60s"});
    const double train = json["pods"][0]["achieved"].get<double>();
    printf("figure train_beside_%d_high %.2f %%\n", count, train);
    EXPECT_GE(train, 49.5) << count << " services of " << request << " %";
  }
}

// 2 ms of work, then a gap on the processor, as a training loop has it; beside a pod that always
// has work. `target` is what the ideal GPU would give. No cliff: a longer gap costs as much more.
TEST_F(SimulatedShares, ALoopWithGapsGetsItsRequestWhateverTheGap) {
  double worst_loop = 1, worst_neighbour = 1, least_busy = 100;
  for (int us = 0; us <= 10'000; us += 100) {
    const auto json = Json(fmt::format("[[pod]]\nname = \"loop\"\nrequest = 50\njitter = 0\n"
                                       "burst = \"2ms\"\npause = \"{}us\"\n"
                                       "[[pod]]\nname = \"neighbour\"\nrequest = 50\n",
                                       std::max(us, 1)),
                           {"--length", "10s"});
    const auto part = [&](int pod) {
      return json["pods"][pod]["busy"].get<double>() / json["pods"][pod]["target"].get<double>();
    };
    const double busy = json["gpu_busy"].get<double>();
    EXPECT_GE(part(0), 0.85) << us << " us";
    // Waiting through a gap that is shorter than a hand-off costs both of them.
    EXPECT_GE(part(1), us < 400 ? 0.91 : 0.94) << us << " us";
    EXPECT_GE(busy, us < 4'000 ? 90 : 94) << us << " us";
    worst_loop = std::min(worst_loop, part(0));
    worst_neighbour = std::min(worst_neighbour, part(1));
    least_busy = std::min(least_busy, busy);
  }
  printf("figure loop_with_gaps %.3f of the ideal, its neighbour %.3f, GPU busy %.1f %%\n",
         worst_loop, worst_neighbour, least_busy);
}

TEST_F(SimulatedShares, ManySmallServicesLeaveTheGpuToTheTrainBesideThem) {
  struct Services {
    int count;
    const char* request;
    const char* work;
    const char* period;
    double busy;
  };
  for (const auto& [count, request, work, period, least] :
       {Services{20, "3.5", "1ms", "50ms", 97}, Services{50, "1.4", "200us", "100ms", 95}}) {
    const auto json = Json(fmt::format("[[pod]]\nname = \"train\"\nrequest = 30\nkernel = \"1ms\"\n"
                                       "[[pod]]\nname = \"svc\"\ncount = {}\nrequest = {}\n"
                                       "kernel = \"{}\"\nburst = \"{}\"\nperiod = \"{}\"\n",
                                       count, request, work, work, period),
                           {"--length", "60s"});
    const nlohmann::json& train = json["pods"][0];
    const double got = train["busy"].get<double>() / train["target"].get<double>();
    const double wait = json["priorities"][0]["wait"]["p99_ms"].get<double>();
    printf("figure train_beside_%d_services %.3f of the ideal, GPU busy %.1f %%, p99 %.1f ms\n",
           count, got, json["gpu_busy"].get<double>(), wait);
    EXPECT_GE(got, 0.93) << count;
    EXPECT_GE(json["gpu_busy"].get<double>(), least) << count;
    EXPECT_LE(wait, 25) << count;
  }
}

// Five others that burst at once, and 500 that live for half a second each.
TEST_F(SimulatedShares, ARequestOfHalfIsKeptBesideBurstsAndVisitors) {
  const auto achieved = [&](const std::string& others) {
    const auto json =
        Json("[[pod]]\nname = \"train\"\nrequest = 50\n" + others, {"--length", "60s"});
    return json["pods"][0]["achieved"].get<double>();
  };
  EXPECT_GE(achieved("[[pod]]\nname = \"burst\"\ncount = 5\nrequest = 10\nburst = \"20ms\"\n"
                     "period = \"100ms\"\n"),
            49.5);
  std::string visitors;
  for (int i = 0; i < 500; ++i) {
    visitors += fmt::format(
        "[[pod]]\nname = \"visitor-{}\"\nrequest = 2\nstart = \"{}ms\"\nstop = \"{}ms\"\n", i,
        115 * i, 115 * i + 500);
  }
  EXPECT_GE(achieved(visitors), 49.5);
}

// What pods did with some shares says what they would get with others: of mixes that nobody chose,
// as the ideal GPU serves them with those. Here it is known how each works and pauses; the books
// only tell what it held and how long it waited.
TEST_F(SimulatedShares, OtherSharesAreForetoldFromWhatPodsDid) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("mixes of seed {}", seed));
  std::mt19937 random(seed);
  const auto draw = [&](double from, double to) {
    return std::uniform_real_distribution<double>(from, to)(random);
  };
  double worst = 0, sum = 0;
  int pods = 0;
  for (int mix = 0; mix < 40; ++mix) {
    const int count = 2 + static_cast<int>(draw(0, 4));
    struct Drawn {
      double burst = 0, pause = 0;  // ms; 0: it always has work
      double before = 0, after = 0;
    };
    std::vector<Drawn> drawn(count);
    for (Drawn& pod : drawn) {
      if (draw(0, 1) > 0.4) pod = {draw(2, 30), draw(15, 200)};
      pod.before = draw(5, 100. / count);
      pod.after = draw(5, 100. / count);
    }
    const auto run = [&](auto request) {
      std::string text;
      for (int i = 0; i < count; ++i) {
        text += fmt::format("[[pod]]\nname = \"p{}\"\nrequest = {:.1f}\nkernel = \"500us\"\n", i,
                            request(drawn[i]));
        if (drawn[i].burst > 0) {
          text += fmt::format("burst = \"{:.0f}us\"\npause = \"{:.0f}us\"\n", 1e3 * drawn[i].burst,
                              1e3 * drawn[i].pause);
        }
      }
      return Json(text, {"--length", "60s", "--seed", std::to_string(mix + 1)})["pods"];
    };
    const nlohmann::json before = run([](const Drawn& pod) { return pod.before; });
    const nlohmann::json after = run([](const Drawn& pod) { return pod.after; });
    std::vector<double> alone;
    std::vector<teams::WhatIfPod> asking;
    for (int i = 0; i < count; ++i) {
      const double held = before[i]["achieved"].get<double>() / 100;
      const double busy = before[i]["busy"].get<double>() / 100;
      const double pauses = drawn[i].burst > 0 ? busy / drawn[i].burst * drawn[i].pause : 0;
      alone.push_back(teams::Alone({held, busy, std::max(0.0, 1 - held - pauses)}, 0));
      asking.push_back(
          {"",
           policy::Validated({.request = policy::ShareOf(std::round(10 * drawn[i].after) / 1000)})
               .value()});
    }
    const std::vector<double> gets = teams::WhatIf(asking, nullptr, {}).Divide(alone);
    for (int i = 0; i < count; ++i) {
      const double error = std::abs(100 * gets[i] - after[i]["target"].get<double>());
      worst = std::max(worst, error);
      sum += error;
      ++pods;
      EXPECT_LE(error, 8) << "mix " << mix << ", pod " << i << " of " << count;
    }
  }
  printf("figure foretold_points_off mean %.2f, worst %.2f\n", sum / pods, worst);
  EXPECT_LE(sum / pods, 0.6);
}

TEST_F(SimulatedShares, ALonePodWithLongPausesIsChargedForItsWork) {
  const auto json =
      Json("[[pod]]\nname = \"lone\"\nrequest = 50\nburst = \"5ms\"\nperiod = \"200ms\"\n",
           {"--length", "60s"});
  const nlohmann::json& lone = json["pods"][0];
  EXPECT_LE(lone["achieved"].get<double>(), 1.15 * lone["busy"].get<double>());
}

TEST_F(SimulatedShares, AHundredStrictPodsFillTheGpu) {
  const auto json =
      Json("[[pod]]\nname = \"s\"\ncount = 100\nrequest = 1\nlimit = 1\n", {"--length", "60s"});
  EXPECT_GE(json["gpu_busy"].get<double>(), 97);
}

// While it pauses for less than `active_grace` it is owed time, so it may get more than the ideal
// GPU, which forgets that, would give it (43.5 %): never at the cost of the other one's request.
TEST_F(SimulatedShares, PausesOfAFewMillisecondsCostNoRequest) {
  const auto json = Json(
      "[[pod]]\nname = \"a\"\nrequest = 50\nburst = \"10ms\"\npause = \"3ms\"\n"
      "[[pod]]\nname = \"b\"\nrequest = 50\n",
      {"--length", "60s"});
  for (const nlohmann::json& pod : json["pods"]) {
    EXPECT_GE(pod["achieved"].get<double>(), 0.99 * std::min(50.0, pod["target"].get<double>()))
        << pod["name"];
  }
}

constexpr const char* kIdlePod =
    "[[pod]]\nname = \"night\"\npriority = \"idle\"\nkernel = \"1ms\"\njitter = 0\n";

TEST_F(SimulatedShares, AnIdlePodHasTheGpuWhenItIsAloneAndNothingBesideOneThatAlwaysWorks) {
  EXPECT_GE(Json(kIdlePod)["pods"][0]["busy"].get<double>(), 98);
  const auto beside =
      Json(std::string("[[pod]]\nname = \"train\"\nrequest = 1\n") + kIdlePod, {"--length", "60s"});
  EXPECT_LE(beside["pods"][1]["achieved"].get<double>(), 0.5);
  EXPECT_EQ(beside["pods"][1]["target"].get<double>(), 0);
  EXPECT_EQ(beside["priorities"][1]["priority"], "idle");
}

// At every gap a loop keeps 95 % of its speed beside an idle pod with kernels of 1 ms, and never
// waits for more than one of those and 2 ms.
TEST_F(SimulatedShares, AnIdlePodCostsALoopLittleAndGivesWayAtOnce) {
  double worst = 1, idle_at_30 = 0;
  for (const int gap : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 22, 25, 30, 50, 100}) {
    const std::string loop = fmt::format(
        "[[pod]]\nname = \"loop\"\nrequest = 50\nburst = \"2ms\"\npause = \"{}ms\"\n", gap);
    const auto busy = [](const nlohmann::json& json, int pod) {
      return json["pods"][pod]["busy"].get<double>();
    };
    const auto alone = Json(loop, {"--length", "20s"});
    const auto both = Json(loop + kIdlePod, {"--length", "20s"});
    EXPECT_GE(busy(both, 0), (gap <= 15 ? 0.99 : 0.95) * busy(alone, 0)) << gap << " ms";
    EXPECT_LE(both["pods"][0]["wait"]["max_ms"].get<double>(), 3) << gap << " ms";
    worst = std::min(worst, busy(both, 0) / busy(alone, 0));
    if (gap == 30) idle_at_30 = busy(both, 1);
  }
  EXPECT_GE(idle_at_30, 30) << "pauses are used, too";
  printf(
      "figure loop_beside_an_idle_pod %.3f of its speed alone; at gaps of 30 ms that has %.1f %%\n",
      worst, idle_at_30);
}

}  // namespace
}  // namespace baton::cli
