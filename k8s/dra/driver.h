// Baton's DRA driver on a node: a claim of resource.k8s.io gets a percentage of a GPU's time and
// memory. It tells the scheduler of the node's GPUs by a ResourceSlice, and the kubelet has it
// prepare the claims of pods that come and unprepare those of pods that are gone.
//
// A node's GPUs are either given by it or by Baton's binder, never by both: see
// NodeAgentOptions::lent_to.
#ifndef BATON_K8S_DRA_DRIVER_H_
#define BATON_K8S_DRA_DRIVER_H_

#include <memory>
#include <string>
#include <vector>

#include "base/time.h"
#include "devmgr/inventory.h"
#include "k8s/api/client.h"
#include "k8s/device_plugin/node_pods.h"
#include "k8s/types/inject.h"
#include "k8s/types/tenancy.h"

namespace baton::k8s {

struct DraDriverOptions {
  std::string node;                              // its name in the API
  std::string socket_dir{kSocketDir};            // with control.sock
  std::string kubelet_dir = "/var/lib/kubelet";  // the same path as on the node
  std::string cdi_dir = "/var/run/cdi";          // one that the container's runtime reads
  std::string sysfs = "/sys";
  std::vector<HookMount> mounts{};  // of each container with a share
  std::string hook_file{};          // must be there: else no claim is prepared
  TenancyOptions tenancy{};
  Duration look_every = std::chrono::seconds(1);   // whether the sockets are still there
  Duration sweep_every = std::chrono::minutes(5);  // for claims that are gone
};

// Thread safe.
class DraDriver {
 public:
  // Starts its threads. Its sockets come with the first OnNode(). `client` outlives it.
  DraDriver(Client& client, DraDriverOptions options);
  // Ends and joins; what is prepared stays. Call Client::Stop() before it.
  ~DraDriver();

  // What batond tells of the node; `present` null: batond is away. See NodeAgentOptions::on_node.
  void OnNode(const devmgr::Node& node, const std::vector<PresentPod>* present);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_DRA_DRIVER_H_
