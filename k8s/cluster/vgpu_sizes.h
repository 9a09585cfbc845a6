// The share and memory of a pod's virtual GPUs: what its request says now, beside what its
// placement has. Pure.
#ifndef BATON_K8S_CLUSTER_VGPU_SIZES_H_
#define BATON_K8S_CLUSTER_VGPU_SIZES_H_

#include "base/result.h"
#include "devmgr/placement/cluster.h"
#include "devmgr/placement/request.h"

namespace baton::k8s {

// Whether the placement has the shares and memory that the request says now.
bool HasRequestedSizes(const devmgr::PodRequest& request, const devmgr::Placement& placement,
                       const devmgr::Cluster& cluster);
// The same GPUs with the shares and memory that the request says now. kInvalid: it asks for
// another number of GPUs.
Result<devmgr::Placement> WithRequestedSizes(const devmgr::PodRequest& request,
                                             devmgr::Placement placement,
                                             const devmgr::Cluster& cluster);

}  // namespace baton::k8s

#endif  // BATON_K8S_CLUSTER_VGPU_SIZES_H_
