#include "devmgr/placement/queue.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

#include "tests/devmgr/small_cluster.h"

namespace baton::devmgr {
namespace {

WaitingPod Waiting(const PodRequest& request, uint64_t since = 0, const std::string& gang = "") {
  return {request, since, gang, 0};
}

Cluster ClusterOf(size_t nodes, size_t cards) {
  Cluster cluster(SmallModes());
  for (size_t n = 0; n < nodes; ++n) {
    EXPECT_TRUE(cluster.SetNode(NodeOf("n" + std::to_string(n), cards)));
  }
  return cluster;
}

std::vector<std::string> NamesOf(const Round& round) {
  std::vector<std::string> names;
  for (const PlacedNow& placed : round.placed) names.push_back(placed.pod);
  return names;
}

TEST(Schedule, ByPriorityThenByWhatTheTeamIsDueThenByAge) {
  Cluster cluster = ClusterOf(1, 8);
  const std::vector<WaitingPod> waiting = {
      Waiting(PodOf("poor-1", 200'000, 1, 0, "poor"), 5),
      Waiting(PodOf("poor-0", 200'000, 1, 0, "poor"), 4),
      Waiting(PodOf("rich-1", 200'000, 1, 0, "rich"), 1),
      Waiting(PodOf("rich-2", 200'000, 1, 0, "rich"), 2),
      Waiting(PodOf("urgent", 200'000, 1, 7, "rich"), 9),
  };
  // What `urgent` was given counts; then it is twice as much for one as for the other.
  const Standings standings = {{"poor", {.weight = 2}}, {"rich", {.weight = 1}}};
  const Round round = Schedule(cluster, SmallModes(), waiting, Quotas(), standings, {});
  EXPECT_EQ(NamesOf(round),
            (std::vector<std::string>{"urgent", "poor-0", "poor-1", "rich-1", "rich-2"}));
  EXPECT_TRUE(round.refused.empty());
}

TEST(Schedule, SaysWhyNot) {
  Cluster cluster = ClusterOf(1, 1);
  PodRequest wrong = PodOf("wrong", kGpu);
  wrong.models = {"TPU"};
  const auto quotas = Quotas::Make({{"small", {}, {}, 100'000, {}}});
  ASSERT_TRUE(quotas);
  const Round round =
      Schedule(cluster, SmallModes(),
               std::vector<WaitingPod>{Waiting(PodOf("a", kGpu), 1), Waiting(PodOf("b", kGpu), 2),
                                       Waiting(PodOf("c", kGpu), 3), Waiting(wrong, 4),
                                       Waiting(PodOf("d", 200'000, 1, 0, "small"), 5)},
               *quotas, {}, {});
  EXPECT_EQ(NamesOf(round), std::vector<std::string>{"a"});
  std::map<std::string, Refusal> refused;
  for (const Refusal& refusal : round.refused) refused[refusal.pod] = refusal;
  ASSERT_EQ(refused.size(), 4u);
  EXPECT_EQ(refused["b"].why, "0/1 nodes available: 1 insufficient GPU share or memory");
  EXPECT_EQ(refused["b"].passed_over, 0u);  // nobody who came later was placed
  EXPECT_EQ(refused["c"].why, "c asks for the same as b, which fits nowhere");
  EXPECT_EQ(refused["wrong"].code, ErrorCode::kNotFound);
  EXPECT_EQ(refused["wrong"].passed_over, 0u);
  EXPECT_EQ(refused["d"].why,
            "team small may use 0.1 GPUs at most; it uses 0.0, and d asks for 0.2 more");
  EXPECT_EQ(refused["d"].passed_over, 0u);
}

TEST(Schedule, WhoIsOvertakenByOneOfATeamThatIsDueLessIsPassedOver) {
  for (const uint32_t weight : {1, 3}) {
    Cluster cluster = ClusterOf(1, 2);
    const PodRequest there = PodOf("there", 500'000, 1);
    ASSERT_TRUE(cluster.Commit(there, *cluster.Decide(there)));
    const std::vector<WaitingPod> waiting = {Waiting(PodOf("large", kGpu, 2, 0, "poor"), 5),
                                             Waiting(PodOf("small", 100'000, 1, 0, "rich"), 1)};
    const Round round = Schedule(cluster, SmallModes(), waiting, Quotas(),
                                 {{"poor", {.weight = weight}}, {"rich", {.weight = 2}}}, {});
    EXPECT_EQ(NamesOf(round), std::vector<std::string>{"small"});
    // If the small one is of the team that is due more, it is tried first.
    EXPECT_EQ(round.refused.at(0).passed_over, weight > 2 ? 1u : 0u);
  }
}

TEST(Schedule, NobodyIsDisplacedOnANodeThatThePodMustNotGoTo) {
  Cluster cluster = ClusterOf(2, 1);
  const PodRequest low = PodOf("low", kGpu);
  ASSERT_TRUE(cluster.Commit(low, *cluster.DecideOn("n0", low)));
  const PodRequest other = PodOf("other", kGpu);
  ASSERT_TRUE(cluster.Commit(other, *cluster.DecideOn("n1", other)));
  WaitingPod high = Waiting(PodOf("high", kGpu, 1, 5), 1);
  high.request.off_nodes =
      std::make_shared<const std::vector<ExcludedNode>>(std::vector<ExcludedNode>{{"n0", "x"}});
  Round round = Schedule(cluster, SmallModes(), std::vector{high}, Quotas(), {}, {});
  ASSERT_EQ(round.proposals.size(), 1u);
  EXPECT_EQ(round.proposals[0].displacement.node, "n1");
  high.request.off_nodes = std::make_shared<const std::vector<ExcludedNode>>(
      std::vector<ExcludedNode>{{"n0", "x"}, {"n1", "x"}});
  round = Schedule(cluster, SmallModes(), std::vector{high}, Quotas(), {}, {});
  EXPECT_TRUE(round.proposals.empty());
}

TEST(Schedule, AGangIsPlacedAsOneOrNotAtAll) {
  Cluster cluster = ClusterOf(2, 2);
  std::vector<WaitingPod> waiting;
  waiting.reserve(6);
  for (int i = 0; i < 5; ++i) {
    waiting.push_back(Waiting(PodOf("g" + std::to_string(i), kGpu), 0, "five"));
  }
  waiting.push_back(Waiting(PodOf("alone", kGpu), 1));
  const Round round = Schedule(cluster, SmallModes(), waiting, Quotas(), {}, {});
  EXPECT_EQ(NamesOf(round), std::vector<std::string>{"alone"});
  ASSERT_EQ(round.refused.size(), 5u);
  EXPECT_EQ(round.refused[0].why.substr(0, 31), "of the gang of g0 and 4 more: 0");
  waiting.erase(waiting.begin(), waiting.begin() + 2);
  waiting.pop_back();
  EXPECT_EQ(Schedule(cluster, SmallModes(), waiting, Quotas(), {}, {}).placed.size(), 3u);
}

TEST(Schedule, ACeilingHoldsForAGangTogether) {
  Cluster cluster = ClusterOf(2, 2);
  const auto quotas = Quotas::Make({{"t", {}, {}, 1'500'000, {}}});
  ASSERT_TRUE(quotas);
  const std::vector<WaitingPod> waiting = {Waiting(PodOf("g0", kGpu, 1, 0, "t"), 0, "two"),
                                           Waiting(PodOf("g1", kGpu, 1, 0, "t/x"), 0, "two"),
                                           Waiting(PodOf("other", kGpu, 1, 0, "t"), 1)};
  const Round round = Schedule(cluster, SmallModes(), waiting, *quotas, {}, {});
  EXPECT_EQ(round.refused.at(0).why,
            "team t may use 1.5 GPUs at most; it uses 1.0, and g1 asks for 1.0 more");
  // Nothing of the gang is left, neither on the cluster nor in the account.
  EXPECT_EQ(NamesOf(round), std::vector<std::string>{"other"});
  EXPECT_EQ(cluster.pods().size(), 1u);
}

TEST(Schedule, WhatIsReclaimedIsNotBorrowedAgain) {
  Cluster cluster = ClusterOf(1, 1);
  const auto quotas = Quotas::Make({{"owner", kGpu, {}, {}, {}}, {"guest", 0, {}, {}, {}}});
  ASSERT_TRUE(quotas);
  const PodRequest borrowed = PodOf("borrowed", kGpu, 1, 5, "guest");
  ASSERT_TRUE(cluster.Commit(borrowed, *cluster.Decide(borrowed)));
  const WaitingPod owner = Waiting(PodOf("owner-0", kGpu, 1, 0, "owner"), 9);
  const Round first =
      Schedule(cluster, SmallModes(), std::vector<WaitingPod>{owner}, *quotas, {}, {});
  ASSERT_EQ(first.proposals.size(), 1u);
  EXPECT_TRUE(first.proposals[0].reclaims);
  EXPECT_EQ(first.proposals[0].displacement.pods, std::vector<std::string>{"borrowed"});
  ASSERT_EQ(first.reservations.size(), 1u);
  EXPECT_EQ(first.reservations[0].nodes, std::vector<std::string>{"n0"});
  // It goes, and waits again: of higher priority, and there first.
  ASSERT_TRUE(cluster.Delete("borrowed"));
  const std::vector<WaitingPod> both = {Waiting(borrowed, 1), owner};
  const Round second = Schedule(cluster, SmallModes(), both, *quotas, {}, first.reservations);
  EXPECT_EQ(NamesOf(second), std::vector<std::string>{"owner-0"});
  ASSERT_EQ(second.refused.size(), 1u);
  EXPECT_EQ(second.refused[0].why, "0/1 nodes available: 1 insufficient GPU share or memory");
  // Within its guarantee nobody displaces it, whatever his priority.
  EXPECT_TRUE(second.proposals.empty());
}

TEST(Schedule, WhatAGuaranteeCoversGoesOnlyForWhatItWillCover) {
  const auto quotas = Quotas::Make({{"b", kGpu, {}, {}, {}}});
  ASSERT_TRUE(quotas);
  Cluster cluster = ClusterOf(1, 2);
  for (const auto& [name, team] : {std::pair{"low", "b"}, std::pair{"other", "c"}}) {
    const PodRequest pod = PodOf(name, kGpu, 1, 0, team);
    ASSERT_TRUE(cluster.Commit(pod, *cluster.Decide(pod)));
  }
  const auto displaced_for = [&](const PodRequest& pod) {
    const std::vector<WaitingPod> waiting = {Waiting(pod, 1)};
    const Round round = Schedule(cluster, SmallModes(), waiting, *quotas, {}, {});
    return round.proposals.empty() ? std::vector<std::string>()
                                   : round.proposals[0].displacement.pods;
  };
  // Two GPUs are more than the team is guaranteed: whoever is above it could take them, and "low"
  // would have them back by the guarantee.
  EXPECT_TRUE(displaced_for(PodOf("two", kGpu, 2, 5, "b")).empty());
  EXPECT_EQ(displaced_for(PodOf("one", kGpu, 1, 5, "c")), std::vector<std::string>{"other"});
  ASSERT_TRUE(cluster.Delete("other"));
  const PodRequest above = PodOf("above", kGpu, 1, 9, "c");
  ASSERT_TRUE(cluster.Commit(above, *cluster.Decide(above)));
  EXPECT_EQ(displaced_for(PodOf("one", kGpu, 1, 5, "b")), std::vector<std::string>{"low"});
}

TEST(Schedule, ProposalsShareNeitherPodsNorNodes) {
  Cluster cluster = ClusterOf(2, 1);
  for (const char* name : {"low-0", "low-1"}) {
    const PodRequest low = PodOf(name, kGpu);
    ASSERT_TRUE(cluster.Commit(low, *cluster.Decide(low)));
  }
  std::vector<WaitingPod> waiting;
  waiting.reserve(3);
  for (int i = 0; i < 3; ++i) {
    waiting.push_back(Waiting(PodOf("high-" + std::to_string(i), kGpu, 1, 3)));
  }
  const Round round = Schedule(cluster, SmallModes(), waiting, Quotas(), {}, {});
  ASSERT_EQ(round.proposals.size(), 2u);
  EXPECT_NE(round.proposals[0].displacement.node, round.proposals[1].displacement.node);
  EXPECT_FALSE(round.proposals[0].reclaims);
  RoundOptions none;
  none.proposals = 0;
  EXPECT_TRUE(Schedule(cluster, SmallModes(), waiting, Quotas(), {}, {}, none).proposals.empty());
}

TEST(Schedule, AGangThatFitsOnlyOnKeptNodesSaysSoAndIsPassedOver) {
  Cluster cluster = ClusterOf(1, 2);
  Node other = NodeOf("n1", 1);
  other.cards[0].model = "other";
  ASSERT_TRUE(cluster.SetNode(other));
  const PodRequest half = PodOf("half", 500'000);
  ASSERT_TRUE(cluster.Commit(half, *cluster.DecideOn("n0", half)));
  std::vector<WaitingPod> waiting = {
      Waiting(PodOf("holder", kGpu, 2), 1), Waiting(PodOf("g-0", 400'000), 2, "g"),
      Waiting(PodOf("g-1", 400'000), 2, "g"), Waiting(PodOf("later", kGpu), 3)};
  for (const size_t gang : {1, 2}) waiting[gang].request.not_models = {"other"};
  const Round round =
      Schedule(cluster, SmallModes(), waiting, Quotas(), {}, {{{"holder", {"n0"}}}});
  EXPECT_EQ(NamesOf(round), std::vector<std::string>{"later"});
  for (const size_t at : {1, 2}) {
    EXPECT_EQ(round.refused.at(at).code, ErrorCode::kExhausted);
    EXPECT_EQ(round.refused.at(at).why,
              "of the gang of g-0 and 1 more: it would fit on node n0, which is kept for holder: "
              "passed over 0 times");
    EXPECT_EQ(round.refused.at(at).passed_over, 1u);
  }
}

TEST(Schedule, AGangComesByTheLowestPriorityOfItsPods) {
  for (const int32_t second : {5, 0}) {
    Cluster cluster = ClusterOf(1, 2);
    const std::vector<WaitingPod> waiting = {Waiting(PodOf("holder", kGpu, 2, 1), 1),
                                             Waiting(PodOf("g-0", 400'000, 1, 5), 2, "g"),
                                             Waiting(PodOf("g-1", 400'000, 1, second), 2, "g")};
    const Round round = Schedule(cluster, SmallModes(), waiting, Quotas(), {}, {});
    EXPECT_EQ(NamesOf(round), second == 5 ? (std::vector<std::string>{"g-0", "g-1"})
                                          : std::vector<std::string>{"holder"});
  }
}

// The node was kept from it when it was tried, for one that is placed after it.
TEST(Schedule, NobodyIsDisplacedForAPodThatFitsByTheEndOfTheRound) {
  Cluster cluster = ClusterOf(1, 2);
  const PodRequest low = PodOf("low", 300'000, 2, -1);
  ASSERT_TRUE(cluster.Commit(low, *cluster.Decide(low)));
  const std::vector<WaitingPod> waiting = {Waiting(PodOf("older", 300'000), 1),
                                           Waiting(PodOf("holder", 300'000), 2)};
  const std::vector<Reservation> kept = {{"holder", {"n0"}}};
  const Round round = Schedule(cluster, SmallModes(), waiting, Quotas(), {}, kept);
  EXPECT_EQ(NamesOf(round), std::vector<std::string>{"holder"});
  EXPECT_TRUE(round.proposals.empty());
}

TEST(Schedule, NodeStaysKeptForOneThatIsAway) {
  Cluster cluster = ClusterOf(1, 1);
  WaitingPod holder = Waiting(PodOf("holder", 600'000, 1, 5), 1);
  holder.away = true;
  const std::vector<Reservation> kept = {{"holder", {"n0"}}};
  const Round round =
      Schedule(cluster, SmallModes(), std::vector{holder, Waiting(PodOf("other", 300'000), 2)},
               Quotas(), {}, kept);
  EXPECT_TRUE(round.placed.empty());
  ASSERT_EQ(round.refused.size(), 1u);
  EXPECT_EQ(round.refused[0].pod, "other");
  EXPECT_EQ(round.reservations, kept);
  EXPECT_TRUE(round.proposals.empty());
  // A pod of higher priority may go there.
  const Round above =
      Schedule(cluster, SmallModes(),
               std::vector{holder, Waiting(PodOf("above", 300'000, 1, 6), 2)}, Quotas(), {}, kept);
  EXPECT_EQ(NamesOf(above), std::vector<std::string>{"above"});
}

TEST(Schedule, WholeGpuWhoseMemoryACeilingForbidsDisplacesNobody) {
  const auto quotas = Quotas::Make({{"a", {}, {}, {}, kCardMib - 1}});
  ASSERT_TRUE(quotas);
  Cluster cluster = ClusterOf(1, 1);
  const PodRequest low = PodOf("low", kGpu);
  ASSERT_TRUE(cluster.Commit(low, *cluster.Decide(low)));
  PodRequest whole = PodOf("whole", kGpu, 1, 5, "a");
  whole.mode = "exclusive";
  const Round round =
      Schedule(cluster, SmallModes(), std::vector{Waiting(whole, 1)}, *quotas, {}, {});
  EXPECT_TRUE(round.proposals.empty());
}

TEST(Schedule, WholeGpuGoesWhereItsMemoryIsWithinTheCeiling) {
  const auto quotas = Quotas::Make({{"a", {}, {}, {}, kCardMib}});
  ASSERT_TRUE(quotas);
  Cluster cluster(SmallModes());
  Node large = NodeOf("a-large", 1);
  large.cards[0].memory_mib = 2 * kCardMib;
  ASSERT_TRUE(cluster.SetNode(large));
  ASSERT_TRUE(cluster.SetNode(NodeOf("small", 1)));
  PodRequest whole = PodOf("whole", kGpu, 1, 0, "a");
  whole.mode = "exclusive";
  const Round round =
      Schedule(cluster, SmallModes(), std::vector{Waiting(whole, 1)}, *quotas, {}, {});
  ASSERT_EQ(NamesOf(round), std::vector<std::string>{"whole"});
  EXPECT_EQ(round.placed[0].placement.node, "small");
}

// What goes below a ceiling of the team above is not given to a sibling first, for ever.
TEST(Schedule, CeilingThatWasMadeRoomBelowIsForWhomItWas) {
  const auto quotas = Quotas::Make(
      {{"b", {}, {}, 800'000, {}}, {"b/x", 300'000, {}, {}, {}}, {"b/y", {}, {}, {}, {}}});
  ASSERT_TRUE(quotas);
  Cluster cluster = ClusterOf(1, 4);
  const PodRequest there = PodOf("there", 600'000, 1, 0, "b/y");
  ASSERT_TRUE(cluster.Commit(there, *cluster.Decide(there)));
  const Standings standings = {{"b/x", {.weight = 1}}, {"b/z", {.weight = 9}}};
  const std::vector<WaitingPod> waiting = {Waiting(PodOf("entitled", 300'000, 1, 0, "b/x"), 2),
                                           Waiting(PodOf("other", 600'000, 1, 0, "b/z"), 1)};
  Round round = Schedule(cluster, SmallModes(), waiting, *quotas, standings, {});
  ASSERT_EQ(round.proposals.size(), 1u);
  EXPECT_EQ(round.proposals[0].pod, "entitled");
  ASSERT_TRUE(cluster.Delete("there"));
  round = Schedule(cluster, SmallModes(), waiting, *quotas, standings, round.reservations);
  EXPECT_EQ(NamesOf(round), std::vector<std::string>{"entitled"});
}

// A round looks for victims for a few only.
TEST(Schedule, WhoIsSoughtForInVainMakesWayForTheOthers) {
  Cluster cluster = ClusterOf(1, 4);
  const PodRequest low = PodOf("low", kGpu);
  ASSERT_TRUE(cluster.Commit(low, *cluster.Decide(low)));
  std::vector<WaitingPod> waiting;
  for (uint32_t i = 0; i < 20; ++i) {
    // None of these would ever fit.
    const std::string name = std::string("v") + static_cast<char>('a' + i);
    waiting.push_back(Waiting(PodOf(name, 500'000 + 1'000 * i, 5, 5), i));
  }
  waiting.push_back(Waiting(PodOf("would", kGpu, 4, 5), 99));
  for (int rounds = 1;; ++rounds) {
    ASSERT_LE(rounds, 3);
    const Round round = Schedule(cluster, SmallModes(), waiting, Quotas(), {}, {});
    if (!round.proposals.empty()) {
      EXPECT_EQ(round.proposals[0].pod, "would");
      EXPECT_GT(rounds, 1);
      break;
    }
    ASSERT_TRUE(round.more);
    for (const Refusal& refusal : round.refused) {
      for (WaitingPod& pod : waiting) {
        if (pod.request.name == refusal.pod) pod.sought = refusal.sought;
      }
    }
  }
}

TEST(Schedule, NobodyIsDisplacedForAPodThatMayNotAndOthersHaveTheProposals) {
  Cluster cluster = ClusterOf(1, 1);
  const PodRequest low = PodOf("low", kGpu);
  ASSERT_TRUE(cluster.Commit(low, *cluster.Decide(low)));
  std::vector<WaitingPod> waiting;
  for (int i = 0; i < 12; ++i) {
    waiting.push_back(Waiting(PodOf("polite-" + std::to_string(i), 500'000, 1, 9), 1));
    waiting.back().displaces = false;
  }
  EXPECT_TRUE(Schedule(cluster, SmallModes(), waiting, Quotas(), {}, {}).proposals.empty());
  waiting.push_back(Waiting(PodOf("urgent", kGpu, 1, 5), 2));
  const Round round = Schedule(cluster, SmallModes(), waiting, Quotas(), {}, {});
  ASSERT_EQ(round.proposals.size(), 1u);
  EXPECT_EQ(round.proposals[0].pod, "urgent");
  EXPECT_EQ(round.proposals[0].displacement.pods, std::vector<std::string>{"low"});
}

RC_GTEST_PROP(ScheduleLaw, ARoundIsSoundAndTheSameEachTime, ()) {
  Random random(*rc::gen::arbitrary<uint64_t>());
  const uint64_t seed = random.Next();
  Random one(seed);
  Random two(seed);
  Cluster cluster = RandomCluster(one, 3, 3, 8);
  Cluster same = RandomCluster(two, 3, 3, 8);
  const std::vector<std::string> teams = {"a", "a/x", "b", ""};
  std::vector<WaitingPod> waiting;
  for (int i = 0; i < 12; ++i) {
    WaitingPod pod = Waiting(RandomPod(random, "w" + std::to_string(i)), random.Next() % 4);
    pod.request.team = teams[random.Next() % teams.size()];
    pod.passed_over = static_cast<uint32_t>(random.Between(0, 9));
    if (random.OneIn(3)) pod.gang = random.OneIn(2) ? "g" : "h";
    waiting.push_back(pod);
  }
  std::vector<Quota> list = {{"a", 1'000'000, {}, 2'500'000, {}}, {"b", 700'000, {}, {}, 9'000}};
  if (random.OneIn(3)) list.clear();
  const auto quotas = Quotas::Make(list);
  RC_ASSERT(quotas.has_value());
  const std::vector<Reservation> kept = {{waiting[0].request.name, {"n1"}},
                                         {"long gone", {"n0"}},
                                         {waiting[1].request.name, {"no such node"}}};
  // What others placed before this is not for these ceilings to judge.
  std::vector<Amount> before;
  {
    const Ledger ledger(*quotas, cluster);
    for (size_t q = 0; q < list.size(); ++q) before.push_back(ledger.UseOf(q));
  }
  const Names there_before = [&] {
    Names names;
    for (const auto& [name, pod] : cluster.pods()) names.insert(name);
    return names;
  }();
  const Round round = Schedule(cluster, SmallModes(), waiting, *quotas, {}, kept);
  std::reverse(waiting.begin(), waiting.end());
  RC_ASSERT(Schedule(same, SmallModes(), waiting, *quotas, {}, kept) == round);
  RC_ASSERT(PrintOf(same) == PrintOf(cluster));
  RC_ASSERT(Sound(cluster));
  RC_ASSERT(round.placed.size() + round.refused.size() == waiting.size());
  for (const PlacedNow& placed : round.placed) {
    RC_ASSERT(cluster.Find(placed.pod)->placement == placed.placement);
  }
  std::map<std::string, std::set<bool>> gangs;
  for (const WaitingPod& pod : waiting) {
    if (!pod.gang.empty()) gangs[pod.gang].insert(cluster.Find(pod.request.name) != nullptr);
  }
  for (const auto& [gang, placed] : gangs) RC_ASSERT(placed.size() == 1u);
  const Ledger ledger(*quotas, cluster);
  for (size_t q = 0; q < list.size(); ++q) {
    const Amount use = ledger.UseOf(q);
    RC_ASSERT(use.share <= std::max(before[q].share, list[q].ceiling_share.value_or(UINT64_MAX)));
    RC_ASSERT(use.memory_mib <=
              std::max(before[q].memory_mib, list[q].ceiling_memory_mib.value_or(UINT64_MAX)));
  }
  RC_CLASSIFY(!round.proposals.empty(), "proposals");
  Names nodes;
  Names pods;
  for (const Proposal& proposal : round.proposals) {
    RC_ASSERT(nodes.insert(proposal.displacement.node).second);
    for (const std::string& pod : proposal.displacement.pods) {
      RC_ASSERT(pods.insert(pod).second);
      // Nobody is displaced by the round that placed him.
      RC_ASSERT(there_before.contains(pod));
    }
  }
  Names kept_nodes;
  for (const Reservation& reservation : round.reservations) {
    for (const std::string& node : reservation.nodes) RC_ASSERT(kept_nodes.insert(node).second);
  }
}

RC_GTEST_PROP(ScheduleLaw, TeamsAreGivenByTheirWeightsToWithinOnePod, ()) {
  Random random(*rc::gen::arbitrary<uint64_t>());
  Cluster cluster = ClusterOf(4, 8);
  Standings standings;
  std::map<std::string, uint64_t> largest;
  std::map<std::string, size_t> left;
  std::vector<WaitingPod> waiting;
  std::map<std::string, PodRequest> requests;
  for (const std::string team : {"a", "b", "c"}) {
    standings[team].weight = static_cast<uint32_t>(random.Between(50'000, 1'000'000));
    const int64_t size = random.Between(1, 10);
    // One has many small ones, another few large ones; all of them fit.
    for (int64_t n = 0; n < 60 / size; ++n) {
      const auto share = static_cast<uint32_t>(random.Between(1, size)) * 100'000;
      const PodRequest pod = PodOf(team + std::to_string(n), share, 1, 0, team);
      largest[team] = std::max<uint64_t>(largest[team], share);
      ++left[team];
      requests[pod.name] = pod;
      waiting.push_back(Waiting(pod, random.Next() % 5));
    }
  }
  const Round round = Schedule(cluster, SmallModes(), waiting, Quotas(), standings, {});
  RC_ASSERT(round.refused.empty());
  std::map<std::string, double> given;
  for (const PlacedNow& placed : round.placed) {
    const PodRequest& pod = requests[placed.pod];
    given[pod.team] += static_cast<double>(AskedBy(pod).share);
    --left[pod.team];
    for (const auto& [one, first] : standings) {
      for (const auto& [two, second] : standings) {
        if (left[one] == 0 || left[two] == 0) continue;
        const double f = first.weight;
        const double g = second.weight;
        const double apart = given[one] / f - given[two] / g;
        const double most =
            std::max(static_cast<double>(largest[one]) / f, static_cast<double>(largest[two]) / g);
        RC_ASSERT(apart <= most * 1.000001);
      }
    }
  }
}

// A cluster that small pods could keep full for ever, and some that need a whole node. Each runs
// for at most `life` rounds. Returns in which round the large ones were placed, in the order of
// their names; nothing: not within `rounds`. `before`: how many others wait when they come.
std::vector<std::optional<uint64_t>> Crowd(Random& random, uint32_t large, uint32_t life,
                                           const RoundOptions& options, uint64_t rounds,
                                           size_t* before = nullptr) {
  Cluster cluster = ClusterOf(3, 2);
  std::map<std::string, uint64_t> ends;
  std::map<std::string, WaitingPod> waiting;
  std::vector<std::optional<uint64_t>> placed(large);
  std::vector<Reservation> kept;
  uint64_t named = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    for (auto it = ends.begin(); it != ends.end();) {
      if (it->second <= round) {
        EXPECT_TRUE(cluster.Delete(it->first));
        it = ends.erase(it);
      } else {
        ++it;
      }
    }
    while (waiting.size() < large + 6) {
      // Of a team that is due more, too.
      const PodRequest pod =
          PodOf("small-" + std::to_string(named++), 500'000, 1, 0, random.OneIn(2) ? "crowd" : "");
      waiting[pod.name] = Waiting(pod, round);
    }
    if (round == 2) {
      // Those that wait may leave the queue.
      if (random.OneIn(2)) waiting.clear();
      if (before != nullptr) *before = waiting.size();
      for (uint32_t n = 0; n < large; ++n) {
        const PodRequest pod = PodOf("large-" + std::to_string(n), kGpu, 2);
        waiting[pod.name] = Waiting(pod, round);
      }
    }
    std::vector<WaitingPod> now;
    now.reserve(waiting.size());
    for (const auto& [name, pod] : waiting) now.push_back(pod);
    const Round done =
        Schedule(cluster, SmallModes(), now, Quotas(),
                 {{"crowd", {.weight = 10}}, {"default", {.weight = 3}}}, kept, options);
    EXPECT_TRUE(Sound(cluster));
    for (const PlacedNow& pod : done.placed) {
      waiting.erase(pod.pod);
      ends[pod.pod] = round + static_cast<uint64_t>(random.Between(1, life));
      if (pod.pod.starts_with("large-")) placed[std::stoul(pod.pod.substr(6))] = round;
      for (const Reservation& reservation : kept) {
        // Once its holder is placed it is for anybody.
        if (!waiting.contains(reservation.holder)) continue;
        EXPECT_EQ(
            std::count(reservation.nodes.begin(), reservation.nodes.end(), pod.placement.node), 0);
      }
    }
    for (const Refusal& refusal : done.refused) {
      waiting[refusal.pod].passed_over = refusal.passed_over;
    }
    kept = done.reservations;
    EXPECT_LE(kept.size(), options.reservations);
    if (std::all_of(placed.begin(), placed.end(), [](const auto& at) { return at.has_value(); })) {
      break;
    }
  }
  return placed;
}

RC_GTEST_PROP(ScheduleLaw, WhoIsPassedOverIsPlacedWithinTheBound, ()) {
  Random random(*rc::gen::arbitrary<uint64_t>());
  RoundOptions options;
  options.patience = static_cast<uint32_t>(random.Between(1, 6));
  options.reservations = static_cast<uint32_t>(random.Between(1, 2));
  const auto life = static_cast<uint32_t>(random.Between(1, 4));
  const auto large = static_cast<uint32_t>(random.Between(1, 3));
  size_t before = 0;
  const auto placed = Crowd(random, large, life, options, 140, &before);
  RC_LOG() << "patience " << options.patience << ", reservations " << options.reservations
           << ", life " << life << ", large " << large << "\n";
  for (uint32_t n = 0; n < large; ++n) {
    const uint64_t bound = options.patience + (2 * (before + n) + 3) * (life + 1);
    RC_ASSERT(bound < 138u);
    RC_ASSERT(placed[n].has_value());
    RC_ASSERT(*placed[n] - 2 <= bound);
    // A round or two after its turn has come, as a rule.
    RC_CLASSIFY(*placed[n] - 2 <= options.patience + (n + 1) * (life + 1), "soon");
  }
}

TEST(Schedule, ANodeKeptForOneThatStarvesWithholdsNoGuarantee) {
  const auto quotas = Quotas::Make({{"due", 1'000'000, {}, {}, {}}});
  ASSERT_TRUE(quotas);
  for (const bool vacated : {false, true}) {
    Cluster cluster = ClusterOf(1, 2);
    const PodRequest borrower = PodOf("borrower", 600'000, 2, 0, "other");
    ASSERT_TRUE(cluster.Commit(borrower, *cluster.Decide(borrower)));
    std::vector<WaitingPod> waiting = {Waiting(PodOf("starves", kGpu, 2, 5, "other"), 1),
                                       Waiting(PodOf("fits", 300'000, 1, 0, "due"), 2),
                                       Waiting(PodOf("reclaims", 700'000, 1, 0, "due"), 3)};
    waiting[0].displaces = false;
    const std::vector<Reservation> kept = {{"starves", {"n0"}, vacated}};
    const Round round = Schedule(cluster, SmallModes(), waiting, *quotas, {}, kept);
    // Of what is vacated for another nothing is taken.
    EXPECT_EQ(NamesOf(round).size(), vacated ? 0u : 1u);
    ASSERT_EQ(round.proposals.size(), vacated ? 0u : 1u);
    if (vacated) continue;
    EXPECT_EQ(round.proposals[0].pod, "reclaims");
    EXPECT_TRUE(round.proposals[0].reclaims);
    EXPECT_EQ(round.reservations, (std::vector<Reservation>{{"reclaims", {"n0"}, true}}));
  }
}

TEST(Schedule, SaysOnWhichNodeNobodyGoesBecauseItIsKept) {
  Cluster cluster = ClusterOf(1, 1);
  const PodRequest low = PodOf("low", 600'000);
  ASSERT_TRUE(cluster.Commit(low, *cluster.Decide(low)));
  std::vector<WaitingPod> waiting = {Waiting(PodOf("polite", kGpu, 1, 5), 1),
                                     Waiting(PodOf("urgent", 500'000, 1, 5), 2),
                                     Waiting(PodOf("equal", 700'000), 3)};
  waiting[0].displaces = false;
  const std::vector<Reservation> kept = {{"polite", {"n0"}}};
  const Round round = Schedule(cluster, SmallModes(), waiting, Quotas(), {}, kept);
  EXPECT_TRUE(round.proposals.empty());
  const std::string full = "0/1 nodes available: 1 insufficient GPU share or memory";
  ASSERT_EQ(round.refused.size(), 3u);
  for (const Refusal& refusal : round.refused) EXPECT_EQ(refusal.why, full);
  EXPECT_EQ(round.refused[0].withheld, "");
  EXPECT_EQ(round.refused[1].withheld, "nobody goes for it on node n0, which is kept for polite");
  // Nobody would go for it anyway.
  EXPECT_EQ(round.refused[2].withheld, "");
}

TEST(Schedule, WithoutKeptRoomALargePodWouldStarve) {
  Random random(1);
  RoundOptions options;
  options.reservations = 0;
  EXPECT_FALSE(Crowd(random, 1, 20, options, 150)[0].has_value());
  options.reservations = 1;
  EXPECT_TRUE(Crowd(random, 1, 20, options, 150)[0].has_value());
}

TEST(Schedule, NodesAreKeptForAWholeGang) {
  Cluster cluster = ClusterOf(3, 1);
  for (int i = 0; i < 3; ++i) {
    const PodRequest pod = PodOf("old-" + std::to_string(i), 600'000);
    ASSERT_TRUE(cluster.Commit(pod, *cluster.Decide(pod)));
  }
  std::vector<WaitingPod> waiting = {Waiting(PodOf("g0", kGpu), 0, "g"),
                                     Waiting(PodOf("g1", kGpu), 0, "g")};
  waiting[0].passed_over = 8;
  const Round first = Schedule(cluster, SmallModes(), waiting, Quotas(), {}, {});
  EXPECT_TRUE(first.placed.empty());
  ASSERT_EQ(first.reservations, (std::vector<Reservation>{{"g0", {"n0", "n1"}}}));
  // One node runs empty; a latecomer goes elsewhere, or nowhere.
  ASSERT_TRUE(cluster.Delete("old-0"));
  waiting.push_back(Waiting(PodOf("late", 300'000), 1));
  waiting.push_back(Waiting(PodOf("large", 500'000), 2));
  const Round second = Schedule(cluster, SmallModes(), waiting, Quotas(), {}, first.reservations);
  ASSERT_EQ(NamesOf(second), std::vector<std::string>{"late"});
  EXPECT_EQ(second.placed[0].placement.node, "n2");
  EXPECT_EQ(second.reservations, first.reservations);
  ASSERT_TRUE(cluster.Delete("old-1"));
  waiting.resize(2);
  const Round third = Schedule(cluster, SmallModes(), waiting, Quotas(), {}, second.reservations);
  EXPECT_EQ(NamesOf(third), (std::vector<std::string>{"g0", "g1"}));
  EXPECT_TRUE(third.reservations.empty());
}

}  // namespace
}  // namespace baton::devmgr
