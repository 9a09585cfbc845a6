// The node's agent between an API server, in this process, and a batond, which is a real one.
#include "k8s/device_plugin/node_agent.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/time.h"
#include "k8s/types/gpu_node.h"
#include "ledger/ledger.h"
#include "tests/backend/daemon_process.h"
#include "tests/backend/scripted_client.h"
#include "tests/k8s/device_plugin/agent_of_tests.h"
#include "tests/k8s/device_plugin/node_daemons.h"
#include "tests/k8s/device_plugin/node_pods_of_tests.h"
#include "tests/k8s/stand_in/api_server.h"

namespace baton::k8s {
namespace {

using backend::DaemonProcess;

using Agent = AgentOfTests;

TEST_F(Agent, PodsGetUpdateAndLoseTheirShares) {
  const Json pod = api_.Put(resources::kPods, PodOnNode("a", "60", "80"));
  Json elsewhere = PodOnNode("elsewhere", "10", "10");
  elsewhere["spec"]["nodeName"] = "n2";
  api_.Put(resources::kPods, elsewhere);
  StartAgent();
  ASSERT_TRUE(AwaitRow("vision/a", 60));
  const Json row = Row("vision/a");
  EXPECT_EQ(row.at("limit"), 80.0);
  EXPECT_EQ(row.at("cgroup"), UidOf(pod));
  EXPECT_EQ(row.at("namespace"), "vision");
  EXPECT_EQ(row.at("gpus").at(0).at("uuid"), "GPU-a");
  EXPECT_EQ(Ask({{"command", "pod"}, {"name", "vision/a"}}).at("ticket"), UidOf(pod) + "/main");
  EXPECT_EQ(Rows(), 1u) << "that of another node is none of ours";
  // A patch is followed while it runs.
  Json changed = *api_.Get(resources::kPods, NameOf(pod));
  SetRequest(changed, "20");
  const Instant before = MonotonicNow();
  api_.Put(resources::kPods, changed);
  ASSERT_TRUE(AwaitRow("vision/a", 20));
  std::printf("figure a patch was followed in %.1f ms\n",
              static_cast<double>(Nanos(MonotonicNow() - before)) / 1e6);
  EXPECT_EQ(Row("vision/a").at("id"), row.at("id")) << "it is the same pod";
  // One that ends, and one that is removed.
  api_.Put(resources::kPods, PodOnNode("b", "10", "10"));
  ASSERT_TRUE(AwaitRow("vision/b", 10));
  changed = *api_.Get(resources::kPods, NameOf(pod));
  changed["status"]["phase"] = "Succeeded";
  api_.Put(resources::kPods, changed);
  api_.Remove(resources::kPods, {"vision", "b"});
  EXPECT_TRUE(api_.WaitFor([&] { return Rows() == 0; }));
}

// What a pod asks for by its annotations is not what it has: the binder looks at room and quotas.
TEST_F(Agent, GivesWhatTheBinderHasGiven) {
  api_.Put(resources::kPods, PodOnNode("a", "20", "50"));
  StartAgent();
  ASSERT_TRUE(AwaitRow("vision/a", 20));
  Json pod = *api_.Get(resources::kPods, {"vision", "a"});
  pod["metadata"]["annotations"]["baton.dev/request"] = "95";
  pod["metadata"]["annotations"]["baton.dev/limit"] = "100";
  api_.Put(resources::kPods, pod);
  ASSERT_TRUE(api_.WaitFor([&] { return Row("vision/a").value("limit", 0.0) == 100.0; }));
  EXPECT_EQ(Row("vision/a").value("request", 0.0), 20.0);
  SetRequest(pod, "95");
  api_.Put(resources::kPods, pod);
  EXPECT_TRUE(AwaitRow("vision/a", 95));
}

// Three pods whose shares add up to the whole GPU all the while.
TEST_F(Agent, SwappedSharesAllArrive) {
  for (const auto& [name, request] : {std::pair{"a", "60"}, {"b", "30"}, {"c", "10"}}) {
    api_.Put(resources::kPods, PodOnNode(name, request, "100"));
  }
  StartAgent();
  ASSERT_TRUE(AwaitRow("vision/a", 60) && AwaitRow("vision/b", 30) && AwaitRow("vision/c", 10));
  // The one that grows first: there is no room for it until another has shrunk.
  for (const auto& [name, request] : {std::pair{"c", "50"}, {"a", "20"}}) {
    Json pod = *api_.Get(resources::kPods, {"vision", name});
    SetRequest(pod, request);
    api_.Put(resources::kPods, pod);
  }
  EXPECT_TRUE(AwaitRow("vision/a", 20) && AwaitRow("vision/b", 30) && AwaitRow("vision/c", 50));
}

TEST_F(Agent, ReconcilesAfterAnyRestart) {
  for (const char* name : {"a", "b", "c"}) api_.Put(resources::kPods, PodOnNode(name, "20", "20"));
  StartAgent();
  ASSERT_TRUE(AwaitRow("vision/a", 20) && AwaitRow("vision/b", 20) && AwaitRow("vision/c", 20));
  StopAgent();
  // While it was away: one is gone, one has changed, one is another of the same name, one is new.
  // What somebody made by hand is left alone.
  api_.Remove(resources::kPods, {"vision", "a"});
  Json changed = *api_.Get(resources::kPods, {"vision", "b"});
  SetRequest(changed, "5");
  api_.Put(resources::kPods, changed);
  api_.Remove(resources::kPods, {"vision", "c"});
  const Json again = api_.Put(resources::kPods, PodOnNode("c", "20", "20"));
  api_.Put(resources::kPods, PodOnNode("d", "20", "20", "GPU-b"));
  ASSERT_TRUE(Ask({{"command", "create_pod"}, {"name", "by-hand"}, {"request", 1}}).at("ok"));
  StartAgent();
  ASSERT_TRUE(AwaitRow("vision/b", 5) && AwaitRow("vision/d", 20));
  EXPECT_TRUE(api_.WaitFor([&] { return Row("vision/c").value("cgroup", "") == UidOf(again); }));
  EXPECT_TRUE(api_.WaitFor([&] { return Row("vision/a").empty(); }));
  EXPECT_FALSE(Row("by-hand").empty());
  // batond dies, and forgets everything.
  batond_.Crash();
  api_.Put(resources::kPods, PodOnNode("e", "10", "10"));
  std::filesystem::remove_all(folder_ / "state");
  ASSERT_TRUE(batond_.Start()) << batond_.Log();
  for (const char* name : {"vision/b", "vision/c", "vision/d", "vision/e"}) {
    EXPECT_TRUE(api_.WaitFor([&] { return !Row(name).empty(); })) << name;
  }
  EXPECT_EQ(Rows(), 4u);
}

// One batond for all nodes: the agent speaks to the node's relay, and of the node's pods only.
TEST_F(Agent, WorksThroughARelay) {
  ConfigureRelay(folder_, central_);
  DaemonProcess relay(FRONTEND, folder_ / "node.toml", folder_ / "node.log");
  ASSERT_TRUE(relay.Start()) << relay.Log();
  ASSERT_TRUE(Ask({{"command", "create_pod"},
                   {"name", "vision/of-another-node"},
                   {"namespace", "vision"},
                   {"request", 1},
                   {"gpus", {"GPU-a"}},
                   {"cgroup", "another"}})
                  .at("ok"));
  api_.Put(resources::kPods, PodOnNode("a", "20", "20", "GPU-n"));
  StartAgent(true, "node");
  ASSERT_TRUE(AwaitRow("vision/a", 20));
  EXPECT_TRUE(api_.WaitFor([&] {
    const Json cards = Status(resources::kGpuNodes, {"", "n1"}).value("cards", Json::array());
    return cards.size() == 1 && cards[0].at("uuid") == "GPU-n";
  }));
  api_.Remove(resources::kPods, {"vision", "a"});
  EXPECT_TRUE(api_.WaitFor([&] { return Row("vision/a").empty(); }));
  EXPECT_FALSE(Row("vision/of-another-node").empty());
}

TEST_F(Agent, StopsWhileBatondIsAway) {
  ASSERT_EQ(batond_.Stop(), 0);
  StartAgent();
  ASSERT_TRUE(api_.WaitFor([&] { return api_.count("watch pods") > 0; }));
  StopAgent();
}

TEST_F(Agent, IsReadyOnceBatondAndApiServerAnswered) {
  ASSERT_EQ(batond_.Stop(), 0);
  StartAgent();
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/nothing").status, 404);
  EXPECT_EQ(agent_->Answer({"POST", "/metrics", ""}).status, 405);
  ASSERT_TRUE(api_.WaitFor([&] { return api_.count("watch pods") > 0; }));
  EXPECT_EQ(Get("/readyz").status, 503);
  EXPECT_NE(Get("/readyz").body.find("batond"), std::string::npos) << Get("/readyz").body;
  StopAgent();

  ASSERT_TRUE(batond_.Start()) << batond_.Log();
  api_.AddFault({.kind = testing::FaultKind::kAnswer, .verb = "list", .times = 0, .status = 500});
  StartAgent();
  EXPECT_TRUE(api_.WaitFor(
      [&] { return Get("/readyz").body.find("have not been listed") != std::string::npos; }));
  EXPECT_EQ(Get("/readyz").status, 503);
  api_.ClearFaults();
  EXPECT_TRUE(api_.WaitFor([&] { return Get("/readyz").status == 200; }));
}

TEST_F(Agent, CountsPodsInStepAndRefusedPods) {
  api_.Put(resources::kPods, PodOnNode("a", "60", "60"));
  api_.Put(resources::kPods, PodOnNode("too-much", "60", "60"));
  Json broken = PodOnNode("broken", "60", "60");
  broken["metadata"]["annotations"]["baton.dev/request"] = "130";
  api_.Put(resources::kPods, broken);
  StartAgent();
  EXPECT_TRUE(api_.WaitFor([&] {
    return MetricsSay("baton_agent_pods_in_step 1") && MetricsSay("baton_agent_pods_refused 2");
  })) << Get("/metrics").body;
  EXPECT_TRUE(MetricsSay("baton_agent_cards 2"));
  EXPECT_TRUE(MetricsSay("baton_agent_commands_total 1"));
  EXPECT_FALSE(MetricsSay("baton_agent_batond_errors_total 0"));
  EXPECT_TRUE(
      api_.WaitFor([&] { return !MetricsSay("baton_agent_last_report_timestamp_seconds 0"); }));
}

// What went wrong is not the pods' fault, and one question is enough to know.
TEST_F(Agent, BatondsSilenceIsNotBlamedOnPods) {
  for (int i = 0; i < 10; ++i) {
    api_.Put(resources::kPods, PodOnNode("p" + std::to_string(i), "10", "10"));
  }
  DumbBatond dumb(folder_ / "dumb");
  StartAgent(true, "dumb");
  ASSERT_TRUE(api_.WaitFor([&] { return dumb.asked() >= 3; }));
  const int asked = dumb.asked();
  EXPECT_GE(dumb.told(), asked) << "first it is asked how things are, each time";
  StopAgent();
  EXPECT_TRUE(api_.List(resources::kEvents).empty());
}

// Without cgroups the ticket says whose pod it is.
TEST_F(Agent, ReconcilesWithoutCgroups) {
  const Json a = api_.Put(resources::kPods, PodOnNode("a", "20", "20"));
  api_.Put(resources::kPods, PodOnNode("b", "20", "20"));
  StartAgent(false);
  ASSERT_TRUE(AwaitRow("vision/a", 20) && AwaitRow("vision/b", 20));
  EXPECT_EQ(Row("vision/a").at("cgroup"), "");
  StopAgent();
  api_.Remove(resources::kPods, {"vision", "b"});
  ASSERT_TRUE(Ask({{"command", "create_pod"}, {"name", "by-hand"}, {"request", 1}}).at("ok"));
  StartAgent(false);
  EXPECT_TRUE(api_.WaitFor([&] { return Row("vision/b").empty(); }));
  EXPECT_FALSE(Row("vision/a").empty());
  EXPECT_FALSE(Row("by-hand").empty());
  // Whoever has the ticket attaches.
  backend::ScriptedClient client(folder_ / "run/baton.sock");
  EXPECT_TRUE(client.Join(UidOf(a) + "/main", "GPU-a"));
}

TEST_F(Agent, BatondsRefusalIsReportedAndRetried) {
  ASSERT_TRUE(
      Ask({{"command", "create_pod"}, {"name", "by-hand"}, {"request", 90}, {"gpus", {"GPU-a"}}})
          .at("ok"));
  api_.Put(resources::kPods, PodOnNode("a", "60", "60"));
  Json broken = PodOnNode("broken", "60", "60");
  broken["metadata"]["annotations"]["baton.dev/request"] = "130";
  api_.Put(resources::kPods, broken);
  StartAgent();
  const auto event_on = [&](const std::string& pod) {
    for (const Json& event : api_.List(resources::kEvents)) {
      if (TextAt(event, "regarding/name") == pod) return event;
    }
    return Json::object();
  };
  ASSERT_TRUE(api_.WaitFor([&] { return !event_on("a").empty() && !event_on("broken").empty(); }));
  EXPECT_EQ(TextAt(event_on("a"), "reason"), "ShareRefused");
  EXPECT_EQ(TextAt(event_on("a"), "type"), "Warning");
  EXPECT_EQ(TextAt(event_on("broken"), "reason"), "InvalidAnnotation");
  EXPECT_NE(TextAt(event_on("broken"), "note").find("130"), std::string::npos);
  // It is tried again and again, and said once.
  ASSERT_TRUE(api_.WaitFor([&] { return BatondErrors() >= 4; }));
  EXPECT_EQ(api_.count("patch events"), 0u);
  ASSERT_TRUE(Ask({{"command", "delete_pod"}, {"name", "by-hand"}}).at("ok"));
  EXPECT_TRUE(AwaitRow("vision/a", 60));
  // One that runs, and whose annotations are then damaged, keeps what it has.
  Json pod = *api_.Get(resources::kPods, {"vision", "a"});
  pod["metadata"]["annotations"]["baton.dev/limit"] = "10";
  api_.Put(resources::kPods, pod);
  ASSERT_TRUE(api_.WaitFor([&] {
    const auto events = api_.List(resources::kEvents);
    return std::any_of(events.begin(), events.end(), [](const Json& event) {
      return TextAt(event, "regarding/name") == "a" &&
             TextAt(event, "reason") == "InvalidAnnotation";
    });
  }));
  EXPECT_EQ(Row("vision/a").value("request", 0.0), 60.0);
}

TEST_F(Agent, ReportsTheGpus) {
  StartAgent();
  ASSERT_TRUE(api_.WaitFor([&] {
    return Status(resources::kGpuNodes, {"", "n1"}).value("cards", Json::array()).size() == 2;
  }));
  const Json cards = Status(resources::kGpuNodes, {"", "n1"}).at("cards");
  EXPECT_EQ(cards.at(0).at("uuid"), "GPU-a");
  EXPECT_EQ(cards.at(0).at("memoryMiB"), 81'920);
  ASSERT_TRUE(api_.WaitFor([&] { return Cards().size() == 2; }));
  EXPECT_EQ(Cards()[1], (PluginCard{"GPU-b", 81'920, true}));
  // Told again when it changes, and only then.
  ASSERT_TRUE(Ask({{"command", "cordon"}, {"gpus", {"GPU-b"}}}).at("ok"));
  ASSERT_TRUE(api_.WaitFor([&] {
    return Status(resources::kGpuNodes, {"", "n1"}).at("cards").at(1).at("cordoned") == true;
  }));
  EXPECT_LE(api_.count("apply gpunodes/status"), 3u);
}

// No pod that relies on the kubelet's mounts may come before the kubelet knows of them.
TEST_F(Agent, TellsWhenTheKubeletMountsTheHook) {
  mounts_hook_ = false;
  StartAgent();
  ASSERT_TRUE(api_.WaitFor([&] {
    return Status(resources::kGpuNodes, {"", "n1"}).value("cards", Json::array()).size() == 2;
  }));
  EXPECT_FALSE(MountsHook(*api_.Get(resources::kGpuNodes, {"", "n1"})));
  mounts_hook_ = true;
  EXPECT_TRUE(api_.WaitFor([&] {
    return MountsHook(*api_.Get(resources::kGpuNodes, {"", "n1"}));
  }));
  // One that is started in its place and does not say so takes it back.
  StopAgent();
  mounts_hook_ = false;
  StartAgent();
  EXPECT_TRUE(api_.WaitFor([&] {
    return !MountsHook(*api_.Get(resources::kGpuNodes, {"", "n1"}));
  }));
}

// Of the pod that comes in a rollout before the old one goes.
TEST_F(Agent, StandsByWithItsBatond) {
  std::string text = backend::ReadText(folder_ / "batond.toml");
  text.insert(text.find("state_dir"), "control_dir = \"" + (folder_ / "next") + "\"\n");
  backend::WriteText(folder_ / "next.toml", text);
  DaemonProcess next(BATOND, folder_ / "next.toml", folder_ / "next.log", {"--standby"});
  ASSERT_TRUE(next.Start()) << next.Log();
  api_.Put(resources::kPods, PodOnNode("a", "60", "60"));
  StartAgent(true, "next");
  ASSERT_TRUE(api_.WaitFor([&] { return Get("/readyz").status == 200; })) << Get("/readyz").body;
  usleep(700'000);  // longer than batond may be away
  EXPECT_TRUE(Cards().empty()) << "the kubelet hears of the agent of before alone";
  EXPECT_FALSE(api_.Get(resources::kGpuNodes, {"", "n1"}));
  EXPECT_EQ(Get("/readyz").status, 200);
  EXPECT_EQ(batond_.Stop(), 0);
  ASSERT_TRUE(api_.WaitFor([&] { return Cards().size() == 2; })) << next.Log();
  EXPECT_TRUE(api_.WaitFor([&] {
    const Json status = backend::Ask(folder_ / "next/control.sock", {{"command", "status"}});
    return status.is_object() && status.value("pods", Json::array()).size() == 1;
  }));
  EXPECT_EQ(Get("/readyz").status, 200);
}

// Kubernetes' pods share by turns, which another vendor's GPU cannot.
TEST_F(Agent, OtherVendorsGpusAreNotForTheKubelet) {
  ASSERT_EQ(batond_.Stop(), 0);
  backend::WriteText(folder_ / "batond.toml",
                     backend::ReadText(folder_ / "batond.toml") +
                         "[[gpu]]\nuuid = \"MI-0\"\nname = \"MI300X\"\nvendor = \"amd\"\n" +
                         "environment = {ROCR_VISIBLE_DEVICES = \"0\"}\n");
  ASSERT_TRUE(batond_.Start()) << batond_.Log();
  StartAgent();
  ASSERT_TRUE(api_.WaitFor([&] {
    return Status(resources::kGpuNodes, {"", "n1"}).value("cards", Json::array()).size() == 3;
  }));
  EXPECT_EQ(Status(resources::kGpuNodes, {"", "n1"}).at("cards").at(2).at("vendor"), "amd");
  ASSERT_TRUE(api_.WaitFor([&] { return !Cards().empty(); }));
  for (const PluginCard& card : Cards()) EXPECT_NE(card.uuid, "MI-0");
}

// Nobody grants a token then, so nothing new is to come; what is there stays.
TEST_F(Agent, GpusAreUnhealthyWhileBatondIsAway) {
  api_.Put(resources::kPods, PodOnNode("a", "20", "20"));
  StartAgent();
  ASSERT_TRUE(AwaitRow("vision/a", 20));
  const auto healthy = [&] {
    const auto cards = Cards();
    return std::count_if(cards.begin(), cards.end(), [](const auto& card) { return card.healthy; });
  };
  ASSERT_TRUE(api_.WaitFor([&] { return healthy() == 2; }));
  ASSERT_EQ(batond_.Stop(), 0);
  ASSERT_TRUE(api_.WaitFor([&] { return Cards().size() == 2 && healthy() == 0; }));
  EXPECT_TRUE(MetricsSay("baton_agent_cards 0"));
  ASSERT_TRUE(batond_.Start()) << batond_.Log();
  EXPECT_TRUE(api_.WaitFor([&] { return healthy() == 2; }));
  EXPECT_TRUE(AwaitRow("vision/a", 20));
}

TEST_F(Agent, ReportsAchievedSharesOnSharePods) {
  const Json share_pod = api_.Put(resources::kSharePods,
                                  Json::parse(R"({"metadata": {"name": "a", "namespace": "vision"},
          "status": {"phase": "Running", "conditions": [{"type": "Placed", "status": "True"}]}})"));
  Json pod = PodOnNode("a", "60", "80");
  SetOwner(pod, share_pod);
  pod = api_.Put(resources::kPods, pod);
  StartAgent(false);
  const auto attached = [&]() -> Json {
    const Json status = Status(resources::kSharePods, {"vision", "a"});
    for (const Json& condition : status.value("conditions", Json::array())) {
      if (condition.at("type") == "Attached") return condition;
    }
    return Json::object();
  };
  ASSERT_TRUE(api_.WaitFor([&] { return attached().value("status", "") == "False"; }));
  {
    backend::ScriptedClient client(folder_ / "run/baton.sock");
    ASSERT_TRUE(client.Join(UidOf(pod) + "/main", "GPU-a"));
    ASSERT_TRUE(client.Ask() && client.AwaitGrant() && client.Report(wire::Phase::kHolding));
    ASSERT_TRUE(api_.WaitFor([&] { return attached().value("status", "") == "True"; }));
    EXPECT_EQ(attached().at("reason"), "ProcessesAttached");
    EXPECT_FALSE(attached().contains("observedGeneration"))
        << "after a patch of the SharePod it would be an old one, and 'kubectl wait' would wait";
    ASSERT_TRUE(api_.WaitFor([&] {
      return std::stod(TextAt(Status(resources::kSharePods, {"vision", "a"}), "achieved", "0")) > 0;
    }));
    const Json reasons = Status(resources::kSharePods, {"vision", "a"}).at("reasons");
    EXPECT_NE(reasons.dump().find("vision/a asks for 60"), std::string::npos) << reasons;
  }
  Json ended = *api_.Get(resources::kPods, {"vision", "a"});
  ended["status"]["phase"] = "Succeeded";
  api_.Put(resources::kPods, ended);
  ASSERT_TRUE(api_.WaitFor([&] { return attached().value("reason", "") == "PodEnded"; }));
  const Json status = Status(resources::kSharePods, {"vision", "a"});
  EXPECT_EQ(status.at("phase"), "Running") << "what others own stays";
  EXPECT_EQ(status.at("conditions").size(), 2u);
  EXPECT_TRUE(status.at("gpuSeconds").is_number_integer());
  EXPECT_FALSE(status.contains("reasons")) << "it gets nothing any more";
}

TEST_F(Agent, TellsSharePodsWhatFitsTheirUse) {
  ASSERT_EQ(batond_.Stop(), 0);
  {  // a tenth of a GPU over 29 hours, by a pod of that name
    std::string trouble;
    ledger::LedgerOptions options;
    options.database = "sqlite:" + (folder_ / "state/ledger.sqlite");
    auto ledger = ledger::Ledger::Open(options, &trouble);
    ASSERT_TRUE(ledger) << ledger.error().message;
    ledger::Batch batch;
    batch.source = std::string(32, 'b');
    batch.seq = 1;
    batch.to = ledger::WallNow() - std::chrono::hours(30);
    ASSERT_TRUE((*ledger)->Apply(batch));
    batch.seq = 2;
    batch.to = ledger::WallNow() - std::chrono::hours(1);
    ledger::Sample sample;
    sample.gpu = "GPU-b";
    sample.owner = {"vision/a", "vision", "", ""};
    sample.total.held_ns = int64_t{29} * 360 * 1'000'000'000;
    batch.samples = {sample};
    ASSERT_TRUE((*ledger)->Apply(batch));
  }
  ASSERT_TRUE(batond_.Start()) << batond_.Log();
  const Json share_pod =
      api_.Put(resources::kSharePods, Json{{"metadata", {{"name", "a"}, {"namespace", "vision"}}}});
  Json pod = PodOnNode("a", "60", "80");
  SetOwner(pod, share_pod);
  api_.Put(resources::kPods, pod);
  // A definition of SharePods from before there was advice.
  api_.AddFault({.kind = testing::FaultKind::kAnswer,
                 .verb = "apply",
                 .path = "/sharepods/a/status",
                 .body = "\"advice\"",
                 .times = 0,
                 .status = 500,
                 .message = ".status.advice: field not declared in schema"});
  StartAgent();
  const auto status = [&] { return Status(resources::kSharePods, {"vision", "a"}); };
  const auto advice = [&] { return status().value("advice", Json()); };
  ASSERT_TRUE(api_.WaitFor([&] { return status().contains("achieved"); }));
  EXPECT_TRUE(advice().is_null());
  EXPECT_GT(api_.faults_met(), 0u);
  api_.ClearFaults();
  // It is updated.
  ASSERT_TRUE(api_.WaitFor([&] { return advice().is_array(); }));
  EXPECT_EQ(advice()[0].at("request"), "13");
  EXPECT_EQ(advice()[0].at("summary"), "request 13");
  EXPECT_NE(advice()[0].at("reasons").dump().find("far above its use"), std::string::npos);
  // It follows, and ends where the request fits.
  SetRequest(pod, "15");
  api_.Put(resources::kPods, pod);
  EXPECT_TRUE(api_.WaitFor([&] { return advice().is_null(); })) << advice();
}

// A pod of idle priority beside one that holds the GPU.
TEST_F(Agent, ReportsThatAPodIsPaused) {
  Json night = PodOnNode("night", "1", "100");
  night["metadata"]["annotations"]["baton.dev/priority"] = "idle";
  const Json share_pod = api_.Put(resources::kSharePods,
                                  Json{{"metadata", {{"name", "night"}, {"namespace", "vision"}}}});
  SetOwner(night, share_pod);
  night = api_.Put(resources::kPods, night);
  const Json day = api_.Put(resources::kPods, PodOnNode("day", "60", "100"));
  const auto paused = [&]() -> Json {
    const Json status = Status(resources::kSharePods, {"vision", "night"});
    for (const Json& condition : status.value("conditions", Json::array())) {
      if (condition.at("type") == "Paused") return condition;
    }
    return Json::object();
  };
  const auto says = [&](const char* status) {
    return api_.WaitFor([&] { return paused().value("status", "") == status; });
  };
  StartAgent(false);
  ASSERT_TRUE(says("False")) << "of idle priority, and without work";
  backend::ScriptedClient holds(folder_ / "run/baton.sock"), waits(folder_ / "run/baton.sock");
  ASSERT_TRUE(holds.Join(UidOf(day) + "/main", "GPU-a"));
  ASSERT_TRUE(holds.Ask() && holds.AwaitGrant() && holds.Report(wire::Phase::kHolding));
  ASSERT_TRUE(waits.Join(UidOf(night) + "/main", "GPU-a") && waits.Ask());
  ASSERT_TRUE(says("True"));
  EXPECT_EQ(paused().at("reason"), "OthersHaveWork");
  // An agent that starts again leaves it as it was.
  const std::string since = TextAt(paused(), "lastTransitionTime");
  const size_t writes = api_.count("apply sharepods/status");
  StopAgent();
  StartAgent(false);
  ASSERT_TRUE(api_.WaitFor([&] { return api_.count("apply sharepods/status") > writes; }));
  EXPECT_EQ(TextAt(paused(), "status"), "True");
  EXPECT_EQ(TextAt(paused(), "lastTransitionTime"), since);
  // The others' work ends.
  ASSERT_TRUE(api_.WaitFor([&] {
    holds.HasGrantNow();
    return holds.GiveBack() && waits.HasGrantNow();
  }));
  ASSERT_TRUE(waits.Report(wire::Phase::kHolding));
  ASSERT_TRUE(says("False"));
  // Who is not of idle priority is never paused, and need not say so.
  night = *api_.Get(resources::kPods, {"vision", "night"});
  night["metadata"]["annotations"]["baton.dev/priority"] = "normal";
  api_.Put(resources::kPods, night);
  EXPECT_TRUE(api_.WaitFor([&] { return paused().empty(); }));
  EXPECT_FALSE(Status(resources::kSharePods, {"vision", "night"}).at("conditions").empty());
}

// Nothing is lost when the API server is away, or answers nonsense, for a while.
TEST_F(Agent, ConvergesDespiteApiFaults) {
  api_.Put(resources::kPods, PodOnNode("a", "20", "20"));
  api_.AddFault({.kind = testing::FaultKind::kAnswer, .verb = "list", .times = 2, .status = 500});
  api_.AddFault({.kind = testing::FaultKind::kMalformed, .verb = "list"});
  api_.AddFault({.kind = testing::FaultKind::kCutWatch, .verb = "watch", .times = 3});
  api_.AddFault({.kind = testing::FaultKind::kAnswer, .verb = "apply", .times = 2, .status = 409});
  StartAgent();
  ASSERT_TRUE(AwaitRow("vision/a", 20));
  for (int i = 0; i < 5; ++i) {
    api_.Put(resources::kPods, PodOnNode("p" + std::to_string(i), "10", "10"));
    api_.CutConnections();
  }
  api_.Compact();
  api_.Remove(resources::kPods, {"vision", "p0"});
  for (int i = 1; i < 5; ++i) EXPECT_TRUE(AwaitRow("vision/p" + std::to_string(i), 10));
  EXPECT_TRUE(api_.WaitFor([&] { return Row("vision/p0").empty() && Rows() == 5; }));
  EXPECT_TRUE(api_.WaitFor([&] {
    return Status(resources::kGpuNodes, {"", "n1"}).value("cards", Json::array()).size() == 2;
  }));
}

}  // namespace
}  // namespace baton::k8s
