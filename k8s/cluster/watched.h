// What is watched of a cluster, and how its pods are read.
#ifndef BATON_K8S_CLUSTER_WATCHED_H_
#define BATON_K8S_CLUSTER_WATCHED_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "k8s/types/annotations.h"
#include "k8s/types/inject.h"

namespace baton::k8s {

enum class Watched : uint8_t {
  kNode,
  kGpuNode,
  kPod,
  kSharePod,
  kPriorityClass,
  kClaim,   // PersistentVolumeClaim
  kVolume,  // PersistentVolume
  kStorageClass,
  kQuota,  // ResourceQuota
  kTeam,
};
inline constexpr size_t kWatchedKinds = 10;

struct PodOptions {
  std::string scheduler{kScheduler};  // pods with this schedulerName are ours
  uint32_t memory_unit_mib = kMemoryUnitMib;
  InjectOptions inject;  // into children
};

}  // namespace baton::k8s

#endif  // BATON_K8S_CLUSTER_WATCHED_H_
