// What the namespace of a review may ask for, by the operator's word and by its ResourceQuotas; and
// who asks, by the API server's word. Asks nothing but the facts that it is given; never throws.
#ifndef BATON_K8S_WEBHOOK_TENANT_H_
#define BATON_K8S_WEBHOOK_TENANT_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "k8s/types/annotations.h"
#include "k8s/types/quota.h"
#include "k8s/types/tenancy.h"
#include "k8s/webhook/facts.h"

namespace baton::k8s {

struct TenantOptions {
  TenancyOptions tenancy;
  std::shared_ptr<ClusterFacts> facts;  // null: nothing is checked here
  uint32_t memory_unit_mib = kMemoryUnitMib;
  bool check_quotas = true;
};

// Of a pod, or of a SharePod, what needs the operator's word.
struct TenantWishes {
  std::string team;
  std::string user;
  std::string priority;
  std::string mode;
  std::string away;
  std::string priority_class;
  std::string uuid;
  std::string not_uuid;
};

class Tenant {
 public:
  // `user_name`: who asks, as the API server knows. The options outlive it.
  Tenant(const TenantOptions& options, std::string name_space, std::string user_name)
      : options_(options), name_space_(std::move(name_space)), user_name_(std::move(user_name)) {}

  // Sets team and user of something new as they are by the operator's and the API server's word.
  // What is said otherwise stays where CheckWishes() refuses it with a sentence. kUnavailable.
  Result<void> Complete(TenantWishes& wishes);

  // What is not as in `was` (null: it is new) is checked. `field`: what a wish is called in
  // sentences, by its key (k8s/types/annotations.h; "priorityClassName"). kInvalid, kDenied,
  // kUnavailable.
  Result<void> CheckWishes(const TenantWishes& is, const TenantWishes* was,
                           const std::function<std::string(std::string_view)>& field);

  // The pod of that name, which is there, is charged `now` and asks for `wanted`. kDenied.
  Result<void> CheckQuota(const std::string& pod, const GpuCharge& now, const GpuCharge& wanted);

 private:
  Result<const NamespaceRules*> Rules();
  // The user of what this requester makes; empty: a controller, which makes it for others.
  std::string Requester() const;

  const TenantOptions& options_;
  const std::string name_space_;
  const std::string user_name_;
  std::optional<NamespaceRules> rules_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_WEBHOOK_TENANT_H_
