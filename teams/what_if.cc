#include "teams/what_if.h"

#include <algorithm>
#include <cmath>

namespace baton::teams {
namespace {

constexpr size_t kExactMost = 6;  // pods that pause: 64 sets of those that have work
constexpr size_t kMoments = 64;
constexpr int kRoundsMost = 40;
constexpr double kClose = 1e-5;
// Whoever would use so much alone always has work.
constexpr double kAlways = 1 - 1e-6;

double Part(double part) { return std::clamp(part, 0.0, 1.0); }

// Pods that have work at once, and what each gets then.
struct Moment {
  std::vector<size_t> who;
  std::vector<double> rates;
};

// Where moment `m` of a bucket lies for the `n`th pod that pauses, 0 to 1: a point of Roberts'
// sequence, the same whoever asks.
double Place(size_t m, size_t n) {
  const double step = std::pow(1.32471795724474602596, -static_cast<double>(n % 16 + 1));
  const double at =
      0.5 + static_cast<double>(m + 1) * step + static_cast<double>(n / 16) * 0.381966;
  return at - std::floor(at);
}

}  // namespace

double Alone(const Did& did, double beside) {
  const double held = Part(did.held), busy = Part(did.busy), waited = Part(did.waited);
  if (held == 0 && waited > 0) return waited;
  if (held > 0) return held / (held + std::max(0.0, 1 - held - waited));
  return busy > 0 ? busy / (busy + (1 - busy) * (1 + beside)) : 0;
}

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

std::vector<double> WhatIf::Rates(std::span<const size_t> who) const {
  std::vector<policy::Entitlement> shares;
  std::vector<size_t> idle;
  for (const size_t i : who) {
    const policy::ShareSpec& spec = pods_[i].spec;
    if (spec.priority == policy::Priority::kIdle) {
      idle.push_back(i);
    } else {
      shares.push_back({spec.request, spec.limit, spec.slack_weight, team_of_[i]});
    }
  }
  policy::FluidShares(shares, team_weights_);
  double left = 1;
  for (const policy::Entitlement& share : shares) left -= policy::Ratio(share.fluid);
  // Equal parts of what is left: who may have least first.
  std::sort(idle.begin(), idle.end(),
            [&](size_t a, size_t b) { return pods_[a].spec.limit < pods_[b].spec.limit; });
  std::vector<double> idle_rate(pods_.size(), 0);
  for (size_t n = 0; n < idle.size(); ++n) {
    const double equal = std::max(0.0, left) / static_cast<double>(idle.size() - n);
    idle_rate[idle[n]] = std::min(policy::Ratio(pods_[idle[n]].spec.limit), equal);
    left -= idle_rate[idle[n]];
  }
  std::vector<double> rates;
  size_t next = 0;
  for (const size_t i : who) {
    const bool is_idle = pods_[i].spec.priority == policy::Priority::kIdle;
    rates.push_back(is_idle ? idle_rate[i] : policy::Ratio(shares[next++].fluid));
  }
  return rates;
}

std::vector<double> WhatIf::Divide(std::span<const double> alone) const {
  const size_t count = pods_.size();
  std::vector<size_t> always, pausing;
  std::vector<double> active(count);  // the part of the bucket in which it has work
  for (size_t i = 0; i < count; ++i) {
    active[i] = Part(alone[i]);
    if (active[i] >= kAlways) {
      always.push_back(i);
    } else if (active[i] > 0) {
      pausing.push_back(i);
    }
  }
  const auto moment = [&](auto works) {
    Moment made{always, {}};
    for (size_t n = 0; n < pausing.size(); ++n) {
      if (works(n)) made.who.push_back(pausing[n]);
    }
    made.rates = Rates(made.who);
    return made;
  };
  const bool exact = pausing.size() <= kExactMost;
  std::vector<Moment> moments;
  for (size_t m = 0; exact && m < size_t{1} << pausing.size(); ++m) {
    moments.push_back(moment([m](size_t n) { return (m >> n & 1) != 0; }));
  }
  std::vector<double> places;  // by moment, then by pod that pauses
  for (size_t m = 0; !exact && m < kMoments; ++m) {
    for (size_t n = 0; n < pausing.size(); ++n) places.push_back(Place(m, n));
  }
  std::vector<double> gets(count);
  for (int round = 0; round < kRoundsMost; ++round) {
    if (!exact) {
      moments.clear();
      for (size_t m = 0; m < kMoments; ++m) {
        moments.push_back(moment([&](size_t n) {
          // Each of them in one moment at least.
          return places[m * pausing.size() + n] < active[pausing[n]] || m == n % kMoments;
        }));
      }
    }
    std::vector<double> rate(count), weights(count);
    for (size_t m = 0; m < moments.size(); ++m) {
      double weight = 1;
      for (size_t n = 0; exact && n < pausing.size(); ++n) {
        weight *= (m >> n & 1) != 0 ? active[pausing[n]] : 1 - active[pausing[n]];
      }
      for (size_t n = 0; n < moments[m].who.size(); ++n) {
        rate[moments[m].who[n]] += weight * moments[m].rates[n];
        weights[moments[m].who[n]] += weight;
      }
    }
    double moved = 0;
    for (size_t i = 0; i < count; ++i) {
      if (active[i] == 0) continue;
      const double most = Part(alone[i]);
      const double mean = std::max(rate[i] / std::max(weights[i], 1e-12), 1e-9);
      gets[i] = 1 / (1 / mean + (1 - most) / most);
      if (most >= kAlways) continue;
      const double next = (active[i] + std::min(kAlways, gets[i] / mean)) / 2;
      moved = std::max(moved, std::abs(next - active[i]));
      active[i] = next;
    }
    if (moved < kClose) break;
  }
  return gets;
}

}  // namespace baton::teams
