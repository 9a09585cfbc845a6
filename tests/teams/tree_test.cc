#include "teams/tree.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace baton::teams {
namespace {

using std::chrono::hours;

constexpr const char* kExample = R"(half_life = "14d"
history = 0.5
[[team]]
name = "research/vision"
weight = 3
users = ["user-a", {name = "user-b", weight = 2}]
budget = 500
budget_period = "7d"
over_budget = "refuse"
limit = 4.5
[[team]]
name = "ops"
)";

std::string ErrorOf(const std::string& text) {
  const auto teams = ParseTeams(text, "teams.toml");
  return teams ? "" : teams.error().message;
}

TEST(TeamsFile, SaysWhatItSays) {
  const auto teams = ParseTeams(kExample, "teams.toml");
  ASSERT_TRUE(teams) << teams.error().message;
  EXPECT_EQ(teams->half_life, hours(14 * 24));
  EXPECT_EQ(teams->history, 500'000u);
  ASSERT_EQ(teams->teams.size(), 2u);
  EXPECT_EQ(teams->teams[0].path, "ops") << "by path";
  const Team* vision = teams->Find("research/vision");
  ASSERT_NE(vision, nullptr);
  EXPECT_EQ(vision->weight, 3u);
  ASSERT_EQ(vision->users.size(), 2u);
  EXPECT_EQ(vision->users[0].name, "user-a");
  EXPECT_EQ(vision->users[0].weight, 1u);
  EXPECT_EQ(vision->users[1].weight, 2u);
  EXPECT_EQ(vision->budget, 500);
  EXPECT_EQ(vision->budget_period, hours(7 * 24));
  EXPECT_EQ(vision->over_budget, OverBudget::kRefuse);
  EXPECT_EQ(vision->limit, policy::Share(4'500'000));
  EXPECT_EQ(teams->WeightOf("research/vision"), 3u);
  EXPECT_EQ(teams->OwnWeightOf("research/vision"), 3u) << "its users'";
  EXPECT_EQ(teams->WeightOf("research"), 1u) << "left out";
  EXPECT_EQ(teams->OwnWeightOf("ops"), 1u) << "without users";
  EXPECT_EQ(teams->Find("research"), nullptr);
}

TEST(TeamsFile, HoldsTheDefaultsWhereItSaysNothing) {
  const auto teams = ParseTeams("", "teams.toml");
  ASSERT_TRUE(teams);
  EXPECT_EQ(teams->half_life, hours(7 * 24));
  EXPECT_EQ(teams->history, policy::kMillion);
  const auto one = ParseTeams("[[team]]\nname = \"a\"\nbudget = 1", "teams.toml");
  ASSERT_TRUE(one);
  EXPECT_EQ(one->teams[0].weight, 1u);
  EXPECT_EQ(one->teams[0].budget_period, hours(30 * 24));
  EXPECT_EQ(one->teams[0].over_budget, OverBudget::kLow);
  EXPECT_EQ(one->teams[0].limit, policy::Share(0));
}

TEST(TeamsFile, ErrorsNameTheLineAndWhatIsAccepted) {
  const std::string team = "[[team]]\nname = \"a\"\n";
  for (const auto& [text, error] : std::vector<std::pair<std::string, std::string>>{
           {"half_life = 7",
            "teams.toml:1: half_life must be a time from \"1s\" to \"3650d\", "
            "such as \"7d\""},
           {"half_life = \"0s\"", "teams.toml:1: half_life must be a time from"},
           {"\nhistory = -1", "teams.toml:2: history must be a number from 0 to 1000"},
           {"history = nan", "teams.toml:1: history must be a number from 0 to 1000"},
           {"hstory = 1",
            "teams.toml:1: the file has no key hstory; it has half_life, history, "
            "team"},
           {"team = 1", "teams.toml:1: write [[team]], one for each"},
           {"[team]\nname = \"a\"", "write [[team]], one for each"},
           {"[[team]]\nweight = 1", "teams.toml:1: a [[team]] needs a name"},
           {team + "wait = 1",
            "teams.toml:3: [[team]] has no key wait; it has budget, "
            "budget_period, limit, name, over_budget, users, weight"},
           {team + "weight = 0", "teams.toml:3: weight must be a whole number from 1 to 1000000"},
           {team + "weight = 1.5", "weight must be a whole number"},
           {team + "users = \"user-a\"", "teams.toml:3: users must be a list such as"},
           {team + "users = [{weight = 2}]", "teams.toml:3: users must be a list such as"},
           {team + "users = [{name = \"x\", wait = 2}]", "users must be a list such as"},
           {team + "users = [7]", "users must be a list such as"},
           {team + "users = [\"x\", \"x\"]", "teams.toml:3: user x is listed twice"},
           {team + "users = [\"a\\nb\"]", "a user's name is 1 to 128 printable bytes"},
           {team + "budget = 0", "teams.toml:3: budget must be a number from 0.001 to 1000000000"},
           {team + "over_budget = \"low\"",
            "teams.toml:1: budget_period and over_budget need a budget beside them"},
           {team + "budget = 1\nover_budget = \"kill\"",
            "teams.toml:4: over_budget must be \"low\" or \"refuse\""},
           {team + "limit = 0", "teams.toml:3: limit must be a number from 0.001 to 1000000"},
           {team + team, "teams.toml:3: team a is listed twice"},
           {"[[team]]\nname = \"/a\"", "teams.toml:2: name must be a path such as"},
           {"[[team]]\nname = \"a//b\"", "name must be a path"},
           {"[[team]]\nname = \"\"", "name must be a path"},
           {"[[team]]\nname = 1", "name must be a path"},
           {"[[team]]\nname = \"" + std::string(257, 'a') + "\"", "name must be a path"},
           {"[[team]]\nname = \"1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17\"",
            "name must be a path such as \"research/vision\": 1 to 16 parts, 256 bytes at most"},
           {"[[team", "teams.toml:1: "},
           {"[=", "teams.toml:1: "},
           {std::string(kFileMax + 1, ' '), "teams.toml: a file of teams is at most 1 MiB"}}) {
    EXPECT_NE(ErrorOf(text).find(error), std::string::npos) << text.substr(0, 80) << "\n"
                                                            << ErrorOf(text);
    EXPECT_EQ(ErrorOf(text).find("teams.toml:"), 0u);
  }
}

RC_GTEST_PROP(TeamsFileLaw, WhatIsPrintedReadsBackAsTheSame, ()) {
  Teams teams;
  teams.half_life = std::chrono::seconds(*rc::gen::inRange<int64_t>(1, 3650LL * 86'400));
  teams.history = *rc::gen::inRange<uint32_t>(0, 1000 * policy::kMillion);
  const int n = *rc::gen::inRange(0, 6);
  for (int i = 0; i < n; ++i) {
    Team team;
    team.path = "t" + std::to_string(i) + (i % 2 == 0 ? "/a \"quoted\\ part" : "");
    team.weight = *rc::gen::inRange<uint32_t>(1, kWeightMax + 1);
    for (int u = *rc::gen::inRange(0, 3); u > 0; --u) {
      team.users.push_back(
          {"user-" + std::to_string(9 - u), *rc::gen::inRange<uint32_t>(1, kWeightMax + 1)});
    }
    if (*rc::gen::arbitrary<bool>()) {
      team.budget = *rc::gen::inRange<int64_t>(1, 1'000'000'000'000) / 1e3;
      team.budget_period = std::chrono::seconds(*rc::gen::inRange(1, 90 * 86'400));
      team.over_budget = *rc::gen::arbitrary<bool>() ? OverBudget::kLow : OverBudget::kRefuse;
    }
    if (*rc::gen::arbitrary<bool>()) {
      team.limit = policy::ShareSum(*rc::gen::inRange<uint64_t>(1'000, 1'000'000'000'001));
    }
    teams.teams.push_back(team);
  }
  const std::string text = PrintTeams(teams);
  const auto read = ParseTeams(text, "x");
  RC_ASSERT(read.has_value());
  RC_ASSERT(read->half_life == teams.half_life);
  RC_ASSERT(read->history == teams.history);
  RC_ASSERT(PrintTeams(*read) == text);
  for (size_t i = 0; i < teams.teams.size(); ++i) {
    const Team& a = teams.teams[i];
    const Team& b = read->teams[i];
    RC_ASSERT(a.path == b.path && a.weight == b.weight && a.limit == b.limit);
    RC_ASSERT(a.budget == b.budget && a.over_budget == b.over_budget);
    if (a.budget > 0) RC_ASSERT(a.budget_period == b.budget_period);
    RC_ASSERT(a.users.size() == b.users.size());
  }
}

RC_GTEST_PROP(TeamsFileLaw, DamagedTextIsAnErrorAndNothingWorse, ()) {
  std::string text = kExample;
  for (int n = *rc::gen::inRange(1, 6); n > 0; --n) {
    const auto at =
        static_cast<size_t>(*rc::gen::inRange<int64_t>(0, static_cast<int64_t>(text.size())));
    if (*rc::gen::arbitrary<bool>()) {
      text[at] = *rc::gen::arbitrary<char>();
    } else {
      text.erase(at, static_cast<size_t>(*rc::gen::inRange(1, 20)));
    }
    if (text.empty()) text = " ";
  }
  const auto teams = ParseTeams(text, "teams.toml");
  if (!teams) {
    RC_ASSERT(teams.error().code == ErrorCode::kInvalid);
    RC_ASSERT(teams.error().message.find("teams.toml:") == 0);
    return;
  }
  RC_ASSERT(
      std::is_sorted(teams->teams.begin(), teams->teams.end(),
                     [](const Team& a, const Team& b) { return PathLess()(a.path, b.path); }));
  for (const Team& team : teams->teams) RC_ASSERT(NormalPath(team.path) == team.path);
}

TEST(TeamPath, OfUsersIsNeverAnError) {
  EXPECT_EQ(NormalPath(""), "default");
  EXPECT_EQ(NormalPath("///"), "default");
  EXPECT_EQ(NormalPath("/a//b/"), "a/b");
  EXPECT_EQ(NormalPath("1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17"),
            "1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16");
  EXPECT_EQ(ParentOf("a/b/c"), "a/b");
  EXPECT_EQ(ParentOf("a"), "");
  EXPECT_TRUE(IsIn("a/b", "a"));
  EXPECT_TRUE(IsIn("a", "a"));
  EXPECT_TRUE(IsIn("a", ""));
  EXPECT_FALSE(IsIn("ab", "a"));
  EXPECT_FALSE(IsIn("a", "a/b"));
}

TEST(TeamPath, TeamsStandBeforeThoseBelowThemAndTheseBeforeTheNext) {
  std::vector<std::string> paths{"b", "a-c", "a/z", "a", "a/b/c", "\xc3\xa4"};
  std::sort(paths.begin(), paths.end(), PathLess());
  EXPECT_EQ(paths, (std::vector<std::string>{"a", "a/b/c", "a/z", "a-c", "b", "\xc3\xa4"}));
}

TEST(TeamPath, PeriodsAreSaidAsPeopleDo) {
  EXPECT_EQ(FormatPeriod(hours(30 * 24)), "30 days");
  EXPECT_EQ(FormatPeriod(hours(24)), "1 day");
  EXPECT_EQ(FormatPeriod(hours(12)), "12 hours");
  EXPECT_EQ(FormatPeriod(std::chrono::seconds(90)), "90 s");
}

}  // namespace
}  // namespace baton::teams
