// Memory of GPUs beyond what pods have reserved. A pod with a cap has reserved that much. One
// without a cap has reserved nothing: it may have what is left, and what it has is given to no pod
// that comes later.
//
// A pod with swap has reserved its memory request. What it has above that can be moved to the host,
// and one such pod at a time needs it on the GPU: so of all of them together the largest counts.
//
// Pure.
#ifndef BATON_BACKEND_MEMORY_ROOM_H_
#define BATON_BACKEND_MEMORY_ROOM_H_

#include <cstdint>
#include <map>
#include <string>

#include "backend/gpus.h"
#include "backend/pods.h"

namespace baton::backend {

// a - b, at least 0.
inline uint64_t Minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

// A hook moves memory in parts of this size at most (hook/arena.h).
inline constexpr uint64_t kSwapPart = 64 << 20;

// Bytes that the pod has reserved on the GPU.
uint64_t ReservedOn(const Pod& pod, const std::string& gpu);
// Bytes of the pod on the GPU that can be moved to the host.
uint64_t MovableOf(const Gpu& gpu, PodId pod);
// Of these, what is not on the GPU, as its processes say.
uint64_t SwappedOut(const Gpu& gpu, PodId pod);
// Whether all of that is out because the pod has had no work for long ([memory] idle_release).
bool IsReleased(const Gpu& gpu, PodId pod);
// Of a pod with swap that has `memory` bytes: what is left on the GPU. Its request, and a part, so
// that moving whole parts takes none of its request.
uint64_t FloorOf(const Pod& pod, uint64_t memory);

// By uuid, in MiB: memory that is in use and that nobody has reserved, of pods and of processes
// that are not managed. GPUs where there is none are left out.
std::map<std::string, uint32_t> TakenMemory(const Gpus& gpus, const Pods& pods);
// Bytes that the pod may have on the GPU, all its processes together; 0: no bound. A pod with a
// cap: its cap. Without one: what the others have neither reserved nor got; no bound where it is
// alone, or where the GPU's memory is not known.
uint64_t MemoryBound(const Gpu& gpu, const Pods& pods, const Pod& pod);

}  // namespace baton::backend

#endif  // BATON_BACKEND_MEMORY_ROOM_H_
