#include "hook/questions.h"

#include "hook/client.h"

namespace baton::hook {
namespace {

using std::chrono::milliseconds;

// In AwayMode::kOpen the program does not wait longer than this for an answer about memory.
constexpr Duration kAnswerPatience = std::chrono::seconds(2);
// Who waits looks this often whether the process was refused.
constexpr Duration kParkedLook = milliseconds(500);
// What the pod has is taken for so long as it was told, and asked for no longer than this.
constexpr Duration kPodUsedKeeps = milliseconds(10);
constexpr Duration kPodUsedPatience = milliseconds(100);
constexpr Duration kLockLook = std::chrono::microseconds(200);

}  // namespace

bool AwaitCap(Gpu* gpu) {
  const Instant until = WhileAway() == wire::AwayMode::kOpen
                            ? InstantFromNanos(gpu->wanted_at.load()) + kAnswerPatience
                            : kNever;
  uint32_t known;
  while ((known = gpu->memory.cap_known.load()) == 0) {
    const Instant now = MonotonicNow();
    if (now >= until || Refused()) return false;
    const Duration left = until == kNever ? kParkedLook : until - now;
    FutexWait(&gpu->memory.cap_known, 0, left < kParkedLook ? left : kParkedLook);
  }
  return known == 1;
}

namespace {

// Of a new question: answers to those before it count no more.
uint64_t NewNumber(Gpu* gpu) {
  const uint64_t number = gpu->memory.request.fetch_add(1) + 1;
  gpu->memory.answer.store(0);
  return number;
}

void SendTotal(Gpu* gpu, uint64_t number, uint64_t total, uint64_t refused) {
  if (!gpu->attached.load()) return;
  wire::Memory message;
  message.gpu = gpu->index;
  message.request = number;
  message.total = total;
  message.movable = gpu->memory.movable.load();
  message.refused = refused;
  Send(message);
}

}  // namespace

bool AskMemory(Gpu* gpu, uint64_t total) {
  const Instant asked = MonotonicNow();
  for (;;) {
    if (Refused()) return false;
    SendTotal(gpu, NewNumber(gpu), total, 0);
    // Asked again after a while, for an answer that was lost.
    FutexWait(&gpu->memory.answer, 0, milliseconds(250));
    const uint32_t answer = gpu->memory.answer.load();
    if (answer == 1 || answer == 2) return answer == 1;
    if (WhileAway() == wire::AwayMode::kOpen && !gpu->attached.load() &&
        MonotonicNow() - asked > kAnswerPatience) {
      return true;
    }
  }
}

void TellMemory(Gpu* gpu, uint64_t total, uint64_t refused) {
  SendTotal(gpu, gpu->memory.request.fetch_add(1) + 1, total, refused);
}

void AskPodUsed(Gpu* gpu) {
  const Instant asked = MonotonicNow(), until = asked + kPodUsedPatience;
  const int64_t before = gpu->memory.pod_asked_at.load();
  if (before != 0 && Nanos(asked) - before < Nanos(kPodUsedKeeps)) return;
  // At first: the cap is known a moment sooner.
  while (before == 0 && !gpu->attached.load() && MonotonicNow() < until) SleepFor(kLockLook);
  if (before == 0) gpu->memory.pod_asked_at.store(Nanos(asked));
  if (!gpu->attached.load()) return;
  while (!gpu->memory.lock.TryAcquire()) {
    if (MonotonicNow() >= until) return;
    SleepFor(kLockLook);
  }
  // What it has already is granted again, over the cap too.
  SendTotal(gpu, NewNumber(gpu), gpu->memory.used.load(), 0);
  uint32_t answer = 0;
  for (Instant now = MonotonicNow(); now < until && gpu->attached.load(); now = MonotonicNow()) {
    if ((answer = gpu->memory.answer.load()) != 0) break;
    FutexWait(&gpu->memory.answer, 0, until - now);
  }
  if (answer == 1 || answer == 2) gpu->memory.pod_asked_at.store(Nanos(MonotonicNow()));
  gpu->memory.lock.Release();
}

void OnMemoryReply(Gpu* gpu, const wire::MemoryReply& reply) {
  gpu->memory.cap.store(reply.memory_cap);
  // An answer to what was said earlier knows less than this process does.
  const uint64_t latest = gpu->memory.request.load();
  if (reply.request == 0 || reply.request >= latest) gpu->memory.pod_used.store(reply.pod_used);
  if (reply.request != latest) return;
  gpu->memory.host_full.store(reply.host_full);
  uint32_t open = 0;
  if (gpu->memory.answer.compare_exchange_strong(open, reply.granted ? 1 : 2)) {
    FutexWakeAll(&gpu->memory.answer);
  }
}

}  // namespace baton::hook
