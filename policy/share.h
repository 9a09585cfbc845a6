// Shares of one GPU: what is asked, and the fluid entitlement that follows from who is active.
//
// Integers throughout: a share is in millionths of a GPU, so decisions are the same to the bit on
// every machine. Pure; thread safe.
#ifndef BATON_POLICY_SHARE_H_
#define BATON_POLICY_SHARE_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"

namespace baton::policy {

// Millionths of a GPU: 30 % is 300 000. Range 1 000 (0.1 %) to 1 000 000 where a user writes it.
using Share = uint32_t;
inline constexpr Share kWhole = 1'000'000;
inline constexpr Share kShareMin = 1'000;

enum class Priority : uint8_t {
  kLow = 0,   // the default; paused while a high-priority pod runs its burst
  kHigh = 1,  // served before others, as long as it is not more than its burst ahead of its share
};

// What a pod asks of one GPU. request <= limit.
struct ShareSpec {
  Share request = kWhole;  // guaranteed while the pod has work
  Share limit = kWhole;    // never exceeded
  // Weight in what is left over once every request is met. By default the request itself.
  uint32_t slack_weight = 0;
  Priority priority = Priority::kLow;
};

// Checks ranges and request <= limit; fills in slack_weight when it is 0.
Result<ShareSpec> Validated(ShareSpec spec);

// One active pod in FluidShares: its spec going in, its entitlement coming out.
struct Entitlement {
  Share request;
  Share limit;
  uint32_t slack_weight;
  Share fluid = 0;
};

// What a perfectly fair, infinitely divisible GPU would give each of these pods, all of them
// active: its request (all requests scaled down in proportion where they exceed the whole), then
// what is left is water-filled by slack weight up to the limits. Weights that are all zero count as
// equal. The sum of `fluid` is min(1, Σ limit), to within rounding. O(n log n).
void FluidShares(std::span<Entitlement> pods);

}  // namespace baton::policy

#endif  // BATON_POLICY_SHARE_H_
