// Where a stream of the GPU waits for the host: for a host function to return, or for a value in
// memory that the host may write. While it waits, what was launched behind the wait cannot run, so
// the token need not be held for it (Harvest()). The hook puts a function of its own at the end of
// each wait, in the place of the program's or behind the wait for a value. It returns, and the
// stream goes on, only while this process may launch, or where nothing was launched behind the
// wait.
//
// What counts as behind a wait is what this process launched into the same stream after the driver
// took it. What waits for it by an event, in the legacy stream, or inside a graph holds the token.
// Thread safe.
#ifndef BATON_HOOK_HOST_WAITS_H_
#define BATON_HOOK_HOST_WAITS_H_

#include <stdint.h>

#include "hook/cuda_types.h"

namespace baton::hook {

struct Gpu;
struct Stream;

// One wait. Made by BeginHostWait(), and gone when the driver has called its function.
struct HostWait {
  Gpu* gpu;
  Stream* stream;
  uint32_t number;  // in its stream
  CUhostFn function;
  CUstreamCallback callback;  // instead of `function`
  void* user;
};

// What EndBegin() must know of a wait that may be over by then.
struct BegunWait {
  HostWait* wait;  // null: the hook has nothing to do with it
  Stream* stream;
  uint32_t number;
};

// Before the driver's call that makes `stream` (a handle as for Launch()) wait.
BegunWait BeginHostWait(CUstream stream);
// After it. `taken`: the driver has taken the wait, and calls its function.
void EndBegin(const BegunWait& begun, bool taken);

// For the driver to call with a HostWait: they run the program's function, and let the stream go on
// when this process may launch.
void RunHostFunction(void* wait);
void RunCallback(CUstream stream, CUresult status, void* wait);

}  // namespace baton::hook

#endif  // BATON_HOOK_HOST_WAITS_H_
