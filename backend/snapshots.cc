#include "backend/snapshots.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <set>
#include <utility>

#include "base/hash.h"

namespace baton::backend {
namespace {

// So many pods between two looks at the sockets.
constexpr size_t kPodsOfUsageAtOnce = 64;

// Clients say most of these numbers, and may say anything. The ledger refuses a batch with one
// above 2^60, and no sum of its reports may pass 2^63: nobody's claim may stop the books of others.
// Nine years in nanoseconds.
constexpr uint64_t kClaimMax = uint64_t{1} << 58;

int64_t Signed(uint64_t value) { return static_cast<int64_t>(std::min(value, kClaimMax)); }

int64_t Joules(const EnergyAccount& energy) { return static_cast<int64_t>(energy.joules); }

// So long a departed pod waits for the reading that has its last energy.
constexpr Duration kEnergyPatience = std::chrono::seconds(15);

// Whether the GPUs' counters were read since it departed, or will not be.
bool EnergyIsKnown(const Gpus& gpus, const DepartedPod& pod, Instant now) {
  return now - pod.at > kEnergyPatience ||
         std::all_of(pod.gpus.begin(), pod.gpus.end(), [&](const std::string& uuid) {
           const Gpu* gpu = gpus.Find(uuid);
           return gpu == nullptr || gpu->energy.at == Instant{} || gpu->energy.at > pod.at;
         });
}

}  // namespace

Snapshots::Snapshots(boost::asio::io_context& io, const config::Options& options, PodsFile& file,
                     UsageBook& usage, const Gpus& gpus, const ClientTable& clients,
                     Accounts& accounts)
    : io_(io),
      options_(options),
      file_(file),
      pods_(file.pods()),
      usage_(usage),
      gpus_(gpus),
      clients_(clients),
      accounts_(accounts) {}

Snapshots::~Snapshots() { *alive_ = false; }

void Snapshots::AddSamples(ledger::Batch& batch, PodId id, const ledger::Owner& owner,
                           const std::vector<std::string>& gpus) {
  for (const std::string& uuid : gpus) {
    const UsageEntry* account = usage_.Find(id, HashOf(uuid), 0);
    if (account == nullptr) continue;
    ledger::Sample sample{id.value, uuid, owner, {}, 0};
    if (Gpu* gpu = gpus_.Find(uuid)) {
      if (gpu->allocations.contains(id)) accounts_.ChargeAllocated(*gpu, MonotonicNow());
      if (auto on = gpu->pods.find(id); on != gpu->pods.end()) {
        accounts_.TallyMemory(*gpu, id, on->second, MonotonicNow());
        sample.memory_peak_mib = Signed(on->second.memory_peak >> 20);
        on->second.memory_peak = Believed(on->second.memory, gpu->info);
      }
    }
    const Usage& usage = account->usage;
    sample.total = {Signed(usage.held_ns),
                    Signed(usage.busy_ns),
                    Signed(usage.waited_ns),
                    Signed(usage.unmanaged_ns),
                    Signed(account->memory_mib_ms),
                    Signed(usage.launches),
                    Signed(usage.grants),
                    Signed(usage.revocations),
                    Joules(usage_.EnergyOf(id, HashOf(uuid))),
                    Signed(usage_.Uncontended(id, HashOf(uuid)))};
    batch.samples.push_back(std::move(sample));
  }
}

void Snapshots::Begin(Work& work) {
  const Instant now = MonotonicNow();
  // Those that nobody can charge any more; before the living, of whom one may depart meanwhile.
  for (const auto& [id, pod] : pods_.departed()) {
    if (!clients_.Leaves(id) && EnergyIsKnown(gpus_, pod, now)) work.final.push_back(id);
    AddSamples(work.batch, id, pod.owner, pod.gpus);
  }
}

bool Snapshots::GoOn(Work& work, size_t most) {
  auto at = pods_.all().upper_bound(work.after);
  for (size_t i = 0; i < most && at != pods_.all().end(); ++i, ++at) {
    work.after = at->first;
    if (!at->second.throw_away) {
      AddSamples(work.batch, work.after, at->second.owner(), at->second.Accounted());
    }
  }
  if (at != pods_.all().end()) return false;
  AddGpus(work.batch);
  for (const PodId id : work.final) told_.emplace(id, work.batch.to);
  return true;
}

// All that there are, and the batch's end, which is now.
void Snapshots::AddGpus(ledger::Batch& batch) {
  const Instant now = MonotonicNow();
  for (Gpu* gpu : gpus_.all()) {
    if (gpu->throw_away || !gpu->present) continue;
    // Up to now: a batch has no more idle time than it is long.
    if (!Enforces(options_)) accounts_.TallyIdle(*gpu, now);
    const Duration idle = accounts_.IdleNow(*gpu, now);
    batch.gpus.push_back({gpu->info.uuid, gpu->info.name,
                          std::min(gpu->info.memory_bytes, kClaimMax), idle - gpu->idle_told,
                          Joules(usage_.EnergyOf(PodId{}, gpu->key))});
    gpu->idle_told = idle;
  }
  batch.to = ledger::WallNow();
}

void Snapshots::OwnerChanges(const Pod& pod) {
  if (!hand_over_ || pod.throw_away) return;
  const Instant now = MonotonicNow();
  std::erase_if(handed_over_, [&](const auto& at) { return now - at.second >= kHandOverEvery; });
  std::vector<std::string> gpus;
  std::set<PodId> pods{pod.id};
  for (const std::string& uuid : pod.Accounted()) {
    if (!handed_over_.emplace(uuid, now).second) continue;
    gpus.push_back(uuid);
    const Gpu* gpu = gpus_.Find(uuid);
    if (gpu == nullptr) continue;
    for (const auto& [id, on] : gpu->pods) pods.insert(id);
  }
  if (gpus.empty()) return;
  ledger::Batch batch;
  for (const PodId id : pods) {
    const Pod* one = pods_.Find(id);
    if (one == nullptr || one->throw_away) continue;
    std::vector<std::string> common;
    for (const std::string& uuid : one->Accounted()) {
      if (std::find(gpus.begin(), gpus.end(), uuid) != gpus.end()) common.push_back(uuid);
    }
    AddSamples(batch, id, one->owner(), common);
  }
  AddGpus(batch);
  // What a snapshot that is being made has of them is older, and comes later.
  if (const auto work = running_.lock()) {
    std::erase_if(work->batch.samples, [&](const ledger::Sample& sample) {
      return pods.contains(PodId{sample.pod}) &&
             std::find(gpus.begin(), gpus.end(), sample.gpu) != gpus.end();
    });
  }
  hand_over_(std::move(batch));
}

void Snapshots::Make(std::function<void(ledger::Batch)> done) {
  auto work = std::make_shared<Work>();
  running_ = work;
  Begin(*work);
  auto step = std::make_shared<std::function<void()>>();
  *step = [this, alive = alive_, work, done = std::move(done), weak = std::weak_ptr(step)] {
    if (!*alive) return;
    if (GoOn(*work, kPodsOfUsageAtOnce)) {
      running_.reset();
      return done(std::move(work->batch));
    }
    boost::asio::post(io_, [step = weak.lock()] { (*step)(); });
  };
  (*step)();
}

ledger::Batch Snapshots::MakeNow() {
  Work work;
  Begin(work);
  GoOn(work, SIZE_MAX);
  return std::move(work.batch);
}

void Snapshots::Booked(ledger::WallTime to) {
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
  if (changed) file_.Save();
}

}  // namespace baton::backend
