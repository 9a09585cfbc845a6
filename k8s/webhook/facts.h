// What a review may ask of the cluster beside what it is sent.
#ifndef BATON_K8S_WEBHOOK_FACTS_H_
#define BATON_K8S_WEBHOOK_FACTS_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "devmgr/placement/request.h"
#include "k8s/api/object.h"

namespace baton::k8s {

// Thread safe. Each fails with kUnavailable where the API server does not answer in time.
class ClusterFacts {
 public:
  virtual ~ClusterFacts() = default;
  virtual Result<Json> Namespace(const std::string& name) = 0;
  // Of a namespace.
  virtual Result<std::vector<Json>> Quotas(const std::string& name_space) = 0;
  virtual Result<std::vector<Json>> Pods(const std::string& name_space) = 0;
  // Of a batch scheduler, by its own kind. kNotFound: there is none, or no such kind.
  virtual Result<Json> PodGroup(const Resource& resource, const ObjectName& name) = 0;
  // The PriorityClass that the API server writes into pods that name none, before the webhook sees
  // them; empty: there is none, or this program may not know.
  virtual Result<std::string> DefaultPriorityClass() = 0;
  // kExhausted: the pod asks for more than its team may ever use; a sentence. What is known of
  // Teams counts, so it never waits.
  virtual Result<void> AdmitEver(const devmgr::PodRequest& request) = 0;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_WEBHOOK_FACTS_H_
