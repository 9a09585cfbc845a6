// The GPUs of all nodes that this daemon knows, and what the cluster (devmgr/placement/cluster.h)
// is told of them: which are there, and which must get nothing new.
//
// No I/O. Not thread safe.
#ifndef BATON_BACKEND_CARDS_H_
#define BATON_BACKEND_CARDS_H_

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/pods.h"
#include "devmgr/placement/cluster.h"

namespace baton::backend {

// Memory of a GPU that nobody knows, in MiB: enough for all caps.
inline constexpr uint32_t kUnknownMemoryMib = 1u << 20;

// Rounded up, and no more than fits.
uint32_t MibOf(uint64_t bytes);

class Cards {
 public:
  // `here`: what this machine, which is node "" elsewhere, is called.
  Cards(devmgr::Cluster& cluster, std::string here) : cluster_(cluster), here_(std::move(here)) {}

  // What is on the node now. GPUs that were there before and are not now are kept as missing. What
  // changed. kInvalid: a GPU has less memory than was given away, or the like; then nothing has
  // changed. GPUs beyond VgpuRequest::kCardsMax are left out.
  Result<std::vector<devmgr::InventoryEvent>> Set(const std::string& node,
                                                  std::vector<devmgr::Card> cards);
  // One more, unless it is known. kExhausted: the node has VgpuRequest::kCardsMax.
  Result<void> Add(const std::string& node, const devmgr::Card& card);
  // False: nothing comes there until it is true again.
  void SetReachable(const std::string& node, bool reachable);
  void SetCordoned(const std::set<std::string>& cards);
  // Memory of GPUs (by uuid, in MiB) that is in use and that nobody has reserved: it goes to no new
  // pod. Those that are not named have none.
  void SetTaken(std::map<std::string, uint32_t> taken);
  // Memory of each GPU that is kept from pods that share it. Before the first Set() or Add().
  void SetReserve(uint32_t mib) { reserve_mib_ = mib; }
  uint32_t reserve_mib() const { return reserve_mib_; }
  // Until Release() nothing new comes to the pod's GPUs: it is on them without a reservation.
  void Hold(const Pod& pod);
  void Release(const Pod& pod);

  // By its name in the cluster, as placements have it. Null: unknown.
  const devmgr::Node* FindNode(std::string_view name) const { return cluster_.FindNode(name); }
  // Null: unknown.
  const devmgr::Card* Find(std::string_view uuid) const { return cluster_.FindCard(uuid); }
  const devmgr::CardUse* UseOf(std::string_view uuid) const { return cluster_.UseOf(uuid); }
  // As given to Set(): not for a link that is cut.
  const std::vector<devmgr::Card>& Of(const std::string& node) const;
  // Nodes of which GPUs were told.
  std::vector<std::string> Nodes() const;
  // The node of a GPU. Null: unknown.
  const std::string* NodeOf(std::string_view uuid) const;
  // "node/0": for people, and in the cluster.
  std::string NameOf(const std::string& node) const { return node.empty() ? here_ : node; }
  const std::string& here() const { return here_; }
  // The name of a pod that Hold() keeps it for, where it is not cordoned besides. Null: none.
  const std::string* HeldFor(const std::string& uuid) const;

 private:
  struct Known {
    std::vector<devmgr::Card> cards;
    bool reachable = true;
  };
  Result<void> Tell(const std::string& node);
  void TellNodesOf(const std::vector<std::string>& gpus);

  devmgr::Cluster& cluster_;
  const std::string here_;
  uint32_t reserve_mib_ = 0;
  std::map<std::string, Known> nodes_;                       // by the arbiter's names
  std::map<std::string, std::string, std::less<>> node_of_;  // of a GPU
  std::set<std::string> cordoned_;
  std::map<std::string, uint32_t> taken_;
  std::map<std::string, std::map<PodId, std::string>> held_;  // GPUs of these, and their names
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_CARDS_H_
