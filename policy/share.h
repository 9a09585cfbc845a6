// Shares of one GPU: what is asked, and the fluid entitlement that follows from who is active.
//
// Integers throughout: a share is in millionths of a GPU, so decisions are the same to the bit on
// every machine. Pure; thread safe.
#ifndef BATON_POLICY_SHARE_H_
#define BATON_POLICY_SHARE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace baton::policy {

// Millionths of a GPU: 30 % is 300 000. Range 1 000 (0.1 %) to 1 000 000 where a user writes it.
using Share = uint32_t;
inline constexpr Share kWhole = 1'000'000;
inline constexpr Share kShareMin = 1'000;

// 125 000 as 12.5, as 0.125, and as "12.5".
constexpr double Percent(Share share) { return share / 1e4; }
constexpr double Ratio(Share share) { return share / 1e6; }
std::string PercentText(Share share);

enum class Priority : uint8_t {
  kNormal = 0,  // the default
  kHigh = 1,    // served before others, as long as it is not more than its burst ahead of its share
  kIdle = 2,    // served while nobody with a request has work; outside the fair queue
};

// What a pod asks of one GPU. request <= limit.
struct ShareSpec {
  Share request = kWhole;  // guaranteed while the pod has work; 0 with Priority::kIdle alone
  Share limit = kWhole;    // never exceeded
  // Weight in what is left over once every request is met. By default the request itself.
  uint32_t slack_weight = 0;
  Priority priority = Priority::kNormal;
  // Whose pod it is; matters only where teams have weights. Small and dense.
  uint32_t team = 0;

  friend bool operator==(const ShareSpec&, const ShareSpec&) = default;
};

// Checks ranges and request <= limit; fills in slack_weight when it is 0.
Result<ShareSpec> Validated(ShareSpec spec);

// One active pod in FluidShares: its spec going in, its entitlement coming out.
struct Entitlement {
  Share request;
  Share limit;
  uint32_t slack_weight;
  uint32_t team = 0;
  Share fluid = 0;
};

// What a perfectly fair, infinitely divisible GPU would give each of these pods, all of them
// active: its request (all requests scaled down in proportion where they exceed the whole), then
// what is left, by weight up to the limits.
//
// `team_weights` is by team; a team that is not in it weighs nothing. What is left goes to the
// teams in proportion to their weights, each no more than its pods can take, and within a team to
// its pods by their slack weights. Without team weights it goes to the pods by their slack weights
// alone. Who weighs nothing gets what those who weigh something cannot take, in equal parts.
//
// The sum of `fluid` is min(1, Σ limit), to within rounding. O(n log n).
void FluidShares(std::span<Entitlement> pods, std::span<const uint32_t> team_weights = {});

// The weight of a team whose history counts: max(0, w + k (w - u)), where w is its part of all
// teams' weights, u its part of all teams' usage (decayed by age, if the caller wants that), and k
// how much history matters (kWhole is once, 0 not at all). A team that used what it weighs keeps
// its weight, one that used nothing has 1 + k times it, and one that used (1 + k) / k of it gets
// nothing of what is left over until others have had theirs. All three in millionths, w and u at
// most kWhole and k at most 4 000 times that; the result is at most (1 + k) w.
uint32_t HistoryWeight(Share w, Share u, uint32_t k = kWhole);

}  // namespace baton::policy

#endif  // BATON_POLICY_SHARE_H_
