// Daemons that stand by for one another, and that are kept running.
#include "tests/backend/batond_fixture.h"

namespace baton::backend {
namespace {

class Standby : public Batond {
 protected:
  // Another batond over the same state and GPUs, whose operator has a socket of their own, as in
  // the next pod of a rollout.
  DaemonProcess Successor() {
    std::string text = ReadText(folder_ / "batond.toml");
    text.insert(text.find("state_dir"), "control_dir = \"" + (folder_ / "next") + "\"\n");
    WriteText(folder_ / "next.toml", text);
    return {BATOND, folder_ / "next.toml", folder_ / "next.log", {"--standby"}};
  }
  json SayToNext(const json& request) { return Ask(folder_ / "next/control.sock", request); }
  // "?": nobody answers at this moment.
  static std::string ModeAt(const std::string& socket) {
    const json pong = Ask(socket, {{"command", "ping"}});
    return pong.is_object() ? pong.value("mode", "?") : "?";
  }
  std::string ModeOfNext() { return ModeAt(folder_ / "next/control.sock"); }
};

TEST_F(Standby, TakesOverWhenTheOneBeforeStops) {
  const std::string ticket = Pod("a", 50);
  ScriptedClient a(Socket());
  ASSERT_TRUE(a.Join(ticket, "GPU-a"));
  ASSERT_TRUE(a.Ask() && a.AwaitGrant() && a.Report(Phase::kHolding));
  DaemonProcess next = Successor();
  ASSERT_TRUE(next.Start()) << next.Log();
  EXPECT_EQ(ModeOfNext(), "standby");
  const json refused = SayToNext({{"command", "status"}});
  EXPECT_FALSE(refused.value("ok", true));
  EXPECT_EQ(refused.value("code", ""), "unavailable");
  EXPECT_NE(refused.value("error", "").find("stands by"), std::string::npos) << refused;
  // The one that serves is not disturbed.
  EXPECT_EQ(Holder(), "a");
  EXPECT_TRUE(ScriptedClient(Socket()).Join(ticket, "GPU-a"));

  EXPECT_EQ(daemon_.Stop(), 0);
  ASSERT_TRUE(Eventually([&] { return ModeOfNext() == "enforce"; })) << next.Log();
  const json status = SayToNext({{"command", "status"}});
  ASSERT_EQ(status.at("gpus").size(), 2u);
  EXPECT_EQ(status.at("gpus").at(0).value("holder", ""), "a") << "it knows what that one knew";
  ScriptedClient b(Socket());
  EXPECT_TRUE(b.Join(ticket, "GPU-a"));
}

TEST_F(Standby, TakesOverFromOneThatIsKilledAndStopsWhenToldTo) {
  DaemonProcess next = Successor();
  ASSERT_TRUE(next.Start()) << next.Log();
  EXPECT_EQ(ModeOfNext(), "standby");
  EXPECT_EQ(next.Stop(), 0);
  ASSERT_TRUE(next.Start()) << next.Log();
  daemon_.Crash();
  EXPECT_TRUE(Eventually([&] { return ModeOfNext() == "enforce"; })) << next.Log();
  EXPECT_FALSE(daemon_.Start()) << "without --standby a second one is an error";
  EXPECT_EQ(daemon_.Wait(), 1);
}

// Where only a GPU is wanted by both, the one that waits keeps nothing that others need.
TEST_F(Standby, HoldsNoLockWhileItWaits) {
  std::string text = ReadText(folder_ / "batond.toml");
  text.replace(text.find("/state\""), 7, "/other\"");
  text.replace(text.find("/run\""), 5, "/run2\"");
  WriteText(folder_ / "next.toml", text);
  DaemonProcess next(BATOND, folder_ / "next.toml", folder_ / "next.log", {"--standby"});
  ASSERT_TRUE(next.Start()) << next.Log();
  EXPECT_EQ(ModeAt(folder_ / "run2/control.sock"), "standby");
  ASSERT_TRUE(Eventually([&] {
    const UniqueFd lock(open((folder_ / "other/lock").c_str(), O_RDWR | O_CLOEXEC));
    return lock && flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
  }));
  daemon_.Stop();
  EXPECT_TRUE(Eventually([&] { return ModeAt(folder_ / "run2/control.sock") == "enforce"; }))
      << next.Log();
}

TEST_F(Standby, ASupervisedBatondServesAgainAfterEachKill) {
  daemon_.Stop();
  DaemonProcess kept(BATOND, folder_ / "batond.toml", folder_ / "kept.log", {"--supervise"});
  ASSERT_TRUE(kept.Start()) << kept.Log();
  const std::string ticket = Pod("a", 50);
  std::set<int> pids;
  for (int i = 0; i < 3; ++i) {
    json status;
    ASSERT_TRUE(Eventually([&] {
      status = Status();
      return status.is_object() && status.value("ok", false) &&
             pids.count(status.at("daemon").at("pid").get<int>()) == 0;
    })) << kept.Log();
    const int pid = status.at("daemon").at("pid");
    EXPECT_NE(pid, kept.pid());
    const auto arguments = [](int of) {
      return ReadText("/proc/" + std::to_string(of) + "/cmdline");
    };
    EXPECT_EQ(arguments(kept.pid()).find("batond"), std::string::npos)
        << "pkill -f finds the daemon";
    EXPECT_NE(arguments(pid).find("--config"), std::string::npos) << arguments(pid);
    EXPECT_TRUE(pids.insert(pid).second);
    ASSERT_EQ(kill(pid, SIGKILL), 0);
  }
  ASSERT_TRUE(Eventually([&] { return ScriptedClient(Socket()).Join(ticket, "GPU-a"); }));
  EXPECT_EQ(kept.Stop(), 0) << kept.Log();
  EXPECT_NE(kept.Log().find("ended by signal 9"), std::string::npos) << kept.Log();
  EXPECT_EQ(access(Socket().c_str(), F_OK), -1) << "it stopped cleanly";
}

TEST_F(Standby, ASupervisorThatWasToldToIgnoreTheEndsOfChildrenSeesThem) {
  daemon_.Stop();
  DaemonProcess kept(BATOND, folder_ / "batond.toml", folder_ / "kept.log", {"--supervise"});
  signal(SIGCHLD, SIG_IGN);
  const bool started = kept.Start();
  signal(SIGCHLD, SIG_DFL);
  ASSERT_TRUE(started) << kept.Log();
  const int pid = Status().at("daemon").at("pid");
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  EXPECT_TRUE(Eventually([&] {
    const json status = Status();
    return status.is_object() && status.value("ok", false) && status.at("daemon").at("pid") != pid;
  })) << kept.Log();
}

}  // namespace
}  // namespace baton::backend
