// The extender speaks the protocols of kube-scheduler and Volcano, decides as the binder does, and
// books before it binds.
#include "k8s/extender/extender.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <thread>

#include "base/random.h"
#include "k8s/api/reflector.h"
#include "k8s/types/gpu_pod.h"
#include "tests/k8s/binder/objects.h"
#include "tests/k8s/binder/world.h"
#include "tests/k8s/stand_in/api_server.h"

namespace baton::k8s::testing {
namespace {

Json GpuPodOf(const std::string& name, const std::string& share) {
  Json pod = PodOf(name, {{"baton.dev/gpu-share", share}});
  pod["metadata"]["uid"] = "uid-of-" + name;
  pod["metadata"]["resourceVersion"] = "1";
  pod["spec"]["schedulerName"] = "default-scheduler";
  return pod;
}

Json Names(std::initializer_list<const char*> nodes) {
  Json names = Json::array();
  for (const char* node : nodes) names.push_back(node);
  return names;
}

class ExtenderTest : public ::testing::Test {
 protected:
  void Add(const std::string& node, size_t cards) {
    core.Changed(Watched::kNode, NodeOf(node));
    core.Changed(Watched::kGpuNode, CardsOn(node, cards));
  }
  ExtenderCore core{ExtenderOptions()};
};

TEST_F(ExtenderTest, FilterReturnsNodesAndReasons) {
  Add("n1", 1);
  Add("n2", 1);
  const auto plan = core.PlanBinding(GpuPodOf("a", "80"), "n1");
  ASSERT_TRUE(plan) << plan.error().message;
  Json answer = core.Filter(
      {{"Pod", GpuPodOf("b", "30")}, {"Nodes", nullptr}, {"NodeNames", Names({"n1", "n2", "n3"})}});
  EXPECT_EQ(answer["Error"], "");
  EXPECT_EQ(answer["NodeNames"], Names({"n2"}));
  EXPECT_EQ(answer["FailedNodes"]["n1"], "GPU 0: 20 % of it are free, 30 % wanted");
  EXPECT_EQ(answer["FailedNodes"]["n3"], "Baton has not seen this node yet");
  // Whole nodes come back whole.
  answer = core.Filter(
      {{"Pod", GpuPodOf("b", "30")}, {"Nodes", {{"items", {NodeOf("n1"), NodeOf("n2")}}}}});
  ASSERT_EQ(answer["Nodes"]["items"].size(), 1u);
  EXPECT_EQ(answer["Nodes"]["items"][0], NodeOf("n2"));
  // A pod without GPUs is none of its business; a wrong one is refused with a sentence.
  answer = core.Filter({{"Pod", PodOf("c", {{"cpu", "1"}})}, {"NodeNames", Names({"n1", "n9"})}});
  EXPECT_EQ(answer["NodeNames"], Names({"n1", "n9"}));
  Json wrong = GpuPodOf("d", "30");
  wrong["metadata"]["annotations"] = {{"baton.dev/request", "130"}};
  answer = core.Filter({{"Pod", wrong}, {"NodeNames", Names({"n1"})}});
  EXPECT_NE(answer["Error"].get<std::string>().find("130"), std::string::npos);
}

// Nobody waits there until a part of a GPU is made.
TEST_F(ExtenderTest, PodsByMigAndMpsAreSentToBatonsOwnScheduler) {
  Add("n1", 1);
  for (const char* mode : {"mig", "mps"}) {
    Json pod = GpuPodOf("a", "30");
    pod["metadata"]["annotations"] = {{"baton.dev/mode", mode}};
    const Json answer = core.Filter({{"Pod", pod}, {"NodeNames", Names({"n1"})}});
    EXPECT_NE(answer["Error"].get<std::string>().find("schedulerName: baton"), std::string::npos)
        << answer;
    EXPECT_FALSE(core.PlanBinding(pod, "n1"));
  }
  // One that leaves its mode open takes turns, and is told so.
  Json open = GpuPodOf("b", "30");
  open["metadata"]["annotations"] = {{"baton.dev/mode", "auto"}};
  const auto plan = core.PlanBinding(open, "n1");
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_NE(plan->body.dump().find(UidOf(open) + "/main"), std::string::npos) << plan->body;
}

// Which pods tolerate what is the scheduler's to know.
TEST_F(ExtenderTest, TaintedNodesAreNoneOfItsBusiness) {
  Add("n1", 1);
  core.Changed(
      Watched::kNode,
      NodeOf("n1",
             {{"spec", {{"taints", {{{"key", "nvidia.com/gpu"}, {"effect", "NoSchedule"}}}}}}}));
  const Json answer =
      core.Filter({{"Pod", GpuPodOf("b", "30")}, {"Nodes", nullptr}, {"NodeNames", Names({"n1"})}});
  EXPECT_EQ(answer["NodeNames"], Names({"n1"})) << answer;
}

TEST_F(ExtenderTest, VolcanoRequestsGetVolcanoAnswers) {
  Add("n1", 1);
  Add("n2", 1);
  ASSERT_TRUE(core.PlanBinding(GpuPodOf("a", "80"), "n1"));
  const Json task{{"UID", "x"}, {"Name", "b"}, {"Pod", GpuPodOf("b", "30")}};
  Json answer = core.Predicate({{"task", task}, {"node", {{"Name", "n1"}}}});
  EXPECT_EQ(answer["code"], 2);
  EXPECT_EQ(answer["status"], "GPU 0: 20 % of it are free, 30 % wanted");
  answer = core.Predicate({{"task", task}, {"node", {{"Name", "n2"}}}});
  EXPECT_EQ(answer["code"], 0);
  EXPECT_EQ(answer["status"], "");
  answer = core.Prioritize({{"task", task}, {"nodes", {{{"Name", "n1"}}, {{"Name", "n2"}}}}});
  EXPECT_EQ(answer["nodeScore"], (Json{{"n1", 0}, {"n2", 10}}));
  EXPECT_EQ(answer["errorMessage"], "");
}

TEST_F(ExtenderTest, BindReservesRoomAndFreesItOnFailure) {
  Add("n1", 1);
  const Json pod = GpuPodOf("a", "80");
  const auto plan = core.PlanBinding(pod, "n1");
  ASSERT_TRUE(plan);
  EXPECT_EQ(TextAt(plan->body, "metadata/uid"), UidOf(pod));
  EXPECT_EQ(TextAt(plan->body, "target/name"), "n1");
  EXPECT_FALSE(core.PlanBinding(GpuPodOf("b", "30"), "n1"));
  core.Ended(*plan, false, false);  // nobody knows
  EXPECT_FALSE(core.PlanBinding(GpuPodOf("b", "30"), "n1"));
  core.Ended(*plan, false, true);
  const auto other = core.PlanBinding(GpuPodOf("b", "30"), "n1");
  ASSERT_TRUE(other);
  core.Ended(*other, true, true);
  // An event from before its Binding changes nothing.
  core.Changed(Watched::kPod, GpuPodOf("b", "30"));
  EXPECT_FALSE(core.PlanBinding(pod, "n1"));
  // It has gone.
  core.Gone(Watched::kPod, GpuPodOf("b", "30"));
  EXPECT_TRUE(core.PlanBinding(pod, "n1"));
}

TEST_F(ExtenderTest, NoPodGoesOverACeilingOfItsTeam) {
  Add("n1", 2);
  const Json team{{"metadata", {{"name", "research"}}},
                  {"spec", {{"team", "research"}, {"ceiling", {{"gpus", 1}}}}}};
  core.Changed(Watched::kTeam, team);
  const auto of = [](const std::string& name, const std::string& share, const char* path) {
    Json pod = GpuPodOf(name, share);
    pod["metadata"]["annotations"]["baton.dev/team"] = path;
    return pod;
  };
  const auto plan = core.PlanBinding(of("a", "60", "research/vision"), "n1");
  ASSERT_TRUE(plan);
  core.Ended(*plan, true, true);
  const Json over = of("b", "60", "research/speech");
  const std::string why =
      "team research may use 1.0 GPUs at most; it uses 0.6, and team/b asks for 0.6 more";
  const Json filtered = core.Filter({{"Pod", over}, {"NodeNames", {"n1"}}});
  EXPECT_TRUE(filtered["NodeNames"].empty());
  EXPECT_EQ(filtered["FailedNodes"]["n1"], why);
  const auto refused = core.PlanBinding(over, "n1");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, why);
  EXPECT_TRUE(
      core.Filter({{"Pod", of("c", "60", "ops")}, {"NodeNames", {"n1"}}})["FailedNodes"].empty());
  core.Gone(Watched::kTeam, team);
  EXPECT_TRUE(core.PlanBinding(over, "n1"));
}

TEST_F(ExtenderTest, RandomRequestsAreHarmless) {
  Add("n1", 1);
  for (const char* text : {"{}", R"({"Pod": 3})", R"({"Pod": {}})", R"({"Pod": {}, "Nodes": []})",
                           R"({"Pod": {}, "NodeNames": {"a": 1}})", R"({"task": 1, "node": 2})",
                           R"({"Pod": {"metadata": []}, "Nodes": {"Items": [1, [], {}]}})"}) {
    const Json arguments = Json::parse(text);
    (void)core.Filter(arguments);
    (void)core.Prioritize(arguments);
    (void)core.Predicate(arguments);
  }
}

// kube-scheduler's way to a node: those that pass the filter, the best score, the bind.
TEST(Extender, DecidesAsTheBinderDoes) {
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    World world(seed, CoreOptions());
    ExtenderCore core{ExtenderOptions()};
    for (int n = 0; n < 6; ++n) {
      const std::string name = fmt::format("n{}", n);
      const auto cards = static_cast<size_t>(random.Between(1, 4));
      world.AddNode(name, cards);
      core.Changed(Watched::kNode, NodeOf(name));
      core.Changed(Watched::kGpuNode, CardsOn(name, cards));
    }
    int placed = 0;
    for (int i = 0; i < 60; ++i) {
      const std::string name = fmt::format("p{:02}", i);
      const std::string share = std::to_string(random.Between(1, 100));
      world.AddPod(name, {{"baton.dev/gpu-share", share}});
      const Json pod = *world.Get(resources::kPods, name);
      core.Changed(Watched::kPod, pod);
      Json names = Json::array();
      for (int n = 0; n < 6; ++n) names.push_back(fmt::format("n{}", n));
      const Json filtered = core.Filter({{"Pod", pod}, {"NodeNames", names}});
      const Json scores = core.Prioritize({{"Pod", pod}, {"NodeNames", filtered["NodeNames"]}});
      std::string best;
      for (const Json& score : scores) {
        if (score["Score"] == 10) best = score["Host"];
      }
      ASSERT_TRUE(world.Settle());
      const Json after = *world.Get(resources::kPods, name);
      ASSERT_EQ(TextAt(after, "spec/nodeName"), best) << name;
      if (best.empty()) {
        EXPECT_TRUE(filtered["NodeNames"].empty());
        // It is taken away, so that the next one is not passed over.
        world.Delete(resources::kPods, name);
        world.Reap();
        ASSERT_TRUE(world.Settle());
        core.Gone(Watched::kPod, pod);
        continue;
      }
      ++placed;
      const auto plan = core.PlanBinding(pod, best);
      ASSERT_TRUE(plan) << plan.error().message;
      EXPECT_EQ(plan->body["metadata"]["annotations"], after["metadata"]["annotations"]) << name;
      core.Ended(*plan, true, true);
      core.Changed(Watched::kPod, after);
    }
    EXPECT_GT(placed, 10);
  }
}

TEST(Extender, BindsOverHttpAndAssignsGpusToBoundPods) {
  ApiServer api;
  for (const char* node : {"n1", "n2"}) {
    api.Put(resources::kNodes, NodeOf(node));
    api.Put(resources::kGpuNodes, CardsOn(node, 1));
  }
  auto client = Client::Make(api.config());
  ASSERT_TRUE(client);
  Extender extender(**client, ExtenderOptions());
  ASSERT_TRUE(api.WaitFor([&] { return extender.synced(); }));
  const auto ask = [&](const std::string& path, const Json& arguments) {
    return extender.Answer({"POST", path, arguments.dump()});
  };
  Json pod = PodOf("a", {{"baton.dev/gpu-share", "60"}});
  pod["spec"]["schedulerName"] = "default-scheduler";
  pod = api.Put(resources::kPods, pod);
  const Json bind{
      {"PodName", "a"}, {"PodNamespace", kSpace}, {"PodUID", UidOf(pod)}, {"Node", "n1"}};
  net::HttpResponse answer = ask("/bind", bind);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(Json::parse(answer.body)["Error"], "");
  pod = *api.Get(resources::kPods, NameOf(pod));
  EXPECT_EQ(TextAt(pod, "spec/nodeName"), "n1");
  EXPECT_EQ((*ReadPlacement(pod))->vgpus.at(0).card, "GPU-n1-0");
  // Another pod by now.
  Json old = bind;
  old["PodUID"] = "x";
  EXPECT_NE(Json::parse(ask("/bind", old).body)["Error"], "");
  // Bound by a scheduler that knows of no GPUs: two that fit, and one that does not.
  for (const char* name : {"b", "c"}) {
    Json bound = PodOf(name, {{"baton.dev/gpu-share", "40"}});
    bound["spec"]["schedulerName"] = "volcano";
    bound["spec"]["nodeName"] = "n1";
    api.Put(resources::kPods, bound);
  }
  const auto has_cards = [&](const char* name) {
    const auto placement = ReadPlacement(*api.Get(resources::kPods, {kSpace, name}));
    return placement && placement->has_value();
  };
  ASSERT_TRUE(api.WaitFor([&] { return has_cards("b") || has_cards("c"); }));
  EXPECT_FALSE(api.WaitFor([&] { return has_cards("b") && has_cards("c"); },
                           std::chrono::milliseconds(200)));
  EXPECT_EQ(Overbooked(api.List(resources::kPods), api.List(resources::kGpuNodes)), "");
  EXPECT_EQ(extender.Answer({"POST", "/filter", "no JSON"}).status, 400);
  EXPECT_EQ(extender.Answer({"POST", "/other", "{}"}).status, 404);
  EXPECT_EQ(extender.Answer({"GET", "/readyz", ""}).status, 200);
}

TEST(Extender, LostAnswersAreResolved) {
  ApiServer api;
  api.Put(resources::kNodes, NodeOf("n1"));
  api.Put(resources::kGpuNodes, CardsOn("n1", 1));
  auto client = Client::Make(api.config());
  ASSERT_TRUE(client);
  Extender extender(**client, ExtenderOptions());
  ASSERT_TRUE(api.WaitFor([&] { return extender.synced(); }));
  // A Binding that was carried out is one, whether or not it was heard.
  api.AddFault({.kind = FaultKind::kCutAfter, .verb = "create", .path = "/binding"});
  Json pod = PodOf("a", {{"baton.dev/gpu-share", "30"}});
  pod["spec"]["schedulerName"] = "default-scheduler";
  api.Put(resources::kPods, pod);
  const auto bind = [&](const char* name) {
    const Json arguments{{"PodName", name}, {"PodNamespace", kSpace}, {"Node", "n1"}};
    return Json::parse(extender.Answer({"POST", "/bind", arguments.dump()}).body)["Error"]
        .get<std::string>();
  };
  EXPECT_EQ(bind("a"), "");
  EXPECT_NE(bind("a"), "") << "it is bound already";
  // GPUs for pods that others bound: the patch is lost on its way there, and on its way back.
  for (const auto& [name, fault] :
       {std::pair{"b", FaultKind::kCutBefore}, {"c", FaultKind::kCutAfter}}) {
    api.AddFault({.kind = fault, .verb = "patch", .path = std::string("/pods/") + name});
    Json bound = PodOf(name, {{"baton.dev/gpu-share", "30"}});
    bound["spec"]["schedulerName"] = "volcano";
    bound["spec"]["nodeName"] = "n1";
    api.Put(resources::kPods, bound);
    EXPECT_TRUE(api.WaitFor([&, name = name] {
      const auto placement = ReadPlacement(*api.Get(resources::kPods, {kSpace, name}));
      return placement && placement->has_value();
    })) << name;
  }
  EXPECT_EQ(Overbooked(api.List(resources::kPods), api.List(resources::kGpuNodes)), "");
  // The binder's pods are the binder's.
  api.Put(resources::kPods, PodOf("d", {{"baton.dev/gpu-share", "5"}}));
  EXPECT_NE(bind("d").find("belongs to Baton's binder"), std::string::npos) << bind("d");
  EXPECT_EQ(TextAt(*api.Get(resources::kPods, {kSpace, "d"}), "spec/nodeName"), "");
}

// What is logged, in place of where it goes else.
class CapturedLog {
 public:
  CapturedLog() {
    const auto logger = std::make_shared<spdlog::logger>("test", lines_);
    logger->set_level(spdlog::level::debug);
    spdlog::set_default_logger(logger);
  }
  ~CapturedLog() { spdlog::set_default_logger(before_); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  bool Says(std::string_view text) const {
    const auto all = lines_->last_formatted();
    return std::any_of(all.begin(), all.end(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    });
  }

 private:
  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  const std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> lines_ =
      std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(256);
};

TEST(Extender, WhatItsWatchesSayIsInTheProgramsLog) {
  const CapturedLog log;
  LogTrouble("pods", "connection refused");
  EXPECT_TRUE(log.Says("watching pods: connection refused"));
}

TEST(Extender, DoesNotWarnOfWatchesOfWhichNothingIsHeard) {
  const CapturedLog log;
  // As an API server is of kinds of which nothing ever changes.
  ApiServer api({.bookmarks = std::chrono::hours(1)});
  auto client = Client::Make(api.config());
  ASSERT_TRUE(client);
  ExtenderOptions options;
  options.watches.silence = std::chrono::milliseconds(300);
  const Extender extender(**client, options);
  EXPECT_TRUE(api.WaitFor([&] { return log.Says("watching teams") && log.Says("watching pods"); }));
  EXPECT_TRUE(log.Says("nothing was heard"));
  EXPECT_FALSE(log.Says("[warning]"));
}

}  // namespace
}  // namespace baton::k8s::testing
