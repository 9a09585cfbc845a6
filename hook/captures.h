// The stream captures under way in this process. Each is known by the stream that it began in: it
// ends there, or with that stream, or with its context.
// Thread safe.
#ifndef BATON_HOOK_CAPTURES_H_
#define BATON_HOOK_CAPTURES_H_

#include <stdint.h>

#include <atomic>

#include "hook/cuda_types.h"
#include "hook/libc.h"

namespace baton::hook {

// Stream captures under way in this process.
extern std::atomic<uint32_t> g_captures;
// Held while a capture begins, and by the closer while it records marks: no mark of its gets into a
// capture. Taken before all other locks.
extern Lock g_capture_lock;
bool IsCapturing(CUstream stream);

// Before a capture begins in `stream`, a handle in the calling thread. `*first`: there was none.
// False: no memory for it.
bool CaptureBegins(CUstream stream, bool* first);
// A capture that began in `stream` is over, or did not come to be. Nothing happens where none is
// known.
void CaptureEnded(CUstream stream);

// After a stream or a context was destroyed: forgets what began in it up to a moment before. Its
// handle may be another's by then.
uint64_t CaptureMoment();
void CapturesGone(CUstream stream, uint64_t moment);
void CapturesGone(CUcontext context, uint64_t moment);

// While one lives, the driver does not object to the hook's calls because of a capture elsewhere,
// also one that begins meanwhile.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// In a child after fork.
void ForgetCaptures();

}  // namespace baton::hook

#endif  // BATON_HOOK_CAPTURES_H_
