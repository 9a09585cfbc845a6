// What would these pods get: the tables, the JSON, the picture, and what is said about wrong files.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/timeline.h"
#include "tests/cli/harness.h"

namespace baton::cli {
namespace {

constexpr const char* kTwo = R"([[pod]]
name = "train"
request = 75

[[pod]]
name = "web"
request = 25
priority = "high"
kernel = "500us"
burst = "5ms"
period = "200ms"
)";

class Simulate : public testing::Test {
 protected:
  std::string Write(const std::string& text) const {
    std::string path = folder_.path() + "/workload.toml";
    std::ofstream(path) << text;
    return path;
  }
  Outcome Run(const std::string& text, std::vector<std::string> flags = {}) const {
    std::vector<std::string> arguments{"simulate", Write(text)};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return RunBaton(arguments);
  }
  nlohmann::json Json(const std::string& text, std::vector<std::string> flags = {}) const {
    flags.push_back("--json");
    const Outcome outcome = Run(text, flags);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  }
  // What follows "baton: FILE" in the one line on stderr.
  std::string Complaint(const std::string& text) const {
    const Outcome outcome = Run(text);
    EXPECT_NE(outcome.status, 0);
    EXPECT_EQ(outcome.out, "");
    const std::string start = "baton: " + folder_.path() + "/workload.toml";
    EXPECT_EQ(outcome.err.find(start), 0u) << outcome.err;
    return outcome.err.substr(std::min(start.size(), outcome.err.size()));
  }

  TempFolder folder_;
};

TEST_F(Simulate, PrintsATableOfPodsAndOneOfPriorities) {
  const Outcome outcome = Run(kTwo, {"--length", "10s"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::string line;
  std::getline(lines, line);
  for (const char* column :
       {"pod", "request", "limit", "target", "achieved", "wait p50", "p99", "max", "hand-offs/s"}) {
    EXPECT_NE(line.find(column), std::string::npos) << line;
  }
  std::getline(lines, line);
  EXPECT_EQ(line.find("train "), 0u);
  std::getline(lines, line);
  EXPECT_EQ(line.find("web ^ "), 0u) << "high priority is marked";
  for (const char* text : {"\npriority", "\nhigh", "\nnormal", "GPU busy", "10s of virtual time",
                           "rule earliest-finish"}) {
    EXPECT_NE(outcome.out.find(text), std::string::npos) << outcome.out;
  }
}

// High priority is served sooner, but never out of what others request.
TEST_F(Simulate, ManySmallPodsOfHighPriorityLeaveTheBigOneItsRequest) {
  struct Services {
    int count;
    const char* request;
    const char* pause;
  };
  for (const auto& [count, request, pause] :
       {Services{5, "10", "20ms"}, Services{20, "2.5", "100ms"}}) {
    const auto json =
        Json(fmt::format("[[pod]]\nname = \"train\"\nrequest = 50\nkernel = \"1ms\"\n"
                         "[[pod]]\nname = \"svc\"\ncount = {}\nrequest = {}\npriority = \"high\"\n"
                         "kernel = \"1ms\"\nburst = \"5ms\"\npause = \"{}\"\n",
                         count, request, pause),
             {"--length", "60s"});
    const double train = json["pods"][0]["achieved"].get<double>();
    printf("figure train_beside_%d_high %.2f %%\n", count, train);
    EXPECT_GE(train, 49.5) << count << " services of " << request << " %";
  }
}

// 2 ms of work, then a gap on the processor, as a training loop has it; beside a pod that always
// has work. `target` is what the ideal GPU would give. No cliff: a longer gap costs as much more.
TEST_F(Simulate, ALoopWithGapsGetsItsRequestWhateverTheGap) {
  double worst_loop = 1, worst_neighbour = 1, least_busy = 100;
  for (int us = 0; us <= 10'000; us += 200) {
    const auto json = Json(fmt::format("[[pod]]\nname = \"loop\"\nrequest = 50\njitter = 0\n"
                                       "burst = \"2ms\"\npause = \"{}us\"\n"
                                       "[[pod]]\nname = \"neighbour\"\nrequest = 50\n",
                                       std::max(us, 1)),
                           {"--length", "10s"});
    const auto part = [&](int pod) {
      return json["pods"][pod]["busy"].get<double>() / json["pods"][pod]["target"].get<double>();
    };
    const double busy = json["gpu_busy"].get<double>();
    EXPECT_GE(part(0), 0.85) << us << " us";
    // Waiting through a gap that is shorter than a hand-off costs both of them.
    EXPECT_GE(part(1), us < 400 ? 0.91 : 0.94) << us << " us";
    EXPECT_GE(busy, us < 4'000 ? 90 : 94) << us << " us";
    worst_loop = std::min(worst_loop, part(0));
    worst_neighbour = std::min(worst_neighbour, part(1));
    least_busy = std::min(least_busy, busy);
  }
  printf("figure loop_with_gaps %.3f of the ideal, its neighbour %.3f, GPU busy %.1f %%\n",
         worst_loop, worst_neighbour, least_busy);
}

TEST_F(Simulate, ManySmallServicesLeaveTheGpuToTheTrainBesideThem) {
  struct Services {
    int count;
    const char* request;
    const char* work;
    const char* period;
    double busy;
  };
  for (const auto& [count, request, work, period, least] :
       {Services{20, "3.5", "1ms", "50ms", 90}, Services{50, "1.4", "200us", "100ms", 88}}) {
    const auto json = Json(fmt::format("[[pod]]\nname = \"train\"\nrequest = 30\nkernel = \"1ms\"\n"
                                       "[[pod]]\nname = \"svc\"\ncount = {}\nrequest = {}\n"
                                       "kernel = \"{}\"\nburst = \"{}\"\nperiod = \"{}\"\n",
                                       count, request, work, work, period),
                           {"--length", "60s"});
    const nlohmann::json& train = json["pods"][0];
    const double got = train["busy"].get<double>() / train["target"].get<double>();
    const double wait = json["priorities"][0]["wait"]["p99_ms"].get<double>();
    printf("figure train_beside_%d_services %.3f of the ideal, GPU busy %.1f %%, p99 %.1f ms\n",
           count, got, json["gpu_busy"].get<double>(), wait);
    EXPECT_GE(got, 0.85) << count;
    EXPECT_GE(json["gpu_busy"].get<double>(), least) << count;
    EXPECT_LE(wait, 40) << count;
  }
}

// Five others that burst at once, and 500 that live for half a second each.
TEST_F(Simulate, ARequestOfHalfIsKeptBesideBurstsAndVisitors) {
  const auto achieved = [&](const std::string& others) {
    const auto json =
        Json("[[pod]]\nname = \"train\"\nrequest = 50\n" + others, {"--length", "60s"});
    return json["pods"][0]["achieved"].get<double>();
  };
  EXPECT_GE(achieved("[[pod]]\nname = \"burst\"\ncount = 5\nrequest = 10\nburst = \"20ms\"\n"
                     "period = \"100ms\"\n"),
            49.5);
  std::string visitors;
  for (int i = 0; i < 500; ++i) {
    visitors += fmt::format(
        "[[pod]]\nname = \"visitor-{}\"\nrequest = 2\nstart = \"{}ms\"\nstop = \"{}ms\"\n", i,
        115 * i, 115 * i + 500);
  }
  EXPECT_GE(achieved(visitors), 49.5);
}

TEST_F(Simulate, ALonePodWithLongPausesIsChargedForItsWork) {
  const auto json =
      Json("[[pod]]\nname = \"lone\"\nrequest = 50\nburst = \"5ms\"\nperiod = \"200ms\"\n",
           {"--length", "60s"});
  const nlohmann::json& lone = json["pods"][0];
  EXPECT_LE(lone["achieved"].get<double>(), 1.15 * lone["busy"].get<double>());
}

TEST_F(Simulate, AHundredStrictPodsFillTheGpu) {
  const auto json =
      Json("[[pod]]\nname = \"s\"\ncount = 100\nrequest = 1\nlimit = 1\n", {"--length", "60s"});
  EXPECT_GE(json["gpu_busy"].get<double>(), 97);
}

TEST_F(Simulate, PausesOfAFewMillisecondsCostNoRequest) {
  const auto json = Json(
      "[[pod]]\nname = \"a\"\nrequest = 50\nburst = \"10ms\"\npause = \"3ms\"\n"
      "[[pod]]\nname = \"b\"\nrequest = 50\n",
      {"--length", "60s"});
  for (const nlohmann::json& pod : json["pods"]) {
    EXPECT_GE(pod["achieved"].get<double>(), 0.94 * pod["target"].get<double>()) << pod["name"];
  }
}

constexpr const char* kIdlePod =
    "[[pod]]\nname = \"night\"\npriority = \"idle\"\nkernel = \"1ms\"\njitter = 0\n";

TEST_F(Simulate, AnIdlePodHasTheGpuWhenItIsAloneAndNothingBesideOneThatAlwaysWorks) {
  EXPECT_GE(Json(kIdlePod)["pods"][0]["busy"].get<double>(), 98);
  const auto beside =
      Json(std::string("[[pod]]\nname = \"train\"\nrequest = 1\n") + kIdlePod, {"--length", "60s"});
  EXPECT_LE(beside["pods"][1]["achieved"].get<double>(), 0.5);
  EXPECT_EQ(beside["pods"][1]["target"].get<double>(), 0);
  EXPECT_EQ(beside["priorities"][1]["priority"], "idle");
}

// At every gap a loop keeps 95 % of its speed beside an idle pod with kernels of 1 ms, and never
// waits for more than one of those and 2 ms.
TEST_F(Simulate, AnIdlePodCostsALoopLittleAndGivesWayAtOnce) {
  double worst = 1, idle_at_30 = 0;
  for (const int gap : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 22, 25, 30, 50, 100}) {
    const std::string loop = fmt::format(
        "[[pod]]\nname = \"loop\"\nrequest = 50\nburst = \"2ms\"\npause = \"{}ms\"\n", gap);
    const auto busy = [](const nlohmann::json& json, int pod) {
      return json["pods"][pod]["busy"].get<double>();
    };
    const auto alone = Json(loop, {"--length", "20s"});
    const auto both = Json(loop + kIdlePod, {"--length", "20s"});
    EXPECT_GE(busy(both, 0), (gap <= 15 ? 0.99 : 0.95) * busy(alone, 0)) << gap << " ms";
    EXPECT_LE(both["pods"][0]["wait"]["max_ms"].get<double>(), 3) << gap << " ms";
    worst = std::min(worst, busy(both, 0) / busy(alone, 0));
    if (gap == 30) idle_at_30 = busy(both, 1);
  }
  EXPECT_GE(idle_at_30, 30) << "pauses are used, too";
  printf(
      "figure loop_beside_an_idle_pod %.3f of its speed alone; at gaps of 30 ms that has %.1f %%\n",
      worst, idle_at_30);
}

// 75 and 25 % of pods that always have work.
TEST_F(Simulate, SaturatingPodsGetTheirTargets) {
  const nlohmann::json json =
      Json("[[pod]]\nname = \"a\"\nrequest = 75\n[[pod]]\nname = \"b\"\nrequest = 25\n",
           {"--length", "60s"});
  ASSERT_EQ(json["pods"].size(), 2u);
  EXPECT_NEAR(json["pods"][0]["target"].get<double>(), 75, 0.01);
  EXPECT_NEAR(json["pods"][1]["target"].get<double>(), 25, 0.01);
  // Held time: all but hand-offs, within 2 L of 60 s.
  EXPECT_NEAR(json["pods"][0]["achieved"].get<double>(), 75, 0.8);
  EXPECT_NEAR(json["pods"][1]["achieved"].get<double>(), 25, 0.8);
  EXPECT_GT(json["gpu_busy"].get<double>(), 97);
  EXPECT_EQ(json["rule"], "earliest-finish");
}

// 5 ms of work every 200 ms are 2.5 % of the GPU, whatever was requested.
TEST_F(Simulate, AnInteractivePodGetsWhatItAsksForAndWaitsLittle) {
  const nlohmann::json json = Json(kTwo, {"--hours", "0.05"});
  EXPECT_EQ(json["length_s"], 180.0);
  const nlohmann::json& web = json["pods"][1];
  EXPECT_EQ(web["priority"], "high");
  EXPECT_NEAR(web["target"].get<double>(), 2.5, 0.05);
  EXPECT_NEAR(web["busy"].get<double>(), 2.5, 0.15);
  EXPECT_GT(web["wait"]["count"].get<int>(), 800);
  EXPECT_LT(web["wait"]["p50_ms"].get<double>(), 10);
  EXPECT_LE(web["wait"]["p50_ms"], web["wait"]["p99_ms"]);
  EXPECT_LE(web["wait"]["p99_ms"], web["wait"]["max_ms"]);
  EXPECT_EQ(json["priorities"].size(), 2u);
  EXPECT_NEAR(json["pods"][0]["target"].get<double>(), 97.5, 0.05) << "takes what is left";
}

TEST_F(Simulate, ALimitHoldsWhereTheGpuIsIdle) {
  const nlohmann::json json = Json("[[pod]]\nname = \"a\"\nlimit = 10\n");
  EXPECT_NEAR(json["pods"][0]["achieved"].get<double>(), 10, 0.5);
  EXPECT_NEAR(json["pods"][0]["target"].get<double>(), 10, 0.01);
}

TEST_F(Simulate, CountMakesPodsAndStartAndStopBoundThem) {
  const nlohmann::json json = Json(
      "[[pod]]\nname = \"a\"\ncount = 3\nrequest = 20\nstart = \"10s\"\nstop = \"40s\"\n"
      "[[pod]]\nname = \"b\"\nrequest = 90\nstart = \"40s\"\n");
  ASSERT_EQ(json["pods"].size(), 4u);
  EXPECT_EQ(json["pods"][2]["name"], "a-3");
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(json["pods"][i]["target"].get<double>(), 50. / 3, 0.01);
  EXPECT_NEAR(json["pods"][3]["target"].get<double>(), 100. / 3, 0.01);
}

TEST_F(Simulate, TheSameSeedGivesTheSameAnswer) {
  EXPECT_EQ(Run(kTwo).out, Run(kTwo).out);
  EXPECT_NE(Run(kTwo).out, Run(kTwo, {"--seed", "2"}).out);
}

TEST_F(Simulate, AShorterQuotaIsHonoured) {
  const std::string text =
      "[[pod]]\nname = \"a\"\nrequest = 50\n[[pod]]\nname = \"b\"\nrequest = 50\n";
  const double before = Json(text)["handoffs_per_s"];
  const double after = Json(text + "[scheduler]\nquota_max = \"10ms\"\n")["handoffs_per_s"];
  EXPECT_GT(after, 1.5 * before);
}

// What a neighbour of a pod waits for that is mostly short kernels, and now and then a long one.
TEST_F(Simulate, LongKernelsAmongShortOnesShowInTheNeighboursWaits) {
  const auto max_wait = [&](const std::string& more) {
    const nlohmann::json json =
        Json("[[pod]]\nname = \"steps\"\nrequest = 50\nkernel = \"1ms\"\njitter = 0\n" + more +
             "[[pod]]\nname = \"web\"\nrequest = 10\npriority = \"high\"\nkernel = \"500us\"\n"
             "burst = \"1ms\"\nperiod = \"50ms\"\n");
    EXPECT_GT(json["pods"][1]["wait"]["count"].get<int>(), 1000);
    return json["pods"][1]["wait"]["max_ms"].get<double>();
  };
  const double without = max_wait("");
  const double with = max_wait("long_kernel = \"40ms\"\nlong_every = 10\n");
  printf("figure longest_wait_beside_long_kernels %.1f ms, %.1f ms without\n", with, without);
  EXPECT_LT(without, 15);
  EXPECT_GT(with, 30) << "it cannot be interrupted";
  EXPECT_LT(with, 100);
  EXPECT_LT(max_wait("long_kernel = \"40ms\"\nlong_every = 1000000\n"), 15) << "none has come yet";
}

TEST_F(Simulate, AnotherRuleMayBeCompared) {
  const Outcome outcome = Run(kTwo, {"--rule", "window"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("rule window"), std::string::npos);
  EXPECT_EQ(Run(kTwo, {"--rule", "lottery"}).err.find("baton: --rule: 'lottery' is no rule"), 0u);
}

TEST_F(Simulate, WrongFilesAreExplainedWithTheirLine) {
  const std::string pod = "[[pod]]\nname = \"a\"\nrequest = 10\n";
  EXPECT_EQ(Complaint(""), ":1: a workload needs a [[pod]] for each pod\n");
  EXPECT_EQ(Complaint("[[pod]]\nrequest = 10\n"),
            ":1: a [[pod]] needs a name of at most 128 characters\n");
  EXPECT_EQ(Complaint("[[pod]]\nname = \"a\"\n"),
            ":1: a pod needs a request or a limit, in percent of a GPU\n");
  EXPECT_EQ(Complaint(pod + "kernel = 3\n"),
            ":4: kernel must be a duration of at least 1us, such as \"20ms\"\n");
  EXPECT_EQ(Complaint(pod + "burst = \"5ms\"\n"),
            ":1: a burst needs either pause (from its end to the next one) or period (from "
            "beginning to beginning)\n");
  EXPECT_EQ(Complaint(pod + "pause = \"5ms\"\n"),
            ":1: a pause or period needs a burst: the GPU time between two pauses\n");
  const std::string both =
      ":1: write both long_kernel (the length of the long ones) and long_every (of so many kernels "
      "one is long), or neither\n";
  EXPECT_EQ(Complaint(pod + "long_kernel = \"40ms\"\n"), both);
  EXPECT_EQ(Complaint(pod + "long_every = 10\n"), both);
  EXPECT_EQ(Complaint(pod + "long_kernel = 40\nlong_every = 10\n"),
            ":4: long_kernel must be a duration of at least 1us, such as \"20ms\"\n");
  EXPECT_EQ(Complaint(pod + "long_kernel = \"40ms\"\nlong_every = 1\n"),
            ":5: long_every must be a whole number from 2 to 1000000\n");
  EXPECT_EQ(Complaint(pod + "long_kernel = \"40ms\"\nlong_every = 10\nburst = \"20ms\"\n"
                            "pause = \"1s\"\n"),
            ":1: long_kernel is longer than burst, of which it is a part; raise burst\n");
  EXPECT_EQ(Complaint(pod + "count = 0\n"), ":4: count must be a whole number from 1 to 100\n");
  EXPECT_EQ(Complaint(pod + "priority = \"urgent\"\n"),
            ":4: 'urgent' is no priority; write normal, high or idle\n");
  EXPECT_EQ(Complaint(pod + "start = \"5s\"\nstop = \"4s\"\n"), ":1: stop must come after start\n");
  EXPECT_EQ(Complaint(pod + pod), ":4: this pod is listed twice: a\n");
  EXPECT_EQ(Complaint(pod + "colour = 1\n").find(":4: [[pod]] has no key colour; it has burst"),
            0u);
  EXPECT_EQ(Complaint("[pods]\n" + pod),
            ":1: unknown section [pods]; there are [[pod]], [scheduler] and [hook]\n");
  EXPECT_EQ(Complaint(pod + "\n[scheduler]\nquota_max = \"1h\"\n"),
            ":6: quota_max must be a duration from \"100us\" to \"10s\"\n");
  EXPECT_EQ(Complaint(pod + "[scheduler]\n\nquota = 1\n").find(":6: [scheduler] has no key quota"),
            0u);
  EXPECT_EQ(Complaint("[[pod]\n").find(":1: "), 0u);
  EXPECT_EQ(
      Complaint(pod + "[[pod]]\nname = \"b\"\nrequest = 91\n"),
      ": when a starts, the requests add up to 101 %, more than the 100 % that batond admits; "
      "lower them, or raise overcommit in [scheduler]\n");
}

TEST_F(Simulate, TimesThatCannotBeAreExplained) {
  EXPECT_EQ(Run(kTwo, {"--length", "5"}).err.find("baton: --length: '5' is not a duration"), 0u);
  EXPECT_EQ(Run(kTwo, {"--length", "1ms"}).err, "baton: at least 1s must be simulated\n");
  EXPECT_EQ(Run(kTwo, {"--length", "10s", "--svg", "x.svg", "--window", "9s:11s"}).err,
            "baton: --window: '9s:11s' is no part of the 10s simulated; write two times, such as "
            "0s:2s\n");
  EXPECT_EQ(RunBaton({"simulate", "/nowhere.toml"}).err,
            "baton: cannot open /nowhere.toml: No such file or directory\n");
}

TEST_F(Simulate, DrawsWhoHeldTheToken) {
  const std::string path = folder_.path() + "/gpu.svg";
  const Outcome outcome = Run(kTwo, {"--svg", path, "--window", "200ms:700ms"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::ostringstream svg;
  svg << std::ifstream(path).rdbuf();
  for (const char* text : {"<svg ", ">train<", ">web<", "75 %", "milliseconds", "<polyline",
                           "prefers-color-scheme: dark", "</svg>"}) {
    EXPECT_NE(svg.str().find(text), std::string::npos) << text;
  }
  const Outcome denied = Run(kTwo, {"--svg", folder_.path() + "/no/such/folder.svg"});
  EXPECT_EQ(denied.status, 1);
  EXPECT_NE(denied.err.find("cannot be written"), std::string::npos);
}

TEST(Timeline, ClipsHoldsToTheWindowAndEscapesNames) {
  using std::chrono::milliseconds;
  Timeline timeline;
  timeline.title = "a < b & c";
  timeline.pods = {{"<one>", "", {0.5, 1.0}}, {"two", "", {0.5, 0.0}}};
  timeline.from = milliseconds(100);
  timeline.to = milliseconds(200);
  timeline.step = milliseconds(100);
  timeline.holds = {{0, milliseconds(0), milliseconds(150)},    // half of it within
                    {1, milliseconds(150), milliseconds(400)},  // half of it within
                    {0, milliseconds(400), milliseconds(500)}};
  const std::string svg = DrawTimeline(timeline);
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_EQ(svg.find("<one>"), std::string::npos);
  size_t holds = 0;
  for (size_t at = 0; (at = svg.find("fill=\"#", at)) != std::string::npos; ++at) ++holds;
  EXPECT_EQ(holds, 2u);
  EXPECT_NE(svg.find("x=\"190.00\" y=\"64.0\" width=\"373.00\""), std::string::npos) << svg;
}

TEST_F(Simulate, TheExampleWorks) {
  const Outcome outcome = RunBaton({"simulate", EXAMPLE_WORKLOAD});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("web-2 ^"), std::string::npos);
  const Outcome night = RunBaton({"simulate", EXAMPLE_DAY_AND_NIGHT, "--length", "60s", "--json"});
  ASSERT_EQ(night.status, 0) << night.err;
  const auto pods = nlohmann::json::parse(night.out)["pods"];
  for (int replica : {0, 1}) EXPECT_LE(pods[replica]["wait"]["p50_ms"].get<double>(), 1.5);
  // All of the night, and 70 % of the day.
  EXPECT_GE(pods[2]["busy"].get<double>(), 50 + 0.68 * 50);
}

}  // namespace
}  // namespace baton::cli
