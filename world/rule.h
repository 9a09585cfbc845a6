// Whom to prefer among the pods that wait: four rules to compare, over the same accounts. The first
// is Baton's own, for which it promises its bounds.
//
// Limits, high priority, admission, credits and debts are the same for every rule: a rule is only
// the order in which pods that may hold go.
#ifndef BATON_WORLD_RULE_H_
#define BATON_WORLD_RULE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "policy/pick_order.h"

namespace baton::world {

enum class Rule : uint8_t {
  // Of the pods that are owed time the one whose fluid GPU would finish its next hold earliest; if
  // none is owed any, the one least ahead relative to its share. Earliest Eligible Virtual Deadline
  // First (Stoica, Abdel-Wahab, 1995).
  kEarliestFinish,
  // The pod that is owed the most time.
  kLargestLag,
  // The pod that is least ahead relative to its share, owed time or not: the least start tag.
  // Start-time Fair Queueing (Goyal, Vin, Cheng, 1996).
  kStartTime,
  // The pod furthest below its share of what the GPU gave out last (kUsageWindow), the classical
  // choice of GPU token schedulers (KubeShare, Gemini).
  kWindow,
};
inline constexpr std::array kRules{Rule::kEarliestFinish, Rule::kLargestLag, Rule::kStartTime,
                                   Rule::kWindow};

// What Rule::kWindow looks back on, in held time of the GPU.
inline constexpr Duration kUsageWindow = std::chrono::seconds(10);

// "earliest-finish", "largest-lag", "start-time", "window".
Result<Rule> ParseRule(std::string_view name);
std::string_view FormatRule(Rule rule);

// A rule as the order of a FairQueue, kEarliestFinish too: it gives what the queue's own heaps do.
class RuleOrder : public policy::PickOrder {
 public:
  explicit RuleOrder(Rule rule) : rule_(rule) {}

  void Charged(PodId pod, Duration held) override;
  bool IsDue(const policy::Standing& pod) const override;
  bool GoesBefore(const policy::Standing& a, const policy::Standing& b) const override;

 private:
  struct Hold {
    PodId pod;
    int64_t held_ns;
  };
  // The pod's share of the window, less the held time that it had in it.
  int64_t Lacks(const policy::Standing& pod) const;

  const Rule rule_;
  // For Rule::kWindow.
  std::deque<Hold> window_;  // the last kUsageWindow of held time, oldest first
  int64_t window_sum_ns_ = 0;
  std::map<PodId, int64_t> held_ns_;  // of it, by pod
};

// FairQueueOptions::order by which a queue goes by this rule; null for its own.
policy::MakePickOrder OrderOf(Rule rule);

}  // namespace baton::world

#endif  // BATON_WORLD_RULE_H_
