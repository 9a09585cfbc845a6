// Pods and SharePods as the binder's core has them in memory: read once for each version that is
// told. Pure; never throws, whatever the objects are.
#ifndef BATON_K8S_BINDER_OBJECTS_H_
#define BATON_K8S_BINDER_OBJECTS_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "devmgr/request.h"
#include "k8s/api/object.h"
#include "k8s/binder/core.h"
#include "k8s/binder/node_filter.h"
#include "k8s/types/gpu_pod.h"

namespace baton::k8s {

// False, or `missing`: it is not there, or something else.
bool Flag(const Json& object, std::string_view pointer);
int64_t IntegerAt(const Json& object, std::string_view pointer, int64_t missing = 0);

// A pod, as far as the binder looks at it.
struct Pod {
  Json object;  // null where it is none of Baton's
  std::string uid;
  std::string version;
  std::string node;
  std::string owner;  // uid of its SharePod
  std::string phase;
  bool takes_room = false;
  bool deleting = false;
  bool ours = false;   // to be bound by us
  bool gated = false;  // not to be bound yet
  bool ready = false;
  bool whole = false;  // asks for whole cards
  GpuPod gpu;
  std::string wrong;  // why `gpu` or `needs` cannot be read
  PodNeeds needs;
  devmgr::PodRequest request;
  std::optional<devmgr::Placement> placement;

  bool finished() const { return phase == "Succeeded" || phase == "Failed"; }
};

struct Share {
  Json object;
  std::string uid;
  std::string version;
  int64_t generation = 0;
  bool deleting = false;
  bool was_bound = false;  // its status says so
  std::string phase;
  std::optional<devmgr::Placement> placement;  // of its status
  // What its spec comes to. The priority of `request` depends on PriorityClasses too.
  std::optional<Json> child;  // as it would be made now
  std::string wrong;
  GpuPod gpu;
  PodNeeds needs;
  devmgr::PodRequest request;
  std::map<std::string, uint64_t> resources;  // that a child would take which is made now

  bool finished() const { return phase == "Succeeded" || phase == "Failed"; }
};

// `troubles`: sentences about what is damaged are added.
Pod ReadPod(Json object, const CoreOptions& options, std::vector<std::string>* troubles);
// Without what its spec comes to.
Share ReadShare(Json object, std::vector<std::string>* troubles);
void ReadChild(const CoreOptions& options, Share& share);

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_OBJECTS_H_
