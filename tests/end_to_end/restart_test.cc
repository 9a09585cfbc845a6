// Daemons that are killed and started again under load.
#include <signal.h>

#include "bench/denied_time.h"
#include "tests/end_to_end/fixture.h"

namespace baton::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Restart : public EndToEnd {
 protected:
  static constexpr uint64_t kKernels = 1500;

  // A pod that launches exactly kKernels kernels, and then lives on without work.
  PodOptions FixedWork(const std::string& name, const std::string& request) {
    return Burn(name, request, "100",
                {"--burst", std::to_string(kKernels), "--sync", "burst", "--period", "100s"});
  }

  // A number that `status` keeps for a pod on the device.
  static uint64_t Account(const nlohmann::json& status, const std::string& pod,
                          const std::string& field) {
    for (const auto& entry : status.at("pods")) {
      if (entry.at("name") == pod) return entry.at("gpus").at(0).at(field);
    }
    throw std::runtime_error("status shows no pod " + pod + ": " + status.dump());
  }

  // The daemon is ready again: both pods run on within a second.
  void ExpectBothGoOn(const Pod& a, const Pod& b) {
    const uint64_t first = Count(device());
    const Instant ready = MonotonicNow();
    for (const Pod* pod : {&a, &b}) {
      EXPECT_TRUE(WaitUntil([&] { return !RecordsOf(*pod, device(), first).empty(); }, seconds(1)))
          << pod->name() << " stands still";
    }
    Figure("both_go_on_after_restart", static_cast<double>(Nanos(MonotonicNow() - ready)) / 1e6,
           "ms");
  }

  // Lets both pods finish, and compares the accounts with the device's record.
  void ExpectExactAccounts(const Pod& a, const Pod& b) {
    for (const Pod* pod : {&a, &b}) {
      ASSERT_TRUE(
          WaitUntil([&] { return RecordsOf(*pod, device()).size() >= kKernels; }, seconds(20)))
          << pod->name() << " ran " << RecordsOf(*pod, device()).size() << " kernels";
      const auto records = RecordsOf(*pod, device());
      ASSERT_EQ(records.size(), kKernels) << pod->name();
      double busy_ns = 0;
      for (const auto& record : records) busy_ns += static_cast<double>(record.busy_ns);
      const auto settled = cluster().WaitForStatus(
          0,
          [&](const nlohmann::json& status) {
            return Account(status, pod->name(), "launches") >= kKernels;
          },
          "launches of " + pod->name() + " are missing in the accounts", seconds(5));
      EXPECT_TRUE(settled) << settled.error().message;
      const auto status = Must(cluster().Status());
      EXPECT_EQ(Account(status, pod->name(), "launches"), kKernels) << pod->name();
      const auto held_ns = static_cast<double>(Account(status, pod->name(), "held_ns"));
      const auto denied_ns = static_cast<double>(Nanos(denied_.SoFar()));
      Figure("denied", denied_ns / 1e6, "ms");
      Figure("held_over_busy", held_ns / busy_ns, "");
      EXPECT_GE(held_ns, 0.98 * busy_ns) << pod->name();
      // A holder whose threads others kept from running held on meanwhile.
      EXPECT_LE(held_ns, 1.10 * busy_ns + denied_ns) << pod->name();
    }
    EXPECT_EQ(Overlaps(device()), 0u);
  }

 private:
  const bench::DeniedTime denied_;
};

class BatondRestart : public Restart, public ::testing::WithParamInterface<Transport> {};

TEST_P(BatondRestart, PodsGoOnAndNothingIsLostOrCountedTwice) {
  StartCluster({.transport = GetParam()});
  Pod& a = Start(FixedWork("a", "50"));
  Pod& b = Start(FixedWork("b", "50"));
  for (const int signal : {SIGKILL, SIGTERM}) {
    PassTime(milliseconds(300));
    cluster().batond().Signal(signal);
    ASSERT_TRUE(cluster().batond().Wait(seconds(5)));
    Must(cluster().StartBatond());
    ExpectBothGoOn(a, b);
  }
  ExpectExactAccounts(a, b);
}

INSTANTIATE_TEST_SUITE_P(Transports, BatondRestart,
                         ::testing::Values(Transport::kCentral, Transport::kUnix),
                         [](const auto& transport) {
                           return transport.param == Transport::kCentral ? "Central" : "Unix";
                         });

TEST_F(Restart, OfAFrontendPodsGoOnAndNothingIsLostOrCountedTwice) {
  StartCluster();
  Pod& a = Start(FixedWork("a", "50"));
  Pod& b = Start(FixedWork("b", "50"));
  for (const int signal : {SIGKILL, SIGTERM}) {
    PassTime(milliseconds(300));
    cluster().frontend(0).Signal(signal);
    ASSERT_TRUE(cluster().frontend(0).Wait(seconds(5)));
    Must(cluster().StartFrontend(0));
    ExpectBothGoOn(a, b);
  }
  ExpectExactAccounts(a, b);
}

// What README.md says for containers, with nothing of one but its mount.
TEST_F(Restart, APodThatSeesTheFolderForContainersAloneGoesOn) {
  if (system("unshare --mount true 2>/dev/null") != 0) {
    GTEST_SKIP() << "this user may not mount";
  }
  StartCluster({.transport = Transport::kUnix});
  PodOptions options = Burn("contained", "50", "100");
  const std::string sockets = cluster().SocketDir(0);
  std::vector<std::string> command = {"unshare",
                                      "--mount",
                                      "sh",
                                      "-c",
                                      "mount --bind \"$1/pods\" \"$1\" && [ \"$(ls \"$1\")\" = "
                                      "baton.sock ] && shift && exec \"$@\"",
                                      "sh",
                                      sockets};
  command.insert(command.end(), options.command.begin(), options.command.end());
  options.command = command;
  Pod& contained = Start(options);
  cluster().batond().Signal(SIGKILL);
  ASSERT_TRUE(cluster().batond().Wait(seconds(5)));
  // Its token ends, and the next one is the next daemon's.
  EXPECT_TRUE(WaitUntil([&] { return !MakesProgress(contained, device(), milliseconds(200)); },
                        seconds(5)));
  Must(cluster().StartBatond());
  EXPECT_TRUE(MakesProgress(contained, device(), seconds(2)));
}

TEST_F(Restart, AHolderThatDiesWhileBatondIsAwayDoesNotBlockTheGpu) {
  StartCluster({.transport = Transport::kUnix});
  Pod& survivor = Start(Burn("survivor", "10", "100"));
  Pod& victim = Start(Burn("victim", "85", "100"));
  cluster().batond().Signal(SIGKILL);
  ASSERT_TRUE(cluster().batond().Wait(seconds(5)));
  for (const pid_t pid : victim.Pids()) kill(pid, SIGKILL);
  Must(cluster().StartBatond());
  EXPECT_TRUE(MakesProgress(survivor, device(), seconds(2)));
  StopPods();
  EXPECT_EQ(Overlaps(device()), 0u);
}

}  // namespace
}  // namespace baton::bench
