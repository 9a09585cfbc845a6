// Whether the pods of a GPU can have the latencies that they ask for (policy/feasible.h): by what
// they ask for, before there is a pod, and by what was measured since.
//
// Not thread safe: of the event loop.
#ifndef BATON_BACKEND_LATENCY_H_
#define BATON_BACKEND_LATENCY_H_

#include <span>
#include <string>
#include <vector>

#include "backend/gpus.h"
#include "backend/pods.h"
#include "node/event_log.h"

namespace baton::backend {

// Whether `pod`, as it is to be, can be on the GPU: kExhausted where its latency cannot be met, or
// another pod's could not any more, even with the shortest tokens and hand-offs.
Result<void> CheckLatency(const Gpu& gpu, const Pods& pods, const Pod& pod);
// Uuids of GPUs that are not for `pod` by CheckLatency(), of those that it may come to: the ones
// that it names, or all of `gpus`. kExhausted: there is no other.
Result<std::vector<std::string>> WithoutLatency(const std::vector<Gpu*>& gpus, const Pods& pods,
                                                const Pod& pod);

// Why a pod may miss its latency on a GPU by what was measured there.
struct LatencyNote {
  std::string text;  // a sentence, without a full stop; empty: nothing says that it will
  PodId cause;       // whose kernels they are; 0: what the pods with latencies hold together
};
// `status`: of the GPU's pods, as its scheduler says.
LatencyNote NoteOfLatency(const Gpu& gpu, const Pods& pods, const Pod& pod,
                          std::span<const scheduler::PodStatus> status);
// A pod of `status`, with a latency: how it was met, and its notes.
std::vector<std::string> LatencySentences(Gpu& gpu, const Pods& pods, const Pod& pod, Instant now);
// Says of the GPU's next pod why it may miss its latency, once for each cause. One at a time, so
// that it costs little however many there are.
void WarnOfLatencies(Gpu& gpu, const Pods& pods, Instant now, node::EventLog& log);

}  // namespace baton::backend

#endif  // BATON_BACKEND_LATENCY_H_
