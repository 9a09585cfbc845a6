// The hook's connection to the backend: one thread per process, one socket, all its GPUs.
#ifndef BATON_HOOK_CLIENT_H_
#define BATON_HOOK_CLIENT_H_

#include <stdint.h>

#include "hook/gpu.h"

namespace baton::hook {

// Asks for this GPU to be attached. Cheap when it is.
void Want(Gpu* gpu);
// Waits until the pod's cap on this GPU is known, as an allocation waits for its answer: without
// end in AwayMode::kWait, and in kOpen for kAnswerPatience after Want() at most. False: it is not,
// or the GPU is not the pod's. After Want().
bool AwaitCap(Gpu* gpu);
// Waits until the gate has been seen open. Tells the backend that this process waits. False: it is
// closed, and the process is Refused().
bool Park(Gpu* gpu);
// The backend refuses this process's ticket, and has for so long that nobody waits for it any more:
// what would wait fails with CUDA_ERROR_NOT_PERMITTED instead. Never in AwayMode::kOpen.
bool Refused();
// After a launch while Gpu::single: closes the gate.
void Launched(Gpu* gpu);

// Asks that this process be charged `total` bytes and waits for the answer; Gpu::memory.lock is
// held by the caller. False: over the pod's cap, or Refused().
bool AskMemory(Gpu* gpu, uint64_t total);
// Tells that it is charged `total` bytes, not more than before.
void TellMemory(Gpu* gpu, uint64_t total);

}  // namespace baton::hook

#endif  // BATON_HOOK_CLIENT_H_
