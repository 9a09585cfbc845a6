#include "hook/graph_memory.h"

#include <stdlib.h>

#include "hook/allocation.h"
#include "hook/captures.h"
#include "hook/gpu.h"

namespace baton::hook {
namespace {

struct Exec {
  CUgraphExec handle;
  Gpu* gpu;
  uint64_t bytes;   // of all its allocations
  uint64_t backed;  // Graphs::trims when it was launched, plus 1: it has its memory since; 0: never
  Exec* next;
};

// What a GPU's graphs are charged.
struct Graphs {
  uint64_t charged = 0;
  uint64_t asked = 0;  // the part of it for launches under way
  uint64_t trims = 0;
};

constexpr size_t kBuckets = 1024;
Exec* g_execs[kBuckets];
Graphs g_graphs[kGpusMax];
Lock g_lock;  // never held over a call of the driver

Exec*& BucketOf(CUgraphExec exec) {
  return g_execs[(reinterpret_cast<uintptr_t>(exec) * 0x9e3779b97f4a7c15u) >> 54];
}

// g_lock is held.
Exec* Find(CUgraphExec exec) {
  Exec* e = BucketOf(exec);
  while (e != nullptr && e->handle != exec) e = e->next;
  return e;
}

// Adds up the allocations of a graph and of the graphs in it. `*device`: of the first.
uint64_t BytesOf(CUgraph graph, int depth, CUdevice* device) {
  constexpr int kDepthMax = 16;
  size_t count = 0;
  if (depth > kDepthMax || Drv<Fn::cuGraphGetNodes>(graph, nullptr, &count) != CUDA_SUCCESS) {
    return 0;
  }
  auto* nodes = static_cast<CUgraphNode*>(calloc(count + 1, sizeof(CUgraphNode)));
  if (nodes == nullptr || Drv<Fn::cuGraphGetNodes>(graph, nodes, &count) != CUDA_SUCCESS) count = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (Drv<Fn::cuGraphNodeGetType>(nodes[i], &type) != CUDA_SUCCESS) continue;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
      CUDA_MEM_ALLOC_NODE_PARAMS params = {};
      if (Drv<Fn::cuGraphMemAllocNodeGetParams>(nodes[i], &params) != CUDA_SUCCESS) continue;
      if (*device < 0) *device = params.poolProps.location.id;
      bytes += params.bytesize;
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph child = nullptr;
      if (Drv<Fn::cuGraphChildGraphNodeGetGraph>(nodes[i], &child) != CUDA_SUCCESS) continue;
      bytes += BytesOf(child, depth + 1, device);
    }
  }
  free(nodes);
  return bytes;
}

bool Reserved(const Gpu* gpu, uint64_t* bytes) {
  cuuint64_t value = 0;
  if (Drv<Fn::cuDeviceGetGraphMemAttribute>(gpu->device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                                            static_cast<void*>(&value)) != CUDA_SUCCESS) {
    return false;
  }
  *bytes = value;
  return true;
}

}  // namespace

std::atomic<uint32_t> g_allocating_graphs{0};

void GraphInstantiated(CUgraphExec exec, CUgraph graph) {
  if (!Managed()) return;
  CUdevice device = -1;
  const uint64_t bytes = BytesOf(graph, 0, &device);
  Gpu* gpu = bytes == 0 ? nullptr : MemoryGpuOf(device);
  if (gpu == nullptr) return;
  auto* e = static_cast<Exec*>(malloc(sizeof(Exec)));
  if (e == nullptr) return;
  Guard guard(g_lock);
  Exec*& bucket = BucketOf(exec);
  *e = {exec, gpu, bytes, 0, bucket};
  bucket = e;
  g_allocating_graphs.fetch_add(1);
}

CUresult DestroyExec(CUgraphExec exec, CUresult (*real)(CUgraphExec)) {
  Exec* gone = nullptr;
  if (g_allocating_graphs.load() > 0) {
    // Before the driver may give the handle out again.
    Guard guard(g_lock);
    Exec** at = &BucketOf(exec);
    while (*at != nullptr && (*at)->handle != exec) at = &(*at)->next;
    gone = *at;
    if (gone != nullptr) *at = gone->next;
  }
  const CUresult result = real(exec);
  if (gone == nullptr) return result;
  if (result != CUDA_SUCCESS) {
    Guard guard(g_lock);
    Exec*& bucket = BucketOf(exec);
    gone->next = bucket;
    bucket = gone;
    return result;
  }
  {
    Guard guard(PoolsLock(gone->gpu));
    SettleGraphs(gone->gpu);
  }
  g_allocating_graphs.fetch_sub(1);
  free(gone);
  return result;
}

GraphCharge ChargeGraph(CUgraphExec exec, CUstream stream) {
  if (g_captures.load(std::memory_order_acquire) > 0 && IsCapturing(stream)) return {};
  GraphCharge charge;
  {
    Guard guard(g_lock);
    const Exec* e = Find(exec);
    if (e == nullptr || e->backed == g_graphs[e->gpu->index].trims + 1) return {};
    charge = {e->gpu, e->bytes, CUDA_SUCCESS};
  }
  // In full, though the device may have something left for it: two launches must not count on that.
  if (!Charge(charge.gpu, charge.bytes)) {
    charge.error = NotCharged(charge.gpu, charge.bytes);
    return charge;
  }
  Guard guard(g_lock);
  Graphs& graphs = g_graphs[charge.gpu->index];
  graphs.charged += charge.bytes;
  graphs.asked += charge.bytes;
  return charge;
}

void SettleGraph(CUgraphExec exec, const GraphCharge& charge, bool launched) {
  if (charge.gpu == nullptr) return;
  Guard pools(PoolsLock(charge.gpu));
  {
    Guard guard(g_lock);
    Graphs& graphs = g_graphs[charge.gpu->index];
    graphs.asked -= charge.bytes;
    Exec* e = Find(exec);
    if (launched && e != nullptr) e->backed = graphs.trims + 1;
  }
  SettleGraphs(charge.gpu);
}

void SettleGraphs(Gpu* gpu) {
  uint64_t reserved = 0;
  if (!Reserved(gpu, &reserved)) return;
  uint64_t credit = 0, more = 0;
  {
    Guard guard(g_lock);
    Graphs& graphs = g_graphs[gpu->index];
    const uint64_t due = reserved + graphs.asked;
    credit = graphs.charged > due ? graphs.charged - due : 0;
    more = graphs.charged < due ? due - graphs.charged : 0;
    graphs.charged = due;
  }
  Credit(gpu, credit);
  ChargeAnyway(gpu, more);
}

bool TrimGraphs(Gpu* gpu) {
  uint64_t charged = 0;
  {
    Guard guard(g_lock);
    Graphs& graphs = g_graphs[gpu->index];
    charged = graphs.charged;
    // From here on a launch may have to get its memory anew.
    if (charged > 0) ++graphs.trims;
  }
  auto* trim = RealAs<CUresult(CUdevice)>(Fn::cuDeviceGraphMemTrim);
  if (charged == 0 || trim == nullptr) return false;
  trim(gpu->device);
  SettleGraphs(gpu);
  return true;
}

void ForgetGraphs() {
  g_lock.Reset();
  g_allocating_graphs.store(0);
  for (Exec*& bucket : g_execs) bucket = nullptr;
  for (Graphs& graphs : g_graphs) graphs = {};
}

}  // namespace baton::hook
