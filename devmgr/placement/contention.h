// What pods execute on the GPUs that they share, where it is known what each would execute alone.
// For traces of clusters, which say what pods request and not what they use. Pure.
#ifndef BATON_DEVMGR_PLACEMENT_CONTENTION_H_
#define BATON_DEVMGR_PLACEMENT_CONTENTION_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "devmgr/placement/cluster.h"
#include "policy/share.h"

namespace baton::devmgr {

// Of which pods placement knows what they would execute.
enum class UseKnown : uint8_t {
  kNone,
  kPlaced,  // of those that have their place, as if measured there
  kAll,     // also of those that come, as if by the history of their workload
};

// Sets PodRequest::expected_use of each pod, by chance and its place in the list, whatever it
// requests: half of the pods would use all of their GPUs, the others a tenth.
void ImagineUse(std::vector<PodRequest>& pods);

// Decides and commits, with as much of the pod's expected_use as is known. Decide()'s errors.
Result<Placement> PlaceKnowing(Cluster& cluster, PodRequest pod, UseKnown known);

// Each GPU executes what its pods would alone, at most all of its time. A pod without expected_use
// would execute what it requests.
class Contention {
 public:
  void Add(const PodRequest& pod, const Placement& placement);
  // What was added.
  void Remove(const PodRequest& pod, const Placement& placement);
  // Of all GPUs together.
  policy::ShareSum wanted() const { return wanted_; }
  policy::ShareSum executed() const { return executed_; }

 private:
  std::unordered_map<std::string, policy::ShareSum> on_;  // wanted, by uuid
  policy::ShareSum wanted_;
  policy::ShareSum executed_;
};

}  // namespace baton::devmgr

#endif  // BATON_DEVMGR_PLACEMENT_CONTENTION_H_
