// What teams are guaranteed and may have at most, reckoned anew: what devmgr/placement/quota.h
// promises, by code of its own.
#ifndef BATON_TESTS_K8S_WORLDS_GUARANTEES_H_
#define BATON_TESTS_K8S_WORLDS_GUARANTEES_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "devmgr/placement/quota.h"
#include "tests/k8s/worlds/fit.h"

namespace baton::k8s::testing {

bool IsIn(const std::string& team, const std::string& above);
std::string TeamOf(const devmgr::PlacedPod& pod);

// What teams are guaranteed, and which pods that covers.
class Guarantees {
 public:
  Guarantees(const std::vector<devmgr::Quota>& quotas, const Pods& pods);

  // Whether so much more is within the guarantee of the team or of one above it.
  bool Entitled(const std::string& team, const Sum& more) const;
  // Whether the pod may have to go for one of `team` that is entitled to `more`.
  bool Reclaimable(const devmgr::PlacedPod& pod, const std::string& team, const Sum& more) const;
  // The same once these have gone.
  bool EntitledWithout(const std::string& team, const Sum& more, const Pods& gone) const;
  // Whether a guarantee covers it; and whether one that `team` has no part in does.
  bool Covered(const std::string& pod) const { return covered_by_.contains(pod); }
  bool Protected(const std::string& pod, const std::string& team) const;
  // The path of a team whose ceiling so much more would break; empty: none. `gone`: pods that go.
  std::string Broken(const std::string& team, const Sum& more, const Pods& gone = {}) const;

 private:
  // What those of the quota's team would use with so much more, once these have gone.
  Sum UseWith(const devmgr::Quota& quota, Sum more, const Pods& gone) const;
  const devmgr::Quota* Guarantor(const std::string& team, const Sum& more) const;

  const std::vector<devmgr::Quota>& quotas_;
  std::map<std::string, Sum> uses_;                          // by the quota's path
  std::map<std::string, std::set<std::string>> covered_by_;  // paths by pod
};

}  // namespace baton::k8s::testing

#endif  // BATON_TESTS_K8S_WORLDS_GUARANTEES_H_
