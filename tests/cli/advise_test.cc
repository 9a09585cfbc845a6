// What `baton advise` says beside its table, and what --apply asks of batond.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <optional>

#include "tests/cli/harness.h"

namespace baton::cli {
namespace {

using nlohmann::json;

json Row(const char* pod, const char* what, const char* now, const char* set_to, json set) {
  return {{"pod", pod}, {"team", ""},       {"gpu", "GPU-a"}, {"what", what}, {"now", now},
          {"used", ""}, {"set_to", set_to}, {"frees", ""},    {"why", "far"}, {"set", set}};
}

// "theirs" is another user's, "whole" has its GPU by its mode.
json Advice() {
  json whole = Row("whole", "part", "exclusive", "28.0%, 12GiB", {{"request", 28}});
  whole["cannot"] = "its mode is fixed";
  return {{"pods", 5},
          {"unseen", {"new"}},
          {"needed_s", 1'200},
          {"rows",
           {Row("mine", "memory", "16GiB", "4.5GiB", {{"memory", 4'831'838'208}}),
            Row("mine", "request", "60.0%", "13.0%", {{"request", 13}}),
            Row("theirs", "request", "60.0%", "13.0%", {{"request", 13}}), whole}}};
}

json Answer(const json& request) {
  if (request.at("command") == "advise") return Advice();
  if (request.at("command") == "pod" && request.at("name") == "theirs") {
    return {{"ok", false}, {"code", "denied"}, {"error", "pod theirs is not yours"}};
  }
  return json::object();
}

std::vector<json> Sets(FakeDaemon& daemon) {
  std::vector<json> sets;
  for (json& request : daemon.requests()) {
    if (request.at("command") == "set_pod") sets.push_back(std::move(request));
  }
  return sets;
}

// The standard input of the programs that this one starts.
class StandardInput {
 public:
  explicit StandardInput(int fd) : before_(dup(STDIN_FILENO)) {
    dup2(fd, STDIN_FILENO);
    close(fd);
  }
  ~StandardInput() {
    dup2(before_, STDIN_FILENO);
    close(before_);
  }

 private:
  const int before_;
};

// A terminal on which the user has written this.
class Terminal {
 public:
  explicit Terminal(const std::string& text) : user_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    grantpt(user_);
    unlockpt(user_);
    input_.emplace(open(ptsname(user_), O_RDWR | O_NOCTTY));
    EXPECT_EQ(write(user_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  ~Terminal() { close(user_); }

 private:
  const int user_;
  std::optional<StandardInput> input_;
};

const json kSet{
    {"command", "set_pod"}, {"name", "mine"}, {"memory", 4'831'838'208}, {"request", 13}};

TEST(AdviseApply, SetsAllOfAPodAtOnceAndLeavesWhatIsNotTheCallersOrFixed) {
  FakeDaemon daemon(Answer);
  const Outcome outcome =
      RunBaton({"advise", "--apply", "--yes", "--socket-dir", daemon.socket_dir()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out,
            "mine: memory 16GiB -> 4.5GiB\n"
            "mine: request 60.0% -> 13.0%\n"
            "theirs: left as it is: pod theirs is not yours\n"
            "whole: left as it is: its mode is fixed\n"
            "1 of 5 pods has less than 20 minutes between first and last use, too little for "
            "advice.\n"
            "1 pod changed.\n");
  EXPECT_EQ(Sets(daemon), std::vector{kSet});
}

TEST(AdviseApply, AsksOnATerminal) {
  for (const bool yes : {false, true}) {
    FakeDaemon daemon(Answer);
    const Terminal terminal(yes ? "y\n" : "\n");
    const Outcome outcome = RunBaton({"advise", "--apply", "--socket-dir", daemon.socket_dir()});
    EXPECT_NE(outcome.out.find("Change 1 pod? [y/N] "), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.status, yes ? 0 : 1) << outcome.err;
    EXPECT_EQ(Sets(daemon).size(), yes ? 1u : 0u);
  }
}

TEST(AdviseApply, WithoutATerminalNeedsYes) {
  FakeDaemon daemon(Answer);
  const StandardInput none(open("/dev/null", O_RDONLY));
  const Outcome outcome = RunBaton({"advise", "--apply", "--socket-dir", daemon.socket_dir()});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("add --yes"), std::string::npos) << outcome.err;
  EXPECT_TRUE(daemon.requests().empty());
  EXPECT_EQ(RunBaton({"advise", "--apply", "--json"}).status, 2);
  EXPECT_EQ(RunBaton({"advise", "--apply", "--yes", "--format", "csv"}).status, 2);
  EXPECT_EQ(RunBaton({"advise", "--yes"}).status, 2);
}

TEST(AdviseApply, AsJsonSaysOfEachRowWhetherItIsSet) {
  const FakeDaemon daemon(Answer);
  const Outcome outcome =
      RunBaton({"advise", "--apply", "--yes", "--json", "--socket-dir", daemon.socket_dir()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const json rows = json::parse(outcome.out).at("rows");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].at("applied"), true);
  EXPECT_EQ(rows[1].at("applied"), true);
  EXPECT_FALSE(rows[1].contains("error"));
  EXPECT_EQ(rows[2].at("applied"), false);
  EXPECT_EQ(rows[2].at("error"), "pod theirs is not yours");
  EXPECT_EQ(rows[3].at("applied"), false);
}

TEST(AdviseApply, ARefusedChangeFails) {
  FakeDaemon daemon([](const json& request) -> json {
    if (request.at("command") != "set_pod") return Answer(request);
    return {{"ok", false}, {"code", "exhausted"}, {"error", "no room"}};
  });
  const Outcome outcome =
      RunBaton({"advise", "--apply", "--yes", "--socket-dir", daemon.socket_dir()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err, "baton: mine: no room\n");
  EXPECT_NE(outcome.out.find("\n0 pods changed.\n"), std::string::npos) << outcome.out;
}

TEST(Advise, SaysOfHowManyPodsTooLittleIsKnown) {
  json answer{{"pods", 0}, {"unseen", json::array()}, {"needed_s", 200}, {"rows", json::array()}};
  const FakeDaemon daemon([&](const json&) { return answer; });
  const auto said = [&] { return RunBaton({"advise", "--socket-dir", daemon.socket_dir()}).out; };
  EXPECT_EQ(said(), "No pod has been seen for long enough: there is none that takes tokens.\n");
  answer["pods"] = 2;
  answer["unseen"] = {"a", "b"};
  EXPECT_EQ(said(),
            "No pod has been seen for long enough: 2 of 2 pods have less than 200 seconds between "
            "first and last use.\n");
  answer["needed_s"] = 72'000;
  EXPECT_EQ(said(),
            "No pod has been seen for long enough: 2 of 2 pods have less than 20 hours between "
            "first and last use; with --last 24h, 20 minutes are enough.\n");
  answer["pods"] = 3;
  EXPECT_EQ(said(),
            "1 pod asks for what it uses. 2 of 3 pods have less than 20 hours between first and "
            "last use, too little for advice; with --last 24h, 20 minutes are enough.\n");
  answer["unseen"] = json::array();
  EXPECT_EQ(said(), "3 pods ask for what they use.\n");
}

}  // namespace
}  // namespace baton::cli
