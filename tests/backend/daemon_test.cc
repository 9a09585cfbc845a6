// batond as a process, spoken to by clients that say exactly what a test wants.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "backend/process.h"
#include "base/time.h"
#include "tests/backend/daemon_process.h"
#include "tests/backend/scripted_client.h"

namespace baton::backend {
namespace {

using nlohmann::json;
using wire::ErrorKind;
using wire::Phase;

class Batond : public testing::Test {
 protected:
  void SetUp() override {
    Configure("");
    ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  }
  void Configure(const std::string& more) {
    WriteText(folder_ / "batond.toml",
              "[server]\nsocket_dir = \"" + (folder_ / "run") + "\"\nstate_dir = \"" +
                  (folder_ / "state") + "\"\nlock_dir = \"" + (folder_ / "lock") +
                  "\"\nlog_level = \"debug\"\n[http]\nlisten = \"\"\n[scheduler]\n" +
                  "drain_timeout = \"60s\"\n" +
                  "[[gpu]]\nuuid = \"GPU-a\"\n[[gpu]]\nuuid = \"GPU-b\"\n" + more);
  }
  // Starts it again with the operator's socket in a folder of its own.
  bool StartWithControlDir() {
    daemon_.Stop();
    // Its line is one of [server].
    std::string text = *ReadFile(folder_ / "batond.toml", 4096);
    text.insert(text.find("state_dir"), "control_dir = \"" + (folder_ / "operator") + "\"\n");
    WriteText(folder_ / "batond.toml", text);
    return daemon_.Start();
  }
  json Say(const json& request) { return Ask(folder_ / "run/control.sock", request); }
  // The ticket of a new pod.
  std::string Pod(const std::string& name, double request, json more = json::object()) {
    more.update({{"command", "create_pod"}, {"name", name}, {"request", request}});
    if (!more.contains("gpus")) more["gpus"] = {"GPU-a"};
    const json answer = Say(more);
    EXPECT_TRUE(answer.value("ok", false)) << answer.dump();
    return answer.value("ticket", "");
  }
  std::string Socket() { return folder_ / "run/baton.sock"; }
  json Status() { return Say({{"command", "status"}}); }
  json PodStatus(const std::string& name) {
    const json status = Status();
    for (const json& pod : status.at("pods")) {
      if (pod.at("name") == name) return pod;
    }
    return json::object();
  }
  std::string Holder(const std::string& uuid = "GPU-a") {
    const json status = Status();
    for (const json& gpu : status.at("gpus")) {
      if (gpu.at("uuid") == uuid) return gpu.value("holder", "");
    }
    return "?";
  }
  std::string PhaseOf(const std::string& pod) { return PodStatus(pod).value("phase", "?"); }
  // The client gives back, as one does that follows what it is told, until its pod holds no more.
  bool GivesBack(ScriptedClient& client, const std::string& pod) {
    return Eventually([&] {
      client.HasGrantNow();
      client.GiveBack();
      return Holder() != pod;
    });
  }
  // The daemon has taken in that the pod waits.
  bool IsWaiting(const std::string& pod) {
    return Eventually([&] { return PhaseOf(pod) == "waiting"; });
  }

  const TempFolder folder_;
  DaemonProcess daemon_{BATOND, folder_ / "batond.toml", folder_ / "batond.log"};
};

TEST_F(Batond, GivesTheTokenToTheClientThatAsks) {
  ScriptedClient client(Socket());
  ASSERT_TRUE(client.Join(Pod("a", 50), "GPU-a"));
  EXPECT_TRUE(client.attached->gated);
  EXPECT_FALSE(client.HasGrantNow());
  ASSERT_TRUE(client.Ask());
  const auto token = client.AwaitGrant();
  ASSERT_TRUE(token);
  EXPECT_GT(token->quota_ns, 0u);
  EXPECT_EQ(Holder(), "a");
}

TEST_F(Batond, GivesTheTokenOnOnlyWhenTheHolderHasDrained) {
  ScriptedClient a(Socket()), b(Socket());
  ASSERT_TRUE(a.Join(Pod("a", 50), "GPU-a"));
  ASSERT_TRUE(b.Join(Pod("b", 50), "GPU-a"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant() && a.Report(Phase::kHolding));
  ASSERT_TRUE(b.Ask());
  ASSERT_TRUE(IsWaiting("b"));
  // The quota ends: the holder is told to drain, and still nobody else is granted anything.
  ASSERT_TRUE(a.AwaitGateClosed());
  ASSERT_TRUE(a.Report(Phase::kDraining));
  ASSERT_TRUE(Eventually([&] { return PhaseOf("a") == "draining"; }));
  EXPECT_FALSE(b.HasGrantNow());
  ASSERT_TRUE(GivesBack(a, "a"));
  EXPECT_TRUE(b.AwaitGrant());
  EXPECT_GT(b.state.epoch, a.state.epoch);
}

TEST_F(Batond, AReturnThatNamesNoGrantDoesNotEndTheMeasuring) {
  ScriptedClient a(Socket());
  ASSERT_TRUE(a.Join(Pod("a", 50), "GPU-a"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant());
  ASSERT_EQ(Holder(), "a");  // by now the daemon measures
  const Instant granted = MonotonicNow();
  // "I wait" about the token itself, but as if it had not been seen: it holds on all the while.
  const uint64_t rev = std::exchange(a.state.rev, 0);
  ASSERT_TRUE(a.Ask());
  a.state.rev = rev;
  ASSERT_TRUE(a.Report(Phase::kHolding));
  ASSERT_TRUE(a.AwaitGrant());  // it is extended
  const auto held = static_cast<uint64_t>(Nanos(MonotonicNow() - granted));
  ASSERT_TRUE(GivesBack(a, "a"));
  EXPECT_GE(PodStatus("a").at("held_ns").get<uint64_t>(), held);
}

TEST_F(Batond, TwoGpusDoNotWaitForEachOther) {
  ScriptedClient a(Socket()), b(Socket());
  ASSERT_TRUE(a.Join(Pod("a", 50), "GPU-a"));
  ASSERT_TRUE(b.Join(Pod("b", 50, {{"gpus", {"GPU-b"}}}), "GPU-b"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant());
  ASSERT_TRUE(b.Ask());
  EXPECT_TRUE(b.AwaitGrant());
}

TEST_F(Batond, AnswersEachBrokenFrameWithOneErrorAndNobodyElseNotices) {
  ScriptedClient good(Socket());
  const std::string ticket = Pod("a", 50);
  ASSERT_TRUE(good.Join(ticket, "GPU-a"));
  wire::Hello hello;
  hello.ticket.Set(ticket);
  hello.incarnation = 5;
  char frame[512];
  const size_t size = wire::Encode(hello, frame, sizeof frame);
  std::string foreign(frame, size);
  foreign[1] = wire::kVersion + 2;
  std::string hook_says_token;
  hook_says_token.resize(64);
  hook_says_token.resize(wire::Encode(wire::Token{}, hook_says_token.data(), 64));
  const struct {
    std::string bytes;
    ErrorKind kind;
  } cases[] = {
      {"hello", ErrorKind::kMalformed},
      {std::string("\x93\x01\x01", 3), ErrorKind::kMalformed},
      {foreign, ErrorKind::kVersion},
      {std::string(wire::kTenantFrameMax + 1, 'x'), ErrorKind::kLimit},
      {hook_says_token, ErrorKind::kProtocol},
  };
  for (const auto& c : cases) {
    ScriptedClient bad(Socket());
    ASSERT_TRUE(bad.SendRaw(c.bytes));
    const auto error = bad.Await<wire::Error>();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind, c.kind) << error->text.view();
    EXPECT_FALSE(error->text.view().empty());
    EXPECT_TRUE(bad.AwaitClosed());
  }
  ASSERT_TRUE(good.Ask());
  EXPECT_TRUE(good.AwaitGrant());
}

TEST_F(Batond, AFrameOfMebibytesIsRefused) {
  ScriptedClient bad(Socket());
  const int room = 32 << 20;
  setsockopt(bad.fd(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
  // The kernel has a bound of its own: the longest that it passes on.
  size_t size = 10 << 20;
  while (!bad.SendRaw(std::string(size, 'x'))) size /= 2;
  ASSERT_GT(size, 8 * wire::kTenantFrameMax);
  const auto error = bad.Await<wire::Error>();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind, ErrorKind::kLimit);
  EXPECT_TRUE(bad.AwaitClosed());
}

TEST_F(Batond, RefusesWhoHasNoBusinessHere) {
  const std::string ticket = Pod("a", 50);
  const std::string others = Pod("b", 50, {{"gpus", {"GPU-b"}}});
  ScriptedClient stranger(Socket());
  ASSERT_TRUE(stranger.SayHello("0123456789abcdef"));
  EXPECT_EQ(stranger.Await<wire::Error>()->kind, ErrorKind::kUnknownPod);
  EXPECT_TRUE(stranger.AwaitClosed());
  ScriptedClient elsewhere(Socket());
  ASSERT_TRUE(elsewhere.SayHello(others) && elsewhere.Await<wire::Welcome>());
  wire::Attach attach;
  attach.uuid.Set("GPU-a");
  ASSERT_TRUE(elsewhere.Send(attach));
  EXPECT_EQ(elsewhere.Await<wire::Error>()->kind, ErrorKind::kUnknownGpu);
  ScriptedClient hasty(Socket());
  ASSERT_TRUE(hasty.SayHello(ticket) && hasty.Await<wire::Welcome>() && hasty.Ask());
  EXPECT_EQ(hasty.Await<wire::Error>()->kind, ErrorKind::kProtocol);
}

TEST_F(Batond, ATicketIsOnlyGoodForItsUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  const std::string ticket = Pod("a", 50, {{"uid", 1234}});
  const auto joins_as = [&](uid_t uid) {
    const pid_t child = fork();
    if (child == 0) {
      if (setuid(uid) != 0) _exit(2);
      ScriptedClient client(Socket(), 99);
      _exit(client.Join(ticket, "GPU-a") ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  chmod(folder_.path().c_str(), 0755);
  EXPECT_EQ(joins_as(1234), 0);
  EXPECT_EQ(joins_as(1235), 1);
}

TEST_F(Batond, TwoProcessesDoNotShareAnIncarnation) {
  const std::string ticket = Pod("a", 50);
  ScriptedClient first(Socket(), 99);
  ASSERT_TRUE(first.Join(ticket, "GPU-a"));
  const pid_t child = fork();
  if (child == 0) {
    ScriptedClient second(Socket(), 99);
    const bool refused = second.SayHello(ticket) && second.Await<wire::Error>().has_value();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "the counters of both would be one";
}

TEST_F(Batond, AKilledHolderMakesRoomForTheNext) {
  const std::string a = Pod("a", 50);
  ScriptedClient b(Socket());
  ASSERT_TRUE(b.Join(Pod("b", 50), "GPU-a"));
  HolderProcess holder(Socket(), a, "GPU-a");
  ASSERT_TRUE(holder.AwaitHolding());
  ASSERT_TRUE(b.Ask());
  ASSERT_TRUE(IsWaiting("b"));
  EXPECT_FALSE(b.HasGrantNow());
  holder.Kill();
  EXPECT_TRUE(b.AwaitGrant());
}

TEST_F(Batond, AClosedSocketIsNoProofThatTheHolderIsGone) {
  const std::string ticket = Pod("a", 50);
  ScriptedClient a(Socket()), b(Socket());
  ASSERT_TRUE(a.Join(ticket, "GPU-a"));
  ASSERT_TRUE(b.Join(Pod("b", 50), "GPU-a"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant() && a.Report(Phase::kHolding));
  a.Close();
  ASSERT_TRUE(b.Ask());
  ASSERT_TRUE(
      Eventually([&] { return !PodStatus("a").at("clients").at(0).at("connected").get<bool>(); }));
  ASSERT_TRUE(IsWaiting("b"));
  EXPECT_EQ(Holder(), "a");
  EXPECT_FALSE(b.HasGrantNow());
  // It comes back as what it was, and drains.
  ASSERT_TRUE(a.Connect(Socket()));
  ASSERT_TRUE(a.Join(ticket, "GPU-a"));
  ASSERT_TRUE(a.Report(Phase::kHolding));
  a.HasGrantNow();
  ASSERT_TRUE(Eventually([&] {
    a.HasGrantNow();  // follows what it is told
    a.GiveBack();
    return b.HasGrantNow();
  }));
  EXPECT_EQ(Status().at("clients").size(), 2u);
}

TEST_F(Batond, WhoClosesItsSocketWhileItHoldsIsChargedUntilItIsSeenToDrain) {
  Configure("");
  for (const bool kills : {false, true}) {
    if (kills) {
      ASSERT_EQ(daemon_.Stop(), 0);
      std::string text = ReadText(folder_ / "batond.toml");
      text.replace(text.find("drain_timeout"), 0, "drain_action = \"kill\"\n");
      WriteText(folder_ / "batond.toml", text);
      ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
    }
    const std::string name = kills ? "b" : "a";
    const std::string ticket = Pod(name, 10);
    ScriptedClient thief(Socket(), kills ? 2 : 1);
    ASSERT_TRUE(thief.Join(ticket, "GPU-a"));
    uint64_t least = 0;
    for (const uint8_t index : {0, 1, 0}) {  // of its own choice, on each connection
      ASSERT_TRUE(thief.Ask() && thief.AwaitGrant());
      ASSERT_TRUE(thief.HoldUnseen(Socket(), ticket, "GPU-a", 200, index));
      least += 200'000'000;
      ASSERT_TRUE(Eventually([&] { return PhaseOf(name) == "idle"; }));
      EXPECT_GE(PodStatus(name).at("held_ns").get<uint64_t>(), least);
    }
    EXPECT_TRUE(Say({{"command", "delete_pod"}, {"name", name}}).at("ok"));
  }
}

// A State that is not taken for the end of the hold must not end the measuring: one that is older
// than another, and one that does not name the last word about its token.
TEST_F(Batond, WhatDoesNotEndAHoldDoesNotEndItsMeasuring) {
  const std::string of_b = Pod("b", 50, {{"priority", "high"}});
  for (const bool old_state : {true, false}) {
    const std::string name = old_state ? "a1" : "a2";
    ScriptedClient a(Socket(), old_state ? 1 : 2), b(Socket(), old_state ? 3 : 4);
    ASSERT_TRUE(a.Join(Pod(name, 10), "GPU-a"));
    ASSERT_TRUE(b.Join(of_b, "GPU-a"));
    ASSERT_TRUE(a.Ask() && a.AwaitGrant() && a.Report(Phase::kHolding));
    wire::State early = a.state;
    early.phase = Phase::kWaiting;
    ASSERT_TRUE(b.Ask());
    ASSERT_TRUE(a.AwaitGateClosed());
    if (old_state) {
      early = a.state;
      early.phase = Phase::kWaiting;
      early.seq = 0;
    } else {
      early.seq = ++a.state.seq;
    }
    ASSERT_TRUE(a.Send(early));
    poll(nullptr, 0, 300);
    ASSERT_TRUE(GivesBack(a, name));
    EXPECT_GE(PodStatus(name).at("held_ns").get<uint64_t>(), 300'000'000u) << name;
    ASSERT_TRUE(GivesBack(b, "b"));
  }
}

TEST_F(Batond, AGpuHasOneIndex) {
  const std::string ticket = Pod("a", 50, {{"gpus", {"GPU-a", "GPU-b"}}, {"independent", true}});
  ScriptedClient a(Socket());
  ASSERT_TRUE(a.Join(ticket, "GPU-a"));
  ASSERT_TRUE(a.SendAttach(0, "GPU-a") && a.Await<wire::Attached>()) << "said again";
  ASSERT_TRUE(a.SendAttach(1, "GPU-b") && a.Await<wire::Attached>());
  ASSERT_TRUE(a.SendAttach(2, "GPU-a"));
  const auto error = a.Await<wire::Error>();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind, ErrorKind::kProtocol);
  EXPECT_TRUE(a.AwaitClosed());
  ASSERT_TRUE(a.Connect(Socket()));
  EXPECT_TRUE(a.Join(ticket, "GPU-a", 2)) << "on a new connection it may be another";
}

TEST_F(Batond, AHugeEpochThatSomebodyClaimsStopsNobodyAfterARestart) {
  const std::string of_liar = Pod("liar", 50), of_a = Pod("a", 50);
  ScriptedClient liar(Socket()), a(Socket());
  ASSERT_TRUE(liar.Join(of_liar, "GPU-a"));
  ASSERT_TRUE(a.Join(of_a, "GPU-a"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant() && GivesBack(a, "a"));
  const uint64_t before = a.state.epoch;
  const uint64_t honest = liar.state.epoch;
  liar.state.epoch = (uint64_t{1} << 62) - 1;
  ASSERT_TRUE(liar.Report(Phase::kHolding));
  ASSERT_TRUE(Eventually([&] { return Holder() == "liar"; }));
  daemon_.Crash();
  liar.Close();
  liar.state.epoch = honest;
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  ASSERT_TRUE(liar.Connect(Socket()) && liar.Join(of_liar, "GPU-a") && GivesBack(liar, "liar"));
  ASSERT_TRUE(a.Connect(Socket()) && a.Join(of_a, "GPU-a"));
  ASSERT_TRUE(a.Ask());
  const auto token = a.AwaitGrant();
  ASSERT_TRUE(token);
  EXPECT_GT(token->epoch, before) << "a hook would take a lower one for old";
  EXPECT_LT(token->epoch, uint64_t{1} << 61);
}

TEST_F(Batond, AClientThatDoesNotReadIsDisconnected) {
  const std::string ticket = Pod("a", 50);
  ScriptedClient deaf(Socket());
  ASSERT_TRUE(deaf.Join(ticket, "GPU-a"));
  wire::Attach attach;
  attach.uuid.Set("GPU-a");
  // Each is answered; the answers fill its socket, then the daemon's patience.
  bool closed = false;
  for (int i = 0; i < 100'000 && !closed; ++i) closed = !deaf.Send(attach);
  EXPECT_TRUE(closed);
  ScriptedClient other(Socket(), 77);
  EXPECT_TRUE(other.Join(ticket, "GPU-a"));
}

TEST_F(Batond, OfTwoProcessesThatRaceForTheLastMemoryOneIsRefused) {
  const std::string ticket = Pod("a", 50, {{"memory", 100}});
  ScriptedClient a(Socket()), b(Socket());
  ASSERT_TRUE(a.Join(ticket, "GPU-a"));
  ASSERT_TRUE(b.Join(ticket, "GPU-a"));
  EXPECT_EQ(a.attached->memory_cap, 100u);
  const auto ask = [](ScriptedClient& client, uint64_t request, uint64_t total) {
    wire::Memory memory;
    memory.request = request;
    memory.total = total;
    return client.Send(memory);
  };
  ASSERT_TRUE(ask(a, 1, 60) && ask(b, 1, 60));
  const auto of_a = a.Await<wire::MemoryReply>();
  const auto of_b = b.Await<wire::MemoryReply>();
  ASSERT_TRUE(of_a && of_b);
  EXPECT_NE(of_a->granted, of_b->granted);
  EXPECT_EQ(PodStatus("a").at("memory_used"), 60);
  ScriptedClient& winner = of_a->granted ? a : b;
  ScriptedClient& loser = of_a->granted ? b : a;
  // A total asked for again counts once; one that shrinks is always granted; sums do not wrap.
  ASSERT_TRUE(ask(winner, 1, 60));
  EXPECT_EQ(winner.Await<wire::MemoryReply>()->pod_used, 60u);
  ASSERT_TRUE(ask(loser, 2, UINT64_MAX));
  EXPECT_FALSE(loser.Await<wire::MemoryReply>()->granted);
  ASSERT_TRUE(ask(winner, 2, 40));
  EXPECT_TRUE(winner.Await<wire::MemoryReply>()->granted);
  ASSERT_TRUE(ask(loser, 3, 60));
  EXPECT_TRUE(loser.Await<wire::MemoryReply>()->granted);
}

TEST_F(Batond, ADeadProcessFreesItsMemory) {
  const std::string ticket = Pod("a", 50, {{"memory", 100}});
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    ScriptedClient client(Socket(), 5);
    wire::Memory memory;
    memory.request = 1;
    memory.total = 100;
    char told = 'n';
    if (client.Join(ticket, "GPU-a") && client.Send(memory)) {
      const auto reply = client.Await<wire::MemoryReply>();
      told = reply && reply->granted ? 'y' : 'n';
    }
    if (write(ends[1], &told, 1) != 1) _exit(1);
    while (true) pause();
  }
  char told = 'n';
  ASSERT_EQ(read(ends[0], &told, 1), 1);
  EXPECT_EQ(told, 'y');
  EXPECT_EQ(PodStatus("a").at("memory_used"), 100);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(Eventually([&] { return PodStatus("a").at("memory_used") == 0; }));
  close(ends[0]);
  close(ends[1]);
}

TEST_F(Batond, AfterACrashNothingIsGrantedUntilTheLastHolderCameBackAndDrained) {
  const std::string ticket = Pod("a", 50);
  const std::string others = Pod("b", 50);
  ScriptedClient a(Socket()), b(Socket());
  ASSERT_TRUE(a.Join(ticket, "GPU-a"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant() && a.Report(Phase::kHolding));
  daemon_.Crash();
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  ASSERT_TRUE(b.Connect(Socket()));
  ASSERT_TRUE(b.Join(others, "GPU-a"));
  ASSERT_TRUE(b.Ask());
  ASSERT_TRUE(IsWaiting("b"));
  EXPECT_EQ(Holder(), "a");
  EXPECT_FALSE(b.HasGrantNow());
  ASSERT_TRUE(a.Connect(Socket()));
  ASSERT_TRUE(a.Join(ticket, "GPU-a"));
  EXPECT_FALSE(b.HasGrantNow());
  ASSERT_TRUE(Eventually([&] {
    a.HasGrantNow();
    a.GiveBack();
    return b.HasGrantNow();
  }));
  EXPECT_GT(b.state.epoch, a.state.epoch);
}

TEST_F(Batond, AfterACrashAProcessHearsOnlyOfTheGpusThatItHasNamedAgain) {
  // So that the epochs of the two GPUs differ.
  ScriptedClient single(Socket());
  ASSERT_TRUE(single.Join(Pod("single", 10), "GPU-a"));
  ASSERT_TRUE(single.Ask() && single.AwaitGrant() && GivesBack(single, "single"));

  const std::string ticket = Pod("gang", 50, {{"gpus", {"GPU-a", "GPU-b"}}});
  ScriptedClient gang(Socket());
  ASSERT_TRUE(gang.Join(ticket, "GPU-b"));  // its GPU 0
  wire::Attach attach;
  attach.gpu = 1;
  attach.uuid.Set("GPU-a");
  ASSERT_TRUE(gang.Send(attach) && gang.Await<wire::Attached>());
  wire::State on_a;
  on_a.gpu = 1;
  on_a.phase = Phase::kWaiting;
  on_a.seq = 1;
  ASSERT_TRUE(gang.Ask() && gang.Send(on_a));
  std::array<uint64_t, 2> epochs{};
  while (epochs[0] == 0 || epochs[1] == 0) {
    const auto token = gang.Await<wire::Token>();
    ASSERT_TRUE(token && token->gpu < 2);
    epochs[token->gpu] = token->epoch;
    if (token->gpu == 0) gang.state.rev = token->rev;
  }
  ASSERT_NE(epochs[0], epochs[1]);
  gang.state.epoch = epochs[0];
  ASSERT_TRUE(gang.Report(Phase::kHolding));

  daemon_.Crash();
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  ASSERT_TRUE(gang.Connect(Socket()));
  ASSERT_TRUE(gang.Join(ticket, "GPU-b"));
  gang.state.epoch = epochs[0];
  ASSERT_TRUE(gang.Report(Phase::kHolding));
  // The gang is let on again and again on both, for it does not drain.
  for (int i = 0; i < 6; ++i) {
    const auto token = gang.Await<wire::Token>();
    ASSERT_TRUE(token);
    EXPECT_EQ(token->gpu, 0);
    EXPECT_EQ(token->epoch, epochs[0]);
  }
}

TEST_F(Batond, AfterACrashADeadHolderHoldsNothing) {
  const std::string ticket = Pod("a", 50);
  const std::string others = Pod("b", 50);
  HolderProcess holder(Socket(), ticket, "GPU-a");
  ASSERT_TRUE(holder.AwaitHolding());
  daemon_.Crash();
  holder.Kill();
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  ScriptedClient b(Socket());
  ASSERT_TRUE(b.Join(others, "GPU-a") && b.Ask());
  EXPECT_TRUE(b.AwaitGrant());
}

TEST_F(Batond, AHolderThatDiesWhileTheDaemonIsAwayThenIsNoticed) {
  const std::string ticket = Pod("a", 50);
  const std::string others = Pod("b", 50);
  HolderProcess holder(Socket(), ticket, "GPU-a");
  ASSERT_TRUE(holder.AwaitHolding());
  daemon_.Crash();
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  ScriptedClient b(Socket());
  ASSERT_TRUE(b.Join(others, "GPU-a") && b.Ask());
  ASSERT_TRUE(IsWaiting("b"));
  EXPECT_FALSE(b.HasGrantNow());
  holder.Kill();
  EXPECT_TRUE(b.AwaitGrant());
}

TEST_F(Batond, AfterACrashNoUsageIsLostOrCountedTwice) {
  const std::string ticket = Pod("a", 50);
  ScriptedClient a(Socket());
  ASSERT_TRUE(a.Join(ticket, "GPU-a"));
  const auto hold = [&](uint64_t launches) {
    ASSERT_TRUE(a.Ask() && a.AwaitGrant());
    a.state.launches += launches;
    a.state.busy_ns += 1000 * launches;
    a.state.held_ns += 5'000'000;
    ASSERT_TRUE(GivesBack(a, "a"));
    ASSERT_TRUE(Eventually([&] { return PhaseOf("a") == "idle"; }));
  };
  hold(7);
  const uint64_t held = PodStatus("a").at("held_ns");
  EXPECT_GT(held, 0u);
  EXPECT_EQ(PodStatus("a").at("launches"), 7);
  daemon_.Crash();
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  EXPECT_EQ(PodStatus("a").at("held_ns"), held);
  EXPECT_EQ(PodStatus("a").at("launches"), 7);
  ASSERT_TRUE(a.Connect(Socket()));
  ASSERT_TRUE(a.Join(ticket, "GPU-a"));
  ASSERT_TRUE(a.GiveBack() && a.GiveBack());  // what was said before, said again
  hold(2);
  EXPECT_EQ(PodStatus("a").at("launches"), 9);
  EXPECT_EQ(PodStatus("a").at("busy_ns"), 9000);
  EXPECT_GT(PodStatus("a").at("held_ns").get<uint64_t>(), held);
}

TEST_F(Batond, AHoldThatOutlastsTheDaemonIsBookedFromWhereItKnowsAgain) {
  const std::string ticket = Pod("a", 50);
  ScriptedClient a(Socket());
  ASSERT_TRUE(a.Join(ticket, "GPU-a"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant() && a.Report(Phase::kHolding));
  daemon_.Crash();
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  const Instant again = MonotonicNow();
  ASSERT_TRUE(a.Connect(Socket()));
  ASSERT_TRUE(a.Join(ticket, "GPU-a"));
  a.state.held_ns = 1'000'000'000'000;  // what it says of itself does not count
  ASSERT_TRUE(a.Report(Phase::kHolding));
  const auto least = static_cast<uint64_t>(Nanos(MonotonicNow() - again));
  ASSERT_TRUE(GivesBack(a, "a"));
  const uint64_t held = PodStatus("a").at("held_ns");
  EXPECT_GE(held, least);
  EXPECT_LT(held, a.state.held_ns);
}

TEST_F(Batond, WhatADeadHolderHeldIsBooked) {
  ScriptedClient b(Socket());
  const std::string ticket = Pod("a", 50);
  ASSERT_TRUE(b.Join(Pod("b", 50), "GPU-a"));
  HolderProcess holder(Socket(), ticket, "GPU-a");
  ASSERT_TRUE(holder.AwaitHolding());
  ASSERT_TRUE(b.Ask());
  ASSERT_TRUE(IsWaiting("b"));
  const uint64_t before = PodStatus("a").at("held_ns");
  EXPECT_GT(before, 0u);
  holder.Kill();
  ASSERT_TRUE(b.AwaitGrant());
  EXPECT_GE(PodStatus("a").at("held_ns").get<uint64_t>(), before);
}

TEST_F(Batond, PodsOutliveACrashWithTheirTickets) {
  const std::string ticket = Pod("a", 30, {{"team", "research/vision"}, {"priority", "high"}});
  ASSERT_TRUE(Say({{"command", "set_pod"}, {"name", "a"}, {"limit", 60}}).value("ok", false));
  daemon_.Crash();
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  const json pod = PodStatus("a");
  EXPECT_EQ(pod.at("request"), 30.0);
  EXPECT_EQ(pod.at("limit"), 60.0);
  EXPECT_EQ(pod.at("team"), "research/vision");
  EXPECT_EQ(pod.at("priority"), "high");
  ScriptedClient client(Socket());
  EXPECT_TRUE(client.Join(ticket, "GPU-a"));
}

TEST_F(Batond, DamagedStateIsMovedAsideAndTheDaemonStarts) {
  Pod("a", 30);
  EXPECT_EQ(daemon_.Stop(), 0);
  WriteText(folder_ / "state/pods.json", "not what it was");
  WriteText(folder_ / "state/usage", std::string(70'000, 'x'));
  WriteText(folder_ / "state/gpu-GPU-a.holder", "x");
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  EXPECT_EQ(Status().at("pods").size(), 0u);
  EXPECT_EQ(ReadText(folder_ / "state/pods.json.damaged"), "not what it was");
  ScriptedClient client(Socket());
  ASSERT_TRUE(client.Join(Pod("a", 30), "GPU-a") && client.Ask());
  EXPECT_TRUE(client.AwaitGrant());
}

TEST_F(Batond, WithoutRoomOnTheDiskItGrantsOnAndSaysSo) {
  const std::string ticket = Pod("a", 30);
  const rlimit none{0, 0};
  ASSERT_EQ(prlimit(daemon_.pid(), RLIMIT_FSIZE, &none, nullptr), 0);
  ScriptedClient client(Socket());
  ASSERT_TRUE(client.Join(ticket, "GPU-a") && client.Ask());
  EXPECT_TRUE(client.AwaitGrant());
  EXPECT_TRUE(Say({{"command", "create_pod"}, {"name", "b"}, {"request", 1}}).value("ok", false));
  EXPECT_GE(Status().at("daemon").at("degraded").size(), 2u);
}

TEST_F(Batond, StopsCleanlyAndRemovesItsSockets) {
  ScriptedClient client(Socket());
  ASSERT_TRUE(client.Join(Pod("a", 30), "GPU-a"));
  EXPECT_EQ(daemon_.Stop(), 0);
  EXPECT_TRUE(client.AwaitClosed());
  EXPECT_NE(access(Socket().c_str(), F_OK), 0);
}

TEST_F(Batond, ASecondDaemonForTheSameGpuEndsWithOneClearLine) {
  WriteText(folder_ / "second.toml", "[server]\nsocket_dir = \"" + (folder_ / "run2") +
                                         "\"\nstate_dir = \"" + (folder_ / "state2") +
                                         "\"\nlock_dir = \"" + (folder_ / "lock") +
                                         "\"\nlog_level = \"error\"\n[http]\nlisten = \"\"\n" +
                                         "[[gpu]]\nuuid = \"GPU-b\"\n");
  DaemonProcess second(BATOND, folder_ / "second.toml", folder_ / "second.log");
  EXPECT_FALSE(second.Start());
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_EQ(second.Log(), "batond: another daemon (pid " + std::to_string(daemon_.pid()) +
                              ") already manages GPU-b on this machine; stop it first\n");
}

TEST_F(Batond, ReplacesTheSocketOfADeadDaemonButNotOfALiveOne) {
  WriteText(folder_ / "second.toml", "[server]\nsocket_dir = \"" + (folder_ / "run") +
                                         "\"\nstate_dir = \"" + (folder_ / "state2") +
                                         "\"\nlock_dir = \"" + (folder_ / "lock2") +
                                         "\"\n[http]\nlisten = \"\"\n");
  DaemonProcess second(BATOND, folder_ / "second.toml", folder_ / "second.log");
  EXPECT_FALSE(second.Start());
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_NE(second.Log().find("another daemon already listens"), std::string::npos);
  daemon_.Crash();
  EXPECT_TRUE(second.Start()) << second.Log();
}

TEST_F(Batond, TheControlSocketMayStandWherePodsDoNotLook) {
  ASSERT_TRUE(StartWithControlDir()) << daemon_.Log();
  EXPECT_TRUE(Ask(folder_ / "operator/control.sock", {{"command", "ping"}}).value("ok", false));
  EXPECT_EQ(access(Socket().c_str(), F_OK), 0);
  EXPECT_NE(access((folder_ / "run/control.sock").c_str(), F_OK), 0);
  struct stat st;
  ASSERT_EQ(stat((folder_ / "operator").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700u);
}

TEST_F(Batond, TheFolderForContainersHasThePodsSocketAloneAndTheNextDaemonsToo) {
  const std::string folder = folder_ / "run/pods";
  const auto names = [&] {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      found.insert(entry.path().filename());
    }
    return found;
  };
  EXPECT_EQ(names(), std::set<std::string>{"baton.sock"});
  // As a container sees it: by the folder that was there when it started.
  const UniqueFd mounted(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const std::string socket = "/proc/self/fd/" + std::to_string(mounted.get()) + "/baton.sock";
  const std::string ticket = Pod("a", 30);
  EXPECT_TRUE(ScriptedClient(socket).Join(ticket, "GPU-a"));
  daemon_.Crash();
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  EXPECT_TRUE(ScriptedClient(socket).Join(ticket, "GPU-a"));
  daemon_.Stop();
  EXPECT_EQ(names(), std::set<std::string>{});
}

TEST_F(Batond, WhoSeesThePodsFolderAloneCannotKeepTheNextDaemonFromStarting) {
  ASSERT_TRUE(StartWithControlDir()) << daemon_.Log();
  daemon_.Crash();
  // Root in a container may lock whatever it can open, the folder itself too.
  std::vector<UniqueFd> held;
  held.emplace_back(open((folder_ / "run").c_str(), O_RDONLY | O_CLOEXEC));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "run")) {
    UniqueFd fd(open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    if (fd) held.push_back(std::move(fd));
  }
  for (const UniqueFd& fd : held) ASSERT_EQ(flock(fd.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_TRUE(daemon_.Start()) << daemon_.Log();
}

TEST_F(Batond, ControlAnswersBadRequestsWithASentence) {
  Pod("a", 60);
  const auto code = [&](const json& request) {
    const json answer = Say(request);
    EXPECT_FALSE(answer.value("ok", true)) << answer.dump();
    EXPECT_FALSE(answer.value("error", "").empty());
    return answer.value("code", "");
  };
  EXPECT_EQ(code({{"command", "create_pod"}, {"name", "b"}, {"request", 0}}), "invalid");
  EXPECT_EQ(code({{"command", "create_pod"}, {"name", "b"}, {"request", 101}}), "invalid");
  EXPECT_EQ(code({{"command", "create_pod"}, {"name", "b"}, {"request", "abc"}}), "invalid");
  EXPECT_EQ(code({{"command", "create_pod"}, {"name", "b"}, {"request", 50}, {"limit", 30}}),
            "invalid");
  EXPECT_EQ(code({{"command", "create_pod"}, {"name", "b"}, {"request", 50}, {"reqest", 1}}),
            "invalid");
  EXPECT_EQ(code({{"command", "create_pod"}, {"name", "b"}, {"request", 50}, {"gpus", {"GPU-a"}}}),
            "exhausted");
  EXPECT_EQ(code({{"command", "create_pod"}, {"name", "a"}, {"request", 10}}), "exists");
  EXPECT_EQ(code({{"command", "create_pod"}, {"name", "b"}, {"request", 10}, {"gpus", {"GPU-x"}}}),
            "not_found");
  EXPECT_EQ(code({{"command", "set_pod"}, {"name", "x"}, {"request", 10}}), "not_found");
  const auto asking = [&](json more) {
    more.update({{"command", "create_pod"}, {"name", "b"}, {"request", 10}});
    return code(more);
  };
  EXPECT_EQ(asking({{"mode", "slices"}}), "invalid");
  EXPECT_EQ(asking({{"models", {"h999"}}}), "not_found");
  EXPECT_EQ(asking({{"models", "h100"}}), "invalid");
  EXPECT_EQ(asking({{"models", {""}}}), "invalid");
  EXPECT_EQ(asking({{"memory", "101%"}}), "invalid");
  EXPECT_EQ(asking({{"memory", "25%"}}), "invalid") << "nobody knows how much these have";
  EXPECT_EQ(asking({{"memory", uint64_t{2} << 40}}), "exhausted");
  EXPECT_EQ(asking({{"count", 0}}), "invalid");
  EXPECT_EQ(asking({{"count", 17}}), "invalid");
  EXPECT_EQ(asking({{"count", 3}}), "not_found");
  EXPECT_EQ(asking({{"count", 2}, {"gpus", {"GPU-a"}}}), "invalid");
  EXPECT_EQ(asking({{"affinity", std::string(129, 'x')}}), "invalid");
  EXPECT_EQ(asking({{"count", 2}, {"mode", "mps"}}), "invalid");
  EXPECT_EQ(code({{"command", "move_pod"}, {"name", "a"}, {"gpus", {"GPU-x"}}}), "not_found");
  EXPECT_EQ(code({{"command", "move_pod"}, {"name", "a"}}), "invalid");
  EXPECT_EQ(code({{"command", "cordon"}, {"gpus", {"GPU-x"}}}), "not_found");
  EXPECT_EQ(code({{"command", "cordon"}}), "invalid");
  EXPECT_EQ(code({{"command", "pod"}, {"name", "x"}}), "not_found");
  EXPECT_EQ(code({{"command", "defrag"}, {"request", 10}, {"moves", 17}}), "invalid");
  EXPECT_EQ(code({{"command", "explain_placement"}, {"request", 0}}), "invalid");
  EXPECT_EQ(code({{"command", "dance"}}), "invalid");
  EXPECT_EQ(code(json::array({1, 2})), "invalid");
  struct stat st;
  ASSERT_EQ(stat((folder_ / "run/control.sock").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
}

TEST_F(Batond, PutsAPodWithoutAGpuWhereThereIsRoom) {
  Pod("a", 60);
  const json made = Say({{"command", "create_pod"}, {"name", "b"}, {"request", 50}});
  EXPECT_EQ(made.at("gpus"), json({"GPU-b"}));
  EXPECT_EQ(made.at("mode"), "time-slice");
  EXPECT_EQ(made.at("environment"), (json{{"CUDA_VISIBLE_DEVICES", "GPU-b"}}));
  const json both = Say({{"command", "create_pod"}, {"name", "c"}, {"request", 10}, {"count", 2}});
  EXPECT_EQ(both.at("gpus").size(), 2u);
}

TEST_F(Batond, ARefusalSaysWhyInOneLineAndWhereThereIsMore) {
  Pod("a", 60);
  const json refused =
      Say({{"command", "create_pod"}, {"name", "b"}, {"request", 50}, {"gpus", {"GPU-a"}}});
  EXPECT_EQ(refused.value("error", ""),
            "there is no room for b (GPU-a: 40 % of it are free, 50 % wanted, with a 60 %); ask "
            "for less, remove "
            "a pod, or see 'baton explain placement'");
  const json nowhere =
      Say({{"command", "create_pod"}, {"name", "b"}, {"request", 50}, {"count", 2}});
  EXPECT_EQ(nowhere.value("error", ""),
            "there is no room for b (GPU-a: 40 % of it are free, 50 % wanted, with a 60 %; GPU-b: "
            "has room, but "
            "one is not enough); ask for less, remove a pod, or see 'baton explain placement'");
  const json many = Say({{"command", "create_pod"}, {"name", "b"}, {"request", 5}, {"count", 3}});
  EXPECT_EQ(many.value("code", ""), "not_found");
  const json explained = Say({{"command", "explain_placement"}, {"request", 50}, {"count", 2}});
  ASSERT_TRUE(explained.value("ok", false)) << explained.dump();
  EXPECT_FALSE(explained.at("fits"));
  EXPECT_EQ(explained.at("nodes").at(0).at("cards").at(0).at("why"),
            "40 % of it are free, 50 % wanted");
  EXPECT_TRUE(Say({{"command", "explain_placement"}, {"request", 40}, {"count", 2}}).at("fits"));
}

TEST_F(Batond, TheMapOfVirtualGpusSurvivesACrash) {
  Pod("a", 60);
  Pod("b", 30, {{"gpus", {"GPU-a", "GPU-b"}}});
  const auto map = [&] {
    json rows = Say({{"command", "vgpus"}}).at("vgpus");
    for (json& row : rows) {
      row.erase("held_ns");
      row.erase("busy_ns");
    }
    return rows;
  };
  const json before = map();
  ASSERT_EQ(before.size(), 3u) << before.dump();
  EXPECT_EQ(before.at(1).at("pod"), "b");
  EXPECT_EQ(before.at(2).at("gpu"), "GPU-b");
  EXPECT_EQ(before.at(2).at("index"), 1);
  daemon_.Crash();
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  EXPECT_EQ(map(), before);
  const auto refused = [&](double request, const char* gpu) {
    return Say({{"command", "create_pod"}, {"name", "c"}, {"request", request}, {"gpus", {gpu}}})
        .value("code", "");
  };
  EXPECT_EQ(refused(11, "GPU-a"), "exhausted");
  EXPECT_EQ(refused(71, "GPU-b"), "exhausted");
  Pod("d", 10);
  Pod("e", 70, {{"gpus", {"GPU-b"}}});
}

TEST_F(Batond, APodWhoseCardIsGoneStaysAndGetsItsPlaceBack) {
  const std::string ticket = Pod("a", 60, {{"gpus", {"GPU-b"}}});
  EXPECT_EQ(daemon_.Stop(), 0);
  const std::string with = ReadText(folder_ / "batond.toml");
  std::string without = with;
  without.erase(without.find("[[gpu]]\nuuid = \"GPU-b\"\n"), 23);
  WriteText(folder_ / "batond.toml", without);
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  EXPECT_FALSE(PodStatus("a").empty());
  const json degraded = Status().at("daemon").at("degraded");
  ASSERT_EQ(degraded.size(), 1u);
  EXPECT_EQ(degraded.at(0), "pods without a place: a (its card GPU-b is not there)");
  EXPECT_FALSE(Say({{"command", "vgpus"}}).at("vgpus").at(0).at("booked"));
  WriteText(folder_ / "batond.toml", with);
  daemon_.Signal(SIGHUP);
  ASSERT_TRUE(Eventually([&] { return Status().at("daemon").at("degraded").empty(); }));
  EXPECT_EQ(Say({{"command", "create_pod"}, {"name", "b"}, {"request", 50}, {"gpus", {"GPU-b"}}})
                .value("code", ""),
            "exhausted");
  ScriptedClient client(Socket());
  ASSERT_TRUE(client.Join(ticket, "GPU-b") && client.Ask());
  EXPECT_TRUE(client.AwaitGrant());
}

TEST_F(Batond, ACordonKeepsPodsAwayOverRestartsToo) {
  Pod("a", 10);
  ASSERT_TRUE(Say({{"command", "cordon"}, {"gpus", {"GPU-a"}}}).value("ok", false));
  const auto place = [&](const std::string& name) {
    return Say({{"command", "create_pod"}, {"name", name}, {"request", 10}}).at("gpus").at(0);
  };
  EXPECT_EQ(place("b"), "GPU-b");
  daemon_.Crash();
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  EXPECT_EQ(place("c"), "GPU-b");
  EXPECT_TRUE(Status().at("gpus").at(0).at("cordoned"));
  EXPECT_EQ(Say({{"command", "create_pod"}, {"name", "d"}, {"request", 10}, {"gpus", {0}}})
                .value("error", ""),
            "there is no room for d (GPU-a: cordoned, with a 10 %); ask for less, remove a pod, or "
            "see 'baton "
            "explain placement'");
  ASSERT_TRUE(Say({{"command", "uncordon"}, {"gpus", {"0"}}}).value("ok", false));
  EXPECT_TRUE(Say({{"command", "create_pod"}, {"name", "d"}, {"request", 10}, {"gpus", {0}}})
                  .value("ok", false));
  // What was there stayed.
  EXPECT_EQ(PodStatus("a").at("gpus").at(0).at("uuid"), "GPU-a");
}

TEST_F(Batond, APodMovesWhileItDoesNotRun) {
  const std::string ticket = Pod("a", 60);
  const auto move = [&](const std::string& gpu) {
    return Say({{"command", "move_pod"}, {"name", "a"}, {"gpus", {gpu}}});
  };
  {
    ScriptedClient client(Socket());
    ASSERT_TRUE(client.Join(ticket, "GPU-a"));
    EXPECT_EQ(move("GPU-b").value("code", ""), "unavailable");
  }
  // A client of this process lives on when its socket is closed; that of a holder ends with it.
  Pod("b", 60, {{"gpus", {"GPU-b"}}});
  const std::string other = Pod("c", 30);
  {
    HolderProcess holder(Socket(), other, "GPU-a");
    ASSERT_TRUE(holder.AwaitHolding());
  }
  ASSERT_TRUE(Eventually([&] { return PodStatus("c").at("clients").empty(); }));
  const uint64_t held = PodStatus("c").at("held_ns");
  EXPECT_GT(held, 0u);
  const json moved = Say({{"command", "move_pod"}, {"name", "c"}, {"gpus", {"GPU-b"}}});
  ASSERT_TRUE(moved.value("ok", false)) << moved.dump();
  const json rows = Say({{"command", "vgpus"}}).at("vgpus");
  EXPECT_EQ(rows.at(2).at("pod"), "c");
  EXPECT_EQ(rows.at(2).at("gpu"), "GPU-b");
  EXPECT_GE(rows.at(2).at("held_ns").get<uint64_t>(), held) << "what it used is not forgotten";
  {
    ScriptedClient client(Socket(), 7);
    ASSERT_TRUE(client.Join(other, "GPU-b") && client.Ask());
    EXPECT_TRUE(client.AwaitGrant());
  }
  // No room there.
  Pod("d", 40);
  EXPECT_EQ(Say({{"command", "move_pod"}, {"name", "d"}, {"gpus", {"GPU-b"}}}).value("code", ""),
            "exhausted");
  EXPECT_EQ(PodStatus("d").at("gpus").at(0).at("uuid"), "GPU-a");
}

TEST_F(Batond, DefragSaysWhichMovesMakeRoom) {
  Pod("a", 60);
  Pod("b", 30, {{"gpus", {"GPU-b"}}});
  // Who names its GPU stays there.
  EXPECT_EQ(Say({{"command", "defrag"}, {"request", 80}}).value("code", ""), "exhausted");
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "b"}}).value("ok", false));
  ASSERT_TRUE(Say({{"command", "cordon"}, {"gpus", {"GPU-a"}}}).value("ok", false));
  ASSERT_TRUE(Say({{"command", "create_pod"}, {"name", "b"}, {"request", 30}}).value("ok", false));
  ASSERT_TRUE(Say({{"command", "uncordon"}, {"gpus", {"GPU-a"}}}).value("ok", false));
  const json plan = Say({{"command", "defrag"}, {"request", 80}});
  ASSERT_TRUE(plan.value("ok", false)) << plan.dump();
  ASSERT_EQ(plan.at("moves").size(), 1u);
  EXPECT_EQ(plan.at("moves").at(0).at("pod"), "b");
  EXPECT_EQ(plan.at("moves").at(0).at("to").at("gpus").at(0).at("uuid"), "GPU-a");
  EXPECT_EQ(plan.at("where").at("gpus").at(0).at("uuid"), "GPU-b");
}

TEST_F(Batond, ADeletedPodDrainsThenItsClientsAreSentAway) {
  ScriptedClient a(Socket()), b(Socket());
  ASSERT_TRUE(a.Join(Pod("a", 50), "GPU-a"));
  ASSERT_TRUE(b.Join(Pod("b", 50), "GPU-a"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant() && a.Report(Phase::kHolding));
  ASSERT_TRUE(Eventually([&] { return PhaseOf("a") == "holding"; }));
  ASSERT_TRUE(b.Ask());
  ASSERT_TRUE(IsWaiting("b"));
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "a"}}).value("ok", false));
  ASSERT_TRUE(a.AwaitGateClosed());
  EXPECT_FALSE(b.HasGrantNow());
  const auto refusal = a.GiveBackUntil<wire::Error>();
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->kind, ErrorKind::kUnknownPod);
  EXPECT_TRUE(a.AwaitClosed());
  EXPECT_TRUE(b.AwaitGrant());
}

TEST_F(Batond, AHolderOfADeletedPodIsHeardUntilItHasDrained) {
  const std::string ticket = Pod("a", 50);
  ScriptedClient a(Socket()), b(Socket());
  ASSERT_TRUE(a.Join(ticket, "GPU-a"));
  ASSERT_TRUE(b.Join(Pod("b", 50), "GPU-a"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant() && a.Report(Phase::kHolding));
  ASSERT_TRUE(Eventually([&] { return PhaseOf("a") == "holding"; }));
  ASSERT_TRUE(b.Ask());
  ASSERT_TRUE(IsWaiting("b"));
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "a"}}).value("ok", false));
  // A return of before the grant is none, and no reason to send it away.
  const uint64_t epoch = std::exchange(a.state.epoch, 0);
  ASSERT_TRUE(a.GiveBack());
  ASSERT_TRUE(a.AwaitGateClosed());
  a.state.epoch = epoch;
  a.Close();
  ASSERT_TRUE(a.Connect(Socket()));
  ASSERT_TRUE(a.Join(ticket, "GPU-a"));
  EXPECT_FALSE(b.HasGrantNow());
  ASSERT_TRUE(Eventually([&] {
    a.HasGrantNow();
    a.GiveBack();
    return b.HasGrantNow();
  }));
  // Now it holds nothing, and its ticket is void.
  EXPECT_TRUE(a.AwaitClosed());
  ASSERT_TRUE(a.Connect(Socket()));
  ASSERT_TRUE(a.SayHello(ticket));
  EXPECT_EQ(a.Await<wire::Error>()->kind, ErrorKind::kUnknownPod);
}

TEST_F(Batond, AReloadAppliesTheFilesPodsAndASetOutlastsItUntilTheFileSpeaksAgain) {
  Configure("[[pod]]\nname = \"f\"\nrequest = 20\n[[pod]]\nname = \"g\"\nrequest = 5\n");
  daemon_.Signal(SIGHUP);
  ASSERT_TRUE(Eventually([&] { return PodStatus("f").value("request", 0.0) == 20.0; }));
  ASSERT_TRUE(Say({{"command", "set_pod"}, {"name", "f"}, {"request", 30}}).value("ok", false));
  Configure("[[pod]]\nname = \"f\"\nrequest = 20\n");
  daemon_.Signal(SIGHUP);
  ASSERT_TRUE(Eventually([&] { return PodStatus("g").empty(); }));
  EXPECT_EQ(PodStatus("f").at("request"), 30.0);
  daemon_.Crash();
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  EXPECT_EQ(PodStatus("f").at("request"), 30.0);
  Configure("[[pod]]\nname = \"f\"\nrequest = 25\n");
  daemon_.Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] { return PodStatus("f").value("request", 0.0) == 25.0; }));
}

TEST_F(Batond, PodsOfTheFileSayOnWhichCardsTheyMayBe) {
  Configure(
      "[[pod]]\nname = \"f\"\nrequest = 20\ncount = 2\naffinity = \"x\"\n"
      "[[pod]]\nname = \"g\"\nrequest = 20\ngpus = [1]\nmode = \"exclusive\"\n");
  daemon_.Signal(SIGHUP);
  ASSERT_TRUE(Eventually([&] { return PodStatus("f").value("gpus", json::array()).size() == 2; }));
  // It takes a whole card, and there is none.
  EXPECT_TRUE(Eventually(
      [&] { return daemon_.Log().find("[[pod]] g is not created: ") != std::string::npos; }));
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "f"}}).value("ok", false));
  Configure("[[pod]]\nname = \"g\"\nrequest = 20\ngpus = [1]\nmode = \"exclusive\"\n");
  daemon_.Signal(SIGHUP);
  ASSERT_TRUE(Eventually([&] { return PodStatus("g").value("mode", "") == "exclusive"; }));
  EXPECT_EQ(Say({{"command", "create_pod"}, {"name", "h"}, {"request", 1}, {"gpus", {1}}})
                .value("code", ""),
            "exhausted");
}

TEST_F(Batond, ABrokenFileLeavesTheConfigurationAsItWasOnReload) {
  Configure("nonsense\n");
  daemon_.Signal(SIGHUP);
  EXPECT_TRUE(
      Eventually([&] { return daemon_.Log().find("stays as it was") != std::string::npos; }));
  EXPECT_TRUE(Say({{"command", "ping"}}).value("ok", false));
}

TEST_F(Batond, ObservingItGatesNothingButKeepsTheBooks) {
  EXPECT_EQ(daemon_.Stop(), 0);
  WriteText(folder_ / "batond.toml",
            ReadText(folder_ / "batond.toml").replace(0, 9, "[server]\nmode = \"observe\"\n"));
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  ScriptedClient client(Socket());
  ASSERT_TRUE(client.Join(Pod("a", 50), "GPU-a"));
  EXPECT_FALSE(client.attached->gated);
  client.state.launches = 5;
  client.state.held_ns = 1000;
  ASSERT_TRUE(client.Report(Phase::kIdle));
  EXPECT_TRUE(Eventually([&] { return PodStatus("a").at("launches") == 5; }));
  EXPECT_EQ(PodStatus("a").at("held_ns"), 1000);
  EXPECT_FALSE(client.HasGrantNow());
}

TEST_F(Batond, ATicketForMeasuringWorksOnceAndLeavesNoPodBehind) {
  const json bench = Say({{"command", "bench_ticket"}});
  ASSERT_TRUE(bench.value("ok", false)) << bench.dump();
  {
    HolderProcess holder(Socket(), bench.at("ticket"), bench.at("gpus").at(0));
    ASSERT_TRUE(holder.AwaitHolding());
    EXPECT_EQ(Status().at("pods").size(), 1u);
  }
  EXPECT_TRUE(Eventually([&] { return Status().at("pods").empty(); }));
}

}  // namespace
}  // namespace baton::backend
