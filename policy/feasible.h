// Whether latencies on one GPU can be met together.
//
// A pod that waits within its request is to begin within its latency D. Its request r pays for a
// hold C (with the hand-off to it) in T = C / r, so it is a sporadic task of non-preemptive EDF
// (George, Rivierre, Spuri: Preemptive and non-preemptive real-time uniprocessor scheduling, 1996)
// whose jobs come at least T apart. In the worst case all come at once, just after somebody else
// has begun who keeps the GPU for B. A pod i that is to begin by t ≥ Dᵢ after that does so if
//
//   Σⱼ ⌊(t - Dⱼ) / Tⱼ + 1⌋ Cⱼ over Dⱼ ≤ t, less its own last Cᵢ, plus B  ≤  t
//
// for every deadline t = Dⱼ + n Tⱼ. Where holds are no longer than C, this is sufficient; where all
// C are the same, necessary as well.
//
// Pure; thread safe.
#ifndef BATON_POLICY_FEASIBLE_H_
#define BATON_POLICY_FEASIBLE_H_

#include <cstddef>
#include <optional>
#include <span>

#include "base/time.h"
#include "policy/share.h"

namespace baton::policy {

struct LatencyTask {
  Duration hold;     // C > 0
  Share rate;        // r > 0; those of all tasks sum to one GPU at most
  Duration latency;  // D > 0
};

// A deadline that may be missed, after all had begun to wait at once.
struct MissedDeadline {
  Duration at;      // t
  Duration begins;  // when the pod begins in the worst case; later than `at`
};

// The first deadline that `task` (its index) may miss; none: it always begins in time. `blocking`
// is B ≥ 0. Looks at the first 10 000 deadlines, of n > 10 tasks at 100 000 / n, which are all that
// matter unless the rates sum to about the whole GPU.
std::optional<MissedDeadline> FirstMissed(std::span<const LatencyTask> tasks, size_t task,
                                          Duration blocking);

}  // namespace baton::policy

#endif  // BATON_POLICY_FEASIBLE_H_
