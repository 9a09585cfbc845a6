// batond over crashes and restarts: who holds, what is booked, and whose sockets are whose.
#include "tests/backend/batond_fixture.h"

namespace baton::backend {
namespace {

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

TEST_F(Batond, WhatWasMovedAsideIsSaidByStatusAndNotReplaced) {
  for (const char* text : {"first", "second"}) {
    EXPECT_EQ(daemon_.Stop(), 0);
    WriteText(folder_ / "state/pods.json", text);
    WriteText(folder_ / "state/gpu-GPU-a.holder", text);
    ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
    EXPECT_NE(Degraded().find("/pods.json was damaged"), std::string::npos) << Degraded();
    EXPECT_NE(Degraded().find("/gpu-GPU-a.holder is damaged"), std::string::npos) << Degraded();
  }
  for (const char* name : {"pods.json", "gpu-GPU-a.holder"}) {
    EXPECT_EQ(ReadText(folder_ / (std::string("state/") + name + ".damaged")), "first");
    EXPECT_EQ(ReadText(folder_ / (std::string("state/") + name + ".damaged-2")), "second");
  }
}

TEST_F(Batond, WithStateThatItCannotReadItRefusesToStartAndLeavesItAlone) {
  Pod("a", 30);
  EXPECT_EQ(daemon_.Stop(), 0);
  const std::string pods = ReadText(folder_ / "state/pods.json");
  const std::string usage = ReadText(folder_ / "state/usage");
  const auto refuses = [&](const std::string& name, const std::string& text, const char* why) {
    const std::string path = folder_ / ("state/" + name);
    const std::string before = ReadText(path);
    WriteText(path, text);
    EXPECT_NE(std::system((std::string(BATOND) + " --check-config " + (folder_ / "batond.toml") +
                           " >/dev/null 2>&1")
                              .c_str()),
              0)
        << name;
    ASSERT_FALSE(StartsAnyway()) << name;
    const std::string log = daemon_.Log();
    const std::string last = log.substr(log.rfind('\n', log.size() - 2) + 1);
    EXPECT_NE(last.find(path), std::string::npos) << last;
    EXPECT_NE(last.find(why), std::string::npos) << last;
    EXPECT_EQ(ReadText(path), text);
    WriteText(path, before);
  };
  refuses("pods.json", "baton pods 3 7\n", "a newer version of Baton wrote it");
  refuses("pods.journal-1", "baton pods journal 2 1\n", "a newer version of Baton wrote it");
  refuses("usage", "baton usage 4\n" + std::string(70'000, 'x'),
          "a newer version of Baton wrote it");
  std::filesystem::rename(folder_ / "state/pods.json", folder_ / "state/kept");
  std::filesystem::create_directory(folder_ / "state/pods.json");  // cannot be read
  ASSERT_FALSE(StartsAnyway());
  EXPECT_NE(
      daemon_.Log().find("move pods.json and pods.journal-* away to start without the pods in "
                         "them"),
      std::string::npos);
  std::filesystem::remove(folder_ / "state/pods.json");
  std::filesystem::rename(folder_ / "state/kept", folder_ / "state/pods.json");
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  EXPECT_EQ(Status().at("pods").size(), 1u);
  EXPECT_EQ(Degraded(), "[]");
}

TEST_F(Batond, APodsFileThatIsTooLongIsNotForgotten) {
  EXPECT_EQ(daemon_.Stop(), 0);
  std::filesystem::resize_file(folder_ / "state/pods.json", (64 << 20) + 1);
  ASSERT_FALSE(StartsAnyway());
  EXPECT_NE(daemon_.Log().find("pods.json is too long; "), std::string::npos) << daemon_.Log();
  EXPECT_EQ(std::filesystem::file_size(folder_ / "state/pods.json"), (64u << 20) + 1);
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

// Standard error is a pipe that nobody reads: systemd's journal that hangs, a sidecar that does.
TEST_F(Batond, WhoDoesNotReadItsLogStopsNobody) {
  daemon_.Stop();
  const std::string pipe = folder_ / "log.pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const UniqueFd reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  {
    DaemonProcess daemon(BATOND, folder_ / "batond.toml", pipe);
    ASSERT_TRUE(daemon.Start());
    // Each makes several lines; the pipe takes 64 KiB.
    for (int i = 0; i < 400; ++i) {
      const std::string name = "pod-" + std::to_string(i) + std::string(40, 'x');
      ASSERT_NE(Pod(name, 1), "") << i;
      ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", name}}).value("ok", false)) << i;
    }
    ScriptedClient client(Socket());
    ASSERT_TRUE(client.Join(Pod("a", 50), "GPU-a") && client.Ask());
    EXPECT_TRUE(client.AwaitGrant());
    const Instant asked = MonotonicNow();
    EXPECT_EQ(daemon.Stop(), 0);
    EXPECT_LT(MonotonicNow() - asked, std::chrono::seconds(8));
  }
}

TEST_F(Batond, FilesThatAreTakenAwayAreSaid) {
  const std::string ticket = Pod("a", 30);
  std::filesystem::remove(Socket());
  EXPECT_NE(Degraded().find("baton.sock was deleted: no more processes can attach"),
            std::string::npos)
      << Degraded();
  // The daemon makes and removes files there meanwhile, which ends `remove_all` early.
  std::error_code interrupted;
  EXPECT_TRUE(Eventually([&] {
    std::filesystem::remove_all(folder_ / "state", interrupted);
    return !std::filesystem::exists(folder_ / "state");
  })) << interrupted.message();
  EXPECT_NE(Degraded().find("were deleted or replaced"), std::string::npos) << Degraded();
  EXPECT_TRUE(Eventually(
      [&] { return daemon_.Log().find("were deleted or replaced") != std::string::npos; }));
}

TEST_F(Batond, AUsageBookThatIsCutShortDoesNotEndTheDaemon) {
  ScriptedClient client(Socket());
  ASSERT_TRUE(client.Join(Pod("a", 30), "GPU-a") && client.AskUntilGranted());
  std::filesystem::resize_file(folder_ / "state/usage", 0);
  ASSERT_TRUE(GivesBack(client, "a"));
  EXPECT_TRUE(Eventually([&] {
    return Degraded().find("usage was cut short by another program") != std::string::npos;
  })) << Degraded();
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

}  // namespace
}  // namespace baton::backend
