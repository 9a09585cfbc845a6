// What the entry points that take a stream share. With BATON_SIM_PER_THREAD they are the _ptsz and
// _ptds names, in which no stream means the calling thread's; without it the plain names, in which
// it means the legacy one.
#ifndef BATON_SIM_STREAM_API_H_
#define BATON_SIM_STREAM_API_H_

#include "sim/driver.h"

#ifdef BATON_SIM_PER_THREAD
#define SIM_STREAM_API(name, suffix, params)                           \
  extern "C" CUresult Api_##name##suffix params __asm__(#name #suffix) \
      __attribute__((visibility("default")));                          \
  extern "C" CUresult Api_##name##suffix params
#else
#define SIM_STREAM_API(name, suffix, params)                                                   \
  extern "C" CUresult Api_##name params __asm__(#name) __attribute__((visibility("default"))); \
  extern "C" CUresult Api_##name params
#endif

namespace baton::sim {
namespace {

#ifdef BATON_SIM_PER_THREAD
constexpr bool kPerThread = true;
#else
constexpr bool kPerThread = false;
#endif

CUresult Find(CUstream handle, Stream** stream) { return GetStream(handle, kPerThread, stream); }

// Locks, and finds the stream.
#define SIM_ENTER(handle)       \
  Lock lock(TheDriver().mutex); \
  Stream* stream;               \
  if (CUresult r_ = Find(handle, &stream)) return r_

}  // namespace
}  // namespace baton::sim

#endif  // BATON_SIM_STREAM_API_H_
