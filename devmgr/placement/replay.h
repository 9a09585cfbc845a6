// A cluster's trace, replayed: pods arrive one by one until the cluster is full and beyond, none
// leaves, and one that does not fit is dropped. What is compared is how much of the GPUs is given
// away by then: the protocol of Weng et al. (USENIX ATC'23). Pure.
#ifndef BATON_DEVMGR_PLACEMENT_REPLAY_H_
#define BATON_DEVMGR_PLACEMENT_REPLAY_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "devmgr/placement/cluster.h"
#include "devmgr/placement/contention.h"

namespace baton::devmgr {

// Nodes from CSV with the columns sn, cpu_milli, memory_mib, gpu (how many) and model, in any
// order; others are ignored. kInvalid names the line.
Result<std::vector<Node>> ReadTraceNodes(std::string_view csv);
// Pods, with the columns name, cpu_milli, memory_mib, num_gpu, gpu_milli (thousandths of one GPU)
// and, where some pods want a model, gpu_spec (models joined by |; empty: any). There is no column
// of GPU memory: it is taken to be the same part of the GPU as the share.
Result<std::vector<PodRequest>> ReadTracePods(std::string_view csv);

// The order of arrival: all pods, shuffled, then more of them drawn by chance, until the GPUs asked
// for are `demand` times the `capacity`. Names are made unique.
std::vector<PodRequest> Arrivals(const std::vector<PodRequest>& pods, policy::ShareSum capacity,
                                 double demand, uint64_t seed);

// What a pod asks of GPUs, in millionths: all of its virtual GPUs.
policy::ShareSum DemandOf(const PodRequest& request);
policy::ShareSum CapacityOf(const Cluster& cluster);

class Replay {
 public:
  struct Options {
    // A pod that asks for a part of a GPU gets all of it, as without sharing; what counts as given
    // is what it asked for.
    bool whole = false;
    // The cluster gets to know the usual mix from the pods as they come. Otherwise it is as Know()
    // made it.
    bool learn = false;
    // Of which pods the cluster knows their expected_use.
    UseKnown known = UseKnown::kAll;
  };
  // Keeps a reference.
  Replay(Cluster& cluster, const Options& options) : cluster_(cluster), options_(options) {}

  // The usual mix is that of these pods.
  void Know(const std::vector<PodRequest>& pods);

  // The next pod; whether it found a place.
  bool Arrive(const PodRequest& request);

  policy::ShareSum arrived() const { return arrived_; }      // that was asked for
  policy::ShareSum allocated() const { return allocated_; }  // and given
  const Contention& contention() const { return contention_; }
  uint64_t placed() const { return placed_; }
  uint64_t failed() const { return failed_; }

 private:
  PodRequest As(const PodRequest& request) const;

  Cluster& cluster_;
  const Options options_;
  policy::ShareSum arrived_;
  policy::ShareSum allocated_;
  Contention contention_;
  uint64_t placed_ = 0;
  uint64_t failed_ = 0;
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_REPLAY_H_
