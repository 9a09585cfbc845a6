// What flavors write into pods and SharePods.
#include "k8s/types/flavors.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "k8s/binder/gpu_metrics.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/inject.h"
#include "k8s/types/share_pod.h"
#include "tests/devmgr/small_cluster.h"

namespace baton::k8s {
namespace {

spec::Flavors Offered() {
  return *ParseFlavors(
      {"small=request=10,memory=4Gi", "medium=request=25,limit=50,memory=16Gi", "strict=limit=20"});
}

Json SharePodOfFlavor(const Json& gpu) {
  return {{"metadata", {{"name", "a"}, {"namespace", "ml"}}},
          {"spec",
           {{"gpu", gpu},
            {"template", {{"spec", {{"containers", {{{"name", "main"}, {"image", "x"}}}}}}}}}}};
}

Json Filled(const Json& gpu, const Json& before = Json()) {
  Json share_pod = SharePodOfFlavor(gpu);
  const auto done =
      FillInSharePod(Offered(), before.is_null() ? Json() : SharePodOfFlavor(before), share_pod);
  EXPECT_TRUE(done) << done.error().message;
  return share_pod["spec"]["gpu"];
}

TEST(FlavorOfASharePod, FillsInWhatItDoesNotSay) {
  EXPECT_EQ(Filled({{"flavor", "small"}}),
            Json({{"flavor", "small"}, {"request", "10"}, {"limit", "100"}, {"memory", "4Gi"}}));
  EXPECT_EQ(Filled({{"flavor", "small"}, {"memory", "8Gi"}, {"limit", 30}}),
            Json({{"flavor", "small"}, {"request", "10"}, {"limit", 30}, {"memory", "8Gi"}}));
  EXPECT_EQ(Filled({{"flavor", "strict"}}),
            Json({{"flavor", "strict"}, {"request", "20"}, {"limit", "20"}}));
  EXPECT_EQ(Filled({{"request", "30"}}), Json({{"request", "30"}}));
  const Json filled = SharePodOfFlavor(Filled({{"flavor", "medium"}}));
  EXPECT_TRUE(CheckSharePod(filled));
  EXPECT_EQ(ReadGpuPod(*ChildPod(filled, 256), 256)->containers[0].request, policy::Share(250'000));
}

TEST(FlavorOfASharePod, AnotherOneReplacesWhatTheChangeDoesNotTouch) {
  const Json small = Filled({{"flavor", "small"}});
  Json patched = small;
  patched["flavor"] = "medium";  // kubectl patch
  EXPECT_EQ(Filled(patched, small),
            Json({{"flavor", "medium"}, {"request", "25"}, {"limit", "50"}, {"memory", "16Gi"}}));
  patched["memory"] = "8Gi";
  EXPECT_EQ(Filled(patched, small).at("memory"), "8Gi") << "it was said in the same change";
  // The same flavor: what is said stays, what was removed comes back.
  Json other = small;
  other["request"] = "40";
  EXPECT_EQ(Filled(other, small), other);
  EXPECT_EQ(Filled({{"flavor", "small"}}, small), small);
}

TEST(FlavorOfASharePod, ThatIsNotOfferedIsRefusedOnceSomethingIsToBeFilledIn) {
  Json share_pod = SharePodOfFlavor({{"flavor", "smal"}});
  const auto refused = FillInSharePod(Offered(), Json(), share_pod);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "spec.gpu.flavor: there is no flavor 'smal'; did you mean 'small'?");
  // The operator has taken it back since.
  share_pod = SharePodOfFlavor(Filled({{"flavor", "small"}}));
  const Json before = share_pod;
  EXPECT_TRUE(FillInSharePod({}, before, share_pod));
  EXPECT_EQ(share_pod, before);
  // And without a webhook nobody has filled it in.
  const auto wrong = CheckSharePod(SharePodOfFlavor({{"flavor", "small"}}));
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("spec.gpu.flavor: 'small' is not offered"),
            std::string::npos);
  share_pod = SharePodOfFlavor({{"flavor", "small"}, {"mode", "exclusive"}});
  EXPECT_NE(FillInSharePod(Offered(), Json(), share_pod).error().message.find("mode exclusive"),
            std::string::npos);
}

TEST(FlavorOfASharePod, IsOfEachContainer) {
  Json share_pod = SharePodOfFlavor({{"team", "t"}});
  share_pod["spec"]["containers"] = {{{"name", "main"}, {"gpu", {{"flavor", "small"}}}},
                                     {{"name", "eval"}, {"gpu", {{"flavor", "xxl"}}}}};
  const auto refused = FillInSharePod(Offered(), Json(), share_pod);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message.find("spec.containers[1].gpu.flavor: there is no"), 0u);
  EXPECT_EQ(share_pod["spec"]["containers"][0]["gpu"]["request"], "10");
}

Json PodOfFlavor(const Json& annotations, const Json& limits = Json::object()) {
  return {{"metadata", {{"name", "a"}, {"namespace", "ml"}, {"annotations", annotations}}},
          {"spec",
           {{"containers",
             {{{"name", "main"}, {"image", "x"}, {"resources", {{"limits", limits}}}}}}}}};
}

TEST(FlavorOfAPod, MakesItAskForAShare) {
  InjectOptions options;
  options.flavors = Offered();
  Json pod = PodOfFlavor({{"baton.dev/flavor", "medium"}});
  const auto injected = Inject(pod, options);
  ASSERT_TRUE(injected && *injected) << injected.error().message;
  const auto read = ReadGpuPod(pod, 256);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->containers.size(), 1u);
  EXPECT_EQ(read->containers[0].request, policy::Share(250'000));
  EXPECT_EQ(read->containers[0].limit, policy::Share(500'000));
  EXPECT_EQ(read->containers[0].memory.mib, 16'384u);
  EXPECT_EQ(read->containers[0].share_units, 25u);
  EXPECT_EQ(read->containers[0].memory_units, 64u);
  // Again, as the API server does where another webhook has changed the pod.
  Json again = pod;
  ASSERT_TRUE(Inject(again, options));
  EXPECT_EQ(again, pod);
}

TEST(FlavorOfAPod, LetsThePodSayMore) {
  const auto read = [](const Json& annotations, const Json& limits) {
    Json pod = PodOfFlavor(annotations, limits);
    const auto filled = FillInPod(Offered(), 256, pod);
    EXPECT_TRUE(filled) << filled.error().message;
    auto gpu = ReadGpuPod(pod, 256);
    EXPECT_TRUE(gpu) << gpu.error().message;
    return gpu && gpu->asks() ? gpu->containers[0] : ContainerGpus{};
  };
  ContainerGpus gpus = read({{"baton.dev/flavor", "small"}}, {{"baton.dev/gpu-share", "30"}});
  EXPECT_EQ(gpus.request, policy::Share(300'000));
  EXPECT_EQ(gpus.memory.mib, 4'096u);
  gpus = read({{"baton.dev/flavor", "small"}, {"baton.dev/request", "12.5"}}, Json::object());
  EXPECT_EQ(gpus.request, policy::Share(125'000));
  EXPECT_EQ(gpus.share_units, 12u);
  gpus = read({{"baton.dev/flavor", "small"}, {"baton.dev/count", "2"}}, Json::object());
  EXPECT_EQ(gpus.count, 2u);
  EXPECT_EQ(gpus.share_units, 20u);
  EXPECT_EQ(gpus.memory_units, 32u);
  gpus = read({{"baton.dev/flavor", "small"},
               {"baton.dev/swap", "true"},
               {"baton.dev/memory-request", "1Gi"}},
              Json::object());
  EXPECT_EQ(gpus.memory.mib, 4'096u);
  EXPECT_EQ(gpus.memory_units, 0u) << "limits say the memory request";
}

TEST(FlavorOfAPod, IsOfTheContainerThatAsks) {
  Json pod = PodOfFlavor({{"baton.dev/flavor", "small"}});
  pod["spec"]["containers"].push_back({{"name", "proxy"}, {"image", "x"}});
  auto refused = FillInPod(Offered(), 256, pod);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("proxy.container.baton.dev/flavor"), std::string::npos)
      << refused.error().message;
  pod = PodOfFlavor({{"main.container.baton.dev/flavor", "small"}});
  pod["spec"]["containers"].push_back({{"name", "proxy"}, {"image", "x"}});
  ASSERT_TRUE(FillInPod(Offered(), 256, pod));
  EXPECT_EQ(ReadGpuPod(pod, 256)->containers.at(0).name, "main");
  EXPECT_FALSE(pod["spec"]["containers"][1].contains("resources"));
  pod = PodOfFlavor({{"baton.dev/flavor", "smal"}});
  refused = FillInPod(Offered(), 256, pod);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message.find(
                "metadata.annotations[baton.dev/flavor]: there is no flavor 'smal'"),
            0u);
  pod = PodOfFlavor({{"baton.dev/flavor", "small"}}, {{"nvidia.com/gpu", "1"}});
  refused = FillInPod(Offered(), 256, pod);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("whole GPUs"), std::string::npos);
}

// Whatever the objects are, nothing throws.
TEST(Flavors, SurviveOddObjects) {
  for (const char* text :
       {"null", "5", "[]", R"({"spec": 5})", R"({"spec": {"gpu": 5, "containers": [5, {}]}})",
        R"({"metadata": {"annotations": {"baton.dev/flavor": "small"}}})",
        R"({"metadata": {"annotations": {"baton.dev/flavor": "small"}},
            "spec": {"containers": [5, {"resources": 7}]}})"}) {
    Json object = Json::parse(text);
    (void)FillInSharePod(Offered(), Json::parse(text), object);
    (void)FillInPod(Offered(), 256, object);
  }
}

TEST(Flavors, AreReadFromFlags) {
  const auto why = [](const std::vector<std::string>& texts) {
    const auto read = ParseFlavors(texts);
    return read ? "" : read.error().message;
  };
  EXPECT_EQ(why({"a=request=10,limit=20,memory=25%", "b=limit=5"}), "");
  EXPECT_NE(why({"a"}).find("needs a request or a limit"), std::string::npos);
  EXPECT_NE(why({"a=10"}).find("write such as small=request=10,memory=4Gi"), std::string::npos);
  EXPECT_NE(why({"a=request=10", "a=request=20"}).find("listed twice"), std::string::npos);
}

TEST(Flavors, AreReadAsTheyAreWritten) {
  const std::string text = FlavorsText(Offered());
  EXPECT_EQ(text,
            "medium=request=25,limit=50,memory=16Gi;small=request=10,limit=100,memory=4Gi;"
            "strict=request=20,limit=20");
  EXPECT_EQ(FlavorsText(*ReadFlavorsText(text)), text);
  EXPECT_TRUE(ReadFlavorsText("")->empty());
  EXPECT_FALSE(ReadFlavorsText("small=request=10;;"));
}

TEST(Flavors, AreCountedForPrometheus) {
  devmgr::Cluster cluster(devmgr::SmallModes());
  ASSERT_TRUE(cluster.SetNode(devmgr::NodeOf("n1", 2)));  // of 10 000 MiB each
  EXPECT_EQ(FlavorMetrics(cluster, Offered()),
            "# HELP baton_binder_flavor_fit Pods of this flavor that would fit now.\n"
            "# TYPE baton_binder_flavor_fit gauge\n"
            "baton_binder_flavor_fit{flavor=\"medium\"} 0\n"
            "baton_binder_flavor_fit{flavor=\"small\"} 4\n"
            "baton_binder_flavor_fit{flavor=\"strict\"} 10\n");
  EXPECT_EQ(FlavorMetrics(cluster, {}), "");
}

}  // namespace
}  // namespace baton::k8s
