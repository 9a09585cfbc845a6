// How long the clients of a pod may keep a GPU from others by claims to hold it that nobody can
// check. Such a claim may be true: after an outage, of a daemon that was started anew. So it is
// waited for; but all claims of a pod together get a hundredth of the time, and `most` once.
#ifndef BATON_SCHEDULER_CLAIM_BUDGET_H_
#define BATON_SCHEDULER_CLAIM_BUDGET_H_

#include <algorithm>

#include "base/time.h"

namespace baton::scheduler {

// Pure; not thread safe.
class ClaimBudget {
 public:
  ClaimBudget() = default;
  ClaimBudget(Duration most, Instant now) : most_(most), left_(most), at_(now) {}

  // What is left at `now` (never before an earlier call's); 0: nothing is waited for. Less than a
  // drain takes is saved up: a claim that is believed for a moment would only disturb.
  Duration Left(Instant now) {
    left_ = std::min(left_ + (now - at_) / 100, most_);
    at_ = now;
    return left_ < std::min(kLeast, most_) ? Duration(0) : left_;
  }
  // A claim was waited for so long. It may have been longer than what was left.
  void Spend(Duration waited) { left_ -= waited; }

 private:
  static constexpr Duration kLeast = std::chrono::milliseconds(10);

  Duration most_{0};
  Duration left_{0};  // as of at_
  Instant at_{};
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_CLAIM_BUDGET_H_
