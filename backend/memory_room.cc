#include "backend/memory_room.h"

#include <algorithm>

#include "backend/cards.h"
#include "backend/unmanaged.h"

namespace baton::backend {
namespace {

// Bytes that the pod has reserved on the GPU.
uint64_t Reserved(const Pod& pod, const std::string& gpu) {
  for (size_t i = 0; i < pod.gpus.size() && i < pod.vgpus.size(); ++i) {
    if (pod.gpus[i] == gpu) return uint64_t{pod.vgpus[i].fit.memory_mib} << 20;
  }
  return 0;
}

uint64_t Minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

}  // namespace

std::map<std::string, uint32_t> TakenMemory(const Gpus& gpus, const Pods& pods) {
  std::map<std::string, uint32_t> taken;
  for (const Gpu* gpu : gpus.all()) {
    uint64_t bytes = MemoryOf(gpu->unmanaged);
    for (const auto& [id, on] : gpu->pods) {
      const Pod* pod = pods.Find(id);
      bytes += Minus(on.memory, pod != nullptr ? Reserved(*pod, gpu->info.uuid) : 0);
    }
    if (bytes != 0) taken[gpu->info.uuid] = MibOf(bytes);
  }
  return taken;
}

uint64_t MemoryBound(const Gpu& gpu, const Pods& pods, const Pod& pod) {
  if (const uint64_t cap = pod.CapOn(gpu.info.uuid); cap != 0) return cap;
  if (gpu.info.memory_bytes == 0) return 0;
  uint64_t others = MemoryOf(gpu.unmanaged);
  for (const auto& [id, on] : gpu.pods) {
    if (id == pod.id) continue;
    const Pod* other = pods.Find(id);
    others += std::max(on.memory, other != nullptr ? Reserved(*other, gpu.info.uuid) : 0);
  }
  if (others == 0) return 0;
  // What contexts and code take of the others' processes is theirs too.
  return std::max<uint64_t>(1, Minus(gpu.info.memory_bytes, others + gpu.overhead));
}

}  // namespace baton::backend
