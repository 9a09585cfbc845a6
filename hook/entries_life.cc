// cuInit, and the lives of contexts, streams and captures.
#include "hook/captures.h"
#include "hook/entries.h"
#include "hook/memory.h"
#include "hook/mover.h"

namespace baton::hook {

BATON_API(cuInit, (unsigned flags)) {
  BATON_REAL(cuInit);
  const CUresult result = real(flags);
  if (result == CUDA_SUCCESS && Managed()) StartOnce();
  return result;
}

// A new context is current at once.
#define BATON_CONTEXT_CREATE(name)                                          \
  BATON_API(name, (CUcontext * context, unsigned flags, CUdevice device)) { \
    BATON_REAL(name);                                                       \
    const CUresult result = real(context, flags, device);                   \
    ContextChanged();                                                       \
    return result;                                                          \
  }
BATON_CONTEXT_CREATE(cuCtxCreate)
BATON_CONTEXT_CREATE(cuCtxCreate_v2)

// `affinity`: CUexecAffinityParam*.
BATON_API(cuCtxCreate_v3,
          (CUcontext * context, void* affinity, int count, unsigned flags, CUdevice device)) {
  BATON_REAL(cuCtxCreate_v3);
  const CUresult result = real(context, affinity, count, flags, device);
  ContextChanged();
  return result;
}

// `params`: CUctxCreateParams*, which older headers lack.
BATON_API(cuCtxCreate_v4, (CUcontext * context, void* params, unsigned flags, CUdevice device)) {
  BATON_REAL(cuCtxCreate_v4);
  const CUresult result = real(context, params, flags, device);
  ContextChanged();
  return result;
}

// Afterwards another context may be current.
#define BATON_CONTEXT_CHANGE(name, Context) \
  BATON_API(name, (Context context)) {      \
    BATON_REAL(name);                       \
    const CUresult result = real(context);  \
    ContextChanged();                       \
    return result;                          \
  }
BATON_CONTEXT_CHANGE(cuCtxSetCurrent, CUcontext)
BATON_CONTEXT_CHANGE(cuCtxPushCurrent, CUcontext)
BATON_CONTEXT_CHANGE(cuCtxPushCurrent_v2, CUcontext)
BATON_CONTEXT_CHANGE(cuCtxPopCurrent, CUcontext*)
BATON_CONTEXT_CHANGE(cuCtxPopCurrent_v2, CUcontext*)

#define BATON_STREAM_DESTROY(name)                                               \
  BATON_API(name, (CUstream stream)) {                                           \
    BATON_REAL(name);                                                            \
    const uint64_t moment = CaptureMoment();                                     \
    /* What was launched into it goes on, and a drain must still see its end. */ \
    StreamGoing(stream);                                                         \
    const CUresult result = real(stream);                                        \
    if (result == CUDA_SUCCESS) CapturesGone(stream, moment);                    \
    return result;                                                               \
  }
BATON_STREAM_DESTROY(cuStreamDestroy)
BATON_STREAM_DESTROY(cuStreamDestroy_v2)

namespace {

bool Succeeded(CUresult result) { return result == CUDA_SUCCESS; }

// Ends a context by `call`, and sees to what was in it if `gone()` says that it really is.
// `has_memory`: what was allocated in it goes with it.
template <class Call, class Gone>
CUresult LeaveContext(CUcontext context, bool has_memory, Call call, Gone gone) {
  const uint64_t memory = MemoryMoment();
  const uint64_t captures = CaptureMoment();
  Gpu* gpu = ContextGoing(context);
  LockMovable(true);
  const CUresult result = call();
  const bool is_gone = gone(result);
  if (is_gone && has_memory) ForgetMovable(context);
  LockMovable(false);
  ContextLeft(gpu, context, is_gone);
  if (is_gone) {
    if (has_memory) CreditContext(context, memory);
    CapturesGone(context, captures);
  }
  ContextChanged();
  return result;
}

}  // namespace

#define BATON_CONTEXT_DESTROY(name)                               \
  BATON_API(name, (CUcontext context)) {                          \
    BATON_REAL(name);                                             \
    return LeaveContext(                                          \
        context, true, [&] { return real(context); }, Succeeded); \
  }
BATON_CONTEXT_DESTROY(cuCtxDestroy)
BATON_CONTEXT_DESTROY(cuCtxDestroy_v2)

// Only the current context can be detached from, and it is so no longer once its last user went.
BATON_API(cuCtxDetach, (CUcontext context)) {
  BATON_REAL(cuCtxDetach);
  return LeaveContext(
      context, true, [&] { return real(context); },
      [&](CUresult result) {
        CUcontext current = nullptr;
        Drv<Fn::cuCtxGetCurrent>(&current);
        return Succeeded(result) && current != context;
      });
}

// A green context has streams and events like any other, but its memory is the primary context's.
BATON_API(cuGreenCtxDestroy, (void* green)) {
  BATON_REAL(cuGreenCtxDestroy);
  CUcontext context = nullptr;
  if (!Managed() || Drv<Fn::cuCtxFromGreenCtx>(&context, green) != CUDA_SUCCESS) return real(green);
  return LeaveContext(
      context, false, [&] { return real(green); }, Succeeded);
}

namespace {

// The handle of a primary context that is alive, else null.
CUcontext PrimaryContext(CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  CUcontext context = nullptr;
  auto* release = RealAs<CUresult(CUdevice)>(Fn::cuDevicePrimaryCtxRelease_v2);
  if (release == nullptr ||
      Drv<Fn::cuDevicePrimaryCtxGetState>(device, &flags, &active) != CUDA_SUCCESS || active == 0 ||
      Drv<Fn::cuDevicePrimaryCtxRetain>(&context, device) != CUDA_SUCCESS) {
    return nullptr;
  }
  release(device);
  return context;
}

// A primary context is gone when its last user let go of it: known only afterwards.
template <class Call>
CUresult LeavePrimary(CUdevice device, Call call) {
  CUcontext context = Managed() ? PrimaryContext(device) : nullptr;
  if (context == nullptr) return call();
  return LeaveContext(context, true, call, [device](CUresult) {
    unsigned flags = 0;
    int active = 0;
    return Drv<Fn::cuDevicePrimaryCtxGetState>(device, &flags, &active) != CUDA_SUCCESS ||
           active == 0;
  });
}

}  // namespace

#define BATON_PRIMARY_LEAVE(name)                              \
  BATON_API(name, (CUdevice device)) {                         \
    BATON_REAL(name);                                          \
    return LeavePrimary(device, [&] { return real(device); }); \
  }
BATON_PRIMARY_LEAVE(cuDevicePrimaryCtxRelease)
BATON_PRIMARY_LEAVE(cuDevicePrimaryCtxRelease_v2)
BATON_PRIMARY_LEAVE(cuDevicePrimaryCtxReset)
BATON_PRIMARY_LEAVE(cuDevicePrimaryCtxReset_v2)

namespace {

// From the beginning of a capture to its end every launch of the process asks whether it is
// captured; a launch is captured, not run, and needs no token.
template <class Call>
CUresult BeginCapture(CUstream stream, Call call) {
  if (!Managed()) return call();
  Guard guard(g_capture_lock);
  bool first = false;
  if (!CaptureBegins(stream, &first)) return CUDA_ERROR_OUT_OF_MEMORY;
  // While there are captures every launch is marked at once.
  if (first) MarkBeforeCapture();
  const CUresult result = call();
  if (result != CUDA_SUCCESS) CaptureEnded(stream);
  return result;
}

template <class Call>
CUresult EndCapture(CUstream stream, Call call) {
  const CUresult result = call();
  // A failed end may leave the capture as it was (a thread that may not end it).
  if (result == CUDA_SUCCESS || !IsCapturing(stream)) CaptureEnded(stream);
  return result;
}

}  // namespace

BATON_API(cuStreamBeginCapture, (CUstream stream)) {
  BATON_REAL(cuStreamBeginCapture);
  return BeginCapture(Legacy(stream), [&] { return real(stream); });
}

BATON_API(cuStreamBeginCapture_ptsz, (CUstream stream)) {
  BATON_REAL(cuStreamBeginCapture_ptsz);
  return BeginCapture(PerThread(stream), [&] { return real(stream); });
}

BATON_API(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode)) {
  BATON_REAL(cuStreamBeginCapture_v2);
  return BeginCapture(Legacy(stream), [&] { return real(stream, mode); });
}

BATON_API(cuStreamBeginCapture_v2_ptsz, (CUstream stream, CUstreamCaptureMode mode)) {
  BATON_REAL(cuStreamBeginCapture_v2_ptsz);
  return BeginCapture(PerThread(stream), [&] { return real(stream, mode); });
}

// `edges`: const CUgraphEdgeData*, which older headers lack.
BATON_API(cuStreamBeginCaptureToGraph,
          (CUstream stream, CUgraph graph, const CUgraphNode* nodes, const void* edges,
           size_t count, CUstreamCaptureMode mode)) {
  BATON_REAL(cuStreamBeginCaptureToGraph);
  return BeginCapture(Legacy(stream),
                      [&] { return real(stream, graph, nodes, edges, count, mode); });
}

BATON_API(cuStreamBeginCaptureToGraph_ptsz,
          (CUstream stream, CUgraph graph, const CUgraphNode* nodes, const void* edges,
           size_t count, CUstreamCaptureMode mode)) {
  BATON_REAL(cuStreamBeginCaptureToGraph_ptsz);
  return BeginCapture(PerThread(stream),
                      [&] { return real(stream, graph, nodes, edges, count, mode); });
}

// `callback`: CUgraphRecaptureCallback, which older headers lack.
BATON_API(cuStreamBeginRecaptureToGraph,
          (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, void* callback, void* user)) {
  BATON_REAL(cuStreamBeginRecaptureToGraph);
  return BeginCapture(Legacy(stream), [&] { return real(stream, mode, graph, callback, user); });
}

BATON_API(cuStreamBeginRecaptureToGraph_ptsz,
          (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, void* callback, void* user)) {
  BATON_REAL(cuStreamBeginRecaptureToGraph_ptsz);
  return BeginCapture(PerThread(stream), [&] { return real(stream, mode, graph, callback, user); });
}

BATON_API(cuStreamEndCapture, (CUstream stream, CUgraph* graph)) {
  BATON_REAL(cuStreamEndCapture);
  return EndCapture(Legacy(stream), [&] { return real(stream, graph); });
}

BATON_API(cuStreamEndCapture_ptsz, (CUstream stream, CUgraph* graph)) {
  BATON_REAL(cuStreamEndCapture_ptsz);
  return EndCapture(PerThread(stream), [&] { return real(stream, graph); });
}

}  // namespace baton::hook
