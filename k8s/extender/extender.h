// Baton's decisions for schedulers that have queues and gangs of their own: kube-scheduler's
// extender protocol (k8s.io/kube-scheduler/extender/v1) and that of Volcano's extender plugin.
//
//   POST /filter      the nodes on which the pod's GPUs fit, and why not on the others
//   POST /prioritize  10 for the node that the binder would take, 0 for the others; Volcano's too
//   POST /bind        decides about GPUs on that node, books them, and binds the pod
//   POST /predicate   Volcano's: one task, one node
//
// Volcano binds by itself and knows of no GPUs, so a pod that was bound elsewhere and asks for
// shares gets its GPUs as soon as a watch tells of it.
//
// A pod over a ceiling of its team (k8s/types/team.h) fits nowhere, and is not bound. The extender
// preempts nobody, so it does not take back what a team is guaranteed.
//
// What it knows comes from watches, as the binder's; a pod is booked before its Binding is sent.
// Whoever reaches it can have any pod bound but the binder's: let only the scheduler reach it.
// It and the binder do not know of each other's bookings before they are bound: use one of them for
// a node.
#ifndef BATON_K8S_EXTENDER_EXTENDER_H_
#define BATON_K8S_EXTENDER_EXTENDER_H_

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "devmgr/placement/policy.h"
#include "devmgr/placement/request.h"
#include "k8s/api/client.h"
#include "k8s/api/object.h"
#include "k8s/api/reflector.h"
#include "k8s/binder/core.h"
#include "net/message.h"

namespace baton::k8s {

struct ExtenderOptions {
  uint32_t memory_unit_mib = kMemoryUnitMib;
  devmgr::PlacementPolicy policy;
  std::string scheduler{kScheduler};  // the binder's pods: not touched
  ReflectorOptions watches;
};

// The decisions: no I/O. Thread safe.
class ExtenderCore {
 public:
  explicit ExtenderCore(ExtenderOptions options);
  ~ExtenderCore();

  void Changed(Watched kind, const Json& object);
  void Gone(Watched kind, const Json& object);

  // Answers of the protocol; never throw, whatever `arguments` are.
  Json Filter(const Json& arguments);
  Json Prioritize(const Json& arguments);
  Json Predicate(const Json& arguments);

  // A Binding to be sent, or annotations for a pod that is bound, after which Ended() is called.
  // The pod is as the API server has it.
  struct Plan {
    std::string key;
    std::string uid;
    Json body;
  };
  Result<Plan> PlanBinding(const Json& pod, const std::string& node);
  // Nothing: its GPUs are known, or it asks for none.
  std::optional<Plan> PlanCards(const Json& pod);
  // `certain`: whether it was carried out is known.
  void Ended(const Plan& plan, bool done, bool certain);

  const devmgr::Cluster& cluster() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The same at work. Thread safe.
class Extender {
 public:
  // `client` outlives it. Watches from now on.
  Extender(Client& client, ExtenderOptions options);
  ~Extender();

  net::HttpResponse Answer(const net::HttpRequest& request);
  bool synced() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::k8s

#endif  // BATON_K8S_EXTENDER_EXTENDER_H_
