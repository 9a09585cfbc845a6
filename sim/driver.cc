#include "sim/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/no_signals.h"
#include "sim/card.h"
#include "sim/memory.h"

namespace baton::sim {
namespace {

// How often a wait for a value in memory looks at it, as the hardware polls.
constexpr int64_t kPollEvery = 50'000;
// The longest sleep while another context has the engine: its process may die meanwhile.
constexpr int64_t kContendedRecheck = 1'000'000;

std::atomic<bool> forked_after_init{false};

void Say(const std::string& message) {
  const std::string line = "baton-sim: " + message + "\n";
  (void)!write(2, line.data(), line.size());
}

struct VisibleDevice {
  Device* device = nullptr;
  uint64_t instance = 0;  // Process::instance
};

// The devices that CUDA_VISIBLE_DEVICES leaves, in its order; the first bad entry ends the list.
std::vector<VisibleDevice> VisibleDevices() {
  std::vector<VisibleDevice> all, visible;
  const std::vector<std::string> paths = DevicePaths();
  if (paths.empty()) Say("no device: set BATON_SIM_DEVICES to device files (baton-simgpu create)");
  for (const std::string& path : paths) {
    auto device = Device::Open(path);
    if (!device) {
      Say(device.error().message);
      continue;
    }
    all.push_back({*device});
  }
  const char* chosen = getenv("CUDA_VISIBLE_DEVICES");
  if (chosen == nullptr) return all;
  const std::string text = chosen;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    at = end + 1;
    VisibleDevice found;
    if (item.rfind("GPU-", 0) == 0) {
      for (const VisibleDevice& d : all) {
        if (FormatUuid(d.device->file().uuid).rfind(item, 0) == 0) found = d;
      }
    } else if (item.rfind("MIG-", 0) == 0) {
      for (const VisibleDevice& d : all) {
        if (const auto mig = FindMig(d.device, item)) found = {d.device, mig->place + 1};
      }
    } else if (!item.empty() && item.find_first_not_of("0123456789") == std::string::npos) {
      const size_t ordinal = strtoul(item.c_str(), nullptr, 10);
      if (ordinal < all.size()) found = all[ordinal];
    }
    if (found.device == nullptr) break;
    visible.push_back(found);
  }
  return visible;
}

// Runs host functions, releases gates and applies prompt effects of one device. It sleeps until
// the first of them can be due, and lives as long as the process.
void Serve(Dev* dev) {
  Driver& driver = TheDriver();
  Lock lock(driver.mutex);
  while (true) {
    driver.work.wait(lock, [dev] { return !dev->attention.empty(); });
    Refresh(lock, dev);
    int64_t until = kForever;
    uint32_t word;
    std::vector<OpPtr> ready, waiting;
    {
      Device::Session session(dev->device);
      word = dev->device->change_word();
      auto& list = dev->attention;
      std::erase_if(list, [](const OpPtr& op) { return op->done; });
      for (const OpPtr& op : list) {
        const OpState state =
            op->finished ? OpState::kDone : session->operations().StateOf(op->ref);
        if (op->host_function && state == OpState::kGateReady) {
          ready.push_back(op);
        } else if (op->condition && !op->released &&
                   (state == OpState::kGateReady || state == OpState::kRunning)) {
          waiting.push_back(op);
          until = std::min(until, NowNs() + kPollEvery);
        } else if (op->finished) {
          until = 0;
        } else if (state != OpState::kPending) {
          until = std::min(until, session->EarliestEnd(op->ref));
        } else {
          until = std::min(until, std::max(session->NextEvent(), NowNs() + kPollEvery / 5));
        }
      }
    }
    for (const OpPtr& op : waiting) {
      if (!op->condition()) continue;
      op->released = true;
      ready.push_back(op);
    }
    for (const OpPtr& op : ready) {
      if (op->host_function) {
        lock.unlock();
        op->host_function();
        lock.lock();
      }
      Device::Session session(dev->device);
      session->Release(op->ref);
      op->released = true;
    }
    if (!ready.empty() || until <= NowNs()) continue;
    lock.unlock();
    dev->device->WaitForChange(word, until);
    lock.lock();
  }
}

void Attend(Dev* dev, OpPtr op) {
  dev->attention.push_back(std::move(op));
  if (!dev->service_running) {
    dev->service_running = true;
    const NoSignals none;
    std::thread(Serve, dev).detach();
  }
  TheDriver().work.notify_all();
  dev->device->WakeAll();
}

// Takes note of what ended on the device; the effects wait in dev->ended.
void CollectEnded(Dev* dev, Timeline& timeline) {
  for (Ctx* ctx : dev->contexts) {
    if (ctx->index < 0) continue;
    Completion completion;
    while (timeline.Collect(ctx->index, &completion)) {
      const int slot = Operations::SlotOf(completion.ref);
      OpPtr op = std::move(ctx->by_slot[slot]);
      ctx->free_slots.push_back(slot);
      op->started_at = completion.started_at;
      op->ended_at = completion.ended_at;
      op->flags = completion.flags;
      op->finished = true;
      op->deps.clear();
      dev->ended.push_back(std::move(op));
    }
    while (!ctx->outstanding.empty() && ctx->outstanding.front()->finished) {
      ctx->outstanding.pop_front();
    }
    const uint64_t error = dev->device->file().contexts[ctx->index].error;
    if (error != 0 && ctx->error == CUDA_SUCCESS) ctx->error = static_cast<CUresult>(error);
  }
}

// In the order in which they ended, one thread at a time.
void ApplyEnded(Lock& lock, Dev* dev) {
  Driver& driver = TheDriver();
  while (true) {
    if (dev->applying) {
      driver.applied.wait(lock, [dev] { return !dev->applying; });
      continue;
    }
    if (dev->ended.empty()) return;
    dev->applying = true;
    while (!dev->ended.empty()) {
      OpPtr op = std::move(dev->ended.front());
      dev->ended.pop_front();
      if (op->effect && (op->flags & kCompleted)) {
        lock.unlock();
        op->effect();
        lock.lock();
      }
      op->effect = nullptr;
      op->done = true;
    }
    dev->applying = false;
    driver.applied.notify_all();
  }
}

// No later than when `op` ends, by the chains of what it waits for. The session is held.
int64_t Predict(Timeline& timeline, const OpPtr& op) {
  const int64_t now = NowNs();
  for (const OpPtr& each : op->ctx->outstanding) {
    if (each->finished) continue;
    int64_t after = 0;
    for (const OpPtr& dep : each->deps) {
      if (dep->finished) continue;
      after = std::max(after, dep->ctx == op->ctx ? dep->earliest_end : now);
    }
    if (after == 0) {
      each->earliest_end = timeline.EarliestEnd(each->ref);
    } else if (after == kForever || (each->flags & kGated && !each->released) ||
               each->duration > kForever - after) {
      each->earliest_end = kForever;
    } else {
      each->earliest_end = after + each->duration;
    }
    if (each == op) return each->earliest_end;
  }
  return now;
}

// A look at the device: collects, and where the operation is still under way says until when to
// sleep.
int64_t Look(Dev* dev, const OpPtr& op, uint32_t* word) {
  Device::Session session(dev->device);
  CollectEnded(dev, *session);
  if (op->finished) return 0;
  *word = dev->device->change_word();
  int64_t until = Predict(*session, op);
  const DeviceFile& file = dev->device->file();
  const bool other = file.current != 0 && file.current != static_cast<uint64_t>(op->ctx->index) + 1;
  if (other) {
    // Near misses while another context has the engine are not worth a wake each.
    until = std::max(until, NowNs() + kPollEvery);
  }
  if (other || file.active_count > 1) until = std::min(until, NowNs() + kContendedRecheck);
  return until;
}

// Like a real driver's full channel: the launching thread waits.
void WaitForRoom(Lock& lock, Ctx* ctx, size_t room) {
  while (ctx->free_slots.size() < room && !ctx->outstanding.empty()) {
    const OpPtr first = ctx->outstanding.front();
    uint32_t word = 0;
    const int64_t until = Look(ctx->dev, first, &word);
    if (until != 0) {
      lock.unlock();
      ctx->dev->device->WaitForChange(word, until);
      lock.lock();
    }
    Refresh(lock, ctx->dev);
  }
}

}  // namespace

Driver& TheDriver() {
  static Driver& driver = *new Driver;
  return driver;
}

uint64_t ThreadId() {
  static thread_local uint64_t id = 0;
  if (id == 0) id = static_cast<uint64_t>(syscall(SYS_gettid));
  return id;
}

CUresult CheckInitialized() {
  if (forked_after_init.load(std::memory_order_relaxed)) return CUDA_ERROR_NOT_INITIALIZED;
  return TheDriver().initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult InitDriver() {
  Driver& driver = TheDriver();
  if (forked_after_init.load()) return CUDA_ERROR_NOT_INITIALIZED;
  if (driver.initialized) return driver.devices.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
  for (const auto& [device, instance] : VisibleDevices()) {
    auto* dev = new Dev;
    dev->device = device;
    dev->instance = instance;
    dev->ordinal = static_cast<int>(driver.devices.size());
    dev->default_pool.dev = dev;
    dev->pool = &dev->default_pool;
    dev->pools.push_back(&dev->default_pool);
    driver.live.insert(&dev->default_pool);
    driver.devices.push_back(dev);
  }
  if (driver.devices.empty()) return CUDA_ERROR_NO_DEVICE;
  pthread_atfork(nullptr, nullptr, [] { forked_after_init = true; });
  driver.initialized = true;
  return CUDA_SUCCESS;
}

CUresult GetDev(CUdevice device, Dev** dev) {
  if (CUresult r = CheckInitialized()) return r;
  Driver& driver = TheDriver();
  if (device < 0 || static_cast<size_t>(device) >= driver.devices.size()) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  *dev = driver.devices[static_cast<size_t>(device)];
  return CUDA_SUCCESS;
}

std::vector<Ctx*>& ContextStack() {
  // Never destroyed: a runtime calls the driver when the thread's own objects are gone.
  static thread_local auto& stack = *new std::vector<Ctx*>;
  return stack;
}

CUresult CheckContext(Ctx* ctx) {
  if (ctx->destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return ctx->error;
}

CUresult CurrentContext(Ctx** ctx) {
  if (CUresult r = CheckInitialized()) return r;
  auto& stack = ContextStack();
  if (stack.empty() || stack.back() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *ctx = stack.back();
  return CheckContext(*ctx);
}

// What the device takes while this process's kernels run.
uint64_t Watts() {
  const char* watts = getenv("BATON_SIM_WATTS");
  return watts == nullptr ? kBusyWatts : strtoull(watts, nullptr, 10);
}

// What each context takes of its device.
static size_t ContextBytes() {
  const char* mib = getenv("BATON_SIM_CONTEXT_MIB");
  return mib == nullptr ? 0 : static_cast<size_t>(strtoull(mib, nullptr, 10)) << 20;
}

CUresult NewContext(Dev* dev, unsigned int flags, bool primary, Ctx** out) {
  if (dev->device->process() < 0 && dev->device->Attach(dev->instance) < 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  const size_t own = ContextBytes();
  if (own != 0 && !Charge(dev, own)) return CUDA_ERROR_OUT_OF_MEMORY;
  Driver& driver = TheDriver();
  const bool again = primary && dev->spent_primary != nullptr;
  auto* ctx = again ? dev->spent_primary : new Ctx;
  *ctx = Ctx();
  ctx->dev = dev;
  ctx->flags = flags;
  ctx->primary = primary;
  {
    const uint64_t watts = Watts();
    Device::Session session(dev->device);
    ctx->index = session->CreateContext(dev->device->process(), watts);
    if (ctx->index < 0) {
      session.CheckProcesses();
      ctx->index = session->CreateContext(dev->device->process(), watts);
    }
    if (ctx->index >= 0) ctx->id = dev->device->file().contexts[ctx->index].id;
  }
  if (ctx->index < 0) {
    Uncharge(dev, own);
    if (!again) delete ctx;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ctx->own_bytes = own;
  ctx->by_slot.resize(kOpsPerContext);
  // The lowest slots first: a light user touches little of the file.
  for (int slot = kOpsPerContext - 1; slot >= 0; --slot) ctx->free_slots.push_back(slot);
  ctx->legacy.ctx = ctx;
  ctx->legacy.id = driver.next_id++;
  ctx->legacy.legacy = true;
  dev->contexts.push_back(ctx);
  driver.live.insert(ctx);
  *out = ctx;
  return CUDA_SUCCESS;
}

void* FromExportTables(const char* symbol) {
  static void* const library = [] {
    const char* path = getenv("BATON_SIM_EXPORT_TABLES");
    void* loaded = path == nullptr ? nullptr : dlopen(path, RTLD_NOW);
    if (path != nullptr && loaded == nullptr) Say(dlerror());
    return loaded;
  }();
  return library == nullptr ? nullptr : dlsym(library, symbol);
}

void DestroyCtx(Lock& lock, Ctx* ctx) {
  Driver& driver = TheDriver();
  static const auto tell =
      reinterpret_cast<void (*)(CUcontext)>(FromExportTables("baton_sim_context_destroyed"));
  if (tell != nullptr) {
    lock.unlock();
    tell(reinterpret_cast<CUcontext>(ctx));
    lock.lock();
  }
  if (ctx->error == CUDA_SUCCESS) WaitForContext(lock, ctx);
  if (ctx->destroyed) return;
  ctx->destroyed = true;
  {
    Device::Session session(ctx->dev->device);
    CollectEnded(ctx->dev, *session);
    session->DestroyContext(ctx->index);
    ctx->index = -1;
  }
  for (OpPtr& op : ctx->outstanding) {
    if (op->finished) continue;
    op->flags |= kDropped;
    op->finished = op->done = true;
    op->deps.clear();
  }
  ctx->outstanding.clear();
  ctx->by_slot.clear();
  ApplyEnded(lock, ctx->dev);
  ReleaseContextMemory(ctx);
  ReleaseContextArrays(ctx);
  for (Stream* stream : ctx->streams) driver.live.erase(stream);
  ctx->streams.clear();
  driver.live.erase(ctx);
  if (ctx->primary) ctx->dev->spent_primary = ctx;
  std::erase(ctx->dev->contexts, ctx);
  for (Capture* capture : driver.captures) {
    if (capture->origin->ctx == ctx) capture->status = CaptureStatus::kInvalidated;
  }
  // The object stays: threads may still have it current, and streams and events point to it.
}

void Refresh(Lock& lock, Dev* dev) {
  {
    Device::Session session(dev->device);
    CollectEnded(dev, *session);
  }
  ApplyEnded(lock, dev);
}

OpPtr Submit(Lock& lock, Ctx* ctx, uint64_t stream_id, const Work& work, std::vector<OpPtr> deps) {
  Dev* dev = ctx->dev;
  for (OpPtr& dep : deps) {
    // A device knows only its own operations: what waits for another device's is a gate.
    if (dep->ctx->dev == dev || dep->done) continue;
    Work gate;
    gate.kind = OpKind::kGate;
    gate.condition = [dep] {
      Device::Session session(dep->ctx->dev->device);
      CollectEnded(dep->ctx->dev, *session);
      return dep->finished;
    };
    dep = Submit(lock, ctx, stream_id, gate, {});
  }
  std::erase_if(deps, [](const OpPtr& dep) { return dep->finished; });
  while (deps.size() > kMaxDeps) {
    std::vector<OpPtr> some(deps.end() - kMaxDeps, deps.end());
    deps.resize(deps.size() - kMaxDeps);
    deps.insert(deps.begin(), Submit(lock, ctx, stream_id, Work{}, std::move(some)));
  }
  auto op = std::make_shared<LocalOp>();
  op->ctx = ctx;
  op->duration = work.duration;
  op->effect = work.effect;
  op->condition = work.condition;
  op->host_function = work.host_function;
  OpRequest request;
  request.kind = work.host_function ? OpKind::kGate : work.kind;
  request.flags = work.flags | (work.condition && work.kind == OpKind::kKernel ? kGated : 0);
  request.duration = work.duration;
  request.stream = stream_id;
  op->flags = request.flags;
  WaitForRoom(lock, ctx, 1);
  if (ctx->destroyed) {
    op->finished = op->done = true;
    op->flags |= kDropped;
    return op;
  }
  {
    Device::Session session(dev->device);
    CollectEnded(dev, *session);
    if (request.kind == OpKind::kKernel) {
      static thread_local std::map<std::pair<Dev*, const char*>, uint64_t> names;
      auto [it, fresh] = names.try_emplace({dev, work.name}, 0);
      if (fresh) it->second = session->NameId(work.name);
      request.name = it->second;
    }
    for (const OpPtr& dep : deps) {
      if (dep->finished) continue;
      request.deps[request.dep_count] = dep->ref;
      request.dep_sequences[request.dep_count++] = dep->sequence;
      op->deps.push_back(dep);
    }
    const int slot = ctx->free_slots.back();
    ctx->free_slots.pop_back();
    const Submitted submitted = session->Submit(ctx->index, slot, request);
    op->ref = submitted.ref;
    op->sequence = submitted.sequence;
    ctx->by_slot[static_cast<size_t>(slot)] = op;
    ctx->outstanding.push_back(op);
  }
  if (work.condition || work.host_function || work.prompt) Attend(dev, op);
  return op;
}

std::vector<OpPtr> StreamDeps(Stream* stream) {
  std::vector<OpPtr> deps;
  const auto add = [&deps](const OpPtr& op) {
    if (op != nullptr && !op->done) deps.push_back(op);
  };
  add(stream->last);
  if (stream->legacy) {
    add(stream->ctx->orphaned);
    for (Stream* other : stream->ctx->streams) {
      if (!(other->flags & CU_STREAM_NON_BLOCKING)) add(other->last);
    }
  } else if (!(stream->flags & CU_STREAM_NON_BLOCKING)) {
    add(stream->ctx->legacy.last);
  }
  return deps;
}

CUresult Enqueue(Lock& lock, Stream* stream, const Work& work, OpPtr* out) {
  if (CUresult r = CheckContext(stream->ctx)) return r;
  if (stream->capture != nullptr) return AddCaptureNode(stream, work);
  if (stream->legacy) {
    for (Stream* other : stream->ctx->streams) {
      if (other->capture != nullptr && !(other->flags & CU_STREAM_NON_BLOCKING)) {
        InvalidateCapture(other->capture);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      }
    }
  }
  // Room for the joins as well, so that Submit need not give up the lock between the look at the
  // stream's end and its extension.
  WaitForRoom(lock, stream->ctx, kOpsPerContext / 4);
  OpPtr op = Submit(lock, stream->ctx, stream->id, work, StreamDeps(stream));
  stream->last = op;
  if (out != nullptr) *out = op;
  return stream->ctx->error;
}

CUresult WaitFor(Lock& lock, const OpPtr& op) {
  if (op == nullptr) return CUDA_SUCCESS;
  Ctx* ctx = op->ctx;
  while (!op->done) {
    uint32_t word = 0;
    const int64_t until = Look(ctx->dev, op, &word);
    ApplyEnded(lock, ctx->dev);
    if (op->done || until == 0) continue;
    lock.unlock();
    ctx->dev->device->WaitForChange(word, until);
    lock.lock();
  }
  if (ctx->error != CUDA_SUCCESS) return ctx->error;
  return CUDA_SUCCESS;
}

CUresult WaitForContext(Lock& lock, Ctx* ctx) {
  if (ctx->destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  Refresh(lock, ctx->dev);
  // What others enqueue meanwhile is not waited for. The newest first: it mostly ends last.
  const std::vector<OpPtr> all(ctx->outstanding.begin(), ctx->outstanding.end());
  for (auto it = all.rbegin(); it != all.rend(); ++it) WaitFor(lock, *it);
  return ctx->error;
}

}  // namespace baton::sim
