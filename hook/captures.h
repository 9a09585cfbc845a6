// The stream captures under way in this process. Each is known by the stream that it began in: it
// ends there, or with that stream, or with its context.
// Thread safe.
#ifndef BATON_HOOK_CAPTURES_H_
#define BATON_HOOK_CAPTURES_H_

#include <stdint.h>

#include "hook/cuda_types.h"

namespace baton::hook {

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

// In a child after fork.
void ForgetCaptures();

}  // namespace baton::hook

#endif  // BATON_HOOK_CAPTURES_H_
