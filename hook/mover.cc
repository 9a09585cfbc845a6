#include "hook/mover.h"

#include <stdlib.h>
#include <sys/prctl.h>

#include "hook/allocation.h"
#include "hook/captures.h"
#include "hook/client.h"
#include "hook/driver.h"
#include "hook/gpu.h"
#include "hook/log.h"
#include "hook/questions.h"

namespace baton::hook {
namespace {

using std::chrono::milliseconds;
using wire::Phase;

// Room that was not there is looked for again after this.
constexpr Duration kTryAgain = milliseconds(1);
constexpr unsigned kPortable = 1;  // CU_MEMHOSTALLOC_PORTABLE

std::atomic<bool> g_swaps{false};
std::atomic<uint32_t> g_thread{0};  // 0 not started, 1 runs, 2 cannot
std::atomic<uint32_t> g_work{0};    // futex: changes when there may be something to do
std::atomic<bool> g_stopped{false};

// Memory that the program freed during a capture, and that is there still.
struct PutOff {
  CUdeviceptr address;
  uint64_t id;
  CUcontext context;
  Gpu* gpu;
  PutOff* next;
};
PutOff* g_put_off = nullptr;
std::atomic<uint32_t> g_put_offs{0};  // how many
Lock g_put_off_lock;                  // taken last, and short

CUresult Reserve(CUdeviceptr* base, uint64_t bytes) {
  return Drv<Fn::cuMemAddressReserve>(base, size_t{bytes}, size_t{0}, CUdeviceptr{0}, 0ull);
}

void Unreserve(CUdeviceptr base, uint64_t bytes) { Drv<Fn::cuMemAddressFree>(base, size_t{bytes}); }

CUresult Unback(CUdeviceptr at, uint64_t bytes, uint64_t handle) {
  auto* unmap = RealAs<CUresult(CUdeviceptr, size_t)>(Fn::cuMemUnmap);
  auto* release = RealAs<CUresult(CUmemGenericAllocationHandle)>(Fn::cuMemRelease);
  if (unmap == nullptr || release == nullptr) return kNoDriver;
  const CUresult result = unmap(at, bytes);
  if (result == CUDA_SUCCESS) release(handle);
  return result;
}

CUresult Back(CUdevice device, CUdeviceptr at, uint64_t bytes, uint64_t* handle) {
  auto* create = RealAs<CUresult(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                                 unsigned long long)>(Fn::cuMemCreate);
  auto* map = RealAs<CUresult(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                              unsigned long long)>(Fn::cuMemMap);
  auto* release = RealAs<CUresult(CUmemGenericAllocationHandle)>(Fn::cuMemRelease);
  if (create == nullptr || map == nullptr || release == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  CUmemGenericAllocationHandle made = 0;
  CUresult result = create(&made, bytes, &prop, 0);
  if (result != CUDA_SUCCESS) return result;
  result = map(at, bytes, 0, made, 0);
  if (result != CUDA_SUCCESS) {
    release(made);
    return result;
  }
  CUmemAccessDesc access = {};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  result = Drv<Fn::cuMemSetAccess>(at, size_t{bytes}, static_cast<const CUmemAccessDesc*>(&access),
                                   size_t{1});
  *handle = made;
  if (result != CUDA_SUCCESS) Unback(at, bytes, made);
  return result;
}

CUresult PinHost(CUcontext context, uint64_t bytes, void** host) {
  HookCalls calls(context);
  return Drv<Fn::cuMemHostAlloc>(host, size_t{bytes}, kPortable);
}

void UnpinHost(CUcontext context, void* host) {
  HookCalls calls(context);
  Drv<Fn::cuMemFreeHost>(host);
}

// The thread's own default stream in each context.
CUresult CopyOut(CUcontext context, void* host, CUdeviceptr from, uint64_t bytes) {
  HookCalls calls(context);
  auto* copy = RealAs<CUresult(void*, CUdeviceptr, size_t, CUstream)>(Fn::cuMemcpyDtoHAsync_v2);
  return copy == nullptr ? kNoDriver : copy(host, from, bytes, CU_STREAM_PER_THREAD);
}

CUresult CopyIn(CUcontext context, CUdeviceptr to, const void* host, uint64_t bytes) {
  HookCalls calls(context);
  auto* copy =
      RealAs<CUresult(CUdeviceptr, const void*, size_t, CUstream)>(Fn::cuMemcpyHtoDAsync_v2);
  return copy == nullptr ? kNoDriver : copy(to, host, bytes, CU_STREAM_PER_THREAD);
}

CUresult Finish(CUcontext context) {
  HookCalls calls(context);
  auto* synchronize = RealAs<CUresult(CUstream)>(Fn::cuStreamSynchronize);
  return synchronize == nullptr ? kNoDriver : synchronize(CU_STREAM_PER_THREAD);
}

constexpr ArenaDriver kDriver = {Reserve,   Unreserve, Back,   Unback, PinHost,
                                 UnpinHost, CopyOut,   CopyIn, Finish};

void WakeMover() {
  g_work.fetch_add(1);
  FutexWakeAll(&g_work);
}

// What is missing and the device has no room for, of the next attempt's point of view.
uint64_t Lacking(Arena& arena) {
  const uint64_t missing = arena.missing();
  size_t free = 0, total = 0;
  auto* ask = RealAs<CUresult(size_t*, size_t*)>(Fn::cuMemGetInfo_v2);
  if (CUcontext context = arena.context(); context != nullptr && ask != nullptr) {
    HookCalls calls(context);
    if (ask(&free, &total) != CUDA_SUCCESS) free = 0;
  }
  free = free / Arena::kGranule * Arena::kGranule;
  return missing > free ? missing - free : Arena::kGranule;
}

unsigned long long Mib(uint64_t bytes) { return bytes >> 20; }

enum class Work : uint8_t { kNone, kIn, kOut, kFree };

bool FreesPutOff() { return g_put_offs.load() > 0 && g_captures.load() == 0; }
bool FreeOne(Gpu* idle);

// What there is to do, if it may begin. From then on the gate stays closed, and no drain ends.
Work Begin(Gpu* gpu) {
  Movable& m = *gpu->movable;
  Guard guard(gpu->lock);
  if (g_stopped.load()) return Work::kNone;
  const ClientMachine& machine = gpu->machine;
  Work work = Work::kNone;
  if (machine.open()) {
    if (m.arena.missing() > 0) work = Work::kIn;
  } else if (machine.phase() == Phase::kIdle || machine.phase() == Phase::kWaiting) {
    // What waits for the host in the driver's queue may want it at any time.
    const bool moves = m.arena.in() > m.keep.load();
    if ((moves || FreesPutOff()) && !HasWork(gpu)) work = moves ? Work::kOut : Work::kFree;
  }
  if (work != Work::kNone) m.moving.store(true);
  return work;
}

// True: there may be more to do at once.
bool Do(Gpu* gpu, Work work) {
  Movable& m = *gpu->movable;
  bool more = false;
  const uint64_t in_before = m.arena.in();
  const Instant from = MonotonicNow();
  uint64_t wanted = m.wanted.load();
  const uint64_t wanted_before = wanted;
  if (work == Work::kIn) {
    const CUresult result = m.arena.MoveIn();
    more = result == CUDA_SUCCESS;
    wanted = result == CUDA_ERROR_OUT_OF_MEMORY ? Lacking(m.arena) : 0;
  } else if (work == Work::kOut) {
    more = m.arena.MoveOut(m.keep.load());
  } else if (gpu->memory.lock.TryAcquire()) {  // who holds it may wait for this thread
    while (FreeOne(gpu)) more = true;
    gpu->memory.lock.Release();
  }
  if (more && work != Work::kFree) {
    const uint64_t in = m.arena.in();
    BATON_SAY_MORE("moved %llu MiB %s in %llu us; %llu of %llu MiB are on the GPU",
                   Mib(in > in_before ? in - in_before : in_before - in),
                   work == Work::kIn ? "in" : "out",
                   static_cast<unsigned long long>(Nanos(MonotonicNow() - from) / 1000), Mib(in),
                   Mib(m.arena.bytes()));
  }
  {
    Guard guard(gpu->lock);
    m.moving.store(false);
    m.wanted.store(wanted);
    // Asked again where it is still wanted.
    if (work == Work::kOut && (!more || m.arena.in() <= m.keep.load())) m.keep.store(UINT64_MAX);
  }
  MemoryMoved(gpu, more || wanted != wanted_before);
  return more;
}

void* RunMover(void*) {
  prctl(PR_SET_NAME, "baton-mover", 0, 0, 0);
  if (Slot* slot = MySlot()) slot->in_launch.store(Slot::kHooksOwn);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  Drv<Fn::cuThreadExchangeStreamCaptureMode>(&mode);
  for (;;) {
    const uint32_t seen = g_work.load();
    bool more = false, wanted = false;
    for (int i = 0; i < GpuCount(); ++i) {
      Gpu* gpu = GpuAt(i);
      if (gpu->movable == nullptr) continue;
      const Work work = Begin(gpu);
      if (work == Work::kNone) continue;
      more = Do(gpu, work) || more;
      wanted = wanted || work == Work::kIn;
    }
    if (more) continue;
    FutexWait(&g_work, seen, wanted ? kTryAgain : Duration(milliseconds(500)));
  }
  return nullptr;
}

bool StartMover() {
  uint32_t state = g_thread.load();
  if (state == 0 && g_thread.compare_exchange_strong(state, 1)) {
    if (StartThread(RunMover, nullptr)) return true;
    Say("no thread could be started that moves memory; this process's memory stays on the GPU");
    g_thread.store(2);
  }
  return g_thread.load() == 1;
}

}  // namespace

bool Swaps() { return g_swaps.load(std::memory_order_relaxed); }
void SetSwaps() { g_swaps.store(true); }

void MakeMovable(Gpu* gpu) {
  if (!Swaps()) return;
  gpu->movable = New<Movable>();
  if (gpu->movable != nullptr) gpu->movable->arena.Init(&kDriver, gpu->device);
}

bool MemoryIsIn(Gpu* gpu) {
  Movable* m = gpu->movable;
  if (m == nullptr) return true;
  if (!m->moving.load() && m->arena.missing() == 0) return true;
  WakeMover();
  return false;
}

void MakeRoom(Gpu* gpu, uint64_t keep) {
  Movable* m = gpu->movable;
  if (m == nullptr) return;
  {
    Guard guard(gpu->lock);
    m->keep.store(keep);
  }
  WakeMover();
}

void StopMoving() {
  if (g_thread.load() != 1) return;
  g_stopped.store(true);
  for (int looks = 0; looks < 500; ++looks) {
    bool moving = false;
    for (int i = 0; i < GpuCount(); ++i) {
      Movable* m = GpuAt(i)->movable;
      moving = moving || (m != nullptr && m->moving.load());
    }
    if (!moving) return;
    SleepFor(std::chrono::microseconds(200));
  }
}

bool AllocateMovable(uint64_t bytes, CUdeviceptr* p, CUresult* result) {
  if (!Swaps() || bytes == 0 || p == nullptr || g_captures.load() > 0) return false;
  Gpu* gpu = MemoryGpu();
  const CUcontext context = CurrentContext();
  if (gpu == nullptr || gpu->movable == nullptr || context == nullptr || !StartMover()) {
    return false;
  }
  Movable& m = *gpu->movable;
  if (!AwaitCap(gpu) || !m.gated.load()) return false;
  *result = CUDA_SUCCESS;
  if (m.arena.Share(context, bytes, p)) return true;
  const uint64_t rounded = Arena::Rounded(bytes);
  if (rounded == UINT64_MAX) return false;
  // The daemon is to know in the same moment that it can be moved.
  gpu->memory.movable.fetch_add(rounded);
  bool charged = Charge(gpu, rounded);
  if (!charged && FreesPutOff()) {
    FreePutOff();
    charged = Charge(gpu, rounded);
  }
  if (!charged) {
    gpu->memory.movable.fetch_sub(rounded);
    *result = NotCharged(gpu, bytes);
    return true;
  }
  *result = m.arena.Add(context, bytes, p);
  if (*result != CUDA_SUCCESS) {
    gpu->memory.movable.fetch_sub(rounded);
    Credit(gpu, rounded);
    NotAllocated(gpu, bytes, *result);
    // A device without virtual memory: its memory stays where it is.
    return *result != CUDA_ERROR_NOT_SUPPORTED;
  }
  if (m.arena.missing() > 0) MemoryMoved(gpu, true);
  return true;
}

bool FindMovable(CUdeviceptr address, Gpu** gpu, Arena::Allocation* found) {
  if (!Swaps()) return false;
  for (int i = 0; i < GpuCount(); ++i) {
    *gpu = GpuAt(i);
    if ((*gpu)->movable != nullptr && (*gpu)->movable->arena.Find(address, found)) return true;
  }
  return false;
}

namespace {

// Waits for the work of a context. False: not now, because of a capture.
bool AwaitContext(CUcontext context) {
  auto* synchronize = RealAs<CUresult()>(Fn::cuCtxSynchronize);
  if (g_captures.load() > 0) return false;
  if (synchronize == nullptr) return true;
  HookCalls calls(context);
  // One may have begun meanwhile. Of a broken context nothing runs any more.
  const CUresult result = synchronize();
  return result < CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ||
         result > CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

void KeepPutOff(PutOff* one) {
  Guard guard(g_put_off_lock);
  one->next = g_put_off;
  g_put_off = one;
  g_put_offs.fetch_add(1);
}

// The first that matches, taken out; null: none does.
template <class Match>
PutOff* TakePutOff(Match match) {
  Guard guard(g_put_off_lock);
  for (PutOff** at = &g_put_off; *at != nullptr; at = &(*at)->next) {
    PutOff* one = *at;
    if (!match(*one)) continue;
    *at = one->next;
    g_put_offs.fetch_sub(1);
    return one;
  }
  return nullptr;
}

// True: one that was put off is free. `idle`: of this GPU alone, on which nothing runs, and its
// memory.lock is held; null: its context is waited for.
bool FreeOne(Gpu* idle) {
  if (!FreesPutOff()) return false;
  PutOff* one = TakePutOff([=](const PutOff& o) { return idle == nullptr || o.gpu == idle; });
  if (one == nullptr) return false;
  Gpu* gpu = one->gpu;
  Arena& arena = gpu->movable->arena;
  Arena::Allocation found;
  uint64_t freed = 0;
  if (arena.Find(one->address, &found) && found.id == one->id) {
    if (idle == nullptr && found.in && !AwaitContext(one->context)) {
      KeepPutOff(one);
      return false;
    }
    arena.Free(one->address, &freed);
  }
  free(one);
  gpu->memory.movable.fetch_sub(freed);
  if (idle != nullptr) {
    CreditLocked(gpu, freed);
  } else {
    Credit(gpu, freed);
    if (freed > 0) MemoryMoved(gpu, true);
  }
  return true;
}

}  // namespace

void FreePutOff() {
  while (FreesPutOff() && FreeOne(nullptr)) {
  }
}

bool FreeMovable(CUdeviceptr p) {
  Gpu* gpu = nullptr;
  Arena::Allocation found;
  if (!FindMovable(p, &gpu, &found) || found.base != p) return false;
  {
    Guard guard(g_put_off_lock);
    for (const PutOff* one = g_put_off; one != nullptr; one = one->next) {
      if (one->address == p) return false;  // it is free, as the program sees it
    }
  }
  if (found.in && !AwaitContext(found.context)) {
    auto* one = static_cast<PutOff*>(malloc(sizeof(PutOff)));
    if (one == nullptr) return true;  // it stays
    *one = {p, found.id, found.context, gpu, nullptr};
    KeepPutOff(one);
    return true;
  }
  uint64_t freed = 0;
  if (!gpu->movable->arena.Free(p, &freed)) return false;
  gpu->memory.movable.fetch_sub(freed);
  Credit(gpu, freed);
  if (freed > 0) MemoryMoved(gpu, true);
  FreePutOff();
  return true;
}

bool RefusesMovable(CUdeviceptr address, const char* what) {
  Gpu* gpu = nullptr;
  Arena::Allocation found;
  if (!FindMovable(address, &gpu, &found)) return false;
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) {
    Say("%s fails with CUDA_ERROR_NOT_SUPPORTED: the memory of a pod with swap moves between the "
        "GPU "
        "and the host; use memory of cuMemCreate or of the host there, or start the pod without "
        "--swap",
        what);
  }
  return true;
}

void LockMovable(bool lock) {
  for (int i = 0; Swaps() && i < GpuCount(); ++i) {
    Movable* m = GpuAt(i)->movable;
    if (m != nullptr) lock ? m->arena.lock().Acquire() : m->arena.lock().Release();
  }
}

void ForgetMovable(CUcontext context) {
  while (PutOff* one = TakePutOff([=](const PutOff& o) { return o.context == context; })) free(one);
  for (int i = 0; Swaps() && i < GpuCount(); ++i) {
    Gpu* gpu = GpuAt(i);
    if (gpu->movable == nullptr) continue;
    const uint64_t freed = gpu->movable->arena.Forget(context);
    gpu->memory.movable.fetch_sub(freed);
    Credit(gpu, freed);
  }
}

void ForgetMover() {
  g_thread.store(0);
  g_stopped.store(false);
  g_put_off_lock.Reset();
  g_put_off = nullptr;
  g_put_offs.store(0);
}

}  // namespace baton::hook
