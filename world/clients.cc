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

}  // namespace

void Clients::BeginBurst(Process& p) {
  if (!p.alive || !world_.pods[p.pod].present) return;
  const PodPlan& plan = world_.PlanOf(p);
  p.left = plan.burst == Duration(0) ? Duration::max() : plan.burst;
  p.burst_at = world_.now;
  Launch(p);
}

// The launching thread runs until it is parked, has launched its burst, or is far enough ahead.
void Clients::Launch(Process& p) {
  if (!p.alive || p.stopped || p.throttled) return;
  const PodPlan& plan = world_.PlanOf(p);
  while (p.left > Duration(0)) {
    if (!p.open) {
      if (!p.parked) {
        p.parked = true;
        p.asked = world_.now;
        Step(p, {.kind = hook::EventKind::kParked});
      }
      return;
    }
    p.parked = false;
    const Duration bound = p.machine.backlog_bound();
    if (bound > Duration(0) && gpus_.BacklogOf(p) > bound) {
      p.throttled = true;
      return;
    }
    const bool is_long = plan.long_every != 0 && (p.launches + 1) % plan.long_every == 0;
    Duration length = std::max<Duration>(
        microseconds(1), Vary(is_long ? plan.long_kernel : plan.kernel, plan.jitter, p.work));
    if (p.left != Duration::max()) {
      length = std::min(length, p.left);
      p.left -= length;
    }
    if (p.hang && world_.now < Instant(world_.plan.calm_from)) {
      p.hang = false;
      length = Duration::max();
    }
    LaunchKernel(p, length);
  }
  p.parked = false;
  if (p.left == Duration(0) && gpus_.PendingOf(p) == 0) EndBurst(p);
}

void Clients::LaunchKernel(Process& p, Duration length) {
  ++p.launches;
  const uint32_t every = world_.PlanOf(p).collective;
  const bool collective = every != 0 && p.launches % every == 0;
  gpus_.Launch(p, length, collective ? ++p.collectives : 0);
  if (p.machine.single()) Step(p, {.kind = hook::EventKind::kTimer});
}

void Clients::KernelEnded(Process& p) {
  if (p.stopped) return;
  if (Unthrottle(p)) Launch(p);
  if (gpus_.PendingOf(p) == 0) {
    NoticeFinished(p);
    if (p.left == Duration(0)) EndBurst(p);
  }
}

bool Clients::Unthrottle(Process& p) {
  if (!p.throttled || gpus_.BacklogOf(p) > p.machine.backlog_bound() / 2) return false;
  p.throttled = false;
  return true;
}

void Clients::EndBurst(Process& p) {
  const PodPlan& plan = world_.PlanOf(p);
  p.left = Duration(-1);
  const Duration pause = std::max<Duration>(microseconds(1), Vary(plan.pause, plan.jitter, p.work));
  world_.At((plan.periodic ? p.burst_at : world_.now) + pause, What::kBurst, p.index);
}

hook::Observation Clients::Observe(const Process& p) const {
  hook::Observation seen;
  const PodPlan& plan = world_.PlanOf(p);
  seen.launches = p.launches;
  seen.backlog = gpus_.BacklogOf(p);
  seen.longest = plan.LongestKernel();
  seen.parked = p.parked ? 1 : 0;
  seen.busy_ns = static_cast<uint64_t>(Nanos(p.busy));
  return seen;
}

void Clients::Step(Process& p, const hook::Event& event) {
  if (!p.alive || p.stopped) return;
  const hook::Effects effects = p.machine.Step(world_.now, event, Observe(p));
  if (effects.send) links_.ToDaemon(p, effects.state);
  const bool opened = effects.open && !p.open;
  p.open = effects.open;
  p.watching = effects.watch;
  p.wake = effects.wake == kNever ? kNever : std::max(effects.wake, world_.now + microseconds(1));
  QueueWake(p);
  if (opened) world_.After(microseconds(p.link.Between(3, 40)), What::kOpened, p.index);
  if (p.watching) NoticeFinished(p);
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

void Clients::Opened(Process& p) {
  if (!p.open || !p.parked) return;
  const Duration wait = world_.now - p.asked;
  world_.verdict.worst_wait = std::max(world_.verdict.worst_wait, wait);
  world_.AccountOf(p).waits.Add(wait);
  Launch(p);
}

// The hook polls its events: it sees the end of its work a little later.
void Clients::NoticeFinished(Process& p) {
  if (!p.watching || p.noticing || gpus_.PendingOf(p) != 0) return;
  p.noticing = true;
  world_.After(microseconds(p.link.Between(5, 50)), What::kFinished, p.index);
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
  Step(p, {.kind = hook::EventKind::kTimer});
  for (const hook::Event& event : events) Step(p, event);
  Unthrottle(p);
  NoticeFinished(p);
  if (p.left == Duration(0) && gpus_.PendingOf(p) == 0) {
    EndBurst(p);
  } else {
    Launch(p);
  }
}

}  // namespace baton::world
