// What a Cluster is made of. Internal to it.
#ifndef BATON_DEVMGR_PLACEMENT_CLUSTER_STATE_H_
#define BATON_DEVMGR_PLACEMENT_CLUSTER_STATE_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "devmgr/placement/cluster.h"
#include "devmgr/placement/search.h"

namespace baton::devmgr {

struct Cluster::State {
  using CardCounts = std::map<std::string, uint32_t>;  // by uuid: pods' virtual GPUs there

  std::vector<const SharingMode*> modes;
  uint16_t open_modes = 0;  // a bit for each that may be chosen for a pod that leaves it open
  PlacementPolicy policy;
  Mix mix;
  std::vector<std::unique_ptr<NodeState>> nodes;  // by name
  std::unordered_map<std::string, std::pair<NodeState*, size_t>> cards;
  std::map<std::string, PlacedPod, std::less<>> pods;
  std::unordered_map<std::string, uint32_t> models;  // numbers for CardState::model
  struct Word {
    uint64_t number;
    uint32_t vgpus;  // that have it; without any it is forgotten, and its number not used again
  };
  std::unordered_map<std::string, Word> words;  // of exclusion
  uint64_t last_word = 0;
  // Where pods with these words are.
  std::unordered_map<std::string, CardCounts> affinity;
  std::unordered_map<std::string, CardCounts> anti_affinity;
  std::unordered_map<std::string, CardCounts> gangs;

  NodeState* Find(std::string_view name) const;
  // 0: the empty word. UINT64_MAX: no pod has the word.
  uint64_t WordOf(const std::string& word) const;
  // Index of the mode; modes.size(): there is none of that name.
  size_t ModeOf(std::string_view name) const;
  // A bit for each mode that a pod accepts which wants that one; empty: which leaves it open.
  uint16_t ModesFor(std::string_view wanted) const;
  // What follows from the node's GPUs.
  void AddUp(NodeState& node) const;

  // Takes a virtual GPU of `request` on the GPU, or gives it back; the GPU's part is as `fit`
  // says, which was checked.
  void Take(NodeState& node, size_t card, size_t mode, const Fit& fit, const PodRequest& request);
  // The pod's words, on one more GPU.
  void Count(const CardState& card, const PodRequest& request);
  void GiveBack(NodeState& node, size_t card, const Fit& fit, const PodRequest& request);
};

// The pod's virtual GPUs one by one, in the order of Placement::vgpus.
std::vector<Want> WantsOf(const PodRequest& request);

bool HasCpu(const NodeState& node, uint32_t milli);
bool HasMemory(const NodeState& node, uint64_t mib);
// The first of these that the node has not enough of; null: it has all.
const std::string* LacksResource(const NodeState& node,
                                 const std::map<std::string, uint64_t>& resources);
// What is free of one of them.
uint64_t FreeResource(const NodeState& node, const std::string& resource);
// Whether the request names the node among those that it must not go to.
bool IsOff(const PodRequest& request, std::string_view node);
// Null: it is not.
const std::string* WhyOff(const PodRequest& request, std::string_view node);

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_CLUSTER_STATE_H_
