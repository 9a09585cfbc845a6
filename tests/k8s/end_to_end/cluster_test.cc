// SharePods against a real API server: placed, bound, explained, refused, cleaned up; with binders
// that are killed and binders that compete. There are no kubelets: nodes are objects with capacity.
#include "bench/cluster.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "k8s/api/client.h"
#include "k8s/types/annotations.h"
#include "k8s/types/gpu_pod.h"
#include "tests/k8s/end_to_end/programs.h"
#include "tests/k8s/end_to_end/real_api_server.h"

namespace baton::k8s {
namespace {

using bench::WaitUntil;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kNodes = 50;
constexpr int kCards = 8;
constexpr uint32_t kCardMib = 80 * 1024;

// One API server for all tests of this program: starting it takes ten seconds. Each test has a
// namespace of its own.
class KubernetesCluster : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (RealApiServer::WhyNot()) return;
    folder_ = std::make_unique<TempFolder>();
    auto server = RealApiServer::Start(folder_->path());
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    client_ = Must(Client::Make(server_->admin()));
    std::printf("API server %s\n", server_->version().c_str());
    InstallBaton(*server_);
  }
  static void TearDownTestSuite() {
    client_.reset();
    server_.reset();
    folder_.reset();
  }
  void SetUp() override {
    if (const auto why = RealApiServer::WhyNot()) GTEST_SKIP() << *why;
    ASSERT_TRUE(server_) << "the API server did not start";
    std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    for (char& c : name) c = static_cast<char>(std::tolower(c));
    space_ = name.substr(0, 50);
    MustDo(client_->Create(
        resources::kNamespaces, {"", space_},
        {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", space_}}}}));
  }
  void TearDown() override {
    binders_.clear();
    if (!client_) return;
    // No garbage collector runs here, and no kubelet that would end pods.
    for (const Resource* kind : {&resources::kSharePods, &resources::kPods}) {
      if (const auto list = client_->List(*kind, space_)) {
        for (const Json& object : list->at("items")) {
          client_->Delete(*kind, NameOf(object), "", 0);
        }
      }
    }
    if (const auto nodes = client_->List(resources::kNodes, "")) {
      for (const Json& node : nodes->at("items")) client_->Delete(resources::kNodes, NameOf(node));
    }
  }

  void MakeNodes(int count) {
    for (int i = 0; i < count; ++i) {
      MustDo(CreateNode(*client_, NodeName(i), kCards, kCardMib));
      MustDo(TellGpus(*client_, NodeName(i), kCards, kCardMib));
    }
  }
  static std::string NodeName(int i) {
    char name[16];
    std::snprintf(name, sizeof(name), "gpu-%02d", i);
    return name;
  }
  Json SharePod(const std::string& name, const std::string& request,
                const std::string& memory) const {
    return {{"apiVersion", "baton.dev/v1alpha1"},
            {"kind", "SharePod"},
            {"metadata", {{"name", name}, {"namespace", space_}}},
            {"spec",
             {{"gpu", {{"request", request}, {"memory", memory}}},
              {"template",
               {{"spec",
                 {{"containers",
                   Json::array({{{"name", "main"}, {"image", "registry.local/none"}}})}}}}}}}};
  }
  void Create(const Json& share_pod) {
    MustDo(client_->Create(resources::kSharePods, NameOf(share_pod), share_pod));
  }
  // `identity` empty: one of its own.
  bench::Process& StartBinder(std::string identity = {}) {
    const std::string number = std::to_string(++binders_started_);
    if (identity.empty()) identity = "binder-" + number;
    binders_.push_back(
        StartProgram(*folder_, "binder-" + number,
                     {"baton-k8s", "binder", "--kubeconfig", server_->KubeconfigOf("baton-binder"),
                      "--namespace", "baton-system", "--identity", identity, "--listen", ""}));
    return *binders_.back();
  }
  std::vector<Json> Pods() { return Items(client_->List(resources::kPods, space_)); }
  std::vector<Json> SharePods() { return Items(client_->List(resources::kSharePods, space_)); }
  size_t BoundPods() {
    size_t bound = 0;
    for (const Json& pod : Pods()) bound += !TextAt(pod, "spec/nodeName").empty();
    return bound;
  }

  // No GPU has more than it has, each pod is on the node that its placement names, and each
  // SharePod has one child that looks as it should.
  void CheckPlacements() {
    std::map<std::string, policy::ShareSum> shares;
    std::map<std::string, uint64_t> memory;
    std::map<std::string, std::string> owners;  // uid of the SharePod -> its child
    for (const Json& pod : Pods()) {
      const std::string name = NameOf(pod).name;
      const auto placement = ReadPlacement(pod);
      ASSERT_TRUE(placement) << name << ": " << placement.error().message;
      if (TextAt(pod, "spec/nodeName").empty()) continue;
      ASSERT_TRUE(*placement) << name << " is bound without a placement";
      EXPECT_EQ((*placement)->node, TextAt(pod, "spec/nodeName")) << name;
      for (const devmgr::Vgpu& vgpu : (*placement)->vgpus) {
        shares[vgpu.card] += vgpu.fit.share;
        memory[vgpu.card] += vgpu.fit.memory_mib;
        EXPECT_EQ(vgpu.card.rfind("GPU-" + (*placement)->node + "-", 0), 0u) << vgpu.card;
      }
      const Json* owner = Find(pod, "metadata/ownerReferences");
      ASSERT_TRUE(owner != nullptr && owner->size() == 1) << name;
      EXPECT_EQ(owner->at(0).value("kind", ""), "SharePod");
      EXPECT_TRUE(owner->at(0).value("controller", false));
      EXPECT_TRUE(owners.emplace(owner->at(0).value("uid", ""), name).second)
          << name << " and " << owners[owner->at(0).value("uid", "")] << " have one SharePod";
      EXPECT_EQ(TextAt(pod, "spec/schedulerName"), kScheduler);
    }
    for (const auto& [card, share] : shares) EXPECT_LE(share, policy::kWhole) << card;
    for (const auto& [card, mib] : memory) EXPECT_LE(mib, kCardMib) << card;
  }

  static std::unique_ptr<TempFolder> folder_;
  static std::unique_ptr<RealApiServer> server_;
  static std::unique_ptr<Client> client_;
  std::string space_;
  std::vector<std::unique_ptr<bench::Process>> binders_;
  static int binders_started_;
};

std::unique_ptr<TempFolder> KubernetesCluster::folder_;
std::unique_ptr<RealApiServer> KubernetesCluster::server_;
std::unique_ptr<Client> KubernetesCluster::client_;
int KubernetesCluster::binders_started_ = 0;

TEST_F(KubernetesCluster, ThreeHundredSharePodsArePlacedAndBoundAndCleanedUp) {
  MakeNodes(kNodes);
  StartBinder();
  std::mt19937_64 random(1);
  constexpr int kSharePods = 300;
  const Instant begin = MonotonicNow();
  for (int i = 0; i < kSharePods; ++i) {
    const int request = 5 + static_cast<int>(random() % 96);
    const int gib = 1 + static_cast<int>(random() % 40);
    Create(
        SharePod("sp-" + std::to_string(i), std::to_string(request), std::to_string(gib) + "Gi"));
  }
  ASSERT_TRUE(WaitUntil([&] { return BoundPods() == kSharePods; }, seconds(60)))
      << BoundPods() << " are bound; " << binders_[0]->running()
      << TailOf(*folder_ / "binder-1.log");
  std::printf("figure kubernetes_300_bound %.2f s\n",
              std::chrono::duration<double>(MonotonicNow() - begin).count());
  CheckPlacements();
  // What a child looks like.
  const Json pod = MustDo(client_->Get(resources::kPods, {space_, "sp-7"}));
  const std::string key = ContainerKey("main", keys::kDevices);
  EXPECT_EQ(pod.at("metadata").at("annotations").count(key), 1u) << pod.dump(1);
  std::map<std::string, Json> env;
  for (const Json& variable : pod.at("spec").at("containers").at(0).at("env")) {
    env[variable.at("name")] = variable;
  }
  EXPECT_EQ(TextAt(env["BATON_POD_UID"], "valueFrom/fieldRef/fieldPath"), "metadata.uid");
  EXPECT_EQ(TextAt(env["BATON_TICKET"], "value"), "$(BATON_POD_UID)/main");
  EXPECT_EQ(TextAt(env["NVIDIA_VISIBLE_DEVICES"], "valueFrom/fieldRef/fieldPath"),
            "metadata.annotations['" + key + "']");
  // Conditions and columns.
  ASSERT_TRUE(WaitUntil(
      [&] {
        for (const Json& share_pod : SharePods()) {
          if (TextAt(share_pod, "status/phase") != "Bound") return false;
        }
        return true;
      },
      seconds(30)))
      << SharePods()[0].dump(1);
  const auto [status, table] = server_->Kubectl({"-n", space_, "get", "sharepods"});
  EXPECT_EQ(status, 0) << table;
  for (const char* column : {"REQUEST", "LIMIT", "MEMORY", "NODE", "GPU", "ACHIEVED", "PHASE"}) {
    EXPECT_NE(table.find(column), std::string::npos) << table.substr(0, 400);
  }
  std::printf("%s", table.substr(0, 500).c_str());
  // Deleting half of them makes room for others, at once.
  for (int i = 0; i < kSharePods; i += 2) {
    MustDo(client_->Delete(resources::kSharePods, {space_, "sp-" + std::to_string(i)}));
  }
  ASSERT_TRUE(WaitUntil(
      [&] {
        // A pod that is bound to a node waits for its kubelet to end it; there is none.
        for (const Json& pod : Pods()) {
          if (Find(pod, "metadata/deletionTimestamp") != nullptr) {
            client_->Delete(resources::kPods, NameOf(pod), "", 0);
          }
        }
        return Pods().size() == kSharePods / 2;
      },
      seconds(60)))
      << Pods().size();
  for (int i = 0; i < 100; ++i) {
    Create(SharePod("more-" + std::to_string(i), "100", "70Gi"));
  }
  EXPECT_TRUE(WaitUntil([&] { return BoundPods() == kSharePods / 2 + 100; }, seconds(60)))
      << BoundPods();
  CheckPlacements();
}

TEST_F(KubernetesCluster, ABinderThatIsKilledTwentyTimesLosesAndDoublesNothing) {
  MakeNodes(4);
  std::random_device device;
  const uint64_t seed = device();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  int made = 0;
  for (int kill_number = 0; kill_number < 20; ++kill_number) {
    // The same one each time, so that it need not wait for the lease of its predecessor.
    bench::Process& binder = StartBinder("it");
    for (int i = 0; i < 4; ++i) Create(SharePod("sp-" + std::to_string(made++), "25", "10Gi"));
    // From before it has read anything to after it has bound all.
    usleep(static_cast<useconds_t>(random() % 1'500'000));
    binder.Signal(SIGKILL);
    binder.Wait(seconds(5));
    CheckPlacements();
    if (kill_number % 4 == 3) {
      const std::string gone = "sp-" + std::to_string(random() % static_cast<uint64_t>(made));
      client_->Delete(resources::kSharePods, {space_, gone});
    }
  }
  StartBinder("it");
  const auto done = [&] {
    const auto wanted = SharePods();
    const auto pods = Pods();
    size_t bound = 0;
    for (const Json& pod : pods) {
      if (Find(pod, "metadata/deletionTimestamp") != nullptr) {
        client_->Delete(resources::kPods, NameOf(pod), "", 0);
      }
      bound += !TextAt(pod, "spec/nodeName").empty();
    }
    return pods.size() == wanted.size() && bound == wanted.size();
  };
  EXPECT_TRUE(WaitUntil(done, seconds(90))) << Pods().size() << " pods, " << BoundPods()
                                            << " bound, " << SharePods().size() << " SharePods";
  CheckPlacements();
}

TEST_F(KubernetesCluster, OfTwoBindersOneLeadsAndTheOtherTakesOver) {
  MakeNodes(2);
  bench::Process& first = StartBinder("first");
  const auto holder = [&] {
    for (const Json& lease : Items(client_->List(resources::kLeases, "baton-system"))) {
      if (TextAt(lease, "metadata/name") == "baton-binder") {
        return TextAt(lease, "spec/holderIdentity");
      }
    }
    return std::string();
  };
  ASSERT_TRUE(WaitUntil([&] { return holder() == "first"; }, seconds(40)));
  StartBinder("second");
  for (int i = 0; i < 20; ++i) Create(SharePod("a-" + std::to_string(i), "40", "10Gi"));
  ASSERT_TRUE(WaitUntil([&] { return BoundPods() == 20; }, seconds(40)));
  EXPECT_EQ(holder(), "first");
  first.Signal(SIGKILL);
  for (int i = 0; i < 12; ++i) Create(SharePod("b-" + std::to_string(i), "40", "10Gi"));
  EXPECT_TRUE(WaitUntil([&] { return BoundPods() == 32; }, seconds(60)))
      << BoundPods() << " "
      << TailOf(*folder_ / ("binder-" + std::to_string(binders_started_) + ".log"));
  EXPECT_EQ(holder(), "second");
  CheckPlacements();
}

TEST_F(KubernetesCluster, SaysWhatIsWrongWithAManifest) {
  // Which field is meant, and what to do about it.
  const auto refused = [&](const std::string& gpu, const std::string& field,
                           const std::string& words) {
    const auto [status, said] = server_->KubectlFile(
        {"apply", "--dry-run=server"},
        "apiVersion: baton.dev/v1alpha1\nkind: SharePod\nmetadata: {name: bad, namespace: " +
            space_ + "}\nspec:\n  gpu: {" + gpu +
            "}\n  template: {spec: {containers: [{name: main, image: x}]}}\n");
    EXPECT_NE(status, 0) << gpu;
    EXPECT_NE(said.find("spec.gpu." + field + ": "), std::string::npos) << gpu << ": " << said;
    EXPECT_NE(said.find(words), std::string::npos) << gpu << ": " << said;
    std::printf("%s: %s", gpu.c_str(), said.c_str());
  };
  const std::string percentage =
      "must be a percentage of one GPU, 0.1 to 100 in steps of 0.1, such as \"30\" or \"12.5\"";
  refused("request: \"130\"", "request", percentage);
  refused("request: \"60\", limit: \"30\"", "limit",
          "the limit is less than the request; raise the limit or lower the request");
  refused("request: \"30\", memory: \"0\"", "memory",
          "must be at least 1Mi of GPU memory; remove the field for no cap");
  refused("request: abc", "request", percentage);
  refused("request: \"30\", count: 17", "count", "should be less than or equal to 16");
  refused("request: \"30\", priority: urgent", "priority",
          R"(supported values: "normal", "low", "high", "idle")");
  Create(SharePod("fixed", "30", "4Gi"));
  const auto [status, said] =
      server_->Kubectl({"-n", space_, "patch", "sharepod", "fixed", "--type=merge", "-p",
                        R"({"spec":{"gpu":{"count":2}}})"});
  EXPECT_NE(status, 0);
  EXPECT_NE(said.find("count is immutable; delete the SharePod and "
                      "create it again"),
            std::string::npos)
      << said;
  const auto [explained, text] = server_->Kubectl({"explain", "sharepod.spec.gpu"});
  EXPECT_EQ(explained, 0);
  for (const char* field : {"request", "limit", "memory", "count", "priority", "team"}) {
    EXPECT_NE(text.find(field), std::string::npos) << text;
  }
  EXPECT_EQ(text.find("<no description>"), std::string::npos) << text;
}

TEST_F(KubernetesCluster, WhatDoesNotFitSaysWhyForNodesAndGpus) {
  MakeNodes(2);
  StartBinder();
  for (int i = 0; i < 16; ++i) Create(SharePod("full-" + std::to_string(i), "80", "10Gi"));
  ASSERT_TRUE(WaitUntil([&] { return BoundPods() == 16; }, seconds(40)));
  Create(SharePod("waits", "30", "4Gi"));
  std::string why;
  ASSERT_TRUE(WaitUntil(
      [&] {
        const auto object = client_->Get(resources::kSharePods, {space_, "waits"});
        const Json* conditions = object ? Find(*object, "status/conditions") : nullptr;
        if (conditions == nullptr) return false;
        for (const Json& condition : *conditions) {
          if (condition.value("type", "") == "Placed") why = condition.value("message", "");
        }
        return !why.empty();
      },
      seconds(30)));
  std::printf("%s\n", why.c_str());
  EXPECT_NE(why.find("20 %"), std::string::npos) << why;
  EXPECT_NE(why.find("gpu-0"), std::string::npos) << why;
  EXPECT_LE(why.size(), 1024u);
  // One goes, and it is placed.
  MustDo(client_->Delete(resources::kSharePods, {space_, "full-3"}));
  EXPECT_TRUE(WaitUntil(
      [&] {
        client_->Delete(resources::kPods, {space_, "full-3"}, "", 0);
        const auto pod = client_->Get(resources::kPods, {space_, "waits"});
        return pod && !TextAt(*pod, "spec/nodeName").empty();
      },
      seconds(30)));
  CheckPlacements();
}

}  // namespace
}  // namespace baton::k8s
