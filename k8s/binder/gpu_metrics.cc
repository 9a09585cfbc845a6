#include "k8s/binder/gpu_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "k8s/types/read.h"
#include "policy/share.h"
#include "spec/modes.h"

namespace baton::k8s {
namespace {

// A label's value as Prometheus' text has it.
std::string Label(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? ' ' : c;
  }
  return text;
}

std::string Header(const char* name, const char* help) {
  return fmt::format("# HELP baton_binder_{0} {1}\n# TYPE baton_binder_{0} gauge\n", name, help);
}

}  // namespace

std::string GpuMetrics(const devmgr::Cluster& cluster) {
  constexpr uint64_t kMib = 1 << 20;
  struct Family {
    const char* name;
    const char* help;
    std::string rows;
  };
  std::array<Family, 5> families{{
      {"gpu_allocated_ratio", "Sum of the requests of the pods there.", ""},
      {"gpu_free_ratio", "What new pods can have.", ""},
      {"gpu_memory_bytes", "Memory of the GPU.", ""},
      {"gpu_allocated_memory_bytes", "Sum of the memory of the pods there.", ""},
      {"gpu_free_memory_bytes", "Memory that new pods can have.", ""},
  }};
  for (const devmgr::Node* node : cluster.Nodes()) {
    for (const devmgr::Card& card : node->cards) {
      const devmgr::CardUse* use = cluster.UseOf(card.uuid);
      if (use == nullptr) continue;
      const bool open = card.health == devmgr::Health::kHealthy && !card.cordoned &&
                        !card.mig_enabled && !node->cordoned;
      const uint32_t shared_mib = devmgr::SharedMib(card);
      const uint64_t free_mib = shared_mib - std::min(shared_mib, use->memory_mib);
      const std::array<double, 5> values{
          policy::Ratio(use->share), open ? policy::Ratio(policy::kWhole - use->share) : 0,
          static_cast<double>(card.memory_mib * kMib), static_cast<double>(use->memory_mib * kMib),
          static_cast<double>(open ? free_mib * kMib : 0)};
      for (size_t i = 0; i < families.size(); ++i) {
        families[i].rows += fmt::format(
            "baton_binder_{}{{device_uuid=\"{}\",model=\"{}\",node=\"{}\"}} {:.17g}\n",
            families[i].name, Label(card.uuid), Label(card.model), Label(node->name), values[i]);
      }
    }
  }
  std::string text;
  for (const Family& family : families) text += Header(family.name, family.help) + family.rows;
  return text;
}

std::string FlavorMetrics(const devmgr::Cluster& cluster, const spec::Flavors& flavors) {
  if (flavors.empty()) return "";
  std::string text = Header("flavor_fit", "Pods of this flavor that would fit now.");
  for (const auto& [name, flavor] : flavors) {
    devmgr::PodRequest pod;
    pod.name = "a pod";
    pod.mode = spec::kTimeSlice;
    pod.containers = {{"main",
                       {{flavor.share.request, static_cast<uint32_t>(MibOf(flavor.memory_cap)),
                         flavor.memory_part, 1}}}};
    text += fmt::format("baton_binder_flavor_fit{{flavor=\"{}\"}} {}\n", Label(name),
                        cluster.HowManyFit(pod, "*"));
  }
  return text;
}

std::string PendingMetrics(const std::map<std::string, uint64_t>& pending) {
  std::string text = Header("pending_pods", "Pods and SharePods without a place, by reason.");
  for (const auto& [reason, pods] : pending) {
    text += fmt::format("baton_binder_pending_pods{{reason=\"{}\"}} {}\n", Label(reason), pods);
  }
  return text;
}

}  // namespace baton::k8s
