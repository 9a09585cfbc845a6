// What Prometheus' own programs think of the metrics, the alerts and the dashboard, and a real
// Prometheus that scrapes a real server. Skipped where they are not installed.
#include "tests/net/prometheus.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "net/server.h"
#include "tests/net/awkward.h"
#include "tests/net/certificate.h"

namespace baton::net {
namespace {

TEST(Promtool, AcceptsTheMetrics) {
  SKIP_WITHOUT(PROMTOOL);
  TempFolder folder;
  const std::string metrics = folder.Write("metrics", MetricsText(Awkward()));
  const Ran ran = Shell(folder, std::string(PROMTOOL) + " check metrics <" + metrics);
  EXPECT_EQ(ran.status, 0) << ran.output;
  EXPECT_EQ(ran.output, "");
  // It does find what is wrong.
  const std::string wrong = folder.Write("wrong", "baton_gpu{a=\"\xff\"} 1\n");
  EXPECT_NE(Shell(folder, std::string(PROMTOOL) + " check metrics <" + wrong).status, 0);
}

// What the file says of its rules holds.
void ExpectRulesPass(const char* file) {
  const TempFolder folder;
  const Ran tested = Shell(folder, std::string(PROMTOOL) + " test rules " + file);
  EXPECT_EQ(tested.status, 0) << tested.output;
  EXPECT_NE(tested.output.find("SUCCESS"), std::string::npos) << tested.output;
}

TEST(Promtool, AcceptsTheAlertsAndTheyFireWhenTheyShould) {
  SKIP_WITHOUT(PROMTOOL);
  TempFolder folder;
  const Ran checked =
      Shell(folder, std::string(PROMTOOL) + " check rules " DOCS "/monitoring/alerts.yaml");
  EXPECT_EQ(checked.status, 0) << checked.output;
  ExpectRulesPass(ALERTS_TEST);
}

TEST(Promtool, WhatQueuesHeldIsWhatKaiSchedulerAsksFor) {
  SKIP_WITHOUT(PROMTOOL);
  ExpectRulesPass(KAI_TEST);
}

TEST(Promtool, WhatPodsHaveIsWhatOpenCostAsksFor) {
  SKIP_WITHOUT(PROMTOOL);
  ExpectRulesPass(OPENCOST_TEST);
}

TEST(Promtool, AcceptsEveryQueryOfTheDashboard) {
  SKIP_WITHOUT(PROMTOOL);
  TempFolder folder;
  std::ostringstream text;
  text << std::ifstream(DOCS "/monitoring/baton.json").rdbuf();
  // As rules, which are checked: JSON is YAML.
  nlohmann::json rules = nlohmann::json::array();
  const auto dashboard = nlohmann::json::parse(text.str());
  for (const auto& panel : dashboard["panels"]) {
    if (!panel.contains("targets")) continue;
    for (const auto& target : panel["targets"]) {
      auto query = target["expr"].get<std::string>();
      for (size_t at; (at = query.find("$__rate_interval")) != std::string::npos;) {
        query.replace(at, 16, "1m");
      }
      rules.push_back({{"record", "x:" + std::to_string(rules.size())}, {"expr", query}});
    }
  }
  EXPECT_GT(rules.size(), 15u);
  const nlohmann::json file = {{"groups", {{{"name", "dashboard"}, {"rules", rules}}}}};
  const Ran ran = Shell(folder, std::string(PROMTOOL) + " check rules " +
                                    folder.Write("dashboard.yaml", file.dump()));
  EXPECT_EQ(ran.status, 0) << ran.output;
}

TEST(Prometheus, ScrapesARealServer) {
  SKIP_WITHOUT(PROMETHEUS);
  constexpr const char* kSecret = "a-token-for-prometheus";
  TempFolder folder;
  HttpOptions options;
  options.listen = "127.0.0.1:0";
  options.token_file = folder.Write("token", kSecret);
  options.certificate_file = TestCertificate().certificate;
  options.key_file = TestCertificate().key;
  boost::asio::io_context io;
  MetricsSnapshot snapshot = Awkward();  // the loop's
  HttpServer server(io, options);
  server.Route("/metrics", [&](const HttpRequest&, const HttpServer::Respond& respond) {
    HttpResponse response;
    response.content_type = kMetricsContentType;
    response.produce = [snapshot] { return MetricsText(snapshot); };
    respond(std::move(response));
  });
  const auto started = server.Start();
  ASSERT_TRUE(started) << started.error().message;
  std::thread loop([&] {
    const auto work = boost::asio::make_work_guard(io);
    io.run();
  });

  // As docs/metrics.md has it.
  const Prometheus prometheus(PROMETHEUS,
                              "    scheme: https\n"
                              "    authorization: {credentials_file: " +
                                  options.token_file +
                                  "}\n"
                                  "    tls_config: {ca_file: " +
                                  options.certificate_file +
                                  "}\n"
                                  "    static_configs: [{targets: ['127.0.0.1:" +
                                  std::to_string(server.port()) + "']}]\n");
  prometheus.Await("up{job=\"baton\"}==1", true);
  const auto pods = prometheus.Await("baton_pod_request_ratio{namespace=\"default\"}", true);
  if (pods.is_array()) {
    // As it was, but for the two bytes that are no text.
    EXPECT_EQ(pods[0]["metric"]["pod"],
              "line\nfeed \"quoted\" \\ {label=\"x\"} \xef\xbf\xbd\xef\xbf\xbd \xf0\x9f\x90\x8d");
    EXPECT_EQ(pods[0]["metric"]["team"], "research/vision");
    EXPECT_EQ(pods[0]["value"][1], "0.25");
  }
  prometheus.Await("histogram_quantile(0.5,baton_pod_wait_seconds_bucket{namespace=\"default\"})",
                   true);
  // A pod that is gone is gone at the next scrape, not five minutes later.
  boost::asio::post(io, [&] { snapshot.pods.clear(); });
  prometheus.Await("baton_pod_request_ratio", false);
  prometheus.Await("baton_gpu_memory_bytes", true);

  io.stop();
  loop.join();
  server.Stop();
}

}  // namespace
}  // namespace baton::net
