#include "k8s/types/quota.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "k8s/types/annotations.h"
#include "k8s/types/quantity.h"
#include "k8s/types/read.h"

namespace baton::k8s {
namespace {

std::string HardKey(std::string_view resource) { return "requests." + std::string(resource); }

std::string Why(const std::string& quota, std::string_view resource,
                const std::optional<uint64_t>& hard, uint64_t others, uint64_t now,
                uint64_t wanted) {
  if (!hard || wanted <= now || others + wanted <= *hard) return "";
  const std::string key = HardKey(resource);
  return fmt::format("exceeded quota: {0}, requested: {1}={2}, used: {1}={3}, limited: {1}={4}",
                     quota, key, wanted, others, *hard);
}

}  // namespace

GpuCharge& GpuCharge::operator+=(const GpuCharge& other) {
  share += other.share;
  memory += other.memory;
  open |= other.open;
  return *this;
}

GpuCharge ChargeOf(const GpuPod& pod, uint32_t memory_unit_mib) {
  GpuCharge charge;
  const uint64_t unit = std::max<uint32_t>(1, memory_unit_mib);
  for (const ContainerGpus& gpus : pod.containers) {
    if (gpus.whole) continue;
    charge.share += std::max<uint64_t>(
        gpus.share_units, UnitsOf(gpus.request.millionths(), kShareUnit, gpus.count).least);
    // With swap a pod takes its memory request of a GPU, not its cap.
    const uint64_t mib = pod.asked.swap ? MibOf(pod.asked.memory_request) : gpus.memory.mib;
    const uint64_t memory = mib == 0 ? 0 : UnitsOf(mib, unit, gpus.count).least;
    charge.memory += std::max<uint64_t>(gpus.memory_units, memory);
    charge.open |= mib == 0;
  }
  return charge;
}

std::optional<GpuQuota> ReadGpuQuota(const Json& object) {
  const Json* hard = Find(object, "spec/hard");
  if (hard == nullptr || !hard->is_object()) return std::nullopt;
  const Json* selector = Find(object, "spec/scopeSelector");
  if (!ListAt(object, "spec/scopes").empty() || (selector != nullptr && !selector->is_null())) {
    return std::nullopt;
  }
  GpuQuota quota;
  quota.name = TextAt(object, "metadata/name");
  const auto read = [&](std::string_view resource) -> std::optional<uint64_t> {
    const auto found = hard->find(HardKey(resource));
    if (found == hard->end()) return std::nullopt;
    const auto value = WholeQuantity(*found);
    if (!value) return std::nullopt;
    return static_cast<uint64_t>(std::max<int64_t>(0, *value));
  };
  quota.share = read(kShareResource);
  quota.memory = read(kMemoryResource);
  if (!quota.share && !quota.memory) return std::nullopt;
  return quota;
}

std::string Exceeds(const GpuQuota& quota, const GpuCharge& others, const GpuCharge& now,
                    const GpuCharge& wanted) {
  std::string why =
      Why(quota.name, kShareResource, quota.share, others.share, now.share, wanted.share);
  if (!why.empty()) return why;
  if (quota.memory && wanted.open && !now.open) {
    return fmt::format("quota {} counts {}; write the memory in MiB or GiB", quota.name,
                       HardKey(kMemoryResource));
  }
  return Why(quota.name, kMemoryResource, quota.memory, others.memory, now.memory, wanted.memory);
}

}  // namespace baton::k8s
