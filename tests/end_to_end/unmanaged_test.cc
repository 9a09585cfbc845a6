// Processes that use a GPU without the token: named everywhere, and given nothing of what they
// took.
#include <unistd.h>

#include "tests/end_to_end/fixture.h"

namespace baton::bench {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Looks are 5 s apart, and a process is named at the second one that sees it.
constexpr seconds kUntilNamed{20};

class UnmanagedProcesses : public EndToEnd {
 protected:
  void StartWithBooks() {
    StartCluster({.transport = Transport::kUnix, .tables = "[ledger]\nevery = \"100ms\"\n"});
  }
  json Named() { return Must(cluster().Status()).at("gpus").at(0).at("unmanaged"); }
  bool AwaitNamed(size_t count) {
    return WaitUntil([&] { return Named().size() == count; }, kUntilNamed);
  }
  std::string Say(const std::vector<std::string>& arguments, int status = 0) {
    std::string out, err;
    EXPECT_EQ(Must(cluster().Baton(0, arguments, &out, &err)), status) << out << err;
    return out;
  }
  static void ExpectIn(const std::string& part, const std::string& text) {
    EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in: " << text;
  }
  std::string Events() {
    std::string all;
    const json status = Must(cluster().Status());
    for (const json& event : status.at("events")) {
      all += event.at("text").get<std::string>() + "\n";
    }
    return all;
  }
  double Hours(const char* which) {
    return json::parse(Say({"report", "--last", "1h", "--format", "json"})).at(which);
  }
};

TEST_F(UnmanagedProcesses, AreNamedBookedAsUnattributedAndTheirMemoryIsNotGivenAway) {
  StartWithBooks();
  EXPECT_TRUE(Named().empty());
  const Pod& bare = StartBare(Burn("bare", "0", "100", {"--memory", "6GiB"}));
  const auto pids = bare.Pids();
  ASSERT_EQ(pids.size(), 1u);
  ASSERT_TRUE(AwaitNamed(1));
  const json process = Named().at(0);
  EXPECT_EQ(process.at("pid"), pids[0]);
  EXPECT_EQ(process.at("command"), "baton-burn");
  EXPECT_EQ(process.at("uid"), getuid());
  EXPECT_EQ(process.at("pod"), "");
  EXPECT_GE(process.at("memory").get<uint64_t>(), uint64_t{6} << 30);

  const std::string pid = "process " + std::to_string(pids[0]) + " (baton-burn)";
  ExpectIn(pid, Events());
  ExpectIn(pid, Say({"status"}));
  EXPECT_EQ(Say({"status"}).find("free"), std::string::npos) << Say({"status"});
  ExpectIn("1 process runs without the token", Say({"top", "--once"}));

  // Nobody holds the token, and the GPU is not idle.
  const auto await_unattributed = [&](double hours) {
    const double before = Hours("unattributed_hours");
    return WaitUntil([&] { return Hours("unattributed_hours") > before + hours; }, seconds(10));
  };
  ASSERT_TRUE(await_unattributed(0.3 / 3600));  // what was idle before is in the books
  const double idle = Hours("idle_hours");
  EXPECT_TRUE(await_unattributed(1.0 / 3600));
  EXPECT_EQ(Hours("idle_hours"), idle);

  // Of 16 GiB some 10 are left, for whoever wants a part of them.
  Say({"vgpu", "create", "large", "--request", "10", "--memory", "12GiB"}, 1);
  ExpectIn("in use without a reservation",
           Say({"explain", "placement", "--request", "10", "--memory", "12GiB"}, 1));
  Say({"vgpu", "create", "whole", "--request", "100", "--mode", "exclusive"}, 1);
  Say({"vgpu", "create", "small", "--request", "10", "--memory", "4GiB"});
  Say({"vgpu", "resize", "small", "--memory", "12GiB"}, 1);
  Say({"vgpu", "resize", "small", "--memory", "8GiB"});
  ExpectIn(pid, Say({"explain", "pod", "small"}));

  StopPods();
  ASSERT_TRUE(AwaitNamed(0));
  ExpectIn("1 process without the token left", Events());
  ExpectIn("free", Say({"status"}));
  Say({"vgpu", "resize", "small", "--memory", "12GiB"});
}

TEST_F(UnmanagedProcesses, OfAPodWhoseHookWasReplacedAreNamedAsThePods) {
  StartWithBooks();
  PodOptions escaped = Burn("escaped", "10", "10");
  escaped.command.insert(escaped.command.begin(), {"env", "-u", "LD_PRELOAD"});
  Start(escaped);
  Start(Burn("honest", "50", "100"));
  ASSERT_TRUE(AwaitNamed(1));
  EXPECT_EQ(Named().at(0).at("pod"), "escaped");
  EXPECT_EQ(Named().at(0).at("command"), "baton-burn");
  ExpectIn("the hook is not in it", Say({"explain", "pod", "escaped"}));
  ExpectIn("launches without the token", Say({"explain", "pod", "honest"}));
  // The honest one is not named, however often it is looked at.
  PassTime(seconds(6));
  EXPECT_EQ(Named().size(), 1u);
}

// What README.md says for containers, with nothing of one but its /etc.
TEST_F(UnmanagedProcesses, AProgramThatSetsAPreloadOfItsOwnKeepsTheHookThatTheFileNames) {
  if (system("unshare --mount true 2>/dev/null") != 0) {
    GTEST_SKIP() << "this user may not mount";
  }
  StartCluster({.transport = Transport::kUnix});
  PodOptions options = Burn("allocator", "50", "100");
  const std::string etc = cluster().SocketDir(0) + "/etc";
  std::vector<std::string> command = {
      "unshare",
      "--mount",
      "sh",
      "-c",
      "hook=${LD_PRELOAD%%:*} && unset LD_PRELOAD && cp -a /etc \"$1\" && "
      "echo \"$hook\" >\"$1/ld.so.preload\" && mount --bind \"$1\" /etc && shift && "
      "LD_PRELOAD=libm.so.6 exec \"$@\"",
      "sh",
      etc};
  command.insert(command.end(), options.command.begin(), options.command.end());
  options.command = command;
  Start(options);
  const auto attached = [&] {
    const json status = Must(cluster().Status());
    for (const json& pod : status.at("pods")) {
      for (const json& client : pod.at("clients")) {
        const std::string command = client.at("command");  // with its arguments
        if (command.substr(0, command.find(' ')).ends_with("/baton-burn")) return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(WaitUntil(attached, seconds(10)));
}

}  // namespace
}  // namespace baton::bench
