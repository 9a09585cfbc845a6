// What the books say, against the devices' own records: over kills, between nodes, and what history
// does to shares.
#include <fmt/chrono.h>
#include <signal.h>

#include <cmath>
#include <fstream>
#include <random>

#include "base/file.h"
#include "receipt/envelope.h"
#include "teams/standing.h"
#include "tests/end_to_end/fixture.h"
#include "tests/temp_folder.h"

namespace baton::bench {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kOften = "\n[ledger]\nevery = \"200ms\"\n";

class Books : public EndToEnd {
 protected:
  json Report(int node, const std::string& by, const std::string& last = "1h") {
    std::string out;
    Must(cluster().Baton(node, {"report", "--by", by, "--last", last, "--format", "json"}, &out));
    return json::parse(out);
  }
  static std::map<std::string, double> HeldSeconds(const json& report) {
    std::map<std::string, double> held;
    for (const json& row : report.at("rows")) {
      held[row.at("key")] = row.at("held_hours").get<double>() * 3600;
    }
    return held;
  }
  // Everything adds up to the capacity.
  static void ExpectReconciled(const json& report) {
    double held = 0;
    for (const json& row : report.at("rows")) held += row.at("held_hours").get<double>();
    const double capacity = report.at("capacity_hours");
    EXPECT_NEAR(held + report.at("idle_hours").get<double>() +
                    report.at("unattributed_hours").get<double>(),
                capacity, 1e-9);
    EXPECT_NEAR(held, report.at("held_hours").get<double>(), 1e-9);
  }
  double BusySeconds(const Pod& pod, const Device& device) {
    double busy_ns = 0;
    for (const auto& record : RecordsOf(pod, device))
      busy_ns += static_cast<double>(record.busy_ns);
    return busy_ns / 1e9;
  }
};

// In mode "observe" nobody waits for anybody, and the books say all the same what shares would
// give: what the same pods then get.
TEST_F(Books, OfAnObservedGpuSayWhatSharesWouldGive) {
  const auto start = [&] {
    Start(Burn("train", "60", "100"));
    Start(Burn("eval", "30", "100"));
    Start(Burn("web", "10", "100", {"--burst", "5", "--period", "200ms", "--sync", "burst"}));
  };
  StartCluster({.transport = Transport::kUnix, .server = "mode = \"observe\"", .tables = kOften});
  start();
  // A whole bucket of the books.
  using Clock = std::chrono::system_clock;
  const auto ten = [](Clock::time_point t) {
    return std::chrono::sys_seconds(std::chrono::floor<seconds>(t.time_since_epoch()) / 10 * 10);
  };
  const auto from = ten(Clock::now() + seconds(10));
  PassTime(from - Clock::now() + milliseconds(8'000));
  std::string out;
  Must(cluster().Baton(0, {"status", "--json"}, &out));
  const json status = json::parse(out);
  for (const json& pod : status.at("pods")) {
    const double used = pod.at("gpus").at(0).at("achieved_1s");
    // Three at once: each takes up to three times as long.
    EXPECT_GT(used, pod.at("name") == "web" ? 2 : 80) << pod.at("name");
  }
  PassTime(from - Clock::now() + milliseconds(11'000));
  const auto text = [](std::chrono::sys_seconds t) {
    return fmt::format("{:%FT%TZ}", fmt::gmtime(t));
  };
  Must(cluster().Baton(
      0, {"whatif", "--from", text(from), "--to", text(from + seconds(10)), "--format", "json"},
      &out));
  std::map<std::string, double> foretold;
  const json answer = json::parse(out);
  for (const json& row : answer.at("rows")) foretold[row.at("pod")] = row.at("would_get");
  const json report = Report(0, "total");
  ExpectReconciled(report);
  EXPECT_EQ(report.at("held_hours"), 0.0);
  EXPECT_GT(report.at("unattributed_hours").get<double>(), report.at("idle_hours").get<double>());
  StopPods();

  StartCluster({.transport = Transport::kUnix});
  start();
  Windows([&] { return SharesOver(seconds(5), device()); },
          [&](const auto& shares) {
            const double busy = shares.at("train") + shares.at("eval") + shares.at("web");
            for (const auto& [name, share] : shares) {
              Figure("foretold_less_real_" + name, foretold[name] - share, "points");
              EXPECT_NEAR(foretold[name], share, 2 + Excused(100 - busy)) << name;
            }
          });
  StopPods();
}

// A pod that always has work, and one that seldom has; batond is away for a while.
TEST_F(Books, AreAccountedForByReceiptsThatAnybodyCanVerify) {
  StartCluster({.transport = Transport::kUnix, .tables = kOften});
  PodOptions train = Burn("train", "60", "100");
  PodOptions web =
      Burn("web", "20", "100", {"--burst", "2", "--period", "100ms", "--sync", "burst"});
  for (PodOptions* pod : {&train, &web}) pod->run_flags = {"--team", "research"};
  Start(train);
  Start(web);
  PassTime(seconds(8));
  cluster().batond(0).Signal(SIGKILL);
  ASSERT_TRUE(cluster().batond(0).Wait(seconds(5)));
  PassTime(seconds(4));
  Must(cluster().StartBatond(0));
  PassTime(seconds(4));
  StopPods();
  PassTime(seconds(1));

  const TempFolder folder;
  const std::string file = folder / "receipt.json";
  std::string key;
  Must(cluster().Baton(0, {"receipt", "key"}, &key));
  const std::string key_file = folder.Write("batond.pub", key);
  const auto receipt_of = [&](const char* kind, const char* name) {
    Must(cluster().Baton(
        0, {"receipt", kind, name, "--last", "30m", "--format", "json", "--output", file}));
    EXPECT_EQ(Must(cluster().Baton(0, {"receipt", "verify", file, "--key", key_file})), 0);
    return json::parse(Must(receipt::Verify(Must(ReadFile(file, receipt::kFileMax)))).payload);
  };
  const json report = Report(0, "pod");
  for (const char* name : {"train", "web"}) {
    const json total = receipt_of("pod", name).at("total");
    EXPECT_EQ(total.at("held_hours").get<double>() * 3600, HeldSeconds(report).at(name));
    const double guaranteed = total.at("guaranteed_hours");
    double less = 0;
    for (const auto& [reason, hours] : total.at("less").items()) {
      EXPECT_GE(hours.get<double>(), 0) << reason;
      less += hours.get<double>();
    }
    EXPECT_NEAR(total.at("got_hours").get<double>() + less, guaranteed, 1e-9);
    // Nothing is left unexplained, though batond was away.
    EXPECT_LT(total.at("less").at("unknown_hours").get<double>(), 0.02 * guaranteed) << total;
    EXPECT_GT(total.at("pod_hours").get<double>() * 3600, 14) << "it was there for 16 s and more";
  }
  const json team = receipt_of("team", "research");
  EXPECT_EQ(team.at("lines").size(), 2u);
  std::string html;
  Must(cluster().Baton(0, {"receipt", "team", "research", "--format", "html"}, &html));
  EXPECT_TRUE(receipt::Verify(html));
}

TEST_F(Books, AgreeWithTheDevicesRecordWhoeverIsKilledWhenever) {
  constexpr double kQuotaMax = 0.040;  // seconds; scheduler.quota_max
  const int kills = 20 * Scale();
  StartCluster({.transport = Transport::kUnix, .tables = kOften});
  std::mt19937 random(std::random_device{}());
  const Instant began = MonotonicNow();
  std::map<std::string, int> hits;  // kills that a pod lived through, its own among them
  std::vector<Pod*> alive;
  std::vector<const Pod*> all;
  int made = 0;
  const auto start = [&](const char* request) {
    Pod& pod = Start(Burn("p" + std::to_string(made++), request, "100"));
    all.push_back(&pod);
    return &pod;
  };
  for (const char* request : {"50", "30", "20"}) alive.push_back(start(request));
  int daemons = 0;
  // By other work on this machine, while the pod was there: a GPU that is held stands idle then.
  std::map<std::string, double> denied;
  const auto count = [&](const DeniedTime& time) {
    const double seconds = static_cast<double>(Nanos(time.SoFar())) / 1e9;
    for (const Pod* pod : alive) denied[pod->name()] += seconds;
  };
  for (int i = 0; i < kills; ++i) {
    const DeniedTime before;
    PassTime(milliseconds(20 + random() % 200));
    count(before);
    const DeniedTime after;
    if (random() % 3 == 0) {
      Pod*& victim = alive[random() % alive.size()];
      ++hits[victim->name()];
      for (const pid_t pid : victim->Pids()) kill(pid, SIGKILL);
      ASSERT_TRUE(victim->Wait(seconds(10)));
      victim = start(victim->options().request.c_str());
    } else {
      ++daemons;
      for (const Pod* pod : alive) ++hits[pod->name()];
      cluster().batond().Signal(SIGKILL);
      ASSERT_TRUE(cluster().batond().Wait(seconds(5)));
      Must(cluster().StartBatond());
    }
    count(after);
  }
  const DeniedTime last;
  PassTime(milliseconds(500));
  count(last);
  StopPods();
  // The last batch has everything: pods that ended are booked before they are forgotten.
  json report;
  std::map<std::string, double> held;
  const auto booked = [&] {
    report = Report(0, "pod");
    const auto now = HeldSeconds(report);
    const bool same = now == held;
    held = now;
    PassTime(milliseconds(500));
    return same && held.size() == all.size();
  };
  ASSERT_TRUE(WaitUntil(booked, seconds(15))) << report.dump();
  // The GPU is there until the last report.
  const double lasted = static_cast<double>(Nanos(MonotonicNow() - began)) / 1e9;
  double worst = 0;
  for (const Pod* pod : all) {
    const double busy = BusySeconds(*pod, device());
    const double off = std::abs(held[pod->name()] - busy);
    // Of held time the GPU works all but the gaps at the edges of each token.
    const double allowed = kQuotaMax * (hits[pod->name()] + 1) + 0.05 * busy + denied[pod->name()];
    worst = std::max(worst, off / allowed);
    EXPECT_LE(off, allowed) << pod->name() << " held " << held[pod->name()] << " s, busy " << busy
                            << " s, " << hits[pod->name()] << " kills, denied "
                            << denied[pod->name()] << " s";
  }
  Figure("kills", kills, "");
  Figure("kills_of_batond", daemons, "");
  Figure("worst_error_of_allowed", worst, "");
  ExpectReconciled(report);
  // The window is wider than the test; the GPU was there from the first batch on.
  EXPECT_NEAR(report.at("capacity_hours").get<double>() * 3600, lasted, 0.1 * lasted + 2);
  Figure("unattributed",
         100 * report.at("unattributed_hours").get<double>() /
             report.at("capacity_hours").get<double>(),
         "%");
  ExpectReconciled(Report(0, "team"));
  EXPECT_EQ(Overlaps(device()), 0u);
}

TEST_F(Books, OfThreeNodesEndUpInTheCentralOneWhateverBecomesOfIt) {
  StartCluster({.transport = Transport::kUnix, .nodes = 3, .tables = kOften, .federated = true});
  const std::map<int, std::pair<std::string, std::string>> pods{
      {0, {"a0", "b0"}}, {1, {"a1", "b1"}}, {2, {"a2", "b2"}}};
  for (const auto& [node, names] : pods) {
    for (const auto& [name, request] :
         {std::pair(names.first, "70"), std::pair(names.second, "30")}) {
      PodOptions pod = Burn(name, request, "100");
      pod.node = node;
      pod.run_flags = {"--team", node == 0 ? "one" : "two"};
      Start(pod);
    }
  }
  PassTime(seconds(1));
  const auto expect_shares_over = [&](Duration window) {
    Windows(
        [&] {
          const Instant from = MonotonicNow();
          PassTime(window);
          return from;
        },
        [&](Instant from) {
          // Of what both of a node got: six pods on three GPUs may be more than this machine can
          // simulate.
          for (const auto& [node, names] : pods) {
            const auto shares = SharesIn(from, from + window, device(node));
            const double a = shares.at(names.first), b = shares.at(names.second);
            EXPECT_NEAR(100 * a / (a + b), 70, 3) << "node " << node;
          }
        });
  };
  auto& upstream = cluster().batond(Cluster::kUpstream);
  // Killed, and back at once.
  upstream.Signal(SIGKILL);
  ASSERT_TRUE(upstream.Wait(seconds(5)));
  Must(cluster().StartBatond(Cluster::kUpstream));
  expect_shares_over(seconds(2));
  // Away for a while.
  cluster().batond(Cluster::kUpstream).Signal(SIGKILL);
  ASSERT_TRUE(cluster().batond(Cluster::kUpstream).Wait(seconds(5)));
  expect_shares_over(seconds(4) * (Scale() > 1 ? 30 : 1));
  // A node's own daemon dies meanwhile, with what it could not send.
  cluster().batond(1).Signal(SIGKILL);
  ASSERT_TRUE(cluster().batond(1).Wait(seconds(5)));
  Must(cluster().StartBatond(1));
  Must(cluster().StartBatond(Cluster::kUpstream));
  PassTime(seconds(1));
  StopPods();
  json central;
  std::map<std::string, double> of_central, of_nodes;
  const auto equal = [&] {
    of_nodes.clear();
    for (const auto& [node, names] : pods) of_nodes.merge(HeldSeconds(Report(node, "pod")));
    central = Report(Cluster::kUpstream, "pod");
    of_central = HeldSeconds(central);
    PassTime(milliseconds(500));
    return of_central.size() == 6 && of_central == of_nodes;
  };
  EXPECT_TRUE(WaitUntil(equal, seconds(20))) << json(of_central) << " is not " << json(of_nodes);
  ExpectReconciled(central);
  for (const auto& [node, names] : pods) {
    for (const Pod* pod : {&PodNamed(names.first), &PodNamed(names.second)}) {
      const double busy = BusySeconds(*pod, device(node));
      EXPECT_GE(of_central[pod->name()], 0.97 * busy - 0.1) << pod->name();
    }
  }
  EXPECT_EQ(Report(Cluster::kUpstream, "team").at("rows").size(), 2u);
}

std::string WriteTeams(const std::string& text) {
  std::string file = std::string("/tmp/baton-teams-") + std::to_string(getpid()) + ".toml";
  std::ofstream(file) << text;
  return file;
}

TEST_F(Books, WhoUsedLessGetsTheSlackUntilTheStandingEvensOut) {
  const auto half_life = seconds(60);
  const std::string text =
      "half_life = \"60s\"\n[[team]]\nname = \"early\"\n[[team]]\nname = \"late\"\n";
  const std::string file = WriteTeams(text);
  StartCluster({.transport = Transport::kUnix,
                // What it uses alone is to count too.
                .tables = kOften + ("[teams]\nuncontended_use = 1\nfile = \"" + file + "\"\n")});
  PodOptions early = Burn("early", "10", "100");
  early.run_flags = {"--team", "early"};
  Start(early);
  PassTime(seconds(8));
  PodOptions late = Burn("late", "10", "100");
  late.run_flags = {"--team", "late"};
  const Instant before = MonotonicNow();
  Start(late);
  unlink(file.c_str());
  const auto teams = Must(teams::ParseTeams(text, "teams"));
  // What the early team has used so far, to the device's own record.
  const auto uses = std::vector<teams::Use>{{"early", "", DecayedUse("early", before, half_life)}};
  policy::ShareSpec spec;
  spec.request = policy::kWhole / 10;
  const std::vector<teams::CoursePod> pods{{"early", 0, *policy::Validated(spec)},
                                           {"late", 0, *policy::Validated(spec)}};
  const auto course = teams::Forecast(teams, uses, pods, seconds(60), milliseconds(20));
  const auto predicted = [&](size_t team, Instant from, Instant to) {
    double sum = 0;
    int points = 0;
    for (const auto& point : course.points) {
      if (before + point.at < from || before + point.at >= to) continue;
      sum += point.share[team];
      ++points;
    }
    return 100 * sum / points;
  };
  PassTime(seconds(1));
  const auto off_the_forecast = [&] {
    double worst = 0;
    for (int i = 0; i < 4; ++i) {
      const Instant from = MonotonicNow();
      const auto measured = SharesOver(milliseconds(2500), device());
      for (size_t team = 0; team < 2; ++team) {
        const std::string& name = course.teams[team];
        const double expected = predicted(team, from, from + milliseconds(2500));
        // Of what both got: what the machine took from both is nobody's share.
        const double share = 100 * measured.at(name) / (measured.at("early") + measured.at("late"));
        printf("figure share_%s_%d %.1f %% predicted %.1f\n", name.c_str(), i, share, expected);
        worst = std::max(worst, std::abs(share - expected));
      }
    }
    return worst;
  };
  Windows(off_the_forecast, [](double worst) {
    Figure("worst_off_the_forecast", worst, "points");
    EXPECT_LE(worst, 5);
  });
}

TEST_F(Books, UseOfAGpuThatNobodyElseWantedIsNotHeldAgainstATeam) {
  const std::string file =
      WriteTeams("half_life = \"60s\"\n[[team]]\nname = \"early\"\n[[team]]\nname = \"late\"\n");
  StartCluster(
      {.transport = Transport::kUnix, .tables = kOften + ("[teams]\nfile = \"" + file + "\"\n")});
  for (const char* team : {"early", "late"}) {
    PodOptions pod = Burn(team, "10", "100");
    pod.run_flags = {"--team", team};
    Start(pod);
    PassTime(seconds(team == std::string("early") ? 8 : 1));
  }
  unlink(file.c_str());
  const auto off_the_half = [&] {
    const auto measured = SharesOver(milliseconds(2500), device());
    const double share = 100 * measured.at("early") / (measured.at("early") + measured.at("late"));
    Figure("share_early", share, "%");
    return std::abs(share - 50);
  };
  Windows(off_the_half,
          [](double worst) { EXPECT_LE(worst, 5) << "a tenth at first if all use counted"; });
  std::string out;
  Must(cluster().Baton(0, {"standing", "--format", "json"}, &out));
  const json standing = json::parse(out);
  for (const json& row : standing.at("rows")) {
    if (row.at("user") != "" || row.at("team") == "") continue;
    const double counted = 3600 * row.at("raw_usage_hours").get<double>();
    const double uncounted = 3600 * row.at("uncounted_hours").get<double>();
    const bool early = row.at("team") == "early";
    Figure(early ? "uncontended_early" : "uncontended_late",
           100 * uncounted / (counted + uncounted), "%");
    EXPECT_GT(counted, 1) << row << ": what both wanted";
    EXPECT_GT(uncounted, early ? 4 : -1) << row << ": the time alone";
    if (!early) {
      EXPECT_LT(uncounted, 0.05 * counted) << row;
    }
  }
}

}  // namespace
}  // namespace baton::bench
