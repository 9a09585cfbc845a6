// The token bucket that keeps a pod to its limit: it fills at the rate of the limit, up to a window
// of it, and held time drains it. Over any time t the pod then holds at most limit · (t + window).
// Pure; not thread safe.
#ifndef BATON_POLICY_LIMIT_BUCKET_H_
#define BATON_POLICY_LIMIT_BUCKET_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/time.h"
#include "policy/rational.h"
#include "policy/share.h"

namespace baton::policy {

class LimitBucket {
 public:
  // What the bucket is filled by and up to. A limit of the whole is none: it is always full.
  struct Rate {
    Share limit = kWhole;
    Duration window{0};
    // In nanoseconds of held time; at least 1.
    int64_t Size() const {
      if (limit >= kWhole) return std::numeric_limits<int64_t>::max() / 4;
      return std::max<int64_t>(1, ServedIn(Nanos(window), limit));
    }
    // How long `ns` of held time take to come in, rounded up.
    Duration TimeFor(int64_t ns) const { return Duration(TimeToServe(ns, limit) + 1); }
  };

  // Empty of time; Fill() before use.
  LimitBucket() = default;

  // `full_at`: when it is full, as FullAt() said; if not after `now`, it is now.
  void Fill(const Rate& rate, Instant now, Instant full_at = {}) {
    level_ns_ = rate.Size();
    at_ = now;
    if (full_at > now && rate.limit < kWhole) {
      level_ns_ -= ServedIn(Nanos(full_at - now), rate.limit);
    }
  }
  // When it will be full if nothing is held until then, rounded up; an instant that has passed
  // where it is full.
  Instant FullAt(const Rate& rate) const {
    const int64_t missing = rate.limit >= kWhole ? 0 : rate.Size() - level_ns_;
    return missing > 0 ? at_ + rate.TimeFor(missing) : at_;
  }
  // When it has `ns` again, if nothing is held until then, rounded up; an instant that has passed
  // where it has.
  Instant HasAt(const Rate& rate, int64_t ns) const {
    return rate.limit >= kWhole || level_ns_ >= ns ? at_ : at_ + rate.TimeFor(ns - level_ns_);
  }
  // Nanoseconds of held time that the limit allows from now.
  int64_t LevelAt(const Rate& rate, Instant now) const {
    const int64_t size = rate.Size();
    if (rate.limit >= kWhole) return size;
    return std::min(size, level_ns_ + ServedIn(Nanos(now - at_), rate.limit));
  }
  // The rate changes after `now`: until here it was this one.
  void Settle(const Rate& rate, Instant now) {
    level_ns_ = LevelAt(rate, now);
    at_ = now;
  }
  // The pod held for `held` until now; negative: it gets back what it was charged too much. The
  // bucket filled up until the hold began, and drained and filled at once while it lasted.
  void Charge(const Rate& rate, Duration held, Instant now) {
    if (rate.limit >= kWhole) return Fill(rate, now);
    Settle(rate, std::max(at_, now - std::max(held, Duration(0))));
    level_ns_ -= Nanos(held);
    Settle(rate, now);
  }

 private:
  int64_t level_ns_ = 0;  // as of at_
  Instant at_{};
};

}  // namespace baton::policy

#endif  // BATON_POLICY_LIMIT_BUCKET_H_
