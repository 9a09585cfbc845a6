#include "k8s/binder/moves.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "devmgr/placement/defrag.h"
#include "devmgr/placement/replay.h"

namespace baton::k8s {
namespace {

// Nothing: it may not be moved for one of that priority.
std::optional<devmgr::PodRequest> RequestElsewhere(ClusterView& view, const ObjectCache& objects,
                                                   const std::string& key, int32_t priority) {
  const Entry* entry = objects.Find(key);
  if (entry == nullptr || !(entry->share ? entry->share->may_move : entry->pod.has_value())) {
    return std::nullopt;
  }
  // There is none yet where a SharePod has just been given its place.
  if (const auto& pod = entry->pod) {
    if (!pod->may_move || pod->deleting || !pod->takes_room || !pod->ended.empty()) {
      return std::nullopt;
    }
  }
  // Whoever named its GPUs stays on them.
  if (!entry->request().uuids.empty() || entry->request().priority > priority) return std::nullopt;
  const auto needs = objects.ResolvedNeeds(*entry);
  if (!needs) return std::nullopt;
  // Where it is, it has the sizes of its placement.
  devmgr::PodRequest request = entry->request();
  request.off_nodes = view.OffNodes(*needs);
  return request;
}

// By time-slice and exclusive a pod takes what it asks for wherever it is, so moves leave the sum
// of what is free as it is: where that is too little there is nothing to look for.
bool HasTimeFor(const devmgr::Cluster& cluster, const devmgr::PodRequest& request) {
  policy::ShareSum free;
  for (const devmgr::Node* node : cluster.Nodes()) free += cluster.FreeOn(node->name).share;
  return free >= devmgr::DemandOf(request);
}

std::string TextOf(const devmgr::DefragPlan& plan, const devmgr::Cluster& cluster) {
  std::string text;
  for (const devmgr::PodMove& move : plan.moves) {
    const std::string from = GpuIndexes(move.from, cluster), to = GpuIndexes(move.to, cluster);
    text += text.empty() ? "it would fit if " : " and ";
    text += move.from.node == move.to.node
                ? fmt::format("{} moved from GPU {} of {} to GPU {}", move.pod, from,
                              move.from.node, to)
                : fmt::format("{} moved from {} (GPU {}) to {} (GPU {})", move.pod, move.from.node,
                              from, move.to.node, to);
  }
  return text;
}

}  // namespace

std::string Moves::Propose(const Entry& waiting, const PodNeeds& needs, const devmgr::Names& kept) {
  if (const auto plan = plans_.find(waiting.key); plan != plans_.end() && plan->second.begun) {
    return "node " + plan->second.node + " is kept for it while pods that make room for it end";
  }
  plans_.erase(waiting.key);
  devmgr::PodRequest request = waiting.request();
  request.off_nodes = view_.OffNodes(needs);
  if (!HasTimeFor(view_.cluster(), request)) return "";
  const devmgr::DefragOptions options{.moves = 2, .steps = 1'000, .nodes = 64, .off = kept};
  const auto found = devmgr::Defrag(
      view_.cluster(), modes_, request,
      [&](const devmgr::PlacedPod& pod) {
        return RequestElsewhere(view_, objects_, pod.request.name, request.priority);
      },
      options);
  if (!found || found->moves.empty()) return "";
  Plan plan{found->placement.node, {}};
  for (const devmgr::PodMove& move : found->moves) {
    const auto& pod = objects_.Find(move.pod)->pod;
    if (move.from.node == plan.node && pod) plan.pods[move.pod] = pod->uid;
  }
  plans_.emplace(waiting.key, std::move(plan));
  return TextOf(*found, view_.cluster());
}

std::vector<devmgr::Reservation> Moves::Keep(const std::set<std::string>& waiting) {
  std::erase_if(plans_, [&](const auto& plan) { return !waiting.contains(plan.first); });
  std::vector<devmgr::Reservation> kept;
  for (auto it = plans_.begin(); it != plans_.end();) {
    Plan& plan = it->second;
    bool ending = false, begun = false;
    for (const auto& [key, uid] : plan.pods) {
      const Entry* entry = objects_.Find(key);
      const bool there =
          entry != nullptr && entry->pod && entry->pod->uid == uid && entry->pod->takes_room;
      ending |= there && entry->pod->deleting;
      begun |= !there || entry->pod->deleting;
    }
    if (begun && !std::exchange(plan.begun, true)) {
      events_.Add(
          *objects_.Find(it->first), false, "KeepingNode", "KeepingNode",
          fmt::format("node {} is kept until the pods that make room have gone", plan.node));
    }
    if (plan.begun) kept.push_back({it->first, {plan.node}, true});
    // Once all have gone that were about to, this round shows whether that was enough.
    it = plan.begun && !ending ? plans_.erase(it) : std::next(it);
  }
  return kept;
}

bool Moves::Keeps(const std::string& holder) const {
  const auto plan = plans_.find(holder);
  return plan != plans_.end() && plan->second.begun;
}

void Moves::Forget(const std::vector<std::string>& pods) {
  std::erase_if(plans_, [&](const auto& plan) {
    return std::any_of(pods.begin(), pods.end(),
                       [&](const std::string& pod) { return plan.second.pods.contains(pod); });
  });
}

}  // namespace baton::k8s
