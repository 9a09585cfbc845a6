// baton-burn's devices that wait for each other, on the simulated GPU and without Baton.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/cluster.h"
#include "bench/process.h"
#include "sim/device.h"

namespace baton::bench {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Burn : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp") /
              ("baton-burn-test-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    for (const char* name : {"0", "1"}) {
      auto made = sim::CreateDeviceFile(Device(name), {});
      ASSERT_TRUE(made) << made.error().message;
    }
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string Device(const std::string& name) const { return folder_ / name; }

  Process Start(const std::vector<std::string>& flags) {
    SpawnOptions spawn;
    spawn.command = {std::string(BATON_BUILD) + "/bin/baton-burn", "--die-with-parent"};
    spawn.command.insert(spawn.command.end(), flags.begin(), flags.end());
    spawn.environment = {{"LD_LIBRARY_PATH", std::string(BATON_BUILD) + "/lib/sim"},
                         {"BATON_SIM_DEVICES", Device("0") + ":" + Device("1")},
                         {"ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0"}};
    spawn.stdout_path = folder_ / "out";
    spawn.stderr_path = folder_ / "err";
    auto process = Process::Spawn(spawn);
    if (!process) throw std::runtime_error(process.error().message);
    return std::move(*process);
  }
  // What was printed last.
  json Report() const {
    std::istringstream lines(Read("out"));
    json last;
    for (std::string line; std::getline(lines, line);) last = json::parse(line);
    return last;
  }
  std::string Read(const char* name) const {
    std::ifstream file(folder_ / name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  // Runs to the end, and expects it to be good.
  json Run(const std::vector<std::string>& flags) {
    std::filesystem::remove(folder_ / "out");
    Process burn = Start(flags);
    const auto status = burn.Wait(seconds(30));
    EXPECT_EQ(status, 0) << Read("out") << Read("err");
    return status == 0 ? Report() : json();
  }
  // Until the device has run some kernels.
  void WaitForWork(const std::string& device) {
    const uint64_t first = *sim::CountRecords(device);
    EXPECT_TRUE(WaitUntil([&] { return *sim::CountRecords(device) > first + 20; }, seconds(20)));
  }

  std::filesystem::path folder_;
};

// How the ranks are spread over processes.
class Collectives : public Burn, public ::testing::WithParamInterface<const char*> {
 protected:
  std::vector<std::string> Flags(std::vector<std::string> more) const {
    std::vector<std::string> flags = {"--devices", "0,1", "--processes", GetParam()};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }
};

TEST_P(Collectives, ThousandsAreCompletedWhateverTheRanksSkew) {
  const json report = Run(Flags({"--collective", "3", "--kernel", "20us", "--spread", "1",
                                 "--spread-shape", "lognormal", "--bursts", "900", "--verify"}));
  ASSERT_FALSE(report.is_null());
  EXPECT_GE(report.at("collectives"), 3000) << report;
  EXPECT_EQ(report.at("verified"), true) << report;
  ASSERT_EQ(report.at("devices").size(), 2u) << report;
  // Each burst is of ten kernels, whose mean is 20 us.
  for (const json& device : report.at("devices")) {
    EXPECT_NEAR(device.at("gpu_seconds"), 900 * 10 * 20e-6, 0.05) << report;
  }
}

TEST_P(Collectives, NoDeviceIsAheadOfTheOtherByMoreThanTheKernelsBetweenTwo) {
  Run(Flags({"--collective", "4", "--kernel", "1ms", "--spread", "0.9", "--bursts", "20"}));
  // In each device's record the k-th store to "left" ends after both k-th stores to "arrived"
  // began.
  std::vector<int64_t> arrived[2], left[2];
  for (int device : {0, 1}) {
    const auto records = sim::ReadRecords(Device(std::to_string(device)));
    ASSERT_TRUE(records);
    bool leaves = false;
    for (const sim::KernelRecord& record : *records) {
      if (record.name != "baton_spin_store") continue;
      (leaves ? left : arrived)[device].push_back(leaves ? record.end_ns : record.start_ns);
      leaves = !leaves;
    }
    ASSERT_EQ(arrived[device].size(), left[device].size());
  }
  ASSERT_EQ(arrived[0].size(), arrived[1].size())
      << "one rank ran collectives that the other did not";
  ASSERT_GE(arrived[0].size(), 50u);
  // The first is before the run, and waits for nobody.
  for (size_t n = 1; n < arrived[0].size(); ++n) {
    for (int device : {0, 1}) {
      EXPECT_GE(left[device][n], arrived[1 - device][n]) << "device " << device << ", number " << n;
    }
  }
}

TEST_P(Collectives, EveryWayToWaitEndsWithTheSameCollectiveOnAll) {
  for (const char* sync : {"none", "burst", "launch", "1", "64"}) {
    const json report = Run(Flags({"--collective", "7", "--kernel", "100us", "--spread", "0.5",
                                   "--sync", sync, "--seconds", "0.3"}));
    ASSERT_FALSE(report.is_null()) << sync;
    EXPECT_GE(report.at("collectives"), 30) << sync << report;
  }
}

TEST_P(Collectives, ATerminatedRunEndsCleanly) {
  Process burn = Start(Flags({"--collective", "5", "--kernel", "200us", "--burst", "1000000"}));
  WaitForWork(Device("1"));
  burn.Signal(SIGTERM);
  EXPECT_EQ(burn.Wait(seconds(10)), 0) << Read("out") << Read("err");
  EXPECT_EQ(Report().at("error"), nullptr);
}

TEST_P(Collectives, AFaultEndsTheRunAndIsTold) {
  Process burn = Start(Flags({"--collective", "5", "--fault-after", "0.2"}));
  EXPECT_EQ(burn.Wait(seconds(10)), 1) << Read("out") << Read("err");
  EXPECT_NE(Report().at("error").dump().find("ILLEGAL_ADDRESS"), std::string::npos) << Report();
}

INSTANTIATE_TEST_SUITE_P(Processes, Collectives, ::testing::Values("1", "2"),
                         [](const auto& processes) {
                           return std::string(processes.param) == "1" ? "One" : "OnePerDevice";
                         });

TEST_F(Burn, RanksMayBeProgramsOfTheirOwn) {
  const auto rank = [&](const char* number) {
    return std::vector<std::string>{
        "--collective",   "5",      "--kernel", "200us",   "--bursts", "40",       "--meet",
        folder_ / "meet", "--rank", number,     "--ranks", "2",        "--device", number};
  };
  Process first = Start(rank("0"));
  EXPECT_FALSE(first.Wait(milliseconds(300))) << "it waits for the other one";
  EXPECT_EQ(*sim::CountRecords(Device("0")), 0u);
  Process second = Start(rank("1"));
  EXPECT_EQ(second.Wait(seconds(20)), 0) << Read("out") << Read("err");
  EXPECT_EQ(first.Wait(seconds(20)), 0) << Read("out") << Read("err");
  EXPECT_GE(Report().at("collectives"), 70);
}

TEST_F(Burn, APeerThatStandsStillIsNamed) {
  Process burn = Start({"--devices", "0,1", "--processes", "2", "--collective", "5", "--patience",
                        "1s", "--kernel", "500us"});
  WaitForWork(Device("1"));
  const std::vector<pid_t> ranks = Descendants(burn.pid());
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGSTOP);
  EXPECT_EQ(burn.Wait(seconds(10)), 1) << Read("out") << Read("err");
  const std::string error = Report().at("error");
  EXPECT_NE(error.find("no collective has ended for 1s: device 0 waits in collective"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("for device 1"), std::string::npos) << error;
}

TEST_F(Burn, APeerThatIsKilledTakesTheOthersAlong) {
  Process burn = Start({"--devices", "0,1", "--processes", "2", "--collective", "5"});
  WaitForWork(Device("1"));
  const std::vector<pid_t> ranks = Descendants(burn.pid());
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGKILL);
  EXPECT_EQ(burn.Wait(seconds(5)), 1) << Read("out") << Read("err");
  EXPECT_EQ(Report().at("error"), "process " + std::to_string(ranks[1]) + " was ended by signal 9");
}

TEST_F(Burn, WithoutCollectivesEachDeviceWorksForItself) {
  const json report = Run({"--devices", "1,0", "--threads", "2", "--seconds", "0.5"});
  ASSERT_FALSE(report.is_null());
  EXPECT_EQ(report.at("collectives"), nullptr);
  for (const json& device : report.at("devices")) EXPECT_GE(device.at("share"), 70) << report;
}

TEST_F(Burn, RanksThatCannotMeetAreRefused) {
  for (const auto& flags : std::vector<std::vector<std::string>>{
           {"--collective", "1"},
           {"--collective", "1", "--meet", "x", "--rank", "2", "--ranks", "2"},
           {"--collective", "1", "--meet", "x", "--rank", "0"},
           {"--meet", "x", "--rank", "0", "--ranks", "2"},
           {"--devices", "0,0"},
           {"--devices", "0,1", "--processes", "3"},
           {"--devices", "0,1", "--collective", "1", "--threads", "2"},
           {"--devices", "0,1", "--collective", "1", "--streams", "2"},
           {"--devices", "0,1", "--collective", "1", "--period", "15s"}}) {
    Process burn = Start(flags);
    EXPECT_EQ(burn.Wait(seconds(10)), 64) << flags[0] << " " << flags[1];
  }
}

}  // namespace
}  // namespace baton::bench
