// What batond's pods should be, for the pods of Kubernetes on a node, what they are, and what to do
// about the difference. Pure; never throws, whatever the objects are.
#ifndef BATON_K8S_DEVICE_PLUGIN_NODE_PODS_H_
#define BATON_K8S_DEVICE_PLUGIN_NODE_PODS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "devmgr/inventory.h"
#include "k8s/api/object.h"
#include "k8s/types/gpu_node.h"
#include "spec/pod_request.h"

namespace baton::k8s {

// A pod of batond: a container that has GPUs, named "namespace/pod", or "namespace/pod/container"
// where several ask. Its cgroup is the uid of the pod of Kubernetes, its wishes are the GPUs
// (uuids) and the mode that it was placed on; its ticket is empty where it is not known.
struct BatondPod : spec::PodRequest {
  std::vector<uint32_t> slots;  // by MIG: which part of each GPU, devmgr::Fit::slot
};

// Those of one pod of Kubernetes: none where it asks for no GPU, has no placement yet, or has
// ended. A pod that is on no node yet has those for which devices are made, where it is placed on
// `node` and says so (keys::kMakesDevices). kInvalid: its annotations cannot be read, or ask for a
// mode that there is not.
Result<std::vector<BatondPod>> DesiredPods(const Json& pod, uint32_t memory_unit_mib,
                                           const std::string& node = "");

// A pod of batond as its `status` tells.
struct PresentPod {
  BatondPod pod;
  // Percent of a GPU, over the last minute, summed over its GPUs. A part that was made for it, it
  // has all the time.
  double achieved = 0;
  uint64_t held_ns = 0;   // likewise since it was made
  bool attached = false;  // a process of it is connected
  // Of idle priority, and waits for pods with a request at this moment.
  bool paused = false;
  std::vector<std::string> devices;  // that were made for it, one for each GPU; empty: none
};
// Of a `status` answer. The cgroup is empty for pods that none is named for.
std::vector<PresentPod> PresentPods(const Json& status);

// What those pods have been promised, over all of their GPUs.
GpuNodeUse UseOf(const std::vector<PresentPod>& pods);

// What was made for containers, by their tickets. `desired`: as they should be, by name.
MadeDevices MadeFor(const std::vector<PresentPod>& present,
                    const std::map<std::string, BatondPod>& desired);

// The node's GPUs, by its `status` answer; at most 16.
devmgr::Node NodeOf(const Json& status, const std::string& name);
// Leaves of the GPUs' instances those that were not made for these: the binder knows where its own
// pods are, and may decide what comes once one of them goes.
void LeaveOut(const MadeDevices& made, devmgr::Node& node);

struct BatondCommand {
  enum class Kind : uint8_t { kDelete, kSet, kCreate } kind;
  BatondPod pod;              // as it should be; for kDelete as it is
  bool ends_latency = false;  // with kSet: it has one, and is to have none
};
// What is to be done, in this order: what frees room first, and last what has devices made, which
// takes the driver a while. `present`: those that are the agent's
// to change. What a pod of `keep` (uids) has, stays as it is.
std::vector<BatondCommand> Difference(const std::map<std::string, BatondPod>& desired,
                                      const std::map<std::string, BatondPod>& present,
                                      const std::function<bool(const std::string& uid)>& keep);
// The request for batond's control socket. `by_cgroup`: only processes of the pod may attach.
Json RequestFor(const BatondCommand& command, bool by_cgroup);

// SharePods' status.

// What a node tells of a SharePod whose pod is there.
struct ShareReport {
  double achieved = 0;  // percent of each of its GPUs
  uint64_t held_ns = 0;
  bool attached = false;
  bool part = false;    // a part of a GPU was made for it: no process attaches
  bool ended = false;   // its pod has: the last report
  bool idle = false;    // it is of idle priority
  bool paused = false;  // see PauseWatch

  friend bool operator==(const ShareReport&, const ShareReport&) = default;
};
// Of the pods of batond that one pod of Kubernetes has; paused as they are at this moment.
ShareReport ReportOf(const std::vector<PresentPod>& pods);
// Whether it is worth a write, after `before`: by a fifth of a point, or by the condition. So what
// is told is never off by more.
bool WorthTelling(const ShareReport& before, const ShareReport& now);
// What batond advises (its answer to "advise") on those of its pods, as a SharePod's status has it:
// for each of them that is advised on what to set in spec.gpu, in its spelling, and why. An array;
// empty: nothing is advised, or the answer is none.
Json AdviceOf(const Json& answer, const std::vector<std::string>& names);
// Whether a pod of idle priority is paused, for people and their alerts. Beside a service that
// answers now and then it is paused many times a second, and a status that said so would be chance:
// a write to the API server, and news for all who watch, at each look. So it changes only after the
// pod was otherwise for `long_enough`, at every look: to paused where it held no GPU meanwhile,
// back where it did, or had no work.
class PauseWatch {
 public:
  // `told`: what the status says already.
  explicit PauseWatch(bool told = false) : paused_(told) {}
  // After each look at batond; whether it is to be called paused. `now` never decreases.
  bool Look(bool waits, uint64_t held_ns, Instant now, Duration long_enough);
  bool paused() const { return paused_; }

 private:
  bool paused_;
  std::optional<uint64_t> held_ns_;   // at the last look
  std::optional<Instant> otherwise_;  // since when it is not as paused_ says
};

// The SharePod that controls the pod: its name and uid; empty: none does.
struct Controller {
  ObjectName name;
  std::string uid;
};
Controller SharePodOf(const Json& pod);

}  // namespace baton::k8s

#endif  // BATON_K8S_DEVICE_PLUGIN_NODE_PODS_H_
