// What owners' deleted pods have had before their time, on one GPU. A new pod of the same owner
// takes that of one of them over, the largest first: an owner who deletes pods and creates others
// gains nothing by it, and one whose pods come and go does not pay for all of them with one.
#ifndef BATON_SCHEDULER_LEFT_DEBTS_H_
#define BATON_SCHEDULER_LEFT_DEBTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "policy/debts.h"

namespace baton::scheduler {

// Pure; not thread safe.
class LeftDebts {
 public:
  // Of a pod in the queue of those with requests, and in that of those of idle priority.
  struct Both {
    policy::Debts of_requests;
    policy::Debts of_idle;
  };
  // More are not kept: the least is forgotten.
  static constexpr size_t kMost = 256;

  // A pod of `owner` is deleted. 0: of nobody known, so it is forgotten.
  void Leave(uint64_t owner, const Both& debts, Instant now);
  // What a new pod of `owner` begins with; nothing, where nobody left anything.
  Both Take(uint64_t owner);
  size_t size() const { return left_.size(); }

 private:
  struct Left {
    uint64_t owner = 0;
    Both debts;
    int64_t size() const { return -(debts.of_requests.lag_ns + debts.of_idle.lag_ns); }
  };
  std::vector<Left> left_;  // in the order in which they were left
};

}  // namespace baton::scheduler

#endif  // BATON_SCHEDULER_LEFT_DEBTS_H_
