#include "teams/budget.h"

#include <gtest/gtest.h>

namespace baton::teams {
namespace {

using policy::Priority;
using policy::ShareSum;

Teams Budgeted() {
  return ParseTeams(R"(
    [[team]]
    name = "research"
    budget = 500
    [[team]]
    name = "research/vision"
    budget = 100
    budget_period = "7d"
    over_budget = "refuse"
    [[team]]
    name = "ops"
    limit = 2)",
                    "teams.toml")
      .value();
}

Budgets::HeldHours Held(double research, double vision) {
  return [=](const Team& team) -> Result<double> {
    return team.path == "research" ? research : vision;
  };
}

TEST(Budgets, WhoGoesOverAndComesBackIsSaidOnce) {
  const Teams teams = Budgeted();
  Budgets budgets;
  EXPECT_TRUE(budgets.Update(teams, Held(500, 100)).empty()) << "just used up is not over";
  const auto over = budgets.Update(teams, Held(512.34, 100));
  ASSERT_EQ(over.size(), 1u);
  EXPECT_EQ(over[0],
            "team research is over its budget of 500 GPU-hours in 30 days (512.3): its pods "
            "lose high priority until the last 30 days hold less than 495");
  EXPECT_TRUE(budgets.Update(teams, Held(513, 100)).empty());
  EXPECT_TRUE(budgets.Update(teams, Held(497, 100)).empty()) << "not back by a little";
  EXPECT_TRUE(budgets.states().at("research").over);
  const auto back = budgets.Update(teams, Held(494.9, 100));
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0],
            "team research is within its budget of 500 GPU-hours in 30 days again (494.9)");
  EXPECT_FALSE(budgets.states().at("research").over);
  EXPECT_EQ(budgets.states().size(), 2u);
}

// A budget may be as small as 0.001 GPU-hours, and be exceeded by as little as one likes.
TEST(Budgets, SentencesShowByHowMuchABudgetIsExceededHoweverLittle) {
  Teams teams = Budgeted();
  for (Team& team : teams.teams) {
    if (team.path == "research") team.budget = 0.001;
  }
  Budgets budgets;
  const auto over = budgets.Update(teams, Held(0.0010301, 100));
  ASSERT_EQ(over.size(), 1u);
  EXPECT_EQ(over[0],
            "team research is over its budget of 0.001 GPU-hours in 30 days (0.00103): its pods "
            "lose high priority until the last 30 days hold less than 0.00099");
  const auto back = budgets.Update(teams, Held(0.00098, 100));
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0],
            "team research is within its budget of 0.001 GPU-hours in 30 days again (0.000980)");
  for (Team& team : teams.teams) {
    if (team.path == "research") team.budget = 500;
  }
  const auto hardly = budgets.Update(teams, Held(500.0004, 100));
  ASSERT_EQ(hardly.size(), 1u);
  EXPECT_NE(hardly[0].find("(500.0004)"), std::string::npos) << hardly[0];
}

TEST(Budgets, LowTakesHighPriorityFromTheTeamAndAllBelowIt) {
  const Teams teams = Budgeted();
  Budgets budgets;
  EXPECT_EQ(budgets.Effective(teams, "research", Priority::kHigh), Priority::kHigh);
  budgets.Update(teams, Held(501, 0));
  EXPECT_EQ(budgets.Effective(teams, "research", Priority::kHigh), Priority::kNormal);
  EXPECT_EQ(budgets.Effective(teams, "/research/text/", Priority::kHigh), Priority::kNormal);
  EXPECT_EQ(budgets.Effective(teams, "researchers", Priority::kHigh), Priority::kHigh);
  EXPECT_EQ(budgets.Effective(teams, "", Priority::kHigh), Priority::kHigh);
  EXPECT_TRUE(budgets.Admit(teams, "research")) << "low refuses nobody";
}

TEST(Budgets, RefuseKeepsNewPodsOut) {
  const Teams teams = Budgeted();
  Budgets budgets;
  EXPECT_TRUE(budgets.Admit(teams, "research/vision"));
  budgets.Update(teams, Held(0, 101));
  const auto refused = budgets.Admit(teams, "research/vision/deep");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(refused.error().message,
            "team research/vision is over its budget of 100 GPU-hours in 7 days (101.0): new pods "
            "of it are refused until the last 7 days hold less than 99; wait, raise the budget, or "
            "name another team");
  EXPECT_EQ(budgets.Effective(teams, "research/vision", Priority::kHigh), Priority::kHigh);
  EXPECT_TRUE(budgets.Admit(teams, "research"));
}

TEST(Budgets, AReloadThatRaisesOrTakesAwayABudgetCounts) {
  Teams teams = Budgeted();
  Budgets budgets;
  budgets.Update(teams, Held(600, 200));
  EXPECT_FALSE(budgets.Admit(teams, "research/vision"));
  teams.teams[1].budget = 1000;  // research
  ASSERT_EQ(teams.teams[1].path, "research");
  teams.teams[2].budget = 0;
  EXPECT_TRUE(budgets.Admit(teams, "research/vision")) << "at once";
  const auto events = budgets.Update(teams, Held(600, 200));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0], "team research/vision has no budget any more");
  EXPECT_EQ(events[1],
            "team research is within its budget of 1000 GPU-hours in 30 days again "
            "(600.0)");
  EXPECT_EQ(budgets.states().size(), 1u);
}

TEST(Budgets, WhereUseIsNotToBeHadATeamStaysWhatItWas) {
  const Teams teams = Budgeted();
  Budgets budgets;
  budgets.Update(teams, Held(501, 0));
  const Budgets::HeldHours broken = [](const Team&) -> Result<double> {
    return Fail(ErrorCode::kUnavailable, "the ledger is locked");
  };
  const auto events = budgets.Update(teams, broken);
  ASSERT_EQ(events.size(), 2u) << "one for each budget";
  EXPECT_EQ(events[0],
            "what team research held is not known (the ledger is locked); it counts as "
            "over its budget, as before");
  EXPECT_TRUE(budgets.Update(teams, broken).empty()) << "once";
  EXPECT_EQ(budgets.Effective(teams, "research", Priority::kHigh), Priority::kNormal);
  EXPECT_TRUE(budgets.Update(teams, Held(501, 0)).empty());
  EXPECT_EQ(budgets.Update(teams, broken).size(), 2u) << "and again when it is new";
  const Budgets::HeldHours unasked = [](const Team&) -> Result<double> {
    return Fail(ErrorCode::kNotFound, "nobody has looked yet");
  };
  EXPECT_TRUE(Budgets().Update(teams, unasked).empty()) << "which is no news";
}

TEST(TeamLimits, AddUpTheRequestsOfATeamAndAllBelowIt) {
  const Teams teams = Budgeted();
  const std::vector<LimitPod> pods{{"train", "ops", ShareSum(1'000'000)},
                                   {"web", "ops/web", ShareSum(500'000)},
                                   {"other", "research", ShareSum(9'000'000)}};
  EXPECT_TRUE(CheckLimits(teams, pods, {"new", "ops", ShareSum(500'000)}));
  EXPECT_TRUE(CheckLimits(teams, pods, {"new", "research", ShareSum(9'000'000)})) << "no limit";
  const auto refused = CheckLimits(teams, pods, {"new", "ops/web/deep", ShareSum(600'000)});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(refused.error().message,
            "pods of team ops may request 2 GPUs together, and 1.5 are requested (train 1, web "
            "0.5): 0.6 for new is too much; 0.5 would fit");
  EXPECT_EQ(CheckLimits(teams, {}, {"new", "ops", ShareSum(2'100'000)}).error().message,
            "pods of team ops may request 2 GPUs together, and nothing is requested yet: 2.1 for "
            "new is too much; 2 would fit");
}

TEST(TeamLimits, APodThatChangesDoesNotCountTwice) {
  const Teams teams = Budgeted();
  std::vector<LimitPod> pods{{"train", "ops", ShareSum(1'500'000)},
                             {"web", "ops", ShareSum(500'000)}};
  EXPECT_TRUE(CheckLimits(teams, pods, {"train", "ops", ShareSum(1'500'000)}));
  EXPECT_TRUE(CheckLimits(teams, pods, {"train", "ops", ShareSum(1'000'000)}));
  const auto more = CheckLimits(teams, pods, {"web", "ops", ShareSum(600'000)});
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().message,
            "pods of team ops may request 2 GPUs together, and 1.5 are requested (train 1.5): 0.6 "
            "for web is too much; 0.5 would fit");
  pods[1].request = ShareSum(900'000);  // the limit was lowered since
  EXPECT_TRUE(CheckLimits(teams, pods, {"web", "ops", ShareSum(800'000)})) << "less than before";
  EXPECT_FALSE(CheckLimits(teams, pods, {"new", "ops", ShareSum(1'000)}));
  const auto moved = CheckLimits(teams, pods, {"other", "ops", ShareSum(800'000)});
  EXPECT_FALSE(moved);
  EXPECT_NE(moved.error().message.find("lower or delete one of these"), std::string::npos);
}

TEST(TeamLimits, APodThatMovesToATeamCountsThere) {
  const Teams teams = Budgeted();
  const std::vector<LimitPod> pods{{"train", "ops", ShareSum(1'500'000)},
                                   {"web", "research", ShareSum(900'000)}};
  EXPECT_FALSE(CheckLimits(teams, pods, {"web", "ops", ShareSum(900'000)}));
  EXPECT_TRUE(CheckLimits(teams, pods, {"web", "ops", ShareSum(500'000)}));
}

TEST(TeamLimits, OfATeamAndOfTheTeamsAboveItBothHold) {
  const Teams teams =
      ParseTeams("[[team]]\nname = \"a\"\nlimit = 1\n[[team]]\nname = \"a/b\"\nlimit = 3",
                 "teams.toml")
          .value();
  EXPECT_TRUE(CheckLimits(teams, {}, {"new", "a/b", ShareSum(1'000'000)}));
  const auto refused = CheckLimits(teams, {}, {"new", "a/b", ShareSum(2'000'000)});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message.find("pods of team a may request 1 GPU "), 0u);
  EXPECT_EQ(CheckLimits(teams, {}, {"new", "a/b", ShareSum(4'000'000)})
                .error()
                .message.find("pods of team a/b may request 3 GPUs"),
            0u);
}

TEST(TeamLimits, OfManyPodsTheLargestAreNamed) {
  const Teams teams = Budgeted();
  std::vector<LimitPod> pods;
  for (uint64_t i = 1; i <= 8; ++i)
    pods.push_back({"p" + std::to_string(i), "ops", ShareSum(i * 10'000)});
  EXPECT_EQ(CheckLimits(teams, pods, {"new", "ops", ShareSum(2'000'000)}).error().message,
            "pods of team ops may request 2 GPUs together, and 0.36 are requested (p8 0.08, p7 "
            "0.07, p6 0.06, p5 0.05, p4 0.04 and 3 more): 2 for new is too much; 1.64 would fit");
}

}  // namespace
}  // namespace baton::teams
