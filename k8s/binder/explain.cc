#include "k8s/binder/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "k8s/binder/status.h"
#include "k8s/types/annotations.h"

namespace baton::k8s {
namespace {

// GPUs with the same reason are named together.
std::string ExplainGpus(const std::vector<devmgr::CardRefusal>& cards) {
  std::vector<std::pair<std::string, std::string>> groups;  // indexes, reason
  for (size_t c = 0; c < cards.size(); ++c) {
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const auto& group) { return group.second == cards[c].why; });
    if (same != groups.end()) {
      same->first += "," + std::to_string(c);
    } else {
      groups.emplace_back(std::to_string(c), cards[c].why);
    }
  }
  std::string text;
  for (const auto& [indexes, reason] : groups) {
    text += fmt::format("{}GPU {}: {}", text.empty() ? "" : "; ", indexes,
                        reason.empty() ? "has room, but the pod needs more such GPUs" : reason);
  }
  return text;
}

size_t GpusWithRoom(const std::vector<devmgr::CardRefusal>& cards) {
  return static_cast<size_t>(
      std::count_if(cards.begin(), cards.end(),
                    [](const devmgr::CardRefusal& card) { return card.why.empty(); }));
}

// Of the container that has the most.
size_t GpusOf(const devmgr::PodRequest& request) {
  size_t most = 0;
  for (const devmgr::ContainerRequest& container : request.containers) {
    size_t gpus = 0;
    for (const devmgr::VgpuRequest& vgpu : container.vgpus) gpus += vgpu.count;
    most = std::max(most, gpus);
  }
  return most;
}

std::string ExplainNode(const ClusterView& view, const devmgr::PodRequest& request,
                        const PodNeeds& needs, const devmgr::NodeRefusal& refusal) {
  if (std::string off = view.WhyOff(needs, refusal.node); !off.empty()) return off;
  if (std::string closed = view.WhyClosed(refusal.node); !closed.empty()) return closed;
  std::string line = refusal.why;
  // One of Baton's own resources is short in the kubelet's count. That is the reason only where the
  // GPUs have room; else theirs is what somebody can do something about.
  if (line.find(kPrefix) != std::string::npos) {
    const bool room = GpusWithRoom(refusal.cards) >= GpusOf(request);
    line = room ? view.WhyKubelet(request, refusal.node) : "";
  }
  return line.empty() ? ExplainGpus(refusal.cards) : line;
}

}  // namespace

std::string ExplainPlacement(ClusterView& view, devmgr::PodRequest request, const PodNeeds& needs,
                             bool asks_for_gpus, const std::string& summary,
                             const std::string& besides) {
  std::string text = summary;
  request.off_nodes = view.OffNodes(needs);
  if (asks_for_gpus && request.resources.contains(std::string(kShareResource))) {
    // What is short without the kubelet's count is the reason, where anything is.
    devmgr::PodRequest uncounted = request;
    for (const std::string_view own : {kShareResource, kMemoryResource}) {
      uncounted.resources.erase(std::string(own));
    }
    if (const auto anyway = view.cluster().Decide(uncounted); !anyway) {
      text = anyway.error().message;
    }
  }
  if (!besides.empty()) text += "; " + besides;
  for (const devmgr::NodeRefusal& refusal : view.cluster().Explain(request)) {
    if (refusal.cards.empty() && asks_for_gpus) continue;
    text += "\n" + refusal.node + ": " + ExplainNode(view, request, needs, refusal);
    if (text.size() > kMessageMax) break;
  }
  return text;
}

}  // namespace baton::k8s
