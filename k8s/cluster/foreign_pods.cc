#include "k8s/cluster/foreign_pods.h"

namespace baton::k8s {

void ForeignPods::Node::Count(const Usage& pod, bool here) {
  const auto add = [&](uint64_t& to, uint64_t amount) { here ? to += amount : to -= amount; };
  here ? ++pods : --pods;
  add(usage.cpu_milli, pod.cpu_milli);
  add(usage.memory_mib, pod.memory_mib);
  for (const auto& [resource, amount] : pod.resources) add(usage.resources[resource], amount);
  std::erase_if(usage.resources, [](const auto& resource) { return resource.second == 0; });
}

void ForeignPods::Set(const std::string& key, const std::string& node,
                      const devmgr::PodRequest& request) {
  Remove(key);
  Pod& pod = pods_[key];
  if (node.empty()) return;
  const auto usage =
      usages_.try_emplace({request.cpu_milli, request.memory_mib, request.resources}, 0).first;
  ++usage->second;
  pod = {node, &usage->first};
  nodes_[node].Count(usage->first, true);
  changed_(node);
}

void ForeignPods::Remove(const std::string& key) {
  const auto it = pods_.find(key);
  if (it == pods_.end()) return;
  const Pod pod = std::move(it->second);
  pods_.erase(it);
  if (pod.usage == nullptr) return;
  Node& node = nodes_.at(pod.node);
  node.Count(*pod.usage, false);
  if (node.pods == 0) nodes_.erase(pod.node);
  const auto usage = usages_.find(*pod.usage);
  if (--usage->second == 0) usages_.erase(usage);
  changed_(pod.node);
}

const ForeignPods::Usage& ForeignPods::On(const std::string& node) const {
  static const Usage nothing;
  const auto it = nodes_.find(node);
  return it == nodes_.end() ? nothing : it->second.usage;
}

}  // namespace baton::k8s
