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

std::string ExplainNode(const ClusterView& view, const devmgr::PodRequest& request,
                        const PodNeeds& needs, const devmgr::NodeRefusal& refusal) {
  if (std::string off = view.WhyOff(needs, refusal.node); !off.empty()) return off;
  if (std::string closed = view.WhyClosed(refusal.node); !closed.empty()) return closed;
  std::string line = refusal.why;
  // One of Baton's own resources is short.
  if (line.find(kPrefix) != std::string::npos) line = view.WhyKubelet(request, refusal.node);
  return line.empty() ? ExplainGpus(refusal.cards) : line;
}

}  // namespace

std::string ExplainPlacement(ClusterView& view, devmgr::PodRequest request, const PodNeeds& needs,
                             bool asks_for_gpus, const std::string& summary) {
  std::string text = summary;
  request.off_nodes = view.OffNodes(needs);
  for (const devmgr::NodeRefusal& refusal : view.cluster().Explain(request)) {
    if (refusal.cards.empty() && asks_for_gpus) continue;
    text += "\n" + refusal.node + ": " + ExplainNode(view, request, needs, refusal);
    if (text.size() > kMessageMax) break;
  }
  return text;
}

}  // namespace baton::k8s
