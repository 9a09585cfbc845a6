#include "devmgr/placement/policy.h"

#include <array>
#include <string>
#include <utility>

namespace baton::devmgr {
namespace {

constexpr std::array<std::pair<Rule, std::string_view>, 7> kRules = {{
    {Rule::kScarcity, "scarcity"},
    {Rule::kFragmentation, "fgd"},
    {Rule::kRemainder, "remainder"},
    {Rule::kBinpack, "binpack"},
    {Rule::kSpread, "spread"},
    {Rule::kFirstFit, "first-fit"},
    {Rule::kRandom, "random"},
}};

}  // namespace

Result<Rule> ParseRule(std::string_view text) {
  std::string known;
  for (const auto& [rule, name] : kRules) {
    if (text == name) return rule;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  return Fail(ErrorCode::kInvalid,
              "there is no placement rule '" + std::string(text) + "'; one of " + known);
}

std::string_view RuleName(Rule rule) {
  for (const auto& [r, name] : kRules) {
    if (r == rule) return name;
  }
  return "?";
}

}  // namespace baton::devmgr
