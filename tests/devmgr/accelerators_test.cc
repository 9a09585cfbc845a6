// One cluster with every mode, and another vendor's GPUs beside NVIDIA's: all that is known of
// those is in acme_mode.h.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/random.h"
#include "devmgr/modes/exclusive.h"
#include "devmgr/modes/mig_mode.h"
#include "devmgr/modes/mps_mode.h"
#include "devmgr/modes/time_slice.h"
#include "devmgr/placement/cluster.h"
#include "tests/devmgr/acme_mode.h"

namespace baton::devmgr {
namespace {

const TimeSlice kSlices;
const Exclusive kWholeCards;
const MpsMode kMps;
const MigMode kMig;
const AcmeTiles kTiles;
const SharingMode* const kAllModes[] = {&kSlices, &kMps, &kMig, &kTiles, &kWholeCards};

Card CardOf(const std::string& uuid, const std::string& model, uint32_t memory_mib,
            bool mig = false) {
  Card card;
  card.uuid = uuid;
  card.vendor = model.starts_with("NVIDIA") ? "nvidia" : "acme";
  card.model = model;
  card.memory_mib = memory_mib;
  card.mig_capable = card.mig_enabled = mig;
  return card;
}

std::vector<Node> MixedNodes() {
  std::vector<Node> nodes(4);
  nodes[0].name = "a";
  nodes[0].cards = {CardOf("a0", "NVIDIA H200", 143'771), CardOf("a1", "NVIDIA H200", 143'771)};
  nodes[1].name = "b";
  nodes[1].cards = {CardOf("b0", "NVIDIA A100-SXM4-80GB", 81'920, true),
                    CardOf("b1", "NVIDIA H100 80GB HBM3", 81'559, true)};
  nodes[2].name = "c";
  nodes[2].cards = {CardOf("c0", "Acme Tile-16", 65'536), CardOf("c1", "Acme Tile-16", 65'536)};
  nodes[3].name = "d";
  nodes[3].cards = {CardOf("d0", "Acme Tile-16", 65'536), CardOf("d1", "NVIDIA A30", 24'576),
                    CardOf("d2", "NVIDIA A30", 24'576, true)};
  return nodes;
}

PodRequest PodWith(const std::string& name, const std::string& mode, uint32_t share,
                   uint32_t memory_mib = 0, uint32_t count = 1) {
  PodRequest pod;
  pod.name = name;
  pod.mode = mode;
  VgpuRequest vgpu;
  vgpu.share = policy::Share(share);
  vgpu.memory_mib = memory_mib;
  vgpu.count = count;
  pod.containers = {{"main", {vgpu}}};
  return pod;
}

class AcceleratorsTest : public testing::Test {
 protected:
  AcceleratorsTest() {
    for (const Node& node : MixedNodes()) {
      const auto set = cluster.SetNode(node);
      EXPECT_TRUE(set) << set.error().message;
    }
  }
  // On what it is now, and how; or why not.
  std::string Put(const PodRequest& pod) {
    const auto placement = cluster.Decide(pod);
    if (!placement) return placement.error().message;
    const auto committed = cluster.Commit(pod, *placement);
    if (!committed) return committed.error().message;
    std::string cards;
    for (const Vgpu& vgpu : placement->vgpus) {
      cards += (cards.empty() ? "" : ", ") + cluster.FindCard(vgpu.card)->model + " " + vgpu.mode;
    }
    return cards;
  }
  std::map<std::string, CardUse> Uses() const {
    std::map<std::string, CardUse> uses;
    for (const Node* node : cluster.Nodes()) {
      for (const Card& card : node->cards) uses[card.uuid] = *cluster.UseOf(card.uuid);
    }
    return uses;
  }

  Cluster cluster{kAllModes};
};

TEST_F(AcceleratorsTest, EachModeIsGivenTheGpusThatItServes) {
  EXPECT_EQ(Put(PodWith("t", "tiles", 250'000)), "Acme Tile-16 tiles");
  EXPECT_EQ(Put(PodWith("s", "time-slice", 250'000, 100'000)), "NVIDIA H200 time-slice");
  EXPECT_EQ(Put(PodWith("m", "mps", 250'000, 100'000)), "NVIDIA H200 mps");
  for (const char* model : {"A100", "H100", "A30"}) {
    PodRequest pod = PodWith(model, "mig", 250'000, 1'000);
    pod.models = {model};
    const std::string on = Put(pod);
    EXPECT_TRUE(on.find(model) != std::string::npos && on.ends_with(" mig")) << on;
  }
  // A GPU that is shared in one way takes no pod of another.
  EXPECT_EQ(Put(PodWith("x", "exclusive", policy::kMillion)), "NVIDIA A30 exclusive");
  const auto nowhere = cluster.Decide(PodWith("y", "exclusive", policy::kMillion));
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, ErrorCode::kExhausted);
}

TEST_F(AcceleratorsTest, TheOtherVendorsGpusAreWantedByModelAsAnyAre) {
  PodRequest pod = PodWith("p", "", 125'000, 1'000, 2);
  pod.models = {"tile-16"};
  EXPECT_EQ(Put(pod), "Acme Tile-16 tiles, Acme Tile-16 tiles");
  const Vgpu& vgpu = cluster.Find("p")->placement.vgpus[0];
  EXPECT_EQ(cluster.UseOf(vgpu.card)->share, policy::Share(125'000));
  EXPECT_EQ(cluster.UseOf(vgpu.card)->memory_mib, 8'192u);  // two tiles' worth
  EXPECT_EQ(kTiles.EnvironmentOf(*cluster.FindCard(vgpu.card), vgpu.fit, ""),
            (Environment{{"ACME_CARD", vgpu.card}, {"ACME_TILES", "0+2"}}));
}

TEST_F(AcceleratorsTest, EveryGpuSaysInItsOwnTermsWhyNot) {
  std::map<std::string, std::string> why;
  for (const char* mode : {"tiles", "mig"}) {
    for (const NodeRefusal& node : cluster.Explain(PodWith("p", mode, policy::kMillion, 100'000))) {
      for (const CardRefusal& card : node.cards) why[mode + (" " + card.uuid)] = card.why;
    }
  }
  EXPECT_NE(why["tiles d0"].find("it has 16 tiles, 25 wanted"), std::string::npos)
      << why["tiles d0"];
  EXPECT_NE(why["mig b0"].find("no 7g.98gb on A100-SXM4-80GB: nearest is 7g.80gb with 80640 MiB"),
            std::string::npos)
      << why["mig b0"];
  for (const auto& [card, clause] : why) EXPECT_FALSE(clause.empty()) << card;
}

TEST_F(AcceleratorsTest, WhateverComesAndGoesGpusKeepToTheirModesAndAreAsBeforeInTheEnd) {
  uint64_t placed = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::vector<std::pair<std::string, std::map<std::string, CardUse>>> stack;
    for (int step = 0; step < 40; ++step) {
      static const char* const kNames[] = {"", "time-slice", "mps", "mig", "tiles", "exclusive"};
      const PodRequest pod =
          PodWith("p" + std::to_string(step), kNames[random.Next() % 6],
                  static_cast<uint32_t>(random.Between(1, 10)) * 100'000,
                  random.OneIn(2) ? 0 : static_cast<uint32_t>(random.Spread(1, 140'000)),
                  static_cast<uint32_t>(random.Between(1, 2)));
      const auto before = Uses();
      const auto placement = cluster.Decide(pod);
      ASSERT_EQ(placement.has_value(), cluster.Decide(pod).has_value());
      if (!placement) continue;
      ASSERT_EQ(*placement, *cluster.Decide(pod));
      const auto committed = cluster.Commit(pod, *placement);
      ASSERT_TRUE(committed) << committed.error().message;
      ++placed;
      stack.emplace_back(pod.name, before);
      for (const Vgpu& vgpu : placement->vgpus) {
        const Card& card = *cluster.FindCard(vgpu.card);
        ASSERT_EQ(vgpu.mode == "tiles", card.vendor == "acme");
        ASSERT_EQ(vgpu.mode == "mig", card.mig_enabled);
        const CardUse& use = *cluster.UseOf(vgpu.card);
        ASSERT_LE(use.share, policy::kWhole);
        ASSERT_LE(use.memory_mib, card.memory_mib);
      }
    }
    // As after a restart: the same pods by name, not in the order in which they came.
    const auto full = Uses();
    Cluster again(kAllModes);
    for (const Node& node : MixedNodes()) ASSERT_TRUE(again.SetNode(node));
    for (const auto& [name, pod] : cluster.pods()) {
      const auto committed = again.Commit(pod.request, pod.placement);
      ASSERT_TRUE(committed) << committed.error().message;
      for (size_t i = 0; i < pod.placement.vgpus.size(); ++i) {
        ASSERT_EQ(again.Find(name)->placement.vgpus[i].fit.slot, pod.placement.vgpus[i].fit.slot);
      }
    }
    for (const auto& [card, use] : full) ASSERT_EQ(*again.UseOf(card), use) << card;
    // The last first: each leaves what was there before it.
    for (; !stack.empty(); stack.pop_back()) {
      ASSERT_TRUE(cluster.Delete(stack.back().first));
      ASSERT_EQ(Uses(), stack.back().second);
    }
    // And in any order in the other.
    std::vector<std::string> names;
    for (const auto& [name, pod] : again.pods()) names.push_back(name);
    while (!names.empty()) {
      const size_t at = random.Next() % names.size();
      ASSERT_TRUE(again.Delete(names[at]));
      names.erase(names.begin() + static_cast<std::ptrdiff_t>(at));
    }
    for (const auto& [card, use] : Uses()) ASSERT_EQ(*again.UseOf(card), use) << card;
  }
  EXPECT_GT(placed, 1'500u);
}

}  // namespace
}  // namespace baton::devmgr
