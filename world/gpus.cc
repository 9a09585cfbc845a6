#include "world/gpus.h"

#include <algorithm>

namespace baton::world {

void Gpus::Launch(const Process& p, Duration length, uint32_t collective) {
  WorldGpu& gpu = gpus_[p.gpu];
  const PodId pod = world_.IdOf(p.pod);
  const PodId occupant = gpu.occupant();
  if (occupant && occupant != pod) {
    world_.Violation("exclusive", world_.Name(p.pod) + " launched while a kernel of pod " +
                                      std::to_string(occupant.value) + " was pending");
  }
  gpu.Launch(p.index, pod, length, collective, world_.now);
  if (!occupant) Await(p.gpu);
}

void Gpus::Kill(const Process& p) {
  WorldGpu& gpu = gpus_[p.gpu];
  const Instant end = gpu.end();
  gpu.Kill(p.index, world_.now);
  if (gpu.end() != end) Await(p.gpu);
}

uint32_t Gpus::Next() const {
  return static_cast<uint32_t>(std::min_element(ends_.begin(), ends_.end()) - ends_.begin());
}

Process& Gpus::Finish(uint32_t gpu) {
  const Duration ran = world_.now - gpus_[gpu].started();
  Process& p = *world_.processes[gpus_[gpu].Finish(world_.now).process];
  p.busy += ran;
  world_.AccountOf(p).used += ran;
  Await(gpu);
  return p;
}

// A kernel has come to the head of the GPU's queue, or there is none.
void Gpus::Await(uint32_t gpu) {
  ends_[gpu] = gpus_[gpu].end();
  if (const WorldGpu::Kernel* kernel = gpus_[gpu].gathering()) Gather(*kernel);
}

// Collective kernels run once all of the pod's have come to the head of their queues.
void Gpus::Gather(const WorldGpu::Kernel& kernel) {
  const std::vector<uint32_t>& gpus = world_.PlanOf(*world_.processes[kernel.process]).gpus;
  for (const uint32_t g : gpus) {
    const WorldGpu::Kernel* peer = gpus_[g].gathering();
    if (peer == nullptr || peer->pod != kernel.pod || peer->collective != kernel.collective) {
      return;
    }
  }
  for (const uint32_t g : gpus) {
    gpus_[g].Begin(world_.now);
    ends_[g] = gpus_[g].end();
  }
}

}  // namespace baton::world
