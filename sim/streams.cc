// Streams, events and captures: what does not depend on how a default stream is spelled.
#include <math.h>

#include <algorithm>

#include "sim/driver.h"

namespace baton::sim {
namespace {

thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

Stream* NewStream(Ctx* ctx, unsigned int flags, int priority) {
  auto* stream = new Stream;
  stream->ctx = ctx;
  stream->id = TheDriver().next_id++;
  stream->flags = flags;
  stream->priority = std::clamp(priority, -5, 0);
  ctx->streams.insert(stream);
  TheDriver().live.insert(stream);
  return stream;
}

CUresult CreateStream(CUstream* out, unsigned int flags, int priority) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  if (out == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUstream>(NewStream(ctx, flags, priority));
  return CUDA_SUCCESS;
}

// Its work goes on; only the handle is gone.
CUresult DestroyStream(CUstream handle) {
  Lock lock(TheDriver().mutex);
  if (CUresult r = CheckInitialized()) return r;
  auto* stream = reinterpret_cast<Stream*>(handle);
  if (!IsLive(stream) || stream->legacy || stream->per_thread) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr) InvalidateCapture(stream->capture);
  if (Capture* capture = stream->capture) {
    capture->streams.erase(stream);
    if (capture->origin == stream) {
      for (Stream* other : capture->streams) {
        other->capture = nullptr;
        other->capture_deps.clear();
      }
      TheDriver().captures.erase(capture);
      delete capture;
    }
  }
  // The legacy stream still follows what this one held.
  Ctx* ctx = stream->ctx;
  if (!(stream->flags & CU_STREAM_NON_BLOCKING) && stream->last != nullptr && !stream->last->done &&
      ctx->error == CUDA_SUCCESS) {
    std::vector<OpPtr> deps{stream->last};
    if (ctx->orphaned != nullptr) deps.push_back(ctx->orphaned);
    ctx->orphaned = Submit(lock, ctx, ctx->legacy.id, Work{}, std::move(deps));
  }
  ctx->streams.erase(stream);
  TheDriver().live.erase(stream);
  delete stream;
  return CUDA_SUCCESS;
}

CUresult DestroyEvent(CUevent handle) {
  Lock lock(TheDriver().mutex);
  if (CUresult r = CheckInitialized()) return r;
  auto* event = reinterpret_cast<Event*>(handle);
  if (!IsLive(event)) return CUDA_ERROR_INVALID_HANDLE;
  TheDriver().live.erase(event);
  delete event;
  return CUDA_SUCCESS;
}

// To ask after an event of a capture is no part of it, and spoils it.
CUresult RefuseCaptured(const Event* event) {
  if (TheDriver().captures.count(event->capture) != 0 && event->capture->id == event->capture_id) {
    InvalidateCapture(event->capture);
  }
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult ElapsedTime(float* ms, CUevent from_handle, CUevent to_handle) {
  Lock lock(TheDriver().mutex);
  if (CUresult r = CheckInitialized()) return r;
  auto* from = reinterpret_cast<Event*>(from_handle);
  auto* to = reinterpret_cast<Event*>(to_handle);
  if (!IsLive(from) || !IsLive(to) || from->ctx != to->ctx) return CUDA_ERROR_INVALID_HANDLE;
  if (ms == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING) || from->op == nullptr ||
      to->op == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  Refresh(lock, from->ctx->dev);
  if (from->ctx->error != CUDA_SUCCESS) return from->ctx->error;
  if (!from->op->done || !to->op->done) return CUDA_ERROR_NOT_READY;
  *ms = static_cast<float>(static_cast<double>(to->op->ended_at - from->op->ended_at) / 1e6);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult GetStream(CUstream handle, bool per_thread, Stream** out) {
  const auto value = reinterpret_cast<uintptr_t>(handle);
  if (value > 2) {
    if (CUresult r = CheckInitialized()) return r;
    auto* stream = reinterpret_cast<Stream*>(handle);
    if (!IsLive(stream)) {
      // A destroyed context takes its streams along.
      return CUDA_ERROR_INVALID_HANDLE;
    }
    *out = stream;
    return CheckContext(stream->ctx);
  }
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  if (value == 1 || (value == 0 && !per_thread)) {
    *out = &ctx->legacy;
    return CUDA_SUCCESS;
  }
  static thread_local std::map<uint64_t, Stream*> own;  // by context id and device
  Stream*& stream = own[ctx->id * 64 + static_cast<uint64_t>(ctx->dev->ordinal)];
  if (stream == nullptr) {
    stream = NewStream(ctx, 0, 0);
    stream->per_thread = true;
  }
  *out = stream;
  return CUDA_SUCCESS;
}

void InvalidateCapture(Capture* capture) { capture->status = CaptureStatus::kInvalidated; }

CUresult Capturing(Stream* stream) {
  if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  return stream->capture->status == CaptureStatus::kActive ? CUDA_SUCCESS
                                                           : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult CheckUnsafe() {
  if (TheDriver().captures.empty() || capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_SUCCESS;
  }
  CUresult r = CUDA_SUCCESS;
  for (Capture* capture : TheDriver().captures) {
    if (capture->status != CaptureStatus::kActive) continue;
    const bool mine = capture->thread == ThreadId();
    const bool barred = (mine && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED) ||
                        (capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                         capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    if (!barred) continue;
    InvalidateCapture(capture);
    r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return r;
}

CUresult AddCaptureNode(Stream* stream, const Work& work, Node** out) {
  if (CUresult r = Capturing(stream)) return r;
  Node* node = AddNode(stream->capture->graph, work.node_type, work, stream->capture_deps);
  stream->capture_deps = {node};
  if (out != nullptr) *out = node;
  return CUDA_SUCCESS;
}

SIM_API(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode)) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = CheckInitialized()) return r;
  if (*mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::swap(*mode, capture_mode);
  return CUDA_SUCCESS;
}

SIM_API(cuStreamCreate, (CUstream * stream, unsigned int flags)) {
  return CreateStream(stream, flags, 0);
}
SIM_API(cuStreamCreateWithPriority, (CUstream * stream, unsigned int flags, int priority)) {
  return CreateStream(stream, flags, priority);
}
SIM_API(cuStreamDestroy, (CUstream stream)) { return DestroyStream(stream); }
SIM_API(cuStreamDestroy_v2, (CUstream stream)) { return DestroyStream(stream); }

SIM_API(cuEventCreate, (CUevent * out, unsigned int flags)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  if (out == nullptr || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  auto* event = new Event;
  event->ctx = ctx;
  event->flags = flags;
  TheDriver().live.insert(event);
  *out = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

SIM_API(cuEventDestroy, (CUevent event)) { return DestroyEvent(event); }
SIM_API(cuEventDestroy_v2, (CUevent event)) { return DestroyEvent(event); }

SIM_API(cuEventQuery, (CUevent handle)) {
  Lock lock(TheDriver().mutex);
  if (CUresult r = CheckInitialized()) return r;
  auto* event = reinterpret_cast<Event*>(handle);
  if (!IsLive(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture != nullptr) return RefuseCaptured(event);
  if (CUresult r = CheckUnsafe()) return r;
  if (CUresult r = CheckContext(event->ctx)) return r;
  if (event->op == nullptr || event->op->done) return CUDA_SUCCESS;
  const OpPtr op = event->op;
  Ctx* ctx = event->ctx;
  Refresh(lock, ctx->dev);
  if (ctx->error != CUDA_SUCCESS) return ctx->error;
  return op->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIM_API(cuEventSynchronize, (CUevent handle)) {
  Lock lock(TheDriver().mutex);
  if (CUresult r = CheckInitialized()) return r;
  auto* event = reinterpret_cast<Event*>(handle);
  if (!IsLive(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture != nullptr) return RefuseCaptured(event);
  if (CUresult r = CheckUnsafe()) return r;
  if (CUresult r = CheckContext(event->ctx)) return r;
  const OpPtr op = event->op;
  return WaitFor(lock, op);
}

SIM_API(cuEventElapsedTime, (float* ms, CUevent from, CUevent to)) {
  return ElapsedTime(ms, from, to);
}
SIM_API(cuEventElapsedTime_v2, (float* ms, CUevent from, CUevent to)) {
  return ElapsedTime(ms, from, to);
}

}  // namespace baton::sim
