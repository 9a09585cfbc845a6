// What would these pods get: the tables, the JSON, the picture, and what is said about wrong files.
#include "tests/cli/simulate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/timeline.h"

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

// Tokens are as long as keeps hand-offs at 1 %: where those take 50 us longer, by about 5 ms.
TEST_F(Simulate, AGpuThatSwitchesSlowlyGetsLongerTokens) {
  const std::string text =
      "[[pod]]\nname = \"a\"\nrequest = 50\nkernel = \"100us\"\n"
      "[[pod]]\nname = \"b\"\nrequest = 50\nkernel = \"100us\"\n[scheduler]\n";
  const double quick = Json(text + "context_switch = \"50us\"\n")["handoffs_per_s"];
  const double slow = Json(text + "context_switch = \"100us\"\n")["handoffs_per_s"];
  EXPECT_GT(1e3 / slow - 1e3 / quick, 4);
  EXPECT_LT(1e3 / slow - 1e3 / quick, 8);
}

TEST_F(Simulate, AShorterQuotaIsHonoured) {
  const std::string text =
      "[[pod]]\nname = \"a\"\nrequest = 50\n[[pod]]\nname = \"b\"\nrequest = 50\n"
      "[scheduler]\ncontext_switch = \"1ms\"\n";
  const double before = Json(text)["handoffs_per_s"];
  const double after = Json(text + "quota_max = \"10ms\"\n")["handoffs_per_s"];
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
  EXPECT_EQ(Complaint(pod + "kernel = \"100000h\"\n"), ":4: kernel must be at most 10000h\n");
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
