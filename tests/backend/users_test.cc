// Users of the machine who may open nothing but user.sock.
#include <thread>

#include "tests/backend/users_fixture.h"

namespace baton::backend {
namespace {

TEST_F(Users, MakeSeeAndChangePodsOfTheirOwn) {
  ASSERT_TRUE(StartWith("allow = \"everybody\"\n"));
  const json made = SayAs(kNobody, Create("mine", 20));
  ASSERT_TRUE(made.value("ok", false)) << made.dump();
  EXPECT_FALSE(made.value("ticket", "").empty());
  const json seen = PodStatus("mine");
  EXPECT_EQ(seen.value("user", ""), "nobody");
  EXPECT_EQ(Refused(kNobody, {{"command", "status"}}), "");
  EXPECT_EQ(Refused(kNobody, {{"command", "pod"}, {"name", "mine"}}), "");
  EXPECT_EQ(Refused(kNobody, {{"command", "set_pod"}, {"name", "mine"}, {"request", 30}}), "");
  EXPECT_EQ(PodStatus("mine").value("request", 0.0), 30);
  EXPECT_EQ(Refused(kNobody, {{"command", "delete_pod"}, {"name", "mine"}}), "");
  EXPECT_EQ(PodStatus("mine"), json::object());
  // What they did stands under their name.
  const auto rows = [&] {
    return SayAs(kNobody, {{"command", "log"}, {"who", "nobody"}}).value("rows", json::array());
  };
  EXPECT_TRUE(Eventually([&] { return rows().size() == 3; })) << rows();
}

TEST_F(Users, CannotCrowdOthersOutOfTheLog) {
  ASSERT_TRUE(StartWith("allow = \"everybody\"\n"));
  for (int i = 0; i < 250; ++i) {
    const std::string command = i % 2 == 0 ? "create_pod" : "delete_pod";
    json request{{"command", command}, {"name", "p"}};
    if (i % 2 == 0) request["request"] = 1;
    while (!SayAs(kNobody, request).is_object()) usleep(50'000);
  }
  ASSERT_TRUE(Ask(folder_ / "run/control.sock", Create("operators", 20)).value("ok", false));
  const auto of = [&](const char* who) {
    return Ask(folder_ / "run/control.sock", {{"command", "log"}, {"who", who}})
        .value("rows", json::array())
        .size();
  };
  EXPECT_TRUE(Eventually([&] { return of("root") >= 1; }));
  EXPECT_GE(of("nobody"), 100u);
  EXPECT_LE(of("nobody"), 2 * 200u);  // the hour may have ended meanwhile
}

TEST_F(Users, CanDoNothingToPodsOfOthers) {
  ASSERT_TRUE(StartWith("allow = \"everybody\"\nrequests_max = 2\n"));
  Pod("operators", 10);
  Pod("by-uid", 10, {{"uid", kStranger}});
  ASSERT_EQ(Refused(kStranger, Create("others", 10, {{"gang", "job"}, {"affinity", "near"}})), "");
  const json before = Status().at("pods");
  for (const char* name : {"operators", "by-uid", "others"}) {
    const std::string ticket = Say({{"command", "pod"}, {"name", name}}).value("ticket", "");
    ASSERT_FALSE(ticket.empty());
    for (const json& attempt :
         {json{{"command", "pod"}, {"name", name}}, json{{"command", "delete_pod"}, {"name", name}},
          json{{"command", "set_pod"}, {"name", name}, {"request", 1}},
          json{{"command", "set_pod"}, {"name", name}, {"memory", "1GiB"}},
          json{{"command", "set_pod"}, {"name", name}, {"priority", "idle"}}}) {
      EXPECT_EQ(Refused(kNobody, attempt), "denied") << attempt.dump();
    }
    // What everybody may read has nobody's ticket in it.
    for (const char* command : {"status", "vgpus"}) {
      const json answer = SayAs(kNobody, {{"command", command}});
      EXPECT_TRUE(answer.value("ok", false));
      EXPECT_EQ(answer.dump().find(ticket), std::string::npos) << command;
    }
  }
  // To wait with their gang, or to stand beside them, is to hold them up.
  EXPECT_EQ(Refused(kNobody, Create("a", 1, {{"gang", "job"}})), "denied");
  EXPECT_EQ(Refused(kNobody, Create("a", 1, {{"affinity", "near"}})), "denied");
  EXPECT_EQ(Refused(kNobody, Create("a", 1, {{"anti_affinity", "near"}})), "denied");
  EXPECT_EQ(Refused(kNobody, Create("a", 1, {{"exclusion", "alone"}})), "denied");
  EXPECT_EQ(Refused(kNobody, Create("others", 1)), "exists");
  ASSERT_EQ(Status().at("pods").size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    for (const char* field : {"name", "request", "limit", "user", "gpus"}) {
      EXPECT_EQ(Status().at("pods")[i].at(field), before[i].at(field));
    }
  }
}

TEST_F(Users, GetNothingThatIsTheOperatorsToGive) {
  ASSERT_TRUE(StartWith("allow = \"everybody\"\n"));
  for (const json& more :
       {json{{"uid", kStranger}}, json{{"user", "root"}}, json{{"namespace", "prod"}},
        json{{"ticket", "0123456789abcdef0123"}}, json{{"cgroup", "1234-5678"}},
        json{{"priority", "high"}}, json{{"mode", "exclusive"}}, json{{"mode", "mig"}},
        json{{"mode", "mps"}}, json{{"team", "lab/vision"}}}) {
    EXPECT_EQ(Refused(kNobody, Create("mine", 10, more)), "denied") << more.dump();
  }
  for (const char* command :
       {"cordon", "uncordon", "release", "defrag", "move_pod", "bench_ticket", "nonsense"}) {
    EXPECT_EQ(Refused(kNobody, {{"command", command}, {"gpus", {"GPU-a"}}}), "denied") << command;
  }
  ASSERT_EQ(Refused(kNobody, Create("mine", 10)), "");
  for (const auto& [field, value] :
       {std::pair("priority", "high"), std::pair("team", "lab/speech")}) {
    EXPECT_EQ(Refused(kNobody, {{"command", "set_pod"}, {"name", "mine"}, {field, value}}),
              "denied")
        << field;
  }
  // The operator's socket stays shut.
  EXPECT_FALSE(SayAs(kNobody, {{"command", "ping"}}, "control.sock").is_object());
}

TEST_F(Users, StayWithinWhatAUserMayHave) {
  ASSERT_TRUE(StartWith("allow = \"everybody\"\nrequests_max = 0.5\npods_max = 3\n"));
  EXPECT_EQ(Refused(kNobody, Create("a", 51)), "exhausted");
  EXPECT_EQ(Refused(kNobody, Create("a", 30, {{"count", 2}})), "exhausted");
  ASSERT_EQ(Refused(kNobody, Create("a", 20)), "");
  ASSERT_EQ(Refused(kNobody, Create("b", 30)), "");
  EXPECT_EQ(Refused(kNobody, Create("c", 0.1)), "exhausted");
  EXPECT_EQ(Refused(kNobody, {{"command", "set_pod"}, {"name", "a"}, {"request", 21}}),
            "exhausted");
  EXPECT_EQ(Refused(kNobody, {{"command", "set_pod"}, {"name", "a"}, {"request", 10}}), "");
  ASSERT_EQ(Refused(kNobody, Create("c", 10)), "");
  EXPECT_EQ(Refused(kNobody, Create("d", 0.1, {{"priority", "normal"}})), "exhausted");
  // Others are not concerned.
  EXPECT_EQ(Refused(kStranger, Create("d", 40)), "");
}

TEST_F(Users, MayNameTheTeamsOfTheirGroupsAndAreBoundByThem) {
  ASSERT_TRUE(
      StartWith("allow = \"everybody\"\nteam = \"lab/speech\"\nrequests_max = 4\n"
                "[users.teams]\nnogroup = \"lab/vision\"\n"));
  ASSERT_EQ(Refused(kNobody, Create("a", 20)), "");
  EXPECT_EQ(PodStatus("a").value("team", ""), "lab/vision");
  ASSERT_EQ(Refused(kStranger, Create("b", 20)), "");
  EXPECT_EQ(PodStatus("b").value("team", ""), "lab/speech");
  EXPECT_EQ(Refused(kNobody, Create("c", 10, {{"team", "lab/speech"}})), "denied");
  EXPECT_EQ(Refused(kNobody, Create("c", 10, {{"team", "lab"}})), "denied");
  EXPECT_EQ(Refused(kNobody, Create("c", 10, {{"team", "lab/visionary"}})), "denied");
  EXPECT_EQ(Refused(kNobody, Create("c", 10, {{"team", "lab/vision/night"}})), "");
  // The team's own limit of 40 %.
  EXPECT_EQ(Refused(kNobody, {{"command", "set_pod"}, {"name", "a"}, {"request", 31}}),
            "exhausted");
  EXPECT_EQ(Refused(kNobody, {{"command", "set_pod"}, {"name", "a"}, {"request", 30}}), "");
}

TEST_F(Users, OfAGroupAloneWhereOneIsNamed) {
  ASSERT_TRUE(StartWith("allow = \"nogroup\"\n"));
  EXPECT_EQ(Refused(kNobody, {{"command", "ping"}}), "");
  EXPECT_EQ(Refused(kStranger, {{"command", "ping"}}), "no answer");
  daemon_.Stop();
  ASSERT_TRUE(StartWith("allow = \"nobody\"\n"));
  EXPECT_EQ(Refused(kNobody, {{"command", "ping"}}), "no answer");
  daemon_.Stop();
  EXPECT_FALSE(StartWith("allow = \"no-such-group\"\n"));
  EXPECT_NE(daemon_.Log().find("there is no group no-such-group"), std::string::npos);
}

// A pod of the operator's file is the operator's, whosever processes it is for.
TEST_F(Users, ChangeNothingOfTheOperatorsFile) {
  ASSERT_TRUE(
      StartWith("allow = \"everybody\"\n[[pod]]\nname = \"filed\"\nrequest = 10\n"
                "limit = 20\ngpus = [\"GPU-a\"]\nuid = 65534\n"));
  EXPECT_EQ(Refused(kNobody, {{"command", "set_pod"}, {"name", "filed"}, {"limit", 100}}),
            "denied");
  EXPECT_EQ(Refused(kNobody, {{"command", "delete_pod"}, {"name", "filed"}}), "denied");
}

// They would have its ticket.
TEST_F(Users, GetNoPodOfTheOperatorsFileByItsName) {
  ASSERT_TRUE(StartWith("allow = \"everybody\"\n"));
  const json mine = SayAs(kNobody, Create("prod", 5));
  ASSERT_TRUE(mine.value("ok", false)) << mine.dump();
  Configure("[[pod]]\nname = \"prod\"\nrequest = 80\npriority = \"high\"\n");
  daemon_.Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] {
    return Status().at("events").dump().find("user nobody has a pod of that name") !=
           std::string::npos;
  }));
  EXPECT_EQ(PodStatus("prod").value("request", 0.0), 5);
  EXPECT_EQ(PodStatus("prod").value("user", ""), "nobody");
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "prod"}}).value("ok", false));
  daemon_.Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] { return PodStatus("prod").value("request", 0.0) == 80; }));
  EXPECT_NE(Say({{"command", "pod"}, {"name", "prod"}}).value("ticket", ""), mine.at("ticket"));
}

// 8 connections of one user that ask without end: the operator and another user are answered.
TEST_F(Users, ThatFloodKeepNobodyWaiting) {
  ASSERT_TRUE(StartWith("allow = \"everybody\"\n"));
  const pid_t flood = fork();
  if (flood == 0) {
    setpgid(0, 0);
    if (setgroups(0, nullptr) != 0 || setgid(kStranger) != 0 || setuid(kStranger) != 0) _exit(2);
    for (int i = 0; i < 12; ++i) {
      if (fork() != 0) continue;
      for (;;) Ask(folder_ / "run/user.sock", {{"command", "status"}});
    }
    for (;;) pause();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const Instant before = MonotonicNow();
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(Say({{"command", "ping"}}).value("ok", false));
    EXPECT_EQ(Refused(kNobody, {{"command", "ping"}}), "");
  }
  EXPECT_LT(MonotonicNow() - before, std::chrono::seconds(3));
  killpg(flood, SIGKILL);
  kill(flood, SIGKILL);
  waitpid(flood, nullptr, 0);
}

}  // namespace
}  // namespace baton::backend
