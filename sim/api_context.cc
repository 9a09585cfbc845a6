// Contexts: primary and others, and which of them a thread works in.
#include <algorithm>

#include "sim/driver.h"
#include "sim/memory.h"

namespace baton::sim {
namespace {

size_t DefaultLimit(CUlimit limit) {
  switch (static_cast<int>(limit)) {
    case CU_LIMIT_STACK_SIZE:
      return 1024;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      return 1 << 20;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      return 8 << 20;
    default:
      return 0;
  }
}

size_t LimitOf(const Ctx* ctx, CUlimit limit) {
  const auto it = ctx->limits.find(limit);
  return it != ctx->limits.end() ? it->second : DefaultLimit(limit);
}

// How often the device takes what a limit says: once for the heaps of printf and of malloc in
// kernels, a stack for each thread that it can have at a time, and nothing for the others.
size_t TimesTaken(CUlimit limit) {
  if (limit == CU_LIMIT_PRINTF_FIFO_SIZE || limit == CU_LIMIT_MALLOC_HEAP_SIZE) return 1;
  return limit == CU_LIMIT_STACK_SIZE ? size_t{kProcessors} * kThreadsPerProcessor : 0;
}

// What every context has of it is not counted.
CUresult ResizeHeap(Ctx* ctx, CUlimit limit, size_t bytes) {
  const auto beyond = [&](size_t all) {
    const size_t more = all > DefaultLimit(limit) ? all - DefaultLimit(limit) : 0;
    return RoundUp(more * TimesTaken(limit), kPage);
  };
  const size_t was = beyond(LimitOf(ctx, limit)), is = beyond(bytes);
  if (is > was && !Charge(ctx->dev, is - was)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (is < was) Uncharge(ctx->dev, was - is);
  ctx->own_bytes += is - was;
  return CUDA_SUCCESS;
}

CUresult CurrentOrNull(Ctx** ctx) {
  if (CUresult r = CheckInitialized()) return r;
  auto& stack = ContextStack();
  *ctx = stack.empty() ? nullptr : stack.back();
  return CUDA_SUCCESS;
}

CUresult GetCtx(CUcontext handle, Ctx** ctx) {
  *ctx = reinterpret_cast<Ctx*>(handle);
  return IsLive(*ctx) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUcontext Handle(Ctx* ctx) { return reinterpret_cast<CUcontext>(ctx); }

CUresult CreateContext(CUcontext* out, unsigned int flags, CUdevice device) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  if (out == nullptr || flags >= 512) return CUDA_ERROR_INVALID_VALUE;
  Ctx* ctx;
  if (CUresult r = NewContext(dev, flags, false, &ctx)) return r;
  ContextStack().push_back(ctx);
  *out = Handle(ctx);
  return CUDA_SUCCESS;
}

CUresult RetainPrimary(Dev* dev, Ctx** ctx) {
  if (dev->primary == nullptr) {
    if (CUresult r = NewContext(dev, dev->primary_flags, true, &dev->primary)) return r;
  }
  ++dev->primary_refs;
  *ctx = dev->primary;
  return CUDA_SUCCESS;
}

CUresult SynchronizeContext(Lock& lock, Ctx* ctx) {
  for (Capture* capture : TheDriver().captures) {
    if (capture->origin->ctx == ctx && capture->status == CaptureStatus::kActive) {
      InvalidateCapture(capture);
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  if (CUresult r = CheckUnsafe()) return r;
  CUresult r = WaitForContext(lock, ctx);
  if (r == CUDA_SUCCESS) TrimPools(ctx->dev);
  return r;
}

}  // namespace

SIM_API(cuDevicePrimaryCtxRetain, (CUcontext * out, CUdevice device)) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Ctx* ctx;
  if (CUresult r = RetainPrimary(dev, &ctx)) return r;
  *out = Handle(ctx);
  return CUDA_SUCCESS;
}

static CUresult ReleasePrimary(CUdevice device, bool reset) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  // A reset does not release: who retained the context before may still release it afterwards.
  if (!reset && dev->primary_refs == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (!reset && --dev->primary_refs > 0) return CUDA_SUCCESS;
  Ctx* ctx = dev->primary;
  dev->primary = nullptr;
  if (ctx != nullptr) DestroyCtx(lock, ctx);
  return CUDA_SUCCESS;
}
SIM_API(cuDevicePrimaryCtxRelease, (CUdevice device)) { return ReleasePrimary(device, false); }
SIM_API(cuDevicePrimaryCtxRelease_v2, (CUdevice device)) { return ReleasePrimary(device, false); }
SIM_API(cuDevicePrimaryCtxReset, (CUdevice device)) { return ReleasePrimary(device, true); }
SIM_API(cuDevicePrimaryCtxReset_v2, (CUdevice device)) { return ReleasePrimary(device, true); }

static CUresult SetPrimaryFlags(CUdevice device, unsigned int flags, bool anytime) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  if (flags >= 512) return CUDA_ERROR_INVALID_VALUE;
  if (dev->primary != nullptr && !anytime) return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
  dev->primary_flags = flags;
  if (dev->primary != nullptr) dev->primary->flags = flags;
  return CUDA_SUCCESS;
}
SIM_API(cuDevicePrimaryCtxSetFlags, (CUdevice device, unsigned int flags)) {
  return SetPrimaryFlags(device, flags, false);
}
SIM_API(cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned int flags)) {
  return SetPrimaryFlags(device, flags, true);
}

SIM_API(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int* flags, int* active)) {
  Lock lock(TheDriver().mutex);
  Dev* dev;
  if (CUresult r = GetDev(device, &dev)) return r;
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = dev->primary_flags;
  *active = dev->primary != nullptr;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxCreate, (CUcontext * ctx, unsigned int flags, CUdevice device)) {
  return CreateContext(ctx, flags, device);
}
SIM_API(cuCtxCreate_v2, (CUcontext * ctx, unsigned int flags, CUdevice device)) {
  return CreateContext(ctx, flags, device);
}
SIM_API(cuCtxCreate_v3,
        (CUcontext * ctx, void*, int affinities, unsigned int flags, CUdevice device)) {
  if (affinities != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return CreateContext(ctx, flags, device);
}
SIM_API(cuCtxCreate_v4, (CUcontext * ctx, void* params, unsigned int flags, CUdevice device)) {
  // CUctxCreateParams: affinities, their number, CIG parameters.
  struct Params {
    void* affinities;
    int count;
    void* cig;
  };
  const auto* p = static_cast<const Params*>(params);
  if (p != nullptr && (p->count != 0 || p->cig != nullptr)) return CUDA_ERROR_NOT_SUPPORTED;
  return CreateContext(ctx, flags, device);
}

static CUresult DestroyContextHandle(CUcontext handle) {
  Lock lock(TheDriver().mutex);
  if (CUresult r = CheckInitialized()) return r;
  Ctx* ctx;
  if (CUresult r = GetCtx(handle, &ctx)) return r;
  if (ctx->primary) return CUDA_ERROR_INVALID_CONTEXT;
  DestroyCtx(lock, ctx);
  // Where it is the calling thread's current one, it is popped; other threads keep it, destroyed.
  auto& stack = ContextStack();
  if (!stack.empty() && stack.back() == ctx) stack.pop_back();
  return CUDA_SUCCESS;
}
SIM_API(cuCtxDestroy, (CUcontext ctx)) { return DestroyContextHandle(ctx); }
SIM_API(cuCtxDestroy_v2, (CUcontext ctx)) { return DestroyContextHandle(ctx); }

static CUresult PushContext(CUcontext handle) {
  Lock lock(TheDriver().mutex);
  if (CUresult r = CheckInitialized()) return r;
  Ctx* ctx;
  if (CUresult r = GetCtx(handle, &ctx)) return r;
  ContextStack().push_back(ctx);
  return CUDA_SUCCESS;
}
SIM_API(cuCtxPushCurrent, (CUcontext ctx)) { return PushContext(ctx); }
SIM_API(cuCtxPushCurrent_v2, (CUcontext ctx)) { return PushContext(ctx); }

static CUresult PopContext(CUcontext* out) {
  Lock lock(TheDriver().mutex);
  if (CUresult r = CheckInitialized()) return r;
  auto& stack = ContextStack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (out != nullptr) *out = Handle(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}
SIM_API(cuCtxPopCurrent, (CUcontext * ctx)) { return PopContext(ctx); }
SIM_API(cuCtxPopCurrent_v2, (CUcontext * ctx)) { return PopContext(ctx); }

SIM_API(cuCtxSetCurrent, (CUcontext handle)) {
  Lock lock(TheDriver().mutex);
  if (CUresult r = CheckInitialized()) return r;
  auto& stack = ContextStack();
  if (handle == nullptr) {
    if (!stack.empty()) stack.pop_back();
    return CUDA_SUCCESS;
  }
  Ctx* ctx;
  if (CUresult r = GetCtx(handle, &ctx)) return r;
  if (stack.empty()) {
    stack.push_back(ctx);
  } else {
    stack.back() = ctx;
  }
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetCurrent, (CUcontext * out)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentOrNull(&ctx)) return r;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = Handle(ctx);
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetDevice, (CUdevice * device)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentOrNull(&ctx)) return r;
  if (ctx == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (ctx->destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = ctx->dev->ordinal;
  return CUDA_SUCCESS;
}

// A context named, or the current one for null.
static CUresult NamedOrCurrent(CUcontext handle, Ctx** ctx) {
  if (CUresult r = CheckInitialized()) return r;
  if (handle != nullptr) {
    if (CUresult r = GetCtx(handle, ctx)) return r;
    return CheckContext(*ctx);
  }
  return CurrentContext(ctx);
}

SIM_API(cuCtxGetDevice_v2, (CUdevice * device, CUcontext handle)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = NamedOrCurrent(handle, &ctx)) return r;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = ctx->dev->ordinal;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxSynchronize, (void)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  return SynchronizeContext(lock, ctx);
}

SIM_API(cuCtxSynchronize_v2, (CUcontext handle)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = NamedOrCurrent(handle, &ctx)) return r;
  return SynchronizeContext(lock, ctx);
}

SIM_API(cuCtxGetFlags, (unsigned int* flags)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = ctx->flags;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxSetFlags, (unsigned int flags)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  ctx->flags = flags;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetId, (CUcontext handle, unsigned long long* id)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = NamedOrCurrent(handle, &ctx)) return r;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = ctx->id;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetApiVersion, (CUcontext handle, unsigned int* version)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = NamedOrCurrent(handle, &ctx)) return r;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 3020;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetStreamPriorityRange, (int* least, int* greatest)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxSetLimit, (CUlimit limit, size_t value)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (limit == CU_LIMIT_STACK_SIZE && value > 512 << 10) return CUDA_ERROR_INVALID_VALUE;
  if (TimesTaken(limit) > 0) {
    if (CUresult r = ResizeHeap(ctx, limit, value)) return r;
  }
  ctx->limits[limit] = value;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetLimit, (size_t * value, CUlimit limit)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *value = LimitOf(ctx, limit);
  return CUDA_SUCCESS;
}

SIM_API(cuCtxGetCacheConfig, (CUfunc_cache * config)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = CU_FUNC_CACHE_PREFER_NONE;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxSetCacheConfig, (CUfunc_cache)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  return CurrentContext(&ctx);
}

SIM_API(cuCtxGetSharedMemConfig, (CUsharedconfig * config)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return CUDA_SUCCESS;
}

SIM_API(cuCtxSetSharedMemConfig, (CUsharedconfig)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  return CurrentContext(&ctx);
}

SIM_API(cuCtxResetPersistingL2Cache, (void)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  return CurrentContext(&ctx);
}

SIM_API(cuCtxEnablePeerAccess, (CUcontext peer, unsigned int flags)) {
  Lock lock(TheDriver().mutex);
  Ctx *ctx, *other;
  if (CUresult r = CurrentContext(&ctx)) return r;
  if (CUresult r = GetCtx(peer, &other)) return r;
  return flags == 0 && ctx != other ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuCtxDisablePeerAccess, (CUcontext peer)) {
  Lock lock(TheDriver().mutex);
  Ctx *ctx, *other;
  if (CUresult r = CurrentContext(&ctx)) return r;
  return GetCtx(peer, &other);
}

SIM_API(cuCtxAttach, (CUcontext * out, unsigned int)) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  *out = Handle(ctx);
  return CUDA_SUCCESS;
}

SIM_API(cuCtxDetach, (CUcontext ctx)) { return DestroyContextHandle(ctx); }

}  // namespace baton::sim
