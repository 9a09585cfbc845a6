// The ResourceQuotas of namespaces, as far as they count GPUs. The API server counts the limits
// with which pods were created; the binder counts what they have now, which may be more, before it
// gives more. Pure.
#ifndef BATON_K8S_CLUSTER_QUOTAS_H_
#define BATON_K8S_CLUSTER_QUOTAS_H_

#include <map>
#include <string>

#include "k8s/api/object.h"
#include "k8s/types/quota.h"

namespace baton::k8s {

class Quotas {
 public:
  void Set(const Json& quota);
  void Remove(const Json& quota);

  bool HasAny(const std::string& name_space) const { return quotas_.contains(name_space); }
  // Why a pod of the namespace that is charged `now` cannot be charged `wanted` while others are
  // charged `others`; empty: it can.
  std::string WhyNot(const std::string& name_space, const GpuCharge& others, const GpuCharge& now,
                     const GpuCharge& wanted) const;

 private:
  std::map<std::string, std::map<std::string, GpuQuota>> quotas_;  // by namespace and name
};

}  // namespace baton::k8s

#endif  // BATON_K8S_CLUSTER_QUOTAS_H_
