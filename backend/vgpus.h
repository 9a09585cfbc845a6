// The vGPU map of this daemon: the cards of all nodes that it knows, what its pods have of them,
// and the decision where a pod goes (devmgr/cluster.h). Nothing is stored here: what the pods' file
// says of a pod is booked again by Book() once its cards are known.
//
// A pod whose cards are not there, or have no room for it any more, stays a pod; it is unbooked
// until they have, and meanwhile nothing new comes to its cards.
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

#include "backend/pods.h"
#include "devmgr/cluster.h"
#include "devmgr/defrag.h"
#include "devmgr/mig_templates.h"

namespace baton::devmgr {
class MigMode;
}

namespace baton::backend {

// Memory of a card that nobody knows, in MiB: enough for all caps.
inline constexpr uint32_t kUnknownMemoryMib = 1u << 20;

class Vgpus {
 public:
  // `overcommit`: millionths of a card that the requests of pods that share it by turns may add up
  // to; what the hardware or MPS divides has nothing to lend. `here`: what this machine, which is
  // node "" elsewhere, is called.
  Vgpus(const devmgr::PlacementPolicy& policy, policy::Share overcommit,
        devmgr::MigTemplates templates, std::string here);
  ~Vgpus();

  // ------------------------------------------------------------------------------- inventory

  // What is on the node now. Cards that were there before and are not now are kept as missing. What
  // changed. kInvalid: a card has less memory than was given away, or the like; then nothing has
  // changed. Cards beyond VgpuRequest::kCardsMax are left out.
  Result<std::vector<devmgr::InventoryEvent>> SetCards(const std::string& node,
                                                       std::vector<devmgr::Card> cards);
  // One more, unless it is known. kExhausted: the node has VgpuRequest::kCardsMax.
  Result<void> AddCard(const std::string& node, const devmgr::Card& card);
  // False: nothing comes there until it is true again.
  void SetReachable(const std::string& node, bool reachable);
  void SetCordoned(const std::set<std::string>& cards);
  // By its name in the cluster, as placements have it. Null: unknown.
  const devmgr::Node* FindNode(std::string_view name) const { return cluster_->FindNode(name); }
  // Null: unknown.
  const devmgr::Card* CardOf(std::string_view uuid) const;
  const devmgr::CardUse* UseOf(std::string_view uuid) const { return cluster_->UseOf(uuid); }
  // As given to SetCards(): not for a link that is cut.
  const std::vector<devmgr::Card>& CardsOf(const std::string& node) const;
  std::vector<std::string> PodsOn(std::string_view uuid) const;
  // "node/0": for people.
  std::string NameOf(const std::string& node) const;

  // ------------------------------------------------------------------------------------ pods

  // Decides where a pod of `count` virtual GPUs goes among the cards of `node` ("*": of all), and
  // books it. Sets gpus, vgpus (without devices) and mode. What Cluster::Decide() says, with the
  // reasons of the cards that came into question, and where there is more to read.
  Result<void> Place(Pod& pod, uint32_t count, const std::string& node);
  // Books it where it is. Where that fails it is unbooked from here on. Sets its fits.
  bool Book(Pod& pod);
  // Tries again for those that are unbooked, the oldest first. `find`: null for those that are not
  // to be tried.
  void BookAgain(const std::function<Pod*(PodId)>& find);
  // Its room is free.
  void Remove(const Pod& pod);
  // Another share or cap, in place; sets them in `pod`. On an error nothing has changed.
  Result<void> Resize(Pod& pod, const policy::ShareSpec& share, uint64_t memory_cap,
                      policy::Share memory_part);
  // To just these cards; sets gpus, vgpus, mode and wishes. On an error nothing has changed.
  Result<void> Move(Pod& pod, const std::vector<std::string>& gpus);
  // Why it is not booked; empty: it is.
  std::string WhyUnbooked(PodId pod) const;
  const std::map<PodId, std::string>& unbooked() const { return unbooked_; }
  // By what the pod's processes find their parts: CUDA_VISIBLE_DEVICES, ...
  devmgr::Environment EnvironmentOf(const Pod& pod) const;
  // For the driver of its mode: one for each of its cards.
  devmgr::DeviceDriver::Vgpu ForDriver(const Pod& pod, size_t index) const;
  const devmgr::MigMode& mig() const;

  // ------------------------------------------------------------------------------ what if

  struct Explanation {
    std::optional<devmgr::Placement> where;  // nothing: nowhere
    std::string error;                       // then: the sum of it
    std::vector<devmgr::NodeRefusal> nodes;  // that cannot take it, and why
  };
  Result<Explanation> Explain(const Pod& pod, uint32_t count, const std::string& node) const;
  // Works on a copy, so it may be called in another thread, also when this object is gone.
  using Defragmentation = std::function<Result<devmgr::DefragPlan>()>;
  Result<Defragmentation> Defrag(const Pod& pod, uint32_t count, const std::string& node,
                                 uint32_t moves) const;

 private:
  struct Modes;
  struct Known {
    std::vector<devmgr::Card> cards;
    bool reachable = true;
  };

  Result<void> Tell(const std::string& node);
  void TellNodesOf(const std::vector<std::string>& gpus);
  Result<devmgr::PodRequest> RequestOf(const Pod& pod, uint32_t count) const;
  // The modes in which it may be put, the first one first.
  std::vector<std::string> ModesFor(const Pod& pod) const;
  Result<devmgr::Placement> Decide(devmgr::PodRequest& request, const Pod& pod,
                                   const std::string& node) const;
  std::vector<devmgr::NodeRefusal> WhyNot(devmgr::PodRequest request, const Pod& pod,
                                          const std::string& node) const;
  std::string SharesOn(std::string_view uuid) const;
  Result<devmgr::Placement> PlacementOf(const Pod& pod) const;
  void SetUnbooked(const Pod& pod, const std::string& why);  // empty: it is booked
  void Restore(Pod& pod, const devmgr::PlacedPod& before);
  static void Adopt(const devmgr::Placement& placement, Pod& pod);
  // The name of the node in the cluster on which a decision in `mode` is to be made; "*": all.
  Result<std::string> Ground(const std::string& node, const std::string& mode) const;

  const policy::Share overcommit_;
  const std::string here_;
  std::shared_ptr<const Modes> modes_;
  std::unique_ptr<devmgr::Cluster> cluster_;
  std::map<std::string, Known> nodes_;          // by the arbiter's names
  std::map<std::string, std::string> node_of_;  // of a card
  std::set<std::string> cordoned_;
  std::map<PodId, std::string> unbooked_;                     // and why
  std::map<std::string, std::map<PodId, std::string>> held_;  // cards of these, and their names
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_VGPUS_H_
