// What the operator has said about a namespace: whose it is, and what its pods may ask for. It
// stands in labels of the Namespace, which tenants cannot write, and in rules by name. Pure.
#ifndef BATON_K8S_TYPES_TENANCY_H_
#define BATON_K8S_TYPES_TENANCY_H_

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "k8s/api/object.h"

namespace baton::k8s {

// What needs the operator's word where it is restricted: label baton.dev/allow-WORD=true.
namespace grants {
inline constexpr std::string_view kHighPriority = "high-priority";  // priority: high
inline constexpr std::string_view kExclusive = "exclusive";         // mode: exclusive
inline constexpr std::string_view kAwayOpen = "away-open";          // away: open
inline constexpr std::string_view kUser = "user";                   // to name another user
// To take room by a PriorityClass, which preempts pods of all namespaces.
inline constexpr std::string_view kPriorityClass = "priority-class";
// To name GPUs by uuid: who chooses a GPU chooses its neighbours.
inline constexpr std::string_view kGpuUuid = "gpu-uuid";
}  // namespace grants

// The team of a namespace, with "." for "/", which a label's value cannot have.
inline constexpr std::string_view kTeamLabel = "baton.dev/team";

struct TenancyOptions {
  std::set<std::string, std::less<>> restricted;  // of grants
  // Teams by patterns of namespaces' names ("vision-*"), the first that fits; the label wins.
  std::vector<std::pair<std::string, std::string>> teams;

  bool IsOn() const { return !restricted.empty() || !teams.empty(); }
};

// "high-priority,away-open". kInvalid names the word.
Result<std::set<std::string, std::less<>>> ParseGrants(std::string_view text);
// "vision-*=research/vision": `*` stands for any text. kInvalid.
Result<std::pair<std::string, std::string>> ParseTeamRule(std::string_view text);

struct NamespaceRules {
  std::string team;  // its pods are of this team or below it; empty: of any
  std::set<std::string, std::less<>> granted;

  bool Allows(const TenancyOptions& options, std::string_view grant) const {
    return !options.restricted.contains(grant) || granted.contains(grant);
  }
};
NamespaceRules RulesOf(const Json& name_space, const TenancyOptions& options);

}  // namespace baton::k8s

#endif  // BATON_K8S_TYPES_TENANCY_H_
