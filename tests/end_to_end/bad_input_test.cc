// Bad input: each gets one clear line and a non-zero exit, and nobody else notices.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/end_to_end/fixture.h"

namespace baton::bench {
namespace {

using std::chrono::seconds;

struct Outcome {
  ExitStatus status;
  std::string said;  // on standard error
};

class BadInput : public EndToEnd {
 protected:
  // Runs a program of Baton to its end.
  Outcome Run(const std::vector<std::string>& command,
              const std::vector<std::pair<std::string, std::string>>& environment = {}) {
    SpawnOptions spawn;
    spawn.command = command;
    spawn.command[0] = std::string(BATON_PROGRAMS) + "/" + command[0];
    spawn.environment = environment;
    spawn.environment.emplace_back("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0");
    spawn.stdout_path = Scratch("out");
    spawn.stderr_path = Scratch("err");
    std::filesystem::remove(spawn.stderr_path);
    Process process = Must(Process::Spawn(spawn));
    const auto status = process.Wait(seconds(15));
    if (!status) throw std::runtime_error(command[0] + " does not end");
    std::ifstream said(spawn.stderr_path);
    return {*status,
            std::string(std::istreambuf_iterator<char>(said), std::istreambuf_iterator<char>())};
  }

  // `baton run` with these flags against the cluster.
  Outcome RunPod(const std::vector<std::string>& flags) {
    std::vector<std::string> command = {"baton", "run", "--socket-dir", cluster().SocketDir(0)};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), {"--", "/bin/true"});
    return Run(command, cluster().GpuEnvironment(0));
  }

  std::string Scratch(const std::string& name) {
    if (scratch_.empty()) {
      scratch_ = ::testing::TempDir() + "baton-bad-input-" + std::to_string(getpid());
      std::filesystem::create_directories(scratch_);
    }
    return scratch_ + "/" + name;
  }
  ~BadInput() override {
    std::error_code ignored;
    if (!scratch_.empty()) std::filesystem::remove_all(scratch_, ignored);
  }

  // One line on standard error that names `word`, and a non-zero exit.
  static void ExpectRefused(const Outcome& outcome, const std::string& word) {
    EXPECT_NE(outcome.status, 0);
    EXPECT_EQ(std::count(outcome.said.begin(), outcome.said.end(), '\n'), 1) << outcome.said;
    EXPECT_NE(outcome.said.find(word), std::string::npos)
        << "expected \"" << word << "\" in: " << outcome.said;
  }

 private:
  std::string scratch_;
};

TEST_F(BadInput, SharesOutOfRangeAreRefused) {
  StartCluster({.transport = Transport::kUnix});
  ExpectRefused(RunPod({"--request", "0"}), "--request");
  ExpectRefused(RunPod({"--request", "101"}), "--request");
  ExpectRefused(RunPod({"--request", "abc"}), "abc");
  ExpectRefused(RunPod({"--request", "50", "--limit", "40"}), "limit");
  ExpectRefused(RunPod({"--request", "50", "--frobnicate"}), "frobnicate");
  EXPECT_EQ(RunPod({"--request", "50"}).status, 0);
}

TEST_F(BadInput, RequestsBeyondAGpuAreRefusedAndTheOthersRunOn) {
  StartCluster();
  Pod& first = Start(Burn("first", "60", "100"));
  ExpectRefused(RunPod({"--name", "second", "--request", "50"}), "60");
  ExpectRefused(RunPod({"--name", "first", "--request", "10"}), "first");
  ExpectRefused(RunPod({"--name", "third", "--request", "10", "--gpu", "GPU-none"}), "GPU-none");
  EXPECT_TRUE(MakesProgress(first, device(), seconds(2)));
}

TEST_F(BadInput, AMissingSocketIsNamed) {
  ExpectRefused(Run({"baton", "status", "--socket-dir", "/nonexistent/baton"}), "/nonexistent");
  ExpectRefused(
      Run({"baton", "run", "--socket-dir", "/nonexistent/baton", "--request", "10", "--", "true"}),
      "/nonexistent");
}

TEST_F(BadInput, ASecondBatondForTheSameGpuIsRefused) {
  StartCluster({.transport = Transport::kUnix});
  Pod& pod = Start(Burn("pod", "60", "100"));
  std::ifstream config(cluster().BatondConfig());
  std::string text((std::istreambuf_iterator<char>(config)), std::istreambuf_iterator<char>());
  for (size_t at; (at = text.find("batond0")) != std::string::npos;) text.replace(at, 7, "other");
  std::ofstream(Scratch("second.toml")) << text;
  const Outcome second =
      Run({"batond", "--config", Scratch("second.toml")}, cluster().GpuEnvironment(0));
  EXPECT_NE(second.status, 0);
  EXPECT_NE(second.said.find(device().uuid), std::string::npos) << second.said;
  EXPECT_TRUE(MakesProgress(pod, device(), seconds(2)));
}

TEST_F(BadInput, ATomlErrorNamesFileAndLine) {
  std::ofstream(Scratch("bad.toml"))
      << "[server]\nsocket_dir = \"/tmp/x\"\n[scheduler]\nquota = 1\n";
  ExpectRefused(Run({"batond", "--config", Scratch("bad.toml")}), "bad.toml:4");
  ExpectRefused(Run({"batond", "--config", Scratch("none.toml")}), "none.toml");
  ExpectRefused(Run({"baton-frontend", "--config", Scratch("bad.toml")}), "bad.toml:4");
}

TEST_F(BadInput, AKeyThatIsNotListedGetsNowhereAndTheOthersRunOn) {
  StartCluster();
  Pod& pod = Start(Burn("pod", "60", "100"));
  ASSERT_EQ(Run({"baton", "keygen", Scratch("stranger.key")}).status, 0);
  std::ifstream config(cluster().File("node0.toml"));
  std::string text((std::istreambuf_iterator<char>(config)), std::istreambuf_iterator<char>());
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  };
  replace(cluster().File("node0.key"), Scratch("stranger.key"));
  for (size_t at = 0; (at = text.find("node0", at)) != std::string::npos; at += 8) {
    text.replace(at, 5, "stranger");
  }
  std::ofstream(Scratch("stranger.toml")) << text;
  SpawnOptions spawn;
  spawn.command = {cluster().Program("baton-frontend"), "--config", Scratch("stranger.toml")};
  spawn.stdout_path = spawn.stderr_path = Scratch("stranger.log");
  Process stranger = Must(Process::Spawn(spawn));
  const auto log = [&] {
    std::ifstream file(Scratch("stranger.log"));
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  };
  EXPECT_TRUE(WaitUntil([&] { return log().find("key") != std::string::npos; }, seconds(10)))
      << log();
  const auto status = Must(cluster().Status());
  EXPECT_EQ(status.at("nodes").dump().find("stranger"), std::string::npos) << status.at("nodes");
  EXPECT_TRUE(MakesProgress(pod, device(), seconds(2)));
}

TEST_F(BadInput, AnAbsentDriverIsNamed) {
  if (std::filesystem::exists("/usr/lib/x86_64-linux-gnu/libcuda.so.1")) {
    GTEST_SKIP() << "this machine has a driver";
  }
  const Outcome outcome = Run({"baton-burn", "--seconds", "1"}, {{"LD_LIBRARY_PATH", ""}});
  ExpectRefused(outcome, "libcuda.so.1");
  EXPECT_EQ(outcome.status, 69);
}

TEST_F(BadInput, TheWorkloadProgramRefusesNonsense) {
  ExpectRefused(Run({"baton-burn", "--frobnicate"}), "frobnicate");
  ExpectRefused(Run({"baton-burn", "--kernel", "fast"}), "fast");
  ExpectRefused(Run({"baton-burn", "--sync", "sometimes"}), "sometimes");
  ExpectRefused(Run({"baton-demo", "--pods", "a:60,b:60"}), "120");
  ExpectRefused(Run({"baton-demo", "--transport", "pigeon"}), "pigeon");
}

}  // namespace
}  // namespace baton::bench
