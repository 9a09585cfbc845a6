// From an empty cluster to nodes that a central batond takes, and back: an API server in this
// process, real daemons with real keys, and nobody who hands any out.
#include "k8s/keys/link_keys.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "k8s/types/gpu_node.h"
#include "tests/backend/daemon_process.h"
#include "tests/k8s/stand_in/api_server.h"

namespace baton::k8s {
namespace {

using backend::DaemonProcess;
using backend::Eventually;
using backend::ReadText;
using backend::WriteText;

const Resource kMaps{"", "v1", "configmaps", "ConfigMap", true};
const ObjectName kCentralKey{"baton-system", "baton-central-key"};

// As the chart's init containers do.
void Keygen(const std::string& path) {
  ASSERT_EQ(std::system((BATON " keygen --keep " + path + " >/dev/null").c_str()), 0);
}

// What the chart starts on a node: its pair, baton-frontend, and the agent's part in the keys.
class NodeWithKeys {
 public:
  NodeWithKeys(const testing::ApiServer& api, const std::string& folder, const std::string& name,
               const std::string& address)
      : name_(name), folder_(folder + "/" + name) {
    std::filesystem::create_directories(folder_);
    Keygen(folder_ + "/node.key");
    WriteText(folder_ + "/frontend.toml",
              "[server]\nlock_dir = \"" + folder_ + "/lock\"\n[node]\nname = \"" + name +
                  "\"\nsocket_dir = \"" + folder_ + "/run\"\n[zmq]\nconnect = \"" + address +
                  "\"\nserver_public_key_file = \"" + folder_ + "/central.pub\"\n" +
                  "secret_key_file = \"" + folder_ + "/node.key\"\n[[gpu]]\nuuid = \"GPU-" + name +
                  "\"\n");
    frontend_.emplace(FRONTEND, folder_ + "/frontend.toml", folder_ + "/frontend.log");
    EXPECT_TRUE(frontend_->Start()) << frontend_->Log();
    client_ = *Client::Make(api.config());
    LinkKeysOptions options;
    options.public_key_file = folder_ + "/node.key.pub";
    options.central_key = kCentralKey;
    options.tell_every = options.retry = std::chrono::milliseconds(200);
    keys_.emplace(*client_, options, name, folder_ + "/central.pub");
  }
  ~NodeWithKeys() {
    client_->Stop();
    keys_.reset();
  }

  bool Says(const std::string& code) {
    return Eventually([&] {
      const Json said = backend::Ask(folder_ + "/run/control.sock", {{"command", "ping"}});
      return said.is_object() && said.value("code", said.value("ok", false) ? "up" : "") == code;
    });
  }
  bool IsUp() { return Says("up"); }
  bool IsCut() { return Says("unavailable"); }
  std::string PublicKey() const {
    std::string text = ReadText(folder_ + "/node.key.pub");
    return text.substr(0, 40);
  }
  std::string Log() const { return name_ + ": " + frontend_->Log(); }

 private:
  const std::string name_, folder_;
  std::optional<DaemonProcess> frontend_;
  std::unique_ptr<Client> client_;
  std::optional<NodeLinkKeys> keys_;
};

class LinkKeysOfACluster : public ::testing::Test {
 protected:
  void SetUp() override {
    api_.Serve(kMaps);
    address_ = "tcp://127.0.0.1:" + std::to_string(backend::FreePort());
    WriteText(folder_ / "batond.toml",
              "[server]\nsocket_dir = \"" + (folder_ / "central") + "\"\nstate_dir = \"" +
                  (folder_ / "state") + "\"\n[http]\nlisten = \"\"\n[zmq]\nlisten = \"" + address_ +
                  "\"\nsecret_key_file = \"" + (folder_ / "central.key") + "\"\nnodes_file = \"" +
                  (folder_ / "nodes") + "\"\n");
    StartCentral();
  }
  void TearDown() override { StopCentral(); }

  // The pod of the central batond.
  void StartCentral() {
    Keygen(folder_ / "central.key");
    ASSERT_TRUE(batond_.Start()) << batond_.Log();
    client_ = *Client::Make(api_.config());
    LinkKeysOptions options;
    options.public_key_file = folder_ / "central.key.pub";
    options.central_key = kCentralKey;
    options.tell_every = options.retry = std::chrono::milliseconds(200);
    keys_.emplace(*client_, options, folder_ / "nodes");
  }
  void StopCentral() {
    client_->Stop();
    keys_.reset();
    batond_.Stop();
  }
  std::unique_ptr<NodeWithKeys> Join(const std::string& name) {
    api_.Put(resources::kNodes, {{"metadata", {{"name", name}}}});
    return std::make_unique<NodeWithKeys>(api_, folder_.path(), name, address_);
  }
  std::string Listed() {
    return std::filesystem::exists(folder_ / "nodes") ? ReadText(folder_ / "nodes") : "";
  }
  bool IsListed(const std::string& line) {
    return Eventually([&] { return Listed().find(line + "\n") != std::string::npos; });
  }

  const TempFolder folder_;
  testing::ApiServer api_;
  std::string address_;
  DaemonProcess batond_{BATOND, folder_ / "batond.toml", folder_ / "batond.log"};
  std::unique_ptr<Client> client_;
  std::optional<CentralLinkKeys> keys_;
};

TEST_F(LinkKeysOfACluster, NodesThatComeAreTakenWithoutARestart) {
  const auto first = Join("n1");
  EXPECT_TRUE(first->IsUp()) << first->Log() << batond_.Log();
  const auto second = Join("n2");
  EXPECT_TRUE(second->IsUp()) << second->Log() << batond_.Log();
  EXPECT_EQ(batond_.Log().find("is cut"), std::string::npos) << batond_.Log();
  // Nothing secret went by way of the API server.
  for (const auto& [resource, count] :
       {std::pair(resources::kGpuNodes, size_t{2}), std::pair(kMaps, size_t{1})}) {
    const auto objects = api_.List(resource);
    EXPECT_EQ(objects.size(), count);
    for (const char* file : {"central.key", "n1/node.key", "n2/node.key"}) {
      const std::string text = ReadText(folder_ / file);
      const size_t at = text.find("secret_key = \"");
      ASSERT_NE(at, std::string::npos);
      const std::string secret = text.substr(at + 14, 40);
      for (const Json& object : objects) {
        EXPECT_EQ(object.dump().find(secret), std::string::npos) << object;
      }
    }
  }
}

TEST_F(LinkKeysOfACluster, WhatIsDeletedInTheApiServerIsToldAgain) {
  const auto node = Join("n1");
  ASSERT_TRUE(node->IsUp()) << node->Log();
  api_.Remove(resources::kGpuNodes, {"", "n1"});
  api_.Remove(kMaps, kCentralKey);
  EXPECT_TRUE(Eventually([&] {
    const auto told = api_.Get(resources::kGpuNodes, {"", "n1"});
    return told && PublicKeyOf(*told) == node->PublicKey() && api_.Get(kMaps, kCentralKey);
  }));
  EXPECT_TRUE(IsListed("n1 " + node->PublicKey()));
  EXPECT_TRUE(node->IsUp()) << batond_.Log();
}

TEST_F(LinkKeysOfACluster, TheListOfNodesThatIsDeletedIsWrittenAgain) {
  const auto node = Join("n1");
  ASSERT_TRUE(node->IsUp()) << node->Log();
  std::filesystem::remove(folder_ / "nodes");
  EXPECT_TRUE(IsListed("n1 " + node->PublicKey()));
}

TEST_F(LinkKeysOfACluster, ANodeThatIsRemovedIsCutOffThoughItsGpuNodeStays) {
  const auto node = Join("n1");
  ASSERT_TRUE(node->IsUp()) << node->Log();
  api_.Remove(resources::kNodes, {"", "n1"});
  EXPECT_TRUE(node->IsCut()) << batond_.Log();
  EXPECT_TRUE(api_.Get(resources::kGpuNodes, {"", "n1"}));
  api_.Put(resources::kNodes, {{"metadata", {{"name", "n1"}}}});
  EXPECT_TRUE(node->IsUp()) << node->Log() << batond_.Log();
}

TEST_F(LinkKeysOfACluster, ANodesNewPairTakesThePlaceOfTheOldOne) {
  auto node = Join("n1");
  ASSERT_TRUE(node->IsUp()) << node->Log();
  const std::string old = node->PublicKey();
  node.reset();
  std::filesystem::remove_all(folder_ / "n1");  // another disk
  node = Join("n1");
  EXPECT_TRUE(node->IsUp()) << node->Log() << batond_.Log();
  EXPECT_NE(node->PublicKey(), old);
  EXPECT_EQ(Listed().find(old), std::string::npos);
}

TEST_F(LinkKeysOfACluster, ACentralBatondThatLostItsVolumeIsFollowed) {
  const auto node = Join("n1");
  ASSERT_TRUE(node->IsUp()) << node->Log();
  StopCentral();
  for (const char* file : {"central.key", "central.key.pub", "nodes", "state"}) {
    std::filesystem::remove_all(folder_ / file);
  }
  StartCentral();
  EXPECT_TRUE(IsListed("n1 " + node->PublicKey()));
  EXPECT_TRUE(node->IsUp()) << node->Log() << batond_.Log();
}

TEST_F(LinkKeysOfACluster, ARestartWhileTheApiServerIsAwayNeedsNothingOfIt) {
  const auto node = Join("n1");
  ASSERT_TRUE(node->IsUp()) << node->Log();
  api_.Stall(true);
  StopCentral();
  StartCentral();
  EXPECT_TRUE(node->IsUp()) << node->Log() << batond_.Log();
  api_.Stall(false);
}

TEST_F(LinkKeysOfACluster, NoListIsWrittenBeforeAllIsKnown) {
  const auto node = Join("n1");
  ASSERT_TRUE(IsListed("n1 " + node->PublicKey()));
  StopCentral();
  const std::string before = Listed();
  testing::Fault fault;
  fault.verb = "list";
  fault.path = "/nodes";
  fault.times = 0;
  api_.AddFault(fault);
  StartCentral();
  ASSERT_TRUE(api_.WaitFor([&] { return api_.faults_met() > 2; }));
  EXPECT_EQ(Listed(), before);
  EXPECT_TRUE(node->IsUp()) << node->Log();
  api_.ClearFaults();
}

TEST_F(LinkKeysOfACluster, NothingThatANodeTellsSpoilsTheListForOthers) {
  const auto node = Join("n1");
  ASSERT_TRUE(node->IsUp()) << node->Log();
  int number = 0;
  for (const std::string& key :
       {std::string("short"), std::string(40, '#'), std::string(40, ' '),
        "\nn1 " + std::string(36, '0'), node->PublicKey() + "\nn9 " + node->PublicKey()}) {
    const std::string name = "bad-" + std::to_string(++number);
    api_.Put(resources::kNodes, {{"metadata", {{"name", name}}}});
    api_.Put(resources::kGpuNodes,
             {{"metadata", {{"name", name}, {"annotations", {{"baton.dev/public-key", key}}}}}});
  }
  // It says that n1's key is its own.
  api_.Put(resources::kNodes, {{"metadata", {{"name", "a-thief"}}}});
  api_.Put(
      resources::kGpuNodes,
      {{"metadata",
        {{"name", "a-thief"}, {"annotations", {{"baton.dev/public-key", node->PublicKey()}}}}}});
  const auto second = Join("n2");
  EXPECT_TRUE(second->IsUp()) << second->Log() << batond_.Log();
  EXPECT_EQ(Listed().find("\nbad-"), std::string::npos) << Listed();
  EXPECT_EQ(Listed().find("\nn9 "), std::string::npos) << Listed();
  ASSERT_TRUE(IsListed("a-thief " + node->PublicKey()));
  EXPECT_TRUE(node->IsUp()) << node->Log();
  const Json nodes =
      backend::Ask(folder_ / "central/control.sock", {{"command", "status"}}).at("nodes");
  std::set<std::string> names;
  for (const Json& one : nodes) names.insert(one.at("name"));
  EXPECT_EQ(names, (std::set<std::string>{"n1", "n2"}));
}

}  // namespace
}  // namespace baton::k8s
