// The DRA driver in the node's agent: between a kubelet and an API server, which the tests play,
// and a batond, which is a real one.
#include "k8s/dra/driver.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "k8s/device_plugin/node_agent.h"
#include "k8s/dra/claims.h"
#include "k8s/dra/slice_publisher.h"
#include "k8s/dra/slices.h"
#include "tests/backend/daemon_process.h"
#include "tests/backend/scripted_client.h"
#include "tests/k8s/device_plugin/node_daemons.h"
#include "tests/k8s/dra/claim_of_tests.h"
#include "tests/k8s/dra/dra_kubelet.h"
#include "tests/k8s/stand_in/api_server.h"

namespace baton::k8s {
namespace {

using backend::DaemonProcess;

class Dra : public ::testing::Test {
 protected:
  void SetUp() override {
    ConfigureBatond(folder_, central_);
    folder_.Write("hook/libbaton.so", "hook", 0755);
    api_.Serve(resources::kResourceClaims);
    api_.Serve(resources::kResourceSlices);
    api_.Put(resources::kNodes, Json::parse(R"({"metadata": {"name": "n1", "uid": "node-1"}})"));
    api_.Put(resources::kNamespaces, Json::parse(R"({"metadata": {"name": "vision", "labels": {
        "baton.dev/team": "research.vision"}}})"));
    ASSERT_TRUE(batond_.Start()) << batond_.Log();
  }
  void TearDown() override { Stop(); }

  // `sockets`: the folder of batond's, or of a relay's.
  void Start(const std::string& sockets = "run") {
    ClientOptions of_client;
    of_client.timeout = client_timeout_;
    auto client = Client::Make(api_.config(), of_client);
    ASSERT_TRUE(client) << client.error().message;
    client_ = std::move(*client);
    events_ = std::make_unique<EventRecorder>(*client_, EventRecorderOptions{});
    DraDriverOptions options;
    options.node = "n1";
    options.socket_dir = folder_ / sockets;
    options.kubelet_dir = folder_ / "kubelet";
    options.cdi_dir = folder_ / "cdi";
    options.sysfs = folder_ / "sys";
    options.mounts = HookMounts();
    options.hook_file = folder_ / "hook/libbaton.so";
    options.look_every = std::chrono::milliseconds(20);
    options.sweep_every = std::chrono::milliseconds(100);
    driver_ = std::make_unique<DraDriver>(*client_, options);
    NodeAgentOptions of_agent;
    of_agent.node = "n1";
    of_agent.socket_dir = folder_ / sockets;
    of_agent.report_every = std::chrono::milliseconds(100);
    of_agent.away_after = std::chrono::milliseconds(300);
    of_agent.lent_to = "ResourceClaims";
    of_agent.on_node = [this](const devmgr::Node& node, const std::vector<PresentPod>* pods) {
      driver_->OnNode(node, pods);
    };
    agent_ = std::make_unique<NodeAgent>(*client_, *events_, std::move(of_agent));
    ASSERT_TRUE(api_.WaitFor([&] { return kubelet_.Find().has_value(); }));
  }
  void Stop() {
    if (client_ != nullptr) client_->Stop();
    agent_.reset();
    driver_.reset();
    events_.reset();
    client_.reset();
  }

  Json Ask(const Json& request) { return backend::Ask(folder_ / "run/control.sock", request); }
  std::vector<std::string> PodNames() {
    std::vector<std::string> names;
    const Json status = Ask({{"command", "status"}});
    for (const Json& row : status.at("pods")) names.push_back(row.at("name"));
    return names;
  }
  std::string TicketAtBatond(const std::string& name) {
    return Ask({{"command", "pod"}, {"name", name}}).value("ticket", "");
  }
  std::string CdiPath(const std::string& uid) { return folder_ / ("cdi/" + CdiFileOf(uid)); }
  std::string StatePath(const std::string& uid) {
    return folder_ / ("kubelet/plugins/gpu.baton.dev/claims/" + uid + ".json");
  }
  std::string TicketOfContainer(const std::string& uid) {
    const Json spec = Json::parse(backend::ReadText(CdiPath(uid)));
    const std::string text = spec.at("devices")[0].at("containerEdits").at("env")[0];
    return text.substr(text.find('=') + 1);
  }
  Json Claim(const std::string& name, const std::string& share, const std::string& memory = "4Gi",
             const std::string& device = "gpu-a") {
    return api_.Put(resources::kResourceClaims, AllocatedClaim(name, device, share, memory));
  }
  auto Prepare(const std::string& name) {
    return kubelet_.Prepare({"vision", name}, "uid-" + name);
  }
  auto Unprepare(const std::string& name) {
    return kubelet_.Unprepare({"vision", name}, "uid-" + name);
  }
  std::string WhyNotPrepared(const std::string& name) {
    const auto prepared = Prepare(name);
    return prepared ? "" : prepared.error().message;
  }
  size_t Files() {
    size_t count = 0;
    for (const char* folder : {"cdi", "kubelet/plugins/gpu.baton.dev/claims"}) {
      for (const auto& entry : std::filesystem::directory_iterator(folder_ / folder)) {
        (void)entry;
        ++count;
      }
    }
    return count;
  }
  Json Slice() {
    const auto slice = api_.Get(resources::kResourceSlices, {"", SliceNameOf("n1")});
    return slice ? *slice : Json::object();
  }
  // Of the device: the value of its taint; "": it has none, "-": there is no such device.
  std::string Taint(const std::string& device) {
    const Json slice = Slice();
    const Json* devices = k8s::Find(slice, "spec/devices");
    if (devices == nullptr) return "-";
    for (const Json& one : *devices) {
      if (one.at("name") == device) return TextAt(one, "taints/0/value");
    }
    return "-";
  }

  const std::string central_ = "tcp://127.0.0.1:" + std::to_string(backend::FreePort());
  Duration client_timeout_ = std::chrono::seconds(30);
  const TempFolder folder_;
  testing::ApiServer api_;
  DaemonProcess batond_{BATOND, folder_ / "batond.toml", folder_ / "batond.log"};
  DraKubelet kubelet_{folder_ / "kubelet"};
  std::unique_ptr<Client> client_;
  std::unique_ptr<EventRecorder> events_;
  std::unique_ptr<DraDriver> driver_;
  std::unique_ptr<NodeAgent> agent_;
};

TEST_F(Dra, IsFoundByTheKubeletAgainAndAgain) {
  Start();
  const auto plugin = kubelet_.Find();
  EXPECT_EQ(plugin->type, "DRAPlugin");
  EXPECT_EQ(plugin->name, "gpu.baton.dev");
  EXPECT_EQ(plugin->endpoint, folder_ / "kubelet/plugins/gpu.baton.dev/dra.sock");
  EXPECT_EQ(plugin->versions, std::vector<std::string>{"v1.DRAPlugin"});
  kubelet_.RemoveSockets();
  EXPECT_TRUE(api_.WaitFor([&] { return kubelet_.Find().has_value(); }));
}

TEST_F(Dra, ClaimsShareAGpu) {
  Claim("a", "30");
  Claim("b", "50", "8Gi");
  Start();
  const auto a = Prepare("a");
  ASSERT_TRUE(a) << a.error().message;
  ASSERT_TRUE(Prepare("b"));
  ASSERT_EQ(a->size(), 1u);
  EXPECT_EQ((*a)[0], (DraKubelet::Device{{"gpu"},
                                         "n1",
                                         "gpu-a",
                                         {CdiDeviceOf("uid-a", "gpu")},
                                         "5f0c2b6e-0000-4000-8000-000000000001"}));
  const Json pod = Ask({{"command", "pod"}, {"name", "vision/b"}});
  EXPECT_EQ(pod.at("request"), 50.0) << pod;
  EXPECT_EQ(pod.at("limit"), 100.0);
  EXPECT_EQ(pod.at("memory"), uint64_t{8} << 30);
  EXPECT_EQ(pod.at("gpus"), Json::array({"GPU-a"}));
  EXPECT_EQ(pod.at("namespace"), "vision");
  EXPECT_EQ(pod.at("team"), "research/vision");
  EXPECT_NE(TicketOfContainer("uid-a"), TicketOfContainer("uid-b"));
  struct stat st;
  ASSERT_EQ(stat(CdiPath("uid-a").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u) << "who has the ticket may attach";
  // Of whatever pod: several may use the claim.
  backend::ScriptedClient client(folder_ / "run/baton.sock");
  EXPECT_TRUE(client.Join(TicketOfContainer("uid-a"), "GPU-a"));

  const auto again = Prepare("a");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, *a);
  EXPECT_EQ(PodNames().size(), 2u);

  // The scheduler would not: what it does not know of is refused here.
  Claim("c", "30");
  EXPECT_NE(WhyNotPrepared("c"), "");
  ASSERT_TRUE(Unprepare("b"));
  EXPECT_EQ(WhyNotPrepared("c"), "");
  for (const char* name : {"b", "a", "a", "c", "never"}) EXPECT_TRUE(Unprepare(name)) << name;
  EXPECT_TRUE(api_.WaitFor([&] { return PodNames().empty(); }));
  EXPECT_EQ(Files(), 0u);
}

TEST_F(Dra, RefusesWhatItCannotRead) {
  Start();
  EXPECT_NE(WhyNotPrepared("unknown").find("not found"), std::string::npos)
      << WhyNotPrepared("unknown");
  Claim("a", "30");
  EXPECT_NE(kubelet_.Prepare({"vision", "a"}, "uid-of-before").error().message.find("made anew"),
            std::string::npos);
  EXPECT_FALSE(kubelet_.Prepare({"vision", "a"}, "../a"));
  Claim("none", "0");
  EXPECT_NE(WhyNotPrepared("none").find("consumedCapacity.share"), std::string::npos);
  Claim("more", "101");
  EXPECT_NE(WhyNotPrepared("more").find("consumedCapacity.share"), std::string::npos);
  Json wrong = AllocatedClaim("wrong", "gpu-a", "30", "4Gi");
  AddParameters(wrong, "FromClaim", {{"limits", "60"}});
  api_.Put(resources::kResourceClaims, wrong);
  EXPECT_NE(WhyNotPrepared("wrong").find("parameters.limits: is unknown"), std::string::npos);
  std::filesystem::remove(folder_ / "hook/libbaton.so");
  EXPECT_NE(WhyNotPrepared("a").find("hook is not at"), std::string::npos);
  EXPECT_TRUE(PodNames().empty());
  EXPECT_EQ(Files(), 0u);
}

TEST_F(Dra, WaitsForBatond) {
  Claim("a", "30");
  Claim("b", "30");
  Start();
  ASSERT_TRUE(Prepare("b"));
  EXPECT_EQ(kubelet_.Health(), (std::map<std::string, int>{{"gpu-a", 1}, {"gpu-b", 1}}));
  ASSERT_EQ(batond_.Stop(), 0);
  EXPECT_NE(WhyNotPrepared("a"), "");
  EXPECT_FALSE(Unprepare("b")) << "its share is not free yet";
  EXPECT_TRUE(api_.WaitFor([&] { return Taint("gpu-a") == "failed"; }));
  EXPECT_EQ(kubelet_.Health(), (std::map<std::string, int>{{"gpu-a", 0}, {"gpu-b", 0}}));
  ASSERT_TRUE(batond_.Start()) << batond_.Log();
  EXPECT_EQ(WhyNotPrepared("a"), "");
  EXPECT_TRUE(Unprepare("b"));
  EXPECT_TRUE(api_.WaitFor([&] {
    return PodNames() == std::vector<std::string>{"vision/a"} && Taint("gpu-a").empty();
  }));
}

// Whatever is missing after a crash, and wherever it came.
TEST_F(Dra, ContinuesAfterAnyCrash) {
  Claim("a", "30");
  Start();
  const auto before = Prepare("a");
  ASSERT_TRUE(before) << before.error().message;
  const std::string ticket = TicketOfContainer("uid-a");
  const auto is_whole = [&] {
    return std::filesystem::exists(CdiPath("uid-a")) && TicketOfContainer("uid-a") == ticket &&
           TicketAtBatond("vision/a") == ticket;
  };
  for (const bool pod_is_missing : {false, true}) {
    for (const bool cdi_is_missing : {false, true}) {
      for (const bool asked : {false, true}) {
        Stop();
        if (pod_is_missing) Ask({{"command", "delete_pod"}, {"name", "vision/a"}});
        if (cdi_is_missing) std::filesystem::remove(CdiPath("uid-a"));
        Start();
        if (asked) {
          const auto again = Prepare("a");
          ASSERT_TRUE(again) << again.error().message;
          EXPECT_EQ(*again, *before);
        }
        EXPECT_TRUE(api_.WaitFor(is_whole)) << pod_is_missing << cdi_is_missing << asked;
        EXPECT_EQ(PodNames().size(), 1u);
      }
    }
  }
  // It died while it removed the claim, or the state was lost.
  Stop();
  std::filesystem::remove(StatePath("uid-a"));
  folder_.Write("kubelet/plugins/gpu.baton.dev/claims/uid-b.json", "{\"v\": 1");
  Start();
  EXPECT_FALSE(std::filesystem::exists(CdiPath("uid-a")));
  EXPECT_TRUE(std::filesystem::exists(StatePath("uid-b") + ".damaged"));
}

TEST_F(Dra, AnswersAgainWhileTheApiServerIsAway) {
  Claim("a", "30");
  Claim("b", "30");
  Start();
  const auto before = Prepare("a");
  ASSERT_TRUE(before);
  testing::Fault fault;
  fault.kind = testing::FaultKind::kCutBefore;
  fault.path = "/resourceclaims";
  fault.times = 0;
  api_.AddFault(fault);
  Stop();
  client_timeout_ = std::chrono::milliseconds(300);
  Start();
  EXPECT_EQ(kubelet_.Prepare({"vision", "a"}, "uid-a").value(), *before);
  EXPECT_TRUE(Unprepare("a"));
}

// A claim that was deallocated, and allocated anew, without the kubelet's word.
TEST_F(Dra, ANewAllocationTakesThePlaceOfTheOld) {
  Claim("a", "30");
  Start();
  ASSERT_TRUE(Prepare("a"));
  const std::string ticket = TicketOfContainer("uid-a");
  Claim("a", "40", "4Gi", "gpu-b");
  const auto prepared = Prepare("a");
  ASSERT_TRUE(prepared) << prepared.error().message;
  EXPECT_EQ((*prepared)[0].name, "gpu-b");
  EXPECT_EQ(Ask({{"command", "pod"}, {"name", "vision/a"}}).at("gpus"), Json::array({"GPU-b"}));
  EXPECT_NE(TicketOfContainer("uid-a"), ticket);
}

TEST_F(Dra, RemovesClaimsThatAreGone) {
  for (const char* name : {"a", "b", "c"}) Claim(name, "30");
  Start();
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(Prepare(name)) << name;
  api_.Remove(resources::kResourceClaims, {"vision", "a"});
  Json released = AllocatedClaim("c", "gpu-a", "30", "4Gi");
  released["status"].erase("allocation");
  api_.Put(resources::kResourceClaims, released);
  EXPECT_TRUE(api_.WaitFor(
      [&] { return PodNames() == std::vector<std::string>{"vision/b"} && Files() == 2; }));
}

TEST_F(Dra, PodsNamesAreNeverTakenFromOthers) {
  ASSERT_TRUE(
      Ask({{"command", "create_pod"}, {"name", "vision/a"}, {"request", 10}, {"gpus", {"GPU-b"}}})
          .value("ok", false));
  Json a = AllocatedClaim("a", "gpu-a", "30", "4Gi"), b = AllocatedClaim("b", "gpu-a", "30", "4Gi");
  SetOwnerPod(b, "web");
  Json c = AllocatedClaim("c", "gpu-a", "30", "4Gi");
  SetOwnerPod(c, "web");
  for (const Json& claim : {a, b, c}) api_.Put(resources::kResourceClaims, claim);
  Start();
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(WhyNotPrepared(name), "") << name;
  EXPECT_EQ(TicketAtBatond("vision/a/gpu"), TicketOfContainer("uid-a"));
  EXPECT_EQ(TicketAtBatond("vision/web"), TicketOfContainer("uid-b"));
  EXPECT_EQ(TicketAtBatond("vision/web/gpu"), TicketOfContainer("uid-c"));
  for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(Unprepare(name)) << name;
  EXPECT_TRUE(api_.WaitFor([&] { return PodNames() == std::vector<std::string>{"vision/a"}; }));
}

// A pod that is deleted by force is made anew while the kubelet still has the claim of the one
// before.
TEST_F(Dra, AClaimThatHadNoRoomIsNamedByTheNextTry) {
  for (const char* name : {"a", "b"}) {
    Json claim = AllocatedClaim(name, "gpu-a", "60", "4Gi");
    SetOwnerPod(claim, "web");
    api_.Put(resources::kResourceClaims, claim);
  }
  Start();
  ASSERT_EQ(WhyNotPrepared("a"), "");
  EXPECT_NE(WhyNotPrepared("b").find("no room for vision/web"), std::string::npos);
  EXPECT_EQ(Files(), 2u);
  EXPECT_TRUE(Unprepare("a"));
  EXPECT_EQ(WhyNotPrepared("b"), "");
  EXPECT_EQ(PodNames(), std::vector<std::string>{"vision/web"});
  EXPECT_EQ(TicketAtBatond("vision/web"), TicketOfContainer("uid-b"));
}

TEST_F(Dra, SliceFollowsTheGpus) {
  Claim("a", "30");
  Start();
  ASSERT_TRUE(api_.WaitFor([&] { return Taint("gpu-b").empty(); }));
  Json slice = Slice();
  EXPECT_EQ(slice.at("metadata").at("ownerReferences")[0].at("uid"), "node-1");
  EXPECT_EQ(slice.at("spec").at("devices").size(), 2u);
  const uint64_t generation = SliceGenerationOf(slice);
  EXPECT_GE(generation, 1u);

  ASSERT_TRUE(Ask({{"command", "cordon"}, {"gpus", {"GPU-b"}}}).value("ok", false));
  ASSERT_TRUE(api_.WaitFor([&] { return Taint("gpu-b") == "cordoned"; }));
  EXPECT_EQ(Taint("gpu-a"), "");
  EXPECT_GT(SliceGenerationOf(Slice()), generation);
  ASSERT_TRUE(Ask({{"command", "uncordon"}, {"gpus", {"GPU-b"}}}).value("ok", false));
  ASSERT_TRUE(api_.WaitFor([&] { return Taint("gpu-b").empty(); }));

  // What no claim is for has room that no scheduler knows of; a claim's pod has none.
  ASSERT_TRUE(Prepare("a"));
  ASSERT_TRUE(Ask({{"command", "create_pod"}, {"name", "x"}, {"request", 10}, {"gpus", {"GPU-b"}}})
                  .value("ok", false));
  ASSERT_TRUE(api_.WaitFor([&] { return Taint("gpu-b") == "in-use"; }));
  EXPECT_EQ(Taint("gpu-a"), "");

  // As a kubelet that restarts does.
  const uint64_t last = SliceGenerationOf(Slice());
  api_.Remove(resources::kResourceSlices, {"", SliceNameOf("n1")});
  ASSERT_TRUE(api_.WaitFor([&] { return Taint("gpu-b") == "in-use"; }));
  EXPECT_GT(SliceGenerationOf(Slice()), last);

  // Another driver of the same finds it as it should be.
  const std::string version = ResourceVersionOf(Slice());
  Stop();
  Start();
  ASSERT_TRUE(Prepare("a"));
  EXPECT_EQ(ResourceVersionOf(Slice()), version);
}

// One batond for all nodes: the driver speaks to the node's relay.
TEST_F(Dra, WorksThroughARelay) {
  ConfigureRelay(folder_, central_);
  DaemonProcess relay(FRONTEND, folder_ / "node.toml", folder_ / "node.log");
  ASSERT_TRUE(relay.Start()) << relay.Log();
  // Of another node.
  ASSERT_TRUE(
      Ask({{"command", "create_pod"}, {"name", "vision/a"}, {"request", 10}, {"gpus", {"GPU-a"}}})
          .value("ok", false));
  Claim("a", "30", "4Gi", "gpu-n");
  Start("node");
  ASSERT_TRUE(api_.WaitFor([&] { return Taint("gpu-n").empty(); }));
  EXPECT_EQ(Taint("gpu-a"), "-");
  EXPECT_EQ(WhyNotPrepared("a"), "");
  EXPECT_EQ(TicketAtBatond("vision/a/gpu"), TicketOfContainer("uid-a"));
  EXPECT_EQ(WhyNotPrepared("a"), "");
  EXPECT_EQ(PodNames().size(), 2u);
  EXPECT_TRUE(Unprepare("a"));
  EXPECT_TRUE(api_.WaitFor([&] { return PodNames() == std::vector<std::string>{"vision/a"}; }));
}

// A GPU whose taint it does not keep is not offered at all.
TEST_F(Dra, ApiServerWithoutTaintsIsNotToldOfGpusThatGetNothing) {
  api_.DropFields(resources::kResourceSlices, {"taints", "allowMultipleAllocations"});
  Start();
  ASSERT_TRUE(api_.WaitFor([&] { return Taint("gpu-b").empty(); }));
  ASSERT_TRUE(Ask({{"command", "cordon"}, {"gpus", {"GPU-b"}}}).value("ok", false));
  ASSERT_TRUE(api_.WaitFor([&] { return Taint("gpu-b") == "-"; }));
  EXPECT_EQ(Taint("gpu-a"), "");
  const std::string version = ResourceVersionOf(Slice());
  Stop();
  Start();
  Claim("a", "30");
  ASSERT_TRUE(Prepare("a"));
  EXPECT_EQ(ResourceVersionOf(Slice()), version) << "not even for a moment by the next driver";
  ASSERT_TRUE(Ask({{"command", "uncordon"}, {"gpus", {"GPU-b"}}}).value("ok", false));
  EXPECT_TRUE(api_.WaitFor([&] { return Taint("gpu-b").empty(); }));
}

// Of a slice in which something is missing, more is offered once the API server keeps it.
TEST_F(Dra, ASliceOfWhichFieldsWereDroppedIsRepaired) {
  const auto shared = [&] {
    const Json slice = Slice();
    const Json& devices = ListAt(slice, "spec/devices");
    return std::count_if(devices.begin(), devices.end(), [](const Json& one) {
      return one.value("allowMultipleAllocations", false);
    });
  };
  api_.DropFields(resources::kResourceSlices, {"taints", "allowMultipleAllocations"});
  Start();
  ASSERT_TRUE(Ask({{"command", "cordon"}, {"gpus", {"GPU-b"}}}).value("ok", false));
  ASSERT_TRUE(api_.WaitFor([&] { return Taint("gpu-a").empty() && Taint("gpu-b") == "-"; }));
  EXPECT_EQ(shared(), 0);
  Stop();
  api_.DropFields(resources::kResourceSlices, {"taints"});
  Start();
  EXPECT_TRUE(api_.WaitFor([&] { return shared() == 1; }));
  EXPECT_EQ(Taint("gpu-b"), "-");
  Stop();
  api_.DropFields(resources::kResourceSlices, {});
  Start();
  EXPECT_TRUE(api_.WaitFor([&] { return Taint("gpu-b") == "cordoned" && shared() == 2; }));
}

// Likewise while the driver runs; and until then nothing is written.
TEST(DraSlices, WhatWasDroppedIsTriedAgainWithoutAWrite) {
  testing::ApiServer api;
  api.Serve(resources::kResourceSlices);
  api.Put(resources::kNodes, Json::parse(R"({"metadata": {"name": "n1", "uid": "node-1"}})"));
  api.DropFields(resources::kResourceSlices, {"allowMultipleAllocations"});
  auto client = Client::Make(api.config(), {});
  ASSERT_TRUE(client) << client.error().message;
  devmgr::Node node;
  node.name = "n1";
  node.cards.resize(1);
  node.cards[0].uuid = "GPU-a";
  node.cards[0].memory_mib = 1'024;
  SlicePublisher publisher(**client, "n1", std::chrono::milliseconds(50));
  publisher.SetDevices(DraDevicesOf(node, {}, [](const std::string&) { return ""; }));
  const ObjectName name{"", SliceNameOf("n1")};
  ASSERT_TRUE(api.WaitFor([&] { return api.Get(resources::kResourceSlices, name).has_value(); }));
  const std::string version = ResourceVersionOf(*api.Get(resources::kResourceSlices, name));
  const uint64_t asked = api.count("get nodes");
  ASSERT_TRUE(api.WaitFor([&] { return api.count("get nodes") >= asked + 3; }));
  EXPECT_EQ(ResourceVersionOf(*api.Get(resources::kResourceSlices, name)), version);
  api.DropFields(resources::kResourceSlices, {});
  EXPECT_TRUE(api.WaitFor([&] {
    const Json slice = *api.Get(resources::kResourceSlices, name);
    return slice.at("spec").at("devices")[0].value("allowMultipleAllocations", false);
  }));
  const uint64_t then = api.count("get nodes");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LE(api.count("get nodes"), then + 1) << "all is kept";
  (*client)->Stop();
}

TEST_F(Dra, BinderGetsNoneOfItsGpus) {
  Start();
  ASSERT_TRUE(api_.WaitFor([&] {
    const auto node = api_.Get(resources::kGpuNodes, {"", "n1"});
    return node && k8s::Find(*node, "status/cards/1") != nullptr;
  }));
  const Json node = *api_.Get(resources::kGpuNodes, {"", "n1"});
  for (const Json& card : node.at("status").at("cards")) {
    EXPECT_EQ(card.at("cordoned"), true);
    EXPECT_EQ(card.at("why"), "ResourceClaims");
  }
}

}  // namespace
}  // namespace baton::k8s
