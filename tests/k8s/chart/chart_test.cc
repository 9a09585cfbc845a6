// The manifests that the chart renders to: that they fit each other, the programs and the CRDs, and
// give away no more than is needed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "devmgr/policy.h"
#include "k8s/types/annotations.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/inject.h"
#include "k8s/types/share_pod.h"

namespace baton::k8s {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

const std::string kSource = BATON_SOURCE;
const std::string kChart = kSource + "/k8s/chart/baton";

std::string Text(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// YAML as Kubernetes reads it: what is quoted is a text.
Json ToJson(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Map: {
      Json object = Json::object();
      for (const auto& member : node) {
        object[member.first.as<std::string>()] = ToJson(member.second);
      }
      return object;
    }
    case YAML::NodeType::Sequence: {
      Json list = Json::array();
      for (const auto& entry : node) list.push_back(ToJson(entry));
      return list;
    }
    case YAML::NodeType::Scalar: {
      if (node.Tag() == "!") return node.Scalar();
      bool flag = false;
      if (YAML::convert<bool>::decode(node, flag)) return flag;
      int64_t whole = 0;
      if (YAML::convert<int64_t>::decode(node, whole)) return whole;
      double number = 0;
      if (YAML::convert<double>::decode(node, number)) return number;
      return node.Scalar();
    }
    default:
      return nullptr;
  }
}

std::vector<Json> Documents(const std::string& path) {
  std::vector<Json> documents;
  for (const YAML::Node& node : YAML::LoadAll(Text(path))) {
    if (node.IsMap()) documents.push_back(ToJson(node));
  }
  return documents;
}

// The member at a path such as "spec/template/spec"; null: there is none.
Json At(const Json& object, const std::string& path) {
  const Json* at = &object;
  std::stringstream parts(path);
  for (std::string part; std::getline(parts, part, '/');) {
    if (!at->is_object() || !at->contains(part)) return nullptr;
    at = &at->at(part);
  }
  return *at;
}

std::string Name(const Json& object) {
  return At(object, "metadata/name").is_string() ? At(object, "metadata/name") : "?";
}

bool IsPartOf(const Json& selector, const Json& labels) {
  if (!selector.is_object() || selector.empty()) return false;
  for (const auto& [key, value] : selector.items()) {
    if (!labels.is_object() || labels.value(key, Json()) != value) return false;
  }
  return true;
}

// The chart with default values, with one batond for all nodes, and with all that it can make.
std::string Rendered(const std::string& name) {
  return kSource + (name == "everything" ? "/tests/k8s/chart/" : "/k8s/manifests/") + name +
         ".yaml";
}

// The values of everything.yaml.
Json ValuesOfEverything() {
  return Documents(kSource + "/tests/k8s/chart/everything.values.yaml").at(0);
}

// What a shell command prints, and its status.
std::pair<int, std::string> Shell(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {-1, ""};
  std::string said;
  std::array<char, 4096> buffer;
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe))
    said.append(buffer.data(), n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, said};
}

class Manifests : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    all_ = Documents(Rendered(GetParam()));
    ASSERT_GT(all_.size(), 20u);
  }
  std::vector<Json> Of(const std::set<std::string>& kinds) const {
    std::vector<Json> some;
    for (const Json& object : all_) {
      if (kinds.contains(object.value("kind", ""))) some.push_back(object);
    }
    return some;
  }
  std::vector<Json> Workloads() const { return Of({"Deployment", "DaemonSet"}); }
  bool Has(const std::string& kind, const std::string& name) const {
    for (const Json& object : Of({kind})) {
      if (Name(object) == name) return true;
    }
    return false;
  }
  // Containers of a workload, init containers first.
  static std::vector<Json> Containers(const Json& workload) {
    std::vector<Json> containers;
    for (const char* list : {"initContainers", "containers"}) {
      const Json found = At(workload, std::string("spec/template/spec/") + list);
      if (found.is_array()) containers.insert(containers.end(), found.begin(), found.end());
    }
    return containers;
  }
  bool SomePodHas(const Json& selector) const {
    for (const Json& workload : Workloads()) {
      if (IsPartOf(selector, At(workload, "spec/template/metadata/labels"))) return true;
    }
    return false;
  }

  // Ports of the containers of the pods that a selector meets.
  std::vector<Json> PortsOfPods(const Json& selector) const {
    std::vector<Json> ports;
    for (const Json& workload : Workloads()) {
      if (!IsPartOf(selector, At(workload, "spec/template/metadata/labels"))) continue;
      for (const Json& container : Containers(workload)) {
        const Json open = container.value("ports", Json::array());
        ports.insert(ports.end(), open.begin(), open.end());
      }
    }
    return ports;
  }
  static bool Names(const std::vector<Json>& ports, const Json& name) {
    return std::any_of(ports.begin(), ports.end(),
                       [&](const Json& port) { return port.at("name") == name; });
  }

  std::vector<Json> all_;
};

INSTANTIATE_TEST_SUITE_P(Chart, Manifests, ::testing::Values("baton", "central", "everything"),
                         [](const auto& which) { return std::string(which.param); });

TEST_P(Manifests, EachObjectIsThereOnceAndInItsNamespace) {
  const std::set<std::string> of_the_cluster{"Namespace",
                                             "ClusterRole",
                                             "ClusterRoleBinding",
                                             "CustomResourceDefinition",
                                             "MutatingWebhookConfiguration",
                                             "ValidatingWebhookConfiguration",
                                             "ValidatingAdmissionPolicy",
                                             "ValidatingAdmissionPolicyBinding"};
  std::set<std::string> seen;
  for (const Json& object : all_) {
    const std::string kind = object.value("kind", "");
    EXPECT_FALSE(object.value("apiVersion", "").empty()) << kind;
    EXPECT_TRUE(seen.insert(kind + "/" + Name(object)).second) << kind << "/" << Name(object);
    EXPECT_EQ(At(object, "metadata/namespace").is_null(), of_the_cluster.contains(kind))
        << kind << "/" << Name(object);
  }
}

TEST_P(Manifests, SelectorsMeetTheirPods) {
  for (const Json& workload : Workloads()) {
    EXPECT_TRUE(IsPartOf(At(workload, "spec/selector/matchLabels"),
                         At(workload, "spec/template/metadata/labels")))
        << Name(workload);
    const Json spread = At(workload, "spec/template/spec/topologySpreadConstraints");
    if (spread.is_array()) {
      EXPECT_TRUE(SomePodHas(At(spread.at(0), "labelSelector/matchLabels"))) << Name(workload);
    }
  }
  for (const Json& service : Of({"Service"})) {
    EXPECT_TRUE(SomePodHas(At(service, "spec/selector"))) << Name(service);
    for (const Json& port : At(service, "spec/ports")) {
      EXPECT_TRUE(Names(PortsOfPods(At(service, "spec/selector")), port.at("targetPort")))
          << Name(service) << " " << port;
    }
  }
  for (const Json& object : Of({"PodDisruptionBudget"})) {
    EXPECT_TRUE(SomePodHas(At(object, "spec/selector/matchLabels"))) << Name(object);
  }
  for (const Json& policy : Of({"NetworkPolicy"})) {
    EXPECT_TRUE(SomePodHas(At(policy, "spec/podSelector/matchLabels"))) << Name(policy);
  }
}

TEST_P(Manifests, NetworkPoliciesLetInAllThatIsListenedForAndNoMore) {
  size_t policies = 0;
  for (const Json& policy : Of({"NetworkPolicy"})) {
    std::set<int> open, let_in;
    for (const Json& port : PortsOfPods(At(policy, "spec/podSelector/matchLabels"))) {
      open.insert(port.at("containerPort").get<int>());
    }
    for (const Json& rule : At(policy, "spec/ingress")) {
      for (const Json& port : rule.at("ports")) let_in.insert(port.at("port").get<int>());
    }
    EXPECT_EQ(let_in, open) << Name(policy);
    ++policies;
  }
  EXPECT_EQ(policies, Workloads().size());
}

TEST_P(Manifests, WhatPodsNameIsThere) {
  for (const Json& workload : Workloads()) {
    const Json pod = At(workload, "spec/template/spec");
    EXPECT_TRUE(Has("ServiceAccount", pod.value("serviceAccountName", ""))) << Name(workload);
    std::set<std::string> volumes;
    for (const Json& volume : pod.value("volumes", Json::array())) {
      volumes.insert(volume.at("name"));
      if (volume.contains("configMap")) {
        EXPECT_TRUE(Has("ConfigMap", At(volume, "configMap/name"))) << Name(workload);
      }
      if (volume.contains("persistentVolumeClaim")) {
        EXPECT_TRUE(Has("PersistentVolumeClaim", At(volume, "persistentVolumeClaim/claimName")));
      }
    }
    std::set<std::string> used;
    for (const Json& container : Containers(workload)) {
      for (const Json& mount : container.value("volumeMounts", Json::array())) {
        used.insert(mount.at("name"));
      }
      for (const char* probe : {"livenessProbe", "readinessProbe"}) {
        const Json port = At(container, std::string(probe) + "/httpGet/port");
        if (port.is_null()) continue;
        EXPECT_EQ(port, container.at("ports").at(0).at("name")) << Name(workload);
      }
    }
    EXPECT_EQ(used, volumes) << Name(workload);
  }
  for (const Json& binding : Of({"ClusterRoleBinding", "RoleBinding"})) {
    EXPECT_TRUE(Has(At(binding, "roleRef/kind"), At(binding, "roleRef/name"))) << Name(binding);
    for (const Json& subject : binding.at("subjects")) {
      EXPECT_TRUE(Has(subject.at("kind"), subject.at("name"))) << Name(binding);
    }
  }
}

// "--listen=0.0.0.0:8080" -> "--listen"
std::string Flag(const std::string& argument) { return argument.substr(0, argument.find('=')); }
// Whether the flag stands there as a word of its own.
bool Lists(const std::string& help, const std::string& flag) {
  for (size_t at = 0; (at = help.find(flag, at)) != std::string::npos; at += flag.size()) {
    const char before = at == 0 ? ' ' : help[at - 1];
    const char after = at + flag.size() == help.size() ? ' ' : help[at + flag.size()];
    if ((before == ' ' || before == ',' || before == '\n') &&
        (after == ' ' || after == ',' || after == '=' || after == '\n')) {
      return true;
    }
  }
  return false;
}

TEST_P(Manifests, ProgramsKnowTheirFlags) {
  std::map<std::string, std::string> help;
  const auto help_of = [&](const std::string& command) {
    if (!help.contains(command)) help[command] = Shell(command + " --help").second;
    return help[command];
  };
  std::set<std::string> programs;
  for (const Json& workload : Workloads()) {
    for (const Json& container : Containers(workload)) {
      const std::string program = container.at("command").at(0);
      const Json& arguments = container.at("args");
      std::string path;
      size_t first = 0;
      if (program == "batond") path = BATOND;
      if (program == "baton-frontend") path = FRONTEND;
      if (program == "baton-k8s") {
        path = BATON_K8S + std::string(" ") + arguments.at(0).get<std::string>();
        first = 1;
      }
      if (program == "install") continue;  // coreutils'
      ASSERT_FALSE(path.empty()) << program;
      programs.insert(program);
      for (size_t i = first; i < arguments.size(); ++i) {
        const std::string flag = Flag(arguments[i]);
        EXPECT_TRUE(Lists(help_of(path), flag)) << path << " has no " << flag << ":\n"
                                                << help_of(path);
      }
    }
  }
  EXPECT_FALSE(programs.empty());
  EXPECT_TRUE(programs.contains("baton-k8s"));
}

TEST_P(Manifests, DaemonsAcceptTheirFiles) {
  size_t files = 0;
  for (const Json& object : Of({"ConfigMap"})) {
    const Json text = At(object, "data/batond.toml");
    if (text.is_null()) continue;
    const std::string path = ::testing::TempDir() + "/" + GetParam() + "-" + Name(object) +
                             std::to_string(getpid()) + ".toml";
    std::ofstream(path) << text.get<std::string>();
    for (const char* program : {BATOND, FRONTEND}) {
      const auto [status, said] = Shell(std::string(program) + " --check-config " + path);
      EXPECT_EQ(status, 0) << said;
    }
    // Root in a pod could open the operator's socket, were it where pods look.
    if (Name(object) == "baton-node") {
      EXPECT_NE(text.get<std::string>().find("\"control_dir\" = \"/run/baton-control\""),
                std::string::npos);
    }
    fs::remove(path);
    ++files;
  }
  EXPECT_GT(files, 0u);
}

TEST_P(Manifests, NobodyMayMoreThanIsNeeded) {
  const std::set<std::string> reading{"get", "list", "watch"};
  for (const Json& role : Of({"ClusterRole", "Role"})) {
    for (const Json& rule : role.at("rules")) {
      const std::string where = Name(role) + " " + rule.dump();
      for (const char* key : {"apiGroups", "resources", "verbs"}) {
        ASSERT_FALSE(rule.at(key).empty()) << where;
        for (const std::string word : rule.at(key)) {
          EXPECT_EQ(word.find('*'), std::string::npos) << where;
        }
      }
      for (const std::string resource : rule.at("resources")) {
        EXPECT_FALSE(resource.starts_with("secrets")) << where;
        EXPECT_NE(resource, "pods/exec") << where;
        EXPECT_FALSE(resource.starts_with("serviceaccounts")) << where;
        EXPECT_FALSE(resource.find("roles") != std::string::npos) << where;
        for (const std::string verb : rule.at("verbs")) {
          EXPECT_TRUE(verb != "escalate" && verb != "bind" && verb != "impersonate") << where;
          if (resource.starts_with("nodes")) {
            EXPECT_TRUE(reading.contains(verb)) << where;
          }
          if (resource.ends_with("webhookconfigurations")) {
            EXPECT_TRUE(rule.contains("resourceNames") && verb != "create") << where;
          }
        }
      }
    }
  }
}

TEST_P(Manifests, ContainersHaveNoPowersThatTheyDoNotNeed) {
  const bool all_is_on = GetParam() == std::string("everything");
  std::set<std::string> images;
  for (const Json& workload : Workloads()) {
    const Json pod = At(workload, "spec/template/spec");
    const bool node = workload.at("kind") == "DaemonSet";
    EXPECT_EQ(pod.value("hostPID", false), node) << Name(workload);
    EXPECT_FALSE(pod.value("hostNetwork", false)) << Name(workload);
    EXPECT_FALSE(pod.value("hostIPC", false)) << Name(workload);
    EXPECT_EQ(At(pod, "securityContext/seccompProfile/type"), "RuntimeDefault") << Name(workload);
    EXPECT_EQ(At(pod, "securityContext/runAsNonRoot").is_null(), node) << Name(workload);
    EXPECT_FALSE(pod.value("priorityClassName", "").empty()) << Name(workload);
    if (node) {
      EXPECT_EQ(pod.value("priorityClassName", ""), "system-node-critical");
    }
    for (const Json& volume : pod.value("volumes", Json::array())) {
      const Json path = At(volume, "hostPath/path");
      if (path.is_null()) continue;
      EXPECT_TRUE(node) << Name(workload) << " " << volume;
      EXPECT_TRUE(
          std::set<std::string>({"/run/baton", "/run/baton-locks", "/var/lib/baton",
                                 std::string(kHostHookDir), "/var/lib/kubelet/device-plugins"})
              .contains(path))
          << path;
    }
    for (const Json& container : Containers(workload)) {
      const Json& security = container.at("securityContext");
      EXPECT_FALSE(security.value("privileged", false)) << Name(workload);
      EXPECT_EQ(security.at("allowPrivilegeEscalation"), false) << Name(workload);
      EXPECT_EQ(security.at("readOnlyRootFilesystem"), true) << Name(workload);
      Json capabilities{{"drop", {"ALL"}}};
      // killHungHolders
      if (all_is_on && node && container.at("name") == "batond") capabilities["add"] = {"KILL"};
      EXPECT_EQ(security.at("capabilities"), capabilities) << Name(workload);
      EXPECT_FALSE(At(container, "resources/requests/memory").is_null()) << Name(workload);
      EXPECT_FALSE(At(container, "resources/limits/memory").is_null()) << Name(workload);
      images.insert(container.at("image").get<std::string>());
    }
  }
  EXPECT_EQ(images, std::set<std::string>{
                        all_is_on ? "ghcr.io/baton/baton@" +
                                        At(ValuesOfEverything(), "image/digest").get<std::string>()
                                  : "ghcr.io/baton/baton:" BATON_VERSION});
}

TEST_P(Manifests, PodsFindSocketAndHookWhereTheNodePutsThem) {
  Json pod{
      {"metadata", {{"name", "p"}}},
      {"spec",
       {{"containers", Json::array({{{"name", "main"},
                                     {"resources", {{"limits", {{kShareResource, "30"}}}}}}})}}}};
  ASSERT_TRUE(Inject(pod).value_or(false));
  std::set<std::string> wanted;
  for (const Json& volume : At(pod, "spec/volumes")) wanted.insert(At(volume, "hostPath/path"));
  ASSERT_EQ(wanted.size(), 2u);
  for (const Json& daemon_set : Of({"DaemonSet"})) {
    for (const Json& volume : At(daemon_set, "spec/template/spec/volumes")) {
      if (At(volume, "hostPath/path").is_string()) wanted.erase(At(volume, "hostPath/path"));
    }
  }
  EXPECT_EQ(wanted, std::set<std::string>{});
}

TEST_P(Manifests, WebhooksLeaveOthersAlone) {
  size_t webhooks = 0;
  for (const Json& configuration :
       Of({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})) {
    for (const Json& webhook : configuration.at("webhooks")) {
      ++webhooks;
      const std::string where = configuration.value("kind", "") + " " + Name(webhook);
      EXPECT_EQ(webhook.at("failurePolicy"), "Fail") << where;
      EXPECT_EQ(webhook.at("sideEffects"), "None") << where;
      EXPECT_LE(webhook.at("timeoutSeconds"), 5) << where;
      EXPECT_EQ(webhook.at("admissionReviewVersions"), Json({"v1"})) << where;
      EXPECT_TRUE(Has("Service", At(webhook, "clientConfig/service/name"))) << where;
      const Json rule = At(webhook, "namespaceSelector/matchExpressions").at(0);
      EXPECT_EQ(rule.at("operator"), "NotIn") << where;
      for (const char* name_space : {"baton-system", "kube-system"}) {
        const Json& values = rule.at("values");
        EXPECT_NE(std::find(values.begin(), values.end(), name_space), values.end()) << where;
      }
      if (webhook.at("rules").at(0).at("resources") == Json({"pods"})) {
        EXPECT_TRUE(webhook.contains("matchConditions")) << where;
        // What pods get later is checked too; nothing can be put into it.
        const bool validates = configuration.at("kind") == "ValidatingWebhookConfiguration";
        ASSERT_EQ(webhook.at("rules").size(), validates ? 2u : 1u) << where;
        if (!validates) continue;
        EXPECT_EQ(webhook.at("rules").at(1).at("resources"), Json({"pods/ephemeralcontainers"}))
            << where;
        EXPECT_EQ(webhook.at("rules").at(1).at("operations"), Json({"UPDATE"})) << where;
      }
    }
  }
  EXPECT_EQ(webhooks, 3u);
}

// Else a container that crashes leaves an authority behind each time.
TEST_P(Manifests, AWebhookThatIsStartedAgainKnowsItsName) {
  const Json name{{"name", "POD_NAME"},
                  {"valueFrom", {{"fieldRef", {{"fieldPath", "metadata.name"}}}}}};
  size_t webhooks = 0;
  for (const Json& workload : Workloads()) {
    for (const Json& container : Containers(workload)) {
      if (container.at("name") != "webhook") continue;
      ++webhooks;
      const Json& env = container.at("env");
      EXPECT_NE(std::find(env.begin(), env.end(), name), env.end()) << env;
    }
  }
  EXPECT_EQ(webhooks, 1u);
}

// What only stands where it is asked for.
class Everything : public Manifests {};

INSTANTIATE_TEST_SUITE_P(Chart, Everything, ::testing::Values("everything"),
                         [](const auto& which) { return std::string(which.param); });

// What is off or empty in `values` is on or full in `everything`.
void CompareOff(const Json& values, const Json& everything, const std::string& where) {
  if (values.is_object() && !values.empty()) {
    for (const auto& [key, value] : values.items()) {
      CompareOff(value, At(everything, key), where + "." + key);
    }
    return;
  }
  // A digest wins over a tag, and another name would only hide names that the templates spell out.
  if (where == ".image.tag" || where == ".fullnameOverride") return;
  if (values == Json(false) || values == Json("") || (values.is_structured() && values.empty())) {
    EXPECT_FALSE(everything.is_null() || everything == values) << where;
  } else if (values == Json(true)) {
    EXPECT_NE(everything, Json(false)) << where;
  }
}

TEST_P(Everything, IsOn) {
  CompareOff(Documents(kChart + "/values.yaml").at(0), ValuesOfEverything(), "");
  std::set<std::string> kinds;
  for (const auto& file : fs::directory_iterator(kChart + "/templates")) {
    std::istringstream lines(Text(file.path()));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("kind: ")) kinds.insert(line.substr(6));
    }
  }
  EXPECT_TRUE(kinds.contains("ServiceMonitor"));
  for (const std::string& kind : kinds) EXPECT_FALSE(Of({kind}).empty()) << kind;
}

TEST_P(Everything, HasTheWordsOfItsValuesEverywhere) {
  const Json values = ValuesOfEverything();
  for (const Json& object : all_) {
    if (object.at("kind") == "CustomResourceDefinition") continue;
    EXPECT_TRUE(IsPartOf(values.at("commonLabels"), At(object, "metadata/labels")))
        << object.at("kind") << " " << Name(object);
  }
  for (const Json& workload : Workloads()) {
    const std::string part = At(workload, "metadata/labels").at("app.kubernetes.io/component");
    const Json& wanted = values.at(part);
    const Json pod = At(workload, "spec/template/spec");
    EXPECT_TRUE(IsPartOf(values.at("commonLabels"), At(workload, "spec/template/metadata/labels")));
    EXPECT_TRUE(
        IsPartOf(wanted.at("podAnnotations"), At(workload, "spec/template/metadata/annotations")))
        << part;
    EXPECT_TRUE(IsPartOf(wanted.at("nodeSelector"), pod.at("nodeSelector"))) << part;
    EXPECT_EQ(pod.at("imagePullSecrets"), values.at("imagePullSecrets")) << part;
    if (wanted.contains("tolerations")) {
      EXPECT_EQ(pod.at("tolerations"), wanted.at("tolerations")) << part;
    }
    const Json more =
        part == "node" ? At(wanted, "agent/extraArgs") : wanted.value("extraArgs", Json::array());
    const Json arguments = Containers(workload).back().at("args");
    for (const Json& argument : more) {
      EXPECT_NE(std::find(arguments.begin(), arguments.end(), argument), arguments.end())
          << part << " " << argument;
    }
  }
}

TEST_P(Everything, MonitorsAskWhereMetricsAre) {
  size_t monitors = 0;
  for (const Json& monitor : Of({"PodMonitor"})) {
    const auto ports = PortsOfPods(At(monitor, "spec/selector/matchLabels"));
    for (const Json& endpoint : At(monitor, "spec/podMetricsEndpoints")) {
      EXPECT_TRUE(Names(ports, endpoint.at("port"))) << Name(monitor) << " " << endpoint;
      ++monitors;
    }
  }
  EXPECT_EQ(monitors, 3u);  // binder, webhook, the nodes' agents
  for (const Json& monitor : Of({"ServiceMonitor"})) {
    size_t services = 0;
    for (const Json& service : Of({"Service"})) {
      if (!IsPartOf(At(monitor, "spec/selector/matchLabels"), At(service, "metadata/labels"))) {
        continue;
      }
      ++services;
      // The alerts say job="baton".
      EXPECT_EQ(At(service, "metadata/labels").at(At(monitor, "spec/jobLabel")), "baton");
      for (const Json& endpoint : At(monitor, "spec/endpoints")) {
        EXPECT_TRUE(Names(At(service, "spec/ports").get<std::vector<Json>>(), endpoint.at("port")))
            << Name(monitor) << " " << endpoint;
        EXPECT_EQ(At(endpoint, "authorization/credentials/name"),
                  At(ValuesOfEverything(), "monitoring/secret"));
        EXPECT_EQ(At(endpoint, "authorization/credentials/key"), "token");
        ++monitors;
      }
    }
    EXPECT_EQ(services, 1u) << Name(monitor);
  }
  EXPECT_EQ(monitors, 5u);  // and batond, of the nodes and the central one
}

TEST_P(Everything, HasTheTeamsAsTheyWereGiven) {
  for (const Json& object : Of({"ConfigMap"})) {
    if (Name(object) != "baton-teams") continue;
    EXPECT_EQ(At(object, "data/teams.toml"), ValuesOfEverything().at("teams"));
    return;
  }
  FAIL() << "there is no ConfigMap baton-teams";
}

TEST_P(Everything, HasTheTreesAlertsAndDashboard) {
  const auto rules = Of({"PrometheusRule"});
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_EQ(rules[0].at("spec"), Documents(kSource + "/docs/monitoring/alerts.yaml").at(0));
  size_t dashboards = 0;
  for (const Json& object : Of({"ConfigMap"})) {
    const Json text = At(object, "data/baton.json");
    if (text.is_null()) continue;
    ++dashboards;
    EXPECT_EQ(Json::parse(text.get<std::string>(), nullptr, false),
              Json::parse(Text(kSource + "/docs/monitoring/baton.json"), nullptr, false));
    EXPECT_EQ(At(object, "metadata/labels/grafana_dashboard"), "1");
  }
  EXPECT_EQ(dashboards, 1u);
}

// It has no certificate of its own to tell API servers of.
TEST_P(Everything, AWebhookWithACertificateOfASecretMayDoNothing) {
  ASSERT_TRUE(Has("ServiceAccount", "baton-webhook"));
  for (const Json& binding : Of({"ClusterRoleBinding", "RoleBinding"})) {
    for (const Json& subject : binding.at("subjects")) {
      EXPECT_NE(subject.at("name"), "baton-webhook") << Name(binding);
    }
  }
}

TEST(Chart, PlacesByTheDefaultRule) {
  const std::string rule(devmgr::RuleName(devmgr::PlacementPolicy().nodes));
  EXPECT_EQ(At(Documents(kChart + "/values.yaml").at(0), "binder/policy"), rule);
  for (const char* name : {"baton", "central"}) {
    EXPECT_NE(Text(Rendered(name)).find("--policy=" + rule + "\n"), std::string::npos) << name;
  }
}

TEST(Chart, HasTheSameFilesAsTheTree) {
  std::set<std::string> crds;
  for (const auto& file : fs::directory_iterator(kSource + "/k8s/crds")) {
    crds.insert(file.path().filename());
    EXPECT_EQ(Text(file.path()), Text(kChart + "/crds/" + file.path().filename().string()))
        << file.path() << "; run scripts/render-chart";
  }
  EXPECT_EQ(crds, (std::set<std::string>{"gpunodes.yaml", "sharepods.yaml"}));
  EXPECT_EQ(Text(kSource + "/docs/monitoring/baton.json"), Text(kChart + "/files/dashboard.json"));
  EXPECT_EQ(Text(kSource + "/docs/monitoring/alerts.yaml"), Text(kChart + "/files/alerts.yaml"));
  // And the manifests have the CRDs.
  for (const char* name : {"baton", "central", "everything"}) {
    const auto all = Documents(Rendered(name));
    for (const std::string& crd : crds) {
      const Json wanted = Documents(kSource + "/k8s/crds/" + crd).at(0);
      EXPECT_NE(std::find(all.begin(), all.end(), wanted), all.end()) << name << " " << crd;
    }
  }
}

TEST(Chart, HasTheProjectsVersion) {
  const Json chart = Documents(kChart + "/Chart.yaml").at(0);
  EXPECT_EQ(chart.at("version"), BATON_VERSION);
  EXPECT_EQ(chart.at("appVersion"), BATON_VERSION);
}

// Every value is in the schema, and the schema has no other.
void Compare(const Json& values, const Json& schema, const std::string& where) {
  if (!values.is_object() || !schema.contains("properties")) return;
  EXPECT_EQ(schema.value("additionalProperties", true), false) << where;
  const Json& properties = schema.at("properties");
  for (const auto& [key, value] : values.items()) {
    ASSERT_TRUE(properties.contains(key)) << where << "." << key;
    Compare(value, properties.at(key), where + "." + key);
  }
  for (const auto& [key, property] : properties.items()) {
    EXPECT_TRUE(values.contains(key) || (where.empty() && key == "global")) << where << "." << key;
  }
}

TEST(Chart, TheSchemaHasTheValues) {
  const Json schema = Json::parse(Text(kChart + "/values.schema.json"), nullptr, false);
  ASSERT_FALSE(schema.is_discarded());
  Compare(Documents(kChart + "/values.yaml").at(0), schema, "");
}

TEST(Chart, IsRendered) {
  if (Shell("command -v helm").first != 0) GTEST_SKIP() << "helm was not found";
  const auto [status, said] = Shell(kSource + "/scripts/render-chart --check");
  EXPECT_EQ(status, 0) << said;
}

TEST(Examples, AskForGpusAsBatonReadsThem) {
  std::set<std::string> kinds;
  size_t asking = 0;
  for (const auto& file : fs::directory_iterator(kSource + "/k8s/examples")) {
    for (const Json& object : Documents(file.path())) {
      const std::string kind = object.value("kind", "");
      kinds.insert(kind);
      if (kind == "Service") continue;
      if (kind == "SharePod") {
        const auto checked = CheckSharePod(object);
        EXPECT_TRUE(checked) << file.path() << ": " << checked.error().message;
        ++asking;
        continue;
      }
      Json pod = At(object, "spec/template");
      pod["metadata"]["name"] = Name(object);
      const auto read = ReadGpuPod(pod, kMemoryUnitMib);
      ASSERT_TRUE(read) << file.path() << ": " << read.error().message;
      EXPECT_TRUE(read->asks()) << file.path();
      EXPECT_TRUE(Inject(pod)) << file.path();
      ++asking;
    }
  }
  EXPECT_GE(asking, 5u);
  for (const char* kind : {"SharePod", "Deployment", "Job"}) EXPECT_TRUE(kinds.contains(kind));
}

}  // namespace
}  // namespace baton::k8s
