// The subcommands of baton-k8s, and what they have in common.
#ifndef BATON_K8S_COMMAND_H_
#define BATON_K8S_COMMAND_H_

#include <signal.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "devmgr/placement/policy.h"
#include "k8s/api/cluster_config.h"
#include "k8s/api/object.h"
#include "k8s/types/inject.h"
#include "k8s/types/tenancy.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace baton::k8s {

// Each adds itself to the program with its options and examples, and sets `exit_code` when it was
// run. SIGTERM and SIGINT end them cleanly.
void AddBinder(CLI::App& program, int* exit_code);
void AddWebhook(CLI::App& program, int* exit_code);
void AddExtender(CLI::App& program, int* exit_code);
void AddDevicePlugin(CLI::App& program, int* exit_code);
void AddKeys(CLI::App& program, int* exit_code);

// --kubeconfig and --context: where the API server is.
struct ClusterFlags {
  std::string kubeconfig;
  std::string context;

  void Add(CLI::App& command);
  Result<ClusterConfig> Find() const { return FindClusterConfig(kubeconfig, context); }
};

// --policy, --gpu-policy, --memory-weight and --use-distance: by what places are chosen.
struct PolicyFlag {
  std::string name{devmgr::RuleName(devmgr::PlacementPolicy().nodes)};
  std::string gpus;  // of the GPUs of a node; empty: the same
  // See devmgr::PlacementPolicy; of 1.
  double memory_weight = devmgr::PlacementPolicy().memory_weight / 1e3;
  double use_distance = devmgr::PlacementPolicy().use_distance / 1e3;

  void Add(CLI::App& command);
  Result<devmgr::PlacementPolicy> Parse() const;
};

// --memory-unit, the same for all of baton-k8s.
void AddMemoryUnit(CLI::App& command, uint32_t* mib);
// --socket-dir and --hook-dir: folders on the nodes, the same for those that make pods.
void AddPodFolders(CLI::App& command, std::string* socket_dir, std::string* hook_dir);
// --choose-mode, --runtime-class and --tolerate: what pods with GPUs are given beside, likewise.
void AddPodDefaults(CLI::App& command, InjectOptions* inject);
// --flavor: sizes that pods and SharePods may name, likewise; see ParseFlavors().
void AddFlavors(CLI::App& command, std::vector<std::string>* flavors);
// --restrict and --namespace-team: what namespaces may ask for and whose they are, the same for
// those that let pods in.
struct TenancyFlags {
  std::string restricted;
  std::vector<std::string> team_rules;

  void Add(CLI::App& command);
  Result<TenancyOptions> Parse() const;
};
// --central-key: the ConfigMap with a central batond's public key, the same for its pod and for
// nodes.
CLI::Option* AddCentralKey(CLI::App& command, std::string* config_map);
// "NAMESPACE/NAME". kInvalid: it is not.
Result<ObjectName> ParseObjectName(const std::string& text);
// Host name and something random: two that run, or ran, are never one.
std::string OwnIdentity();
// --listen: of a program that answers /healthz, /readyz and /metrics only.
void AddListen(CLI::App& command, std::string* address);

// `run` is what the command does, once its options are read. Its error is printed; exit status 2
// where the options are wrong, else 1.
void OnCommand(CLI::App& command, int* exit_code, std::function<Result<void>()> run);

// SIGTERM and SIGINT, from now on awaited here instead of ending the program. To be made before
// there are threads, which inherit it.
class StopSignals {
 public:
  StopSignals();
  void Await() const;
  // True: one came in that time.
  bool Await(Duration at_most) const;

 private:
  sigset_t signals_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_COMMAND_H_
