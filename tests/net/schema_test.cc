// The document of the API: that it is sound, and that what holds an answer against it sees
// mistakes.
#include "tests/net/schema.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "net/message.h"
#include "net/metrics.h"

namespace baton::net {
namespace {

using nlohmann::json;

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

const json& Document() {
  static const json document = json::parse(TextOf(DOCS "/api/openapi.json"));
  return document;
}

json Status() {
  return json::parse(R"({
    "daemon": {"version": "0.1.0", "mode": "enforce", "pid": 7, "started": "2026-11-21T10:00:00Z",
               "degraded": []},
    "gpus": [{"uuid": "GPU-1", "name": "H200", "node": "", "memory": 150000000000,
              "memory_overhead": 314572800, "memory_reserve": 1073741824,
              "present": true, "epoch": 5, "queue": ["b"], "handoff_ns": 90000,
              "handoff_total_ns": 600000, "grants": 5,
              "overruns": 0, "hung": false, "link": "up", "holder": "a", "cordoned": false,
              "unmanaged": [{"pid": 4711, "user": "bob", "uid": 1000, "command": "python",
                             "container": "", "pod": "", "memory": 1073741824}],
              "health": "failed", "why": "XID 79", "vendor": "nvidia", "numa": 0, "island": -1,
              "pcie": 1, "bus": "0000:17:00.0", "mig_capable": true, "mig_enabled": false}],
    "pods": [{"name": "a", "id": 1, "request": 60.0, "limit": 100, "memory": 0, "memory_percent": 0, "mode": "time-slice", "priority": "low",
              "team": "", "user": "", "namespace": "", "uid": -1, "cgroup": "", "gang": false,
              "gang_name": "", "gang_missing": 0,
              "phase": "holding", "held_ns": 1, "busy_ns": 1, "waited_ns": 0, "unmanaged_ns": 0,
              "launches": 3, "copies_bytes": 0, "grants": 1, "revocations": 0, "memory_used": 0,
              "lag_ns": -5, "achieved_1s": 60.1, "achieved_10s": 60, "achieved_60s": 60,
              "gpus": [{"uuid": "GPU-1", "node": "", "phase": "holding", "fluid": 60.0,
                        "throttled": false, "lag_ns": -5, "achieved_1s": 60.1, "achieved_10s": 60,
                        "achieved_60s": 60, "waited_1s": 0.0, "memory_used": 0, "held_ns": 1,
                        "busy_ns": 1, "waited_ns": 0, "unmanaged_ns": 0, "launches": 3,
                        "copies_bytes": 0, "grants": 1, "revocations": 0}],
              "clients": [{"pid": 9, "command": "python", "uid": 0, "connected": true,
                           "phase": "holding"}]}],
    "clients": [{"id": 1, "pid": 9, "node": "", "pod": "a", "command": "python",
                 "connected": true, "phase": "holding"}],
    "nodes": [{"name": "n", "link": "cut", "clients": 0, "silent_ms": 5000}],
    "events": [{"time_ms": 1800000000000, "kind": "pod", "text": "a was made"}]})");
}

std::string First(const std::string& name, const json& value) {
  const auto errors = SchemaErrors(Document(), name, value);
  return errors.empty() ? "" : errors.front();
}

TEST(Schema, AcceptsWhatIsAsItSays) {
  EXPECT_EQ(First("Status", Status()), "");
  json nobody = Status();
  nobody["gpus"][0].erase("holder");
  EXPECT_EQ(First("Status", nobody), "");
  json late = Status();
  late["pods"][0].update({{"latency_ns", 20'000'000},
                          {"latency_waits", 40},
                          {"latency_late", 2},
                          {"latency_ahead", 1},
                          {"latency_note", "b's kernels are long"}});
  EXPECT_EQ(First("Status", late), "");
  late["pods"][0]["latency_late"] = -1;
  EXPECT_NE(First("Status", late), "");
  EXPECT_EQ(First("Timeline", json::parse(R"({"gpu": "G", "now_ms": 5, "spans": [
      {"pod": "a", "kind": "hold", "from_ms": 1.5, "to_ms": null},
      {"pod": "b", "kind": "wait", "from_ms": 1, "to_ms": 2}]})")),
            "");
  EXPECT_EQ(First("Error", json::parse(ErrorResponse({ErrorCode::kInvalid, "a\xff"}).body)), "");
}

TEST(Schema, SeesMistakes) {
  const auto changed = [](const std::string& at, const json& value) {
    json status = Status();
    status[json::json_pointer(at)] = value;
    return First("Status", status);
  };
  EXPECT_EQ(changed("/pods/0/name", 5), "/pods/0/name: is not of type \"string\": 5");
  EXPECT_EQ(changed("/pods/0/launches", 1.5), "/pods/0/launches: is not of type \"integer\": 1.5");
  EXPECT_EQ(changed("/pods/0/request", 101), "/pods/0/request: 101 is above 100");
  EXPECT_EQ(changed("/pods/0/held_ns", -1), "/pods/0/held_ns: -1 is below 0");
  EXPECT_EQ(changed("/pods/0/gpus/0/throttled", "no"),
            "/pods/0/gpus/0/throttled: is not of type \"boolean\": \"no\"");
  EXPECT_EQ(changed("/gpus/0/link", "down"), "/gpus/0/link: \"down\" is none of [\"up\",\"cut\"]");
  EXPECT_EQ(changed("/gpus/0/holder", nullptr), "/gpus/0/holder: is not of type \"string\": null");
  EXPECT_EQ(changed("/gpus/0/colour", "red"), "/gpus/0: has a field colour that nobody told of");
  EXPECT_EQ(changed("/clients", json::object()), "/clients: is not of type \"array\": {}");
  json without = Status();
  without["daemon"].erase("pid");
  EXPECT_EQ(First("Status", without), "/daemon: has no pid");
  EXPECT_EQ(First("Status", 5), "/: is not of type \"object\": 5");
  EXPECT_EQ(First("Nothing", 5),
            "/: the schema refers to #/components/schemas/Nothing, which is not there");
  const json odd = {{"components", {{"schemas", {{"X", {{"pattern", "^a"}}}}}}}};
  EXPECT_EQ(SchemaErrors(odd, "X", "b").front(),
            "/: the schema says pattern, which is not checked here");
}

// Each field of a status, taken away, and given another type: no mistake passes.
TEST(Schema, KnowsEveryFieldOfAStatus) {
  size_t fields = 0;
  const json flat = Status().flatten();
  for (const auto& [pointer, value] : flat.items()) {
    const json::json_pointer at(pointer);
    if (value.is_null() || value.is_array()) continue;
    ++fields;
    json status = Status();
    status[at] = value.is_string() ? json(1) : json("text");
    EXPECT_NE(First("Status", status), "") << pointer;
    const std::set<std::string> optional = {"holder",
                                            "health",
                                            "why",
                                            "vendor",
                                            "numa",
                                            "island",
                                            "pcie",
                                            "bus",
                                            "mig_capable",
                                            "mig_enabled",
                                            "memory_overhead",
                                            "memory_reserve",
                                            "handoff_total_ns"};
    if (std::isdigit(static_cast<unsigned char>(at.back()[0])) || optional.contains(at.back())) {
      continue;
    }
    status = Status();
    status[at.parent_pointer()].erase(at.back());
    EXPECT_NE(First("Status", status), "") << pointer;
  }
  EXPECT_GT(fields, 70u);
}

TEST(OpenApi, EveryReferenceIsThereAndEverySchemaIsUsed) {
  EXPECT_EQ(Document()["openapi"], "3.0.3");
  std::set<std::string> used = {"#/components/schemas/Status"};
  const auto flat = Document().flatten();
  for (const auto& [at, value] : flat.items()) {
    if (at.size() < 5 || at.substr(at.size() - 5) != "/$ref") continue;
    const auto ref = value.get<std::string>();
    EXPECT_TRUE(Document().contains(json::json_pointer(ref.substr(1)))) << at << " " << ref;
    used.insert(ref);
  }
  for (const auto& [name, schema] : Document()["components"]["schemas"].items()) {
    EXPECT_EQ(used.count("#/components/schemas/" + name), 1u) << name;
    const json required = schema.value("required", json::array());
    for (const auto& field : required) {
      EXPECT_TRUE(schema["properties"].contains(field.get<std::string>())) << name << " " << field;
    }
  }
  for (const auto& [path, operations] : Document()["paths"].items()) {
    EXPECT_EQ(operations.size(), 1u) << path;
    EXPECT_TRUE(operations["get"]["responses"].contains("200")) << path;
    // What is in braces is told.
    EXPECT_EQ(path.find('{') != std::string::npos,
              operations["get"].value("parameters", json::array()).dump().find("\"path\"") !=
                  std::string::npos)
        << path;
  }
}

// Names that are told of exist, and those that exist are told of.
TEST(Monitoring, DocumentsDashboardAndAlertsKnowTheMetrics) {
  MetricsSnapshot snapshot;
  snapshot.ledger_up = snapshot.upstream_up = true;
  snapshot.certificate_expires = 1;
  snapshot.gpus.emplace_back();
  snapshot.gpus[0].sm_utilization_ratio = snapshot.gpus[0].memory_utilization_ratio = 0.5;
  snapshot.gpus[0].energy_joules = snapshot.gpus[0].idle_energy_joules = 1;
  snapshot.pods.emplace_back();
  snapshot.pods[0].memory_cap_bytes = 1;
  snapshot.pods[0].energy_joules = 1;
  snapshot.pods[0].latency = {.waits = 40, .late = 2};
  snapshot.pods[0].sm_busy_seconds = snapshot.pods[0].memory_busy_seconds = 1;
  snapshot.teams.push_back({"t", 0.5, 0.5, 0.5, 0.5});
  std::set<std::string> exist;
  const std::string text = MetricsText(snapshot);
  for (size_t at = 0; (at = text.find("# TYPE ", at)) != std::string::npos;) {
    at += 7;
    exist.insert(text.substr(at, text.find(' ', at) - at));
  }
  EXPECT_GT(exist.size(), 35u);
  // Those of Kubernetes, by their sources.
  const auto add_those_of = [&](const char* file, const std::string& prefix, const char* pattern) {
    const std::string source = TextOf(DOCS "/../k8s/" + std::string(file));
    const std::regex of_metric(pattern);
    for (std::sregex_iterator at(source.begin(), source.end(), of_metric), end; at != end; ++at) {
      exist.insert(prefix + (*at)[1].str());
    }
  };
  constexpr const char* kAdd = R"--(add\("(\w+)",\s*"(gauge|counter)")--";
  add_those_of("binder/binder.cc", "baton_binder_", kAdd);
  add_those_of("binder/gpu_metrics.cc", "baton_binder_", R"--(Header\("(\w+)")--");
  add_those_of("binder/gpu_metrics.cc", "baton_binder_", R"--(\{"(gpu_\w+)",)--");
  add_those_of("webhook/webhook.cc", "", R"--(# TYPE (baton_\w+) )--");
  add_those_of("device_plugin/node_agent.cc", "baton_agent_", kAdd);
  EXPECT_GT(exist.size(), 35u + 35u);
  const auto told = [&](const std::string& path) {
    std::set<std::string> names;
    const std::string all = TextOf(path);
    for (size_t at = 0; (at = all.find("baton_", at)) != std::string::npos;) {
      const size_t end = all.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", at);
      std::string one = all.substr(at, end - at);
      at = end;
      for (const std::string suffix : {"_bucket", "_sum", "_count"}) {
        if (one.ends_with(suffix)) one.resize(one.size() - suffix.size());
      }
      EXPECT_EQ(exist.count(one), 1u) << path << " tells of " << one;
      names.insert(one);
    }
    return names;
  };
  EXPECT_GT(told(DOCS "/monitoring/baton.json").size(), 15u);
  EXPECT_GT(told(DOCS "/monitoring/alerts.yaml").size(), 8u);
  std::set<std::string> documented = told(DOCS "/metrics.md");
  documented.insert("process_start_time_seconds");
  EXPECT_EQ(documented, exist);
}

TEST(Monitoring, TheRunbookHasASectionForEachAlert) {
  const std::string alerts = TextOf(DOCS "/monitoring/alerts.yaml");
  const std::string runbook = TextOf(DOCS "/runbook.md");
  std::istringstream lines(alerts);
  std::string line, name;
  std::set<std::string> all, linked;
  while (std::getline(lines, line)) {
    const auto after = [&](const std::string& word) {
      const size_t at = line.find(word);
      return at == std::string::npos ? "" : line.substr(at + word.size());
    };
    if (std::string alert = after("- alert: "); !alert.empty()) all.insert(name = alert);
    if (const std::string anchor = after("docs/runbook#"); !anchor.empty()) {
      std::string expected = name;
      for (char& c : expected) c = static_cast<char>(std::tolower(c));
      EXPECT_EQ(anchor, expected);
      linked.insert(name);
    }
  }
  EXPECT_GE(all.size(), 13u);
  EXPECT_EQ(all, linked);
  std::set<std::string> sections;
  for (size_t at = 0; (at = runbook.find("\n## ", at)) != std::string::npos;) {
    at += 4;
    sections.insert(runbook.substr(at, runbook.find('\n', at) - at));
  }
  EXPECT_EQ(sections, all);
}

TEST(Monitoring, TheDashboardIsSound) {
  const json dashboard = json::parse(TextOf(DOCS "/monitoring/baton.json"));
  EXPECT_EQ(dashboard["uid"], "baton");
  std::set<int> ids;
  for (const json& panel : dashboard["panels"]) {
    EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second);
    const json& place = panel["gridPos"];
    EXPECT_LE(place["x"].get<int>() + place["w"].get<int>(), 24);
    if (panel["type"] == "row") continue;
    EXPECT_FALSE(panel["description"].get<std::string>().empty());
    EXPECT_FALSE(panel["targets"].empty());
  }
}

}  // namespace
}  // namespace baton::net
