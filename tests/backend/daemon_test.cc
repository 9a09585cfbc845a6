// batond and its clients: tokens, what is measured, and what is refused.
#include <cstdlib>
#include <regex>
#include <sstream>

#include "tests/backend/batond_fixture.h"
#include "wire/control_client.h"

namespace baton::backend {
namespace {

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

TEST_F(Batond, ItsLogSaysWhereThePageIs) {
  EXPECT_EQ(daemon_.Log().find("http://"), std::string::npos) << daemon_.Log();
  daemon_.Stop();
  std::string text = *ReadFile(folder_ / "batond.toml", 4096);
  const std::string none = "listen = \"\"";
  text.replace(text.find(none), none.size(), "listen = \"127.0.0.1:0\"");
  WriteText(folder_ / "batond.toml", text);
  ASSERT_TRUE(daemon_.Start());
  const std::regex line(" serves \\S+/run and http://127\\.0\\.0\\.1:\\d+/\n");
  EXPECT_TRUE(Eventually([&] { return std::regex_search(daemon_.Log(), line); })) << daemon_.Log();
}

TEST_F(Batond, WritesItsLogAsJsonWhereTheFileOrTheFlagSaysSo) {
  const auto lines = [&](const std::string& log) {
    size_t count = 0;
    std::istringstream text(log);
    for (std::string line; std::getline(text, line); ++count) {
      const json object = json::parse(line, nullptr, false);
      EXPECT_TRUE(object.is_object() && object.contains("time") && object.contains("level") &&
                  object.contains("message"))
          << line;
    }
    return count;
  };
  daemon_.Stop();
  DaemonProcess by_flag(BATOND, folder_ / "batond.toml", folder_ / "flag.log",
                        {"--log-format", "json"});
  ASSERT_TRUE(by_flag.Start());
  by_flag.Stop();
  EXPECT_GE(lines(by_flag.Log()), 2u);
  Configure("[log]\nformat = \"json\"\n");
  DaemonProcess by_file(BATOND, folder_ / "batond.toml", folder_ / "file.log");
  ASSERT_TRUE(by_file.Start());
  DaemonProcess second(BATOND, folder_ / "batond.toml", folder_ / "second.log");
  EXPECT_FALSE(second.Start());
  EXPECT_EQ(lines(second.Log()), 1u) << "why it ended: " << second.Log();
  by_file.Stop();
  EXPECT_GE(lines(by_file.Log()), 2u);
  DaemonProcess kept(BATOND, folder_ / "batond.toml", folder_ / "kept.log", {"--supervise"});
  ASSERT_TRUE(kept.Start());
  ASSERT_EQ(kill(Status().at("daemon").at("pid").get<int>(), SIGKILL), 0);
  EXPECT_TRUE(Eventually([&] { return kept.Log().find("signal 9") != std::string::npos; }));
  kept.Stop();
  EXPECT_GE(lines(kept.Log()), 3u);
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

// To copy such a value takes more stack than there is.
TEST_F(Batond, ARequestThatNestsDeeplyIsRefused) {
  Pod("a", 50);
  const auto connected =
      wire::ConnectUnix(folder_ / "run/control.sock", SOCK_STREAM, std::chrono::seconds(30));
  ASSERT_TRUE(connected) << connected.error().message;
  const UniqueFd fd(*connected);
  const std::string line = R"({"command": "set_pod", "name": "a", "team": )" +
                           std::string(500'000, '[') + std::string(500'000, ']') + "}\n";
  size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = send(fd.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    ASSERT_GT(n, 0);
    sent += static_cast<size_t>(n);
  }
  std::string answer(4096, '\0');
  const ssize_t n = recv(fd.get(), answer.data(), answer.size(), 0);
  ASSERT_GT(n, 0);
  EXPECT_NE(answer.find("deep at most"), std::string::npos) << answer;
  EXPECT_EQ(Status()["ok"], true);
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

TEST_F(Batond, WhoIsRefusedIsForgottenAndKeepsNobodyOut) {
  ASSERT_TRUE(StartWithServer("clients_per_uid = 4"));
  const std::string ticket = Pod("a", 50);
  // All of them are of this process, which lives on.
  for (uint64_t i = 1; i <= 32; ++i) {
    ScriptedClient stranger(Socket(), i);
    ASSERT_TRUE(stranger.SayHello("0123456789abcdef"));
    const auto error = stranger.Await<wire::Error>();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind, ErrorKind::kUnknownPod) << i << ": " << error->text.view();
    EXPECT_TRUE(stranger.AwaitClosed());
  }
  ScriptedClient mine(Socket());
  EXPECT_TRUE(mine.Join(ticket, "GPU-a"));
  EXPECT_EQ(Degraded(), "[]");
}

TEST_F(Batond, AFullBoundIsSaidWithHowManyItRefused) {
  ASSERT_TRUE(StartWithServer("clients_per_uid = 2"));
  const std::string ticket = Pod("a", 50);
  ScriptedClient first(Socket(), 1), second(Socket(), 2);
  ASSERT_TRUE(first.Join(ticket, "GPU-a") && second.Join(ticket, "GPU-a"));
  for (uint64_t i = 3; i <= 5; ++i) {
    ScriptedClient more(Socket(), i);
    const auto error = more.Await<wire::Error>();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind, ErrorKind::kLimit);
  }
  const std::string user = "user " + std::to_string(geteuid());
  EXPECT_NE(Degraded().find(user + " may have no more than 2 processes here (3 refused)"),
            std::string::npos)
      << Degraded();
}

TEST_F(Batond, WhoConnectsTooOftenIsRefusedAndWhoIsThereIsServed) {
  ASSERT_TRUE(StartWithServer("connects_per_second = 3"));
  const std::string ticket = Pod("a", 50);
  ScriptedClient first(Socket(), 1);
  ASSERT_TRUE(first.Join(ticket, "GPU-a"));
  for (uint64_t i = 2; i <= 200; ++i) ScriptedClient(Socket(), i).SayHello(ticket);
  EXPECT_TRUE(first.Ask() && first.AwaitGrant());
  const std::string user = "user " + std::to_string(geteuid());
  EXPECT_NE(Degraded().find(user + " connects too often ("), std::string::npos) << Degraded();
  // Who tries again is let in.
  bool joined = false;
  for (int i = 0; i < 100 && !joined; ++i) {
    usleep(100'000);
    ScriptedClient late(Socket(), 1000);
    joined = late.Join(ticket, "GPU-a");
  }
  EXPECT_TRUE(joined);
}

TEST_F(Batond, OnePodsProcessesKeepNoOtherPodOfItsUserOut) {
  ASSERT_TRUE(StartWithServer("clients_per_pod = 2"));
  const std::string many = Pod("many", 50);
  const std::string one = Pod("one", 50);
  ScriptedClient a(Socket(), 1), b(Socket(), 2), c(Socket(), 3), other(Socket(), 4);
  ASSERT_TRUE(a.Join(many, "GPU-a") && b.Join(many, "GPU-a"));
  ASSERT_TRUE(c.SayHello(many));
  EXPECT_EQ(c.Await<wire::Error>()->kind, ErrorKind::kLimit);
  EXPECT_TRUE(other.Join(one, "GPU-a"));
  EXPECT_NE(Degraded().find("pod many may have no more than 2 processes (1 refused)"),
            std::string::npos)
      << Degraded();
}

TEST_F(Batond, ConnectionsThatSayNothingMakeRoomForNewerOnes) {
  ASSERT_TRUE(StartWithServer("clients_per_uid = 70"));
  const std::string ticket = Pod("a", 50);
  std::vector<std::unique_ptr<ScriptedClient>> silent;
  for (uint64_t i = 0; i < 100; ++i) {
    silent.push_back(std::make_unique<ScriptedClient>(Socket(), 100 + i));
  }
  ScriptedClient mine(Socket());
  EXPECT_TRUE(mine.Join(ticket, "GPU-a"));
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

TEST_F(Batond, APodOfIdlePriorityWaitsAsPausedAndTakesNoRoom) {
  const std::string train = Pod("train", 100);
  const json idle = Say(
      {{"command", "create_pod"}, {"name", "night"}, {"gpus", {"GPU-a"}}, {"priority", "idle"}});
  ASSERT_TRUE(idle.value("ok", false)) << idle.dump();
  ScriptedClient a(Socket(), 1), b(Socket(), 2);
  ASSERT_TRUE(a.Join(train, "GPU-a"));
  ASSERT_TRUE(b.Join(idle.at("ticket").get<std::string>(), "GPU-a"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant() && a.Report(Phase::kHolding));
  ASSERT_TRUE(b.Ask());
  const auto of_night = [&](const char* key) {
    const json status = Status();
    for (const json& pod : status.at("pods")) {
      if (pod.at("name") == "night") return pod.at(key);
    }
    return json();
  };
  EXPECT_TRUE(Eventually([&] { return of_night("phase") == "paused"; })) << Status().dump(1);
  EXPECT_EQ(of_night("request"), 0.0);
  // It comes back from the file, and may be given a request where there is room.
  const json full =
      Say({{"command", "set_pod"}, {"name", "night"}, {"priority", "normal"}, {"request", 10}});
  EXPECT_FALSE(full.value("ok", true)) << full.dump();
  EXPECT_TRUE(Say({{"command", "set_pod"}, {"name", "train"}, {"request", 50}}).at("ok"));
  EXPECT_TRUE(Say({{"command", "set_pod"}, {"name", "train"}, {"priority", "idle"}}).at("ok"));
  EXPECT_TRUE(
      Say({{"command", "set_pod"}, {"name", "night"}, {"priority", "normal"}, {"request", 10}})
          .at("ok"));
  daemon_.Crash();
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  EXPECT_EQ(of_night("request"), 10.0);
  const json status = Status();
  for (const json& pod : status.at("pods")) {
    if (pod.at("name") == "train") {
      EXPECT_EQ(pod.at("priority"), "idle");
    }
  }
}

TEST_F(Batond, APodOfIdlePriorityIsRefusedWhatItCannotHave) {
  const auto why = [&](json pod) {
    pod.update({{"command", "create_pod"}, {"name", "night"}, {"priority", "idle"}});
    return Say(pod).value("error", "");
  };
  EXPECT_NE(why({{"request", 30}}).find("has no request"), std::string::npos);
  EXPECT_NE(why({{"count", 2}}).find("has one GPU"), std::string::npos) << why({{"count", 2}});
  EXPECT_NE(why({{"mode", "exclusive"}}).find("needs mode time-slice"), std::string::npos);
  Pod("gang", 30, {{"gpus", {"GPU-a", "GPU-b"}}});
  const json set = Say({{"command", "set_pod"}, {"name", "gang"}, {"priority", "idle"}});
  EXPECT_NE(set.value("error", "").find("has one GPU"), std::string::npos) << set.dump();
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
      ASSERT_TRUE(thief.AskUntilGranted());
      ASSERT_TRUE(thief.HoldUnseen(Socket(), ticket, "GPU-a", 200, index));
      least += 200'000'000;
      ASSERT_TRUE(GivesBack(thief, name));
      EXPECT_GE(PodStatus(name).at("held_ns").get<uint64_t>(), least);
    }
    EXPECT_TRUE(Say({{"command", "delete_pod"}, {"name", name}}).at("ok"));
  }
}

TEST_F(Batond, ADaemonThatWasStoppedDoesNotChargeForItsAbsence) {
  ScriptedClient a(Socket());
  ASSERT_TRUE(a.Join(Pod("a", 50), "GPU-a"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant());
  const Instant granted = MonotonicNow();
  ASSERT_TRUE(a.Report(Phase::kHolding));
  ASSERT_EQ(Holder(), "a");
  // After a word nothing is sent for a while, so nothing is half sent.
  ASSERT_TRUE(a.AwaitGrant());
  daemon_.Signal(SIGSTOP);
  while (a.HasGrantNow()) {  // it answers what it was sent last
  }
  ASSERT_TRUE(a.GiveBack());
  const auto held = static_cast<uint64_t>(Nanos(MonotonicNow() - granted));
  poll(nullptr, 0, 1'000);
  daemon_.Signal(SIGCONT);
  ASSERT_TRUE(Eventually([&] {
    a.HasGrantNow();
    a.GiveBack();
    return Holder() != "a";
  }));
  // Hand-offs and this machine's other work are somewhere in the 500 ms.
  EXPECT_LT(PodStatus("a").at("held_ns").get<uint64_t>(), held + 500'000'000);
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

TEST_F(Batond, PodsOfAGangHaveTheirTokensTogetherOnceAllAreThere) {
  const auto rank = [](const char* gpu) {
    return json{{"gpus", {gpu}}, {"gang", "job"}, {"gang_size", 2}};
  };
  const std::string of_a = Pod("a", 50, rank("GPU-a"));
  ScriptedClient a(Socket()), b(Socket()), other(Socket());
  ASSERT_TRUE(a.Join(of_a, "GPU-a") && a.Ask());
  ASSERT_TRUE(IsWaiting("a"));
  EXPECT_EQ(PodStatus("a").at("gang_missing"), 1);
  const json why = Say({{"command", "explain"}, {"pod", "a"}});
  EXPECT_EQ(why.at("sentences").at(0),
            "a waits for 1 more pod of gang job: until then none of its pods launches.");

  ASSERT_TRUE(b.Join(Pod("b", 50, rank("GPU-b")), "GPU-b"));
  ASSERT_TRUE(a.AwaitGrant()) << "b has nothing to do, and may be what it waits for";
  EXPECT_EQ(PodStatus("a").at("gang_missing"), 0);
  ASSERT_TRUE(other.Join(Pod("other", 50, {{"gpus", {"GPU-b"}}}), "GPU-b") && other.Ask());
  ASSERT_TRUE(IsWaiting("other"));
  EXPECT_EQ(Holder("GPU-b"), "b");
  ASSERT_TRUE(b.Ask() && b.AwaitGrant());
  // Its GPU is free only when both have drained.
  ASSERT_TRUE(b.AwaitGateClosed());
  ASSERT_TRUE(b.GiveBack());
  EXPECT_EQ(Holder("GPU-b"), "b");
  ASSERT_TRUE(GivesBack(a, "a"));
  ASSERT_TRUE(other.AwaitGrant());
}

// One GPU cannot run both at once: the tokens of the second come by themselves.
TEST_F(Batond, PodsOfAGangThatArePutOnOneGpuTakeTurns) {
  const json on_a{{"gpus", {"GPU-a"}}, {"gang", "job"}};
  ScriptedClient a(Socket()), b(Socket());
  ASSERT_TRUE(a.Join(Pod("a", 50, on_a), "GPU-a") && a.Ask() && a.AwaitGrant());
  ASSERT_TRUE(b.Join(Pod("b", 50, on_a), "GPU-a") && b.Ask());
  EXPECT_TRUE(PodStatus("a").at("gang").get<bool>());
  EXPECT_FALSE(PodStatus("b").at("gang").get<bool>());
  const json why = Say({{"command", "explain"}, {"pod", "b"}});
  EXPECT_EQ(why.at("sentences").at(0),
            "b shares a GPU with another pod of gang job, so its tokens come by themselves, not "
            "with the others'.");
  ASSERT_TRUE(GivesBack(a, "a"));
  EXPECT_TRUE(b.AwaitGrant());
}

TEST_F(Batond, AGangRefusesWhatWouldMakeItWaitForEver) {
  const auto create = [&](const char* name, int size) {
    return Say({{"command", "create_pod"},
                {"name", name},
                {"request", 10},
                {"gang", "job"},
                {"gang_size", size}})
        .value("error", "");
  };
  EXPECT_EQ(create("a", 2), "");
  EXPECT_EQ(create("b", 3), "gang job has size 2 in pod a; say the same, or name another gang");
  EXPECT_EQ(create("b", 2), "") << "on the other GPU";
  EXPECT_NE(PodStatus("a").at("gpus").at(0).at("uuid"), PodStatus("b").at("gpus").at(0).at("uuid"));
  EXPECT_EQ(create("c", 2),
            "gang job has all of its 2 pods (a, b); remove one, or name another gang");
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "a"}}).at("ok"));
  EXPECT_EQ(create("c", 2), "");
  EXPECT_EQ(PodStatus("b").at("gang_missing"), 0) << "it goes on while one of it is replaced";
  const json both =
      Say({{"command", "create_pod"}, {"name", "x"}, {"priority", "idle"}, {"gang", "night"}});
  EXPECT_NE(both.value("error", "").find("is in no gang"), std::string::npos) << both;
  const json parts = Say({{"command", "create_pod"},
                          {"name", "y"},
                          {"request", 10},
                          {"mode", "mps"},
                          {"gang", "parts"}});
  EXPECT_NE(parts.value("error", "").find("no tokens"), std::string::npos) << parts;
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

}  // namespace
}  // namespace baton::backend
