// Which PersistentVolumes the claims of pods are bound to, where those can be used, and where a
// volume can be made that waits for its first consumer. Pure.
#ifndef BATON_K8S_CLUSTER_VOLUMES_H_
#define BATON_K8S_CLUSTER_VOLUMES_H_

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "k8s/api/object.h"
#include "k8s/cluster/node_filter.h"

namespace baton::k8s {

// The annotation of a claim by which kube-scheduler tells its provisioner where its pod will be.
inline constexpr std::string_view kSelectedNode = "volume.kubernetes.io/selected-node";

class Volumes {
 public:
  void SetClaim(const Json& claim, Instant now);
  void RemoveClaim(const Json& claim);
  void SetVolume(const Json& volume);
  void RemoveVolume(const Json& volume);
  void SetClass(const Json& storage_class);
  void RemoveClass(const Json& storage_class);

  // The needs of a pod of that namespace with what its claims say; `claims` is empty then. A claim
  // that waits for its first consumer allows the nodes that its class does: once its provisioner
  // was told of a node only that one, and for a minute after it gave up on a node all others.
  // kNotFound, kUnavailable: a sentence for its user.
  Result<PodNeeds> Resolve(const std::string& name_space, const PodNeeds& needs) const;

  // Some provisioner may try the node again that it gave up. To be called at next_retry().
  bool Retry(Instant now);
  Instant next_retry() const { return retries_.empty() ? kNever : retries_.begin()->first; }

  // What is missing before such a pod, which Resolve() lets go there, can be bound to `node`.
  struct Missing {
    std::string claim;  // empty: nothing
    bool tell = false;  // its provisioner is to be told of the node; else it is at work
  };
  Missing MissingOn(const std::string& node, const std::string& name_space,
                    const PodNeeds& needs) const;

 private:
  struct Claim {
    std::string version;
    std::string volume;  // empty: not bound
    std::string storage_class;
    std::string selected;   // node
    std::string failed_on;  // the node that its provisioner gave up last
    Instant retry_at{};     // and until when it counts
  };
  struct Class {
    bool waits = false;  // for the first consumer
    std::string provisioner;
    std::vector<NodeTerm> topologies;  // one of them; none: any
  };
  // The terms that a claim without a volume adds.
  Result<std::vector<std::vector<NodeTerm>>> TermsOf(const std::string& name,
                                                     const Claim& claim) const;

  std::map<std::string, Claim> claims_;                // by "namespace/claim"
  std::set<std::pair<Instant, std::string>> retries_;  // of claims whose provisioner gave up
  std::map<std::string, std::vector<NodeTerm>> volumes_;
  std::map<std::string, Class> classes_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_CLUSTER_VOLUMES_H_
