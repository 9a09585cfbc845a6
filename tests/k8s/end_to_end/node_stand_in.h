// What a kubelet does for the pods of one node, as far as the tests need it: starts the commands of
// pods that are bound there, as processes of this machine, with their environment resolved as a
// kubelet resolves it, in cgroups named as a kubelet names them where this user may make some;
// reports Running, Succeeded and Failed; ends pods that are being deleted, reports how they ended,
// and takes their objects away only after that; refuses some at admission.
//
// There are no images and no mount namespaces: where a value of the environment begins with the
// path of a mount, as the device plugin would tell a kubelet of it, it is replaced by the path on
// the host.
#ifndef BATON_TESTS_K8S_END_TO_END_NODE_STAND_IN_H_
#define BATON_TESTS_K8S_END_TO_END_NODE_STAND_IN_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/process.h"
#include "k8s/api/client.h"
#include "k8s/types/inject.h"

namespace baton::k8s {

struct NodeStandInOptions {
  std::string node;
  std::string folder;  // for the containers' output
  // What every process of this machine needs to see its GPUs.
  std::vector<std::pair<std::string, std::string>> environment;
  InjectOptions mounts{};  // where socket and hook are
  // Every so-manieth pod that comes is refused (UnexpectedAdmissionError). 0: none.
  uint32_t refuse_every = 0;
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
  // Pods that were refused so far.
  uint32_t refused() const { return refused_; }
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
  // Whether all of its containers have ended; then how: Succeeded or Failed.
  static std::optional<std::string> PhaseOf(Running& pod);
  void Tell(const ObjectName& name, const Json& status);

  const NodeStandInOptions options_;
  std::unique_ptr<Client> client_;
  mutable std::mutex mutex_;
  std::map<std::string, Running> pods_;
  uint32_t came_ = 0;
  std::atomic<uint32_t> refused_{0};
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

}  // namespace baton::k8s

#endif  // BATON_TESTS_K8S_END_TO_END_NODE_STAND_IN_H_
