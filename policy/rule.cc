#include "policy/rule.h"

#include <string>
#include <tuple>

#include "base/check.h"

namespace baton::policy {
namespace {

constexpr struct {
  Rule rule;
  std::string_view name;
} kNames[] = {{Rule::kEarliestFinish, "earliest-finish"},
              {Rule::kLargestLag, "largest-lag"},
              {Rule::kStartTime, "start-time"},
              {Rule::kWindow, "window"}};

// Rank and key of a pod under a rule; lower goes first.
std::tuple<bool, int64_t, PodId> Place(Rule rule, const Standing& pod) {
  switch (rule) {
    case Rule::kEarliestFinish:
      return {!pod.owed, pod.owed ? pod.finish : pod.eligible, pod.id};
    case Rule::kLargestLag:
      return {false, -pod.lag_ns, pod.id};
    case Rule::kStartTime:
      return {false, pod.eligible, pod.id};
    case Rule::kWindow:
      return {false, -pod.window_ns, pod.id};
  }
  BATON_CHECK(!"a rule that is none");
  return {};
}

}  // namespace

Result<Rule> ParseRule(std::string_view name) {
  std::string names;
  for (const auto& known : kNames) {
    if (known.name == name) return known.rule;
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  return Fail(ErrorCode::kInvalid, "'" + std::string(name) + "' is no rule; write one of " + names);
}

std::string_view FormatRule(Rule rule) {
  for (const auto& known : kNames) {
    if (known.rule == rule) return known.name;
  }
  BATON_CHECK(!"a rule that is none");
  return {};
}

bool IsDue(Rule rule, const Standing& pod) {
  return rule == Rule::kWindow ? pod.window_ns >= 0 : pod.owed;
}

bool GoesBefore(Rule rule, const Standing& a, const Standing& b) {
  return Place(rule, a) < Place(rule, b);
}

}  // namespace baton::policy
