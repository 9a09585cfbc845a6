// Allocations in graphs: addresses when the node is made, memory from the graph's first launch on,
// which its device keeps for graphs until it is trimmed.
#include <sys/mman.h>

#include <algorithm>

#include "sim/driver.h"
#include "sim/memory.h"

namespace baton::sim {
namespace {

struct Sum {
  size_t bytes = 0;
  int allocations = 0, frees = 0;
};

void AddUp(const Graph& graph, Sum* sum) {
  for (const auto& node : graph.nodes) {
    if (node->child != nullptr) AddUp(*node->child, sum);
    if (node->memory != nullptr) {
      sum->bytes += node->memory->bytes;
      ++sum->allocations;
    }
    if (node->frees != 0) ++sum->frees;
  }
}

Sum SumOf(const GraphExec& exec) {
  Sum sum;
  AddUp(*exec.graph, &sum);
  return sum;
}

CUresult GraphAndDeps(CUgraph handle, const CUgraphNode* deps, size_t count, Graph** graph,
                      std::vector<Node*>* nodes) {
  *graph = reinterpret_cast<Graph*>(handle);
  if (!IsLive(*graph) || (deps == nullptr && count != 0)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    nodes->push_back(reinterpret_cast<Node*>(deps[i]));
    if (!IsLive(nodes->back())) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace

GraphMemory::~GraphMemory() {
  TheDriver().memory.erase(at);
  munmap(AsPointer(at), bytes);
}

std::shared_ptr<GraphMemory> NewGraphMemory(Dev* dev, size_t bytes) {
  const size_t size = RoundUp(bytes, kPage);
  void* at = size < bytes ? nullptr : Map(size, false);
  if (at == nullptr) return nullptr;
  auto memory = std::make_shared<GraphMemory>();
  memory->at = reinterpret_cast<CUdeviceptr>(at);
  memory->bytes = size;
  memory->dev = dev;
  Allocation a;
  a.bytes = bytes;
  a.kind = Allocation::kGraph;
  a.dev = dev;
  a.id = TheDriver().next_id++;
  TheDriver().memory[memory->at] = a;
  return memory;
}

CUresult BackGraph(GraphExec* exec, Dev* dev) {
  if (exec->backed != nullptr) return CUDA_SUCCESS;
  const size_t bytes = SumOf(*exec).bytes;
  if (bytes == 0) return CUDA_SUCCESS;
  GraphPool& pool = dev->graphs;
  const uint64_t kept = pool.reserved - pool.used;
  const uint64_t more = bytes > kept ? bytes - kept : 0;
  if (!Charge(dev, more)) return CUDA_ERROR_OUT_OF_MEMORY;
  pool.reserved += more;
  pool.used += bytes;
  pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
  pool.used_high = std::max(pool.used_high, pool.used);
  pool.backed.insert(exec);
  exec->backed = dev;
  return CUDA_SUCCESS;
}

void UnbackGraph(GraphExec* exec) {
  if (exec->backed == nullptr) return;
  exec->backed->graphs.used -= SumOf(*exec).bytes;
  exec->backed->graphs.backed.erase(exec);
  exec->backed = nullptr;
}

SIM_API(cuGraphAddMemAllocNode, (CUgraphNode * out, CUgraph handle, const CUgraphNode* deps,
                                 size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* params)) {
  Lock lock(TheDriver().mutex);
  Graph* graph;
  std::vector<Node*> nodes;
  if (CUresult r = GraphAndDeps(handle, deps, count, &graph, &nodes)) return r;
  if (out == nullptr || params == nullptr || params->bytesize == 0 ||
      params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Dev* dev;
  if (CUresult r = GetDev(params->poolProps.location.id, &dev)) return r;
  auto memory = NewGraphMemory(dev, params->bytesize);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  Node* node = AddNode(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, Work{}, std::move(nodes));
  params->dptr = memory->at;
  node->memory = std::move(memory);
  *out = reinterpret_cast<CUgraphNode>(node);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphAddMemFreeNode, (CUgraphNode * out, CUgraph handle, const CUgraphNode* deps,
                                size_t count, CUdeviceptr pointer)) {
  Lock lock(TheDriver().mutex);
  Graph* graph;
  std::vector<Node*> nodes;
  if (CUresult r = GraphAndDeps(handle, deps, count, &graph, &nodes)) return r;
  if (out == nullptr || FindAllocation(pointer, 1) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Node* node = AddNode(graph, CU_GRAPH_NODE_TYPE_MEM_FREE, Work{}, std::move(nodes));
  node->frees = pointer;
  *out = reinterpret_cast<CUgraphNode>(node);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphMemAllocNodeGetParams, (CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS* params)) {
  Lock lock(TheDriver().mutex);
  auto* node = reinterpret_cast<Node*>(handle);
  if (!IsLive(node) || params == nullptr || node->memory == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *params = {};
  params->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params->poolProps.location.id = node->memory->dev->ordinal;
  params->bytesize = node->memory->bytes;
  params->dptr = node->memory->at;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphMemFreeNodeGetParams, (CUgraphNode handle, CUdeviceptr* pointer)) {
  Lock lock(TheDriver().mutex);
  auto* node = reinterpret_cast<Node*>(handle);
  if (!IsLive(node) || pointer == nullptr || node->frees == 0) return CUDA_ERROR_INVALID_VALUE;
  *pointer = node->frees;
  return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetGraphMemAttribute, (CUdevice device, int attribute, void* value)) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  if (value == nullptr || attribute < 0 || attribute > 3) return CUDA_ERROR_INVALID_VALUE;
  const GraphPool& pool = dev->graphs;
  const uint64_t values[] = {pool.used, pool.used_high, pool.reserved, pool.reserved_high};
  *static_cast<cuuint64_t*>(value) = values[attribute];
  return CUDA_SUCCESS;
}

// Of a graph that frees all it allocates, nothing is in use between its launches.
SIM_API(cuDeviceGraphMemTrim, (CUdevice device)) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  Refresh(lock, dev);
  const std::set<GraphExec*> backed = dev->graphs.backed;
  for (GraphExec* exec : backed) {
    const Sum sum = SumOf(*exec);
    if (sum.frees >= sum.allocations && (exec->last == nullptr || exec->last->done)) {
      UnbackGraph(exec);
    }
  }
  Uncharge(dev, dev->graphs.reserved - dev->graphs.used);
  dev->graphs.reserved = dev->graphs.used;
  return CUDA_SUCCESS;
}

}  // namespace baton::sim
