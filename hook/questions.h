// What a process asks the backend about memory, and the answers.
#ifndef BATON_HOOK_QUESTIONS_H_
#define BATON_HOOK_QUESTIONS_H_

#include <stdint.h>

#include "hook/gpu.h"

namespace baton::hook {

// Waits until the pod's cap on this GPU is known, as an allocation waits for its answer: without
// end in AwayMode::kWait, and in kOpen for kAnswerPatience after Want() at most. False: it is not,
// or the GPU is not the pod's. After Want().
bool AwaitCap(Gpu* gpu);
// Asks that this process be charged `total` bytes and waits for the answer; Gpu::memory.lock is
// held by the caller. False: over the pod's cap, or Refused().
bool AskMemory(Gpu* gpu, uint64_t total);
// Tells that it is charged `total` bytes, not more than before. `refused`: the program has asked
// for so many more in vain; then Gpu::memory.lock is held.
void TellMemory(Gpu* gpu, uint64_t total, uint64_t refused = 0);
// Asks what the pod has, where the last such question is no longer true by itself: other processes
// allocate and end. Waits a moment at most.
void AskPodUsed(Gpu* gpu);
// An answer has come. Of the client thread.
void OnMemoryReply(Gpu* gpu, const wire::MemoryReply& reply);

}  // namespace baton::hook

#endif  // BATON_HOOK_QUESTIONS_H_
