// A cluster's trace under a steady load: pods arrive by chance, stay for a while and leave; one
// that does not fit is refused. What is compared is how much of the GPUs is given away in the mean
// over time, and who is refused. Pure.
#ifndef BATON_DEVMGR_PLACEMENT_CHURN_H_
#define BATON_DEVMGR_PLACEMENT_CHURN_H_

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "devmgr/placement/cluster.h"
#include "devmgr/placement/contention.h"

namespace baton::devmgr {

// Seconds that each pod of a trace stayed, in the order of ReadTracePods() and at least 1: from the
// columns creation_time and deletion_time. kInvalid: the file lacks them, or names the line.
Result<std::vector<double>> ReadTraceLifetimes(std::string_view csv);

struct ChurnOptions {
  // GPU time that pods ask for in the mean, as a multiple of the cluster's; above 0.
  double load = 1;
  uint64_t seed = 0;
  // In mean lifetimes of the pods: how long pods come and go before it counts, and while it does.
  double warm_up = 1;
  double measured = 2;
  // The cluster gets to know the usual mix from the pods as they come.
  bool learn = false;
  // Of which pods the cluster knows their expected_use.
  UseKnown known = UseKnown::kAll;
};

struct ChurnOutcome {
  // A pod without GPUs, with a part of one, with one, with several.
  enum Kind : uint8_t { kNone, kFraction, kOne, kSeveral, kKinds };
  std::array<uint64_t, kKinds> arrived{};
  std::array<uint64_t, kKinds> refused{};
  // Means over time, as parts of the cluster's GPU time; what pods would execute alone and what
  // they execute, by Contention.
  double allocated = 0;
  double wanted = 0;
  double executed = 0;
};

// Pods are drawn by chance from `pods`, with their `lifetimes`; no lifetimes: exponential ones with
// the same mean for all. It begins with the pods that would be there had it gone on for ever: drawn
// in proportion to their lifetimes, each with a part of it left. `cluster` is empty, and has the
// pods of the end afterwards.
ChurnOutcome Churn(Cluster& cluster, const std::vector<PodRequest>& pods,
                   std::span<const double> lifetimes, const ChurnOptions& options);

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_CHURN_H_
