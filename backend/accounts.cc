#include "backend/accounts.h"

#include <algorithm>

#include "base/hash.h"

namespace baton::backend {
namespace {

// What a client may say of the time before this daemon first saw it.
constexpr Duration kBefore = std::chrono::seconds(10);
// More of either in a nanosecond is not believed.
constexpr uint64_t kBytesMost = 1'000;
constexpr uint64_t kLaunchesPerMicrosecond = 10;

uint64_t PartOf(Duration time, policy::Share part) {
  return static_cast<uint64_t>(policy::ServedIn(std::max<int64_t>(0, Nanos(time)), part));
}

// Reckoned from its beginning each time, so that nothing is lost by rounding.
uint64_t Uncharged(const Allocation& allocation, Instant now) {
  const uint64_t all = PartOf(now - allocation.since, allocation.part);
  return all - std::min(all, allocation.charged);
}

// Adds what `now` says beyond `last` to `total`; returns how much.
uint64_t Advance(uint64_t& last, uint64_t now, uint64_t& total) {
  if (now <= last) return 0;
  const uint64_t more = now - std::exchange(last, now);
  total += more;
  return more;
}

}  // namespace

uint64_t Believed(uint64_t bytes, const devmgr::GpuInfo& gpu) {
  return std::min(bytes, gpu.memory_bytes != 0 ? gpu.memory_bytes : uint64_t{1} << 40);
}

Accounts::Accounts(const config::Options& options, Pods& pods, UsageBook& usage)
    : options_(options), pods_(pods), usage_(usage) {}

UsageEntry* Accounts::Of(const Gpu& gpu, PodId pod) const { return usage_.Find(pod, gpu.key, 0); }

uint64_t Accounts::HeldNow(const Gpu& gpu, PodId pod, Instant now) const {
  return HeldNow(gpu, pod, Of(gpu, pod), now);
}

uint64_t Accounts::HeldNow(const Gpu& gpu, PodId pod, const UsageEntry* account,
                           Instant now) const {
  uint64_t held = account != nullptr ? account->usage.held_ns : 0;
  if (const auto part = gpu.allocations.find(pod); part != gpu.allocations.end()) {
    held += Uncharged(part->second, now);
  } else if (Enforces(options_) && gpu.holder == pod && now > gpu.granted_at) {
    held += static_cast<uint64_t>(Nanos(now - gpu.granted_at));
  }
  return held;
}

uint64_t Accounts::HeldNow(const Gpu& gpu, Instant now) const {
  Duration held = gpu.held;
  if (Enforces(options_) && gpu.by_token() && gpu.holder && now > gpu.granted_at) {
    held += now - gpu.granted_at;
  }
  for (const auto& [pod, allocation] : gpu.allocations) {
    held += DurationFromNanos(Uncharged(allocation, now));
  }
  return static_cast<uint64_t>(std::max<int64_t>(0, Nanos(held)));
}

uint64_t Accounts::UsedNow(const Gpu& gpu, PodId pod, Instant now) const {
  if (Enforces(options_) || gpu.allocations.contains(pod)) return HeldNow(gpu, pod, now);
  const UsageEntry* account = Of(gpu, pod);
  return account != nullptr ? account->usage.busy_ns : 0;
}

// What a client says of its own time is booked as far as that time has passed, and what it says it
// worked as far as its pod was charged; the rest is looked at again with its next report. So a lie
// costs the books no more than the truth could.
void Accounts::Report(Lane& lane, const wire::State& state) {
  UsageEntry& total = *lane.total;
  Usage& last = lane.last->usage;
  lane.said_held_ns = state.held_ns;
  const Instant now = MonotonicNow();
  const auto passed = static_cast<uint64_t>(Nanos(now - lane.since + kBefore));
  const auto within = [&](uint64_t said, uint64_t before, uint64_t most) {
    return std::min(said, before + most);
  };
  usage_.Begin(total, *lane.last);
  if (!Enforces(options_)) {
    Advance(last.held_ns, within(state.held_ns, lane.before.held_ns, passed), total.usage.held_ns);
  } else if (!lane.gpu->scheduler.Holds(lane.client->id, state.epoch)) {
    // Where tokens are given out, held time is booked as they are charged.
    last.held_ns = std::max(last.held_ns, state.held_ns);
  }
  Advance(last.unmanaged_ns, within(state.unmanaged_ns, lane.before.unmanaged_ns, passed),
          total.usage.unmanaged_ns);
  uint64_t busy = within(state.busy_ns, lane.before.busy_ns, passed);
  if (Enforces(options_)) {
    const uint64_t held = HeldNow(*lane.gpu, lane.client->pod, &total, now) +
                          total.usage.unmanaged_ns + static_cast<uint64_t>(Nanos(kBefore));
    busy = std::min(busy, last.busy_ns + (held - std::min(held, total.usage.busy_ns)));
  }
  lane.gpu->busy_ns += Advance(last.busy_ns, busy, total.usage.busy_ns);
  Advance(last.launches,
          within(state.launches, lane.before.launches, passed / 1'000 * kLaunchesPerMicrosecond),
          total.usage.launches);
  Advance(last.waited_ns, within(state.waited_ns, lane.before.waited_ns, passed),
          total.usage.waited_ns);
  Advance(last.copies_bytes,
          within(state.copies_bytes, lane.before.copies_bytes, passed * kBytesMost),
          total.usage.copies_bytes);
  usage_.End();
  if (!lane.memory_said) {
    // It was attached before this daemon was: what it holds is a fact, not a request.
    lane.memory_said = true;
    const uint64_t total = lane.gpu->info.memory_bytes;
    const uint64_t said = total == 0 ? 0 : std::min(state.memory_bytes, total);
    SetMemory(lane, said);
  }
}

void Accounts::Settle(const Lane& lane) {
  Usage& last = lane.last->usage;
  last.held_ns = std::max(last.held_ns, lane.said_held_ns);
}

// As charged, however the token comes back.
void Accounts::Charge(Gpu& gpu, PodId pod, Duration held, Duration uncontended, Instant now) {
  gpu.held += held;
  if (UsageEntry* account = Of(gpu, pod)) {
    account->usage.held_ns += static_cast<uint64_t>(Nanos(held));
  }
  if (uncontended != Duration(0)) usage_.AddUncontended(pod, gpu.key, Nanos(uncontended));
  gpu.granted_at = now;  // from here on HeldNow reckons what is not booked yet
}

void Accounts::Allocate(Gpu& gpu, PodId pod, policy::Share part) {
  const Instant now = MonotonicNow();
  const auto has = gpu.allocations.find(pod);
  if (has != gpu.allocations.end() && has->second.part == part) return;
  ChargeAllocated(gpu, now);
  policy::ShareSum taken = part;
  for (const auto& [other, allocation] : gpu.allocations) {
    if (other != pod) taken += allocation.part;
  }
  if (taken > policy::kWhole) return;  // by one that has no right to it any more and is still there
  gpu.allocations[pod] = {part, now, 0};
  gpu.pods[pod].series.Add(now, HeldNow(gpu, pod, now), 0);
  NoteIdle(gpu, now);
}

void Accounts::Free(Gpu& gpu, PodId pod) {
  if (!gpu.allocations.contains(pod)) return;
  const Instant now = MonotonicNow();
  ChargeAllocated(gpu, now);
  gpu.allocations.erase(pod);
  NoteIdle(gpu, now);
}

// No token comes back that would be charged: so it is each time somebody looks, and a crash loses
// no more than since the last sample.
void Accounts::ChargeAllocated(Gpu& gpu, Instant now) {
  for (auto& [pod, allocation] : gpu.allocations) {
    const uint64_t more = Uncharged(allocation, now);
    allocation.charged += more;
    gpu.held += DurationFromNanos(more);
    if (UsageEntry* account = Of(gpu, pod)) account->usage.held_ns += more;
  }
}

void Accounts::Sample(Gpu& gpu) {
  const Instant now = MonotonicNow();
  ChargeAllocated(gpu, now);
  if (!Enforces(options_)) TallyIdle(gpu, now);
  for (const auto& [pod, allocation] : gpu.allocations) {
    if (auto on = gpu.pods.find(pod); on != gpu.pods.end()) {
      on->second.series.Add(now, HeldNow(gpu, pod, now), 0);
    }
  }
  gpu.series.Add(now, HeldNow(gpu, now), gpu.busy_ns);
  gpu.handoffs.Add(now, static_cast<uint64_t>(Nanos(gpu.scheduler.handoff_total())), 0);
  for (const scheduler::PodStatus& pod : gpu.scheduler.Status(now)) {
    auto on = gpu.pods.find(pod.pod);
    if (on == gpu.pods.end()) continue;  // deleted, and only its debt is left
    on->second.series.Add(now, UsedNow(gpu, pod.pod, now),
                          static_cast<uint64_t>(Nanos(pod.waited)));
  }
}

void Accounts::Record(Gpu& gpu, const Hold& hold) {
  gpu.timeline.Add(hold);
  auto on = gpu.pods.find(hold.pod);
  if (on == gpu.pods.end()) return;
  if (hold.waits_since < hold.granted_at)
    on->second.waits.Observe(hold.granted_at - hold.waits_since);
  on->second.holds.Observe(hold.returned_at - hold.granted_at);
}

// Where no tokens are given out, the time in which no pod executed. Several may at once; and what
// hooks report is as old as their heartbeat.
void Accounts::TallyIdle(Gpu& gpu, Instant now) {
  auto& tally = gpu.observed;
  const Duration passed = tally.at == Instant{} ? Duration(0) : now - std::exchange(tally.at, now);
  tally.at = now;
  const uint64_t busy = gpu.busy_ns - std::exchange(tally.busy_ns, gpu.busy_ns);
  tally.late = std::min(tally.late + DurationFromNanos(busy), passed + 2 * options_.hook.heartbeat);
  policy::Share free = policy::kWhole;
  for (const auto& [pod, allocation] : gpu.allocations) free -= allocation.part;
  const Duration most = DurationFromNanos(PartOf(passed, free));
  if (gpu.unmanaged.empty()) gpu.idle += std::max(Duration(0), most - tally.late);
  tally.late = std::max(Duration(0), tally.late - passed);
}

void Accounts::NoteIdle(Gpu& gpu, Instant now) {
  if (!Enforces(options_)) return;
  policy::Share idle;
  if (gpu.scheduler.idle() && gpu.unmanaged.empty()) {
    idle = policy::kWhole;
    for (const auto& [pod, allocation] : gpu.allocations) idle -= allocation.part;
  }
  if (idle == gpu.idle_part) return;
  gpu.idle = IdleNow(gpu, now);
  gpu.idle_part = idle;
  gpu.idle_since = idle > policy::Share(0) ? now : kNever;
}

Duration Accounts::IdleNow(const Gpu& gpu, Instant now) const {
  if (gpu.idle_since == kNever) return gpu.idle;
  return gpu.idle + DurationFromNanos(PartOf(now - gpu.idle_since, gpu.idle_part));
}

// Whole milliseconds; what is left of one is counted with the next.
void Accounts::TallyMemory(const Gpu& gpu, PodId pod, PodOnGpu& on, Instant now) {
  const auto ms = std::chrono::floor<std::chrono::milliseconds>(now - on.memory_at);
  UsageEntry* account = Of(gpu, pod);
  if (account != nullptr && on.memory_at != Instant{}) {
    const uint64_t kib = Believed(on.memory, gpu.info) >> 10;
    account->memory_mib_ms += kib * static_cast<uint64_t>(ms.count()) >> 10;
  }
  on.memory_at = on.memory_at == Instant{} ? now : on.memory_at + ms;
}

void Accounts::SetMemory(Lane& lane, uint64_t bytes) {
  PodOnGpu& on = *lane.on;
  TallyMemory(*lane.gpu, lane.client->pod, on, MonotonicNow());
  on.memory += bytes - lane.memory;
  lane.memory = bytes;
  on.memory_peak = std::max(on.memory_peak, Believed(on.memory, lane.gpu->info));
  Pod* pod = pods_.Find(lane.client->pod);
  for (size_t i = 0; pod != nullptr && i < pod->gpus.size(); ++i) {
    if (pod->gpus[i] != lane.gpu->info.uuid) continue;
    uint64_t& most = pod->vgpus[i].memory_peak;
    const uint64_t peak = std::max(most, Believed(on.memory, lane.gpu->info));
    if (std::exchange(most, peak) != peak && !pod->throw_away) pods_.PeakChanged(pod->id);
  }
}

std::vector<PodId> Accounts::DepartedSince(const Gpu& gpu, Instant since) const {
  std::vector<PodId> departed;
  for (const auto& [id, pod] : pods_.departed()) {
    if (pod.at < since) continue;
    if (std::find(pod.gpus.begin(), pod.gpus.end(), gpu.info.uuid) == pod.gpus.end()) continue;
    if (Of(gpu, id) != nullptr) departed.push_back(id);
  }
  return departed;
}

}  // namespace baton::backend
