// What a kubelet does for the pods of one node, as far as the tests need it: starts the commands of
// pods that are bound there, as processes of this machine, with their environment resolved as a
// kubelet resolves it, in cgroups named as a kubelet names them where this user may make some;
// reports Running, Succeeded and Failed; ends pods that are being deleted.
//
// There are no images and no mount namespaces: where a value of the environment begins with the
// path of a mount, it is replaced by the path on the host.
#ifndef BATON_TESTS_K8S_END_TO_END_NODE_STAND_IN_H_
#define BATON_TESTS_K8S_END_TO_END_NODE_STAND_IN_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/process.h"
#include "k8s/api/client.h"

namespace baton::k8s {

struct NodeStandInOptions {
  std::string node;
  std::string folder;  // for the containers' output
  // What every process of this machine needs to see its GPUs.
  std::vector<std::pair<std::string, std::string>> environment;
};

class NodeStandIn {
 public:
  NodeStandIn(ClusterConfig config, NodeStandInOptions options);
  // Kills what it started.
  ~NodeStandIn();

  // Of a pod ("namespace/name"): the process of its only container. -1: none runs.
  pid_t PidOf(const std::string& pod) const;
  // The environment that its container was given.
  std::map<std::string, std::string> EnvironmentOf(const std::string& pod) const;
  // Whether pods have cgroups of their own here.
  static bool HasCgroups();

 private:
  struct Running {
    std::string uid;
    std::vector<std::unique_ptr<bench::Process>> containers;
    std::map<std::string, std::string> environment;
    std::vector<std::string> cgroups;  // folders, the innermost first
    bool told = false;
  };
  void Run();
  void Look();
  void Begin(const std::string& name, const Json& pod);
  void End(Running& pod);
  void Tell(const ObjectName& name, const std::string& phase);

  const NodeStandInOptions options_;
  std::unique_ptr<Client> client_;
  mutable std::mutex mutex_;
  std::map<std::string, Running> pods_;
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

}  // namespace baton::k8s

#endif  // BATON_TESTS_K8S_END_TO_END_NODE_STAND_IN_H_
