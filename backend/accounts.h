// What pods use of GPUs: held time as tokens are charged, counters as clients report them, memory
// over time; and what people are told of it (series, timelines). What the books are told is made of
// it by Snapshots (backend/snapshots.h).
//
//   tokens' charges, clients' reports ──▶ usage book (mapped) ──▶ snapshots: the ledger's batches
//                                     └─▶ series and timelines ──▶ status and page
//
// Not thread safe: of the event loop.
#ifndef BATON_BACKEND_ACCOUNTS_H_
#define BATON_BACKEND_ACCOUNTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/client_table.h"
#include "backend/gpus.h"
#include "backend/pods.h"
#include "backend/usage_book.h"
#include "config/options.h"
#include "wire/messages.h"

namespace baton::backend {

// What a pod says that it has of a GPU, as far as it can be true. A terabyte where the GPU's own
// size is not known.
uint64_t Believed(uint64_t bytes, const devmgr::GpuInfo& gpu);

class Accounts {
 public:
  Accounts(const config::Options& options, Pods& pods, UsageBook& usage);

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

  // What is charged when somebody looks, up to now: pods without tokens; where no tokens are given
  // out, idle time; memory over time.
  void ChargeAllocated(Gpu& gpu, Instant now);
  void TallyIdle(Gpu& gpu, Instant now);
  void TallyMemory(const Gpu& gpu, PodId pod, PodOnGpu& on, Instant now);

 private:
  uint64_t HeldNow(const Gpu& gpu, PodId pod, const UsageEntry* account, Instant now) const;

  const config::Options& options_;
  Pods& pods_;
  UsageBook& usage_;
};

}  // namespace baton::backend

#endif  // BATON_BACKEND_ACCOUNTS_H_
