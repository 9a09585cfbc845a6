// The client thread's sleep, and how others end it.
#ifndef BATON_HOOK_SLEEP_H_
#define BATON_HOOK_SLEEP_H_

#include "base/time.h"

namespace baton::hook {

void PrepareSleep();
// In the child after fork.
void ForgetSleep();

// The client thread's: until then, until Kick(), or until something comes by `socket`. A token that
// has come is left to who listens for it.
void SleepUntil(Instant until, int socket);

// Ends the sleep, or the next one. From any thread.
void Kick();
// Whether the client thread sleeps beyond that instant.
bool SleepsBeyond(Instant instant);

}  // namespace baton::hook

#endif  // BATON_HOOK_SLEEP_H_
