// A thread that waits for its token takes it from the socket itself: then the token has come when
// that thread wakes up, and not when it is woken for a second time by the client thread. There is
// one such thread in a process, the listener; others that wait are woken by it.
//
// The client thread reads the socket too, and always can: the listener may be held up for as long
// as its program likes (a signal handler, a debugger), and what is no token is none of its
// business. So both sleep on the socket, and whoever reads holds a lock meanwhile; for that time
// the listener's signals are held.
#ifndef BATON_HOOK_LISTENER_H_
#define BATON_HOOK_LISTENER_H_

#include <atomic>

#include "base/time.h"
#include "hook/libc.h"
#include "wire/messages.h"

namespace baton::hook {

struct Gate;

// Held by whoever reads the socket, or closes it.
extern Lock g_reading;

// Before the first thread waits. In the child after fork: again, after ForgetListening().
void PrepareListening();
void ForgetListening();

// The calling thread, which waits at a closed gate, becomes the listener. False: another one is.
bool BeginListening();
void EndListening();

enum class Heard : uint8_t {
  kNothing,  // the gate may have changed, or a signal came
  kToken,    // it is in `token`, and out of the socket
  kOther,  // something that the client thread is to read, or reads: the gate says what comes of it
};
// The listener sleeps until something may have changed, for `timeout` at most. `socket`: the
// process's, or -1; it is read only while it still has that value. `held`: signals come while it
// sleeps.
// `file`: the descriptor that came with the token; -1: none.
Heard Listen(const std::atomic<int>& socket, const Gate& gate, Duration timeout,
             const SignalsHeld& held, wire::Token& token, int& file);
// Receives a frame, without waiting, as recvmsg() does; with the descriptor that comes along, or
// -1.
long ReceiveWithFile(int socket, char* frame, size_t room, int& file);
// Sends a frame, with a descriptor where `file` is not below 0.
void SendWithFile(int socket, char* frame, size_t size, int file);
// The calling thread may have opened the gate at which the listener waits, or made a new socket.
void WakeListener();

// The client thread has found something to read: where somebody listens, gives it a moment for what
// it came for. `kick`: what the client thread is woken by.
void LeaveToListener(int kick);

}  // namespace baton::hook

#endif  // BATON_HOOK_LISTENER_H_
