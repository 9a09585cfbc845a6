#include "teams/what_if.h"

#include <algorithm>
#include <cmath>

#include "policy/rational.h"

namespace baton::teams {
namespace {

policy::Share PartOf(double part) {
  return policy::Share(static_cast<uint32_t>(std::lround(std::clamp(part, 0.0, 1.0) * 1e6)));
}

}  // namespace

WhatIf::WhatIf(std::vector<WhatIfPod> pods, const Teams* teams, std::span<const Use> uses)
    : pods_(std::move(pods)) {
  TeamIndex index;
  std::vector<std::string> present;
  for (const WhatIfPod& pod : pods_) {
    present.push_back(pod.team);
    team_of_.push_back(index.Of(pod.team));
  }
  if (teams != nullptr) team_weights_ = index.Weights(SlackWeights(*teams, uses, present));
}

std::vector<double> WhatIf::Divide(std::span<const double> wanted) const {
  std::vector<double> got(pods_.size(), 0);
  std::vector<size_t> who;
  std::vector<policy::Entitlement> shares;
  std::vector<size_t> idle;
  policy::ShareSum requested;
  for (size_t i = 0; i < pods_.size(); ++i) {
    if (PartOf(wanted[i]) > policy::Share(0)) requested += pods_[i].spec.request;
  }
  for (size_t i = 0; i < pods_.size(); ++i) {
    const policy::ShareSpec& spec = pods_[i].spec;
    const policy::Share most = std::min(spec.limit, PartOf(wanted[i]));
    if (most == policy::Share(0)) continue;
    if (spec.priority == policy::Priority::kIdle) {
      idle.push_back(i);
      continue;
    }
    who.push_back(i);
    // What it does not want of its request others have.
    const policy::Share request = policy::ScaledDown(spec.request, requested);
    shares.push_back({std::min(request, most), most, spec.slack_weight, team_of_[i]});
  }
  policy::FluidShares(shares, team_weights_);
  double left = 1;
  for (size_t i = 0; i < who.size(); ++i) {
    got[who[i]] = policy::Ratio(shares[i].fluid);
    left -= got[who[i]];
  }
  // Equal parts: who wants least first.
  const auto most = [&](size_t i) {
    return std::min(policy::Ratio(pods_[i].spec.limit), std::clamp(wanted[i], 0.0, 1.0));
  };
  std::sort(idle.begin(), idle.end(), [&](size_t a, size_t b) { return most(a) < most(b); });
  for (size_t i = 0; i < idle.size(); ++i) {
    got[idle[i]] =
        std::min(most(idle[i]), std::max(0.0, left) / static_cast<double>(idle.size() - i));
    left -= got[idle[i]];
  }
  return got;
}

}  // namespace baton::teams
