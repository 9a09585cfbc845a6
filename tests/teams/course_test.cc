// What history does to shares over time: the real token scheduler on virtual time, with weights
// brought up to date from its own accounts, beside what Forecast() and the closed form say.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <numbers>

#include "scheduler/token_scheduler.h"
#include "teams/standing.h"
#include "tests/teams/steered_gpu.h"

namespace baton::teams {
namespace {

using std::chrono::seconds;
using wire::Phase;

constexpr Duration kHalfLife = seconds(120);  // a week, accelerated
constexpr Duration kStep = kHalfLife / 240;
constexpr Duration kWindow = kHalfLife / 4;

// Decayed use of a team that held `part` of the GPU for ever.
double Ever(double part) {
  return part * static_cast<double>(Nanos(kHalfLife)) / std::numbers::ln2;
}

// Runs a GPU for `windows` windows and compares each with the forecast; returns the largest error
// in points of a percent. `each` sees (window, achieved shares, forecast shares).
template <class Each>
double Compare(const Teams& teams, const std::vector<Use>& uses, const std::vector<CoursePod>& pods,
               int windows, Each each) {
  const Course course = Forecast(teams, uses, pods, windows * kWindow, kStep);
  SteeredGpu gpu(teams, uses, pods);
  const auto steps = static_cast<size_t>(kWindow / kStep);
  double worst = 0;
  for (int w = 0; w < windows; ++w) {
    const std::vector<Duration> before = gpu.held;
    gpu.Run(kWindow, kStep);
    std::vector<double> achieved, forecast;
    for (size_t t = 0; t < course.teams.size(); ++t) {
      achieved.push_back(gpu.ShareOf(course.teams[t], before, kWindow));
      double sum = 0;
      for (size_t s = 0; s < steps; ++s) {
        sum += course.points[static_cast<size_t>(w) * steps + s].share[t];
      }
      forecast.push_back(sum / static_cast<double>(steps));
      worst = std::max(worst, 100 * std::abs(achieved[t] - forecast[t]));
    }
    each(w, achieved, forecast);
  }
  EXPECT_GT(gpu.grants, 100u);
  return worst;
}

// docs/teams.md has the table that this prints.
TEST(TeamCourse, WhoUsedTenTimesAsMuchLeavesTheRestToTheOtherUntilTheStandingEvensOut) {
  Teams teams;
  teams.half_life = kHalfLife;
  const std::vector<Use> uses{{"a", "", Ever(10.0 / 11)}, {"b", "", Ever(1.0 / 11)}};
  const double request = 0.1;
  const std::vector<CoursePod> pods{{"a", 0, CourseShare(10)}, {"b", 0, CourseShare(10)}};
  // u' - 1/2 = x:  dx/dt = -λ (1 + k (1 - 2 r)) x  and  share = 1/2 ± (1 - 2 r) k x.
  const double rate = std::numbers::ln2 * (1 + 1 - 2 * request);  // per half-life
  const double x0 = 10.0 / 11 - 0.5;
  std::printf("half-lives  share of a: run  forecast  closed form\n");
  const double worst =
      Compare(teams, uses, pods, 12, [&](int w, const auto& run, const auto& said) {
        const double length = 0.25;  // of a window, in half-lives
        const double from = w * length;
        const double mean_x =
            x0 * (std::exp(-rate * from) - std::exp(-rate * (from + length))) / (rate * length);
        const double closed = 0.5 - (1 - 2 * request) * mean_x;
        std::printf("%.2f to %.2f  %14.1f%%  %7.1f%%  %10.1f%%\n", from, from + length,
                    100 * run[0], 100 * said[0], 100 * closed);
        EXPECT_NEAR(run[0], closed, 0.02);
        EXPECT_NEAR(said[0], closed, 0.003);
        EXPECT_GT(run[0], request - 0.005) << "its request is never touched";
        EXPECT_NEAR(run[0] + run[1], 1, 0.02);
        if (w == 0) {
          EXPECT_LT(run[0], 0.25);
        }
        if (w == 11) {
          EXPECT_NEAR(run[0], 0.5, 0.02);
        }
      });
  EXPECT_LT(worst, 2);
}

TEST(TeamCourse, WithoutHistoryTeamsOfOneWeightAreEqualWhateverTheyUsed) {
  Teams teams;
  teams.half_life = kHalfLife;
  teams.history = 0;
  const double worst = Compare(teams, {{"a", "", Ever(10.0 / 11)}, {"b", "", Ever(1.0 / 11)}},
                               {{"a", 0, CourseShare(10)}, {"b", 0, CourseShare(10)}}, 4,
                               [](int, const auto& run, const auto& said) {
                                 EXPECT_NEAR(run[0], run[1], 0.02);
                                 EXPECT_EQ(said[0], said[1]);
                               });
  EXPECT_LT(worst, 2);
}

TEST(TeamCourse, HoldsInATreeWithLimitsAndUnequalRequestsToo) {
  Teams teams = ParseTeams(R"(history = 2
    [[team]]
    name = "research"
    weight = 3
    [[team]]
    name = "research/vision"
    weight = 2)",
                           "teams.toml")
                    .value();
  teams.half_life = kHalfLife;
  const std::vector<Use> uses{{"research/vision", "", Ever(0.7)},
                              {"research/text", "", Ever(0.05)},
                              {"ops", "", Ever(0.25)}};
  const std::vector<CoursePod> pods{{"research/vision", 0, CourseShare(5)},
                                    {"research/vision", 0, CourseShare(10)},
                                    {"research/text", 0, CourseShare(5, 40)},
                                    {"ops", 0, CourseShare(20)}};
  double first = 0;
  double last = 0;
  const double worst = Compare(teams, uses, pods, 10, [&](int w, const auto& run, const auto&) {
    if (w == 0) first = run[2];
    last = run[2];
    EXPECT_LT(run[1], 0.405) << "text's limit";
    EXPECT_GT(run[0], 0.195) << "ops' request";
  });
  EXPECT_LT(worst, 2);
  EXPECT_LT(first, last) << "vision had used more than its due";
}

TEST(TeamCourse, OfSeveralGpusEachGoesByTheTeamsThatAreThere) {
  Teams teams;
  teams.half_life = kHalfLife;
  const std::vector<Use> uses{{"a", "", Ever(1.5)}, {"gone", "", Ever(1)}};
  const Course course =
      Forecast(teams, uses,
               std::vector<CoursePod>{
                   {"a", 0, CourseShare(50)}, {"b", 1, CourseShare(10)}, {"a", 1, CourseShare(10)}},
               kHalfLife, kStep);
  ASSERT_EQ(course.teams, (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(course.points.size(), 241u);
  EXPECT_NEAR(course.points[0].usage[0], 0.6, 1e-9) << "of what those gone used too";
  EXPECT_NEAR(course.points[0].share[0], 1.1, 1e-6) << "all of GPU 0, its request on GPU 1";
  EXPECT_NEAR(course.points[0].share[1], 0.9, 1e-6);
  EXPECT_GT(course.points[240].share[0], 1.1);
  EXPECT_EQ(course.points[240].at, kHalfLife);
  EXPECT_NEAR(course.points[240].usage[0] + course.points[240].usage[1], 1.75 / 2.25, 1e-6)
      << "(1.5 + 2) / 2, beside half of what those gone used";
  EXPECT_TRUE(Forecast(teams, uses, {}, kHalfLife, kStep).teams.empty());
  EXPECT_EQ(Forecast(teams, uses, {}, seconds(1), Duration(0)).points.size(), 100'001u)
      << "bounded";
}

TEST(TeamWeightsEvent, ReachesTheQueueAndAPodMayChangeItsTeam) {
  scheduler::TokenScheduler scheduler({}, 0);
  scheduler::Effects effects;
  const auto step = [&](const scheduler::Event& event) { scheduler.Step({}, event, effects); };
  policy::ShareSpec spec = CourseShare(10);
  for (uint64_t i = 1; i <= 2; ++i) {
    spec.team = static_cast<uint32_t>(i - 1);
    step(scheduler::PodSet{PodId{i}, spec});
    step(scheduler::ClientAttached{ClientId{i}, PodId{i}});
    step(scheduler::ClientReport{.client = ClientId{i}, .seq = 1, .phase = Phase::kWaiting});
  }
  const auto fluid = [&](size_t i) { return scheduler.Status({})[i].fluid; };
  EXPECT_EQ(fluid(0), policy::Share(500'000));
  const std::vector<uint32_t> weights{3, 1};
  step(scheduler::TeamWeights{weights});
  EXPECT_EQ(fluid(0), policy::Share(700'000)) << "10 and three quarters of 80";
  EXPECT_EQ(fluid(1), policy::Share(300'000));
  spec.team = 0;
  step(scheduler::PodSet{PodId{2}, spec});
  EXPECT_EQ(fluid(1), policy::Share(500'000));
  step(scheduler::TeamWeights{});
  EXPECT_EQ(fluid(0), policy::Share(500'000));
}

}  // namespace
}  // namespace baton::teams
