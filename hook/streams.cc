#include "hook/streams.h"

#include "hook/driver.h"
#include "hook/gpu.h"

namespace baton::hook {
namespace {

constexpr int kContextsMax = 256;

Context g_contexts[kContextsMax];
std::atomic<int> g_context_count{0};
Lock g_contexts_lock;

}  // namespace

bool IsDefault(CUstream handle) {
  return handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
}

bool ContextOfStream(CUstream stream, CUcontext* context) {
  *context = nullptr;
  if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
    return Drv<Fn::cuCtxGetCurrent>(context) == CUDA_SUCCESS && *context != nullptr;
  }
  if (Drv<Fn::cuStreamGetCtx>(stream, context) == CUDA_SUCCESS && *context != nullptr) return true;
  // Of a stream of a green context: the context that it stands for.
  void* green = nullptr;
  if (Drv<Fn::cuStreamGetCtx_v2>(stream, context, &green) != CUDA_SUCCESS) return false;
  return *context != nullptr || Drv<Fn::cuCtxFromGreenCtx>(context, green) == CUDA_SUCCESS;
}

HookCalls::HookCalls(CUcontext context) {
  CUcontext current = nullptr;
  Drv<Fn::cuCtxGetCurrent>(&current);
  if (current == context) return;
  auto* push = RealAs<CUresult(CUcontext)>(Fn::cuCtxPushCurrent_v2);
  pushed_ = push != nullptr && push(context) == CUDA_SUCCESS;
}

HookCalls::~HookCalls() {
  if (!pushed_) return;
  CUcontext popped = nullptr;
  if (auto* pop = RealAs<CUresult(CUcontext*)>(Fn::cuCtxPopCurrent_v2)) pop(&popped);
}

void AwaitLeft(const Context* context) {
  if (context->going.load()) Guard guard(context->gpu->meter.leaving);
}

Context* ContextOf(CUcontext handle) {
  const int count = g_context_count.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    if (g_contexts[i].handle == handle) AwaitLeft(&g_contexts[i]);
    if (g_contexts[i].handle == handle && !g_contexts[i].gone.load()) return &g_contexts[i];
  }
  CUdevice device = 0;
  {
    HookCalls calls(handle);
    if (Drv<Fn::cuCtxGetDevice>(&device) != CUDA_SUCCESS) return nullptr;
  }
  Gpu* gpu = GpuOf(device);
  if (gpu == nullptr) return nullptr;
  Guard guard(g_contexts_lock);
  const int now = g_context_count.load(std::memory_order_relaxed);
  int at = -1;
  for (int i = 0; i < now; ++i) {
    if (g_contexts[i].gone.load()) {
      if (at < 0) at = i;
    } else if (g_contexts[i].handle == handle) {
      return &g_contexts[i];
    }
  }
  if (at < 0) at = now;
  if (at == kContextsMax) return nullptr;
  Context& c = g_contexts[at];
  c.handle = handle;
  c.gpu = gpu;
  c.pooled = 0;
  c.gone.store(false);
  if (at == now) g_context_count.store(now + 1, std::memory_order_release);
  return &c;
}

Stream* StreamOf(Context* context, CUstream handle, const Slot* owner) {
  Meter& meter = context->gpu->meter;
  Guard guard(meter.streams_lock);
  Stream* free = nullptr;
  for (Stream* s = meter.streams.load(); s != nullptr; s = s->next) {
    if (s->gone.load()) {
      if (s->count.load() == 0 && !s->WaitsForHost()) free = s;
      continue;
    }
    if (s->handle == handle && s->context == context && s->owner == owner) return s;
  }
  // Tried only: who holds it may wait for the list.
  if (free != nullptr && !free->lock.TryAcquire()) free = nullptr;
  Stream* s = free != nullptr ? free : New<Stream>();
  if (s == nullptr) return nullptr;
  if (free == nullptr) s->lock.Acquire();  // nobody else knows it yet
  if (s->previous != nullptr) ReturnEvent(s->context, s->previous);
  s->handle = handle;
  s->context = context;
  s->owner = owner;
  s->first = 0;
  s->previous = nullptr;
  s->gone.store(false);
  if (free == nullptr) {
    s->next = meter.streams.load();
    meter.streams.store(s, std::memory_order_release);
  }
  s->lock.Release();
  return s;
}

CUresult RecordEvent(Stream* stream, CUevent* out) {
  Context* context = stream->context;
  CUevent event = nullptr;
  {
    Guard guard(context->lock);
    if (context->gone.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (context->pooled > 0) event = context->pool[--context->pooled];
  }
  CUresult r = CUDA_SUCCESS;
  if (event == nullptr) r = Drv<Fn::cuEventCreate>(&event, 0u);
  if (r != CUDA_SUCCESS) return r;
  r = Drv<Fn::cuEventRecord>(event, stream->handle);
  if (r == CUDA_SUCCESS) {
    *out = event;
  } else if (auto* destroy = RealAs<CUresult(CUevent)>(Fn::cuEventDestroy_v2)) {
    destroy(event);  // it may belong to a capture now
  }
  return r;
}

void ReturnEvent(Context* context, CUevent event) {
  {
    Guard guard(context->lock);
    if (context->gone.load()) return;
    if (context->pooled < Context::kPool) {
      context->pool[context->pooled++] = event;
      return;
    }
  }
  if (auto* destroy = RealAs<CUresult(CUevent)>(Fn::cuEventDestroy_v2)) destroy(event);
}

Context* KnownContext(int index) {
  return index < g_context_count.load(std::memory_order_acquire) ? &g_contexts[index] : nullptr;
}

void ForgetStreams() {
  g_context_count.store(0);
  g_contexts_lock.Reset();
  for (Context& c : g_contexts) c.lock.Reset();
}

}  // namespace baton::hook
