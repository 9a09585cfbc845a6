// A cluster on virtual time: what comes of teams' weights, of room, of quotas, against arithmetic.
#include "capacity/play.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <numbers>

#include "base/random.h"
#include "tests/capacity/clusters.h"

namespace baton::capacity {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr Duration kDay = hours(24);

// Two teams on one GPU, each with a pod of 10 % that always has work: 80 % go by weight.
Scenario TwoTeams(uint32_t weight_a, uint32_t weight_b) {
  Scenario s;
  s.length = hours(10);
  s.nodes = {NodeOf("n", 1)};
  s.teams.history = 0;
  s.teams.teams = {TeamOf("a", weight_a), TeamOf("b", weight_b)};
  s.pods = {PodOf("pa", "a", 10, Duration(0), hours(100)),
            PodOf("pb", "b", 10, Duration(0), hours(100))};
  return s;
}

TEST(Play, WeightsDivideWhatRequestsLeave) {
  for (const auto& [a, b] : {std::pair{1u, 1u}, {3u, 1u}, {1u, 9u}}) {
    const Outcome outcome = Played(TwoTeams(a, b));
    const double due = 10 + 80.0 * a / (a + b);
    EXPECT_NEAR(ShareIn(outcome, "a"), due, 0.01) << a << ":" << b;
    EXPECT_NEAR(ShareIn(outcome, "b"), 100 - due, 0.01);
  }
}

// docs/teams.md: dx/dt = -lambda (1 + k (1 - 2 r)) x, share = 1/2 - (1 - 2 r) k x.
TEST(Play, HistoryEvensOutAsTheClosedFormSays) {
  Scenario s = TwoTeams(1, 1);
  s.teams.history = policy::kMillion;
  s.teams.half_life = hours(10);
  s.length = hours(20);
  // As if both had always used the GPU, a ten times as much as b.
  const double all = 10 / std::numbers::ln2;
  s.uses = {{"a", "", all * 10 / 11}, {"b", "", all / 11}};
  const Outcome outcome = Played(s);
  const auto& series = TeamIn(outcome, "a").series;
  const double step_h = 20.0 / static_cast<double>(series.size());
  double worst = 0;
  for (size_t n = 0; n < series.size(); ++n) {
    const double t = (static_cast<double>(n) + 0.5) * step_h;
    const double x = (10.0 / 11 - 0.5) * std::exp(-std::numbers::ln2 / 10 * 1.8 * t);
    worst = std::max(worst, std::abs(series[n] - (0.5 - 0.8 * x)));
  }
  std::printf("worst step: %.4f of a GPU off the closed form\n", worst);
  EXPECT_LT(worst, 0.01);
}

// The same, but a alone has the GPU for the first day: nobody else wanted it, so nothing of that is
// held against it.
TEST(Play, UseThatNobodyElseWantedDoesNotCount) {
  Scenario s = TwoTeams(1, 1);
  s.teams.history = policy::kMillion;
  s.length = 2 * kDay;
  s.pods[1].came = kDay;
  const Outcome spared = Played(s);
  EXPECT_NEAR(TeamIn(spared, "a").got_hours, 24 + 12, 0.2);
  s.uncontended_use = policy::kWhole;
  const Outcome counted = Played(s);
  EXPECT_LT(TeamIn(counted, "a").got_hours, 24 + 7);
}

// Whole GPUs for six hours each, always more of them than there is room, for a month.
TEST(Play, TheQueueGivesTeamsTheirDue) {
  Scenario s;
  s.length = 30 * kDay;
  s.nodes = {NodeOf("n", 6)};
  s.teams.teams = {TeamOf("a", 3), TeamOf("b", 2), TeamOf("c", 1)};
  for (const char* team : {"a", "b", "c"}) {
    for (int n = 0; n < 480; ++n) {
      s.pods.push_back(
          PodOf(fmt::format("{}{:04}", team, n), team, 100, minutes(90 * n), hours(6)));
    }
  }
  const Outcome outcome = Played(s);
  EXPECT_NEAR(ShareIn(outcome, "a"), 100.0 * 3 / 6, 2);
  EXPECT_NEAR(ShareIn(outcome, "b"), 100.0 * 2 / 6, 2);
  EXPECT_NEAR(ShareIn(outcome, "c"), 100.0 * 1 / 6, 2);
}

// A pod of a whole GPU for an hour comes every 20 minutes: three GPUs of work. With two the line
// grows by a pod an hour; with four nobody waits.
TEST(Play, TwoMoreGpusEndTheWaitWhereTheyAreEnough) {
  Scenario s;
  s.length = kDay;
  s.nodes = {NodeOf("n", 2)};
  for (int n = 0; n < 72; ++n) {
    s.pods.push_back(PodOf(fmt::format("p{:02}", n), "a", 100, minutes(20 * n), hours(1)));
  }
  const Outcome two = Played(s);
  // The second GPU stands idle until the second pod comes.
  EXPECT_NEAR(ShareIn(two, "a"), 100 * (1 - (1.0 / 3) / 48), 1e-3);
  // The nth pod begins at n / 2 hours and came at n / 3: those that were placed waited 0 to 8 h,
  // those that were not came in the last 8 h.
  EXPECT_NEAR(TeamIn(two, "a").unplaced, 24, 1);
  EXPECT_NEAR(Nanos(WaitQuantile(TeamIn(two, "a").waits, 0.5)) / 3600e9, 4, 0.5);
  s.nodes.push_back(NodeOf("m", 2));
  const Outcome four = Played(s);
  EXPECT_EQ(TeamIn(four, "a").unplaced, 0u);
  EXPECT_EQ(TeamIn(four, "a").waits.back(), Duration(0));
  EXPECT_NEAR(ShareIn(four, "a"), 75, 1.5);
}

// Both work an hour: beside each other, each takes two; who pauses for half of the time is hardly
// held up.
TEST(Play, WorkTakesLongerBesideOthersAndIsDone) {
  Scenario s;
  s.length = hours(10);
  s.nodes = {NodeOf("n", 1)};
  s.pods = {PodOf("a", "", 50, Duration(0), hours(1)), PodOf("b", "", 50, Duration(0), hours(1))};
  Outcome outcome = Played(s);
  for (const PodFigures& pod : outcome.pods) {
    EXPECT_NEAR(pod.got_hours, 1, 1e-6);
    ASSERT_TRUE(pod.ended);
    EXPECT_NEAR(Nanos(*pod.ended) / 3600e9, 2, 1e-3);
  }
  // What ends by time leaves its work undone.
  s.pods[0].ends = s.pods[1].ends = Ends::kTime;
  outcome = Played(s);
  EXPECT_NEAR(outcome.pods[0].got_hours, 0.5, 1e-6);
  EXPECT_NEAR(outcome.pods[0].asked_hours, 1, 1e-6);
  EXPECT_NEAR(Nanos(outcome.pods[0].ended.value_or(Duration(0))) / 3600e9, 1, 1e-6);
  // What never ends goes on as it last did.
  s.pods[0].ends = Ends::kNever;
  s.pods.pop_back();
  outcome = Played(s);
  EXPECT_NEAR(outcome.pods[0].got_hours, 10, 1e-6);
  EXPECT_FALSE(outcome.pods[0].ended);
}

TEST(Play, AllGpusOfAPodGoAsFastAsTheSlowest) {
  Scenario s;
  s.length = hours(4);
  s.nodes = {NodeOf("n", 2)};
  s.pods = {PodOf("two", "", 50, Duration(0), hours(1), 2),
            PodOf("one", "", 50, Duration(0), hours(100))};
  const Outcome outcome = Played(s);
  EXPECT_NEAR(outcome.pods[0].got_hours, 2, 1e-3);
  EXPECT_NEAR(Nanos(outcome.pods[0].ended.value_or(Duration(0))) / 3600e9, 2, 1e-2);
}

// b has borrowed all four GPUs; a is guaranteed two of them, and gets them at once.
TEST(Play, AGuaranteeIsTakenBack) {
  Scenario s;
  s.length = hours(10);
  s.nodes = {NodeOf("n", 4)};
  for (int n = 0; n < 4; ++n) {
    s.pods.push_back(PodOf(fmt::format("b{}", n), "b", 100, Duration(0), hours(100)));
  }
  for (int n = 0; n < 2; ++n) {
    s.pods.push_back(PodOf(fmt::format("a{}", n), "a", 100, hours(5), hours(100)));
  }
  EXPECT_EQ(TeamIn(Played(s), "a").got_hours, 0);
  s.guarantees = {{"a", 2}};
  const Outcome outcome = Played(s);
  EXPECT_NEAR(TeamIn(outcome, "a").got_hours, 10, 1e-6);
  EXPECT_NEAR(TeamIn(outcome, "b").got_hours, 4 * 5 + 2 * 5, 1e-6);
  EXPECT_EQ(TeamIn(outcome, "a").waits.back(), Duration(0));
}

TEST(Play, ALimitOfATeamKeepsItsPodsWaiting) {
  Scenario s;
  s.length = hours(10);
  s.nodes = {NodeOf("n", 4)};
  for (int n = 0; n < 4; ++n) {
    s.pods.push_back(PodOf(fmt::format("a{}", n), "a", 100, Duration(0), hours(100)));
  }
  s.teams.teams = {TeamOf("a", 1)};
  s.teams.teams[0].limit = policy::SharesOf(1);
  const Outcome outcome = Played(s);
  EXPECT_NEAR(ShareIn(outcome, "a"), 25, 1e-6);
  EXPECT_EQ(TeamIn(outcome, "a").unplaced, 3u);
  EXPECT_NE(outcome.pods[3].refused.find("team a"), std::string::npos) << outcome.pods[3].refused;
}

TEST(Play, PodsThatAreThereStayWhereTheyAre) {
  Scenario s;
  s.length = hours(1);
  s.nodes = {NodeOf("n", 2)};
  s.pods = {PodOf("a", "", 10, -hours(1), hours(9)), PodOf("b", "", 10, -hours(1), hours(9))};
  s.pods[0].on = s.pods[1].on = {"n/1"};
  const Outcome outcome = Played(s);
  EXPECT_EQ(outcome.gpus[0].used_hours, 0);
  EXPECT_NEAR(outcome.gpus[1].used_hours, 1, 1e-6);
  EXPECT_FALSE(outcome.pods[0].waited) << "nobody knows how long it waited";
}

// More on a GPU than it has, where the operator allows it.
TEST(Play, OvercommitAdmitsMore) {
  Scenario s;
  s.length = hours(10);
  s.nodes = {NodeOf("n", 1)};
  s.pods = {PodOf("a", "a", 80, Duration(0), hours(99)),
            PodOf("b", "b", 80, Duration(0), hours(99))};
  EXPECT_EQ(TeamIn(Played(s), "b").got_hours, 0);
  s.overcommit = 2;
  EXPECT_NEAR(ShareIn(Played(s), "b"), 50, 1e-6);
}

TEST(Play, SaysWhatCannotBe) {
  Scenario s;
  s.length = hours(1);
  EXPECT_EQ(Play(s).error().message, "the cluster has no GPUs");
  s.nodes = {NodeOf("n", 1)};
  s.pods = {PodOf("a", "", 10, Duration(0), hours(1)), PodOf("a", "", 10, Duration(0), hours(1))};
  EXPECT_EQ(Play(s).error().message, "two pods are called a");
  s.pods.pop_back();
  s.length = Duration(0);
  EXPECT_FALSE(Play(s));
  s.length = hours(1);
  s.guarantees = {{"a", 3}, {"", 2}};
  EXPECT_FALSE(Play(s)) << "more is guaranteed below than above";
}

// 32 GPUs, and pods of hours to days that ask for half as much again. Prints how long it takes.
TEST(Play, AMonthOfAThousandPods) {
#ifdef BATON_SANITIZED
  constexpr int kPods = 100;
#else
  constexpr int kPods = 1'000;
#endif
  Random random(1);
  Scenario s;
  s.length = 30 * kDay;
  for (int n = 0; n < 8; ++n) s.nodes.push_back(NodeOf(fmt::format("n{}", n), 4));
  s.teams.teams = {TeamOf("a", 3), TeamOf("b", 1)};
  for (int n = 0; n < kPods; ++n) {
    const char* teams[] = {"a", "a", "b", "c", "c/d"};
    const int64_t lengths_h[] = {2, 6, 12, 24, 48, 96};
    const int64_t length_h = lengths_h[random.Between(0, 5)];
    PodPlan pod =
        PodOf(fmt::format("p{:03}", n), teams[random.Between(0, 4)],
              static_cast<double>(random.Between(1, 10)) * 10,
              minutes(random.Between(0, 29 * 24 * 60)), hours(length_h), random.OneIn(4) ? 2 : 1);
    if (!random.OneIn(3)) {
      pod.course.clear();
      for (int64_t h = 0; h < length_h; ++h) {
        pod.course.push_back({hours(1), static_cast<double>(random.Between(5, 100)) / 100});
      }
    }
    s.pods.push_back(std::move(pod));
  }
  const Instant start = MonotonicNow();
  const Outcome outcome = Played(s);
  std::printf("a month of %d pods on 32 GPUs: %.2f s, %.0f %% busy\n", kPods,
              static_cast<double>(Nanos(MonotonicNow() - start)) / 1e9,
              ShareIn(outcome, "a") + ShareIn(outcome, "b") + ShareIn(outcome, "c") +
                  ShareIn(outcome, "c/d"));
  size_t pods = 0;
  for (const TeamFigures& team : outcome.teams) pods += team.pods;
  EXPECT_EQ(pods, static_cast<size_t>(kPods));
}

// Whatever comes: nobody gets more than there is, or than he asked for, and the same comes of it
// again.
RC_GTEST_PROP(PlayLaw, NobodyGetsMoreThanThereIs, ()) {
  Random random(*rc::gen::arbitrary<uint64_t>());
  Scenario s;
  s.length = hours(random.Between(1, 48));
  for (int64_t n = random.Between(1, 3); n > 0; --n) {
    s.nodes.push_back(NodeOf(fmt::format("n{}", n), static_cast<size_t>(random.Between(1, 4))));
  }
  s.teams.teams = {TeamOf("a", 2), TeamOf("b", 1)};
  if (random.OneIn(2)) s.guarantees = {{"a", 1}};
  if (random.OneIn(3)) s.teams.teams[1].limit = policy::SharesOf(2);
  for (int64_t n = random.Between(1, 30); n > 0; --n) {
    const char* teams[] = {"a", "b", "c/d", ""};
    PodPlan pod = PodOf(fmt::format("p{:02}", n), teams[random.Between(0, 3)],
                        static_cast<double>(random.Between(1, 10)) * 10,
                        minutes(random.Between(-60, 24 * 60)), Duration(0),
                        static_cast<uint32_t>(random.Between(1, 2)));
    pod.request.priority = static_cast<int32_t>(random.Between(0, 1));
    pod.ends = static_cast<Ends>(random.Between(0, 2));
    pod.course.clear();
    for (int64_t k = random.Between(0, 4); k > 0; --k) {
      pod.course.push_back(
          {minutes(random.Between(0, 300)), static_cast<double>(random.Between(0, 10)) / 10});
    }
    s.pods.push_back(std::move(pod));
  }
  const auto outcome = Play(s);
  RC_ASSERT(outcome.has_value());
  const double length_h = static_cast<double>(Nanos(s.length)) / 3600e9;
  double pods = 0, gpus = 0;
  for (const PodFigures& pod : outcome->pods) {
    RC_ASSERT(pod.got_hours >= 0 && pod.got_hours <= pod.asked_hours + 1e-6);
    pods += pod.got_hours;
  }
  for (const GpuFigures& gpu : outcome->gpus) {
    RC_ASSERT(gpu.used_hours <= length_h + 1e-3);
    gpus += gpu.used_hours;
  }
  RC_ASSERT(std::abs(pods - gpus) < 1e-6);
  const auto again = Play(s);
  for (size_t i = 0; i < outcome->pods.size(); ++i) {
    RC_ASSERT(again->pods[i].got_hours == outcome->pods[i].got_hours);
  }
}

}  // namespace
}  // namespace baton::capacity
