// Baton's agent on a node: keeps batond's pods as the node's pods of Kubernetes say (their
// annotations, after the binder has placed them), and tells what becomes of them: the node's GPUs
// as a GpuNode, what SharePods get in their status, what batond refuses as an Event on the pod.
//
// While batond stands by (batond --standby), so does the agent: it tells nothing and does nothing.
//
// Nothing of it is kept anywhere but in the API server and in batond: whichever of the three
// restarts, the difference is looked at and put right again. While the API server is away nothing
// changes; while batond is away, it is asked again and again.
#ifndef BATON_K8S_DEVICE_PLUGIN_NODE_AGENT_H_
#define BATON_K8S_DEVICE_PLUGIN_NODE_AGENT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/time.h"
#include "devmgr/inventory.h"
#include "k8s/api/client.h"
#include "k8s/api/event_recorder.h"
#include "k8s/device_plugin/device_list.h"
#include "k8s/device_plugin/node_pods.h"
#include "k8s/types/annotations.h"
#include "net/message.h"

namespace baton::k8s {

struct NodeAgentOptions {
  std::string node;                    // its name in the API
  std::string socket_dir{kSocketDir};  // with control.sock of batond or baton-frontend
  uint32_t memory_unit_mib = kMemoryUnitMib;
  // How often batond is looked at where nothing has changed, and the most often that a SharePod's
  // status is written.
  Duration report_every = std::chrono::seconds(10);
  // How often what has not changed is told all the same.
  Duration refresh_every = std::chrono::minutes(5);
  // How often batond is asked what it advises, which goes by hours.
  Duration advise_every = std::chrono::minutes(5);
  // A pod of idle priority is called paused, and no longer so, after it was for so long: with
  // report_every as it is, at two looks in turn (see PauseWatch).
  Duration paused_after = std::chrono::seconds(5);
  // batond has not answered for so long: its GPUs are told as unhealthy, so that nothing new comes
  // until it does.
  Duration away_after = std::chrono::seconds(30);
  // batond lets only processes attach that are in the pod's cgroup. Without, whoever has the ticket
  // may: where pods are not started by a kubelet.
  bool by_cgroup = true;
  // The GPUs that containers can have, whenever they are others. From a thread of the agent's.
  std::function<void(std::vector<PluginCard>)> on_cards;
  // Each answer of batond: the node's GPUs, and all pods there. Null for the pods: batond has been
  // away for away_after; the GPUs are those of before. Likewise.
  std::function<void(const devmgr::Node&, const std::vector<PresentPod>*)> on_node;
  // Pods of mode mps may come. Those that wait for their part of a GPU to be made are found by a
  // label then, and where MIG is on. Else they are not looked for: the API server has no index for
  // labels, and looks for each such watch at every event of any pod.
  bool makes_mps = true;
  // Who else gives the node's GPUs away, in a clause for people: they are told as cordoned, so the
  // binder gives none of them. Empty: nobody.
  std::string lent_to;
  // Whether the kubelet mounts the hook into containers by now; told in the GpuNode, for no pod
  // that relies on it may come before. Null: whoever starts the containers does. Any thread.
  std::function<bool()> mounts_hook;
};

// Its writes are of the field manager kNodeManager.
inline constexpr const char* kNodeManager = "baton-node";

class NodeAgent {
 public:
  // Starts its threads. `client` and `events` outlive it.
  NodeAgent(Client& client, EventRecorder& events, NodeAgentOptions options);
  // Ends and joins. Call Client::Stop() before it where that should be soon. batond's pods stay.
  ~NodeAgent();

  // GET /healthz: it lives. /readyz: batond answers and has a GPU, and the API server has told of
  // the node's pods once, or batond stands by for another one; else 503 and which of them is
  // missing. /metrics, for Prometheus. Any thread.
  net::HttpResponse Answer(const net::HttpRequest& request) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_DEVICE_PLUGIN_NODE_AGENT_H_
