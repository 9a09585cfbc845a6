// Threads that take none of the process's signals.
#ifndef BATON_BASE_NO_SIGNALS_H_
#define BATON_BASE_NO_SIGNALS_H_

#include <pthread.h>
#include <signal.h>

namespace baton {

// While it lives, threads that this thread starts begin with every signal blocked. A signal that is
// sent to the process is then handled by the thread that waits for it, and by no helper: neither
// inside a foreign library's call nor, under the thread sanitizer, only when that call returns.
// Thread safety: the calling thread's own mask, which the end restores.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace baton

#endif  // BATON_BASE_NO_SIGNALS_H_
