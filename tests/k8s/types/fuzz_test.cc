// Readers of objects and quantities, with mutated and random input.
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
#include "tests/k8s/types/fixture.h"

namespace baton::k8s::testing {
namespace {

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

TEST(Fuzz, ReadersSurviveAnyObjectAndStayInRange) {
  Json pod =
      GpuPodJson(R"({"baton.dev/gpu-share": 30, "baton.dev/gpu-memory": 16, "cpu": "1"})",
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
}  // namespace baton::k8s::testing
