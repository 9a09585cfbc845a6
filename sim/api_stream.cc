// Every entry point that takes a stream or implies the default one, but for copies. This file is
// compiled twice: as it stands for the plain names, in which no stream means the legacy one, and by
// api_stream_per_thread.cc for the _ptsz and _ptds names, in which it means the calling thread's.
#include <string.h>

#include <algorithm>

#include "sim/driver.h"
#include "sim/stream_api.h"

namespace baton::sim {
namespace {

CUresult Launch(CUstream handle, const void* f, const LaunchShape& shape, void** params,
                void** extra) {
  SIM_ENTER(handle);
  Function* function;
  if (CUresult r = GetFunction(f, &function)) return r;
  Work work;
  if (CUresult r = MakeKernelWork(function, shape, params, extra, &work)) return r;
  if (stream->capture != nullptr) {
    Node* node;
    if (CUresult r = AddCaptureNode(stream, work, &node)) return r;
    node->call.function = function;
    std::copy(shape.grid, shape.grid + 3, node->call.grid);
    std::copy(shape.block, shape.block + 3, node->call.block);
    node->call.shared_bytes = shape.shared_bytes;
    return CUDA_SUCCESS;
  }
  return Enqueue(lock, stream, work);
}

// What an event's record or a stream's wait does outside and inside a capture.
CUresult RecordEvent(CUevent handle, CUstream stream_handle) {
  SIM_ENTER(stream_handle);
  auto* event = reinterpret_cast<Event*>(handle);
  if (!IsLive(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (event->ctx != stream->ctx) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult r = CheckContext(stream->ctx)) return r;
  if (stream->capture != nullptr) {
    if (CUresult r = Capturing(stream)) return r;
    event->capture = stream->capture;
    event->capture_id = stream->capture->id;
    event->capture_deps = stream->capture_deps;
    event->op = nullptr;
    return CUDA_SUCCESS;
  }
  event->capture = nullptr;
  return Enqueue(lock, stream, Work{}, &event->op);
}

bool StillCapturing(const Event* event) {
  return event->capture != nullptr && TheDriver().captures.count(event->capture) != 0 &&
         event->capture->id == event->capture_id;
}

template <class T>
CUresult WaitValue(CUstream handle, CUdeviceptr address, T value, unsigned int flags) {
  SIM_ENTER(handle);
  if (FindAllocation(address, sizeof(T)) == nullptr || address % sizeof(T) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto* word = static_cast<const volatile T*>(AsPointer(address));
  Work work;
  work.kind = OpKind::kGate;
  work.node_type = CU_GRAPH_NODE_TYPE_EMPTY;
  switch (flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      work.condition = [word, value] {
        return static_cast<std::make_signed_t<T>>(*word - value) >= 0;
      };
      break;
    case CU_STREAM_WAIT_VALUE_EQ:
      work.condition = [word, value] { return *word == value; };
      break;
    case CU_STREAM_WAIT_VALUE_AND:
      work.condition = [word, value] { return (*word & value) != 0; };
      break;
    default:
      work.condition = [word, value] { return static_cast<T>(~(*word | value)) != 0; };
  }
  return Enqueue(lock, stream, work);
}

template <class T>
CUresult WriteValue(CUstream handle, CUdeviceptr address, T value) {
  SIM_ENTER(handle);
  if (FindAllocation(address, sizeof(T)) == nullptr || address % sizeof(T) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto* word = static_cast<volatile T*>(AsPointer(address));
  Work work;
  work.effect = [word, value] { *word = value; };
  work.prompt = !IsDeviceMemory(address);
  return Enqueue(lock, stream, work);
}

CUresult BatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* ops) {
  for (unsigned int i = 0; i < count; ++i) {
    CUresult r = CUDA_SUCCESS;
    switch (ops[i].operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        r = WaitValue<uint32_t>(stream, ops[i].waitValue.address, ops[i].waitValue.value,
                                ops[i].waitValue.flags);
        break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        r = WaitValue<uint64_t>(stream, ops[i].waitValue.address, ops[i].waitValue.value64,
                                ops[i].waitValue.flags);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        r = WriteValue<uint32_t>(stream, ops[i].writeValue.address, ops[i].writeValue.value);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        r = WriteValue<uint64_t>(stream, ops[i].writeValue.address, ops[i].writeValue.value64);
        break;
      default:
        break;  // a barrier or a flush: the order is there already
    }
    if (r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

CUresult HostFunction(CUstream handle, std::function<void()> function) {
  SIM_ENTER(handle);
  Work work;
  work.kind = OpKind::kGate;
  work.node_type = CU_GRAPH_NODE_TYPE_HOST;
  work.host_function = std::move(function);
  return Enqueue(lock, stream, work);
}

CUresult BeginCapture(CUstream handle, CUstreamCaptureMode mode, Graph* into,
                      std::vector<Node*> deps) {
  SIM_ENTER(handle);
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto* capture = new Capture;
  capture->id = TheDriver().next_id++;
  capture->mode = mode;
  capture->thread = ThreadId();
  capture->graph = into != nullptr ? into : NewGraph();
  capture->owns_graph = into == nullptr;
  capture->origin = stream;
  capture->streams.insert(stream);
  stream->capture = capture;
  stream->capture_deps = std::move(deps);
  TheDriver().captures.insert(capture);
  return CUDA_SUCCESS;
}

CUresult CaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                     const CUgraphNode** deps, size_t* dep_count) {
  SIM_ENTER(handle);
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (stream->legacy) {
    for (Stream* other : stream->ctx->streams) {
      if (other->capture != nullptr && !(other->flags & CU_STREAM_NON_BLOCKING)) {
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      }
    }
  }
  const Capture* capture = stream->capture;
  if (capture == nullptr) return CUDA_SUCCESS;
  const bool active = capture->status == CaptureStatus::kActive;
  *status = active ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  if (id != nullptr) *id = capture->id;
  if (!active) return CUDA_SUCCESS;
  if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(capture->graph);
  if (deps != nullptr) *deps = reinterpret_cast<const CUgraphNode*>(stream->capture_deps.data());
  if (dep_count != nullptr) *dep_count = stream->capture_deps.size();
  return CUDA_SUCCESS;
}

CUresult UpdateCaptureDependencies(CUstream handle, CUgraphNode* deps, size_t count,
                                   unsigned int flags) {
  SIM_ENTER(handle);
  if (CUresult r = Capturing(stream)) return r;
  auto** nodes = reinterpret_cast<Node**>(deps);
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->capture_deps.clear();
  stream->capture_deps.insert(stream->capture_deps.end(), nodes, nodes + count);
  return CUDA_SUCCESS;
}

}  // namespace

SIM_STREAM_API(cuLaunchKernel, _ptsz,
               (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                unsigned int by, unsigned int bz, unsigned int shared, CUstream stream,
                void** params, void** extra)) {
  return Launch(stream, f, {{gx, gy, gz}, {bx, by, bz}, shared}, params, extra);
}

SIM_STREAM_API(cuLaunchKernelEx, _ptsz,
               (const CUlaunchConfig* c, CUfunction f, void** params, void** extra)) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Launch(c->hStream, f,
                {{c->gridDimX, c->gridDimY, c->gridDimZ},
                 {c->blockDimX, c->blockDimY, c->blockDimZ},
                 c->sharedMemBytes},
                params, extra);
}

SIM_STREAM_API(cuLaunchCooperativeKernel, _ptsz,
               (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                unsigned int by, unsigned int bz, unsigned int shared, CUstream stream,
                void** params)) {
  // 108 multiprocessors hold two blocks of 1024 threads each.
  if (uint64_t{gx} * gy * gz * bx * by * bz > uint64_t{108} * 2048) {
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return Launch(stream, f, {{gx, gy, gz}, {bx, by, bz}, shared}, params, nullptr);
}

SIM_STREAM_API(cuLaunchHostFunc, _ptsz, (CUstream stream, CUhostFn function, void* user)) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return HostFunction(stream, [function, user] { function(user); });
}

SIM_STREAM_API(cuStreamAddCallback, _ptsz,
               (CUstream handle, CUstreamCallback callback, void* user, unsigned int flags)) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  {
    SIM_ENTER(handle);
    if (stream->capture != nullptr) {
      InvalidateCapture(stream->capture);
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  return HostFunction(handle, [=] { callback(handle, CUDA_SUCCESS, user); });
}

SIM_STREAM_API(cuGraphLaunch, _ptsz, (CUgraphExec handle, CUstream stream_handle)) {
  SIM_ENTER(stream_handle);
  auto* exec = reinterpret_cast<GraphExec*>(handle);
  if (!IsLive(exec)) return CUDA_ERROR_INVALID_VALUE;
  return LaunchGraph(lock, exec, stream);
}

SIM_STREAM_API(cuGraphUpload, _ptsz, (CUgraphExec handle, CUstream stream_handle)) {
  SIM_ENTER(stream_handle);
  return IsLive(reinterpret_cast<GraphExec*>(handle)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_STREAM_API(cuGraphInstantiateWithParams, _ptsz, (CUgraphExec * out, CUgraph graph, void* p)) {
  // CUDA_GRAPH_INSTANTIATE_PARAMS.
  struct Params {
    cuuint64_t flags;
    CUstream upload;
    CUgraphNode error_node;
    int result;
  };
  auto* params = static_cast<Params*>(p);
  if (out == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(TheDriver().mutex);
  GraphExec* exec;
  const CUresult r = InstantiateGraph(reinterpret_cast<Graph*>(graph), params->flags, &exec);
  params->error_node = nullptr;
  params->result = r == CUDA_SUCCESS ? 0 : 1;
  if (r == CUDA_SUCCESS) *out = reinterpret_cast<CUgraphExec>(exec);
  return r;
}

SIM_STREAM_API(cuStreamGetPriority, _ptsz, (CUstream handle, int* priority)) {
  SIM_ENTER(handle);
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

SIM_STREAM_API(cuStreamGetFlags, _ptsz, (CUstream handle, unsigned int* flags)) {
  SIM_ENTER(handle);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

SIM_STREAM_API(cuStreamGetId, _ptsz, (CUstream handle, unsigned long long* id)) {
  SIM_ENTER(handle);
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = stream->id;
  return CUDA_SUCCESS;
}

SIM_STREAM_API(cuStreamGetCtx, _ptsz, (CUstream handle, CUcontext* ctx)) {
  SIM_ENTER(handle);
  if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *ctx = reinterpret_cast<CUcontext>(stream->ctx);
  return CUDA_SUCCESS;
}

SIM_STREAM_API(cuStreamGetCtx_v2, _ptsz, (CUstream handle, CUcontext* ctx, void** green)) {
  SIM_ENTER(handle);
  if (ctx != nullptr) *ctx = reinterpret_cast<CUcontext>(stream->ctx);
  if (green != nullptr) *green = nullptr;
  return CUDA_SUCCESS;
}

SIM_STREAM_API(cuStreamGetDevice, _ptsz, (CUstream handle, CUdevice* device)) {
  SIM_ENTER(handle);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = stream->ctx->dev->ordinal;
  return CUDA_SUCCESS;
}

SIM_STREAM_API(cuStreamQuery, _ptsz, (CUstream handle)) {
  SIM_ENTER(handle);
  if (stream->capture != nullptr) {
    InvalidateCapture(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (CUresult r = CheckUnsafe()) return r;
  Refresh(lock, stream->ctx->dev);
  if (stream->ctx->error != CUDA_SUCCESS) return stream->ctx->error;
  for (const OpPtr& op : StreamDeps(stream)) {
    // A blocking stream waits for the legacy one only once it has work that does.
    if ((op == stream->last || stream->legacy) && !op->done) return CUDA_ERROR_NOT_READY;
  }
  return CUDA_SUCCESS;
}

SIM_STREAM_API(cuStreamSynchronize, _ptsz, (CUstream handle)) {
  SIM_ENTER(handle);
  if (stream->capture != nullptr) {
    InvalidateCapture(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (CUresult r = CheckUnsafe()) return r;
  Ctx* ctx = stream->ctx;
  const OpPtr last = stream->last;
  const std::vector<OpPtr> deps = stream->legacy ? StreamDeps(stream) : std::vector<OpPtr>{};
  if (CUresult r = WaitFor(lock, last)) return r;
  for (const OpPtr& op : deps) {
    if (CUresult r = WaitFor(lock, op)) return r;
  }
  TrimPools(ctx->dev);
  return ctx->error;
}

SIM_STREAM_API(cuStreamWaitEvent, _ptsz, (CUstream handle, CUevent event_handle, unsigned int)) {
  SIM_ENTER(handle);
  auto* event = reinterpret_cast<Event*>(event_handle);
  if (!IsLive(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult r = CheckContext(stream->ctx)) return r;
  if (StillCapturing(event)) {
    Capture* capture = event->capture;
    if (stream->legacy) {
      InvalidateCapture(capture);
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (stream->capture != nullptr && stream->capture != capture) {
      InvalidateCapture(capture);
      InvalidateCapture(stream->capture);
      return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (capture->status != CaptureStatus::kActive) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->capture == nullptr) {
      stream->capture = capture;
      stream->capture_deps.clear();
      capture->streams.insert(stream);
    }
    for (Node* node : event->capture_deps) {
      auto& deps = stream->capture_deps;
      if (std::find(deps.begin(), deps.end(), node) == deps.end()) deps.push_back(node);
    }
    return CUDA_SUCCESS;
  }
  if (stream->capture != nullptr) {
    if (event->op == nullptr || event->op->done) {
      // Waiting for what was not recorded does nothing, in a capture too.
      if (event->op == nullptr) return CUDA_SUCCESS;
    }
    InvalidateCapture(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (event->op == nullptr || event->op->done) return CUDA_SUCCESS;
  std::vector<OpPtr> deps = StreamDeps(stream);
  deps.push_back(event->op);
  stream->last = Submit(lock, stream->ctx, stream->id, Work{}, std::move(deps));
  return CUDA_SUCCESS;
}

SIM_STREAM_API(cuStreamAttachMemAsync, _ptsz,
               (CUstream handle, CUdeviceptr, size_t, unsigned int)) {
  SIM_ENTER(handle);
  return CUDA_SUCCESS;
}

SIM_STREAM_API(cuStreamCopyAttributes, _ptsz, (CUstream, CUstream handle)) {
  SIM_ENTER(handle);
  return CUDA_SUCCESS;
}

SIM_STREAM_API(cuStreamGetAttribute, _ptsz,
               (CUstream handle, CUstreamAttrID, CUstreamAttrValue* value)) {
  SIM_ENTER(handle);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  memset(value, 0, sizeof(*value));
  return CUDA_SUCCESS;
}

SIM_STREAM_API(cuStreamSetAttribute, _ptsz,
               (CUstream handle, CUstreamAttrID, const CUstreamAttrValue* value)) {
  SIM_ENTER(handle);
  return value == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_STREAM_API(cuStreamWaitValue32, _ptsz,
               (CUstream s, CUdeviceptr p, cuuint32_t value, unsigned int flags)) {
  return WaitValue<uint32_t>(s, p, value, flags);
}
SIM_STREAM_API(cuStreamWaitValue32_v2, _ptsz,
               (CUstream s, CUdeviceptr p, cuuint32_t value, unsigned int flags)) {
  return WaitValue<uint32_t>(s, p, value, flags);
}
SIM_STREAM_API(cuStreamWaitValue64, _ptsz,
               (CUstream s, CUdeviceptr p, cuuint64_t value, unsigned int flags)) {
  return WaitValue<uint64_t>(s, p, value, flags);
}
SIM_STREAM_API(cuStreamWaitValue64_v2, _ptsz,
               (CUstream s, CUdeviceptr p, cuuint64_t value, unsigned int flags)) {
  return WaitValue<uint64_t>(s, p, value, flags);
}
SIM_STREAM_API(cuStreamWriteValue32, _ptsz,
               (CUstream s, CUdeviceptr p, cuuint32_t value, unsigned int)) {
  return WriteValue<uint32_t>(s, p, value);
}
SIM_STREAM_API(cuStreamWriteValue32_v2, _ptsz,
               (CUstream s, CUdeviceptr p, cuuint32_t value, unsigned int)) {
  return WriteValue<uint32_t>(s, p, value);
}
SIM_STREAM_API(cuStreamWriteValue64, _ptsz,
               (CUstream s, CUdeviceptr p, cuuint64_t value, unsigned int)) {
  return WriteValue<uint64_t>(s, p, value);
}
SIM_STREAM_API(cuStreamWriteValue64_v2, _ptsz,
               (CUstream s, CUdeviceptr p, cuuint64_t value, unsigned int)) {
  return WriteValue<uint64_t>(s, p, value);
}
SIM_STREAM_API(cuStreamBatchMemOp, _ptsz,
               (CUstream s, unsigned int n, CUstreamBatchMemOpParams* ops, unsigned int)) {
  return BatchMemOp(s, n, ops);
}
SIM_STREAM_API(cuStreamBatchMemOp_v2, _ptsz,
               (CUstream s, unsigned int n, CUstreamBatchMemOpParams* ops, unsigned int)) {
  return BatchMemOp(s, n, ops);
}

SIM_STREAM_API(cuEventRecord, _ptsz, (CUevent event, CUstream stream)) {
  return RecordEvent(event, stream);
}

SIM_STREAM_API(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned int)) {
  return RecordEvent(event, stream);
}

#ifndef BATON_SIM_PER_THREAD
SIM_API(cuStreamBeginCapture, (CUstream stream)) {
  return BeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {});
}
#else
SIM_API(cuStreamBeginCapture_ptsz, (CUstream stream)) {
  return BeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {});
}
#endif

SIM_STREAM_API(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, CUstreamCaptureMode mode)) {
  return BeginCapture(stream, mode, nullptr, {});
}

SIM_STREAM_API(cuStreamBeginCaptureToGraph, _ptsz,
               (CUstream stream, CUgraph graph, const CUgraphNode* deps, const void*, size_t count,
                CUstreamCaptureMode mode)) {
  auto* const* nodes = reinterpret_cast<Node* const*>(deps);
  return BeginCapture(stream, mode, reinterpret_cast<Graph*>(graph), {nodes, nodes + count});
}

SIM_STREAM_API(cuStreamEndCapture, _ptsz, (CUstream handle, CUgraph* graph)) {
  SIM_ENTER(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = nullptr;
  Capture* capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) {
    InvalidateCapture(capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != ThreadId()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  CUresult r = CUDA_SUCCESS;
  if (capture->status != CaptureStatus::kActive) {
    r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else {
    // Every other stream's last node must lead to what this stream has waited for.
    std::set<Node*> joined(stream->capture_deps.begin(), stream->capture_deps.end());
    std::vector<Node*> open(joined.begin(), joined.end());
    while (!open.empty()) {
      Node* node = open.back();
      open.pop_back();
      for (Node* dep : node->deps) {
        if (joined.insert(dep).second) open.push_back(dep);
      }
    }
    for (Stream* other : capture->streams) {
      for (Node* node : other->capture_deps) {
        if (joined.count(node) == 0) r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
      }
    }
  }
  for (Stream* other : capture->streams) {
    other->capture = nullptr;
    other->capture_deps.clear();
  }
  if (r == CUDA_SUCCESS) {
    *graph = reinterpret_cast<CUgraph>(capture->graph);
  } else if (capture->owns_graph) {
    DeleteGraph(capture->graph);
  }
  TheDriver().captures.erase(capture);
  delete capture;
  return r;
}

SIM_STREAM_API(cuStreamIsCapturing, _ptsz, (CUstream stream, CUstreamCaptureStatus* status)) {
  return CaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr);
}

SIM_STREAM_API(cuStreamGetCaptureInfo, _ptsz,
               (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id)) {
  return CaptureInfo(stream, status, id, nullptr, nullptr, nullptr);
}

SIM_STREAM_API(cuStreamGetCaptureInfo_v2, _ptsz,
               (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                const CUgraphNode** deps, size_t* count)) {
  return CaptureInfo(stream, status, id, graph, deps, count);
}

SIM_STREAM_API(cuStreamGetCaptureInfo_v3, _ptsz,
               (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                const CUgraphNode** deps, const void** edges, size_t* count)) {
  if (edges != nullptr) *edges = nullptr;
  return CaptureInfo(stream, status, id, graph, deps, count);
}

SIM_STREAM_API(cuStreamUpdateCaptureDependencies, _ptsz,
               (CUstream stream, CUgraphNode* deps, size_t count, unsigned int flags)) {
  return UpdateCaptureDependencies(stream, deps, count, flags);
}

SIM_STREAM_API(cuStreamUpdateCaptureDependencies_v2, _ptsz,
               (CUstream stream, CUgraphNode* deps, const void*, size_t count,
                unsigned int flags)) {
  return UpdateCaptureDependencies(stream, deps, count, flags);
}

}  // namespace baton::sim
