// By what a place for a pod is chosen among those that would do.
//
// Places are compared by (islands and NUMA nodes that the pod's cards are spread over, cost by the
// rule, best fit, name of the node, index of the card), the lower first. u is how full a node or
// card is, by the weights below, in thousandths.
#ifndef BATON_DEVMGR_POLICY_H_
#define BATON_DEVMGR_POLICY_H_

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace baton::devmgr {

enum class Rule : uint8_t {
  kBinpack,   // the fullest: the sum of u^2 grows most
  kSpread,    // the emptiest: the sum of u^2 grows least
  kFirstFit,  // the first by name
  kRandom,    // any, by the seed
  // The least fragmentation: what of the free GPU time the pods of the usual mix could not use,
  // averaged over the mix, grows least (Weng et al., "Beware of Fragmentation", ATC'23).
  kFragmentation,
};

struct PlacementPolicy {
  Rule nodes = Rule::kFragmentation;
  Rule cards = Rule::kFragmentation;
  // u = memory_weight x used memory + share_weight x used share, in thousandths; their sum is 1
  // 000.
  uint32_t memory_weight = 700;
  uint32_t share_weight = 300;
  uint64_t seed = 0;  // of kRandom

  friend bool operator==(const PlacementPolicy&, const PlacementPolicy&) = default;
};

// "binpack", "spread", "first-fit", "random", "fgd". kInvalid names what there is.
Result<Rule> ParseRule(std::string_view text);
std::string_view RuleName(Rule rule);

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_POLICY_H_
