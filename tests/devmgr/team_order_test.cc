#include "devmgr/placement/team_order.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <queue>
#include <vector>

#include "base/random.h"
#include "devmgr/placement/queue.h"
#include "tests/devmgr/small_cluster.h"
#include "tests/scale.h"

namespace baton::devmgr {
namespace {

using std::chrono::hours;

TEST(TeamOrder, CountsWhatWasUsedAndWhatRuns) {
  Cluster cluster(SmallModes());
  ASSERT_TRUE(cluster.SetNode(NodeOf("n", 2)));
  const Standings standings{{"a", {.weight = 3, .used_hours = 30}},
                            {"b", {.weight = 1, .used_hours = 5}}};
  TeamOrder order(standings, cluster, hours(4));
  EXPECT_TRUE(order.Before("b", "a"));  // 5 and 10 for each of its weight
  EXPECT_TRUE(order.Before("c", "b"));  // has used nothing
  order.Charge("b", 2 * kGpu);          // 5 + 4 * 2
  EXPECT_TRUE(order.Before("a", "b"));
  const PodRequest pod = PodOf("pod", kGpu, 2, 0, "a");
  ASSERT_TRUE(cluster.Commit(pod, *cluster.Decide(pod)));
  TeamOrder running(standings, cluster, hours(16));
  EXPECT_TRUE(running.Before("b", "a"));  // 5 and (30 + 16 * 2) / 3
  running.Charge("b", kGpu);
  EXPECT_TRUE(running.Before("a", "b"));
}

TEST(TeamOrder, SiblingsAreComparedWithAllBelowThem) {
  const Cluster cluster(SmallModes());
  // Both parents are due the same; one of them is far ahead by one of its teams.
  const Standings standings{{"p/a", {.weight = 1, .used_hours = 100}}, {"q/a", {.used_hours = 1}}};
  TeamOrder order(standings, cluster, hours(1));
  EXPECT_TRUE(order.Before("q/a", "p/b"));
  EXPECT_TRUE(order.Before("p/b", "p/a"));
  EXPECT_FALSE(order.Before("p/a", "p/a"));
}

TEST(TeamOrder, WhatAnIdleTeamLeavesGoesToItsSiblings) {
  const Cluster cluster(SmallModes());
  const Standings standings{
      {"p/busy", {.used_hours = 10}}, {"p/idle", {.weight = 99}}, {"q", {.used_hours = 12}}};
  TeamOrder order(standings, cluster, hours(1));
  EXPECT_TRUE(order.Before("p/busy", "q"));
  order.Charge("p/busy", 3 * kGpu);
  EXPECT_TRUE(order.Before("q", "p/busy"));
}

TEST(TeamOrder, ATeamsOwnPodsStandBesideTheTeamsBelowIt) {
  const Cluster cluster(SmallModes());
  const Standings standings{{"p", {.weight = 5, .used_hours = 10}},
                            {"p/a", {.weight = 3, .used_hours = 27}}};
  TeamOrder order(standings, cluster, hours(1));
  EXPECT_TRUE(order.Before("p/a", "p"));  // 9 of each of its weight, and 10
  EXPECT_FALSE(order.Before("p", "p/a"));
  order.Charge("p/a/x", 6 * kGpu);
  EXPECT_TRUE(order.Before("p", "p/a/x"));
}

RC_GTEST_PROP(TeamOrderLaw, ItIsAStrictOrder, ()) {
  Random random(*rc::gen::arbitrary<uint64_t>());
  std::vector<std::string> teams;
  Standings standings;
  for (const char* path : {"a", "a/x", "a/x/y", "a/z", "a-b", "a-b/c", "b", "b/x", "c"}) {
    teams.emplace_back(path);
    if (random.OneIn(2)) {
      standings[path] = {static_cast<uint32_t>(random.Between(1, 3)),
                         static_cast<double>(random.Between(0, 3))};
    }
  }
  const Cluster cluster(SmallModes());
  TeamOrder order(standings, cluster, hours(1));
  for (int i = 0; i < 4; ++i) {
    order.Charge(teams[random.Next() % teams.size()],
                 static_cast<uint64_t>(random.Between(0, 2)) * kGpu);
  }
  for (const std::string& a : teams) {
    for (const std::string& b : teams) {
      RC_ASSERT((a != b) == (order.Before(a, b) != order.Before(b, a)));
      for (const std::string& c : teams) {
        RC_ASSERT((!order.Before(a, b) || !order.Before(b, c) || order.Before(a, c)));
      }
    }
  }
}

// A cluster in which three teams always want more than there is, for a month.
constexpr size_t kWeeks = kSanitized ? 1 : 4;
struct Month {
  std::array<std::array<double, 3>, kWeeks> gpu_hours{};  // by week and team
  double used = 0;                                        // of all GPU-hours
};

struct Demand {
  std::vector<uint32_t> shares;  // of a GPU
  std::vector<uint32_t> counts;  // GPUs
};

Month RunMonth(uint64_t seed, const std::array<uint32_t, 3>& weights,
               const std::array<Demand, 3>& demands, const RoundOptions& options) {
  constexpr size_t kNodes = 8;
  constexpr size_t kGpus = 8;
  constexpr size_t kBacklog = 24;  // pods of each team that wait at any time
  constexpr double kStep = 0.1;    // hours from one round to the next
  constexpr double kWeek = 168;
  constexpr double kHalfLife = kWeek;
  Random random(seed);
  Cluster cluster(SmallModes());
  for (size_t n = 0; n < kNodes; ++n) {
    EXPECT_TRUE(cluster.SetNode(NodeOf(fmt::format("n{}", n), kGpus)));
  }
  const std::array<std::string, 3> names{"a", "b", "c"};
  Standings standings;
  for (size_t t = 0; t < 3; ++t) standings[names[t]].weight = weights[t];
  std::map<std::string, WaitingPod> waiting;
  std::map<std::string, double> lengths;
  using End = std::pair<double, std::string>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;
  std::array<double, 3> running{};  // GPUs
  std::map<std::string, std::pair<size_t, double>> runs;
  std::vector<Reservation> kept;
  Month month;
  uint64_t named = 0;
  const double decay = std::exp2(-kStep / kHalfLife);
  for (uint64_t step = 0; step < kWeeks * kWeek / kStep; ++step) {
    const double now = static_cast<double>(step) * kStep;
    while (!ends.empty() && ends.top().first <= now) {
      const std::string name = ends.top().second;
      ends.pop();
      EXPECT_TRUE(cluster.Delete(name));
      running[runs[name].first] -= runs[name].second;
      runs.erase(name);
    }
    std::array<size_t, 3> backlog{};
    for (const auto& [name, pod] : waiting) ++backlog[pod.request.team[0] - 'a'];
    for (size_t t = 0; t < 3; ++t) {
      for (; backlog[t] < kBacklog; ++backlog[t]) {
        const Demand& demand = demands[t];
        const std::string name = fmt::format("{}-{:06}", names[t], named++);
        const PodRequest pod =
            PodOf(name, demand.shares[random.Next() % demand.shares.size()],
                  demand.counts[random.Next() % demand.counts.size()], 0, names[t]);
        waiting[name] = {pod, step, "", 0};
        // Many are short, some take all of their 12 hours.
        lengths[name] =
            random.OneIn(3)
                ? 12
                : 0.1 + 11.9 * std::pow(static_cast<double>(random.Between(0, 1000)) / 1000, 2);
      }
    }
    std::vector<WaitingPod> now_waiting;
    for (const auto& [name, pod] : waiting) now_waiting.push_back(pod);
    const Round round =
        Schedule(cluster, SmallModes(), now_waiting, Quotas(), standings, kept, options);
    kept = round.reservations;
    for (const Refusal& refusal : round.refused) {
      waiting[refusal.pod].passed_over = refusal.passed_over;
    }
    for (const PlacedNow& placed : round.placed) {
      const WaitingPod pod = waiting[placed.pod];
      const size_t t = pod.request.team[0] - 'a';
      const double gpus = static_cast<double>(AskedBy(pod.request).share) / kGpu;
      running[t] += gpus;
      runs[placed.pod] = {t, gpus};
      ends.emplace(now + lengths[placed.pod], placed.pod);
      lengths.erase(placed.pod);
      waiting.erase(placed.pod);
    }
    for (size_t t = 0; t < 3; ++t) {
      double& used = standings[names[t]].used_hours;
      used = used * decay + running[t] * kStep;
      month.gpu_hours[static_cast<size_t>(now / kWeek)][t] += running[t] * kStep;
      month.used += running[t] * kStep / (kWeeks * kWeek * kNodes * kGpus);
    }
  }
  return month;
}

double FarthestFromDue(const Month& month, const std::array<uint32_t, 3>& weights) {
  double farthest = 0;
  for (const auto& week : month.gpu_hours) {
    const double all = week[0] + week[1] + week[2];
    for (size_t t = 0; t < 3; ++t) {
      const double due = all * weights[t] / (weights[0] + weights[1] + weights[2]);
      farthest = std::max(farthest, std::abs(week[t] / due - 1));
    }
  }
  return farthest;
}

TEST(TeamOrder, EachTeamHasItsDueWithinTwoPercentInEveryWeekOfAMonth) {
  const std::array<uint32_t, 3> weights{3, 2, 1};
  // No pod takes more than 0.72 % of its team's week: 2 GPUs for 12 hours, of 3 584 GPU-hours.
  const std::array<Demand, 3> demands{
      {{{100'000, 250'000, 500'000}, {1}}, {{500'000, 1'000'000}, {1, 2}}, {{1'000'000}, {1}}}};
  const Month month = RunMonth(65, weights, demands, {.patience = 64});  // the binder's
  const double farthest = FarthestFromDue(month, weights);
  fmt::print("{:.2f} % from its due at most, {:.1f} % of the GPUs in use\n", farthest * 100,
             month.used * 100);
  EXPECT_LE(farthest, 0.02);
}

}  // namespace
}  // namespace baton::devmgr
