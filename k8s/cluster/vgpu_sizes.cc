#include "k8s/cluster/vgpu_sizes.h"

#include <algorithm>
#include <optional>

#include "spec/modes.h"

namespace baton::k8s {
namespace {

struct Size {
  policy::Share share;
  uint32_t memory_mib;
};

// What the request says now of a virtual GPU. Nothing: it does not ask for this one.
std::optional<Size> SizeOf(const devmgr::PodRequest& request, const devmgr::Vgpu& vgpu,
                           const devmgr::Cluster& cluster) {
  if (vgpu.container >= request.containers.size()) return std::nullopt;
  const auto& groups = request.containers[vgpu.container].vgpus;
  if (vgpu.group >= groups.size()) return std::nullopt;
  if (vgpu.mode != spec::kTimeSlice) return Size{vgpu.fit.share, vgpu.fit.memory_mib};
  const devmgr::VgpuRequest& group = groups[vgpu.group];
  if (group.memory_part == policy::Share(0)) return Size{group.share, group.memory_mib};
  const devmgr::Card* card = cluster.FindCard(vgpu.card);
  if (card == nullptr) return std::nullopt;
  const uint64_t mib = policy::PartOf(card->memory_mib, group.memory_part);
  return Size{group.share, static_cast<uint32_t>(std::max<uint64_t>(mib, 1))};
}

}  // namespace

Result<devmgr::Placement> WithRequestedSizes(const devmgr::PodRequest& request,
                                             devmgr::Placement placement,
                                             const devmgr::Cluster& cluster) {
  size_t requested = 0;
  for (const auto& container : request.containers) {
    for (const auto& group : container.vgpus) requested += group.count;
  }
  bool same = requested == placement.vgpus.size();
  for (devmgr::Vgpu& vgpu : placement.vgpus) {
    const auto size = SizeOf(request, vgpu, cluster);
    same &= size.has_value();
    if (!size) continue;
    vgpu.fit.share = size->share;
    vgpu.fit.memory_mib = size->memory_mib;
  }
  if (!same) return Fail(ErrorCode::kInvalid, "the number of GPUs of a container is immutable");
  return placement;
}

bool HasRequestedSizes(const devmgr::PodRequest& request, const devmgr::Placement& placement,
                       const devmgr::Cluster& cluster) {
  const auto sized = WithRequestedSizes(request, placement, cluster);
  return sized && *sized == placement;
}

}  // namespace baton::k8s
