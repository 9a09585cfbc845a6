// Objects of the Kubernetes API, which any user of the cluster may have written.
#include <nlohmann/json.hpp>

#include "k8s/types/annotations.h"
#include "k8s/types/gpu_node.h"
#include "k8s/types/gpu_pod.h"
#include "k8s/types/inject.h"
#include "k8s/types/share_pod.h"
#include "k8s/types/team.h"
#include "k8s/types/translate.h"
#include "tests/fuzz/target.h"

namespace baton::fuzz {
namespace {

using Json = nlohmann::json;

void InRange(const k8s::GpuPod& pod) {
  BATON_CHECK(devmgr::Validate(pod.request) || !pod.asks());
  BATON_CHECK(pod.containers.size() == pod.request.containers.size());
  for (const k8s::ContainerGpus& gpus : pod.containers) {
    BATON_CHECK(gpus.request >= policy::kShareMin && gpus.request <= gpus.limit);
    BATON_CHECK(gpus.limit <= policy::kWhole);
    BATON_CHECK(gpus.count >= 1 && gpus.count <= 16);
    BATON_CHECK(gpus.memory.mib <= 1u << 24 && gpus.memory.part <= policy::kWhole);
  }
}

FUZZ_TARGET(pod) {
  const auto parsed = k8s::ParseObject(input);
  if (!parsed) return;
  Json pod = *parsed;
  (void)k8s::TakesRoom(pod);
  (void)k8s::ResourcesOf(pod);
  if (const auto placed = k8s::ReadPlacement(pod); placed && *placed) {
    for (const devmgr::Vgpu& vgpu : (*placed)->vgpus) {
      BATON_CHECK(vgpu.container < 32 && vgpu.fit.share <= policy::kWhole);
    }
  }
  const auto read = k8s::ReadGpuPod(pod, k8s::kMemoryUnitMib);
  if (read) InRange(*read);
  // Other projects' names: what is refused stays as it was, and once more changes nothing.
  const Json given = pod;
  const k8s::ForeignOptions foreign{true, true, true, 3};
  const auto understood = k8s::TranslateForeignNames(foreign, pod);
  if (!understood || understood->empty()) BATON_CHECK(pod == given);
  if (understood) {
    const auto again = k8s::TranslateForeignNames(foreign, pod);
    BATON_CHECK(again && again->empty());
  }
  const auto injected = k8s::Inject(pod);
  if (!injected) return;
  // Once more changes nothing.
  const Json once = pod;
  BATON_CHECK(k8s::Inject(pod));
  BATON_CHECK(pod == once);
}

// {"before": a SharePod, "after": what becomes of it}.
FUZZ_TARGET(share_pod) {
  const auto parsed = k8s::ParseObject(input);
  if (!parsed) return;
  const Json* before = k8s::Find(*parsed, "before");
  const Json* after = k8s::Find(*parsed, "after");
  if (before == nullptr || after == nullptr) return;
  (void)k8s::CheckSharePodChange(*before, *after);
  const auto child = k8s::ChildPod(*before, k8s::kMemoryUnitMib);
  BATON_CHECK(child.has_value() || !child.error().message.empty());
  if (!child) return;
  BATON_CHECK(k8s::CheckSharePod(*before));
  const auto read = k8s::ReadGpuPod(*child, k8s::kMemoryUnitMib);
  BATON_CHECK(read);
  InRange(*read);
  BATON_CHECK(!k8s::ChildChanges(*before, *child));
  (void)k8s::ChildChanges(*after, *child);
}

FUZZ_TARGET(node) {
  const auto parsed = k8s::ParseObject(input);
  if (!parsed) return;
  BATON_CHECK(k8s::GuessedCards(*parsed, k8s::kMemoryUnitMib).size() <= 16);
  devmgr::Node node = k8s::ReadNode(*parsed);
  const auto cards = k8s::CardsOf(*parsed);
  if (!cards) return;
  for (const devmgr::Card& card : *cards) BATON_CHECK(card.memory_mib > 0);
  node.cards = *cards;
  const Json object = k8s::GpuNodeOf(node);
  const auto again = k8s::CardsOf(object);
  BATON_CHECK(again);
  node.cards = *again;
  BATON_CHECK(k8s::GpuNodeOf(node) == object);
}

// Lists of Teams, each as it was before or after, in the order in which they are told.
FUZZ_TARGET(team) {
  const auto parsed = k8s::ParseObject(input);
  if (!parsed) return;
  const Json* told = k8s::Find(*parsed, "teams");
  if (told == nullptr || !told->is_array() || told->size() > 32) return;
  k8s::TeamSet teams;
  for (const Json& team : *told) {
    teams.Set(team);
    teams.Settle();
    std::vector<devmgr::Quota> quotas;
    for (const auto& [name, known] : teams.all()) {
      if (known.in_force) quotas.push_back(known.in_force->quota);
      BATON_CHECK(known.read || !known.why_not.empty());
      if (const auto body = k8s::TeamSet::WithStatus(known, "2026-01-01T00:00:00Z")) {
        k8s::TeamSet again;
        again.Set(*body);
      }
    }
    // What is in force agrees.
    BATON_CHECK(devmgr::Quotas::Make(quotas));
    BATON_CHECK(quotas.size() == teams.quotas().all().size());
  }
  for (const Json& team : *told) teams.Remove(team);
  teams.Settle();
  BATON_CHECK(teams.all().empty() && teams.quotas().all().empty());
}

FUZZ_TARGET(placement) {
  const auto placement = k8s::ParsePlacement(input);
  if (!placement) return;
  k8s::GpuPod pod;
  for (const devmgr::Vgpu& vgpu : placement->vgpus) {
    if (vgpu.container == pod.containers.size()) pod.containers.emplace_back();
  }
  const std::string text = k8s::PlacementText(pod, *placement);
  const auto again = k8s::ParsePlacement(text);
  BATON_CHECK(again);
  BATON_CHECK(k8s::PlacementText(pod, *again) == text);
}

}  // namespace
}  // namespace baton::fuzz
