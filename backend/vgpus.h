// The vGPU map of this daemon: the GPUs of all nodes that it knows, what its pods have of them,
// and the decision where a pod goes (devmgr/placement/cluster.h). Nothing is stored here: what the
// pods' file says of a pod is reserved again by Reserve() once its GPUs are known.
//
// A pod whose GPUs are not there, or have no room for it any more, stays a pod; it is unreserved
// until they have, and meanwhile nothing new comes to its GPUs.
//
// No I/O. Not thread safe.
#ifndef BATON_BACKEND_VGPUS_H_
#define BATON_BACKEND_VGPUS_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/card_modes.h"
#include "backend/cards.h"
#include "backend/expected_use.h"
#include "backend/pods.h"
#include "devmgr/modes/mig_templates.h"
#include "devmgr/placement/cluster.h"
#include "devmgr/placement/defrag.h"

namespace baton::backend {

class Vgpus {
 public:
  // `overcommit`: millionths of a GPU that the requests of pods that share it by turns may add up
  // to; what the hardware or MPS divides has nothing to lend. `here`: what this machine, which is
  // node "" elsewhere, is called.
  Vgpus(const devmgr::PlacementPolicy& policy, policy::Share overcommit,
        devmgr::MigTemplates templates, std::string here);
  ~Vgpus();

  Cards& cards() { return cards_; }
  const Cards& cards() const { return cards_; }
  ExpectedUse& expected_use() const { return *expected_use_; }
  std::vector<std::string> PodsOn(std::string_view uuid) const;

  // Decides where a pod of `count` virtual GPUs goes among the GPUs of `node` ("*": of all), and
  // books it. Sets gpus, vgpus (without devices) and mode. What Cluster::Decide() says, with the
  // reasons of the GPUs that came into question, and where there is more to read.
  Result<void> Place(Pod& pod, uint32_t count, const std::string& node);
  // Reserves its room where it is. Where that fails it is unreserved from here on. Sets its fits.
  bool Reserve(Pod& pod);
  // Tries again for those that are unreserved, the oldest first. `find`: null for those that are
  // not to be tried.
  void ReserveAgain(const std::function<Pod*(PodId)>& find);
  // Its room is free.
  void Remove(const Pod& pod);
  // Another share or cap, in place; sets them in `pod`. On an error nothing has changed.
  Result<void> Resize(Pod& pod, const policy::ShareSpec& share, uint64_t memory_cap,
                      policy::Share memory_part, uint64_t memory_request = 0);
  // To just these GPUs; sets gpus, vgpus, mode and wishes. On an error nothing has changed.
  Result<void> Move(Pod& pod, const std::vector<std::string>& gpus);
  // Why it is not booked; empty: it is.
  std::string WhyUnreserved(PodId pod) const;
  const std::map<PodId, std::string>& unreserved() const { return unreserved_; }
  // By what the pod's processes find their parts: CUDA_VISIBLE_DEVICES, ...
  devmgr::Environment EnvironmentOf(const Pod& pod) const;
  // For the driver of its mode: one for each of its GPUs.
  devmgr::DeviceDriver::Vgpu ForDriver(const Pod& pod, size_t index) const;

  // How many pods of one GPU that ask for this would fit beside each other now, on `node` ("*": on
  // all).
  uint64_t HowManyFit(const spec::PodRequest& asked, const std::string& node) const;

  struct Explanation {
    std::optional<devmgr::Placement> where;  // nothing: nowhere
    std::string error;                       // then: the sum of it
    std::string use;                         // ExpectedUse::Explain()
    std::vector<devmgr::NodeRefusal> nodes;  // that cannot take it, and why
  };
  Result<Explanation> Explain(const Pod& pod, uint32_t count, const std::string& node) const;
  // If these pods end one after the other: how many of them must have ended before this one has
  // room. 0: it has room now; nothing: not even when all have ended. Affinity to pods on other
  // nodes is not looked at. O(GPUs and pods of `node` + pods that end).
  std::optional<size_t> RoomAfter(const Pod& pod, uint32_t count, const std::string& node,
                                  const std::vector<std::string>& ending) const;
  // Works on a copy, so it may be called in another thread, also when this object is gone.
  using Defragmentation = std::function<Result<devmgr::DefragPlan>()>;
  Result<Defragmentation> Defrag(const Pod& pod, uint32_t count, const std::string& node,
                                 uint32_t moves) const;

 private:
  Result<devmgr::PodRequest> RequestOf(const Pod& pod, uint32_t count) const;
  // The modes in which it may be put, the first one first.
  std::vector<std::string> ModesFor(const Pod& pod) const;
  // The GPUs that it names; or those of the models that it names, where all are other vendors'.
  std::vector<std::string> Named(const Pod& pod) const;
  // kInvalid: some of these GPUs are another vendor's, and the pod cannot have them as it asks.
  Result<void> CheckVendors(const Pod& pod, const std::vector<std::string>& uuids) const;
  Result<devmgr::Placement> Decide(devmgr::PodRequest& request, const Pod& pod,
                                   const std::string& node, devmgr::UseChoice* use = nullptr) const;
  // kExhausted: the GPUs of a pod have not the memory that the request wants beyond what it has.
  Result<void> CheckGrowth(const devmgr::PlacedPod& placed,
                           const devmgr::PodRequest& request) const;
  std::vector<devmgr::NodeRefusal> WhyNot(devmgr::PodRequest request, const Pod& pod,
                                          const std::string& node) const;
  Result<devmgr::Placement> PlacementOf(const Pod& pod) const;
  void SetUnreserved(const Pod& pod, const std::string& why);  // empty: it is booked
  void Restore(Pod& pod, const devmgr::PlacedPod& before);
  void Adopt(const devmgr::Placement& placement, Pod& pod) const;
  // The name of the node in the cluster on which a decision in `mode` is to be made; "*": all.
  Result<std::string> Ground(const std::string& node, const std::string& mode) const;

  std::shared_ptr<const CardModes> modes_;
  std::unique_ptr<devmgr::Cluster> cluster_;
  Cards cards_;
  std::unique_ptr<ExpectedUse> expected_use_;
  std::map<PodId, std::string> unreserved_;  // and why
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_VGPUS_H_
