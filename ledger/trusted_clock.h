// Whether the wall clock may be believed: buckets that are dropped are gone for good, and a clock
// that is wrong for a minute (a machine without a battery, an operator's slip) must drop none.
// No clock of its own, no I/O. Not thread safe.
#ifndef BATON_LEDGER_TRUSTED_CLOCK_H_
#define BATON_LEDGER_TRUSTED_CLOCK_H_

#include "base/time.h"
#include "ledger/ledger.h"

namespace baton::ledger {

class TrustedClock {
 public:
  // How long it must have gone without a jump, and what counts as one.
  static constexpr Duration kSteady = std::chrono::hours(1);
  static constexpr Duration kJump = std::chrono::minutes(5);

  explicit TrustedClock(Duration steady = kSteady) : steady_(steady) {}

  // What both clocks say at one moment. Whether the wall clock has agreed with the other one at
  // every call for `steady`.
  bool Sees(WallTime wall, Instant now) {
    const Duration offset = wall.time_since_epoch() - now.time_since_epoch();
    const Duration jump = offset > offset_ ? offset - offset_ : offset_ - offset;
    if (since_ == kNever || jump > kJump) {
      offset_ = offset;
      since_ = now;
    }
    return now - since_ >= steady_;
  }

 private:
  Duration steady_;
  Duration offset_{0};
  Instant since_ = kNever;  // of these
};

}  // namespace baton::ledger

#endif  // BATON_LEDGER_TRUSTED_CLOCK_H_
