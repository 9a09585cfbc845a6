#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "k8s/types/annotations.h"
#include "k8s/types/gpu_node.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/inject.h"
#include "k8s/types/quantity.h"
#include "k8s/types/share_pod.h"

namespace baton::k8s {
namespace {

struct Dice : Random {
  using Random::Random;
  uint64_t Below(uint64_t n) {
    return static_cast<uint64_t>(Between(0, static_cast<int64_t>(n) - 1));
  }
  bool Chance(double part) { return Below(1'000) < static_cast<uint64_t>(part * 1'000); }
};

template <class T>
std::string Why(const Result<T>& result) {
  return result ? "" : result.error().message;
}

Json Parsed(const char* text) { return Json::parse(text); }

Json GpuPodJson(const char* limits, const char* annotations = "{}") {
  return {
      {"metadata",
       {{"name", "p"}, {"namespace", "n"}, {"uid", "u-1"}, {"annotations", Parsed(annotations)}}},
      {"spec",
       {{"containers",
         {{{"name", "main"}, {"image", "x"}, {"resources", {{"limits", Parsed(limits)}}}}}}}}};
}

Json SharePod(const char* gpu, const char* rest = "{}") {
  Json pod = Parsed(R"({"apiVersion": "baton.dev/v1alpha1", "kind": "SharePod",
      "metadata": {"name": "s", "namespace": "n", "uid": "u-2"},
      "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}})");
  if (*gpu != 0) pod["spec"]["gpu"] = Parsed(gpu);
  pod["spec"].update(Parsed(rest));
  return pod;
}

// ---------------------------------------------------------------------------------------- quantity

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

TEST(Quantity, PercentsAreTenthsAndPrintAsWritten) {
  for (uint32_t tenths = 1; tenths <= 1'000; ++tenths) {
    const std::string text = PercentText(tenths * policy::kShareMin);
    EXPECT_EQ(ParsePercent(text).value_or(0), tenths * policy::kShareMin) << text;
    EXPECT_EQ(ParsePercent(text + "%").value_or(0), tenths * policy::kShareMin) << text;
  }
  EXPECT_EQ(PercentText(125'000), "12.5");
  EXPECT_EQ(PercentText(1'000'000), "100");
  EXPECT_EQ(ParsePercent("12.50").value_or(0), 125'000u);
  for (const char* text : {"", "0", "0.0", "130", "100.1", "12.55", "-5", "5 %", "%", "1e1", "030",
                           ".5", "5.", "NaN", "1000"}) {
    EXPECT_FALSE(ParsePercent(text)) << text;
  }
  EXPECT_EQ(Why(ParsePercent("130")),
            "'130' is no percentage of a GPU; write 0.1 to 100 in steps of 0.1, such as \"30\" or "
            "\"12.5\"");
}

TEST(Quantity, GpuMemoryIsASizeOrAPartOfTheCard) {
  EXPECT_EQ(ParseGpuMemory("4Gi").value(), (GpuMemory{4'096, 0}));
  EXPECT_EQ(ParseGpuMemory("1.1Mi").value(), (GpuMemory{2, 0}));
  EXPECT_EQ(ParseGpuMemory("25%").value(), (GpuMemory{0, 250'000}));
  for (const char* text : {"0", "4", "0%", "101%", "17Ti", "x", "500m"}) {
    EXPECT_FALSE(ParseGpuMemory(text)) << text;
  }
  for (const GpuMemory& memory : {GpuMemory{1'500, 0}, GpuMemory{2'048, 0}, GpuMemory{0, 1'000}}) {
    EXPECT_EQ(ParseGpuMemory(GpuMemoryText(memory)).value(), memory);
  }
  EXPECT_EQ(GpuMemoryText({}), "");
}

// ----------------------------------------------------------------------------------------- GPU pod

TEST(GpuPod, LimitsAloneAreARequestThatMayUseWhatIsIdle) {
  const auto pod =
      ReadGpuPod(GpuPodJson(R"({"baton.dev/gpu-share": "30", "baton.dev/gpu-memory": 16})"), 256);
  ASSERT_TRUE(pod) << Why(pod);
  ASSERT_EQ(pod->containers.size(), 1u);
  const ContainerGpus& gpus = pod->containers[0];
  EXPECT_EQ(gpus.request, 300'000u);
  EXPECT_EQ(gpus.limit, policy::kWhole);
  EXPECT_EQ(gpus.memory, (GpuMemory{4'096, 0}));
  EXPECT_EQ(gpus.count, 1u);
  EXPECT_EQ(gpus.share_units, 30u);
  EXPECT_EQ(gpus.memory_units, 16u);
  EXPECT_EQ(pod->request.name, "n/p");
  EXPECT_EQ(pod->request.mode, "time-slice");
  ASSERT_EQ(pod->request.containers.size(), 1u);
  EXPECT_EQ(pod->request.containers[0].vgpus.at(0).share, 300'000u);
}

TEST(GpuPod, AnnotationsSayItExactlyAndForWholePods) {
  const auto pod = ReadGpuPod(GpuPodJson(R"({"baton.dev/gpu-share": 26, "baton.dev/gpu-memory": 8})", R"({
      "baton.dev/request": "12.5", "baton.dev/limit": "60", "baton.dev/memory": "1000Mi",
      "baton.dev/count": "2", "baton.dev/priority": "high", "baton.dev/team": "research/vision",
      "baton.dev/user": "user-a", "baton.dev/model": "H100, A100 80GB", "baton.dev/not-model": "T4",
      "baton.dev/affinity": "a", "baton.dev/anti-affinity": "b", "baton.dev/exclusion": "c",
      "baton.dev/gang": "g", "baton.dev/gang-size": "4", "baton.dev/away": "open"})"),
                              256);
  ASSERT_TRUE(pod) << Why(pod);
  const ContainerGpus& gpus = pod->containers.at(0);
  EXPECT_EQ(gpus.request, 125'000u);
  EXPECT_EQ(gpus.limit, 600'000u);
  EXPECT_EQ(gpus.memory.mib, 1'000u);
  EXPECT_EQ(gpus.count, 2u);
  EXPECT_EQ(pod->priority, policy::Priority::kHigh);
  EXPECT_EQ(pod->gang, "g");
  EXPECT_EQ(pod->gang_size, 4u);
  EXPECT_EQ(pod->team, "research/vision");
  EXPECT_EQ(pod->request.models, (std::vector<std::string>{"H100", "A100 80GB"}));
  EXPECT_EQ(pod->request.not_models, (std::vector<std::string>{"T4"}));
  EXPECT_EQ(pod->request.affinity + pod->request.anti_affinity + pod->request.exclusion, "abc");
  EXPECT_EQ(pod->request.containers.at(0).vgpus.at(0).count, 2u);
}

TEST(GpuPod, LimitsBesideAnExactValueAreRoundedEitherWay) {
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

TEST(GpuPod, ContainersAskEachForThemselvesAndInitContainersCount) {
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
  EXPECT_EQ(read->containers[2].request, 75'000u);
  EXPECT_EQ(read->containers[2].limit, 500'000u);
}

TEST(GpuPod, WholeCardsAreOfModeExclusive) {
  const auto pod = ReadGpuPod(GpuPodJson(R"({"nvidia.com/gpu": 2})"), 256);
  ASSERT_TRUE(pod) << Why(pod);
  EXPECT_TRUE(pod->containers.at(0).whole);
  EXPECT_EQ(pod->containers.at(0).count, 2u);
  EXPECT_EQ(pod->request.mode, "exclusive");
  EXPECT_EQ(pod->request.containers.at(0).vgpus.at(0).share, policy::kWhole);
  EXPECT_FALSE(ReadGpuPod(GpuPodJson(R"({"nvidia.com/gpu": 0})"), 256)->asks());
  EXPECT_FALSE(ReadGpuPod(GpuPodJson("{}"), 256)->asks());
}

TEST(GpuPod, RefusesWhatCannotBeMeantAndSaysWhatToDo) {
  struct Case {
    const char* limits;
    const char* annotations;
    const char* why;
  };
  for (const Case& c : std::vector<Case>{
           {R"({"baton.dev/gpu-share": 130})", "{}",
            "spec.containers[main].resources.limits[baton.dev/gpu-share]: '130' percent are more "
            "than one GPU has; write at most 100"},
           {R"({"baton.dev/gpu-share": 0})", "{}", "'0' percent of a GPU; write at least 1"},
           {R"({"baton.dev/gpu-share": "12.5"})", "{}",
            "'12.5' is no whole number; round it, and write the exact value into the annotation "
            "baton.dev/request"},
           {R"({"baton.dev/gpu-share": "many"})", "{}", "'many' is no quantity"},
           {R"({"baton.dev/gpu-memory": 4})", "{}", "GPU memory without a share of its time"},
           {R"({"baton.dev/gpu-share": 30, "baton.dev/gpu-memory": 0})", "{}",
            "'0' of GPU memory; write at least 1"},
           {R"({"baton.dev/gpu-share": 30, "nvidia.com/gpu": 1})", "{}",
            "asks for whole cards and for a share"},
           {R"({"nvidia.com/gpu": 17})", "{}", "'17' cards; at most 16"},
           {R"({"nvidia.com/gpu": 1})", R"({"baton.dev/memory": "4Gi"})",
            "which have no such thing"},
           {R"({"nvidia.com/gpu": 1})", R"({"baton.dev/mode": "time-slice"})",
            "but nvidia.com/gpu asks for whole cards"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/request": "130"})",
            "metadata.annotations[baton.dev/request]: '130' is no percentage"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/request": "12.5"})",
            "'30', but the annotation baton.dev/request says 12.5 % of each of 1 card; write 12 "
            "here"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/limit": "20"})",
            "the limit, 20 %, is less than the request, 30 %"},
           {R"({"baton.dev/gpu-share": 31})", R"({"baton.dev/count": "2"})",
            "write a multiple of 2"},
           {R"({"baton.dev/gpu-share": 31})", R"({"baton.dev/count": "17"})",
            "write a whole number from 1 to 16"},
           {R"({"baton.dev/gpu-share": 30, "baton.dev/gpu-memory": 5})",
            R"({"baton.dev/memory": "1Gi"})", "in units of 256 MiB write 4 here"},
           {R"({"baton.dev/gpu-share": 30, "baton.dev/gpu-memory": 5})",
            R"({"baton.dev/memory": "10%"})", "leave this limit out"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/memory": "0"})", "less than 1Mi"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/priority": "hihg"})",
            "write low or high; did you mean 'high'?"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/mode": "mig"})",
            "'mig' is not offered on Kubernetes"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/mode": "exclusive"})",
            "mode exclusive takes whole cards"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/gang": "g"})",
            "a gang needs its size"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/gang-size": "3"})",
            "baton.dev/gang] does not say which"},
           {R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/model": " , "})",
            "write words of the card's model"},
           {R"({"baton.dev/gpu-share": 30})", "{\"baton.dev/team\": \"a\\nb\"}",
            "one line of UTF-8"},
       }) {
    const auto read = ReadGpuPod(GpuPodJson(c.limits, c.annotations), 256);
    EXPECT_NE(Why(read).find(c.why), std::string::npos)
        << c.limits << " " << c.annotations << " gave: " << Why(read);
  }
}

TEST(GpuPod, OfABoundPodTheAnnotationsCountForLimitsCannotChange) {
  Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 60, "baton.dev/gpu-memory": 16})",
                 R"({"baton.dev/request": "20", "baton.dev/memory": "1Gi"})");
  EXPECT_FALSE(ReadGpuPod(pod, 256));
  pod["spec"]["nodeName"] = "n1";
  const auto read = ReadGpuPod(pod, 256);
  ASSERT_TRUE(read) << Why(read);
  EXPECT_EQ(read->containers[0].request, 200'000u);
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

TEST(GpuPod, APlacementComesBackFromItsAnnotations) {
  Json json = GpuPodJson(R"({"baton.dev/gpu-share": 60})", R"({"baton.dev/count": "2"})");
  json["spec"]["containers"].push_back(
      {{"name", "side"}, {"resources", {{"limits", {{"baton.dev/gpu-share", "10"}}}}}});
  Json& annotations = json["metadata"]["annotations"];
  annotations["side.container.baton.dev/count"] = "1";
  const auto pod = ReadGpuPod(json, 256);
  ASSERT_TRUE(pod) << Why(pod);
  EXPECT_FALSE(ReadPlacement(json)->has_value());
  devmgr::Placement placement{"n1",
                              {{0, 0, "GPU-a", "time-slice", {300'000, 512, 0, 0}, {}},
                               {0, 0, "GPU-b", "time-slice", {300'000, 512, UINT64_MAX, 7}, {}},
                               {1, 0, "GPU-a", "time-slice", {100'000, 0, 0, 0}, {}}}};
  for (const auto& [key, text] : PlacementAnnotations(*pod, placement)) annotations[key] = text;
  EXPECT_EQ(annotations["main.container.baton.dev/visible-devices"], "GPU-a,GPU-b");
  EXPECT_EQ(annotations["side.container.baton.dev/visible-devices"], "GPU-a");
  const auto read = ReadPlacement(json);
  ASSERT_TRUE(read) << Why(read);
  EXPECT_EQ(*read, placement);
  EXPECT_EQ(ParsePlacement(PlacementText(*pod, placement)).value(), placement);
  annotations["baton.dev/placement"] = "{";
  EXPECT_NE(Why(ReadPlacement(json)).find("damaged"), std::string::npos);
}

TEST(GpuPod, OnlyTheEndedTakeNoRoom) {
  EXPECT_TRUE(TakesRoom(Parsed(R"({"status": {"phase": "Running"}})")));
  EXPECT_TRUE(TakesRoom(Parsed("{}")));
  EXPECT_FALSE(TakesRoom(Parsed(R"({"status": {"phase": "Failed"}})")));
  EXPECT_FALSE(TakesRoom(Parsed(R"({"status": {"phase": "Succeeded"}})")));
}

// ------------------------------------------------------------------------------------------- nodes

TEST(GpuNode, CardsComeBackFromTheObject) {
  devmgr::Node node;
  node.name = "n1";
  for (int i = 0; i < 3; ++i) {
    devmgr::Card card;
    card.uuid = "GPU-" + std::to_string(i);
    card.model = "NVIDIA H200";
    card.memory_mib = 143'771;
    card.numa = i;
    card.island = i - 1;
    card.bus = "0000:17:00.0";
    card.cordoned = i == 1;
    card.mig_capable = true;
    card.health = static_cast<devmgr::Health>(i);
    card.why = i == 0 ? "" : "XID 79";
    node.cards.push_back(card);
  }
  Json object = GpuNodeOf(node);
  EXPECT_EQ(object["kind"], "GpuNode");
  EXPECT_EQ(CardsOf(object).value(), node.cards);
  std::swap(object["status"]["cards"][0], object["status"]["cards"][2]);
  EXPECT_EQ(CardsOf(object).value(), node.cards) << "the index is the order";
  object["status"]["cards"][1]["memoryMiB"] = 0;
  EXPECT_EQ(Why(CardsOf(object)),
            "status.cards[1].memoryMiB: a whole number from 1 to 16777216 is needed");
}

TEST(GpuNode, CardsAreGuessedFromCapacityAndLabels) {
  const auto cards = GuessedCards(Parsed(R"({"metadata": {"name": "n1", "labels": {
      "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}},
      "status": {"allocatable": {"nvidia.com/gpu": "2"}}})"),
                                  256);
  ASSERT_EQ(cards.size(), 2u);
  EXPECT_EQ(cards[1].uuid, "n1/1");
  EXPECT_EQ(cards[1].memory_mib, 81'559u);
  EXPECT_EQ(cards[1].model, "NVIDIA-H100-80GB-HBM3");
  const auto ours = GuessedCards(Parsed(R"({"metadata": {"name": "n2"}, "status": {"allocatable":
      {"baton.dev/gpu-share": "400", "baton.dev/gpu-memory": "1280"}}})"),
                                 256);
  ASSERT_EQ(ours.size(), 4u);
  EXPECT_EQ(ours[0].memory_mib, 81'920u);
  EXPECT_TRUE(GuessedCards(Parsed(R"({"metadata": {"name": "n3"}})"), 256).empty());
}

TEST(GpuNode, ANodeSaysWhatPodsMayUseAndWhetherAnyMayCome) {
  Json json =
      Parsed(R"({"metadata": {"name": "n1", "labels": {"zone": "a"}}, "spec": {}, "status": {
      "allocatable": {"cpu": "7910m", "memory": "31.5Gi"},
      "conditions": [{"type": "Ready", "status": "True"}]}})");
  devmgr::Node node = ReadNode(json);
  EXPECT_EQ(node.name, "n1");
  EXPECT_EQ(node.cpu_milli, 7'910u);
  EXPECT_EQ(node.memory_mib, 32'256u);
  EXPECT_EQ(node.labels.at("zone"), "a");
  EXPECT_FALSE(node.cordoned);
  json["spec"]["unschedulable"] = true;
  EXPECT_TRUE(ReadNode(json).cordoned);
  json["spec"] = Json::object();
  json["status"]["conditions"][0]["status"] = "Unknown";
  EXPECT_TRUE(ReadNode(json).cordoned);
}

// ------------------------------------------------------------------------------------------ inject

TEST(Inject, GivesEachContainerThatAsksItsTicketAndTheHook) {
  Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 30})", R"({"baton.dev/away": "open"})");
  pod["spec"]["containers"].push_back({{"name", "plain"}});
  pod["spec"]["containers"][0]["env"] = Json::array(
      {{{"name", "LIB"}, {"value", "a.so"}}, {{"name", "LD_PRELOAD"}, {"value", "$(LIB)"}}});
  pod["spec"]["initContainers"] = Parsed(R"([{"name": "first"}])");
  ASSERT_TRUE(Inject(pod).value());
  const Json& main = pod["spec"]["containers"][0];
  EXPECT_EQ(pod["spec"]["schedulerName"], "baton");
  EXPECT_EQ(pod["spec"]["volumes"], Parsed(R"([
      {"name": "baton-socket", "hostPath": {"path": "/run/baton", "type": "Directory"}},
      {"name": "baton-hook", "hostPath": {"path": "/var/lib/baton/hook", "type": "Directory"}}])"));
  EXPECT_EQ(main["volumeMounts"], Parsed(R"([
      {"name": "baton-socket", "mountPath": "/run/baton", "readOnly": true},
      {"name": "baton-hook", "mountPath": "/usr/local/lib/baton", "readOnly": true}])"));
  const Json devices = Parsed(R"({"fieldRef": {"fieldPath":
      "metadata.annotations['main.container.baton.dev/visible-devices']"}})");
  EXPECT_EQ(main["env"],
            Json::array(
                {{{"name", "BATON_POD_UID"},
                  {"valueFrom", {{"fieldRef", {{"fieldPath", "metadata.uid"}}}}}},
                 {{"name", "BATON_TICKET"}, {"value", "$(BATON_POD_UID)/main"}},
                 {{"name", "BATON_SOCKET"}, {"value", "/run/baton/baton.sock"}},
                 {{"name", "BATON_AWAY"}, {"value", "open"}},
                 {{"name", "NVIDIA_VISIBLE_DEVICES"}, {"valueFrom", devices}},
                 {{"name", "CUDA_VISIBLE_DEVICES"}, {"valueFrom", devices}},
                 {{"name", "LIB"}, {"value", "a.so"}},
                 {{"name", "LD_PRELOAD"}, {"value", "/usr/local/lib/baton/libbaton.so:$(LIB)"}}}));
  const Json none = Parsed(R"([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}])");
  EXPECT_EQ(pod["spec"]["containers"][1]["env"], none);
  EXPECT_EQ(pod["spec"]["initContainers"][0]["env"], none);

  Json again = pod;
  // The API server fills in defaults before a second look.
  again["spec"]["containers"][0]["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] = "v1";
  const Json before = again;
  ASSERT_TRUE(Inject(again).value());
  EXPECT_EQ(again, before) << "it is idempotent";

  // Another webhook puts a container before all others, and Baton's is asked again: the ticket is
  // still what the node makes of the pod in the end.
  again["spec"]["initContainers"].insert(again["spec"]["initContainers"].begin(),
                                         Parsed(R"({"name": "mesh"})"));
  const auto reinvoked = Inject(again);
  ASSERT_TRUE(reinvoked) << reinvoked.error().message;
  EXPECT_EQ(again["spec"]["containers"], before["spec"]["containers"]);
}

TEST(Tickets, AreOfTheContainersNameAndNeverTooLong) {
  const std::string uid = "2f6c0000-1111-2222-3333-444455556666";
  EXPECT_EQ(TicketOf(uid, "main"), uid + "/main");
  const std::string longest(27, 'a');
  EXPECT_EQ(TicketOf(uid, longest), uid + "/" + longest);
  const std::string one = TicketOf(uid, std::string(62, 'a') + "b");
  const std::string other = TicketOf(uid, std::string(62, 'a') + "c");
  EXPECT_EQ(one.size(), 64u);
  EXPECT_TRUE(one.starts_with(uid + "/aaaaaaaaaa~")) << one;
  EXPECT_NE(one, other);
}

TEST(Inject, LeavesOtherPodsAndOtherSchedulersAlone) {
  Json pod = GpuPodJson("{}");
  const Json before = pod;
  EXPECT_FALSE(Inject(pod).value());
  EXPECT_EQ(pod, before);
  Json other = GpuPodJson(R"({"baton.dev/gpu-share": 30})");
  other["spec"]["schedulerName"] = "volcano";
  ASSERT_TRUE(Inject(other).value());
  EXPECT_EQ(other["spec"]["schedulerName"], "volcano");
  Json whole = GpuPodJson(R"({"nvidia.com/gpu": 1})");
  ASSERT_TRUE(Inject(whole).value());
  EXPECT_FALSE(whole["spec"].contains("volumes"));
  EXPECT_EQ(whole["spec"]["containers"][0]["env"].size(), 2u);
}

TEST(Inject, RefusesWhatWouldBreakItOrBeBroken) {
  const auto with = [](const char* key, const char* value) {
    Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 30})");
    pod["spec"]["containers"][0][key] = Parsed(value);
    const Json before = pod;
    const auto done = Inject(pod);
    EXPECT_EQ(pod, before);
    return Why(done);
  };
  EXPECT_NE(with("env", R"([{"name": "LD_PRELOAD", "valueFrom": {}}])").find("write it as a value"),
            std::string::npos);
  EXPECT_NE(
      with("env", R"([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])").find("take it out"),
      std::string::npos);
  EXPECT_NE(with("volumeMounts", R"([{"name": "x", "mountPath": "/run/baton"}])").find("elsewhere"),
            std::string::npos);
  EXPECT_NE(with("env", "7").find("a list is needed"), std::string::npos);
}

// The hook runs in all pods of the node: none may write it, under whatever name.
TEST(Inject, RefusesToLetAPodWriteWhereOthersReadHookAndSocket) {
  const auto refusal = [](const char* volume, const char* mount, bool in_another) {
    Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 30})");
    pod["spec"]["volumes"] = Json::array({Parsed(volume)});
    pod["spec"]["containers"].push_back({{"name", "other"}});
    pod["spec"]["containers"][in_another ? 1 : 0]["volumeMounts"] = Json::array({Parsed(mount)});
    return Why(Inject(pod));
  };
  const char* const mount = R"({"name": "mine", "mountPath": "/x"})";
  for (const char* path : {"/var/lib/baton/hook", "/var/lib//baton/hook/", "/var/lib/baton/hook/x",
                           "/run/baton", "/run/./baton/baton.sock"}) {
    const std::string volume =
        std::string(R"({"name": "mine", "hostPath": {"path": ")") + path + "\"}}";
    for (const bool in_another : {false, true}) {
      EXPECT_NE(refusal(volume.c_str(), mount, in_another).find("with readOnly: true"),
                std::string::npos)
          << path;
    }
    EXPECT_EQ(
        refusal(volume.c_str(), R"({"name": "mine", "mountPath": "/x", "readOnly": true})", true),
        "");
  }
  // The very volume that is put in, once more.
  EXPECT_NE(refusal(R"({"name": "baton-hook",
                        "hostPath": {"path": "/var/lib/baton/hook", "type": "Directory"}})",
                    R"({"name": "baton-hook", "mountPath": "/x", "readOnly": false})", true)
                .find("'baton-hook'"),
            std::string::npos);
  EXPECT_EQ(refusal(R"({"name": "mine", "hostPath": {"path": "/run/baton-other"}})", mount, true),
            "");
  EXPECT_EQ(refusal(R"({"name": "mine", "emptyDir": {}})", mount, true), "");
}

// ---------------------------------------------------------------------------------------- SharePod

TEST(SharePods, ThatFitOnACardTogetherFitInTheKubeletsAccount) {
  const auto child = ChildPod(SharePod(R"({"request": "12.5", "memory": "1500Mi"})"), 256);
  ASSERT_TRUE(child) << Why(child);
  const auto pod = ReadGpuPod(*child, 256);
  ASSERT_TRUE(pod) << Why(pod);
  EXPECT_EQ(pod->containers.at(0).share_units, 12u);
  EXPECT_EQ(pod->containers.at(0).memory_units, 5u);
  EXPECT_EQ(pod->containers.at(0).request, 125'000u);
}

TEST(SharePods, BecomeAPodThatAsksForTheSame) {
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
  EXPECT_EQ(pod->containers.at(0).request, 125'000u);
  EXPECT_EQ(pod->containers.at(0).limit, 600'000u);
  EXPECT_EQ(pod->gang_size, 2u);
}

TEST(SharePods, ALimitAloneIsTheRequestToo) {
  const auto limit = ReadGpuPod(ChildPod(SharePod(R"({"limit": "40"})"), 256).value(), 256);
  EXPECT_EQ(limit->containers.at(0).request, 400'000u);
  EXPECT_EQ(limit->containers.at(0).limit, 400'000u);
  const auto request = ReadGpuPod(ChildPod(SharePod(R"({"request": "40"})"), 256).value(), 256);
  EXPECT_EQ(request->containers.at(0).limit, policy::kWhole);
  const auto exclusive =
      ReadGpuPod(ChildPod(SharePod(R"({"mode": "exclusive"})"), 256).value(), 256);
  EXPECT_EQ(exclusive->containers.at(0).request, policy::kWhole);
  EXPECT_EQ(exclusive->request.mode, "exclusive");
}

TEST(SharePods, OfAnySpecReadBackAsTheyWereWritten) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    Dice random(seed);
    const uint32_t unit = random.Chance(0.5) ? 256 : 1'024;
    const auto ask = [&](ContainerGpus& gpus) {
      Json gpu = Json::object();
      gpus.request = static_cast<uint32_t>(random.Below(1'000) + 1) * policy::kShareMin;
      gpus.limit = gpus.request + static_cast<uint32_t>(random.Below(
                                      (policy::kWhole - gpus.request) / policy::kShareMin + 1)) *
                                      policy::kShareMin;
      gpus.count = static_cast<uint32_t>(random.Below(4) + 1);
      gpu["request"] = PercentText(gpus.request);
      gpu["limit"] = PercentText(gpus.limit) + (random.Chance(0.5) ? "%" : "");
      if (gpus.limit == policy::kWhole) gpu.erase("limit");
      if (gpus.count > 1 || random.Chance(0.5)) gpu["count"] = gpus.count;
      switch (random.Below(3)) {
        case 0:
          gpus.memory.mib = static_cast<uint32_t>(random.Below(100'000) + 1);
          break;
        case 1:
          gpus.memory.part = static_cast<uint32_t>(random.Below(1'000) + 1) * 1'000;
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

TEST(SharePods, RefuseWhatCannotBeMeantAndSayWhatToDo) {
  struct Case {
    const char* gpu;
    const char* rest;
    const char* why;
  };
  for (const Case& c : std::vector<Case>{
           {R"({"request": 130})", "{}", "spec.gpu.request: '130' is no percentage of a GPU"},
           {R"({"request": "60", "limit": "30"})", "{}",
            "spec.gpu.limit: the limit, 30 %, is less than the request, 60 %"},
           {R"({"request": "60", "memory": 0})", "{}", "spec.gpu.memory: '0' is less than 1Mi"},
           {R"({"request": "60", "memory": "0%"})", "{}", "is no part of a card's memory"},
           {R"({"request": "60", "count": 17})", "{}",
            "spec.gpu.count: '17'; write a whole number"},
           {"{}", "{}", "spec.gpu: it says no share"},
           {"", "{}", "spec.gpu: it says no share"},
           {R"({"request": "60", "mode": "mps"})", "{}", "spec.gpu.mode: 'mps' is not offered"},
           {R"({"request": "60", "mode": "exclusive"})", "{}", "mode exclusive takes whole cards"},
           {R"({"request": "60", "gang": {"name": "g"}})", "{}",
            "spec.gpu.gang.name: a gang needs"},
           {R"({"request": ""})", "{}", "spec.gpu.request: it is empty"},
           {R"({"request": "60"})", R"({"template": {}})", "at least one container"},
           {R"({"request": "60"})", R"({"template": {"spec": {"containers": [{"name": "a"},
               {"name": "b"}]}}})",
            "say in spec.containers which of them gets what"},
           {"", R"({"containers": [{"name": "mian", "gpu": {"request": "3"}}]})",
            "did you mean 'main'?"},
           {R"({"request": "3"})", R"({"containers": [{"name": "main", "gpu": {"request": "3"}}]})",
            "take one of both out"},
           {"", R"({"containers": [{"name": "main", "gpu": {"request": "3"}},
                                   {"name": "main", "gpu": {"request": "3"}}]})",
            "there twice"},
           {"", R"({"containers": [{"name": "main", "gpu": {"request": "30", "limit": "3"}}]})",
            "spec.containers[0].gpu.limit: the limit"},
           {R"({"request": "60"})", R"({"template": {"spec": {"containers": [{"name": "a",
               "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}})",
            "asks in spec.gpu"},
           {R"({"request": "60"})", R"({"template": {"metadata": {"annotations": {
               "baton.dev/request": "3"}}, "spec": {"containers": [{"name": "a"}]}}})",
            "asks in spec.gpu"},
           {R"({"request": "60"})",
            R"({"template": {"spec": {"nodeName": "x", "containers": [{"name": "a"}]}}})",
            "Baton chooses the node"},
       }) {
    const auto checked = CheckSharePod(SharePod(c.gpu, c.rest));
    EXPECT_NE(Why(checked).find(c.why), std::string::npos)
        << c.gpu << " " << c.rest << " gave: " << Why(checked);
  }
}

TEST(SharePods, ChangeInPlaceOnlyWhatTheirPodCanFollow) {
  const Json before = SharePod(R"({"request": "60", "team": "a"})");
  EXPECT_TRUE(CheckSharePodChange(
      before, SharePod(R"({"request": "20", "limit": "50", "memory": "4Gi", "count": 1,
                           "priority": "high", "team": "b", "user": "c"})")));
  for (const auto& [gpu, why] : std::map<const char*, const char*>{
           {R"({"request": "60", "count": 2})",
            "spec.gpu.count: it cannot change once the SharePod "
            "is there (it was 1, and would be 2); delete"},
           {R"({"request": "60", "model": "H100"})", "spec.gpu.model: it cannot change"},
           {R"({"request": "60", "mode": "exclusive"})", "(it was not set, and would be"},
           {R"({"request": "60", "gang": {"name": "g", "size": 2}})", "spec.gpu.gang.name"}}) {
    EXPECT_NE(Why(CheckSharePodChange(before, SharePod(gpu))).find(why), std::string::npos)
        << Why(CheckSharePodChange(before, SharePod(gpu)));
  }
  Json other = before;
  other["spec"]["template"]["spec"]["containers"][0]["image"] = "y";
  EXPECT_NE(Why(CheckSharePodChange(before, other)).find("spec.template: it cannot change"),
            std::string::npos);
}

TEST(SharePods, TellTheirPodWhatChanged) {
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
  EXPECT_EQ(read->containers[0].request, 200'000u);
  EXPECT_EQ(read->containers[0].share_units, 60u) << "the kubelet counts as before";
}

TEST(SharePods, ConditionsKeepTheTimeOfTheirLastTransition) {
  Json status;
  EXPECT_TRUE(SetCondition(status, {"Placed", false, "NoRoom", "no card has 30 %"}, 1, "t1"));
  EXPECT_FALSE(SetCondition(status, {"Placed", false, "NoRoom", "no card has 30 %"}, 1, "t2"));
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

// -------------------------------------------------------------------------------------------- fuzz

// Some value: what fields have, and what they have not.
Json Anything(Dice& random, int depth = 0) {
  static const std::vector<std::string> kTexts{"",
                                               "30",
                                               "130",
                                               "-1",
                                               "12.5%",
                                               "4Gi",
                                               "1e999",
                                               "0",
                                               "main",
                                               "high",
                                               "exclusive",
                                               "time-slice",
                                               "nvidia.com/gpu",
                                               "{}",
                                               "GPU-a",
                                               "99999999999999999999",
                                               "\u00e4",
                                               "a,b",
                                               "Always",
                                               "1",
                                               "16"};
  switch (random.Below(depth > 3 ? 7 : 9)) {
    case 0:
      return nullptr;
    case 1:
      return random.Chance(0.5);
    case 2:
      return static_cast<int64_t>(random.Below(200)) - 20;
    case 3:
      return random.Chance(0.5) ? Json(UINT64_MAX) : Json(INT64_MIN);
    case 4:
      return 1e300;
    case 5:
    case 6:
      return kTexts[random.Below(kTexts.size())];
    case 7: {
      Json list = Json::array();
      for (uint64_t i = random.Below(4); i > 0; --i) list.push_back(Anything(random, depth + 1));
      return list;
    }
    default: {
      Json object = Json::object();
      for (uint64_t i = random.Below(4); i > 0; --i) {
        object[kTexts[random.Below(kTexts.size())]] = Anything(random, depth + 1);
      }
      return object;
    }
  }
}

// Replaces, takes out or adds something anywhere in `json`.
void Mutate(Dice& random, Json& json) {
  if (json.is_structured() && !json.empty() && !random.Chance(0.12)) {
    auto at = json.begin();
    std::advance(at, static_cast<int64_t>(random.Below(json.size())));
    if (random.Chance(0.05)) {
      json.erase(at);
    } else {
      Mutate(random, *at);
    }
    return;
  }
  if (json.is_object() && random.Chance(0.5)) {
    json[random.Chance(0.5) ? "baton.dev/gpu-share" : "name"] = Anything(random);
    return;
  }
  json = Anything(random);
}

void InRange(const GpuPod& pod) {
  EXPECT_TRUE(devmgr::Validate(pod.request) || !pod.asks());
  ASSERT_EQ(pod.containers.size(), pod.request.containers.size());
  for (const ContainerGpus& gpus : pod.containers) {
    EXPECT_GE(gpus.request, policy::kShareMin);
    EXPECT_LE(gpus.request, gpus.limit);
    EXPECT_LE(gpus.limit, policy::kWhole);
    EXPECT_GE(gpus.count, 1u);
    EXPECT_LE(gpus.count, 16u);
    EXPECT_LE(gpus.memory.mib, 1u << 24);
    EXPECT_LE(gpus.memory.part, policy::kWhole);
  }
}

TEST(Fuzz, NoObjectBreaksAReaderAndWhatIsReadIsInRange) {
  Json pod = GpuPodJson(R"({"baton.dev/gpu-share": 30, "baton.dev/gpu-memory": 16, "cpu": "1"})",
                 R"({"baton.dev/count": "1", "baton.dev/request": "30", "baton.dev/memory": "4Gi",
                     "baton.dev/gang": "g", "baton.dev/gang-size": "2", "baton.dev/placement": ""})");
  const auto read = ReadGpuPod(pod, 256);
  ASSERT_TRUE(read) << Why(read);
  pod["metadata"]["annotations"]["baton.dev/placement"] =
      PlacementText(*read, {"n1", {{0, 0, "GPU-a", "time-slice", {300'000, 4'096, 0, 0}, {}}}});
  pod["spec"]["containers"][0]["env"] = Parsed(R"([{"name": "LD_PRELOAD", "value": "x"}])");
  pod["spec"]["volumes"] = Json::array();
  pod["spec"]["initContainers"] = {{{"name", "i"}, {"restartPolicy", "Always"}}};
  const Json share_pod = SharePod(R"({"request": "30", "limit": "60", "memory": "25%", "count": 2,
      "gang": {"name": "g", "size": 2}, "priority": "low"})");
  devmgr::Node node;
  node.name = "n1";
  node.cards.resize(2);
  node.cards[0].uuid = "a";
  node.cards[0].memory_mib = 1;
  const Json gpu_node = GpuNodeOf(node);
  const Json api_node = Parsed(R"({"metadata": {"name": "n", "labels": {"a": "b",
      "nvidia.com/gpu.memory": "80"}}, "spec": {"unschedulable": false}, "status": {"allocatable":
      {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": 2}, "conditions": [{"type": "Ready"}]}})");

  uint64_t fine = 0;
  for (uint64_t seed = 1; seed <= 6'000; ++seed) {
    SCOPED_TRACE(seed);
    Dice random(seed);
    const auto mutated = [&](Json json) {
      for (uint64_t i = random.Below(3); i <= 2; ++i) Mutate(random, json);
      return json;
    };
    Json some = mutated(pod);
    if (const auto got = ReadGpuPod(some, 256)) {
      InRange(*got);
      fine += got->asks();
    }
    if (const auto got = ReadPlacement(some); got && *got) {
      for (const devmgr::Vgpu& vgpu : (*got)->vgpus) {
        EXPECT_LT(vgpu.container, 32u);
        EXPECT_LE(vgpu.fit.share, policy::kWhole);
      }
    }
    (void)TakesRoom(some);
    (void)Inject(some);
    const Json one = mutated(share_pod);
    const Json two = mutated(share_pod);
    (void)CheckSharePodChange(one, two);
    if (const auto child = ChildPod(one, 256)) {
      const auto got = ReadGpuPod(*child, 256);
      ASSERT_TRUE(got) << Why(got);
      InRange(*got);
      (void)ChildChanges(two, *child);
    }
    if (const auto cards = CardsOf(mutated(gpu_node))) {
      for (const devmgr::Card& card : *cards) EXPECT_GT(card.memory_mib, 0u);
    }
    const Json any = mutated(api_node);
    EXPECT_LE(GuessedCards(any, 256).size(), 16u);
    (void)ReadNode(any);
  }
  EXPECT_GT(fine, 300u) << "it should not be only nonsense";
}

TEST(Fuzz, AnyTextIsAQuantityOrRefused) {
  const std::string_view letters = "0123456789.eE+-KMGTPiEmunk% \xff";
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Dice random(seed);
    for (int i = 0; i < 1'000; ++i) {
      std::string text;
      for (uint64_t n = random.Below(12); n > 0; --n) text += letters[random.Below(letters.size())];
      if (const auto milli = MilliQuantity(text)) {
        EXPECT_GE(*milli, 0) << text;
        const int64_t whole = WholeQuantity(text).value_or(-1);
        if (*milli < INT64_MAX - 999) {
          EXPECT_EQ(whole, (*milli + 999) / 1'000) << text;
        }
      }
      if (const auto share = ParsePercent(text)) {
        EXPECT_GE(*share, policy::kShareMin);
        EXPECT_LE(*share, policy::kWhole);
      }
      (void)ParseGpuMemory(text);
      (void)ParsePlacement(text);
    }
  }
}

}  // namespace
}  // namespace baton::k8s
