#include "devmgr/inventory.h"

#include <algorithm>
#include <utility>

namespace baton::devmgr {
namespace {

const Card* Find(const Node& node, const std::string& uuid) {
  for (const Card& card : node.cards) {
    if (card.uuid == uuid) return &card;
  }
  return nullptr;
}

}  // namespace

std::vector<InventoryEvent> Differences(const Node& before, const Node& after) {
  using Kind = InventoryEvent::Kind;
  std::vector<InventoryEvent> events;
  const auto add = [&](Kind kind, const Card& card, std::string why) {
    events.push_back({kind, after.name, card.uuid, std::move(why)});
  };
  for (const Card& now : after.cards) {
    const Card* was = Find(before, now.uuid);
    if (was == nullptr || (was->health == Health::kMissing && now.health != Health::kMissing)) {
      add(Kind::kAppeared, now, now.model);
      if (now.health == Health::kFailed) add(Kind::kFailed, now, now.why);
      if (now.cordoned && (was == nullptr || !was->cordoned)) add(Kind::kCordoned, now, "");
      continue;
    }
    if (now.health != was->health) {
      switch (now.health) {
        case Health::kHealthy:
          add(Kind::kRecovered, now, "");
          break;
        case Health::kFailed:
          add(Kind::kFailed, now, now.why);
          break;
        case Health::kMissing:
          add(Kind::kVanished, now, now.why);
          break;
      }
    }
    if (now.cordoned != was->cordoned) {
      add(now.cordoned ? Kind::kCordoned : Kind::kUncordoned, now, "");
    }
    if (now.mig_enabled != was->mig_enabled || now.instances != was->instances) {
      add(Kind::kReshaped, now,
          now.mig_enabled ? std::to_string(now.instances.size()) + " MIG instances" : "MIG is off");
    }
    if (now.model != was->model || now.vendor != was->vendor || now.memory_mib != was->memory_mib ||
        now.numa != was->numa || now.island != was->island || now.pcie != was->pcie ||
        now.bus != was->bus || now.mig_capable != was->mig_capable) {
      add(Kind::kChanged, now, "");
    }
  }
  for (const Card& was : before.cards) {
    if (was.health != Health::kMissing && Find(after, was.uuid) == nullptr) {
      add(Kind::kVanished, was, "");
    }
  }
  return events;
}

Node Merged(const Node& before, Node now) {
  for (Card& card : now.cards) {
    if (const Card* was = Find(before, card.uuid)) card.cordoned |= was->cordoned;
  }
  now.cordoned |= before.cordoned;
  for (const Card& was : before.cards) {
    if (Find(now, was.uuid) != nullptr) continue;
    now.cards.push_back(was);
    now.cards.back().health = Health::kMissing;
    if (was.health != Health::kMissing) now.cards.back().why = "NVML does not list it any more";
  }
  return now;
}

}  // namespace baton::devmgr
