#include "devmgr/placement/queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <tuple>

#include "base/check.h"
#include "devmgr/placement/gang.h"
#include "devmgr/placement/replay.h"
#include "devmgr/placement/team_order.h"

namespace baton::devmgr {
namespace {

constexpr size_t kShapesMax = 256;
// Nodes on which a pod would take more than a ceiling allows, before it is refused.
constexpr uint32_t kTriesBelowCeiling = 32;

// A pod, or the pods of a gang: what is placed as one.
struct Unit {
  std::vector<const WaitingPod*> pods;  // by name
  uint64_t since = 0;
  uint32_t passed_over = 0;
  int32_t priority = INT32_MAX;  // the lowest
  bool away = false;             // one of them is
  Amount asked;

  const PodRequest& first() const { return pods.front()->request; }
  const std::string& name() const { return first().name; }
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
  kNoRoom,    // or only where it is kept for others
  kCeiling,   // its team's, or of one above
  kTooLarge,  // likewise, on each of many nodes: nobody is displaced for it
  kWrong,     // it can never be placed
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
    if (at == units.size()) units.push_back({{}, pod->since, 0, INT32_MAX, false, {}});
    Unit& unit = units[at];
    unit.pods.push_back(pod);
    unit.since = std::min(unit.since, pod->since);
    unit.passed_over = std::max(unit.passed_over, pod->passed_over);
    unit.priority = std::min(unit.priority, pod->request.priority);
    unit.away |= pod->away;
    unit.asked += AskedBy(pod->request);
  }
  return units;
}

class Rounds {
 public:
  Rounds(Cluster& cluster, Modes modes, std::span<const WaitingPod> waiting, const Quotas& quotas,
         const Standings& standings, const RoundOptions& options)
      : cluster_(cluster),
        modes_(modes),
        standings_(standings),
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
    bool vacated;  // Reservation::vacated
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
      kept_.push_back({it->second, reservation.nodes, ledger_.Entitled(unit.team(), unit.asked),
                       reservation.vacated});
    }
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
    std::set<std::string> teams_here;
    for (const size_t u : order) {
      if (units_[u].away) continue;
      queues[units_[u].priority][units_[u].team()].push_back(u);
      teams_here.insert(units_[u].team());
    }
    if (teams_here.size() > 1) order_.emplace(standings_, cluster_, options_.ahead);
    for (const Kept& kept : kept_) {
      if (kept.entitled && !units_[kept.unit].away) TryAndCharge(kept.unit);
    }
    for (auto& [priority, teams] : queues) {
      while (!teams.empty()) {
        auto next = teams.begin();
        for (auto team = std::next(next); team != teams.end(); ++team) {
          if (order_->Before(team->first, next->first)) next = team;
        }
        const size_t u = next->second.front();
        next->second.pop_front();
        if (fates_[u] == Fate::kWaits) TryAndCharge(u);
        if (next->second.empty()) teams.erase(next);
      }
    }
    if (!order_) return;
    std::vector<std::string> places(teams_here.begin(), teams_here.end());
    std::sort(places.begin(), places.end(),
              [&](const std::string& a, const std::string& b) { return order_->Before(a, b); });
    for (size_t i = 0; i < places.size(); ++i) place_of_[places[i]] = i;
  }

  void TryAndCharge(size_t u) {
    if (!Try(u) || !order_) return;
    // What takes no GPU takes something too.
    order_->Charge(units_[u].team(),
                   std::max<uint64_t>(units_[u].asked.share, policy::kShareMin.millionths()));
  }

  // Whether it was placed.
  bool Try(size_t u) {
    tried_.push_back(u);
    const Unit& unit = units_[u];
    if (const auto admitted = AdmitAll(unit); !admitted) {
      return Refuse(u, Fate::kCeiling, admitted.error());
    }
    Names avoided = KeptFrom(u);
    auto placements =
        unit.pods.size() == 1 ? TryOne(unit.first(), avoided) : TryGang(unit, avoided);
    // Where a whole GPU, or a part of its memory, is more than a ceiling allows, a smaller one may
    // not be.
    for (uint32_t tries = 0; placements && unit.pods.size() == 1; ++tries) {
      const auto admitted = ledger_.Admit(unit.first(), TakenBy(placements->front()));
      if (admitted) break;
      BATON_CHECK(cluster_.Delete(unit.first().name).has_value());
      avoided.insert(placements->front().node);
      auto elsewhere = tries < kTriesBelowCeiling ? TryOne(unit.first(), avoided) : placements;
      if (!elsewhere || tries == kTriesBelowCeiling) {
        return Refuse(u, tries == kTriesBelowCeiling ? Fate::kTooLarge : Fate::kCeiling,
                      admitted.error());
      }
      placements = std::move(elsewhere);
    }
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
      round_.refused.push_back({pod->request.name, error.code, error.message, 0,
                                fate == Fate::kCeiling || fate == Fate::kTooLarge});
    }
    return false;
  }

  void CountPassedOver() {
    size_t last = 0;  // that was placed
    for (size_t t = 0; t < tried_.size(); ++t) {
      if (fates_[tried_[t]] == Fate::kPlaced) last = t;
    }
    std::map<std::string_view, uint32_t> counts;
    for (size_t t = 0; t < tried_.size(); ++t) {
      const size_t u = tried_[t];
      if (fates_[u] == Fate::kPlaced) continue;
      Unit& unit = units_[u];
      const bool overtaken = fates_[u] == Fate::kNoRoom && t < last;
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
    const bool entitled = ledger_.Entitled(units_[u].team(), units_[u].asked);
    for (const Kept& kept : kept_) {
      if (kept.unit == u || fates_[kept.unit] == Fate::kPlaced) continue;
      const bool above = units_[u].priority > units_[kept.unit].priority;
      // Guarantees come before priorities. But whoever went for one went for nobody else.
      if (entitled == kept.entitled ? above : entitled && (above || !kept.vacated)) continue;
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
    const std::vector<PodRequest> requests = unit.Requests();
    const auto of_gang = [&](const std::string& why) {
      return fmt::format("of the gang of {} and {} more: {}", unit.name(), unit.pods.size() - 1,
                         why);
    };
    auto anywhere = PlaceGang(cluster_, requests, options);
    if (!anywhere) return Fail(anywhere.error().code, of_gang(anywhere.error().message));
    const auto kept =
        std::find_if(anywhere->begin(), anywhere->end(),
                     [&](const Placement& placement) { return avoided.contains(placement.node); });
    if (kept == anywhere->end()) return anywhere;
    for (size_t i = requests.size(); i-- > 0;) {
      BATON_CHECK(cluster_.Delete(requests[i].name).has_value());
    }
    options.avoided = &avoided;
    auto off = PlaceGang(cluster_, requests, options);
    if (off) return off;
    return Fail(ErrorCode::kExhausted, of_gang("it" + KeptFor(kept->node)));
  }

  // For whom the node is kept; null: for nobody.
  const Unit* HolderOf(const std::string& node) const {
    for (const Kept& kept : kept_) {
      if (std::find(kept.nodes.begin(), kept.nodes.end(), node) != kept.nodes.end()) {
        return &units_[kept.unit];
      }
    }
    return nullptr;
  }

  std::string KeptFor(const std::string& node) const {
    const Unit* holder = HolderOf(node);
    if (holder == nullptr) return " fits only on nodes that are kept for others";
    return fmt::format(" would fit on node {}, which is kept for {}: passed over {} times", node,
                       holder->name(), holder->passed_over);
  }

  // Those for whom others might go, in the order in which they were tried; those that were looked
  // for in vain come last.
  std::vector<size_t> Candidates() const {
    int32_t lowest = INT32_MAX;  // priority of what may go
    for (const auto& [name, pod] : cluster_.pods()) {
      lowest = std::min(lowest, pod.request.priority);
    }
    std::vector<size_t> candidates;
    for (const size_t u : tried_) {
      const Unit& unit = units_[u];
      if (unit.pods.size() != 1 || !unit.pods.front()->displaces) continue;
      if (fates_[u] != Fate::kNoRoom && fates_[u] != Fate::kCeiling) continue;
      const bool above = unit.priority > lowest;
      if (above || ledger_.Entitled(unit.team(), unit.asked)) candidates.push_back(u);
    }
    std::stable_partition(candidates.begin(), candidates.end(),
                          [&](size_t u) { return !units_[u].pods.front()->sought; });
    return candidates;
  }

  void Propose() {
    if (options_.proposals == 0) return;
    Names spared = fresh_;
    spared.insert(options_.spared.begin(), options_.spared.end());
    // Some find nothing; they are not worth all of a round's time.
    uint64_t attempts = uint64_t{options_.proposals} * 2;
    std::vector<PodRequest> vain;  // ever fewer may go, so what was in vain once is in vain again
    std::set<std::string_view> sought;
    Names avoided;
    for (const size_t u : Candidates()) {
      const Unit& unit = units_[u];
      const PodRequest& request = unit.first();
      PodRequest shape = request;
      shape.name.clear();
      if (std::find(vain.begin(), vain.end(), shape) != vain.end()) {
        sought.insert(unit.name());
        continue;
      }
      if (attempts == 0 || round_.proposals.size() >= options_.proposals) {
        round_.more |= !unit.pods.front()->sought;
        continue;
      }
      --attempts;
      Names nodes = KeptFrom(u);
      nodes.insert(avoided.begin(), avoided.end());
      // For whom a node was kept from it may have a place by now.
      if (fates_[u] == Fate::kNoRoom && DecideOff(cluster_, request, nodes)) continue;
      auto found = Displace(u, spared, nodes);
      if (!found) {
        vain.push_back(std::move(shape));
        sought.insert(unit.name());
        continue;
      }
      spared.insert(found->displacement.pods.begin(), found->displacement.pods.end());
      avoided.insert(found->displacement.node);
      round_.proposals.push_back(*std::move(found));
    }
    std::map<std::string_view, bool> before;
    for (const Unit& unit : units_) {
      for (const WaitingPod* pod : unit.pods) before.emplace(pod->request.name, pod->sought);
    }
    const std::map<std::string_view, std::string> withheld = Withheld();
    for (Refusal& refusal : round_.refused) {
      refusal.sought = before.at(refusal.pod) || sought.contains(refusal.pod);
      if (const auto on = withheld.find(refusal.pod); on != withheld.end()) {
        refusal.withheld = on->second;
      }
    }
  }

  // Refusal::withheld, by pod.
  std::map<std::string_view, std::string> Withheld() const {
    std::map<std::string_view, std::string> withheld;
    if (kept_.empty()) return withheld;
    for (const size_t u : Candidates()) {
      const Names nodes = KeptFrom(u);
      const bool proposed =
          std::any_of(round_.proposals.begin(), round_.proposals.end(),
                      [&](const Proposal& proposal) { return proposal.pod == units_[u].name(); });
      if (proposed || nodes.empty()) continue;
      withheld[units_[u].name()] =
          fmt::format("nobody goes for it on node {}, which is kept for {}", *nodes.begin(),
                      HolderOf(*nodes.begin())->name());
    }
    return withheld;
  }

  // By its team's guarantee, else by its priority.
  Result<Proposal> Displace(size_t u, const Names& spared, const Names& nodes) const {
    const Unit& unit = units_[u];
    const PodRequest& request = unit.first();
    DisplacementOptions displace;
    displace.spared = &spared;
    displace.avoided = &nodes;
    displace.decisions = options_.decisions;
    // A part of a GPU's memory, or a whole GPU, may be more than it asks for in numbers: beyond the
    // guarantee it would have to go again at once.
    if (auto found = Reclaim(cluster_, modes_, ledger_, request, displace);
        found && IsAllowed(request, *found) &&
        ledger_.Entitled(unit.team(), TakenBy(found->placement))) {
      return Proposal{request.name, true, *std::move(found)};
    }
    const PodTest unprotected = ledger_.Unprotected(unit.team());
    auto found = DisplaceLower(u, displace, unprotected, false);
    if (found && !KeepsGuarantees(unit, *found)) {
      found = DisplaceLower(
          u, displace, [&](const PlacedPod& pod) { return !ledger_.Covered(pod.request.name); },
          false);
      if (!found) found = DisplaceLower(u, displace, unprotected, true);
      if (found && !KeepsGuarantees(unit, *found)) {
        return Fail(ErrorCode::kExhausted,
                    request.name + " would be beyond what its team is guaranteed");
      }
    }
    if (!found) return tl::unexpected(found.error());
    if (!IsAllowed(request, *found)) {
      return Fail(ErrorCode::kExhausted, request.name + " would be beyond its team's ceiling");
    }
    return Proposal{request.name, false, *std::move(found)};
  }

  // Pods of lower priority that may go. `guaranteed`: enough of them for its room to be within a
  // guarantee of its team.
  Result<Displacement> DisplaceLower(size_t u, DisplacementOptions displace, const PodTest& may_go,
                                     bool guaranteed) const {
    const Unit& unit = units_[u];
    const bool ceiling = fates_[u] == Fate::kCeiling;
    if (ceiling || guaranteed) {
      displace.enough = [&, ceiling, guaranteed](std::span<const PlacedPod* const> gone) {
        return (!ceiling || ledger_.Admit(unit.first(), unit.asked, gone).has_value()) &&
               (!guaranteed || ledger_.Entitled(unit.team(), unit.asked, gone));
      };
    }
    return LeastDisturbance(
        cluster_, modes_, unit.first(),
        [&](const PlacedPod& pod) {
          return pod.request.priority < unit.first().priority && may_go(pod);
        },
        displace);
  }

  // A pod that a guarantee covers goes only for one that is guaranteed its room then. Else pods
  // could go in a circle: the covered one for one of its own team that is above it, that one for
  // one of another team above both, and that one again for what the first is guaranteed.
  bool KeepsGuarantees(const Unit& unit, const Displacement& displacement) const {
    const std::vector<const PlacedPod*> gone = PodsOf(displacement);
    return std::none_of(gone.begin(), gone.end(),
                        [&](const PlacedPod* pod) { return ledger_.Covered(pod->request.name); }) ||
           ledger_.Entitled(unit.team(), TakenBy(displacement.placement), gone);
  }

  // Ceilings allow what the pod takes where it would go, which may be more than it asks for: a
  // whole GPU has all of its memory.
  bool IsAllowed(const PodRequest& request, const Displacement& displacement) const {
    return ledger_.Admit(request, TakenBy(displacement.placement), PodsOf(displacement))
        .has_value();
  }
  std::vector<const PlacedPod*> PodsOf(const Displacement& displacement) const {
    std::vector<const PlacedPod*> pods;
    for (const std::string& name : displacement.pods) pods.push_back(cluster_.Find(name));
    return pods;
  }

  // Those that find no room and are of a team that would come first even after it had been given
  // them.
  std::set<size_t> FarBehind() const {
    std::set<size_t> units;
    if (!order_) return units;
    TeamOrder order = *order_;
    for (const size_t u : tried_) {
      const std::string team = units_[u].team();
      if (fates_[u] != Fate::kNoRoom || place_of_.at(team) != 0) continue;
      order.Charge(team, units_[u].asked.share);
      const bool first = std::all_of(place_of_.begin(), place_of_.end(), [&](const auto& other) {
        return other.first == team || order.Before(team, other.first);
      });
      if (!first) break;
      units.insert(u);
    }
    return units;
  }

  void Keep() {
    Names taken;
    std::vector<bool> has(units_.size(), false);
    for (const Proposal& proposal : round_.proposals) {
      taken.insert(proposal.displacement.node);
      round_.reservations.push_back({proposal.pod, {proposal.displacement.node}, true});
      for (size_t u = 0; u < units_.size(); ++u)
        has[u] = has[u] || units_[u].name() == proposal.pod;
    }
    struct Claim {
      size_t unit;
      const Kept* kept;  // null: it has none yet
    };
    std::vector<Claim> claims;
    const std::set<size_t> far_behind = FarBehind();
    for (size_t u = 0; u < units_.size(); ++u) {
      if ((fates_[u] != Fate::kNoRoom && !units_[u].away) || has[u]) continue;
      const auto kept =
          std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) { return k.unit == u; });
      if (kept != kept_.end()) {
        claims.push_back({u, &*kept});
      } else if (units_[u].passed_over >= options_.patience || far_behind.contains(u)) {
        claims.push_back({u, nullptr});
      }
    }
    // Among those of one priority nobody loses what is kept for him.
    const auto rank = [&](const Claim& claim) {
      const Unit& unit = units_[claim.unit];
      const auto place = place_of_.find(unit.team());
      return std::tuple(-int64_t{unit.priority}, claim.kept == nullptr,
                        place == place_of_.end() ? 0 : place->second, unit.since,
                        std::string_view(unit.name()));
    };
    std::sort(claims.begin(), claims.end(),
              [&](const Claim& a, const Claim& b) { return rank(a) < rank(b); });
    uint32_t left = options_.reservations;
    for (const Claim& claim : claims) {
      if (left == 0) break;
      const Unit& unit = units_[claim.unit];
      std::vector<std::string> nodes;
      bool vacated = false;
      if (claim.kept != nullptr && Free(claim.kept->nodes, taken) &&
          FitsWhenEmpty(unit, claim.kept->nodes)) {
        nodes = claim.kept->nodes;
        vacated = claim.kept->vacated;
      } else if (unit.passed_over >= options_.patience || far_behind.contains(claim.unit)) {
        nodes = NodesFor(unit, taken);
      }
      if (nodes.empty()) continue;
      --left;
      taken.insert(nodes.begin(), nodes.end());
      round_.reservations.push_back({unit.name(), std::move(nodes), vacated});
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
  const Standings& standings_;
  const RoundOptions& options_;
  Ledger ledger_;
  std::vector<Unit> units_;
  std::vector<Fate> fates_;
  std::vector<size_t> tried_;               // in that order
  std::optional<TeamOrder> order_;          // nothing: all are of one team
  std::map<std::string, size_t> place_of_;  // by team, once all were tried: the first comes first
  std::vector<Kept> kept_;
  std::vector<std::pair<PodRequest, Error>> full_;  // shapes that fit nowhere any more
  Names fresh_;                                     // placed in this round
  Round round_;
};

}  // namespace

Round Schedule(Cluster& cluster, Modes modes, std::span<const WaitingPod> waiting,
               const Quotas& quotas, const Standings& standings, std::span<const Reservation> kept,
               const RoundOptions& options) {
  return Rounds(cluster, modes, waiting, quotas, standings, options).Run(kept);
}

}  // namespace baton::devmgr
