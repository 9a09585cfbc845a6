// Whether a pod fits on a node, found out by trying: what worlds judge the binder by. Shares no
// code with what decides (devmgr/placement), only its types. Exact; for nodes of a few GPUs.
#ifndef BATON_TESTS_K8S_WORLDS_FIT_H_
#define BATON_TESTS_K8S_WORLDS_FIT_H_

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "devmgr/inventory.h"
#include "devmgr/placement/cluster.h"

namespace baton::k8s::testing {

// A node as its Node and GpuNode say it.
struct NodeSeen {
  std::string name;
  std::string closed;  // why no pod may come; empty: it is open
  std::map<std::string, std::string> labels;
  std::vector<devmgr::Card> cards;
  std::optional<int64_t> shares;  // of the kubelet: baton.dev/gpu-share; nothing: not counted
  std::optional<int64_t> memory;  // baton.dev/gpu-memory
};
// `gpu_node` null: it has none.
NodeSeen SeeNode(const Json& node, const Json* gpu_node);

// What a pod wants.
struct Wish {
  std::string key;
  std::string team;  // never empty
  int32_t priority = 0;
  std::string gang;  // "namespace/word"; empty: none
  uint32_t gang_size = 0;
  bool displaces = true;
  int64_t shares = 0;  // limits, as the kubelet counts them
  int64_t memory = 0;
  bool volumes = false;  // it has some, which may keep it to some nodes
  devmgr::PodRequest request;
};
// Of a pod, or of the child that a SharePod would have. Nothing: it makes no sense.
std::optional<Wish> WishOf(const Json& object);

// What it takes of all GPUs together: millionths, MiB.
struct Sum {
  uint64_t share = 0;
  uint64_t memory_mib = 0;
  Sum& operator+=(const Sum& other) {
    share += other.share;
    memory_mib += other.memory_mib;
    return *this;
  }
};
Sum SumOf(const devmgr::PodRequest& request);
Sum SumOf(const devmgr::Placement& placement);
// At most what it takes: a whole GPU has all of its memory, and a part of it is of the largest.
Sum MostOf(const devmgr::PodRequest& request, const std::vector<NodeSeen>& nodes);

using Pods = std::vector<const devmgr::PlacedPod*>;

// `there`: the pods on the node; `near`: GPUs that have a pod with its affinity word anywhere, or
// none where there is no such pod. How much a part of a GPU's memory is, is known to within 1 MiB:
// at most so much, or at least.
enum class Takes : uint8_t { kAtMost, kAtLeast };
bool Fits(const Wish& wish, const NodeSeen& node, const Pods& there,
          const std::set<std::string>& near, Takes takes = Takes::kAtMost);
// The GPUs by which `near` is meant.
std::set<std::string> CardsWithWord(const std::string& word, const Pods& everywhere);
// What is wrong with where it was put: a clause. Empty: nothing. `there`: the others on the node.
std::string WrongPlace(const Wish& wish, const devmgr::Placement& to, const NodeSeen& node,
                       const Pods& there);

}  // namespace baton::k8s::testing

#endif  // BATON_TESTS_K8S_WORLDS_FIT_H_
