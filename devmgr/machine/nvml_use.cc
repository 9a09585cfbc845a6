#include "devmgr/machine/nvml_use.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace baton::devmgr::nvml {
namespace {

constexpr unsigned kSamplesMax = 100'000;
// The driver's counters move every 100 ms: what is closer together says nothing.
constexpr Duration kApart = std::chrono::milliseconds(100);

}  // namespace

std::optional<std::vector<Nvml::ProcessUse>> ProcessUses(const Api& api, Device device,
                                                         uint64_t since_us) {
  if (api.process_use == nullptr) return std::nullopt;
  std::vector<ProcessSample> samples(256);  // drivers want room for 100 whatever there is
  auto count = static_cast<unsigned>(samples.size());
  Return result = api.process_use(device, samples.data(), &count, since_us);
  for (int attempt = 0; attempt < 3 && result == kInsufficientSize && count <= kSamplesMax;
       ++attempt) {
    samples.resize(count + 32);
    count = static_cast<unsigned>(samples.size());
    result = api.process_use(device, samples.data(), &count, since_us);
  }
  std::vector<Nvml::ProcessUse> uses;
  if (result == kNotFound) return uses;  // nobody did anything
  if (result != kSuccess) return std::nullopt;
  samples.resize(std::min<size_t>(count, samples.size()));
  for (const ProcessSample& sample : samples) {
    // Drivers leave old entries, and such as are none, among them.
    if (sample.pid == 0 || sample.at_us <= since_us) continue;
    if (sample.sm > 100 || sample.memory > 100) continue;
    const Nvml::Utilization use{sample.sm / 100.0, sample.memory / 100.0};
    uses.push_back({static_cast<pid_t>(sample.pid), use});
  }
  return uses;
}

void InstanceSamples::Clear() {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, taken] : last_) Free(taken);
  last_.clear();
}

void InstanceSamples::Free(const Taken& taken) const {
  if (taken.sample != nullptr && api_.gpm_free != nullptr) api_.gpm_free(taken.sample);
}

InstanceSamples::Taken InstanceSamples::Take(Device device, uint32_t instance) const {
  GpmSupport support{kGpmVersion, 0};
  Taken taken;
  if (api_.gpm_support(device, &support) != kSuccess || support.supported == 0 ||
      api_.gpm_alloc(&taken.sample) != kSuccess) {
    return {};
  }
  const bool read = api_.gpm_mig_sample(device, instance, taken.sample) == kSuccess;
  taken.at = MonotonicNow();
  if (read) return taken;
  Free(taken);
  return {};
}

std::optional<Nvml::InstanceUse> InstanceSamples::UseOf(Device device, const std::string& uuid,
                                                        uint32_t instance) {
  if (api_.gpm_support == nullptr || api_.gpm_alloc == nullptr || api_.gpm_mig_sample == nullptr ||
      api_.gpm_metrics == nullptr) {
    return std::nullopt;
  }
  const std::pair key{uuid, instance};
  Taken before;
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = last_.find(key); known != last_.end()) before = known->second;
  }
  if (before.sample != nullptr && MonotonicNow() - before.at < kApart) return std::nullopt;
  const Taken now = Take(device, instance);
  std::optional<Nvml::InstanceUse> use;
  if (now.sample != nullptr && before.sample != nullptr) {
    use = Between(before.sample, now.sample, now.at - before.at);
  }
  Free(before);
  const std::lock_guard lock(mutex_);
  if (now.sample != nullptr) {
    last_[key] = now;
  } else {
    last_.erase(key);
  }
  return use;
}

std::optional<Nvml::InstanceUse> InstanceSamples::Between(GpmSample first, GpmSample last,
                                                          Duration over) const {
  const auto metrics = std::make_unique<GpmMetrics>();
  metrics->version = kGpmVersion;
  metrics->count = 2;
  metrics->first = first;
  metrics->last = last;
  const GpmMetric &sm = metrics->metrics[0], &memory = metrics->metrics[1];
  metrics->metrics[0].id = kGpmSmUtil;
  metrics->metrics[1].id = kGpmDramUtil;
  if (api_.gpm_metrics(metrics.get()) != kSuccess) return std::nullopt;
  const auto part = [](const GpmMetric& metric) {
    const bool told = metric.result == kSuccess && std::isfinite(metric.value);
    return told ? std::optional(std::clamp(metric.value / 100, 0.0, 1.0)) : std::nullopt;
  };
  const auto busy = part(sm);
  if (!busy) return std::nullopt;
  return Nvml::InstanceUse{{*busy, part(memory).value_or(0)}, over};
}

}  // namespace baton::devmgr::nvml
