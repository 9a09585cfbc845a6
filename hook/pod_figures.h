// What the daemon knows of this process's pod on a GPU, and which processes are the pod's: for
// programs that ask NVML. They may never call cuInit, so the questions have a connection of their
// own, which is made at the first one. Thread safe.
#ifndef BATON_HOOK_POD_FIGURES_H_
#define BATON_HOOK_POD_FIGURES_H_

#include <stdint.h>

namespace baton::hook {

struct PodMemory {
  uint64_t cap = 0;   // bytes that the pod may have; 0: no cap
  uint64_t used = 0;  // bytes that its processes have been charged
};

// `uuid`: "GPU-...". Waits for the answer, but not long; where none comes, the last one counts.
// False: the GPU is not the pod's, or the daemon has never answered.
bool AskPodMemory(const char* uuid, PodMemory* memory);
// Whether the process began with this pod's ticket in its environment.
bool IsOfPod(uint32_t pid);

}  // namespace baton::hook

#endif  // BATON_HOOK_POD_FIGURES_H_
