#include "devmgr/placement/quota.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "tests/devmgr/small_cluster.h"

namespace baton::devmgr {
namespace {

constexpr uint64_t kWholeCard = kGpu;  // as amounts are

Quota Guaranteed(const std::string& team, uint64_t share, std::optional<uint64_t> ceiling = {}) {
  return {team, share, std::nullopt, ceiling, std::nullopt};
}

std::string ErrorOf(std::vector<Quota> quotas) {
  const auto made = Quotas::Make(std::move(quotas));
  return made ? "" : made.error().message;
}

void Book(Cluster& cluster, const std::string& node, const PodRequest& request) {
  const auto placement = cluster.DecideOn(node, request);
  ASSERT_TRUE(placement) << placement.error().message;
  ASSERT_TRUE(cluster.Commit(request, *placement));
}

TEST(Quotas, WhatContradictsItselfIsRefused) {
  EXPECT_EQ(ErrorOf({}), "");
  EXPECT_EQ(ErrorOf({Guaranteed("", 8 * kWholeCard), Guaranteed("a", 4 * kWholeCard),
                     Guaranteed("b", 0)}),
            "");
  EXPECT_EQ(ErrorOf({Guaranteed("a", 1), Guaranteed("a", 2)}), "quota: team a has two");
  EXPECT_EQ(ErrorOf({Guaranteed("a", 2 * kWholeCard, kGpu)}),
            "quota: team a is guaranteed 2.0 GPUs, and team a may use 1.0 at most");
  EXPECT_EQ(ErrorOf({{"a", {}, {}, 0, {}}, Guaranteed("a/b", 500'000)}),
            "quota: team a/b is guaranteed 0.5 GPUs, and team a may use 0.0 at most");
  EXPECT_EQ(
      ErrorOf({Guaranteed("a", kGpu), Guaranteed("a/b/c", 600'000), Guaranteed("a/d", 500'000)}),
      "quota: teams below team a are guaranteed 1.1 GPUs in all, and it is itself 1.0");
  EXPECT_EQ(ErrorOf({Guaranteed("a", Quota::kShareMax + 1)}),
            "quota: team a: 1000000.000001 GPUs; at most 1000000.0");
  EXPECT_EQ(ErrorOf({{"a", {}, Quota::kMemoryMax + 1, {}, {}}}),
            "quota: team a: 1125899906842625 MiB of GPU memory; at most 1125899906842624");
  for (const std::string& path :
       {std::string("/a"), std::string("a/"), std::string("a//b"), std::string(257, 'a'),
        std::string("1/2/3/4/5/6/7/8/9/10/11/12/"
                    "13/14/15/16/17")}) {
    EXPECT_NE(ErrorOf({Guaranteed(path, 1)}).find("is not a path such as"), std::string::npos);
  }
  EXPECT_EQ(ErrorOf(std::vector<Quota>(Quotas::kQuotasMax + 1)), "10001 quotas; at most 10000");
}

TEST(Quotas, AQuotaIsForATeamAndAllBelowIt) {
  const auto quotas = Quotas::Make(
      {Guaranteed("", 1), Guaranteed("a", 1), Guaranteed("a/b/c", 1), Guaranteed("ab", 1)});
  ASSERT_TRUE(quotas.has_value() == false);  // below all teams 3 are guaranteed, of 1
  const auto fine = Quotas::Make(
      {Guaranteed("", 2), Guaranteed("a", 1), Guaranteed("a/b/c", 1), Guaranteed("ab", 1)});
  ASSERT_TRUE(fine) << fine.error().message;
  EXPECT_EQ(fine->Chain("a/b/c/d"), (std::vector<size_t>{2, 1, 0}));
  EXPECT_EQ(fine->Chain("a/b"), (std::vector<size_t>{1, 0}));
  EXPECT_EQ(fine->Chain("ab/x"), (std::vector<size_t>{3, 0}));
  EXPECT_EQ(fine->Chain("other"), (std::vector<size_t>{0}));
}

TEST(Ledger, SaysWhoUsesWhatAndWhy) {
  Cluster cluster(SmallModes());
  ASSERT_TRUE(cluster.SetNode(NodeOf("n", 8)));
  for (const char* name : {"v1", "v2", "v3"}) {
    Book(cluster, "n", PodOf(name, kGpu, 1, 0, "research/vision"));
  }
  Book(cluster, "n", PodOf("v4", 500'000, 1, 0, "research/vision"));
  const auto quotas =
      Quotas::Make({{"research", {}, {}, 5 * kWholeCard, {}},
                    {"research/vision", 3 * kWholeCard, 40'000, 4 * kWholeCard, {}}});
  ASSERT_TRUE(quotas) << quotas.error().message;
  Ledger ledger(*quotas, cluster);
  EXPECT_EQ(ledger.Standing("research/vision"),
            "team research/vision uses 3.5 GPUs, 3.0 guaranteed to it and 0.5 borrowed, of 4.0 at "
            "most; team research/vision uses 0 MiB of GPU memory of 40000 guaranteed to it; team "
            "research uses 3.5 GPUs, of 5.0 at most");
  EXPECT_EQ(ledger.Standing("sales"), "");
  const PodRequest whole = PodOf("v5", kGpu, 1, 0, "research/vision");
  const auto refused = ledger.Admit(whole, AskedBy(whole));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(refused.error().message,
            "team research/vision may use 4.0 GPUs at most; it uses 3.5, and v5 asks for 1.0 more");
  const auto reclaim = Reclaim(cluster, SmallModes(), ledger, whole);
  ASSERT_FALSE(reclaim);
  EXPECT_EQ(reclaim.error().code, ErrorCode::kDenied);
  EXPECT_EQ(reclaim.error().message.substr(0, 62),
            "v5 asks for 1.0 GPUs, which is not within a guarantee: team re");
  // The smaller one is what is borrowed: the larger three fill the guarantee.
  EXPECT_FALSE(ledger.Covered("v4"));
  EXPECT_TRUE(ledger.Covered("v1"));
  ledger.Remove("v1");
  EXPECT_TRUE(ledger.Covered("v4"));
  EXPECT_TRUE(ledger.Admit(whole, AskedBy(whole)));
}

TEST(Reclaim, TakesWhatWasBorrowedAndNothingElse) {
  Cluster cluster(SmallModes());
  ASSERT_TRUE(cluster.SetNode(NodeOf("n", 2)));
  // b is guaranteed one GPU and uses two; of higher priority than the one who waits.
  Book(cluster, "n", PodOf("b-mine", kGpu, 1, 9, "b"));
  Book(cluster, "n", PodOf("b-more", kGpu, 1, 8, "b"));
  const auto quotas = Quotas::Make({Guaranteed("a", kGpu), Guaranteed("b", kGpu)});
  ASSERT_TRUE(quotas);
  const Ledger ledger(*quotas, cluster);
  const auto found = Reclaim(cluster, SmallModes(), ledger, PodOf("a1", 500'000, 1, 0, "a/deep"));
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->pods, std::vector<std::string>{"b-more"});
}

TEST(Reclaim, WithinTheCeilingOfATeamAbove) {
  Cluster cluster(SmallModes());
  ASSERT_TRUE(cluster.SetNode(NodeOf("n", 4)));
  // r may use two; r/nlp borrows both, and r/vision is guaranteed one of them.
  Book(cluster, "n", PodOf("nlp1", kGpu, 1, 0, "r/nlp"));
  Book(cluster, "n", PodOf("nlp2", 500'000, 1, 0, "r/nlp"));
  Book(cluster, "n", PodOf("nlp3", 500'000, 1, 0, "r/nlp"));
  Book(cluster, "n", PodOf("sales1", kGpu, 1, 0, "sales"));
  const auto quotas =
      Quotas::Make({Guaranteed("r", 2 * kWholeCard, 2 * kWholeCard), Guaranteed("r/vision", kGpu)});
  ASSERT_TRUE(quotas);
  const Ledger ledger(*quotas, cluster);
  const PodRequest wanted = PodOf("v1", kGpu, 1, 0, "r/vision");
  ASSERT_FALSE(ledger.Admit(wanted, AskedBy(wanted)));
  // There is room for it; but only one of nlp's makes room below r's ceiling.
  ASSERT_TRUE(cluster.Decide(wanted));
  const auto found = Reclaim(cluster, SmallModes(), ledger, wanted);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->pods, std::vector<std::string>{"nlp1"});
}

std::string TeamBy(Random& random) {
  static const std::vector<std::string> kTeams = {"a", "a/x", "a/y", "a/y/z", "b", "b/x", "c", ""};
  return kTeams[random.Next() % kTeams.size()];
}

Cluster TeamsCluster(Random& random, size_t fill) {
  Cluster cluster(SmallModes());
  for (size_t n = 0; n < 3; ++n) {
    (void)cluster.SetNode(NodeOf("n" + std::to_string(n), 1 + random.Next() % 3));
  }
  for (size_t p = 0; p < fill; ++p) {
    PodRequest pod = RandomPod(random, "p" + std::to_string(p));
    pod.affinity = pod.mode = "";
    pod.team = TeamBy(random);
    if (const auto place = cluster.Decide(pod)) (void)cluster.Commit(pod, *place);
  }
  return cluster;
}

Quotas TeamsQuotas(Random& random) {
  const auto some = [&](int64_t most) -> std::optional<uint64_t> {
    if (random.OneIn(3)) return std::nullopt;
    return static_cast<uint64_t>(random.Between(0, most)) * 100'000;
  };
  while (true) {
    std::vector<Quota> quotas;
    for (const char* team : {"a", "a/x", "a/y", "b", "c"}) {
      if (random.OneIn(3)) continue;
      const int64_t most = team[1] == 0 ? 40 : 15;
      Quota quota{team, some(most), std::nullopt, std::nullopt, std::nullopt};
      if (random.OneIn(3)) quota.guaranteed_memory_mib = some(most) ? 12'000 : 30'000;
      if (random.OneIn(3)) quota.ceiling_share = some(most + 20);
      quotas.push_back(quota);
    }
    if (auto made = Quotas::Make(quotas)) return *std::move(made);
  }
}

std::string TeamOrDefault(const PlacedPod& pod) {
  return pod.request.team.empty() ? "default" : pod.request.team;
}

// The rule of the header once more, pod by pod and quota by quota: who is covered by which.
std::map<std::string, std::set<std::string>> CoveredBy(const Cluster& cluster,
                                                       const Quotas& quotas) {
  std::map<std::string, std::set<std::string>> covered;
  std::vector<Quota> lowest_first(quotas.all().rbegin(), quotas.all().rend());
  for (const Quota& quota : lowest_first) {
    if (!quota.guarantees()) continue;
    std::vector<std::tuple<bool, int64_t, std::string>> order;
    for (const auto& [name, pod] : cluster.pods()) {
      if (!IsOfTeam(TeamOrDefault(pod), quota.team)) continue;
      order.emplace_back(covered[name].empty(), -int64_t{pod.request.priority}, name);
    }
    std::sort(order.begin(), order.end());
    uint64_t share = 0;
    uint64_t memory = 0;
    for (const auto& [uncovered, priority, name] : order) {
      const Amount amount = TakenBy(cluster.Find(name)->placement);
      if (share + amount.share > quota.guaranteed_share.value_or(UINT64_MAX)) continue;
      if (memory + amount.memory_mib > quota.guaranteed_memory_mib.value_or(UINT64_MAX)) continue;
      share += amount.share;
      memory += amount.memory_mib;
      covered[name].insert(quota.team);
    }
  }
  return covered;
}

RC_GTEST_PROP(QuotaLaw, ReclaimIsLeastAndNeverBreaksAGuarantee, ()) {
  Random random(*rc::gen::arbitrary<uint64_t>());
  for (int i = 0; i < 5; ++i) {
    Cluster cluster = TeamsCluster(random, 14);
    const Quotas quotas = TeamsQuotas(random);
    const Ledger ledger(quotas, cluster);
    auto covered = CoveredBy(cluster, quotas);
    if (!quotas.all().empty()) {
      for (const auto& [name, pod] : cluster.pods()) {
        RC_ASSERT(ledger.Covered(name) == !covered[name].empty());
      }
    }
    PodRequest request = RandomPod(random, "new");
    request.affinity = "";
    request.team = TeamBy(random);
    const Amount more = AskedBy(request);
    const std::string team = request.team.empty() ? "default" : request.team;

    // The lowest team of its own whose guarantee has room for it.
    std::optional<std::string> guarantor;
    for (const Quota& quota : quotas.all()) {
      if (!quota.guarantees() || !IsOfTeam(team, quota.team)) continue;
      Amount use = more;
      for (const auto& [name, pod] : cluster.pods()) {
        if (IsOfTeam(TeamOrDefault(pod), quota.team)) use += TakenBy(pod.placement);
      }
      if (use.share <= quota.guaranteed_share.value_or(UINT64_MAX) &&
          use.memory_mib <= quota.guaranteed_memory_mib.value_or(UINT64_MAX)) {
        guarantor = quota.team;  // by path: the later the lower
      }
    }
    RC_ASSERT(ledger.Entitled(request.team, more) == guarantor.has_value());
    const bool fits = cluster.Decide(request).has_value();
    if (fits && ledger.Admit(request, more)) continue;
    const Print before = PrintOf(cluster);
    const auto found = Reclaim(cluster, SmallModes(), ledger, request);
    RC_ASSERT(PrintOf(cluster) == before);
    if (!guarantor) {
      RC_ASSERT(!found && found.error().code == ErrorCode::kDenied);
      continue;
    }

    // All sets of pods, on all nodes.
    std::optional<std::pair<size_t, std::vector<int32_t>>> least;
    for (const Node* node : cluster.Nodes()) {
      std::vector<PlacedPod> may_go;
      for (const PlacedPod* pod : cluster.PodsOn(node->name)) {
        const auto& by = covered[pod->request.name];
        const bool guarded = std::any_of(
            by.begin(), by.end(), [&](const std::string& quota) { return !IsOfTeam(team, quota); });
        if (!guarded && !IsOfTeam(TeamOrDefault(*pod), *guarantor)) may_go.push_back(*pod);
      }
      for (uint32_t mask = 1; mask < 1u << may_go.size(); ++mask) {
        std::vector<int32_t> priorities;
        for (size_t p = 0; p < may_go.size(); ++p) {
          if ((mask >> p & 1) != 0) priorities.push_back(may_go[p].request.priority);
        }
        std::sort(priorities.begin(), priorities.end(), std::greater<>());
        const std::pair loss(priorities.size(), priorities);
        if (least && !(loss < *least)) continue;
        for (size_t p = 0; p < may_go.size(); ++p) {
          if ((mask >> p & 1) != 0) RC_ASSERT(cluster.Delete(may_go[p].request.name).has_value());
        }
        const bool enough =
            cluster.DecideOn(node->name, request) && Ledger(quotas, cluster).Admit(request, more);
        for (size_t p = 0; p < may_go.size(); ++p) {
          if ((mask >> p & 1) == 0) continue;
          RC_ASSERT(cluster.Commit(may_go[p].request, may_go[p].placement).has_value());
        }
        if (enough) least = loss;
      }
    }
    RC_CLASSIFY(least.has_value(), "reclaimed");
    RC_ASSERT(found.has_value() == least.has_value());
    if (!found) continue;
    std::vector<int32_t> priorities;
    for (const std::string& name : found->pods) {
      priorities.push_back(cluster.Find(name)->request.priority);
      for (const std::string& quota : covered[name]) RC_ASSERT(IsOfTeam(team, quota));
    }
    std::sort(priorities.begin(), priorities.end(), std::greater<>());
    RC_ASSERT(std::pair(priorities.size(), priorities) == *least);
    for (const std::string& name : found->pods) RC_ASSERT(cluster.Delete(name).has_value());
    RC_ASSERT(cluster.Commit(request, found->placement).has_value());
    RC_ASSERT(Sound(cluster));
  }
}

RC_GTEST_PROP(QuotaLaw, TheLedgerKeptIsTheLedgerMadeAnew, ()) {
  Random random(*rc::gen::arbitrary<uint64_t>());
  Cluster cluster = TeamsCluster(random, 6);
  const Quotas quotas = TeamsQuotas(random);
  Ledger kept(quotas, cluster);
  for (int i = 0; i < 12; ++i) {
    const std::string name = "p" + std::to_string(random.Next() % 12);
    if (cluster.Find(name) != nullptr) {
      RC_ASSERT(cluster.Delete(name).has_value());
      kept.Remove(name);
    } else {
      PodRequest pod = RandomPod(random, name);
      pod.team = TeamBy(random);
      const auto place = cluster.Decide(pod);
      if (!place) continue;
      RC_ASSERT(cluster.Commit(pod, *place).has_value());
      kept.Add(pod, *place);
    }
    const Ledger anew(quotas, cluster);
    for (size_t q = 0; q < quotas.all().size(); ++q) RC_ASSERT(kept.UseOf(q) == anew.UseOf(q));
    for (const auto& [pod, placed] : cluster.pods()) {
      RC_ASSERT(kept.Covered(pod) == anew.Covered(pod));
    }
  }
}

}  // namespace
}  // namespace baton::devmgr
