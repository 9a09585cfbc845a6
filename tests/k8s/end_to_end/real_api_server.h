// A real kube-apiserver with its etcd, from the folder that $KUBEBUILDER_ASSETS names (as
// controller-runtime's envtest has it), on loopback and in a folder of its own. Kubernetes' other
// parts do not run: no kubelet, no scheduler, no garbage collector.
#ifndef BATON_TESTS_K8S_END_TO_END_REAL_API_SERVER_H_
#define BATON_TESTS_K8S_END_TO_END_REAL_API_SERVER_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/process.h"
#include "k8s/api/cluster_config.h"

namespace baton::k8s {

class RealApiServer {
 public:
  // Nothing: there is no such folder, and why tests that want it are to be skipped.
  static std::optional<std::string> WhyNot();
  // Ready when it returns. `folder`: empty, the caller's.
  static Result<std::unique_ptr<RealApiServer>> Start(const std::string& folder);
  ~RealApiServer();

  // Who may do everything.
  ClusterConfig admin() const { return ConfigOf("admin"); }
  // A service account of namespace baton-system, which may do what its roles say: "baton-binder",
  // "baton-webhook", "baton-extender", "baton-node", "nobody".
  ClusterConfig ConfigOf(const std::string& who) const;
  // The same as a file for programs.
  std::string KubeconfigOf(const std::string& who) const;
  // What GET /version says.
  const std::string& version() const { return version_; }
  // Runs kubectl as `admin`. Output and errors together, and the exit status.
  std::pair<int, std::string> Kubectl(const std::vector<std::string>& arguments) const;
  // The same with a file that contains `text` as the last argument (after -f).
  std::pair<int, std::string> KubectlFile(std::vector<std::string> arguments,
                                          const std::string& text) const;

 private:
  RealApiServer() = default;
  std::string folder_;
  std::string kubectl_;
  std::string server_;
  std::string version_;
  std::map<std::string, std::string> tokens_;
  std::unique_ptr<bench::Process> etcd_;
  std::unique_ptr<bench::Process> api_server_;
};

}  // namespace baton::k8s

#endif  // BATON_TESTS_K8S_END_TO_END_REAL_API_SERVER_H_
