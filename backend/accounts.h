// What pods use of GPUs: held time as tokens are charged, counters as clients report them, memory
// over time; and what is told of it, to people (series, timelines) and to the books (snapshots).
//
//   tokens' charges, clients' reports ──▶ usage book (mapped) ──▶ snapshots: the ledger's batches
//                                     └─▶ series and timelines ──▶ status and page
//
// Not thread safe: of the event loop.
#ifndef BATON_BACKEND_ACCOUNTS_H_
#define BATON_BACKEND_ACCOUNTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/client_table.h"
#include "backend/gpus.h"
#include "backend/pods.h"
#include "backend/pods_file.h"
#include "backend/usage_book.h"
#include "config/options.h"
#include "ledger/ledger.h"
#include "wire/messages.h"

namespace baton::backend {

class Accounts {
 public:
  Accounts(boost::asio::io_context& io, const config::Options& options, PodsFile& pods,
           UsageBook& usage, const Gpus& gpus, const ClientTable& clients);
  ~Accounts();

  // The pod's account on the GPU; null when there is none.
  UsageEntry* Of(const Gpu& gpu, PodId pod) const;
  // Nanoseconds of its account, and what it has held since it was last charged.
  uint64_t HeldNow(const Gpu& gpu, PodId pod, Instant now) const;
  // By all pods, since the daemon started.
  uint64_t HeldNow(const Gpu& gpu, Instant now) const;
  // What shares are of, as people see them: held time, but where no tokens are given out what the
  // pod executed.
  uint64_t UsedNow(const Gpu& gpu, PodId pod, Instant now) const;

  // A client reports its counters. Adds to the pod's account what is new in them.
  void Report(Lane& lane, const wire::State& state);
  // What the client has said of its own time is charged (scheduler::Settled).
  static void Settle(const Lane& lane);
  // A pod is charged for its token (scheduler::Charged).
  void Charge(Gpu& gpu, PodId pod, Duration held, Duration uncontended, Instant now);
  // What the usage book says of the energy of a pod on the GPU, or (pod 0) of the GPU.
  EnergyAccount EnergyOf(const Gpu& gpu, PodId pod) const { return usage_.EnergyOf(pod, gpu.key); }
  void SetEnergy(const Gpu& gpu, PodId pod, const EnergyAccount& energy) {
    usage_.SetEnergy(pod, gpu.key, energy);
  }
  // Pods that were on the GPU, have departed since and are still to be booked.
  std::vector<PodId> DepartedSince(const Gpu& gpu, Instant since) const;
  // What it may hold at once by its limit is not full before that.
  void SetLimitFullAt(const Gpu& gpu, PodId pod, Instant at) {
    usage_.SetLimitFullAt(pod, gpu.key, at);
  }
  // The pod has so much of the GPU without tokens from now on, and no longer: it is charged for all
  // of the time between, whatever it does there.
  void Allocate(Gpu& gpu, PodId pod, policy::Share part);
  void Free(Gpu& gpu, PodId pod);
  // A hold has ended.
  void Record(Gpu& gpu, const Hold& hold);
  // How long the GPU has been idle in all; a part of it that idles counts as that part of the time.
  Duration IdleNow(const Gpu& gpu, Instant now) const;
  // The GPU may have begun to idle, or no longer do.
  void NoteIdle(Gpu& gpu, Instant now);
  // The client is charged so many bytes from now on.
  void SetMemory(Lane& lane, uint64_t bytes);
  // For the series, due every Series::kEvery.
  void Sample(Gpu& gpu);

  // Everything that was used so far, in steps between which the loop serves others. `done` is
  // called with a batch without source and seq. One at a time.
  void Snapshot(std::function<void(ledger::Batch)> done);
  // The same in one go.
  ledger::Batch SnapshotNow();
  // A snapshot is in the books: what departed before it can be forgotten.
  void Booked(ledger::WallTime to);
  // Without books nobody needs to know of a deleted pod.
  void KeepDeparted(bool keep) { keep_departed_ = keep; }
  bool keeps_departed() const { return keep_departed_; }

 private:
  struct Work {
    ledger::Batch batch;
    std::vector<PodId> final;  // departed: this is their last use
    PodId after;
  };
  void Begin(Work& work);
  bool GoOn(Work& work, size_t most);
  void AddSamples(ledger::Batch& batch, PodId id, const ledger::Owner& owner,
                  const std::vector<std::string>& gpus);
  uint64_t HeldNow(const Gpu& gpu, PodId pod, const UsageEntry* account, Instant now) const;
  void ChargeAllocated(Gpu& gpu, Instant now);
  void TallyIdle(Gpu& gpu, Instant now);
  void TallyMemory(const Gpu& gpu, PodId pod, PodOnGpu& on, Instant now);

  boost::asio::io_context& io_;
  const config::Options& options_;
  PodsFile& file_;
  Pods& pods_;
  UsageBook& usage_;
  const Gpus& gpus_;
  const ClientTable& clients_;
  bool keep_departed_ = false;
  std::map<PodId, ledger::WallTime> told_;  // departed pods: the snapshot with their last use
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_ACCOUNTS_H_
