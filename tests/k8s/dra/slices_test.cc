// The node's GPUs as the scheduler is told of them.
#include "k8s/dra/slices.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "k8s/dra/claims.h"

namespace baton::k8s {
namespace {

devmgr::Card Gpu(const std::string& uuid) {
  devmgr::Card card;
  card.uuid = uuid;
  card.vendor = devmgr::kNvidia;
  card.model = "NVIDIA H100 80GB HBM3";
  card.memory_mib = 81'559;
  card.numa = 1;
  card.bus = "0000:17:00.0";
  return card;
}

Json DevicesOf(std::vector<devmgr::Card> cards, const std::set<std::string>& taken = {}) {
  devmgr::Node node;
  node.name = "n1";
  node.cards = std::move(cards);
  return DraDevicesOf(node, taken, [](const std::string&) { return "pci0000:16"; });
}

TEST(Slices, DeviceIsAGpuWithShareAndMemory) {
  const Json devices = DevicesOf({Gpu("GPU-5C8AD9F6-aa")});
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0], Json::parse(R"({
      "name": "gpu-5c8ad9f6-aa",
      "allowMultipleAllocations": true,
      "attributes": {
        "uuid": {"string": "GPU-5C8AD9F6-aa"}, "index": {"int": 0},
        "model": {"string": "NVIDIA H100 80GB HBM3"}, "numaNode": {"int": 1},
        "resource.kubernetes.io/pciBusID": {"string": "0000:17:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:16"}},
      "capacity": {
        "share": {"value": "100", "requestPolicy": {"default": "100",
            "validRange": {"min": "1", "max": "100", "step": "1"}}},
        "memory": {"value": "81559Mi", "requestPolicy": {"default": "81559Mi",
            "validRange": {"min": "1Mi", "max": "81559Mi", "step": "1Mi"}}}}})"));
}

TEST(Slices, WhatIsNotKnownIsLeftOut) {
  devmgr::Card card = Gpu("GPU-a");
  card.model.clear();
  card.numa = -1;
  card.bus.clear();
  card.memory_mib = 1;
  const Json devices = DevicesOf({card});
  EXPECT_EQ(devices[0].at("attributes").size(), 2u) << devices;
  EXPECT_FALSE(devices[0].at("capacity").contains("memory"));
}

TEST(Slices, OnlyGpusThatAreSharedByTurns) {
  devmgr::Card divided = Gpu("GPU-mig"), other = Gpu("MI-0");
  divided.mig_enabled = true;
  other.vendor = "amd";
  const Json devices = DevicesOf({divided, other, Gpu("GPU-a")});
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].at("attributes").at("index").at("int"), 2);
}

TEST(Slices, GpusThatGetNothingNewAreTainted) {
  devmgr::Card cordoned = Gpu("GPU-a"), failed = Gpu("GPU-b"), missing = Gpu("GPU-c");
  cordoned.cordoned = true;
  failed.health = devmgr::Health::kFailed;
  missing.health = devmgr::Health::kMissing;
  const Json devices =
      DevicesOf({cordoned, failed, missing, Gpu("GPU-d"), Gpu("GPU-e")}, {"GPU-d"});
  ASSERT_EQ(devices.size(), 5u);
  const char* const whys[] = {"cordoned", "failed", "missing", "in-use"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(devices[i].at("taints"), Json::array({{{"key", "gpu.baton.dev/unavailable"},
                                                     {"value", whys[i]},
                                                     {"effect", "NoSchedule"}}}));
  }
  EXPECT_FALSE(devices[4].contains("taints"));
  EXPECT_EQ(WithoutTainted(devices), Json::array({devices[4]}));
}

TEST(Slices, NamesOfDevicesAreLabels) {
  EXPECT_EQ(DeviceNameOf("GPU-A_b/c"), "gpu-a-b-c");
  EXPECT_EQ(DeviceNameOf("--"), "gpu");
  EXPECT_EQ(DeviceNameOf(""), "gpu");
  EXPECT_LE(DeviceNameOf("-" + std::string(100, 'x')).size(), 63u);
  EXPECT_LE(DeviceNameOf(std::string(62, 'x') + "--").size(), 63u);
}

TEST(Slices, SliceIsOfItsNode) {
  const Json slice = ResourceSliceOf("n1", "u1", DevicesOf({Gpu("GPU-a")}), 7, "mark");
  EXPECT_EQ(slice.at("metadata").at("name"), SliceNameOf("n1"));
  EXPECT_EQ(slice.at("metadata").at("ownerReferences")[0].at("uid"), "u1");
  EXPECT_EQ(slice.at("spec").at("driver"), kDraDriver);
  EXPECT_EQ(slice.at("spec").at("nodeName"), "n1");
  EXPECT_EQ(slice.at("spec").at("pool"),
            Json({{"name", "n1"}, {"generation", 7}, {"resourceSliceCount", 1}}));
  EXPECT_EQ(SliceMarkOf(slice), "mark");
  EXPECT_EQ(SliceGenerationOf(slice), 7u);
  EXPECT_EQ(SliceMarkOf(Json()), "");
  EXPECT_EQ(SliceGenerationOf(Json::array()), 0u);
}

}  // namespace
}  // namespace baton::k8s
