// Graphs: made by hand or by capture, instantiated, launched.
#include <string.h>

#include <algorithm>

#include "sim/driver.h"

namespace baton::sim {
namespace {

CUresult GetGraph(CUgraph handle, Graph** graph) {
  *graph = reinterpret_cast<Graph*>(handle);
  return IsLive(*graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// A node of `graph` and the nodes that it is to follow, checked.
CUresult Prepare(CUgraphNode* out, CUgraph handle, const CUgraphNode* deps, size_t count,
                 Graph** graph, std::vector<Node*>* nodes) {
  if (CUresult r = GetGraph(handle, graph)) return r;
  if (out == nullptr || (deps == nullptr && count != 0)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    auto* node = reinterpret_cast<Node*>(deps[i]);
    if (!IsLive(node) || node->graph != *graph) return CUDA_ERROR_INVALID_VALUE;
    nodes->push_back(node);
  }
  return CUDA_SUCCESS;
}

CUgraphNode Handle(Node* node) { return reinterpret_cast<CUgraphNode>(node); }

// CUDA_KERNEL_NODE_PARAMS of either generation; the second goes on with a kernel and a context.
struct KernelNodeParams {
  CUfunction func;
  unsigned int grid[3], block[3], shared_bytes;
  void** params;
  void** extra;
};

CUresult SetKernel(Node* node, const KernelNodeParams& p, const void* kernel) {
  Function* function;
  if (CUresult r = GetFunction(p.func != nullptr ? p.func : kernel, &function)) return r;
  LaunchShape shape;
  std::copy(p.grid, p.grid + 3, shape.grid);
  std::copy(p.block, p.block + 3, shape.block);
  shape.shared_bytes = p.shared_bytes;
  Work work;
  if (CUresult r = MakeKernelWork(function, shape, p.params, p.extra, &work)) return r;
  node->work = std::move(work);
  node->call.function = function;
  std::copy(p.grid, p.grid + 3, node->call.grid);
  std::copy(p.block, p.block + 3, node->call.block);
  node->call.shared_bytes = p.shared_bytes;
  return CUDA_SUCCESS;
}

CUresult AddKernel(CUgraphNode* out, CUgraph handle, const CUgraphNode* deps, size_t count,
                   const void* params, bool second) {
  Lock lock(TheDriver().mutex);
  Graph* graph;
  std::vector<Node*> nodes;
  if (CUresult r = Prepare(out, handle, deps, count, &graph, &nodes)) return r;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto* p = static_cast<const KernelNodeParams*>(params);
  Node checked;
  if (CUresult r =
          SetKernel(&checked, *p, second ? *reinterpret_cast<void* const*>(p + 1) : nullptr)) {
    return r;
  }
  Node* node = AddNode(graph, CU_GRAPH_NODE_TYPE_KERNEL, checked.work, std::move(nodes));
  node->call = checked.call;
  *out = Handle(node);
  return CUDA_SUCCESS;
}

CUresult GetKernel(CUgraphNode handle, void* params, bool second) {
  Lock lock(TheDriver().mutex);
  auto* node = reinterpret_cast<Node*>(handle);
  if (!IsLive(node) || params == nullptr || node->type != CU_GRAPH_NODE_TYPE_KERNEL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto* p = static_cast<KernelNodeParams*>(params);
  *p = {};
  p->func = reinterpret_cast<CUfunction>(node->call.function);
  std::copy(node->call.grid, node->call.grid + 3, p->grid);
  std::copy(node->call.block, node->call.block + 3, p->block);
  p->shared_bytes = node->call.shared_bytes;
  if (second) memset(static_cast<void*>(p + 1), 0, 2 * sizeof(void*));
  return CUDA_SUCCESS;
}

CUresult SetKernelParams(CUgraphExec exec_handle, CUgraphNode handle, const void* params,
                         bool in_exec) {
  Lock lock(TheDriver().mutex);
  auto* node = reinterpret_cast<Node*>(handle);
  if (!IsLive(node) || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (in_exec) {
    auto* exec = reinterpret_cast<GraphExec*>(exec_handle);
    if (!IsLive(exec) || exec->copies.count(node) == 0) return CUDA_ERROR_INVALID_VALUE;
    node = exec->copies[node];
  }
  return SetKernel(node, *static_cast<const KernelNodeParams*>(params), nullptr);
}

CUresult AddSimple(CUgraphNode* out, CUgraph handle, const CUgraphNode* deps, size_t count,
                   CUgraphNodeType type, Work work, Node** node = nullptr) {
  Graph* graph;
  std::vector<Node*> nodes;
  if (CUresult r = Prepare(out, handle, deps, count, &graph, &nodes)) return r;
  Node* made = AddNode(graph, type, std::move(work), std::move(nodes));
  *out = Handle(made);
  if (node != nullptr) *node = made;
  return CUDA_SUCCESS;
}

// Puts every node behind what it depends on; false where they go round in a circle.
bool Order(Graph* graph) {
  std::vector<std::unique_ptr<Node>> rest = std::move(graph->nodes);
  graph->nodes.clear();
  std::set<const Node*> placed;
  while (!rest.empty()) {
    const size_t before = rest.size();
    for (auto& node : rest) {
      if (!std::all_of(node->deps.begin(), node->deps.end(),
                       [&placed](const Node* dep) { return placed.count(dep) != 0; })) {
        continue;
      }
      placed.insert(node.get());
      graph->nodes.push_back(std::move(node));
    }
    std::erase(rest, nullptr);
    if (rest.size() == before) {
      for (auto& node : rest) graph->nodes.push_back(std::move(node));
      return false;
    }
  }
  for (const auto& node : graph->nodes) {
    for (Graph* body : node->bodies) {
      if (!Order(body)) return false;
    }
  }
  return true;
}

std::unique_ptr<Graph> Clone(const Graph& graph, std::map<const Node*, Node*>* copies) {
  auto copy = std::make_unique<Graph>();
  for (const auto& node : graph.nodes) {
    auto made = std::make_unique<Node>(*node);
    made->graph = copy.get();
    for (Node*& dep : made->deps) dep = (*copies)[dep];
    if (node->child != nullptr) {
      std::map<const Node*, Node*> inner;
      made->child = Clone(*node->child, &inner).release();
    }
    for (Graph*& body : made->bodies) {
      std::map<const Node*, Node*> inner;
      body = Clone(*body, &inner).release();
    }
    (*copies)[node.get()] = made.get();
    copy->nodes.push_back(std::move(made));
  }
  return copy;
}

// Enqueues the graph's nodes after `start`; what the last of them are, in *ends.
CUresult Run(Lock& lock, const Graph& graph, Stream* stream, const std::vector<OpPtr>& start,
             std::vector<OpPtr>* ends) {
  std::map<const Node*, std::vector<OpPtr>> done;
  std::set<const Node*> followed;
  for (const auto& node : graph.nodes) {
    std::vector<OpPtr> deps;
    for (Node* dep : node->deps) {
      followed.insert(dep);
      deps.insert(deps.end(), done[dep].begin(), done[dep].end());
    }
    if (node->deps.empty()) deps = start;
    if (node->child != nullptr) {
      if (CUresult r = Run(lock, *node->child, stream, deps, &done[node.get()])) return r;
      continue;
    }
    if (!node->bodies.empty()) {
      for (const Graph* body : BodiesToRun(*node)) {
        std::vector<OpPtr> body_ends;
        if (CUresult r = Run(lock, *body, stream, deps, &body_ends)) return r;
        deps = std::move(body_ends);
      }
      done[node.get()] = {Submit(lock, stream->ctx, stream->id, Work{}, deps)};
      continue;
    }
    if (node->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT && IsLive(node->event) &&
        node->event->op != nullptr) {
      deps.push_back(node->event->op);
    }
    OpPtr op = Submit(lock, stream->ctx, stream->id, node->work, deps);
    if (node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD && IsLive(node->event)) node->event->op = op;
    done[node.get()] = {op};
    if (stream->ctx->error != CUDA_SUCCESS) return stream->ctx->error;
  }
  for (const auto& node : graph.nodes) {
    if (followed.count(node.get()) != 0) continue;
    ends->insert(ends->end(), done[node.get()].begin(), done[node.get()].end());
  }
  if (graph.nodes.empty()) *ends = start;
  return CUDA_SUCCESS;
}

CUresult NodeList(const std::vector<Node*>& nodes, CUgraphNode* out, size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out == nullptr) {
    *count = nodes.size();
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < *count; ++i) out[i] = i < nodes.size() ? Handle(nodes[i]) : nullptr;
  *count = std::min(*count, nodes.size());
  return CUDA_SUCCESS;
}

CUresult Instantiate(CUgraphExec* out, CUgraph graph, cuuint64_t flags) {
  Lock lock(TheDriver().mutex);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphExec* exec;
  if (CUresult r = InstantiateGraph(reinterpret_cast<Graph*>(graph), flags, &exec)) return r;
  *out = reinterpret_cast<CUgraphExec>(exec);
  return CUDA_SUCCESS;
}

CUresult Dependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, size_t count,
                      bool add) {
  Lock lock(TheDriver().mutex);
  Graph* graph;
  if (CUresult r = GetGraph(handle, &graph)) return r;
  for (size_t i = 0; i < count; ++i) {
    auto *a = reinterpret_cast<Node*>(from[i]), *b = reinterpret_cast<Node*>(to[i]);
    if (!IsLive(a) || !IsLive(b) || a->graph != graph || b->graph != graph || a == b) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const bool there = std::find(b->deps.begin(), b->deps.end(), a) != b->deps.end();
    if (there == add) return CUDA_ERROR_INVALID_VALUE;
    if (add) {
      b->deps.push_back(a);
    } else {
      std::erase(b->deps, a);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

Graph* NewGraph() {
  auto* graph = new Graph;
  TheDriver().live.insert(graph);
  return graph;
}

void DeleteGraph(Graph* graph) {
  for (const auto& node : graph->nodes) {
    TheDriver().live.erase(node.get());
    if (node->child != nullptr) DeleteGraph(node->child);
    for (Graph* body : node->bodies) DeleteGraph(body);
  }
  TheDriver().live.erase(graph);
  delete graph;
}

Node* AddNode(Graph* graph, CUgraphNodeType type, Work work, std::vector<Node*> deps) {
  auto node = std::make_unique<Node>();
  node->type = type;
  node->graph = graph;
  node->work = std::move(work);
  node->deps = std::move(deps);
  TheDriver().live.insert(node.get());
  graph->nodes.push_back(std::move(node));
  return graph->nodes.back().get();
}

CUresult InstantiateGraph(Graph* graph, cuuint64_t flags, GraphExec** out) {
  if (!IsLive(graph) || !Order(graph)) return CUDA_ERROR_INVALID_VALUE;
  auto* exec = new GraphExec;
  exec->flags = flags;
  exec->graph = Clone(*graph, &exec->copies);
  TheDriver().live.insert(exec);
  *out = exec;
  return CUDA_SUCCESS;
}

CUresult LaunchGraph(Lock& lock, GraphExec* exec, Stream* stream) {
  if (CUresult r = CheckContext(stream->ctx)) return r;
  if (stream->capture != nullptr) {
    Node* node;
    if (CUresult r = AddCaptureNode(stream, Work{}, &node)) return r;
    std::map<const Node*, Node*> copies;
    node->type = CU_GRAPH_NODE_TYPE_GRAPH;
    node->child = Clone(*exec->graph, &copies).release();
    return CUDA_SUCCESS;
  }
  if (CUresult r = BackGraph(exec, stream->ctx->dev)) return r;
  // A marker first: it carries the stream's order, and the legacy stream's rules.
  OpPtr start;
  if (CUresult r = Enqueue(lock, stream, Work{}, &start)) return r;
  std::vector<OpPtr> first{start}, ends;
  if (exec->last != nullptr && !exec->last->done) first.push_back(exec->last);
  if (CUresult r = Run(lock, *exec->graph, stream, first, &ends)) return r;
  stream->last = Submit(lock, stream->ctx, stream->id, Work{}, std::move(ends));
  exec->last = stream->last;
  return stream->ctx->error;
}

SIM_API(cuGraphCreate, (CUgraph * out, unsigned int flags)) {
  Lock lock(TheDriver().mutex);
  if (CUresult r = CheckInitialized()) return r;
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUgraph>(NewGraph());
  return CUDA_SUCCESS;
}

SIM_API(cuGraphDestroy, (CUgraph handle)) {
  Lock lock(TheDriver().mutex);
  Graph* graph;
  if (CUresult r = GetGraph(handle, &graph)) return r;
  DeleteGraph(graph);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphClone, (CUgraph * out, CUgraph handle)) {
  Lock lock(TheDriver().mutex);
  Graph* graph;
  if (CUresult r = GetGraph(handle, &graph)) return r;
  if (out == nullptr || !Order(graph)) return CUDA_ERROR_INVALID_VALUE;
  std::map<const Node*, Node*> copies;
  Graph* copy = Clone(*graph, &copies).release();
  TheDriver().live.insert(copy);
  for (const auto& node : copy->nodes) TheDriver().live.insert(node.get());
  *out = reinterpret_cast<CUgraph>(copy);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphAddKernelNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t n, const void* p)) {
  return AddKernel(out, graph, deps, n, p, false);
}
SIM_API(cuGraphAddKernelNode_v2,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t n, const void* p)) {
  return AddKernel(out, graph, deps, n, p, true);
}
SIM_API(cuGraphKernelNodeGetParams, (CUgraphNode node, void* p)) {
  return GetKernel(node, p, false);
}
SIM_API(cuGraphKernelNodeGetParams_v2, (CUgraphNode node, void* p)) {
  return GetKernel(node, p, true);
}
SIM_API(cuGraphKernelNodeSetParams, (CUgraphNode node, const void* p)) {
  return SetKernelParams(nullptr, node, p, false);
}
SIM_API(cuGraphKernelNodeSetParams_v2, (CUgraphNode node, const void* p)) {
  return SetKernelParams(nullptr, node, p, false);
}
SIM_API(cuGraphExecKernelNodeSetParams, (CUgraphExec exec, CUgraphNode node, const void* p)) {
  return SetKernelParams(exec, node, p, true);
}
SIM_API(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec exec, CUgraphNode node, const void* p)) {
  return SetKernelParams(exec, node, p, true);
}

SIM_API(cuGraphAddMemcpyNode, (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t n,
                               const CUDA_MEMCPY3D* c, CUcontext handle)) {
  Lock lock(TheDriver().mutex);
  auto* ctx = reinterpret_cast<Ctx*>(handle);
  if (c == nullptr || !IsLive(ctx)) return CUDA_ERROR_INVALID_VALUE;
  const auto side = [](CUmemorytype type, const void* host, CUdeviceptr device) {
    return static_cast<unsigned char*>(type == CU_MEMORYTYPE_HOST ? const_cast<void*>(host)
                                                                  : AsPointer(device));
  };
  if (c->dstMemoryType == CU_MEMORYTYPE_ARRAY || c->srcMemoryType == CU_MEMORYTYPE_ARRAY) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const CUDA_MEMCPY3D copy = *c;
  unsigned char* to = side(c->dstMemoryType, c->dstHost, c->dstDevice);
  const unsigned char* from = side(c->srcMemoryType, c->srcHost, c->srcDevice);
  const Work work = MoveWork(
      ctx->dev, CopyEngineFor(to, from), copy.WidthInBytes * copy.Height * copy.Depth,
      CU_GRAPH_NODE_TYPE_MEMCPY, [copy, to, from] {
        for (size_t z = 0; z < copy.Depth; ++z) {
          for (size_t y = 0; y < copy.Height; ++y) {
            memmove(to + ((z + copy.dstZ) * copy.dstHeight + y + copy.dstY) * copy.dstPitch +
                        copy.dstXInBytes,
                    from + ((z + copy.srcZ) * copy.srcHeight + y + copy.srcY) * copy.srcPitch +
                        copy.srcXInBytes,
                    copy.WidthInBytes);
          }
        }
      });
  return AddSimple(out, graph, deps, n, CU_GRAPH_NODE_TYPE_MEMCPY, work);
}

SIM_API(cuGraphAddMemsetNode, (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t n,
                               const CUDA_MEMSET_NODE_PARAMS* p, CUcontext handle)) {
  Lock lock(TheDriver().mutex);
  auto* ctx = reinterpret_cast<Ctx*>(handle);
  if (p == nullptr || !IsLive(ctx) ||
      (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUDA_MEMSET_NODE_PARAMS set = *p;
  const Work work =
      MoveWork(ctx->dev, OpKind::kKernel, set.width * set.height * set.elementSize,
               CU_GRAPH_NODE_TYPE_MEMSET, [set] {
                 for (size_t y = 0; y < set.height; ++y) {
                   auto* row = static_cast<unsigned char*>(AsPointer(set.dst)) + y * set.pitch;
                   for (size_t x = 0; x < set.width; ++x) {
                     memcpy(row + x * set.elementSize, &set.value, set.elementSize);
                   }
                 }
               });
  return AddSimple(out, graph, deps, n, CU_GRAPH_NODE_TYPE_MEMSET, work);
}

SIM_API(cuGraphAddHostNode, (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t n,
                             const CUDA_HOST_NODE_PARAMS* p)) {
  Lock lock(TheDriver().mutex);
  if (p == nullptr || p->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  work.kind = OpKind::kGate;
  work.node_type = CU_GRAPH_NODE_TYPE_HOST;
  work.host_function = [fn = p->fn, user = p->userData] { fn(user); };
  return AddSimple(out, graph, deps, n, CU_GRAPH_NODE_TYPE_HOST, work);
}

SIM_API(cuGraphAddEmptyNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t n)) {
  Lock lock(TheDriver().mutex);
  return AddSimple(out, graph, deps, n, CU_GRAPH_NODE_TYPE_EMPTY, Work{});
}

SIM_API(cuGraphAddChildGraphNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t n, CUgraph child)) {
  Lock lock(TheDriver().mutex);
  Graph* inner;
  if (CUresult r = GetGraph(child, &inner)) return r;
  if (!Order(inner)) return CUDA_ERROR_INVALID_VALUE;
  Node* node;
  if (CUresult r = AddSimple(out, graph, deps, n, CU_GRAPH_NODE_TYPE_GRAPH, Work{}, &node))
    return r;
  std::map<const Node*, Node*> copies;
  node->child = Clone(*inner, &copies).release();
  return CUDA_SUCCESS;
}

static CUresult AddEventNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* deps, size_t n,
                             CUevent event, CUgraphNodeType type) {
  Lock lock(TheDriver().mutex);
  auto* e = reinterpret_cast<Event*>(event);
  if (!IsLive(e)) return CUDA_ERROR_INVALID_VALUE;
  Node* node;
  if (CUresult r = AddSimple(out, graph, deps, n, type, Work{}, &node)) return r;
  node->event = e;
  return CUDA_SUCCESS;
}
SIM_API(cuGraphAddEventRecordNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t n, CUevent event)) {
  return AddEventNode(out, graph, deps, n, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}
SIM_API(cuGraphAddEventWaitNode,
        (CUgraphNode * out, CUgraph graph, const CUgraphNode* deps, size_t n, CUevent event)) {
  return AddEventNode(out, graph, deps, n, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

SIM_API(cuGraphAddDependencies,
        (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t n)) {
  return Dependencies(graph, from, to, n, true);
}
SIM_API(cuGraphAddDependencies_v2,
        (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const void*, size_t n)) {
  return Dependencies(graph, from, to, n, true);
}
SIM_API(cuGraphRemoveDependencies,
        (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t n)) {
  return Dependencies(graph, from, to, n, false);
}
SIM_API(cuGraphRemoveDependencies_v2,
        (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const void*, size_t n)) {
  return Dependencies(graph, from, to, n, false);
}

SIM_API(cuGraphDestroyNode, (CUgraphNode handle)) {
  Lock lock(TheDriver().mutex);
  auto* node = reinterpret_cast<Node*>(handle);
  if (!IsLive(node)) return CUDA_ERROR_INVALID_VALUE;
  Graph* graph = node->graph;
  TheDriver().live.erase(node);
  for (const auto& other : graph->nodes) std::erase(other->deps, node);
  if (node->child != nullptr) DeleteGraph(node->child);
  for (Graph* body : node->bodies) DeleteGraph(body);
  std::erase_if(graph->nodes, [node](const auto& n) { return n.get() == node; });
  return CUDA_SUCCESS;
}

SIM_API(cuGraphGetNodes, (CUgraph handle, CUgraphNode* nodes, size_t* count)) {
  Lock lock(TheDriver().mutex);
  Graph* graph;
  if (CUresult r = GetGraph(handle, &graph)) return r;
  std::vector<Node*> all;
  for (const auto& node : graph->nodes) all.push_back(node.get());
  return NodeList(all, nodes, count);
}

SIM_API(cuGraphGetRootNodes, (CUgraph handle, CUgraphNode* nodes, size_t* count)) {
  Lock lock(TheDriver().mutex);
  Graph* graph;
  if (CUresult r = GetGraph(handle, &graph)) return r;
  std::vector<Node*> roots;
  for (const auto& node : graph->nodes) {
    if (node->deps.empty()) roots.push_back(node.get());
  }
  return NodeList(roots, nodes, count);
}

static CUresult Edges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  Lock lock(TheDriver().mutex);
  Graph* graph;
  if (CUresult r = GetGraph(handle, &graph)) return r;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  size_t i = 0;
  for (const auto& node : graph->nodes) {
    for (Node* dep : node->deps) {
      if (from != nullptr && to != nullptr && i < *count) {
        from[i] = Handle(dep);
        to[i] = Handle(node.get());
      }
      ++i;
    }
  }
  *count = i;
  return CUDA_SUCCESS;
}
SIM_API(cuGraphGetEdges, (CUgraph g, CUgraphNode* from, CUgraphNode* to, size_t* count)) {
  return Edges(g, from, to, count);
}
SIM_API(cuGraphGetEdges_v2, (CUgraph g, CUgraphNode* from, CUgraphNode* to, void*, size_t* count)) {
  return Edges(g, from, to, count);
}

static CUresult NodeDependencies(CUgraphNode handle, CUgraphNode* deps, size_t* count) {
  Lock lock(TheDriver().mutex);
  auto* node = reinterpret_cast<Node*>(handle);
  if (!IsLive(node)) return CUDA_ERROR_INVALID_VALUE;
  return NodeList(node->deps, deps, count);
}
SIM_API(cuGraphNodeGetDependencies, (CUgraphNode node, CUgraphNode* deps, size_t* count)) {
  return NodeDependencies(node, deps, count);
}
SIM_API(cuGraphNodeGetDependencies_v2,
        (CUgraphNode node, CUgraphNode* deps, void*, size_t* count)) {
  return NodeDependencies(node, deps, count);
}

static CUresult NodeDependents(CUgraphNode handle, CUgraphNode* out, size_t* count) {
  Lock lock(TheDriver().mutex);
  auto* node = reinterpret_cast<Node*>(handle);
  if (!IsLive(node)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Node*> dependents;
  for (const auto& other : node->graph->nodes) {
    if (std::find(other->deps.begin(), other->deps.end(), node) != other->deps.end()) {
      dependents.push_back(other.get());
    }
  }
  return NodeList(dependents, out, count);
}
SIM_API(cuGraphNodeGetDependentNodes, (CUgraphNode node, CUgraphNode* out, size_t* count)) {
  return NodeDependents(node, out, count);
}
SIM_API(cuGraphNodeGetDependentNodes_v2,
        (CUgraphNode node, CUgraphNode* out, void*, size_t* count)) {
  return NodeDependents(node, out, count);
}

SIM_API(cuGraphNodeGetType, (CUgraphNode handle, CUgraphNodeType* type)) {
  Lock lock(TheDriver().mutex);
  auto* node = reinterpret_cast<Node*>(handle);
  if (!IsLive(node) || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphChildGraphNodeGetGraph, (CUgraphNode handle, CUgraph* graph)) {
  Lock lock(TheDriver().mutex);
  auto* node = reinterpret_cast<Node*>(handle);
  if (!IsLive(node) || node->child == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = reinterpret_cast<CUgraph>(node->child);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphInstantiate,
        (CUgraphExec * out, CUgraph graph, CUgraphNode* error, char* log, size_t bytes)) {
  if (error != nullptr) *error = nullptr;
  if (log != nullptr && bytes > 0) *log = 0;
  return Instantiate(out, graph, 0);
}
SIM_API(cuGraphInstantiate_v2,
        (CUgraphExec * out, CUgraph graph, CUgraphNode* error, char* log, size_t bytes)) {
  if (error != nullptr) *error = nullptr;
  if (log != nullptr && bytes > 0) *log = 0;
  return Instantiate(out, graph, 0);
}
SIM_API(cuGraphInstantiateWithFlags, (CUgraphExec * out, CUgraph graph, unsigned long long flags)) {
  return Instantiate(out, graph, flags);
}

SIM_API(cuGraphExecGetFlags, (CUgraphExec handle, cuuint64_t* flags)) {
  Lock lock(TheDriver().mutex);
  auto* exec = reinterpret_cast<GraphExec*>(handle);
  if (!IsLive(exec) || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphExecDestroy, (CUgraphExec handle)) {
  Lock lock(TheDriver().mutex);
  auto* exec = reinterpret_cast<GraphExec*>(handle);
  if (!IsLive(exec)) return CUDA_ERROR_INVALID_VALUE;
  TheDriver().live.erase(exec);
  UnbackGraph(exec);
  delete exec;
  return CUDA_SUCCESS;
}

// The new graph's parameters, where its shape is the old one's.
static bool UpdateExec(CUgraphExec exec_handle, CUgraph graph_handle) {
  auto* exec = reinterpret_cast<GraphExec*>(exec_handle);
  auto* graph = reinterpret_cast<Graph*>(graph_handle);
  if (!IsLive(exec) || !IsLive(graph) || !Order(graph)) return false;
  if (exec->graph->nodes.size() != graph->nodes.size()) return false;
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    const Node &was = *exec->graph->nodes[i], &is = *graph->nodes[i];
    if (was.type != is.type || was.deps.size() != is.deps.size()) return false;
  }
  UnbackGraph(exec);
  exec->copies.clear();
  exec->graph = Clone(*graph, &exec->copies);
  return true;
}
SIM_API(cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode* node, int* result)) {
  Lock lock(TheDriver().mutex);
  const bool good = UpdateExec(exec, graph);
  if (node != nullptr) *node = nullptr;
  if (result != nullptr) *result = good ? 0 : 2 /* TOPOLOGY_CHANGED */;
  return good ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}
SIM_API(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, void* info)) {
  // CUgraphExecUpdateResultInfo.
  struct Info {
    int result;
    CUgraphNode node, from;
  };
  Lock lock(TheDriver().mutex);
  const bool good = UpdateExec(exec, graph);
  if (info != nullptr) *static_cast<Info*>(info) = {good ? 0 : 2, nullptr, nullptr};
  return good ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

}  // namespace baton::sim
