// cuGraphAddNode, which adds nodes of every kind, and conditional nodes, which only it adds.
//
// The condition's value is what its handle says at each launch: nothing here computes another one.
// How often the body of a loop runs is for the same reason what BATON_SIM_WHILE says.
#include <stdlib.h>
#include <string.h>

#include "sim/driver.h"

// By the names that they are exported under. The parameters of the later generations begin as those
// of the first do.
extern "C" {
CUresult AddKernelNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                       const void*) __asm__("cuGraphAddKernelNode_v2");
CUresult AddMemsetNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                       const CUDA_MEMSET_NODE_PARAMS*, CUcontext) __asm__("cuGraphAddMemsetNode");
CUresult AddMemcpyNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const CUDA_MEMCPY3D*,
                       CUcontext) __asm__("cuGraphAddMemcpyNode");
CUresult AddHostNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                     const CUDA_HOST_NODE_PARAMS*) __asm__("cuGraphAddHostNode");
CUresult AddChildNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                      CUgraph) __asm__("cuGraphAddChildGraphNode");
CUresult AddEmptyNode(CUgraphNode*, CUgraph, const CUgraphNode*,
                      size_t) __asm__("cuGraphAddEmptyNode");
CUresult AddWaitNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                     CUevent) __asm__("cuGraphAddEventWaitNode");
CUresult AddRecordNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                       CUevent) __asm__("cuGraphAddEventRecordNode");
CUresult AddAllocNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                      CUDA_MEM_ALLOC_NODE_PARAMS*) __asm__("cuGraphAddMemAllocNode");
CUresult AddFreeNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                     CUdeviceptr) __asm__("cuGraphAddMemFreeNode");
}

namespace baton::sim {
namespace {

// As newer headers declare them: CUgraphNodeParams and, in it, CUDA_CONDITIONAL_NODE_PARAMS.
constexpr int kConditional = 13;
enum ConditionType { kIf = 0, kWhile = 1, kSwitch = 2 };
struct ConditionalParams {
  uint64_t handle;
  int type;
  unsigned int size;
  CUgraph* bodies;
  CUcontext context;
};
struct CopyParams {
  int flags, reserved;
  CUcontext context;
  CUDA_MEMCPY3D copy;
};
struct NodeParams {
  int type;
  int reserved0[3];
  union {
    long long reserved1[29];
    CUDA_MEMSET_NODE_PARAMS set;
    CopyParams copy;
    CUDA_HOST_NODE_PARAMS host;
    CUgraph child;
    CUevent event;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    CUdeviceptr freed;
    ConditionalParams conditional;
  };
};

struct Condition {
  Graph* graph;
  unsigned int value;
};
// By handle. Guarded by the driver's mutex; a graph's stay when it goes, and are then nobody's.
std::map<uint64_t, Condition>& Conditions() {
  static std::map<uint64_t, Condition> conditions;
  return conditions;
}

CUresult AddConditional(CUgraphNode* out, CUgraph handle, const CUgraphNode* deps, size_t count,
                        ConditionalParams& p) {
  Lock lock(TheDriver().mutex);
  auto* graph = reinterpret_cast<Graph*>(handle);
  if (out == nullptr || !IsLive(graph) || (deps == nullptr && count != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<Node*> nodes;
  for (size_t i = 0; i < count; ++i) {
    nodes.push_back(reinterpret_cast<Node*>(deps[i]));
    if (!IsLive(nodes.back()) || nodes.back()->graph != graph) return CUDA_ERROR_INVALID_VALUE;
  }
  const auto condition = Conditions().find(p.handle);
  const unsigned int most = p.type == kIf ? 2 : p.type == kWhile ? 1 : 1 << 16;
  if (condition == Conditions().end() || condition->second.graph != graph || p.type < kIf ||
      p.type > kSwitch || p.size == 0 || p.size > most) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Node* node = AddNode(graph, static_cast<CUgraphNodeType>(kConditional), Work{}, std::move(nodes));
  node->condition_type = p.type;
  node->condition = p.handle;
  for (unsigned int i = 0; i < p.size; ++i) node->bodies.push_back(NewGraph());
  // The driver's own array, which lives as long as the node.
  p.bodies = reinterpret_cast<CUgraph*>(node->bodies.data());
  *out = reinterpret_cast<CUgraphNode>(node);
  return CUDA_SUCCESS;
}

CUresult Add(CUgraphNode* out, CUgraph graph, const CUgraphNode* deps, size_t n, NodeParams* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // A context that is not named is the current one.
  CUcontext context = nullptr;
  {
    Lock lock(TheDriver().mutex);
    Ctx* current = nullptr;
    if (CurrentContext(&current) == CUDA_SUCCESS) context = reinterpret_cast<CUcontext>(current);
  }
  switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return AddKernelNode(out, graph, deps, n, &p->reserved1);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return AddMemsetNode(out, graph, deps, n, &p->set, context);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return AddMemcpyNode(out, graph, deps, n, &p->copy.copy,
                           p->copy.context != nullptr ? p->copy.context : context);
    case CU_GRAPH_NODE_TYPE_HOST:
      return AddHostNode(out, graph, deps, n, &p->host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return AddChildNode(out, graph, deps, n, p->child);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return AddEmptyNode(out, graph, deps, n);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return AddWaitNode(out, graph, deps, n, p->event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return AddRecordNode(out, graph, deps, n, p->event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return AddAllocNode(out, graph, deps, n, &p->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return AddFreeNode(out, graph, deps, n, p->freed);
    case kConditional:
      return AddConditional(out, graph, deps, n, p->conditional);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

std::vector<const Graph*> BodiesToRun(const Node& node) {
  const auto condition = Conditions().find(node.condition);
  const uint64_t value = condition == Conditions().end() ? 0 : condition->second.value;
  switch (node.condition_type) {
    case kIf:
      if (value != 0) return {node.bodies[0]};
      if (node.bodies.size() > 1) return {node.bodies[1]};
      return {};
    case kWhile: {
      const char* times = getenv("BATON_SIM_WHILE");
      if (value == 0) return {};
      return std::vector<const Graph*>(times == nullptr ? 1 : strtoul(times, nullptr, 10),
                                       node.bodies[0]);
    }
    default:
      if (value < node.bodies.size()) return {node.bodies[value]};
      return {};
  }
}

SIM_API(cuGraphConditionalHandleCreate,
        (uint64_t * out, CUgraph handle, CUcontext, unsigned int value, unsigned int flags)) {
  constexpr unsigned int kAssignDefault = 1;
  Lock lock(TheDriver().mutex);
  auto* graph = reinterpret_cast<Graph*>(handle);
  if (out == nullptr || !IsLive(graph) || (flags & ~kAssignDefault) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  static uint64_t last = 0;
  *out = ++last;
  Conditions()[*out] = {graph, (flags & kAssignDefault) != 0 ? value : 0};
  return CUDA_SUCCESS;
}

SIM_API(cuGraphAddNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t n, void* params)) {
  return Add(out, graph, deps, n, static_cast<NodeParams*>(params));
}
// `edges`: CUgraphEdgeData, which only programmatic launches need.
SIM_API(cuGraphAddNode_v2, (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, const void*,
                            size_t n, void* params)) {
  return Add(out, graph, deps, n, static_cast<NodeParams*>(params));
}

}  // namespace baton::sim
