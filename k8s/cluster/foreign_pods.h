// Pods that are none of Baton's, of which there are many: kept is what they take of their nodes
// beside GPUs. Not thread safe.
#ifndef BATON_K8S_CLUSTER_FOREIGN_PODS_H_
#define BATON_K8S_CLUSTER_FOREIGN_PODS_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>

#include "devmgr/placement/request.h"

namespace baton::k8s {

class ForeignPods {
 public:
  struct Usage {
    uint64_t cpu_milli = 0;
    uint64_t memory_mib = 0;
    std::map<std::string, uint64_t> resources;

    friend auto operator<=>(const Usage&, const Usage&) = default;
  };

  // `changed` is called with the name of a node of which they take more or less than before.
  explicit ForeignPods(std::function<void(const std::string&)> changed)
      : changed_(std::move(changed)) {}

  // A pod was seen. `node` is empty where it is on none or takes no room. Of `request` its cpu,
  // memory and other resources count.
  void Set(const std::string& key, const std::string& node, const devmgr::PodRequest& request);
  void Remove(const std::string& key);
  bool Has(const std::string& key) const { return pods_.contains(key); }
  // What those on the node take together.
  const Usage& On(const std::string& node) const;

 private:
  struct Pod {
    std::string node;
    const Usage* usage = nullptr;  // of usages_; null: none
  };
  struct Node {
    Usage usage;
    size_t pods = 0;

    void Count(const Usage& pod, bool here);
  };

  std::function<void(const std::string&)> changed_;
  std::unordered_map<std::string, Pod> pods_;
  std::unordered_map<std::string, Node> nodes_;
  std::map<Usage, uint32_t> usages_;  // how many have it: pods of one template are alike
};

}  // namespace baton::k8s

#endif  // BATON_K8S_CLUSTER_FOREIGN_PODS_H_
