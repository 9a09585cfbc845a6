// What history does to shares over time: the real token scheduler on virtual time, with weights
// brought up to date from its own accounts, beside what Forecast() and the closed form say.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <numbers>

#include "scheduler/token_scheduler.h"
#include "teams/standing.h"

namespace baton::teams {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using wire::Phase;

// One GPU, and pods that always have work: each holds until its token ends and then drains.
class SteeredGpu {
 public:
  SteeredGpu(const Teams& teams, std::vector<Use> uses, std::vector<CoursePod> pods)
      : teams_(teams), uses_(std::move(uses)), pods_(std::move(pods)), scheduler_({}, 0) {
    clients_.resize(pods_.size());
    Weigh();
    for (size_t i = 0; i < pods_.size(); ++i) {
      policy::ShareSpec spec = pods_[i].spec;
      spec.team = index_.Of(pods_[i].team);
      Step(scheduler::PodSet{PodId{i + 1}, spec});
      Step(scheduler::ClientAttached{ClientId{i + 1}, PodId{i + 1}});
      Say(i, Phase::kWaiting, Duration(0));
    }
  }

  // Runs for `length`, with the decay applied and the weights set anew every `step`.
  void Run(Duration length, Duration step) {
    const Instant end = now_ + length;
    while (now_ < end) {
      const std::vector<Duration> before = held;
      RunUntil(std::min(end, now_ + step));
      Account(before, step);
      Weigh();
    }
  }

  // Part of the GPU's time that the pods of `team` held between two readings of `held`.
  double ShareOf(const std::string& team, const std::vector<Duration>& from,
                 Duration length) const {
    double sum = 0;
    for (size_t i = 0; i < pods_.size(); ++i) {
      if (pods_[i].team == team) sum += static_cast<double>(Nanos(held[i] - from[i]));
    }
    return sum / static_cast<double>(Nanos(length));
  }

  std::vector<Duration> held = std::vector<Duration>(16);  // charged, by pod
  uint64_t grants = 0;

 private:
  struct Process {
    Phase phase = Phase::kIdle;
    uint64_t seq = 0, epoch = 0, rev = 0;
    Instant granted{};
    Instant deadline = kNever;
  };

  static constexpr Duration kDrain = microseconds(300);

  void Say(size_t i, Phase phase, Duration held_for) {
    Process& c = clients_[i];
    c.phase = phase;
    Step(scheduler::ClientReport{ClientId{i + 1}, ++c.seq, phase, c.epoch, c.rev, held_for});
  }
  void Step(const scheduler::Event& event) {
    scheduler::Effects effects;
    scheduler_.Step(now_, event, effects);
    for (const scheduler::Effect& effect : effects) {
      if (const auto* send = std::get_if<scheduler::SendToken>(&effect)) {
        inbox_.push_back(*send);
      } else if (const auto* charged = std::get_if<scheduler::Charged>(&effect)) {
        held[charged->pod.value - 1] += charged->held;
      }
    }
  }
  void RunUntil(Instant end) {
    while (true) {
      while (!inbox_.empty()) {
        const scheduler::SendToken token = inbox_.front();
        inbox_.erase(inbox_.begin());
        Receive(token);
      }
      Instant next = std::max(now_, scheduler_.wakeup());
      for (const Process& c : clients_) {
        if (c.phase == Phase::kHolding) next = std::min(next, c.deadline);
      }
      if (next >= end) break;
      now_ = next;
      if (scheduler_.wakeup() <= now_) Step(scheduler::Tick{});
      for (size_t i = 0; i < clients_.size(); ++i) {
        Process& c = clients_[i];
        if (c.phase != Phase::kHolding || c.deadline > now_) continue;
        now_ += kDrain;
        Say(i, Phase::kWaiting, now_ - c.granted);
      }
    }
    now_ = std::max(now_, end);
  }
  void Receive(const scheduler::SendToken& token) {
    Process& c = clients_[token.client.value - 1];
    if (std::pair(token.epoch, token.rev) <= std::pair(c.epoch, c.rev)) return;
    if (token.epoch != c.epoch) {
      c.granted = now_;
      ++grants;
    }
    c.epoch = token.epoch;
    c.rev = token.rev;
    c.deadline = now_ + token.quota;
    Say(token.client.value - 1, Phase::kHolding, Duration(0));
  }

  // What was held since happened evenly over the step.
  void Account(const std::vector<Duration>& before, Duration step) {
    const double decay = std::numbers::ln2 / static_cast<double>(Nanos(teams_.half_life));
    const double kept = std::exp(-decay * static_cast<double>(Nanos(step)));
    for (Use& use : uses_) {
      use.decayed = use.decayed * kept + ShareOf(use.team, before, step) * (1 - kept) / decay;
    }
  }
  void Weigh() {
    std::vector<std::string> present;
    for (const CoursePod& pod : pods_) present.push_back(pod.team);
    const auto weights = index_.Weights(SlackWeights(teams_, uses_, present));
    Step(scheduler::TeamWeights{weights});
  }

  const Teams teams_;
  std::vector<Use> uses_;
  const std::vector<CoursePod> pods_;
  scheduler::TokenScheduler scheduler_;
  TeamIndex index_;
  std::vector<Process> clients_;
  std::vector<scheduler::SendToken> inbox_;
  Instant now_{};
};

policy::ShareSpec CourseShare(double request, double limit = 100) {
  return policy::Validated(
             {.request = policy::ShareOf(request / 100), .limit = policy::ShareOf(limit / 100)})
      .value();
}

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
