// Integer arithmetic of times and shares: products that exceed 64 bits, and divisions that keep
// their remainder. Pure.
#ifndef BATON_POLICY_RATIONAL_H_
#define BATON_POLICY_RATIONAL_H_

#include <algorithm>
#include <cstdint>

#include "policy/share.h"

namespace baton::policy {

// Results stay within ± this, so that sums of a few of them stay within 64 bits. As nanoseconds of
// virtual time it is 36 years: a debt that would take the fluid GPU that long to pay back is as
// good as one that takes longer.
inline constexpr int64_t kRationalMost = INT64_C(1) << 60;

// (a · b + rest) / c, rounded towards zero and within ±kRationalMost; leaves the remainder in
// `rest`. c > 0. The sum may exceed 64 bits, but seldom does, and division is what a decision's
// arithmetic costs.
inline int64_t MulDiv(int64_t a, int64_t b, int64_t c, int64_t& rest) {
  int64_t sum;
  if (!__builtin_mul_overflow(a, b, &sum) && !__builtin_add_overflow(sum, rest, &sum)) {
    rest = sum % c;
    return std::clamp(sum / c, -kRationalMost, kRationalMost);
  }
  __extension__ typedef __int128 Wide;
  const Wide wide = static_cast<Wide>(a) * b + rest;
  rest = static_cast<int64_t>(wide % c);
  return static_cast<int64_t>(std::clamp<Wide>(wide / c, -kRationalMost, kRationalMost));
}

inline int64_t MulDiv(int64_t a, int64_t b, int64_t c) {
  int64_t rest = 0;
  return MulDiv(a, b, c, rest);
}

inline int64_t Signed(ShareSum share) { return static_cast<int64_t>(share.millionths()); }

// What `rate` GPUs serve in `ns` nanoseconds, and how long they take to serve so many.
inline int64_t ServedIn(int64_t ns, ShareSum rate) { return MulDiv(Signed(rate), ns, kMillion); }
inline int64_t TimeToServe(int64_t ns, ShareSum rate) { return MulDiv(ns, kMillion, Signed(rate)); }
inline int64_t TimeToServe(int64_t ns, ShareSum rate, int64_t& rest) {
  return MulDiv(ns, kMillion, Signed(rate), rest);
}
// A request where all of them sum to `requested`: in proportion where that is more than one GPU.
inline Share ScaledDown(Share request, ShareSum requested) {
  if (requested <= kWhole) return request;
  return Share(std::max<int64_t>(1, MulDiv(request.millionths(), kMillion, Signed(requested))));
}

}  // namespace baton::policy

#endif  // BATON_POLICY_RATIONAL_H_
