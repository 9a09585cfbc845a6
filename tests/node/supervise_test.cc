#include "node/supervise.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "tests/temp_folder.h"

namespace baton::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kKilled = SIGKILL;  // as waitpid() has it
constexpr int kExited(int status) { return status << 8; }

TEST(RestartRule, WhoWasKilledIsStartedAgainAtOnce) {
  RestartRule rule;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(rule.AfterEnd(kKilled, seconds(1)), Duration(0)) << i;
    EXPECT_EQ(rule.AfterEnd(SIGSEGV | 0x80, seconds(6)), Duration(0)) << "with a core";
  }
}

TEST(RestartRule, WhoExitedMeantIt) {
  for (const int status : {0, 1, 2}) {
    RestartRule rule;
    EXPECT_EQ(rule.AfterEnd(kExited(status), seconds(100)), std::nullopt) << status;
    EXPECT_EQ(rule.AfterEnd(kExited(status), milliseconds(1)), std::nullopt) << status;
  }
}

TEST(RestartRule, WhoCrashesAsItStartsWaitsLongerAndLongerAndIsGivenUp) {
  RestartRule rule;
  std::vector<Duration> pauses;
  while (const auto pause = rule.AfterEnd(SIGSEGV, milliseconds(5))) pauses.push_back(*pause);
  ASSERT_EQ(pauses.size(), RestartRule::kEarlyMax);
  EXPECT_EQ(pauses[0], milliseconds(10));
  EXPECT_EQ(pauses[1], milliseconds(20));
  EXPECT_EQ(pauses[6], milliseconds(640));
  EXPECT_EQ(pauses[7], seconds(1));
  EXPECT_EQ(pauses.back(), seconds(1));
  // One that lasted makes up for those before.
  RestartRule other;
  for (int i = 0; i < 5; ++i) other.AfterEnd(SIGSEGV, milliseconds(5));
  EXPECT_EQ(other.AfterEnd(SIGSEGV, seconds(2)), Duration(0));
  EXPECT_EQ(other.AfterEnd(SIGSEGV, milliseconds(5)), milliseconds(10));
}

// The supervisor as a process; its child writes its pid to a file each time it is started.
class Supervised : public ::testing::Test {
 protected:
  void Start(std::function<int()> run) {
    keeper_ = fork();
    ASSERT_GE(keeper_, 0);
    if (keeper_ == 0) {
      const std::string file = folder_ / "pids";
      _exit(Supervise("thing", {}, [&] {
        std::ofstream(file, std::ios::app) << getpid() << std::endl;
        return run();
      }));
    }
  }
  ~Supervised() override {
    if (keeper_ > 0) {
      kill(keeper_, SIGKILL);
      waitpid(keeper_, nullptr, 0);
    }
  }
  std::vector<pid_t> Pids() const {
    std::vector<pid_t> pids;
    std::ifstream file(folder_ / "pids");
    for (pid_t pid; file >> pid;) pids.push_back(pid);
    return pids;
  }
  // The one that was started as number `count`.
  pid_t Await(size_t count) {
    for (int i = 0; i < 4'000; ++i) {
      if (const auto pids = Pids(); pids.size() >= count) return pids[count - 1];
      usleep(5'000);
    }
    return -1;
  }
  int End() {
    int status = -1;
    waitpid(keeper_, &status, 0);
    keeper_ = -1;
    return status;
  }
  static std::string NameOf(pid_t pid) {
    std::string name;
    std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), name);
    return name;
  }

  const TempFolder folder_;
  pid_t keeper_ = -1;
};

int Forever() {
  while (true) pause();
}

TEST_F(Supervised, IsStartedAgainAsOftenAsItIsKilled) {
  Start(Forever);
  for (size_t i = 1; i <= 4; ++i) {
    const pid_t pid = Await(i);
    ASSERT_GT(pid, 0) << i;
    EXPECT_EQ(NameOf(keeper_), "baton-keeper") << "pkill thing means the daemon";
    EXPECT_EQ(NameOf(pid), "thing");
    kill(pid, SIGKILL);
  }
  ASSERT_GT(Await(5), 0);
  kill(keeper_, SIGTERM);
  EXPECT_EQ(WEXITSTATUS(End()), 128 + SIGTERM) << "the child has not handled it";
  EXPECT_EQ(Pids().size(), 5u);
}

TEST_F(Supervised, PassesOnSignalsAndTheExitStatus) {
  static volatile sig_atomic_t hups;
  hups = 0;
  Start([] {
    signal(SIGHUP, [](int) { hups = hups + 1; });
    signal(SIGTERM, [](int) { _exit(40 + hups); });
    return Forever();
  });
  ASSERT_GT(Await(1), 0);
  usleep(50'000);  // its handlers; a SIGHUP before that would kill it, and it would begin again
  kill(keeper_, SIGHUP);
  for (int i = 0; i < 200 && Pids().size() == 1; ++i) usleep(1'000);
  kill(keeper_, SIGTERM);
  const int status = End();
  ASSERT_TRUE(WIFEXITED(status));
  if (Pids().size() == 1) {
    EXPECT_EQ(WEXITSTATUS(status), 41);
  }
}

TEST_F(Supervised, ADaemonThatCannotServeIsNotStartedAgain) {
  Start([] { return 2; });
  EXPECT_EQ(WEXITSTATUS(End()), 2);
  EXPECT_EQ(Pids().size(), 1u);
}

// Else two of them would serve where an orchestrator starts the supervisor anew.
TEST_F(Supervised, DiesWithItsSupervisor) {
  int lives[2];  // its end is closed when all that have it are gone
  ASSERT_EQ(pipe2(lives, O_CLOEXEC), 0);
  Start(Forever);
  close(lives[1]);
  ASSERT_GT(Await(1), 0);
  kill(keeper_, SIGKILL);
  End();
  char byte;
  EXPECT_EQ(read(lives[0], &byte, 1), 0);
  close(lives[0]);
}

}  // namespace
}  // namespace baton::node
