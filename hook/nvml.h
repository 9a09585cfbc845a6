// NVIDIA's management library as a pod's programs see it: of the pod's GPUs its part of memory, its
// processes and its use. Functions of these names are replaced; all others, and GPUs that are not
// the pod's, are as NVML has them.
#ifndef BATON_HOOK_NVML_H_
#define BATON_HOOK_NVML_H_

// X(name): in the order of the public reference.
#define BATON_NVML_REPLACED(X)                \
  X(nvmlDeviceGetMemoryInfo)                  \
  X(nvmlDeviceGetMemoryInfo_v2)               \
  X(nvmlDeviceGetUtilizationRates)            \
  X(nvmlDeviceGetProcessUtilization)          \
  X(nvmlDeviceGetComputeRunningProcesses)     \
  X(nvmlDeviceGetComputeRunningProcesses_v2)  \
  X(nvmlDeviceGetComputeRunningProcesses_v3)  \
  X(nvmlDeviceGetGraphicsRunningProcesses)    \
  X(nvmlDeviceGetGraphicsRunningProcesses_v2) \
  X(nvmlDeviceGetGraphicsRunningProcesses_v3)

namespace baton::hook {

// What replaces the function of that name; null: nothing does.
void* NvmlWrapper(const char* name);

}  // namespace baton::hook

#endif  // BATON_HOOK_NVML_H_
