// Whom to prefer among the pods that wait: four rules side by side, over the same accounts. The
// default is what Baton promises its bounds for; the others exist so that it can be compared.
//
// Limits, high priority, admission, credits and debts are the same for every rule: a rule is only
// the order in which pods that may hold go. Pure; thread safe.
#ifndef BATON_POLICY_RULE_H_
#define BATON_POLICY_RULE_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"

namespace baton::policy {

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

// Where a waiting pod stands, as far as rules look at it. Virtual times are FairQueue's.
struct Standing {
  PodId id;
  bool owed = false;      // lag >= 0
  int64_t lag_ns = 0;     // held time that it is owed
  int64_t eligible = 0;   // virtual time at which its lag is 0: the start tag of its next hold
  int64_t finish = 0;     // virtual time at which the fluid GPU would finish its next hold
  int64_t window_ns = 0;  // its share of the window, less the held time that it had in it
};

// Whether the pod is not ahead of its share, by what the rule goes by.
bool IsDue(Rule rule, const Standing& pod);
// Whether `a` goes before `b`: a strict order of pods with different ids.
bool GoesBefore(Rule rule, const Standing& a, const Standing& b);

}  // namespace baton::policy

#endif  // BATON_POLICY_RULE_H_
