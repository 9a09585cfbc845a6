// The keys of a link as files that come, change and go while batond and the node's daemon run, as
// baton-k8s brings them.
#include <gtest/gtest.h>
#include <signal.h>
#include <zmq.h>

#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "net/keys.h"
#include "tests/backend/daemon_process.h"

namespace baton::backend {
namespace {

using nlohmann::json;

class LinkKeys : public testing::Test {
 protected:
  void SetUp() override {
    address_ = "tcp://127.0.0.1:" + std::to_string(FreePort());
    for (const char* name : {"central", "n0", "n1"}) Make(name);
    WriteText(folder_ / "batond.toml",
              "[server]\nsocket_dir = \"" + (folder_ / "central") + "\"\nstate_dir = \"" +
                  (folder_ / "state") + "\"\n[http]\nlisten = \"\"\n[ledger]\nevery = \"1s\"\n" +
                  "[zmq]\nlisten = \"" + address_ + "\"\nsecret_key_file = \"" +
                  (folder_ / "central.key") + "\"\nnodes_file = \"" + (folder_ / "nodes") + "\"\n");
    WriteText(folder_ / "n0.toml", OfNode("n0") + "[zmq]\nconnect = \"" + address_ +
                                       "\"\nserver_public_key_file = \"" +
                                       (folder_ / "central.pub") + "\"\nsecret_key_file = \"" +
                                       (folder_ / "n0.key") + "\"\n[[gpu]]\nuuid = \"GPU-n\"\n");
    WriteText(folder_ / "n1.toml",
              OfNode("n1") + "[http]\nlisten = \"\"\n[ledger]\nevery = \"1s\"\n" +
                  "[upstream]\nconnect = \"" + address_ + "\"\nserver_public_key_file = \"" +
                  (folder_ / "central.pub") + "\"\n[zmq]\nsecret_key_file = \"" +
                  (folder_ / "n1.key") + "\"\n[[gpu]]\nuuid = \"GPU-m\"\n");
  }
  std::string OfNode(const std::string& name) {
    return "[server]\nlock_dir = \"" + (folder_ / ("lock-" + name)) + "\"\nstate_dir = \"" +
           (folder_ / ("state-" + name)) + "\"\nsocket_dir = \"" + (folder_ / ("run-" + name)) +
           "\"\n[node]\nname = \"" + name + "\"\n";
  }
  void Make(const std::string& name) {
    std::filesystem::remove(folder_ / (name + ".key"));
    ASSERT_TRUE(net::GenerateKeyPair(folder_ / (name + ".key")));
  }
  std::string Public(const std::string& name) {
    return *net::ReadPublicKey(folder_ / (name + ".key.pub"));
  }
  // As baton-k8s does: whole or not at all.
  void Put(const std::string& file, const std::string& text) {
    WriteText(folder_ / (file + ".new"), text);
    std::filesystem::rename(folder_ / (file + ".new"), folder_ / file);
  }
  void TellCentralsKey() { Put("central.pub", Public("central") + "\n"); }
  void List(const std::vector<std::string>& nodes) {
    std::string text = "# Nodes that may connect\n\n";
    for (const std::string& name : nodes) text += name + " " + Public(name) + "\n";
    Put("nodes", text);
  }
  bool IsUp() {
    return Eventually([&] {
      return Ask(folder_ / "run-n0/control.sock", {{"command", "ping"}}).value("ok", false);
    });
  }
  bool IsCut() {
    return Eventually([&] {
      const json said = Ask(folder_ / "run-n0/control.sock", {{"command", "ping"}});
      return said.is_object() && said.value("code", "") == "unavailable";
    });
  }

  const TempFolder folder_;
  std::string address_;
  DaemonProcess batond_{BATOND, folder_ / "batond.toml", folder_ / "batond.log"};
  DaemonProcess frontend_{FRONTEND, folder_ / "n0.toml", folder_ / "n0.log"};
  DaemonProcess federated_{BATOND, folder_ / "n1.toml", folder_ / "n1.log"};
};

TEST_F(LinkKeys, ComeOneAfterAnotherWhileBothSidesRun) {
  ASSERT_TRUE(batond_.Start()) << batond_.Log();
  ASSERT_TRUE(frontend_.Start()) << frontend_.Log();
  EXPECT_TRUE(IsCut());
  TellCentralsKey();
  // It is refused, says so, and goes on trying.
  EXPECT_TRUE(Eventually([&] {
    return frontend_.Log().find("refuses this node's key") != std::string::npos;
  })) << frontend_.Log();
  EXPECT_TRUE(IsCut());
  List({"n0"});
  EXPECT_TRUE(IsUp()) << frontend_.Log() << batond_.Log();
  // One more, and none that was there is troubled.
  List({"n0", "n1"});
  ASSERT_TRUE(federated_.Start()) << federated_.Log();
  EXPECT_TRUE(Eventually([&] {
    return batond_.Log().find("node n1 sends its usage") != std::string::npos;
  })) << batond_.Log();
  EXPECT_EQ(batond_.Log().find("is cut"), std::string::npos) << batond_.Log();
}

TEST_F(LinkKeys, ANodeWithoutTheCentralsKeySharesItsGpusAndSendsItsUsageLater) {
  ASSERT_TRUE(federated_.Start()) << federated_.Log();
  const std::string control = folder_ / "run-n1/control.sock";
  EXPECT_TRUE(
      Ask(control, {{"command", "create_pod"}, {"name", "a"}, {"request", 30}}).value("ok", false));
  EXPECT_TRUE(Eventually([&] {
    const json status = Ask(control, {{"command", "status"}});
    return status.at("daemon").at("degraded").dump().find("no public key yet") != std::string::npos;
  }));
  ASSERT_TRUE(batond_.Start()) << batond_.Log();
  TellCentralsKey();
  List({"n1"});
  EXPECT_TRUE(Eventually([&] {
    return batond_.Log().find("node n1 sends its usage") != std::string::npos;
  })) << batond_.Log();
}

TEST_F(LinkKeys, BatondsNewPairIsFollowedWithoutARestart) {
  TellCentralsKey();
  List({"n0"});
  ASSERT_TRUE(batond_.Start() && frontend_.Start());
  ASSERT_TRUE(IsUp());
  batond_.Stop();
  Make("central");  // its volume was lost
  ASSERT_TRUE(batond_.Start()) << batond_.Log();
  EXPECT_TRUE(IsCut());
  TellCentralsKey();
  EXPECT_TRUE(IsUp()) << frontend_.Log();
  EXPECT_EQ(kill(frontend_.pid(), 0), 0);
}

TEST_F(LinkKeys, ANodeThatListsAnothersKeyAsItsOwnGainsNothing) {
  TellCentralsKey();
  // "a-thief" comes before n0, and "thief" after it.
  Put("nodes",
      "a-thief " + Public("n0") + "\nn0 " + Public("n0") + "\nthief " + Public("n0") + "\n");
  ASSERT_TRUE(batond_.Start() && frontend_.Start());
  EXPECT_TRUE(IsUp()) << frontend_.Log() << batond_.Log();
  const json nodes = Ask(folder_ / "central/control.sock", {{"command", "status"}}).at("nodes");
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0].at("name"), "n0");
}

TEST_F(LinkKeys, ANodeThatIsTakenOffTheListIsCutOffAndBackWhenItIsListedAgain) {
  TellCentralsKey();
  List({"n0", "n1"});
  ASSERT_TRUE(batond_.Start() && frontend_.Start());
  ASSERT_TRUE(IsUp());
  List({"n1"});
  EXPECT_TRUE(IsCut()) << batond_.Log();
  List({"n0", "n1"});
  EXPECT_TRUE(IsUp()) << frontend_.Log() << batond_.Log();
}

TEST_F(LinkKeys, ANodeThatARestartedBatondDoesNotKnowYetIsTakenOnceItDoes) {
  TellCentralsKey();
  List({"n0"});
  ASSERT_TRUE(batond_.Start() && frontend_.Start());
  ASSERT_TRUE(IsUp());
  batond_.Stop();
  List({"n1"});
  ASSERT_TRUE(batond_.Start());
  EXPECT_TRUE(Eventually([&] {
    return batond_.Log().find("its key " + Public("n0")) != std::string::npos;
  })) << batond_.Log();
  List({"n0", "n1"});
  EXPECT_TRUE(IsUp()) << frontend_.Log() << batond_.Log();
}

TEST_F(LinkKeys, AListThatCannotBeReadChangesNothing) {
  TellCentralsKey();
  List({"n0"});
  ASSERT_TRUE(batond_.Start() && frontend_.Start());
  ASSERT_TRUE(IsUp());
  Put("nodes", "n0 short\n");
  EXPECT_TRUE(Eventually([&] {
    return batond_.Log().find("nodes:1: a line is the name of a node") != std::string::npos;
  })) << batond_.Log();
  std::filesystem::remove(folder_ / "nodes");
  frontend_.Stop();
  ASSERT_TRUE(frontend_.Start());
  EXPECT_TRUE(IsUp()) << batond_.Log();
}

TEST(PublicKey, IsWhatZeroMqTakesForOne) {
  std::mt19937 random(7);
  int keys = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = "HelloWorldHelloWorldHelloWorldHelloWorld";
    for (int n = i % 4; n > 0; --n) text[random() % 40] = static_cast<char>(0x20 + random() % 0x5f);
    uint8_t bytes[32];
    const bool is = zmq_z85_decode(bytes, text.c_str()) != nullptr;
    keys += is ? 1 : 0;
    ASSERT_EQ(net::IsPublicKey(text), is) << text;
  }
  EXPECT_GT(keys, 5'000);
  EXPECT_LT(keys, 19'000);
  for (const size_t length : {size_t{0}, size_t{35}, size_t{39}, size_t{41}, size_t{45}}) {
    EXPECT_FALSE(net::IsPublicKey(std::string(length, '0')));
  }
}

TEST_F(LinkKeys, APairIsKeptAndADamagedOneMadeAnew) {
  const std::string path = folder_ / "kept.key";
  const auto first = net::KeepKeyPair(path);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(*first);
  const std::string key = *net::ReadPublicKey(path + ".pub");
  WriteText(path + ".pub", "lost\n");
  const auto again = net::KeepKeyPair(path);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_FALSE(*again);
  EXPECT_EQ(*net::ReadPublicKey(path + ".pub"), key);
  WriteText(path, "");  // as a crash of the machine may leave a file
  ASSERT_TRUE(net::KeepKeyPair(path).value_or(false));
  EXPECT_TRUE(std::filesystem::exists(path + ".damaged"));
  EXPECT_NE(*net::ReadPublicKey(path + ".pub"), key);
  EXPECT_EQ(net::ReadKeyPair(path)->public_key, *net::ReadPublicKey(path + ".pub"));
}

TEST_F(LinkKeys, OfManyThatMakeAPairAtOnceAllHaveTheSame) {
  for (int round = 0; round < 20; ++round) {
    const std::string path = folder_ / ("many-" + std::to_string(round));
    std::vector<std::thread> threads;
    std::vector<std::string> keys(8);
    for (std::string& key : keys) {
      threads.emplace_back([&] {
        if (net::KeepKeyPair(path)) key = net::ReadKeyPair(path)->public_key;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()),
              std::set<std::string>{*net::ReadPublicKey(path + ".pub")});
  }
}

}  // namespace
}  // namespace baton::backend
