// Quantities, and pods as Baton reads them.
#include "k8s/types/gpu_pod.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "k8s/types/annotations.h"
#include "k8s/types/gpu_node.h"
#include "k8s/types/inject.h"
#include "k8s/types/quantity.h"
#include "k8s/types/share_pod.h"
#include "tests/k8s/types/fixture.h"

namespace baton::k8s::testing {
namespace {

TEST(Quantity, ReadsWhatKubernetesWrites) {
  const std::map<std::string, int64_t> milli{
      {"0", 0},          {"1", 1'000},       {"500m", 500}, {"0.5", 500},      {"1.5e3", 1'500'000},
      {"1e-3", 1},       {"1n", 1},          {"1500u", 2},  {"2k", 2'000'000}, {"0.0001", 1},
      {"+3", 3'000},     {"1E3", 1'000'000}, {"5.", 5'000}, {".5", 500},       {"1e+2", 100'000},
      {"000012", 12'000}};
  for (const auto& [text, value] : milli) {
    EXPECT_EQ(MilliQuantity(text).value_or(-1), value) << text;
  }
  const std::map<std::string, int64_t> whole{{"4Gi", int64_t{4} << 30},
                                             {"1.5Gi", int64_t{3} << 29},
                                             {"0.1Ki", 103},
                                             {"1k", 1'000},
                                             {"1m", 1},
                                             {"9223372036854775807", INT64_MAX},
                                             {"99999999999999999999999", INT64_MAX},
                                             {"1E", 1'000'000'000'000'000'000},
                                             {"8Ei", INT64_MAX},
                                             {"1e999", INT64_MAX},
                                             {"0.00000000000000000000000000001Ei", 1},
                                             {"0e999", 0},
                                             {"1000000000000000001e-18", 2}};
  for (const auto& [text, value] : whole) {
    EXPECT_EQ(WholeQuantity(text).value_or(-1), value) << text;
  }
  EXPECT_EQ(WholeQuantity(Json(7)).value_or(-1), 7);
  EXPECT_EQ(MilliQuantity(Json(0.25)).value_or(-1), 250);
  for (const char* text : {"", "-1", "x", "1x", "Gi", "1 Gi", "1e", "1e99999", "1.2.3", "0x10", ".",
                           "1gi", "--1", "+-1", "1e--1"}) {
    EXPECT_FALSE(MilliQuantity(text)) << text;
  }
  EXPECT_FALSE(MilliQuantity(Parsed("{}")));
  EXPECT_FALSE(MilliQuantity(Parsed("true")));
}

TEST(Quantity, PercentsHaveOneDecimalAndPrintAsWritten) {
  for (uint32_t tenths = 1; tenths <= 1'000; ++tenths) {
    const std::string text = policy::PercentText(policy::kShareMin * tenths);
    EXPECT_EQ(ParsePercent(text).value_or(policy::Share(0)), policy::kShareMin * tenths) << text;
    EXPECT_EQ(ParsePercent(text + "%").value_or(policy::Share(0)), policy::kShareMin * tenths)
        << text;
  }
  EXPECT_EQ(policy::PercentText(policy::Share(125'000)), "12.5");
  EXPECT_EQ(policy::PercentText(policy::kWhole), "100");
  EXPECT_EQ(ParsePercent("12.50").value(), policy::Share(125'000));
  for (const char* text : {"", "0", "0.0", "130", "100.1", "12.55", "-5", "5 %", "%", "1e1", "030",
                           ".5", "5.", "NaN", "1000"}) {
    EXPECT_FALSE(ParsePercent(text)) << text;
  }
  EXPECT_EQ(
      Why(ParsePercent("130")),
      "'130' is not a percentage of a GPU; write 0.1 to 100 in steps of 0.1, such as \"30\" or "
      "\"12.5\"");
}

TEST(Quantity, GpuMemoryIsASizeOrAPartOfTheGpu) {
  EXPECT_EQ(ParseGpuMemory("4Gi").value(), (GpuMemory{4'096, {}}));
  EXPECT_EQ(ParseGpuMemory("1.1Mi").value(), (GpuMemory{2, {}}));
  EXPECT_EQ(ParseGpuMemory("25%").value(), (GpuMemory{0, policy::Share(250'000)}));
  for (const char* text : {"0", "4", "0%", "101%", "17Ti", "x", "500m"}) {
    EXPECT_FALSE(ParseGpuMemory(text)) << text;
  }
  for (const GpuMemory& memory :
       {GpuMemory{1'500, {}}, GpuMemory{2'048, {}}, GpuMemory{0, policy::kShareMin}}) {
    EXPECT_EQ(ParseGpuMemory(GpuMemoryText(memory)).value(), memory);
  }
  EXPECT_EQ(GpuMemoryText({}), "");
}

TEST(GpuPod, LimitsAloneAreAnElasticRequest) {
  const auto pod =
      ReadGpuPod(GpuPodJson(R"({"baton.dev/gpu-share": "30", "baton.dev/gpu-memory": 16})"), 256);
  ASSERT_TRUE(pod) << Why(pod);
  ASSERT_EQ(pod->containers.size(), 1u);
  const ContainerGpus& gpus = pod->containers[0];
  EXPECT_EQ(gpus.request, policy::Share(300'000));
  EXPECT_EQ(gpus.limit, policy::kWhole);
  EXPECT_EQ(gpus.memory, (GpuMemory{4'096, {}}));
  EXPECT_EQ(gpus.count, 1u);
  EXPECT_EQ(gpus.share_units, 30u);
  EXPECT_EQ(gpus.memory_units, 16u);
  EXPECT_EQ(pod->request.name, "n/p");
  EXPECT_EQ(pod->request.mode, "time-slice");
  ASSERT_EQ(pod->request.containers.size(), 1u);
  EXPECT_EQ(pod->request.containers[0].vgpus.at(0).share, policy::Share(300'000));
}

TEST(GpuPod, AnnotationsGiveExactValues) {
  const auto pod =
      ReadGpuPod(GpuPodJson(R"({"baton.dev/gpu-share": 26, "baton.dev/gpu-memory": 8})", R"({
      "baton.dev/request": "12.5", "baton.dev/limit": "60", "baton.dev/memory": "1000Mi",
      "baton.dev/count": "2", "baton.dev/priority": "high", "baton.dev/team": "research/vision",
      "baton.dev/user": "user-a", "baton.dev/model": "H100, A100 80GB", "baton.dev/not-model": "T4",
      "baton.dev/gpu-uuid": "GPU-1,GPU-2 , GPU-3", "baton.dev/not-gpu-uuid": "GPU-4",
      "baton.dev/affinity": "a", "baton.dev/anti-affinity": "b", "baton.dev/exclusion": "c",
      "baton.dev/gang": "g", "baton.dev/gang-size": "4", "baton.dev/away": "open"})"),
                 256);
  ASSERT_TRUE(pod) << Why(pod);
  const ContainerGpus& gpus = pod->containers.at(0);
  EXPECT_EQ(gpus.request, policy::Share(125'000));
  EXPECT_EQ(gpus.limit, policy::Share(600'000));
  EXPECT_EQ(gpus.memory.mib, 1'000u);
  EXPECT_EQ(gpus.count, 2u);
  EXPECT_EQ(pod->asked.share.priority, policy::Priority::kHigh);
  EXPECT_EQ(pod->gang, "g");
  EXPECT_EQ(pod->gang_size, 4u);
  EXPECT_EQ(pod->request.gang, pod->name.name_space + "/g");
  EXPECT_EQ(pod->asked.team, "research/vision");
  EXPECT_EQ(pod->request.models, (std::vector<std::string>{"H100", "A100 80GB"}));
  EXPECT_EQ(pod->request.not_models, (std::vector<std::string>{"T4"}));
  EXPECT_EQ(pod->request.uuids, (std::vector<std::string>{"GPU-1", "GPU-2", "GPU-3"}));
  EXPECT_EQ(pod->request.not_uuids, (std::vector<std::string>{"GPU-4"}));
  EXPECT_EQ(pod->request.affinity + pod->request.anti_affinity + pod->request.exclusion, "abc");
  EXPECT_EQ(pod->request.containers.at(0).vgpus.at(0).count, 2u);
}

TEST(GpuPod, LimitsMayRoundTheExactValueEitherWay) {
  const auto accepts = [](int share, int memory, const char* annotations) {
    const std::string limits =
        "{\"baton.dev/gpu-share\": " + std::to_string(share) +
        (memory > 0 ? ", \"baton.dev/gpu-memory\": " + std::to_string(memory) : "") + "}";
    const auto pod = ReadGpuPod(GpuPodJson(limits.c_str(), annotations), 256);
    return pod && pod->containers.at(0).share_units == static_cast<uint32_t>(share) &&
           pod->containers.at(0).memory_units == static_cast<uint32_t>(memory);
  };
  const char* eighth = R"({"baton.dev/request": "12.5", "baton.dev/memory": "1000Mi"})";
  for (int share = 11; share <= 14; ++share) {
    for (int memory = 2; memory <= 5; ++memory) {
      EXPECT_EQ(accepts(share, memory, eighth),
                (share == 12 || share == 13) && (memory == 3 || memory == 4))
          << share << " " << memory;
    }
  }
  const char* pair = R"({"baton.dev/request": "12.5", "baton.dev/count": "2"})";
  for (int share = 23; share <= 27; ++share) {
    EXPECT_EQ(accepts(share, 0, pair), share >= 24 && share <= 26) << share;
  }
  // Exact is exact, and less than 1 is 1.
  EXPECT_TRUE(accepts(30, 0, R"({"baton.dev/request": "30"})"));
  EXPECT_FALSE(accepts(29, 0, R"({"baton.dev/request": "30"})"));
  EXPECT_TRUE(accepts(1, 1, R"({"baton.dev/request": "0.1", "baton.dev/memory": "1Mi"})"));
}

TEST(GpuPod, EachContainerAsksForItself) {
  Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 20})", R"({
      "side.container.baton.dev/request": "7.5", "baton.dev/limit": "50"})");
  pod["spec"]["containers"].push_back({{"name", "plain"}});
  pod["spec"]["containers"].push_back(
      {{"name", "side"}, {"resources", {{"limits", {{"baton.dev/gpu-share", "8"}}}}}});
  pod["spec"]["initContainers"] = {
      {{"name", "warm"}, {"resources", {{"limits", {{"baton.dev/gpu-share", "10"}}}}}}};
  const auto read = ReadGpuPod(pod, 256);
  ASSERT_TRUE(read) << Why(read);
  ASSERT_EQ(read->containers.size(), 3u);
  EXPECT_EQ(read->containers[0].name, "warm");
  EXPECT_EQ(read->containers[0].index, 0u);
  EXPECT_EQ(read->containers[1].index, 1u);
  EXPECT_EQ(read->containers[2].name, "side");
  EXPECT_EQ(read->containers[2].index, 3u);
  EXPECT_EQ(read->containers[2].request, policy::Share(75'000));
  EXPECT_EQ(read->containers[2].limit, policy::Share(500'000));
}

TEST(GpuPod, WholeGpusAreOfModeExclusive) {
  const auto pod = ReadGpuPod(GpuPodJson(R"({"nvidia.com/gpu": 2})"), 256);
  ASSERT_TRUE(pod) << Why(pod);
  EXPECT_TRUE(pod->containers.at(0).whole);
  EXPECT_EQ(pod->containers.at(0).count, 2u);
  EXPECT_EQ(pod->request.mode, "exclusive");
  EXPECT_EQ(pod->request.containers.at(0).vgpus.at(0).share, policy::kWhole);
  EXPECT_FALSE(ReadGpuPod(GpuPodJson(R"({"nvidia.com/gpu": 0})"), 256)->asks());
  EXPECT_FALSE(ReadGpuPod(GpuPodJson("{}"), 256)->asks());
}

TEST(GpuPod, RefusalsNameTheFieldAndTheRemedy) {
  struct Case {
    const char* limits;
    const char* annotations;
    const char* why;
  };
  for (const Case& c : std::vector<Case>{
           {R"({"baton.dev/gpu-share": 130})", "{}",
            "spec.containers[main].resources.limits[baton.dev/gpu-share]: '130' percent is more "
            "than one GPU; set at most 100"},
           {R"({"baton.dev/gpu-share": 0})", "{}", "'0' percent of a GPU; set at least 1"},
           {R"({"baton.dev/gpu-share": "12.5"})", "{}",
            "'12.5' is not a whole number; round it and set the exact value in annotation "
            "baton.dev/request"},
           {R"({"baton.dev/gpu-share": "many"})", "{}", "'many' is not a quantity"},
           {R"({"baton.dev/gpu-memory": 4})", "{}", "GPU memory requires a GPU share"},
           {R"({"baton.dev/gpu-share": 30, "baton.dev/gpu-memory": 0})", "{}",
            "'0' of GPU memory; set at least 1"},
           {R"({"baton.dev/gpu-share": 30, "nvidia.com/gpu": 1})", "{}",
            "requests both whole GPUs and a share"},
           {R"({"nvidia.com/gpu": 17})", "{}", "'17' GPUs; at most 16"},
           {R"({"nvidia.com/gpu": 1})", R"({"baton.dev/memory": "4Gi"})",
            "which do not support this"},
           {R"({"nvidia.com/gpu": 1})", R"({"baton.dev/mode": "time-slice"})",
            "but nvidia.com/gpu requests whole GPUs"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/request": "130"})",
            "metadata.annotations[baton.dev/request]: '130' is not a percentage"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/request": "12.5"})",
            "'30', but annotation baton.dev/request requests 12.5 % of 1 GPU; set this limit to "
            "12"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/limit": "20"})",
            "the limit, 20 %, is less than the request, 30 %"},
           {R"({"baton.dev/gpu-share": 31})", R"({"baton.dev/count": "2"})", "set a multiple of 2"},
           {R"({"baton.dev/gpu-share": 31})", R"({"baton.dev/count": "17"})",
            "write a whole number from 1 to 16"},
           {R"({"baton.dev/gpu-share": 30, "baton.dev/gpu-memory": 5})",
            R"({"baton.dev/memory": "1Gi"})", "set this limit to 4 (units of 256 MiB)"},
           {R"({"baton.dev/gpu-share": 30, "baton.dev/gpu-memory": 5})",
            R"({"baton.dev/memory": "10%"})", "remove this limit"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/memory": "0"})", "less than 1Mi"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/priority": "hihg"})",
            "write normal or low or high or idle; did you mean 'high'?"},
           {R"({"nvidia.com/gpu": 1})", R"({"baton.dev/priority": "idle"})",
            "metadata.annotations[baton.dev/priority]: 'idle', which is for pods that share one "
            "GPU"},
           {R"({"baton.dev/gpu-share": 30})",
            R"({"baton.dev/priority": "idle", "baton.dev/count": "2"})", "and one GPU"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/latency": "11s"})",
            "metadata.annotations[baton.dev/latency]: latency must be from 1ms to 10s"},
           {R"({"nvidia.com/gpu": 1})", R"({"baton.dev/latency": "20ms"})",
            "metadata.annotations[baton.dev/latency]: a latency needs mode time-slice"},
           {R"({"baton.dev/gpu-share": 30})",
            R"({"baton.dev/latency": "20ms", "baton.dev/priority": "idle"})",
            "a pod of idle priority has no latency"},
           {R"({"baton.dev/gpu-share": 30})",
            R"({"baton.dev/latency": "20ms", "baton.dev/count": "2"})", "has one GPU"},
           {R"({"baton.dev/gpu-share": 30})",
            R"({"baton.dev/latency": "20ms", "baton.dev/gang": "g", "baton.dev/gang-size": "2"})",
            "in no gang"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/mode": "mips"})",
            "write time-slice or mig or mps or exclusive"},
           {R"({"baton.dev/gpu-share": 30})",
            R"({"baton.dev/mode": "mig", "baton.dev/count": "2"})",
            "in mode mig a container has a part of one GPU"},
           {R"({"nvidia.com/gpu": 1})", R"({"baton.dev/mode": "mig"})",
            "'mig', but nvidia.com/gpu requests whole GPUs"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/mode": "exclusive"})",
            "mode exclusive uses whole GPUs"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/gang": "g"})",
            "a gang requires its size"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/gang-size": "3"})",
            "a gang size requires the gang's name"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/model": " , "})",
            "write GPU models, separated by commas"},
           {R"({"baton.dev/gpu-share": 30})", "{\"baton.dev/team\": \"a\\nb\"}",
            "one line of UTF-8"},
       }) {
    const auto read = ReadGpuPod(GpuPodJson(c.limits, c.annotations), 256);
    EXPECT_NE(Why(read).find(c.why), std::string::npos)
        << c.limits << " " << c.annotations << " gave: " << Why(read);
  }
}

TEST(GpuPod, AnnotationsOfABoundPodOverrideItsLimits) {
  Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 60, "baton.dev/gpu-memory": 16})",
                        R"({"baton.dev/request": "20", "baton.dev/memory": "1Gi"})");
  EXPECT_FALSE(ReadGpuPod(pod, 256));
  pod["spec"]["nodeName"] = "n1";
  const auto read = ReadGpuPod(pod, 256);
  ASSERT_TRUE(read) << Why(read);
  EXPECT_EQ(read->containers[0].request, policy::Share(200'000));
  EXPECT_EQ(read->containers[0].memory.mib, 1'024u);
  EXPECT_EQ(read->containers[0].share_units, 60u);
  EXPECT_EQ(read->containers[0].memory_units, 16u);
}

TEST(GpuPod, NeedsTheGreaterOfContainersAndInitContainers) {
  const auto needs = ResourcesOf(Parsed(R"({"spec": {
      "containers": [
        {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
        {"resources": {"limits": {"cpu": 1, "memory": "100Mi"}}}, {}],
      "initContainers": [
        {"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
        {"resources": {"requests": {"cpu": "2", "memory": "10Mi"}}}],
      "overhead": {"cpu": "1m", "memory": "1"}}})"));
  EXPECT_EQ(needs.cpu_milli, 2'101u);
  EXPECT_EQ(needs.memory_mib, 1'125u);
}

TEST(GpuPod, PlacementSurvivesItsAnnotations) {
  Json json = GpuPodJson(R"({"baton.dev/gpu-share": 60})", R"({"baton.dev/count": "2"})");
  json["spec"]["containers"].push_back(
      {{"name", "side"}, {"resources", {{"limits", {{"baton.dev/gpu-share", "10"}}}}}});
  Json& annotations = json["metadata"]["annotations"];
  annotations["side.container.baton.dev/count"] = "1";
  const auto pod = ReadGpuPod(json, 256);
  ASSERT_TRUE(pod) << Why(pod);
  EXPECT_FALSE(ReadPlacement(json)->has_value());
  devmgr::Placement placement{
      "n1",
      {{0, 0, "GPU-a", "time-slice", {policy::Share(300'000), 512, 0, 0}, {}},
       {0, 0, "GPU-b", "time-slice", {policy::Share(300'000), 512, UINT64_MAX, 7}, {}},
       {1, 0, "GPU-a", "time-slice", {policy::Share(100'000), 0, 0, 0}, {}}}};
  for (const auto& [key, text] : PlacementAnnotations(*pod, placement, *pod))
    annotations[key] = text;
  EXPECT_EQ(annotations["main.container.baton.dev/visible-devices"], "GPU-a,GPU-b");
  EXPECT_EQ(annotations["side.container.baton.dev/visible-devices"], "GPU-a");
  const auto read = ReadPlacement(json);
  ASSERT_TRUE(read) << Why(read);
  EXPECT_EQ(*read, placement);
  EXPECT_EQ(ParsePlacement(PlacementText(*pod, placement)).value(), placement);
  annotations["baton.dev/placement"] = "{";
  EXPECT_NE(Why(ReadPlacement(json)).find("damaged"), std::string::npos);
}

// An instance has a fixed size and no tokens: who asks for what these give takes turns.
TEST(GpuPod, ModeIsOpenWhereItSaysSoAndNothingSpeaksAgainst) {
  const auto mode = [](const std::string& annotations,
                       const char* limits = R"({"baton.dev/gpu-share": 30})") {
    const auto pod = ReadGpuPod(GpuPodJson(limits, ("{" + annotations + "}").c_str()), 256);
    EXPECT_TRUE(pod) << Why(pod);
    return pod ? pod->request.mode + (pod->mode_is_auto ? "+" : "") : "";
  };
  EXPECT_EQ(mode(""), "time-slice");
  EXPECT_EQ(mode(R"("baton.dev/mode": "auto")"), "+");
  EXPECT_EQ(mode(R"("baton.dev/mode": "auto", "baton.dev/memory": "8Gi")"), "+");
  for (const char* wish :
       {R"("baton.dev/priority": "high")", R"("baton.dev/priority": "idle")",
        R"("baton.dev/limit": "60")", R"("baton.dev/latency": "20ms")",
        R"("baton.dev/gang": "g", "baton.dev/gang-size": "2")",
        R"("baton.dev/swap": "true", "baton.dev/memory": "8Gi", "baton.dev/memory-request": "1Gi")",
        R"("baton.dev/count": "2")"}) {
    EXPECT_EQ(mode(R"("baton.dev/mode": "auto", )" + std::string(wish)), "time-slice+") << wish;
  }
  EXPECT_EQ(mode(R"("baton.dev/mode": "auto")", R"({"nvidia.com/gpu": 1})"), "exclusive");
}

TEST(GpuPod, ATicketComesWithAPlaceByTurnsWhereTheModeWasOpen) {
  Json json = GpuPodJson(R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/mode": "auto"})");
  json["metadata"]["uid"] = "u1";
  json["spec"]["containers"].push_back(
      {{"name", "side"}, {"resources", {{"limits", {{"baton.dev/gpu-share", "10"}}}}}});
  const auto pod = ReadGpuPod(json, 256);
  ASSERT_TRUE(pod) << Why(pod);
  const devmgr::Placement placement{
      "n1",
      {{0, 0, "GPU-a", "mig", {policy::Share(300'000), 512, 3, 1}, "MIG-1"},
       {1, 0, "GPU-b", "time-slice", {policy::Share(100'000), 0, 0, 0}, {}}}};
  const auto said = [&](const GpuPod& made) {
    std::map<std::string, std::string> annotations;
    for (const auto& [key, text] : PlacementAnnotations(*pod, placement, made))
      annotations[key] = text;
    return annotations;
  };
  auto annotations = said(*pod);
  EXPECT_EQ(annotations.count("main.container.baton.dev/ticket"), 0u);
  EXPECT_EQ(annotations["main.container.baton.dev/visible-devices"], "MIG-1");
  EXPECT_EQ(annotations["side.container.baton.dev/ticket"], "u1/side");
  // A pod of before has it in its environment.
  json["metadata"]["annotations"].erase("baton.dev/mode");
  EXPECT_EQ(said(ReadGpuPod(json, 256).value()).count("side.container.baton.dev/ticket"), 0u);
}

TEST(GpuPod, OnlyFinishedPodsTakeNoRoom) {
  EXPECT_TRUE(TakesRoom(Parsed(R"({"status": {"phase": "Running"}})")));
  EXPECT_TRUE(TakesRoom(Parsed("{}")));
  EXPECT_FALSE(TakesRoom(Parsed(R"({"status": {"phase": "Failed"}})")));
  EXPECT_FALSE(TakesRoom(Parsed(R"({"status": {"phase": "Succeeded"}})")));
}

TEST(GpuPod, MaySayHowItsNodeAndItsGpuAreChosen) {
  Json pod = Parsed(R"({"metadata": {"name": "a", "annotations": {
          "baton.dev/node-policy": "spread", "baton.dev/gpu-policy": "binpack"}},
      "spec": {"containers": [{"name": "main", "resources": {"limits": {
          "baton.dev/gpu-share": "30"}}}]}})");
  const auto read = ReadGpuPod(pod, 256);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->request.node_rule, devmgr::Rule::kSpread);
  EXPECT_EQ(read->request.card_rule, devmgr::Rule::kBinpack);
  pod["metadata"]["annotations"]["baton.dev/gpu-policy"] = "fgd";
  const auto refused = ReadGpuPod(pod, 256);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("'fgd' is none of binpack, spread"), std::string::npos)
      << refused.error().message;
  pod["metadata"].erase("annotations");
  EXPECT_EQ(ReadGpuPod(pod, 256)->request.node_rule, std::nullopt);
}

}  // namespace
}  // namespace baton::k8s::testing
