#include "teams/standing.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace baton::teams {
namespace {

Teams TeamsOf(const std::string& text) { return ParseTeams(text, "teams.toml").value(); }

const StandingRow& RowOf(const std::vector<StandingRow>& rows, const std::string& path,
                         const std::string& user = "") {
  for (const StandingRow& row : rows) {
    if (row.path == path && row.user == user) return row;
  }
  ADD_FAILURE() << "no row of " << path << " " << user;
  return rows[0];
}

// The tree of the classic factor's documentation (tests/policy/fair_share_test.cc has its golden
// figures), as a file and a history: the rows are what FairShares says of it.
TEST(TeamStanding, IsThatOfTheTree) {
  const Teams teams = TeamsOf(R"(
    [[team]]
    name = "a"
    weight = 40
    [[team]]
    name = "a/b"
    weight = 30
    [[team]]
    name = "a/c"
    weight = 10
    users = ["user-2", "user-3"]
    [[team]]
    name = "d"
    weight = 60
    [[team]]
    name = "d/e"
    weight = 25
    [[team]]
    name = "d/f"
    weight = 35
    users = [{name = "user-5", weight = 7}])");
  const std::vector<Use> uses{
      {"a/b", "user-1", 0.2}, {"a/c", "user-2", 0.25}, {"d/e", "user-4", 0.25}};
  const auto rows = Standing(teams, uses);
  const std::vector<policy::Association> tree{
      {},
      {.parent = 0, .shares = 40},
      {.parent = 1, .shares = 30},
      {.parent = 2, .usage = 0.2, .user = true},
      {.parent = 1, .shares = 10},
      {.parent = 4, .usage = 0.25, .user = true},
      {.parent = 4, .user = true},
      {.parent = 0, .shares = 60},
      {.parent = 7, .shares = 25},
      {.parent = 8, .usage = 0.25, .user = true},
      {.parent = 7, .shares = 35},
      {.parent = 10, .shares = 7, .user = true},
  };
  const auto shares = policy::FairShares(tree);
  ASSERT_EQ(rows.size(), tree.size());
  const std::vector<std::pair<std::string, std::string>> order{
      {"", ""},          {"a", ""}, {"a/b", ""}, {"a/b", "user-1"}, {"a/c", ""}, {"a/c", "user-2"},
      {"a/c", "user-3"}, {"d", ""}, {"d/e", ""}, {"d/e", "user-4"}, {"d/f", ""}, {"d/f", "user-5"}};
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].path, order[i].first);
    EXPECT_EQ(rows[i].user, order[i].second);
    EXPECT_EQ(rows[i].raw_shares, tree[i].shares);
    EXPECT_EQ(rows[i].share.normalized_shares, shares[i].normalized_shares);
    EXPECT_EQ(rows[i].share.normalized_usage, shares[i].normalized_usage);
    EXPECT_EQ(rows[i].share.effective_usage, shares[i].effective_usage);
    EXPECT_EQ(rows[i].share.factor, shares[i].factor);
    EXPECT_EQ(rows[i].share.level_fs, shares[i].level_fs);
    EXPECT_EQ(rows[i].share.rank, shares[i].rank);
    EXPECT_EQ(rows[i].share.fair_tree, shares[i].fair_tree);
  }
  EXPECT_EQ(RowOf(rows, "d/f", "user-5").share.rank, 1u);
}

TEST(TeamStanding, TeamsAndUsersThatAreOnlyInHistoryAppear) {
  const auto rows = Standing(TeamsOf("[[team]]\nname = \"a\"\nweight = 3"),
                             std::vector<Use>{{"old/team", "user-x", 30},
                                              {"/old//team/", "user-x", 10},
                                              {"", "", 20},
                                              {"a", "", 40},
                                              {"a", "", std::nan("")},
                                              {"a", "", -7}});
  EXPECT_EQ(RowOf(rows, "old/team", "user-x").share.raw_usage, 40);
  EXPECT_EQ(RowOf(rows, "old/team", "user-x").raw_shares, 1u);
  EXPECT_EQ(RowOf(rows, "old").share.raw_usage, 40);
  EXPECT_EQ(RowOf(rows, "default").share.raw_usage, 20) << "nobody said which";
  EXPECT_EQ(RowOf(rows, "a").share.raw_usage, 40) << "nobody said who";
  EXPECT_DOUBLE_EQ(RowOf(rows, "a").share.normalized_shares, 0.6) << "of a, default and old";
  EXPECT_EQ(RowOf(rows, "").share.raw_usage, 100);
  EXPECT_EQ(rows.size(), 6u) << "these, and old/team itself";
}

TEST(TeamStanding, UseByTeamIsTheSumOfItsUsers) {
  const auto uses = ByTeam(std::vector<Use>{
      {"b", "user-x", 1}, {"a", "user-x", 2}, {"/b/", "user-y", 3}, {"", "", 4}, {"a/b", "", -1}});
  ASSERT_EQ(uses.size(), 4u);
  EXPECT_EQ(uses[0].team, "a");
  EXPECT_EQ(uses[1].team, "a/b");
  EXPECT_EQ(uses[1].decayed, 0);
  EXPECT_EQ(uses[2].team, "b");
  EXPECT_EQ(uses[2].decayed, 4);
  EXPECT_EQ(uses[3].team, "default");
}

std::vector<std::string> Names(const std::vector<SlackRow>& rows) {
  std::vector<std::string> names;
  for (const SlackRow& row : rows) names.push_back(row.team);
  return names;
}

TEST(SlackWeights, WhoUsedTenTimesAsMuchHasATenthOfTheOthersWeight) {
  const std::vector<Use> uses{{"a", "user-a", 1000}, {"b", "user-b", 100}, {"c", "user-c", 1e9}};
  const std::vector<std::string> present{"b", "a", "b"};
  const auto rows = SlackWeights({}, uses, present);
  ASSERT_EQ(Names(rows), (std::vector<std::string>{"a", "b"})) << "c has no pods here";
  EXPECT_EQ(rows[0].weight, 0.5);
  EXPECT_NEAR(rows[0].usage, 10.0 / 11, 1e-12);
  EXPECT_NEAR(rows[0].slack, 1e6 / 11, 1);
  EXPECT_NEAR(rows[1].slack, 1e7 / 11, 1);
  Teams blind;
  blind.history = 0;
  for (const SlackRow& row : SlackWeights(blind, uses, present)) EXPECT_EQ(row.slack, 500'000u);
  Teams strict;
  strict.history = 2 * policy::kMillion;
  EXPECT_EQ(SlackWeights(strict, uses, present)[0].slack, 0u) << "1/2 + 2 (1/2 - 10/11) < 0";
}

TEST(SlackWeights, WithoutHistoryGoByTheWeightsOfTheTree) {
  const Teams teams = TeamsOf(R"([[team]]
    name = "research"
    weight = 3
    [[team]]
    name = "research/vision"
    weight = 2
    [[team]]
    name = "ops")");
  const auto slack = [&](std::vector<std::string> present) {
    std::vector<double> parts;
    double sum = 0;
    for (const SlackRow& row : SlackWeights(teams, {}, present)) {
      parts.push_back(row.slack);
      sum += row.slack;
    }
    for (double& part : parts) part = std::round(1000 * part / sum) / 1000;
    return parts;
  };
  using Parts = std::vector<double>;
  EXPECT_EQ(slack({"ops", "research/vision", "research/text"}), (Parts{0.25, 0.25, 0.5}));
  EXPECT_EQ(slack({"ops", "research/text"}), (Parts{0.25, 0.75})) << "vision's goes to text";
  EXPECT_EQ(slack({"research/vision", "research/text"}), (Parts{0.333, 0.667})) << "ops' to both";
  EXPECT_EQ(slack({"ops", "research", "research/vision"}), (Parts{0.25, 0.25, 0.5}))
      << "research's own pods weigh 1 beside vision";
  EXPECT_EQ(slack({"", "default", "/default"}), (Parts{1}));
  EXPECT_TRUE(slack({}).empty());
}

TEST(SlackWeights, NobodysWeightIsRoundedToNothing) {
  Teams teams = TeamsOf(R"([[team]]
    name = "a"
    weight = 1000000
    [[team]]
    name = "b"
    weight = 1000000)");
  const auto rows = SlackWeights(teams, {}, std::vector<std::string>{"a", "b", "tiny"});
  EXPECT_GT(rows[2].slack, 0u);
  EXPECT_EQ(rows[2].team, "tiny");
}

// A drawn file, history and GPU. Σ of the requests is at most one, unless overcommitted.
struct DrawnGpu {
  Teams teams;
  std::vector<Use> uses;
  std::vector<std::string> present;
  std::vector<policy::Entitlement> pods;
};
DrawnGpu DrawGpu() {
  static const std::vector<std::string> kPaths{"a", "a/b", "a/c", "d", "d/e/f", "", "g", "a/b/h"};
  const auto path = [] { return *rc::gen::elementOf(kPaths); };
  DrawnGpu g;
  g.teams.history =
      *rc::gen::elementOf(std::vector<uint32_t>{0, 500'000, policy::kMillion, 7'000'000});
  for (const char* p : {"a", "a/b", "d/e/f"}) {
    Team team;
    team.path = p;
    team.weight = *rc::gen::inRange<uint32_t>(1, 50);
    g.teams.teams.push_back(team);
  }
  for (int n = *rc::gen::inRange(0, 8); n > 0; --n) {
    g.uses.push_back({path(), "user-a", 1.0 * *rc::gen::inRange(0, 1000)});
  }
  TeamIndex index;
  const int n = *rc::gen::inRange(1, 9);
  for (int i = 0; i < n; ++i) {
    g.present.push_back(path());
    const auto request = *rc::gen::inRange<uint32_t>(policy::kShareMin.millionths(),
                                                     policy::kMillion / static_cast<uint32_t>(n));
    const auto limit = *rc::gen::arbitrary<bool>()
                           ? policy::kMillion
                           : *rc::gen::inRange<uint32_t>(request, policy::kMillion);
    g.pods.push_back(
        {policy::Share(request), policy::Share(limit), request, index.Of(g.present.back())});
  }
  return g;
}

RC_GTEST_PROP(SlackWeightsLaw, RequestsAreNeverTouchedAndNothingIsLost, ()) {
  DrawnGpu g = DrawGpu();
  TeamIndex index;
  for (const std::string& team : g.present) index.Of(team);
  std::vector<policy::Entitlement> without = g.pods;
  policy::FluidShares(without);
  policy::FluidShares(g.pods, index.Weights(SlackWeights(g.teams, g.uses, g.present)));
  int64_t sum = 0;
  int64_t sum_without = 0;
  for (size_t i = 0; i < g.pods.size(); ++i) {
    RC_ASSERT(g.pods[i].fluid >= g.pods[i].request);
    RC_ASSERT(g.pods[i].fluid <= g.pods[i].limit);
    sum += g.pods[i].fluid.millionths();
    sum_without += without[i].fluid.millionths();
  }
  RC_ASSERT(std::abs(sum - sum_without) <= static_cast<int64_t>(3 * g.pods.size()));
}

RC_GTEST_PROP(SlackWeightsLaw, AreTheWeightsOfTheTreeMovedByWhatWasUsed, ()) {
  const DrawnGpu g = DrawGpu();
  const double k = g.teams.history / 1e6;
  double weights = 0;
  double usages = 0;
  const auto rows = SlackWeights(g.teams, g.uses, g.present);
  for (const SlackRow& row : rows) {
    weights += row.weight;
    usages += row.usage;
    RC_ASSERT(row.weight > 0);
    const double e = std::max(0.0, row.weight + k * (row.weight - row.usage));
    RC_ASSERT(std::abs(row.slack / 1e6 - e) <= (1 + k) * 2e-6);
  }
  RC_ASSERT(std::abs(weights - 1) < 1e-9);
  RC_ASSERT(usages == 0 || std::abs(usages - 1) < 1e-9);
  // What teams used that are not here counts for nothing.
  std::vector<Use> more = g.uses;
  more.push_back({"a/elsewhere", "user-a", 1e6});
  const auto same = SlackWeights(g.teams, more, g.present);
  for (size_t i = 0; i < rows.size(); ++i) RC_ASSERT(same[i].slack == rows[i].slack);
}

// A team that used only what no other team wanted stands as one that used nothing.
TEST(UncountedUse, IsHeldAgainstNobody) {
  const Teams teams = TeamsOf(R"(
    [[team]]
    name = "night"
    [[team]]
    name = "new"
    [[team]]
    name = "day")");
  const std::vector<Use> uses{{"night", "user-n", 0, 5000}, {"day", "user-d", 300, 200}};
  const auto rows = Standing(teams, uses);
  const policy::FairShare& night = RowOf(rows, "night").share;
  const policy::FairShare& fresh = RowOf(rows, "new").share;
  EXPECT_EQ(night.raw_usage, 0);
  EXPECT_EQ(night.raw_uncounted, 5000);
  EXPECT_EQ(night.normalized_usage, fresh.normalized_usage);
  EXPECT_EQ(night.effective_usage, fresh.effective_usage);
  EXPECT_EQ(night.factor, fresh.factor);
  EXPECT_EQ(night.level_fs, fresh.level_fs);
  EXPECT_EQ(RowOf(rows, "night", "user-n").share.rank, 1u);
  EXPECT_DOUBLE_EQ(RowOf(rows, "day").share.normalized_usage, 300.0 / 5500) << "of all use";
  EXPECT_EQ(RowOf(rows, "").share.raw_uncounted, 5200);
  const auto slack = SlackWeights(teams, uses, std::vector<std::string>{"night", "new", "day"});
  EXPECT_EQ(slack[1].team, "new");
  EXPECT_EQ(slack[1].slack, slack[2].slack);
  EXPECT_LT(slack[0].slack, slack[1].slack);
}

// Nor can anybody make others look worse by it than all of their use would.
RC_GTEST_PROP(UncountedUseLaw, MakesNobodysUseMore, ()) {
  DrawnGpu g = DrawGpu();
  const auto all = SlackWeights(g.teams, g.uses, g.present);
  const auto standing = Standing(g.teams, g.uses);
  for (Use& use : g.uses) {
    use.uncounted = use.decayed * *rc::gen::inRange(0, 101) / 100;
    use.decayed -= use.uncounted;
  }
  const auto rows = SlackWeights(g.teams, g.uses, g.present);
  double usages = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    RC_ASSERT(rows[i].usage <= all[i].usage + 1e-9);
    RC_ASSERT(rows[i].slack >= all[i].slack);
    usages += rows[i].usage;
  }
  RC_ASSERT(usages <= 1 + 1e-9);
  const auto less = Standing(g.teams, g.uses);
  for (size_t i = 0; i < less.size(); ++i) {
    RC_ASSERT(less[i].share.normalized_usage <= standing[i].share.normalized_usage + 1e-9);
    RC_ASSERT(less[i].share.factor >= standing[i].share.factor - 1e-9);
    RC_ASSERT(less[i].share.level_fs >= standing[i].share.level_fs * (1 - 1e-9));
  }
}

TEST(TeamIndex, NumbersAreDenseAndStayWhileTheyAreUsed) {
  TeamIndex index;
  EXPECT_EQ(index.Of("a"), 0u);
  EXPECT_EQ(index.Of("b"), 1u);
  EXPECT_EQ(index.Of("c"), 2u);
  EXPECT_EQ(index.Of("/a/"), 0u);
  EXPECT_EQ(index.Of(""), 3u);
  index.Retain(std::vector<std::string>{"default", "b"});
  EXPECT_EQ(index.Of("b"), 1u);
  EXPECT_EQ(index.Of("default"), 3u);
  EXPECT_EQ(index.Of("d"), 0u) << "the lowest free one";
  EXPECT_EQ(index.Weights(std::vector<SlackRow>{{"d", 0, 0, 7}, {"default", 0, 0, 9}}),
            (std::vector<uint32_t>{7, 0, 0, 9}));
  EXPECT_TRUE(index.Weights({}).empty());
}

}  // namespace
}  // namespace baton::teams
