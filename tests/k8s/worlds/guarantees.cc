#include "tests/k8s/worlds/guarantees.h"

#include <algorithm>
#include <tuple>

namespace baton::k8s::testing {
namespace {

bool Within(const Sum& sum, const std::optional<uint64_t>& share,
            const std::optional<uint64_t>& memory_mib) {
  return (!share || sum.share <= *share) && (!memory_mib || sum.memory_mib <= *memory_mib);
}

}  // namespace

bool IsIn(const std::string& team, const std::string& above) {
  return above.empty() || team == above || team.starts_with(above + "/");
}

std::string TeamOf(const devmgr::PlacedPod& pod) {
  return pod.request.team.empty() ? "default" : pod.request.team;
}

Guarantees::Guarantees(const std::vector<devmgr::Quota>& quotas, const Pods& pods)
    : quotas_(quotas) {
  // Those that are further down come first.
  std::vector<const devmgr::Quota*> order;
  for (const devmgr::Quota& quota : quotas) order.push_back(&quota);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::count(a->team.begin(), a->team.end(), '/') >
           std::count(b->team.begin(), b->team.end(), '/');
  });
  for (const devmgr::Quota* quota : order) {
    Pods mine;
    for (const devmgr::PlacedPod* pod : pods) {
      if (!IsIn(TeamOf(*pod), quota->team)) continue;
      mine.push_back(pod);
      uses_[quota->team] += SumOf(pod->placement);
    }
    if (!quota->guarantees()) continue;
    const auto rank = [&](const devmgr::PlacedPod* pod) {
      return std::tuple(!covered_by_.contains(pod->request.name), -int64_t{pod->request.priority},
                        pod->request.name);
    };
    std::sort(mine.begin(), mine.end(),
              [&](const auto* a, const auto* b) { return rank(a) < rank(b); });
    Sum covered;
    std::vector<std::string> names;
    for (const devmgr::PlacedPod* pod : mine) {
      Sum with = covered;
      with += SumOf(pod->placement);
      if (!Within(with, quota->guaranteed_share, quota->guaranteed_memory_mib)) continue;
      covered = with;
      names.push_back(pod->request.name);
    }
    for (const std::string& name : names) covered_by_[name].insert(quota->team);
  }
}

Sum Guarantees::UseWith(const devmgr::Quota& quota, Sum more, const Pods& gone) const {
  if (const auto use = uses_.find(quota.team); use != uses_.end()) more += use->second;
  for (const devmgr::PlacedPod* pod : gone) {
    if (!IsIn(TeamOf(*pod), quota.team)) continue;
    more.share -= SumOf(pod->placement).share;
    more.memory_mib -= SumOf(pod->placement).memory_mib;
  }
  return more;
}

const devmgr::Quota* Guarantees::Guarantor(const std::string& team, const Sum& more) const {
  const devmgr::Quota* lowest = nullptr;
  for (const devmgr::Quota& quota : quotas_) {
    if (!quota.guarantees() || !IsIn(team, quota.team)) continue;
    const Sum with = UseWith(quota, more, {});
    if (!Within(with, quota.guaranteed_share, quota.guaranteed_memory_mib)) continue;
    if (lowest == nullptr || quota.team.size() > lowest->team.size()) lowest = &quota;
  }
  return lowest;
}

bool Guarantees::Entitled(const std::string& team, const Sum& more) const {
  return Guarantor(team, more) != nullptr;
}

bool Guarantees::EntitledWithout(const std::string& team, const Sum& more, const Pods& gone) const {
  return std::any_of(quotas_.begin(), quotas_.end(), [&](const devmgr::Quota& quota) {
    if (!quota.guarantees() || !IsIn(team, quota.team)) return false;
    const Sum with = UseWith(quota, more, gone);
    return Within(with, quota.guaranteed_share, quota.guaranteed_memory_mib);
  });
}

bool Guarantees::Protected(const std::string& pod, const std::string& team) const {
  const auto by = covered_by_.find(pod);
  return by != covered_by_.end() &&
         std::any_of(by->second.begin(), by->second.end(),
                     [&](const std::string& path) { return !IsIn(team, path); });
}

bool Guarantees::Reclaimable(const devmgr::PlacedPod& pod, const std::string& team,
                             const Sum& more) const {
  const devmgr::Quota* guarantor = Guarantor(team, more);
  return guarantor != nullptr && !IsIn(TeamOf(pod), guarantor->team) &&
         !Protected(pod.request.name, team);
}

std::string Guarantees::Broken(const std::string& team, const Sum& more, const Pods& gone) const {
  for (const devmgr::Quota& quota : quotas_) {
    if (!IsIn(team, quota.team)) continue;
    const Sum with = UseWith(quota, more, gone);
    // Of what it asks nothing more of there is nothing to refuse.
    const auto over = [](uint64_t asked, uint64_t sum, const std::optional<uint64_t>& ceiling) {
      return ceiling && asked > 0 && sum > *ceiling;
    };
    if (over(more.share, with.share, quota.ceiling_share) ||
        over(more.memory_mib, with.memory_mib, quota.ceiling_memory_mib)) {
      return quota.team;
    }
  }
  return "";
}

}  // namespace baton::k8s::testing
