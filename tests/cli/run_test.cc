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

TEST_F(Run, BehindSudoTheProgramAndTheBooksAreItsCallers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  const auto with = [this](const char* uid, const char* gid) {
    Environment environment = this->environment();
    environment.emplace_back("SUDO_UID", uid);
    environment.emplace_back("SUDO_GID", gid);
    return environment;
  };
  const std::string who = "echo $(id -u) $(id -g) $(id -G) $USER >&2";
  const auto says = [&](const std::vector<std::string>& flags, const Environment& environment) {
    std::vector<std::string> all = {"--quiet", "--request", "30"};
    all.insert(all.end(), flags.begin(), flags.end());
    return RunBaton(Shell(who, all), environment).err;
  };
  EXPECT_EQ(says({}, with("65534", "65534")), "65534 65534 65534 nobody\n");
  EXPECT_EQ(daemon_.requests()[0]["uid"], 65534);
  EXPECT_EQ(daemon_.requests()[0]["user"], "nobody");
  // The group is the machine's word, not the environment's.
  EXPECT_EQ(says({}, with("65534", "0")), "65534 65534 65534 nobody\n");
  EXPECT_EQ(says({}, with("65534", "junk")), "65534 65534 65534 nobody\n");
  for (const char* nobody : {"0", "", "junk", "-1", "65534x", "99999999999999"}) {
    EXPECT_TRUE(says({}, with(nobody, "65534")).starts_with("0 ")) << nobody;
  }
  EXPECT_TRUE(says({"--as-root"}, with("65534", "65534")).starts_with("0 "));
}

TEST_F(Run, ASignalThatKillsTheProgramBecomesTheStatus) {
  EXPECT_EQ(RunBaton(Shell("kill -KILL $$"), environment()).status, 128 + SIGKILL);
  EXPECT_EQ(Commands().back(), "delete_pod");
}

TEST_F(Run, AProgramThatIsNotThereIs127AndLeavesNoPod) {
  const Outcome outcome =
      RunBaton({"run", "--request", "30", "--", "no-such-program"}, environment());
  EXPECT_EQ(outcome.status, 127);
  EXPECT_EQ(outcome.err,
            "baton: pod no-such-program on GPU-a, GPU-b: request 30 %, limit 100 %\n"
            "baton: no program 'no-such-program'; check its name and PATH\n");
  EXPECT_EQ(Commands(), (std::vector<std::string>{"create_pod", "delete_pod"}));
}

TEST_F(Run, SaysWhereThePodIsUnlessItIsToBeQuiet) {
  EXPECT_EQ(
      RunBaton(Shell("", {"--name", "t", "--request", "30", "--limit", "60.5"}), environment()).err,
      "baton: pod t on GPU-a, GPU-b: request 30 %, limit 60.5 %\n");
  EXPECT_EQ(RunBaton(Shell("", {"--quiet", "--request", "30"}), environment()).err, "");
}

TEST_F(Run, APodHasTheProgramsNameAndANumberOnlyIfThatIsTaken) {
  FakeDaemon daemon([](const json& request) -> json {
    if (request["command"] != "create_pod") return json::object();
    const std::string name = request["name"];
    if (name == "sh" || name == "sh-2") {
      return {{"ok", false}, {"code", "exists"}, {"error", "there is a pod " + name + " already"}};
    }
    return {{"ticket", "t-9"}, {"gpus", {"GPU-a"}}};
  });
  Environment with = environment();
  with[0].second = daemon.socket_dir();
  EXPECT_EQ(RunBaton(Shell("exit 3"), with).status, 3);
  const auto requests = daemon.requests();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[0]["name"], "sh");
  EXPECT_EQ(requests[2]["name"], "sh-3");
  EXPECT_EQ(requests[3], (json{{"command", "delete_pod"}, {"name", "sh-3"}}));
}

TEST_F(Run, ARefusalThatIsNotForTheNameEndsTheSearchForOne) {
  FakeDaemon full([](const json&) -> json {
    return {{"ok", false}, {"code", "exists"}, {"error", "gang job has all of its 2 pods"}};
  });
  Environment with = environment();
  with[0].second = full.socket_dir();
  const Outcome outcome = RunBaton(Shell(""), with);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err, "baton: gang job has all of its 2 pods\n");
  EXPECT_EQ(full.requests().size(), 2u);
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

TEST_F(Run, AsksForTheGpusThatItsFlagsMean) {
  RunBaton(
      Shell("", {"--request",   "30",         "--memory",   "25%",  "--count",         "2",
                 "--mode",      "time-slice", "--model",    "h100", "--model",         "a100 80gb",
                 "--not-model", "t4",         "--affinity", "x",    "--anti-affinity", "y",
                 "--exclusion", "z"}),
      environment());
  const json request = daemon_.requests().at(0);
  EXPECT_EQ(request["memory"], "25%");
  EXPECT_EQ(request["count"], 2);
  EXPECT_EQ(request["mode"], "time-slice");
  EXPECT_EQ(request["models"], json::array({"h100", "a100 80gb"}));
  EXPECT_EQ(request["not_models"], json::array({"t4"}));
  EXPECT_EQ(request["affinity"], "x");
  EXPECT_EQ(request["anti_affinity"], "y");
  EXPECT_EQ(request["exclusion"], "z");
}

TEST_F(Run, MoreGpusThanAPodMayHaveAreRefusedBeforeAnythingIsAsked) {
  std::vector<std::string> flags{"--request", "30"};
  for (int i = 0; i < 17; ++i) flags.insert(flags.end(), {"--gpu", std::to_string(i)});
  const Outcome outcome = RunBaton(Shell("", flags), environment());
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("--gpu names 17 GPUs, and a pod has at most 16"), std::string::npos)
      << outcome.err;
  EXPECT_TRUE(daemon_.requests().empty());
}

TEST_F(Run, OnVirtualGpusThatAreThereMakesAndDeletesNothing) {
  FakeDaemon daemon([](const json&) -> json {
    return {{"ticket", "t-9"},
            {"gpus", {"GPU-a"}},
            {"hook", true},
            {"environment", {{"CUDA_VISIBLE_DEVICES", "GPU-a"}}}};
  });
  Environment with = environment();
  with[0].second = daemon.socket_dir();
  const Outcome outcome = RunBaton(
      Shell("echo $BATON_TICKET $CUDA_VISIBLE_DEVICES; exit 5", {"--vgpu", "train"}), with);
  EXPECT_EQ(outcome.status, 5);
  EXPECT_EQ(outcome.out, "t-9 GPU-a\n");
  ASSERT_EQ(daemon.requests().size(), 1u);
  EXPECT_EQ(daemon.requests()[0], (json{{"command", "pod"}, {"name", "train"}}));
}

TEST_F(Run, WhereTheHardwareDividesTheGpuThereIsNoHook) {
  FakeDaemon daemon([](const json& request) -> json {
    if (request["command"] != "create_pod") return json::object();
    return {{"ticket", "t-9"},
            {"gpus", {"GPU-a"}},
            {"hook", false},
            {"environment",
             {{"CUDA_VISIBLE_DEVICES", "GPU-a"}, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30"}}}};
  });
  Environment with = environment();
  with[0].second = daemon.socket_dir();
  const Outcome outcome =
      RunBaton(Shell("echo [$LD_PRELOAD] [$BATON_TICKET] $BATON_DISABLE $CUDA_VISIBLE_DEVICES "
                     "$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
               with);
  EXPECT_EQ(outcome.out, "[] [t-9] 1 GPU-a 30\n") << "the ticket says whose process it is";
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

TEST_F(Run, IdlePriorityNeedsNeither) {
  const Outcome outcome = RunBaton(Shell("", {"--priority", "idle"}), environment());
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "baton: pod sh on GPU-a, GPU-b: no request, limit 100 %\n");
  EXPECT_EQ(daemon_.requests().at(0)["priority"], "idle");
  EXPECT_EQ(RunBaton({"vgpu", "create", "night", "--priority", "idle"}, environment()).err, "");
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

TEST_F(Run, EndsWithTheProgramThoughItsCallerIgnoresTheEndsOfChildren) {
  signal(SIGCHLD, SIG_IGN);
  BatonProcess baton(Shell("trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done"),
                     environment());
  signal(SIGCHLD, SIG_DFL);
  ASSERT_TRUE(baton.AwaitLine("ready"));
  kill(baton.pid(), SIGTERM);
  EXPECT_EQ(baton.Wait(), 9);
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
            "baton: BATON_HOOK names /nowhere/libbaton.so, which does not exist; correct or unset "
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

TEST(Set, WarnsOfAShareThatLooksLikeAFraction) {
  const FakeDaemon daemon;
  const Environment environment{{"BATON_SOCKET_DIR", daemon.socket_dir()}};
  const Outcome outcome = RunBaton({"set", "trainer", "--request", "0.3"}, environment);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err,
            "baton: warning: --request 0.3 is 0.3 % of a GPU; write 30 if you mean 30 %, 0.3% if "
            "you mean 0.3 %\n");
  for (const char* clear : {"0.3%", "0.3 %", "1", "1.5", "30"}) {
    EXPECT_EQ(RunBaton({"set", "trainer", "--limit", clear}, environment).err, "") << clear;
  }
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

// What a daemon with two virtual GPUs answers.
json TwoVgpus() {
  return {{"vgpus",
           {{{"pod", "a"},
             {"index", 0},
             {"node", "n1"},
             {"gpu", "GPU-0123456789abcdef"},
             {"model", "NVIDIA H200"},
             {"mode", "time-slice"},
             {"request", 30.0},
             {"limit", 60.0},
             {"memory", uint64_t{4} << 30},
             {"memory_used", uint64_t{512} << 20},
             {"memory_peak", uint64_t{3} << 30},
             {"held_ns", 90'500'000'000},
             {"busy_ns", 7'200'000'000'000},
             {"running", true},
             {"booked", true},
             {"why", ""}},
            {{"pod", "b"},
             {"index", 1},
             {"node", ""},
             {"gpu", "GPU-fedcba9876543210"},
             {"model", ""},
             {"mode", "mig"},
             {"request", 10.0},
             {"limit", 100.0},
             {"memory", 0},
             {"booked", false},
             {"why", "GPU-fedcba9876543210 is missing"}}}}};
}

TEST(Vgpu, ListIsATableOrJson) {
  FakeDaemon daemon([](const json&) { return TwoVgpus(); });
  const Environment environment{{"BATON_SOCKET_DIR", daemon.socket_dir()}};
  EXPECT_EQ(
      RunBaton({"vgpu", "list"}, environment).out,
      "POD  #  NODE  GPU           MODEL  MODE        REQUEST  LIMIT  MEMORY      USED    PEAK"
      "   HELD   BUSY  STATE\n"
      "a    0  n1    GPU-01234567  H200   time-slice     30.0   60.0  4.0GiB  512.0MiB  3.0GiB"
      "  90.5s  2.00h  running\n"
      "b    1        GPU-fedcba98         mig            10.0  100.0       -         -       -"
      "      -      -  no room: GPU-fedcba9876543210 is missing\n");
  EXPECT_EQ(json::parse(RunBaton({"vgpu", "list", "--json"}, environment).out), TwoVgpus());
}

TEST(Vgpu, EachCommandAsksOnce) {
  FakeDaemon daemon([](const json& request) -> json {
    if (request["command"] == "create_pod") return {{"gpus", {"GPU-a", "GPU-b"}}};
    return json::object();
  });
  const Environment environment{{"BATON_SOCKET_DIR", daemon.socket_dir()}};
  EXPECT_EQ(RunBaton({"vgpu", "create", "t", "--request", "30", "--count", "2"}, environment).out,
            "GPU-a\nGPU-b\n");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"vgpu", "move", "t", "--gpu", "1", "--gpu", "GPU-c"},
        {"vgpu", "resize", "t", "--request", "20"},
        {"vgpu", "delete", "t"},
        {"cordon", "3"},
        {"uncordon", "GPU-a"},
        {"release", "GPU-a"}}) {
    const Outcome outcome = RunBaton(command, environment);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
  }
  const auto requests = daemon.requests();
  ASSERT_EQ(requests.size(), 7u);
  EXPECT_EQ(requests[0]["name"], "t");
  EXPECT_EQ(requests[0]["count"], 2);
  EXPECT_EQ(requests[1], (json{{"command", "move_pod"}, {"name", "t"}, {"gpus", {"1", "GPU-c"}}}));
  EXPECT_EQ(requests[2], (json{{"command", "set_pod"}, {"name", "t"}, {"request", 20.0}}));
  EXPECT_EQ(requests[3], (json{{"command", "delete_pod"}, {"name", "t"}}));
  EXPECT_EQ(requests[4], (json{{"command", "cordon"}, {"gpus", {"3"}}}));
  EXPECT_EQ(requests[5], (json{{"command", "uncordon"}, {"gpus", {"GPU-a"}}}));
  EXPECT_EQ(requests[6], (json{{"command", "release"}, {"gpus", {"GPU-a"}}}));
}

TEST(ExplainPlacement, NamesEachGpuAndWhy) {
  FakeDaemon daemon([](const json&) -> json {
    return {{"fits", false},
            {"error", "0/1 nodes available: 1 insufficient GPU share or memory"},
            {"nodes",
             {{{"node", "n1"},
               {"why", ""},
               {"cards",
                {{{"uuid", "GPU-0123456789"},
                  {"index", 0},
                  {"model", "NVIDIA H200"},
                  {"why", "40 % of it are free, 50 % wanted"}},
                 {{"uuid", "GPU-b"}, {"index", 1}, {"model", "T4"}, {"why", ""}}}}}}}};
  });
  const Outcome outcome = RunBaton({"explain", "placement", "--request", "50", "--count", "2"},
                                   {{"BATON_SOCKET_DIR", daemon.socket_dir()}});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out,
            "The pod fits nowhere: 0/1 nodes available: 1 insufficient GPU share or memory.\n"
            "\n"
            "NODE  GPU  UUID          MODEL        WHY\n"
            "n1    0    GPU-01234567  NVIDIA H200  40 % of it are free, 50 % wanted\n"
            "n1    1    GPU-b         T4           has room, but too few GPUs of this node do\n");
}

TEST(ExplainPlacement, SaysWhereAndInWhichMode) {
  FakeDaemon daemon([](const json&) -> json {
    return {
        {"fits", true},
        {"where",
         {{"node", "n1"},
          {"gpus", {{{"uuid", "GPU-b"}, {"index", 1}, {"model", "T4"}, {"mode", "time-slice"}}}}}},
        {"nodes", json::array()}};
  });
  const Environment with = {{"BATON_SOCKET_DIR", daemon.socket_dir()}};
  EXPECT_EQ(RunBaton({"explain", "placement", "--priority", "idle"}, with).out,
            "The pod would be placed on n1, GPU 1 (GPU-b, T4), in mode time-slice.\n");
}

TEST(Defrag, PrintsTheMovesAsCommands) {
  FakeDaemon daemon([](const json&) -> json {
    const json place{{"node", "n1"},
                     {"gpus", {{{"uuid", "GPU-b"}, {"index", 1}, {"model", "T4"}}}}};
    return {{"exact", true},
            {"where", place},
            {"moves", {{{"pod", "x"}, {"running", true}, {"from", place}, {"to", place}}}}};
  });
  EXPECT_EQ(RunBaton({"defrag", "--dry-run", "--request", "50"},
                     {{"BATON_SOCKET_DIR", daemon.socket_dir()}})
                .out,
            "baton vgpu move x --gpu GPU-b      # running: end its programs first\n"
            "\n"
            "Then the pod fits: n1, GPU 1 (GPU-b, T4).\n");
}

TEST(Defrag, QuotesWhatAUserMayHaveNamedAPodForTheShell) {
  FakeDaemon daemon([](const json&) -> json {
    const json place{{"node", "n1"},
                     {"gpus", {{{"uuid", "GPU-b"}, {"index", 1}, {"model", "T4"}}}}};
    const json move{{"pod", "it's $(reboot)"}, {"running", false}, {"from", place}, {"to", place}};
    return {{"exact", true}, {"where", place}, {"moves", json::array({move})}};
  });
  const Outcome outcome = RunBaton({"defrag", "--dry-run", "--request", "50"},
                                   {{"BATON_SOCKET_DIR", daemon.socket_dir()}});
  EXPECT_EQ(outcome.out.substr(0, outcome.out.find('\n')),
            R"(baton vgpu move 'it'\''s $(reboot)' --gpu GPU-b)");
}

}  // namespace
}  // namespace baton::cli
