// Ordinary pods on a real API server: through the webhook, which makes its own certificates; bound
// by the binder, and by a real kube-scheduler that asks the extender.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "bench/cluster.h"
#include "k8s/api/base64.h"
#include "k8s/types/annotations.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/inject.h"
#include "tests/k8s/end_to_end/programs.h"
#include "tests/k8s/end_to_end/real_api_server.h"

namespace baton::k8s {
namespace {

using bench::WaitUntil;
using std::chrono::milliseconds;
using std::chrono::seconds;

class KubernetesPods : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = RealApiServer::WhyNot()) GTEST_SKIP() << *why;
    server_ = Must(RealApiServer::Start(folder_.path()));
    client_ = Must(Client::Make(server_->admin()));
    InstallBaton(*server_);
  }
  void TearDown() override {
    if (!HasFailure()) return;
    for (const char* name : {"webhook", "binder", "extender", "kube-scheduler"}) {
      std::printf("--- %s\n%s\n", name, TailOf(folder_ / (std::string(name) + ".log")).c_str());
    }
  }

  static Json Pod(const std::string& name, const std::string& share, const std::string& memory,
                  Json annotations = Json::object()) {
    return {{"apiVersion", "v1"},
            {"kind", "Pod"},
            {"metadata",
             {{"name", name}, {"namespace", "default"}, {"annotations", std::move(annotations)}}},
            {"spec",
             {{"containers",
               Json::array(
                   {{{"name", "main"},
                     {"image", "registry.local/none"},
                     {"resources",
                      {{"limits", {{kShareResource, share}, {kMemoryResource, memory}}}}}}})}}}};
  }

  TempFolder folder_;
  std::unique_ptr<RealApiServer> server_;
  std::unique_ptr<Client> client_;
};

// As KubernetesPods, with a webhook on loopback that the API server asks.
class KubernetesWebhook : public KubernetesPods {
 protected:
  void StartWebhook(const std::vector<std::string>& more = {},
                    const std::vector<std::string>& teams = {"research/vision"}) {
    // Below those that the kernel gives to whoever connects.
    const std::string port = std::to_string(20'000 + getpid() % 12'000);
    std::ofstream file(folder_.path() + "/teams.toml");
    for (const std::string& team : teams) file << "[[team]]\nname = \"" << team << "\"\n";
    file.close();
    std::vector<std::string> command = {"baton-k8s",       "webhook",
                                        "--listen",        "127.0.0.1:" + port,
                                        "--name",          "127.0.0.1",
                                        "--service",       "baton-webhook.baton-system",
                                        "--replica",       "baton-webhook-1",
                                        "--configuration", "baton",
                                        "--teams",         folder_.path() + "/teams.toml",
                                        "--kubeconfig",    server_->KubeconfigOf("baton-webhook")};
    command.insert(command.end(), more.begin(), more.end());
    // The manifests' own configurations, but for where the webhook is.
    std::string objects =
        ObjectsOf(BATON_SOURCE "/k8s/manifests/baton.yaml", [](const std::string& object) {
          return object.find("WebhookConfiguration\n") != std::string::npos;
        });
    for (size_t at; (at = objects.find("service: {name: baton-webhook")) != std::string::npos;) {
      const size_t path = objects.find("path: ", at) + 6;
      const size_t end = objects.find('}', path);
      objects.replace(at, end + 1 - at,
                      "url: \"https://127.0.0.1:" + port + objects.substr(path, end - path) + "\"");
    }
    const auto [status, said] = server_->KubectlFile({"apply", "--server-side"}, objects);
    ASSERT_EQ(status, 0) << said;
    webhook_ = StartProgram(folder_, "webhook", command);
    std::string trouble;
    ASSERT_TRUE(WaitUntil(
        [&] {
          const auto dry =
              server_->KubectlFile({"apply", "--dry-run=server"}, Pod("probe", "30", "16").dump());
          trouble = dry.second;
          return dry.first == 0;
        },
        seconds(60)))
        << trouble;
  }
  // As the API server has it.
  std::string Bundle() {
    const auto object = client_->Get(resources::kMutatingWebhooks, {"", "baton"});
    return object ? object->at("webhooks").at(0).at("clientConfig").value("caBundle", "") : "";
  }
  std::unique_ptr<bench::Process> webhook_;
};

TEST_F(KubernetesWebhook, FillsInFlavors) {
  ASSERT_NO_FATAL_FAILURE(StartWebhook(
      {"--flavor", "small=request=10,memory=4Gi", "--flavor", "medium=request=25,limit=50"}));
  const auto apply = [&](const Json& object) {
    return server_->KubectlFile({"apply", "--server-side", "--force-conflicts"}, object.dump());
  };
  Json share_pod{
      {"apiVersion", "baton.dev/v1alpha1"},
      {"kind", "SharePod"},
      {"metadata", {{"name", "sized"}, {"namespace", "default"}}},
      {"spec",
       {{"gpu", {{"flavor", "small"}}},
        {"template",
         {{"spec", {{"containers", Json::array({{{"name", "main"}, {"image", "none"}}})}}}}}}}};
  const auto gpu = [&] {
    return MustDo(client_->Get(resources::kSharePods, {"default", "sized"})).at("spec").at("gpu");
  };
  auto [status, said] = apply(share_pod);
  ASSERT_EQ(status, 0) << said;
  EXPECT_EQ(gpu(),
            Json({{"flavor", "small"}, {"request", "10"}, {"limit", "100"}, {"memory", "4Gi"}}));
  // The file again, as GitOps does, then with another flavor, then by a patch.
  std::tie(status, said) = apply(share_pod);
  ASSERT_EQ(status, 0) << said;
  EXPECT_EQ(gpu().at("request"), "10");
  share_pod["spec"]["gpu"]["flavor"] = "medium";
  std::tie(status, said) = apply(share_pod);
  ASSERT_EQ(status, 0) << said;
  EXPECT_EQ(gpu().at("request"), "25");
  EXPECT_EQ(gpu().at("limit"), "50");
  MustDo(client_->Patch(resources::kSharePods, {"default", "sized"}, PatchKind::kMerge,
                        {{"spec", {{"gpu", {{"flavor", "small"}}}}}}));
  EXPECT_EQ(gpu().at("request"), "10");
  EXPECT_EQ(gpu().at("memory"), "4Gi");

  Json pod = Pod("sized", "1", "1", {{"baton.dev/flavor", "medium"}});
  pod["spec"]["containers"][0].erase("resources");
  MustDo(client_->Create(resources::kPods, {"default", "sized"}, pod));
  const Json made = MustDo(client_->Get(resources::kPods, {"default", "sized"}));
  const Json& resources = made.at("spec").at("containers").at(0).at("resources");
  EXPECT_EQ(resources.at("limits").at(std::string(kShareResource)), "25");
  EXPECT_EQ(resources.at("requests").at(std::string(kShareResource)), "25");
  EXPECT_EQ(TextAt(made, "spec/schedulerName"), kScheduler);
}

TEST_F(KubernetesWebhook, GivesPodsTheHookAndSaysWhatIsWrong) {
  ASSERT_NO_FATAL_FAILURE(StartWebhook());
  Json asks = Pod("asks", "30", "16");
  asks["spec"]["volumes"] = Json::array(
      {{{"name", "hook"}, {"hostPath", {{"path", kHostHookDir}, {"type", "Directory"}}}}});
  MustDo(client_->Create(resources::kPods, {"default", "asks"}, asks));
  const Json pod = MustDo(client_->Get(resources::kPods, {"default", "asks"}));
  EXPECT_EQ(TextAt(pod, "spec/schedulerName"), kScheduler);
  std::map<std::string, Json> env;
  for (const Json& variable : pod.at("spec").at("containers").at(0).at("env")) {
    env[variable.at("name")] = variable;
  }
  EXPECT_EQ(env["LD_PRELOAD"].value("value", ""), std::string(kHookDir) + "/libbaton.so");
  EXPECT_EQ(TextAt(env["CUDA_VISIBLE_DEVICES"], "valueFrom/fieldRef/fieldPath"),
            "metadata.annotations['main.container.baton.dev/visible-devices']");
  EXPECT_TRUE(NeedsHookMounts(pod));

  const auto refused = [&](const Json& object, const std::string& words) {
    const auto [status, said] = server_->KubectlFile({"apply", "--dry-run=server"}, object.dump());
    EXPECT_NE(status, 0);
    EXPECT_NE(said.find(words), std::string::npos) << said;
    std::printf("%s", said.c_str());
  };
  refused(Pod("bad", "130", "16"),
          "limits[baton.dev/gpu-share]: '130' percent is more than one GPU; set at most 100");
  refused(Pod("bad", "30", "16", {{"baton.dev/limit", "20"}}),
          "baton.dev/limit]: the limit, 20 %, is less than the request, 30 %; raise the limit or "
          "lower the request");
  refused(Pod("bad", "30", "16", {{"baton.dev/team", "research/visoin"}}),
          "did you mean 'research/vision'");
  const Json share_pod = {
      {"apiVersion", "baton.dev/v1alpha1"},
      {"kind", "SharePod"},
      {"metadata", {{"name", "bad"}, {"namespace", "default"}}},
      {"spec",
       {{"gpu", {{"request", "30"}, {"team", "nobody"}}},
        {"template",
         {{"spec", {{"containers", Json::array({{{"name", "main"}, {"image", "none"}}})}}}}}}}};
  refused(share_pod,
          "spec.gpu.team: team 'nobody' does not exist; ask the cluster's operator for the list");

  // What kubectl debug does.
  const auto debug = [&](const char* of, const char* name, const Json& mounts) -> std::string {
    const Json container{{"name", name}, {"image", "none"}, {"volumeMounts", mounts}};
    const auto patched = client_->Patch(
        resources::kPods, {"default", of}, PatchKind::kStrategic,
        {{"spec", {{"ephemeralContainers", Json::array({container})}}}}, "ephemeralcontainers");
    return patched ? "" : patched.error().message;
  };
  const auto hook = [](bool read_only) {
    return Json::array({{{"name", "hook"}, {"mountPath", "/hook"}, {"readOnly", read_only}}});
  };
  const std::string why = debug("asks", "writes", hook(false));
  std::printf("%s\n", why.c_str());
  EXPECT_NE(why.find("spec.ephemeralContainers[writes].volumeMounts: 'hook' is Baton's "
                     "folder on the node, which all pods share; mount it with readOnly: true"),
            std::string::npos)
      << why;
  EXPECT_EQ(debug("asks", "reads", hook(true)), "");
  EXPECT_EQ(debug("asks", "looks", Json::array()), "");
  EXPECT_EQ(MustDo(client_->Get(resources::kPods, {"default", "asks"}))
                .at("spec")
                .at("ephemeralContainers")
                .size(),
            2u);

  webhook_.reset();
  // Of a pod that asks it is met where something could change, and there only.
  const auto annotate = [&](const char* what, const Json& value) -> std::string {
    const auto patched = client_->Patch(resources::kPods, {"default", "asks"}, PatchKind::kMerge,
                                        {{"metadata", {{what, value}}}});
    return patched ? "" : patched.error().message;
  };
  EXPECT_EQ(annotate("labels", {{"a", "b"}}), "");
  EXPECT_EQ(annotate("annotations", {{"a", "b"}}), "");
  for (const char* own : {"baton.dev/limit", "main.container.baton.dev/visible-devices"}) {
    EXPECT_NE(annotate("annotations", {{own, "90"}}).find("failed calling webhook"),
              std::string::npos)
        << own;
  }
  EXPECT_NE(debug("asks", "more", Json::array()).find("failed calling webhook"), std::string::npos);
  // Who asks for nothing does not even meet it.
  Json plain = Pod("plain", "1", "1");
  plain["spec"]["containers"][0].erase("resources");
  plain["metadata"].erase("annotations");
  EXPECT_TRUE(client_->Create(resources::kPods, {"default", "plain"}, plain));
  EXPECT_EQ(debug("plain", "looks", Json::array()), "");

  // Started again it is trusted by its new authority, and leaves none of before behind.
  ASSERT_NO_FATAL_FAILURE(StartWebhook());
  EXPECT_EQ(annotate("annotations", {{"a", "b"}}), "");
  const std::string bundle = FromBase64(Bundle());
  EXPECT_NE(bundle.find("BEGIN CERTIFICATE"), std::string::npos);
  EXPECT_EQ(bundle.find("BEGIN CERTIFICATE"), bundle.rfind("BEGIN CERTIFICATE")) << bundle;
}

TEST_F(KubernetesWebhook, RenewsItsCertificateWithoutARefusal) {
  ASSERT_NO_FATAL_FAILURE(StartWebhook({"--validity", "20s", "--propagation", "2s"}));
  std::string last = Bundle();
  int bundles = 1, reviewed = 0;
  const Instant end = MonotonicNow() + seconds(35);
  while (MonotonicNow() < end) {
    const std::string name = "pod-" + std::to_string(reviewed);
    const auto made = client_->Create(resources::kPods, {"default", name}, Pod(name, "30", "16"));
    ASSERT_TRUE(made) << "after " << reviewed << ": " << made.error().message;
    client_->Delete(resources::kPods, {"default", name}, "", 0);
    ++reviewed;
    const std::string now = Bundle();
    bundles += now != last;
    last = now;
  }
  std::printf("figure kubernetes_webhook_reviewed %d over %d bundles\n", reviewed, bundles);
  // A new authority is added before it is used, and the old one goes afterwards.
  EXPECT_GE(bundles, 5);
}

std::string PlaceOf(Client& client, const std::string& name);

TEST_F(KubernetesWebhook, TeamTakesBackWhatItIsGuaranteed) {
  const auto make_team = [&](const std::string& name, const Json& spec) {
    MustDo(client_->Create(resources::kTeams, {"", name},
                           {{"apiVersion", "baton.dev/v1alpha1"},
                            {"kind", "Team"},
                            {"metadata", {{"name", name}}},
                            {"spec", spec}}));
  };
  make_team("a", {{"team", "research/a"}, {"guarantee", {{"gpus", 2}}}});
  make_team("b", {{"team", "research/b"}, {"ceiling", {{"gpus", 3}}}});
  // It is below the ceiling of the team above it.
  make_team("wrong", {{"team", "research/b/x"}, {"guarantee", {{"gpus", 4}}}});
  ASSERT_NO_FATAL_FAILURE(StartWebhook({"--check-quotas"}, {"research/a", "research/b"}));
  MustDo(CreateNode(*client_, "gpu-0", 4, 80 * 1024));
  MustDo(TellGpus(*client_, "gpu-0", 4, 80 * 1024));
  auto binder = StartProgram(folder_, "binder",
                             {"baton-k8s", "binder", "--listen", "", "--no-leader-election",
                              "--kubeconfig", server_->KubeconfigOf("baton-binder")});
  const auto of = [](const std::string& name, const std::string& team, const char* share = "100") {
    return Pod(name, share, "16", {{"baton.dev/team", team}});
  };
  const auto condition = [&](const Resource& resource, const ObjectName& name,
                             const std::string& type, const std::string& field) {
    const auto object = client_->Get(resource, name);
    const Json* list = object ? Find(*object, "status/conditions") : nullptr;
    if (list == nullptr) return std::string();
    for (const Json& one : *list) {
      if (TextAt(one, "type") == type) return TextAt(one, field);
    }
    return std::string();
  };
  const auto soon = [](const std::function<bool()>& is) { return WaitUntil(is, seconds(30)); };
  EXPECT_TRUE(soon([&] {
    return condition(resources::kTeams, {"", "a"}, "InForce", "status") == "True" &&
           condition(resources::kTeams, {"", "wrong"}, "InForce", "message") ==
               "quota: team research/b/x is guaranteed 4.0 GPUs, and team research/b may use 3.0 "
               "at most";
  }));
  // More than it may ever use is refused, more than it may use now waits.
  std::string why;
  ASSERT_TRUE(soon([&] {
    Json big = of("big", "research/b", "400");
    big["metadata"]["annotations"]["baton.dev/count"] = "4";
    const auto made = client_->Create(resources::kPods, {"default", "big"}, big);
    why = made ? "" : made.error().message;
    return why.find("it asks for 4.0 GPUs, and team research/b may use 3.0 at most") !=
           std::string::npos;
  })) << why;
  for (int i = 0; i < 4; ++i) {
    const std::string name = "b-" + std::to_string(i);
    MustDo(client_->Create(resources::kPods, {"default", name}, of(name, "research/b")));
    if (i < 3) {
      EXPECT_TRUE(soon([&] { return !PlaceOf(*client_, name).empty(); })) << name;
    }
  }
  EXPECT_TRUE(soon([&] {
    return condition(resources::kPods, {"default", "b-3"}, "PodScheduled", "message") ==
           "TeamCeiling: team research/b may use 3.0 GPUs at most; it uses 3.0, and default/b-3 "
           "asks for 1.0 more";
  })) << condition(resources::kPods, {"default", "b-3"}, "PodScheduled", "message");
  // Its owner comes: one GPU is free, the other one was borrowed.
  for (const char* name : {"a-0", "a-1"}) {
    MustDo(client_->Create(resources::kPods, {"default", name}, of(name, "research/a")));
    EXPECT_TRUE(soon([&] {
      // What a kubelet does: what is told to end ends.
      for (const Json& pod : Items(client_->List(resources::kPods, "default"))) {
        if (Find(pod, "metadata/deletionTimestamp") == nullptr) continue;
        client_->Delete(resources::kPods, NameOf(pod), "", 0);
      }
      return !PlaceOf(*client_, name).empty();
    })) << name;
  }
  int left = 0;
  for (int i = 0; i < 3; ++i) {
    left += PlaceOf(*client_, "b-" + std::to_string(i)).empty() ? 0 : 1;
  }
  EXPECT_EQ(left, 2) << "one of those that borrowed has gone";
  EXPECT_TRUE(PlaceOf(*client_, "b-3").empty());
  EXPECT_TRUE(soon([&] {
    for (const Json& event : Items(client_->List(resources::kEvents, "default"))) {
      if (TextAt(event, "note") ==
          "preempted by default/a-1, whose team is guaranteed what this pod borrowed") {
        return true;
      }
    }
    return false;
  }));
}

// "" where it waits.
std::string PlaceOf(Client& client, const std::string& name) {
  const auto pod = client.Get(resources::kPods, {"default", name});
  if (!pod || TextAt(*pod, "spec/nodeName").empty()) return "";
  const auto placement = ReadPlacement(*pod);
  if (!placement || !*placement) return "";
  std::string place = (*placement)->node + ":";
  for (const devmgr::Vgpu& vgpu : (*placement)->vgpus) place += " " + vgpu.card;
  return place;
}

TEST_F(KubernetesPods, KubeSchedulerWithTheExtenderPlacesThemAsTheBinderDoes) {
  const std::string scheduler = std::string(std::getenv("KUBEBUILDER_ASSETS")) + "/kube-scheduler";
  if (access(scheduler.c_str(), X_OK) != 0) GTEST_SKIP() << "there is no " << scheduler;
  const auto make_nodes = [&] {
    for (int i = 0; i < 5; ++i) {
      MustDo(CreateNode(*client_, "gpu-" + std::to_string(i), 4, 80 * 1024));
      MustDo(TellGpus(*client_, "gpu-" + std::to_string(i), 4, 80 * 1024));
    }
  };
  const auto end_pods = [&] {
    for (const Json& pod : Items(client_->List(resources::kPods, "default"))) {
      client_->Delete(resources::kPods, NameOf(pod), "", 0);
    }
  };
  // One after the other, so that both meet the same questions.
  constexpr int kPods = 40;
  const auto place_all = [&](const std::string& scheduler_name) {
    std::mt19937_64 random(7);
    std::vector<std::string> places;
    for (int i = 0; i < kPods; ++i) {
      const std::string name = "pod-" + std::to_string(i);
      Json annotations = Json::object();
      uint64_t share = 5 + random() % 70;
      uint64_t units = 8 * (1 + random() % 20);
      if (i % 8 == 7) {
        annotations["baton.dev/count"] = "2";
        share *= 2;
        units *= 2;
      }
      Json pod = Pod(name, std::to_string(share), std::to_string(units), annotations);
      if (!scheduler_name.empty()) pod["spec"]["schedulerName"] = scheduler_name;
      MustDo(client_->Create(resources::kPods, {"default", name}, pod));
      std::string place;
      WaitUntil([&] { return !(place = PlaceOf(*client_, name)).empty(); }, seconds(10));
      places.push_back(place);
    }
    return places;
  };

  make_nodes();
  auto binder = StartProgram(folder_, "binder",
                             {"baton-k8s", "binder", "--listen", "", "--no-leader-election",
                              "--kubeconfig", server_->KubeconfigOf("baton-binder")});
  const auto by_binder = place_all("baton");
  binder.reset();
  end_pods();
  for (const Json& node : Items(client_->List(resources::kNodes, ""))) {
    client_->Delete(resources::kNodes, NameOf(node));
  }

  make_nodes();
  // The default values leave the extender out: its account and role are the chart's as well.
  const auto [status, said] = server_->KubectlFile(
      {"apply", "--server-side"},
      ObjectsOf(BATON_SOURCE "/tests/k8s/chart/everything.yaml", [](const std::string& object) {
        return object.find("\n  name: baton-extender\n") != std::string::npos;
      }));
  ASSERT_EQ(status, 0) << said;
  auto extender = StartProgram(folder_, "extender",
                               {"baton-k8s", "extender", "--listen", "127.0.0.1:0", "--kubeconfig",
                                server_->KubeconfigOf("baton-extender")});
  const std::string listens = "listens on port ";
  std::string said_there, port;
  ASSERT_TRUE(WaitUntil(
      [&] {
        said_there = TailOf(folder_ / "extender.log");
        const size_t at = said_there.find(listens);
        const size_t end = said_there.find('\n', at == std::string::npos ? 0 : at);
        if (at == std::string::npos || end == std::string::npos) return false;
        port = said_there.substr(at + listens.size(), end - at - listens.size());
        return true;
      },
      seconds(20)))
      << said_there;
  auto kube_scheduler =
      StartKubeScheduler(folder_, *server_, "",
                         "extenders:\n- urlPrefix: http://127.0.0.1:" + port +
                             "\n  filterVerb: filter\n  prioritizeVerb: prioritize\n"
                             "  bindVerb: bind\n  weight: 100\n  nodeCacheCapable: true\n"
                             "  managedResources:\n"
                             "  - {name: baton.dev/gpu-share, ignoredByScheduler: true}\n"
                             "  - {name: baton.dev/gpu-memory, ignoredByScheduler: true}\n");
  const auto by_scheduler = place_all("");
  size_t placed = 0;
  for (int i = 0; i < kPods; ++i) {
    EXPECT_EQ(by_scheduler[static_cast<size_t>(i)], by_binder[static_cast<size_t>(i)])
        << "pod-" << i;
    placed += !by_binder[static_cast<size_t>(i)].empty();
  }
  std::printf("figure kubernetes_extender_same %zu pods of %d that fit\n", placed, kPods);
  EXPECT_GE(placed, 25u);

  // A scheduler that asks where to, and binds by itself: the pod is given its GPUs all the same.
  kube_scheduler->Stop(seconds(5));
  end_pods();
  const ObjectName name{"default", "bound-by-another"};
  Json pod = Pod(name.name, "30", "16");
  pod["spec"]["schedulerName"] = "volcano";
  MustDo(client_->Create(resources::kPods, name, pod));
  MustDo(client_->Create(resources::kPods, name,
                         {{"apiVersion", "v1"},
                          {"kind", "Binding"},
                          {"metadata", {{"name", name.name}}},
                          {"target", {{"kind", "Node"}, {"name", "gpu-3"}}}},
                         "binding"));
  EXPECT_TRUE(WaitUntil(
      [&] { return PlaceOf(*client_, name.name).starts_with("gpu-3: GPU-gpu-3-"); }, seconds(10)))
      << PlaceOf(*client_, name.name);
}

}  // namespace
}  // namespace baton::k8s
