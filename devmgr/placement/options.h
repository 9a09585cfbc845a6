// Where pods go that do not name their GPUs.
#ifndef BATON_DEVMGR_PLACEMENT_OPTIONS_H_
#define BATON_DEVMGR_PLACEMENT_OPTIONS_H_

#include <cstdint>
#include <string>

#include "base/result.h"
#include "devmgr/placement/policy.h"
#include "policy/share.h"

namespace baton::devmgr {

struct PlacementOptions {
  PlacementPolicy policy;
  // TOML that says how models are divided by MIG, beside what is built in
  // (devmgr/modes/mig_templates.h); empty: none.
  std::string mig_templates;

  // Shows `v` each key of [placement] (config/options.h).
  template <class V>
  void Visit(V& v) {
    const auto rule = [&v](const char* key, Rule& value, const char* comment) {
      std::string name(RuleName(value));
      v.Choice(key, name,
               {"scarcity", "fgd", "remainder", "binpack", "spread", "first-fit", "random"},
               comment);
      if (auto parsed = ParseRule(name)) value = *parsed;
    };
    const auto weight = [&v](const char* key, uint32_t& thousandths, const char* comment) {
      policy::Share part = policy::kShareMin * thousandths;
      v.Ratio(key, part, 0, 1, comment);
      thousandths = (part + policy::kShareMin / 2) / policy::kShareMin;
    };
    rule("nodes", policy.nodes,
         "Rules for a pod's node, and for its GPUs on that node. scarcity, fgd and remainder: the "
         "rest\n"
         "stays most useful for pods like those seen so far; binpack: least room left; spread: "
         "most room\n"
         "left; first-fit: by name; random.");
    rule("cards", policy.cards, nullptr);
    weight("memory_weight", policy.memory_weight,
           "How full a GPU is: memory_weight * memory caps + share_weight * requests. Their sum is "
           "1.");
    weight("share_weight", policy.share_weight, nullptr);
    weight("use_distance", policy.use_distance,
           "Among places that cost at most this much of a GPU more by the rule, pods go where the "
           "expected\n"
           "use of GPUs is least above 1. 0: expected use decides nothing.");
    v.Text("mig_templates", mig_templates,
           "File of MIG geometries by model, which replaces or extends the built-in ones.");
  }

  // What must hold between them. kInvalid.
  Result<void> Check() const {
    if (policy.memory_weight + policy.share_weight == 1'000) return {};
    return Fail(ErrorCode::kInvalid,
                "placement.memory_weight and placement.share_weight must add up to 1");
  }
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_OPTIONS_H_
