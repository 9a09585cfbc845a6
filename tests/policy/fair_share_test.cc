#include "policy/fair_share.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace baton::policy {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

TEST(Decayed, HalvesWithEachHalfLife) {
  const Duration week = std::chrono::hours(7 * 24);
  EXPECT_EQ(Decayed(1000, Duration(0), week), 1000);
  EXPECT_NEAR(Decayed(1000, week / 2, week), 707.106781, 1e-6);
  EXPECT_EQ(Decayed(1000, week, week), 500);
  EXPECT_EQ(Decayed(1024, 10 * week, week), 1);
  EXPECT_EQ(Decayed(1000, week, Duration(0)), 1000) << "without a half-life";
  EXPECT_EQ(Decayed(1000, -week, week), 1000) << "a clock that was set back";
}

// The example of the classic factor's documentation; 30 % were used by nobody in the tree.
TEST(FairShare, GoldenFigures) {
  const std::vector<Association> tree = {
      {.usage = 0.30},                             // 0
      {.parent = 0, .shares = 40},                 // 1: A
      {.parent = 1, .shares = 30},                 // 2: B
      {.parent = 2, .usage = 0.20, .user = true},  // 3
      {.parent = 1, .shares = 10},                 // 4: C
      {.parent = 4, .usage = 0.25, .user = true},  // 5
      {.parent = 4, .usage = 0, .user = true},     // 6
      {.parent = 0, .shares = 60},                 // 7: D
      {.parent = 7, .shares = 25},                 // 8: E
      {.parent = 8, .usage = 0.25, .user = true},  // 9
      {.parent = 7, .shares = 35},                 // 10: F
      {.parent = 10, .usage = 0, .user = true},    // 11
  };
  const std::vector<FairShare> s = FairShares(tree);
  struct Golden {
    uint32_t user;
    double shares, usage, factor;
  };
  for (const Golden& golden : {Golden{3, 0.30, 0.3875, 0.408479}, Golden{5, 0.05, 0.275, 0.022097},
                               Golden{6, 0.05, 0.15, 0.125}, Golden{9, 0.25, 0.25, 0.5},
                               Golden{11, 0.35, 0.145833, 0.749154}}) {
    EXPECT_NEAR(s[golden.user].normalized_shares, golden.shares, 5e-7) << golden.user;
    EXPECT_NEAR(s[golden.user].effective_usage, golden.usage, 5e-7) << golden.user;
    EXPECT_NEAR(s[golden.user].factor, golden.factor, 5e-7) << golden.user;
  }
  // A has 40 % of the shares and 45 of the 70 % used; D the rest.
  EXPECT_NEAR(s[1].level_fs, 0.4 / (45.0 / 70), 1e-12);
  EXPECT_NEAR(s[7].level_fs, 0.6 / (25.0 / 70), 1e-12);
  EXPECT_EQ(s[6].level_fs, kInfinite);
  // D before A; in D F's user, who used nothing; in A B's, for B used less of its part than C.
  EXPECT_EQ(s[11].rank, 1u);
  EXPECT_EQ(s[9].rank, 2u);
  EXPECT_EQ(s[3].rank, 3u);
  EXPECT_EQ(s[6].rank, 4u);
  EXPECT_EQ(s[5].rank, 5u);
  EXPECT_EQ(s[11].fair_tree, 1.0);
  EXPECT_NEAR(s[5].fair_tree, 0.2, 1e-12);
  EXPECT_EQ(s[1].rank, 0u) << "a team";
}

TEST(FairShare, WhoUsesItsDueStandsAtOneHalf) {
  const auto s = FairShares(std::vector<Association>{
      {}, {.shares = 3, .usage = 75, .user = true}, {.shares = 1, .usage = 25, .user = true}});
  EXPECT_EQ(s[1].factor, 0.5);
  EXPECT_EQ(s[2].factor, 0.5);
  EXPECT_EQ(s[1].rank, 1u);
  EXPECT_EQ(s[2].rank, 1u) << "they tie";
  EXPECT_EQ(s[2].fair_tree, 1.0);
}

TEST(FairShare, UsersThatTieHaveTheSameRankAndTheNextIsNotMovedUp) {
  const auto s = FairShares(std::vector<Association>{
      {}, {.usage = 1, .user = true}, {.usage = 1, .user = true}, {.usage = 2, .user = true}});
  EXPECT_EQ(s[1].rank, 1u);
  EXPECT_EQ(s[2].rank, 1u);
  EXPECT_EQ(s[3].rank, 3u);
  EXPECT_NEAR(s[3].fair_tree, 1.0 / 3, 1e-12);
}

// A large share of a team bears more of what the team used, so its user's factor is the largest.
TEST(FairShare, UsersOfATeamAreRankedByTheirPartOfItsUseNotByTheirFactor) {
  const auto s = FairShares(std::vector<Association>{
      {},
      {.parent = 0},
      {.parent = 1, .shares = 1, .usage = 9, .user = true},
      {.parent = 1, .shares = 8, .usage = 80, .user = true},
      {.parent = 1, .shares = 1, .usage = 11, .user = true},
  });
  EXPECT_EQ(s[2].rank, 1u);
  EXPECT_EQ(s[3].rank, 2u);
  EXPECT_EQ(s[4].rank, 3u);
  EXPECT_GT(s[3].factor, s[2].factor);
}

TEST(FairShare, TheUsersOfTeamsThatTieAreAsSiblings) {
  const auto s = FairShares(std::vector<Association>{
      {},
      {.parent = 0},                            // 1: team
      {.parent = 0},                            // 2: team that ties with it
      {.parent = 1, .usage = 3, .user = true},  // 3
      {.parent = 1, .usage = 1, .user = true},  // 4
      {.parent = 2, .usage = 1, .user = true},  // 5
      {.parent = 2, .usage = 3, .user = true},  // 6
  });
  EXPECT_EQ(s[4].rank, 1u);
  EXPECT_EQ(s[5].rank, 1u);
  EXPECT_EQ(s[3].rank, 3u);
  EXPECT_EQ(s[6].rank, 3u);
}

TEST(FairShare, AUserThatTiesWithATeamHasTheRankOfItsFirstUser) {
  const auto s = FairShares(std::vector<Association>{
      {},
      {.parent = 0},                            // 1: team
      {.parent = 1, .usage = 2, .user = true},  // 2
      {.parent = 1, .usage = 0, .user = true},  // 3
      {.parent = 0, .usage = 2, .user = true},  // 4: ties with the team
      {.parent = 0, .usage = 9, .user = true},  // 5
  });
  EXPECT_EQ(s[4].rank, 1u);
  EXPECT_EQ(s[3].rank, 1u);
  EXPECT_EQ(s[2].rank, 3u);
  EXPECT_EQ(s[5].rank, 4u);
}

TEST(FairShare, WithoutSharesOrUseNothingIsDividedByZero) {
  const auto unused = FairShares(std::vector<Association>{{}, {.user = true}});
  EXPECT_EQ(unused[1].factor, 1);
  EXPECT_EQ(unused[1].level_fs, kInfinite);
  const auto none =
      FairShares(std::vector<Association>{{}, {.shares = 0, .usage = 1, .user = true}});
  EXPECT_EQ(none[1].factor, 0);
  EXPECT_EQ(none[1].level_fs, 0);
  EXPECT_TRUE(FairShares({}).empty());
}

// A drawn tree: teams of teams and users, whole numbers, so that ties are common.
std::vector<Association> DrawTree() {
  std::vector<Association> tree(1);
  std::vector<uint32_t> teams{0};
  const int size = *rc::gen::inRange(1, 40);
  for (int i = 0; i < size; ++i) {
    Association a;
    a.parent =
        teams[static_cast<size_t>(*rc::gen::inRange<int>(0, static_cast<int>(teams.size())))];
    a.shares = static_cast<uint64_t>(*rc::gen::inRange(1, 4));
    a.user = *rc::gen::inRange(0, 3) != 0;
    if (a.user) a.usage = *rc::gen::inRange(0, 4);
    if (!a.user) teams.push_back(static_cast<uint32_t>(tree.size()));
    tree.push_back(a);
  }
  return tree;
}

// The ancestor of `user` among the children of `above`, or itself.
uint32_t Below(const std::vector<Association>& tree, uint32_t user, uint32_t above) {
  while (tree[user].parent != above) user = tree[user].parent;
  return user;
}

RC_GTEST_PROP(FairShare, WhoBelongsToATeamThatStandsHigherComesFirst, ()) {
  const std::vector<Association> tree = DrawTree();
  const std::vector<FairShare> s = FairShares(tree);
  uint32_t users = 0;
  for (const Association& a : tree) users += a.user ? 1 : 0;
  for (uint32_t a = 1; a < tree.size(); ++a) {
    RC_ASSERT(s[a].factor >= 0 && s[a].factor <= 1);
    if (!tree[a].user) continue;
    RC_ASSERT(s[a].rank >= 1 && s[a].rank <= users);
    for (uint32_t b = a + 1; b < tree.size(); ++b) {
      if (!tree[b].user) continue;
      // Where their ways up the tree part.
      std::vector<uint32_t> up{a};
      while (up.back() != 0) up.push_back(tree[up.back()].parent);
      uint32_t above = b;
      do {
        above = tree[above].parent;
      } while (std::find(up.begin(), up.end(), above) == up.end());
      const double of_a = s[Below(tree, a, above)].level_fs;
      const double of_b = s[Below(tree, b, above)].level_fs;
      if (of_a > of_b) RC_ASSERT(s[a].rank < s[b].rank);
      if (of_a < of_b) RC_ASSERT(s[a].rank > s[b].rank);
    }
  }
}

RC_GTEST_PROP(FairShare, TheWholeIsTheSumOfItsParts, ()) {
  const std::vector<Association> tree = DrawTree();
  const std::vector<FairShare> s = FairShares(tree);
  double usage = 0;
  std::vector<double> shares(tree.size());
  std::vector<bool> has_children(tree.size());
  for (uint32_t i = 1; i < tree.size(); ++i) {
    usage += tree[i].usage;
    shares[tree[i].parent] += s[i].normalized_shares;
    has_children[tree[i].parent] = true;
  }
  RC_ASSERT(std::abs(usage - s[0].raw_usage) < 1e-9);
  for (uint32_t i = 0; i < tree.size(); ++i) {
    if (has_children[i]) RC_ASSERT(std::abs(shares[i] - s[i].normalized_shares) < 1e-9);
  }
}

}  // namespace
}  // namespace baton::policy
