#include "world/gpus.h"

#include <algorithm>

namespace baton::world {

Gpus::Gpus(WorldState& world) : world_(world), gpus_(world.plan.gpus) {
  std::vector<uint32_t> most(gpus_.size(), 1);
  for (size_t i = 0; i < world.plan.pods.size(); ++i) {
    const PodPlan& pod = world.plan.pods[i];
    for (const uint32_t g : pod.gpus) {
      if (Abreast(i)) most[g] = std::max(most[g], pod.processes * pod.threads);
    }
  }
  uint32_t streams = 0;
  for (size_t g = 0; g < gpus_.size(); ++g) {
    gpus_[g].first = streams;
    streams += most[g];
  }
  streams_.resize(streams);
  ends_.resize(streams, kNever);
}

bool Gpus::Abreast(size_t pod) const {
  const PodPlan& plan = world_.plan.pods[pod];
  return plan.collective != 0 || plan.threads > 1;
}

uint32_t Gpus::StreamOf(size_t pod, uint32_t gpu, uint32_t ordinal) const {
  return gpus_[gpu].first + (Abreast(pod) ? ordinal * world_.plan.pods[pod].threads : 0);
}

void Gpus::Launch(const Process& p, uint32_t thread, Duration length, uint32_t collective) {
  Gpu& gpu = gpus_[p.gpu];
  if (gpu.pending == 0) {
    gpu.occupant = p.pod;
    gpu.counted = world_.now;
  } else if (gpu.occupant != p.pod) {
    world_.Violation("exclusive", world_.Name(p.pod) + " launched while a kernel of " +
                                      world_.Name(gpu.occupant) + " was pending");
  }
  ++gpu.pending;
  const uint32_t stream = p.stream + thread;
  const bool first = streams_[stream].empty();
  streams_[stream].Launch({p.index, thread, length, collective}, world_.now);
  if (first) Await(stream);
}

void Gpus::Kill(const Process& p) {
  for (uint32_t t = 0; t < p.threads.size(); ++t) {
    Stream& stream = streams_[p.stream + t];
    const Instant end = stream.end();
    gpus_[p.gpu].pending -= stream.Kill(p.index, world_.now);
    if (stream.end() != end) Await(p.stream + t);
  }
}

uint32_t Gpus::Next() const {
  return static_cast<uint32_t>(std::min_element(ends_.begin(), ends_.end()) - ends_.begin());
}

Stream::Kernel Gpus::Finish(uint32_t stream) {
  const Stream::Kernel kernel = streams_[stream].Finish(world_.now);
  Process& p = *world_.processes[kernel.process];
  Gpu& gpu = gpus_[p.gpu];
  --gpu.pending;
  const Duration ran = world_.now - gpu.counted;
  gpu.counted = world_.now;
  gpu.busy += ran;
  p.busy += ran;
  world_.AccountOf(p).used += ran;
  Await(stream);
  return kernel;
}

uint32_t Gpus::PendingOf(const Process& p) const {
  uint32_t pending = 0;
  for (uint32_t t = 0; t < p.threads.size(); ++t) pending += PendingOf(p, t);
  return pending;
}

Duration Gpus::BacklogOf(const Process& p) const {
  Duration backlog{0};
  for (uint32_t t = 0; t < p.threads.size(); ++t) backlog += BacklogOf(p, t);
  return backlog;
}

// A kernel has come to the head of the stream, or there is none.
void Gpus::Await(uint32_t stream) {
  ends_[stream] = streams_[stream].end();
  if (const Stream::Kernel* kernel = streams_[stream].gathering()) Gather(*kernel);
}

// Collective kernels run once all have come to the head of their streams: those of the same thread
// in each process of the pod, or of its gang.
void Gpus::Gather(const Stream::Kernel& kernel) {
  peers_.clear();
  for (const auto& [pod, g] : world_.GangOf(world_.processes[kernel.process]->pod).places) {
    for (uint32_t n = 0; n < world_.plan.pods[pod].processes; ++n) {
      const uint32_t stream = StreamOf(pod, g, n) + kernel.thread;
      const Stream::Kernel* peer = streams_[stream].gathering();
      if (peer == nullptr || peer->collective != kernel.collective) return;
      if (world_.processes[peer->process]->pod != pod) return;
      peers_.push_back(stream);
    }
  }
  for (const uint32_t stream : peers_) {
    streams_[stream].Begin(world_.now);
    ends_[stream] = streams_[stream].end();
  }
}

}  // namespace baton::world
