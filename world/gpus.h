// The GPUs of a world, and what runs on them: kernels of one pod at a time, and collectives that
// wait for their peers. What they record of each pod is the truth that the books are held against.
#ifndef BATON_WORLD_GPUS_H_
#define BATON_WORLD_GPUS_H_

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "world/state.h"
#include "world/stream.h"

namespace baton::world {

class Gpus {
 public:
  explicit Gpus(WorldState& world);

  // The stream of the process' first thread; its others follow. Where threads or processes of a pod
  // may wait for each other, each thread has one; kernels of all other processes run one after the
  // other, as where each fills the GPU.
  uint32_t StreamOf(size_t pod, uint32_t gpu, uint32_t ordinal) const;

  // Queues a kernel of the process; `collective` as in Stream::Kernel. Law "exclusive": no other
  // pod's is pending there.
  void Launch(const Process& p, uint32_t thread, Duration length, uint32_t collective);
  // The process is dead: what it has pending is dropped; see Stream::Kill.
  void Kill(const Process& p);

  // The stream whose kernel ends next. They are most of what happens, and each stream runs one:
  // they need no queue.
  uint32_t Next() const;
  Instant EndOn(uint32_t stream) const { return ends_[stream]; }
  // That kernel has ended, just now. To the account of its process the GPU's time is added.
  Stream::Kernel Finish(uint32_t stream);

  uint32_t PendingOf(const Process& p) const;
  uint32_t PendingOf(const Process& p, uint32_t thread) const {
    return streams_[p.stream + thread].PendingOf(p.index);
  }
  // Unfinished GPU time of the process.
  Duration BacklogOf(const Process& p) const;
  Duration BacklogOf(const Process& p, uint32_t thread) const {
    return streams_[p.stream + thread].BacklogOf(p.index, world_.now);
  }
  // Time in which a kernel that has ended occupied the GPU; a collective that waits does.
  Duration Busy(uint32_t gpu) const { return gpus_[gpu].busy; }

 private:
  struct Gpu {
    uint32_t first = 0;    // of its streams
    uint32_t pending = 0;  // kernels
    size_t occupant = 0;   // the pod whose kernels these are
    Instant counted{};     // they have occupied the GPU, or it is counted, from here on
    Duration busy{0};
  };
  bool Abreast(size_t pod) const;
  void Await(uint32_t stream);
  void Gather(const Stream::Kernel& kernel);

  WorldState& world_;
  std::vector<Gpu> gpus_;
  std::vector<Stream> streams_;
  std::vector<Instant> ends_;    // of what runs on each
  std::vector<uint32_t> peers_;  // streams of those that gather
};

}  // namespace baton::world

#endif  // BATON_WORLD_GPUS_H_
