#include "world/rule.h"

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>

#include "base/check.h"

namespace baton::world {
namespace {

using policy::Standing;

constexpr struct {
  Rule rule;
  std::string_view name;
} kRuleNames[] = {{Rule::kEarliestFinish, "earliest-finish"},
                  {Rule::kLargestLag, "largest-lag"},
                  {Rule::kStartTime, "start-time"},
                  {Rule::kWindow, "window"}};

template <Rule rule>
std::unique_ptr<policy::PickOrder> Make() {
  return std::make_unique<RuleOrder>(rule);
}

}  // namespace

Result<Rule> ParseRule(std::string_view name) {
  std::string names;
  for (const auto& known : kRuleNames) {
    if (known.name == name) return known.rule;
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  return Fail(ErrorCode::kInvalid, "'" + std::string(name) + "' is no rule; write one of " + names);
}

std::string_view FormatRule(Rule rule) {
  for (const auto& known : kRuleNames) {
    if (known.rule == rule) return known.name;
  }
  BATON_CHECK(!"a rule that is none");
  return {};
}

policy::MakePickOrder OrderOf(Rule rule) {
  switch (rule) {
    case Rule::kEarliestFinish:
      return nullptr;
    case Rule::kLargestLag:
      return Make<Rule::kLargestLag>;
    case Rule::kStartTime:
      return Make<Rule::kStartTime>;
    case Rule::kWindow:
      return Make<Rule::kWindow>;
  }
  BATON_CHECK(!"a rule that is none");
  return nullptr;
}

void RuleOrder::Charged(PodId pod, Duration held) {
  if (rule_ != Rule::kWindow) return;
  window_.push_back({pod, Nanos(held)});
  held_ns_[pod] += Nanos(held);
  window_sum_ns_ += Nanos(held);
  while (window_sum_ns_ > Nanos(kUsageWindow)) {
    Hold& oldest = window_.front();
    // A refund leaves as a whole.
    const int64_t part = std::min(oldest.held_ns, window_sum_ns_ - Nanos(kUsageWindow));
    held_ns_[oldest.pod] -= part;
    window_sum_ns_ -= part;
    oldest.held_ns -= part;
    if (oldest.held_ns == 0) window_.pop_front();
  }
}

bool RuleOrder::IsDue(const Standing& pod) const {
  return rule_ == Rule::kWindow ? Lacks(pod) >= 0 : pod.owed;
}

bool RuleOrder::GoesBefore(const Standing& a, const Standing& b) const {
  // Rank and key of a pod; lower goes first.
  const auto place = [this](const Standing& pod) -> std::tuple<bool, int64_t, PodId> {
    switch (rule_) {
      case Rule::kEarliestFinish:
        return {!pod.owed, pod.owed ? pod.finish : pod.eligible, pod.id};
      case Rule::kLargestLag:
        return {false, -pod.lag_ns, pod.id};
      case Rule::kStartTime:
        return {false, pod.eligible, pod.id};
      case Rule::kWindow:
        return {false, -Lacks(pod), pod.id};
    }
    BATON_CHECK(!"a rule that is none");
    return {};
  };
  return place(a) < place(b);
}

int64_t RuleOrder::Lacks(const Standing& pod) const {
  const auto held = held_ns_.find(pod.id);
  const int64_t due = pod.fluid.millionths() * window_sum_ns_ / int64_t(pod.fluid_sum.millionths());
  return due - (held == held_ns_.end() ? 0 : held->second);
}

}  // namespace baton::world
