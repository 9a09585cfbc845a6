// Shared by the files that define the replaced driver functions.
#ifndef BATON_HOOK_ENTRIES_H_
#define BATON_HOOK_ENTRIES_H_

#include "hook/client.h"
#include "hook/driver.h"
#include "hook/gate.h"
#include "hook/gpu.h"
#include "hook/meter.h"

// Defines an exported function under exactly this name, whatever cuda.h renames by macros.
#define BATON_API(name, params)                                                                \
  extern "C" CUresult Api_##name params __asm__(#name) __attribute__((visibility("default"))); \
  extern "C" CUresult Api_##name params

// Inside such a function: the driver's own, or a return where this driver has none.
#define BATON_REAL(name)                                                    \
  auto* const real = RealAs<decltype(Api_##name)>(::baton::hook::Fn::name); \
  if (__builtin_expect(real == nullptr, 0)) return ::baton::hook::kNoDriver

namespace baton::hook {

// What stream 0 means in the two families of spellings.
inline CUstream Legacy(CUstream s) { return s == nullptr ? CU_STREAM_LEGACY : s; }
inline CUstream PerThread(CUstream s) { return s == nullptr ? CU_STREAM_PER_THREAD : s; }

inline uint64_t Log2(uint64_t n) { return 63u - static_cast<uint64_t>(__builtin_clzll(n | 1)); }

// Kinds of work, for Launch(). Kernels differ by function and number of blocks, rounded down to a
// power of two; everything else by what it is and its bytes, likewise.
inline uint64_t KernelKey(const void* function, uint64_t blocks) {
  return (reinterpret_cast<uintptr_t>(function) & 0xffff'ffff'ffffu) | (Log2(blocks) + 1) << 56;
}
enum class Kind : uint64_t { kSet = 1, kCopy = 2, kDecompress = 3 };
inline uint64_t BytesKey(Kind kind, uint64_t bytes) {
  return static_cast<uint64_t>(kind) | (Log2(bytes) + 1) << 56;
}

// Host-device copies pass ungated and are counted.
inline void CountCopy(uint64_t bytes) {
  if (Slot* slot = t_slot) {
    slot->copies_bytes.store(slot->copies_bytes.load(std::memory_order_relaxed) + bytes,
                             std::memory_order_relaxed);
  }
}

}  // namespace baton::hook

#endif  // BATON_HOOK_ENTRIES_H_
