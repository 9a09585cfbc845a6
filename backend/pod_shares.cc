#include "backend/pod_shares.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "base/hash.h"
#include "teams/tree.h"

namespace baton::backend {

Result<void> PodShares::Admit(const Pod& pod) const {
  return teams_ != nullptr ? teams_->Admit(pod) : Result<void>();
}

policy::ShareSpec PodShares::SpecOf(const Pod& pod) const {
  if (pod.throw_away) return pod.share;
  if (teams_ != nullptr) return teams_->Effective(pod);
  // Their weights do not matter then, but who is of another team does (Charged::uncontended).
  policy::ShareSpec spec = pod.share;
  spec.team = static_cast<uint32_t>(HashOf(teams::NormalPath(pod.team)));
  return spec;
}

void PodShares::Tell(Gpu& gpu, const Pod& pod) {
  const policy::ShareSpec spec = SpecOf(pod);
  gpu.pods[pod.id].told = spec;
  tokens_.Step(gpu, scheduler::PodSet{pod.id, spec, pod.in_gang(),
                                      usage_.LimitFullAt(pod.id, gpu.key), OwnerOf(pod)});
}

// A number for who may delete the pod and make others; 0: that is not known.
uint64_t PodShares::OwnerOf(const Pod& pod) {
  if (pod.throw_away || (pod.name_space.empty() && pod.user.empty() && pod.uid < 0)) return 0;
  return owners_.try_emplace({pod.name_space, pod.user, pod.uid}, owners_.size() + 1).first->second;
}

void PodShares::WeighLater(const Pod& pod) {
  if (teams_ == nullptr) return;
  for (const std::string& uuid : pod.gpus) {
    Gpu* gpu = gpus_.Find(uuid);
    if (gpu == nullptr || std::exchange(gpu->weigh, true)) continue;
    to_weigh_.push_back(gpu);
  }
  Later();
}

void PodShares::Weigh(Gpu& gpu) {
  if (teams_ == nullptr) return;
  std::vector<std::string> teams;
  for (const auto& [id, on] : gpu.pods) {
    if (const Pod* pod = pods_.Find(id)) teams.push_back(pod->team);
  }
  const std::vector<uint32_t> weights = teams_->Weights(teams);
  tokens_.Step(gpu, scheduler::TeamWeights{weights});
}

void PodShares::TeamsChanged() {
  for (const auto& [id, pod] : pods_.all()) {
    if (!pod.by_token()) continue;
    for (const std::string& uuid : pod.gpus) {
      Gpu* gpu = gpus_.Find(uuid);
      if (gpu == nullptr) continue;
      const auto on = gpu->pods.find(id);
      if (on != gpu->pods.end() && on->second.told != SpecOf(pod)) Tell(*gpu, pod);
    }
    WeighLater(pod);
  }
}

// One at a time: frames that arrive meanwhile go first.
void PodShares::Later() {
  if (to_weigh_.empty() || std::exchange(later_, true)) return;
  boost::asio::post(io_, [this, alive = alive_] {
    if (!*alive) return;
    later_ = false;
    Gpu* gpu = to_weigh_.back();
    to_weigh_.pop_back();
    gpu->weigh = false;
    Weigh(*gpu);
    Later();
  });
}

}  // namespace baton::backend
