#include "world/processes.h"

#include <memory>
#include <vector>

namespace baton::world {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Random numbers of its own for everything that is drawn, so that a world without one of its pods
// or faults is otherwise the same.
Random Draws(uint64_t seed, uint64_t pod, uint64_t process, uint64_t purpose) {
  return Random(seed * 0x9e3779b97f4a7c15u + pod * 0xbf58476d1ce4e5b9u +
                process * 0x94d049bb133111ebu + purpose);
}

}  // namespace

void Processes::StartAll(size_t pod) {
  const PodPlan& plan = world_.plan.pods[pod];
  for (const uint32_t g : plan.gpus) {
    for (uint32_t n = 0; n < plan.processes; ++n) Start(pod, g, n, Duration(0));
  }
}

void Processes::EndAll(size_t pod) {
  for (Process* p : std::vector(world_.pods[pod].living)) End(*p);
}

void Processes::Start(size_t pod, uint32_t gpu, uint32_t ordinal, Duration delay) {
  const auto index = static_cast<uint32_t>(world_.processes.size());
  const uint64_t seed = world_.plan.seed;
  const PodPlan& plan = world_.plan.pods[pod];
  const bool gang = world_.IsGang(pod);
  const uint64_t id = world_.GangOf(pod).id.value;
  const uint32_t run = world_.GangOf(pod).started++;
  world_.processes.push_back(std::make_unique<Process>(
      index, pod, gpu, ordinal, Draws(seed, id, gang ? 0 : run, 1), Draws(seed, id, run, 2)));
  Process& p = *world_.processes.back();
  world_.pods[pod].living.push_back(&p);
  p.threads.resize(plan.threads);
  p.stream = gpus_.StreamOf(pod, gpu, ordinal);
  p.machine = hook::ClientMachine(hook::ClientOptions{}, world_.now + delay);
  // Those of a gang have found each other before they begin.
  const int64_t late = (gang ? p.work : p.link).Between(0, 200'000'000);
  if (plan.uneven) p.work = Draws(seed, id, run, 3);
  world_.After(delay + Duration(late), What::kBegin, index);
}

void Processes::Begin(Process& p) {
  Connect(p);
  if (!world_.PlanOf(p).hostile) clients_.Begin(p);
}

void Processes::Connect(Process& p) {
  if (!p.alive || p.connected || !world_.pods[p.pod].present) return;
  // Who is stopped connects when it goes on: after what the last connection still had.
  if (!daemon_.Hears(p.gpu) || node_.down() || p.stopped) {
    world_.After(milliseconds(p.link.Between(5, 200)), What::kConnect, p.index);
    return;
  }
  p.connected = true;
  ++p.connection;
  node_.Attach(p);
  daemon_.Attach(p);
  world_.After(microseconds(p.link.Between(20, 300)), What::kAttached, p.index, p.connection);
}

void Processes::Attached(Process& p, uint32_t connection) {
  if (!p.connected || p.connection != connection) return;
  node_.Served(p);
  if (world_.PlanOf(p).hostile) return adversary_.Attached(p);
  hook::Event event{.kind = hook::EventKind::kAttached};
  const bool idle = world_.pods[p.pod].spec.priority == policy::Priority::kIdle;
  event.attached.backlog_ns =
      static_cast<uint64_t>(Nanos(scheduler::BacklogOf(world_.options.scheduler, idle)));
  event.attached.late_backlog_ns =
      static_cast<uint64_t>(Nanos(scheduler::LateBacklogOf(world_.options.scheduler, idle)));
  event.attached.heartbeat_ns = 100'000'000;
  event.attached.idle_ns = static_cast<uint64_t>(Nanos(world_.options.idle));
  event.attached.gang = world_.IsGang(p.pod);
  clients_.Deliver(p, event);
}

void Processes::LoseDaemon() {
  for (const auto& p : world_.processes) {
    if (!p->connected || world_.plan.relay) continue;
    p->connected = false;
    if (!world_.PlanOf(*p).hostile) {
      clients_.Deliver(*p, {.kind = hook::EventKind::kDisconnected});
    }
    world_.After(milliseconds(p->link.Between(5, 200)), What::kConnect, p->index);
  }
}

void Processes::SayEverything() {
  if (!world_.plan.relay || daemon_.down()) return;
  for (const auto& p : world_.processes) {
    if (!p->connected) continue;
    daemon_.Attach(*p);
    node_.Served(*p);
    if (const auto last = node_.Last(*p)) {
      daemon_.Hear(*p, last->state, last->measured, world_.now - last->at);
    }
    if (!world_.PlanOf(*p).hostile) clients_.Deliver(*p, {.kind = hook::EventKind::kSync});
  }
}

void Processes::LoseRelay() {
  node_.SetDown(true);
  ++world_.relays;
  lost_at_ = world_.now;
  for (const auto& p : world_.processes) {
    if (!p->connected) continue;
    p->connected = false;
    lost_.push_back(p->index);
    if (!world_.PlanOf(*p).hostile) {
      clients_.Deliver(*p, {.kind = hook::EventKind::kDisconnected});
    }
    world_.After(milliseconds(p->link.Between(5, 200)), What::kConnect, p->index);
  }
}

void Processes::RelayIsBack() {
  node_.SetDown(false);
  for (const uint32_t index : lost_) {
    Process& p = *world_.processes[index];
    daemon_.Detach(p, lost_at_ - microseconds(p.link.Between(0, 1'000)));
  }
  lost_.clear();
}

void Processes::KernelEnded(uint32_t stream) {
  const Stream::Kernel kernel = gpus_.Finish(stream);
  Process& p = *world_.processes[kernel.process];
  laws_.CheckLimit(p.pod, p.gpu);
  if (p.alive) {
    clients_.KernelEnded(p, kernel.thread);
  } else if (gpus_.PendingOf(p) == 0) {
    ReportGone(p);
  }
}

void Processes::Stop(Process& p, Duration length) {
  if (p.stopped) return;
  p.stopped = true;
  world_.After(length, What::kContinue, p.index);
}

void Processes::Kill(Process& p) {
  if (!p.alive) return;
  const Duration delay = milliseconds(p.link.Between(10, 2'000));
  std::vector<Process*> ending{&p};
  for (size_t pod = 0; world_.IsGang(p.pod) && pod < world_.pods.size(); ++pod) {
    if (world_.pods[pod].gang != world_.pods[p.pod].gang) continue;
    for (Process* other : world_.pods[pod].living) {
      if (other != &p) ending.push_back(other);
    }
  }
  for (Process* other : ending) End(*other);
  for (const Process* other : ending) {
    if (world_.pods[other->pod].present) Start(other->pod, other->gpu, other->ordinal, delay);
  }
}

void Processes::End(Process& p) {
  if (!p.alive) return;
  p.alive = false;
  p.connected = false;
  p.open = false;
  std::erase(world_.pods[p.pod].living, &p);
  gpus_.Kill(p);
  node_.Disconnect(p);
  if (!node_.down()) daemon_.Detach(p);
  if (gpus_.PendingOf(p) == 0) ReportGone(p);
}

void Processes::Disconnect(Process& p, Duration length) {
  if (!p.alive || !p.connected) return;
  p.connected = false;
  node_.Disconnect(p);
  daemon_.Detach(p, world_.now - microseconds(p.link.Between(0, 1'000)));
  clients_.Deliver(p, {.kind = hook::EventKind::kDisconnected});
  world_.After(length, What::kConnect, p.index);
}

// The daemon learns it from the pidfd and NVML, a moment later.
void Processes::ReportGone(Process& p) {
  world_.After(microseconds(p.link.Between(50, 1'500)), What::kGone, p.index);
}

}  // namespace baton::world
