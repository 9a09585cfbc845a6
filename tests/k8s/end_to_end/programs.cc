#include "tests/k8s/end_to_end/programs.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "k8s/types/annotations.h"
#include "k8s/types/gpu_node.h"
#include "tests/k8s/end_to_end/real_api_server.h"

namespace baton::k8s {

namespace fs = std::filesystem;

std::string TailOf(const std::string& path, size_t bytes) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  return all.size() > bytes ? all.substr(all.size() - bytes) : all;
}

std::vector<Json> Items(const ApiResult<Json>& list) {
  if (!list) return {};
  return list->at("items").get<std::vector<Json>>();
}

std::unique_ptr<bench::Process> StartProgram(
    const TempFolder& folder, const std::string& name, std::vector<std::string> command,
    std::vector<std::pair<std::string, std::string>> environment) {
  command[0] = std::string(BATON_PROGRAMS) + "/" + command[0];
  auto process = bench::Process::Spawn({.command = std::move(command),
                                        .environment = std::move(environment),
                                        .unset = {},
                                        .stdout_path = folder.path() + "/" + name + ".log",
                                        .stderr_path = folder.path() + "/" + name + ".log"});
  if (!process) throw std::runtime_error(process.error().message);
  return std::make_unique<bench::Process>(std::move(*process));
}

std::unique_ptr<bench::Process> StartKubeScheduler(const TempFolder& folder,
                                                   const RealApiServer& server,
                                                   const std::string& client_connection,
                                                   const std::string& more) {
  const std::string program = std::string(std::getenv("KUBEBUILDER_ASSETS")) + "/kube-scheduler";
  if (access(program.c_str(), X_OK) != 0) return nullptr;
  const std::string config = folder.path() + "/scheduler.yaml";
  const std::string kubeconfig = server.KubeconfigOf("admin");
  std::ofstream(config) << "apiVersion: kubescheduler.config.k8s.io/v1\n"
                        << "kind: KubeSchedulerConfiguration\n"
                        << "leaderElection: {leaderElect: false}\n"
                        << "clientConnection: {kubeconfig: " << kubeconfig << client_connection
                        << "}\n"
                        << more;
  auto process = bench::Process::Spawn(
      {.command = {program, "--config", config, "--secure-port", "0", "--authentication-kubeconfig",
                   kubeconfig, "--authorization-kubeconfig", kubeconfig},
       .environment = {},
       .unset = {},
       .stdout_path = folder.path() + "/kube-scheduler.log",
       .stderr_path = folder.path() + "/kube-scheduler.log"});
  if (!process) throw std::runtime_error(process.error().message);
  return std::make_unique<bench::Process>(std::move(*process));
}

ApiResult<Json> CreateNode(Client& client, const std::string& name, int cards, uint32_t card_mib) {
  const Json node = {{"apiVersion", "v1"},
                     {"kind", "Node"},
                     {"metadata",
                      {{"name", name},
                       {"labels",
                        {{"kubernetes.io/hostname", name},
                         {"nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"},
                         {"nvidia.com/gpu.memory", std::to_string(card_mib)}}}}}};
  auto made = client.Create(resources::kNodes, {"", name}, node);
  if (!made) return made;
  const Json resources = {
      {"cpu", "128"},
      {"memory", "1Ti"},
      {"pods", "250"},
      {kShareResource, std::to_string(cards * 100)},
      {kMemoryResource, std::to_string(static_cast<uint32_t>(cards) * card_mib / kMemoryUnitMib)}};
  const Json status = {
      {"status",
       {{"capacity", resources},
        {"allocatable", resources},
        {"conditions",
         Json::array({{{"type", "Ready"}, {"status", "True"}, {"reason", "KubeletReady"}}})}}}};
  return client.Patch(resources::kNodes, {"", name}, PatchKind::kMerge, status, "status");
}

ApiResult<Json> TellGpus(Client& client, const std::string& name, int cards, uint32_t card_mib) {
  devmgr::Node node;
  node.name = name;
  for (int i = 0; i < cards; ++i) {
    devmgr::Card card;
    card.uuid = "GPU-" + name + "-" + std::to_string(i);
    card.model = "NVIDIA H100 80GB HBM3";
    card.memory_mib = card_mib;
    node.cards.push_back(std::move(card));
  }
  Json object = GpuNodeOf(node);
  SetMountsHook(object, true);
  Json identity = object;
  identity.erase("status");
  auto told = client.Apply(resources::kGpuNodes, {"", name}, identity, {}, true, "baton-node");
  if (!told) return told;
  return client.Apply(resources::kGpuNodes, {"", name}, object, "status", true, "baton-node");
}

std::string ObjectsOf(const std::string& path,
                      const std::function<bool(const std::string& object)>& wanted) {
  std::string objects, object;
  const auto take = [&] {
    if (wanted(object)) objects += "---\n" + object;
    object.clear();
  };
  std::ifstream file(path);
  if (!file) throw std::runtime_error("there is no " + path);
  for (std::string line; std::getline(file, line);) {
    if (line == "---") {
      take();
    } else {
      object += line + "\n";
    }
  }
  take();
  return objects;
}

void InstallBaton(const RealApiServer& server) {
  const auto apply = [&](const std::vector<std::string>& arguments) {
    const auto [status, said] = server.Kubectl(arguments);
    if (status != 0) throw std::runtime_error(said);
  };
  apply({"create", "namespace", "baton-system"});
  apply({"apply", "-f", BATON_SOURCE "/k8s/crds"});
  apply({"wait", "--for=condition=Established", "--timeout=60s", "crd/sharepods.baton.dev",
         "crd/gpunodes.baton.dev", "crd/teams.baton.dev"});
  // Without the webhooks, behind which nobody is, and without the policies, which want the agents'
  // tokens to name a node: tokens from a file cannot (chart/server_test.cc tests the policies).
  const std::string objects =
      ObjectsOf(BATON_SOURCE "/k8s/manifests/baton.yaml", [](const std::string& object) {
        return object.find("WebhookConfiguration\n") == std::string::npos &&
               object.find("kind: ValidatingAdmissionPolicy") == std::string::npos;
      });
  const auto [status, said] = server.KubectlFile({"apply", "--server-side"}, objects);
  if (status != 0) throw std::runtime_error(said);
}

}  // namespace baton::k8s
