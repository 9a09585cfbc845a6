#include "k8s/device_plugin/device_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "devmgr/modes/mps_mode.h"

namespace baton::k8s {
namespace {

constexpr size_t kIdMax = 63;  // of the kubelet
constexpr size_t kNumberMax = 8;
constexpr uint32_t kPercents = 100;

void AddDevices(const PluginCard& card, uint32_t count, std::vector<PluginDevice>& devices) {
  constexpr size_t kUuidMax = kIdMax - 1 - kNumberMax;
  const std::string_view uuid = std::string_view(card.uuid).substr(
      card.uuid.size() > kUuidMax ? card.uuid.size() - kUuidMax : 0);
  for (uint32_t i = 0; i < count; ++i) {
    devices.push_back({fmt::format("{}/{}", uuid, i), card.healthy});
  }
}

// "GPU-a/7" before "GPU-a/17".
bool Before(const std::string& a, const std::string& b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

std::vector<PluginDevice> InUnitsOf(const std::vector<PluginCard>& cards, uint32_t unit_mib) {
  std::vector<PluginDevice> devices;
  for (const PluginCard& card : cards) {
    AddDevices(card, card.memory_mib / unit_mib + (card.memory_mib % unit_mib != 0 ? 1 : 0),
               devices);
  }
  return devices;
}

// Without making the list, which may be very long.
bool TooLong(const std::vector<PluginCard>& cards, uint32_t unit_mib) {
  size_t bytes = 0;
  for (const PluginCard& card : cards) {
    const size_t units = card.memory_mib / unit_mib + 1;
    bytes += units * (std::min(card.uuid.size() + 1 + kNumberMax, kIdMax) + 15);
  }
  return bytes > kListBytesMax;
}

}  // namespace

bool HasTurns(const devmgr::Card& card) {
  return !card.mig_enabled && card.vendor == devmgr::kNvidia;
}

std::vector<PluginCard> PluginCardsOf(const devmgr::Node& node) {
  std::vector<PluginCard> cards;
  for (const devmgr::Card& card : node.cards) {
    if (card.vendor != devmgr::kNvidia) continue;
    cards.push_back(
        {card.uuid, card.memory_mib, card.health == devmgr::Health::kHealthy, card.mig_enabled});
  }
  return cards;
}

std::vector<PluginDevice> ShareDevices(const std::vector<PluginCard>& cards) {
  std::vector<PluginDevice> devices;
  for (const PluginCard& card : cards) AddDevices(card, kPercents, devices);
  return devices;
}

std::vector<PluginDevice> WholeDevices(const std::vector<PluginCard>& cards) {
  std::vector<PluginDevice> devices;
  for (const PluginCard& card : cards) {
    if (!card.divided) AddDevices(card, 1, devices);
  }
  return devices;
}

std::vector<PluginDevice> MpsDevices(const std::vector<PluginCard>& cards) {
  std::vector<PluginDevice> devices;
  for (const PluginCard& card : cards) {
    if (!card.divided) AddDevices(card, devmgr::MpsMode::kVgpusMax, devices);
  }
  return devices;
}

Result<std::vector<PluginDevice>> MemoryDevices(const std::vector<PluginCard>& cards,
                                                uint32_t unit_mib) {
  if (unit_mib == 0) return Fail(ErrorCode::kInvalid, "--memory-unit is at least 1 MiB");
  if (!TooLong(cards, unit_mib)) return InUnitsOf(cards, unit_mib);
  uint64_t fits = unit_mib;
  while (TooLong(cards, static_cast<uint32_t>(fits)) && fits < (uint64_t{1} << 31)) fits *= 2;
  return Fail(ErrorCode::kInvalid,
              fmt::format("with --memory-unit {} the list of devices is longer than the kubelet "
                          "takes; {} would do, here, of the webhook and of the binder alike",
                          unit_mib, fits));
}

size_t ListBytes(const std::vector<PluginDevice>& devices) {
  size_t bytes = 0;
  // Tag and length of the device, of its id and of its health, "Unhealthy".
  for (const PluginDevice& device : devices) bytes += device.id.size() + 6 + 9;
  return bytes;
}

std::string_view CardOfDevice(std::string_view id) { return id.substr(0, id.rfind('/')); }

std::vector<std::string> PreferredDevices(const std::vector<std::string>& available,
                                          const std::vector<std::string>& must, size_t size) {
  std::vector<std::string> taken;
  std::set<std::string_view> seen;
  for (const std::string& id : must) {
    if (taken.size() < size && seen.insert(id).second) taken.push_back(id);
  }
  std::map<std::string_view, std::vector<std::string>> left;  // by GPU
  for (const std::string& id : available) {
    if (seen.insert(id).second) left[CardOfDevice(id)].push_back(id);
  }
  const auto take = [&](std::vector<std::string>& ids) {
    std::sort(ids.begin(), ids.end(), Before);
    for (std::string& id : ids) {
      if (taken.size() < size) taken.push_back(std::move(id));
    }
    ids.clear();
  };
  for (const std::string& id : must) {
    if (auto it = left.find(CardOfDevice(id)); it != left.end()) take(it->second);
  }
  while (taken.size() < size) {
    const size_t need = size - taken.size();
    std::vector<std::string>* best = nullptr;
    for (auto& [card, ids] : left) {
      if (ids.empty()) continue;
      const bool enough = ids.size() >= need;
      const bool best_enough = best != nullptr && best->size() >= need;
      if (best == nullptr || (enough && !best_enough) ||
          (enough == best_enough &&
           (enough ? ids.size() < best->size() : ids.size() > best->size()))) {
        best = &ids;
      }
    }
    if (best == nullptr) break;
    take(*best);
  }
  return taken;
}

}  // namespace baton::k8s
