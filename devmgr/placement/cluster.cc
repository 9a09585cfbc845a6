#include "devmgr/placement/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "devmgr/placement/cluster_state.h"
#include "spec/modes.h"

namespace baton::devmgr {
namespace {

constexpr size_t kModesMax = 16;

// What one of the pod's virtual GPUs is expected to execute beyond its share, in millionths.
int64_t BeyondOf(const PodRequest& request, const Fit& fit) {
  if (!request.expected_use) return 0;
  return int64_t{request.expected_use->millionths()} - fit.share.millionths();
}

auto NodeBefore(const std::unique_ptr<NodeState>& node, std::string_view name) {
  return node->info.name < name;
}

}  // namespace

NodeState* Cluster::State::Find(std::string_view name) const {
  const auto it = std::lower_bound(nodes.begin(), nodes.end(), name, NodeBefore);
  return it != nodes.end() && (*it)->info.name == name ? it->get() : nullptr;
}

uint64_t Cluster::State::WordOf(const std::string& word) const {
  if (word.empty()) return 0;
  const auto it = words.find(word);
  return it != words.end() ? it->second.number : UINT64_MAX;
}

size_t Cluster::State::ModeOf(std::string_view name) const {
  for (size_t m = 0; m < modes.size(); ++m) {
    if (modes[m]->name() == name) return m;
  }
  return modes.size();
}

uint16_t Cluster::State::ModesFor(std::string_view wanted) const {
  if (wanted.empty()) return open_modes;
  const size_t m = ModeOf(wanted);
  return static_cast<uint16_t>(m == modes.size() ? 0 : 1u << m);
}

void Cluster::State::AddUp(NodeState& node) const {
  node.share_used = node.share_free = {};
  node.card_memory_used = node.card_memory = 0;
  node.open = 0;
  node.free.cards = node.cards.size();
  for (size_t c = 0; c < node.cards.size(); ++c) {
    const CardState& card = node.cards[c];
    node.free.share[c] = 0;
    if (card.usable) SetFree(node.free, c, *card.card, card.use);
    if (card.usable && (card.serves & open_modes) != 0 &&
        (card.use.vgpus == 0 || card.exclusion == 0)) {
      node.open |= static_cast<uint16_t>(1u << c);
    }
    node.full[c] = static_cast<int16_t>(Fullness(policy, card.use.share, policy::kWhole,
                                                 card.use.memory_mib, card.card->memory_mib));
    node.share_used += card.use.share;
    if (card.usable) node.share_free += policy::kWhole - card.use.share;
    node.card_memory_used += card.use.memory_mib;
    node.card_memory += card.card->memory_mib;
  }
  node.sum = Mix::Sum(node.free);
  node.loss_version = 0;
}

void Cluster::State::Take(NodeState& node, size_t index, size_t mode, const Fit& fit,
                          const PodRequest& request) {
  CardState& card = node.cards[index];
  if (card.use.vgpus == 0) {
    const uint64_t word = WordOf(request.exclusion);
    card.exclusion = word != UINT64_MAX ? word : ++last_word;
  }
  card.use.share += fit.share;
  card.use.memory_mib += fit.memory_mib;
  card.use.mode = static_cast<uint8_t>(mode);
  card.use.layout = fit.layout;
  card.beyond += BeyondOf(request, fit);
  ++card.use.vgpus;
  BATON_CHECK(card.use.share <= policy::kWhole && card.use.memory_mib <= card.card->memory_mib);
  Count(card, request);
}

void Cluster::State::Count(const CardState& card, const PodRequest& request) {
  const std::string& uuid = card.card->uuid;
  if (!request.exclusion.empty()) {
    ++words.try_emplace(request.exclusion, Word{card.exclusion, 0}).first->second.vgpus;
  }
  if (!request.affinity.empty()) ++affinity[request.affinity][uuid];
  if (!request.anti_affinity.empty()) ++anti_affinity[request.anti_affinity][uuid];
  if (!request.gang.empty()) ++gangs[request.gang][uuid];
}

void Cluster::State::GiveBack(NodeState& node, size_t index, const Fit& fit,
                              const PodRequest& request) {
  CardState& card = node.cards[index];
  BATON_CHECK(card.use.vgpus > 0 && card.use.share >= fit.share &&
              card.use.memory_mib >= fit.memory_mib);
  card.use.share -= fit.share;
  card.use.memory_mib -= fit.memory_mib;
  card.beyond -= BeyondOf(request, fit);
  card.use.layout = modes[card.use.mode]->Without(*card.card, card.use.layout, fit.slot);
  if (--card.use.vgpus == 0) {
    BATON_CHECK(card.use.share == policy::Share(0) && card.use.memory_mib == 0 &&
                card.use.layout == 0);
    card.use = CardUse{};
    card.exclusion = 0;
  }
  const std::string& uuid = card.card->uuid;
  const auto drop = [&](std::unordered_map<std::string, CardCounts>& counts,
                        const std::string& word) {
    if (word.empty()) return;
    CardCounts& cards = counts.at(word);
    if (--cards.at(uuid) == 0) cards.erase(uuid);
    if (cards.empty()) counts.erase(word);
  };
  drop(affinity, request.affinity);
  drop(anti_affinity, request.anti_affinity);
  drop(gangs, request.gang);
  if (request.exclusion.empty()) return;
  const auto word = words.find(request.exclusion);
  if (--word->second.vgpus == 0) words.erase(word);
}

bool HasCpu(const NodeState& node, uint32_t milli) {
  return node.info.cpu_milli == 0 || node.cpu_used + milli <= node.info.cpu_milli;
}

bool HasMemory(const NodeState& node, uint64_t mib) {
  return node.info.memory_mib == 0 || node.memory_used + mib <= node.info.memory_mib;
}

uint64_t FreeResource(const NodeState& node, const std::string& resource) {
  const auto all = node.info.resources.find(resource);
  if (all == node.info.resources.end()) return 0;
  const auto used = node.resources_used.find(resource);
  if (used == node.resources_used.end()) return all->second;
  return all->second - std::min(all->second, used->second);
}

const std::string* LacksResource(const NodeState& node,
                                 const std::map<std::string, uint64_t>& resources) {
  for (const auto& [resource, amount] : resources) {
    if (amount > FreeResource(node, resource)) return &resource;
  }
  return nullptr;
}

bool IsOff(const PodRequest& request, std::string_view node) {
  return WhyOff(request, node) != nullptr;
}

const std::string* WhyOff(const PodRequest& request, std::string_view node) {
  if (request.off_nodes == nullptr) return nullptr;
  const auto it = std::lower_bound(
      request.off_nodes->begin(), request.off_nodes->end(), node,
      [](const ExcludedNode& off, std::string_view name) { return off.node < name; });
  return it != request.off_nodes->end() && it->node == node ? &it->why : nullptr;
}

std::vector<Want> WantsOf(const PodRequest& request) {
  std::vector<Want> wants;
  for (size_t c = 0; c < request.containers.size(); ++c) {
    const auto& vgpus = request.containers[c].vgpus;
    for (size_t g = 0; g < vgpus.size(); ++g) {
      const Want want{vgpus[g].share, vgpus[g].memory_mib, vgpus[g].memory_part,
                      static_cast<uint16_t>(c), static_cast<uint16_t>(g)};
      wants.insert(wants.end(), vgpus[g].count, want);
    }
  }
  return wants;
}

Cluster::Cluster(std::span<const SharingMode* const> modes, const PlacementPolicy& policy)
    : state_(std::make_unique<State>()) {
  BATON_CHECK(!modes.empty() && modes.size() <= kModesMax);
  state_->modes.assign(modes.begin(), modes.end());
  for (size_t m = 0; m < modes.size(); ++m) {
    if (spec::Accepts("", modes[m]->name())) state_->open_modes |= static_cast<uint16_t>(1u << m);
  }
  state_->policy = policy;
}

Cluster::~Cluster() = default;
Cluster::Cluster(Cluster&&) noexcept = default;
Cluster& Cluster::operator=(Cluster&&) noexcept = default;

Result<void> Cluster::SetNode(const Node& given) {
  State& s = *state_;
  NodeState* known = s.Find(given.name);
  Node node = given;
  if (known != nullptr) {
    // What is in use stays, though it be missing.
    Node in_use = known->info;
    std::erase_if(in_use.cards, [&](const Card& card) { return UseOf(card.uuid)->vgpus == 0; });
    const bool cordoned = node.cordoned;
    std::map<std::string, bool> cordons;
    for (const Card& card : node.cards) cordons[card.uuid] = card.cordoned;
    node = Merged(in_use, std::move(node));
    // What is said now of cordons counts.
    node.cordoned = cordoned;
    for (Card& card : node.cards) {
      if (const auto said = cordons.find(card.uuid); said != cordons.end()) {
        card.cordoned = said->second;
      }
    }
  }
  const auto invalid = [&](std::string why) {
    return Fail(ErrorCode::kInvalid, "node " + node.name + ": " + why);
  };
  if (node.name.empty()) return Fail(ErrorCode::kInvalid, "a node without a name");
  if (node.cards.size() > VgpuRequest::kCardsMax) {
    return invalid(fmt::format("{} GPUs; at most {}", node.cards.size(), VgpuRequest::kCardsMax));
  }
  std::set<std::string_view> uuids;
  for (const Card& card : node.cards) {
    if (card.uuid.empty()) return invalid("a GPU without a uuid");
    if (!uuids.insert(card.uuid).second) return invalid("two GPUs have the uuid " + card.uuid);
    const auto it = s.cards.find(card.uuid);
    if (it != s.cards.end() && it->second.first != known) {
      return invalid("GPU " + card.uuid + " is on node " + it->second.first->info.name + " too");
    }
    if (card.memory_mib == 0) return invalid("GPU " + card.uuid + " has 0 MiB of memory");
    if (it != s.cards.end() && known->cards[it->second.second].use.memory_mib > card.memory_mib) {
      return invalid(fmt::format("GPU {} has {} MiB now, and {} are given away", card.uuid,
                                 card.memory_mib, known->cards[it->second.second].use.memory_mib));
    }
  }

  auto fresh = std::make_unique<NodeState>();
  fresh->info = std::move(node);
  for (const Card& card : fresh->info.cards) {
    CardState state;
    if (const auto it = s.cards.find(card.uuid); it != s.cards.end()) {
      state = known->cards[it->second.second];
      state.beyond -= state.card->beyond;
    }
    state.beyond += card.beyond;
    state.card = &card;
    state.usable = card.usable() && !fresh->info.cordoned;
    const std::string kind = card.vendor + '\n' + card.model;
    state.model = s.models.emplace(kind, static_cast<uint32_t>(s.models.size())).first->second;
    state.serves = 0;
    for (size_t m = 0; m < s.modes.size(); ++m) {
      if (s.modes[m]->Serves(card)) state.serves |= static_cast<uint16_t>(1u << m);
    }
    fresh->cards.push_back(state);
  }
  if (known != nullptr) {
    fresh->cpu_used = known->cpu_used;
    fresh->memory_used = known->memory_used;
    fresh->resources_used = known->resources_used;
    fresh->pods = known->pods;
    for (const Card& card : known->info.cards) s.cards.erase(card.uuid);
  }
  NumberKinds(*fresh);
  fresh->supply = SupplyOf(*fresh);
  fresh->free.model = fresh->supply.model;
  if (known == nullptr || known->supply != fresh->supply) {
    if (known != nullptr) s.mix.Remove(known->supply);
    s.mix.Add(fresh->supply);
  }
  s.AddUp(*fresh);
  for (size_t c = 0; c < fresh->cards.size(); ++c) {
    s.cards[fresh->info.cards[c].uuid] = {fresh.get(), c};
  }
  const auto at = std::lower_bound(s.nodes.begin(), s.nodes.end(), fresh->info.name, NodeBefore);
  if (known != nullptr) {
    *at = std::move(fresh);
  } else {
    s.nodes.insert(at, std::move(fresh));
  }
  return {};
}

Result<void> Cluster::RemoveNode(std::string_view name) {
  State& s = *state_;
  const auto it = std::lower_bound(s.nodes.begin(), s.nodes.end(), name, NodeBefore);
  if (it == s.nodes.end() || (*it)->info.name != name) {
    return Fail(ErrorCode::kNotFound, fmt::format("there is no node {}", name));
  }
  if (!(*it)->pods.empty()) {
    return Fail(ErrorCode::kExists, fmt::format("{} pods are placed on node {}; delete them first",
                                                (*it)->pods.size(), name));
  }
  for (const Card& card : (*it)->info.cards) s.cards.erase(card.uuid);
  s.mix.Remove((*it)->supply);
  s.nodes.erase(it);
  return {};
}

std::vector<const Node*> Cluster::Nodes() const {
  std::vector<const Node*> all;
  all.reserve(state_->nodes.size());
  for (const auto& node : state_->nodes) all.push_back(&node->info);
  return all;
}

const Node* Cluster::FindNode(std::string_view name) const {
  const NodeState* node = state_->Find(name);
  return node != nullptr ? &node->info : nullptr;
}

const Card* Cluster::FindCard(std::string_view uuid) const {
  const auto it = state_->cards.find(std::string(uuid));
  return it != state_->cards.end() ? &it->second.first->info.cards[it->second.second] : nullptr;
}

const CardUse* Cluster::UseOf(std::string_view uuid) const {
  const auto it = state_->cards.find(std::string(uuid));
  return it != state_->cards.end() ? &it->second.first->cards[it->second.second].use : nullptr;
}

int64_t Cluster::ExpectedUse(std::string_view uuid) const {
  const auto it = state_->cards.find(std::string(uuid));
  if (it == state_->cards.end()) return 0;
  return devmgr::ExpectedUse(it->second.first->cards[it->second.second]);
}

Cluster::Capacity Cluster::FreeOn(std::string_view name) const {
  Capacity free;
  const NodeState* node = state_->Find(name);
  if (node == nullptr) return free;
  if (node->info.cpu_milli > node->cpu_used) free.cpu_milli = node->info.cpu_milli - node->cpu_used;
  if (node->info.memory_mib > node->memory_used) {
    free.memory_mib = node->info.memory_mib - node->memory_used;
  }
  free.share = node->share_free;
  return free;
}

const PlacementPolicy& Cluster::policy() const { return state_->policy; }
void Cluster::SetPolicy(const PlacementPolicy& policy) {
  state_->policy = policy;
  for (const auto& node : state_->nodes) state_->AddUp(*node);
}
void Cluster::Learn(const PodRequest& request) { state_->mix.Learn(request); }

double Cluster::Fragmentation() const {
  int64_t sum = 0;
  size_t cards = 0;
  for (const auto& node : state_->nodes) {
    for (const int64_t loss :
         state_->mix.LossesOf(Rule::kFragmentation, Mix::Sum(FreeOf(*node, 0, 0)))) {
      sum += loss;
    }
    cards += node->cards.size();
  }
  if (cards == 0) return 0;
  return static_cast<double>(sum) / Mix::kLossUnit / 1'000 / static_cast<double>(cards);
}

Result<void> Cluster::Commit(const PodRequest& request, const Placement& placement) {
  return Book(request, placement, true);
}

Result<void> Cluster::Adopt(const PodRequest& request, const Placement& placement) {
  return Book(request, placement, false);
}

Result<void> Cluster::Book(const PodRequest& request, const Placement& placement, bool host) {
  State& s = *state_;
  if (auto valid = Validate(request); !valid) return valid;
  if (s.pods.contains(request.name)) {
    return Fail(ErrorCode::kExists, "pod " + request.name + " is placed already");
  }
  NodeState* node = s.Find(placement.node);
  if (node == nullptr) {
    return Fail(ErrorCode::kNotFound, "there is no node " + placement.node);
  }
  const auto refuse = [&](ErrorCode code, const std::string& why) {
    return Fail(code, "pod " + request.name + " on " + placement.node + ": " + why);
  };
  const std::vector<Want> wants = WantsOf(request);
  if (wants.size() != placement.vgpus.size()) {
    return refuse(ErrorCode::kInvalid, fmt::format("{} virtual GPUs placed, {} asked for",
                                                   placement.vgpus.size(), wants.size()));
  }
  if (host && !HasCpu(*node, request.cpu_milli)) {
    return refuse(ErrorCode::kExhausted, "not enough CPU");
  }
  if (host && !HasMemory(*node, request.memory_mib)) {
    return refuse(ErrorCode::kExhausted, "not enough memory");
  }
  if (const std::string* lacks = host ? LacksResource(*node, request.resources) : nullptr) {
    return refuse(ErrorCode::kExhausted, "not enough " + *lacks);
  }
  // It was decided when others stood elsewhere, maybe.
  const auto has_one_of =
      [&](const std::unordered_map<std::string, Cluster::State::CardCounts>& words,
          const std::string& word) {
        const auto on = word.empty() ? words.end() : words.find(word);
        return on != words.end() &&
               std::any_of(placement.vgpus.begin(), placement.vgpus.end(),
                           [&](const Vgpu& vgpu) { return on->second.contains(vgpu.card); });
      };
  if (host && has_one_of(s.anti_affinity, request.anti_affinity)) {
    return refuse(ErrorCode::kExhausted,
                  "a GPU has a pod with anti-affinity '" + request.anti_affinity + "'");
  }
  if (host && GangKeepsApart(request) && has_one_of(s.gangs, request.gang)) {
    return refuse(ErrorCode::kExhausted, "a GPU has a pod of the same gang");
  }

  PlacedPod pod{request, placement};
  std::set<std::pair<uint32_t, std::string_view>> taken;
  size_t done = 0;
  const auto undo = [&] {
    while (done-- > 0) {
      const Vgpu& vgpu = pod.placement.vgpus[done];
      s.GiveBack(*node, s.cards.at(vgpu.card).second, vgpu.fit, request);
    }
    s.AddUp(*node);
  };
  for (; done < wants.size(); ++done) {
    const Want& want = wants[done];
    Vgpu& vgpu = pod.placement.vgpus[done];
    const auto fail = [&](ErrorCode code, const std::string& why) {
      undo();
      return refuse(code, why);
    };
    if (vgpu.container != want.container || vgpu.group != want.group) {
      return fail(ErrorCode::kInvalid, "the placement is not in the order of what was asked for");
    }
    const auto card = s.cards.find(vgpu.card);
    if (card == s.cards.end() || card->second.first != node) {
      return fail(ErrorCode::kNotFound, "it has no GPU " + vgpu.card);
    }
    if (!taken.emplace(vgpu.container, vgpu.card).second) {
      return fail(ErrorCode::kInvalid, "one container has GPU " + vgpu.card + " twice");
    }
    const size_t m = s.ModeOf(vgpu.mode);
    if (m == s.modes.size()) {
      return fail(ErrorCode::kNotFound, "there is no mode '" + vgpu.mode + "'");
    }
    const CardState& on = node->cards[card->second.second];
    if (!request.mode.empty() && vgpu.mode != request.mode) {
      return fail(ErrorCode::kInvalid,
                  "mode '" + vgpu.mode + "' placed, '" + request.mode + "' asked for");
    }
    if (!(on.serves >> m & 1)) {
      return fail(ErrorCode::kExhausted, "GPU " + vgpu.card + " cannot be used as " + vgpu.mode);
    }
    if (on.use.vgpus > 0 && on.use.mode != m) {
      return fail(ErrorCode::kExhausted,
                  fmt::format("GPU {} is used as {}", vgpu.card, s.modes[on.use.mode]->name()));
    }
    const uint64_t word = s.WordOf(request.exclusion);
    if (on.use.vgpus > 0 && on.exclusion != word) {
      return fail(ErrorCode::kExhausted, "GPU " + vgpu.card + " is for pods of another exclusion");
    }
    const VgpuWant wanted = want.On(*on.card);
    // What is decided keeps its room, whoever took memory without a reservation since, and however
    // much is kept from pods now.
    const bool less = on.card->taken_mib != 0 || on.card->reserve_mib != 0;
    Card untaken;
    if (less) {
      untaken = *on.card;
      untaken.taken_mib = untaken.reserve_mib = 0;
    }
    const Card& there = less ? untaken : *on.card;
    const auto fit = s.modes[m]->FitAt(there, on.use, wanted, vgpu.fit.slot);
    if (!fit || on.use.share + fit->share > policy::kWhole ||
        on.use.memory_mib + fit->memory_mib > on.card->memory_mib) {
      return fail(ErrorCode::kExhausted,
                  "GPU " + vgpu.card + ": " + s.modes[m]->WhyNot(there, on.use, wanted));
    }
    vgpu.fit = *fit;
    s.Take(*node, card->second.second, m, *fit, request);
  }
  Enter(std::move(pod), *node);
  return {};
}

void Cluster::Enter(PlacedPod pod, NodeState& node) {
  node.cpu_used += pod.request.cpu_milli;
  node.memory_used += pod.request.memory_mib;
  for (const auto& [resource, amount] : pod.request.resources) {
    node.resources_used[resource] += amount;
  }
  state_->AddUp(node);
  const std::string name = pod.request.name;
  const PlacedPod* placed = &state_->pods.emplace(name, std::move(pod)).first->second;
  const auto at = std::lower_bound(
      node.pods.begin(), node.pods.end(), placed,
      [](const PlacedPod* a, const PlacedPod* b) { return a->request.name < b->request.name; });
  node.pods.insert(at, placed);
}

Result<void> Cluster::Delete(std::string_view name) {
  State& s = *state_;
  const auto it = s.pods.find(name);
  if (it == s.pods.end()) {
    return Fail(ErrorCode::kNotFound, fmt::format("no pod {} is placed", name));
  }
  const PlacedPod& pod = it->second;
  NodeState& node = *s.Find(pod.placement.node);
  for (auto vgpu = pod.placement.vgpus.rbegin(); vgpu != pod.placement.vgpus.rend(); ++vgpu) {
    s.GiveBack(node, s.cards.at(vgpu->card).second, vgpu->fit, pod.request);
  }
  node.cpu_used -= pod.request.cpu_milli;
  node.memory_used -= pod.request.memory_mib;
  for (const auto& [resource, amount] : pod.request.resources) {
    const auto used = node.resources_used.find(resource);
    if ((used->second -= amount) == 0) node.resources_used.erase(used);
  }
  s.AddUp(node);
  std::erase(node.pods, &pod);
  s.pods.erase(it);
  return {};
}

Result<void> Cluster::Resize(std::string_view name, uint32_t container, uint32_t group,
                             policy::Share share, uint32_t memory_mib) {
  const PlacedPod* pod = Find(name);
  if (pod == nullptr) return Fail(ErrorCode::kNotFound, fmt::format("no pod {} is placed", name));
  PodRequest request = pod->request;
  if (container >= request.containers.size() ||
      group >= request.containers[container].vgpus.size()) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("pod {} has no virtual GPU {}.{}", name, container, group));
  }
  VgpuRequest& vgpu = request.containers[container].vgpus[group];
  vgpu.share = share;
  vgpu.memory_mib = memory_mib;
  vgpu.memory_part = policy::Share(0);
  return Replace(name, request, pod->placement);
}

Result<void> Cluster::SetExpectedUse(std::string_view name,
                                     const std::optional<policy::Share>& use) {
  const auto it = state_->pods.find(name);
  if (it == state_->pods.end()) {
    return Fail(ErrorCode::kNotFound, fmt::format("no pod {} is placed", name));
  }
  PodRequest& request = it->second.request;
  const std::optional<policy::Share> before = std::exchange(request.expected_use, use);
  if (before == use) return {};
  for (const Vgpu& vgpu : it->second.placement.vgpus) {
    const auto& [node, c] = state_->cards.at(vgpu.card);
    const auto expected = [&](const std::optional<policy::Share>& known) {
      return int64_t{known.value_or(vgpu.fit.share).millionths()};
    };
    node->cards[c].beyond += expected(use) - expected(before);
  }
  return {};
}

Result<void> Cluster::Move(std::string_view name, const Placement& to) {
  const PlacedPod* pod = Find(name);
  if (pod == nullptr) return Fail(ErrorCode::kNotFound, fmt::format("no pod {} is placed", name));
  return Replace(name, pod->request, to);
}

Result<void> Cluster::Replace(std::string_view pod, const PodRequest& request,
                              const Placement& placement) {
  if (auto valid = Validate(request); !valid) return valid;
  PlacedPod before = *Find(pod);
  const PlacedPod after{request, placement};  // the arguments may be of the pod that goes
  NodeState& node = *state_->Find(before.placement.node);
  const std::vector<CardState> cards = node.cards;
  BATON_CHECK(Delete(before.request.name).has_value());
  const bool moves = after.placement.node != before.placement.node;
  auto booked = Book(after.request, after.placement, moves);
  if (booked) return booked;
  // As it was, to the bit, though it might not be given so again.
  node.cards = cards;
  for (const Vgpu& vgpu : before.placement.vgpus) {
    state_->Count(node.cards[state_->cards.at(vgpu.card).second], before.request);
  }
  Enter(std::move(before), node);
  return booked;
}

const PlacedPod* Cluster::Find(std::string_view pod) const {
  const auto it = state_->pods.find(pod);
  return it != state_->pods.end() ? &it->second : nullptr;
}

const std::map<std::string, PlacedPod, std::less<>>& Cluster::pods() const { return state_->pods; }

std::vector<const PlacedPod*> Cluster::PodsOn(std::string_view name) const {
  const NodeState* node = state_->Find(name);
  return node != nullptr ? node->pods : std::vector<const PlacedPod*>{};
}

size_t Cluster::MemoryBytes() const {
  size_t bytes = sizeof(State);
  for (const auto& node : state_->nodes) {
    bytes += sizeof(NodeState) + sizeof(void*);
    // The GPU, its state, and its place in the index by uuid.
    bytes += node->cards.capacity() * (sizeof(CardState) + sizeof(Card) + 160);
    bytes += node->pods.capacity() * sizeof(void*);
  }
  for (const auto& [name, pod] : state_->pods) {
    bytes += sizeof(PlacedPod) + 64 + pod.placement.vgpus.capacity() * (sizeof(Vgpu) + 48);
  }
  return bytes;
}

}  // namespace baton::devmgr
