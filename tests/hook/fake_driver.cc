// A driver for the hook's own tests: libcuda.so.1 with just what they need, on the clock of the
// machine. A kernel is a number of nanoseconds; a stream runs its kernels one after another; a
// kernel of no end runs until fake_release(). What is behind a wait for the host begins when that
// is over.
//
// It counts what reaches it, so that a test can tell what passed the gate.
#include "tests/hook/fake_driver.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/time.h"
#include "hook/cuda_types.h"
#include "tests/hook/fake_objects.h"
#include "tests/hook/fake_state.h"

namespace {

using namespace baton::hook;

constexpr int64_t kForever = INT64_MAX / 2;
constexpr size_t kFirstLimit = 1000;  // of every kind

struct FakeEvent {
  FakeContext* context;
  Moment at{};                 // of everything before it in its stream
  std::vector<Moment> also{};  // of everything in the streams that its own waits for
};
Objects<FakeContext> g_contexts;
Objects<FakeStream> g_streams;
Objects<FakeEvent> g_events;
std::map<CUdevice, FakeContext*> g_primary;
std::map<std::pair<FakeContext*, uintptr_t>, FakeStream*> g_defaults;
std::atomic<uint64_t> g_launches{0}, g_records{0};
std::atomic<int64_t> g_released{0}, g_most_queued{0}, g_stretched{0}, g_late{0};
std::vector<std::pair<Moment, int64_t>> g_kernels;  // when each begins, and how long it takes
std::atomic<int> g_waits{0};                        // not over
std::atomic<bool> g_no_op{false}, g_hold_destroys{false}, g_full_channel{false};
std::atomic<int> g_query_errors{0}, g_query_code{0}, g_record_errors{0};
thread_local std::vector<FakeContext*> t_stack;
std::set<FakeStream*> g_captured;  // all in the global mode
thread_local CUstreamCaptureMode t_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
thread_local char t_identity;

// A kernel of no end ends when it is released.
int64_t End(int64_t end) {
  return end >= kForever && g_released.load() != 0 ? g_released.load() : end;
}

}  // namespace

namespace baton::hook {

std::mutex g_mutex;

FakeContext* Current() { return t_stack.empty() ? nullptr : t_stack.back(); }

FakeStream* StreamAt(CUstream s) {
  if (reinterpret_cast<uintptr_t>(s) > 2) return g_streams.Find(s);
  if (Current() == nullptr) return nullptr;
  const uintptr_t key = s == CU_STREAM_PER_THREAD ? reinterpret_cast<uintptr_t>(&t_identity) : 0;
  FakeStream*& found = g_defaults[{Current(), key}];
  if (found == nullptr) found = g_streams.Make({Current()});
  return found;
}

int64_t Now() { return Nanos(MonotonicNow()); }

int64_t When(const Moment& moment) {
  if (moment.after == nullptr) return End(moment.at);
  return moment.after->over_at == 0 ? kForever : moment.after->over_at + moment.at;
}

void AwaitContext(const FakeContext* context) {
  const auto over = [context] {
    std::lock_guard lock(g_mutex);
    return !IsBusy(context);
  };
  while (!over()) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

bool IsBusy(const FakeContext* context) {
  return g_streams.Any([&](const FakeStream* s) {
    return (context == nullptr || s->context == context) && Now() < When(s->end);
  });
}

}  // namespace baton::hook

namespace {

void EndStream(FakeStream* stream) {
  g_captured.erase(stream);
  g_streams.End(stream);
}

// All that is in a context goes with it.
void EndContext(FakeContext* context) {
  std::erase_if(g_defaults, [&](const auto& d) { return d.first.first == context; });
  EndMemory(context);
  std::erase_if(g_captured, [&](const FakeStream* s) { return s->context == context; });
  g_streams.EndAll([&](const FakeStream* s) { return s->context == context; });
  g_events.EndAll([&](const FakeEvent* e) { return e->context == context; });
  g_contexts.End(context);
}

// A handle is free before the call that ended it returns.
void HoldDestroy() {
  while (g_hold_destroys.load()) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

int64_t When(const FakeEvent& event) {
  int64_t when = When(event.at);
  for (const Moment& moment : event.also) when = std::max(when, When(moment));
  return when;
}
// When what is enqueued now may begin.
Moment NextIn(FakeStream* stream) {
  if (const int64_t late = g_late.exchange(0)) stream->end = {nullptr, Now() + late};
  if (stream->end.after != nullptr && stream->end.after->over_at == 0) return stream->end;
  return {nullptr, std::max(Now(), When(stream->end))};
}

// Makes the stream wait until `run()`, which is called when it has got there, returns.
template <class Run>
CUresult Wait(CUstream s, Run run) {
  std::lock_guard lock(g_mutex);
  FakeStream* stream = StreamAt(s);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capturing) return CUDA_SUCCESS;
  auto* wait = new FakeWait;
  const Moment begin = NextIn(stream);
  stream->end = {wait, 0};
  g_waits.fetch_add(1);
  std::thread([wait, begin, run] {
    const auto there = [&] {
      std::lock_guard look(g_mutex);
      return Now() >= When(begin);
    };
    while (!there()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    run();
    std::lock_guard over(g_mutex);
    wait->over_at = Now();
    g_waits.fetch_sub(1);
  }).detach();
  return CUDA_SUCCESS;
}

CUresult Launch(CUfunction f, CUstream s) {
  g_launches.fetch_add(1);
  if (g_no_op.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  std::lock_guard lock(g_mutex);
  if (Current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  FakeStream* stream = StreamAt(s);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capturing) return CUDA_SUCCESS;
  const Moment begin = NextIn(stream);
  auto ns = static_cast<int64_t>(reinterpret_cast<uintptr_t>(f));
  if (const int64_t longer = g_stretched.exchange(0)) ns = longer;
  g_kernels.emplace_back(begin, ns);
  stream->end = {begin.after, ns >= kForever ? kForever : begin.at + ns};
  if (begin.after == nullptr) {
    g_most_queued = std::max(g_most_queued.load(), stream->end.at - Now());
  }
  return CUDA_SUCCESS;
}

CUresult MakeContext(CUcontext* c, CUdevice d) {
  std::lock_guard lock(g_mutex);
  t_stack.push_back(g_contexts.Make({d}));
  *c = reinterpret_cast<CUcontext>(Current());
  return CUDA_SUCCESS;
}

CUresult DestroyContext(CUcontext c) {
  {
    std::lock_guard lock(g_mutex);
    FakeContext* context = g_contexts.Find(c);
    if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (context->primary_of >= 0) return CUDA_ERROR_INVALID_CONTEXT;
    EndContext(context);
    std::erase(t_stack, context);
  }
  HoldDestroy();
  return CUDA_SUCCESS;
}

CUresult PopContext(CUcontext* c) {
  if (t_stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *c = reinterpret_cast<CUcontext>(Current());
  t_stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult BeginCapture(CUstream s) {
  std::lock_guard lock(g_mutex);
  FakeStream* stream = StreamAt(s);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capturing) return CUDA_ERROR_ILLEGAL_STATE;
  stream->capturing = true;
  stream->broken = false;
  g_captured.insert(stream);
  return CUDA_SUCCESS;
}

}  // namespace

FAKE_CONTROL uint64_t fake_launches() { return g_launches.load(); }
FAKE_CONTROL uint64_t fake_records() { return g_records.load(); }
FAKE_CONTROL int64_t fake_most_queued() { return g_most_queued.exchange(0); }
FAKE_CONTROL void fake_release() { g_released.store(Now()); }
FAKE_CONTROL int fake_waits() { return g_waits.load(); }
FAKE_CONTROL bool fake_kernel_ran(size_t i, int64_t* begin, int64_t* end) {
  std::lock_guard lock(g_mutex);
  if (i >= g_kernels.size()) return false;
  *begin = When(g_kernels[i].first);
  *end = *begin + g_kernels[i].second;
  return true;
}
FAKE_CONTROL void fake_no_op(bool on) { g_no_op.store(on); }
FAKE_CONTROL void fake_full_channel(bool on) { g_full_channel.store(on); }
FAKE_CONTROL void fake_query_errors(int n, int code) {
  g_query_code.store(code);
  g_query_errors.store(n);
}
FAKE_CONTROL void fake_record_errors(int n) { g_record_errors.store(n); }
FAKE_CONTROL void fake_stretch(int64_t ns) { g_stretched.store(ns); }
FAKE_CONTROL void fake_come_late(int64_t ns) { g_late.store(ns); }
FAKE_CONTROL void fake_hold_destroys(bool on) { g_hold_destroys.store(on); }
FAKE_CONTROL uint64_t fake_mistakes() {
  std::lock_guard lock(g_mutex);
  return g_contexts.mistakes() + g_streams.mistakes() + g_events.mistakes() + MemoryMistakes();
}
FAKE_CONTROL CUfunction fake_kernel(int64_t ns) {
  return reinterpret_cast<CUfunction>(ns == 0 ? kForever : ns);
}

FAKE_API(cuInit, (unsigned)) { return CUDA_SUCCESS; }
FAKE_API(cuDeviceGetCount, (int* n)) {
  *n = 2;
  return CUDA_SUCCESS;
}
FAKE_API(cuDeviceGet, (CUdevice * d, int i)) {
  *d = i;
  return CUDA_SUCCESS;
}
FAKE_API(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice d)) {
  memset(uuid, 0, sizeof(*uuid));
  uuid->bytes[0] = static_cast<char>(0xab);
  uuid->bytes[15] = static_cast<char>(d);
  return CUDA_SUCCESS;
}
FAKE_API(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice)) {
  *bytes = size_t{16} << 30;
  return CUDA_SUCCESS;
}
FAKE_API(cuCtxCreate, (CUcontext * c, unsigned, CUdevice d)) { return MakeContext(c, d); }
FAKE_API(cuCtxCreate_v2, (CUcontext * c, unsigned, CUdevice d)) { return MakeContext(c, d); }
FAKE_API(cuCtxDetach, (CUcontext c)) { return DestroyContext(c); }
FAKE_API(cuCtxDestroy_v2, (CUcontext c)) { return DestroyContext(c); }
FAKE_API(cuDevicePrimaryCtxRetain, (CUcontext * c, CUdevice d)) {
  std::lock_guard lock(g_mutex);
  FakeContext*& primary = g_primary[d];
  if (primary == nullptr) primary = g_contexts.Make({d, d});
  ++primary->users;
  *c = reinterpret_cast<CUcontext>(primary);
  return CUDA_SUCCESS;
}
FAKE_API(cuDevicePrimaryCtxReset_v2, (CUdevice d)) {
  std::lock_guard lock(g_mutex);
  if (FakeContext* primary = g_primary[d]) EndContext(primary);
  g_primary[d] = nullptr;
  return CUDA_SUCCESS;
}
FAKE_API(cuDevicePrimaryCtxRelease_v2, (CUdevice d)) {
  std::lock_guard lock(g_mutex);
  FakeContext*& primary = g_primary[d];
  if (primary == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary->users > 0) return CUDA_SUCCESS;
  EndContext(primary);
  primary = nullptr;
  return CUDA_SUCCESS;
}
FAKE_API(cuDevicePrimaryCtxGetState, (CUdevice d, unsigned* flags, int* active)) {
  std::lock_guard lock(g_mutex);
  *flags = 0;
  *active = g_primary[d] != nullptr;
  return CUDA_SUCCESS;
}
// A green context is an odd number, for nobody may take it for the context that it stands for.
FAKE_CONTROL void* fake_green() {
  std::lock_guard lock(g_mutex);
  return reinterpret_cast<char*>(g_contexts.Make({0})) + 1;
}
FAKE_API(cuCtxFromGreenCtx, (CUcontext * c, void* green)) {
  std::lock_guard lock(g_mutex);
  FakeContext* context = g_contexts.Find(static_cast<char*>(green) - 1);
  *c = reinterpret_cast<CUcontext>(context);
  return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
FAKE_API(cuGreenCtxDestroy, (void* green)) {
  std::lock_guard lock(g_mutex);
  FakeContext* context = g_contexts.Find(static_cast<char*>(green) - 1);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  EndContext(context);
  return CUDA_SUCCESS;
}
FAKE_API(cuDeviceGetAttribute, (int* value, CUdevice_attribute attribute, CUdevice)) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT             ? 2
           : attribute == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR ? 5
                                                                             : 0;
  return CUDA_SUCCESS;
}
FAKE_API(cuCtxGetLimit, (size_t * value, CUlimit limit)) {
  std::lock_guard lock(g_mutex);
  if (Current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *value = Current()->limits.emplace(limit, kFirstLimit).first->second;
  return CUDA_SUCCESS;
}
FAKE_API(cuCtxSetLimit, (CUlimit limit, size_t value)) {
  std::lock_guard lock(g_mutex);
  if (Current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Current()->limits[limit] = value;
  return CUDA_SUCCESS;
}
FAKE_API(cuCtxGetCurrent, (CUcontext * c)) {
  *c = reinterpret_cast<CUcontext>(Current());
  return CUDA_SUCCESS;
}
FAKE_API(cuCtxSetCurrent, (CUcontext c)) {
  t_stack.assign(1, reinterpret_cast<FakeContext*>(c));
  return CUDA_SUCCESS;
}
FAKE_API(cuCtxPushCurrent_v2, (CUcontext c)) {
  t_stack.push_back(reinterpret_cast<FakeContext*>(c));
  return CUDA_SUCCESS;
}
FAKE_API(cuCtxPopCurrent, (CUcontext * c)) { return PopContext(c); }
FAKE_API(cuCtxPopCurrent_v2, (CUcontext * c)) { return PopContext(c); }
FAKE_API(cuCtxGetDevice, (CUdevice * d)) {
  if (Current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *d = Current()->device;
  return CUDA_SUCCESS;
}
FAKE_API(cuStreamCreate, (CUstream * s, unsigned)) {
  std::lock_guard lock(g_mutex);
  if (Current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *s = reinterpret_cast<CUstream>(g_streams.Make({Current()}));
  return CUDA_SUCCESS;
}
FAKE_API(cuStreamDestroy_v2, (CUstream s)) {
  {
    std::lock_guard lock(g_mutex);
    if (reinterpret_cast<uintptr_t>(s) <= 2 || StreamAt(s) == nullptr) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    EndStream(StreamAt(s));
  }
  HoldDestroy();
  return CUDA_SUCCESS;
}
FAKE_API(cuStreamGetCtx, (CUstream s, CUcontext* c)) {
  std::lock_guard lock(g_mutex);
  if (StreamAt(s) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *c = reinterpret_cast<CUcontext>(StreamAt(s)->context);
  return CUDA_SUCCESS;
}
FAKE_API(cuStreamIsCapturing, (CUstream s, CUstreamCaptureStatus* status)) {
  std::lock_guard lock(g_mutex);
  if (StreamAt(s) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *status =
      StreamAt(s)->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
FAKE_API(cuStreamBeginCapture, (CUstream s)) { return BeginCapture(s); }
FAKE_API(cuStreamBeginCapture_v2, (CUstream s, CUstreamCaptureMode)) { return BeginCapture(s); }
FAKE_API(cuStreamEndCapture, (CUstream s, CUgraph* graph)) {
  std::lock_guard lock(g_mutex);
  if (StreamAt(s) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!StreamAt(s)->capturing) return CUDA_ERROR_ILLEGAL_STATE;
  StreamAt(s)->capturing = false;
  g_captured.erase(StreamAt(s));
  *graph = nullptr;
  return StreamAt(s)->broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}
FAKE_API(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode)) {
  std::swap(*mode, t_mode);
  return CUDA_SUCCESS;
}
FAKE_API(cuEventCreate, (CUevent * e, unsigned)) {
  std::lock_guard lock(g_mutex);
  if (Current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *e = reinterpret_cast<CUevent>(g_events.Make({Current()}));
  return CUDA_SUCCESS;
}
FAKE_API(cuEventDestroy_v2, (CUevent e)) {
  std::lock_guard lock(g_mutex);
  FakeEvent* event = g_events.Find(e);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  g_events.End(event);
  return CUDA_SUCCESS;
}
FAKE_API(cuEventRecord, (CUevent e, CUstream s)) {
  if (g_record_errors.load() > 0 && g_record_errors.fetch_sub(1) > 0) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  g_records.fetch_add(1);
  // As with the real driver, where no more fits behind a wait for the host: until that is over.
  const auto fits = [s] {
    std::lock_guard look(g_mutex);
    const FakeStream* in = StreamAt(s);
    return in == nullptr || in->end.after == nullptr || in->end.after->over_at != 0;
  };
  while (g_full_channel.load() && !fits()) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  std::lock_guard lock(g_mutex);
  FakeEvent* event = g_events.Find(e);
  FakeStream* in = StreamAt(s);
  if (event == nullptr || in == nullptr || in->context != event->context) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  event->at = NextIn(in);
  event->also.clear();
  if (s == CU_STREAM_LEGACY) {  // it waits for every blocking stream of its context
    for (const auto& [key, stream] : g_defaults) {
      if (key.first == Current()) event->also.push_back(stream->end);
    }
  }
  return CUDA_SUCCESS;
}
FAKE_API(cuStreamWaitEvent, (CUstream s, CUevent e, unsigned)) {
  std::lock_guard lock(g_mutex);
  const FakeEvent* event = g_events.Find(e);
  FakeStream* stream = StreamAt(s);
  if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (When(*event) > When(stream->end)) stream->end = event->at;
  return CUDA_SUCCESS;
}
FAKE_API(cuEventQuery, (CUevent e)) {
  std::lock_guard lock(g_mutex);
  // As with the real driver: not while anybody captures, unless this thread said so.
  if (t_mode != CU_STREAM_CAPTURE_MODE_RELAXED && !g_captured.empty()) {
    for (FakeStream* stream : g_captured) stream->broken = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (g_query_errors.load() > 0 && g_query_errors.fetch_sub(1) > 0) {
    return static_cast<CUresult>(g_query_code.load());
  }
  const FakeEvent* event = g_events.Find(e);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return Now() >= When(*event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

namespace {
// As with the real driver: what pools do not use is given back then. While anything of the context
// is captured it is an error, and the capture is broken.
CUresult Synchronize(FakeContext* context) {
  {
    std::lock_guard lock(g_mutex);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    bool captured = false;
    for (FakeStream* stream : g_captured) {
      if (stream->context == context) captured = stream->broken = true;
    }
    if (captured) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  AwaitContext(context);
  ShrinkPools();
  return CUDA_SUCCESS;
}
}  // namespace

FAKE_API(cuCtxSynchronize, ()) { return Synchronize(Current()); }
FAKE_API(cuCtxSynchronize_v2, (CUcontext c)) {
  return Synchronize(reinterpret_cast<FakeContext*>(c));
}
FAKE_API(cuStreamSynchronize, (CUstream)) { return Synchronize(Current()); }
FAKE_API(cuStreamSynchronize_ptsz, (CUstream)) { return Synchronize(Current()); }
FAKE_API(cuEventSynchronize, (CUevent)) { return Synchronize(Current()); }
FAKE_API(cuEventElapsedTime, (float* ms, CUevent a, CUevent b)) {
  std::lock_guard lock(g_mutex);
  const FakeEvent *from = g_events.Find(a), *to = g_events.Find(b);
  if (from == nullptr || to == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *ms = static_cast<float>(When(*to) - When(*from)) / 1e6f;
  return CUDA_SUCCESS;
}
FAKE_API(cuLaunchKernel, (CUfunction f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned, CUstream s, void**, void**)) {
  return Launch(f, Legacy(s));
}
FAKE_API(cuLaunchKernel_ptsz, (CUfunction f, unsigned, unsigned, unsigned, unsigned, unsigned,
                               unsigned, unsigned, CUstream s, void**, void**)) {
  return Launch(f, PerThread(s));
}
FAKE_API(cuLaunchHostFunc, (CUstream s, CUhostFn function, void* user)) {
  return Wait(Legacy(s), [=] { function(user); });
}
FAKE_API(cuLaunchHostFunc_ptsz, (CUstream s, CUhostFn function, void* user)) {
  return Wait(PerThread(s), [=] { function(user); });
}
FAKE_API(cuStreamAddCallback, (CUstream s, CUstreamCallback callback, void* user, unsigned)) {
  return Wait(Legacy(s), [=] { callback(s, CUDA_SUCCESS, user); });
}
FAKE_API(cuStreamWaitValue32_v2, (CUstream s, CUdeviceptr p, cuuint32_t value, unsigned)) {
  return Wait(Legacy(s), [=] {
    while (__atomic_load_n(reinterpret_cast<const cuuint32_t*>(p), __ATOMIC_ACQUIRE) < value) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
}
FAKE_API(cuStreamBatchMemOp_v2,
         (CUstream s, unsigned count, CUstreamBatchMemOpParams* ops, unsigned flags)) {
  for (unsigned i = 0; i < count; ++i) {
    if (ops[i].operation != CU_STREAM_MEM_OP_WAIT_VALUE_32) continue;
    Api_cuStreamWaitValue32_v2(s, ops[i].waitValue.address, ops[i].waitValue.value, flags);
  }
  return CUDA_SUCCESS;
}
FAKE_API(cuMemsetD8, (unsigned, unsigned char, unsigned)) {
  g_launches.fetch_add(1);
  return CUDA_SUCCESS;
}
FAKE_API(cuMemcpyHtoA_v2, (CUarray, size_t, const void*, size_t)) { return CUDA_SUCCESS; }
FAKE_API(cuMemcpyBatchAsync_v2,
         (CUdeviceptr*, CUdeviceptr*, size_t*, size_t, void*, size_t*, size_t, CUstream)) {
  return CUDA_SUCCESS;
}
FAKE_API(cuMemPrefetchAsync_v2, (CUdeviceptr, size_t, CUmemLocation, unsigned, CUstream)) {
  return CUDA_SUCCESS;
}
FAKE_API(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long)) {
  *exec = reinterpret_cast<CUgraphExec>(graph);
  return CUDA_SUCCESS;
}
// What its kernels launch on the device is over before what follows in the stream.
FAKE_API(cuGraphLaunch, (CUgraphExec exec, CUstream s)) {
  const auto* ns = reinterpret_cast<const int64_t*>(exec);
  return Launch(fake_kernel(ns[0] + ns[1]), Legacy(s));
}
// One graph, whose times change.
FAKE_CONTROL CUgraph fake_graph(int64_t ns, int64_t device_ns) {
  static int64_t both[2];
  both[0] = ns;
  both[1] = device_ns;
  return reinterpret_cast<CUgraph>(both);
}
FAKE_API(cuGetProcAddress_v2,
         (const char* symbol, void** function, int version, cuuint64_t flags, int* status));

namespace {
struct Answer {
  const char* name;
  int since;
  bool per_thread;
  void* function;
};

// Not exported: one that is the same as the exported one of its name elsewhere, and one that a
// later version brought.
CUresult Unexported() { return CUDA_SUCCESS; }
CUresult Newer() { return CUDA_ERROR_UNKNOWN; }
}  // namespace

FAKE_API(cuGetProcAddress_v2,
         (const char* symbol, void** function, int version, cuuint64_t flags, int* status)) {
  static const Answer answers[] = {
      {"cuInit", 2000, false, reinterpret_cast<void*>(Api_cuInit)},
      {"cuLaunchKernel", 4000, false, reinterpret_cast<void*>(Api_cuLaunchKernel)},
      {"cuLaunchKernel", 7000, true, reinterpret_cast<void*>(Api_cuLaunchKernel_ptsz)},
      {"cuGraphInstantiate", 12000, false,
       reinterpret_cast<void*>(Api_cuGraphInstantiateWithFlags)},
      {"cuMemAllocPitch", 3020, false, reinterpret_cast<void*>(Unexported)},
      {"cuMemAllocPitch", 14000, false, reinterpret_cast<void*>(Newer)},
      {"cuMemAlloc", 3020, false, reinterpret_cast<void*>(Api_cuMemAlloc_v2)},
      {"cuDeviceGet", 2000, false, reinterpret_cast<void*>(Api_cuDeviceGet)},
      {"cuGetProcAddress", 12000, false, reinterpret_cast<void*>(Api_cuGetProcAddress_v2)},
  };
  *function = nullptr;
  if (status != nullptr) *status = 1;  // symbol not found
  for (const Answer& a : answers) {
    if (strcmp(a.name, symbol) != 0 || a.since > version) continue;
    if (a.per_thread && (flags & 2) == 0) continue;
    *function = a.function;
    if (status != nullptr) *status = 0;
  }
  return *function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
