// SharePods: what a user writes, and the child pod that it becomes.
#include "k8s/types/share_pod.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "k8s/types/annotations.h"
#include "k8s/types/gpu_node.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/inject.h"
#include "k8s/types/quantity.h"
#include "tests/k8s/types/fixture.h"

namespace baton::k8s::testing {
namespace {

TEST(SharePods, SharesThatFitOnAGpuFitInTheKubeletsCount) {
  const auto child = ChildPod(SharePod(R"({"request": "12.5", "memory": "1500Mi"})"), 256);
  ASSERT_TRUE(child) << Why(child);
  const auto pod = ReadGpuPod(*child, 256);
  ASSERT_TRUE(pod) << Why(pod);
  EXPECT_EQ(pod->containers.at(0).share_units, 12u);
  EXPECT_EQ(pod->containers.at(0).memory_units, 5u);
  EXPECT_EQ(pod->containers.at(0).request, policy::Share(125'000));
}

TEST(SharePods, ChildPodAsksForTheSame) {
  const auto child =
      ChildPod(SharePod(R"({"request": "12.5", "limit": 60, "memory": "1000Mi", "count": 2,
                   "priority": "high", "team": "research/vision", "model": "H100",
                   "gang": {"name": "g", "size": 2}})"),
               256);
  ASSERT_TRUE(child) << Why(child);
  EXPECT_EQ((*child)["metadata"]["name"], "s");
  EXPECT_EQ((*child)["metadata"]["labels"]["baton.dev/sharepod"], "s");
  const Json& owner = (*child)["metadata"]["ownerReferences"][0];
  EXPECT_EQ(owner["uid"], "u-2");
  EXPECT_EQ(owner["controller"], true);
  EXPECT_EQ((*child)["spec"]["containers"][0]["resources"]["limits"],
            Parsed(R"({"baton.dev/gpu-share": "24", "baton.dev/gpu-memory": "6"})"));
  const auto pod = ReadGpuPod(*child, 256);
  ASSERT_TRUE(pod) << Why(pod);
  EXPECT_EQ(pod->containers.at(0).request, policy::Share(125'000));
  EXPECT_EQ(pod->containers.at(0).limit, policy::Share(600'000));
  EXPECT_EQ(pod->gang_size, 2u);
}

TEST(SharePods, WithSwapTakeTheirMemoryRequestOfAGpuAndNotTheirCap) {
  const auto child = ChildPod(
      SharePod(R"({"request": "30", "memory": "12Gi", "swap": true, "memoryRequest": "1000Mi"})"),
      256);
  ASSERT_TRUE(child) << Why(child);
  EXPECT_EQ((*child)["metadata"]["annotations"]["baton.dev/swap"], "true");
  // Else the kubelet would refuse the third pod of 60 % of a GPU.
  EXPECT_EQ((*child)["spec"]["containers"][0]["resources"]["limits"],
            Parsed(R"({"baton.dev/gpu-share": "30", "baton.dev/gpu-memory": "3"})"));
  const auto pod = ReadGpuPod(*child, 256);
  ASSERT_TRUE(pod) << Why(pod);
  EXPECT_TRUE(pod->asked.swap);
  EXPECT_EQ(pod->asked.memory_request, uint64_t{1000} << 20);
  EXPECT_EQ(pod->containers.at(0).memory.mib, 12u << 10);
  EXPECT_EQ(pod->request.containers.at(0).vgpus.at(0).memory_mib, 1000u);
  // Without a memory request it takes none of a GPU's memory.
  const auto none = ChildPod(SharePod(R"({"request": "30", "memory": "12Gi", "swap": true})"), 256);
  ASSERT_TRUE(none) << Why(none);
  EXPECT_EQ((*none)["spec"]["containers"][0]["resources"]["limits"],
            Parsed(R"({"baton.dev/gpu-share": "30"})"));
  EXPECT_EQ(ReadGpuPod(*none, 256)->request.containers.at(0).vgpus.at(0).memory_mib, 0u);
  // Saying no is saying nothing.
  const auto no = ChildPod(SharePod(R"({"request": "30", "memory": "1Gi", "swap": false})"), 256);
  ASSERT_TRUE(no) << Why(no);
  EXPECT_FALSE((*no)["metadata"]["annotations"].contains("baton.dev/swap"));
  EXPECT_EQ(ReadGpuPod(*no, 256)->request.containers.at(0).vgpus.at(0).memory_mib, 1024u);
}

TEST(SharePods, WhatSwapDoesNotGoWithIsRefused) {
  const std::map<std::string, std::string> cases{
      {R"({"request": "30", "memoryRequest": "1Gi"})", "a memory request needs swap"},
      {R"({"request": "30", "swap": true, "count": 2})", "one GPU"},
      {R"({"mode": "exclusive", "swap": true})", "needs mode time-slice"},
      {R"({"request": "30", "swap": true, "memory": "25%"})", "in bytes"},
      {R"({"request": "30", "swap": true, "gang": {"name": "g", "size": 2}})", "in no gang"},
      {R"({"request": "30", "swap": true, "memory": "1Gi", "memoryRequest": "2Gi"})", "above"},
      {R"({"request": "30", "swap": true, "memoryRequest": "a lot"})", "memory_request"},
      {R"({"request": "30", "swap": true, "memoryRequest": "17Ti"})", "than any GPU has"},
      {R"({"request": "30", "swap": "maybe"})", "must be true or false"}};
  for (const auto& [gpu, why] : cases) {
    const auto ok = CheckSharePod(SharePod(gpu.c_str()));
    ASSERT_FALSE(ok) << gpu;
    EXPECT_NE(ok.error().message.find(why), std::string::npos) << gpu << ": " << ok.error().message;
  }
}

TEST(SharePods, SwapIsFixedAndItsMemoryRequestChangesInPlace) {
  const Json before = SharePod(R"({"request": "30", "swap": true, "memoryRequest": "1Gi"})");
  const auto off = CheckSharePodChange(before, SharePod(R"({"request": "30"})"));
  ASSERT_FALSE(off);
  EXPECT_NE(off.error().message.find("spec.gpu.swap"), std::string::npos) << off.error().message;
  EXPECT_TRUE(CheckSharePodChange(SharePod(R"({"request": "30"})"),
                                  SharePod(R"({"request": "30", "swap": false})")));
  const Json after = SharePod(R"({"request": "30", "swap": true, "memoryRequest": "2Gi"})");
  EXPECT_TRUE(CheckSharePodChange(before, after));
  const auto changes = ChildChanges(after, *ChildPod(before, 256));
  ASSERT_TRUE(changes);
  EXPECT_EQ((*changes)["metadata"]["annotations"],
            Parsed(R"({"baton.dev/memory-request": "2Gi"})"));
}

TEST(SharePods, ALatencyIsAnAnnotationOfTheChildAndChangesInPlace) {
  const Json before = SharePod(R"({"request": "10"})");
  const Json after = SharePod(R"({"request": "10", "latency": "20ms"})");
  const auto pod = ReadGpuPod(ChildPod(after, 256).value(), 256);
  ASSERT_TRUE(pod) << Why(pod);
  EXPECT_EQ(pod->asked.share.latency, std::chrono::milliseconds(20));
  EXPECT_TRUE(CheckSharePodChange(before, after));
  EXPECT_TRUE(CheckSharePodChange(after, before));
  EXPECT_EQ((*ChildChanges(after, *ChildPod(before, 256)))["metadata"]["annotations"],
            Parsed(R"({"baton.dev/latency": "20ms"})"));
  EXPECT_FALSE(CheckSharePod(SharePod(R"({"request": "10", "latency": "1us"})")));
}

TEST(SharePods, LimitAloneIsAlsoTheRequest) {
  const auto limit = ReadGpuPod(ChildPod(SharePod(R"({"limit": "40"})"), 256).value(), 256);
  EXPECT_EQ(limit->containers.at(0).request, policy::Share(400'000));
  EXPECT_EQ(limit->containers.at(0).limit, policy::Share(400'000));
  const auto request = ReadGpuPod(ChildPod(SharePod(R"({"request": "40"})"), 256).value(), 256);
  EXPECT_EQ(request->containers.at(0).limit, policy::kWhole);
  const auto exclusive =
      ReadGpuPod(ChildPod(SharePod(R"({"mode": "exclusive"})"), 256).value(), 256);
  EXPECT_EQ(exclusive->containers.at(0).request, policy::kWhole);
  EXPECT_EQ(exclusive->request.mode, "exclusive");
}

TEST(SharePods, AnySpecSurvivesItsChildPod) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    Dice random(seed);
    const uint32_t unit = random.Chance(0.5) ? 256 : 1'024;
    const auto ask = [&](ContainerGpus& gpus) {
      Json gpu = Json::object();
      gpus.request = policy::Share((random.Below(1'000) + 1) * 1'000);
      const auto steps = (policy::kWhole - gpus.request) / policy::kShareMin;
      gpus.limit = gpus.request + policy::Share(random.Below(steps + 1) * 1'000);
      gpus.count = static_cast<uint32_t>(random.Below(4) + 1);
      gpu["request"] = policy::PercentText(gpus.request);
      gpu["limit"] = policy::PercentText(gpus.limit) + (random.Chance(0.5) ? "%" : "");
      if (gpus.limit == policy::kWhole) gpu.erase("limit");
      if (gpus.count > 1 || random.Chance(0.5)) gpu["count"] = gpus.count;
      switch (random.Below(3)) {
        case 0:
          gpus.memory.mib = static_cast<uint32_t>(random.Below(100'000) + 1);
          break;
        case 1:
          gpus.memory.part = policy::Share((random.Below(1'000) + 1) * 1'000);
          break;
        default:
          break;
      }
      if (gpus.memory != GpuMemory{}) gpu["memory"] = GpuMemoryText(gpus.memory);
      return gpu;
    };
    std::vector<ContainerGpus> wanted;
    Json share_pod = SharePod("{}");
    if (random.Chance(0.5)) {
      ContainerGpus gpus;
      share_pod["spec"]["gpu"] = ask(gpus);
      gpus.name = "main";
      wanted.push_back(gpus);
    } else {
      Json& containers = share_pod["spec"]["template"]["spec"]["containers"];
      for (uint32_t i = 1; i < 5; ++i) containers.push_back({{"name", "c" + std::to_string(i)}});
      for (uint32_t i = 0; i < 5; ++i) {
        if (i > 0 && random.Chance(0.5)) continue;
        ContainerGpus gpus;
        const Json gpu = ask(gpus);
        gpus.name = containers[i]["name"];
        gpus.index = i;
        wanted.push_back(gpus);
        share_pod["spec"]["containers"].push_back({{"name", gpus.name}, {"gpu", gpu}});
      }
    }
    if (random.Chance(0.3)) share_pod["spec"]["gpu"]["priority"] = "high";
    if (random.Chance(0.3)) share_pod["spec"]["gpu"]["antiAffinity"] = "x y";

    auto child = ChildPod(share_pod, unit);
    ASSERT_TRUE(child) << Why(child) << share_pod;
    EXPECT_FALSE(ChildChanges(share_pod, *child)) << "a new child is as its SharePod says";
    // What is there as a plain pod, without its owner, is what the limits say too.
    (*child)["metadata"].erase("ownerReferences");
    ASSERT_TRUE(Inject(*child, {.memory_unit_mib = unit}));
    auto read = ReadGpuPod(*child, unit);
    ASSERT_TRUE(read) << Why(read) << *child;
    for (ContainerGpus& gpus : read->containers) gpus.share_units = gpus.memory_units = 0;
    EXPECT_EQ(read->containers, wanted) << *child;
  }
}

TEST(SharePods, RefusalsNameTheFieldAndTheRemedy) {
  struct Case {
    const char* gpu;
    const char* rest;
    const char* why;
  };
  for (const Case& c : std::vector<Case>{
           {R"({"request": 130})", "{}", "spec.gpu.request: '130' is not a percentage of a GPU"},
           {R"({"request": "60", "limit": "30"})", "{}",
            "spec.gpu.limit: the limit, 30 %, is less than the request, 60 %"},
           {R"({"request": "60", "memory": 0})", "{}", "spec.gpu.memory: '0' is less than 1Mi"},
           {R"({"request": "60", "memory": "0%"})", "{}", "is not a part of a GPU's memory"},
           {R"({"request": "60", "count": 17})", "{}",
            "spec.gpu.count: '17'; write a whole number"},
           {"{}", "{}", "spec.gpu: no GPU share is set"},
           {"", "{}", "spec.gpu: no GPU share is set"},
           {R"({"request": "60", "mode": "mips"})", "{}", "spec.gpu.mode: 'mips'; write"},
           {R"({"request": "60", "mode": "exclusive"})", "{}", "mode exclusive uses whole GPUs"},
           {R"({"request": "60", "gang": {"name": "g"}})", "{}",
            "spec.gpu.gang.name: a gang requires"},
           {R"({"request": ""})", "{}", "spec.gpu.request: the value is empty"},
           {R"({"request": "60", "uuid": "GPU-1, 0"})", "{}",
            "spec.gpu.uuid: 'GPU-1, 0'; write uuids of GPUs, separated by commas"},
           {R"({"request": "60", "notUuid": ","})", "{}", "spec.gpu.notUuid: ','; write uuids"},
           {R"({"request": "60"})", R"({"template": {}})", "at least one container"},
           {R"({"request": "60"})", R"({"template": {"spec": {"containers": [{"name": "a"},
               {"name": "b"}]}}})",
            "set each one's share in spec.containers"},
           {"", R"({"containers": [{"name": "mian", "gpu": {"request": "3"}}]})",
            "did you mean 'main'?"},
           {R"({"request": "3"})", R"({"containers": [{"name": "main", "gpu": {"request": "3"}}]})",
            "set the share in one of the two"},
           {"", R"({"containers": [{"name": "main", "gpu": {"request": "3"}},
                                   {"name": "main", "gpu": {"request": "3"}}]})",
            "listed twice"},
           {"", R"({"containers": [{"name": "main", "gpu": {"request": "30", "limit": "3"}}]})",
            "spec.containers[0].gpu.limit: the limit"},
           {R"({"request": "60"})", R"({"template": {"spec": {"containers": [{"name": "a",
               "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}})",
            "requests GPUs in spec.gpu"},
           {R"({"request": "60"})", R"({"template": {"metadata": {"annotations": {
               "baton.dev/request": "3"}}, "spec": {"containers": [{"name": "a"}]}}})",
            "requests GPUs in spec.gpu"},
           {R"({"request": "60"})",
            R"({"template": {"spec": {"nodeName": "x", "containers": [{"name": "a"}]}}})",
            "Baton chooses the node"},
       }) {
    const auto checked = CheckSharePod(SharePod(c.gpu, c.rest));
    EXPECT_NE(Why(checked).find(c.why), std::string::npos)
        << c.gpu << " " << c.rest << " gave: " << Why(checked);
  }
}

TEST(SharePods, OnlySizesAndWordsMayChangeInPlace) {
  const Json before = SharePod(R"({"request": "60", "team": "a"})");
  EXPECT_TRUE(CheckSharePodChange(
      before, SharePod(R"({"request": "20", "limit": "50", "memory": "4Gi", "count": 1,
                           "priority": "high", "team": "b", "user": "c"})")));
  for (const auto& [gpu, why] : std::map<const char*, const char*>{
           {R"({"request": "60", "count": 2})",
            "spec.gpu.count: field is immutable (old value 1, new value 2); delete"},
           {R"({"request": "60", "model": "H100"})", "spec.gpu.model: field is immutable"},
           {R"({"request": "60", "mode": "exclusive"})", "(old value not set, new value"},
           {R"({"request": "60", "gang": {"name": "g", "size": 2}})", "spec.gpu.gang.name"}}) {
    EXPECT_NE(Why(CheckSharePodChange(before, SharePod(gpu))).find(why), std::string::npos)
        << Why(CheckSharePodChange(before, SharePod(gpu)));
  }
  Json other = before;
  other["spec"]["template"]["spec"]["containers"][0]["image"] = "y";
  EXPECT_EQ(Why(CheckSharePodChange(before, other)), "");
  // By which its pod is known to be of another template; of nothing else.
  const auto hash = [](const Json& share_pod) {
    return ChildPod(share_pod, 256).value()["metadata"]["annotations"]["baton.dev/template-hash"];
  };
  EXPECT_NE(hash(other), hash(before));
  EXPECT_EQ(hash(SharePod(R"({"request": "20"})")), hash(before));
}

TEST(SharePods, MayNameAnotherScheduler) {
  Json share_pod = SharePod(R"({"request": "60"})");
  EXPECT_EQ(ChildPod(share_pod, 256).value()["spec"]["schedulerName"], "baton");
  for (const char* name : {"gpus", "default-scheduler"}) {
    share_pod["spec"]["template"]["spec"]["schedulerName"] = name;
    EXPECT_EQ(ChildPod(share_pod, 256).value()["spec"]["schedulerName"],
              std::string(name) == "gpus" ? "gpus" : "baton");
  }
}

TEST(SharePods, ChangesAreAPatchOfTheChild) {
  const Json before = SharePod(R"({"request": "60", "memory": "4Gi", "team": "a"})");
  Json child = ChildPod(before, 256).value();
  const Json after = SharePod(R"({"request": "20", "limit": "50", "priority": "high"})");
  const auto changes = ChildChanges(after, child);
  ASSERT_TRUE(changes);
  EXPECT_EQ(*changes, Parsed(R"({"metadata": {"annotations": {
      "main.container.baton.dev/request": "20", "main.container.baton.dev/limit": "50",
      "main.container.baton.dev/memory": null, "baton.dev/priority": "high",
      "baton.dev/team": null}}})"));
  child.merge_patch(*changes);
  EXPECT_FALSE(ChildChanges(after, child));
  const auto read = ReadGpuPod(child, 256);
  ASSERT_TRUE(read) << Why(read);
  EXPECT_EQ(read->containers[0].request, policy::Share(200'000));
  EXPECT_EQ(read->containers[0].share_units, 60u) << "the kubelet counts as before";
}

TEST(SharePods, ConditionsKeepTheTimeOfTheirLastTransition) {
  Json status;
  EXPECT_TRUE(SetCondition(status, {"Placed", false, "NoRoom", "no GPU has 30 %"}, 1, "t1"));
  EXPECT_FALSE(SetCondition(status, {"Placed", false, "NoRoom", "no GPU has 30 %"}, 1, "t2"));
  EXPECT_TRUE(SetCondition(status, {"Placed", false, "NoRoom", "another reason"}, 1, "t3"));
  EXPECT_EQ(status["conditions"][0]["lastTransitionTime"], "t1");
  EXPECT_TRUE(SetCondition(status, {"Placed", true, "Placed", ""}, 2, "t4"));
  EXPECT_TRUE(SetCondition(status, {"Bound", false, "Waiting", ""}, 2, "t5"));
  EXPECT_EQ(status["conditions"][0]["lastTransitionTime"], "t4");
  EXPECT_EQ(status["conditions"][0]["observedGeneration"], 2);
  EXPECT_TRUE(SetCondition(status, {"Attached", false, "NoProcess", ""}, std::nullopt, "t6"));
  EXPECT_FALSE(status["conditions"][2].contains("observedGeneration"));
  EXPECT_EQ(status["conditions"].size(), 3u);
}

}  // namespace
}  // namespace baton::k8s::testing
