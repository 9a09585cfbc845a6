// Memory that graphs allocate: by a node of their own, or by cuMemAllocAsync in a stream that is
// captured. The node gets an address when it is made and memory when the graph is launched, which
// the device keeps for its graphs until it is trimmed. So a graph is charged in full before a
// launch that may need memory, and what the device then has for graphs tells what stays charged.
// Thread safe.
#ifndef BATON_HOOK_GRAPH_MEMORY_H_
#define BATON_HOOK_GRAPH_MEMORY_H_

#include <atomic>

#include "hook/cuda_types.h"

namespace baton::hook {

struct Gpu;

// How many executable graphs allocate memory.
extern std::atomic<uint32_t> g_allocating_graphs;

// After `graph` became `exec`; and around the end of `exec`, by `real`.
void GraphInstantiated(CUgraphExec exec, CUgraph graph);
CUresult DestroyExec(CUgraphExec exec, CUresult (*real)(CUgraphExec));

// Launches or uploads `exec` by `call`, with its memory charged; an error where it is over the cap.
// Only while there are graphs that allocate.
struct GraphCharge {
  Gpu* gpu = nullptr;  // null: nothing was charged
  uint64_t bytes = 0;
  CUresult error = CUDA_SUCCESS;
};
GraphCharge ChargeGraph(CUgraphExec exec, CUstream stream);
// Afterwards. `launched`: the driver has launched it.
void SettleGraph(CUgraphExec exec, const GraphCharge& charge, bool launched);

template <class Call>
CUresult WithGraphMemory(CUgraphExec exec, CUstream stream, bool is_launch, Call call) {
  if (__builtin_expect(g_allocating_graphs.load(std::memory_order_relaxed) == 0, 1)) return call();
  const GraphCharge charge = ChargeGraph(exec, stream);
  if (charge.error != CUDA_SUCCESS) return charge.error;
  const CUresult result = call();
  SettleGraph(exec, charge, is_launch && result == CUDA_SUCCESS);
  return result;
}

// Charges what the GPU's graphs have, no more and no less. PoolsLock() is held.
void SettleGraphs(Gpu* gpu);
// Gives back what they have and do not use. True where they had anything. PoolsLock() is held.
bool TrimGraphs(Gpu* gpu);

// In a child after fork.
void ForgetGraphs();

}  // namespace baton::hook

#endif  // BATON_HOOK_GRAPH_MEMORY_H_
