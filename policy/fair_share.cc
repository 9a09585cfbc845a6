#include "policy/fair_share.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace baton::policy {
namespace {

class FairTree {
 public:
  FairTree(std::span<const Association> tree, std::vector<FairShare>& shares)
      : tree_(tree), shares_(shares), children_(tree.size()) {
    for (uint32_t i = 1; i < tree.size(); ++i) {
      children_[tree[i].parent].push_back(i);
      users_ += tree[i].user ? 1 : 0;
    }
    left_ = users_;
  }

  void Rank() {
    if (!tree_.empty()) RankAmong(children_[0], false);
  }

 private:
  bool Ties(uint32_t a, uint32_t b) const { return shares_[a].level_fs == shares_[b].level_fs; }

  // Ranks the users among `siblings` and below them. `tied`: the first of them has the rank that
  // was given last.
  void RankAmong(std::vector<uint32_t> siblings, bool tied) {
    // Users before teams, so that a team's first user may share the rank of a user that ties with
    // the team.
    std::sort(siblings.begin(), siblings.end(), [this](uint32_t a, uint32_t b) {
      if (!Ties(a, b)) return shares_[a].level_fs > shares_[b].level_fs;
      return tree_[a].user != tree_[b].user ? tree_[a].user : a < b;
    });
    for (size_t i = 0; i < siblings.size();) {
      if (tree_[siblings[i]].user) {
        Give(siblings[i], tied);
        tied = i + 1 < siblings.size() && Ties(siblings[i], siblings[i + 1]);
        ++i;
        continue;
      }
      // The children of teams that tie are as siblings.
      std::vector<uint32_t> below;
      const uint32_t first = siblings[i];
      for (; i < siblings.size() && Ties(first, siblings[i]); ++i) {
        const auto& children = children_[siblings[i]];
        below.insert(below.end(), children.begin(), children.end());
      }
      RankAmong(std::move(below), tied);
      tied = false;
    }
  }

  void Give(uint32_t user, bool tied) {
    if (!tied) current_ = left_;
    --left_;
    shares_[user].rank = users_ - current_ + 1;
    shares_[user].fair_tree = static_cast<double>(current_) / users_;
  }

  const std::span<const Association> tree_;
  std::vector<FairShare>& shares_;
  std::vector<std::vector<uint32_t>> children_;
  uint32_t users_ = 0;
  uint32_t left_ = 0;     // users without a rank
  uint32_t current_ = 0;  // what was left when the last rank was given
};

}  // namespace

double Decayed(double use, Duration age, Duration half_life) {
  if (half_life <= Duration(0) || age <= Duration(0)) return use;
  return use * std::exp2(-static_cast<double>(Nanos(age)) / static_cast<double>(Nanos(half_life)));
}

std::vector<FairShare> FairShares(std::span<const Association> tree) {
  std::vector<FairShare> all(tree.size());
  std::vector<double> siblings_shares(tree.size()), siblings_usage(tree.size());  // by parent
  for (uint32_t i = 0; i < tree.size(); ++i) {
    const Association& a = tree[i];
    BATON_CHECK(i > 0 ? a.parent < i && !tree[a.parent].user : !a.user);
    BATON_CHECK(a.usage >= 0 && std::isfinite(a.usage));
    BATON_CHECK(a.uncounted >= 0 && std::isfinite(a.uncounted));
    all[i].raw_usage = a.usage;
    all[i].raw_uncounted = a.uncounted;
    if (i > 0) siblings_shares[a.parent] += static_cast<double>(a.shares);
  }
  for (size_t i = tree.size(); i-- > 1;) {
    all[tree[i].parent].raw_usage += all[i].raw_usage;
    all[tree[i].parent].raw_uncounted += all[i].raw_uncounted;
    siblings_usage[tree[i].parent] += all[i].raw_usage + all[i].raw_uncounted;
  }
  for (uint32_t i = 0; i < tree.size(); ++i) {
    FairShare& s = all[i];
    const uint32_t parent = tree[i].parent;
    const auto part = [](double of, double whole) { return whole > 0 ? of / whole : 0; };
    s.normalized_usage = part(s.raw_usage, all[0].raw_usage + all[0].raw_uncounted);
    if (i == 0) {
      s.level_shares = s.normalized_shares = 1;
      s.effective_usage = s.normalized_usage;
    } else {
      s.level_shares = part(static_cast<double>(tree[i].shares), siblings_shares[parent]);
      s.normalized_shares = s.level_shares * all[parent].normalized_shares;
      // What the root's own children used is what counts of them: nobody stands above.
      const double above = parent == 0 ? s.normalized_usage : all[parent].effective_usage;
      s.effective_usage = s.normalized_usage + (above - s.normalized_usage) * s.level_shares;
    }
    const double level_usage = i == 0 ? 1 : part(s.raw_usage, siblings_usage[parent]);
    s.level_fs = level_usage > 0      ? s.level_shares / level_usage
                 : s.level_shares > 0 ? std::numeric_limits<double>::infinity()
                                      : 0;
    s.factor = s.normalized_shares > 0 ? std::exp2(-s.effective_usage / s.normalized_shares) : 0;
  }
  FairTree(tree, all).Rank();
  return all;
}

}  // namespace baton::policy
