#include "k8s/types/tenancy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/suggest.h"
#include "base/team_path.h"
#include "k8s/types/read.h"

namespace baton::k8s {
namespace {

constexpr std::array kGrants{grants::kHighPriority, grants::kExclusive,     grants::kAwayOpen,
                             grants::kUser,         grants::kPriorityClass, grants::kGpuUuid};

bool Fits(std::string_view pattern, std::string_view text) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == text;
  if (text.substr(0, star) != pattern.substr(0, star)) return false;
  pattern.remove_prefix(star + 1);
  for (size_t at = star; at <= text.size(); ++at) {
    if (Fits(pattern, text.substr(at))) return true;
  }
  return false;
}

}  // namespace

Result<std::set<std::string, std::less<>>> ParseGrants(std::string_view text) {
  std::set<std::string, std::less<>> words;
  for (const std::string& word : Words(text)) {
    if (std::find(kGrants.begin(), kGrants.end(), word) == kGrants.end()) {
      const std::string near =
          Nearest(word, std::vector<std::string>(kGrants.begin(), kGrants.end()));
      return Fail(
          ErrorCode::kInvalid,
          fmt::format("{} cannot be restricted; write {}{}", Quoted(word), fmt::join(kGrants, ", "),
                      near.empty() ? "" : "; did you mean '" + near + "'?"));
    }
    words.insert(word);
  }
  return words;
}

Result<std::pair<std::string, std::string>> ParseTeamRule(std::string_view text) {
  const size_t at = text.find('=');
  const std::string pattern(text.substr(0, at));
  std::string team = at == std::string_view::npos ? "" : TeamPath(text.substr(at + 1));
  const auto stars = std::count(pattern.begin(), pattern.end(), '*');
  if (pattern.empty() || pattern.size() > 63 || team.empty() || stars > 4) {
    return Fail(ErrorCode::kInvalid,
                Quoted(text) + " is not NAMESPACE=TEAM; write such as vision-*=research/vision");
  }
  return std::pair(pattern, std::move(team));
}

NamespaceRules RulesOf(const Json& name_space, const TenancyOptions& options) {
  NamespaceRules rules;
  const Json* labels = Find(name_space, "metadata/labels");
  const auto label = [&](const std::string& key) -> std::string {
    if (labels == nullptr || !labels->is_object()) return "";
    const auto found = labels->find(key);
    return found != labels->end() && found->is_string() ? found->get<std::string>() : "";
  };
  std::string team = label(std::string(kTeamLabel));
  std::replace(team.begin(), team.end(), '.', '/');
  rules.team = TeamPath(team);
  if (rules.team.empty()) {
    const std::string name = TextAt(name_space, "metadata/name");
    for (const auto& [pattern, of] : options.teams) {
      if (!Fits(pattern, name)) continue;
      rules.team = of;
      break;
    }
  }
  for (const std::string_view grant : kGrants) {
    if (label("baton.dev/allow-" + std::string(grant)) == "true") rules.granted.emplace(grant);
  }
  return rules;
}

}  // namespace baton::k8s
