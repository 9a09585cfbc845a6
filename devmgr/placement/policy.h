// By what a place for a pod is chosen among those that would do.
//
// Places are compared by (NVLink islands, NUMA nodes and PCIe switches that the pod's GPUs are
// spread over, cost by the nodes' rule, cost by the GPUs' rule, best fit, name of the node, index
// of the GPU), the lower first. How full a GPU is, u, is counted in thousandths, by the weights
// below.
//
// Expected use decides among places that are nearly as good, and never against a constraint. A
// GPU's expected use is the sum over its pods of PodRequest::expected_use where that is known, else
// of what they request, plus Card::beyond; its excess with the pod on it is what is beyond 1:
//
//   excess = max(0, expected use of its pods + expected use of the pod - 1), in GPUs
//
// Where the rule's choice has an excess, summed over the pod's GPUs and rounded to 0.05, the place
// with the least one is taken among those that are spread over no more of these and cost at most
// `use_distance` more; of equals the one that the rule likes best. That is so for rules that price
// what is lost (fgd, remainder, scarcity), where nodes and GPUs go by the same one. Where nothing
// is known, requests are all that is expected, there is no excess, and the choice is the rule's.
#ifndef BATON_DEVMGR_PLACEMENT_POLICY_H_
#define BATON_DEVMGR_PLACEMENT_POLICY_H_

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace baton::devmgr {

enum class Rule : uint8_t {
  kBinpack,   // best fit: nodes with the least left, GPUs on which the sum of u^2 grows most
  kSpread,    // nodes with the most left, GPUs on which the sum of u^2 grows least
  kFirstFit,  // the first by name
  kRandom,    // any, by the seed
  // Fragmentation gradient descent (devmgr/placement/fragmentation.h): what of the free GPU time
  // pods of the usual mix could not use grows least. In steps of 0.08 of a GPU: less is noise.
  kFragmentation,
  // What the usual pods would leave over, were they to fill the node, grows least. Better than that
  // where pods only come, and few of them ask for several GPUs; else worse (docs/results).
  kRemainder,
  // What the usual pods could use loses least, each class of them weighed by what it asks for
  // beside what there is for it (the same header); in steps of 0.04 of a GPU, then the node with
  // the least left. The default.
  kScarcity,
};

struct PlacementPolicy {
  Rule nodes = Rule::kScarcity;
  Rule cards = Rule::kScarcity;
  // u = memory_weight x used memory + share_weight x used share, in thousandths; their sum is 1
  // 000.
  uint32_t memory_weight = 700;
  uint32_t share_weight = 300;
  // In thousandths of a GPU, 0 to 1 000: see above; 0: expected use decides nothing.
  uint32_t use_distance = 10;
  uint64_t seed = 0;  // of kRandom

  friend bool operator==(const PlacementPolicy&, const PlacementPolicy&) = default;
};

// Whether costs by this rule are what is lost, in units of Mix::kLossUnit.
inline bool ByLoss(Rule rule) {
  return rule == Rule::kFragmentation || rule == Rule::kRemainder || rule == Rule::kScarcity;
}

// "scarcity", "fgd", "remainder", "binpack", "spread", "first-fit", "random". kInvalid names what
// there is.
Result<Rule> ParseRule(std::string_view text);
std::string_view RuleName(Rule rule);

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_POLICY_H_
