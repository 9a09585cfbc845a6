#include "cli/measure.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

namespace baton::cli {
namespace {

constexpr size_t kBlock = 64;
constexpr Duration kSettle = std::chrono::microseconds(30);
// A token's sample takes no less: three frames each stay below what a daemon reads of a pod
// (node/admission.h).
constexpr Duration kSample = std::chrono::microseconds(400);

// Without sleeping, which would add a wake-up to the next sample.
void WaitUntil(Instant until) {
  while (MonotonicNow() < until) sched_yield();
}

// Alternates blocks of both kinds. The first block of each only warms up.
Result<Compared> Alternate(const std::function<Result<Duration>()>& token, Echo& echo,
                           size_t frame_size, size_t count) {
  Compared compared;
  for (size_t done = 0; done < count + kBlock; done += kBlock) {
    const size_t block = done == 0 ? kBlock : std::min(kBlock, count + kBlock - done);
    for (size_t i = 0; i < block; ++i) {
      const Instant next = MonotonicNow() + kSample;
      const Result<Duration> took = token();
      if (!took) return tl::unexpected(took.error());
      if (done > 0) compared.token.push_back(*took);
      Settle();
      WaitUntil(next);
    }
    for (size_t i = 0; i < block; ++i) {
      const Result<Duration> took = echo.RoundTrip(frame_size);
      if (!took) return tl::unexpected(took.error());
      if (done > 0) compared.echo.push_back(*took);
      Settle();
    }
  }
  return compared;
}

}  // namespace

void Settle() { WaitUntil(MonotonicNow() + kSettle); }

Result<std::unique_ptr<UnixEcho>> UnixEcho::Start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return Fail(ErrorCode::kInternal, std::string("socketpair: ") + std::strerror(errno));
  }
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    char frame[wire::kTenantFrameMax];
    for (;;) {
      const ssize_t got = recv(ends[1], frame, sizeof frame, 0);
      if (got <= 0) _exit(0);
      if (send(ends[1], frame, static_cast<size_t>(got), MSG_NOSIGNAL) != got) _exit(0);
    }
  }
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return Fail(ErrorCode::kInternal, std::string("fork: ") + std::strerror(errno));
  }
  return std::unique_ptr<UnixEcho>(new UnixEcho(ends[0], child));
}

UnixEcho::~UnixEcho() {
  close(fd_);
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
}

Result<Duration> UnixEcho::RoundTrip(size_t frame_size) {
  char frame[wire::kTenantFrameMax] = {};
  const Instant sent = MonotonicNow();
  if (send(fd_, frame, frame_size, MSG_NOSIGNAL) != static_cast<ssize_t>(frame_size) ||
      recv(fd_, frame, sizeof frame, 0) != static_cast<ssize_t>(frame_size)) {
    return Fail(ErrorCode::kInternal, "the raw echo's other process is gone");
  }
  return MonotonicNow() - sent;
}

Result<Compared> CompareRoundTrips(Tenant& tenant, Echo& echo, size_t count) {
  const Result<Duration> first = tenant.RoundTrip();  // tells the frame's size
  if (!first) return tl::unexpected(first.error());
  return Alternate([&] { return tenant.RoundTrip(); }, echo, tenant.frame_size(), count);
}

Result<Compared> CompareHandOffs(Tenant& first, Tenant& second, Echo& echo, size_t count) {
  const auto broken = [] {
    return Fail(ErrorCode::kUnavailable, "no token was granted within five seconds");
  };
  Tenant* holder = &first;
  Tenant* waiter = &second;
  if (!holder->Ask() || !holder->AwaitToken() || !holder->Confirm()) return broken();
  const auto hand_off = [&]() -> Result<Duration> {
    if (!waiter->Ask()) return broken();
    Settle();
    if (!holder->Serve()) return broken();  // it has been told that somebody waits
    const Instant returned = MonotonicNow();
    if (!holder->Return()) return broken();
    while (!waiter->holding()) {
      // The holder listens too: its return may have crossed with news of its token.
      pollfd ends[] = {{waiter->fd(), POLLIN, 0}, {holder->fd(), POLLIN, 0}};
      if (poll(ends, 2, 5000) <= 0 || !waiter->Serve() || !holder->Serve()) return broken();
    }
    const Duration took = MonotonicNow() - returned;
    if (!waiter->Confirm()) return broken();
    std::swap(holder, waiter);
    return took;
  };
  const Result<Duration> warm = hand_off();
  if (!warm) return tl::unexpected(warm.error());
  Result<Compared> compared = Alternate(hand_off, echo, first.frame_size(), count);
  if (!holder->Serve() || !holder->Return()) return broken();
  return compared;
}

}  // namespace baton::cli
