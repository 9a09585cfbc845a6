#include "tests/k8s/end_to_end/programs.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "k8s/types/annotations.h"
#include "tests/k8s/end_to_end/real_api_server.h"

namespace baton::k8s {

namespace fs = std::filesystem;

TestFolder::TestFolder(const std::string& name) {
  std::string pattern = fs::temp_directory_path() / (name + "-XXXXXX");
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = pattern;
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  if (std::getenv("BATON_TEST_KEEP") == nullptr) fs::remove_all(path_, ignored);
}

std::string TestFolder::Tail(const std::string& name, size_t bytes) const {
  std::ifstream file(path_ + "/" + name);
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
    const TestFolder& folder, const std::string& name, std::vector<std::string> command,
    std::vector<std::pair<std::string, std::string>> environment) {
  command[0] = std::string(BATON_PROGRAMS) + "/" + command[0];
  auto process = bench::Process::Spawn({.command = std::move(command),
                                        .environment = std::move(environment),
                                        .unset = {},
                                        .stdout_path = folder.path() + "/" + name + ".out",
                                        .stderr_path = folder.path() + "/" + name + ".err"});
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

std::vector<std::string> Documents(const std::string& yaml) {
  std::vector<std::string> documents(1);
  std::istringstream lines(yaml);
  for (std::string line; std::getline(lines, line);) {
    if (line == "---") {
      documents.emplace_back();
    } else {
      documents.back() += line + "\n";
    }
  }
  return documents;
}

void InstallBaton(const RealApiServer& server) {
  const auto apply = [&](const std::vector<std::string>& arguments) {
    const auto [status, said] = server.Kubectl(arguments);
    if (status != 0) throw std::runtime_error(said);
  };
  apply({"create", "namespace", "baton-system"});
  apply({"apply", "-f", BATON_SOURCE "/k8s/crds"});
  apply({"wait", "--for=condition=Established", "--timeout=60s", "crd/sharepods.baton.dev",
         "crd/gpunodes.baton.dev"});
  // Without the webhooks, behind which nobody is.
  std::ifstream file(BATON_SOURCE "/k8s/manifests/baton.yaml");
  std::stringstream text;
  text << file.rdbuf();
  std::string wanted;
  for (const std::string& object : Documents(text.str())) {
    if (object.find("kind: MutatingWebhookConfiguration") == std::string::npos &&
        object.find("kind: ValidatingWebhookConfiguration") == std::string::npos) {
      wanted += "---\n" + object;
    }
  }
  const auto [status, said] = server.KubectlFile({"apply", "--server-side"}, wanted);
  if (status != 0) throw std::runtime_error(said);
}

}  // namespace baton::k8s
