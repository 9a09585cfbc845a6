// What the binder has given of each GPU of the cluster, and why pods wait, for Prometheus. Pure.
#ifndef BATON_K8S_BINDER_GPU_METRICS_H_
#define BATON_K8S_BINDER_GPU_METRICS_H_

#include <cstdint>
#include <map>
#include <string>

#include "devmgr/placement/cluster.h"
#include "spec/flavors.h"

namespace baton::k8s {

// baton_binder_gpu_*, of each GPU: what pods have, bound or about to be, and what new ones can
// have; of one that gets no new pods (not healthy, cordoned, or its node is) that is nothing.
std::string GpuMetrics(const devmgr::Cluster& cluster);
// baton_binder_flavor_fit, of each flavor: so many pods of it and of no other, with one GPU each,
// would fit now on all GPUs, whatever their nodes have beside GPUs.
std::string FlavorMetrics(const devmgr::Cluster& cluster, const spec::Flavors& flavors);
// baton_binder_pending_pods, by the reason of Placed=False or PodScheduled=False.
std::string PendingMetrics(const std::map<std::string, uint64_t>& pending);

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_GPU_METRICS_H_
