// Why a pod fits nowhere, node by node, for its conditions. Pure.
#ifndef BATON_K8S_BINDER_EXPLAIN_H_
#define BATON_K8S_BINDER_EXPLAIN_H_

#include <string>

#include "devmgr/placement/request.h"
#include "k8s/cluster/cluster_view.h"
#include "k8s/cluster/node_filter.h"

namespace baton::k8s {

// `summary`, then what there is to say besides, and a line for each node, as far as a condition has
// room for them. Nodes without GPUs are left out for a pod that asks for GPUs: there may be many,
// and the summary has their number.
std::string ExplainPlacement(ClusterView& view, devmgr::PodRequest request, const PodNeeds& needs,
                             bool asks_for_gpus, const std::string& summary,
                             const std::string& besides);

}  // namespace baton::k8s

#endif  // BATON_K8S_BINDER_EXPLAIN_H_
