#include "k8s/types/gpu_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/utf8.h"
#include "k8s/types/annotations.h"
#include "k8s/types/quantity.h"
#include "k8s/types/read.h"
#include "net/public_key.h"

namespace baton::k8s {

namespace {

constexpr uint32_t kCardMibMax = 1u << 24;
constexpr int64_t kBeyondUnit = 10'000;  // a percent, in millionths
constexpr int64_t kBeyondMax = devmgr::Card::kBeyondMax / kBeyondUnit;
constexpr size_t kInstancesMax = 8;     // of a GPU
constexpr int64_t kPlaceMax = 1 << 16;  // of numa, island, pcie
constexpr std::array<std::pair<devmgr::Health, std::string_view>, 3> kHealths{
    {{devmgr::Health::kHealthy, "Healthy"},
     {devmgr::Health::kFailed, "Failed"},
     {devmgr::Health::kMissing, "Missing"}}};

// One GPU's fields, the first error among them kept.
struct CardReader {
  const Json& card;
  const std::string& where;
  Result<void> result;

  void Wrong(std::string_view key, std::string_view sentence) {
    if (result) result = Refuse(fmt::format("{}.{}", where, key), sentence);
  }
  std::string Text(std::string_view key, size_t bytes, bool needed, std::string missing = {}) {
    const Json* value = Find(card, key);
    if (value == nullptr && !needed) return missing;
    if (value == nullptr || !value->is_string()) {
      Wrong(key, "must be a string");
      return missing;
    }
    const auto& text = value->get_ref<const std::string&>();
    if (text.size() > bytes || (needed && text.empty()) || !IsUtf8(text)) {
      Wrong(key, fmt::format("must be a string of at most {} bytes", bytes));
      return missing;
    }
    return text;
  }
  int64_t Number(std::string_view key, int64_t min, int64_t max, std::optional<int64_t> missing) {
    const Json* value = Find(card, key);
    if (value == nullptr && missing) return *missing;
    if (value == nullptr || !value->is_number_integer() ||
        (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(max)) ||
        value->get<int64_t>() < min || value->get<int64_t>() > max) {
      Wrong(key, fmt::format("must be a whole number from {} to {}", min, max));
      return min;
    }
    return value->get<int64_t>();
  }
  bool Flag(std::string_view key) {
    const Json* value = Find(card, key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) Wrong(key, "must be true or false");
    return value->is_boolean() && value->get<bool>();
  }
};

int64_t WholeAt(const Json* quantities, std::string_view resource) {
  if (quantities == nullptr || !quantities->is_object()) return 0;
  const auto found = quantities->find(std::string(resource));
  return found == quantities->end() ? 0 : WholeQuantity(*found).value_or(0);
}

}  // namespace

Json GpuNodeOf(const devmgr::Node& node, const GpuNodeUse& use) {
  Json cards = Json::array();
  for (size_t i = 0; i < node.cards.size(); ++i) {
    const devmgr::Card& card = node.cards[i];
    const auto health = std::find_if(kHealths.begin(), kHealths.end(),
                                     [&](const auto& h) { return h.first == card.health; });
    cards.push_back({{"uuid", ToUtf8(card.uuid)},
                     {"index", i},
                     {"vendor", ToUtf8(card.vendor)},
                     {"model", ToUtf8(card.model)},
                     {"memoryMiB", card.memory_mib},
                     {"numa", card.numa},
                     {"island", card.island},
                     {"pcie", card.pcie},
                     {"bus", ToUtf8(card.bus)},
                     {"health", health->second},
                     {"why", ToUtf8(card.why)},
                     {"cordoned", card.cordoned},
                     {"migCapable", card.mig_capable},
                     {"migEnabled", card.mig_enabled}});
    if (card.beyond / kBeyondUnit != 0) {
      cards.back()["useBeyondRequests"] = card.beyond / kBeyondUnit;
    }
    for (const devmgr::MigInstance& instance : card.instances) {
      cards.back()["instances"].push_back({{"profile", ToUtf8(instance.profile)},
                                           {"start", instance.start},
                                           {"slices", instance.slices}});
    }
  }
  std::map<std::string, size_t> models;
  uint64_t memory_mib = 0;
  policy::ShareSum used, free;
  for (const auto& [uuid, share] : use.shares) used += share;
  for (const devmgr::Card& card : node.cards) {
    ++models[ToUtf8(card.model)];
    memory_mib += card.memory_mib;
    if (card.health != devmgr::Health::kHealthy || card.cordoned) continue;
    const policy::ShareSum whole(policy::kWhole);
    const auto taken = use.shares.find(card.uuid);
    if (taken == use.shares.end()) {
      free += whole;
    } else if (taken->second < whole) {
      free += whole - taken->second;
    }
  }
  std::string text;
  for (const auto& [model, count] : models) {
    text += fmt::format("{}{}x {}", text.empty() ? "" : ", ", count, model);
  }
  constexpr size_t kModelsMax = 1'024;
  const auto percent = [](policy::ShareSum share) {
    return fmt::format("{:.10g}", static_cast<double>(share.millionths()) / 1e4);
  };
  Json status{{"cards", std::move(cards)},
              {"gpus", node.cards.size()},
              {"models", CutUtf8(text, kModelsMax)},
              {"memoryMiB", memory_mib},
              {"used", percent(used)},
              {"free", percent(free)},
              {"memoryUsedMiB", use.memory_mib}};
  return {{"apiVersion", resources::kGpuNodes.ApiVersion()},
          {"kind", resources::kGpuNodes.kind},
          {"metadata", {{"name", node.name}}},
          {"status", std::move(status)}};
}

void SetDevices(Json& gpu_node, const MadeDevices& devices) {
  for (const auto& [ticket, made] : devices) {
    gpu_node["status"]["devices"].push_back({{"ticket", ToUtf8(ticket)}, {"devices", made}});
  }
}

MadeDevices DevicesOn(const Json& gpu_node) {
  constexpr size_t kTextMax = 256;
  MadeDevices devices;
  for (const Json& entry : ListAt(gpu_node, "status/devices")) {
    const std::string ticket = TextAt(entry, "ticket");
    std::vector<std::string> made;
    for (const Json& device : ListAt(entry, "devices")) {
      if (device.is_string()) made.push_back(device.get<std::string>());
    }
    const bool good = std::all_of(made.begin(), made.end(), [](const std::string& device) {
      return !device.empty() && device.size() <= kTextMax &&
             std::all_of(device.begin(), device.end(),
                         [](char c) { return c > 0x20 && c < 0x7f && c != ','; });
    });
    if (good && !ticket.empty() && !made.empty()) devices[ticket] = std::move(made);
  }
  return devices;
}

void SetMountsHook(Json& gpu_node, bool mounts) {
  if (mounts) gpu_node["metadata"]["annotations"][PodKey(keys::kMountsHook)] = "true";
}

bool MountsHook(const Json& gpu_node) {
  const Json* annotations = Find(gpu_node, "metadata/annotations");
  return annotations != nullptr && annotations->is_object() &&
         annotations->value(PodKey(keys::kMountsHook), Json()) == "true";
}

void SetOwnerNode(Json& gpu_node, const std::string& node_uid) {
  if (node_uid.empty()) return;
  Json owner{{"apiVersion", resources::kNodes.ApiVersion()},
             {"kind", resources::kNodes.kind},
             {"name", TextAt(gpu_node, "metadata/name")},
             {"uid", node_uid}};
  gpu_node["metadata"]["ownerReferences"] = Json::array({std::move(owner)});
}

std::string PublicKeyOf(const Json& gpu_node) {
  const Json* annotations = Find(gpu_node, "metadata/annotations");
  if (annotations == nullptr || !annotations->is_object()) return "";
  const auto key = annotations->find(PodKey(keys::kPublicKey));
  if (key == annotations->end() || !key->is_string()) return "";
  const auto& text = key->get_ref<const std::string&>();
  return net::IsPublicKey(text) ? text : "";
}

Result<std::vector<devmgr::Card>> CardsOf(const Json& gpu_node) {
  const Json& list = ListAt(gpu_node, "status/cards");
  if (list.size() > kCountMax) {
    return Refuse("status.cards", fmt::format("{} GPUs; at most {}", list.size(), kCountMax));
  }
  std::vector<devmgr::Card> cards;
  std::vector<std::pair<int64_t, size_t>> order;
  std::set<std::string> uuids;
  for (const Json& entry : list) {
    const std::string where = fmt::format("status.cards[{}]", cards.size());
    CardReader read{entry, where, {}};
    devmgr::Card card;
    card.uuid = read.Text("uuid", 128, true);
    const bool plain = std::all_of(card.uuid.begin(), card.uuid.end(),
                                   [](char c) { return c > 0x20 && c < 0x7f && c != ','; });
    if (!plain) read.Wrong("uuid", "must be visible ASCII without commas");
    if (read.result && !uuids.insert(card.uuid).second) {
      read.Wrong("uuid", Quoted(card.uuid) + " is listed twice");
    }
    order.emplace_back(read.Number("index", 0, kPlaceMax, static_cast<int64_t>(cards.size())),
                       cards.size());
    card.vendor = read.Text("vendor", 64, false, "nvidia");
    card.model = read.Text("model", 256, false);
    card.memory_mib = static_cast<uint32_t>(read.Number("memoryMiB", 1, kCardMibMax, {}));
    card.numa = static_cast<int32_t>(read.Number("numa", -1, kPlaceMax, -1));
    card.island = static_cast<int32_t>(read.Number("island", -1, kPlaceMax, -1));
    card.pcie = static_cast<int32_t>(read.Number("pcie", -1, kPlaceMax, -1));
    card.bus = read.Text("bus", 64, false);
    const std::string health = read.Text("health", 16, false, "Healthy");
    const auto known = std::find_if(kHealths.begin(), kHealths.end(),
                                    [&](const auto& h) { return h.second == health; });
    if (known == kHealths.end()) {
      read.Wrong("health", Quoted(health) + " is not one of Healthy, Failed and Missing");
    } else {
      card.health = known->first;
    }
    card.why = read.Text("why", 1'024, false);
    card.cordoned = read.Flag("cordoned");
    card.mig_capable = read.Flag("migCapable");
    card.mig_enabled = read.Flag("migEnabled");
    for (const Json& made : ListAt(entry, "instances")) {
      if (card.instances.size() == kInstancesMax) break;
      const std::string there = fmt::format("{}.instances[{}]", where, card.instances.size());
      CardReader part{made, there, {}};
      devmgr::MigInstance instance;
      instance.profile = part.Text("profile", 64, true);
      instance.start = static_cast<uint32_t>(part.Number("start", 0, 7, {}));
      instance.slices = static_cast<uint32_t>(part.Number("slices", 1, 8, {}));
      if (read.result) read.result = part.result;
      card.instances.push_back(std::move(instance));
    }
    card.beyond = kBeyondUnit * read.Number("useBeyondRequests", -kBeyondMax, kBeyondMax, 0);
    if (!read.result) return tl::unexpected(read.result.error());
    cards.push_back(std::move(card));
  }
  std::sort(order.begin(), order.end());
  std::vector<devmgr::Card> sorted;
  sorted.reserve(order.size());
  for (const auto& [index, at] : order) sorted.push_back(std::move(cards[at]));
  return sorted;
}

std::vector<devmgr::Card> GuessedCards(const Json& node, uint32_t memory_unit_mib) {
  const Json* allocatable = Find(node, "status/allocatable");
  const int64_t count = std::min<int64_t>(WholeAt(allocatable, kWholeResource), kCountMax);
  const std::string name = TextAt(node, "metadata/name");
  if (count <= 0 || name.empty()) return {};
  int64_t mib = 0;
  const std::string label = TextAt(node, "metadata/labels/nvidia.com~1gpu.memory");
  if (!label.empty()) mib = WholeQuantity(label).value_or(0);
  if (mib == 0) {
    const int64_t units = std::min<int64_t>(WholeAt(allocatable, kMemoryResource), 1 << 30);
    mib = units / count * memory_unit_mib;
  }
  std::vector<devmgr::Card> cards(static_cast<size_t>(count));
  for (size_t i = 0; i < cards.size(); ++i) {
    cards[i].uuid = fmt::format("{}/{}", name, i);
    cards[i].model = TextAt(node, "metadata/labels/nvidia.com~1gpu.product");
    cards[i].memory_mib = static_cast<uint32_t>(std::clamp<int64_t>(mib, 1, kCardMibMax));
  }
  return cards;
}

devmgr::Node ReadNode(const Json& node) {
  devmgr::Node read;
  read.name = TextAt(node, "metadata/name");
  if (const Json* labels = Find(node, "metadata/labels");
      labels != nullptr && labels->is_object()) {
    for (const auto& [key, value] : labels->items()) {
      if (value.is_string()) read.labels.emplace(key, value.get<std::string>());
    }
  }
  const Json* unschedulable = Find(node, "spec/unschedulable");
  read.cordoned =
      unschedulable != nullptr && unschedulable->is_boolean() && unschedulable->get<bool>();
  for (const Json& condition : ListAt(node, "status/conditions")) {
    if (TextAt(condition, "type") == "Ready" && TextAt(condition, "status") != "True") {
      read.cordoned = true;
    }
  }
  if (const Json* cpu = Find(node, "status/allocatable/cpu")) {
    read.cpu_milli = static_cast<uint32_t>(
        std::min<int64_t>(MilliQuantity(*cpu).value_or(0), std::numeric_limits<uint32_t>::max()));
  }
  if (const Json* memory = Find(node, "status/allocatable/memory")) {
    read.memory_mib = static_cast<uint64_t>(WholeQuantity(*memory).value_or(0)) >> 20;
  }
  return read;
}

}  // namespace baton::k8s
