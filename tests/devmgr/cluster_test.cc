// The cluster: its map is never wrong, whatever is called.
#include "devmgr/placement/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "base/random.h"
#include "devmgr/modes/exclusive.h"
#include "devmgr/modes/time_slice.h"
#include "devmgr/placement/cluster_state.h"
#include "devmgr/placement/model_name.h"
#include "devmgr/placement/replay.h"

namespace baton::devmgr {
namespace {

const TimeSlice kTimeSlice;
const Exclusive kExclusive;
const SharingMode* const kModes[] = {&kTimeSlice, &kExclusive};

Node MakeNode(const std::string& name, size_t cards, const std::string& model = "NVIDIA H200",
              uint32_t memory_mib = 81'920) {
  Node node;
  node.name = name;
  node.cpu_milli = 64'000;
  node.memory_mib = 262'144;
  for (size_t i = 0; i < cards; ++i) {
    Card card;
    card.uuid = name + "-" + std::to_string(i);
    card.model = model;
    card.memory_mib = memory_mib;
    node.cards.push_back(card);
  }
  return node;
}

PodRequest MakePod(const std::string& name, uint32_t share, uint32_t count = 1,
                   uint32_t memory_mib = 0) {
  PodRequest pod;
  pod.name = name;
  VgpuRequest vgpu;
  vgpu.share = policy::Share(share);
  vgpu.count = count;
  vgpu.memory_mib = memory_mib;
  pod.containers = {{"main", {vgpu}}};
  return pod;
}

class ClusterTest : public ::testing::Test {
 protected:
  Placement Put(const PodRequest& pod) {
    const auto placement = cluster.Decide(pod);
    EXPECT_TRUE(placement.has_value()) << placement.error().message;
    if (!placement) return {"nowhere", {Vgpu{}}};
    const auto committed = cluster.Commit(pod, *placement);
    EXPECT_TRUE(committed.has_value()) << committed.error().message;
    return *placement;
  }
  std::string WhyNot(const PodRequest& pod) {
    const auto placement = cluster.Decide(pod);
    return placement ? "it fits" : placement.error().message;
  }

  Cluster cluster{kModes};
};

// Everything that can be seen of the state, but the pods.
struct Snapshot {
  explicit Snapshot(const Cluster& cluster) {
    for (const Node* node : cluster.Nodes()) {
      nodes.push_back(*node);
      const auto free = cluster.FreeOn(node->name);
      host.emplace_back(free.cpu_milli, free.memory_mib);
      for (const Card& card : node->cards) use.push_back(*cluster.UseOf(card.uuid));
    }
    fragmentation = cluster.Fragmentation();
  }
  std::vector<Node> nodes;
  std::vector<CardUse> use;
  std::vector<std::pair<uint64_t, uint64_t>> host;
  double fragmentation = 0;
  bool operator==(const Snapshot&) const = default;
};

// The state from scratch: what the pods in the map take, added up.
void ExpectBooksAreRight(const Cluster& cluster) {
  std::map<std::string, std::pair<uint64_t, uint64_t>> taken;
  std::map<std::string, uint64_t> cpu;
  for (const auto& [name, pod] : cluster.pods()) {
    cpu[pod.placement.node] += pod.request.cpu_milli;
    const auto wants = WantsOf(pod.request);
    ASSERT_EQ(wants.size(), pod.placement.vgpus.size());
    for (size_t i = 0; i < wants.size(); ++i) {
      const Vgpu& vgpu = pod.placement.vgpus[i];
      const Card* card = cluster.FindCard(vgpu.card);
      ASSERT_NE(card, nullptr);
      EXPECT_GE(vgpu.fit.share, wants[i].share) << "no less than was asked for";
      EXPECT_GE(vgpu.fit.memory_mib, wants[i].On(*card).memory_mib);
      taken[vgpu.card].first += vgpu.fit.share.millionths();
      taken[vgpu.card].second += vgpu.fit.memory_mib;
      for (size_t j = 0; j < i; ++j) {
        if (wants[j].container == wants[i].container) {
          EXPECT_NE(pod.placement.vgpus[j].card, vgpu.card);
        }
      }
    }
  }
  for (const Node* node : cluster.Nodes()) {
    EXPECT_LE(cpu[node->name], node->cpu_milli);
    EXPECT_EQ(cluster.FreeOn(node->name).cpu_milli, node->cpu_milli - cpu[node->name]);
    for (const Card& card : node->cards) {
      const CardUse& use = *cluster.UseOf(card.uuid);
      EXPECT_EQ(use.share.millionths(), taken[card.uuid].first);
      EXPECT_EQ(use.memory_mib, taken[card.uuid].second);
      EXPECT_LE(use.share, policy::kWhole);
      EXPECT_LE(use.memory_mib, card.memory_mib);
    }
  }
}

PodRequest AnyPod(Random& random, const std::string& name) {
  PodRequest pod;
  pod.name = name;
  pod.cpu_milli = static_cast<uint32_t>(random.Between(0, 8'000));
  pod.memory_mib = static_cast<uint64_t>(random.Between(0, 16'384));
  const auto containers = random.Between(0, 2);
  for (int64_t c = 0; c < containers; ++c) {
    VgpuRequest vgpu;
    vgpu.share = policy::Share(random.Between(1, 1'000) * 1'000);
    vgpu.count = random.OneIn(4) ? static_cast<uint32_t>(random.Between(1, 4)) : 1;
    if (random.OneIn(2)) vgpu.memory_mib = static_cast<uint32_t>(random.Between(1, 81'920));
    pod.containers.push_back({"c" + std::to_string(c), {vgpu}});
  }
  const char* words[] = {"", "", "", "", "red", "blue"};
  pod.affinity = words[random.Between(0, 5)];
  pod.anti_affinity = words[random.Between(0, 5)];
  pod.exclusion = words[random.Between(0, 5)];
  if (random.OneIn(8)) pod.mode = "exclusive";
  if (random.OneIn(8)) pod.models = {"a100"};
  return pod;
}

TEST_F(ClusterTest, ANodesOtherThingsAreGivenOutAndComeBack) {
  Node node = MakeNode("n1", 2);
  node.resources = {{"pods", 2}, {"disk", 100}};
  ASSERT_TRUE(cluster.SetNode(node));
  PodRequest a = MakePod("a", 100'000);
  a.resources = {{"pods", 1}, {"disk", 60}};
  PodRequest b = a;
  b.name = "b";
  Put(a);
  EXPECT_EQ(WhyNot(b), "0/1 nodes available: 1 insufficient other resources");
  EXPECT_EQ(cluster.Explain(b).at(0).why, "40 disk free, 60 requested");
  // What is on no list there is none of.
  PodRequest c = MakePod("c", 100'000);
  c.resources = {{"fpga", 1}};
  EXPECT_EQ(cluster.Explain(c).at(0).why, "0 fpga free, 1 requested");
  // What runs there already is booked all the same, and its GPUs are checked.
  Placement there = {"n1", cluster.Find("a")->placement.vgpus};
  ASSERT_FALSE(cluster.Commit(b, there));
  ASSERT_TRUE(cluster.Adopt(b, there));
  PodRequest whole = MakePod("whole", 1'000'000);
  EXPECT_FALSE(cluster.Adopt(whole, there));
  ASSERT_TRUE(cluster.Delete("a"));
  EXPECT_EQ(cluster.Explain(a).at(0).why, "40 disk free, 60 requested");
  ASSERT_TRUE(cluster.Delete("b"));
  Put(b);
}

TEST_F(ClusterTest, APodGoesToNoNodeThatItsListNames) {
  ASSERT_TRUE(cluster.SetNode(MakeNode("n1", 1)));
  ASSERT_TRUE(cluster.SetNode(MakeNode("n2", 1)));
  PodRequest a = MakePod("a", 100'000);
  a.off_nodes = std::make_shared<const std::vector<ExcludedNode>>(
      std::vector<ExcludedNode>{{"n1", "untolerated taint"}});
  EXPECT_EQ(Put(a).node, "n2");
  PodRequest b = MakePod("b", 950'000);
  b.off_nodes = a.off_nodes;
  EXPECT_EQ(WhyNot(b),
            "0/2 nodes available: 1 untolerated taint, 1 insufficient GPU share or memory");
  EXPECT_EQ(cluster.Explain(b).at(0).why, "untolerated taint");
}

TEST(ClusterProperty, NoGpuIsOverbookedAndTheBooksAddUpWhateverIsCalled) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const Rule rules[] = {Rule::kScarcity, Rule::kRemainder, Rule::kFragmentation, Rule::kBinpack,
                        Rule::kSpread,   Rule::kFirstFit,  Rule::kRandom};
  for (const Rule rule : rules) {
    Cluster cluster(kModes, {.nodes = rule, .cards = rule});
    Cluster twin(kModes, {.nodes = rule, .cards = rule});
    for (Cluster* c : {&cluster, &twin}) {
      for (int n = 0; n < 4; ++n) {
        ASSERT_TRUE(c->SetNode(MakeNode("n" + std::to_string(n), 4,
                                        n == 0 ? "NVIDIA A100-SXM4-80GB" : "NVIDIA H200")));
      }
    }
    int placed = 0;
    for (int i = 0; i < 600; ++i) {
      const auto act = random.Between(0, 9);
      const std::string some =
          cluster.pods().empty()
              ? "none"
              : std::next(cluster.pods().begin(),
                          random.Between(0, static_cast<int64_t>(cluster.pods().size()) - 1))
                    ->first;
      if (act < 5) {
        const PodRequest pod = AnyPod(random, "p" + std::to_string(i));
        cluster.Learn(pod);
        twin.Learn(pod);
        const auto placement = cluster.Decide(pod);
        const auto same = twin.Decide(pod);
        ASSERT_EQ(placement.has_value(), same.has_value());
        if (placement) {
          ASSERT_EQ(*placement, *same) << "the same input, the same placement";
          ASSERT_TRUE(cluster.Commit(pod, *placement));
          ASSERT_TRUE(twin.Commit(pod, *placement));
          ++placed;
        } else {
          // Nobody else finds a place where the search found none.
          EXPECT_EQ(cluster.Explain(pod).size(), cluster.Nodes().size());
        }
      } else if (act < 8) {
        ASSERT_EQ(cluster.Delete(some).has_value(), twin.Delete(some).has_value());
      } else if (act == 8) {
        const auto share = policy::Share(random.Between(0, 1'100) * 1'000);
        const auto memory = static_cast<uint32_t>(random.Between(0, 90'000));
        const Snapshot before(cluster);
        const auto resized = cluster.Resize(some, 0, 0, share, memory);
        ASSERT_EQ(resized.has_value(), twin.Resize(some, 0, 0, share, memory).has_value());
        EXPECT_TRUE(resized || Snapshot(cluster) == before);
      } else if (!cluster.pods().empty()) {
        Placement to = cluster.Find(some)->placement;
        to.node = "n" + std::to_string(random.Between(0, 3));
        for (size_t v = 0; v < to.vgpus.size(); ++v) {
          to.vgpus[v].card = to.node + "-" + std::to_string(random.Between(0, 3));
        }
        const Snapshot before(cluster);
        const auto moved = cluster.Move(some, to);
        ASSERT_EQ(moved.has_value(), twin.Move(some, to).has_value());
        EXPECT_TRUE(moved || Snapshot(cluster) == before);
      }
      ExpectBooksAreRight(cluster);
      ASSERT_EQ(Snapshot(cluster), Snapshot(twin));
    }
    EXPECT_GT(placed, 50) << RuleName(rule);
  }
}

TEST(ClusterProperty, PlaceThenDeleteRestoresTheExactState) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  Cluster cluster(kModes);
  for (int n = 0; n < 3; ++n) ASSERT_TRUE(cluster.SetNode(MakeNode("n" + std::to_string(n), 4)));
  for (int i = 0; i < 20; ++i) {
    const PodRequest pod = AnyPod(random, "first" + std::to_string(i));
    const auto placement = cluster.Decide(pod);
    ASSERT_TRUE(!placement || cluster.Commit(pod, *placement));
  }
  const Snapshot before(cluster);
  std::vector<std::string> added;
  for (int i = 0; i < 30; ++i) {
    const PodRequest pod = AnyPod(random, "second" + std::to_string(i));
    const auto placement = cluster.Decide(pod);
    if (!placement) continue;
    ASSERT_TRUE(cluster.Commit(pod, *placement));
    added.push_back(pod.name);
  }
  while (!added.empty()) {
    const auto which = random.Between(0, static_cast<int64_t>(added.size()) - 1);
    ASSERT_TRUE(cluster.Delete(added[static_cast<size_t>(which)]));
    added.erase(added.begin() + which);
  }
  EXPECT_EQ(Snapshot(cluster), before);
}

TEST_F(ClusterTest, ACommitIsCheckedAgainSoNothingIsBookedTwice) {
  ASSERT_TRUE(cluster.SetNode(MakeNode("n", 1)));
  const PodRequest a = MakePod("a", 600'000);
  const PodRequest b = MakePod("b", 600'000);
  const auto for_a = cluster.Decide(a);
  const auto for_b = cluster.Decide(b);
  ASSERT_TRUE(for_a && for_b) << "both fit, alone";
  ASSERT_TRUE(cluster.Commit(a, *for_a));
  const auto second = cluster.Commit(b, *for_b);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kExhausted);
  EXPECT_NE(second.error().message.find("40 %"), std::string::npos) << second.error().message;
  EXPECT_EQ(cluster.Commit(a, *for_a).error().code, ErrorCode::kExists);
}

// Two leaders, each of which did not know yet what the other had decided.
TEST_F(ClusterTest, ACommitKeepsApartWhatWasDecidedWithoutTheOther) {
  ASSERT_TRUE(cluster.SetNode(MakeNode("n", 2)));
  const auto second_on_the_gpu_of_the_first = [&](const std::function<void(PodRequest&)>& wish) {
    PodRequest first = MakePod("first", 100'000), second = MakePod("second", 100'000);
    wish(first);
    wish(second);
    Placement there = *cluster.Decide(first);
    EXPECT_TRUE(cluster.Commit(first, there));
    const auto booked = cluster.Commit(second, there);
    EXPECT_TRUE(cluster.Adopt(second, there) || booked) << "what runs there does";
    EXPECT_TRUE(cluster.Delete("first") && cluster.Delete("second"));
    return booked ? "" : booked.error().message;
  };
  EXPECT_EQ(second_on_the_gpu_of_the_first([](PodRequest&) {}), "");
  EXPECT_EQ(second_on_the_gpu_of_the_first([](PodRequest& pod) { pod.gang = "g"; }),
            "pod second on n: a GPU has a pod of the same gang");
  EXPECT_EQ(second_on_the_gpu_of_the_first([](PodRequest& pod) {
              pod.gang = "g";
              pod.affinity = "together";
            }),
            "");
  EXPECT_EQ(second_on_the_gpu_of_the_first([](PodRequest& pod) { pod.anti_affinity = "b"; }),
            "pod second on n: a GPU has a pod with anti-affinity 'b'");
}

TEST_F(ClusterTest, AFailedGpuGetsNoPodsAndKeepsThoseItHas) {
  Node node = MakeNode("n", 2);
  ASSERT_TRUE(cluster.SetNode(node));
  const Placement first = Put(MakePod("a", 500'000));
  const std::string card = first.vgpus[0].card;
  for (Card& c : node.cards) {
    if (c.uuid == card) c.health = Health::kFailed, c.why = "XID 79";
  }
  ASSERT_TRUE(cluster.SetNode(node));
  EXPECT_EQ(cluster.UseOf(card)->share, policy::Share(500'000));
  EXPECT_NE(Put(MakePod("b", 500'000)).vgpus[0].card, card);
  EXPECT_NE(Put(MakePod("c", 500'000)).vgpus[0].card, card);
  EXPECT_NE(WhyNot(MakePod("d", 500'000)), "it fits");
  const auto why = cluster.Explain(MakePod("d", 500'000));
  ASSERT_EQ(why.size(), 1u);
  ASSERT_EQ(why[0].cards.size(), 2u);
  int failed = 0;
  for (const CardRefusal& refusal : why[0].cards) {
    failed += refusal.why == "failed: XID 79";
    EXPECT_FALSE(refusal.why.empty());
  }
  EXPECT_EQ(failed, 1);
  // It vanishes altogether: its pod is still in the map, and can be deleted.
  std::erase_if(node.cards, [&](const Card& c) { return c.uuid == card; });
  ASSERT_TRUE(cluster.SetNode(node));
  ASSERT_NE(cluster.FindCard(card), nullptr);
  EXPECT_EQ(cluster.FindCard(card)->health, Health::kMissing);
  EXPECT_TRUE(cluster.Delete("a"));
  ASSERT_TRUE(cluster.SetNode(node));
  EXPECT_EQ(cluster.FindCard(card), nullptr) << "nothing is on it any more";
}

TEST_F(ClusterTest, ANodeThatShrankKeepsItsPodsAndCanStillResizeThem) {
  Node node = MakeNode("n", 1);
  ASSERT_TRUE(cluster.SetNode(node));
  PodRequest pod = MakePod("a", 500'000);
  pod.cpu_milli = 60'000;
  Put(pod);
  node.cpu_milli = 10'000;
  ASSERT_TRUE(cluster.SetNode(node));
  EXPECT_FALSE(cluster.Resize("a", 0, 0, policy::Share(500'000), 90'000))
      << "more memory than the GPU has";
  EXPECT_EQ(cluster.UseOf("n-0")->share, policy::Share(500'000));
  EXPECT_TRUE(cluster.Resize("a", 0, 0, policy::Share(700'000), 1'000));
  EXPECT_EQ(cluster.UseOf("n-0")->share, policy::Share(700'000));
  node.cards[0].memory_mib = 999;
  EXPECT_EQ(cluster.SetNode(node).error().code, ErrorCode::kInvalid);
}

TEST_F(ClusterTest, ModelsAreMeantByTheirWords) {
  EXPECT_TRUE(MeansModel("h100", "NVIDIA H100 80GB HBM3"));
  EXPECT_TRUE(MeansModel("A100 80gb", "NVIDIA A100-SXM4-80GB"));
  EXPECT_TRUE(MeansModel("NVIDIA H200", "NVIDIA H200"));
  EXPECT_FALSE(MeansModel("A10", "NVIDIA A100-SXM4-80GB")) << "a word, not the start of one";
  EXPECT_FALSE(MeansModel("80GB A100", "NVIDIA A100-SXM4-80GB"));
  EXPECT_FALSE(MeansModel("", "NVIDIA H200"));
  ASSERT_TRUE(cluster.SetNode(MakeNode("a", 1, "NVIDIA A100-SXM4-80GB")));
  ASSERT_TRUE(cluster.SetNode(MakeNode("h", 1)));
  PodRequest pod = MakePod("p", 100'000);
  pod.models = {"H200", "H100"};
  EXPECT_EQ(cluster.Decide(pod)->node, "h");
  pod.models = {};
  pod.not_models = {"h200"};
  EXPECT_EQ(cluster.Decide(pod)->node, "a");
  pod.not_models = {};
  pod.not_uuids = {"a-0"};
  EXPECT_EQ(cluster.Decide(pod)->node, "h");
  pod.uuids = {"a-0"};
  pod.not_uuids = {};
  EXPECT_EQ(cluster.Decide(pod)->node, "a");
  pod.uuids = {};
  pod.models = {"B200"};
  EXPECT_EQ(cluster.Decide(pod).error().code, ErrorCode::kNotFound) << "there is none at all";
}

TEST_F(ClusterTest, WordsKeepPodsTogetherApartAndAmongThemselves) {
  ASSERT_TRUE(cluster.SetNode(MakeNode("n", 3)));
  PodRequest pod = MakePod("a1", 100'000);
  pod.affinity = "a";
  const std::string together = Put(pod).vgpus[0].card;
  PodRequest filler = MakePod("filler", 850'000);
  filler.not_uuids = {together};
  Put(filler);
  pod.name = "a2";
  EXPECT_EQ(Put(pod).vgpus[0].card, together);
  pod = MakePod("a3", 950'000);
  pod.affinity = "a";
  EXPECT_NE(WhyNot(pod), "it fits") << "only there, and there is no room";

  pod = MakePod("b1", 10'000);
  pod.anti_affinity = "b";
  std::vector<std::string> apart = {Put(pod).vgpus[0].card};
  for (const char* name : {"b2", "b3"}) {
    pod.name = name;
    apart.push_back(Put(pod).vgpus[0].card);
  }
  std::sort(apart.begin(), apart.end());
  EXPECT_EQ(std::unique(apart.begin(), apart.end()) - apart.begin(), 3);
  pod.name = "b4";
  EXPECT_NE(WhyNot(pod), "it fits");
  const auto why = cluster.Explain(pod);
  ASSERT_EQ(why.size(), 1u);
  EXPECT_EQ(why[0].cards[0].why, "has a pod with anti-affinity 'b'");

  pod = MakePod("g1", 10'000);
  pod.gang = "g";
  apart = {Put(pod).vgpus[0].card};
  for (const char* name : {"g2", "g3"}) {
    pod.name = name;
    apart.push_back(Put(pod).vgpus[0].card);
  }
  std::sort(apart.begin(), apart.end());
  EXPECT_EQ(std::unique(apart.begin(), apart.end()) - apart.begin(), 3);
  pod.name = "g4";
  EXPECT_EQ(cluster.Explain(pod)[0].cards[0].why,
            "has a pod of the same gang; only an affinity word lets them share a GPU");
  pod.uuids = {together};
  Put(pod);
  pod.uuids = {};
  pod.name = "g5";
  pod.affinity = "a";
  EXPECT_EQ(Put(pod).vgpus[0].card, together);

  pod = MakePod("x", 10'000);
  pod.exclusion = "x";
  EXPECT_NE(WhyNot(pod), "it fits") << "every GPU has pods without the word";
  for (const char* name : {"a1", "a2", "filler", "b1", "b2", "b3", "g1", "g2", "g3", "g4", "g5"})
    EXPECT_TRUE(cluster.Delete(name));
  const std::string alone = Put(pod).vgpus[0].card;
  EXPECT_NE(Put(MakePod("y", 10'000)).vgpus[0].card, alone);
  pod.name = "x2";
  EXPECT_EQ(Put(pod).vgpus[0].card, alone);
}

TEST_F(ClusterTest, WordsThatNoPodHasAnyMoreAreForgotten) {
  ASSERT_TRUE(cluster.SetNode(MakeNode("n", 1)));
  for (int i = 0; i < 70'000; ++i) {
    PodRequest pod = MakePod("p", 100'000);
    pod.exclusion = "job-" + std::to_string(i);
    const auto placement = cluster.Decide(pod);
    ASSERT_TRUE(placement) << i;
    ASSERT_TRUE(cluster.Commit(pod, *placement)) << i;
    if (i < 69'999) {
      ASSERT_TRUE(cluster.Delete("p"));
    }
  }
  // A pod that could not be moved or resized still has its own, and nobody else.
  EXPECT_FALSE(cluster.Resize("p", 0, 0, policy::Share(100'000), 90'000));
  PodRequest other = MakePod("other", 100'000);
  other.exclusion = "job-1";
  EXPECT_NE(WhyNot(other), "it fits");
  other.exclusion = "job-69999";
  Put(other);
  EXPECT_TRUE(cluster.Delete("p"));
  EXPECT_NE(WhyNot(MakePod("p", 100'000)), "it fits");
  EXPECT_TRUE(cluster.Delete("other"));
  EXPECT_EQ(WhyNot(MakePod("p", 100'000)), "it fits");
}

TEST_F(ClusterTest, ASmallPartOfTheMemoryIsACapAllTheSame) {
  ASSERT_TRUE(cluster.SetNode(MakeNode("n", 1)));
  PodRequest pod = MakePod("p", 100'000);
  pod.containers[0].vgpus[0].memory_part = policy::Share(1);
  EXPECT_EQ(Put(pod).vgpus[0].fit.memory_mib, 1u);
}

TEST_F(ClusterTest, WholeGpusStandBesideFractions) {
  ASSERT_TRUE(cluster.SetNode(MakeNode("n", 3)));
  PodRequest whole = MakePod("whole", policy::kMillion);
  whole.mode = "exclusive";
  const std::string card = Put(whole).vgpus[0].card;
  EXPECT_EQ(cluster.UseOf(card)->memory_mib, 81'920u);
  Put(MakePod("part", 100'000));
  whole.name = "whole2";
  Put(whole);
  whole.name = "whole3";
  EXPECT_NE(WhyNot(whole), "it fits") << "the third GPU has a part taken";
  EXPECT_EQ(Put(MakePod("part2", 900'000)).vgpus[0].mode, "time-slice");
}

TEST_F(ClusterTest, APartOfAGpuIsNotGivenTheWholeOfOneForWantOfAMode) {
  ASSERT_TRUE(cluster.SetNode(MakeNode("n", 2)));
  // Before anything is known of the usual pods, and where none of them could use the rest.
  for (const uint32_t usual : {0u, 900'000u}) {
    for (int i = 0; i < 40 && usual > 0; ++i) cluster.Learn(MakePod("l", usual));
    for (const Rule rule : {Rule::kScarcity, Rule::kRemainder, Rule::kFragmentation, Rule::kBinpack,
                            Rule::kSpread, Rule::kFirstFit}) {
      cluster.SetPolicy({.nodes = rule, .cards = rule});
      for (const uint32_t share : {100'000u, 600'000u, 800'000u, 990'000u}) {
        for (const uint32_t memory : {0u, 1u, 8'192u, 80'000u}) {
          const auto placement = cluster.Decide(MakePod("p", share, 1, memory));
          ASSERT_TRUE(placement);
          EXPECT_EQ(placement->vgpus[0].mode, "time-slice")
              << RuleName(rule) << ", " << share << ", " << memory << " MiB, " << usual;
        }
      }
    }
  }
}

TEST_F(ClusterTest, BinpackFillsAndSpreadSpreads) {
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(cluster.SetNode(MakeNode(name, 2)));
  cluster.SetPolicy({.nodes = Rule::kBinpack, .cards = Rule::kBinpack});
  const std::string first = Put(MakePod("p1", 200'000, 1, 8'192)).vgpus[0].card;
  EXPECT_EQ(Put(MakePod("p2", 200'000, 1, 8'192)).vgpus[0].card, first);
  cluster.SetPolicy({.nodes = Rule::kBinpack, .cards = Rule::kSpread});
  const Placement third = Put(MakePod("p3", 200'000, 1, 8'192));
  EXPECT_EQ(third.node, first.substr(0, 1)) << "the node is the fullest, the GPU the emptiest";
  EXPECT_NE(third.vgpus[0].card, first);
  cluster.SetPolicy({.nodes = Rule::kSpread, .cards = Rule::kBinpack});
  EXPECT_NE(Put(MakePod("p4", 200'000, 1, 8'192)).node, third.node);
  // Memory weighs 0.7: of two GPUs, one with more memory and one with more time taken.
  Cluster two(kModes, {.nodes = Rule::kBinpack, .cards = Rule::kBinpack});
  ASSERT_TRUE(two.SetNode(MakeNode("n", 2)));
  PodRequest memory = MakePod("memory", 100'000, 1, 40'960);
  memory.uuids = {"n-1"};
  PodRequest time = MakePod("time", 500'000, 1, 8'192);
  time.uuids = {"n-0"};
  for (const PodRequest& pod : {memory, time}) ASSERT_TRUE(two.Commit(pod, *two.Decide(pod)));
  EXPECT_EQ(two.Decide(MakePod("p", 100'000, 1, 4'096))->vgpus[0].card, "n-1");
  two.SetPolicy({.nodes = Rule::kBinpack,
                 .cards = Rule::kBinpack,
                 .memory_weight = 100,
                 .share_weight = 900});
  EXPECT_EQ(two.Decide(MakePod("p", 100'000, 1, 4'096))->vgpus[0].card, "n-0");
}

TEST_F(ClusterTest, WhoAsksForAGpuByUuidIsNotToldOfModels) {
  Node node = MakeNode("a", 2);
  node.cards[1].cordoned = true;
  ASSERT_TRUE(cluster.SetNode(node));
  PodRequest pod = MakePod("p", 500'000);
  pod.uuids = {"a-1"};
  const auto by_uuid = cluster.Explain(pod);
  ASSERT_EQ(by_uuid.at(0).cards.size(), 2u);
  EXPECT_EQ(by_uuid[0].cards[0].why, "another GPU is requested");
  EXPECT_EQ(by_uuid[0].cards[1].why, "cordoned");
  pod.uuids.clear();
  pod.not_uuids = {"a-0"};
  EXPECT_EQ(cluster.Explain(pod).at(0).cards.at(0).why, "another GPU is requested");
  pod.not_uuids.clear();
  pod.models = {"unheard-of"};
  const std::string by_model = cluster.Explain(pod).at(0).cards.at(0).why;
  EXPECT_EQ(by_model, "model " + node.cards[0].model + " is not requested");
}

TEST_F(ClusterTest, EveryRefusalSaysWhyForEachNodeAndGpu) {
  Node a = MakeNode("a", 1);
  a.cordoned = true;
  Node b = MakeNode("b", 1);
  b.labels["zone"] = "west";
  Node c = MakeNode("c", 1);
  c.labels["zone"] = "east";
  c.cpu_milli = 1'000;
  Node d = MakeNode("d", 2);
  d.labels["zone"] = "east";
  d.cards[0].cordoned = true;
  for (const Node& node : {a, b, c, d}) ASSERT_TRUE(cluster.SetNode(node));
  PodRequest filler = MakePod("filler", 700'000, 1, 60'000);
  filler.uuids = {"d-1"};
  Put(filler);
  PodRequest pod = MakePod("p", 500'000);
  pod.cpu_milli = 2'000;
  pod.node_labels["zone"] = "east";
  const auto why = cluster.Explain(pod);
  ASSERT_EQ(why.size(), 4u);
  EXPECT_EQ(why[0].why, "cordoned");
  EXPECT_EQ(why[1].why, "label zone=east requested, node has west");
  EXPECT_EQ(why[2].why, "1 CPUs free, 2 requested");
  EXPECT_EQ(why[3].why, "");
  ASSERT_EQ(why[3].cards.size(), 2u);
  EXPECT_EQ(why[3].cards[0].why, "cordoned");
  EXPECT_NE(why[3].cards[1].why.find("30 %"), std::string::npos) << why[3].cards[1].why;
  const std::string message = WhyNot(pod);
  for (const char* part : {"0/4 nodes available", "1 cordoned", "1 missing node label",
                           "1 insufficient CPU", "1 insufficient GPU share"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST_F(ClusterTest, BadInputGetsOneClearLine) {
  const auto error = [&](const PodRequest& pod) {
    const auto placement = cluster.Decide(pod);
    return placement ? "" : placement.error().message;
  };
  ASSERT_TRUE(cluster.SetNode(MakeNode("n", 1)));
  EXPECT_EQ(error(MakePod("", 1'000)), "a pod needs a name");
  EXPECT_EQ(error(MakePod("p", 0)), "p/main: 0 % of a GPU; between 0.1 and 100");
  EXPECT_EQ(error(MakePod("p", 1'300'000)), "p/main: 130 % of a GPU; between 0.1 and 100");
  EXPECT_EQ(error(MakePod("p", 1'000, 0)), "p/main: 0 GPUs; between 1 and 16");
  EXPECT_EQ(error(MakePod("p", 1'000, 17)), "p/main: 17 GPUs; between 1 and 16");
  PodRequest both = MakePod("p", 1'000, 1, 5);
  both.containers[0].vgpus[0].memory_part = policy::Share(5);
  EXPECT_EQ(error(both), "p/main: memory both in MiB and as a part of the GPU; say one");
  PodRequest huge = MakePod("p", 1'000);
  huge.memory_mib = UINT64_MAX;
  EXPECT_EQ(error(huge), "p: 18446744073709551615 MiB of memory; more than any node has");
  PodRequest mode = MakePod("p", 1'000);
  mode.mode = "magic";
  EXPECT_EQ(error(mode), "p: there is no sharing mode 'magic'; one of time-slice, exclusive");
  const std::string beyond = error(MakePod("p", 1'000, 1, 90'000));
  EXPECT_NE(beyond.find("insufficient GPU share or memory"), std::string::npos) << beyond;

  Node node = MakeNode("m", 1);
  node.cards[0].memory_mib = 0;
  EXPECT_EQ(cluster.SetNode(node).error().message, "node m: GPU m-0 has 0 MiB of memory");
  node = MakeNode("m", 1);
  node.cards[0].uuid = "n-0";
  EXPECT_EQ(cluster.SetNode(node).error().message, "node m: GPU n-0 is on node n too");
  node = MakeNode("m", 17);
  EXPECT_EQ(cluster.SetNode(node).error().message, "node m: 17 GPUs; at most 16");
  Put(MakePod("p", 1'000));
  EXPECT_EQ(cluster.RemoveNode("n").error().message,
            "1 pods are placed on node n; delete them first");
  EXPECT_TRUE(cluster.Delete("p"));
  EXPECT_TRUE(cluster.RemoveNode("n"));
  EXPECT_EQ(cluster.RemoveNode("n").error().code, ErrorCode::kNotFound);
}

TEST_F(ClusterTest, GpusOfOnePodAreOfOneModel) {
  Node node = MakeNode("mixed", 4);
  node.cards[1].model = node.cards[3].model = "NVIDIA L40S";
  ASSERT_TRUE(cluster.SetNode(node));
  const auto models = [&](const Placement& placement) {
    std::set<std::string> all;
    for (const Vgpu& vgpu : placement.vgpus) all.insert(cluster.FindCard(vgpu.card)->model);
    return all.size();
  };
  // Each of the fullest two is of another model.
  Put(MakePod("a", 500'000, 1));
  PodRequest other = MakePod("b", 500'000, 1);
  other.models = {"l40s"};
  Put(other);
  EXPECT_EQ(models(*cluster.Decide(MakePod("two", 500'000, 2))), 1u);
  EXPECT_FALSE(cluster.Decide(MakePod("three", 400'000, 3)));
  PodRequest any = MakePod("any", 400'000, 3);
  any.models = {"h200", "l40s"};
  EXPECT_EQ(models(*cluster.Decide(any)), 2u) << "it names both";
  PodRequest one = MakePod("one", 400'000, 2);
  one.models = {"l40s"};
  EXPECT_EQ(models(*cluster.Decide(one)), 1u);
}

}  // namespace
}  // namespace baton::devmgr
