// Shares and memory that change while the pod runs.
#include <algorithm>
#include <utility>

#include "k8s/binder/core_impl.h"
#include "k8s/types/share_pod.h"

namespace baton::k8s {
namespace {

using devmgr::Placement;
using devmgr::PodRequest;

// What a group of virtual GPUs is to have on its card.
struct Part {
  policy::Share share;
  uint32_t memory_mib;
};
std::optional<Part> WantedAt(const PodRequest& request, const devmgr::Vgpu& vgpu,
                             const devmgr::Cluster& cluster) {
  if (vgpu.container >= request.containers.size()) return std::nullopt;
  const auto& groups = request.containers[vgpu.container].vgpus;
  if (vgpu.group >= groups.size()) return std::nullopt;
  if (vgpu.mode != "time-slice") return Part{vgpu.fit.share, vgpu.fit.memory_mib};
  const devmgr::VgpuRequest& group = groups[vgpu.group];
  if (group.memory_part == 0) return Part{group.share, group.memory_mib};
  const devmgr::Card* card = cluster.FindCard(vgpu.card);
  if (card == nullptr) return std::nullopt;
  const uint64_t mib = uint64_t{card->memory_mib} * group.memory_part / policy::kWhole;
  return Part{group.share, static_cast<uint32_t>(std::max<uint64_t>(mib, 1))};
}

}  // namespace

bool IsAsAsked(const PodRequest& request, const Placement& placement,
               const devmgr::Cluster& cluster) {
  size_t asked = 0;
  for (const auto& container : request.containers) {
    for (const auto& group : container.vgpus) asked += group.count;
  }
  if (asked != placement.vgpus.size()) return false;
  return std::all_of(placement.vgpus.begin(), placement.vgpus.end(), [&](const auto& vgpu) {
    const auto part = WantedAt(request, vgpu, cluster);
    return part && part->share == vgpu.fit.share && part->memory_mib == vgpu.fit.memory_mib;
  });
}

bool Core::Impl::SettleBound(Entry& entry, const Pod& pod, const GpuPod& wanted,
                             const std::optional<std::reference_wrapper<const Json>>& share) {
  entry.resize.clear();
  if (!view.IsBooked(entry.key)) return false;
  auto resized = Resized(wanted.request, PlaceOf(entry));
  if (resized) {
    Placement most = *resized;
    for (size_t i = 0; i < most.vgpus.size(); ++i) {
      devmgr::Fit& fit = most.vgpus[i].fit;
      const devmgr::Fit& now_fit = PlaceOf(entry).vgpus[i].fit;
      fit.share = std::max(fit.share, now_fit.share);
      fit.memory_mib = std::max(fit.memory_mib, now_fit.memory_mib);
    }
    if (auto grown = Resize(entry, most); !grown) resized = tl::unexpected(grown.error());
  }
  if (!resized) {
    entry.resize = resized.error().message;
    resizers.insert(entry.key);
    if (!share) Tell(entry, true, "ResizeRefused", "Resizing", entry.resize);
    return Keep(entry, pod);
  }
  std::optional<Json> patch;
  if (share) patch = ChildChanges(*share, pod.object);
  if (!pod.placement || !(*pod.placement == *resized)) {
    if (!patch) patch = Json::object();
    for (auto& [key, value] : PlacementAnnotations(wanted, *resized)) {
      (*patch)["metadata"]["annotations"][key] = value;
    }
  }
  if (patch) {
    Patch(entry, pod, *std::move(patch));
    return true;
  }
  if (!(PlaceOf(entry) == *resized)) {
    (void)Resize(entry, *resized);
    round_wanted = true;
    Tell(entry, false, "Resized", "Resizing", "its share or memory has changed in place");
  }
  return false;
}

bool Core::Impl::Keep(Entry& entry, const Pod& pod) {
  if (!view.IsBooked(entry.key) || !pod.placement || PlaceOf(entry) == *pod.placement) return false;
  if (entry.doubt_uid == pod.uid) {
    // A patch of nothing: its answer has the annotations.
    Patch(entry, pod, Json::object());
    return true;
  }
  (void)Resize(entry, *pod.placement);
  return false;
}

Result<devmgr::Placement> Core::Impl::Resized(const PodRequest& wanted, Placement placement) const {
  size_t asked = 0;
  for (const auto& container : wanted.containers) {
    for (const auto& group : container.vgpus) asked += group.count;
  }
  bool same = asked == placement.vgpus.size();
  for (devmgr::Vgpu& vgpu : placement.vgpus) {
    const auto part = WantedAt(wanted, vgpu, view.cluster());
    same &= part.has_value();
    if (!part) continue;
    vgpu.fit.share = part->share;
    vgpu.fit.memory_mib = part->memory_mib;
  }
  if (!same) return Fail(ErrorCode::kInvalid, "how many cards its containers have cannot change");
  return placement;
}

Result<void> Core::Impl::Resize(const Entry& entry, const Placement& to) {
  const Placement before = PlaceOf(entry);
  const auto set = [&](size_t i, const devmgr::Fit& fit) {
    const devmgr::Vgpu& vgpu = to.vgpus[i];
    return view.cluster().Resize(entry.key, vgpu.container, vgpu.group, fit.share, fit.memory_mib);
  };
  for (size_t i = 0; i < to.vgpus.size(); ++i) {
    const devmgr::Fit& there = PlaceOf(entry).vgpus[i].fit;
    const devmgr::Fit& fit = to.vgpus[i].fit;
    if (there.share == fit.share && there.memory_mib == fit.memory_mib) continue;
    if (auto done = set(i, fit); !done) {
      while (i-- > 0) (void)set(i, before.vgpus[i].fit);
      return done;
    }
  }
  // What others lack is different now.
  if (!(PlaceOf(entry) == before)) {
    round_wanted = true;
    for (const std::string& key : resizers) Touch(key);
  }
  return {};
}

}  // namespace baton::k8s
