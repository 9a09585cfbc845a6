#include "devmgr/placement/queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <tuple>

#include "base/check.h"
#include "devmgr/placement/gang.h"
#include "devmgr/placement/replay.h"

namespace baton::devmgr {
namespace {

constexpr size_t kShapesMax = 256;

// A pod, or the pods of a gang: what is placed as one.
struct Unit {
  std::vector<const WaitingPod*> pods;  // by name
  uint64_t since = 0;
  uint32_t passed_over = 0;
  Amount asked;

  const PodRequest& first() const { return pods.front()->request; }
  const std::string& name() const { return first().name; }
  int32_t priority() const { return first().priority; }
  std::string team() const { return first().team.empty() ? std::string(kNoTeam) : first().team; }
  std::vector<PodRequest> Requests() const {
    std::vector<PodRequest> requests;
    for (const WaitingPod* pod : pods) requests.push_back(pod->request);
    return requests;
  }
};

enum class Fate : uint8_t {
  kWaits,  // not tried yet
  kPlaced,
  kNoRoom,   // or only where it is kept for others
  kCeiling,  // its team's, or of one above
  kWrong,    // it can never be placed
};

std::vector<Unit> UnitsOf(std::span<const WaitingPod> waiting) {
  std::vector<const WaitingPod*> pods;
  for (const WaitingPod& pod : waiting) pods.push_back(&pod);
  std::sort(pods.begin(), pods.end(), [](const WaitingPod* a, const WaitingPod* b) {
    return std::tie(a->request.name, a->since) < std::tie(b->request.name, b->since);
  });
  std::vector<Unit> units;
  std::map<std::string_view, size_t> gangs;
  for (const WaitingPod* pod : pods) {
    size_t at = units.size();
    if (!pod->gang.empty()) at = gangs.emplace(pod->gang, at).first->second;
    if (at == units.size()) units.push_back({{}, pod->since, 0, {}});
    Unit& unit = units[at];
    unit.pods.push_back(pod);
    unit.since = std::min(unit.since, pod->since);
    unit.passed_over = std::max(unit.passed_over, pod->passed_over);
    unit.asked += AskedBy(pod->request);
  }
  return units;
}

class Rounds {
 public:
  Rounds(Cluster& cluster, Modes modes, std::span<const WaitingPod> waiting, const Quotas& quotas,
         const Factors& factors, const RoundOptions& options)
      : cluster_(cluster),
        modes_(modes),
        factors_(factors),
        options_(options),
        ledger_(quotas, cluster),
        units_(UnitsOf(waiting)),
        fates_(units_.size(), Fate::kWaits) {}

  Round Run(std::span<const Reservation> kept) {
    Take(kept);
    TryAll();
    CountPassedOver();
    Propose();
    Keep();
    return std::move(round_);
  }

 private:
  // Nodes that are kept for a unit.
  struct Kept {
    size_t unit;
    std::vector<std::string> nodes;
    bool entitled;
  };

  void Take(std::span<const Reservation> kept) {
    std::map<std::string_view, size_t> by_name;
    for (size_t u = 0; u < units_.size(); ++u) by_name.emplace(units_[u].name(), u);
    std::vector<bool> has(units_.size(), false);
    for (const Reservation& reservation : kept) {
      const auto it = by_name.find(reservation.holder);
      if (it == by_name.end() || has[it->second]) continue;
      has[it->second] = true;
      const Unit& unit = units_[it->second];
      kept_.push_back({it->second, reservation.nodes, ledger_.Entitled(unit.team(), unit.asked)});
    }
  }

  uint64_t FactorOf(const std::string& team) const {
    const auto it = factors_.find(team);
    if (it == factors_.end()) return policy::kMillion;
    return std::clamp<uint32_t>(it->second, 1, policy::kMillion);
  }

  void TryAll() {
    // By priority, the highest first; then by team, its units in the order in which they came.
    std::map<int32_t, std::map<std::string, std::deque<size_t>>, std::greater<>> queues;
    std::vector<size_t> order(units_.size());
    for (size_t u = 0; u < order.size(); ++u) order[u] = u;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::tie(units_[a].since, units_[a].name()) <
             std::tie(units_[b].since, units_[b].name());
    });
    for (const size_t u : order) queues[units_[u].priority()][units_[u].team()].push_back(u);
    std::map<std::string, policy::ShareSum> given;  // in this round
    for (auto& [priority, teams] : queues) {
      while (!teams.empty()) {
        auto next = teams.begin();
        for (auto team = teams.begin(); team != teams.end(); ++team) {
          const uint64_t factor = FactorOf(team->first);
          const uint64_t best = FactorOf(next->first);
          const policy::ShareSum left = given[team->first] * best;
          const policy::ShareSum right = given[next->first] * factor;
          if (left < right || (left == right && factor > best)) next = team;
        }
        const size_t u = next->second.front();
        next->second.pop_front();
        if (Try(u)) {
          // What takes no GPU takes something too.
          given[next->first] += std::max<policy::ShareSum>(policy::ShareSum(units_[u].asked.share),
                                                           policy::kShareMin);
        }
        if (next->second.empty()) teams.erase(next);
      }
    }
  }

  // Whether it was placed.
  bool Try(size_t u) {
    tried_.push_back(u);
    const Unit& unit = units_[u];
    if (const auto admitted = AdmitAll(unit); !admitted) {
      return Refuse(u, Fate::kCeiling, admitted.error());
    }
    const Names avoided = KeptFrom(u);
    const auto placements =
        unit.pods.size() == 1 ? TryOne(unit.first(), avoided) : TryGang(unit, avoided);
    if (!placements) {
      const ErrorCode code = placements.error().code;
      const bool room = code == ErrorCode::kExhausted || code == ErrorCode::kUnavailable;
      return Refuse(u, room ? Fate::kNoRoom : Fate::kWrong, placements.error());
    }
    // They are there; only now is it known what they take.
    for (size_t i = 0; i < unit.pods.size(); ++i) {
      const PodRequest& request = unit.pods[i]->request;
      const auto admitted = ledger_.Admit(request, TakenBy((*placements)[i]));
      if (admitted) {
        ledger_.Add(request, (*placements)[i]);
        continue;
      }
      for (size_t j = unit.pods.size(); j-- > 0;) {
        const std::string& name = unit.pods[j]->request.name;
        if (j < i) ledger_.Remove(name);
        BATON_CHECK(cluster_.Delete(name).has_value());
      }
      return Refuse(u, Fate::kCeiling, admitted.error());
    }
    for (size_t i = 0; i < unit.pods.size(); ++i) {
      round_.placed.push_back({unit.pods[i]->request.name, (*placements)[i]});
      fresh_.insert(unit.pods[i]->request.name);
    }
    fates_[u] = Fate::kPlaced;
    return true;
  }

  bool Refuse(size_t u, Fate fate, const Error& error) {
    fates_[u] = fate;
    for (const WaitingPod* pod : units_[u].pods) {
      round_.refused.push_back({pod->request.name, error.code, error.message, 0});
    }
    return false;
  }

  void CountPassedOver() {
    const auto came = [&](size_t u) {
      return std::pair(units_[u].since, std::string_view(units_[u].name()));
    };
    // They were tried by priority, so who was placed after one is of no higher priority; of those
    // that were placed before it, who came last counts.
    size_t last = 0;
    std::map<int32_t, std::pair<uint64_t, std::string_view>> latest;
    for (size_t t = 0; t < tried_.size(); ++t) {
      if (fates_[tried_[t]] != Fate::kPlaced) continue;
      last = t;
      auto& there = latest[units_[tried_[t]].priority()];
      there = std::max(there, came(tried_[t]));
    }
    std::map<std::string_view, uint32_t> counts;
    for (size_t t = 0; t < tried_.size(); ++t) {
      const size_t u = tried_[t];
      if (fates_[u] == Fate::kPlaced) continue;
      Unit& unit = units_[u];
      const auto rival = latest.find(unit.priority());
      const bool overtaken = fates_[u] == Fate::kNoRoom &&
                             (t < last || (rival != latest.end() && rival->second > came(u)));
      if (overtaken && unit.passed_over < UINT32_MAX) ++unit.passed_over;
      for (const WaitingPod* pod : unit.pods) counts[pod->request.name] = unit.passed_over;
    }
    for (Refusal& refusal : round_.refused) refusal.passed_over = counts.at(refusal.pod);
  }

  // As far as it can be told before there is a placement.
  Result<void> AdmitAll(const Unit& unit) const {
    std::map<std::string_view, Amount> teams;
    for (const WaitingPod* pod : unit.pods) {
      Amount& amount = teams[pod->request.team];
      amount += AskedBy(pod->request);
      if (auto admitted = ledger_.Admit(pod->request, amount); !admitted) return admitted;
    }
    return {};
  }

  // Nodes that are kept for others, and not for this one.
  Names KeptFrom(size_t u) const {
    Names nodes;
    if (kept_.empty()) return nodes;
    const bool borrows = !ledger_.Entitled(units_[u].team(), units_[u].asked);
    for (const Kept& kept : kept_) {
      if (kept.unit == u || fates_[kept.unit] == Fate::kPlaced) continue;
      const bool above = units_[u].priority() > units_[kept.unit].priority();
      if (above && !(kept.entitled && borrows)) continue;
      nodes.insert(kept.nodes.begin(), kept.nodes.end());
    }
    return nodes;
  }

  Result<std::vector<Placement>> TryOne(const PodRequest& request, const Names& avoided) {
    // In a round there is ever less room, so one like another that did not fit does not fit
    // either: unless it needs company, which may have come.
    PodRequest shape = request;
    shape.name = shape.team = "";
    shape.priority = 0;
    const auto known = std::find_if(full_.begin(), full_.end(),
                                    [&](const auto& refused) { return refused.first == shape; });
    if (known != full_.end()) {
      return Fail(known->second.code,
                  fmt::format("{} asks for the same as {}", request.name, known->second.message));
    }
    const auto anywhere = cluster_.Decide(request);
    if (!anywhere) {
      if (request.affinity.empty() && anywhere.error().code == ErrorCode::kExhausted &&
          full_.size() < kShapesMax) {
        full_.emplace_back(std::move(shape),
                           Error{anywhere.error().code, request.name + ", which fits nowhere"});
      }
      return tl::unexpected(anywhere.error());
    }
    Placement placement = *anywhere;
    if (avoided.contains(anywhere->node)) {
      auto off = DecideOff(cluster_, request, avoided);
      if (!off) return Fail(ErrorCode::kExhausted, request.name + KeptFor(anywhere->node));
      placement = *std::move(off);
    }
    if (auto booked = cluster_.Commit(request, placement); !booked) {
      return tl::unexpected(booked.error());
    }
    return std::vector<Placement>{std::move(placement)};
  }

  Result<std::vector<Placement>> TryGang(const Unit& unit, const Names& avoided) {
    GangOptions options;
    options.restarts = options_.restarts;
    options.avoided = &avoided;
    auto placements = PlaceGang(cluster_, unit.Requests(), options);
    if (placements) return placements;
    return Fail(placements.error().code,
                fmt::format("of the gang of {} and {} more: {}", unit.name(), unit.pods.size() - 1,
                            placements.error().message));
  }

  std::string KeptFor(const std::string& node) const {
    for (const Kept& kept : kept_) {
      if (std::find(kept.nodes.begin(), kept.nodes.end(), node) == kept.nodes.end()) continue;
      return fmt::format(" would fit on node {}, which is kept for {}: passed over {} times", node,
                         units_[kept.unit].name(), units_[kept.unit].passed_over);
    }
    return " fits only on nodes that are kept for others";
  }

  void Propose() {
    Names spared = fresh_;
    spared.insert(options_.spared.begin(), options_.spared.end());
    if (options_.proposals == 0) return;
    // Some find nothing; they are not worth all of a round's time.
    uint64_t attempts = uint64_t{options_.proposals} * 2;
    int32_t lowest = INT32_MAX;  // priority of what may go
    for (const auto& [name, pod] : cluster_.pods()) {
      lowest = std::min(lowest, pod.request.priority);
    }
    std::vector<PodRequest> vain;  // ever fewer may go, so what was in vain once is in vain again
    std::vector<size_t> order;
    std::map<std::string_view, size_t> by_name;
    for (size_t u = 0; u < units_.size(); ++u) by_name.emplace(units_[u].name(), u);
    for (const Refusal& refusal : round_.refused) {
      const auto it = by_name.find(refusal.pod);
      if (it != by_name.end() && units_[it->second].pods.size() == 1) order.push_back(it->second);
    }
    Names avoided;
    for (const size_t u : order) {
      if (attempts == 0 || round_.proposals.size() >= options_.proposals) return;
      if (fates_[u] != Fate::kNoRoom && fates_[u] != Fate::kCeiling) continue;
      const Unit& unit = units_[u];
      if (!unit.pods.front()->displaces) continue;
      const PodRequest& request = unit.first();
      if (request.priority <= lowest && !ledger_.Entitled(unit.team(), unit.asked)) continue;
      PodRequest shape = request;
      shape.name.clear();
      if (std::find(vain.begin(), vain.end(), shape) != vain.end()) continue;
      --attempts;
      Names nodes = KeptFrom(u);
      nodes.insert(avoided.begin(), avoided.end());
      DisplacementOptions displace;
      displace.spared = &spared;
      displace.avoided = &nodes;
      displace.decisions = options_.decisions;
      bool reclaims = true;
      auto found = Reclaim(cluster_, modes_, ledger_, request, displace);
      if (!found) {
        reclaims = false;
        const PodTest unprotected = ledger_.Unprotected(unit.team());
        if (fates_[u] == Fate::kCeiling) {
          displace.enough = [&](std::span<const PlacedPod* const> gone) {
            return ledger_.Admit(request, unit.asked, gone).has_value();
          };
        }
        found = LeastDisturbance(
            cluster_, modes_, request,
            [&](const PlacedPod& pod) {
              return pod.request.priority < request.priority && unprotected(pod);
            },
            displace);
      }
      if (!found) {
        vain.push_back(std::move(shape));
        continue;
      }
      spared.insert(found->pods.begin(), found->pods.end());
      avoided.insert(found->node);
      round_.proposals.push_back({request.name, reclaims, *std::move(found)});
    }
  }

  void Keep() {
    Names taken;
    std::vector<bool> has(units_.size(), false);
    for (const Proposal& proposal : round_.proposals) {
      taken.insert(proposal.displacement.node);
      round_.reservations.push_back({proposal.pod, {proposal.displacement.node}});
      for (size_t u = 0; u < units_.size(); ++u)
        has[u] = has[u] || units_[u].name() == proposal.pod;
    }
    struct Claim {
      size_t unit;
      const Kept* kept;  // null: it has none yet
    };
    std::vector<Claim> claims;
    for (size_t u = 0; u < units_.size(); ++u) {
      if (fates_[u] != Fate::kNoRoom || has[u]) continue;
      const auto kept =
          std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) { return k.unit == u; });
      if (kept != kept_.end()) {
        claims.push_back({u, &*kept});
      } else if (units_[u].passed_over >= options_.patience) {
        claims.push_back({u, nullptr});
      }
    }
    // Among those of one priority nobody loses what is kept for him.
    const auto rank = [&](const Claim& claim) {
      const Unit& unit = units_[claim.unit];
      return std::tuple(-int64_t{unit.priority()}, claim.kept == nullptr, unit.since,
                        std::string_view(unit.name()));
    };
    std::sort(claims.begin(), claims.end(),
              [&](const Claim& a, const Claim& b) { return rank(a) < rank(b); });
    uint32_t left = options_.reservations;
    for (const Claim& claim : claims) {
      if (left == 0) break;
      const Unit& unit = units_[claim.unit];
      std::vector<std::string> nodes;
      if (claim.kept != nullptr && Free(claim.kept->nodes, taken) &&
          FitsWhenEmpty(unit, claim.kept->nodes)) {
        nodes = claim.kept->nodes;
      } else if (unit.passed_over >= options_.patience) {
        nodes = NodesFor(unit, taken);
      }
      if (nodes.empty()) continue;
      --left;
      taken.insert(nodes.begin(), nodes.end());
      round_.reservations.push_back({unit.name(), std::move(nodes)});
    }
  }

  static bool Free(const std::vector<std::string>& nodes, const Names& taken) {
    return std::none_of(nodes.begin(), nodes.end(),
                        [&](const std::string& node) { return taken.contains(node); });
  }

  // Adds the node to the copy without its pods, but those that one of the unit must be beside.
  bool CopyEmpty(const Node& node, const Unit& unit, Cluster* copy) const {
    std::vector<const PlacedPod*> stay;
    for (const PlacedPod* pod : cluster_.PodsOn(node.name)) {
      const std::string& word = pod->request.affinity;
      const bool company = !word.empty() && std::any_of(unit.pods.begin(), unit.pods.end(),
                                                        [&](const WaitingPod* other) {
                                                          return other->request.affinity == word;
                                                        });
      if (company) stay.push_back(pod);
    }
    return CopyNode(node, stay, copy);
  }

  // Whether some company that the pod needs is elsewhere only.
  static bool Lonely(const PodRequest& request, const Names& company, const std::string& node) {
    return !request.affinity.empty() && !company.empty() && !company.contains(node);
  }

  bool FitsWhenEmpty(const Unit& unit, const std::vector<std::string>& nodes) const {
    Cluster copy(modes_, cluster_.policy());
    for (const std::string& name : nodes) {
      const Node* node = cluster_.FindNode(name);
      if (node == nullptr || !CopyEmpty(*node, unit, &copy)) return false;
    }
    return PlaceGang(copy, unit.Requests()).has_value();
  }

  // The nodes that run empty soonest, as far as can be told, and on which the unit would fit then.
  std::vector<std::string> NodesFor(const Unit& unit, const Names& taken) const {
    struct Option {
      size_t pods;
      policy::ShareSum share;
      const Node* node;
    };
    std::vector<Names> company;
    std::vector<Shortage> shortages;
    for (const WaitingPod* pod : unit.pods) {
      company.push_back(NodesWithAffinity(cluster_, pod->request.affinity));
      shortages.emplace_back(cluster_, modes_, pod->request);
    }
    std::vector<Option> options;
    for (const Node* node : cluster_.Nodes()) {
      if (taken.contains(node->name)) continue;
      const std::vector<const PlacedPod*> pods = cluster_.PodsOn(node->name);
      bool any = false;
      for (size_t i = 0; i < unit.pods.size() && !any; ++i) {
        any = !Lonely(unit.pods[i]->request, company[i], node->name) &&
              shortages[i].Look(*node, pods) && shortages[i].EnoughIfAllGo();
      }
      if (!any) continue;
      policy::ShareSum share;
      for (const Card& card : node->cards) share += cluster_.UseOf(card.uuid)->share;
      options.push_back({pods.size(), share, node});
    }
    std::sort(options.begin(), options.end(), [](const Option& a, const Option& b) {
      return std::tie(a.pods, a.share, a.node->name) < std::tie(b.pods, b.share, b.node->name);
    });
    // One node after the other, until they are enough. Of those that did not help none is kept.
    const std::vector<PodRequest> requests = unit.Requests();
    const size_t most = requests.size() == 1 ? 1 : 2 * requests.size() + 8;
    std::vector<std::string> nodes;
    Cluster copy(modes_, cluster_.policy());
    for (const Option& option : options) {
      if (!CopyEmpty(*option.node, unit, &copy)) continue;
      nodes.push_back(option.node->name);
      if (auto placements = PlaceGang(copy, requests)) {
        Names used;
        for (const Placement& placement : *placements) used.insert(placement.node);
        return {used.begin(), used.end()};
      }
      if (nodes.size() < most) continue;
      if (most > 1) return {};
      for (const PlacedPod* pod : copy.PodsOn(nodes.back())) copy.Delete(pod->request.name);
      copy.RemoveNode(nodes.back());
      nodes.clear();
    }
    return {};
  }

  Cluster& cluster_;
  const Modes modes_;
  const Factors& factors_;
  const RoundOptions& options_;
  Ledger ledger_;
  std::vector<Unit> units_;
  std::vector<Fate> fates_;
  std::vector<size_t> tried_;  // in that order
  std::vector<Kept> kept_;
  std::vector<std::pair<PodRequest, Error>> full_;  // shapes that fit nowhere any more
  Names fresh_;                                     // placed in this round
  Round round_;
};

}  // namespace

Round Schedule(Cluster& cluster, Modes modes, std::span<const WaitingPod> waiting,
               const Quotas& quotas, const Factors& factors, std::span<const Reservation> kept,
               const RoundOptions& options) {
  return Rounds(cluster, modes, waiting, quotas, factors, options).Run(kept);
}

}  // namespace baton::devmgr
