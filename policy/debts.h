// What a pod that is removed from a queue has had before its time. Another that comes in its place
// may take that over: or a pod that is deleted and created again would have paid for nothing.
#ifndef BATON_POLICY_DEBTS_H_
#define BATON_POLICY_DEBTS_H_

#include <cstdint>

#include "base/time.h"

namespace baton::policy {

// In one queue, of its accounts. Whoever takes it over pays it back at the rate of its own request,
// as if it had slept since.
struct Debts {
  int64_t lag_ns = 0;     // at most 0; what the pod was owed is forgotten
  int64_t served_at = 0;  // what the queue had served then
  int64_t owed_ns = 0;    // of its request: the same (policy/guarantee.h)
  int64_t hold_ns = 0;    // of a long hold of its own this was left (policy/own_hold.h)
  int64_t passed_at = 0;
  Instant paid{};           // all that it had is paid for then (policy/deadlines.h)
  Instant limit_full_at{};  // until then a part of what its limit allows is used up

  // Something of it is left at `now`, as far as time alone tells.
  bool any(Instant now) const {
    return lag_ns < 0 || owed_ns < 0 || paid > now || limit_full_at > now;
  }
};

}  // namespace baton::policy

#endif  // BATON_POLICY_DEBTS_H_
