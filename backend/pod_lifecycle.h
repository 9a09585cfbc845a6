// How pods come, change and go: from a request, or the configuration file, by way of a place on
// GPUs (Vgpus), devices where a mode's driver has to make them, and the GPUs' schedulers.
//
// Not thread safe: of the event loop.
#ifndef BATON_BACKEND_POD_LIFECYCLE_H_
#define BATON_BACKEND_POD_LIFECYCLE_H_

#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/accounts.h"
#include "backend/client_table.h"
#include "backend/devices.h"
#include "backend/gpus.h"
#include "backend/pod_shares.h"
#include "backend/pods_file.h"
#include "backend/snapshots.h"
#include "backend/tokens.h"
#include "backend/vgpus.h"
#include "config/options.h"
#include "node/event_log.h"

namespace baton::backend {

class PodLifecycle {
 public:
  PodLifecycle(const config::Options& options, const Gpus& gpus, Vgpus& vgpus, PodsFile& file,
               UsageBook& usage, Accounts& accounts, Snapshots& snapshots, ClientTable& clients,
               Tokens& tokens, PodShares& shares, node::EventLog& log);
  ~PodLifecycle() { *alive_ = false; }

  // All keep the file up to date. Where a mode's driver has work to do, `done` is called
  // when that is done, else at once; never for a daemon that ends. A pod of which that is under way
  // cannot be changed meanwhile (kUnavailable).
  using Made = std::function<void(Result<Pod*>)>;
  using Done = std::function<void(Result<void>)>;
  // `pod.wishes.gpus`: uuids or indexes within `node` ("*": all nodes), of which `count` are taken;
  // empty: any. 0: as many as are named, or one.
  void CreatePod(Pod pod, uint32_t count, const std::string& node, const Made& done);
  void DeletePod(Pod& pod, const Done& done);
  // Its share, memory cap and team are those of `asked` from now on.
  Result<void> SetPod(Pod& pod, const spec::PodRequest& asked);
  // To other GPUs, as many as it has. kUnavailable: it runs.
  void MovePod(Pod& pod, const std::vector<std::string>& gpus, const std::string& node,
               const Done& done);
  // What CreatePod() would be asked: names are uuids then.
  Result<uint32_t> Resolve(Pod& pod, uint32_t count, const std::string& node) const;
  // The memory cap that CreatePod() gives a pod that asks for none.
  void SetDefaultCap(Pod& pod) const;
  bool Runs(const Pod& pod) const { return !clients_.OfPod(pod.id).empty(); }
  // Who makes MIG instances and starts MPS. Null: nobody.
  void SetDeviceMaker(DeviceMaker* maker) { maker_ = maker; }
  DeviceMaker* maker() const { return maker_; }
  // Told of each pod that was deleted, as it was; whoever deleted it.
  using Dropped = std::function<void(const Pod&)>;
  void OnDropped(Dropped told) { dropped_ = std::move(told); }
  // What was made before, or is there again.
  void SetDevices(const std::string& pod, size_t index, const std::string& device);
  // Brings the pods of the configuration file in; see config.h for who wins. `made` is told of each
  // that was not there before, now and by ApplyConfiguredPodsAgain().
  using MadeOfFile = std::function<void(const Pod&)>;
  void ApplyConfiguredPods(const std::vector<config::ConfiguredPod>& configured,
                           MadeOfFile made = {});
  // ... those that have not come in yet, once there is another GPU or node.
  void ApplyConfiguredPodsAgain();

  // Placement knows from here on what is in use without a reservation now.
  void CountTaken();
  // A client of the pod is gone.
  void ClientLeft(PodId pod);
  // The clients of a deleted pod are closed once none of them holds anything. Before that their
  // reports are needed, and those that have drained may have to launch what the others wait for on
  // the GPU.
  void CloseWhenDrained(PodId pod);
  // Pods without a place may find one; `gpu`: those on it only.
  void ReserveAgain(const std::string* gpu);
  // The GPU is new: the pods that are on it come to it.
  void PutPodsOn(Gpu& gpu);
  // Tickets for measuring that nobody used within a minute are void.
  void DropUnused(Instant now);

 private:
  void ReserveAgain(const std::function<bool(const Pod&)>& which);
  Result<Pod*> Enter(Pod pod);
  void Drop(Pod& pod);
  void PutOn(Gpu& gpu, const Pod& pod);
  // What it has there without tokens is its own from now on.
  void Allocate(Gpu& gpu, const Pod& pod);
  void PutOnGpus(const Pod& pod);
  void TakeOffGpus(const Pod& pod);
  void ForgetPod(PodId pod);
  std::vector<DeviceJob> JobsFor(const Pod& pod) const;
  Result<void> CheckIdle(const Pod& pod) const;
  Result<void> CheckGang(const Pod& pod) const;

  const config::Options& options_;
  const Gpus& gpus_;
  Vgpus& vgpus_;
  PodsFile& file_;
  Pods& pods_;
  UsageBook& usage_;
  Accounts& accounts_;
  Snapshots& snapshots_;
  ClientTable& clients_;
  Tokens& tokens_;
  PodShares& shares_;
  node::EventLog& log_;
  DeviceMaker* maker_ = nullptr;
  Dropped dropped_;
  std::set<std::string> under_way_;  // names of pods whose devices are made or taken away
  std::deque<std::pair<Instant, PodId>> unused_;  // throw-away pods, by age
  std::vector<config::ConfiguredPod> configured_;
  MadeOfFile made_of_file_;
  bool configured_known_ = false;
  // While many pods come one after the other, what is in use without a reservation is counted once:
  // a pod that comes uses nothing yet.
  bool many_ = false;
  bool counted_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_POD_LIFECYCLE_H_
