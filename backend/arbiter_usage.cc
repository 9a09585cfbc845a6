// What the arbiter tells the books, and the timeline that people look at.
#include <algorithm>
#include <boost/asio/post.hpp>

#include "backend/arbiter.h"

namespace baton::backend {
namespace {

// So many pods between two looks at the sockets.
constexpr size_t kPodsOfUsageAtOnce = 64;

// Clients say most of these numbers, and may say anything. The ledger refuses a batch with one
// above 2^60, and no sum of its reports may pass 2^63: nobody's claim may stop the books of others.
// Nine years in nanoseconds.
constexpr uint64_t kClaimMax = uint64_t{1} << 58;

int64_t Signed(uint64_t value) { return static_cast<int64_t>(std::min(value, kClaimMax)); }

// What a pod says that it has of a GPU, as far as it can be true. A terabyte where the GPU's own
// size is not known.
uint64_t Believed(uint64_t bytes, const devmgr::GpuInfo& gpu) {
  return std::min(bytes, gpu.memory_bytes != 0 ? gpu.memory_bytes : uint64_t{1} << 40);
}

}  // namespace

void Arbiter::Timeline::Add(const Hold& hold) {
  if (holds_.size() < kKept) {
    holds_.push_back(hold);
  } else {
    holds_[made_ % kKept] = hold;
  }
  ++made_;
}

std::vector<Arbiter::Hold> Arbiter::Timeline::Since(Instant since) const {
  std::vector<Hold> newest;
  for (size_t i = 1; i <= holds_.size(); ++i) {
    const Hold& hold = holds_[(made_ - i) % kKept];
    if (hold.returned_at < since) break;
    newest.push_back(hold);
  }
  std::reverse(newest.begin(), newest.end());
  return newest;
}

void Arbiter::Record(Gpu& gpu, const Hold& hold) {
  gpu.timeline.Add(hold);
  auto on = gpu.pods.find(hold.pod);
  if (on == gpu.pods.end()) return;
  if (hold.waits_since < hold.granted_at)
    on->second.waits.Observe(hold.granted_at - hold.waits_since);
  on->second.holds.Observe(hold.returned_at - hold.granted_at);
}

void Arbiter::NoteIdle(Gpu& gpu, Instant now) {
  const bool idle = gpu.scheduler.idle();
  if (idle == (gpu.idle_since != kNever)) return;
  if (idle) {
    gpu.idle_since = now;
  } else {
    gpu.idle += now - gpu.idle_since;
    gpu.idle_since = kNever;
  }
}

// Whole milliseconds; what is left of one is counted with the next.
void Arbiter::TallyMemory(const Gpu& gpu, PodId pod, PodOnGpu& on, Instant now) {
  const auto ms = std::chrono::floor<std::chrono::milliseconds>(now - on.memory_at);
  UsageEntry* account = Account(gpu, pod);
  if (account != nullptr && on.memory_at != Instant{}) {
    const uint64_t kib = Believed(on.memory, gpu.info) >> 10;
    account->memory_mib_ms += kib * static_cast<uint64_t>(ms.count()) >> 10;
  }
  on.memory_at = on.memory_at == Instant{} ? now : on.memory_at + ms;
}

void Arbiter::SetMemory(Lane& lane, uint64_t bytes) {
  PodOnGpu& on = *lane.on;
  TallyMemory(*lane.gpu, lane.client->pod, on, MonotonicNow());
  on.memory += bytes - lane.memory;
  lane.memory = bytes;
  on.memory_peak = std::max(on.memory_peak, Believed(on.memory, lane.gpu->info));
  Pod* pod = pods_.Find(lane.client->pod);
  for (size_t i = 0; pod != nullptr && i < pod->gpus.size(); ++i) {
    if (pod->gpus[i] != lane.gpu->info.uuid) continue;
    uint64_t& most = pod->vgpus[i].memory_peak;
    most = std::max(most, Believed(on.memory, lane.gpu->info));
  }
}

void Arbiter::AddSamples(ledger::Batch& batch, PodId id, const ledger::Owner& owner,
                         const std::vector<std::string>& gpus) {
  for (const std::string& uuid : gpus) {
    const UsageEntry* account = usage_.Find(id, UsageBook::GpuKey(uuid), 0);
    if (account == nullptr) continue;
    ledger::Sample sample{id.value, uuid, owner, {}, 0};
    if (auto gpu = gpus_.find(uuid); gpu != gpus_.end()) {
      if (auto on = gpu->second->pods.find(id); on != gpu->second->pods.end()) {
        TallyMemory(*gpu->second, id, on->second, MonotonicNow());
        sample.memory_peak_mib = Signed(on->second.memory_peak >> 20);
        on->second.memory_peak = Believed(on->second.memory, gpu->second->info);
      }
    }
    const Usage& usage = account->usage;
    sample.total = {Signed(usage.held_ns),          Signed(usage.busy_ns),
                    Signed(usage.waited_ns),        Signed(usage.unmanaged_ns),
                    Signed(account->memory_mib_ms), Signed(usage.launches),
                    Signed(usage.grants),           Signed(usage.revocations)};
    batch.samples.push_back(std::move(sample));
  }
}

void Arbiter::BeginSnapshot(SnapshotWork& work) {
  // Those that nobody can charge any more; before the living, of whom one may depart meanwhile.
  for (const auto& [id, pod] : pods_.departed()) {
    if (leaving_.count(id) == 0) work.final.push_back(id);
    AddSamples(work.batch, id, pod.owner, pod.gpus);
  }
}

bool Arbiter::GoOnWithSnapshot(SnapshotWork& work, size_t most) {
  auto at = pods_.all().upper_bound(work.after);
  for (size_t i = 0; i < most && at != pods_.all().end(); ++i, ++at) {
    work.after = at->first;
    if (!at->second.throw_away) {
      AddSamples(work.batch, work.after, at->second.owner(), at->second.Accounted());
    }
  }
  if (at != pods_.all().end()) return false;
  const Instant now = MonotonicNow();
  for (Gpu* gpu : gpu_order_) {
    if (gpu->throw_away || !gpu->present) continue;
    const Duration idle =
        gpu->idle + (gpu->idle_since != kNever ? now - gpu->idle_since : Duration(0));
    work.batch.gpus.push_back({gpu->info.uuid, gpu->info.name,
                               std::min(gpu->info.memory_bytes, kClaimMax), idle - gpu->idle_told});
    gpu->idle_told = idle;
  }
  work.batch.to = ledger::WallNow();
  for (const PodId id : work.final) told_.emplace(id, work.batch.to);
  return true;
}

void Arbiter::Snapshot(std::function<void(ledger::Batch)> done) {
  auto work = std::make_shared<SnapshotWork>();
  BeginSnapshot(*work);
  auto step = std::make_shared<std::function<void()>>();
  *step = [this, alive = alive_, work, done = std::move(done), weak = std::weak_ptr(step)] {
    if (!*alive) return;
    if (GoOnWithSnapshot(*work, kPodsOfUsageAtOnce)) return done(std::move(work->batch));
    boost::asio::post(io_, [step = weak.lock()] { (*step)(); });
  };
  (*step)();
}

ledger::Batch Arbiter::SnapshotNow() {
  SnapshotWork work;
  BeginSnapshot(work);
  GoOnWithSnapshot(work, SIZE_MAX);
  return std::move(work.batch);
}

void Arbiter::Booked(ledger::WallTime to) {
  bool changed = false;
  for (auto it = told_.begin(); it != told_.end();) {
    if (it->second > to) {
      ++it;
      continue;
    }
    pods_.Forget(it->first);
    usage_.Drop(it->first, 0);
    it = told_.erase(it);
    changed = true;
  }
  if (changed) SavePods();
}

}  // namespace baton::backend
