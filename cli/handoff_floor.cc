#include "cli/handoff_floor.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <string>

#include "base/short_slice.h"

namespace baton::cli {
namespace {

// The holder's time, long enough for the other to be asleep; and the end of it in which the holder
// looks without a pause.
constexpr Duration kHold = std::chrono::microseconds(500);
constexpr Duration kSpin = std::chrono::microseconds(100);

// A turn of a process; it sleeps until the number is the one that it waits for.
struct alignas(64) Word {
  std::atomic<uint32_t> turn{0};
  std::atomic<int64_t> seen_ns{0};  // when it was seen
};
struct Shared {
  Word go;    // the holder writes it
  Word back;  // the other does
};

void Futex(std::atomic<uint32_t>& word, int what, uint32_t value) {
  syscall(SYS_futex, &word, what, value, nullptr, nullptr, 0);
}

void Await(Word& word, uint32_t turn) {
  for (;;) {
    const uint32_t now = word.turn.load(std::memory_order_acquire);
    if (now == turn) return;
    Futex(word.turn, FUTEX_WAIT, now);
  }
}

void Pass(Word& word, uint32_t turn) {
  word.turn.store(turn, std::memory_order_release);
  Futex(word.turn, FUTEX_WAKE, INT_MAX);
}

[[noreturn]] void RunNext(Shared& shared) {
  for (uint32_t turn = 1;; ++turn) {
    Await(shared.go, turn);
    shared.go.seen_ns.store(Nanos(MonotonicNow()), std::memory_order_relaxed);
    Pass(shared.back, turn);
  }
}

[[noreturn]] void RunHolder(Shared& shared, int fd) {
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  char asked;
  for (uint32_t turn = 1; recv(fd, &asked, 1, 0) == 1; ++turn) {
    const Instant end = MonotonicNow() + kHold;
    const int64_t until = Nanos(end - kSpin);
    const timespec wake = {static_cast<time_t>(until / 1'000'000'000),
                           static_cast<long>(until % 1'000'000'000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, nullptr) == EINTR) {
    }
    Instant ended = MonotonicNow();
    while (ended < end) ended = MonotonicNow();
    Pass(shared.go, turn);
    Await(shared.back, turn);
    const int64_t took = shared.go.seen_ns.load(std::memory_order_relaxed) - Nanos(end);
    if (send(fd, &took, sizeof took, MSG_NOSIGNAL) != sizeof took) break;
  }
  _exit(0);
}

// As the hook's thread and the daemons do; whoever asks for hand-offs may wait.
pid_t Fork() {
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    UseShortSlice();
  }
  return pid;
}

void End(pid_t pid) {
  if (pid <= 0) return;
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

}  // namespace

Result<std::unique_ptr<HandOffFloor>> HandOffFloor::Start() {
  const auto fail = [](const char* what) {
    return Fail(ErrorCode::kInternal, std::string(what) + ": " + std::strerror(errno));
  };
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail("mmap");
  auto* shared = new (memory) Shared();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return fail("socketpair");
  const pid_t next = Fork();
  if (next == 0) {
    close(ends[0]);
    close(ends[1]);
    RunNext(*shared);
  }
  const pid_t holder = next < 0 ? -1 : Fork();
  if (holder == 0) {
    close(ends[0]);
    RunHolder(*shared, ends[1]);
  }
  close(ends[1]);
  munmap(memory, sizeof(Shared));  // the two have theirs
  std::unique_ptr<HandOffFloor> floor(new HandOffFloor(ends[0], holder, next));
  if (holder < 0) return fail("fork");
  return floor;
}

HandOffFloor::~HandOffFloor() {
  close(fd_);
  End(holder_);
  End(next_);
}

Result<Duration> HandOffFloor::HandOff() {
  const char ask = 1;
  int64_t took = 0;
  if (send(fd_, &ask, 1, MSG_NOSIGNAL) != 1 || recv(fd_, &took, sizeof took, 0) != sizeof took) {
    return Fail(ErrorCode::kInternal, "a process of the raw hand-off is gone");
  }
  return Duration(took);
}

}  // namespace baton::cli
