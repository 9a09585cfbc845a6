// What the webhook answers: a review of the API server in, its verdict out. Asks nothing but the
// facts that it is given; never throws.
#ifndef BATON_K8S_WEBHOOK_ADMISSION_H_
#define BATON_K8S_WEBHOOK_ADMISSION_H_

#include <memory>
#include <string>
#include <string_view>

#include "k8s/types/foreign_names.h"
#include "k8s/types/inject.h"
#include "k8s/types/tenancy.h"
#include "k8s/webhook/batch.h"
#include "k8s/webhook/facts.h"
#include "teams/tree.h"

namespace baton::k8s {

struct AdmissionOptions {
  InjectOptions inject;
  ForeignOptions foreign;  // other projects' names, in pods that are created
  // Their queues and pod groups, of what is created, where Baton's own words name no team or gang.
  // Pod groups need `facts`.
  BatchOptions batch;
  // Baton's own: its pods are left alone, and its service accounts may write placements.
  std::string own_namespace = "baton-system";
  // Null: any team is good. Else one must be named in it, or stand above one that is.
  std::shared_ptr<const teams::Teams> teams;
  // What the operator says of namespaces. It needs `facts`.
  TenancyOptions tenancy;
  // Null: namespaces and their ResourceQuotas are not looked at.
  std::shared_ptr<ClusterFacts> facts;
  bool check_quotas = true;  // live changes, against ResourceQuotas; it needs `facts`
};

enum class AdmissionKind : uint8_t {
  // Pods that are created: other projects' names become Baton's (k8s/types/translate.h), with a
  // warning that says how; what the hook needs is put in (Inject()). Pods and SharePods that are
  // created: team and user, as the operator and the API server say; team and gang, as batch
  // schedulers' words say (k8s/webhook/batch.h). SharePods, also where they
  // change: what their flavors say.
  kMutate,
  kValidate,  // pods and SharePods, created or updated, and pods' ephemeral containers
};

struct AdmissionVerdict {
  int status = 200;  // HTTP's; 400: the body is no review
  std::string body;  // an AdmissionReview, or {"error": sentence}
  bool allowed = false;
  std::string kind;  // "Pod", "SharePod"; for metrics
};

// `body`: an AdmissionReview of admission.k8s.io/v1. Objects of kinds that are not ours are allowed
// as they are. What is refused says which field, what is wrong and what to do.
AdmissionVerdict Review(std::string_view body, AdmissionKind kind, const AdmissionOptions& options);

}  // namespace baton::k8s

#endif  // BATON_K8S_WEBHOOK_ADMISSION_H_
