#include "backend/cards.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "devmgr/inventory.h"

namespace baton::backend {

using devmgr::Card;
using devmgr::CardUse;

uint32_t MibOf(uint64_t bytes) {
  const uint64_t mib = (bytes >> 20) + ((bytes & 0xfffff) != 0 ? 1 : 0);
  return static_cast<uint32_t>(std::min<uint64_t>(mib, UINT32_MAX));
}

// The cluster's picture of the node: what is there, and what must not be used of it.
Result<void> Cards::Tell(const std::string& node) {
  const Known& known = nodes_.at(node);
  devmgr::Node told;
  told.name = NameOf(node);
  told.cards = known.cards;
  for (Card& card : told.cards) {
    card.cordoned = cordoned_.count(card.uuid) != 0 || held_.count(card.uuid) != 0;
    const auto taken = taken_.find(card.uuid);
    card.taken_mib = taken != taken_.end() ? taken->second : 0;
    card.reserve_mib = reserve_mib_;
    if (!known.reachable && card.health == devmgr::Health::kHealthy) {
      card.health = devmgr::Health::kMissing;
      card.why = "the link to its node is cut";
    }
  }
  return cluster_.SetNode(told);
}

void Cards::TellNodesOf(const std::vector<std::string>& gpus) {
  std::set<std::string> nodes;
  for (const std::string& gpu : gpus) {
    if (const std::string* node = NodeOf(gpu)) nodes.insert(*node);
  }
  // The same GPUs as before: this cannot fail.
  for (const std::string& node : nodes) BATON_CHECK(Tell(node).has_value());
}

Result<std::vector<devmgr::InventoryEvent>> Cards::Set(const std::string& node,
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
    const CardUse* use = cluster_.UseOf(now.cards[c].uuid);
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

Result<void> Cards::Add(const std::string& node, const Card& card) {
  if (node_of_.count(card.uuid) != 0) return {};
  std::vector<Card> cards = Of(node);
  if (cards.size() >= devmgr::VgpuRequest::kCardsMax) {
    return Fail(ErrorCode::kExhausted, fmt::format("a node has at most {} GPUs; {} is not managed",
                                                   devmgr::VgpuRequest::kCardsMax, card.uuid));
  }
  cards.push_back(card);
  auto set = Set(node, std::move(cards));
  if (!set) return tl::unexpected(set.error());
  return {};
}

void Cards::SetReachable(const std::string& node, bool reachable) {
  auto it = nodes_.find(node);
  if (it == nodes_.end() || it->second.reachable == reachable) return;
  it->second.reachable = reachable;
  BATON_CHECK(Tell(node).has_value());
}

void Cards::SetCordoned(const std::set<std::string>& cards) {
  cordoned_ = cards;
  for (const auto& [node, known] : nodes_) BATON_CHECK(Tell(node).has_value());
}

void Cards::SetTaken(std::map<std::string, uint32_t> taken) {
  if (taken == taken_) return;
  taken_ = std::move(taken);
  for (const auto& [node, known] : nodes_) BATON_CHECK(Tell(node).has_value());
}

// The cluster is told of the first pod on a GPU and of the last one: of thousands it takes long.
void Cards::Hold(const Pod& pod) {
  std::vector<std::string> first;
  for (const std::string& gpu : pod.gpus) {
    auto& held = held_[gpu];
    if (held.empty()) first.push_back(gpu);
    held[pod.id] = pod.name;
  }
  TellNodesOf(first);
}

void Cards::Release(const Pod& pod) {
  std::vector<std::string> last;
  for (const std::string& gpu : pod.gpus) {
    held_[gpu].erase(pod.id);
    if (!held_[gpu].empty()) continue;
    held_.erase(gpu);
    last.push_back(gpu);
  }
  TellNodesOf(last);
}

const std::vector<Card>& Cards::Of(const std::string& node) const {
  static const std::vector<Card> kNone;
  auto it = nodes_.find(node);
  return it == nodes_.end() ? kNone : it->second.cards;
}

std::vector<std::string> Cards::Nodes() const {
  std::vector<std::string> names;
  for (const auto& [name, known] : nodes_) names.push_back(name);
  return names;
}

const std::string* Cards::NodeOf(std::string_view uuid) const {
  const auto it = node_of_.find(uuid);
  return it == node_of_.end() ? nullptr : &it->second;
}

const std::string* Cards::HeldFor(const std::string& uuid) const {
  const auto it = held_.find(uuid);
  return it == held_.end() || cordoned_.count(uuid) != 0 ? nullptr : &it->second.begin()->second;
}

}  // namespace baton::backend
