#include "hook/sleep.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "hook/close_look.h"
#include "hook/libc.h"
#include "hook/listener.h"

namespace baton::hook {
namespace {

std::atomic<int> kick{-1};
std::atomic<int64_t> sleeps_until{Nanos(kNever)};

}  // namespace

void PrepareSleep() { kick.store(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

void ForgetSleep() {
  const int fd = kick.exchange(-1);
  if (fd >= 0) close(fd);
}

void SleepUntil(Instant until, int socket) {
  sleeps_until.store(Nanos(until));
  pollfd fds[2] = {{kick.load(), POLLIN, 0}, {socket, POLLIN, 0}};
  const timespec t = ToTimespec(until == kNever ? Duration(0) : until - MonotonicNow());
  ppoll(fds, 2, until == kNever ? nullptr : &t, nullptr);
  if (until != kNever) CloseLook::RanLate(until, MonotonicNow());
  // Until the next sleep is reckoned every change of a timer by another thread kicks.
  sleeps_until.store(Nanos(kNever));
  if ((fds[0].revents & POLLIN) != 0) {
    uint64_t count;
    const ssize_t n = read(fds[0].fd, &count, sizeof(count));
    (void)n;
  }
  if ((fds[1].revents & POLLIN) != 0) LeaveToListener(fds[0].fd);
}

void Kick() {
  const uint64_t one = 1;
  const int fd = kick.load(std::memory_order_acquire);
  if (fd >= 0) {
    // As a system call, as in hook/listener.cc: a thread of the program may come here.
    const long n = syscall(SYS_write, fd, &one, sizeof(one));
    (void)n;  // full means that it is kicked already
  }
}

bool SleepsBeyond(Instant instant) { return Nanos(instant) < sleeps_until.load(); }

}  // namespace baton::hook
