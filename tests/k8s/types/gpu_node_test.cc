// Nodes and their GPUs, from the API's objects.
#include "k8s/types/gpu_node.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "k8s/types/annotations.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/inject.h"
#include "k8s/types/quantity.h"
#include "k8s/types/share_pod.h"
#include "tests/k8s/types/fixture.h"

namespace baton::k8s::testing {
namespace {

TEST(GpuNode, GpusSurviveTheirObject) {
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
    card.beyond = (i - 1) * 150'000;
    card.health = static_cast<devmgr::Health>(i);
    card.why = i == 0 ? "" : "XID 79";
    node.cards.push_back(card);
  }
  Json object = GpuNodeOf(node);
  EXPECT_EQ(object["kind"], "GpuNode");
  EXPECT_EQ(CardsOf(object).value(), node.cards);
  EXPECT_EQ(object["status"]["cards"][0]["useBeyondRequests"], -15);
  EXPECT_FALSE(object["status"]["cards"][1].contains("useBeyondRequests"));
  std::swap(object["status"]["cards"][0], object["status"]["cards"][2]);
  EXPECT_EQ(CardsOf(object).value(), node.cards) << "the index is the order";
  object["status"]["cards"][1]["memoryMiB"] = 0;
  EXPECT_EQ(Why(CardsOf(object)),
            "status.cards[1].memoryMiB: must be a whole number from 1 to 16777216");
  object["status"]["cards"][1]["memoryMiB"] = 1;
  object["status"]["cards"][1]["useBeyondRequests"] = 10'001;
  EXPECT_EQ(Why(CardsOf(object)),
            "status.cards[1].useBeyondRequests: must be a whole number from -10000 to 10000");
}

TEST(GpuNode, TellsInstancesAndWhatWasMadeForPods) {
  devmgr::Node node;
  node.name = "n1";
  devmgr::Card card;
  card.uuid = "GPU-a";
  card.memory_mib = 40'960;
  card.mig_enabled = true;
  card.instances = {{0, "3g.20gb", "", 0, 4}, {0, "1g.5gb", "", 4, 1}};
  node.cards = {card};
  Json object = GpuNodeOf(node);
  const MadeDevices made{{"uid-1/main", {"MIG-1"}}, {"uid-2/main", {"MIG-2"}}};
  SetDevices(object, made);
  EXPECT_EQ(CardsOf(object).value(), node.cards);
  EXPECT_EQ(DevicesOn(object), made);
  // What cannot be read is nobody's.
  for (const char* bad : {"", "MIG 1", "MIG-1,MIG-2"}) {
    object["status"]["devices"][0]["devices"][0] = bad;
    EXPECT_EQ(DevicesOn(object).size(), 1u) << bad;
  }
  object["status"]["devices"] = 7;
  EXPECT_TRUE(DevicesOn(object).empty());
  object["status"]["cards"][0]["instances"][1]["start"] = 8;
  EXPECT_FALSE(CardsOf(object));
}

TEST(GpuNode, SaysForPeopleWhatIsThereAndWhatIsFree) {
  devmgr::Node node;
  node.name = "n1";
  for (const char* model : {"NVIDIA L40S", "NVIDIA H200", "NVIDIA H200"}) {
    devmgr::Card card;
    card.uuid = "GPU-" + std::to_string(node.cards.size());
    card.model = model;
    card.memory_mib = 1'000;
    node.cards.push_back(card);
  }
  const policy::ShareSum part(policy::Share(625'000));
  GpuNodeUse use{{{"GPU-0", part}, {"GPU-1", part}}, 1'500};
  Json status = GpuNodeOf(node, use)["status"];
  EXPECT_EQ(status["gpus"], 3);
  EXPECT_EQ(status["models"], "2x NVIDIA H200, 1x NVIDIA L40S");
  EXPECT_EQ(status["memoryMiB"], 3'000);
  EXPECT_EQ(status["used"], "125");
  EXPECT_EQ(status["free"], "175");
  EXPECT_EQ(status["memoryUsedMiB"], 1'500);
  // No GPU is less than full.
  use.shares["GPU-0"] = part * 2;
  EXPECT_EQ(GpuNodeOf(node, use)["status"]["free"], "137.5");
  // Where no pod can come to, nothing is free.
  node.cards[1].cordoned = true;
  EXPECT_EQ(GpuNodeOf(node, use)["status"]["free"], "100");
  node.cards[2].health = devmgr::Health::kFailed;
  status = GpuNodeOf(node, use)["status"];
  EXPECT_EQ(status["free"], "0");
  EXPECT_EQ(status["used"], "187.5");
}

TEST(GpuNode, GpusAreGuessedFromCapacityAndLabels) {
  const auto cards = GuessedCards(Parsed(R"({"metadata": {"name": "n1", "labels": {
      "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}},
      "status": {"allocatable": {"nvidia.com/gpu": "2"}}})"),
                                  256);
  ASSERT_EQ(cards.size(), 2u);
  EXPECT_EQ(cards[1].uuid, "n1/1");
  EXPECT_EQ(cards[1].memory_mib, 81'559u);
  EXPECT_EQ(cards[1].model, "NVIDIA-H100-80GB-HBM3");
  const auto no_labels = GuessedCards(Parsed(R"({"metadata": {"name": "n2"}, "status":
      {"allocatable": {"nvidia.com/gpu": "4", "baton.dev/gpu-memory": "1280"}}})"),
                                      256);
  ASSERT_EQ(no_labels.size(), 4u);
  EXPECT_EQ(no_labels[0].memory_mib, 81'920u);
  // Of those its GpuNode tells.
  EXPECT_TRUE(GuessedCards(Parsed(R"({"metadata": {"name": "n2"}, "status": {"allocatable":
      {"baton.dev/gpu-share": "400", "baton.dev/gpu-memory": "1280"}}})"),
                           256)
                  .empty());
  EXPECT_TRUE(GuessedCards(Parsed(R"({"metadata": {"name": "n3"}})"), 256).empty());
}

TEST(GpuNode, NodeHasAllocatableAndCordon) {
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

}  // namespace
}  // namespace baton::k8s::testing
