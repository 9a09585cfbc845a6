// Graphs: their making, as far as they allocate memory, and their end. Their launch is in
// entries_launch.cc.
#include "hook/entries.h"
#include "hook/graph_memory.h"
#include "hook/memory.h"

namespace baton::hook {
namespace {

template <class Call>
CUresult Instantiate(const CUgraphExec* exec, CUgraph graph, Call call) {
  const CUresult result = call();
  if (result == CUDA_SUCCESS) GraphInstantiated(*exec, graph);
  return result;
}

}  // namespace

#define BATON_INSTANTIATE(name)                                                                  \
  BATON_API(name,                                                                                \
            (CUgraphExec * exec, CUgraph graph, CUgraphNode * error, char* log, size_t bytes)) { \
    BATON_REAL(name);                                                                            \
    return Instantiate(exec, graph, [&] { return real(exec, graph, error, log, bytes); });       \
  }
BATON_INSTANTIATE(cuGraphInstantiate)
BATON_INSTANTIATE(cuGraphInstantiate_v2)

BATON_API(cuGraphInstantiateWithFlags,
          (CUgraphExec * exec, CUgraph graph, unsigned long long flags)) {
  BATON_REAL(cuGraphInstantiateWithFlags);
  return Instantiate(exec, graph, [&] { return real(exec, graph, flags); });
}

// `params`: CUDA_GRAPH_INSTANTIATE_PARAMS*, which older headers lack.
#define BATON_INSTANTIATE_PARAMS(name)                                          \
  BATON_API(name, (CUgraphExec * exec, CUgraph graph, void* params)) {          \
    BATON_REAL(name);                                                           \
    return Instantiate(exec, graph, [&] { return real(exec, graph, params); }); \
  }
BATON_INSTANTIATE_PARAMS(cuGraphInstantiateWithParams)
BATON_INSTANTIATE_PARAMS(cuGraphInstantiateWithParams_ptsz)

BATON_API(cuGraphExecDestroy, (CUgraphExec exec)) {
  BATON_REAL(cuGraphExecDestroy);
  return DestroyExec(exec, real);
}

BATON_API(cuGraphUpload, (CUgraphExec exec, CUstream stream)) {
  BATON_REAL(cuGraphUpload);
  return WithGraphMemory(exec, Legacy(stream), false, [&] { return real(exec, stream); });
}
BATON_API(cuGraphUpload_ptsz, (CUgraphExec exec, CUstream stream)) {
  BATON_REAL(cuGraphUpload_ptsz);
  return WithGraphMemory(exec, PerThread(stream), false, [&] { return real(exec, stream); });
}

BATON_API(cuDeviceGraphMemTrim, (CUdevice device)) {
  BATON_REAL(cuDeviceGraphMemTrim);
  Gpu* gpu = Managed() ? MemoryGpuOf(device) : nullptr;
  if (gpu == nullptr) return real(device);
  Guard guard(PoolsLock(gpu));
  TrimGraphs(gpu);
  return real(device);
}

}  // namespace baton::hook
