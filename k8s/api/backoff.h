// How long to wait before trying again: doubling, bounded, and jittered so that many who lost the
// same server do not come back together. Not thread safe.
#ifndef BATON_K8S_API_BACKOFF_H_
#define BATON_K8S_API_BACKOFF_H_

#include <algorithm>

#include "base/random.h"
#include "base/time.h"

namespace baton::k8s {

class Backoff {
 public:
  // 0 < min <= max.
  Backoff(Duration min, Duration max, uint64_t seed) : min_(min), max_(max), random_(seed) {}

  // Between half of the step and all of it.
  Duration Next() {
    const Duration step = next_;
    next_ = std::min(max_, next_ * 2);
    return Duration(random_.Between(Nanos(step) / 2, Nanos(step)));
  }
  void Reset() { next_ = min_; }

 private:
  const Duration min_;
  const Duration max_;
  Duration next_ = min_;
  Random random_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_API_BACKOFF_H_
