// A real daemon that keeps books, with clients, nodes and central ones that say exactly what a test
// wants, and its books as people meet them: over the control socket.
#ifndef BATON_TESTS_BACKEND_KEPT_BOOKS_H_
#define BATON_TESTS_BACKEND_KEPT_BOOKS_H_

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "ledger/ledger.h"
#include "tests/backend/daemon_process.h"
#include "tests/backend/scripted_client.h"
#include "tests/net/client.h"

namespace baton::backend {

using nlohmann::json;

inline const std::string kSource(32, 'a');

class KeptBooks : public testing::Test {
 protected:
  // `ledger`: lines of that table. `more`: whole tables.
  void Configure(const std::string& more = "", const std::string& ledger = "every = \"100ms\"") {
    WriteText(folder_ / "batond.toml",
              "[server]\nsocket_dir = \"" + (folder_ / "run") + "\"\nstate_dir = \"" +
                  (folder_ / "state") + "\"\nlock_dir = \"" + (folder_ / "lock") +
                  "\"\n[scheduler]\ndrain_timeout = \"60s\"\n[http]\nlisten = \"127.0.0.1:0\"\n"
                  "[ledger]\n" +
                  ledger + "\n" + more +
                  "\n[[gpu]]\nuuid = \"GPU-a\"\nmemory = \"1GiB\"\n[[gpu]]\nuuid = \"GPU-b\"\n");
  }
  void Start() { ASSERT_TRUE(daemon_.Start()) << daemon_.Log(); }
  void Restart() {
    EXPECT_EQ(daemon_.Stop(), 0) << daemon_.Log();
    Start();
  }
  std::string Teams(const std::string& text) {
    WriteText(folder_ / "teams.toml", text);
    return "[teams]\nfile = \"" + (folder_ / "teams.toml") + "\"\n";
  }
  void Reload() { daemon_.Signal(SIGHUP); }
  // What others used before this daemon was there; `beside`: the hours on a second GPU.
  void FillLedger(const std::string& team, double hours, double uncontended = 0,
                  double beside = 0) {
    mkdir((folder_ / "state").c_str(), 0700);
    std::string trouble;
    ledger::LedgerOptions options;
    options.database = "sqlite:" + (folder_ / "state/ledger.sqlite");
    auto ledger = ledger::Ledger::Open(options, &trouble);
    ASSERT_TRUE(ledger) << ledger.error().message;
    ledger::Batch batch;
    batch.source = kSource;
    batch.node = "before";
    batch.seq = 1;
    batch.to = ledger::WallNow() - std::chrono::hours(30);
    batch.gpus = {{"GPU-x", "model", 1, Duration(0)}, {"GPU-y", "model", 1, Duration(0)}};
    ASSERT_TRUE((*ledger)->Apply(batch));
    batch.seq = 2;
    batch.to = ledger::WallNow() - std::chrono::minutes(1);
    ledger::Sample sample;
    sample.pod = 1;
    sample.gpu = "GPU-x";
    sample.owner = {"former", "", team, "someone"};
    sample.total.held_ns = static_cast<int64_t>(hours * 3600e9);
    sample.total.grants = 1'000;
    sample.total.uncontended_ns = static_cast<int64_t>(uncontended * 3600e9);
    batch.samples = {sample};
    if (beside > 0) {
      sample.gpu = "GPU-y";
      sample.total.held_ns = static_cast<int64_t>(beside * 3600e9);
      batch.samples.push_back(sample);
    }
    ASSERT_TRUE((*ledger)->Apply(batch));
  }

  json Say(json request) { return Ask(folder_ / "run/control.sock", request); }
  json Make(const std::string& name, json more = json::object()) {
    json request{{"command", "create_pod"}, {"name", name}, {"request", 10}, {"gpus", {"GPU-a"}}};
    request.update(more);
    return Say(request);
  }
  std::string Pod(const std::string& name, json more = json::object()) {
    const json made = Make(name, std::move(more));
    EXPECT_TRUE(made.value("ok", false)) << made.dump();
    return made.value("ticket", "");
  }
  json PodStatus(const std::string& name) {
    const json status = Say({{"command", "status"}});
    for (const json& pod : status.value("pods", json::array())) {
      if (pod.at("name") == name) return pod;
    }
    return json::object();
  }
  int64_t Held(const std::string& pod) { return PodStatus(pod).value("held_ns", int64_t{-1}); }
  double Fluid(const std::string& pod) { return PodStatus(pod).at("gpus")[0].at("fluid"); }
  // Held and given back, so that all of it is charged.
  void Use(const std::string& pod, const std::string& ticket) {
    ScriptedClient client(folder_ / "run/baton.sock", ++incarnations_);
    ASSERT_TRUE(client.Join(ticket, "GPU-a"));
    ASSERT_TRUE(client.AskUntilGranted() && client.Report(wire::Phase::kHolding));
    ASSERT_TRUE(Eventually([&] {
      client.HasGrantNow();
      client.GiveBack();
      return PodStatus(pod).value("phase", "") == "idle";
    }));
  }
  // Of the standing; nothing where it has no such row.
  json StandingOf(const std::string& team) {
    const json standing = Say({{"command", "standing"}});
    for (const json& row : standing.value("rows", json::array())) {
      if (row.at("team") == team && row.at("user").get_ref<const std::string&>().empty())
        return row;
    }
    return json::object();
  }
  json Report(const std::string& by) {
    return Say({{"command", "report"}, {"by", by}, {"last", "1h"}});
  }
  // What the books say that was held; -1 where they do not know of it.
  int64_t Booked(const std::string& by, const std::string& key) {
    const json report = Report(by);
    for (const json& row : report.value("rows", json::array())) {
      if (row.at("key") == key) return std::llround(row.at("held_hours").get<double>() * 3600e9);
    }
    return -1;
  }
  bool IsBooked(const std::string& by, const std::string& key, int64_t held) {
    return Eventually([&] { return Booked(by, key) == held; });
  }
  // Batches have come to the ledger.
  bool KnowsTheGpus() {
    return Eventually([&] { return Report("gpu").value("rows", json::array()).size() == 2; });
  }
  // Whether a line of what happened lately has all of these.
  bool Said(std::initializer_list<const char*> words) {
    const json status = Say({{"command", "status"}});
    for (const json& event : status.value("events", json::array())) {
      const std::string text = event.at("text");
      if (std::all_of(words.begin(), words.end(),
                      [&](const char* w) { return text.find(w) != std::string::npos; })) {
        return true;
      }
    }
    return false;
  }
  // What Prometheus reads there: "name{labels} value" is a line of it.
  bool HasMetric(const std::string& line) {
    const std::string log = daemon_.Log(), before = "http://127.0.0.1:";
    const size_t at = log.rfind(before);
    if (at == std::string::npos) return false;
    const auto port = static_cast<uint16_t>(std::stoi(log.substr(at + before.size(), 5)));
    return net::Get(port, "/metrics").body.find("\n" + line + "\n") != std::string::npos;
  }
  bool IsDegraded() { return !Say({{"command", "status"}}).at("daemon").at("degraded").empty(); }

  const TempFolder folder_;
  uint64_t incarnations_ = 0;
  DaemonProcess daemon_{BATOND, folder_ / "batond.toml", folder_ / "batond.log"};
};

}  // namespace baton::backend

#endif  // BATON_TESTS_BACKEND_KEPT_BOOKS_H_
