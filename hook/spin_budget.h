// How much processor time a thread may spend on looking at something without a pause. Pure: time is
// an argument. Not thread safe.
#ifndef BATON_HOOK_SPIN_BUDGET_H_
#define BATON_HOOK_SPIN_BUDGET_H_

#include "base/time.h"

namespace baton::hook {

class SpinBudget {
 public:
  // At most one part in kPart of any time, and kBurst more: 2 % of one processor.
  static constexpr int64_t kPart = 50;
  static constexpr Duration kBurst = std::chrono::milliseconds(1);

  // What may be spent now; zero or less: nothing.
  Duration Left(Instant now) {
    if (now > filled_at_) {
      const Duration earned = (now - filled_at_) / kPart;
      left_ = earned >= kBurst - left_ ? kBurst : left_ + earned;
      // Whole parts alone are counted as earned.
      filled_at_ = left_ == kBurst ? now : filled_at_ + earned * kPart;
    }
    return left_;
  }
  // So much was spent until `now`.
  void Spend(Instant now, Duration spent) {
    Left(now);
    left_ -= spent;
  }

 private:
  Duration left_ = kBurst;
  Instant filled_at_{};
};

}  // namespace baton::hook

#endif  // BATON_HOOK_SPIN_BUDGET_H_
