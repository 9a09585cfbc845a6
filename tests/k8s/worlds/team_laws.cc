// What teams are promised: Laws::CheckCeilings() and CheckTeams().
#include <fmt/format.h>

#include "tests/k8s/binder/objects.h"
#include "tests/k8s/worlds/laws.h"

namespace baton::k8s::testing {

// A restart neither gives a team more nor takes from it what it has: what was decided before counts
// as it was, in the team that its pod has now.
void Laws::CheckCeilings(const std::set<std::string>& placed,
                         const std::set<std::string>& restored) {
  for (const devmgr::Quota& quota : teams_.quotas().all()) {
    Sum now, before;
    std::string grown;
    for (const devmgr::PlacedPod* pod : All()) {
      if (!IsIn(TeamOf(*pod), quota.team)) continue;
      now += SumOf(pod->placement);
      const std::string& name = pod->request.name;
      const auto& earlier = restored.contains(name) ? held_ : before_;
      const auto was = earlier.find(name);
      if (placed.contains(name) && (&earlier == &before_ || was == held_.end())) {
        grown = name;
      } else if (was == earlier.end()) {
        before += SumOf(pod->placement);  // it runs there
      } else {
        const Sum had = SumOf(was->second), has = SumOf(pod->placement);
        before += had;
        if (has.share > had.share || has.memory_mib > had.memory_mib) grown = name;
      }
    }
    if (grown.empty()) continue;
    const bool share = quota.ceiling_share && now.share > *quota.ceiling_share;
    const bool memory = quota.ceiling_memory_mib && now.memory_mib > *quota.ceiling_memory_mib;
    if ((share && now.share > before.share) || (memory && now.memory_mib > before.memory_mib)) {
      Break("ceiling",
            fmt::format("team {} has {} millionths and {} MiB, beyond its ceiling, with {}",
                        quota.team, now.share, now.memory_mib, grown));
    }
  }
}

void Laws::CheckTeams() {
  std::vector<devmgr::Quota> in_force;
  for (const auto& [name, known] : teams_.all()) {
    if (known.in_force) in_force.push_back(known.in_force->quota);
  }
  const auto agree = [](const std::vector<devmgr::Quota>& quotas) {
    std::set<std::string> paths;
    for (const devmgr::Quota& quota : quotas) {
      if (!paths.insert(quota.team).second) return false;
      Sum below;
      for (const devmgr::Quota& other : quotas) {
        if (IsIn(quota.team, other.team)) {
          if (quota.guaranteed_share && other.ceiling_share &&
              *quota.guaranteed_share > *other.ceiling_share) {
            return false;
          }
          if (quota.guaranteed_memory_mib && other.ceiling_memory_mib &&
              *quota.guaranteed_memory_mib > *other.ceiling_memory_mib) {
            return false;
          }
        }
        // Worlds have teams of two levels.
        if (other.team != quota.team && IsIn(other.team, quota.team)) {
          below += {other.guaranteed_share.value_or(0), other.guaranteed_memory_mib.value_or(0)};
        }
      }
      if (quota.guaranteed_share && below.share > *quota.guaranteed_share) return false;
      if (quota.guaranteed_memory_mib && below.memory_mib > *quota.guaranteed_memory_mib) {
        return false;
      }
    }
    return true;
  };
  if (!agree(in_force)) Break("teams", "Teams that do not agree are in force");
  for (const Json& team : world_.All(resources::kTeams)) {
    const std::string name = TextAt(team, "metadata/name");
    const auto read = ReadTeam(team);
    const std::string reason = ReasonOf(team, "InForce");
    if (!read) {
      if (reason != "Invalid") Break("teams", name, " cannot be read, and says ", reason);
      continue;
    }
    std::vector<devmgr::Quota> with;
    for (const auto& [other, known] : teams_.all()) {
      if (other != name && known.in_force) with.push_back(known.in_force->quota);
    }
    with.push_back(read->quota);
    if ((reason == "InForce") != agree(with)) {
      Break("teams", "Team ", name, " says '", reason, "', which is not so");
    }
  }
}

}  // namespace baton::k8s::testing
