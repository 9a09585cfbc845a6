// The manifests at a real API server: each object is accepted, webhooks are asked about pods that
// ask for GPUs and about no others, and what a node may not do it cannot.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "k8s/api/client.h"
#include "k8s/dra/slices.h"
#include "k8s/keys/link_keys.h"
#include "k8s/types/gpu_node.h"
#include "tests/k8s/end_to_end/real_api_server.h"
#include "tests/temp_folder.h"

namespace baton::k8s {
namespace {

namespace fs = std::filesystem;

const std::string kTree = BATON_SOURCE;
// The chart with all that it can make.
const std::string kEverything = kTree + "/tests/k8s/chart/everything.yaml";

std::string Text(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class ChartAtTheApiServer : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (RealApiServer::WhyNot()) return;
    folder_.emplace();
    auto server = RealApiServer::Start(folder_->path());
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    Must({"apply", "--server-side", "-f", kTree + "/k8s/crds"});
    Must({"wait", "--for=condition=Established", "--timeout=60s", "crd/sharepods.baton.dev",
          "crd/gpunodes.baton.dev", "crd/teams.baton.dev"});
    Must({"create", "namespace", "baton-system"});
    Must({"create", "namespace", "vision"});
  }
  static void TearDownTestSuite() {
    server_.reset();
    folder_.reset();
  }
  void SetUp() override {
    if (const auto why = RealApiServer::WhyNot()) GTEST_SKIP() << *why;
    ASSERT_TRUE(server_) << "the API server did not start";
  }

  static std::string Must(const std::vector<std::string>& arguments) {
    auto [status, said] = server_->Kubectl(arguments);
    EXPECT_EQ(status, 0) << said;
    return said;
  }
  static Json Pod(const std::string& name, Json spec, Json annotations = Json::object()) {
    Json pod{{"apiVersion", "v1"},
             {"kind", "Pod"},
             {"metadata", {{"name", name}, {"annotations", std::move(annotations)}}},
             {"spec", {{"containers", Json::array({{{"name", "main"}, {"image", "none"}}})}}}};
    pod["spec"].merge_patch(spec);
    return pod;
  }
  static Json Asking(const std::string& name, const char* resource) {
    Json pod = Pod(name, Json::object());
    pod["spec"]["containers"][0]["resources"] = {{"limits", {{resource, "30"}}}};
    return pod;
  }
  // A token of a pod that is made for it, as the kubelet asks for one.
  static ClusterConfig TokenOnNode(Client& admin, const std::string& account,
                                   const std::string& node) {
    const std::string name = account + "-on-" + node;
    const auto pod = admin.Create(resources::kPods, {"baton-system", name},
                                  Pod(name, {{"nodeName", node}, {"serviceAccountName", account}}));
    EXPECT_TRUE(pod) << pod.error().message;
    ClusterConfig config = server_->admin();
    config.token =
        Must({"--namespace", "baton-system", "create", "token", account, "--bound-object-kind",
              "Pod", "--bound-object-name", name, "--bound-object-uid", pod ? UidOf(*pod) : ""});
    config.token.erase(config.token.find_last_not_of('\n') + 1);
    return config;
  }
  static void MakeNode(Client& admin, const std::string& name) {
    const auto made =
        admin.Create(resources::kNodes, {"", name},
                     {{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", name}}}});
    ASSERT_TRUE(made || made.error().exists()) << made.error().message;
  }
  // Kubernetes 1.34 and later.
  static bool HasClaims() { return Count(Must({"api-versions"}), "resource.k8s.io/v1\n") > 0; }
  // How many lines say it.
  static size_t Count(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++count;
    }
    return count;
  }

  static std::optional<TempFolder> folder_;
  static std::unique_ptr<RealApiServer> server_;
};
std::optional<TempFolder> ChartAtTheApiServer::folder_;
std::unique_ptr<RealApiServer> ChartAtTheApiServer::server_;

TEST_F(ChartAtTheApiServer, EachObjectIsAccepted) {
  // A server of its own knows nothing of the monitors and rules, nor of OpenShift's constraints.
  for (const char* kinds : {"prometheus_operator", "openshift"}) {
    Must({"apply", "--server-side", "-f", kTree + "/tests/k8s/chart/" + kinds + ".yaml"});
  }
  for (const char* kind :
       {"podmonitors.monitoring.coreos.com", "servicemonitors.monitoring.coreos.com",
        "prometheusrules.monitoring.coreos.com",
        "securitycontextconstraints.security.openshift.io"}) {
    Must({"wait", "--for=condition=Established", "--timeout=60s", std::string("crd/") + kind});
  }
  const bool has_claims = HasClaims();
  for (const std::string& path :
       {kTree + "/k8s/manifests/baton.yaml", kTree + "/k8s/manifests/central.yaml", kEverything}) {
    std::string text = Text(path);
    // Before Kubernetes 1.34 there is none.
    if (const size_t kind = text.find("\nkind: DeviceClass\n"); kind != text.npos && !has_claims) {
      const size_t begin = text.rfind("---\n", kind);
      text.erase(begin, text.find("---\n", kind) - begin);
    }
    const auto [status, said] =
        server_->KubectlFile({"apply", "--server-side", "--dry-run=server"}, text);
    EXPECT_EQ(status, 0) << said;
    EXPECT_EQ(Count(said, "(server dry run)"), Count("\n" + text, "\nkind: ")) << said;
    EXPECT_EQ(said.find("Warning"), std::string::npos) << said;
  }
  // The operator's kinds would not have accepted just anything.
  const auto refused = [&](const std::string& right, const std::string& wrong,
                           const std::string& words) {
    std::string mistaken = Text(kEverything);
    const size_t at = mistaken.find("\n" + right);
    ASSERT_NE(at, std::string::npos) << right;
    mistaken.replace(at + 1, right.size(), wrong);
    const auto [status, said] =
        server_->KubectlFile({"apply", "--server-side", "--dry-run=server"}, mistaken);
    EXPECT_NE(status, 0) << wrong;
    EXPECT_NE(said.find(words), std::string::npos) << said;
  };
  refused("  podMetricsEndpoints:", "  metricsEndpoints:", ".spec.metricsEndpoints");
  refused("      honorLabels:", "      honorLabel:", ".spec.endpoints[0].honorLabel");
  refused("          for: 2m", "          for: 2 minutes", "spec.groups[0].rules[0].for");
  for (const auto& file : fs::directory_iterator(kTree + "/k8s/examples")) {
    Must({"apply", "--dry-run=server", "--namespace", "vision", "-f", file.path()});
  }
}

TEST_F(ChartAtTheApiServer, OnlyPodsThatAskForGpusReachTheWebhook) {
  // Nobody is behind the Service: who reaches the webhook is refused.
  Must({"apply", "--server-side", "-f", kTree + "/k8s/manifests/baton.yaml"});
  auto admin = Client::Make(server_->admin());
  ASSERT_TRUE(admin) << admin.error().message;
  const auto reaches = [&](const Json& pod, const std::string& name_space, const std::string& who) {
    auto client = Client::Make(server_->ConfigOf(who));
    EXPECT_TRUE(client);
    const ObjectName name{name_space, NameOf(pod).name};
    const auto made = (*client)->Create(resources::kPods, name, pod);
    if (made) {
      (*admin)->Delete(resources::kPods, name, "", 0);
      return false;
    }
    EXPECT_NE(made.error().message.find("failed calling webhook"), std::string::npos)
        << made.error().message;
    return true;
  };
  // Configurations are read by the API server now and then.
  const Instant end = MonotonicNow() + std::chrono::seconds(30);
  while (!reaches(Asking("first", "baton.dev/gpu-share"), "vision", "admin") &&
         MonotonicNow() < end) {
  }
  EXPECT_TRUE(reaches(Asking("share", "baton.dev/gpu-share"), "vision", "admin"));
  EXPECT_TRUE(reaches(Asking("memory", "baton.dev/gpu-memory"), "vision", "admin"));
  EXPECT_TRUE(reaches(Pod("ours", {{"schedulerName", "baton"}}), "vision", "admin"));
  EXPECT_TRUE(
      reaches(Pod("said", Json::object(), {{"baton.dev/request", "30"}}), "vision", "admin"));
  EXPECT_TRUE(
      reaches(Pod("forged", Json::object(), {{"main.container.baton.dev/visible-devices", "x"}}),
              "vision", "admin"));
  Json init = Pod("init", Json::object());
  init["spec"]["initContainers"] = Json::array({{{"name", "first"}, {"image", "none"}}});
  EXPECT_FALSE(reaches(init, "vision", "admin"));
  init["spec"]["initContainers"][0]["resources"] = {{"limits", {{"baton.dev/gpu-share", "30"}}}};
  EXPECT_TRUE(reaches(init, "vision", "admin"));

  EXPECT_FALSE(reaches(Pod("plain", Json::object()), "vision", "admin"));
  EXPECT_FALSE(reaches(Asking("whole", "nvidia.com/gpu"), "vision", "admin"));
  EXPECT_FALSE(reaches(Asking("own", "baton.dev/gpu-share"), "baton-system", "admin"));
  EXPECT_FALSE(reaches(Asking("system", "baton.dev/gpu-share"), "kube-system", "admin"));
  EXPECT_FALSE(reaches(Asking("child", "baton.dev/gpu-share"), "vision", "baton-binder"));

  Must({"delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "baton"});
}

TEST_F(ChartAtTheApiServer, TeamsAreChecked) {
  // Empty: it is taken.
  const auto refusal = [&](const std::string& spec) -> std::string {
    const auto [status, said] = server_->KubectlFile(
        {"apply", "--dry-run=server"},
        "apiVersion: baton.dev/v1alpha1\nkind: Team\nmetadata: {name: t}\nspec: " + spec + "\n");
    return status == 0 ? "" : said;
  };
  EXPECT_EQ(refusal("{team: research}"), "");
  EXPECT_EQ(refusal("{team: research/vision, weight: 3, guarantee: {gpus: 8, memory: 640Gi}, "
                    "ceiling: {gpus: \"16.5\", memory: 1Ti}}"),
            "");
  EXPECT_EQ(refusal("{team: research, guarantee: {gpus: 8}, ceiling: {memory: 1Gi}}"), "");
  const auto refused = [&](const std::string& spec, const std::string& words) {
    EXPECT_NE(refusal(spec).find(words), std::string::npos) << spec << "\n" << refusal(spec);
  };
  refused("{team: research, guarantee: {gpus: 8}, ceiling: {gpus: \"7.5\"}}",
          "the guarantee is above the ceiling; raise the ceiling or lower the guarantee");
  refused("{team: research, guarantee: {memory: 2Ti}, ceiling: {memory: 1025Gi}}",
          "the guarantee is above the ceiling");
  refused("{weight: 3}", "spec.team: Required value");
  refused("{team: a//b}", "spec.team: Invalid value");
  refused("{team: a, weight: 0}", "spec.weight: Invalid value");
  refused("{team: a, ceiling: {gpus: many}}", "spec.ceiling.gpus");
  refused("{team: a, ceiling: {gpus: -1}}", "spec.ceiling.gpus");
  refused("{team: a, guarantee: {}}", "spec.guarantee");
}

// The library in one of them runs in all pods with a share.
TEST_F(ChartAtTheApiServer, NoPodMountsBatonsFoldersOfTheNode) {
  Must({"apply", "--server-side", "-f", kTree + "/k8s/manifests/baton.yaml"});
  Must({"delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "baton"});
  auto admin = Client::Make(server_->admin());
  ASSERT_TRUE(admin);
  const auto mounting = [](const std::string& path, bool read_only) {
    Json pod = Pod("mounts", Json::object());
    pod["spec"]["volumes"] = Json::array({{{"name", "x"}, {"hostPath", {{"path", path}}}}});
    pod["spec"]["containers"][0]["volumeMounts"] =
        Json::array({{{"name", "x"}, {"mountPath", "/x"}, {"readOnly", read_only}}});
    return pod;
  };
  // Empty: it may.
  const auto refusal = [&](const Json& pod, const char* space = "vision") -> std::string {
    const ObjectName name{space, "mounts"};
    const auto made = (*admin)->Create(resources::kPods, name, pod);
    if (!made) return made.error().message;
    EXPECT_TRUE((*admin)->Delete(resources::kPods, name, "", 0));
    return "";
  };
  // The policy is in force a moment after it was made.
  const Instant end = MonotonicNow() + std::chrono::seconds(30);
  while (refusal(mounting("/run/baton", false)).empty() && MonotonicNow() < end) {
  }
  for (const char* path :
       {"/run/baton", "/run//baton/", "/var/run/baton", "/run/./baton/baton.sock",
        "/var/lib/baton/hook", "//var/lib/baton//hook/libbaton.so", "/var/./lib/baton/hook/."}) {
    EXPECT_NE(refusal(mounting(path, false)).find("with readOnly: true"), std::string::npos)
        << path;
    EXPECT_EQ(refusal(mounting(path, true)), "") << path;
    Json in_init = mounting(path, true);
    in_init["spec"]["initContainers"] = in_init["spec"]["containers"];
    in_init["spec"]["initContainers"][0]["name"] = "first";
    in_init["spec"]["initContainers"][0]["volumeMounts"][0].erase("readOnly");
    EXPECT_NE(refusal(in_init), "") << path;
  }
  for (const char* path : {"/var/lib/baton", "/var/lib/baton/", "/var//lib/baton/usage",
                           "/run/baton-locks", "/var/run/./baton-locks/x"}) {
    EXPECT_NE(refusal(mounting(path, true)).find("no pod may use"), std::string::npos) << path;
  }
  for (const char* path : {"/run/baton-other", "/var/lib/batons", "/srv/var/lib/baton", "/data"}) {
    EXPECT_EQ(refusal(mounting(path, false)), "") << path;
  }
  EXPECT_EQ(refusal(mounting("/var/lib/baton", false), "baton-system"), "") << "its own pods";

  // An ephemeral container of a pod that mounts it read-only.
  ASSERT_TRUE((*admin)->Create(resources::kPods, {"vision", "mounts"},
                               mounting("/var/lib/baton/hook", true)));
  const auto debug = [&](const char* name, bool read_only) -> std::string {
    const Json container{
        {"name", name},
        {"image", "none"},
        {"volumeMounts",
         Json::array({{{"name", "x"}, {"mountPath", "/y"}, {"readOnly", read_only}}})}};
    const auto patched = (*admin)->Patch(
        resources::kPods, {"vision", "mounts"}, PatchKind::kStrategic,
        {{"spec", {{"ephemeralContainers", Json::array({container})}}}}, "ephemeralcontainers");
    return patched ? "" : patched.error().message;
  };
  EXPECT_NE(debug("writes", false).find("with readOnly: true"), std::string::npos);
  EXPECT_EQ(debug("reads", true), "");
  EXPECT_TRUE((*admin)->Delete(resources::kPods, {"vision", "mounts"}, "", 0));
}

// As the driver of ResourceClaims; what it writes is what a scheduler goes by.
TEST_F(ChartAtTheApiServer, NodeAgentWritesItsOwnSliceOnly) {
  if (!HasClaims()) GTEST_SKIP() << "no resource.k8s.io/v1 before Kubernetes 1.34";
  std::stringstream everything(Text(kEverything));
  std::string objects, object;
  for (std::string line; std::getline(everything, line);) {
    if (line != "---") {
      object += line + "\n";
      continue;
    }
    const bool may =
        Count(object, "kind: ServiceAccount\n") + Count(object, "kind: ClusterRole") > 0;
    if ((may && Count(object, "\n  name: baton-node\n") > 0) ||
        Count(object, "\n  name: baton-node-slices\n") > 0) {
      objects += object + "---\n";
    }
    object.clear();
  }
  const auto [status, said] = server_->KubectlFile({"apply", "--server-side"}, objects);
  ASSERT_EQ(status, 0) << said;
  EXPECT_EQ(Count(said, "serverside-applied"), 5u) << said;
  auto admin = Client::Make(server_->admin());
  ASSERT_TRUE(admin);
  for (const char* node : {"s1", "s2"}) MakeNode(**admin, node);
  auto client = Client::Make(TokenOnNode(**admin, "baton-node", "s1"));
  ASSERT_TRUE(client);
  devmgr::Node gpus;
  gpus.cards.resize(2);
  gpus.cards[0].uuid = "GPU-a";
  gpus.cards[0].memory_mib = 81'559;
  gpus.cards[0].bus = "0000:17:00.0";
  gpus.cards[1].uuid = "GPU-b";
  gpus.cards[1].cordoned = true;
  const Json devices =
      DraDevicesOf(gpus, {}, [](const std::string&) { return std::string("pci0000:16"); });
  const auto tell = [&](const std::string& node) {
    const auto owner = (*client)->Get(resources::kNodes, {"", node});
    EXPECT_TRUE(owner) << owner.error().message;
    return (*client)->Apply(resources::kResourceSlices, {"", SliceNameOf(node)},
                            ResourceSliceOf(node, owner ? UidOf(*owner) : "", devices, 1, "mark"),
                            {}, true, "baton-dra");
  };
  const Instant end = MonotonicNow() + std::chrono::seconds(30);
  auto other = tell("s2");
  while (other && MonotonicNow() < end) {
    (*admin)->Delete(resources::kResourceSlices, {"", SliceNameOf("s2")});
    other = tell("s2");
  }
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("of that node and of gpu.baton.dev only"), std::string::npos)
      << other.error().message;
  const auto own = tell("s1");
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_EQ(Find(*own, "spec/devices")->size(), 2u) << *own;
  EXPECT_FALSE((*client)->Delete(resources::kResourceSlices, {"", SliceNameOf("s1")}));
}

TEST_F(ChartAtTheApiServer, NodeAgentWritesItsOwnNodeOnly) {
  Must({"apply", "--server-side", "-f", kTree + "/k8s/manifests/baton.yaml"});
  Must({"delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "baton"});
  auto admin = Client::Make(server_->admin());
  ASSERT_TRUE(admin);
  for (const char* node : {"n1", "n2"}) MakeNode(**admin, node);
  auto client = Client::Make(TokenOnNode(**admin, "baton-node", "n1"));
  ASSERT_TRUE(client);
  const auto tell = [&](const std::string& node) {
    const Json object{
        {"apiVersion", "baton.dev/v1alpha1"}, {"kind", "GpuNode"}, {"metadata", {{"name", node}}}};
    return (*client)->Apply(resources::kGpuNodes, {"", node}, object, {}, true, "baton-node");
  };
  // The policy is in force a moment after it was made.
  const Instant end = MonotonicNow() + std::chrono::seconds(30);
  auto other = tell("n2");
  while (other && MonotonicNow() < end) {
    (*admin)->Delete(resources::kGpuNodes, {"", "n2"});
    other = tell("n2");
  }
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("of that node only"), std::string::npos)
      << other.error().message;
  const auto own = tell("n1");
  EXPECT_TRUE(own) << own.error().message;
  // And which Node owns it, where it had no owner.
  const auto node = (*client)->Get(resources::kNodes, {"", "n1"});
  ASSERT_TRUE(node) << node.error().message;
  Json owned{
      {"apiVersion", "baton.dev/v1alpha1"}, {"kind", "GpuNode"}, {"metadata", {{"name", "n1"}}}};
  SetOwnerNode(owned, UidOf(*node));
  const auto set =
      (*client)->Apply(resources::kGpuNodes, {"", "n1"}, owned, {}, true, "baton-node");
  EXPECT_TRUE(set) << set.error().message;
  // A token of the same account that names no node is no agent's.
  auto nowhere = Client::Make(server_->ConfigOf("baton-node"));
  ASSERT_TRUE(nowhere);
  const auto said = (*nowhere)->Apply(
      resources::kGpuNodes, {"", "n1"},
      {{"apiVersion", "baton.dev/v1alpha1"}, {"kind", "GpuNode"}, {"metadata", {{"name", "n1"}}}},
      {}, true, "baton-node");
  ASSERT_FALSE(said);
  EXPECT_NE(said.error().message.find("of that node only"), std::string::npos)
      << said.error().message;

  // Of SharePods what they get, where they are on its node; and nothing that the binder goes by.
  const auto condition = [](const char* type) {
    return Json::array({{{"type", type},
                         {"status", "True"},
                         {"reason", "Said"},
                         {"message", ""},
                         {"lastTransitionTime", "2026-11-21T00:00:00Z"}}});
  };
  for (const char* name : {"n1", "n2", "nowhere"}) {
    const auto made =
        (*admin)->Create(resources::kSharePods, {"vision", name},
                         Json::parse(R"({"apiVersion": "baton.dev/v1alpha1", "kind": "SharePod",
                             "metadata": {"name": ")" +
                                     std::string(name) + R"("}, "spec": {"gpu": {"request": "30"},
                             "template": {"spec": {"containers": [{"name": "main",
                                                                   "image": "none"}]}}}})"));
    ASSERT_TRUE(made) << made.error().message;
    if (std::string(name) == "nowhere") continue;
    const auto placed = (*admin)->Patch(resources::kSharePods, {"vision", name}, PatchKind::kMerge,
                                        {{"status",
                                          {{"phase", "Running"},
                                           {"node", name},
                                           {"placement", "as it was"},
                                           {"conditions", condition("Placed")}}}},
                                        "status");
    ASSERT_TRUE(placed) << placed.error().message;
  }
  const auto say = [&](const char* name, const Json& status) -> std::string {
    const Json object{{"apiVersion", "baton.dev/v1alpha1"},
                      {"kind", "SharePod"},
                      {"metadata", {{"name", name}, {"namespace", "vision"}}},
                      {"status", status}};
    const auto said = (*client)->Apply(resources::kSharePods, {"vision", name}, object, "status",
                                       true, "baton-node");
    return said ? "" : said.error().message;
  };
  const Json gets{{"achieved", "29.9"},
                  {"gpuSeconds", 7},
                  {"reasons", {"it asks for 30 %"}},
                  {"advice", {{{"request", "13"}, {"summary", "request 13"}}}},
                  {"conditions", condition("Attached")}};
  std::string refused;
  while ((refused = say("n2", gets)).empty() && MonotonicNow() < end) {
  }
  EXPECT_NE(refused.find("on that node only"), std::string::npos) << refused;
  EXPECT_EQ(say("n1", gets), "");
  const auto [status, wide] =
      server_->Kubectl({"-n", "vision", "get", "sharepods", "n1", "-o", "wide"});
  EXPECT_EQ(status, 0) << wide;
  EXPECT_NE(wide.find("request 13"), std::string::npos) << wide;
  Json paused = condition("Attached");
  paused.push_back(condition("Paused").front());
  EXPECT_EQ(say("n1", {{"achieved", "30.0"}, {"conditions", paused}}), "");
  EXPECT_EQ(say("n1", {{"achieved", "30.1"}, {"conditions", condition("Attached")}}), "");
  EXPECT_NE(say("nowhere", {{"placement", "here"}, {"node", "n1"}}), "");
  for (const Json& more :
       {Json{{"placement", "here"}}, Json{{"node", "n2"}}, Json{{"phase", "Failed"}},
        Json{{"observedGeneration", 9}}, Json{{"conditions", condition("Bound")}}}) {
    EXPECT_NE(say("n1", more).find("Attached and Paused only"), std::string::npos)
        << more << say("n1", more);
  }
  const auto as_it_was = (*admin)->Get(resources::kSharePods, {"vision", "n1"});
  ASSERT_TRUE(as_it_was);
  EXPECT_EQ(TextAt(*as_it_was, "status/placement"), "as it was");
  EXPECT_EQ(TextAt(*as_it_was, "status/achieved"), "30.1");
  const Resource secrets{"", "v1", "secrets", "Secret", true};
  EXPECT_EQ((*client)->List(secrets, "baton-system").error().status, 403);
  EXPECT_EQ((*client)->List(resources::kNodes, "").error().status, 403);
}

TEST_F(ChartAtTheApiServer, KeysGoBetweenNodesAndTheCentralBatondByTheirRolesAlone) {
  Must(
      {"apply", "--server-side", "--force-conflicts", "-f", kTree + "/k8s/manifests/central.yaml"});
  Must({"delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "baton"});
  auto admin = Client::Make(server_->admin());
  ASSERT_TRUE(admin);
  for (const char* node : {"k1", "k2"}) MakeNode(**admin, node);
  auto central = Client::Make(TokenOnNode(**admin, "baton-central", "k1"));
  auto node = Client::Make(TokenOnNode(**admin, "baton-node", "k2"));
  ASSERT_TRUE(central && node);
  const auto text = [](const std::string& path) { return fs::exists(path) ? Text(path) : ""; };
  const auto eventually = [](const auto& holds) {
    const Instant end = MonotonicNow() + std::chrono::seconds(30);
    while (!holds() && MonotonicNow() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return holds();
  };
  const TempFolder folder;
  const std::string key_of_central(40, '1'), key_of_node(40, '2');
  std::ofstream(folder / "central.key.pub") << key_of_central << "\n";
  std::ofstream(folder / "node.key.pub") << key_of_node << "\n";
  LinkKeysOptions options;
  options.central_key = {"baton-system", "baton-central-key"};
  options.tell_every = std::chrono::milliseconds(200);
  options.public_key_file = folder / "central.key.pub";
  const CentralLinkKeys of_central(**central, options, folder / "nodes");
  options.public_key_file = folder / "node.key.pub";
  const NodeLinkKeys of_node(**node, options, "k2", folder / "central.pub");
  EXPECT_TRUE(eventually([&] { return text(folder / "central.pub") == key_of_central + "\n"; }));
  const std::string line = "\nk2 " + key_of_node + "\n";
  EXPECT_TRUE(eventually([&] { return text(folder / "nodes").find(line) != std::string::npos; }));
  // Where it was deleted the right to create it, by name, is needed too.
  const Resource maps{"", "v1", "configmaps", "ConfigMap", true};
  ASSERT_TRUE((*admin)->Delete(maps, options.central_key));
  EXPECT_TRUE(eventually([&] { return (*admin)->Get(maps, options.central_key).has_value(); }));
  ASSERT_TRUE((*admin)->Delete(resources::kNodes, {"", "k2"}));
  EXPECT_TRUE(eventually([&] { return text(folder / "nodes").find(line) == std::string::npos; }));

  // And nothing else.
  const auto map = [&](const std::string& name) {
    return Json{{"apiVersion", "v1"},
                {"kind", "ConfigMap"},
                {"metadata", {{"name", name}, {"namespace", "baton-system"}}},
                {"data", {{"public-key", std::string(40, '3')}}}};
  };
  const auto may_write = [&](Client& client, const std::string& name) {
    return client.Apply(maps, {"baton-system", name}, map(name)).has_value();
  };
  EXPECT_FALSE(may_write(**node, "baton-central-key"));
  EXPECT_FALSE(may_write(**node, "baton-node"));
  for (const char* name : {"baton-node", "baton-central", "another"}) {
    EXPECT_FALSE(may_write(**central, name)) << name;
  }
  const Resource secrets{"", "v1", "secrets", "Secret", true};
  for (Client* client : {central->get(), node->get()}) {
    EXPECT_EQ(client->List(secrets, "baton-system").error().status, 403);
    EXPECT_EQ(client->Get(maps, {"baton-system", "baton-node"}).error().status, 403);
  }
  EXPECT_EQ((*central)->List(resources::kPods, "").error().status, 403);
  // A node tells its own key alone.
  Json other{
      {"apiVersion", "baton.dev/v1alpha1"},
      {"kind", "GpuNode"},
      {"metadata", {{"name", "k1"}, {"annotations", {{"baton.dev/public-key", key_of_node}}}}}};
  EXPECT_TRUE(eventually([&] {
    const auto said =
        (*node)->Apply(resources::kGpuNodes, {"", "k1"}, other, {}, true, "baton-keys");
    return !said && said.error().message.find("of that node only") != std::string::npos;
  }));
  (*central)->Stop();
  (*node)->Stop();
}

}  // namespace
}  // namespace baton::k8s
