#include "k8s/cluster/quotas.h"

#include <utility>

namespace baton::k8s {

void Quotas::Set(const Json& object) {
  auto quota = ReadGpuQuota(object);
  if (!quota) return Remove(object);
  const ObjectName name = NameOf(object);
  quotas_[name.name_space][name.name] = *std::move(quota);
}

void Quotas::Remove(const Json& object) {
  const ObjectName name = NameOf(object);
  const auto space = quotas_.find(name.name_space);
  if (space == quotas_.end()) return;
  space->second.erase(name.name);
  if (space->second.empty()) quotas_.erase(space);
}

std::string Quotas::WhyNot(const std::string& name_space, const GpuCharge& others,
                           const GpuCharge& now, const GpuCharge& wanted) const {
  const auto quotas = quotas_.find(name_space);
  if (quotas == quotas_.end()) return "";
  for (const auto& [name, quota] : quotas->second) {
    if (std::string why = Exceeds(quota, others, now, wanted); !why.empty()) return why;
  }
  return "";
}

}  // namespace baton::k8s
