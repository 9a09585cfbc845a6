// What batond says over HTTP, about pods that really run: against the document of the API, against
// the devices' own records, in a real Prometheus and on the page.
#include <signal.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "tests/end_to_end/fixture.h"
#include "tests/net/client.h"
#include "tests/net/prometheus.h"
#include "tests/net/schema.h"
#include "wire/control_client.h"

namespace baton::bench {
namespace {

using net::Escaped;
using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kWebPoints = 3.0;  // percentage points

class Web : public EndToEnd {
 protected:
  void StartServing(ClusterOptions options) {
    port_ = net::FreePort();
    options.http = "127.0.0.1:" + std::to_string(port_);
    StartCluster(options);
  }
  net::Answer Get(const std::string& target) { return net::Get(port_, target); }
  // An answer that is what the document says of it.
  json Valid(const std::string& target, const std::string& schema, int status = 200) {
    static const json document = [] {
      std::ostringstream text;
      text << std::ifstream(DOCS "/api/openapi.json").rdbuf();
      return json::parse(text.str());
    }();
    net::Answer answer = Get(target);
    EXPECT_EQ(answer.status, status) << target << ": " << answer.body.substr(0, 500);
    EXPECT_EQ(answer["content-type"], "application/json") << target;
    json value = json::parse(answer.body, nullptr, false);
    EXPECT_FALSE(value.is_discarded()) << target << ": " << answer.body.substr(0, 500);
    for (const std::string& error : net::SchemaErrors(document, schema, value)) {
      ADD_FAILURE() << target << ": " << error;
    }
    return value;
  }
  // Three that always have work, as 60 to 30 to 10.
  void StartThree() {
    for (const auto& [name, request] : {std::pair("a", "60"), {"b", "30"}, {"c", "10"}}) {
      Start(Burn(name, request, "100", {"--spread", "0.2"}));
    }
  }
  uint16_t port() const { return port_; }

 private:
  uint16_t port_ = 0;
};

TEST_F(Web, EveryAnswerIsWhatTheApiSaysWhateverPodsAreCalled) {
  TempFolder folder;
  const std::string teams = folder.Write("teams.toml",
                                         "[[team]]\nname = \"research/vision\"\n"
                                         "[[team]]\nname = \"late\"\n");
  StartServing({.transport = Transport::kUnix,
                .gpus = 2,
                .tables = "[ledger]\nevery = \"200ms\"\n[ledger.prices]\n\"\" = 2.5\n[teams]\n"
                          "file = \"" +
                          teams + "\"\n"});
  // Before there is anything.
  EXPECT_TRUE(Valid("/api/v1/status", "Status").at("pods").empty());
  Valid("/api/v1/report", "Report");
  Valid("/api/v1/advise", "Advice");

  const std::string hostile = "<b onclick=\"x\">'\\ 100% &?#\xc3\xa9 }{=\"";
  PodOptions odd = Burn(hostile, "20", "50");
  odd.run_flags = {"--team", "research/vision", "--memory", "8GiB"};
  Start(odd);
  PodOptions gang = Burn("gang", "30", "100", {"--devices", "0,1", "--collective", "10"});
  gang.run_flags = {"--gpu", device(0, 1).uuid, "--team", "nobody/told/of"};
  Start(gang);
  // Without processes, with names that are no file's.
  const std::vector<std::string> idle = {"..", "../../etc/passwd", "a/b?c=d&e=%00#f", "__proto__",
                                         std::string(128, 'x')};
  for (const std::string& name : idle) {
    Must(wire::Ask(cluster().SocketDir(0),
                   {{"command", "create_pod"}, {"name", name}, {"request", 1}}));
  }
  const auto booked = [&] {
    return Valid("/api/v1/report?by=pod&last=1h", "Report").at("rows").size() >= 2;
  };
  EXPECT_TRUE(WaitUntil(booked, seconds(10)));

  const json status = Valid("/api/v1/status", "Status");
  EXPECT_EQ(status.at("pods").size(), 2 + idle.size());
  EXPECT_EQ(status.at("clients").size(), 2u);
  EXPECT_EQ(status.at("gpus").size(), 2u);
  for (const json& pod : status.at("pods")) {
    EXPECT_EQ(pod.at("gang"), pod.at("name") == "gang") << pod;
    EXPECT_FALSE(pod.contains("ticket")) << pod;
    const json told = Valid("/api/v1/explain?pod=" + Escaped(pod.at("name")), "Explanation");
    EXPECT_FALSE(told.at("sentences").empty()) << pod;
  }
  for (const char* by :
       {"team", "user", "namespace", "pod", "gpu", "node", "day", "total", "month", "model",
        "day,team", "team&time_zone=Europe/Berlin", "pod&team=research"}) {
    const json report = Valid(std::string("/api/v1/report?last=1h&by=") + by, "Report");
    EXPECT_FALSE(report.at("rows").empty()) << by;
    EXPECT_TRUE(report.contains("cost")) << by;
  }
  Valid("/api/v1/report?from=2026-01-01&to=2026-02-01T12:30", "Report");
  Valid("/api/v1/advise?last=1h", "Advice");
  EXPECT_FALSE(Valid("/api/v1/whatif?last=1h", "WhatIf").at("rows").empty());
  EXPECT_NE(Valid("/api/v1/workload?last=1h", "Workload").at("pods").get<std::string>(), "");
  EXPECT_TRUE(Valid("/api/v1/standing?forecast=7d", "Standing").contains("forecast"));
  EXPECT_GE(Valid("/api/v1/log?last=1h", "Log").at("rows").size(), 2 + idle.size());
  EXPECT_FALSE(Valid("/api/v1/receipt?pod=gang&last=1h", "Receipt").at("html").empty());
  const json receipt = Valid("/api/v1/receipt?team=research&by=day", "Receipt").at("receipt");
  EXPECT_EQ(receipt.at("key"), Valid("/api/v1/receipt_key", "ReceiptKey").at("fingerprint"));
  EXPECT_GE(Valid("/api/v1/standing", "Standing").at("rows").size(), 4u);
  Valid("/api/v1/explain?team=research/vision", "Explanation");
  for (int gpu = 0; gpu < 2; ++gpu) {
    const std::string target = "/api/v1/timeline?seconds=60&gpu=" + device(0, gpu).uuid;
    const auto filled = [&] { return Valid(target, "Timeline").at("spans").size() > 10; };
    EXPECT_TRUE(WaitUntil(filled, seconds(10))) << Valid(target, "Timeline");
  }

  const std::vector<std::tuple<std::string, int, std::string>> wrong = {
      {"/api/v1/nothing", 404, "not_found"},
      {"/api/v1/timeline", 404, "not_found"},  // which of the two?
      {"/api/v1/timeline?gpu=GPU-0", 404, "not_found"},
      {"/api/v1/timeline?seconds=0", 400, "invalid"},
      {"/api/v1/timeline?seconds=601", 400, "invalid"},
      {"/api/v1/timeline?seconds=1e2", 400, "invalid"},
      {"/api/v1/timeline?colour=red", 400, "invalid"},
      {"/api/v1/report?by=colour", 400, "invalid"},
      {"/api/v1/report?last=-1h", 400, "invalid"},
      {"/api/v1/report?last=1h&from=2026-01-01", 400, "invalid"},
      {"/api/v1/report?from=2026-02-30", 400, "invalid"},
      {"/api/v1/report?last=" + std::string(600, '9'), 400, "invalid"},
      {"/api/v1/report?command=advise", 400, "invalid"},
      {"/api/v1/standing?by=team", 400, "invalid"},
      {"/api/v1/advise?pod=a", 400, "invalid"},
      {"/api/v1/whatif?shares=a", 400, "invalid"},
      {"/api/v1/whatif?shares=nobody%3D30", 404, "not_found"},
      {"/api/v1/explain", 400, "invalid"},
      {"/api/v1/receipt", 400, "invalid"},
      {"/api/v1/receipt?pod=nobody", 404, "not_found"},
      {"/api/v1/receipt?pod=gang&by=user", 400, "invalid"},
      {"/api/v1/explain?pod=nobody", 404, "not_found"},
      {"/api/v1/explain?pod=gang&team=late", 400, "invalid"},
      {"/api/v1/explain?pod=%ff", 400, "invalid"},
      {"/api/v1/explain?pod=a%00b", 400, "invalid"},
      {"/api/v1/report?by=pod&by=team", 400, "invalid"},
  };
  for (const auto& [target, code, name] : wrong) {
    EXPECT_EQ(Valid(target, "Error", code).value("code", ""), name) << target;
  }

  net::Answer metrics = Get("/metrics");
  EXPECT_EQ(metrics.status, 200);
  const auto count = [&](const std::string& text) {
    size_t n = 0;
    for (size_t at = 0; (at = metrics.body.find(text, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  EXPECT_EQ(count("\nbaton_pod_request_ratio{"), 3 + idle.size());  // the gang's two
  EXPECT_GE(count("\nbaton_team_fair_share_factor{"), 3u);
  SKIP_WITHOUT(PROMTOOL);
  const net::Ran ran = net::Shell(
      folder, std::string(PROMTOOL) + " check metrics <" + folder.Write("metrics", metrics.body));
  EXPECT_EQ(ran.status, 0) << ran.output;
  EXPECT_EQ(ran.output, "");
}

TEST_F(Web, TimelineAndPrometheusAgreeWithTheDevicesRecord) {
  // Through a relay: what is told is the central one's view.
  StartServing({.tables = "[ledger]\ndatabase = \"none\"\n"});
  std::optional<net::Prometheus> prometheus;
  if (std::string(PROMETHEUS).find("NOTFOUND") == std::string::npos) {
    prometheus.emplace(PROMETHEUS, "    static_configs: [{targets: ['127.0.0.1:" +
                                       std::to_string(port()) + "']}]\n");
  }
  StartThree();
  if (prometheus) prometheus->Await("baton_pod_request_ratio{pod=\"c\"}", true);
  const auto window = seconds(3) * Scale();
  const std::string series = "baton_pod_gpu_held_seconds_total[" +
                             std::to_string(std::chrono::seconds(window).count()) + "s]";
  Instant from;
  std::map<std::string, double> device_shares;
  json rates;
  // Prometheus looks five times a second. A window in which the machine kept it from that, or the
  // pods from their GPU, says nothing of batond: then the next one is looked at.
  const int looks = static_cast<int>(5 * std::chrono::seconds(window).count());
  double used = 0, denied_points = 0;
  for (int attempt = 0, looked = 0; attempt < 20 && (looked < looks * 4 / 5 || used < 96);
       ++attempt) {
    const DeniedTime denied;
    from = MonotonicNow();
    device_shares = SharesOver(window, device());
    denied_points = denied.Percent();
    used = 0;
    for (const auto& [pod, share] : device_shares) used += share;
    if (!prometheus) {
      looked = looks;
      continue;
    }
    rates = prometheus->Query("rate(" + series + ")");
    const json counts = prometheus->Query("min(count_over_time(" + series + "))");
    ASSERT_EQ(counts.size(), 1u) << counts;
    looked = std::stoi(counts.at(0).at("value").at(1).get<std::string>());
    Figure("prometheus_looked", looked, "times");
  }
  const Instant to = from + window;
  const Instant before = MonotonicNow();
  const json timeline = Valid("/api/v1/timeline?seconds=60", "Timeline");
  const Instant after = MonotonicNow();

  // The answer's clock, from ours: exact to a millisecond and half of what asking took.
  const double now_ms = timeline.at("now_ms");
  const Instant now = before + (after - before) / 2;
  const auto at = [&](const json& ms) {
    return now + std::chrono::nanoseconds(static_cast<int64_t>((ms.get<double>() - now_ms) * 1e6));
  };
  std::map<std::string, double> held;
  Instant free = from - seconds(3600), earliest = to;
  size_t waits = 0;
  int lasting = 0;
  for (const json& span : timeline.at("spans")) {
    const bool lasts = span.at("to_ms").is_null();
    const Instant begin = at(span.at("from_ms"));
    const Instant end = lasts ? after + milliseconds(1) : at(span.at("to_ms"));
    EXPECT_LE(begin, end) << span;
    EXPECT_LE(end, after + milliseconds(1)) << span;
    EXPECT_GE(end, before - seconds(61)) << span;
    earliest = std::min(earliest, begin);
    if (span.at("kind") == "wait") {
      ++waits;
      continue;
    }
    lasting += lasts;
    // Who holds or drains has it alone, but for what the clock is written to.
    EXPECT_GE(begin, free - std::chrono::microseconds(2)) << span;
    free = end;
    const Duration inside = std::min(end, to) - std::max(begin, from);
    held[span.at("pod")] += std::max(0.0, static_cast<double>(Nanos(inside)));
  }
  EXPECT_LE(lasting, 1);
  EXPECT_LE(earliest, from) << "the timeline does not reach back to the window's start";
  EXPECT_GT(waits, 20u);
  double sum = 0, busy = 0;
  for (const auto& [pod, ns] : held) sum += ns;
  for (const auto& [pod, share] : device_shares) busy += share;
  const double of_window = 100 * sum / static_cast<double>(Nanos(Duration(window)));
  EXPECT_LE(of_window, 100.1);
  // Who holds and is kept from its processor leaves the device idle.
  const double excused = ExcusedPoints(100 - busy, denied_points);
  Figure("denied_by_other_work", denied_points, "points");
  EXPECT_NEAR(of_window, busy, 5 + excused)
      << "of the window held, and busy by the device's record";
  for (const auto& [pod, share] : device_shares) {
    EXPECT_NEAR(100 * held[pod] / sum, 100 * share / busy, kWebPoints) << pod;
    Figure("timeline_off_" + pod, 100 * held[pod] / sum - 100 * share / busy, "points");
  }

  net::Answer metrics = Get("/metrics");
  EXPECT_EQ(metrics.status, 200);
  // Pods of one process that always have work: most of their tokens are sent ahead.
  const auto number = [&](const std::string& name) {
    const size_t row = metrics.body.find("\n" + name + "{");
    if (row == std::string::npos) return -1.0;
    return std::stod(metrics.body.substr(metrics.body.find("} ", row) + 2));
  };
  const double moves = number("baton_gpu_handoffs_total");
  const double ahead = number("baton_gpu_tokens_sent_ahead_total");
  Figure("sent_ahead", 100 * ahead / moves, "% of the hand-offs");
  EXPECT_GE(ahead, 0.5 * moves);
  EXPECT_LE(ahead, moves + 1);
  // By the device's own record it stood still for as long as that, and for what the first launch
  // takes to begin.
  std::map<uint64_t, std::pair<uint64_t, const Pod*>> kernels;  // by start: end, whose
  for (const char* name : {"a", "b", "c"}) {
    const Pod& pod = PodNamed(name);
    for (const auto& record : RecordsOf(pod, device())) {
      kernels[record.start_ns] = {record.end_ns, &pod};
    }
  }
  double stood_still = 0;
  for (auto at = kernels.begin(), next = std::next(at); next != kernels.end(); at = next++) {
    if (at->second.second == next->second.second || next->first < at->second.first) continue;
    stood_still += static_cast<double>(next->first - at->second.first) / 1e9;
  }
  const double handed_over = number("baton_gpu_handoffs_seconds_total");
  Figure("handoffs_of_what_it_stood_still", 100 * handed_over / stood_still, "%");
  EXPECT_GT(handed_over, 0.1 * stood_still);
  EXPECT_LT(handed_over, 1.3 * stood_still);
  if (!prometheus) GTEST_SKIP() << "Prometheus is not installed; scripts/setup fetches it";
  ASSERT_EQ(rates.size(), 3u) << rates;
  double all = 0;
  for (const json& rate : rates) all += std::stod(rate.at("value").at(1).get<std::string>());
  for (const json& rate : rates) {
    const std::string pod = rate.at("metric").at("pod");
    const double share = 100 * std::stod(rate.at("value").at(1).get<std::string>()) / all;
    EXPECT_NEAR(share, 100 * device_shares.at(pod) / busy, kWebPoints) << pod;
    EXPECT_EQ(rate.at("metric").at("device_uuid"), device().uuid);
    Figure("prometheus_off_" + pod, share - 100 * device_shares.at(pod) / busy, "points");
  }
  EXPECT_NEAR(100 * all, busy, 5 + excused) << "of a second held, and busy by the device's record";
  // A pod that ends takes its series along; Prometheus would go on with them for five minutes.
  StopPods();
  prometheus->Await("{pod=\"a\"}", false);
  prometheus->Await("baton_gpu_memory_bytes", true);
  EXPECT_EQ(Get("/metrics").body.find("pod=\""), std::string::npos);
}

TEST_F(Web, AHoldFromBeforeARestartBeganWhenItDid) {
  StartServing({.transport = Transport::kUnix, .tables = "[ledger]\ndatabase = \"none\"\n"});
  const Instant began = MonotonicNow();
  Start(Burn("a", "50", "100"));
  Start(Burn("b", "50", "100"));
  cluster().batond().Signal(SIGKILL);
  ASSERT_TRUE(cluster().batond().Wait(seconds(5)));
  Must(cluster().StartBatond());
  PassTime(milliseconds(500));
  const json timeline = Valid("/api/v1/timeline?seconds=600", "Timeline");
  const double lasted_ms = static_cast<double>(Nanos(MonotonicNow() - began)) / 1e6;
  EXPECT_GT(timeline.at("spans").size(), 5u);
  for (const json& span : timeline.at("spans")) {
    EXPECT_GE(span.at("from_ms").get<double>(),
              timeline.at("now_ms").get<double>() - lasted_ms - 1000)
        << span;
  }
}

TEST_F(Web, SharesConvergeOnThePage) {
  if (std::string(NODE).find("NOTFOUND") != std::string::npos) {
    GTEST_SKIP() << "Node.js is not installed; scripts/setup does that";
  }
  StartServing({.transport = Transport::kUnix, .tables = "[ledger]\nevery = \"200ms\"\n"});
  StartThree();
  TempFolder folder;
  const DeniedTime denied;
  const net::Ran ran =
      net::Shell(folder, "BATON_URL=http://127.0.0.1:" + std::to_string(port()) +
                             "/ BATON_WEB_DIST=" WEB_DIST " timeout 60 " NODE " " WEB_TESTS
                             "/run.mjs browser --test-name-pattern 'real batond'");
  if (ran.status == 77) GTEST_SKIP() << ran.output;
  EXPECT_EQ(ran.status, 0) << ran.output << "\nother work on this machine denied this test "
                           << denied.Percent() << " % of its time";
  // It did look.
  EXPECT_NE(ran.output.find("# pass 2"), std::string::npos) << ran.output;
}

}  // namespace
}  // namespace baton::bench
