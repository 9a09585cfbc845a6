// Leases as agents take them at user.sock, and operators at control.sock.
#include <thread>

#include "tests/backend/users_fixture.h"
#include "wire/control_client.h"

namespace baton::backend {
namespace {

class LeaseCommands : public Users {
 protected:
  static json Lease(double request, int seconds, json more = json::object()) {
    more.update({{"command", "create_lease"}, {"request", request}, {"seconds", seconds}});
    return more;
  }
  static json About(const std::string& command, const json& lease, json more = json::object()) {
    more.update({{"command", command}, {"lease", lease.value("lease", "none")}});
    return more;
  }
  // Its id, pod and ticket are there.
  void ExpectGranted(const json& lease) {
    ASSERT_EQ(lease.value("state", ""), "granted") << lease.dump();
    EXPECT_NE(lease.value("lease", ""), "");
    EXPECT_NE(lease.value("ticket", ""), "");
    EXPECT_NE(lease.value("until", ""), "");
    EXPECT_EQ(PodStatus(lease.value("name", "")).value("name", "-"), lease.value("name", ""));
  }
  // What `curl` says as that user: the status, and the JSON.
  std::pair<int, json> CurlAs(uid_t uid, const std::string& how, const std::string& path) {
    const std::string command = "exec curl -s -w '%{http_code}' --unix-socket '" +
                                (folder_ / "run/user.sock") + "' " + how + " 'http://batond" +
                                path + "'";
    const std::string text = As(uid, [&](int out) {
      dup2(out, STDOUT_FILENO);
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(2);
    });
    if (text.size() < 3) return {0, json::object()};
    const std::string code = text.substr(text.size() - 3);
    return {std::atoi(code.c_str()), json::parse(text.substr(0, text.size() - 3), nullptr, false)};
  }
  bool IsGone(const json& lease) { return PodStatus(lease.value("name", "")) == json::object(); }
  // What it is told of the lease once it has ended.
  std::string WhyEnded(const json& lease) {
    const json told = Say(About("lease", lease, {{"wait", 60}}));
    return told.value("state", "") == "ended" ? told.value("why", "") : told.dump();
  }
};

TEST_F(LeaseCommands, GrantSaysAllThatAProgramNeeds) {
  ASSERT_TRUE(
      StartWith("allow = \"everybody\"\n[ledger]\ncurrency = \"EUR\"\n[ledger.prices]\n"
                "\"\" = 9.0\n"));
  const json lease = SayAs(kNobody, Lease(40, 60, {{"name", "burst"}, {"gpus", {"GPU-b"}}}));
  ExpectGranted(lease);
  EXPECT_EQ(lease.value("gpus", json()), json({"GPU-b"}));
  EXPECT_NEAR(lease.value("seconds", 0.0), 60, 10);
  const json environment = lease.value("environment", json::object());
  EXPECT_EQ(environment.value("BATON_TICKET", ""), lease.value("ticket", "?"));
  EXPECT_EQ(environment.value("BATON_SOCKET", ""), Socket());
  EXPECT_EQ(environment.value("CUDA_VISIBLE_DEVICES", ""), "GPU-b");
  EXPECT_TRUE(lease.value("hook", false));
  EXPECT_NEAR(lease.value("cost", 0.0), 9.0 * 0.4 / 60, 1e-9);
  EXPECT_EQ(lease.value("currency", ""), "EUR");
  EXPECT_EQ(PodStatus("burst").value("request", 0.0), 40);
  EXPECT_EQ(PodStatus("burst").value("user", ""), "nobody");
  const json rows = SayAs(kNobody, {{"command", "leases"}}).value("leases", json());
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].value("lease", ""), lease.value("lease", "?"));
  EXPECT_EQ(rows.dump().find(lease.value("ticket", "?")), std::string::npos);
}

TEST_F(LeaseCommands, WhoNeverRenewsIsEndedOnTime) {
  ASSERT_TRUE(StartWith("allow = \"everybody\"\n"));
  const Instant before = MonotonicNow();
  const json lease = SayAs(kNobody, Lease(80, 4));
  ExpectGranted(lease);
  EXPECT_EQ(Refused(kStranger, Lease(80, 1, {{"gpus", {lease.at("gpus")[0]}}, {"queue", false}})),
            "exhausted")
      << "its share is reserved though nobody launches";
  EXPECT_EQ(WhyEnded(lease), "its time is over");
  const Duration after = MonotonicNow() - before;
  EXPECT_GE(after, std::chrono::seconds(4));
  EXPECT_LT(after, std::chrono::seconds(14)) << "four, and what a busy machine takes";
  EXPECT_TRUE(IsGone(lease));
  EXPECT_EQ(Refused(kNobody, About("renew_lease", lease)), "not_found");
  EXPECT_EQ(Refused(kStranger, Lease(80, 1, {{"gpus", {lease.at("gpus")[0]}}})), "");
}

TEST_F(LeaseCommands, RenewedItStaysAndGivenBackItIsGoneAtOnce) {
  ASSERT_TRUE(StartWith("allow = \"everybody\"\n"));
  const json lease = SayAs(kNobody, Lease(40, 4));
  const json renewed = SayAs(kNobody, About("renew_lease", lease, {{"seconds", 600}}));
  ExpectGranted(renewed);
  EXPECT_EQ(renewed.value("ticket", ""), lease.value("ticket", "?"));
  EXPECT_NEAR(renewed.value("seconds", 0.0), 600, 10);
  usleep(4'200'000);  // beyond its first end
  EXPECT_FALSE(IsGone(lease));
  EXPECT_EQ(Refused(kNobody, About("end_lease", lease)), "");
  EXPECT_TRUE(IsGone(lease));
  EXPECT_EQ(WhyEnded(lease), "it was given back");
  EXPECT_EQ(Refused(kNobody, About("end_lease", lease)), "") << "twice is no mistake";
  // Both are in the log under the user's name.
  EXPECT_TRUE(Eventually([&] {
    return Say({{"command", "log"}, {"who", "nobody"}}).value("rows", json::array()).size() == 2;
  }));
}

TEST_F(LeaseCommands, ARevocationIsToldOverTheOpenConnection) {
  ASSERT_TRUE(StartWith("allow = \"everybody\"\n"));
  const json lease = SayAs(kNobody, Lease(40, 600, {{"name", "burst"}}));
  json told;
  std::thread waits([&] { told = SayAs(kNobody, About("lease", lease, {{"wait", 60}})); });
  usleep(100'000);
  EXPECT_TRUE(Say({{"command", "delete_pod"}, {"name", "burst"}}).value("ok", false));
  waits.join();
  EXPECT_EQ(told.value("state", ""), "ended") << told.dump();
  EXPECT_EQ(told.value("why", ""), "it was revoked: its pod was deleted");
}

TEST_F(LeaseCommands, WaitForTheLeasesOfOthersToEnd) {
  ASSERT_TRUE(StartWith("allow = \"everybody\"\n"));
  const json first = SayAs(kNobody, Lease(80, 4, {{"gpus", {"GPU-a"}}}));
  ExpectGranted(first);
  const json queued = SayAs(kStranger, Lease(40, 30, {{"gpus", {"GPU-a"}}}));
  ASSERT_EQ(queued.value("state", ""), "queued") << queued.dump();
  EXPECT_EQ(queued.value("until", ""), first.value("until", "?"));
  EXPECT_LE(queued.value("seconds", 99.0), 4);
  EXPECT_EQ(queued.value("before", 9), 0);
  EXPECT_EQ(Refused(kNobody, About("lease", queued)), "denied");
  EXPECT_EQ(Say({{"command", "leases"}}).value("leases", json()).size(), 2u);
  const json granted = SayAs(kStranger, About("lease", queued, {{"wait", 60}}));
  ExpectGranted(granted);
  EXPECT_EQ(granted.value("lease", ""), queued.value("lease", "?"));
  EXPECT_TRUE(IsGone(first));
  EXPECT_NEAR(granted.value("seconds", 0.0), 30, 5) << "it begins with the grant";
  // Who waits no longer leaves the queue.
  const json second = SayAs(kNobody, Lease(80, 2, {{"gpus", {"GPU-a"}}}));
  ASSERT_EQ(second.value("state", ""), "queued") << second.dump();
  EXPECT_EQ(Refused(kNobody, About("end_lease", second)), "");
  EXPECT_EQ(Say({{"command", "leases"}}).value("leases", json()).size(), 1u);
}

TEST_F(LeaseCommands, AreRefusedWhereNoEndOfALeaseHelps) {
  ASSERT_TRUE(
      StartWith("allow = \"everybody\"\nrequests_max = 0.5\n[users.teams]\nnogroup = "
                "\"lab/vision\"\n[ledger.prices]\n\"\" = 3.6\n"));
  Pod("stays", 80);
  const json refused = SayAs(kStranger, Lease(40, 60, {{"gpus", {"GPU-a"}}}));
  EXPECT_EQ(refused.value("state", ""), "refused") << refused.dump();
  EXPECT_EQ(refused.value("code", ""), "exhausted");
  EXPECT_NE(refused.value("error", "").find("no room"), std::string::npos);
  EXPECT_NEAR(refused.value("cost", 0.0), 3.6 * 0.4 / 60, 1e-9);
  // A user's bound, also that of all pods and leases together.
  EXPECT_EQ(Refused(kStranger, Lease(60, 60)), "exhausted");
  ExpectGranted(SayAs(kStranger, Lease(30, 60)));
  EXPECT_EQ(Refused(kStranger, Lease(30, 60)), "exhausted");
  EXPECT_EQ(Refused(kStranger, Create("pod", 30)), "exhausted");
  // A team's limit.
  EXPECT_EQ(Refused(kNobody, Lease(45, 60)), "exhausted");
  // What is the operator's to give.
  for (const json& more : {json{{"priority", "high"}}, json{{"mode", "exclusive"}},
                           json{{"uid", 0}}, json{{"team", "lab/speech"}}}) {
    EXPECT_EQ(Refused(kNobody, Lease(10, 60, more)), "denied") << more.dump();
  }
  for (const json& wrong : {Lease(10, 0), Lease(10, 86'401), Lease(10, -1),
                            Lease(10, 60, {{"queue", 1}}), Lease(10, 60, {{"lease", "mine"}}),
                            json{{"command", "lease"}, {"wait", 61}, {"lease", "a"}},
                            json{{"command", "renew_lease"}, {"lease", 7}}}) {
    EXPECT_EQ(Refused(kNobody, wrong), "invalid") << wrong.dump();
  }
  EXPECT_EQ(Refused(kNobody, About("lease", json::object())), "not_found");
}

TEST_F(LeaseCommands, OfOthersCannotBeTouched) {
  ASSERT_TRUE(StartWith("allow = \"everybody\"\n"));
  const json operators = Say(Lease(10, 600));
  const json others = SayAs(kStranger, Lease(10, 600));
  for (const json& lease : {operators, others}) {
    ExpectGranted(lease);
    for (const char* command : {"lease", "renew_lease", "end_lease"}) {
      EXPECT_EQ(Refused(kNobody, About(command, lease)), "denied") << command;
    }
    EXPECT_EQ(Refused(kNobody, {{"command", "delete_pod"}, {"name", lease.at("name")}}), "denied");
    EXPECT_FALSE(IsGone(lease));
  }
  ASSERT_EQ(Refused(kStranger, About("end_lease", others)), "");
  EXPECT_EQ(Refused(kNobody, About("lease", others)), "denied") << "ended, too";
  EXPECT_TRUE(Say(About("end_lease", operators)).value("ok", false));
}

// By HTTP the same, for the one whom the kernel names.
TEST_F(LeaseCommands, AreRequestsOfHttpToo) {
  ASSERT_TRUE(StartWith("allow = \"everybody\"\n"));
  const auto http = [&](uid_t uid, const std::string& method, const std::string& path,
                        const std::string& body = "") {
    return CurlAs(uid, "-X " + method + (body.empty() ? "" : " -d '" + body + "'"), path);
  };
  const auto [created, lease] = http(kNobody, "POST", "/api/v1/leases",
                                     R"({"request": 40, "seconds": 600, "name": "burst"})");
  EXPECT_EQ(created, 201);
  ExpectGranted(lease);
  EXPECT_EQ(PodStatus("burst").value("user", ""), "nobody");
  const std::string one = "/api/v1/leases/" + lease.value("lease", "none");
  EXPECT_EQ(http(kNobody, "GET", one).second.value("state", ""), "granted");
  EXPECT_EQ(http(kNobody, "GET", "/api/v1/leases").second.value("leases", json()).size(), 1u);
  const auto [renewed, until] = http(kNobody, "PUT", one, R"({"seconds": 900})");
  EXPECT_EQ(renewed, 200);
  EXPECT_NEAR(until.value("seconds", 0.0), 900, 10);

  // Not another's, and nothing but leases.
  EXPECT_EQ(http(kStranger, "DELETE", one).first, 403);
  EXPECT_EQ(http(kNobody, "POST", "/api/v1/leases", R"({"command": "delete_pod"})").first, 400);
  EXPECT_EQ(http(kNobody, "PUT", one, R"({"lease": "other"})").first, 400);
  EXPECT_EQ(http(kNobody, "POST", "/api/v1/leases", "[" + std::string(5'000, '[')).first, 400);
  EXPECT_EQ(http(kNobody, "POST", "/api/v1/leases", R"({"request": 400, "seconds": 60})").first,
            400);
  EXPECT_EQ(http(kNobody, "GET", "/api/v1/status").first, 404);
  EXPECT_EQ(http(kNobody, "GET", one + "?wait=soon").first, 400);
  EXPECT_EQ(http(kNobody, "PATCH", one).first, 405);
  // Where there is no room now, but will be, it is queued.
  const std::string large = R"({"request": 90, "seconds": 600})";
  EXPECT_EQ(http(kStranger, "POST", "/api/v1/leases", large).first, 201);
  EXPECT_EQ(http(kStranger + 1, "POST", "/api/v1/leases", large).first, 202);

  // Its end is told while somebody asks.
  std::pair<int, json> told;
  std::thread waits([&] { told = http(kNobody, "GET", one + "?wait=60"); });
  usleep(200'000);
  EXPECT_EQ(http(kNobody, "DELETE", one).first, 200);
  waits.join();
  EXPECT_EQ(told.second.value("why", ""), "it was given back") << told.second;
  EXPECT_TRUE(IsGone(lease));
}

TEST_F(LeaseCommands, RequestsAndLinesFollowEachOtherOnAConnection) {
  ASSERT_TRUE(StartWith("allow = \"everybody\"\n"));
  const auto connected = wire::ConnectUnix(folder_ / "run/user.sock", SOCK_STREAM);
  ASSERT_TRUE(connected);
  const UniqueFd batond(*connected);
  const std::string list = "GET /api/v1/leases HTTP/1.1\r\nHost: b\r\n\r\n";
  const std::string all = list + list + "{\"command\": \"leases\"}\n" +
                          "GET / HTTP/1.1\r\nConnection: close\r\n\r\n" + list;
  for (const char c : all) ASSERT_EQ(send(batond.get(), &c, 1, MSG_NOSIGNAL), 1);
  std::string got;
  char buffer[4096];
  for (ssize_t n; (n = recv(batond.get(), buffer, sizeof buffer, 0)) > 0;) {
    got.append(buffer, static_cast<size_t>(n));
  }
  const std::string head = "HTTP/1.1 200 OK\r\n";
  const size_t second = got.find(head, 1);
  ASSERT_NE(second, std::string::npos) << got;
  const size_t line = got.find("}\n{", second);
  ASSERT_NE(line, std::string::npos) << got;
  EXPECT_NE(got.find("HTTP/1.1 404 Not Found\r\n", line), std::string::npos) << got;
  EXPECT_EQ(got.find(head, second + 1), std::string::npos) << "after the end: " << got;
  EXPECT_EQ(got.compare(0, head.size(), head), 0) << got;
}

TEST_F(LeaseCommands, SurviveACrashAndEndWhileNobodyServes) {
  ASSERT_TRUE(StartWith("allow = \"everybody\"\n"));
  const json lasting = SayAs(kNobody, Lease(10, 600));
  const json brief = SayAs(kNobody, Lease(10, 1));
  const json next = SayAs(kNobody, Lease(10, 600));
  ASSERT_EQ(Refused(kNobody, About("renew_lease", next, {{"seconds", 3}})), "");
  daemon_.Crash();
  usleep(1'200'000);
  ASSERT_TRUE(daemon_.Start());
  EXPECT_TRUE(Eventually([&] { return IsGone(brief); }));
  const json told = SayAs(kNobody, About("lease", lasting));
  ExpectGranted(told);
  EXPECT_EQ(told.value("ticket", ""), lasting.value("ticket", "?"));
  EXPECT_EQ(told.value("until", ""), lasting.value("until", "?"));
  EXPECT_EQ(Refused(kStranger, About("end_lease", lasting)), "denied");
  // As it was renewed for, not as it was granted for.
  EXPECT_TRUE(Eventually([&] { return IsGone(next); }));
  EXPECT_EQ(Refused(kNobody, About("end_lease", lasting)), "");
}

TEST_F(LeaseCommands, TheExampleOfTheDocumentationRuns) {
  ASSERT_TRUE(StartWith("allow = \"everybody\"\n"));
  const std::string page = ReadText(BATON_SOURCE "/docs/leases.md");
  const size_t begin = page.find("```python\n");
  ASSERT_NE(begin, std::string::npos);
  const size_t end = page.find("```", begin + 10);
  WriteText(folder_ / "agent.py", page.substr(begin + 10, end - begin - 10));
  const std::string command = "BATON_SOCKET_DIR='" + (folder_ / "run") + "' python3 '" +
                              (folder_ / "agent.py") + "' sh -c 'echo $BATON_TICKET' >'" +
                              (folder_ / "out") + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(ReadText(folder_ / "out").size(), 32u + 1);
  const std::string log = daemon_.Log();
  const size_t created = log.find("burst created: request 40%");
  ASSERT_NE(created, std::string::npos) << log;
  EXPECT_NE(log.find("burst deleted", created), std::string::npos) << log;
}

}  // namespace
}  // namespace baton::backend
