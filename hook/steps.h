// The steps of a GPU's client machine (Gpu::machine), and what follows from them: the gate, the
// word, the State.
#ifndef BATON_HOOK_STEPS_H_
#define BATON_HOOK_STEPS_H_

#include "hook/gpu.h"

namespace baton::hook {

// When a State that follows from a step is sent. Later: SendOwed() or a later step sends it.
enum class Says : uint8_t { kNow, kLater };

// Steps the machine and carries its effects out. With Gpu::lock held.
void StepLocked(Gpu* gpu, const Event& event, Instant now, Says says = Says::kNow);
// Takes the lock, and the time.
void Step(Gpu* gpu, const Event& event);

// The same for a thread that the driver may be waiting for, as it does for host functions. Where
// the client thread hangs in the driver with the lock, it calls pass(argument), under
// Meter::waits_lock, and takes no step: false. The thread is to go on then, as a part of the drain.
bool StepOrPass(Gpu* gpu, const Event& event, void (*pass)(void*), void* argument);

// Takes a token that has come from the backend, with `file` where it was sent ahead; closes that.
void TakeToken(const wire::Token& token, int file);

// Steps the machine if the word that its next token waits for has come. `launches`: the calling
// thread is about to launch; the State goes when it has (Launched()), or the client thread looks.
void LookAtWord(Gpu* gpu, bool launches);
// So often the client thread looks at a word that is waited for: it may be that nobody sleeps on
// it, or that whoever does is held up, in a launch also.
inline constexpr Duration kWordLook = std::chrono::milliseconds(2);
// Sends a State that is to be sent later, if there is one. With Gpu::lock held.
void SendOwed(Gpu* gpu);

}  // namespace baton::hook

#endif  // BATON_HOOK_STEPS_H_
