// The manifests that the chart renders to: that they fit each other, the programs and the CRDs, and
// give away no more than is needed.
#include "tests/k8s/chart/manifests.h"

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

#include "k8s/types/annotations.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/inject.h"

namespace baton::k8s {
namespace {

namespace fs = std::filesystem;

INSTANTIATE_TEST_SUITE_P(Chart, Manifests, ::testing::Values("baton", "central", "everything"),
                         [](const auto& which) { return std::string(which.param); });

TEST_P(Manifests, EachObjectIsUniqueAndInItsNamespace) {
  const std::set<std::string> of_the_cluster{"Namespace",
                                             "ClusterRole",
                                             "ClusterRoleBinding",
                                             "CustomResourceDefinition",
                                             "DeviceClass",
                                             "SecurityContextConstraints",
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

TEST_P(Manifests, SelectorsMatchTheirPods) {
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

TEST_P(Manifests, NetworkPoliciesAllowExactlyTheOpenPorts) {
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

TEST_P(Manifests, ReferencedObjectsExist) {
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
    std::set<std::string> used, names;
    for (const Json& container : Containers(workload)) {
      EXPECT_TRUE(names.insert(container.at("name")).second) << Name(workload) << " " << container;
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
    const std::string role = At(binding, "roleRef/name");
    EXPECT_TRUE(role.starts_with("system:") || Has(At(binding, "roleRef/kind"), role))
        << Name(binding);
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
      if (program == "baton-k8s" || program == "baton") {
        path = (program == "baton" ? BATON : BATON_K8S) + std::string(" ") +
               arguments.at(0).get<std::string>();
        first = 1;
      }
      if (program == "install" || program == "chcon") continue;  // coreutils'
      ASSERT_FALSE(path.empty()) << program;
      programs.insert(program);
      for (size_t i = first; i < arguments.size(); ++i) {
        const std::string flag = Flag(arguments[i]);
        if (!flag.starts_with('-')) continue;
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
      const auto [status, said] =
          Shell(std::string(program) + " --file-only --check-config " + path);
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

TEST_P(Manifests, RolesGrantNoMoreThanNeeded) {
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

TEST_P(Manifests, ContainersHaveNoExtraPrivileges) {
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
      const bool known = std::set<std::string>({"/run/baton", "/run/baton-locks", "/var/lib/baton",
                                                "/var/lib/baton/keys", std::string(kHostHookDir),
                                                "/var/lib/kubelet/device-plugins"})
                             .contains(path);
      const bool of_dra =
          std::set<std::string>({"/var/run/cdi", "/var/lib/kubelet/plugins_registry",
                                 "/var/lib/kubelet/plugins/gpu.baton.dev"})
              .contains(path);
      EXPECT_TRUE(known || (of_dra && all_is_on)) << path;
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

TEST_P(Manifests, KubeletsMountSocketAndHookFromWhereTheDaemonSetHasThem) {
  std::set<std::string> wanted{std::string(kSocketDir), std::string(kHostHookDir)};
  for (const Json& daemon_set : Of({"DaemonSet"})) {
    for (const Json& volume : At(daemon_set, "spec/template/spec/volumes")) {
      if (At(volume, "hostPath/path").is_string()) wanted.erase(At(volume, "hostPath/path"));
    }
  }
  EXPECT_EQ(wanted, std::set<std::string>{});
}

TEST_P(Manifests, WebhooksIgnoreOtherObjects) {
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
  EXPECT_EQ(webhooks, 4u);
}

// Else a container that crashes leaves an authority behind each time.
TEST_P(Manifests, RestartedWebhookKeepsItsName) {
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

}  // namespace
}  // namespace baton::k8s
