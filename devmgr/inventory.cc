#include "devmgr/inventory.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace baton::devmgr {
namespace {

const Card* Find(const Node& node, const std::string& uuid) {
  for (const Card& card : node.cards) {
    if (card.uuid == uuid) return &card;
  }
  return nullptr;
}

constexpr size_t kUuidMax = 64;
constexpr size_t kVendorMax = 32;
constexpr size_t kVariableMax = 256;  // bytes of its name, and of its value
constexpr std::string_view kSmall = "abcdefghijklmnopqrstuvwxyz0123456789-";
constexpr std::string_view kVariable =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";

// Of these characters alone, and some.
bool IsWord(std::string_view text, std::string_view characters, size_t max) {
  return !text.empty() && text.size() <= max &&
         text.find_first_not_of(characters) == std::string_view::npos;
}

}  // namespace

Result<void> Check(const GpuInfo& gpu) {
  const auto wrong = [](const char* why) { return Fail(ErrorCode::kInvalid, why); };
  if (gpu.uuid.empty() || gpu.uuid.size() > kUuidMax ||
      gpu.uuid.find_first_of("/ \n") != std::string::npos) {
    return wrong(
        "a [[gpu]] needs uuid = \"GPU-...\" of at most 64 characters, without spaces and slashes");
  }
  if (!IsWord(gpu.vendor, kSmall, kVendorMax)) {
    return wrong("vendor is a word of small letters, such as \"amd\" or \"intel\"");
  }
  if (gpu.by_token() && !gpu.environment.empty()) {
    return wrong("environment is for GPUs of other vendors; set vendor, or leave it out");
  }
  if (!gpu.by_token() && (gpu.name.empty() || gpu.environment.empty())) {
    return wrong(
        "a [[gpu]] of another vendor needs a name, and an environment by which programs find it, "
        "such as environment = {ROCR_VISIBLE_DEVICES = \"0\"}");
  }
  const bool good =
      std::all_of(gpu.environment.begin(), gpu.environment.end(), [](const auto& variable) {
        return IsWord(variable.first, kVariable, kVariableMax) &&
               variable.second.size() <= kVariableMax &&
               variable.second.find('\0') == std::string::npos;
      });
  if (!good) {
    return wrong("an environment has names of variables, and texts of at most 256 characters");
  }
  return {};
}

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
