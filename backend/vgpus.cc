#include "backend/vgpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "devmgr/exclusive.h"
#include "devmgr/mig_mode.h"
#include "devmgr/mps_mode.h"
#include "devmgr/time_slice.h"
#include "devmgr/what_if.h"

namespace baton::backend {
namespace {

using devmgr::Card;
using devmgr::CardUse;
using devmgr::Fit;
using devmgr::InPercent;
using devmgr::NodeRefusal;
using devmgr::Placement;
using devmgr::PodRequest;
using devmgr::SharingMode;
using devmgr::VgpuWant;

constexpr std::string_view kMig = "mig";
constexpr std::string_view kMps = "mps";
// Cards whose reasons are told in a refusal itself.
constexpr size_t kReasonsMax = 3;
// Bytes of who is on one of them, about.
constexpr size_t kSharesMax = 150;

// The map counts in parts of what a card may be requested to: with an overcommit of 2 a request of
// 50 % takes 25 % of it.
policy::Share Booked(policy::Share share, policy::Share overcommit) {
  const uint64_t booked = uint64_t{share} * policy::kWhole / overcommit;
  return static_cast<policy::Share>(
      std::clamp<uint64_t>(booked, policy::kShareMin, uint64_t{policy::kWhole} + 1));
}
policy::Share Meant(policy::Share booked, policy::Share overcommit) {
  return static_cast<policy::Share>((uint64_t{booked} * overcommit + policy::kWhole - 1) /
                                    policy::kWhole);
}

// Modes that hand the card to one pod after the other.
class ByTurns final : public SharingMode {
 public:
  ByTurns(const SharingMode& mode, policy::Share overcommit)
      : mode_(mode), overcommit_(overcommit) {}
  std::string_view name() const override { return mode_.name(); }
  bool Serves(const Card& card) const override { return mode_.Serves(card); }
  std::optional<Fit> TryFit(const Card& card, const CardUse& use,
                            const VgpuWant& want) const override {
    return mode_.TryFit(card, use, want);
  }
  uint64_t Without(const Card& card, uint64_t layout, uint32_t slot) const override {
    return mode_.Without(card, layout, slot);
  }
  std::string WhyNot(const Card& card, const CardUse& use, const VgpuWant& want) const override {
    const policy::Share free = policy::kWhole - use.share;
    if (overcommit_ == policy::kWhole || !Serves(card) || want.share <= free) {
      return mode_.WhyNot(card, use, want);
    }
    return fmt::format("of {} {} are free, {} wanted", InPercent(overcommit_),
                       InPercent(Meant(free, overcommit_)),
                       InPercent(Meant(want.share, overcommit_)));
  }
  devmgr::Environment EnvironmentOf(const Card& card, const Fit& fit,
                                    const std::string& device) const override {
    return mode_.EnvironmentOf(card, fit, device);
  }

 private:
  const SharingMode& mode_;
  const policy::Share overcommit_;
};

// Modes that divide the card itself: a part is as large as it is.
class Divided final : public SharingMode {
 public:
  Divided(const SharingMode& mode, policy::Share overcommit)
      : mode_(mode), overcommit_(overcommit) {}
  std::string_view name() const override { return mode_.name(); }
  bool Serves(const Card& card) const override { return mode_.Serves(card); }
  std::optional<Fit> TryFit(const Card& card, const CardUse& use,
                            const VgpuWant& want) const override {
    return mode_.TryFit(card, use, Whole(want));
  }
  std::optional<Fit> FitAt(const Card& card, const CardUse& use, const VgpuWant& want,
                           uint32_t slot) const override {
    return mode_.FitAt(card, use, Whole(want), slot);
  }
  uint64_t Without(const Card& card, uint64_t layout, uint32_t slot) const override {
    return mode_.Without(card, layout, slot);
  }
  std::string WhyNot(const Card& card, const CardUse& use, const VgpuWant& want) const override {
    return mode_.WhyNot(card, use, Whole(want));
  }
  devmgr::Environment EnvironmentOf(const Card& card, const Fit& fit,
                                    const std::string& device) const override {
    return mode_.EnvironmentOf(card, fit, device);
  }

 private:
  VgpuWant Whole(VgpuWant want) const {
    want.share = std::min(Meant(want.share, overcommit_), policy::kWhole);
    return want;
  }
  const SharingMode& mode_;
  const policy::Share overcommit_;
};

uint32_t MibOf(uint64_t bytes) {
  const uint64_t mib = (bytes >> 20) + ((bytes & 0xfffff) != 0 ? 1 : 0);
  return static_cast<uint32_t>(std::min<uint64_t>(mib, UINT32_MAX));
}

bool IsIn(const std::vector<std::string>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

}  // namespace

struct Vgpus::Modes {
  Modes(devmgr::MigTemplates mig_templates, policy::Share overcommit)
      : templates(std::move(mig_templates)),
        by_turns(std::make_unique<ByTurns>(time_slice, overcommit)),
        whole(std::make_unique<ByTurns>(exclusive, overcommit)),
        divided_mps(std::make_unique<Divided>(mps, overcommit)),
        divided_mig(std::make_unique<Divided>(mig, overcommit)) {}
  const devmgr::MigTemplates templates;
  devmgr::TimeSlice time_slice;
  devmgr::Exclusive exclusive;
  devmgr::MpsMode mps;
  devmgr::MigMode mig{templates};
  std::unique_ptr<const SharingMode> by_turns, whole, divided_mps, divided_mig;
  std::array<const SharingMode*, 4> all{by_turns.get(), divided_mig.get(), divided_mps.get(),
                                        whole.get()};

  const SharingMode* Find(std::string_view name) const {
    for (const SharingMode* mode : all) {
      if (mode->name() == name) return mode;
    }
    return nullptr;
  }
};

Vgpus::Vgpus(const devmgr::PlacementPolicy& policy, policy::Share overcommit,
             devmgr::MigTemplates templates, std::string here)
    : overcommit_(overcommit),
      here_(std::move(here)),
      modes_(std::make_shared<const Modes>(std::move(templates), overcommit)),
      cluster_(std::make_unique<devmgr::Cluster>(modes_->all, policy)) {}

Vgpus::~Vgpus() = default;

const devmgr::MigMode& Vgpus::mig() const { return modes_->mig; }

std::string Vgpus::NameOf(const std::string& node) const { return node.empty() ? here_ : node; }

// ------------------------------------------------------------------------------------ inventory

// The cluster's picture of the node: what is there, and what must not be used of it.
Result<void> Vgpus::Tell(const std::string& node) {
  const Known& known = nodes_.at(node);
  devmgr::Node told;
  told.name = NameOf(node);
  told.cards = known.cards;
  for (Card& card : told.cards) {
    card.cordoned = cordoned_.count(card.uuid) != 0 || held_.count(card.uuid) != 0;
    if (!known.reachable && card.health == devmgr::Health::kHealthy) {
      card.health = devmgr::Health::kMissing;
      card.why = "the link to its node is cut";
    }
  }
  return cluster_->SetNode(told);
}

void Vgpus::TellNodesOf(const std::vector<std::string>& gpus) {
  std::set<std::string> nodes;
  for (const std::string& gpu : gpus) {
    if (auto it = node_of_.find(gpu); it != node_of_.end()) nodes.insert(it->second);
  }
  // The same cards as before: this cannot fail.
  for (const std::string& node : nodes) BATON_CHECK(Tell(node).has_value());
}

Result<std::vector<devmgr::InventoryEvent>> Vgpus::SetCards(const std::string& node,
                                                            std::vector<Card> cards) {
  devmgr::Node before, now;
  before.name = now.name = NameOf(node);
  if (auto it = nodes_.find(node); it != nodes_.end()) before.cards = it->second.cards;
  now.cards = std::move(cards);
  for (Card& card : now.cards) {
    if (card.memory_mib == 0) card.memory_mib = kUnknownMemoryMib;
  }
  if (now.cards.size() > devmgr::VgpuRequest::kCardsMax) {
    now.cards.resize(devmgr::VgpuRequest::kCardsMax);
  }
  now = devmgr::Merged(before, std::move(now));
  // Those that are long gone make room for those that are there.
  for (size_t c = now.cards.size(); c-- > 0;) {
    if (now.cards.size() <= devmgr::VgpuRequest::kCardsMax) break;
    const CardUse* use = cluster_->UseOf(now.cards[c].uuid);
    if (now.cards[c].health == devmgr::Health::kMissing && (use == nullptr || use->vgpus == 0)) {
      node_of_.erase(now.cards[c].uuid);
      now.cards.erase(now.cards.begin() + static_cast<std::ptrdiff_t>(c));
    }
  }
  auto events = devmgr::Differences(before, now);
  Known& known = nodes_[node];
  known.cards = std::move(now.cards);
  if (auto told = Tell(node); !told) {
    if (before.cards.empty()) {
      nodes_.erase(node);
    } else {
      known.cards = std::move(before.cards);
    }
    return tl::unexpected(told.error());
  }
  for (const Card& card : known.cards) node_of_[card.uuid] = node;
  return events;
}

Result<void> Vgpus::AddCard(const std::string& node, const Card& card) {
  if (node_of_.count(card.uuid) != 0) return {};
  std::vector<Card> cards = CardsOf(node);
  if (cards.size() >= devmgr::VgpuRequest::kCardsMax) {
    return Fail(ErrorCode::kExhausted, fmt::format("a node has at most {} GPUs; {} is not managed",
                                                   devmgr::VgpuRequest::kCardsMax, card.uuid));
  }
  cards.push_back(card);
  auto set = SetCards(node, std::move(cards));
  if (!set) return tl::unexpected(set.error());
  return {};
}

void Vgpus::SetReachable(const std::string& node, bool reachable) {
  auto it = nodes_.find(node);
  if (it == nodes_.end() || it->second.reachable == reachable) return;
  it->second.reachable = reachable;
  BATON_CHECK(Tell(node).has_value());
}

void Vgpus::SetCordoned(const std::set<std::string>& cards) {
  cordoned_ = cards;
  for (const auto& [node, known] : nodes_) BATON_CHECK(Tell(node).has_value());
}

const Card* Vgpus::CardOf(std::string_view uuid) const { return cluster_->FindCard(uuid); }

const std::vector<Card>& Vgpus::CardsOf(const std::string& node) const {
  static const std::vector<Card> kNone;
  auto it = nodes_.find(node);
  return it == nodes_.end() ? kNone : it->second.cards;
}

std::vector<std::string> Vgpus::PodsOn(std::string_view uuid) const {
  std::vector<std::string> names;
  const auto it = node_of_.find(std::string(uuid));
  if (it == node_of_.end()) return names;
  for (const devmgr::PlacedPod* pod : cluster_->PodsOn(NameOf(it->second))) {
    const auto& vgpus = pod->placement.vgpus;
    if (std::any_of(vgpus.begin(), vgpus.end(), [&](const auto& v) { return v.card == uuid; })) {
      names.push_back(pod->request.name);
    }
  }
  return names;
}

// ", with a 60 %, b 10 %"; empty: nobody.
std::string Vgpus::SharesOn(std::string_view uuid) const {
  std::string shares;
  for (const std::string& name : PodsOn(uuid)) {
    if (shares.size() > kSharesMax) return shares + ", ...";
    const policy::Share booked = cluster_->Find(name)->request.containers[0].vgpus[0].share;
    shares += fmt::format("{}{} {}", shares.empty() ? ", with " : ", ", name,
                          InPercent(Meant(booked, overcommit_)));
  }
  return shares;
}

// --------------------------------------------------------------------------------------- placing

Result<PodRequest> Vgpus::RequestOf(const Pod& pod, uint32_t count) const {
  const auto invalid = [&](const std::string& why) { return Fail(ErrorCode::kInvalid, why); };
  if (count == 0 || count > devmgr::VgpuRequest::kCardsMax) {
    return invalid(fmt::format("a pod has 1 to {} GPUs", devmgr::VgpuRequest::kCardsMax));
  }
  if (pod.wishes.mode == kMps && count > 1) {
    return invalid(
        "in mode mps a pod has one GPU: each card has a control daemon of its own, and a process "
        "has one");
  }
  const policy::Share booked = Booked(pod.share.request, overcommit_);
  if (booked > policy::kWhole) {
    return Fail(ErrorCode::kExhausted,
                fmt::format("{} of a GPU is asked for, and scheduler.overcommit allows {}",
                            InPercent(pod.share.request), InPercent(overcommit_)));
  }
  PodRequest request;
  request.name = pod.name;
  request.team = pod.team;
  request.priority = pod.share.priority == policy::Priority::kHigh ? 1 : 0;
  request.mode = pod.wishes.mode;
  request.models = pod.wishes.models;
  request.not_models = pod.wishes.not_models;
  request.uuids = pod.wishes.gpus;
  request.affinity = pod.wishes.affinity;
  request.anti_affinity = pod.wishes.anti_affinity;
  request.exclusion = pod.wishes.exclusion;
  devmgr::VgpuRequest vgpu;
  vgpu.share = booked;
  vgpu.count = count;
  if (pod.memory_cap != 0) {
    vgpu.memory_mib = MibOf(pod.memory_cap);
  } else {
    vgpu.memory_part = pod.memory_part;
  }
  request.containers = {{"pod", {vgpu}}};
  if (auto valid = devmgr::Validate(request); !valid) return tl::unexpected(valid.error());
  return request;
}

std::vector<std::string> Vgpus::ModesFor(const Pod& pod) const {
  if (!pod.wishes.mode.empty()) return {pod.wishes.mode};
  std::vector<std::string> modes = {std::string(kTimeSlice)};
  const auto& here = CardsOf("");
  if (std::any_of(here.begin(), here.end(), [](const Card& card) { return card.mig_enabled; })) {
    modes.emplace_back(kMig);
  }
  return modes;
}

Result<std::string> Vgpus::Ground(const std::string& node, const std::string& mode) const {
  // Instances and MPS's daemons are made by the batond that is on the node itself.
  const bool only_here = mode == kMig || mode == kMps;
  if (only_here && ((node != "*" && !node.empty()) || nodes_.count("") == 0)) {
    return Fail(
        ErrorCode::kNotFound,
        fmt::format("mode {} needs a batond on the node itself, not a baton-frontend", mode));
  }
  if (only_here) return here_;
  if (node == "*") return node;
  return NameOf(node);
}

Result<Placement> Vgpus::Decide(PodRequest& request, const Pod& pod,
                                const std::string& node) const {
  size_t most = 0;
  for (const auto& [name, known] : nodes_) {
    if (node == "*" || name == node) most = std::max(most, known.cards.size());
  }
  const uint32_t count = request.containers[0].vgpus[0].count;
  if (most == 0) {
    return Fail(ErrorCode::kNotFound,
                "there is no GPU here; check the driver, or list GPUs as [[gpu]] in the "
                "configuration");
  }
  if (most < count) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("{} GPUs are asked for, {} has {}", count,
                            node == "*" ? "the largest node" : "this node", most));
  }
  std::optional<Error> error;
  for (const std::string& mode : ModesFor(pod)) {
    request.mode = mode;
    const auto ground = Ground(node, mode);
    if (!ground) {
      if (!error) error = ground.error();
      continue;
    }
    auto placed = *ground == "*" ? cluster_->Decide(request) : cluster_->DecideOn(*ground, request);
    if (placed) {
      for (const devmgr::Vgpu& vgpu : placed->vgpus) {
        if (pod.memory_part != 0 && CardOf(vgpu.card)->memory_mib == kUnknownMemoryMib) {
          return Fail(ErrorCode::kInvalid,
                      fmt::format("how much memory {} has is not known here; say the cap in bytes, "
                                  "or its memory in [[gpu]]",
                                  vgpu.card));
        }
      }
      // Users count their own GPUs in the order in which they named them.
      const auto& named = pod.wishes.gpus;
      if (named.size() == placed->vgpus.size()) {
        std::sort(placed->vgpus.begin(), placed->vgpus.end(), [&](const auto& a, const auto& b) {
          return std::find(named.begin(), named.end(), a.card) <
                 std::find(named.begin(), named.end(), b.card);
        });
      }
      return placed;
    }
    // That there is no room now says more than that there is no such card.
    if (!error ||
        (error->code == ErrorCode::kNotFound && placed.error().code == ErrorCode::kExhausted)) {
      error = placed.error();
    }
  }
  return tl::unexpected(*error);
}

std::vector<NodeRefusal> Vgpus::WhyNot(PodRequest request, const Pod& pod,
                                       const std::string& node) const {
  std::vector<NodeRefusal> all;
  bool first = true;
  for (const std::string& mode : ModesFor(pod)) {
    request.mode = mode;
    std::vector<NodeRefusal> refusals = cluster_->Explain(request);
    if (first) {
      all = std::move(refusals);
      first = false;
      continue;
    }
    // A node that can take it in one of the modes does not refuse it.
    std::vector<NodeRefusal> both;
    for (NodeRefusal& refusal : all) {
      const auto other = std::find_if(refusals.begin(), refusals.end(),
                                      [&](const auto& r) { return r.node == refusal.node; });
      if (other == refusals.end()) continue;
      for (size_t c = 0; c < refusal.cards.size() && c < other->cards.size(); ++c) {
        const Card* card = CardOf(refusal.cards[c].uuid);
        if (card != nullptr && card->mig_enabled) refusal.cards[c] = other->cards[c];
      }
      both.push_back(std::move(refusal));
    }
    all = std::move(both);
  }
  if (node != "*") {
    std::erase_if(all, [&](const NodeRefusal& refusal) { return refusal.node != NameOf(node); });
  }
  for (NodeRefusal& refusal : all) {
    for (devmgr::CardRefusal& card : refusal.cards) {
      const auto held = held_.find(card.uuid);
      if (held != held_.end() && cordoned_.count(card.uuid) == 0 && card.why == "cordoned") {
        card.why = fmt::format("pod {} is on it and could not be booked there again",
                               held->second.begin()->second);
      }
    }
  }
  return all;
}

void Vgpus::Adopt(const Placement& placement, Pod& pod) {
  pod.gpus.clear();
  pod.vgpus.clear();
  for (const devmgr::Vgpu& vgpu : placement.vgpus) {
    pod.gpus.push_back(vgpu.card);
    pod.mode = vgpu.mode;
    pod.vgpus.push_back({vgpu.fit, "", 0, {}});
  }
}

Result<void> Vgpus::Place(Pod& pod, uint32_t count, const std::string& node) {
  auto request = RequestOf(pod, count);
  if (!request) return tl::unexpected(request.error());
  auto placement = Decide(*request, pod, node);
  if (!placement) {
    const Error& error = placement.error();
    if (error.code != ErrorCode::kExhausted) return tl::unexpected(error);
    // Of many nodes it is not worked out here: a create is not to hold up tokens.
    std::vector<NodeRefusal> refusals;
    if (node != "*" || nodes_.size() <= kReasonsMax) refusals = WhyNot(*request, pod, node);
    std::string why;
    size_t cards = 0;
    for (const NodeRefusal& refusal : refusals) {
      for (const devmgr::CardRefusal& card : refusal.cards) {
        if (!pod.wishes.gpus.empty() && !IsIn(pod.wishes.gpus, card.uuid)) continue;
        if (++cards > kReasonsMax) continue;
        why += fmt::format("{}{}: {}{}", why.empty() ? "" : "; ", card.uuid,
                           card.why.empty() ? "has room, but one is not enough" : card.why,
                           card.why.empty() ? "" : SharesOn(card.uuid));
      }
    }
    if (cards == 0 || cards > kReasonsMax) why = error.message;
    return Fail(ErrorCode::kExhausted,
                fmt::format("there is no room for {} ({}); ask for less, remove a pod, or see "
                            "'baton explain placement'",
                            pod.name, why));
  }
  if (auto booked = cluster_->Commit(*request, *placement); !booked) return booked;
  cluster_->Learn(*request);
  Adopt(*placement, pod);
  return {};
}

Result<Placement> Vgpus::PlacementOf(const Pod& pod) const {
  Placement placement;
  for (size_t i = 0; i < pod.gpus.size(); ++i) {
    const auto on = node_of_.find(pod.gpus[i]);
    if (on == node_of_.end()) {
      return Fail(ErrorCode::kNotFound, fmt::format("its card {} is not there", pod.gpus[i]));
    }
    const std::string node = NameOf(on->second);
    if (!placement.node.empty() && placement.node != node) {
      return Fail(ErrorCode::kInvalid, "its cards are on different nodes");
    }
    placement.node = node;
    placement.vgpus.push_back({0, 0, pod.gpus[i], pod.mode, pod.vgpus[i].fit, pod.vgpus[i].device});
  }
  return placement;
}

bool Vgpus::Book(Pod& pod) {
  if (pod.throw_away || cluster_->Find(pod.name) != nullptr) return true;
  const auto book = [&]() -> Result<void> {
    auto request = RequestOf(pod, static_cast<uint32_t>(pod.gpus.size()));
    if (!request) return tl::unexpected(request.error());
    request->mode = pod.mode;
    const auto placement = PlacementOf(pod);
    if (!placement) return tl::unexpected(placement.error());
    auto booked = cluster_->Commit(*request, *placement);
    if (booked) cluster_->Learn(*request);
    return booked;
  };
  const auto booked = book();
  if (booked) {
    const auto& vgpus = cluster_->Find(pod.name)->placement.vgpus;
    for (size_t i = 0; i < vgpus.size(); ++i) pod.vgpus[i].fit = vgpus[i].fit;
  }
  SetUnbooked(pod, booked ? "" : booked.error().message);
  return booked.has_value();
}

void Vgpus::SetUnbooked(const Pod& pod, const std::string& why) {
  if (!why.empty()) {
    if (!unbooked_.insert_or_assign(pod.id, why).second) return;
    for (const std::string& gpu : pod.gpus) held_[gpu][pod.id] = pod.name;
  } else {
    if (unbooked_.erase(pod.id) == 0) return;
    for (const std::string& gpu : pod.gpus) {
      held_[gpu].erase(pod.id);
      if (held_[gpu].empty()) held_.erase(gpu);
    }
  }
  TellNodesOf(pod.gpus);
}

void Vgpus::BookAgain(const std::function<Pod*(PodId)>& find) {
  std::vector<PodId> ids;
  for (const auto& [id, why] : unbooked_) ids.push_back(id);
  for (const PodId id : ids) {
    if (Pod* pod = find(id)) Book(*pod);
  }
}

void Vgpus::Remove(const Pod& pod) {
  if (pod.throw_away) return;
  if (unbooked_.count(pod.id) != 0) return SetUnbooked(pod, "");
  static_cast<void>(cluster_->Delete(pod.name));
}

// What was there has room again; unless the card is not what it was, and then it is unbooked.
void Vgpus::Restore(Pod& pod, const devmgr::PlacedPod& before) {
  if (!cluster_->Commit(before.request, before.placement)) Book(pod);
}

Result<void> Vgpus::Resize(Pod& pod, const policy::ShareSpec& share, uint64_t memory_cap,
                           policy::Share memory_part) {
  Pod changed = pod;
  changed.share = share;
  changed.memory_cap = memory_cap;
  changed.memory_part = memory_part;
  const devmgr::PlacedPod* placed = cluster_->Find(pod.name);
  if (pod.throw_away || placed == nullptr) {
    pod.share = share;
    pod.memory_cap = memory_cap;
    pod.memory_part = memory_part;
    return {};
  }
  auto request = RequestOf(changed, static_cast<uint32_t>(pod.gpus.size()));
  if (!request) return tl::unexpected(request.error());
  request->mode = pod.mode;
  const devmgr::PlacedPod before = *placed;
  BATON_CHECK(cluster_->Delete(pod.name).has_value());
  if (auto booked = cluster_->Commit(*request, before.placement); !booked) {
    Restore(pod, before);
    return Fail(booked.error().code,
                booked.error().message + "; ask for less, or move it: 'baton vgpu move'");
  }
  pod.share = share;
  pod.memory_cap = memory_cap;
  pod.memory_part = memory_part;
  const auto& vgpus = cluster_->Find(pod.name)->placement.vgpus;
  for (size_t i = 0; i < vgpus.size(); ++i) pod.vgpus[i].fit = vgpus[i].fit;
  return {};
}

Result<void> Vgpus::Move(Pod& pod, const std::vector<std::string>& gpus) {
  Pod moved = pod;
  moved.wishes.gpus = gpus;
  // As it is divided now, unless it may be otherwise.
  const devmgr::PlacedPod* placed = cluster_->Find(pod.name);
  std::optional<devmgr::PlacedPod> before;
  if (placed != nullptr) {
    before = *placed;
    BATON_CHECK(cluster_->Delete(pod.name).has_value());
  }
  if (auto there = Place(moved, static_cast<uint32_t>(gpus.size()), "*"); !there) {
    if (before) Restore(pod, *before);
    return there;
  }
  if (!before) Remove(pod);  // of those that are unbooked
  for (size_t i = 0; i < moved.vgpus.size() && i < pod.vgpus.size(); ++i) {
    PodVgpu& vgpu = moved.vgpus[i];
    vgpu.before = pod.vgpus[i].before;
    vgpu.memory_peak = pod.vgpus[i].memory_peak;
    if (!IsIn(vgpu.before, pod.gpus[i])) vgpu.before.push_back(pod.gpus[i]);
  }
  // It is each time one virtual GPU's: where it is now.
  for (PodVgpu& vgpu : moved.vgpus) {
    std::erase_if(vgpu.before, [&](const std::string& gpu) { return moved.Has(gpu); });
  }
  pod = std::move(moved);
  return {};
}

std::string Vgpus::WhyUnbooked(PodId pod) const {
  const auto it = unbooked_.find(pod);
  return it == unbooked_.end() ? "" : it->second;
}

devmgr::Environment Vgpus::EnvironmentOf(const Pod& pod) const {
  devmgr::Environment environment;
  const SharingMode* mode = modes_->Find(pod.mode);
  for (size_t i = 0; i < pod.gpus.size() && mode != nullptr; ++i) {
    Card unknown;
    unknown.uuid = pod.gpus[i];
    const Card* card = CardOf(pod.gpus[i]);
    for (auto& [key, value] : mode->EnvironmentOf(card != nullptr ? *card : unknown,
                                                  pod.vgpus[i].fit, pod.vgpus[i].device)) {
      const auto same = std::find_if(environment.begin(), environment.end(),
                                     [&key = key](const auto& pair) { return pair.first == key; });
      if (same == environment.end()) {
        environment.emplace_back(key, value);
      } else {
        same->second += "," + value;
      }
    }
  }
  return environment;
}

devmgr::DeviceDriver::Vgpu Vgpus::ForDriver(const Pod& pod, size_t index) const {
  return {fmt::format("{} {}", pod.name, index), pod.gpus[index], pod.vgpus[index].fit,
          pod.vgpus[index].device};
}

// --------------------------------------------------------------------------------------- what if

Result<Vgpus::Explanation> Vgpus::Explain(const Pod& pod, uint32_t count,
                                          const std::string& node) const {
  auto request = RequestOf(pod, count);
  if (!request) return tl::unexpected(request.error());
  Explanation explanation;
  const auto where = Decide(*request, pod, node);
  if (where) {
    explanation.where = *where;
  } else if (where.error().code == ErrorCode::kInvalid ||
             where.error().code == ErrorCode::kExists) {
    return tl::unexpected(where.error());
  } else {
    explanation.error = where.error().message;
  }
  explanation.nodes = WhyNot(*request, pod, node);
  return explanation;
}

Result<Vgpus::Defragmentation> Vgpus::Defrag(const Pod& pod, uint32_t count,
                                             const std::string& node, uint32_t moves) const {
  auto request = RequestOf(pod, count);
  if (!request) return tl::unexpected(request.error());
  // Checks what the search does not.
  auto where = Decide(*request, pod, node);
  if (!where && where.error().code != ErrorCode::kExhausted) return tl::unexpected(where.error());
  // Only what is copied is copied here; the rest, which takes ten times as long, elsewhere.
  struct Copied {
    devmgr::Node node;
    std::vector<devmgr::PlacedPod> pods;
  };
  struct Work {
    std::shared_ptr<const Modes> modes;
    devmgr::PlacementPolicy policy;
    std::vector<Copied> nodes;
    std::vector<PodRequest> requests;
    uint32_t moves;
  };
  auto work = std::make_shared<Work>(Work{modes_, cluster_->policy(), {}, {}, moves});
  for (const auto& [name, known] : nodes_) {
    if (node != "*" && name != node) continue;
    Copied& copied = work->nodes.emplace_back();
    copied.node = *cluster_->FindNode(NameOf(name));
    for (const devmgr::PlacedPod* placed : cluster_->PodsOn(copied.node.name)) {
      copied.pods.push_back(*placed);
    }
  }
  for (const std::string& mode : ModesFor(pod)) {
    if (!Ground(node, mode)) continue;
    request->mode = mode;
    work->requests.push_back(*request);
  }
  return [work]() -> Result<devmgr::DefragPlan> {
    devmgr::Cluster copy(work->modes->all, work->policy);
    for (const Copied& copied : work->nodes) {
      std::vector<const devmgr::PlacedPod*> pods;
      for (const devmgr::PlacedPod& pod : copied.pods) pods.push_back(&pod);
      static_cast<void>(devmgr::CopyNode(copied.node, pods, &copy));
    }
    std::optional<Error> error;
    for (const PodRequest& request : work->requests) {
      devmgr::DefragOptions options;
      options.moves = work->moves;
      // Whoever named its cards stays on them.
      auto plan = devmgr::Defrag(
          copy, work->modes->all, request,
          [](const devmgr::PlacedPod& pod) { return pod.request.uuids.empty(); }, options);
      if (plan) return plan;
      if (!error || plan.error().code == ErrorCode::kExhausted) error = plan.error();
    }
    return tl::unexpected(error ? *error
                                : Error{ErrorCode::kNotFound, "there is no card for it here"});
  };
}

}  // namespace baton::backend
