// Parts of GPUs that have to be made before a pod comes: MIG instances, and MPS's daemons. The
// whole way, as in shares_test.cc.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/random.h"
#include "k8s/types/annotations.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/inject.h"
#include "sim/card.h"
#include "sim/device.h"
#include "tests/k8s/chart/manifests.h"
#include "tests/k8s/device_plugin/kubelet_stand_in.h"
#include "tests/k8s/end_to_end/shares_fixture.h"
#include "wire/control_client.h"

namespace baton::k8s {
namespace {

using bench::WaitUntil;
using std::chrono::seconds;

class DividedOnKubernetes : public SharesOnKubernetes {
 protected:
  // As the API server does, by the webhook.
  void ApplyPod(const std::string& name, const std::string& mode, int percent,
                const std::string& memory) {
    Json pod{
        {"apiVersion", "v1"},
        {"kind", "Pod"},
        {"metadata",
         {{"name", name},
          {"namespace", "default"},
          {"annotations", {{PodKey(keys::kMode), mode}, {PodKey(keys::kMemory), memory}}}}},
        {"spec",
         {{"containers",
           Json::array(
               {{{"name", "main"},
                 {"image", "registry.local/burn"},
                 {"command", {cluster().Program("baton-burn"), "--seconds", "300"}},
                 {"resources",
                  {{"limits", {{std::string(kShareResource), std::to_string(percent)}}}}}}})}}}};
    ASSERT_TRUE(Must(Inject(pod, {})));
    MustDo(client_->Create(resources::kPods, {"default", name}, pod));
  }
  bool Runs(const std::string& name) {
    return WaitUntil([&] { return node_->PidOf("default/" + name) > 0; }, seconds(30));
  }
  // batond's map, by pod.
  std::map<std::string, Json> Map() {
    std::map<std::string, Json> rows;
    const Json answer = Must(wire::Ask(cluster().SocketDir(0), {{"command", "vgpus"}}));
    for (const Json& row : answer.at("vgpus")) rows[row.at("pod")] = row;
    return rows;
  }
  size_t ClientsOf(const std::string& name) {
    const Json status = Must(cluster().Status(0));
    for (const Json& pod : status.at("pods")) {
      if (pod.at("name") == name) return pod.at("clients").size();
    }
    return 0;
  }
  // What is on the GPU, whoever made it.
  Json Instances() {
    const Json status = Must(cluster().Status(0));
    return status.at("gpus").at(0).value("instances", Json::array());
  }
  // On the first GPU, and its node has told so.
  void TurnMigOn() {
    Must(sim::SetMigMode(Must(sim::Device::Open(device(0, 0).path)), true));
    ASSERT_TRUE(WaitUntil(
        [&] {
          const auto node = client_->Get(resources::kGpuNodes, {"", kNode});
          return node &&
                 TextAt(node->at("status").at("cards").at(0), "uuid") == device(0, 0).uuid &&
                 node->at("status").at("cards").at(0).at("migEnabled") == true;
        },
        seconds(30)));
  }
  std::string Why(const std::string& name) {
    const auto pod = client_->Get(resources::kPods, {"default", name});
    return (pod ? pod->dump(1) : pod.error().message) + "\n" +
           Must(cluster().Status(0)).dump(1).substr(0, 4000);
  }
};

TEST_P(DividedOnKubernetes, MigInstancesAreMadeBookedAndTakenAway) {
  StartNode(1, {"--no-plugin"}, {.model = "a100-40", .mig = true});
  ApplyPod("half", "mig", 40, "15Gi");
  ApplyPod("other", "mig", 40, "15Gi");
  for (const char* name : {"half", "other"}) ASSERT_TRUE(Runs(name)) << Why(name);
  const auto map = Map();
  ASSERT_EQ(map.size(), 2u);
  std::set<std::string> devices;
  for (const char* name : {"half", "other"}) {
    const auto environment = node_->EnvironmentOf(std::string("default/") + name);
    const std::string device = environment.at("NVIDIA_VISIBLE_DEVICES");
    EXPECT_EQ(device.substr(0, 4), "MIG-");
    EXPECT_EQ(environment.at("CUDA_VISIBLE_DEVICES"), device);
    // The hardware keeps the share.
    EXPECT_FALSE(environment.contains("LD_PRELOAD"));
    EXPECT_FALSE(environment.contains("BATON_TICKET"));
    const Json& row = map.at(std::string("default/") + name);
    EXPECT_EQ(row.at("mode"), "mig");
    EXPECT_EQ(row.at("device"), device);
    devices.insert(device);
  }
  EXPECT_EQ(devices.size(), 2u);
  EXPECT_EQ(Instances().size(), 2u);
  // It is full, and says so.
  ApplyPod("third", "mig", 40, "15Gi");
  EXPECT_TRUE(SaysThatItWaits("third"));
  // Nor is there room for turns.
  EXPECT_LE(node_->PidOf("default/third"), 0);
  EXPECT_EQ(Map().size(), 2u);

  MustDo(client_->Delete(resources::kPods, {"default", "half"}));
  ASSERT_TRUE(Runs("third")) << Why("third");
  for (const char* name : {"other", "third"}) {
    MustDo(client_->Delete(resources::kPods, {"default", name}));
  }
  EXPECT_TRUE(WaitUntil([&] { return Instances().empty() && Map().empty(); }, seconds(30)))
      << Why("third");
}

constexpr const char* kMps = "baton.dev/gpu-mps";

TEST_P(DividedOnKubernetes, PodsByMpsRunAtTheSameTimeWithTheirParts) {
  const std::string hook = std::filesystem::canonical(BATON_PROGRAMS "/../lib");
  const std::string memory = folder_ / "mps-memory";
  const TempFolder plugins;
  KubeletStandIn kubelet(plugins.path());
  kubelet.Start();
  StartNode(1, {"--plugin-dir", plugins.path(), "--hook-dest", hook, "--mps-memory-dir", memory},
            {.model = "a100-40"});
  ApplyPod("a", "mps", 60, "8Gi");
  // It waits for a node whose kubelet offers what lets it reach MPS's daemons.
  ASSERT_TRUE(WaitUntil(
      [&] {
        return kubelet.Allocatable(kMps) == 48 &&
               kubelet.Allocatable(std::string(kShareResource)) == 100;
      },
      seconds(20)));
  EXPECT_LE(node_->PidOf("default/a"), 0);
  const Json counted{{kMps, "48"}};
  MustDo(client_->Patch(resources::kNodes, {"", kNode}, PatchKind::kMerge,
                        {{"status", {{"capacity", counted}, {"allocatable", counted}}}}, "status"));
  const auto given = kubelet.Allocate(kMps, {kubelet.plugins().at(kMps).devices.begin()->first});
  ASSERT_TRUE(given) << given.error().message;
  EXPECT_EQ(given->mounts, (std::map<std::string, std::string>{{"/dev/shm", memory}}));
  EXPECT_EQ(given->other, 1u) << "one mount, in which it may write";
  EXPECT_EQ(std::filesystem::status(memory).permissions(),
            std::filesystem::perms::all | std::filesystem::perms::sticky_bit);
  ApplyPod("b", "mps", 40, "4Gi");
  for (const char* name : {"a", "b"}) ASSERT_TRUE(Runs(name)) << Why(name);
  const auto environment = node_->EnvironmentOf("default/a");
  const std::string pipes = environment.at("CUDA_MPS_PIPE_DIRECTORY");
  EXPECT_EQ(access((pipes + "/control").c_str(), F_OK), 0) << pipes;
  EXPECT_EQ(environment.at("CUDA_VISIBLE_DEVICES"), device().uuid);
  EXPECT_EQ(environment.at("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "60");
  EXPECT_EQ(environment.at("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), device().uuid + "=8192M");
  EXPECT_FALSE(environment.contains("LD_PRELOAD"));
  EXPECT_EQ(node_->EnvironmentOf("default/b").at("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "40");
  EXPECT_EQ(Map().at("default/b").at("mode"), "mps");
  for (const char* name : {"a", "b"}) {
    MustDo(client_->Delete(resources::kPods, {"default", name}));
  }
  EXPECT_TRUE(
      WaitUntil([&] { return Map().empty() && access((pipes + "/control").c_str(), F_OK) != 0; },
                seconds(30)))
      << Why("a");
  // By turns again.
  Apply("turns", "30");
  ASSERT_TRUE(Runs("turns")) << Why("turns");
}

// One takes turns, under the hook; the other has an instance, where the same hook stands aside.
TEST_P(DividedOnKubernetes, PodsOfAnOpenModeRunInEitherWay) {
  StartNode(2, {"--no-plugin"}, {.model = "a100-40"});
  TurnMigOn();
  ApplyPod("turns", "auto", 80, "15Gi");
  ASSERT_TRUE(Runs("turns")) << Why("turns");
  ApplyPod("part", "auto", 40, "15Gi");
  ASSERT_TRUE(Runs("part")) << Why("part");
  const Json pod = client_->Get(resources::kPods, {"default", "turns"}).value();
  auto environment = node_->EnvironmentOf("default/turns");
  EXPECT_EQ(environment.at("NVIDIA_VISIBLE_DEVICES"), device(0, 1).uuid);
  EXPECT_EQ(environment.at("BATON_TICKET"), TextAt(pod, "metadata/uid") + "/main");
  environment = node_->EnvironmentOf("default/part");
  EXPECT_EQ(environment.at("NVIDIA_VISIBLE_DEVICES").substr(0, 4), "MIG-");
  EXPECT_EQ(environment.at("BATON_TICKET"), "");
  EXPECT_NE(environment.at("LD_PRELOAD").find("libbaton.so"), std::string::npos);
  EXPECT_EQ(Map().at("default/turns").at("mode"), "time-slice");
  EXPECT_EQ(Map().at("default/part").at("mode"), "mig");
  // The one is a client of batond's, the other works without it, and both are at work.
  EXPECT_TRUE(WaitUntil([&] { return ClientsOf("default/turns") == 1; }, seconds(20)));
  EXPECT_TRUE(
      WaitUntil([&] { return Must(sim::Device::Open(device(0, 0).path))->Processes().size() == 1; },
                seconds(20)));
  EXPECT_EQ(ClientsOf("default/part"), 0u);
  for (const char* name : {"turns", "part"}) {
    MustDo(client_->Delete(resources::kPods, {"default", name}));
  }
  EXPECT_TRUE(WaitUntil([&] { return Instances().empty() && Map().empty(); }, seconds(30)));
}

// k8s/examples/modes.yaml on a node of five GPUs, of which one has MIG on.
TEST_P(DividedOnKubernetes, TheExampleOfAllModesRuns) {
  refuse_every_ = 0;
  StartNode(5, {"--no-plugin"}, {.model = "a100-40"});
  TurnMigOn();
  const Json counted{{kMps, "192"}};
  MustDo(client_->Patch(resources::kNodes, {"", kNode}, PatchKind::kMerge,
                        {{"status", {{"capacity", counted}, {"allocatable", counted}}}}, "status"));
  std::vector<std::string> names;
  const auto apply = [&](const std::string& of, const std::string& name) {
    for (Json share : Documents(std::string(BATON_SOURCE) + "/k8s/examples/modes.yaml")) {
      if (share.at("metadata").at("name") != of) continue;
      share["metadata"]["name"] = name;
      share["metadata"]["namespace"] = "default";
      Json& container = share["spec"]["template"]["spec"]["containers"][0];
      container.erase("args");
      container["command"] = {cluster().Program("baton-burn"), "--seconds", "300"};
      MustDo(client_->Create(resources::kSharePods, {"default", name}, share));
      names.push_back(name);
    }
    EXPECT_TRUE(Runs(name)) << Why(name);
  };
  const auto card_of = [&](const std::string& name) {
    const auto pod = client_->Get(resources::kPods, {"default", name});
    const auto placement = pod ? ReadPlacement(*pod) : std::nullopt;
    return placement && *placement ? (*placement)->vgpus.at(0).card : "";
  };
  const auto mode_of = [&](const std::string& name) {
    return Map()["default/" + name].value("mode", "");
  };
  for (const char* name : {"by-mig", "by-mps", "packed", "spread", "plain"}) apply(name, name);
  apply("packed", "packed-2");
  apply("spread", "spread-2");
  apply("either", "either");
  EXPECT_EQ(card_of("by-mig"), device(0, 0).uuid);
  EXPECT_EQ(mode_of("by-mig"), "mig");
  EXPECT_EQ(mode_of("by-mps"), "mps");
  for (const char* name : {"packed", "spread", "plain"}) EXPECT_EQ(mode_of(name), "time-slice");
  // An instance would be a seventh more than it asks for.
  EXPECT_EQ(mode_of("either"), "time-slice");
  EXPECT_EQ(card_of("packed-2"), card_of("packed"));
  EXPECT_NE(card_of("spread-2"), card_of("spread"));
  // Nobody takes turns where others run at the same time.
  for (const std::string& name : names) {
    for (const char* apart : {"by-mps", "by-mig"}) {
      EXPECT_TRUE(name == apart || card_of(name) != card_of(apart)) << name;
    }
  }
  // What it has it has all the time, and its SharePod says so.
  EXPECT_TRUE(WaitUntil([&] { return StatusShare("by-mig") > 42; }, seconds(20)));
}

// An upgrade by helm alone leaves the CustomResourceDefinition of before: GPUs are told of as
// before it, and such pods wait until it is updated.
TEST_P(DividedOnKubernetes, AnOldDefinitionOfGpuNodesKeepsOnlyPartsAway) {
  if (stand_in_ == nullptr) GTEST_SKIP() << "the real server has the new definition";
  stand_in_->AddFault({.kind = testing::FaultKind::kAnswer,
                       .verb = "apply",
                       .path = std::string("/gpunodes/") + kNode + "/status",
                       .body = "\"devices\"",
                       .times = 0,
                       .status = 500,
                       .message = ".status.devices: field not declared in schema"});
  StartNode(2, {"--no-plugin"}, {.model = "a100-40"});
  TurnMigOn();
  Apply("turns", "30");
  ASSERT_TRUE(Runs("turns")) << Why("turns");
  ApplyPod("part", "mig", 40, "15Gi");
  ASSERT_TRUE(WaitUntil([&] { return stand_in_->faults_met() > 0; }, seconds(30)));
  EXPECT_LE(node_->PidOf("default/part"), 0);
  EXPECT_NE(TailOf(folder_ / "agent.log").find("CustomResourceDefinition"), std::string::npos);
  stand_in_->ClearFaults();
  EXPECT_TRUE(Runs("part")) << Why("part");
}

// Whoever ends at whatever moment, at the end there is an instance for each pod that has one, the
// one that it was told, and no other.
TEST_P(DividedOnKubernetes, NothingIsOrphanedWhoeverEnds) {
  constexpr std::array<std::pair<int, const char*>, 3> kSizes{
      {{10, "4Gi"}, {25, "8Gi"}, {40, "15Gi"}}};
  refuse_every_ = 0;
  StartNode(1, {"--no-plugin"}, {.model = "a100-40", .mig = true});
  Random random(7);
  std::set<std::string> there;
  for (int i = 0; i < 24; ++i) {
    const std::string name = "p" + std::to_string(i);
    if (there.size() < 7) {
      const auto& [percent, memory] = kSizes[random.Between(0, 2)];
      ApplyPod(name, "mig", percent, memory);
      there.insert(name);
    }
    usleep(static_cast<useconds_t>(random.Between(0, 400'000)));
    if (random.OneIn(2) && !there.empty()) {
      const auto last = static_cast<int64_t>(there.size()) - 1;
      const auto gone = std::next(there.begin(), random.Between(0, last));
      MustDo(client_->Delete(resources::kPods, {"default", *gone}));
      there.erase(gone);
    }
    switch (random.Between(0, 2)) {
      case 0:
        agent_.reset();
        StartAgent();
        break;
      case 1:
        binder_.reset();
        StartBinder();
        break;
      default:
        cluster().batond().Signal(SIGKILL);
        ASSERT_TRUE(cluster().batond().Wait(seconds(5)));
        Must(cluster().StartBatond());
    }
  }
  std::set<std::string> waiting;
  const auto settled = [&] {
    waiting.clear();
    std::set<std::string> devices;
    for (const std::string& name : there) {
      const auto pod = client_->Get(resources::kPods, {"default", name});
      if (!pod) return false;
      if (TextAt(*pod, "spec/nodeName").empty()) {
        waiting.insert(name);
        if (!MakesDevicesOn(*pod).empty()) return false;
        continue;
      }
      const auto environment = node_->EnvironmentOf("default/" + name);
      const auto device = environment.find("CUDA_VISIBLE_DEVICES");
      if (device == environment.end()) return false;
      if (Map()["default/" + name].value("device", "") != device->second) return false;
      devices.insert(device->second);
    }
    return devices.size() + waiting.size() == there.size() && Map().size() == devices.size() &&
           Instances().size() == devices.size();
  };
  EXPECT_TRUE(WaitUntil(settled, seconds(60))) << Why(*there.begin());
  EXPECT_LT(waiting.size(), there.size());
  for (const std::string& name : there) {
    MustDo(client_->Delete(resources::kPods, {"default", name}));
  }
  EXPECT_TRUE(WaitUntil([&] { return Instances().empty() && Map().empty(); }, seconds(30)))
      << Why("p0");
}

INSTANTIATE_TEST_SUITE_P(Servers, DividedOnKubernetes,
                         ::testing::Values(Server::kStandIn, Server::kReal), NameOfServer);

}  // namespace
}  // namespace baton::k8s
