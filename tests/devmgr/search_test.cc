// The search on one node, against exhaustive search.
#include "devmgr/placement/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <tuple>

#include "base/random.h"
#include "devmgr/modes/exclusive.h"
#include "devmgr/modes/time_slice.h"
#include "devmgr/placement/cluster_state.h"
#include "tests/scale.h"

namespace baton::devmgr {
namespace {

const TimeSlice kSearchTimeSlice;
const Exclusive kSearchExclusive;
const SharingMode* const kSearchModes[] = {&kSearchTimeSlice, &kSearchExclusive};

// A node whose GPUs are in use at random. `islands`, `numas`, `switches`: over how many they are
// spread; where there are switches, some GPUs are without NVLink.
class RandomNode {
 public:
  RandomNode(Random& random, size_t cards, int islands, int numas, int switches = 0) {
    node.info.name = "n";
    node.info.cpu_milli = 64'000;
    node.info.memory_mib = 256'000;
    for (size_t c = 0; c < cards; ++c) {
      Card card;
      card.uuid = "c" + std::to_string(c);
      card.model = "NVIDIA H200";
      card.memory_mib = random.OneIn(4) ? 40'960 : 81'920;
      card.island = islands == 0 ? -1 : static_cast<int32_t>(random.Between(0, islands - 1));
      card.numa = numas == 0 ? -1 : static_cast<int32_t>(random.Between(0, numas - 1));
      if (switches > 0) {
        card.pcie = static_cast<int32_t>(random.Between(-1, switches - 1));
        if (random.OneIn(3)) card.island = -1;
      }
      node.info.cards.push_back(card);
    }
    for (const Card& card : node.info.cards) {
      CardState state;
      state.card = &card;
      state.usable = true;
      state.serves = 3;
      state.model = card.memory_mib;
      if (!random.OneIn(3)) {
        // Few values, so that GPUs are often alike.
        state.use.share = policy::Share(random.Between(0, 4) * 250'000);
        state.use.memory_mib = static_cast<uint32_t>(random.Between(0, 4)) * 10'240;
        state.use.vgpus = state.use.share > policy::Share(0) || state.use.memory_mib > 0;
        if (state.use.vgpus > 0) state.use.mode = 0;
      }
      node.cards.push_back(state);
    }
    NumberKinds(node);
    Cluster::State().AddUp(node);
  }
  NodeState node;
};

PodRequest RandomWants(Random& random, int containers_most, int cards_most) {
  PodRequest pod;
  pod.name = "p";
  pod.cpu_milli = static_cast<uint32_t>(random.Between(0, 32'000));
  int left = cards_most;
  const auto containers = random.Between(1, containers_most);
  for (int64_t c = 0; c < containers && left > 0; ++c) {
    ContainerRequest container{"c" + std::to_string(c), {}};
    const auto groups = random.Between(1, 2);
    for (int64_t g = 0; g < groups && left > 0; ++g) {
      VgpuRequest vgpu;
      const uint32_t shares[] = {100'000, 250'000, 300'000, 500'000, 1'000'000};
      vgpu.share = policy::Share(shares[random.Between(0, 4)]);
      if (random.OneIn(2)) vgpu.memory_mib = static_cast<uint32_t>(random.Between(1, 5)) * 8'192;
      if (vgpu.memory_mib == 0 && random.OneIn(2)) vgpu.memory_part = vgpu.share;
      vgpu.count = static_cast<uint32_t>(random.Between(1, std::min(left, 3)));
      left -= static_cast<int>(vgpu.count);
      container.vgpus.push_back(vgpu);
    }
    pod.containers.push_back(container);
  }
  return pod;
}

using Key = std::tuple<Spread, int64_t, int64_t>;

// All ways there are, each judged by the definition.
class Exhaustive {
 public:
  Exhaustive(const NodeState& node, const std::vector<Want>& wants, const PlacementPolicy& policy,
             const Mix& mix, const PodRequest& pod)
      : node_(node), wants_(wants), policy_(policy), mix_(mix), pod_(pod) {
    for (const CardState& card : node.cards) use_.push_back(card.use);
    Next(0);
  }
  std::optional<Key> best;

 private:
  void Next(size_t i) {
    if (i == wants_.size()) {
      Judge();
      return;
    }
    for (size_t c = 0; c < use_.size(); ++c) {
      bool twice = false;
      for (size_t j = 0; j < i; ++j) {
        twice |= on_[j] == c && wants_[j].container == wants_[i].container;
      }
      if (twice) continue;
      const VgpuWant want = wants_[i].On(*node_.cards[c].card);
      for (uint8_t m = 0; m < 2; ++m) {
        if (use_[c].vgpus > 0 && use_[c].mode != m) continue;
        const auto fit = kSearchModes[m]->TryFit(*node_.cards[c].card, use_[c], want);
        if (!fit) continue;
        const CardUse was = use_[c];
        use_[c].share += fit->share;
        use_[c].memory_mib += fit->memory_mib;
        use_[c].vgpus++;
        use_[c].mode = m;
        on_.push_back(c);
        // Exclusive alone takes more than was wanted: the whole GPU.
        const int64_t share = int64_t{fit->share.millionths()} - want.share.millionths();
        int64_t full = 0;
        if (m == 1 && (want.share < policy::kWhole || want.memory_mib > 0)) {
          full = 1'000 - Fullness(policy_, want.share, policy::kWhole, want.memory_mib,
                                  node_.cards[c].card->memory_mib);
        }
        waste_ += share;
        full_waste_ += full;
        Next(i + 1);
        full_waste_ -= full;
        waste_ -= share;
        on_.pop_back();
        use_[c] = was;
      }
    }
  }

  void Judge() {
    std::vector<size_t> cards = on_;
    std::sort(cards.begin(), cards.end());
    cards.erase(std::unique(cards.begin(), cards.end()), cards.end());
    std::vector<int> islands, numas, switches;
    int alone = 1'000;
    int64_t squares = 0;
    FreeNode free = FreeOf(node_, pod_.cpu_milli, pod_.memory_mib);
    const auto u = [&](const CardUse& use, const Card& card) {
      return Fullness(policy_, use.share, policy::kWhole, use.memory_mib, card.memory_mib);
    };
    for (const size_t c : cards) {
      const Card& card = *node_.cards[c].card;
      islands.push_back(card.island < 0 ? alone++ : card.island);
      numas.push_back(card.numa);
      // By NVLink, by a switch, or by neither.
      switches.push_back(card.island >= 0 ? 10'000 + card.island
                         : card.pcie >= 0 ? 20'000 + card.pcie
                                          : alone++);
      const int64_t before = u(node_.cards[c].use, card);
      const int64_t after = u(use_[c], card);
      squares += after * after - before * before;
      SetFree(free, c, card, use_[c]);
    }
    const auto different = [](std::vector<int> all) {
      std::sort(all.begin(), all.end());
      return static_cast<uint32_t>(std::unique(all.begin(), all.end()) - all.begin());
    };
    const int64_t waste = waste_ / 1'000;
    int64_t cost = 0;
    if (policy_.cards == Rule::kBinpack) cost = -squares + 2'000 * (waste + full_waste_);
    if (policy_.cards == Rule::kSpread) cost = squares + 2'000 * (waste + full_waste_);
    if (policy_.cards == Rule::kFragmentation || policy_.cards == Rule::kRemainder ||
        policy_.cards == Rule::kScarcity) {
      const auto lost = [&](const FreeNode& node) {
        const Mix::Losses losses = mix_.LossesOf(policy_.cards, Mix::Sum(node));
        return std::accumulate(losses.begin(), losses.end(), int64_t{0});
      };
      cost = lost(free) - lost(FreeOf(node_, 0, 0)) + waste * (Mix::kLossUnit + 1);
    }
    const Key key{{different(islands), different(numas), different(switches)}, cost, -squares};
    if (!best || key < *best) best = key;
  }

  const NodeState& node_;
  const std::vector<Want>& wants_;
  const PlacementPolicy& policy_;
  const Mix& mix_;
  const PodRequest& pod_;
  std::vector<CardUse> use_;
  std::vector<size_t> on_;
  int64_t waste_ = 0;
  int64_t full_waste_ = 0;
};

std::optional<Candidate> Found(const NodeState& node, const std::vector<Want>& wants,
                               const PlacementPolicy& policy, const Mix& mix, const PodRequest& pod,
                               bool* exhausted) {
  SearchOptions options;
  options.modes = kSearchModes;
  options.policy = &policy;
  options.mix = &mix;
  options.cpu_milli = pod.cpu_milli;
  options.memory_mib = pod.memory_mib;
  SearchEnd end;
  auto found = SearchNode(node, Wants(wants), options, &end);
  EXPECT_FALSE(end.dear);
  *exhausted |= end.exhausted;
  return found;
}

TEST(Search, FindsTheBestPlaceThatThereIsInThousandsOfSmallCases) {
  constexpr int kCases = kSanitized ? 3'000 : 10'000;
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  Mix mix;
  for (int i = 0; i < 50; ++i) mix.Learn(RandomWants(random, 1, 3));
  int placed = 0;
  for (int i = 0; i < kCases; ++i) {
    const RandomNode node(
        random, static_cast<size_t>(random.Between(1, 5)), static_cast<int>(random.Between(0, 2)),
        static_cast<int>(random.Between(0, 2)), static_cast<int>(random.Between(0, 2)));
    const PodRequest pod = RandomWants(random, 3, 4);
    PlacementPolicy policy;
    const Rule rules[] = {Rule::kBinpack, Rule::kSpread, Rule::kFragmentation, Rule::kRemainder,
                          Rule::kScarcity};
    policy.cards = rules[i % 5];
    const std::vector<Want> wants = WantsOf(pod);
    bool exhausted = false;
    const auto found = Found(node.node, wants, policy, mix, pod, &exhausted);
    const Exhaustive all(node.node, wants, policy, mix, pod);
    ASSERT_FALSE(exhausted) << "case " << i;
    ASSERT_EQ(found.has_value(), all.best.has_value()) << "case " << i;
    if (!found) continue;
    ++placed;
    ASSERT_EQ(Key(found->spread, found->cost, found->fit), *all.best)
        << "case " << i << ", rule " << RuleName(policy.cards);
  }
  EXPECT_GT(placed, kCases / 5);
}

// With a place on another node that is known, only what is better is looked for.
TEST(Search, WhatIsKnownAlreadyHidesNothingThatIsBetter) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  Mix mix;
  for (int i = 0; i < 50; ++i) mix.Learn(RandomWants(random, 1, 3));
  int better = 0;
  int worse = 0;
  for (int i = 0; i < 4'000; ++i) {
    const auto islands = static_cast<int>(random.Between(0, 2));
    const auto switches = static_cast<int>(random.Between(0, 2));
    const RandomNode here(random, static_cast<size_t>(random.Between(1, 6)), islands, 2, switches);
    const RandomNode there(random, static_cast<size_t>(random.Between(1, 6)), islands, 2, switches);
    const PodRequest pod = RandomWants(random, 3, 4);
    PlacementPolicy policy;
    const Rule rules[] = {Rule::kRemainder, Rule::kFragmentation, Rule::kScarcity};
    policy.cards = rules[i % 3];
    const std::vector<Want> wants = WantsOf(pod);
    bool exhausted = false;
    const auto known = Found(here.node, wants, policy, mix, pod, &exhausted);
    const auto all = Found(there.node, wants, policy, mix, pod, &exhausted);
    if (!known || !all || exhausted) continue;
    SearchOptions options;
    options.modes = kSearchModes;
    options.policy = &policy;
    options.mix = &mix;
    options.cpu_milli = pod.cpu_milli;
    options.memory_mib = pod.memory_mib;
    options.spread = known->spread;
    options.limit = known->cost;
    SearchEnd end;
    const auto found = SearchNode(there.node, Wants(wants), options, &end);
    if (std::tie(all->spread, all->cost) <= std::tie(known->spread, known->cost)) {
      ++better;
      ASSERT_TRUE(found) << "case " << i;
      ASSERT_EQ(Key(found->spread, found->cost, found->fit), Key(all->spread, all->cost, all->fit))
          << "case " << i;
    } else {
      ++worse;
      ASSERT_TRUE(found || end.dear) << "case " << i << ": there is a place";
    }
  }
  EXPECT_GT(better, 200);
  EXPECT_GT(worse, 200);
}

TEST(Search, GpusOfOnePodAreOnOneIslandWheneverOneHasRoom) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const Mix mix;
  int on_one = 0;
  for (int i = 0; i < 10'000; ++i) {
    const RandomNode node(random, 8, 2, 2);
    PodRequest pod;
    pod.name = "p";
    VgpuRequest vgpu;
    vgpu.share = policy::Share(random.Between(1, 4) * 250'000);
    vgpu.count = static_cast<uint32_t>(random.Between(2, 4));
    pod.containers = {{"main", {vgpu}}};
    PlacementPolicy policy;
    const Rule rules[] = {Rule::kBinpack, Rule::kSpread, Rule::kFragmentation, Rule::kRemainder,
                          Rule::kScarcity};
    policy.cards = rules[i % 5];
    bool exhausted = false;
    const auto found = Found(node.node, WantsOf(pod), policy, mix, pod, &exhausted);
    ASSERT_FALSE(exhausted);
    // Room on an island, and on one NUMA node of it: counted, not searched.
    uint32_t room[2] = {};
    uint32_t both[2][2] = {};
    uint32_t numa[2] = {};
    uint32_t any = 0;
    for (const CardState& card : node.node.cards) {
      const bool fits = card.use.share + vgpu.share <= policy::kWhole;
      room[card.card->island] += fits;
      both[card.card->island][card.card->numa] += fits;
      numa[card.card->numa] += fits;
      any += fits;
    }
    ASSERT_EQ(found.has_value(), any >= vgpu.count);
    if (!found) continue;
    const bool island = std::max(room[0], room[1]) >= vgpu.count;
    ASSERT_EQ(found->spread.islands == 1, island) << "case " << i;
    if (island) {
      ++on_one;
      uint32_t most = 0;
      for (const auto& row : both) most = std::max({most, row[0], row[1]});
      ASSERT_EQ(found->spread.numas == 1, most >= vgpu.count) << "case " << i;
    } else {
      ASSERT_EQ(found->spread.numas == 1, std::max(numa[0], numa[1]) >= vgpu.count) << "case " << i;
    }
  }
  EXPECT_GT(on_one, 3'000);
}

// Two NUMA nodes with two PCIe switches each and two GPUs below each. What the rule likes, it may
// choose among places that are as near.
TEST(Search, GpusWithoutNvlinkAreOnOneNumaNodeAndThenBelowOneSwitch) {
  for (const Rule rule : {Rule::kBinpack, Rule::kSpread, Rule::kScarcity}) {
    NodeState node;
    node.info.name = "n";
    for (int32_t c = 0; c < 8; ++c) {
      Card card;
      card.uuid = "c" + std::to_string(c);
      card.memory_mib = 81'920;
      card.pcie = c / 2;
      card.numa = c / 4;
      node.info.cards.push_back(card);
    }
    const auto fill = [&](std::initializer_list<uint32_t> percents) {
      node.cards.clear();
      for (const Card& card : node.info.cards) {
        CardState state;
        state.card = &card;
        state.usable = true;
        state.serves = 1;
        state.use.share = policy::Share(*(percents.begin() + node.cards.size()) * 10'000);
        state.use.vgpus = state.use.share > policy::Share(0);
        state.use.mode = 0;
        node.cards.push_back(state);
      }
      NumberKinds(node);
      Cluster::State().AddUp(node);
    };
    const auto places = [&](uint32_t count) {
      PodRequest pod;
      pod.name = "p";
      VgpuRequest vgpu;
      vgpu.share = policy::Share(400'000);
      vgpu.count = count;
      pod.containers = {{"main", {vgpu}}};
      PlacementPolicy policy;
      policy.nodes = policy.cards = rule;
      bool exhausted = false;
      const auto found = Found(node, WantsOf(pod), policy, Mix(), pod, &exhausted);
      std::vector<int> cards;
      for (const Place& place : found->places) cards.push_back(place.card);
      std::sort(cards.begin(), cards.end());
      return cards;
    };
    SCOPED_TRACE(RuleName(rule));
    // The fullest and the emptiest GPUs are below different switches.
    fill({60, 0, 60, 0, 70, 20, 30, 20});
    const std::vector<int> two = places(2);
    EXPECT_EQ(two[0] / 2, two[1] / 2) << two[0] << " and " << two[1];
    // None has two with room below it: the NUMA node counts.
    fill({60, 70, 70, 70, 70, 0, 70, 0});
    EXPECT_EQ(places(2), (std::vector<int>{5, 7}));
    // No NUMA node has room for four.
    fill({0, 0, 70, 0, 0, 0, 0, 70});
    EXPECT_EQ(places(4).size(), 4u);
    // With NVLink between them, switches are as good as none, and best fit decides.
    for (Card& card : node.info.cards) card.island = card.numa = 0;
    fill({60, 20, 60, 70, 70, 70, 70, 70});
    if (rule == Rule::kBinpack) {
      EXPECT_EQ(places(2), (std::vector<int>{0, 2}));
    }
  }
}

// Shares that fill eight GPUs to the last tenth of a percent, in an order that misleads a greedy
// search; every container wants several GPUs.
TEST(Search, EightContainersOnEightGpusFitWhereTheyJustFit) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const Mix mix;
  int found_all = 0;
  constexpr int kCases = 100;
  for (int i = 0; i < kCases; ++i) {
    RandomNode node(random, 8, 0, 0);
    for (CardState& card : node.node.cards) card.use = CardUse{};
    Cluster::State().AddUp(node.node);
    // Each GPU is cut in pieces that belong to different containers.
    std::vector<std::vector<uint32_t>> shares(8);
    for (int card = 0; card < 8; ++card) {
      uint32_t left = 1'000;
      const auto first = random.Between(0, 7);
      for (int piece = 0; piece < 3; ++piece) {
        const uint32_t share =
            piece == 2 ? left : static_cast<uint32_t>(random.Between(1, left - 2 + piece));
        shares[static_cast<size_t>(first + piece) % 8].push_back(share * 1'000);
        left -= share;
      }
    }
    PodRequest pod;
    pod.name = "p";
    for (size_t c = 0; c < shares.size(); ++c) {
      ContainerRequest container{"c" + std::to_string(c), {}};
      for (const uint32_t share : shares[c]) {
        VgpuRequest vgpu;
        vgpu.share = policy::Share(share);
        container.vgpus.push_back(vgpu);
      }
      pod.containers.push_back(container);
    }
    PlacementPolicy policy;
    policy.cards = Rule::kBinpack;
    bool exhausted = false;
    const auto found = Found(node.node, WantsOf(pod), policy, mix, pod, &exhausted);
    // A search that finds nothing must not say that there is nothing.
    EXPECT_TRUE(found.has_value() || exhausted) << "case " << i;
    found_all += found.has_value();
  }
  RecordProperty("found", found_all);
  std::printf("found %d of %d perfect packings\n", found_all, kCases);
  EXPECT_GT(found_all, kCases / 2);
}

}  // namespace
}  // namespace baton::devmgr
