#include "backend/memory_room.h"

#include <algorithm>

#include "backend/cards.h"
#include "backend/unmanaged.h"

namespace baton::backend {
namespace {

// Of the pod's memory on the GPU, what stays there whatever others need.
uint64_t Fixed(const Gpu& gpu, PodId id, const PodOnGpu& on, const Pod* pod) {
  const uint64_t reserved = pod != nullptr ? ReservedOn(*pod, gpu.info.uuid) : 0;
  if (pod == nullptr || !pod->swap) return std::max(on.memory, reserved);
  return std::max({reserved, on.memory - MovableOf(gpu, id), FloorOf(*pod, on.memory)});
}

// The most that one pod with swap has beyond that. They take turns, so one of them counts.
uint64_t MostAbove(const Gpu& gpu, const Pods& pods, PodId but) {
  uint64_t most = 0;
  for (const auto& [id, on] : gpu.pods) {
    const Pod* pod = on.memory != 0 && id != but ? pods.Find(id) : nullptr;
    if (pod == nullptr || !pod->swap) continue;
    most = std::max(most, Minus(on.memory, Fixed(gpu, id, on, pod)));
  }
  return most;
}

}  // namespace

uint64_t ReservedOn(const Pod& pod, const std::string& gpu) {
  for (size_t i = 0; i < pod.gpus.size() && i < pod.vgpus.size(); ++i) {
    if (pod.gpus[i] == gpu) return uint64_t{pod.vgpus[i].fit.memory_mib} << 20;
  }
  return 0;
}

uint64_t MovableOf(const Gpu& gpu, PodId pod) {
  uint64_t bytes = 0;
  for (const auto& [id, lane] : gpu.lanes) {
    if (lane->client->pod == pod) bytes += lane->movable;
  }
  return bytes;
}

uint64_t SwappedOut(const Gpu& gpu, PodId pod) {
  uint64_t bytes = 0;
  for (const auto& [id, lane] : gpu.lanes) {
    if (lane->client->pod == pod) bytes += Minus(lane->movable, lane->movable_in);
  }
  return bytes;
}

bool IsReleased(const Gpu& gpu, PodId pod) {
  const auto on = gpu.pods.find(pod);
  if (on == gpu.pods.end() || !on->second.swap.released) return false;
  const uint64_t movable = MovableOf(gpu, pod);
  return movable != 0 && SwappedOut(gpu, pod) == movable;
}

uint64_t FloorOf(const Pod& pod, uint64_t memory) {
  return std::min(memory, pod.memory_request + kSwapPart);
}

std::map<std::string, uint32_t> TakenMemory(const Gpus& gpus, const Pods& pods) {
  std::map<std::string, uint32_t> taken;
  for (const Gpu* gpu : gpus.all()) {
    uint64_t bytes = MemoryOf(gpu->unmanaged);
    for (const auto& [id, on] : gpu->pods) {
      if (on.memory == 0) continue;
      const Pod* pod = pods.Find(id);
      const uint64_t reserved = pod != nullptr ? ReservedOn(*pod, gpu->info.uuid) : 0;
      const bool moves = pod != nullptr && pod->swap;
      bytes += Minus(moves ? Fixed(*gpu, id, on, pod) : on.memory, reserved);
    }
    bytes += MostAbove(*gpu, pods, PodId{});
    if (bytes != 0) taken[gpu->info.uuid] = MibOf(bytes);
  }
  return taken;
}

uint64_t MemoryBound(const Gpu& gpu, const Pods& pods, const Pod& pod) {
  const uint64_t cap = pod.CapOn(gpu.info.uuid);
  if (cap != 0 && !pod.swap) return cap;
  if (gpu.info.memory_bytes == 0) return cap;
  uint64_t others = MemoryOf(gpu.unmanaged);
  for (const auto& [id, on] : gpu.pods) {
    if (id == pod.id) continue;
    others += Fixed(gpu, id, on, pods.Find(id));
  }
  if (!pod.swap) others += MostAbove(gpu, pods, pod.id);
  if (others == 0 && !pod.swap) return 0;
  // What contexts and code take of the others' processes is theirs too.
  const uint64_t room = std::max<uint64_t>(1, Minus(gpu.info.memory_bytes, others + gpu.overhead));
  return cap != 0 ? std::min(cap, room) : room;
}

}  // namespace baton::backend
