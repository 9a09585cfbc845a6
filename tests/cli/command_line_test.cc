// What `baton` says to command lines, right and wrong, that need no daemon.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/suggest.h"
#include "tests/cli/harness.h"

namespace baton::cli {
namespace {

const std::vector<std::vector<std::string>> kCommands{{"run"},
                                                      {"top"},
                                                      {"status"},
                                                      {"set"},
                                                      {"rm"},
                                                      {"ping"},
                                                      {"simulate"},
                                                      {"bench"},
                                                      {"bench", "token"},
                                                      {"bench", "contention"},
                                                      {"bench", "cluster"},
                                                      {"bench", "compare"},
                                                      {"doctor"},
                                                      {"keygen"},
                                                      {"completion"},
                                                      {"help"},
                                                      {"report"},
                                                      {"standing"},
                                                      {"explain"},
                                                      {"explain", "pod"},
                                                      {"explain", "team"},
                                                      {"explain", "placement"},
                                                      {"advise"},
                                                      {"log"},
                                                      {"vgpu"},
                                                      {"vgpu", "list"},
                                                      {"vgpu", "create"},
                                                      {"vgpu", "delete"},
                                                      {"vgpu", "move"},
                                                      {"vgpu", "resize"},
                                                      {"lease"},
                                                      {"lease", "list"},
                                                      {"lease", "renew"},
                                                      {"lease", "end"},
                                                      {"flavors"},
                                                      {"cordon"},
                                                      {"uncordon"},
                                                      {"release"},
                                                      {"defrag"}};

TEST(CommandLine, WithoutArgumentsShowsAShortOverview) {
  const Outcome outcome = RunBaton({});
  EXPECT_EQ(outcome.status, 0);
  for (const char* example : {"baton run", "baton top", "baton doctor"}) {
    EXPECT_NE(outcome.out.find(example), std::string::npos) << outcome.out;
  }
}

TEST(CommandLine, TellsItsVersion) {
  const Outcome outcome = RunBaton({"--version"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out.find("baton "), 0u) << outcome.out;
}

TEST(CommandLine, EveryCommandsHelpHasExamples) {
  for (std::vector<std::string> command : kCommands) {
    command.push_back("--help");
    const Outcome outcome = RunBaton(command);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("Examples:"), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.err, "");
  }
}

TEST(CommandLine, HelpPrintsWhatTheFlagPrints) {
  EXPECT_EQ(RunBaton({"help"}).out, RunBaton({"--help"}).out);
  for (std::vector<std::string> command : kCommands) {
    std::vector<std::string> help = command;
    help.insert(help.begin(), "help");
    command.push_back("--help");
    const Outcome outcome = RunBaton(help);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.out, RunBaton(command).out);
  }
}

TEST(CommandLine, TheOverviewAndTheCompletionsNameEveryCommand) {
  const std::string overview = RunBaton({}).out;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome outcome = RunBaton({"completion", shell});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    for (const auto& command : kCommands) {
      EXPECT_NE(outcome.out.find(command.back()), std::string::npos) << shell << command.back();
      if (command.size() == 1) {
        EXPECT_NE(overview.find(command[0]), std::string::npos) << command[0];
      }
    }
    EXPECT_NE(outcome.out.find("priority"), std::string::npos) << "flags are completed too";
  }
}

// What bash offers for the words, of which the last is being written.
std::string Offered(const std::string& words, const Environment& environment) {
  const TempFolder folder;
  const std::string script = folder.path() + "/complete";
  std::ofstream(script) << RunBaton({"completion", "bash"}).out << "COMP_WORDS=(" << BATON_PROGRAM
                        << " " << words << ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_baton\n"
                        << "echo \"${COMPREPLY[*]}\"\n";
  const std::string out = folder.path() + "/out";
  std::string command;
  for (const auto& [name, value] : environment)
    command.append(name).append("=").append(value).append(" ");
  EXPECT_EQ(std::system((command + "bash " + script + " > " + out).c_str()), 0);
  std::string line;
  std::getline(std::ifstream(out) >> std::ws, line);
  return line;
}

TEST(Flavors, AreListedWithHowManyFit) {
  const FakeDaemon daemon([](const nlohmann::json&) {
    return nlohmann::json::parse(R"({"flavors": [
        {"name": "large", "request": 50, "limit": 60.5, "memory": "25%", "fit": 3},
        {"name": "small", "request": 10, "limit": 100, "memory": 4294967296, "fit": 120},
        {"name": "tiny", "request": 1, "limit": 1, "fit": 0}]})");
  });
  EXPECT_EQ(RunBaton({"flavors", "--socket-dir", daemon.socket_dir()}).out,
            "FLAVOR  REQUEST   LIMIT  MEMORY  FIT NOW\n"
            "large     50.0%   60.5%     25%        3\n"
            "small     10.0%  100.0%    4GiB      120\n"
            "tiny       1.0%    1.0%       -        0\n");
  EXPECT_EQ(nlohmann::json::parse(
                RunBaton({"flavors", "--json", "--socket-dir", daemon.socket_dir()}).out)
                .at("flavors")
                .size(),
            3u);
  const Environment here{{"BATON_SOCKET_DIR", daemon.socket_dir()}};
  EXPECT_EQ(Offered("run --flavor ''", here), "large small tiny");
  const FakeDaemon none([](const nlohmann::json&) -> nlohmann::json {
    return {{"flavors", nlohmann::json::array()}};
  });
  EXPECT_NE(RunBaton({"flavors", "--socket-dir", none.socket_dir()}).out.find("[flavors]"),
            std::string::npos);
}

TEST(CommandLine, CompletesTheNamesThatTheDaemonKnows) {
  const FakeDaemon daemon([](const nlohmann::json& request) -> nlohmann::json {
    if (request["command"] == "standing") {
      return {{"rows", {{{"team", ""}}, {{"team", "research/vision"}}}}};
    }
    return {{"pods",
             {{{"name", "train"}, {"team", "speech"}},
              {{"name", "$(touch ran)"}, {"team", ""}},
              {{"name", "--json"}, {"team", ""}}}},
            {"gpus", {{{"uuid", "GPU-1f2e"}}}}};
  });
  const Environment environment{{"BATON_SOCKET_DIR", daemon.socket_dir()}};
  EXPECT_EQ(Offered("rm t", environment), "train");
  EXPECT_EQ(Offered("explain pod tr", environment), "train");
  EXPECT_EQ(Offered("vgpu delete t", environment), "train");
  EXPECT_EQ(Offered("run --vgpu ''", environment), "train");
  EXPECT_EQ(Offered("run --team ''", environment), "research/vision speech");
  EXPECT_EQ(Offered("explain team r", environment), "research/vision");
  EXPECT_EQ(Offered("run --gpu = ''", environment), "GPU-1f2e");
  EXPECT_EQ(Offered("cordon G", environment), "GPU-1f2e");
  EXPECT_EQ(Offered("rm --socket-dir " + daemon.socket_dir() + " t", {}), "train");
  EXPECT_EQ(Offered("help stat", environment), "status");
  // What is no name's place, and where nobody answers.
  EXPECT_EQ(Offered("vgpu create t", environment), "");
  EXPECT_EQ(Offered("rm --socket-dir /nowhere t", {}), "");
  EXPECT_EQ(Offered("status --js", environment), "--json");
  EXPECT_NE(RunBaton({"completion", "fish"}).out.find("-a '(baton completion --names pods"),
            std::string::npos);
}

TEST(CommandLine, CompletionForAnUnknownShellIsRefused) {
  const Outcome outcome = RunBaton({"completion", "tcsh"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err, "baton: no completion for 'tcsh'; choose bash, zsh or fish\n");
}

struct Mistake {
  std::vector<std::string> arguments;
  std::string line;  // the only one on stderr
};

class Mistakes : public testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, GetOneClearLineAndStatusTwo) {
  const Outcome outcome = RunBaton(GetParam().arguments);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err, "baton: " + GetParam().line + "\n");
  EXPECT_EQ(outcome.out, "");
}

INSTANTIATE_TEST_SUITE_P(
    CommandLine, Mistakes,
    testing::Values(
        Mistake{{"status", "--jsn"}, "unknown flag --jsn; did you mean --json?"},
        Mistake{{"run", "--reqest=30", "--", "true"},
                "unknown flag --reqest; did you mean --request?"},
        Mistake{{"set", "--lmit", "40", "pod"}, "unknown flag --lmit; did you mean --limit?"},
        Mistake{{"top", "--frobnicate"}, "unknown flag --frobnicate; see 'baton top --help'"},
        Mistake{{"--frobnicate"}, "unknown flag --frobnicate; see 'baton --help'"},
        Mistake{{"statsu"}, "unknown command 'statsu'; did you mean status?"},
        Mistake{{"frobnicate"}, "unknown command 'frobnicate'; see 'baton --help'"},
        Mistake{{"help", "statsu"}, "unknown command 'statsu'; did you mean status?"},
        Mistake{{"help", "vgpu", "lst"}, "unknown command 'lst'; did you mean list?"},
        Mistake{{"help", "status", "x"}, "unexpected 'x'; see 'baton status --help'"},
        Mistake{{"bench", "tokn"}, "unknown command 'tokn'; did you mean token?"},
        Mistake{{"bench"}, "'baton bench' needs a command; see 'baton bench --help'"},
        Mistake{{"explain"}, "'baton explain' needs a command; see 'baton explain --help'"},
        Mistake{{"vgpu", "lst"}, "unknown command 'lst'; did you mean list?"},
        Mistake{{"vgpu", "create", "--request", "5"},
                "NAME is required; see 'baton vgpu create --help'"},
        Mistake{{"vgpu", "create", "a"},
                "missing share: --request 30 guarantees 30 % and lends idle time, "
                "--limit 30 is 30 % and never more, --flavor names a size of the operator's"},
        Mistake{{"defrag", "--request", "5"},
                "batond moves no pod by itself; add --dry-run to print the moves"},
        Mistake{{"run", "--vgpu", "a", "--request", "5", "--", "true"},
                "--vgpu a has its share and its GPUs; leave the others out, or change it with "
                "'baton set a'"},
        Mistake{{"rm"}, "POD is required; see 'baton rm --help'"},
        Mistake{{"run", "--request", "30", "true"},
                "unexpected 'true'; write the program after --"},
        Mistake{{"run", "--request", "30"},
                "no program to run; write it after --, as in "
                "'baton run --request 30 -- python train.py'"},
        Mistake{{"status", "--", "true"}, "'baton status' takes no program after --"},
        Mistake{{"run", "--", "true"},
                "missing share: --request 30 guarantees 30 % and lends idle time, "
                "--limit 30 is 30 % and never more, --flavor names a size of the operator's"},
        Mistake{{"run", "--request", "30", "--limit", "20", "--", "true"},
                "--limit 20 is below --request 30; a limit is at least the request, or left out"},
        Mistake{{"run", "--request", "30", "--priority", "urgent", "--", "true"},
                "--priority: 'urgent' is no priority; write normal, high or idle"},
        Mistake{{"run", "--request", "30", "--away", "shut", "--", "true"},
                "--away: 'shut' is neither wait nor open"},
        Mistake{{"run", "--request", "30", "--count", "0x2", "--", "true"},
                "--count must be a whole number from 1 to 16"},
        Mistake{{"run", "--request", "30", "--gang-size", "17", "--", "true"},
                "a gang's size needs the gang's name: set gang"},
        Mistake{{"bench", "compare", "a", "b", "--fail-above", "nan"},
                "--fail-above: nan is not a number; see 'baton bench compare --help'"},
        Mistake{{"simulate", "workload.toml", "--hours", "-nan"},
                "--hours: -nan is not a number; see 'baton simulate --help'"},
        Mistake{{"vgpu", "\u202elst\xc2\x9b"}, "unknown command '?lst?'; see 'baton vgpu --help'"},
        Mistake{{"set", "pod"},
                "nothing to change; give one of --flavor, --request, --limit, --memory, "
                "--priority, --latency, --team"},
        Mistake{{"top", "--sort", "colour"},
                "--sort: 'colour' is not one of activity, gpu, pod, request, achieved, waiting, "
                "memory"}));

// The sentences of these come from base/parse.h; here they must name the flag and the value.
class BadValues : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(BadValues, AreNamedWithTheirFlag) {
  std::vector<std::string> arguments = GetParam();
  const std::string flag = arguments[1], value = arguments[2];
  if (arguments[0] == "run") arguments.insert(arguments.end(), {"--", "true"});
  const Outcome outcome = RunBaton(arguments);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err.find("baton: " + flag + ": '" + value + "'"), 0u) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1);
}

INSTANTIATE_TEST_SUITE_P(CommandLine, BadValues,
                         testing::Values(std::vector<std::string>{"run", "--request", "0"},
                                         std::vector<std::string>{"run", "--request", "101"},
                                         std::vector<std::string>{"run", "--request", "abc"},
                                         std::vector<std::string>{"run", "--limit", "0"},
                                         std::vector<std::string>{"set", "--request", "-1", "pod"},
                                         std::vector<std::string>{"set", "--memory", "4Q", "pod"},
                                         std::vector<std::string>{"set", "--memory", "101%", "pod"},
                                         std::vector<std::string>{"top", "--interval", "5"}));

TEST(CommandLine, SuggestsOnlyWhatIsNear) {
  EXPECT_EQ(Nearest("stauts", {"top", "status"}), "status");
  EXPECT_EQ(Nearest("tpo", {"top", "status"}), "top");
  EXPECT_EQ(Nearest("xyz", {"top", "status"}), "");
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("ab", "ba"), 1u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
}

TEST(CommandLine, ANameMayBeginWithADash) {
  FakeDaemon daemon;
  const Environment with = {{"BATON_SOCKET_DIR", daemon.socket_dir()}};
  EXPECT_EQ(RunBaton({"rm", "--", "-x", "a", "--help"}, with).err, "");
  EXPECT_EQ(RunBaton({"vgpu", "delete", "--", "-y"}, with).err, "");
  std::vector<std::string> deleted;
  for (const nlohmann::json& request : daemon.requests()) deleted.push_back(request.at("name"));
  EXPECT_EQ(deleted, (std::vector<std::string>{"-x", "a", "--help", "-y"}));
}

TEST(CommandLine, AMissingSocketIsExplained) {
  const TempFolder folder;
  const Outcome outcome = RunBaton({"status"}, {{"BATON_SOCKET_DIR", folder.path()}});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err.find("baton: no batond at " + folder.path() + "/control.sock; start one"),
            0u)
      << outcome.err;
}

TEST(CommandLine, AFlagGoesBeforeTheEnvironment) {
  const TempFolder folder;
  const Outcome outcome =
      RunBaton({"status", "--socket-dir", folder.path()}, {{"BATON_SOCKET_DIR", "/nowhere"}});
  EXPECT_NE(outcome.err.find(folder.path() + "/control.sock"), std::string::npos) << outcome.err;
}

TEST(CommandLine, ASocketPathThatUnixCannotHoldIsExplained) {
  const Outcome outcome = RunBaton({"status", "--socket-dir", "/" + std::string(200, 'x')});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("choose a shorter --socket-dir"), std::string::npos) << outcome.err;
}

TEST(CommandLine, KeygenWritesAKeyAndNeverOverIt) {
  const TempFolder folder;
  const std::string path = folder.path() + "/node.key";
  EXPECT_EQ(RunBaton({"keygen", path}).status, 0);
  const Outcome again = RunBaton({"keygen", path});
  EXPECT_EQ(again.status, 1);
  EXPECT_NE(again.err.find("exists already"), std::string::npos) << again.err;
  const auto contents = [&] {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  const std::string key = contents();
  const Outcome kept = RunBaton({"keygen", "--keep", path});
  EXPECT_EQ(kept.status, 0) << kept.err;
  EXPECT_EQ(kept.out, path + ": kept\n");
  EXPECT_EQ(contents(), key);
}

}  // namespace
}  // namespace baton::cli
