// The search for a place on one node: which virtual GPU goes on which GPU. Depth first, with
// backtracking; what cannot be finished, or not better than what is known, is not begun. Internal
// to the cluster; pure.
#ifndef BATON_DEVMGR_PLACEMENT_SEARCH_H_
#define BATON_DEVMGR_PLACEMENT_SEARCH_H_

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "devmgr/inventory.h"
#include "devmgr/modes/sharing_mode.h"
#include "devmgr/placement/fragmentation.h"
#include "devmgr/placement/policy.h"
#include "devmgr/placement/request.h"

namespace baton::devmgr {

struct PlacedPod;

// A GPU, with what of it the search looks at.
struct CardState {
  CardUse use;
  const Card* card = nullptr;
  uint64_t exclusion = 0;  // word of the pods on it, while there are any
  // Millionths that its pods are expected to execute beyond use.share; see Card::beyond, which is
  // in it.
  int64_t beyond = 0;
  uint32_t model = 0;   // GPUs with equal numbers have equal vendor and model
  uint16_t serves = 0;  // a bit for each mode
  bool usable = false;
};

struct NodeState {
  Node info;
  std::vector<CardState> cards;        // as in info.cards
  std::vector<const PlacedPod*> pods;  // by name
  uint64_t cpu_used = 0;               // milli
  uint64_t memory_used = 0;            // MiB
  std::map<std::string, uint64_t> resources_used;
  Supply supply;  // as the mix has it
  // What follows from the above, kept for the search (Cluster::State::AddUp).
  Mix::Sum sum{FreeNode()};                      // of `free`
  FreeNode free;                                 // nothing on GPUs that must not be used
  std::array<int16_t, FreeNode::kCards> full{};  // Fullness() of each GPU
  // The first GPU of which this one differs at most in what is used of it.
  std::array<uint8_t, FreeNode::kCards> kind{};
  // GPUs that a pod without wishes of its own may use: a bit for each.
  uint16_t open = 0;
  // All GPUs' together: how full the node is.
  policy::ShareSum share_used;
  policy::ShareSum share_free;  // on usable GPUs: an upper bound for what can come
  uint64_t card_memory_used = 0;
  uint64_t card_memory = 0;
  // LossesOf() it by that rule, as of that version of the mix; version 0: to be worked out.
  mutable Mix::Losses losses{};
  mutable uint64_t loss_version = 0;
  mutable Rule loss_rule = Rule::kRemainder;
};

// One virtual GPU to be placed.
struct Want {
  policy::Share share;
  uint32_t memory_mib;
  policy::Share memory_part;
  uint16_t container;
  uint16_t group;

  VgpuWant On(const Card& card) const {
    if (memory_part == policy::Share(0)) return {share, memory_mib};
    const uint64_t mib = policy::PartOf(SharedMib(card), memory_part);
    // 0 would be no cap at all.
    return {share, static_cast<uint32_t>(mib > 0 ? mib : 1)};
  }
};

// A pod's virtual GPUs in the order of the search, made once for all nodes: the large ones first,
// for they have the fewest places; those of one group together.
struct Wants {
  explicit Wants(const std::vector<Want>& wants);

  std::vector<Want> wants;
  std::vector<uint16_t> order;  // which they were
  std::vector<uint32_t> later;  // a bit for each container of this one and those after it
  policy::Share least;          // share of the smallest
  policy::ShareSum share;       // of all
};

struct Place {
  uint8_t card;
  uint8_t mode;
  Fit fit;
};

// How far apart a pod's GPUs are, the most important first: over how many of each they are.
struct Spread {
  uint32_t islands = 0;  // a GPU without NVLink is one of its own
  uint32_t numas = 0;
  uint32_t switches = 0;  // of PCIe; a GPU without one is its own, GPUs of an island are one

  friend auto operator<=>(const Spread&, const Spread&) = default;
};
inline constexpr Spread kAnySpread{UINT32_MAX, UINT32_MAX, UINT32_MAX};

// One way to place all of a pod on a node, and how good that is.
struct Candidate {
  Spread spread;
  int64_t excess = 0;         // ExcessOf() it where the search goes by that, else 0
  int64_t cost = 0;           // by the GPUs' rule
  int64_t fit = 0;            // best fit: the lower the fuller
  std::vector<Place> places;  // for each Want, in their order

  // Whether it is better than `other` on the same node.
  bool Better(const Candidate& other) const;
};

struct SearchOptions {
  std::span<const SharingMode* const> modes;
  const PlacementPolicy* policy = nullptr;
  const Mix* mix = nullptr;
  uint16_t mode_mask = 0xffff;  // modes that the pod accepts
  // GPUs that the search may use, by index on the node: a bit for each.
  uint16_t allowed = 0xffff;
  uint32_t cpu_milli = 0;  // what the pod takes of the node, for the fragmentation that it leaves
  uint64_t memory_mib = 0;
  uint64_t salt = 0;  // of this pod, for kRandom
  // Places that are spread over more are of no interest and perhaps not found; nor are those spread
  // over as much that cost more.
  Spread spread = kAnySpread;
  int64_t limit = INT64_MAX;
  // Among places that cost at most `limit`, those with the least expected excess are the best.
  bool by_use = false;
  std::optional<policy::Share> expected_use;  // of the pod, on each GPU
  // Steps of the search; it ends with the best place found so far.
  uint32_t budget = 12'000;
};

// A hash of one number (splitmix64): the random choices of kRandom.
uint64_t Mixed(uint64_t x);

void SetFree(FreeNode& free, size_t c, const Card& card, const CardUse& use);
// What is free on the node, less what the pod takes of its processors and memory.
FreeNode FreeOf(const NodeState& node, uint32_t cpu_milli, uint64_t memory_mib);
// As it is now.
const Mix::Losses& LossesOf(const NodeState& node, const Mix& mix, Rule rule);

// What the GPU's pods are expected to execute, in millionths of it; may be more than it has.
inline int64_t ExpectedUse(const CardState& card) {
  return std::max<int64_t>(0, card.use.share.millionths() + card.beyond);
}
// The excess (devmgr/placement/policy.h) of the GPUs of these places together, in steps of 0.05 of
// a GPU. `use`: PodRequest::expected_use.
int64_t ExcessOf(const NodeState& node, std::span<const Place> places,
                 const std::optional<policy::Share>& use);

// How full, in thousandths.
int64_t Fullness(const PlacementPolicy& policy, policy::ShareSum share_used,
                 policy::ShareSum share_all, uint64_t memory_used, uint64_t memory_all);

// Sets NodeState::kind.
void NumberKinds(NodeState& node);
// Which pods the node could ever take. Of GPUs of several models the first that is usable counts.
Supply SupplyOf(const NodeState& node);

// The best way, by Candidate::Better, among all that there are (where the budget lasts).
// `end` says where it did not.
struct SearchEnd {
  bool exhausted = false;  // the budget did not last
  bool dear = false;       // there is no place that is of interest, but perhaps others
  uint32_t steps = 0;      // used
};
std::optional<Candidate> SearchNode(const NodeState& node, const Wants& wanted,
                                    const SearchOptions& options, SearchEnd* end);

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_SEARCH_H_
