// ClusterFacts of an API server: namespaces, PriorityClasses and Teams are watched, the rest is
// asked for when it is needed.
#ifndef BATON_K8S_WEBHOOK_API_FACTS_H_
#define BATON_K8S_WEBHOOK_API_FACTS_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "k8s/api/reflector.h"
#include "k8s/types/team.h"
#include "k8s/webhook/facts.h"

namespace baton::k8s {

class ApiFacts : public ClusterFacts {
 public:
  // `client` outlives it; its timeout is what a review waits for at most.
  explicit ApiFacts(Client& client);
  ~ApiFacts() override;

  // One that was not seen yet is asked for.
  Result<Json> Namespace(const std::string& name) override;
  Result<std::vector<Json>> Quotas(const std::string& name_space) override;
  // From the API server's cache, which may be a moment behind; what is in force is decided by the
  // binder, which knows better.
  Result<std::vector<Json>> Pods(const std::string& name_space) override;
  Result<Json> PodGroup(const Resource& resource, const ObjectName& name) override;
  // Asked for while they have not been listed.
  Result<std::string> DefaultPriorityClass() override;
  Result<void> AdmitEver(const devmgr::PodRequest& request) override;

 private:
  Result<std::vector<Json>> List(const Resource& resource, const std::string& name_space);

  Client& client_;
  std::mutex mutex_;
  std::map<std::string, Json> namespaces_;          // under mutex_
  TeamSet teams_;                                   // likewise,
  bool teams_listed_ = false;                       // and this: none is in force before
  std::map<std::string, int64_t> default_classes_;  // values by name; likewise,
  bool classes_listed_ = false;                     // and this
  std::optional<Reflector> watch_;
  std::optional<Reflector> class_watch_;
  std::optional<Reflector> team_watch_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_WEBHOOK_API_FACTS_H_
