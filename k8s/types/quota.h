// What pods are charged against the ResourceQuotas of their namespace for GPUs, as they ask for
// now. The API server itself charges a pod for the limits with which it was created, and for
// nothing more when its request grows by an annotation; so whoever lets it grow asks here. Pure.
#ifndef BATON_K8S_TYPES_QUOTA_H_
#define BATON_K8S_TYPES_QUOTA_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "k8s/types/gpu_pod.h"

namespace baton::k8s {

// In units of the resources: percents, and memory units.
struct GpuCharge {
  uint64_t share = 0;   // baton.dev/gpu-share
  uint64_t memory = 0;  // baton.dev/gpu-memory
  // A container has memory without a number of units: no cap, or a part of a GPU. The API server
  // charges it nothing; who has a number does not get that instead where a quota counts memory.
  bool open = false;

  GpuCharge& operator+=(const GpuCharge& other);
  friend bool operator==(const GpuCharge&, const GpuCharge&) = default;
};

// The greater of what its limits say and of what it asks for, of each container, counted as
// SharePods' limits are (rounded down, but 1 at least for each GPU). Init containers count as
// containers do. Nothing for whole GPUs, which only their limits say.
GpuCharge ChargeOf(const GpuPod& pod, uint32_t memory_unit_mib);

struct GpuQuota {
  std::string name;
  std::optional<uint64_t> share;  // spec.hard[requests.baton.dev/gpu-share]
  std::optional<uint64_t> memory;
};
// Nothing: it says nothing of Baton's resources, or it has scopes. Pods are not told apart by
// scopes here: such a quota is the API server's alone.
std::optional<GpuQuota> ReadGpuQuota(const Json& quota);

// A pod that is charged `now` asks for `wanted`, and others are charged `others`: a sentence in the
// words of the API server's own. Empty: the quota allows it, or it asks for no more than it has.
std::string Exceeds(const GpuQuota& quota, const GpuCharge& others, const GpuCharge& now,
                    const GpuCharge& wanted);

}  // namespace baton::k8s

#endif  // BATON_K8S_TYPES_QUOTA_H_
