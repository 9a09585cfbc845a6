// `baton run` against a daemon that the test plays.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "tests/cli/harness.h"

namespace baton::cli {
namespace {

using nlohmann::json;

class Run : public testing::Test {
 protected:
  // The arguments of `baton run OPTIONS -- sh -c SCRIPT`.
  static std::vector<std::string> Shell(const std::string& script,
                                        std::vector<std::string> options = {"--request", "30"}) {
    options.insert(options.begin(), "run");
    options.insert(options.end(), {"--", "/bin/sh", "-c", script});
    return options;
  }
  Environment environment() const {
    return {{"BATON_SOCKET_DIR", daemon_.socket_dir()}, {"BATON_HOOK", EMPTY_HOOK}};
  }
  std::vector<std::string> Commands() {
    std::vector<std::string> commands;
    for (const json& request : daemon_.requests()) commands.push_back(request["command"]);
    return commands;
  }

  FakeDaemon daemon_{[](const json& request) -> json {
    if (request["command"] == "create_pod") {
      return {{"pod", 7}, {"ticket", "t-123"}, {"gpus", {"GPU-a", "GPU-b"}}};
    }
    return json::object();
  }};
};

TEST_F(Run, EndsWithTheProgramsStatusAndDeletesThePod) {
  const Outcome outcome = RunBaton(Shell("exit 7"), environment());
  EXPECT_EQ(outcome.status, 7) << outcome.err;
  EXPECT_EQ(Commands(), (std::vector<std::string>{"create_pod", "delete_pod"}));
  EXPECT_EQ(daemon_.requests()[0]["name"], daemon_.requests()[1]["name"]);
}

TEST_F(Run, ASignalThatKillsTheProgramBecomesTheStatus) {
  EXPECT_EQ(RunBaton(Shell("kill -KILL $$"), environment()).status, 128 + SIGKILL);
  EXPECT_EQ(Commands().back(), "delete_pod");
}

TEST_F(Run, AProgramThatIsNotThereIs127AndLeavesNoPod) {
  const Outcome outcome =
      RunBaton({"run", "--request", "30", "--", "no-such-program"}, environment());
  EXPECT_EQ(outcome.status, 127);
  EXPECT_EQ(outcome.err, "baton: no program 'no-such-program'; check its name and PATH\n");
  EXPECT_EQ(Commands(), (std::vector<std::string>{"create_pod", "delete_pod"}));
}

TEST_F(Run, AFileThatIsNoProgramIs126) {
  EXPECT_EQ(RunBaton({"run", "--request", "30", "--", "/dev/null"}, environment()).status, 126);
}

TEST_F(Run, GivesTheProgramItsTicketSocketHookAndGpus) {
  const Outcome outcome =
      RunBaton(Shell("echo $BATON_SOCKET; echo $BATON_TICKET; echo $BATON_AWAY; echo $LD_PRELOAD;"
                     "echo $CUDA_VISIBLE_DEVICES",
                     {"--request", "30", "--away", "open"}),
               environment());
  EXPECT_EQ(outcome.out,
            daemon_.socket_dir() + "/baton.sock\nt-123\nopen\n" EMPTY_HOOK "\nGPU-a,GPU-b\n");
}

TEST_F(Run, PutsTheHookBeforeWhatIsPreloadedAlready) {
  Environment with = environment();
  with.emplace_back("LD_PRELOAD", EMPTY_HOOK);
  // Under the address sanitizer `baton` would not start behind a preloaded library, whatever that
  // is; an empty one takes nothing from the sanitizer.
  with.emplace_back("ASAN_OPTIONS", "verify_asan_link_order=0");
  EXPECT_EQ(RunBaton(Shell("echo $LD_PRELOAD"), with).out, EMPTY_HOOK ":" EMPTY_HOOK "\n");
}

TEST_F(Run, AsksForWhatItsFlagsSay) {
  RunBaton(Shell("", {"--name", "trainer", "--request", "30", "--limit", "60.5", "--memory", "4GiB",
                      "--priority", "high", "--team", "research/vision", "--gpu", "0", "--gpu",
                      "GPU-b"}),
           environment());
  const json request = daemon_.requests().at(0);
  EXPECT_EQ(request["name"], "trainer");
  EXPECT_EQ(request["request"], 30.0);
  EXPECT_EQ(request["limit"], 60.5);
  EXPECT_EQ(request["memory"], uint64_t{4} << 30);
  EXPECT_EQ(request["priority"], "high");
  EXPECT_EQ(request["team"], "research/vision");
  EXPECT_EQ(request["gpus"], json::array({"0", "GPU-b"}));
  EXPECT_EQ(request["count"], 2);
  EXPECT_EQ(request["uid"], getuid());
}

TEST_F(Run, ARequestAloneIsElastic) {
  RunBaton(Shell("", {"--request", "30"}), environment());
  EXPECT_EQ(daemon_.requests().at(0)["request"], 30.0);
  EXPECT_EQ(daemon_.requests().at(0)["limit"], 100.0);
}

TEST_F(Run, ALimitAloneIsStrict) {
  RunBaton(Shell("", {"--limit", "30"}), environment());
  EXPECT_EQ(daemon_.requests().at(0)["request"], 30.0);
  EXPECT_EQ(daemon_.requests().at(0)["limit"], 30.0);
}

TEST_F(Run, LeavesTheProgramsArgumentsAlone) {
  const Outcome outcome = RunBaton(
      {"run", "--request", "30", "--", "/bin/echo", "[1,2]", "--help", "--request", "", "--", "x"},
      environment());
  EXPECT_EQ(outcome.out, "[1,2] --help --request  -- x\n");
}

TEST_F(Run, PassesSignalsOn) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH}) {
    BatonProcess baton(Shell("trap 'exit 9' " + std::to_string(signal) +
                             "; echo ready; while :; do sleep 0.01; done"),
                       environment());
    ASSERT_TRUE(baton.AwaitLine("ready"));
    kill(baton.pid(), signal);
    EXPECT_EQ(baton.Wait(), 9) << "signal " << signal;
  }
}

TEST_F(Run, StopsAndGoesOnWithTheProgram) {
  BatonProcess baton(Shell("echo ready; while :; do sleep 0.01; done"), environment());
  ASSERT_TRUE(baton.AwaitLine("ready"));
  kill(baton.pid(), SIGTSTP);
  ASSERT_TRUE(baton.AwaitStop());
  kill(baton.pid(), SIGCONT);
  kill(baton.pid(), SIGTERM);
  EXPECT_EQ(baton.Wait(), 128 + SIGTERM);
}

TEST_F(Run, AnErrorOfTheDaemonIsPrintedAndNothingIsRun) {
  FakeDaemon full([](const json&) -> json {
    return {{"ok", false}, {"code", "exhausted"}, {"error", "GPU-a has 10 % left; ask for less"}};
  });
  Environment with = environment();
  with[0].second = full.socket_dir();
  const Outcome outcome = RunBaton(Shell("echo started"), with);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "baton: GPU-a has 10 % left; ask for less\n");
  EXPECT_EQ(full.requests().size(), 1u);
}

TEST_F(Run, AHookThatIsNotThereIsExplained) {
  Environment with = environment();
  with[1].second = "/nowhere/libbaton.so";
  const Outcome outcome = RunBaton(Shell("echo started"), with);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err,
            "baton: BATON_HOOK names /nowhere/libbaton.so, which is not there; correct or unset "
            "it\n");
  EXPECT_TRUE(daemon_.requests().empty());
}

TEST(Set, SendsOnlyWhatWasNamed) {
  FakeDaemon daemon;
  const Outcome outcome =
      RunBaton({"set", "trainer", "--request", "40"}, {{"BATON_SOCKET_DIR", daemon.socket_dir()}});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(daemon.requests().at(0),
            (json{{"command", "set_pod"}, {"name", "trainer"}, {"request", 40.0}}));
}

TEST(Rm, RemovesEachPodAndReportsTheUnknownOnes) {
  FakeDaemon daemon([](const json& request) -> json {
    if (request["name"] == "b") return {{"ok", false}, {"code", "not_found"}, {"error", "no b"}};
    return json::object();
  });
  const Outcome outcome =
      RunBaton({"rm", "a", "b", "c"}, {{"BATON_SOCKET_DIR", daemon.socket_dir()}});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err, "baton: no b\n");
  EXPECT_EQ(daemon.requests().size(), 3u);
}

}  // namespace
}  // namespace baton::cli
