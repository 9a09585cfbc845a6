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
  const Size is{vgpu.fit.share, vgpu.fit.memory_mib};
  if (vgpu.mode == spec::kExclusive) return is;
  const devmgr::VgpuRequest& group = groups[vgpu.group];
  Size size{group.share, group.memory_mib};
  if (group.memory_part != policy::Share(0)) {
    const devmgr::Card* card = cluster.FindCard(vgpu.card);
    if (card == nullptr) return std::nullopt;
    const uint64_t mib = policy::PartOf(card->memory_mib, group.memory_part);
    size.memory_mib = static_cast<uint32_t>(std::max<uint64_t>(mib, 1));
  }
  if (vgpu.mode == spec::kTimeSlice) return size;
  // Of what was made it has the smallest that holds what it asks for.
  return Size{std::max(size.share, is.share), std::max(size.memory_mib, is.memory_mib)};
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
