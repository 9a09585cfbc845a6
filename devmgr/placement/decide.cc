// Where a pod goes, and why not.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "devmgr/placement/cluster.h"
#include "devmgr/placement/cluster_state.h"
#include "devmgr/placement/model_name.h"

namespace baton::devmgr {

namespace {

// Why a node is out of the question, or not.
enum class Obstacle : uint8_t {
  kNone,
  kCordoned,
  kLabels,
  kCpu,
  kMemory,
  kResources,
  kOff,      // the request says so
  kNoCards,  // it has none at all
  kKind,     // no GPU of the wanted kind
  kCards,    // none of them may be used by this pod now
  kRoom,     // they have not enough room
  kBudget,   // perhaps they have; the search was given up
  kCount,
};

// A request, looked at once for all nodes.
struct Compiled {
  const PodRequest* request = nullptr;
  PlacementPolicy policy;  // the cluster's, with the request's own rules
  std::vector<Want> wants;
  Wants wanted{{}};
  uint16_t mode_mask = 0;
  uint64_t exclusion = 0;
  const std::map<std::string, uint32_t>* near = nullptr;  // only these GPUs
  const std::map<std::string, uint32_t>* away = nullptr;  // none of these
  const std::map<std::string, uint32_t>* gang = nullptr;  // nor of these, which its gang has
  bool plain = false;  // it has no wishes about GPUs: NodeState::open
  bool alike = false;  // all of its GPUs are of one model
  uint64_t salt = 0;
  uint64_t steps = 0;  // of all searches
  // Nothing: the rule alone decides. Else places count of which the expected excess is at most this
  // and which cost at most `cost_max`.
  std::optional<int64_t> excess_max;
  int64_t cost_max = 0;
  std::vector<int8_t> models;  // by CardState::model: 1 yes, 0 no, -1 not looked at yet
};

uint64_t SaltOf(std::string_view text, uint64_t seed) {
  uint64_t hash = Mixed(seed);
  for (const char c : text) hash = Mixed(hash ^ static_cast<unsigned char>(c));
  return hash;
}

bool Wanted(const Compiled& pod, const Card& card) {
  const PodRequest& request = *pod.request;
  const auto means = [&](const std::string& text) { return MeansModel(text, card.model); };
  const auto has = [](const std::vector<std::string>& all, const std::string& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  if (!request.models.empty() && std::none_of(request.models.begin(), request.models.end(), means))
    return false;
  if (std::any_of(request.not_models.begin(), request.not_models.end(), means)) return false;
  if (!request.uuids.empty() && !has(request.uuids, card.uuid)) return false;
  return !has(request.not_uuids, card.uuid);
}

// The kind alone: by model as far as that suffices, which is remembered.
bool WantedKind(Compiled& pod, const CardState& card) {
  const PodRequest& request = *pod.request;
  if (request.models.empty() && request.not_models.empty() && request.uuids.empty() &&
      request.not_uuids.empty()) {
    return true;
  }
  if (!request.uuids.empty() || !request.not_uuids.empty()) return Wanted(pod, *card.card);
  if (card.model >= pod.models.size()) pod.models.resize(card.model + 1, -1);
  int8_t& known = pod.models[card.model];
  if (known < 0) known = Wanted(pod, *card.card) ? 1 : 0;
  return known == 1;
}

bool HasLabels(const Node& node, const PodRequest& request) {
  for (const auto& [key, value] : request.node_labels) {
    const auto it = node.labels.find(key);
    if (it == node.labels.end() || it->second != value) return false;
  }
  return true;
}

// Which of the node's GPUs the pod may use; `kind`: whether any is of the wanted kind.
uint16_t AllowedCards(Compiled& pod, const NodeState& node, bool* kind) {
  if (pod.plain && node.open != 0) {
    *kind = true;
    return node.open;
  }
  uint16_t allowed = 0;
  for (size_t c = 0; c < node.cards.size(); ++c) {
    const CardState& card = node.cards[c];
    if (!WantedKind(pod, card) || (card.serves & pod.mode_mask) == 0) continue;
    *kind = true;
    if (!card.usable) continue;
    if (card.use.vgpus > 0 && card.exclusion != pod.exclusion) continue;
    if (pod.near != nullptr && !pod.near->contains(card.card->uuid)) continue;
    if (pod.away != nullptr && pod.away->contains(card.card->uuid)) continue;
    if (pod.gang != nullptr && pod.gang->contains(card.card->uuid)) continue;
    allowed |= static_cast<uint16_t>(1u << c);
  }
  return allowed;
}

// The GPUs on which the pod may have an excess that counts: of a pod with one virtual GPU exactly.
uint16_t WithinExcess(const Compiled& pod, const NodeState& node) {
  if (pod.wants.size() != 1) return 0xffff;
  Place place{0, 0, {}};
  place.fit.share = pod.wants[0].share;
  uint16_t within = 0;
  for (; place.card < node.cards.size(); ++place.card) {
    const int64_t excess = ExcessOf(node, {&place, 1}, pod.request->expected_use);
    if (excess <= *pod.excess_max) within |= static_cast<uint16_t>(1u << place.card);
  }
  return within;
}

// Costs that differ by less are taken for equal, and best fit decides: the mix is not known that
// well. 0: by this rule there are no steps.
int64_t StepOf(Rule rule) {
  switch (rule) {
    case Rule::kFragmentation:
      return 80 * Mix::kLossUnit;
    case Rule::kScarcity:
      return 40 * Mix::kLossUnit;
    default:
      return 0;
  }
}

void Prefetch(const void* start, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) {
    __builtin_prefetch(static_cast<const char*>(start) + at);
  }
}

// Steps of the searches on all nodes together. Beyond it the best place that is known counts,
// though nodes later by name were not looked at: pods of several virtual GPUs in large clusters,
// where the best of a hundred nodes is nearly the best of all.
uint64_t StepsOf(size_t nodes) { return 500 + nodes / 2; }

struct Choice {
  const NodeState* node = nullptr;
  int64_t cost = 0;  // by the nodes' rule
  Candidate candidate;
};

int64_t NodeCost(const Cluster::State& s, const Compiled& pod, const NodeState& node,
                 const Candidate& candidate) {
  const PlacementPolicy& policy = pod.policy;
  switch (policy.nodes) {
    case Rule::kFirstFit:
      return 0;
    case Rule::kRandom:
      return static_cast<int64_t>(SaltOf(node.info.name, pod.salt) >> 1);
    case Rule::kBinpack:
    case Rule::kSpread: {
      // What is left, in thousandths of a GPU.
      policy::ShareSum share = node.share_used;
      uint64_t memory = node.card_memory_used;
      for (const Place& place : candidate.places) {
        share += place.fit.share;
        memory += place.fit.memory_mib;
      }
      const auto cards = static_cast<int64_t>(node.cards.size());
      const auto whole = policy::ShareSum(policy::kWhole) * node.cards.size();
      // By a thousandth of a node at a time, which of eight GPUs is eight of a GPU.
      const int64_t left =
          cards * (1'000 - Fullness(policy, share, whole, memory, node.card_memory));
      return policy.nodes == Rule::kBinpack ? left : -left;
    }
    case Rule::kFragmentation:
    case Rule::kRemainder:
    case Rule::kScarcity:
      break;
  }
  int64_t loss = candidate.cost;
  if (policy.cards != policy.nodes) {
    FreeNode free = FreeOf(node, pod.request->cpu_milli, pod.request->memory_mib);
    int64_t taken = 0;
    std::array<CardUse, VgpuRequest::kCardsMax> use;
    for (size_t c = 0; c < node.cards.size(); ++c) use[c] = node.cards[c].use;
    for (const Place& place : candidate.places) {
      const int16_t before = free.share[place.card];
      use[place.card].share += place.fit.share;
      use[place.card].memory_mib += place.fit.memory_mib;
      SetFree(free, place.card, *node.cards[place.card].card, use[place.card]);
      taken += before - free.share[place.card];
    }
    loss = *s.mix.Growth(policy.nodes, LossesOf(node, s.mix, policy.nodes), Mix::Sum(free), taken,
                         INT64_MAX);
  }
  const int64_t step = StepOf(policy.nodes);
  if (step == 0) return loss;
  // To the nearest step.
  return (loss >= 0 ? loss + step / 2 : loss - step / 2) / step;
}

// The lower the better; nodes come in the order of names, so the first of equals stays.
auto KeyOf(const PlacementPolicy& policy, const Choice& choice) {
  const bool rounded = StepOf(policy.nodes) != 0 && policy.cards == policy.nodes;
  // So that the others become whole.
  const policy::ShareSum left =
      policy.nodes == Rule::kScarcity ? choice.node->share_free : policy::ShareSum();
  return std::tuple(choice.candidate.spread, choice.cost, left, rounded ? 0 : choice.candidate.cost,
                    choice.candidate.fit);
}

Compiled Compile(const Cluster::State& s, const PodRequest& request) {
  Compiled pod;
  pod.request = &request;
  pod.policy = s.policy;
  if (request.node_rule) pod.policy.nodes = *request.node_rule;
  if (request.card_rule) pod.policy.cards = *request.card_rule;
  pod.wants = WantsOf(request);
  pod.wanted = Wants(pod.wants);
  pod.mode_mask = s.ModesFor(request.mode);
  pod.exclusion = s.WordOf(request.exclusion);
  if (const auto it = s.affinity.find(request.affinity); it != s.affinity.end()) {
    pod.near = &it->second;
  }
  if (const auto it = s.anti_affinity.find(request.anti_affinity); it != s.anti_affinity.end()) {
    pod.away = &it->second;
  }
  if (const auto it = s.gangs.find(request.gang); GangKeepsApart(request) && it != s.gangs.end()) {
    pod.gang = &it->second;
  }
  pod.plain = request.models.empty() && request.not_models.empty() && request.uuids.empty() &&
              request.not_uuids.empty() && request.mode.empty() && pod.exclusion == 0 &&
              pod.near == nullptr && pod.away == nullptr && pod.gang == nullptr;
  pod.salt = SaltOf(request.name, s.policy.seed);
  const bool several = std::any_of(
      request.containers.begin(), request.containers.end(), [](const ContainerRequest& container) {
        return std::any_of(container.vgpus.begin(), container.vgpus.end(),
                           [](const VgpuRequest& vgpu) { return vgpu.count > 1; });
      });
  // Who names several models, or the GPUs themselves, means those.
  pod.alike = several && request.models.size() < 2 && request.uuids.empty();
  return pod;
}

// The GPUs among which the pod is placed: all that it may use, or one model after the other. The
// ranks of a pod with several GPUs wait for each other, so on GPUs that differ the fast ones idle.
struct Among {
  std::array<uint16_t, VgpuRequest::kCardsMax> masks{};
  size_t count = 0;
};
Among AlikeAmong(const Compiled& pod, const NodeState& node, uint16_t allowed) {
  Among among;
  if (!pod.alike) {
    among.masks[among.count++] = allowed;
    return among;
  }
  std::array<uint32_t, VgpuRequest::kCardsMax> models{};
  for (size_t c = 0; c < node.cards.size(); ++c) {
    const auto bit = static_cast<uint16_t>(1u << c);
    if ((allowed & bit) == 0) continue;
    size_t m = 0;
    while (m < among.count && models[m] != node.cards[c].model) ++m;
    models[m] = node.cards[c].model;
    among.masks[m] = static_cast<uint16_t>(among.masks[m] | bit);
    among.count = std::max(among.count, m + 1);
  }
  return among;
}

// `best`: null, or a choice than which this one must be better; where it surely is not, the choice
// is left without a node.
Obstacle TryNode(const Cluster::State& s, Compiled& pod, const NodeState& node, const Choice* best,
                 Choice* choice) {
  choice->node = nullptr;
  const PodRequest& request = *pod.request;
  if (node.info.cordoned) return Obstacle::kCordoned;
  if (!request.node_labels.empty() && !HasLabels(node.info, request)) return Obstacle::kLabels;
  if (IsOff(request, node.info.name)) return Obstacle::kOff;
  if (!HasCpu(node, request.cpu_milli)) return Obstacle::kCpu;
  if (!HasMemory(node, request.memory_mib)) return Obstacle::kMemory;
  uint16_t allowed = 0;
  if (!pod.wants.empty()) {
    if (node.cards.empty()) return Obstacle::kNoCards;
    if (node.share_free < pod.wanted.share) {
      // Not even all of it together; whether it is of the kind is told all the same.
      bool kind = false;
      AllowedCards(pod, node, &kind);
      return kind ? Obstacle::kRoom : Obstacle::kKind;
    }
    bool kind = false;
    allowed = AllowedCards(pod, node, &kind);
    if (!kind) return Obstacle::kKind;
    if (pod.excess_max) allowed &= WithinExcess(pod, node);
    if (allowed == 0) return Obstacle::kCards;
  }
  if (LacksResource(node, request.resources) != nullptr) return Obstacle::kResources;
  SearchOptions options;
  options.modes = s.modes;
  options.policy = &pod.policy;
  options.mix = &s.mix;
  options.mode_mask = pod.mode_mask;
  options.allowed = allowed;
  options.cpu_milli = request.cpu_milli;
  options.memory_mib = request.memory_mib;
  options.salt = pod.salt;
  if (best != nullptr && best->node != nullptr) {
    const uint64_t steps = StepsOf(s.nodes.size());
    const uint64_t left = steps > pod.steps ? steps - pod.steps : 0;
    options.budget =
        static_cast<uint32_t>(std::min<uint64_t>(options.budget, left + pod.wants.size() + 1));
    options.spread = best->candidate.spread;
    if (pod.policy.cards == pod.policy.nodes) {
      if (pod.policy.nodes == Rule::kRemainder) options.limit = best->cost;
      if (const int64_t step = StepOf(pod.policy.nodes); pod.policy.nodes == Rule::kScarcity) {
        options.limit = best->cost * step + step / 2;  // costs are not negative
        // Of equals the node with less left is taken, so this one must cost less.
        if (node.share_free > best->node->share_free) {
          options.limit -= step + 1;
          if (best->cost == 0 && best->candidate.spread <= Spread{1, 1, 1}) return Obstacle::kNone;
        }
      }
    }
  }
  if (pod.excess_max) {
    options.by_use = true;
    options.expected_use = request.expected_use;
    options.limit = pod.cost_max;
  }
  SearchEnd end;
  std::optional<Candidate> found;
  const Among among = AlikeAmong(pod, node, allowed);
  for (size_t m = 0; m < among.count; ++m) {
    options.allowed = among.masks[m];
    SearchEnd ended;
    auto one = SearchNode(node, pod.wanted, options, &ended);
    pod.steps += ended.steps;
    end.exhausted |= ended.exhausted;
    end.dear |= ended.dear;
    if (one && (!found || one->Better(*found))) found = std::move(one);
  }
  if (!found) {
    return end.dear ? Obstacle::kNone : end.exhausted ? Obstacle::kBudget : Obstacle::kRoom;
  }
  choice->node = &node;
  choice->candidate = std::move(*found);
  choice->cost = NodeCost(s, pod, node, choice->candidate);
  return Obstacle::kNone;
}

bool Same(const Choice& a, const Choice& b) {
  const auto& x = a.candidate.places;
  const auto& y = b.candidate.places;
  return a.node == b.node &&
         std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](const Place& p, const Place& q) { return p.card == q.card; });
}

// Makes of the rule's choice the one that has the least expected excess among those that are nearly
// as good (devmgr/placement/policy.h). Returns the rule's.
Choice LessExcess(const Cluster::State& s, Compiled& pod,
                  std::span<const std::unique_ptr<NodeState>> nodes, Choice* best) {
  const PlacementPolicy& policy = pod.policy;
  const auto& use = pod.request->expected_use;
  best->candidate.excess = ExcessOf(*best->node, best->candidate.places, use);
  Choice rule = *best;
  if (rule.candidate.excess == 0 || policy.use_distance == 0 || policy.nodes != policy.cards ||
      !ByLoss(policy.nodes)) {
    return rule;
  }
  pod.cost_max = rule.candidate.cost + policy.use_distance * Mix::kLossUnit;
  pod.steps = 0;
  Choice choice;
  for (const auto& node : nodes) {
    if (pod.steps > StepsOf(nodes.size())) break;
    pod.excess_max = best->candidate.excess;
    TryNode(s, pod, *node, &rule, &choice);
    if (choice.node == nullptr) continue;
    const auto key = [&](const Choice& c) {
      return std::tuple(c.candidate.excess, KeyOf(policy, c));
    };
    if (key(choice) < key(*best)) std::swap(*best, choice);
  }
  return rule;
}

UseChoice ChangeBetween(const Compiled& pod, const Choice& rule, const Choice& best) {
  UseChoice change;
  if (best.candidate.places.empty()) return change;
  const auto with = [&](const Choice& choice) {
    const Place& place = choice.candidate.places[0];
    return devmgr::ExpectedUse(choice.node->cards[place.card]) +
           pod.request->expected_use.value_or(place.fit.share).millionths();
  };
  change.here = with(best);
  if (Same(rule, best)) return change;
  change.instead_of = rule.node->info.cards[rule.candidate.places[0].card].uuid;
  change.there = with(rule);
  return change;
}

Placement PlacementOf(const Cluster::State& s, const Compiled& pod, const Choice& choice) {
  Placement placement;
  placement.node = choice.node->info.name;
  for (size_t i = 0; i < pod.wants.size(); ++i) {
    const Place& place = choice.candidate.places[i];
    placement.vgpus.push_back({pod.wants[i].container, pod.wants[i].group,
                               choice.node->info.cards[place.card].uuid,
                               std::string(s.modes[place.mode]->name()), place.fit, ""});
  }
  return placement;
}

tl::unexpected<Error> Nowhere(
    const PodRequest& request,
    const std::array<uint32_t, static_cast<size_t>(Obstacle::kCount)>& why,
    std::span<const std::unique_ptr<NodeState>> nodes) {
  const auto count = [&](Obstacle o) { return why[static_cast<size_t>(o)]; };
  if (nodes.empty()) return Fail(ErrorCode::kUnavailable, "there are no nodes");
  const bool never =
      count(Obstacle::kNoCards) + count(Obstacle::kKind) + count(Obstacle::kLabels) == nodes.size();
  std::string text;
  const auto add = [&](uint32_t number, std::string_view what) {
    if (number > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", number, what);
  };
  std::map<std::string_view, uint32_t> off;
  for (const auto& node : nodes) {
    if (count(Obstacle::kOff) == 0) break;
    if (node->info.cordoned || !HasLabels(node->info, request)) continue;
    if (const std::string* reason = WhyOff(request, node->info.name)) ++off[*reason];
  }
  add(count(Obstacle::kLabels), "missing node label");
  add(count(Obstacle::kCordoned), "cordoned");
  for (const auto& [reason, number] : off) add(number, reason);
  add(count(Obstacle::kCpu), "insufficient CPU");
  add(count(Obstacle::kMemory), "insufficient memory");
  add(count(Obstacle::kKind), "no matching GPU model");
  add(count(Obstacle::kCards), "no eligible GPU");
  add(count(Obstacle::kRoom), "insufficient GPU share or memory");
  add(count(Obstacle::kResources), "insufficient other resources");
  add(count(Obstacle::kBudget), "search gave up");
  add(count(Obstacle::kNoCards), "no GPUs");
  return Fail(never ? ErrorCode::kNotFound : ErrorCode::kExhausted,
              fmt::format("0/{} nodes available: {}", nodes.size(), text));
}

// The first reason that holds for every virtual GPU of the pod; empty: one of them fits.
std::string WhyNotCard(const Cluster::State& s, const NodeState& node, size_t c,
                       const PodRequest& request) {
  const CardState& card = node.cards[c];
  const Compiled pod = Compile(s, request);
  if (card.card->health != Health::kHealthy) {
    const char* state = card.card->health == Health::kFailed ? "failed" : "missing";
    return card.card->why.empty() ? state : fmt::format("{}: {}", state, card.card->why);
  }
  if (card.card->cordoned) return "cordoned";
  if (!Wanted(pod, *card.card)) {
    const auto names = [&](const std::vector<std::string>& uuids) {
      return std::find(uuids.begin(), uuids.end(), card.card->uuid) != uuids.end();
    };
    if ((!request.uuids.empty() && !names(request.uuids)) || names(request.not_uuids)) {
      return "another GPU is requested";
    }
    return fmt::format("model {} is not requested", card.card->model);
  }
  if ((card.serves & pod.mode_mask) == 0) {
    return request.mode.empty() ? "no sharing mode serves it" : "cannot be used as " + request.mode;
  }
  if (card.use.vgpus > 0 && card.exclusion != pod.exclusion) {
    return request.exclusion.empty() ? "has pods with an exclusion word"
                                     : "has pods without exclusion '" + request.exclusion + "'";
  }
  if (pod.near != nullptr && !pod.near->contains(card.card->uuid)) {
    return "has no pod with affinity '" + request.affinity + "'";
  }
  if (pod.away != nullptr && pod.away->contains(card.card->uuid)) {
    return "has a pod with anti-affinity '" + request.anti_affinity + "'";
  }
  if (pod.gang != nullptr && pod.gang->contains(card.card->uuid)) {
    return "has a pod of the same gang; only an affinity word lets them share a GPU";
  }
  std::string why;
  for (const Want& want : pod.wants) {
    const VgpuWant wanted = want.On(*card.card);
    for (size_t m = 0; m < s.modes.size(); ++m) {
      if (!(card.serves >> m & 1) || !(pod.mode_mask >> m & 1)) continue;
      if (card.use.vgpus > 0 && card.use.mode != m) {
        if (why.empty()) why = fmt::format("is used as {}", s.modes[card.use.mode]->name());
        continue;
      }
      if (s.modes[m]->TryFit(*card.card, card.use, wanted)) return "";
      why = s.modes[m]->WhyNot(*card.card, card.use, wanted);
      break;
    }
  }
  return why;
}

// Of pods like this one, how many the node's own room is enough for.
uint64_t HeldByNode(const NodeState& node, const PodRequest& request) {
  uint64_t most = UINT64_MAX;
  const auto bound = [&most](uint64_t all, uint64_t used, uint64_t each) {
    if (each != 0) most = std::min(most, (all - std::min(all, used)) / each);
  };
  // 0: not looked at.
  if (node.info.cpu_milli != 0) bound(node.info.cpu_milli, node.cpu_used, request.cpu_milli);
  if (node.info.memory_mib != 0) bound(node.info.memory_mib, node.memory_used, request.memory_mib);
  for (const auto& [resource, each] : request.resources) {
    bound(FreeResource(node, resource), 0, each);
  }
  return most;
}

}  // namespace

Result<Placement> Cluster::Decide(const PodRequest& request, UseChoice* use) const {
  return DecideAmong(request, state_->nodes, use);
}

Result<Placement> Cluster::DecideOn(std::string_view name, const PodRequest& request,
                                    UseChoice* use) const {
  const auto it =
      std::lower_bound(state_->nodes.begin(), state_->nodes.end(), name,
                       [](const auto& node, std::string_view n) { return node->info.name < n; });
  if (it == state_->nodes.end() || (*it)->info.name != name) {
    return Fail(ErrorCode::kNotFound, fmt::format("there is no node {}", name));
  }
  return DecideAmong(request, std::span(&*it, 1), use);
}

Result<Placement> Cluster::DecideAmong(const PodRequest& request,
                                       std::span<const std::unique_ptr<NodeState>> nodes,
                                       UseChoice* use) const {
  const State& s = *state_;
  if (const auto valid = Validate(request); !valid) return tl::unexpected(valid.error());
  if (s.pods.contains(request.name)) {
    return Fail(ErrorCode::kExists, "pod " + request.name + " is placed already");
  }
  if (!request.mode.empty() && s.ModeOf(request.mode) == s.modes.size()) {
    std::string known;
    for (const SharingMode* mode : s.modes) {
      known += (known.empty() ? "" : ", ") + std::string(mode->name());
    }
    return Fail(ErrorCode::kInvalid, request.name + ": there is no sharing mode '" + request.mode +
                                         "'; one of " + known);
  }
  state_->mix.Weigh();
  Compiled pod = Compile(s, request);
  std::array<uint32_t, static_cast<size_t>(Obstacle::kCount)> why{};
  Choice best;
  Choice choice;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto& node = nodes[i];
    if (best.node != nullptr && pod.steps > StepsOf(nodes.size())) break;
    // Thousands of nodes are not in the cache.
    if (i + 6 < nodes.size()) Prefetch(nodes[i + 6].get(), sizeof(NodeState));
    if (i + 3 < nodes.size()) {
      Prefetch(nodes[i + 3]->cards.data(), nodes[i + 3]->cards.size() * sizeof(CardState));
      for (const Card& card : nodes[i + 3]->info.cards) __builtin_prefetch(&card.memory_mib);
    }
    const Obstacle obstacle = TryNode(s, pod, *node, &best, &choice);
    ++why[static_cast<size_t>(obstacle)];
    if (choice.node == nullptr) continue;
    if (best.node == nullptr || KeyOf(pod.policy, choice) < KeyOf(pod.policy, best))
      std::swap(best, choice);
    if (pod.policy.nodes == Rule::kFirstFit) break;
  }
  if (best.node == nullptr) return Nowhere(request, why, nodes);
  Choice rule = LessExcess(s, pod, nodes, &best);
  if (use != nullptr) *use = ChangeBetween(pod, rule, best);
  return PlacementOf(s, pod, best);
}

// One virtual GPU is on one GPU, whatever the others are on: each GPU is filled up by itself.
uint64_t Cluster::HowManyFit(const PodRequest& request, std::string_view name) const {
  const State& s = *state_;
  const size_t mode = s.ModeOf(request.mode);
  if (!Validate(request) || mode == s.modes.size()) return 0;
  Compiled pod = Compile(s, request);
  if (pod.wants.size() != 1) return 0;
  uint64_t pods = 0;
  for (const auto& entry : s.nodes) {
    const NodeState& node = *entry;
    if ((name != "*" && node.info.name != name) || node.info.cordoned ||
        IsOff(request, node.info.name) || !HasLabels(node.info, request)) {
      continue;
    }
    bool kind = false;
    const uint16_t allowed = AllowedCards(pod, node, &kind);
    uint64_t on_node = 0;
    for (size_t c = 0; c < node.cards.size(); ++c) {
      if ((allowed >> c & 1) == 0) continue;
      const Card& card = *node.cards[c].card;
      CardUse use = node.cards[c].use;
      if (use.vgpus > 0 && use.mode != mode) continue;
      while (const auto fit = s.modes[mode]->TryFit(card, use, pod.wants[0].On(card))) {
        use.share += fit->share;
        use.memory_mib += fit->memory_mib;
        use.layout = fit->layout;
        use.mode = static_cast<uint8_t>(mode);
        ++use.vgpus;
        ++on_node;
      }
    }
    pods += std::min(on_node, HeldByNode(node, request));
  }
  return pods;
}

std::vector<NodeRefusal> Cluster::Explain(const PodRequest& request) const {
  const State& s = *state_;
  std::vector<NodeRefusal> all;
  if (!Validate(request) || (!request.mode.empty() && s.ModeOf(request.mode) == s.modes.size())) {
    return all;
  }
  state_->mix.Weigh();
  Compiled pod = Compile(s, request);
  Choice choice;
  for (const auto& entry : s.nodes) {
    const NodeState& node = *entry;
    const Obstacle obstacle = TryNode(s, pod, node, nullptr, &choice);
    if (obstacle == Obstacle::kNone) continue;
    NodeRefusal refusal{node.info.name, "", {}};
    switch (obstacle) {
      case Obstacle::kCordoned:
        refusal.why = "cordoned";
        break;
      case Obstacle::kLabels:
        for (const auto& [key, value] : request.node_labels) {
          const auto it = node.info.labels.find(key);
          if (it != node.info.labels.end() && it->second == value) continue;
          refusal.why +=
              (refusal.why.empty() ? "" : ", ") +
              fmt::format("label {}={} requested, ", key, value) +
              (it == node.info.labels.end() ? "node has none" : "node has " + it->second);
        }
        break;
      case Obstacle::kCpu:
        refusal.why = fmt::format(
            "{:.7g} CPUs free, {:.7g} requested",
            static_cast<double>(node.info.cpu_milli -
                                std::min<uint64_t>(node.cpu_used, node.info.cpu_milli)) /
                1e3,
            request.cpu_milli / 1e3);
        break;
      case Obstacle::kMemory:
        refusal.why =
            fmt::format("{} MiB of memory free, {} requested",
                        node.info.memory_mib - std::min(node.memory_used, node.info.memory_mib),
                        request.memory_mib);
        break;
      case Obstacle::kResources: {
        const std::string& lacks = *LacksResource(node, request.resources);
        refusal.why = fmt::format("{} {} free, {} requested", FreeResource(node, lacks), lacks,
                                  request.resources.at(lacks));
        break;
      }
      case Obstacle::kOff:
        refusal.why = *WhyOff(request, node.info.name);
        break;
      case Obstacle::kBudget:
        refusal.why = "its GPUs may have room, but the search gave up";
        break;
      default:
        break;
    }
    for (size_t c = 0; c < node.cards.size() && !pod.wants.empty(); ++c) {
      refusal.cards.push_back({node.info.cards[c].uuid, WhyNotCard(s, node, c, request)});
    }
    all.push_back(std::move(refusal));
  }
  return all;
}

}  // namespace baton::devmgr
