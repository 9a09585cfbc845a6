// Shares as tests write them.
#ifndef BATON_TESTS_SCHEDULER_SHARE_SPEC_H_
#define BATON_TESTS_SCHEDULER_SHARE_SPEC_H_

#include "policy/share.h"

namespace baton::scheduler {

// In percent of a GPU.
inline policy::ShareSpec Spec(double request, double limit = 100,
                              policy::Priority priority = policy::Priority::kNormal) {
  return policy::Validated({.request = static_cast<policy::Share>(request * 10'000),
                            .limit = static_cast<policy::Share>(limit * 10'000),
                            .priority = priority})
      .value();
}

}  // namespace baton::scheduler

#endif  // BATON_TESTS_SCHEDULER_SHARE_SPEC_H_
