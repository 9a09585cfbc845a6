// The few services of the C library that the hook needs and cannot link to directly: some carry a
// symbol version above the hook's floor (glibc 2.17), and dlsym is one that the hook replaces.
// Everything here is found at run time in the C library that is loaded already.
#ifndef BATON_HOOK_LIBC_H_
#define BATON_HOOK_LIBC_H_

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <atomic>
#include <new>

#include "base/time.h"

namespace baton::hook {

// The C library's dlsym, dlvsym and dlopen, for the tail jumps; null until FindLibc() ran, and
// where there is none. Only hook/lookup.cc's assembly reads them by name.
extern "C" {
extern void* baton_real_dlsym;
extern void* baton_real_dlvsym;
extern void* baton_real_dlopen;
}

// Finds them. Cheap when called again, thread safe. False: this C library is not glibc.
bool FindLibc();
// dlsym as this library's caller would see it. FindLibc() first.
void* RealDlsym(void* handle, const char* name);
// dlopen(name, RTLD_LAZY), or only if it is loaded already. Null when absent.
void* OpenLibrary(const char* name, bool only_if_loaded);

// A detached thread with every signal of the program blocked. False when the system refused.
bool StartThread(void* (*run)(void*), void* argument);
// Calls `at_exit(value)` when the calling thread ends. False when the system refused.
bool AtThreadExit(void (*at_exit)(void*), void* value);
// Runs `child` in every child after fork().
void AfterFork(void (*child)());

// Below zero: none.
timespec ToTimespec(Duration d);

// System calls without a wrapper in old C libraries. All restart after EINTR where that is right.
void FutexWait(const std::atomic<uint32_t>* word, uint32_t expected, Duration timeout);
void FutexWakeAll(const std::atomic<uint32_t>* word);
// True when the kernel offers MEMBARRIER_CMD_PRIVATE_EXPEDITED and this process registered for it.
bool RegisterMembarrier();
// After it, whatever other threads of the process wrote before is seen, and the reverse.
void Membarrier();
void SleepFor(Duration d);
uint64_t Random64();
// The program's words, as far as there is room, with spaces for what is not printable. How many
// bytes there are.
size_t CommandLine(char* text, size_t room);
// The environment variable as whole seconds, below a million; `otherwise` where it is not set, or
// begins with no digit.
Duration EnvironmentSeconds(const char* name, Duration otherwise);

// A T that is never freed; null when memory is short. Where nothing may throw.
template <class T>
T* New() {
  void* p = nullptr;
  if (posix_memalign(&p, alignof(T) < 16 ? 16 : alignof(T), sizeof(T)) != 0) return nullptr;
  return new (p) T();
}

// A lock for the hook's own sections, which are short but where the lock's owner says that it is
// held over a wait. Usable after zeroing.
class Lock {
 public:
  bool TryAcquire() {
    uint32_t free = 0;
    return word_.compare_exchange_strong(free, 1, std::memory_order_acquire);
  }
  void Acquire();
  void Release();
  // In the child after fork: whoever held it does not exist here.
  void Reset() { word_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> word_{0};  // 0 free, 1 held, 2 held and somebody waits
};

// Holds the program's signals back from the calling thread: a handler may take as long as it likes,
// and must not do so where this thread has a lock that the client thread needs.
class SignalsHeld {
 public:
  SignalsHeld() { Hold(); }
  ~SignalsHeld() { Release(); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;
  void Release();
  // Again, after Release().
  void Hold();
  // What the program has blocked, for a sleep that signals end (ppoll); 8 bytes, as the kernel has
  // it.
  const uint64_t& before() const { return before_; }

 private:
  uint64_t before_ = 0;
  bool held_ = true;
};

class Guard {
 public:
  explicit Guard(Lock& lock) : lock_(lock) { lock_.Acquire(); }
  ~Guard() { lock_.Release(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  Lock& lock_;
};

}  // namespace baton::hook

#endif  // BATON_HOOK_LIBC_H_
