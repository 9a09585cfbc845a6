// Shares of one GPU: what is asked, and the fluid entitlement that follows from who is active.
//
// Integers throughout: a share is in millionths of a GPU, so decisions are the same to the bit on
// every machine. Pure; thread safe.
#ifndef BATON_POLICY_SHARE_H_
#define BATON_POLICY_SHARE_H_

#include <compare>
#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"

namespace baton::policy {

// So many millionths of a GPU; a trivially copyable `N`. Sums and differences must fit it.
template <std::unsigned_integral N>
class Millionths {
 public:
  constexpr Millionths() = default;
  explicit constexpr Millionths(std::integral auto count) : count_(static_cast<N>(count)) {}
  template <std::unsigned_integral M>
  requires(sizeof(M) < sizeof(N)) constexpr Millionths(Millionths<M> narrow)
      : Millionths(narrow.millionths()) {}

  constexpr N millionths() const { return count_; }

  friend constexpr auto operator<=>(Millionths, Millionths) = default;
  friend constexpr Millionths operator+(Millionths a, Millionths b) {
    return Millionths(a.count_ + b.count_);
  }
  friend constexpr Millionths operator-(Millionths a, Millionths b) {
    return Millionths(a.count_ - b.count_);
  }
  // By no wider number: the product of a time and a share is no share.
  template <std::integral M>
  friend constexpr Millionths operator*(Millionths a, M n) requires(sizeof(M) <= sizeof(N)) {
    return Millionths(a.count_ * static_cast<N>(n));
  }
  // Rounded down.
  template <std::integral M>
  friend constexpr Millionths operator/(Millionths a, M n) requires(sizeof(M) <= sizeof(N)) {
    return Millionths(a.count_ / static_cast<N>(n));
  }
  friend constexpr N operator/(Millionths a, Millionths b) { return a.count_ / b.count_; }
  constexpr Millionths& operator+=(Millionths b) { return *this = *this + b; }
  constexpr Millionths& operator-=(Millionths b) { return *this = *this - b; }

 private:
  N count_ = 0;
};

// Of one GPU: 30 % is Share(300'000). Range 0.1 % to 100 % where a user writes it.
using Share = Millionths<uint32_t>;
// Of many GPUs; up to 2^63.
using ShareSum = Millionths<uint64_t>;
inline constexpr uint32_t kMillion = 1'000'000;
inline constexpr Share kWhole{kMillion};
inline constexpr Share kShareMin{1'000};
inline constexpr Duration kLatencyMin = std::chrono::milliseconds(1);
inline constexpr Duration kLatencyMax = std::chrono::seconds(10);

// A share of 12.5 % as 12.5, as 0.125, and as "12.5".
constexpr double Percent(ShareSum share) { return static_cast<double>(share.millionths()) / 1e4; }
constexpr double Ratio(ShareSum share) { return static_cast<double>(share.millionths()) / 1e6; }
std::string PercentText(ShareSum share);
// "3.5", "0.125", "2.0": how many GPUs these are.
std::string GpusText(ShareSum share);
// For messages of tests: "12.5 %".
std::ostream& operator<<(std::ostream& out, ShareSum share);
// "30", "12.5%": 0.1 to 100 with up to four decimals. kInvalid: a sentence that names the text.
Result<Share> ParsePercent(std::string_view text);
// 0.125 GPUs, to the nearest millionth. Range 0 to 4 000, and 0 to 1e12.
Share ShareOf(double gpus);
ShareSum SharesOf(double gpus);
// The share of `amount`, rounded down; their product must fit 64 bits.
constexpr uint64_t PartOf(uint64_t amount, Share share) {
  return amount * share.millionths() / kMillion;
}
// share · by, rounded up; and of `share`, how much makes that times `by`, rounded down. by > 0.
constexpr Share Times(Share share, Share by) {
  return Share((uint64_t{share.millionths()} * by.millionths() + kMillion - 1) / kMillion);
}
constexpr ShareSum Over(Share share, Share by) {
  return ShareSum(uint64_t{share.millionths()} * kMillion / by.millionths());
}
// A multiple of `grain`, no less than `share`.
constexpr Share RoundedUp(Share share, Share grain) {
  return grain * ((share + grain - Share(1)) / grain);
}

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
  // Within its request the pod begins to hold so long after it began to wait (policy/deadlines.h);
  // 0: it has no such wish. kLatencyMin to kLatencyMax; with a request alone.
  Duration latency{0};

  // Means something only where the GPU is shared by the token.
  bool by_token_only() const { return priority == Priority::kIdle || latency != Duration(0); }

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
  Share fluid{};
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
// how much history matters (kMillion is once, 0 not at all). A team that used what it weighs keeps
// its weight, one that used nothing has 1 + k times it, and one that used (1 + k) / k of it gets
// nothing of what is left over until others have had theirs. All three in millionths, w and u at
// most kMillion and k at most 4 000 times that; the result is at most (1 + k) w.
uint32_t HistoryWeight(uint32_t w, uint32_t u, uint32_t k = kMillion);

}  // namespace baton::policy

#endif  // BATON_POLICY_SHARE_H_
