// Which PersistentVolumes the claims of pods are bound to, and where those can be used. Pure.
#ifndef BATON_K8S_BINDER_VOLUMES_H_
#define BATON_K8S_BINDER_VOLUMES_H_

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "k8s/api/object.h"
#include "k8s/binder/node_filter.h"

namespace baton::k8s {

class Volumes {
 public:
  void SetClaim(const Json& claim);
  void RemoveClaim(const Json& claim);
  void SetVolume(const Json& volume);
  void RemoveVolume(const Json& volume);

  // The needs of a pod of that namespace with what its claims' volumes say; `claims` is empty then.
  // kNotFound, kUnavailable: a sentence for its user.
  Result<PodNeeds> Resolve(const std::string& name_space, const PodNeeds& needs) const;

 private:
  std::map<std::string, std::string> claims_;  // volumes by "namespace/claim"; empty: not bound
  std::map<std::string, std::vector<NodeTerm>> volumes_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_VOLUMES_H_
