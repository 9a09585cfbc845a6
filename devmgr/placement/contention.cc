#include "devmgr/placement/contention.h"

#include <algorithm>
#include <utility>

#include "base/random.h"

namespace baton::devmgr {
namespace {

policy::ShareSum Executed(policy::ShareSum wanted) {
  return std::min(wanted, policy::ShareSum(policy::kWhole));
}

}  // namespace

void ImagineUse(std::vector<PodRequest>& pods) {
  for (size_t i = 0; i < pods.size(); ++i) {
    pods[i].expected_use = Random(i).OneIn(2) ? policy::kWhole : policy::kWhole / 10;
  }
}

Result<Placement> PlaceKnowing(Cluster& cluster, PodRequest pod, UseKnown known) {
  const auto use = pod.expected_use;
  if (known != UseKnown::kAll) pod.expected_use.reset();
  auto placement = cluster.Decide(pod);
  if (!placement) return placement;
  if (known == UseKnown::kPlaced) pod.expected_use = use;
  if (auto done = cluster.Commit(pod, *placement); !done) return tl::unexpected(done.error());
  return placement;
}

void Contention::Add(const PodRequest& pod, const Placement& placement) {
  for (const Vgpu& vgpu : placement.vgpus) {
    policy::ShareSum& on = on_[vgpu.card];
    const policy::Share use = pod.expected_use.value_or(vgpu.fit.share);
    executed_ -= Executed(on);
    on += use;
    wanted_ += use;
    executed_ += Executed(on);
  }
}

void Contention::Remove(const PodRequest& pod, const Placement& placement) {
  for (const Vgpu& vgpu : placement.vgpus) {
    policy::ShareSum& on = on_.at(vgpu.card);
    const policy::Share use = pod.expected_use.value_or(vgpu.fit.share);
    executed_ -= Executed(on);
    on -= use;
    wanted_ -= use;
    executed_ += Executed(on);
  }
}

}  // namespace baton::devmgr
