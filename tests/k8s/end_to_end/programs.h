// What the end-to-end tests on Kubernetes share: folders, programs, nodes.
#ifndef BATON_TESTS_K8S_END_TO_END_PROGRAMS_H_
#define BATON_TESTS_K8S_END_TO_END_PROGRAMS_H_

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/process.h"
#include "k8s/api/client.h"
#include "tests/temp_folder.h"

namespace baton::k8s {

class RealApiServer;

// The end of a file.
std::string TailOf(const std::string& path, size_t bytes = 3000);

// Takes the value, or ends the test with the error's sentence.
template <class T>
T Must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}
inline Json MustDo(ApiResult<Json> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}
// Nothing where the list could not be had.
std::vector<Json> Items(const ApiResult<Json>& list);

// A program of the build's, with all that it says in NAME.log of the folder.
std::unique_ptr<bench::Process> StartProgram(
    const TempFolder& folder, const std::string& name, std::vector<std::string> command,
    std::vector<std::pair<std::string, std::string>> environment = {});

// A real kube-scheduler, which may do everything. `client_connection`: more of that part of its
// configuration, ", qps: 50"; `more`: further lines. Null: $KUBEBUILDER_ASSETS has none.
std::unique_ptr<bench::Process> StartKubeScheduler(const TempFolder& folder,
                                                   const RealApiServer& server,
                                                   const std::string& client_connection,
                                                   const std::string& more);

// A node that is ready, with so many GPUs as capacity.
ApiResult<Json> CreateNode(Client& client, const std::string& name, int cards, uint32_t card_mib);

// What the agent of a node tells: so many GPUs, "GPU-NAME-0" and so on, and that the kubelet mounts
// the hook.
ApiResult<Json> TellGpus(Client& client, const std::string& name, int cards, uint32_t card_mib);

// Those objects of a file of manifests that `wanted` takes, as one text for kubectl.
std::string ObjectsOf(const std::string& path,
                      const std::function<bool(const std::string& object)>& wanted);
// Custom resources, namespace, service accounts and roles: what of the manifests needs no kubelet.
void InstallBaton(const RealApiServer& server);

}  // namespace baton::k8s

#endif  // BATON_TESTS_K8S_END_TO_END_PROGRAMS_H_
