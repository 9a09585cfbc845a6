// The hook's connection to the backend: one thread per process, one socket, all its GPUs.
#ifndef BATON_HOOK_CLIENT_H_
#define BATON_HOOK_CLIENT_H_

#include <stdint.h>

#include "hook/gpu.h"
#include "wire/codec.h"

namespace baton::hook {

// Asks for this GPU to be attached. Cheap when it is.
void Want(Gpu* gpu);
// Waits until the gate has been seen open. Tells the backend that this process waits. False: it is
// closed, and the process is Refused().
bool Park(Gpu* gpu);
// The same for a thread that the driver may be waiting for (StepOrPass()).
enum class Parked : uint8_t { kOpen, kRefused, kPassed };
Parked ParkOrPass(Gpu* gpu, void (*pass)(void*), void* argument);
// The backend refuses this process's ticket, and has for so long that nobody waits for it any more:
// what would wait fails with CUDA_ERROR_NOT_PERMITTED instead. Never in AwayMode::kOpen.
bool Refused();
// The calling thread, whose slot it is, has made a launch by the slow side: closes the gate where
// it was open for that one alone, says what was to be said after it, and gives back what the thread
// had while it waited.
void Launched(Slot* slot, Gpu* gpu);

// Memory was moved, or is to be: the gate opens or closes as that says. `tell`: the backend is
// told.
void MemoryMoved(Gpu* gpu, bool tell);

// What the hook does while no backend answers. Fixed.
wire::AwayMode WhileAway();
// A full socket drops the frame: states and totals are said again with the next heartbeat.
void SendFrame(const char* frame, size_t size);
template <class Message>
void Send(const Message& message) {
  char frame[wire::kTenantFrameMax];
  SendFrame(frame, wire::Encode(message, frame, sizeof(frame)));
}

}  // namespace baton::hook

#endif  // BATON_HOOK_CLIENT_H_
