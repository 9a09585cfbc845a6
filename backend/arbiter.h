// The heart of batond: clients, pods and GPUs, and one token scheduler per GPU between them,
// whatever socket an event came from. Each part has a class; this one puts them together, and keeps
// the GPUs.
//
//   clients' messages ──▶ Sessions ─────────────────┐
//   operator, file ─────▶ PodLifecycle ──▶ PodShares ┴──▶ Tokens ──▶ TokenScheduler (pure)
//                                                           └─▶ effects: tokens out at once, the
//                                                               rest (Accounts, log) afterwards
//
// Not thread safe: one event loop. Links must not call back from within their methods.
#ifndef BATON_BACKEND_ARBITER_H_
#define BATON_BACKEND_ARBITER_H_

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/accounts.h"
#include "backend/client_table.h"
#include "backend/gpu_owners.h"
#include "backend/gpus.h"
#include "backend/kernel_caps.h"
#include "backend/pod_lifecycle.h"
#include "backend/pod_shares.h"
#include "backend/pods_file.h"
#include "backend/room.h"
#include "backend/sessions.h"
#include "backend/snapshots.h"
#include "backend/tokens.h"
#include "backend/unmanaged.h"
#include "backend/vgpus.h"
#include "config/options.h"
#include "node/event_log.h"

namespace baton::backend {

class Arbiter {
 public:
  // `file`: with the pods of before.
  Arbiter(boost::asio::io_context& io, const config::Options& options, PodsFile& file, Vgpus& vgpus,
          UsageBook& usage, node::EventLog& log);
  ~Arbiter();

  // Reads which node each GPU belongs to (GpuOwners). An error is one line for the operator.
  Result<void> ReadOwners();
  // `state_dir`/gpu-UUID.holder is read when a GPU is first heard of.
  // kExists: it belongs to another node, now or since before this daemon started. kExhausted: the
  // node has too many. kDenied: a newer version wrote its holder file.
  Result<void> AddGpu(const devmgr::GpuInfo& info, const std::string& node,
                      bool throw_away = false);
  // A virtual GPU of a node, made when absent.
  Gpu& ThrowAwayGpu(const std::string& node, size_t number = 0);
  // The link to the node is cut, or back: while it is cut, nothing of its GPUs moves.
  void SetFrozen(const std::string& node, bool frozen);

  // The GPU (a uuid) is put into another machine: it belongs to the node that names it first, from
  // the next start on where its old node has named it since this one. `node`: whose GPUs may be
  // released; "*": all.
  Result<void> Release(const std::string& gpu, const std::string& node);
  // What is on the node now, beyond what AddGpu() tells. Events say what has changed, and whom it
  // concerns.
  void SetCards(const std::string& node, std::vector<devmgr::Card> cards);
  // Who is on this machine's GPUs now. Those that are not managed are named, and their memory is
  // given to no pod.
  void SetProcesses(const SeenProcesses& seen);
  // No more pods go to the GPU (a uuid or an index within `node`), or again; the others stay. Kept
  // over restarts. The uuid.
  Result<std::string> Cordon(const std::string& gpu, const std::string& node, bool cordoned);

  Sessions& sessions() { return sessions_; }
  const Sessions& sessions() const { return sessions_; }
  PodLifecycle& lifecycle() { return lifecycle_; }
  const PodLifecycle& lifecycle() const { return lifecycle_; }
  KernelCaps& kernel_caps() { return kernel_caps_; }
  const KernelCaps& kernel_caps() const { return kernel_caps_; }
  PodShares& shares() { return shares_; }
  Accounts& accounts() { return accounts_; }
  const Accounts& accounts() const { return accounts_; }
  Snapshots& snapshots() { return snapshots_; }

  const std::map<std::string, std::unique_ptr<Gpu>>& gpus() const { return gpus_.by_uuid(); }
  // The GPUs of a node ("*": all), in the order they were reported.
  std::vector<Gpu*> GpusOf(const std::string& node) const { return gpus_.OfNode(node); }
  // The node on which a pod's GPUs are.
  bool PodIsOn(const Pod& pod, const std::string& node) const { return gpus_.PodIsOn(pod, node); }
  const std::map<uint64_t, std::unique_ptr<Client>>& clients() const { return clients_.all(); }
  Pods& pods() { return pods_; }
  const Pods& pods() const { return pods_; }
  Vgpus& vgpus() { return vgpus_; }
  const Vgpus& vgpus() const { return vgpus_; }
  // Something that went wrong once, for Degraded() until the next start.
  void AddTrouble(std::string sentence) {
    if (std::find(troubles_.begin(), troubles_.end(), sentence) != troubles_.end()) return;
    troubles_.push_back(std::move(sentence));
  }
  // What does not work as it should; empty when all is well.
  std::vector<std::string> Degraded() const;
  // Writes everything that is not on disk yet.
  void Store();

 private:
  void Sample();

  boost::asio::io_context& io_;
  const config::Options& options_;
  Pods& pods_;
  Vgpus& vgpus_;
  UsageBook& usage_;
  node::EventLog& log_;
  const std::string boot_id_;
  std::vector<std::string> troubles_;  // see AddTrouble()
  GpuOwners owners_;
  Gpus gpus_;
  ClientTable clients_;
  PodsFile& file_;
  Accounts accounts_;
  Snapshots snapshots_;
  Tokens tokens_;
  Room room_;
  PodShares shares_;
  PodLifecycle lifecycle_;
  Sessions sessions_;
  Unmanaged unmanaged_;
  KernelCaps kernel_caps_;
  boost::asio::steady_timer sampler_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_ARBITER_H_
