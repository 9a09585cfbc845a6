// Why a pod's program got an out-of-memory error, for people: how much it asked for, what bounds
// it, and who has what.
//
// Pure.
#ifndef BATON_BACKEND_OUT_OF_MEMORY_H_
#define BATON_BACKEND_OUT_OF_MEMORY_H_

#include <cstdint>
#include <string>

#include "backend/gpus.h"
#include "backend/pods.h"

namespace baton::backend {

// Of a pod on a GPU, the last time that its program asked for memory in vain.
//   "asked for 64MiB on GPU-a: its cap there is 1GiB, and it has 1000MiB: process 4711 (python)
//    1000MiB"
// `swap_budget`: bytes of host memory for the pods with swap of a node.
std::string OutOfMemoryText(const Gpu& gpu, const Pods& pods, const Pod& pod, const Lane& lane,
                            uint64_t asked, uint64_t swap_budget);

}  // namespace baton::backend

#endif  // BATON_BACKEND_OUT_OF_MEMORY_H_
