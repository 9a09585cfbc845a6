#include "tests/scheduler/gang_run.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace baton::scheduler {

GangRun::GangRun(uint32_t gpus, uint64_t seed, const SchedulerOptions& options) : random_(seed) {
  plan_.seed = seed;
  plan_.gpus = gpus;
  plan_.length = std::chrono::hours(1);
  options_.scheduler = options;
  options_.invariants = true;
  options_.kill_hung = false;
}

PodId GangRun::Add(PodPlan pod) {
  if (pod.id == 0) pod.id = ++last_id_;
  pod.uneven = pod.burst == Duration(0);  // those that pause do so together
  pod.collective_kernel = microseconds(20);
  // Who is on several GPUs takes all their tokens or none.
  if (pod.gpus.size() > 1) pod.gang = pod.id;
  plan_.pods.push_back(pod);
  return PodId{pod.id};
}

PodId GangRun::AddPods(PodPlan pod, const std::vector<uint32_t>& processes) {
  pod.id = pod.gang = ++last_id_;
  const std::vector<uint32_t> gpus = pod.gpus;
  for (size_t i = 0; i < gpus.size(); ++i) {
    pod.gpus = {gpus[i]};
    if (!processes.empty()) pod.processes = processes.at(i);
    Add(pod);
    pod.id = 1000 * (gpus[i] + 1) + pod.gang;
  }
  return PodId{pod.gang};
}

void GangRun::Run(Duration length) {
  if (!world_) {
    const auto checked = CheckPlan(plan_);
    ASSERT_TRUE(checked) << checked.error().message;
    world_.emplace(plan_, options_);
    world_->state().faults = !options_.bounds;
  }
  const world::Verdict& verdict = world_->state().verdict;
  if (!verdict.ok) return;
  const Instant end = now() + length;
  const uint64_t wakeups = daemon().gang_wakeups();
  while (!later_.empty() && later_.begin()->first <= end) {
    const auto next = later_.extract(later_.begin());
    world_->RunUntil(next.key());
    next.mapped()();
  }
  world_->RunUntil(end);
  ASSERT_TRUE(verdict.ok) << verdict.check << ": " << verdict.violation;
  // One that is due all the time is woken each millisecond; amid faults several may be.
  const auto most = static_cast<uint64_t>(options_.bounds ? 50 + length / microseconds(1'500)
                                                          : 100 + length / microseconds(1'200));
  ASSERT_LT(daemon().gang_wakeups() - wakeups, most) << "the gangs' coordinator spins";
}

Shares GangRun::SharesOver(Duration length) {
  Shares shares;
  const auto add = [&](double sign) {
    for (size_t i = 0; i < plan_.pods.size(); ++i) {
      const PodId first{world_->state().GangOf(i).id.value};
      for (const uint32_t g : plan_.pods[i].gpus) {
        const auto used = static_cast<double>(Nanos(world_->state().pods[i].accounts[g].used));
        shares[{first, g}] += sign * 100 * used / static_cast<double>(Nanos(length));
      }
    }
  };
  add(-1);
  Run(length);
  add(1);
  return shares;
}

void GangRun::Do(const world::FaultPlan& fault) { world_->faults().Do(fault); }

void GangRun::SetShare(PodId pod, double request, double limit) {
  for (const auto& [i, g] : PlacesOf(pod)) {
    Do({.kind = world::kResizes, .pod = plan_.pods[i].id, .spec = Spec(request, limit)});
  }
}

void GangRun::Stop(PodId pod, uint32_t which, Duration length) {
  if (world::Process* p = Living(pod, which)) world_->processes().Stop(*p, length);
}

void GangRun::Disconnect(PodId pod, uint32_t which, Duration length) {
  if (world::Process* p = Living(pod, which)) world_->processes().Disconnect(*p, length);
}

void GangRun::CutLink(Duration length) {
  Do({.kind = world::kCuts, .length = length, .noticed = true});
  const auto tell = [this](hook::EventKind kind) {
    for (const auto& p : world_->state().processes) {
      if (p->connected) world_->clients().Deliver(*p, {.kind = kind});
    }
  };
  tell(hook::EventKind::kAway);
  later_.emplace(now() + length, [tell] { tell(hook::EventKind::kSync); });
}

void GangRun::Kill(PodId pod, uint32_t which) {
  if (world::Process* p = Living(pod, which)) world_->processes().End(*p);
}

void GangRun::StartAnew(PodId pod) {
  for (world::Process* p : Processes(pod)) {
    later_.emplace(now() + microseconds(random_.Between(0, 20'000)),
                   [this, p] { world_->processes().End(*p); });
  }
  later_.emplace(now() + microseconds(random_.Between(20'000, 100'000)), [this, pod] {
    const world::WorldState& state = world_->state();
    for (size_t i = 0; i < plan_.pods.size(); ++i) {
      const bool its = state.GangOf(i).id.value == pod.value && state.pods[i].present;
      if (its) world_->processes().StartAll(i);
    }
  });
}

void GangRun::Remove(PodId pod) {
  for (const auto& [i, g] : PlacesOf(pod)) {
    if (!world_->state().pods[i].present) continue;
    world_->state().pods[i].present = false;
    world_->daemon().RemovePod(i);
  }
}

void GangRun::Restart(std::vector<uint32_t> gpus) {
  if (gpus.empty()) {
    for (uint32_t g = 0; g < plan_.gpus; ++g) gpus.push_back(g);
  }
  world_->daemon().Stop(Duration(0));
  world_->processes().LoseDaemon();
  world_->daemon().ComeBack(gpus);
}

bool GangRun::Asks(PodId pod) {
  const auto living = Processes(pod);
  return std::any_of(living.begin(), living.end(), [](const world::Process* p) {
    return p->machine.phase() != wire::Phase::kIdle;
  });
}

bool GangRun::Waits(PodId pod, uint32_t g) {
  bool waits = false;
  EachStatus(pod, [&](const TokenScheduler& gpu, const PodStatus& s) {
    if (&gpu == world_->state().sites[g].scheduler.get()) waits = s.waiting || s.holding;
  });
  return waits;
}

uint32_t GangRun::Started(PodId pod) {
  return world_->state().GangOf(world_->state().IndexOf(pod)).started;
}

uint64_t GangRun::Launches(PodId pod) {
  uint64_t least = ~uint64_t{0};
  for (const world::Process* p : Processes(pod)) least = std::min(least, p->Launches());
  return least;
}

uint64_t GangRun::Collectives(PodId pod) {
  uint64_t least = ~uint64_t{0};
  for (const world::Process* p : Processes(pod)) {
    for (const world::Thread& t : p->threads) least = std::min<uint64_t>(least, t.collectives);
  }
  return least;
}

uint64_t GangRun::Grants(uint32_t g) { return world_->state().sites[g].stored_epoch; }

Duration GangRun::Charged(PodId pod, uint32_t g) {
  Duration charged{0};
  for (const auto& [i, on] : PlacesOf(pod)) {
    if (on == g) charged += world_->state().pods[i].accounts[g].held;
  }
  return charged;
}

Duration GangRun::Held(PodId pod) {
  Duration least = Duration::max();
  EachStatus(pod,
             [&](const TokenScheduler&, const PodStatus& s) { least = std::min(least, s.held); });
  return least;
}

LatencyMet GangRun::Met(PodId pod) {
  LatencyMet met;
  EachStatus(pod, [&](const TokenScheduler&, const PodStatus& s) { met = s.met; });
  return met;
}

Duration GangRun::Debt(PodId pod) {
  Duration most{0};
  EachStatus(pod, [&](const TokenScheduler& gpu, const PodStatus& s) {
    most = std::max({most, -s.lag, -gpu.Gang(s.pod).allowance});
  });
  return most;
}

Duration GangRun::LongestWait(PodId pod) {
  Duration longest{0};
  for (const auto& [i, g] : PlacesOf(pod)) {
    longest = std::max(longest, world_->state().pods[i].accounts[g].waits.max());
  }
  return longest;
}

const GangRun::Places& GangRun::PlacesOf(PodId pod) {
  return world_->state().GangOf(world_->state().IndexOf(pod)).places;
}

std::vector<world::Process*> GangRun::Processes(PodId pod) {
  std::vector<world::Process*> living;
  for (const auto& p : world_->state().processes) {
    if (p->alive && world_->state().GangOf(p->pod).id.value == pod.value) living.push_back(p.get());
  }
  return living;
}

world::Process* GangRun::Living(PodId pod, uint32_t which) {
  const auto living = Processes(pod);
  return living.empty() ? nullptr : living[which % living.size()];
}

void GangRun::EachStatus(PodId pod,
                         const std::function<void(const TokenScheduler&, const PodStatus&)>& look) {
  for (const auto& [i, g] : PlacesOf(pod)) {
    TokenScheduler& gpu = *world_->state().sites[g].scheduler;
    for (const PodStatus& s : gpu.Status(now())) {
      if (s.pod == world_->state().IdOf(i)) look(gpu, s);
    }
  }
}

double Least(const Shares& shares, PodId pod) {
  std::optional<double> least;
  for (const auto& [key, share] : shares) {
    if (key.first == pod) least = std::min(least.value_or(100), share);
  }
  return least.value_or(0);
}

}  // namespace baton::scheduler
