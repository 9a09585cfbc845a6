#include "k8s/dra/slices.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "k8s/device_plugin/device_list.h"
#include "k8s/dra/claims.h"
#include "k8s/types/read.h"

namespace baton::k8s {
namespace {

constexpr size_t kLabelMax = 63;      // of a device's name
constexpr size_t kAttributeMax = 64;  // bytes
const std::string kMark = std::string(kDraDriver) + "/devices";

std::string AttributeText(const std::string& text) { return CutUtf8(text, kAttributeMax); }

// Why it gets nothing new; empty: it does.
std::string TaintOf(const devmgr::Card& card, const std::set<std::string>& taken) {
  if (card.health == devmgr::Health::kMissing) return "missing";
  if (card.health != devmgr::Health::kHealthy) return "failed";
  if (card.cordoned) return "cordoned";
  return taken.contains(card.uuid) ? "in-use" : "";
}

// Several claims consume parts of it; a request that does not name it takes all.
Json CapacityOf(const std::string& value, const std::string& step) {
  return {{"value", value},
          {"requestPolicy",
           {{"default", value}, {"validRange", {{"min", step}, {"max", value}, {"step", step}}}}}};
}

}  // namespace

std::string DeviceNameOf(std::string_view uuid) {
  std::string name;
  for (const char c : uuid.substr(0, kLabelMax)) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool good = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    name += upper ? static_cast<char>(c - 'A' + 'a') : good ? c : '-';
  }
  if (name.empty() || name.front() == '-') name = "gpu" + name.substr(0, kLabelMax - 3);
  while (name.back() == '-') name.pop_back();
  return name;
}

Json DraDevicesOf(const devmgr::Node& node, const std::set<std::string>& taken,
                  const std::function<std::string(const std::string& bus)>& pcie_root) {
  Json devices = Json::array();
  for (size_t i = 0; i < node.cards.size(); ++i) {
    const devmgr::Card& card = node.cards[i];
    if (!HasTurns(card)) continue;
    Json attributes{{"uuid", {{"string", AttributeText(card.uuid)}}}, {"index", {{"int", i}}}};
    if (!card.model.empty()) attributes["model"] = {{"string", AttributeText(card.model)}};
    if (card.numa >= 0) attributes["numaNode"] = {{"int", card.numa}};
    if (!card.bus.empty()) {
      attributes["resource.kubernetes.io/pciBusID"] = {{"string", AttributeText(card.bus)}};
      if (const std::string root = pcie_root(card.bus); !root.empty()) {
        attributes["resource.kubernetes.io/pcieRoot"] = {{"string", AttributeText(root)}};
      }
    }
    Json device{{"name", DeviceNameOf(card.uuid)},
                {"attributes", std::move(attributes)},
                {"allowMultipleAllocations", true},
                {"capacity", {{std::string(kShareCapacity), CapacityOf("100", "1")}}}};
    // 1: nobody knows how much it has (NodeOf()).
    if (card.memory_mib > 1) {
      device["capacity"][std::string(kMemoryCapacity)] =
          CapacityOf(fmt::format("{}Mi", card.memory_mib), "1Mi");
    }
    if (const std::string why = TaintOf(card, taken); !why.empty()) {
      device["taints"] = Json::array({{{"key", std::string(kDraDriver) + "/unavailable"},
                                       {"value", why},
                                       {"effect", "NoSchedule"}}});
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

Json WithoutTainted(const Json& devices) {
  Json rest = Json::array();
  for (const Json& device : devices) {
    if (!device.contains("taints")) rest.push_back(device);
  }
  return rest;
}

std::string SliceNameOf(const std::string& node) { return node + "-" + std::string(kDraDriver); }

Json ResourceSliceOf(const std::string& node, const std::string& node_uid, const Json& devices,
                     uint64_t generation, const std::string& mark) {
  Json owner{{"apiVersion", resources::kNodes.ApiVersion()},
             {"kind", resources::kNodes.kind},
             {"name", node},
             {"uid", node_uid},
             {"controller", true}};
  return {{"apiVersion", resources::kResourceSlices.ApiVersion()},
          {"kind", resources::kResourceSlices.kind},
          {"metadata",
           {{"name", SliceNameOf(node)},
            {"annotations", {{kMark, mark}}},
            {"ownerReferences", Json::array({std::move(owner)})}}},
          {"spec",
           {{"driver", kDraDriver},
            {"nodeName", node},
            {"pool", {{"name", node}, {"generation", generation}, {"resourceSliceCount", 1}}},
            {"devices", devices}}}};
}

std::string SliceMarkOf(const Json& slice) {
  const Json* annotations = Find(slice, "metadata/annotations");
  if (annotations == nullptr || !annotations->is_object()) return "";
  const auto mark = annotations->find(kMark);
  return mark != annotations->end() && mark->is_string() ? mark->get<std::string>() : "";
}

uint64_t SliceGenerationOf(const Json& slice) {
  const Json* generation = Find(slice, "spec/pool/generation");
  return generation != nullptr && generation->is_number_unsigned() ? generation->get<uint64_t>()
                                                                   : 0;
}

}  // namespace baton::k8s
