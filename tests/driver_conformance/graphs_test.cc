// Capture and graphs.
#include <atomic>
#include <thread>
#include <utility>

#include "tests/driver_conformance/driver.h"

namespace baton::conformance {
namespace {

using Graphs = DriverTest;

CUresult Instantiate(CUgraphExec* exec, CUgraph graph) {
  return reinterpret_cast<CUresult (*)(CUgraphExec*, CUgraph, unsigned long long)>(
      NeedSymbol("cuGraphInstantiateWithFlags"))(exec, graph, 0);
}

CUresult Begin(CUstream stream, CUstreamCaptureMode mode) {
  return DRV(cuStreamBeginCapture)(stream, mode);
}

// A call that a capture does not admit may leave it as it was or spoil it: only the call's own
// error is promised.
void EndWhole(CUstream stream) {
  CUgraph graph = nullptr;
  EXPECT_EITHER(CUDA_SUCCESS, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                DRV(cuStreamEndCapture)(stream, &graph));
  if (graph != nullptr) {
    EXPECT_OK(DRV(cuGraphDestroy)(graph));
  }
}

TEST_F(Graphs, WhatIsCapturedRunsAtEveryLaunchAndNotBefore) {
  CUdeviceptr p = Alloc(64);
  CUstream stream = NewStream();
  ASSERT_OK(Begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CUstreamCaptureStatus status;
  EXPECT_OK(DRV(cuStreamIsCapturing)(stream, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
  EXPECT_OK(DRV(cuMemsetD32Async)(p, 0, 16, stream));
  EXPECT_OK(Add(p, 16, 2, stream));
  EXPECT_OK(Add(p, 16, 3, stream));
  CUgraph graph = nullptr;
  ASSERT_OK(DRV(cuStreamEndCapture)(stream, &graph));
  EXPECT_OK(DRV(cuStreamIsCapturing)(stream, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status);
  size_t nodes = 0;
  EXPECT_OK(DRV(cuGraphGetNodes)(graph, nullptr, &nodes));
  EXPECT_EQ(3u, nodes);
  EXPECT_EQ(std::vector<uint32_t>(16, 0), Read(p, 16));
  CUgraphExec exec;
  ASSERT_OK(Instantiate(&exec, graph));
  for (int i = 0; i < 3; ++i) EXPECT_OK(DRV(cuGraphLaunch)(exec, stream));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_EQ(std::vector<uint32_t>(16, 5), Read(p, 16));
  EXPECT_OK(DRV(cuGraphExecDestroy)(exec));
  EXPECT_OK(DRV(cuGraphDestroy)(graph));
}

TEST_F(Graphs, EventsForkAndJoinACapture) {
  CUdeviceptr p = Alloc(8);
  CUstream origin = NewStream(), side = NewStream();
  CUevent fork = NewEvent(CU_EVENT_DISABLE_TIMING), join = NewEvent(CU_EVENT_DISABLE_TIMING);
  ASSERT_OK(Begin(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(Add(p, 2, 1, origin));
  EXPECT_OK(DRV(cuEventRecord)(fork, origin));
  EXPECT_OK(DRV(cuStreamWaitEvent)(side, fork, 0));
  CUstreamCaptureStatus status;
  EXPECT_OK(DRV(cuStreamIsCapturing)(side, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
  EXPECT_OK(Add(p, 1, 10, side));
  EXPECT_OK(Add(p + 4, 1, 20, origin));
  EXPECT_OK(DRV(cuEventRecord)(join, side));
  EXPECT_OK(DRV(cuStreamWaitEvent)(origin, join, 0));
  CUgraph graph;
  ASSERT_OK(DRV(cuStreamEndCapture)(origin, &graph));
  CUgraphExec exec;
  ASSERT_OK(Instantiate(&exec, graph));
  EXPECT_OK(DRV(cuGraphLaunch)(exec, origin));
  EXPECT_OK(DRV(cuStreamSynchronize)(origin));
  EXPECT_EQ((std::vector<uint32_t>{11, 21}), Read(p, 2));
  EXPECT_OK(DRV(cuGraphExecDestroy)(exec));
  EXPECT_OK(DRV(cuGraphDestroy)(graph));
}

TEST_F(Graphs, ACapturedEventCannotBeQueried) {
  CUstream stream = NewStream();
  CUevent event = NewEvent(CU_EVENT_DISABLE_TIMING);
  ASSERT_OK(Begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(Spin(1000, stream));
  EXPECT_OK(DRV(cuEventRecord)(event, stream));
  EXPECT_ERROR(CUDA_ERROR_CAPTURED_EVENT, DRV(cuEventQuery)(event));
  EndWhole(stream);
  // A record outside of a capture makes it an ordinary event again.
  EXPECT_OK(DRV(cuEventRecord)(event, stream));
  EXPECT_OK(DRV(cuEventSynchronize)(event));
}

TEST_F(Graphs, ThePerThreadStreamTellsItsOwnThreadsCapture) {
  const auto status_of = [](CUstream stream, bool per_thread) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    EXPECT_OK(per_thread ? DRV_AS(cuStreamIsCapturing, "cuStreamIsCapturing_ptsz")(stream, &status)
                         : DRV_AS(cuStreamIsCapturing, "cuStreamIsCapturing")(stream, &status));
    return status;
  };
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(CU_STREAM_PER_THREAD, false));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(nullptr, true));
  ASSERT_OK(Begin(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_OK(Spin(1000, CU_STREAM_PER_THREAD));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status_of(CU_STREAM_PER_THREAD, false));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status_of(nullptr, true));
  std::thread([&] {
    EXPECT_OK(DRV(cuCtxSetCurrent)(context_));
    EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(CU_STREAM_PER_THREAD, false));
    EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(nullptr, true));
  }).join();
  // Asking the legacy stream is refused, and leaves the capture as it is.
  CUstreamCaptureStatus status;
  EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
               DRV_AS(cuStreamIsCapturing, "cuStreamIsCapturing")(CU_STREAM_LEGACY, &status));
  CUgraph graph;
  ASSERT_OK(DRV(cuStreamEndCapture)(CU_STREAM_PER_THREAD, &graph));
  EXPECT_OK(DRV(cuGraphDestroy)(graph));
}

TEST_F(Graphs, AnUnjoinedStreamSpoilsTheCapture) {
  CUdeviceptr p = Alloc(8);
  CUstream origin = NewStream(), side = NewStream();
  CUevent fork = NewEvent(CU_EVENT_DISABLE_TIMING);
  ASSERT_OK(Begin(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(Add(p, 1, 1, origin));
  EXPECT_OK(DRV(cuEventRecord)(fork, origin));
  EXPECT_OK(DRV(cuStreamWaitEvent)(side, fork, 0));
  EXPECT_OK(Add(p, 1, 1, side));
  CUgraph graph;
  EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, DRV(cuStreamEndCapture)(origin, &graph));
  EXPECT_OK(Spin(1000, origin));
  EXPECT_OK(DRV(cuStreamSynchronize)(origin));
}

TEST_F(Graphs, SynchronizingACapturingStreamInvalidatesIt) {
  CUstream stream = NewStream();
  ASSERT_OK(Begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_OK(Spin(1000, stream));
  EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, DRV(cuStreamSynchronize)(stream));
  EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, Spin(1000, stream));
  CUgraph graph;
  EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, DRV(cuStreamEndCapture)(stream, &graph));
  EXPECT_EQ(nullptr, graph);
  EXPECT_OK(Spin(1000, stream));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
}

TEST_F(Graphs, AGlobalCaptureBarsUnsafeCallsOfOtherThreads) {
  CUstream stream = NewStream();
  ASSERT_OK(Begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_OK(Spin(1000, stream));
  std::thread([this] {
    EXPECT_OK(DRV(cuCtxSetCurrent)(context_));
    CUdeviceptr p;
    // Relaxed, a thread is not barred.
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT_OK(DRV(cuThreadExchangeStreamCaptureMode)(&mode));
    EXPECT_EQ(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
    EXPECT_OK(DRV(cuMemAlloc)(&p, 64));
    EXPECT_OK(DRV(cuThreadExchangeStreamCaptureMode)(&mode));
    EXPECT_EQ(CU_STREAM_CAPTURE_MODE_RELAXED, mode);
    CUdeviceptr q;
    EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, DRV(cuMemAlloc)(&q, 64));
    mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT_OK(DRV(cuThreadExchangeStreamCaptureMode)(&mode));
    EXPECT_OK(DRV(cuMemFree)(p));
  }).join();
  EndWhole(stream);
}

TEST_F(Graphs, AThreadLocalCaptureDoesNotBarOtherThreads) {
  CUstream stream = NewStream();
  CUdeviceptr p = Alloc(4);
  ASSERT_OK(Begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  std::thread([this, p] {
    EXPECT_OK(DRV(cuCtxSetCurrent)(context_));
    CUstream other;
    ASSERT_OK(DRV(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(Add(p, 1, 4, other));
    EXPECT_OK(DRV(cuStreamSynchronize)(other));
    EXPECT_OK(DRV(cuStreamDestroy)(other));
  }).join();
  EXPECT_OK(Add(p, 1, 1, stream));
  CUgraph graph;
  ASSERT_OK(DRV(cuStreamEndCapture)(stream, &graph));
  EXPECT_EQ(4u, Read(p, 1)[0]);
  EXPECT_OK(DRV(cuGraphDestroy)(graph));
}

TEST_F(Graphs, TheLegacyStreamMayNotJoinACapture) {
  CUstream stream = NewStream(CU_STREAM_DEFAULT);
  ASSERT_OK(Begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, Spin(1000, nullptr));
  EndWhole(stream);
  // Nor be captured itself; with which error is not said.
  EXPECT_NE(CUDA_SUCCESS, Begin(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED));
}

TEST_F(Graphs, MadeByHandRunInTheOrderOfTheirEdges) {
  CUdeviceptr p = Alloc(64);
  CUgraph graph;
  ASSERT_OK(DRV(cuGraphCreate)(&graph, 0));
  CUDA_MEMSET_NODE_PARAMS set = {};
  set.dst = p;
  set.value = 100;
  set.elementSize = 4;
  set.width = 16;
  set.height = 1;
  CUgraphNode first, second, third, last;
  ASSERT_OK(DRV(cuGraphAddMemsetNode)(&first, graph, nullptr, 0, &set, context_));
  uint32_t n = 16, v = 1;
  void* params[] = {&p, &n, &v};
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  kernel.func = add_;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = 32;
  kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = params;
  ASSERT_OK(DRV(cuGraphAddKernelNode)(&second, graph, &first, 1, &kernel));
  v = 2;
  ASSERT_OK(DRV(cuGraphAddKernelNode)(&third, graph, &second, 1, &kernel));
  static std::atomic<int> called;
  called = 0;
  CUDA_HOST_NODE_PARAMS host = {};
  host.fn = [](void*) { ++called; };
  ASSERT_OK(DRV(cuGraphAddHostNode)(&last, graph, &third, 1, &host));
  CUgraphNodeType type;
  EXPECT_OK(DRV(cuGraphNodeGetType)(second, &type));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_KERNEL, type);
  CUgraphExec exec;
  ASSERT_OK(Instantiate(&exec, graph));
  CUstream stream = NewStream();
  EXPECT_OK(DRV(cuGraphLaunch)(exec, stream));
  EXPECT_OK(DRV(cuGraphLaunch)(exec, stream));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_EQ(std::vector<uint32_t>(16, 103), Read(p, 16));
  EXPECT_EQ(2, called.load());
  EXPECT_OK(DRV(cuGraphExecDestroy)(exec));
  EXPECT_OK(DRV(cuGraphDestroy)(graph));
}

TEST_F(Graphs, MayBeLargerThanTheDevicesQueue) {
  CUdeviceptr p = Alloc(4);
  CUstream stream = NewStream();
  ASSERT_OK(Begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (int i = 0; i < 3000; ++i) ASSERT_OK(Add(p, 1, 1, stream));
  CUgraph graph;
  ASSERT_OK(DRV(cuStreamEndCapture)(stream, &graph));
  CUgraphExec exec;
  ASSERT_OK(Instantiate(&exec, graph));
  EXPECT_OK(DRV(cuGraphLaunch)(exec, stream));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_EQ(3000u, Read(p, 1)[0]);
  EXPECT_OK(DRV(cuGraphExecDestroy)(exec));
  EXPECT_OK(DRV(cuGraphDestroy)(graph));
}

// As newer headers declare them: CUgraphNodeParams with CUDA_CONDITIONAL_NODE_PARAMS.
struct ConditionalNode {
  int type = 13;
  int reserved0[3] = {};
  uint64_t handle = 0;
  int condition_type = 0;  // 0 if, 1 while, 2 switch
  unsigned int size = 1;
  CUgraph* bodies = nullptr;
  CUcontext context = nullptr;
  long long reserved[26] = {};
};
static_assert(sizeof(ConditionalNode) == 256);

// A node whose body runs, or does not, as its handle's value says at each launch.
TEST_F(Graphs, ConditionalNodesRunTheBodyThatTheirValueChooses) {
  using CreateHandle =
      CUresult (*)(uint64_t*, CUgraph, CUcontext, unsigned int value, unsigned int flags);
  using AddNode = CUresult (*)(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, ConditionalNode*);
  constexpr unsigned int kAssignDefault = 1;
  const auto create = reinterpret_cast<CreateHandle>(FindSymbol("cuGraphConditionalHandleCreate"));
  const auto add_node = reinterpret_cast<AddNode>(FindSymbol("cuGraphAddNode"));
  int version = 0;
  EXPECT_OK(DRV(cuDriverGetVersion)(&version));
  if (create == nullptr || add_node == nullptr || version < 12040) {
    GTEST_SKIP() << "the driver knows CUDA " << version << ", and conditional nodes are of 12.4";
  }
  CUdeviceptr p = Alloc(4);
  CUgraph graph;
  ASSERT_OK(DRV(cuGraphCreate)(&graph, 0));
  uint32_t n = 1, v = 1;
  void* params[] = {&p, &n, &v};
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  kernel.func = add_;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = 32;
  kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = params;
  CUgraphNode before;
  ASSERT_OK(DRV(cuGraphAddKernelNode)(&before, graph, nullptr, 0, &kernel));
  for (const auto& [value, adds] : {std::pair(1u, 10u), std::pair(0u, 100u)}) {
    ConditionalNode node;
    node.context = context_;
    ASSERT_OK(create(&node.handle, graph, context_, value, kAssignDefault));
    CUgraphNode conditional, inner;
    ASSERT_OK(add_node(&conditional, graph, &before, 1, &node));
    CUgraphNodeType type;
    EXPECT_OK(DRV(cuGraphNodeGetType)(conditional, &type));
    EXPECT_EQ(13, static_cast<int>(type));
    ASSERT_NE(nullptr, node.bodies);
    v = adds;
    ASSERT_OK(DRV(cuGraphAddKernelNode)(&inner, node.bodies[0], nullptr, 0, &kernel));
  }
  CUgraphExec exec;
  ASSERT_OK(Instantiate(&exec, graph));
  CUstream stream = NewStream();
  EXPECT_OK(DRV(cuGraphLaunch)(exec, stream));
  EXPECT_OK(DRV(cuGraphLaunch)(exec, stream));
  EXPECT_OK(DRV(cuStreamSynchronize)(stream));
  EXPECT_EQ(22u, Read(p, 1)[0]);  // twice 1 and 10, never 100
  EXPECT_OK(DRV(cuGraphExecDestroy)(exec));
  EXPECT_OK(DRV(cuGraphDestroy)(graph));
}

}  // namespace
}  // namespace baton::conformance
