// batond and a node's relay as processes, joined by ZeroMQ with keys.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zmq.h>

#include <filesystem>
#include <thread>

#include "base/file.h"
#include "net/keys.h"
#include "net/zmq_socket.h"
#include "node/process.h"
#include "tests/backend/daemon_process.h"
#include "tests/backend/scripted_client.h"

namespace baton::backend {
namespace {

using nlohmann::json;
using wire::Phase;

class Central : public testing::Test {
 protected:
  void SetUp() override {
    address_ = "tcp://127.0.0.1:" + std::to_string(FreePort());
    for (const char* name : {"batond", "n0", "stranger"}) {
      ASSERT_TRUE(net::GenerateKeyPair(folder_ / (std::string(name) + ".key")));
    }
    WriteText(folder_ / "batond.toml",
              "[server]\nsocket_dir = \"" + (folder_ / "central") + "\"\nstate_dir = \"" +
                  (folder_ / "state") +
                  "\"\nlog_level = \"debug\"\n[http]\nlisten = \"\"\n[scheduler]\n" +
                  "drain_timeout = \"60s\"\n[zmq]\nlisten = \"" + address_ +
                  "\"\nsecret_key_file = \"" + (folder_ / "batond.key") +
                  "\"\n[zmq.nodes]\nn0 = \"" + Public("n0") + "\"\n");
    WriteNode("n0", "n0");
    ASSERT_TRUE(batond_.Start()) << batond_.Log();
    ASSERT_TRUE(frontend_.Start()) << frontend_.Log();
    ASSERT_TRUE(Eventually([&] { return AskNode({{"command", "ping"}}).value("ok", false); }));
  }
  std::string Public(const std::string& name) {
    return net::ReadKeyPair(folder_ / (name + ".key"))->public_key;
  }
  void WriteNode(const std::string& name, const std::string& key) {
    WriteText(folder_ / (name + "-" + key + ".toml"),
              "[server]\nlock_dir = \"" + (folder_ / ("lock-" + key)) +
                  "\"\nlog_level = \"debug\"\n[node]\nname = \"" + name + "\"\nsocket_dir = \"" +
                  (folder_ / ("run-" + key)) + "\"\n[zmq]\nconnect = \"" + address_ +
                  "\"\nserver_public_key = \"" + Public("batond") + "\"\nsecret_key_file = \"" +
                  (folder_ / (key + ".key")) + "\"\n[[gpu]]\nuuid = \"GPU-n\"\n");
  }
  // With another line in its file.
  void WriteNodeAnd(const std::string& more) {
    WriteNode("n0", "n0");
    const std::string path = folder_ / "n0-n0.toml";
    WriteText(path, ReadText(path) + more);
  }
  json AskCentral(const json& request) { return Ask(folder_ / "central/control.sock", request); }
  json AskNode(const json& request) { return Ask(folder_ / "run-n0/control.sock", request); }
  // The relay does.
  bool SaysCut() { return AskNode({{"command", "ping"}}).value("code", "") == "unavailable"; }
  bool LinkIs(const std::string& state) {
    return Eventually([&] {
      const json status = AskCentral({{"command", "status"}});
      const json nodes = status.value("nodes", json::array());
      return nodes.size() == 1 && nodes[0].at("link") == state;
    });
  }
  std::string Pod(const std::string& name, double request) {
    const json made = AskNode({{"command", "create_pod"}, {"name", name}, {"request", request}});
    EXPECT_TRUE(made.value("ok", false)) << made.dump();
    return made.value("ticket", "");
  }
  json PodStatus(const std::string& name) {
    const json status = AskCentral({{"command", "status"}});
    const json pods = status.value("pods", json::array());
    for (const json& pod : pods) {
      if (pod.at("name") == name) return pod;
    }
    return json::object();
  }
  bool IsWaiting(const std::string& pod) {
    return Eventually([&] { return PodStatus(pod).value("phase", "") == "waiting"; });
  }
  bool IsGranted(ScriptedClient& client) {
    return Eventually([&] { return client.Ask() && client.HasGrantNow(); });
  }
  // Follows what it is told and gives back, until `next`, which says again that it waits (as hooks
  // do when they are asked to), has the token.
  bool HandsOver(ScriptedClient& from, ScriptedClient& next) {
    return Eventually([&] {
      from.HasGrantNow();
      from.GiveBack();
      return next.Ask() && next.HasGrantNow();
    });
  }
  std::string Socket() { return folder_ / "run-n0/baton.sock"; }

  const TempFolder folder_;
  std::string address_;
  DaemonProcess batond_{BATOND, folder_ / "batond.toml", folder_ / "batond.log"};
  DaemonProcess frontend_{FRONTEND, folder_ / "n0-n0.toml", folder_ / "n0.log"};
};

TEST_F(Central, ATokenGoesToTheNodeAndBackAndIsMeasuredThere) {
  ScriptedClient a(Socket()), b(Socket());
  ASSERT_TRUE(a.Join(Pod("a", 50), "GPU-n"));
  ASSERT_TRUE(b.Join(Pod("b", 50), "GPU-n"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant() && a.Report(Phase::kHolding));
  ASSERT_TRUE(b.Ask());
  ASSERT_TRUE(IsWaiting("b"));
  EXPECT_FALSE(b.HasGrantNow());
  EXPECT_TRUE(HandsOver(a, b));
  EXPECT_GT(PodStatus("a").at("held_ns").get<uint64_t>(), 0u);
  EXPECT_EQ(PodStatus("a").at("gpus").at(0).at("node"), "n0");
}

// A relay has nobody who could keep them apart.
TEST_F(Central, OtherVendorsGpusOfANodeAreLeftOut) {
  ASSERT_EQ(frontend_.Stop(), 0);
  WriteNodeAnd(
      "[[gpu]]\nuuid = \"MI-0\"\nname = \"MI300X\"\nvendor = \"amd\"\nenvironment = {X = "
      "\"0\"}\n");
  ASSERT_TRUE(frontend_.Start()) << frontend_.Log();
  ASSERT_TRUE(LinkIs("up"));
  const json status = AskCentral({{"command", "status"}});
  ASSERT_EQ(status.at("gpus").size(), 1u) << status.at("gpus");
  EXPECT_EQ(status.at("gpus")[0].at("uuid"), "GPU-n");
  EXPECT_NE(frontend_.Log().find("1 [[gpu]] of other vendors left out"), std::string::npos);
}

TEST_F(Central, WhoClosesItsSocketWhileItHoldsIsChargedUntilTheRelaySeesItDrain) {
  const std::string ticket = Pod("a", 10);
  ScriptedClient thief(Socket());
  ASSERT_TRUE(thief.Join(ticket, "GPU-n"));
  uint64_t least = 0;
  for (const uint8_t index : {0, 1, 0}) {
    ASSERT_TRUE(thief.AskUntilGranted());
    ASSERT_TRUE(thief.HoldUnseen(Socket(), ticket, "GPU-n", 200, index));
    least += 200'000'000;
    ASSERT_TRUE(Eventually([&] {
      thief.HasGrantNow();
      thief.GiveBack();
      return PodStatus("a").value("phase", "") == "idle";
    }));
    EXPECT_GE(PodStatus("a").at("held_ns").get<uint64_t>(), least);
  }
}

// Who is refused goes on speaking for a moment, and batond asks the relay to say everything again:
// that is no outage in which nobody watched.
TEST_F(Central, AStrangerDoesNotMakeAHoldUnwatched) {
  poll(nullptr, 0, 1'200);  // batond does not ask again that soon
  ScriptedClient thief(Socket()), stranger(Socket());
  ASSERT_TRUE(thief.Join(Pod("a", 10), "GPU-n"));
  ASSERT_TRUE(thief.AskUntilGranted());
  ASSERT_TRUE(stranger.SayHello("0123456789abcdef"));
  stranger.SendAttach(0, "GPU-n");  // it may be closed already
  ASSERT_TRUE(stranger.AwaitClosed());
  poll(nullptr, 0, 300);
  thief.HasGrantNow();
  ++thief.state.epoch;
  thief.state.held_ns = 0;
  ASSERT_TRUE(thief.GiveBack());
  ASSERT_TRUE(Eventually([&] { return PodStatus("a").value("phase", "") == "idle"; }));
  EXPECT_GE(PodStatus("a").at("held_ns").get<uint64_t>(), 300'000'000u);
}

TEST_F(Central, ADeathOnTheNodeMovesTheToken) {
  const std::string ticket = Pod("a", 50);
  ScriptedClient b(Socket());
  ASSERT_TRUE(b.Join(Pod("b", 50), "GPU-n"));
  HolderProcess holder(Socket(), ticket, "GPU-n");
  ASSERT_TRUE(holder.AwaitHolding());
  ASSERT_TRUE(b.Ask());
  ASSERT_TRUE(IsWaiting("b"));
  EXPECT_FALSE(b.HasGrantNow());
  holder.Kill();
  EXPECT_TRUE(b.AwaitGrant());
}

TEST_F(Central, ANodeThatIsNotListedIsRefusedWithTheLineToAdd) {
  WriteNode("n1", "stranger");
  DaemonProcess stranger(FRONTEND, folder_ / "n1-stranger.toml", folder_ / "stranger.log");
  stranger.Start();
  EXPECT_EQ(stranger.Wait(), 1);
  EXPECT_NE(stranger.Log().find("n1 = \"" + Public("stranger") + "\""), std::string::npos)
      << stranger.Log();
  EXPECT_EQ(AskCentral({{"command", "status"}}).at("nodes").size(), 1u);
}

TEST_F(Central, ANodeCannotSpeakForAnother) {
  WriteText(folder_ / "batond.toml",
            ReadText(folder_ / "batond.toml") + "stranger = \"" + Public("stranger") + "\"\n");
  batond_.Signal(SIGHUP);
  ASSERT_TRUE(Eventually(
      [&] { return batond_.Log().find("configuration reloaded") != std::string::npos; }));
  WriteNode("n0", "stranger");
  DaemonProcess stranger(FRONTEND, folder_ / "n0-stranger.toml", folder_ / "stranger.log");
  stranger.Start();
  EXPECT_EQ(stranger.Wait(), 1);
  EXPECT_NE(stranger.Log().find("this key belongs to node stranger"), std::string::npos)
      << stranger.Log();
  EXPECT_TRUE(LinkIs("up"));
}

TEST_F(Central, OfTwoRelaysOfOneNameTheOlderOneEnds) {
  // A copy of the node's configuration and key, on another machine.
  std::string copy = ReadText(folder_ / "n0-n0.toml");
  for (const char* folder : {"lock-n0", "run-n0"}) {
    copy.insert(copy.find(folder) + strlen(folder), "-copy");
  }
  WriteText(folder_ / "copy.toml", copy);
  DaemonProcess other(FRONTEND, folder_ / "copy.toml", folder_ / "copy.log");
  ASSERT_TRUE(other.Start()) << other.Log();
  EXPECT_EQ(frontend_.Wait(), 1);
  EXPECT_NE(frontend_.Log().find("another baton-frontend now acts as node n0"), std::string::npos)
      << frontend_.Log();
  EXPECT_TRUE(LinkIs("up"));
}

TEST_F(Central, ARelaysDeathIsNotItsClientsDeath) {
  const std::string of_a = Pod("a", 50), of_b = Pod("b", 50);
  ScriptedClient a(Socket()), b(Socket());
  ASSERT_TRUE(a.Join(of_a, "GPU-n"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant() && a.Report(Phase::kHolding));
  frontend_.Crash();
  ASSERT_TRUE(frontend_.Start()) << frontend_.Log();
  ASSERT_TRUE(b.Connect(Socket()));
  ASSERT_TRUE(Eventually([&] { return b.Connect(Socket()) && b.Join(of_b, "GPU-n"); }));
  ASSERT_TRUE(b.Ask());
  ASSERT_TRUE(IsWaiting("b"));
  EXPECT_FALSE(b.HasGrantNow());
  ASSERT_TRUE(a.Connect(Socket()));
  ASSERT_TRUE(a.Join(of_a, "GPU-n"));
  ASSERT_TRUE(a.Report(Phase::kHolding));
  EXPECT_TRUE(HandsOver(a, b));
}

TEST_F(Central, AHolderThatDiedTogetherWithItsRelayIsFoundOut) {
  const std::string of_a = Pod("a", 50), of_b = Pod("b", 50);
  HolderProcess holder(Socket(), of_a, "GPU-n");
  ASSERT_TRUE(holder.AwaitHolding());
  frontend_.Crash();
  holder.Kill();
  ASSERT_TRUE(frontend_.Start()) << frontend_.Log();
  ScriptedClient b(Socket());
  ASSERT_TRUE(Eventually([&] { return b.Connect(Socket()) && b.Join(of_b, "GPU-n"); }));
  ASSERT_TRUE(b.Ask());
  EXPECT_TRUE(b.AwaitGrant());
}

TEST_F(Central, WhileTheLinkIsCutNothingMovesAndAfterwardsEverythingGoesOn) {
  ScriptedClient a(Socket()), b(Socket());
  ASSERT_TRUE(a.Join(Pod("a", 50), "GPU-n"));
  ASSERT_TRUE(b.Join(Pod("b", 50), "GPU-n"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant() && a.Report(Phase::kHolding));
  ASSERT_TRUE(b.Ask());
  ASSERT_TRUE(IsWaiting("b"));
  frontend_.Signal(SIGSTOP);
  ASSERT_TRUE(LinkIs("cut"));
  EXPECT_EQ(AskCentral({{"command", "status"}}).at("gpus").at(0).value("holder", ""), "a");
  frontend_.Signal(SIGCONT);
  ASSERT_TRUE(LinkIs("up"));
  EXPECT_TRUE(HandsOver(a, b));
}

TEST_F(Central, AHolderThatDiedWhileTheLinkWasCutIsFoundOut) {
  ScriptedClient b(Socket());
  ASSERT_TRUE(b.Join(Pod("b", 50), "GPU-n"));
  HolderProcess holder(Socket(), Pod("a", 50), "GPU-n");
  ASSERT_TRUE(holder.AwaitHolding());
  batond_.Signal(SIGSTOP);
  ASSERT_TRUE(Eventually([&] { return SaysCut(); }));
  holder.Kill();
  // The relay has seen the end before it hears of batond again.
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(SaysCut());
  batond_.Signal(SIGCONT);
  EXPECT_TRUE(IsGranted(b));
}

// What it said while the link was cut, before it died, is what it is charged for.
TEST_F(Central, WhatWasSaidWhileTheLinkWasCutCountsOfTheDeadToo) {
  const Instant begin = MonotonicNow();
  HolderProcess holder(Socket(), Pod("a", 50), "GPU-n");
  ASSERT_TRUE(holder.AwaitHolding());
  batond_.Signal(SIGSTOP);
  ASSERT_TRUE(Eventually([&] { return SaysCut(); }));
  ASSERT_TRUE(holder.GiveBack());
  const Duration most = MonotonicNow() - begin + std::chrono::seconds(1);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(SaysCut());
  holder.Kill();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  batond_.Signal(SIGCONT);
  ASSERT_TRUE(LinkIs("up"));
  ASSERT_TRUE(Eventually([&] {
    const json gpus = AskCentral({{"command", "status"}}).at("gpus");
    return gpus.at(0).value("holder", "").empty();
  }));
  const auto held = PodStatus("a").at("held_ns").get<int64_t>();
  EXPECT_GT(held, 0);
  EXPECT_LT(held, Nanos(most)) << "charged for a time in which it held nothing";
}

TEST_F(Central, AHolderThatLivesKeepsTheGpuOverACutLink) {
  ScriptedClient b(Socket());
  ASSERT_TRUE(b.Join(Pod("b", 50), "GPU-n"));
  HolderProcess holder(Socket(), Pod("a", 50), "GPU-n");
  ASSERT_TRUE(holder.AwaitHolding());
  batond_.Signal(SIGSTOP);
  ASSERT_TRUE(Eventually([&] { return SaysCut(); }));
  batond_.Signal(SIGCONT);
  ASSERT_TRUE(Eventually([&] { return AskNode({{"command", "ping"}}).value("ok", false); }));
  ASSERT_TRUE(b.Await<wire::Sync>());
  ASSERT_TRUE(
      Eventually([&] { return b.Ask() && PodStatus("b").value("phase", "") == "waiting"; }));
  EXPECT_FALSE(b.HasGrantNow());
  EXPECT_EQ(AskCentral({{"command", "status"}}).at("gpus").at(0).value("holder", ""), "a");
  holder.Kill();
  EXPECT_TRUE(IsGranted(b));
}

TEST_F(Central, WhoHasNoTicketCannotKeepTheGpuFromOthersByClaimingIt) {
  ScriptedClient liar(Socket()), a(Socket());
  wire::Attach attach;
  attach.uuid.Set("GPU-n");
  ASSERT_TRUE(liar.SayHello("0123456789abcdef"));
  // It may be closed before these.
  liar.Send(attach);
  liar.Report(Phase::kHolding);
  ASSERT_TRUE(liar.AwaitClosed());
  ASSERT_TRUE(a.Join(Pod("a", 50), "GPU-n"));
  ASSERT_TRUE(a.Ask());
  EXPECT_TRUE(a.AwaitGrant());
}

TEST_F(Central, AClaimOfAnEpochFarAheadDoesNotMakeLaterGrantsLookOld) {
  ScriptedClient liar(Socket()), a(Socket());
  ASSERT_TRUE(liar.Join(Pod("liar", 50), "GPU-n"));
  ASSERT_TRUE(a.Join(Pod("a", 50), "GPU-n"));
  ASSERT_TRUE(liar.GiveBack());
  liar.state.epoch = ~uint64_t{0} - 1;
  ASSERT_TRUE(liar.Report(Phase::kHolding));
  const auto stop = liar.Await<wire::Token>();
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->quota_ns, 0u);
  ASSERT_TRUE(liar.GiveBack());
  ASSERT_TRUE(a.Ask());
  EXPECT_TRUE(a.AwaitGrant());
}

TEST_F(Central, WhoIsRefusedIsForgottenByTheRelayToo) {
  frontend_.Stop();
  WriteNode("n0", "n0");
  std::string text = ReadText(folder_ / "n0-n0.toml");
  text.insert(text.find("lock_dir"), "clients_per_uid = 4\n");
  WriteText(folder_ / "n0-n0.toml", text);
  ASSERT_TRUE(frontend_.Start()) << frontend_.Log();
  ASSERT_TRUE(Eventually([&] { return AskNode({{"command", "ping"}}).value("ok", false); }));
  const std::string ticket = Pod("a", 50);
  for (uint64_t i = 1; i <= 16; ++i) {
    ScriptedClient stranger(Socket(), i);
    ASSERT_TRUE(stranger.SayHello("0123456789abcdef"));
    if (i % 2 == 0) continue;  // does not wait for the answer
    const auto error = stranger.Await<wire::Error>();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind, wire::ErrorKind::kUnknownPod) << error->text.view();
  }
  ASSERT_TRUE(Eventually([&] {
    ScriptedClient mine(Socket());
    return mine.Join(ticket, "GPU-n");
  }));
}

TEST_F(Central, ARestartedBatondLearnsEverythingFromTheRelay) {
  const std::string of_a = Pod("a", 50), of_b = Pod("b", 50);
  ScriptedClient a(Socket()), b(Socket());
  ASSERT_TRUE(a.Join(of_a, "GPU-n"));
  ASSERT_TRUE(b.Join(of_b, "GPU-n"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant() && a.Report(Phase::kHolding));
  batond_.Crash();
  ASSERT_TRUE(batond_.Start()) << batond_.Log();
  ASSERT_TRUE(a.Await<wire::Sync>());
  ASSERT_TRUE(b.Await<wire::Sync>());
  ASSERT_TRUE(b.Ask());
  ASSERT_TRUE(IsWaiting("b"));
  EXPECT_FALSE(b.HasGrantNow());
  const uint64_t before = a.state.epoch;
  ASSERT_TRUE(a.Report(Phase::kHolding));
  EXPECT_TRUE(HandsOver(a, b));
  EXPECT_GT(b.state.epoch, before);
}

TEST_F(Central, AGpuStaysItsNodesWhoeverNamesItFirstAfterARestart) {
  const std::string ticket = Pod("a", 50);
  frontend_.Stop();
  batond_.Stop();
  WriteText(folder_ / "batond.toml",
            ReadText(folder_ / "batond.toml") + "n1 = \"" + Public("stranger") + "\"\n");
  WriteNode("n1", "stranger");
  DaemonProcess other(FRONTEND, folder_ / "n1-stranger.toml", folder_ / "n1.log");
  ASSERT_TRUE(batond_.Start() && other.Start());
  ASSERT_TRUE(Eventually([&] {
    return AskCentral({{"command", "status"}}).dump().find("GPU-n belongs to node n0") !=
           std::string::npos;
  })) << batond_.Log();
  EXPECT_TRUE(AskCentral({{"command", "status"}}).at("gpus").empty());
  ASSERT_TRUE(frontend_.Start());
  ScriptedClient a(Socket());
  ASSERT_TRUE(Eventually([&] { return a.Connect(Socket()) && a.Join(ticket, "GPU-n"); }));
  EXPECT_TRUE(IsGranted(a));
  // The operator puts it into the other node.
  frontend_.Stop();
  EXPECT_FALSE(AskCentral({{"command", "release"}, {"gpus", {"GPU-x"}}}).value("ok", true));
  EXPECT_TRUE(AskCentral({{"command", "release"}, {"gpus", {"GPU-n"}}}).value("ok", false));
  batond_.Stop();
  ASSERT_TRUE(batond_.Start());
  EXPECT_TRUE(Eventually([&] {
    const json gpus = AskCentral({{"command", "status"}}).value("gpus", json::array());
    return gpus.size() == 1 && gpus[0].at("node") == "n1";
  })) << batond_.Log();
}

TEST_F(Central, AGpuOfANodeThatIsNotListedAnyMoreIsFree) {
  frontend_.Stop();
  batond_.Stop();
  std::string text = ReadText(folder_ / "batond.toml");
  text.erase(text.find("n0 = "));
  WriteText(folder_ / "batond.toml", text + "n1 = \"" + Public("stranger") + "\"\n");
  WriteNode("n1", "stranger");
  DaemonProcess other(FRONTEND, folder_ / "n1-stranger.toml", folder_ / "n1.log");
  ASSERT_TRUE(batond_.Start() && other.Start());
  EXPECT_TRUE(Eventually([&] {
    const json gpus = AskCentral({{"command", "status"}}).value("gpus", json::array());
    return gpus.size() == 1 && gpus[0].at("node") == "n1";
  })) << batond_.Log();
}

TEST_F(Central, UnlistedKeysAreSaidOnceAndCounted) {
  net::ZmqContext context;
  const auto keys = net::ReadKeyPair(folder_ / "stranger.key");
  std::vector<void*> sockets;
  for (int i = 0; i < 50; ++i) {
    void* socket = zmq_socket(context.get(), ZMQ_DEALER);
    const int none = 0;
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    for (const auto& [option, text] : {std::pair(ZMQ_CURVE_SERVERKEY, Public("batond")),
                                       std::pair(ZMQ_CURVE_PUBLICKEY, keys->public_key),
                                       std::pair(ZMQ_CURVE_SECRETKEY, keys->secret_key)}) {
      zmq_setsockopt(socket, option, text.data(), text.size());
    }
    ASSERT_EQ(zmq_connect(socket, address_.c_str()), 0);
    sockets.push_back(socket);
  }
  json status;
  EXPECT_TRUE(Eventually([&] {
    status = AskCentral({{"command", "status"}});
    const std::string degraded = status.at("daemon").at("degraded").dump();
    const size_t at = degraded.find("uses keys that are not in [zmq.nodes] (");
    return at != std::string::npos && std::stoi(degraded.substr(degraded.find('(', at) + 1)) >= 50;
  })) << status.at("daemon");
  int said = 0;
  for (const json& event : status.at("events")) {
    const std::string text = event.at("text");
    said += text.find(keys->public_key) != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(said, 1);
  for (void* socket : sockets) zmq_close(socket);
  EXPECT_TRUE(LinkIs("up"));
}

TEST_F(Central, ConnectionsThatSayNothingLeaveDescriptorsForOthers) {
  // A quarter of these is for the nodes' port.
  const rlimit files{128, 128};
  ASSERT_EQ(prlimit(batond_.pid(), RLIMIT_NOFILE, &files, nullptr), 0);
  sockaddr_in port{};
  port.sin_family = AF_INET;
  port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  port.sin_port = htons(static_cast<uint16_t>(std::stoi(address_.substr(address_.rfind(':') + 1))));
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 200; ++i) {
    silent.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)!connect(silent.back().get(), reinterpret_cast<const sockaddr*>(&port), sizeof port);
  }
  json status;
  EXPECT_TRUE(Eventually([&] {
    status = AskCentral({{"command", "status"}});
    return status.dump().find("serves no more than 32 connections") != std::string::npos;
  })) << status.at("daemon");
  EXPECT_TRUE(Eventually([&] {
    using Entries = std::filesystem::directory_iterator;
    const std::string files = "/proc/" + std::to_string(batond_.pid()) + "/fd";
    return std::distance(Entries(files), Entries()) < 100;
  }));
  EXPECT_TRUE(LinkIs("up"));
  // Those that say nothing are closed after a while: another relay gets through beside them.
  frontend_.Stop();
  ASSERT_TRUE(frontend_.Start());
  EXPECT_TRUE(Eventually([&] {
    const json answer = AskNode({{"command", "ping"}});
    return answer.is_object() && answer.value("ok", false);
  })) << batond_.Log();
}

TEST_F(Central, TheNodesControlSocketIsConfinedToItsNode) {
  Pod("a", 50);
  const json node = AskNode({{"command", "status"}});
  ASSERT_TRUE(node.value("ok", false)) << node.dump();
  EXPECT_EQ(node.at("gpus").at(0).at("uuid"), "GPU-n");
  EXPECT_FALSE(AskNode({{"command", "nonsense"}}).value("ok", true));
  for (const char* command :
       {"report", "standing", "explain", "advise", "whatif", "log", "receipt", "receipt_key"}) {
    EXPECT_EQ(AskNode({{"command", command}}).value("code", ""), "denied") << command;
  }
  batond_.Crash();
  EXPECT_TRUE(Eventually([&] {
    return AskNode({{"command", "ping"}}).value("code", "") == "unavailable";
  }));
}

TEST_F(Central, AClientOverZeroMqIsServedOnlyWithATicketForMeasuring) {
  const std::string pod = Pod("a", 50);
  const json bench = AskCentral({{"command", "bench_ticket"}});
  ASSERT_TRUE(bench.value("ok", false));
  void* context = zmq_ctx_new();
  const auto keys = net::ReadKeyPair(folder_ / "n0.key");
  const auto answer_to = [&](const std::string& ticket) {
    void* dealer = zmq_socket(context, ZMQ_DEALER);
    const int linger = 0, patience = ScriptedClient::kPatienceMs;
    zmq_setsockopt(dealer, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(dealer, ZMQ_RCVTIMEO, &patience, sizeof patience);
    zmq_setsockopt(dealer, ZMQ_CURVE_SERVERKEY, Public("batond").c_str(), 40);
    zmq_setsockopt(dealer, ZMQ_CURVE_PUBLICKEY, keys->public_key.c_str(), 40);
    zmq_setsockopt(dealer, ZMQ_CURVE_SECRETKEY, keys->secret_key.c_str(), 40);
    EXPECT_EQ(zmq_connect(dealer, address_.c_str()), 0);
    wire::Hello hello;
    hello.ticket.Set(ticket);
    hello.incarnation = 4711;
    char buffer[4096];
    const size_t size = wire::Encode(hello, buffer, sizeof buffer);
    EXPECT_EQ(zmq_send(dealer, buffer, size, 0), static_cast<int>(size));
    const int got = zmq_recv(dealer, buffer, sizeof buffer, 0);
    wire::Frame frame;
    const bool parsed =
        got > 0 && frame.Parse(buffer, static_cast<size_t>(got)) == wire::DecodeStatus::kOk;
    const int type = parsed ? frame.type() : 0;
    zmq_close(dealer);
    return type;
  };
  EXPECT_EQ(answer_to(pod), wire::Error::kType);
  EXPECT_EQ(answer_to(bench.at("ticket")), wire::Welcome::kType);
  zmq_ctx_term(context);
}

}  // namespace
}  // namespace baton::backend
