// What history should count of use that no other team wanted: rules compared on the real token
// scheduler on virtual time. docs/results/policy.md has the table that this prints.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <numbers>

#include "tests/scale.h"
#include "tests/teams/steered_gpu.h"

namespace baton::teams {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kRulesHalfLife = seconds(120);  // a week, accelerated
constexpr Duration kDay = kRulesHalfLife / 7;
constexpr Duration kNight = kDay / 2;
constexpr Duration kRulesStep = kRulesHalfLife / 240;

struct HistoryRule {
  const char* name;
  SteeredGpu::Rule rule;
};

// Counted in full, or by weight `w` where no other team wanted it; of all use, or of that alone.
SteeredGpu::Rule Counted(double w, bool of_all) {
  return [=](const std::vector<Use>& held, double) {
    std::vector<Use> uses = held;
    for (Use& use : uses) {
      const double all = use.decayed;
      use.uncounted = (1 - w) * std::clamp(use.uncounted, 0.0, all);
      use.decayed = all - use.uncounted;
      if (!of_all) use.uncounted = 0;
    }
    return uses;
  };
}

// All use, as a part of the capacity (KAI-Scheduler).
std::vector<Use> OfCapacity(const std::vector<Use>& held, double capacity) {
  std::vector<Use> uses = held;
  for (Use& use : uses) {
    capacity -= use.decayed;
    use.uncounted = 0;
  }
  uses.front().uncounted = std::max(0.0, capacity);
  return uses;
}

const HistoryRule kAllUse{"all use", Counted(1, true)};
const HistoryRule kOfCapacity{"all use, of capacity", OfCapacity};
const HistoryRule kOfContended{"contended, of contended", Counted(0, false)};
const HistoryRule kOfAll{"contended, of all", Counted(0, true)};
const HistoryRule kQuarter{"and 1/4 of the rest", Counted(0.25, true)};
const HistoryRule kHalf{"and 1/2 of the rest", Counted(0.5, true)};

struct Player {
  std::string team;
  Work work;
  double request = 10, limit = 100;
};

// Shares of the GPU by team, window by window.
std::vector<std::map<std::string, double>> Play(const HistoryRule& rule, const Teams& teams,
                                                const std::vector<Player>& players,
                                                const std::vector<Duration>& windows,
                                                std::vector<Use> uses = {}) {
  std::vector<CoursePod> pods;
  std::vector<Work> work;
  for (const Player& p : players) {
    pods.push_back({p.team, 0, CourseShare(p.request, p.limit)});
    work.push_back(p.work);
    const bool known =
        std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return use.team == p.team; });
    if (!known) uses.push_back({p.team, "", 0});
  }
  SteeredGpu gpu(teams, uses, pods, work, rule.rule);
  std::vector<std::map<std::string, double>> shares;
  for (const Duration window : windows) {
    const std::vector<Duration> before = gpu.held;
    gpu.Run(window, kRulesStep);
    auto& of = shares.emplace_back();
    for (const Use& use : uses) of[use.team] = gpu.ShareOf(use.team, before, window);
  }
  return shares;
}

Teams Equal() {
  Teams teams;
  teams.half_life = kRulesHalfLife;
  return teams;
}

Duration Days(double n) {
  return Duration(static_cast<int64_t>(n * static_cast<double>(Nanos(kDay))));
}
const Duration kHours3 = kDay / 8;

// Work without an end, from day `from` to day `to` of each `days`.
Work Between(double from, double to, double days) {
  Work work;
  work.period = Days(days);
  work.from = Days(from);
  work.to = Days(to);
  return work;
}
constexpr double kEver = 1000;  // days
Work From(double day) { return Between(day, kEver, kEver); }

// Of what requests leave over.
double Slack(double share, double request = 0.1, double left = 0.8) {
  return (share - request) / left;
}

// A team works for a night, after a fortnight in which nobody did, and then beside another one.
struct Night {
  double first, later;  // the team's slack in the first three hours, and twelve hours later
};
Night PlayNight(const HistoryRule& rule) {
  const auto shares = Play(rule, Equal(), {{"a", From(14)}, {"b", From(14.5)}},
                           {Days(14.5), kHours3, Days(0.5) - kHours3, kHours3});
  return {Slack(shares[1].at("a")), Slack(shares[3].at("a"))};
}

// Team a works day and night, b by day only: a's slack by day after a fortnight.
double PlayEveryNight(const HistoryRule& rule) {
  return Slack(Play(rule, Equal(), {{"a", {}}, {"b", Between(0, 0.5, 1)}}, {Days(14), Days(0.5)})
                   .back()
                   .at("a"));
}

// Beside one that always works, b works by `work` for a fortnight, and then without an end too: b's
// slack in the next three hours.
double PlayLight(const HistoryRule& rule, const Work& work) {
  return Slack(
      Play(rule, Equal(), {{"a", {}}, {"b", work, 5}, {"b", From(14), 5}}, {Days(14), kHours3})
          .back()
          .at("b"));
}

// By day b works alone, but for a pod of g that waits (`fake`); by night g works. After a fortnight
// both work: b's slack in the next three hours, which begin by day.
double PlayAttack(const HistoryRule& rule, const std::vector<Player>& fake) {
  std::vector<Player> players{{"b", Between(0, 0.5, 1)}, {"g", Between(0.5, 1, 1), 9}};
  players.insert(players.end(), fake.begin(), fake.end());
  const auto shares = Play(rule, Equal(), players, {Days(14), kHours3});
  // Its fake pod works no less than others then.
  return Slack(shares.back().at("b"));
}

// Who had ten times as much of what both wanted: its slack in the first quarter of a half-life, and
// after two.
Night PlayContended(const HistoryRule& rule) {
  const double ever = static_cast<double>(Nanos(kRulesHalfLife)) / std::numbers::ln2;
  const auto shares = Play(rule, Equal(), {{"a", {}}, {"b", {}}},
                           {kRulesHalfLife / 4, kRulesHalfLife * 7 / 4, kRulesHalfLife / 4},
                           {{"a", "", ever * 10 / 11}, {"b", "", ever / 11}});
  return {Slack(shares[0].at("a")), Slack(shares[2].at("a"))};
}

// Teams of weights 3, 2 and 1 work by day, the last one by night too: their slack by day after four
// weeks.
std::vector<double> PlayThree(const HistoryRule& rule) {
  Teams teams = ParseTeams(R"(
    [[team]]
    name = "a"
    weight = 3
    [[team]]
    name = "b"
    weight = 2)",
                           "teams.toml")
                    .value();
  teams.half_life = kRulesHalfLife;
  const auto shares =
      Play(rule, teams, {{"a", Between(0, 0.5, 1)}, {"b", Between(0, 0.5, 1)}, {"c", {}}},
           {Days(28), Days(0.5)});
  std::vector<double> slack;
  for (const char* team : {"a", "b", "c"}) slack.push_back(Slack(shares[1].at(team), 0.1, 0.7));
  return slack;
}

// Tries of g, which by night works alone, to have b's use by day counted while its own is not.
std::vector<Player> Attack(const Work& work, double limit = 100) {
  Work by_day = work;
  by_day.period = kDay;
  by_day.from = Duration(0);
  by_day.to = kDay / 2;
  return {{"g", by_day, 1, limit}, {"g", From(14), 9}};
}
// At its limit nearly always.
std::vector<Player> Limited() { return Attack({}, 1); }
// Asks again and again, and does nothing.
std::vector<Player> Waits() { return Attack({.fake = true}); }
// Asks again and again for a millisecond.
std::vector<Player> Nibbles() {
  return Attack({.burst = milliseconds(1), .pause = std::chrono::microseconds(100)});
}
// What is light: 20 ms of work in 200; and an hour of work in four.
Work Light() { return {.burst = milliseconds(20), .pause = milliseconds(180)}; }
Work Bursty() { return Between(0, 1.0 / 24, 4.0 / 24); }

// docs/results/policy.md has the table that this prints.
TEST(HistoryRules, UseThatNobodyElseWantedIsNotHeldAgainstATeamAndAttacksGainLittle) {
  std::printf("%-24s %5s %5s %6s %6s %6s %6s %6s %6s %6s %6s %14s\n", "", "night", "+12 h",
              "nights", "light", "bursty", "limit", "waits", "nibble", "10x", "+2 hl", "3 : 2 : 1");
  for (const HistoryRule& rule : {kAllUse, kOfCapacity, kOfContended, kOfAll, kQuarter, kHalf}) {
    if (kSanitized && rule.name != kAllUse.name && rule.name != kOfAll.name) continue;
    const Night night = PlayNight(rule), contended = PlayContended(rule);
    const double nights = PlayEveryNight(rule);
    const double light = PlayLight(rule, Light()), bursty = PlayLight(rule, Bursty());
    const double limited = PlayAttack(rule, Limited()), waits = PlayAttack(rule, Waits());
    const double nibbles = PlayAttack(rule, Nibbles());
    const std::vector<double> three = PlayThree(rule);
    std::printf("%-24s", rule.name);
    for (const double slack : {night.first, night.later, nights, light, bursty, limited, waits,
                               nibbles, contended.first, contended.later}) {
      std::printf(" %5.1f%%", 100 * slack);
    }
    std::printf("  %4.1f %4.1f %4.1f\n", 100 * three[0], 100 * three[1], 100 * three[2]);
    // What both wanted evens out by any rule.
    EXPECT_NEAR(contended.first, 0.148, 0.02) << rule.name;
    EXPECT_NEAR(contended.later, 0.471, 0.02) << rule.name;
    if (rule.name == kAllUse.name) {
      EXPECT_LT(night.first, 0.15);
      EXPECT_LT(nights, 0.4);
    }
    if (rule.name != kOfAll.name) continue;  // the rule in use
    EXPECT_NEAR(night.first, 0.5, 0.03);
    EXPECT_NEAR(night.later, 0.5, 0.03);
    EXPECT_NEAR(nights, 0.5, 0.03);
    EXPECT_GT(light, 0.45);
    EXPECT_GT(bursty, 0.45);
    EXPECT_GT(limited, 0.45);
    EXPECT_GT(waits, 0.45);
    EXPECT_GT(nibbles, 1.0 / 3 - 0.02) << "what u' = 1/2 against 0 makes of it";
    EXPECT_NEAR(three[0], 3.0 / 6, 0.03);
    EXPECT_NEAR(three[1], 2.0 / 6, 0.03);
    EXPECT_NEAR(three[2], 1.0 / 6, 0.03);
  }
}

}  // namespace
}  // namespace baton::teams
