// The GPUs of a world, and what runs on them: kernels of one pod at a time, and collectives that
// wait for their peers on other GPUs.
#ifndef BATON_WORLD_GPUS_H_
#define BATON_WORLD_GPUS_H_

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "world/gpu.h"
#include "world/state.h"

namespace baton::world {

class Gpus {
 public:
  explicit Gpus(WorldState& world)
      : world_(world), gpus_(world.plan.gpus), ends_(world.plan.gpus, kNever) {}

  // Queues a kernel of the process; `collective` as in WorldGpu::Kernel. Law "exclusive": no other
  // pod's is pending there.
  void Launch(const Process& p, Duration length, uint32_t collective);
  // The process is dead: what it has pending is dropped; see WorldGpu::Kill.
  void Kill(const Process& p);

  // The GPU whose kernel ends next. They are most of what happens, and each GPU runs one: they need
  // no queue.
  uint32_t Next() const;
  Instant EndOn(uint32_t gpu) const { return ends_[gpu]; }
  // That kernel has ended, just now. Its process, to whose account the time is added.
  Process& Finish(uint32_t gpu);

  uint32_t PendingOf(const Process& p) const { return gpus_[p.gpu].PendingOf(p.index); }
  // Unfinished GPU time of the process.
  Duration BacklogOf(const Process& p) const { return gpus_[p.gpu].BacklogOf(p.index, world_.now); }
  Duration Busy(uint32_t gpu) const { return gpus_[gpu].busy(); }

 private:
  void Await(uint32_t gpu);
  void Gather(const WorldGpu::Kernel& kernel);

  WorldState& world_;
  std::vector<WorldGpu> gpus_;
  std::vector<Instant> ends_;  // of what runs on each
};

}  // namespace baton::world

#endif  // BATON_WORLD_GPUS_H_
