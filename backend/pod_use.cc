#include "backend/pod_use.h"

#include <algorithm>

#include "backend/unmanaged.h"
#include "ledger/wall_time.h"
#include "policy/share.h"
#include "spec/modes.h"

namespace baton::backend {
namespace {

using devmgr::Nvml;

// The driver keeps samples for so long, about.
constexpr Duration kKept = std::chrono::seconds(10);
// A GPU that is used so much is used by somebody.
constexpr double kBusy = 0.05;
// Readings come every few seconds. What is older is not told any more.
constexpr Duration kReadingIsFresh = std::chrono::seconds(30);

Nvml::Utilization Sum(const Nvml::Utilization& a, const Nvml::Utilization& b) {
  return {std::min(1.0, a.sm + b.sm), std::min(1.0, a.memory + b.memory)};
}

// The pod's part of the time in which it executed.
void AddBusy(const Accounts& accounts, const Gpu& gpu, PodId pod, double busy_s, Instant now) {
  const auto has = gpu.allocations.find(pod);
  UsageEntry* account = accounts.Of(gpu, pod);
  if (has == gpu.allocations.end() || account == nullptr) return;
  const auto ns = policy::ServedIn(static_cast<int64_t>(busy_s * 1e9), has->second.part);
  uint64_t& busy = account->usage.busy_ns;
  const uint64_t most = std::max(busy, accounts.HeldNow(gpu, pod, now));
  busy = std::min(busy + std::max<uint64_t>(1, static_cast<uint64_t>(ns)), most);
}

void Add(PodUse& to, const Nvml::Utilization& use, Duration over, Instant now) {
  const double seconds = static_cast<double>(Nanos(over)) / 1e9;
  to.at = now;
  to.sm = use.sm;
  to.memory = use.memory;
  to.sm_s += use.sm * seconds;
  to.memory_s += use.memory * seconds;
}

// The process's pod; 0: none of those on the GPU.
PodId PodOnGpuOf(const UseReading::Process& process, const Pods& pods, const Gpu& gpu) {
  if (const Lane* lane = LaneOf(gpu, process.pid)) return lane->client->pod;
  for (const auto& [id, on] : gpu.pods) {
    const Pod* pod = pods.Find(id);
    if (pod != nullptr && IsOf(*pod, process.facts)) return id;
  }
  return {};
}

// What each pod's processes did.
std::map<PodId, Nvml::Utilization> UseByPod(const UseReading& reading, const Pods& pods,
                                            const Gpu& gpu) {
  std::map<PodId, Nvml::Utilization> by_pod;
  for (const UseReading::Process& process : reading.processes) {
    const PodId pod = PodOnGpuOf(process, pods, gpu);
    if (pod) by_pod[pod] = Sum(by_pod[pod], process.use);
  }
  return by_pod;
}

const UseReading::Instance* InstanceOf(const UseReading& reading, const Pod& pod, const Gpu& gpu) {
  for (size_t i = 0; i < pod.gpus.size(); ++i) {
    if (pod.gpus[i] != gpu.info.uuid) continue;
    for (const UseReading::Instance& instance : reading.instances) {
      if (instance.device == pod.vgpus[i].device) return &instance;
    }
  }
  return nullptr;
}

}  // namespace

std::optional<UseReading> UseReader::Read(Nvml& nvml, const std::string& uuid) {
  UseReading reading;
  const auto instances = nvml.Instances(uuid);
  if (instances && !instances->empty()) {
    for (const devmgr::MigInstance& instance : *instances) {
      const auto use = instance.uuid.empty() ? std::nullopt : nvml.UseOfInstance(uuid, instance.id);
      if (use) reading.instances.push_back({instance.uuid, *use});
    }
    return reading.instances.empty() ? std::nullopt : std::optional(std::move(reading));
  }
  const Instant now = MonotonicNow();
  const Instant before = std::exchange(at_, now);
  if (before == Instant{} || before >= now) return std::nullopt;
  reading.over = std::min(now - before, kKept);
  const auto since = std::chrono::microseconds(ledger::WallNow().time_since_epoch()) -
                     std::chrono::duration_cast<std::chrono::microseconds>(reading.over);
  const auto uses = nvml.ProcessUses(uuid, static_cast<uint64_t>(since.count()));
  if (!uses) return std::nullopt;
  if (uses->empty()) {
    const auto all = nvml.UtilizationOf(uuid);
    if (all && all->sm >= kBusy) return std::nullopt;  // by processes that it does not tell
  }
  reading.by_process = true;
  for (const Nvml::ProcessUse& process : *uses) {
    auto facts = node::FactsOf(process.pid);
    if (!facts && facts_.contains(process.pid)) facts = facts_.at(process.pid);
    reading.processes.push_back(
        {process.pid, facts ? std::move(*facts) : node::ProcessFacts{}, process.use});
  }
  facts_.clear();
  for (const UseReading::Process& process : reading.processes) {
    facts_[process.pid] = process.facts;
  }
  return reading;
}

void AddUse(const UseReading& reading, const Pods& pods, const Accounts& accounts, Gpu& gpu,
            Instant now) {
  const std::map<PodId, Nvml::Utilization> by_pod = UseByPod(reading, pods, gpu);
  for (auto& [id, on] : gpu.pods) {
    const Pod* pod = pods.Find(id);
    if (pod == nullptr) continue;
    if (pod->mode == spec::kMig) {
      const UseReading::Instance* instance = InstanceOf(reading, *pod, gpu);
      if (instance == nullptr) continue;
      const auto& [use, over] = instance->use;
      Add(on.use, use, over, now);
      AddBusy(accounts, gpu, id, use.sm * static_cast<double>(Nanos(over)) / 1e9, now);
    } else if (reading.by_process && pod->mode != spec::kMps) {
      const auto known = by_pod.find(id);
      const Nvml::Utilization use = known != by_pod.end() ? known->second : Nvml::Utilization{};
      Add(on.use, use, reading.over, now);
      const double seconds = static_cast<double>(Nanos(reading.over)) / 1e9;
      if (pod->allocated) AddBusy(accounts, gpu, id, use.sm * seconds, now);
    }
  }
}

const PodUse* UseNow(const PodOnGpu& on, Instant now) {
  return on.use.at != Instant{} && now - on.use.at <= kReadingIsFresh ? &on.use : nullptr;
}

}  // namespace baton::backend
