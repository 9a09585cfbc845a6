#include "world/clients.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace baton::world {
namespace {

using std::chrono::microseconds;

// About its mean, as the plan says. Without a division, for every kernel is drawn so.
Duration Vary(Duration mean, uint32_t jitter, Random& random) {
  const int64_t spread = Nanos(mean) * jitter / 100;
  const auto draw = static_cast<int64_t>(random.Next() >> 40);
  // Above some minutes in steps of 8 ms, for the product to fit.
  const bool fits = spread < (int64_t{1} << 38);
  return mean - Duration(spread) +
         Duration(fits ? (2 * spread * draw) >> 24 : (spread >> 23) * draw);
}

bool Each(uint32_t every, uint64_t number) { return every != 0 && number % every == 0; }

// The mean length of the thread's next kernel.
Duration NextKernel(const PodPlan& plan, const Thread& t) {
  const bool collective = plan.collective_kernel > Duration(0);
  if (collective && Each(plan.collective, t.launches + 1)) return plan.collective_kernel;
  return Each(plan.long_every, t.launches + 1) ? plan.long_kernel : plan.kernel;
}

// When the hook sees what it waits for: mostly it looks for it without a pause, else it sleeps.
Duration SeenAfter(Process& p) {
  const bool sleeps = p.link.Between(0, 3) == 0;
  return microseconds(sleeps ? p.link.Between(5, 50) : p.link.Between(1, 4));
}

}  // namespace

void Clients::Begin(Process& p) {
  for (uint32_t t = 0; t < p.threads.size(); ++t) BeginBurst(p, t);
}

void Clients::BeginBurst(Process& p, uint32_t thread) {
  if (!p.alive || !world_.pods[p.pod].present) return;
  const PodPlan& plan = world_.PlanOf(p);
  p.threads[thread].left = plan.burst == Duration(0) ? Duration::max() : plan.burst;
  p.threads[thread].burst_at = world_.now;
  Launch(p, thread);
}

// A launching thread runs until it is parked, has launched its burst, or is far enough ahead.
void Clients::Launch(Process& p, uint32_t thread) {
  Thread& t = p.threads[thread];
  if (!p.alive || p.stopped || t.throttled) return;
  const PodPlan& plan = world_.PlanOf(p);
  while (t.left > Duration(0) && HasTurn(p)) {
    if (!p.open) {
      if (!t.parked) {
        t.parked = true;
        t.asked = world_.now;
        Step(p, {.kind = hook::EventKind::kParked});
      }
      return;
    }
    t.parked = false;
    const Duration bound = p.machine.backlog_bound();
    if (bound > Duration(0) && gpus_.BacklogOf(p, thread) > bound) {
      t.throttled = true;
      return;
    }
    Duration length =
        std::max<Duration>(microseconds(1), Vary(NextKernel(plan, t), plan.jitter, p.work));
    if (t.left != Duration::max()) {
      length = std::min(length, t.left);
      t.left -= length;
    }
    if (p.hang && world_.now < Instant(world_.plan.calm_from)) {
      p.hang = false;
      length = Duration::max();
    }
    LaunchKernel(p, thread, length);
  }
  t.parked = false;
  EndBurst(p, thread);
}

void Clients::LaunchKernel(Process& p, uint32_t thread, Duration length) {
  Thread& t = p.threads[thread];
  ++t.launches;
  const bool collective = Each(world_.PlanOf(p).collective, t.launches);
  gpus_.Launch(p, thread, length, collective ? ++t.collectives : 0);
  if (p.machine.single()) Step(p, {.kind = hook::EventKind::kTimer});
  if (world_.PlanOf(p).in_turn) PassTurn(p);
}

// Those of one number are one thread, which launches on its first GPU first.
bool Clients::HasTurn(const Process& p) const {
  if (!world_.PlanOf(p).in_turn) return true;
  const auto& living = world_.pods[p.pod].living;
  return std::all_of(living.begin(), living.end(), [&p](const Process* peer) {
    const uint64_t ahead = peer->index < p.index ? 1 : 0;
    return peer->ordinal != p.ordinal || peer->Launches() >= p.Launches() + ahead;
  });
}

void Clients::PassTurn(Process& p) {
  for (const Process* peer : world_.pods[p.pod].living) {
    if (peer == &p || peer->ordinal != p.ordinal || !HasTurn(*peer)) continue;
    world_.After(microseconds(p.link.Between(1, 5)), What::kTurn, peer->index);
  }
}

void Clients::KernelEnded(Process& p, uint32_t thread) {
  if (p.stopped) return;
  if (Unthrottle(p, thread)) Launch(p, thread);
  if (gpus_.PendingOf(p) == 0) NoticeFinished(p);
  EndBurst(p, thread);
}

bool Clients::Unthrottle(Process& p, uint32_t thread) {
  Thread& t = p.threads[thread];
  const Duration bound = p.machine.backlog_bound() / (world_.PlanOf(p).uneven ? 1 : 2);
  if (!t.throttled || gpus_.BacklogOf(p, thread) > bound) return false;
  t.throttled = false;
  return true;
}

bool Clients::EndBurst(Process& p, uint32_t thread) {
  Thread& t = p.threads[thread];
  if (t.left != Duration(0) || gpus_.PendingOf(p, thread) != 0) return false;
  const PodPlan& plan = world_.PlanOf(p);
  t.left = Duration(-1);
  const Duration pause = std::max<Duration>(microseconds(1), Vary(plan.pause, plan.jitter, p.work));
  world_.At((plan.periodic ? t.burst_at : world_.now) + pause, What::kBurst, p.index, thread);
  return true;
}

hook::Observation Clients::Observe(const Process& p) const {
  hook::Observation seen;
  const PodPlan& plan = world_.PlanOf(p);
  seen.launches = p.Launches();
  seen.backlog = gpus_.BacklogOf(p);
  seen.longest = plan.LongestKernel();
  for (const Thread& t : p.threads) {
    seen.parked += t.parked ? 1 : 0;
    seen.pacing += t.throttled ? 1 : 0;
  }
  seen.busy_ns = static_cast<uint64_t>(Nanos(p.busy));
  // For 100 ms of each 300, each process at other times.
  seen.late = world_.plan.late && (Nanos(world_.now) / 100'000'000 + p.index) % 3 == 0;
  return seen;
}

void Clients::Step(Process& p, const hook::Event& event) {
  if (!p.alive || p.stopped) return;
  const hook::Effects effects = p.machine.Step(world_.now, event, Observe(p));
  Write(p);
  if (effects.send) links_.ToDaemon(p, effects.state);
  const bool opened = effects.open && !p.open;
  p.open = effects.open;
  p.watching = effects.watch;
  p.wake = effects.wake == kNever ? kNever : std::max(effects.wake, world_.now + microseconds(1));
  QueueWake(p);
  // One of the threads has seen the word itself, and needs no wake-up.
  bool awake = event.kind == hook::EventKind::kWord;
  for (uint32_t t = 0; opened && t < p.threads.size(); ++t) {
    const bool itself = p.threads[t].parked && std::exchange(awake, false);
    const auto after = itself ? p.link.Between(1, 3) : p.link.Between(3, 40);
    world_.After(microseconds(after), What::kOpened, p.index, t);
  }
  if (p.watching) NoticeFinished(p);
}

void Clients::Write(Process& p) {
  const hook::ClientMachine& machine = p.machine;
  if (machine.phase() == wire::Phase::kHolding && p.word.began_epoch < machine.epoch()) {
    p.word.began_epoch = machine.epoch();
    p.word.began_at = world_.now;
  }
  if (machine.ahead() != nullptr) ReadSoon(p);
  if (!machine.drained() || p.word.Says(machine.epoch(), machine.rev())) return;
  SayWord(p, machine.epoch(), machine.rev());
}

void Clients::SayWord(Process& p, uint64_t epoch, uint64_t rev) {
  p.word.epoch = epoch;
  p.word.rev = rev;
  p.word.drained_at = world_.now;
  for (const auto& other : world_.processes) {
    if (other->alive && other->gpu == p.gpu && other->machine.ahead() != nullptr) ReadSoon(*other);
  }
}

void Clients::ReadSoon(Process& p) {
  const wire::Token& token = *p.machine.ahead();
  const Process& before = world_.ProcessOf(ClientId{token.after_client});
  if (p.reading || !before.word.Says(token.after_epoch, token.after_rev)) return;
  p.reading = true;
  world_.After(SeenAfter(p), What::kWord, p.index);
}

void Clients::Read(Process& p) {
  p.reading = false;
  if (p.machine.ahead() == nullptr || !p.alive || p.stopped) return;
  const wire::Token& token = *p.machine.ahead();
  const Process& before = world_.ProcessOf(ClientId{token.after_client});
  if (before.word.Says(token.after_epoch, token.after_rev)) {
    Step(p, {.kind = hook::EventKind::kWord, .drained_at = before.word.drained_at});
  }
}

// One event at a time sees to a machine's timer, however often it is set.
void Clients::QueueWake(Process& p) {
  if (p.wake >= p.wake_queued) return;
  p.wake_queued = p.wake;
  world_.At(p.wake, What::kWake, p.index);
}

void Clients::Wake(Process& p, Instant at) {
  if (at != p.wake_queued) return;
  p.wake_queued = kNever;
  if (!p.alive || p.stopped) return;
  if (p.wake > world_.now) return QueueWake(p);
  Step(p, {.kind = hook::EventKind::kTimer});
}

void Clients::Opened(Process& p, uint32_t thread) {
  if (!p.open || !p.threads[thread].parked) return;
  const Duration wait = world_.now - p.threads[thread].asked;
  world_.verdict.worst_wait = std::max(world_.verdict.worst_wait, wait);
  world_.AccountOf(p).waits.Add(wait);
  Launch(p, thread);
}

// The hook sees the end of its work a little later.
void Clients::NoticeFinished(Process& p) {
  if (!p.watching || p.noticing || gpus_.PendingOf(p) != 0) return;
  p.noticing = true;
  world_.After(SeenAfter(p), What::kFinished, p.index);
}

void Clients::Finished(Process& p) {
  p.noticing = false;
  if (p.alive && !p.stopped && p.watching && gpus_.PendingOf(p) == 0) {
    Step(p, {.kind = hook::EventKind::kFinished});
  }
}

void Clients::Deliver(Process& p, const hook::Event& event) {
  if (!p.alive) return;
  if (p.stopped) {
    p.missed.push_back(event);
  } else {
    Step(p, event);
  }
}

void Clients::Continue(Process& p) {
  if (!p.alive) return;
  p.stopped = false;
  const std::vector<hook::Event> events = std::exchange(p.missed, {});
  Read(p);
  Step(p, {.kind = hook::EventKind::kTimer});
  for (const hook::Event& event : events) Step(p, event);
  for (uint32_t t = 0; t < p.threads.size(); ++t) Unthrottle(p, t);
  NoticeFinished(p);
  for (uint32_t t = 0; t < p.threads.size(); ++t) {
    if (!EndBurst(p, t)) Launch(p, t);
  }
}

}  // namespace baton::world
