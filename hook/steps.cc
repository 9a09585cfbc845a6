#include "hook/steps.h"

#include <unistd.h>

#include "hook/client.h"
#include "hook/listener.h"
#include "hook/mover.h"
#include "hook/observe.h"
#include "hook/sleep.h"

namespace baton::hook {
namespace {

using wire::Phase;

// How long the GPU takes to come is measured once in so many hand-offs.
constexpr uint32_t kArrivalsMeasured = 16;
// The client thread has the lock for microseconds, and beside busy processors for some slices.
constexpr Duration kLockLook = std::chrono::microseconds(50);
constexpr Duration kHangs = std::chrono::milliseconds(50);

// Says in this process's word what the machine has come to: before it is said to the backend.
void SayWord(Gpu* gpu, Instant now) {
  const ClientMachine& machine = gpu->machine;
  if (machine.phase() == Phase::kHolding) SayBegan(gpu->index, machine.epoch(), now);
  if (machine.drained()) SayDrained(gpu->index, machine.epoch(), machine.rev(), gpu->ended_at);
  if (machine.ahead() != nullptr || gpu->awaited.word.load(std::memory_order_relaxed) == nullptr) {
    return;
  }
  gpu->awaited.word.store(nullptr, std::memory_order_release);
  // Whoever sleeps on it, and did not bring this about, looks again.
  if (gpu->awaited.watched.load()) FutexWakeAll(&gpu->gate.open);
}

// The client thread is to look by `wake`.
void WakeBy(Instant wake) {
  const bool by_itself = t_slot == nullptr || t_slot->in_launch.load() == Slot::kHooksOwn;
  if (!by_itself && SleepsBeyond(wake)) Kick();
}

void SayNow(Gpu* gpu, Instant wake) {
  SendOwed(gpu);
  WakeBy(wake);
}

}  // namespace

void StepLocked(Gpu* gpu, const Event& event, Instant now, Says says) {
  const bool was_open = gpu->gate.open.load(std::memory_order_relaxed) != 0;
  const bool draining = gpu->machine.phase() == Phase::kDraining;
  const Effects effects = gpu->machine.Step(now, event, Observe(gpu, now));
  const bool open = effects.open && MemoryIsIn(gpu);
  if (was_open && !open) {
    gpu->gate.open.store(0, std::memory_order_seq_cst);
    if (HasMembarrier()) Membarrier();
    gpu->flags_clear = false;
  }
  if (!was_open && open) {
    // Seldom: an event before the first launch makes the hand-off longer.
    if (event.kind == EventKind::kWord && gpu->took_over++ % kArrivalsMeasured == 0) {
      gpu->meter.arrives.store(true);
    }
    if (draining) gpu->meter.let_pass.fetch_add(1);
    gpu->gate.open.store(1, std::memory_order_seq_cst);
    // Whoever sleeps there counted itself before it looked at the gate for the last time.
    if (gpu->asleep.load(std::memory_order_seq_cst) != 0) FutexWakeAll(&gpu->gate.open);
    WakeListener();
  }
  SayWord(gpu, now);
  const bool watches = effects.watch && !gpu->watch;
  if (watches) gpu->ended_at = now;  // at the earliest: what it paused before is its own
  gpu->wake = effects.wake;
  gpu->watch = effects.watch;
  gpu->meter.bound_ns.store(Nanos(gpu->machine.backlog_bound()), std::memory_order_relaxed);
  if (effects.send) {
    gpu->owed = effects.state;
    gpu->owes = true;
  }
  if (says == Says::kNow) SayNow(gpu, watches ? now : gpu->wake);  // the launchers first
  gpu->after_launch.store(gpu->machine.single() || gpu->owes, std::memory_order_relaxed);
}

void Step(Gpu* gpu, const Event& event) {
  Guard guard(gpu->lock);
  StepLocked(gpu, event, MonotonicNow());
}

bool StepOrPass(Gpu* gpu, const Event& event, void (*pass)(void*), void* argument) {
  const Instant since = MonotonicNow();
  while (!gpu->lock.TryAcquire()) {
    SleepFor(kLockLook);
    if (MonotonicNow() - since < kHangs) continue;
    Guard guard(gpu->meter.waits_lock);
    DrainLook looks = DrainLook::kLooks;
    if (!gpu->look.compare_exchange_strong(looks, DrainLook::kPassed)) continue;
    pass(argument);
    return false;
  }
  StepLocked(gpu, event, MonotonicNow());
  gpu->lock.Release();
  return true;
}

void TakeToken(const wire::Token& token, int file) {
  if (token.gpu < GpuCount()) {
    Gpu* gpu = GpuAt(token.gpu);
    Event event;
    event.kind = EventKind::kToken;
    event.token = token;
    const bool ahead = token.after_client != 0 && token.quota_ns != 0;
    Guard guard(gpu->lock);
    const wire::Word* word = nullptr;
    if (ahead && file >= 0) {
      word = ReadWord(file, token.after_client, token.after_gpu);
      file = -1;
    }
    // One whose word cannot be read has not come: it is sent again when it begins.
    if (!ahead || word != nullptr) StepLocked(gpu, event, MonotonicNow());
    const wire::Token* waits = gpu->machine.ahead();
    if (word != nullptr && waits != nullptr && waits->epoch == token.epoch) {
      gpu->awaited.epoch.store(token.after_epoch, std::memory_order_relaxed);
      gpu->awaited.looks.store(0, std::memory_order_relaxed);
      gpu->awaited.rev.store(token.after_rev, std::memory_order_relaxed);
      gpu->awaited.word.store(word, std::memory_order_release);
      WakeListener();  // it sleeps on that word from now on
      WakeBy(MonotonicNow() + kWordLook);
    }
  }
  if (file >= 0) close(file);
}

void LookAtWord(Gpu* gpu, bool launches) {
  if (!gpu->awaited.HasCome()) return;
  Guard guard(gpu->lock);
  if (!gpu->awaited.HasCome()) return;
  const Event event{.kind = EventKind::kWord, .drained_at = gpu->awaited.DrainedAt()};
  StepLocked(gpu, event, MonotonicNow(), launches ? Says::kLater : Says::kNow);
  if (launches && gpu->gate.open.load() == 0) SayNow(gpu, gpu->wake);
}

void SendOwed(Gpu* gpu) {
  if (!gpu->owes) return;
  gpu->owes = false;
  Send(gpu->owed);
}

}  // namespace baton::hook
