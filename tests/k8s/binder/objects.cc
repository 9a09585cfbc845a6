#include "tests/k8s/binder/objects.h"

#include <fmt/format.h>

#include <map>

#include "k8s/types/gpu_node.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/quantity.h"

namespace baton::k8s::testing {

Json NodeOf(const std::string& name, const Json& rest) {
  Json node{{"apiVersion", "v1"},
            {"kind", "Node"},
            {"metadata", {{"name", name}, {"labels", {{"kubernetes.io/hostname", name}}}}},
            {"status",
             {{"allocatable", {{"cpu", "64"}, {"memory", "256Gi"}, {"pods", "110"}}},
              {"conditions", Json::array({{{"type", "Ready"}, {"status", "True"}}})}}}};
  if (rest.is_object()) node.merge_patch(rest);
  return node;
}

Json CardsOn(const std::string& name, size_t cards, uint32_t memory_mib) {
  devmgr::Node inventory;
  inventory.name = name;
  for (size_t c = 0; c < cards; ++c) {
    devmgr::Card card;
    card.uuid = fmt::format("GPU-{}-{}", name, c);
    card.model = "NVIDIA H100 80GB HBM3";
    card.memory_mib = memory_mib;
    inventory.cards.push_back(card);
  }
  Json object = GpuNodeOf(inventory);
  SetMountsHook(object, true);
  return object;
}

Json ShareOf(const std::string& name, const Json& gpu, const Json& template_spec) {
  Json spec{{"containers",
             {{{"name", "main"},
               {"image", "x"},
               {"resources", {{"requests", {{"cpu", "500m"}, {"memory", "1Gi"}}}}}}}}};
  if (template_spec.is_object()) spec.merge_patch(template_spec);
  return {{"apiVersion", "baton.dev/v1alpha1"},
          {"kind", "SharePod"},
          {"metadata", {{"name", name}, {"namespace", kSpace}}},
          {"spec", {{"gpu", gpu}, {"template", {{"spec", std::move(spec)}}}}}};
}

Json PodOf(const std::string& name, const Json& limits) {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"name", name}, {"namespace", kSpace}}},
          {"spec",
           {{"schedulerName", "baton"},
            {"containers",
             {{{"name", "main"}, {"image", "x"}, {"resources", {{"limits", limits}}}}}}}}};
}

std::string ReasonOf(const Json& object, std::string_view type) {
  const Json* conditions = Find(object, "status/conditions");
  if (conditions == nullptr) return "";
  for (const Json& condition : *conditions) {
    if (TextAt(condition, "type") == type) return TextAt(condition, "reason");
  }
  return "";
}

std::string Refused(const std::vector<Json>& pods, const std::vector<Json>& nodes) {
  for (const char* resource : {"baton.dev~1gpu-share", "baton.dev~1gpu-memory"}) {
    std::map<std::string, int64_t> sums;
    for (const Json& pod : pods) {
      const std::string node = TextAt(pod, "spec/nodeName");
      if (node.empty() || !TakesRoom(pod)) continue;
      for (const Json& container : pod["spec"]["containers"]) {
        const Json* limit = Find(container, std::string("resources/limits/") + resource);
        if (limit != nullptr) sums[node] += *WholeQuantity(*limit);
      }
    }
    for (const Json& node : nodes) {
      const std::string name = TextAt(node, "metadata/name");
      const Json* all = Find(node, std::string("status/allocatable/") + resource);
      // At 0 no plugin answers; who is there already stays.
      const int64_t has = all == nullptr ? 0 : *WholeQuantity(*all);
      if (has > 0 && sums[name] > has) {
        return fmt::format("the pods on {} ask for {} {}", name, sums[name], resource);
      }
    }
  }
  return "";
}

std::string Overbooked(const std::vector<Json>& pods, const std::vector<Json>& gpu_nodes) {
  struct Use {
    policy::ShareSum share;
    uint64_t memory_mib = 0;
    bool exclusive = false;
    size_t pods = 0;
  };
  std::map<std::string, Use> uses;
  for (const Json& pod : pods) {
    const std::string name = NameOf(pod).Text();
    const std::string node = TextAt(pod, "spec/nodeName");
    if (node.empty() || !TakesRoom(pod)) continue;
    const auto placement = ReadPlacement(pod);
    if (!placement) return name + ": " + placement.error().message;
    if (!placement->has_value()) continue;
    if ((*placement)->node != node) return name + " is not on the node of its GPUs";
    for (const devmgr::Vgpu& vgpu : (*placement)->vgpus) {
      if (!vgpu.card.starts_with("GPU-" + node + "-")) return name + " has a GPU of another node";
      Use& use = uses[vgpu.card];
      use.share += vgpu.fit.share;
      use.memory_mib += vgpu.fit.memory_mib;
      use.exclusive |= vgpu.mode == "exclusive";
      ++use.pods;
    }
  }
  std::map<std::string, uint32_t> memory;
  for (const Json& node : gpu_nodes) {
    const auto cards = CardsOf(node);
    if (!cards) return cards.error().message;
    for (const devmgr::Card& card : *cards) memory[card.uuid] = card.memory_mib;
  }
  for (const auto& [card, use] : uses) {
    if (use.share > policy::kWhole) {
      return fmt::format("{} is given away to {} %", card, policy::PercentText(use.share));
    }
    if (use.exclusive && use.pods > 1) return card + " is exclusive, and shared";
    if (memory.contains(card) && use.memory_mib > memory[card]) {
      return fmt::format("{} MiB of {}'s {} are given away", use.memory_mib, card, memory[card]);
    }
  }
  return "";
}

}  // namespace baton::k8s::testing
