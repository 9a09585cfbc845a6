// The chart itself: that everything in it can be switched on and arrives, that its values have a
// schema and its files are those of the tree; and the examples.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "devmgr/placement/policy.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/inject.h"
#include "k8s/types/share_pod.h"
#include "tests/k8s/chart/manifests.h"

namespace baton::k8s {
namespace {

namespace fs = std::filesystem;

// What only stands where it is asked for.
class Everything : public Manifests {};

INSTANTIATE_TEST_SUITE_P(Chart, Everything, ::testing::Values("everything"),
                         [](const auto& which) { return std::string(which.param); });

// What is off or empty in `values` is on or full in `everything`.
void CompareOff(const Json& values, const Json& everything, const std::string& where) {
  if (values.is_object() && !values.empty()) {
    for (const auto& [key, value] : values.items()) {
      CompareOff(value, At(everything, key), fmt::format("{}.{}", where, key));
    }
    return;
  }
  // A digest wins over a tag, and another name would only hide names that the templates spell out.
  if (where == ".image.tag" || where == ".fullnameOverride") return;
  // Not together with `dra`.
  if (where == ".node.wholeCards" || where == ".node.mig" || where == ".node.mps") return;
  if (values == Json(false) || values == Json("") || (values.is_structured() && values.empty())) {
    EXPECT_FALSE(everything.is_null() || everything == values) << where;
  } else if (values == Json(true)) {
    EXPECT_NE(everything, Json(false)) << where;
  }
}

TEST_P(Everything, EnablesEveryFeature) {
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

// Its constraints allow the node's pods what they have, and nothing else.
TEST_P(Everything, OpenShiftsConstraintsAreWhatTheNodesPodsHave) {
  const Json constraints = Of({"SecurityContextConstraints"}).at(0);
  for (const Json& workload : Workloads()) {
    const Json pod = At(workload, "spec/template/spec");
    const std::string account = pod.at("serviceAccountName");
    const bool node = account.ends_with("-node");
    EXPECT_EQ(constraints.at("users").dump().find(":" + account + "\"") != std::string::npos, node);
    if (!node) {
      const Json bindings = Of({"RoleBinding"});
      EXPECT_NE(
          std::find_if(bindings.begin(), bindings.end(),
                       [&](const Json& binding) {
                         return At(binding, "roleRef/name") == "system:openshift:scc:nonroot-v2" &&
                                binding.at("subjects").dump().find(account) != std::string::npos;
                       }),
          bindings.end())
          << account;
      continue;
    }
    EXPECT_EQ(At(pod, "securityContext/seLinuxOptions/type"), "spc_t");
    std::set<std::string> volumes, capabilities;
    for (const Json& volume : pod.at("volumes")) {
      for (const auto& [key, value] : volume.items()) {
        if (key != "name") volumes.insert(key);
      }
    }
    const auto listed = [&](const char* key) {
      return constraints.at(key).get<std::set<std::string>>();
    };
    const std::set<std::string> allowed = listed("volumes");
    EXPECT_TRUE(std::includes(allowed.begin(), allowed.end(), volumes.begin(), volumes.end()));
    for (const Json& container : Containers(workload)) {
      const Json added = At(container, "securityContext/capabilities/add");
      if (added.is_array()) capabilities.insert(added.begin(), added.end());
      EXPECT_EQ(At(container, "securityContext/readOnlyRootFilesystem"), true);
    }
    EXPECT_EQ(capabilities, listed("allowedCapabilities"));
    EXPECT_EQ(pod.value("hostPID", false), constraints.at("allowHostPID"));
    EXPECT_EQ(pod.value("hostNetwork", false), constraints.at("allowHostNetwork"));
    EXPECT_EQ(pod.value("hostIPC", false), constraints.at("allowHostIPC"));
  }
}

TEST_P(Everything, ValuesAppearInEveryObject) {
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

TEST_P(Everything, MonitorsPointToMetrics) {
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

TEST_P(Everything, TeamsArePassedUnchanged) {
  for (const Json& object : Of({"ConfigMap"})) {
    if (Name(object) != "baton-teams") continue;
    EXPECT_EQ(At(object, "data/teams.toml"), ValuesOfEverything().at("teams"));
    return;
  }
  FAIL() << "there is no ConfigMap baton-teams";
}

TEST_P(Everything, AlertsAndDashboardAreTheTrees) {
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
TEST_P(Everything, WebhookWithASecretOnlyReads) {
  ASSERT_TRUE(Has("ServiceAccount", "baton-webhook"));
  size_t roles = 0;
  for (const Json& role : Of({"ClusterRole", "Role"})) {
    if (Name(role) != "baton-webhook") continue;
    ++roles;
    for (const Json& rule : role.at("rules")) {
      for (const Json& verb : rule.at("verbs")) {
        EXPECT_TRUE(verb == "get" || verb == "list" || verb == "watch") << rule;
      }
      EXPECT_EQ(rule.at("resources").dump().find("secrets"), std::string::npos) << rule;
    }
  }
  EXPECT_EQ(roles, 1u);
}

// What the operator says of tenants reaches the webhook, and what pods are given both programs.
TEST_P(Everything, TenancyAndPodsArePassedOn) {
  const Json values = ValuesOfEverything();
  for (const Json& workload : Workloads()) {
    const std::string part = At(workload, "metadata/labels").at("app.kubernetes.io/component");
    if (part != "webhook" && part != "binder") continue;
    const std::string arguments = Containers(workload).back().at("args").dump();
    const auto says = [&](const std::string& argument) {
      return arguments.find("\"" + argument + "\"") != std::string::npos;
    };
    EXPECT_TRUE(says("--tolerate=nvidia.com/gpu")) << part << arguments;
    EXPECT_TRUE(says("--choose-mode")) << part << arguments;
    EXPECT_TRUE(says("--runtime-class=" + At(values, "node/runtimeClassName").get<std::string>()))
        << part << arguments;
    if (part == "binder") continue;
    EXPECT_TRUE(says("--restrict=high-priority,exclusive,away-open,user,priority-class,gpu-uuid"))
        << arguments;
    EXPECT_TRUE(says("--namespace-team=vision-*=research/vision")) << arguments;
    for (const char* flag : {"--check-quotas", "--hami-names", "--volcano-names", "--kai-names",
                             "--time-slicing-replicas=4", "--kueue-queues", "--volcano-queues",
                             "--kai-queues", "--coscheduling-groups"}) {
      EXPECT_TRUE(says(flag)) << arguments;
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
  EXPECT_EQ(crds, (std::set<std::string>{"gpunodes.yaml", "sharepods.yaml", "teams.yaml"}));
  EXPECT_EQ(Text(kSource + "/docs/monitoring/baton.json"), Text(kChart + "/files/dashboard.json"));
  EXPECT_EQ(Text(kSource + "/docs/monitoring/alerts.yaml"), Text(kChart + "/files/alerts.yaml"));
  // And the manifests have the CRDs.
  for (const char* name : {"baton", "central", "everything"}) {
    const auto all = Documents(Rendered(name));
    for (const std::string& crd : crds) {
      const Json wanted = Documents(fmt::format("{}/k8s/crds/{}", kSource, crd)).at(0);
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
    Compare(value, properties.at(key), fmt::format("{}.{}", where, key));
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

// Helm owns the fields of the definitions that it made.
TEST(Chart, UpgradesOfItsDefinitionsTakeFieldsFromHelm) {
  size_t seen = 0;
  for (const char* file : {"/docs/kubernetes.md", "/CHANGELOG.md"}) {
    std::istringstream text(Text(kSource + file));
    for (std::string line; std::getline(text, line);) {
      if (line.find("kubectl apply") == line.npos || line.find("baton/crds") == line.npos) continue;
      ++seen;
      EXPECT_NE(line.find("apply --server-side --force-conflicts"), line.npos) << line;
    }
  }
  EXPECT_GE(seen, 1u);
}

TEST(Chart, IsRendered) {
  if (Shell("command -v helm").first != 0) GTEST_SKIP() << "helm was not found";
  const auto [status, said] = Shell(kSource + "/scripts/render-chart --check");
  EXPECT_EQ(status, 0) << said;
}

// What stands behind `flag` in the arguments of a container.
std::string ValueOf(const Json& container, const std::string& flag) {
  for (const std::string argument : container.value("args", Json::array())) {
    if (argument.starts_with(flag + "=")) return argument.substr(flag.size() + 1);
  }
  return "";
}

// A key's value in a TOML of the chart's.
std::string Setting(const std::string& toml, const std::string& key) {
  const std::string begin = "\"" + key + "\" = \"";
  const size_t at = toml.find(begin);
  if (at == toml.npos) return "";
  return toml.substr(at + begin.size(), toml.find('"', at + begin.size()) - at - begin.size());
}

// No secret is in it, and who writes a file of the keys and who reads it mean the same one.
void MakesItsOwnKeys(const std::vector<Json>& objects) {
  std::map<std::string, Json> containers;  // of node and central, by "workload/container"
  std::map<std::string, std::string> files;
  std::set<std::string> maps;
  for (const Json& object : objects) {
    const std::string kind = object.value("kind", "");
    EXPECT_NE(kind, "Secret");
    if (kind == "ConfigMap") {
      maps.insert("baton-system/" + Name(object));
      if (const Json file = At(object, "data/batond.toml"); file.is_string()) {
        files[Name(object)] = file;
      }
    }
    const Json pod = At(object, "spec/template/spec");
    if (pod.is_null()) continue;
    for (const Json& volume : pod.value("volumes", Json::array())) {
      EXPECT_FALSE(volume.contains("secret")) << Name(object) << " " << volume;
    }
    for (const char* list : {"initContainers", "containers"}) {
      for (const Json& container : pod.value(list, Json::array())) {
        containers[Name(object) + "/" + container.at("name").get<std::string>()] = container;
      }
    }
  }
  const std::string node = files["baton-node"], central = files["baton-central"];
  const Json agent = containers["baton-node/agent"], keys = containers["baton-central/agent"];
  const std::string pair = Setting(node, "secret_key_file");
  EXPECT_EQ(containers["baton-node/keys"].at("args"), Json({"keygen", "--keep", pair}));
  EXPECT_EQ(ValueOf(agent, "--public-key-file"), pair + ".pub");
  EXPECT_EQ(ValueOf(agent, "--central-key-file"), Setting(node, "server_public_key_file"));
  EXPECT_FALSE(Setting(node, "server_public_key_file").empty());
  EXPECT_EQ(ValueOf(keys, "--nodes-file"), Setting(central, "nodes_file"));
  const std::string of_central = containers["baton-central/key-pair"].at("args").at(2);
  EXPECT_EQ(ValueOf(keys, "--public-key-file"), of_central + ".pub");
  EXPECT_EQ(ValueOf(keys, "--central-key"), ValueOf(agent, "--central-key"));
  EXPECT_TRUE(maps.contains(ValueOf(keys, "--central-key"))) << ValueOf(keys, "--central-key");
  for (const auto& [name, file] : files) {
    const std::string toml = ::testing::TempDir() + "/" + name + std::to_string(getpid());
    std::ofstream(toml) << file;
    const auto [checked, said] = Shell(std::string(BATOND) + " --file-only --check-config " + toml);
    EXPECT_EQ(checked, 0) << said;
    fs::remove(toml);
  }
}

TEST(Chart, OneBatondForTheClusterMakesItsOwnKeys) {
  MakesItsOwnKeys(Documents(Rendered("central")));
}

TEST(Chart, OneValueIsAllThatWholeGpusNeed) {
  if (Shell("command -v helm").first != 0) GTEST_SKIP() << "helm was not found";
  const std::string render = "helm template baton " + kChart + " --set node.wholeCards=true";
  const auto [status, said] = Shell(render);
  ASSERT_EQ(status, 0) << said;
  EXPECT_NE(said.find("- --whole-cards\n"), said.npos);
  EXPECT_NE(said.find("r == \"nvidia.com/gpu\""), said.npos) << "the webhook sees such pods";
  const auto [refused, why] = Shell(render + " --set dra.enabled=true");
  EXPECT_NE(refused, 0);
  EXPECT_NE(why.find("dra.extendedResourceName"), why.npos) << why;
}

TEST(Chart, PodsByMigAndMpsNeedOneValueEach) {
  if (Shell("command -v helm").first != 0) GTEST_SKIP() << "helm was not found";
  const std::string render = "helm template baton " + kChart;
  const auto [status, said] = Shell(render + " --set node.mig=true,node.mps=true");
  ASSERT_EQ(status, 0) << said;
  for (const char* part :
       {"add: [SYS_ADMIN]", "NVIDIA_MIG_CONFIG_DEVICES", "\"utility,compute\"",
        "- --mps-memory-dir=/run/baton/mps-memory", "{name: mps-memory, mountPath: /dev/shm}"}) {
    EXPECT_NE(said.find(part), said.npos) << part;
  }
  for (const char* against : {"mode=central", "dra.enabled=true"}) {
    const auto [refused, why] = Shell(render + " --set node.mig=true," + against);
    EXPECT_NE(refused, 0) << against;
    EXPECT_NE(why.find("mode: federated"), why.npos) << why;
  }
}

TEST(Chart, OneValueIsAllThatACentralBatondNeeds) {
  if (Shell("command -v helm").first != 0) GTEST_SKIP() << "helm was not found";
  for (const std::string value : {"central.enabled=true", "mode=central"}) {
    SCOPED_TRACE(value);
    const std::string render =
        fmt::format("helm template baton {} -n baton-system --set {}", kChart, value);
    const auto [status, text] = Shell(render);
    ASSERT_EQ(status, 0) << text;
    // An upgrade changes no key, for there is none in it.
    EXPECT_EQ(Shell(render).second, text);
    const std::string path =
        ::testing::TempDir() + "/one-value-" + std::to_string(getpid()) + ".yaml";
    std::ofstream(path) << text;
    MakesItsOwnKeys(Documents(path));
    fs::remove(path);
  }
}

TEST(Chart, KeysThatTheOperatorMadeAreUsedAsBefore) {
  const auto all = Documents(Rendered("everything"));
  size_t seen = 0;
  for (const Json& object : all) {
    const Json pod = At(object, "spec/template/spec");
    const std::string file = At(object, "data/batond.toml").is_string()
                                 ? At(object, "data/batond.toml").get<std::string>()
                                 : "";
    for (const char* key : {"server_public_key_file", "nodes_file"}) {
      EXPECT_EQ(Setting(file, key), "") << Name(object);
    }
    if (Name(object) == "baton-central-key") ADD_FAILURE() << "nobody writes it";
    if (Name(object) != "baton-node" && Name(object) != "baton-central") continue;
    for (const Json& volume : pod.is_null() ? Json::array() : pod.value("volumes", Json::array())) {
      if (volume.at("name") != "keys") continue;
      EXPECT_EQ(At(volume, "secret/secretName"), "baton-keys") << Name(object);
      ++seen;
    }
    if (pod.is_null()) continue;
    for (const Json& container : pod.at("containers")) {
      EXPECT_EQ(ValueOf(container, "--central-key"), "") << Name(object);
    }
  }
  EXPECT_EQ(seen, 2u);
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
