// A single hold of a pod's own that was longer than anybody's of late, and what is left to be paid
// for it at the rate of the pod's request. Long kernels are charged as they go on, so nobody
// foresees them; what the others hold of late says nothing about them (policy/guarantee.h).
#ifndef BATON_POLICY_OWN_HOLD_H_
#define BATON_POLICY_OWN_HOLD_H_

#include <algorithm>
#include <cstdint>

#include "policy/rational.h"
#include "policy/share.h"

namespace baton::policy {

// In nanoseconds of served time. Pure; not thread safe.
class OwnHold {
 public:
  // The pod paid at this rate until now.
  void Settle(int64_t served_ns, Share rate) {
    if (left_ns_ != 0) left_ns_ -= ServedIn(served_ns - at_, rate);
    at_ = served_ns;
  }
  // It has held for `hold_ns` (0: not for long): what is left of that, or of one before.
  int64_t After(int64_t hold_ns, int64_t served_ns, Share rate) {
    Settle(served_ns, rate);
    if (hold_ns > 0) left_ns_ = std::max(left_ns_, hold_ns);
    return left_ns_;
  }

 private:
  int64_t left_ns_ = 0;  // at most 0: nothing
  int64_t at_ = 0;       // as of this much served
};

}  // namespace baton::policy

#endif  // BATON_POLICY_OWN_HOLD_H_
