// What Prometheus is told.
#include "net/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "base/utf8.h"
#include "tests/net/awkward.h"

namespace baton::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string Lines(const std::string& text, const std::string& with) {
  std::istringstream in(text);
  std::string lines, line;
  while (std::getline(in, line)) {
    if (line.find(with) != std::string::npos) lines += line + "\n";
  }
  return lines;
}

TEST(Histogram, CountsWhatIsAsLongAsABoundOrShorter) {
  Histogram h;
  for (const Duration d : {Duration(-5), Duration(0), Duration(1), Duration(milliseconds(1))}) {
    h.Observe(d);
  }
  EXPECT_EQ(h.counts()[0], 4u);
  h.Observe(milliseconds(1) + Duration(1));
  h.Observe(milliseconds(2));
  EXPECT_EQ(h.counts()[1], 2u);
  for (size_t i = 0; i < Histogram::kBounds; ++i) {
    Histogram one;
    one.Observe(Histogram::Bound(i));
    EXPECT_EQ(one.counts()[i], 1u) << i;
    one.Observe(Histogram::Bound(i) + Duration(1));
    EXPECT_EQ(one.counts()[i + 1], 1u) << i;
  }
  h.Observe(Duration::max() / 4);
  EXPECT_EQ(h.counts().back(), 1u);
  EXPECT_EQ(Histogram::Bound(Histogram::kBounds - 1), milliseconds(8192));
}

TEST(Utf8, IsWhatTheStandardSays) {
  for (const char* good : {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x90\x8d", "\xed\x9f\xbf",
                           "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
    EXPECT_EQ(ToUtf8(good), good);
  }
  for (const char* bad :
       {"\x80", "\xc0\xaf", "\xc1\xbf", "\xc3", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xe2\x82"}) {
    EXPECT_FALSE(IsUtf8(bad)) << testing::PrintToString(bad);
    EXPECT_TRUE(IsUtf8(ToUtf8(bad)));
  }
  EXPECT_EQ(ToUtf8("a\xff"
                   "b"),
            "a\xef\xbf\xbd"
            "b");
}

// Nothing else is known of them by the same names as of those that take turns.
TEST(Metrics, OfPodsWithoutTokensAreWhatNvmlTells) {
  MetricsSnapshot snapshot;
  snapshot.pods.emplace_back().pod = "turns";
  snapshot.pods[0].sm_busy_seconds = 3;
  snapshot.parts.emplace_back().pod = "mig";
  snapshot.parts[0].sm_busy_seconds = 1.5;
  snapshot.parts[0].memory_busy_seconds = 0.25;
  snapshot.parts.emplace_back().pod = "untold";
  const std::string text = MetricsText(snapshot);
  const std::string sm = Lines(text, "baton_pod_sm_busy_seconds_total{");
  EXPECT_NE(sm.find("pod=\"turns\""), std::string::npos) << sm;
  EXPECT_NE(sm.find("pod=\"mig\",namespace=\"\",team=\"\"} 1.5\n"), std::string::npos) << sm;
  EXPECT_NE(Lines(text, "baton_pod_memory_busy_seconds_total{").find("} 0.25\n"),
            std::string::npos);
  EXPECT_EQ(text.find("untold"), std::string::npos);
  EXPECT_EQ(Lines(text, "baton_pod_gpu_held_seconds_total{").find("mig"), std::string::npos);
}

TEST(Metrics, OfLatenciesAreThereForPodsThatHaveOne) {
  MetricsSnapshot snapshot;
  snapshot.pods.emplace_back().pod = "serve";
  snapshot.pods[0].latency = {.waits = 1'000, .late = 8};
  snapshot.pods.emplace_back().pod = "train";
  const std::string text = MetricsText(snapshot);
  const std::string waits = Lines(text, "baton_pod_latency_waits_total{");
  EXPECT_NE(waits.find("} 1000\n"), std::string::npos) << waits;
  EXPECT_EQ(waits.find("train"), std::string::npos) << waits;
  EXPECT_NE(Lines(text, "baton_pod_latency_late_total{").find("} 8\n"), std::string::npos);
}

TEST(Metrics, HaveTheValuesOfTheSnapshot) {
  const std::string text = MetricsText(Awkward());
  EXPECT_EQ(Lines(text, "baton_gpu_allocated_ratio"),
            "# HELP baton_gpu_allocated_ratio Sum of the requests of the pods on a GPU; 1 is the "
            "whole GPU.\n"
            "# TYPE baton_gpu_allocated_ratio gauge\n"
            "baton_gpu_allocated_ratio{device_uuid=\"GPU-5cb1\",model=\"NVIDIA \\\"H200\\\"\","
            "node=\"node\\\\1\"} 0.75\n"
            "baton_gpu_allocated_ratio{device_uuid=\"GPU-0000\",model=\"\",node=\"\"} 0\n");
  EXPECT_EQ(Lines(text, "baton_gpu_held_seconds_total{device_uuid=\"GPU-5cb1\""),
            "baton_gpu_held_seconds_total{device_uuid=\"GPU-5cb1\",model=\"NVIDIA \\\"H200\\\"\","
            "node=\"node\\\\1\"} 1.5\n");
  EXPECT_NE(Lines(text, "baton_gpu_memory_bytes{device_uuid=\"GPU-5cb1\"").find("} 137438953472\n"),
            std::string::npos);
  // Nobody said what NVML has not; nothing is capped that has no cap.
  EXPECT_EQ(Lines(text, "baton_gpu_sm_utilization_ratio{").find("GPU-0000"), std::string::npos);
  EXPECT_EQ(Lines(text, "baton_gpu_memory_utilization_ratio"), "");
  EXPECT_EQ(Lines(text, "baton_pod_memory_cap_bytes{").find("xxx"), std::string::npos);
  EXPECT_NE(Lines(text, "baton_pod_memory_cap_bytes{").find("} 1048576\n"), std::string::npos);
  EXPECT_NE(Lines(text, "baton_gpu_hung{device_uuid=\"GPU-0000\"").find("} 1\n"),
            std::string::npos);
  EXPECT_NE(Lines(text, "baton_gpu_link_up{device_uuid=\"GPU-0000\"").find("} 0\n"),
            std::string::npos);
  EXPECT_NE(Lines(text, "baton_pod_lag_seconds{").find("} -0.02\n"), std::string::npos);
  const std::string waits = Lines(text, "baton_pod_wait_seconds");
  EXPECT_NE(waits.find("le=\"0.002\"} 0\n"), std::string::npos);
  EXPECT_NE(waits.find("le=\"0.004\"} 1\n"), std::string::npos);
  EXPECT_NE(waits.find("le=\"8.192\"} 1\n"), std::string::npos);
  EXPECT_NE(waits.find("le=\"+Inf\"} 1\n"), std::string::npos);
  const std::string holds = Lines(text, "baton_pod_hold_seconds");
  EXPECT_NE(holds.find("le=\"8.192\"} 0\n"), std::string::npos);
  EXPECT_NE(holds.find("le=\"+Inf\"} 1\n"), std::string::npos);
  EXPECT_EQ(Lines(text, "baton_build_info{"), "baton_build_info{version=\"1.2.3\"} 1\n");
  EXPECT_NE(Lines(text, "baton_gpu_failed{device_uuid=\"GPU-0000\"").find("} 1\n"),
            std::string::npos);
  EXPECT_NE(Lines(text, "baton_gpu_failed{device_uuid=\"GPU-5cb1\"").find("} 0\n"),
            std::string::npos);
  EXPECT_NE(text.find("\nbaton_upstream_up 0\n"), std::string::npos);
  EXPECT_NE(text.find("\nbaton_certificate_expiry_timestamp_seconds 1900000000\n"),
            std::string::npos);
  EXPECT_EQ(Lines(text, "baton_ledger_up "),
            "# HELP baton_ledger_up 1 if the ledger takes entries, else 0.\n"
            "# TYPE baton_ledger_up gauge\nbaton_ledger_up 1\n");
  EXPECT_NE(text.find("\nprocess_start_time_seconds 1800000000\n"), std::string::npos);
}

TEST(Metrics, LabelsAreEscapedUtf8OfBoundedLength) {
  const std::string text = MetricsText(Awkward());
  EXPECT_TRUE(IsUtf8(text));
  const std::string lines = Lines(text, "baton_pod_request_ratio{");
  EXPECT_NE(lines.find("pod=\"line\\nfeed \\\"quoted\\\" \\\\ {label=\\\"x\\\"} "
                       "\xef\xbf\xbd\xef\xbf\xbd \xf0\x9f\x90\x8d\",namespace=\"default\","
                       "team=\"research/vision\"} 0.25\n"),
            std::string::npos)
      << lines;
  EXPECT_NE(lines.find("pod=\"" + std::string(256, 'x') + "\""), std::string::npos) << lines;
}

// As kube-state-metrics has them, so that metrics join.
TEST(Metrics, PodsOfKubernetesHaveItsLabels) {
  struct Case {
    const char* pod;
    const char* name_space;
    const char* labels;
  };
  for (const Case& one : {Case{"vision/s1", "vision", "pod=\"s1\",namespace=\"vision\",team=\"\"}"},
                          {"vision/s1/main", "vision",
                           "pod=\"s1\",namespace=\"vision\",team=\"\",container=\"main\"}"},
                          {"s1", "", "pod=\"s1\",namespace=\"\",team=\"\"}"},
                          {"a/b", "", "pod=\"a/b\",namespace=\"\",team=\"\"}"},
                          {"train", "vision", "pod=\"train\",namespace=\"vision\",team=\"\"}"}}) {
    MetricsSnapshot snapshot = Awkward();
    snapshot.pods.resize(1);
    snapshot.pods[0].pod = one.pod;
    snapshot.pods[0].name_space = one.name_space;
    snapshot.pods[0].team.clear();
    const std::string lines = Lines(MetricsText(snapshot), "baton_pod_request_ratio{");
    EXPECT_NE(lines.find(one.labels), std::string::npos) << lines;
  }
}

TEST(Metrics, APodsSeriesEndWithIt) {
  MetricsSnapshot snapshot = Awkward();
  EXPECT_NE(MetricsText(snapshot).find("xxxx"), std::string::npos);
  snapshot.pods.pop_back();
  EXPECT_EQ(MetricsText(snapshot).find("xxxx"), std::string::npos);
  snapshot.pods.clear();
  EXPECT_EQ(MetricsText(snapshot).find("baton_pod_"), std::string::npos) << "headers of nothing";
}

TEST(Metrics, AreBoundedAndSayWhatIsLeftOut) {
  MetricsSnapshot snapshot = Awkward();
  snapshot.pods.push_back(snapshot.pods.front());  // the same labels twice would damage a scrape
  PodMetrics more;
  for (int i = 0; i < 10; ++i) {
    more.pod = "pod-" + std::to_string(i);
    snapshot.pods.push_back(more);
  }
  const std::string all = MetricsText(snapshot);
  EXPECT_NE(all.find("\nbaton_metrics_dropped_series 1\n"), std::string::npos);
  MetricsOptions options;
  options.pods_max = 4;
  options.teams_max = 1;
  const std::string some = MetricsText(snapshot, options);
  EXPECT_NE(some.find("\nbaton_metrics_dropped_series 10\n"), std::string::npos);
  EXPECT_NE(some.find("\"pod-1\""), std::string::npos);
  EXPECT_EQ(some.find("\"pod-2\""), std::string::npos);
  EXPECT_EQ(Lines(some, "baton_team_fair_share_factor{"),
            "baton_team_fair_share_factor{team=\"research/vision\"} 0.5\n");
}

TEST(Metrics, OfAThousandPodsAreFiftyLinesEach) {
  MetricsSnapshot snapshot;
  for (int i = 0; i < 1000; ++i) {
    PodMetrics pod;
    pod.gpu = "GPU-5cb1aa02-7d3c-2f60-8f33-0c31b2a8b00" + std::to_string(i % 8);
    pod.pod = "training-job-" + std::to_string(i);
    pod.name_space = "research";
    pod.team = "research/vision";
    pod.memory_cap_bytes = uint64_t{8} << 30;
    pod.held = milliseconds(i * 7919);
    for (int n = 0; n < 100; ++n) pod.waits.Observe(Duration(i * n * 1237));
    snapshot.pods.push_back(pod);
  }
  const Instant begun = MonotonicNow();
  const std::string text = MetricsText(snapshot);
  std::printf("1000 pods: %.1f ms, %zu KiB\n",
              static_cast<double>(Nanos(MonotonicNow() - begun)) / 1e6, text.size() >> 10);
  const auto lines = std::count(text.begin(), text.end(), '\n');
  EXPECT_GT(lines, 45'000);
  EXPECT_LT(lines, 50'000);
}

}  // namespace
}  // namespace baton::net
