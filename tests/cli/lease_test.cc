// `baton lease` against a daemon that the test plays.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "tests/cli/harness.h"

namespace baton::cli {
namespace {

using nlohmann::json;

json Granted() {
  return {{"state", "granted"},
          {"lease", "0123456789abcdef"},
          {"name", "lease-01234567"},
          {"until", "2026-11-27T10:00:00Z"},
          {"seconds", 60.0},
          {"cost", 0.06},
          {"currency", "EUR"},
          {"ticket", "t-123"},
          {"request", 40.0},
          {"limit", 100.0},
          {"hook", true},
          {"gpus", {"GPU-a"}},
          {"environment", {{"CUDA_VISIBLE_DEVICES", "GPU-a"}, {"BATON_SOCKET", "elsewhere"}}}};
}

class LeaseCommand : public testing::Test {
 protected:
  Environment With(const FakeDaemon& daemon) const {
    return {{"BATON_SOCKET_DIR", daemon.socket_dir()}, {"BATON_HOOK", EMPTY_HOOK}};
  }
  static std::vector<std::string> Commands(FakeDaemon& daemon) {
    std::vector<std::string> commands;
    for (const json& request : daemon.requests()) commands.push_back(request["command"]);
    return commands;
  }
  static json Answer(const json& request) {
    return request["command"] == "create_lease" ? Granted() : json::object();
  }
};

TEST_F(LeaseCommand, RunsTheProgramInItAndGivesItBack) {
  FakeDaemon daemon(Answer);
  const Outcome outcome =
      RunBaton({"lease", "--request", "40", "--for", "60s", "--", "sh", "-c",
                "echo $BATON_TICKET $CUDA_VISIBLE_DEVICES $BATON_SOCKET; exit 7"},
               With(daemon));
  EXPECT_EQ(outcome.status, 7) << outcome.err;
  EXPECT_EQ(outcome.out, "t-123 GPU-a " + daemon.socket_dir() + "/baton.sock\n");
  EXPECT_EQ(outcome.err,
            "baton: lease 0123456789abcdef until 2026-11-27T10:00:00Z, cost 0.0600 EUR: pod "
            "lease-01234567 on GPU-a: request 40 %, limit 100 %\n");
  const auto requests = daemon.requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0]["seconds"], 60);
  EXPECT_EQ(requests[0]["request"], 40.0);
  EXPECT_EQ(requests[0]["queue"], true);
  EXPECT_EQ(requests[0]["uid"], getuid());
  EXPECT_EQ(requests[1], (json{{"command", "end_lease"}, {"lease", "0123456789abcdef"}}));
}

TEST_F(LeaseCommand, IsRenewedWhileTheProgramRunsUnlessItIsNotToBe) {
  for (const bool renews : {true, false}) {
    FakeDaemon daemon(Answer);
    std::vector<std::string> words{"lease", "--request", "40", "--for", "1s", "--quiet"};
    if (!renews) words.push_back("--no-renew");
    words.insert(words.end(), {"--", "sleep", "2"});
    EXPECT_EQ(RunBaton(words, With(daemon)).status, 0);
    const auto commands = Commands(daemon);
    EXPECT_EQ(commands.front(), "create_lease");
    EXPECT_EQ(commands.back(), "end_lease");
    const auto renewals = std::count(commands.begin(), commands.end(), "renew_lease");
    EXPECT_EQ(renewals > 0, renews) << renewals;
  }
}

TEST_F(LeaseCommand, SaysOnceThatItHasEnded) {
  FakeDaemon daemon([](const json& request) -> json {
    if (request["command"] == "create_lease") return Granted();
    if (request["command"] != "renew_lease") return json::object();
    return {{"ok", false}, {"code", "not_found"}, {"error", "lease L has ended: it was revoked"}};
  });
  const Outcome outcome = RunBaton(
      {"lease", "--request", "40", "--for", "1s", "--quiet", "--", "sleep", "2"}, With(daemon));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err,
            "baton: lease L has ended: it was revoked; the program can launch nothing more\n");
}

TEST_F(LeaseCommand, WaitsInTheQueue) {
  std::atomic<int> asked = 0;
  FakeDaemon daemon([&asked](const json& request) -> json {
    if (request["command"] == "end_lease") return json::object();
    if (request["command"] == "lease" && ++asked == 2) return Granted();
    return {{"state", "queued"}, {"lease", "abc"}, {"until", "2026-11-27T09:00:00Z"}};
  });
  const Outcome outcome = RunBaton({"lease", "--request", "40", "--", "true"}, With(daemon));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(Commands(daemon),
            (std::vector<std::string>{"create_lease", "lease", "lease", "end_lease"}));
  EXPECT_TRUE(outcome.err.starts_with(
      "baton: lease abc waits for room, expected 2026-11-27T09:00:00Z\nbaton: lease 0123"))
      << outcome.err;
  FakeDaemon dropped([](const json& request) -> json {
    if (request["command"] == "lease") return {{"state", "ended"}, {"why", "it was refused"}};
    return {{"state", "queued"}, {"lease", "abc"}};
  });
  EXPECT_EQ(RunBaton({"lease", "--request", "40", "--", "true"}, With(dropped)).status, 1);
}

TEST_F(LeaseCommand, IsGivenUpByASignalWhileItIsQueued) {
  FakeDaemon daemon([](const json&) -> json { return {{"state", "queued"}, {"lease", "abc"}}; });
  BatonProcess baton({"lease", "--request", "40", "--", "true"}, With(daemon));
  while (daemon.requests().size() < 2) usleep(1'000);
  kill(baton.pid(), SIGINT);
  EXPECT_EQ(baton.Wait(), 128 + SIGINT);
  EXPECT_EQ(Commands(daemon).back(), "end_lease");
  EXPECT_NE(baton.err.find("lease abc was given up"), std::string::npos) << baton.err;
}

TEST_F(LeaseCommand, WithoutAProgramItIsPrinted) {
  FakeDaemon daemon(Answer);
  const Outcome as_json =
      RunBaton({"lease", "--request", "40", "--json", "--no-wait"}, With(daemon));
  const json printed = json::parse(as_json.out, nullptr, false);
  ASSERT_TRUE(printed.is_object()) << as_json.out << as_json.err;
  EXPECT_EQ(printed["environment"]["LD_PRELOAD"], EMPTY_HOOK);
  EXPECT_EQ(printed["environment"]["BATON_SOCKET"], daemon.socket_dir() + "/baton.sock");
  EXPECT_EQ(daemon.requests()[0]["queue"], false);
  EXPECT_EQ(Commands(daemon), (std::vector<std::string>{"create_lease"}));
  const Outcome text = RunBaton({"lease", "--request", "40"}, With(daemon));
  EXPECT_NE(text.out.find("\n  BATON_TICKET=t-123\n"), std::string::npos) << text.out;
}

TEST_F(LeaseCommand, ListsRenewsAndEnds) {
  FakeDaemon daemon([](const json& request) -> json {
    if (request["command"] == "leases") {
      return {{"leases",
               {{{"lease", "abc"},
                 {"state", "granted"},
                 {"pod", "burst"},
                 {"user", "nobody"},
                 {"request", 40.0},
                 {"seconds", 12.34},
                 {"gpus", {"GPU-a"}}}}}};
    }
    if (request.value("lease", "") == "others") {
      return {{"ok", false}, {"code", "denied"}, {"error", "lease others is not yours"}};
    }
    return json::object();
  });
  EXPECT_EQ(RunBaton({"lease", "list"}, With(daemon)).out,
            "LEASE  STATE    POD    USER    REQUEST  SECONDS  GPUS\n"
            "abc    granted  burst  nobody    40.0%     12.3  GPU-a\n");
  EXPECT_EQ(json::parse(RunBaton({"lease", "list", "--json"}, With(daemon)).out)["leases"].size(),
            1u);
  EXPECT_EQ(RunBaton({"lease", "renew", "abc", "--for", "5m"}, With(daemon)).status, 0);
  EXPECT_EQ(daemon.requests().back(),
            (json{{"command", "renew_lease"}, {"lease", "abc"}, {"seconds", 300}}));
  const Outcome ended = RunBaton({"lease", "end", "abc", "others"}, With(daemon));
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(ended.err, "baton: lease others is not yours\n");
}

TEST_F(LeaseCommand, RefusesWhatMakesNoSense) {
  FakeDaemon daemon(Answer);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"lease", "--for", "60s", "--", "true"},
        {"lease", "--request", "40", "--for", "0s", "--", "true"},
        {"lease", "--request", "40", "--for", "1500ms", "--", "true"},
        {"lease", "--request", "40", "--for", "25h", "--", "true"},
        {"lease", "--request", "40", "--json", "--", "true"},
        {"lease", "--request", "40", "--no-renew"},
        {"lease", "list", "--", "true"},
        {"lease", "renew", "abc", "--for", "junk"},
        {"lease", "python"}}) {
    EXPECT_EQ(RunBaton(words, With(daemon)).status, 2) << words.back();
  }
  EXPECT_TRUE(daemon.requests().empty());
}

}  // namespace
}  // namespace baton::cli
