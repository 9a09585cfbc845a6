// Shares as tests write them.
#ifndef BATON_TESTS_SCHEDULER_SHARE_SPEC_H_
#define BATON_TESTS_SCHEDULER_SHARE_SPEC_H_

#include "policy/share.h"

namespace baton::scheduler {

// In percent of a GPU.
inline policy::ShareSpec Spec(double request, double limit = 100,
                              policy::Priority priority = policy::Priority::kNormal) {
  return policy::Validated({.request = policy::ShareOf(request / 100),
                            .limit = policy::ShareOf(limit / 100),
                            .priority = priority})
      .value();
}

}  // namespace baton::scheduler

#endif  // BATON_TESTS_SCHEDULER_SHARE_SPEC_H_
