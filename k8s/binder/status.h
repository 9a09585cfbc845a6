// What users see of a SharePod and its pod: status, conditions, Events. Pure.
#ifndef BATON_K8S_BINDER_STATUS_H_
#define BATON_K8S_BINDER_STATUS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "devmgr/placement/cluster.h"
#include "k8s/binder/core.h"
#include "k8s/binder/reasons.h"
#include "k8s/cluster/object_cache.h"
#include "k8s/cluster/objects.h"

namespace baton::k8s {

// UTF-8 of at most 1000 bytes, and " ..." where something was cut off: as long as a condition's
// message gets.
inline constexpr size_t kMessageMax = 1'000;
std::string Cut(std::string text);

// "0,1": which of their node's GPUs they are; a UUID where the node does not say. Empty: none.
std::string GpuIndexes(const devmgr::Placement& placement, const devmgr::Cluster& cluster);
// What became of a child that is gone: a sentence.
std::string WhyGone(const Pod& gone);

struct SharePodFacts {
  const Share& share;
  const Pod* child = nullptr;  // null: there is none, or it is gone
  const devmgr::Cluster& cluster;
  std::optional<devmgr::Placement> placement;  // that it has, by decision or on its node
  bool assumed = false;                        // placed, and not rejected by the API server
  Reason reason;                               // why it waits
  std::string resize;                          // why it cannot have the size that it asks for
};
// The whole status, from the one that it has.
Json SharePodStatus(const SharePodFacts& facts, int64_t unix_s);

// PodScheduled=False as kube-scheduler writes it and autoscalers read it, which go by the reason
// Unschedulable: a strategic patch of pods/status. Of a pod that no new node could help it is
// another reason. Nothing: the pod says so already.
std::optional<Json> UnschedulablePatch(const Pod& pod, const Reason& reason, int64_t unix_s);

// Events that are to be recorded.
class EventQueue {
 public:
  // About the name's pod, and the same about its SharePod.
  void Add(const Entry& entry, bool warning, const std::string& reason, const std::string& action,
           const std::string& text);
  std::vector<Note> Take() { return std::exchange(notes_, {}); }

 private:
  std::vector<Note> notes_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_STATUS_H_
