// What the files of the tests' own driver share.
#ifndef BATON_TESTS_HOOK_FAKE_STATE_H_
#define BATON_TESTS_HOOK_FAKE_STATE_H_

#include <cstdint>
#include <map>
#include <mutex>

#include "hook/cuda_types.h"

#define FAKE_API(name, params)                                                                 \
  extern "C" CUresult Api_##name params __asm__(#name) __attribute__((visibility("default"))); \
  extern "C" CUresult Api_##name params
#define FAKE_CONTROL extern "C" __attribute__((visibility("default")))

extern "C" CUresult Api_cuMemAlloc_v2(CUdeviceptr* p, size_t bytes) __asm__("cuMemAlloc_v2")
    __attribute__((visibility("default")));

namespace baton::hook {

struct FakeContext {
  CUdevice device;
  CUdevice primary_of = -1;
  int users = 0;  // of a primary one
  std::map<CUlimit, size_t> limits{};
};
// A wait for the host: a function of it, or a value in memory.
struct FakeWait {
  int64_t over_at = 0;  // 0: it is not
};
// A moment, by the clock or so long after a wait.
struct Moment {
  FakeWait* after = nullptr;
  int64_t at = 0;
};
struct FakeStream {
  FakeContext* context;
  Moment end{};  // of its last kernel
  bool capturing = false;
  bool broken = false;  // its capture, by a forbidden call
};
extern std::mutex g_mutex;  // guards everything; held by the caller where nothing else is said

FakeContext* Current();  // the thread's own; without the lock
// Null: no such stream, or no context for a default one.
FakeStream* StreamAt(CUstream s);
inline CUstream Legacy(CUstream s) { return s == nullptr ? CU_STREAM_LEGACY : s; }
inline CUstream PerThread(CUstream s) { return s == nullptr ? CU_STREAM_PER_THREAD : s; }
int64_t Now();
int64_t When(const Moment& moment);
// Whether anything runs or is queued in the context; null: in any.
bool IsBusy(const FakeContext* context);
// Waits until nothing does; without the lock.
void AwaitContext(const FakeContext* context);

// Of the memory: what was in a context goes with it.
void EndMemory(const FakeContext* context);
// Pools give back what they do not use; without the lock.
void ShrinkPools();
// How often memory was taken away while something ran that may use it.
uint64_t MemoryMistakes();

}  // namespace baton::hook

#endif  // BATON_TESTS_HOOK_FAKE_STATE_H_
